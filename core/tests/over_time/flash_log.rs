//! The log on flash over time: a device of a known speed that keeps what it is given, clients that write without pause, a
//! backing that is slow.

use crate::stand::{MILLISECOND, SECOND, Stand, config};
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::Phase;
use forebay_core::types::*;
use forebay_core::{Volume, VolumeConfig};
use std::collections::{BTreeMap, VecDeque};

const VOLUME_BYTES: u64 = 1 << 30;
const BLOCK: usize = BLOCK_BYTES as usize;
/// 60 MB/s: a tier of 64 MiB is rewritten as often in a second as one of 512 MiB is by a fast disk.
const TIER_BLOCK_TIME: u64 = 68_000;
/// One after the other.
const TIER_READ_TIME: u64 = 80_000;
/// As long as one takes beside writes that never pause, on a disk that others use.
const TIER_SYNC_TIME: u64 = 25 * MILLISECOND;
/// 700 operations a second.
const BACKING_TIME: u64 = SECOND / 700;

/// What the tier's device holds besides payload, by block. Nothing is ever read of a payload but its place.
type Metadata = BTreeMap<u32, Vec<u8>>;

struct Bench {
    volume: Volume,
    now: u64,
    tier: Metadata,
    /// Time that a block's write takes.
    tier_block_time: u64,
    /// Reads go on beside writes.
    tier_reads_at: u64,
    tier_free_at: u64,
    backing_free_at: u64,
    /// Operations of the devices by their ends.
    agenda: BTreeMap<(u64, OpId), Outcome>,
    depth: usize,
    open: usize,
    requests: u64,
    scans: usize,
}

impl Stand for Bench {
    fn volume(&mut self) -> &mut Volume {
        &mut self.volume
    }

    fn now(&self) -> Instant {
        Instant(self.now)
    }

    fn execute(&mut self, effect: Effect) {
        let (op, end, outcome) = match effect {
            Effect::Reply { result, .. } => {
                assert_eq!(result, Ok(Pieces::new()));
                self.open -= 1;
                return;
            }
            Effect::TierWrite { op, at, head, frames } => {
                let mut next = at.0;
                for block in head.chunks(BLOCK) {
                    self.tier.insert(next, block.to_vec());
                    next += 1;
                }
                for block in next..next + frames.len() as u32 {
                    self.tier.remove(&block);
                }
                let blocks = head.len() / BLOCK + frames.len();
                (op, self.tier_works(blocks as u64), Outcome::Ok)
            }
            // It does not keep writes from going on.
            Effect::TierSync { op } => (op, self.tier_free_at.max(self.now) + TIER_SYNC_TIME, Outcome::Ok),
            Effect::TierRead { op, .. } => {
                self.tier_reads_at = self.tier_reads_at.max(self.now) + TIER_READ_TIME;
                (op, self.tier_reads_at, Outcome::Ok)
            }
            Effect::TierScan { op, at, blocks } => {
                self.scans += 1;
                let block = |at| self.tier.get(&at).cloned().unwrap_or(vec![0; BLOCK]);
                (op, self.now, Outcome::Bytes((at.0..at.0 + blocks).flat_map(block).collect()))
            }
            Effect::BackingWrite { op, .. } | Effect::BackingSync { op } => {
                self.backing_free_at = self.backing_free_at.max(self.now) + BACKING_TIME;
                (op, self.backing_free_at, Outcome::Ok)
            }
            Effect::FramesFree | Effect::Answer { .. } | Effect::Copy { .. } => return,
            other => panic!("whole blocks on flash need no {other:?}"),
        };
        self.agenda.insert((end, op), outcome);
    }
}

impl Bench {
    fn begin(tier_blocks: u32, tier: Metadata, depth: usize) -> Bench {
        let layout = TierLayout::flash(tier_blocks).unwrap();
        let config = VolumeConfig { frames: 4096, ..config(layout, VOLUME_BYTES) };
        Bench::of(config, tier, TIER_BLOCK_TIME, depth)
    }

    fn of(new: VolumeConfig, tier: Metadata, tier_block_time: u64, depth: usize) -> Bench {
        let config = match tier.get(&0) {
            Some(bytes) => VolumeConfig { superblock: Superblock::decode(bytes).unwrap(), fresh: false, ..new },
            None => new,
        };
        let mut bench = Bench {
            volume: Volume::new(config, Instant(SECOND)),
            now: SECOND,
            tier,
            tier_block_time,
            tier_reads_at: 0,
            tier_free_at: 0,
            backing_free_at: 0,
            agenda: BTreeMap::new(),
            depth,
            open: 0,
            requests: 0,
            scans: 0,
        };
        bench.work();
        while bench.status().phase == Phase::Recovering {
            bench.wait();
        }
        assert_eq!(bench.status().phase, Phase::Serving);
        bench
    }

