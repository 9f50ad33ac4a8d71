//! Check 47: arrays of md that lack disks, are being made whole, or are looked through.

use super::Reader;
use crate::Host;
use crate::findings::{Confidence, Evidence, Finding, Remedy, Sentence, Severity, Verdict};
use crate::show;

/// A rebuild that reaches so much of its limit is likely held back by that, and not by the disks.
const AT_LIMIT: f64 = 0.97;
/// What is done to an array of md that makes it whole, or gives it another form; the rest looks whether it is whole.
const MAKES_WHOLE: [&str; 3] = ["resync", "recover", "reshape"];
/// Members of one array that are looked at: more than md takes.
const MEMBERS: usize = 1024;

/// Check 47. Reads what md says of each array. Rules: it lacks disks, or does not run; it is being made whole, or looked through; what
/// makes it whole runs at its limit.
pub fn md(host: &Host) -> Verdict {
    let mut read = Reader::of(&host.system);
    let (mut found, mut arrays) = (Vec::new(), 0);
    for (name, _) in host.topology.disks.iter().filter(|(_, disk)| disk.kind == "md") {
        let folder = format!("/sys/block/{name}/md");
        let Some(state) = read.text(&format!("{folder}/array_state")) else { continue };
        // What holds arrays of the firmware's format (IMSM, DDF) never runs itself, as the arrays in it do, which name it after a
        // slash or a dash; nor does a name without an array.
        let metadata = read.text(&format!("{folder}/metadata_version")).unwrap_or_default();
        let holds = metadata.strip_prefix("external:").is_some_and(|format| !format.starts_with(['/', '-']));
        if state == "clear" || holds && state == "inactive" {
            continue;
        }
        arrays += 1;
        found.extend(degraded(&mut read, name, &folder, &state));
        found.extend(syncs(&mut read, name, &folder));
    }
    let fine = (arrays > 0).then(|| Sentence::new("disk.md-fine").with("arrays", arrays));
    read.verdict(found, fine)
}

/// Disks that an array surely can do without, and those that it can if the right ones fail. None: a level that is not known.
fn spares(level: &str, disks: u64) -> Option<(u64, u64)> {
    match level {
        "raid0" | "linear" => Some((0, 0)),
        "raid1" => Some((disks.saturating_sub(1), disks.saturating_sub(1))),
        "raid4" | "raid5" => Some((1, 1)),
        "raid6" => Some((2, 2)),
        "raid10" => Some((1, disks.saturating_sub(1))),
        _ => None,
    }
}

/// Whether members of an array are shown, and none of them has failed: what is missing is a place that is empty.
fn none_failed(read: &mut Reader, folder: &str) -> bool {
    let names = read.system.list(folder).known().unwrap_or_default();
    let members = names.iter().filter(|name| name.starts_with("dev-")).take(MEMBERS);
    let states: Vec<Option<String>> = members.map(|name| read.text(&format!("{folder}/{name}/state"))).collect();
    !states.is_empty() && states.iter().all(|state| state.as_ref().is_some_and(|state| !state.contains("faulty")))
}

