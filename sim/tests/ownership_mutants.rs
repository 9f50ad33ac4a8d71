//! Each rule of ownership, left out once, must be noticed by the seeds: else its absence is tested by nothing.

use forebay_core::ownership::Rules;
use forebay_sim::digest::recorded;
use forebay_sim::ownership::chaos::run_seed;
use forebay_sim::ownership::stories;
use forebay_sim::run::{Failure, attempt};

/// Whole nodes notice it (`cluster_mutants.rs`): take-overs without need lose nothing, but the volume does not come to rest.
const NOTICED_BY_WHOLE_NODES: [&str; 1] = ["impatient"];
/// So many seeds are looked at for each rule.
const SEEDS: u64 = 12_000;

/// Rare where the others hold: the search begins shortly before the first seed that is known to find it.
const BEGINS_LATE: [(&str, u64); 1] = [("hears_older_terms", 55_300)];

fn by_seeds(name: &str, rules: Rules) -> Option<(String, Failure)> {
    let first = BEGINS_LATE.iter().find(|(late, _)| *late == name).map_or(0, |(_, first)| *first);
    (first..first + SEEDS).find_map(|seed| {
        let failure = run_seed(seed, rules, false).err()?;
        // What fails without it was not caught by it.
        run_seed(seed, Rules::default(), false).is_ok().then(|| (format!("seed {seed}"), failure))
    })
}

#[test]
fn every_rule_that_is_left_out_is_noticed() {
    let list = Rules::list();
    let only = std::env::var("OWNERSHIP_MUTANT").ok();
    // One seed of one rule, told in full: OWNERSHIP_MUTANT=NAME OWNERSHIP_SEED=N.
    let told: Option<u64> = std::env::var("OWNERSHIP_SEED").ok().and_then(|seed| seed.parse().ok());
    if let Some(seed) = told {
        let rules = list.iter().find(|(name, _)| only.as_deref() == Some(name)).map(|(_, rules)| *rules);
        println!("{:?}", run_seed(seed, rules.expect("a rule of that name"), true));
        return;
    }
    let mut survivors = Vec::new();
    let wanted = |name: &str| match only.as_deref() {
        Some(only) => only == name,
        None => !NOTICED_BY_WHOLE_NODES.contains(&name),
    };
    for (name, rules) in list.into_iter().filter(|(name, _)| wanted(name)) {
        // Rare ones have a story of their own, which holds with all rules (ownership_scenarios).
        let story = stories::ALL.iter().find(|(about, _)| *about == name);
        let caught = match story {
            Some((_, story)) => {
                attempt(name.into(), || story(rules)).err().map(|failure| ("its story".into(), failure))
            }
            None => by_seeds(name, rules),
        };
        match caught {
            Some((by, failure)) => {
                let told = failure.message.lines().nth(1).unwrap_or(&failure.message);
                println!("{name}: {by}: {}", told.chars().take(110).collect::<String>());
            }
            None => survivors.push(name),
        }
    }
    assert!(survivors.is_empty(), "not noticed by {SEEDS} seeds: {survivors:?}");
}

/// What no promise shows: a rule that these seeds cannot miss changes their digests.
#[test]
fn a_rule_that_is_left_out_unnoticed_changes_the_digest() {
    let decided = |seed, rules| {
        let (run, digest) = recorded(|| run_seed(seed, rules, false));
        (run.is_ok(), digest)
    };
    for name in NOTICED_BY_WHOLE_NODES {
        let list = Rules::list();
        let (_, planted) = list.iter().find(|(each, _)| *each == name).expect("a rule of that name");
        let seen = (0..20).find(|&seed| {
            let (keeps, other) = decided(seed, *planted);
            let (sound, digest) = decided(seed, Rules::default());
            keeps && sound && other != digest && decided(seed, Rules::default()).1 == digest
        });
        assert!(seen.is_some(), "{name}: the digest of none of the seeds shows it");
    }
}
