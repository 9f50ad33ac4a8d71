//! `forebay node fence-check`: tries a fence, says what it is worth, and keeps when it was last proven.
//!
//! Invariants:
//! - Nobody's power is touched without `--power-off`, and no device that is used: it is not mounted, not claimed, not
//!   registered with by this host and not reserved by anybody, else the test ends before it has changed something.
//! - What is written to a device is what it holds already, and only while its reservation is ours, so that no other host
//!   can have changed it meanwhile.
//! - Proven means that the effect was seen. What was only asked for leaves no proof behind.

use anyhow::{Context, Result, bail};
use clap::Args;
use forebay_api::checked::without_controls;
use forebay_api::secret::read_secret;
use forebay_api::units::parse_seconds;
use forebay_core::cluster::NodeId;
use forebay_core::fence::Means;
use forebay_host::proofs::{Proofs, ago, fence_name, name_of_device};
use forebay_io::fence::{Agent, Expelled, Power, ReservableDevice, ReservationKey, watchdog};
use forebay_io::machine::{host_name, random_bytes};
use forebay_io::{AlignedBuffer, Backing, BackingOptions, LockAttempt};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What to try.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("fence").required(true).args(["agent", "reservation", "watchdog", "list"]))]
pub struct FenceCheckArgs {
    /// Fence agent that switches a node's power, such as fence_ipmilan
    #[arg(long, value_name = "AGENT", requires = "node")]
    agent: Option<String>,
    /// The node whose power it is
    #[arg(long, value_name = "NAME", requires = "agent")]
    node: Option<String>,
    /// Option of the agent; may be given several times
    #[arg(long = "option", value_name = "NAME=VALUE", requires = "agent")]
    options: Vec<String>,
    /// Option of the agent whose value is the first line of a file, such as a password
    #[arg(long = "option-file", value_name = "NAME=FILE", requires = "agent")]
    option_files: Vec<String>,
    /// Really switch the node off, confirm it, and switch it on again [default: only ask whether it is on]
    #[arg(long, requires = "agent")]
    power_off: bool,
    /// Block device whose persistent reservations are to be tried
    #[arg(long, value_name = "DEVICE")]
    reservation: Option<PathBuf>,
    /// Expel the node that has printed this key, and see that the device agrees
    #[arg(long, value_name = "KEY", requires = "reservation", value_parser = parse_key)]
    expel: Option<ReservationKey>,
    /// Keep the device reserved for so long, so that the expelled node sees it
    #[arg(long, value_name = "TIME", requires = "expel", value_parser = parse_seconds, default_value = "3s")]
    hold: u64,
    /// Write to the device until another node expels this one, and see that it is refused from then on
    #[arg(long, requires = "reservation", conflicts_with = "expel")]
    be_expelled: bool,
    /// This machine's watchdog, such as /dev/watchdog0; it is looked at and not begun
    #[arg(long, value_name = "DEVICE")]
    watchdog: Option<PathBuf>,
    /// Show what was proven from here, and when
    #[arg(long)]
    list: bool,
    /// Most time for each action of the agent, and for being expelled
    #[arg(long, value_name = "TIME", value_parser = parse_seconds, default_value = "60s")]
    timeout: u64,
    /// State folder, where proofs are kept [default: /var/lib/forebay, or below $XDG_STATE_HOME]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print what is said as JSON
    #[arg(long)]
    json: bool,
}

fn parse_key(text: &str) -> Result<ReservationKey, String> {
    ReservationKey::parse(text)
        .ok_or_else(|| "a key is written as --be-expelled prints it, 0x and hex digits".to_owned())
}

/// What came out of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// The effect was seen, and is proven by it.
    Proven,
    /// It answers; nothing was proven.
    Answers,
    /// This node was refused, as it should be.
    Refused,
}

#[derive(Serialize)]
struct Report {
    fence: &'static str,
    target: String,
    by: String,
    class: &'static str,
    proves: &'static str,
    leaves: &'static str,
    allows: &'static str,
    outcome: Outcome,
    found: String,
    took_ms: u64,
    last_proven_unix_s: Option<u64>,
}

