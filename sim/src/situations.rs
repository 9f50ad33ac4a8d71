//! Set-ups with names: each makes one kind of trouble so frequent that few seeds meet it, which the mixtures that seeds
//! draw would meet too seldom.
//!
//! What becomes of them is for the tests: `tests/scenarios.rs` and `tests/journal.rs` run them on the right volume,
//! `tests/mutants.rs` on planted bugs.

use crate::cluster::{ClusterSetup, Mischief, Planned, Target};
use crate::setup::{Setup, Step};
use forebay_core::format::TierKind;
use forebay_core::status::{DestageMode, Policy};
use forebay_core::types::{BLOCK_BYTES, Duration};

/// A memory tier whose frames rot under whole-block writes.
pub fn rotting_memory() -> Setup {
    let mut setup = Setup::quiet(TierKind::Memory, 8);
    let write = |i: u64| Step::Write { offset: i * 5 % 8 * 4096, length: 4096, fua: false };
    setup.script = Some((0..40).map(|i| if i % 6 == 5 { Step::Flush } else { write(i) }).collect());
    setup.faults.frame_rot = 100_000;
    setup
}

/// Small groups on few blocks before a backing that is faster than the tier, and power cuts: the backing is ahead of what
/// the tier has on its medium, and of its checkpoint, most of the time.
pub fn backing_ahead_of_tier(policy: Policy) -> Setup {
    let mut setup = Setup::quiet(TierKind::Flash, 8);
    setup.policy = policy;
    let write = |i: u64| Step::Write { offset: i * i % 7 % 3 * 4096, length: 4096, fua: false };
    setup.script = Some((0..150).map(|i| if i % 5 == 4 { Step::Flush } else { write(i) }).collect());
    setup.depth_max = 3;
    setup.tier_micros_max = 2_000;
    setup.backing_micros_max = 100;
    setup.batch_max = 4;
    setup.check = 50_000;
    setup.faults.power_lost = 3_000;
    setup
}

/// As [`backing_ahead_of_tier`], with groups that write overlapping sectors of a block: sent once more, such a group passes
/// through content that the next one has left behind.
pub fn sectors_ahead_of_tier(policy: Policy) -> Setup {
    let mut setup = backing_ahead_of_tier(policy);
    let write = |i: u64| Step::Write { offset: i * i % 7 % 3 * 4096 + i % 3 * 1024, length: 2048, fua: false };
    setup.script = Some((0..150).map(|i| if i % 5 == 4 { Step::Flush } else { write(i) }).collect());
    setup.check = 200_000;
    setup
}

/// As [`rotting_memory`], with unaligned writes over what has rotted.
pub fn rotting_under_edges() -> Setup {
    let mut setup = rotting_memory();
    let whole = |i: u64| Step::Write { offset: i * 5 % 8 * 4096, length: 4096, fua: false };
    let part = |i: u64| Step::Write { offset: i * 5 % 8 * 4096 + 700, length: 900, fua: false };
    setup.script = Some(
        (0..60)
            .map(|i| {
                if i % 12 == 11 {
                    Step::Flush
                } else if i % 2 == 0 {
                    whole(i / 2)
                } else {
                    part(i / 2)
                }
            })
            .collect(),
    );
    setup
}

/// As [`rotting_memory`], with writes of some sectors before a backing that takes whole blocks only.
pub fn rotting_sectors() -> Setup {
    let mut setup = rotting_memory();
    setup.backing_align = 4096;
    let write = |i: u64| Step::Write { offset: i * 5 % 8 * 4096, length: 512 * (1 + i as u32 % 7), fua: false };
    setup.script = Some((0..60).map(|i| if i % 6 == 5 { Step::Flush } else { write(i) }).collect());
    setup
}

/// A flash tier whose syncs fail and forget what they covered, with the process dying before the power.
pub fn forgetful_flash() -> Setup {
    let mut setup = Setup::quiet(TierKind::Flash, 24);
    setup.requests = 80;
    setup.clients = 2;
    setup.depth_max = 4;
    setup.weights = [2, 10, 1, 4, 0];
    setup.batch_max = 4;
    setup.faults.tier_sync_error = 100_000;
    setup.faults.process_killed = 8_000;
    setup.faults.power_lost = 8_000;
    setup
}

/// Clients read what others are writing to a slow flash tier, and the process dies.
pub fn reading_what_is_under_way() -> Setup {
    let mut setup = Setup::quiet(TierKind::Flash, 4);
    (setup.requests, setup.clients, setup.readers, setup.depth_max) = (300, 3, 1, 4);
    (setup.hot_blocks, setup.request_bytes_max) = (2, 4096);
    (setup.think_micros_max, setup.tier_micros_max) = (2_000, 20_000);
    setup.faults.process_killed = 10_000;
    setup
}

/// Large writes that nobody flushes, and a host that loses its power again and again: a cut-off tail goes on behind what is missing
/// over several segments, whose summaries list what is cut off, and the next lives come to its numbers.
pub fn tails_cut_off() -> Setup {
    let mut setup = Setup::quiet(TierKind::Flash, 24);
    (setup.requests, setup.clients, setup.depth_max) = (400, 2, 4);
    (setup.weights, setup.hot_blocks, setup.request_bytes_max) = ([2, 10, 0, 0, 0], 24, 64 << 10);
    (setup.think_micros_max, setup.tier_micros_max) = (500, 2_000);
    (setup.faults.power_lost, setup.faults.process_killed) = (3_000, 1_000);
    setup.check = 1_000;
    setup
}

