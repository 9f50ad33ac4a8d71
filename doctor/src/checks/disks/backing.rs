//! What holds a file system's data: a disk, or several disks below layers that join them (md, device mapper, btrfs).

use super::wants::at_best;
use crate::Host;
use crate::checks::growth::{self, DiskWork};
use crate::counters::matching;
use forebay_host::system::System;
use forebay_host::topology::Disk;
use std::collections::{BTreeMap, BTreeSet};

/// A disk that was written less since the host started holds nothing that waits to be written: an archive, a spare.
const WRITTEN: f64 = 256e6;
/// A disk that was written so much, in so many seconds of work, has shown what it can do: more than its own cache holds.
const SHOWN_BYTES: f64 = 1e9;
const SHOWN_S: f64 = 10.0;
/// A disk that had something to do for so much of the time shows what it can do.
const DISK_FULL: f64 = 0.90;
/// With smaller writes a disk shows how fast it turns, not how fast it writes what has gathered.
const LARGE_WRITE: f64 = 65536.0;
/// Seconds after which the kernel's count of a disk's time may have begun anew: it has 32 bits of milliseconds.
const COUNT_WRAPS_S: f64 = 4_294_967.0;
/// Layers above one disk that are followed: more than anybody stacks.
const LAYERS: usize = 64;
/// Names that are looked at above all disks together: more than any host has.
const LOOKS: usize = 1 << 21;

/// Disks that one file system may spread its data over.
pub struct Backing {
    /// Names of the disks, as in `/sys/block`.
    pub disks: Vec<String>,
    /// What they write together at best, by their kind; none: the kind of one tells nothing.
    pub at_best: Option<f64>,
    /// What it writes now, with nothing but writing to do.
    pub now: Option<f64>,
    /// What it wrote, in the mean, while it had something to do since the host started.
    pub since_start: Option<f64>,
}

/// Linux 5.0 to 5.6 counted one tick of the clock for a request that took many ("block/diskstats: more accurate approximation of io_ticks").
fn counts_little(kernel: &str) -> bool {
    let mut numbers = kernel.split(['.', '-']).map(|number| number.parse::<u32>().ok());
    matches!((numbers.next().flatten(), numbers.next().flatten()), (Some(5), Some(0..=6)))
}

/// What a device has done since the host started: bytes written, and seconds with something to do; 0: not known.
fn done(host: &Host) -> Option<BTreeMap<String, (f64, f64)>> {
    let text = host.counters.0.get("/proc/diskstats")?;
    let uptime = host.system.text("/proc/uptime").known().and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    let counts_time = uptime.is_some_and(|uptime| uptime < COUNT_WRAPS_S) && !counts_little(&host.topology.kernel);
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse::<u64>().ok();
        Some((
            (*words.get(2)?).to_owned(),
            (number(9)? as f64 * 512.0, if counts_time { number(12)? as f64 / 1000.0 } else { 0.0 }),
        ))
    };
    Some(text.lines().filter_map(of).collect())
}

/// All that lies above a disk or its partitions: devices, and file systems that join several (`btrfs:` and its id), by their members.
/// `looks` is what may still be looked at.
fn above(system: &System, disk: &str, file_systems: &BTreeMap<String, String>, looks: &mut usize) -> BTreeSet<String> {
    let (mut all, mut left) = (BTreeSet::new(), vec![disk.to_owned()]);
    let mut list = |path: String| {
        if *looks == 0 {
            return Vec::new();
        }
        let names = system.list(&path).known().unwrap_or_default();
        *looks = looks.saturating_sub(names.len() + 1);
        names
    };
    while let Some(device) = left.pop() {
        let folder = format!("/sys/block/{device}");
        let mut holders = list(format!("{folder}/holders"));
        all.extend(file_systems.get(&device).map(|id| format!("btrfs:{id}")));
        // Partitions have the disk's name before their own.
        for part in list(folder.clone()).into_iter().filter(|name| *name != device && name.starts_with(&device)) {
            all.extend(file_systems.get(&part).map(|id| format!("btrfs:{id}")));
            holders.extend(list(format!("{folder}/{part}/holders")));
        }
        for holder in holders {
            if all.len() < LAYERS && all.insert(holder.clone()) {
                left.push(holder);
            }
        }
    }
    all
}

/// Members of the file systems of btrfs: each device, and the id of what it belongs to.
fn of_btrfs(system: &System) -> BTreeMap<String, String> {
    let member = |path: String| {
        let mut parts = path.rsplit('/');
        let device = parts.next()?.to_owned();
        Some((device, parts.nth(1)?.to_owned()))
    };
    matching(system, "/sys/fs/btrfs/*/devices/*").into_iter().filter_map(member).collect()
}

