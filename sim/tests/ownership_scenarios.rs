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
    let requested =
        Requested { peers, min_peers: 0, through: false, media: false, flushed_readable: true, tier_bytes: 1 << 20 };
    let setup = Setup { nodes, flash, requested, drift_ppm: 9_000, writes_die_with_host: false, flush_held: false };
    let mut world = World::new(setup, Chaos::none(), Random::new(1), Rules::default(), false);
    world.command(0, Command::Open { accept_loss: false });
    assert!(world.run_until(10 * SECOND, |world| world.coordinator.record.members.len() == 1 + peers as usize));
    world.run_for(SECOND);
    assert_eq!(serves(&world), Some(1));
    world
}

/// Two members on flash, while a node is registered that reads no record which says what flushes have promised.
fn whole_of_an_upgrade() -> World {
    let requested = Requested {
        peers: 1,
        min_peers: 0,
        through: false,
        media: false,
        flushed_readable: false,
        tier_bytes: 1 << 20,
    };
    let setup =
        Setup { nodes: 2, flash: true, requested, drift_ppm: 0, writes_die_with_host: false, flush_held: false };
    let mut world = World::new(setup, Chaos::none(), Random::new(1), Rules::default(), false);
    world.command(0, Command::Open { accept_loss: false });
    assert!(world.run_until(10 * SECOND, |world| world.coordinator.record.members.len() == 2));
    world.run_for(2 * SECOND);
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
    let fenced = fenced(&mut world, 0);
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
    let id = restore(&mut world, 0);
    world.run_for(SECOND);
    assert_eq!(world.answers[&id], Ok(()));
    assert!(world.coordinator.record.version() > version);
    assert_eq!(members(&world), [1, 2, 3]);
    assert_eq!(shown(&world, 1).1, Reason::AsItShouldBe);
}

/// N-M-9: acknowledged writes were lost by it.
#[test]
fn a_member_that_missed_its_own_drop_takes_nothing_over_after_a_restore() {
    member_that_missed_its_own_drop_comes_back_after_a_restore(Rules::default());
}

/// N-M-9: two owners acknowledged by it.
#[test]
fn a_deposed_owner_that_comes_back_after_a_restore_goes_on_with_nothing() {
    deposed_owner_comes_back_after_a_restore_and_hears_nobody(Rules::default());
}

/// Found by `restored_steps`: the drop that it had decided before the restore was sent to what came after it.
#[test]
fn a_deposed_owner_hears_from_the_coordinator_that_it_is_another_one() {
    deposed_owner_comes_back_to_another_coordinator(Rules::default());
}

#[test]
fn a_deposed_owner_that_is_back_waits_for_the_nodes_that_are_back_as_well() {
    deposed_owner_hears_the_coordinator_before_the_nodes(Rules::default());
}

/// C6: each rewind has a name of its own.
#[test]
fn a_second_restore_is_not_taken_for_one_that_was_settled() {
    second_restore_is_noticed_by_who_missed_the_first(Rules::default());
}

#[test]
fn a_deposed_owner_that_is_told_of_a_higher_term_stops_without_the_coordinator() {
    deposed_owner_hears_of_a_higher_term_from_a_third_node(Rules::default());
}

/// N-M-9: it made two owners.
#[test]
fn a_record_is_not_written_anew_at_a_node_that_knows_less_than_another() {
    operator_speaks_at_the_node_that_knows_less(Rules::default());
}

/// T6: another owner has become unfenced since the operator has looked.
#[test]
fn the_operators_word_is_about_the_terms_that_he_has_seen() {
    word_about_terms_that_are_not_those_in_quarantine(Rules::default());
}

#[test]
fn a_grant_that_is_read_after_a_pause_is_as_old_as_its_beacon() {
    grant_is_read_after_a_pause(Rules::default());
}

#[test]
fn a_member_that_is_put_back_and_told_never_owns_what_it_lacks() {
    member_is_put_back_and_its_owner_dies(Rules::default());
}

#[test]
fn an_owner_that_is_put_back_gives_way_to_the_member_that_knows_more() {
    owner_is_put_back_in_its_term(Rules::default());
}

