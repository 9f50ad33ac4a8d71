//! What `forebay doctor` finds of a network, on hosts that are network namespaces: what it says is there after the fault is made,
//! and gone after it is undone.

use forebay_tests::harness::{forebay, run_command, skip};
use forebay_tests::hosts::{Host, Network};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::FromRawFd;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// So many hosts with two links each; none where the kernel makes none.
fn network(hosts: u8) -> Option<Network> {
    match Network::new(hosts, 2) {
        Ok(network) => Some(network),
        Err(missing) => {
            skip(&missing);
            None
        }
    }
}

/// A tool with these words, on a host.
#[track_caller]
fn on(host: &Host, program: &str, words: &str) {
    let mut command = host.namespace().command(program);
    command.args(words.split_whitespace());
    run_command(MINUTE, command).expect_success();
}

/// What the doctor says there: sysfs shows the network of whoever mounted it, so it is mounted anew.
#[track_caller]
fn doctor(host: &Host) -> Value {
    let mut command = host.namespace().command("unshare");
    command.args(["--mount", "sh", "-c", "mount -t sysfs sysfs /sys && exec \"$0\" doctor --json --language en"]);
    command.arg(forebay());
    let output = run_command(MINUTE, command).expect_success();
    serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {}", output.stdout))
}

/// Its finding of this id.
fn finding(report: &Value, id: &str) -> Option<Value> {
    report["findings"].as_array().expect("a list").iter().find(|finding| finding["id"] == id).cloned()
}

/// What a check says where it finds nothing.
fn fine(report: &Value, check: u8) -> Option<String> {
    let fine = report["fine"].as_array().expect("a list").iter().find(|fine| fine["check"] == check)?;
    Some(fine["says"].as_str().expect("words").to_owned())
}

#[test]
fn two_interfaces_in_one_subnet_are_found_and_a_rule_for_the_second_cures_it() {
    let Some(network) = network(1) else { return };
    let host = network.host(0);
    let before = doctor(host);
    assert_eq!(finding(&before, "one-subnet/10.77.0.0/24"), None);
    assert!(fine(&before, 34).is_some_and(|says| says.starts_with("2 subnets")), "{before:#}");

    on(host, "ip", "address add 10.77.0.55/24 dev link1");
    let found = finding(&doctor(host), "one-subnet/10.77.0.0/24").expect("they share it");
    assert_eq!(found["severity"], "warning");
    let shown = found["evidence"].to_string();
    assert!(shown.contains("10.77.0.55/24") && shown.contains("10.77.0.0/24 dev link0"), "{found:#}");
    // What it proposes is typed as it stands.
    let proposed = found["remedies"][1]["command"].as_str().expect("a command").to_owned();
    let mut command = host.namespace().command("sh");
    command.args(["-c", &proposed]);
    run_command(MINUTE, command).expect_success();
    assert_eq!(finding(&doctor(host), "one-subnet/10.77.0.0/24"), None);
}

#[test]
fn a_bridge_with_a_larger_mtu_than_its_port_is_found_until_both_are_alike() {
    let Some(network) = network(1) else { return };
    let host = network.host(0);
    for words in [
        "link add br7 type bridge",
        "link add port7 type veth peer name end7",
        "link set port7 master br7 up",
        "link set br7 up",
        // A port without a link is not judged.
        "link set end7 up",
    ] {
        on(host, "ip", words);
    }
    assert_eq!(finding(&doctor(host), "nic-mtu/br7/port7"), None);
    on(host, "ip", "link set br7 mtu 9000");
    let found = finding(&doctor(host), "nic-mtu/br7/port7").expect("the port takes less");
    assert_eq!(found["severity"], "error");
    assert_eq!(found["evidence"][0]["source"], "/sys/class/net/br7/mtu");
    assert_eq!((&found["evidence"][0]["value"], &found["evidence"][1]["value"]), (&"9000".into(), &"1500".into()));
    on(host, "ip", "link set port7 mtu 9000");
    assert_eq!(finding(&doctor(host), "nic-mtu/br7/port7"), None);
}

