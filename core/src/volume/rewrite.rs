//! Recovery of a flash tier makes durable what it keeps.
//!
//! What was read is what the device shows, not what it has: a sync may have failed (and the device may have dropped
//! what it covered, [fsyncgate](https://wiki.postgresql.org/wiki/Fsync_Errors)), or none was asked for before the
//! process died. So all that is kept and that no mark proves to be durable is written once more, the same bytes in the
//! same place. Torn, that does no harm: each sector is what it was. Likewise all that must *not* be there is erased
//! once more, even where it reads as erased.
//!
//! Written again are
//! - payloads of the batches above the synced mark, as soon as they are verified, and their headers;
//! - the superblock and the checkpoint that recovery believed;
//! - zeros to the head of each segment that is free, to the place behind the last batch of each that is not sealed, and
//!   to summaries that must not be believed;
//! - and, for the first time, summaries of segments that were not full: nothing is written behind their last batch any more.
//!
//! One sync covers them, before the new start's checkpoint. What this costs is bounded: the log never has more than
//! [`super::append::UNSYNCED_BLOCKS_MAX`] unsynced, twice, and a summary, or one block, for each segment.

use super::recover::{Step, ToRewrite};
use super::*;
use crate::format::{Batch, Summary, TIER_BLOCK_BYTES};
use crate::log::FoundBatch;
use alloc::collections::BTreeMap;

/// Payload blocks that are read at one time for verification.
const VERIFY_PARALLEL: u32 = 512;
/// Payload blocks that are read, and written again, together: an eighth of those, so that reading goes on meanwhile.
const CHUNK_BLOCKS_MAX: usize = VERIFY_PARALLEL as usize / 8;
/// Blocks of metadata that are written again at one time.
const REWRITES_PARALLEL: u32 = 32;

/// What is written again into one place of metadata.
#[derive(Debug)]
pub(super) enum Rewrite {
    Zeros,
    Header(Batch),
    Summary(Summary),
    /// The one that was believed.
    Checkpoint(Box<Checkpoint>),
    Superblock,
}

/// By place, so that nothing is written twice.
pub(super) type Rewrites = BTreeMap<TierBlock, Rewrite>;

/// A payload above the synced mark: it may have landed or not.
#[derive(Debug)]
pub(super) struct Doubt {
    pub(super) id: u32,
    pub(super) check: Check,
    pub(super) batch: u64,
    pub(super) frame: FrameId,
}

/// Neighbouring payloads of one batch, read, verified and then written again together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    first: usize,
    count: usize,
}

impl Volume {
    /// Reads payloads in doubt, as many as there are frames for.
    pub(super) fn verify_some(&mut self) {
        let layout = self.config.superblock.layout;
        loop {
            let recovery = self.recovery.as_mut().expect("recovery is under way");
            if recovery.pending >= VERIFY_PARALLEL || recovery.verify_next >= recovery.verify.len() {
                break;
            }
            let first = recovery.verify_next;
            let chunk = recovery.chunks.len();
            let mut count = 0;
            while let Some(doubt) = recovery.verify.get(first + count)
                && count < CHUNK_BLOCKS_MAX
                && (doubt.batch, doubt.id) == (recovery.verify[first].batch, recovery.verify[first].id + count as u32)
                && let Some(frame) = self.pool.allocate()
            {
                recovery.verify[first + count].frame = frame;
                count += 1;
            }
            if count == 0 {
                break;
            }
            recovery.chunks.push(Chunk { first, count });
            recovery.verify_next += count;
            recovery.pending += count as u32;
            let doubts = &recovery.verify[first..first + count];
            let at = TierBlock(layout.payload_first + doubts[0].id);
            let frames = doubts.iter().map(|doubt| (doubt.frame, doubt.check)).collect();
            let op = self.begin_op(Op::Recover(Step::Verify { chunk }));
            self.effects.push_back(Effect::TierRead { op, at, frames });
        }
        if self.recovery_mut().pending == 0 {
            self.finish_flash();
        }
    }

