//! The stand for tests that cross hosts does what it says: a partition really drops, a slow link really is slow, a pulled
//! cable really is dead, and nothing is left behind. Its first user is a real etcd of three.

use forebay_tests::etcd::Etcd;
use forebay_tests::harness::{TempDir, skip};
use forebay_tests::hosts::{Host, Network, Process, Shape};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PORT: u16 = 7777;
/// Longer than any packet needs here, and short enough to wait for one that does not come.
const SILENCE: Duration = Duration::from_millis(400);

/// None, and said so, where the machine does not let us.
fn network(hosts: u8, links: u8) -> Option<Network> {
    match Network::new(hosts, links) {
        Ok(network) => Some(network),
        Err(reason) => {
            skip(&reason);
            None
        }
    }
}

fn place(host: &Host, link: u8) -> SocketAddr {
    format!("{}:{PORT}", host.address(link)).parse().expect("an address")
}

fn ear(host: &Host, link: u8) -> UdpSocket {
    let socket = host.namespace().run(|| UdpSocket::bind(place(host, link)).expect("the address is the host's"));
    socket.set_read_timeout(Some(SILENCE)).expect("a timeout");
    socket
}

/// Whether what one says is heard by the other. (A packet that waits for an address to be resolved may be lost: it is said three times.)
fn hears(from: &UdpSocket, to: &UdpSocket) -> bool {
    let mut heard = [0; 16];
    while to.recv(&mut heard).is_ok() {}
    for _ in 0..3 {
        // A link that is down is an error here, and silence there.
        let _ = from.send_to(b"hello", to.local_addr().expect("it is bound"));
        if to.recv(&mut heard).is_ok() {
            return true;
        }
    }
    false
}

/// Whether a connection comes about.
fn connects(from: &Host, to: &Host, link: u8) -> bool {
    let listener = to.namespace().run(|| TcpListener::bind((to.address(link), 0)).expect("the address is the host's"));
    let there = listener.local_addr().expect("it is bound");
    from.namespace().run(|| TcpStream::connect_timeout(&there, 2 * SILENCE).is_ok())
}

#[test]
fn hosts_reach_each_other_on_every_link_and_nothing_else() {
    let Some(network) = network(3, 2) else { return };
    for link in 0..2 {
        let ears: Vec<UdpSocket> = network.hosts().iter().map(|host| ear(host, link)).collect();
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            assert!(hears(&ears[from], &ears[to]), "host {from} to {to} by link {link}");
        }
    }
    // A second network with the same addresses, at the same time.
    let Some(other) = self::network(2, 1) else { return };
    assert!(connects(other.host(0), other.host(1), 0));
    other.unplug(0, 0);
    assert!(!connects(other.host(0), other.host(1), 0));
    assert!(connects(network.host(0), network.host(1), 0), "that of the first network is not touched");
    let outside = TcpListener::bind("127.0.0.1:0").expect("a port");
    let there = outside.local_addr().expect("it is bound");
    let reached = network.host(0).namespace().run(|| TcpStream::connect_timeout(&there, SILENCE).is_ok());
    assert!(!reached, "a host has a loopback of its own");
}

#[test]
fn a_partition_drops_both_ways_or_one_way_and_heals() {
    let Some(mut network) = network(3, 2) else { return };
    let ears: Vec<UdpSocket> = (0..3).map(|at| ear(network.host(at), 0)).collect();
    let others: Vec<UdpSocket> = (0..3).map(|at| ear(network.host(at), 1)).collect();
    network.silence(0, 1);
    assert!(!hears(&ears[0], &ears[1]) && !hears(&others[0], &others[1]), "nothing arrives on any link");
    assert!(hears(&ears[1], &ears[0]), "the other way goes on");
    assert!(hears(&ears[0], &ears[2]) && hears(&ears[2], &ears[1]), "others are not concerned");
    assert!(!connects(network.host(1), network.host(0), 0), "an answer that does not arrive is no connection");
    network.silence(2, 1);
    assert!(!hears(&ears[0], &ears[1]) && !hears(&ears[2], &ears[1]), "a second fault does not end the first");
    network.heal();
    assert!(hears(&ears[0], &ears[1]) && hears(&ears[2], &ears[1]));

    network.silence_link(0, 1, 0);
    assert!(!hears(&ears[0], &ears[1]) && hears(&others[0], &others[1]), "one link of two");
    network.heal();
    network.isolate(2);
    for other in 0..2 {
        assert!(!hears(&ears[2], &ears[other]) && !hears(&ears[other], &ears[2]));
    }
    assert!(hears(&ears[0], &ears[1]));
    network.heal();
    assert!(connects(network.host(2), network.host(0), 1));
}

