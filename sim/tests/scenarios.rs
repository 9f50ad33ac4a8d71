//! Situations with names: one fault or load each, many seeds, with the state that must have been met.

use forebay_core::format::{TierKind, TierLayout};
use forebay_core::status::Policy;
use forebay_core::types::Duration;
use forebay_sim::coverage::Coverage;
use forebay_sim::run::{exhaustive, run_setup};
use forebay_sim::setup::{Crash, CrashPlan, Setup, Step};
use forebay_sim::situations::{
    backing_ahead_of_tier, forgetful_flash, rotting_at_rest, rotting_heads, rotting_memory, rotting_sectors,
    rotting_under_edges,
};
use forebay_sim::tier_migration::Landing;

const BOTH: [TierKind; 2] = [TierKind::Memory, TierKind::Flash];

/// Runs seeds of a set-up on both tiers; gives what they met.
fn holds_on(kinds: &[TierKind], name: &str, seeds: u64, shape: impl Fn(&mut Setup)) -> Coverage {
    let mut coverage = Coverage::default();
    for &kind in kinds {
        for seed in 0..seeds {
            let mut setup = Setup::quiet(kind, 24);
            setup.requests = 100;
            setup.clients = 2;
            setup.depth_max = 4;
            setup.weights = [4, 10, 1, 3, 1];
            setup.batch_max = 4;
            setup.check = 100_000;
            shape(&mut setup);
            match run_setup(name, setup, seed, false) {
                Ok(report) => coverage.merge(&report.coverage),
                Err(failure) => panic!("{}: {}", failure.run, failure.message),
            }
        }
    }
    coverage
}

/// The same with both policies: nothing that may be lost differs by policy to the worse.
fn holds_with_both_policies(kinds: &[TierKind], name: &str, seeds: u64, shape: impl Fn(&mut Setup)) -> Coverage {
    let mut coverage = holds_on(kinds, name, seeds, &shape);
    let through = holds_on(kinds, &format!("{name}, write-through"), seeds, |setup| {
        setup.policy = Policy::Through;
        shape(setup);
    });
    met(&through, &["write acknowledged by the backing"]);
    coverage.merge(&through);
    coverage
}

fn met(coverage: &Coverage, names: &[&str]) {
    for &name in names {
        let count = coverage.all().find(|(n, _)| *n == name).map(|(_, count)| count);
        assert!(count.expect("a name of SOMETIMES") > 0, "never met: {name}");
    }
}

#[test]
fn every_crash_point_of_small_workloads_keeps_the_promises() {
    let mut coverage = Coverage::default();
    let runs =
        exhaustive(|report| coverage.merge(&report.coverage)).unwrap_or_else(|f| panic!("{}: {}", f.run, f.message));
    assert!(runs > 5_000, "only {runs} crash points");
    met(
        &coverage,
        &["crash during destage", "crash while recovering", "process killed", "power lost", "all logs lost"],
    );
}

#[test]
fn without_faults_everything_is_read_back() {
    let coverage = holds_on(&BOTH, "no faults", 40, |_| {});
    met(&coverage, &["flush acknowledged", "record superseded", "write over a destage in flight", "zeros destaged"]);
}

/// Proves L-TM-1, L-TF-1, L-BM-1, L-BF-1, L-TM-2, L-TF-2, L-BM-2, L-BF-2: killed at any moment, with and without
/// requests open.
#[test]
fn an_acknowledged_write_survives_the_death_of_the_process() {
    let coverage = holds_with_both_policies(&BOTH, "killed", 60, |s| s.faults.process_killed = 5_000);
    met(&coverage, &["process killed", "crash during destage", "late backing write landed in the next life"]);
}

/// Proves L-TF-3, L-BF-3, L-TF-7, L-BF-7.
#[test]
fn a_flushed_write_survives_a_power_cut_on_flash() {
    let coverage = holds_with_both_policies(&[TierKind::Flash], "power cut", 320, |s| s.faults.power_lost = 5_000);
    met(&coverage, &["power lost", "torn tier write at a crash", "torn backing write at a crash"]);
}

