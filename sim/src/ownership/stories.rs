//! Stories that random seeds hardly ever tell. Each holds with all rules, and fails when the rule it is about is left out.

mod restores;

use super::chaos::Chaos;
use super::{MS, Setup, World};
use crate::random::Random;
use forebay_core::api::Report;
use forebay_core::cluster::*;
use forebay_core::message::*;
use forebay_core::ownership::*;
use forebay_core::record::UNFENCED_MAX;
use forebay_core::types::*;
pub use restores::*;

/// One of them; it panics where a promise is broken.
pub type Story = fn(Rules);

/// All of them, by the rule that each is about.
pub const ALL: [(&str, Story); 44] = [
    ("serves_under_old_lease", given_up_transaction_takes_effect),
    ("lease_of_latest", owner_is_cut_off_from_one_member_and_the_coordinator),
    ("rewrites_unlisted", fifth_owner_dies_while_it_writes_the_pinned_ranges_again),
    ("keeps_old_word", word_for_a_loss_is_read_after_another_one),
    ("word_for_any_change", take_over_comes_before_the_opening_that_was_asked_for),
    ("covers_the_next", one_proposal_is_covered_when_another_has_taken_its_place),
    ("durable_uncovered", flushes_are_to_promise_media_that_hang),
    ("believes_definition", power_is_cut_before_the_record_promises_media),
    ("gives_up_answering_logs", loss_is_to_be_accepted_while_a_log_is_left),
    ("asks_members_once", question_about_a_log_is_lost),
    ("gives_up_what_answers_late", log_answers_before_it_is_given_up),
    ("goes_on_unasked", member_that_missed_its_own_drop_comes_back_after_a_restore),
    ("veto_ignored", member_that_missed_its_own_drop_comes_back_after_a_restore),
    ("sends_unlooked", deposed_owner_comes_back_to_another_coordinator),
    ("silence_counts_at_once", deposed_owner_hears_the_coordinator_before_the_nodes),
    ("rewind_not_told", deposed_owner_comes_back_after_a_restore_and_hears_nobody),
    ("rewind_waits_for_nobody", deposed_owner_comes_back_after_a_restore_and_hears_nobody),
    ("rewinds_are_counted", second_restore_is_noticed_by_who_missed_the_first),
    ("rewind_without_room_is_lost", coordinator_goes_back_more_often_than_names_find_room),
    ("goes_on_when_told", deposed_owner_hears_of_a_higher_term_from_a_third_node),
    ("looks_for_well_member_once", tier_fails_while_the_member_is_cut_off),
    ("drops_in_silence", tier_fails_while_a_drop_waits_to_be_sent),
    ("trusts_reopened_tier", tier_that_failed_has_forgotten_what_it_never_synced),
    ("word_for_all_terms", word_about_terms_that_are_not_those_in_quarantine),
    ("lease_from_arrival", grant_is_read_after_a_pause),
    ("goes_on_in_former_state", member_is_put_back_and_its_owner_dies),
    ("grant_from_anybody", node_without_a_part_grants_what_was_never_sent),
    ("restores_the_older", operator_speaks_at_the_node_that_knows_less),
    ("takes_over_for_anybody", word_of_a_former_owner_arrives_when_another_one_serves),
    ("stays_sealed", owner_is_heard_before_its_candidate_may_ask),
    ("quiesces_undecided", hand_over_while_nothing_can_be_decided),
    ("keeps_unsent_goal", coordinator_goes_back_while_a_volume_is_quiet),
    ("keeps_undecided_goal", owner_never_hears_that_its_hand_over_was_recorded),
    ("keeps_unsent_change", learner_is_lost_before_it_may_be_made_a_member),
    ("goes_on_beside_unknown_record", owner_is_put_back_and_does_not_hear_its_member),
    ("goes_on_without_lock", lock_of_a_lone_owner_is_taken_from_it),
    ("alone_asks_nobody", lone_owner_hears_of_its_successor_from_others),
    ("hears_terms_in_its_own_only", deposed_owner_is_only_asked_a_question),
    ("believes_earlier_boot", answer_of_an_earlier_boot_comes_after_the_next_one_owns),
    ("opens_alone_with_loss", lone_owner_loses_its_memory),
    ("believes_older_backing", backing_of_a_term_whose_lock_is_lost_opens_late),
    ("serves_without_lease", new_owner_stands_still_while_its_backing_is_opened),
    ("awaits_backing_for_ever", backing_of_a_new_owner_does_not_answer),
    ("asks_backing_once", backing_of_a_new_owner_cannot_be_opened_at_first),
];

/// A calm world in which node 1 serves, with as many members as there are nodes.
fn whole(nodes: usize, rules: Rules) -> World {
    whole_of(Setup { flash: false, ..on_flash(nodes, nodes) }, rules)
}

fn on_flash(nodes: usize, members: usize) -> Setup {
    let (peers, tier_bytes) = (members as u32 - 1, 1 << 20);
    let requested = Requested { peers, min_peers: 0, through: false, media: false, flushed_readable: true, tier_bytes };
    Setup { nodes, flash: true, requested, drift_ppm: 0, writes_die_with_host: false, flush_held: false }
}

/// The same with so many copies beside the owner's.
fn whole_with(nodes: usize, peers: usize, rules: Rules) -> World {
    whole_of(Setup { flash: false, ..on_flash(nodes, peers + 1) }, rules)
}

fn whole_of(setup: Setup, rules: Rules) -> World {
    let peers = setup.requested.peers as usize;
    let mut world = World::new(setup, Chaos::none(), Random::new(1), rules, false);
    world.command(0, Command::Open { accept_loss: false });
    let whole = world.run_until(10_000 * MS, |world| world.coordinator.record.members.len() == peers + 1);
    assert!(whole, "{}", world.stand());
    world.run_for(1_000 * MS);
    world
}

fn until_node_2_serves(world: &mut World) {
    let serves = world.run_until(12_000 * MS, |world| world.owner().is_some_and(|(node, _)| node == 1));
    assert!(serves, "{}", world.stand());
    world.run_for(3_000 * MS);
}

