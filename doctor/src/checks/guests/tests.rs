use super::super::expect::{fine, found, not_here, not_seen, one, text};
use super::*;
use crate::fixture::Tree;

fn words(line: &str) -> Vec<u8> {
    line.split(' ').flat_map(|word| word.bytes().chain([0])).collect()
}

fn guest(tree: Tree, pid: u32, line: &str) -> Tree {
    let tree = tree.file(&format!("/proc/{pid}/comm"), "qemu-system-x86");
    tree.bytes(&format!("/proc/{pid}/cmdline"), &words(line))
}

fn drive(options: &str, device: &str) -> String {
    format!(
        "qemu-system-x86_64 -name guest=web,debug-threads=on -drive file=/a,,b.img,if=none,id=d0,{options} -device virtio-blk-pci,drive=d0,id=disk0{device}"
    )
}

#[test]
fn drives_and_devices_are_read_as_qemu_reads_them() {
    let disk = |line: &str| {
        let mut disks = Guest::of(7, &words(line)).disks;
        assert_eq!(disks.len(), 1, "{line}: {disks:?}");
        disks.remove(0)
    };
    let direct = Cache { direct: true, ..Cache::default() };
    let plain = Disk { id: "disk0".into(), cache: direct, aio: Some("threads".into()), iothread: Some(false) };
    assert_eq!(disk(&drive("cache=none", "")), plain);
    let ring = disk(&drive("cache=none,aio=io_uring", ",iothread=t0"));
    assert_eq!((ring.aio.as_deref(), ring.iothread), (Some("io_uring"), Some(true)));
    assert!(disk(&drive("cache=writethrough", "")).cache.through);
    assert!(disk(&drive("cache=none", ",write-cache=off")).cache.through);
    assert!(disk(&drive("cache=unsafe", "")).cache.no_flush);
    assert!(disk(&drive("cache.direct=on", "")).cache.direct);
    assert_eq!(disk("qemu -drive file=rbd:p/i,if=none,id=d -device virtio-blk-pci,drive=d").aio, None);
    assert_eq!(disk("qemu -drive file=/x,if=virtio").iothread, Some(false));
    // As libvirt writes it: a format above the file, which has the cache.
    let json = r#"qemu -blockdev {"driver":"file","filename":"/x","node-name":"s","cache":{"direct":true,"no-flush":false},"aio":"native"} -blockdev {"node-name":"f","read-only":false,"cache":{"direct":true,"no-flush":true},"driver":"qcow2","file":"s"} -device {"driver":"virtio-blk-pci","iothread":"t1","drive":"f","id":"vd0","write-cache":"on"}"#;
    let cache = Cache { direct: true, through: false, no_flush: true };
    assert_eq!(disk(json), Disk { id: "vd0".into(), cache, aio: Some("native".into()), iothread: Some(true) });
    let scsi = "qemu -blockdev driver=raw,node-name=n,file.driver=host_device,file.filename=/dev/x,cache.direct=on -device virtio-scsi-pci,id=scsi0,iothread=t -device scsi-hd,bus=scsi0.0,drive=n";
    let scsi = disk(scsi);
    assert_eq!((scsi.iothread, scsi.aio.as_deref(), scsi.cache.direct), (Some(true), Some("threads"), true));
}

#[test]
fn what_is_no_disk_that_is_written_to_is_left_out_and_nonsense_does_no_harm() {
    for line in [
        "qemu -drive file=/x.iso,if=none,id=d,media=cdrom -device ide-cd,drive=d",
        "qemu -drive file=/x,if=none,id=d,readonly=on -device virtio-blk-pci,drive=d",
        "qemu -drive file=/x,if=pflash,id=d",
        "qemu -device virtio-blk-pci,drive=gone",
        "qemu -device virtio-net-pci,netdev=n",
        "qemu -blockdev driver=qcow2,node-name=a,file=a -device virtio-blk-pci,drive=b",
        "qemu -device {\"driver\": -drive ,,,= -blockdev",
        "-device",
        "",
    ] {
        assert!(Guest::of(7, &words(line)).disks.is_empty(), "{line}");
    }
    // A node above itself ends.
    let circle = Guest::of(7, &words("qemu -blockdev driver=qcow2,node-name=a,file=a -device virtio-blk-pci,drive=a"));
    assert_eq!(circle.disks[0].aio, None);
}

