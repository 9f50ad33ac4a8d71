//! Who may use a volume of a cluster: one list, which every node keeps to, whoever owns the volume. Real daemons in network
//! namespaces, and a real etcd.

use forebay_tests::cluster::{Cluster, NAMES, NBD_PORT};
use forebay_tests::harness::{require_tool, run_command};
use forebay_tests::hosts::Process;
use forebay_tests::nbd::{Client, Target};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const TOOL: Duration = Duration::from_secs(20);
const OWNER: usize = 0;
const OTHER: usize = 1;

fn set(cluster: &Cluster, node: usize, clients: &str) -> Result<serde_json::Value, String> {
    cluster.try_command(node, &["volume", "set", "vm1", "--clients", clients])
}

/// A client that comes to a node over TCP, in the clear: it has no name to be listed by.
fn opens(cluster: &Cluster, node: usize) -> bool {
    let address = cluster.host(node).address(0);
    let mut command = cluster.host(node).namespace().command("nbdinfo");
    command.args(["--size", &format!("nbd://{address}:{NBD_PORT}/vm1")]);
    run_command(TOOL, command).status.success()
}

/// One that stays, with a socket through which it is used.
struct Stays {
    _bridge: Process,
    client: Client,
}

impl Stays {
    fn at(cluster: &Cluster, node: usize) -> Stays {
        let socket: PathBuf = cluster.place(node, "bridge.sock");
        let mut command = Command::new(require_tool("nbdkit"));
        command.args(["--foreground", "--unix"]).arg(&socket).arg("nbd");
        command.arg(format!("hostname={}", cluster.host(node).address(0)));
        command.args([&format!("port={NBD_PORT}"), "export=vm1"]);
        let bridge = cluster.host(node).spawn(command);
        let client = Client::connect_within(&Target::unix(socket), TOOL).expect("nbdkit stands between");
        Stays { _bridge: bridge, client }
    }

    fn reads(&mut self) -> bool {
        matches!(self.client.read(0, &mut [0; 4096]), Ok(Ok(())))
    }

    /// The list comes to the other nodes by the coordinator.
    #[track_caller]
    fn is_sent_away(&mut self) {
        let begun = Instant::now();
        while self.reads() {
            assert!(begun.elapsed() < TOOL, "a session of who is not on the list goes on");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_list_holds_at_every_node_and_ends_the_sessions_of_others() {
    let Some(cluster) = Cluster::new("cluster-clients", 2) else { return };
    cluster.serve_with_a_copy("memory");
    cluster.wait_for("the other node to forward", |cluster| opens(cluster, OTHER));
    assert!(opens(&cluster, OWNER));
    let mut locals = [OWNER, OTHER].map(|node| Client::connect(&cluster.target(node)).unwrap());
    let mut strangers = [OWNER, OTHER].map(|node| Stays::at(&cluster, node));
    assert!(strangers.iter_mut().all(Stays::reads));

    // Said at the node that does not own it.
    let shown = set(&cluster, OTHER, "dns:vm-host-1.lab").unwrap();
    assert_eq!(shown["clients"], serde_json::json!(["dns:vm-host-1.lab"]), "{shown:#}");
    strangers.iter_mut().for_each(Stays::is_sent_away);
    cluster.wait_for("both to know", |cluster| {
        [OWNER, OTHER].iter().all(|node| cluster.show(*node)["clients"] == shown["clients"])
    });
    assert_eq!([opens(&cluster, OWNER), opens(&cluster, OTHER)], [false, false]);
    let mut read = [0; 4096];
    for local in &mut locals {
        local.read(0, &mut read).unwrap().unwrap();
    }

    // It outlasts a change of the owner, and goes when it is taken away.
    cluster.try_command(OWNER, &["volume", "hand-over", "vm1", NAMES[OTHER]]).unwrap();
    cluster.wait_for_owner(OTHER);
    assert_eq!([opens(&cluster, OWNER), opens(&cluster, OTHER)], [false, false]);
    for local in &mut locals {
        local.read(0, &mut read).unwrap().unwrap();
    }
    set(&cluster, OWNER, "any").unwrap();
    cluster.wait_for("everybody to be let in again", |cluster| opens(cluster, OWNER) && opens(cluster, OTHER));
}

#[test]
fn a_node_that_does_not_know_a_setting_keeps_it_from_being_written() {
    let Some(mut cluster) = Cluster::new("cluster-clients-older", 2) else { return };
    cluster.serve_with_a_copy("memory");
    // As a node of the version before has registered; one that runs would register anew.
    cluster.kill(OTHER);
    let keys = cluster.etcd.control(None, &["get", "--prefix", "", "--keys-only"]);
    let key = keys.lines().find(|key| key.contains("/node/") && key.contains(NAMES[OTHER])).expect("it is registered");
    let entry = cluster.etcd.control(None, &["get", "--print-value-only", key]);
    let reading = |version: u32| {
        let older = entry.trim().replace("\"record_version\":4", &format!("\"record_version\":{version}"));
        assert_ne!(older, entry.trim(), "{entry}");
        older
    };
    let describe = |text: &str| cluster.try_command(OWNER, &["volume", "set", "vm1", "--description", text]);
    cluster.etcd.control(None, &["put", key, &reading(3)]);
    let why = describe("the mail store").unwrap_err();
    assert!(why.contains(NAMES[OTHER]) && why.contains("knows no descriptions"), "{why}");
    cluster.etcd.control(None, &["put", key, &reading(2)]);

    let why = set(&cluster, OWNER, "dns:vm-host-1.lab").unwrap_err();
    assert!(why.contains(NAMES[OTHER]) && why.contains("upgrade all nodes"), "{why}");
    let image = cluster.image().with_file_name("vm2.img");
    let made = ["volume", "create", "vm2", "--backing", image.to_str().unwrap(), "--size", "16M", "--create"];
    let asked = ["--peers", "1", "--tier", "memory", "--tier-size", "16M", "--clients", "none"];
    let why = cluster.try_command(OWNER, &[&made[..], &asked[..]].concat()).unwrap_err();
    assert!(why.contains("upgrade all nodes") && !image.exists(), "{why}");
    let definition = cluster.etcd.control(None, &["get", "--prefix", ""]);
    assert!(!definition.contains("\"clients\""), "{definition}");
    set(&cluster, OWNER, "any").unwrap();
    cluster.etcd.control(None, &["put", key, entry.trim()]);
    set(&cluster, OWNER, "dns:vm-host-1.lab").unwrap();
    assert_eq!(describe("the mail store").unwrap()["description"], "the mail store");
    assert!(describe("").unwrap()["description"].is_null());
}
