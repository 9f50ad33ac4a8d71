//! What lies on a tier, byte by byte: pure encode and decode. `docs/format.md` draws the same layouts.
//!
//! All numbers are little-endian. Every structure carries a CRC-32C over itself, mixed with the volume's identity,
//! so that a block of another volume, or of another place, is never taken for ours. A decoder gives
//! `Err(reason)`; bytes from a device are a value to handle, never a panic.
//!
//! ```text
//! block 0            superblock                  written once
//! block 1, 2         checkpoint A, B             written in turn
//! memory tier:       descriptor table | payload  descriptor i describes payload block i; then the range descriptors
//! flash tier:        segment | segment | ...     segment = batch, batch, ... | summary
//!                                                batch   = header with descriptors | payload blocks
//! ```

mod checkpoint;

use crate::types::*;
use alloc::vec;
use alloc::vec::Vec;
pub use checkpoint::{Checkpoint, Standing};
use crc_fast::{CrcAlgorithm, checksum};

/// Version of a tier's format. A tier keeps the version that it was made with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    /// One number, the volume's term, is the tier's start number too; no place for what a member must know.
    One = 1,
    /// New tiers are made so.
    Two = 2,
}

/// Version of the journal's format, which is counted apart from the tier's.
pub const JOURNAL_VERSION: u16 = 1;
/// Bytes of a tier block.
pub const TIER_BLOCK_BYTES: usize = 4096;
/// Bytes of an encoded [`Descriptor`].
pub const DESCRIPTOR_BYTES: usize = 32;
/// Descriptors in one block of a memory tier's table.
pub const DESCRIPTORS_PER_BLOCK: u32 = (TIER_BLOCK_BYTES / DESCRIPTOR_BYTES) as u32;
/// Bytes before the descriptors in a batch header.
pub const BATCH_HEAD_BYTES: usize = 64;
/// Most descriptors in one batch: what fits into its one header block.
pub const BATCH_DESCRIPTORS_MAX: usize = (TIER_BLOCK_BYTES - BATCH_HEAD_BYTES) / DESCRIPTOR_BYTES;
/// Bytes of one entry of a segment summary: a descriptor and its payload's place in the segment.
pub const SUMMARY_ENTRY_BYTES: usize = DESCRIPTOR_BYTES + 4;
/// Bytes before the entries of a segment summary.
pub const SUMMARY_HEAD_BYTES: usize = 64;
/// Blocks at the tier's start: the superblock and the two places of checkpoints.
pub const TIER_FIXED_BLOCKS: u32 = 3;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"FOREBAY\0";
const BATCH_MAGIC: [u8; 8] = *b"FBBATCH\0";
const SUMMARY_MAGIC: [u8; 8] = *b"FBSUMM\0\0";
const JOURNAL_MAGIC: [u8; 8] = *b"FBJRNL\0\0";
/// Bytes before the descriptors of a journal batch.
pub const JOURNAL_HEAD_BYTES: usize = 64;

const _: () = assert!(BATCH_DESCRIPTORS_MAX == 126);

/// CRC-32C (Castagnoli, as iSCSI, RFC 3720 B.4) of bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Checksum of a payload block, bound to the place and time of its writing: CRC-32C of the 4096 bytes (sectors that
/// were not written are zero), exclusive-or the CRC-32C of volume, block, term and sector mask. CRC being affine, this
/// detects what a CRC seeded with the same values detects, and one pass over the payload suffices.
pub fn payload_checksum(volume: &[u8; 16], block: BlockIndex, mask: SectorMask, term: Term, frame: &[u8]) -> u32 {
    debug_assert_eq!(frame.len(), TIER_BLOCK_BYTES);
    let mut place = [0u8; 32];
    place[..16].copy_from_slice(volume);
    place[16..24].copy_from_slice(&block.0.to_le_bytes());
    place[24..].copy_from_slice(&(u64::from(term.0) | u64::from(mask.0) << 32).to_le_bytes());
    crc32c(frame) ^ crc32c(&place)
}

/// Why bytes from a tier are not what they should be.
pub type Reason = &'static str;

