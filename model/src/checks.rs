//! What must hold in every state, and what it is to have recovered.

use crate::setup::Setup;
use crate::state::{BLOCKS, Log, NODES, Node, NodeId, Owner, Phase, Position, Ranges, State, Value};

/// A recorded member that is up, in its recorded incarnation.
pub fn live(state: &State, node: NodeId) -> bool {
    state.nodes[node].up && recorded(state, node)
}

/// A recorded member whose log still exists, whether its process runs or not.
pub fn recorded(state: &State, node: NodeId) -> bool {
    state.record.members[node] == state.nodes[node].incarnation
}

/// What the logs of the recorded members know as pinned.
pub fn told_pins(state: &State) -> Ranges {
    (0..NODES).filter(|node| recorded(state, *node)).map(|node| state.nodes[node].pins).fold(0, |all, pins| all | pins)
}

/// What is wrong in a state.
pub fn violation(setup: &Setup, state: &State) -> Option<String> {
    if state.contradiction {
        return Some("two owners acknowledged different writes at one position".to_string());
    }
    let nodes = 0..setup.nodes;
    nodes
        .clone()
        .find_map(|node| member_lacks_acknowledged(setup, state, node))
        .or_else(|| two_owners(setup, state))
        .or_else(|| nodes.clone().find_map(|node| not_entitled(setup, state, node)))
        .or_else(|| nodes.clone().find_map(|node| wrong_read(setup, state, node)))
        .or_else(|| nodes.clone().find_map(|node| trimmed_but_gone(setup, state, node)))
        .or_else(|| no_crash_image(setup, state))
        .or_else(|| durable_but_gone(setup, state))
}

/// No acknowledged write is missing at any recorded member that is up in its recorded incarnation.
fn member_lacks_acknowledged(setup: &Setup, state: &State, node: NodeId) -> Option<String> {
    let counts = live(state, node)
        || (!setup.rules.incarnations_count && state.nodes[node].up && state.record.members[node] != 0);
    let log = state.nodes[node].log;
    // A clean record promises nothing of its members' logs: everything is in the backing.
    let lacks = counts && !state.record.clean && log.cut(state.acked.prefix()) != state.acked;
    lacks.then(|| format!("member {node} with log {log:?} lacks what was acknowledged: {:?}", state.acked))
}

/// At most one node owns the volume in a term.
fn two_owners(setup: &Setup, state: &State) -> Option<String> {
    let owns = |node: NodeId| state.nodes[node].up && state.nodes[node].owner.is_some();
    let pairs = (0..setup.nodes).flat_map(|a| (0..a).map(move |b| (b, a)));
    pairs
        .filter(|(a, b)| owns(*a) && owns(*b) && state.nodes[*a].term == state.nodes[*b].term)
        .map(|(a, b)| format!("{a} and {b} both own the volume in term {}", state.nodes[a].term))
        .next()
}

/// Who serves in the newest term is its owner and a member, reaches the backing, serves no write that had been given
/// up, and has executed no request twice.
fn not_entitled(setup: &Setup, state: &State, node: NodeId) -> Option<String> {
    let me = &state.nodes[node];
    serving(me)?;
    if me.term > state.record.term {
        return Some(format!("{node} serves in term {}, which the record does not know", me.term));
    }
    if me.term < state.record.term {
        return None;
    }
    let recorded = live(state, node) || !setup.rules.incarnations_count;
    if state.record.owner != node || !recorded {
        return Some(format!("{node} serves and is not the owner, or no member"));
    }
    if !setup.reaches[node] && me.watermark > 0 {
        return Some(format!("{node} serves, and cannot read what is only in the backing"));
    }
    let values: Vec<Value> = me.log.0.iter().copied().filter(|value| *value != 0).collect();
    if let Some(value) = values.iter().find(|value| state.abandoned & (1 << **value) != 0) {
        return Some(format!("write {value} came back after an owner had served without it"));
    }
    let repeated = values.windows(2).any(|pair| pair[0] > pair[1]);
    repeated.then(|| format!("{node} executed an old request after a newer one: {values:?}"))
}

/// The owner's state, where it serves.
fn serving(node: &Node) -> Option<&Owner> {
    node.owner.as_ref().filter(|owner| node.up && owner.phase == Phase::Serving)
}

/// A read by the client is never older than what was acknowledged to its session: by this owner, and where the record
/// names this owner, by any.
fn wrong_read(setup: &Setup, state: &State, node: NodeId) -> Option<String> {
    let me = &state.nodes[node];
    let owner = serving(me)?;
    let current = me.term == state.record.term;
    let promised = if current { state.acked } else { me.log.cut(owner.acked) };
    (0..BLOCKS).find_map(|block| {
        let newest = setup.newest(&promised, block, 0, promised.prefix());
        let read = read(setup, state, me, block);
        let seen = age(&me.log, &promised, read);
        let wanted = age(&me.log, &promised, newest);
        let foreign = current && seen.is_none();
        (foreign || (current && seen < wanted) || (!current && seen.is_some_and(|seen| Some(seen) < wanted)))
            .then(|| format!("{node} reads {read} from block {block}, although {newest} was acknowledged"))
    })
}

