//! Bugs planted in the real volume: each must be caught within a bounded number of seeds. A mutant that survives
//! means that a rule of the design is not tested by anything.

#[cfg(not(feature = "mutants"))]
#[test]
#[ignore = "planted bugs are not compiled in: cargo test -p forebay-sim --features mutants"]
fn every_planted_bug_is_caught() {}

#[cfg(feature = "mutants")]
mod planted {
    use forebay_core::format::TierKind;
    use forebay_core::status::Policy;
    use forebay_core::volume::Rules;
    use forebay_sim::run::{
        backing_ahead_of_tier, forgetful_flash, rotting_memory, rotting_under_edges, run_mutant, run_setup_mutant,
    };
    use forebay_sim::setup::Setup;

    /// A mutant that survives so many seeds is a hole in the checks.
    const SEEDS_MAX: u64 = 3_000;

    fn is_caught(name: &str, plant: impl Fn(&mut Rules)) {
        let mut rules = Rules::default();
        plant(&mut rules);
        for seed in 0..SEEDS_MAX {
            if let Err(failure) = run_mutant(seed, rules) {
                let first = failure.message.lines().nth(1).unwrap_or_default();
                println!("{name}: caught by seed {seed}: {first}");
                return;
            }
        }
        panic!("{name} survived {SEEDS_MAX} seeds");
    }

    macro_rules! mutants {
        ($($rule:ident)*) => { $(
            #[test]
            fn $rule() {
                is_caught(stringify!($rule), |rules| rules.$rule = true);
            }
        )* };
    }

    mutants! {
        acknowledge_before_held
        flush_without_sync
        ignore_groups
        next_group_before_checkpoint
        repeat_any_group
        release_without_backing_sync
        retry_failed_sync
        fill_over_newer_write
        overtake_same_block
        supersede_across_groups
        reuse_segment_early
        accept_torn_tail
        destage_before_lock
        forget_zeros
        skip_edge_lock
        reuse_without_erasing
        keep_cut_off_batches
        count_lost_writes
        keep_cached_below
        mark_unsynced_as_synced
        grow_before_checkpoint
        stage_what_is_read
    }

    /// For rules that random mixtures seldom test.
    fn is_caught_where(name: &str, setup: Setup, plant: impl Fn(&mut Rules)) {
        let mut rules = Rules::default();
        plant(&mut rules);
        for seed in 0..400 {
            if let Err(failure) = run_setup_mutant(name, setup.clone(), seed, rules) {
                let first = failure.message.lines().nth(1).unwrap_or_default();
                println!("{name}: caught by seed {seed}: {first}");
                return;
            }
        }
        panic!("{name} survived");
    }

    #[test]
    fn destage_under_hold() {
        let mut setup = Setup::quiet(TierKind::Memory, 24);
        (setup.requests, setup.think_micros_max, setup.control) = (400, 20_000, 500_000);
        is_caught_where("destage_under_hold", setup, |rules| rules.destage_under_hold = true);
    }

    #[test]
    fn checkpoint_ahead_of_log() {
        // Records are superseded while they wait for the backing, by writes that the tier has not completed.
        let mut setup = Setup::quiet(TierKind::Flash, 8);
        (setup.requests, setup.depth_max, setup.weights) = (2_000, 8, [0, 1, 0, 0, 0]);
        (setup.hot_blocks, setup.request_bytes_max) = (8, 4096);
        (setup.tier_micros_max, setup.backing_micros_max) = (5_000, 1_000);
        (setup.backing_depth_max, setup.backing_write_bytes_max) = (1, 4096);
        setup.destage_round_bytes_max = 12 << 10;
        setup.check = 0;
        is_caught_where("checkpoint_ahead_of_log", setup, |rules| rules.checkpoint_ahead_of_log = true);
    }

    fn is_caught_ahead_of_tier(name: &str, plant: impl Fn(&mut Rules)) {
        let mut rules = Rules::default();
        plant(&mut rules);
        for seed in 0..SEEDS_MAX {
            let policy = if seed % 2 == 0 { Policy::Through } else { Policy::Back };
            if let Err(failure) = run_setup_mutant(name, backing_ahead_of_tier(policy), seed, rules) {
                println!("{name}: caught by seed {seed}: {}", failure.message);
                return;
            }
        }
        panic!("{name} survived {SEEDS_MAX} seeds");
    }

    #[test]
    fn repeat_unsynced_group() {
        is_caught_ahead_of_tier("repeat_unsynced_group", |rules| rules.repeat_unsynced_group = true);
    }

    #[test]
    fn checkpoint_far_behind() {
        is_caught_ahead_of_tier("checkpoint_far_behind", |rules| rules.checkpoint_far_behind = true);
    }

    #[test]
    fn trust_unsynced() {
        let mut rules = Rules::default();
        rules.trust_unsynced = true;
        let caught = (0..100).any(|seed| run_setup_mutant("forgetful flash", forgetful_flash(), seed, rules).is_err());
        assert!(caught, "trust_unsynced survived: what a start reads and no sync covers is relied upon unseen");
    }

    #[test]
    fn merge_unchecked() {
        let mut rules = Rules::default();
        rules.merge_unchecked = true;
        let name = "rotting under edges";
        let caught = (0..40).any(|seed| run_setup_mutant(name, rotting_under_edges(), seed, rules).is_err());
        assert!(caught, "merge_unchecked survived: damaged memory got a valid checksum and reached the backing unseen");
    }

    #[test]
    fn skip_check() {
        let rules = Rules { skip_check: true, ..Rules::default() };
        let caught = (0..20).any(|seed| run_setup_mutant("rotting memory", rotting_memory(), seed, rules).is_err());
        assert!(caught, "skip_check survived: bytes that memory has damaged reached the backing unseen");
    }
}
