//! Golden bytes of every structure, and what a decoder must do with bytes that are not what they should be.
//!
//! The hex literals were computed by a second implementation of `docs/format.md`, not by the code under test. They
//! must never change: a tier written today has to open with every later version.

use super::*;
use crate::cluster::{Epoch, Host, Mark, MarkNumber, PINS_MAX, Part, Pin};
use std::string::String;

const VOLUME: [u8; 16] = *b"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f";
const OTHER_VOLUME: [u8; 16] = *b"\x11\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| std::format!("{b:02x}")).collect()
}

/// Asserts that `bytes` begin with `golden` and are zero after it.
fn assert_golden(bytes: &[u8], golden: &str) {
    let (head, tail) = bytes.split_at(golden.len() / 2);
    assert_eq!(hex(head), golden);
    assert!(tail.iter().all(|&b| b == 0), "bytes beyond the fields are zero");
}

/// The bytes of a golden literal, filled up with zeros.
fn golden_bytes(golden: &str, length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..golden.len()).step_by(2).map(|i| u8::from_str_radix(&golden[i..i + 2], 16).expect("hex")).collect();
    bytes.resize(length, 0);
    bytes
}

/// Payload that differs in every byte from its neighbours.
fn frame() -> Vec<u8> {
    (0..TIER_BLOCK_BYTES).map(|i| (i * 7 + 3) as u8).collect()
}

fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn name(text: &str) -> [u8; 64] {
    let mut name = [0; 64];
    name[..text.len()].copy_from_slice(text.as_bytes());
    name
}

fn superblock(layout: TierLayout) -> Superblock {
    Superblock {
        version: Version::Two,
        volume: VOLUME,
        tier: 0x8877_6655_4433_2211,
        name: name("vm1"),
        size_bytes: 10 << 30,
        created_unix_s: 1_763_700_000,
        layout,
    }
}

fn superblock_of_one(layout: TierLayout) -> Superblock {
    Superblock { version: Version::One, tier: 0, ..superblock(layout) }
}

/// Of a volume of one node.
fn checkpoint(sequence: u64, clean: bool) -> Checkpoint {
    Checkpoint {
        sequence,
        start: Start(9),
        term: Term(3),
        destaged: Lsn(100),
        accepted: Lsn(250),
        batches_synced: 41,
        size_bytes: 10 << 30,
        clean,
        ..Checkpoint::default()
    }
}

fn checkpoint_of_one(sequence: u64, clean: bool) -> Checkpoint {
    Checkpoint { start: Start(3), ..checkpoint(sequence, clean) }
}

fn checkpoint_of_member(sequence: u64) -> Checkpoint {
    let pin = |term, above, through, block, blocks| Pin {
        term: Term(term),
        above: Lsn(above),
        through: Lsn(through),
        part: Part { block: BlockIndex(block), blocks },
    };
    let ids = |first: u8| core::array::from_fn(|i| first + i as u8);
    Checkpoint {
        life: 5,
        host: Some(Host { machine: ids(0xa0), boot: ids(0xb0) }),
        standing: Some(Standing {
            epoch: Epoch(6),
            agreed: true,
            committed: Lsn(240),
            mark: Mark {
                number: MarkNumber(17),
                watermark: Lsn(100),
                through: Lsn(130),
                part: Part { block: BlockIndex(0x01_0203_0405), blocks: 77 },
                size_bytes: 11 << 30,
                pins: vec![pin(1, 10, 20, 0, 0), pin(2, 40, 41, 4096, 8)],
            },
        }),
        ..checkpoint(sequence, true)
    }
}

fn records() -> Vec<Descriptor> {
    let record =
        |lsn, block, kind| Descriptor { lsn: Lsn(lsn), block: BlockIndex(block), group: Group(4), term: Term(3), kind };
    let checksum = payload_checksum(&VOLUME, BlockIndex(5), SectorMask::FULL, Term(3), &frame());
    vec![
        record(1001, 5, Kind::Data { mask: SectorMask::FULL, checksum }),
        record(1002, 6, Kind::ZeroSectors { mask: SectorMask(0x0f) }),
        record(1003, 16, Kind::ZeroBlocks { blocks: 240, hole: true }),
    ]
}

fn batch() -> Batch {
    Batch { segment: 0x3_0000_0002, sequence: 42, synced_through: 41, start: Start(3), records: records() }
}

fn summary() -> Summary {
    let records = records().into_iter().zip([1, 0, 0]).collect();
    Summary { segment: 0x3_0000_0002, first_batch: 42, last_batch: 42, records }
}