#[test]
fn a_pulled_cable_is_noticed_by_its_host_and_costs_one_link() {
    let Some(network) = network(2, 2) else { return };
    let ears: Vec<UdpSocket> = (0..2).map(|at| ear(network.host(at), 0)).collect();
    let carrier = || network.host(1).namespace().run(|| carrier("link0"));
    assert!(hears(&ears[0], &ears[1]) && carrier());
    network.unplug(1, 0);
    assert!(!hears(&ears[0], &ears[1]) && !hears(&ears[1], &ears[0]) && !carrier());
    assert!(connects(network.host(0), network.host(1), 1), "the other link goes on");
    network.plug(1, 0);
    // The switch learns anew.
    let begun = Instant::now();
    while !(hears(&ears[0], &ears[1]) && hears(&ears[1], &ears[0])) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the link does not come back");
    }
    assert!(carrier());
}

/// By netlink's own words: /sys shows the network of whoever mounted it.
fn carrier(device: &str) -> bool {
    let output = Command::new("ip").args(["link", "show", "dev", device]).output().expect("ip runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(device), "{text}");
    text.contains("LOWER_UP")
}

/// Seconds that so many bytes take from one host to the other.
fn transfer(from: &Host, to: &Host, bytes: usize) -> f64 {
    let listener = to.namespace().run(|| TcpListener::bind((to.address(0), 0)).expect("the address is the host's"));
    let there = listener.local_addr().expect("it is bound");
    let reader = std::thread::spawn(move || {
        let mut stream = listener.accept().expect("somebody comes").0;
        let mut count = 0;
        let mut buffer = vec![0; 64 << 10];
        while count < bytes {
            count += match stream.read(&mut buffer) {
                Ok(0) | Err(_) => panic!("the stream ends after {count} bytes"),
                Ok(read) => read,
            };
        }
    });
    let mut stream = from.namespace().run(|| TcpStream::connect(there).expect("a connection"));
    let begun = Instant::now();
    stream.write_all(&vec![7; bytes]).expect("the other side reads");
    reader.join().expect("all has arrived");
    begun.elapsed().as_secs_f64()
}

#[test]
fn a_shaped_link_is_as_slow_as_it_is_told() {
    let Some(network) = network(2, 1) else { return };
    let (one, other) = (network.host(0), network.host(1));
    const BYTES: usize = 6 << 20;
    let free = transfer(one, other, BYTES);
    network
        .shape(1, 0, Shape { rate_mbit: Some(50), delay_ms: None })
        .expect("the token bucket is part of every kernel");
    let told = BYTES as f64 * 8.0 / 50e6;
    for (from, to) in [(one, other), (other, one)] {
        let slow = transfer(from, to, BYTES);
        // Headers come on top; a busy machine can only make it slower.
        assert!(
            (told * 0.97..told * 4.0).contains(&slow),
            "{slow:.3} s where {told:.3} s were told ({free:.3} s unshaped)"
        );
    }
    network.shape(1, 0, Shape::default()).expect("no shape is possible everywhere");
    let again = transfer(one, other, BYTES);
    assert!(again < told / 2.0, "{again:.3} s without a shape, {told:.3} s with one");
}

#[test]
fn a_delayed_link_takes_as_long_as_it_is_told() {
    let Some(network) = network(2, 1) else { return };
    if let Err(reason) = network.shape(0, 0, Shape { rate_mbit: None, delay_ms: Some(30) }) {
        return skip(&format!("delays need the kernel's sch_netem: {}", reason.lines().last().unwrap_or_default()));
    }
    let listener =
        network.host(1).namespace().run(|| TcpListener::bind(place(network.host(1), 0)).expect("an address"));
    let there = listener.local_addr().expect("it is bound");
    let begun = Instant::now();
    network.host(0).namespace().run(|| TcpStream::connect(there).expect("a connection"));
    assert!(begun.elapsed() >= Duration::from_millis(60), "a round trip took {:?}", begun.elapsed());
}

/// The state letter of a process, as the kernel shows it.
fn state(pid: u32) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
}

