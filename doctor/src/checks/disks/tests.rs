//! Tests of checks 46 to 55, over trees that are built for each.

use crate::checks::expect::{command, fine, found, not_here, not_seen, one, text};
use crate::findings::{Confidence, Evidence, Finding, Severity, Verdict};
use crate::fixture::Tree;

const CARD: &str = "0000:03:00.0";

/// A host with a controller that a driver has.
fn at(driver: &str) -> Tree {
    let class = if driver == "nvme" { 0x010802 } else { 0x010601 };
    Tree::new().node(0, "0-3", 16).pci(CARD, class, 0).driver(CARD, driver)
}

fn spinning(tree: Tree, name: &str) -> Tree {
    tree.file(&format!("/sys/block/{name}/queue/rotational"), "1")
}

/// A disk at SATA: what its link runs at, what the kernel and what the hardware limit it to.
fn linked(now: &str, limit: &str, hardware: &str) -> Tree {
    at("ahci")
        .sata("sda", CARD, 1, now)
        .file("/sys/class/ata_link/link1/sata_spd_limit", limit)
        .file("/sys/class/ata_link/link1/hw_sata_spd_limit", hardware)
}

fn shape(finding: &Finding) -> (&str, Severity, Confidence) {
    (finding.text.key.as_str(), finding.severity, finding.confidence)
}

const NO_LIMIT: &str = "<unknown>";

#[test]
fn a_link_that_the_kernel_has_lowered_is_told() {
    let finding = one(&linked("3.0 Gbps", "3.0 Gbps", NO_LIMIT), 46);
    assert_eq!(shape(&finding), ("disk.line-lowered", Severity::Warning, Confidence::Certain));
    assert!(finding.evidence.contains(&Evidence::new("/sys/class/ata_link/link1/sata_spd_limit", "3.0 Gbps")));
    let number = finding.number.expect("a number");
    assert_eq!((number.is / 1e6, number.could_be / 1e6), (276.0, 552.0));
    assert_eq!(one(&linked("1.5 Gbps", "1.5 Gbps", "6.0 Gbps"), 46).severity, Severity::Warning);
}

#[test]
fn a_line_below_what_its_disk_moves_is_a_note_and_one_that_suffices_is_fine() {
    let finding = one(&linked("3.0 Gbps", NO_LIMIT, NO_LIMIT), 46);
    assert_eq!(shape(&finding), ("disk.line-slow", Severity::Note, Confidence::Likely));
    assert!(text(&finding).starts_with("sda runs at 3 Gb/s, which carries 276.0 MB/s"), "{}", text(&finding));
    // Whoever started the kernel wants it so (libata.force): that is a limit of the hardware, too.
    assert_eq!(one(&linked("3.0 Gbps", "3.0 Gbps", "3.0 Gbps"), 46).text.key, "disk.line-slow");
    fine(&spinning(linked("3.0 Gbps", NO_LIMIT, NO_LIMIT), "sda"), 46);
    assert_eq!(
        fine(&linked("6.0 Gbps", NO_LIMIT, NO_LIMIT), 46),
        "Lines of disks: 1, none of them lowered; the slowest is that of sda, 6 Gb/s."
    );
}

#[test]
fn lines_that_are_hidden_absent_empty_or_a_hypervisors_are_no_finding() {
    let tree = at("ahci").sata("sda", CARD, 1, "").hidden("/sys/class/ata_link/link1/sata_spd");
    assert!(not_seen(&tree, 46).starts_with("/sys/class/ata_link/link1/sata_spd: "));
    not_here(&at("ahci").sata("sda", CARD, 1, ""), 46);
    not_here(&at("ahci").sata("sda", CARD, 1, "<unknown>"), 46);
    // QEMU's controller says 1.5 Gbps.
    not_here(&linked("1.5 Gbps", NO_LIMIT, NO_LIMIT).virtual_machine(), 46);
}

