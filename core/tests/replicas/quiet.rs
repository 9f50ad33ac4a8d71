//! A volume becomes quiet before it changes hands.

use crate::story::{KINDS, two};
use crate::weather::FAIR;
use crate::world::*;
use forebay_core::api::*;
use forebay_core::status::{Policy, Reason, Unrest};
use forebay_core::types::*;

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
        assert_eq!(world.open(), waiting, "{kind:?}");
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
        // The backing has nothing of it yet.
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
