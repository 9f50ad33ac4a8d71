//! Bugs planted in the real volume that one node has to itself: each must be caught within a bounded number of seeds. A
//! mutant that survives means that a rule of the design is not tested by anything. Those between nodes: `cluster_mutants.rs`.

use forebay_core::format::TierKind;
use forebay_core::status::Policy;
use forebay_core::volume::Rules;
use forebay_sim::mutants::is_caught;
use forebay_sim::random::Random;
use forebay_sim::run::seeded;
use forebay_sim::setup::Setup;
use forebay_sim::situations::{
    backing_ahead_of_tier, forgetful_flash, journaled, rotting_at_rest, rotting_heads, rotting_memory,
    rotting_under_edges,
};

/// One test for each planted bug: named as it is, caught by one of these seeds of such a world.
macro_rules! mutants {
    ($from:literal..$to:literal of $world:expr; $($rule:ident)*) => { $(
        #[test]
        fn $rule() {
            is_caught(stringify!($rule), Rules { $rule: true, ..Rules::default() }, $from..$to, $world);
        }
    )* };
}

mutants! { 0..3_000 of seeded;
    acknowledge_before_held
    flush_without_sync
    ignore_groups
    next_group_before_checkpoint
    release_without_backing_sync
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
    acknowledge_by_completion
    destage_unheld
    retire_before_checkpoint
    sync_again_only
    serve_before_recovery_sync
    reuse_frames_at_once
    fua_is_no_barrier
    go_on_in_recovered_group
    bring_back_destaged
    promise_through_early
    time_from_admission
    time_failures
    time_batches
}

mutants! { 0..2_000 of |seed| (journaled(seed), Random::new(seed));
    apply_before_journal_sync
    ordered_without_erasing
    supersede_batched
    retry_takes_less
    overwrite_complete_batch
    erase_newest_first
    keep_zeroed_data
}

mutants! { 0..3_000 of |seed| {
        let policy = if seed % 2 == 0 { Policy::Through } else { Policy::Back };
        (backing_ahead_of_tier(policy), Random::new(seed))
    };
    repeat_unsynced_group
    checkpoint_far_behind
    believe_older_checkpoint
}

mutants! { 0..1_000 of |seed| (rotting_at_rest(seed), Random::new(seed));
    one_checkpoint
    stop_at_bad_header
    forget_marks
    skip_damaged_descriptors
}

// Rare in these worlds: the search begins shortly before the first seed that is known to find it.
mutants! { 5_900..8_900 of seeded; repeat_any_group }
mutants! { 500..3_500 of seeded; retry_failed_sync }
mutants! { 1_250..3_250 of |seed| (journaled(seed), Random::new(seed)); journal_unsynced_records }
mutants! { 550..2_550 of |seed| (journaled(seed), Random::new(seed)); forget_replay }

mutants! { 0..400 of |seed| (held_often(), Random::new(seed)); destage_under_hold }
mutants! { 0..400 of |seed| (superseded_while_waiting(), Random::new(seed)); checkpoint_ahead_of_log }
mutants! { 0..100 of |seed| (forgetful_flash(), Random::new(seed)); trust_unsynced }
mutants! { 0..40 of |seed| (rotting_under_edges(), Random::new(seed)); merge_unchecked }
mutants! { 0..20 of |seed| (rotting_memory(), Random::new(seed)); skip_check }
mutants! { 0..200 of |seed| (rotting_heads(), Random::new(seed)); leave_half_full_untold }

/// An operator who holds the backing while clients write.
fn held_often() -> Setup {
    let mut setup = Setup::quiet(TierKind::Memory, 24);
    (setup.requests, setup.think_micros_max, setup.control) = (400, 20_000, 500_000);
    setup
}

/// Records are superseded while they wait for the backing, by writes that the tier has not completed.
fn superseded_while_waiting() -> Setup {
    let mut setup = Setup::quiet(TierKind::Flash, 8);
    (setup.requests, setup.depth_max, setup.weights) = (2_000, 8, [0, 1, 0, 0, 0]);
    (setup.hot_blocks, setup.request_bytes_max) = (8, 4096);
    (setup.tier_micros_max, setup.backing_micros_max) = (5_000, 1_000);
    (setup.backing_depth_max, setup.backing_write_bytes_max) = (1, 4096);
    setup.destage_round_bytes_max = 12 << 10;
    setup.check = 0;
    setup
}
