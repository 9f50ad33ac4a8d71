//! Several nodes: what docs/protocol.md says that a fault meets, each a scenario with a name; and the fixed seeds.

use forebay_core::format::TierKind;
use forebay_core::types::Duration;
use forebay_sim::cluster::{ClusterSetup, Mischief, Planned, Target};
use forebay_sim::coverage::Coverage;
use forebay_sim::run::{
    Failure, run_cluster_seed, run_hostile_seed, run_migrating_seed, run_parted_seed, run_restless_seed, run_setup,
};
use forebay_sim::setup::Setup;
use forebay_sim::world::Report;

/// States that so few seeds need not reach.
const RARE: [&str; 6] = [
    "slow peer noticed",
    "no frames for a peer's message",
    "owner heard of a higher term",
    "living owner fenced",
    // An owner that no member takes over from has a story of its own among those of ownership.
    "node started anew after its tier had failed",
    // Only where it is planned.
    "lock taken from a living owner",
    // Two candidates at one time have a scenario of their own.
];
/// Seeds that found something once: a zeroed range that stayed for its pinned blocks was written again over newer content of
/// others (193); a piece of one was begun when the lease had ended (463); what a failing backing is written again with is older,
/// for a while, than what it had, and a write-through volume lost its log then (1375, 1445); a pinned record that was written
/// once more was counted twice, so a write was acknowledged before the backing had all of it (20147); a record said `through` while what a
/// failed sync had left was written again (30714); an operator's word for a loss opened the volume when another owner had lost its
/// log since (254); a second unsynced log, taken by the operator's word, had again what the first one had lost (30135); what could not be
/// read before it was written over in part sent a group out again from its first record, and put older content over what a write-through
/// volume had acknowledged (3010001237, 3010002348); a former owner had sent what its own tier never had, and the check did not know
/// what its successor had pinned (7100003199); a write-through volume was opened by a node that its dead owner was about to record
/// (9000007770); a new owner fetched what its own power cut had taken, showed it, and lost it to the next one, because it had not synced it
/// (12000002250); the owner of a new log lost its power before it served, and the check forgot what that log had begun with (476); zeroed
/// ranges that had ended before the window was told were found again, more than there are places for, and the tier was refused (771130490).
const FOUND: [u64; 15] = [
    193,
    254,
    463,
    476,
    1_375,
    1_445,
    20_147,
    30_135,
    30_714,
    3_010_001_237,
    3_010_002_348,
    7_100_003_199,
    9_000_007_770,
    12_000_002_250,
    771_130_490,
];
/// The same of five nodes: a record of the window was read where the next life of its segment had begun (3030001953); a term that was won and
/// never owned kept its lock (3030002307); as restless 3020000445 (4030000509); a read was answered in the instant in which ownership ended the lease, decided before: the check's
/// fault (14000001457).
const FOUND_HOSTILE: [u64; 4] = [3_030_001_953, 3_030_002_307, 4_030_000_509, 14_000_001_457];
/// Seeds that reach what is rare: of two candidates one loses (166); a longer tail is fetched (225); hand-overs (231), and blocks from
/// the cache of the former owner (306).
const REACH: [u64; 4] = [166, 225, 231, 306];
/// Restless seeds that found something once: a learner was sent a zeroed range for its pinned blocks, became the owner, and was
/// to answer for what the backing has in the others, of which it had never been sent what is newer (3020000445); what a fence had
/// aborted was fetched from the arena of a killed owner and landed all the same (251, 4000000131, 4020000997); a window had a part of
/// a block, which the next owner wrote once more as a whole, and the check knew only of the part (5020000800); compaction moved each
/// record in a batch of its own, whose segments were full of headers and compacted again, for ever (10000100138);
/// who steps down asked to be called for streams that it does not look at any more, at once and for ever (771128699).
const FOUND_RESTLESS: [u64; 7] =
    [251, 771_128_699, 3_020_000_445, 4_000_000_131, 4_020_000_997, 5_020_000_800, 10_000_100_138];
/// A parted seed that found something once: an owner that had stood still while its backing was opened said that it serves, under a lease that
/// was over, after the next one did (771200165; hostile 771132506 of before was the same).
const FOUND_PARTED: u64 = 771_200_165;
/// A migrating seed that found something once: a client was gone, and its write waited for the answer of a former owner, at what the check of
/// frames took for rest.
const FOUND_MIGRATING: u64 = 76_783_001_584;
const MEMORY: TierKind = TierKind::Memory;
const FLASH: TierKind = TierKind::Flash;

