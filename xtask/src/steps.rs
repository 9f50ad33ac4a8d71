//! Runs steps, times them, and sums up. A step passes, fails, or is skipped with the reason; nothing else.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How a step ended.
pub enum Outcome {
    /// It ran and found nothing.
    Passed,
    /// What is wrong, one line each; a command that failed has already printed its own.
    Failed(Vec<String>),
    /// It could not run: what is missing.
    Skipped(String),
}

/// The steps of one run.
pub struct Steps {
    done: Vec<(String, Outcome, Duration)>,
}

impl Steps {
    /// A run in which none is done yet.
    pub fn new() -> Steps {
        Steps { done: Vec::new() }
    }

    /// Runs one and keeps its outcome.
    pub fn run(&mut self, name: &str, step: impl FnOnce() -> Outcome) {
        println!("=== {name}");
        let start = Instant::now();
        let outcome = step();
        match &outcome {
            Outcome::Passed => {}
            Outcome::Failed(lines) => lines.iter().for_each(|line| println!("{line}")),
            Outcome::Skipped(reason) => println!("skipped: {reason}"),
        }
        self.done.push((name.to_string(), outcome, start.elapsed()));
    }

    /// Prints the table and gives the exit status.
    pub fn report(&self) -> ExitCode {
        println!("\n=== minutes");
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for (name, outcome, took) in &self.done {
            let minutes = took.as_secs_f64() / 60.0;
            let word = match outcome {
                Outcome::Passed => {
                    passed += 1;
                    "ok".to_string()
                }
                Outcome::Failed(_) => {
                    failed += 1;
                    "FAILED".to_string()
                }
                Outcome::Skipped(reason) => {
                    skipped += 1;
                    format!("skipped: {reason}")
                }
            };
            println!("{minutes:6.2}  {name:<11} {word}");
        }
        let total: Duration = self.done.iter().map(|(_, _, took)| *took).sum();
        println!("{:6.2}  total: {passed} passed, {failed} failed, {skipped} skipped", total.as_secs_f64() / 60.0);
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Passed when all have.
pub fn all(outcomes: Vec<Outcome>) -> Outcome {
    let (mut wrong, mut missing) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Outcome::Passed => {}
            Outcome::Failed(lines) => wrong.extend(lines),
            Outcome::Skipped(reason) => missing.push(reason),
        }
    }
    match (wrong.is_empty(), missing.is_empty()) {
        (false, _) => Outcome::Failed(wrong),
        (true, false) => Outcome::Skipped(missing.join("; ")),
        (true, true) => Outcome::Passed,
    }
}

/// Runs cargo in `root`, its output shown; passes when it does.
pub fn cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Outcome {
    let mut command = base("cargo");
    command.current_dir(root).args(arguments).envs(environment.iter().copied());
    match command.status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(vec![format!("cargo {}: {status}", arguments.join(" "))]),
        Err(error) => Outcome::Failed(vec![format!("cargo {}: cannot be started: {error}", arguments.join(" "))]),
    }
}

/// Without what the outer cargo and rustup put into the environment, so that it chooses like one that was typed.
pub fn base(program: &str) -> Command {
    let mut command = Command::new(program);
    for name in ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC", "CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH"] {
        command.env_remove(name);
    }
    command
}

/// True when a command can be run and succeeds, its output hidden.
pub fn has(words: &[&str]) -> bool {
    succeeds(Path::new("."), words)
}

/// True when a command succeeds in `root`, its output hidden.
pub fn succeeds(root: &Path, words: &[&str]) -> bool {
    let mut command = base(words[0]);
    command.current_dir(root).args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A command's standard output.
pub fn output(root: &Path, words: &[&str]) -> Result<String, String> {
    let shown = words.join(" ");
    let output = base(words[0])
        .current_dir(root)
        .args(&words[1..])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{shown}: cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("{shown}: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("{shown}: its output is not UTF-8"))
}