/// Disks behind an expander of a SAS controller, with four lanes to it.
fn expander(lanes: [&str; 4], most: &str, disk: &str) -> Tree {
    let host = format!("/sys/devices/pci0000:03/{CARD}/host0");
    let below = format!("{host}/port-0:0/expander-0:0/port-0:0:1");
    let block = format!("{below}/end_device-0:0:1/target0:0:1/0:0:1:0/block/sda");
    let mut tree = at("mpt3sas")
        .file(&format!("{block}/size"), "1953525168")
        .file(&format!("{block}/queue/rotational"), "0")
        .link("/sys/block/sda", &format!("..{}", &block["/sys".len()..]))
        .file(&format!("{below}/phy-0:0:4/x"), "")
        .file("/sys/class/sas_phy/phy-0:0:4/negotiated_linkrate", disk);
    for (lane, rate) in lanes.iter().enumerate() {
        let class = format!("/sys/class/sas_phy/phy-0:{lane}");
        tree = tree
            .file(&format!("{host}/port-0:0/phy-0:{lane}/x"), "")
            .file(&format!("{class}/negotiated_linkrate"), rate)
            .file(&format!("{class}/maximum_linkrate"), most)
            .file(&format!("{class}/maximum_linkrate_hw"), "12.0 Gbit");
    }
    tree
}

#[test]
fn lanes_of_sas_that_differ_or_are_set_lower_are_told() {
    const ALL: [&str; 4] = ["12.0 Gbit"; 4];
    assert!(fine(&expander(ALL, "12.0 Gbit", "6.0 Gbit"), 46).starts_with("Lines of disks: 2, "));
    // An expander of 6 Gb/s at a newer controller.
    fine(&expander(["6.0 Gbit"; 4], "12.0 Gbit", "6.0 Gbit"), 46);
    let finding = one(&expander(["12.0 Gbit", "12.0 Gbit", "3.0 Gbit", "12.0 Gbit"], "12.0 Gbit", "12.0 Gbit"), 46);
    assert_eq!(shape(&finding), ("disk.lanes-differ", Severity::Warning, Confidence::Certain));
    assert_eq!(finding.id, "disk-line/port-0:0");
    assert!(finding.evidence.contains(&Evidence::new("/sys/class/sas_phy/phy-0:2/negotiated_linkrate", "3.0 Gbit")));
    let finding = one(&expander(["6.0 Gbit"; 4], "6.0 Gbit", "6.0 Gbit"), 46);
    assert_eq!(shape(&finding), ("disk.lane-set", Severity::Note, Confidence::Likely));
    assert_eq!(one(&expander(ALL, "12.0 Gbit", "3.0 Gbit"), 46).text.key, "disk.line-slow");
    // The other end is slower than the limit, which so holds nothing back.
    fine(&expander(["3.0 Gbit"; 4], "6.0 Gbit", "6.0 Gbit"), 46);
    // A disk at SATA ends where the limit is; one at SAS does not.
    let lane = "/sys/class/sas_phy/phy-0:0:4";
    for (vendor, told) in [("ATA     ", false), ("SEAGATE ", true)] {
        let tree = expander(ALL, "12.0 Gbit", "6.0 Gbit")
            .file("/sys/block/sda/device/vendor", vendor)
            .file(&format!("{lane}/maximum_linkrate"), "6.0 Gbit")
            .file(&format!("{lane}/maximum_linkrate_hw"), "12.0 Gbit");
        match told {
            true => assert_eq!(one(&tree, 46).text.key, "disk.lane-set"),
            false => assert!(fine(&tree, 46).contains("6 Gb/s")),
        }
    }
    // A lane that leads nowhere is not in use.
    fine(&expander(["12.0 Gbit", "12.0 Gbit", "Phy disabled", "Unknown"], "12.0 Gbit", "12.0 Gbit"), 46);
}

