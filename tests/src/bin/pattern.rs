//! Self-describing load over NBD, and its checkers; see `forebay_tests::pattern`.
//!
//! Exit codes: 0 done, 1 a promise is broken or the tool failed, 2 usage, 3 the connection was lost during `write`
//! (what a test that kills the daemon expects).

use forebay_tests::kernel::MarkDevice;
use forebay_tests::nbd::{Client, Target};
use forebay_tests::pattern::check::{self, Verdict};
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::load::{self, Ended, LoadOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
usage: pattern write --uri URI --journal FILE [--from BYTES] [--to BYTES] [--seconds S] [--requests N] [--seed N]
                     [--connections N] [--in-flight N] [--flush-every N] [--fua-percent N] [--zero-percent N]
                     [--pause-us N] [--no-trims] [--concurrent-barriers] [--errors-allowed] [--mark-device DM_NAME]...
       pattern verify --uri URI --journal FILE --after kill|power [--until-reply SEQ]
       pattern verify-image FILE --journal FILE --after all-logs-lost|drain|power
URI is nbd+unix:///EXPORT?socket=PATH or nbd://HOST:PORT/EXPORT. Without --seconds and --requests: 10 seconds.
`verify --after kill` settles what was open: from then on it may not change. A mark is placed after each barrier, on
the devices in the order of their naming.";

enum Failure {
    Usage(String),
    Lost,
    Failed(String),
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::Failed(message)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            eprintln!("pattern: {message}\n{USAGE}");
            ExitCode::from(2)
        }
        Err(Failure::Lost) => ExitCode::from(3),
        Err(Failure::Failed(message)) => {
            eprintln!("pattern: {message}");
            ExitCode::from(1)
        }
    }
}

struct Arguments<'a>(&'a [String]);

impl<'a> Arguments<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn value(&mut self, of: &str) -> Result<&'a str, Failure> {
        self.next().ok_or_else(|| Failure::Usage(format!("{of} needs a value")))
    }

    fn number(&mut self, of: &str) -> Result<u64, Failure> {
        let text = self.value(of)?;
        text.parse().map_err(|_| Failure::Usage(format!("{of} {text}: not a number")))
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut rest = Arguments(arguments);
    match rest.next() {
        Some("write") => write(rest),
        Some("verify") => verify(rest),
        Some("verify-image") => verify_image(rest),
        Some(other) => Err(Failure::Usage(format!("unknown command {other}"))),
        None => Err(Failure::Usage("no command".into())),
    }
}

fn needed<T>(value: Option<T>, name: &str) -> Result<T, Failure> {
    value.ok_or_else(|| Failure::Usage(format!("{name} is missing")))
}

fn write(mut rest: Arguments) -> Result<(), Failure> {
    let mut options = LoadOptions::new(Target::unix(""), "", 0..0);
    let (mut uri, mut journal, mut to, mut mark_devices) = (None, None, None, Vec::new());
    while let Some(name) = rest.next() {
        match name {
            "--uri" => uri = Some(Target::parse(rest.value(name)?)?),
            "--journal" => journal = Some(PathBuf::from(rest.value(name)?)),
            "--from" => options.area.start = rest.number(name)?,
            "--to" => to = Some(rest.number(name)?),
            "--seconds" => options.time = Some(Duration::from_secs(rest.number(name)?)),
            "--requests" => options.requests = Some(rest.number(name)?),
            "--seed" => options.seed = rest.number(name)?,
            "--connections" => options.connections = rest.number(name)? as u32,
            "--in-flight" => options.in_flight = rest.number(name)? as u32,
            "--flush-every" => options.flush_every = rest.number(name)? as u32,
            "--fua-percent" => options.fua_percent = rest.number(name)? as u32,
            "--zero-percent" => options.zero_percent = rest.number(name)? as u32,
            "--pause-us" => options.pause = Duration::from_micros(rest.number(name)?),
            "--no-trims" => options.trims = false,
            "--concurrent-barriers" => options.exact_groups = false,
            "--errors-allowed" => options.errors_allowed = true,
            "--mark-device" => mark_devices.push(MarkDevice::open(rest.value(name)?)?),
            other => return Err(Failure::Usage(format!("unknown option {other}"))),
        }
    }
    options.target = needed(uri, "--uri")?;
    options.journal = needed(journal, "--journal")?;
    options.area.end = match to {
        Some(to) => to,
        None => {
            let client = Client::connect_within(&options.target, Duration::from_secs(5))
                .map_err(|e| format!("connect to {:?}: {e}", options.target))?;
            client.size / 512 * 512
        }
    };
    if options.time.is_none() && options.requests.is_none() {
        options.time = Some(Duration::from_secs(10));
    }
    println!("seed {}", options.seed);
    let ended = load::run_with_marks(&options, &|seq| {
        for device in &mark_devices {
            device.mark(&seq.to_string());
        }
    })?;
    let totals = ended.totals();
    println!(
        "{} requests sent, {} acknowledged, {} answered with an error, {} barriers",
        totals.issued, totals.acknowledged, totals.failed, totals.barriers
    );
    match ended {
        Ended::Finished(_) => Ok(()),
        Ended::ConnectionLost(_) => {
            println!(
                "connection lost: {} requests have no answer",
                totals.issued - totals.acknowledged - totals.failed
            );
            Err(Failure::Lost)
        }
    }
}

fn report(verdict: &Verdict) {
    print!("{} sectors read, {} written, {} open", verdict.sectors, verdict.written, verdict.open);
    match verdict.groups {
        Some((from, to, all)) => println!("; explained by barrier {from} to {to} of {all}"),
        None => println!("; all that is promised of {} requests", verdict.promised),
    }
}

fn verify(mut rest: Arguments) -> Result<(), Failure> {
    let (mut uri, mut journal, mut after, mut until) = (None, None, None, None);
    while let Some(name) = rest.next() {
        match name {
            "--uri" => uri = Some(Target::parse(rest.value(name)?)?),
            "--journal" => journal = Some(PathBuf::from(rest.value(name)?)),
            "--after" => after = Some(rest.value(name)?),
            "--until-reply" => until = Some(rest.number(name)?),
            other => return Err(Failure::Usage(format!("unknown option {other}"))),
        }
    }
    let (target, journal) = (needed(uri, "--uri")?, needed(journal, "--journal")?);
    let verdict = match needed(after, "--after")? {
        "kill" => check::settle_after_kill(&journal, &target)?,
        "power" => check::volume_after_power_loss(&History::read(&journal)?, &target, until)?,
        other => return Err(Failure::Usage(format!("--after {other}: kill or power"))),
    };
    report(&verdict);
    Ok(())
}

fn verify_image(mut rest: Arguments) -> Result<(), Failure> {
    let image = needed(rest.next(), "FILE")?;
    let (mut journal, mut after) = (None, None);
    while let Some(name) = rest.next() {
        match name {
            "--journal" => journal = Some(PathBuf::from(rest.value(name)?)),
            "--after" => after = Some(rest.value(name)?),
            other => return Err(Failure::Usage(format!("unknown option {other}"))),
        }
    }
    let (image, history) = (Path::new(image), History::read(&needed(journal, "--journal")?)?);
    let verdict = match needed(after, "--after")? {
        "all-logs-lost" => check::image(&history, image)?,
        "drain" => check::image_complete(&history, image)?,
        "power" => check::disk_after_power_loss(&history, image, None)?,
        other => return Err(Failure::Usage(format!("--after {other}: all-logs-lost, drain or power"))),
    };
    report(&verdict);
    Ok(())
}
