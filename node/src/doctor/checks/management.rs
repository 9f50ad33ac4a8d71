//! Check 45: what the board's own controller (BMC) senses and has logged, and when the fences of other nodes were last proven.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Remedy, Sentence, Severity, Verdict};
use super::super::system::{RECORDED, Seen, System};
use super::storage::state_folder;
use crate::fence_test::Proof;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where the controller is spoken to.
const CONTROLLER: &str = "/dev/ipmi0";
/// A controller that says nothing for so long is not waited for.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// A fence may have lost its cable, password or firmware since: four times a year it is to be proven.
const PROOF_DAYS: u64 = 90;
/// What the daemon is configured with where its service does not say otherwise.
const CONFIG: &str = "/etc/forebay/forebay.toml";
/// Words of the event log that tell of failing hardware.
const FAULTS: &[&str] = &["ECC", "Predictive", "Failure", "Thermal Trip", "Machine Check", "IERR", "Fatal", "AC lost"];

/// What could not be looked at, and what would show it.
type Blocked = (String, Sentence);

// Check 45. Reads what ipmitool prints of sensors and the event log, the config's fences and the proofs of them. Rules: a
// sensor is not ok; the log holds faults of hardware; a fence was never proven from here, or long ago.
pub fn management(host: &Host) -> Verdict {
    let (mut found, mut blocked, mut fine) = (Vec::new(), None::<Blocked>, None);
    match controller(&host.system) {
        Seen::Is(Ok((sensors, log))) => {
            found.extend(sensors.lines().filter_map(bad_sensor));
            found.extend(faults(&log));
            let seen = sensors.lines().filter(|line| sensor(line).is_some_and(|sensor| sensor.state == "ok")).count();
            fine = Some(Sentence::new("bmc.fine").with("sensors", seen).with("events", log.lines().count()));
        }
        Seen::Is(Err(why)) => blocked = Some(why),
        Seen::Hidden(why) => blocked = Some((why, Sentence::new("doctor.as-root"))),
        Seen::Absent => {}
    }
    match fences(&host.system) {
        Ok(Fences::Unproven(unproven)) => found.extend(unproven),
        Ok(Fences::Proven { count, days }) => {
            fine = fine.or(Some(Sentence::new("bmc.fences-fine").with("fences", count).with("days", days)));
        }
        Ok(Fences::None) => {}
        Err(why) => blocked = blocked.or(Some(why)),
    }
    match (found.is_empty(), blocked, fine) {
        (false, _, _) => Verdict::Found(found),
        (true, Some((what, how)), _) => Verdict::NotSeen { what, how },
        (true, None, Some(fine)) => Verdict::Fine(fine),
        (true, None, None) => Verdict::NotHere,
    }
}

/// What the controller says: its sensors and its log. Absent: there is none.
fn controller(system: &System) -> Seen<Result<(String, String), Blocked>> {
    if !system.is_live() {
        let (sensors, log) =
            (system.text(&format!("{RECORDED}/ipmitool-sdr")), system.text(&format!("{RECORDED}/ipmitool-sel")));
        return match (sensors, log) {
            (Seen::Is(sensors), log) => Seen::Is(Ok((sensors, log.known().unwrap_or_default()))),
            (Seen::Absent, _) => Seen::Absent,
            (Seen::Hidden(why), _) => Seen::Hidden(why),
        };
    }
    if !system.has(CONTROLLER) {
        return Seen::Absent;
    }
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open(CONTROLLER) {
        return Seen::Hidden(format!("{CONTROLLER}: {error}"));
    }
    // Both at once: some controllers take seconds for each.
    let asked = [ask(&["sdr", "list"]), ask(&["sel", "list"])];
    let until = Instant::now() + ANSWERS_WITHIN;
    let [sensors, log] = asked.map(|child| answer(child, until));
    Seen::Is(sensors.and_then(|sensors| Ok((sensors, log?))))
}

fn ask(what: &[&str]) -> std::io::Result<Child> {
    Command::new("ipmitool").args(what).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
}

fn answer(child: std::io::Result<Child>, until: Instant) -> Result<String, Blocked> {
    let mut child = match child {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err((format!("{CONTROLLER}: ipmitool is not installed"), Sentence::new("bmc.install")));
        }
        Err(error) => return Err((format!("{CONTROLLER}: ipmitool: {error}"), Sentence::new("bmc.try"))),
    };
    // Read beside, so that a long answer does not fill the pipe and stop the tool.
    let mut pipe = child.stdout.take().expect("it was asked for");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).map(|_| text)
    });
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => break Err(format!("no answer in {} s", ANSWERS_WITHIN.as_secs())),
            Err(error) => break Err(error.to_string()),
        }
    };
    if ended.is_err() {
        // It may have ended by itself meanwhile; either way it is gone after the wait.
        let _ = child.kill();
        let _ = child.wait();
    }
    let text =
        reader.join().map_err(|_| "its reader panicked".to_owned()).and_then(|text| text.map_err(|e| e.to_string()));
    let told = ended.and_then(|status| if status.success() { text } else { Err(status.to_string()) });
    told.map_err(|why| (format!("{CONTROLLER}: ipmitool: {why}"), Sentence::new("bmc.try")))
}

struct Sensor<'a> {
    name: &'a str,
    value: &'a str,
    state: &'a str,
}

/// Of a line `FAN2 | 1050 RPM | ok`.
fn sensor(line: &str) -> Option<Sensor<'_>> {
    let mut columns = line.split('|').map(str::trim);
    Some(Sensor { name: columns.next()?, value: columns.next()?, state: columns.next()? })
}

