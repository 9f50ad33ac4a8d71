//! What the seeds of each family mean: a set-up of several nodes, with the trouble that gives the family its name.
//!
//! What becomes of them is for [`crate::run`], and for the tests.

use crate::cluster::{ClusterFaults, ClusterSetup, Mischief, NodeSetup, Planned, Target};
use crate::random::Random;
use crate::setup::{Faults, Setup};
use forebay_core::format::{TIER_BLOCKS_MIN, TierKind, Version};
use forebay_core::status::Policy;
use forebay_core::types::*;

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
            NodeSetup { clock_offset, clock_fast, ..NodeSetup::of(kind, TIER_BLOCKS_MIN + random.pick(&[0, 24]), 96) }
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
