//! The world lies, the volume believes it, and data is lost: the oracle must see that. A checker that has never
//! been seen to refuse proves nothing.

use forebay_sim::run::run_seed;
use forebay_sim::setup::Lie;

/// A lie that no seed below this reveals means that the oracle is blind to it.
const SEEDS_MAX: u64 = 400;

fn is_seen(lie: Lie, because: &[&str]) {
    for seed in 0..SEEDS_MAX {
        if let Err(failure) = run_seed(seed, Some(lie), false) {
            assert!(
                because.iter().any(|reason| failure.message.contains(reason)),
                "{lie:?} fails seed {seed} for another reason: {}",
                failure.message
            );
            return;
        }
    }
    panic!("{lie:?}: {SEEDS_MAX} seeds have not revealed it");
}

const LOST: [&str; 4] = ["is not legal there", "no crash image", "the destage position", "at rest"];

#[test]
fn a_backing_that_drops_syncs_is_seen() {
    is_seen(Lie::BackingSyncDropped, &LOST);
}

#[test]
fn a_tier_that_drops_syncs_is_seen() {
    is_seen(
        Lie::TierSyncDropped,
        &[
            "is not legal there",
            "no crash image",
            "an undamaged tier",
            "cannot be opened",
            "terms only grow",
            // In the journal, while the tier has not kept the checkpoint of that term.
            "a batch of term",
        ],
    );
}

#[test]
fn an_acknowledgement_before_completion_is_seen() {
    is_seen(Lie::AcknowledgedEarly, &LOST);
}

#[test]
fn a_backing_that_reorders_groups_is_seen() {
    is_seen(Lie::BackingReordered, &LOST);
}

#[test]
fn a_backing_that_answers_with_old_bytes_is_seen() {
    is_seen(Lie::BackingStaleRead, &LOST);
}

#[test]
fn a_tier_that_loses_a_write_is_seen() {
    is_seen(
        Lie::TierWriteLost,
        &[
            "is not legal there",
            "no crash image",
            "in a world without errors",
            "an undamaged tier",
            "cannot be opened",
            // Destage stops before the record that is not there, for ever.
            "does not come to rest",
        ],
    );
}

#[test]
fn an_arena_that_is_used_before_late_requests_have_ended_is_seen() {
    is_seen(
        Lie::ArenaBeforeLock,
        &["is not legal there", "no crash image", "the destage position", "at rest", "does not match"],
    );
}
