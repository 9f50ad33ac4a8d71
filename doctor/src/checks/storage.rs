//! Checks 41, 42 and 44: block devices, and the memory that a tier's index takes. Check 43 is in [`super::disks`], check 45 in
//! [`super::management`].

use super::super::Host;
use super::super::counters::matching;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict, Write};
use super::disks::dirty::{dirty, memory};
use super::disks::wants::named;
use super::{Check, management};
use crate::show;
use forebay_api::config::{TierName, index_memory};
use forebay_api::record::Record;
use forebay_host::system::{Seen, System, chosen};
use forebay_host::topology::Disk;
use std::path::PathBuf;

/// Checks 41 to 45, in the order of their numbers.
pub const CHECKS: &[Check] = &[
    Check { number: 41, word: "disk-queue", look: queue },
    Check { number: 42, word: "disk-alignment", look: alignment },
    Check { number: 43, word: "dirty-limit", look: dirty },
    Check { number: 44, word: "tier-index", look: index },
    Check { number: 45, word: "management", look: management::management },
];

/// Smaller partitions (those of boot loaders, by custom at odd places) hold nothing that is written often.
const PARTITION_TO_JUDGE: u64 = 1 << 30;
/// Physical sectors that real disks have; USB bridges tell others.
const SECTORS: std::ops::RangeInclusive<u64> = 1024..=65536;
/// Share of RAM for a tier's index from which it is told: beyond, it takes what caches would have.
const INDEX_SHARE: f64 = 0.10;

/// Those that hold data of paths: no loops, no layers above other disks, no drives for discs.
pub fn real_disks(host: &Host) -> impl Iterator<Item = (&String, &Disk)> {
    host.topology
        .disks
        .iter()
        .filter(|(_, disk)| disk.bytes > 0 && ["nvme", "scsi", "virtio"].contains(&disk.kind.as_str()))
}

// Check 41. Reads the scheduler of each NVMe device, and where requests end. Rules: a scheduler is between; requests end
// where the interrupt came, while CPUs share queues of a device in a host of several sockets.
fn queue(host: &Host) -> Verdict {
    let (mut found, mut fine) = (Vec::new(), None);
    for (name, disk) in real_disks(host) {
        let path = format!("/sys/block/{name}/queue/scheduler");
        let scheduler = match host.system.text(&path) {
            Seen::Is(text) => chosen(&text).unwrap_or(&text).to_owned(),
            Seen::Absent => continue,
            Seen::Hidden(what) => return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
        };
        if disk.kind != "nvme" || scheduler == "none" {
            let depth = host.system.number::<u32>(&format!("/sys/block/{name}/queue/nr_requests")).known();
            fine = fine.or(depth.map(|depth| (name, scheduler, depth)));
            continue;
        }
        found.push(Finding {
            id: format!("disk-queue/{name}"),
            check: 41,
            // BFQ's one lock and its waiting for the next request of a process bound an NVMe device; the others cost CPU.
            severity: if scheduler == "bfq" { Severity::Warning } else { Severity::Note },
            confidence: Confidence::Certain,
            text: Sentence::new("disk.scheduler").with("disk", named(host, name)).with("scheduler", &scheduler),
            evidence: vec![Evidence::new(&path, &scheduler)],
            number: None,
            remedies: vec![Remedy::Apply {
                what: Sentence::new("disk.scheduler-remedy").with("disk", name),
                writes: vec![Write { path, value: "none".to_owned() }],
            }],
        });
    }
    found.extend(real_disks(host).filter_map(|(name, disk)| ends_anywhere(host, name, disk)));
    match (found.is_empty(), fine) {
        (false, _) => Verdict::Found(found),
        (true, Some((disk, scheduler, depth))) => Verdict::Fine(
            Sentence::new("disk.queue-fine").with("disk", disk).with("scheduler", scheduler).with("depth", depth),
        ),
        (true, None) => Verdict::NotHere,
    }
}

