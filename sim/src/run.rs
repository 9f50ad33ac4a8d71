//! Running seeds: one, many, or every crash point of a small workload.

use crate::coverage::Coverage;
use crate::families;
use crate::random::Random;
use crate::setup::{Crash, CrashPlan, Lie, Setup, Step};
use crate::tier_migration::Landing;
use crate::world::{Report, World};
use forebay_core::format::TierKind;
use forebay_core::status::DestageMode;
use forebay_core::types::BLOCK_BYTES;
use forebay_core::volume::Rules;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// A violation, and what repeats it.
#[derive(Debug)]
pub struct Failure {
    /// The seed, or the workload's name.
    pub run: String,
    /// What was found, and what would have been right.
    pub message: String,
}

thread_local! {
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
    static CATCHING: RefCell<bool> = const { RefCell::new(false) };
}

/// Keeps the message of a panic that [`attempt`] catches, and prints all others as before.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if CATCHING.with(|c| *c.borrow()) {
                CAUGHT.with(|c| *c.borrow_mut() = Some(info.to_string()));
            } else {
                before(info);
            }
        }));
    });
}

/// Runs `f`; a violation becomes an error that carries its message. Needs a build with unwinding panics.
pub fn attempt<T>(run: String, f: impl FnOnce() -> T) -> Result<T, Failure> {
    install_hook();
    CATCHING.with(|c| *c.borrow_mut() = true);
    let result = catch_unwind(AssertUnwindSafe(f));
    CATCHING.with(|c| *c.borrow_mut() = false);
    result.map_err(|_| Failure {
        run,
        message: CAUGHT.with(|c| c.borrow_mut().take()).unwrap_or_else(|| "a panic without a message".into()),
    })
}

/// The world that a seed makes, and the chance that goes on in it.
pub fn seeded(seed: u64) -> (Setup, Random) {
    let mut random = Random::new(seed);
    let mut setup = Setup::draw(&mut random);
    setup.draw_journal(&mut Random::new(!seed));
    setup.draw_rot(&mut Random::new(seed.rotate_left(32)));
    // Of seeds of which none had been noted when these worlds were made: the others stay what they have always been.
    match seed % 7 {
        1 => setup.draw_slow_tier(&mut Random::new(seed.rotate_left(16))),
        3 => setup.draw_rotting_memory(&mut Random::new(seed.rotate_left(16))),
        _ => {}
    }
    setup.keep_to_whole_units();
    (setup, random)
}

/// Runs the world of one seed to its end.
pub fn run_seed(seed: u64, lie: Option<Lie>, trace: bool) -> Result<Report, Failure> {
    attempt(format!("seed {seed}"), || {
        let (setup, random) = seeded(seed);
        World::new(setup, random, lie, Rules::default(), trace).run()
    })
}

/// Runs one seed of a cluster.
pub fn run_cluster_seed(seed: u64, trace: bool) -> Result<Report, Failure> {
    attempt(format!("cluster seed {seed}"), || {
        let (setup, random) = families::seeded(seed);
        World::new(setup, random, None, Rules::default(), trace).run()
    })
}

/// Runs one seed of a cluster that owners are taken over in most of the time.
pub fn run_restless_seed(seed: u64, trace: bool) -> Result<Report, Failure> {
    attempt(format!("restless cluster seed {seed}"), || {
        let (setup, random) = families::restless(seed);
        World::new(setup, random, None, Rules::default(), trace).run()
    })
}

/// Runs one seed of a cluster whose volume is handed over all the time.
pub fn run_migrating_seed(seed: u64, trace: bool) -> Result<Report, Failure> {
    attempt(format!("migrating cluster seed {seed}"), || {
        let (setup, random) = families::migrating(seed);
        World::new(setup, random, None, Rules::default(), trace).run()
    })
}

/// Runs one seed of a cluster whose owners are cut off from everybody but their clients, who go on reading there.
pub fn run_parted_seed(seed: u64, trace: bool) -> Result<Report, Failure> {
    attempt(format!("parted cluster seed {seed}"), || {
        let (setup, random) = families::parted(seed);
        World::new(setup, random, None, Rules::default(), trace).run()
    })
}

/// Runs one seed of a cluster to which everything happens.
pub fn run_hostile_seed(seed: u64, trace: bool) -> Result<Report, Failure> {
    attempt(format!("hostile cluster seed {seed}"), || {
        let (setup, random) = families::hostile(seed);
        World::new(setup, random, None, Rules::default(), trace).run()
    })
}

/// Runs a set-up that no seed drew.
pub fn run_setup(name: &str, setup: Setup, seed: u64, trace: bool) -> Result<Report, Failure> {
    attempt(format!("{name}, seed {seed}"), || {
        World::new(setup, Random::new(seed), None, Rules::default(), trace).run()
    })
}

