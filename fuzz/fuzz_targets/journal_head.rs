//! The head of a journal batch survives any blocks, also ones whose checksums are right.
#![no_main]

use arbitrary::Arbitrary;
use forebay_core::format::*;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    volume: [u8; 16],
    area: u32,
    /// Makes the magic, the version, the length and all checksums right, so that what lies behind them is reached.
    resealed: bool,
    count: u16,
    /// Blocks more or fewer than so many records need.
    blocks_off: i8,
    bytes: &'a [u8],
}

/// To this length, by repeating them: a structure full of records that all look alike is reached from few bytes.
fn repeated(bytes: &[u8], length: usize) -> Vec<u8> {
    if bytes.is_empty() { vec![0; length] } else { bytes.iter().copied().cycle().take(length).collect() }
}

/// The checksum as `docs/format.md` has it: over the bytes, mixed with volume and place.
fn structure_checksum(volume: &[u8; 16], place: u64, bytes: &[u8]) -> [u8; 4] {
    let mut seed = [0u8; 24];
    seed[..16].copy_from_slice(volume);
    seed[16..].copy_from_slice(&place.to_le_bytes());
    (crc32c(bytes) ^ crc32c(&seed)).to_le_bytes()
}

fuzz_target!(|input: Input<'_>| {
    let Input { volume, area, resealed, count, blocks_off, bytes } = input;
    let mut bytes = bytes.to_vec();
    if resealed {
        let count = usize::from(count % 600);
        let blocks = JournalBatch::head_blocks(count).saturating_add_signed(i32::from(blocks_off % 3)).max(1);
        bytes = repeated(&bytes, blocks as usize * TIER_BLOCK_BYTES);
        bytes[..8].copy_from_slice(b"FBJRNL\0\0");
        bytes[8..12].copy_from_slice(&(count as u32).to_le_bytes());
        bytes[36..38].copy_from_slice(&JOURNAL_VERSION.to_le_bytes());
        // What seals the records: the place, and the number of the batch.
        let number = u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes"));
        let inner = u64::from(area) ^ number.rotate_left(32);
        for record in bytes[JOURNAL_HEAD_BYTES..].chunks_exact_mut(DESCRIPTOR_BYTES) {
            record[13] %= 4;
            let sum = structure_checksum(&volume, inner, &record[..28]);
            record[28..32].copy_from_slice(&sum);
        }
        bytes[12..16].fill(0);
        let sum = structure_checksum(&volume, u64::from(area), &bytes);
        bytes[12..16].copy_from_slice(&sum);
    }
    // As a replay reads it: the first block says how many belong to the head, if it is one.
    let hint = bytes.get(..TIER_BLOCK_BYTES).and_then(JournalBatch::head_blocks_hint);
    let decoded = JournalBatch::decode(&volume, area, &bytes);
    if let Ok(found) = decoded {
        assert_eq!(hint.map(|blocks| blocks as usize * TIER_BLOCK_BYTES), Some(bytes.len()));
        assert_eq!(JournalBatch::decode(&volume, area, &found.encode(&volume, area)), Ok(found));
    }
});
