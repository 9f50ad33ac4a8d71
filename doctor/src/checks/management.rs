//! Check 45: what the board's own controller (BMC) senses and has logged, and when the fences of other nodes were last proven.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Remedy, Sentence, Severity, Verdict};
use super::storage::state_folder;
use forebay_api::status::Reading;
use forebay_host::proofs::Proof;
use forebay_host::system::{Seen, System};
use forebay_io::program;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where a recorded host has what its controller said.
const TOLD_SENSORS: &str = "/forebay/ipmitool-sdr";
const TOLD_LOG: &str = "/forebay/ipmitool-sel";
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

/// Of the log's end, so many entries are looked at.
pub const NEWEST_MAX: usize = 64;

/// What could not be looked at, and what would show it.
type Blocked = (String, Sentence);

/// What the controller says: its sensors and its log. Absent: there is none.
pub type Board = Seen<Result<(String, String), Blocked>>;

/// What is told of the board besides findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardTold {
    /// Sensors that read a number.
    pub sensors: Vec<Reading>,
    /// Entries of the event log.
    pub log_entries: usize,
    /// The newest of these entries, oldest first.
    pub log_newest: Vec<String>,
}

/// None where the controller could not be asked.
pub fn told(host: &Host) -> Option<BoardTold> {
    let Some(Seen::Is(Ok((sensors, log)))) = host.board.get() else { return None };
    let reading = |line: &str| {
        let sensor = sensor(line)?;
        let (value, unit) = sensor.value.split_once(' ')?;
        value.parse::<f64>().ok().filter(|value| value.is_finite())?;
        Some(Reading { sensor: sensor.name.to_owned(), value: value.to_owned(), unit: unit.to_owned() })
    };
    let log: Vec<&str> = log.lines().collect();
    let newest = &log[log.len().saturating_sub(NEWEST_MAX)..];
    Some(BoardTold {
        sensors: sensors.lines().filter_map(reading).collect(),
        log_entries: log.len(),
        log_newest: newest.iter().map(|line| line.trim().to_owned()).collect(),
    })
}

// Check 45. Reads what ipmitool prints of sensors and the event log, the config's fences and the proofs of them. Rules: a
// sensor is not ok; the log holds faults of hardware; a fence was never proven from here, or long ago.
/// Check 45; see the module.
pub fn management(host: &Host) -> Verdict {
    let (mut found, mut blocked, mut fine) = (Vec::new(), None::<Blocked>, None);
    match host.board.get_or_init(|| controller(&host.system)) {
        Seen::Is(Ok((sensors, log))) => {
            found.extend(sensors.lines().filter_map(bad_sensor));
            found.extend(faults(log));
            let seen = sensors.lines().filter(|line| sensor(line).is_some_and(|sensor| sensor.state == "ok")).count();
            fine = Some(Sentence::new("bmc.fine").with("sensors", seen).with("events", log.lines().count()));
        }
        Seen::Is(Err(why)) => blocked = Some(why.clone()),
        Seen::Hidden(why) => blocked = Some((why.clone(), Sentence::new("doctor.as-root"))),
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
        (false, blocked, _) => Verdict::of_found(found, blocked),
        (true, Some((what, how)), _) => Verdict::NotSeen { what, how },
        (true, None, Some(fine)) => Verdict::Fine(fine),
        (true, None, None) => Verdict::NotHere,
    }
}