/// Small workloads for [`exhaustive`], each with a name.
pub fn small_workloads() -> Vec<(&'static str, Vec<Step>)> {
    let write = |offset, length| Step::Write { offset, length, fua: false };
    let fua = |offset, length| Step::Write { offset, length, fua: true };
    let zero = |offset, length| Step::Zero { offset, length, hole: true, fua: false };
    vec![
        ("one write", vec![write(0, 4096)]),
        ("write, flush", vec![write(0, 4096), Step::Flush]),
        ("two groups on one block", vec![write(0, 4096), Step::Flush, write(0, 4096), Step::Flush]),
        ("two groups on two blocks", vec![write(0, 4096), Step::Flush, write(8192, 4096), Step::Flush]),
        ("rewrite within a group", vec![write(0, 8192), write(4096, 4096), write(0, 512), Step::Flush]),
        ("sector, then its neighbour", vec![write(512, 512), Step::Flush, write(1024, 512)]),
        ("unaligned over sector", vec![write(0, 4096), write(700, 900), Step::Flush]),
        ("FUA between writes", vec![write(0, 4096), fua(4096, 4096), write(0, 4096)]),
        ("zeros over data", vec![write(0, 12288), Step::Flush, zero(4096, 4096), Step::Flush]),
        ("data over zeros", vec![zero(0, 16384), Step::Flush, write(4096, 4096)]),
        ("zero sectors", vec![write(0, 4096), zero(512, 1024), Step::Flush]),
        ("read between", vec![write(0, 4096), Step::Read { offset: 0, length: 8192 }, write(4096, 4096), Step::Flush]),
    ]
}

/// Small workloads of which the tier stalls in each of its writes in turn, before a backing with a journal: what is newest is
/// not in the log when a batch is chosen.
fn stalled_workloads() -> Vec<(&'static str, Vec<Step>)> {
    let write = |block: u64| Step::Write { offset: block * BLOCK_BYTES, length: BLOCK_BYTES as u32, fua: false };
    let zero = |block: u64| Step::Zero { offset: block * BLOCK_BYTES, length: BLOCK_BYTES, hole: true, fua: false };
    vec![
        ("a block again behind another", vec![write(0), write(1), write(0)]),
        ("zeros over a block behind another", vec![write(0), write(1), zero(0)]),
        ("a block again in the next group", vec![write(0), write(1), Step::Flush, write(0), write(1)]),
    ]
}

/// One workload of an exhaustive run, before its crash is planned.
struct Case {
    name: String,
    setup: Setup,
    crashes: &'static [Crash],
    landings: &'static [(Landing, u64)],
}

const CRASHES: [Crash; 3] = [Crash::ProcessKilled, Crash::PowerLost, Crash::LogsLost];
/// What landed, and with how many seeds that is drawn.
const LANDINGS: [(Landing, u64); 3] = [(Landing::Nothing, 1), (Landing::Everything, 1), (Landing::Random, 3)];

fn exhaustive_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, steps) in stalled_workloads() {
        for late in STALLED_WRITES {
            let mut setup = Setup::quiet(TierKind::Flash, 4);
            (setup.script, setup.depth_max) = (Some(steps.clone()), 3);
            (setup.journal_blocks, setup.destage, setup.ready_micros_max) = (32, DestageMode::Journaled, 1);
            // The backing is ready before the first write has arrived.
            (setup.think_micros_max, setup.late_tier_write) = (2_000, Some(late));
            let name = format!("{name}, stalls in write {late}");
            cases.push(Case { name, setup, crashes: &CRASHES[..2], landings: &LANDINGS[..2] });
        }
    }
    for kind in [TierKind::Memory, TierKind::Flash] {
        for journaled in [false, true] {
            for (name, steps) in small_workloads() {
                let mut setup = Setup::quiet(kind, 4);
                (setup.script, setup.depth_max) = (Some(steps), 2);
                if journaled {
                    (setup.journal_blocks, setup.destage, setup.ready_micros_max) = (32, DestageMode::Journaled, 1_000);
                }
                let journal = if journaled { "journaled" } else { "ordered" };
                let (name, landings) =
                    (format!("{name}, {kind:?}, {journal}"), &LANDINGS[..3 - usize::from(journaled)]);
                cases.push(Case { name, setup, crashes: &CRASHES, landings });
            }
        }
    }
    cases
}

/// Writes to the tier behind those that make it one: of clients' data, and of the first checkpoints that speak of them.
const STALLED_WRITES: core::ops::RangeInclusive<u64> = 4..=8;

/// Every crash point of every small workload, for each kind of crash and each bounded choice of what landed.
/// Calls `each` with the report; gives the number of runs.
pub fn exhaustive(each: impl FnMut(&Report)) -> Result<u64, Failure> {
    exhaustive_with(Rules::default(), each)
}

/// The same with bugs planted in the volume.
pub fn exhaustive_with(rules: Rules, mut each: impl FnMut(&Report)) -> Result<u64, Failure> {
    let mut runs = 0;
    for Case { name, setup, crashes, landings } in exhaustive_cases() {
        for &crash in crashes {
            for &(landing, seeds) in landings {
                for seed in 0..seeds {
                    for point in 1.. {
                        let mut setup = setup.clone();
                        setup.crash_plan = Some(CrashPlan { point, crash, landing });
                        let name = format!("{name}, {crash:?}, {landing:?}, seed {seed}, point {point}");
                        let report = attempt(name, || World::new(setup, Random::new(seed), None, rules, false).run())?;
                        runs += 1;
                        each(&report);
                        if !report.crashed {
                            break;
                        }
                    }
                }
            }
        }
    }
    Ok(runs)
}

/// Runs seeds one after the other and gives what they reached together.
pub fn run_seeds(seeds: impl Iterator<Item = u64>) -> Result<(u64, Coverage), Failure> {
    let mut coverage = Coverage::default();
    let mut runs = 0;
    for seed in seeds {
        coverage.merge(&run_seed(seed, None, false)?.coverage);
        runs += 1;
    }
    Ok((runs, coverage))
}
