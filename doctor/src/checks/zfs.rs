//! Checks 63, 64 and 67: ZFS, as far as its module tells without its programs.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::nics::Gathered;
use super::{Check, disks, growth, storage};
use crate::show;

/// The checks of ZFS, in the order of their numbers.
pub const CHECKS: &[Check] = &[
    Check { number: 63, word: "zfs-cache", look: cache },
    Check { number: 64, word: "zfs-log", look: log },
    Check { number: 67, word: "zfs-settings", look: settings },
];

const KSTAT: &str = "/proc/spl/kstat/zfs";
const ARC: &str = "/proc/spl/kstat/zfs/arcstats";
const ZIL: &str = "/proc/spl/kstat/zfs/zil";
/// Pages a second that come back from swap.
const SWAPPED_PAGES: f64 = 50.0;
/// A cache of so much of the memory, while the host swaps, could give some.
const ARC_LARGE: f64 = 0.5;
/// A cache limited to less of the memory is small.
const ARC_SMALL: f64 = 0.125;
/// That it has nearly all that it may have.
const ARC_FULL: f64 = 0.9;
/// Of the memory, that lies idle.
const IDLE: f64 = 0.25;
/// Reads between the looks, from which a rate of hits says something.
const READS: u64 = 1000;
/// With fewer hits the disks are waited for.
const HITS: f64 = 0.90;
/// Waits for the log each second, from which it is what clients wait for.
const COMMITS: f64 = 10.0;

fn finding(
    check: u8,
    id: &str,
    severity: Severity,
    text: Sentence,
    evidence: Vec<Evidence>,
    help: &'static str,
) -> Finding {
    Finding {
        id: id.to_owned(),
        check,
        severity,
        confidence: Confidence::Certain,
        text,
        evidence,
        number: None,
        remedies: vec![Remedy::Explain { what: Sentence::new(help), command: None }],
    }
}

/// Parameters of the module that somebody has set: which, to what, and what that costs.
const PARAMETERS: [(&str, u64, Severity, &str, &str); 2] = [
    ("zfs_nocacheflush", 1, Severity::Warning, "zfs.no-flush", "zfs.no-flush-help"),
    ("zfs_prefetch_disable", 1, Severity::Note, "zfs.no-prefetch", "zfs.no-prefetch-help"),
];

