//! How many acknowledged writes one write to the backing stands for, where clients write some blocks far more often than
//! others and flush all the time: merging is what the journal is for.
//!
//! What bounds it is how many writes one batch sees, because only within a batch is an older write left out for a newer one of
//! a later group: the room of half a journal, as long as the backing is what everything waits for.

use crate::stand::{MILLISECOND, SECOND, Stand, config};
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::DestageMode;
use forebay_core::types::*;
use forebay_core::{Volume, VolumeConfig};
use std::collections::VecDeque;

/// A tier of 32 MiB and a volume ten times as large, with a journal as large in proportion as the default one of
/// a volume of 10 GiB is beside a tier of 1 GiB.
const TIER_BLOCKS: u32 = 8 << 10;
const VOLUME_BLOCKS: u64 = 80 << 10;
const JOURNAL_BLOCKS: u32 = TIER_BLOCKS / 8;
/// What clients write as long as nothing throttles them, a flush after each so many.
const WRITES_PER_MS: u64 = 40;
const FLUSH_EVERY: u64 = 64;
/// The backing takes a write of any size in this time, or a block in less, whichever is longer; and a sync.
const BACKING_WRITE_NS: u64 = 40_000;
const BACKING_BLOCK_NS: u64 = 8_000;

/// Zipf's law with exponent 0.99 over all blocks, hot blocks scattered.
struct Zipf {
    sums: Vec<f64>,
    state: u64,
}

impl Zipf {
    fn new() -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=VOLUME_BLOCKS)
            .map(|rank| {
                sum += (rank as f64).powf(-0.99);
                sum
            })
            .collect();
        Zipf { sums, state: 9 }
    }

    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let at = (self.state >> 11) as f64 / (1u64 << 53) as f64 * self.sums.last().unwrap();
        let rank = self.sums.partition_point(|&sum| sum < at) as u64;
        rank * 48_271 % VOLUME_BLOCKS
    }
}

struct Bench {
    volume: Volume,
    now: u64,
    backing: VecDeque<(u64, OpId)>,
    free_at: u64,
    zipf: Zipf,
    requests: u64,
    open: usize,
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
            }
            Effect::TierWrite { op, .. } | Effect::TierSync { op } => self.done(op),
            Effect::BackingWrite { op, parts, .. } => self.at_backing(op, parts.len() as u64),
            Effect::JournalWrite { op, frames, .. } => self.at_backing(op, frames.len() as u64 + 1),
            Effect::BackingSync { op } | Effect::JournalSync { op } => self.at_backing(op, 0),
            Effect::Describe { .. } | Effect::FramesFree | Effect::Copy { .. } => {}
            other => panic!("whole blocks need no {other:?}"),
        }
    }
}

impl Bench {
    fn new(destage: DestageMode, journal_blocks: u32) -> Bench {
        let layout = TierLayout::memory(TIER_BLOCKS).unwrap();
        let config = VolumeConfig { journal_blocks, destage, ..config(layout, VOLUME_BLOCKS * BLOCK_BYTES) };
        let mut volume = Volume::new(config, Instant(SECOND));
        volume.handle(Instant(SECOND), Event::BackingReady);
        let (backing, zipf) = (VecDeque::new(), Zipf::new());
        let mut bench = Bench { volume, now: SECOND, backing, free_at: 0, zipf, requests: 0, open: 0 };
        bench.work();
        bench
    }

    fn at_backing(&mut self, op: OpId, blocks: u64) {
        self.free_at = self.free_at.max(self.now) + BACKING_WRITE_NS.max(blocks * BACKING_BLOCK_NS);
        self.backing.push_back((self.free_at, op));
    }

    fn run(&mut self, seconds: u64) {
        let end = self.now + seconds * SECOND;
        while self.now < end {
            self.now += MILLISECOND;
            while self.backing.front().is_some_and(|(at, _)| *at <= self.now) {
                let (_, op) = self.backing.pop_front().unwrap();
                self.done(op);
                self.work();
            }
            let mut left = WRITES_PER_MS;
            while left > 0 && self.open < 32 && self.write() {
                left -= 1;
            }
            self.work();
        }
    }

    fn write(&mut self) -> bool {
        let block = self.zipf.draw();
        if !self.write_block(self.requests + 1, block) {
            return false;
        }
        self.requests += 1;
        self.open += 1;
        if self.requests.is_multiple_of(FLUSH_EVERY) {
            self.open += 1;
            self.handle(Event::Request { id: RequestId(self.requests | 1 << 63), request: Request::Flush });
        }
        self.work();
        true
    }

    /// Acknowledged writes for each write to the backing, once the start is over.
    fn merged(&mut self) -> f64 {
        self.run(1);
        let before = self.status().counters;
        self.run(5);
        let after = self.status().counters;
        let status = self.status();
        let writes = after.writes - before.writes;
        let to_backing = after.backing_writes - before.backing_writes;
        let batches = after.journal_batches - before.journal_batches;
        println!(
            "{writes} writes, {to_backing} to the backing, {} to the journal in {batches} batches, {} MiB dirty of {}",
            after.journal_writes - before.journal_writes,
            status.dirty_bytes >> 20,
            status.dirty_bytes_max >> 20,
        );
        writes as f64 / to_backing as f64
    }
}

#[test]
fn a_journal_merges_what_groups_in_order_cannot_and_a_larger_one_merges_more() {
    let ordered = Bench::new(DestageMode::Ordered, 0).merged();
    let journaled = Bench::new(DestageMode::Journaled, JOURNAL_BLOCKS).merged();
    let larger = Bench::new(DestageMode::Journaled, 4 * JOURNAL_BLOCKS).merged();
    println!("ordered {ordered:.2}, journaled {journaled:.2}, with a journal four times as large {larger:.2}");
    assert!(journaled > 1.2 * ordered, "{journaled} with a journal, {ordered} without");
    assert!(larger > 1.1 * journaled, "{larger} with a large journal, {journaled} with a small one");
}