/// What the coordinator shows is that of a moment, which a backup was made of.
fn restore_backup(world: &mut World, of: &Record) {
    let at = world.coordinator.history.iter().position(|record| record == of).expect("a record of then");
    let by = world.coordinator.history.len() - 1 - at;
    world.go_back(by);
}

fn members(world: &World) -> Vec<u64> {
    world.coordinator.record.members.iter().map(|member| member.node.0).collect()
}

fn is_owner(world: &World, node: usize) -> bool {
    world.status(node).is_some_and(|status| status.state == State::Owner)
}

fn awaits_backing(world: &World, node: usize) -> bool {
    world.status(node).is_some_and(|status| status.reason == Reason::AwaitingBacking)
}

/// T4: the lock of a new owner is taken from it while its backing is being opened. It takes the next term, and then what was opened for
/// the former one, under a lock that is lost, is there: it is not what the new term waits for.
pub fn backing_of_a_term_whose_lock_is_lost_opens_late(rules: Rules) {
    let mut world = whole(2, rules);
    world.openings.extend([(8_000 * MS, BackingAnswer::Opened), (25_000 * MS, BackingAnswer::Opened)]);
    world.kill(0);
    assert!(world.run_until(20_000 * MS, |world| awaits_backing(world, 1)), "{}", world.stand());
    let term = world.coordinator.record.term;
    world.revoke_lock(1, 0);
    let next = |world: &mut World| world.coordinator.record.term > term && awaits_backing(world, 1);
    assert!(world.run_until(6_000 * MS, next), "{}", world.stand());
    world.run_for(9_000 * MS);
    assert_eq!(world.owner(), None, "the backing is not open: {}", world.stand());
    assert!(world.run_until(30_000 * MS, |world| world.owner().is_some()), "{}", world.stand());
}

/// T4: a new owner stands still until its backing was open for long, and another node has taken over. It says first of all that it serves,
/// if it does not ask for its lease before.
pub fn new_owner_stands_still_while_its_backing_is_opened(rules: Rules) {
    let mut world = whole(3, rules);
    world.openings.push_back((5_000 * MS, BackingAnswer::Opened));
    world.kill(0);
    let is_new = |world: &World| (1..3).find(|node| awaits_backing(world, *node));
    assert!(world.run_until(20_000 * MS, |world| is_new(world).is_some()), "{}", world.stand());
    let new = is_new(&world).expect("it is there");
    world.pause(new, 9_000 * MS);
    // Nothing that was sent meanwhile tells it before it goes on.
    world.cut(3 - new, new);
    world.coordinator.cut_off.insert(new);
    assert!(world.run_until(8_000 * MS, |world| world.owner().is_some()), "{}", world.stand());
    world.run_for(10_000 * MS);
    assert_eq!(world.owner().map(|(node, _)| node), Some(3 - new), "{}", world.stand());
}

/// T4: a new owner's backing does not answer. It is custodian after a while, and gives the volume to a member that reaches it.
pub fn backing_of_a_new_owner_does_not_answer(rules: Rules) {
    let mut world = whole(3, rules);
    world.openings.push_back((300_000 * MS, BackingAnswer::Opened));
    world.kill(0);
    assert!(world.run_until(40_000 * MS, |world| world.owner().is_some()), "{}", world.stand());
}

/// T4: a new owner's backing cannot be opened at first, and there is nobody else.
pub fn backing_of_a_new_owner_cannot_be_opened_at_first(rules: Rules) {
    let mut world = whole(2, rules);
    world.openings.extend([(0, BackingAnswer::Failed), (500 * MS, BackingAnswer::Failed)]);
    world.kill(0);
    until_node_2_serves(&mut world);
}

/// C4, S6: flushes are to promise media, and wait for them, when a copy is ready that goes before that. Then the volume says that what
/// was taken back is covered: not so the copy that has its place, and its number in the record.
pub fn one_proposal_is_covered_when_another_has_taken_its_place(rules: Rules) {
    let mut world = whole_of(Setup { flush_held: true, ..on_flash(3, 2) }, rules);
    world.hang_media(true);
    world.ask_of_flushes(false);
    assert!(world.run_until(3_000 * MS, |world| world.proposal(0).is_some()), "{}", world.stand());
    let first = world.proposal(0).expect("it waits for media");
    world.request(Requested { peers: 2, ..world.setup.requested });
    let replaced = world.run_until(10_000 * MS, |world| world.proposal(0) > Some(first));
    assert!(replaced, "{}", world.stand());
    world.report(0, Report::Covered { proposal: first });
    world.run_for(1_000 * MS);
    assert_eq!(members(&world).len(), 2, "the copy has not all that was flushed on its medium: {}", world.stand());
}

/// T2, T4: a candidate gives its transaction up, because the owner is heard again, and grants it leases; then the
/// transaction takes effect after all, and a new process of the candidate finds itself the owner while such a lease is
/// running.
pub fn given_up_transaction_takes_effect(rules: Rules) {
    let mut world = whole(2, rules);
    // The owner pauses until its member asks; the transaction takes four seconds.
    world.coordinator.late_by = Some(4_000 * MS);
    world.pause(0, 6_000 * MS);
    let is = |world: &World, state| world.status(1).is_some_and(|status| status.state == state);
    assert!(world.run_until(6_500 * MS, |world| is(world, State::Sealed)), "{}", world.stand());
    world.run_for(3_500 * MS);
    assert!(is(&world, State::Following), "the owner was heard, and the seal is lifted: {}", world.stand());
    // It takes effect; the owner hears neither of it nor of its member, and its lease is running.
    let won = world.run_until(2_000 * MS, |world| world.coordinator.record.owner == NodeId(2));
    assert!(won, "{}", world.stand());
    world.coordinator.late_by = None;
    world.coordinator.cut_off.insert(0);
    world.cut(0, 1);
    world.cut(1, 0);
    world.kill(1);
    world.start(1);
    until_node_2_serves(&mut world);
}

