//! Runs the simulation from the command line. Prints the seed of a failure and the one command that repeats it.

use forebay_sim::blocks;
use forebay_sim::coverage::Coverage;
use forebay_sim::run::{
    Failure, exhaustive, run_cluster_seed, run_hostile_seed, run_migrating_seed, run_parted_seed, run_restless_seed,
    run_seed,
};
use forebay_sim::world::{Report, Waited, WaitsSeen};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "\
Simulates a volume under faults and checks what it promises.

usage: forebay-sim [--seeds N] [--from S] [--minutes M]   seeds S, S+1, ... (default: 1000 from 0)
       forebay-sim --replay SEED [--trace]                one seed again, with every event and effect
       forebay-sim --exhaustive                           every crash point of the small workloads
       forebay-sim digest [--write]                       compares what is decided with sim/digest.txt, or writes that
       --cluster: with several nodes; a family of seeds of its own
       --restless: with several nodes, and owners that stand still, die and are cut off most of the time; likewise
       --hostile: with five nodes, to which everything happens; likewise
       --migrating: with a volume that is handed over all the time; likewise
       --parted: with owners that are cut off from everybody but their clients, who go on reading there; likewise
       --go-on: after a failure with the next seed
Exit codes: 0 nothing found, 1 a promise was broken, 2 usage.";

#[derive(Default)]
struct Arguments {
    seeds: Option<u64>,
    from: u64,
    minutes: Option<u64>,
    replay: Option<u64>,
    trace: bool,
    exhaustive: bool,
    family: Family,
    go_on: bool,
}

/// What a seed means.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Family {
    #[default]
    OneNode,
    Cluster,
    Restless,
    Hostile,
    Migrating,
    Parted,
}

impl Family {
    fn option(self) -> &'static str {
        match self {
            Family::OneNode => "",
            Family::Cluster => "--cluster ",
            Family::Restless => "--restless ",
            Family::Hostile => "--hostile ",
            Family::Migrating => "--migrating ",
            Family::Parted => "--parted ",
        }
    }

    fn run(self, seed: u64, trace: bool) -> Result<Report, Failure> {
        match self {
            Family::OneNode => run_seed(seed, None, trace),
            Family::Cluster => run_cluster_seed(seed, trace),
            Family::Restless => run_restless_seed(seed, trace),
            Family::Hostile => run_hostile_seed(seed, trace),
            Family::Migrating => run_migrating_seed(seed, trace),
            Family::Parted => run_parted_seed(seed, trace),
        }
    }
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || -> Result<u64, String> {
            let value = words.next().ok_or_else(|| format!("{word} needs a number"))?;
            value.parse().map_err(|_| format!("{word} needs a number, not {value:?}"))
        };
        match word.as_str() {
            "--seeds" => parsed.seeds = Some(number()?),
            "--from" => parsed.from = number()?,
            "--minutes" => parsed.minutes = Some(number()?),
            "--replay" => parsed.replay = Some(number()?),
            "--trace" => parsed.trace = true,
            "--exhaustive" => parsed.exhaustive = true,
            "--cluster" => parsed.family = Family::Cluster,
            "--restless" => parsed.family = Family::Restless,
            "--hostile" => parsed.family = Family::Hostile,
            "--migrating" => parsed.family = Family::Migrating,
            "--parted" => parsed.family = Family::Parted,
            "--go-on" => parsed.go_on = true,
            _ => return Err(format!("{word:?} is not known")),
        }
    }
    Ok(parsed)
}

fn print_coverage(coverage: &Coverage, family: Family) {
    println!("states reached:");
    let between_nodes: Vec<_> = coverage.between_nodes().filter(|_| family != Family::OneNode).collect();
    for (name, count) in between_nodes.into_iter().chain(coverage.all()) {
        println!("  {count:>10}  {name}");
    }
}

/// How long was waited in all runs that found nothing, from when nothing kept anybody.
fn print_waits(waits: &WaitsSeen, family: Family) {
    println!("waits while nothing kept anybody, in seconds:");
    let of_clusters = [("needs only the log", &waits.by_log), ("for a node that serves", &waits.unserved)];
    let of_clusters = of_clusters.into_iter().filter(|_| family != Family::OneNode);
    for (name, Waited { ended, longest }) in std::iter::once(("any request", &waits.requests)).chain(of_clusters) {
        let below = |p| ended.percentile(p).map_or(0.0, |us| us as f64 / 1e6);
        let (half, most, nearly_all) = (below(50.0), below(99.0), below(99.99));
        let (longest, count) = (longest.0 as f64 / 1e9, ended.count());
        println!(
            "  {name}: half under {half:.4}, 99 % {most:.4}, 99.99 % {nearly_all:.4}, longest {longest:.3}; {count} waits"
        );
    }
}

