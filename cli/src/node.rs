//! `forebay node`: what is done about the nodes of a cluster.

use super::Client;
use crate::fence_check::FenceCheckArgs;
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use forebay_api::calendar;
use forebay_api::cluster::AuditReport;
use forebay_core::roles::Role;
use forebay_host::identity::revocation::{self, Revocation, Which};
use forebay_host::identity::{Authority, Made};
use forebay_host::proofs::ago;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// List the nodes of the cluster, and whether the links to them work
    List {
        #[command(flatten)]
        to: super::ApiArgs,
    },
    /// Evacuate a node before it is stopped: what it owns is handed over, and its copies are kept by other nodes
    ///
    /// Given at any node of the cluster. It stays so, also over a restart of that node, until --undo. Ctrl-C ends the
    /// display, not the evacuation. Exit code 0: the node owns nothing and has no copy. 1: something stays there
    /// because no other node can have it, and is named; then a stop of the node costs that volume a copy.
    Evacuate {
        /// Name of the node
        name: String,
        /// It stays after all: it may own volumes and get copies again
        #[arg(long)]
        undo: bool,
        #[command(flatten)]
        to: super::ApiArgs,
    },
    /// Free the name of a node that will not come back, for a new machine that is to have it, and revoke its identity
    ///
    /// Whoever has the identity that the node had is no node any more: its disk may be in other hands. The cluster's authority signs
    /// that, so this is given where the authority is, or with what was signed there:
    ///
    ///     forebay node revoke gamma --yes-it-is-cut-off --to-file gamma.revoked    (where the authority is)
    ///     forebay node forget gamma --yes-its-machine-is-gone --revocation gamma.revoked
    #[command(verbatim_doc_comment)]
    Forget {
        /// Name of the node
        name: String,
        /// The second word: its machine is gone, and with it its tiers
        #[arg(long, required = true)]
        yes_its_machine_is_gone: bool,
        /// Folder of the authority [default: as root /etc/forebay/authority, else authority in the state folder]
        #[arg(long, value_name = "DIR")]
        authority: Option<PathBuf>,
        /// What the authority has signed (node revoke --to-file), where that is on another machine
        #[arg(long, value_name = "FILE", conflicts_with = "authority")]
        revocation: Option<PathBuf>,
        /// Leave the identity good, for whoever has it
        #[arg(long, conflicts_with_all = ["authority", "revocation"])]
        without_revoking: bool,
        #[command(flatten)]
        to: super::ApiArgs,
    },
    /// Revoke identities of nodes: whoever has one is a node of the cluster no more
    ///
    /// All identities that the cluster's authority has made for the name count no more, for ever, at all nodes: links to whoever shows one end at
    /// once. One that is made afterwards (node enrol NAME --renew) is good. With --former only those that --renew has replaced are revoked, and
    /// the node goes on with the newest:
    ///
    ///     forebay node enrol gamma --renew        (carry the file to gamma, and restart the daemon there)
    ///     forebay node revoke gamma --former
    ///
    /// It is given where the authority is, and told to the daemon there; where that reaches no node, --to-file writes what is signed,
    /// and --from-file tells it at any node.
    #[command(verbatim_doc_comment)]
    Revoke {
        /// Names of the nodes
        #[arg(value_name = "NAME", required_unless_present = "from_file")]
        names: Vec<String>,
        /// Only the identities before the newest of each
        #[arg(long, conflicts_with = "yes_it_is_cut_off")]
        former: bool,
        /// The second word: a node that runs with the identity has no links any more
        #[arg(long, required_unless_present_any = ["former", "from_file"])]
        yes_it_is_cut_off: bool,
        /// Folder of the authority [default: as root /etc/forebay/authority, else authority in the state folder]
        #[arg(long, value_name = "DIR")]
        authority: Option<PathBuf>,
        /// Write what is signed to a file, and tell it to no node
        #[arg(long, value_name = "FILE")]
        to_file: Option<PathBuf>,
        /// Tell what is in such a file
        #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "former", "yes_it_is_cut_off", "authority", "to_file"])]
        from_file: Option<PathBuf>,
        #[command(flatten)]
        to: super::ApiArgs,
    },
    /// Say that a node cannot tell what it knows, after the coordinator was put back to an older state
    ///
    /// Volumes whose owner is lost wait until every node has said what it knows of their records. Name one that will not
    /// come back: if it was the last to know of a later owner, what that one has acknowledged is lost.
    #[command(verbatim_doc_comment)]
    CannotAnswer {
        /// Name of the node
        name: String,
        /// The second word: what it knows, and nobody else, may be lost
        #[arg(long, required = true)]
        yes_what_it_knows_may_be_lost: bool,
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
        /// Folder of the authority [default: as root /etc/forebay/authority, else authority in the state folder]
        #[arg(long, value_name = "DIR")]
        authority: Option<PathBuf>,
        /// Print what is said as JSON
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
        /// Folder of the authority [default: as root /etc/forebay/authority, else authority in the state folder]
        #[arg(long, value_name = "DIR")]
        authority: Option<PathBuf>,
        /// Print what is said as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a certificate for who is no node: a client of volumes, a caller of the API, or the server that either calls
    ///
    /// It goes into a folder as ca-cert.pem, client-cert.pem and client-key.pem (or server-...), as QEMU and libnbd want them,
    /// and is good for two years, for its role alone:
    ///
    ///     forebay node certify vm-host-1.lab --role nbd-client --to vm-host-1
    ///     forebay node certify alpha.lab 10.0.0.1 --role nbd-server --to alpha-nbd
    #[command(verbatim_doc_comment)]
    Certify {
        /// DNS names and addresses that it is for; lists of clients name it by one of them (dns:NAME)
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// What it is good for: nbd-client, admin (of the HTTP API, where that lists it), nbd-server or http-server
        #[arg(long, value_name = "ROLE", value_parser = role)]
        role: Role,
        /// Folder for the files
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
        /// Folder of the authority [default: as root /etc/forebay/authority, else authority in the state folder]
        #[arg(long, value_name = "DIR")]
        authority: Option<PathBuf>,
        /// Print what is said as JSON
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
    ///     forebay node fence-check --agent fence_ipmilan --node beta --power-off
    ///         --option ip=10.0.0.12 --option lanplus=1 --option username=admin
    ///         --option-file password=/etc/forebay/beta.bmc
    ///
    /// Reservation (SCSI-3, NVMe), on a device that nothing uses: on the node that is to be refused
    /// the first line, which prints a key and writes the device's last block again and again, with
    /// what it holds; on another node the second, with that key.
    ///
    ///     forebay node fence-check --reservation /dev/sdx --be-expelled
    ///     forebay node fence-check --reservation /dev/sdx --expel 0x8c12...
    ///
    /// Watchdog: this machine's hardware resets it when the daemon hangs. It is looked at, and its timer
    /// is not begun; that it works is seen after it has reset the machine once.
    ///
    ///     forebay node fence-check --watchdog /dev/watchdog0
    ///
    /// With --json, --be-expelled prints the key as a document of its own first.
    #[command(verbatim_doc_comment)]
    FenceCheck(Box<FenceCheckArgs>),
}

fn role(word: &str) -> Result<Role, String> {
    Role::of_word(word).ok_or_else(|| format!("give one of {}", Role::ALL.map(Role::word).join(", ")))
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
    println!(
        "{:<16} {:<12} {:<10} {:<10} {:<9} {:<28} ADDRESSES",
        "NODE", "DOMAIN", "LINK", "STATE", "CHANNELS", "COMPRESSION"
    );
    for node in nodes.as_array().into_iter().flatten() {
        let text = |key: &str| node[key].as_str().unwrap_or_default();
        let link = match (node["own"].as_bool(), node["up"].as_bool()) {
            (Some(true), _) => "this node",
            (_, Some(true)) => "up",
            (_, Some(false) | None) => "down",
        };
        let addresses: Vec<&str> =
            node["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let state = node["evacuation"]["state"].as_str().unwrap_or("-");
        let channels = node["channels"].as_array().map(Vec::as_slice).unwrap_or_default();
        let up = channels.iter().filter(|channel| channel["phase"] == "up").count();
        let channels = if channels.is_empty() { "-".to_owned() } else { format!("{up} of {}", channels.len()) };
        println!(
            "{:<16} {:<12} {link:<10} {state:<10} {channels:<9} {:<28} {}",
            text("name"),
            text("fault_domain"),
            compression(&node["compression"]),
            addresses.join(" ")
        );
    }
    for node in nodes.as_array().into_iter().flatten() {
        if let (Some(name), Some(why)) = (node["name"].as_str(), node["duplicated"].as_str()) {
            println!("{name}: {why}");
        }
    }
}

/// How often the progress of an evacuation is looked at, and how often nothing may move before what stays is believed to.
const EVACUATION_LOOK: Duration = Duration::from_millis(500);
const LOOKS_UNTIL_SURE: u32 = 4;

/// A name that is none must not become another path; the daemon says that there is no such node.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

fn evacuate(client: &Client, name: &str, json: bool) -> Result<bool> {
    let mut node = client.call("POST", &format!("/v1/nodes/{}/evacuate", plain(name)), None)?;
    if !json {
        eprintln!("evacuating {name}; Ctrl-C ends this display, not the evacuation; --undo does");
    }
    let (mut shown, mut sure) = (String::new(), 0);
    loop {
        let keeps = node["evacuation"]["keeps"].as_array().cloned().unwrap_or_default();
        let text = |kept: &Value, key: &str| kept[key].as_str().unwrap_or_default().to_owned();
        let lines: Vec<String> = keeps
            .iter()
            .map(|kept| format!("{name} is {} of {}: {}", text(kept, "role"), text(kept, "volume"), text(kept, "why")))
            .collect();
        let stays = keeps.iter().all(|kept| kept["stays"] == true);
        sure = if stays && lines.join("\n") == shown { sure + 1 } else { 0 };
        if !json && lines.join("\n") != shown {
            lines.iter().for_each(|line| eprintln!("{line}"));
        }
        shown = lines.join("\n");
        if node["evacuation"].is_null() {
            bail!("the evacuation of {name} was undone meanwhile");
        }
        if keeps.is_empty() || sure >= LOOKS_UNTIL_SURE {
            break;
        }
        std::thread::sleep(EVACUATION_LOOK);
        let nodes = client.call("GET", "/v1/nodes", None)?;
        let found = nodes.as_array().into_iter().flatten().find(|node| node["name"] == name);
        node = found.cloned().with_context(|| format!("node {name} has been forgotten meanwhile"))?;
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&node)?);
    } else if shown.is_empty() {
        println!("{name} is evacuated: it owns nothing and has no copy; stop it when you like, `--undo` gives it back");
    } else {
        println!("{name} is not evacuated: what is named above stays, and moves when another node can have it");
    }
    Ok(shown.is_empty())
}