fn journal_batch() -> JournalBatch {
    JournalBatch { sequence: 0x3_0000_0002, through: Lsn(1007), term: Term(3), records: records() }
}

const SUPERBLOCK_MEMORY_OF_ONE: &str = "464f52454241590001000100becfe835101112131415161718191a1b1c1d1e1f000000800200000020ed1f69\
    00000000000400000300000009000000800000000c000000f40300000000000000000000766d31";
const SUPERBLOCK_FLASH_OF_ONE: &str = "464f524542415900010002009497ca54101112131415161718191a1b1c1d1e1f000000800200000020ed1f69\
    000000000020000000000000000000000004000003000000801f00008000000002000000766d31";
const CHECKPOINT_ODD_OF_ONE: &str = "4642434b5054000003000000425e1f3807000000000000006400000000000000290000000000000000000080020000\
    000000000000000000fa00000000000000";
const CHECKPOINT_EVEN_CLEAN_OF_ONE: &str = "4642434b50540000030000005da8885008000000000000006400000000000000290000000000000000000080020000\
    000100000000000000fa00000000000000";
const SUPERBLOCK_MEMORY: &str = "464f524542415900020001009f5d5135101112131415161718191a1b1c1d1e1f000000800200000020ed1f6900000000\
    000400000300000009000000800000000c000000f40300000000000000000000766d3100000000000000000000000000\
    000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
    1122334455667788";
const SUPERBLOCK_FLASH: &str = "464f52454241590002000200b5057354101112131415161718191a1b1c1d1e1f000000800200000020ed1f6900000000\
    0020000000000000000000000004000003000000801f00008000000002000000766d3100000000000000000000000000\
    000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
    1122334455667788";
const CHECKPOINT_ODD: &str = "4642434b5054000009000000b27fbd990700000000000000640000000000000029000000000000000000008002000000\
    0000000000000000fa0000000000000003";
const CHECKPOINT_EVEN_CLEAN: &str = "4642434b5054000009000000a790294a0800000000000000640000000000000029000000000000000000008002000000\
    0101020105000000fa000000000000000300000006000000a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7\
    b8b9babbbcbdbebff0000000000000001100000000000000640000000000000082000000000000000504030201000000\
    4d00000000000000000000c00200000001000000000000000a0000000000000014000000000000000000000000000000\
    0200000008000000280000000000000029000000000000000010";
const DATA: &str = "8877665544332211050403020101ff0009000000070000003b66eb10c5a88d87";
const ZERO_SECTORS: &str = "89776655443322110504030201021800090000000700000000000000960f37c8";
const ZERO_BLOCKS: &str = "8a7766554433221101000000000301000a00000007000000ffffff0075da95c6";
const BATCH: &str = "4642424154434800030000006d3ec72402000000030000002a0000000000000029000000000000000300000000000000\
    00000000000000000000000000000000e903000000000000050000000001ff000400000003000000933dfd069492e2ef\
    ea030000000000000600000000020f000400000003000000000000006c550735\
    eb0300000000000010000000000301000400000003000000f0000000cd0f45a8";
const SUMMARY: &str = "464253554d4d00000300000099874aec02000000030000002a000000000000002a000000000000000000000000000000\
    00000000000000000000000000000000e903000000000000050000000001ff000400000003000000933dfd067222bddb01000000\
    ea030000000000000600000000020f000400000003000000000000008ae5580100000000\
    eb0300000000000010000000000301000400000003000000f00000002bbf1a9c00000000";

const JOURNAL_BATCH: &str = "46424a524e4c000003000000d0f279e60200000003000000ef0300000000000003000000010000000000000000000000\
    00000000000000000000000000000000e903000000000000050000000001ff000400000003000000933dfd064cb6625f\
    ea030000000000000600000000020f00040000000300000000000000b4718785\
    eb0300000000000010000000000301000400000003000000f0000000152bc518";

const JOURNAL_AREA: u32 = 1024;
const BATCH_PLACE: TierBlock = TierBlock(131);
const SUMMARY_PLACE: TierBlock = TierBlock(257);