#[test]
fn of_two_candidates_the_one_that_was_put_back_is_not_the_next_owner() {
    candidate_is_put_back(Rules::default());
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
    let end = world.now() + SECOND;
    while world.coordinator.record.owner != NodeId(2) {
        assert!(world.now() < end, "it is not decided");
        world.run_for(SECOND / 1000);
    }
    world.coordinator.away_until = world.now() + 8 * SECOND;
    world.run_for(2 * SECOND);
    let before = world.oracle.total;
    world.run_for(4 * SECOND);
    assert_eq!((serves(&world), world.oracle.total), (None, before));
    until_another_serves(&mut world, 1, 20 * SECOND);
    goes_on(&mut world);
}

#[test]
fn a_hand_over_that_nobody_was_sent_keeps_clients_waiting_for_two_seconds() {
    let mut world = whole(2, 1, false);
    let id = world.command(0, Command::HandOver { to: NodeId(2) });
    world.coordinator.away_until = world.now() + 8 * SECOND;
    world.run_for(3 * SECOND);
    assert_eq!(serves(&world), Some(1));
    assert_eq!(world.answers[&id], Err(CommandError::TimedOut));
    let before = world.oracle.total;
    world.run_for(2 * SECOND);
    assert!(world.oracle.total > before, "its clients are served");
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
    let requested =
        Requested { peers: 0, min_peers: 0, through: true, media: false, flushed_readable: true, tier_bytes: 1 << 20 };
    let setup =
        Setup { nodes: 2, flash: false, requested, drift_ppm: 0, writes_die_with_host: false, flush_held: false };
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
    let id = fenced(&mut world, 1);
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
fn the_record_promises_media_only_when_they_have_what_was_flushed_for_less() {
    flushes_are_to_promise_media_that_hang(Rules::default());
}

#[test]
fn after_a_power_cut_logs_count_for_what_the_record_promised_and_not_for_what_is_asked_for() {
    power_is_cut_before_the_record_promises_media(Rules::default());
}

#[test]
fn no_loss_is_accepted_while_a_log_is_left() {
    loss_is_to_be_accepted_while_a_log_is_left(Rules::default());
}

#[test]
fn a_log_that_misses_the_first_question_is_not_given_up() {
    question_about_a_log_is_lost(Rules::default());
}

#[test]
fn a_log_that_is_back_before_the_change_is_sent_is_not_given_up() {
    log_answers_before_it_is_given_up(Rules::default());
}

/// A lone owner has nobody to ask.
#[test]
fn a_lone_owner_on_flash_opens_by_itself_after_a_power_cut() {
    let mut world = whole(2, 1, true);
    world.request(Requested { peers: 0, ..world.setup.requested });
    assert!(world.run_until(5 * SECOND, |world| members(world) == [1]), "{}", world.stand());
    world.cut_power(0);
    world.start(0);
    assert!(world.run_until(10 * SECOND, |world| serves(world) == Some(1)), "{}", world.stand());
    goes_on(&mut world);
}

/// Nobody has to say so (T11).
#[test]
fn a_lone_owner_opens_by_itself_where_its_record_said_that_no_log_is_needed() {
    lone_owner_loses_its_memory(Rules::default());
}

/// The record says that no log is needed, so nobody has to say so (T11).
#[test]
fn a_lone_owner_that_is_stopped_in_order_opens_by_itself() {
    lone_owner_is_stopped_in_order(Rules::default());
}

/// T11: after write-through a log that has lost its end is older than the backing. It is not read, and opening waits for nobody.
#[test]
fn a_lone_owner_on_flash_opens_by_itself_after_write_through() {
    let mut world = whole(2, 1, true);
    world.request(Requested { peers: 0, through: true, ..world.setup.requested });
    let alone = |world: &mut World| members(world) == [1] && world.coordinator.record.log == LogState::Through;
    assert!(world.run_until(10 * SECOND, alone), "{}", world.stand());
    world.cut_power(0);
    world.start(0);
    assert!(world.run_until(15 * SECOND, |world| serves(world) == Some(1)), "{}", world.stand());
    goes_on(&mut world);
}

#[test]
fn a_candidate_that_has_sent_nothing_gives_way_to_an_owner_that_is_heard() {
    owner_is_heard_before_its_candidate_may_ask(Rules::default());
}

#[test]
fn a_lone_owner_whose_lock_is_taken_from_it_shows_nothing_more() {
    lock_of_a_lone_owner_is_taken_from_it(Rules::default());
}

#[test]
fn a_lone_owner_without_a_coordinator_hears_of_its_successor_from_others() {
    lone_owner_hears_of_its_successor_from_others(Rules::default());
}

#[test]
fn a_deposed_owner_hears_a_higher_term_in_a_question_too() {
    deposed_owner_is_only_asked_a_question(Rules::default());
}

/// A record that says nothing of flushes is of a time in which the definition had to do.
#[test]
fn while_an_older_node_is_registered_the_record_stays_as_it_is() {
    let mut world = whole(2, 1, true);
    assert_eq!(world.coordinator.record.flushed, Flushed::Durable);
    world.request(Requested { flushed_readable: false, ..world.setup.requested });
    world.ask_of_flushes(true);
    assert!(
        world.run_until(5 * SECOND, |world| world.coordinator.record.flushed == Flushed::Held),
        "it says so already"
    );

    let mut world = whole_of_an_upgrade();
    assert_eq!(world.coordinator.record.flushed, Flushed::Unrecorded);
    world.request(Requested { flushed_readable: true, ..world.setup.requested });
    assert!(world.run_until(5 * SECOND, |world| world.coordinator.record.flushed == Flushed::Durable));

    let mut world = whole_of_an_upgrade();
    (0..2).for_each(|node| world.cut_power(node));
    (0..2).for_each(|node| world.start(node));
    world.run_for(20 * SECOND);
    assert_eq!((serves(&world), shown(&world, 1).1), (None, Reason::UnsyncedLost));
    world.command(1, Command::TakeSynced);
    assert!(world.run_until(10 * SECOND, |world| serves(world) == Some(2)), "{}", world.stand());
    goes_on(&mut world);
}

#[test]
fn the_operators_word_for_a_loss_is_not_taken_for_a_later_one() {
    word_for_a_loss_is_read_after_another_one(Rules::default());
}

#[test]
fn the_operators_word_for_a_loss_goes_with_no_take_over_that_comes_first() {
    take_over_comes_before_the_opening_that_was_asked_for(Rules::default());
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

/// The operator has the record written anew at this node, as it is known there.
fn restore(world: &mut World, node: usize) -> ControlId {
    let known = world.status(node).and_then(|status| status.known).expect("it knows a record");
    world.command(node, Command::RestoreRecord { saw: known.version() })
}

/// The operator's word about all whom this node shows to be without proof.
fn fenced(world: &mut World, node: usize) -> ControlId {
    let formers = world.status(node).expect("it is up").may_be_called_fenced;
    world.command(node, Command::Fenced { terms: formers.iter().map(|former| former.term).collect() })
}

#[test]
fn while_nothing_can_be_decided_a_hand_over_keeps_no_client_waiting() {
    hand_over_while_nothing_can_be_decided(Rules::default());
    coordinator_goes_back_while_a_volume_is_quiet(Rules::default());
}

#[test]
fn a_learner_that_is_lost_before_it_could_be_a_member_is_waited_for_no_more() {
    learner_is_lost_before_it_may_be_made_a_member(Rules::default());
}

#[test]
fn the_late_word_of_a_former_owner_deposes_nobody() {
    word_of_a_former_owner_arrives_when_another_one_serves(Rules::default());
}

#[test]
fn an_owner_that_is_put_back_to_when_it_was_alone_gives_way_to_the_member_that_it_does_not_know() {
    owner_is_put_back_to_when_it_was_alone(Rules::default());
}

#[test]
fn an_owner_that_is_put_back_finds_its_own_record_and_gives_way() {
    owner_is_put_back_and_does_not_hear_its_member(Rules::default());
}

#[test]
fn a_hand_over_of_which_the_owner_hears_nothing_is_carried_out_without_it() {
    owner_never_hears_that_its_hand_over_was_recorded(Rules::default());
}

#[test]
fn what_is_said_of_a_proposal_that_was_taken_back_counts_for_no_other() {
    one_proposal_is_covered_when_another_has_taken_its_place(Rules::default());
}

/// Found by seeds of whole nodes: a term served after the next one did, though it could answer nobody.
#[test]
fn a_new_owner_that_stood_still_serves_under_a_lease_or_not_at_all() {
    new_owner_stands_still_while_its_backing_is_opened(Rules::default());
}

#[test]
fn what_a_machine_was_before_it_owned_the_volume_proves_nothing() {
    answer_of_an_earlier_boot_comes_after_the_next_one_owns(Rules::default());
}
