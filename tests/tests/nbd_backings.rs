//! A volume over an NBD export: the daemon, its server, or both are killed under pattern load. What the daemon
//! acknowledged is there, and the image alone is a crash image.

use forebay_tests::harness::{Daemon, IoMode, Nbdkit, TempDir, Tier, Volume};
use forebay_tests::in_both_io_modes;
use forebay_tests::nbd::Client;
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::load::{self, Ended, LoadOptions};
use forebay_tests::rng::Rng;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SIZE: u64 = 32 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// An image behind nbdkit, and a volume over that.
struct Setup {
    folder: TempDir,
    image: PathBuf,
    socket: PathBuf,
    /// Of nbdkit's filter.
    delay: &'static str,
    volume: Volume,
}

impl Setup {
    fn new(name: &str, io: IoMode, tier: Tier, quiet: &str) -> Setup {
        let folder = TempDir::new(name);
        let (image, socket) = (folder.sparse("export.img", SIZE), folder.join("export.sock"));
        let mut volume = Volume::new(&folder, SIZE, tier, io);
        volume.backing = format!("nbd+unix:///?socket={}&nbd_quiet={quiet}", socket.display());
        volume.size = None;
        // Smaller than the load, so that destage, throttle and reuse are all under way when a kill comes.
        volume.tier_size = 12 << 20;
        Setup { folder, image, socket, delay: "delay-write=1ms", volume }
    }

    fn server(&self) -> Nbdkit {
        let image = self.image.to_str().expect("a plain path");
        // What it has answered and not flushed lies in its own cache, which a kill takes from it.
        let filters = ["--filter=delay", "--filter=cache", "file", image, "cache=writeback", self.delay];
        Nbdkit::start_at(&self.socket, filters)
    }

