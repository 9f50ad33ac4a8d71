//! The daemon killed at random moments under pattern load: what it acknowledged is there when it runs again; its image
//! alone is a crash image when all logs are lost; writes of the killed process that land late harm nothing.

use forebay_tests::harness::{IoMode, TempDir, Tier, VOLUME_NAME, Volume, forebay, rounds, run_command};
use forebay_tests::in_both_io_modes;
use forebay_tests::locks::UnseenLock;
use forebay_tests::nbd::Client;
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::load::{self, Ended, LoadOptions};
use forebay_tests::rng::Rng;
use forebay_tests::scene::{killed_with_a_dirty_tier, tier_path};
use std::process::Command;
use std::time::{Duration, Instant};

const SIZE: u64 = 48 << 20;
const MINUTE: Duration = Duration::from_secs(60);

fn load_options(volume: &Volume, folder: &TempDir, rng: &mut Rng) -> LoadOptions {
    let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
    options.seed = rng.next();
    options.connections = 1 + rng.below(3) as u32;
    options.in_flight = 1 + rng.below(32) as u32;
    options.flush_every = [4, 20, 100][rng.below(3) as usize];
    options.time = Some(MINUTE);
    options
}

/// What a daemon had done when it was killed.
#[derive(Clone, Copy, Debug, Default)]
struct Killed {
    /// Requests that it had acknowledged.
    acknowledged: u64,
    /// Writes to the image that it had asked for.
    destaged: u64,
    /// Batches that it had begun to bring into the journal.
    batches: u64,
}

/// Starts the volume, loads it, kills it after a while.
fn load_until_killed(volume: &Volume, options: &LoadOptions, alive: Duration) -> Killed {
    let daemon = volume.start();
    let (shown, ended) = std::thread::scope(|scope| {
        let before = load::journal_bytes(&options.journal);
        let load = scope.spawn(|| load::run(options));
        load::wait_until_under_way(&options.journal, before);
        std::thread::sleep(alive);
        let shown = daemon.show();
        daemon.kill9();
        (shown, load.join().expect("the load ends"))
    });
    let counter = |name: &str| shown["counters"][name].as_u64().expect("a counter");
    match ended.unwrap_or_else(|e| panic!("seed {}: {e}", options.seed)) {
        Ended::ConnectionLost(totals) => Killed {
            acknowledged: totals.acknowledged,
            destaged: counter("backing_writes"),
            batches: counter("journal_batches"),
        },
        Ended::Finished(totals) => panic!("the load ended before the kill: {totals:?}"),
    }
}

fn kill_loop(name: &str, io: IoMode, tier: Tier, policy: &'static str) {
    let folder = TempDir::new(name);
    let mut volume = Volume::new(&folder, SIZE, tier, io);
    // Smaller than the loads of all rounds, so that segments are reused.
    volume.tier_size = 16 << 20;
    volume.policy = policy;
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let (mut acknowledged, mut destaged, mut batches) = (0, 0, 0);
    for round in 0..rounds(5, 60) {
        volume.destage = ["auto", "journaled", "ordered"][round as usize % 3];
        let mut options = load_options(&volume, &folder, &mut rng);
        options.exact_groups = round % 2 == 0;
        // Every other kill comes when the oldest writes are on their way to the image, in each way of destage.
        let alive = if round % 2 == 0 { 600 } else { 30 } + rng.below(500);
        let killed = load_until_killed(&volume, &options, Duration::from_millis(alive));
        acknowledged += killed.acknowledged;
        destaged += u64::from(killed.destaged > 0);
        batches += u64::from(killed.batches > 0);
        let daemon = volume.start();
        check::settle_after_kill(&options.journal, &volume.target())
            .unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}\nthe daemon said: {}", daemon.output()));
        // A second kill right after the restart, before anything was written: recovery itself must not lose anything.
        daemon.kill9();
    }
    assert!(acknowledged > 50, "{acknowledged} acknowledged requests prove little");
    assert!(destaged >= 2, "{destaged} kills came after something was sent to the image");
    assert!(batches > 0 || policy == "through", "no kill came after something was sent to the journal");
    let journal = folder.join("journal");
    let daemon = volume.start();
    check::settle_after_kill(&journal, &volume.target()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    daemon.stop(MINUTE);
    let history = History::read(&journal).unwrap();
    check::image_complete(&history, &volume.image()).unwrap_or_else(|e| panic!("seed {seed}, drained image: {e}"));
}

