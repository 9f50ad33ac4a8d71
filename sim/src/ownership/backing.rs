//! The image: writes to it land late, in any order, or not at all when the lock of who sent them was taken from it; and what can be
//! known of that is told.

use super::volume::BackingWrite;
use super::{Item, MS, World};
use forebay_core::cluster::*;
use forebay_core::ownership::*;
use forebay_core::types::*;

impl World {
    /// An owner has the backing opened for its term. That may take long, or fail.
    pub(super) fn open_backing(&mut self, node: usize, process: u64, term: Term) {
        let drawn = |world: &mut World| world.chaos.opening(&mut world.backings);
        let (delay, answer) = self.openings.pop_front().unwrap_or_else(|| drawn(self));
        if delay >= 1_000 * MS {
            self.count("backings opened late");
        }
        self.after(delay, Item::Answer { node, process, event: Event::Backing(term, answer) });
    }

    pub(super) fn backing_answers(&mut self, node: usize, term: Term, answer: BackingAnswer) {
        let reached = self.nodes[node].reaches_backing;
        let answer = if reached { answer } else { BackingAnswer::Failed };
        self.tell(|| format!("node {} hears of the backing for term {}: {answer:?}", node + 1, term.0));
        if answer == BackingAnswer::Failed {
            self.count("backings not opened");
        }
        self.drive(node, Event::Backing(term, answer));
    }

    pub(super) fn land(&mut self, node: usize, write: BackingWrite) {
        // One that was refused is not there any more, and another term's is not this one.
        let is_it = |other: &BackingWrite| {
            (other.process, other.term, other.through) == (write.process, write.term, write.through)
        };
        let Some(at) = self.under_way.iter().position(is_it) else { return };
        self.under_way.remove(at);
        self.may_land(&write, self.newest_record());
        let newest = self.newest_record().term;
        if newest == write.term && self.loss.is_none() {
            self.oracle.backing = self.oracle.backing.max(write.through);
        }
        if newest != write.term {
            self.count("late writes");
        }
        self.after(0, Item::Written { node, process: write.process, write });
    }

    pub(super) fn written(&mut self, node: usize, write: BackingWrite) {
        let (now, backing) = (self.local(node), self.oracle.backing);
        let newest = self.coordinator.highest.0 == write.term;
        let (Some(process), Some(tier)) = (&mut self.nodes[node].process, &mut self.tiers[node]) else { return };
        if process.volume.owned() == Some(write.term) {
            let through = if newest { write.through } else { tier.watermark };
            process.volume.written(now, tier, through, backing);
            self.drive(node, Event::Timeout);
        }
    }

    /// The lock of an owner that lives is taken from it, by the server of the image: what it has under way there and what it still
    /// sends is refused, and others have proof. It looks after its lock, and is told after so long.
    pub fn revoke_lock(&mut self, node: usize, told_after: u64) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(term) = process.volume.owned().filter(|term| process.locks.remove(term)) else { return };
        process.revoked = Some((term, false));
        let id = process.id;
        self.tell(|| format!("node {} loses its lock of term {}", node + 1, term.0));
        self.count("locks revoked");
        let refused = self.under_way.len();
        self.under_way.retain(|write| (write.process, write.term) != (id, term));
        if self.under_way.len() < refused {
            self.after(MS, Item::Refused { node, process: id });
        }
        self.after(told_after, Item::LockLost { node, process: id, term });
    }

    pub(super) fn lock_lost(&mut self, node: usize, term: Term) {
        if let Some(process) = &mut self.nodes[node].process
            && process.is_refused(term)
        {
            process.revoked = Some((term, true));
        }
        self.drive(node, Event::LockLost(term));
    }

    /// A write to the backing has failed.
    pub(super) fn refused(&mut self, node: usize) {
        let now = self.local(node);
        let (Some(process), Some(tier)) = (&mut self.nodes[node].process, &mut self.tiers[node]) else { return };
        process.volume.write_failed(now, tier);
        self.drive(node, Event::Timeout);
    }

    /// What can be known of former owners is told to whoever waits for it.
    pub(super) fn prove(&mut self, node: usize) {
        let Some(process) = &self.nodes[node].process else { return };
        if process.volume.owned().is_none() && !self.random.chance(100_000) {
            return;
        }
        let Some(process) = &self.nodes[node].process else { return };
        let status = process.ownership.status();
        let Some(record) = status.record else { return };
        let mut terms: Vec<Term> = status.unproven.iter().map(|former| former.term).collect();
        if record.log != LogState::Released && process.volume.owned().is_none() {
            terms.push(record.term);
        }
        terms.retain(|term| !self.may_write(*term));
        for term in terms {
            self.tell(|| format!("node {} sees that the lock of term {} is gone", node + 1, term.0));
            self.drive(node, Event::Proof(term, Proof::LockGone));
        }
    }
}