// Check 63. Reads the statistics of ZFS's cache (ARC), twice, and parameters of its module. Rules: writers waited for memory; the host
// swaps while the cache is half of its memory; a small limit is full, memory lies idle and reads miss; a parameter leaves out flushes or
// prefetching.
fn cache(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    for (name, value, severity, key, help) in PARAMETERS {
        let path = format!("/sys/module/zfs/parameters/{name}");
        if gathered.see(host.system.number::<u64>(&path)) == Some(value) {
            let (id, text) = (format!("zfs-cache/{name}"), Sentence::new(key));
            gathered.find(finding(63, &id, severity, text, vec![Evidence::new(path, value)], help));
        }
    }
    let Some(text) = gathered.see(host.system.text(ARC)) else { return gathered.verdict() };
    let now = growth::rows(&text);
    let (Some(&size), Some(&most)) = (now.get("size"), now.get("c_max")) else { return gathered.verdict() };
    let Some(ram) = gathered.see(disks::dirty::memory(&host.system, "MemTotal")).filter(|ram| *ram > 0) else {
        return gathered.verdict();
    };
    let words = |key| {
        let text = Sentence::new(key).with("size", show::bytes(size as f64)).with("most", show::bytes(most as f64));
        text.with("ram", show::bytes(ram as f64))
    };
    let Some((grown, seconds)) = growth::grown(host, ARC) else {
        gathered.hide(ARC.to_owned(), Sentence::new("cpu.second-look"));
        return gathered.verdict();
    };
    let of = |name: &str| grown.get(name).copied().unwrap_or(0);
    let waited = of("memory_throttle_count");
    if waited > 0 {
        let shown = vec![Evidence::new(ARC, format!("memory_throttle_count: +{waited} in {seconds:.1} s"))];
        let text = words("zfs.throttled").with("times", waited);
        gathered.find(finding(63, "zfs-cache/throttled", Severity::Warning, text, shown, "zfs.arc-less-help"));
    }
    let swapped = growth::grown(host, "/proc/vmstat")
        .map_or(0.0, |(grown, seconds)| grown.get("pswpin").map_or(0.0, |pages| *pages as f64 / seconds));
    let sizes = Evidence::new(ARC, format!("size {size}, c_max {most}"));
    if swapped >= SWAPPED_PAGES && size as f64 >= ram as f64 * ARC_LARGE {
        let text = words("zfs.arc-swaps").with("pages", format!("{swapped:.0}"));
        let shown = vec![sizes.clone(), Evidence::new("/proc/vmstat", format!("pswpin {swapped:.0}/s"))];
        gathered.find(finding(63, "zfs-cache/large", Severity::Warning, text, shown, "zfs.arc-less-help"));
    }
    let reads = of("hits").saturating_add(of("misses"));
    let rate = (reads >= READS).then(|| of("hits") as f64 / reads as f64);
    let idle = gathered.see(disks::dirty::memory(&host.system, "MemAvailable")).unwrap_or(0);
    let is_small = (most as f64) < ram as f64 * ARC_SMALL && size as f64 >= most as f64 * ARC_FULL;
    if let Some(rate) = rate.filter(|rate| *rate < HITS && is_small && idle as f64 >= ram as f64 * IDLE) {
        let text =
            words("zfs.arc-small").with("misses", show::percent(1.0 - rate)).with("idle", show::bytes(idle as f64));
        let shown = vec![sizes, Evidence::new(ARC, format!("hits: +{}, misses: +{}", of("hits"), of("misses")))];
        let found = finding(63, "zfs-cache/small", Severity::Note, text, shown, "zfs.arc-more-help");
        gathered.find(Finding { number: Some(Number { is: rate, could_be: HITS, unit: "1".to_owned() }), ..found });
    }
    match rate {
        Some(rate) => gathered.fine(words("zfs.arc-fine").with("hits", show::percent(rate))),
        None => gathered.fine(words("zfs.arc-idle")),
    }
    gathered.verdict()
}

// Check 64. Reads the statistics of ZFS's logs of what has to be on disk at once (ZIL), twice. Rule: many waits, all of what was logged
// went to the pools' own disks and none to a log device, and disks that turn were written to.
fn log(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    if gathered.see(host.system.text(ZIL)).is_none() {
        return gathered.verdict();
    }
    let Some((grown, seconds)) = growth::grown(host, ZIL) else {
        gathered.hide(ZIL.to_owned(), Sentence::new("cpu.second-look"));
        return gathered.verdict();
    };
    let of = |name: &str| grown.get(name).copied().unwrap_or(0);
    let rate = of("zil_commit_count") as f64 / seconds;
    let (own, device) = (of("zil_itx_metaslab_normal_bytes"), of("zil_itx_metaslab_slog_bytes"));
    let work = growth::disks(host).unwrap_or_default();
    let turning: Vec<&str> = storage::real_disks(host)
        .filter(|(name, _)| work.get(*name).is_some_and(|work| work.written > 0.0))
        .filter(|(name, _)| super::mounts::rank(host, name) == Some(0))
        .map(|(name, _)| name.as_str())
        .collect();
    let words = |key| {
        let per_second = |bytes: u64| show::bytes(bytes as f64 / seconds);
        let text = Sentence::new(key).with("commits", format!("{rate:.0}"));
        text.with("own", per_second(own)).with("device", per_second(device))
    };
    if rate >= COMMITS && own > 0 && device == 0 && !turning.is_empty() {
        let shown = vec![
            Evidence::new(ZIL, format!("zil_commit_count: +{}", of("zil_commit_count"))),
            Evidence::new(ZIL, format!("zil_itx_metaslab_normal_bytes: +{own}, zil_itx_metaslab_slog_bytes: +0")),
            Evidence::new(format!("/sys/block/{}/queue/rotational", turning[0]), 1),
        ];
        let text = words("zfs.no-log").with("disks", show::names(&turning));
        // Which disks a pool has is shown by its programs alone.
        let found = finding(64, "zfs-log/none", Severity::Warning, text, shown, "zfs.no-log-help");
        gathered.find(Finding { confidence: Confidence::Likely, ..found });
    }
    gathered.fine(words("zfs.log-fine"));
    gathered.verdict()
}