fn print_audit(lines: Vec<AuditReport>) {
    if lines.is_empty() {
        println!("nothing has been decided");
    }
    for line in lines {
        let volume = line.volume.map(|volume| format!(" volume {volume}")).unwrap_or_default();
        let when = ago(line.at_ms / 1000);
        println!("{when}, at {}: {}{volume}: {}", line.node, line.action, line.words);
    }
}

/// Where nobody says otherwise. An earlier version had it in the state folder, which is a service's user's: neither is another one to be
/// made beside it, nor what lies there to be believed unseen.
fn default_authority() -> Result<PathBuf> {
    let (folder, former) = (forebay_api::paths::authority_dir(), forebay_api::paths::state_dir().join("authority"));
    if folder != former && !folder.join("authority.toml").exists() && former.join("authority.toml").exists() {
        bail!(
            "the cluster's authority is not in {0}, where it belongs, and something of that name is in {1}, which the daemon's user can \
             change. Look whether its certificate is that of the nodes' identity files (`authority = ...`), then move it: `mv {1} {0} && \
             chown -R root: {0}`; or name its folder with --authority",
            folder.display(),
            former.display()
        );
    }
    Ok(folder)
}

/// Prints what came of a command: as JSON, or by its own words.
fn print(json: bool, answer: &impl Serialize, words: impl FnOnce()) -> Result<()> {
    match json {
        true => println!("{}", serde_json::to_string_pretty(answer)?),
        false => words(),
    }
    Ok(())
}

