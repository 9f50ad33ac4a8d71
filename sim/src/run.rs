//! Running seeds: one, many, or every crash point of a small workload.

use crate::cluster;
use crate::coverage::Coverage;
use crate::media::Landing;
use crate::random::Random;
use crate::setup::{Crash, CrashPlan, Lie, Setup, Step};
use crate::world::{Report, World};
use forebay_core::format::TierKind;
use forebay_core::volume::Rules;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// A violation, and what repeats it.
#[derive(Debug)]
pub struct Failure {
    /// The seed, or the workload's name.
    pub run: String,
    /// What was found.
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

/// What a seed means.
pub fn seeded(seed: u64) -> (Setup, Random) {
    let mut random = Random::new(seed);
    let mut setup = Setup::draw(&mut random);
    setup.draw_journal(&mut Random::new(!seed));
    setup.draw_rot(&mut Random::new(seed.rotate_left(32)));
    (setup, random)
}

/// Runs one seed.
pub fn run_seed(seed: u64, lie: Option<Lie>, trace: bool) -> Result<Report, Failure> {
    attempt(format!("seed {seed}"), || {
        let (setup, random) = seeded(seed);
        World::new(setup, random, lie, Rules::default(), trace).run()
    })
}

/// Runs one seed of a cluster.
pub fn run_cluster_seed(seed: u64, trace: bool) -> Result<Report, Failure> {
    attempt(format!("cluster seed {seed}"), || {
        let (setup, random) = cluster::seeded(seed);
        World::new(setup, random, None, Rules::default(), trace).run()
    })
}

/// Runs one seed of a cluster whose volume is handed over all the time.
pub fn run_migrating_seed(seed: u64, trace: bool) -> Result<Report, Failure> {
    attempt(format!("migrating cluster seed {seed}"), || {
        let (setup, random) = cluster::migrating(seed);
        World::new(setup, random, None, Rules::default(), trace).run()
    })
}

/// Runs one seed of a cluster to which everything happens.
pub fn run_hostile_seed(seed: u64, trace: bool) -> Result<Report, Failure> {
    attempt(format!("hostile cluster seed {seed}"), || {
        let (setup, random) = cluster::hostile(seed);
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

/// Every crash point of every small workload, for each kind of crash and each bounded choice of what landed.
/// Calls `each` with the name and the report; gives the number of runs.
pub fn exhaustive(mut each: impl FnMut(&Report)) -> Result<u64, Failure> {
    let mut runs = 0;
    for kind in [TierKind::Memory, TierKind::Flash] {
        for (name, steps) in small_workloads() {
            for crash in [Crash::ProcessKilled, Crash::PowerLost, Crash::LogsLost] {
                for (landing, seeds) in [(Landing::Nothing, 1), (Landing::Everything, 1), (Landing::Random, 3)] {
                    for seed in 0..seeds {
                        for point in 1.. {
                            let mut setup = Setup::quiet(kind, 4);
                            setup.script = Some(steps.clone());
                            setup.depth_max = 2;
                            setup.crash_plan = Some(CrashPlan { point, crash, landing });
                            let name = format!("{name}, {kind:?}, {crash:?}, {landing:?}, point {point}");
                            let report = run_setup(&name, setup, seed, false)?;
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