/// Structure checksum: CRC-32C of the bytes with their own checksum field zeroed, mixed with volume and place.
fn structure_checksum(volume: &[u8; 16], place: u64, bytes: &[u8]) -> u32 {
    let mut seed = [0u8; 24];
    seed[..16].copy_from_slice(volume);
    seed[16..].copy_from_slice(&place.to_le_bytes());
    crc32c(bytes) ^ crc32c(&seed)
}

fn seal(volume: &[u8; 16], place: u64, bytes: &mut [u8], field: usize) {
    bytes[field..field + 4].fill(0);
    let sum = structure_checksum(volume, place, bytes);
    bytes[field..field + 4].copy_from_slice(&sum.to_le_bytes());
}

fn sealed(volume: &[u8; 16], place: u64, bytes: &[u8], field: usize) -> bool {
    let mut copy = bytes.to_vec();
    copy[field..field + 4].fill(0);
    structure_checksum(volume, place, &copy) == get_u32(bytes, field)
}

fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}
fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
fn get_uuid(bytes: &[u8], at: usize) -> [u8; 16] {
    bytes[at..at + 16].try_into().expect("sixteen bytes")
}

/// What seals the descriptors inside a batch or summary: its place and its number. A descriptor ends in its own CRC,
/// and CRC is linear, so the outer checksum does not change when a descriptor is replaced by another that is valid in
/// the same place: a torn header with sectors of an earlier batch would pass. The number makes those invalid.
fn descriptor_place(place: TierBlock, number: u64) -> u64 {
    u64::from(place.0) ^ number.rotate_left(32)
}

/// What a tier lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TierKind {
    /// An arena in memory that outlives the process, not the host.
    Memory,
    /// A file or block device on stable media.
    Flash,
}

/// Where everything lies on a tier. Derived from the tier's size alone and recorded in the superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierLayout {
    /// Memory or flash.
    pub kind: TierKind,
    /// Blocks of the whole tier.
    pub tier_blocks: u32,
    /// Memory: first block of the descriptor table. Flash: 0.
    pub table_first: u32,
    /// Memory: blocks of the descriptor table. Flash: 0.
    pub table_blocks: u32,
    /// Range descriptors (zeros, trims) that may be dirty at one time.
    pub ranges_max: u32,
    /// First block of the payload area (memory) or of the first segment (flash).
    pub payload_first: u32,
    /// Blocks of the payload area (memory) or of all segments (flash).
    pub payload_blocks: u32,
    /// Flash: blocks of one segment, summary included. Memory: 0.
    pub segment_blocks: u32,
    /// Flash: blocks of the summary at the end of each segment. Memory: 0.
    pub summary_blocks: u32,
}

/// Smallest tier of each kind, in blocks.
pub const TIER_BLOCKS_MIN: u32 = 512;
/// Largest tier, in blocks: 4095 GiB. The index has 30 bits for a record's place, and records without payload have
/// places behind the tier's last block.
pub const TIER_BLOCKS_MAX: u32 = 4095 << 18;
/// Range descriptors that any tier has at most.
pub const RANGES_MAX: u32 = 65_536;
/// Segments are at most this long: 16 MiB.
pub const SEGMENT_BLOCKS_MAX: u32 = 4096;
/// Segments are at least this long.
pub const SEGMENT_BLOCKS_MIN: u32 = 24;

fn invalid_tier_size(tier_blocks: u32) -> Option<Reason> {
    if tier_blocks < TIER_BLOCKS_MIN {
        return Some("a tier has at least 2 MiB");
    }
    (tier_blocks > TIER_BLOCKS_MAX).then_some("a tier has at most 4095 GiB")
}

impl TierLayout {
    /// Layout of a memory tier of this many blocks.
    pub fn memory(tier_blocks: u32) -> Result<TierLayout, Reason> {
        if let Some(reason) = invalid_tier_size(tier_blocks) {
            return Err(reason);
        }
        let ranges_max = (tier_blocks / 8).clamp(64, RANGES_MAX);
        // One descriptor for each payload block and each range; a little slack in the last table block stays unused.
        let rest = tier_blocks - TIER_FIXED_BLOCKS;
        let table_blocks = (rest + ranges_max).div_ceil(DESCRIPTORS_PER_BLOCK);
        let payload_blocks = rest - table_blocks;
        Ok(TierLayout {
            kind: TierKind::Memory,
            tier_blocks,
            table_first: TIER_FIXED_BLOCKS,
            table_blocks,
            ranges_max,
            payload_first: TIER_FIXED_BLOCKS + table_blocks,
            payload_blocks,
            segment_blocks: 0,
            summary_blocks: 0,
        })
    }