/// Proves L-TM-3, L-BM-3, L-TM-4, L-TF-4, L-BM-4, L-BF-4, L-TM-7, L-BM-7. With write-through everything that was flushed
/// is durable in the backing when the flush is answered, and stays so.
#[test]
fn a_backing_ahead_of_the_tier_is_never_taken_back() {
    for policy in [Policy::Back, Policy::Through] {
        for seed in 0..150 {
            if let Err(failure) = run_setup("backing ahead", backing_ahead_of_tier(policy), seed, false) {
                panic!("{policy:?}: {}: {}", failure.run, failure.message);
            }
        }
    }
}

#[test]
fn the_backing_alone_is_a_crash_image_when_all_logs_are_lost() {
    let coverage = holds_with_both_policies(&BOTH, "all logs lost", 60, |s| {
        s.faults.logs_lost = 3_000;
        s.faults.power_lost = 1_000;
    });
    met(&coverage, &["all logs lost", "crash during destage"]);
}

#[test]
fn a_crash_during_recovery_changes_nothing() {
    let coverage = holds_on(&BOTH, "crash during recovery", 60, |s| {
        s.faults.process_killed = 40_000;
        s.faults.power_lost = 10_000;
        s.requests = 60;
    });
    met(&coverage, &["crash while recovering"]);
}

/// Proves L-TM-10, L-TF-10, L-BM-10, L-BF-10.
#[test]
fn a_failed_backing_sync_is_followed_by_rewriting() {
    let coverage = holds_with_both_policies(&BOTH, "sync error", 60, |s| {
        s.faults.backing_sync_error = 300_000;
        s.faults.power_lost = 1_000;
    });
    met(&coverage, &["backing sync failed", "backing range rewritten after a failed sync"]);
}

/// Proves L-TM-9, L-TF-9, L-BM-9, L-BF-9.
#[test]
fn failing_backing_writes_keep_the_data_dirty_until_they_succeed() {
    let coverage = holds_with_both_policies(&BOTH, "write error", 40, |s| {
        s.faults.backing_write_error = 300_000;
        s.faults.backing_full = 100_000;
    });
    met(&coverage, &["backing write failed", "backing full"]);
}

/// Proves L-TM-11, L-TF-11, L-BM-11, L-BF-11.
#[test]
fn a_backing_that_is_gone_for_minutes_loses_nothing() {
    let coverage = holds_with_both_policies(&BOTH, "gone", 40, |s| {
        s.faults.backing_gone = 20_000;
        s.faults.process_killed = 500;
    });
    met(&coverage, &["backing gone"]);
}

#[test]
fn a_backing_that_stalls_throttles_clients_and_nothing_else() {
    let coverage = holds_on(&BOTH, "stall", 40, |s| {
        s.faults.backing_stall = 100_000;
        s.requests = 400;
        s.weights = [1, 12, 0, 8, 0];
        s.request_bytes_max = 64 << 10;
        s.think_micros_max = 10;
    });
    met(&coverage, &["backing stalled", "client throttled"]);
}

#[test]
fn a_request_may_be_as_large_as_the_volume_says_on_the_smallest_tier() {
    holds_on(&[TierKind::Flash], "large requests", 6, |s| {
        s.frames = 4096;
        s.size_bytes = 400 * 4096;
        s.size_bytes_max = s.size_bytes;
        s.request_bytes_max = 1 << 20;
        s.weights = [1, 12, 1, 1, 0];
        s.cold = 500_000;
    });
}

#[test]
fn a_backing_without_zero_requests_gets_zeros_as_data() {
    let coverage = holds_on(&BOTH, "no zero requests", 40, |s| {
        s.faults.backing_zero_unsupported = true;
        s.weights = [2, 6, 6, 2, 0];
        s.faults.process_killed = 1_000;
    });
    met(&coverage, &["zero request unsupported by the backing"]);
}

