//! Tests of what makes demand of a link, and what does not.

use super::*;

#[test]
fn a_controller_without_disks_wants_nothing_and_a_disk_with_two_ports_is_one() {
    // Its link runs narrower than it can; nothing is lost by that.
    let narrow = |driver| found(hba_of(driver, ((8.0, 1), (8.0, 8)), 0, false).says(1))[0].severity;
    assert_eq!((narrow("ahci"), narrow("vfio-pci")), (Severity::Note, Severity::Error));
    // Beside a disk, below one uplink, it shares nothing of it.
    let way = "0000:00:03.0/0000:08:00.0";
    let mut tree = Tree::new().node(0, "0-3", 16).pci("0000:00:03.0", 0x060400, 0).pci(way, 0x060400, 0);
    tree = tree.pci_link("0000:00:03.0", (8.0, 4), (8.0, 4)).pci_link("0000:08:00.0", (8.0, 4), (8.0, 4));
    for (port, card, class) in [("0000:09:00.0", "0000:0a:00.0", 0x010802), ("0000:09:01.0", CARD, 0x010601)] {
        let below = format!("{way}/{port}");
        tree = tree.pci(&below, 0x060400, 0).pci(&format!("{below}/{card}"), class, 0);
        tree = tree.pci_link(port, (8.0, 4), (8.0, 4)).pci_link(card, (8.0, 4), (8.0, 4));
    }
    let with = tree.driver("0000:0a:00.0", "nvme").driver(CARD, "ahci").disk("nvme0n1", "0000:0a:00.0", 9);
    assert_eq!(key(&with.says(2)), "pcie.slots-even");
    // Each disk of a shelf is shown by both of the ways to it.
    let twice = ["sda", "sdb", "sdc", "sdd"].into_iter().zip(["a", "a", "b", "b"]);
    let tree = twice.fold(hba(at(8.0, 1), 4, false), |tree, (name, id)| {
        tree.file(&format!("/sys/block/{name}/device/wwid"), &format!("naa.{id}"))
    });
    let wanted = found(tree.says(2))[0].number.clone().map(|number| (number.could_be / 1e7).round());
    assert_eq!(wanted, Some(110.0));
}

#[test]
fn sata_controllers_in_amds_processors_have_no_link_of_their_own() {
    let tree = hba(((8.0, 1), (8.0, 16)), 4, false).pci_id(CARD, 0x1022, 0x7901);
    let Verdict::Fine(fine) = tree.says(2) else { panic!("fine") };
    assert!(fine.with[0].1.starts_with("eth0"), "{fine:?}");
    assert!(matches!(tree.says(1), Verdict::Fine(_)));
}

#[test]
fn what_a_graphics_card_shows_inside_of_itself_is_not_judged_and_idle_uplinks_are_taken_at_their_best() {
    let way = "0000:00:01.0/0000:02:00.0/0000:03:04.0/0000:04:00.0";
    let card = |class: u32, uplink: ((f64, u32), (f64, u32))| {
        let tree = Tree::new().node(0, "0-1", 4).pci("0000:00:01.0", 0x060400, 0);
        let tree = tree.pci(&way[..25], 0x060400, 0).pci(&way[..38], 0x060400, 0).pci(way, class, 0);
        tree.pci_link("0000:00:01.0", uplink.0, uplink.1)
            .pci_link("0000:02:00.0", uplink.0, uplink.1)
            .pci_link("0000:03:04.0", (16.0, 16), (16.0, 16))
            .pci_link("0000:04:00.0", (16.0, 16), (16.0, 16))
    };
    let narrow = ((16.0, 4), (16.0, 4));
    assert_eq!(card(0x030000, narrow).says(2), Verdict::NotHere);
    let other = card(0x030000, narrow).pci_id("0000:04:00.0", 0x10de, 0x102d);
    assert_eq!(key(&other.says(2)), "pcie.uplink-one");
    let disk = |uplink| card(0x010802, uplink).disk("nvme0n1", "0000:04:00.0", 100);
    assert_eq!(key(&disk(narrow).says(2)), "pcie.uplink-one");
    assert_eq!(key(&disk(((2.5, 16), (16.0, 16))).says(2)), "pcie.slots-even");
}
