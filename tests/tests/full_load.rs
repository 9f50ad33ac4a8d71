//! A cluster that is as busy as it can be, on a machine whose every core has more to do than it can: no member may be taken for
//! slow or dead (A3), and no owner for gone (L2). For a soak: `FOREBAY_SOAK_MINUTES=N` says how long.

use forebay_tests::cluster::{Cluster, NAMES};
use forebay_tests::eyes::Eyes;
use forebay_tests::harness::{Output, require_tool, run_command, skip, soak};
use forebay_tests::hosts::Process;
use serde_json::json;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Name and peers; each is owned by the node of the same place in [`NAMES`], with its log in memory: a disk that takes a second for a
/// sync, because others use it, makes a slow member, and to leave that one out is right.
const VOLUMES: [(&str, u32); 3] = [("vm1", 1), ("vm2", 2), ("vm3", 1)];
/// Smaller than the tier: so the backing's speed bounds what is destaged, and not what the clients write.
const SIZE: u64 = 32 << 20;
const COMMAND: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(120);
/// What must stay as it was when the volumes were whole.
const STEPS: [&str; 6] =
    ["members_dropped", "take_overs", "step_downs", "terms_begun", "older_terms_refused", "tiers_formatted"];

fn create(cluster: &Cluster, eyes: &Eyes, node: usize) {
    let (volume, peers) = VOLUMES[node];
    let image = cluster.folder.join(&format!("{volume}.img"));
    let words = json!({
        "name": volume, "backing": format!("slow:iops=1000,latency=4ms,depth=8:{}", image.display()), "size": SIZE, "create": true,
        "policy": "back", "peers": peers, "tier": "memory", "tier_size": 128 << 20,
    });
    let created = eyes.ask(node, "POST", "/v1/volumes", Some(&words), COMMAND);
    created.unwrap_or_else(|why| panic!("{why}\n{}", eyes.describe()));
    let begun = Instant::now();
    while eyes.volume(node, volume).is_none_or(|view| view.is_whole(peers).is_err()) {
        assert!(begun.elapsed() < PATIENCE, "{volume} does not become whole\n{}", eyes.describe());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Reads and writes as fast as it is answered; it fails with the first error.
fn load(cluster: &Cluster, node: usize, time: Duration) -> JoinHandle<Output> {
    let mut command = Command::new(require_tool("fio"));
    let socket = cluster.place(node, "nbd.sock");
    command.args([
        "--name=full",
        "--ioengine=nbd",
        "--rw=randrw",
        "--rwmixread=20",
        "--bsrange=4k-64k",
        "--iodepth=16",
    ]);
    command.args(["--thread=1", "--randrepeat=0", "--time_based=1", "--output-format=terse"]);
    command.arg(format!("--uri=nbd+unix:///{}?socket={}", VOLUMES[node].0, socket.display()));
    command.arg(format!("--size={SIZE}")).arg(format!("--runtime={}", time.as_secs()));
    std::thread::spawn(move || run_command(time + PATIENCE, command))
}

/// Of all nodes together: how often each step of the protocol was taken.
fn steps(eyes: &Eyes) -> Option<[u64; STEPS.len()]> {
    let mut sums = [0; STEPS.len()];
    for node in 0..NAMES.len() {
        for (_, view) in eyes.volumes(node)? {
            let counters = &view.shown["cluster"]["counters"];
            STEPS.iter().zip(&mut sums).for_each(|(step, sum)| *sum += counters[step].as_u64().unwrap_or(0));
        }
    }
    Some(sums)
}

#[test]
fn nobody_is_dropped_and_nobody_takes_over_under_full_load() {
    if !soak() {
        return skip("it loads all cores for a long time, which only a soak does (FOREBAY_SOAK=1)");
    }
    let minutes: u64 = std::env::var("FOREBAY_SOAK_MINUTES").map_or(60, |asked| asked.parse().expect("minutes"));
    let time = Duration::from_secs(60 * minutes);
    let Some(cluster) = Cluster::new("full-load", NAMES.len()) else { return };
    let eyes = Eyes::of(&cluster);
    (0..NAMES.len()).for_each(|node| create(&cluster, &eyes, node));
    let before = steps(&eyes).expect("idle nodes answer");
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let busy = || {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        Process::spawn(command)
    };
    let _busy: Vec<Process> = (0..cores).map(|_| busy()).collect();
    let loads: Vec<JoinHandle<Output>> = (0..NAMES.len()).map(|node| load(&cluster, node, time)).collect();
    let mut looks = 0;
    while !loads.iter().all(JoinHandle::is_finished) {
        std::thread::sleep(Duration::from_secs(1));
        // A node that does not answer now answers later, with counters that never go back.
        let Some(now) = steps(&eyes) else { continue };
        looks += 1;
        assert_eq!(now, before, "{STEPS:?}: somebody was taken for slow or dead\n{}", eyes.describe());
    }
    for (load, (volume, ..)) in loads.into_iter().zip(VOLUMES) {
        let output = load.join().expect("fio is waited for");
        assert!(output.status.success(), "the load of {volume}: {}", output.describe());
        // Of fio's terse format, version 3: bytes and operations a second of reads and of writes.
        let fields: Vec<&str> = output.stdout.trim().split(';').collect();
        let field = |at: usize| fields.get(at).copied().unwrap_or("?");
        println!("{volume}: {} KiB/s read, {} KiB/s and {} IOPS written", field(6), field(47), field(48));
    }
    assert!(looks > 0, "the nodes were never seen");
    assert_eq!(steps(&eyes).expect("idle nodes answer"), before, "{STEPS:?}\n{}", eyes.describe());
    println!("{minutes} minutes, {looks} looks at all nodes: {STEPS:?} stayed {before:?}");
}
