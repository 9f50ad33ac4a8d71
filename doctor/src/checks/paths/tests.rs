use super::super::super::findings::{Confidence, Finding, Severity, Verdict};
use super::super::super::fixture::{Examined, Tree};
use forebay_host::net::{Address, Connection, Endpoint, Mptcp, Neighbour, Net, Route, Rule, TABLE_MAIN};
use forebay_host::system::Seen;
use std::net::IpAddr;

/// `eth0` and `eth1` at 2.5 Gbit/s.
fn host() -> Tree {
    Tree::new()
        .node(0, "0-7", 4)
        .pci("0000:00:02.0", 0x020000, 0)
        .nic("eth0", "0000:00:02.0", 2_500)
        .pci("0000:00:03.0", 0x020000, 0)
        .nic("eth1", "0000:00:03.0", 2_500)
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn address(interface: &str, address: &str) -> Address {
    Address { interface: interface.to_owned(), address: ip(address), prefix: 24, global: true }
}

fn route(to: &str, prefix: u8, interfaces: &[&str], metric: u32) -> Route {
    let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
    Route { table: TABLE_MAIN, to: ip(to), prefix, via: None, interfaces, metric }
}

fn rule(from: Option<&str>, table: u32) -> Rule {
    Rule { priority: 100, from: from.map(|from| (ip(from), 32)), table }
}

/// Both interfaces in one subnet.
fn same() -> Net {
    Net {
        addresses: Seen::Is(vec![address("eth0", "192.168.0.64"), address("eth1", "192.168.0.65")]),
        routes: Seen::Is(vec![route("192.168.0.0", 24, &["eth1"], 101), route("192.168.0.0", 24, &["eth0"], 100)]),
        rules: Seen::Is(vec![rule(None, TABLE_MAIN)]),
        ..Net::default()
    }
}

/// Each in its own.
fn apart() -> Net {
    Net { addresses: Seen::Is(vec![address("eth0", "192.168.0.64"), address("eth1", "192.168.1.64")]), ..same() }
}

fn one(verdict: Verdict) -> Finding {
    match verdict {
        Verdict::Found(mut found) | Verdict::FoundPart { mut found, .. } if found.len() == 1 => found.remove(0),
        other => panic!("{other:?}"),
    }
}

fn key(verdict: Verdict) -> String {
    match verdict {
        Verdict::Fine(why) => why.key,
        other => panic!("{other:?}"),
    }
}

fn is_hidden(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::NotSeen { what, .. } if what == "no right")
}

fn no_right<T>() -> Seen<T> {
    Seen::Hidden("no right".to_owned())
}

fn put(finding: &Finding, name: &str) -> String {
    finding.text.with.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone()).unwrap_or_default()
}

#[test]
fn of_two_interfaces_in_one_subnet_the_one_without_the_route_adds_nothing() {
    let finding = one(host().net(&same()).file("/proc/sys/net/ipv4/conf/all/arp_ignore", "0").says(34));
    assert_eq!((finding.id.as_str(), finding.severity), ("one-subnet/192.168.0.0/24", Severity::Warning));
    assert_eq!((put(&finding, "used"), put(&finding, "unused")), ("eth0".to_owned(), "eth1".to_owned()));
    let shown: Vec<_> = finding.evidence.iter().map(|e| (e.source.as_str(), e.value.as_str())).collect();
    assert_eq!(shown[1], ("ip address show dev eth1", "192.168.0.65/24"));
    assert_eq!(shown[2], ("ip route show table main", "192.168.0.0/24 dev eth0 metric 100"));
    assert_eq!(shown[3], ("/proc/sys/net/ipv4/conf/all/arp_ignore", "0"));
    assert_eq!(finding.number.map(|number| number.could_be), Some(625e6));
}

#[test]
fn rules_or_a_shared_route_make_use_of_both_interfaces_of_a_subnet() {
    let ruled = Net { rules: Seen::Is(vec![rule(Some("192.168.0.65"), 100), rule(None, TABLE_MAIN)]), ..same() };
    assert_eq!(key(host().net(&ruled).says(34)), "paths.subnet-ruled");
    let shared = Net { routes: Seen::Is(vec![route("192.168.0.0", 24, &["eth0", "eth1"], 0)]), ..same() };
    assert_eq!(key(host().net(&shared).says(34)), "paths.subnet-ruled");
    let elsewhere = Net { rules: Seen::Is(vec![rule(Some("10.0.0.1"), 100)]), ..same() };
    assert_eq!(one(host().net(&elsewhere).says(34)).check, 34);
}

