//! Whole machines. As clients: a QEMU guest whose root file system lies on a volume, and those whose kernel is the NBD
//! client; the daemon, or the owner among several nodes, is killed under them, and they may notice a pause and nothing else. And one
//! with a disk that two nodes reach, for a fence, and with a server of NFS besides, for what lets an owner write.

use forebay_tests::cluster::{Cluster, NAMES, NBD_PORT, SIZE};
use forebay_tests::harness::{
    IoMode, Output, TempDir, Tier, VOLUME_NAME, Volume, forebay, free_port, require_tool, run_command, run_tool, skip,
    soak, workspace,
};
use forebay_tests::hosts::Process;
use forebay_tests::nbd::Client;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(240);
const MIB: u64 = 1 << 20;

fn client_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(require_tool("bash"));
    command.arg(workspace().join("scripts/guest/client.sh")).args(arguments);
    command
}

fn client(arguments: &[&str]) -> Output {
    run_command(LIMIT, client_command(arguments))
}

/// What a running guest says.
struct Console(PathBuf);

impl Console {
    fn of(out: &Path) -> Console {
        Console(out.join("console.log"))
    }

    fn text(&self) -> String {
        std::fs::read(&self.0).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The number on the last line that begins so.
    fn last(&self, words: &str) -> u64 {
        let text = self.text();
        let number = |line: &str| line.trim().strip_prefix(words)?.split(' ').next()?.parse().ok();
        text.lines().rev().find_map(number).unwrap_or(0)
    }

    /// Files written so far.
    fn written(&self) -> u64 {
        self.last("guest: wrote ")
    }

    /// Waits until something is so, or the guest has ended.
    fn wait<T>(&self, guest: &ScopedJoinHandle<'_, T>, what: &str, is_so: impl Fn(&Console) -> bool) {
        let begun = Instant::now();
        while !is_so(self) && !guest.is_finished() {
            assert!(begun.elapsed() < LIMIT, "the guest has not {what}: {}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_machine_whose_root_lies_on_a_volume_outlives_two_kills_of_the_daemon_under_load() {
    let folder = TempDir::new("guest-root");
    let out = folder.join("guest");
    let out_text = out.to_str().unwrap();
    client(&["image", out_text, "96"]).expect_success();
    let volume = Volume::new(&folder, 96 * MIB, Tier::Flash, IoMode::Uring);
    let first = volume.start();
    let image = out.join("root.img");
    run_tool(MINUTE, "nbdcopy", ["--flush", image.to_str().unwrap(), &volume.uri()]).expect_success();
    let socket = volume.socket();
    let console = Console::of(&out);
    let daemon = std::thread::scope(|scope| {
        let arguments = ["boot", out_text, socket.to_str().unwrap(), VOLUME_NAME, "seconds=15"];
        let guest = scope.spawn(move || client(&arguments));
        let (mut daemon, mut before) = (first, 0);
        for _ in 0..2 {
            console.wait(&guest, "gone on", |console| console.written() > before + 2);
            daemon.kill9();
            std::thread::sleep(Duration::from_secs(2));
            before = console.written();
            daemon = volume.start();
        }
        console.wait(&guest, "gone on after the second kill", |console| console.written() > before);
        guest.join().expect("the guest runs").expect_success();
        daemon
    });
    let text = console.text();
    assert!(text.contains("guest: runs on /dev/vda ext4"), "{text}");
    let pause = text
        .lines()
        .find_map(|line| line.split_once("longest pause ")?.1.strip_suffix(" s")?.trim().parse::<u64>().ok());
    assert!(pause.is_some_and(|seconds| seconds >= 1), "the kills were no pause: {text}");
    println!("{}", text.lines().find(|line| line.contains("longest pause")).unwrap_or_default());
    // Drained, the image by itself is a clean file system.
    daemon.stop(MINUTE);
    run_tool(MINUTE, "e2fsck", ["-fn", volume.image().to_str().unwrap()]).expect_success();
}

#[test]
fn the_kernels_client_writes_verifies_disconnects_and_reconnects_to_a_killed_daemon() {
    let folder = TempDir::new("guest-nbd");
    let out = folder.join("guest");
    let mut volume = Volume::new(&folder, 64 * MIB, Tier::Memory, IoMode::Threads);
    let port = free_port();
    volume.arguments = vec!["--nbd".into(), format!("tcp:127.0.0.1:{port}").into()];
    let first = volume.start();
    let console = Console::of(&out);
    let mut daemon = std::thread::scope(|scope| {
        let (out, port) = (out.to_str().unwrap().to_owned(), port.to_string());
        let guest = scope.spawn(move || client(&["nbd", &out, &port, VOLUME_NAME, "seconds=10"]));
        console.wait(&guest, "disconnected", |console| console.text().contains("guest: DISCONNECTED"));
        first.kill9();
        let second = volume.start();
        guest.join().expect("the guest runs").expect_success();
        second
    });
    let text = console.text();
    assert!(text.contains(&format!("guest: connected, {} bytes", 64 * MIB)), "{text}");
    daemon.assert_healthy();
    daemon.stop(MINUTE);
}

/// What reconnects for the kernel's client, which never does so itself: a server on the client's host, whose client part connects
/// again and again to the volume's address.
fn reconnecting_server(cluster: &Cluster, host: usize, address: &str, port: u16) -> Process {
    let options = format!(
        "driver=raw,file.driver=nbd,file.server.type=inet,file.server.host={address},file.server.port={NBD_PORT},\
         file.export=vm1,file.reconnect-delay=600"
    );
    let mut command = Command::new(require_tool("qemu-nbd"));
    command.args(["--persistent", "--shared=2", "--cache=none", "--export-name=vm1", "--bind=127.0.0.1"]);
    command.arg(format!("--port={port}")).arg("--image-opts").arg(options);
    cluster.host(host).spawn(command)
}

/// The node that is neither alpha nor has the log, and the one that has it.
fn outsider_and_member(cluster: &Cluster) -> (usize, usize) {
    let members = cluster.show(0)["cluster"]["members"].as_array().cloned().unwrap_or_default();
    let is_member = |node: &usize| members.iter().any(|member| member["node"] == NAMES[*node]);
    let member = [1, 2].into_iter().find(is_member).expect("another node has the log");
    (3 - member, member)
}

/// Blocks of one of the guest's writers; see `scripts/guest/take-over`.
const SLOTS: u64 = 64;

/// One machine, both ways at once: by the socket of its own host, whose daemon forwards, and by the address that moves.
#[test]
fn the_kernels_client_outlives_the_death_of_the_owner_by_both_ways() {
    if !soak() {
        return skip("a guest across a take-over takes most of a minute on two cores; FOREBAY_SOAK=1 runs it");
    }
    let Some(mut cluster) = Cluster::new("guest-take-over", 3) else { return };
    cluster.serve_with_a_copy("memory");
    let (address, port) = ("10.77.0.50", NBD_PORT + 1);
    let set = ["volume", "set", "vm1", "--address", &format!("{address}/24")];
    cluster.try_command(0, &set).unwrap_or_else(|why| panic!("{why}"));
    cluster
        .wait_for("the address to be at the owner", |cluster| cluster.show(0)["cluster"]["address"]["state"] == "here");
    let (own, member) = outsider_and_member(&cluster);
    cluster.wait_for("the volume on the guest's own host", |cluster| Client::connect(&cluster.target(own)).is_ok());
    let _server = reconnecting_server(&cluster, own, address, port);
    let out = cluster.folder.join("guest");
    let console = Console::of(&out);
    let wrote = |console: &Console| ["first", "second"].map(|name| console.last(&format!("guest: {name} wrote ")));
    std::thread::scope(|scope| {
        let ports = format!("{NBD_PORT},{port}");
        let mut command = client_command(&["take-over", out.to_str().unwrap(), &ports, VOLUME_NAME, "seconds=150"]);
        cluster.host(own).namespace().place(&mut command);
        let guest = scope.spawn(move || run_command(LIMIT, command));
        console.wait(&guest, "written", |console| wrote(console).iter().all(|count| *count >= 20));
        cluster.kill(0);
        cluster.wait_for_owner(member);
        let before = wrote(&console);
        let gone_on = |console: &Console| wrote(console).iter().zip(before).all(|(now, before)| *now > before + 20);
        console.wait(&guest, "gone on after the take-over", gone_on);
        let mut end = vec![0; 4096];
        end[..3].copy_from_slice(b"END");
        let mut client = Client::connect(&cluster.target(member)).expect("the new owner serves");
        client.write(SIZE - 4096, &end, 0).expect("the connection lives").expect("it is written");
        guest.join().expect("the guest runs").expect_success();
    });
    for name in ["first", "second"] {
        let pause = console.last(&format!("guest: {name} longest pause "));
        assert!(pause >= 100, "the owner's death was no pause for the {name}: {}", console.text());
        println!(
            "{name}: {} writes, the longest took {pause} centiseconds",
            console.last(&format!("guest: {name} wrote "))
        );
    }
    let mut client = Client::connect(&cluster.target(member)).expect("the new owner serves");
    for (name, first) in [("first", 0), ("second", SIZE / 4096 / 2)] {
        let last = console.last(&format!("guest: {name} wrote "));
        for number in last.saturating_sub(SLOTS - 1).max(1)..=last {
            let mut block = [0; 4096];
            let read = client.read((first + number % SLOTS) * 4096, &mut block).expect("the connection lives");
            read.expect("a read succeeds");
            assert_eq!(String::from_utf8_lossy(&block), format!("{number:4096}"), "{name}, number {number}");
        }
    }
}

/// A fence by reservation, on a SCSI disk that two nodes reach: see `scripts/guest/fence-init` for what it asserts.
#[test]
fn late_writes_of_an_expelled_node_are_really_refused() {
    let folder = TempDir::new("guest-fence");
    let out = folder.join("guest");
    let mut command = Command::new(require_tool("bash"));
    command.arg(workspace().join("scripts/guest/fence.sh")).arg(&out).arg(forebay());
    run_command(LIMIT, command).expect_success();
    let text = Console::of(&out).text();
    let refused = text.lines().find(|line| line.starts_with("guest: REFUSED: ")).unwrap_or_else(|| panic!("{text}"));
    let counts: Vec<u32> = refused.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    assert!(matches!(counts[..], [taken, refused, ..] if taken > 4 && refused > 10), "{refused}");
    for words in ["writes were taken, then", "was expelled", "by preempt and abort: proven"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let under_way =
        text.lines().find(|line| line.starts_with("guest: UNDER WAY: ")).unwrap_or_else(|| panic!("{text}"));
    println!("{refused}\n{under_way}");
}

/// The same by owners of a volume that reserve its backing: see `scripts/guest/owners-init`.
#[test]
fn the_late_write_of_a_hung_owner_is_refused_by_the_backing_that_its_successor_has_reserved() {
    if !soak() {
        return skip("two daemons and a coordinator in one emulated machine take minutes; FOREBAY_SOAK=1 runs it");
    }
    let folder = TempDir::new("guest-owners");
    let out = folder.join("guest");
    let mut command = Command::new(require_tool("bash"));
    command.arg(workspace().join("scripts/guest/fence.sh")).arg(&out).arg(forebay()).arg("owners");
    run_command(16 * MINUTE, command).expect_success();
    let text = Console::of(&out).text();
    for words in ["guest: RESERVED: ", "guest: EXPELLED: ", "guest: REFUSED: "] {
        let line = text.lines().find(|line| line.starts_with(words)).unwrap_or_else(|| panic!("{words}: {text}"));
        println!("{line}");
    }
}

/// What lets an owner write is taken from it while it lives, by a real server of NFS and on a real disk: see
/// `scripts/guest/locks-init` for what it asserts.
#[test]
fn an_owner_notices_that_the_server_took_its_lock_and_somebody_its_reservation() {
    let folder = TempDir::new("guest-locks");
    let out = folder.join("guest");
    let mut command = Command::new(require_tool("bash"));
    command.arg(workspace().join("scripts/guest/locks.sh")).arg(&out).arg(forebay());
    run_command(10 * MINUTE, command).expect_success();
    let text = Console::of(&out).text();
    for words in ["guest: RESTARTED: ", "guest: REVOKED: ", "guest: PREEMPTED: ", "guest: TAKEN: ", "guest: HEALED: "] {
        let line = text.lines().find(|line| line.starts_with(words)).unwrap_or_else(|| panic!("{words}: {text}"));
        println!("{line}");
    }
}

/// A file server of NFS is cut off, restarted, full, and gives locks back or not, while a single node's volumes on it are written to; and
/// somebody replaces the image, or locks it: see `scripts/guest/nfs-init` for what it asserts.
#[test]
fn a_volume_on_nfs_recovers_from_what_happens_to_its_server() {
    let folder = TempDir::new("guest-nfs");
    let out = folder.join("guest");
    let mut command = Command::new(require_tool("bash"));
    command.arg(workspace().join("scripts/guest/nfs.sh")).arg(&out).arg(forebay());
    run_command(10 * MINUTE, command).expect_success();
    let text = Console::of(&out).text();
    for name in ["CUT", "RECLAIMED", "RESTARTED", "EXPIRED", "REPLACED", "TAKEN", "FULL", "STOPPED"] {
        let words = format!("guest: {name}: ");
        let line = text.lines().find(|line| line.starts_with(&words)).unwrap_or_else(|| panic!("{words}: {text}"));
        println!("{line}");
    }
}

/// Timer and patience of the guest's watchdog, in seconds: it is reset within 30 s.
const WATCHDOG: &str = "[watchdog]\ndevice = \"/dev/watchdog0\"\ntimeout_s = 10\npatience_s = 10\n";
const RESETS_WITHIN: Duration = Duration::from_secs(30);

/// Times of a cluster with a slow node.
const SLOW: &str = r#"{"version":1,"dropped_ms":8000,"lease_ms":9000,"grace_ms":12000}"#;

/// Two minutes more than a cluster's patience: an emulated machine takes its time.
fn wait_for(cluster: &Cluster, what: &str, done: impl Fn(&Cluster) -> bool) {
    let begun = Instant::now();
    while !done(cluster) && begun.elapsed() < 2 * MINUTE {
        std::thread::sleep(Duration::from_millis(100));
    }
    cluster.wait_for(what, done);
}

/// Config of a node in a guest, with one link.
fn guest_config(cluster: &Cluster, address: &str, backing: &str) -> String {
    format!(
        "[node]\nstate = \"/state\"\nshards = 1\n[listen]\nnbd = [\"unix:/run/nbd.sock\"]\napi = \"/run/api.sock\"\nhttp = \"off\"\n\
         [backings]\nallow = [\"{backing}\"]\n[cluster]\nidentity = \"/etc/identity.toml\"\netcd = {:?}\nfault_domain = \"rack-guest\"\nsecurity = \"plain\"\n\
         [[link]]\nown = \"{address}\"\n{WATCHDOG}",
        cluster.etcd.endpoints()
    )
}

/// The owner hangs in a guest, on a backing without locks: nothing but the watchdog proves anything about it.
#[test]
fn a_machine_whose_owner_hangs_resets_itself_before_its_successor_takes_it_for_fenced() {
    if !soak() {
        return skip("a watchdog takes its time, two minutes in all; FOREBAY_SOAK=1 runs it");
    }
    let Some(mut cluster) = Cluster::prepare("guest-watchdog", 2, "security = \"plain\"") else { return };
    let (beta, tap, address, port) = (1, format!("fb{}", std::process::id()), "10.77.0.60", 10811);
    cluster.network.plug_tap(&tap, 0).unwrap_or_else(|why| panic!("{why}"));
    cluster.add_tables(beta, "");
    cluster.start(beta);
    // An emulated machine is slow, and no worse for it: its node is not to be dropped. Read at the next start.
    cluster.stop(beta);
    cluster.etcd.control(None, &["put", "/forebay/lab/settings", SLOW]);
    cluster.start(beta);
    let storage = cluster.host(2).address(0);
    let mut command = Command::new(require_tool("nbdkit"));
    command.args(["--foreground", "--ipaddr", &storage, "--port", &port.to_string(), "memory", "48M"]);
    let _disk = cluster.host(2).spawn(command);
    let backing = format!("nbd://{storage}:{port}/");
    let out = cluster.folder.join("guest");
    let config = cluster.folder.join("guest.toml");
    std::fs::write(&config, guest_config(&cluster, address, &backing)).expect("the test's folder takes a file");
    let console = Console::of(&out);
    std::thread::scope(|scope| {
        let mut command = Command::new(require_tool("bash"));
        command.arg(workspace().join("scripts/guest/watchdog.sh")).arg(&out).arg(forebay()).arg(&config);
        command.arg(cluster.folder.join("alpha.identity.toml")).args([&tap, address]);
        cluster.network.switch().place(&mut command);
        let guest = scope.spawn(move || {
            run_command(10 * MINUTE, command).expect_success();
            Instant::now()
        });
        console.wait(&guest, "armed its watchdog", |console| console.text().contains("guest: ARMED"));
        assert!(!guest.is_finished(), "the guest has ended: {}", console.text());
        wait_for(&cluster, "the link to the guest", |cluster| {
            let nodes = cluster.try_command(beta, &["node", "list"]).unwrap_or_default();
            nodes.as_array().is_some_and(|nodes| nodes.iter().any(|node| node["name"] == "alpha" && node["up"] == true))
        });
        let create = ["volume", "create", "vm1", "--backing", &backing, "--policy", "back", "--peers", "1"];
        let create = [&create[..], &["--tier", "memory", "--tier-size", "64M"]].concat();
        cluster.try_command(beta, &create).unwrap_or_else(|why| panic!("{why}"));
        wait_for(&cluster, "the guest's copy", |cluster| {
            let members = cluster.show(beta)["cluster"]["members"].as_array().cloned().unwrap_or_default();
            members.len() == 2 && members.iter().all(|member| member["role"] != "learner")
        });
        wait_for(&cluster, "the watchdog to be a fence", |cluster| {
            let fence = cluster.show(beta)["cluster"]["fence"].clone();
            let means = fence["means"].as_array().cloned().unwrap_or_default();
            fence["class"] == "fence" && means.iter().any(|m| m["means"] == "watchdog" && m["of"] == "alpha")
        });
        cluster.try_command(beta, &["volume", "hand-over", "vm1", "alpha"]).unwrap_or_else(|why| panic!("{why}"));
        wait_for(&cluster, "the guest to be the owner", |cluster| cluster.show(beta)["cluster"]["owner"] == "alpha");
        let mut client = Client::connect_within(&cluster.target(beta), MINUTE).expect("beta forwards");
        let mut write = |block: u64| {
            let written = client.write(block * 4096, &[block as u8; 4096], 0).expect("the connection lives");
            written.expect("it is written");
        };
        (1..40).for_each(&mut write);
        // The word for it: see scripts/guest/watchdog-init.
        cluster.host(beta).namespace().run(|| {
            std::net::TcpStream::connect((address, 7)).expect("the guest listens");
        });
        let stopped = Instant::now();
        wait_for(&cluster, "beta to serve", |cluster| {
            let shown = cluster.show(beta);
            shown["cluster"]["state"] == "owner" && shown["phase"] == "serving"
        });
        (40..60).for_each(&mut write);
        wait_for(&cluster, "the watchdog to be counted on", |cluster| {
            cluster.show(beta)["cluster"]["fence"]["former"].to_string().contains("the watchdog of alpha counts")
        });
        wait_for(&cluster, "the quarantine to end", |cluster| cluster.show(beta)["cluster"]["unfenced"] == 0);
        let fenced = Instant::now();
        let reset = guest.join().expect("the guest runs");
        println!("reset {:?} after the owner hung, counted as fenced after {:?}", reset - stopped, fenced - stopped);
        assert!(reset - stopped < RESETS_WITHIN, "{}", console.text());
        assert!(reset < fenced, "counted before the reset: {}", console.text());
        for block in 1..60 {
            let mut bytes = [0; 4096];
            client.read(block * 4096, &mut bytes).expect("the connection lives").expect("a read succeeds");
            assert!(bytes.iter().all(|byte| *byte == block as u8), "block {block}");
        }
    });
}