/// Runs seeds of a cluster with these tiers, the first of them the owner's; gives what they met.
fn holds(name: &str, tiers: &[TierKind], seeds: u64, shape: impl Fn(&mut Setup, &mut ClusterSetup)) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in 0..seeds {
        let mut cluster = ClusterSetup::quiet(tiers);
        let mut setup = Setup::quiet(tiers[0], 24);
        (setup.requests, setup.clients, setup.depth_max) = (300, 2, 4);
        (setup.weights, setup.hot_blocks) = ([4, 10, 1, 2, 0], 8);
        (setup.think_micros_max, setup.batch_max, setup.check) = (50_000, 4, 20_000);
        shape(&mut setup, &mut cluster);
        setup.cluster = Some(cluster);
        match run_setup(name, setup, seed, false) {
            Ok(report) => coverage.merge(&report.coverage),
            Err(failure) => panic!("{}: {}", failure.run, failure.message),
        }
    }
    coverage
}

/// The same on memory, on flash, and with the last node on the other.
fn holds_everywhere(name: &str, nodes: usize, seeds: u64, shape: impl Fn(&mut Setup, &mut ClusterSetup)) -> Coverage {
    let mut coverage = Coverage::default();
    for (kind, last) in [(MEMORY, MEMORY), (FLASH, FLASH), (MEMORY, FLASH), (FLASH, MEMORY)] {
        let mut tiers = vec![kind; nodes];
        tiers[nodes - 1] = last;
        coverage.merge(&holds(name, &tiers, seeds, &shape));
    }
    coverage
}

fn met(coverage: &Coverage, names: &[&str]) {
    for &name in names {
        let count = coverage.between_nodes().chain(coverage.all()).find(|(known, _)| *known == name);
        assert!(count.expect("a name of a state").1 > 0, "never met: {name}");
    }
}

fn after(millis: u64, what: Mischief, whom: Target, lasts_millis: u64) -> Planned {
    Planned { at: Duration::from_millis(millis), what, whom, lasts: Duration::from_millis(lasts_millis) }
}

#[test]
fn without_faults_every_member_holds_what_is_acknowledged_and_everything_is_destaged() {
    let coverage = holds_everywhere("no faults", 2, 5, |_, _| {});
    met(&coverage, &["term begun by agreement on the tail", "flush acknowledged", "zeros destaged"]);
}

#[test]
fn three_nodes_hold_the_log_as_two_do() {
    holds_everywhere("three nodes", 3, 5, |_, _| {});
}

/// Proves N-M-12, N-F-12, N-X-12.
#[test]
fn messages_that_are_late_doubled_lost_or_damaged_change_nothing() {
    let coverage = holds_everywhere("bad links", 2, 5, |_, cluster| {
        cluster.link_micros_max = 20_000;
        (cluster.faults.message_lost, cluster.faults.message_doubled) = (50_000, 100_000);
        cluster.faults.message_damaged = 50_000;
    });
    met(&coverage, &["message lost", "message doubled", "payload damaged on its way"]);
}

/// Proves N-M-1, N-F-1, N-X-1.
#[test]
fn a_killed_owner_is_followed_by_a_member_that_has_all_that_was_acknowledged() {
    let coverage = holds_everywhere("owner killed", 2, 5, |_, cluster| {
        cluster.plan = vec![after(500, Mischief::Kill, Target::Owner, 0)];
    });
    met(&coverage, &["node killed", "take-over won", "former owners proven gone", "pins ended"]);
}

/// An owner whose lock is gone steps down and answers nothing more (T9).
#[test]
fn a_lock_that_is_taken_from_a_living_owner_costs_nothing_that_was_acknowledged() {
    let coverage = holds_everywhere("lock taken", 2, 5, |_, cluster| {
        cluster.plan = (0..4).map(|i| after(500 + 4_000 * i, Mischief::Revoke, Target::Owner, 900)).collect();
    });
    met(&coverage, &["lock taken from a living owner", "owner stepped down", "take-over won", "pins ended"]);
}