#[test]
fn an_interface_without_the_route_that_sends_as_much_is_bound_to_by_somebody() {
    let sent = |eth1: u64| {
        let line = |name, bytes: u64| format!("{name}: 0 0 0 0 0 0 0 0 {bytes} 0 0 0 0 0 0 0\n");
        host().net(&same()).file("/proc/net/dev", &(line("eth0", 9 << 30) + &line("eth1", eth1))).says(34)
    };
    assert_eq!(key(sent(8 << 30)), "paths.subnet-ruled");
    assert_eq!(one(sent(1 << 20)).check, 34);
}

#[test]
fn interfaces_that_lead_nowhere_else_or_by_the_same_card_or_by_radio_share_a_subnet_without_harm() {
    assert_eq!(key(host().net(&apart()).says(34)), "paths.subnets-fine");
    let radio = host().file("/sys/class/net/eth1/phy80211/name", "phy0");
    assert_eq!(radio.net(&same()).says(34), Verdict::NotHere);
    let down = host().file("/sys/class/net/eth1/carrier", "0");
    assert_eq!(down.net(&same()).says(34), Verdict::NotHere);
    let vlan = Tree::new()
        .pci("0000:00:02.0", 0x020000, 0)
        .nic("eth0", "0000:00:02.0", 2_500)
        .nic("eth1", "", 2_500)
        .file("/sys/class/net/eth1/uevent", "DEVTYPE=macvlan")
        .file("/sys/class/net/eth1/lower_eth0", "");
    assert_eq!(vlan.net(&same()).says(34), Verdict::NotHere);
    let guests = host().file("/sys/class/net/eth1/master/uevent", "").says(34);
    assert_eq!(guests, Verdict::NotHere);
    assert_eq!(host().says(34), Verdict::NotHere);
}

#[test]
fn a_subnet_whose_routes_or_rules_are_hidden_is_not_judged() {
    assert!(is_hidden(host().net(&Net { rules: no_right(), ..same() }).says(34)));
    assert!(is_hidden(host().net(&Net { addresses: no_right(), ..same() }).says(34)));
    assert_eq!(host().net(&Net { routes: Seen::Absent, ..same() }).says(34), Verdict::NotHere);
}

fn bond(mode: &str, hash: &str, neighbours: &[&str]) -> Tree {
    let neighbour = |hardware: &&str| Neighbour {
        interface: "bond0".to_owned(),
        address: ip("10.0.0.9"),
        hardware: (*hardware).to_owned(),
    };
    let net = Net { neighbours: Seen::Is(neighbours.iter().map(neighbour).collect()), ..Net::default() };
    host()
        .nic("bond0", "", 5_000)
        .file("/sys/class/net/bond0/bonding/mode", mode)
        .file("/sys/class/net/bond0/bonding/slaves", "eth0 eth1")
        .file("/sys/class/net/bond0/bonding/xmit_hash_policy", hash)
        .net(&net)
}

#[test]
fn a_bond_that_chooses_by_hardware_address_and_knows_one_uses_one_member() {
    let finding = one(bond("802.3ad 4", "layer2 0", &["aa:bb", "aa:bb"]).says(33));
    assert_eq!((finding.id.as_str(), finding.severity), ("bond/bond0/hash", Severity::Warning));
    assert_eq!(finding.evidence[0].source, "/sys/class/net/bond0/bonding/xmit_hash_policy");
    assert!(format!("{:?}", finding.remedies).contains("layer3+4"), "{:?}", finding.remedies);
}

#[test]
fn bonds_that_spread_or_stand_by_are_fine() {
    assert_eq!(key(bond("802.3ad 4", "layer2 0", &["aa:bb", "cc:dd"]).says(33)), "paths.bond-fine");
    assert_eq!(key(bond("802.3ad 4", "layer3+4 1", &["aa:bb"]).says(33)), "paths.bond-fine");
    assert_eq!(key(bond("active-backup 1", "layer2 0", &["aa:bb"]).says(33)), "paths.bond-one");
    assert_eq!(host().says(33), Verdict::NotHere);
}

