//! A tier that stalls, and a daemon that is killed meanwhile: what it acknowledged is there, whatever had superseded it on the
//! way to the tier.

use forebay_tests::harness::{IoMode, TempDir, Tier, VOLUME_NAME, Volume, rounds};
use forebay_tests::nbd::{Client, Command};
use forebay_tests::pattern::check;
use forebay_tests::pattern::load::{self, Ended, LoadOptions};
use forebay_tests::rng::Rng;
use forebay_tests::stall::StallingTier;
use std::time::{Duration, Instant};

const SIZE: u64 = 48 << 20;
const MINUTE: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;

fn journaled(folder: &TempDir) -> (Volume, StallingTier) {
    let mut volume = Volume::new(folder, SIZE, Tier::Flash, IoMode::Threads);
    volume.destage = "journaled";
    volume.start().stop(MINUTE);
    let tier = StallingTier::of(&mut volume, folder);
    (volume, tier)
}

/// Proves L-BF-1 and L-BF-2: one block written and acknowledged, written once more while the tier stalls, and a batch that goes
/// out with another block of the same group.
#[test]
fn a_block_that_is_superseded_before_a_stalled_tier_is_not_lost_by_a_kill() {
    let folder = TempDir::new("stalled-tier");
    let (volume, tier) = journaled(&folder);
    let daemon = volume.start();
    daemon.volume_command(["drain", VOLUME_NAME, "--hold", "60s"]).expect_success();
    let mut client = Client::connect(&volume.target()).unwrap();
    client.write(0, &[1; BLOCK], 0).unwrap().unwrap();
    client.write(BLOCK as u64, &[2; BLOCK], 0).unwrap().unwrap();
    tier.stall();
    client.send(Command::Write, 0, 7, 0, BLOCK as u32, &[3; BLOCK]).unwrap();
    let begun = Instant::now();
    while tier.kept_back() == 0 {
        assert!(begun.elapsed() < MINUTE, "the tier did not stall");
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon.volume_command(["release", VOLUME_NAME]).expect_success();
    // Long enough for a batch that does not wait for the tier.
    let begun = Instant::now();
    while daemon.show()["counters"]["journal_batches"] == 0 && begun.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(20));
    }
    daemon.kill9();
    tier.go_on();
    let daemon = volume.start();
    let mut client = Client::connect(&volume.target()).unwrap();
    // The replay ends what it brings: both before and after it the acknowledged content is there, or what came later.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        for (block, legal) in [(0, [1, 3]), (1, [2, 2])] {
            let mut bytes = [0; BLOCK];
            client.read(block * BLOCK as u64, &mut bytes).unwrap().unwrap();
            assert!(legal.iter().any(|&value| bytes == [value; BLOCK]), "block {block} has {}", bytes[0]);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    daemon.stop(MINUTE);
    let image = std::fs::read(volume.image()).unwrap();
    assert!([1, 3].contains(&image[0]) && image[BLOCK] == 2, "{} and {} in the image", image[0], image[BLOCK]);
}

/// The same under load, with stalls at random moments.
#[test]
fn sigkill_before_a_tier_that_stalls_loses_no_acknowledged_write() {
    let folder = TempDir::new("stalled-tier-kills");
    let (volume, tier) = journaled(&folder);
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let (mut batches, mut kept_back) = (0, 0);
    for round in 0..rounds(4, 60) {
        // Few blocks, written again and again in one group.
        let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..1 << 20);
        (options.seed, options.in_flight, options.flush_every) = (rng.next(), 16, 100);
        options.time = Some(MINUTE);
        let daemon = volume.start();
        let stalled_kill = std::thread::scope(|scope| {
            let before = load::journal_bytes(&options.journal);
            let load = scope.spawn(|| load::run(&options));
            load::wait_until_under_way(&options.journal, before);
            for _ in 0..4 + rng.below(8) {
                std::thread::sleep(Duration::from_millis(10 + rng.below(150)));
                tier.stall();
                std::thread::sleep(Duration::from_millis(10 + rng.below(300)));
                batches += daemon.show()["counters"]["journal_batches"].as_u64().expect("a counter");
                kept_back += tier.kept_back();
                tier.go_on();
            }
            tier.stall();
            std::thread::sleep(Duration::from_millis(rng.below(800)));
            daemon.kill9();
            load.join().expect("the load ends")
        });
        assert!(matches!(stalled_kill, Ok(Ended::ConnectionLost(_))), "seed {seed}, round {round}: {stalled_kill:?}");
        tier.go_on();
        let daemon = volume.start();
        check::settle_after_kill(&options.journal, &volume.target())
            .unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}\nthe daemon said: {}", daemon.output()));
        daemon.kill9();
    }
    assert!(batches > 0, "nothing was journaled");
    assert!(kept_back > 0, "the tier never stalled");
}