/// Gives identities to nodes. Each is told as it is made, because those before one that fails are good.
fn enrol(names: &[String], to: &Path, renew: bool, authority: &Path, json: bool) -> Result<()> {
    if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        bail!("{} is there twice; each node has a name of its own", names[at]);
    }
    let mut authority = Authority::open(authority)?;
    let mut all: Vec<Made> = Vec::new();
    for name in names {
        let made = authority.enrol(name, &to.join(format!("{name}.identity.toml")), renew)?;
        if !json {
            println!("{}: {}, until {}", made.name, made.path.display(), made.valid_until);
        }
        all.push(made);
    }
    print(json, &all, || ())
}

/// What is signed of the node that is to be forgotten: from a file, or by the authority where it is here.
fn revocation_of(name: &str, authority: Option<PathBuf>, file: Option<PathBuf>) -> Result<Revocation> {
    if let Some(path) = file {
        let found = revocation::read(&path)?.into_iter().find(|revocation| revocation.name == *name);
        return found.with_context(|| format!("{} has no revocation of {name}", path.display()));
    }
    let is_asked_for = authority.is_some();
    let folder = authority.map_or_else(default_authority, Ok)?;
    if !is_asked_for && !folder.join("authority.toml").exists() {
        bail!(
            "the cluster's authority, which signs that the identity of {name} is revoked, is not in {}: name its folder with --authority; or \
             have it signed where it is (`forebay node revoke {name} --yes-it-is-cut-off --to-file FILE`) and give that file with --revocation; or \
             leave the identity good for whoever has it, with --without-revoking. Nothing was changed",
            folder.display()
        );
    }
    let signed = Authority::open(&folder)?.revoke(&[name.to_owned()], Which::All);
    let mut signed =
        signed.context("nothing was changed; to have it forgotten all the same, add --without-revoking")?;
    Ok(signed.remove(0))
}

