use super::super::super::findings::{Finding, Remedy, Severity, Verdict};
use super::super::super::fixture::{Examined, Tree};
use forebay_host::net::{Address, Channels, Coalescing, Ethernet, Feature, Link, Modes, Net, Rings};
use forebay_host::system::Seen;
use std::collections::{BTreeMap, BTreeSet};

/// Two nodes of four cores; `eth0` at 25 Gbit/s on the second.
fn host() -> Tree {
    Tree::new()
        .node(0, "0-3", 4)
        .node(1, "4-7", 4)
        .pci("0000:80:02.0", 0x060400, 1)
        .pci("0000:80:02.0/0000:82:00.0", 0x020000, 1)
        .nic("eth0", "0000:82:00.0", 25_000)
}

fn with(told: Ethernet) -> Net {
    Net { ethernet: Seen::Is(BTreeMap::from([("eth0".to_owned(), told)])), ..Net::default() }
}

fn queues(has: u32, most: u32) -> Ethernet {
    let channels = Seen::Is(Channels { combined: has, combined_max: most, ..Channels::default() });
    Ethernet { channels, ..Ethernet::default() }
}

fn hidden() -> Verdict {
    let how = super::Sentence::new("doctor.as-root");
    Verdict::NotSeen { what: "no right".to_owned(), how }
}

fn found(verdict: Verdict) -> Vec<Finding> {
    match verdict {
        Verdict::Found(found) | Verdict::FoundPart { found, .. } => found,
        other => panic!("{other:?}"),
    }
}

fn one(verdict: Verdict) -> Finding {
    let mut found = found(verdict);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn key(verdict: Verdict) -> String {
    match verdict {
        Verdict::Fine(why) => why.key,
        other => panic!("{other:?}"),
    }
}

fn put(finding: &Finding, name: &str) -> String {
    finding.text.with.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone()).unwrap_or_default()
}

#[test]
fn one_queue_at_25_gbits_with_four_cores_near_is_told_with_the_command_for_more() {
    let finding = one(host().net(&with(queues(1, 63))).says(26));
    assert_eq!((finding.id.as_str(), finding.severity), ("nic-queues/eth0", Severity::Warning));
    assert_eq!((put(&finding, "queues"), put(&finding, "cores")), ("1".to_owned(), "4".to_owned()));
    assert_eq!(finding.evidence[0].value, "rx 0, combined 1, at most 63");
    assert!(format!("{:?}", finding.remedies).contains("ethtool -L eth0 combined 4"), "{:?}", finding.remedies);
}

#[test]
fn queues_that_carry_the_line_or_match_the_near_cores_are_fine() {
    assert_eq!(key(host().net(&with(queues(4, 63))).says(26)), "nics.queues-fine");
    // Five of ten gigabits each are twice the line.
    let many = host().node(2, "8-40", 4).file("/sys/bus/pci/devices/0000:82:00.0/numa_node", "2");
    assert_eq!(key(many.net(&with(queues(5, 63))).says(26)), "nics.queues-fine");
}

#[test]
fn queues_that_nothing_is_spread_over_do_not_count() {
    let told = Ethernet { receiving_queues: Seen::Is(1), ..queues(8, 63) };
    let finding = one(host().net(&with(told)).says(26));
    assert_eq!(put(&finding, "queues"), "1");
    assert_eq!(finding.evidence[1].value, "1 of 8 queues");
    assert!(format!("{:?}", finding.remedies).contains("ethtool -X eth0 equal 8"));
}

#[test]
fn queues_of_slow_or_silent_interfaces_are_not_looked_at_and_hidden_ones_are_said_to_be() {
    let slow = host().file("/sys/class/net/eth0/speed", "10000").net(&with(queues(1, 63)));
    assert_eq!(slow.says(26), Verdict::NotHere);
    let unknown = host().file("/sys/class/net/eth0/speed", "-1").net(&with(queues(1, 63)));
    assert_eq!(unknown.says(26), Verdict::NotHere);
    assert_eq!(host().says(26), Verdict::NotHere);
    let told = Ethernet { channels: Seen::Hidden("no right".to_owned()), ..Ethernet::default() };
    assert_eq!(host().net(&with(told)).says(26), hidden());
    assert_eq!(host().net(&Net { ethernet: Seen::Hidden("no right".to_owned()), ..Net::default() }).says(26), hidden());
}

