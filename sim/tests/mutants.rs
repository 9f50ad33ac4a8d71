//! Bugs planted in the real volume that one node has to itself: each must be caught within a bounded number of seeds. A
//! mutant that survives means that a rule of the design is not tested by anything. Those between nodes: `cluster_mutants.rs`; but those that
//! nothing shows except how long somebody waits are all here.

use forebay_core::format::TierKind;
use forebay_core::ownership;
use forebay_core::status::Policy;
use forebay_core::types::{BLOCK_BYTES, Duration};
use forebay_core::volume::Rules;
use forebay_sim::digest::recorded;
use forebay_sim::mutants::is_caught;
use forebay_sim::random::Random;
use forebay_sim::run::{attempt, exhaustive_with, seeded};
use forebay_sim::setup::{Setup, Step};
use forebay_sim::situations::{
    backing_ahead_of_tier, forgetful_flash, image_out_of_reach_at_first, journaled, members_back_before_backing,
    reading_what_is_under_way, rotting_at_rest, rotting_heads, rotting_memory, rotting_sectors, rotting_under_edges,
    sectors_ahead_of_tier, tails_cut_off,
};
use forebay_sim::world::World;

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
    count_lost_writes
    keep_cached_below
    mark_unsynced_as_synced
    grow_before_checkpoint
    acknowledge_by_completion
    destage_unheld
    retire_before_checkpoint
    sync_again_only
    overlap_tier_syncs
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

mutants! { 0..3_000 of |seed| {
        let policy = if seed % 2 == 0 { Policy::Through } else { Policy::Back };
        (sectors_ahead_of_tier(policy), Random::new(seed))
    };
    repeat_any_group
}

mutants! { 0..1_000 of |seed| (rotting_at_rest(seed), Random::new(seed));
    one_checkpoint
    stop_at_bad_header
    forget_marks
    skip_damaged_descriptors
}

// Rare in these worlds: the search begins shortly before the first seed that is known to find it.
mutants! { 500..3_500 of seeded; retry_failed_sync }
mutants! { 6_252..6_253 of seeded; await_superseded }
mutants! { 0..3_000 of |seed| (sectors_without_frames(), Random::new(seed)); overtake_deferred }
// What needs a tier that stalls is met by the seeds of the gate, not by one in a thousand.
mutants! { 0..100 of |seed| seeded(7 * seed + 1); journal_over_unheld }
mutants! { 1_250..3_250 of |seed| (journaled(seed), Random::new(seed)); journal_unsynced_records }
mutants! { 550..2_550 of |seed| (journaled(seed), Random::new(seed)); forget_replay }

mutants! { 0..400 of |seed| (held_often(), Random::new(seed)); destage_under_hold }
mutants! { 0..400 of |seed| (superseded_while_waiting(), Random::new(seed)); checkpoint_ahead_of_log }
mutants! { 0..400 of |seed| (tails_cut_off(), Random::new(seed)); keep_cut_off_batches }
mutants! { 0..10 of |seed| (reading_what_is_under_way(), Random::new(seed)); show_uncommitted }
mutants! { 0..100 of |seed| (forgetful_flash(), Random::new(seed)); trust_unsynced }
mutants! { 0..40 of |seed| (rotting_under_edges(), Random::new(seed)); merge_unchecked }
mutants! { 0..20 of |seed| (rotting_memory(), Random::new(seed)); skip_check }
mutants! { 0..4 of |seed| (rotting_sectors(), Random::new(seed)); copy_sectors_unchecked }
mutants! { 600..800 of |seed| (rotting_heads(), Random::new(seed)); leave_half_full_untold }

