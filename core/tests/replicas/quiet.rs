//! A volume becomes quiet before it changes hands.

use crate::story::{KINDS, taken_over_in_quarantine, two};
use crate::weather::FAIR;
use crate::world::*;
use forebay_core::api::*;
use forebay_core::status::{BackingState, Policy, Reason, Unrest};
use forebay_core::types::*;
use forebay_core::volume::HELD_MAX;

/// Each of these waits for the one before to be in the backing, and is not chosen yet when the volume is to become quiet.
#[test]
pub fn a_volume_becomes_quiet_when_the_backing_has_what_is_awaited() {
    for makes in KINDS {
        let mut world = two(FAIR, makes);
        let through = Control::SetPolicy(Policy::Through);
        world.hand(0, Event::Control { id: ControlId(7), command: through });
        world.until("writes go through", |world| world.status(0).reason == Reason::AsRequested);
        for block in 0..4 {
            assert!(world.write(8 * block, 8));
            world.flush();
        }
        assert_eq!(world.open(), 8);
        let to = world.own(1).node;
        world.order(0, Order::Quiesce { to: Some(to) });
        world.until("the volume is quiet", |world| world.reported(0, |report| *report == Report::Quiet));
        assert_eq!(world.open(), 0);
    }
}

/// What waits for room when a volume is to become quiet is for the next owner, or for this one when nothing comes of that.
#[test]
fn what_waits_for_room_waits_on_when_the_volume_is_to_become_quiet() {
    for kind in [MEMORY, FLASH] {
        let narrow = Make { peer_window_bytes_max: 2 * BLOCK_BYTES, ..kind };
        let mut world = two(FAIR, [narrow; 2]);
        world.slow = Some((1, 300));
        for block in 0..6 {
            assert!(world.write(8 * block, 8));
        }
        let waiting = world.status(0).waiting_writes as usize;
        assert!(waiting > 0, "{:?}", world.status(0));
        let to = world.own(1).node;
        world.order(0, Order::Quiesce { to: Some(to) });
        world.until("the volume is quiet", |world| world.reported(0, |report| *report == Report::Quiet));
        // As many as found room while what was under way came to its end have been carried out.
        let kept = world.open();
        assert!((1..=waiting).contains(&kept), "{kind:?}: {kept} of {waiting}");
        world.run_ms(1000);
        assert_eq!(world.open(), kept, "{kind:?}");
        world.order(0, Order::Resume);
        world.until_answered();
    }
}

/// Who waits for a hand-over that comes to nothing is told what for.
#[test]
fn what_keeps_a_volume_from_being_quiet_is_told() {
    for kind in KINDS {
        let mut world = two(FAIR, kind);
        let to = world.own(1).node;
        let unrest = |world: &mut World, to| {
            world.order(0, Order::Quiesce { to });
            world.run_ms(20);
            assert!(!world.reported(0, |report| *report == Report::Quiet), "it is not quiet");
            world.order(0, Order::Resume);
            world.why_not_quiet(0)
        };
        // The backing gets nothing of it.
        world.backing_hangs = Some(0);
        assert!(world.write(0, 8));
        world.until_answered();
        assert_eq!(unrest(&mut world, None), Some(Unrest::Records), "{kind:?}");
        // The other one is slow, so its answer is waited for.
        world.slow = Some((1, 5000));
        assert!(world.write(8, 8));
        assert_eq!(unrest(&mut world, Some(to)), Some(Unrest::Answers), "{kind:?}");
        world.until_answered();
    }
}

/// The first write is under way to a backing that has begun to hang when the volume is to change hands.
fn leaving_with_a_write_under_way(makes: [Make; 2]) -> World {
    let mut world = two(FAIR, makes);
    world.backing_hangs = Some(0);
    assert!(world.write(0, 8));
    world.until_answered();
    world.until("it is under way to the backing", |world| !world.backing_rests(0));
    let to = world.own(1).node;
    world.order(0, Order::Quiesce { to: Some(to) });
    world
}

fn not_quiet(report: &Report) -> bool {
    matches!(report, Report::NotQuiet(_))
}

