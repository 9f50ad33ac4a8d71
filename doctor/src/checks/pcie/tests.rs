//! Of checks 1 to 7, over built hosts.

use super::super::super::fixture::{Examined, Tree};
use super::super::expect::{key, of_verdict as found};
use super::*;
use forebay_host::topology::Payload;

mod demand;

const ROOT: &str = "0000:00:01.0";
const CARD: &str = "0000:06:00.0";
const AT_128: Payload = Payload { set: 128, supported: 256, read_request: 512 };
const AT_256: Payload = Payload { set: 256, supported: 256, read_request: 512 };

/// A network card below a root port.
fn card_at(port: ((f64, u32), (f64, u32)), card: ((f64, u32), (f64, u32))) -> Tree {
    Tree::new()
        .node(0, "0-3", 16)
        .pci(ROOT, 0x060400, 0)
        .pci(&format!("{ROOT}/{CARD}"), 0x020000, 0)
        .pci_link(ROOT, port.0, port.1)
        .pci_link(CARD, card.0, card.1)
}

#[test]
fn a_card_that_trained_half_of_the_lanes_that_card_and_slot_have_is_degraded() {
    let tree = card_at(((8.0, 4), (8.0, 16)), ((8.0, 4), (8.0, 8))).nic("ens1", CARD, 40_000);
    let [finding] = &found(tree.says(1))[..] else { panic!("one") };
    assert_eq!((finding.id.as_str(), finding.severity), ("pcie-link/0000:06:00.0", Severity::Warning));
    let number = finding.number.clone().expect("a number");
    assert_eq!((number.is.round(), number.could_be.round()), (3_938_461_538.0, 7_876_923_077.0));
    let shown = Evidence::new("/sys/bus/pci/devices/0000:06:00.0/current_link_width", 4);
    assert!(finding.evidence.contains(&shown));
    assert!(finding.evidence.iter().any(|evidence| evidence.source.contains(ROOT)));
}

#[test]
fn one_lane_of_eight_that_the_line_needs_is_an_error_and_one_that_it_does_not_need_a_note() {
    let tree = |mbits| card_at(((8.0, 1), (8.0, 16)), ((8.0, 1), (8.0, 8))).nic("ens1", CARD, mbits);
    assert_eq!(found(tree(25_000).says(1))[0].severity, Severity::Error);
    assert_eq!(found(tree(1000).says(1))[0].severity, Severity::Note);
}

#[test]
fn a_slower_link_is_told_with_less_confidence_because_it_may_sleep() {
    let tree = card_at(((2.5, 8), (8.0, 8)), ((2.5, 8), (8.0, 8))).nic("ens1", CARD, 100_000);
    let finding = &found(tree.says(1))[0];
    assert_eq!((finding.confidence, finding.severity), (Confidence::Likely, Severity::Warning));
    let tree = tree.file(&format!("/sys/bus/pci/devices/{CARD}/power/runtime_status"), "suspended");
    assert_eq!(tree.says(1), Verdict::NotHere);
}

#[test]
fn a_controller_on_the_die_with_a_made_up_link_is_not_degraded() {
    let tree = || card_at(((2.5, 1), (8.0, 1)), ((2.5, 1), (8.0, 1))).nic("eno1", CARD, 10_000);
    assert_eq!(key(&tree().says(1)), "pcie.slow");
    // X722.
    assert_eq!(tree().pci_id(CARD, 0x8086, 0x37d0).says(1), Verdict::NotHere);
    assert_eq!(tree().pci_id(CARD, 0x8086, 0x37d0).says(2), Verdict::NotHere);
    // An integrated endpoint of the root complex, whoever made it.
    assert_eq!(tree().pci_config(CARD, 9, AT_256).says(1), Verdict::NotHere);
}