fn md(state: &str, degraded: &str, action: &str) -> Tree {
    let at = |file: &str| format!("/sys/block/md0/md/{file}");
    Tree::new()
        .disk("md0", "", 4000)
        .file(&at("array_state"), state)
        .file(&at("raid_disks"), "4")
        .file(&at("degraded"), degraded)
        .file(&at("sync_action"), action)
        .file(&at("sync_completed"), "1000000 / 4000000")
        .file(&at("sync_speed"), "196000")
        .file(&at("sync_speed_max"), "200000 (system)")
}

#[test]
fn arrays_that_lack_disks_or_are_rebuilt_or_held_back_are_told() {
    assert_eq!(fine(&md("clean", "0", "idle"), 47), "Arrays (md): 1, none of which lacks a disk or is being rebuilt.");
    let finding = one(&md("active", "1", "idle"), 47);
    assert_eq!((finding.id.as_str(), finding.severity), ("md-array/md0", Severity::Error));
    assert_eq!(finding.evidence[0], Evidence::new("/sys/block/md0/md/degraded", 1));
    assert!(text(&finding).starts_with("The array md0 lacks 1 of its 4 disks"));
    let both = found(&md("active", "1", "recover"), 47);
    assert_eq!(
        both.iter().map(|finding| finding.text.key.as_str()).collect::<Vec<_>>(),
        ["disk.md-recovers", "disk.md-limit"]
    );
    assert!(text(&both[1]).contains("200.7 MB/s, 25 % done, about 0 minutes left"), "{}", text(&both[1]));
    // Below the limit, or only looked through, nothing is held back.
    let slow = one(&md("active", "0", "resync").file("/sys/block/md0/md/sync_speed", "50000"), 47);
    assert_eq!((slow.text.key.as_str(), slow.remedies.len()), ("disk.md-syncs", 0));
    assert_eq!(one(&md("clean", "0", "check"), 47).text.key, "disk.md-syncs");
    let waits = md("clean", "0", "resync")
        .file("/sys/block/md0/md/sync_completed", "delayed")
        .file("/sys/block/md0/md/sync_speed", "0");
    assert!(text(&one(&waits, 47)).contains("? done, 0 B/s, about ? minutes left"));
    let none = waits.file("/sys/block/md0/md/sync_speed", "none");
    assert!(text(&one(&none, 47)).contains("? done, ?, about ? minutes left"), "{}", text(&one(&none, 47)));
    let under = md("active", "0", "resync").file("/sys/block/md0/md/sync_speed", "190000");
    assert_eq!(one(&under, 47).text.key, "disk.md-syncs");
    let limited = one(&md("active", "0", "resync"), 47);
    assert_eq!((limited.confidence, command(&limited).starts_with("sysctl ")), (Confidence::Likely, true));
    let own = one(&md("active", "0", "resync").file("/sys/block/md0/md/sync_speed_max", "200000 (local)"), 47);
    assert_eq!(command(&own), "echo system > /sys/block/mdX/md/sync_speed_max");
    let metadata = |text: &str| md("inactive", "0", "idle").file("/sys/block/md0/md/metadata_version", text);
    not_here(&metadata("external:imsm"), 47);
    for member in ["external:/md127/0", "external:-md127/0"] {
        assert_eq!(one(&metadata(member), 47).text.key, "disk.md-inactive");
    }
    not_here(&md("clear", "0", "idle"), 47);
}

