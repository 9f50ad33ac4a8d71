//! What the recovery of a member keeps, on tiers made by hand: more than that of a volume alone, which is shown beside it.

use super::stand::*;
use forebay_core::cluster::*;
use forebay_core::format::*;
use forebay_core::status::Phase;
use forebay_core::types::*;

const TERM: Term = Term(7);

/// What a record writes; zeros elsewhere.
fn payload(lsn: u64, mask: SectorMask) -> Vec<u8> {
    let sector = |i: u32| if mask.0 & 1 << i == 0 { 0 } else { lsn as u8 };
    (0..SECTORS_PER_BLOCK).flat_map(|i| vec![sector(i); SECTOR_BYTES as usize]).collect()
}

fn record(lsn: u64, group: u32, block: u64, kind: Kind) -> Descriptor {
    Descriptor { lsn: Lsn(lsn), block: BlockIndex(block), group: Group(group), term: TERM, kind }
}

/// A whole block.
fn data(lsn: u64, group: u32, block: u64) -> Descriptor {
    sectors(lsn, group, block, SectorMask::FULL.0)
}

fn sectors(lsn: u64, group: u32, block: u64, mask: u8) -> Descriptor {
    let mask = SectorMask(mask);
    let checksum = payload_checksum(&ID, BlockIndex(block), mask, TERM, &payload(lsn, mask));
    record(lsn, group, block, Kind::Data { mask, checksum })
}

fn payload_of(record: &Descriptor) -> Option<Vec<u8>> {
    match record.kind {
        Kind::Data { mask, .. } => Some(payload(record.lsn.0, mask)),
        Kind::ZeroSectors { .. } | Kind::ZeroBlocks { .. } => None,
    }
}

fn zeros(lsn: u64, group: u32, block: u64, blocks: u32) -> Descriptor {
    record(lsn, group, block, Kind::ZeroBlocks { blocks, hole: false })
}

fn window(watermark: u64, through: u64) -> Mark {
    Mark { number: MarkNumber(3), watermark: Lsn(watermark), through: Lsn(through), ..Mark::default() }
}

fn pin(above: u64, through: u64) -> Pin {
    Pin { term: Term(6), above: Lsn(above), through: Lsn(through), part: Part::default() }
}

fn standing(committed: u64, mark: Mark) -> Standing {
    Standing { epoch: Epoch(1), agreed: true, committed: Lsn(committed), mark }
}

/// A tier with these records, all of them durable, and a checkpoint.
fn tier_with(kind: TierKind, records: &[Descriptor], destaged: u64, standing: Option<Standing>) -> Vec<u8> {
    let first = Life::first_with(kind, |config| config.cluster = standing.as_ref().and_then(|_| member(1)));
    let mut tier = first.kill();
    let before = newest(&tier);
    let layout = layout(kind);
    match kind {
        TierKind::Memory => {
            let (mut slot, mut range) = (0, layout.payload_blocks);
            for record in records {
                let next = if record.has_payload() { &mut slot } else { &mut range };
                let (index, entry) = (*next, at(layout.table_first) + *next as usize * DESCRIPTOR_BYTES);
                *next += 1;
                tier[entry..entry + DESCRIPTOR_BYTES].copy_from_slice(&record.encode(&ID, u64::from(index)));
                if let Some(payload) = payload_of(record) {
                    tier[at(layout.payload_first + index)..][..BLOCK].copy_from_slice(&payload);
                }
            }
        }
        TierKind::Flash => {
            let place = layout.payload_first;
            let batch = Batch {
                segment: FIRST_LIFE,
                sequence: 1,
                synced_through: 0,
                start: Start(1),
                records: records.to_vec(),
            };
            tier[at(place)..at(place + 1)].copy_from_slice(&batch.encode(&ID, TierBlock(place)));
            for (i, payload) in records.iter().filter_map(payload_of).enumerate() {
                tier[at(place + 1 + i as u32)..][..BLOCK].copy_from_slice(&payload);
            }
        }
    }
    let synced = u64::from(kind == TierKind::Flash);
    let checkpoint = Checkpoint { term: TERM, destaged: Lsn(destaged), batches_synced: synced, standing, ..before };
    with_checkpoint(&mut tier, checkpoint);
    tier
}

/// The member's own start.
fn follow(kind: TierKind, tier: Vec<u8>) -> Life {
    let life = Life::after_with(kind, tier, |config| config.cluster = member(1));
    life.volume.validate();
    life
}

/// Blocks that live after a start, each zeroed range as one.
fn live_blocks(life: &Life) -> u64 {
    life.volume.status(Instant(life.now)).dirty_bytes / BLOCK_BYTES
}

/// How many of them a member with these records has after a start.
fn kept(kind: TierKind, records: &[Descriptor], destaged: u64, standing: Standing) -> u64 {
    let life = follow(kind, tier_with(kind, records, destaged, Some(standing)));
    assert_eq!(life.phase(), Phase::Following);
    live_blocks(&life)
}

/// Blocks that are known to read as zeros.
fn zeroed(life: &Life) -> Vec<u64> {
    (0..VOLUME_BLOCKS as u64).filter(|block| life.volume.extents(block * BLOCK_BYTES, BLOCK_BYTES, 1)[0].zero).collect()
}