/// L1: an owner is heard by one member of two, and cannot drop the other, because it does not reach the coordinator. The
/// other takes over, while the first still grants.
pub fn owner_is_cut_off_from_one_member_and_the_coordinator(rules: Rules) {
    let mut world = whole(3, rules);
    world.coordinator.cut_off.insert(0);
    // The third would ask as soon; it grants until shortly before it is sealed, and is not heard to tell of that.
    world.cut(0, 1);
    world.cut(1, 0);
    world.run_for(4_500 * MS);
    world.cut(2, 0);
    until_node_2_serves(&mut world);
}

/// T8: four former owners have writes under way, so the list is full. They land; the fifth owner writes the pinned ranges
/// again and dies in that. Its successor must ask for proof about it, too.
pub fn fifth_owner_dies_while_it_writes_the_pinned_ranges_again(rules: Rules) {
    let mut world = whole(2, rules);
    world.writes_take = Some(20_000 * MS);
    for term in 1..=UNFENCED_MAX as u32 {
        let writes = world.run_until(3_000 * MS, |world| world.is_writing(Term(term)));
        assert!(writes, "{}", world.stand());
        restart_owner(&mut world, Term(term + 1));
    }
    let fifth = Term(UNFENCED_MAX as u32 + 1);
    assert_eq!(unfenced(&world), [1, 2, 3, 4]);
    world.run_for(5_000 * MS);
    assert!(!world.is_writing(fifth), "nobody would ask for proof about it");
    let rewrites = world.run_until(40_000 * MS, |world| world.is_writing(fifth));
    assert!(rewrites, "{}", world.stand());
    restart_owner(&mut world, Term(fifth.0 + 1));
    assert_eq!(unfenced(&world), [4, 5]);
    world.run_for(5_000 * MS);
    assert_eq!(unfenced(&world), [4, 5], "its write is under way");
    let ended = world.run_until(90_000 * MS, |world| world.coordinator.record.unfenced.is_empty());
    assert!(ended, "{}", world.stand());
}

/// The operator accepts that all logs are lost, at a node that does not reach the coordinator, and then at one that does.
/// That one serves, and loses its log as well; then the first one reads the record.
pub fn word_for_a_loss_is_read_after_another_one(rules: Rules) {
    let mut world = whole(2, rules);
    (0..2).for_each(|node| world.cut_power(node));
    (0..2).for_each(|node| world.start(node));
    world.run_for(10_000 * MS);
    world.coordinator.cut_off.insert(1);
    world.cut(0, 1);
    let late = world.command(1, Command::Open { accept_loss: true });
    world.run_for(1_000 * MS);
    world.command(0, Command::Open { accept_loss: true });
    let serves = world.run_until(5_000 * MS, |world| world.owner().is_some());
    assert!(serves, "{}", world.stand());
    world.run_for(3_000 * MS);
    world.cut_power(0);
    world.start(0);
    world.mend();
    world.run_for(5_000 * MS);
    world.coordinator.cut_off.remove(&1);
    world.run_for(20_000 * MS);
    assert_eq!(world.answers.get(&late), Some(&Err(CommandError::RecordChanged)));
    assert_eq!(world.owner(), None, "what has been acknowledged since nobody gave up: {}", world.stand());
}

/// T10: a member is told to open the volume, whatever is lost by that, and cannot read the record. Meanwhile it takes over with its own
/// log, as it does without a word of anybody: nothing is given up for that, and the audit log must not say so.
pub fn take_over_comes_before_the_opening_that_was_asked_for(rules: Rules) {
    let mut world = whole(2, rules);
    world.coordinator.cut_off.insert(1);
    world.kill(0);
    let opened = world.command(1, Command::Open { accept_loss: true });
    world.run_for(10_000 * MS);
    assert_eq!(world.answers.get(&opened), None, "{}", world.stand());
    world.coordinator.cut_off.clear();
    until_node_2_serves(&mut world);
    assert_eq!(world.answers.get(&opened), Some(&Ok(())), "it is served here");
    assert_eq!(world.overrides, [], "what was sent is another change than the one that he has allowed");
}

/// Two members on flash whose flushes are asked to promise no more than that both hold it, and whose media hang from now on:
/// what is flushed is on none of them.
fn held_while_media_hang(rules: Rules) -> World {
    let mut world = whole_of(Setup { flush_held: true, ..on_flash(2, 2) }, rules);
    let held = world.run_until(5_000 * MS, |world| world.coordinator.record.flushed == Flushed::Held);
    assert!(held, "{}", world.stand());
    world.hang_media(true);
    let flushed = world.oracle.flushed;
    assert!(world.run_until(5_000 * MS, |world| world.oracle.flushed > flushed + 3), "{}", world.stand());
    world
}

fn cut_power_everywhere(world: &mut World) {
    (0..world.setup.nodes).for_each(|node| world.cut_power(node));
    world.hang_media(false);
    (0..world.setup.nodes).for_each(|node| world.start(node));
}

/// A2: flushes are to promise media, and the media hang. The record does not say so before they have synced what was flushed
/// for less; a power cut after that loses nothing.
pub fn flushes_are_to_promise_media_that_hang(rules: Rules) {
    let mut world = held_while_media_hang(rules);
    world.ask_of_flushes(false);
    let says_so = world.run_until(3_000 * MS, |world| world.coordinator.record.flushed == Flushed::Durable);
    if says_so {
        // A rule is left out.
        cut_power_everywhere(&mut world);
        world.run_for(15_000 * MS);
        panic!("the record says so, and no medium has it");
    }
    world.hang_media(false);
    let says_so = world.run_until(3_000 * MS, |world| world.coordinator.record.flushed == Flushed::Durable);
    assert!(says_so, "{}", world.stand());
    cut_power_everywhere(&mut world);
    assert!(world.run_until(15_000 * MS, |world| world.owner().is_some()), "{}", world.stand());
}

