//! Data-path threads and their memory on the NUMA node of the daemon's interfaces: on hosts with one node nothing, and in a machine with
//! two sockets, emulated, what its kernel says of each thread and of each page.

use forebay_tests::harness::{IoMode, TempDir, Tier, Volume, skip};
use forebay_tests::nodes::{Machine, Ran};
use serde_json::Value;
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;

#[test]
fn where_nothing_is_placed_the_daemon_says_why_and_its_threads_may_run_where_it_may() {
    let folder = TempDir::new("unplaced");
    let volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    let daemon = volume.start();
    let status: Value = serde_json::from_str(&daemon.command(["status", "--json"]).expect_success().stdout).unwrap();
    // Its client comes by a unix socket: only a flash tier on a host of several nodes could give it a place.
    if status["placement"]["placed"] == true {
        skip("this host has several NUMA nodes, and says at which one the tier's disk is");
        return;
    }
    let why = status["placement"]["why"].as_str().expect("it says why");
    assert!(!why.is_empty(), "{status}");
    assert!(status["placement"].get("threads").is_none(), "{status}");
    let text = daemon.command(["status"]).expect_success().stdout;
    assert!(text.lines().any(|line| line == format!("place    left to the kernel: {why}")), "{text}");
    // None: that thread has ended since. Those that work at files come and go.
    let allowed = |status: &str| {
        let text = std::fs::read_to_string(status).ok()?;
        Some(text.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap().to_owned())
    };
    let own = allowed("/proc/self/status").unwrap();
    let tasks = std::fs::read_dir(format!("/proc/{}/task", status["pid"])).unwrap();
    let seen: Vec<String> =
        tasks.filter_map(|task| allowed(task.ok()?.path().join("status").to_str().unwrap())).collect();
    assert!(seen.len() > 1, "main thread and data path are there all the time: {seen:?}");
    assert!(seen.iter().all(|allowed| *allowed == own), "{seen:?}, and this test {own}");
}