#[test]
fn what_hides_a_part_is_told_beside_what_was_found_in_the_rest() {
    let told = Ethernet { receiving_queues: Seen::Hidden("no right".to_owned()), ..queues(1, 63) };
    let verdict = host().net(&with(told)).says(26);
    let Verdict::FoundPart { found, what, how } = verdict else { panic!("{verdict:?}") };
    assert_eq!((found[0].id.as_str(), &*what, &*how.key), ("nic-queues/eth0", "no right", "doctor.as-root"));
    assert!(matches!(host().net(&with(queues(1, 63))).says(26), Verdict::Found(_)));
}

#[test]
fn an_interface_of_another_network_that_only_shares_a_name_is_not_looked_at() {
    let link = |index| Seen::Is(BTreeMap::from([("eth0".to_owned(), Link { index, mtu_max: 0 })]));
    let same = Net { links: link(2), ..with(queues(1, 63)) };
    assert_eq!(one(host().net(&same).says(26)).id, "nic-queues/eth0");
    let other = Net { links: link(9), ..with(queues(1, 63)) };
    assert_eq!(host().net(&other).says(26), Verdict::NotHere);
}

#[test]
fn the_interface_that_stands_for_a_guests_function_is_not_looked_at() {
    let tree = host().net(&with(queues(1, 63)));
    assert_eq!(tree.file("/sys/class/net/eth0/phys_port_name", "pf0vf3").says(26), Verdict::NotHere);
    let tree = host().net(&with(queues(1, 63)));
    assert_eq!(one(tree.file("/sys/class/net/eth0/phys_port_name", "p0").says(26)).check, 26);
}

fn traffic(tree: Tree, received: u64) -> Tree {
    let line = |packets| format!("eth0: 1 {packets} 0 0 0 0 0 0 1 7 0 0 0 0 0 0");
    tree.earlier("/proc/net/dev", &line(0)).file("/proc/net/dev", &line(received))
}

#[test]
fn drops_that_grow_are_told_with_the_ring_that_could_be_longer() {
    let rings =
        Ethernet { rings: Seen::Is(Rings { rx: 256, rx_max: 8192, ..Rings::default() }), ..Ethernet::default() };
    let tree = traffic(host(), 99_000).net(&with(rings));
    let finding = one(tree.counted("eth0", &[("rx_out_of_buffer", 5, 1_005), ("rx_bytes", 0, 9)]).says(27));
    assert_eq!((finding.severity, put(&finding, "lost")), (Severity::Warning, "1000".to_owned()));
    assert_eq!(finding.evidence[0].source, "ethtool -S eth0: rx_out_of_buffer");
    assert_eq!(finding.evidence[0].value, "1005 (+1000 in 60 s)");
    assert_eq!(finding.evidence[1].value, "rx 256 of 8192");
    assert_eq!(finding.number.map(|number| number.is), Some(0.01));
    assert!(format!("{:?}", finding.remedies).contains("ethtool -G eth0 rx 8192"));
}

#[test]
fn drops_with_the_longest_ring_blame_the_cores_and_few_of_many_are_a_note() {
    let rings =
        Ethernet { rings: Seen::Is(Rings { rx: 8192, rx_max: 8192, ..Rings::default() }), ..Ethernet::default() };
    let file = "/sys/class/net/eth0/statistics/rx_missed_errors";
    let tree = traffic(host(), 10_000_000).net(&with(rings)).earlier(file, "0").file(file, "3");
    let finding = one(tree.says(27));
    assert_eq!((finding.severity, finding.evidence[0].source.as_str()), (Severity::Note, file));
    assert!(format!("{:?}", finding.remedies).contains("nics.ring-full-help"));
}

#[test]
fn drops_of_the_past_or_of_other_kinds_are_none() {
    let tree = traffic(host(), 7).counted("eth0", &[("rx_missed", 900, 900), ("rx_oversize_discards", 0, 9)]);
    assert_eq!(key(tree.says(27)), "nics.drops-fine");
    assert_eq!(traffic(host(), 7).counted("eth0", &[("tx_discards", 0, 9)]).says(27), Verdict::NotHere);
    assert_eq!(host().says(27), Verdict::NotHere);
    let idle = traffic(host(), 0).counted("eth0", &[("rx_missed", 900, 900)]);
    assert_eq!(idle.says(27), Verdict::NotHere, "none of no packets says nothing");
}

