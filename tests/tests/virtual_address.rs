//! The address by which clients on other hosts reach a volume, whichever node serves it: QEMU's NBD client goes on, without an
//! error, when the owner is killed, handed over or stopped, and every write that was acknowledged to it is there.

use forebay_tests::cluster::{Cluster, NBD_PORT, PATIENCE, SIZE};
use forebay_tests::harness::{require_tool, run_command};
use forebay_tests::hosts::Process;
use forebay_tests::nbd::{Client, Target};
use forebay_tests::pattern::load::{self, Ended, LoadOptions};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ADDRESS: &str = "10.77.0.50";
/// The host without a daemon.
const CLIENT: usize = 2;
const TOOL: Duration = Duration::from_secs(20);

/// Two nodes with a volume, and its address.
fn reached_by_address(name: &str) -> Option<Cluster> {
    let cluster = Cluster::new(name, 2)?;
    cluster.serve_with_a_copy("memory");
    let shown = set_address(&cluster, 0, &format!("{ADDRESS}/24")).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(shown["cluster"]["address"]["address"], format!("{ADDRESS}/24"), "{shown:#}");
    wait_for_address(&cluster, 0);
    Some(cluster)
}

fn set_address(cluster: &Cluster, node: usize, address: &str) -> Result<Value, String> {
    cluster.try_command(node, &["volume", "set", "vm1", "--address", address])
}

/// What a host's kernel says, by `ip`.
fn ip(cluster: &Cluster, host: usize, words: &str) -> String {
    let mut command = cluster.host(host).namespace().command("ip");
    command.args(words.split_whitespace());
    run_command(TOOL, command).expect_success().stdout
}

fn has_address(cluster: &Cluster, host: usize) -> bool {
    ip(cluster, host, "-oneline address show dev link0").contains(&format!(" {ADDRESS}/"))
}

#[track_caller]
fn wait_for_address(cluster: &Cluster, node: usize) {
    cluster.wait_for("the address to be at the owner", |cluster| {
        let address = cluster.show(node)["cluster"]["address"].clone();
        address["state"] == "here" && address["interface"] == "link0" && has_address(cluster, node)
    });
}

/// A virtual machine's disk: QEMU's block layer with the volume's address on one side, which it connects to again and again, and
/// a socket on the other, by which it is loaded.
struct Disk {
    qemu: Process,
    target: Target,
    journal: PathBuf,
}

impl Disk {
    fn attach(cluster: &Cluster) -> Disk {
        // A client whose request was received by a host that then fell silent has nothing to send: only its keep-alive finds out.
        cluster.host(CLIENT).namespace().run(|| {
            for (name, seconds) in [("time", 2), ("intvl", 1), ("probes", 3)] {
                let path = format!("/proc/sys/net/ipv4/tcp_keepalive_{name}");
                std::fs::write(&path, seconds.to_string()).unwrap_or_else(|e| panic!("write {path}: {e}"));
            }
        });
        let socket = cluster.folder.join("disk.sock");
        let options = format!(
            "driver=raw,file.driver=nbd,file.server.type=inet,file.server.host={ADDRESS},file.server.port={NBD_PORT},\
             file.server.keep-alive=on,file.export=vm1,file.reconnect-delay=600"
        );
        let mut command = Command::new(require_tool("qemu-nbd"));
        command.args(["--persistent", "--shared=8", "--cache=none", "--discard=unmap", "--export-name=vm1"]);
        command.arg("--socket").arg(&socket).arg("--image-opts").arg(options);
        let qemu = cluster.host(CLIENT).spawn(command);
        let target = Target { export: "vm1".to_owned(), ..Target::unix(socket) };
        let journal = cluster.folder.join("journal");
        let disk = Disk { qemu, target, journal };
        cluster.wait_for("QEMU to have connected", |_| Client::connect(&disk.target).is_ok());
        disk
    }

    /// Until QEMU ends.
    fn load(&self) -> JoinHandle<Result<Ended, String>> {
        let mut options = LoadOptions::new(self.target.clone(), &self.journal, 0..SIZE);
        options.time = Some(20 * PATIENCE);
        options.pause = Duration::from_millis(2);
        let before = load::journal_bytes(&self.journal);
        let loading = std::thread::spawn(move || load::run(&options));
        load::wait_until_under_way(&self.journal, before);
        loading
    }

    /// The client's requests are answered: so long it has waited.
    #[track_caller]
    fn goes_on(&self, cluster: &Cluster, loading: &JoinHandle<Result<Ended, String>>) -> Duration {
        let begun = Instant::now();
        // What was on its way before does not count: some hundred requests.
        let enough = load::journal_bytes(&self.journal) + (16 << 10);
        cluster.wait_for("the client to go on", |_| {
            assert!(!loading.is_finished(), "the client's load has ended");
            load::journal_bytes(&self.journal) > enough
        });
        begun.elapsed()
    }

    /// Ends the load by ending QEMU; whatever was answered until then was answered without an error.
    #[track_caller]
    fn detach(mut self, loading: JoinHandle<Result<Ended, String>>) {
        self.qemu.kill();
        match loading.join().expect("the load does not panic") {
            Ok(Ended::ConnectionLost(totals)) => {
                assert!(totals.acknowledged > 0 && totals.failed == 0, "{totals:?}");
                println!("{} requests acknowledged, none with an error", totals.acknowledged);
            }
            other => panic!("the load outlives its disk, or has seen an error: {other:?}"),
        }
    }
}

