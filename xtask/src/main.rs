//! The project's own checks: `cargo xtask verify` reads and never writes, `cargo xtask fix` writes what a machine can.
//!
//! Every step prints what it took. A step that cannot run here says what is missing and counts as skipped, never as
//! passed. All steps run even when one fails, so that one run shows everything; any failure makes the exit status 1.
//! The black-box tests against the binary are not here: they need root and tools, `make test` runs them after this.

mod cycles;
mod docs;
mod edges;
mod files;
mod functions;
mod fuzz;
mod graph;
mod lengths;
mod licences;
mod losses;
mod modules;
mod ratchet;
mod rust;
mod steps;
mod subjects;
mod tidy;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;
use steps::{Outcome, Steps, cargo};

const USAGE: &str = "\
usage: cargo xtask verify [--minutes N] [--only STEP]...   check everything, change nothing; with --minutes, fresh seeds for so long
       cargo xtask fix                                     format, apply clippy's suggestions, lower the lists
       cargo xtask fuzz [--seconds N]                      every fuzz target for so long (default 10)
       cargo xtask lower                                   lower the lists of what is over a limit today; fix does it too
       cargo xtask functions                               functions over 80 lines, the longest first
       cargo xtask docs                                    doc comments that say nothing
       cargo xtask cycles                                  arrows between the top-level modules of each crate that go round
       cargo xtask subjects [RANGE]                        subjects of commits; without a range, of all since the rule holds
       cargo xtask tidy | licences                         one of the quick steps by itself
steps: fmt tidy subjects licences deny advisories clippy doc core test mutants fuzz sim";

/// Steps of `verify`, cheap ones first.
const STEPS: [&str; 13] = [
    "fmt",
    "tidy",
    "subjects",
    "licences",
    "deny",
    "advisories",
    "clippy",
    "doc",
    "core",
    "test",
    "mutants",
    "fuzz",
    "sim",
];
/// What each fuzz target gets of the gate. Enough for each of the bugs that were planted in the decoders; `make soak` takes longer.
const FUZZ_SECONDS: u64 = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = root();
    match words.as_slice() {
        ["verify", options @ ..] => match Options::parse(options) {
            Ok(options) => verify(&root, &options),
            Err(reason) => usage(&reason),
        },
        ["fix"] => fix(&root),
        ["lower"] => lower(&root),
        ["fuzz"] => fuzzing(&root, FUZZ_SECONDS),
        ["fuzz", "--seconds", number] => match number.parse() {
            Ok(seconds) if seconds > 0 => fuzzing(&root, seconds),
            _ => usage(&format!("--seconds {number}: not a whole number of seconds above 0")),
        },
        ["functions"] => single(&root, "functions"),
        ["docs"] => single(&root, "docs"),
        ["subjects"] => single(&root, "subjects"),
        ["subjects", range] => {
            let mut steps = Steps::new();
            steps.run("subjects", || subjects::check(&root, Some(range)));
            steps.report()
        }
        ["cycles"] => single(&root, "cycles"),
        ["tidy"] => single(&root, "tidy"),
        ["licences"] => single(&root, "licences"),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        [] => usage("no command"),
        other => usage(&format!("unknown: {}", other.join(" "))),
    }
}

fn usage(reason: &str) -> ExitCode {
    eprintln!("xtask: {reason}\n{USAGE}");
    ExitCode::from(2)
}

/// The workspace's folder: the parent of this package's.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}

#[derive(Debug, PartialEq)]
struct Options {
    minutes: u64,
    only: Vec<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Options, String> {
        let mut options = Options { minutes: 0, only: Vec::new() };
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let value = rest.next().ok_or_else(|| format!("{word} needs a value"))?;
            match *word {
                "--minutes" => {
                    options.minutes =
                        value.parse().map_err(|_| format!("--minutes {value}: not a whole number of minutes"))?;
                }
                "--only" if STEPS.contains(value) => options.only.push((*value).to_string()),
                "--only" => return Err(format!("--only {value}: no such step")),
                _ => return Err(format!("unknown option {word}")),
            }
        }
        Ok(options)
    }

    fn wants(&self, step: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == step)
    }
}

fn verify(root: &std::path::Path, options: &Options) -> ExitCode {
    let mut steps = Steps::new();
    for name in STEPS {
        if options.wants(name) {
            steps.run(name, || match name {
                "fmt" => cargo(root, &["fmt", "--all", "--check"], &[]),
                "tidy" => tidy::check(root),
                "subjects" => subjects::check(root, None),
                "licences" => licences::check(root),
                "deny" => deny(root),
                "advisories" => advisories(root),
                "clippy" => cargo(
                    root,
                    &["clippy", "--locked", "--workspace", "--all-targets", "-j2", "--", "-D", "warnings"],
                    &[],
                ),
                "doc" => {
                    // The documentation is for those who work here: links from public to private items are meant.
                    let flags = [("RUSTDOCFLAGS", "-D warnings -A rustdoc::private_intra_doc_links")];
                    cargo(
                        root,
                        &["doc", "--locked", "--workspace", "--no-deps", "--document-private-items", "-j2"],
                        &flags,
                    )
                }
                // A call into std does not build in a crate that says no_std; tidy checks that it says so.
                "core" => cargo(root, &["build", "--locked", "--package", "forebay-core", "-j2"], &[]),
                "test" => {
                    let test = ["test", "--locked", "--workspace", "--exclude", "forebay-tests", "-j2", "--quiet"];
                    cargo(root, &[&test[..], &["--no-fail-fast"]].concat(), &[])
                }
                // Bugs planted in core must be found, or the simulator's silence about the real one means nothing.
                "mutants" => {
                    let test =
                        ["test", "--locked", "--package", "forebay-sim", "--features", "mutants", "-j2", "--quiet"];
                    let of = ["--test", "mutants", "--test", "cluster_mutants", "--test", "ownership_mutants"];
                    let whole = cargo(root, &[&test[..], &of, &["--no-fail-fast"]].concat(), &[]);
                    // Storms and stories of volumes between nodes, without a world around them.
                    let stories =
                        ["test", "--locked", "--package", "forebay-core", "--features", "mutants", "-j2", "--quiet"];
                    let of = ["--test", "replicas", "--test", "transcripts", "--test", "over_time", "--test", "tier"];
                    let stories = [&stories[..], &of, &["mutants"]].concat();
                    steps::all(vec![whole, cargo(root, &stories, &[])])
                }
                "fuzz" => fuzz::check(root, FUZZ_SECONDS),
                "sim" => sim(root, options.minutes),
                _ => unreachable!("STEPS and this match name the same steps"),
            });
        }
    }
    steps.report()
}