/// T10: the definition asks for media already, and power is cut everywhere before the record says so: what was flushed may be on
/// none of them. Nobody takes over by itself; the operator takes what there is.
pub fn power_is_cut_before_the_record_promises_media(rules: Rules) {
    let mut world = held_while_media_hang(rules);
    world.ask_of_flushes(false);
    world.request(Requested { media: true, ..world.setup.requested });
    world.run_for(1_000 * MS);
    cut_power_everywhere(&mut world);
    world.run_for(15_000 * MS);
    assert_eq!(world.owner(), None, "{}", world.stand());
    assert!(world.status(0).is_some_and(|status| status.reason == Reason::UnsyncedLost), "{}", world.stand());
    let refused = world.command(0, Command::Open { accept_loss: true });
    world.run_for(2_000 * MS);
    assert_eq!(world.answers[&refused], Err(CommandError::LogsAnswer));
    let taken = world.command(0, Command::TakeSynced);
    assert!(world.run_until(10_000 * MS, |world| world.owner().is_some()), "{}", world.stand());
    assert_eq!(world.answers[&taken], Ok(()));
}

/// Power is cut at both members, and one comes back. The operator accepts the loss of all logs, at a third node, with proof for the
/// owner: the log that is left is not given up. It is taken where it is.
pub fn loss_is_to_be_accepted_while_a_log_is_left(rules: Rules) {
    let mut world = power_is_lost_at_both_members(rules);
    world.start(1);
    world.run_for(10_000 * MS);
    let refused = world.command(2, Command::Open { accept_loss: true });
    world.run_for(3_000 * MS);
    assert_eq!(world.answers[&refused], Err(CommandError::LogsAnswer));
    let elsewhere = world.command(2, Command::TakeSynced);
    world.run_for(1_000 * MS);
    assert_eq!(world.answers[&elsewhere], Err(CommandError::NotMember));
    let taken = world.command(1, Command::TakeSynced);
    let serves = world.run_until(10_000 * MS, |world| world.owner().is_some_and(|(node, _)| node == 1));
    assert!(serves, "{}", world.stand());
    assert_eq!(world.answers[&taken], Ok(()));
}

/// Power is cut at both members, on flash; the operator calls the owner fenced at a third node, which has no part in the volume.
fn power_is_lost_at_both_members(rules: Rules) -> World {
    let mut world = whole_of(on_flash(3, 2), rules);
    let durable = world.run_until(5_000 * MS, |world| world.coordinator.record.flushed == Flushed::Durable);
    assert!(durable, "{}", world.stand());
    (0..2).for_each(|node| world.cut_power(node));
    world.drop_writes();
    world.run_for(10_000 * MS);
    let formers = world.status(2).expect("it runs").may_be_called_fenced;
    world.command(2, Command::Fenced { terms: formers.iter().map(|former| former.term).collect() });
    world
}

/// T10: a member is back and answers, but it does not hear the first question whether it has the log; and before it is asked about
/// the change, it is not heard any more.
pub fn question_about_a_log_is_lost(rules: Rules) {
    let mut world = power_is_lost_at_both_members(rules);
    world.start(1);
    world.run_for(1_000 * MS);
    world.cut(2, 1);
    let refused = world.command(2, Command::Open { accept_loss: true });
    world.run_for(100 * MS);
    world.mend();
    world.run_for(500 * MS);
    world.cut(1, 2);
    world.run_for(5_000 * MS);
    assert_eq!(world.answers.get(&refused), Some(&Err(CommandError::LogsAnswer)), "{}", world.stand());
}

/// T10: a member is off while it is asked whether it has the log, and is back before the change is sent that gives it up: while
/// others are asked what they know; or while the coordinator does not answer, which the change was sent to in vain. The third time
/// such a log is not given up, but left out of those that are taken.
pub fn log_answers_before_it_is_given_up(rules: Rules) {
    let mut world = power_is_lost_at_both_members(rules);
    let late = world.command(2, Command::Open { accept_loss: true });
    world.run_for(1_000 * MS);
    world.start(1);
    world.run_for(5_000 * MS);
    assert_eq!(world.answers.get(&late), Some(&Err(CommandError::LogsAnswer)), "{}", world.stand());

    let mut world = power_is_lost_at_both_members(rules);
    let late = world.command(2, Command::Open { accept_loss: true });
    world.run_for(1_000 * MS);
    world.coordinator.cut_off.insert(2);
    world.run_for(3_000 * MS);
    assert_eq!(world.answers.get(&late), None, "it was sent: {}", world.stand());
    world.start(1);
    world.run_for(500 * MS);
    world.coordinator.cut_off.clear();
    world.run_for(5_000 * MS);
    assert_eq!(world.answers.get(&late), Some(&Err(CommandError::Undecided)), "{}", world.stand());

    let mut world = whole_of(on_flash(3, 3), rules);
    (0..3).for_each(|node| world.cut_power(node));
    world.start(1);
    world.run_for(10_000 * MS);
    let late = world.command(1, Command::TakeSynced);
    world.run_for(1_000 * MS);
    world.start(2);
    world.run_for(5_000 * MS);
    assert_eq!(world.answers.get(&late), Some(&Err(CommandError::LogsAnswer)), "{}", world.stand());
    let taken = world.command(1, Command::TakeSynced);
    assert!(world.run_until(10_000 * MS, |world| world.owner().is_some()), "{}", world.stand());
    assert_eq!(world.answers.get(&taken), Some(&Ok(())));
}

/// T9: the same with a third node, which has seen the new owner's record, and the former owner does not even reach the coordinator.
pub fn deposed_owner_hears_of_a_higher_term_from_a_third_node(rules: Rules) {
    let mut world = whole(3, rules);
    world.pause(0, 9_000 * MS);
    world.cut(0, 1);
    world.cut(1, 0);
    let another = world.run_until(12_000 * MS, |world| world.owner().is_some_and(|(node, _)| node > 0));
    assert!(another, "{}", world.stand());
    world.coordinator.cut_off.insert(0);
    world.run_for(4_000 * MS);
    assert!(!is_owner(&world, 0), "it was told of a higher term: {}", world.stand());
}

