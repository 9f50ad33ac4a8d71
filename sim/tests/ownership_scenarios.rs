//! What a fault meets (docs/protocol.md, the last table), as far as it is ownership's: one story each.

use forebay_core::cluster::*;
use forebay_core::ownership::*;
use forebay_core::types::*;
use forebay_sim::ownership::chaos::Chaos;
use forebay_sim::ownership::stories::*;
use forebay_sim::ownership::{MS, Setup, World};
use forebay_sim::random::Random;

const SECOND: u64 = 1_000 * MS;

/// A calm world in which node 1 serves, with as many members as are asked for.
fn whole(nodes: usize, peers: u32, flash: bool) -> World {
    let requested = Requested { peers, min_peers: 0, through: false, media: flash, tier_bytes: 1 << 20 };
    let setup = Setup { nodes, flash, requested, drift_ppm: 9_000, writes_die_with_host: false };
    let mut world = World::new(setup, Chaos::none(), Random::new(1), Rules::default(), false);
    world.command(0, Command::Open { accept_loss: false });
    assert!(world.run_until(10 * SECOND, |world| world.coordinator.record.members.len() == 1 + peers as usize));
    world.run_for(SECOND);
    assert_eq!(serves(&world), Some(1));
    world
}

/// Who serves, by its number from 1.
fn serves(world: &World) -> Option<usize> {
    world.owner().map(|(node, _)| node + 1)
}

fn members(world: &World) -> Vec<u64> {
    let mut members: Vec<u64> = world.coordinator.record.members.iter().map(|member| member.node.0).collect();
    members.sort();
    members
}

fn shown(world: &World, node: usize) -> (State, Reason) {
    let status = world.status(node - 1).expect("the node is up");
    (status.state, status.reason)
}

/// Runs until somebody but `former` serves, and gives the milliseconds that it took.
fn until_another_serves(world: &mut World, former: usize, most: u64) -> u64 {
    let start = world.now();
    assert!(world.run_until(most, |world| serves(world).is_some_and(|node| node != former)), "{}", world.stand());
    (world.now() - start) / MS
}

fn goes_on(world: &mut World) {
    let before = world.oracle.total;
    assert!(world.run_until(3 * SECOND, |world| world.oracle.total > before + 3), "{}", world.stand());
}

#[test]
fn an_owner_is_killed_and_a_member_serves_within_two_seconds_of_its_grace() {
    let mut world = whole(3, 1, false);
    world.kill(0);
    let took = until_another_serves(&mut world, 1, 20 * SECOND);
    assert!(took <= 7_000, "{took} ms");
    goes_on(&mut world);
}

#[test]
fn a_member_is_killed_and_writes_go_on_within_a_second() {
    let mut world = whole(2, 1, false);
    world.kill(1);
    let before = world.oracle.total;
    world.run_for(1_400 * MS);
    assert_eq!(members(&world), [1]);
    assert!(world.oracle.total > before + 3, "the member was dropped after 800 ms without progress (A3)");
}

#[test]
fn a_dropped_member_comes_back_as_a_new_incarnation() {
    let mut world = whole(2, 1, false);
    let before = world.coordinator.record.member(NodeId(2));
    world.cut(0, 1);
    world.cut(1, 0);
    world.run_for(3 * SECOND);
    assert_eq!(members(&world), [1]);
    world.mend();
    assert!(world.run_until(10 * SECOND, |world| members(world) == [1, 2]));
    assert_ne!(world.coordinator.record.member(NodeId(2)), before, "what it had is formatted (S7)");
    goes_on(&mut world);
}

#[test]
fn a_dropped_member_that_does_not_know_takes_over_nothing() {
    let mut world = whole(2, 1, false);
    world.cut(0, 1);
    world.cut(1, 0);
    world.run_for(20 * SECOND);
    assert_eq!(serves(&world), Some(1));
    assert_eq!(world.coordinator.record.term, Term(1));
    assert_eq!(shown(&world, 2).0, State::NoMember);
}

