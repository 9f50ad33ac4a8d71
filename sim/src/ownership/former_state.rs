//! Nodes that are put back to an earlier state of themselves, whole: process, tier, state folder and clock, as by a virtual
//! machine's memory snapshot. What was under way to the backing and in the network goes on.
//!
//! Nothing is promised of such a node until it has been told, or could have been (losses.md): a run in which it acts before ends.

use super::oracle::{violated, withdrawn};
use super::volume::{BackingWrite, PutBack, Tier};
use super::{Item, MS, Node, Process, World};
use forebay_core::cluster::*;
use forebay_core::message::*;
use forebay_core::types::*;

/// An owner says every 500 ms what it has heard; messages may get lost.
const TOLD_WITHIN: u64 = 2_000 * MS;

/// A node as it was.
#[derive(Clone)]
pub(super) struct Snapshot {
    process: Process,
    tier: Tier,
    seen: Option<Record>,
    rewinds: KnownRewinds,
    named: Option<(Instant, RewindId)>,
    mark: Vec<RewindId>,
    warned: (Term, Epoch),
    clock: Instant,
    host: Host,
}

impl World {
    /// Takes a snapshot of a node that waits for nothing but messages, time and the coordinator. False: not now.
    pub fn take_snapshot(&mut self, node: usize) -> bool {
        let waits = |item: &Item, id: u64| match item {
            Item::Report { process, .. }
            | Item::Remembered { process, .. }
            | Item::TierOpened { process, .. }
            | Item::Written { process, .. }
            | Item::Answer { process, event: forebay_core::ownership::Event::Backing(..), .. } => *process == id,
            _ => false,
        };
        let Node { process: Some(process), seen, rewinds, named, mark, warned, host, .. } = &self.nodes[node] else {
            return false;
        };
        let id = process.id;
        let under_way = self.under_way.iter().any(|write| write.process == id);
        let busy = under_way || self.agenda.iter().any(|entry| waits(&entry.0.2, id));
        let Some(tier) = self.tiers[node].clone().filter(|tier| !busy && tier.put_back.is_none()) else { return false };
        if self.now < self.nodes[node].paused_until || process.volume.has_failed() {
            return false;
        }
        let (seen, rewinds, named, mark, warned, host) =
            (seen.clone(), rewinds.clone(), *named, mark.clone(), *warned, *host);
        let (process, clock) = (process.clone(), self.local(node));
        self.snapshots[node] = Some(Snapshot { process, tier, seen, rewinds, named, mark, warned, clock, host });
        true
    }

    /// Puts a node back to its snapshot, in the same boot and on the same tier. False: there is none that fits.
    pub fn put_back(&mut self, node: usize) -> bool {
        let Some(Snapshot { mut process, mut tier, seen, rewinds, named, mark, warned, clock, host }) =
            self.snapshots[node].clone()
        else {
            return false;
        };
        let Some(present) = &self.tiers[node] else { return false };
        if present.incarnation != tier.incarnation
            || self.nodes[node].host != host
            || self.nodes[node].process.is_none()
        {
            return false;
        }
        self.tell(|| format!("node {} is put back to {clock:?}", node + 1));
        let less = tier.log.len() < present.log.len() || tier.seen < present.seen || tier.watermark < present.watermark;
        // Once more, or after it was put back before: what it lacks it lacks still.
        if less || present.put_back.is_some() {
            tier.put_back = Some(PutBack { heard: None, told: false });
            self.forgot = true;
        }
        self.count("nodes put back");
        let id = self.next_process;
        self.next_process += 1;
        process.id = id;
        process.wake = None;
        process.volume.go_on_as(id);
        let open = process.open;
        self.tiers[node] = Some(tier);
        let place = &mut self.nodes[node];
        place.process = Some(process);
        (place.seen, place.rewinds, place.named) = (seen, rewinds, named);
        (place.mark, place.warned) = (mark, warned);
        place.paused_until = self.now;
        let ahead = self.local(node).0 as i64 - clock.0 as i64;
        self.nodes[node].offset -= ahead;
        let first = self.random.below(100 * MS);
        self.after(first, Item::Tick { node, process: id });
        if let Some((op, changes)) = open {
            // Whoever was asked has answered a process that is not there.
            self.leave_open(node, id, op, changes);
        }
        self.after(0, Item::Wake { node, process: id });
        // What it believes of the backing is of then; its next look shows what is.
        let reaches = self.nodes[node].reaches_backing;
        self.reach(node, reaches);
        true
    }

