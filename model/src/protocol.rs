//! What may happen: every step of nodes, coordinator, channels, backing and client, with what must hold before it.
//!
//! A step is taken by one party and looks at that party's state only. Where it looks further, the further state is the
//! *evidence* of a rule, or decides only whether the step counts as a fault. Time is absent on purpose: any node may take any other for dead at
//! any moment (within the budget of such faults), so no rule here leans on a lease or on a clock.

mod destage;
mod frames;
mod record;

use crate::checker::Model;
use crate::checks;
use crate::setup::Setup;
use crate::state::{
    Budget, LOG, Members, Message, NODES, Node, NodeId, Owner, Phase, State, Submission, Transaction, Value, insert,
};

/// The protocol in one world.
pub struct Protocol(pub Setup);

/// A change of the record that a node proposes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A new term, with the node as the owner.
    TakeOver,
    /// The record without that member.
    Drop(NodeId),
    /// With that learner as a member.
    Record(NodeId),
    /// A new term, with that member as the owner.
    HandOver(NodeId),
    /// The record is marked clean: nobody serves the volume any more.
    Stop,
}

/// What may happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// An owner takes the client's next write, and sends it to members and learners.
    Write(NodeId),
    /// The client's next write lies in a connection to this node, unread.
    Queue(NodeId),
    /// The node reads it.
    Execute(NodeId),
    /// The client repeats it there.
    Repeat(NodeId),
    /// A message arrives, not for the last time.
    Deliver(Message),
    /// An owner begins to bring a node up to date.
    Enlist(NodeId, NodeId),
    /// A node sends a transaction to the coordinator.
    Propose(NodeId, Change),
    /// The coordinator decides it, and the node hears the answer.
    Decide(NodeId),
    /// The node will not hear the answer, and the transaction is somewhere on its way.
    LoseAnswer(NodeId),
    /// A transaction that nobody waits for any more reaches the coordinator.
    DecideLate(Transaction),
    /// A node that has not heard the answer reads the record, linearizably.
    ReadAgain(NodeId),
    /// A member finds itself recorded as the owner of a term that it has not used.
    Adopt(NodeId),
    /// An owner finds a newer term in the record.
    Depose(NodeId),
    /// An owner sends the next group to the backing.
    Destage(NodeId),
    /// An owner has evidence that former owners write no more, and writes the pinned ranges again.
    Rewrite(NodeId),
    /// An owner sends a batch to the journal of its term.
    Journal(NodeId),
    /// The backing is told to refuse former owners.
    Fence(NodeId),
    /// A write reaches the backing.
    Land(Submission),
    /// A host dies with its RAM.
    Crash(NodeId),
    /// A process dies, its log stays.
    Kill(NodeId),
    /// A host with a flash log loses power: what was not synced is gone.
    PowerCut(NodeId),
    /// A node comes back.
    Restart(NodeId),
}

/// The members of a set but one, with their incarnations.
fn others(node: NodeId, members: Members) -> impl Iterator<Item = (NodeId, u8)> {
    members.into_iter().enumerate().filter(move |(other, incarnation)| *other != node && *incarnation != 0)
}

/// Everybody whose copy counts: the members, and while a change of them is undecided also those that it makes.
fn counted(setup: &Setup, node: &Node) -> Members {
    let Some(owner) = &node.owner else { return [0; NODES] };
    let mut members = owner.members;
    if let Some(pending) = node.pending
        && setup.rules.both_member_sets_count
    {
        for (member, incarnation) in members.iter_mut().zip(pending.transaction.new.members) {
            *member = (*member).max(incarnation);
        }
    }
    members
}

/// What a step makes of a state, collected.
struct Steps<'a> {
    setup: &'a Setup,
    before: &'a State,
    out: &'a mut Vec<(Step, State)>,
}