#[test]
fn what_an_array_survives_and_what_helps_follow_from_its_level_and_state() {
    const STOPPED: &str = "disk.md-stopped-remedy";
    const REPLACE: &str = "disk.md-degraded-remedy";
    for (state, level, disks, missing, action, key, severity, remedy) in [
        ("broken", "raid0", 4, 0, "idle", "broken", Severity::Error, STOPPED),
        ("inactive", "raid5", 4, 0, "idle", "inactive", Severity::Error, STOPPED),
        ("clean", "raid5", 4, 2, "idle", "failed", Severity::Error, STOPPED),
        ("clean", "raid6", 6, 3, "recover", "failed", Severity::Error, STOPPED),
        ("clean", "raid5", 4, 1, "idle", "degraded", Severity::Error, REPLACE),
        ("clean", "raid1", 2, 1, "idle", "degraded", Severity::Error, REPLACE),
        ("clean", "raid6", 6, 2, "idle", "degraded", Severity::Error, REPLACE),
        // Two of one pair, or one of each of two pairs: the array runs, so that it was the latter.
        ("clean", "raid10", 4, 2, "idle", "degraded", Severity::Error, REPLACE),
        ("clean", "raid6", 6, 1, "idle", "spare", Severity::Warning, REPLACE),
        ("clean", "raid1", 3, 1, "idle", "spare", Severity::Warning, REPLACE),
        ("clean", "raid5", 4, 1, "recover", "recovers", Severity::Warning, ""),
        ("clean", "unheard", 4, 1, "idle", "degraded", Severity::Error, REPLACE),
    ] {
        let tree = md(state, &missing.to_string(), action)
            .file("/sys/block/md0/md/level", level)
            .file("/sys/block/md0/md/raid_disks", &disks.to_string())
            .file("/sys/block/md0/md/dev-sda1/state", "faulty")
            .file("/sys/block/md0/md/dev-sdb1/state", "in_sync");
        let finding = &found(&tree, 47)[0];
        let says = (finding.text.key.strip_prefix("disk.md-"), finding.severity);
        assert_eq!(says, (Some(key), severity), "{state} {level} {disks} {missing} {action}");
        assert_eq!(finding.remedies.first().map_or("", |remedy| &remedy.what().key), remedy, "{state} {level}");
    }
    // Empty places, of which none has failed, are those of a box with free bays.
    let mirror = md("clean", "10", "idle").file("/sys/block/md0/md/level", "raid1");
    let mirror = mirror.file("/sys/block/md0/md/raid_disks", "12").file("/sys/block/md0/md/dev-sda1/state", "in_sync");
    assert_eq!(shape(&one(&mirror, 47)), ("disk.md-places", Severity::Note, Confidence::Likely));
    let hidden = mirror.hidden("/sys/block/md0/md/dev-sdb1/state");
    assert_eq!(one(&hidden, 47).text.key, "disk.md-spare");
}

#[test]
fn arrays_that_are_hidden_absent_or_odd_are_no_finding_and_those_of_a_guest_are_its_own() {
    let hidden = Tree::new().disk("md0", "", 1).hidden("/sys/block/md0/md/array_state");
    assert!(not_seen(&hidden, 47).starts_with("/sys/block/md0/md/array_state: "));
    not_here(&Tree::new(), 47);
    not_here(&Tree::new().disk("md0", "", 1), 47);
    // Of a stranger's record: more than there is, and nonsense.
    let odd = md("clean", "18446744073709551615", "resync").file("/sys/block/md0/md/sync_completed", "9 / 3");
    assert_eq!(found(&odd, 47).len(), 2);
    assert_eq!(one(&md("clean", "2", "idle").virtual_machine(), 47).severity, Severity::Error);
}

