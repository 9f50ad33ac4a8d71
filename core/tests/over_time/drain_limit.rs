//! The limit on how long the log may take to drain, against a backing of a known speed that changes: it is kept, it
//! is changed live, and clients go on at all times.

use crate::stand::{MILLISECOND, SECOND, Stand, config};
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::{BackingState, ControlError, HoldEnd};
use forebay_core::types::*;
use forebay_core::{Volume, VolumeConfig};
use std::collections::{BTreeMap, VecDeque};

const TIER_BLOCKS: u32 = 32 << 10;
const VOLUME_BYTES: u64 = 8 << 30;
const CLIENTS: usize = 32;

/// A memory tier before a backing that writes so many bytes a second, one write after the other, and syncs at once.
struct Bench {
    volume: Volume,
    now: u64,
    bytes_per_s: u64,
    /// Operations of the backing with their ends.
    backing: VecDeque<(u64, OpId)>,
    free_at: u64,
    next_block: u64,
    requests: u64,
    open: usize,
    /// Answers in each second.
    answers: BTreeMap<u64, u32>,
}

impl Stand for Bench {
    fn volume(&mut self) -> &mut Volume {
        &mut self.volume
    }

    fn now(&self) -> Instant {
        Instant(self.now)
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { result, .. } => {
                assert_eq!(result, Ok(Pieces::new()));
                self.open -= 1;
                *self.answers.entry(self.now / SECOND).or_default() += 1;
            }
            Effect::TierWrite { op, .. } | Effect::TierSync { op } => self.done(op),
            Effect::BackingWrite { op, parts, .. } => {
                let bytes: u64 = parts.iter().map(|part| u64::from(part.length)).sum();
                self.free_at = self.free_at.max(self.now) + bytes * SECOND / self.bytes_per_s;
                self.backing.push_back((self.free_at, op));
            }
            Effect::BackingSync { op } => {
                self.free_at = self.free_at.max(self.now) + MILLISECOND;
                self.backing.push_back((self.free_at, op));
            }
            Effect::Describe { .. } | Effect::FramesFree | Effect::Answer { .. } | Effect::Copy { .. } => {}
            other => panic!("whole new blocks need no {other:?}"),
        }
    }
}

impl Bench {
    fn new(bytes_per_s: u64, drain_max: Duration) -> Bench {
        let layout = TierLayout::memory(TIER_BLOCKS).unwrap();
        let config = VolumeConfig { drain_max, ..config(layout, VOLUME_BYTES) };
        let mut volume = Volume::new(config, Instant(SECOND));
        volume.handle(Instant(SECOND), Event::BackingReady);
        let mut bench = Bench {
            volume,
            now: SECOND,
            bytes_per_s,
            backing: VecDeque::new(),
            free_at: 0,
            next_block: 0,
            requests: 0,
            open: 0,
            answers: BTreeMap::new(),
        };
        bench.work();
        bench
    }

    /// Clients write random-like new blocks without pause, each when its last write is answered.
    fn run(&mut self, seconds: u64) {
        let end = self.now + seconds * SECOND;
        while self.now < end {
            self.now += MILLISECOND;
            while self.backing.front().is_some_and(|(at, _)| *at <= self.now) {
                let (_, op) = self.backing.pop_front().unwrap();
                self.done(op);
            }
            // At most 20 for each client and millisecond: a client has a speed, too.
            for _ in 0..20 {
                while self.open < CLIENTS && self.write() {}
                self.work();
            }
        }
    }

    fn write(&mut self) -> bool {
        let block = self.next_block * 7919 % (VOLUME_BYTES / BLOCK_BYTES);
        let asked = self.write_block(self.requests + 1, block);
        if asked {
            self.next_block += 1;
            self.requests += 1;
            self.open += 1;
        }
        asked
    }

    /// Seconds that the dirty bytes take at the backing's real speed.
    fn seconds_to_drain(&mut self) -> f64 {
        self.status().dirty_bytes as f64 / self.bytes_per_s as f64
    }