#[test]
fn a_member_of_a_bond_without_a_link_is_named_whatever_the_mode() {
    const CARRIER: &str = "/sys/class/net/eth1/carrier";
    const STATE: &str = "/sys/class/net/eth2/operstate";
    for mode in ["802.3ad 4", "active-backup 1", "balance-xor 2", "balance-alb 6"] {
        let failed = || bond(mode, "layer3+4 1", &["aa:bb"]).file(CARRIER, "0");
        for tree in [failed(), failed().virtual_machine()] {
            let finding = one(tree.says(33));
            assert_eq!((finding.id.as_str(), finding.severity), ("bond/bond0/members", Severity::Warning), "{mode}");
            let of = |name| put(&finding, name);
            assert_eq!((of("down"), of("members"), of("all")), ("eth1".into(), "1".into(), "2".into()), "{mode}");
            assert_eq!((finding.evidence[0].source.as_str(), finding.evidence[0].value.as_str()), (CARRIER, "0"));
        }
        // It was set down: the kernel refuses the first file.
        let set_down = || {
            let tree = failed().file("/sys/class/net/bond0/bonding/slaves", "eth0 eth2");
            tree.file("/sys/class/net/eth2/mtu", "1500").hidden("/sys/class/net/eth2/carrier")
        };
        assert_eq!(one(set_down().file(STATE, "down").says(33)).evidence[0].source, STATE, "{mode}");
        assert!(matches!(set_down().hidden(STATE).says(33), Verdict::NotSeen { .. }), "{mode}");
    }
    // One that the switch leaves out beside it: one finding, with both figures.
    let both = host().pci("0000:00:04.0", 0x020000, 0).nic("eth2", "0000:00:04.0", 2_500);
    let both = both
        .nic("bond0", "", 5_000)
        .file("/sys/class/net/bond0/bonding/mode", "802.3ad 4")
        .file("/sys/class/net/bond0/bonding/slaves", "eth0 eth1 eth2")
        .file("/sys/class/net/bond0/bonding/ad_num_ports", "1")
        .file(CARRIER, "0");
    assert!(one(both.says(33)).evidence.iter().any(|shown| shown.source.ends_with("ad_num_ports")));
}

#[test]
fn a_switch_without_lacp_and_members_left_out_are_told_and_hidden_files_are_said_to_be() {
    let lacp = |file: &str, value: &str| {
        bond("802.3ad 4", "layer3+4 1", &[]).file(&format!("/sys/class/net/bond0/bonding/{file}"), value)
    };
    assert_eq!(one(lacp("ad_partner_mac", "00:00:00:00:00:00").says(33)).severity, Severity::Error);
    assert_eq!(one(lacp("ad_num_ports", "1").says(33)).id, "bond/bond0/members");
    // Without the right to it, it is empty.
    assert_eq!(key(lacp("ad_partner_mac", "").says(33)), "paths.bond-fine");
    let no_slaves = host().nic("bond0", "", 1).file("/sys/class/net/bond0/bonding/mode", "x 9");
    assert!(matches!(no_slaves.hidden("/sys/class/net/bond0/bonding/slaves").says(33), Verdict::NotSeen { .. }));
}

/// What two members sent and received in 60 s, in bytes a second each.
fn moved(tree: Tree, sent: [u64; 2], received: [u64; 2]) -> Tree {
    let line =
        |nth: usize, times: u64| format!("eth{nth}: {} 1 0 0 0 0 0 0 {} 1", received[nth] * times, sent[nth] * times);
    let table = |times| format!("{}\n{}\n", line(0, times), line(1, times));
    tree.earlier("/proc/net/dev", &table(0)).file("/proc/net/dev", &table(60))
}