/// T9: the tier of an owner fails while its member is cut off from it, which is mended before that would ask by itself; the next owner's
/// fails when the other node is gone for good, and it goes on with what its tier has.
pub fn tier_fails_while_the_member_is_cut_off(rules: Rules) {
    let mut world = whole(2, rules);
    world.cut(0, 1);
    world.cut(1, 0);
    world.run_for(700 * MS);
    world.fail_tier(0);
    world.run_for(2_000 * MS);
    assert_eq!(world.status(0).map(|status| status.reason), Some(Reason::TierFailed), "{}", world.stand());
    assert_eq!(world.coordinator.record.members.len(), 2, "nobody is left out meanwhile: {}", world.stand());
    world.mend();
    let served = world.run_until(1_500 * MS, |world| is_owner(world, 1));
    assert!(served, "{}", world.stand());
    world.run_for(5_000 * MS);
    let term = world.coordinator.record.term;
    world.kill(0);
    world.fail_tier(1);
    let again = world.run_until(9_000 * MS, |world| world.owner().is_some_and(|(node, now)| node == 1 && now > term));
    assert!(again, "{}", world.stand());
}

/// C4: the owner has announced that it leaves its member out, and waits for what others know, when its tier fails. The member has all
/// that was acknowledged, and stays in the record.
pub fn tier_fails_while_a_drop_waits_to_be_sent(rules: Rules) {
    let mut world = whole(2, rules);
    world.coordinator.cut_off.insert(1);
    world.cut(0, 1);
    world.cut(1, 0);
    world.run_for(1_000 * MS);
    world.fail_tier(0);
    world.run_for(4_500 * MS);
    assert_eq!(world.coordinator.record.members.len(), 2, "nobody is left out: {}", world.stand());
}

/// S10: the device of the owner's tier fails, and has forgotten what was never synced when the tier is opened anew; the member that has it
/// is not heard. The owner does not go on without that.
pub fn tier_that_failed_has_forgotten_what_it_never_synced(rules: Rules) {
    let mut world = whole(2, rules);
    world.coordinator.cut_off.insert(1);
    world.cut(0, 1);
    world.cut(1, 0);
    world.run_for(300 * MS);
    world.fail_tier(0);
    world.forget_unsynced(0);
    world.run_for(15_000 * MS);
    assert_eq!(world.status(0).map(|status| status.reason), Some(Reason::LogWentBack), "{}", world.stand());
    world.coordinator.cut_off.clear();
    world.mend();
    let served = world.run_until(9_000 * MS, |world| is_owner(world, 1));
    assert!(served, "{}", world.stand());
}

/// C3: of two nodes one knows less than the other, and the operator speaks there first.
pub fn operator_speaks_at_the_node_that_knows_less(rules: Rules) {
    let mut world = whole(2, rules);
    let backup = world.coordinator.record.clone();
    let size_bytes = world.coordinator.record.size_bytes;
    // The first stands still while the second takes over, and is killed with what it knew.
    world.pause(0, 1_000_000 * MS);
    until_node_2_serves(&mut world);
    world.kill(0);
    let before_that = world.coordinator.history.iter().rfind(|record| record.version() < backup.version()).cloned();
    restore_backup(&mut world, &before_that.expect("it was opened alone"));
    world.start(0);
    world.run_for(10_000 * MS);
    let known = world.status(0).and_then(|status| status.known).expect("it knows one").version();
    let id = world.command(0, Command::RestoreRecord { saw: known });
    world.run_for(3_000 * MS);
    assert_eq!(world.answers.get(&id), Some(&Err(CommandError::KnownElsewhere)), "{}", world.stand());
    let known = world.status(1).and_then(|status| status.known).expect("it owns the volume").version();
    let not_seen = world.command(1, Command::RestoreRecord { saw: backup.version() });
    let right = world.command(1, Command::RestoreRecord { saw: known });
    world.run_for(3_000 * MS);
    assert_eq!(world.answers.get(&not_seen), Some(&Err(CommandError::NotAsSeen)));
    assert_eq!(world.answers.get(&right), Some(&Ok(())));
    assert_eq!((world.coordinator.record.owner, world.coordinator.record.size_bytes), (NodeId(2), size_bytes));
}

/// T6: the operator speaks of others than are unfenced by now.
pub fn word_about_terms_that_are_not_those_in_quarantine(rules: Rules) {
    let mut world = whole(2, rules);
    world.pause(0, 100_000 * MS);
    until_node_2_serves(&mut world);
    let seen = world.status(1).expect("it owns the volume").may_be_called_fenced;
    let others = seen.iter().map(|former| Term(former.term.0 + 100)).collect();
    let id = world.command(1, Command::Fenced { terms: others });
    world.run_for(100 * MS);
    assert_eq!(world.answers.get(&id), Some(&Err(CommandError::NotAsSeen)));
}

/// L1: an owner stands still with a grant in its socket, is replaced meanwhile, and hears nothing else when it goes on. At which moment
/// it must stand still for that, is tried.
pub fn grant_is_read_after_a_pause(rules: Rules) {
    for at in 0..1000 {
        let mut world = whole(2, rules);
        world.run_for(at * MS);
        world.pause(0, 9_000 * MS);
        world.run_for(20 * MS);
        world.cut(1, 0);
        world.run_for(12_000 * MS);
    }
}

/// S10: a member is put back to an earlier state of its memory. Its owner, which has told it so, loses power: the member has not
/// all that was acknowledged, and stands still.
pub fn member_is_put_back_and_its_owner_dies(rules: Rules) {
    let mut world = whole(2, rules);
    put_back_after(&mut world, 1, 3_000 * MS);
    world.run_for(700 * MS);
    world.cut_power(0);
    world.run_for(15_000 * MS);
    let reason = world.status(1).expect("it runs").reason;
    assert_eq!(reason, Reason::LogWentBack, "{}", world.stand());
}