    /// Layout of a flash tier of this many blocks: about 64 segments or more.
    pub fn flash(tier_blocks: u32) -> Result<TierLayout, Reason> {
        if let Some(reason) = invalid_tier_size(tier_blocks) {
            return Err(reason);
        }
        let segment_blocks = (tier_blocks / 64).clamp(SEGMENT_BLOCKS_MIN, SEGMENT_BLOCKS_MAX);
        // Zero records take no payload block, so a batch may hold more records than a small segment has blocks:
        // the summary of an empty segment has room for any one batch.
        let entries = (segment_blocks as usize).max(BATCH_DESCRIPTORS_MAX);
        let summary_bytes = SUMMARY_HEAD_BYTES + entries * SUMMARY_ENTRY_BYTES;
        let summary_blocks = summary_bytes.div_ceil(TIER_BLOCK_BYTES) as u32;
        let segments = (tier_blocks - TIER_FIXED_BLOCKS) / segment_blocks;
        Ok(TierLayout {
            kind: TierKind::Flash,
            tier_blocks,
            table_first: 0,
            table_blocks: 0,
            ranges_max: (tier_blocks / 8).clamp(64, RANGES_MAX),
            payload_first: TIER_FIXED_BLOCKS,
            payload_blocks: segments * segment_blocks,
            segment_blocks,
            summary_blocks,
        })
    }

    /// Segments of a flash tier.
    pub fn segments(&self) -> u32 {
        self.payload_blocks.checked_div(self.segment_blocks).unwrap_or(0)
    }

    fn invalid(&self) -> Option<Reason> {
        let expected = match self.kind {
            TierKind::Memory => TierLayout::memory(self.tier_blocks),
            TierKind::Flash => TierLayout::flash(self.tier_blocks),
        };
        match expected {
            Err(reason) => Some(reason),
            Ok(layout) if layout != *self => Some("superblock: the layout does not follow from the tier's size"),
            Ok(_) => None,
        }
    }
}

/// Identity of a tier, written once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// How everything on this tier is to be read and written.
    pub version: Version,
    /// The volume whose log this is.
    pub volume: [u8; 16],
    /// Drawn at random when the tier is made: with its `life` it names what this log can vouch for
    /// ([`Incarnation`](crate::cluster::Incarnation)). Version 1: 0.
    pub tier: u64,
    /// Its name when the tier was made, for people.
    pub name: [u8; 64],
    /// Its size when the tier was made.
    pub size_bytes: u64,
    /// When the tier was made, seconds since 1970.
    pub created_unix_s: u64,
    /// Where everything lies on this tier.
    pub layout: TierLayout,
}

