//! Single rules, each in a story that reads like a sentence.

use crate::weather::{FAIR, ROUGH, Weather};
use crate::world::*;
use forebay_core::api::*;
use forebay_core::cluster::*;
use forebay_core::message::*;
use forebay_core::status::{BackingState, Flush, Phase, Policy, Reason};
use forebay_core::types::*;

pub const KINDS: [[Make; 2]; 4] = [[MEMORY, MEMORY], [FLASH, FLASH], [MEMORY, FLASH], [FLASH, MEMORY]];

pub fn two(weather: Weather, makes: [Make; 2]) -> World {
    let mut world = World::new(1, weather, &makes);
    world.found(0, &[0, 1]);
    world.until_serving();
    world
}

#[test]
pub fn a_write_is_acknowledged_when_both_hold_it_and_not_before() {
    for makes in KINDS {
        let mut world = two(FAIR, makes);
        assert!(world.write(0, 8));
        world.until_answered();
        world.check_copies(0, &[1]);
        world.nodes[1].cut_off = true;
        assert!(world.write(8, 8));
        world.run_ms(700);
        assert_eq!(world.open(), 1, "the other does not hold it");
        assert!(!world.reported(0, |report| matches!(report, Report::PeerFailed { .. })), "within 800 ms");
        world.run_ms(200);
        let failed = |report: &Report| matches!(report, Report::PeerFailed { why: PeerFailure::Stalled, .. });
        assert!(world.reported(0, failed), "after 800 ms");
        assert_eq!(world.open(), 1, "a report drops nobody");
        world.nodes[1].cut_off = false;
        world.until_answered();
        world.check_copies(0, &[1]);
    }
}

#[test]
pub fn without_the_lost_member_a_write_is_acknowledged_only_when_the_backing_has_it() {
    for makes in KINDS {
        let mut world = two(FAIR, makes);
        world.nodes[1].cut_off = true;
        assert!(world.write(0, 8));
        world.run_ms(900);
        assert_eq!(world.open(), 1);
        let members = world.members(&[0]);
        world.order(
            0,
            Order::Propose {
                proposal: 1,
                epoch: Epoch(2),
                members: members.clone(),
                log: LogState::Needed,
                flushed: Flushed::Unrecorded,
            },
        );
        world.run_ms(500);
        assert_eq!(world.open(), 1, "an undecided change drops nobody (C4)");
        world.order(0, Order::Decide { epoch: Epoch(2), members, log: LogState::Needed, flushed: Flushed::Unrecorded });
        world.until_answered();
        assert_eq!(world.backing[0][0], 1, "the backing has it");
        assert_eq!(world.status(0).reason, Reason::TooFewPeers);
        assert_eq!(world.status(0).effective, Policy::Through);
    }
}

/// A1: an owner that lost its last member before its own log was whole counts as write-back again when there is a copy.
#[test]
pub fn too_few_copies_before_the_log_is_whole_are_enough_again_with_the_next_copy() {
    for makes in [[MEMORY; 3], [FLASH; 3], [MEMORY, FLASH, MEMORY]] {
        let mut world = World::new(7, FAIR, &makes);
        world.found(0, &[0, 1, 2]);
        world.until_serving();
        world.backing_hangs = Some(0);
        assert!(world.write(0, 8));
        world.until_answered();
        // The third node has more than the second, which takes over and fetches it: in vain, and nobody else is left.
        world.nodes[1].cut_off = true;
        assert!(world.write(8, 8));
        world.run_ms(100);
        world.kill(0);
        world.nodes[1].cut_off = false;
        let own = world.seal_all(1, &[1, 2], 2, 2);
        assert!(own.fetch.is_some(), "{own:?}");
        world.nodes[2].cut_off = true;
        world.begin_term(1, Own { unfenced: vec![Term(1)], ..own });
        assert_eq!(world.status(1).phase, Phase::Agreeing);
        let members = world.members(&[1]);
        world.order(
            1,
            Order::Propose {
                proposal: 1,
                epoch: Epoch(3),
                members: members.clone(),
                log: LogState::Needed,
                flushed: Flushed::Unrecorded,
            },
        );
        world.order(1, Order::Decide { epoch: Epoch(3), members, log: LogState::Needed, flushed: Flushed::Unrecorded });
        world.until_serving();
        assert_eq!((world.status(1).reason, world.status(1).requested), (Reason::TooFewPeers, Policy::Back));
        world.order(1, Order::Proven);
        world.until_clean();
        world.run_ms(100);
        assert_eq!((world.status(1).reason, world.status(1).effective), (Reason::TooFewPeers, Policy::Through));
        world.nodes[2].cut_off = false;
        world.kill(2);
        world.format(2);
        world.learn_member(1, &[1], 2, 4);
        assert_eq!((world.status(1).reason, world.status(1).effective), (Reason::AsRequested, Policy::Back));
    }
}