/// What is mounted, on a host with pools of ZFS: disks below no layer of which nothing is mounted are taken for ZFS's there, which bounds what
/// waits to be written by itself.
fn mounts_beside_zfs(host: &Host) -> Option<String> {
    let pools = matching(&host.system, "/proc/spl/kstat/zfs/*/state");
    (!pools.is_empty()).then(|| host.system.text("/proc/self/mounts").known().unwrap_or_default())
}

/// Whether a device is written to by itself: no layer above others, and none in memory. `looks` is what may still be looked at.
fn is_written(host: &Host, name: &str, disk: &Disk, looks: &mut usize) -> bool {
    // Drives for discs and for floppies have a size without one; only what the kernel counts of them tells that they are written to.
    let is_counted = disk.kind != "other" || host.counters.0.contains_key("/proc/diskstats");
    if disk.bytes == 0 || !is_counted || ["loop", "ram", "dm", "md"].contains(&disk.kind.as_str()) {
        return false;
    }
    if disk.kind != "other" || *looks == 0 {
        return true;
    }
    let below = host.system.list(&format!("/sys/block/{name}/slaves")).known().unwrap_or_default();
    *looks = looks.saturating_sub(below.len() + 1);
    below.is_empty()
}

/// What is written to on this host, each by itself: two disks below one layer are one backing. A device of a kind that is not known (cards,
/// volumes of a network) is one like others, of which nothing is assumed.
pub fn backings(host: &Host) -> Vec<Backing> {
    let (file_systems, mounts) = (of_btrfs(&host.system), mounts_beside_zfs(host));
    // Disks, and what is above them.
    let mut groups: Vec<(Vec<String>, BTreeSet<String>)> = Vec::new();
    let mut looks = LOOKS;
    for (name, disk) in &host.topology.disks {
        if !is_written(host, name, disk, &mut looks) {
            continue;
        }
        let above = above(&host.system, name, &file_systems, &mut looks);
        let is_mounted = |mounts: &String| mounts.lines().any(|line| line.starts_with(&format!("/dev/{name}")));
        if above.is_empty() && mounts.as_ref().is_some_and(|mounts| !is_mounted(mounts)) {
            continue;
        }
        let (joined, apart): (Vec<_>, Vec<_>) =
            std::mem::take(&mut groups).into_iter().partition(|(_, others)| !others.is_disjoint(&above));
        let mut group = (vec![name.clone()], above);
        for (disks, others) in joined {
            group.0.splice(..0, disks);
            group.1.extend(others);
        }
        groups = apart;
        groups.push(group);
    }
    let (done, work) = (done(host), growth::disks(host));
    groups.into_iter().filter_map(|(disks, above)| backing(host, disks, &above, done.as_ref(), work.as_ref())).collect()
}

fn backing(
    host: &Host,
    disks: Vec<String>,
    above: &BTreeSet<String>,
    done: Option<&BTreeMap<String, (f64, f64)>>,
    work: Option<&BTreeMap<String, DiskWork>>,
) -> Option<Backing> {
    let written = |done: &BTreeMap<String, (f64, f64)>| -> f64 {
        disks.iter().filter_map(|disk| done.get(disk)).map(|(bytes, _)| bytes).sum()
    };
    if done.is_some_and(|done| written(done) < WRITTEN) {
        return None;
    }
    // Of several disks the layer that joins them is what counts; where there are two, none is all of it.
    let mut arrays = above.iter().filter(|name| name.starts_with("md"));
    let counted = match (&disks[..], arrays.next(), arrays.next()) {
        ([disk], ..) => Some(disk),
        (_, Some(array), None) => Some(array),
        _ => None,
    };
    let is_full =
        |work: &&DiskWork| work.busy >= DISK_FULL && work.written >= 0.9 * work.bytes && work.of_a_write >= LARGE_WRITE;
    let now = counted.and_then(|name| work?.get(name)).filter(is_full).map(|work| work.written);
    let enough = |(bytes, seconds): &&(f64, f64)| *bytes >= SHOWN_BYTES && *seconds >= SHOWN_S;
    let since_start = counted.and_then(|name| done?.get(name)).filter(enough).map(|(bytes, seconds)| bytes / seconds);
    let at_best: Option<f64> = disks.iter().map(|disk| at_best(host, disk, host.topology.disks.get(disk)?)).sum();
    // More than the kind can is a count that is wrong.
    let since_start = since_start.filter(|speed| at_best.is_none_or(|most| *speed <= most));
    Some(Backing { disks, at_best, now, since_start })
}