fn bad_sensor(line: &str) -> Option<Finding> {
    let sensor = sensor(line)?;
    let severity = match sensor.state {
        "nc" | "lnc" | "unc" => Severity::Warning,
        "cr" | "lcr" | "ucr" | "nr" | "lnr" | "unr" => Severity::Error,
        // ok, ns (no reading) and what a controller invents.
        _ => return None,
    };
    let key = if severity == Severity::Error { "bmc.critical" } else { "bmc.warning" };
    Some(Finding {
        id: format!("management/{}", sensor.name.replace(' ', "-")),
        check: 45,
        severity,
        confidence: Confidence::Certain,
        text: Sentence::new(key).with("sensor", sensor.name).with("value", sensor.value),
        evidence: vec![Evidence::new("ipmitool sdr list", line.trim())],
        number: None,
        remedies: vec![Remedy::Explain {
            what: Sentence::new("bmc.sensor-remedy"),
            command: Some(format!("ipmitool sensor get '{}'", sensor.name)),
        }],
    })
}

fn faults(log: &str) -> Option<Finding> {
    let is_fault = |line: &&str| FAULTS.iter().any(|word| line.contains(word)) && !line.contains("Deasserted");
    let faults: Vec<&str> = log.lines().filter(is_fault).collect();
    let last = faults.last()?;
    Some(Finding {
        id: "management/log".to_owned(),
        check: 45,
        severity: Severity::Note,
        confidence: Confidence::Certain,
        text: Sentence::new("bmc.log").with("faults", faults.len()),
        evidence: vec![Evidence::new("ipmitool sel list", last.trim())],
        number: None,
        remedies: vec![Remedy::Explain {
            what: Sentence::new("bmc.log-remedy"),
            command: Some("ipmitool sel elist".to_owned()),
        }],
    })
}

enum Fences {
    None,
    Proven { count: usize, days: u64 },
    Unproven(Vec<Finding>),
}

/// The fences that the config names, and their last proofs in the state folder.
fn fences(system: &System) -> Result<Fences, Blocked> {
    let as_root = |why| (why, Sentence::new("doctor.as-root"));
    let text = match system.text(CONFIG) {
        Seen::Is(text) => text,
        Seen::Absent => return Ok(Fences::None),
        Seen::Hidden(why) => return Err(as_root(why)),
    };
    // A config that is not valid is the daemon's to tell.
    let config: toml::Table = text.parse().unwrap_or_default();
    let listed = config.get("fence").and_then(|fences| fences.as_array()).cloned().unwrap_or_default();
    let nodes: Vec<&str> = listed.iter().filter_map(|fence| fence.get("node")?.as_str()).collect();
    let own = config.get("node").and_then(|node| node.get("state")?.as_str());
    let folder = format!("{}/fences", own.map_or_else(|| state_folder(system), str::to_owned));
    if nodes.is_empty() {
        return Ok(Fences::None);
    }
    let files = match system.list(&folder) {
        Seen::Is(files) => files,
        Seen::Absent => Vec::new(),
        Seen::Hidden(why) => return Err(as_root(why)),
    };
    let mut proofs = Vec::new();
    for file in files.iter().filter(|file| file.ends_with(".json")) {
        match system.text(&format!("{folder}/{file}")) {
            Seen::Is(text) => proofs.extend(serde_json::from_str::<Proof>(&text).ok()),
            Seen::Absent => {}
            Seen::Hidden(why) => return Err(as_root(why)),
        }
    }
    let Some(now) = now(system) else { return Ok(Fences::None) };
    let (mut unproven, mut oldest) = (Vec::new(), 0);
    for node in &nodes {
        let of_node = proofs.iter().filter(|proof| proof.fence == "power" && proof.target == *node);
        let last = of_node.map(|proof| proof.proven_unix_s).max();
        let days = last.map(|last| now.saturating_sub(last) / 86_400);
        oldest = oldest.max(days.unwrap_or(0));
        if days.is_none_or(|days| days > PROOF_DAYS) {
            unproven.push(unproven_fence(node, days, &folder));
        }
    }
    match unproven.is_empty() {
        true => Ok(Fences::Proven { count: nodes.len(), days: oldest }),
        false => Ok(Fences::Unproven(unproven)),
    }
}

/// Seconds since 1970 by the host's own clock, of a recorded host when it was recorded.
fn now(system: &System) -> Option<u64> {
    let stat = system.text("/proc/stat").known()?;
    let booted: u64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let uptime: f64 = system.text("/proc/uptime").known()?.split(' ').next()?.parse().ok()?;
    Some(booted + uptime as u64)
}

fn unproven_fence(node: &str, days: Option<u64>, folder: &str) -> Finding {
    let text = match days {
        Some(days) => Sentence::new("bmc.fence-old").with("days", days),
        None => Sentence::new("bmc.fence-never"),
    };
    let found = days.map_or("-".to_owned(), |days| format!("{days} d"));
    Finding {
        id: format!("management/fence-{node}"),
        check: 45,
        severity: if days.is_some() { Severity::Note } else { Severity::Warning },
        confidence: Confidence::Certain,
        text: text.with("node", node),
        evidence: vec![
            Evidence::new(CONFIG, format!("[[fence]] node = \"{node}\"")),
            Evidence::new(format!("{folder}/power-{node}.json"), found),
        ],
        number: None,
        remedies: vec![Remedy::Explain {
            what: Sentence::new("bmc.fence-remedy").with("node", node),
            command: Some(format!("forebay node fence-test --agent AGENT --node {node} --power-off")),
        }],
    }
}
