//! Checks 59 to 62: options of mounts, exports of the host's own NFS server, and how full file systems are.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::nics::Gathered;
use super::{Check, disks};
use crate::show;
use forebay_host::mounts::{self, FILE_SYSTEMS_MAX, MOUNTS, Mount, Room};
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
/// Devices below a file system that are followed; a large array has some hundred disks.
const DEVICES_MAX: usize = 1024;
/// File systems of btrfs that are looked at for the one of a device.
const BTRFS_MAX: usize = 256;
/// Of a smaller file system, such as that of a boot loader, it is no matter how full it is.
const BYTES_TO_JUDGE: u64 = 4 << 30;
/// A file system that is as full, and has no more than so many bytes left, finds few long free stretches.
const FULL: f64 = 0.90;
const FEW_BYTES: u64 = 256 << 30;
/// A file system that is as full has few long stretches, however large it is.
const FULL_AT_ANY_SIZE: f64 = 0.95;
/// Soon nothing can be written.
const NEARLY_NO_ROOM: f64 = 0.97;

/// All mounts that are looked at; what is beyond is said.
pub(super) fn all(host: &Host, gathered: &mut Gathered) -> Vec<Mount> {
    if mounts::has_more(&host.system) {
        gathered.hide(MOUNTS.to_owned(), Sentence::new("mounts.more"));
    }
    gathered.see(mounts::mounts(&host.system)).unwrap_or_default()
}

/// The whole disks below a mount. None: not known, or none of this host's.
pub(super) fn disks_of(host: &Host, mount: &Mount) -> Option<BTreeSet<String>> {
    if mount.number.starts_with("0:") {
        return of_btrfs(host, &mount.source);
    }
    let real = host.system.real(&format!("/sys/dev/block/{}", mount.number)).known()?;
    disks_below(host, real.rsplit('/').next()?)
}

/// Of btrfs, which names one of its devices. None: it has several, of which each file may be on any, or it is not known how many.
fn of_btrfs(host: &Host, source: &str) -> Option<BTreeSet<String>> {
    const CLASS: &str = "/sys/fs/btrfs";
    let name = device_name(host, source)?;
    let all = host.system.list(CLASS).known()?;
    let mut devices = all.iter().take(BTRFS_MAX).map(|id| format!("{CLASS}/{id}/devices"));
    let own = devices.find(|devices| host.system.has(&format!("{devices}/{name}")))?;
    (host.system.list(&own).known()?.len() == 1).then(|| disks_below(host, &name))?
}

/// What sysfs calls a device of `/dev`. None: the path leads out of that, perhaps to where it hangs.
fn device_name(host: &Host, path: &str) -> Option<String> {
    let own = path.strip_prefix("/dev/").filter(|own| own.split('/').all(|part| part != ".."))?;
    let real = host.system.real(path).known();
    let name = real.as_deref().and_then(|real| real.strip_prefix("/dev/")).unwrap_or(own);
    // As in /dev/cciss/c0d0, which sysfs calls cciss!c0d0.
    Some(name.replace('/', "!"))
}

/// The whole disks below a block device. None: not known.
pub(super) fn disks_at(host: &Host, device: &str) -> Option<BTreeSet<String>> {
    disks_below(host, &device_name(host, device)?)
}

/// The same by the device's name; each device is looked at once, however many are made of it.
fn disks_below(host: &Host, name: &str) -> Option<BTreeSet<String>> {
    let (mut left, mut known, mut disks) = (vec![name.to_owned()], BTreeSet::new(), BTreeSet::new());
    while let Some(name) = left.pop() {
        if !known.insert(name.clone()) {
            continue;
        }
        if known.len() > DEVICES_MAX {
            return None;
        }
        let folder = format!("/sys/class/block/{name}");
        let Some(disk) = host.topology.disks.get(&name) else {
            // A partition lies in its disk's folder.
            let real = host.system.real(&folder).known()?;
            let whole = real.rsplit('/').nth(1).filter(|whole| host.topology.disks.contains_key(*whole))?;
            left.push(whole.to_owned());
            continue;
        };
        if ["ram", "loop"].contains(&disk.kind.as_str()) {
            return None;
        }
        let slaves = |folder: &str| match host.system.list(&format!("{folder}/slaves")) {
            Seen::Is(names) => Some(names),
            Seen::Absent => Some(Vec::new()),
            Seen::Hidden(_) => None,
        };
        let below = slaves(&folder).filter(|below| !below.is_empty());
        let below = below.map_or_else(|| slaves(&format!("/sys/block/{name}")), Some)?;
        match below.is_empty() {
            true => drop(disks.insert(name)),
            false => left.extend(below),
        }
    }
    (!disks.is_empty()).then_some(disks)
}