/// S10: an owner is put back to an earlier state of its memory, in its own term: it gives way to the member that knows more.
pub fn owner_is_put_back_in_its_term(rules: Rules) {
    let mut world = whole(2, rules);
    put_back_after(&mut world, 0, 3_000 * MS);
    until_node_2_serves(&mut world);
    let whole = |world: &mut World| world.coordinator.record.members.len() == 2 && world.owner().is_some();
    assert!(world.run_until(30_000 * MS, whole), "{}", world.stand());
}

/// S10: the same, to a term of before, in which it had no member yet. It hears of its own next one, steps down, and asks for the volume
/// that it owned.
pub fn owner_is_put_back_to_when_it_was_alone(rules: Rules) {
    let setup = Setup { flash: false, ..on_flash(2, 2) };
    let mut world = World::new(setup, Chaos::none(), Random::new(1), rules, false);
    world.command(0, Command::Open { accept_loss: false });
    let alone = world.run_until(10_000 * MS, |world| {
        let record = &world.coordinator.record;
        record.owner == NodeId(1) && record.members.len() == 1 && world.take_snapshot(0)
    });
    assert!(alone, "{}", world.stand());
    world.kill(0);
    world.start(0);
    let copied = world.run_until(10_000 * MS, |world| world.coordinator.record.members.len() == 2);
    assert!(copied, "{}", world.stand());
    world.run_for(3_000 * MS);
    assert!(world.put_back(0));
    until_node_2_serves(&mut world);
}

/// S10: the same in its term, and it does not hear its member. The first change that it wants to record shows it the record of its own
/// that it has forgotten.
pub fn owner_is_put_back_and_does_not_hear_its_member(rules: Rules) {
    let setup = Setup { flash: false, ..on_flash(3, 2) };
    let mut world = World::new(setup, Chaos::none(), Random::new(1), rules, false);
    world.command(0, Command::Open { accept_loss: false });
    let alone = world.run_until(10_000 * MS, |world| {
        world.coordinator.record.members.len() == 1 && is_owner(world, 0) && world.take_snapshot(0)
    });
    assert!(alone, "{}", world.stand());
    let copied = world.run_until(10_000 * MS, |world| world.coordinator.record.members.len() == 2);
    assert!(copied, "{}", world.stand());
    // What it gives out before it is told nobody can help.
    world.idle = true;
    world.run_for(3_000 * MS);
    let member = world.coordinator.record.members.iter().find(|member| member.node != NodeId(1)).expect("a copy");
    let member = member.node.0 as usize - 1;
    world.cut(0, member);
    world.cut(member, 0);
    assert!(world.put_back(0));
    world.request(Requested { through: true, ..world.setup.requested });
    let told = |world: &mut World| world.status(0).is_some_and(|status| status.reason == Reason::LogWentBack);
    assert!(world.run_until(10_000 * MS, told), "{}", world.stand());
    assert_eq!(world.coordinator.record.term, Term(1), "nobody had to take over first: {}", world.stand());
    assert!(world.run_until(12_000 * MS, |world| is_owner(world, member)), "{}", world.stand());
}

/// S10: of three nodes the owner loses power, and at the same moment a member is put back: the other one, which knows more, is
/// the next owner, whoever of both takes over first.
pub fn candidate_is_put_back(rules: Rules) {
    for node in [1, 2] {
        let mut world = whole(3, rules);
        let taken = world.run_until(5_000 * MS, |world| world.take_snapshot(node));
        assert!(taken, "it rests now and then");
        world.run_for(3_000 * MS);
        world.cut_power(0);
        assert!(world.put_back(node));
        let other = 3 - node;
        let serves = world.run_until(30_000 * MS, |world| world.owner().is_some_and(|(at, _)| at == other));
        assert!(serves, "{}", world.stand());
    }
}

fn put_back_after(world: &mut World, node: usize, time: u64) {
    let taken = world.run_until(5_000 * MS, |world| world.take_snapshot(node));
    assert!(taken, "it rests now and then");
    world.run_for(time);
    assert!(world.put_back(node));
}

fn unfenced(world: &World) -> Vec<u32> {
    world.coordinator.record.unfenced.iter().map(|former| former.term.0).collect()
}

/// The process of the owner, on the first node, is killed; another one serves there.
fn restart_owner(world: &mut World, next: Term) {
    world.kill(0);
    world.start(0);
    let serves = world.run_until(3_000 * MS, |world| world.owner() == Some((0, next)));
    assert!(serves, "{}", world.stand());
}

/// S10: a node that never had a part in the volume says that it has heard beacons of times to come.
pub fn node_without_a_part_grants_what_was_never_sent(rules: Rules) {
    let mut world = whole_with(3, 1, rules);
    let Record { term, epoch, owner, .. } = world.coordinator.record;
    let part_of = |node: &NodeId| world.coordinator.record.member(*node);
    let stranger = [NodeId(2), NodeId(3)].into_iter().find(|node| part_of(node).is_none()).expect("one has no part");
    let to = part_of(&owner).expect("the owner is one of the members");
    let envelope = Envelope { volume: super::VOLUME, term, epoch, from: Incarnation::none(stranger), to };
    world.drive(0, Event::Message(envelope, OwnershipMessage::Granted { sent: Instant(u64::MAX) }));
    world.run_for(2_000 * MS);
    assert!(is_owner(&world, 0), "{}", world.stand());
    assert_eq!(world.coordinator.record.term, term, "nobody needs to take over: {}", world.stand());
}

/// T2, C6: the coordinator went back, which nobody can settle because the third node is down. The owner stands still until its member
/// asks, and is back before that may send anything: both go on at once, and wait for nobody.
pub fn owner_is_heard_before_its_candidate_may_ask(rules: Rules) {
    let mut world = whole_with(3, 1, rules);
    let member = world.coordinator.record.members.iter().find(|member| member.node != NodeId(1)).expect("a copy");
    let member = member.node.0 as usize - 1;
    world.kill(3 - member);
    world.run_for(1_000 * MS);
    world.drive(member, Event::Rewound(RewindId(1)));
    world.drive(0, Event::Rewound(RewindId(1)));
    let goes_on = world.now() + 7_000 * MS;
    world.pause(0, 7_000 * MS);
    let sealed = world.run_until(6_900 * MS, |world| world.status(member).is_some_and(|s| s.state == State::Sealed));
    assert!(sealed, "{}", world.stand());
    // By its first message, and not when the coordinator is asked again.
    world.run_for(goes_on - world.now() + 100 * MS);
    let before = world.acknowledged();
    world.run_for(200 * MS);
    assert!(world.acknowledged() > before, "nothing can take effect that was never sent: {}", world.stand());
    assert!(is_owner(&world, 0), "{}", world.stand());
}

