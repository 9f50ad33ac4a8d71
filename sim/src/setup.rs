//! What a seed decides before a run begins: the shape of the volume, the load and which faults may happen.
//!
//! Each seed draws its own mixture ("swarm testing"): most faults are off in most runs, so that rare combinations
//! are reached that an average mixture would bury.

use crate::cluster::ClusterSetup;
use crate::random::Random;
use crate::tier_migration::Landing;
use forebay_core::format::{TIER_BLOCKS_MIN, TierKind, TierLayout, Version};
use forebay_core::status::{DestageMode, Policy};
use forebay_core::types::*;

/// Chances of faults, in cases of a million.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // each name says which fault
pub struct Faults {
    pub backing_write_error: u32,
    pub backing_read_error: u32,
    pub backing_sync_error: u32,
    pub backing_full: u32,
    pub backing_gone: u32,
    pub backing_stall: u32,
    /// Backing refuses zero and hole requests.
    pub backing_zero_unsupported: bool,
    pub tier_write_error: u32,
    pub tier_read_error: u32,
    pub tier_sync_error: u32,
    pub tier_full: u32,
    pub tier_stall: u32,
    /// For each completed flash write: it is damaged later, never landed, or landed elsewhere.
    pub flash_rot: u32,
    pub flash_lost: u32,
    pub flash_misdirected: u32,
    /// For each record of a memory tier: a bit of its frame flips.
    pub frame_rot: u32,
    /// For each crash: a bit flips in metadata that a start needs, or has twice.
    pub metadata_rot: u32,
    /// For each effect and event.
    pub process_killed: u32,
    pub power_lost: u32,
    pub logs_lost: u32,
}

impl Faults {
    /// Writes to the backing, or their syncs, fail, for want of a payload that is what it was, too. Then everything since the last good sync is written again, oldest first:
    /// meanwhile the backing is behind what it has acknowledged, of which nothing is under a barrier.
    pub fn backing_write_fails(&self) -> bool {
        [self.backing_write_error, self.backing_sync_error, self.backing_full, self.backing_gone, self.frame_rot]
            .iter()
            .any(|&rate| rate > 0)
    }
}

/// One thing a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as forebay_core's requests
pub enum Step {
    Read { offset: u64, length: u32 },
    Write { offset: u64, length: u32, fua: bool },
    Zero { offset: u64, length: u64, hole: bool, fua: bool },
    Flush,
    Prefetch { offset: u64, length: u32 },
}

/// How the world ends a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// SIGKILL: memory and devices keep what they have taken; writes in flight may still land.
    ProcessKilled,
    /// The host loses its power.
    PowerLost,
    /// SIGKILL, and the tier is destroyed.
    LogsLost,
}

/// A crash at a fixed place, for exhaustive runs.
#[derive(Clone, Copy, Debug)]
pub struct CrashPlan {
    /// After so many effects and events.
    pub point: u64,
    /// How the life ends.
    pub crash: Crash,
    /// What becomes of what was in flight or unsynced.
    pub landing: Landing,
}

/// Lies of the world. With any of them a correct volume must be reported as wrong: that proves that the oracle sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// The backing says that a sync is done, and keeps nothing.
    BackingSyncDropped,
    /// The tier does.
    TierSyncDropped,
    /// Clients hear of a write's end when they have asked for it.
    AcknowledgedEarly,
    /// The backing says that a write is done, and does it later, in any order.
    BackingReordered,
    /// The backing answers some reads with what it held before.
    BackingStaleRead,
    /// The tier forgets one completed write of many.
    TierWriteLost,
    /// A memory tier is used while requests of the former process still point into it.
    ArenaBeforeLock,
}

/// Everything that shapes a run.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // names as in forebay_core::VolumeConfig, or plain
pub struct Setup {
    pub version: Version,
    pub layout: TierLayout,
    pub size_bytes: u64,
    /// Room in the backing for resizes.
    pub size_bytes_max: u64,
    pub policy: Policy,
    pub frames: u32,
    pub backing_align: u32,
    pub backing_depth_max: u32,
    pub backing_write_bytes_max: u32,
    pub destage_round_bytes_max: u64,
    pub destage_delay: Duration,
    pub journal_blocks: u32,
    pub destage: DestageMode,
    pub drain_max: Duration,

