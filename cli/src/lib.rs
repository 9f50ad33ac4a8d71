//! The command line: what is asked becomes a call; what comes back becomes text, JSON and an exit code.

mod bench;
mod client;
mod dashboard;
mod doctor;
mod fence_check;
mod node;
mod report;
mod telemetry;
mod top;
mod volume;
mod words;

use client::Client;

use anyhow::{Context, Result, bail};
use clap::{Args, CommandFactory, Parser, Subcommand};
use forebay_api::checked::without_controls;
use forebay_api::config::certificates::{CertificateList, Clients};
use forebay_api::config::volume::VolumeSpec;
use forebay_api::config::{
    Config, DestageName, FormatName, HttpAddress, HttpTls, IoChoice, LogFormat, NbdAddress, PolicyName, TierName,
    TlsFiles,
};
use forebay_api::units::{parse_seconds, parse_size};
use forebay_core::roles::Name;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Memory-speed, fault-tolerant write-back tier in front of slow storage.
#[derive(Parser)]
#[command(name = "forebay", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the node's daemon
    ///
    /// With --backing it serves one volume and needs no config. Exit codes: 0 done, 1 failed, 2 usage.
    Serve(Box<ServeArgs>),
    /// Create, show and change volumes of the running daemon
    Volume {
        #[command(flatten)]
        to: ApiArgs,
        #[command(subcommand)]
        command: volume::Command,
    },
    /// Make a cluster's authority, enrol its nodes, list them, and find out what they can do about each other
    Node {
        #[command(subcommand)]
        command: node::Command,
    },
    /// Watch the volumes live; without a terminal it prints what is there
    Top {
        #[command(flatten)]
        to: ApiArgs,
        #[command(flatten)]
        top: top::TopArgs,
    },
    /// What the tiers did over a time: what they kept from the slow storage, latency, what other caches would hit, incidents
    Report {
        #[command(flatten)]
        to: ApiArgs,
        #[command(flatten)]
        report: report::ReportArgs,
    },
    /// Show the running daemon
    Status {
        #[command(flatten)]
        to: ApiArgs,
    },
    /// Show where the dashboard is; on a terminal, with a link that logs in
    ///
    /// The link holds the token, with which everything may be changed, so it is shown on a terminal only.
    Dashboard {
        #[command(flatten)]
        to: ApiArgs,
    },
    /// Show what happened: policy changes, take-overs, lost nodes, throttling, failures
    Events {
        #[command(flatten)]
        to: ApiArgs,
        #[command(flatten)]
        events: telemetry::EventsArgs,
    },
    /// Decode a tier, or a journal, offline; never writes
    Inspect {
        /// The tier's file or block device, or IMAGE.forebay-journal
        tier: PathBuf,
        /// Print what is said as JSON
        #[arg(long)]
        json: bool,
    },
    /// Replay a tier's log, or a journal, into a new image; never writes to the originals
    ///
    /// Of a tier: the base, then what the journal beside it holds, then the log. Of IMAGE.forebay-journal: the image with
    /// the journal's batch, for an image whose tier is lost.
    Salvage {
        /// The tier's file or block device, or IMAGE.forebay-journal
        tier: PathBuf,
        /// The new image
        #[arg(long)]
        to: PathBuf,
        /// Image to begin from [default: zeros; of a journal: the image that it lies beside]
        #[arg(long)]
        base: Option<PathBuf>,
        /// Print what is said as JSON
        #[arg(long)]
        json: bool,
    },
    /// Find what bounds this host's data path, with its number, and what helps; needs no daemon, and works without root
    Doctor(doctor::DoctorArgs),
    /// Measure a backing and a volume side by side with fio, or this machine's limit
    Bench(crate::bench::BenchArgs),
    /// Print a completion script
    Completions {
        /// For this shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write those of all commands into a folder
    Man {
        /// Write forebay.1, forebay-serve.1 and so on here
        #[arg(long, value_name = "FOLDER")]
        dir: Option<PathBuf>,
    },
}

