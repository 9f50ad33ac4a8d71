//! The self-describing pattern: a load generator whose every 512-byte sector says which write put it there, a journal
//! of what was issued and acknowledged, and checkers that say what a volume (or an image) may hold after a fault.
//!
//! Invariants:
//! - The journal's order is sound: a write's issue is recorded before its bytes leave, its acknowledgement after the
//!   reply has arrived. So "acknowledged before the flush was issued" in the journal means that it really was.
//! - Writes in flight at one time never overlap. So each sector has one order of versions, the journal's.
//! - With `exact_groups`, nothing is in flight while a barrier (flush or FUA) is: so the journal's barrier groups are
//!   the client's, and coarser than or equal to any that the volume under test may form.

pub mod bystander;
pub mod check;
pub mod follower;
pub mod journal;
pub mod load;

use crate::rng::mix;
use std::fmt;

/// Unit of the pattern, and of every promise that is checked.
pub const SECTOR_BYTES: u64 = 512;
const MAGIC: [u8; 8] = *b"FBYPATRN";
const SUM_AT: usize = 504;

/// Checksum of a sector's other bytes.
///
/// Not a CRC: a sector that ends with its own CRC-32C brings a CRC-32C register to the same state whatever it holds, so
/// to a product that checks its blocks by CRC-32C all pattern blocks would look alike, and its checks would never be
/// put to the proof.
fn sum(sector: &[u8]) -> u64 {
    let mut state = 0x243f_6a88_85a3_08d3u64;
    for word in sector[..SUM_AT].chunks_exact(8) {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        state = (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    mix(state)
}

/// What a sector turned out to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Only zeros: never written, or zeroed, or trimmed.
    Zeros,
    /// The sector of this write of this journal, at its place.
    Write(u64),
    /// A whole pattern sector that belongs elsewhere.
    Misplaced {
        /// Byte of the volume for which it was written.
        offset: u64,
        /// Write that put it there.
        seq: u64,
        /// Journal it belongs to.
        run: u64,
    },
    /// Neither zeros nor a whole pattern sector: torn inside 512 bytes, or damaged.
    Damaged,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Zeros => write!(f, "zeros"),
            Seen::Write(seq) => write!(f, "write #{seq}"),
            Seen::Misplaced { offset, seq, run } => {
                write!(f, "a sector of write #{seq} made for byte {offset} (journal {run:016x})")
            }
            Seen::Damaged => write!(f, "neither zeros nor a whole pattern sector"),
        }
    }
}

/// Fills one sector with the pattern of a write.
pub fn fill_sector(sector: &mut [u8], run: u64, offset: u64, seq: u64) {
    debug_assert_eq!(sector.len() as u64, SECTOR_BYTES);
    sector[..8].copy_from_slice(&MAGIC);
    sector[8..16].copy_from_slice(&offset.to_le_bytes());
    sector[16..24].copy_from_slice(&seq.to_le_bytes());
    sector[24..32].copy_from_slice(&run.to_le_bytes());
    // Different bytes all over the sector, so that bytes of two writes mixed at any place break the checksum.
    let key = mix(run ^ offset.rotate_left(32) ^ seq);
    for (i, word) in sector[32..SUM_AT].chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&key.wrapping_mul(2 * i as u64 + 1).to_le_bytes());
    }
    let sum = sum(sector);
    sector[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
}

/// Fills all sectors of a write with its pattern.
pub fn fill(payload: &mut [u8], run: u64, offset: u64, seq: u64) {
    for (i, sector) in payload.chunks_exact_mut(SECTOR_BYTES as usize).enumerate() {
        fill_sector(sector, run, offset + i as u64 * SECTOR_BYTES, seq);
    }
}

/// What one sector holds that was read back.
pub fn see(sector: &[u8], run: u64, offset: u64) -> Seen {
    if sector.iter().all(|&b| b == 0) {
        return Seen::Zeros;
    }
    let word = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().expect("eight bytes"));
    if sector[..8] != MAGIC || sum(sector) != word(SUM_AT) {
        return Seen::Damaged;
    }
    if word(8) != offset || word(24) != run {
        return Seen::Misplaced { offset: word(8), seq: word(16), run: word(24) };
    }
    Seen::Write(word(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_describes_itself_and_any_flipped_bit_is_damage() {
        let mut sector = vec![0; 512];
        assert_eq!(see(&sector, 7, 1024), Seen::Zeros);
        fill_sector(&mut sector, 7, 1024, 99);
        assert_eq!(see(&sector, 7, 1024), Seen::Write(99));
        assert_eq!(see(&sector, 7, 1536), Seen::Misplaced { offset: 1024, seq: 99, run: 7 });
        assert_eq!(see(&sector, 8, 1024), Seen::Misplaced { offset: 1024, seq: 99, run: 7 });
        for bit in 0..512 * 8 {
            sector[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(see(&sector, 7, 1024), Seen::Damaged, "bit {bit}");
            sector[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn halves_of_two_writes_in_one_sector_are_damage() {
        let (mut old, mut new) = (vec![0; 512], vec![0; 512]);
        fill_sector(&mut old, 7, 1024, 1);
        fill_sector(&mut new, 7, 1024, 2);
        for cut in 17..504 {
            let torn: Vec<u8> = new[..cut].iter().chain(&old[cut..]).copied().collect();
            assert_eq!(see(&torn, 7, 1024), Seen::Damaged, "cut at {cut}");
        }
    }
}