#[test]
fn crc_is_castagnoli() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn payload_checksum_is_golden_and_bound_to_its_place() {
    let full = frame();
    let sum =
        |volume, block, mask, term, frame: &[u8]| payload_checksum(volume, BlockIndex(block), mask, Term(term), frame);
    let golden = sum(&VOLUME, 0x01_0203_0405, SectorMask::FULL, 7, &full);
    assert_eq!(golden, 0x10eb_663b);
    let mut second_sector = vec![0; TIER_BLOCK_BYTES];
    second_sector[512..1024].copy_from_slice(&full[512..1024]);
    assert_eq!(sum(&VOLUME, 9, SectorMask(0b10), 7, &second_sector), 0x70b6_e385);

    assert_ne!(golden, sum(&OTHER_VOLUME, 0x01_0203_0405, SectorMask::FULL, 7, &full));
    assert_ne!(golden, sum(&VOLUME, 0x01_0203_0404, SectorMask::FULL, 7, &full));
    assert_ne!(golden, sum(&VOLUME, 0x01_0203_0405, SectorMask(0x7f), 7, &full));
    assert_ne!(golden, sum(&VOLUME, 0x01_0203_0405, SectorMask::FULL, 8, &full));
    let mut flipped = full.clone();
    flipped[4095] ^= 1;
    assert_ne!(golden, sum(&VOLUME, 0x01_0203_0405, SectorMask::FULL, 7, &flipped));
}

#[test]
fn superblock_is_golden_both_ways() {
    let (memory, flash) = (TierLayout::memory(1024).unwrap(), TierLayout::flash(8192).unwrap());
    for (superblock, golden) in [
        (superblock_of_one(memory), SUPERBLOCK_MEMORY_OF_ONE),
        (superblock_of_one(flash), SUPERBLOCK_FLASH_OF_ONE),
        (superblock(memory), SUPERBLOCK_MEMORY),
        (superblock(flash), SUPERBLOCK_FLASH),
    ] {
        assert_golden(&superblock.encode(), golden);
        assert_eq!(Superblock::decode(&golden_bytes(golden, TIER_BLOCK_BYTES)), Ok(superblock));
    }
}

#[test]
fn checkpoint_is_golden_both_ways() {
    for (version, checkpoint, place, golden) in [
        (Version::One, checkpoint_of_one(7, false), 1, CHECKPOINT_ODD_OF_ONE),
        (Version::One, checkpoint_of_one(8, true), 2, CHECKPOINT_EVEN_CLEAN_OF_ONE),
        (Version::Two, checkpoint(7, false), 1, CHECKPOINT_ODD),
        (Version::Two, checkpoint_of_member(8), 2, CHECKPOINT_EVEN_CLEAN),
    ] {
        assert_eq!(checkpoint.place(), TierBlock(place));
        assert_golden(&checkpoint.encode(version, &VOLUME), golden);
        let bytes = golden_bytes(golden, TIER_BLOCK_BYTES);
        assert_eq!(Checkpoint::decode(version, &VOLUME, TierBlock(place), &bytes), Ok(checkpoint));
    }
}

/// A device that writes sectors whole tears no checkpoint: nothing lies behind its first one.
#[test]
fn a_checkpoint_full_of_pins_fits_a_sector() {
    let mut full = checkpoint_of_member(8);
    let pin = Pin {
        term: Term(u32::MAX),
        above: Lsn(u64::MAX),
        through: Lsn(u64::MAX),
        part: Part { block: BlockIndex(u64::MAX), blocks: u32::MAX },
    };
    full.standing.as_mut().expect("a member's").mark.pins = vec![pin; PINS_MAX];
    let bytes = full.encode(Version::Two, &VOLUME);
    assert!(bytes[512..].iter().all(|&byte| byte == 0));
    assert_eq!(Checkpoint::decode(Version::Two, &VOLUME, TierBlock(2), &bytes), Ok(full));
}

#[test]
fn descriptor_is_golden_both_ways() {
    let record = |lsn, block, group, kind| Descriptor {
        lsn: Lsn(lsn),
        block: BlockIndex(block),
        group: Group(group),
        term: Term(7),
        kind,
    };
    let data = Kind::Data { mask: SectorMask::FULL, checksum: 0x10eb_663b };
    let range = Kind::ZeroBlocks { blocks: 0x00ff_ffff, hole: true };
    for (record, golden) in [
        (record(0x1122_3344_5566_7788, 0x01_0203_0405, 9, data), DATA),
        (record(0x1122_3344_5566_7789, 0x01_0203_0405, 9, Kind::ZeroSectors { mask: SectorMask(0x18) }), ZERO_SECTORS),
        (record(0x1122_3344_5566_778a, 1, 10, range), ZERO_BLOCKS),
    ] {
        assert_golden(&record.encode(&VOLUME, 12_345), golden);
        assert_eq!(Descriptor::decode(&VOLUME, 12_345, &golden_bytes(golden, DESCRIPTOR_BYTES)), Ok(Some(record)));
    }
}