/// The position of a value in a log, or in another one that it is a part of.
fn age(log: &Log, promised: &Log, value: Value) -> Option<Position> {
    if value == 0 { Some(0) } else { log.find(value).or_else(|| promised.find(value)) }
}

/// What the owner reads. Rule `pinned_is_read_from_the_log`.
fn read(setup: &Setup, state: &State, node: &Node, block: usize) -> Value {
    let pinned = node.pins & (1 << block) != 0 && setup.rules.pinned_is_read_from_the_log;
    let from = if pinned { 0 } else { node.watermark };
    match setup.newest(&node.log, block, from, node.log.prefix()) {
        0 => state.backing[block],
        value => value,
    }
}

/// Where no pin is, what the newest owner has trimmed is in the backing, or something of the group behind it.
fn trimmed_but_gone(setup: &Setup, state: &State, node: NodeId) -> Option<String> {
    let me = &state.nodes[node];
    me.owner.filter(|_| me.up && me.term == state.record.term && state.record.owner == node)?;
    let group = if me.watermark == me.log.prefix() { me.watermark } else { setup.group_end(&me.log, me.watermark + 1) };
    (0..BLOCKS).filter(|block| me.pins & (1 << block) == 0).find_map(|block| {
        let (destaged, there) = (setup.newest(&me.log, block, 0, me.watermark), state.backing[block]);
        let open = me.log.find(there).is_some_and(|at| at > me.watermark && at <= group);
        let right = there == destaged || open;
        (!right)
            .then(|| format!("block {block} of the backing has {there} instead of {destaged}, which {node} trimmed"))
    })
}

/// The backing after replay of the journal beside it.
fn image(setup: &Setup, state: &State) -> [Value; BLOCKS] {
    let mut image = state.backing;
    if let Some(batch) = state.journal.batch {
        for (block, content) in image.iter_mut().enumerate() {
            let from = if batch.pins & (1 << block) == 0 { batch.from } else { 0 };
            let value = setup.newest(&batch.log, block, from, batch.through);
            *content = if value == 0 { *content } else { value };
        }
    }
    image
}

/// The backing is a crash image, outside of ranges that a recorded member knows as pinned: all groups up to one, and
/// any part of the next.
fn no_crash_image(setup: &Setup, state: &State) -> Option<String> {
    if state.flagged {
        return None;
    }
    let image = image(setup, state);
    let members: Vec<NodeId> = (0..NODES).filter(|node| recorded(state, *node)).collect();
    let pins = told_pins(state);
    let logs = if members.is_empty() || state.record.clean {
        vec![state.sent]
    } else {
        members.iter().map(|node| state.nodes[*node].log).collect()
    };
    let wrong = logs.iter().find(|log| !is_crash_image(setup, log, image, pins))?;
    Some(format!("{image:?}, in the backing after replay, is no crash image of {wrong:?}"))
}

fn is_crash_image(setup: &Setup, log: &Log, image: [Value; BLOCKS], pins: u8) -> bool {
    let end = log.prefix();
    let mut from = 0;
    loop {
        let group = if from == end { end } else { setup.group_end(log, from + 1) };
        let fits = |block: usize| {
            let old = image[block] == setup.newest(log, block, 0, from);
            let part =
                (from + 1..=group).any(|at| log.at(at) == image[block] && setup.write(log.at(at)).block == block);
            pins & (1 << block) != 0 || old || part
        };
        if (0..BLOCKS).all(fits) {
            return true;
        }
        if from == end {
            return false;
        }
        from = group;
    }
}

/// What was acknowledged because backing or journal have it is there, even if every log is lost.
fn durable_but_gone(setup: &Setup, state: &State) -> Option<String> {
    let image = image(setup, state);
    let promised = state.acked.cut(state.durable.min(state.acked.prefix()));
    (0..BLOCKS).find_map(|block| {
        let newest = setup.newest(&promised, block, 0, promised.prefix());
        let wanted = age(&state.sent, &state.acked, newest)?;
        let there = age(&state.sent, &state.acked, image[block]);
        (there.is_none_or(|there| there < wanted)).then(|| {
            format!("block {block} has {} after replay, although {newest} was acknowledged as durable", image[block])
        })
    })
}

/// All is well: the recorded owner serves with all copies, nothing is dirty, pinned or unacknowledged. Or a person is
/// needed: the volume was stopped, or every recorded log is lost.
pub fn recovered(setup: &Setup, state: &State) -> bool {
    let record = &state.record;
    let lost = (0..NODES).all(|node| !recorded(state, node));
    let me = &state.nodes[record.owner];
    let Some(owner) = me.owner.filter(|_| me.up && me.term == record.term) else { return lost || record.clean };
    let end = me.log.prefix();
    let drained = me.watermark == end && owner.acked == end && me.pins == 0 && state.submitted.is_empty();
    let whole = record.members.iter().filter(|member| **member != 0).count() as u32 >= setup.wanted;
    let quiet = state.nodes[..setup.nodes].iter().all(|node| node.up && node.pending.is_none());
    lost || record.clean || (owner.phase == Phase::Serving && drained && whole && quiet)
}
