//! A backing that is away, while nothing is asked of it, while the daemon stops, and while the medium of the tier is to change.

use forebay_tests::harness::{Daemon, IoMode, Nbdkit, Output, TempDir, Tier, VOLUME_NAME, Volume};
use forebay_tests::in_both_io_modes;
use forebay_tests::nbd::{Client, Command};
use forebay_tests::scene::tier_path;
use forebay_tests::stall::{LateRemoval, StallingTier};
use serde_json::Value;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SIZE: u64 = 16 << 20;
const BLOCK: usize = 4096;
const MINUTE: Duration = Duration::from_secs(60);

/// A volume over an export of nbdkit's.
struct Setup {
    folder: TempDir,
    image: PathBuf,
    socket: PathBuf,
    volume: Volume,
}

impl Setup {
    fn new(name: &str, io: IoMode, tier: Tier) -> Setup {
        let folder = TempDir::new(name);
        let (image, socket) = (folder.sparse("export.img", SIZE), folder.join("export.sock"));
        let mut volume = Volume::new(&folder, SIZE, tier, io);
        volume.backing = format!("nbd+unix:///?socket={}&nbd_quiet=0s", socket.display());
        volume.size = None;
        volume.tier_size = 12 << 20;
        Setup { folder, image, socket, volume }
    }

    fn server(&self) -> Nbdkit {
        Nbdkit::start_at(&self.socket, ["file", self.image.to_str().expect("a plain path")])
    }

    /// Who connects anew finds nobody, while connections that there are go on.
    fn hide_server(&self) {
        std::fs::rename(&self.socket, self.folder.join("hidden.sock")).unwrap();
    }

    fn show_server(&self) {
        std::fs::rename(self.folder.join("hidden.sock"), &self.socket).unwrap();
    }
}

/// Passes TCP connections on to the server of a setup, with a network in between that can lose everything.
struct Network {
    port: u16,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    /// Nothing is passed on, of the connections that there were then.
    held: Arc<AtomicUsize>,
    /// Connections that their client has ended.
    ended: Arc<AtomicUsize>,
}