/// S5: whoever fetches from this log above the committed position finds all of it.
#[test]
fn what_is_not_known_to_be_committed_stays_whole() {
    let records = [data(1, 1, 5), data(2, 1, 5), data(3, 1, 5), data(4, 1, 6), zeros(5, 1, 6, 2)];
    for kind in KINDS {
        let alone = Life::after(kind, tier_with(kind, &records, 0, None));
        assert_eq!(live_blocks(&alone), 2, "the newest of its group counts, and the range");
        for (committed, expected) in [(0, 5), (1, 4), (2, 3), (3, 3), (4, 2), (9, 2)] {
            assert_eq!(kept(kind, &records, 0, standing(committed, Mark::default())), expected, "{kind:?} {committed}");
        }
    }
}

/// D4: what may be under way to the backing has to be known to whoever takes over.
#[test]
fn the_window_stays_though_newer_records_cover_it() {
    let records = [data(1, 1, 5), data(2, 1, 5), data(3, 1, 6), data(4, 1, 5), data(5, 1, 6)];
    for kind in KINDS {
        for (through, expected) in [(0, 2), (1, 3), (2, 4), (3, 5), (9, 5)] {
            assert_eq!(kept(kind, &records, 0, standing(5, window(0, through))), expected, "{kind:?} {through}");
        }
    }
}

/// T5: of a pinned window everything stays, and of its blocks the newest content that the backing has; nothing else that
/// the backing has.
#[test]
fn pinned_blocks_outlive_their_way_into_the_backing() {
    let records = [
        data(1, 1, 5),  // before the window: a late write is not older
        data(2, 2, 5),  // the window
        data(3, 2, 6),  // the window
        data(4, 3, 5),  // superseded by 6, and not of the window
        data(5, 3, 7),  // not pinned
        data(6, 4, 5),  // the newest of block 5 in the backing
        data(7, 5, 5),  // not in the backing
        data(8, 5, 20), // not in the backing
    ];
    for kind in KINDS {
        let mark = |pins| Mark { pins, ..window(6, 6) };
        assert_eq!(kept(kind, &records, 6, standing(8, mark(vec![]))), 2, "{kind:?}: 7 and 8");
        assert_eq!(kept(kind, &records, 6, standing(8, mark(vec![pin(1, 3)]))), 5, "{kind:?}: 2, 3, 6, 7 and 8");
        // Two windows: block 5 counts from the older one on, block 7 from the younger; 3 is of the group that the older one ends in.
        let two = mark(vec![pin(4, 5), pin(1, 2)]);
        assert_eq!(kept(kind, &records, 6, standing(8, two)), 6, "{kind:?}: 2, 3, 5, 6, 7 and 8");
        // The next start finds the same.
        let tier = tier_with(kind, &records, 6, Some(standing(8, mark(vec![pin(1, 3)]))));
        let again = follow(kind, follow(kind, tier).kill());
        assert_eq!(live_blocks(&again), 5, "{kind:?}");
        let status = again.volume.status(Instant(again.now));
        assert_eq!((status.held, newest(&again.kill()).destaged), (Lsn(8), Lsn(6)), "{kind:?}");
    }
}

/// T5: a late write of a window is not older than what was durable before it, so that needs no keeping; and what is to be written
/// again is the newest content *at or below* the watermark, whatever comes above.
#[test]
fn of_a_pinned_block_counts_what_is_since_its_window() {
    for kind in KINDS {
        // Of block 5 the record 3 lies before the younger window and after the older one.
        for (older_window, expected) in [(9, 2), (5, 3)] {
            let records = [sectors(2, 2, older_window, 0x0f), sectors(3, 3, 5, 0xf0), sectors(5, 5, 5, 0x0f)];
            let mark = Mark { pins: vec![pin(1, 2), pin(4, 5)], ..window(5, 5) };
            assert_eq!(kept(kind, &records, 5, standing(5, mark)), expected, "{kind:?}, block {older_window}");
        }
        let records = [data(2, 2, 5), data(3, 3, 5), data(4, 3, 5)];
        let mark = Mark { pins: vec![pin(1, 2)], ..window(3, 3) };
        assert_eq!(kept(kind, &records, 3, standing(4, mark)), 3, "{kind:?}: 3 although 4 is of its group");
    }
}

/// D6, T5: a zeroed range goes by parts, and beyond the part that is pinned the backing may have newer content already.
#[test]
fn of_a_zeroed_range_only_what_is_pinned_is_remembered() {
    let records = [zeros(2, 2, 8, 16), data(3, 3, 30)];
    for kind in KINDS {
        let part = Part { block: BlockIndex(10), blocks: 3 };
        let by_part = Pin { part, ..pin(1, 2) };
        for (pins, expected) in [
            (vec![], vec![]),
            (vec![by_part], vec![10, 11, 12]),
            (vec![pin(1, 2)], (8..24).collect()),
            (vec![pin(2, 3)], vec![]),
        ] {
            let mark = Mark { pins, ..window(3, 3) };
            let life = follow(kind, tier_with(kind, &records, 3, Some(standing(3, mark))));
            assert_eq!(zeroed(&life), expected, "{kind:?}");
        }
        // A later zeroing over a pinned block and its neighbours: of those the backing may have newer data.
        let records = [data(2, 2, 9), zeros(3, 3, 8, 16)];
        let mark = Mark { pins: vec![pin(1, 2)], ..window(3, 3) };
        let life = follow(kind, tier_with(kind, &records, 3, Some(standing(3, mark))));
        assert_eq!((zeroed(&life), live_blocks(&life)), (vec![9], 2), "{kind:?}");
    }
}

