//! Replication: what is sent, and what a receiver makes of it.

use super::{Step, Steps, demote, others};
use crate::setup::Setup;
use crate::state::{LOG, Message, Node, NodeId, Position, State, Value, insert};

/// An owner puts a value at the end of its log and sends it to everybody who follows.
pub fn append(state: &mut State, node: NodeId, value: Value) -> bool {
    let position = state.nodes[node].log.prefix() + 1;
    let writer = &mut state.nodes[node];
    writer.log.put(position, value);
    writer.confirmed |= 1 << (position - 1);
    for to in followers(writer, node) {
        insert(&mut state.network, Message::Append { term: state.nodes[node].term, to, position, value });
    }
    true
}

/// Members and learners, as their owner knows them.
fn followers(node: &Node, number: NodeId) -> Vec<(NodeId, u8)> {
    let Some(owner) = &node.owner else { return Vec::new() };
    others(number, owner.members).chain(others(number, owner.learners)).collect()
}

/// Tells a follower everything: the seal, what the backing does not have, and the progress.
pub fn introduce(state: &mut State, node: NodeId, to: (NodeId, u8)) {
    let Node { term, log, watermark, pins, .. } = state.nodes[node];
    insert(&mut state.network, Message::Seal { term, to, log, watermark, pins });
    for position in watermark + 1..=log.prefix() {
        insert(&mut state.network, Message::Append { term, to, position, value: log.at(position) });
    }
    insert(&mut state.network, Message::Progress { term, to, watermark, pins });
}

/// The same to all members: the first thing that a new owner does.
pub fn introduce_all(state: &mut State, node: NodeId) {
    for to in followers(&state.nodes[node], node) {
        introduce(state, node, to);
    }
}

/// Tells everybody what the backing has and what is pinned.
pub fn progress(state: &mut State, node: NodeId) {
    let Node { term, watermark, pins, .. } = state.nodes[node];
    for to in followers(&state.nodes[node], node) {
        insert(&mut state.network, Message::Progress { term, to, watermark, pins });
    }
}

/// Every message may arrive.
pub fn deliveries(steps: &mut Steps<'_>) {
    let setup = *steps.setup;
    for message in &steps.before.network {
        steps.take(Step::Deliver(*message), |after| match *message {
            Message::Seal { term, to, .. } => addressed(after, to) && seal(&setup, after, term, to, message),
            Message::Append { term, to, position, value } => {
                addressed(after, to) && store(&setup, after, term, to, (position, value))
            }
            Message::Progress { term, to, watermark, pins } => {
                addressed(after, to) && learn(&setup, after, term, to, (watermark, pins))
            }
            Message::Holds { term, from, .. } => heard(&setup, after, term, from, message),
        });
    }
}

/// Frames name the incarnation that they are for.
fn addressed(state: &State, to: (NodeId, u8)) -> bool {
    state.nodes[to.0].up && state.nodes[to.0].incarnation == to.1
}

/// A node follows a new owner: it takes its term, and cuts its log where it differs. What remains and lies in the
/// owner's log is confirmed. Rule `tails_compared_by_term`. One that follows already only answers again.
fn seal(setup: &Setup, state: &mut State, term: u8, to: (NodeId, u8), message: &Message) -> bool {
    let Message::Seal { log, watermark, pins, .. } = *message else { return false };
    let node = &mut state.nodes[to.0];
    if node.term > term {
        return false;
    }
    if node.term < term {
        demote(setup, node);
        node.term = term;
        node.watermark = watermark;
        node.pins = pins;
        let same = |position: &Position| node.log.at(*position) == log.at(*position) && log.at(*position) != 0;
        if setup.rules.tails_compared_by_term {
            let shared = watermark + (watermark + 1..=LOG as Position).take_while(same).count() as Position;
            for position in 1..=watermark {
                node.log.put(position, log.at(position));
            }
            node.log = node.log.cut(shared);
        }
        node.confirmed = (1 << node.log.prefix()) - 1;
    } else if node.owner.is_none() {
        // It was a member of this term before: what the backing has got meanwhile is not sent any more.
        for position in 1..=watermark {
            node.log.put(position, log.at(position));
        }
        node.confirmed |= (1 << watermark) - 1;
        node.watermark = node.watermark.max(watermark);
        node.pins &= pins;
    }
    answer(setup, state, term, to);
    true
}

