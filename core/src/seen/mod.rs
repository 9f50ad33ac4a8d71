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
}

impl Legs {
    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Legs) {
        self.client.merge(&other.client);
        self.local.merge(&other.local);
        self.network.merge(&other.network);
        self.backing.merge(&other.backing);
    }

    /// What was counted since an earlier look.
    pub fn minus(&self, earlier: &Legs) -> Legs {
        Legs {
            client: self.client.minus(&earlier.client),
            local: self.local.minus(&earlier.local),
            network: self.network.minus(&earlier.network),
            backing: self.backing.minus(&earlier.backing),
        }
    }
}

/// All that a volume has measured since it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Reads of clients.
    pub reads: Legs,
    /// Writes of clients; ranges that are made zero are apart.
    pub writes: Legs,
    /// Ranges that clients made zero: as the client saw it.
    pub zeros: Histogram,
    /// Flushes: as the client saw it.
    pub flush: Histogram,
    /// Writes and zeroed ranges that found no room, or were slowed: arrived .. admitted.
    pub throttled: Histogram,
    /// Writes to the backing while destaging: one for each operation.
    pub destage: Histogram,
    /// Syncs of the backing.
    pub backing_sync: Histogram,
    /// Reads and writes by size and time.
    pub heat: HeatMap,
    /// Sequential or random.
    pub streams: Streams,
    /// What a cache of another size would hit.
    pub miss_ratio: MissRatio,
}

impl Seen {
    /// Nothing yet, with a cache of so many blocks.
    pub fn new(cache_blocks: u64) -> Seen {
        Seen {
            reads: Legs::default(),
            writes: Legs::default(),
            zeros: Histogram::default(),
            flush: Histogram::default(),
            throttled: Histogram::default(),
            destage: Histogram::default(),
            backing_sync: Histogram::default(),
            heat: HeatMap::default(),
            streams: Streams::default(),
            miss_ratio: MissRatio::new(cache_blocks),
        }
    }

    /// Adds what another look at the same volume has counted.
    pub fn merge(&mut self, other: &Seen) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.zeros.merge(&other.zeros);
        self.flush.merge(&other.flush);
        self.throttled.merge(&other.throttled);
        self.destage.merge(&other.destage);
        self.backing_sync.merge(&other.backing_sync);
        self.heat.merge(&other.heat);
        self.streams.merge(&other.streams);
        self.miss_ratio.merge(&other.miss_ratio);
    }

    /// What was counted since an earlier look.
    pub fn minus(&self, earlier: &Seen) -> Seen {
        Seen {
            reads: self.reads.minus(&earlier.reads),
            writes: self.writes.minus(&earlier.writes),
            zeros: self.zeros.minus(&earlier.zeros),
            flush: self.flush.minus(&earlier.flush),
            throttled: self.throttled.minus(&earlier.throttled),
            destage: self.destage.minus(&earlier.destage),
            backing_sync: self.backing_sync.minus(&earlier.backing_sync),
            heat: self.heat.minus(&earlier.heat),
            streams: self.streams.minus(&earlier.streams),
            miss_ratio: self.miss_ratio.minus(&earlier.miss_ratio),
        }
    }
}