impl Steps<'_> {
    /// Takes a step that counts as a fault, where the budget has one left.
    fn fault(&mut self, step: Step, of: fn(&mut Budget) -> &mut u8, change: impl FnOnce(&mut State)) {
        let mut budget = self.before.budget;
        let left = of(&mut budget);
        if *left > 0 {
            *left -= 1;
            self.take(step, |after| {
                after.budget = budget;
                change(after);
                true
            });
        }
    }

    /// Takes a step that counts as a fault unless there is a reason for it.
    fn unless(&mut self, free: bool, step: Step, of: fn(&mut Budget) -> &mut u8, change: impl FnOnce(&mut State)) {
        if free {
            self.take(step, |after| {
                change(after);
                true
            });
        } else {
            self.fault(step, of, change);
        }
    }

    /// Takes a step: `change` makes the state after it, of a copy, or says that it changes nothing.
    fn take(&mut self, step: Step, change: impl FnOnce(&mut State) -> bool) {
        let mut after = self.before.clone();
        if change(&mut after) {
            settle(self.setup, &mut after);
            // Nobody is left who knows the pins: the volume says so, and promises no crash image.
            let lost = (0..NODES).all(|node| !checks::recorded(&after, node));
            after.flagged |= lost && checks::told_pins(self.before) != 0;
            if after != *self.before {
                self.out.push((step, after));
            }
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Step = Step;

    fn initial(&self) -> State {
        self.0.first()
    }

    fn steps(&self, state: &State, out: &mut Vec<(Step, State)>) {
        let mut steps = Steps { setup: &self.0, before: state, out };
        for node in 0..self.0.nodes {
            if state.nodes[node].up {
                client(&mut steps, node);
                record::steps(&mut steps, node);
                destage::steps(&mut steps, node);
            }
            faults(&mut steps, node);
        }
        record::late(&mut steps);
        destage::landings(&mut steps);
        frames::deliveries(&mut steps);
    }

    fn violation(&self, state: &State) -> Option<String> {
        checks::violation(&self.0, state)
    }

    fn is_fault(&self, before: &State, after: &State) -> bool {
        before.budget != after.budget
    }

    fn is_good(&self, state: &State) -> bool {
        checks::recovered(&self.0, state)
    }
}

/// What nodes do at once and always in the same way: begin to serve, acknowledge; and what no longer matters is forgotten.
fn settle(setup: &Setup, state: &mut State) {
    for node in 0..setup.nodes {
        begin_to_serve(setup, state, node);
        while acknowledge(setup, state, node) {}
        show_reads(setup, state, node);
    }
    if setup.rules.record_is_compared {
        let now = (state.record.term, state.record.epoch);
        state.floating.retain(|transaction| transaction.expected == now);
    }
    let mut network = std::mem::take(&mut state.network);
    network.retain(|message| !frames::spent(setup, state, message));
    state.network = network;
}

/// Rules `sealed_before_serving`, `custodian_serves_nobody`.
fn begin_to_serve(setup: &Setup, state: &mut State, node: NodeId) {
    let Some(owner) = state.nodes[node].owner else { return };
    let sealed = others(node, owner.members).all(|(other, _)| owner.peers[other].answered);
    let early = !sealed && setup.rules.sealed_before_serving;
    if owner.phase != Phase::Sealing || early {
        return;
    }
    let serves = setup.reaches[node] || !setup.rules.custodian_serves_nobody;
    let log = state.nodes[node].log;
    if let Some(owner) = &mut state.nodes[node].owner {
        owner.phase = if serves { Phase::Serving } else { Phase::Custodian };
    }
    if serves && state.record.owner == node {
        let open = |value: &Value| state.nodes.iter().all(|node| node.queued != *value);
        let gone = (1..state.next).filter(|value| log.find(*value).is_none()).filter(open);
        state.abandoned |= gone.map(|value| 1 << value).sum::<u16>();
    }
}

/// Acknowledges the next position, where there is ground for it. As early as it may: a promise that is made later is
/// broken by no state that an earlier one survives.
fn acknowledge(setup: &Setup, state: &mut State, node: NodeId) -> bool {
    let Some(owner) = state.nodes[node].owner else { return false };
    let position = owner.acked + 1;
    let log = state.nodes[node].log;
    if owner.phase != Phase::Serving || position > log.prefix() {
        return false;
    }
    let holds = |(other, _): &(NodeId, u8)| owner.peers[*other].held >= position;
    let journal_is_enough = owner.journaled >= position && !setup.rules.batch_is_held_first;
    let all = journal_is_enough || others(node, counted(setup, &state.nodes[node])).all(|other| holds(&other));
    let copies = 1 + others(node, owner.members).filter(holds).count() as u32;
    let durable = destage::durable(setup, &state.nodes[node], position);
    if (!all && setup.rules.ack_by_all_members) || (copies < setup.copies && !durable) {
        return false;
    }
    let value = log.at(position);
    if state.acked.prefix() < position {
        state.acked.put(position, value);
    }
    state.contradiction |= state.acked.at(position) != value;
    if copies < setup.copies {
        state.durable = state.durable.max(position);
    }
    if let Some(owner) = &mut state.nodes[node].owner {
        owner.acked = position;
    }
    true
}

/// What may be shown to a client is a promise from then on, acknowledged or not: what all hold; without the rule
/// `open_writes_are_not_read`, whatever the owner has.
fn show_reads(setup: &Setup, state: &mut State, node: NodeId) {
    let me = &state.nodes[node];
    let Some(owner) = me.owner.filter(|owner| owner.phase == Phase::Serving) else { return };
    let log = me.log;
    let held = others(node, counted(setup, me)).map(|(other, _)| owner.peers[other].held).min();
    let shown = match setup.rules.open_writes_are_not_read {
        true => log.prefix().min(held.unwrap_or(log.prefix())),
        false => log.prefix(),
    };
    let extends = log.cut(state.acked.prefix()) == state.acked && shown > state.acked.prefix();
    if extends && state.record.owner == node && state.record.term == me.term {
        state.acked = log.cut(shown);
    }
}

/// The client: it writes, its requests may lie in a connection, and it repeats what was not answered.
fn client(steps: &mut Steps<'_>, node: NodeId) {
    let state = steps.before;
    let Some(owner) = state.nodes[node].owner else { return };
    let full = state.nodes[node].log.prefix() as usize == LOG;
    if owner.phase != Phase::Serving || full || (owner.clean && steps.setup.rules.clean_ends_before_writing) {
        return;
    }
    let log = state.nodes[node].log;
    let more = state.next as usize <= steps.setup.load.len();
    let unanswered = state.nodes.iter().map(|node| node.queued).find(|value| *value != 0 && log.find(*value).is_none());
    if more && unanswered.is_none() {
        steps.take(Step::Write(node), |after| {
            after.next += 1;
            frames::append(after, node, state.next)
        });
        steps.fault(
            Step::Queue(node),
            |budget| &mut budget.queued,
            |after| {
                after.next += 1;
                after.nodes[node].queued = state.next;
            },
        );
    }
    let queued = state.nodes[node].queued;
    if queued != 0 {
        steps.take(Step::Execute(node), |after| {
            after.nodes[node].queued = 0;
            frames::append(after, node, queued)
        });
    } else if let Some(value) = unanswered {
        steps.take(Step::Repeat(node), |after| frames::append(after, node, value));
    }
}

/// A node stops to believe that it is the owner. Rule `sessions_end_with_ownership`.
fn demote(setup: &Setup, node: &mut Node) {
    node.owner = None;
    if setup.rules.sessions_end_with_ownership {
        node.queued = 0;
    }
}

fn faults(steps: &mut Steps<'_>, node: NodeId) {
    let (setup, flash) = (*steps.setup, steps.setup.flash);
    if !steps.before.nodes[node].up {
        steps.take(Step::Restart(node), |after| restart(&setup, after, node));
        return;
    }
    if !flash {
        steps.fault(
            Step::Crash(node),
            |budget| &mut budget.crash,
            |after| {
                stop(after, node);
                let gone = &mut after.nodes[node];
                let incarnation = gone.incarnation + 1;
                *gone =
                    Node { up: false, incarnation, term: 0, owned: 0, confirmed: 0, watermark: 0, pins: 0, ..*gone };
                gone.log = Default::default();
            },
        );
        return;
    }
    steps.fault(Step::Kill(node), |budget| &mut budget.kill, |after| stop(after, node));
    steps.fault(
        Step::PowerCut(node),
        |budget| &mut budget.power,
        |after| {
            stop(after, node);
            let cut = &mut after.nodes[node];
            cut.log = cut.log.cut(cut.watermark);
            cut.confirmed &= (1 << cut.watermark) - 1;
            cut.incarnation += u8::from(setup.rules.power_ends_incarnations);
        },
    );
}

/// The end of a process: what it asked of coordinator and backing stays on its way.
fn stop(state: &mut State, node: NodeId) {
    let gone = &mut state.nodes[node];
    gone.up = false;
    gone.owner = None;
    gone.queued = 0;
    if let Some(pending) = gone.pending.take() {
        insert(&mut state.floating, pending.transaction);
    }
}

/// Rule `restart_is_a_take_over`: without it, whoever was the owner goes on as it was, on its own word.
fn restart(setup: &Setup, state: &mut State, node: NodeId) -> bool {
    let record = state.record;
    let back = &mut state.nodes[node];
    back.up = true;
    if !setup.rules.restart_is_a_take_over && back.owned > 0 && back.owned == back.term {
        let mut alone = [0; NODES];
        alone[node] = back.incarnation;
        let recorded = record.owner == node && record.term == back.owned;
        let members = if recorded { record.members } else { alone };
        back.owner = Some(Owner { phase: Phase::Serving, ..Owner::new(record.epoch, members) });
    }
    true
}