fn ends_anywhere(host: &Host, name: &str, disk: &Disk) -> Option<Finding> {
    let path = format!("/sys/block/{name}/queue/rq_affinity");
    let queues = host.system.list(&format!("/sys/block/{name}/mq")).known()?.len();
    let shared = queues < host.topology.cpus.len() && crate::parts::sockets(&host.topology).len() > 1;
    (disk.kind == "nvme" && shared && host.system.number::<u8>(&path).known()? == 0).then(|| Finding {
        id: format!("disk-queue/{name}-completions"),
        check: 41,
        severity: Severity::Note,
        confidence: Confidence::Computed,
        text: Sentence::new("disk.completions")
            .with("disk", named(host, name))
            .with("queues", queues)
            .with("cpus", host.topology.cpus.len()),
        evidence: vec![Evidence::new(&path, 0)],
        number: None,
        remedies: vec![Remedy::Apply {
            what: Sentence::new("disk.completions-remedy").with("disk", name),
            writes: vec![Write { path, value: "1".to_owned() }],
        }],
    })
}

// Check 42. Reads the sizes of sectors and where partitions begin. Rule: one of 1 GiB or more begins inside a physical sector.
fn alignment(host: &Host) -> Verdict {
    let (mut found, mut judged) = (Vec::new(), 0);
    for (name, _) in real_disks(host) {
        let folder = format!("/sys/block/{name}");
        let sector = match host.system.number::<u64>(&format!("{folder}/queue/physical_block_size")) {
            Seen::Is(sector) => sector,
            Seen::Absent => continue,
            Seen::Hidden(what) => return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
        };
        if !SECTORS.contains(&sector) || !sector.is_power_of_two() {
            continue;
        }
        // Where the first physical sector begins; -1 is the kernel's word for a disk that it makes no sense of.
        let Some(first) = host.system.number::<u64>(&format!("{folder}/alignment_offset")).known() else { continue };
        for path in matching(&host.system, &format!("{folder}/*/start")) {
            let size = path.replace("/start", "/size");
            let (Seen::Is(start), Seen::Is(size)) =
                (host.system.number::<u64>(&path), host.system.number::<u64>(&size))
            else {
                continue;
            };
            if size.saturating_mul(512) < PARTITION_TO_JUDGE {
                continue;
            }
            judged += 1;
            let part = path.split('/').rev().nth(1).unwrap_or(name).to_owned();
            if start.saturating_mul(512).abs_diff(first) % sector != 0 {
                let text =
                    Sentence::new("disk.misaligned").with("part", &part).with("start", start).with("sector", sector);
                found.push(Finding {
                    id: format!("disk-alignment/{part}"),
                    check: 42,
                    severity: Severity::Warning,
                    confidence: Confidence::Computed,
                    text,
                    evidence: vec![
                        Evidence::new(path, start),
                        Evidence::new(format!("{folder}/queue/physical_block_size"), sector),
                    ],
                    number: None,
                    remedies: vec![Remedy::Explain { what: Sentence::new("disk.misaligned-remedy"), command: None }],
                });
            }
        }
    }
    match (found.is_empty(), judged) {
        (false, _) => Verdict::Found(found),
        (true, 0) => Verdict::NotHere,
        (true, _) => Verdict::Fine(Sentence::new("disk.aligned").with("parts", judged)),
    }
}

/// The daemon's state folder: the living host's may be named by the environment.
pub fn state_folder(system: &System) -> String {
    let folder = if system.is_live() { forebay_api::paths::state_dir() } else { PathBuf::from("/var/lib/forebay") };
    folder.display().to_string()
}