#[test]
fn an_owner_that_paused_past_its_lease_answers_nothing_more_and_steps_down() {
    let mut world = whole(3, 2, false);
    world.pause(0, 12 * SECOND);
    until_another_serves(&mut world, 1, 11 * SECOND);
    goes_on(&mut world);
    world.run_for(15 * SECOND);
    assert!(matches!(shown(&world, 1).0, State::NoMember | State::Learner | State::Following));
    assert_ne!(serves(&world), Some(1));
}

#[test]
fn an_owner_that_nobody_hears_is_replaced_also_when_it_hears_all() {
    let mut world = whole(3, 2, false);
    world.cut(0, 1);
    world.cut(0, 2);
    // It drops both, because their grants come for no beacon: whoever of them asks first finds the record changed.
    world.run_for(20 * SECOND);
    assert_eq!(serves(&world), Some(1), "the record says who owns, not the network");
    goes_on(&mut world);
}

#[test]
fn two_members_ask_at_once_and_one_transaction_wins() {
    let mut world = whole(3, 2, false);
    let term = world.coordinator.record.term;
    world.kill(0);
    until_another_serves(&mut world, 1, 20 * SECOND);
    assert_eq!(world.coordinator.record.term, Term(term.0 + 1));
    goes_on(&mut world);
    assert_eq!(members(&world), [2, 3]);
}

#[test]
fn a_transaction_that_was_given_up_takes_effect_and_nothing_stale_is_read() {
    given_up_transaction_takes_effect(Rules::default());
}

#[test]
fn an_owner_that_one_member_does_not_hear_reads_nothing_once_that_ones_lease_is_over() {
    owner_is_cut_off_from_one_member_and_the_coordinator(Rules::default());
}

#[test]
fn a_restarted_owner_takes_over_from_itself_without_waiting_for_grace() {
    let mut world = whole(2, 1, false);
    world.kill(0);
    world.run_for(200 * MS);
    world.start(0);
    assert!(world.run_until(2 * SECOND, |world| serves(world) == Some(1)), "{}", world.stand());
    assert_eq!(world.coordinator.record.term, Term(2));
    assert_eq!(members(&world), [1, 2]);
    assert!(world.run_until(5 * SECOND, |world| world.coordinator.record.unfenced.is_empty()));
}

#[test]
fn a_member_whose_memory_is_gone_is_no_member() {
    let mut world = whole(2, 1, false);
    world.cut_power(1);
    world.kill(0);
    world.start(1);
    world.run_for(20 * SECOND);
    assert_eq!(serves(&world), None);
    assert_eq!(shown(&world, 2).0, State::NoMember);
    world.start(0);
    assert!(world.run_until(20 * SECOND, |world| serves(world) == Some(1) && members(world) == [1, 2]));
}

#[test]
fn a_member_on_flash_that_lost_power_waits_while_an_intact_one_may_live() {
    let mut world = whole(2, 1, true);
    world.cut_power(1);
    world.kill(0);
    world.start(1);
    world.run_for(20 * SECOND);
    assert_eq!(shown(&world, 2), (State::NoMember, Reason::EarlierLife));
    world.start(0);
    assert!(world.run_until(20 * SECOND, |world| serves(world) == Some(1) && members(world) == [1, 2]));
}

#[test]
fn power_is_cut_everywhere_and_the_longest_tail_that_is_left_is_served() {
    let mut world = whole(3, 2, true);
    (0..3).for_each(|node| world.cut_power(node));
    (0..3).for_each(|node| world.start(node));
    // That nothing flushed is lost, the world itself checks.
    assert!(world.run_until(30 * SECOND, |world| serves(world).is_some()), "{}", world.stand());
    goes_on(&mut world);
    assert!(world.run_until(30 * SECOND, |world| members(world) == [1, 2, 3]));
}

#[test]
fn a_volume_whose_logs_are_gone_opens_only_by_the_operators_word() {
    let mut world = whole(2, 1, false);
    (0..2).for_each(|node| world.cut_power(node));
    (0..2).for_each(|node| world.start(node));
    world.run_for(20 * SECOND);
    assert_eq!(shown(&world, 1), (State::NoMember, Reason::LossSuspected));
    let refused = world.command(0, Command::Open { accept_loss: false });
    world.run_for(SECOND);
    assert_eq!(world.answers[&refused], Err(CommandError::LossSuspected));
    world.command(0, Command::Open { accept_loss: true });
    assert!(world.run_until(10 * SECOND, |world| serves(world) == Some(1)));
}