const NO_CARGO_DENY: &str = "cargo-deny is not installed: scripts/setup.sh --gate";

/// Licences of all that either target may link, bans and sources. All of it is in the lock file and the packages.
fn deny(root: &std::path::Path) -> Outcome {
    if !steps::has(&["cargo", "deny", "--version"]) {
        return Outcome::Skipped(NO_CARGO_DENY.to_string());
    }
    cargo(root, &["deny", "--locked", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"], &[])
}

/// Known vulnerabilities, and packages taken back. Needs the advisory database, which comes from the network.
fn advisories(root: &std::path::Path) -> Outcome {
    if !steps::has(&["cargo", "deny", "--version"]) {
        return Outcome::Skipped(NO_CARGO_DENY.to_string());
    }
    if !steps::succeeds(root, &["cargo", "deny", "fetch", "db"]) {
        return Outcome::Skipped("the advisory database cannot be fetched from here: needs the network".to_string());
    }
    cargo(root, &["deny", "--locked", "check", "advisories"], &[])
}

/// Seeds of the gate besides those that run with the tests of the package (`sim/seeds.txt`, scenarios, the first of clusters).
/// A fixed count, so that a slow machine looks at as much as a fast one.
const SEEDS_OF_ONE_NODE: &str = "900";
/// Behind those of `sim/tests/cluster.rs`.
const SEEDS_OF_CLUSTERS: [&str; 4] = ["--from", "150", "--seeds", "200"];

/// Fixed seeds, so that what fails was broken by the change; with minutes (`make soak` has hours), fresh ones of both families
/// for half of the time each.
fn sim(root: &std::path::Path, minutes: u64) -> Outcome {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let fresh = format!("{}000", since.expect("the clock is later than 1970").as_secs());
    let run = |arguments: &[&str]| {
        let cargo_run = ["run", "--locked", "--quiet", "--package", "forebay-sim", "-j2", "--"];
        cargo(root, &[&cargo_run[..], arguments].concat(), &[])
    };
    let outcomes = if minutes == 0 {
        vec![run(&["--seeds", SEEDS_OF_ONE_NODE]), run(&[&["--cluster"][..], &SEEDS_OF_CLUSTERS].concat())]
    } else {
        let each = minutes.div_ceil(2).to_string();
        vec![run(&["--from", &fresh, "--minutes", &each]), run(&["--cluster", "--from", &fresh, "--minutes", &each])]
    };
    steps::all(outcomes)
}

fn fuzzing(root: &std::path::Path, seconds: u64) -> ExitCode {
    let mut steps = Steps::new();
    steps.run("fuzz", || fuzz::check(root, seconds));
    steps.report()
}

fn single(root: &std::path::Path, name: &str) -> ExitCode {
    let mut steps = Steps::new();
    steps.run(name, || match name {
        "tidy" => tidy::check(root),
        "functions" => functions::print(root),
        "docs" => docs::print(root),
        "subjects" => subjects::check(root, None),
        "cycles" => cycles::print(root),
        _ => licences::check(root),
    });
    steps.report()
}

fn fix(root: &std::path::Path) -> ExitCode {
    let mut steps = Steps::new();
    steps.run("clippy", || {
        let fix = ["clippy", "--fix", "--allow-dirty", "--allow-staged", "--workspace", "--all-targets", "-j2"];
        cargo(root, &fix, &[])
    });
    steps.run("fmt", || cargo(root, &["fmt", "--all"], &[]));
    lower_lists(root, &mut steps);
    steps.report()
}

fn lower(root: &std::path::Path) -> ExitCode {
    let mut steps = Steps::new();
    lower_lists(root, &mut steps);
    steps.report()
}

/// After formatting, which changes how many lines there are.
fn lower_lists(root: &std::path::Path, steps: &mut Steps) {
    steps.run("lengths", || ratchet::lower(root, &lengths::RATCHET, lengths::look));
    steps.run("functions", || ratchet::lower(root, &functions::RATCHET, functions::look));
    steps.run("docs", || ratchet::lower(root, &docs::RATCHET, docs::look));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_refused() {
        assert_eq!(Options::parse(&[]), Ok(Options { minutes: 0, only: vec![] }));
        let parsed = Options::parse(&["--minutes", "5", "--only", "tidy", "--only", "fmt"]).unwrap();
        assert_eq!(parsed.minutes, 5);
        assert!(parsed.wants("tidy") && parsed.wants("fmt") && !parsed.wants("test"));
        for bad in [&["--minutes"][..], &["--minutes", "-1"], &["--minutes", "x"], &["--only", "all"], &["--fast", "1"]]
        {
            assert!(Options::parse(bad).is_err(), "{bad:?}");
        }
    }
}
