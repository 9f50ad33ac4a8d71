use super::super::expect::{fine, found, not_here, not_seen, one, text};
use super::*;
use crate::fixture::Tree;
use forebay_host::net::{Net, Route, TABLE_MAIN};

const DISK: &str = "0000:03:00.0";

/// A disk that turns, of which a partition is mounted at a place.
fn host() -> Tree {
    Tree::new()
        .node(0, "0-3", 4)
        .pci(DISK, 0x010601, 0)
        .driver(DISK, "ahci")
        .disk("sda", DISK, 4000)
        .file("/sys/block/sda/queue/rotational", "1")
        .file("/sys/block/sda/sda1/partition", "1")
        .link("/sys/class/block/sda1", "../../block/sda/sda1")
        .link("/sys/dev/block/8:1", "../../block/sda/sda1")
}

fn mounted(tree: Tree, kind: &str, options: &str) -> Tree {
    let source = if kind.starts_with("nfs") { "nas:/x 0:40" } else { "/dev/sda1 8:1" };
    let (source, number) = source.split_once(' ').expect("two");
    tree.file(MOUNTS, &format!("22 1 {number} / /srv rw,relatime shared:1 - {kind} {source} {options}\n"))
}

#[test]
fn options_by_which_each_write_waits_or_is_doubled_are_told() {
    for (options, key, severity) in [
        ("rw,sync", "mounts.sync", Severity::Warning),
        ("rw,dirsync", "mounts.dirsync", Severity::Note),
        ("rw,data=journal", "mounts.journal", Severity::Warning),
    ] {
        for tree in [host(), host().virtual_machine()] {
            let finding = one(&mounted(tree, "ext4", options), 59);
            assert_eq!((finding.text.key.as_str(), finding.severity), (key, severity));
            assert!(finding.evidence[0].value.contains(options), "{:?}", finding.evidence);
        }
    }
    let by_default = mounted(host(), "ext4", "rw").file("/proc/fs/ext4/sda1/options", "rw\ndata=journal\n");
    assert_eq!(one(&by_default, 59).evidence[0].source, "/proc/fs/ext4/sda1/options");
    assert!(text(&one(&by_default, 59)).starts_with("/srv (ext4)"));
    for (place, help) in [("/srv/a-1", "mounts.sync-help"), ("/srv/$(reboot)", "mounts.sync-help-name")] {
        let line = format!("22 1 8:1 / {place} rw - ext4 /dev/sda1 rw,sync\n");
        assert_eq!(one(&host().file(MOUNTS, &line), 59).remedies[0].what().key, help);
    }
}

#[test]
fn more_than_is_looked_at_is_not_fine() {
    let many =
        |lines: usize| (0..lines).map(|n| format!("{n} 1 8:1 / /{n} rw - ext4 /dev/sda1 rw\n")).collect::<String>();
    fine(&host().file(MOUNTS, &many(4096)), 59);
    assert_eq!(not_seen(&host().file(MOUNTS, &many(4097)), 59), MOUNTS);
    let exports = "/srv\t*(rw,sync)\n".repeat(257);
    assert_eq!(not_seen(&Tree::new().file(EXPORTS, &exports), 61), EXPORTS);
}

#[test]
fn options_that_cost_nothing_and_file_systems_of_others_are_no_finding() {
    let plain = mounted(host(), "ext4", "rw").file("/proc/fs/ext4/sda1/options", "rw\ndata=ordered\n");
    assert!(fine(&plain, 59).contains('1'));
    not_here(&mounted(host(), "ext4", "ro,sync"), 59);
    not_here(&mounted(host(), "vfat", "rw,sync"), 59);
    not_here(&mounted(host(), "nfs4", "rw,sync"), 59);
    not_here(&Tree::new(), 59);
    assert!(not_seen(&Tree::new().hidden(MOUNTS), 59).starts_with("/proc/self/mountinfo: "));
    let hidden = mounted(host(), "ext4", "rw").hidden("/proc/fs/ext4/sda1/options");
    assert!(not_seen(&hidden, 59).starts_with("/proc/fs/ext4/sda1/options: "));
}

/// A share that is reached by a line.
fn share(mbits: i64, options: &str) -> Tree {
    let route = Route {
        table: TABLE_MAIN,
        to: "10.0.0.0".parse().expect("an address"),
        prefix: 24,
        via: None,
        interfaces: vec!["eth0".to_owned()],
        metric: 0,
    };
    let net = Net { routes: Seen::Is(vec![route]), ..Net::default() };
    let tree = host().pci("0000:01:00.0", 0x020000, 0).nic("eth0", "0000:01:00.0", mbits).net(&net);
    mounted(tree, "nfs4", &format!("rw,{options},addr=10.0.0.2"))
}

#[test]
fn options_of_nfs_that_cost_are_told() {
    for (mbits, options, key) in [
        (1000, "rsize=1048576,wsize=1048576,noac,sync", "mounts.noac"),
        (1000, "rsize=1048576,wsize=1048576,sync", "mounts.nfs-sync"),
        (1000, "acregmin=0,acregmax=0,acdirmin=0,acdirmax=0", "mounts.actimeo"),
        (10_000, "rsize=1048576,wsize=32768", "mounts.nfs-small"),
        (25_000, "rsize=8192,wsize=1048576", "mounts.nfs-small"),
    ] {
        for tree in [share(mbits, options), share(mbits, options).virtual_machine()] {
            assert_eq!(one(&tree, 60).text.key, key);
        }
    }
    let small = one(&share(10_000, "rsize=1048576,wsize=32768"), 60);
    assert!(text(&small).contains("32 KiB") && text(&small).contains("10 Gb/s"), "{}", text(&small));
}