#[test]
fn drops_cannot_be_told_by_one_look() {
    let tree = host().file("/sys/class/net/eth0/statistics/rx_missed_errors", "3");
    assert!(matches!(tree.says(27), Verdict::NotSeen { how, .. } if how.key == "cpu.second-look"));
}

fn modes(supported: &[u32], offered: &[u32], partner: &[u32]) -> Net {
    let set = |speeds: &[u32]| speeds.iter().copied().collect::<BTreeSet<u32>>();
    let modes = Modes { supported: set(supported), offered: set(offered), partner: set(partner) };
    with(Ethernet { modes: Seen::Is(modes), ..Ethernet::default() })
}

fn at(mbits: &str) -> Tree {
    host().file("/sys/class/net/eth0/speed", mbits)
}

#[test]
fn a_link_slower_than_both_ends_is_a_fault_of_the_cable_or_of_what_is_offered() {
    let all = [100, 1000, 2500];
    let finding = one(at("1000").net(&modes(&all, &all, &all)).says(28));
    assert_eq!((finding.text.key.as_str(), finding.severity), ("nics.mode-both", Severity::Warning));
    assert_eq!(finding.number.as_ref().map(|number| number.could_be), Some(312.5e6));
    let finding = one(at("1000").net(&modes(&all, &[100, 1000], &all)).says(28));
    assert_eq!(finding.text.key, "nics.mode-not-offered");
    assert!(format!("{:?}", finding.remedies).contains("ethtool -s eth0 autoneg on"));
}

#[test]
fn a_link_slower_than_the_card_is_a_note_where_the_other_end_is_slower_or_unknown() {
    let finding = one(at("1000").net(&modes(&[1000, 10_000], &[1000, 10_000], &[100, 1000])).says(28));
    assert_eq!((finding.text.key.as_str(), finding.severity), ("nics.mode-partner", Severity::Note));
    let finding = one(at("1000").net(&modes(&[1000, 10_000], &[1000, 10_000], &[])).says(28));
    assert_eq!((finding.text.key.as_str(), finding.severity), ("nics.mode-unknown", Severity::Note));
}

#[test]
fn a_link_at_its_cards_best_is_fine_and_a_virtual_card_that_tells_nothing_is_left_alone() {
    assert_eq!(key(at("25000").net(&modes(&[10_000, 25_000], &[25_000], &[])).says(28)), "nics.mode-fine");
    let guest = host().virtual_machine().net(&modes(&[], &[], &[]));
    assert_eq!(guest.says(28), Verdict::NotHere);
    let told = Ethernet { modes: Seen::Hidden("no right".to_owned()), ..Ethernet::default() };
    assert_eq!(host().net(&with(told)).says(28), hidden());
}

#[test]
fn half_duplex_and_blocks_that_fec_could_not_save_are_told() {
    let finding = one(host().file("/sys/class/net/eth0/duplex", "half").says(28));
    assert_eq!((finding.id.as_str(), finding.severity), ("nic-link-mode/eth0/duplex", Severity::Error));
    let finding = one(host().counted("eth0", &[("fec/uncorrectable", 2, 9), ("fec/corrected", 0, 99)]).says(28));
    assert_eq!((finding.id.as_str(), put(&finding, "blocks")), ("nic-link-mode/eth0/fec", "7".to_owned()));
    assert_eq!(host().counted("eth0", &[("fec/uncorrectable", 9, 9)]).says(28), Verdict::NotHere);
}

/// A bridge over `eth0` and a guest's `tap0`.
fn bridged(bridge: &str, eth0: &str, tap0: &str) -> Tree {
    host()
        .file("/sys/class/net/eth0/speed", "1000")
        .file("/sys/class/net/eth0/mtu", eth0)
        .nic("tap0", "", 0)
        .file("/sys/class/net/tap0/mtu", tap0)
        .nic("br0", "", 0)
        .file("/sys/class/net/br0/uevent", "DEVTYPE=bridge")
        .file("/sys/class/net/br0/mtu", bridge)
        .file("/sys/class/net/br0/lower_eth0", "")
        .file("/sys/class/net/br0/lower_tap0", "")
        .file("/sys/class/net/eth0/upper_br0", "")
}

