//! `forebay doctor baseline save [FILE] | check [FILE]`.

use super::Asked;
use anyhow::{Context, Result, bail};
use forebay_doctor::Host;
use forebay_doctor::baseline::{Baseline, Difference, FILE, How, lines};
use forebay_doctor::findings::Sentence;
use forebay_io::folder::Folder;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(clap::Subcommand)]
pub enum Command {
    /// Keep what is there now
    Save {
        /// Where [default: /var/lib/forebay-doctor/baseline.json]
        file: Option<PathBuf>,
    },
    /// Tell what has changed since; exit code 1 when something is worse
    Check {
        /// Where it is [default: /var/lib/forebay-doctor/baseline.json]
        file: Option<PathBuf>,
    },
}

/// Keeps or compares; false when something is worse.
pub(super) fn run(asked: &Asked, command: &Command, sysroot: Option<&Path>) -> Result<bool> {
    let (Command::Save { file } | Command::Check { file }) = command;
    if let Some(record) = sysroot.filter(|root| root.is_file() && file.is_none()) {
        bail!("{} is a record, which holds no baseline: name a FILE for it", record.display());
    }
    let path = file.clone().unwrap_or_else(|| asked.system.place(FILE));
    let name = path.file_name().with_context(|| format!("{} is no name of a file", path.display()))?;
    match command {
        Command::Save { .. } => {
            let baseline = Baseline::of(&Host::look(asked.system.clone()));
            let with = || format!("make the folder for the baseline in {}", path.display());
            let folder = match file {
                Some(_) => {
                    Folder::make_all(path.parent().context("a file below a folder")?, 0o755).with_context(with)?
                }
                None => asked.system.make_own_folder().with_context(with)?,
            };
            baseline.save(&folder, name)?;
            let count = baseline.items.len();
            match asked.json {
                true => println!("{}", json!({ "path": path, "items": count })),
                false => {
                    let saved = Sentence::new("baseline.saved").with("count", count).with("path", path.display());
                    println!("{}", asked.say(&saved));
                }
            }
            Ok(true)
        }
        Command::Check { .. } => {
            let with = || {
                format!("open the folder of the baseline {}; `forebay doctor baseline save` makes one", path.display())
            };
            let folder = match file {
                Some(_) => Folder::open(path.parent().context("a file below a folder")?).with_context(with)?,
                None => asked.system.own_folder().with_context(with)?.with_context(with)?,
            };
            let baseline = Baseline::read(&folder, name)?;
            let host = Host::look(asked.system.clone());
            let differences = baseline.differences(&host);
            let worse = differences.iter().filter(|difference| difference.how == How::Worse).count();
            match asked.json {
                true => println!("{}", serde_json::to_string_pretty(&as_json(asked, &baseline, &host, &differences))?),
                false => tell(asked, &baseline, &host, &differences, worse),
            }
            Ok(worse == 0)
        }
    }
}

fn tell(asked: &Asked, baseline: &Baseline, host: &Host, differences: &[Difference], worse: usize) {
    let (key, count) = match differences.len() {
        0 => ("baseline.same", baseline.items.len()),
        count => ("baseline.differs", count),
    };
    let head = Sentence::new(key).with("count", count).with("time", &baseline.time).with("worse", worse);
    println!("{}", asked.say(&head.with("was", &baseline.kernel).with("now", &host.topology.kernel)));
    if !asked.verbose {
        lines(differences, asked.language).iter().for_each(|line| println!("    {line}"));
        return;
    }
    for difference in differences {
        println!("    {}", asked.say(&difference.says()));
        println!("            {}", difference.file);
    }
}

fn as_json(asked: &Asked, baseline: &Baseline, host: &Host, differences: &[Difference]) -> Value {
    let said = |difference: &Difference| {
        let mut value = serde_json::to_value(difference).expect("plain values");
        value["says"] = asked.say(&difference.says()).into();
        value
    };
    json!({
        "time": baseline.time,
        "kernel": { "was": baseline.kernel, "now": host.topology.kernel },
        "differences": differences.iter().map(said).collect::<Vec<_>>(),
    })
}
