//! Checks 41 to 44: block devices, dirty data, and the memory that a tier's index takes. Check 45 is in [`super::management`].

use super::super::Host;
use super::super::counters::matching;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict, Write};
use super::super::system::{Seen, System};
use super::super::topology::Disk;
use super::{Check, growth, management, show};
use crate::config::TierName;
use crate::node::index_memory;
use crate::volume_store::Record;
use std::path::PathBuf;

/// These.
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
/// Most that a disk of a kind writes, in bytes a second: the outer tracks, the SATA line, four lanes of PCIe 4.0.
const SPINNING: f64 = 280e6;
const SATA_SSD: f64 = 560e6;
const NVME: f64 = 7e9;
/// Drivers of controllers whose "disk" is an array of any size.
const ARRAYS: &[&str] =
    &["megaraid_sas", "megaraid", "hpsa", "smartpqi", "aacraid", "arcmsr", "cciss", "3w-9xxx", "3w-sas", "mpi3mr"];
/// Share of RAM for a tier's index from which it is told: beyond, it takes what caches would have.
const INDEX_SHARE: f64 = 0.10;

fn real_disks(host: &Host) -> impl Iterator<Item = (&String, &Disk)> {
    host.topology
        .disks
        .iter()
        .filter(|(_, disk)| disk.bytes > 0 && ["nvme", "scsi", "virtio"].contains(&disk.kind.as_str()))
}

/// The chosen one of `none [mq-deadline] kyber`.
fn chosen(text: &str) -> &str {
    text.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap_or(text)
}

// Check 41. Reads the scheduler of each NVMe device, and where requests end. Rules: a scheduler is between; requests end
// where the interrupt came, while CPUs share queues of a device in a host of several sockets.
fn queue(host: &Host) -> Verdict {
    let (mut found, mut fine) = (Vec::new(), None);
    for (name, disk) in real_disks(host) {
        let path = format!("/sys/block/{name}/queue/scheduler");
        let scheduler = match host.system.text(&path) {
            Seen::Is(text) => chosen(&text).to_owned(),
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
    let shared = queues < host.topology.cpus.len() && super::numa::sockets(&host.topology).len() > 1;
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
    full.filter(|(_, work)| work.busy >= DISK_FULL && work.written >= 0.9 * work.bytes && work.written > 0.0)
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
    let folder = if system.is_live() { crate::paths::state_dir() } else { PathBuf::from("/var/lib/forebay") };
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