#[test]
fn a_member_that_carries_nearly_all_of_a_bond_is_told_with_what_each_of_them_did() {
    let even = [150_000_000; 2];
    let lacp = |hash| bond("802.3ad 4", hash, &["aa:bb", "cc:dd"]);
    let finding = one(moved(lacp("layer2+3 2"), [290_000_000, 3_000_000], even).says(33));
    assert_eq!((finding.id.as_str(), finding.severity), ("bond/bond0/share-sent", Severity::Warning));
    assert_eq!((put(&finding, "member"), put(&finding, "share")), ("eth0".to_owned(), "99 %".to_owned()));
    assert_eq!(finding.evidence[1].value, "eth1: sent +180000000 bytes in 60 s");
    assert!(format!("{:?}", finding.remedies).contains("layer3+4"));
    // With ports in the choice only more connections help, and below the line it costs nothing yet.
    let few = one(moved(lacp("layer3+4 1"), [100_000_000, 0], even).says(33));
    assert_eq!((few.severity, few.confidence), (Severity::Note, Confidence::Likely));
    assert!(format!("{:?}", few.remedies).contains("paths.bond-flows-help"));
    let switch = one(moved(bond("balance-xor 2", "layer3+4 1", &[]), even, [0, 290_000_000]).says(33));
    assert_eq!((switch.id.as_str(), put(&switch, "member")), ("bond/bond0/share-received", "eth1".to_owned()));
    assert_eq!(crate::words::say(crate::words::Language::En, &switch.text).matches('{').count(), 0);
    for fine in [
        moved(lacp("layer2+3 2"), even, even),
        moved(lacp("layer2+3 2"), [9_000_000, 0], [9_000_000, 0]),
        moved(lacp("layer2+3 2"), [60_000_000, 0], [60_000_000, 0]),
        moved(bond("balance-rr 0", "layer2 0", &[]), [290_000_000, 0], even),
        moved(lacp("layer2+3 2"), [290_000_000, 3_000_000], even).file("/proc/net/dev", "eth0: 1\n"),
        // What receives here, the bond chooses itself.
        moved(bond("balance-tlb 5", "layer3+4 1", &[]), even, [290_000_000, 0]),
        moved(bond("balance-alb 6", "layer3+4 1", &[]), even, [290_000_000, 0]),
        lacp("layer2+3 2"),
    ] {
        assert_eq!(key(fine.says(33)), "paths.bond-fine");
    }
    let backup = moved(bond("active-backup 1", "layer2 0", &[]), [290_000_000, 0], even);
    assert_eq!(key(backup.says(33)), "paths.bond-one");
    assert_eq!(one(moved(lacp("layer2+3 2"), [290_000_000, 0], even).virtual_machine().says(33)).check, 33);
}

#[test]
fn a_bond_with_vlans_is_one_path_whatever_would_use_several() {
    let addresses = vec![address("bond0", "192.168.0.64"), address("bond0.7", "192.168.7.64")];
    let net = || Net { addresses: Seen::Is(addresses.clone()), ..same() };
    let layered = |tree: Tree, mode: &str| {
        tree.nic("bond0", "", 5_000)
            .file("/sys/class/net/bond0/bonding/mode", mode)
            .file("/sys/class/net/bond0/lower_eth0", "")
            .file("/sys/class/net/bond0/lower_eth1", "")
            .nic("bond0.7", "", 5_000)
            .file("/sys/class/net/bond0.7/uevent", "DEVTYPE=vlan")
            .file("/sys/class/net/bond0.7/lower_bond0", "")
    };
    for mode in ["active-backup 1", "802.3ad 4"] {
        assert_eq!(layered(smb(SMB, &apart()), mode).net(&net()).says(35), Verdict::NotHere, "{mode}");
        let mptcp = layered(mptcp(3, 0, &[]), mode);
        let set = Mptcp { endpoints: Vec::new(), subflows_max: 2, accepted_max: 0 };
        assert_eq!(mptcp.net(&Net { mptcp: Seen::Is(set), ..net() }).says(36), Verdict::NotHere, "{mode}");
    }
}

#[test]
fn nfs_by_ip_over_infiniband_is_shown_with_the_rate_of_its_port() {
    let tree = fast(NFS).file("/sys/class/net/eth0/type", "32").file("/sys/class/net/eth0/speed", "40000").rdma(
        "mlx4_0",
        1,
        "0000:00:02.0",
        "40 Gb/sec (4X QDR)",
        "4: ACTIVE",
        "InfiniBand",
    );
    let finding = one(tree.says(37));
    assert_eq!(put(&finding, "speed"), "32 Gb/s");
    let shown = &finding.evidence[1];
    assert_eq!(
        (shown.source.as_str(), shown.value.as_str()),
        ("/sys/class/infiniband/mlx4_0/ports/1/rate", "40 Gb/sec (4X QDR)")
    );
}

#[test]
fn one_connection_over_a_bond_needs_the_window_of_one_member() {
    // 2.5 of the bond's 5 Gbit/s over 4 ms are 1.25 MB under way, of which twice fits into 4 MB; 5 Gbit/s over 8 ms would not.
    let net = |milliseconds: u32| Net {
        addresses: Seen::Is(vec![address("bond0", "192.168.0.64")]),
        routes: Seen::Is(vec![route("192.168.0.0", 24, &["bond0"], 100)]),
        ..bulk(milliseconds * 1000, 2 << 30, 0)
    };
    let of = |milliseconds| {
        let tree = buffers(bond("802.3ad 4", "layer3+4 1", &[])).net(&net(milliseconds));
        tree.file("/sys/class/net/bond0/lower_eth0", "").file("/sys/class/net/bond0/lower_eth1", "").says(38)
    };
    assert_eq!(key(of(6)), "paths.window-fine");
    assert_eq!(put(&one(of(20)), "speed"), "2.5 Gb/s");
}

