//! The daemon killed at random moments under pattern load: what it acknowledged is there when it runs again; its image
//! alone is a crash image when all logs are lost; writes of the killed process that land late harm nothing.

use forebay_tests::harness::{
    Fuse, IoMode, Nbdkit, TempDir, Tier, Volume, no_fuse_or_loop, rounds, skip, wait_for_late_writes,
};
use forebay_tests::in_both_io_modes;
use forebay_tests::nbd::Client;
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::load::{self, Ended, LoadOptions};
use forebay_tests::rng::Rng;
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

/// Starts the volume, loads it, kills it after a while. Returns how much was acknowledged.
fn load_until_killed(volume: &Volume, options: &LoadOptions, alive: Duration) -> u64 {
    let daemon = volume.start();
    let ended = std::thread::scope(|scope| {
        let before = load::journal_bytes(&options.journal);
        let load = scope.spawn(|| load::run(options));
        load::wait_until_under_way(&options.journal, before);
        std::thread::sleep(alive);
        daemon.kill9();
        load.join().expect("the load ends")
    });
    match ended.unwrap_or_else(|e| panic!("seed {}: {e}", options.seed)) {
        Ended::ConnectionLost(totals) => totals.acknowledged,
        Ended::Finished(totals) => panic!("the load ended before the kill: {totals:?}"),
    }
}

