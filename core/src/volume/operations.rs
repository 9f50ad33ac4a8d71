//! Operations in flight: what was asked of the executor, and where each answer goes.
//!
//! - Each has a number that was never given before in this process, so that an answer which comes twice, or to nothing that was
//!   asked, is found out at once. The low bits of the number are its place here: an answer is found without a search.
//! - How many there are at one time is bounded by what begins them; no place is given back before its answer has come.
//!
//! Left to others: what an answer means ([`Volume::on_done`] only sends it there).

use super::read::StretchLoad;
use super::*;

/// Bits of a number that say at which place it is.
const INDEX_BITS: u32 = 24;

/// What an operation was asked for; found again when it is done.
#[derive(Debug)]
pub(super) enum Op {
    Batch { sequence: u64 },
    Summary { segment: u32 },
    TierSync(Box<append::TierSync>),
    Erase { segment: u32 },
    Checkpoint(Box<Checkpoint>),
    Merge { task: usize, edge: usize },
    ReadBacking { fill: usize },
    ReadTier { read: usize, frame: FrameId, segment: u32, block: BlockIndex, lsn: Lsn },
    ReadStretch(StretchLoad),
    LoadForWrite { write: usize, segment: u32 },
    LoadAhead { run: usize, segment: u32 },
    LoadForCompaction { id: u32, lsn: Lsn, frame: FrameId, segment: u32 },
    LoadForJournal { segment: u32 },
    JournalWrite,
    JournalSync,
    OldBlock { write: usize },
    SectorsMerged { write: usize },
    Destage { write: usize },
    BackingSync { through: Lsn },
    LoadForPeer { message: usize, segment: u32 },
    Send { message: usize },
    Recover(recover::Step),
}

impl Op {
    /// It writes to the tier, or syncs it.
    fn changes_tier(&self) -> bool {
        match self {
            Op::Batch { .. } | Op::Summary { .. } | Op::TierSync(_) | Op::Erase { .. } | Op::Checkpoint(_) => true,
            // What a recovery repairs ends before anybody can own a term.
            Op::Recover(_) => true,
            Op::Merge { .. }
            | Op::ReadBacking { .. }
            | Op::ReadTier { .. }
            | Op::ReadStretch(_)
            | Op::LoadForWrite { .. }
            | Op::LoadAhead { .. }
            | Op::LoadForCompaction { .. }
            | Op::LoadForJournal { .. }
            | Op::JournalWrite
            | Op::JournalSync
            | Op::OldBlock { .. }
            | Op::SectorsMerged { .. }
            | Op::Destage { .. }
            | Op::BackingSync { .. }
            | Op::LoadForPeer { .. }
            | Op::Send { .. } => false,
        }
    }
}

/// See the module.
pub(super) struct Operations {
    /// With its number, and when it was asked for.
    under_way: Slab<(OpId, Instant, Op)>,
    next: u64,
}

impl Operations {
    /// Nothing is under way.
    pub(super) fn new() -> Operations {
        Operations { under_way: Slab::with_capacity(256), next: 1 }
    }

    /// This is asked for now; the number is for the effect that says so.
    pub(super) fn begin(&mut self, op: Op, now: Instant) -> OpId {
        let entry = self.under_way.vacant_entry();
        let index = entry.key() as u64;
        assert!(index < 1 << INDEX_BITS, "operations in flight are bounded");
        let id = OpId(self.next << INDEX_BITS | index);
        self.next += 1;
        entry.insert((id, now, op));
        id
    }

    /// The answer has come: when it was asked for, and what.
    fn end(&mut self, id: OpId) -> (Instant, Op) {
        let index = (id.0 & ((1 << INDEX_BITS) - 1)) as usize;
        let known = self.under_way.get(index).is_some_and(|(asked, ..)| *asked == id);
        assert!(known, "an operation completes once, and only if it was asked for");
        let (_, begun, op) = self.under_way.remove(index);
        (begun, op)
    }

    /// Something is under way that writes to the tier, or syncs it.
    pub(super) fn change_tier(&self) -> bool {
        self.under_way.iter().any(|(_, (_, _, op))| op.changes_tier())
    }
}

impl Volume {
    /// Notes an operation, begun now, and names it ([`Operations::begin`]).
    pub(super) fn begin_op(&mut self, op: Op) -> OpId {
        self.operations.begin(op, self.now)
    }

    /// An answer goes to where it was asked for.
    pub(super) fn on_done(&mut self, id: OpId, outcome: Outcome) {
        let (begun, op) = self.operations.end(id);
        let took = self.now - begun;
        let failed = match outcome {
            Outcome::Failed(error) => Some(error),
            Outcome::Ok | Outcome::Bytes(_) | Outcome::Merged(_) => None,
        };
        if failed == Some(IoError::Checksum) {
            self.recorder.counters.checksum_errors += 1;
        }
        match op {
            Op::Batch { sequence } => self.on_batch_done(sequence, failed),
            Op::Summary { segment } => self.on_summary_done(segment, failed),
            Op::TierSync(sync) => self.on_tier_synced(*sync, failed),
            Op::Erase { segment } => self.on_erased(segment, failed),
            Op::Checkpoint(written) => self.on_checkpoint_written(written, failed),
            Op::Merge { task, edge } => {
                let merged = match outcome {
                    Outcome::Merged(checksum) => Ok(checksum),
                    // Memory was damaged under the write: it is not made right by a new checksum.
                    Outcome::Failed(_) => Err(RequestError::Io),
                    Outcome::Ok | Outcome::Bytes(_) => panic!("a merge answers with a checksum"),
                };
                self.on_merged(task, edge, merged);
            }
            Op::ReadBacking { fill } => self.on_backing_read(fill, took, failed),
            Op::ReadTier { read, frame, segment, block, lsn } => {
                if failed.is_none() {
                    self.note_tier_read(read, took);
                }
                self.on_tier_read(read, frame, segment, block, lsn, failed)
            }
            Op::ReadStretch(load) => self.on_stretch_loaded(load, took, failed),
            Op::LoadForWrite { write, segment } => self.on_loaded_for_write(write, segment, failed),
            Op::LoadAhead { run, segment } => self.on_loaded_ahead(run, segment, failed.is_none()),
            Op::LoadForCompaction { id, lsn, frame, segment } => {
                self.on_loaded_for_compaction(id, lsn, frame, segment, failed)
            }
            Op::LoadForJournal { segment } => self.on_loaded_for_journal(segment, failed),
            Op::JournalWrite => self.on_journal_written(failed),
            Op::JournalSync => self.on_journal_synced(failed),
            Op::OldBlock { write } => self.on_old_block_read(write, failed),
            Op::SectorsMerged { write } => {
                let merged = match outcome {
                    Outcome::Merged(checksum) => Ok(checksum),
                    Outcome::Failed(error) => Err(error),
                    Outcome::Ok | Outcome::Bytes(_) => panic!("a merge answers with a checksum"),
                };
                self.on_sectors_merged(write, merged);
            }
            Op::Destage { write } => {
                if failed.is_none() {
                    self.recorder.seen.destage.record(took);
                }
                self.on_destage_done(write, failed);
            }
            Op::BackingSync { through } => {
                if failed.is_none() {
                    self.recorder.seen.backing_sync.record(took);
                }
                self.on_backing_synced(through, failed);
            }
            Op::LoadForPeer { message, segment } => self.on_loaded_for_peer(message, segment, failed),
            Op::Send { message } => self.end_message(message),
            Op::Recover(step) => self.on_recovery_step(step, outcome),
        }
    }
}