#[test]
fn batch_is_golden_both_ways() {
    assert_golden(&batch().encode(&VOLUME, BATCH_PLACE), BATCH);
    assert_eq!(Batch::decode(&VOLUME, BATCH_PLACE, &golden_bytes(BATCH, TIER_BLOCK_BYTES)), Ok(batch()));
    assert_eq!(batch().payload_blocks(), 1);
}

#[test]
fn summary_is_golden_both_ways() {
    assert_golden(&summary().encode(&VOLUME, SUMMARY_PLACE, 2), SUMMARY);
    let bytes = golden_bytes(SUMMARY, 2 * TIER_BLOCK_BYTES);
    assert_eq!(Summary::decode(&VOLUME, SUMMARY_PLACE, &bytes), Ok(summary()));
}

#[test]
fn journal_batch_is_golden_both_ways() {
    assert_golden(&journal_batch().encode(&VOLUME, JOURNAL_AREA), JOURNAL_BATCH);
    let bytes = golden_bytes(JOURNAL_BATCH, TIER_BLOCK_BYTES);
    assert_eq!(JournalBatch::head_blocks_hint(&bytes), Some(1));
    assert_eq!(JournalBatch::decode(&VOLUME, JOURNAL_AREA, &bytes), Ok(journal_batch()));
}

#[test]
fn journal_heads_have_as_many_blocks_as_their_records_need() {
    for (records, blocks) in [(0, 1), (126, 1), (127, 2), (254, 2), (255, 3)] {
        assert_eq!(JournalBatch::head_blocks(records), blocks);
        let record = |i| Descriptor { lsn: Lsn(i as u64 + 1), ..self::records()[1] };
        let batch = JournalBatch { records: (0..records).map(record).collect(), ..journal_batch() };
        let bytes = batch.encode(&VOLUME, 0);
        assert_eq!(bytes.len(), blocks as usize * TIER_BLOCK_BYTES);
        assert_eq!(JournalBatch::head_blocks_hint(&bytes[..TIER_BLOCK_BYTES]), Some(blocks));
        assert_eq!(JournalBatch::decode(&VOLUME, 0, &bytes), Ok(batch));
    }
}

#[test]
fn full_structures_roundtrip() {
    let record = |i: u64| Descriptor {
        lsn: Lsn(i + 1),
        block: BlockIndex((1 << 40) - 1 - i),
        group: Group(u32::MAX),
        term: Term(u32::MAX),
        kind: match i % 4 {
            0 => Kind::Data { mask: SectorMask(1 << (i % 8)), checksum: i as u32 },
            1 => Kind::ZeroSectors { mask: SectorMask(0x80) },
            2 => Kind::ZeroBlocks { blocks: u32::MAX, hole: false },
            _ => Kind::ZeroBlocks { blocks: 1, hole: true },
        },
    };
    let records: Vec<_> = (0..BATCH_DESCRIPTORS_MAX as u64).map(record).collect();
    let batch = Batch { segment: u64::MAX, sequence: u64::MAX, synced_through: 0, start: Start(u32::MAX), records };
    let place = TierBlock(TIER_BLOCKS_MAX - 1);
    assert_eq!(Batch::decode(&VOLUME, place, &batch.encode(&VOLUME, place)), Ok(batch));
    let empty = Batch { segment: 1, sequence: 1, synced_through: 0, start: Start(1), records: Vec::new() };
    assert_eq!(Batch::decode(&VOLUME, place, &empty.encode(&VOLUME, place)), Ok(empty));

    let blocks = 37;
    let records = (0..Summary::capacity(blocks) as u64).map(|i| (record(i), i as u32)).collect();
    let summary = Summary { segment: 9, first_batch: 1, last_batch: u64::MAX, records };
    assert_eq!(Summary::decode(&VOLUME, place, &summary.encode(&VOLUME, place, blocks)), Ok(summary));
}

