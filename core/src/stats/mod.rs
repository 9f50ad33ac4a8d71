//! What a volume measures of itself: how long requests and their legs took, by which sizes, in which order, and what a
//! larger cache would bring.
//!
//! Plain values with one owner, the volume. All of them only grow, so what happened between two looks is their difference
//! (`minus`), and several seconds, or volumes, add up (`merge`). Nothing here allocates after the beginning.
//!
//! Times are those of the clock that the executor hands in: it is read once for each round of events and once before their
//! effects are taken, so what takes less than a round is told as long as the round.

mod heat;
mod histogram;
mod miss_ratio;
mod streams;

pub use heat::{HeatMap, LATENCY_CLASSES, SIZE_CLASSES};
pub use histogram::Histogram;
pub use miss_ratio::{MissRatio, ReuseSampler};
pub use streams::{Shares, Streams};

/// Largest count that is taken from what was kept: hundred thousands of such add up without overflow.
const KEPT_COUNT_MAX: u64 = 1 << 44;

/// The legs of requests of one direction, each with its own count: not every request has every leg.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Legs {
    /// What the client saw, less its own way here: a request arrives whole .. its reply is an effect. One for each request
    /// that was answered without error.
    pub client: Histogram,
    /// The tier. Of writes: submitted .. held by flash with everything before it; of a memory tier: accepted .. in the log; one
    /// for each write. Of reads: one for each that memory answers, and one for each block that was read from flash.
    pub local: Histogram,
    /// Other nodes. Of writes: first sent .. held by the last member; one for each write of a log that several keep. Of
    /// reads: one for each question to the former owner's cache.
    pub network: Histogram,
    /// The backing. Of reads: one for each operation. Of writes: those that waited for the backing; accepted .. completed
    /// there, and the reads of what a write covers in part.
    pub backing: Histogram,
    /// Waiting for room or copies. Of writes, and of ranges that are made zero: arrived .. admitted, where there was no room or they
    /// were slowed. Of reads: arrived .. begun, where there was no memory for them; and found .. answered, where some member did
    /// not hold yet what they show, or there was no lease.
    pub waiting: Histogram,
}

impl Legs {
    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Legs) {
        self.client.merge(&other.client);
        self.local.merge(&other.local);
        self.network.merge(&other.network);
        self.backing.merge(&other.backing);
        self.waiting.merge(&other.waiting);
    }

    /// All but the waiting, which is kept apart.
    fn of_numbers(next: &mut impl FnMut() -> u64) -> Legs {
        Legs {
            client: Histogram::of_numbers(next),
            local: Histogram::of_numbers(next),
            network: Histogram::of_numbers(next),
            backing: Histogram::of_numbers(next),
            waiting: Histogram::default(),
        }
    }

    /// What was counted since an earlier look.
    pub fn minus(&self, earlier: &Legs) -> Legs {
        Legs {
            client: self.client.minus(&earlier.client),
            local: self.local.minus(&earlier.local),
            network: self.network.minus(&earlier.network),
            backing: self.backing.minus(&earlier.backing),
            waiting: self.waiting.minus(&earlier.waiting),
        }
    }
}

/// All that a volume has measured since it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Reads of clients.
    pub reads: Legs,
    /// Writes of clients; ranges that are made zero are apart.
    pub writes: Legs,
    /// Ranges that clients made zero: as the client saw it.
    pub zeros: Histogram,
    /// Flushes: as the client saw it.
    pub flush: Histogram,
    /// Writes to the backing while destaging: one for each operation.
    pub destage: Histogram,
    /// Syncs of the backing: how long each took.
    pub backing_sync: Histogram,
    /// Reads and writes by size and time.
    pub heat: HeatMap,
    /// How much of it came in sequence.
    pub streams: Streams,
    /// What a cache of another size would hit.
    pub miss_ratio: MissRatio,
}

impl Stats {
    /// Nothing yet, with a cache of so many blocks.
    pub fn new(cache_blocks: u64) -> Stats {
        Stats {
            reads: Legs::default(),
            writes: Legs::default(),
            zeros: Histogram::default(),
            flush: Histogram::default(),
            destage: Histogram::default(),
            backing_sync: Histogram::default(),
            heat: HeatMap::default(),
            streams: Streams::default(),
            miss_ratio: MissRatio::new(cache_blocks),
        }
    }

    fn histograms(&self) -> [&Histogram; 13] {
        [
            &self.reads.client,
            &self.reads.local,
            &self.reads.network,
            &self.reads.backing,
            &self.writes.client,
            &self.writes.local,
            &self.writes.network,
            &self.writes.backing,
            &self.zeros,
            &self.flush,
            &self.writes.waiting,
            &self.destage,
            &self.backing_sync,
        ]
    }

