//! Calls that hang: a thread that serves volumes makes none that may wait for a file system, and one that hangs elsewhere holds up
//! its own volume alone.

use forebay_tests::calls::{Call, CallGate};
use forebay_tests::cluster::{Cluster, NAMES, PATIENCE};
use forebay_tests::harness::{Daemon, IoMode, Nbdkit, TempDir, Tier, VOLUME_NAME, Volume, forebay, run_command, skip};
use forebay_tests::in_both_io_modes;
use forebay_tests::kernel::{Fuse, no_fuse_or_loop};
use forebay_tests::nbd::{Client, Command as Request, Target};
use std::io::Read;
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

const SIZE: u64 = 16 << 20;
const BLOCK: usize = 4096;
const MINUTE: Duration = Duration::from_secs(60);
/// How threads that serve volumes are called.
const DATA_PATH: &str = "shard-";
/// The volume beside the one whose calls hang.
const NEIGHBOUR: &str = "vm2";

/// A daemon that serves two volumes by one thread, and the place where its calls pass.
fn served(folder: &TempDir, io: IoMode) -> (Volume, Daemon, CallGate) {
    let mut volume = Volume::new(folder, SIZE, Tier::Flash, io);
    volume.tier_size = 8 << 20;
    volume.arguments.extend(["--shards", "1"].map(Into::into));
    let calls = CallGate::new();
    volume.calls = Some(calls.clone());
    let daemon = volume.start();
    create_neighbour(&daemon, folder);
    (volume, daemon, calls)
}

fn create_neighbour(daemon: &Daemon, folder: &TempDir) {
    let image = folder.join("neighbour.img");
    let image = image.to_str().expect("a plain path");
    let size = SIZE.to_string();
    let made =
        ["create", NEIGHBOUR, "--backing", image, "--size", &size, "--create", "--tier", "flash", "--tier-size", "8M"];
    daemon.volume_command(made).expect_success();
}

fn target_of(volume: &Volume, export: &str) -> Target {
    Target { export: export.to_owned(), ..volume.target() }
}

/// A client writes, reads what it wrote, and flushes.
#[track_caller]
fn use_by(client: &mut Client, value: u8) {
    for block in 0..16 {
        client.write(block * BLOCK as u64, &[value; BLOCK], 0).unwrap().unwrap();
        let mut bytes = [0; BLOCK];
        client.read(block * BLOCK as u64, &mut bytes).unwrap().unwrap();
        assert!(bytes == [value; BLOCK]);
    }
    client.flush().unwrap().unwrap();
}

/// `forebay volume ...` beside the test.
fn beside(volume: &Volume, words: &[&str]) -> JoinHandle<bool> {
    let mut command = Command::new(forebay());
    command.arg("volume").args(words).arg("--api").arg(volume.api());
    std::thread::spawn(move || run_command(MINUTE, command).status.success())
}

/// Of what the data path calls: what may wait for a file system. The kernel's own figures (/proc/stat) wait for none.
fn may_wait(calls: &CallGate) -> Vec<Call> {
    calls.seen_of(DATA_PATH).into_iter().filter(|call| !call.file.starts_with("/proc/")).collect()
}