#[test]
fn unaligned_writes_merge_atomically_whatever_happens_around_them() {
    let coverage = holds_on(&BOTH, "unaligned", 60, |s| {
        s.unaligned = 700_000;
        s.hot_blocks = 2;
        s.faults.process_killed = 2_000;
        s.faults.backing_read_error = 20_000;
    });
    met(&coverage, &["unaligned edge merged"]);
}

#[test]
fn a_4k_backing_is_never_given_less() {
    holds_on(&BOTH, "4 KiB backing", 60, |s| {
        s.backing_align = 4096;
        s.size_bytes -= 512 * 3;
        s.request_bytes_max = 4096;
        s.faults.process_killed = 2_000;
        s.faults.power_lost = 1_000;
    });
}

#[test]
fn write_through_is_acknowledged_by_the_backing() {
    let coverage = holds_on(&BOTH, "write-through", 60, |s| {
        s.policy = Policy::Through;
        s.faults.process_killed = 2_000;
        s.faults.backing_sync_error = 20_000;
    });
    met(&coverage, &["write acknowledged by the backing", "flush acknowledged"]);
}

#[test]
fn operators_may_do_anything_at_any_time() {
    let coverage = holds_on(&BOTH, "operator", 120, |s| {
        s.control = 500_000;
        s.think_micros_max = 20_000;
        s.faults.process_killed = 500;
    });
    met(
        &coverage,
        &[
            "hold released with its backup valid",
            "drain answered",
            "drained through",
            "drain through released",
            "volume grown",
            "stopped with drain",
            "stopped without drain",
            "write acknowledged by the backing",
        ],
    );
}

#[test]
fn a_stop_without_drain_does_not_wait_for_a_backing_that_does_not_answer() {
    // The world asserts how long each such stop may take.
    let coverage = holds_on(&BOTH, "stop before a dead backing", 60, |s| {
        s.policy = Policy::Through;
        s.control = 300_000;
        s.unaligned = 200_000;
        s.think_micros_max = 20_000;
        s.faults.backing_gone = 20_000;
        s.faults.backing_stall = 100_000;
    });
    met(&coverage, &["stopped without drain", "backing gone", "backing stalled"]);
}

#[test]
fn a_limit_on_the_time_to_drain_throttles_without_a_pause() {
    for kind in BOTH {
        for seed in 0..2 {
            let mut setup = Setup::quiet(kind, 700);
            // Room for the whole volume twice: nothing but the limit throttles.
            setup.layout = match kind {
                TierKind::Memory => TierLayout::memory(4096),
                TierKind::Flash => TierLayout::flash(4096),
            }
            .expect("large enough");
            setup.frames = setup.frames.max(if kind == TierKind::Memory { setup.layout.payload_blocks } else { 96 });
            setup.drain_max = Duration::from_millis(100);
            (setup.requests, setup.think_micros_max) = (10_000, 8_000);
            setup.clients = 2;
            setup.depth_max = 8;
            setup.weights = [0, 60, 0, 1, 0];
            (setup.cold, setup.request_bytes_max) = (1_000_000, 4096);
            // Without merging, a write at a time in each of four places: about 5 MB a second.
            (setup.backing_micros_max, setup.backing_write_bytes_max) = (8_000, 4096);
            setup.check = 0;
            let report = run_setup("drain limit", setup, seed, false);
            let report = report.unwrap_or_else(|f| panic!("{}: {}", f.run, f.message));
            met(&report.coverage, &["client throttled"]);
            assert!(report.pause_max < Duration::from_secs(1), "{kind:?}, seed {seed}: {:?}", report.pause_max);
        }
    }
}

