//! Fills that are under way to the backing, found by the blocks that they bring.
//!
//! Each record that is appended asks for those of its blocks. A list would be walked for every block of a write, and it is
//! as long as the largest reads in small pieces have ever made it: the write of one client would cost the thread milliseconds.

use super::Fill;
use crate::types::BlockIndex;
use alloc::collections::BTreeSet;
use slab::Slab;

/// See the module.
#[derive(Default)]
pub(super) struct Fills {
    fills: Slab<Fill>,
    /// Of each its first block, and its place.
    by_block: BTreeSet<(BlockIndex, usize)>,
    /// Blocks of the longest that there has been: no other one reaches further beyond its first block.
    blocks_max: u64,
}

impl Fills {
    /// A fill begins; it is known by the number that is returned.
    pub(super) fn insert(&mut self, fill: Fill) -> usize {
        self.blocks_max = self.blocks_max.max(fill.frames.len() as u64);
        let first = fill.first;
        let number = self.fills.insert(fill);
        self.by_block.insert((first, number));
        number
    }

    /// A fill has ended.
    pub(super) fn remove(&mut self, number: usize) -> Fill {
        let fill = self.fills.remove(number);
        self.by_block.remove(&(fill.first, number));
        fill
    }

    /// Blocks are being changed: fills of them will not be cached. Returns how many fills were looked at.
    pub(super) fn mark_stale(&mut self, first: BlockIndex, blocks: u64) -> usize {
        let mut looked_at = 0;
        if !self.by_block.is_empty() {
            let from = BlockIndex(first.0.saturating_sub(self.blocks_max.saturating_sub(1)));
            let to = BlockIndex(first.0 + blocks);
            for &(_, number) in self.by_block.range((from, 0)..(to, 0)) {
                self.fills[number].mark_stale(first, blocks);
                looked_at += 1;
            }
        }
        looked_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{FrameId, Frames, Instant};
    use alloc::vec::Vec;

    fn fill(first: u64, blocks: u32) -> Fill {
        Fill {
            read: 0,
            first: BlockIndex(first),
            frames: (0..blocks).map(FrameId).collect::<Frames>(),
            cacheable: core::iter::repeat_n(true, blocks as usize).collect(),
            stale: false,
            ask: false,
            begun: Instant(0),
        }
    }

    /// Every fill that has one of the blocks is marked and no other one, whatever their lengths and however they overlap.
    #[test]
    fn a_change_marks_the_fills_of_its_blocks_and_no_others() {
        for (changed, blocks) in [(0, 1), (9, 1), (10, 1), (14, 1), (15, 1), (19, 3), (0, 1 << 34), (22, 1 << 31)] {
            let mut fills = Fills::default();
            let ranges = [(10, 5), (12, 1), (12, 8), (20, 1), (30, 4), (10, 5)];
            let numbers = ranges.map(|(first, blocks)| fills.insert(fill(first, blocks)));
            fills.mark_stale(BlockIndex(changed), blocks);
            for ((first, length), number) in ranges.into_iter().zip(numbers) {
                let overlaps = changed < first + u64::from(length) && first < changed + blocks;
                assert_eq!(fills.remove(number).stale, overlaps, "{first}+{length}, changed {changed}+{blocks}");
            }
            assert!(fills.by_block.is_empty());
        }
    }

    /// However many fills there are, or have been, a block that is written costs a look at those around it only.
    #[test]
    fn a_change_looks_at_no_fills_elsewhere() {
        let mut fills = Fills::default();
        let numbers: Vec<usize> = (0..4096).map(|number| fills.insert(fill(number * 512, 256))).collect();
        assert!(fills.mark_stale(BlockIndex(512 * 2000 + 300), 1) <= 1);
        numbers.into_iter().for_each(|number| drop(fills.remove(number)));
        assert_eq!(fills.mark_stale(BlockIndex(512 * 2000), 1), 0);
    }
}
