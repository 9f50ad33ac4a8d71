//! `replay LOG`: lists a dm-log-writes recording. `replay LOG --before N LENGTH:FILE...`: builds the parts of the
//! recorded disk, in their order, as a power cut before entry N certainly leaves them. For looking by hand at a cut
//! that a test has reported.

use forebay_tests::logwrites::{Disk, Keep, Log, write_sparse};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: replay LOG | replay LOG --before ENTRY LENGTH:FILE...";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("replay: {message}");
            ExitCode::from(if message == USAGE { 2 } else { 1 })
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [log] => list(&Log::open(Path::new(log))?),
        [log, before, entry, parts @ ..] if before == "--before" && !parts.is_empty() => {
            let entry = entry.parse().map_err(|_| format!("{entry}: not a number of an entry"))?;
            build(&Log::open(Path::new(log))?, entry, parts)
        }
        _ => Err(USAGE.into()),
    }
}

fn list(log: &Log) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    for (number, entry) in log.entries.iter().enumerate() {
        let mut what = Vec::new();
        for (name, on) in [("flush", entry.flush), ("fua", entry.fua), ("discard", entry.discard)] {
            if on {
                what.push(name);
            }
        }
        let line = match &entry.mark {
            Some(mark) => format!("{number:6} mark '{mark}'"),
            None => format!("{number:6} {:>12} +{:<8} {}", entry.offset, entry.length, what.join(" ")),
        };
        // A reader that has seen enough (`| head`) is no failure.
        if writeln!(out, "{line}").is_err() {
            break;
        }
    }
    Ok(())
}

fn build(log: &Log, before: usize, parts: &[String]) -> Result<(), String> {
    if before > log.entries.len() {
        return Err(format!("entry {before}: the recording has {} entries", log.entries.len()));
    }
    let mut lengths = Vec::new();
    let mut paths = Vec::new();
    for part in parts {
        let (length, path) = part.split_once(':').ok_or(USAGE)?;
        lengths.push(length.parse().map_err(|_| format!("{length}: not a number of bytes"))?);
        paths.push(path);
    }
    let mut disk = Disk::new(log, &lengths);
    disk.advance(before)?;
    for (path, bytes) in paths.iter().zip(disk.parts_after_cut(Keep::Nothing)?) {
        write_sparse(Path::new(path), &bytes)?;
    }
    Ok(())
}
