//! Each rule of ownership, left out once, must be noticed by the seeds: else its absence is tested by nothing.

use forebay_core::ownership::Rules;
use forebay_sim::ownership::chaos::run_seed;

/// So many seeds are looked at for each rule.
const SEEDS: u64 = 6_000;

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
    for (name, rules) in list.into_iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name)) {
        let caught = (0..SEEDS).find_map(|seed| {
            let failure = run_seed(seed, rules, false).err()?;
            // What fails without it was not caught by it.
            run_seed(seed, Rules::default(), false).is_ok().then_some((seed, failure))
        });
        match caught {
            Some((seed, failure)) => {
                let message: String =
                    failure.message.lines().nth(1).unwrap_or(&failure.message).chars().take(110).collect();
                println!("{name}: seed {seed}: {message}");
            }
            None => survivors.push(name),
        }
    }
    assert!(survivors.is_empty(), "not noticed by {SEEDS} seeds: {survivors:?}");
}