    pub clients: usize,
    /// So many of them do nothing but read.
    pub readers: usize,
    /// Requests that one client has open at a time.
    pub depth_max: usize,
    /// Requests of all clients together.
    pub requests: u32,
    /// Requests in order instead of random ones, all by one client.
    pub script: Option<Vec<Step>>,
    pub request_bytes_max: u32,
    /// Blocks that most requests hit.
    pub hot_blocks: u64,
    /// Weights of read, write, zero, flush, prefetch.
    pub weights: [u32; 5],
    /// Chances of what a request may be or bring, in a million.
    pub fua: u32,
    pub unaligned: u32,
    pub cold: u32,
    pub hang_up: u32,
    pub control: u32,
    pub think_micros_max: u64,
    /// The operator holds the backing for so long, from the beginning on; 0: only now and then.
    pub hold: Duration,
    pub tier_micros_max: u64,
    pub backing_micros_max: u64,
    /// Until no write of an earlier process can land in the backing any more.
    pub ready_micros_max: u64,
    /// The tier stalls in this one of its writes, counted over all lives.
    pub late_tier_write: Option<u64>,
    /// Events handed in between two calls of `settle`.
    pub batch_max: u64,
    pub faults: Faults,
    pub crash_plan: Option<CrashPlan>,
    /// In a million of points: the backing is checked against the promise for the loss of all logs.
    pub check: u32,
    /// Several nodes; none: one has the volume to itself.
    pub cluster: Option<ClusterSetup>,
}

/// Draws a rate that is often zero and otherwise spread over magnitudes.
fn rate(random: &mut Random, on_in: u64, max: u32) -> u32 {
    if random.below(on_in) != 0 {
        return 0;
    }
    let magnitude = random.below(3) as u32;
    (max / 10u32.pow(magnitude)).max(1)
}

impl Setup {
    /// No faults, no chance: what exhaustive runs and scenarios start from.
    pub fn quiet(kind: TierKind, blocks: u64) -> Setup {
        let layout = match kind {
            TierKind::Memory => TierLayout::memory(TIER_BLOCKS_MIN),
            TierKind::Flash => TierLayout::flash(TIER_BLOCKS_MIN),
        }
        .expect("the smallest tier");
        Setup {
            version: Version::Two,
            layout,
            size_bytes: blocks * BLOCK_BYTES,
            size_bytes_max: (blocks + 4) * BLOCK_BYTES,
            policy: Policy::Back,
            frames: match kind {
                TierKind::Memory => layout.payload_blocks,
                TierKind::Flash => 96,
            },
            backing_align: 512,
            backing_depth_max: 8,
            backing_write_bytes_max: 64 << 10,
            destage_round_bytes_max: 256 << 10,
            destage_delay: Duration(0),
            journal_blocks: 0,
            destage: DestageMode::Auto,
            drain_max: Duration(0),
            clients: 1,
            readers: 0,
            depth_max: 1,
            requests: 0,
            script: None,
            request_bytes_max: 16 << 10,
            hot_blocks: 4,
            weights: [1, 1, 0, 0, 0],
            fua: 0,
            unaligned: 0,
            cold: 0,
            hang_up: 0,
            control: 0,
            hold: Duration(0),
            think_micros_max: 50,
            tier_micros_max: 100,
            backing_micros_max: 5_000,
            ready_micros_max: 2_000_000,
            late_tier_write: None,
            batch_max: 1,
            faults: Faults::default(),
            crash_plan: None,
            check: 1_000_000,
            cluster: None,
        }
    }

    /// A journal beside the backing, for half of the runs, and clients that flush often enough to make use of it.
    /// Draws from a stream of its own, so that the other half stays what its seeds have always been.
    pub fn draw_journal(&mut self, random: &mut Random) {
        if random.below(2) == 0 {
            return;
        }
        self.journal_blocks = 2 * random.range(24, 64) as u32;
        if random.below(8) == 0 {
            self.journal_blocks = 2 * random.range(2, 6) as u32;
        }
        self.weights[3] += random.pick(&[1, 3, 8]);
        self.destage =
            random.pick(&[DestageMode::Auto, DestageMode::Auto, DestageMode::Journaled, DestageMode::Ordered]);
    }