    fn fewest_answers(&self, from: u64) -> u32 {
        (from / SECOND..self.now / SECOND).map(|s| self.answers.get(&s).copied().unwrap_or(0)).min().unwrap()
    }
}

#[test]
fn time_to_drain_stays_below_its_limit_and_every_second_has_answers() {
    let mut bench = Bench::new(3 << 20, Duration::from_secs(5));
    bench.run(60);
    assert!(bench.seconds_to_drain() < 5.5, "{} s to drain", bench.seconds_to_drain());
    assert!(bench.seconds_to_drain() > 2.0, "the limit is used, not avoided: {} s", bench.seconds_to_drain());
    // 768 blocks a second is the backing's speed.
    assert!(bench.fewest_answers(40 * SECOND) > 380, "{:?}", bench.answers);
}

#[test]
fn a_backing_that_slows_down_brings_no_second_without_answers_and_the_limit_is_reached_again() {
    let mut bench = Bench::new(8 << 20, Duration::from_secs(3));
    bench.run(20);
    bench.bytes_per_s = 1 << 20;
    let slowed = bench.now;
    bench.run(120);
    assert!(bench.fewest_answers(slowed) > 0, "{:?}", bench.answers);
    assert!(bench.seconds_to_drain() < 3.5, "{} s to drain", bench.seconds_to_drain());
}

#[test]
fn without_the_limit_the_log_fills_and_with_it_again_it_drains() {
    let mut bench = Bench::new(2 << 20, Duration(0));
    bench.run(60);
    assert!(bench.seconds_to_drain() > 15.0, "only {} s to drain", bench.seconds_to_drain());
    let command = Control::SetDrainMax(Duration::from_secs(4));
    bench.handle(Event::Control { id: ControlId(1), command });
    let limited = bench.now;
    bench.run(60);
    assert_eq!(bench.status().drain_max, Duration::from_secs(4));
    assert!(bench.seconds_to_drain() < 4.5, "{} s to drain", bench.seconds_to_drain());
    assert!(bench.fewest_answers(limited) > 0, "{:?}", bench.answers);
}

#[test]
fn a_slow_backing_is_measured_before_a_burst_has_filled_the_log() {
    // A hundred 4 KiB writes a second: before its speed is known nothing but a full log slows the clients down.
    let mut bench = Bench::new(400 << 10, Duration(0));
    bench.run(20);
    assert!(bench.fewest_answers(SECOND) > 0, "{:?}", bench.answers);
}

#[test]
fn a_hold_that_has_not_begun_is_called_off_by_a_release() {
    let mut bench = Bench::new(1 << 20, Duration(0));
    bench.run(2);
    let hold = Control::Hold(Duration::from_secs(60));
    bench.volume.handle(Instant(bench.now), Event::Control { id: ControlId(1), command: hold });
    bench.volume.handle(Instant(bench.now), Event::Control { id: ControlId(2), command: Control::Release });
    bench.volume.settle(Instant(bench.now));
    let mut answers = Vec::new();
    while let Some(effect) = bench.volume.poll_effect() {
        match effect {
            Effect::Answer { id, result } => answers.push((id, result)),
            other => bench.execute(other),
        }
    }
    assert_eq!(
        answers,
        [(ControlId(1), Err(ControlError::HoldEnded(HoldEnd::Released))), (ControlId(2), Err(ControlError::NotHeld))],
        "no backup was made under it"
    );
    bench.run(60);
    let status = bench.volume.status(Instant(bench.now));
    assert_eq!((status.backing, status.hold_left), (BackingState::Ready, None));
}

#[test]
fn drain_time_is_unknown_until_the_speed_is() {
    let mut bench = Bench::new(1 << 20, Duration::from_secs(5));
    assert_eq!(bench.status().drain_left, Some(Duration(0)), "nothing is dirty");
    while bench.status().dirty_bytes == 0 {
        assert!(bench.write());
        bench.work();
    }
    assert_eq!(bench.status().drain_left, None);
    bench.run(5);
    assert!(bench.status().drain_left.is_some());
}
