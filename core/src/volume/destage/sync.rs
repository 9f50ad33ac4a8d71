//! What was written becomes durable: the backing is synced, the watermark follows, and records end.

use super::*;

impl Volume {
    pub(super) fn sync_backing_if_wanted(&mut self) {
        let d = &self.destage;
        let quiet = d.in_flight == 0 && d.queue.is_empty() && d.deferred.is_empty() && self.journal.may_sync_backing();
        let Some(since) = d.unsynced_since else { return };
        if !quiet || d.syncing || d.failing.is_some() {
            return;
        }
        let group_complete = match self.index.cursor() {
            Some(id) => self.index.get(id).descriptor.group != d.group,
            None => self.groups.current() != d.group,
        };
        let wanted = group_complete
            || self.journal.is_applying()
            || self.wants_journal()
            || self.pins_are_proven()
            || self.is_leaving()
            || self.round_full()
            || self.acks.wants_backing_sync()
            || self.control.goal.is_some()
            || self.control.reason == Reason::Draining
            || self.pressure() > FILL_EAGER
            || self.now - since >= SYNC_DELAY;
        if !wanted {
            return;
        }
        // With nothing left to choose all of the log is covered, also positions that no record has any more: those that a
        // power loss cut off, and those superseded. A flush that waits for the last of them would wait for ever.
        let through =
            if self.index.cursor().is_none() { self.positions.committed().max(d.collected) } else { d.collected };
        if planted!(self, release_without_backing_sync) {
            return self.on_backing_synced(through, None);
        }
        self.destage.syncing = true;
        self.destage.busy_since.get_or_insert(self.now);
        self.recorder.counters.backing_syncs += 1;
        let op = self.begin_op(Op::BackingSync { through });
        self.effects.push_back(Effect::BackingSync { op });
    }

    pub(super) fn begin_backing_write(&mut self) {
        self.destage.in_flight += 1;
        self.destage.busy_since.get_or_insert(self.now);
    }

    pub(super) fn rest_backing(&mut self) {
        if let Some(since) = self.destage.busy_since.take() {
            self.destage.busy = Duration(self.destage.busy.0 + (self.now - since).0);
        }
    }

    pub(in super::super) fn on_backing_synced(&mut self, through: Lsn, failed: Option<IoError>) {
        self.destage.syncing = false;
        self.rest_backing();
        if self.replication.own_role.is_stepping_down() {
            return;
        }
        if let Some(error) = failed {
            if planted!(self, sync_again_only) {
                return;
            }
            // What the device did with the unsynced writes is unknown: all of them again (fsyncgate).
            return self.backing_failed(error);
        }
        let d = &mut self.destage;
        let took = core::mem::take(&mut d.busy).0.max(1);
        if d.unsynced_bytes >= 64 << 10 {
            let rate = (d.unsynced_bytes as f64 * 1e9 / took as f64) as u64;
            // Half old, half new: follows a change within a few rounds, does not jump with one.
            d.rate_bytes_per_sec = if d.rate_bytes_per_sec == 0 { rate } else { (d.rate_bytes_per_sec + rate) / 2 };
            d.fast = d.unsynced_writes as f64 * 1e9 / took as f64 >= FAST_WRITES_PER_SEC as f64;
            let target = (d.rate_bytes_per_sec as f64 * ROUND_TIME.as_secs_f64()) as u64;
            d.round_bytes = target.clamp(64 << 10, self.config.destage_round_bytes_max.max(64 << 10));
        }
        (d.unsynced_bytes, d.unsynced_writes) = (0, 0);
        d.unsynced_since = None;
        d.retry_delay = RETRY_DELAY_MIN;
        if self.journal.is_applying() {
            self.end_batch();
        }
        self.positions.make_durable(through);
        if planted!(self, retire_before_checkpoint) {
            self.retire_through(self.positions.durable());
        }
        self.answer_vouched();
        if self.role() == Role::Owner {
            self.end_rewritten_pins();
            return self.owe_watermark();
        }
        self.checkpoints.want();
        if !planted!(self, checkpoint_ahead_of_log) {
            self.positions.checkpoint_after_accepted();
        }
        self.write_checkpoint();
    }

    /// The checkpoint says that everything up to here is durable in the backing: those records end.
    pub(in super::super) fn retire_through(&mut self, destaged: Lsn) {
        self.positions.retire(destaged);
        self.answer_vouched();
        let mut next = self.index.oldest();
        while let Some(id) = next {
            if self.index.get(id).descriptor.lsn > self.positions.destaged() {
                break;
            }
            next = self.index.after(id);
            if self.is_kept_by_pin(id, self.positions.destaged()) {
                // A follower's, too: pins that come with a later term must not bring back what it says of other blocks.
                self.index.confine_to_pinned(id);
                continue;
            }
            let in_backing = matches!(self.index.get(id).state, State::Written | State::Superseded);
            assert!(in_backing, "what ends is in the backing, or covered by what is");
            let (descriptor, whole) = self.index.retire(id);
            // What a follower has is the owner's content at some time, not the backing's.
            let whole = whole && self.role() != Role::Follower;
            let payloads = self.config.superblock.layout.payload_blocks;
            match &mut self.flash {
                None if id >= payloads => {}
                // The slot turns from dirty to clean without a copy.
                None if whole => self.pool.cache(FrameId(id), descriptor.block, Lsn(0)),
                None => self.pool.release(FrameId(id)),
                Some(flash) => flash.forget_one(flash.segment_of(id)),
            }
        }
        let keep = self.destage.ages.partition_point(|(first, _)| *first <= self.positions.destaged());
        self.destage.ages.drain(..keep.saturating_sub(1));
    }

    pub(in super::super) fn is_destaged(&self, goal: &Goal) -> bool {
        self.positions.destaged() >= goal.through
            || (self.index.is_empty() && self.backing_quiet() && self.positions.committed() >= goal.through)
    }
}