/// The second node is cut off while requests wait, and left out; the backing hangs.
pub fn left_alone(makes: &[Make], ask: impl Fn(&mut World)) -> World {
    let mut world = World::new(3, FAIR, makes);
    world.found(0, &[0, 1]);
    world.until_serving();
    assert!(world.write(0, 8));
    world.until_answered();
    world.until_clean();
    world.backing_hangs = Some(0);
    world.nodes[1].cut_off = true;
    ask(&mut world);
    world.run_ms(900);
    propose_and_decide(&mut world, &[0], 2);
    world
}

fn propose_and_decide(world: &mut World, members: &[usize], epoch: u32) {
    let (members, proposal) = (world.members(members), u64::from(epoch));
    let (epoch, log, flushed) = (Epoch(epoch), LogState::Needed, Flushed::Unrecorded);
    world.order(0, Order::Propose { proposal, epoch, members: members.clone(), log, flushed });
    world.order(0, Order::Decide { epoch, members, log, flushed });
}

/// A1, A2: requests that were under way when a member was lost, and those that came when there were too few copies, wait for the
/// backing only until there are enough again.
#[test]
pub fn a_write_returns_to_the_log_when_there_are_enough_copies_again() {
    for makes in [[MEMORY; 3], [FLASH; 3], [FLASH, MEMORY, FLASH]] {
        let ask = |world: &mut World, block: u64| {
            assert!(world.write(8 * block, 8));
            world.flush();
            assert!(world.write(8 * block + 8, 8));
        };
        let mut world = left_alone(&makes, |world| ask(world, 1));
        ask(&mut world, 3);
        world.run_ms(2_000);
        assert_eq!(world.open(), 6, "too few copies hold them, and the backing hangs: {makes:?}");
        assert_eq!(world.status(0).reason, Reason::TooFewPeers);
        world.learn_member(0, &[0], 2, 3);
        assert_eq!((world.status(0).reason, world.status(0).effective), (Reason::AsRequested, Policy::Back));
        world.run_ms(1_000);
        assert_eq!(world.open(), 0, "everybody holds them, and the backing hangs still: {makes:?}");
        world.check_copies(0, &[2]);
        world.backing_hangs = None;
        world.until_clean();
        world.read_all();
    }
}

/// A1, A2: writes go through already, and what came before that waits for the member that is lost then.
#[test]
pub fn what_waits_since_before_writes_went_through_waits_for_the_backing_too() {
    for makes in [[MEMORY; 3], [FLASH; 3]] {
        let mut world = left_alone(&makes, |world| {
            assert!(world.write(8, 8));
            world.flush();
            world.hand(0, Event::Control { id: ControlId(7), command: Control::SetPolicy(Policy::Through) });
            assert_eq!(world.status(0).reason, Reason::Draining);
            assert!(world.write(16, 8));
        });
        world.run_ms(2_000);
        assert_eq!(world.open(), 3, "one copy holds them, and the backing hangs: {makes:?}");
        world.backing_hangs = None;
        world.until_answered();
        assert_eq!(world.backing[1], [2; 8]);
    }
}

/// The same where a flush is to have the backing, which it waits for on.
#[test]
fn a_flush_that_means_destage_waits_for_the_backing_with_enough_copies_too() {
    let make = Make { flush: Flush::Destage, ..MEMORY };
    let mut world = left_alone(&[make; 3], |world| {
        assert!(world.write(8, 8));
        world.flush();
    });
    world.learn_member(0, &[0], 2, 3);
    world.run_ms(1_000);
    assert_eq!(world.open(), 1, "the flush");
    world.backing_hangs = None;
    world.until_answered();
}

/// Writes one block after the other, each when the one before was answered, for so many seconds.
fn write_for(world: &mut World, seconds: u64) {
    let end = world.now + seconds * 1_000 * MS;
    for round in 0.. {
        if world.now >= end {
            return;
        }
        assert!(world.write(8 * (round % 8), 8));
        world.until_answered();
        world.run_ms(20);
    }
}

fn failed_as(world: &World, why: PeerFailure, who: usize) -> bool {
    let peer = world.own(who);
    world.reported(0, |report| *report == Report::PeerFailed { peer, why })
}

