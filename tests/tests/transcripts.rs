//! What `forebay` says and writes, held by recorded transcripts: the pages of its command line, commands and HTTP of one node, its state
//! folder and metrics, its config file, tiers read offline, and the doctor. They are in
//! `tests/transcripts`, one file for each scenario; `FOREBAY_TRANSCRIPTS=write` records them anew.

#[path = "transcripts/commands.rs"]
mod commands;
#[path = "transcripts/config.rs"]
mod config;
#[path = "transcripts/http.rs"]
mod http;
#[path = "transcripts/offline.rs"]
mod offline;
#[path = "transcripts/pages.rs"]
mod pages;

use forebay_tests::harness::{IoMode, Output, TempDir, Tier, Volume, forebay, run_command, skip};
use forebay_tests::transcript::Transcript;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// `forebay ARGUMENTS`, which depends on nothing of who runs the test: no width of a terminal, no language, no daemon of the machine.
fn typed(folder: Option<&TempDir>, arguments: &[&str]) -> Output {
    let mut command = Command::new(forebay());
    for variable in ["COLUMNS", "LANGUAGE", "LC_ALL", "LC_MESSAGES", "FOREBAY_API", "XDG_STATE_HOME"] {
        command.env_remove(variable);
    }
    // Usage lines name the program as it was called.
    command.env("LANG", "C.UTF-8").arg0("forebay");
    if let Some(folder) = folder {
        command.env("XDG_RUNTIME_DIR", folder.path()).current_dir(folder.path());
    }
    command.args(arguments);
    run_command(MINUTE, command)
}

/// The program's version is a placeholder, so that a release changes no transcript.
fn know_version(transcript: &mut Transcript) {
    let said = typed(None, &["--version"]).expect_success().stdout;
    let version = said.split_whitespace().last().expect("a version").to_owned();
    transcript.names.know(&version, "<version>");
}

/// A transcript of what lies in a folder.
fn transcript_of(name: &'static str, folder: &TempDir) -> Transcript {
    let mut transcript = Transcript::new(name);
    know_version(&mut transcript);
    transcript.names.know(folder.path().to_str().expect("a plain path"), "<folder>");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a machine has a name");
    transcript.names.know(host.trim(), "<host>");
    transcript
}

/// Runs `forebay ARGUMENTS`, with `more` that is not shown.
fn run(transcript: &mut Transcript, folder: &TempDir, arguments: &[&str], more: &[&str]) -> Output {
    let output = typed(Some(folder), &[arguments, more].concat());
    transcript.command(&shown(arguments), &output);
    output
}

/// As it is typed in a shell.
fn shown(arguments: &[&str]) -> String {
    let quoted = arguments.iter().map(|word| match word.is_empty() || word.contains([' ', '"', '\\', '&', '?', '*']) {
        true => format!("'{word}'"),
        false => (*word).to_owned(),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// One volume on flash, `vm1`, in the I/O mode that every kernel has, with nothing that depends on the number of cores.
fn one_volume(folder: &TempDir) -> Volume {
    let mut volume = Volume::new(folder, 32 * MIB, Tier::Flash, IoMode::Threads);
    volume.arguments.extend(["--shards".into(), "1".into()]);
    volume
}

/// What root may do and others may not is in nearly every transcript.
fn is_root() -> bool {
    // SAFETY: it takes nothing, and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        skip("transcripts are recorded as root");
    }
    root
}

#[track_caller]
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < MINUTE, "waited a minute in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Every file below a folder, with its mode, sorted by name.
fn files(folder: &Path) -> Vec<(String, u32)> {
    use std::os::unix::fs::PermissionsExt;
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap_or_else(|e| panic!("list {}: {e}", next.display())) {
            let path = entry.expect("a name").path();
            // One that is written aside, and renamed between the two looks.
            let Ok(found) = std::fs::symlink_metadata(&path) else { continue };
            let name = path.strip_prefix(folder).expect("below it").display().to_string();
            let slash = if found.is_dir() { "/" } else { "" };
            all.push((format!("{name}{slash}"), found.permissions().mode() & 0o7777));
            if found.is_dir() {
                folders.push(path);
            }
        }
    }
    all.sort();
    all
}