    /// The daemon, after another that may have been killed: the server may have ended with that one, and a moment after it, so
    /// that it is still there when it is looked at. It is started anew then.
    fn start_daemon(&self, server: &mut Nbdkit) -> Daemon {
        loop {
            if server.has_ended() {
                *server = self.server();
            }
            match self.volume.try_start() {
                Ok(daemon) => return daemon,
                Err(refusal) => {
                    let begun = Instant::now();
                    while !server.has_ended() {
                        assert!(begun.elapsed() < Duration::from_secs(5), "the daemon does not serve: {refusal}");
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            }
        }
    }

    fn load_options(&self, rng: &mut Rng) -> LoadOptions {
        let mut options = LoadOptions::new(self.volume.target(), self.folder.join("journal"), 0..SIZE);
        options.seed = rng.next();
        options.in_flight = 1 + rng.below(16) as u32;
        options.flush_every = [4, 20, 100][rng.below(3) as usize];
        options.time = Some(MINUTE);
        options.exact_groups = true;
        options
    }
}

/// Load, with the server killed and started anew in the middle, until the daemon is killed; the running server.
fn load_until_killed(
    setup: &Setup,
    server: Nbdkit,
    daemon: Daemon,
    options: &LoadOptions,
    rng: &mut Rng,
) -> (Nbdkit, u64) {
    let (before, down, after) = (100 + rng.below(300), rng.below(300), 100 + rng.below(600));
    let (server, ended) = std::thread::scope(|scope| {
        let journal_before = load::journal_bytes(&options.journal);
        let load = scope.spawn(|| load::run(options));
        load::wait_until_under_way(&options.journal, journal_before);
        std::thread::sleep(Duration::from_millis(before));
        server.kill9();
        std::thread::sleep(Duration::from_millis(down));
        let server = setup.server();
        std::thread::sleep(Duration::from_millis(after));
        daemon.kill9();
        (server, load.join().expect("the load ends"))
    });
    match ended.unwrap_or_else(|e| panic!("seed {}: {e}", options.seed)) {
        Ended::ConnectionLost(totals) => (server, totals.acknowledged),
        Ended::Finished(totals) => panic!("the load ended before the kill: {totals:?}"),
    }
}

in_both_io_modes! {
    /// Proves N-1, L-BM-2, L-BF-2, L-BM-11, L-BF-11.
    fn killed_servers_and_daemons_lose_no_acknowledged_write(io: IoMode) {
        let seed = Rng::fresh_seed();
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        for tier in [Tier::Flash, Tier::Memory] {
            let setup = Setup::new("nbd-killed", io, tier, "200ms");
            let (mut server, mut acknowledged) = (setup.server(), 0);
            for round in 0..3 {
                let options = setup.load_options(&mut rng);
                let daemon = setup.start_daemon(&mut server);
                let more;
                (server, more) = load_until_killed(&setup, server, daemon, &options, &mut rng);
                acknowledged += more;
                let daemon = setup.start_daemon(&mut server);
                assert!(daemon.output().contains("not stopped cleanly"), "{}", daemon.output());
                check::settle_after_kill(&options.journal, &setup.volume.target())
                    .unwrap_or_else(|e| panic!("seed {seed}, round {round}, {tier:?}: {e}\n{}", daemon.output()));
                daemon.kill9();
            }
            assert!(acknowledged > 50, "{acknowledged} acknowledged requests prove little");
            let daemon = setup.start_daemon(&mut server);
            let journal = setup.folder.join("journal");
            check::settle_after_kill(&journal, &setup.volume.target()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            daemon.stop(MINUTE);
            let history = History::read(&journal).unwrap();
            check::image_complete(&history, &setup.image).unwrap_or_else(|e| panic!("seed {seed}, drained image: {e}"));
            // A clean stop leaves nothing that could land late.
            let daemon = setup.volume.start();
            assert!(!daemon.output().contains("not stopped cleanly"), "{}", daemon.output());
            drop(server);
        }
    }

    /// Proves N-1: the server is still at work on a write of the killed process while its block is written again. The older
    /// content lands first, because nothing is sent before the quiet time has passed.
    fn a_late_write_of_a_killed_daemon_lands_before_anything_newer(io: IoMode) {
        let mut setup = Setup::new("nbd-late", io, Tier::Flash, "4s");
        let hold = setup.folder.sparse("hold", 0);
        let started = setup.folder.join("started");
        setup.volume.destage = "ordered";
        // Writes take two seconds for as long as they are held up, each by itself; nothing else does.
        let (image, hold_path) = (setup.image.display(), hold.display());
        let pwrite = format!(
            "pwrite=if [ -e {hold_path} ]; then echo $4 >> {}; sleep 2; fi; dd of={image} bs=64k seek=$4 \
             oflag=seek_bytes iflag=fullblock conv=notrunc status=none",
            started.display()
        );
        let script = [
            "thread_model=echo parallel".to_owned(),
            format!("get_size=echo {SIZE}"),
            format!("pread=dd if={image} bs=64k skip=$4 count=$3 iflag=skip_bytes,count_bytes status=none"),
            pwrite,
            "can_write=exit 0".to_owned(),
            "can_flush=exit 0".to_owned(),
            "flush=exit 0".to_owned(),
        ];
        let _server = Nbdkit::start_at(&setup.socket, std::iter::once("eval".to_owned()).chain(script));
        let write = |content: u8| {
            let mut client = Client::connect(&setup.volume.target()).unwrap();
            client.write(0, &[content; 4096], 0).unwrap().unwrap();
            client.flush().unwrap().unwrap();
        };
        let daemon = setup.volume.start();
        write(1);
        let begun = Instant::now();
        while std::fs::read_to_string(&started).unwrap_or_default().trim() != "0" {
            assert!(begun.elapsed() < MINUTE, "the server was never asked to write: {}", daemon.show());
            std::thread::sleep(Duration::from_millis(10));
        }
        daemon.kill9();
        std::fs::remove_file(&hold).unwrap();
        let killed = Instant::now();
        let daemon = setup.volume.start();
        write(2);
        daemon.drain();
        std::thread::sleep(Duration::from_secs(5).saturating_sub(killed.elapsed()));
        let image = std::fs::read(&setup.image).unwrap();
        assert!(image[..4096] == [2; 4096], "the image holds {} and should hold 2", image[0]);
        daemon.stop(MINUTE);
    }

    /// Proves L-BF-11: what the server had answered and not flushed went with it, and none of that was under way when the
    /// connection was lost.
    fn what_a_killed_server_had_answered_and_not_flushed_is_written_again(io: IoMode) {
        let mut setup = Setup::new("nbd-unflushed", io, Tier::Flash, "0s");
        (setup.volume.destage, setup.delay) = ("ordered", "delay-write=0");
        let (mut server, daemon) = (setup.server(), setup.volume.start());
        let counter = |name: &str| daemon.show()["counters"][name].as_u64().expect("a counter");
        let connected = || daemon.output().matches("again").count();
        let (mut content, mut hit) = (0, false);
        while !hit {
            content += 1;
            assert!(content < 50, "the sync, half a second behind its write, always came before the new connection");
            let (writes, syncs, connections) = (counter("backing_writes"), counter("backing_syncs"), connected());
            Client::connect(&setup.volume.target()).unwrap().write(0, &[content; 4096], 0).unwrap().unwrap();
            let begun = Instant::now();
            while counter("backing_writes") == writes {
                assert!(begun.elapsed() < MINUTE, "never destaged: {}", daemon.show());
            }
            // It has been sent; the answer of a server that has nothing else to do follows.
            std::thread::sleep(Duration::from_millis(50));
            server.kill9();
            server = setup.server();
            while connected() == connections {
                assert!(begun.elapsed() < MINUTE, "never connected again: {}", daemon.output());
                std::thread::sleep(Duration::from_millis(3));
            }
            hit = counter("backing_syncs") == syncs;
            daemon.drain();
        }
        server.kill9();
        let image = std::fs::read(&setup.image).unwrap();
        assert!(image[..4096] == [content; 4096], "the image holds {} and should hold {content}", image[0]);
        let _server = setup.server();
        daemon.stop(MINUTE);
    }

    fn a_stop_does_not_sit_out_the_quiet_time(io: IoMode) {
        let mut setup = Setup::new("nbd-quiet-stop", io, Tier::Flash, "40s");
        let _server = setup.server();
        let mut options = setup.load_options(&mut Rng::new(1));
        options.requests = Some(50);
        let daemon = setup.volume.start();
        load::run(&options).unwrap();
        daemon.drain();
        daemon.kill9();
        let at_once = Duration::from_secs(10);
        let awaiting = |daemon: &Daemon| assert_eq!(daemon.show()["backing"]["state"], "awaiting-lock");
        // Nothing is left to be drained: the stop is a clean one.
        let daemon = setup.volume.start();
        awaiting(&daemon);
        daemon.stop(at_once);
        setup.volume.start().kill9();
        // What is left stays in the tier, if that was asked for.
        let plain = setup.volume.arguments.clone();
        setup.volume.arguments.push("--no-drain-on-stop".into());
        let daemon = setup.volume.start();
        awaiting(&daemon);
        load::run(&options).unwrap();
        daemon.stop(at_once);
        // A drain waits for the backing, until the second signal.
        setup.volume.arguments = plain;
        let mut daemon = setup.volume.start();
        awaiting(&daemon);
        daemon.signal(libc::SIGTERM);
        std::thread::sleep(Duration::from_secs(2));
        assert!(daemon.alive(), "a drain that was asked for is given up: {}", daemon.output());
        assert!(daemon.stop_failing(at_once).contains("stopped at once"));
        // A volume that is deleted is not waited for either.
        let daemon = setup.volume.start();
        awaiting(&daemon);
        let begun = Instant::now();
        daemon.volume_command(["delete", "vm1", "--discard-dirty"]).expect_success();
        assert!(begun.elapsed() < at_once, "{:?}", begun.elapsed());
    }

    /// Proves L-BF-4.
    fn the_image_alone_is_a_crash_image_whatever_was_killed(io: IoMode) {
        let seed = Rng::fresh_seed();
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut partial = 0;
        for round in 0..5 {
            let mut setup = Setup::new("nbd-logs-lost", io, Tier::Flash, "100ms");
            // Slow enough to be behind when the kill comes.
            setup.delay = "delay-write=5ms";
            let options = setup.load_options(&mut rng);
            let (server, daemon) = (setup.server(), setup.volume.start());
            let (server, _) = load_until_killed(&setup, server, daemon, &options, &mut rng);
            // With the server ends what it has in hand: a write of its own to a file lands before it is gone.
            server.kill9();
            let history = History::read(&options.journal).unwrap();
            let verdict = check::image(&history, &setup.image)
                .unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e}"));
            let (from, _, all) = verdict.groups.expect("an image check names its groups");
            partial += u64::from(from > 0 && from < all);
        }
        assert!(partial > 0, "no kill came while the image was behind and not empty: nothing was proved");
    }

    /// Proves N-2, N-3: what is recognised, and what is not.
    fn what_only_a_name_can_tell_is_told(io: IoMode) {
        let setup = Setup::new("nbd-refusals", io, Tier::Flash, "0s");
        let refusal = setup.volume.expect_refusal();
        refusal.says(&["connect to", "export.sock"]);
        let server = setup.server();
        let daemon = setup.volume.start();
        assert!(setup.volume.state().join("volumes/vm1.marker").exists(), "no export has a beside");
        // A second volume on the same export, however it is written.
        let twin = format!("slow:iops=7:nbd+unix:///?socket={}", setup.socket.display());
        let said = daemon.volume_command(["create", "twin", "--backing", &twin]).expect_failure().text();
        assert!(said.contains("vm1") && said.contains("backing"), "{said}");
        let shown = daemon.show().to_string();
        assert!(shown.contains("NBD in units of"), "{shown}");
        // Of another image behind the same name only a smaller size shows.
        let mut options = setup.load_options(&mut Rng::new(1));
        options.requests = Some(100);
        load::run(&options).unwrap();
        daemon.kill9();
        server.kill9();
        let kept = setup.folder.join("kept.img");
        std::fs::rename(&setup.image, &kept).unwrap();
        setup.folder.sparse("export.img", SIZE / 2);
        let server = setup.server();
        setup.volume.expect_refusal().says(&["export.sock", "its size is 16777216 bytes, it was 33554432"]);
        server.kill9();
        std::fs::rename(&kept, &setup.image).unwrap();
        let _server = setup.server();
        let daemon = setup.volume.start();
        check::settle_after_kill(&options.journal, &setup.volume.target()).unwrap();
        daemon.stop(MINUTE);
        check::image_complete(&History::read(&options.journal).unwrap(), &setup.image).unwrap();
    }
}