#[test]
fn pools_that_are_not_whole_are_told() {
    let pool = |state: &str| Tree::new().file("/proc/spl/kstat/zfs/tank/state", state);
    assert_eq!(fine(&pool("ONLINE"), 48), "ZFS: pools: 1, all of them online.");
    for (state, severity, remedy) in [
        ("DEGRADED", Severity::Error, "disk.zfs-remedy"),
        ("SUSPENDED", Severity::Error, "disk.zfs-path-remedy"),
        ("UNAVAIL", Severity::Error, "disk.zfs-path-remedy"),
        ("FAULTED", Severity::Error, "disk.zfs-look-remedy"),
        ("REMOVED", Severity::Warning, "disk.zfs-look-remedy"),
        ("online", Severity::Warning, "disk.zfs-look-remedy"),
    ] {
        let finding = one(&pool(state).virtual_machine(), 48);
        assert_eq!((finding.id.as_str(), finding.severity), ("zfs-pool/tank", severity));
        assert_eq!(finding.remedies[0].what().key, remedy);
        assert_eq!(finding.evidence, [Evidence::new("/proc/spl/kstat/zfs/tank/state", state)]);
    }
    assert!(
        not_seen(&Tree::new().hidden("/proc/spl/kstat/zfs/tank/state"), 48)
            .starts_with("/proc/spl/kstat/zfs/tank/state: ")
    );
    not_here(&Tree::new().file("/proc/spl/kstat/zfs/arcstats", "x"), 48);
    let other = pool("ONLINE").file("/proc/spl/kstat/zfs/scratch/state", "");
    assert!(not_seen(&other, 48).starts_with("/proc/spl/kstat/zfs/scratch/state: "));
}

#[test]
fn devices_that_btrfs_misses_or_counts_errors_of_are_told() {
    const FOLDER: &str = "/sys/fs/btrfs/5f0a/devinfo/2";
    let device = |missing: &str, errors: &str| {
        let tree = Tree::new().file(&format!("{FOLDER}/missing"), missing).file("/sys/fs/btrfs/features/raid1c34", "0");
        if errors.is_empty() { tree } else { tree.file(&format!("{FOLDER}/error_stats"), errors) }
    };
    const NONE: &str = "write_errs 0\nread_errs 0\nflush_errs 0\ncorruption_errs 0\ngeneration_errs 0\n";
    assert!(fine(&device("0", NONE), 49).ends_with("1; none is missing, and no errors are counted."));
    assert!(fine(&device("0", ""), 49).contains("does not show whether errors were counted"));
    let finding = one(&device("1", NONE), 49);
    assert_eq!((finding.id.as_str(), finding.severity), ("btrfs/5f0a-2", Severity::Error));
    let finding =
        one(&device("0", "write_errs 0\nread_errs 7\ncorruption_errs 18446744073709551615\n").virtual_machine(), 49);
    assert_eq!((finding.text.key.as_str(), finding.severity), ("disk.btrfs-errors", Severity::Warning));
    assert_eq!(finding.evidence[0].source, format!("{FOLDER}/error_stats"));
    assert!(not_seen(&device("0", "").hidden(&format!("{FOLDER}/error_stats")), 49).contains("error_stats: "));
    for (missing, errors) in [
        ("0", "invalid"),
        ("0", "write_errs 0\nread_errs 0\n"),
        ("0", &NONE.replace("flush_errs 0", "flush_errs -")),
        ("x", NONE),
        ("2", NONE),
    ] {
        let file = if missing == "0" { "error_stats" } else { "missing" };
        assert!(not_seen(&device(missing, errors), 49).starts_with(&format!("{FOLDER}/{file}: ")), "{errors}");
    }
    not_here(&Tree::new(), 49);
}

