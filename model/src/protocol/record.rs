//! The record and its changes: who owns, who is a member, and how that changes hands.
//!
//! A transaction is sent, decided, and its answer heard or lost. One whose answer is lost may be decided at any later
//! moment, so a read that shows the old record decides nothing.

use super::{Change, Step, Steps, demote, frames, insert, others};
use crate::setup::Setup;
use crate::state::{NODES, Node, NodeId, Open, Owner, Peer, Pending, Phase, Record, State, Transaction};

/// What one node may do about the record.
pub fn steps(steps: &mut Steps<'_>, node: NodeId) {
    let (setup, state) = (*steps.setup, steps.before);
    match state.nodes[node].pending {
        Some(pending) if pending.unknown => {
            steps.take(Step::ReadAgain(node), |after| read_again(&setup, after, node));
        }
        Some(_) => {
            steps.take(Step::Decide(node), |after| decide(&setup, after, node));
            steps.fault(Step::LoseAnswer(node), |budget| &mut budget.unheard, |after| lose_answer(&setup, after, node));
        }
        None => propose(steps, node),
    }
    if state.nodes[node].owner.is_some() && state.record.term > state.nodes[node].term {
        steps.take(Step::Depose(node), |after| {
            demote(&setup, &mut after.nodes[node]);
            after.nodes[node].pending = None;
            true
        });
    }
    if adoptable(state, node) && state.nodes[node].pending.is_none() {
        steps.take(Step::Adopt(node), |after| win(&setup, after, node, after.record));
    }
    for other in (0..setup.nodes).filter(|other| may_enlist(&setup, state, node, *other)) {
        steps.take(Step::Enlist(node, other), |after| enlist(after, node, other));
    }
}

/// Transactions that nobody waits for arrive.
pub fn late(steps: &mut Steps<'_>) {
    let setup = *steps.setup;
    for transaction in &steps.before.floating {
        steps.take(Step::DecideLate(*transaction), |after| {
            after.floating.retain(|other| other != transaction);
            applies(&setup, &after.record, transaction) && {
                after.record = transaction.new;
                true
            }
        });
    }
}

/// The coordinator would apply the transaction now. Rule `record_is_compared`.
fn applies(setup: &Setup, record: &Record, transaction: &Transaction) -> bool {
    transaction.expected == (record.term, record.epoch) || !setup.rules.record_is_compared
}

fn propose(steps: &mut Steps<'_>, node: NodeId) {
    let (setup, state) = (*steps.setup, steps.before);
    if state.nodes[node].owner.is_none() {
        if let Some((new, anew)) = take_over(&setup, state, node) {
            let free = !functions(state) || state.record.clean;
            let expected = (state.record.term, state.record.epoch);
            steps.unless(
                free,
                Step::Propose(node, Change::TakeOver),
                |budget| &mut budget.suspicion,
                |after| {
                    if anew {
                        begin_anew(after, node);
                    }
                    send(after, node, expected, new);
                },
            );
        }
        return;
    }
    for other in (0..setup.nodes).filter(|other| *other != node) {
        propose_about(steps, node, other);
    }
    propose_stop(steps, node);
}

/// The record that a take-over makes, and whether the node begins with a new log. Rules
/// `only_members_take_over`, `incarnations_count`, `clean_ends_before_writing`.
fn take_over(setup: &Setup, state: &State, node: NodeId) -> Option<(Record, bool)> {
    let (record, me) = (state.record, &state.nodes[node]);
    let incarnation_fits = record.members[node] == me.incarnation || !setup.rules.incarnations_count;
    let member = (record.members[node] != 0 && incarnation_fits) || !setup.rules.only_members_take_over;
    let clean = record.clean && setup.reaches[node];
    let anew = clean && setup.rules.clean_begins_anew;
    // Who is recorded as the owner of a term that it has not used, adopts it instead.
    if !(member || clean) || adoptable(state, node) {
        return None;
    }
    let mut members = if clean { [0; NODES] } else { record.members };
    if record.owner != node {
        members[record.owner] = 0;
    }
    members[node] = me.incarnation + u8::from(anew);
    let clean = record.clean && !setup.rules.clean_ends_before_writing;
    Some((Record { term: record.term + 1, epoch: record.epoch + 1, owner: node, members, clean }, anew))
}

/// Rule `clean_begins_anew`: nothing of an older log can be taken for that of the new owner, whatever becomes of the
/// transaction. What a clean volume's log has had is all at or below the watermark.
fn begin_anew(state: &mut State, node: NodeId) {
    let (log, end) = (state.sent, state.sent.prefix());
    let me = &mut state.nodes[node];
    *me = Node { incarnation: me.incarnation + 1, log, confirmed: (1 << end) - 1, watermark: end, pins: 0, ..*me };
}