#[test]
fn a_port_wider_than_its_card_is_not_degraded() {
    let tree = card_at(((8.0, 4), (16.0, 16)), ((8.0, 4), (8.0, 4))).nic("ens1", CARD, 10_000);
    assert_eq!(key(&tree.says(1)), "pcie.links-fine");
}

#[test]
fn links_in_a_virtual_machine_are_the_hypervisors() {
    let tree = card_at(((2.5, 1), (16.0, 16)), ((2.5, 1), (8.0, 4))).nic("ens1", CARD, 25_000).virtual_machine();
    assert_eq!(key(&tree.says(1)), "pcie.ask-hypervisor");
    assert_eq!([tree.says(2), tree.says(3), tree.says(5)], [Verdict::NotHere, Verdict::NotHere, Verdict::NotHere]);
    let tree = card_at(((2.5, 1), (2.5, 1)), ((2.5, 1), (2.5, 1))).virtual_machine();
    assert_eq!(tree.says(1), Verdict::NotHere);
}

#[test]
fn ends_whose_maximum_is_absent_or_hidden_are_not_judged() {
    let at = |address: &str, name: &str| format!("/sys/bus/pci/devices/{address}/{name}");
    let tree = || Tree::new().node(0, "0", 1).pci(ROOT, 0x060400, 0).pci(&format!("{ROOT}/{CARD}"), 0x020000, 0);
    assert_eq!(tree().says(1), Verdict::NotHere);
    let half = || tree().file(&at(CARD, "current_link_speed"), "8 GT/s").file(&at(CARD, "current_link_width"), "4");
    assert_eq!(half().says(1), Verdict::NotHere);
    let hidden = half().hidden(&at(CARD, "max_link_width")).hidden(&at(CARD, "max_link_speed"));
    assert_eq!(hidden.says(1), Verdict::NotHere);
    assert_eq!(Tree::new().says(1), Verdict::NotHere);
}

#[test]
fn the_link_between_a_switch_and_the_root_port_is_judged_and_none_is_inside_the_switch() {
    let way = "0000:00:01.0/0000:02:00.0/0000:03:04.0/0000:04:00.0";
    let tree = |uplink: (f64, u32)| {
        let tree = Tree::new().node(0, "0-1", 4).pci("0000:00:01.0", 0x060400, 0);
        let tree = tree.pci(&way[..25], 0x060400, 0).pci(&way[..38], 0x060400, 0).pci(way, 0x010802, 0);
        tree.pci_link("0000:00:01.0", uplink, (8.0, 16))
            .pci_link("0000:02:00.0", uplink, (8.0, 16))
            .pci_link("0000:03:04.0", (8.0, 4), (8.0, 4))
            .pci_link("0000:04:00.0", (8.0, 4), (8.0, 4))
            .disk("nvme0n1", "0000:04:00.0", 100)
    };
    let Verdict::Fine(fine) = tree((8.0, 16)).says(1) else { panic!("fine") };
    assert_eq!(fine.with[0], ("links".to_owned(), "2".to_owned()));
    assert_eq!(found(tree((8.0, 8)).says(1))[0].id, "pcie-link/0000:02:00.0");
    // One disk of four lanes wants less than the uplink carries.
    assert_eq!(key(&tree((8.0, 8)).says(2)), "pcie.slots-even");
}

/// An adapter with two ports of InfiniBand in a slot of PCIe 2.0 x8.
fn qdr(payload: Payload) -> Tree {
    let link = ((5.0, 8), (5.0, 8));
    card_at(link, link)
        .pci_config(ROOT, 4, payload)
        .pci_config(CARD, 0, payload)
        .rdma("mlx4_0", 1, CARD, "40 Gb/sec (4X QDR)", "4: ACTIVE", "InfiniBand")
        .rdma("mlx4_0", 2, CARD, "40 Gb/sec (4X QDR)", "4: ACTIVE", "InfiniBand")
}

