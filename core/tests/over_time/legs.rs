//! What a volume says of the times of requests, before devices whose times are known to the microsecond.

use crate::stand::{SECOND, Stand, config};
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::stats::{Histogram, Legs, Stats};
use forebay_core::status::{Phase, Policy};
use forebay_core::types::*;
use forebay_core::{Volume, VolumeConfig};
use std::collections::BTreeMap;

const TIER_WRITE_US: u64 = 300;
const TIER_READ_US: u64 = 200;
const TIER_SYNC_US: u64 = 2_000;
const BACKING_READ_US: u64 = 5_000;
const BACKING_WRITE_US: u64 = 8_000;
const BACKING_SYNC_US: u64 = 10_000;
const VOLUME_BYTES: u64 = 1 << 30;

struct Timed {
    volume: Volume,
    now: u64,
    under_way: BTreeMap<(u64, OpId), Outcome>,
    asked: u64,
    answered: u64,
}

impl Stand for Timed {
    fn volume(&mut self) -> &mut Volume {
        &mut self.volume
    }

    fn now(&self) -> Instant {
        Instant(self.now)
    }

    fn execute(&mut self, effect: Effect) {
        let (op, us, outcome) = match effect {
            Effect::Reply { result, .. } => {
                let pieces = result.expect("nothing fails here");
                self.answered += 1;
                return self.handle(Event::Sent(pieces));
            }
            Effect::TierWrite { op, .. } => (op, TIER_WRITE_US, Outcome::Ok),
            Effect::TierSync { op } => (op, TIER_SYNC_US, Outcome::Ok),
            Effect::TierRead { op, .. } => (op, TIER_READ_US, Outcome::Ok),
            Effect::BackingRead { op, .. } => (op, BACKING_READ_US, Outcome::Ok),
            Effect::BackingWrite { op, .. } => (op, BACKING_WRITE_US, Outcome::Ok),
            Effect::BackingSync { op } => (op, BACKING_SYNC_US, Outcome::Ok),
            Effect::Merge { op, .. } => (op, 0, Outcome::Merged(0)),
            Effect::Describe { .. } | Effect::FramesFree | Effect::Copy { .. } => return,
            other => panic!("nobody asks here for {other:?}"),
        };
        self.under_way.insert((self.now + us * 1_000, op), outcome);
    }
}

impl Timed {
    fn begin(config: VolumeConfig, backing: bool) -> Timed {
        let volume = Volume::new(config, Instant(SECOND));
        let mut timed = Timed { volume, now: SECOND, under_way: BTreeMap::new(), asked: 0, answered: 0 };
        timed.work();
        if backing {
            timed.handle(Event::BackingReady);
        }
        while timed.status().phase == Phase::Recovering {
            timed.step();
        }
        timed
    }

    fn memory(policy: Policy) -> Timed {
        Timed::begin(VolumeConfig { policy, ..config(TierLayout::memory(4 << 10).unwrap(), VOLUME_BYTES) }, true)
    }

    fn flash() -> Timed {
        Timed::begin(VolumeConfig { frames: 256, ..config(TierLayout::flash(1 << 16).unwrap(), VOLUME_BYTES) }, false)
    }

    /// Until the next operation ends, or the volume's time has come.
    fn step(&mut self) {
        let due = self.under_way.keys().next().map(|(at, _)| *at);
        let timeout = self.volume.poll_timeout().map(|at| at.0);
        self.now = due.into_iter().chain(timeout).min().expect("something is under way").max(self.now);
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= self.now
        {
            let ((_, op), outcome) = entry.remove_entry();
            self.handle(Event::Done { op, outcome });
        }
        self.work();
    }

    /// Asks, decides so much later, and waits for the answer.
    fn ask(&mut self, request: Request, late_us: u64) {
        self.asked += 1;
        let id = RequestId(self.asked);
        self.handle(Event::Request { id, request });
        self.now += late_us * 1_000;
        self.work();
        while self.answered < self.asked {
            self.step();
        }
    }

