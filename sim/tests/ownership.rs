//! Ownership by itself: random seeds.

use forebay_core::ownership::Rules;
use forebay_sim::ownership::chaos::run_seed;
use std::collections::BTreeMap;

/// `OWNERSHIP_SEEDS=FROM-TO` runs others, `OWNERSHIP_TRACE=1` prints what happens.
fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("OWNERSHIP_SEEDS").ok();
    let parsed = given.and_then(|text| {
        let (from, to) = text.split_once('-')?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    parsed.unwrap_or(0..300)
}

#[test]
fn random_seeds_keep_every_promise_and_become_whole() {
    let trace = std::env::var_os("OWNERSHIP_TRACE").is_some();
    let start = std::time::Instant::now();
    let (mut counts, mut runs, mut failures) = (BTreeMap::new(), 0, Vec::new());
    for seed in seeds() {
        match run_seed(seed, Rules::default(), trace) {
            Ok(counted) => counted.into_iter().for_each(|(what, many)| *counts.entry(what).or_insert(0) += many),
            Err(failure) => failures.push(format!("seed {seed}: {}", failure.message.replace('\n', " "))),
        }
        runs += 1;
    }
    println!("{runs} seeds, {:.0} a second: {counts:#?}", f64::from(runs) / start.elapsed().as_secs_f64());
    failures.iter().for_each(|failure| println!("{failure}"));
    assert!(failures.is_empty(), "{} of {runs} seeds fail", failures.len());
}