/// Node 1 serves with a copy; the third node, which has no part, is down, so a coordinator that goes back cannot be settled. The copy.
fn with_a_third_node_that_is_down(rules: Rules) -> (World, usize) {
    let mut world = whole_with(3, 1, rules);
    let member = world.coordinator.record.members.iter().find(|member| member.node != NodeId(1)).expect("a copy");
    let member = member.node.0 as usize - 1;
    world.kill(3 - member);
    world.run_for(1_000 * MS);
    (world, member)
}

fn hear_that_it_went_back(world: &mut World, nodes: [usize; 2]) {
    nodes.into_iter().for_each(|node| world.drive(node, Event::Rewound(RewindId(1))));
}

#[track_caller]
fn clients_are_answered(world: &mut World) {
    let before = world.acknowledged();
    world.run_for(1_000 * MS);
    assert!(world.acknowledged() > before, "nobody waits for what cannot be decided: {}", world.stand());
}

/// L2: that a former owner has stopped is heard late, by a member that follows the next one.
pub fn word_of_a_former_owner_arrives_when_another_one_serves(rules: Rules) {
    let mut world = whole(3, rules);
    let record = world.coordinator.record.clone();
    let member = |node: u64| record.member(NodeId(node)).expect("all are members");
    let Record { term, epoch, .. } = record;
    let envelope = Envelope { volume: super::VOLUME, term, epoch, from: member(3), to: member(2) };
    world.drive(1, Event::Message(envelope, OwnershipMessage::TakeOver));
    world.run_for(5_000 * MS);
    assert_eq!(world.coordinator.record.term, term, "its owner serves: {}", world.stand());
}

/// C2, C6: a hand-over is asked for while one silent node keeps everything from being decided. Clients do not wait for it.
pub fn hand_over_while_nothing_can_be_decided(rules: Rules) {
    let (mut world, member) = with_a_third_node_that_is_down(rules);
    hear_that_it_went_back(&mut world, [0, member]);
    world.run_for(500 * MS);
    world.command(0, Command::HandOver { to: NodeId(member as u64 + 1) });
    world.run_for(500 * MS);
    clients_are_answered(&mut world);
}

/// C2, C6: the volume is quiet, and its hand-over waits behind a read that takes its time, when the coordinator is heard to have gone
/// back. The hand-over is taken back in time.
pub fn coordinator_goes_back_while_a_volume_is_quiet(rules: Rules) {
    for moment in 0..8 {
        let (mut world, member) = with_a_third_node_that_is_down(rules);
        world.coordinator.late_by = Some(4_000 * MS);
        world.run_for((1_000 + 500 * moment) * MS);
        world.command(0, Command::HandOver { to: NodeId(member as u64 + 1) });
        world.run_for(300 * MS);
        hear_that_it_went_back(&mut world, [0, member]);
        world.run_for(20_000 * MS);
        clients_are_answered(&mut world);
    }
}

/// C2: the hand-over is recorded, and no answer ever comes to the owner, whose beacons keep the next one from looking. It gives way.
pub fn owner_never_hears_that_its_hand_over_was_recorded(rules: Rules) {
    let mut world = whole(2, rules);
    world.coordinator.late_by = Some(500 * MS);
    world.command(0, Command::HandOver { to: NodeId(2) });
    let given = world.run_until(3_000 * MS, |world| world.coordinator.record.owner == NodeId(2));
    assert!(given, "{}", world.stand());
    world.coordinator.late_by = None;
    world.coordinator.cut_off.insert(0);
    let serves = world.run_until(40_000 * MS, |world| is_owner(world, 1));
    assert!(serves, "{}", world.stand());
}

/// A4, C6: the copy is lost, and the node that learns in its place as well, before anything could be decided about that. The owner goes
/// on by itself, as it did before.
pub fn learner_is_lost_before_it_may_be_made_a_member(rules: Rules) {
    let mut world = whole_with(3, 1, rules);
    let member = world.coordinator.record.members.iter().find(|member| member.node != NodeId(1)).expect("a copy");
    let member = member.node.0 as usize - 1;
    let learner = 3 - member;
    world.kill(member);
    let alone = world.run_until(12_000 * MS, |world| world.coordinator.record.members.len() == 1);
    assert!(alone, "{}", world.stand());
    hear_that_it_went_back(&mut world, [0, learner]);
    world.run_for(4_000 * MS);
    world.kill(learner);
    world.run_for(10_000 * MS);
    clients_are_answered(&mut world);
}

/// A node that serves alone, and another one that has no part in the volume.
fn alone(through: bool, writes_die_with_host: bool, rules: Rules) -> World {
    let calm = on_flash(2, 1);
    let requested = Requested { through, ..calm.requested };
    let mut world = whole_of(Setup { flash: false, requested, writes_die_with_host, ..calm }, rules);
    let log = if through { LogState::Through } else { LogState::Needed };
    let serves = |world: &mut World| world.owner().is_some() && world.coordinator.record.log == log;
    assert!(world.run_until(10_000 * MS, serves), "{}", world.stand());
    world.run_for(2_000 * MS);
    world
}

/// Nothing reaches the lone owner any more, nor the coordinator it, and its lock is gone, which it is told after so long; the other
/// node has proof by that, and serves.
fn opened_elsewhere_behind_its_back(world: &mut World, told_after: u64) {
    world.coordinator.cut_off.insert(0);
    world.cut(0, 1);
    world.cut(1, 0);
    world.revoke_lock(0, told_after);
    let serves = world.run_until(30_000 * MS, |world| {
        world.command(1, Command::Open { accept_loss: false });
        world.run_for(1_000 * MS);
        is_owner(world, 1)
    });
    assert!(serves, "{}", world.stand());
}

