//! The checkpoint writer: what changes slowly, written whole into the two places that a tier has for it, one after the other.
//!
//! - The newest checkpoint here is a durable one: what it says, a start of this tier finds. Only what it says of the backing
//!   lets records end, and only what it says of terms and marks is told to others.
//! - One writing at a time, and each is of both places: the second copy of a checkpoint is written before anything newer.
//!   Whoever wants one meanwhile gets the next.
//! - On flash a written copy counts when a sync of the tier has ended that began after it was written.
//! - None is written that is ahead of the log ([`super::positions`]), and none by a tier that has failed.
//!
//! Left to others: what a checkpoint says (its format), and when one is wanted.

use super::*;
use crate::format::TierKind;

/// See the module.
#[derive(Default)]
pub(super) struct Checkpoints {
    /// The newest one that is durable, in at least one place.
    newest: Checkpoint,
    /// Something has changed that it does not say.
    wanted: bool,
    /// A copy is on its way, or waits to be synced.
    busy: bool,
    /// It is the second copy of the newest checkpoint.
    copying: bool,
    /// Written, and synced with the next sync of the tier.
    to_sync: Option<Box<Checkpoint>>,
}

/// Of a checkpoint the copy that has become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Copy {
    First,
    Second,
}

impl Checkpoints {
    /// The newest one that is durable.
    pub(super) fn newest(&self) -> &Checkpoint {
        &self.newest
    }

    /// A start has found this one, or is about to write it, both copies, before anything else goes on.
    pub(super) fn begin_with(&mut self, newest: Checkpoint) {
        self.newest = newest;
    }

    /// Something has changed that is to be in the next one.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// Something of a checkpoint is on its way to the tier, or waits for its sync.
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    fn is_due(&self) -> bool {
        self.wanted && !self.busy
    }

    fn begin(&mut self) {
        (self.wanted, self.busy) = (false, true);
    }

    fn written(&mut self, written: Box<Checkpoint>) {
        self.to_sync = Some(written);
    }

    /// A copy is written, and no sync that would make it durable has begun.
    pub(super) fn awaits_sync(&self) -> bool {
        self.to_sync.is_some()
    }

    /// A sync of the tier begins: it makes this copy durable.
    pub(super) fn take_for_sync(&mut self) -> Option<Box<Checkpoint>> {
        self.to_sync.take()
    }

    /// A copy is durable. After the first one the second is to be written at once.
    fn taken(&mut self, written: Checkpoint) -> Copy {
        self.newest = written;
        let copy = if self.copying { Copy::Second } else { Copy::First };
        self.copying = copy == Copy::First;
        self.busy = self.copying;
        copy
    }

    /// Nothing of a checkpoint is under way any more.
    fn rest(&mut self) {
        self.to_sync = None;
        (self.copying, self.busy) = (false, false);
    }

    /// Asserts what the fields are to each other.
    pub(super) fn validate(&self) {
        assert!(self.busy || !self.copying, "a second copy is on its way");
        assert!(self.busy || self.to_sync.is_none(), "a copy that waits for its sync is under way");
    }
}

impl Volume {
    /// Writes what changes slowly, when it has changed and no writing is under way.
    pub(super) fn write_checkpoint(&mut self) {
        if !self.checkpoints.is_due() || self.tier.has_failed() || !self.positions.checkpoint_may_be_written() {
            return;
        }
        self.checkpoints.begin();
        self.replication.standing.committed = self.positions.committed();
        let next = Checkpoint {
            destaged: match self.role() {
                Role::Alone | Role::Follower => self.positions.durable(),
                // What members are not told must not be forgotten here, either (D5, D7).
                Role::Owner => self.replication.standing.mark.watermark.min(self.positions.durable()),
            },
            accepted: self.positions.accepted(),
            size_bytes: self.control.size_wanted().unwrap_or(self.size_bytes),
            clean: self.control.is_ending_clean(),
            ..self.next_checkpoint()
        };
        if let Some(flash) = &mut self.flash {
            flash.checkpoint_begins(next.batches_synced);
        }
        self.write_checkpoint_copy(next);
    }

    /// What follows the newest one, as far as it is not about the log.
    pub(super) fn next_checkpoint(&self) -> Checkpoint {
        Checkpoint {
            sequence: self.checkpoints.newest().sequence + 1,
            start: self.identity.start(),
            term: self.identity.term(),
            batches_synced: self.flash.as_ref().map_or(0, |flash| flash.batch_synced),
            size_bytes: self.size_bytes,
            life: self.identity.life(),
            host: self.config.cluster.map(|cluster| cluster.host),
            standing: self.config.cluster.map(|_| self.replication.standing.clone()),
            ..Checkpoint::default()
        }
    }

    fn write_checkpoint_copy(&mut self, copy: Checkpoint) {
        let (at, head) = (copy.place(), self.encoded(&copy));
        let op = self.begin_op(Op::Checkpoint(Box::new(copy)));
        self.recorder.counters.tier_writes += 1;
        self.effects.push_back(Effect::TierWrite { op, at, head, frames: Vec::new() });
    }

    /// As this tier has it.
    pub(super) fn encoded(&self, checkpoint: &Checkpoint) -> Vec<u8> {
        checkpoint.encode(self.config.superblock.version, self.identity.volume())
    }

    pub(super) fn on_checkpoint_written(&mut self, written: Box<Checkpoint>, failed: Option<IoError>) {
        if let Some(error) = failed {
            self.fail_tier(error);
        }
        if self.tier.has_failed() {
            return self.give_up_checkpoint();
        }
        match self.config.superblock.layout.kind {
            TierKind::Memory => self.checkpoint_taken(*written),
            TierKind::Flash => {
                self.checkpoints.written(written);
                self.sync_checkpoint_if_written();
            }
        }
    }

    /// The tier has failed, and what was under way for the checkpoint, its write or the sync that carried it, has ended. It
    /// counts for nothing, none follows it, and whoever waits for its end (a step down does) goes on. Never earlier: a write
    /// that is still in flight could land in a tier that is opened anew.
    pub(super) fn give_up_checkpoint(&mut self) {
        self.checkpoints.rest();
    }

    /// Flash: one that was written during a sync is synced by the next.
    pub(super) fn sync_checkpoint_if_written(&mut self) {
        if self.checkpoints.awaits_sync()
            && !self.tier.has_failed()
            && (!self.tier.is_syncing() || planted!(self, overlap_tier_syncs))
        {
            self.sync_tier();
        }
    }

    /// One copy is durable: what waits for it goes on. The same is written once more, in the other place, before
    /// anything newer: were the newest copy damaged while it alone says how far the backing is, the older one would
    /// have groups sent again whose records are partly gone.
    pub(super) fn checkpoint_taken(&mut self, written: Checkpoint) {
        match self.checkpoints.taken(written.clone()) {
            Copy::Second => return self.write_checkpoint(),
            Copy::First if planted!(self, one_checkpoint) => self.checkpoints.rest(),
            Copy::First => {
                self.write_checkpoint_copy(Checkpoint { sequence: written.sequence + 1, ..written.clone() });
            }
        }
        self.end_resize(written.size_bytes);
        self.refresh_pins();
        self.replication.follower.answer();
        match self.role() {
            Role::Alone | Role::Follower => self.retire_through(written.destaged),
            Role::Owner => {
                self.marks_changed();
                self.retire_told();
            }
        }
        if let Some(flash) = &mut self.flash {
            flash.checkpointed(written.batches_synced);
        }
        if planted!(self, one_checkpoint) {
            self.write_checkpoint();
        }
    }
}