#[test]
fn layouts_fit_their_tier() {
    let mut sizes = vec![TIER_BLOCKS_MIN, TIER_BLOCKS_MIN + 1, 515, 1023, 1 << 20, (1 << 20) + 1, TIER_BLOCKS_MAX];
    let mut state = 42;
    sizes.extend((0..2000).map(|_| TIER_BLOCKS_MIN + (xorshift(&mut state) % u64::from(TIER_BLOCKS_MAX >> 4)) as u32));
    for blocks in sizes {
        let memory = TierLayout::memory(blocks).unwrap();
        assert_eq!(memory.payload_first + memory.payload_blocks, blocks);
        assert_eq!(memory.table_first + memory.table_blocks, memory.payload_first);
        let descriptors = u64::from(memory.table_blocks) * u64::from(DESCRIPTORS_PER_BLOCK);
        assert!(descriptors >= u64::from(memory.payload_blocks) + u64::from(memory.ranges_max), "{memory:?}");
        assert_eq!(memory.segments(), 0);

        let flash = TierLayout::flash(blocks).unwrap();
        assert!(flash.payload_first + flash.payload_blocks <= blocks);
        assert!(flash.segments() >= 5, "{flash:?}");
        assert_eq!(flash.segments() * flash.segment_blocks, flash.payload_blocks);
        // Room for one batch header, its payload of one block, and the summary; and any batch's records fit a summary.
        assert!(flash.segment_blocks >= flash.summary_blocks + 2);
        let capacity = Summary::capacity(flash.summary_blocks);
        assert!(capacity >= BATCH_DESCRIPTORS_MAX && capacity >= flash.segment_blocks as usize, "{flash:?}");
    }
}

#[test]
fn impossible_tier_sizes_are_refused() {
    for make in [TierLayout::memory, TierLayout::flash] {
        for blocks in [0, 1, TIER_BLOCKS_MIN - 1] {
            assert_eq!(make(blocks), Err("a tier has at least 2 MiB"));
        }
        for blocks in [TIER_BLOCKS_MAX + 1, u32::MAX] {
            assert_eq!(make(blocks), Err("a tier has at most 4095 GiB"));
        }
    }
}

/// Changes a block and seals it again, so that the checksum does not hide the check behind it.
fn resealed(mut bytes: Vec<u8>, place: u64, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    change(&mut bytes);
    seal(&VOLUME, place, &mut bytes, 12);
    bytes
}

#[test]
fn superblock_says_why_it_is_refused() {
    let good = superblock(TierLayout::memory(1024).unwrap()).encode();
    let refused = |bytes: &[u8]| Superblock::decode(bytes).unwrap_err();
    let changed = |change: &dyn Fn(&mut [u8])| refused(&resealed(good.clone(), 0, |b| change(b)));
    assert_eq!(refused(&good[..4095]), "superblock: the tier is shorter than one block");
    assert_eq!(refused(&[0; 4096]), "superblock: not a Forebay tier (wrong magic)");
    let newer = "superblock: written by a newer version of Forebay; drain it with that version";
    assert_eq!(changed(&|b| b[8] = 3), newer);
    let mut unsealed = good.clone();
    unsealed[9] = 1;
    assert_eq!(refused(&unsealed), newer, "refused before anything else of it is believed");
    assert_eq!(changed(&|b| b[8] = 0), "superblock: version 0 never existed");
    assert_eq!(changed(&|b| b[10] = 3), "superblock: unknown kind of tier");
    for field in 0..8 {
        if field != 0 {
            let other = "superblock: the layout does not follow from the tier's size";
            assert_eq!(changed(&|b| b[48 + 4 * field] ^= 1), other);
        }
    }
    assert_eq!(changed(&|b| b[48..52].copy_from_slice(&[255, 1, 0, 0])), "a tier has at least 2 MiB");
    assert_eq!(changed(&|b| b[48..52].fill(0xff)), "a tier has at most 4095 GiB");
    let mut flipped = good;
    flipped[4095] = 1;
    assert_eq!(refused(&flipped), "superblock: checksum mismatch");
}

#[test]
fn checkpoint_says_why_it_is_refused() {
    let good = checkpoint(7, false).encode(Version::Two, &VOLUME);
    let refused = |volume: &[u8; 16], place, bytes: &[u8]| {
        Checkpoint::decode(Version::Two, volume, TierBlock(place), bytes).unwrap_err()
    };
    assert_eq!(refused(&VOLUME, 1, &good[..4095]), "checkpoint: wrong magic");
    assert_eq!(refused(&VOLUME, 1, &[0; 4096]), "checkpoint: wrong magic");
    assert_eq!(refused(&VOLUME, 2, &good), "checkpoint: checksum mismatch", "a copy in the other's place");
    assert_eq!(refused(&OTHER_VOLUME, 1, &good), "checkpoint: checksum mismatch", "a copy of another volume");
    let overfull = resealed(good.clone(), 1, |b| (b[50], b[51]) = (PINS_MAX as u8 + 1, 1));
    assert_eq!(refused(&VOLUME, 1, &overfull), "checkpoint: more pins than there are places");
    let crossed = resealed(good, 2, |_| ());
    assert_eq!(refused(&VOLUME, 2, &crossed), "checkpoint: in the other's place");
}