/// A build whose panics abort reaches no report: the hook says beforehand what repeats the run.
fn announce_when_aborting(seed: u64, family: Family) {
    if cfg!(panic = "abort") {
        std::panic::set_hook(Box::new(move |info| {
            eprintln!("seed {seed} FAILED: {info}\nrepeat: {}", repeat(seed, family));
        }));
    }
}

fn repeat(seed: u64, family: Family) -> String {
    format!("cargo run -p forebay-sim -- {}--replay {seed} --trace", family.option())
}

/// Compares what the cores decide with what is checked in, or writes that anew.
fn digest(write: bool) -> Result<String, String> {
    if cfg!(panic = "abort") {
        return Err(
            "digest needs a build whose panics unwind: the dev profile, or CARGO_PROFILE_RELEASE_PANIC=unwind".into()
        );
    }
    let found =
        blocks::digests_of(&blocks::all()).map_err(|failure| format!("{}: {}", failure.run, failure.message))?;
    let text = blocks::text_of(&found);
    text.lines().filter(|line| !line.starts_with(['#', ' '])).for_each(|line| println!("{line}"));
    if write {
        return match std::fs::write(blocks::PATH, text) {
            Ok(()) => Ok(format!("written: {}", blocks::PATH)),
            Err(error) => Err(format!("{}: {error}", blocks::PATH)),
        };
    }
    let differences = blocks::differences(&found, &blocks::expected()?);
    if differences.is_empty() { Ok("as expected".into()) } else { Err(differences.join("\n")) }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "digest") {
        let write = match &words[1..] {
            [] => false,
            [write] if write == "--write" => true,
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        };
        let start = Instant::now();
        return match digest(write) {
            Ok(told) => {
                println!("{told}, {:.1} s", start.elapsed().as_secs_f64());
                ExitCode::SUCCESS
            }
            Err(told) => {
                eprintln!("{told}");
                ExitCode::FAILURE
            }
        };
    }
    run()
}

fn run() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(reason) => {
            eprintln!("{reason}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let start = Instant::now();
    let mut coverage = Coverage::default();
    if arguments.exhaustive {
        return match exhaustive(|report| coverage.merge(&report.coverage)) {
            Ok(runs) => {
                print_coverage(&coverage, Family::OneNode);
                println!("{runs} crash points, nothing found, {:.1} s", start.elapsed().as_secs_f64());
                ExitCode::SUCCESS
            }
            Err(failure) => {
                eprintln!("{} FAILED: {}", failure.run, failure.message);
                eprintln!("repeat: cargo run -p forebay-sim -- --exhaustive");
                ExitCode::FAILURE
            }
        };
    }
    let seeds: Box<dyn Iterator<Item = u64>> = match (arguments.replay, arguments.seeds, arguments.minutes) {
        (Some(seed), _, _) => Box::new(std::iter::once(seed)),
        (None, Some(count), _) => Box::new(arguments.from..arguments.from.saturating_add(count)),
        (None, None, Some(_)) => Box::new(arguments.from..),
        (None, None, None) => Box::new(arguments.from..arguments.from + 1000),
    };
    if arguments.replay.is_none() {
        println!("seeds {}from {} on", arguments.family.option(), arguments.from);
    }
    let deadline = arguments.minutes.map(|m| start + Duration::from_secs(60 * m));
    let (mut runs, mut failed) = (0u64, 0u64);
    let mut waits = WaitsSeen::default();
    for seed in seeds {
        if deadline.is_some_and(|d| Instant::now() >= d) {
            break;
        }
        announce_when_aborting(seed, arguments.family);
        match arguments.family.run(seed, arguments.trace) {
            Ok(report) => {
                coverage.merge(&report.coverage);
                waits.merge(&report.waits);
            }
            Err(failure) => {
                eprintln!("{} FAILED: {}\nrepeat: {}", failure.run, failure.message, repeat(seed, arguments.family));
                failed += 1;
                if !arguments.go_on {
                    return ExitCode::FAILURE;
                }
            }
        }
        runs += 1;
    }
    print_coverage(&coverage, arguments.family);
    print_waits(&waits, arguments.family);
    let seconds = start.elapsed().as_secs_f64();
    let speed = format!("{seconds:.1} s, {:.1} seeds a second", runs as f64 / seconds);
    if failed > 0 {
        println!("{failed} of {runs} seeds FAILED, {speed}");
        return ExitCode::FAILURE;
    }
    println!("{runs} seeds, nothing found, {speed}");
    ExitCode::SUCCESS
}