#[test]
fn options_of_nfs_that_cost_nothing_are_fine_and_hidden_ones_are_said_to_be() {
    fine(&share(25_000, "rsize=65536,wsize=1048576,acregmin=0,acregmax=60"), 60);
    // A slow line is filled by small requests, and of an unknown one nothing is said.
    fine(&share(1000, "rsize=32768,wsize=32768"), 60);
    fine(&share(-1, "rsize=32768,wsize=32768"), 60);
    fine(&share(10_000, "rsize=x,wsize=0"), 60);
    not_here(&mounted(host(), "ext4", "rw"), 60);
    not_here(&Tree::new(), 60);
    assert!(not_seen(&Tree::new().hidden(MOUNTS), 60).starts_with("/proc/self/mountinfo: "));
}

fn exported(tree: Tree, options: &str) -> Tree {
    let text =
        format!("# Version 1.1\n# Path Client(Flags) # IPs\n/srv/a\t10.0.0.0/24({options})\n/srv/a\t*({options})\n");
    mounted(tree, "ext4", "rw").file(EXPORTS, &text)
}

#[test]
fn what_sync_costs_on_disks_that_turn_and_what_async_loses_is_told() {
    let lost = one(&exported(host(), "rw,root_squash,async,wdelay"), 61);
    assert_eq!((lost.id.as_str(), lost.severity), ("nfs-export/srv/a/async", Severity::Warning));
    assert_eq!(one(&exported(host().virtual_machine(), "rw,async"), 61).text.key, "mounts.export-async");
    let slow = one(&exported(host(), "rw,sync,wdelay"), 61);
    assert_eq!((slow.id.as_str(), slow.severity), ("nfs-export/srv/a/sync", Severity::Note));
    assert_eq!(slow.evidence[1], Evidence::new("/sys/block/sda/queue/rotational", 1));
    assert!(text(&slow).contains("keeps"), "{}", text(&slow));
}

#[test]
fn sync_on_disks_that_do_not_turn_or_are_not_known_is_fine() {
    fine(&exported(host().file("/sys/block/sda/queue/rotational", "0"), "rw,sync"), 61);
    // What a guest says of its disks' turning is made up, and a controller of arrays has a cache.
    fine(&exported(host().virtual_machine(), "rw,sync"), 61);
    let array = Tree::new().pci(DISK, 0x010400, 0).driver(DISK, "megaraid_sas").disk("sda", DISK, 4000);
    let array = array.file("/sys/block/sda/queue/rotational", "1").link("/sys/dev/block/8:1", "../../block/sda");
    fine(&exported(array, "rw,sync"), 61);
    not_here(&exported(host(), "ro,sync"), 61);
    not_here(&Tree::new(), 61);
    assert!(not_seen(&Tree::new().hidden(EXPORTS), 61).starts_with("/proc/fs/nfsd/exports: "));
    not_here(&Tree::new().file(EXPORTS, "damaged\n/x (\n/y )(\n"), 61);
}

fn filled(used_gib: u64, free_gib: u64, files: u64, free_files: u64) -> Tree {
    let room = Room { used_bytes: used_gib << 30, free_bytes: free_gib << 30, files, free_files };
    let text = format!(
        r#"{{"is":{{"/srv":{{"is":{{"used_bytes":{},"free_bytes":{},"files":{},"free_files":{}}}}}}}}}"#,
        room.used_bytes, room.free_bytes, room.files, room.free_files
    );
    mounted(Tree::new(), "ext4", "rw").file("/forebay/room.json", &text)
}

#[test]
fn full_file_systems_are_told_and_others_are_fine() {
    for tree in [filled(93, 7, 0, 0), filled(93, 7, 0, 0).virtual_machine()] {
        let finding = one(&tree, 62);
        assert_eq!((finding.id.as_str(), finding.severity), ("disk-room/srv/bytes", Severity::Note));
        assert!(text(&finding).contains("93 %") && text(&finding).contains("7.5 GB"), "{}", text(&finding));
    }
    assert_eq!(one(&filled(98, 2, 0, 0), 62).severity, Severity::Warning);
    assert_eq!(one(&filled(50, 50, 1000, 50), 62).id, "disk-room/srv/files");
    assert_eq!(found(&filled(99, 1, 1000, 5), 62).len(), 2);
    assert!(fine(&filled(60, 40, 1000, 500), 62).contains("60 %"));
    // A tenth of 20 TB is long stretches enough.
    fine(&filled(18_000, 2000, 0, 0), 62);
    assert_eq!(one(&filled(19_200, 800, 0, 0), 62).severity, Severity::Note);
    fine(&mounted(filled(50, 50, 1000, 50), "xfs", "rw"), 62);
    // Those of one pool of ZFS share its room.
    assert_eq!(not_seen(&mounted(filled(99, 1, 0, 0), "zfs", "rw"), 62), "room of /srv");
}

#[test]
fn room_that_is_small_hidden_or_absent_is_no_finding() {
    not_here(&filled(1, 0, 0, 0), 62);
    not_here(&Tree::new(), 62);
    assert!(not_seen(&Tree::new().hidden("/forebay/room.json"), 62).starts_with("/forebay/room.json: "));
    let told = |text: &str| Tree::new().file("/forebay/room.json", text);
    assert_eq!(not_seen(&told(r#"{"hidden":"no answer"}"#), 62), "no answer");
    assert_eq!(not_seen(&told(r#"{"is":{"/a":{"hidden":"no right"}}}"#), 62), "no right");
    assert!(not_seen(&told("damaged"), 62).contains("/forebay/room.json"));
}
