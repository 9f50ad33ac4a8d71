//! Runs the fuzz targets: libFuzzer steered by coverage, built by the toolchain that builds everything else.
//!
//! The flags are those of `cargo fuzz run --sanitizer none`, and none of them needs a nightly compiler. Address sanitizer would;
//! without it a stray access shows only where it breaks what a target asserts. Core forbids unsafe code, and `front` has it around
//! system calls and frames alone. The corpus of a target grows in `fuzz/corpus/`, so that each run begins where the last
//! one ended; git ignores it.

use crate::steps::{Outcome, base, output};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Edges counted, and what is compared reported, so that magic numbers are found. `--cfg fuzzing` is what packages look for.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions=yes --cfg fuzzing";
/// One input that takes longer than this is a finding: the largest are some MiB through a socket pair.
const INPUT_SECONDS_MAX: u64 = 60;
const MEMORY_MIB_MAX: u64 = 2048;
/// Of what a target printed before it failed.
const LINES_SHOWN: usize = 40;

/// Targets that run beside each other: the gate is meant for two cores.
const AT_ONE_TIME: usize = 2;

/// Builds all targets, then runs each for so long. A crash leaves its input in `fuzz/artifacts/` and is a failure.
pub fn check(root: &Path, seconds: u64) -> Outcome {
    let (host, targets) = match (host(root), targets(root)) {
        (Ok(host), Ok(targets)) => (host, targets),
        (Err(reason), _) | (_, Err(reason)) => return Outcome::Failed(vec![reason]),
    };
    if let Err(reason) = build(root, &host) {
        return Outcome::Failed(vec![reason]);
    }
    let binaries = root.join("fuzz/target").join(&host).join("release");
    let mut wrong = Vec::new();
    for together in targets.chunks(AT_ONE_TIME) {
        let runs = std::thread::scope(|scope| {
            let mut started = Vec::new();
            for target in together {
                let binary = binaries.join(target);
                started.push(scope.spawn(move || run(root, target, &binary, seconds)));
            }
            started.into_iter().map(|thread| thread.join().expect("it only runs a program")).collect::<Vec<_>>()
        });
        for (target, run) in together.iter().zip(runs) {
            match run {
                Ok(summary) => println!("{target}: {summary}"),
                Err(lines) => wrong.extend(lines),
            }
        }
    }
    if wrong.is_empty() { Outcome::Passed } else { Outcome::Failed(wrong) }
}

/// The platform that the toolchain builds for. Named to cargo, so that the flags reach no build script.
fn host(root: &Path) -> Result<String, String> {
    let version = output(root, &["rustc", "-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_string).ok_or_else(|| format!("rustc -vV names no host:\n{version}"))
}

fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("list {}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.strip_suffix(".rs").map(str::to_string))
        .collect();
    names.sort();
    if names.is_empty() { Err(format!("{}: no target in it", folder.display())) } else { Ok(names) }
}

fn build(root: &Path, host: &str) -> Result<(), String> {
    let mut command = base("cargo");
    command.current_dir(root).env("RUSTFLAGS", FLAGS);
    command.args(["build", "--locked", "--release", "--quiet", "-j2", "--manifest-path", "fuzz/Cargo.toml"]);
    command.args(["--target", host]);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(error) => Err(format!("{command:?}: cannot be started: {error}")),
    }
}

/// What a target did in its time; or what it found, and how to see it again.
fn run(root: &Path, target: &str, binary: &Path, seconds: u64) -> Result<String, Vec<String>> {
    let corpus = folder(root, "corpus", target)?;
    let artifacts = folder(root, "artifacts", target)?;
    let mut command = base(&binary.to_string_lossy());
    command.current_dir(root).arg(&corpus).stdin(Stdio::null());
    command.arg(format!("-max_total_time={seconds}")).arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}")).arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"));
    let ended = command.output().map_err(|error| vec![format!("{command:?}: cannot be started: {error}")])?;
    let printed = String::from_utf8_lossy(&ended.stderr);
    let summary = summary(&printed);
    match summary {
        Some(summary) if ended.status.success() => Ok(summary),
        Some(_) | None => {
            let lines: Vec<&str> = printed.lines().collect();
            let mut shown: Vec<String> =
                lines[lines.len().saturating_sub(LINES_SHOWN)..].iter().map(|line| (*line).to_string()).collect();
            shown.push(format!("fuzz target {target}: {}", ended.status));
            shown.push(format!("what a crash leaves in {} repeats it: {} FILE", artifacts.display(), binary.display()));
            Err(shown)
        }
    }
}

fn folder(root: &Path, kind: &str, target: &str) -> Result<PathBuf, Vec<String>> {
    let path = root.join("fuzz").join(kind).join(target);
    match std::fs::create_dir_all(&path) {
        Ok(()) => Ok(path),
        Err(error) => Err(vec![format!("make {}: {error}", path.display())]),
    }
}

/// Inputs tried, edges reached and the seed, from what libFuzzer prints; none if it did not come to its end.
fn summary(printed: &str) -> Option<String> {
    let runs = printed.lines().rev().find_map(|line| line.strip_prefix("Done "))?.split(' ').next()?;
    let word_after = |key: &str| {
        let line = printed.lines().rev().find(|line| line.contains(key))?;
        line.split(key).nth(1)?.split_whitespace().next().map(str::to_string)
    };
    Some(format!("{runs} inputs, {} edges, seed {}", word_after("cov: ")?, word_after("INFO: Seed: ")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_summed_up_only_if_it_came_to_its_end() {
        let printed = "INFO: Running with entropic power schedule (0xFF, 100).\nINFO: Seed: 42\n\
            #2\tINITED cov: 12 ft: 12 corp: 1/1b exec/s: 0 rss: 30Mb\n\
            #9000\tNEW    cov: 345 ft: 900 corp: 80/4Kb lim: 80 exec/s: 900 rss: 40Mb L: 8/60 MS: 1 EraseBytes-\n";
        assert_eq!(summary(printed), None);
        let whole = format!("{printed}Done 9001 runs in 11 second(s)\n");
        assert_eq!(summary(&whole).as_deref(), Some("9001 inputs, 345 edges, seed 42"));
    }
}