#[test]
fn two_paths_of_one_card_promise_no_more_than_its_slot() {
    let tree = |lanes| {
        Tree::new()
            .node(0, "0-7", 4)
            .pci("0000:00:02.0", 0x060400, 0)
            .pci("0000:00:02.0/0000:01:00.0", 0x020000, 0)
            .pci("0000:00:02.0/0000:01:00.1", 0x020000, 0)
            .pci_link("0000:01:00.0", (2.5, lanes), (2.5, 4))
            .pci_link("0000:01:00.1", (2.5, lanes), (2.5, 4))
            .nic("eth0", "0000:01:00.0", 2_500)
            .nic("eth1", "0000:01:00.1", 2_500)
            .net(&same())
    };
    let could_be = |lanes| one(tree(lanes).says(34)).number.map(|number| number.could_be);
    assert_eq!(could_be(4), Some(625e6));
    assert!(could_be(2).is_some_and(|bytes| (470e6..490e6).contains(&bytes)), "{:?}", could_be(2));
    assert_eq!(could_be(1), None, "less than one line");
}

fn mptcp(connections: u64, joins: u64, endpoints: &[&str]) -> Tree {
    let text =
        format!("TcpExt: A\nTcpExt: 1\nMPTcpExt: MPCapableSYNACKRX MPJoinSynAckRx\nMPTcpExt: {connections} {joins}");
    let endpoint = |address: &&str| Endpoint { address: ip(address), subflow: true, signal: false };
    let endpoints = endpoints.iter().map(endpoint).collect();
    let set = Mptcp { endpoints, subflows_max: 2, accepted_max: 0 };
    host()
        .file("/proc/sys/net/mptcp/enabled", "1")
        .file("/proc/net/netstat", &text)
        .net(&Net { mptcp: Seen::Is(set), ..apart() })
}

#[test]
fn mptcp_in_use_without_endpoints_has_one_path_of_two() {
    let finding = one(mptcp(3, 0, &[]).says(36));
    assert_eq!((finding.id.as_str(), finding.text.key.as_str()), ("mptcp/paths", "paths.mptcp-no-endpoints"));
    let remedies = format!("{:?}", finding.remedies);
    assert!(remedies.contains("ip mptcp endpoint add 192.168.1.64 dev eth1 subflow"), "{remedies}");
    let finding = one(mptcp(3, 0, &["192.168.1.64"]).says(36));
    assert_eq!(finding.text.key, "paths.mptcp-no-joins");
    assert_eq!(finding.evidence[3].value, "add_addr_accepted 0 subflows 2");
}

#[test]
fn mptcp_that_joins_or_that_nobody_uses_is_fine_and_with_one_path_not_looked_at() {
    assert_eq!(key(mptcp(3, 2, &["192.168.1.64"]).says(36)), "paths.mptcp-fine");
    assert_eq!(key(mptcp(0, 0, &[]).says(36)), "paths.mptcp-unused");
    let single = Net { addresses: Seen::Is(vec![address("eth0", "192.168.0.64")]), ..Net::default() };
    assert_eq!(mptcp(3, 0, &[]).net(&single).says(36), Verdict::NotHere);
    assert_eq!(mptcp(3, 0, &[]).file("/proc/sys/net/mptcp/enabled", "0").says(36), Verdict::NotHere);
    assert_eq!(host().net(&apart()).says(36), Verdict::NotHere);
    assert!(is_hidden(mptcp(3, 0, &[]).net(&Net { mptcp: no_right(), ..apart() }).says(36)));
}

#[test]
fn mptcp_that_mostly_falls_back_is_told_with_one_path_too() {
    let text = "MPTcpExt: MPCapableSYNACKRX MPCapableFallbackSYNACK\nMPTcpExt: 1 5";
    let single = Net { addresses: Seen::Is(vec![address("eth0", "192.168.0.64")]), ..Net::default() };
    assert_eq!(one(mptcp(0, 0, &[]).net(&single).file("/proc/net/netstat", text).says(36)).id, "mptcp/fallback");
}

fn bulk(round_trip_us: u32, sent_bytes: u64, limited: u64) -> Net {
    let connection = Connection {
        peer: ip("192.168.0.9"),
        port: 2049,
        round_trip_us: Some(round_trip_us),
        sent_bytes,
        received_bytes: 0,
        busy_us: 100,
        buffer_limited_us: limited,
    };
    Net { connections: Seen::Is(vec![connection.clone(), connection]), ..same() }
}

fn buffers(tree: Tree) -> Tree {
    tree.file("/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304")
        .file("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456")
}

