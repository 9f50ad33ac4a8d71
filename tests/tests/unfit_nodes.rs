//! Nodes that cannot keep a copy, or that must be let in nowhere: what is said of each, and that nothing is lost meanwhile.

use forebay_tests::cluster::{Cluster, NAMES};
use forebay_tests::harness::{forebay, run_command, run_tool, skip};
use forebay_tests::kernel::{Loop, Mounted, no_fuse_or_loop};
use std::process::Command;
use std::time::Duration;

const TOOL: Duration = Duration::from_secs(60);

/// The text of `volume show` at a node.
fn shown(cluster: &Cluster, node: usize) -> String {
    let mut command = Command::new(forebay());
    command.args(["volume", "show", "vm1", "--api"]).arg(cluster.place(node, "api.sock"));
    run_command(TOOL, command).expect_success().stdout
}

fn members(cluster: &Cluster) -> Vec<String> {
    let shown = cluster.show(0);
    let members = shown["cluster"]["members"].as_array().cloned().unwrap_or_default();
    let kept = members.iter().filter(|member| member["role"] != "learner");
    kept.filter_map(|member| member["node"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_node_whose_flash_is_too_small_is_named_and_another_keeps_the_copy() {
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    let Some(mut cluster) = Cluster::prepare("unfit-room", 3, "") else { return };
    let disk = SmallDisk::new(&cluster, 1);
    cluster.start_all();
    cluster.serve_with_a_copy("flash");
    let load = cluster.begin_load_for(0, Duration::from_secs(3));
    assert_eq!(members(&cluster), ["alpha", "gamma"]);
    cluster.try_command(0, &["volume", "set", "vm1", "--peers", "2"]).expect("more copies may be asked for");
    cluster.wait_for("a word about the copy that is missing", |cluster| {
        let without = &cluster.show(0)["cluster"]["missing_replicas"][0];
        without["node"] == NAMES[1] && without["why"].as_str().is_some_and(|why| why.contains("and a tier takes 64M"))
    });
    assert!(shown(&cluster, 0).contains("none at beta: its flash has room for "), "{}", shown(&cluster, 0));
    assert_eq!(members(&cluster), ["alpha", "gamma"], "the volume is served on as before");
    cluster.load_has_finished(load);
    cluster.every_acknowledged_write_is_at(0);
    cluster.daemons.clear();
    drop(disk);
}

/// A file system for a node's flash tiers that is too small for one.
struct SmallDisk {
    // In this order: one lies on the other.
    _mounted: Mounted,
    _device: Loop,
}

impl SmallDisk {
    fn new(cluster: &Cluster, node: usize) -> SmallDisk {
        let image = cluster.place(node, "small-disk");
        std::fs::File::create(&image).and_then(|file| file.set_len(24 << 20)).expect("a sparse file");
        let device = Loop::attach(&image);
        let name = device.path().to_str().expect("a plain path").to_owned();
        run_tool(TOOL, "mkfs.ext4", ["-q", &name]).expect_success();
        let mounted = Mounted::new(&[], &name, &cluster.place(node, "state").join("tiers"));
        SmallDisk { _mounted: mounted, _device: device }
    }
}

/// SIGTERM while a volume of the config is still being opened: the node is in its cluster by then, may own volumes and have its watchdog
/// armed, so it ends in order. What tells the next process that this one may have left writes behind is taken back with that.
#[test]
fn a_node_that_is_stopped_while_it_opens_its_volumes_leaves_in_order() {
    let Some(mut cluster) = Cluster::prepare("stop-while-opening", 1, "") else { return };
    // Servers that take the connection and never say a word: opening one waits for 5 s, which a busy machine makes short.
    let mut silent = Vec::new();
    for name in ["one", "two", "three", "four", "five", "six"] {
        let socket = cluster.place(0, &format!("{name}.sock"));
        silent.push(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let backing = format!("nbd+unix:///?socket={}", socket.display());
        cluster.add_tables(0, &format!("[[volume]]\nname = \"{name}\"\nbacking = \"{backing}\"\n"));
    }
    cluster.launch(0);
    let boot = cluster.place(0, "state").join("cluster").join("boot");
    cluster.wait_for("the node to be in its cluster", |cluster| cluster.try_command(0, &["node", "list"]).is_ok());
    assert!(boot.exists(), "a process runs here");
    cluster.stop(0);
    let log = std::fs::read_to_string(cluster.place(0, "log")).unwrap();
    assert!(log.contains("stopped before the volumes were open"), "it was stopped too late for this test: {log}");
    assert!(!boot.exists(), "{log}");
}

/// A process that was killed may have left writes behind, and no watchdog that was armed anew has looked whether they have ended: a stop
/// in order of the next process does not take back what tells of that.
#[test]
fn the_mark_of_a_killed_process_outlives_a_stop_of_the_next_one() {
    let Some(mut cluster) = Cluster::prepare("mark-of-a-killed", 1, "") else { return };
    let boot = cluster.place(0, "state").join("cluster").join("boot");
    cluster.start(0);
    cluster.stop(0);
    assert!(!boot.exists(), "a process that ends in order leaves nothing behind");
    cluster.start(0);
    cluster.kill(0);
    cluster.start(0);
    cluster.stop(0);
    assert!(boot.exists(), "nobody has looked whether the writes of the killed process have ended");
}