// Check 44. Reads the records of volumes. Rule: the indexes of their tiers take more than INDEX_SHARE of the memory.
fn index(host: &Host) -> Verdict {
    let folder = format!("{}/volumes", state_folder(&host.system));
    let names = match host.system.list(&folder) {
        Seen::Is(names) => names,
        Seen::Absent => return Verdict::NotHere,
        Seen::Hidden(what) => return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
    };
    let (mut largest, mut index_bytes, mut tier_bytes, mut volumes) = (None::<(u64, String)>, 0, 0, 0);
    for name in names.iter().filter(|name| name.ends_with(".toml")) {
        let path = format!("{folder}/{name}");
        let text = match host.system.text(&path) {
            Seen::Is(text) => text,
            Seen::Absent => continue,
            Seen::Hidden(what) => return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
        };
        // A record of another version, or a damaged one, is the daemon's to tell.
        let Ok(record) = toml::from_str::<Record>(&text) else { continue };
        let frames = match record.tier.kind {
            TierName::Memory => record.tier.size_bytes,
            TierName::Flash => record.memory_bytes,
        };
        let index = index_memory(record.tier.size_bytes, frames);
        volumes += 1;
        index_bytes = u64::saturating_add(index_bytes, index);
        tier_bytes = u64::saturating_add(tier_bytes, record.tier.size_bytes);
        if largest.as_ref().is_none_or(|(most, _)| record.tier.size_bytes > *most) {
            largest = Some((record.tier.size_bytes, path));
        }
    }
    let (Some((bytes, path)), Seen::Is(ram)) = (largest, memory(&host.system, "MemTotal")) else {
        return Verdict::NotHere;
    };
    let share = index_bytes as f64 / ram.max(1) as f64;
    let text = |key| {
        Sentence::new(key)
            .with("volumes", volumes)
            .with("tiers", show::bytes(tier_bytes as f64))
            .with("index", show::bytes(index_bytes as f64))
            .with("share", show::percent(share))
            .with("ram", show::bytes(ram as f64))
    };
    if share <= INDEX_SHARE {
        return Verdict::Fine(text("disk.index-fine"));
    }
    Verdict::Found(vec![Finding {
        id: "tier-index/all".to_owned(),
        check: 44,
        severity: Severity::Warning,
        confidence: Confidence::Computed,
        text: text("disk.index"),
        evidence: vec![
            Evidence::new(path, format!("tier.size_bytes = {bytes}")),
            Evidence::new("/proc/meminfo", format!("MemTotal: {} kB", ram / 1024)),
        ],
        number: Some(Number { is: share, could_be: INDEX_SHARE, unit: "1".to_owned() }),
        remedies: vec![Remedy::Explain { what: Sentence::new("disk.index-remedy"), command: None }],
    }])
}

#[cfg(test)]
mod tests {
    use super::super::expect::{fine, not_here, not_seen, one, text, writes};
    use super::*;
    use crate::fixture::Tree;

    const DISK: &str = "0000:03:00.0";

    fn nvme() -> Tree {
        Tree::new()
            .node(0, "0-3", 32)
            .pci(DISK, 0x010802, 0)
            .driver(DISK, "nvme")
            .disk("nvme0n1", DISK, 1000)
            .file("/sys/block/nvme0n1/queue/nr_requests", "1023")
    }

    #[test]
    fn a_scheduler_before_an_nvme_device_is_told() {
        let with = |schedulers: &str| nvme().file("/sys/block/nvme0n1/queue/scheduler", schedulers);
        let finding = one(&with("none mq-deadline kyber [bfq]"), 41);
        assert!(text(&finding).starts_with("Requests to nvme0n1 pass through the scheduler bfq"));
        assert_eq!(finding.severity, Severity::Warning);
        assert_eq!(writes(&finding), ["/sys/block/nvme0n1/queue/scheduler=none"]);
        assert_eq!(one(&with("none [mq-deadline]"), 41).severity, Severity::Note);
        let model = with("[bfq]").file("/sys/block/nvme0n1/device/model", "KIOXIA KCD8XRUG1T92");
        assert!(text(&one(&model, 41)).starts_with("Requests to nvme0n1 (KIOXIA KCD8XRUG1T92) pass"));
        assert_eq!(
            fine(&with("[none] mq-deadline"), 41),
            "Disk queue: nvme0n1 takes 1023 requests at once by scheduler none."
        );
    }

    #[test]
    fn completions_that_end_anywhere_are_told_in_hosts_of_several_sockets() {
        let tree = nvme()
            .file("/sys/block/nvme0n1/queue/scheduler", "[none]")
            .file("/sys/block/nvme0n1/queue/rq_affinity", "0")
            .file("/sys/block/nvme0n1/mq/0/cpu_list", "0, 1, 2, 3");
        fine(&tree, 41);
        let two = tree.node(1, "4-7", 32);
        assert_eq!(writes(&one(&two, 41)), ["/sys/block/nvme0n1/queue/rq_affinity=1"]);
        fine(&two.file("/sys/block/nvme0n1/queue/rq_affinity", "1"), 41);
    }