/// The recorded owner is there and knows it, or is about to.
fn functions(state: &State) -> bool {
    let (number, owner) = (state.record.owner, &state.nodes[state.record.owner]);
    let owns = owner.owner.is_some() && owner.term == state.record.term;
    owner.up && (owns || owner.pending.is_some() || adoptable(state, number))
}

fn adoptable(state: &State, node: NodeId) -> bool {
    let (record, me) = (state.record, &state.nodes[node]);
    let mine = record.owner == node && record.members[node] == me.incarnation;
    me.owner.is_none() && mine && me.term < record.term && !record.clean
}

/// What an owner proposes about another node: drop, record, hand over.
fn propose_about(steps: &mut Steps<'_>, node: NodeId, other: NodeId) {
    let (setup, state) = (*steps.setup, steps.before);
    let Some(owner) = state.nodes[node].owner else { return };
    if owner.phase == Phase::Leaving {
        return;
    }
    let record = known(state, node);
    let expected = (record.term, record.epoch);
    if owner.members[other] != 0 {
        let there = state.nodes[other].up && state.nodes[other].incarnation == owner.members[other];
        let mut without = Record { epoch: owner.epoch + 1, ..record };
        without.members[other] = 0;
        let uncommitted = Record { epoch: owner.epoch, ..without };
        steps.unless(
            !there,
            Step::Propose(node, Change::Drop(other)),
            |budget| &mut budget.suspicion,
            |after| {
                if setup.rules.drop_is_committed_first {
                    send(after, node, expected, without);
                } else {
                    change_members(after, node, uncommitted);
                }
            },
        );
        let free = owner.phase == Phase::Custodian && setup.reaches[other] && setup.rules.custodian_hands_over;
        if owner.open == Open::Nothing && (free || owner.phase == Phase::Serving) {
            let new = Record { term: record.term + 1, epoch: owner.epoch + 1, owner: other, ..record };
            steps.unless(
                free,
                Step::Propose(node, Change::HandOver(other)),
                |budget| &mut budget.hand_over,
                |after| {
                    send(after, node, expected, new);
                    leave(after, node);
                },
            );
        }
    } else if owner.learners[other] != 0 && caught_up(&setup, &state.nodes[node], other) {
        let mut with = Record { epoch: owner.epoch + 1, ..record };
        with.members[other] = owner.learners[other];
        steps.take(Step::Propose(node, Change::Record(other)), |after| {
            send(after, node, expected, with);
            true
        });
    }
}

/// Rule `learner_has_caught_up`. Everything in the log, not only what this owner has acknowledged: a custodian
/// acknowledges nothing, and its log is full of what its predecessor did.
fn caught_up(setup: &Setup, node: &Node, learner: NodeId) -> bool {
    let Some(owner) = &node.owner else { return false };
    let peer = owner.peers[learner];
    let settled = owner.phase != Phase::Sealing;
    let equal = peer.held >= node.log.prefix() && peer.watermark == node.watermark;
    settled && ((peer.answered && equal) || !setup.rules.learner_has_caught_up)
}

/// Proposes to mark the record clean, once all is in the backing. Rule `clean_after_drain`.
fn propose_stop(steps: &mut Steps<'_>, node: NodeId) {
    let (setup, state) = (*steps.setup, steps.before);
    let me = &state.nodes[node];
    let Some(owner) = me.owner else { return };
    let end = me.log.prefix();
    let drained = me.watermark == end && owner.acked == end && me.pins == 0;
    let quiet = owner.open == Open::Nothing && owner.phase == Phase::Serving;
    if quiet && (drained || !setup.rules.clean_after_drain) {
        let record = known(state, node);
        let new = Record { epoch: owner.epoch + 1, clean: true, ..record };
        steps.fault(
            Step::Propose(node, Change::Stop),
            |budget| &mut budget.stop,
            |after| {
                send(after, node, (record.term, record.epoch), new);
                leave(after, node);
            },
        );
    }
}

/// The record as this owner knows it.
fn known(state: &State, node: NodeId) -> Record {
    let me = &state.nodes[node];
    let (epoch, members, clean) = me.owner.map(|o| (o.epoch, o.members, o.clean)).unwrap_or_default();
    Record { term: me.term, epoch, owner: node, members, clean }
}

fn send(state: &mut State, node: NodeId, expected: (u8, u8), new: Record) {
    let transaction = Transaction { expected, new };
    state.nodes[node].pending = Some(Pending { transaction, unknown: false });
}

fn leave(state: &mut State, node: NodeId) {
    if let Some(owner) = &mut state.nodes[node].owner {
        owner.phase = Phase::Leaving;
    }
}