    /// An owner that knows more is heard by a node that was put back.
    pub(super) fn note_heard(&mut self, node: usize, envelope: &Envelope, message: &Message) {
        let from = envelope.from.node.0 as usize - 1;
        let whole = |tier: &Tier| tier.put_back.is_none() && tier.incarnation == envelope.from;
        let knows = self.tiers[from].as_ref().is_some_and(whole);
        // As the one it is now it has reason to believe that one.
        let status = self.status(node);
        let record = status.as_ref().and_then(|status| status.known.as_ref());
        let believes = record.is_some_and(|record| record.names(envelope.from) && record.names(envelope.to));
        // What arrives late of one that stands still was sent before.
        let speaks = self.now >= self.nodes[from].paused_until;
        let (now, local) = (self.now, self.local(node));
        let process = self.nodes[from].process.as_ref().map_or(0, |process| process.id);
        let Some(tier) = self.tiers[node].as_mut().filter(|tier| tier.incarnation == envelope.to && knows) else {
            return;
        };
        let end = tier.log.len() as u64;
        let Some(put_back) = &mut tier.put_back else { return };
        match message {
            // Of a term that is over nobody is believed.
            Message::Log(LogMessage::Said { held, .. }) => {
                put_back.told |= held.0 > end && envelope.term >= tier.seen.0
            }
            Message::Ownership(OwnershipMessage::Granted { sent }) => put_back.told |= *sent > local && believes,
            // Whose volume goes on says what it has heard as well.
            Message::Log(LogMessage::Append { .. })
                if envelope.term == self.coordinator.highest.0
                    && speaks
                    && put_back.heard.is_none_or(|(_, heard)| heard != process) =>
            {
                put_back.heard = Some((now, process));
            }
            _ => {}
        }
    }

    /// A promise is broken at this node. Where it was put back, and nobody could tell it yet, it is none.
    pub(super) fn broken_at(&self, node: usize, what: String) {
        if self.is_excused(node) {
            withdrawn(&format!("a node that was put back acted before it was told: {what}"));
        }
        violated(what)
    }

    /// A write may land of which the record knows nothing: nobody is to do that but a node that was put back, which writes in a
    /// term that was over, or has forgotten one of its own and what that has under way.
    pub(super) fn may_land(&self, write: &BackingWrite, record: &Record) {
        let known = record.term == write.term || record.unfenced.iter().any(|former| former.term == write.term);
        let writer = usize::from(write.host.machine[0]) - 1;
        let put_back = |node: usize| self.tiers[node].as_ref().is_some_and(|tier| tier.put_back.is_some());
        if !known && (put_back(writer) || put_back(record.owner.0 as usize - 1)) {
            withdrawn("a node that was put back wrote, or forgot what it had under way");
        }
        self.oracle.may_land(write, record);
    }

    /// The node was put back, and nobody could tell it yet: no owner that knows more was there for long enough.
    pub(super) fn is_excused(&self, node: usize) -> bool {
        let Some(put_back) = self.tiers[node].as_ref().and_then(|tier| tier.put_back) else { return false };
        let is_there = |id: u64| self.nodes.iter().flat_map(|node| &node.process).any(|process| process.id == id);
        !put_back.told && put_back.heard.is_none_or(|(since, by)| self.now < since + TOLD_WITHIN || !is_there(by))
    }
}
