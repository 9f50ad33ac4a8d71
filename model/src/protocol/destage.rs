//! Destage: groups to the backing one by one, batches to the journal, pins and their end, fences, late writes.

use super::{Step, Steps, counted, frames, insert, others};
use crate::setup::Setup;
use crate::state::{BLOCKS, Batch, Journal, Node, NodeId, Open, Phase, Position, State, Submission};

/// What one owner may do with the backing.
pub fn steps(steps: &mut Steps<'_>, node: NodeId) {
    let (setup, state) = (*steps.setup, steps.before);
    let me = &state.nodes[node];
    let Some(owner) = me.owner else { return };
    if setup.fence && state.fenced < me.term && owner.phase != Phase::Leaving {
        steps.take(Step::Fence(node), |after| fence(&setup, after, me.term));
    }
    if owner.phase != Phase::Serving || !setup.reaches[node] || state.fenced > me.term {
        return;
    }
    if setup.journal {
        steps.take(Step::Journal(node), |after| journal(&setup, after, node));
    }
    if owner.open == Open::Nothing && me.watermark < me.log.prefix() {
        steps.take(Step::Destage(node), |after| destage(&setup, after, node));
    }
    if owner.open == Open::Nothing && me.pins != 0 {
        steps.take(Step::Rewrite(node), |after| rewrite(&setup, after, node));
    }
}

/// Writes on their way may land at any moment.
pub fn landings(steps: &mut Steps<'_>) {
    let setup = *steps.setup;
    for submission in &steps.before.submitted {
        steps.take(Step::Land(*submission), |after| {
            after.submitted.retain(|other| other != submission);
            match *submission {
                Submission::Block { by, term, block, value } => {
                    after.backing[block] = value;
                    group_ends(after, by, term);
                }
                Submission::Batch { by, term, batch } => batch_lands(&setup, after, (by, term), batch),
            }
            true
        });
    }
}

/// Ground for an acknowledgement without copies: up to this position everything is in the backing or in the journal.
/// Rule `pinned_is_not_durable`.
pub fn durable(setup: &Setup, node: &Node, position: Position) -> bool {
    let journaled = node.owner.map_or(0, |owner| owner.journaled);
    (1..=position).all(|at| {
        let pinned = node.pins & (1 << setup.write(node.log.at(at)).block) != 0;
        at <= journaled || (at <= node.watermark && !(pinned && setup.rules.pinned_is_not_durable))
    })
}

/// Up to where every member holds the log. Rule `group_is_held_first`.
fn held_by_all(setup: &Setup, node: &Node, number: NodeId) -> Position {
    let Some(owner) = &node.owner else { return 0 };
    if !setup.rules.group_is_held_first {
        return node.log.prefix();
    }
    let peers = others(number, counted(setup, node)).map(|(other, _)| owner.peers[other].held);
    peers.chain([node.log.prefix()]).min().unwrap_or(0)
}

/// Every member knows how far the backing is. Rule `members_know_progress`.
fn progress_is_known(setup: &Setup, node: &Node, number: NodeId) -> bool {
    let Some(owner) = &node.owner else { return false };
    let known = |(other, _): (NodeId, u8)| owner.peers[other].watermark == node.watermark;
    !setup.rules.members_know_progress || others(number, counted(setup, node)).all(known)
}

/// The next group goes out: its newest values, but none of a pinned range. Rule `groups_go_in_order`.
fn destage(setup: &Setup, state: &mut State, node: NodeId) -> bool {
    let me = state.nodes[node];
    let from = me.watermark;
    if !progress_is_known(setup, &me, node) {
        return false;
    }
    let ordered = setup.group_end(&me.log, from + 1);
    let whole = if setup.rules.groups_go_in_order { ordered } else { me.log.prefix() };
    let through = whole.min(held_by_all(setup, &me, node));
    let Some(journal) = journal_allows(setup, state, node, through) else { return false };
    if through <= from {
        return false;
    }
    state.journal = journal;
    note_sent(state, node, through);
    submit(setup, state, node, (from, through), !me.pins, Open::Group(through));
    true
}

/// Sends the newest values of some positions in some ranges; where there are none, the group is done at once.
fn submit(
    setup: &Setup,
    state: &mut State,
    node: NodeId,
    (from, through): (Position, Position),
    ranges: u8,
    open: Open,
) {
    let me = state.nodes[node];
    for block in (0..BLOCKS).filter(|block| ranges & (1 << block) != 0) {
        let value = setup.newest(&me.log, block, from, through);
        if value != 0 {
            insert(&mut state.submitted, Submission::Block { by: node, term: me.term, block, value });
        }
    }
    if let Some(owner) = &mut state.nodes[node].owner {
        owner.open = open;
    }
    group_ends(state, node, me.term);
}

fn note_sent(state: &mut State, node: NodeId, through: Position) {
    if through >= state.sent.prefix() {
        state.sent = state.nodes[node].log.cut(through);
    }
}

