//! The protocol between nodes, and recovery, as readable text: each file in `transcripts` says what it shows, gives commands (lines
//! with `>`), and has below each of them the trace that it gave. A run compares line by line; `FOREBAY_TRANSCRIPTS=write`
//! writes the traces anew, and their change is reviewed as a diff. The commands are in `transcripts/cluster.rs` and
//! `transcripts/recovery.rs`; the stands are those of the tests of the same things in `replicas` and `tier`.

// The stands of two other test programs, of which no transcript needs all.
#[allow(dead_code)]
#[path = "replicas/copies.rs"]
mod copies;
#[allow(dead_code)]
#[path = "replicas/disks.rs"]
mod disks;
#[allow(dead_code)]
#[path = "replicas/oracle.rs"]
mod oracle;
#[allow(dead_code)]
#[path = "tier/stand.rs"]
mod stand;
#[allow(dead_code)]
#[path = "replicas/steps.rs"]
mod steps;
#[allow(dead_code)]
#[path = "replicas/weather.rs"]
mod weather;
#[allow(dead_code)]
#[path = "replicas/world.rs"]
mod world;

#[path = "transcripts/cluster.rs"]
mod cluster;
#[path = "transcripts/recovery.rs"]
mod recovery;
#[path = "transcripts/trace.rs"]
mod trace;
#[path = "transcripts/words.rs"]
mod words;

use std::path::{Path, PathBuf};

const VARIABLE: &str = "FOREBAY_TRANSCRIPTS";

/// What carries out the commands of one file.
trait Stand {
    /// The lines that this gave.
    fn command(&mut self, words: &[&str]) -> Vec<String>;
}

/// The text of a file with the traces of now: comments and commands stay, all else is written anew.
fn replayed(text: &str) -> String {
    let mut now = String::new();
    let mut stand: Option<Box<dyn Stand>> = None;
    for line in text.lines() {
        let Some(command) = line.strip_prefix("> ") else {
            if line.starts_with('#') || line.is_empty() {
                now += line;
                now.push('\n');
            }
            continue;
        };
        now += line;
        now.push('\n');
        let words: Vec<&str> = command.split_whitespace().collect();
        let traced = match (&mut stand, words[0]) {
            (None, "nodes") => {
                stand = Some(Box::new(cluster::Cluster::begin(&words[1..])));
                Vec::new()
            }
            (None, "tier") => {
                stand = Some(Box::new(recovery::Tier::new(words[1])));
                Vec::new()
            }
            (None, other) => panic!("a transcript begins with nodes or a tier, not with {other}"),
            (Some(stand), _) => stand.command(&words),
        };
        for traced in traced {
            now += &format!("  {traced}\n");
        }
    }
    now
}

/// Lines that only one of both has, in order, each with the last command above it.
fn difference(recorded: &str, now: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (recorded.lines().collect(), now.lines().collect());
    let alike = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(a, b)| a == b).count();
    let begin = alike(&mut old.iter().zip(&new));
    let end = alike(&mut old[begin..].iter().rev().zip(new[begin..].iter().rev()));
    let command = old[..begin].iter().rev().find(|line| line.starts_with('>')).unwrap_or(&"");
    let mut text = format!("  line {}, below: {command}\n", begin + 1);
    for (mark, lines) in [('-', &old[begin..old.len() - end]), ('+', &new[begin..new.len() - end])] {
        for line in lines.iter().take(40) {
            text += &format!("{mark} {line}\n");
        }
        if lines.len() > 40 {
            text += &format!("{mark} ... and {} lines more\n", lines.len() - 40);
        }
    }
    text
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let entries =
        std::fs::read_dir(&folder).expect("the folder of the transcripts").map(|entry| entry.expect("an entry"));
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    files.sort();
    files
}

/// Rules that are broken on purpose, and the transcript that each of them changes or ends.
#[cfg(feature = "mutants")]
#[test]
fn mutants_change_a_transcript() {
    use forebay_core::volume::Rules;
    macro_rules! of {
        ($($rule:ident: $file:literal),* $(,)?) => {
            [$((stringify!($rule), $file, Rules { $rule: true, ..Rules::default() })),*]
        };
    }
    let broken = of! {
        acknowledge_before_members: "write",
        ask_recorded_only: "learner",
        end_pins_at_once: "pins",
        flush_by_own_sync: "flush",
        forget_pins: "pins",
        take_for_others: "old_owner",
        take_gaps: "gap",
        take_older_terms: "old_owner",
        window_before_mark: "destage",
    };
    let survives = broken.into_iter().filter(|(_, file, rules)| {
        world::PLANTED.set(*rules);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/transcripts/{file}.txt"));
        let recorded = std::fs::read_to_string(path).expect("a transcript is text");
        std::panic::catch_unwind(|| replayed(&recorded)).is_ok_and(|now| now == recorded)
    });
    let survives: Vec<&str> = survives.map(|(rule, ..)| rule).collect();
    assert!(survives.is_empty(), "no transcript changes with {survives:?}");
}

#[test]
fn what_happens_is_what_is_recorded() {
    let rewrites = std::env::var(VARIABLE).is_ok_and(|word| word == "write");
    let files = files();
    assert!(files.len() >= 12, "transcripts are missing");
    let mut changed = String::new();
    for path in files {
        println!("{}", path.display());
        let recorded = std::fs::read_to_string(&path).expect("a transcript is text");
        let now = replayed(&recorded);
        if now == recorded {
            continue;
        }
        if rewrites {
            std::fs::write(&path, now).expect("a transcript can be written");
        } else {
            let name = path.file_name().expect("it has one").display();
            changed += &format!("\n{name} (- recorded, + now)\n{}", difference(&recorded, &now));
        }
    }
    assert!(
        changed.is_empty(),
        "what happens is not what is recorded. If it is meant, run this with {VARIABLE}=write and review the diff.\n{changed}"
    );
}
