//! What clients read of records that some member does not hold yet (A8).

use crate::story::KINDS;
use crate::weather::FAIR;
use crate::world::{FLASH, MEMORY, MS, Make, World};
use forebay_core::api::*;
use forebay_core::cluster::{Epoch, Flushed, LogState};
use forebay_core::status::{Phase, Policy};
use forebay_core::types::*;

/// The first node owns a volume whose first block was written once; the others are members.
fn world_of(makes: &[Make]) -> World {
    let mut world = World::new(1, FAIR, makes);
    world.found(0, &(0..makes.len()).collect::<Vec<_>>());
    world.until_serving();
    assert!(world.write(0, 8));
    world.until_answered();
    world
}

/// Writes the first block again and reads it meanwhile.
fn overwrite_and_read(world: &mut World) -> (u64, u64) {
    assert!(world.write(0, 8));
    let write = world.request_last();
    (write, world.read_beside(0))
}

#[test]
pub fn what_only_an_owner_that_is_cut_off_has_is_not_read() {
    for makes in KINDS {
        let mut world = world_of(&makes);
        world.nodes[1].cut_off = true;
        let (write, over) = overwrite_and_read(&mut world);
        assert!(world.read(1));
        let beside = world.request_last();
        world.run_ms(700);
        let answered = [write, over, beside].map(|request| world.is_answered(request));
        assert_eq!(answered, [false, false, true], "only what all hold is read");
        // Its lease is over before another one serves.
        world.kill(0);
        world.nodes[1].cut_off = false;
        world.take_over(1, &[1], 2, 2);
        world.until_serving();
        world.read_all();
    }
}

#[test]
fn a_read_waits_as_long_as_the_write_that_it_shows_and_no_longer() {
    for makes in KINDS {
        let mut world = world_of(&makes);
        world.slow = Some((1, 300));
        let (write, over) = overwrite_and_read(&mut world);
        world.run_ms(200);
        // A later write is in the same block, and neither in the answer nor waited for.
        assert!(world.write_beside(0, 8));
        let later = world.request_last();
        world.run_ms(150);
        let answered = [write, over, later].map(|request| world.is_answered(request));
        assert_eq!(answered, [true, true, false]);
        world.until_answered();
        let legs = &world.nodes[0].volume.as_ref().expect("it runs").seen().reads;
        assert_eq!((legs.client.count(), legs.waiting.count(), legs.local.count()), (1, 1, 0));
        let waited = legs.waiting.max_us().expect("one has waited");
        assert!((290_000..340_000).contains(&waited), "{waited} us");
    }
}

#[test]
fn a_proposed_member_is_waited_for_until_it_is_decided() {
    let mut world = world_of(&[MEMORY, MEMORY]);
    let third = world.add(FLASH);
    let who = world.own(third);
    world.order(0, Order::Learn(who));
    world.until("the learner is ready", |world| {
        world.reported(0, |report| matches!(report, Report::LearnerReady { .. }))
    });
    let (old, new) = (world.members(&[0, 1]), world.members(&[0, 1, third]));
    world.order(
        0,
        Order::Propose {
            proposal: 2,
            epoch: Epoch(2),
            members: new,
            log: LogState::Needed,
            flushed: Flushed::Unrecorded,
        },
    );
    world.nodes[third].cut_off = true;
    let (_, over) = overwrite_and_read(&mut world);
    world.run_ms(500);
    assert!(!world.is_answered(over), "it may have become one (C4)");
    world
        .order(0, Order::Decide { epoch: Epoch(3), members: old, log: LogState::Needed, flushed: Flushed::Unrecorded });
    assert!(world.is_answered(over), "it has not");
    world.until_answered();
}

