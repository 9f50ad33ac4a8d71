//! `replay LOG`: lists a dm-log-writes recording. `replay LOG --before N FROM:TO:FILE...`: builds the disk (or its
//! parts) as it was before entry N. For looking by hand at a power cut that a test has reported.

use forebay_tests::logwrites::{Log, Part};
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: replay LOG | replay LOG --before ENTRY FROM:TO:FILE...";

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
    for (number, entry) in log.entries.iter().enumerate() {
        let mut what = Vec::new();
        for (name, on) in [("flush", entry.flush), ("fua", entry.fua), ("discard", entry.discard)] {
            if on {
                what.push(name);
            }
        }
        match &entry.mark {
            Some(mark) => println!("{number:6} mark '{mark}'"),
            None => println!("{number:6} {:>12} +{:<8} {}", entry.offset, entry.length, what.join(" ")),
        }
    }
    Ok(())
}

fn build(log: &Log, before: usize, parts: &[String]) -> Result<(), String> {
    if before > log.entries.len() {
        return Err(format!("entry {before}: the recording has {} entries", log.entries.len()));
    }
    let mut files = Vec::new();
    for part in parts {
        let fields: Vec<&str> = part.splitn(3, ':').collect();
        let [from, to, path] = fields[..] else { return Err(USAGE.into()) };
        let number = |text: &str| text.parse().map_err(|_| format!("{text}: not a number of bytes"));
        let (from, to): (u64, u64) = (number(from)?, number(to)?);
        let file = File::options().create(true).truncate(true).write(true).open(path);
        let file = file.map_err(|e| format!("{path}: {e}"))?;
        file.set_len(to.saturating_sub(from)).map_err(|e| format!("{path}: {e}"))?;
        files.push(Part { from, to, file });
    }
    for entry in &log.entries[..before] {
        log.apply(entry, &files)?;
    }
    Ok(())
}