/// A socket of MPTCP on the host of this thread. None: this kernel has none.
fn mptcp_socket() -> Option<i32> {
    // SAFETY: it takes three numbers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::IPPROTO_MPTCP) };
    (socket >= 0).then_some(socket)
}

fn address(ip: &str, port: u16) -> libc::sockaddr_in {
    let ip: Ipv4Addr = ip.parse().expect("an address");
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(ip).to_be() },
        sin_zero: [0; 8],
    }
}

const SIZE: u32 = size_of::<libc::sockaddr_in>() as u32;

/// A connection of MPTCP. Its listener stays: a second path has to find it.
struct Connection {
    client: TcpStream,
    served: TcpStream,
    _listener: TcpListener,
}

/// From the first host to the second.
fn connect(network: &Network, port: u16) -> Option<Connection> {
    let server = network.host(1).address(0);
    let listener = network.host(1).namespace().run(|| {
        let socket = mptcp_socket()?;
        // Where it listens at one address only, no second path gets to it.
        let to = address("0.0.0.0", port);
        // SAFETY: the socket is open, and the address is one of this size.
        let bound = unsafe { libc::bind(socket, (&raw const to).cast(), SIZE) };
        // SAFETY: a system call on an open socket.
        let listens = unsafe { libc::listen(socket, 1) };
        assert_eq!((bound, listens), (0, 0), "{}", std::io::Error::last_os_error());
        // SAFETY: nobody else has it.
        Some(unsafe { TcpListener::from_raw_fd(socket) })
    })?;
    let client = network.host(0).namespace().run(|| {
        let socket = mptcp_socket()?;
        let to = address(&server, port);
        // SAFETY: the socket is open, and the address is one of this size.
        let connected = unsafe { libc::connect(socket, (&raw const to).cast(), SIZE) };
        assert_eq!(connected, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: nobody else has it.
        Some(unsafe { TcpStream::from_raw_fd(socket) })
    })?;
    let (served, _) = listener.accept().expect("the client has connected");
    Some(Connection { client, served, _listener: listener })
}

/// Bytes there and back, after which both ends are sure of each other.
fn talk(Connection { client, served, .. }: &mut Connection) {
    let mut bytes = [0; 4096];
    client.write_all(&bytes).expect("sent");
    served.read_exact(&mut bytes).expect("received");
    served.write_all(&bytes).expect("sent");
    client.read_exact(&mut bytes).expect("received");
}

#[test]
fn mptcp_without_endpoints_is_found_once_it_is_used_and_a_second_path_cures_it() {
    let Some(network) = network(2) else { return };
    let unused = doctor(network.host(0));
    assert_eq!(finding(&unused, "mptcp/paths"), None);
    let Some(mut connection) = connect(&network, 7001) else { return skip("this kernel has no MPTCP") };
    talk(&mut connection);
    assert!(fine(&unused, 36).is_some_and(|says| says.contains("no connection has used MPTCP")), "{unused:#}");
    for host in network.hosts() {
        let found = finding(&doctor(host), "mptcp/paths").expect("one path of two");
        assert!(found["says"].as_str().is_some_and(|says| says.contains("no endpoints are set")), "{found:#}");
    }

    on(network.host(1), "ip", "mptcp endpoint add 10.77.1.2 dev link1 signal");
    for host in network.hosts() {
        on(host, "ip", "mptcp limits set subflow 2 add_addr_accepted 2");
    }
    let set = finding(&doctor(network.host(1)), "mptcp/paths").expect("none has been joined yet");
    assert!(set["evidence"].to_string().contains("10.77.1.2"), "{set:#}");
    let mut connection = connect(&network, 7002).expect("it did before");
    let begun = Instant::now();
    loop {
        talk(&mut connection);
        let reports: Vec<Value> = network.hosts().iter().map(doctor).collect();
        if reports.iter().all(|report| fine(report, 36).is_some_and(|says| says.contains("joined by"))) {
            break;
        }
        assert!(begun.elapsed() < MINUTE, "no second path within a minute: {reports:#?}");
    }
}