/// Two nodes whose memory is gone, with a write of the last owner under way; a loss is not accepted before it is known to
/// be none any more.
fn whole_loss_with_a_late_write() -> World {
    let mut world = whole(2, 1, false);
    world.writes_take = Some(30 * SECOND);
    // What was under way before ends as soon as ever.
    world.run_for(SECOND);
    assert!(world.run_until(5 * SECOND, |world| world.is_writing(Term(1))));
    (0..2).for_each(|node| world.cut_power(node));
    (0..2).for_each(|node| world.start(node));
    world.run_for(10 * SECOND);
    let refused = world.command(0, Command::Open { accept_loss: true });
    world.run_for(2 * SECOND);
    assert_eq!(world.answers[&refused], Err(CommandError::NeedsProof));
    assert!(world.is_writing(Term(1)));
    world
}

#[test]
fn a_loss_is_not_accepted_while_the_lost_owners_last_write_may_land() {
    let mut world = whole_loss_with_a_late_write();
    world.run_for(30 * SECOND);
    world.command(0, Command::Open { accept_loss: true });
    assert!(world.run_until(10 * SECOND, |world| serves(world) == Some(1)), "{}", world.stand());
    goes_on(&mut world);
}

#[test]
fn a_loss_is_accepted_when_the_operator_has_fenced_the_lost_owner() {
    let mut world = whole_loss_with_a_late_write();
    world.drop_writes();
    let fenced = world.command(0, Command::Fenced);
    let opened = world.command(0, Command::Open { accept_loss: true });
    assert!(world.run_until(10 * SECOND, |world| serves(world) == Some(1)), "{}", world.stand());
    assert_eq!((world.answers[&fenced], world.answers[&opened]), (Ok(()), Ok(())));
    goes_on(&mut world);
}

#[test]
fn a_loss_is_not_accepted_while_a_member_is_alive() {
    let mut world = whole(3, 1, false);
    let id = world.command(2, Command::Open { accept_loss: true });
    world.run_for(3 * SECOND);
    assert_eq!(world.answers[&id], Err(CommandError::MemberAlive));
    assert_eq!(serves(&world), Some(1));
}

#[test]
fn a_question_to_learn_that_arrives_twice_formats_nothing() {
    let mut world = whole(2, 1, false);
    // A learner that no record names yet: its owner's proposal is on its way.
    world.kill(1);
    assert!(world.run_until(5 * SECOND, |world| members(world) == [1]));
    world.start(1);
    world.coordinator.late_by = Some(3 * SECOND);
    world.run_for(3 * SECOND);
    let taught = world.own(1);
    world.ask_to_learn_again(1);
    world.run_for(SECOND);
    assert_eq!(world.own(1), taught);
    world.coordinator.late_by = None;
    assert!(world.run_until(10 * SECOND, |world| members(world) == [1, 2]));
    assert_eq!(world.coordinator.record.member(NodeId(2)), taught);
}

#[test]
fn a_coordinator_that_is_away_stops_changes_and_not_io() {
    let mut world = whole(2, 1, false);
    world.coordinator.away_until = world.now() + 30 * SECOND;
    world.run_for(20 * SECOND);
    assert_eq!(serves(&world), Some(1));
    goes_on(&mut world);
    assert_eq!(shown(&world, 1).1, Reason::CoordinatorAway);
}

#[test]
fn a_member_lost_while_the_coordinator_is_away_stops_writes_until_it_answers() {
    let mut world = whole(2, 1, false);
    world.coordinator.away_until = world.now() + 10 * SECOND;
    world.kill(1);
    world.run_for(2 * SECOND);
    let before = world.oracle.total;
    world.run_for(5 * SECOND);
    assert_eq!(world.oracle.total, before, "both sets are asked while the change is undecided (C4)");
    assert_eq!(
        serves(&world).and(world.status(0).and_then(|status| status.lease)),
        None,
        "and no read without its lease"
    );
    world.run_for(8 * SECOND);
    goes_on(&mut world);
}

