//! Metadata of the tier that rots at rest, between two lives: one structure in a run.
//!
//! Of other damage the world does not know what it may cost. Of this it does (L-TM-6 to L-BF-6): a start is refused,
//! or nothing at all is lost; and what has a second copy is not even missed.

use super::*;

/// What has rotted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rot {
    /// A copy of the checkpoint, or a summary: the other copy, or the batches, say the same.
    Covered,
    /// A descriptor or a batch's header that acknowledged writes may rely upon: a start may be refused.
    Needed,
}

/// The part of a structure in which a bit flips, in bytes of the tier.
struct Place {
    at: usize,
    length: usize,
    rot: Rot,
}

impl Place {
    fn new(block: u32, rot: Rot) -> Place {
        // Every structure begins with its fields.
        Place { at: block as usize * BLOCK, length: 64, rot }
    }
}

impl World {
    /// No checkpoint is half way to the tier: both copies are what the volume relies upon, or newer.
    pub(super) fn checkpoint_is_at_rest(&self) -> bool {
        !self.node.ops.values().any(|op| match &op.kind {
            OpKind::TierWrite { offset, .. } => (BLOCK..3 * BLOCK).contains(offset),
            OpKind::TierSync { .. }
            | OpKind::TierRead { .. }
            | OpKind::TierScan { .. }
            | OpKind::BackingRead { .. }
            | OpKind::BackingWrite { .. }
            | OpKind::BackingZero { .. }
            | OpKind::BackingSync { .. }
            | OpKind::JournalWrite { .. }
            | OpKind::JournalSync { .. }
            | OpKind::Send { .. }
            | OpKind::Merge { .. } => false,
        })
    }

    /// Perhaps a bit flips in one structure of the tier, after a crash.
    pub(super) fn metadata_may_rot(&mut self) {
        let chance = self.setup.faults.metadata_rot;
        // Drawn only where it may happen, so that other seeds stay what they were.
        if chance == 0 || self.rot.is_some() || self.damaged || !self.node.formatted || !self.fault(chance) {
            return;
        }
        let checkpoints = if self.node.checkpoint_is_alone { Vec::new() } else { self.checkpoints_that_may_rot() };
        let (summaries, needed) = match self.node.layout.kind {
            TierKind::Memory => (Vec::new(), self.descriptors_that_may_rot()),
            TierKind::Flash => (self.summaries_that_may_rot(), self.headers_that_may_rot()),
        };
        let mut kinds = [checkpoints, summaries, needed];
        let kind = self.random.below(kinds.len() as u64) as usize;
        let places = std::mem::take(&mut kinds[kind]);
        if places.is_empty() {
            return;
        }
        let Place { at, length, rot } = &places[self.random.below(places.len() as u64) as usize];
        let byte = at + self.random.below(*length as u64) as usize;
        let bit = self.random.below(8);
        trace!(self, "bit {bit} of tier byte {byte} rots at rest: {rot:?}");
        self.node.tier.rot(byte, 1 << bit);
        self.rot = Some(*rot);
        self.coverage.see("metadata rotted at rest");
    }

    /// Both copies, where both can be read.
    fn checkpoints_that_may_rot(&self) -> Vec<Place> {
        let whole = [1, 2].into_iter().filter(|&place| self.checkpoint_at(place).is_some());
        let places: Vec<Place> = whole.map(|place| Place::new(place, Rot::Covered)).collect();
        if places.len() == 2 { places } else { Vec::new() }
    }

    fn descriptors_that_may_rot(&self) -> Vec<Place> {
        let first = self.node.layout.table_first as usize * BLOCK;
        let count = self.node.layout.payload_blocks + self.node.layout.ranges_max;
        let is_used = |index: &u32| {
            let at = first + *index as usize * DESCRIPTOR_BYTES;
            let bytes = &self.node.tier.current[at..at + DESCRIPTOR_BYTES];
            matches!(Descriptor::decode(&VOLUME_UUID, u64::from(*index), bytes), Ok(Some(_)))
        };
        let place = |index: u32| Place {
            at: first + index as usize * DESCRIPTOR_BYTES,
            length: DESCRIPTOR_BYTES,
            rot: Rot::Needed,
        };
        (0..count).filter(is_used).map(place).collect()
    }

    fn summaries_that_may_rot(&self) -> Vec<Place> {
        let layout = self.node.layout;
        let summary =
            |segment: u32| layout.payload_first + (segment + 1) * layout.segment_blocks - layout.summary_blocks;
        let is_whole = |block: &u32| {
            let bytes = &self.node.tier.current[*block as usize * BLOCK..][..layout.summary_blocks as usize * BLOCK];
            Summary::decode(&VOLUME_UUID, TierBlock(*block), bytes).is_ok()
        };
        let whole = (0..layout.segments()).map(summary).filter(is_whole);
        whole.map(|block| Place::new(block, Rot::Covered)).collect()
    }

    /// Headers at or below the highest mark that is left without them, and that no loss of power takes. Above it a
    /// damaged header looks like a torn tail.
    fn headers_that_may_rot(&self) -> Vec<Place> {
        let layout = self.node.layout;
        let mut headers: Vec<(u32, Batch)> = Vec::new();
        let mut marks: Vec<(u32, u64)> = Vec::new();
        for segment in 0..layout.segments() {
            let first = layout.payload_first + segment * layout.segment_blocks;
            if self.tier_block(first).iter().all(|&byte| byte == 0) {
                // Free for whoever recovers: what lies in it says nothing.
                continue;
            }
            for block in first..first + layout.segment_blocks - layout.summary_blocks {
                if let Ok(batch) = Batch::decode(&VOLUME_UUID, TierBlock(block), self.tier_block(block)) {
                    if self.is_durable(first) && self.is_durable(block) {
                        marks.push((block, batch.synced_through));
                    }
                    headers.push((block, batch));
                }
            }
        }
        let checkpoints = [1, 2].into_iter().filter(|&place| self.is_durable(place));
        marks.extend(checkpoints.filter_map(|place| Some((place, self.checkpoint_at(place)?.batches_synced))));
        let mark_without = |block: u32| marks.iter().filter(|(at, _)| *at != block).map(|(_, mark)| *mark).max();
        let below = headers.iter().filter(|(block, batch)| Some(batch.sequence) <= mark_without(*block));
        below.map(|(block, _)| Place::new(*block, Rot::Needed)).collect()
    }

    fn tier_block(&self, block: u32) -> &[u8] {
        &self.node.tier.current[block as usize * BLOCK..][..BLOCK]
    }

    fn is_durable(&self, block: u32) -> bool {
        self.node.tier.durable[block as usize * BLOCK..][..BLOCK] == *self.tier_block(block)
    }
}