#[track_caller]
fn wait_for(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_process_stands_still_goes_on_and_dies_when_it_is_told() {
    let Some(network) = network(1, 1) else { return };
    let mut command = Command::new("sleep");
    command.arg("1000");
    let mut process = network.host(0).spawn(command);
    let pid = process.pid();
    let there = std::fs::read_link(format!("/proc/{pid}/ns/net")).expect("it runs");
    assert_ne!(there, std::fs::read_link("/proc/self/ns/net").expect("we run"), "it runs in its host's network");
    process.stop();
    wait_for("SIGSTOP", || state(pid) == Some('T'));
    process.resume();
    wait_for("SIGCONT", || state(pid) == Some('S'));
    assert!(process.is_alive());
    process.kill();
    assert!(!process.is_alive() && state(pid).is_none());
}

fn sleeper(network: &Network) -> Process {
    let mut command = Command::new("sleep");
    command.arg("1000");
    network.host(0).spawn(command)
}

#[test]
fn a_test_that_panics_leaves_no_process() {
    let Some(network) = network(1, 1) else { return };
    let broken = std::thread::spawn(move || {
        let process = sleeper(&network);
        std::panic::panic_any(process.pid());
    });
    let pid = *broken.join().expect_err("it panics").downcast::<u32>().expect("what it said");
    wait_for("the process to be gone", || state(pid).is_none());
}

/// Asks this very test, in a process of its own, to be the one that is killed.
const VICTIM: &str = "FOREBAY_TEST_HOSTS_VICTIM";

/// A network lives by processes and descriptors alone, so with both gone it is gone, too.
#[test]
fn a_test_that_is_killed_leaves_no_process() {
    let Some(network) = network(1, 1) else { return };
    if std::env::var_os(VICTIM).is_some() {
        let process = sleeper(&network);
        println!("\npid {}", process.pid());
        std::thread::sleep(Duration::from_secs(600));
    }
    let mut victim = Command::new(std::env::current_exe().expect("we run"));
    victim.args(["--exact", "a_test_that_is_killed_leaves_no_process", "--nocapture"]).env(VICTIM, "1");
    let mut victim = victim.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(victim.stdout.take().expect("piped")).lines();
    let mut words = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("pid ")?.parse::<u32>().ok());
    let pid = words.next().expect("it says which process it has started");
    assert!(state(pid).is_some(), "it runs");
    victim.kill().expect("it runs");
    victim.wait().expect("it is dead");
    wait_for("the process to be gone", || state(pid).is_none());
}

// --- etcd on three hosts ---

fn put(etcd: &Etcd, at: usize, value: &str) -> bool {
    let mut command = etcd.etcdctl(Some(at));
    command.args(["put", "key", value]).output().expect("etcdctl runs").status.success()
}

#[test]
fn etcd_on_three_hosts_outlives_the_isolation_of_its_leader() {
    let Some(mut network) = network(3, 1) else { return };
    let folder = TempDir::new("hosts-etcd");
    let mut etcd = Etcd::start_on(&folder, network.hosts());
    let leader = etcd.leader();
    assert!(put(&etcd, leader, "first"));
    network.isolate(leader);
    let rest: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
    let begun = Instant::now();
    while !put(&etcd, rest[0], "second") {
        assert!(begun.elapsed() < Duration::from_secs(60), "two of three go on");
    }
    assert!(!etcd.answers(leader), "who is alone does not answer");
    assert!(!put(&etcd, leader, "lost"), "nor write");
    network.heal();
    etcd.wait_ready();
    assert_eq!(etcd.control(Some(leader), &["get", "--print-value-only", "key"]).trim(), "second");

    // Deaf in one direction only: a follower that hears nobody calls for elections that others hear.
    let leader = etcd.leader();
    let deaf = (0..3).find(|at| *at != leader).expect("three");
    network.silence(leader, deaf);
    let begun = Instant::now();
    while !(0..3).filter(|at| *at != deaf).any(|at| put(&etcd, at, "third")) {
        assert!(begun.elapsed() < Duration::from_secs(60), "a majority that hears each other goes on");
    }
    network.heal();
    etcd.wait_ready();
    let leader = etcd.leader();
    etcd.stop(leader);
    let other = (0..3).find(|at| *at != leader).expect("three");
    let begun = Instant::now();
    while !put(&etcd, other, "fourth") {
        assert!(begun.elapsed() < Duration::from_secs(60), "a leader that stands still is replaced");
    }
    etcd.resume(leader);
    etcd.wait_ready();
    assert_eq!(etcd.control(Some(leader), &["get", "--print-value-only", "key"]).trim(), "fourth");
}