#[test]
fn a_bridge_with_a_larger_mtu_than_its_port_is_an_error_with_both_files() {
    let finding = one(bridged("9000", "8000", "1500").says(29));
    assert_eq!((finding.id.as_str(), finding.severity), ("nic-mtu/br0/tap0", Severity::Error));
    let files: Vec<&str> = finding.evidence.iter().map(|evidence| evidence.source.as_str()).collect();
    assert_eq!(files, ["/sys/class/net/br0/mtu", "/sys/class/net/tap0/mtu"]);
    assert!(format!("{:?}", finding.remedies).contains("ip link set dev br0 mtu 1500"));
}

#[test]
fn a_bridge_is_not_shrunk_for_a_port_that_is_down_or_for_a_guest_behind_the_others() {
    let guest = one(bridged("9000", "9000", "1500").says(29));
    assert_eq!((guest.id.as_str(), guest.severity), ("nic-mtu/br0/tap0", Severity::Note));
    assert_eq!(guest.text.key, "nics.mtu-ports");
    assert!(!remedies(&guest).contains("ip link"), "{guest:?}");
    let down = |tree: Tree, name: &str| tree.file(&format!("/sys/class/net/{name}/carrier"), "0");
    assert_eq!(key(down(bridged("9000", "9000", "1500"), "tap0").says(29)), "nics.mtu-fine");
    // The port that has the bridge's size is down: no packet of that size gets through.
    assert_eq!(one(down(bridged("9000", "9000", "1500"), "eth0").says(29)).severity, Severity::Error);
    assert_eq!(key(down(bridged("1500", "9000", "1500"), "eth0").says(29)), "nics.mtu-fine");
    assert_eq!(down(down(bridged("9000", "1500", "1500"), "eth0"), "tap0").says(29), Verdict::NotHere);
}

#[test]
fn layers_that_branch_without_end_are_each_looked_at_once() {
    let mut tree = Tree::new().nic("br0", "", 0).file("/sys/class/net/br0/uevent", "DEVTYPE=bridge");
    let mut above = vec!["br0".to_owned()];
    // Ten million ways down.
    for level in 0..7 {
        let level: Vec<String> = (0..10).map(|nth| format!("x{level}{nth}")).collect();
        tree = level.iter().fold(tree, |tree, name| tree.nic(name, "", 0));
        for (name, lower) in above.iter().flat_map(|name| level.iter().map(move |lower| (name, lower))) {
            tree = tree.file(&format!("/sys/class/net/{name}/lower_{lower}"), "");
        }
        above = level;
    }
    let begun = std::time::Instant::now();
    assert_eq!(key(tree.says(29)), "nics.mtu-fine");
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
}

#[test]
fn a_way_down_that_is_too_deep_does_not_end_the_search() {
    let mut tree = host().nic("br0", "", 0).file("/sys/class/net/br0/uevent", "DEVTYPE=bridge");
    tree = tree.file("/sys/class/net/eth0/mtu", "9000").file("/sys/class/net/eth0/upper_a0", "");
    tree = tree.nic("a0", "", 0).file("/sys/class/net/br0/lower_a0", "").file("/sys/class/net/a0/lower_eth0", "");
    let deep: Vec<String> = (0..12).map(|nth| format!("z{nth:02}")).collect();
    let mut above = "br0";
    for name in &deep {
        tree = tree.nic(name, "", 0).file(&format!("/sys/class/net/{above}/lower_{name}"), "");
        above = name;
    }
    let finding = one(tree.says(29));
    assert_eq!(finding.id, "nic-mtu/br0/eth0");
}

#[test]
fn ports_of_a_bridge_that_differ_are_a_note_unless_the_larger_one_carries_something_else_too() {
    let finding = one(bridged("1500", "9000", "1500").says(29));
    assert_eq!((finding.text.key.as_str(), finding.severity), ("nics.mtu-ports", Severity::Note));
    let with_vlan = bridged("1500", "9000", "1500").file("/sys/class/net/eth0/upper_eth0.7", "");
    assert_eq!(key(with_vlan.says(29)), "nics.mtu-fine");
    assert_eq!(key(bridged("1500", "1500", "1500").says(29)), "nics.mtu-fine");
}