/// Proves N-M-9, N-F-9, N-X-9: ownership does not know what its tier is.
#[test]
fn a_coordinator_that_went_back_is_noticed_and_its_owner_writes_the_record_anew() {
    let mut world = whole(3, 2, false);
    world.kill(2);
    assert!(world.run_until(5 * SECOND, |world| members(world) == [1, 2]));
    world.start(2);
    assert!(world.run_until(20 * SECOND, |world| members(world) == [1, 2, 3]));
    world.run_for(SECOND);
    let version = world.coordinator.record.version();
    world.go_back(1);
    assert!(world.coordinator.went_back());
    world.run_for(6 * SECOND);
    assert_eq!(shown(&world, 1), (State::Owner, Reason::RecordWentBack));
    goes_on(&mut world);
    let id = world.command(0, Command::RestoreRecord);
    world.run_for(SECOND);
    assert_eq!(world.answers[&id], Ok(()));
    assert!(world.coordinator.record.version() > version);
    assert_eq!(members(&world), [1, 2, 3]);
    assert_eq!(shown(&world, 1).1, Reason::AsItShouldBe);
}

#[test]
fn a_hand_over_loses_nothing_and_leaves_nobody_unfenced() {
    let mut world = whole(2, 1, false);
    let id = world.command(0, Command::HandOver { to: NodeId(2) });
    let took = until_another_serves(&mut world, 1, 5 * SECOND);
    assert!(took <= 1_000, "{took} ms");
    assert_eq!(world.answers[&id], Ok(()));
    assert!(world.coordinator.record.unfenced.is_empty());
    assert_eq!(members(&world), [1, 2]);
    goes_on(&mut world);
}

#[test]
fn a_hand_over_whose_answer_is_lost_is_served_by_nobody_until_it_is_decided() {
    let mut world = whole(2, 1, false);
    world.command(0, Command::HandOver { to: NodeId(2) });
    world.coordinator.away_until = world.now() + 8 * SECOND;
    world.run_for(2 * SECOND);
    let before = world.oracle.total;
    world.run_for(4 * SECOND);
    assert_eq!((serves(&world), world.oracle.total), (None, before));
    until_another_serves(&mut world, 1, 20 * SECOND);
    goes_on(&mut world);
}

#[test]
fn a_hand_over_goes_only_to_a_member() {
    let mut world = whole(3, 1, false);
    let outsider = (1..=3).find(|node| !members(&world).contains(node)).expect("one of three is no member");
    let id = world.command(0, Command::HandOver { to: NodeId(outsider) });
    let not_owner = world.command(1, Command::Release);
    world.run_for(SECOND);
    assert_eq!(world.answers[&id], Err(CommandError::NotMember));
    assert_eq!(world.answers[&not_owner], Err(CommandError::NotOwner));
    assert_eq!(serves(&world), Some(1));
}

#[test]
fn a_copy_of_a_node_that_is_about_to_leave_goes_when_another_has_its_place() {
    let mut world = whole(3, 1, false);
    let leaving = members(&world).into_iter().find(|node| *node != 1).expect("it has a copy");
    world.leave(leaving as usize - 1, true);
    let moved = world.run_until(20 * SECOND, |world| {
        assert!(members(world).len() >= 2, "a copy is given up before there is another");
        !members(world).contains(&leaving)
    });
    assert!(moved, "{}", world.stand());
    assert_eq!(members(&world).len(), 2);
    goes_on(&mut world);
}

#[test]
fn a_node_that_is_about_to_leave_stays_a_member_where_nobody_can_have_its_place() {
    let mut world = whole(2, 1, false);
    world.leave(1, true);
    world.run_for(20 * SECOND);
    assert_eq!(members(&world), [1, 2]);
    goes_on(&mut world);
}

