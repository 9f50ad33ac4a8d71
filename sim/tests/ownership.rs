//! Ownership by itself: random seeds.

use forebay_core::ownership::Rules;
use forebay_sim::ownership::chaos::run_seed;
use std::collections::BTreeMap;

/// Seeds that found something once: the coordinator went back between a read and what followed from it, and the check looked only at what it
/// showed by then (5333); a definition that asked for something else of flushes while a candidate's transaction was under way, which the
/// check of T10 looked at instead of what it had asked for when they were answered (10596); an owner that was put back to a former term,
/// stepped down, asked for its own volume, and believed only as an owner that it had been put back (23577); an
/// answer that came late, of a machine before it was started anew and owned the volume, taken for proof that it was started anew since
/// (130252); an owner that was put back wrote as its own what it had given away (92243), or went on beside a record of its own that it had
/// forgotten (72319); a record that was written anew at a node whose owner had not looked since, so that neither could write it
/// once more (251772); an owner that stepped down while it wrote the record anew, and was busy with that for ever (286585); a record that
/// was to be written anew, waited behind reads, and was written although others had told meanwhile of a newer one (840).
const FOUND: [u64; 9] = [840, 5_333, 10_596, 23_577, 72_319, 92_243, 130_252, 251_772, 286_585];

/// `OWNERSHIP_SEEDS=FROM-TO` runs others, `OWNERSHIP_TRACE=1` prints what happens.
fn seeds() -> Vec<u64> {
    let given = std::env::var("OWNERSHIP_SEEDS").ok();
    let parsed = given.and_then(|text| {
        let (from, to) = text.split_once('-')?;
        Some((from.parse().ok()?..to.parse().ok()?).collect())
    });
    parsed.unwrap_or_else(|| (0..300).chain(FOUND).collect())
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