/// What takes long to end is waited for while clients are served.
#[test]
pub fn requests_are_carried_out_while_what_was_under_way_is_waited_for() {
    for kind in KINDS {
        let mut world = leaving_with_a_write_under_way(kind);
        for block in 1..6 {
            world.run_ms(1000);
            assert!(world.write(8 * block, 8));
            world.run_ms(500);
            assert_eq!(world.open(), 0, "{kind:?}: a write waits");
        }
        assert!(!world.reported(0, |report| *report == Report::Quiet || not_quiet(report)));
        world.backing_hangs = None;
        world.until("the volume is quiet", |world| world.reported(0, |report| *report == Report::Quiet));
        let accepted = world.status(0).accepted;
        assert_eq!(world.status(1).held, accepted, "the next owner holds everything");
        world.order(0, Order::Resume);
        world.read_all();
    }
}

/// What began to hang meanwhile is not waited for longer than clients can be kept waiting.
#[test]
pub fn requests_are_held_for_no_longer_than_clients_can_wait() {
    for kind in KINDS {
        let mut world = leaving_with_a_write_under_way(kind);
        world.backing_hangs = None;
        world.run_ms(28_000);
        world.slow = Some((1, 5000));
        assert!(world.write(8, 8));
        world.until("the backing has ended it", |world| world.backing_rests(0));
        let begun = world.now;
        world.until("it has given up", |world| world.reported(0, not_quiet));
        let (least, most) = (HELD_MAX.0, HELD_MAX.0 + 500 * MS);
        assert!((least..most).contains(&(world.now - begun)), "{kind:?}: after {} ns", world.now - begun);
        assert!(world.reported(0, |report| *report == Report::NotQuiet(Unrest::Answers)));
        assert!(world.write(16, 8));
        assert_eq!(world.open(), 2, "what comes waits until it is served on");
        world.slow = None;
        world.order(0, Order::Resume);
        assert_eq!(world.why_not_quiet(0), Some(Unrest::Answers));
        world.until_answered();
        world.read_all();
    }
}

/// A proof that comes between the report and the change of hands is for whoever is next.
#[test]
pub fn nothing_is_written_again_by_an_owner_that_was_told_to_be_quiet() {
    for kind in [MEMORY, FLASH] {
        let (mut world, late) = taken_over_in_quarantine(kind);
        world.until_serving();
        assert!(!world.figures(1).mark.pins.is_empty(), "{kind:?}: nothing is pinned");
        world.run_ms(late.saturating_sub(world.now) / MS + 1);
        let to = world.own(2).node;
        world.order(1, Order::Quiesce { to: Some(to) });
        world.until("the volume is quiet", |world| world.reported(1, |report| *report == Report::Quiet));
        world.backing_hangs = Some(1);
        world.order(1, Order::Proven);
        world.run_ms(500);
        assert!(world.backing_rests(1), "{kind:?}: it writes to the backing");
        world.backing_hangs = None;
        world.order(1, Order::Resume);
        world.until("pins end", |world| world.reported(1, |report| *report == Report::PinsEnded));
        world.read_all();
    }
}

/// T5, T8: an owner that may open no window of its own says so, and the proof lets everything go on.
#[test]
fn an_owner_that_may_not_write_before_a_proof_says_so() {
    for kind in KINDS {
        let mut world = two(FAIR, kind);
        world.backing_hangs = Some(0);
        assert!(world.write(0, 8));
        world.until_answered();
        world.run_ms(100);
        world.kill(0);
        world.take_over_from(1, &[1], 5, 5, &[1, 2, 3, 4]);
        world.until_serving();
        assert!(world.write(8, 8));
        world.run_ms(5000);
        assert_eq!(world.status(1).backing, BackingState::AwaitingFence);
        assert!(world.backing_rests(1) && world.status(1).dirty_bytes > 0, "{kind:?}: {:?}", world.status(1));
        world.order(1, Order::Proven);
        assert_eq!(world.status(1).backing, BackingState::Ready);
        world.until_answered();
        world.until_clean();
        world.read_all();
    }
}