#[test]
fn an_owner_that_is_about_to_leave_gets_one_copy_more_and_goes_when_it_has_handed_over() {
    let mut world = whole(3, 1, false);
    world.leave(0, true);
    assert!(world.run_until(20 * SECOND, |world| members(world).len() == 3), "{}", world.stand());
    world.run_for(5 * SECOND);
    assert_eq!((members(&world).len(), serves(&world)), (3, Some(1)));
    world.command(0, Command::HandOver { to: NodeId(2) });
    assert!(world.run_until(20 * SECOND, |world| serves(world) == Some(2) && members(world).len() == 2));
    assert!(!members(&world).contains(&1), "{}", world.stand());
    goes_on(&mut world);
}

#[test]
fn an_outsider_becomes_the_owner_by_being_made_a_member_first() {
    let mut world = whole(3, 1, false);
    let outsider = (1..=3).find(|node| !members(&world).contains(node)).expect("one of three is no member");
    let recruited = world.command(0, Command::Recruit { node: NodeId(outsider) });
    assert!(world.run_until(20 * SECOND, |world| world.answers.contains_key(&recruited)));
    assert_eq!((world.answers[&recruited], members(&world).len()), (Ok(()), 3));
    world.command(0, Command::HandOver { to: NodeId(outsider) });
    assert!(world.run_until(20 * SECOND, |world| serves(world) == Some(outsider as usize)), "{}", world.stand());
    assert!(world.run_until(30 * SECOND, |world| members(world).len() == 2), "{}", world.stand());
    goes_on(&mut world);
}

#[test]
fn an_outsider_that_is_not_handed_to_goes_again_and_one_that_does_not_answer_is_given_up() {
    let mut world = whole(3, 1, false);
    let outsider = (1..=3).find(|node| !members(&world).contains(node)).expect("one of three is no member");
    let recruited = world.command(0, Command::Recruit { node: NodeId(outsider) });
    assert!(world.run_until(20 * SECOND, |world| members(world).len() == 3));
    assert!(world.run_until(30 * SECOND, |world| members(world).len() == 2), "{}", world.stand());
    assert_eq!(world.answers[&recruited], Ok(()));
    let outsider = (1..=3).find(|node| !members(&world).contains(node)).expect("one of three is no member");
    world.kill(outsider as usize - 1);
    let in_vain = world.command(0, Command::Recruit { node: NodeId(outsider) });
    let no_owner = world.command(1, Command::Recruit { node: NodeId(outsider) });
    world.run_for(30 * SECOND);
    assert_eq!(world.answers[&in_vain], Err(CommandError::NotRecruited));
    assert_eq!(world.answers[&no_owner], Err(CommandError::NotOwner));
    goes_on(&mut world);
}

#[test]
fn a_member_that_does_not_reach_the_backing_is_custodian_until_somebody_does() {
    let mut world = whole(2, 1, false);
    world.reach(1, false);
    world.kill(0);
    world.run_for(15 * SECOND);
    assert_eq!((shown(&world, 2).0, serves(&world)), (State::Custodian, None));
    // The former owner is back, with the backing that is its own disk.
    world.start(0);
    assert!(world.run_until(30 * SECOND, |world| serves(world) == Some(1)), "{}", world.stand());
    goes_on(&mut world);
}

#[test]
fn an_owner_whose_tier_fails_gives_way_without_waiting_for_grace() {
    let mut world = whole(2, 1, false);
    world.fail_tier(0);
    let took = until_another_serves(&mut world, 1, 10 * SECOND);
    assert!(took <= 2_000, "{took} ms");
    goes_on(&mut world);
}

#[test]
fn a_second_take_over_in_quarantine_needs_proof_for_both_former_owners() {
    let mut world = whole(3, 2, false);
    world.pause(0, 100 * SECOND);
    until_another_serves(&mut world, 1, 20 * SECOND);
    let second = serves(&world).expect("another serves");
    world.pause(second - 1, 100 * SECOND);
    assert!(
        world.run_until(30 * SECOND, |world| serves(world).is_some_and(|node| node != second)),
        "{}",
        world.stand()
    );
    assert_eq!(world.coordinator.record.unfenced.len(), 2);
    world.kill(0);
    world.run_for(5 * SECOND);
    assert_eq!(world.coordinator.record.unfenced.len(), 2, "a proof for one ends nothing (T8)");
    world.kill(second - 1);
    assert!(world.run_until(5 * SECOND, |world| world.coordinator.record.unfenced.is_empty()));
}