/// The gate's own fixed seeds catch it several times, and so does every crash point of small workloads.
#[test]
fn a_batch_over_what_the_log_does_not_hold_is_met_by_construction() {
    let rules = Rules { journal_over_unheld: true, ..Rules::default() };
    let caught = exhaustive_with(rules, |_| ()).expect_err("every crash point of small workloads meets it");
    println!("exhaustive: {}: {}", caught.run, caught.message);
    let seeds: Vec<u64> = (0..SEEDS_OF_THE_GATE)
        .filter(|&seed| {
            let run = || {
                let (setup, random) = seeded(seed);
                World::new(setup, random, None, rules, false).run()
            };
            seed % 7 == 1 && attempt(format!("seed {seed}"), run).is_err()
        })
        .collect();
    println!("caught by seeds {seeds:?}");
    assert!(seeds.len() >= 8, "only by seeds {seeds:?}");
}

/// What no promise shows: the other decisions are in the digest also of a seed that keeps every promise with them.
#[test]
fn a_planted_bug_that_breaks_no_promise_changes_the_digest() {
    let decided = |seed, rules| {
        let run = || {
            let (setup, random) = seeded(seed);
            World::new(setup, random, None, rules, false).run()
        };
        let (outcome, digest) = recorded(|| attempt(format!("seed {seed}"), run));
        (outcome.is_ok(), digest)
    };
    let planted = Rules { acknowledge_before_held: true, ..Rules::default() };
    let seen = (0..20).find(|&seed| {
        let (keeps, other) = decided(seed, planted);
        let (sound, digest) = decided(seed, Rules::default());
        keeps && sound && other != digest && decided(seed, Rules::default()).1 == digest
    });
    assert!(seen.is_some(), "the digest of none of the seeds shows it");
}

/// Of one node, in `cargo xtask verify`.
const SEEDS_OF_THE_GATE: u64 = 900;

/// An operator who holds the backing for a week while a client writes: no write finds room in the log any more.
fn held_for_a_week(seed: u64) -> (Setup, Random) {
    let mut setup = Setup::quiet(TierKind::Memory, 160);
    setup.hold = Duration::from_secs(7 * 86_400);
    let round = |round: u64| {
        let block = |block: u64| block * BLOCK_BYTES;
        [
            Step::Write { offset: block(8 * (round % 16)), length: 8 * BLOCK_BYTES as u32, fua: false },
            Step::Flush,
            Step::Zero { offset: block(round % 16), length: BLOCK_BYTES, hole: true, fua: false },
            Step::Flush,
        ]
    };
    setup.script = Some((0..600).flat_map(round).collect());
    (setup.think_micros_max, setup.check) = (50_000, 0);
    (setup, Random::new(seed))
}

#[test]
fn hold_however_full() {
    let planted = Rules { hold_however_full: true, ..Rules::default() };
    is_caught("hold_however_full", planted, 0..3, held_for_a_week);
}

mutants! { 0..3 of |seed| (members_back_before_backing(), Random::new(seed)); waits_on_for_backing }

#[test]
fn asks_backing_once() {
    let planted = ownership::Rules { asks_backing_once: true, ..ownership::Rules::default() };
    is_caught("asks_backing_once", planted, 0..3, |seed| (image_out_of_reach_at_first(), Random::new(seed)));
}

/// An operator who holds the backing while clients write.
fn held_often() -> Setup {
    let mut setup = Setup::quiet(TierKind::Memory, 24);
    (setup.requests, setup.think_micros_max, setup.control) = (400, 20_000, 500_000);
    setup
}

/// Sectors of few blocks are written all the time, before a backing of 4 KiB sectors that is slow, and frames are few.
fn sectors_without_frames() -> Setup {
    let mut setup = Setup::quiet(TierKind::Flash, 40);
    (setup.requests, setup.clients, setup.depth_max, setup.weights) = (800, 2, 8, [4, 12, 0, 2, 0]);
    (setup.hot_blocks, setup.request_bytes_max, setup.unaligned, setup.cold) = (6, 16 << 10, 600_000, 300_000);
    (setup.backing_align, setup.frames, setup.backing_micros_max) = (4096, 64, 20_000);
    (setup.tier_micros_max, setup.think_micros_max, setup.batch_max) = (100, 500, 4);
    setup.backing_write_bytes_max = 64 << 10;
    setup.check = 2_000;
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