    fn write(&mut self, offset: u64, length: u32, fua: bool, late_us: u64) {
        let blocks = (offset + u64::from(length)).div_ceil(BLOCK_BYTES) - offset / BLOCK_BYTES;
        let mut frames = Frames::new();
        assert!(self.volume.take_frames(ClientId(0), blocks as u32, &mut frames), "there is room");
        let payload = frames.iter().map(|&frame| Payload { frame, checksum: 0 }).collect();
        self.ask(Request::Write { offset, length, payload, fua }, late_us);
    }

    fn read(&mut self, block: u64, late_us: u64) {
        self.ask(Request::Read { offset: block * BLOCK_BYTES, length: BLOCK_BYTES as u32 }, late_us);
    }

    fn seen(&self) -> &Stats {
        self.volume.validate();
        self.volume.seen()
    }
}

/// How many, and how long all together.
fn of(histogram: &Histogram) -> (u64, u64) {
    (histogram.count(), histogram.sum_us())
}

/// The legs of one direction: client, local, network, backing.
fn of_legs(legs: &Legs) -> [(u64, u64); 4] {
    [&legs.client, &legs.local, &legs.network, &legs.backing].map(of)
}

const NONE: (u64, u64) = (0, 0);

#[test]
fn what_memory_has_takes_as_long_as_the_round_that_decides() {
    let mut timed = Timed::memory(Policy::Back);
    timed.write(0, 4096, false, 7);
    timed.write(8192, 512, false, 4);
    timed.read(0, 3);
    assert_eq!(of_legs(&timed.seen().writes), [(2, 11), (2, 11), NONE, NONE]);
    assert_eq!(of_legs(&timed.seen().reads), [(1, 3), (1, 3), NONE, NONE]);
    let heat = &timed.seen().heat;
    assert_eq!((heat.writes()[3][3], heat.writes()[0][3], heat.reads()[3][2]), (1, 1, 1));
}

#[test]
fn a_read_that_misses_takes_what_the_backing_takes_and_the_next_one_nothing() {
    let mut timed = Timed::memory(Policy::Back);
    timed.read(70, 0);
    timed.read(70, 0);
    timed.ask(Request::Prefetch { offset: 80 * BLOCK_BYTES, length: 4096 }, 0);
    assert_eq!(of_legs(&timed.seen().reads), [(2, BACKING_READ_US), (1, 0), NONE, (1, BACKING_READ_US)]);
}

#[test]
fn a_write_to_flash_takes_what_its_batch_takes_and_a_flush_what_the_sync_takes() {
    let mut timed = Timed::flash();
    timed.write(0, 4096, false, 0);
    timed.write(1 << 20, 65_536, false, 0);
    timed.ask(Request::Flush, 0);
    timed.ask(Request::Zero { offset: 1 << 24, length: 1 << 20, hole: true, fua: false }, 0);
    let seen = timed.seen();
    assert_eq!(of_legs(&seen.writes), [(2, 2 * TIER_WRITE_US), (2, 2 * TIER_WRITE_US), NONE, NONE]);
    assert_eq!((of(&seen.flush), of(&seen.zeros)), ((1, TIER_SYNC_US), (1, TIER_WRITE_US)));
}

#[test]
fn a_block_that_is_read_back_from_flash_is_the_tiers_time() {
    let mut timed = Timed::flash();
    for block in 0..1_000 {
        timed.write(block * BLOCK_BYTES, 4096, false, 0);
    }
    timed.read(3, 0);
    let in_tier = (1, TIER_READ_US);
    assert_eq!(of_legs(&timed.seen().reads), [in_tier, in_tier, NONE, NONE]);
    assert_eq!(timed.seen().writes.local.count(), 1_000);
}

#[test]
fn a_write_through_takes_what_the_backing_takes() {
    let mut timed = Timed::memory(Policy::Through);
    timed.write(0, 4096, false, 0);
    assert_eq!(of_legs(&timed.seen().writes), [(1, BACKING_WRITE_US), (1, 0), NONE, (1, BACKING_WRITE_US)]);
    timed.write(8192, 4096, true, 0);
    let Legs { client, backing, .. } = &timed.seen().writes;
    assert_eq!((client.count(), backing.count()), (2, 2));
    assert!(client.sum_us() >= 2 * BACKING_WRITE_US + BACKING_SYNC_US, "{}", client.sum_us());
    assert_eq!(of(client), of(backing), "with FUA until the backing has synced it and the tier vouches for it");
    timed.ask(Request::Flush, 0);
    assert_eq!(timed.seen().writes.backing.count(), 2, "a flush is no write");
    assert_eq!(timed.seen().flush.count(), 1);
}

