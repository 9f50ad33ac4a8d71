//! A daemon that may have few open files, or little memory: clients that are there are served, what cannot be had is said, and
//! nothing spins, hangs or ends.

use forebay_tests::harness::{Daemon, IoMode, Output, TempDir, Tier, Volume, skip};
use forebay_tests::in_both_io_modes;
use forebay_tests::kernel::{Loop, no_fuse_or_loop};
use forebay_tests::nbd::{Client, Stream};
use std::path::Path;
use std::time::{Duration, Instant};

const SIZE: u64 = 16 << 20;
const BLOCK: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(30);

fn served(name: &str, io: IoMode) -> (TempDir, Volume, Daemon) {
    let folder = TempDir::new(name);
    let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
    volume.tier_size = 8 << 20;
    let daemon = volume.start();
    (folder, volume, daemon)
}

/// From now on the process may have no more of this. It is a limit that the process could raise again, and does not.
fn limit(daemon: &Daemon, what: libc::__rlimit_resource_t, most: u64) {
    let (pid, mut limit) = (daemon.pid() as i32, libc::rlimit64 { rlim_cur: 0, rlim_max: 0 });
    // SAFETY: a place for one limit, and none is set; the number is that of a child that has not been waited for.
    let asked = unsafe { libc::prlimit64(pid, what, std::ptr::null(), &raw mut limit) };
    limit.rlim_cur = most.min(limit.rlim_max);
    // SAFETY: a limit of ours, and none is asked for; the same child.
    let set = unsafe { libc::prlimit64(pid, what, &raw const limit, std::ptr::null_mut()) };
    assert_eq!((asked, set), (0, 0), "{}", std::io::Error::last_os_error());
}

fn open_files(daemon: &Daemon) -> u64 {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("it runs").count() as u64
}

/// Seconds of a CPU that the process has used.
fn used(daemon: &Daemon) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).expect("it runs");
    let after_name = stat.rsplit_once(") ").expect("a name in brackets").1;
    let times = after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<f64>().expect("ticks"));
    // SAFETY: a number is asked for.
    times.sum::<f64>() / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
}

/// A client that is there reads what it writes.
#[track_caller]
fn serves(client: &mut Client, value: u8) {
    for block in 0..4 {
        client.write(block * BLOCK as u64, &[value; BLOCK], 0).unwrap().unwrap();
        client.flush().unwrap().unwrap();
        let mut bytes = [0; BLOCK];
        client.read(block * BLOCK as u64, &mut bytes).unwrap().unwrap();
        assert!(bytes == [value; BLOCK]);
    }
}

fn create_second(daemon: &Daemon, folder: &TempDir, image: &str, more: &[&str]) -> Output {
    let image = folder.join(image);
    let words = ["create", "second", "--backing", image.to_str().expect("a plain path"), "--size", "8M", "--create"];
    daemon.volume_command(words.iter().chain(more))
}

in_both_io_modes! {
    fn without_descriptors_clients_that_are_there_are_served_and_others_wait(io: IoMode) {
        let (_folder, volume, mut daemon) = served("no-descriptors", io);
        let mut client = Client::connect(&volume.target()).unwrap();
        limit(&daemon, libc::RLIMIT_NOFILE, open_files(&daemon) + 8);
        let waiting: Vec<Stream> = (0..50).map(|_| Stream::connect(&volume.target().address).unwrap()).collect();
        let begun = Instant::now();
        while !daemon.output().contains("cannot accept a client: Too many open files") {
            assert!(begun.elapsed() < PATIENCE, "{}", daemon.output());
            std::thread::sleep(Duration::from_millis(20));
        }
        // A loop would use all of one.
        let (before, time) = (used(&daemon), Instant::now());
        for value in 1..=20 {
            serves(&mut client, value);
            std::thread::sleep(Duration::from_millis(100));
        }
        let spent = used(&daemon) - before;
        assert!(spent < time.elapsed().as_secs_f64() / 2.0, "{spent} s of CPU in {:?}", time.elapsed());
        drop(waiting);
        let mut late = Client::connect_within(&volume.target(), PATIENCE).unwrap();
        serves(&mut late, 77);
        daemon.assert_healthy();
    }
}

#[test]
fn a_volume_for_which_there_are_too_few_descriptors_is_refused_with_words() {
    let (folder, volume, mut daemon) = served("few-descriptors", IoMode::Threads);
    let mut client = Client::connect(&volume.target()).unwrap();
    let few = |output: &Output| output.text().contains("Too many open files");
    let (mut refused, mut made) = (0, 0);
    // From hardly more than the command itself needs to enough: each call that takes one is the one that gets none.
    for more in 4..40 {
        limit(&daemon, libc::RLIMIT_NOFILE, open_files(&daemon) + more);
        // Of its own: whoever has closed the one before may still be about to let go of its lock.
        let image = format!("second-{more}.img");
        let output = create_second(&daemon, &folder, &image, &["--tier-size", "8M"]);
        limit(&daemon, libc::RLIMIT_NOFILE, 1024);
        daemon.assert_healthy();
        serves(&mut client, more as u8);
        if output.status.success() {
            made += 1;
        } else {
            assert!(few(&output), "{more} more: {}", output.describe());
            refused += 1;
            // What was recorded of it may be asked for again.
            create_second(&daemon, &folder, &image, &["--tier-size", "8M"]).expect_success();
        }
        daemon.volume_command(["delete", "second"]).expect_success();
        if made > 2 {
            break;
        }
    }
    assert!(refused > 0 && made > 0, "{refused} were refused, {made} were made");
}

/// The index of a large tier is memory of the daemon's own: where it cannot be had, that is an error and not the daemon's end.
#[test]
fn a_volume_for_which_there_is_too_little_memory_is_refused_with_words() {
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    let (folder, volume, mut daemon) = served("little-memory", IoMode::Threads);
    let mut client = Client::connect(&volume.target()).unwrap();
    let device = Loop::attach(&folder.sparse("tier", 32 << 30));
    let place: &Path = device.path();
    let tier = ["--tier-path", place.to_str().expect("a plain path"), "--tier-size", "32G"];
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("it runs");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("its address space");
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().expect("a number");
    limit(&daemon, libc::RLIMIT_AS, (kib << 10) + (400 << 20));
    let said = create_second(&daemon, &folder, "second.img", &tier).expect_failure().text();
    assert!(said.contains("cannot have") && said.contains("take a smaller tier"), "{said}");
    daemon.assert_healthy();
    serves(&mut client, 9);
    limit(&daemon, libc::RLIMIT_AS, libc::RLIM64_INFINITY);
    create_second(&daemon, &folder, "second.img", &tier).expect_success();
    serves(&mut client, 10);
    daemon.assert_healthy();
}
