//! Checks 50 to 52 and 55: how disks are set, and the state of the controllers of NVMe.

use super::Reader;
use super::wants::{is_sata, is_single, named};
use crate::Host;
use crate::checks::storage::real_disks;
use crate::counters::matching;
use crate::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use crate::show;
use forebay_host::topology::Disk;
use std::collections::BTreeSet;

/// Requests that a disk at SATA takes at once with NCQ.
const NCQ: u32 = 32;
/// Disks whose files are shown as evidence; a shelf has 60.
const SHOWN: usize = 4;

/// Disks at SATA and SAS that are disks: behind a hypervisor, a controller of arrays or USB the setting is somebody else's.
fn disks(host: &Host) -> Vec<(&String, &Disk)> {
    if host.topology.hypervisor.is_some() {
        return Vec::new();
    }
    real_disks(host).filter(|(name, disk)| disk.kind == "scsi" && is_single(host, name, disk)).collect()
}

/// What several disks are called, with their models.
fn all_named(host: &Host, names: &[&String]) -> String {
    show::names(&names.iter().map(|name| named(host, name)).collect::<Vec<String>>())
}

/// Check 50. Reads whether the cache of each spinning disk is used for writes; an SSD has another. Rule: it is not.
pub fn write_cache(host: &Host) -> Verdict {
    let mut read = Reader::of(&host.system);
    let (mut off, mut evidence, mut on) = (Vec::new(), Vec::new(), 0);
    // By what sets the caches of disks: for SATA, and for SAS.
    let mut commands = BTreeSet::new();
    for (name, disk) in disks(host).into_iter().filter(|(_, disk)| disk.rotational) {
        // The disk's own word; the queue's can be set to another, to leave out flushes.
        let of_disk = matching(&host.system, &format!("/sys/block/{name}/device/scsi_disk/*/cache_type"));
        let path = of_disk.into_iter().next().unwrap_or_else(|| format!("/sys/block/{name}/queue/write_cache"));
        match read.text(&path) {
            Some(kind) if kind == "write through" || kind == "none" => {
                off.push(name);
                let is_sata = is_sata(host, name, disk);
                commands.insert(if is_sata { "hdparm -W1 /dev/DISK" } else { "sdparm --set WCE /dev/DISK" });
                evidence.push(Evidence::new(path, kind));
            }
            Some(kind) if kind.starts_with("write back") => on += 1,
            _ => {}
        }
    }
    evidence.truncate(SHOWN);
    let found = (!off.is_empty()).then(|| Finding {
        id: "disk-cache/off".to_owned(),
        check: 50,
        severity: Severity::Note,
        confidence: Confidence::Likely,
        text: Sentence::new("disk.cache-off").with("disks", all_named(host, &off)),
        evidence,
        number: None,
        remedies: commands
            .into_iter()
            .map(|command| Remedy::Explain {
                what: Sentence::new("disk.cache-remedy"),
                command: Some(command.to_owned()),
            })
            .collect(),
    });
    let fine = (on > 0).then(|| Sentence::new("disk.cache-fine").with("disks", on));
    read.verdict(found.into_iter().collect(), fine)
}

/// Check 51. Reads how many commands each disk takes at once. Rule: one.
pub fn depth(host: &Host) -> Verdict {
    let mut read = Reader::of(&host.system);
    let (mut found, mut least) = (Vec::new(), None::<(u32, &String)>);
    for (name, disk) in disks(host) {
        let path = format!("/sys/block/{name}/device/queue_depth");
        let Some(depth) = read.number::<u32>(&path).filter(|depth| *depth > 0) else { continue };
        if depth > 1 {
            least = least.filter(|(least, _)| *least <= depth).or(Some((depth, name)));
            continue;
        }
        found.push(Finding {
            id: format!("disk-depth/{name}"),
            check: 51,
            // A head that turns one way at a time gains tens of percent by an order of its own, flash several times.
            severity: if disk.rotational { Severity::Note } else { Severity::Warning },
            confidence: Confidence::Certain,
            text: Sentence::new("disk.depth").with("disk", named(host, name)),
            evidence: vec![Evidence::new(path, depth)],
            number: Some(Number { is: 1.0, could_be: f64::from(NCQ), unit: "1".to_owned() }),
            remedies: vec![Remedy::Explain {
                what: Sentence::new("disk.depth-remedy"),
                command: Some(format!("dmesg | grep -i ncq; echo {} > /sys/block/DISK/device/queue_depth", NCQ - 1)),
            }],
        });
    }
    let fine = least
        .map(|(depth, name)| Sentence::new("disk.depth-fine").with("disk", named(host, name)).with("depth", depth));
    read.verdict(found, fine)
}