impl Superblock {
    /// Encodes it into one block of 4096 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut b = vec![0u8; TIER_BLOCK_BYTES];
        b[..8].copy_from_slice(&SUPERBLOCK_MAGIC);
        b[8..10].copy_from_slice(&(self.version as u16).to_le_bytes());
        b[10] = match self.layout.kind {
            TierKind::Memory => 1,
            TierKind::Flash => 2,
        };
        b[16..32].copy_from_slice(&self.volume);
        b[32..40].copy_from_slice(&self.size_bytes.to_le_bytes());
        b[40..48].copy_from_slice(&self.created_unix_s.to_le_bytes());
        let l = &self.layout;
        let numbers = [
            l.tier_blocks,
            l.table_first,
            l.table_blocks,
            l.ranges_max,
            l.payload_first,
            l.payload_blocks,
            l.segment_blocks,
            l.summary_blocks,
        ];
        for (i, n) in numbers.iter().enumerate() {
            b[48 + 4 * i..52 + 4 * i].copy_from_slice(&n.to_le_bytes());
        }
        b[80..144].copy_from_slice(&self.name);
        match self.version {
            Version::One => debug_assert_eq!(self.tier, 0, "version 1 has no place for it"),
            Version::Two => b[144..152].copy_from_slice(&self.tier.to_le_bytes()),
        }
        seal(&self.volume, 0, &mut b, 12);
        b
    }

    /// From one block. A newer version is refused before anything else of it is believed.
    pub fn decode(b: &[u8]) -> Result<Superblock, Reason> {
        if b.len() < TIER_BLOCK_BYTES {
            return Err("superblock: the tier is shorter than one block");
        }
        let b = &b[..TIER_BLOCK_BYTES];
        if b[..8] != SUPERBLOCK_MAGIC {
            return Err("superblock: not a Forebay tier (wrong magic)");
        }
        let version = match get_u16(b, 8) {
            0 => return Err("superblock: version 0 never existed"),
            1 => Version::One,
            2 => Version::Two,
            _ => return Err("superblock: written by a newer version of Forebay; drain it with that version"),
        };
        let volume = get_uuid(b, 16);
        if !sealed(&volume, 0, b, 12) {
            return Err("superblock: checksum mismatch");
        }
        let kind = match b[10] {
            1 => TierKind::Memory,
            2 => TierKind::Flash,
            _ => return Err("superblock: unknown kind of tier"),
        };
        let n = |i: usize| get_u32(b, 48 + 4 * i);
        let layout = TierLayout {
            kind,
            tier_blocks: n(0),
            table_first: n(1),
            table_blocks: n(2),
            ranges_max: n(3),
            payload_first: n(4),
            payload_blocks: n(5),
            segment_blocks: n(6),
            summary_blocks: n(7),
        };
        if let Some(reason) = layout.invalid() {
            return Err(reason);
        }
        Ok(Superblock {
            version,
            volume,
            tier: match version {
                Version::One => 0,
                Version::Two => get_u64(b, 144),
            },
            name: b[80..144].try_into().expect("64 bytes"),
            size_bytes: get_u64(b, 32),
            created_unix_s: get_u64(b, 40),
            layout,
        })
    }
}

/// What a record does to the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Bytes of (some sectors of) one block; the payload lies with it.
    Data {
        /// Sectors that the payload holds; the others keep what they had.
        mask: SectorMask,
        /// [`payload_checksum`] of the payload.
        checksum: u32,
    },
    /// Some sectors of one block read as zeros; no payload.
    ZeroSectors {
        /// Sectors that read as zeros; the others keep what they had.
        mask: SectorMask,
    },
    /// Whole blocks read as zeros; no payload.
    ZeroBlocks {
        /// How many, from the descriptor's block on.
        blocks: u32,
        /// May be deallocated in the backing.
        hole: bool,
    },
}

/// First word of a table entry while it is being stored. On a memory tier a process may be killed between two of the
/// four 8-byte stores of an entry: whoever stores one puts this word first, then words 1 to 3, then the log position.
/// So an interrupted store reads as "nothing here", and a checksum mismatch always means damage.
pub const DESCRIPTOR_UNFINISHED: u64 = u64::MAX;

/// One record of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// Its position in the log.
    pub lsn: Lsn,
    /// First block of the volume that it is about.
    pub block: BlockIndex,
    /// Barrier group: nothing of a later one may be in the backing without it.
    pub group: Group,
    /// Term of the first writing.
    pub term: Term,
    /// What it does to the volume.
    pub kind: Kind,
}

impl Descriptor {
    /// True when a payload block belongs to it.
    pub fn has_payload(&self) -> bool {
        matches!(self.kind, Kind::Data { .. })
    }

