//! A simulated device: bytes with a volatile cache in front of a medium.
//!
//! A write that is completed is read back, and survives the end of a process; only what a completed sync covered
//! survives the loss of power. Of the rest any subset is lost, torn at 512 bytes.

use crate::random::Random;
use std::collections::VecDeque;

/// Granularity at which a write may tear.
const TEAR_BYTES: usize = 512;

/// What becomes of writes that nothing has promised to keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Landing {
    /// None of them lands.
    Nothing,
    /// All land, whole.
    Everything,
    /// Chance decides for each write and, in a torn one, for each sector.
    Random,
}

/// A write that a device has taken and that no sync has covered.
#[derive(Clone, Debug)]
struct Cached {
    sequence: u64,
    offset: usize,
    bytes: Vec<u8>,
}

/// A device with a cache that a loss of power empties.
#[derive(Clone, Debug)]
pub struct Media {
    /// What a read returns.
    pub current: Vec<u8>,
    /// What survives a loss of power.
    pub durable: Vec<u8>,
    cached: VecDeque<Cached>,
    sequence: u64,
}

/// Puts a write, or a torn part of it, into an image. Returns true when it was torn.
pub fn land(image: &mut [u8], offset: usize, bytes: &[u8], landing: Landing, random: &mut Random) -> bool {
    let mut torn = false;
    let whole = match landing {
        Landing::Nothing => return false,
        Landing::Everything => true,
        Landing::Random => match random.below(4) {
            0 => return false,
            1 | 2 => true,
            _ => false,
        },
    };
    for (i, sector) in bytes.chunks(TEAR_BYTES).enumerate() {
        if whole || random.below(2) == 0 {
            let at = offset + i * TEAR_BYTES;
            image[at..at + sector.len()].copy_from_slice(sector);
        } else {
            torn = true;
        }
    }
    torn
}

impl Media {
    /// A device full of zeros.
    pub fn new(bytes: usize) -> Media {
        Media { current: vec![0; bytes], durable: vec![0; bytes], cached: VecDeque::new(), sequence: 0 }
    }

    /// Takes a write into the cache: reads see it, and a loss of power may take it.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.sequence += 1;
        self.cached.push_back(Cached { sequence: self.sequence, offset, bytes: bytes.to_vec() });
    }

    /// Takes a part of a write that was never answered. Returns true when it was torn.
    pub fn write_torn(&mut self, offset: usize, bytes: &[u8], landing: Landing, random: &mut Random) -> bool {
        let mut whole = self.current[offset..offset + bytes.len()].to_vec();
        let torn = land(&mut whole, 0, bytes, landing, random);
        for (i, sector) in whole.chunks(TEAR_BYTES).enumerate() {
            let at = offset + i * TEAR_BYTES;
            if self.current[at..at + sector.len()] != *sector {
                self.write(at, sector);
            }
        }
        torn
    }

    /// Bits of a byte flip, on the medium too.
    pub fn rot(&mut self, at: usize, bits: u8) {
        self.current[at] ^= bits;
        self.durable[at] ^= bits;
    }

    /// The last write that a sync issued now covers.
    pub fn mark(&self) -> u64 {
        self.sequence
    }

    /// Number of writes that no sync has covered.
    pub fn unsynced(&self) -> usize {
        self.cached.len()
    }

    /// A sync that covers everything up to `mark` has ended well.
    pub fn sync(&mut self, mark: u64) {
        while self.cached.front().is_some_and(|c| c.sequence <= mark) {
            let c = self.cached.pop_front().expect("just seen");
            self.durable[c.offset..c.offset + c.bytes.len()].copy_from_slice(&c.bytes);
        }
    }

    /// A sync has failed as kernels let it fail: some of what it covered is forgotten, marked clean, and no later
    /// sync will write it; with `revert`, reads return the old bytes too.
    pub fn sync_failed(&mut self, mark: u64, revert: bool, random: &mut Random) {
        let mut kept = VecDeque::new();
        for c in std::mem::take(&mut self.cached) {
            if c.sequence > mark {
                kept.push_back(c);
            } else if random.below(4) == 0 {
                self.durable[c.offset..c.offset + c.bytes.len()].copy_from_slice(&c.bytes);
            } else if random.below(4) == 0 {
                kept.push_back(c);
            }
        }
        self.cached = kept;
        if revert {
            self.current.copy_from_slice(&self.durable);
            for c in &self.cached {
                self.current[c.offset..c.offset + c.bytes.len()].copy_from_slice(&c.bytes);
            }
        }
    }

    /// What a loss of power now might leave.
    pub fn after_power_loss(&self, landing: Landing, random: &mut Random) -> Vec<u8> {
        let mut image = self.durable.clone();
        for c in &self.cached {
            land(&mut image, c.offset, &c.bytes, landing, random);
        }
        image
    }

    /// The power is lost: what no sync has covered lands, or not, as `landing` says.
    pub fn power_loss(&mut self, landing: Landing, random: &mut Random) {
        self.durable = self.after_power_loss(landing, random);
        self.current.copy_from_slice(&self.durable);
        self.cached.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_sync_covered_survives_a_power_loss() {
        let mut media = Media::new(4096);
        media.write(0, &[1; 512]);
        let mark = media.mark();
        media.write(512, &[2; 512]);
        media.sync(mark);
        media.power_loss(Landing::Nothing, &mut Random::new(1));
        assert_eq!((media.current[0], media.current[512]), (1, 0));
    }

    #[test]
    fn what_a_failed_sync_forgot_is_not_written_by_the_next() {
        let mut lost = 0;
        for seed in 0..100 {
            let mut media = Media::new(512);
            media.write(0, &[1; 512]);
            media.sync_failed(media.mark(), false, &mut Random::new(seed));
            assert_eq!(media.current[0], 1, "a read still shows it");
            media.sync(media.mark());
            media.power_loss(Landing::Everything, &mut Random::new(seed));
            lost += u32::from(media.current[0] == 0);
        }
        assert!(lost > 0);
    }
}
