//! `forebay doctor`: looks at the host with its checks, and holds what its subcommands have in common.

mod act;
mod baseline;
mod fold;
mod matrix;
mod path;
mod peer;
mod record;
mod watch;

use anyhow::{Context, Result};
use forebay_doctor::findings::Sentence;
use forebay_doctor::report::Report;
use forebay_doctor::words::{Language, say};
use forebay_doctor::{Host, sysroot};
use forebay_host::system::System;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct DoctorArgs {
    /// Look at a recorded host instead of this one: a folder with its sys and proc, or a file of `doctor record`
    #[arg(long, value_name = "PATH", global = true)]
    sysroot: Option<PathBuf>,
    /// Language [default: of the environment]
    #[arg(long, value_name = "LANGUAGE", global = true)]
    language: Option<Language>,
    /// Print what is said as JSON
    #[arg(long, global = true)]
    json: bool,
    /// Say also what was ruled out and why, of each check what it could not see, and of the baseline each setting by itself
    #[arg(short, long, global = true)]
    verbose: bool,
    #[command(flatten)]
    act: act::ActArgs,
    #[command(flatten)]
    peer: peer::PeerArgs,
    #[command(subcommand)]
    command: Option<DoctorCommand>,
}

#[derive(clap::Subcommand)]
enum DoctorCommand {
    /// Measure memory bandwidth and latency between NUMA nodes, under load, and from core to core
    Matrix(matrix::MatrixArgs),
    /// Compute what one data path can carry: each hop, how often a byte passes it, what bounds, and what would bound next
    Path(path::PathArgs),
    /// Write what the doctor reads of this host to a file, for a report of a fault
    Record(record::RecordArgs),
    /// Keep what is there now (places of interrupts, links, MTU, governors, versions), or find out what has changed since
    Baseline {
        #[command(subcommand)]
        command: baseline::Command,
    },
    /// Apply again what was applied with --persist and a reboot has ended; forebay-doctor.service does so at boot
    Restore,
    /// Answer irqbalance's --policyscript: it is to leave alone what --apply has placed
    IrqPolicy {
        /// The device's folder in sysfs, which irqbalance names first
        device: PathBuf,
        /// The interrupt's number
        interrupt: u32,
    },
    /// What moves, second by second: memory, PCIe, socket links, interfaces, disks
    Watch(watch::WatchArgs),
}

/// Which host, and how it is told.
struct Asked {
    system: System,
    language: Language,
    json: bool,
    verbose: bool,
}

impl Asked {
    fn say(&self, sentence: &Sentence) -> String {
        say(self.language, sentence)
    }
}

/// Looks, and says what it saw; or does what is asked for. False when that was not reached.
pub fn run(args: &DoctorArgs) -> Result<bool> {
    let system = match &args.sysroot {
        Some(root) => {
            System::recorded(root).with_context(|| format!("look at the recorded host in {}", root.display()))?
        }
        None => System::live(),
    };
    // Counters of a host with four large sockets are more than a thousand, each a file.
    forebay_io::machine::raise_file_limit();
    let language = args.language.unwrap_or_else(Language::of_environment);
    if let Some(done) = args.peer.run(language, args.json)? {
        return Ok(done);
    }
    // irqbalance asks at its start, when the tree of a test may not be there yet, and takes no error for an answer.
    let is_policy = matches!(args.command, Some(DoctorCommand::IrqPolicy { .. }));
    if let Some(root) = args.sysroot.as_deref().filter(|_| !system.is_live() && !is_policy) {
        sysroot::check(&system, root)?;
    }
    let asked = Asked { system, language, json: args.json, verbose: args.verbose };
    match &args.command {
        Some(DoctorCommand::Matrix(args)) => return args.run(&asked),
        Some(DoctorCommand::Path(args)) => return args.run(&asked),
        Some(DoctorCommand::Record(args)) => return args.run(asked),
        Some(DoctorCommand::Baseline { command }) => return baseline::run(&asked, command, args.sysroot.as_deref()),
        Some(DoctorCommand::Restore) => return args.act.restore(&asked, args.sysroot.as_deref()),
        Some(DoctorCommand::IrqPolicy { interrupt, .. }) => return args.act.irq_policy(&asked, *interrupt),
        Some(DoctorCommand::Watch(watch)) => return watch::run(&asked, watch),
        None => {}
    }
    if let Some(done) = args.act.run(&asked, args.sysroot.as_deref())? {
        return Ok(done);
    }
    let report = Report::of(&Host::look(asked.system), language);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        fold::print(&report.text(language, args.verbose));
    }
    Ok(true)
}