/// Proves N-M-1, N-F-1, N-X-1.
#[test]
fn a_killed_member_comes_back_with_what_it_held_or_is_left_out() {
    let coverage = holds_everywhere("member killed", 2, 3, |_, cluster| {
        cluster.plan = vec![after(500, Mischief::Kill, Target::Member, 0)];
    });
    met(&coverage, &["node killed"]);
}

/// Proves N-M-11, N-F-11: whether it is compared with another member or with nobody, whoever keeps each write waiting goes.
#[test]
fn a_member_that_moves_and_keeps_every_write_waiting_is_left_out() {
    for nodes in [2, 3] {
        let coverage = holds_everywhere("a member crawls", nodes, 2, |_, cluster| {
            cluster.plan = vec![after(500, Mischief::Crawl, Target::Member, 60_000)];
        });
        met(&coverage, &["slow peer noticed", "change of members decided"]);
    }
}

/// Proves N-M-2, N-F-2, N-X-2.
#[test]
fn all_members_but_one_are_lost_at_once_with_their_media_and_nothing_is() {
    let coverage = holds_everywhere("all but one lost", 3, 3, |_, cluster| {
        cluster.plan =
            vec![after(500, Mischief::Destroy, Target::Owner, 0), after(500, Mischief::Destroy, Target::Member, 0)];
    });
    met(&coverage, &["node lost its power", "take-over served", "learner ready"]);
}

/// Proves N-M-4, N-F-4, N-X-4: the operator accepts the loss, and the volume is a crash image of an earlier time.
#[test]
fn when_every_log_is_lost_the_backing_is_a_crash_image() {
    let coverage = holds_everywhere("every log lost", 2, 3, |_, cluster| {
        cluster.plan =
            vec![after(500, Mischief::Destroy, Target::Owner, 0), after(500, Mischief::Destroy, Target::Member, 0)];
    });
    met(&coverage, &["loss accepted"]);
}

#[test]
fn an_owner_that_loses_its_power_and_its_memory_is_followed_by_a_member() {
    let coverage = holds("owner without power", &[MEMORY, MEMORY], 12, |_, cluster| {
        cluster.plan = vec![after(500, Mischief::Power, Target::Owner, 0)];
    });
    met(&coverage, &["node lost its power", "take-over served", "learner ready", "change of members decided"]);
}

/// Proves N-M-6, N-F-6, N-X-6.
#[test]
fn an_owner_paused_past_its_lease_acknowledges_nothing_when_it_goes_on() {
    let coverage = holds_everywhere("owner paused", 2, 5, |_, cluster| {
        cluster.plan = vec![after(500, Mischief::Pause, Target::Owner, 15_000)];
    });
    met(&coverage, &["node paused", "take-over served", "owner stepped down", "tier made anew"]);
}

#[test]
fn what_a_former_owner_had_under_way_to_the_backing_hits_only_what_is_pinned() {
    let coverage = holds_everywhere("late writes", 2, 5, |setup, cluster| {
        // Writing goes on to both ends and longer, so that each has writes under way.
        (setup.backing_micros_max, setup.requests) = (400_000, 1_000);
        cluster.plan =
            vec![after(2_000, Mischief::Pause, Target::Owner, 9_000), after(14_000, Mischief::Kill, Target::Owner, 0)];
    });
    met(&coverage, &["late write of a former owner landed in quarantine", "pins ended"]);
}

/// Proves N-M-5, N-F-5, N-X-5.
#[test]
fn a_member_that_was_cut_off_is_dropped_before_anything_is_acknowledged_without_it() {
    let coverage = holds_everywhere("member isolated", 2, 5, |_, cluster| {
        cluster.plan = vec![after(500, Mischief::Isolate, Target::Member, 15_000)];
    });
    met(&coverage, &["node isolated", "peer failed", "change of members decided", "learner ready"]);
}

#[test]
fn a_member_that_was_dropped_and_does_not_know_takes_nothing_over() {
    let coverage = holds_everywhere("dropped member", 3, 5, |setup, cluster| {
        setup.requests = 800;
        cluster.plan = vec![
            after(200, Mischief::Isolate, Target::Member, 14_000),
            after(1_500, Mischief::Pause, Target::Owner, 15_000),
        ];
    });
    met(&coverage, &["peer failed", "take-over served"]);
}

