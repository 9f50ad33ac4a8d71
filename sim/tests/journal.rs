//! The journal beside the backing: batches of several groups under every fault of the medium that holds both.

use forebay_sim::coverage::Coverage;
use forebay_sim::run::run_setup;
use forebay_sim::situations::journaled;

#[test]
fn a_journal_keeps_every_promise_and_meets_every_fault() {
    let mut coverage = Coverage::default();
    for seed in 0..144 {
        match run_setup("journal", journaled(seed), seed, false) {
            Ok(report) => coverage.merge(&report.coverage),
            Err(failure) => panic!("{}: {}", failure.run, failure.message),
        }
    }
    for name in [
        "journaled batch synced",
        "journaled batch of several groups",
        "record left out of a batch for a newer one",
        "journal write failed",
        "journal sync failed",
        "batch tried again after a failure",
        "journal erased for an ordered group",
        "batch replayed at restart",
        "batch already in the backing at restart",
        "incomplete batch ignored at restart",
        "batch replayed after all logs were lost",
    ] {
        let (_, count) = coverage.all().find(|(known, _)| *known == name).expect("a name of SOMETIMES");
        assert!(count > 0, "never met: {name}");
    }
}