// Check 67. Reads which pools there are (their state is check 48's). What else decides a pool's speed is not in the module's statistics.
fn settings(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let names = gathered.see(host.system.list(KSTAT)).unwrap_or_default();
    let is_pool = |name: &String| host.system.has(&format!("{KSTAT}/{name}/state"));
    let pools: Vec<String> = names.into_iter().filter(is_pool).collect();
    if !pools.is_empty() {
        let what = format!("ashift, sync, recordsize: {}", show::names(&pools));
        gathered.hide(what, Sentence::new("zfs.ask"));
    }
    gathered.verdict()
}

#[cfg(test)]
mod tests {
    use super::super::expect::{fine, not_here, not_seen, one, text};
    use super::*;
    use crate::fixture::Tree;

    const HEAD: &str = "13 1 0x01 147 39984 8 9\nname type data\n";

    fn counts(tree: Tree, path: &str, before: &str, now: &str) -> Tree {
        tree.file(path, &format!("{HEAD}{now}\n")).earlier(path, &format!("{HEAD}{before}\n"))
    }

    /// A cache of so many GiB of at most so many, on a host of 64 of which so many are idle; hits and misses since the earlier look.
    fn arc(size: u64, most: u64, idle: u64, hits: u64, misses: u64, more: &str) -> Tree {
        let sizes = format!("size 4 {}\nc_max 4 {}", size << 30, most << 30);
        let before = format!("{sizes}\nhits 4 5\nmisses 4 5\nmemory_throttle_count 4 3");
        let now = format!("{sizes}\nhits 4 {}\nmisses 4 {}\n{more}", 5 + hits, 5 + misses);
        let memory = format!("MemTotal: 67108864 kB\nMemAvailable: {} kB\n", idle << 20);
        counts(Tree::new().file("/proc/meminfo", &memory), ARC, &before, &now)
    }

    fn swaps(tree: Tree) -> Tree {
        tree.file("/proc/vmstat", "pswpin 6000\n").earlier("/proc/vmstat", "pswpin 0\n")
    }

    #[test]
    fn a_cache_that_takes_or_lacks_memory_is_told_where_it_costs() {
        for tree in [arc(40, 62, 1, 9, 9, ""), arc(40, 62, 1, 9, 9, "").virtual_machine()] {
            let large = one(&swaps(tree), 63);
            assert_eq!((large.id.as_str(), large.severity), ("zfs-cache/large", Severity::Warning));
        }
        let small = one(&arc(4, 4, 40, 7000, 3000, ""), 63);
        assert_eq!((small.id.as_str(), small.severity), ("zfs-cache/small", Severity::Note));
        assert!(text(&small).contains("30 %"), "{}", text(&small));
        let throttled = one(&arc(40, 62, 1, 9, 9, "memory_throttle_count 4 8"), 63);
        assert!(text(&throttled).contains('5'), "{}", text(&throttled));
        for (name, severity) in [("zfs_nocacheflush", Severity::Warning), ("zfs_prefetch_disable", Severity::Note)] {
            let set = Tree::new().file(&format!("/sys/module/zfs/parameters/{name}"), "1");
            assert_eq!(one(&set, 63).severity, severity);
            not_here(&Tree::new().file(&format!("/sys/module/zfs/parameters/{name}"), "0"), 63);
        }
    }