    /// All counts, in a fixed order, for whoever keeps them. What is no count (the streams that are followed) is not among
    /// them.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let histograms = self.histograms().into_iter().flat_map(Histogram::numbers);
        let curves = self.heat.numbers().chain(self.streams.numbers()).chain(self.miss_ratio.numbers());
        // Added later, and so at the end: who knows of fewer numbers takes no notice.
        histograms.chain(curves).chain(self.reads.waiting.numbers())
    }

    /// Of what [`Stats::numbers`] gave; where it ends early zeros follow. Numbers from outside do no harm: what cannot be is
    /// made the nearest that can.
    pub fn of_numbers(numbers: impl Iterator<Item = u64>) -> Stats {
        let mut numbers = numbers.fuse();
        let mut next = || numbers.next().unwrap_or(0);
        let next = &mut next;
        let (reads, mut writes) = (Legs::of_numbers(next), Legs::of_numbers(next));
        let (zeros, flush) = (Histogram::of_numbers(next), Histogram::of_numbers(next));
        writes.waiting = Histogram::of_numbers(next);
        let mut seen = Stats {
            reads,
            writes,
            zeros,
            flush,
            destage: Histogram::of_numbers(next),
            backing_sync: Histogram::of_numbers(next),
            heat: HeatMap::of_numbers(next),
            streams: Streams::of_numbers(next),
            miss_ratio: MissRatio::of_numbers(next),
        };
        seen.reads.waiting = Histogram::of_numbers(next);
        seen
    }

    /// Adds what another look at the same volume has counted.
    pub fn merge(&mut self, other: &Stats) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.zeros.merge(&other.zeros);
        self.flush.merge(&other.flush);
        self.destage.merge(&other.destage);
        self.backing_sync.merge(&other.backing_sync);
        self.heat.merge(&other.heat);
        self.streams.merge(&other.streams);
        self.miss_ratio.merge(&other.miss_ratio);
    }

    /// What was counted since an earlier look.
    pub fn minus(&self, earlier: &Stats) -> Stats {
        Stats {
            reads: self.reads.minus(&earlier.reads),
            writes: self.writes.minus(&earlier.writes),
            zeros: self.zeros.minus(&earlier.zeros),
            flush: self.flush.minus(&earlier.flush),
            destage: self.destage.minus(&earlier.destage),
            backing_sync: self.backing_sync.minus(&earlier.backing_sync),
            heat: self.heat.minus(&earlier.heat),
            streams: self.streams.minus(&earlier.streams),
            miss_ratio: self.miss_ratio.minus(&earlier.miss_ratio),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{BlockIndex, Duration};
    use alloc::vec::Vec;

    fn some() -> Stats {
        let mut seen = Stats::new(1000);
        let Stats { reads, writes, backing_sync, .. } = &mut seen;
        let some = [&mut reads.client, &mut writes.network, backing_sync, &mut reads.waiting, &mut writes.waiting];
        for (number, histogram) in (1..).zip(some) {
            histogram.record_many(Duration::from_micros(number * 10), number);
        }
        seen.heat.write(4096, Duration::from_micros(70));
        seen.streams.read(0, 512);
        let mut sampler = ReuseSampler::new(&seen.miss_ratio);
        for block in 0..2000 {
            sampler.read(&mut seen.miss_ratio, BlockIndex(block % 500), 1);
        }
        seen
    }

    #[test]
    fn what_was_kept_comes_back() {
        let seen = some();
        let numbers: Vec<u64> = seen.numbers().collect();
        let mut back = Stats::of_numbers(numbers.iter().copied());
        // Which streams are followed is no count.
        assert_eq!((back.streams.reads(), back.streams.writes()), (seen.streams.reads(), seen.streams.writes()));
        back.streams = seen.streams;
        assert_eq!(back, seen);
        assert!(back.miss_ratio.hit_ratio(1000 * 4096).is_some());
    }

    #[test]
    fn numbers_that_cannot_be_do_no_harm() {
        for number in [0, 1, u64::MAX] {
            let mut seen = Stats::of_numbers(core::iter::repeat(number));
            for _ in 0..100 {
                seen.merge(&seen.clone().minus(&Stats::new(0)));
                seen = Stats::of_numbers(seen.numbers());
            }
            let _ = (seen.miss_ratio.hit_ratio(u64::MAX), seen.miss_ratio.working_set_bytes());
            let _ = (seen.reads.client.percentile(99.0), seen.miss_ratio.cache_bytes());
        }
        assert_eq!(Stats::of_numbers(core::iter::empty()).reads, Legs::default());
    }
}