#[test]
fn settings_that_cost_are_one_finding_for_each_kind_over_all_guests() {
    for (options, device, id, severity) in [
        ("cache=writethrough", ",iothread=t", "guest-disk/flushed", Severity::Warning),
        ("cache=unsafe", ",iothread=t", "guest-disk/unsafe", Severity::Warning),
        ("cache=none", ",iothread=t", "guest-disk/threads", Severity::Note),
        ("cache=none,aio=native", "", "guest-disk/iothread", Severity::Note),
    ] {
        for tree in [Tree::new(), Tree::new().virtual_machine()] {
            let line = drive(options, device);
            let finding = one(&guest(guest(tree, 7, &line), 9, &line.replace("guest=web", "db")), 68);
            assert_eq!((finding.id.as_str(), finding.severity), (id, severity));
            assert!(text(&finding).contains("web, db") && text(&finding).contains('2'), "{}", text(&finding));
            assert_eq!((finding.evidence.len(), finding.evidence[0].source.as_str()), (2, "/proc/7/cmdline"));
        }
    }
    assert_eq!(found(&guest(Tree::new(), 7, &drive("cache=none", "")), 68).len(), 2);
    let good = guest(Tree::new(), 7, &drive("cache=none,aio=io_uring", ",iothread=t"));
    assert!(fine(&good, 68).contains('1'));
    fine(&guest(Tree::new(), 7, &drive("cache=writeback", ",iothread=t")), 68);
}

#[test]
fn guests_that_are_hidden_or_absent_or_recorded_are_told_as_such() {
    not_here(&Tree::new(), 68);
    not_here(&guest(Tree::new(), 7, "qemu-system-x86_64"), 68);
    assert!(not_seen(&Tree::new().hidden("/proc/7/comm"), 68).contains("/proc/7/comm"));
    let hidden = Tree::new().file("/proc/7/comm", "kvm").hidden("/proc/7/cmdline");
    assert!(not_seen(&hidden, 68).contains("/proc/7/cmdline"));
    let known = Guest::of(7, &words(&drive("cache=unsafe", ",iothread=t")));
    let told = serde_json::to_string(&[known.without_name()]).expect("JSON");
    assert!(!told.contains("web"));
    let recorded = one(&Tree::new().file(&recorded_at(), &told), 68);
    assert!(text(&recorded).contains("PID 7"), "{}", text(&recorded));
    assert!(not_seen(&Tree::new().file(&recorded_at(), "damaged"), 68).contains("guests.json"));
}

/// A disk of a guest of eight CPUs, with queues that these share.
fn queues(name: &str, lists: &[&str]) -> Tree {
    let card = "0000:03:00.0";
    let tree = Tree::new().node(0, "0-7", 4).pci(card, 0x010000, 0).disk(name, card, 9);
    lists
        .iter()
        .enumerate()
        .fold(tree, |tree, (queue, list)| tree.file(&format!("/sys/block/{name}/mq/{queue}/cpu_list"), list))
}

#[test]
fn queues_of_a_guests_disk_that_many_cpus_share_are_told() {
    let finding = one(&queues("vda", &["0, 1, 2, 3, 4, 5, 6, 7"]).virtual_machine(), 68);
    assert_eq!((finding.id.as_str(), finding.severity), ("guest-disk/queues", Severity::Note));
    assert!(text(&finding).contains("vda"), "{}", text(&finding));
    fine(&queues("vda", &["0, 1, 2, 3", "4, 5, 6, 7"]).virtual_machine(), 68);
    // Of a host that is no guest, and of a disk that is not virtio's.
    not_here(&queues("vda", &["0, 1, 2, 3, 4, 5, 6, 7"]), 68);
    not_here(&queues("sda", &["0, 1, 2, 3, 4, 5, 6, 7"]).virtual_machine(), 68);
    let hidden = queues("vda", &[]).hidden("/sys/block/vda/mq/0/cpu_list").virtual_machine();
    assert!(not_seen(&hidden, 68).contains("mq/0/cpu_list: "));
}