#[test]
fn a_fifth_owner_that_dies_while_it_writes_the_pinned_ranges_again_is_asked_about_as_well() {
    fifth_owner_dies_while_it_writes_the_pinned_ranges_again(Rules::default());
}

#[test]
fn a_write_through_volume_is_opened_elsewhere_only_with_proof_for_its_owner() {
    let requested = Requested { peers: 0, min_peers: 0, through: true, media: false, tier_bytes: 1 << 20 };
    let setup = Setup { nodes: 2, flash: false, requested, drift_ppm: 0, writes_die_with_host: false };
    let mut world = World::new(setup, Chaos::none(), Random::new(1), Rules::default(), false);
    world.command(0, Command::Open { accept_loss: false });
    assert!(world.run_until(10 * SECOND, |world| serves(world) == Some(1)));
    world.run_for(2 * SECOND);
    world.pause(0, 60 * SECOND);
    world.run_for(2 * SECOND);
    let refused = world.command(1, Command::Open { accept_loss: false });
    world.run_for(2 * SECOND);
    assert_eq!(world.answers[&refused], Err(CommandError::NeedsProof));
    world.kill(0);
    world.run_for(10 * SECOND);
    world.command(1, Command::Open { accept_loss: false });
    assert!(world.run_until(10 * SECOND, |world| serves(world) == Some(2)), "{}", world.stand());
    goes_on(&mut world);
}

#[test]
fn a_released_volume_is_opened_by_any_node() {
    let mut world = whole(3, 1, false);
    let id = world.command(0, Command::Release);
    assert!(world.run_until(10 * SECOND, |world| world.coordinator.record.log == LogState::Released));
    world.run_for(SECOND);
    assert_eq!((world.answers[&id], serves(&world)), (Ok(()), None));
    world.run_for(20 * SECOND);
    assert_eq!(serves(&world), None, "nobody serves it by itself");
    world.command(2, Command::Open { accept_loss: false });
    assert!(world.run_until(10 * SECOND, |world| serves(world) == Some(3)));
    goes_on(&mut world);
}

#[test]
fn a_volume_in_quarantine_is_not_released() {
    let mut world = whole(2, 1, false);
    world.pause(0, 100 * SECOND);
    until_another_serves(&mut world, 1, 20 * SECOND);
    let id = world.command(1, Command::Release);
    world.run_for(SECOND);
    assert_eq!(world.answers[&id], Err(CommandError::Unfenced));
    let id = world.command(1, Command::Fenced);
    world.kill(0);
    assert!(world.run_until(5 * SECOND, |world| world.coordinator.record.unfenced.is_empty()));
    assert_eq!(world.answers[&id], Ok(()));
}

#[test]
fn fewer_peers_are_asked_for_and_the_newest_member_goes_and_may_come_back_at_once() {
    let mut world = whole(3, 2, false);
    for _ in 0..4 {
        world.request(Requested { peers: 1, ..world.setup.requested });
        assert!(world.run_until(3 * SECOND, |world| members(world).len() == 2));
        world.request(Requested { peers: 2, ..world.setup.requested });
        // Whoever was dropped for what it did would be kept out for a second, and then for two, four, eight.
        assert!(world.run_until(900 * MS, |world| members(world) == [1, 2, 3]), "{}", world.stand());
    }
    goes_on(&mut world);
}

#[test]
fn the_operators_word_for_a_loss_is_not_taken_for_a_later_one() {
    word_for_a_loss_is_read_after_another_one(Rules::default());
}

#[test]
fn a_volume_becomes_write_through_and_back_under_load() {
    let mut world = whole(2, 1, false);
    world.request(Requested { through: true, ..world.setup.requested });
    assert!(world.run_until(5 * SECOND, |world| world.coordinator.record.log == LogState::Through));
    goes_on(&mut world);
    world.request(Requested { through: false, ..world.setup.requested });
    assert!(world.run_until(5 * SECOND, |world| world.coordinator.record.log == LogState::Needed));
    goes_on(&mut world);
}
