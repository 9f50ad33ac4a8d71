//! What a volume shows of itself: policies with reasons, amounts, counters. The same words reach the CLI, the API,
//! the metrics and the dashboard.

use crate::types::*;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// When the backing has it.
    Through,
    /// When the tier has it.
    Back,
}

/// Why the effective policy is not the requested one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It is the requested one.
    AsRequested,
    /// Changing to write-through: the log is being emptied first.
    Draining,
    /// The backing is kept complete until it is released.
    DrainedThrough,
    /// Fewer peers than asked for have a copy: the backing must have a write as well.
    TooFewPeers,
    /// The tier has failed: writes and flushes fail, reads go on.
    TierError,
    /// The volume is being stopped.
    Stopping,
}

impl Reason {
    /// Stable code for scripts and metrics.
    pub fn code(self) -> &'static str {
        match self {
            Reason::AsRequested => "as-requested",
            Reason::Draining => "draining",
            Reason::DrainedThrough => "drained-through",
            Reason::TooFewPeers => "too-few-peers",
            Reason::TierError => "tier-error",
            Reason::Stopping => "stopping",
        }
    }
}

/// What a flush promises, in a cluster (A2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Flush {
    /// Media while all members are on flash, else replicated.
    #[default]
    Best,
    /// Every member's medium has it.
    Media,
    /// Every member holds it.
    Replicated,
    /// The backing has synced it.
    Destage,
}

/// How groups reach the backing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DestageMode {
    /// One by one, each durable before the next.
    Ordered,
    /// Many merged into one batch, by the journal beside the backing.
    Journaled,
    /// Ordered while groups are large, journaled when they are small or the backlog grows.
    #[default]
    Auto,
}

/// Why destage is ordered or journaled now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DestageReason {
    /// It is the requested mode.
    AsRequested,
    /// The backing has no journal.
    NoJournal,
    /// Write-through: each write waits for the backing, so there is nothing to merge.
    PolicyThrough,
    /// The tier failed; what it holds goes out group by group.
    TierError,
    /// No two groups have waited at a time yet.
    NothingToMerge,
    /// Groups are small.
    SmallGroups,
    /// Groups are large: a journal would write all of it twice and merge little.
    LargeGroups,
    /// More comes in than goes out.
    BacklogGrows,
}

impl DestageReason {
    /// Stable code for scripts and metrics.
    pub fn code(self) -> &'static str {
        match self {
            DestageReason::AsRequested => "as-requested",
            DestageReason::NoJournal => "no-journal",
            DestageReason::PolicyThrough => "policy-through",
            DestageReason::TierError => "tier-error",
            DestageReason::NothingToMerge => "nothing-to-merge",
            DestageReason::SmallGroups => "small-groups",
            DestageReason::LargeGroups => "large-groups",
            DestageReason::BacklogGrows => "backlog-grows",
        }
    }
}

/// State of the way to the backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackingState {
    /// Waiting until no earlier process can write to it any more.
    AwaitingLock,
    /// What an earlier life left in the journal is brought into it, before anything else.
    ReplayingJournal,
    /// Nothing is written to it before it is proved that former owners write no more: whoever took over from this owner could not name
    /// it as one that may still write, or its window would be one too many (T5, T8).
    AwaitingFence,
    /// In use: destage may write to it.
    Ready,
    /// Held unchanged for a backup or snapshot.
    Held,
    /// The last operation failed; it is tried again, everything unsynced is rewritten.
    Failing(IoError),
    /// Destage goes on, and reads fail: each is tried again for a while before its client is told.
    FailingReads(IoError),
}

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Reading the log of an earlier run.
    Recovering,
    /// A member or learner of a cluster, or nobody yet: takes what an owner sends, and serves no client.
    Following,
    /// The owner of a new term: requests are taken, and nothing is answered before every member holds the tail (T4).
    Agreeing,
    /// Clients' requests are taken and answered.
    Serving,
    /// Finishing; new requests are refused.
    Stopping,
    /// Nothing more will be done: safe to close.
    Stopped,
    /// The tier cannot be used; the text says why. Nothing was changed.
    Refused(&'static str),
}

/// Why a hold ended before its release: what was copied under it is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldEnd {
    /// Its time was over.
    Time,
    /// The tier was as full as it may be under a hold, or writes waited for room in it.
    TierFull,
    /// What was dirty took as long to drain as it may.
    DrainTime,
    /// The places for trimmed and zeroed ranges were used up.
    RangesFull,
    /// Requests waited for the backing: policy *through*, too few copies, or flushes that mean destage.
    BackingNeeded,
    /// It was released before it had begun.
    Released,
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlError {
    /// A drain or hold is already under way, or the phase does not allow the command.
    Busy,
    /// There is no hold, or it had ended: a backup made under it is void.
    NotHeld,
    /// A hold, or a drain for one, was ended before.
    HoldEnded(HoldEnd),
    /// A hold that begins now would end at once.
    HoldRefused(HoldEnd),
    /// A volume can only grow, by whole sectors, up to [`VOLUME_BYTES_MAX`].
    BadSize,
    /// The backing kept failing.
    BackingFailed,
    /// The tier failed.
    TierFailed,
}