/// `eth0`, what lies on it, each on the one before: name, kind and MTU.
fn layers(eth0: &str, above: &[(&str, &str, &str)]) -> Tree {
    let mut tree = host().file("/sys/class/net/eth0/mtu", eth0);
    let mut below = "eth0";
    for (name, kind, mtu) in above {
        tree = tree
            .nic(name, "", 25_000)
            .file(&format!("/sys/class/net/{name}/uevent"), &format!("DEVTYPE={kind}"))
            .file(&format!("/sys/class/net/{name}/mtu"), mtu)
            .file(&format!("/sys/class/net/{name}/lower_{below}"), "")
            .file(&format!("/sys/class/net/{below}/upper_{name}"), "");
        if *kind != "vlan" {
            tree = tree.link(&format!("/sys/class/net/{below}/master"), &format!("/sys/class/net/{name}"));
        }
        below = name;
    }
    tree
}

fn remedies(finding: &Finding) -> String {
    format!("{:?}", finding.remedies)
}

#[test]
fn a_bridge_with_a_smaller_mtu_than_the_card_below_it_is_told_with_a_bond_or_a_vlan_in_between_too() {
    let finding = one(layers("9000", &[("vmbr0", "bridge", "1500")]).says(29));
    assert_eq!((finding.id.as_str(), finding.severity), ("nic-mtu/vmbr0/eth0", Severity::Warning));
    assert!(remedies(&finding).contains("ip link set dev vmbr0 mtu 9000"), "{finding:?}");
    let with_bond = layers("9000", &[("bond0", "bond", "9000"), ("vmbr0", "bridge", "1500")]);
    assert_eq!(one(with_bond.says(29)).id, "nic-mtu/vmbr0/bond0");
    let none = Net { addresses: Seen::Is(Vec::new()), ..Net::default() };
    let vlan = || layers("9000", &[("eth0.7", "vlan", "1500"), ("vmbr0", "bridge", "1500")]);
    let finding = one(vlan().net(&none).says(29));
    assert_eq!(finding.id, "nic-mtu/vmbr0/eth0");
    assert!(
        remedies(&finding).contains("ip link set dev eth0.7 mtu 9000 && ip link set dev vmbr0 mtu 9000"),
        "{finding:?}"
    );
    // The card's own packets may be large, and nobody knows whether it has some.
    assert_ne!(key(vlan().says(29)), "nics.mtu-unused");
    let own = Address { interface: "eth0".to_owned(), address: [10, 0, 0, 1].into(), prefix: 24, global: true };
    let own = Net { addresses: Seen::Is(vec![own]), ..Net::default() };
    assert_ne!(key(vlan().net(&own).says(29)), "nics.mtu-unused");
    // Something else uses the card's size.
    let shared = layers("9000", &[("vmbr0", "bridge", "1500")]).file("/sys/class/net/eth0/upper_eth0.9", "");
    assert_eq!(key(shared.says(29)), "nics.mtu-fine");
    assert_eq!(key(layers("9000", &[("vmbr0", "bridge", "9000")]).says(29)), "nics.mtu-fine");
    let slow = layers("9000", &[("vmbr0", "bridge", "1500")]).file("/sys/class/net/eth0/speed", "1000");
    assert_eq!(one(slow.says(29)).severity, Severity::Note);
    let unreadable = layers("9000", &[("vmbr0", "bridge", "1500")]).cut("/sys/class/net/vmbr0/mtu", 0);
    assert_eq!(key(unreadable.says(29)), "nics.mtu-jumbo");
    assert_eq!(one(layers("9000", &[("vmbr0", "bridge", "1500")]).virtual_machine().says(29)).check, 29);
}