/// The owner of a volume hands over, and the close of its image hangs, and with it the lock that the next owner waits for: the
/// other volume of that node is served, and by no other node.
#[test]
fn a_close_that_hangs_holds_up_the_hand_over_of_its_volume_alone() {
    let Some(mut cluster) = Cluster::prepare("hung-close", 2, "") else { return };
    let calls = cluster.watch_calls(0);
    cluster.start_all();
    cluster.serve_with_a_copy("flash");
    let image = cluster.image().with_file_name("vm2.img");
    let made = [
        "volume",
        "create",
        NEIGHBOUR,
        "--backing",
        image.to_str().expect("a plain path"),
        "--size",
        "16M",
        "--create",
    ];
    let more = ["--policy", "back", "--peers", "1", "--tier", "flash", "--tier-size", "16M"];
    cluster.try_command(0, &[&made[..], &more].concat()).unwrap();
    let shown = |cluster: &Cluster| cluster.try_command(0, &["volume", "show", NEIGHBOUR]).unwrap_or_default();
    cluster.wait_for("the neighbour's copy", |cluster| shown(cluster)["policy"]["effective"] == "back");
    let term = shown(&cluster)["cluster"]["term"].clone();
    let target = Target { export: NEIGHBOUR.to_owned(), ..cluster.target(0) };
    let mut neighbour = Client::connect_within(&target, PATIENCE).unwrap();
    use_by(&mut neighbour, 1);
    calls.begin_anew();

    calls.hold("close", "/vm1.img");
    // It may be told as begun, or as not done in time.
    let handed_over = cluster.try_command(0, &["volume", "hand-over", "vm1", NAMES[1]]);
    println!("{:?} hangs; {handed_over:?}", calls.wait_until_held(MINUTE));
    use_by(&mut neighbour, 2);
    let mut late = Client::connect_within(&target, PATIENCE).unwrap();
    use_by(&mut late, 3);
    calls.release();
    cluster.wait_for_owner(1);
    assert_eq!((&shown(&cluster)["cluster"]["state"], &shown(&cluster)["cluster"]["term"]), (&"owner".into(), &term));
    assert!(!calls.seen_of("closing").is_empty(), "what hung was closed by a thread of its own");

    // A deletion, after which the backing may be used for something else, waits for the close, and is refused without it.
    calls.hold("close", "/vm2.img");
    let delete = ["volume", "delete", NEIGHBOUR, "--discard-dirty"];
    let why = cluster.try_command(0, &delete).unwrap_err();
    assert!(why.contains("its files are not closed"), "{why}");
    calls.release();
    // The other node had to take over what was not served any more here, and was not deleted.
    cluster.wait_for("the volume that was not deleted", |cluster| {
        let shown = cluster.try_command(1, &["volume", "show", NEIGHBOUR]).unwrap_or_default();
        shown["cluster"]["state"] == "owner" && shown["cluster"]["unfenced"] == 0
    });
    cluster.try_command(1, &delete).unwrap();
    assert_eq!(may_wait(&calls), [], "calls of threads that serve volumes");
}