/// T9: the server of the image takes the lock from an owner that lives. Who is given it by that serves; what the former owner shows
/// is old from then on.
pub fn lock_of_a_lone_owner_is_taken_from_it(rules: Rules) {
    let mut world = alone(true, false, rules);
    opened_elsewhere_behind_its_back(&mut world, 100 * MS);
    world.run_for(5_000 * MS);
    assert!(!is_owner(&world, 0), "its lock is lost: {}", world.stand());
    // Where nobody is there to take it, it takes over from itself.
    let mut world = alone(true, false, rules);
    let term = world.coordinator.record.term;
    world.revoke_lock(0, 100 * MS);
    let serves = world.run_until(5_000 * MS, |world| world.owner().is_some_and(|(_, later)| later > term));
    assert!(serves, "{}", world.stand());
}

/// T9: the same, and its look at its lock hangs. It does not reach the coordinator, but the other node again.
pub fn lone_owner_hears_of_its_successor_from_others(rules: Rules) {
    let mut world = alone(true, false, rules);
    opened_elsewhere_behind_its_back(&mut world, 1_000_000 * MS);
    // Whoever changes the record asks all others: the new owner has nothing left to change.
    world.run_for(15_000 * MS);
    world.mend();
    world.run_for(7_000 * MS);
    assert!(!is_owner(&world, 0), "the other one has seen a higher term: {}", world.stand());
}

/// T9: a deposed owner is heard by nobody, and is only asked where it runs (T6).
pub fn deposed_owner_is_only_asked_a_question(rules: Rules) {
    let mut world = whole(2, rules);
    world.pause(0, 14_000 * MS);
    world.cut(0, 1);
    world.cut(1, 0);
    until_node_2_serves(&mut world);
    world.coordinator.cut_off.insert(0);
    world.request(Requested { peers: 0, ..world.setup.requested });
    world.mend();
    world.cut(0, 1);
    world.run_for(8_000 * MS);
    assert!(is_owner(&world, 1), "{}", world.stand());
    assert!(!is_owner(&world, 0), "the question tells of a higher term: {}", world.stand());
}

/// T6: a machine answers where it runs; then it is started anew, and owns the volume since. That answer comes late, at a node that is to
/// open the volume: the machine is in another boot than the recorded owner, and is that owner all the same.
pub fn answer_of_an_earlier_boot_comes_after_the_next_one_owns(rules: Rules) {
    let mut world = alone(true, true, rules);
    let own = world.own(0).expect("it runs");
    let here = OwnershipMessage::Here {
        sent: world.local(1),
        at: world.local(0),
        host: world.coordinator.record.host,
        fresh: false,
    };
    world.cut(0, 1);
    world.cut(1, 0);
    world.cut_power(0);
    world.start(0);
    let serves = world.run_until(15_000 * MS, |world| world.owner().is_some_and(|(node, _)| node == 0));
    assert!(serves, "{}", world.stand());
    world.run_for(8_000 * MS);
    let Record { term, epoch, .. } = world.coordinator.record;
    let to = world.own(1).expect("it runs");
    let envelope = Envelope { volume: super::VOLUME, term, epoch, from: own, to };
    world.drive(1, Event::Message(envelope, here));
    world.command(1, Command::Open { accept_loss: false });
    world.run_for(4_000 * MS);
    assert_eq!(world.coordinator.record.term, term, "it may still write: {}", world.stand());
}

/// T11: the machine of a lone owner is started anew, with its memory gone. It opens by itself where the record said before that nothing
/// depends on that, and not where it did not.
pub fn lone_owner_loses_its_memory(rules: Rules) {
    for writes_die_with_host in [true, false] {
        let mut world = alone(true, writes_die_with_host, rules);
        world.cut_power(0);
        world.start(0);
        let serves = world.run_until(15_000 * MS, |world| world.owner().is_some_and(|(node, _)| node == 0));
        assert!(serves, "{}", world.stand());
        let mut world = alone(false, writes_die_with_host, rules);
        world.cut_power(0);
        world.start(0);
        world.run_for(20_000 * MS);
        assert_eq!(world.owner(), None, "only its log had what was acknowledged: {}", world.stand());
        assert!(world.status(0).is_some_and(|status| status.reason == Reason::LossSuspected), "{}", world.stand());
    }
}

/// T11: a lone owner with policy *back* is drained through and then stopped: the record says before it ends that no log is needed. So
/// it opens by itself after its machine was started anew without its memory, and in the same boot it goes on with what it has; either way
/// the record says that logs are needed before they stand for anything alone.
pub fn lone_owner_is_stopped_in_order(rules: Rules) {
    for (writes_die_with_host, reboot) in [(true, true), (false, true), (true, false)] {
        let mut world = alone(false, writes_die_with_host, rules);
        world.nodes[0].process.as_mut().expect("it serves").volume.keeps_through = true;
        let says = |log: LogState| move |world: &mut World| world.coordinator.record.log == log;
        assert!(world.run_until(10_000 * MS, says(LogState::Through)), "{}", world.stand());
        let (before, term) = (world.acknowledged(), world.coordinator.record.term);
        world.run_for(1_000 * MS);
        assert!(world.acknowledged() > before, "clients are served until it ends: {}", world.stand());
        if reboot {
            world.cut_power(0);
        } else {
            world.kill(0);
        }
        world.start(0);
        let serves = |world: &mut World| world.owner().is_some_and(|(node, new)| node == 0 && new > term);
        assert!(world.run_until(15_000 * MS, serves), "{}", world.stand());
        assert!(world.run_until(5_000 * MS, says(LogState::Needed)), "{}", world.stand());
        let before = world.acknowledged();
        world.run_for(2_000 * MS);
        assert!(world.acknowledged() > before, "{}", world.stand());
    }
}