#[test]
fn a_window_smaller_than_what_is_under_way_is_told_with_the_size_that_is_needed() {
    // 2.5 Gbit/s over 20 ms are 6.25 MB under way.
    let finding = one(buffers(host()).net(&bulk(20_000, 2 << 30, 50)).says(38));
    assert_eq!((finding.id.as_str(), finding.severity), ("tcp-window/send", Severity::Warning));
    assert_eq!(finding.confidence, Confidence::Certain);
    assert_eq!(finding.evidence[0].value, "4096\t16384\t4194304");
    assert!(format!("{:?}", finding.remedies).contains("\"4096 16384 12500000\""), "{:?}", finding.remedies);
    let number = finding.number.expect("what is lost");
    assert!((number.is - 4_194_304.0 / 0.02).abs() < 1.0, "{number:?}");
    let computed = one(buffers(host()).net(&bulk(20_000, 2 << 30, 0)).says(38));
    assert_eq!((computed.severity, computed.confidence), (Severity::Note, Confidence::Computed));
}

#[test]
fn windows_that_hold_the_line_or_connections_that_move_little_are_fine() {
    assert_eq!(key(buffers(host()).net(&bulk(200, 2 << 30, 0)).says(38)), "paths.window-fine");
    let said = |verdict| match verdict {
        Verdict::Fine(why) => crate::words::say(crate::words::Language::En, &why),
        other => panic!("{other:?}"),
    };
    let measured = said(buffers(host()).net(&bulk(200, 2 << 30, 0)).says(38));
    assert!(measured.contains("0.2 ms, to 192.168.0.9"), "{measured}");
    // What moves little was not judged by its round trip, and that is said.
    let unmeasured = said(buffers(host()).net(&bulk(20_000, 1 << 20, 99)).says(38));
    assert!(unmeasured.contains("not judged"), "{unmeasured}");
    let to_itself = Net { addresses: Seen::Is(vec![address("eth0", "192.168.0.9")]), ..bulk(20_000, 2 << 30, 0) };
    assert_eq!(key(buffers(host()).net(&to_itself).says(38)), "paths.window-unmeasured");
    let broken = buffers(host()).file("/sys/class/net/eth0/speed", "4000000000").net(&bulk(u32::MAX - 1, 2 << 30, 0));
    assert_eq!(one(broken.says(38)).check, 38, "no number is too large");
    assert_eq!(host().says(38), Verdict::NotHere);
    assert!(is_hidden(buffers(host()).net(&Net { connections: no_right(), ..same() }).says(38)));
}

fn at_usb(name: &str, way: &str, mbits: i64) -> Tree {
    usb_nic(Tree::new().pci("0000:00:14.0", 0x0c0330, 0), name, way, mbits)
}

fn usb_nic(tree: Tree, name: &str, way: &str, mbits: i64) -> Tree {
    let above = format!("/sys/devices/pci0000:00/0000:00:14.0/usb2/{way}");
    let leaf = format!("{above}/x:1.0/net/{name}");
    tree.file(&format!("{leaf}/mtu"), "1500")
        .file(&format!("{leaf}/carrier"), "1")
        .file(&format!("{leaf}/speed"), &mbits.to_string())
        .link(&format!("{leaf}/device"), "../..")
        .link(&format!("/sys/class/net/{name}"), &format!("../..{}", &leaf["/sys".len()..]))
        .file("/sys/devices/pci0000:00/0000:00:14.0/usb2/2-1/speed", "5000")
        .file("/sys/devices/pci0000:00/0000:00:14.0/usb2/2-1/busnum", "2")
        .file(&format!("{above}/speed"), "5000")
        .file(&format!("{above}/busnum"), "2")
}

#[test]
fn a_card_at_usb_costs_latency_and_one_that_is_faster_than_usb_costs_speed() {
    let finding = one(at_usb("usb0", "2-1", 2_500).says(39));
    assert_eq!((finding.text.key.as_str(), finding.severity), ("paths.usb-latency", Severity::Note));
    assert_eq!(finding.evidence[0].source, "/sys/devices/pci0000:00/0000:00:14.0/usb2/2-1/speed");
    let finding = one(at_usb("usb0", "2-1", 5_000).says(39));
    assert_eq!((finding.text.key.as_str(), finding.severity), ("paths.usb-slow", Severity::Warning));
    assert_eq!(put(&finding, "useful"), "3.4 Gb/s");
    assert_eq!(host().says(39), Verdict::NotHere);
    assert_eq!(at_usb("usb0", "2-1", -1).says(39), Verdict::NotHere);
}