    fn tier_works(&mut self, blocks: u64) -> u64 {
        self.tier_free_at = self.tier_free_at.max(self.now) + blocks * self.tier_block_time;
        self.tier_free_at
    }

    /// Until the next operation ends, or the volume's time has come.
    fn wait(&mut self) {
        let due = self.agenda.keys().next().map(|(at, _)| *at);
        let timeout = self.volume.poll_timeout().map(|at| at.0);
        let at = due.into_iter().chain(timeout).min().expect("something is under way");
        self.now = self.now.max(at);
        // One by one: what a device without latency ends is decided on each time.
        if let Some(entry) = self.agenda.first_entry()
            && entry.key().0 <= self.now
        {
            let ((_, op), outcome) = entry.remove_entry();
            self.handle(Event::Done { op, outcome });
        }
        self.work();
    }

    fn write(&mut self, block: u64) -> bool {
        let asked = self.write_block(self.requests + 1, block);
        if asked {
            self.requests += 1;
            self.open += 1;
        }
        asked
    }

    /// Clients write these blocks, each the next one when its last write is answered.
    fn write_all(&mut self, blocks: impl IntoIterator<Item = u64>) {
        let mut left: VecDeque<u64> = blocks.into_iter().collect();
        while !left.is_empty() {
            while self.open < self.depth
                && let Some(&block) = left.front()
                && self.write(block)
            {
                left.pop_front();
            }
            self.work();
            self.wait();
        }
        while self.open > 0 {
            self.wait();
        }
    }
}

/// Numbers below `below` without an order.
fn random(below: u64) -> impl Iterator<Item = u64> {
    let mut x = 7u64;
    core::iter::repeat_with(move || {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (x >> 33) % below
    })
}

#[test]
fn a_hot_set_that_is_rewritten_without_a_pause_is_never_throttled() {
    let mut bench = Bench::begin(16 << 10, Metadata::new(), 32);
    bench.handle(Event::BackingReady);
    let hot = 2 << 10;
    bench.write_all(random(hot).take(300_000));
    let counters = bench.status().counters;
    assert_eq!(counters.throttled_writes, 0, "{counters:?}");
    // A segment is moved when hardly anything in it is live: dead ones that wait to become free count as room.
    assert!(counters.compacted_blocks < counters.writes / 20, "{counters:?}");
}

#[test]
fn a_start_walks_a_small_part_of_a_log_that_nothing_was_destaged_from() {
    let tier_blocks = 128 << 10;
    let mut bench = Bench::begin(tier_blocks, Metadata::new(), 4);
    // The backing is never ready: everything stays in the log, and no destage asks for a checkpoint.
    bench.write_all(random(VOLUME_BYTES / BLOCK_BYTES).take(60_000));
    let before = bench.status();
    assert!(before.dirty_bytes > 200 << 20, "{before:?}");

    let mut again = Bench::begin(tier_blocks, bench.tier, 4);
    assert_eq!(again.status().dirty_bytes, before.dirty_bytes);
    let layout = TierLayout::flash(tier_blocks).unwrap();
    let batches = before.counters.tier_writes as usize;
    // Head and summary of each segment, and the batches that no checkpoint knows of: those of some segments.
    let scans_max = 2 * layout.segments() as usize + 1 + batches / 2;
    assert!(again.scans < scans_max, "{} of {batches} batches and {} segments", again.scans, layout.segments());
}

/// A device takes writes faster than reads, as those with a cache do, so that each record that compaction reads comes by itself:
/// a batch for each has as many headers as records, its segments are half empty again, and nothing else is going on.
#[test]
fn a_full_log_that_nothing_leaves_comes_to_rest() {
    let layout = TierLayout {
        kind: TierKind::Flash,
        tier_blocks: 512,
        table_first: 0,
        table_blocks: 0,
        ranges_max: 64,
        payload_first: 3,
        payload_blocks: 504,
        segment_blocks: 24,
        summary_blocks: 2,
    };
    // Most of what compaction moves is not in the cache.
    let few_frames = VolumeConfig { frames: 96, ..config(layout, VOLUME_BYTES) };
    for hot in (300..400).step_by(10) {
        let mut bench = Bench::of(few_frames.clone(), Metadata::new(), TIER_READ_TIME / 1000, 8);
        // The backing is never ready: the log fills, and the last writes wait for ever.
        let mut blocks = random(hot);
        let mut waits = 0;
        while bench.open < bench.depth || !bench.agenda.is_empty() {
            while bench.open < bench.depth && blocks.next().is_some_and(|block| bench.write(block)) {}
            bench.work();
            bench.wait();
            waits += 1;
            assert!(waits < 20_000, "of {hot} blocks: {:?}", bench.status());
        }
        assert!(bench.status().counters.compacted_blocks > 100, "of {hot} blocks: {:?}", bench.status());
    }
}
