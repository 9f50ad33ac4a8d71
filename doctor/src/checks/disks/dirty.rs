//! Check 43: how much may wait to be written, and how long that takes on what it is written to.

use super::backing::{Backing, backings};
use super::wants::named;
use crate::Host;
use crate::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict, Write};
use crate::show;
use forebay_host::system::{Seen, System};

/// A host that needs longer to write what it has promised stalls its writers for as long when the limit is reached.
const DRAIN_S: f64 = 30.0;
/// Seconds of writing that the limit is set to: enough to gather neighbours, short enough to wait for.
const DRAIN_WANTED_S: f64 = 10.0;

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

/// A line of `/proc/meminfo`, in bytes.
pub fn memory(system: &System, name: &str) -> Seen<u64> {
    system.text("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.saturating_mul(1024))
    })
}

/// Check 43. Reads vm.dirty_*, the memory that is available, and what the disks write. Rules: what may be owed takes longer than
/// DRAIN_S to write, on the slowest that is written to; writing in the background begins no sooner than writers are stopped. It is fine
/// only where each that is written to has shown that it is fast enough.
pub fn dirty(host: &Host) -> Verdict {
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
        0 => Limit {
            bytes: (available / 100).saturating_mul(ratio),
            path: DIRTY_RATIO,
            value: ratio,
            by_ratio: true,
            available,
        },
        _ => Limit { bytes, path: DIRTY_BYTES, value: bytes, by_ratio: false, available },
    };
    let mut found: Vec<Finding> = background_too_late(system, &limit, ratio).into_iter().collect();
    let backings = backings(host);
    found.extend(slowest(host, &limit, &backings));
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    if backings.is_empty() {
        return Verdict::NotHere;
    }
    let shown = |backing: &Backing| backing.now.into_iter().chain(backing.since_start).reduce(f64::max);
    let enough = |backing: &&Backing| shown(backing).is_some_and(|speed| limit.bytes as f64 / speed <= DRAIN_S);
    let (shows, unknown): (Vec<&Backing>, Vec<&Backing>) = backings.iter().partition(enough);
    let slowest = shows.iter().filter_map(|backing| Some((shown(backing)?, backing)));
    match (slowest.min_by(|(a, _), (b, _)| a.total_cmp(b)), unknown.is_empty()) {
        (Some((speed, backing)), true) => Verdict::Fine(
            Sentence::new("disk.dirty-fine")
                .with("limit", show::bytes(limit.bytes as f64))
                .with("disk", called(host, backing))
                .with("speed", show::bytes(speed))
                .with("seconds", format!("{:.0}", limit.bytes as f64 / speed)),
        ),
        _ => {
            let names: Vec<String> = unknown.into_iter().map(|backing| called(host, backing)).collect();
            let what = format!("/proc/diskstats: {}", show::names(&names));
            Verdict::NotSeen { what, how: Sentence::new("disk.drain-unknown") }
        }
    }
}

fn called(host: &Host, backing: &Backing) -> String {
    match &backing.disks[..] {
        [disk] => named(host, disk),
        disks => show::names(disks),
    }
}