#[test]
fn the_members_of_a_bond_are_one_advice_and_none_against_that_of_the_bond() {
    let bond = |bond: &str, second: &str| {
        layers("1500", &[("bond0", "bond", bond)])
            .pci("0000:80:03.0", 0x020000, 1)
            .nic("eth1", "0000:80:03.0", 25_000)
            .file("/sys/class/net/eth1/mtu", second)
            .file("/sys/class/net/bond0/lower_eth1", "")
            .link("/sys/class/net/eth1/master", "/sys/class/net/bond0")
    };
    let both = one(bond("1500", "1500").says(29));
    assert_eq!(both.id, "nic-mtu/bond0");
    assert!(remedies(&both).contains("ip link set dev bond0 mtu 9000"));
    let apart = one(bond("9000", "9000").says(29));
    assert_eq!(apart.id, "nic-mtu/bond0/eth0");
    assert!(remedies(&apart).contains("ip link set dev bond0 mtu 1500") && !remedies(&apart).contains("mtu 9000"));
    let bridged = one(layers("1500", &[("bond0", "bond", "1500"), ("vmbr0", "bridge", "1500")]).says(29));
    assert!(
        remedies(&bridged).contains("nics.mtu-bridge-help") && !remedies(&bridged).contains("ip link"),
        "{bridged:?}"
    );
}

#[test]
fn whatever_lies_on_whatever_the_commands_for_sizes_all_lead_to_one() {
    let stacks: [&[(&str, &str)]; 5] = [
        &[("bond0", "bond"), ("vmbr0", "bridge")],
        &[("bond0", "bond"), ("bond0.7", "vlan"), ("vmbr0", "bridge")],
        &[("vmbr0", "bridge"), ("vmbr0.7", "vlan")],
        &[("bond0", "bond"), ("vmbr0", "bridge"), ("vmbr0.7", "vlan")],
        &[("eth0.7", "vlan"), ("vmbr0", "bridge")],
    ];
    for stack in stacks {
        let above: Vec<_> = stack.iter().map(|(name, kind)| (*name, *kind, "1500")).collect();
        let first = stack[0].0;
        let mut tree = layers("1500", &above).net(&Net { addresses: Seen::Is(Vec::new()), ..Net::default() });
        if stack[0].1 != "vlan" {
            tree = tree
                .pci("0000:80:03.0", 0x020000, 1)
                .nic("eth1", "0000:80:03.0", 25_000)
                .file(&format!("/sys/class/net/{first}/lower_eth1"), "")
                .file(&format!("/sys/class/net/eth1/upper_{first}"), "")
                .link("/sys/class/net/eth1/master", &format!("/sys/class/net/{first}"));
        }
        // The card that is in no stack of a VLAN is there with its size alone.
        let names: Vec<&str> = ["eth0", "eth1"].into_iter().chain(stack.iter().map(|(name, _)| *name)).collect();
        for choice in 0..1 << names.len() {
            tree = (0..).zip(&names).fold(tree, |tree, (bit, name)| {
                tree.file(&format!("/sys/class/net/{name}/mtu"), if choice >> bit & 1 == 1 { "9000" } else { "1500" })
            });
            assert_one_size(&tree, &format!("{stack:?} {choice:b}"));
        }
    }
}

fn assert_one_size(tree: &Tree, what: &str) {
    let Verdict::Found(found) = tree.says(29) else { return };
    let said = found.iter().flat_map(|finding| &finding.remedies).filter_map(|remedy| match remedy {
        Remedy::Explain { command, .. } => command.clone(),
        Remedy::Apply { .. } => None,
    });
    let sizes: BTreeSet<String> = said
        .flat_map(|command| command.split(" && ").map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|command| command.rsplit_once(' ').map(|(_, size)| size.to_owned()))
        .collect();
    assert!(sizes.len() <= 1, "{what}: {found:#?}");
}

#[test]
fn no_more_is_promised_than_the_slot_of_the_card_carries() {
    let narrow = |lanes| {
        let tree = host().pci_link("0000:80:02.0", (8.0, lanes), (8.0, 16));
        tree.pci_link("0000:82:00.0", (8.0, lanes), (8.0, 8))
    };
    // A link that at its best is slower than the line is none.
    let made_up = host().pci_link("0000:80:02.0", (2.5, 1), (2.5, 1)).pci_link("0000:82:00.0", (2.5, 1), (2.5, 1));
    assert_eq!(one(made_up.says(29)).id, "nic-mtu/eth0");
    assert_eq!(one(narrow(1).virtual_machine().says(29)).id, "nic-mtu/eth0", "nor is one of a virtual machine");
    // Two lanes of generation 3 carry 1.9 GB/s, and the line at 1500 bytes 2.9.
    assert_eq!(narrow(2).says(29), Verdict::NotHere);
    assert_eq!(one(narrow(8).says(29)).id, "nic-mtu/eth0");
    let all = [10_000, 25_000];
    let slow = |lanes| narrow(lanes).file("/sys/class/net/eth0/speed", "10000").net(&modes(&all, &all, &all)).says(28);
    assert_eq!(slow(1), Verdict::NotHere);
    let could_be = |verdict| one(verdict).number.map_or(0.0, |number| number.could_be);
    assert!((1.8e9..1.97e9).contains(&could_be(slow(2))));
    assert_eq!(could_be(slow(8)), 3.125e9);
    assert_eq!(narrow(1).net(&with(queues(1, 63))).says(26), Verdict::NotHere);
    assert!((1.8e9..1.97e9).contains(&could_be(narrow(2).net(&with(queues(1, 63))).says(26))));
}

