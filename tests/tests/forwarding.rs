//! A client uses the NBD socket of its own host, always the same, whichever node owns the volume: across the death of a remote
//! owner, hand-overs under load, and its own node becoming the owner. It sees a pause and no error, and every acknowledged write
//! is there.

use forebay_tests::cluster::{Cluster, NAMES, PATIENCE};
use forebay_tests::harness::require_tool;
use forebay_tests::nbd::{Client, Target};
use std::io::{ErrorKind, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Small reads, one after the other, of one client: how long it has waited at most.
struct Probe {
    ends: Arc<AtomicBool>,
    reading: JoinHandle<Result<(u64, Duration), String>>,
}

impl Probe {
    fn begin(target: Target) -> Probe {
        let ends = Arc::new(AtomicBool::new(false));
        let told = ends.clone();
        let reading = std::thread::spawn(move || {
            let mut client = Client::connect_within(&target, PATIENCE).map_err(|e| format!("connect: {e}"))?;
            let (mut count, mut longest) = (0, Duration::ZERO);
            while !told.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let read = client.read(0, &mut [0; 512]);
                read.map_err(|e| format!("read {count}: {e}"))?.map_err(|e| format!("read {count}: {e:?}"))?;
                longest = longest.max(begun.elapsed());
                count += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            client.disconnect().map_err(|e| format!("disconnect: {e}"))?;
            Ok((count, longest))
        });
        Probe { ends, reading }
    }

    #[track_caller]
    fn end(self, what: &str) {
        self.ends.store(true, Ordering::Relaxed);
        let (count, longest) = self.reading.join().expect("the probe does not panic").unwrap_or_else(|why| {
            panic!("{what}: a client has seen an error: {why}");
        });
        assert!(count > 0, "{what}: nothing was read");
        println!("{what}: {count} reads, the longest pause {:.2} s", longest.as_secs_f64());
    }
}

/// QEMU's client, which does one command after the other.
struct QemuIo(Child);

impl QemuIo {
    fn begin(cluster: &Cluster, node: usize) -> QemuIo {
        let mut command = Command::new(require_tool("qemu-io"));
        command.args(["-f", "raw"]).arg(format!("nbd+unix:///?socket={}", cluster.place(node, "nbd.sock").display()));
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        QemuIo(piped.expect("qemu-io starts"))
    }

    fn tell(&mut self, words: &str) {
        writeln!(self.0.stdin.as_mut().expect("piped"), "{words}").expect("qemu-io reads its commands");
    }

    /// It has done everything, and found what it had written.
    #[track_caller]
    fn end(mut self, wrote: usize) {
        self.tell("quit");
        let output = self.0.wait_with_output().expect("qemu-io ends");
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        let failed = text.contains("rror") || text.contains("failed");
        assert!(output.status.success() && !failed && text.matches("wrote ").count() == wrote, "qemu-io: {text}");
    }
}

/// The node besides the owner that has its log.
fn copy_of(cluster: &Cluster, owner: usize) -> usize {
    let shown = cluster.show(owner);
    let members = shown["cluster"]["members"].as_array().cloned().unwrap_or_default();
    let is_member = |node: &usize| members.iter().any(|member| member["node"] == NAMES[*node]);
    (0..NAMES.len()).filter(|node| *node != owner).find(is_member).expect("another node has the log")
}

/// The node that is neither alpha, which owns the volume, nor the other one that has its log; and that one.
fn outsider(cluster: &Cluster) -> (usize, usize) {
    let member = copy_of(cluster, 0);
    (3 - member, member)
}

/// A volume is on the node's socket once the node has reached its owner.
fn wait_for_export(cluster: &Cluster, node: usize) {
    cluster.wait_for("the volume on the node's own socket", |cluster| Client::connect(&cluster.target(node)).is_ok());
}

#[test]
fn a_client_of_a_third_node_outlives_the_owner_and_its_hand_over() {
    let Some(mut cluster) = Cluster::new("forwarding-third", 3) else { return };
    cluster.serve_with_a_copy("memory");
    let (third, member) = outsider(&cluster);
    wait_for_export(&cluster, third);
    let probe = Probe::begin(cluster.target(third));
    let load = cluster.begin_load_for(third, Duration::from_secs(25));
    let shown = cluster.show(third);
    assert_eq!(shown["cluster"]["forwarding"]["connected"], true, "{shown:#}");
    assert_eq!(shown["cluster"]["forwarding"]["clients"], 3, "{shown:#}");

    cluster.kill(0);
    cluster.wait_for_owner(member);
    let totals = cluster.load_has_finished(load);
    println!("the owner was killed: {totals:?}");
    probe.end("the owner was killed");
    cluster.every_acknowledged_write_is_at(third);
    cluster.every_acknowledged_write_is_at(member);

    cluster.start(0);
    cluster.wait_for_copies(member);
    let other = copy_of(&cluster, member);
    let probe = Probe::begin(cluster.target(third));
    let load = cluster.begin_load_for(third, Duration::from_secs(8));
    let words = ["volume", "hand-over", "vm1", NAMES[other]];
    cluster.try_command(member, &words).unwrap_or_else(|why| panic!("{why}"));
    cluster.wait_for_owner(other);
    println!("handed over: {:?}", cluster.load_has_finished(load));
    probe.end("handed over");
    cluster.every_acknowledged_write_is_at(other);
    let figures = &cluster.show(third)["cluster"]["forwarding"];
    assert!(figures["requests"].as_u64() > Some(100) && figures["bytes"].as_u64() > Some(100_000), "{figures}");
}

#[test]
fn the_owners_own_clients_outlive_hand_overs_there_and_back() {
    let Some(cluster) = Cluster::new("forwarding-own", 2) else { return };
    cluster.serve_with_a_copy("memory");
    wait_for_export(&cluster, 1);
    let (own, others) = (Probe::begin(cluster.target(0)), Probe::begin(cluster.target(1)));
    let load = cluster.begin_load_for(0, Duration::from_secs(20));
    cluster.try_command(0, &["volume", "hand-over", "vm1", "beta"]).unwrap_or_else(|why| panic!("{why}"));
    cluster.wait_for_owner(1);
    cluster.wait_for("alpha's clients to be forwarded", |cluster| {
        let forwarding = &cluster.show(0)["cluster"]["forwarding"];
        forwarding["clients"] == 3 && forwarding["connected"] == true
    });
    assert_eq!(cluster.show(1)["cluster"]["forwarders"][0], "alpha");
    cluster.wait_for_copies(1);
    std::thread::sleep(Duration::from_secs(1));
    cluster.try_command(1, &["volume", "hand-over", "vm1", "alpha"]).unwrap_or_else(|why| panic!("{why}"));
    cluster.wait_for_owner(0);
    cluster.wait_for("alpha's clients to be its own again", |cluster| {
        cluster.show(0)["cluster"]["forwarding"]["clients"] == 0
    });
    println!("there and back: {:?}", cluster.load_has_finished(load));
    own.end("there and back, at the first owner");
    others.end("there and back, at the other one");
    cluster.every_acknowledged_write_is_at(0);
    cluster.every_acknowledged_write_is_at(1);
}

#[test]
fn a_members_client_goes_on_when_its_own_node_takes_over() {
    let Some(mut cluster) = Cluster::new("forwarding-member", 2) else { return };
    cluster.serve_with_a_copy("flash");
    wait_for_export(&cluster, 1);
    let probe = Probe::begin(cluster.target(1));
    let load = cluster.begin_load_for(1, Duration::from_secs(20));
    cluster.kill(0);
    cluster.wait_for_owner(1);
    println!("its own node took over: {:?}", cluster.load_has_finished(load));
    probe.end("its own node took over");
    assert_eq!(cluster.show(1)["cluster"]["forwarding"]["clients"], 0);
    cluster.every_acknowledged_write_is_at(1);
}

/// The owner stands still with a forwarded write in its socket. The next owner has got that write again, and a newer one of the
/// same place. The old copy is read when the former owner goes on, and must not show anywhere, then or later.
#[test]
fn an_old_copy_of_a_write_that_a_stopped_owner_finds_in_its_socket_changes_nothing() {
    let Some(mut cluster) = Cluster::new("forwarding-stale", 3) else { return };
    cluster.serve_with_a_copy("memory");
    let (third, member) = outsider(&cluster);
    wait_for_export(&cluster, third);
    let target = cluster.target(third);
    let mut client = Client::connect_within(&target, PATIENCE).expect("the third node forwards");
    let written = |client: &mut Client, byte: u8| {
        let written = client.write(1 << 20, &[byte; 8192], 0);
        written.expect("the connection lives").expect("a forwarded write succeeds");
    };
    written(&mut client, 1);
    let mut qemu = QemuIo::begin(&cluster, third);
    qemu.tell("write -P 0x11 4M 1M");
    cluster.daemons[0].as_mut().expect("it runs").stop();
    qemu.tell("write -P 0x22 4M 1M");
    qemu.tell("flush");
    qemu.tell("read -P 0x22 4M 1M");
    // It waits in the stopped owner's socket, and is answered by the next one.
    let begun = Instant::now();
    written(&mut client, 2);
    println!("the owner stood still: {:.2} s", begun.elapsed().as_secs_f64());
    let figures = cluster.show(third)["cluster"]["forwarding"].clone();
    assert!(figures["again"].as_u64() > Some(0), "the write was not asked again: {figures}");
    written(&mut client, 3);
    qemu.end(2);
    cluster.daemons[0].as_mut().expect("it runs").resume();
    let is_there = |cluster: &Cluster, node: usize| {
        let mut client = Client::connect_within(&cluster.target(node), PATIENCE).expect("every node has the volume");
        let mut bytes = [0; 8192];
        client.read(1 << 20, &mut bytes).expect("the connection lives").expect("a read succeeds");
        assert!(bytes.iter().all(|byte| *byte == 3), "{} shows {:?}", NAMES[node], &bytes[..4]);
    };
    cluster.wait_for("the former owner to have stepped down", |cluster| {
        let state = cluster.show(0)["cluster"]["state"].clone();
        state == "no-member" || state == "learner" || state == "following"
    });
    (0..3).for_each(|node| is_there(&cluster, node));
    client.flush().expect("the connection lives").expect("a flush succeeds");
    cluster.wait_for_copies(member);
    let next = copy_of(&cluster, member);
    let words = ["volume", "hand-over", "vm1", NAMES[next]];
    cluster.try_command(member, &words).unwrap_or_else(|why| panic!("{why}"));
    cluster.wait_for_owner(next);
    (0..3).for_each(|node| is_there(&cluster, node));
}

/// The owner is the same, and takes the requests by another path: what came by the first one is not carried out later.
#[test]
fn a_forwarded_client_outlives_the_link_that_its_requests_go_by() {
    let Some(cluster) = Cluster::new("forwarding-link", 3) else { return };
    cluster.serve_with_a_copy("memory");
    let (third, _) = outsider(&cluster);
    wait_for_export(&cluster, third);
    let term = cluster.show(0)["cluster"]["term"].clone();
    let probe = Probe::begin(cluster.target(third));
    let load = cluster.begin_load_for(third, Duration::from_secs(14));
    cluster.network.unplug(third, 0);
    cluster.wait_for("requests to be asked again by the other link", |cluster| {
        let forwarding = &cluster.show(third)["cluster"]["forwarding"];
        forwarding["again"].as_u64() > Some(0) && forwarding["connected"] == true
    });
    cluster.network.plug(third, 0);
    println!("its link was cut: {:?}", cluster.load_has_finished(load));
    probe.end("its link was cut");
    assert_eq!(cluster.show(0)["cluster"]["term"], term, "the owner is the same");
    cluster.every_acknowledged_write_is_at(0);
    cluster.every_acknowledged_write_is_at(third);
}

/// "No export" to whoever asks first is what some clients never ask again after.
#[test]
fn a_client_that_comes_while_its_node_starts_waits_for_the_volume() {
    let Some(mut cluster) = Cluster::new("forwarding-start", 3) else { return };
    cluster.serve_with_a_copy("memory");
    let (third, _) = outsider(&cluster);
    wait_for_export(&cluster, third);
    let target = cluster.target(third);
    for _ in 0..3 {
        cluster.kill(third);
        cluster.launch(third);
        let mut client = loop {
            match Client::connect(&target) {
                Ok(client) => break client,
                // It does not listen yet.
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(e) => panic!("a client is turned away by a node that starts: {e}"),
            }
        };
        client.read(0, &mut [0; 4096]).unwrap().unwrap();
    }
    let unknown = Target { export: "nothing".into(), ..target };
    let refused = Client::connect(&unknown).map(drop).unwrap_err().to_string();
    assert!(refused.contains("no export of this name"), "{refused}");
}
