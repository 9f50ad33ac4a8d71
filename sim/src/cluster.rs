//! What a seed decides about a cluster: its nodes, the links between them, and what happens to both.

use crate::random::Random;
use crate::setup::{Faults, Setup};
use forebay_core::format::{TIER_BLOCKS_MIN, TierKind, TierLayout, Version};
use forebay_core::status::{Flush, Policy};
use forebay_core::types::*;

/// A node as it is bought.
#[derive(Clone, Copy, Debug)]
pub struct NodeSetup {
    /// Kind and size of its tier.
    pub layout: TierLayout,
    /// Frames of its arena.
    pub frames: u32,
    /// What its clock shows when the world's shows nothing.
    pub clock_offset: Duration,
    /// Parts in a million by which its clock is fast.
    pub clock_fast: i64,
}

/// What happens to a node or to a link, now and then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mischief {
    /// The process is killed.
    Kill,
    /// The host loses its power.
    Power,
    /// The process stands still for a while.
    Pause,
    /// One direction between two nodes carries nothing for a while.
    Cut,
    /// A node is cut off from all others, and they from it, for a while.
    Isolate,
    /// The coordinator does not answer for a while.
    Outage,
    /// All hosts lose their power at once.
    Blackout,
    /// The operator moves the volume to a member.
    HandOver,
    /// The host is lost, with its memory and its media; another one comes in its place. Only where it is planned.
    Destroy,
    /// As `Isolate`, and from the coordinator as well; its clients stay. Only where it is planned.
    CutOff,
    /// The server of the image takes the owner's lock from it, and refuses what it writes there; it is told at the end. Only where it is
    /// planned.
    Revoke,
    /// Records reach the node so late that each keeps a write waiting, and none so long that the node would count as dead; for
    /// a while. Only where it is planned.
    Crawl,
}

impl Mischief {
    /// Those that seeds choose from.
    pub const ALL: [Mischief; 8] = [
        Mischief::Kill,
        Mischief::Power,
        Mischief::Pause,
        Mischief::Cut,
        Mischief::Isolate,
        Mischief::Outage,
        Mischief::Blackout,
        Mischief::HandOver,
    ];
}

/// Whom it hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The recorded owner.
    Owner,
    /// A recorded member that is not the owner; the same one each time.
    Member,
    /// This one; 0 is the first owner of a scenario.
    Node(usize),
    /// Any node, by chance.
    Anybody,
}

/// Mischief of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// When, from the moment in which clients are first served.
    pub at: Duration,
    /// What is done.
    pub what: Mischief,
    /// To whom it is done.
    pub whom: Target,
    /// For how long, where it ends.
    pub lasts: Duration,
}

/// Chances of what happens on a link, in messages of a million, and how often something worse does.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // each name says which fault
pub struct ClusterFaults {
    pub message_lost: u32,
    pub message_doubled: u32,
    /// A bit of its payload flips.
    pub message_damaged: u32,
    /// Transactions that never reach the coordinator, or of which no answer comes back.
    pub transaction_lost: u32,
    pub answer_lost: u32,
    /// Mean time between two mischiefs; 0: there are none.
    pub mischief_every: Duration,
    /// How likely each of [`Mischief::ALL`] is beside the others.
    pub mischief: [u32; 8],
}

impl ClusterFaults {
    /// Nothing goes wrong on any link.
    pub fn none() -> ClusterFaults {
        ClusterFaults {
            message_lost: 0,
            message_doubled: 0,
            message_damaged: 0,
            transaction_lost: 0,
            answer_lost: 0,
            mischief_every: Duration(0),
            mischief: [0; 8],
        }
    }
}

/// Everything that shapes a cluster.
#[derive(Clone, Debug)]
pub struct ClusterSetup {
    /// Its nodes; the first owns the volume at the start.
    pub nodes: Vec<NodeSetup>,
    /// Copies wanted besides the owner's own.
    pub peers: usize,
    /// With fewer than these the backing must have a write as well.
    pub min_peers: u32,
    /// What a flush promises.
    pub flush: Flush,
    /// All nodes read a record that says what flushes have promised.
    pub flushed_readable: bool,
    /// Bounds of the stream and of the window.
    pub peer_window_bytes_max: u64,
    /// As in [`forebay_core::ClusterConfig`].
    pub window_bytes_max: u64,
    /// Who takes over has the former owner fenced before it goes on.
    pub fenced_first: bool,
    /// Of so many looks at former owners that may write on, one fences them. What else proves that they are gone takes its time.
    pub fence_one_in: u64,
    /// Longest way of a message.
    pub link_micros_max: u64,
    /// What may happen on the links and to nodes, by chance.
    pub faults: ClusterFaults,
    /// What will happen, and when.
    pub plan: Vec<Planned>,
}