fn write_revocations(path: &Path, all: &[Revocation], json: bool) -> Result<()> {
    revocation::write(path, all)?;
    print(json, &all, || {
        println!("{}: tell it at any node of the cluster, with `forebay node revoke --from-file FILE`", path.display());
    })
}

fn tell_revocations(client: &Client, all: &[Revocation], json: bool) -> Result<()> {
    let body = serde_json::json!({ "revocations": all });
    let told = client.call("POST", "/v1/revocations", Some(&body)).context(
        "the authority has signed it; whether nodes know it is not sure. Say it again, or write it to a file (--to-file) and tell that at another node \
         (--from-file)",
    )?;
    print(json, &told, || {
        for Revocation { name, until_s, .. } in all {
            let until = calendar::show_ms(until_s.saturating_mul(1000));
            println!("{name}: identities that were made up to {until} are revoked");
        }
    })
}

/// Carries out a subcommand of `forebay node`; false where it ended without what was asked for.
pub fn run(command: Command) -> Result<bool> {
    let folder = |given: Option<PathBuf>| match given {
        Some(folder) => Ok(folder),
        None => default_authority(),
    };
    match command {
        Command::FenceCheck(args) => return crate::fence_check::run(*args),
        Command::List { to } => {
            let nodes = Client::new(to.api).call("GET", "/v1/nodes", None)?;
            print(to.json, &nodes, || print_nodes(&nodes))?;
        }
        Command::Evacuate { name, undo: false, to } => return evacuate(&Client::new(to.api), &name, to.json),
        Command::Evacuate { name, undo: true, to } => {
            let client = Client::new(to.api);
            let node = client.call("DELETE", &format!("/v1/nodes/{}/evacuate", plain(&name)), None)?;
            print(to.json, &node, || println!("{name} stays: it may own volumes and get copies again"))?;
        }
        Command::Forget { name, yes_its_machine_is_gone, authority, revocation, without_revoking, to } => {
            let mut body = serde_json::json!({ "yes_its_machine_is_gone": yes_its_machine_is_gone });
            if !without_revoking {
                body["revocation"] = serde_json::to_value(revocation_of(&name, authority, revocation)?)?;
            }
            let path = format!("/v1/nodes/{}/forget", plain(&name));
            let forgotten = Client::new(to.api).call("POST", &path, Some(&body))?;
            let identity = if without_revoking { "its identity stays good" } else { "its identity is revoked" };
            print(to.json, &forgotten, || println!("node {name}: forgotten; {identity}"))?;
        }
        Command::Revoke { names, former, yes_it_is_cut_off: _, authority, to_file, from_file, to } => {
            let all = match from_file {
                Some(path) => revocation::read(&path)?,
                None => {
                    let which = if former { Which::Former } else { Which::All };
                    Authority::open(&folder(authority)?)?.revoke(&names, which)?
                }
            };
            match to_file {
                Some(path) => write_revocations(&path, &all, to.json)?,
                None => tell_revocations(&Client::new(to.api), &all, to.json)?,
            }
        }
        Command::CannotAnswer { name, yes_what_it_knows_may_be_lost, to } => {
            let body = serde_json::json!({ "yes_what_it_knows_may_be_lost": yes_what_it_knows_may_be_lost });
            let path = format!("/v1/nodes/{}/cannot-answer", plain(&name));
            let said = Client::new(to.api).call("POST", &path, Some(&body))?;
            print(to.json, &said, || println!("node {name}: nobody waits for what it knows, by your word"))?;
        }
        Command::Audit { to } => {
            let lines = Client::new(to.api).call("GET", "/v1/audit", None)?;
            let read: Vec<AuditReport> = if to.json { Vec::new() } else { serde_json::from_value(lines.clone())? };
            print(to.json, &lines, || print_audit(read))?;
        }
        Command::InitCa { cluster, authority, json } => {
            let made = Authority::init(&folder(authority)?, &cluster)?;
            print(json, &made, || {
                println!("cluster {}: authority in {}, until {}", made.name, made.path.display(), made.valid_until);
                println!("next: forebay node enrol NAME, here, for each node");
            })?;
        }
        Command::Enrol { names, to, renew, authority, json } => {
            enrol(&names, &to, renew, &folder(authority)?, json)?;
        }
        Command::Certify { names, role, to, authority, json } => {
            let made = Authority::open(&folder(authority)?)?.certify(role, &names, &to)?;
            print(json, &made, || {
                println!("{} ({}): {}, until {}", made.name, role.word(), made.path.display(), made.valid_until);
            })?;
        }
    }
    Ok(true)
}