#[test]
fn two_qdr_ports_share_a_slot_that_carries_less_than_one_of_them() {
    let [finding] = &found(qdr(AT_128).says(2))[..] else { panic!("one") };
    assert_eq!((finding.id.as_str(), finding.severity), ("pcie-slot/0000:06:00.0", Severity::Warning));
    let number = finding.number.clone().expect("a number");
    assert_eq!((number.is / 1e7).round(), 337.0);
    assert_eq!(number.could_be, 8e9);
    assert!(finding.evidence.contains(&Evidence::new(format!("/sys/bus/pci/devices/{CARD}/config"), "MPS 128")));
}

#[test]
fn a_card_with_a_port_of_each_kind_wants_what_both_carry() {
    let link = ((5.0, 8), (5.0, 8));
    let tree = card_at(link, link)
        .pci_config(ROOT, 4, AT_128)
        .pci_config(CARD, 0, AT_128)
        .rdma("mlx4_0", 1, CARD, "40 Gb/sec (4X QDR)", "4: ACTIVE", "InfiniBand")
        .rdma("mlx4_0", 2, CARD, "10 Gb/sec (1X QDR)", "4: ACTIVE", "Ethernet")
        .nic("ib0", CARD, 40_000)
        .file("/sys/class/net/ib0/type", "32")
        .file("/sys/class/net/ib0/dev_port", "0")
        .nic("eth1", CARD, 10_000)
        .file("/sys/class/net/eth1/dev_port", "1")
        .file("/sys/bus/pci/slots/4/address", "0000:06:00");
    let finding = found(tree.says(2)).remove(0);
    assert_eq!(finding.number.as_ref().map(|number| number.could_be), Some(5.25e9), "4 and 1.25 GB/s");
    let device = finding.text.with.iter().find(|(name, _)| name == "device").map(|(_, value)| value.as_str());
    assert_eq!(device, Some("eth1, ib0, mlx4_0 (0000:06:00.0, Physical Slot: 4)"));
    let labelled = tree.file(&format!("/sys/bus/pci/devices/{CARD}/label"), "Onboard 1");
    assert!(format!("{:?}", found(labelled.says(2))).contains("Physical Slot: 4)"), "a slot says where to reach");
}

#[test]
fn two_lines_that_only_together_are_too_much_are_a_note() {
    let link = ((8.0, 8), (8.0, 8));
    let tree = card_at(link, link).nic("ens1f0", CARD, 40_000).nic("ens1f1", CARD, 40_000);
    assert_eq!(found(tree.says(2))[0].severity, Severity::Note);
    let tree = card_at(link, link).nic("ens1f0", CARD, 25_000).nic("ens1f1", CARD, 25_000);
    assert_eq!(key(&tree.says(2)), "pcie.slots-fine");
}

#[test]
fn virtual_functions_and_ports_that_are_down_want_nothing() {
    let link = ((8.0, 4), (8.0, 4));
    let tree = card_at(link, link).nic("ens1", CARD, 25_000);
    let tree = tree
        .pci(&format!("{ROOT}/0000:06:00.1"), 0x020000, 0)
        .nic("ens1v0", "0000:06:00.1", 25_000)
        .link("/sys/bus/pci/devices/0000:06:00.1/physfn", "../0000:06:00.0")
        .nic("ens1_0", CARD, 25_000)
        .file("/sys/class/net/ens1_0/phys_port_name", "pf0vf0")
        .nic("ens2", CARD, 25_000)
        .file("/sys/class/net/ens2/carrier", "0");
    let Verdict::Fine(fine) = tree.says(2) else { panic!("fine") };
    assert!(fine.with.contains(&("wanted".to_owned(), "3.1 GB/s".to_owned())), "{fine:?}");
    let port = |tree: Tree, device: &str, address: &str| {
        tree.rdma(device, 1, address, "40 Gb/sec (4X QDR)", "4: ACTIVE", "InfiniBand")
    };
    let own = card_at(link, link).pci(&format!("{ROOT}/0000:06:00.1"), 0x020700, 0);
    let both = port(port(own, "mlx5_0", CARD), "mlx5_1", "0000:06:00.1");
    assert_eq!(found(both.says(2))[0].number.as_ref().map(|number| number.could_be), Some(8e9));
    let one = both.link("/sys/bus/pci/devices/0000:06:00.1/physfn", "../0000:06:00.0");
    assert_eq!(key(&one.says(2)), "pcie.slots-even", "4 of 3.8 GB/s");
}