/// The transaction is decided and the answer heard.
fn decide(setup: &Setup, state: &mut State, node: NodeId) -> bool {
    let Some(pending) = state.nodes[node].pending else { return false };
    if applies(setup, &state.record, &pending.transaction) {
        state.record = pending.transaction.new;
    }
    conclude(setup, state, node, pending)
}

/// The answer to the node's transaction is lost, which may be applied later. Rule `unknown_is_not_done`.
fn lose_answer(setup: &Setup, state: &mut State, node: NodeId) {
    let Some(pending) = state.nodes[node].pending else { return };
    insert(&mut state.floating, pending.transaction);
    state.nodes[node].pending = Some(Pending { unknown: true, ..pending });
    if !setup.rules.unknown_is_not_done {
        succeed(setup, state, node, pending);
    }
}

/// Rule `unknown_stays_undecided`: a record that reads as before says nothing, and the transaction is sent again.
fn read_again(setup: &Setup, state: &mut State, node: NodeId) -> bool {
    let Some(pending) = state.nodes[node].pending else { return false };
    let as_before = pending.transaction.expected == (state.record.term, state.record.epoch);
    if !as_before {
        return conclude(setup, state, node, pending);
    }
    let again = Pending { unknown: false, ..pending };
    state.nodes[node].pending = setup.rules.unknown_stays_undecided.then_some(again);
    true
}

/// The record has moved on: by this transaction, or by another one.
fn conclude(setup: &Setup, state: &mut State, node: NodeId, pending: Pending) -> bool {
    if state.record == pending.transaction.new {
        return succeed(setup, state, node, pending);
    }
    let me = &mut state.nodes[node];
    me.pending = None;
    if state.record.term == me.term {
        change_members(state, node, state.record);
    } else if setup.rules.refused_steps_down {
        demote(setup, me);
    }
    true
}

fn succeed(setup: &Setup, state: &mut State, node: NodeId, pending: Pending) -> bool {
    let new = pending.transaction.new;
    state.nodes[node].pending = None;
    if new.term > state.nodes[node].term && new.owner == node {
        return win(setup, state, node, new);
    }
    if new.owner != node || new.clean {
        demote(setup, &mut state.nodes[node]);
    } else {
        change_members(state, node, new);
    }
    true
}

/// An owner knows the record anew.
fn change_members(state: &mut State, node: NodeId, record: Record) {
    if let Some(owner) = &mut state.nodes[node].owner {
        owner.epoch = record.epoch;
        owner.members = record.members;
        owner.clean = record.clean;
        for (learner, member) in owner.learners.iter_mut().zip(record.members) {
            *learner = if member == 0 { *learner } else { 0 };
        }
    }
}

/// A node owns the volume: its log is the truth from here on, and what its predecessor may still write is pinned.
/// Rules `open_group_is_pinned`, `pins_are_inherited`.
fn win(setup: &Setup, state: &mut State, node: NodeId, record: Record) -> bool {
    let me = &mut state.nodes[node];
    me.log = me.log.cut(me.log.prefix());
    let end = me.log.prefix();
    me.watermark = me.watermark.min(end);
    me.confirmed = (1 << end) - 1;
    me.pins = if setup.rules.pins_are_inherited { me.pins } else { 0 };
    let group = if me.watermark < end { setup.group_end(&me.log, me.watermark + 1) } else { end };
    if setup.rules.open_group_is_pinned {
        me.pins |= setup.ranges(&me.log, me.watermark, group);
    }
    me.term = record.term;
    me.owned = record.term;
    let owner = Owner::new(record.epoch, record.members);
    me.owner = Some(Owner { clean: record.clean, pinned_through: group, ..owner });
    frames::introduce_all(state, node);
    true
}

/// An owner with fewer members than wanted brings a node up to date that is none, under the term's seal.
fn may_enlist(setup: &Setup, state: &State, node: NodeId, other: NodeId) -> bool {
    let (me, candidate) = (&state.nodes[node], &state.nodes[other]);
    let Some(owner) = &me.owner else { return false };
    let room = 1 + (others(node, owner.members).count() as u32) < setup.wanted;
    let new = owner.members[other] == 0 && owner.learners[other] != candidate.incarnation;
    let settled = matches!(owner.phase, Phase::Serving | Phase::Custodian);
    // What a proposed incarnation has answered counts until its proposal is decided.
    let proposed = me.pending.is_some_and(|pending| pending.transaction.new.members[other] != 0);
    !proposed && other != node && candidate.up && candidate.term <= me.term && settled && room && new
}

fn enlist(state: &mut State, node: NodeId, other: NodeId) -> bool {
    let incarnation = state.nodes[other].incarnation;
    if let Some(owner) = &mut state.nodes[node].owner {
        owner.learners[other] = incarnation;
        owner.peers[other] = Peer::UNHEARD;
    }
    frames::introduce(state, node, (other, incarnation));
    true
}
