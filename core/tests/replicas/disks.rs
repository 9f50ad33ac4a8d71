//! What stands around one volume: a tier that outlives its process, frames, and a hash in the place of checksums. A sector is
//! one number, the stamp of the write it came with.

use crate::oracle::Stamp;
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::types::*;
use std::collections::BTreeMap;

/// A block's eight sectors.
pub type Block = [Stamp; 8];

pub const BLOCK: usize = BLOCK_BYTES as usize;

/// In the place of a payload checksum: bound to block, mask and term as that is.
pub fn hash(block: BlockIndex, mask: SectorMask, term: Term, bytes: &Block) -> u32 {
    let mut at = block.0 ^ u64::from(mask.0) << 40 ^ u64::from(term.0) << 48;
    for (sector, stamp) in bytes.iter().enumerate() {
        let stamp = if mask.0 & 1 << sector != 0 { *stamp } else { 0 };
        at = (at ^ stamp).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    (at >> 16) as u32 ^ at as u32
}

/// A tier, and on flash the arena beside it.
#[derive(Clone)]
pub struct Disks {
    pub layout: TierLayout,
    pub frames: Vec<Block>,
    /// Metadata by block.
    metadata: BTreeMap<u32, Vec<u8>>,
    /// Payload by block; a memory tier's lies in the frames.
    payload: BTreeMap<u32, Block>,
}

impl Disks {
    pub fn new(layout: TierLayout, frames: u32) -> Disks {
        Disks { layout, frames: vec![[0; 8]; frames as usize], metadata: BTreeMap::new(), payload: BTreeMap::new() }
    }

    pub fn describe(&mut self, index: u32, bytes: &[u8; 32]) {
        let at = self.layout.table_first + index / DESCRIPTORS_PER_BLOCK;
        let within = (index % DESCRIPTORS_PER_BLOCK) as usize * DESCRIPTOR_BYTES;
        let block = self.metadata.entry(at).or_insert_with(|| vec![0; BLOCK]);
        block[within..within + DESCRIPTOR_BYTES].copy_from_slice(bytes);
    }

    /// Takes a write whose frames hold these blocks.
    pub fn write(&mut self, at: TierBlock, head: &[u8], blocks: &[Block]) {
        let mut next = at.0;
        for block in head.chunks(BLOCK) {
            self.metadata.insert(next, block.to_vec());
            self.payload.remove(&next);
            next += 1;
        }
        for block in blocks {
            self.payload.insert(next, *block);
            self.metadata.remove(&next);
            next += 1;
        }
    }

    pub fn scan(&self, at: TierBlock, blocks: u32) -> Vec<u8> {
        let block = |at| self.metadata.get(&at).cloned().unwrap_or(vec![0; BLOCK]);
        (at.0..at.0 + blocks).flat_map(block).collect()
    }

    /// Reads payloads into frames.
    pub fn read(&mut self, at: TierBlock, frames: &Checks) -> Outcome {
        let mut outcome = Outcome::Ok;
        for (place, (frame, check)) in (at.0..).zip(frames) {
            let block = self.payload.get(&place).copied().unwrap_or_default();
            if hash(check.block, check.mask, check.term, &block) != check.checksum {
                outcome = Outcome::Failed(IoError::Checksum);
            }
            self.frames[frame.0 as usize] = block;
        }
        outcome
    }

    /// The superblock, once there is one.
    pub fn superblock(&self) -> Option<Superblock> {
        Some(Superblock::decode(self.metadata.get(&0)?).expect("it was written whole"))
    }

    pub fn copy(&mut self, source: Source, target: FrameId, start: u16, length: u16) {
        let from = match source {
            Source::Frame(frame, _) => self.frames[frame.0 as usize],
            Source::Zero => [0; 8],
        };
        let sectors = usize::from(start) / 512..usize::from(start + length).div_ceil(512);
        self.frames[target.0 as usize][sectors.clone()].copy_from_slice(&from[sectors]);
    }
}