#[test]
fn cards_behind_a_switch_can_want_more_than_the_link_above_it() {
    let mut tree = Tree::new()
        .node(0, "0-1", 4)
        .pci("0000:00:01.0", 0x060400, 0)
        .pci("0000:00:01.0/0000:02:00.0", 0x060400, 0)
        .pci_link("0000:02:00.0", (8.0, 8), (8.0, 8));
    for disk in 1..=4 {
        let (port, address) = (format!("0000:03:0{disk}.0"), format!("0000:0{}:00.0", disk + 3));
        let below = format!("0000:00:01.0/0000:02:00.0/{port}");
        tree = tree
            .pci(&below, 0x060400, 0)
            .pci(&format!("{below}/{address}"), 0x010802, 0)
            .pci_link(&port, (8.0, 4), (8.0, 4))
            .pci_link(&address, (8.0, 4), (8.0, 4));
    }
    let [finding] = &found(tree.says(2))[..] else { panic!("one") };
    assert_eq!((finding.text.key.as_str(), finding.severity), ("pcie.uplink-narrow", Severity::Note));
    assert_eq!(finding.id, "pcie-slot/0000:02:00.0");
}

/// Of speed and lanes of one end: now as at most.
fn at(speed: f64, lanes: u32) -> ((f64, u32), (f64, u32)) {
    ((speed, lanes), (speed, lanes))
}

/// An NVMe disk below a root port: what the port can, and what the disk can.
fn nvme_in(slot: (f64, u32), disk: (f64, u32)) -> Tree {
    let now = (slot.0.min(disk.0), slot.1.min(disk.1));
    Tree::new()
        .node(0, "0-3", 16)
        .pci(ROOT, 0x060400, 0)
        .pci(&format!("{ROOT}/{CARD}"), 0x010802, 0)
        .pci_link(ROOT, now, slot)
        .pci_link(CARD, now, disk)
        .driver(CARD, "nvme")
        .disk("nvme0n1", CARD, 1000)
}

#[test]
fn an_nvme_disk_in_a_slot_that_gives_an_eighth_is_told_and_one_generation_is_a_note() {
    let [finding] = &found(nvme_in((8.0, 1), (16.0, 4)).says(2))[..] else { panic!("one") };
    assert_eq!((finding.id.as_str(), finding.severity), ("pcie-slot/0000:06:00.0", Severity::Warning));
    let number = finding.number.clone().expect("a number");
    assert!((number.could_be / number.is - 8.0).abs() < 1e-9 && (number.is / 1e8).round() == 9.0, "{number:?}");
    assert!(finding.evidence.contains(&Evidence::new(format!("/sys/bus/pci/devices/{CARD}/max_link_width"), 4)));
    assert!(finding.evidence.contains(&Evidence::new(format!("/sys/bus/pci/devices/{ROOT}/max_link_width"), 1)));
    for (slot, disk, severity) in [
        ((8.0, 4), (16.0, 4), Some(Severity::Note)),
        ((8.0, 2), (8.0, 4), Some(Severity::Note)),
        ((8.0, 2), (16.0, 4), Some(Severity::Warning)),
        ((16.0, 4), (16.0, 4), None),
        ((32.0, 16), (16.0, 4), None),
    ] {
        match (nvme_in(slot, disk).says(2), severity) {
            (Verdict::Found(found), Some(severity)) => assert_eq!(found[0].severity, severity, "{slot:?} {disk:?}"),
            (verdict, None) => assert_eq!(key(&verdict), "pcie.slots-even", "{slot:?} {disk:?}"),
            (verdict, _) => panic!("{slot:?} {disk:?}: {verdict:?}"),
        }
    }
}

