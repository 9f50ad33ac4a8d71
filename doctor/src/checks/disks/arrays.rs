//! Checks 48 and 49: pools of ZFS and file systems of btrfs that lack disks. Those of md are in [`super::md`].

use super::Reader;
use crate::Host;
use crate::counters::matching;
use crate::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use std::collections::BTreeSet;

/// Check 48. Reads the state of each pool of ZFS. Rule: it is anything but online.
pub fn zfs(host: &Host) -> Verdict {
    let mut read = Reader::of(&host.system);
    let (mut found, mut pools) = (Vec::new(), 0);
    for path in matching(&host.system, "/proc/spl/kstat/zfs/*/state") {
        let Some(state) = read.text(&path) else { continue };
        let (severity, remedy) = match state.trim() {
            "" => {
                read.tells_nothing(&path, "");
                continue;
            }
            "ONLINE" => {
                pools += 1;
                continue;
            }
            "DEGRADED" => (Severity::Error, "disk.zfs-remedy"),
            // Its devices are there, or were: to replace one makes it worse.
            "SUSPENDED" | "UNAVAIL" => (Severity::Error, "disk.zfs-path-remedy"),
            "FAULTED" => (Severity::Error, "disk.zfs-look-remedy"),
            _ => (Severity::Warning, "disk.zfs-look-remedy"),
        };
        let pool = path.rsplit('/').nth(1).unwrap_or_default();
        found.push(Finding {
            id: format!("zfs-pool/{pool}"),
            check: 48,
            severity,
            confidence: Confidence::Certain,
            text: Sentence::new("disk.zfs").with("pool", pool).with("state", state.trim()),
            evidence: vec![Evidence::new(&path, &state)],
            number: None,
            remedies: vec![Remedy::Explain {
                what: Sentence::new(remedy),
                command: Some("zpool status -x".to_owned()),
            }],
        });
    }
    let fine = (pools > 0).then(|| Sentence::new("disk.zfs-fine").with("pools", pools));
    read.verdict(found, fine)
}

/// What btrfs counts of each device.
const COUNTERS: [&str; 5] = ["write_errs", "read_errs", "flush_errs", "corruption_errs", "generation_errs"];

/// The counts of a device, one a line, as in `write_errs 0`; `invalid` has none of them.
fn counts(text: &str) -> Vec<(&'static str, u64)> {
    let count = |kind: &&'static str| {
        let count = text.lines().find_map(|line| line.strip_prefix(*kind)?.strip_prefix(' '))?;
        Some((*kind, count.trim().parse::<u64>().ok()?))
    };
    COUNTERS.iter().filter_map(count).collect()
}

/// Check 49. Reads what btrfs says of each device. Rules: one is missing; errors were counted.
pub fn btrfs(host: &Host) -> Verdict {
    let mut read = Reader::of(&host.system);
    let (mut found, mut devices, mut file_systems, mut all_counted) = (Vec::new(), 0, BTreeSet::new(), true);
    for path in matching(&host.system, "/sys/fs/btrfs/*/devinfo/*/missing") {
        let folder = path.trim_end_matches("/missing");
        let parts: Vec<&str> = folder.split('/').collect();
        let [.., file_system, _, device] = parts[..] else { continue };
        let missing: Option<u8> = read.number(&path);
        let errors_path = format!("{folder}/error_stats");
        if !matches!(missing, Some(0 | 1)) && read.hidden.is_none() {
            let text = read.text(&path).unwrap_or_default();
            read.tells_nothing(&path, &text);
        }
        // Kernels before 5.14 do not show it.
        let errors = read.text(&errors_path);
        all_counted &= errors.is_some();
        let mut counted = errors.as_deref().map(counts).unwrap_or_default();
        if let Some(text) = errors.filter(|_| counted.len() < COUNTERS.len()) {
            read.tells_nothing(&errors_path, &text);
        }
        counted.retain(|(_, count)| *count > 0);
        devices += 1;
        file_systems.insert(file_system.to_owned());
        let text = |key| Sentence::new(key).with("device", device).with("file_system", file_system);
        let (text, evidence, severity, number) = if missing == Some(1) {
            (text("disk.btrfs-missing"), Evidence::new(&path, 1), Severity::Error, None)
        } else if !counted.is_empty() {
            let all = counted.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
            let kinds: Vec<String> = counted.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            let number = Number { is: all as f64, could_be: 0.0, unit: "1".to_owned() };
            let evidence = Evidence::new(errors_path, kinds.join(", "));
            (text("disk.btrfs-errors").with("errors", all), evidence, Severity::Warning, Some(number))
        } else {
            continue;
        };
        let missing = severity == Severity::Error;
        found.push(Finding {
            id: format!("btrfs/{file_system}-{device}"),
            check: 49,
            severity,
            confidence: Confidence::Certain,
            text,
            evidence: vec![evidence],
            number,
            remedies: vec![Remedy::Explain {
                what: Sentence::new(if missing { "disk.btrfs-missing-remedy" } else { "disk.btrfs-errors-remedy" }),
                command: Some(
                    if missing { "btrfs filesystem show" } else { "btrfs device stats MOUNTPOINT" }.to_owned(),
                ),
            }],
        });
    }
    let fine = (devices > 0).then(|| {
        Sentence::new(if all_counted { "disk.btrfs-fine" } else { "disk.btrfs-there" })
            .with("devices", devices)
            .with("file_systems", file_systems.len())
    });
    read.verdict(found, fine)
}