fn kill_loop(name: &str, io: IoMode, tier: Tier, policy: &'static str) {
    let folder = TempDir::new(name);
    let mut volume = Volume::new(&folder, SIZE, tier, io);
    // Smaller than the load, so that destage, throttle and reuse are all under way when the kill comes.
    volume.tier_size = 16 << 20;
    volume.policy = policy;
    let seed = Rng::fresh_seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut acknowledged = 0;
    for round in 0..rounds(5, 60) {
        let mut options = load_options(&volume, &folder, &mut rng);
        options.exact_groups = round % 2 == 0;
        acknowledged += load_until_killed(&volume, &options, Duration::from_millis(30 + rng.below(500)));
        let daemon = volume.start();
        check::settle_after_kill(&options.journal, &volume.target())
            .unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}\nthe daemon said: {}", daemon.output()));
        // A second kill right after the restart, before anything was written: recovery itself must not lose anything.
        daemon.kill9();
    }
    assert!(acknowledged > 50, "{acknowledged} acknowledged requests prove little");
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
            if round % 3 == 2 {
                // A slow backing: the kill meets many writes of one group on their way.
                volume.backing = format!("slow:iops=2000,latency=2ms,depth=16:{}", volume.backing);
            }
            let mut options = load_options(&volume, &folder, &mut rng);
            options.exact_groups = true;
            load_until_killed(&volume, &options, Duration::from_millis(300 + rng.below(900)));
            wait_for_late_writes(&volume.image());
            let history = History::read(&options.journal).unwrap();
            let verdict = check::image(&history, &volume.image())
                .unwrap_or_else(|e| panic!("seed {seed}, round {round}, {tier:?}: {e}"));
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
            assert!(begun.elapsed() < Duration::from_secs(10), "a second SIGTERM stops at once");
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
        let folder = TempDir::new("hold");
        let volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        let daemon = volume.start();
        let mut options = load_options(&volume, &folder, &mut Rng::new(9));
        options.requests = Some(300);
        load::run(&options).unwrap();
        daemon.volume_command(["drain", "vm1", "--hold", "5m"]).expect_success();
        let held = std::fs::read(volume.image()).unwrap();
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
        options.requests = Some(150);
        load::run(&options).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert!(std::fs::read(volume.image()).unwrap() == held, "the image changed under the hold");
        daemon.volume_command(["release", "vm1"]).expect_success();
        daemon.volume_command(["release", "vm1"]).expect_failure();
        daemon.drain();
        check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
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

    /// The killed process's writes land seconds after its death: behind this server each takes two seconds, and FUSE
    /// lets only one be under way.
    fn late_writes_of_a_killed_daemon_do_not_overwrite_newer_data(io: IoMode) {
        if let Some(reason) = no_fuse_or_loop() {
            return skip(reason);
        }
        let folder = TempDir::new("late");
        let disk = folder.sparse("disk", SIZE);
        let slow = Nbdkit::start(&folder, ["--filter=delay", "file", disk.to_str().unwrap(), "wdelay=2"]);
        let mount = Fuse::mount(&folder.join("late.img"), &slow.uri());
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        volume.backing = mount.file().to_str().unwrap().to_owned();
        volume.size = None;
        let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..4 << 20);
        // One small group: behind this backing each round of a few writes takes seconds.
        (options.requests, options.flush_every, options.fua_percent, options.zero_percent) = (Some(2), 0, 0, 0);
        let daemon = volume.start();
        load::run(&options).unwrap();
        // Long enough that the group is on its way to the backing, too short for it to have arrived.
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(daemon.show()["positions"]["destaged"], 0, "nothing has arrived yet");
        daemon.kill9();
        let daemon = volume.start();
        // Opening the file may itself have to wait in the kernel for a write that is under way.
        assert!(daemon.began < Duration::from_secs(15), "it serves from its log meanwhile, but took {:?}", daemon.began);
        check::settle_after_kill(&options.journal, &volume.target()).unwrap();
        // The same seed: the very ranges that the late writes hit are rewritten while those are still under way.
        load::run(&options).unwrap();
        check::settle_after_kill(&options.journal, &volume.target()).unwrap();
        daemon.stop(Duration::from_secs(120));
        check::image_complete(&History::read(&options.journal).unwrap(), mount.file()).unwrap();
        drop(mount);
        drop(slow);
        check::image_complete(&History::read(&options.journal).unwrap(), &disk).unwrap();
    }

    /// The killed process's reads of the backing point into its memory tier. They must have ended before that memory
    /// holds new records, which nothing would protect from them.
    fn late_reads_of_a_killed_daemon_do_not_land_in_newer_data(io: IoMode) {
        if let Some(reason) = no_fuse_or_loop() {
            return skip(reason);
        }
        let folder = TempDir::new("late-reads");
        let disk = folder.join("disk");
        std::fs::write(&disk, vec![0xee; SIZE as usize]).unwrap();
        let slow = Nbdkit::start(&folder, ["--filter=delay", "file", disk.to_str().unwrap(), "rdelay=1"]);
        let mount = Fuse::mount(&folder.join("late.img"), &slow.uri());
        let mut volume = Volume::new(&folder, SIZE, Tier::Memory, io);
        volume.backing = mount.file().to_str().unwrap().to_owned();
        (volume.size, volume.tier_size) = (None, 8 << 20);
        let daemon = volume.start();
        let target = volume.target();
        let readers: Vec<_> = (0..8)
            .map(|i| {
                let mut client = Client::connect(&target).unwrap();
                // The answer never comes: the daemon is killed before.
                std::thread::spawn(move || client.read((40 << 20) + i * (64 << 10), &mut vec![0; 64 << 10]).is_ok())
            })
            .collect();
        std::thread::sleep(Duration::from_millis(400));
        daemon.kill9();
        let answered = readers.into_iter().filter_map(|reader| reader.join().ok()).filter(|ok| *ok).count();
        assert_eq!(answered, 0, "every read was under way when the daemon was killed");
        let daemon = volume.start();
        println!("the second start took {:?}: {}", daemon.began, daemon.output());
        // Fresh memory is used first: what the late reads would hit is in here.
        let mut client = Client::connect(&target).unwrap();
        let bytes = vec![0x11; 1 << 20];
        for at in 0..5 {
            client.write(at << 20, &bytes, 0).unwrap().unwrap();
        }
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end {
            for at in 0..5 {
                let mut found = vec![0; 1 << 20];
                client.read(at << 20, &mut found).unwrap().unwrap();
                assert!(found == bytes, "a read of the former process has landed in a newer record");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        drop(client);
        daemon.stop(MINUTE);
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