#[test]
fn a_cache_that_is_off_is_a_note_for_disks_and_not_for_arrays_or_guests() {
    let flash =
        |driver: &str, kind: &str| at(driver).sata("sda", CARD, 1, "").file("/sys/block/sda/queue/write_cache", kind);
    let disk = |driver: &str, kind: &str| spinning(flash(driver, kind), "sda");
    let finding = one(&disk("ahci", "write through"), 50);
    assert_eq!(shape(&finding), ("disk.cache-off", Severity::Note, Confidence::Likely));
    assert_eq!(command(&finding), "hdparm -W1 /dev/DISK");
    let sas = one(&disk("ahci", "write through").file("/sys/block/sda/device/vendor", "SEAGATE "), 50);
    assert_eq!(command(&sas), "sdparm --set WCE /dev/DISK");
    not_here(&flash("ahci", "write through"), 50);
    assert_eq!(
        fine(&disk("ahci", "write back"), 50),
        "Write cache: on for all spinning SATA and SAS disks that report it (1)."
    );
    // The disk's own word counts: the queue's may be set to leave out flushes.
    let own = disk("ahci", "write through").file("/sys/block/sda/device/scsi_disk/1:0:0:0/cache_type", "write back");
    fine(&own, 50);
    not_here(&disk("megaraid_sas", "write through"), 50);
    // A volume of a storage network, at an adapter of Fibre Channel; an array that a controller of LSI has made.
    for (class, driver) in [(0x0c0400, "qla2xxx"), (0x010700, "mpt3sas")] {
        let tree = Tree::new().node(0, "0-3", 16).pci(CARD, class, 0).driver(CARD, driver).disk("sda", CARD, 9);
        not_here(&tree.file("/sys/block/sda/queue/write_cache", "write through"), 50);
    }
    not_here(&disk("ahci", "write through").virtual_machine(), 50);
    not_here(&at("nvme").disk("nvme0n1", CARD, 9).file("/sys/block/nvme0n1/queue/write_cache", "write through"), 50);
    assert!(
        not_seen(&spinning(at("ahci").sata("sda", CARD, 1, ""), "sda").hidden("/sys/block/sda/queue/write_cache"), 50)
            .contains("write_cache: ")
    );
    not_here(&at("ahci").sata("sda", CARD, 1, ""), 50);
}

#[test]
fn one_command_at_a_time_is_told() {
    let disk = |depth: &str| at("ahci").sata("sda", CARD, 1, "").file("/sys/block/sda/device/queue_depth", depth);
    let finding = one(&disk("1"), 51);
    assert_eq!(shape(&finding), ("disk.depth", Severity::Warning, Confidence::Certain));
    assert_eq!(one(&spinning(disk("1"), "sda"), 51).severity, Severity::Note);
    let two = disk("32").sata("sdb", CARD, 2, "").file("/sys/block/sdb/device/queue_depth", "31");
    assert_eq!(fine(&two, 51), "Commands at once: sdb takes the fewest of the disks at SATA and SAS, 31.");
    not_here(&disk("1").virtual_machine(), 51);
    not_here(&at("hpsa").sata("sda", CARD, 1, "").file("/sys/block/sda/device/queue_depth", "1"), 51);
    let hidden = at("ahci").sata("sda", CARD, 1, "").hidden("/sys/block/sda/device/queue_depth");
    assert!(not_seen(&hidden, 51).contains("queue_depth: "));
    not_here(&disk("x"), 51);
}

#[test]
fn zones_are_told_and_disks_that_hide_them_are_not_vouched_for() {
    let disk =
        |zoned: &str| spinning(at("ahci").sata("sda", CARD, 1, ""), "sda").file("/sys/block/sda/queue/zoned", zoned);
    assert_eq!(one(&disk("host-aware"), 52).text.key, "disk.zones-aware");
    let managed = one(&disk("host-managed").file("/sys/block/sda/device/model", "HGST HSH721414AL"), 52);
    assert!(text(&managed).starts_with("sda (HGST HSH721414AL) has zones"), "{}", text(&managed));
    assert!(fine(&disk("none"), 52).contains("drive-managed"));
    not_here(&disk("none").virtual_machine(), 52);
    not_here(&at("ahci").sata("sda", CARD, 1, ""), 52);
    assert!(
        not_seen(&at("ahci").sata("sda", CARD, 1, "").hidden("/sys/block/sda/queue/zoned"), 52).contains("zoned: ")
    );
}

