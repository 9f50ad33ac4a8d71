//! Looks at the worlds of the model by hand, and for longer than the gate does.

use forebay_model::rules::Rules;
use forebay_model::setup::{DEEP, SETUPS, Setup};
use forebay_model::{look, tell};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
usage: forebay-model [--deep] [--states N] [--without RULE] [WORLD]...
  looks at every state of the worlds of the gate, or of those named, and prints what is wrong in a shortest trace
  --deep          the larger worlds instead
  --states N      at most so many states of each world (default 20000000, some 2 GiB); what was cut off is said
  --without RULE  with one rule removed, without the check of recovery: the shortest counterexample of each world";

struct Options {
    deep: bool,
    states: usize,
    without: Option<&'static forebay_model::rules::Rule>,
    worlds: Vec<String>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { deep: false, states: 20_000_000, without: None, worlds: Vec::new() };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--deep" => options.deep = true,
            "--states" => {
                let number = value()?;
                options.states = number.parse().map_err(|_| format!("--states {number}: not a whole number"))?;
            }
            "--without" => {
                let name = value()?;
                let rule = Rules::LIST.iter().find(|rule| rule.name == name);
                options.without = Some(rule.ok_or_else(|| format!("--without {name}: no such rule"))?);
            }
            name if SETUPS.iter().chain(DEEP).any(|setup| setup.name == name) => options.worlds.push(word),
            other => return Err(format!("{other}: no such option or world")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|word| word == "--help" || word == "-h") {
        println!("{USAGE}\nworlds:");
        SETUPS.iter().chain(DEEP).for_each(|setup| println!("  {}", setup.name));
        println!("rules:");
        Rules::LIST.iter().for_each(|rule| println!("  {:27} without it: {}", rule.name, rule.prevents));
        return ExitCode::SUCCESS;
    }
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(reason) => {
            eprintln!("forebay-model: {reason}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let default = if options.deep { DEEP } else { SETUPS };
    let named = |setup: &&Setup| options.worlds.iter().any(|name| name == setup.name);
    let mut found = false;
    if options.worlds.is_empty() {
        default.iter().for_each(|setup| found |= one(&options, setup));
    } else {
        SETUPS.iter().chain(DEEP).filter(named).for_each(|setup| found |= one(&options, setup));
    }
    if found { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Looks at one world and prints the outcome; true where something is wrong.
fn one(options: &Options, setup: &Setup) -> bool {
    let rules = options.without.map_or(Rules::ALL, |rule| rule.removed);
    let start = Instant::now();
    let outcome = look(&Setup { rules, ..*setup }, options.without.is_none(), options.states);
    let seconds = start.elapsed().as_secs_f32();
    let word = match (&outcome.found, outcome.cut_off) {
        (Some(_), _) => "WRONG",
        (None, true) => "ok so far: cut off, recovery not looked at",
        (None, false) => "ok",
    };
    println!("{:28} {:9} states {seconds:7.1} s  {word}", setup.name, outcome.states);
    if outcome.found.is_some() {
        println!("  {}", tell(&outcome));
    }
    outcome.found.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, String> {
        parse(words.iter().map(ToString::to_string))
    }

    #[test]
    fn options_are_read_and_refused() {
        let options = parsed(&["--deep", "--states", "7", "--without", "held_is_a_prefix", "pair"]).unwrap();
        assert!(options.deep && options.states == 7 && options.worlds == ["pair"]);
        assert!(options.without.is_some_and(|rule| !rule.removed.held_is_a_prefix));
        for bad in [&["--states"][..], &["--states", "many"], &["--without", "luck"], &["--fast"], &["nowhere"]] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_two_worlds_have_one_name() {
        let mut names: Vec<&str> = SETUPS.iter().chain(DEEP).map(|setup| setup.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
