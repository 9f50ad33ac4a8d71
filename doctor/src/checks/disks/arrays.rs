//! Checks 47 to 49: arrays of disks that lack some, or are being made whole: md, ZFS, btrfs.

use super::Reader;
use crate::Host;
use crate::counters::matching;
use crate::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use crate::show;
use std::collections::BTreeSet;

/// A rebuild that reaches so much of its limit is held back by that, and not by the disks.
const AT_LIMIT: f64 = 0.90;
/// What is done to an array of md that makes it whole, or gives it another form; the rest looks whether it is whole.
const MAKES_WHOLE: [&str; 3] = ["resync", "recover", "reshape"];

/// Check 47. Reads what md says of each array. Rules: it lacks disks, or is broken; it is being made whole, or looked through; what
/// makes it whole runs at its limit.
pub fn md(host: &Host) -> Verdict {
    let mut read = Reader::of(&host.system);
    let (mut found, mut arrays) = (Vec::new(), 0);
    for (name, _) in host.topology.disks.iter().filter(|(_, disk)| disk.kind == "md") {
        let folder = format!("/sys/block/{name}/md");
        let Some(state) = read.text(&format!("{folder}/array_state")) else { continue };
        // What holds arrays of the firmware's format (IMSM, DDF) never runs itself, nor does a name without an array.
        let metadata = read.text(&format!("{folder}/metadata_version")).unwrap_or_default();
        if state == "clear" || metadata.starts_with("external:") && state == "inactive" {
            continue;
        }
        arrays += 1;
        found.extend(degraded(&mut read, name, &folder, &state));
        found.extend(syncs(&mut read, name, &folder));
    }
    let fine = (arrays > 0).then(|| Sentence::new("disk.md-fine").with("arrays", arrays));
    read.verdict(found, fine)
}

fn degraded(read: &mut Reader, name: &str, folder: &str, state: &str) -> Option<Finding> {
    let number = |read: &mut Reader, file: &str| read.number::<u64>(&format!("{folder}/{file}"));
    // Arrays without anything to spare have no such file.
    let missing = number(read, "degraded").unwrap_or(0);
    let disks = number(read, "raid_disks").unwrap_or(0);
    let key = match state {
        "broken" => "disk.md-broken",
        "inactive" => "disk.md-inactive",
        _ if missing > 0 => "disk.md-degraded",
        _ => return None,
    };
    let mut evidence = vec![Evidence::new(format!("{folder}/array_state"), state)];
    if missing > 0 {
        evidence.insert(0, Evidence::new(format!("{folder}/degraded"), missing));
    }
    Some(Finding {
        id: format!("md-array/{name}"),
        check: 47,
        severity: Severity::Error,
        confidence: Confidence::Certain,
        text: Sentence::new(key).with("array", name).with("missing", missing).with("disks", disks),
        evidence,
        number: None,
        remedies: vec![Remedy::Explain {
            what: Sentence::new("disk.md-degraded-remedy"),
            command: Some("cat /proc/mdstat".to_owned()),
        }],
    })
}

fn syncs(read: &mut Reader, name: &str, folder: &str) -> Option<Finding> {
    let at = |file: &str| format!("{folder}/{file}");
    let action = read.text(&at("sync_action"))?;
    let makes_whole = MAKES_WHOLE.contains(&action.as_str());
    if !makes_whole && !["check", "repair"].contains(&action.as_str()) {
        return None;
    }
    // `123 / 456`, in sectors; `none` and `delayed` before it begins.
    let done = read.text(&at("sync_completed")).and_then(|text| {
        let (done, all) = text.split_once(" / ")?;
        Some((done.trim().parse::<u64>().ok()?, all.trim().parse::<u64>().ok()?))
    });
    let speed = read.number::<u64>(&at("sync_speed")).unwrap_or(0) as f64 * 1024.0;
    // `200000 (system)`.
    let limit_text = read.text(&at("sync_speed_max")).unwrap_or_default();
    let limit =
        limit_text.split(' ').next().and_then(|limit| limit.parse::<u64>().ok()).map(|limit| limit as f64 * 1024.0);
    let mut evidence =
        vec![Evidence::new(at("sync_action"), &action), Evidence::new(at("sync_speed"), speed as u64 / 1024)];
    let limit = limit.filter(|limit| makes_whole && speed > 0.0 && speed >= AT_LIMIT * limit);
    if limit.is_some() {
        evidence.push(Evidence::new(at("sync_speed_max"), &limit_text));
    }
    let (share, minutes) = match done.filter(|(done, all)| done <= all && *all > 0) {
        Some((done, all)) => {
            let left = (all - done) as f64 * 512.0 / speed;
            (
                show::percent(done as f64 / all as f64),
                if left.is_finite() { format!("{:.0}", left / 60.0) } else { "?".to_owned() },
            )
        }
        None => ("?".to_owned(), "?".to_owned()),
    };
    let remedies = limit.map(|_| Remedy::Explain {
        what: Sentence::new("disk.md-limit-remedy"),
        command: Some("sysctl -w dev.raid.speed_limit_max=2000000".to_owned()),
    });
    Some(Finding {
        id: format!("md-array/{name}-{action}"),
        check: 47,
        severity: Severity::Note,
        confidence: Confidence::Certain,
        text: Sentence::new(if limit.is_some() { "disk.md-limit" } else { "disk.md-syncs" })
            .with("array", name)
            .with("action", &action)
            .with("share", share)
            .with("speed", show::bytes(speed))
            .with("minutes", minutes),
        evidence,
        number: None,
        remedies: remedies.into_iter().collect(),
    })
}

/// Check 48. Reads the state of each pool of ZFS. Rule: it is not online.
pub fn zfs(host: &Host) -> Verdict {
    let mut read = Reader::of(&host.system);
    let (mut found, mut pools) = (Vec::new(), 0);
    for path in matching(&host.system, "/proc/spl/kstat/zfs/*/state") {
        let Some(state) = read.text(&path) else { continue };
        pools += 1;
        if !["DEGRADED", "FAULTED", "UNAVAIL", "SUSPENDED"].contains(&state.as_str()) {
            continue;
        }
        let pool = path.rsplit('/').nth(1).unwrap_or_default();
        found.push(Finding {
            id: format!("zfs-pool/{pool}"),
            check: 48,
            severity: Severity::Error,
            confidence: Confidence::Certain,
            text: Sentence::new("disk.zfs").with("pool", pool).with("state", &state),
            evidence: vec![Evidence::new(&path, &state)],
            number: None,
            remedies: vec![Remedy::Explain {
                what: Sentence::new("disk.zfs-remedy"),
                command: Some("zpool status -x".to_owned()),
            }],
        });
    }
    let fine = (pools > 0).then(|| Sentence::new("disk.zfs-fine").with("pools", pools));
    read.verdict(found, fine)
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
        // Kernels before 5.14 do not show it.
        let errors = read.text(&errors_path);
        all_counted &= errors.is_some();
        let errors = errors.unwrap_or_default();
        // `write_errs 0`, one kind a line.
        let of_line = |line: &str| {
            let (kind, count) = line.split_once(' ')?;
            Some((kind.to_owned(), count.trim().parse::<u64>().ok().filter(|count| *count > 0)?))
        };
        let counted: Vec<(String, u64)> = errors.lines().filter_map(of_line).collect();
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