#[test]
fn a_write_of_part_of_a_sector_waits_for_what_it_covers_in_part() {
    let mut timed = Timed::memory(Policy::Back);
    timed.write(100, 50, false, 0);
    assert_eq!(of_legs(&timed.seen().writes), [(1, BACKING_READ_US), (1, 0), NONE, (1, BACKING_READ_US)]);
}

#[test]
fn destage_is_counted_by_itself() {
    let mut timed = Timed::memory(Policy::Back);
    timed.write(0, 4096, false, 0);
    timed.write(1 << 20, 4096, false, 0);
    while timed.status().dirty_bytes > 0 {
        timed.step();
    }
    let seen = timed.seen();
    assert_eq!((of(&seen.destage), of(&seen.backing_sync)), ((2, 2 * BACKING_WRITE_US), (1, BACKING_SYNC_US)));
    assert_eq!(of_legs(&seen.writes), [(2, 0), (2, 0), NONE, NONE]);
}

#[test]
fn a_write_that_finds_no_room_is_throttled_until_there_is_some() {
    let layout = TierLayout::memory(4 << 10).unwrap();
    let mut timed = Timed::begin(config(layout, VOLUME_BYTES), false);
    let mut block = 0;
    while timed.status().waiting_writes == 0 {
        timed.asked += 1;
        let asked = timed.asked;
        assert!(timed.write_block(asked, block), "there is a frame for it");
        block += 1;
        timed.work();
    }
    let before = timed.seen().writes.client.count();
    assert_eq!((timed.answered, before, timed.seen().writes.waiting.count()), (timed.asked - 1, timed.asked - 1, 0));
    timed.now += 3 * SECOND;
    timed.handle(Event::BackingReady);
    timed.work();
    while timed.answered < timed.asked {
        timed.step();
    }
    let (count, sum_us) = of(&timed.seen().writes.waiting);
    assert!(count == 1 && (3_000_000..4_000_000).contains(&sum_us), "{count} waited {sum_us} us");
    assert!(timed.seen().writes.client.max_us() >= timed.seen().writes.waiting.max_us());
}

#[test]
fn how_long_a_write_has_had_no_answer_is_shown_until_it_has_one() {
    let mut timed = Timed::memory(Policy::Through);
    assert_eq!(timed.status().oldest_unanswered, Duration::default());
    for block in [1, 2] {
        timed.asked += 1;
        let asked = timed.asked;
        assert!(timed.write_block(asked, block), "there is a frame for it");
        timed.work();
        timed.now += 7 * SECOND;
    }
    assert_eq!(timed.status().oldest_unanswered, Duration::from_secs(14), "that of the older one");
    while timed.answered < timed.asked {
        timed.step();
    }
    assert_eq!(timed.status().oldest_unanswered, Duration::default());
}

#[test]
fn requests_that_went_wrong_or_away_are_not_timed() {
    let mut timed = Timed::memory(Policy::Back);
    for id in 1..=2 {
        let request = Request::Read { offset: (id << 20) * BLOCK_BYTES, length: 4096 };
        timed.handle(Event::Request { id: RequestId(id), request: request.clone() });
        assert_eq!(timed.volume.admissible(&request), Err(RequestError::Invalid));
    }
    let mut refused = 0;
    timed.volume.settle(Instant(timed.now));
    while let Some(effect) = timed.volume.poll_effect() {
        refused += usize::from(matches!(effect, Effect::Reply { result: Err(RequestError::Invalid), .. }));
    }
    assert_eq!((refused, of_legs(&timed.seen().reads)), (2, [NONE; 4]));
    assert_eq!(timed.seen().miss_ratio.blocks_read(), 0);
}