#[derive(Args)]
struct ApiArgs {
    /// The daemon's API socket [default: /run/forebay/api.sock, or below $XDG_RUNTIME_DIR]
    #[arg(long, global = true, env = "FOREBAY_API", value_name = "PATH")]
    api: Option<PathBuf>,
    /// Print what is said as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["config", "backing"]))]
struct ServeArgs {
    /// Config file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Backing of the one volume: a file, block device or NBD URI (nbd://, nbd+unix://), with slow: or faulty: before it
    #[arg(long, value_name = "BACKING")]
    backing: Option<String>,
    /// Size of the volume, such as 10G; needed to create a backing
    #[arg(long, value_parser = parse_size, requires = "backing")]
    size: Option<u64>,
    /// Create the backing file if it is missing
    #[arg(long, requires = "backing")]
    create: bool,
    /// Name of the volume, and of its NBD export
    #[arg(long, default_value = "vm1", requires = "backing")]
    name: String,
    /// When a write is acknowledged: when the backing, or when the tier has it [default: back]
    #[arg(long, requires = "backing")]
    policy: Option<PolicyName>,
    /// Slow writes to the backing's speed when the tier takes so long to drain, such as 10s; 0 = when it is full [default: 0]
    #[arg(long, value_parser = parse_seconds, value_name = "TIME", requires = "backing")]
    drain_max: Option<u64>,
    /// Medium of the tier [default: flash]
    #[arg(long, requires = "backing")]
    tier: Option<TierName>,
    /// Accept that a host crash loses what is not destaged (needed for a memory tier)
    #[arg(long, requires = "backing")]
    volatile: bool,
    /// Size of the tier [default: a tenth of the volume, 1G to 16G, not more than the volume]
    #[arg(long, value_parser = parse_size, requires = "backing")]
    tier_size: Option<u64>,
    /// The tier's file or block device [default: a file in the state folder]
    #[arg(long, value_name = "PATH", requires = "backing")]
    tier_path: Option<PathBuf>,
    /// RAM for staging and read cache before a flash tier [default: an eighth of the volume, 64M to 256M]
    #[arg(long, value_parser = parse_size, requires = "backing")]
    memory: Option<u64>,
    /// How barrier groups reach the backing: one by one, merged by a journal beside the image, or as the load suggests
    /// [default: auto]
    #[arg(long, requires = "backing")]
    destage: Option<DestageName>,
    /// Size of the journal [default: an eighth of the volume, 8M to 128M]
    #[arg(long, value_parser = parse_size, requires = "backing")]
    journal_size: Option<u64>,
    /// Take the backing as raw although it begins like another format
    #[arg(long, requires = "backing")]
    format: Option<FormatName>,
    /// Take the backing as it is, although the tier has writes for another one or a newer state of it: they are given up
    #[arg(long, requires = "backing")]
    adopt_changed_backing: bool,
    /// The backing is the one that the tier's writes belong to, in its newest state, although another inode or an earlier time of
    /// change makes it look like another one: no write is given up. You vouch for it: over an older copy they would mix two states
    #[arg(long, requires = "backing", conflicts_with = "adopt_changed_backing")]
    same_image: bool,
    /// State folder [default: /var/lib/forebay, or below $XDG_STATE_HOME]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// NBD socket, unix:PATH or tcp:HOST:PORT; may be given several times [default: unix:/run/forebay/nbd.sock]
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<NbdAddress>,
    /// TLS for the NBD clients that come over TCP: the server's certificate (PEM); they are refused without TLS then
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authority (PEM) from which each client over TCP must show a certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Clients with certificates that may use the volume: any (with the role nbd-client), none, or names with commas between
    /// them (dns:NAME, uri:URI, sha256:FINGERPRINT) [default: as recorded, or any]
    #[arg(long, value_name = "NAMES", requires = "backing")]
    clients: Option<Clients>,
    /// HTTP address, or off [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    http: Option<HttpAddress>,
    /// TLS for HTTP: the server's certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "http_tls_key")]
    http_tls_cert: Option<PathBuf>,
    /// Key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "http_tls_cert")]
    http_tls_key: Option<PathBuf>,
    /// Authority (PEM) of callers' certificates; one of them is good for what --http-admin and --http-reader say
    #[arg(long, value_name = "FILE", requires = "http_tls_cert")]
    http_client_ca: Option<PathBuf>,
    /// A certificate that may change everything by HTTP: dns:NAME, uri:URI or sha256:FINGERPRINT; may be given several times
    #[arg(long, value_name = "NAME", requires = "http_client_ca")]
    http_admin: Vec<Name>,
    /// One that may look at everything
    #[arg(long, value_name = "NAME", requires = "http_client_ca")]
    http_reader: Vec<Name>,
    /// The API's unix socket [default: /run/forebay/api.sock]
    #[arg(long, env = "FOREBAY_API", value_name = "PATH")]
    api: Option<PathBuf>,
    /// How disks are read and written
    #[arg(long)]
    io: Option<IoChoice>,
    /// Data-path threads [default: one less than the cores, at most 8]
    #[arg(long)]
    shards: Option<u16>,
    /// Size of the tmpfs for memory tiers that the daemon mounts [default: half of the RAM]
    #[arg(long, value_parser = parse_size)]
    shm_size: Option<u64>,
    /// Leave writes in the tier at SIGTERM instead of destaging them first
    #[arg(long)]
    no_drain_on_stop: bool,
    /// How messages are written to the standard error output
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

impl ServeArgs {
    /// The config that these flags mean: that of the file, overridden where a flag is given.
    fn into_config(self) -> Result<Config> {
        let mut config = match &self.config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        if let Some(backing) = self.backing {
            config.volume.push(VolumeSpec {
                name: self.name,
                backing,
                size: self.size,
                create: self.create,
                policy: self.policy,
                drain_max_s: self.drain_max,
                tier: self.tier,
                volatile: self.volatile,
                tier_size: self.tier_size,
                tier_path: self.tier_path,
                memory: self.memory,
                destage: self.destage,
                journal_size: self.journal_size,
                format: self.format,
                clients: self.clients,
                adopt_changed_backing: self.adopt_changed_backing,
                same_image: self.same_image,
                ..VolumeSpec::default()
            });
        }
        let node = &mut config.node;
        node.state = self.state.or(node.state.take());
        node.io = self.io.unwrap_or(node.io);
        node.shards = self.shards.unwrap_or(node.shards);
        node.shm_size = self.shm_size.or(node.shm_size);
        node.drain_on_stop &= !self.no_drain_on_stop;
        node.log_format = self.log_format.unwrap_or(node.log_format);
        let listen = &mut config.listen;
        if !self.nbd.is_empty() {
            listen.nbd = self.nbd;
        }
        if let (Some(cert), Some(key)) = (self.tls_cert, self.tls_key) {
            listen.nbd_tls = Some(TlsFiles { cert, key, client_ca: self.tls_client_ca });
        }
        listen.http = self.http.or(listen.http);
        if let (Some(cert), Some(key)) = (self.http_tls_cert, self.http_tls_key) {
            let admins = CertificateList::new(&self.http_admin)?;
            let readers = CertificateList::new(&self.http_reader)?;
            listen.http_tls = Some(HttpTls { cert, key, client_ca: self.http_client_ca, admins, readers });
        }
        listen.api = self.api.or(listen.api.take());
        config.check()?;
        Ok(config)
    }
}

/// Runs the command that the process was started with; `serve` is the daemon, which gives back whether it ended well.
pub fn main(serve: impl FnOnce(Config) -> Result<bool>) -> ExitCode {
    // Output into a closed pipe ends quietly, as users of `| head` expect; the daemon's sockets use MSG_NOSIGNAL or
    // see EPIPE, because `serve` turns the signal off again.
    // SAFETY: setting a signal's disposition to the default, before any thread exists.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let cli = Cli::parse();
    match run(cli, serve) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // It may tell of files, of images and their markers, that anybody has written.
            // Whoever does not listen is no reason to end otherwise than with this code.
            let _ = writeln!(std::io::stderr(), "forebay: {}", without_controls(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli, serve: impl FnOnce(Config) -> Result<bool>) -> Result<bool> {
    match cli.command {
        Command::Serve(args) => {
            let config = match args.into_config() {
                Ok(config) => config,
                Err(error) => {
                    eprintln!("forebay: {}", without_controls(&format!("{error:#}")));
                    std::process::exit(2);
                }
            };
            serve(config)
        }
        Command::Volume { to, command } => volume::run(&Client::new(to.api), to.json, command),
        Command::Node { command } => node::run(command),
        Command::Report { to, report } => crate::report::run(&Client::new(to.api), to.json, &report),
        Command::Top { to, top } => crate::top::run(Client::new(to.api), to.json, top),
        Command::Status { to } => volume::status(&Client::new(to.api), to.json),
        Command::Dashboard { to } => dashboard::run(&Client::new(to.api), to.json),
        Command::Events { to, events } => telemetry::events(&Client::new(to.api), to.json, &events),
        Command::Inspect { tier, json } => forebay_rescue::inspect::run(&tier, json),
        Command::Salvage { tier, to, base, json } if forebay_io::journal::is_journal(&tier).unwrap_or(false) => {
            let done = forebay_rescue::salvage::run_journal(&tier, &to, base.as_deref())?;
            forebay_rescue::salvage::report_journal(&done, &to, json)
        }
        Command::Salvage { tier, to, base, json } => {
            let done = forebay_rescue::salvage::run(&tier, &to, base.as_deref())?;
            forebay_rescue::salvage::report(&done, &to, json)
        }
        Command::Doctor(args) => doctor::run(&args),
        Command::Bench(args) => crate::bench::run(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "forebay", &mut std::io::stdout());
            Ok(true)
        }
        Command::Man { dir: Some(dir) } => {
            clap_mangen::generate_to(Cli::command(), &dir)
                .with_context(|| format!("cannot write into {}", dir.display()))?;
            Ok(true)
        }
        Command::Man { dir: None } => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            std::io::Write::write_all(&mut std::io::stdout(), &page)?;
            Ok(true)
        }
    }
}

/// A time for a flag.
fn seconds(text: &str) -> Result<u64> {
    match parse_seconds(text)? {
        0 => bail!("a time of 0 seconds"),
        seconds => Ok(seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_of(args: &[&str]) -> Result<Config> {
        let args = ["forebay", "serve"].iter().chain(args);
        match Cli::try_parse_from(args)?.command {
            Command::Serve(args) => args.into_config(),
            _ => unreachable!("it was serve"),
        }
    }

    #[test]
    fn definition_of_the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_of_serve_become_a_config() {
        let config = config_of(&[
            "--backing",
            "disk.img",
            "--size",
            "10G",
            "--create",
            "--tier",
            "memory",
            "--volatile",
            "--tier-size",
            "4G",
            "--nbd",
            "unix:/a",
            "--nbd",
            "tcp:[::]:10809",
            "--http",
            "off",
            "--io",
            "threads",
            "--no-drain-on-stop",
            "--log-format",
            "json",
        ])
        .unwrap();
        assert_eq!(config.volume[0].name, "vm1");
        assert_eq!(config.volume[0].size, Some(10 << 30));
        assert_eq!(config.listen.nbd.len(), 2);
        assert!(!config.node.drain_on_stop);
        assert_eq!(config.node.log_format, LogFormat::Json);
    }

    #[test]
    fn volumes_with_peers_are_the_clusters_and_not_the_configs() {
        let folder = forebay_tests::harness::TempDir::new("cli-cluster");
        let path = folder.join("node.toml");
        let cluster = "[cluster]\nidentity = \"/i\"\netcd = [\"http://a:1\"]\n[[link]]\nown = \"lo\"\n";
        let with = |more: &str| {
            std::fs::write(&path, format!("{cluster}{more}")).unwrap();
            config_of(&["--config", path.to_str().unwrap()])
        };
        let config = with("").unwrap();
        assert!(config.cluster.is_some() && config.link.len() == 1);
        let volume = "[[volume]]\nname = \"vm1\"\nbacking = \"/x.img\"\n";
        assert!(with(volume).is_ok());
        let error = format!("{:#}", with(&format!("{volume}peers = 1\n")).unwrap_err());
        assert!(error.contains("forebay volume create"), "{error}");
    }

    #[test]
    fn misuse_of_serve_is_refused() {
        assert!(config_of(&[]).is_err());
        assert!(config_of(&["--config", "c", "--backing", "b"]).is_err());
        assert!(config_of(&["--config", "c", "--size", "1G"]).is_err());
        let tcp = ["--backing", "b", "--nbd", "tcp:[::]:10809"];
        let with = |more: &[&'static str]| config_of(&[&tcp[..], more].concat());
        assert!(with(&["--tls-cert", "c"]).is_err(), "a certificate is nothing without its key");
        assert!(with(&["--tls-client-ca", "a"]).is_err());
        assert!(with(&["--tls-cert", "c", "--tls-key", "k"]).is_ok());
        let error = config_of(&["--backing", "b", "--tls-cert", "c", "--tls-key", "k"]).unwrap_err();
        assert!(error.to_string().contains("tcp:HOST:PORT"), "{error}");
        assert!(config_of(&["--backing", "b", "--http-tls-cert", "c"]).is_err(), "nor is this one");
        assert!(config_of(&["--backing", "b", "--http-client-ca", "a"]).is_err());
        let https = ["--backing", "b", "--http-tls-cert", "c", "--http-tls-key", "k"];
        assert!(config_of(&https).unwrap().listen.http_tls.is_some());
        let error = config_of(&[&https[..], &["--http", "off"]].concat()).unwrap_err();
        assert!(error.to_string().contains("--http HOST:PORT"), "{error}");
        let error = config_of(&["--backing", "b", "--tier", "memory"]).unwrap_err();
        assert!(error.to_string().contains("--volatile"), "{error}");
    }
}
