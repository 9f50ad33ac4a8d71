//! The journal beside the backing: its operations, its rules as seen from outside, and the replay of what an earlier
//! life left in it, which is the executor's part.
//!
//! Checked: a batch says nothing of a record that is neither in it nor superseded for good; while a replay would find a batch, the backing is given nothing but parts of it; a journal is not written
//! while the backing is; a batch can be read back, and its term is durably the tier's.

use super::*;
use crate::journal::{self, AreaState};
use crate::setup::Faults;

/// The steps of a replay; the process may die between any two.
#[derive(Clone, Copy)]
pub(super) enum Replay {
    /// The batch, if one counts, was written to the backing.
    Sync,
    /// The volume was told.
    Await,
    /// The heads in this order: the batch that counts last.
    Erase { first: usize, second: Option<usize> },
}

impl World {
    /// Where the tier says that the backing is complete; nothing where it says nothing legible.
    fn destaged_in_tier(&self) -> Option<Lsn> {
        self.newest_checkpoint(&self.node.tier.current).map(|checkpoint| checkpoint.destaged)
    }

    /// By the tier's own word, as a start reads it.
    pub(super) fn newest_checkpoint(&self, tier: &[u8]) -> Option<Checkpoint> {
        let copies = [1, 2].into_iter().filter_map(|place| checkpoint_at(self.setup.version, tier, place));
        copies.max_by_key(|checkpoint| checkpoint.sequence)
    }

    /// One of its copies, if it can be read.
    pub(super) fn checkpoint_at(&self, place: u32) -> Option<Checkpoint> {
        checkpoint_at(self.setup.version, &self.node.tier.current, place)
    }

    /// A start refuses a batch of a later term than that of the tier's checkpoint, so no loss of power may leave one. (A
    /// device that lies may: the tier is then older than its own journal.)
    fn assert_term_is_durable(&self, batch: &JournalBatch) {
        let Faults { flash_rot: 0, flash_lost: 0, flash_misdirected: 0, .. } = self.setup.faults else { return };
        if self.lie.is_some() {
            return;
        }
        let medium = match self.node.layout.kind {
            TierKind::Memory => &self.node.tier.current,
            TierKind::Flash => &self.node.tier.durable,
        };
        let term = self.newest_checkpoint(medium).map(|checkpoint| checkpoint.term);
        assert!(term >= Some(batch.term), "a batch of term {} while the tier's is durably {term:?}", batch.term);
    }

    /// Everything of earlier lives has landed, in the journal too: the batch that counts goes to the backing.
    pub(super) fn begin_replay(&mut self) {
        let areas = journal::look(&VOLUME_UUID, &self.journal.current);
        if areas.iter().any(|area| matches!(area, AreaState::Incomplete)) {
            self.coverage.see("incomplete batch ignored at restart");
        }
        if let Some(found) = journal::newest(&VOLUME_UUID, &self.journal.current) {
            if self.destaged_in_tier().is_some_and(|destaged| found.batch.through <= destaged) {
                self.coverage.see("batch already in the backing at restart");
            } else {
                trace!(
                    self,
                    "the journal's batch {} through {} is replayed", found.batch.sequence, found.batch.through
                );
                self.coverage.see("batch replayed at restart");
                // The batch may never have been synced, or a failed sync has forgotten it: it must not be lost half way.
                let area_bytes = self.journal.current.len() / 2;
                let whole = self.journal.current[found.area * area_bytes..][..area_bytes].to_vec();
                self.journal.write(found.area * area_bytes, &whole);
                self.journal.sync(self.journal.mark());
                // Also where the backing seems to hold the same: a failed sync may have forgotten it.
                let (journal, size) = (&self.journal.current, self.size_promised);
                journal::sectors(&found, journal, size, |at, bytes| self.backing.write(at, bytes));
            }
        }
        let wait = self.micros(100_000);
        self.schedule(wait, Due::Replay(Replay::Sync));
    }

