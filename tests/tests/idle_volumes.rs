//! Volumes that rest cost next to nothing: how often a daemon is woken that has nothing to do, and, in a cluster, what a replicated write
//! costs its owner's data path beside many of them.

use forebay_tests::cluster::Cluster;
use forebay_tests::harness::{TempDir, Tier, VOLUME_NAME, Volume, require_tool, skip, soak};
use forebay_tests::in_both_io_modes;
use forebay_tests::nbd::Client;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Volumes that rest, in the end: `FOREBAY_RESTING=N` makes it another number.
const RESTING: usize = 60;
/// So many are made at one time.
const AT_ONCE: usize = 16;
/// Writes of one measurement.
const WRITES: u64 = 4000;
/// What is lost in the noise of a machine that is busy with something else.
const TWICE: f64 = 2.0;

/// Times a second that any thread of a daemon is woken which has nothing to do. It is about two.
const WOKEN_MAX: u64 = 4;

/// How often each thread of a process has waited for something.
fn waits(pid: u32) -> BTreeMap<String, u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let counted = tasks.filter_map(|task| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        let name = status.lines().next()?.trim_start_matches("Name:").trim();
        Some((format!("{name} {}", task.file_name().display()), count.trim().parse().ok()?))
    });
    counted.collect()
}

in_both_io_modes! {
    fn a_daemon_that_rests_is_woken_seldom_and_shows_at_once_what_happens_then(io: IoMode) {
        let folder = TempDir::new("resting");
        let volume = Volume::new(&folder, 16 << 20, Tier::Memory, io);
        let daemon = volume.start();
        let mut client = Client::connect(&volume.target()).unwrap();
        client.write(0, &[1; 4096], 0).unwrap().unwrap();
        daemon.drain();
        let begun = Instant::now();
        // Its first look at the host takes threads, which end when they have nothing more to do.
        while volume.get_json("/v1/status")["doctor"].is_null() {
            assert!(begun.elapsed() < Duration::from_secs(120), "{}", daemon.output());
            std::thread::sleep(Duration::from_millis(500));
        }
        std::thread::sleep(Duration::from_secs(12));
        let (before, begun) = (waits(daemon.pid()), Instant::now());
        std::thread::sleep(Duration::from_secs(10));
        let (after, seconds) = (waits(daemon.pid()), begun.elapsed().as_secs());
        let woken: BTreeMap<&str, u64> =
            after.iter().map(|(thread, count)| (thread.as_str(), count - before.get(thread).unwrap_or(&0))).collect();
        println!("in {seconds} s: {woken:?}");
        assert!(woken.values().sum::<u64>() <= WOKEN_MAX * seconds, "in {seconds} s: {woken:?}");

        // Whoever was told of a write is shown it.
        for write in 2..=50u64 {
            client.write(write * 4096, &[1; 4096], 0).unwrap().unwrap();
            let (_, metrics) = volume.get("/metrics");
            let counted = metrics.lines().find(|line| line.starts_with("forebay_volume_writes_total{"));
            assert!(counted.is_some_and(|line| line.ends_with(&format!(" {write}"))), "{counted:?} of {write}");
        }
        // And the history has it for whoever reads that.
        let begun = Instant::now();
        let seen = || {
            let history = volume.get_json(&format!("/v1/volumes/{VOLUME_NAME}/history?window=1m&series=write_iops"));
            let points = history["series"]["write_iops"]["avg"].as_array().cloned().unwrap_or_default();
            points.iter().any(|point| point.as_f64() > Some(1.0))
        };
        while !seen() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", daemon.output());
            std::thread::sleep(Duration::from_millis(200));
        }
        daemon.stop(Duration::from_secs(60));
    }
}

/// Ticks of a hundredth of a second that the first data-path thread of a process has run.
fn ticks(pid: u32) -> u64 {
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten() {
        let read = |what: &str| std::fs::read_to_string(task.path().join(what)).unwrap_or_default();
        if read("comm").trim_end() == "shard-0" {
            let stat = read("stat");
            let words: Vec<&str> = stat.rsplit_once(')').expect("a name in brackets").1.split_whitespace().collect();
            return words[11].parse::<u64>().unwrap() + words[12].parse::<u64>().unwrap();
        }
    }
    panic!("process {pid} has no data-path thread");
}

/// Microseconds of the owner's data path for one write, beyond what it uses without any.
fn cost_of_a_write(cluster: &Cluster) -> f64 {
    let pid = cluster.pid(0);
    let (before, begun) = (ticks(pid), Instant::now());
    std::thread::sleep(Duration::from_secs(5));
    let idle_share = (ticks(pid) - before) as f64 / 100.0 / begun.elapsed().as_secs_f64();
    let mut client = Client::connect(&cluster.target(0)).expect("a client");
    let (before, begun) = (ticks(pid), Instant::now());
    for write in 0..WRITES {
        client.write(write % 1000 * 4096, &[write as u8; 4096], 0).expect("a reply").expect("a write");
    }
    let seconds = (ticks(pid) - before) as f64 / 100.0 - idle_share * begun.elapsed().as_secs_f64();
    println!("at rest {:.1} % of a core, {:.1} us a write", idle_share * 100.0, seconds * 1e6 / WRITES as f64);
    seconds * 1e6 / WRITES as f64
}

#[test]
fn a_write_costs_the_same_beside_many_volumes_that_rest() {
    if !soak() {
        return skip("hundreds of volumes take their time; FOREBAY_SOAK=1 runs it");
    }
    require_tool("etcd");
    let Some(mut cluster) = Cluster::new("idle", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let alone = [cost_of_a_write(&cluster), cost_of_a_write(&cluster)];
    let resting = std::env::var("FOREBAY_RESTING").map_or(RESTING, |number| number.parse().expect("a number"));
    let create = |number: usize| {
        let (name, image) = (format!("idle{number}"), cluster.folder.join(&format!("idle{number}.img")));
        let image = image.to_str().expect("a plain path");
        let place = ["volume", "create", &name, "--backing", image, "--size", "1M", "--create"];
        let kept = ["--policy", "back", "--peers", "1", "--tier", "memory", "--tier-size", "2M"];
        let made = cluster.try_command(0, &[&place[..], &kept].concat());
        made.unwrap_or_else(|error| panic!("{name}: {error}"));
    };
    let (begun, create) = (Instant::now(), &create);
    std::thread::scope(|scope| {
        for first in 0..AT_ONCE {
            scope.spawn(move || (first..resting).step_by(AT_ONCE).for_each(create));
        }
    });
    println!("{resting} volumes made in {:.0} s", begun.elapsed().as_secs_f64());
    std::thread::sleep(Duration::from_secs(10));
    let beside = [cost_of_a_write(&cluster), cost_of_a_write(&cluster)];
    let (alone, beside) = (alone[0].min(alone[1]), beside[0].min(beside[1]));
    println!("a write costs {alone:.1} us alone and {beside:.1} us beside {resting} volumes that rest");
    assert!(beside < alone * TWICE, "{beside:.1} us beside {resting} volumes that rest, {alone:.1} us alone");
    cluster.stop(0);
    cluster.stop(1);
}