fn degraded(read: &mut Reader, name: &str, folder: &str, state: &str) -> Option<Finding> {
    let number = |read: &mut Reader, file: &str| read.number::<u64>(&format!("{folder}/{file}"));
    // Arrays without anything to spare have no such file.
    let missing = number(read, "degraded").unwrap_or(0);
    let disks = number(read, "raid_disks").unwrap_or(0);
    let level = read.text(&format!("{folder}/level")).unwrap_or_default();
    let spares = spares(&level, disks);
    let left = spares.map(|(surely, _)| surely.saturating_sub(missing));
    let recovers = read.text(&format!("{folder}/sync_action")).as_deref() == Some("recover");
    let fails = spares.is_some_and(|(_, at_most)| missing > at_most);
    let (key, severity, remedy) = match state {
        "broken" => ("disk.md-broken", Severity::Error, Some("disk.md-stopped-remedy")),
        "inactive" => ("disk.md-inactive", Severity::Error, Some("disk.md-stopped-remedy")),
        _ if missing == 0 => return None,
        _ if fails => ("disk.md-failed", Severity::Error, Some("disk.md-stopped-remedy")),
        _ if recovers => ("disk.md-recovers", Severity::Warning, None),
        // The system's arrays of boxes with many bays have a place for each bay; two disks are a mirror that had both.
        _ if level == "raid1" && disks > 2 && none_failed(read, folder) => ("disk.md-places", Severity::Note, None),
        _ if left > Some(0) => ("disk.md-spare", Severity::Warning, Some("disk.md-degraded-remedy")),
        _ => ("disk.md-degraded", Severity::Error, Some("disk.md-degraded-remedy")),
    };
    let mut evidence = vec![Evidence::new(format!("{folder}/array_state"), state)];
    if missing > 0 {
        evidence.insert(0, Evidence::new(format!("{folder}/degraded"), missing));
    }
    if spares.is_some() {
        evidence.push(Evidence::new(format!("{folder}/level"), &level));
    }
    let command = if remedy == Some("disk.md-stopped-remedy") {
        "cat /proc/mdstat; mdadm --examine /dev/MEMBER"
    } else {
        "cat /proc/mdstat"
    };
    Some(Finding {
        id: format!("md-array/{name}"),
        check: 47,
        severity,
        confidence: if key == "disk.md-places" { Confidence::Likely } else { Confidence::Certain },
        text: Sentence::new(key)
            .with("array", name)
            .with("missing", missing)
            .with("disks", disks)
            .with("left", left.map_or("?".to_owned(), |left| left.to_string())),
        evidence,
        number: None,
        remedies: remedy
            .map(|remedy| Remedy::Explain { what: Sentence::new(remedy), command: Some(command.to_owned()) })
            .into_iter()
            .collect(),
    })
}

/// A speed in KiB a second, as in `200000 (system)`, in bytes a second. None: `none`.
fn speed_of(text: &str) -> Option<f64> {
    Some(text.split(' ').next()?.trim().parse::<u64>().ok()? as f64 * 1024.0)
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
    let speed_text = read.text(&at("sync_speed"));
    let speed = speed_text.as_deref().and_then(speed_of);
    let limit_text = read.text(&at("sync_speed_max")).unwrap_or_default();
    let mut evidence = vec![Evidence::new(at("sync_action"), &action)];
    evidence.extend(speed_text.map(|text| Evidence::new(at("sync_speed"), text)));
    let reaches = |limit: &f64| makes_whole && speed.is_some_and(|speed| speed > 0.0 && speed >= AT_LIMIT * limit);
    let limit = speed_of(&limit_text).filter(reaches);
    if limit.is_some() {
        evidence.push(Evidence::new(at("sync_speed_max"), &limit_text));
    }
    let unknown = || "?".to_owned();
    let done = done.filter(|(done, all)| done <= all && *all > 0);
    let minutes = done.zip(speed).map(|((done, all), speed)| (all - done) as f64 * 512.0 / speed / 60.0);
    let (remedy, command) = match limit_text.ends_with("(local)") {
        true => ("disk.md-local-remedy", "echo system > /sys/block/mdX/md/sync_speed_max"),
        false => ("disk.md-limit-remedy", "sysctl -w dev.raid.speed_limit_max=2000000"),
    };
    let remedies = limit.map(|_| Remedy::Explain { what: Sentence::new(remedy), command: Some(command.to_owned()) });
    Some(Finding {
        id: format!("md-array/{name}-{action}"),
        check: 47,
        severity: Severity::Note,
        confidence: if limit.is_some() { Confidence::Likely } else { Confidence::Certain },
        text: Sentence::new(if limit.is_some() { "disk.md-limit" } else { "disk.md-syncs" })
            .with("array", name)
            .with("action", &action)
            .with("share", done.map_or_else(unknown, |(done, all)| show::percent(done as f64 / all as f64)))
            .with("speed", speed.map_or_else(unknown, |speed| format!("{}/s", show::bytes(speed))))
            .with(
                "minutes",
                minutes.filter(|minutes| minutes.is_finite()).map_or_else(unknown, |minutes| format!("{minutes:.0}")),
            ),
        evidence,
        number: None,
        remedies: remedies.into_iter().collect(),
    })
}
