//! What a restart, or whoever salvages an image without its log, does with the journal beside the backing: a pure
//! function over bytes, by the rules of `docs/format.md` and nothing else. The world calls it where `forebay-io` replays.
//!
//! Invariants: a batch counts only when its head and every payload are whole; of two, the one with the higher
//! sequence counts; it is applied in log order.

use forebay_core::format::{Descriptor, JournalBatch, Kind, payload_checksum};
use forebay_core::types::*;

const BLOCK: usize = BLOCK_BYTES as usize;
const SECTOR: usize = SECTOR_BYTES as usize;

/// A complete batch and where it lies.
#[derive(Clone, Debug)]
pub struct Found {
    /// Index of its area: 0 or 1.
    pub area: usize,
    /// Head of the batch.
    pub batch: JournalBatch,
    /// Byte of the journal at which its payload begins.
    payload_at: usize,
}

/// What lies in one area.
#[derive(Clone, Debug)]
pub enum AreaState {
    /// Its first block is all zeros.
    Empty,
    /// Something that does not count.
    Incomplete,
    /// A batch that is whole: head and every payload.
    Complete(Found),
}

/// What lies in both areas.
pub fn look(volume: &[u8; 16], journal: &[u8]) -> [AreaState; 2] {
    [0, 1].map(|area| look_into(volume, journal, area))
}

fn look_into(volume: &[u8; 16], journal: &[u8], area: usize) -> AreaState {
    let area_blocks = journal.len() / BLOCK / 2;
    let first = area * area_blocks * BLOCK;
    let bytes = &journal[first..first + area_blocks * BLOCK];
    let Some(head) = bytes.get(..BLOCK) else { return AreaState::Empty };
    if head.iter().all(|&byte| byte == 0) {
        return AreaState::Empty;
    }
    let head_bytes = match JournalBatch::head_blocks_hint(head) {
        Some(blocks) if blocks as usize <= area_blocks => blocks as usize * BLOCK,
        Some(_) | None => return AreaState::Incomplete,
    };
    let Ok(batch) = JournalBatch::decode(volume, (area * area_blocks) as u32, &bytes[..head_bytes]) else {
        return AreaState::Incomplete;
    };
    let mut payloads = bytes[head_bytes..].chunks_exact(BLOCK);
    for record in &batch.records {
        let Kind::Data { mask, checksum } = record.kind else { continue };
        let whole = payloads
            .next()
            .is_some_and(|bytes| payload_checksum(volume, record.block, mask, record.term, bytes) == checksum);
        if !whole {
            return AreaState::Incomplete;
        }
    }
    AreaState::Complete(Found { area, batch, payload_at: first + head_bytes })
}

/// The complete batch with the higher sequence; none: neither area has one.
pub fn newest(volume: &[u8; 16], journal: &[u8]) -> Option<Found> {
    look(volume, journal)
        .into_iter()
        .filter_map(|state| match state {
            AreaState::Complete(found) => Some(found),
            AreaState::Empty | AreaState::Incomplete => None,
        })
        .max_by_key(|found| found.batch.sequence)
}

/// Calls `each` with every sector that the batch writes in a volume of `size` bytes, in log order.
pub fn sectors(found: &Found, journal: &[u8], size: u64, mut each: impl FnMut(usize, &[u8])) {
    let mut payload_at = found.payload_at;
    let mut some = |record: &Descriptor, mask: SectorMask, payload: Option<&[u8]>| {
        for sector in (0..SECTORS_PER_BLOCK).filter(|sector| mask.0 & 1 << sector != 0) {
            let within = sector as usize * SECTOR;
            let at = record.block.byte() as usize + within;
            if at as u64 + SECTOR_BYTES <= size {
                each(at, payload.map_or(&[0; SECTOR], |bytes| &bytes[within..within + SECTOR]));
            }
        }
    };
    for record in &found.batch.records {
        match record.kind {
            Kind::Data { mask, .. } => {
                some(record, mask, Some(&journal[payload_at..payload_at + BLOCK]));
                payload_at += BLOCK;
            }
            Kind::ZeroSectors { mask } => some(record, mask, None),
            Kind::ZeroBlocks { blocks, .. } => {
                for block in 0..u64::from(blocks) {
                    let block = Descriptor { block: BlockIndex(record.block.0 + block), ..*record };
                    some(&block, SectorMask::FULL, None);
                }
            }
        }
    }
}