#[test]
fn descriptor_says_why_it_is_refused() {
    let record = records()[0];
    let refused = |volume: &[u8; 16], place, bytes: &[u8]| Descriptor::decode(volume, place, bytes).unwrap_err();
    let changed = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = record.encode(&VOLUME, 7);
        change(&mut bytes[..28]);
        let sum = structure_checksum(&VOLUME, 7, &bytes[..28]);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        refused(&VOLUME, 7, &bytes)
    };
    let good = record.encode(&VOLUME, 7);
    assert_eq!(refused(&VOLUME, 7, &good[..31]), "descriptor: wrong length");
    assert_eq!(refused(&VOLUME, 7, &[0; 33]), "descriptor: wrong length");
    assert_eq!(refused(&VOLUME, 8, &good), "descriptor: checksum mismatch", "the entry of another place");
    assert_eq!(refused(&OTHER_VOLUME, 7, &good), "descriptor: checksum mismatch", "the entry of another volume");
    for kind in [0, 4, 255] {
        assert_eq!(changed(&|b| b[13] = kind), "descriptor: unknown kind");
    }
    assert_eq!(changed(&|b| b[14] = 0), "descriptor: no sector in its mask");
    assert_eq!(
        changed(&|b| {
            b[13] = 2;
            b[14] = 0;
        }),
        "descriptor: no sector in its mask"
    );
    assert_eq!(
        changed(&|b| {
            b[13] = 3;
            b[24..28].fill(0);
        }),
        "descriptor: an empty range"
    );
}

/// Every state that a kill can leave between two of the five stores is "nothing" or whole, never a wrong record and
/// never damage; whatever lay there before.
#[test]
fn interrupted_store_of_a_table_entry_is_nothing() {
    let old = records()[1].encode(&VOLUME, 7);
    let new = records()[0].encode(&VOLUME, 7);
    for before in [[0; DESCRIPTOR_BYTES], old] {
        let mut entry = before;
        let mut states = vec![entry];
        entry[..8].copy_from_slice(&DESCRIPTOR_UNFINISHED.to_le_bytes());
        states.push(entry);
        for word in [1, 2, 3, 0] {
            entry[8 * word..8 * word + 8].copy_from_slice(&new[8 * word..8 * word + 8]);
            states.push(entry);
        }
        let found: Vec<_> = states.iter().map(|state| Descriptor::decode(&VOLUME, 7, state)).collect();
        let at_first = if before == old { Some(records()[1]) } else { None };
        assert_eq!(found, [Ok(at_first), Ok(None), Ok(None), Ok(None), Ok(None), Ok(Some(records()[0]))]);
    }
}

#[test]
fn batch_says_why_it_is_refused() {
    let good = batch().encode(&VOLUME, BATCH_PLACE);
    let refused = |volume: &[u8; 16], place, bytes: &[u8]| Batch::decode(volume, TierBlock(place), bytes).unwrap_err();
    let changed = |change: &dyn Fn(&mut [u8])| refused(&VOLUME, 131, &resealed(good.clone(), 131, |b| change(b)));
    assert_eq!(refused(&VOLUME, 131, &good[..4095]), "batch: wrong magic");
    assert_eq!(refused(&VOLUME, 131, &[0; 4096]), "batch: wrong magic");
    assert_eq!(refused(&VOLUME, 132, &good), "batch: checksum mismatch", "a misdirected header");
    assert_eq!(refused(&OTHER_VOLUME, 131, &good), "batch: checksum mismatch", "the header of another volume");
    assert_eq!(changed(&|b| b[8..10].copy_from_slice(&127u16.to_le_bytes())), "batch: more records than fit");
    assert_eq!(changed(&|b| b[8] = 4), "batch: a record is missing");
    assert_eq!(changed(&|b| b[64] ^= 1), "descriptor: checksum mismatch");
}

