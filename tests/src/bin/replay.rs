//! `replay LOG`: lists a dm-log-writes recording. `replay LOG --before N LENGTH FILE [SEED]`: builds the recorded disk
//! as a power cut before entry N certainly leaves it, or with the part of the uncertain writes that the seed draws.
//! For looking by hand at a cut that a test has reported.

use forebay_tests::logwrites::{Disk, Keep, Log, write_sparse};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: replay LOG | replay LOG --before ENTRY LENGTH FILE [SEED]";

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
        [log, before, entry, length, file, seed @ ..] if before == "--before" && seed.len() < 2 => {
            let keep = match seed.first() {
                None => Keep::Nothing,
                Some(seed) => Keep::Some(seed.parse().map_err(|_| format!("{seed}: not a seed"))?),
            };
            let entry = entry.parse().map_err(|_| format!("{entry}: not a number of an entry"))?;
            build(&Log::open(Path::new(log))?, entry, length, file, keep)
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

fn build(log: &Log, before: usize, length: &str, file: &str, keep: Keep) -> Result<(), String> {
    if before > log.entries.len() {
        return Err(format!("entry {before}: the recording has {} entries", log.entries.len()));
    }
    let length = length.parse().map_err(|_| format!("{length}: not a number of bytes"))?;
    let mut disk = Disk::new(log, length);
    disk.advance(before)?;
    write_sparse(Path::new(file), &disk.after_cut(keep)?)
}