#[test]
fn what_a_disk_has_of_its_slot_is_judged_by_what_both_can_and_not_at_all_where_one_does_not_say() {
    // The link has slowed down while the disk has nothing to do.
    let slow = nvme_in((16.0, 4), (16.0, 4)).pci_link(ROOT, (2.5, 4), (16.0, 4)).pci_link(CARD, (2.5, 4), (16.0, 4));
    assert_eq!(key(&slow.says(2)), "pcie.slots-even");
    let at = |address: &str, name: &str| format!("/sys/bus/pci/devices/{address}/{name}");
    let hidden = Tree::new()
        .pci(ROOT, 0x060400, 0)
        .pci(&format!("{ROOT}/{CARD}"), 0x010802, 0)
        .file(&at(CARD, "current_link_speed"), "2.5 GT/s")
        .file(&at(CARD, "current_link_width"), "1")
        .hidden(&at(CARD, "max_link_speed"));
    assert_eq!(hidden.says(2), Verdict::NotHere);
    assert!(matches!(hidden.disk("nvme0n1", CARD, 9).says(2), Verdict::NotSeen { .. }));
    assert_eq!(nvme_in((8.0, 1), (16.0, 4)).virtual_machine().says(2), Verdict::NotHere);
    // In a case at Thunderbolt, whose ports say 2.5 GT/s whatever they carry.
    let outside = nvme_in((2.5, 4), (8.0, 4)).file(&at(CARD, "removable"), "removable");
    assert_eq!(outside.says(2), Verdict::NotHere);
}

#[test]
fn a_disk_is_named_with_its_model() {
    let tree = nvme_in((8.0, 1), (16.0, 4)).file("/sys/block/nvme0n1/device/model", "Samsung SSD 980 PRO 1TB   ");
    let text = &found(tree.says(2))[0].text;
    let name = "nvme0n1 (Samsung SSD 980 PRO 1TB, 0000:06:00.0)".to_owned();
    assert!(text.with.contains(&("device".to_owned(), name)), "{text:?}");
}

/// A SATA controller with so many disks, beside a card of 2.5 Gbit/s whose slot has room.
fn hba(link: ((f64, u32), (f64, u32)), disks: u32, rotational: bool) -> Tree {
    hba_of("ahci", link, disks, rotational)
}

fn hba_of(driver: &str, link: ((f64, u32), (f64, u32)), disks: u32, rotational: bool) -> Tree {
    let tree = Tree::new()
        .node(0, "0-3", 16)
        .pci(ROOT, 0x060400, 0)
        .pci(&format!("{ROOT}/{CARD}"), 0x010601, 0)
        .driver(CARD, driver)
        .pci_link(ROOT, link.0, link.1)
        .pci_link(CARD, link.0, link.1)
        .pci("0000:00:02.0", 0x060400, 0)
        .pci("0000:00:02.0/0000:07:00.0", 0x020000, 0)
        .pci_link("0000:00:02.0", (5.0, 1), (5.0, 1))
        .pci_link("0000:07:00.0", (5.0, 1), (5.0, 1))
        .nic("eth0", "0000:07:00.0", 2500);
    (1..=disks).fold(tree, |tree, port| {
        let name = format!("sd{}", char::from(b'a' + port as u8 - 1));
        let kind = u8::from(rotational).to_string();
        tree.sata(&name, CARD, port, "6.0 Gbps").file(&format!("/sys/block/{name}/queue/rotational"), &kind)
    })
}

