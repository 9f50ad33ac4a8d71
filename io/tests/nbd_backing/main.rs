//! NBD exports as backings, against real servers (nbdkit, qemu-nbd) and in both modes of the reactor.

mod quiet;

use forebay_core::api::{Effect, Event, Outcome, Part};
use forebay_core::format::{Superblock, TierLayout, Version};
use forebay_core::types::*;
use forebay_io::clock::until;
use forebay_io::{
    Backing, BackingOptions, Completion, Executed, FileError, FileProblem, LockAttempt, MemoryTier, ModeChoice,
    OpenError, Reactor, Tier, VolumeIo, backing_socket_volume, now, volume_of,
};
use quiet::*;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration as StdDuration;

const INDEX: u32 = 5;
const TIER_BLOCKS: u32 = 2048;
const SECOND: StdDuration = StdDuration::from_secs(1);
const EXPORT_BYTES: u64 = 32 << 20;

macro_rules! in_both_modes {
    ($($name:ident)*) => {
        mod uring { $(#[test] fn $name() { super::$name(super::ModeChoice::Uring) })* }
        mod threads { $(#[test] fn $name() { super::$name(super::ModeChoice::Threads) })* }
    };
}

in_both_modes! {
    what_is_written_is_read_on_every_server
    limits_of_the_server_are_kept_by_splitting
    many_requests_are_under_way_at_one_time
    errors_are_told_as_they_are
    a_server_killed_in_the_middle_loses_nothing
    a_sync_never_succeeds_for_what_a_lost_connection_took
    reads_outlive_a_restart_of_the_server
    late_writes_of_a_lost_connection_are_waited_for
    the_quiet_time_begins_when_the_server_is_there_again
    the_quiet_time_of_an_opening_begins_again_with_another_connection
    what_may_still_come_late_is_known
    a_server_that_hangs_up_at_once_is_left_alone_for_a_while
    the_first_command_that_changes_something_is_a_flush
    a_slow_and_a_faulty_wrapper_stand_in_front
    a_congested_server_gets_everything_in_order
    replies_come_in_any_pieces
    a_reply_to_nothing_ends_the_connection_and_nothing_is_believed
}

// --- servers ---

/// A running server on a unix socket; killed when dropped.
struct Server {
    process: Child,
    socket: PathBuf,
}

impl Server {
    fn start(folder: &Path, program: &str, arguments: &[&str]) -> Server {
        let socket = folder.join("nbd.sock");
        let _ = std::fs::remove_file(&socket);
        let how: &[&str] = match program {
            "nbdkit" => &["-f", "-U"],
            "qemu-nbd" => &["--persistent", "--shared=4", "-k"],
            other => panic!("{other}"),
        };
        let messages = folder.join("server.log");
        let process = Command::new(program)
            .args(how)
            .arg(&socket)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(&messages).unwrap())
            .spawn()
            .unwrap_or_else(|error| panic!("the tests need {program}: {error}"));
        let mut server = Server { process, socket };
        let limit = now() + Duration::from_secs(20);
        while UnixStream::connect(&server.socket).is_err() {
            if server.process.try_wait().unwrap().is_some() {
                panic!("{program} {arguments:?} has ended: {}", std::fs::read_to_string(&messages).unwrap());
            }
            assert!(now() < limit, "{program} {arguments:?} does not listen");
            std::thread::sleep(StdDuration::from_millis(10));
        }
        server
    }

    fn nbdkit(folder: &Path, arguments: &[&str]) -> Server {
        Server::start(folder, "nbdkit", arguments)
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    fn kill(&mut self) {
        // Already dead is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Ends it in order, so that its filters write their reports.
    fn stop(mut self) {
        let done = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(done.success());
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn image(folder: &Path) -> PathBuf {
    let path = folder.join("disk.img");
    std::fs::File::create(&path).unwrap().set_len(EXPORT_BYTES).unwrap();
    path
}

/// Passes connections on, until they are cut.
struct Proxy {
    socket: PathBuf,
    connections: Arc<Mutex<Vec<UnixStream>>>,
    /// The next bytes from the server have their first one changed.
    garble: Arc<AtomicBool>,
}

impl Proxy {
    /// What comes from the server is passed on in pieces of at most so many bytes.
    fn new(folder: &Path, to: &Path, piece: usize) -> Proxy {
        let socket = folder.join("proxy.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let garble = Arc::new(AtomicBool::new(false));
        let (kept, to, wrong) = (connections.clone(), to.to_owned(), garble.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), UnixStream::connect(&to).unwrap());
                for (mut from, mut into, piece, wrong) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap(), 1 << 16, None),
                    (server.try_clone().unwrap(), client.try_clone().unwrap(), piece, Some(wrong.clone())),
                ] {
                    std::thread::spawn(move || {
                        let mut bytes = vec![0; piece];
                        while let Ok(count) = from.read(&mut bytes) {
                            if wrong.as_ref().is_some_and(|wrong| wrong.swap(false, Ordering::Relaxed)) {
                                bytes[0] ^= 0x20;
                            }
                            if count == 0 || into.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = into.shutdown(std::net::Shutdown::Both);
                    });
                }
                kept.lock().unwrap().extend([client, server]);
            }
        });
        Proxy { socket, connections, garble }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Ends the connections of this moment; the server knows nothing of it before it has done what it was asked for.
    fn cut(&self) {
        for stream in self.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

// --- a shard's loop in small ---

struct Rig {
    _memory: tempfile::TempDir,
    reactor: Reactor,
    io: VolumeIo,
    next: u64,
}

impl Rig {
    fn new(mode: ModeChoice, spec: &str) -> Rig {
        let mut backing = Backing::open(spec, BackingOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(backing.try_lock().unwrap(), LockAttempt::Locked);
        Rig::over(mode, backing)
    }

    /// Late writes of a former process may be under way; who has waited for them is not asked here.
    fn after_a_kill(mode: ModeChoice, spec: &str) -> Rig {
        let mut backing = Backing::open(spec, BackingOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        assert!(backing.await_late_writes().is_some());
        Rig::over(mode, backing)
    }

    fn over(mode: ModeChoice, backing: Backing) -> Rig {
        let memory = tempfile::tempdir_in("/dev/shm").expect("the tests need a tmpfs at /dev/shm");
        let length = u64::from(TIER_BLOCKS) * BLOCK_BYTES;
        let tier = Tier::Memory(MemoryTier::create(&memory.path().join("tier"), length, SECOND).unwrap());
        let layout = TierLayout::memory(TIER_BLOCKS).unwrap();
        let superblock = Superblock {
            version: Version::Two,
            tier: 1,
            volume: [7; 16],
            name: [0; 64],
            size_bytes: EXPORT_BYTES,
            created_unix_s: 1,
            layout,
        };
        let arena = VolumeIo::arena_of(&tier, &superblock, 0).unwrap();
        let io = VolumeIo::new(INDEX, &superblock, arena, tier, backing);
        Rig { _memory: memory, reactor: Reactor::new(mode).unwrap_or_else(|e| panic!("{e}")), io, next: 1 }
    }

    fn begin(&mut self, make: impl FnOnce(OpId) -> Effect) -> OpId {
        self.next += 1;
        let op = OpId(self.next);
        match self.io.execute(&mut self.reactor, make(op)) {
            Executed::Nothing => op,
            other => panic!("{other:?}"),
        }
    }

    /// One turn of a shard's loop.
    fn turn(&mut self, limit: StdDuration) -> Vec<(OpId, Outcome)> {
        let timeout = self.io.deadline().map_or(limit, |deadline| until(deadline, now()).min(limit));
        let (mut found, mut events) = (Vec::new(), Vec::new());
        self.reactor.wait(Some(timeout), &mut found).unwrap();
        for completion in found {
            match completion {
                Completion::Done { token, result, buffer } => {
                    assert_eq!(volume_of(token), INDEX);
                    events.extend(self.io.complete(token, result, buffer));
                }
                Completion::Ready { token, readable, hangup, .. } => {
                    assert_eq!(backing_socket_volume(token), Some(INDEX));
                    self.io.ready(&mut self.reactor, token, readable, hangup, &mut events);
                }
                Completion::Woken => panic!("nobody wakes"),
            }
        }
        self.io.poll_timers(now(), &mut events);
        events
            .into_iter()
            .map(|event| match event {
                Event::Done { op, outcome } => (op, outcome),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// Ends of everything that is under way.
    fn all(&mut self) -> HashMap<OpId, Outcome> {
        let (mut ended, limit) = (HashMap::new(), now() + Duration::from_secs(60));
        while self.io.in_flight() > 0 {
            assert!(now() < limit, "{} operations do not end", self.io.in_flight());
            for (op, outcome) in self.turn(SECOND) {
                assert_eq!(ended.insert(op, outcome), None, "{op:?} ended twice");
            }
        }
        ended
    }

    fn run(&mut self, make: impl FnOnce(OpId) -> Effect) -> Outcome {
        let op = self.begin(make);
        let mut ended = self.all();
        assert_eq!(ended.len(), 1);
        ended.remove(&op).expect("the one that was begun")
    }

    fn fill(&mut self, frame: u32, seed: u64) -> FrameId {
        let bytes = self.io.arena_mut().bytes_mut(FrameId(frame));
        for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&pattern(seed, i as u64).to_le_bytes());
        }
        FrameId(frame)
    }

    fn holds(&self, frame: u32, seed: u64) -> bool {
        let bytes = self.io.arena().bytes(FrameId(frame));
        bytes.chunks_exact(8).enumerate().all(|(i, word)| word == pattern(seed, i as u64).to_le_bytes())
    }

    fn write(&mut self, block: u64, frames: &[u32]) -> OpId {
        let parts = frames.iter().map(|&f| Part { frame: FrameId(f), from: 0, length: 4096, check: None }).collect();
        self.begin(|op| Effect::BackingWrite { op, offset: block * BLOCK_BYTES, parts })
    }

    fn read(&mut self, block: u64, frames: &[u32]) -> OpId {
        let frames = frames.iter().map(|&f| FrameId(f)).collect();
        self.begin(|op| Effect::BackingRead { op, at: BlockIndex(block), frames })
    }

    fn sync(&mut self) -> Outcome {
        self.run(|op| Effect::BackingSync { op })
    }

    fn connected(&self) -> bool {
        self.io.backing().nbd().unwrap().connected()
    }

    fn until_connected(&mut self) {
        let limit = now() + Duration::from_secs(20);
        while !self.connected() {
            assert!(now() < limit, "no new connection");
            assert_eq!(self.turn(StdDuration::from_millis(20)), []);
        }
    }
}

fn pattern(seed: u64, i: u64) -> u64 {
    (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) ^ i.wrapping_mul(0xd134_2543_de82_ef95)
}

const GONE: Outcome = Outcome::Failed(IoError::Gone);

/// Frames in an order that leaves no two neighbours in memory, so that a request has as many pieces as frames.
fn scattered(count: u32) -> Vec<u32> {
    (0..count).map(|i| (i % 2) * (count / 2 + 3) + i / 2).rev().collect()
}

// --- tests ---

fn what_is_written_is_read_on_every_server(mode: ModeChoice) {
    for program in ["memory", "file", "qemu-nbd"] {
        let folder = tempfile::tempdir().unwrap();
        let path = image(folder.path());
        let name = path.to_str().unwrap();
        let server = match program {
            "memory" => Server::nbdkit(folder.path(), &["memory", "32M"]),
            "file" => Server::nbdkit(folder.path(), &["file", name]),
            _ => Server::start(folder.path(), "qemu-nbd", &["-f", "raw", name]),
        };
        let mut rig = Rig::new(mode, &server.uri());
        assert_eq!(rig.io.backing().size().unwrap(), EXPORT_BYTES);
        // One block, a run with many pieces, and sectors.
        let frames = scattered(300);
        for (i, &frame) in frames.iter().enumerate() {
            rig.fill(frame, i as u64);
        }
        rig.write(0, &frames[..1]);
        rig.write(700, &frames);
        let half = [Part { frame: FrameId(frames[9]), from: 512, length: 1024, check: None }];
        rig.begin(|op| Effect::BackingWrite { op, offset: 40960 + 512, parts: half.into_iter().collect() });
        let ended = rig.all();
        assert!(ended.len() == 3 && ended.values().all(|o| *o == Outcome::Ok), "{program}: {ended:?}");
        for (offset, hole) in [(700 * 4096, true), (701 * 4096, false)] {
            assert_eq!(rig.run(|op| Effect::BackingZero { op, offset, length: 4096, hole }), Outcome::Ok, "{program}");
        }
        assert_eq!(rig.sync(), Outcome::Ok, "{program}");
        // A read of what came in two, and with the rest of the arena as its witness.
        let into: Vec<u32> = scattered(298).iter().map(|f| f + 400).collect();
        for &frame in &into {
            rig.fill(frame, 1 << 40);
        }
        rig.read(702, &into);
        rig.read(700, &[900, 901]);
        rig.read(10, &[902]);
        // The last block and one behind the end.
        rig.fill(904, 5);
        rig.read(EXPORT_BYTES / 4096 - 1, &[903, 904]);
        rig.fill(905, 5);
        rig.read(EXPORT_BYTES / 4096 + 7, &[905]);
        let ended = rig.all();
        assert!(ended.len() == 5 && ended.values().all(|o| *o == Outcome::Ok), "{program}: {ended:?}");
        assert!(into.iter().enumerate().all(|(i, &frame)| rig.holds(frame, i as u64 + 2)), "{program}");
        let zero = |rig: &Rig, frame| rig.io.arena().bytes(FrameId(frame)).iter().all(|&b| b == 0);
        assert!([900, 901, 903, 904, 905].iter().all(|&frame| zero(&rig, frame)), "{program}");
        let (got, given) = (rig.io.arena().bytes(FrameId(902)), rig.io.arena().bytes(FrameId(frames[9])));
        assert!(got[512..1536] == given[512..1536] && got[..512].iter().chain(&got[1536..]).all(|&b| b == 0));
        if program != "memory" {
            let disk = std::fs::read(&path).unwrap();
            assert!(disk[..4096] == *rig.io.arena().bytes(FrameId(frames[0])), "{program}");
            assert!(disk[999 * 4096..1000 * 4096] == *rig.io.arena().bytes(FrameId(frames[299])), "{program}");
        }
    }
}

fn limits_of_the_server_are_kept_by_splitting(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let stats = format!("statsfile={}", report.display());
    let server = Server::nbdkit(
        folder.path(),
        &[
            "--filter=blocksize-policy",
            "--filter=stats",
            "memory",
            "32M",
            "blocksize-minimum=4096",
            "blocksize-preferred=4096",
            "blocksize-maximum=12K",
            "blocksize-error-policy=error",
            &stats,
        ],
    );
    let mut rig = Rig::new(mode, &server.uri());
    assert_eq!(rig.io.backing().align(), 4096);
    assert!(rig.io.backing().access().contains("12288"), "{}", rig.io.backing().access());
    let frames = scattered(256);
    for (i, &frame) in frames.iter().enumerate() {
        rig.fill(frame, i as u64);
    }
    rig.write(100, &frames);
    assert!(rig.all().values().all(|o| *o == Outcome::Ok));
    assert_eq!(rig.run(|op| Effect::BackingZero { op, offset: 101 * 4096, length: 7 * 4096, hole: true }), Outcome::Ok);
    let into: Vec<u32> = scattered(256).iter().map(|f| f + 600).collect();
    rig.read(100, &into);
    assert!(rig.all().values().all(|o| *o == Outcome::Ok));
    for (i, &frame) in into.iter().enumerate() {
        let expected = !(1..8).contains(&i);
        assert_eq!(rig.holds(frame, i as u64), expected, "block {i}");
        assert!(expected || rig.io.arena().bytes(FrameId(frame)).iter().all(|&b| b == 0), "block {i}");
    }
    drop(rig);
    server.stop();
    let report = std::fs::read_to_string(report).unwrap();
    let operations = |kind: &str| {
        let line = report.lines().find(|l| l.starts_with(kind)).unwrap_or_else(|| panic!("{kind}: {report}"));
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    // Three blocks a request: 256 blocks, 7 zeroed, 256 read (and the look at the beginning); the flush of the opening, and the one before them.
    assert_eq!((operations("write:"), operations("zero:"), operations("read:")), (86, 3, 87), "{report}");
    assert_eq!(operations("flush:"), 2);
}

fn many_requests_are_under_way_at_one_time(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::nbdkit(
        folder.path(),
        &["-t", "32", "--filter=delay", "memory", "32M", "delay-write=200ms", "rdelay=200ms"],
    );
    let mut rig = Rig::new(mode, &server.uri());
    let start = now();
    for i in 0..32 {
        rig.fill(i, u64::from(i));
        rig.write(u64::from(i) * 9, &[i]);
    }
    assert!(rig.all().values().all(|o| *o == Outcome::Ok));
    for i in 0..32 {
        rig.read(u64::from(i) * 9, &[i + 100]);
    }
    assert!(rig.all().values().all(|o| *o == Outcome::Ok));
    assert!((0..32).all(|i| rig.holds(i + 100, u64::from(i))));
    let took = now() - start;
    // One after another it were 12.8 s.
    assert!((0.4..4.0).contains(&took.as_secs_f64()), "{took:?}");
}

fn errors_are_told_as_they_are(mode: ModeChoice) {
    for (arguments, expected) in [
        (&["error-pwrite=ENOSPC", "error-pwrite-rate=100%"], IoError::NoSpace),
        (&["error-pwrite=EIO", "error-pwrite-rate=100%"], IoError::Failed),
        (&["error-pwrite=ENOMEM", "error-pwrite-rate=100%"], IoError::Failed),
        (&["error-pwrite=ESHUTDOWN", "error-pwrite-rate=100%"], IoError::Gone),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::nbdkit(folder.path(), &[&["--filter=error", "memory", "32M"][..], arguments].concat());
        let mut rig = Rig::new(mode, &server.uri());
        rig.fill(0, 1);
        let op = rig.write(3, &[0]);
        assert_eq!(rig.all()[&op], Outcome::Failed(expected), "{arguments:?}");
        // What is not broken goes on, on the same connection.
        let op = rig.read(3, &[1]);
        assert_eq!(rig.all()[&op], Outcome::Ok, "{arguments:?}");
        assert!(rig.io.arena().bytes(FrameId(1)).iter().all(|&b| b == 0));
        assert_eq!(rig.run(|op| Effect::BackingZero { op, offset: 0, length: 4096, hole: true }), Outcome::Ok);
        assert_eq!(rig.io.take_notice(), None);
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::nbdkit(folder.path(), &["--filter=error", "memory", "32M", "error-pread-rate=50%"]);
    let spec = server.uri();
    // Its look at the beginning meets the error, too.
    let opened = (0..64).find_map(|_| Backing::open(&spec, BackingOptions::default()).ok());
    assert!(opened.is_some());
    let folder = tempfile::tempdir().unwrap();
    let server = Server::nbdkit(folder.path(), &["--filter=nozero", "memory", "32M"]);
    let mut rig = Rig::new(mode, &server.uri());
    let zero = rig.run(|op| Effect::BackingZero { op, offset: 0, length: 4096, hole: true });
    assert_eq!(zero, Outcome::Failed(IoError::Unsupported));

    // A flush that fails: told to the sync, and to the first change, whose gate it is.
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken");
    let flush = format!("flush=if [ -e {} ]; then echo EIO >&2; exit 1; fi", broken.display());
    let server = Server::nbdkit(
        folder.path(),
        &[
            "eval",
            "get_size=echo 33554432",
            "pread=head -c $3 /dev/zero",
            "pwrite=cat >/dev/null",
            "can_write=exit 0",
            "can_flush=exit 0",
            &flush,
        ],
    );
    let mut rig = Rig::new(mode, &server.uri());
    std::fs::write(&broken, b"").unwrap();
    let op = rig.write(0, &[0]);
    assert_eq!(rig.all()[&op], Outcome::Failed(IoError::Failed));
    assert_eq!(rig.sync(), Outcome::Failed(IoError::Failed));
    std::fs::remove_file(&broken).unwrap();
    let op = rig.write(0, &[0]);
    assert_eq!(rig.all()[&op], Outcome::Ok);
    assert_eq!(rig.sync(), Outcome::Ok);
}

/// Writes as core does: whatever fails is tried again, and a failure sends everything since the last sync again.
fn a_server_killed_in_the_middle_loses_nothing(mode: ModeChoice) {
    const BLOCKS: u64 = 2000;
    let folder = tempfile::tempdir().unwrap();
    let path = image(folder.path());
    let file: [&str; 4] = ["--filter=delay", "file", path.to_str().unwrap(), "delay-write=2ms"];
    let mut server = Server::nbdkit(folder.path(), &file);
    let mut rig = Rig::new(mode, &format!("{}&nbd_quiet=100ms", server.uri()));
    let (mut synced, mut next, mut kills, mut gone) = (0, 0, 0, 0);
    let mut busy: HashMap<OpId, u32> = HashMap::new();
    let mut free: Vec<u32> = (0..32).collect();
    let mut failed = false;
    let limit = now() + Duration::from_secs(100);
    while synced < BLOCKS {
        assert!(now() < limit, "synced {synced}, written {next}");
        while !failed && next < BLOCKS.min(synced + 300) {
            let Some(frame) = free.pop() else { break };
            rig.fill(frame, next);
            let op = rig.write(next, &[frame]);
            busy.insert(op, frame);
            next += 1;
        }
        for (op, outcome) in rig.turn(StdDuration::from_millis(20)) {
            free.push(busy.remove(&op).expect("under way"));
            match outcome {
                Outcome::Ok => {}
                GONE => {
                    gone += 1;
                    failed = true;
                }
                other => panic!("{other:?}"),
            }
        }
        if kills < 3 && !busy.is_empty() && next > 400 * (kills + 1) {
            server.kill();
            kills += 1;
            if kills == 2 {
                // Down for a while: nothing hangs, everything is told.
                let ended = rig.all();
                assert!(ended.values().any(|outcome| *outcome == GONE));
                free.extend(busy.drain().map(|(_, frame)| frame));
                failed = true;
                std::thread::sleep(StdDuration::from_millis(300));
            }
            server = Server::nbdkit(folder.path(), &file);
        }
        if busy.is_empty() {
            if failed {
                (next, failed) = (synced, false);
                std::thread::sleep(StdDuration::from_millis(20));
            } else if next == BLOCKS.min(synced + 300) {
                match rig.sync() {
                    Outcome::Ok => synced = next,
                    GONE => next = synced,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    assert!(kills == 3 && gone > 0);
    let mut notices = 0;
    while let Some(notice) = rig.io.take_notice() {
        assert!(notice.contains("nbd+unix:///"), "{notice}");
        notices += 1;
    }
    assert!(notices >= 6, "three times lost and found: {notices}");
    drop(rig);
    let disk = std::fs::read(&path).unwrap();
    for block in 0..BLOCKS {
        let bytes = &disk[block as usize * 4096..][..4096];
        let good = bytes.chunks_exact(8).enumerate().all(|(i, w)| w == pattern(block, i as u64).to_le_bytes());
        assert!(good, "block {block}");
    }
}

fn a_sync_never_succeeds_for_what_a_lost_connection_took(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::nbdkit(folder.path(), &["memory", "32M"]);
    let mut rig = Rig::new(mode, &server.uri());
    rig.fill(0, 1);
    let op = rig.write(3, &[0]);
    assert_eq!(rig.all()[&op], Outcome::Ok);
    // The memory plugin forgets, as a server's volatile cache does. Nothing is under way that could fail.
    server.kill();
    server = Server::nbdkit(folder.path(), &["memory", "32M"]);
    assert_eq!(rig.turn(StdDuration::from_millis(50)), []);
    rig.until_connected();
    assert_eq!(rig.sync(), GONE, "the write is not there");
    let op = rig.write(3, &[0]);
    assert_eq!(rig.all()[&op], Outcome::Ok);
    assert_eq!(rig.sync(), Outcome::Ok);
    // Synced before it was lost: that is told to nobody.
    server.kill();
    server = Server::nbdkit(folder.path(), &["memory", "32M"]);
    assert_eq!(rig.turn(StdDuration::from_millis(50)), []);
    rig.until_connected();
    assert_eq!(rig.sync(), Outcome::Ok);
    // While there is no server everything that changes something fails at once, and the sync after it as well.
    let op = rig.write(4, &[0]);
    assert_eq!(rig.all()[&op], Outcome::Ok);
    server.kill();
    while rig.connected() {
        assert_eq!(rig.turn(StdDuration::from_millis(20)), []);
    }
    let start = now();
    assert_eq!(rig.sync(), GONE);
    let op = rig.write(4, &[0]);
    assert_eq!(rig.all()[&op], GONE);
    assert!((now() - start).as_secs_f64() < 1.0);
}

fn reads_outlive_a_restart_of_the_server(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let path = image(folder.path());
    let slow: [&str; 4] = ["--filter=delay", "file", path.to_str().unwrap(), "rdelay=300ms"];
    let mut server = Server::nbdkit(folder.path(), &slow);
    let mut rig = Rig::new(mode, &server.uri());
    rig.fill(0, 1);
    rig.write(3, &[0]);
    assert!(rig.all().values().all(|o| *o == Outcome::Ok));
    rig.read(3, &[1]);
    rig.read(3, &[2]);
    assert_eq!(rig.turn(StdDuration::from_millis(50)), []);
    server.kill();
    while rig.connected() {
        assert_eq!(rig.turn(StdDuration::from_millis(20)), []);
    }
    // Asked for while there is no server.
    rig.read(3, &[3]);
    server = Server::nbdkit(folder.path(), &slow);
    let ended = rig.all();
    assert!(ended.len() == 3 && ended.values().all(|o| *o == Outcome::Ok), "{ended:?}");
    assert!((1..4).all(|frame| rig.holds(frame, 1)));
    drop(server);
}

/// Proves N-1.
fn the_first_command_that_changes_something_is_a_flush(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = Server::nbdkit(
        folder.path(),
        &["--filter=log", "memory", "32M", &format!("logfile={}", log.display()), "logappend=true"],
    );
    let mut rig = Rig::new(mode, &server.uri());
    rig.fill(0, 1);
    rig.read(1, &[4]);
    assert!(rig.all().values().all(|o| *o == Outcome::Ok));
    rig.write(1, &[0]);
    rig.write(2, &[0]);
    assert!(rig.all().values().all(|o| *o == Outcome::Ok));
    drop(rig);
    server.stop();
    let log = std::fs::read_to_string(log).unwrap();
    let commands: Vec<&str> = log
        .lines()
        .filter_map(|line| line.split_whitespace().find(|w| ["Read", "Write", "Flush", "Zero"].contains(w)))
        .collect();
    // The look at the beginning and the flush of the opening, the read, the flush that opens the gate, the writes.
    assert_eq!(commands, ["Read", "Flush", "Read", "Flush", "Write", "Write"], "{log}");
}

fn a_slow_and_a_faulty_wrapper_stand_in_front(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::nbdkit(folder.path(), &["memory", "32M"]);
    let mut rig = Rig::new(mode, &format!("slow:latency=30ms,depth=2,sync=50ms:{}", server.uri()));
    let start = now();
    for i in 0..4 {
        rig.fill(i, u64::from(i));
        rig.write(u64::from(i), &[i]);
    }
    assert!(rig.all().values().all(|o| *o == Outcome::Ok));
    assert_eq!(rig.sync(), Outcome::Ok);
    let took = (now() - start).as_secs_f64();
    assert!((0.110..3.0).contains(&took), "{took}");
    rig.read(2, &[9]);
    assert!(rig.all().values().all(|o| *o == Outcome::Ok));
    assert!(rig.holds(9, 2));
    assert_eq!(rig.io.backing().stats.writes.operations, 4);
    drop(rig);

    let mut rig = Rig::new(mode, &format!("faulty:corrupt_read=1,drop_write=1,sync_error=1:{}", server.uri()));
    rig.fill(0, 77);
    rig.read(2, &[9]);
    assert!(rig.all().values().all(|o| *o == Outcome::Ok));
    assert!(!rig.holds(9, 2), "one bit was flipped on the way");
    let told = match rig.io.execute(
        &mut rig.reactor,
        Effect::BackingWrite {
            op: OpId(99),
            offset: 2 * 4096,
            parts: [Part { frame: FrameId(0), from: 0, length: 4096, check: None }].into_iter().collect(),
        },
    ) {
        Executed::Done(event) => event,
        other => panic!("{other:?}"),
    };
    assert_eq!(told, Event::Done { op: OpId(99), outcome: Outcome::Ok });
    drop(rig);
    let mut rig = Rig::new(mode, &server.uri());
    rig.read(2, &[9]);
    assert!(rig.all().values().all(|o| *o == Outcome::Ok));
    assert!(rig.holds(9, 2), "the dropped write never came");
}

fn a_congested_server_gets_everything_in_order(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    // 400 Mbit/s: the socket's buffer is full nearly all the time.
    let server = Server::nbdkit(folder.path(), &["-t", "4", "--filter=rate", "memory", "32M", "rate=400M"]);
    let mut rig = Rig::new(mode, &server.uri());
    let frames = scattered(1600);
    for (i, &frame) in frames.iter().enumerate() {
        rig.fill(frame, i as u64);
    }
    for (run, frames) in frames.chunks(200).enumerate() {
        rig.write(run as u64 * 200, frames);
    }
    let ended = rig.all();
    assert!(ended.len() == 8 && ended.values().all(|o| *o == Outcome::Ok));
    for &frame in &frames {
        rig.fill(frame, 1 << 40);
    }
    for (run, frames) in frames.chunks(200).enumerate() {
        rig.read(run as u64 * 200, frames);
    }
    let ended = rig.all();
    assert!(ended.len() == 8 && ended.values().all(|o| *o == Outcome::Ok));
    assert!(frames.iter().enumerate().all(|(i, &frame)| rig.holds(frame, i as u64)));
}

fn replies_come_in_any_pieces(mode: ModeChoice) {
    for piece in [1, 7, 16, 999] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::nbdkit(folder.path(), &["memory", "32M"]);
        let proxy = Proxy::new(folder.path(), &server.socket, piece);
        let mut rig = Rig::new(mode, &proxy.uri());
        let frames = scattered(8);
        for (i, &frame) in frames.iter().enumerate() {
            rig.fill(frame, i as u64);
            rig.write(i as u64 * 3, &[frame]);
        }
        rig.write(100, &frames);
        let ended = rig.all();
        assert!(ended.len() == 9 && ended.values().all(|o| *o == Outcome::Ok), "{piece}: {ended:?}");
        let into: Vec<u32> = scattered(8).iter().map(|f| f + 50).collect();
        rig.read(100, &into);
        // Replies without data come between those with it.
        for i in 0..8u32 {
            rig.read(u64::from(i) * 3, &[i + 200]);
            rig.write(900 + u64::from(i), &[frames[0]]);
        }
        assert!(rig.all().values().all(|o| *o == Outcome::Ok), "{piece}");
        assert!(
            (0..8).all(|i| rig.holds(i + 200, u64::from(i)) && rig.holds(into[i as usize], u64::from(i))),
            "{piece}"
        );
        assert!(rig.connected() && rig.io.take_notice().is_none());
    }
}

fn a_reply_to_nothing_ends_the_connection_and_nothing_is_believed(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::nbdkit(folder.path(), &["memory", "32M"]);
    let proxy = Proxy::new(folder.path(), &server.socket, 1 << 16);
    let mut rig = Rig::new(mode, &format!("{}&nbd_quiet=50ms", proxy.uri()));
    rig.fill(0, 1);
    let op = rig.write(3, &[0]);
    assert_eq!(rig.all()[&op], Outcome::Ok);
    assert_eq!(rig.sync(), Outcome::Ok);
    proxy.garble.store(true, Ordering::Relaxed);
    let op = rig.write(4, &[0]);
    assert_eq!(rig.all()[&op], GONE);
    let notice = rig.io.take_notice().expect("the operator is told");
    assert!(notice.contains("cannot be trusted"), "{notice}");
    rig.until_connected();
    proxy.garble.store(true, Ordering::Relaxed);
    rig.fill(7, 9);
    // A read is asked again by the next connection.
    let op = rig.read(3, &[7]);
    assert_eq!(rig.all()[&op], Outcome::Ok);
    assert!(rig.holds(7, 1));
}

/// Proves N-4.
#[test]
fn exports_that_cannot_hold_a_volume_are_refused_with_what_to_do() {
    let refused = |server: &Server, parameters: &str| {
        let spec = format!("{}{parameters}", server.uri());
        Backing::open(&spec, BackingOptions::default()).expect_err(&spec).to_string()
    };
    let folder = tempfile::tempdir().unwrap();
    let server = Server::nbdkit(folder.path(), &["-r", "memory", "32M"]);
    assert!(refused(&server, "").contains("read-only"));
    drop(server);
    let server = Server::nbdkit(
        folder.path(),
        &["--filter=blocksize-policy", "memory", "32M", "blocksize-minimum=8192", "blocksize-preferred=8192"],
    );
    let error = refused(&server, "");
    assert!(error.contains("8192") && error.contains("--filter=blocksize"), "{error}");
    drop(server);
    let eval =
        ["eval", "get_size=echo 1048576", "pread=head -c $3 /dev/zero", "pwrite=cat >/dev/null", "can_write=exit 0"];
    let server = Server::nbdkit(folder.path(), &eval);
    let error = refused(&server, "");
    assert!(error.contains("nbd_no_flush_ok=1"), "{error}");
    let accepted = Backing::open(&format!("{}&nbd_no_flush_ok=1", server.uri()), BackingOptions::default()).unwrap();
    assert!(accepted.access().contains("WITHOUT FLUSH"), "{}", accepted.access());
    drop((accepted, server));
    let server = Server::nbdkit(folder.path(), &["memory", "0"]);
    assert!(refused(&server, "").contains("0 bytes"));
    drop(server);
    let path = folder.path().join("disk.qcow2");
    let made = Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&path).arg("16M").status();
    assert!(made.expect("the tests need qemu-img").success());
    let server = Server::nbdkit(folder.path(), &["file", path.to_str().unwrap()]);
    let error = refused(&server, "");
    assert!(error.contains("qcow2") && error.contains("--format raw"), "{error}");
    drop(server);
    // Its content, and by a name.
    let server = Server::start(folder.path(), "qemu-nbd", &["-f", "qcow2", "-x", "vm 1", path.to_str().unwrap()]);
    assert!(refused(&server, "").contains("no export"));
    let named = format!("nbd+unix:///vm%201?socket={}", server.socket.display());
    assert_eq!(Backing::open(&named, BackingOptions::default()).unwrap().size().unwrap(), 16 << 20);
    drop(server);
    let nobody = format!("nbd+unix:///?socket={}", folder.path().join("nobody").display());
    match Backing::open(&nobody, BackingOptions::default()).unwrap_err() {
        OpenError::File(FileError { problem: FileProblem::Failed { attempted: "connect to", error }, .. }) => {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn tcp_works_as_well_by_name_and_address() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut process = Command::new("nbdkit")
        .args(["-f", "-i", "127.0.0.1", "-p", &port.to_string(), "memory", "32M"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the tests need nbdkit");
    let limit = now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(now() < limit, "nbdkit does not listen");
        std::thread::sleep(StdDuration::from_millis(10));
    }
    for host in ["127.0.0.1", "localhost"] {
        let mut rig = Rig::new(ModeChoice::Auto, &format!("nbd://{host}:{port}/"));
        rig.fill(0, 5);
        rig.write(8, &[0]);
        assert!(rig.all().values().all(|o| *o == Outcome::Ok));
        assert_eq!(rig.sync(), Outcome::Ok);
        rig.read(8, &[1]);
        assert!(rig.all().values().all(|o| *o == Outcome::Ok));
        assert!(rig.holds(1, 5));
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

/// Proves N-5.
/// A server that has what it was told in a volatile cache until it is told to flush, and loses power.
#[test]
fn what_an_earlier_process_had_written_is_durable_once_the_export_is_open() {
    // Without an opening after it the write is lost, which proves that the test would see it.
    for (opened, survives) in [(false, false), (true, true)] {
        let folder = tempfile::tempdir().unwrap();
        let path = image(folder.path());
        let cached: [&str; 4] = ["--filter=cache", "file", path.to_str().unwrap(), "cache=writeback"];
        let mut server = Server::nbdkit(folder.path(), &cached);
        let mut former = Rig::new(ModeChoice::Auto, &server.uri());
        former.fill(0, 1);
        let op = former.write(3, &[0]);
        assert_eq!(former.all()[&op], Outcome::Ok);
        // Killed with its tier: nobody has a log of it, so the next one has nothing to sync.
        drop(former);
        if opened {
            Backing::open(&server.uri(), BackingOptions::default()).unwrap();
        }
        server.kill();
        let disk = std::fs::read(&path).unwrap();
        let words = disk[3 * 4096..4 * 4096].chunks_exact(8).enumerate();
        let is_there = words.clone().all(|(i, word)| word == pattern(1, i as u64).to_le_bytes());
        assert_eq!(is_there, survives, "opened anew: {opened}");
    }
}

#[test]
fn an_export_whose_flush_fails_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let failing = ["get_size=echo 33554432", "can_flush=exit 0", "flush=echo EIO no >&2; exit 1"];
    let read = "pread=dd if=/dev/zero iflag=count_bytes count=$3 status=none";
    let server =
        Server::nbdkit(folder.path(), &[&["eval", read, "can_write=exit 0", "pwrite=exit 0"], &failing[..]].concat());
    match Backing::open(&server.uri(), BackingOptions::default()) {
        Err(error @ OpenError::File(FileError { problem: FileProblem::Failed { attempted: "flush", .. }, .. })) => {
            assert!(error.to_string().contains("cannot flush the backing"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_quiet_time_stands_in_for_a_lock() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::nbdkit(folder.path(), &["memory", "32M"]);
    let mut backing = Backing::open(&format!("{}&nbd_quiet=300ms", server.uri()), BackingOptions::default()).unwrap();
    assert_eq!(backing.try_lock().unwrap(), LockAttempt::Locked);
    let start = now();
    assert_eq!(backing.await_late_writes(), Some(Duration::from_millis(300)));
    assert!(!backing.locked());
    while backing.try_lock().unwrap() != LockAttempt::Locked {
        assert!(!backing.locked());
        std::thread::sleep(StdDuration::from_millis(5));
    }
    assert!((0.3..5.0).contains(&(now() - start).as_secs_f64()));
    let mut hasty = Backing::open(&format!("{}&nbd_quiet=0s", server.uri()), BackingOptions::default()).unwrap();
    assert_eq!(hasty.await_late_writes(), None);
}