/// The reads of three clients hold all the memory that a read may take, for as long as they go on.
#[test]
fn no_request_waits_long_while_others_are_answered() {
    for kind in BOTH {
        let mut met_scarcity = Coverage::default();
        for seed in 0..6 {
            let mut setup = Setup::quiet(kind, 700);
            if kind == TierKind::Flash {
                setup.frames = 64;
            }
            setup.requests = 2_000;
            (setup.clients, setup.readers, setup.depth_max) = (4, 3, 16);
            (setup.weights, setup.think_micros_max) = ([0, 1, 0, 0, 0], 1);
            setup.request_bytes_max = 256 << 10;
            setup.unaligned = if seed % 2 == 0 { 0 } else { 200_000 };
            (setup.cold, setup.hot_blocks) = (900_000, 4);
            (setup.backing_micros_max, setup.backing_depth_max) = (5_000, 32);
            setup.check = 0;
            let report = run_setup("fairness", setup, seed, false);
            let report = report.unwrap_or_else(|f| panic!("{}: {}", f.run, f.message));
            let (waited, all) = (report.wait_max.as_secs_f64(), report.elapsed.as_secs_f64());
            println!("{kind:?}, seed {seed}: at most {waited:.3} s of {all:.3} s");
            assert!(waited < 0.06, "{kind:?}, seed {seed}: {waited} s of {all} s");
            met_scarcity.merge(&report.coverage);
        }
        met(&met_scarcity, &["client had to wait for frames"]);
    }
}

#[test]
fn a_client_that_hangs_up_leaves_nothing_half_done() {
    let coverage = holds_on(&BOTH, "hang-up", 60, |s| {
        s.hang_up = 100_000;
        s.backing_micros_max = 200_000;
        s.faults.process_killed = 500;
    });
    met(&coverage, &["client hung up with a write open"]);
}

#[test]
fn a_read_fill_never_hides_a_newer_write() {
    let coverage = holds_on(&BOTH, "fills", 80, |s| {
        s.weights = [10, 6, 1, 2, 6];
        s.hot_blocks = 3;
        s.backing_micros_max = 100_000;
        s.faults.process_killed = 1_000;
    });
    met(&coverage, &["fill dropped", "read from the backing"]);
}

#[test]
fn a_volume_larger_than_its_cache_evicts_and_reads_again() {
    let coverage = holds_on(&BOTH, "eviction", 20, |s| {
        s.size_bytes = 700 * 4096;
        s.size_bytes_max = s.size_bytes;
        s.cold = 900_000;
        s.request_bytes_max = 64 << 10;
        s.requests = 300;
        s.check = 5_000;
    });
    met(&coverage, &["clean frame evicted"]);
}

#[test]
fn a_log_much_older_than_its_tier_is_compacted() {
    let coverage = holds_on(&[TierKind::Flash], "compaction", 30, |s| {
        s.requests = 600;
        s.weights = [1, 12, 0, 1, 0];
        s.backing_micros_max = 400_000;
        s.faults.process_killed = 200;
    });
    met(&coverage, &["flash segment compacted"]);
}

/// Proves L-TF-5, L-BF-5, L-TF-6, L-BF-6, L-TF-8, L-BF-8.
#[test]
fn damaged_flash_is_reported_and_never_returned_as_data() {
    let coverage = holds_with_both_policies(&[TierKind::Flash], "damage", 120, |s| {
        s.frames = 64;
        s.faults.flash_rot = 20_000;
        s.faults.flash_lost = 5_000;
        s.faults.flash_misdirected = 5_000;
        s.faults.process_killed = 1_000;
        s.backing_micros_max = 200_000;
    });
    met(&coverage, &["tier damaged", "damage detected by checksum", "damage refused at start"]);
}

/// Proves L-TM-6, L-TF-6, L-BM-6, L-BF-6: a start is refused, or nothing is lost.
#[test]
fn metadata_that_rots_at_rest_is_refused_or_not_missed() {
    let mut coverage = Coverage::default();
    for seed in 0..400 {
        let mut setup = rotting_at_rest(seed);
        setup.policy = if seed % 8 < 4 { Policy::Back } else { Policy::Through };
        match run_setup("rotting at rest", setup, seed, false) {
            Ok(report) => coverage.merge(&report.coverage),
            Err(failure) => panic!("{}: {}", failure.run, failure.message),
        }
    }
    met(&coverage, &["metadata rotted at rest", "damage refused at start"]);
}

