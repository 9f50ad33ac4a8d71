//! A hold leaves the backing unchanged only as long as no client waits for its end.

use crate::story::two;
use crate::weather::FAIR;
use crate::world::*;
use forebay_core::api::*;
use forebay_core::status::{BackingState, ControlError, Flush, HoldEnd, Policy, Reason};
use forebay_core::types::*;

const HOLD: Control = Control::Hold(Duration(3_600_000 * MS));

/// A volume of one node with a block in its backing, which is held, and whose log has another one.
fn held(make: Make) -> World {
    let mut world = alone(make);
    assert_eq!(command(&mut world, HOLD), Ok(()));
    assert_eq!(world.status(0).backing, BackingState::Held);
    assert!(world.write(8, 8));
    world.until_answered();
    world
}

fn alone(make: Make) -> World {
    let mut world = World::new(1, FAIR, &[Make { min_peers: 0, ..make }]);
    world.found(0, &[0]);
    world.until_serving();
    assert!(world.write(0, 8));
    world.until_answered();
    world.until_clean();
    world
}

/// Gives the owner a command, and returns its answer.
fn command(world: &mut World, command: Control) -> Result<(), ControlError> {
    world.hand(0, Event::Control { id: ControlId(7), command });
    world.until("the answer", |world| !world.answers.is_empty());
    world.answers.pop().expect("it was waited for").1
}

fn ended(world: &mut World, why: HoldEnd) {
    assert_eq!(world.status(0).backing, BackingState::Ready);
    assert_eq!(command(world, Control::Release), Err(ControlError::HoldEnded(why)));
    assert_eq!(command(world, Control::Release), Err(ControlError::NotHeld));
    world.until_clean();
    world.read_all();
}

#[test]
pub fn a_hold_ends_before_a_trim_waits_for_a_place() {
    for kind in [MEMORY, FLASH] {
        let mut world = held(kind);
        for round in 0..600 {
            // In groups of their own, or the newer would supersede the older.
            assert!(world.write(8 * (round % 16), 8));
            world.flush();
            world.run_ms(50);
            assert!(world.zero(round % 16, 1));
            world.flush();
            world.run_ms(50);
            assert_eq!(world.open(), 0, "trim {round} of {kind:?}");
        }
        ended(&mut world, HoldEnd::RangesFull);
    }
}

/// The member's tier is smaller than the owner's.
#[test]
fn a_hold_ends_before_a_write_waits_for_room_at_a_member() {
    let mut world = two(FAIR, [FLASH, MEMORY]);
    assert_eq!(command(&mut world, HOLD), Ok(()));
    for round in 0..900 {
        assert!(world.write(8 * (round % 16), 8));
        world.flush();
        world.run_ms(10);
        if world.open() > 0 {
            world.run_ms(990);
        }
        assert_eq!(world.open(), 0, "write {round}");
    }
    ended(&mut world, HoldEnd::TierFull);
}

#[test]
fn a_hold_ends_when_writes_are_to_have_the_backing() {
    for kind in [MEMORY, FLASH] {
        let mut world = held(kind);
        assert_eq!(command(&mut world, Control::SetPolicy(Policy::Through)), Ok(()));
        assert!(world.write(16, 8));
        world.flush();
        world.until_answered();
        assert_eq!(world.status(0).reason, Reason::AsRequested);
        ended(&mut world, HoldEnd::BackingNeeded);
    }
}

#[test]
fn a_hold_ends_when_flushes_are_to_have_the_backing() {
    for kind in [MEMORY, FLASH] {
        let mut world = held(kind);
        world.nodes[0].volume.as_mut().expect("it runs").set_flush(Flush::Destage);
        world.flush();
        world.until_answered();
        ended(&mut world, HoldEnd::BackingNeeded);
    }
}

#[test]
fn a_volume_that_needs_the_backing_is_held_until_somebody_waits_for_that() {
    let mut world = alone(MEMORY);
    assert_eq!(command(&mut world, Control::SetPolicy(Policy::Through)), Ok(()));
    assert_eq!(command(&mut world, HOLD), Ok(()));
    world.run_ms(10_000);
    assert_eq!(command(&mut world, Control::Release), Ok(()), "nobody has written");
    assert_eq!(command(&mut world, HOLD), Ok(()));
    assert!(world.write(8, 8));
    world.until_answered();
    ended(&mut world, HoldEnd::BackingNeeded);
}

#[test]
fn no_hold_begins_while_a_request_waits_for_the_backing() {
    let mut world = alone(MEMORY);
    world.backing_hangs = Some(0);
    assert!(world.write(8, 8));
    world.until_answered();
    // The drain for a hold is under way when the policy changes.
    world.hand(0, Event::Control { id: ControlId(1), command: HOLD });
    assert_eq!(command(&mut world, Control::SetPolicy(Policy::Through)), Ok(()));
    assert!(world.write(16, 8));
    world.backing_hangs = None;
    world.until("the answer", |world| !world.answers.is_empty());
    assert_eq!(world.answers, [(ControlId(1), Err(ControlError::HoldRefused(HoldEnd::BackingNeeded)))]);
    world.until_answered();
}
