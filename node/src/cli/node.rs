//! `forebay node`: what is done about the nodes of a cluster.

use super::Client;
use crate::cluster::ways_out::AuditReport;
use crate::fence_test::{FenceTestArgs, ago};
use crate::identity::{Authority, Made};
use anyhow::{Result, bail};
use clap::Subcommand;
use serde_json::Value;
use std::path::PathBuf;

/// Folder of the authority below the state folder.
const AUTHORITY_FOLDER: &str = "authority";

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// List the nodes of the cluster, and whether the links to them work
    List {
        #[command(flatten)]
        to: super::ApiArgs,
    },
    /// Free the name of a node that will not come back, for a new machine that is to have it
    Forget {
        /// Its name
        name: String,
        /// The second word: its machine is gone, and with it its tiers
        #[arg(long, required = true)]
        yes_its_machine_is_gone: bool,
        #[command(flatten)]
        to: super::ApiArgs,
    },
    /// Show what operators have decided that the cluster could not know, and which machines it has switched off
    Audit {
        #[command(flatten)]
        to: super::ApiArgs,
    },
    /// Make the authority of a new cluster, on this machine
    ///
    /// Its key stays here, in a file that only its owner can read: keep a copy of the folder where you
    /// keep such things. It is good for 20 years. A cluster of three takes two commands, here:
    ///
    ///     forebay node init-ca --cluster lab
    ///     forebay node enrol alpha beta gamma
    ///
    /// and each file of the second is carried to its node.
    #[command(verbatim_doc_comment)]
    InitCa {
        /// Name of the cluster: lower-case letters, digits and hyphens
        #[arg(long, value_name = "NAME", default_value = "forebay")]
        cluster: String,
        /// Folder of the authority [default: authority in the state folder]
        #[arg(long, value_name = "DIR")]
        authority: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Give nodes their identities: for each a file with its certificate and key
    ///
    /// Whoever has the file is that node. Carry it there by a way that nobody else reads, and delete it here. It is good for two
    /// years; --renew makes another one for the same node, which may go on with the former until then.
    Enrol {
        /// Names of the nodes: lower-case letters, digits and hyphens
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Folder for the files NAME.identity.toml
        #[arg(long, value_name = "DIR", default_value = ".")]
        to: PathBuf,
        /// Make a new certificate for nodes that are enrolled already; their files are replaced
        #[arg(long)]
        renew: bool,
        /// Folder of the authority [default: authority in the state folder]
        #[arg(long, value_name = "DIR")]
        authority: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Prove that a node can be kept from writing, or find out whether it could be
    ///
    /// A successor may end what a failed node had under way to the slow storage: by switching that
    /// node off, or by a device that refuses it. This tries such a fence, with nothing served, and
    /// says what it is worth. Without --power-off, --expel or --be-expelled it only asks, and changes
    /// nothing that lasts.
    ///
    /// Power: the installed fence agents (fence_ipmilan and its like) switch the node off; off counts
    /// when it is confirmed. In one line:
    ///
    ///     forebay node fence-test --agent fence_ipmilan --node beta --power-off
    ///         --option ip=10.0.0.12 --option lanplus=1 --option username=admin
    ///         --option-file password=/etc/forebay/beta.bmc
    ///
    /// Reservation (SCSI-3, NVMe), on a device that nothing uses: on the node that is to be refused
    /// the first line, which prints a key and writes the device's last block again and again, with
    /// what it holds; on another node the second, with that key.
    ///
    ///     forebay node fence-test --reservation /dev/sdx --be-expelled
    ///     forebay node fence-test --reservation /dev/sdx --expel 0x8c12...
    ///
    /// With --json, --be-expelled prints the key as a document of its own first.
    #[command(verbatim_doc_comment)]
    FenceTest(Box<FenceTestArgs>),
}

/// Compression of what goes to a node, in a few words.
fn compression(report: &Value) -> String {
    let saved = report["saved_bytes"].as_u64().unwrap_or(0) >> 20;
    match (report["now"].as_str(), report["ratio"].as_f64()) {
        (None, _) => "-".to_owned(),
        (Some(now), Some(ratio)) => format!("{now}, {saved} MiB saved ({ratio:.1}x)"),
        (Some(now), None) => now.to_owned(),
    }
}

fn print_nodes(nodes: &Value) {
    println!("{:<16} {:<12} {:<10} {:<9} {:<28} ADDRESSES", "NODE", "DOMAIN", "LINK", "CHANNELS", "COMPRESSION");
    for node in nodes.as_array().into_iter().flatten() {
        let text = |key: &str| node[key].as_str().unwrap_or_default();
        let link = match (node["own"].as_bool(), node["up"].as_bool()) {
            (Some(true), _) => "this node",
            (_, Some(true)) => "up",
            (_, Some(false) | None) => "down",
        };
        let addresses: Vec<&str> =
            node["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let channels = node["channels"].as_array().map(Vec::as_slice).unwrap_or_default();
        let up = channels.iter().filter(|channel| channel["phase"] == "up").count();
        let channels = if channels.is_empty() { "-".to_owned() } else { format!("{up} of {}", channels.len()) };
        println!(
            "{:<16} {:<12} {link:<10} {channels:<9} {:<28} {}",
            text("name"),
            text("fault_domain"),
            compression(&node["compression"]),
            addresses.join(" ")
        );
    }
}

fn print_audit(lines: Vec<AuditReport>) {
    if lines.is_empty() {
        println!("nothing has been decided");
    }
    for line in lines {
        let volume = line.volume.map(|volume| format!(" volume {volume}")).unwrap_or_default();
        let when = ago(line.at_unix_ms / 1000);
        println!("{when}, at {}: {}{volume}: {}", line.node, line.action, line.words);
    }
}

/// Does it.
pub fn run(command: Command) -> Result<bool> {
    let folder = |given: Option<PathBuf>| given.unwrap_or_else(|| crate::paths::state_dir().join(AUTHORITY_FOLDER));
    match command {
        Command::FenceTest(args) => return crate::fence_test::run(*args),
        Command::List { to } => {
            let nodes = Client::new(to.api).call("GET", "/v1/nodes", None)?;
            if to.json {
                println!("{}", serde_json::to_string_pretty(&nodes)?);
            } else {
                print_nodes(&nodes);
            }
        }
        Command::Forget { name, yes_its_machine_is_gone, to } => {
            let plain: String =
                name.chars().map(|c| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' }).collect();
            let body = serde_json::json!({ "yes_its_machine_is_gone": yes_its_machine_is_gone });
            let forgotten = Client::new(to.api).call("POST", &format!("/v1/nodes/{plain}/forget"), Some(&body))?;
            if to.json {
                println!("{}", serde_json::to_string_pretty(&forgotten)?);
            } else {
                println!("node {name}: forgotten");
            }
        }
        Command::Audit { to } => {
            let lines = Client::new(to.api).call("GET", "/v1/audit", None)?;
            if to.json {
                println!("{}", serde_json::to_string_pretty(&lines)?);
            } else {
                print_audit(serde_json::from_value(lines)?);
            }
        }
        Command::InitCa { cluster, authority, json } => {
            let made = Authority::init(&folder(authority), &cluster)?;
            if json {
                println!("{}", serde_json::to_string_pretty(&made)?);
                return Ok(true);
            }
            println!("cluster {}: authority in {}, until {}", made.name, made.path.display(), made.valid_until);
            println!("next: forebay node enrol NAME, here, for each node");
        }
        Command::Enrol { names, to, renew, authority, json } => {
            if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
                bail!("{} is there twice; each node has a name of its own", names[at]);
            }
            let mut authority = Authority::open(&folder(authority))?;
            let mut all: Vec<Made> = Vec::new();
            for name in &names {
                let made = authority.enrol(name, &to.join(format!("{name}.identity.toml")), renew)?;
                if !json {
                    println!("{}: {}, until {}", made.name, made.path.display(), made.valid_until);
                }
                all.push(made);
            }
            if json {
                println!("{}", serde_json::to_string_pretty(&all)?);
            }
        }
    }
    Ok(true)
}