/// A journal beside the backing in a world that fails a lot: both tiers and all kinds of faults come round.
pub fn journaled(seed: u64) -> Setup {
    journaled_variant(if seed.is_multiple_of(2) { TierKind::Memory } else { TierKind::Flash }, seed / 2)
}

/// A volume whose clients flush often, over a slow backing with a small journal, in a world that fails a lot.
/// `variant` chooses which faults.
fn journaled_variant(kind: TierKind, variant: u64) -> Setup {
    let mut setup = Setup::quiet(kind, 24);
    setup.journal_blocks = [128, 48, 16][variant as usize % 3];
    setup.destage =
        [DestageMode::Auto, DestageMode::Journaled, DestageMode::Auto, DestageMode::Ordered][variant as usize / 12 % 4];
    setup.requests = 500;
    setup.clients = 2;
    setup.depth_max = 4;
    setup.weights = [2, 10, 1, 8, 0];
    setup.unaligned = 50_000;
    setup.cold = 200_000;
    setup.batch_max = 4;
    // Long enough for the backing to become ready while clients still work.
    setup.think_micros_max = 100_000;
    setup.backing_micros_max = 20_000;
    setup.check = 50_000;
    match variant / 3 % 4 {
        0 => setup.faults.process_killed = 2_000,
        1 => {
            setup.faults.backing_write_error = 100_000;
            setup.faults.backing_sync_error = 100_000;
            setup.faults.process_killed = 1_000;
        }
        2 => {
            setup.faults.power_lost = 2_000;
            setup.faults.backing_write_error = 50_000;
        }
        _ => {
            setup.faults.logs_lost = 1_000;
            setup.faults.process_killed = 1_000;
            setup.faults.backing_sync_error = 50_000;
            setup.control = 50_000;
        }
    }
    setup
}

/// Much of the log in use, and a bit that flips in the tier's metadata when the process or the power dies.
pub fn rotting_at_rest(seed: u64) -> Setup {
    let mut setup = Setup::quiet(if seed.is_multiple_of(2) { TierKind::Memory } else { TierKind::Flash }, 24);
    (setup.requests, setup.clients, setup.depth_max) = (400, 2, 4);
    setup.weights = [2, 10, 1, 3, 0];
    setup.unaligned = 50_000;
    setup.batch_max = 4;
    setup.check = 10_000;
    setup.backing_micros_max = [2_000, 100_000][seed as usize / 2 % 2];
    setup.faults.process_killed = 3_000;
    setup.faults.power_lost = if seed.is_multiple_of(2) { 0 } else { 1_000 };
    setup.faults.metadata_rot = 400_000;
    setup
}

/// Processes that die soon, so that each leaves a segment half full, and a backing that takes little; metadata rots meanwhile.
pub fn rotting_heads() -> Setup {
    let mut setup = Setup::quiet(TierKind::Flash, 24);
    (setup.requests, setup.weights, setup.think_micros_max) = (300, [4, 12, 4, 0, 0], 1_000);
    (setup.destage_delay, setup.backing_micros_max) = (Duration(200_000_000), 400_000);
    (setup.faults.power_lost, setup.faults.metadata_rot) = (10_000, 500_000);
    setup
}

/// A client writes group after group, and both members are cut off with writes under way to them, for as long as it takes to leave them out. They
/// are members again within seconds; what is in the log by then keeps the backing busy for minutes. The first reads take the backing so
/// long that there are members before the first write.
pub fn members_back_before_backing() -> Setup {
    let mut setup = Setup::quiet(TierKind::Memory, 160);
    let step = |i: u64| match i {
        0..4 => Step::Read { offset: (i + 100) * BLOCK_BYTES, length: BLOCK_BYTES as u32 },
        _ if i % 4 == 3 => Step::Flush,
        _ => Step::Write { offset: i % 40 * BLOCK_BYTES, length: BLOCK_BYTES as u32, fua: false },
    };
    setup.script = Some((0..160).map(step).collect());
    (setup.depth_max, setup.think_micros_max, setup.check) = (4, 4_000_000, 0);
    setup.backing_micros_max = 20_000_000;
    let mut cluster = ClusterSetup::quiet(&[TierKind::Memory; 3]);
    let cut_off = |node| Planned {
        at: Duration::from_secs(40),
        what: Mischief::Isolate,
        whom: Target::Node(node),
        lasts: Duration::from_secs(3),
    };
    cluster.plan = vec![cut_off(1), cut_off(2)];
    setup.cluster = Some(cluster);
    setup
}

/// The image cannot be opened when the only node wins its term, and can be a few seconds later: there is no member to have the volume instead.
pub fn image_out_of_reach_at_first() -> Setup {
    let mut setup = Setup::quiet(TierKind::Memory, 24);
    (setup.requests, setup.check) = (20, 0);
    let mut cluster = ClusterSetup::quiet(&[TierKind::Memory]);
    (cluster.min_peers, cluster.image_away) = (0, Duration::from_secs(8));
    setup.cluster = Some(cluster);
    setup
}
