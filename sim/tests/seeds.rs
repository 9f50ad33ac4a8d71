//! The fixed seeds: nothing found, and every corner visited.

use forebay_sim::coverage::Coverage;
use forebay_sim::run::run_seed;

/// Seeds that are run besides those of `seeds.txt`. Enough to reach every state of `SOMETIMES`.
const FIXED_SEEDS: u64 = 200;

fn listed_seeds() -> Vec<u64> {
    include_str!("../seeds.txt")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            let word = line.split_whitespace().next().expect("a line that is not empty");
            word.parse().unwrap_or_else(|_| panic!("seeds.txt: {word:?} is no seed"))
        })
        .collect()
}

#[test]
fn fixed_seeds_keep_every_promise_and_reach_every_state() {
    let mut coverage = Coverage::default();
    for seed in listed_seeds().into_iter().chain(0..FIXED_SEEDS) {
        match run_seed(seed, None, false) {
            Ok(report) => coverage.merge(&report.coverage),
            Err(failure) => panic!(
                "{}: {}\nrepeat: cargo run -p forebay-sim -- --replay {seed} --trace",
                failure.run, failure.message
            ),
        }
    }
    let missed: Vec<_> = coverage.all().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect();
    assert!(missed.is_empty(), "the fixed seeds never reached: {missed:?}");
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in 0..20 {
        let run = |_| {
            let report = run_seed(seed, None, false).unwrap_or_else(|f| panic!("{}: {}", f.run, f.message));
            (report.points, report.elapsed, report.coverage.all().collect::<Vec<_>>())
        };
        assert_eq!(run(0), run(1), "seed {seed}");
    }
}
