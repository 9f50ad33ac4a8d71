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
        "qemu -drive file=/x,if=none,id=d",
        "qemu -device virtio-blk-pci,drive=gone",
        "qemu -device virtio-net-pci,netdev=n",
        "qemu -blockdev driver=qcow2,node-name=a,file=a -device virtio-blk-pci,drive=b",
        "qemu -device {\"driver\": -drive =,if=ide -blockdev",
        "-device",
        "",
    ] {
        assert!(Guest::of(7, &words(line)).disks.is_empty(), "{line}");
    }
    // A node above itself ends.
    let circle = Guest::of(7, &words("qemu -blockdev driver=qcow2,node-name=a,file=a -device virtio-blk-pci,drive=a"));
    assert_eq!((circle.disks.len(), circle.partly), (0, true));
}

#[test]
fn drives_that_no_device_names_are_disks_and_layers_inside_others_are_followed() {
    for kind in ["", ",if=ide", ",if=scsi", ",if=virtio"] {
        let disks = Guest::of(7, &words(&format!("qemu -drive file=/x,cache=unsafe,id=d{kind}"))).disks;
        assert_eq!((disks.len(), disks[0].iothread), (1, kind.contains("virtio").then_some(false)), "{kind}");
    }
    let layers = r#"qemu -blockdev {"driver":"qcow2","node-name":"n","cache":{"direct":true},"file":{"driver":"raw","file":{"driver":"file","filename":"/x","aio":"native"}}} -device virtio-blk-pci,drive=n"#;
    let disk = Guest::of(7, &words(layers)).disks.remove(0);
    assert_eq!((disk.aio.as_deref(), disk.cache.direct), (Some("native"), true));
    let far = "qemu -drive driver=qcow2,file.driver=raw,file.file.driver=nbd,file.file.path=/x,if=virtio";
    assert_eq!(Guest::of(7, &words(far)).disks[0].aio, None);
}

#[test]
fn a_command_line_without_end_is_read_in_part_and_said_to_be() {
    let nested = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    let wide: String = (0..5000).map(|n| format!(r#""{n}":1,"#)).collect();
    for (word, partly) in [
        (nested(60), false),
        (nested(100), true),
        (format!(r#"{{"{}":{{{}"b":1}}}}"#, "n".repeat(100), wide), true),
        (format!("{}=1", "n".repeat(200)), true),
        ("a=1,".repeat(9000), false),
        ((0..600).map(|n| format!("a{n}=1,")).collect(), true),
        ("x".repeat(2 << 20), true),
    ] {
        let line = words(&format!("qemu -device {word}"));
        assert_eq!(Guest::of(7, &line).partly, partly, "{}", &word[..40.min(word.len())]);
        let mut reader = options::Reader::new();
        let options = reader.read(&word[..word.len().min(64 << 10)], "driver");
        assert!(options.len() <= 512 && options.keys().all(|name| name.len() <= 128));
    }
    let long = format!(
        "qemu -name guest={0} -drive id=d,file=/x,aio={0} -device virtio-blk-pci,drive=d,id={0}",
        "é".repeat(9000)
    );
    let long = Guest::of(7, &words(&long));
    let disk = &long.disks[0];
    assert_eq!(
        [long.name.as_deref(), disk.aio.as_deref(), Some(&disk.id)].map(|text| text.map_or(0, str::len)),
        [256; 3]
    );
    let many = "-device a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9 ".repeat(2000);
    assert!(Guest::of(7, &words(&format!("qemu {many}"))).partly);
    let unknown = guest(Tree::new(), 7, "qemu -device virtio-blk-pci,drive=gone");
    assert_eq!(not_seen(&unknown, 68), "/proc/7/cmdline");
    let told = serde_json::to_string(&[Guest { pid: 7, partly: true, ..Guest::default() }]).expect("JSON");
    assert_eq!(not_seen(&Tree::new().file(&recorded_at(), &told), 68), "/proc/7/cmdline");
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