    /// Metadata that rots at rest, for one run of eight. From a stream of its own, as above.
    pub fn draw_rot(&mut self, random: &mut Random) {
        if random.below(8) == 0 {
            self.faults.metadata_rot = random.pick(&[20_000, 200_000, 1_000_000]);
        }
    }

    /// Writes and syncs of the tier that fail now and then. From a stream of its own, as above.
    pub fn draw_failing_tier(&mut self, random: &mut Random) {
        self.faults.tier_write_error = random.pick(&[0, 300, 3_000]);
        self.faults.tier_sync_error = random.pick(&[0, 1_000, 10_000]);
    }

    /// A tier that is slow, or stands still now and then, before a backing that takes batches by way of a journal; clients
    /// that write few blocks again and again. What is newest is for long not in the log.
    pub fn draw_slow_tier(&mut self, random: &mut Random) {
        self.layout = TierLayout::flash(TIER_BLOCKS_MIN + random.pick(&[0, 24, 100])).expect("large enough");
        self.frames = random.pick(&[64, 96, 160]);
        self.policy = Policy::Back;
        self.journal_blocks = 2 * random.range(24, 64) as u32;
        self.destage = random.pick(&[DestageMode::Auto, DestageMode::Journaled, DestageMode::Journaled]);
        self.destage_delay = random.pick(&[Duration(0), Duration::from_millis(1)]);
        self.tier_micros_max = random.pick(&[2_000, 20_000, 200_000]);
        self.backing_micros_max = random.pick(&[50, 1_000, 20_000]);
        self.ready_micros_max = random.pick(&[1_000, 100_000, 2_000_000]);
        self.think_micros_max = random.pick(&[50, 2_000, 20_000]);
        self.clients = random.range(1, 3) as usize;
        self.depth_max = random.pick(&[4, 8]);
        (self.hot_blocks, self.cold) = (random.pick(&[2, 3, 6]), 50_000);
        self.request_bytes_max = 4096;
        self.weights = [1, 20, 1, random.pick(&[0, 1, 2]), 0];
        self.faults.tier_stall = random.pick(&[0, 20_000, 200_000]);
        self.faults.process_killed = random.pick(&[2_000, 10_000, 20_000]);
        self.faults.power_lost = random.pick(&[0, 0, 5_000]);
    }

    /// Memory that rots under the log.
    pub fn draw_rotting_memory(&mut self, random: &mut Random) {
        self.layout = TierLayout::memory(TIER_BLOCKS_MIN + random.pick(&[0, 24, 100])).expect("large enough");
        self.frames = self.layout.payload_blocks;
        self.backing_align = random.pick(&[512, 4096, 4096]);
        self.request_bytes_max = random.pick(&[4096, 16 << 10]);
        self.unaligned = random.pick(&[0, 50_000]);
        self.faults.frame_rot = random.pick(&[1_000, 10_000]);
    }

    /// One node takes volumes of whole units of its backing only, others are refused where they are made. (In a cluster it is not known which
    /// node will open the backing in which way: core counts in 4 KiB there, and the volume's last block may be shorter.)
    pub fn keep_to_whole_units(&mut self) {
        self.size_bytes = self.size_bytes.next_multiple_of(u64::from(self.backing_align));
    }