    /// To 32 bytes; `place` is the table index on a memory tier, [`descriptor_place`] elsewhere.
    ///
    /// ```text
    /// 0  lsn u64 | 8  block u40, kind u8, mask u8 (hole u8), 0 u8 | 16 group u32 | 20 term u32
    /// 24 payload checksum u32, or number of blocks u32           | 28 structure checksum u32
    /// ```
    pub fn encode(&self, volume: &[u8; 16], place: u64) -> [u8; DESCRIPTOR_BYTES] {
        let mut b = [0u8; DESCRIPTOR_BYTES];
        debug_assert!(self.block.0 < 1 << 40);
        let (kind, mask, word) = match self.kind {
            Kind::Data { mask, checksum } => (1u64, mask.0, checksum),
            Kind::ZeroSectors { mask } => (2, mask.0, 0),
            Kind::ZeroBlocks { blocks, hole } => (3, u8::from(hole), blocks),
        };
        // By whole words, as the checksum reads them: bytes put into a word after it was stored would make that wait
        // until all stores before them, often of cold memory, have been carried out.
        b[..8].copy_from_slice(&self.lsn.0.to_le_bytes());
        b[8..16].copy_from_slice(&(self.block.0 | kind << 40 | u64::from(mask) << 48).to_le_bytes());
        b[16..24].copy_from_slice(&(u64::from(self.group.0) | u64::from(self.term.0) << 32).to_le_bytes());
        b[24..28].copy_from_slice(&word.to_le_bytes());
        let sum = structure_checksum(volume, place, &b[..28]);
        b[28..].copy_from_slice(&sum.to_le_bytes());
        b
    }

    /// From 32 bytes. `Ok(None)` where nothing was ever written (all zeros), or where the store of an entry was
    /// interrupted ([`DESCRIPTOR_UNFINISHED`]).
    pub fn decode(volume: &[u8; 16], place: u64, b: &[u8]) -> Result<Option<Descriptor>, Reason> {
        if b.len() != DESCRIPTOR_BYTES {
            return Err("descriptor: wrong length");
        }
        if b.iter().all(|&x| x == 0) || get_u64(b, 0) == DESCRIPTOR_UNFINISHED {
            return Ok(None);
        }
        if structure_checksum(volume, place, &b[..28]) != get_u32(b, 28) {
            return Err("descriptor: checksum mismatch");
        }
        let mask = SectorMask(b[14]);
        let word = get_u32(b, 24);
        let kind = match b[13] {
            1 => Kind::Data { mask, checksum: word },
            2 => Kind::ZeroSectors { mask },
            3 => Kind::ZeroBlocks { blocks: word, hole: b[14] == 1 },
            _ => return Err("descriptor: unknown kind"),
        };
        if matches!(kind, Kind::Data { .. } | Kind::ZeroSectors { .. }) && mask.is_empty() {
            return Err("descriptor: no sector in its mask");
        }
        if matches!(kind, Kind::ZeroBlocks { blocks: 0, .. }) {
            return Err("descriptor: an empty range");
        }
        let mut block = [0u8; 8];
        block[..5].copy_from_slice(&b[8..13]);
        Ok(Some(Descriptor {
            lsn: Lsn(get_u64(b, 0)),
            block: BlockIndex(u64::from_le_bytes(block)),
            group: Group(get_u32(b, 16)),
            term: Term(get_u32(b, 20)),
            kind,
        }))
    }
}

/// Head of a batch on flash: one block, followed by the payload of its data records in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Life of the segment it lies in; a batch of an earlier life is not of this log.
    pub segment: u64,
    /// Number of the batch in the log, without gaps.
    pub sequence: u64,
    /// Every batch up to this one was durable when this was written: damage below is damage, above it is a torn tail.
    pub synced_through: u64,
    /// Start that wrote it.
    pub start: Start,
    /// Descriptors, in the order of their payloads.
    pub records: Vec<Descriptor>,
}

impl Batch {
    /// Payload blocks that follow the header.
    pub fn payload_blocks(&self) -> u32 {
        self.records.iter().filter(|r| r.has_payload()).count() as u32
    }

