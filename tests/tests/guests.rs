//! Whole machines. As clients: a QEMU guest whose root file system lies on a volume, and one whose kernel is the NBD
//! client; the daemon is killed under them, and they may notice a pause and nothing else. And one with a disk that two
//! nodes reach, for a fence.

use forebay_tests::harness::{
    IoMode, Output, TempDir, Tier, VOLUME_NAME, Volume, forebay, require_tool, run_command, run_tool, workspace,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(240);
const MIB: u64 = 1 << 20;

fn client(arguments: &[&str]) -> Output {
    let mut command = Command::new(require_tool("bash"));
    command.arg(workspace().join("scripts/guest/client.sh")).args(arguments);
    run_command(LIMIT, command)
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

    /// Files written so far.
    fn written(&self) -> u64 {
        let text = self.text();
        let last = text.lines().rev().find_map(|line| line.trim().strip_prefix("guest: wrote ")?.parse().ok());
        last.unwrap_or(0)
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