in_both_io_modes! {
    /// Proves L-BM-1, L-BM-2.
    fn sigkill_loses_no_acknowledged_write_of_a_memory_tier(io: IoMode) {
        kill_loop("kill-memory", io, Tier::Memory, "back");
    }

    /// Proves L-BF-1, L-BF-2.
    fn sigkill_loses_no_acknowledged_write_of_a_flash_tier(io: IoMode) {
        kill_loop("kill-flash", io, Tier::Flash, "back");
    }

    /// Proves L-TM-1, L-TF-1, L-TM-2, L-TF-2.
    fn sigkill_loses_no_acknowledged_write_in_write_through(io: IoMode) {
        kill_loop("kill-through", io, Tier::Flash, "through");
        kill_loop("kill-through-memory", io, Tier::Memory, "through");
    }

    /// Proves L-BM-3, L-BM-4, L-BF-4, O-5: whoever uses the image alone has a disk as after a power cut.
    fn all_logs_lost_leaves_a_crash_image(io: IoMode) {
        let seed = Rng::fresh_seed();
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut partial = 0;
        for round in 0..rounds(6, 100) {
            let folder = TempDir::new("logs-lost");
            let tier = if round % 2 == 0 { Tier::Flash } else { Tier::Memory };
            let mut volume = Volume::new(&folder, SIZE, tier, io);
            volume.tier_size = 8 << 20;
            volume.destage = ["ordered", "journaled", "auto"][round as usize / 2 % 3];
            if round % 3 == 2 {
                // A slow backing: the kill meets many writes of one group on their way.
                volume.backing = format!("slow:iops=2000,latency=2ms,depth=16:{}", volume.backing);
            }
            let mut options = load_options(&volume, &folder, &mut rng);
            options.exact_groups = true;
            load_until_killed(&volume, &options, Duration::from_millis(300 + rng.below(900)));
            let history = History::read(&options.journal).unwrap();
            let place = format!("seed {seed}, round {round}, {tier:?}, {}", volume.destage);
            let verdict = check::image(&history, &volume.image_after_salvage())
                .unwrap_or_else(|e| panic!("{place}, salvaged: {e}"));
            check::image(&history, &volume.image_after_accepted_loss())
                .unwrap_or_else(|e| panic!("{place}, served: {e}"));
            let (from, _, all) = verdict.groups.expect("an image check names its groups");
            partial += u64::from(from > 0 && from < all);
        }
        assert!(partial > 0, "no kill came while the image was behind and not empty: nothing was proved");
    }

    /// Proves O-8.
    fn a_stop_drains_and_a_second_signal_leaves_the_log_for_the_next_start(io: IoMode) {
        let folder = TempDir::new("stop");
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        volume.backing = format!("slow:iops=50,latency=20ms:{}", volume.backing);
        let daemon = volume.start();
        let mut rng = Rng::new(3);
        let mut options = load_options(&volume, &folder, &mut rng);
        options.requests = Some(400);
        load::run(&options).unwrap();
        daemon.signal(libc::SIGTERM);
        std::thread::sleep(Duration::from_millis(300));
        let mut daemon = daemon;
        assert!(daemon.alive(), "a drain of this backlog takes seconds; it said: {}", daemon.output());
        daemon.signal(libc::SIGTERM);
        let begun = Instant::now();
        while daemon.alive() {
            assert!(begun.elapsed() < MINUTE, "a second SIGTERM stops at once");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(daemon.output().contains("incomplete"), "it must say that the image is incomplete: {}", daemon.output());
        volume.backing = volume.image().to_str().unwrap().to_owned();
        drop(daemon);
        let daemon = volume.start();
        check::settle_after_kill(&options.journal, &volume.target()).unwrap();
        daemon.stop(MINUTE);
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
    }

    fn drain_completes_the_image_while_the_daemon_runs(io: IoMode) {
        let folder = TempDir::new("drain");
        let volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        let daemon = volume.start();
        let mut options = load_options(&volume, &folder, &mut Rng::new(8));
        options.requests = Some(600);
        load::run(&options).unwrap();
        daemon.drain();
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
    }

    fn a_drain_of_an_idle_volume_is_answered_each_time(io: IoMode) {
        let folder = TempDir::new("drains");
        let volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        let daemon = volume.start();
        for _ in 0..20 {
            daemon.drain();
        }
    }

    fn a_held_drain_leaves_the_image_unchanged_while_writes_go_on(io: IoMode) {
        for destage in ["ordered", "journaled"] {
            let folder = TempDir::new("hold");
            let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
            volume.destage = destage;
            let daemon = volume.start();
            let mut options = load_options(&volume, &folder, &mut Rng::new(9));
            options.requests = Some(300);
            load::run(&options).unwrap();
            daemon.volume_command(["drain", "vm1", "--hold", "5m"]).expect_success();
            let held = std::fs::read(volume.image()).unwrap();
            check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
            options.requests = Some(150);
            load::run(&options).unwrap();
            // Longer than writes are left to age before they go out; then something happens that would send them.
            std::thread::sleep(Duration::from_millis(1000));
            load::run(&options).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            assert!(std::fs::read(volume.image()).unwrap() == held, "{destage}: the image changed under the hold");
            daemon.volume_command(["release", "vm1"]).expect_success();
            daemon.volume_command(["release", "vm1"]).expect_failure();
            daemon.drain();
            check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
        }
    }

    fn a_drain_through_keeps_the_image_complete_while_writes_go_on(io: IoMode) {
        let folder = TempDir::new("through");
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        volume.backing = format!("slow:iops=2000,latency=2ms,depth=16:{}", volume.backing);
        let daemon = volume.start();
        let mut options = load_options(&volume, &folder, &mut Rng::new(12));
        options.requests = Some(300);
        load::run(&options).unwrap();
        daemon.volume_command(["drain", "vm1", "--through"]).expect_success();
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
        let shown = daemon.show();
        assert_eq!((&shown["policy"]["effective"], &shown["policy"]["requested"]), (&"through".into(), &"back".into()));
        assert_eq!(shown["policy"]["reason"], "drained-through", "{shown}");
        for refused in [&["drain", "vm1", "--hold", "1m"][..], &["set", "vm1", "--policy", "back"], &["drain", "vm1", "--through"]] {
            let said = daemon.volume_command(refused).expect_failure().text();
            assert!(said.contains("release"), "{said}");
        }
        options.requests = Some(100);
        load::run(&options).unwrap();
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
        daemon.volume_command(["release", "vm1"]).expect_success();
        assert_eq!(daemon.show()["policy"]["effective"], "back");
        daemon.volume_command(["release", "vm1"]).expect_failure();
        // It ends with the daemon, and says so.
        daemon.volume_command(["drain", "vm1", "--through"]).expect_success();
        daemon.kill9();
        let daemon = volume.start();
        assert_eq!(daemon.show()["policy"]["effective"], "back");
        let said = daemon.volume_command(["release", "vm1"]).expect_failure().text();
        assert!(said.contains("void"), "{said}");
        check::settle_after_kill(&options.journal, &volume.target()).unwrap();
    }

    /// Requests of a killed daemon that are still under way keep the image locked, and no process is seen to hold it. The
    /// next daemon serves from its log, and not a byte reaches the image before they have ended.
    fn nothing_is_destaged_before_the_requests_of_a_killed_daemon_have_ended(io: IoMode) {
        let folder = TempDir::new("late");
        let (volume, mut options) = killed_with_a_dirty_tier(&folder, Tier::Flash, io);
        let before = std::fs::read(volume.image()).unwrap();
        let late = UnseenLock::hold(&volume.image());
        let daemon = volume.start();
        check::settle_after_kill(&options.journal, &volume.target()).unwrap();
        options.requests = Some(100);
        load::run(&options).unwrap();
        std::thread::scope(|scope| {
            // What is to be drained is in a hurry.
            let drain = scope.spawn(|| daemon.drain());
            std::thread::sleep(Duration::from_millis(1500));
            let shown = daemon.show();
            assert_eq!(shown["backing"]["state"], "awaiting-lock", "{shown}");
            assert!(!drain.is_finished(), "drained although the image is locked: {shown}");
            assert!(std::fs::read(volume.image()).unwrap() == before, "the image was written to: {shown}");
            drop(late);
        });
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
        daemon.stop(MINUTE);
    }

    /// Reads and writes of the backing by a killed daemon use the memory of its tier. While they are under way, the next one
    /// does not touch that memory: it does not serve.
    fn a_memory_tier_is_not_used_before_the_requests_of_a_killed_daemon_have_ended(io: IoMode) {
        let folder = TempDir::new("late-memory");
        let (volume, options) = killed_with_a_dirty_tier(&folder, Tier::Memory, io);
        let tier = tier_path(&volume);
        let before = [&tier, &volume.image()].map(|path| std::fs::read(path).unwrap());
        let late = UnseenLock::hold(&volume.image());
        let daemon = std::thread::scope(|scope| {
            let meanwhile = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(1500));
                let mut show = Command::new(forebay());
                show.args(["volume", "show", VOLUME_NAME, "--json", "--api"]).arg(volume.api());
                let shown = run_command(MINUTE, show).expect_success().stdout;
                let after = [&tier, &volume.image()].map(|path| std::fs::read(path).unwrap());
                // Whatever was found, the start is not to wait for ever.
                drop(late);
                let shown: serde_json::Value = serde_json::from_str(&shown).unwrap_or_else(|e| panic!("{e}: {shown}"));
                assert_eq!(shown["phase"], "waiting", "it uses memory that others may still write to: {shown}");
                assert!(after == before, "the tier or the image was written to");
            });
            let daemon = volume.start();
            meanwhile.join().expect("it waits");
            daemon
        });
        check::settle_after_kill(&options.journal, &volume.target()).unwrap();
        daemon.stop(MINUTE);
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
    }

    fn slow_backing_killed_with_writes_in_flight_then_rewritten_and_drained_is_complete(io: IoMode) {
        let folder = TempDir::new("slow-kill");
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        volume.backing = format!("slow:latency=5s:{}", volume.backing);
        let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..4 << 20);
        (options.requests, options.flush_every, options.fua_percent) = (Some(80), 0, 0);
        let daemon = volume.start();
        load::run(&options).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        daemon.kill9();
        volume.backing = volume.image().to_str().unwrap().to_owned();
        let daemon = volume.start();
        // The same seed: the same ranges are rewritten.
        load::run(&options).unwrap();
        daemon.drain();
        daemon.kill9();
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
    }
}