#[test]
fn a_read_does_not_wait_for_the_backing_that_a_write_needs_as_well() {
    for kind in [MEMORY, FLASH] {
        let mut world = world_of(&[Make { min_peers: 1, ..kind }; 2]);
        for node in &mut world.nodes {
            node.volume.as_mut().expect("it runs").set_min_peers(2);
        }
        assert_eq!(world.status(0).effective, Policy::Back, "while the log alone holds what was acknowledged");
        world.until_clean();
        world.backing_hangs = Some(0);
        let (write, over) = overwrite_and_read(&mut world);
        world.run_ms(100);
        assert_eq!([write, over].map(|request| world.is_answered(request)), [false, true]);
        world.backing_hangs = None;
        world.until_answered();
    }
}

#[test]
fn a_hand_over_begins_when_reads_have_shown_what_they_found() {
    for makes in KINDS {
        let mut world = world_of(&makes);
        world.slow = Some((1, 300));
        overwrite_and_read(&mut world);
        let to = world.own(1).node;
        world.order(0, Order::Quiesce { to: Some(to) });
        world.until("the volume is quiet", |world| world.reported(0, |report| *report == Report::Quiet));
        assert_eq!(world.open(), 0);
        let late = world.read_beside(1);
        world.run_ms(500);
        assert_eq!((world.open(), world.is_answered(late)), (1, false), "what comes now is for the next owner");
    }
}

#[test]
fn reads_that_wait_end_without_an_answer_when_the_ownership_ends() {
    for makes in KINDS {
        let mut world = world_of(&makes);
        world.nodes[1].cut_off = true;
        overwrite_and_read(&mut world);
        world.run_ms(100);
        world.order(0, Order::StepDown);
        world.until("the backing is quiet", |world| world.reported(0, |report| *report == Report::BackingQuiet));
        assert_eq!((world.open(), world.status(0).phase), (2, Phase::Stopped), "not even errors (T9)");
    }
}

#[test]
fn a_read_that_waits_is_not_answered_without_a_lease_either() {
    let mut world = world_of(&[MEMORY, MEMORY]);
    world.slow = Some((1, 100));
    let until = Instant(world.now + 50 * MS);
    world.order(0, Order::Lease { until });
    let (write, over) = overwrite_and_read(&mut world);
    world.run_ms(150);
    assert_eq!([write, over].map(|request| world.is_answered(request)), [true, false], "L3");
    let until = Instant(world.now + 1_000 * MS);
    world.order(0, Order::Lease { until });
    assert!(world.is_answered(over));
}

#[test]
fn an_owner_that_hears_of_another_shows_nothing_more() {
    let mut world = world_of(&[MEMORY, MEMORY]);
    world.slow = Some((1, 300));
    let (_, over) = overwrite_and_read(&mut world);
    world.order(1, Order::Remember { term: Term(2), epoch: Epoch(2) });
    world.until("it hears of it", |world| world.reported(0, |report| matches!(report, Report::Outdated { .. })));
    let until = Instant(u64::MAX);
    world.order(0, Order::Lease { until });
    world.run_ms(300);
    assert!(!world.is_answered(over));
}

#[test]
pub fn what_a_member_may_bring_back_is_not_said_to_be_gone() {
    for make in [MEMORY, FLASH] {
        let mut world = world_of(&[make; 3]);
        world.nodes[2].cut_off = true;
        assert!(world.write(3 * 8, 8));
        world.run_ms(100);
        world.kill(0);
        // Of the others one has that write, and the one that has not takes over without hearing of it.
        (world.nodes[1].cut_off, world.nodes[2].cut_off) = (true, false);
        world.order(2, Order::Seal);
        let watermark = world.figures(2).mark.watermark;
        let (term, epoch, log) = (Term(2), Epoch(2), LogState::Needed);
        let members = world.members(&[1, 2]);
        let own = Own {
            term,
            epoch,
            members,
            log,
            flushed: Flushed::Unrecorded,
            watermark,
            fetch: None,
            unfenced: Vec::new(),
            former: None,
        };
        world.begin_term(2, own);
        assert!(world.read(3));
        let read = world.request_last();
        world.run_ms(500);
        assert!(!world.is_answered(read), "a member has not agreed to the tail (T4)");
        world.kill(2);
        world.nodes[1].cut_off = false;
        world.take_over(1, &[1], 3, 3);
        world.until_serving();
        world.read_all();
    }
}
