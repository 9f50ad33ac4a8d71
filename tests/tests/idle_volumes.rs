//! Volumes that rest cost the others of a cluster nothing: what a replicated write costs its owner's data path beside many of them.

use forebay_tests::cluster::Cluster;
use forebay_tests::harness::{require_tool, skip, soak};
use forebay_tests::nbd::Client;
use std::time::{Duration, Instant};

/// Volumes that rest, in the end.
const RESTING: usize = 60;
/// Writes of one measurement.
const WRITES: u64 = 4000;
/// What is lost in the noise of a machine that is busy with something else.
const TWICE: f64 = 2.0;

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
    for number in 0..RESTING {
        let (name, image) = (format!("idle{number}"), cluster.folder.join(&format!("idle{number}.img")));
        let words = [
            "volume",
            "create",
            &name,
            "--backing",
            image.to_str().unwrap(),
            "--size",
            "1M",
            "--create",
            "--policy",
            "back",
            "--peers",
            "1",
            "--tier",
            "memory",
            "--tier-size",
            "8M",
        ];
        cluster.try_command(0, &words).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    std::thread::sleep(Duration::from_secs(10));
    let beside = [cost_of_a_write(&cluster), cost_of_a_write(&cluster)];
    let (alone, beside) = (alone[0].min(alone[1]), beside[0].min(beside[1]));
    println!("a write costs {alone:.1} us alone and {beside:.1} us beside {RESTING} volumes that rest");
    assert!(beside < alone * TWICE, "{beside:.1} us beside {RESTING} volumes that rest, {alone:.1} us alone");
    cluster.stop(0);
    cluster.stop(1);
}