in_both_io_modes! {
    /// A volume's whole life, without a call on the data path that may wait for a file system.
    fn the_data_path_makes_no_call_that_may_wait(io: IoMode) {
        let folder = TempDir::new("calls-of-the-data-path");
        let (volume, daemon, calls) = served(&folder, io);
        // What a thread does before it serves delays nobody.
        let mut client = Client::connect(&volume.target()).unwrap();
        let mut neighbour = Client::connect(&target_of(&volume, NEIGHBOUR)).unwrap();
        calls.begin_anew();
        use_by(&mut client, 1);
        client.trim(0, 1 << 20).unwrap().unwrap();
        client.zero(1 << 20, 1 << 20, 0).unwrap().unwrap();
        use_by(&mut neighbour, 2);
        let larger = (2 * SIZE).to_string();
        for words in [
            &["drain", VOLUME_NAME, "--hold", "60s"][..],
            &["release", VOLUME_NAME],
            &["resize", VOLUME_NAME, &larger],
            &["set", VOLUME_NAME, "--tier", "memory", "--volatile"],
        ] {
            daemon.volume_command(words).expect_success();
            use_by(&mut neighbour, 3);
        }
        use_by(&mut client, 4);
        client.disconnect().unwrap();
        daemon.volume_command(["set", VOLUME_NAME, "--tier", "flash"]).expect_success();
        daemon.volume_command(["delete", VOLUME_NAME, "--discard-dirty"]).expect_success();
        use_by(&mut neighbour, 5);
        assert!(!calls.seen_of("").is_empty(), "the daemon's calls pass here");
        assert_eq!(may_wait(&calls), [], "calls of threads that serve volumes");
        daemon.stop(MINUTE);
    }

    /// More reads than the kernel has threads for hang before one image: its neighbour, whose flushes need such a thread as well, is
    /// served.
    fn reads_that_hang_leave_their_neighbour_its_threads(io: IoMode) {
        // Few enough that each client can send all of its own without a reply.
        const READS: u64 = 50;
        const CLIENTS: u64 = 12;
        if let Some(missing) = no_fuse_or_loop() {
            return skip(missing);
        }
        let folder = TempDir::new("hung-reads");
        let server = Nbdkit::start(&folder, ["memory", "1G"]);
        let fuse = Fuse::mount(&folder.join("hung.img"), &server.uri());
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        (volume.backing, volume.size) = (fuse.file().to_str().expect("a plain path").to_owned(), None);
        volume.arguments.extend(["--shards", "1"].map(Into::into));
        let mut daemon = volume.start();
        create_neighbour(&daemon, &folder);
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(&volume.target()).unwrap()).collect();
        let mut neighbour = Client::connect(&target_of(&volume, NEIGHBOUR)).unwrap();
        use_by(&mut neighbour, 1);

        server.signal(libc::SIGSTOP);
        for (client, first) in clients.iter_mut().zip((0..).step_by(READS as usize)) {
            for read in first..first + READS {
                // Far enough from each other that each is one of its own.
                client.send(Request::Read, 0, read, read << 20, BLOCK as u32, &[]).unwrap();
            }
        }
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            for value in 2..20 {
                use_by(&mut neighbour, value);
                std::thread::sleep(Duration::from_millis(20));
            }
            done.send(()).unwrap();
        });
        let served = is_done.recv_timeout(MINUTE);
        server.signal(libc::SIGCONT);
        assert_eq!(served, Ok(()), "the neighbour of a volume whose reads hang is served");
        for client in clients.iter_mut() {
            for _ in 0..READS {
                assert_eq!(client.receive().unwrap().1, 0);
                client.stream.read_exact(&mut [0; BLOCK]).unwrap();
            }
        }
        daemon.assert_healthy();
        daemon.stop(MINUTE);
    }

    /// Each call that a volume's files see in its life hangs in turn, while its neighbour is used.
    fn a_call_that_hangs_holds_up_its_own_volume_alone(io: IoMode) {
        let folder = TempDir::new("hung-calls");
        let larger = (2 * SIZE).to_string();
        let resize = ["resize", VOLUME_NAME, &larger];
        let change = ["set", VOLUME_NAME, "--tier", "memory", "--volatile"];
        let delete = ["delete", VOLUME_NAME, "--discard-dirty"];
        let hangs = [
            ("ftruncate", "backing.img", &resize[..]),
            ("fsync", "backing.img", &resize),
            ("close", ".tier", &change),
            ("close", "backing.img", &delete),
            ("close", ".tier", &delete),
        ];
        for (number, (call, file, words)) in hangs.into_iter().enumerate() {
            let folder = TempDir::new(&format!("{}-{number}", folder.path().file_name().unwrap().display()));
            let (volume, daemon, calls) = served(&folder, io);
            let mut client = Client::connect(&volume.target()).unwrap();
            use_by(&mut client, 1);
            client.disconnect().unwrap();
            let mut neighbour = Client::connect_within(&target_of(&volume, NEIGHBOUR), Duration::from_secs(20)).unwrap();
            calls.hold(call, file);
            let command = beside(&volume, words);
            let held = calls.wait_until_held(MINUTE);
            println!("{held:?} hangs");
            use_by(&mut neighbour, 2);
            // One that comes only now, and whoever asks how it is.
            let mut late = Client::connect_within(&target_of(&volume, NEIGHBOUR), Duration::from_secs(20)).unwrap();
            use_by(&mut late, 3);
            daemon.volume_command(["show", NEIGHBOUR]).expect_success();
            calls.release();
            assert!(command.join().unwrap(), "{words:?}: {}", daemon.output());
            daemon.stop(MINUTE);
        }
    }
}