/// The backing on which it takes longest, and too long: one that was seen writing before those of which only the kind is known.
fn slowest(host: &Host, limit: &Limit, backings: &[Backing]) -> Option<Finding> {
    let too_slow = |speed: &f64| limit.bytes as f64 / speed > DRAIN_S;
    let measured = backings.iter().filter_map(|backing| Some((backing.now.filter(too_slow)?, backing)));
    if let Some((speed, backing)) = measured.min_by(|(a, _), (b, _)| a.total_cmp(b)) {
        return Some(long_drain(host, limit, speed, backing, true));
    }
    let unseen = backings.iter().filter(|backing| backing.now.is_none());
    let likely = unseen.filter_map(|backing| Some((backing.at_best.filter(too_slow)?, backing)));
    let (speed, backing) = likely.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
    Some(long_drain(host, limit, speed, backing, false))
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

fn long_drain(host: &Host, limit: &Limit, speed: f64, backing: &Backing, measured: bool) -> Finding {
    let seconds = limit.bytes as f64 / speed;
    let wanted = (speed * DRAIN_WANTED_S) as u64;
    let key = if measured { "disk.drain-measured" } else { "disk.drain-likely" };
    let mut evidence = vec![Evidence::new(limit.path, limit.value)];
    if limit.by_ratio {
        evidence.push(Evidence::new("/proc/meminfo", format!("MemAvailable: {} kB", limit.available / 1024)));
    }
    if measured {
        let disks = backing.disks.join(" ");
        evidence.push(Evidence::new("/proc/diskstats", format!("{disks} {}/s", show::bytes(speed))));
    } else {
        let disk = |disk: &String| {
            let rotational = host.topology.disks.get(disk).is_some_and(|disk| disk.rotational);
            Evidence::new(format!("/sys/block/{disk}/queue/rotational"), u8::from(rotational))
        };
        evidence.extend(backing.disks.iter().take(4).map(disk));
    }
    let what =
        Sentence::new("disk.drain-remedy").with("wanted", show::bytes(wanted as f64)).with("seconds", DRAIN_WANTED_S);
    let percent = wanted.saturating_mul(100) / limit.available.max(1);
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
        severity: if measured { Severity::Warning } else { Severity::Note },
        confidence: if measured { Confidence::Computed } else { Confidence::Likely },
        text: Sentence::new(key)
            .with("limit", show::bytes(limit.bytes as f64))
            .with("speed", show::bytes(speed))
            .with("seconds", format!("{seconds:.0}"))
            .with("disk", called(host, backing)),
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

#[cfg(test)]
mod tests {
    use super::super::super::expect::{command, fine, not_here, not_seen, one, text, writes};
    use super::*;
    use crate::fixture::Tree;

    const DISK: &str = "0000:03:00.0";

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
        assert_eq!(not_seen(&writing(750_000), 43), "/proc/diskstats: vda");
    }

    #[test]
    fn of_an_idle_disk_its_kind_tells_the_least_time() {
        let finding = one(&spinning(dirty(100, 20)), 43);
        assert!(
            text(&finding).contains("; sda writes 280.0 MB/s at best, so that takes 77 s or more"),
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

    /// Since the host started: sectors written, and milliseconds with something to do, of each disk.
    fn done(tree: Tree, disks: &[(&str, u64, u64)]) -> Tree {
        let line = |(name, sectors, ms): &(&str, u64, u64)| format!("8 0 {name} 0 0 0 0 9 0 {sectors} 0 0 {ms} 0\n");
        tree.file("/proc/uptime", "90000.00 1.00").file("/proc/diskstats", &disks.iter().map(line).collect::<String>())
    }

    #[test]
    fn where_the_kind_tells_nothing_no_speed_is_guessed_and_nothing_is_cleared() {
        let raid = |tree: Tree| {
            tree.pci("0000:04:00.0", 0x010400, 0).driver("0000:04:00.0", "megaraid_sas").disk("sdb", "0000:04:00.0", 9)
        };
        assert_eq!(not_seen(&raid(dirty(100, 20)), 43), "/proc/diskstats: sdb");
        assert_eq!(not_seen(&spinning(dirty(100, 20)).virtual_machine(), 43), "/proc/diskstats: sda");
        // What a disk could write at best clears nothing either.
        assert_eq!(not_seen(&spinning(dirty(20, 20)), 43), "/proc/diskstats: sda");
        // Beside an array of which nothing is known a slow disk is still told.
        assert!(text(&one(&raid(spinning(dirty(100, 20))), 43)).contains("sda writes 280.0 MB/s at best"));
        not_here(&dirty(100, 20), 43);
    }

    #[test]
    fn what_a_disk_wrote_while_it_worked_since_the_start_clears_it_and_each_has_to_be_cleared() {
        // 40 GB in 200 s; 4 GB may wait.
        let tree = done(spinning(dirty(20, 20)), &[("sda", 78_125_000, 200_000)]);
        assert_eq!(
            fine(&tree, 43),
            "Unwritten data: 4.3 GB at most (vm.dirty_*). The slowest disk that is written to, sda, wrote 200.0 MB/s while it had \
             something to do: 21 s."
        );
        // By a kernel that counts too little time.
        let tree = tree.file("/proc/sys/kernel/osrelease", "5.4.0-42-generic");
        not_seen(&tree, 43);
        let tree = tree.file("/proc/sys/kernel/osrelease", "6.8.0-45-generic");
        fine(&tree, 43);
        // For so long that the count of the time may have begun anew.
        not_seen(&tree.file("/proc/uptime", "5000000.00 1.00"), 43);
        // Too little to have shown anything, in small pieces, or more than such a disk can.
        for (sectors, ms) in [(1_900_000, 100), (78_125_000, 2_000_000), (78_125_000, 20_000)] {
            not_seen(&done(spinning(dirty(20, 20)), &[("sda", sectors, ms)]), 43);
        }
        let two = |sectors| {
            let tree = tree_of_two(dirty(20, 20));
            done(tree, &[("sda", 78_125_000, 200_000), ("nvme0n1", sectors, 20_000)])
        };
        assert_eq!(not_seen(&two(1_000_000), 43), "/proc/diskstats: nvme0n1");
        fine(&two(19_531_250), 43);
        // What is hardly written to has nothing waiting.
        fine(&two(9), 43);
    }

    #[test]
    fn devices_of_other_kinds_that_are_written_to_are_not_left_out_and_nothing_is_assumed_of_them() {
        for name in ["mmcblk0", "nbd0", "rbd0", "xvda", "dasda"] {
            let with = |sectors, ms| {
                let disks = [("sda", 78_125_000, 200_000), (name, sectors, ms)];
                done(spinning(dirty(20, 20)).disk(name, "", 64), &disks)
            };
            assert_eq!(not_seen(&with(1_000_000, 9), 43), format!("/proc/diskstats: {name}"));
            // What it was seen to write clears it, and what hardly is written to does not count.
            fine(&with(78_125_000, 200_000), 43);
            fine(&with(9, 9), 43);
        }
        for name in ["loop0", "ram0", "zram0", "dm-0", "md0", "bcache0"] {
            let tree = spinning(dirty(20, 20)).disk(name, "", 64).file(&format!("/sys/block/{name}/slaves/sda/x"), "");
            fine(&done(tree, &[("sda", 78_125_000, 200_000), (name, 1_000_000, 9)]), 43);
        }
        // A drive for discs has a size without one.
        not_here(&dirty(20, 20).disk("sr0", "", 1), 43);
    }

    fn tree_of_two(tree: Tree) -> Tree {
        let nvme = "0000:05:00.0";
        spinning(tree).pci(nvme, 0x010802, 0).driver(nvme, "nvme").disk("nvme0n1", nvme, 100)
    }

    #[test]
    fn disks_of_different_kinds_are_not_added_up_and_those_of_one_array_are() {
        let text_of = |tree: &Tree| text(&one(tree, 43));
        assert!(text_of(&tree_of_two(dirty(100, 20))).contains("; sda writes 280.0 MB/s at best"));
        let two = |tree: Tree| spinning(tree).disk("sdb", DISK, 4000).file("/sys/block/sdb/queue/rotational", "1");
        assert!(text_of(&two(dirty(100, 20))).contains("; sda writes 280.0 MB/s at best"));
        let joined = ["/sys/block/sda/sda1/holders/md0/x", "/sys/block/sdb/holders/md0/x"];
        let md = joined.into_iter().fold(two(dirty(100, 20)), |tree, path| tree.file(path, ""));
        assert!(text_of(&md).contains("; sda, sdb writes 560.0 MB/s at best"), "{}", text_of(&md));
        let btrfs = two(dirty(100, 20))
            .file("/sys/block/sda/sda1/start", "2048")
            .file("/sys/fs/btrfs/5f/devices/sda1/x", "")
            .file("/sys/fs/btrfs/5f/devices/sdb/x", "");
        assert!(text_of(&btrfs).contains("; sda, sdb writes 560.0 MB/s at best"));
        // What waits for ZFS does not count to this limit.
        let zfs = two(dirty(100, 20)).file("/proc/spl/kstat/zfs/tank/state", "ONLINE");
        not_here(&zfs, 43);
        assert!(
            text_of(&zfs.file("/proc/self/mounts", "/dev/sdb1 / ext4 rw 0 0\n")).contains("; sdb writes 280.0 MB/s")
        );
        // An array that wrote enough since the start, by its own counters.
        let md = done(md, &[("sda", 78_125_000, 900_000), ("sdb", 78_125_000, 900_000), ("md0", 156_250_000, 200_000)]);
        assert!(fine(&md.file(DIRTY_RATIO, "11"), 43).contains("sda, sdb, wrote 400.0 MB/s while"));
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
}
