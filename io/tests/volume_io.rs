//! Effects on real tiers and backings, in both modes of the reactor and on both kinds of tier.

use forebay_core::api::{Check, Checks, Effect, Event, Outcome, Part, Source};
use forebay_core::format::{Superblock, TierKind, TierLayout, Version, payload_checksum};
use forebay_core::types::*;
use forebay_io::clock::until;
use forebay_io::{
    Backing, BackingOptions, Completion, Executed, FlashTier, LockAttempt, MemoryTier, ModeChoice, Reactor, Tier,
    VolumeIo, now, volume_of,
};
use std::path::PathBuf;
use std::time::Duration as StdDuration;

const INDEX: u32 = 3;
const BACKING_BYTES: u64 = 4 << 20;
const TIER_BLOCKS: u32 = 512;
const VOLUME: [u8; 16] = *b"a volume of ours";
const SECOND: StdDuration = StdDuration::from_secs(1);

macro_rules! everywhere {
    ($($name:ident)*) => {
        mod uring_memory { $(#[test] fn $name() { super::$name(super::ModeChoice::Uring, super::TierKind::Memory) })* }
        mod uring_flash { $(#[test] fn $name() { super::$name(super::ModeChoice::Uring, super::TierKind::Flash) })* }
        mod threads_memory { $(#[test] fn $name() { super::$name(super::ModeChoice::Threads, super::TierKind::Memory) })* }
        mod threads_flash { $(#[test] fn $name() { super::$name(super::ModeChoice::Threads, super::TierKind::Flash) })* }
    };
}

everywhere! {
    what_the_tier_was_given_comes_back_verified
    parts_reach_the_backing_in_order_and_zeros_too
    a_wrong_checksum_stops_a_write_before_the_backing
    merge_and_copy_touch_exactly_their_bytes
    a_slow_backing_answers_on_time_and_not_before
    planned_faults_become_the_errors_that_core_knows
    a_dropped_sync_and_write_are_lies_that_show
    what_was_left_fails_at_once_and_a_new_opening_has_lost_what_was_not_synced
    effects_of_the_shard_are_left_to_it
}

struct Rig {
    folder: tempfile::TempDir,
    _memory: tempfile::TempDir,
    reactor: Reactor,
    io: VolumeIo,
    next: u64,
}

impl Rig {
    fn new(mode: ModeChoice, kind: TierKind, wrappers: &str) -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let memory = tempfile::tempdir_in("/dev/shm").expect("the tests need a tmpfs at /dev/shm");
        let length = u64::from(TIER_BLOCKS) * BLOCK_BYTES;
        let (tier, layout) = match kind {
            TierKind::Memory => {
                let tier = MemoryTier::create(&memory.path().join("tier"), length, SECOND).unwrap();
                (Tier::Memory(tier), TierLayout::memory(TIER_BLOCKS).unwrap())
            }
            TierKind::Flash => {
                let tier = FlashTier::create(&folder.path().join("tier"), length, true, SECOND, |_| {}).unwrap();
                (Tier::Flash(tier), TierLayout::flash(TIER_BLOCKS).unwrap())
            }
        };
        let superblock = Superblock {
            version: Version::Two,
            tier: 1,
            volume: VOLUME,
            name: [0; 64],
            size_bytes: BACKING_BYTES,
            created_unix_s: 1,
            layout,
        };
        let arena = VolumeIo::arena_of(&tier, &superblock, 64).unwrap();
        let spec = format!("{wrappers}{}", folder.path().join("disk.img").display());
        let options = BackingOptions { create: Some(BACKING_BYTES), ..Default::default() };
        let mut backing = Backing::open(&spec, options).unwrap();
        assert_eq!(backing.try_lock().unwrap(), LockAttempt::Locked);
        let io = VolumeIo::new(INDEX, &superblock, arena, tier, backing);
        Rig { folder, _memory: memory, reactor: Reactor::new(mode).unwrap_or_else(|e| panic!("{e}")), io, next: 1 }
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }

    fn op(&mut self) -> OpId {
        self.next += 1;
        OpId(self.next)
    }

    fn execute(&mut self, effect: Effect) -> Option<Event> {
        match self.io.execute(&mut self.reactor, effect) {
            Executed::Nothing => None,
            Executed::Done(event) => Some(event),
            Executed::Yours(effect) => panic!("{effect:?}"),
        }
    }

    /// One turn of a shard's loop.
    fn turn(&mut self, limit: StdDuration) -> Vec<Event> {
        let timeout = self.io.deadline().map_or(limit, |deadline| until(deadline, now()).min(limit));
        let (mut found, mut events) = (Vec::new(), Vec::new());
        self.reactor.wait(Some(timeout), &mut found).unwrap();
        for completion in found {
            let Completion::Done { token, result, buffer } = completion else { panic!("{completion:?}") };
            assert_eq!(volume_of(token), INDEX);
            events.extend(self.io.complete(token, result, buffer));
        }
        self.io.poll_timers(now(), &mut events);
        events
    }

    /// The outcome of one effect, which nothing else accompanies.
    fn run(&mut self, make: impl FnOnce(OpId) -> Effect) -> Outcome {
        let op = self.op();
        let mut told: Vec<Event> = self.execute(make(op)).into_iter().collect();
        let deadline = now() + Duration::from_secs(20);
        while told.is_empty() {
            assert!(now() < deadline, "no end");
            told = self.turn(SECOND);
        }
        assert_eq!(told.len(), 1);
        assert_eq!(self.io.in_flight(), 0);
        match told.pop() {
            Some(Event::Done { op: ended, outcome }) if ended == op => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn fill(&mut self, frame: u32, byte: u8) -> FrameId {
        self.io.arena_mut().bytes_mut(FrameId(frame)).fill(byte);
        FrameId(frame)
    }

    fn check(&self, frame: FrameId, block: u64) -> Check {
        let (block, mask, term) = (BlockIndex(block), SectorMask::FULL, Term(1));
        let checksum = payload_checksum(&VOLUME, block, mask, term, self.io.arena().bytes(frame));
        Check { block, mask, term, checksum }
    }
}

fn part(frame: FrameId, from: u16, length: u16, check: Option<Check>) -> Part {
    Part { frame, from, length, check }
}

fn one(frame: FrameId, check: Check) -> Checks {
    Checks::from_slice(&[(frame, check)])
}

fn what_the_tier_was_given_comes_back_verified(mode: ModeChoice, kind: TierKind) {
    let mut rig = Rig::new(mode, kind, "");
    let at = TierBlock(64);
    let head: Vec<u8> = (0..8192).map(|i| (i / 7) as u8).collect();
    let frames: Vec<_> = (0..5u32).map(|i| rig.fill(9 - i, 0x10 + i as u8)).collect();
    let check = rig.check(frames[3], 77);
    let (written, given) = (head.clone(), frames.clone());
    assert_eq!(rig.run(|op| Effect::TierWrite { op, at, head: written, frames: given }), Outcome::Ok);
    assert_eq!(rig.run(|op| Effect::TierSync { op }), Outcome::Ok);
    let Outcome::Bytes(bytes) = rig.run(|op| Effect::TierScan { op, at, blocks: 7 }) else { panic!() };
    assert!(bytes[..8192] == head);
    for i in 0..5usize {
        assert!(bytes[8192 + i * 4096..][..4096].iter().all(|&b| b == 0x10 + i as u8), "payload {i}");
    }
    let (frame, at) = (rig.fill(20, 0), TierBlock(64 + 2 + 3));
    assert_eq!(rig.run(|op| Effect::TierRead { op, at, frames: one(frame, check) }), Outcome::Ok);
    assert!(rig.io.arena().bytes(frame).iter().all(|&b| b == 0x13));
    // The block beside it is another one: never returned as data.
    let wrong = rig.run(|op| Effect::TierRead { op, at: TierBlock(at.0 - 1), frames: one(frame, check) });
    assert_eq!(wrong, Outcome::Failed(IoError::Checksum));
    let other_place = Check { block: BlockIndex(78), ..check };
    let wrong = rig.run(|op| Effect::TierRead { op, at, frames: one(frame, other_place) });
    assert_eq!(wrong, Outcome::Failed(IoError::Checksum));
    // Neighbours are read together, and each is verified.
    let run: Checks = [2, 3].map(|i| (rig.fill(21 + i, 0), rig.check(frames[i as usize], 77))).into_iter().collect();
    let (run_at, both) = (TierBlock(at.0 - 1), run.clone());
    assert_eq!(rig.run(|op| Effect::TierRead { op, at: run_at, frames: both }), Outcome::Ok);
    for (i, &(frame, _)) in run.iter().enumerate() {
        assert!(rig.io.arena().bytes(frame).iter().all(|&b| b == 0x12 + i as u8), "block {i} of two");
    }
    for damaged in 0..2 {
        let mut run = run.clone();
        run[damaged].1.checksum ^= 1;
        let wrong = rig.run(|op| Effect::TierRead { op, at: run_at, frames: run });
        assert_eq!(wrong, Outcome::Failed(IoError::Checksum), "block {damaged} of two");
    }
    let stats = rig.io.tier_stats();
    assert_eq!((stats.writes.operations, stats.writes.bytes, stats.writes.merged), (1, 7 * 4096, 5));
    assert_eq!((stats.reads.errors, stats.syncs.operations), (4, 1));
}

fn parts_reach_the_backing_in_order_and_zeros_too(mode: ModeChoice, kind: TierKind) {
    let mut rig = Rig::new(mode, kind, "");
    let (a, b, c) = (rig.fill(8, 1), rig.fill(9, 2), rig.fill(4, 3));
    let (check, align) = (rig.check(b, 0), rig.io.backing().align() as u16);
    let parts = [part(a, 0, 4096, None), part(b, 0, 4096, Some(check)), part(c, 4096 - align, align, None)];
    let offset = 40960 - u64::from(align);
    assert_eq!(rig.run(|op| Effect::BackingWrite { op, offset, parts: parts.into_iter().collect() }), Outcome::Ok);
    assert_eq!(rig.run(|op| Effect::BackingSync { op }), Outcome::Ok);
    let mut flat = vec![0u8; BACKING_BYTES as usize];
    let start = offset as usize;
    flat[start..start + 4096].fill(1);
    flat[start + 4096..start + 8192].fill(2);
    flat[start + 8192..start + 8192 + usize::from(align)].fill(3);
    assert!(std::fs::read(rig.disk()).unwrap() == flat);

    for (offset, hole) in [(40960, true), (45056, false)] {
        assert_eq!(rig.run(|op| Effect::BackingZero { op, offset, length: 4096, hole }), Outcome::Ok);
        flat[offset as usize..offset as usize + 4096].fill(0);
        assert!(std::fs::read(rig.disk()).unwrap() == flat);
    }

    // Around the end: the last block, and one that is past it.
    let last = BlockIndex(BACKING_BYTES / BLOCK_BYTES - 1);
    let frame = rig.fill(30, 9);
    let parts = [part(frame, 0, 4096, None)];
    let write = rig.run(|op| Effect::BackingWrite { op, offset: last.byte(), parts: parts.into_iter().collect() });
    assert_eq!(write, Outcome::Ok);
    let frames: Frames = [rig.fill(40, 0xee), rig.fill(2, 0xee)].into_iter().collect();
    let read = frames.clone();
    assert_eq!(rig.run(|op| Effect::BackingRead { op, at: last, frames: read }), Outcome::Ok);
    assert!(rig.io.arena().bytes(frames[0]).iter().all(|&b| b == 9));
    assert!(rig.io.arena().bytes(frames[1]).iter().all(|&b| b == 0));
    let stats = &rig.io.backing().stats;
    assert_eq!((stats.writes.operations, stats.writes.merged, stats.zeros.operations), (2, 2, 2));
    assert!(stats.writes.latency_sum_ns > 0 && stats.writes.latency_max_ns <= stats.writes.latency_sum_ns);
}

fn a_wrong_checksum_stops_a_write_before_the_backing(mode: ModeChoice, kind: TierKind) {
    let mut rig = Rig::new(mode, kind, "");
    let before = std::fs::read(rig.disk()).unwrap();
    let (good, bad) = (rig.fill(8, 1), rig.fill(9, 2));
    let checks = [rig.check(good, 0), rig.check(bad, 1)];
    rig.io.arena_mut().bytes_mut(bad)[4095] ^= 0x80;
    let parts = [part(good, 0, 4096, Some(checks[0])), part(bad, 0, 512, Some(checks[1]))];
    let outcome = rig.run(|op| Effect::BackingWrite { op, offset: 0, parts: parts.into_iter().collect() });
    assert_eq!(outcome, Outcome::Failed(IoError::Checksum));
    assert!(std::fs::read(rig.disk()).unwrap() == before);
    assert_eq!(rig.io.backing().stats.writes.errors, 1);
}

fn merge_and_copy_touch_exactly_their_bytes(mode: ModeChoice, kind: TierKind) {
    let mut rig = Rig::new(mode, kind, "");
    let (base, target, block) = (rig.fill(8, 1), rig.fill(9, 2), BlockIndex(5));
    let source = Source::Frame(base, 0);
    let merge = |op, base, checks| Effect::Merge { op, checks, target, base, from: 100, to: 700, block, term: Term(4) };
    let check = rig.check(base, 5);
    rig.io.arena_mut().bytes_mut(base)[4000] ^= 1;
    let refused = rig.run(|op| merge(op, source, std::iter::once((base, check)).collect()));
    assert_eq!(refused, Outcome::Failed(IoError::Checksum));
    assert!(rig.io.arena().bytes(target).iter().all(|&b| b == 2), "a merge with a damaged base changes nothing");
    rig.io.arena_mut().bytes_mut(base)[4000] ^= 1;
    let merged = rig.run(|op| merge(op, source, std::iter::once((base, check)).collect()));
    let mut expected = [1u8; 4096];
    expected[100..700].fill(2);
    assert!(rig.io.arena().bytes(target) == expected);
    let checksum = payload_checksum(&VOLUME, block, SectorMask::FULL, Term(4), &expected);
    assert_eq!(merged, Outcome::Merged(checksum));
    rig.run(|op| merge(op, Source::Zero, Checks::new()));
    assert!(rig.io.arena().bytes(target).iter().enumerate().all(|(i, &b)| (b == 2) == (100..700).contains(&i)));
    assert_eq!(rig.execute(Effect::Copy { source, target, start: 512, length: 1024 }), None);
    assert_eq!(rig.execute(Effect::Copy { source: Source::Zero, target, start: 1024, length: 3072 }), None);
    let bytes = rig.io.arena().bytes(target);
    assert!(bytes[100..512].iter().all(|&b| b == 2));
    assert!(bytes[512..1024].iter().all(|&b| b == 1));
    assert!(bytes[1024..].iter().all(|&b| b == 0));
}

fn a_slow_backing_answers_on_time_and_not_before(mode: ModeChoice, kind: TierKind) {
    let mut rig = Rig::new(mode, kind, "slow:latency=30ms,depth=2,sync=20ms:");
    let start = now();
    let frames: Vec<_> = (0..4).map(|i| rig.fill(10 + i, i as u8)).collect();
    // One of each kind: two servers, so two rounds of 30 ms; the sync waits for all and takes 20 ms.
    let effects: Vec<Box<dyn Fn(OpId) -> Effect>> = vec![
        Box::new(|op| Effect::BackingRead { op, at: BlockIndex(0), frames: [FrameId(10)].into_iter().collect() }),
        Box::new(move |op| Effect::BackingWrite {
            op,
            offset: 4096,
            parts: [part(frames[1], 0, 4096, None)].into_iter().collect(),
        }),
        Box::new(|op| Effect::BackingZero { op, offset: 8192, length: 4096, hole: true }),
        Box::new(|op| Effect::BackingZero { op, offset: 16384, length: 4096, hole: false }),
        Box::new(|op| Effect::BackingSync { op }),
    ];
    let mut ends = Vec::new();
    for effect in effects {
        let op = rig.op();
        assert_eq!(rig.execute(effect(op)), None);
    }
    while ends.len() < 5 {
        assert!(now() < start + Duration::from_secs(20));
        for event in rig.turn(SECOND) {
            let Event::Done { op, outcome: Outcome::Ok } = event else { panic!("{event:?}") };
            ends.push((op.0, (now() - start).0 / 1_000_000));
        }
    }
    ends.sort_unstable();
    for ((op, at), least) in ends.iter().zip([30, 30, 60, 60, 80]) {
        // Never early; late only by what this machine's other work costs.
        assert!((least..least + 400).contains(at), "operation {op} ended after {at} ms, its time was {least} ms");
    }
    assert_eq!((rig.io.deadline(), rig.io.in_flight()), (None, 0));
    // A little less than 80 ms: the sync was asked for after the operations that it waited for.
    assert!(rig.io.backing().stats.syncs.latency_max_ns >= 60_000_000);
}

/// A write of a slow backing is under way when it is left: only then it rests. The file of the new opening has the former one's lock.
fn what_was_left_fails_at_once_and_a_new_opening_has_lost_what_was_not_synced(mode: ModeChoice, kind: TierKind) {
    let mut rig = Rig::new(mode, kind, "slow:latency=50ms:");
    let write = |frame, op| Effect::BackingWrite {
        op,
        offset: 4096,
        parts: [part(frame, 0, 4096, None)].into_iter().collect(),
    };
    let read = |op| Effect::BackingRead { op, at: BlockIndex(1), frames: [FrameId(12)].into_iter().collect() };
    let (one, two) = (rig.fill(10, 1), rig.fill(11, 2));
    let op = rig.op();
    assert_eq!(rig.execute(write(one, op)), None);
    rig.io.leave_backing();
    assert!(!rig.io.backing_rests(), "a write is under way");
    let failed = Outcome::Failed(IoError::Failed);
    let op = rig.op();
    assert_eq!(rig.execute(write(two, op)), Some(Event::Done { op, outcome: failed.clone() }));
    while !rig.io.backing_rests() {
        assert!(rig.turn(SECOND).iter().all(|event| matches!(event, Event::Done { outcome: Outcome::Ok, .. })));
    }
    // The tier goes on.
    assert_eq!(rig.run(|op| Effect::TierSync { op }), Outcome::Ok);
    assert_eq!(rig.run(read), failed);
    assert_eq!(rig.run(|op| Effect::BackingSync { op }), failed);

    let spec = rig.io.backing().spec().to_owned();
    let mut anew = Backing::open(&spec, BackingOptions::default()).unwrap();
    assert!(matches!(anew.try_lock().unwrap(), LockAttempt::HeldBy(_)));
    rig.io.backing_mut().give_up_lock();
    assert_eq!(anew.try_lock().unwrap(), LockAttempt::Locked);
    rig.io.return_to_backing(Some((anew, None)));
    // A read is no change. Of the first change nobody knows: all since the last sync is to be written again.
    assert_eq!(rig.run(read), Outcome::Ok);
    assert_eq!(rig.run(|op| write(two, op)), failed);
    assert_eq!(rig.run(|op| write(two, op)), Outcome::Ok);
    assert_eq!(rig.run(|op| Effect::BackingSync { op }), Outcome::Ok);
    assert!(std::fs::read(rig.disk()).unwrap()[4096..8192].iter().all(|&byte| byte == 2));
    // Nothing was exchanged: it goes on as it was.
    rig.io.leave_backing();
    rig.io.return_to_backing(None);
    assert_eq!(rig.run(|op| write(one, op)), Outcome::Ok);
}

fn planned_faults_become_the_errors_that_core_knows(mode: ModeChoice, kind: TierKind) {
    let write =
        |op| Effect::BackingWrite { op, offset: 0, parts: [part(FrameId(8), 0, 4096, None)].into_iter().collect() };
    let mut rig = Rig::new(mode, kind, "faulty:write_error=1,sync_error=1:");
    rig.fill(8, 7);
    assert_eq!(rig.run(write), Outcome::Failed(IoError::Failed));
    assert_eq!(rig.run(|op| Effect::BackingSync { op }), Outcome::Failed(IoError::Failed));
    assert!(std::fs::read(rig.disk()).unwrap().iter().all(|&b| b == 0));

    let mut rig = Rig::new(mode, kind, "faulty:nospace_after=4K:");
    assert_eq!(rig.run(write), Outcome::Ok);
    assert_eq!(rig.run(write), Outcome::Failed(IoError::NoSpace));

    let mut rig = Rig::new(mode, kind, "slow:latency=5ms:faulty:gone_after=1:");
    assert_eq!(rig.run(write), Outcome::Ok);
    let start = now();
    assert_eq!(rig.run(write), Outcome::Failed(IoError::Gone));
    assert!(now() - start >= Duration::from_millis(5), "the array in front takes its time");

    let mut rig = Rig::new(mode, kind, "faulty:hang_after=0:");
    let op = rig.op();
    assert_eq!(rig.execute(write(op)), None);
    assert_eq!(rig.turn(StdDuration::from_millis(50)), []);
    assert_eq!((rig.io.in_flight(), rig.io.deadline()), (1, None));
    // The tier is not held up by it.
    let op = rig.op();
    let mut told: Vec<_> = rig.execute(Effect::TierSync { op }).into_iter().collect();
    while told.is_empty() {
        told = rig.turn(SECOND);
    }
    assert_eq!(told, [Event::Done { op, outcome: Outcome::Ok }]);
}

fn a_dropped_sync_and_write_are_lies_that_show(mode: ModeChoice, kind: TierKind) {
    let mut rig = Rig::new(mode, kind, "faulty:drop_write=1,drop_sync=1,corrupt_read=1:");
    let frame = rig.fill(8, 7);
    let parts = [part(frame, 0, 4096, None)];
    assert_eq!(rig.run(|op| Effect::BackingWrite { op, offset: 0, parts: parts.into_iter().collect() }), Outcome::Ok);
    assert_eq!(rig.run(|op| Effect::BackingSync { op }), Outcome::Ok);
    assert!(std::fs::read(rig.disk()).unwrap().iter().all(|&b| b == 0));
    let frames: Frames = [frame].into_iter().collect();
    assert_eq!(rig.run(|op| Effect::BackingRead { op, at: BlockIndex(0), frames }), Outcome::Ok);
    assert_eq!(rig.io.arena().bytes(frame).iter().map(|b| b.count_ones()).sum::<u32>(), 1);

    let mut rig = Rig::new(mode, kind, "faulty:early_sync=1:");
    let op = rig.op();
    assert_eq!(rig.execute(Effect::BackingSync { op }), Some(Event::Done { op, outcome: Outcome::Ok }));
    assert_eq!(rig.io.in_flight(), 1);
    while rig.io.in_flight() > 0 {
        assert_eq!(rig.turn(SECOND), [], "told once, and only once");
    }
}

fn effects_of_the_shard_are_left_to_it(mode: ModeChoice, kind: TierKind) {
    let mut rig = Rig::new(mode, kind, "");
    for effect in [
        Effect::FramesFree,
        Effect::Reply { id: RequestId(1), result: Ok(Default::default()) },
        Effect::Answer { id: ControlId(1), result: Ok(()) },
    ] {
        match rig.io.execute(&mut rig.reactor, effect.clone()) {
            Executed::Yours(back) => assert_eq!(back, effect),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_descriptor_lies_where_recovery_looks_for_it() {
    let mut rig = Rig::new(ModeChoice::Threads, TierKind::Memory, "");
    let layout = TierLayout::memory(TIER_BLOCKS).unwrap();
    let bytes = *b"0123456789abcdef0123456789abcdef";
    let index = layout.payload_blocks + layout.ranges_max - 1; // the last one: a range
    assert_eq!(rig.execute(Effect::Describe { index, bytes }), None);
    let at = TierBlock(layout.table_first + index / 128);
    let Outcome::Bytes(block) = rig.run(|op| Effect::TierScan { op, at, blocks: 1 }) else { panic!() };
    let place = (index % 128) as usize * 32;
    assert_eq!(block[place..place + 32], bytes);
}

#[test]
fn frame_i_is_payload_block_i_of_a_memory_tier() {
    let mut rig = Rig::new(ModeChoice::Threads, TierKind::Memory, "");
    let layout = TierLayout::memory(TIER_BLOCKS).unwrap();
    let frame = rig.fill(17, 0x42);
    let (at, check) = (TierBlock(layout.payload_first + 17), rig.check(frame, 1));
    assert_eq!(rig.run(|op| Effect::TierRead { op, at, frames: one(frame, check) }), Outcome::Ok);
    let Outcome::Bytes(block) = rig.run(|op| Effect::TierScan { op, at, blocks: 1 }) else { panic!() };
    assert!(block.iter().all(|&b| b == 0x42));
}

#[test]
#[should_panic(expected = "only under its lock")]
fn a_write_without_the_lock_is_a_bug() {
    let rig = Rig::new(ModeChoice::Threads, TierKind::Flash, "");
    let Rig { folder, mut reactor, .. } = rig;
    let length = u64::from(TIER_BLOCKS) * BLOCK_BYTES;
    let tier = FlashTier::create(&folder.path().join("tier2"), length, false, SECOND, |_| {}).unwrap();
    let layout = TierLayout::flash(TIER_BLOCKS).unwrap();
    let superblock = Superblock {
        version: Version::Two,
        tier: 1,
        volume: VOLUME,
        name: [0; 64],
        size_bytes: 4096,
        created_unix_s: 1,
        layout,
    };
    let spec = folder.path().join("disk2.img");
    let options = BackingOptions { create: Some(4096), ..Default::default() };
    let backing = Backing::open(spec.to_str().unwrap(), options).unwrap();
    let tier = Tier::Flash(tier);
    let arena = VolumeIo::arena_of(&tier, &superblock, 8).unwrap();
    let mut io = VolumeIo::new(0, &superblock, arena, tier, backing);
    io.execute(&mut reactor, Effect::BackingZero { op: OpId(1), offset: 0, length: 4096, hole: false });
}