/// A3: it holds each write just before it would count as one that does not move.
#[test]
pub fn a_member_that_moves_and_keeps_every_write_waiting_is_reported_within_seconds() {
    for makes in KINDS {
        let mut world = two(FAIR, makes);
        write_for(&mut world, 2);
        world.slow = Some((1, 790));
        write_for(&mut world, 4);
        assert!(!failed_as(&world, PeerFailure::Slow, 1), "what is slow for a moment is not slow");
        write_for(&mut world, 4);
        assert!(failed_as(&world, PeerFailure::Slow, 1));
        assert!(!failed_as(&world, PeerFailure::Stalled, 1), "it moves");
    }
}

/// A3: one that nothing is compared with is given more than one beside which another is quicker.
#[test]
pub fn a_member_that_is_slower_than_the_other_is_reported_and_one_alone_is_not() {
    for (nodes, slow) in [(2, false), (3, true)] {
        let mut world = World::new(5, FAIR, &[MEMORY; 3]);
        let members: Vec<usize> = (0..nodes).collect();
        world.found(0, &members);
        world.until_serving();
        world.slow = Some((1, 300));
        write_for(&mut world, 12);
        assert_eq!(failed_as(&world, PeerFailure::Slow, 1), slow, "of {nodes} nodes");
        assert!(!failed_as(&world, PeerFailure::Slow, 2), "the other is quick");
    }
}

/// A5: after a failed sync everything is written again from the oldest on, so for a while the backing has less than it had when
/// writes were answered because they were there.
#[test]
pub fn a_record_says_through_only_when_the_backing_has_synced_what_was_acknowledged() {
    for kind in [MEMORY, FLASH] {
        let mut world = World::new(4, FAIR, &[kind]);
        world.found(0, &[0]);
        world.until_serving();
        world.syncs_fail = true;
        assert!(world.write(0, 8));
        world.until_answered();
        assert_eq!(world.backing[0], [1; 8], "with too few members it was answered because the backing has it (A1)");
        world.until("a sync fails", |world| matches!(world.status(0).backing, BackingState::Failing(_)));
        let (epoch, members) = (Epoch(2), world.members(&[0]));
        world.order(
            0,
            Order::Propose {
                proposal: epoch.0.into(),
                epoch,
                members,
                log: LogState::Through,
                flushed: Flushed::Unrecorded,
            },
        );
        world.run_ms(3_000);
        assert!(!world.reported(0, |report| *report == Report::Covered { proposal: epoch.0.into() }));
        world.syncs_fail = false;
        world.until("all is durable", |world| {
            world.reported(0, |report| *report == Report::Covered { proposal: epoch.0.into() })
        });
    }
}

/// A world whose first owner has died with a window open, and whose second one with that window's blocks being written once more,
/// after it had brought two records into the backing. The third is to take over; by turns on memory and flash, and with a
/// restart before.
fn an_owner_dies_that_writes_pinned_blocks_once_more(seed: u64, writes: impl Fn(&mut World)) -> World {
    let (kind, restarts) = ([MEMORY, FLASH][seed as usize % 2], seed % 4 > 1);
    let mut world = World::new(seed, FAIR, &[kind, kind, kind]);
    world.found(0, &[0, 1, 2]);
    world.until_serving();
    world.backing_hangs = Some(0);
    writes(&mut world);
    world.kill(0);
    world.take_over_from(1, &[1, 2], 2, 2, &[1]);
    world.until_serving();
    world.until("both are in the backing", |world| world.figures(2).mark.watermark == Lsn(2));
    world.backing_hangs = Some(1);
    world.order(1, Order::Proven);
    world.run_ms(100);
    world.kill(1);
    if restarts {
        world.kill(2);
        world.start(2);
    }
    world.take_over_from(2, &[2], 3, 3, &[1, 2]);
    world
}

/// The third owner has newer content in the backing.
fn write_newer(world: &mut World, sector: u64, sectors: u64) {
    world.until_serving();
    assert!(world.write(sector, sectors));
    world.until_answered();
    world.until("the newer content is in the backing", |world| world.figures(2).mark.watermark == Lsn(3));
}

/// What the former owners had under way lands.
fn land_late_writes(world: &mut World) {
    let until = world.nodes[1].late_until.max(world.nodes[0].late_until).saturating_sub(world.now) / MS + 1;
    world.run_ms(until);
}

/// Nothing but the newest is read, and with proof it is in the backing again.
fn is_read_and_written_once_more(world: &mut World) {
    world.read_all();
    world.order(2, Order::Proven);
    world.until("pins end", |world| world.reported(2, |report| *report == Report::PinsEnded));
    world.until_clean();
}