#[test]
fn a_vlan_may_have_a_smaller_mtu_than_its_card_but_no_larger() {
    let vlan = |mtu: &str| {
        host()
            .file("/sys/class/net/eth0/mtu", "9000")
            .nic("eth0.7", "", 25_000)
            .file("/sys/class/net/eth0.7/uevent", "DEVTYPE=vlan")
            .file("/sys/class/net/eth0.7/lower_eth0", "")
            .file("/sys/class/net/eth0.7/mtu", mtu)
    };
    assert_eq!(key(vlan("1500").says(29)), "nics.mtu-fine");
    assert_eq!(one(vlan("9100").says(29)).id, "nic-mtu/eth0.7/eth0");
    assert_eq!(
        key(vlan("9100").hidden("/sys/class/net/eth1/mtu").cut("/sys/class/net/eth0.7/mtu", 0).says(29)),
        "nics.mtu-jumbo"
    );
}

#[test]
fn an_mtu_of_1500_is_worth_a_note_from_10_gbits_on_where_the_driver_takes_more() {
    let finding = one(host().says(29));
    assert_eq!((finding.text.key.as_str(), finding.severity), ("nics.mtu-1500", Severity::Note));
    let number = finding.number.expect("what can be gained");
    assert!((number.could_be / number.is - 1.052).abs() < 0.0005, "{number:?}");
    assert_eq!(at("2500").says(29), Verdict::NotHere);
    assert_eq!(key(host().file("/sys/class/net/eth0/mtu", "9000").says(29)), "nics.mtu-jumbo");
    let link = Link { index: 2, mtu_max: 1500 };
    let small = Net { links: Seen::Is(BTreeMap::from([("eth0".to_owned(), link)])), ..Net::default() };
    assert_eq!(host().net(&small).says(29), Verdict::NotHere);
}

fn features(tso: Feature, gro: Feature) -> Net {
    let features = [("tx-tcp-segmentation", tso), ("rx-gro", gro)];
    let features = features.into_iter().map(|(name, feature)| (name.to_owned(), feature)).collect();
    with(Ethernet { features: Seen::Is(features), ..Ethernet::default() })
}

const ON: Feature = Feature { on: true, can_change: true };
const OFF: Feature = Feature { on: false, can_change: true };

#[test]
fn offloads_that_could_be_on_are_told_and_those_that_a_driver_lacks_are_not() {
    let finding = one(host().net(&features(OFF, ON)).says(30));
    assert_eq!(finding.id, "nic-offloads/eth0/tso");
    assert_eq!(
        (finding.evidence[0].source.as_str(), finding.evidence[0].value.as_str()),
        ("ethtool -k eth0: tx-tcp-segmentation", "off")
    );
    assert_eq!(found(host().net(&features(OFF, OFF)).says(30)).len(), 2);
    assert_eq!(host().net(&features(Feature::default(), ON)).says(30), Verdict::NotHere);
    assert_eq!(key(host().net(&features(ON, ON)).says(30)), "nics.offload-fine");
    assert_eq!(at("1000").net(&features(OFF, OFF)).says(30), Verdict::NotHere);
    let told = Ethernet { features: Seen::Hidden("no right".to_owned()), ..Ethernet::default() };
    assert_eq!(host().net(&with(told)).says(30), hidden());
}

