//! What all checks say of one host together: no advice against another.

use super::super::Host;
use super::super::fixture::{Tree, assert_no_contradictions};
use forebay_host::net::{Address, Channels, Connection, Ethernet, Modes, Neighbour, Net, Rings, Route, TABLE_MAIN};
use forebay_host::system::Seen;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

const CARDS: [(&str, &str); 2] = [("eth0", "0000:82:00.0"), ("eth1", "0000:83:00.0")];

/// Sizes of packets, mode and hash of the bond: a bit for each.
fn with(tree: Tree, choice: u32) -> Tree {
    let is = |bit: u32| choice >> bit & 1 == 1;
    let bonding = |file: &str| format!("/sys/class/net/bond0/bonding/{file}");
    let tree = tree
        .file(&bonding("mode"), if is(4) { "active-backup 1" } else { "802.3ad 4" })
        .file(&bonding("xmit_hash_policy"), if is(5) { "layer2 0" } else { "layer2+3 2" });
    (0..).zip(["eth0", "eth1", "bond0", "vmbr0"]).fold(tree, |tree, (bit, name)| {
        tree.file(&format!("/sys/class/net/{name}/mtu"), if is(bit) { "9000" } else { "1500" })
    })
}

/// Two nodes, with two cards at the second, in a bond, below a bridge; a disk at the first. Of what can be found of such a host, as much
/// as its parts allow.
fn host() -> Tree {
    let mut tree = Tree::new()
        .node(0, "0-3", 8)
        .node(1, "4-7", 8)
        .pci("0000:00:03.0", 0x010802, 0)
        .disk("nvme0n1", "0000:00:03.0", 100)
        .nic("bond0", "", 50_000)
        .file("/sys/class/net/bond0/bonding/mode", "802.3ad 4")
        .file("/sys/class/net/bond0/bonding/slaves", "eth0 eth1")
        .file("/sys/class/net/bond0/bonding/active_slave", "eth0")
        .nic("vmbr0", "", 50_000)
        .file("/sys/class/net/vmbr0/uevent", "DEVTYPE=bridge")
        .file("/sys/class/net/vmbr0/lower_bond0", "")
        .file("/sys/class/net/bond0/upper_vmbr0", "")
        .link("/sys/class/net/bond0/master", "/sys/class/net/vmbr0");
    for (nth, (name, address)) in (0..).zip(CARDS) {
        let port = format!("0000:80:0{nth}.0");
        tree = tree
            .pci(&port, 0x060400, 1)
            .pci(&format!("{port}/{address}"), 0x020000, 1)
            .pci_link(&port, (8.0, 8), (8.0, 8))
            .pci_link(address, (8.0, 8), (8.0, 8))
            .nic(name, address, 10_000 + 15_000 * i64::from(nth))
            .file(&format!("/sys/class/net/bond0/lower_{name}"), "")
            .file(&format!("/sys/class/net/{name}/upper_bond0"), "")
            .link(&format!("/sys/class/net/{name}/master"), "/sys/class/net/bond0")
            .interrupt(40 + nth, address, &format!("{name}-rx-0"), "0", &[900_000])
            .counted(name, &[("rx_out_of_buffer", 0, 90_000)]);
    }
    let line = |name: &str, bytes: u64| format!("{name}: {bytes} {} 0 0 0 0 0 0 {bytes} 1", bytes / 1500);
    let dev = |bytes: u64| format!("{}\n{}\n", line("eth0", bytes), line("eth1", bytes / 1000));
    tree.earlier("/proc/net/dev", &dev(0))
        .file("/proc/net/dev", &dev(60_000_000_000))
        .file("/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304")
        .file("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456")
        .file("/proc/fs/nfsd/threads", "2")
        .file("/proc/self/mounts", "nas:/x /mnt nfs4 rw,vers=4.2,proto=tcp,addr=10.0.0.9 0 0\n")
        .file("/proc/sys/vm/zone_reclaim_mode", "1")
        .file("/sys/kernel/mm/transparent_hugepage/defrag", "[always] defer defer+madvise madvise never")
        .net(&net())
}

fn net() -> Net {
    let peer: IpAddr = [10, 0, 0, 9].into();
    let speeds = BTreeSet::from([10_000, 25_000]);
    let told = Ethernet {
        channels: Seen::Is(Channels { combined: 1, combined_max: 63, ..Channels::default() }),
        rings: Seen::Is(Rings { rx: 256, rx_max: 8192, ..Rings::default() }),
        modes: Seen::Is(Modes { supported: speeds.clone(), offered: speeds.clone(), partner: speeds }),
        ..Ethernet::default()
    };
    let connection = Connection {
        peer,
        port: 2049,
        round_trip_us: Some(40_000),
        sent_bytes: 1 << 33,
        received_bytes: 1 << 33,
        busy_us: 100,
        buffer_limited_us: 50,
    };
    let own = Address { interface: "vmbr0".to_owned(), address: [10, 0, 0, 1].into(), prefix: 24, global: true };
    let hardware = "aa:bb".to_owned();
    Net {
        addresses: Seen::Is(vec![own]),
        routes: Seen::Is(vec![Route {
            table: TABLE_MAIN,
            to: [10, 0, 0, 0].into(),
            prefix: 24,
            via: None,
            interfaces: vec!["vmbr0".to_owned()],
            metric: 100,
        }]),
        rules: Seen::Is(Vec::new()),
        neighbours: Seen::Is(vec![Neighbour { interface: "vmbr0".to_owned(), address: peer, hardware }]),
        connections: Seen::Is(vec![connection.clone(), Connection { round_trip_us: Some(90_000), ..connection }]),
        ethernet: Seen::Is(
            CARDS.iter().map(|(name, _)| ((*name).to_owned(), told.clone())).collect::<BTreeMap<_, _>>(),
        ),
        ..Net::default()
    }
}

#[test]
fn of_many_faults_at_once_no_remedy_writes_or_commands_what_another_takes_back() {
    let (mut tree, mut found) = (host(), 0);
    for choice in 0..1 << 6 {
        tree = with(tree, choice);
        let host = Host::look(tree.system());
        found += assert_no_contradictions(host.examine().into_iter().map(|(_, verdict)| verdict));
    }
    assert!(found > 64 * 5, "these hosts have faults: {found}");
}