/// When the last write of the open group has landed, the group is durable: progress.
fn group_ends(state: &mut State, by: NodeId, term: u8) {
    let waits =
        |submission: &Submission| matches!(submission, Submission::Block { .. }) && submission.sender() == (by, term);
    let me = &mut state.nodes[by];
    let Some(owner) = &mut me.owner else { return };
    if me.term != term || state.submitted.iter().any(waits) {
        return;
    }
    match owner.open {
        Open::Nothing => return,
        Open::Group(through) => me.watermark = through,
        Open::Rewrite => me.pins = 0,
    }
    owner.open = Open::Nothing;
    frames::progress(state, by);
}

/// The end of the pins. Rules `open_group_passes_first`, `pins_end_by_evidence`, `pinned_is_written_again`.
fn rewrite(setup: &Setup, state: &mut State, node: NodeId) -> bool {
    let me = state.nodes[node];
    let passed = me.owner.is_some_and(|owner| me.watermark >= owner.pinned_through);
    if !passed && setup.rules.open_group_passes_first {
        return false;
    }
    if !evidence(state, node) && setup.rules.pins_end_by_evidence {
        return false;
    }
    let ranges = if setup.rules.pinned_is_written_again { me.pins } else { 0 };
    submit(setup, state, node, (0, me.watermark), ranges, Open::Rewrite);
    true
}

/// Nothing of an older term can land any more: fenced, or nobody is left who would send, and nothing is on its way.
fn evidence(state: &State, node: NodeId) -> bool {
    let term = state.nodes[node].term;
    let older = |sender: (NodeId, u8)| sender.1 < term;
    if state.fenced >= term {
        return true;
    }
    let quiet = !state.submitted.iter().any(|s| matches!(s, Submission::Block { .. }) && older(s.sender()));
    let sender = |other: &Node| other.up && other.owner.is_some() && other.term < term;
    quiet && !state.nodes.iter().any(sender)
}

/// The backing aborts what older terms have on their way, and refuses them from now on. Rule `fences_abort`.
fn fence(setup: &Setup, state: &mut State, term: u8) -> bool {
    state.fenced = term;
    state.submitted.retain(|submission| submission.sender().1 >= term || !setup.rules.fences_abort);
    true
}

fn batch_on_its_way(state: &State, node: NodeId) -> bool {
    let sender = (node, state.nodes[node].term);
    state.submitted.iter().any(|s| matches!(s, Submission::Batch { .. }) && s.sender() == sender)
}

/// A batch of everything that all members hold and the backing has not, pinned ranges included. Made where copies are
/// missing, and where the batch of a former term is to be replaced. Rule `batch_is_held_first`.
fn journal(setup: &Setup, state: &mut State, node: NodeId) -> bool {
    let me = state.nodes[node];
    let Some(owner) = me.owner else { return false };
    let held_first = setup.rules.batch_is_held_first;
    let through = if held_first { held_by_all(setup, &me, node) } else { me.log.prefix() };
    let newer = through > owner.journaled || state.journal.term < me.term;
    let copies = 1 + others(node, owner.members).count() as u32;
    let needed = copies < setup.copies || state.journal.batch.is_some() || !held_first;
    if !(newer && needed) || through == 0 || batch_on_its_way(state, node) {
        return false;
    }
    let batch = Batch { log: me.log.cut(through), from: me.watermark, through, pins: me.pins };
    insert(&mut state.submitted, Submission::Batch { by: node, term: me.term, batch });
    note_sent(state, node, through);
    true
}

/// A batch is there. Its sender looks, after the sync and before it relies on it, whether a newer term has begun to
/// write; and a new owner begins first and looks at older batches then, so one of the two sees the other. Rules
/// `journal_belongs_to_a_term`, `journal_is_read_back`.
fn batch_lands(setup: &Setup, state: &mut State, (by, term): (NodeId, u8), batch: Batch) {
    if term >= state.journal.term || !setup.rules.journal_belongs_to_a_term {
        state.journal = Journal { term: term.max(state.journal.term), batch: Some(batch) };
    }
    let counts = term == state.journal.term || !setup.rules.journal_is_read_back;
    let me = &mut state.nodes[by];
    if let Some(owner) = &mut me.owner
        && me.term == term
        && counts
    {
        owner.journaled = owner.journaled.max(batch.through);
    }
}

/// The journal as it must be before a group up to this position goes out; `None` where it cannot yet be so. Rule
/// `journal_before_groups`.
fn journal_allows(setup: &Setup, state: &State, node: NodeId, through: Position) -> Option<Journal> {
    let (me, journal) = (&state.nodes[node], state.journal);
    let term = journal.term.max(me.term);
    if !setup.rules.journal_before_groups || journal.term > me.term {
        return Some(Journal { term, ..journal });
    }
    if batch_on_its_way(state, node) {
        return None;
    }
    match journal.batch {
        None => Some(Journal { term, batch: None }),
        Some(batch) if me.watermark >= batch.through && me.pins == 0 => Some(Journal { term, batch: None }),
        Some(batch) if journal.term == me.term && through <= batch.through => Some(journal),
        Some(_) => None,
    }
}