fn node(kind: TierKind, tier_blocks: u32, flash_frames: u32) -> NodeSetup {
    let layout = match kind {
        TierKind::Memory => TierLayout::memory(tier_blocks),
        TierKind::Flash => TierLayout::flash(tier_blocks),
    }
    .expect("large enough");
    let frames = match kind {
        TierKind::Memory => layout.payload_blocks,
        TierKind::Flash => flash_frames,
    };
    NodeSetup { layout, frames, clock_offset: Duration(0), clock_fast: 0 }
}

impl ClusterSetup {
    /// No faults: one node for each tier, all of them members.
    pub fn quiet(tiers: &[TierKind]) -> ClusterSetup {
        ClusterSetup {
            nodes: tiers.iter().map(|&kind| node(kind, TIER_BLOCKS_MIN, 96)).collect(),
            peers: tiers.len() - 1,
            min_peers: 1,
            flush: Flush::Best,
            flushed_readable: true,
            peer_window_bytes_max: 256 << 10,
            window_bytes_max: 256 << 10,
            fenced_first: false,
            fence_one_in: 4,
            link_micros_max: 500,
            faults: ClusterFaults::none(),
            plan: Vec::new(),
        }
    }

    /// The cluster that a seed makes.
    pub fn draw(random: &mut Random) -> ClusterSetup {
        let count = random.pick(&[2, 2, 2, 3, 3, 4]);
        let same = random.pick(&[TierKind::Memory, TierKind::Flash]);
        let mixed = random.below(3) == 0;
        let mut setup = ClusterSetup::quiet(&vec![same; count]);
        for place in &mut setup.nodes {
            let kind = if mixed { random.pick(&[TierKind::Memory, TierKind::Flash]) } else { same };
            *place = node(kind, TIER_BLOCKS_MIN + random.pick(&[0, 0, 24, 100]), random.pick(&[96, 160]));
            place.clock_offset = Duration::from_millis(random.below(100_000));
            place.clock_fast = random.below(20_001) as i64 - 10_000;
        }
        setup.peers = if count > 2 { random.pick(&[1, 2]) } else { 1 };
        setup.min_peers = random.pick(&[0, 1, 1, 1]);
        setup.flush = random.pick(&[Flush::Best, Flush::Best, Flush::Replicated, Flush::Destage]);
        setup.peer_window_bytes_max = random.pick(&[64 << 10, 256 << 10, 1 << 20]);
        setup.window_bytes_max = random.pick(&[32 << 10, 128 << 10, 1 << 20]);
        setup.fenced_first = random.below(4) == 0;
        setup.link_micros_max = random.pick(&[50, 500, 20_000]);
        let often = random.pick(&[0, 1_000, 5_000, 20_000]);
        setup.faults = ClusterFaults {
            message_lost: random.pick(&[0, 0, 10_000, 100_000]),
            message_doubled: random.pick(&[0, 0, 10_000, 100_000]),
            message_damaged: random.pick(&[0, 0, 10_000, 50_000]),
            transaction_lost: random.pick(&[0, 0, 100_000]),
            answer_lost: random.pick(&[0, 0, 200_000]),
            mischief_every: Duration::from_millis(often),
            mischief: std::array::from_fn(|_| random.pick(&[0, 1, 1, 4])),
        };
        setup.faults.mischief[6] = random.pick(&[0, 0, 0, 1]);
        setup
    }
}

/// Seeds of clusters are a family of their own: load and devices as for one node, and what [`ClusterSetup::draw`] adds.
pub fn seeded(seed: u64) -> (Setup, Random) {
    let mut random = Random::new(seed ^ 0x636c_7573_7465_7273);
    let mut setup = Setup::draw(&mut random);
    let mut cluster = ClusterSetup::draw(&mut random);
    cluster.flushed_readable = seed % 8 != 5;
    setup.layout = cluster.nodes[0].layout;
    setup.frames = cluster.nodes[0].frames;
    setup.version = Version::Two;
    setup.policy = Policy::Back;
    setup.requests = random.pick(&[50, 200, 400]);
    setup.control = 0;
    setup.faults = Faults {
        process_killed: setup.faults.process_killed / 10,
        power_lost: setup.faults.power_lost / 20,
        backing_write_error: setup.faults.backing_write_error,
        backing_sync_error: setup.faults.backing_sync_error,
        backing_read_error: setup.faults.backing_read_error,
        backing_stall: setup.faults.backing_stall / 10,
        ..Faults::default()
    };
    // Of seeds of which none had been noted when these worlds were made: the others stay what they have always been.
    if matches!(seed % 17, 1 | 3 | 7 | 9) {
        setup.draw_failing_tier(&mut Random::new(seed ^ 0x7469_6572_6661_696c));
    }
    setup.size_bytes_max = setup.size_bytes;
    setup.cluster = Some(cluster);
    (setup, random)
}