/// T5, T6, T8: the rest of the group that a window ends in is pinned with it, and written once more with it. The owner that does
/// that dies, and its successor has newer content of such a block in the backing when the last write lands.
#[test]
pub fn what_was_pinned_with_a_window_is_pinned_against_the_owner_that_wrote_it_again() {
    let mut landed = 0;
    for seed in 0..16 {
        // The window has block 0, and block 1 follows in its group.
        let mut world = an_owner_dies_that_writes_pinned_blocks_once_more(seed, |world| {
            assert!(world.write(0, 8));
            world.until_answered();
            world.run_ms(100);
            assert!(world.write(8, 8));
            world.until_answered();
        });
        write_newer(&mut world, 8, 8);
        landed += u32::from(world.nodes[1].late_until > world.now);
        land_late_writes(&mut world);
        is_read_and_written_once_more(&mut world);
        assert_eq!((world.backing[0], world.backing[1]), ([1; 8], [3; 8]), "seed {seed}");
    }
    assert!(landed > 4, "the last write has landed after the newer one {landed} times");
}

/// T5, T6: a block is pinned as a whole, also where the window has two sectors of it. The owner that writes it once more dies, and
/// its successor has newer content of the other sectors in the backing when that write lands.
#[test]
pub fn a_block_of_which_a_window_has_a_part_is_pinned_and_written_once_more_as_a_whole() {
    let mut landed = 0;
    for seed in 0..16 {
        // The window has two sectors of block 0, and the next group has all of it.
        let mut world = an_owner_dies_that_writes_pinned_blocks_once_more(seed, |world| {
            assert!(world.write(0, 2));
            world.until_answered();
            world.run_ms(100);
            world.flush();
            assert!(world.write(0, 8));
            world.until_answered();
        });
        let pinned: Vec<Term> = world.figures(2).mark.pins.iter().map(|pin| pin.term).collect();
        assert_eq!(pinned, [Term(1)], "nothing but the first window: the second owner had none open");
        write_newer(&mut world, 2, 6);
        let newest = [2, 2, 3, 3, 3, 3, 3, 3];
        assert_eq!(world.backing[0], newest);
        land_late_writes(&mut world);
        landed += u32::from(world.backing[0] == [2; 8]);
        is_read_and_written_once_more(&mut world);
        assert_eq!(world.backing[0], newest, "seed {seed}");
    }
    assert!(landed > 4, "the last write has landed over what the window had nothing of {landed} times");
}

/// A7: first every member, then the record, then requests beyond the old end.
#[test]
pub fn a_volume_grows_when_every_member_has_the_size_and_then_the_record() {
    const GROWN: u64 = (BLOCKS + 8) * BLOCK_BYTES;
    let size = |world: &World, node: usize| world.nodes[node].volume.as_ref().expect("it runs").size_bytes();
    let grown = |world: &World| world.reported(0, |report| *report == Report::Grown(GROWN));
    for makes in KINDS {
        let mut world = two(FAIR, makes);
        let old = size(&world, 0);
        world.nodes[1].cut_off = true;
        world.hand(0, Event::Control { id: ControlId(7), command: Control::Resize(GROWN) });
        world.run_ms(400);
        assert!(!grown(&world), "a member does not know it");
        world.nodes[1].cut_off = false;
        world.until("every member has the size", |world| grown(world));
        assert_eq!(size(&world, 1), GROWN, "in its checkpoint: the mark was answered");
        assert_eq!((size(&world, 0), world.answers.len()), (old, 0), "the record does not say so");
        world.order(0, Order::Size(GROWN));
        assert_eq!((size(&world, 0), world.answers.as_slice()), (GROWN, &[(ControlId(7), Ok(()))][..]));

        // Whoever takes over from here on has it.
        world.kill(0);
        world.take_over(1, &[1], 2, 2);
        world.until_serving();
        assert_eq!((size(&world, 1), world.figures(1).mark.size_bytes), (GROWN, GROWN));
    }
}

#[test]
pub fn a_learner_is_brought_up_to_date_while_its_owner_serves_and_then_counts() {
    for makes in KINDS {
        let mut world = World::new(2, ROUGH, &makes);
        world.found(0, &[0]);
        world.until_serving();
        for round in 0..6 {
            for block in 0..8 {
                world.write(8 * block + round, 2);
            }
            world.until_answered();
        }
        world.order(0, Order::Learn(world.own(1)));
        for round in 0..30 {
            world.write(8 * (round % 8), 8);
            world.run_ms(5);
        }
        world.learn_member(0, &[0], 1, 2);
        world.check_copies(0, &[1]);
        world.until_answered();
        world.check_copies(0, &[1]);
        assert_eq!(world.status(0).effective, Policy::Back, "there are copies enough");
        // Its log is whole: it takes over, and what was acknowledged is there.
        world.write(0, 8);
        world.until_answered();
        world.kill(0);
        world.take_over(1, &[1], 2, 3);
        world.until_serving();
        world.read_all();
    }
}

