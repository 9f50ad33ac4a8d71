//! Which blocks read as zeros because of a dirty trim or write-zeroes, as disjoint ranges with the position of the
//! record that zeroed them. A later zeroing cuts what it covers out of earlier ranges; data written later is found
//! to be newer by its own position, so writes never touch this map.

use crate::types::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
struct Zeroed {
    end: u64,
    lsn: Lsn,
}

/// See the module.
#[derive(Default)]
pub struct ZeroMap {
    by_start: BTreeMap<u64, Zeroed>,
}

impl ZeroMap {
    /// No block is zeroed.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Position of the newest zeroing of a block; 0 when there is none.
    pub fn zeroed(&self, block: BlockIndex) -> Lsn {
        match self.by_start.range(..=block.0).next_back() {
            Some((_, range)) if block.0 < range.end => range.lsn,
            _ => Lsn(0),
        }
    }

    /// First block at or after `block` at which the answer of `zeroed` changes.
    pub fn next_change(&self, block: BlockIndex) -> BlockIndex {
        if let Some((_, range)) = self.by_start.range(..=block.0).next_back()
            && block.0 < range.end
        {
            return BlockIndex(range.end);
        }
        match self.by_start.range(block.0..).next() {
            Some((&start, _)) => BlockIndex(start),
            None => BlockIndex(u64::MAX),
        }
    }

    /// Cuts `[start, end)` out of every range for which `doomed` holds.
    fn cut(&mut self, start: u64, end: u64, doomed: impl Fn(Lsn) -> bool) {
        let first = match self.by_start.range(..=start).next_back() {
            Some((&s, range)) if range.end > start => s,
            _ => start,
        };
        let touched: Vec<(u64, Zeroed)> =
            self.by_start.range(first..end).map(|(&s, &r)| (s, r)).filter(|(_, r)| doomed(r.lsn)).collect();
        for (s, range) in touched {
            self.by_start.remove(&s);
            if s < start {
                self.by_start.insert(s, Zeroed { end: start, lsn: range.lsn });
            }
            if range.end > end {
                self.by_start.insert(end, range);
            }
        }
    }

    /// A record zeroes blocks.
    pub fn zero(&mut self, first: BlockIndex, blocks: u64, lsn: Lsn) {
        let end = first.0 + blocks;
        self.cut(first.0, end, |_| true);
        self.by_start.insert(first.0, Zeroed { end, lsn });
    }

    /// What of `[first, first + blocks)` reads as zeros by the word of this record, as first block and number of blocks.
    pub fn pieces(&self, first: BlockIndex, blocks: u64, lsn: Lsn) -> Vec<(BlockIndex, u64)> {
        let (mut at, end) = (first, first.0 + blocks);
        let mut pieces = Vec::new();
        while at.0 < end {
            let next = self.next_change(at).0.min(end);
            if self.zeroed(at) == lsn {
                pieces.push((at, next - at.0));
            }
            at = BlockIndex(next.max(at.0 + 1));
        }
        pieces
    }

    /// The record is durable in the backing: what is still its own is forgotten.
    pub fn forget(&mut self, first: BlockIndex, blocks: u64, lsn: Lsn) {
        self.cut(first.0, first.0 + blocks, |found| found == lsn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_flat_array() {
        let mut map = ZeroMap::default();
        let mut model = [0u64; 64];
        let mut live: Vec<(u64, u64, u64)> = Vec::new();
        let mut x = 3u64;
        for lsn in 1..4000u64 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let first = (x >> 33) % 64;
            let count = 1 + (x >> 40) % (64 - first);
            if x & 4 == 0 && !live.is_empty() {
                let (f, c, l) = live.remove((x >> 50) as usize % live.len());
                map.forget(BlockIndex(f), c, Lsn(l));
                for slot in &mut model[f as usize..(f + c) as usize] {
                    if *slot == l {
                        *slot = 0;
                    }
                }
            } else {
                map.zero(BlockIndex(first), count, Lsn(lsn));
                model[first as usize..(first + count) as usize].fill(lsn);
                live.push((first, count, lsn));
            }
            for (block, &expected) in model.iter().enumerate() {
                assert_eq!(map.zeroed(BlockIndex(block as u64)).0, expected);
            }
        }
    }
}