    #[test]
    fn a_cache_of_any_size_is_fine_while_nothing_shows_that_it_costs() {
        // All of the memory but one GiB is the default of newer versions.
        assert!(fine(&arc(60, 63, 1, 9900, 100, ""), 63).contains("99 %"));
        fine(&swaps(arc(20, 62, 1, 9, 9, "")), 63);
        fine(&arc(4, 4, 40, 9900, 100, ""), 63);
        fine(&arc(4, 4, 4, 7000, 3000, ""), 63);
        fine(&arc(1, 4, 40, 7000, 3000, ""), 63);
        fine(&arc(4, 4, 40, 7, 3, ""), 63);
    }

    #[test]
    fn a_cache_that_is_hidden_absent_or_seen_once_is_no_finding() {
        not_here(&Tree::new(), 63);
        assert!(not_seen(&Tree::new().hidden(ARC), 63).starts_with(ARC));
        assert!(
            not_seen(&Tree::new().hidden("/sys/module/zfs/parameters/zfs_nocacheflush"), 63).contains("nocacheflush")
        );
        let once = Tree::new().file("/proc/meminfo", "MemTotal: 9 kB\n").file(ARC, "size 4 1\nc_max 4 2\n");
        assert_eq!(not_seen(&once, 63), ARC);
        not_here(&Tree::new().file(ARC, "damaged"), 63);
    }

    /// Waits for the log in a minute, and bytes of it to the pools' own disks and to log devices.
    fn zil(waits: u64, own: u64, device: u64) -> Tree {
        let rows = |waits, own, device| {
            format!(
                "zil_commit_count 4 {waits}\nzil_itx_metaslab_normal_bytes 4 {own}\nzil_itx_metaslab_slog_bytes 4 {device}"
            )
        };
        let disk = "0000:03:00.0";
        let tree = Tree::new().pci(disk, 0x010601, 0).driver(disk, "ahci").disk("sda", disk, 9);
        let tree = tree.file("/sys/block/sda/queue/rotational", "1");
        let tree = tree.file("/proc/diskstats", "8 0 sda 1 0 9 1 5 0 99 0 0 9 0\n");
        let tree = tree.earlier("/proc/diskstats", "8 0 sda 1 0 9 1 0 0 0 0 0 9 0\n");
        counts(tree, ZIL, &rows(7, 7, 7), &rows(7 + waits, 7 + own, 7 + device))
    }

    #[test]
    fn synchronous_writes_without_a_log_device_are_told_where_disks_turn() {
        let finding = one(&zil(6000, 60_000_000, 0), 64);
        assert_eq!((finding.severity, finding.confidence), (Severity::Warning, Confidence::Likely));
        assert!(text(&finding).contains("100") && text(&finding).contains("1.0 MB"), "{}", text(&finding));
        fine(&zil(6000, 1000, 60_000_000), 64);
        fine(&zil(60, 60_000, 0), 64);
        // A disk that turns and rests is none of the pool's.
        fine(&zil(6000, 60_000_000, 0).file("/proc/diskstats", "8 0 sda 1 0 99 1 0 0 0 0 0 9 0\n"), 64);
        fine(&zil(6000, 60_000_000, 0).file("/sys/block/sda/queue/rotational", "0"), 64);
        fine(&zil(6000, 60_000_000, 0).virtual_machine(), 64);
    }

    #[test]
    fn a_log_that_is_hidden_absent_or_seen_once_is_no_finding() {
        not_here(&Tree::new(), 64);
        assert!(not_seen(&Tree::new().hidden(ZIL), 64).starts_with(ZIL));
        assert_eq!(not_seen(&Tree::new().file(ZIL, "zil_commit_count 4 9"), 64), ZIL);
    }

    #[test]
    fn what_no_file_shows_of_pools_is_said_once() {
        let pool = |state: &str| Tree::new().file("/proc/spl/kstat/zfs/tank/state", state).file(ARC, "");
        assert_eq!(not_seen(&pool("ONLINE\n"), 67), "ashift, sync, recordsize: tank");
        assert_eq!(not_seen(&pool("DEGRADED\n").virtual_machine(), 67), "ashift, sync, recordsize: tank");
        not_here(&Tree::new().file(KSTAT, "no folder"), 67);
        not_here(&Tree::new(), 67);
        not_here(&Tree::new().file(ARC, ""), 67);
    }
}
