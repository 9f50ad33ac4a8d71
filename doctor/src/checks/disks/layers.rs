//! Checks 53 and 54: layers above disks (md, device mapper): what they pass on, and how they encrypt.

use super::Reader;
use super::wants::named;
use crate::Host;
use crate::checks::storage::real_disks;
use crate::findings::{Confidence, Evidence, Finding, Remedy, Sentence, Severity, Verdict};
use crate::show;
use std::collections::{BTreeMap, BTreeSet};

/// Devices that are looked at, or only named, below all layers, each as often as it lies below one: more than any host has.
const LOOKS: usize = 65_536;
/// Names in the folders of all disks that are looked at, which partitions are among: more than any host has.
const NAMES: usize = 1 << 21;

/// What layers lie on.
pub(super) struct Below<'a> {
    host: &'a Host,
    /// The disk, or the array, that a partition is of.
    wholes: BTreeMap<String, String>,
    looks: usize,
}

impl<'a> Below<'a> {
    pub(super) fn of(host: &'a Host) -> Below<'a> {
        let (mut wholes, mut left) = (BTreeMap::new(), NAMES);
        for whole in host.topology.disks.keys() {
            let folder = format!("/sys/block/{whole}");
            let names = host.system.list(&folder).known().unwrap_or_default();
            // Partitions have the disk's name before their own.
            let is_part = |name: &String| {
                name != whole && name.starts_with(whole) && host.system.has(&format!("{folder}/{name}/start"))
            };
            left -= left.min(names.len() + 1);
            wholes.extend(names.into_iter().filter(is_part).map(|name| (name, whole.clone())));
            if left == 0 {
                break;
            }
        }
        Below { host, wholes, looks: LOOKS }
    }

    /// What a layer lies on, directly: layers and disks.
    fn directly(&self, device: &str) -> Vec<String> {
        let below = self.host.system.list(&format!("/sys/block/{device}/slaves")).known().unwrap_or_default();
        below.into_iter().map(|below| self.wholes.get(&below).cloned().unwrap_or(below)).collect()
    }

    /// The disks at the bottom of a layer. None: there is too much of it.
    pub(super) fn disks(&mut self, device: &str) -> Option<BTreeSet<String>> {
        let (mut seen, mut left) = (BTreeSet::from([device.to_owned()]), vec![device.to_owned()]);
        let mut disks = BTreeSet::new();
        while let Some(device) = left.pop() {
            self.looks = self.looks.checked_sub(1)?;
            let below = self.directly(&device);
            // What is named counts, too: a folder can name thousands that all lead to itself.
            self.looks = self.looks.saturating_sub(below.len());
            if below.is_empty() {
                disks.insert(device);
            }
            left.extend(below.into_iter().filter(|below| seen.insert(below.clone())));
        }
        Some(disks)
    }
}

/// Layers with a size, by name; with the kind that device mapper gives them, as in `CRYPT-LUKS2-...`.
fn layers(host: &Host, read: &mut Reader) -> Vec<(String, String)> {
    let layers =
        host.topology.disks.iter().filter(|(_, disk)| ["dm", "md"].contains(&disk.kind.as_str()) && disk.bytes > 0);
    layers
        .map(|(name, _)| (name.clone(), read.text(&format!("/sys/block/{name}/dm/uuid")).unwrap_or_default()))
        .collect()
}

/// A layer with the name that its maker gave it.
fn called(read: &mut Reader, name: &str) -> String {
    match read.text(&format!("/sys/block/{name}/dm/name")) {
        Some(given) if !given.is_empty() => format!("{name} ({given})"),
        _ => name.to_owned(),
    }
}

/// Check 53. Reads how much a layer, and the disks below it, discard at once. Rule: all of its disks discard, and it does not.
pub fn discard(host: &Host) -> Verdict {
    let mut read = Reader::of(&host.system);
    let (mut found, mut passing, mut below) = (Vec::new(), 0, Below::of(host));
    let path_of = |device: &str| format!("/sys/block/{device}/queue/discard_max_bytes");
    for (name, uuid) in layers(host, &mut read) {
        let Some(disks) = below.disks(&name) else { continue };
        let discards =
            |read: &mut Reader, device: &str| read.number::<u64>(&path_of(device)).is_some_and(|most| most > 0);
        if disks.contains(&name) || !disks.iter().all(|disk| discards(&mut read, disk)) {
            continue;
        }
        let Some(own) = read.number::<u64>(&path_of(&name)) else { continue };
        if own > 0 {
            passing += 1;
            continue;
        }
        let lower = below.directly(&name).iter().any(|lower| !disks.contains(lower) && !discards(&mut read, lower));
        // The lowest that does not pass it on is told; and what is never written has nothing to discard.
        if lower || read.number::<u8>(&format!("/sys/block/{name}/ro")) == Some(1) {
            continue;
        }
        let (remedy, command) = match (uuid.starts_with("CRYPT-"), name.starts_with("md")) {
            (true, _) => ("disk.discard-crypt-remedy", Some("cryptsetup refresh --allow-discards NAME".to_owned())),
            (false, true) => ("disk.discard-md-remedy", None),
            (false, false) => ("disk.discard-remedy", Some("dmsetup table".to_owned())),
        };
        let shown: Vec<String> = disks.iter().map(|disk| named(host, disk)).collect();
        let mut evidence = vec![Evidence::new(path_of(&name), 0)];
        let first = disks.iter().next();
        evidence.extend(first.and_then(|disk| Some(Evidence::new(path_of(disk), read.text(&path_of(disk))?))));
        found.push(Finding {
            id: format!("disk-discard/{name}"),
            check: 53,
            severity: Severity::Note,
            confidence: Confidence::Certain,
            text: Sentence::new("disk.discard")
                .with("layer", called(&mut read, &name))
                .with("disks", show::names(&shown)),
            evidence,
            number: None,
            remedies: vec![Remedy::Explain { what: Sentence::new(remedy), command }],
        });
    }
    let fine = (passing > 0).then(|| Sentence::new("disk.discard-fine").with("layers", passing));
    read.verdict(found, fine)
}

/// Check 54. Looks for encryption above NVMe. Whether it works in queues of its own, which cost such a disk latency, no file shows.
pub fn crypt(host: &Host) -> Verdict {
    let mut read = Reader::of(&host.system);
    let is_nvme = |disk: &String| real_disks(host).any(|(name, real)| name == disk && real.kind == "nvme");
    let encrypted = layers(host, &mut read).into_iter().filter(|(_, uuid)| uuid.starts_with("CRYPT-"));
    let mut below = Below::of(host);
    let mut above_nvme = |name: &String| below.disks(name).is_some_and(|disks| disks.iter().any(is_nvme));
    let above_nvme = encrypted.map(|(name, _)| name).find(|name| above_nvme(name));
    match above_nvme {
        Some(name) => {
            let what = format!("/sys/block/{name}/dm: {}", called(&mut read, &name));
            Verdict::NotSeen { what, how: Sentence::new("disk.crypt-table") }
        }
        None => read.verdict(Vec::new(), None),
    }
}
