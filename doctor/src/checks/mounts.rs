//! Checks 59 to 62: options of mounts, exports of the host's own NFS server, and how full file systems are.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::nics::Gathered;
use super::{Check, disks};
use crate::chain::ends::{End, Way, resolve};
use crate::show;
use forebay_host::mounts::{self, MOUNTS, Mount, Room};
use forebay_host::system::Seen;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Checks 59 to 62, in the order of their numbers.
pub const CHECKS: &[Check] = &[
    Check { number: 59, word: "mount-options", look: local },
    Check { number: 60, word: "nfs-mount-options", look: nfs },
    Check { number: 61, word: "nfs-export", look: exports },
    Check { number: 62, word: "disk-room", look: room },
];

/// From here on a request of 32 KiB is over in the time that the network takes to bring the next one.
const FAST_BITS: u64 = 10_000_000_000;
/// A request of NFS with so much is no bound.
const NFS_REQUEST: u64 = 64 << 10;
/// File systems of a record that are looked at.
const ROOMS_MAX: usize = 256;
/// Exports that are told of one by one.
const EXPORTS_MAX: usize = 256;
/// Of a smaller file system, such as that of a boot loader, it is no matter how full it is.
const BYTES_TO_JUDGE: u64 = 4 << 30;
/// A file system that is as full, and has no more than so many bytes left, finds few long free stretches.
const FULL: f64 = 0.90;
const FEW_BYTES: u64 = 256 << 30;
/// A file system that is as full has few long stretches, however large it is.
const FULL_AT_ANY_SIZE: f64 = 0.95;
/// Soon nothing can be written.
const NEARLY_NO_ROOM: f64 = 0.97;

/// The whole disks below a mount. None: not known, or none of this host's.
pub(super) fn disks_of(host: &Host, mount: &Mount) -> Option<BTreeSet<String>> {
    let device = match mount.number.starts_with("0:") {
        // Of btrfs, which names a device of its several.
        true => mount.source.strip_prefix("/dev/")?.to_owned(),
        false => host.system.real(&format!("/sys/dev/block/{}", mount.number)).known()?.rsplit('/').next()?.to_owned(),
    };
    disks_at(host, &format!("/dev/{device}"))
}

/// The whole disks below a block device. None: not known.
pub(super) fn disks_at(host: &Host, device: &str) -> Option<BTreeSet<String>> {
    let parts = resolve(&host.system, &host.topology, device, Way::From).ok()?;
    let disk = |(end, _)| match end {
        End::Disk(name) => Some(name),
        End::Ram | End::Nic(_) | End::Rdma(_) => None,
    };
    parts.into_iter().map(disk).collect::<Option<BTreeSet<String>>>().filter(|disks| !disks.is_empty())
}

/// How fast a disk is by its kind: 0 one that turns, 1 one of flash at SATA or SAS, 2 NVMe. None where its kind tells nothing: in a
/// guest, behind a controller of arrays, or at another host.
pub(super) fn rank(host: &Host, name: &str) -> Option<u8> {
    if host.topology.hypervisor.is_some() {
        return None;
    }
    let disk = host.topology.disks.get(name)?;
    let driver = host.topology.pci.get(disk.pci.as_ref()?)?.driver.as_deref()?;
    match disk.kind.as_str() {
        "nvme" => Some(2),
        "scsi" if !disks::wants::ARRAYS.contains(&driver) => Some(u8::from(!disk.rotational)),
        _ => None,
    }
}

fn shown(mount: &Mount) -> Evidence {
    Evidence::new(MOUNTS, format!("{} {} {}", mount.place, mount.kind, mount.options.join(",")))
}