#[test]
fn summary_says_why_it_is_refused() {
    let good = summary().encode(&VOLUME, SUMMARY_PLACE, 2);
    let refused =
        |volume: &[u8; 16], place, bytes: &[u8]| Summary::decode(volume, TierBlock(place), bytes).unwrap_err();
    let changed = |change: &dyn Fn(&mut [u8])| refused(&VOLUME, 257, &resealed(good.clone(), 257, |b| change(b)));
    assert_eq!(refused(&VOLUME, 257, &good[..4095]), "summary: wrong magic");
    assert_eq!(refused(&VOLUME, 257, &[0; 8192]), "summary: wrong magic");
    assert_eq!(refused(&VOLUME, 257, &good[..4096]), "summary: checksum mismatch", "one block of two");
    assert_eq!(refused(&VOLUME, 258, &good), "summary: checksum mismatch", "a misdirected summary");
    assert_eq!(refused(&OTHER_VOLUME, 257, &good), "summary: checksum mismatch", "the summary of another volume");
    assert_eq!(changed(&|b| b[8..12].fill(0xff)), "summary: more records than fit");
    assert_eq!(changed(&|b| b[8] = 4), "summary: a record is missing");
    assert_eq!(changed(&|b| b[64] ^= 1), "descriptor: checksum mismatch");
}

#[test]
fn journal_batch_says_why_it_is_refused() {
    let good = journal_batch().encode(&VOLUME, JOURNAL_AREA);
    let refused = |volume: &[u8; 16], area, bytes: &[u8]| JournalBatch::decode(volume, area, bytes).unwrap_err();
    let place = u64::from(JOURNAL_AREA);
    let changed =
        |change: &dyn Fn(&mut [u8])| refused(&VOLUME, JOURNAL_AREA, &resealed(good.clone(), place, |b| change(b)));
    assert_eq!(refused(&VOLUME, JOURNAL_AREA, &good[..4095]), "journal: wrong magic");
    assert_eq!(refused(&VOLUME, JOURNAL_AREA, &[0; 4096]), "journal: wrong magic");
    assert_eq!(JournalBatch::head_blocks_hint(&[0; 4096]), None);
    let newer = "journal: written by a newer version of Forebay";
    assert_eq!(changed(&|b| b[36] = 2), newer);
    let mut unsealed = good.clone();
    unsealed[36] = 2;
    assert_eq!(refused(&VOLUME, JOURNAL_AREA, &unsealed), newer, "before the checksum is looked at");
    assert_eq!(
        refused(&VOLUME, JOURNAL_AREA, &[good.as_slice(), &[0; 4096]].concat()),
        "journal: the head has another length"
    );
    assert_eq!(changed(&|b| b[8] = 127), "journal: the head has another length");
    assert_eq!(refused(&VOLUME, 0, &good), "journal: checksum mismatch", "the head of the other area");
    assert_eq!(refused(&OTHER_VOLUME, JOURNAL_AREA, &good), "journal: checksum mismatch", "of another volume");
    assert_eq!(changed(&|b| b[8] = 4), "journal: a record is missing");
    assert_eq!(changed(&|b| b[64] ^= 1), "descriptor: checksum mismatch");
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x41;
        assert!(JournalBatch::decode(&VOLUME, JOURNAL_AREA, &bytes).is_err(), "byte {at}");
    }
}

/// CRC-32C finds every burst of up to 32 bits, so a single changed byte is never taken for the original.
#[test]
fn every_changed_byte_is_noticed() {
    let superblock = superblock(TierLayout::flash(8192).unwrap()).encode();
    let checkpoint = checkpoint_of_member(8).encode(Version::Two, &VOLUME);
    let batch = batch().encode(&VOLUME, BATCH_PLACE);
    let summary = summary().encode(&VOLUME, SUMMARY_PLACE, 2);
    let descriptor = records()[0].encode(&VOLUME, 9);
    let mut state = 1;
    for at in 0..summary.len() {
        let flip = (xorshift(&mut state) % 255) as u8 + 1;
        let with = |bytes: &[u8]| {
            let mut changed = bytes.to_vec();
            changed[at] ^= flip;
            changed
        };
        if at < TIER_BLOCK_BYTES {
            assert!(Superblock::decode(&with(&superblock)).is_err(), "superblock byte {at} ^ {flip:#x}");
            assert!(
                Checkpoint::decode(Version::Two, &VOLUME, TierBlock(2), &with(&checkpoint)).is_err(),
                "checkpoint byte {at}"
            );
            assert!(Batch::decode(&VOLUME, BATCH_PLACE, &with(&batch)).is_err(), "batch byte {at} ^ {flip:#x}");
        }
        if at < DESCRIPTOR_BYTES {
            assert!(Descriptor::decode(&VOLUME, 9, &with(&descriptor)).is_err(), "descriptor byte {at} ^ {flip:#x}");
        }
        assert!(Summary::decode(&VOLUME, SUMMARY_PLACE, &with(&summary)).is_err(), "summary byte {at} ^ {flip:#x}");
    }
}

