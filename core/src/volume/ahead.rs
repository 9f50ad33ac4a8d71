//! Reading ahead of destage: payloads on flash that memory no longer has are read in runs, as they lie there, when
//! their chunk is chosen. One by one, each by the write that needs it, they cost the CPU as much as the writes.
//!
//! - It is a hint: what was not read ahead, or could not be, is read by the write that needs it, which fails by itself
//!   when that block is damaged.
//! - A frame here belongs to nobody else, until a write takes it or the chunk is gone. They are at most a quarter of the
//!   frames that were available and what destage may load ([`super::frame_quota`]), so that clients, reads and edges go on
//!   before a backing that hangs.
//! - A payload is named by its record's position: the place may hold another one by the time it is needed.

use super::*;
use alloc::collections::BTreeMap;

/// Blocks read by one operation.
const RUN_BLOCKS_MAX: usize = 64;

/// Payloads that lie one after the other on the tier.
type Run = Vec<(Lsn, FrameId)>;

/// See the module.
#[derive(Default)]
pub(super) struct Ahead {
    /// Payloads that are being read (none), or were read.
    payloads: BTreeMap<Lsn, Option<FrameId>>,
    runs: Slab<Run>,
}

impl Ahead {
    /// The payload of this record comes: whoever needs it waits.
    pub(super) fn is_reading(&self, lsn: Lsn) -> bool {
        matches!(self.payloads.get(&lsn), Some(None))
    }

    /// The payload of this record, if it has come.
    pub(super) fn frame_of(&self, lsn: Lsn) -> Option<FrameId> {
        self.payloads.get(&lsn).copied().flatten()
    }

    /// The write that was given this frame keeps it.
    pub(super) fn give(&mut self, lsn: Lsn, frame: FrameId) {
        if self.frame_of(lsn) == Some(frame) {
            self.payloads.remove(&lsn);
        }
    }
}

impl Volume {
    /// Begins to read what of a chunk is on flash only.
    pub(super) fn read_ahead(&mut self, chunk: &[(BlockIndex, u32, Lsn)]) {
        if self.flash.is_none() {
            return;
        }
        let on_flash = |id| self.index.get(id).descriptor.has_payload() && self.frame_of_record(id).is_none();
        let mut missing: Vec<(u32, Lsn)> =
            chunk.iter().filter(|&&(_, id, _)| on_flash(id)).map(|&(_, id, lsn)| (id, lsn)).collect();
        missing.truncate((self.pool.available() / 4).min(self.loads_max() - self.destage.loads) as usize);
        missing.sort_unstable();
        for run in missing.chunk_by(|(before, _), (id, _)| *id == before + 1) {
            for part in run.chunks(RUN_BLOCKS_MAX) {
                self.read_run(part);
            }
        }
    }

    fn read_run(&mut self, records: &[(u32, Lsn)]) {
        let mut frames = Checks::new();
        let mut run = Run::with_capacity(records.len());
        for &(id, lsn) in records {
            let frame = self.pool.allocate().expect("no more than a quarter of what is available");
            frames.push((frame, self.check_of(id)));
            run.push((lsn, frame));
            self.destage.ahead.payloads.insert(lsn, None);
        }
        let flash = self.flash.as_mut().expect("only flash is read back");
        let segment = flash.segment_of(records[0].0);
        flash.segments[segment as usize].busy += 1;
        let at = flash.place(records[0].0);
        let run = self.destage.ahead.runs.insert(run);
        let op = self.begin_op(Op::LoadAhead { run, segment });
        self.effects.push_back(Effect::TierRead { op, at, frames });
    }

    pub(super) fn on_loaded_ahead(&mut self, run: usize, segment: u32, good: bool) {
        let flash = self.flash.as_mut().expect("only flash is read back");
        flash.segments[segment as usize].busy -= 1;
        flash.drain_if_empty(segment);
        for (lsn, frame) in self.destage.ahead.runs.remove(run) {
            match self.destage.ahead.payloads.get_mut(&lsn) {
                Some(payload @ None) if good => *payload = Some(frame),
                Some(None) => {
                    self.destage.ahead.payloads.remove(&lsn);
                    self.pool.release(frame);
                }
                // The chunk was given up meanwhile, or chosen again and read by another run.
                Some(Some(_)) | None => self.pool.release(frame),
            }
        }
    }

    /// Nothing of the chunk is waiting any more: what was read for records that have ended is let go.
    pub(super) fn end_ahead(&mut self) {
        for frame in core::mem::take(&mut self.destage.ahead.payloads).into_values().flatten() {
            self.pool.release(frame);
        }
    }
}