#[test]
fn ssds_behind_one_lane_are_told_and_a_few_spinning_disks_behind_an_old_slot_are_not() {
    let [finding] = &found(hba(at(8.0, 1), 4, false).says(2))[..] else { panic!("one") };
    assert_eq!((finding.text.key.as_str(), finding.severity), ("pcie.slot-disks", Severity::Warning));
    assert_eq!(finding.confidence, Confidence::Likely);
    assert!(finding.evidence.contains(&Evidence::new("/sys/class/ata_link/link1/sata_spd", "6.0 Gbps")));
    assert_eq!(finding.number.clone().map(|number| (number.could_be / 1e7).round()), Some(221.0));
    assert_eq!(found(hba(at(8.0, 1), 3, false).says(2))[0].severity, Severity::Note);
    for (link, disks, rotational) in
        [(at(2.5, 8), 8, true), (at(8.0, 1), 4, true), (at(8.0, 1), 1, false), (at(5.0, 4), 3, false)]
    {
        let says = hba(link, disks, rotational).says(2);
        assert!(matches!(says, Verdict::Fine(_)), "{link:?} {disks} {rotational}: {says:?}");
    }
    assert_eq!(found(hba(at(2.5, 1), 4, true).says(2))[0].severity, Severity::Note);
    let Verdict::Fine(fine) = hba(at(5.0, 4), 3, false).says(2) else { panic!("fine") };
    assert!(fine.with[0].1.starts_with("sda, sdb, sdc ("), "the tightest is the controller's: {fine:?}");
    assert_eq!(hba(at(8.0, 1), 4, false).virtual_machine().says(2), Verdict::NotHere);
}

#[test]
fn what_no_file_tells_of_a_controllers_disks_is_not_seen() {
    let Verdict::NotSeen { what, how } = hba_of("megaraid_sas", at(8.0, 1), 4, false).says(2) else {
        panic!("not seen")
    };
    assert_eq!((what.as_str(), how.key.as_str()), ("sda, sdb, sdc, sdd (0000:06:00.0)", "pcie.slot-untold"));
    // Lines that cannot be read: what the kind moves.
    let hidden = (1..=4).fold(hba(at(8.0, 1), 0, false), |tree, port| {
        tree.sata(["sda", "sdb", "sdc", "sdd"][port as usize - 1], CARD, port, "")
            .hidden(&format!("/sys/class/ata_link/link{port}/sata_spd"))
    });
    assert_eq!(found(hidden.says(2))[0].severity, Severity::Warning);
    // Without disks a controller wants nothing.
    let Verdict::Fine(fine) = hba(at(8.0, 1), 0, false).says(2) else { panic!("fine") };
    assert!(fine.with[0].1.starts_with("eth0"));
}

#[test]
fn a_controller_whose_disks_fit_through_what_is_left_of_its_lanes_is_a_note() {
    let tree = hba(((8.0, 1), (8.0, 8)), 1, false);
    assert_eq!(found(tree.says(1))[0].severity, Severity::Note);
    assert_eq!(found(hba(((8.0, 1), (8.0, 8)), 4, false).says(1))[0].severity, Severity::Error);
}

#[test]
fn disks_behind_an_adapter_of_one_lane_are_told_by_the_link_above_it() {
    let way = "0000:00:01.0/0000:02:00.0/0000:03:04.0/0000:04:00.0";
    let tree = Tree::new().node(0, "0-1", 4).pci("0000:00:01.0", 0x060400, 0);
    let tree = tree
        .pci(&way[..25], 0x060400, 0)
        .pci(&way[..38], 0x060400, 0)
        .pci(way, 0x010802, 0)
        .pci_link("0000:00:01.0", (8.0, 1), (8.0, 1))
        .pci_link("0000:02:00.0", (8.0, 1), (8.0, 4))
        .pci_link("0000:03:04.0", (8.0, 4), (8.0, 4))
        .pci_link("0000:04:00.0", (8.0, 4), (8.0, 4))
        .disk("nvme0n1", "0000:04:00.0", 100);
    let [finding] = &found(tree.says(2))[..] else { panic!("one") };
    assert_eq!((finding.text.key.as_str(), finding.severity), ("pcie.uplink-one", Severity::Warning));
}