impl Network {
    fn before(setup: &Setup) -> Network {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, held) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let ended = Arc::new(AtomicUsize::new(0));
        let (kept, holds, ends, to) = (connections.clone(), held.clone(), ended.clone(), setup.socket.clone());
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let (client, server) = (client.unwrap(), UnixStream::connect(&to).unwrap());
                kept.lock().unwrap().push(client.try_clone().unwrap());
                let (back, forth, held) = (client.try_clone().unwrap(), server.try_clone().unwrap(), holds.clone());
                std::thread::spawn(move || pass_on(server, back, number, &held));
                let (held, ended) = (holds.clone(), ends.clone());
                std::thread::spawn(move || {
                    pass_on(client, forth, number, &held);
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Network { port, connections, held, ended }
    }

    /// Connections by which something may still come.
    fn open(&self) -> usize {
        self.connections() - self.ended.load(Ordering::SeqCst)
    }

    fn connections(&self) -> usize {
        self.connections.lock().unwrap().len()
    }

    /// What comes by the connections that there are is taken, and goes no further: a server that takes its time.
    fn hold(&self) {
        self.held.store(self.connections(), Ordering::SeqCst);
    }

    fn go_on(&self) {
        self.held.store(0, Ordering::SeqCst);
    }

    /// Every packet by the connections that there are is lost from here on, and nobody is told.
    fn lose_all(&self) {
        let drop_all = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
        let program = libc::sock_fprog { len: 1, filter: drop_all.as_ptr().cast_mut() };
        for connection in self.connections.lock().unwrap().iter() {
            // SAFETY: the program is one instruction, which the kernel copies.
            let result = unsafe {
                libc::setsockopt(
                    connection.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_ATTACH_FILTER,
                    (&raw const program).cast(),
                    size_of::<libc::sock_fprog>() as libc::socklen_t,
                )
            };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        }
    }
}

fn pass_on(mut from: impl Read, mut to: impl Write, number: usize, held: &AtomicUsize) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count) = from.read(&mut bytes) {
        while number < held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

#[track_caller]
fn wait_until(daemon: &Daemon, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let shown = daemon.show();
        if is_so(&shown) {
            return shown;
        }
        assert!(begun.elapsed() < MINUTE, "not within a minute: {what}\n{shown:#}\n{}", daemon.output());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_failing(shown: &Value) -> bool {
    shown["backing"]["state"] == "failing"
}

fn is_ready(shown: &Value) -> bool {
    shown["backing"]["state"] == "ready" && shown["phase"] == "serving"
}

fn set_tier(daemon: &Daemon, to: &str) -> Output {
    let volatile: &[&str] = if to == "memory" { &["--volatile"] } else { &[] };
    daemon.volume_command(["set", VOLUME_NAME, "--tier", to].iter().chain(volatile))
}

/// Writes a block, and reads it and one that is in no cache.
#[track_caller]
fn use_it(volume: &Volume, number: u8) {
    let mut client = Client::connect(&volume.target()).unwrap();
    client.write(u64::from(number) * BLOCK as u64, &[number; BLOCK], 0).unwrap().unwrap();
    let mut bytes = [0; BLOCK];
    client.read(u64::from(number) * BLOCK as u64, &mut bytes).unwrap().unwrap();
    assert_eq!(bytes, [number; BLOCK]);
    client.read(SIZE - (1 + u64::from(number)) * BLOCK as u64, &mut bytes).unwrap().unwrap();
    assert_eq!(bytes, [0; BLOCK]);
}

in_both_io_modes! {
    /// Proves L-BF-11: nobody has to ask anything of a server to see that its connection is lost.
    fn a_lost_connection_is_shown_though_nothing_is_asked_and_until_it_is_there_again(io: IoMode) {
        let setup = Setup::new("lost-link", io, Tier::Flash);
        let mut server = setup.server();
        let daemon = setup.volume.start();
        let told = |kind: &str| {
            let events: Value = serde_json::from_str(&daemon.command(["events", "--json"]).expect_success().stdout).unwrap();
            let events = events.as_array().or(events["events"].as_array()).expect("a list");
            events.iter().any(|event| event["kind"] == kind)
        };
        let mut shown = wait_until(&daemon, "it is ready", is_ready);
        let begun = Instant::now();
        // An event tells of what has changed between two looks, the first of which may come late.
        while !(told("backing-failing") && told("backing-ready")) {
            assert!(begun.elapsed() < 2 * MINUTE, "no events tell of it: {}", daemon.command(["events"]).text());
            server.kill9();
            shown = wait_until(&daemon, "the lost connection is shown", is_failing);
            let error = shown["backing"]["error"].as_str().expect("it has a reason");
            assert!(error.contains("nbd+unix") && shown["phase"] == "serving", "{shown:#}");
            std::thread::sleep(Duration::from_millis(1500));
            server = setup.server();
            shown = wait_until(&daemon, "it is ready again", is_ready);
            assert_eq!(shown["backing"]["error"], Value::Null, "{shown:#}");
            std::thread::sleep(Duration::from_millis(1500));
        }
        assert_eq!(shown["counters"]["backing_reads"], 0, "nobody has asked anything");
        use_it(&setup.volume, 1);
        drop(server);
    }

    /// Proves O-14: a change that cannot succeed now closes nothing.
    fn a_change_of_the_tier_is_refused_while_the_backing_is_away(io: IoMode) {
        let setup = Setup::new("tier-change-away", io, Tier::Flash);
        let mut server = setup.server();
        let mut daemon = setup.volume.start();
        wait_until(&daemon, "it is ready", is_ready);
        let refused = |daemon: &mut Daemon, words: &str| {
            let begun = Instant::now();
            let said = set_tier(daemon, "memory").expect_failure().text();
            assert!(said.contains("cannot be reached") && said.contains(words), "{said}");
            assert!(begun.elapsed() < Duration::from_secs(30), "it takes {:?}", begun.elapsed());
            let shown = daemon.show();
            assert_eq!((&shown["phase"], &shown["tier"]["kind"]), (&"serving".into(), &"flash".into()), "{shown:#}");
            assert!(shown["tier"]["changing"].is_null() && shown["policy"]["effective"] == "back", "{shown:#}");
            let mut client = Client::connect(&setup.volume.target()).unwrap();
            client.write(0, &[7; BLOCK], 0).unwrap().unwrap();
            daemon.assert_healthy();
        };
        // One that hangs, so that nobody knows yet; and one that is known to be gone.
        server.signal(libc::SIGSTOP);
        refused(&mut daemon, "answered");
        server.signal(libc::SIGCONT);
        server.kill9();
        wait_until(&daemon, "the lost connection is shown", is_failing);
        refused(&mut daemon, "nbd+unix");
        server = setup.server();
        wait_until(&daemon, "it is ready again", is_ready);
        set_tier(&daemon, "memory").expect_success();
        use_it(&setup.volume, 2);
        daemon.stop(MINUTE);
        drop(server);
        let kept = std::fs::read(&setup.image).unwrap();
        assert_eq!((kept[..BLOCK].to_vec(), kept[2 * BLOCK..3 * BLOCK].to_vec()), (vec![7; BLOCK], vec![2; BLOCK]));
    }

    /// Proves O-14: what goes away in the middle of a change is waited for, by that volume's clients and by nobody else.
    fn a_volume_whose_backing_goes_away_while_its_tier_changes_is_served_again_without_a_restart(io: IoMode) {
        for tier in [Tier::Flash, Tier::Memory] {
            let (from, to) = match tier {
                Tier::Flash => ("flash", "memory"),
                Tier::Memory => ("memory", "flash"),
            };
            let setup = Setup::new("tier-change-lost", io, tier);
            let _server = setup.server();
            let mut daemon = setup.volume.start();
            wait_until(&daemon, "it is ready", is_ready);
            use_it(&setup.volume, 1);
            let mut stays = Client::connect(&setup.volume.target()).unwrap();
            setup.hide_server();
            let said = set_tier(&daemon, to).expect_failure().text();
            assert!(said.contains(VOLUME_NAME) && !said.contains("restart"), "{said}");
            let shown = wait_until(&daemon, "it is told what is waited for", |shown| {
                shown["phase"] == "waiting" && shown["problem"].as_str().is_some_and(|why| why.contains("nbd+unix"))
            });
            assert_eq!(shown["tier"]["kind"], from, "{shown:#}");
            // Others come, are used and go meanwhile.
            let other = setup.folder.sparse("other.img", SIZE);
            let begun = Instant::now();
            let create = ["create", "vm2", "--backing", other.to_str().unwrap(), "--tier", "flash", "--tier-size", "12M"];
            daemon.volume_command(create).expect_success();
            let of_other = format!("nbd+unix:///vm2?socket={}", setup.volume.socket().display());
            let mut client = Client::connect(&forebay_tests::nbd::Target::parse(&of_other).unwrap()).unwrap();
            client.write(0, &[9; BLOCK], 0).unwrap().unwrap();
            client.disconnect().unwrap();
            daemon.volume_command(["delete", "vm2", "--discard-dirty"]).expect_success();
            assert!(begun.elapsed() < Duration::from_secs(20), "others wait for it: {:?}", begun.elapsed());
            // Who is connected and who comes waits.
            let mut comes = Client::connect(&setup.volume.target()).unwrap();
            stays.send(Command::Read, 0, 1, BLOCK as u64, BLOCK as u32, &[]).unwrap();
            comes.send(Command::Write, 0, 1, 2 * BLOCK as u64, BLOCK as u32, &[2; BLOCK]).unwrap();
            stays.stream.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
            let early = stays.receive().unwrap_err();
            assert!(matches!(early.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{early}");
            stays.stream.set_read_timeout(Some(MINUTE)).unwrap();
            setup.show_server();
            assert_eq!((stays.receive().unwrap(), comes.receive().unwrap()), ((1, 0), (1, 0)));
            let mut bytes = [0; BLOCK];
            stays.stream.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, [1; BLOCK]);
            let shown = wait_until(&daemon, "it is served again", is_ready);
            assert_eq!((&shown["tier"]["kind"], &shown["policy"]["effective"]), (&from.into(), &"back".into()), "{shown:#}");
            daemon.assert_healthy();
            set_tier(&daemon, to).expect_success();
            use_it(&setup.volume, 3);
            daemon.stop(MINUTE);
            let kept = std::fs::read(&setup.image).unwrap();
            for number in 1..4u8 {
                assert_eq!(kept[usize::from(number) * BLOCK..][..BLOCK], [number; BLOCK], "block {number}");
            }
        }
    }

    /// Reads that the backing fails are begun anew for a while; a daemon that is stopped meanwhile gives them no error for it.
    fn a_stop_ends_the_connection_of_whose_reads_the_backing_fails_and_answers_none(io: IoMode) {
        for faults in ["faulty:read_error=1,seed=1", "slow:latency=2s:faulty:read_error=1,seed=1"] {
            let folder = TempDir::new("stop-reads-fail");
            let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
            volume.backing = format!("{faults}:{}", volume.backing);
            let daemon = volume.start();
            wait_until(&daemon, "it is ready", is_ready);
            let mut client = Client::connect(&volume.target()).unwrap();
            // A read, and a write that needs one.
            client.send(Command::Read, 0, 1, 0, BLOCK as u32, &[]).unwrap();
            client.send(Command::Write, 0, 2, 9 * BLOCK as u64 + 100, 10, &[5; 10]).unwrap();
            std::thread::sleep(Duration::from_secs(1));
            daemon.signal(libc::SIGTERM);
            let answer = client.receive().expect_err("what was not done is not answered");
            assert!(matches!(answer.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{faults}: {answer}");
            let _ = daemon.stop_either_way(MINUTE);
        }
    }
}

/// A read under way finds another connection before its client has waited for 20 s, whether its request or the answer is lost.
#[test]
fn a_read_outlives_a_network_that_loses_everything_without_a_word() {
    for request_arrives in [false, true] {
        let mut setup = Setup::new("silent-loss", IoMode::Threads, Tier::Flash);
        let _server = setup.server();
        let network = Network::before(&setup);
        setup.volume.backing = format!("nbd://127.0.0.1:{}/?nbd_quiet=0s", network.port);
        let daemon = setup.volume.start();
        wait_until(&daemon, "it is ready", is_ready);
        use_it(&setup.volume, 1);
        daemon.drain();
        let before = network.connections();
        let mut client = Client::connect(&setup.volume.target()).unwrap();
        network.hold();
        // The last answer is acknowledged: else the other host sends it again for some seconds, by the way that is open still.
        std::thread::sleep(Duration::from_millis(500));
        let begun = Instant::now();
        if request_arrives {
            client.send(Command::Read, 0, 1, SIZE / 2, BLOCK as u32, &[]).unwrap();
            std::thread::sleep(Duration::from_secs(1));
            network.lose_all();
        } else {
            network.lose_all();
            client.send(Command::Read, 0, 1, SIZE / 2, BLOCK as u32, &[]).unwrap();
        }
        assert_eq!(client.receive().unwrap(), (1, 0), "{}", daemon.output());
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(20), "request arrives: {request_arrives}, answered after {took:?}");
        assert!(network.connections() > before, "it had another connection");
    }
}

/// Its host answers for it: no connection to it is given up, however long it takes.
#[test]
fn a_server_that_takes_its_time_keeps_its_connection() {
    let mut setup = Setup::new("slow-server", IoMode::Threads, Tier::Flash);
    let _server = setup.server();
    let network = Network::before(&setup);
    setup.volume.backing = format!("nbd://127.0.0.1:{}/?nbd_quiet=0s", network.port);
    let daemon = setup.volume.start();
    wait_until(&daemon, "it is ready", is_ready);
    let before = network.connections();
    let mut client = Client::connect(&setup.volume.target()).unwrap();
    network.hold();
    client.send(Command::Read, 0, 1, SIZE / 2, BLOCK as u32, &[]).unwrap();
    std::thread::sleep(Duration::from_secs(15));
    network.go_on();
    assert_eq!(client.receive().unwrap(), (1, 0));
    assert_eq!(network.connections(), before, "{}", daemon.output());
}

/// One that is closed and waits ends with its daemon, and the next start serves it.
#[test]
fn a_daemon_stops_while_a_volume_waits_to_be_served_again() {
    let setup = Setup::new("tier-change-stop", IoMode::Threads, Tier::Flash);
    let _server = setup.server();
    let daemon = setup.volume.start();
    wait_until(&daemon, "it is ready", is_ready);
    use_it(&setup.volume, 1);
    setup.hide_server();
    set_tier(&daemon, "memory").expect_failure();
    let said = daemon.stop_failing(MINUTE);
    assert!(said.contains("waiting to be served again"), "{said}");
    setup.show_server();
    let daemon = setup.volume.start();
    wait_until(&daemon, "it is ready", is_ready);
    let mut bytes = [0; BLOCK];
    Client::connect(&setup.volume.target()).unwrap().read(BLOCK as u64, &mut bytes).unwrap().unwrap();
    assert_eq!(bytes, [1; BLOCK]);
    daemon.stop(MINUTE);
}

/// Whoever opens it again before could see an older content land over a newer one.
#[test]
fn a_volume_that_cannot_end_what_it_had_under_way_is_served_again_when_that_has_ended() {
    let folder = TempDir::new("tier-change-stalled");
    let mut volume = Volume::new(&folder, SIZE, Tier::Flash, IoMode::Threads);
    volume.tier_size = 12 << 20;
    // Long enough to see that the answer to a read is awaited.
    volume.backing = format!("slow:latency=3s:{}", volume.backing);
    volume.start().stop(MINUTE);
    volume.size = None;
    let tier = StallingTier::of(&mut volume, &folder);
    let mut daemon = volume.start();
    wait_until(&daemon, "it is ready", is_ready);
    let mut client = Client::connect(&volume.target()).unwrap();
    let told = std::thread::scope(|scope| {
        client.send(Command::Read, 0, 1, SIZE / 2, BLOCK as u32, &[]).unwrap();
        let changing = scope.spawn(|| set_tier(&daemon, "memory"));
        wait_until(&daemon, "clients wait", |shown| shown["tier"]["changing"]["stage"] == "switching");
        tier.stall();
        changing.join().unwrap()
    });
    let said = told.expect_failure().text();
    assert!(said.contains("has not ended") && !said.contains("restart"), "{said}");
    assert!(tier.kept_back() > 0, "it did not stall");
    let shown = daemon.show();
    let problem = shown["problem"].as_str().unwrap_or_default();
    assert!(shown["phase"] == "waiting" && problem.contains("has not ended"), "{shown:#}");
    client.send(Command::Write, 0, 2, 0, BLOCK as u32, &[8; BLOCK]).unwrap();
    tier.go_on();
    assert_eq!(client.receive().unwrap(), (1, 0));
    client.stream.read_exact(&mut [0; BLOCK]).unwrap();
    assert_eq!(client.receive().unwrap(), (2, 0));
    let shown = wait_until(&daemon, "it is served again", is_ready);
    assert_eq!(shown["tier"]["kind"], "flash", "{shown:#}");
    daemon.assert_healthy();
    daemon.stop(MINUTE);
    assert_eq!(std::fs::read(volume.image()).unwrap()[..BLOCK], [8; BLOCK]);
}

/// Proves O-14: it was closed for a change of its tier, and its stop has not ended. Who is told that it is deleted has its export for himself.
#[test]
fn a_volume_that_is_deleted_while_it_could_not_be_ended_has_no_connection_to_its_backing_any_more() {
    let mut setup = Setup::new("tier-change-unended-delete", IoMode::Threads, Tier::Flash);
    let _server = setup.server();
    let network = Network::before(&setup);
    setup.volume.backing = format!("slow:latency=3s:nbd://127.0.0.1:{}/?nbd_quiet=0s", network.port);
    setup.volume.start().stop(MINUTE);
    let tier = StallingTier::of(&mut setup.volume, &setup.folder);
    let daemon = setup.volume.start();
    wait_until(&daemon, "it is ready", is_ready);
    let mut client = Client::connect(&setup.volume.target()).unwrap();
    let told = std::thread::scope(|scope| {
        client.send(Command::Read, 0, 1, SIZE / 2, BLOCK as u32, &[]).unwrap();
        let changing = scope.spawn(|| set_tier(&daemon, "memory"));
        wait_until(&daemon, "clients wait", |shown| shown["tier"]["changing"]["stage"] == "switching");
        tier.stall();
        changing.join().unwrap()
    });
    let said = told.expect_failure().text();
    assert!(said.contains("has not ended"), "{said}");
    assert!(tier.kept_back() > 0 && network.open() > 0, "{} connections", network.open());
    daemon.volume_command(["delete", VOLUME_NAME, "--discard-dirty"]).expect_success();
    let begun = Instant::now();
    while network.open() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "it can still write to its backing");
        std::thread::sleep(Duration::from_millis(20));
    }
    tier.go_on();
    let create = ["create", "vm2", "--backing", &setup.volume.backing, "--tier", "flash", "--tier-size", "12M"];
    daemon.volume_command(create).expect_success();
    let of_other = format!("nbd+unix:///vm2?socket={}", setup.volume.socket().display());
    let mut client = Client::connect(&forebay_tests::nbd::Target::parse(&of_other).unwrap()).unwrap();
    client.write(0, &[9; BLOCK], 0).unwrap().unwrap();
    daemon.volume_command(["drain", "vm2"]).expect_success();
    assert_eq!(std::fs::read(&setup.image).unwrap()[..BLOCK], [9; BLOCK]);
}

/// Proves O-14: what a change has left over lies where the next one makes its tier, and is removed late.
#[test]
fn a_tier_that_the_next_change_has_made_is_not_removed_as_the_one_before_it() {
    let folder = TempDir::new("tier-change-late-removal");
    let mut volume = Volume::new(&folder, SIZE, Tier::Flash, IoMode::Threads);
    volume.tier_size = 12 << 20;
    volume.start().stop(MINUTE);
    volume.size = None;
    let flash = tier_path(&volume);
    let late = LateRemoval::of(&flash, &mut volume, &folder);
    let daemon = volume.start();
    wait_until(&daemon, "it is ready", is_ready);
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| set_tier(&daemon, "memory"));
        let served = |shown: &Value| is_ready(shown) && shown["tier"]["kind"] == "memory" && late.waits();
        wait_until(&daemon, "it is served from the new tier, and the former one is to be removed", served);
        let second = set_tier(&daemon, "flash");
        late.go_on();
        (first.join().unwrap(), second)
    });
    first.expect_success();
    // Whoever is not told to wait has his tier.
    if !second.status.success() {
        assert!(second.text().contains("changes its tier already"), "{}", second.text());
        assert!(!flash.exists(), "the former tier is gone");
        set_tier(&daemon, "flash").expect_success();
    }
    assert_eq!(tier_path(&volume), flash, "both lie in the same place");
    let mut client = Client::connect(&volume.target()).unwrap();
    client.write(0, &[5; BLOCK], 0).unwrap().unwrap();
    client.flush().unwrap().unwrap();
    assert!(flash.exists(), "the tier that counts is gone");
    daemon.kill9();
    let daemon = volume.start();
    wait_until(&daemon, "it is ready", is_ready);
    let mut bytes = [0; BLOCK];
    Client::connect(&volume.target()).unwrap().read(0, &mut bytes).unwrap().unwrap();
    assert_eq!(bytes, [5; BLOCK]);
    daemon.stop(MINUTE);
}

/// One that waits can be given up.
#[test]
fn a_volume_that_waits_to_be_served_again_can_be_deleted() {
    let setup = Setup::new("tier-change-delete", IoMode::Threads, Tier::Flash);
    let _server = setup.server();
    let mut daemon = setup.volume.start();
    wait_until(&daemon, "it is ready", is_ready);
    setup.hide_server();
    set_tier(&daemon, "memory").expect_failure();
    let mut waits = Client::connect(&setup.volume.target()).unwrap();
    daemon.volume_command(["delete", VOLUME_NAME]).expect_failure();
    daemon.volume_command(["delete", VOLUME_NAME, "--discard-dirty"]).expect_success();
    setup.show_server();
    let mut bytes = [0; BLOCK];
    let answer = waits.read(0, &mut bytes).expect_err("nobody serves it any more");
    assert!(matches!(answer.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{answer}");
    std::thread::sleep(Duration::from_secs(3));
    let listed = daemon.volume_command(["list"]).expect_success().text();
    assert!(!listed.contains(VOLUME_NAME), "{listed}");
    daemon.assert_healthy();
}
