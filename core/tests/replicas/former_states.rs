//! Nodes that are put back to an earlier state of themselves (S10): a memory snapshot, a tier whose device shows what it had before.

use crate::story::{KINDS, two};
use crate::weather::FAIR;
use crate::world::*;
use forebay_core::api::*;
use forebay_core::cluster::*;
use forebay_core::message::*;
use forebay_core::status::Phase;
use forebay_core::types::*;

const TIER_FAILED: PeerFailure = PeerFailure::Refused(Refusal::TierFailed);

fn write_blocks(world: &mut World, blocks: std::ops::Range<u64>) {
    for block in blocks {
        assert!(world.write(8 * block, 8));
    }
    world.until_answered();
}

fn went_back(world: &World, node: usize) -> bool {
    world.reported(node, |report| *report == Report::WentBack)
}

/// Its tier has what it had then, whatever was said since.
fn put_tier_back(world: &mut World, node: usize, then: &crate::disks::Disks) {
    world.nodes[node].disks = then.clone();
    world.nodes[node].told = Lsn(0);
}

/// The node's process is killed, and starts on what its tier held then.
fn put_back(world: &mut World, node: usize, then: &crate::disks::Disks) {
    let held = world.figures(node).held;
    world.kill(node);
    put_tier_back(world, node, then);
    world.start(node);
    assert!(world.figures(node).held < held, "it holds less than it has said");
}

#[test]
pub fn a_member_that_is_put_back_is_told_while_nothing_is_written() {
    for makes in KINDS {
        let mut world = two(FAIR, makes);
        write_blocks(&mut world, 0..10);
        world.run_ms(100);
        let then = world.nodes[1].disks.clone();
        write_blocks(&mut world, 10..20);
        world.run_ms(100);
        put_back(&mut world, 1, &then);
        // Nothing is open to it, so nothing that it does not answer is missed.
        world.run_ms(1_000);
        assert!(went_back(&world, 1), "node 1 goes on as if it were whole\n{}", world.tell());
        let gone = world.own(1);
        let left = |report: &Report| *report == Report::PeerFailed { peer: gone, why: TIER_FAILED };
        assert!(world.reported(0, left), "its owner counts on it: {:?}", world.nodes[0].reports);
        // The owner leaves it out, and all that was acknowledged is there.
        let members = world.members(&[0]);
        let (epoch, log, flushed) = (Epoch(2), LogState::Needed, Flushed::Unrecorded);
        world.order(0, Order::Decide { epoch, members, log, flushed });
        world.read_all();
    }
}

#[test]
pub fn a_member_that_has_lost_a_mark_is_told() {
    for makes in KINDS {
        let mut world = two(FAIR, makes);
        write_blocks(&mut world, 0..1);
        let then = world.nodes[1].disks.clone();
        world.until_clean();
        world.run_ms(100);
        // What it holds is the same; which writes may be under way to the backing it does not know any more.
        world.kill(1);
        put_tier_back(&mut world, 1, &then);
        world.start(1);
        world.run_ms(1_000);
        assert!(went_back(&world, 1), "node 1 goes on as if it were whole\n{}", world.tell());
    }
}

#[test]
pub fn a_member_that_has_heard_of_a_later_term_is_told_in_that() {
    for makes in KINDS {
        let mut world = two(FAIR, makes);
        write_blocks(&mut world, 0..10);
        let then = world.nodes[0].disks.clone();
        world.kill(0);
        world.start(0);
        world.take_over(1, &[0, 1], 2, 2);
        world.until_serving();
        write_blocks(&mut world, 10..12);
        put_back(&mut world, 0, &then);
        world.run_ms(1_000);
        assert!(went_back(&world, 0), "node 0 goes on as if it were whole\n{}", world.tell());
    }
}

#[test]
pub fn what_a_member_said_late_or_never_is_no_sign() {
    for makes in KINDS {
        let mut world = two(crate::weather::ROUGH, makes);
        for round in 0..20 {
            for block in 0..8 {
                world.write(8 * ((round * 8 + block) % BLOCKS), 8);
            }
            world.run_ms(120);
            if round % 4 == 3 {
                world.kill(1);
                world.start(1);
            }
        }
        assert!(!went_back(&world, 0) && !went_back(&world, 1), "{}", world.tell());
    }
}

