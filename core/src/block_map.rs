//! Block number to a 30-bit value: open addressing with linear probing in one allocation of fixed size.
//!
//! Eight bytes an entry at a load below 0.8, so at most 16 bytes for each block (design bound), and no allocation
//! after start. A tree would keep order, which nobody here needs: destage sorts what it takes, and a trim walks
//! whichever is shorter, its blocks or the table.
//!
//! Removal shifts the following entries back (Knuth, TAOCP 3, 6.4 algorithm R), so there are no tombstones and the
//! cost of a look-up does not grow with age.

use crate::types::BlockIndex;
use alloc::vec;
use alloc::vec::Vec;

const VALUE_BITS: u32 = 30;
/// Neighbouring blocks whose entries lie side by side: as many as a line of the cache takes, because fetching that line is
/// what a look-up costs.
const LINE: usize = 8;
/// Largest value that fits.
pub const VALUE_MAX: u32 = (1 << VALUE_BITS) - 2;

/// See the module.
pub struct BlockMap {
    /// `block << 30 | value + 1`; zero is empty.
    slots: Vec<u64>,
    len: usize,
    /// From a hash to the number of a line.
    shift: u32,
}

impl BlockMap {
    /// Room for this many entries.
    pub fn with_capacity(entries: usize) -> BlockMap {
        let slots = (entries + entries / 4 + 2 * LINE).next_power_of_two();
        BlockMap { slots: vec![0; slots], len: 0, shift: 64 - (slots / LINE).trailing_zeros() }
    }

    /// How many entries the map holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.slots.len() * size_of::<u64>()
    }

    fn home(&self, block: BlockIndex) -> usize {
        // Fibonacci hashing of lines: their neighbours land far apart, which keeps probe runs short under sequential load.
        let line = (block.0 / LINE as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift;
        line as usize * LINE + block.0 as usize % LINE
    }

    fn find(&self, block: BlockIndex) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut at = self.home(block);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return Err(at);
            }
            if slot >> VALUE_BITS == block.0 {
                return Ok(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// The block's value; none where it has no entry.
    pub fn get(&self, block: BlockIndex) -> Option<u32> {
        let at = self.find(block).ok()?;
        Some((self.slots[at] & ((1 << VALUE_BITS) - 1)) as u32 - 1)
    }

    /// Gives the block this value, whether it had one or not.
    pub fn insert(&mut self, block: BlockIndex, value: u32) {
        assert!(value <= VALUE_MAX && block.0 < 1 << 34);
        let entry = block.0 << VALUE_BITS | u64::from(value + 1);
        match self.find(block) {
            Ok(at) => self.slots[at] = entry,
            Err(at) => {
                assert!(self.len + 1 < self.slots.len(), "the map is sized for all entries there can be");
                self.slots[at] = entry;
                self.len += 1;
            }
        }
    }

    /// Takes the block's entry away, if it has one.
    pub fn remove(&mut self, block: BlockIndex) {
        let Ok(mut hole) = self.find(block) else { return };
        let mask = self.slots.len() - 1;
        self.len -= 1;
        let mut next = (hole + 1) & mask;
        while self.slots[next] != 0 {
            let home = self.home(BlockIndex(self.slots[next] >> VALUE_BITS));
            // An entry may move back only if its home is not after the hole on the way to it.
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.slots[hole] = 0;
    }

    /// The entries in a range of blocks, in no order: by looking each block up, or by a walk over the table where that
    /// is shorter. A line of memory holds eight entries.
    pub fn within(&self, first: BlockIndex, count: u64) -> Vec<(BlockIndex, u32)> {
        let range = first.0..first.0.saturating_add(count);
        if self.len == 0 {
            Vec::new()
        } else if count <= self.slots.len() as u64 / 8 {
            range.map(BlockIndex).filter_map(|block| Some((block, self.get(block)?))).collect()
        } else {
            self.iter().filter(|(block, _)| range.contains(&block.0)).collect()
        }
    }

    /// Every entry, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (BlockIndex, u32)> {
        self.slots
            .iter()
            .filter(|&&slot| slot != 0)
            .map(|&slot| (BlockIndex(slot >> VALUE_BITS), (slot & ((1 << VALUE_BITS) - 1)) as u32 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn agrees_with_an_ordered_map_under_random_insert_and_remove() {
        let mut map = BlockMap::with_capacity(500);
        let mut model = BTreeMap::new();
        let mut x = 7u64;
        for step in 0..20_000u32 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let block = BlockIndex((x >> 33) % 700);
            if x & 1 == 0 && model.len() < 500 {
                map.insert(block, step);
                model.insert(block.0, step);
            } else {
                map.remove(block);
                model.remove(&block.0);
            }
            let probe = BlockIndex((x >> 20) % 700);
            assert_eq!(map.get(probe), model.get(&probe.0).copied());
            assert_eq!(map.len(), model.len());
            if step % 64 == 0 {
                let count = (x >> 45) % 300;
                let mut within: Vec<_> = map.within(probe, count).iter().map(|(b, v)| (b.0, *v)).collect();
                within.sort();
                let expected: Vec<_> = model.range(probe.0..probe.0 + count).map(|(b, v)| (*b, *v)).collect();
                assert_eq!(within, expected, "{count} blocks from {probe}");
            }
        }
        let mut all: Vec<_> = map.iter().map(|(b, v)| (b.0, v)).collect();
        all.sort();
        assert_eq!(all, model.into_iter().collect::<Vec<_>>());
    }
}
