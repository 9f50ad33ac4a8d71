//! An owner whose tier fails steps down, whatever was under way there.

use crate::story::two;
use crate::weather::{FAIR, Weather};
use crate::world::*;
use forebay_core::api::*;
use forebay_core::status::Phase;

/// An owner on flash and a member, with clients that write and flush all the time, until a write of its checkpoint and a sync
/// of its tier are under way, or not, as wanted.
fn busy_until(world: &mut World, wanted: &[(bool, bool)]) {
    for &wanted in wanted {
        for round in 0.. {
            assert!(round < 20_000, "{wanted:?} is never met");
            if world.checkpoint_and_sync(0) == wanted {
                break;
            }
            world.write(8 * (round % 8), 8);
            if world.open() < 16 {
                world.flush();
            }
            assert!(world.turn());
        }
    }
}

/// The tier fails at what is under way then, and the owner steps down.
fn fails_and_steps_down(seed: u64, wanted: &[(bool, bool)], fails: Fails) {
    let mut world = two(Weather { disk_us_max: 2_000, ..FAIR }, [FLASH, FLASH]);
    world.chance.0 = seed;
    busy_until(&mut world, wanted);
    world.tier_fails = Some((0, fails));
    world.until("the tier has failed", |world| {
        world.reported(0, |report| *report == Report::TierFailed { answers: false })
    });
    let answered = world.answered;
    world.order(0, Order::StepDown);
    world.until("the backing is quiet", |world| world.reported(0, |report| *report == Report::BackingQuiet));
    assert_eq!(world.status(0).phase, Phase::Stopped);
    assert_eq!(world.tier_work(0), [], "left under way");
    world.run_ms(100);
    assert_eq!(world.answered, answered, "not even errors (T9)");
    // What was held is there when the tier is opened anew.
    world.tier_fails = None;
    world.reopen(0);
}

/// An owner whose tier is well steps down while segments are erased, or the tier is synced, with or without a checkpoint: it waits
/// for all of that, also where nothing is under way to the backing.
pub fn an_owner_waits_for_erasures_and_syncs_when_it_steps_down() {
    let weather = Weather { disk_us_max: 2_000, ..FAIR };
    for wanted in [TierWork::Erasure, TierWork::Sync] {
        for occasion in 0..12 {
            let mut world = two(weather, [Make { tier_blocks: 512, ..FLASH }, FLASH]);
            until_alone_under_way(&mut world, wanted, occasion);
            world.order(0, Order::StepDown);
            world.until("the backing is quiet", |world| world.reported(0, |report| *report == Report::BackingQuiet));
            assert_eq!(world.tier_work(0), [], "left under way");
            world.reopen(0);
        }
    }
}

/// Bursts of writes, each destaged before the next, until only this is under way from the owner, and was so often before.
fn until_alone_under_way(world: &mut World, wanted: TierWork, occasion: u32) {
    let (mut seen, mut next) = (0, 0);
    for round in 0.. {
        assert!(round < 100_000, "{wanted:?} is not under way by itself so often");
        if world.tier_work(0) == [wanted] && world.backing_rests(0) {
            if seen == occasion {
                return;
            }
            seen += 1;
        }
        if world.open() == 0 && world.status(0).dirty_bytes == 0 {
            (0..20).for_each(|at| assert!(world.write(8 * ((next + at) % BLOCKS), 8)));
            next += 20;
            world.flush();
        }
        assert!(world.turn());
    }
}

#[test]
fn what_changes_a_tier_has_ended_when_its_owner_has_stepped_down() {
    an_owner_waits_for_erasures_and_syncs_when_it_steps_down();
}

#[test]
pub fn an_owner_steps_down_when_the_write_of_its_checkpoint_fails() {
    for seed in 0..40 {
        fails_and_steps_down(seed, &[(true, false)], Fails::Writes);
        fails_and_steps_down(seed, &[(true, true)], Fails::Writes);
    }
}

#[test]
pub fn an_owner_steps_down_when_the_sync_that_carries_its_checkpoint_fails() {
    for seed in 0..40 {
        fails_and_steps_down(seed, &[(true, false), (false, true)], Fails::Syncs);
    }
}

/// The checkpoint is written while a sync is under way that does not carry it, and waits for the next one, which never comes.
#[test]
pub fn an_owner_steps_down_when_its_checkpoint_waits_for_a_sync() {
    for seed in 0..40 {
        fails_and_steps_down(seed, &[(true, true)], Fails::Syncs);
        fails_and_steps_down(seed, &[(true, true), (false, true)], Fails::Syncs);
    }
}

/// The sync that carries it succeeds, and a write has failed meanwhile: what that has lost the sync did not save.
#[test]
pub fn an_owner_steps_down_when_a_write_fails_while_its_checkpoint_is_synced() {
    for seed in 0..40 {
        fails_and_steps_down(seed, &[(true, false), (false, true)], Fails::Writes);
    }
}