#[test]
fn a_member_that_comes_back_with_empty_memory_is_no_member() {
    let coverage = holds("member without power", &[MEMORY, MEMORY], 12, |_, cluster| {
        cluster.plan =
            vec![after(500, Mischief::Power, Target::Member, 0), after(12_000, Mischief::Kill, Target::Owner, 0)];
    });
    met(&coverage, &["peer failed", "learner ready"]);
}

#[test]
fn a_member_on_flash_that_lost_its_power_does_not_count_for_what_it_held() {
    let coverage = holds("member on flash without power", &[FLASH, FLASH], 12, |_, cluster| {
        cluster.plan =
            vec![after(500, Mischief::Power, Target::Member, 0), after(12_000, Mischief::Kill, Target::Owner, 0)];
    });
    met(&coverage, &["peer failed", "learner ready"]);
}

#[test]
fn flushed_writes_survive_a_power_cut_of_all_members_on_flash() {
    let coverage = holds("power cut everywhere", &[FLASH, FLASH], 12, |_, cluster| {
        cluster.plan =
            vec![after(500, Mischief::Power, Target::Owner, 0), after(500, Mischief::Power, Target::Member, 0)];
    });
    met(&coverage, &["flushed writes survived a power cut everywhere"]);
}

/// Proves N-M-3, N-F-3, N-X-3.
#[test]
fn a_power_cut_of_all_members_costs_what_their_tiers_say() {
    let coverage = holds_everywhere("blackout", 2, 3, |_, cluster| {
        cluster.plan = vec![after(500, Mischief::Blackout, Target::Anybody, 0)];
    });
    met(&coverage, &["loss accepted", "flushed writes survived a power cut everywhere"]);
}

#[test]
fn of_two_members_that_take_over_at_once_one_wins() {
    let coverage = holds_everywhere("two candidates", 3, 15, |_, cluster| {
        cluster.plan = vec![after(500, Mischief::Kill, Target::Owner, 0)];
    });
    met(&coverage, &["take-over won", "take-over lost to another", "term remembered"]);
}

#[test]
fn a_lost_transaction_is_undecided_until_the_record_says() {
    let coverage = holds_everywhere("lost transactions", 2, 5, |_, cluster| {
        (cluster.faults.transaction_lost, cluster.faults.answer_lost) = (300_000, 300_000);
        cluster.plan =
            vec![after(500, Mischief::Isolate, Target::Member, 3_000), after(9_000, Mischief::Kill, Target::Owner, 0)];
    });
    met(&coverage, &["transaction lost", "answer of the coordinator lost", "take-over won"]);
}

/// Proves N-M-8, N-F-8, N-X-8.
#[test]
fn an_outage_of_the_coordinator_stops_no_request_of_members_that_are_well() {
    let coverage = holds_everywhere("outage", 2, 5, |_, cluster| {
        cluster.plan = vec![
            after(200, Mischief::Outage, Target::Anybody, 10_000),
            after(4_000, Mischief::Kill, Target::Member, 0),
        ];
    });
    met(&coverage, &["coordinator away"]);
}

/// Proves N-M-10, N-F-10, N-X-10: what has no coordinator serves on; an owner that dies then has no successor, also none
/// that would serve without the record's word.
#[test]
fn without_a_coordinator_the_owner_serves_on_and_nobody_takes_over() {
    let coverage = holds_everywhere("coordinator lost", 2, 2, |setup, cluster| {
        setup.requests = 400;
        cluster.plan = vec![
            after(200, Mischief::Outage, Target::Anybody, 10_000_000),
            after(1_500, Mischief::Kill, Target::Owner, 0),
        ];
    });
    met(&coverage, &["coordinator away"]);
}

#[test]
fn tails_of_different_length_are_made_one_before_anything_is_answered() {
    // The owner stands still while one of its peers cannot hear it.
    let coverage = holds_everywhere("longer tail", 3, 5, |setup, cluster| {
        (setup.think_micros_max, setup.requests) = (100_000, 600);
        cluster.link_micros_max = 20_000;
        cluster.plan = vec![
            after(2_000, Mischief::Isolate, Target::Node(1), 500),
            after(2_400, Mischief::Pause, Target::Owner, 15_000),
        ];
    });
    met(&coverage, &["longer tail fetched from a member", "term begun by agreement on the tail"]);
}