/// As [`seeded`], with the trouble that take-overs are made of most of the time: few blocks that are written again and again, a
/// slow backing, small windows, and owners that stand still, die and are cut off.
pub fn restless(seed: u64) -> (Setup, Random) {
    let (mut setup, random) = seeded(seed);
    (setup.requests, setup.clients, setup.depth_max) = (400, 2, 4);
    (setup.weights, setup.hot_blocks, setup.cold) = ([3, 12, 1, 2, 0], 6, 200_000);
    (setup.think_micros_max, setup.check) = (50_000, 20_000);
    setup.backing_micros_max = [20_000, 400_000][seed as usize % 2];
    let cluster = setup.cluster.as_mut().expect("several nodes");
    cluster.window_bytes_max = [32 << 10, 128 << 10][seed as usize / 2 % 2];
    (cluster.fenced_first, cluster.fence_one_in) = (false, [4, 200][seed as usize / 4 % 2]);
    cluster.faults.mischief_every = Duration::from_secs(3);
    cluster.faults.mischief = [4, 2, 6, 3, 3, 1, 0, 3];
    (setup, random)
}

/// As [`seeded`], with a volume that is handed over all the time, to clients that read much and write parts of blocks, which
/// nobody has in memory afterwards; and now and then a member misses something.
pub fn migrating(seed: u64) -> (Setup, Random) {
    let (mut setup, random) = seeded(seed);
    (setup.requests, setup.clients, setup.depth_max) = (400, 2, 4);
    (setup.weights, setup.hot_blocks, setup.cold) = ([10, 8, 1, 2, 0], 12, 200_000);
    (setup.think_micros_max, setup.unaligned, setup.check) = (50_000, 300_000, 20_000);
    setup.backing_micros_max = 5_000;
    let cluster = setup.cluster.as_mut().expect("several nodes");
    cluster.faults.message_damaged = [0, 20_000][seed as usize % 2];
    cluster.faults.mischief_every = Duration::from_millis(1_500);
    cluster.faults.mischief = [1, 0, 1, 3, 2, 0, 0, 16];
    (setup, random)
}

/// As [`seeded`], with an owner that is cut off from the coordinator and from all other nodes, twice, for longer than its lease and
/// the grace; its clients are not. One does nothing but read what the others write, there and then from who has taken over.
pub fn parted(seed: u64) -> (Setup, Random) {
    let (mut setup, random) = seeded(seed);
    (setup.requests, setup.clients, setup.readers, setup.depth_max) = (800, 3, 1, 2);
    (setup.weights, setup.hot_blocks, setup.cold) = ([3, 12, 1, 1, 0], 2, 20_000);
    (setup.request_bytes_max, setup.think_micros_max, setup.check) = (4096, 400_000, 20_000);
    setup.backing_micros_max = 5_000;
    let cluster = setup.cluster.as_mut().expect("several nodes");
    (cluster.link_micros_max, cluster.faults.mischief_every) = (500, Duration(0));
    let cut_off = |seconds| Planned {
        at: Duration::from_secs(seconds),
        what: Mischief::CutOff,
        whom: Target::Owner,
        lasts: Duration::from_secs(12),
    };
    cluster.plan = vec![cut_off(2), cut_off(30)];
    (setup, random)
}

/// The same load and devices on five nodes whose clocks are as wrong as they may be, with everything between them going wrong
/// often and at once.
pub fn hostile(seed: u64) -> (Setup, Random) {
    let (mut setup, mut random) = seeded(seed);
    let mut cluster = setup.cluster.take().expect("of a cluster");
    cluster.nodes = (0..5)
        .map(|_| {
            let kind = random.pick(&[TierKind::Memory, TierKind::Flash]);
            let clock_offset = Duration::from_millis(random.below(100_000));
            let clock_fast = random.pick(&[-10_000, 0, 10_000]);
            NodeSetup { clock_offset, clock_fast, ..node(kind, TIER_BLOCKS_MIN + random.pick(&[0, 24]), 96) }
        })
        .collect();
    (setup.layout, setup.frames) = (cluster.nodes[0].layout, cluster.nodes[0].frames);
    cluster.peers = random.pick(&[1, 2, 3]);
    cluster.faults = ClusterFaults {
        message_lost: random.pick(&[10_000, 100_000, 200_000]),
        message_doubled: 100_000,
        message_damaged: 10_000,
        transaction_lost: 100_000,
        answer_lost: 200_000,
        mischief_every: Duration::from_millis(random.pick(&[300, 1_000, 3_000])),
        // Pauses and one-way cuts above all.
        mischief: [2, 1, 6, 6, 2, 2, 0, 1],
    };
    cluster.faults.mischief[6] = random.pick(&[0, 0, 1]);
    setup.requests = 400;
    setup.faults.tier_stall = random.pick(&[0, 0, 1_000]);
    setup.cluster = Some(cluster);
    (setup, random)
}