    pub(super) fn go_on_replaying(&mut self, step: Replay) {
        let newest = journal::newest(&VOLUME_UUID, &self.journal.current);
        let wait = self.micros(100_000);
        match step {
            Replay::Sync => {
                self.backing.sync(self.backing.mark());
                if let Some(found) = newest {
                    self.node.volume.as_mut().expect("it lives").journal_replayed(found.batch.through);
                }
                self.schedule(wait, Due::Replay(Replay::Await));
            }
            Replay::Await if !self.node.volume.as_ref().expect("it lives").replay_is_recorded() => {
                self.schedule(Duration(wait.0 + 10_000_000), Due::Replay(Replay::Await));
            }
            Replay::Await => {
                let last = newest.map_or(1, |found| found.area);
                self.schedule(wait, Due::Replay(Replay::Erase { first: 1 - last, second: Some(last) }));
            }
            Replay::Erase { first, second } => {
                let at = first * self.journal.current.len() / 2;
                self.journal.write(at, &[0; BLOCK]);
                self.journal.sync(self.journal.mark());
                self.journal_found = None;
                if let Some(first) = second {
                    self.schedule(wait, Due::Replay(Replay::Erase { first, second: None }));
                } else {
                    self.node.backing_ready = true;
                    self.node.ready_since = self.now;
                    self.hand(Event::BackingReady);
                }
            }
        }
    }

    /// The batch that a replay would find now.
    fn journal_found(&mut self) -> Option<&Found> {
        let current = &self.journal.current;
        self.journal_found.get_or_insert_with(|| journal::newest(&VOLUME_UUID, current)).as_ref()
    }

    /// While a replay would find a batch, the backing may be given nothing but parts of it: anything newer would be
    /// taken back. And nothing at all while the journal is being written.
    pub(super) fn assert_journal_allows(&mut self, offset: usize, bytes: &[u8]) {
        let journal_op = |op: &Op| matches!(op.kind, OpKind::JournalWrite { .. } | OpKind::JournalSync { .. });
        assert!(!self.node.ops.values().any(journal_op), "a write to the backing while the journal is being written");
        let size = self.node.volume.as_ref().expect("it asks").size_bytes();
        let Some(found) = self.journal_found().cloned() else { return };
        assert!(
            journal::is_part_of(&found, &self.journal.current, size, &self.backing.current, offset, bytes),
            "the backing is written at {offset}+{}, but the journal holds batch {} through {}, whose replay would take it \
             back",
            bytes.len(),
            found.batch.sequence,
            found.batch.through
        );
    }

    /// A batch, or an erased head, is on its way into the journal.
    fn note_journal_write(&mut self, at: u32, bytes: &[u8]) {
        let Some(blocks) = JournalBatch::head_blocks_hint(bytes) else {
            if bytes.iter().all(|&byte| byte == 0) {
                self.coverage.see("journal erased for an ordered group");
            }
            return;
        };
        let batch = JournalBatch::decode(&VOLUME_UUID, at, &bytes[..blocks as usize * BLOCK])
            .unwrap_or_else(|reason| panic!("a journal batch at {at} cannot be read back: {reason}"));
        let groups: BTreeSet<u32> = batch.records.iter().map(|record| record.group.0).collect();
        if groups.len() > 1 {
            self.coverage.see("journaled batch of several groups");
        }
        let first = batch.records.first().expect("a batch is never empty").lsn;
        if first <= self.node.journal_through {
            self.coverage.see("batch tried again after a failure");
        }
        self.node.synced_at_batch = self.node.volume.as_ref().expect("it asks").status(self.clock()).synced;
        assert!(batch.records.is_sorted_by(|a, b| a.lsn < b.lsn), "a batch is in log order");
        assert!(batch.records.iter().all(|record| record.lsn <= batch.through), "a batch ends where it says");
        self.assert_term_is_durable(&batch);
    }

    /// A stop with drain leaves nothing that somebody might replay over what others write to the image.
    pub(super) fn assert_journal_is_empty(&self) {
        for journal in [&self.journal.current, &self.journal.durable] {
            assert!(
                journal::look(&VOLUME_UUID, journal).iter().all(|area| matches!(area, AreaState::Empty)),
                "stopped with drain, and the journal holds something"
            );
        }
    }