/// Brings a batch into an image of a volume of `size` bytes.
pub fn apply(found: &Found, journal: &[u8], size: u64, image: &mut [u8]) {
    sectors(found, journal, size, |at, bytes| image[at..at + SECTOR].copy_from_slice(bytes));
}

/// Would a write of these bytes at `offset` be part of applying the batch? Each of its sectors must come from the
/// batch or be what the backing holds already, as around a sector on a backing of larger blocks.
pub fn is_part_of(found: &Found, journal: &[u8], size: u64, backing: &[u8], offset: usize, bytes: &[u8]) -> bool {
    let mut explained: Vec<bool> = bytes
        .chunks(SECTOR)
        .enumerate()
        .map(|(i, sector)| *sector == backing[offset + i * SECTOR..offset + i * SECTOR + sector.len()])
        .collect();
    sectors(found, journal, size, |at, sector| {
        if let Some(from) = at.checked_sub(offset)
            && bytes.get(from..from + SECTOR) == Some(sector)
        {
            explained[from / SECTOR] = true;
        }
    });
    explained.into_iter().all(|explained| explained)
}

/// The image after a replay of what the journal holds, by someone who has no log.
pub fn replayed(volume: &[u8; 16], journal: &[u8], size: u64, mut image: Vec<u8>) -> Vec<u8> {
    if let Some(found) = newest(volume, journal) {
        apply(&found, journal, size, &mut image);
    }
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: [u8; 16] = [7; 16];

    fn record(lsn: u64, block: u64, byte: u8) -> (Descriptor, Vec<u8>) {
        let payload = vec![byte; BLOCK];
        let (block, mask, term) = (BlockIndex(block), SectorMask::FULL, Term(1));
        let checksum = payload_checksum(&VOLUME, block, mask, term, &payload);
        (Descriptor { lsn: Lsn(lsn), block, group: Group(1), term, kind: Kind::Data { mask, checksum } }, payload)
    }

    fn put(journal: &mut [u8], area: usize, sequence: u64, records: &[(Descriptor, Vec<u8>)]) {
        let first = area * journal.len() / 2;
        let records_only = records.iter().map(|(descriptor, _)| *descriptor).collect();
        let batch = JournalBatch { sequence, through: Lsn(9), term: Term(1), records: records_only };
        let mut bytes = batch.encode(&VOLUME, (first / BLOCK) as u32);
        for (_, payload) in records {
            bytes.extend_from_slice(payload);
        }
        journal[first..first + bytes.len()].copy_from_slice(&bytes);
    }

    #[test]
    fn the_newest_whole_batch_is_applied_in_log_order() {
        let mut journal = vec![0; 16 * BLOCK];
        put(&mut journal, 0, 1, &[record(1, 0, 1)]);
        put(&mut journal, 1, 2, &[record(2, 0, 2), record(3, 1, 3), record(4, 0, 4)]);
        let image = replayed(&VOLUME, &journal, 4 * BLOCK_BYTES, vec![0; 4 * BLOCK]);
        assert_eq!([image[0], image[BLOCK], image[2 * BLOCK]], [4, 3, 0]);
        // The last payload is torn: the older batch counts.
        journal[11 * BLOCK + 600] ^= 1;
        assert!(matches!(look(&VOLUME, &journal)[1], AreaState::Incomplete));
        let image = replayed(&VOLUME, &journal, 4 * BLOCK_BYTES, vec![0; 4 * BLOCK]);
        assert_eq!([image[0], image[BLOCK]], [1, 0]);
    }

    #[test]
    fn a_write_that_the_batch_does_not_hold_is_no_part_of_it() {
        let mut journal = vec![0; 16 * BLOCK];
        put(&mut journal, 0, 1, &[record(1, 1, 5)]);
        let found = newest(&VOLUME, &journal).expect("it is whole");
        let backing = vec![9; 4 * BLOCK];
        let is_part = |offset, bytes: &[u8]| is_part_of(&found, &journal, 4 * BLOCK_BYTES, &backing, offset, bytes);
        assert!(is_part(BLOCK, &[5; BLOCK]));
        assert!(is_part(BLOCK - SECTOR, &[vec![9; SECTOR], vec![5; SECTOR]].concat()));
        assert!(!is_part(BLOCK, &[6; SECTOR]));
        assert!(!is_part(0, &[5; SECTOR]));
    }
}