#[test]
pub fn a_member_takes_over_and_has_all_that_was_acknowledged() {
    for makes in KINDS {
        for seed in 0..10 {
            let mut world = World::new(seed, ROUGH, &makes);
            world.found(0, &[0, 1]);
            world.until_serving();
            for _ in 0..120 {
                let sector = world.chance.below(BLOCKS * 8);
                let count = 1 + world.chance.below(8 - sector % 8);
                world.write(sector, count);
                let wait = world.chance.below(3);
                world.run_ms(wait);
                world.check_copies(0, &[1]);
            }
            world.kill(0);
            world.take_over(1, &[1], 2, 2);
            world.until_serving();
            world.read_all();
        }
    }
}

#[test]
pub fn messages_of_an_older_term_and_for_another_incarnation_are_refused() {
    let mut world = two(FAIR, [MEMORY, MEMORY]);
    let (old, new) = (world.own(0), world.own(1));
    world.order(1, Order::Remember { term: Term(2), epoch: Epoch(5) });
    world.run_ms(10);
    assert!(world.write(0, 8));
    world.run_ms(100);
    assert_eq!(world.open(), 1, "the member listens to no older term (S1)");
    assert!(world.reported(0, |report| matches!(report, Report::Outdated { term: Term(2), epoch: Epoch(5) })));
    let other = Incarnation { life: new.life + 1, ..new };
    let envelope = Envelope { volume: [7; 16], term: Term(2), epoch: Epoch(5), from: old, to: other };
    let held = world.status(1).held;
    let mark = Mark { number: MarkNumber(9), ..Mark::default() };
    world.hand(1, Event::Peer { envelope, message: LogMessage::Mark(mark), payload: Vec::new() });
    assert_eq!(world.status(1).held, held);
    assert_ne!(world.figures(1).mark.number, MarkNumber(9), "meant for another (S2)");
    assert_eq!(world.counters(1).refusals, 2);
}

#[test]
pub fn nothing_goes_to_the_backing_before_the_member_knows_the_window() {
    for makes in KINDS {
        let mut world = two(FAIR, makes);
        assert!(world.write(0, 8));
        world.until_answered();
        world.nodes[1].cut_off = true;
        world.run_ms(700);
        assert_eq!(world.backing[0], [0; 8], "the member has not got the mark (D3)");
        world.nodes[1].cut_off = false;
        world.until_clean();
        assert_eq!(world.backing[0], [1; 8]);
        world.until("the member lets go", |world| world.status(1).dirty_bytes == 0);
    }
}

#[test]
pub fn a_member_frees_nothing_before_it_is_told_to() {
    let mut world = two(FAIR, [MEMORY, MEMORY]);
    for block in 0..20 {
        assert!(world.write(8 * block, 8));
    }
    world.until_answered();
    world.backing_hangs = Some(0);
    world.run_ms(600);
    assert_eq!(world.status(1).committed, Lsn(20), "it knows that all hold them");
    assert_eq!(world.status(1).dirty_bytes, 20 * BLOCK_BYTES);
}

#[test]
pub fn a_member_restarts_and_goes_on_where_it_was() {
    for makes in KINDS {
        let mut world = two(FAIR, makes);
        for block in 0..20 {
            assert!(world.write(8 * block, 8));
        }
        world.until_answered();
        world.kill(1);
        world.start(1);
        let node = world.own(1).node;
        world.hand(0, Event::Interrupted(node));
        for block in 20..30 {
            assert!(world.write(8 * block, 8));
        }
        world.until_answered();
        world.check_copies(0, &[1]);
        world.kill(0);
        world.take_over(1, &[1], 2, 2);
        world.until_serving();
        world.read_all();
    }
}

#[test]
pub fn a_log_that_is_longer_than_the_new_terms_tail_is_refused() {
    let mut world = World::new(3, FAIR, &[MEMORY, MEMORY, MEMORY]);
    world.found(0, &[0, 1, 2]);
    world.until_serving();
    assert!(world.write(0, 8));
    world.until_answered();
    // Only node 2 gets what follows, and is away when node 1 takes over.
    world.nodes[1].cut_off = true;
    assert!(world.write(8, 8));
    world.run_ms(20);
    assert_eq!(world.open(), 1);
    world.kill(0);
    world.nodes[1].cut_off = false;
    world.nodes[2].cut_off = true;
    world.take_over(1, &[1], 2, 2);
    let members = world.members(&[1, 2]);
    world.until_serving();
    world.nodes[2].cut_off = false;
    world.order(
        1,
        Order::Propose { proposal: 3, epoch: Epoch(3), members, log: LogState::Needed, flushed: Flushed::Unrecorded },
    );
    world.run_ms(20);
    let refused =
        |report: &Report| matches!(report, Report::PeerFailed { why: PeerFailure::Refused(Refusal::BeyondTail), .. });
    assert!(world.reported(1, refused), "{:?}", world.nodes[1].reports);
}