    /// The world that a seed makes.
    pub fn draw(random: &mut Random) -> Setup {
        let kind = random.pick(&[TierKind::Memory, TierKind::Flash]);
        let blocks = match random.below(8) {
            0 => random.range(500, 700),
            1 => random.range(1, 6),
            _ => random.range(8, 64),
        };
        let tier_blocks = TIER_BLOCKS_MIN + random.pick(&[0, 0, 0, 24, 100]);
        let mut setup = Setup::quiet(kind, blocks);
        setup.layout = match kind {
            TierKind::Memory => TierLayout::memory(tier_blocks),
            TierKind::Flash => TierLayout::flash(tier_blocks),
        }
        .expect("large enough");
        setup.frames = match kind {
            TierKind::Memory => setup.layout.payload_blocks,
            TierKind::Flash => random.pick(&[64, 96, 160]),
        };
        if random.below(4) == 0 {
            // A last block that is not whole.
            setup.size_bytes -= 512 * random.range(1, 7);
        }
        setup.policy = if random.below(5) == 0 { Policy::Through } else { Policy::Back };
        setup.backing_align = random.pick(&[512, 512, 4096]);
        setup.backing_depth_max = random.pick(&[2, 4, 8, 32]);
        setup.backing_write_bytes_max = random.pick(&[4096, 16 << 10, 128 << 10]);
        setup.destage_round_bytes_max = random.pick(&[16 << 10, 64 << 10, 1 << 20]);
        setup.destage_delay = random.pick(&[Duration(0), Duration::from_millis(1), Duration::from_millis(200)]);
        setup.clients = random.range(1, 3) as usize;
        setup.depth_max = random.pick(&[1, 2, 4, 8]);
        setup.requests = random.pick(&[20, 100, 200, 400, 800]);
        setup.request_bytes_max = random.pick(&[4096, 16 << 10, 64 << 10]);
        setup.hot_blocks = random.pick(&[1, 2, 6, 20]);
        setup.weights = [
            random.range(1, 10) as u32,
            random.range(4, 20) as u32,
            random.below(4) as u32,
            random.pick(&[0, 1, 3, 8]),
            random.below(3) as u32,
        ];
        setup.fua = random.pick(&[0, 0, 20_000, 200_000]);
        setup.unaligned = random.pick(&[0, 0, 50_000, 300_000]);
        setup.cold = random.pick(&[50_000, 200_000, 600_000]);
        setup.hang_up = rate(random, 3, 50_000);
        setup.control = rate(random, 2, 100_000);
        setup.think_micros_max = random.pick(&[1, 50, 2_000, 50_000]);
        setup.tier_micros_max = random.pick(&[1, 100, 2_000]);
        setup.backing_micros_max = random.pick(&[50, 5_000, 50_000, 400_000]);
        setup.batch_max = random.pick(&[1, 4, 16]);
        setup.check = random.pick(&[5_000, 20_000, 100_000]);
        setup.faults = Faults::draw(random);
        // From a copy: what was not there when a seed was noted must not change what it means.
        let mut aside = random.clone();
        setup.drain_max = aside.pick(&[Duration(0), Duration(0), Duration::from_millis(20), Duration::from_secs(1)]);
        setup.version = if aside.below(8) == 0 { Version::One } else { Version::Two };
        if kind == TierKind::Flash && random.below(8) == 0 {
            setup.faults.flash_rot = rate(random, 2, 50_000);
            setup.faults.flash_lost = rate(random, 2, 50_000);
            setup.faults.flash_misdirected = rate(random, 2, 50_000);
        }
        setup
    }
}

impl Faults {
    /// Those of most runs.
    fn draw(random: &mut Random) -> Faults {
        Faults {
            backing_write_error: rate(random, 4, 200_000),
            backing_read_error: rate(random, 4, 200_000),
            backing_sync_error: rate(random, 4, 300_000),
            backing_full: rate(random, 8, 100_000),
            backing_gone: rate(random, 8, 10_000),
            backing_stall: rate(random, 4, 50_000),
            backing_zero_unsupported: random.below(6) == 0,
            tier_write_error: rate(random, 10, 50_000),
            tier_read_error: rate(random, 8, 100_000),
            tier_sync_error: rate(random, 10, 100_000),
            tier_full: rate(random, 12, 20_000),
            tier_stall: rate(random, 6, 50_000),
            flash_rot: 0,
            flash_lost: 0,
            flash_misdirected: 0,
            frame_rot: 0,
            metadata_rot: 0,
            process_killed: rate(random, 2, 20_000),
            power_lost: rate(random, 2, 20_000),
            logs_lost: rate(random, 6, 5_000),
        }
    }
}