/// Bytes whose checksums are right, as a hostile or buggy writer could make them, and lengths of every kind.
#[test]
fn no_bytes_make_a_decoder_panic() {
    let originals = [
        superblock(TierLayout::flash(8192).unwrap()).encode(),
        superblock(TierLayout::memory(1024).unwrap()).encode(),
        checkpoint_of_member(8).encode(Version::Two, &VOLUME),
        batch().encode(&VOLUME, BATCH_PLACE),
        summary().encode(&VOLUME, SUMMARY_PLACE, 2),
        records()[0].encode(&VOLUME, 9).to_vec(),
        journal_batch().encode(&VOLUME, JOURNAL_AREA),
    ];
    let decode_all = |bytes: &[u8]| {
        let superblock = Superblock::decode(bytes).is_ok();
        Checkpoint::decode(Version::One, &VOLUME, TierBlock(2), bytes).ok();
        let checkpoint = Checkpoint::decode(Version::Two, &VOLUME, TierBlock(2), bytes).is_ok();
        let batch = Batch::decode(&VOLUME, BATCH_PLACE, bytes).is_ok();
        let summary = Summary::decode(&VOLUME, SUMMARY_PLACE, bytes).is_ok();
        let descriptor = matches!(Descriptor::decode(&VOLUME, 9, bytes), Ok(Some(_)));
        JournalBatch::head_blocks_hint(bytes);
        let journal = JournalBatch::decode(&VOLUME, JOURNAL_AREA, bytes).is_ok();
        usize::from(superblock) + usize::from(checkpoint || batch || summary || descriptor || journal)
    };
    let mut accepted = 0;
    let mut state = 7;
    for original in &originals {
        assert_eq!(decode_all(original), 1);
        for length in (0..original.len()).step_by(61) {
            decode_all(&original[..length]);
        }
        for _ in 0..3000 {
            let mut bytes = original.clone();
            let span = if bytes.len() > 256 { 256 } else { 28 };
            for _ in 0..1 + xorshift(&mut state) % 4 {
                let at = (xorshift(&mut state) % span) as usize;
                bytes[at] = xorshift(&mut state) as u8;
            }
            if bytes.len() == DESCRIPTOR_BYTES {
                let sum = structure_checksum(&VOLUME, 9, &bytes[..28]);
                bytes[28..].copy_from_slice(&sum.to_le_bytes());
            } else {
                for place in [0, 2, u64::from(BATCH_PLACE.0), u64::from(SUMMARY_PLACE.0), u64::from(JOURNAL_AREA)] {
                    seal(&VOLUME, place, &mut bytes, 12);
                    accepted += decode_all(&bytes);
                }
            }
            accepted += decode_all(&bytes);
        }
        let mut noise = vec![0u8; original.len()];
        noise.iter_mut().for_each(|byte| *byte = xorshift(&mut state) as u8);
        assert_eq!(decode_all(&noise), 0);
    }
    assert!(
        accepted > 100,
        "the checksums were right often enough for the checks behind them to be reached: {accepted}"
    );
}

#[test]
fn a_batch_header_with_sectors_of_an_earlier_batch_is_refused() {
    // Each descriptor ends in its own CRC, so the outer CRC alone is blind to exactly this exchange.
    let batch = |sequence: u64, first: u64| Batch {
        segment: 2,
        sequence,
        synced_through: 0,
        start: Start(1),
        records: (0..100)
            .map(|i| Descriptor {
                lsn: Lsn(first + i),
                block: BlockIndex(first + i),
                group: Group(1),
                term: Term(1),
                kind: Kind::Data { mask: SectorMask::FULL, checksum: i as u32 },
            })
            .collect(),
    };
    let place = TierBlock(77);
    let old = batch(5, 1000).encode(&VOLUME, place);
    let new = batch(9, 5000).encode(&VOLUME, place);
    for cut in (512..=3072).step_by(512) {
        let mut torn = new.clone();
        torn[cut..].copy_from_slice(&old[cut..]);
        assert!(Batch::decode(&VOLUME, place, &torn).is_err(), "torn at byte {cut}");
        let mut torn = old.clone();
        torn[cut..].copy_from_slice(&new[cut..]);
        assert!(Batch::decode(&VOLUME, place, &torn).is_err(), "torn at byte {cut}, the other way");
    }
}