#[test]
fn a_watermark_that_a_former_owner_told_to_nobody_ends_no_record_of_its_successor() {
    let mut coverage = Coverage::default();
    // Its process goes on when a member has taken over, or a moment before, and dies while its log is fetched.
    for wakes in (5_800..6_800).step_by(100) {
        coverage.merge(&holds("former owner", &[MEMORY, MEMORY], 20, |setup, cluster| {
            (setup.weights, setup.hot_blocks, setup.think_micros_max) = ([2, 20, 0, 0, 0], 2, 500);
            setup.backing_micros_max = 50_000;
            cluster.link_micros_max = 50_000;
            cluster.plan = vec![
                after(1_500, Mischief::Pause, Target::Node(0), wakes - 1_500),
                after(wakes + 300, Mischief::Power, Target::Node(0), 0),
            ];
        }));
    }
    met(&coverage, &["longer tail fetched from a member"]);
}

#[test]
fn a_new_owner_that_dies_before_all_have_its_tail_has_answered_nobody() {
    let coverage = holds_everywhere("owner after owner", 3, 5, |_, cluster| {
        cluster.plan = (0..6).map(|i| after(500 + 5_500 * i, Mischief::Kill, Target::Owner, 0)).collect();
    });
    met(&coverage, &["take-over served"]);
}

#[test]
fn a_second_take_over_in_quarantine_proves_both_former_owners_gone() {
    let coverage = holds_everywhere("second take-over", 3, 5, |setup, cluster| {
        setup.backing_micros_max = 400_000;
        cluster.plan = vec![
            after(1_500, Mischief::Pause, Target::Owner, 30_000),
            after(8_000, Mischief::Pause, Target::Owner, 20_000),
        ];
    });
    met(&coverage, &["take-over served", "owner stepped down", "pins ended"]);
}

#[test]
fn a_fenced_owner_that_dies_later_writes_no_more() {
    // It stands still with writes under way, is fenced, and is killed when its successor has gone on.
    let coverage = holds_everywhere("fenced owner", 2, 10, |setup, cluster| {
        (setup.weights, setup.hot_blocks, setup.requests) = ([3, 12, 1, 1, 0], 6, 400);
        setup.backing_micros_max = 400_000;
        cluster.fenced_first = true;
        cluster.plan = vec![
            after(2_000, Mischief::Pause, Target::Node(0), 25_000),
            after(18_000, Mischief::Kill, Target::Node(0), 0),
        ];
    });
    met(&coverage, &["living owner fenced", "take-over served"]);
}

#[test]
fn who_is_handed_the_volume_and_was_sent_only_what_pins_kept_is_not_asked_for_the_rest() {
    // A member is learnt anew while the window of an owner that stands still is pinned, and owns the volume after that.
    let coverage = holds_everywhere("handed over to a learner", 3, 5, |setup, cluster| {
        (setup.weights, setup.hot_blocks, setup.requests) = ([3, 12, 1, 6, 0], 6, 600);
        (setup.think_micros_max, setup.backing_micros_max) = (50_000, 200_000);
        (cluster.window_bytes_max, cluster.fence_one_in) = (32 << 10, 1_000_000);
        cluster.plan = vec![
            after(2_000, Mischief::Pause, Target::Node(0), 20_000),
            after(12_000, Mischief::Destroy, Target::Member, 0),
        ];
        cluster.plan.extend((0..6).map(|i| after(24_000 + 3_000 * i, Mischief::HandOver, Target::Owner, 2_000)));
    });
    met(&coverage, &["tier made anew", "pins ended", "owner handed over"]);
}

/// Proves N-M-5, N-F-5, N-X-5: one direction included.
#[test]
fn a_one_way_cut_ends_in_one_owner() {
    let coverage = holds_everywhere("one-way cuts", 3, 5, |_, cluster| {
        cluster.plan = (0..8).map(|i| after(500 + 1_500 * i, Mischief::Cut, Target::Owner, 7_000)).collect();
    });
    met(&coverage, &["link cut one way", "peer failed"]);
}

/// Proves N-M-13, N-F-13, N-X-13: clocks run apart as far as they may, and one that stands still has jumped.
#[test]
fn clocks_that_run_apart_cost_nothing() {
    let coverage = holds_everywhere("clocks", 3, 3, |_, cluster| {
        for (place, fast) in cluster.nodes.iter_mut().zip([10_000_i64, -10_000, 10_000]) {
            (place.clock_offset, place.clock_fast) = (Duration::from_secs(fast.unsigned_abs()), fast);
        }
        cluster.plan =
            vec![after(500, Mischief::Pause, Target::Owner, 9_000), after(12_000, Mischief::Cut, Target::Owner, 9_000)];
    });
    met(&coverage, &["take-over served", "owner stepped down"]);
}

