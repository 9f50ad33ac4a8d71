//! Checks 41 to 44: block devices, dirty data, and the memory that a tier's index takes. Check 45 is in [`super::management`].

use super::super::Host;
use super::super::counters::matching;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict, Write};
use super::{Check, growth, management};
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
/// A host that needs longer to write what it has promised stalls its writers for as long when the limit is reached.
const DRAIN_S: f64 = 30.0;
/// Seconds of writing that the limit is set to: enough to gather neighbours, short enough to wait for.
const DRAIN_WANTED_S: f64 = 10.0;
/// A disk that had something to do for so much of the time shows what it can do.
const DISK_FULL: f64 = 0.90;
/// With smaller writes a disk shows how fast it turns, not how fast it writes what has gathered.
const LARGE_WRITE: f64 = 65536.0;
/// Most that a disk of a kind writes, in bytes a second: the outer tracks, the SATA line, four lanes of PCIe 4.0.
const SPINNING: f64 = 280e6;
const SATA_SSD: f64 = 560e6;
const NVME: f64 = 7e9;
/// Drivers of controllers whose "disk" is an array of any size.
const ARRAYS: &[&str] =
    &["megaraid_sas", "megaraid", "hpsa", "smartpqi", "aacraid", "arcmsr", "cciss", "3w-9xxx", "3w-sas", "mpi3mr"];
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
            text: Sentence::new("disk.scheduler").with("disk", name).with("scheduler", &scheduler),
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
            .with("disk", name)
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
            if size * 512 < PARTITION_TO_JUDGE {
                continue;
            }
            judged += 1;
            let part = path.split('/').rev().nth(1).unwrap_or(name).to_owned();
            if (start * 512).abs_diff(first) % sector != 0 {
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

/// What the host may owe its disks.
struct Limit {
    bytes: u64,
    /// The file that sets it, and what it says.
    path: &'static str,
    value: u64,
    by_ratio: bool,
    available: u64,
}

const DIRTY_BYTES: &str = "/proc/sys/vm/dirty_bytes";
const DIRTY_RATIO: &str = "/proc/sys/vm/dirty_ratio";
const BACKGROUND_BYTES: &str = "/proc/sys/vm/dirty_background_bytes";
const BACKGROUND_RATIO: &str = "/proc/sys/vm/dirty_background_ratio";

fn memory(system: &System, name: &str) -> Seen<u64> {
    system.text("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
    })
}

// Check 43. Reads vm.dirty_*, the memory that is available, and what the disks write. Rules: what may be owed takes longer than
// DRAIN_S to write; writing in the background begins no sooner than writers are stopped.
fn dirty(host: &Host) -> Verdict {
    let system = &host.system;
    let (available, bytes, ratio) =
        match (memory(system, "MemAvailable"), system.number::<u64>(DIRTY_BYTES), system.number::<u64>(DIRTY_RATIO)) {
            (Seen::Is(available), Seen::Is(bytes), Seen::Is(ratio)) => (available, bytes, ratio),
            (Seen::Hidden(what), ..) | (_, Seen::Hidden(what), _) | (_, _, Seen::Hidden(what)) => {
                return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") };
            }
            _ => return Verdict::NotHere,
        };
    let limit = match bytes {
        0 => Limit { bytes: available / 100 * ratio, path: DIRTY_RATIO, value: ratio, by_ratio: true, available },
        _ => Limit { bytes, path: DIRTY_BYTES, value: bytes, by_ratio: false, available },
    };
    let mut found: Vec<Finding> = background_too_late(system, &limit, ratio).into_iter().collect();
    let speed =
        measured_speed(host).map(|(disk, speed)| (speed, Some(disk))).or_else(|| Some((likely_speed(host)?, None)));
    if let Some((speed, disk)) = speed
        && limit.bytes as f64 / speed > DRAIN_S
    {
        found.push(long_drain(host, &limit, speed, disk));
    }
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    let needed = limit.bytes as f64 / DRAIN_S;
    let fine = Sentence::new("disk.dirty-fine").with("limit", show::bytes(limit.bytes as f64));
    Verdict::Fine(fine.with("seconds", DRAIN_S).with("needed", show::bytes(needed)))
}

fn background_too_late(system: &System, limit: &Limit, ratio: u64) -> Option<Finding> {
    let late =
        |path: &'static str, limit_path: &'static str, limit: u64| -> Option<(&'static str, u64, &'static str, u64)> {
            let background: u64 = system.number(path).known()?;
            (background >= limit && limit > 0).then_some((path, background, limit_path, limit))
        };
    let by_bytes = system.number::<u64>(BACKGROUND_BYTES).known()? > 0;
    let (path, background, limit_path, limit) = match (limit.by_ratio, by_bytes) {
        (true, false) => late(BACKGROUND_RATIO, DIRTY_RATIO, ratio),
        (false, true) => late(BACKGROUND_BYTES, DIRTY_BYTES, limit.bytes),
        // Of different units: what they come to changes with the memory.
        (true, true) | (false, false) => None,
    }?;
    Some(Finding {
        id: "dirty-limit/background".to_owned(),
        check: 43,
        severity: Severity::Note,
        confidence: Confidence::Certain,
        text: Sentence::new("disk.background-late").with("background", background).with("limit", limit),
        evidence: vec![Evidence::new(path, background), Evidence::new(limit_path, limit)],
        number: None,
        remedies: vec![Remedy::Apply {
            what: Sentence::new("disk.background-remedy"),
            writes: vec![Write { path: path.to_owned(), value: (limit / 4).max(1).to_string() }],
        }],
    })
}