/// A fence as it was tried.
struct Trial {
    means: Means,
    target: String,
    by: String,
    outcome: Outcome,
    found: String,
    took: Duration,
}

/// Tries the fence that the arguments name, or lists what was proven before.
pub fn run(args: FenceCheckArgs) -> Result<bool> {
    let proofs = Proofs::below(&args.state.clone().unwrap_or_else(forebay_api::paths::state_dir));
    if args.list {
        return list(&proofs, args.json);
    }
    let trial = match (&args.agent, &args.reservation, &args.watchdog) {
        (Some(agent), _, _) => try_power(agent, &args, &proofs)?,
        (None, Some(device), _) => try_reservation(device, &args, &proofs)?,
        (None, None, Some(device)) => look_at_watchdog(device)?,
        (None, None, None) => bail!("name a fence: --agent, --reservation or --watchdog"),
    };
    report(trial, &proofs, args.json)
}

fn report(trial: Trial, proofs: &Proofs, json: bool) -> Result<bool> {
    let guarantee = trial.means.guarantee();
    let fence = fence_name(trial.means);
    let last = proofs.last(fence, &trial.target)?;
    let report = Report {
        fence,
        target: trial.target,
        by: trial.by,
        class: guarantee.class.name(),
        proves: guarantee.proves,
        leaves: guarantee.leaves,
        allows: guarantee.class.allows(),
        outcome: trial.outcome,
        found: trial.found,
        took_ms: trial.took.as_millis() as u64,
        last_proven_unix_s: last.map(|proof| proof.proven_unix_s),
    };
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(true);
    }
    println!("fence        {} of {}, by {}", report.fence, without_controls(&report.target), report.by);
    println!("class        {}: allows {}", report.class, report.allows);
    println!("proves       {}", report.proves);
    println!("leaves open  {}", report.leaves);
    // An agent, and the board that it asks, may say anything.
    println!("found        {}", without_controls(&report.found));
    println!("last proven  {}", report.last_proven_unix_s.map_or("never, from here".to_owned(), ago));
    Ok(true)
}

fn list(proofs: &Proofs, json: bool) -> Result<bool> {
    let all = proofs.all()?;
    if json {
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(true);
    }
    if all.is_empty() {
        println!("nothing was proven from here");
    }
    for proof in all {
        let target = without_controls(&proof.target);
        println!("{} of {target}, by {}: proven {}", proof.fence, proof.by, ago(proof.proven_unix_s));
    }
    Ok(true)
}

/// The agent's options, in the order that they were given.
fn agent_options(args: &FenceCheckArgs) -> Result<Vec<(String, String)>> {
    let mut options = Vec::new();
    for given in &args.options {
        let (name, value) = given.split_once('=').with_context(|| format!("--option {given}: write it NAME=VALUE"))?;
        if name.contains("passw") {
            bail!(
                "--option {name}=...: what stands on a command line is read by everybody on this host; put it into a \
                 file of mode 0600 and say --option-file {name}=FILE"
            );
        }
        options.push((name.to_owned(), value.to_owned()));
    }
    for given in &args.option_files {
        let (name, path) =
            given.split_once('=').with_context(|| format!("--option-file {given}: write it NAME=FILE"))?;
        options.push((name.to_owned(), read_secret(Path::new(path))?));
    }
    Ok(options)
}

fn try_power(agent: &str, args: &FenceCheckArgs, proofs: &Proofs) -> Result<Trial> {
    let Some(node) = args.node.clone() else { bail!("name the node whose power it is: --node NAME") };
    let agent = Agent::find(agent, agent_options(args)?, Duration::from_secs(args.timeout))?;
    let begun = Instant::now();
    let trial = |outcome, found, took| Trial {
        means: Means::PowerOff,
        target: node.clone(),
        by: agent.name().to_owned(),
        outcome,
        found,
        took,
    };
    let power = agent.status()?;
    if !args.power_off {
        let is = match power {
            Power::On => "on",
            Power::Off => "off",
        };
        let found =
            format!("the agent answers: {node} is {is}. To prove the fence, let it switch {node} off: --power-off");
        return Ok(trial(Outcome::Answers, found, begun.elapsed()));
    }
    if power == Power::Off {
        bail!("{node} is off already, so that switching it off would prove nothing; switch it on first");
    }
    if node == host_name() {
        bail!("{node} is this very host: try its fence from another node");
    }
    proofs.prepare()?;
    let begun = Instant::now();
    agent.off()?;
    let took = begun.elapsed();
    let kept = proofs.keep(Means::PowerOff, &node, agent.name(), took);
    // On again, whatever became of the file.
    agent.on().with_context(|| format!("{node} was switched off, and is not on again: switch it on by hand"))?;
    kept?;
    let found = format!("{node} was off, confirmed, {} after it was asked for; it is on again", show_took(took));
    Ok(trial(Outcome::Proven, found, took))
}