/// A record arrives. Rule `older_terms_are_refused`.
fn store(setup: &Setup, state: &mut State, term: u8, to: (NodeId, u8), (position, value): (Position, Value)) -> bool {
    let node = &mut state.nodes[to.0];
    let older_accepted = term < node.term && !setup.rules.older_terms_are_refused;
    if (term != node.term && !older_accepted) || node.owner.is_some() {
        return false;
    }
    node.log.put(position, value);
    node.confirmed |= 1 << (position - 1);
    answer(setup, state, term, to);
    true
}

/// Progress arrives; it only grows within a term, and counts only for who holds what it speaks of.
fn learn(setup: &Setup, state: &mut State, term: u8, to: (NodeId, u8), (watermark, pins): (Position, u8)) -> bool {
    let node = &mut state.nodes[to.0];
    if term != node.term || node.owner.is_some() || node.log.prefix() < watermark {
        return false;
    }
    node.watermark = node.watermark.max(watermark);
    node.pins &= pins;
    answer(setup, state, term, to);
    true
}

/// Tells the owner how far the node holds everything. Rule `held_is_a_prefix`.
fn answer(setup: &Setup, state: &mut State, term: u8, from: (NodeId, u8)) {
    let confirmed = state.nodes[from.0].confirmed;
    let highest = (u8::BITS - confirmed.leading_zeros()) as Position;
    let prefix = if setup.rules.held_is_a_prefix { confirmed.trailing_ones() as Position } else { highest };
    let watermark = state.nodes[from.0].watermark;
    insert(&mut state.network, Message::Holds { term, from, prefix, watermark });
}

/// The owner of that term hears an answer. Rule `answers_name_incarnations`.
fn heard(setup: &Setup, state: &mut State, term: u8, from: (NodeId, u8), message: &Message) -> bool {
    let Message::Holds { prefix, watermark, .. } = *message else { return false };
    let Some(node) = owner_of(state, term) else { return false };
    let Some(owner) = &mut state.nodes[node].owner else { return false };
    let follower = owner.members[from.0].max(owner.learners[from.0]);
    let expected = follower == from.1 || (follower != 0 && !setup.rules.answers_name_incarnations);
    if expected {
        let peer = &mut owner.peers[from.0];
        peer.answered = true;
        peer.held = peer.held.max(prefix);
        peer.watermark = peer.watermark.max(watermark);
    }
    expected
}

fn owner_of(state: &State, term: u8) -> Option<NodeId> {
    state.nodes.iter().position(|node| node.up && node.owner.is_some() && node.term == term)
}

/// A message that can have no effect any more, whatever happens: forgotten, so that states differ only where it matters.
pub fn spent(setup: &Setup, state: &State, message: &Message) -> bool {
    let gone = |to: (NodeId, u8), term: u8| {
        let node = &state.nodes[to.0];
        node.incarnation != to.1 || (node.term > term && setup.rules.older_terms_are_refused)
    };
    let peer = |term, from: (NodeId, u8)| {
        let owner = owner_of(state, term).and_then(|node| state.nodes[node].owner);
        owner.map(|owner| (owner.peers[from.0], owner.members[from.0].max(owner.learners[from.0])))
    };
    match *message {
        Message::Seal { term, to, watermark, .. } => {
            let node = &state.nodes[to.0];
            let answered = peer(term, to).is_none_or(|(peer, _)| peer.answered);
            gone(to, term) || (node.term >= term && answered && node.log.prefix() >= watermark)
        }
        Message::Append { term, to, position, value } => {
            let node = &state.nodes[to.0];
            let there = node.confirmed & (1 << (position - 1)) != 0 && node.log.at(position) == value;
            gone(to, term) || (node.term == term && there)
        }
        Message::Progress { term, to, watermark, pins } => {
            let node = &state.nodes[to.0];
            gone(to, term) || (node.term == term && node.watermark >= watermark && node.pins & pins == node.pins)
        }
        Message::Holds { term, from, prefix, watermark } => peer(term, from).is_none_or(|(peer, incarnation)| {
            let known = peer.answered && peer.held >= prefix && peer.watermark >= watermark;
            stale(setup, incarnation, from) || known
        }),
    }
}

/// From an incarnation that a newer one has replaced among the followers.
fn stale(setup: &Setup, follower: u8, from: (NodeId, u8)) -> bool {
    follower > from.1 && setup.rules.answers_name_incarnations
}