    pub(super) fn begin_journal_write(
        &mut self,
        op: OpId,
        at: u32,
        head: Vec<u8>,
        frames: Vec<FrameId>,
        checks: Vec<Check>,
    ) {
        assert!(self.node.backing_ready, "a write to the journal before the backing's lock was held");
        assert!(head.len().is_multiple_of(BLOCK), "a journal write's head is whole blocks");
        assert_eq!(frames.len(), checks.len(), "each frame of a journal write has its check");
        self.note_journal_write(at, &head);
        let mut bytes = head;
        let mut error = self.backing_write_error();
        for (&frame, check) in frames.iter().zip(&checks) {
            self.pin_source(frame, "a journal write");
            if !self.check_holds(check, self.frame(frame)) {
                assert!(self.damaged, "a frame goes to the journal that does not match its checksum: {check:?}");
                error = Some(IoError::Checksum);
            }
            bytes.extend_from_slice(self.frame(frame));
        }
        let offset = at as usize * BLOCK;
        let end = offset + bytes.len();
        let area_bytes = self.journal.current.len() / 2;
        assert!(
            !bytes.is_empty() && end <= self.journal.current.len() && offset / area_bytes == (end - 1) / area_bytes,
            "a journal write [{offset}+{}] leaves its area",
            bytes.len()
        );
        let in_the_way = self.node.ops.values().any(|op| match &op.kind {
            OpKind::JournalWrite { offset: o, bytes: b, .. } => *o < end && offset < o + b.len(),
            OpKind::BackingWrite { .. }
            | OpKind::BackingZero { .. }
            | OpKind::BackingSync { .. }
            | OpKind::JournalSync { .. } => true,
            OpKind::TierWrite { .. }
            | OpKind::TierSync { .. }
            | OpKind::TierRead { .. }
            | OpKind::TierScan { .. }
            | OpKind::BackingRead { .. }
            | OpKind::Send { .. }
            | OpKind::Merge { .. } => false,
        });
        assert!(!in_the_way, "a journal write while the backing is written, or over one in flight");
        let kind = OpKind::JournalWrite { offset, bytes, frames };
        self.begin(op, kind, error, self.setup.backing_micros_max, self.setup.faults.backing_stall);
    }

    pub(super) fn begin_journal_sync(&mut self, op: OpId) {
        let error = self.backing_error(self.setup.faults.backing_sync_error);
        let mark = self.journal.mark();
        self.begin(
            op,
            OpKind::JournalSync { mark },
            error,
            self.setup.backing_micros_max,
            self.setup.faults.backing_stall,
        );
    }

    pub(super) fn end_journal_write(
        &mut self,
        offset: usize,
        bytes: &[u8],
        frames: Vec<FrameId>,
        error: Option<IoError>,
    ) {
        for frame in frames {
            self.unpin_source(frame);
        }
        self.journal_found = None;
        match error {
            None => {
                self.journal.write(offset, bytes);
                self.check_batch();
            }
            Some(IoError::Checksum) => {}
            Some(_) => {
                self.coverage.see("journal write failed");
                self.journal.write_torn(offset, bytes, Landing::Random, &mut self.random);
            }
        }
    }

    /// A batch that a replay would find says that everything up to its end is in the image: it must be there then, or the
    /// tier had synced what has superseded it before anything of the batch was written.
    fn check_batch(&mut self) {
        if self.damaged || self.damage_carried || self.cluster.is_some() {
            return;
        }
        let Some(through) = self.journal_found().map(|found| found.batch.through) else { return };
        if through <= self.node.destaged_seen {
            return;
        }
        let (journal, size) = (&self.journal.current, self.size_promised);
        let image = journal::replayed(&VOLUME_UUID, journal, size, self.backing.durable.clone());
        self.assert_passed("a batch", through, &image, self.node.synced_at_batch);
    }

    pub(super) fn end_journal_sync(&mut self, mark: u64, error: Option<IoError>) {
        if error.is_some() {
            self.coverage.see("journal sync failed");
            let revert = self.random.below(3) == 0;
            self.journal.sync_failed(mark, revert, &mut self.random);
            self.journal_found = None;
        } else {
            if self.lie != Some(Lie::BackingSyncDropped) {
                self.journal.sync(mark);
            }
            if let Some(found) = self.journal_found() {
                self.node.journal_through = found.batch.through;
                self.coverage.see("journaled batch synced");
            }
        }
    }
}

fn checkpoint_at(version: Version, tier: &[u8], place: u32) -> Option<Checkpoint> {
    let at = place as usize * BLOCK;
    Checkpoint::decode(version, &VOLUME_UUID, TierBlock(place), &tier[at..at + BLOCK]).ok()
}