/// A member's position is what it has, whatever its last checkpoint had hoped for: by it the longest log is found.
#[test]
fn member_on_flash_has_what_is_there() {
    let records = [data(1, 1, 5), data(2, 1, 6)];
    let mut tier = tier_with(TierKind::Flash, &records, 0, Some(standing(1, Mark::default())));
    let before = newest(&tier);
    with_checkpoint(&mut tier, Checkpoint { accepted: Lsn(50), ..before });
    // A batch whose payload did not land.
    let place = TierBlock(layout(TierKind::Flash).payload_first + 3);
    let torn =
        Batch { segment: FIRST_LIFE, sequence: 2, synced_through: 1, start: Start(1), records: vec![data(3, 1, 7)] };
    tier[at(place.0)..at(place.0 + 1)].copy_from_slice(&torn.encode(&ID, place));
    let life = follow(TierKind::Flash, tier);
    let status = life.volume.status(Instant(life.now));
    assert_eq!((status.accepted, status.held, status.synced), (Lsn(2), Lsn(2), Lsn(2)));
}

/// The slot of a record that has ended receives something else, and its entry must not speak for that.
#[test]
fn entry_of_a_record_that_ended_is_erased() {
    let records = [data(1, 1, 5), data(2, 1, 5), data(3, 1, 5)];
    let tier = tier_with(TierKind::Memory, &records, 0, Some(standing(1, Mark::default())));
    let life = follow(TierKind::Memory, tier);
    let table = at(layout(TierKind::Memory).table_first);
    let is_empty = |i: usize| life.tier[table + i * DESCRIPTOR_BYTES..][..DESCRIPTOR_BYTES].iter().all(|&b| b == 0);
    assert_eq!([0, 1, 2].map(is_empty), [true, false, false]);
}

/// More zeroed ranges than there are places: the log had never so many at a time, so the oldest of those that are covered had
/// ended. Either more was committed than is known, or they ended before the window was told that they lie in (found by the
/// simulation, seed 771130490 of clusters: the tier was refused).
#[test]
fn ranges_that_had_ended_make_room() {
    let layout = layout(TierKind::Flash);
    let count = u64::from(layout.ranges_max) + 30;
    let zero = Kind::ZeroSectors { mask: SectorMask(1) };
    let records: Vec<Descriptor> = (1..=count).map(|lsn| record(lsn, 1, lsn % 3, zero)).collect();
    for standing in [standing(0, Mark::default()), standing(count, window(0, count)), standing(0, window(0, count))] {
        let mut tier = Life::first_with(TierKind::Flash, |config| config.cluster = member(1)).kill();
        let before = newest(&tier);
        for (i, records) in records.chunks(BATCH_DESCRIPTORS_MAX).enumerate() {
            let place = TierBlock(layout.payload_first + i as u32);
            let sequence = i as u64 + 1;
            let batch =
                Batch { segment: FIRST_LIFE, sequence, synced_through: 0, start: Start(1), records: records.to_vec() };
            tier[at(place.0)..at(place.0 + 1)].copy_from_slice(&batch.encode(&ID, place));
        }
        let batches_synced = count.div_ceil(BATCH_DESCRIPTORS_MAX as u64);
        let standing = Some(standing);
        with_checkpoint(&mut tier, Checkpoint { term: TERM, batches_synced, standing, ..before });
        let life = follow(TierKind::Flash, tier);
        assert_eq!(life.phase(), Phase::Following);
        assert_eq!(life.volume.status(Instant(life.now)).held, Lsn(count));
        assert_eq!(zeroed(&life).len(), 0, "of each block one sector is known to be zero, no whole block");
    }
}

/// R7: marks that no owner could have told.
#[test]
fn impossible_marks_are_refused() {
    let part = |block, blocks| Part { block: BlockIndex(block), blocks };
    for kind in KINDS {
        for mark in [
            Mark { part: part(u64::MAX, 1), ..window(0, 0) },
            Mark { pins: vec![Pin { part: part((1 << 34) - 1, 2), ..pin(1, 2) }], ..window(0, 0) },
            Mark { pins: vec![pin(3, 2)], ..window(0, 0) },
        ] {
            let tier = tier_with(kind, &[data(1, 1, 5)], 0, Some(standing(0, mark)));
            let life = Life::after_with(kind, tier.clone(), |config| config.cluster = member(1));
            assert!(matches!(life.phase(), Phase::Refused(_)));
            assert_eq!(life.kill(), tier, "untouched");
        }
    }
}