/// Starts the daemon with more of a configuration, keeps what it and the kernel say under a name, and kills it: what its memory tier
/// holds stays where it is.
const START: &str = r#"
mkdir -p /run/forebay /etc/forebay /data
mount -t tmpfs tmpfs /data
started() { # name
    grep -q "^qemu " /out/$1.serve && return
    kill -0 $daemon || { cat /out/$1.serve; give_up "the daemon $1 has ended"; }
    return 1
}
start() { # name, configuration, command before it...
    local name=$1 more=$2
    shift 2
    cat >/tmp/$name.toml <<END
[node]
state = "/var/lib/forebay"
shards = 2
[listen]
nbd = ["tcp:10.2.0.15:10809", "unix:/run/nbd.sock"]
http = "off"
api = "/run/api.sock"
$more
[[volume]]
name = "flash"
backing = "/data/flash.img"
size = "64M"
create = true
destage = "ordered"
tier_path = "/dev/$(disk_at 0)"
tier_size = "32M"
memory = "32M"
[[volume]]
name = "fast"
backing = "/data/fast.img"
size = "64M"
create = true
destage = "ordered"
tier = "memory"
volatile = true
tier_size = "32M"
END
    "$@" forebay serve --config /tmp/$name.toml >/out/$name.serve 2>&1 &
    daemon=$!
    await "the daemon $name" started $name
    forebay status --json --api /run/api.sock >/out/$name.status || give_up "no status of $name"
    for task in /proc/$daemon/task/*; do
        echo "$(cat $task/comm) $(grep Cpus_allowed_list $task/status)"
    done >/out/$name.threads
    cat /proc/$daemon/numa_maps >/out/$name.maps
    kill -9 $daemon
    wait $daemon
}
"#;

/// Where the threads of a name may run.
fn cpus(ran: &Ran, run: &str, thread: &str) -> BTreeSet<String> {
    let threads = ran.text(&format!("{run}.threads"));
    let of_name = |line: &str| {
        let (name, cpus) = line.split_once(" Cpus_allowed_list:")?;
        let is_it = name == thread || thread.ends_with('-') && name.starts_with(thread);
        is_it.then(|| cpus.trim().to_owned())
    };
    threads.lines().filter_map(of_name).collect()
}

/// Pages of mappings whose line has a word, on a node.
fn pages(ran: &Ran, run: &str, word: &str, node: u32) -> u64 {
    let maps = ran.text(&format!("{run}.maps"));
    let of_line = |line: &str| {
        let pages = line.split(' ').find_map(|part| part.strip_prefix(&format!("N{node}="))?.parse::<u64>().ok());
        let size = line.split(' ').find_map(|part| part.strip_prefix("kernelpagesize_kB=")?.parse::<u64>().ok());
        pages.unwrap_or(0) * size.unwrap_or(4) / 4
    };
    maps.lines().filter(|line| line.contains(word)).map(of_line).sum()
}

fn only(cpus: &str) -> BTreeSet<String> {
    BTreeSet::from([cpus.to_owned()])
}

#[test]
fn threads_and_memory_are_at_the_interface_and_what_an_earlier_daemon_has_left_elsewhere_is_told() {
    let script = format!(
        "{START}
start near ''
start other '[placement]
node = 0'
start off '[placement]
mode = \"off\"'
start missing '[placement]
node = 7'
start kept '' taskset 3
echo '0000:80-8f 0' >/etc/forebay/locality
start written ''
"
    );
    let ran = Machine::default().option("seconds=400").run("placement", &script);
    let placement = |run: &str| ran.json(&format!("{run}.status"))["placement"].clone();
    const TIER_PAGES: u64 = 32 * MIB / 4096;

    // The interface is at node 1, by which clients come.
    let near = placement("near");
    assert_eq!((&near["placed"], near["threads"].as_array().unwrap().len()), (&Value::Bool(true), 2), "{near}");
    for thread in near["threads"].as_array().unwrap() {
        assert_eq!((&thread["node"], &thread["cpus"], &thread["memory_node"]), (&1.into(), &"2-3".into(), &1.into()));
        let why = thread["why"].as_str().unwrap();
        assert!(why.starts_with("near eth1 (clients); nvme") && why.contains("n1 (tier) elsewhere"), "{why}");
        assert!(thread.get("problem").is_none(), "{thread}");
    }
    assert_eq!((cpus(&ran, "near", "shard-"), cpus(&ran, "near", "forebay")), (only("2-3"), only("0-3")));
    assert_eq!(cpus(&ran, "near", "iou-"), cpus(&ran, "near", "iou-").intersection(&only("2-3")).cloned().collect());
    assert!(pages(&ran, "near", "/fast-", 1) >= TIER_PAGES, "{}", ran.text("near.maps"));
    assert_eq!(pages(&ran, "near", "/fast-", 0), 0, "{}", ran.text("near.maps"));
    for memory in near["memory"].as_array().unwrap() {
        assert_eq!((&memory["elsewhere"], &memory["pages"]["0"]), (&Value::Bool(false), &Value::Null), "{near}");
    }
    assert_eq!(near["memory"].as_array().unwrap().len(), 2, "{near}");

    // Told to be elsewhere: the arena before the flash tier is made anew, the memory tier is where it was.
    let other = placement("other");
    assert_eq!(cpus(&ran, "other", "shard-"), only("0-1"));
    let elsewhere = |volume: &str| {
        let of = other["memory"].as_array().unwrap().iter().find(|memory| memory["volume"] == volume);
        of.unwrap_or_else(|| panic!("{other}"))["elsewhere"].clone()
    };
    assert_eq!((elsewhere("flash"), elsewhere("fast")), (Value::Bool(false), Value::Bool(true)), "{other}");
    assert_eq!(pages(&ran, "other", "/fast-", 0), 0);
    let said = ran.text("other.serve");
    assert!(said.contains("volume fast: its memory is on the nodes 1 (") && said.contains("near node 0"), "{said}");

    let why = |run: &str| placement(run)["why"].as_str().unwrap_or_default().to_owned();
    assert_eq!((cpus(&ran, "off", "shard-"), why("off").as_str()), (only("0-3"), "[placement] mode = \"off\""));
    assert_eq!(cpus(&ran, "missing", "shard-"), only("0-3"));
    assert!(ran.text("missing.serve").contains("warning: [placement] node = 7, but this host has no such node"));
    assert_eq!(cpus(&ran, "kept", "shard-"), only("0-1"));
    assert!(why("kept").contains("on node 0 already (CPUs 0-1)"), "{}", why("kept"));
    // What was written down of where the interface is counts before what the firmware says.
    assert_eq!(cpus(&ran, "written", "shard-"), only("0-1"));
}