#[test]
fn a_client_goes_on_when_the_owner_is_killed_and_when_it_is_handed_over() {
    let Some(mut cluster) = reached_by_address("address-moves") else { return };
    let disk = Disk::attach(&cluster);
    let loading = disk.load();

    cluster.kill(0);
    println!("owner killed: the client goes on after {:?}", disk.goes_on(&cluster, &loading));
    cluster.wait_for_owner(1);
    wait_for_address(&cluster, 1);

    cluster.start(0);
    cluster.wait_for("the former owner's host to have lost the address", |cluster| !has_address(cluster, 0));
    cluster.wait_for_copies(1);
    cluster.try_command(1, &["volume", "hand-over", "vm1", "alpha"]).unwrap_or_else(|why| panic!("{why}"));
    println!("handed over: the client goes on after {:?}", disk.goes_on(&cluster, &loading));
    wait_for_address(&cluster, 0);
    cluster.wait_for("the former owner to have given the address up", |cluster| !has_address(cluster, 1));
    assert_eq!(cluster.show(1)["cluster"]["address"]["state"], "elsewhere");

    disk.detach(loading);
    cluster.every_acknowledged_write_is_at(0);
}

/// The daemon stands still, and with it whatever it would do about its address; its host lives, and would answer for it.
#[test]
fn an_owner_that_stands_still_loses_its_address_to_its_kernel() {
    let Some(mut cluster) = reached_by_address("address-expires") else { return };
    let disk = Disk::attach(&cluster);
    let loading = disk.load();

    cluster.daemons[0].as_mut().expect("it runs").stop();
    println!("owner stopped: the client goes on after {:?}", disk.goes_on(&cluster, &loading));
    wait_for_address(&cluster, 1);
    cluster.wait_for("the kernel to take the address away", |cluster| !has_address(cluster, 0));
    cluster.daemons[0].as_mut().expect("it runs").resume();
    cluster.wait_for("the former owner to have stepped down", |cluster| {
        let cluster = &cluster.show(0)["cluster"];
        cluster["state"] != "owner" && cluster["address"]["state"] == "elsewhere"
    });
    cluster.wait_for("what it took again when it woke to be gone", |cluster| !has_address(cluster, 0));
    disk.goes_on(&cluster, &loading);

    disk.detach(loading);
    cluster.every_acknowledged_write_is_at(1);
}

/// A host that has never spoken with the address learns where it is, because it is told.
#[test]
fn the_network_is_told_where_an_address_is() {
    let Some(cluster) = Cluster::new("address-announced", 2) else { return };
    cluster.serve_with_a_copy("memory");
    cluster.host(CLIENT).namespace().run(|| {
        for interface in ["all", "link0"] {
            let path = format!("/proc/sys/net/ipv4/conf/{interface}/arp_accept");
            std::fs::write(&path, "1").unwrap_or_else(|e| panic!("write {path}: {e}"));
        }
    });
    set_address(&cluster, 0, &format!("{ADDRESS}/24")).unwrap_or_else(|why| panic!("{why}"));
    let place = |cluster: &Cluster, node: usize| {
        let shown = ip(cluster, node, "-oneline link show link0");
        shown
            .split_whitespace()
            .skip_while(|word| *word != "link/ether")
            .nth(1)
            .expect("an Ethernet address")
            .to_owned()
    };
    for node in [0, 1] {
        if node == 1 {
            cluster.try_command(0, &["volume", "hand-over", "vm1", "beta"]).unwrap_or_else(|why| panic!("{why}"));
        }
        let expected = format!("lladdr {}", place(&cluster, node));
        cluster.wait_for("the announcement", |cluster| {
            ip(cluster, CLIENT, &format!("neighbour show {ADDRESS}")).contains(&expected)
        });
    }
}

#[test]
fn an_address_is_changed_and_removed_by_command() {
    let Some(cluster) = reached_by_address("address-commands") else { return };
    let refused = |words: &[&str], why: &str| {
        let mut all = vec!["volume", "set", "vm1"];
        all.extend(words);
        let error = cluster.try_command(0, &all).expect_err(why);
        assert!(error.contains(why), "{words:?}: {error}");
    };
    let own = format!("{}/24", cluster.host(0).address(0));
    refused(&["--address", &own], "address of the node alpha");
    refused(&["--address", "192.0.2.1/24"], "--interface");
    refused(&["--address", "10.77.0.51/24", "--interface", "link7"], "link0");
    refused(&["--address", "10.77.0.51"], "10.0.0.50/24");
    refused(&["--address", "none", "--interface", "link0"], "leave it out");
    refused(&["--address", "127.0.0.1/8"], "cannot move");

    let other = ["volume", "set", "vm1", "--address", "192.0.2.77/32", "--interface", "link1"];
    cluster.try_command(0, &other).unwrap_or_else(|why| panic!("{why}"));
    cluster.wait_for("the other address instead of the first", |cluster| {
        !has_address(cluster, 0) && ip(cluster, 0, "-oneline address show dev link1").contains(" 192.0.2.77/32 ")
    });
    set_address(&cluster, 1, "none").unwrap_or_else(|why| panic!("{why}"));
    cluster.wait_for("no address", |cluster| {
        cluster.show(0)["cluster"]["address"].is_null()
            && !ip(cluster, 0, "-oneline address show").contains("192.0.2.77")
    });
}