/// A layer above a partition of an NVMe disk; what the disk discards at once, and what the layer does.
fn layer(name: &str, disk: &str, own: &str) -> Tree {
    at("nvme")
        .disk("nvme0n1", CARD, 9)
        .file("/sys/block/nvme0n1/queue/discard_max_bytes", disk)
        .file("/sys/block/nvme0n1/nvme0n1p2/start", "2048")
        .disk(name, "", 8)
        .file(&format!("/sys/block/{name}/queue/discard_max_bytes"), own)
        .file(&format!("/sys/block/{name}/slaves/nvme0n1p2/x"), "")
}

#[test]
fn a_layer_that_keeps_discards_from_its_disks_is_told_once() {
    let crypt = |tree: Tree| {
        tree.file("/sys/block/dm-0/dm/uuid", "CRYPT-LUKS2-00-root").file("/sys/block/dm-0/dm/name", "root")
    };
    let finding = one(&crypt(layer("dm-0", "2199023255040", "0")), 53);
    assert_eq!(shape(&finding), ("disk.discard", Severity::Note, Confidence::Certain));
    assert!(text(&finding).starts_with("dm-0 (root) passes no discards to nvme0n1, "), "{}", text(&finding));
    assert_eq!(finding.remedies[0].what().key, "disk.discard-crypt-remedy");
    assert_eq!(one(&layer("md0", "4096", "0"), 53).remedies[0].what().key, "disk.discard-md-remedy");
    // A volume of LVM above has it from there.
    let above = crypt(layer("dm-0", "4096", "0"))
        .disk("dm-1", "", 7)
        .file("/sys/block/dm-1/queue/discard_max_bytes", "0")
        .file("/sys/block/dm-1/slaves/dm-0/x", "");
    assert_eq!(one(&above, 53).id, "disk-discard/dm-0");
    assert_eq!(
        fine(&layer("dm-0", "4096", "4096"), 53),
        "Discards: all layers above disks that take them pass them on (1)."
    );
    // A disk that takes none, a layer that is never written, one that lies on nothing, a circle.
    not_here(&layer("dm-0", "0", "0"), 53);
    not_here(&layer("dm-0", "4096", "0").file("/sys/block/dm-0/ro", "1"), 53);
    not_here(&Tree::new().disk("dm-0", "", 1).file("/sys/block/dm-0/queue/discard_max_bytes", "0"), 53);
    let circle = Tree::new()
        .disk("dm-0", "", 1)
        .file("/sys/block/dm-0/slaves/dm-0/x", "")
        .file("/sys/block/dm-0/queue/discard_max_bytes", "0");
    not_here(&circle, 53);
    // Of a stranger's record: thousands of names that lead back to where they are.
    const NAMES: usize = 3000;
    let mut hostile = Tree::new().file("/sys/block/dm-0/size", "2048").file("/sys/block/dm-0/slaves/dm-0/x", "");
    for name in 0..NAMES {
        hostile = hostile.link(&format!("/sys/block/dm-0/slaves/a{name}"), "../../dm-0");
        hostile = hostile.link(&format!("/sys/block/a{name}"), "dm-0");
    }
    let host = crate::Host::look(hostile.system());
    let mut below = super::layers::Below::of(&host);
    assert_eq!((below.disks("dm-0"), below.disks("dm-0")), (None, None));
    assert_eq!(one(&layer("dm-0", "4096", "0").virtual_machine(), 53).check, 53);
    let hidden = at("nvme").disk("dm-0", "", 1).disk("nvme0n1", CARD, 9);
    let hidden =
        hidden.file("/sys/block/dm-0/slaves/nvme0n1/x", "").hidden("/sys/block/nvme0n1/queue/discard_max_bytes");
    assert!(not_seen(&hidden, 53).contains("nvme0n1/queue/discard_max_bytes: "));
}