#[test]
fn a_chipset_whose_uplink_all_share_is_a_note_at_most() {
    const CHIPSET: &str = "0000:00:01.2/0000:02:00.2";
    let mut tree = Tree::new()
        .node(0, "0-15", 64)
        .pci("0000:00:01.2", 0x060400, 0)
        .pci("0000:00:01.2/0000:02:00.0", 0x0c0330, 0)
        .pci("0000:00:01.2/0000:02:00.1", 0x010601, 0)
        .pci(CHIPSET, 0x060400, 0)
        .driver("0000:02:00.1", "ahci")
        .pci_link("0000:00:01.2", (8.0, 4), (8.0, 4));
    for function in ["0000:02:00.0", "0000:02:00.1", "0000:02:00.2"] {
        tree = tree.pci_link(function, (8.0, 4), (8.0, 4));
    }
    for (port, card, class, end) in
        [("0000:03:00.0", "0000:04:00.0", 0x010802, (8.0, 4)), ("0000:03:01.0", "0000:05:00.0", 0x020000, (5.0, 1))]
    {
        let below = format!("{CHIPSET}/{port}");
        let tree_with_port = tree.pci(&below, 0x060400, 0).pci_link(port, end, end);
        tree = tree_with_port.pci(&format!("{below}/{card}"), class, 0).pci_link(card, end, end);
    }
    let tree = tree.disk("nvme0n1", "0000:04:00.0", 1000).nic("eth0", "0000:05:00.0", 2500);
    let disks = |tree: Tree, count: u32| {
        (1..=count).fold(tree, |tree, port| tree.sata(&format!("sd{port}"), "0000:02:00.1", port, "6.0 Gbps"))
    };
    assert!(matches!(tree.says(1), Verdict::Fine(_)));
    let [finding] = &found(disks(tree, 4).says(2))[..] else { panic!("one") };
    assert_eq!((finding.text.key.as_str(), finding.severity), ("pcie.uplink-narrow", Severity::Note));
}

#[test]
fn packets_of_128_bytes_on_a_way_that_can_do_more_cost_nine_percent() {
    let [finding] = &found(qdr(AT_128).says(3))[..] else { panic!("one") };
    assert_eq!(finding.id, "pcie-payload/size");
    assert!(finding.text.with.contains(&("gain".to_owned(), "9 %".to_owned())));
    assert_eq!(key(&qdr(AT_256).says(3)), "pcie.payload-fine");
    // The port cannot do more: nothing to gain.
    let tree = qdr(AT_128).pci_config(ROOT, 4, Payload { supported: 128, ..AT_128 });
    assert_eq!(key(&tree.says(3)), "pcie.payload-fine");
}

#[test]
fn small_read_requests_are_told_of_fast_lines_only() {
    let tree = |mbits| {
        let link = ((8.0, 8), (8.0, 8));
        let small = Payload { read_request: 128, ..AT_256 };
        card_at(link, link).pci_config(ROOT, 4, AT_256).pci_config(CARD, 0, small).nic("ens1", CARD, mbits)
    };
    assert_eq!(found(tree(25_000).says(3))[0].id, "pcie-payload/0000:06:00.0");
    assert_eq!(key(&tree(10_000).says(3)), "pcie.payload-fine");
}

#[test]
fn sizes_that_only_root_may_read_are_hidden() {
    let tree = qdr(AT_128).cut(&format!("/sys/bus/pci/devices/{CARD}/config"), 64);
    assert_eq!(key(&tree.says(3)), "doctor.as-root");
    // What the slot carries is then taken at best.
    let number = found(tree.says(2))[0].number.clone().expect("a number");
    assert_eq!((number.is / 1e7).round(), 382.0);
    assert_eq!(Tree::new().says(3), Verdict::NotHere);
    assert_eq!(Tree::new().says(2), Verdict::NotHere);
}