    /// To one block, for the tier block `place`.
    pub fn encode(&self, volume: &[u8; 16], place: TierBlock) -> Vec<u8> {
        assert!(self.records.len() <= BATCH_DESCRIPTORS_MAX);
        let mut b = vec![0u8; TIER_BLOCK_BYTES];
        b[..8].copy_from_slice(&BATCH_MAGIC);
        b[8..10].copy_from_slice(&(self.records.len() as u16).to_le_bytes());
        b[16..24].copy_from_slice(&self.segment.to_le_bytes());
        b[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        b[32..40].copy_from_slice(&self.synced_through.to_le_bytes());
        b[40..44].copy_from_slice(&self.start.0.to_le_bytes());
        for (i, record) in self.records.iter().enumerate() {
            let at = BATCH_HEAD_BYTES + i * DESCRIPTOR_BYTES;
            b[at..at + DESCRIPTOR_BYTES]
                .copy_from_slice(&record.encode(volume, descriptor_place(place, self.sequence)));
        }
        seal(volume, u64::from(place.0), &mut b, 12);
        b
    }

    /// From the block at `place`.
    pub fn decode(volume: &[u8; 16], place: TierBlock, b: &[u8]) -> Result<Batch, Reason> {
        if b.len() != TIER_BLOCK_BYTES || b[..8] != BATCH_MAGIC {
            return Err("batch: wrong magic");
        }
        if !sealed(volume, u64::from(place.0), b, 12) {
            return Err("batch: checksum mismatch");
        }
        let count = usize::from(get_u16(b, 8));
        if count > BATCH_DESCRIPTORS_MAX {
            return Err("batch: more records than fit");
        }
        let inner = descriptor_place(place, get_u64(b, 24));
        let mut records = Vec::with_capacity(count);
        for i in 0..count {
            let at = BATCH_HEAD_BYTES + i * DESCRIPTOR_BYTES;
            match Descriptor::decode(volume, inner, &b[at..at + DESCRIPTOR_BYTES])? {
                Some(record) => records.push(record),
                None => return Err("batch: a record is missing"),
            }
        }
        Ok(Batch {
            segment: get_u64(b, 16),
            sequence: get_u64(b, 24),
            synced_through: get_u64(b, 32),
            start: Start(get_u32(b, 40)),
            records,
        })
    }
}

/// The records of a full segment once more, so that a start reads this and not every batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Summary {
    /// Life of the segment, as its batches name it.
    pub segment: u64,
    /// Number of the first batch in it.
    pub first_batch: u64,
    /// Number of the last batch in it.
    pub last_batch: u64,
    /// Records with the place of their payload, counted in blocks from the segment's start (0: none).
    pub records: Vec<(Descriptor, u32)>,
}

impl Summary {
    /// Entries that fit into so many blocks.
    pub fn capacity(summary_blocks: u32) -> usize {
        (summary_blocks as usize * TIER_BLOCK_BYTES - SUMMARY_HEAD_BYTES) / SUMMARY_ENTRY_BYTES
    }

    /// To `summary_blocks` blocks, the first of them at `place`.
    pub fn encode(&self, volume: &[u8; 16], place: TierBlock, summary_blocks: u32) -> Vec<u8> {
        assert!(self.records.len() <= Summary::capacity(summary_blocks));
        let mut b = vec![0u8; summary_blocks as usize * TIER_BLOCK_BYTES];
        b[..8].copy_from_slice(&SUMMARY_MAGIC);
        b[8..12].copy_from_slice(&(self.records.len() as u32).to_le_bytes());
        b[16..24].copy_from_slice(&self.segment.to_le_bytes());
        b[24..32].copy_from_slice(&self.first_batch.to_le_bytes());
        b[32..40].copy_from_slice(&self.last_batch.to_le_bytes());
        for (i, (record, payload)) in self.records.iter().enumerate() {
            let at = SUMMARY_HEAD_BYTES + i * SUMMARY_ENTRY_BYTES;
            b[at..at + DESCRIPTOR_BYTES].copy_from_slice(&record.encode(volume, descriptor_place(place, self.segment)));
            b[at + DESCRIPTOR_BYTES..at + SUMMARY_ENTRY_BYTES].copy_from_slice(&payload.to_le_bytes());
        }
        seal(volume, u64::from(place.0), &mut b, 12);
        b
    }

    /// From the blocks at `place`.
    pub fn decode(volume: &[u8; 16], place: TierBlock, b: &[u8]) -> Result<Summary, Reason> {
        if b.len() < TIER_BLOCK_BYTES || b[..8] != SUMMARY_MAGIC {
            return Err("summary: wrong magic");
        }
        if !sealed(volume, u64::from(place.0), b, 12) {
            return Err("summary: checksum mismatch");
        }
        let count = get_u32(b, 8) as usize;
        if count > Summary::capacity((b.len() / TIER_BLOCK_BYTES) as u32) {
            return Err("summary: more records than fit");
        }
        let inner = descriptor_place(place, get_u64(b, 16));
        let mut records = Vec::with_capacity(count);
        for i in 0..count {
            let at = SUMMARY_HEAD_BYTES + i * SUMMARY_ENTRY_BYTES;
            match Descriptor::decode(volume, inner, &b[at..at + DESCRIPTOR_BYTES])? {
                Some(record) => records.push((record, get_u32(b, at + DESCRIPTOR_BYTES))),
                None => return Err("summary: a record is missing"),
            }
        }
        Ok(Summary { segment: get_u64(b, 16), first_batch: get_u64(b, 24), last_batch: get_u64(b, 32), records })
    }
}