    #[test]
    fn schedulers_of_other_disks_hidden_or_absent_are_no_finding() {
        assert!(not_seen(&nvme().hidden("/sys/block/nvme0n1/queue/scheduler"), 41).contains("queue/scheduler: "));
        not_here(&nvme(), 41);
        not_here(&Tree::new(), 41);
        let virtio = Tree::new()
            .virtual_machine()
            .pci(DISK, 0x010000, 0)
            .disk("vda", DISK, 9)
            .file("/sys/block/vda/queue/nr_requests", "256")
            .file("/sys/block/vda/queue/scheduler", "none [mq-deadline]");
        assert!(fine(&virtio, 41).contains("vda takes 256 requests at once by scheduler mq-deadline"));
    }

    /// A partition of so many sectors that begins at a sector, on a disk with physical ones of 4096 bytes.
    fn part(start: u64, sectors: u64) -> Tree {
        nvme()
            .file("/sys/block/nvme0n1/queue/physical_block_size", "4096")
            .file("/sys/block/nvme0n1/alignment_offset", "0")
            .file("/sys/block/nvme0n1/nvme0n1p1/start", &start.to_string())
            .file("/sys/block/nvme0n1/nvme0n1p1/size", &sectors.to_string())
    }

    #[test]
    fn a_large_partition_that_begins_inside_a_physical_sector_is_told() {
        let finding = one(&part(63, 1 << 30), 42);
        assert!(text(&finding).starts_with("nvme0n1p1 begins at sector 63, inside a physical sector of 4096 bytes"));
        assert_eq!(finding.evidence[0], Evidence::new("/sys/block/nvme0n1/nvme0n1p1/start", 63));
        assert!(fine(&part(2048, 1 << 30), 42).contains("all 1 large partitions"));
    }

    #[test]
    fn alignment_counts_from_where_the_disk_says_and_boot_loaders_do_not_count() {
        // A disk that shifts its sectors so that 63 is a good place.
        fine(&part(63, 1 << 30).file("/sys/block/nvme0n1/alignment_offset", "3584"), 42);
        not_here(&part(34, 2014), 42);
        not_here(&part(63, 1 << 30).file("/sys/block/nvme0n1/alignment_offset", "-1"), 42);
        not_here(&part(63, 1 << 30).file("/sys/block/nvme0n1/queue/physical_block_size", "33553920"), 42);
        // Of a virtual machine, whose host does not tell.
        not_here(&part(63, 1 << 30).virtual_machine().file("/sys/block/nvme0n1/queue/physical_block_size", "512"), 42);
        assert!(
            not_seen(&nvme().hidden("/sys/block/nvme0n1/queue/physical_block_size"), 42)
                .contains("physical_block_size: ")
        );
        not_here(&nvme(), 42);
    }

    fn volume(tier_gib: u64) -> Tree {
        let record = format!(
            "version = 1\nname = \"a\"\nvolume = \"00000000-0000-4000-8000-000000000001\"\nbacking = \"/a.img\"\nsize_bytes = 1\n\
             policy = \"back\"\nvolatile = false\nformat_raw = true\nmemory_bytes = 0\n\
             [tier]\nkind = \"flash\"\npath = \"/a.tier\"\nsize_bytes = {}\nmade = true\n",
            tier_gib << 30
        );
        assert!(toml::from_str::<Record>(&record).is_ok(), "{:?}", toml::from_str::<Record>(&record));
        Tree::new().file("/var/lib/forebay/volumes/a.toml", &record).file("/proc/meminfo", "MemTotal: 67108864 kB\n")
    }

    #[test]
    fn an_index_that_takes_the_memory_of_caches_is_told() {
        let finding = one(&volume(9000), 44);
        // 96 bytes for each block of 4096.
        assert!(
            text(&finding).contains("9.7 TB of tiers take 226.5 GB, 330 % of the 68.7 GB of RAM"),
            "{}",
            text(&finding)
        );
        assert_eq!(finding.evidence[0].source, "/var/lib/forebay/volumes/a.toml");
        assert!(fine(&volume(100), 44).contains("take 2.5 GB, 4 % of the 68.7 GB of RAM"));
    }

    #[test]
    fn records_that_are_hidden_or_absent_or_damaged_are_no_finding() {
        assert!(not_seen(&volume(9000).hidden("/var/lib/forebay/volumes/b.toml"), 44).contains("volumes/b.toml: "));
        not_here(&Tree::new(), 44);
        not_here(&volume(9000).file("/var/lib/forebay/volumes/a.toml", "version = 9\n"), 44);
    }
}