/// Check 52. Reads whether a disk says that it has zones. Rule: it does.
pub fn zones(host: &Host) -> Verdict {
    let mut read = Reader::of(&host.system);
    let (mut found, mut without) = (Vec::new(), 0);
    for (name, disk) in real_disks(host) {
        let path = format!("/sys/block/{name}/queue/zoned");
        let key = match read.text(&path).as_deref() {
            Some("host-aware") => "disk.zones-aware",
            Some("host-managed") => "disk.zones-managed",
            Some("none") => {
                without += u32::from(disk.rotational && host.topology.hypervisor.is_none());
                continue;
            }
            _ => continue,
        };
        found.push(Finding {
            id: format!("disk-zones/{name}"),
            check: 52,
            severity: Severity::Note,
            confidence: Confidence::Certain,
            text: Sentence::new(key).with("disk", named(host, name)),
            evidence: vec![Evidence::new(&path, read.text(&path).unwrap_or_default())],
            number: None,
            remedies: vec![Remedy::Explain { what: Sentence::new("disk.zones-remedy"), command: None }],
        });
    }
    let fine = (without > 0).then(|| Sentence::new("disk.zones-fine").with("disks", without));
    read.verdict(found, fine)
}

/// Check 55. Reads the state of each controller of NVMe. Rules: the kernel has given one up; one does not answer, and is reset or
/// connected anew.
pub fn nvme_state(host: &Host) -> Verdict {
    let mut read = Reader::of(&host.system);
    let (mut found, mut live) = (Vec::new(), 0);
    // Several controllers of one subsystem are paths to the same disks.
    let paths: Vec<(String, String, bool)> = matching(&host.system, "/sys/class/nvme-subsystem/*/*/state")
        .into_iter()
        .filter_map(|path| {
            let mut parts = path.rsplit('/').skip(1).map(str::to_owned);
            let lives = host.system.text(&path).known().as_deref() == Some("live");
            Some((parts.next()?, parts.next()?, lives))
        })
        .collect();
    let lives: BTreeSet<&String> =
        paths.iter().filter(|(.., lives)| *lives).map(|(_, subsystem, _)| subsystem).collect();
    let others: BTreeSet<&String> =
        paths.iter().filter(|(_, subsystem, _)| lives.contains(subsystem)).map(|(name, ..)| name).collect();
    for path in matching(&host.system, "/sys/class/nvme/*/state") {
        // Those of a storage network are check 65's.
        if read.text(&path.replace("/state", "/transport")).is_some_and(|transport| transport != "pcie") {
            continue;
        }
        let (key, severity) = match read.text(&path).as_deref() {
            Some("live") => {
                live += 1;
                continue;
            }
            Some("dead") => ("disk.nvme-dead", Severity::Error),
            Some("resetting" | "connecting") => ("disk.nvme-away", Severity::Warning),
            // It comes, or goes because somebody wants it.
            _ => continue,
        };
        let name = path.rsplit('/').nth(1).unwrap_or_default().to_owned();
        let state = read.text(&path).unwrap_or_default();
        let (key, severity) = match (others.contains(&name), key) {
            (true, "disk.nvme-dead") => ("disk.nvme-path-dead", Severity::Warning),
            (true, _) => ("disk.nvme-path-away", Severity::Warning),
            (false, _) => (key, severity),
        };
        found.push(Finding {
            id: format!("nvme-state/{name}"),
            check: 55,
            severity,
            confidence: Confidence::Certain,
            text: Sentence::new(key).with("controller", name).with("state", &state),
            evidence: vec![Evidence::new(&path, &state)],
            number: None,
            remedies: vec![Remedy::Explain {
                what: Sentence::new("disk.nvme-remedy"),
                command: Some("dmesg | grep -i nvme".to_owned()),
            }],
        });
    }
    let fine = (live > 0).then(|| Sentence::new("disk.nvme-fine").with("controllers", live));
    read.verdict(found, fine)
}