#[test]
fn a_read_during_load_never_goes_back() {
    // One writer overwrites a few sectors with growing numbers; readers on other connections must see them grow.
    let folder = TempDir::new("monotone");
    let mut volume = Volume::new(&folder, SIZE, Tier::Flash, IoMode::Threads);
    volume.tier_size = 8 << 20;
    let daemon = volume.start();
    let end = Instant::now() + Duration::from_secs(rounds(2, 30));
    std::thread::scope(|scope| {
        let target = volume.target();
        scope.spawn(move || {
            let mut client = Client::connect(&target).unwrap();
            let mut other = vec![0x5a; 256 << 10];
            for number in 1u64.. {
                if Instant::now() > end {
                    break;
                }
                let mut bytes = vec![0; 4096];
                bytes[..8].copy_from_slice(&number.to_le_bytes());
                bytes[4088..].copy_from_slice(&number.to_le_bytes());
                client.write((number % 7) * 4096, &bytes, 0).unwrap().unwrap();
                if number.is_multiple_of(5) {
                    // Pushes the log on, so that destage and eviction of the watched blocks happen meanwhile.
                    other[0] = number as u8;
                    client.write((1 << 20) + (number % 64) * (256 << 10), &other, 0).unwrap().unwrap();
                }
                if number.is_multiple_of(50) {
                    client.flush().unwrap().unwrap();
                }
            }
        });
        for _ in 0..2 {
            let target = volume.target();
            scope.spawn(move || {
                let mut client = Client::connect(&target).unwrap();
                let mut seen = [0u64; 7];
                while Instant::now() < end {
                    for (place, newest) in seen.iter_mut().enumerate() {
                        let mut bytes = [0; 4096];
                        client.read(place as u64 * 4096, &mut bytes).unwrap().unwrap();
                        let head = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                        let tail = u64::from_le_bytes(bytes[4088..].try_into().unwrap());
                        assert_eq!(head, tail, "a 4 KiB write was seen half done");
                        assert!(head >= *newest, "block {place} went back from {newest} to {head}");
                        *newest = head;
                    }
                }
            });
        }
    });
    daemon.stop(MINUTE);
}