    pub(super) fn on_verified(&mut self, chunk: usize, outcome: Outcome) {
        let recovery = self.recovery.as_mut().expect("recovery is under way");
        let Chunk { first, count } = recovery.chunks[chunk];
        let batch = recovery.verify[first].batch;
        let good = match outcome {
            Outcome::Ok => true,
            Outcome::Failed(IoError::Checksum) => false,
            Outcome::Failed(_) | Outcome::Bytes(_) | Outcome::Merged(_) => {
                return self.refuse_tier("the tier cannot be read");
            }
        };
        if !good && !planted!(self, accept_torn_tail) {
            recovery.bad_from = Some(recovery.bad_from.map_or(batch, |bad| bad.min(batch)));
        }
        // A batch that does not match ends the log: it is erased, whatever of its payload is there.
        if !good || planted!(self, trust_unsynced) {
            return self.on_chunk_rewritten(chunk);
        }
        let at = TierBlock(self.config.superblock.layout.payload_first + recovery.verify[first].id);
        let frames = recovery.verify[first..first + count].iter().map(|doubt| doubt.frame).collect();
        let op = self.begin_op(Op::Recover(Step::Rewritten { chunk }));
        self.recorder.counters.tier_writes += 1;
        self.recorder.counters.tier_write_blocks += count as u64;
        self.effects.push_back(Effect::TierWrite { op, at, head: Vec::new(), frames });
    }

    pub(super) fn on_chunk_rewritten(&mut self, chunk: usize) {
        let recovery = self.recovery.as_mut().expect("recovery is under way");
        let Chunk { first, count } = recovery.chunks[chunk];
        recovery.pending -= count as u32;
        for doubt in &recovery.verify[first..first + count] {
            self.pool.release(doubt.frame);
        }
        self.verify_some();
    }

    /// All is known: what is written, in which place.
    pub(super) fn plan_rewrites(&mut self, to_rewrite: ToRewrite) {
        let ToRewrite { kept, erase, half_full, in_use } = to_rewrite;
        let layout = self.config.superblock.layout;
        let cut_off = erase.iter().filter(|_| !planted!(self, keep_cut_off_batches));
        let mut rewrites: Rewrites =
            cut_off.map(|&(segment, at)| (self.segment_block(segment, at), Rewrite::Zeros)).collect();
        if !planted!(self, trust_unsynced) {
            for FoundBatch { segment, at, batch } in kept {
                rewrites.insert(self.segment_block(segment, at), Rewrite::Header(batch));
            }
            if !planted!(self, leave_half_full_untold) {
                for (segment, summary) in half_full {
                    let place = self.segment_block(segment, layout.segment_blocks - layout.summary_blocks);
                    rewrites.insert(place, Rewrite::Summary(summary));
                }
            }
            for free in (0..layout.segments()).filter(|segment| !in_use.contains(segment)) {
                rewrites.insert(self.segment_block(free, 0), Rewrite::Zeros);
            }
            rewrites.insert(
                self.checkpoints.newest().place(),
                Rewrite::Checkpoint(Box::new(self.checkpoints.newest().clone())),
            );
            rewrites.insert(TierBlock(0), Rewrite::Superblock);
        }
        self.recovery_mut().rewrites = rewrites;
    }

    /// Writes the next blocks of metadata again; after the last one, the sync.
    pub(super) fn rewrite_some(&mut self) {
        while self.recovery_mut().pending < REWRITES_PARALLEL
            && let Some((at, what)) = self.recovery_mut().rewrites.pop_first()
        {
            let head = match what {
                Rewrite::Zeros => alloc::vec![0; TIER_BLOCK_BYTES],
                Rewrite::Header(batch) => batch.encode(self.identity.volume(), at),
                Rewrite::Summary(summary) => {
                    summary.encode(self.identity.volume(), at, self.config.superblock.layout.summary_blocks)
                }
                Rewrite::Checkpoint(checkpoint) => self.encoded(&checkpoint),
                Rewrite::Superblock => self.config.superblock.encode(),
            };
            self.recovery_mut().pending += 1;
            let op = self.begin_op(Op::Recover(Step::Rewrite));
            self.recorder.counters.tier_writes += 1;
            self.recorder.counters.tier_write_blocks += (head.len() / TIER_BLOCK_BYTES) as u64;
            self.effects.push_back(Effect::TierWrite { op, at, head, frames: Vec::new() });
        }
        if self.recovery_mut().pending == 0 {
            let op = self.begin_op(Op::Recover(Step::Sync));
            self.effects.push_back(Effect::TierSync { op });
        }
    }

    pub(super) fn on_rewritten(&mut self) {
        self.recovery_mut().pending -= 1;
        self.rewrite_some();
    }
}