#[test]
pub fn an_owner_that_is_put_back_in_its_term_answers_nothing() {
    for makes in KINDS {
        let mut world = two(FAIR, makes);
        write_blocks(&mut world, 0..10);
        world.run_ms(100);
        let then = world.nodes[0].disks.clone();
        write_blocks(&mut world, 10..30);
        // It goes on in the same term, as if it had been there all the time.
        put_back(&mut world, 0, &then);
        let members = world.members(&[0, 1]);
        let (term, epoch, log, flushed) = (Term(1), Epoch(1), LogState::Needed, Flushed::Unrecorded);
        let (watermark, fetch, unfenced, former) = (Lsn(0), None, Vec::new(), None);
        world.begin_term(0, Own { term, epoch, members, log, flushed, watermark, fetch, unfenced, former });
        world.write(8 * 40, 8);
        world.write(0, 8);
        world.run_ms(1_000);
        assert!(went_back(&world, 0), "node 0 goes on as if it were whole\n{}", world.tell());
        assert_eq!(world.open(), 2, "it has acknowledged what nobody else has");
        world.kill(0);
        world.take_over(1, &[1], 2, 2);
        world.until_serving();
        world.read_all();
    }
}

/// Node 1 is put back, and takes over with node 2, which has all that was acknowledged.
fn candidate_put_back(make: Make) -> World {
    let mut world = World::new(9, FAIR, &[make; 3]);
    world.found(0, &[0, 1, 2]);
    world.until_serving();
    write_blocks(&mut world, 0..3);
    world.run_ms(100);
    let then = world.nodes[1].disks.clone();
    for round in 0..4 {
        // Superseded on the others, and gone there: what is between is no whole log.
        write_blocks(&mut world, 3 + round..30);
    }
    world.run_ms(100);
    world.kill(0);
    put_back(&mut world, 1, &then);
    world
}

#[test]
pub fn who_fetches_what_it_held_before_owns_nothing() {
    for make in [MEMORY, FLASH] {
        let mut world = candidate_put_back(make);
        world.take_over(1, &[1, 2], 2, 2);
        world.run_ms(400);
        assert!(went_back(&world, 1), "node 1 goes on as if it were whole\n{}", world.tell());
        assert_ne!(world.status(1).phase, Phase::Serving);
        world.kill(1);
        world.take_over(2, &[2], 3, 3);
        world.until_serving();
        world.read_all();
    }
}

#[test]
pub fn a_tail_below_what_all_held_is_not_agreed_on() {
    for make in [MEMORY, FLASH] {
        let mut world = candidate_put_back(make);
        // What was fetched gets lost on the way until the owner goes on without it.
        world.lose = Some(|message| matches!(message, Message::Log(LogMessage::Append { .. })));
        world.take_over(1, &[1, 2], 2, 2);
        world.run_ms(2_000);
        assert!(went_back(&world, 1), "node 1 goes on as if it were whole\n{}", world.tell());
        let gone = world.own(2);
        let beyond = PeerFailure::Refused(Refusal::BeyondTail);
        assert!(!world.reported(1, |report| *report == Report::PeerFailed { peer: gone, why: beyond }));
        assert_ne!(world.status(1).phase, Phase::Serving);
    }
}

/// What is in the backing when a learner's turn comes is not sent: it holds positions without a record, by a word that its checkpoint
/// has to have before it is repeated. Killed at any moment it is whole, and nobody takes it for one that went back.
#[test]
pub fn a_learner_that_is_killed_holds_what_it_has_said() {
    for makes in KINDS {
        for seed in 0..12 {
            let mut world = World::new(seed, FAIR, &makes);
            world.found(0, &[0]);
            world.until_serving();
            world.lose = Some(|message| matches!(message, Message::Log(LogMessage::Append { .. })));
            world.order(0, Order::Learn(world.own(1)));
            world.run_ms(20);
            write_blocks(&mut world, 0..10);
            world.until_clean();
            world.run_ms(20);
            world.lose = None;
            let (end, learner) = (world.figures(0).accepted, world.own(1).node);
            world.hand(0, Event::Interrupted(learner));
            world.until("the learner says to hold all", |world| world.nodes[1].told >= end);
            world.kill(1);
            world.start(1);
            world.run_ms(1_000);
            assert!(!went_back(&world, 1), "{}", world.tell());
        }
    }
}