/// The owner is lost when node 1 has missed its last 39 writes, which node 2 holds.
fn lost_when_one_member_lacks_the_end(weather: Weather, makes: [Make; 3]) -> World {
    let mut world = World::new(4, weather, &makes);
    world.found(0, &[0, 1, 2]);
    world.until_serving();
    world.write(0, 8);
    world.until_answered();
    world.nodes[1].cut_off = true;
    for block in 1..40 {
        world.write(8 * block, 8);
    }
    world.run_ms(100);
    world.kill(0);
    world.nodes[1].cut_off = false;
    assert!(world.status(2).held > world.status(1).held);
    world
}

#[test]
pub fn what_the_longest_log_has_more_is_fetched_before_anything_is_answered() {
    for weather in [FAIR, ROUGH] {
        let mut world = lost_when_one_member_lacks_the_end(weather, [MEMORY, FLASH, FLASH]);
        let longest = world.status(2).held;
        world.take_over(1, &[1, 2], 2, 2);
        assert!(world.read(20));
        world.until_serving();
        assert!(world.status(1).accepted >= longest);
        world.until_answered();
        world.read_all();
    }
}

#[test]
pub fn what_was_fetched_is_synced_before_it_is_read() {
    let mut world = lost_when_one_member_lacks_the_end(FAIR, [MEMORY, FLASH, FLASH]);
    let longest = world.status(2).held;
    let own = world.seal_all(1, &[1, 2], 2, 2);
    let members = world.members(&[1]);
    world.begin_term(1, Own { members, ..own });
    world.until_serving();
    assert!(world.figures(1).synced >= Some(longest), "{:?}", world.figures(1));
    world.read_all();
}

#[test]
pub fn a_fetch_that_breaks_off_holds_nobody_up() {
    for make in [MEMORY, FLASH] {
        let mut world = lost_when_one_member_lacks_the_end(FAIR, [make; 3]);
        let own = world.seal_all(1, &[1, 2], 2, 2);
        assert!(own.fetch.is_some(), "the other has more");
        world.kill(2);
        let members = world.members(&[1]);
        world.begin_term(1, Own { members, ..own });
        world.until_serving();
        world.read_all();
    }
}

#[test]
pub fn without_a_lease_nothing_is_read_and_nothing_is_written_to_the_backing() {
    let mut world = two(FAIR, [MEMORY, MEMORY]);
    let until = Instant(world.now);
    world.order(0, Order::Lease { until });
    assert!(world.write(0, 8));
    assert!(world.read(1));
    world.run_ms(500);
    assert_eq!(world.open(), 1, "the write is answered, the read waits (L3)");
    assert_eq!(world.backing[0], [0; 8]);
    let until = Instant(world.now + 1_000 * MS);
    world.order(0, Order::Lease { until });
    world.until_answered();
    world.until_clean();
}

#[test]
pub fn an_owner_that_steps_down_answers_nothing_and_stops_when_its_writes_have_ended() {
    let mut world = two(Weather { disk_us_max: 50_000, ..FAIR }, [MEMORY, MEMORY]);
    for block in 0..20 {
        assert!(world.write(8 * block, 8));
    }
    world.run_ms(30);
    let answered = world.answered;
    assert!(world.write(8 * 30, 8));
    world.order(0, Order::StepDown);
    world.until("the backing is quiet", |world| world.reported(0, |report| *report == Report::BackingQuiet));
    assert_eq!(world.status(0).phase, Phase::Stopped);
    world.run_ms(100);
    assert_eq!(world.answered, answered, "not even errors (T9)");
}

#[test]
pub fn payloads_that_were_changed_on_the_way_are_sent_again() {
    let weather = Weather { spoilt_percent: 30, ..FAIR };
    let mut world = two(weather, [FLASH, FLASH]);
    for block in 0..BLOCKS {
        assert!(world.write(8 * block, 8));
        world.until_answered();
    }
    assert!(world.status(1).counters.checksum_errors > 0);
    world.kill(0);
    world.take_over(1, &[1], 2, 2);
    world.until_serving();
    world.read_all();
}

