//! What a seed decides about a cluster: its nodes, the links between them, and what happens to both.

use crate::random::Random;
use forebay_core::format::{TIER_BLOCKS_MIN, TierKind, TierLayout};
use forebay_core::status::Flush;
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

impl NodeSetup {
    /// With a tier of so many blocks. `flash_frames` is how large the arena of a flash tier is; that of a memory tier is the tier.
    pub fn of(kind: TierKind, tier_blocks: u32, flash_frames: u32) -> NodeSetup {
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
    /// The image cannot be opened before, counted from the start of all nodes.
    pub image_away: Duration,
    /// What may happen on the links and to nodes, by chance.
    pub faults: ClusterFaults,
    /// What will happen, and when.
    pub plan: Vec<Planned>,
}

impl ClusterSetup {
    /// No faults: one node for each tier, all of them members.
    pub fn quiet(tiers: &[TierKind]) -> ClusterSetup {
        ClusterSetup {
            nodes: tiers.iter().map(|&kind| NodeSetup::of(kind, TIER_BLOCKS_MIN, 96)).collect(),
            peers: tiers.len() - 1,
            min_peers: 1,
            flush: Flush::Best,
            flushed_readable: true,
            peer_window_bytes_max: 256 << 10,
            window_bytes_max: 256 << 10,
            fenced_first: false,
            fence_one_in: 4,
            link_micros_max: 500,
            image_away: Duration(0),
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
            *place = NodeSetup::of(kind, TIER_BLOCKS_MIN + random.pick(&[0, 0, 24, 100]), random.pick(&[96, 160]));
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