#[test]
fn how_encryption_above_nvme_works_is_not_seen_and_the_command_that_shows_it_is_named() {
    let with = |uuid: &str| layer("dm-0", "0", "0").file("/sys/block/dm-0/dm/uuid", uuid);
    assert_eq!(not_seen(&with("CRYPT-LUKS2-00-root"), 54), "/sys/block/dm-0/dm: dm-0");
    not_here(&with("LVM-00"), 54);
    not_here(&layer("dm-0", "0", "0"), 54);
    assert!(not_seen(&layer("dm-0", "0", "0").hidden("/sys/block/dm-0/dm/uuid"), 54).contains("dm/uuid: "));
    let sata = at("ahci").sata("sda", CARD, 1, "").disk("dm-0", "", 1).file("/sys/block/dm-0/slaves/sda/x", "");
    not_here(&sata.file("/sys/block/dm-0/dm/uuid", "CRYPT-PLAIN-x"), 54);
}

#[test]
fn controllers_of_nvme_that_do_not_answer_are_told() {
    let state = |state: &str| Tree::new().file("/sys/class/nvme/nvme0/state", state);
    assert!(fine(&state("live"), 55).contains("nvme smart-log"));
    assert_eq!(one(&state("dead"), 55).severity, Severity::Error);
    let finding = one(&state("connecting").virtual_machine(), 55);
    assert_eq!((finding.id.as_str(), finding.severity), ("nvme-state/nvme0", Severity::Warning));
    not_here(&state("deleting"), 55);
    // The other path of a disk with two ports, and another disk.
    let beside = |of: &str, subsystem: &str| {
        let tree = state(of).file("/sys/class/nvme-subsystem/nvme-subsys0/nvme0/state", of);
        tree.file(&format!("/sys/class/nvme-subsystem/{subsystem}/nvme1/state"), "live")
    };
    for (of, subsystem, key) in [
        ("dead", "nvme-subsys0", "disk.nvme-path-dead"),
        ("connecting", "nvme-subsys0", "disk.nvme-path-away"),
        ("dead", "nvme-subsys1", "disk.nvme-dead"),
    ] {
        let finding = one(&beside(of, subsystem), 55);
        let severity = if key == "disk.nvme-dead" { Severity::Error } else { Severity::Warning };
        assert_eq!((finding.text.key.as_str(), finding.severity), (key, severity));
    }
    not_here(&Tree::new(), 55);
    assert!(
        not_seen(&Tree::new().hidden("/sys/class/nvme/nvme0/state"), 55).starts_with("/sys/class/nvme/nvme0/state: ")
    );
}

#[test]
fn a_record_says_of_disks_what_the_host_says() {
    let crypt = layer("dm-0", "4096", "0").file("/sys/block/dm-0/dm/uuid", "CRYPT-LUKS2-00-root");
    let trees = [
        md("active", "1", "recover"),
        expander(["12.0 Gbit", "12.0 Gbit", "3.0 Gbit", "12.0 Gbit"], "12.0 Gbit", "12.0 Gbit")
            .file("/sys/block/sda/device/model", "PM1643"),
        linked("3.0 Gbps", "3.0 Gbps", NO_LIMIT).file("/sys/block/sda/queue/write_cache", "write through"),
        crypt.file("/sys/class/nvme/nvme0/state", "live"),
        at("ahci").sata("sda", CARD, 1, "").hidden("/sys/block/sda/queue/zoned"),
    ];
    for tree in trees {
        let (system, recorder) = tree.system().recording();
        let host = crate::Host::look(system);
        let said = host.examine();
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("host.json");
        let record = crate::record::finish(recorder, &host).to_json().expect("JSON");
        std::fs::write(&file, record).expect("written");
        let again = crate::Host::look(forebay_host::system::System::recorded(&file).expect("a record"));
        for ((check, said), (_, recorded)) in said.into_iter().zip(again.examine()) {
            match (said, recorded) {
                // The reason is the same but for where the tree lies.
                (Verdict::NotSeen { .. }, Verdict::NotSeen { .. }) => {}
                (said, recorded) => assert_eq!(said, recorded, "check {}", check.number),
            }
        }
    }
}