/// A batch in the journal beside the backing: the newest content of every sector that some barrier groups changed.
/// Its head lies at the start of an area, the payload blocks of its data records follow in order. It is complete when
/// the head decodes and every payload matches its descriptor's checksum; only then may it be applied, in log order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalBatch {
    /// Of two complete batches the one with the higher number is applied.
    pub sequence: u64,
    /// Everything up to here is in the backing when the batch is applied.
    pub through: Lsn,
    /// Term of the owner that wrote it.
    pub term: Term,
    /// What contributes, in log order.
    pub records: Vec<Descriptor>,
}

impl JournalBatch {
    /// Blocks of a head with so many records.
    pub fn head_blocks(records: usize) -> u32 {
        (JOURNAL_HEAD_BYTES + records * DESCRIPTOR_BYTES).div_ceil(TIER_BLOCK_BYTES) as u32
    }

    /// To whole blocks, for the area that begins at journal block `area`.
    pub fn encode(&self, volume: &[u8; 16], area: u32) -> Vec<u8> {
        let mut b = vec![0u8; JournalBatch::head_blocks(self.records.len()) as usize * TIER_BLOCK_BYTES];
        b[..8].copy_from_slice(&JOURNAL_MAGIC);
        b[8..12].copy_from_slice(&(self.records.len() as u32).to_le_bytes());
        b[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        b[24..32].copy_from_slice(&self.through.0.to_le_bytes());
        b[32..36].copy_from_slice(&self.term.0.to_le_bytes());
        b[36..38].copy_from_slice(&JOURNAL_VERSION.to_le_bytes());
        for (i, record) in self.records.iter().enumerate() {
            let at = JOURNAL_HEAD_BYTES + i * DESCRIPTOR_BYTES;
            b[at..at + DESCRIPTOR_BYTES]
                .copy_from_slice(&record.encode(volume, descriptor_place(TierBlock(area), self.sequence)));
        }
        seal(volume, u64::from(area), &mut b, 12);
        b
    }

    /// How many blocks the head has whose first block this is; an unsealed hint, to know how much to read.
    pub fn head_blocks_hint(b: &[u8]) -> Option<u32> {
        if b.len() < TIER_BLOCK_BYTES || b[..8] != JOURNAL_MAGIC {
            return None;
        }
        Some(JournalBatch::head_blocks(get_u32(b, 8) as usize))
    }

    /// From the blocks of the head.
    pub fn decode(volume: &[u8; 16], area: u32, b: &[u8]) -> Result<JournalBatch, Reason> {
        if b.len() < TIER_BLOCK_BYTES || b[..8] != JOURNAL_MAGIC {
            return Err("journal: wrong magic");
        }
        if get_u16(b, 36) > JOURNAL_VERSION {
            return Err("journal: written by a newer version of Forebay");
        }
        let count = get_u32(b, 8) as usize;
        if b.len() != JournalBatch::head_blocks(count) as usize * TIER_BLOCK_BYTES {
            return Err("journal: the head has another length");
        }
        if !sealed(volume, u64::from(area), b, 12) {
            return Err("journal: checksum mismatch");
        }
        let inner = descriptor_place(TierBlock(area), get_u64(b, 16));
        let mut records = Vec::with_capacity(count);
        for i in 0..count {
            let at = JOURNAL_HEAD_BYTES + i * DESCRIPTOR_BYTES;
            match Descriptor::decode(volume, inner, &b[at..at + DESCRIPTOR_BYTES])? {
                Some(record) => records.push(record),
                None => return Err("journal: a record is missing"),
            }
        }
        Ok(JournalBatch { sequence: get_u64(b, 16), through: Lsn(get_u64(b, 24)), term: Term(get_u32(b, 32)), records })
    }
}

#[cfg(test)]
mod tests;