/// Counters since start; all grow only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // each name says what it counts
pub struct Counters {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub zeros: u64,
    pub zero_bytes: u64,
    pub flushes: u64,
    pub read_blocks_from_log: u64,
    pub read_blocks_from_cache: u64,
    pub read_blocks_of_zeros: u64,
    pub read_blocks_from_backing: u64,
    pub superseded_blocks: u64,
    pub destaged_blocks: u64,
    pub backing_writes: u64,
    pub backing_write_bytes: u64,
    pub backing_reads: u64,
    pub backing_syncs: u64,
    pub backing_errors: u64,
    pub journal_batches: u64,
    pub journal_writes: u64,
    pub journal_write_bytes: u64,
    pub journal_left_out: u64,
    pub tier_writes: u64,
    pub tier_write_blocks: u64,
    pub tier_syncs: u64,
    pub tier_errors: u64,
    pub compacted_blocks: u64,
    pub evictions: u64,
    pub fills_dropped: u64,
    pub checksum_errors: u64,
    pub throttled_writes: u64,
    pub repeated_reads: u64,
}

/// Counters of what nodes tell each other, since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // each name says what it counts
pub struct PeerCounters {
    pub messages: u64,
    pub blocks: u64,
    pub resends: u64,
    pub refusals: u64,
    pub marks: u64,
    pub former_hits: u64,
    pub former_misses: u64,
    pub cached_blocks_sent: u64,
}

impl PeerCounters {
    /// Sums of both, counter by counter.
    pub fn and(&self, other: &PeerCounters) -> PeerCounters {
        PeerCounters {
            messages: self.messages + other.messages,
            blocks: self.blocks + other.blocks,
            resends: self.resends + other.resends,
            refusals: self.refusals + other.refusals,
            marks: self.marks + other.marks,
            former_hits: self.former_hits + other.former_hits,
            former_misses: self.former_misses + other.former_misses,
            cached_blocks_sent: self.cached_blocks_sent + other.cached_blocks_sent,
        }
    }
}

/// Reads from the cache of the owner that has handed over (K1): blocks, in this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each name says what it is
pub struct FormerStatus {
    pub node: crate::cluster::NodeId,
    pub until: Instant,
    pub hits: u64,
    pub misses: u64,
    /// Questions that wait for their answer.
    pub asked: u32,
}

/// A volume at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each name says what it is
pub struct Status {
    pub phase: Phase,
    pub size_bytes: u64,
    pub term: Term,
    pub requested: Policy,
    pub effective: Policy,
    pub reason: Reason,
    pub reason_since: Instant,
    pub backing: BackingState,
    /// Time until a hold ends by itself; none while the backing is not held.
    pub hold_left: Option<Duration>,
    /// Way of destage that is asked for; the effective one may differ.
    pub destage: DestageMode,
    /// Groups go to the backing merged, through the journal; otherwise one by one.
    pub journaled: bool,
    pub destage_reason: DestageReason,
    /// Bytes of the journal beside the backing, both areas together; 0: there is none.
    pub journal_bytes: u64,
    /// Mean size of the groups that clients made, the newest counting most.
    pub group_bytes_mean: u64,
    /// Live bytes in the log that are not yet durable in the backing; a zeroed range counts as one block. 0: the backing is complete.
    pub dirty_bytes: u64,
    /// Bytes of the tier that are neither live nor free (flash: waiting for compaction or release).
    pub dead_bytes: u64,
    /// Most dirty bytes that are taken before writes wait.
    pub dirty_bytes_max: u64,
    pub clean_bytes: u64,
    pub groups_waiting: u32,
    /// Age of the oldest dirty write.
    pub oldest_dirty: Duration,
    /// Measured speed of the backing while destaging.
    pub destage_bytes_per_sec: u64,
    /// Dirty bytes at the measured speed; none while the speed is not known.
    pub drain_left: Option<Duration>,
    /// How long the log may take to drain before writes are slowed to the backing's speed; 0 = as long as it has room.
    pub drain_max: Duration,
    /// Write requests waiting for room in the tier.
    pub waiting_writes: u32,
    /// How long the oldest write or flush has waited that was taken, and not answered.
    pub oldest_unanswered: Duration,
    pub accepted: Lsn,
    pub held: Lsn,
    pub committed: Lsn,
    pub synced: Lsn,
    pub destaged: Lsn,
    pub counters: Counters,
}

/// What keeps a volume from being quiet, as it must be before it changes hands; of several the first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unrest {
    /// A client's read has had no answer from the backing or the tier.
    Reads,
    /// A client's write waits for room, or for what lies beside it in the backing.
    Writes,
    /// A client's write or flush waits until the members, the tier or the backing have it.
    Answers,
    /// The node that is to have the volume does not have the whole log.
    Member,
    /// The log, which nobody is to need any more, is not empty.
    Records,
    /// Something is under way to the backing, or was not synced.
    Backing,
    /// The journal holds a batch.
    Journal,
    /// A checkpoint is under way to the tier.
    Checkpoint,
}
