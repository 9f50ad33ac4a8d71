//! Reads from the cache of the owner that has handed over (K1 to K5): told step by step, on both kinds of tier.

use crate::story::KINDS;
use crate::weather::FAIR;
use crate::world::{BLOCKS, Make, World};
use forebay_core::api::{Order, Own, Report};
use forebay_core::cluster::{Epoch, Flushed, LogState};
use forebay_core::message::{LogMessage, Message};
use forebay_core::status::FormerStatus;
use forebay_core::types::*;

/// Node 0 has written all blocks, has brought them to the backing, and has handed over: its record is of term 2, and node 1 serves in term 3.
fn handed_over(makes: [Make; 2]) -> World {
    let mut world = World::new(1, FAIR, &makes);
    world.found(0, &[0, 1]);
    world.until_serving();
    for block in 0..BLOCKS {
        assert!(world.write(8 * block, 8));
    }
    world.until_answered();
    world.until_clean();
    let to = world.own(1).node;
    world.order(0, Order::Quiesce { to: Some(to) });
    world.until("the volume is quiet", |world| world.reported(0, |report| *report == Report::Quiet));
    world.order(0, Order::HandedOver(Term(2)));
    succeed(&mut world, 0, 1, 3);
    world
}

/// The former owner follows, and the other one owns the volume and asks it.
fn succeed(world: &mut World, former: usize, to: usize, term: u32) {
    world.order(former, Order::StepDown);
    world.until("the backing is quiet", |world| world.reported(former, |report| *report == Report::BackingQuiet));
    world.reopen(former);
    let own = world.seal_all(to, &[0, 1], term, term);
    let own = Own { former: Some(world.own(former)), ..own };
    world.begin_term(to, own);
    world.until_serving();
}

/// Blocks found at the former owner and not found, by the counters of the present one.
fn found(world: &World) -> (u64, u64) {
    let counters = world.counters(world.owner);
    (counters.former_hits, counters.former_misses)
}

fn backing_reads(world: &World) -> u64 {
    world.status(world.owner).counters.backing_reads
}

fn former(world: &World) -> Option<FormerStatus> {
    world.nodes[world.owner].volume.as_ref().expect("it runs").former()
}

fn read(world: &mut World, block: u64) {
    assert!(world.read(block));
    world.until_answered();
}

/// Half a block is no whole content, so that nobody has it in memory when it is in the backing.
fn write_half(world: &mut World, block: u64) {
    assert!(world.write(8 * block, 4));
    world.until_answered();
    world.until_clean();
}

#[test]
pub fn the_next_owner_reads_what_the_former_one_had_in_its_cache_without_the_backing() {
    for makes in KINDS {
        let mut world = handed_over(makes);
        world.read_all();
        assert_eq!((found(&world), backing_reads(&world)), ((BLOCKS, 0), 0));
        let shown = former(&world).expect("it is asked");
        assert_eq!((shown.node, shown.hits, shown.misses), (world.own(0).node, BLOCKS, 0));
        assert_eq!(world.counters(0).cached_blocks_sent, BLOCKS);
        // Cached by then: nobody is asked twice.
        world.read_all();
        assert_eq!((found(&world), backing_reads(&world)), ((BLOCKS, 0), 0));
        let legs = &world.nodes[1].volume.as_ref().expect("it runs").seen().reads;
        let counts = [&legs.client, &legs.local, &legs.network, &legs.backing].map(|leg| leg.count());
        assert_eq!(counts, [2 * BLOCKS, BLOCKS, BLOCKS, 0], "asked for once, then read from memory");
    }
}

#[test]
pub fn what_the_next_owner_writes_is_not_read_from_the_cache_of_the_former_one() {
    for makes in KINDS {
        let mut world = handed_over(makes);
        write_half(&mut world, 5);
        read(&mut world, 5);
        assert_eq!((found(&world), backing_reads(&world)), ((0, 1), 1));
        read(&mut world, 6);
        assert_eq!((found(&world), backing_reads(&world)), ((1, 1), 1));
    }
}