fn show_took(took: Duration) -> String {
    format!("{:.3} s", took.as_secs_f64())
}

/// It is proven by a reset, which the daemon notices at its next start: nobody wants that of a test.
fn look_at_watchdog(path: &Path) -> Result<Trial> {
    let begun = Instant::now();
    let looked = watchdog::look(path)?;
    let mut found = format!("{} resets this machine {} s after it was last fed", looked.identity, looked.timeout_s);
    if looked.active {
        found.push_str(
            "; its timer runs now. If that is not this node's daemon, it is somebody else's: systemd's, where RuntimeWatchdogSec is \
             set in /etc/systemd/system.conf; set it to off there",
        );
    }
    if looked.nowayout {
        found.push_str("; once begun, its timer cannot be ended (nowayout): a stop of the daemon resets the machine");
    }
    if looked.has_reset {
        found.push_str("; the last start of this machine was its doing");
    }
    Ok(Trial {
        means: Means::Watchdog,
        target: path.display().to_string(),
        by: looked.identity,
        outcome: Outcome::Answers,
        found,
        took: begun.elapsed(),
    })
}

fn try_reservation(path: &Path, args: &FenceCheckArgs, proofs: &Proofs) -> Result<Trial> {
    if args.be_expelled {
        return be_expelled(path, Duration::from_secs(args.timeout), args.json);
    }
    let device = ReservableDevice::open(path)?;
    let target = name_of_device(&device);
    let own = draw_key()?;
    if args.expel.is_some() {
        proofs.prepare()?;
    }
    device.register_anew(own)?;
    let tried = match args.expel {
        Some(other) => expel(&device, own, other, Duration::from_secs(args.hold), |took| {
            proofs.keep(Means::Reservation, &target, "preempt and abort", took)
        }),
        None => device.reserve(own).map_err(anyhow::Error::from).map(|()| {
            let found = "the device takes registrations and reservations. To prove that it refuses an expelled node, use \
                         --be-expelled there and --expel here";
            (Outcome::Answers, found.to_owned(), Duration::ZERO)
        }),
    };
    let left = device.leave(own);
    let (outcome, found, took) = tried?;
    left.context("the test is done, and its registration stays")?;
    Ok(Trial { means: Means::Reservation, target, by: "preempt and abort".into(), outcome, found, took })
}

fn expel(
    device: &ReservableDevice,
    own: ReservationKey,
    other: ReservationKey,
    hold: Duration,
    keep: impl FnOnce(Duration) -> Result<()>,
) -> Result<(Outcome, String, Duration)> {
    let begun = Instant::now();
    if device.expel(own, other)? == Expelled::WasNotRegistered {
        bail!(
            "nobody is registered with {} as {other}: is `--be-expelled` running on the other node, with the same device, \
             and is this the key that it has printed?",
            device.path().display()
        );
    }
    let took = begun.elapsed();
    keep(took)?;
    std::thread::sleep(hold);
    let found = format!("{other} was expelled {} after it was asked for, and the device says so", show_took(took));
    Ok((Outcome::Proven, found, took))
}

fn draw_key() -> Result<ReservationKey> {
    let mut bytes = [0; 8];
    random_bytes(&mut bytes)?;
    Ok(ReservationKey::of_node(NodeId(u64::from_le_bytes(bytes))))
}