/// How fast a disk is by its kind: 0 one that turns, 1 one of flash at SATA or SAS, 2 NVMe. None where its kind tells nothing: in a
/// guest, behind a controller of arrays, at another host, or in a box at USB.
pub(super) fn rank(host: &Host, name: &str) -> Option<u8> {
    if host.topology.hypervisor.is_some() {
        return None;
    }
    let disk = host.topology.disks.get(name)?;
    let real = host.system.real(&format!("/sys/block/{name}")).known()?;
    if ["/rport-", "/session", "/usb"].iter().any(|far| real.contains(far)) {
        return None;
    }
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
    let all = all(host, &mut gathered);
    let (mut numbers, mut judged) = (BTreeSet::new(), 0);
    for mount in all.iter().filter(|mount| mount.is_of_disks() && mount.is_writable()) {
        if !numbers.insert(&mount.number) {
            continue;
        }
        judged += 1;
        let mut find = |word: &str, (_, severity, key, help): Cost, evidence: Evidence| {
            // What is no plain name would be more than a name in a shell.
            let is_plain = mount.place.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./-".contains(&byte));
            let help = if help == "mounts.sync-help" && !is_plain { "mounts.sync-help-name" } else { help };
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

// Check 60. Reads the options of mounts of NFS. Rules: noac, or the same by actimeo=0; sync; requests of less than NFS_REQUEST by a line of FAST_BITS.
fn nfs(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let all = all(host, &mut gathered);
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
        } else if ["acregmin", "acregmax"].iter().all(|name| mount.option(name) == Some("0")) {
            let text = Sentence::new("mounts.actimeo");
            gathered.find(find("actimeo", Severity::Warning, text, vec![], "mounts.noac-help"));
        }
        if mount.has("sync") && !mount.has("noac") {
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
    let lines = || text.lines().filter(|line| !line.starts_with('#'));
    if lines().nth(EXPORTS_MAX).is_some() {
        gathered.hide(EXPORTS.to_owned(), Sentence::new("mounts.more"));
    }
    for line in lines().take(EXPORTS_MAX) {
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

// Check 62. Reads how full this host's file systems are, as statvfs answers; not those of ZFS, whose pools it may hang at, and which
// share one pool's room. Rule: FULL of its bytes, of a large one
// FULL_AT_ANY_SIZE, or FULL of its files are taken.
fn room(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let (mut judged, mut fullest) = (0, 0.0f64);
    let all = mounts::mounts(&host.system).known().unwrap_or_default();
    let kind = |place: &str| mounts::holding(&all, place).map(|mount| mount.kind.as_str()).unwrap_or_default();
    // Others make room for files as they need it, and say how many there is room for.
    let has_fixed = |place: &str| kind(place).starts_with("ext");
    if let Some(mount) = all.iter().find(|mount| mount.kind == "zfs" && mount.is_writable()) {
        gathered.hide(format!("room of {}", mount.place), Sentence::new("room.zfs"));
    }
    let rooms = gathered.see(mounts::room(&host.system)).unwrap_or_default();
    let numbers: BTreeSet<&str> =
        all.iter().filter(|mount| mount.is_asked()).map(|mount| mount.number.as_str()).collect();
    if mounts::has_more(&host.system) || numbers.len() > FILE_SYSTEMS_MAX || rooms.len() > ROOMS_MAX {
        gathered.hide(MOUNTS.to_owned(), Sentence::new("mounts.more"));
    }
    for (place, seen) in rooms.into_iter().filter(|(place, _)| kind(place) != "zfs").take(ROOMS_MAX) {
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