#[test]
fn two_cards_behind_one_hub_share_its_line_and_at_two_ports_they_do_not() {
    let shared = usb_nic(at_usb("usb0", "2-1/2-1.1", 2_500), "usb1", "2-1/2-1.2", 2_500);
    let Verdict::Found(found) = shared.says(39) else { panic!("nothing found") };
    let line = found.iter().find(|finding| finding.text.key == "paths.usb-shared").expect("they share");
    assert_eq!((line.id.as_str(), put(line, "sum")), ("usb-nic/2-1", "5 Gb/s".to_owned()));
    let apart = usb_nic(at_usb("usb0", "2-1", 2_500), "usb1", "2-2", 2_500);
    let Verdict::Found(found) = apart.says(39) else { panic!("nothing found") };
    assert!(found.iter().all(|finding| finding.text.key == "paths.usb-latency"), "{found:?}");
}

#[test]
fn what_a_cloud_holds_back_is_told_as_now_or_before() {
    let counted = |before, now| host().counted("eth0", &[("bw_in_allowance_exceeded", before, now)]).says(40);
    let finding = one(counted(5, 9));
    assert_eq!((finding.text.key.as_str(), finding.severity), ("paths.cloud-now", Severity::Warning));
    assert_eq!((put(&finding, "limit"), put(&finding, "packets")), ("bw_in".to_owned(), "4".to_owned()));
    assert_eq!(one(counted(9, 9)).text.key, "paths.cloud-before");
    assert_eq!(key(counted(0, 0)), "paths.cloud-fine");
    assert_eq!(host().counted("eth0", &[("conntrack_allowance_available", 1, 2)]).says(40), Verdict::NotHere);
    assert_eq!(host().says(40), Verdict::NotHere);
}

const NFS: &str = "nas:/x /mnt nfs4 rw,vers=4.2,proto=tcp,addr=192.168.0.9 0 0";

fn fast(mounts: &str) -> Tree {
    host().file("/sys/class/net/eth0/speed", "25000").file("/proc/self/mounts", mounts).net(&same())
}

#[test]
fn nfs_by_one_connection_at_25_gbits_is_told_and_several_are_fine() {
    let finding = one(fast(NFS).says(37));
    assert_eq!((finding.id.as_str(), put(&finding, "nic")), ("nfs-transport/mnt", "eth0".to_owned()));
    let stats = "device nas:/x mounted on /mnt with fstype nfs4 statvers=1.1\n\txprt:\ttcp 1\n\txprt:\ttcp 2\ndevice a mounted on /b with fstype nfs";
    assert_eq!(key(fast(NFS).file("/proc/self/mountstats", stats).says(37)), "paths.nfs-fine");
    let several = NFS.replace("proto=tcp", "proto=tcp,nconnect=8");
    assert_eq!(key(fast(&several).says(37)), "paths.nfs-fine");
    assert_eq!(key(fast(NFS).file("/sys/class/net/eth0/speed", "10000").says(37)), "paths.nfs-fine");
    assert_eq!(fast("").says(37), Verdict::NotHere);
    assert_eq!(host().says(37), Verdict::NotHere);
    assert!(matches!(host().hidden("/proc/self/mounts").says(37), Verdict::NotSeen { .. }));
    assert!(is_hidden(fast(NFS).net(&Net { routes: no_right(), ..same() }).says(37)));
}

#[test]
fn a_server_of_nfs_with_fewer_threads_than_cores_is_told_with_the_file_to_write() {
    let finding = one(host().file("/proc/fs/nfsd/threads", "4").says(37));
    assert_eq!((finding.id.as_str(), put(&finding, "cores")), ("nfs-transport/nfsd", "8".to_owned()));
    assert!(format!("{:?}", finding.remedies).contains("/proc/fs/nfsd/threads"));
    assert_eq!(key(host().file("/proc/fs/nfsd/threads", "8").says(37)), "paths.nfsd-fine");
    assert_eq!(host().file("/proc/fs/nfsd/threads", "0").says(37), Verdict::NotHere);
}