/// Proves N-F-11, N-X-11: its tier is so slow that it is left out, and learnt anew.
#[test]
fn a_tier_that_stands_still_now_and_then_loses_nothing() {
    let coverage = holds_everywhere("slow tiers", 2, 3, |setup, _| setup.faults.tier_stall = 20_000);
    met(&coverage, &["tier stalled", "peer failed", "learner ready"]);
}

/// Proves N-M-11, N-F-11: it is full before the owner's is.
#[test]
fn a_member_with_a_smaller_tier_slows_the_owner_and_loses_nothing() {
    for kind in [MEMORY, FLASH] {
        holds("smaller member", &[kind, kind], 5, |setup, cluster| {
            setup.layout = match kind {
                MEMORY => forebay_core::format::TierLayout::memory(700),
                FLASH => forebay_core::format::TierLayout::flash(700),
            }
            .expect("large enough");
            cluster.nodes[0].layout = setup.layout;
            if kind == MEMORY {
                cluster.nodes[0].frames = setup.layout.payload_blocks;
            }
            (setup.requests, setup.think_micros_max, setup.backing_micros_max) = (800, 50, 100_000);
        });
    }
}

/// Runs seeds of a family, whose option it is that repeats one; gives what they met.
fn keeps_every_promise(
    option: &str,
    seeds: impl Iterator<Item = u64>,
    run: impl Fn(u64, bool) -> Result<Report, Failure>,
) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in seeds {
        match run(seed, false) {
            Ok(report) => coverage.merge(&report.coverage),
            Err(failure) => panic!(
                "{}: {}\nrepeat: cargo run -p forebay-sim -- {option} --replay {seed} --trace",
                failure.run, failure.message
            ),
        }
    }
    coverage
}

/// Proves N-M-7, N-F-7, N-X-7: every log is lost in quarantine, on any mixture of tiers, and the record says so.
#[test]
fn fixed_seeds_of_clusters_keep_every_promise_and_reach_every_state() {
    let coverage = keeps_every_promise("--cluster", (0..150).chain(FOUND).chain(REACH), run_cluster_seed);
    let missed = coverage.between_nodes().filter(|(name, count)| *count == 0 && !RARE.contains(name));
    let missed: Vec<_> = missed.map(|(name, _)| name).collect();
    assert!(missed.is_empty(), "the fixed seeds never reached: {missed:?}");
}

#[test]
fn five_nodes_to_which_everything_happens_keep_every_promise() {
    keeps_every_promise("--hostile", (0..20).chain(FOUND_HOSTILE), run_hostile_seed);
}

#[test]
fn owners_that_are_taken_over_in_most_of_the_time_keep_every_promise() {
    keeps_every_promise("--restless", (0..20).chain(FOUND_RESTLESS), run_restless_seed);
}

#[test]
fn a_volume_that_is_handed_over_all_the_time_is_read_by_way_of_the_former_owner_and_never_stale() {
    let coverage = keeps_every_promise("--migrating", (0..60).chain([FOUND_MIGRATING]), run_migrating_seed);
    let names = ["owner handed over", "cache kept by a former owner", "block came from the cache of a former owner"];
    met(&coverage, &names);
}

/// Proves N-M-5, N-F-5, N-X-5 for those who read.
#[test]
fn an_owner_that_is_cut_off_shows_nothing_that_is_gone_when_another_serves() {
    let coverage = keeps_every_promise("--parted", (0..20).chain([FOUND_PARTED]), run_parted_seed);
    met(&coverage, &["node isolated", "take-over served"]);
}

#[test]
fn a_cluster_seed_is_the_same_run_each_time() {
    for seed in 0..5 {
        let run = |_| {
            let report = run_cluster_seed(seed, false).unwrap_or_else(|f| panic!("{}: {}", f.run, f.message));
            (report.points, report.elapsed, report.coverage.between_nodes().collect::<Vec<_>>())
        };
        assert_eq!(run(0), run(1), "seed {seed}");
    }
}