/// How often the node that is to be expelled writes.
const WRITE_EVERY: Duration = Duration::from_millis(10);
/// How long it must be refused, without one write let in.
const REFUSED_FOR: Duration = Duration::from_secs(1);

fn be_expelled(path: &Path, limit: Duration, json: bool) -> Result<Trial> {
    let mut backing = Backing::open(
        path.to_str().context("the device's name is no text")?,
        BackingOptions { format_raw: true, ..BackingOptions::default() },
    )?;
    let device = ReservableDevice::of(backing.file().context("an NBD export cannot be reserved")?)?;
    if let LockAttempt::HeldBy(holder) =
        backing.try_lock().with_context(|| format!("cannot lock {}", path.display()))?
    {
        bail!("cannot use {}: it is locked by {holder}; end that use first", path.display());
    }
    let signals = Signals::hold_back()?;
    let own = draw_key()?;
    device.register_anew(own)?;
    let begun = Instant::now();
    let written = device.reserve(own).map_err(anyhow::Error::from).and_then(|()| {
        if json {
            println!("{}", serde_json::json!({ "key": own.to_string() }));
        } else {
            println!("key          {own}");
            println!("on another node: forebay node fence-check --reservation DEVICE --expel {own}");
        }
        write_until_refused(&backing, &signals, limit)
    });
    // Expelled, there is nothing to give up.
    let (written, refused) = match written {
        Ok(counts) => counts,
        Err(error) => {
            let left = device.leave(own);
            return Err(match left {
                Ok(()) => error,
                Err(left) => error.context(format!("and its registration stays: {left}")),
            });
        }
    };
    let found =
        format!("{written} writes were taken, then {refused} refused with a reservation conflict, and none taken");
    Ok(Trial {
        means: Means::Reservation,
        target: name_of_device(&device),
        by: "preempt and abort".into(),
        outcome: Outcome::Refused,
        found,
        took: begun.elapsed(),
    })
}

/// Writes what the last block holds until that is refused for a while; how many were taken, and how many refused.
fn write_until_refused(backing: &Backing, signals: &Signals, limit: Duration) -> Result<(u64, u64)> {
    let file = backing.file().context("it is no device")?;
    let bytes = file.align().max(512) as usize;
    let offset = backing.size().context("cannot read the size of the device")? - bytes as u64;
    let mut block = AlignedBuffer::new(bytes);
    file.read_now(offset, &mut block).context("cannot read the last block of the device")?;
    let (begun, mut refused_since) = (Instant::now(), None);
    let (mut written, mut refused) = (0, 0);
    loop {
        match file.write_now(offset, &block) {
            Ok(()) if refused_since.is_some() => {
                bail!("a write was taken after {refused} had been refused: the other node has left too soon (--hold)")
            }
            Ok(()) => written += 1,
            Err(error) if error.raw_os_error() == Some(libc::EBADE) => {
                refused += 1;
                refused_since.get_or_insert_with(Instant::now);
            }
            Err(error) => return Err(error).context("a write failed, and not for a reservation"),
        }
        if refused_since.is_some_and(|since| since.elapsed() >= REFUSED_FOR) {
            return Ok((written, refused));
        }
        if refused_since.is_none() && begun.elapsed() >= limit {
            bail!("nobody has expelled this node within {} s; its {written} writes were taken", limit.as_secs());
        }
        if signals.came_within(WRITE_EVERY) {
            bail!("interrupted");
        }
    }
}

/// SIGINT and SIGTERM, held back so that the test never ends with the device still reserved.
struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    fn hold_back() -> Result<Signals> {
        // SAFETY: all zeros is a valid sigset_t, and sigemptyset makes it one that says nothing.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is a local one that outlives the calls; the thread's former mask is not asked for.
        let result = unsafe {
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut())
        };
        match result {
            0 => Ok(Signals { set }),
            error => Err(std::io::Error::from_raw_os_error(error)).context("cannot hold back signals"),
        }
    }

    /// Waits so long, or until one comes.
    fn came_within(&self, time: Duration) -> bool {
        let limit = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        // SAFETY: set and limit outlive the call; the signal's details are not asked for.
        unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &limit) > 0 }
    }
}
