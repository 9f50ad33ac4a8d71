//! "Sometimes" assertions: states that the fixed seeds must reach, so that a simulator which has stopped visiting
//! a corner is noticed and not believed.

/// States of interest.
pub const SOMETIMES: [&str; 61] = [
    "process killed",
    "power lost",
    "all logs lost",
    "crash during destage",
    "crash while recovering",
    "torn tier write at a crash",
    "torn backing write at a crash",
    "late backing write landed in the next life",
    "late backing read landed in the arena",
    "backing write failed",
    "backing read failed",
    "backing sync failed",
    "backing range rewritten after a failed sync",
    "backing full",
    "backing gone",
    "backing stalled",
    "tier stalled",
    "torn tail found in recovery",
    "tier write failed",
    "tier sync failed",
    "tier read failed",
    "tier damaged",
    "metadata rotted at rest",
    "damage detected by checksum",
    "damage refused at start",
    "client throttled",
    "client had to wait for frames",
    "clean frame evicted",
    "flash segment compacted",
    "fill dropped",
    "record superseded",
    "write over a destage in flight",
    "unaligned edge merged",
    "zeros destaged",
    "zero request unsupported by the backing",
    "read from flash",
    "read from the backing",
    "read of zeros",
    "write acknowledged by the backing",
    "FUA acknowledged",
    "flush acknowledged",
    "hold released with its backup valid",
    "drain answered",
    "drained through",
    "drain through released",
    "volume grown",
    "stopped with drain",
    "stopped without drain",
    "client hung up with a write open",
    "journaled batch synced",
    "journaled batch of several groups",
    "record left out of a batch for a newer one",
    "journal write failed",
    "journal sync failed",
    "batch tried again after a failure",
    "payloads read from flash in a run",
    "journal erased for an ordered group",
    "batch replayed at restart",
    "batch already in the backing at restart",
    "incomplete batch ignored at restart",
    "batch replayed after all logs were lost",
];

/// States that only several nodes reach.
pub const SOMETIMES_BETWEEN_NODES: [&str; 50] = [
    "node killed",
    "node lost its power",
    "node paused",
    "node isolated",
    "link cut one way",
    "message lost",
    "message lost at a cut",
    "message doubled",
    "payload damaged on its way",
    "no frames for a peer's message",
    "coordinator away",
    "transaction lost",
    "answer of the coordinator lost",
    "take-over asked for",
    "take-over won",
    "take-over lost to another",
    "take-over served",
    "owner served again",
    "owner stepped down",
    "owner heard of a higher term",
    "owner made quiet",
    "owner is quiet",
    "hand-over asked for",
    "owner handed over",
    "cache kept by a former owner",
    "block came from the cache of a former owner",
    "longer tail fetched from a member",
    "term remembered",
    "term begun by agreement on the tail",
    "peer failed",
    "slow peer noticed",
    "change of members proposed",
    "proposed members hold what is acknowledged",
    "change of members decided",
    "learner begun",
    "learner ready",
    "tier made anew",
    "former owners proven gone",
    "living owner fenced",
    "lock taken from a living owner",
    "pins ended",
    "every log lost in quarantine",
    "loss accepted",
    "what is synced taken by the operator's word",
    "write-through volume lost its log while the backing failed",
    "flushed writes survived a power cut everywhere",
    "write acknowledged by the backing for want of peers",
    "late write of a former owner landed in quarantine",
    "volume released",
    "node started anew after its tier had failed",
];

/// Counters of [`SOMETIMES`] and [`SOMETIMES_BETWEEN_NODES`].
#[derive(Clone, Debug)]
pub struct Coverage {
    counts: [u64; SOMETIMES.len()],
    between_nodes: [u64; SOMETIMES_BETWEEN_NODES.len()],
}

impl Default for Coverage {
    fn default() -> Self {
        Coverage { counts: [0; SOMETIMES.len()], between_nodes: [0; SOMETIMES_BETWEEN_NODES.len()] }
    }
}

impl Coverage {
    /// So many more of one of the names.
    pub fn add(&mut self, name: &'static str, count: u64) {
        if let Some(i) = SOMETIMES.iter().position(|&s| s == name) {
            self.counts[i] += count;
        } else {
            let known = SOMETIMES_BETWEEN_NODES.iter().position(|&s| s == name);
            self.between_nodes[known.unwrap_or_else(|| panic!("no name of a state: {name}"))] += count;
        }
    }

    /// The state was reached once more.
    pub fn see(&mut self, name: &'static str) {
        self.add(name, 1);
    }

    /// Adds what another run has reached.
    pub fn merge(&mut self, other: &Coverage) {
        for (a, b) in self.counts.iter_mut().zip(other.counts) {
            *a += b;
        }
        for (a, b) in self.between_nodes.iter_mut().zip(other.between_nodes) {
            *a += b;
        }
    }

    /// Name and count of each that only several nodes reach.
    pub fn between_nodes(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        SOMETIMES_BETWEEN_NODES.iter().copied().zip(self.between_nodes)
    }

    /// Name and count of each that one node reaches.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        SOMETIMES.iter().copied().zip(self.counts)
    }
}