#[test]
pub fn a_late_write_of_a_former_owner_hits_only_what_is_read_from_the_log() {
    for makes in KINDS {
        let mut world = two(FAIR, makes);
        assert!(world.write(0, 8));
        world.until_answered();
        world.backing_hangs = Some(0);
        world.run_ms(100);
        assert_eq!(world.backing[0], [0; 8], "the first write is under way to the backing");
        // In the same group, while the older one is under way.
        assert!(world.write(0, 8));
        world.until_answered();
        world.kill(0);
        let late = world.nodes[0].late_until;
        world.take_over_from(1, &[1], 2, 2, &[1]);
        world.until_serving();
        world.until("the log has let go of what is not pinned", |world| world.status(1).destaged == Lsn(2));
        let until = late.saturating_sub(world.now) / MS + 1;
        world.run_ms(until);
        world.read_all();
        world.order(1, Order::Proven);
        world.until("pins end", |world| world.reported(1, |report| *report == Report::PinsEnded));
        world.read_all();
        assert_eq!(world.backing[0], [2; 8], "it was written once more");
    }
}

#[test]
pub fn a_member_misses_nothing_that_was_superseded_before_it_was_sent() {
    for seed in 0..10 {
        miss_nothing(seed);
    }
}

fn miss_nothing(seed: u64) {
    let make = Make { peer_window_bytes_max: 1 << 20, ..MEMORY };
    let mut world = World::new(seed, FAIR, &[make, make]);
    world.found(0, &[0, 1]);
    world.until_serving();
    world.nodes[1].cut_off = true;
    assert!(world.write(0, 8));
    let first = world.request_last();
    // More than one message, each of one sector, so that nothing supersedes anything.
    for sector in 8..104 {
        assert!(world.write_beside(sector, 1));
    }
    assert!(world.write_beside(0, 8));
    world.run_ms(5);
    world.nodes[1].cut_off = false;
    world.until("the first write is acknowledged", |world| world.is_answered(first));
    // The superseding one did not arrive.
    world.kill(0);
    world.take_over(1, &[1], 2, 2);
    world.until_serving();
    world.read_all();
}

#[test]
pub fn a_watermark_does_not_pass_what_was_superseded_by_what_nobody_holds() {
    let mut world = two(FAIR, [MEMORY, MEMORY]);
    assert!(world.write(0, 8));
    assert!(world.write(8, 8));
    world.until_answered();
    // Only marks arrive, and the first write gives way to one that no other holds.
    world.lose = Some(|message| matches!(message, Message::Log(LogMessage::Append { .. })));
    assert!(world.write(0, 8));
    world.run_ms(3_000);
    assert_eq!(world.backing[1], [2; 8], "the rest of the group is in the backing");
    world.kill(0);
    world.lose = None;
    world.take_over(1, &[1], 2, 2);
    world.until_serving();
    world.read_all();
}

#[test]
pub fn an_owner_that_steps_down_passes_nothing_that_only_it_has_superseded() {
    for makes in [[MEMORY, MEMORY], [FLASH, FLASH]] {
        let mut world = two(FAIR, makes);
        assert!(world.write(0, 8));
        assert!(world.write(8, 8));
        world.until_answered();
        world.lose = Some(|message| matches!(message, Message::Log(LogMessage::Append { .. })));
        assert!(world.write(0, 8));
        world.run_ms(3_000);
        assert_eq!(world.backing[1], [2; 8], "the rest of the group is in the backing");
        world.order(0, Order::StepDown);
        world.until("the backing is quiet", |world| world.reported(0, |report| *report == Report::BackingQuiet));
        // It goes on as a follower, says how far it is, and dies before the rest of its log was fetched.
        world.kill(0);
        world.start(0);
        world.lose = None;
        let own = world.seal_all(1, &[0, 1], 2, 2);
        assert!(own.fetch.is_some(), "the former owner has more");
        world.kill(0);
        let members = world.members(&[1]);
        world.begin_term(1, Own { members, ..own });
        world.until_serving();
        world.read_all();
        world.until_clean();
        assert_eq!(world.backing[0], [1; 8], "what was acknowledged is in the backing when no log has it");
    }
}

#[test]
pub fn a_volume_is_handed_over_when_it_is_quiet_and_nothing_is_lost() {
    for makes in KINDS {
        let mut world = two(FAIR, makes);
        for block in 0..20 {
            assert!(world.write(8 * block, 8));
        }
        world.run_ms(3);
        let to = world.own(1).node;
        world.order(0, Order::Quiesce { to: Some(to) });
        world.until("the volume is quiet", |world| world.reported(0, |report| *report == Report::Quiet));
        // Taken, and not carried out.
        assert!(world.write(8 * 40, 8));
        let late = world.request_last();
        // It can be asked of the next owner; of what is in the log nothing is given away.
        let ids: Vec<RequestId> = (0..=late).map(RequestId).collect();
        let volume = world.nodes[0].volume.as_mut().expect("it runs");
        let taken = volume.take_back(&ids);
        let [(id, Request::Write { payload, .. })] = &taken[..] else { panic!("{taken:?}") };
        assert_eq!((id.0, payload.len()), (late, 1));
        volume.return_frames(&[payload[0].frame]);
        assert!(volume.take_back(&ids).is_empty());
        let accepted = world.status(0).accepted;
        assert_eq!(world.status(1).held, accepted, "the next owner holds everything");
        world.order(0, Order::StepDown);
        world.until("the backing is quiet", |world| world.reported(0, |report| *report == Report::BackingQuiet));
        world.kill(0);
        world.start(0);
        world.take_over(1, &[0, 1], 2, 2);
        world.until_serving();
        world.read_all();
        assert!(world.write(0, 8));
        world.until_answered();
        world.check_copies(1, &[0]);
    }
}

