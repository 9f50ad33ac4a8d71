//! Proofs that the proofs can fail: the daemon is built a second time with one fault planted in it, and the checker
//! that stands for the broken promise must find it. The faults of the syncs need a power cut: see `power_cuts`.

use forebay_tests::harness::{IoMode, TempDir, Tier, Volume};
use forebay_tests::locks::wait_for_late_writes;
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::load::{self, LoadOptions};
use forebay_tests::rng::Rng;
use std::time::Duration;

const SIZE: u64 = 48 << 20;

/// Loads, kills, and hands the scene to a check; at most `rounds_max` times, until the check finds something wrong.
fn caught_within(
    rounds_max: u32,
    plant: &'static str,
    prepare: impl Fn(&mut Volume, &mut LoadOptions),
    check: impl Fn(&Volume, &LoadOptions) -> Result<(), String>,
) -> String {
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    for _ in 0..rounds_max {
        let folder = TempDir::new(plant);
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, IoMode::Uring);
        volume.plant = Some(plant);
        let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
        options.seed = rng.next();
        options.time = Some(Duration::from_secs(60));
        prepare(&mut volume, &mut options);
        let daemon = volume.start();
        std::thread::scope(|scope| {
            let before = load::journal_bytes(&options.journal);
            let load = scope.spawn(|| load::run(&options));
            load::wait_until_under_way(&options.journal, before);
            std::thread::sleep(Duration::from_millis(300 + rng.below(700)));
            daemon.kill9();
            load.join().expect("the load ends").expect("the load ends with its connection");
        });
        if let Err(message) = check(&volume, &options) {
            return message;
        }
    }
    panic!("{plant}: not noticed in {rounds_max} rounds: the checker is blind to it");
}

#[test]
fn groups_destaged_out_of_order_are_caught_when_all_logs_are_lost() {
    let message = caught_within(
        20,
        "groups-reordered",
        |volume, options| {
            volume.backing = format!("slow:iops=2000,latency=2ms,depth=16:{}", volume.backing);
            volume.destage = "ordered";
            options.flush_every = 10;
        },
        |volume, options| {
            wait_for_late_writes(&volume.image());
            check::image(&History::read(&options.journal)?, &volume.image()).map(|_| ())
        },
    );
    println!("{message}");
    assert!(
        message.contains("no barrier explains the image") || message.contains("no state of it explains"),
        "{message}"
    );
}

/// The image alone is no crash image in the middle of a batch: that is what the journal is for.
#[test]
fn a_batch_that_never_reached_the_journal_is_caught_when_all_logs_are_lost() {
    let message = caught_within(
        20,
        "journal-dropped",
        |volume, options| {
            volume.backing = format!("slow:iops=2000,latency=2ms,depth=16:{}", volume.backing);
            volume.destage = "journaled";
            options.flush_every = 10;
        },
        |volume, options| check::image(&History::read(&options.journal)?, &volume.image_after_salvage()).map(|_| ()),
    );
    println!("{message}");
    assert!(
        message.contains("no barrier explains the image") || message.contains("no state of it explains"),
        "{message}"
    );
}

#[test]
fn writes_acknowledged_before_they_are_held_are_caught_after_a_kill() {
    let message = caught_within(
        40,
        "ack-early",
        |_, options| {
            (options.connections, options.in_flight) = (4, 32);
            // Without barriers: a flush waits for the log and would hide what was acknowledged too early.
            (options.flush_every, options.fua_percent, options.exact_groups) = (0, 0, false);
        },
        |volume, options| {
            let daemon = volume.start();
            let result = check::volume_after_kill(&History::read(&options.journal)?, &volume.target());
            daemon.kill9();
            result.map(|_| ())
        },
    );
    println!("{message}");
    assert!(message.contains("acknowledged"), "{message}");
}

/// The planted build with no fault chosen is an honest one: what the other tests catch is the fault, not the build.
#[test]
fn the_planted_build_without_a_fault_passes() {
    let folder = TempDir::new("unplanted");
    let mut volume = Volume::new(&folder, SIZE, Tier::Flash, IoMode::Uring);
    volume.plant = Some("");
    let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
    options.time = Some(Duration::from_secs(60));
    let daemon = volume.start();
    std::thread::scope(|scope| {
        let before = load::journal_bytes(&options.journal);
        let load = scope.spawn(|| load::run(&options));
        load::wait_until_under_way(&options.journal, before);
        std::thread::sleep(Duration::from_millis(700));
        daemon.kill9();
        load.join().expect("the load ends").expect("the load ends with its connection");
    });
    check::image(&History::read(&options.journal).unwrap(), &volume.image_after_salvage()).unwrap();
    let daemon = volume.start();
    check::settle_after_kill(&options.journal, &volume.target()).unwrap();
    drop(daemon);
}