/// What the disk writes that had nothing but writing to do between the looks: that is its speed.
fn measured_speed(host: &Host) -> Option<(String, f64)> {
    let work = growth::disks(host)?;
    let full = real_disks(host).filter_map(|(name, _)| Some((name, work.get(name)?)));
    full.filter(|(_, work)| {
        work.busy >= DISK_FULL && work.written >= 0.9 * work.bytes && work.of_a_write >= LARGE_WRITE
    })
    .map(|(name, work)| (name.clone(), work.written))
    .max_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// What the disks write together at best, by their kind. None where the kind tells nothing: behind a hypervisor or a
/// controller of arrays.
fn likely_speed(host: &Host) -> Option<f64> {
    if host.topology.hypervisor.is_some() {
        return None;
    }
    let of = |disk: &Disk| {
        let device = host.topology.pci.get(disk.pci.as_ref()?)?;
        let array = device.driver.as_deref().is_none_or(|driver| ARRAYS.contains(&driver));
        match (disk.kind.as_str(), disk.rotational) {
            ("nvme", _) => Some(NVME),
            ("scsi", true) if !array => Some(SPINNING),
            ("scsi", false) if !array => Some(SATA_SSD),
            _ => None,
        }
    };
    let speeds: Option<Vec<f64>> = real_disks(host).map(|(_, disk)| of(disk)).collect();
    speeds.filter(|speeds| !speeds.is_empty()).map(|speeds| speeds.iter().sum())
}

fn long_drain(host: &Host, limit: &Limit, speed: f64, disk: Option<String>) -> Finding {
    let seconds = limit.bytes as f64 / speed;
    let wanted = (speed * DRAIN_WANTED_S) as u64;
    let key = if disk.is_some() { "disk.drain-measured" } else { "disk.drain-likely" };
    let mut evidence = vec![Evidence::new(limit.path, limit.value)];
    if limit.by_ratio {
        evidence.push(Evidence::new("/proc/meminfo", format!("MemAvailable: {} kB", limit.available / 1024)));
    }
    evidence
        .extend(disk.as_ref().map(|disk| Evidence::new("/proc/diskstats", format!("{disk} {}/s", show::bytes(speed)))));
    let what =
        Sentence::new("disk.drain-remedy").with("wanted", show::bytes(wanted as f64)).with("seconds", DRAIN_WANTED_S);
    let percent = wanted * 100 / limit.available.max(1);
    let remedy = match (limit.by_ratio, percent) {
        // Ratio for ratio, bytes for bytes: writing the one clears the other, and could not be taken back as it was.
        (true, 4..) => Remedy::Apply { what, writes: limits(BACKGROUND_RATIO, percent / 4, DIRTY_RATIO, percent) },
        (false, _) if host.system.number::<u64>(BACKGROUND_BYTES).known().is_some_and(|bytes| bytes > 0) => {
            Remedy::Apply { what, writes: limits(BACKGROUND_BYTES, wanted / 4, DIRTY_BYTES, wanted) }
        }
        (true, _) | (false, _) => Remedy::Explain {
            what,
            command: Some(format!("sysctl -w vm.dirty_background_bytes={} vm.dirty_bytes={wanted}", wanted / 4)),
        },
    };
    Finding {
        id: "dirty-limit/drain".to_owned(),
        check: 43,
        severity: if disk.is_some() { Severity::Warning } else { Severity::Note },
        confidence: if disk.is_some() { Confidence::Computed } else { Confidence::Likely },
        text: Sentence::new(key)
            .with("limit", show::bytes(limit.bytes as f64))
            .with("speed", show::bytes(speed))
            .with("seconds", format!("{seconds:.0}"))
            .with("disk", disk.unwrap_or_default()),
        evidence,
        number: Some(Number { is: seconds, could_be: DRAIN_WANTED_S, unit: "s".to_owned() }),
        remedies: vec![remedy],
    }
}

/// The lower one first, so that it is the lower one at every moment.
fn limits(background: &str, low: u64, limit: &str, high: u64) -> Vec<Write> {
    let write = |path: &str, value: u64| Write { path: path.to_owned(), value: value.to_string() };
    vec![write(background, low), write(limit, high)]
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
        index_bytes += index;
        tier_bytes += record.tier.size_bytes;
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
    use super::super::expect::{command, fine, not_here, not_seen, one, text, writes};
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

    /// So much memory is available, and so many percent of it may be dirty.
    fn dirty(available_gib: u64, ratio: u64) -> Tree {
        Tree::new()
            .node(0, "0-3", 128)
            .file("/proc/meminfo", &format!("MemTotal: 134217728 kB\nMemAvailable:   {} kB\n", available_gib << 20))
            .file(DIRTY_BYTES, "0")
            .file(DIRTY_RATIO, &ratio.to_string())
            .file(BACKGROUND_BYTES, "0")
            .file(BACKGROUND_RATIO, "3")
    }

    fn spinning(tree: Tree) -> Tree {
        tree.pci(DISK, 0x010601, 0)
            .driver(DISK, "ahci")
            .disk("sda", DISK, 4000)
            .file("/sys/block/sda/queue/rotational", "1")
    }

    #[test]
    fn what_a_disk_writes_now_tells_how_long_the_debt_takes() {
        // 650 MB/s in 60 s, without a pause.
        let tree = spinning(dirty(119, 90))
            .file("/proc/diskstats", "8 0 sda 0 0 0 0 150000 0 76171875 0 0 60000 0\n")
            .earlier("/proc/diskstats", "8 0 sda 0 0 0 0 0 0 0 0 0 0 0\n");
        let finding = one(&tree, 43);
        assert!(
            text(&finding)
                .starts_with("Up to 115.0 GB may wait to be written; sda writes 650.0 MB/s now, so that takes 177 s"),
            "{}",
            text(&finding)
        );
        assert_eq!((finding.severity, finding.confidence), (Severity::Warning, Confidence::Computed));
        assert_eq!(writes(&finding), [format!("{BACKGROUND_RATIO}=1"), format!("{DIRTY_RATIO}=5")]);
    }

    #[test]
    fn small_writes_do_not_show_what_a_disk_can_do() {
        // 51 MB/s in 60 s, by so many writes.
        let writing = |count: u64| {
            dirty(100, 20)
                .virtual_machine()
                .pci(DISK, 0x010000, 0)
                .disk("vda", DISK, 4000)
                .file("/proc/diskstats", &format!("254 0 vda 0 0 0 0 {count} 0 6000000 0 0 60000 0\n"))
                .earlier("/proc/diskstats", "254 0 vda 0 0 0 0 0 0 0 0 0 0 0\n")
        };
        assert_eq!(one(&writing(10_000), 43).severity, Severity::Warning);
        fine(&writing(750_000), 43);
    }

    #[test]
    fn of_an_idle_disk_its_kind_tells_the_least_time() {
        let finding = one(&spinning(dirty(100, 20)), 43);
        assert!(
            text(&finding)
                .contains("the disks of this host write 280.0 MB/s together at best, so that takes 77 s or more"),
            "{}",
            text(&finding)
        );
        assert_eq!((finding.severity, finding.confidence), (Severity::Note, Confidence::Likely));
        // Two percent would leave one half for the background: bytes are finer.
        assert_eq!(command(&finding), "sysctl -w vm.dirty_background_bytes=700000000 vm.dirty_bytes=2800000000");
        assert!(finding.evidence.contains(&Evidence::new(DIRTY_RATIO, 20)));
    }

    #[test]
    fn a_limit_in_bytes_is_changed_in_bytes() {
        let tree = spinning(dirty(100, 0)).file(DIRTY_BYTES, "30000000000").file(BACKGROUND_BYTES, "1000000");
        let finding = one(&tree, 43);
        assert_eq!(finding.evidence[0], Evidence::new(DIRTY_BYTES, 30_000_000_000u64));
        assert_eq!(writes(&finding), [format!("{BACKGROUND_BYTES}=700000000"), format!("{DIRTY_BYTES}=2800000000")]);
    }

    #[test]
    fn where_the_kind_tells_nothing_no_speed_is_guessed() {
        let fine_of = |tree: Tree| fine(&tree, 43);
        assert_eq!(
            fine_of(spinning(dirty(100, 20)).virtual_machine()),
            "Unwritten data: 21.5 GB at most (vm.dirty_*), which a disk that writes 715.8 MB/s has written in 30 s."
        );
        fine_of(spinning(dirty(100, 20)).pci("0000:04:00.0", 0x010400, 0).driver("0000:04:00.0", "megaraid_sas").disk(
            "sdb",
            "0000:04:00.0",
            9,
        ));
        fine_of(dirty(100, 20));
        fine_of(spinning(dirty(20, 20)));
    }

    #[test]
    fn a_background_that_begins_too_late_is_told() {
        let tree = dirty(20, 10).file(BACKGROUND_RATIO, "10");
        let finding = one(&tree, 43);
        assert_eq!((finding.id.as_str(), finding.severity), ("dirty-limit/background", Severity::Note));
        assert_eq!(writes(&finding), [format!("{BACKGROUND_RATIO}=2")]);
    }

    #[test]
    fn dirty_limits_that_are_hidden_or_absent_are_no_finding() {
        let hidden =
            Tree::new().file("/proc/meminfo", "MemAvailable: 9 kB\n").file(DIRTY_RATIO, "20").hidden(DIRTY_BYTES);
        assert!(not_seen(&hidden, 43).starts_with("/proc/sys/vm/dirty_bytes: "));
        not_here(&Tree::new(), 43);
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
