//! Whole machines. As clients: a QEMU guest whose root file system lies on a volume, and those whose kernel is the NBD
//! client; the daemon, or the owner among several nodes, is killed under them, and they may notice a pause and nothing else. And one
//! with a disk that two nodes reach, for a fence.

use forebay_tests::cluster::{Cluster, NAMES, NBD_PORT, SIZE};
use forebay_tests::harness::{
    IoMode, Output, TempDir, Tier, VOLUME_NAME, Volume, forebay, require_tool, run_command, run_tool, skip, soak,
    workspace,
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
    assert!(console.written() > 10, "{text}");
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
    // A port that was free a moment ago: the kernel does not give it out again at once.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
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
