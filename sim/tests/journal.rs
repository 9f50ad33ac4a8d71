//! The journal beside the backing: batches of several groups under every fault of the medium that holds both, and a
//! bug planted for each of its rules.

use forebay_core::format::TierKind;
use forebay_core::status::DestageMode;
use forebay_sim::setup::Setup;

/// A volume whose clients flush often, over a slow backing with a small journal, in a world that fails a lot.
/// `variant` chooses which faults.
fn journaled(kind: TierKind, variant: u64) -> Setup {
    let mut setup = Setup::quiet(kind, 24);
    setup.journal_blocks = [128, 48, 16][variant as usize % 3];
    setup.destage =
        [DestageMode::Auto, DestageMode::Journaled, DestageMode::Auto, DestageMode::Ordered][variant as usize / 12 % 4];
    setup.requests = 500;
    setup.clients = 2;
    setup.depth_max = 4;
    setup.weights = [2, 10, 1, 8, 0];
    setup.unaligned = 50_000;
    setup.cold = 200_000;
    setup.batch_max = 4;
    // Long enough for the backing to become ready while clients still work.
    setup.think_micros_max = 100_000;
    setup.backing_micros_max = 20_000;
    setup.check = 50_000;
    match variant / 3 % 4 {
        0 => setup.faults.process_killed = 2_000,
        1 => {
            setup.faults.backing_write_error = 100_000;
            setup.faults.backing_sync_error = 100_000;
            setup.faults.process_killed = 1_000;
        }
        2 => {
            setup.faults.power_lost = 2_000;
            setup.faults.backing_write_error = 50_000;
        }
        _ => {
            setup.faults.logs_lost = 1_000;
            setup.faults.process_killed = 1_000;
            setup.faults.backing_sync_error = 50_000;
            setup.control = 50_000;
        }
    }
    setup
}

/// Both tiers and all variants come round.
fn setup_of(seed: u64) -> Setup {
    journaled(if seed.is_multiple_of(2) { TierKind::Memory } else { TierKind::Flash }, seed / 2)
}

#[cfg(not(feature = "mutants"))]
mod right {
    use super::setup_of;
    use forebay_sim::coverage::Coverage;
    use forebay_sim::run::run_setup;

    #[test]
    fn a_journal_keeps_every_promise_and_meets_every_fault() {
        let mut coverage = Coverage::default();
        for seed in 0..144 {
            match run_setup("journal", setup_of(seed), seed, false) {
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
}

#[cfg(not(feature = "mutants"))]
#[test]
#[ignore = "planted bugs are not compiled in: cargo test -p forebay-sim --features mutants"]
fn every_planted_journal_bug_is_caught() {}

#[cfg(feature = "mutants")]
mod planted {
    use super::setup_of;
    use forebay_core::volume::Rules;
    use forebay_sim::run::{run_setup, run_setup_mutant};

    /// A mutant that survives so many seeds is a hole in the checks.
    const SEEDS_MAX: u64 = 2_000;

    fn is_caught(name: &str, rules: Rules) {
        for seed in 0..SEEDS_MAX {
            let Err(failure) = run_setup_mutant("journal", setup_of(seed), seed, rules) else { continue };
            if let Err(other) = run_setup("journal", setup_of(seed), seed, false) {
                panic!("without any planted bug, {}: {}", other.run, other.message);
            }
            let first = failure.message.lines().nth(1).unwrap_or_default();
            println!("{name}: caught by seed {seed}: {first}");
            return;
        }
        panic!("{name} survived {SEEDS_MAX} seeds");
    }

    macro_rules! mutants {
        ($($rule:ident)*) => { $(
            #[test]
            fn $rule() {
                is_caught(stringify!($rule), Rules { $rule: true, ..Rules::default() });
            }
        )* };
    }

    mutants! {
        apply_before_journal_sync
        ordered_without_erasing
        supersede_batched
        retry_takes_less
        overwrite_complete_batch
        erase_newest_first
        journal_unsynced_records
        forget_replay
    }
}