/// Proves L-BM-5.
#[test]
fn memory_that_rots_never_reaches_the_backing() {
    let mut coverage = Coverage::default();
    for seed in 0..20 {
        match run_setup("rotting memory", rotting_memory(), seed, false) {
            Ok(report) => coverage.merge(&report.coverage),
            Err(failure) => panic!("{}: {}", failure.run, failure.message),
        }
    }
    met(&coverage, &["damage detected by checksum"]);
}

/// Proves L-BM-5 where sectors are merged into a block of the backing first.
#[test]
fn memory_that_rots_under_some_sectors_never_reaches_a_backing_of_whole_blocks() {
    let mut coverage = Coverage::default();
    for seed in 0..20 {
        match run_setup("rotting sectors", rotting_sectors(), seed, false) {
            Ok(report) => coverage.merge(&report.coverage),
            Err(failure) => panic!("{}: {}", failure.run, failure.message),
        }
    }
    met(&coverage, &["damage detected by checksum"]);
}

#[test]
fn memory_that_rots_under_an_unaligned_write_fails_it() {
    let mut coverage = Coverage::default();
    for seed in 0..40 {
        match run_setup("rotting under edges", rotting_under_edges(), seed, false) {
            Ok(report) => coverage.merge(&report.coverage),
            Err(failure) => panic!("{}: {}", failure.run, failure.message),
        }
    }
    met(&coverage, &["damage detected by checksum", "unaligned edge merged"]);
}

/// Proves L-TF-13, L-BF-13.
#[test]
fn a_failing_tier_costs_speed_and_no_flushed_data() {
    let coverage = holds_with_both_policies(&[TierKind::Flash], "tier errors", 80, |s| {
        s.faults.tier_write_error = 10_000;
        s.faults.tier_sync_error = 30_000;
        s.faults.power_lost = 500;
    });
    met(&coverage, &["tier write failed", "tier sync failed"]);
}

#[test]
fn what_a_failed_sync_forgot_is_written_again_before_it_is_relied_upon() {
    let mut coverage = Coverage::default();
    for seed in 0..60 {
        match run_setup("forgetful flash", forgetful_flash(), seed, false) {
            Ok(report) => coverage.merge(&report.coverage),
            Err(failure) => panic!("{}: {}", failure.run, failure.message),
        }
    }
    met(&coverage, &["tier sync failed", "process killed", "power lost", "crash while recovering"]);
}

#[test]
fn segments_that_starts_have_left_half_full_lose_nothing_by_one_damaged_block() {
    let mut coverage = Coverage::default();
    for seed in 0..60 {
        match run_setup("rotting heads", rotting_heads(), seed, false) {
            Ok(report) => coverage.merge(&report.coverage),
            Err(failure) => panic!("{}: {}", failure.run, failure.message),
        }
    }
    met(&coverage, &["metadata rotted at rest", "power lost", "crash while recovering"]);
}

#[test]
fn a_killed_process_with_destage_in_flight_ends_with_the_newest_bytes() {
    // The late write of the first life holds old bytes of the block that the second life rewrites.
    let write = Step::Write { offset: 0, length: 4096, fua: false };
    for kind in BOTH {
        for point in 1..80 {
            let mut setup = Setup::quiet(kind, 4);
            setup.script = Some(vec![write, Step::Flush, write, Step::Flush, write]);
            setup.backing_micros_max = 4_000_000;
            setup.destage_delay = Duration(0);
            setup.crash_plan = Some(CrashPlan { point, crash: Crash::ProcessKilled, landing: Landing::Everything });
            if let Err(failure) = run_setup("late write", setup, point, false) {
                panic!("{}: {}", failure.run, failure.message);
            }
        }
    }
}