#[test]
fn rdma_that_is_ready_at_the_card_that_carries_nfs_by_tcp_is_told() {
    let rdma =
        |tree: Tree, card: &str, state: &str| tree.rdma("mlx5_0", 1, card, "25 Gb/sec (1X EDR)", state, "Ethernet");
    let finding = one(rdma(fast(NFS), "0000:00:02.0", "4: ACTIVE").says(32));
    assert_eq!((finding.id.as_str(), finding.severity), ("rdma-idle//mnt", Severity::Note));
    assert_eq!(finding.evidence[1].source, "/sys/class/infiniband/mlx5_0/ports/1/state");
    assert_eq!(rdma(fast(NFS), "0000:00:03.0", "4: ACTIVE").says(32), Verdict::NotHere);
    assert_eq!(rdma(fast(NFS), "0000:00:02.0", "1: DOWN").says(32), Verdict::NotHere);
    assert_eq!(fast(NFS).says(32), Verdict::NotHere);
    let by_rdma = NFS.replace("proto=tcp", "proto=rdma");
    assert_eq!(key(rdma(fast(&by_rdma), "0000:00:02.0", "4: ACTIVE").says(32)), "paths.rdma-used");
    let routes_hidden = fast(NFS).net(&Net { routes: no_right(), ..same() });
    assert!(is_hidden(rdma(routes_hidden, "0000:00:02.0", "4: ACTIVE").says(32)));
    let nvme = fast("")
        .file("/sys/class/nvme/nvme3/transport", "tcp")
        .file("/sys/class/nvme/nvme3/address", "traddr=192.168.0.9,trsvcid=4420");
    assert_eq!(one(rdma(nvme, "0000:00:02.0", "4: ACTIVE").says(32)).id, "rdma-idle/nvme3");
}

#[test]
fn rdma_at_another_port_of_the_same_function_carries_nothing_for_this_interface() {
    let ports = |first: &str, second: &str| {
        fast(NFS)
            .file("/sys/class/net/eth0/dev_port", "0")
            .rdma("mlx4_0", 1, "0000:00:02.0", "40 Gb/sec (4X QDR)", first, "Ethernet")
            .rdma("mlx4_0", 2, "0000:00:02.0", "40 Gb/sec (4X QDR)", second, "Ethernet")
    };
    assert_eq!(ports("1: DOWN", "4: ACTIVE").says(32), Verdict::NotHere);
    assert_eq!(put(&one(ports("4: ACTIVE", "1: DOWN").says(32)), "port"), "mlx4_0/1");
}

const SMB: &str = "//nas/s /mnt cifs rw,vers=3.1.1,addr=192.168.0.9 0 0";

fn smb(mounts: &str, net: &Net) -> Tree {
    host().file("/proc/self/mounts", mounts).net(net)
}

#[test]
fn smb_with_one_channel_and_two_paths_is_told_and_one_path_is_no_reason() {
    let finding = one(smb(SMB, &apart()).says(35));
    assert_eq!((finding.text.key.as_str(), put(&finding, "nics")), ("paths.smb-one", "eth0, eth1".to_owned()));
    let slower = smb(SMB, &apart()).file("/sys/class/net/eth1/speed", "1000");
    assert_eq!(slower.says(35), Verdict::NotHere);
    assert_eq!(smb("", &apart()).says(35), Verdict::NotHere);
    assert_eq!(host().says(35), Verdict::NotHere);
}

#[test]
fn smb_that_asked_for_channels_and_got_none_blames_the_server() {
    let asked = SMB.replace("vers=3.1.1", "vers=3.1.1,multichannel,max_channels=2");
    let debug = "/proc/fs/cifs/DebugData";
    let refused = smb(&asked, &apart()).file(debug, "Servers:\n\tServer interfaces: 1\n");
    let finding = one(refused.says(35));
    assert_eq!(finding.text.key, "paths.smb-refused");
    assert_eq!(finding.evidence[2].value, "Server interfaces: 1");
    let granted = smb(&asked, &apart()).file(debug, "Servers:\n\tExtra Channels: 1 \n");
    assert_eq!(key(granted.says(35)), "paths.smb-fine");
    assert!(matches!(smb(&asked, &apart()).hidden(debug).says(35), Verdict::NotSeen { .. }));
    assert_eq!(smb(&asked, &apart()).says(35), Verdict::NotHere);
}

#[test]
fn a_samba_server_with_multichannel_off_is_told_where_two_paths_are() {
    let off =
        |net: &Net| smb("", net).file("/etc/samba/smb.conf", "[global]\n server multi channel support = no\n").says(35);
    assert_eq!(one(off(&apart())).id, "smb-multichannel/server");
    let single = Net { addresses: Seen::Is(vec![address("eth0", "192.168.0.64")]), ..Net::default() };
    assert_eq!(off(&single), Verdict::NotHere);
    let by_default = smb("", &apart()).file("/etc/samba/smb.conf", "[global]\n");
    assert_eq!(by_default.says(35), Verdict::NotHere);
}