#[test]
pub fn a_hand_over_that_was_not_to_be_goes_on_where_it_stopped() {
    let mut world = two(FAIR, [MEMORY, FLASH]);
    world.order(0, Order::Quiesce { to: None });
    world.until("the volume is quiet", |world| world.reported(0, |report| *report == Report::Quiet));
    assert!(world.write(0, 8));
    assert_eq!(world.open(), 1);
    world.order(0, Order::Resume);
    world.until_answered();
    world.read_all();
}

/// The first of three owners has died with a late write under way, until that time at the latest, and the second has taken over.
pub fn taken_over_in_quarantine(kind: Make) -> (World, u64) {
    let mut world = World::new(7, FAIR, &[kind, kind, kind]);
    world.found(0, &[0, 1, 2]);
    world.until_serving();
    assert!(world.write(0, 8));
    world.until_answered();
    world.backing_hangs = Some(0);
    world.run_ms(100);
    assert!(world.write(0, 8));
    world.until_answered();
    world.kill(0);
    let late = world.nodes[0].late_until;
    world.take_over_from(1, &[1, 2], 2, 2, &[1]);
    (world, late)
}

#[test]
pub fn a_second_take_over_in_quarantine_keeps_the_pins_of_the_first() {
    for kind in [MEMORY, FLASH] {
        let (mut world, late) = taken_over_in_quarantine(kind);
        world.until_serving();
        assert!(world.write(8, 8));
        world.until_answered();
        world.run_ms(100);
        world.kill(1);
        let late = late.max(world.nodes[1].late_until);
        world.take_over_from(2, &[2], 3, 3, &[1, 2]);
        world.until_serving();
        assert!(world.figures(2).mark.pins.iter().any(|pin| pin.term == Term(1)));
        let until = late.saturating_sub(world.now) / MS + 1;
        world.run_ms(until);
        world.read_all();
        world.order(2, Order::Proven);
        world.until("pins end", |world| world.reported(2, |report| *report == Report::PinsEnded));
        world.until_clean();
        assert_eq!(world.backing[0], [2; 8]);
    }
}

#[test]
pub fn a_learner_lets_go_of_what_a_zeroed_range_says_beside_its_pinned_blocks() {
    for kind in [MEMORY, FLASH] {
        let mut world = World::new(7, FAIR, &[kind, kind, kind]);
        world.found(0, &[0, 1]);
        world.until_serving();
        // The first owner's window has block 0. What follows in its group zeroes that and block 1, and writes block 1 again.
        world.backing_hangs = Some(0);
        assert!(world.write(0, 8));
        world.until_answered();
        world.run_ms(100);
        assert!(world.zero(0, 2));
        world.until_answered();
        assert!(world.write(8, 8));
        world.until_answered();
        world.kill(0);
        let late = world.nodes[0].late_until;
        world.take_over_from(1, &[1], 2, 2, &[1]);
        world.until_serving();
        world.learn_member(1, &[1], 2, 3);
        world.until("the learner lets go of block 1", |world| world.status(2).destaged == Lsn(3));
        // The second owner's window has another block, so what is pinned is looked at anew.
        world.backing_hangs = Some(1);
        assert!(world.write(8 * 5, 8));
        world.until_answered();
        world.run_ms(100);
        world.kill(1);
        let late = late.max(world.nodes[1].late_until);
        world.take_over_from(2, &[2], 3, 4, &[1, 2]);
        assert_eq!(world.figures(2).mark.pins.len(), 2, "two windows are pinned");
        world.until_serving();
        world.read_all();
        let until = late.saturating_sub(world.now) / MS + 1;
        world.run_ms(until);
        world.order(2, Order::Proven);
        world.until("pins end", |world| world.reported(2, |report| *report == Report::PinsEnded));
        world.until_clean();
        assert_eq!(world.backing[1], [2; 8], "nothing older was written over it");
    }
}