#[test]
pub fn a_former_owner_that_is_no_member_any_more_is_not_asked() {
    for makes in KINDS {
        let mut world = handed_over(makes);
        read(&mut world, 4);
        world.nodes[0].cut_off = true;
        let members = world.members(&[1]);
        world.order(
            1,
            Order::Propose {
                proposal: 1,
                epoch: Epoch(4),
                members: members.clone(),
                log: LogState::Needed,
                flushed: Flushed::Unrecorded,
            },
        );
        world.order(1, Order::Decide { epoch: Epoch(4), members, log: LogState::Needed, flushed: Flushed::Unrecorded });
        write_half(&mut world, 5);
        // It hears again, and does not know that it is none.
        world.nodes[0].cut_off = false;
        read(&mut world, 5);
        assert_eq!((found(&world), backing_reads(&world)), ((1, 0), 1));
        assert_eq!(former(&world), None);
    }
}

#[test]
pub fn what_was_changed_on_the_way_is_read_from_the_backing() {
    for makes in KINDS {
        let mut world = handed_over(makes);
        world.weather.spoilt_percent = 100;
        read(&mut world, 5);
        assert_eq!((found(&world), backing_reads(&world)), ((0, 1), 1));
        assert!(world.status(1).counters.checksum_errors > 0);
    }
}

#[test]
pub fn an_answer_that_does_not_come_is_not_waited_for_and_the_asking_ends() {
    let mut world = handed_over(KINDS[0]);
    world.lose = Some(|message| matches!(message, Message::Log(LogMessage::Cached { .. })));
    for block in 0..8 {
        read(&mut world, block);
    }
    assert_eq!((found(&world), backing_reads(&world)), ((0, 8), 8));
    assert_eq!(former(&world), None, "eight in a row");
    world.lose = None;
    read(&mut world, 9);
    assert_eq!((found(&world), backing_reads(&world)), ((0, 8), 9));
}

#[test]
pub fn a_write_that_overtakes_the_question_is_not_covered_by_its_answer() {
    for makes in KINDS {
        let mut world = handed_over(makes);
        world.prefetch(5);
        write_half(&mut world, 5);
        assert_eq!(found(&world).0, 1, "the answer was that of before");
        // Had that been cached, it would be shown.
        read(&mut world, 5);
        assert_eq!(backing_reads(&world), 1);
    }
}

#[test]
pub fn who_was_deposed_keeps_nothing() {
    for makes in KINDS {
        let mut world = World::new(1, FAIR, &makes);
        world.found(0, &[0, 1]);
        world.until_serving();
        for block in 0..BLOCKS {
            assert!(world.write(8 * block, 8));
        }
        world.until_answered();
        world.until_clean();
        succeed(&mut world, 0, 1, 2);
        read(&mut world, 5);
        assert_eq!((found(&world), backing_reads(&world)), ((0, 1), 1));
        assert_eq!(former(&world), None, "it has said that it has nothing");
    }
}

#[test]
pub fn a_cache_is_kept_for_one_hand_over_and_each_owner_has_the_newest() {
    for makes in KINDS {
        let mut world = handed_over(makes);
        read(&mut world, 7);
        write_half(&mut world, 5);
        let to = world.own(0).node;
        world.order(1, Order::Quiesce { to: Some(to) });
        world.until("the volume is quiet", |world| world.reported(1, |report| *report == Report::Quiet));
        world.order(1, Order::HandedOver(Term(4)));
        succeed(&mut world, 1, 0, 5);
        // What it had kept itself is dropped; the other has had this one, and not that.
        read(&mut world, 7);
        read(&mut world, 5);
        assert_eq!((found(&world), backing_reads(&world)), ((1, 1), 1));
        world.read_all();
    }
}