/// What an option costs, how much, and what helps.
type Cost = (&'static str, Severity, &'static str, &'static str);
const LOCAL: [Cost; 2] = [
    ("sync", Severity::Warning, "mounts.sync", "mounts.sync-help"),
    ("dirsync", Severity::Note, "mounts.dirsync", "mounts.dirsync-help"),
];

// Check 59. Reads the options of file systems on this host's disks, and those that ext4 has of itself. Rule: one by which each write,
// or each change of a folder, waits for the disk; one by which each byte is written twice.
fn local(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let all = gathered.see(mounts::mounts(&host.system)).unwrap_or_default();
    let (mut numbers, mut judged) = (BTreeSet::new(), 0);
    for mount in all.iter().filter(|mount| mount.is_of_disks() && mount.is_writable()) {
        if !numbers.insert(&mount.number) {
            continue;
        }
        judged += 1;
        let mut find = |word: &str, (_, severity, key, help): Cost, evidence: Evidence| {
            gathered.find(Finding {
                id: format!("mount-options{}/{word}", mount.place),
                check: 59,
                severity,
                confidence: Confidence::Certain,
                text: Sentence::new(key).with("place", &mount.place).with("kind", &mount.kind),
                evidence: vec![evidence],
                number: None,
                remedies: vec![Remedy::Explain {
                    what: Sentence::new(help).with("place", &mount.place),
                    command: None,
                }],
            });
        };
        for cost in LOCAL.into_iter().filter(|(option, ..)| mount.has(option)) {
            find(cost.0, cost, shown(mount));
        }
        if mount.kind == "ext4" {
            let journal = ("", Severity::Warning, "mounts.journal", "mounts.journal-help");
            match data_journal(host, mount) {
                Seen::Is(evidence) => find("data", journal, evidence),
                Seen::Absent => {}
                Seen::Hidden(why) => gathered.hide(why, Sentence::new("doctor.as-root")),
            }
        }
    }
    if judged > 0 {
        gathered.fine(Sentence::new("mounts.fine").with("count", judged));
    }
    gathered.verdict()
}

/// What shows that a file system of ext4 journals data too; absent: it does not. A default that is set in the file system itself is not
/// among its mount's options, but among those that ext4 shows.
fn data_journal(host: &Host, mount: &Mount) -> Seen<Evidence> {
    if mount.option("data") == Some("journal") {
        return Seen::Is(shown(mount));
    }
    let real = host.system.real(&format!("/sys/dev/block/{}", mount.number)).known();
    let Some(device) = real.as_deref().and_then(|real| real.rsplit('/').next()) else { return Seen::Absent };
    let path = format!("/proc/fs/ext4/{device}/options");
    let text = host.system.text(&path);
    text.and_then(|text| text.lines().any(|line| line == "data=journal").then(|| Evidence::new(path, "data=journal")))
}

// Check 60. Reads the options of mounts of NFS. Rules: noac; sync; requests of less than NFS_REQUEST by a line of FAST_BITS.
fn nfs(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let all = gathered.see(mounts::mounts(&host.system)).unwrap_or_default();
    let mut judged = 0;
    for mount in all.iter().filter(|mount| ["nfs", "nfs4"].contains(&mount.kind.as_str())) {
        judged += 1;
        let find = |word: &str, severity, text: Sentence, mut evidence: Vec<Evidence>, help| {
            evidence.insert(0, shown(mount));
            Finding {
                id: format!("nfs-mount-options{}/{word}", mount.place),
                check: 60,
                severity,
                confidence: Confidence::Certain,
                text: text.with("place", &mount.place),
                evidence,
                number: None,
                remedies: vec![Remedy::Explain { what: Sentence::new(help), command: None }],
            }
        };
        // The kernel makes noac sync as well: it is one finding.
        if mount.has("noac") {
            let text = Sentence::new("mounts.noac");
            gathered.find(find("noac", Severity::Warning, text, vec![], "mounts.noac-help"));
        } else if mount.has("sync") {
            let text = Sentence::new("mounts.nfs-sync");
            gathered.find(find("sync", Severity::Warning, text, vec![], "mounts.nfs-sync-help"));
        }
        let size = |name| mount.option(name).and_then(|bytes| bytes.parse::<u64>().ok()).filter(|bytes| *bytes > 0);
        let smallest = size("rsize").into_iter().chain(size("wsize")).min();
        let Some(bytes) = smallest.filter(|bytes| *bytes < NFS_REQUEST) else { continue };
        let Some((nic, bits)) = line_to(host, mount).filter(|(_, bits)| *bits >= FAST_BITS) else { continue };
        let text = Sentence::new("mounts.nfs-small").with("kib", bytes.div_ceil(1024)).with("nic", &nic);
        let text = text.with("speed", show::line_rate(bits));
        let line = vec![Evidence::new(format!("/sys/class/net/{nic}/speed"), bits / 1_000_000)];
        gathered.find(find("size", Severity::Warning, text, line, "mounts.nfs-small-help"));
    }
    if judged > 0 {
        gathered.fine(Sentence::new("mounts.nfs-fine").with("count", judged));
    }
    gathered.verdict()
}

/// The fastest interface towards a mount's server, and its bits a second.
fn line_to(host: &Host, mount: &Mount) -> Option<(String, u64)> {
    let peer: IpAddr = mount.option("addr")?.parse().ok()?;
    let towards = host.net.towards(peer).into_iter();
    let lines = towards.filter_map(|name| Some((host.topology.nics.get(&name)?.speed_bits?, name)));
    lines.max().map(|(bits, name)| (name, bits))
}

/// Exports that the kernel's server has been asked for.
const EXPORTS: &str = "/proc/fs/nfsd/exports";

// Check 61. Reads what the NFS server exports now. Rules: async may lose what clients were told is written; with sync, the safe default,
// a file system whose disks all turn makes each commit wait for them.
fn exports(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let text = gathered.see(host.system.text(EXPORTS)).unwrap_or_default();
    let all = mounts::mounts(&host.system).known().unwrap_or_default();
    let (mut told, mut judged) = (BTreeSet::new(), 0);
    for line in text.lines().filter(|line| !line.starts_with('#')).take(EXPORTS_MAX) {
        let Some((place, client)) = line.split_once(['\t', ' ']) else { continue };
        let Some(options) = client.split_once('(').and_then(|(_, rest)| rest.split_once(')')) else { continue };
        let options: Vec<&str> = options.0.split(',').collect();
        if !options.contains(&"rw") {
            continue;
        }
        judged += 1;
        let (word, severity, key, help, mut evidence) = match options.contains(&"async") {
            true => ("async", Severity::Warning, "mounts.export-async", "mounts.export-async-help", vec![]),
            false => match turning(host, &all, place) {
                Some(disks) => ("sync", Severity::Note, "mounts.export-sync", "mounts.export-sync-help", disks),
                None => continue,
            },
        };
        if !told.insert((word, place)) {
            continue;
        }
        evidence.insert(0, Evidence::new(EXPORTS, format!("{place} {}", options.join(","))));
        gathered.find(Finding {
            id: format!("nfs-export{place}/{word}"),
            check: 61,
            severity,
            confidence: Confidence::Certain,
            text: Sentence::new(key).with("place", place),
            evidence,
            number: None,
            remedies: vec![Remedy::Explain { what: Sentence::new(help), command: None }],
        });
    }
    if judged > 0 {
        gathered.fine(Sentence::new("mounts.exports-fine").with("count", judged));
    }
    gathered.verdict()
}

/// What shows that all disks below a folder turn; none where one does not, or is not known.
fn turning(host: &Host, all: &[Mount], place: &str) -> Option<Vec<Evidence>> {
    let disks = disks_of(host, mounts::holding(all, place)?)?;
    let turns = disks.iter().all(|disk| rank(host, disk) == Some(0));
    let shown = disks.iter().take(4).map(|disk| Evidence::new(format!("/sys/block/{disk}/queue/rotational"), 1));
    turns.then(|| shown.collect())
}

// Check 62. Reads how full this host's file systems are, as statvfs answers. Rule: FULL of its bytes, of a large one
// FULL_AT_ANY_SIZE, or FULL of its files are taken.
fn room(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let (mut judged, mut fullest) = (0, 0.0f64);
    let all = mounts::mounts(&host.system).known().unwrap_or_default();
    // Others make room for files as they need it, and say how many there is room for.
    let has_fixed = |place: &str| mounts::holding(&all, place).is_some_and(|mount| mount.kind.starts_with("ext"));
    for (place, seen) in gathered.see(mounts::room(&host.system)).unwrap_or_default().into_iter().take(ROOMS_MAX) {
        let Some(room) = gathered.see(seen) else { continue };
        let bytes = room.used_bytes.saturating_add(room.free_bytes);
        if bytes < BYTES_TO_JUDGE {
            continue;
        }
        judged += 1;
        let share = room.used_bytes as f64 / bytes as f64;
        fullest = fullest.max(share);
        if share >= FULL_AT_ANY_SIZE || share >= FULL && room.free_bytes <= FEW_BYTES {
            gathered.find(full(&place, &room, share));
        }
        let files = room.files.saturating_sub(room.free_files) as f64 / room.files.max(1) as f64;
        if files >= FULL && has_fixed(&place) {
            let text = Sentence::new("room.files").with("place", &place).with("share", show::percent(files));
            let value = format!("{} of {} files are left", room.free_files, room.files);
            gathered.find(Finding {
                id: format!("disk-room{place}/files"),
                check: 62,
                severity: Severity::Warning,
                confidence: Confidence::Certain,
                text: text.with("left", room.free_files),
                evidence: vec![Evidence::new(format!("statvfs {place}"), value)],
                number: Some(Number { is: files, could_be: FULL, unit: "1".to_owned() }),
                remedies: vec![Remedy::Explain { what: Sentence::new("room.files-help"), command: None }],
            });
        }
    }
    if judged > 0 {
        gathered.fine(Sentence::new("room.fine").with("count", judged).with("share", show::percent(fullest)));
    }
    gathered.verdict()
}

fn full(place: &str, room: &Room, share: f64) -> Finding {
    let text = Sentence::new("room.full").with("place", place).with("share", show::percent(share));
    let left = show::bytes(room.free_bytes as f64);
    Finding {
        id: format!("disk-room{place}/bytes"),
        check: 62,
        severity: if share >= NEARLY_NO_ROOM { Severity::Warning } else { Severity::Note },
        confidence: Confidence::Certain,
        text: text.with("left", &left),
        evidence: vec![Evidence::new(
            format!("statvfs {place}"),
            format!("{} B used, {} B left", room.used_bytes, room.free_bytes),
        )],
        number: Some(Number { is: share, could_be: FULL, unit: "1".to_owned() }),
        remedies: vec![Remedy::Explain { what: Sentence::new("room.help"), command: None }],
    }
}

#[cfg(test)]
mod tests;