#[test]
fn an_interrupt_for_each_of_many_packets_is_told_but_not_of_a_guests_card() {
    let waits = with(Ethernet { coalescing: Seen::Is(Coalescing::default()), ..Ethernet::default() });
    let finding = one(traffic(host(), 12_000_000).net(&waits).says(30));
    assert_eq!((finding.id.as_str(), put(&finding, "packets")), ("nic-offloads/eth0/coalescing", "200000".to_owned()));
    assert_eq!(traffic(host(), 1_200_000).net(&waits).says(30), Verdict::NotHere);
    let guest = traffic(host(), 12_000_000).net(&waits).virtual_machine().driver("0000:82:00.0", "virtio_net");
    assert_eq!(guest.says(30), Verdict::NotHere);
    let adaptive = Coalescing { adaptive_rx: true, ..Coalescing::default() };
    let adaptive = with(Ethernet { coalescing: Seen::Is(adaptive), ..Ethernet::default() });
    assert_eq!(traffic(host(), 12_000_000).net(&adaptive).says(30), Verdict::NotHere);
}

#[test]
fn pause_frames_say_which_end_is_too_slow() {
    let finding = one(host().counted("eth0", &[("pause/rx", 0, 6000), ("pause/tx", 5, 5)]).says(31));
    assert_eq!((finding.id.as_str(), finding.text.key.as_str()), ("nic-pause/eth0/rx", "nics.paused"));
    let finding = one(host().counted("eth0", &[("tx_pause_ctrl_phy", 0, 6000), ("rx_pause_ctrl_phy", 0, 2)]).says(31));
    assert_eq!((finding.id.as_str(), finding.text.key.as_str()), ("nic-pause/eth0/tx", "nics.pauses"));
    assert_eq!(key(host().counted("eth0", &[("pause/rx", 7, 9)]).says(31)), "nics.pause-fine");
    assert_eq!(host().counted("eth0", &[("rx_prio3_pause_duration", 0, 1 << 40)]).says(31), Verdict::NotHere);
    assert_eq!(host().says(31), Verdict::NotHere);
    let once = host().file("/forebay/net/statistics/eth0", "pause/rx: 9");
    assert!(matches!(once.says(31), Verdict::NotSeen { how, .. } if how.key == "cpu.second-look"));
}

fn rdma(state: &str) -> Tree {
    host().rdma("mlx5_0", 1, "0000:82:00.0", "100 Gb/sec (4X EDR)", state, "InfiniBand")
}

fn grows(tree: Tree, name: &str, before: &str, now: &str) -> Tree {
    let file = format!("/sys/class/infiniband/mlx5_0/ports/1/{name}");
    tree.earlier(&file, before).file(&file, now)
}

#[test]
fn errors_of_an_rdma_port_that_grow_are_told_and_old_ones_are_not() {
    let finding = one(grows(rdma("4: ACTIVE"), "counters/symbol_error", "3", "8").says(31));
    assert_eq!((finding.id.as_str(), put(&finding, "count")), ("nic-pause/mlx5_0/1/symbol_error", "5".to_owned()));
    let finding = one(grows(rdma("4: ACTIVE"), "hw_counters/out_of_sequence", "0", "1").says(31));
    assert_eq!(finding.text.key, "nics.rdma-lost");
    assert_eq!(key(grows(rdma("4: ACTIVE"), "counters/symbol_error", "8", "8").says(31)), "nics.rdma-fine");
    assert_eq!(rdma("4: ACTIVE").says(31), Verdict::NotHere);
    assert_eq!(grows(rdma("4: ACTIVE"), "counters/symbol_error", "3", "").says(31), Verdict::NotHere);
}

#[test]
fn a_port_that_waits_to_send_is_told_by_its_share_and_one_without_a_subnet_manager_by_its_state() {
    let waits = |waited| {
        let tree = grows(rdma("4: ACTIVE"), "counters/port_xmit_data", "0", "880");
        grows(tree, "counters/port_xmit_wait", "0", waited)
    };
    assert_eq!(put(&one(waits("120").says(31)), "percent"), "12");
    assert_eq!(key(waits("20").says(31)), "nics.rdma-fine");
    assert_eq!(one(rdma("2: INIT").says(31)).id, "nic-pause/mlx5_0/1/state");
    assert_eq!(rdma("1: DOWN").says(31), Verdict::NotHere);
}