fn controller(system: &System) -> Board {
    if !system.is_live() {
        let (sensors, log) = (system.text(TOLD_SENSORS), system.text(TOLD_LOG));
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
    let told = sensors.and_then(|sensors| Ok((sensors, log?)));
    if let Ok((sensors, log)) = &told {
        system.told(TOLD_SENSORS, sensors);
        system.told(TOLD_LOG, log);
    }
    Seen::Is(told)
}

fn ask(what: &[&str]) -> std::io::Result<Child> {
    Command::new(program::find("ipmitool")?)
        .args(what)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
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

/// An entry of the event log tells of failing hardware.
pub fn is_fault(line: &str) -> bool {
    FAULTS.iter().any(|word| line.contains(word)) && !line.contains("Deasserted")
}

fn faults(log: &str) -> Option<Finding> {
    let faults: Vec<&str> = log.lines().filter(|line| is_fault(line)).collect();
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
            command: Some(format!("forebay node fence-check --agent AGENT --node {node} --power-off")),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::super::expect::{command, fine, found, not_here, not_seen, one, text};
    use super::*;
    use crate::fixture::Tree;

    const SENSORS: &str = "System Temp      | 37 degrees C      | ok\nFAN1             | no reading        | ns\n\
                           FAN2             | 1050 RPM          | ok\nVBAT             | 3.10 Volts        | ok\n";
    const LOG: &str = "   1 | 04/19/2024 | 12:00:00 | Power Unit #0x51 | Power off/down | Asserted\n";

    fn board(sensors: &str, log: &str) -> Tree {
        Tree::new().file("/forebay/ipmitool-sdr", sensors).file("/forebay/ipmitool-sel", log)
    }

    #[test]
    fn a_sensor_that_is_not_ok_is_told_by_how_bad_it_is() {
        let sensors = format!(
            "{SENSORS}FANA             | 225 RPM           | lnr\nCPU Temp         | 88 degrees C      | unc\n"
        );
        let found = found(&board(&sensors, LOG), 45);
        assert_eq!(text(&found[0]), "The board's controller calls FANA critical: 225 RPM.");
        assert_eq!((found[0].severity, found[1].severity), (Severity::Error, Severity::Warning));
        assert_eq!(found[1].id, "management/CPU-Temp");
        assert_eq!(command(&found[1]), "ipmitool sensor get 'CPU Temp'");
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn sensors_that_are_ok_or_switched_off_and_a_log_of_daily_events_are_fine() {
        let says = fine(&board(SENSORS, LOG), 45);
        assert_eq!(
            says,
            "Board: sensors that are ok: 3; entries of the event log: 1, none of them of failing hardware."
        );
    }

    #[test]
    fn sensors_with_a_number_are_readings_and_a_host_without_a_controller_has_none() {
        let sensors = format!("{SENSORS}Chassis Intru    | 0x00              | ok\n");
        let tree = board(&sensors, LOG);
        let host = Host::look(tree.system());
        host.examine();
        let told = told(&host).expect("there is a controller");
        let shown: Vec<String> =
            told.sensors.iter().map(|of| format!("{}={} {}", of.sensor, of.value, of.unit)).collect();
        assert_eq!(shown, ["System Temp=37 degrees C", "FAN2=1050 RPM", "VBAT=3.10 Volts"]);
        assert_eq!((told.log_entries, told.log_newest), (1, vec![LOG.trim().to_owned()]));
        let empty = Tree::new();
        let without = Host::look(empty.system());
        without.examine();
        assert_eq!(super::told(&without), None);
    }

    #[test]
    fn faults_in_the_event_log_are_told_with_the_last_one() {
        let log = format!(
            "{LOG}   2 | 05/01/2024 | 01:00:00 | Memory #0x53 | Correctable ECC | Asserted\n   \
             3 | 05/01/2024 | 01:00:09 | Power Supply #0x61 | Power Supply AC lost | Deasserted\n"
        );
        let finding = one(&board(SENSORS, &log), 45);
        assert_eq!(finding.severity, Severity::Note);
        assert_eq!(finding.evidence[0].value, "2 | 05/01/2024 | 01:00:00 | Memory #0x53 | Correctable ECC | Asserted");
    }

    #[test]
    fn a_host_without_a_controller_or_fences_has_nothing_to_say_and_what_is_hidden_is_told() {
        not_here(&Tree::new(), 45);
        not_here(&Tree::new().node(0, "0-1", 4).virtual_machine(), 45);
        assert!(not_seen(&Tree::new().hidden("/forebay/ipmitool-sdr"), 45).starts_with("/forebay/ipmitool-sdr: "));
        assert!(not_seen(&Tree::new().hidden(CONFIG), 45).starts_with("/etc/forebay/forebay.toml: "));
    }

    /// A node with a fence for beta, which was proven so many days ago.
    fn fenced(days: Option<u64>) -> Tree {
        let tree = Tree::new()
            .file(CONFIG, "[node]\n[[fence]]\nnode = \"beta\"\nagent = \"fence_ipmilan\"\n")
            .file("/proc/stat", "cpu 0\nbtime 1795000000\n")
            .file("/proc/uptime", "86400.50 0\n");
        let proof = |days: u64| {
            let at = 1_795_086_400 - days * 86_400;
            format!(
                "{{\"fence\":\"power\",\"target\":\"beta\",\"by\":\"fence_ipmilan\",\"proven_unix_s\":{at},\"took_ms\":9}}"
            )
        };
        match days {
            Some(days) => tree.file("/var/lib/forebay/fences/power-beta.json", &proof(days)),
            None => tree,
        }
    }

    #[test]
    fn a_fence_that_was_never_proven_or_long_ago_is_told() {
        let never = one(&fenced(None), 45);
        assert!(text(&never).starts_with("The fence of beta was never proven from here"));
        assert_eq!(never.severity, Severity::Warning);
        let old = one(&fenced(Some(91)), 45);
        assert_eq!(text(&old), "The fence of beta was last proven from here 91 days ago.");
        assert_eq!(old.severity, Severity::Note);
        assert_eq!(fine(&fenced(Some(90)), 45), "Fences: 1, each proven within the last 90 days.");
    }

    #[test]
    fn a_proof_of_another_fence_or_one_that_is_hidden_proves_nothing() {
        let other = fenced(Some(1)).file("/etc/forebay/forebay.toml", "[[fence]]\nnode = \"gamma\"\nagent = \"a\"\n");
        assert_eq!(one(&other, 45).id, "management/fence-gamma");
        assert!(
            not_seen(&fenced(None).hidden("/var/lib/forebay/fences/power-beta.json"), 45).contains("power-beta.json: ")
        );
        not_here(&fenced(None).file(CONFIG, "[node]\n"), 45);
        not_here(&fenced(None).file(CONFIG, "this is no config"), 45);
    }

    #[test]
    fn a_tool_that_fails_or_does_not_answer_is_told_and_not_waited_for() {
        let run = |script: &str| {
            let child = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn();
            answer(child, Instant::now() + Duration::from_millis(500))
        };
        assert_eq!(run("echo 'FAN2 | 9 RPM | ok'"), Ok("FAN2 | 9 RPM | ok\n".to_owned()));
        assert!(run("exit 3").is_err_and(|(why, _)| why.contains("exit status: 3")));
        assert!(run("exec sleep 60").is_err_and(|(why, _)| why.contains("no answer in 10 s")));
        let missing = Command::new("/nowhere/ipmitool").stdout(Stdio::piped()).spawn();
        assert!(answer(missing, Instant::now()).is_err_and(|(why, _)| why.ends_with("ipmitool is not installed")));
    }
}
