//! Batches written as core writes them, cut and damaged in every place, and replayed: whole or not at all.

use forebay_core::api::{Check, Effect, Event, Outcome, Part};
use forebay_core::format::{
    Descriptor, JOURNAL_HEAD_BYTES, JournalBatch, Kind, Superblock, TIER_BLOCK_BYTES, TierLayout, Version, crc32c,
    payload_checksum,
};
use forebay_core::types::*;
use forebay_io::clock::until;
use forebay_io::journal::{self, AreaState, JournalError, ReplayReport, ReplayRequest, TierWord, Verdict};
use forebay_io::{
    Backing, BackingOptions, Completion, Executed, FileError, FileProblem, FlashTier, Journal, LockAttempt, ModeChoice,
    Reactor, Tier, VolumeIo, now,
};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::time::Duration as StdDuration;

const VOLUME: [u8; 16] = *b"a volume of ours";
const SECOND: StdDuration = StdDuration::from_secs(1);
const AREA_BLOCKS: u32 = 40;
/// Ends within a block, as a volume may.
const VOLUME_BYTES: u64 = 64 * BLOCK_BYTES - 1024;
/// The image is larger than the volume: what lies behind is not the volume's.
const IMAGE_BYTES: u64 = 66 * BLOCK_BYTES;

macro_rules! in_both_modes {
    ($($name:ident)*) => {
        mod uring { $(#[test] fn $name() { super::$name(super::ModeChoice::Uring) })* }
        mod threads { $(#[test] fn $name() { super::$name(super::ModeChoice::Threads) })* }
    };
}

in_both_modes! {
    what_is_written_is_the_batch_and_replays_into_the_image
    a_wrong_frame_stops_a_journal_write_before_the_journal
    the_journal_shares_the_medium_of_its_backing
    planned_faults_reach_the_journal
}

struct Rig {
    folder: tempfile::TempDir,
    reactor: Reactor,
    io: VolumeIo,
    next: u64,
}

fn image_of(folder: &Path) -> PathBuf {
    folder.join("disk.img")
}

fn journal_of(folder: &Path) -> PathBuf {
    journal::path_of(&image_of(folder)).unwrap()
}

/// Bytes that the image has before anything is replayed: no two sectors alike, none zero.
fn old_image() -> Vec<u8> {
    (0..IMAGE_BYTES as usize).map(|i| (i / 512 % 251) as u8 | 1).collect()
}

fn open_backing(folder: &Path, wrappers: &str) -> Backing {
    let spec = format!("{wrappers}{}", image_of(folder).display());
    let mut backing = Backing::open(&spec, BackingOptions::default()).unwrap();
    assert_eq!(backing.try_lock().unwrap(), LockAttempt::Locked);
    backing
}

impl Rig {
    fn new(mode: ModeChoice, wrappers: &str) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(image_of(folder.path()), old_image()).unwrap();
        let backing = open_backing(folder.path(), wrappers);
        let areas = 2 * u64::from(AREA_BLOCKS) * BLOCK_BYTES;
        let journal = Journal::create(&journal_of(folder.path()), &VOLUME, areas, SECOND).unwrap();
        assert_eq!(journal.blocks(), 2 * AREA_BLOCKS);
        let tier = FlashTier::create(&folder.path().join("tier"), 512 * BLOCK_BYTES, false, SECOND, |_| {}).unwrap();
        let layout = TierLayout::flash(512).unwrap();
        let superblock = Superblock {
            version: Version::Two,
            tier: 1,
            volume: VOLUME,
            name: [0; 64],
            size_bytes: VOLUME_BYTES,
            created_unix_s: 1,
            layout,
        };
        let tier = Tier::Flash(tier);
        let arena = VolumeIo::arena_of(&tier, &superblock, 64).unwrap();
        let mut io = VolumeIo::new(3, &superblock, arena, tier, backing);
        io.set_journal(journal);
        Rig { folder, reactor: Reactor::new(mode).unwrap_or_else(|e| panic!("{e}")), io, next: 1 }
    }

    fn begin(&mut self, make: impl FnOnce(OpId) -> Effect) -> (OpId, Option<Event>) {
        self.next += 1;
        let op = OpId(self.next);
        match self.io.execute(&mut self.reactor, make(op)) {
            Executed::Nothing => (op, None),
            Executed::Done(event) => (op, Some(event)),
            Executed::Yours(effect) => panic!("{effect:?}"),
        }
    }

    fn turn(&mut self) -> Vec<Event> {
        let timeout = self.io.deadline().map_or(SECOND, |deadline| until(deadline, now()).min(SECOND));
        let (mut found, mut events) = (Vec::new(), Vec::new());
        self.reactor.wait(Some(timeout), &mut found).unwrap();
        for completion in found {
            let Completion::Done { token, result, buffer } = completion else { panic!("{completion:?}") };
            events.extend(self.io.complete(token, result, buffer));
        }
        self.io.poll_timers(now(), &mut events);
        events
    }

    fn run(&mut self, make: impl FnOnce(OpId) -> Effect) -> Outcome {
        let (op, told) = self.begin(make);
        let mut told: Vec<Event> = told.into_iter().collect();
        let deadline = now() + Duration::from_secs(20);
        while told.is_empty() {
            assert!(now() < deadline, "no end");
            told = self.turn();
        }
        match (told.pop(), told.is_empty()) {
            (Some(Event::Done { op: ended, outcome }), true) if ended == op => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// Writes a batch as core does: head and first payloads by one effect, the others by more, all at the same time.
    fn write_batch(&mut self, batch: &TestBatch, area: u32, write_blocks: usize) {
        let mut head = Some(batch.as_core_has_it().encode(&VOLUME, area));
        let mut payloads: Vec<(FrameId, Check)> = Vec::new();
        for (record, bytes) in batch.records.iter().filter(|(record, _)| record.has_payload()) {
            let Kind::Data { mask, checksum } = record.kind else { panic!("a payload without data") };
            let frame = FrameId(payloads.len() as u32);
            self.io.arena_mut().bytes_mut(frame).copy_from_slice(bytes);
            payloads.push((frame, Check { block: record.block, mask, term: record.term, checksum }));
        }
        let mut at = area;
        let mut chunks = payloads.chunks(write_blocks);
        let mut open = 0;
        loop {
            let chunk = chunks.next();
            if chunk.is_none() && head.is_none() {
                break;
            }
            let head = head.take().unwrap_or_default();
            let (frames, checks): (Vec<_>, Vec<_>) = chunk.unwrap_or_default().iter().copied().unzip();
            let blocks = (head.len() / TIER_BLOCK_BYTES + frames.len()) as u32;
            let (_, told) = self.begin(|op| Effect::JournalWrite { op, at, head, frames, checks });
            assert_eq!(told, None);
            at += blocks;
            open += 1;
        }
        while open > 0 {
            for event in self.turn() {
                assert!(matches!(event, Event::Done { outcome: Outcome::Ok, .. }), "{event:?}");
                open -= 1;
            }
        }
        assert_eq!(self.run(|op| Effect::JournalSync { op }), Outcome::Ok);
    }

    /// The process dies; files and folder stay.
    fn into_folder(self) -> tempfile::TempDir {
        let Rig { folder, reactor, io, .. } = self;
        drop((io, reactor));
        folder
    }
}

/// A batch with its payload; what it does to a flat array.
#[derive(Clone, Debug)]
struct TestBatch {
    sequence: u64,
    records: Vec<(Descriptor, Vec<u8>)>,
}

impl TestBatch {
    fn new(sequence: u64) -> TestBatch {
        TestBatch { sequence, records: Vec::new() }
    }

    fn push(&mut self, block: u64, kind: Kind, bytes: Vec<u8>) {
        let lsn = Lsn(self.sequence * 1000 + self.records.len() as u64);
        let record = Descriptor { lsn, block: BlockIndex(block), group: Group(1), term: Term(2), kind };
        self.records.push((record, bytes));
    }

    /// Sectors of one block, each filled with its own byte.
    fn data(mut self, block: u64, mask: u8, first_byte: u8) -> TestBatch {
        let mut bytes = vec![0; TIER_BLOCK_BYTES];
        for sector in (0..8).filter(|sector| mask & (1 << sector) != 0) {
            bytes[sector * 512..][..512].fill(first_byte.wrapping_add(sector as u8));
        }
        let mask = SectorMask(mask);
        let checksum = payload_checksum(&VOLUME, BlockIndex(block), mask, Term(2), &bytes);
        self.push(block, Kind::Data { mask, checksum }, bytes);
        self
    }

    fn zero_sectors(mut self, block: u64, mask: u8) -> TestBatch {
        self.push(block, Kind::ZeroSectors { mask: SectorMask(mask) }, Vec::new());
        self
    }

    fn zero_blocks(mut self, block: u64, blocks: u32, hole: bool) -> TestBatch {
        self.push(block, Kind::ZeroBlocks { blocks, hole }, Vec::new());
        self
    }

    fn through(&self) -> Lsn {
        Lsn(self.sequence * 1000 + 999)
    }

    fn as_core_has_it(&self) -> JournalBatch {
        let records = self.records.iter().map(|(record, _)| *record).collect();
        JournalBatch { sequence: self.sequence, through: self.through(), term: Term(2), records }
    }

    fn blocks(&self) -> u32 {
        let payloads = self.records.iter().filter(|(record, _)| record.has_payload()).count();
        JournalBatch::head_blocks(self.records.len()) + payloads as u32
    }

    /// The bytes of its area.
    fn encoded(&self, area: u32) -> Vec<u8> {
        let mut bytes = self.as_core_has_it().encode(&VOLUME, area);
        self.records.iter().for_each(|(_, payload)| bytes.extend(payload));
        bytes
    }

    fn apply_to(&self, image: &mut [u8]) {
        for (record, payload) in &self.records {
            let start = record.block.byte() as usize;
            let mut sector = |at: usize, bytes: Option<&[u8]>| {
                if at < VOLUME_BYTES as usize {
                    match bytes {
                        Some(bytes) => image[at..at + 512].copy_from_slice(bytes),
                        None => image[at..at + 512].fill(0),
                    }
                }
            };
            match record.kind {
                Kind::Data { mask, .. } | Kind::ZeroSectors { mask } => {
                    for i in (0..8).filter(|i| mask.0 & (1 << i) != 0) {
                        sector(start + i * 512, payload.get(i * 512..i * 512 + 512));
                    }
                }
                Kind::ZeroBlocks { blocks, .. } => (0..blocks as usize * 8).for_each(|i| sector(start + i * 512, None)),
            }
        }
    }
}

/// Every kind of record, overlapping, with a head of two blocks and 24 payloads, each other than in another batch.
fn rich_batch(sequence: u64) -> TestBatch {
    let byte = |first: u8| first + sequence as u8;
    let mut batch = TestBatch::new(sequence).data(20, 0xff, byte(0x20)).zero_blocks(8, 24, true);
    for i in 0..20 {
        batch = batch.data(9 + 2 * i, if i % 3 == 0 { 0xff } else { 0b0110_0001 }, byte(0x30 + i as u8));
    }
    batch = batch.zero_sectors(9, 0b0000_1111).zero_blocks(40, 3, false).data(41, 0b1, byte(0x90));
    // The last block is six sectors long; a full mask means all of those.
    batch = batch.data(63, 0xff, byte(0x50)).data(0, 0xff, byte(0x60)).zero_blocks(62, 1, false);
    for i in 0..110 {
        batch = batch.zero_sectors(50 + i % 10, 1 << (i % 8));
    }
    assert_eq!((JournalBatch::head_blocks(batch.records.len()), batch.blocks()), (2, 26));
    batch
}

/// A folder with an image and a journal whose areas hold these bytes.
fn folder_with(areas: [&[u8]; 2]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(image_of(folder.path()), old_image()).unwrap();
    let path = journal_of(folder.path());
    let length = 2 * u64::from(AREA_BLOCKS) * BLOCK_BYTES;
    drop(Journal::create(&path, &VOLUME, length, SECOND).unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    for (i, area) in areas.into_iter().enumerate() {
        let at = (1 + i * AREA_BLOCKS as usize) * TIER_BLOCK_BYTES;
        bytes[at..at + area.len()].copy_from_slice(area);
    }
    std::fs::write(&path, bytes).unwrap();
    folder
}

fn request() -> ReplayRequest {
    ReplayRequest { volume: VOLUME, volume_bytes: VOLUME_BYTES, tier: None, lock_timeout: SECOND }
}

fn replay_with(folder: &Path, request: &ReplayRequest, wrappers: &str) -> Result<ReplayReport, JournalError> {
    journal::replay(&journal_of(folder), request, &mut open_backing(folder, wrappers))
}

fn image(folder: &Path) -> Vec<u8> {
    std::fs::read(image_of(folder)).unwrap()
}

fn after(batches: &[&TestBatch]) -> Vec<u8> {
    let mut bytes = old_image();
    batches.iter().for_each(|batch| batch.apply_to(&mut bytes));
    bytes
}

/// Nothing is left to be replayed, and the journal may be used or removed.
fn assert_erased(folder: &Path) {
    drop(Journal::open(&journal_of(folder), &VOLUME, SECOND).unwrap());
    let report = replay_with(folder, &request(), "").unwrap();
    assert_eq!((report.verdict, report.areas), (Verdict::NothingToApply, [AreaState::Empty, AreaState::Empty]));
}

fn what_is_written_is_the_batch_and_replays_into_the_image(mode: ModeChoice) {
    for write_blocks in [1, 7, 256] {
        let mut rig = Rig::new(mode, "");
        let batch = rich_batch(5);
        rig.write_batch(&batch, AREA_BLOCKS, write_blocks);
        let path = rig.io.journal().unwrap().path().to_owned();
        let bytes = std::fs::read(&path).unwrap();
        let encoded = batch.encoded(AREA_BLOCKS);
        let area = (1 + AREA_BLOCKS as usize) * TIER_BLOCK_BYTES;
        assert!(bytes[area..area + encoded.len()] == encoded);
        assert!(bytes[area + encoded.len()..].iter().chain(&bytes[4096..area]).all(|&byte| byte == 0));
        let stats = &rig.io.backing().stats;
        assert_eq!((stats.writes.bytes, stats.syncs.operations), (encoded.len() as u64, 1));

        let folder = rig.into_folder();
        assert!(image(folder.path()) == old_image(), "a journal write changes the journal only");
        let seen = journal::inspect(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "looking changes nothing");
        assert_eq!((seen.volume, seen.blocks), (VOLUME, 2 * AREA_BLOCKS));
        let done = replay_with(folder.path(), &request(), "").unwrap();
        assert_eq!(done, seen);
        let Verdict::Apply(found) = done.verdict else { panic!("{done:?}") };
        assert_eq!((found.sequence, found.records, found.payload_blocks), (5, batch.records.len(), 24));
        assert_eq!(done.in_backing_through(), Some(batch.through()));
        assert!(image(folder.path()) == after(&[&batch]));
        assert_erased(folder.path());
        assert!(image(folder.path()) == after(&[&batch]));
        journal::remove(&path, &VOLUME).unwrap();
    }
}

fn a_wrong_frame_stops_a_journal_write_before_the_journal(mode: ModeChoice) {
    let mut rig = Rig::new(mode, "");
    let path = rig.io.journal().unwrap().path().to_owned();
    let before = std::fs::read(&path).unwrap();
    let frames = vec![FrameId(1), FrameId(2)];
    let checks: Vec<Check> = frames
        .iter()
        .map(|&frame| {
            rig.io.arena_mut().bytes_mut(frame).fill(frame.0 as u8);
            let (block, mask, term) = (BlockIndex(u64::from(frame.0)), SectorMask::FULL, Term(1));
            let checksum = payload_checksum(&VOLUME, block, mask, term, rig.io.arena().bytes(frame));
            Check { block, mask, term, checksum }
        })
        .collect();
    rig.io.arena_mut().bytes_mut(FrameId(2))[77] ^= 4;
    let (bad_frames, bad_checks) = (frames.clone(), checks.clone());
    let write = |op| Effect::JournalWrite { op, at: 0, head: vec![1; 4096], frames: bad_frames, checks: bad_checks };
    assert_eq!(rig.run(write), Outcome::Failed(IoError::Checksum));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(rig.io.backing().stats.writes.errors, 1);
    rig.io.arena_mut().bytes_mut(FrameId(2))[77] ^= 4;
    // No head, and at the very end of the journal.
    let write = |op| Effect::JournalWrite { op, at: 2 * AREA_BLOCKS - 2, head: Vec::new(), frames, checks };
    assert_eq!(rig.run(write), Outcome::Ok);
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes[bytes.len() - 8192..bytes.len() - 4096].iter().all(|&byte| byte == 1));
    assert!(bytes[bytes.len() - 4096..].iter().all(|&byte| byte == 2));
}

fn the_journal_shares_the_medium_of_its_backing(mode: ModeChoice) {
    let mut rig = Rig::new(mode, "slow:latency=30ms,depth=1,sync=20ms:");
    let start = now();
    let part = Part { frame: FrameId(3), from: 0, length: 4096, check: None };
    let effects: [Box<dyn Fn(OpId) -> Effect>; 3] = [
        Box::new(move |op| Effect::BackingWrite { op, offset: 0, parts: [part].into_iter().collect() }),
        Box::new(|op| Effect::JournalWrite { op, at: 0, head: vec![7; 4096], frames: Vec::new(), checks: Vec::new() }),
        Box::new(|op| Effect::JournalSync { op }),
    ];
    for effect in effects {
        assert_eq!(rig.begin(effect).1, None);
    }
    let mut ends = Vec::new();
    while ends.len() < 3 {
        assert!(now() < start + Duration::from_secs(20));
        for event in rig.turn() {
            assert!(matches!(event, Event::Done { outcome: Outcome::Ok, .. }), "{event:?}");
            ends.push((now() - start).0 / 1_000_000);
        }
    }
    // One spindle: the journal waits for the backing, the sync for both. Never early, late by other work only.
    for (at, least) in ends.iter().zip([30, 60, 80]) {
        assert!((least..least + 400).contains(at), "{ends:?}");
    }
    assert_eq!(rig.io.backing().stats.writes.operations, 2);
}

fn planned_faults_reach_the_journal(mode: ModeChoice) {
    let write = |op| Effect::JournalWrite { op, at: 0, head: vec![9; 4096], frames: Vec::new(), checks: Vec::new() };
    let sync = |op| Effect::JournalSync { op };
    let content = |rig: &Rig| std::fs::read(rig.io.journal().unwrap().path()).unwrap()[4096];
    let mut rig = Rig::new(mode, "faulty:write_error=1,sync_error=1:");
    assert_eq!(rig.run(write), Outcome::Failed(IoError::Failed));
    assert_eq!(rig.run(sync), Outcome::Failed(IoError::Failed));
    assert_eq!(content(&rig), 0);
    let mut rig = Rig::new(mode, "faulty:nospace_after=4K:");
    assert_eq!(rig.run(write), Outcome::Ok);
    assert_eq!(rig.run(write), Outcome::Failed(IoError::NoSpace));
    assert_eq!(content(&rig), 9);
    let mut rig = Rig::new(mode, "faulty:drop_write=1:");
    assert_eq!(rig.run(write), Outcome::Ok);
    assert_eq!(content(&rig), 0);
}

#[test]
#[should_panic(expected = "only under its lock")]
fn a_journal_write_without_the_backings_lock_is_a_bug() {
    let folder = folder_with([&[], &[]]);
    let backing = Backing::open(image_of(folder.path()).to_str().unwrap(), BackingOptions::default()).unwrap();
    let journal = Journal::open(&journal_of(folder.path()), &VOLUME, SECOND).unwrap();
    let tier = FlashTier::create(&folder.path().join("tier"), 512 * BLOCK_BYTES, false, SECOND, |_| {}).unwrap();
    let layout = TierLayout::flash(512).unwrap();
    let superblock = Superblock {
        version: Version::Two,
        tier: 1,
        volume: VOLUME,
        name: [0; 64],
        size_bytes: VOLUME_BYTES,
        created_unix_s: 1,
        layout,
    };
    let tier = Tier::Flash(tier);
    let arena = VolumeIo::arena_of(&tier, &superblock, 8).unwrap();
    let mut io = VolumeIo::new(0, &superblock, arena, tier, backing);
    io.set_journal(journal);
    let mut reactor = Reactor::new(ModeChoice::Threads).unwrap();
    let (head, frames, checks) = (vec![0; 4096], Vec::new(), Vec::new());
    io.execute(&mut reactor, Effect::JournalWrite { op: OpId(1), at: 0, head, frames, checks });
}

/// Each block of a batch by itself, every prefix, and any set of them: all that a power cut may leave of it in an area
/// that was unused, or held an older batch.
#[test]
fn a_batch_with_any_block_missing_is_not_there_at_all() {
    let batch = rich_batch(7);
    let encoded = batch.encoded(0);
    let blocks = encoded.len() / TIER_BLOCK_BYTES;
    let older = rich_batch(5).encoded(0);
    let unused = vec![0; older.len()];
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut sets: Vec<u64> = (0..blocks).flat_map(|block| [1 << block, (1 << blocks) - (1 << block)]).collect();
    for _ in 0..20 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        sets.push(random % ((1 << blocks) - 2) + 1);
    }
    sets.push(0);
    for missing in sets {
        for before in [&unused, &older] {
            let mut bytes = encoded.clone();
            for block in (0..blocks).filter(|block| missing & (1 << block) != 0) {
                let span = block * TIER_BLOCK_BYTES..(block + 1) * TIER_BLOCK_BYTES;
                bytes[span.clone()].copy_from_slice(&before[span]);
            }
            let folder = folder_with([&bytes, &[]]);
            let report = replay_with(folder.path(), &request(), "").unwrap();
            let expected = if missing == 0 {
                after(&[&batch])
            } else if bytes == older {
                after(&[&rich_batch(5)])
            } else {
                old_image()
            };
            assert!(image(folder.path()) == expected, "without the blocks {missing:b}: {report:?}");
            assert_erased(folder.path());
        }
    }
}

/// Batches without payload, so that nothing but the head can tell: any sectors of it may still be the older batch's.
#[test]
fn a_head_that_is_in_part_of_an_older_batch_is_incomplete() {
    let zeros = |sequence: u64| {
        let mut batch = TestBatch::new(sequence);
        for i in 0..300u64 {
            batch = batch.zero_sectors((i * sequence) % 60, 1 << (i % 7));
        }
        batch
    };
    let (old, new) = (zeros(5), zeros(7));
    let (old_head, new_head) = (old.encoded(0), new.encoded(0));
    let sectors = new_head.len() / 512;
    let cuts = (0..=sectors).flat_map(|cut| [(0, cut), (cut, sectors), (cut, cut + 1), (0, 0)]);
    for (first, end) in cuts.filter(|(_, end)| *end <= sectors) {
        let mut bytes = new_head.clone();
        bytes[first * 512..end * 512].copy_from_slice(&old_head[first * 512..end * 512]);
        let folder = folder_with([&bytes, &[]]);
        let report = replay_with(folder.path(), &request(), "").unwrap();
        if bytes == new_head {
            assert!(image(folder.path()) == after(&[&new]));
        } else if bytes == old_head {
            assert!(image(folder.path()) == after(&[&old]));
        } else {
            assert!(matches!(report.areas[0], AreaState::Incomplete { .. }), "sectors {first} to {end}: {report:?}");
            assert!(image(folder.path()) == old_image(), "sectors {first} to {end}");
        }
    }
}

#[test]
fn a_batch_with_any_bit_flipped_is_not_there_at_all() {
    let batch = rich_batch(7);
    let encoded = batch.encoded(0);
    // Bits of every kind of byte: each field of the head, some of each descriptor block, each payload's ends.
    let head = JournalBatch::head_blocks(batch.records.len()) as usize * TIER_BLOCK_BYTES;
    let mut places: Vec<usize> = (8..JOURNAL_HEAD_BYTES).chain((64..head).step_by(397)).collect();
    places.extend((head..encoded.len()).step_by(4096).flat_map(|at| [at, at + 4095]));
    for at in places {
        let mut bytes = encoded.clone();
        bytes[at] ^= 1 << (at % 8);
        let folder = folder_with([&bytes, &[]]);
        match replay_with(folder.path(), &request(), "") {
            Ok(report) => {
                assert!(matches!(report.areas[0], AreaState::Incomplete { .. }), "byte {at}: {report:?}");
                assert_eq!(report.verdict, Verdict::NothingToApply);
                assert_erased(folder.path());
            }
            Err(JournalError::Newer { .. }) => assert!((36..38).contains(&at), "byte {at}"),
            Err(error) => panic!("byte {at}: {error}"),
        }
        assert!(image(folder.path()) == old_image(), "byte {at}");
    }
}

#[test]
fn a_journal_cut_off_anywhere_is_refused_and_nothing_is_touched() {
    let folder = folder_with([&rich_batch(6).encoded(0), &rich_batch(7).encoded(AREA_BLOCKS)]);
    let path = journal_of(folder.path());
    let whole = std::fs::read(&path).unwrap();
    for blocks in 0..2 * AREA_BLOCKS as usize + 1 {
        for more in [0, 512] {
            let cut = &whole[..blocks * TIER_BLOCK_BYTES + more];
            std::fs::write(&path, cut).unwrap();
            let error = replay_with(folder.path(), &request(), "").unwrap_err();
            assert!(
                matches!(error, JournalError::File(FileError { problem: FileProblem::Unusable(_), .. })),
                "{error}"
            );
            assert!(journal::inspect(&path).is_err());
            assert_eq!(std::fs::read(&path).unwrap(), cut);
        }
    }
    assert!(image(folder.path()) == old_image());
    std::fs::write(&path, &whole).unwrap();
    replay_with(folder.path(), &request(), "").unwrap();
    assert!(image(folder.path()) == after(&[&rich_batch(7)]));
}

#[test]
fn of_two_complete_batches_the_newer_is_applied_and_an_incomplete_one_counts_for_nothing() {
    let old = TestBatch::new(6).data(3, 0xff, 0x11).data(4, 0xff, 0x12);
    let new = TestBatch::new(7).data(3, 0xff, 0x21).data(5, 0xff, 0x22);
    let (in_first, in_second) = (new.encoded(0), new.encoded(AREA_BLOCKS));
    for (areas, newer) in [([in_first, old.encoded(AREA_BLOCKS)], 0), ([old.encoded(0), in_second], 1)] {
        let folder = folder_with([&areas[0], &areas[1]]);
        let report = replay_with(folder.path(), &request(), "").unwrap();
        assert!(matches!(report.verdict, Verdict::Apply(found) if found.sequence == 7));
        assert!(image(folder.path()) == after(&[&new]));
        assert_erased(folder.path());

        let mut torn = areas;
        torn[newer][2 * TIER_BLOCK_BYTES] ^= 1;
        let folder = folder_with([&torn[0], &torn[1]]);
        let report = replay_with(folder.path(), &request(), "").unwrap();
        assert!(matches!(report.verdict, Verdict::Apply(found) if found.sequence == 6));
        let reason = "the payload of block 5 does not match its checksum".to_string();
        assert_eq!(report.areas[newer], AreaState::Incomplete { sequence: Some(7), reason });
        assert!(image(folder.path()) == after(&[&old]));
        assert_erased(folder.path());
    }
}

#[test]
fn what_the_tier_says_is_in_the_backing_is_not_applied_again() {
    let batch = rich_batch(7);
    for (destaged, applied) in [(batch.through().0 - 1, true), (batch.through().0, false), (u64::MAX, false)] {
        let folder = folder_with([&batch.encoded(0), &[]]);
        let tier = Some(TierWord { term: Term(2), destaged: Lsn(destaged) });
        let known = ReplayRequest { tier, ..request() };
        let report = replay_with(folder.path(), &known, "").unwrap();
        assert_eq!(matches!(report.verdict, Verdict::Apply(_)), applied);
        assert_eq!(matches!(report.verdict, Verdict::AlreadyInBacking(_)), !applied);
        assert_eq!(report.in_backing_through(), Some(batch.through()));
        assert!(image(folder.path()) == if applied { after(&[&batch]) } else { old_image() });
        assert_erased(folder.path());
    }
}

/// Batches here are of term 2. One of which nothing but the head is whole says as well that the tier is an older copy.
#[test]
fn a_head_of_a_later_term_than_the_tiers_is_refused_untouched() {
    let whole = rich_batch(7).encoded(AREA_BLOCKS);
    let mut torn = whole.clone();
    *torn.last_mut().unwrap() ^= 1;
    let mut torn_head = whole.clone();
    torn_head[5000] ^= 1;
    for (bytes, terms_refused) in [(&whole, 0..2), (&torn, 0..2), (&torn_head, 0..0)] {
        for term in 0..4 {
            let folder = folder_with([&[], bytes]);
            let path = journal_of(folder.path());
            let before = std::fs::read(&path).unwrap();
            let tier = Some(TierWord { term: Term(term), destaged: Lsn(0) });
            let replayed = replay_with(folder.path(), &ReplayRequest { tier, ..request() }, "");
            if !terms_refused.contains(&term) {
                replayed.unwrap();
                continue;
            }
            for error in [replayed.unwrap_err(), journal::check(&path, &VOLUME, Some(Term(term))).unwrap_err()] {
                assert!(matches!(error, JournalError::LaterTerm { found: Term(2), .. }), "{error}");
                assert!(error.to_string().contains(&format!("the tier is of term {term}")), "{error}");
            }
            assert!(std::fs::read(&path).unwrap() == before && image(folder.path()) == old_image());
        }
    }
}

/// The replay itself may end at any operation: the next one begins again and ends the same. An older batch that lies
/// in the other area is never what is left over.
#[test]
fn a_replay_cut_off_at_any_operation_is_finished_by_the_next() {
    let old = TestBatch::new(6).data(9, 0xff, 0x11).data(4, 0xff, 0x12);
    let new = rich_batch(7);
    for areas in [[new.encoded(0), old.encoded(AREA_BLOCKS)], [old.encoded(0), new.encoded(AREA_BLOCKS)]] {
        let mut cuts = 0;
        loop {
            let folder = folder_with([&areas[0], &areas[1]]);
            let end = replay_with(folder.path(), &request(), &format!("faulty:gone_after={cuts}:"));
            match &end {
                Ok(report) => assert!(matches!(report.verdict, Verdict::Apply(_))),
                Err(JournalError::File(FileError { problem: FileProblem::Failed { .. }, .. })) => {}
                Err(error) => panic!("{error}"),
            }
            replay_with(folder.path(), &request(), "").unwrap();
            assert!(image(folder.path()) == after(&[&new]), "cut off after {cuts} operations");
            assert_erased(folder.path());
            if end.is_ok() {
                break;
            }
            cuts += 1;
        }
        // Looking, applying, a sync, and two erasures with a sync each: all of it was cut.
        assert!(cuts > 20, "{cuts}");
    }
}

#[test]
fn errors_of_the_backing_leave_the_batch_in_the_journal() {
    let batch = rich_batch(7);
    for wrappers in
        ["write_error=1", "zero_error=1", "sync_error=1", "read_error=1", "hang_after=9", "nospace_after=16K"]
    {
        let folder = folder_with([&batch.encoded(0), &[]]);
        let journal = std::fs::read(journal_of(folder.path())).unwrap();
        let error = replay_with(folder.path(), &request(), &format!("faulty:{wrappers}:")).unwrap_err();
        assert!(
            matches!(error, JournalError::File(FileError { problem: FileProblem::Failed { .. }, .. })),
            "{wrappers}: {error}"
        );
        assert_eq!(std::fs::read(journal_of(folder.path())).unwrap(), journal, "{wrappers}");
        replay_with(folder.path(), &request(), "").unwrap();
        assert!(image(folder.path()) == after(&[&batch]), "{wrappers}");
    }
}

#[test]
fn journals_of_others_and_of_the_future_and_images_that_do_not_fit_are_refused_untouched() {
    let good = rich_batch(7).encoded(0);
    let refused = |area: &[u8], request: &ReplayRequest, text: &str| {
        let folder = folder_with([area, &[]]);
        let journal = std::fs::read(journal_of(folder.path())).unwrap();
        let error = replay_with(folder.path(), request, "").unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(std::fs::read(journal_of(folder.path())).unwrap(), journal);
        assert!(image(folder.path()) == old_image());
    };
    refused(&good, &ReplayRequest { volume: *b"a volume of them", ..request() }, "it belongs to volume 6120766f-6c75");
    let mut newer = good.clone();
    newer[36] = 2;
    refused(&newer, &request(), "newer version");
    refused(&good, &ReplayRequest { volume_bytes: 60 * 4096, ..request() }, "changes block 63");
    refused(&good, &ReplayRequest { volume_bytes: 67 * 4096, ..request() }, "was cut off");
    let range = TestBatch::new(7).zero_blocks(60, 5, true).encoded(0);
    refused(&range, &request(), "changes block 64 and the volume has only 64");
}

#[test]
fn heads_that_claim_too_much_are_incomplete() {
    let resealed = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = rich_batch(7).encoded(0);
        let head = 2 * TIER_BLOCK_BYTES;
        change(&mut bytes[..head]);
        bytes[12..16].fill(0);
        let mut seed = [0; 24];
        seed[..16].copy_from_slice(&VOLUME);
        let sum = crc32c(&bytes[..head]) ^ crc32c(&seed);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    };
    // 24 payloads behind a head of two blocks do not fit behind one that begins near the end.
    let mut many = TestBatch::new(7);
    for i in 0..40 {
        many = many.data(i, 0xff, 1);
    }
    let many = many.encoded(0)[..AREA_BLOCKS as usize * TIER_BLOCK_BYTES].to_vec();
    for (bytes, text) in [
        (resealed(&|b| b[8..12].fill(0xff)), "claims 33554433 blocks"),
        (resealed(&|b| b[8..12].copy_from_slice(&139u32.to_le_bytes())), "a record is missing"),
        (resealed(&|b| b[0] = b'X'), "does not begin with the head"),
        (many, "40 payload blocks reach past the area"),
    ] {
        let folder = folder_with([&bytes, &[]]);
        let report = replay_with(folder.path(), &request(), "").unwrap();
        assert!(
            matches!(&report.areas[0], AreaState::Incomplete { reason, .. } if reason.contains(text)),
            "{report:?}"
        );
        assert!(image(folder.path()) == old_image());
        assert_erased(folder.path());
    }
}

#[test]
fn a_locked_journal_is_waited_for() {
    let folder = folder_with([&rich_batch(7).encoded(0), &[]]);
    let other = std::fs::File::options().read(true).write(true).open(journal_of(folder.path())).unwrap();
    assert_eq!(forebay_io::lock::try_lock(&other).unwrap(), LockAttempt::Locked);
    let hurried = ReplayRequest { lock_timeout: StdDuration::from_millis(30), ..request() };
    assert!(matches!(
        replay_with(folder.path(), &hurried, ""),
        Err(JournalError::File(FileError { problem: FileProblem::HeldBy { .. }, .. }))
    ));
    assert!(image(folder.path()) == old_image());
    let releaser = std::thread::spawn(move || {
        std::thread::sleep(StdDuration::from_millis(50));
        drop(other);
    });
    replay_with(folder.path(), &ReplayRequest { lock_timeout: 20 * SECOND, ..request() }, "").unwrap();
    releaser.join().unwrap();
}

fn any_record() -> impl Strategy<Value = (u8, u64, u8, u8)> {
    (0u8..6, 0u64..64, 1u8..=255, any::<u8>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Any records in log order do to the image what they do to a flat array.
    #[test]
    fn any_batch_does_what_its_records_say(records in prop::collection::vec(any_record(), 1..60)) {
        let mut batch = TestBatch::new(9);
        let mut payloads = 0;
        for (kind, block, mask, byte) in records {
            batch = match kind {
                0..=2 if payloads < 36 => {
                    payloads += 1;
                    batch.data(block, if kind == 0 { 0xff } else { mask }, byte)
                }
                0..=3 => batch.zero_sectors(block, mask),
                _ => batch.zero_blocks(block, (u32::from(byte) % 20 + 1).min(64 - block as u32), kind == 4),
            };
        }
        let folder = folder_with([&[], &batch.encoded(AREA_BLOCKS)]);
        replay_with(folder.path(), &request(), "").unwrap();
        prop_assert!(image(folder.path()) == after(&[&batch]));
    }
}
