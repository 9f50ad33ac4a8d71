//! `forebay doctor` asks a board's controller, which is OpenIPMI's simulator, by the real ipmitool.

use forebay_tests::bmc::{Bmc, memory_fault, temperature};
use forebay_tests::harness::{IoMode, TempDir, Tier, Volume, forebay, run_command, run_script, skip};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// In a namespace of mounts with a `/dev/ipmi0`, which the doctor looks for: `$0` is a folder, the rest a command.
const WITH_BOARD: &str = r#"
set -eu
mount --make-rprivate /
mkdir -p "$0/dev"
mount -t tmpfs none "$0/dev"
cp -a /dev/null /dev/zero /dev/urandom "$0/dev"
touch "$0/dev/ipmi0"
mount --bind "$0/dev" /dev
exec "$@"
"#;

/// Words of a command that runs another one on a host with a board; none where this machine lets nobody mount.
fn with_board(folder: &TempDir) -> Option<Vec<OsString>> {
    let may = run_script(MINUTE, "unshare -m true", [""; 0]);
    if !may.status.success() {
        skip(&format!("a controller of the doctor's own host: {}", may.stderr.trim()));
        return None;
    }
    let mut words = ["unshare", "-m", "bash", "-c", WITH_BOARD].map(OsString::from).to_vec();
    words.push(folder.path().into());
    Some(words)
}

/// Where `ipmitool` is found first.
fn path_with(tool: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths([tool.to_owned()].into_iter().chain(std::env::split_paths(&path))).expect("plain paths")
}

/// What the doctor says; none where this machine lets nobody mount.
fn look(folder: &TempDir, tool: &Path) -> Option<Value> {
    let words = with_board(folder)?;
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .arg(forebay())
        .args(["doctor", "--json", "--language", "en"])
        .env("PATH", path_with(tool));
    let said = run_command(MINUTE, command).expect_success();
    Some(serde_json::from_str(&said.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {}", said.describe())))
}

fn of_check<'a>(said: &'a Value, list: &str) -> Vec<&'a Value> {
    said[list].as_array().unwrap().iter().filter(|one| one["check"] == 45).collect()
}

#[test]
fn a_real_controllers_sensors_and_faults_are_found() {
    let folder = TempDir::new("doctor-bmc");
    let more =
        [&temperature(1, "System Temp", 38), &temperature(2, "Peripheral Temp", 96), memory_fault()].map(String::from);
    let bmc = Bmc::start_with(&folder.join("bmc"), None, &more.concat());
    let tool = folder.join("tool");
    bmc.tool(&tool);
    let Some(said) = look(&folder, &tool) else { return };
    let found = of_check(&said, "findings");
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!((&found[0]["id"], &found[0]["severity"]), (&"management/Peripheral-Temp".into(), &"error".into()));
    assert_eq!(found[0]["says"], "The board's controller calls Peripheral Temp critical: 96 degrees C.");
    assert_eq!(found[1]["id"], "management/log");
    let shown = found[1]["evidence"][0]["value"].as_str().unwrap();
    assert!(shown.contains("Memory #0x03") && shown.contains("Uncorrectable ECC"), "{shown}");
}

#[test]
fn a_real_controller_with_nothing_wrong_is_fine_and_one_that_is_gone_is_not_seen() {
    let folder = TempDir::new("doctor-bmc-fine");
    let bmc = Bmc::start_with(&folder.join("bmc"), None, &temperature(1, "System Temp", 38));
    let tool = folder.join("tool");
    bmc.tool(&tool);
    let Some(said) = look(&folder, &tool) else { return };
    assert!(of_check(&said, "findings").is_empty(), "{said}");
    let fine = of_check(&said, "fine");
    assert!(
        fine[0]["says"].as_str().unwrap().starts_with("Board: sensors that are ok: 1; entries of the event log: 0"),
        "{fine:?}"
    );
    assert_eq!(said["sensors"], json!([{ "sensor": "System Temp", "value": "38", "unit": "degrees C" }]));
    assert_eq!(said["log_entries"], 0);
    drop(bmc);
    let said = look(&folder, &tool).expect("it could be looked at before");
    let hidden = of_check(&said, "hidden");
    assert!(hidden[0]["what"].as_str().unwrap().starts_with("/dev/ipmi0: ipmitool: "), "{hidden:?}");
    assert!(of_check(&said, "findings").is_empty() && said.get("sensors").is_none(), "{said}");
}

#[test]
fn the_daemon_tells_what_the_board_senses_and_each_entry_of_its_log_once() {
    let folder = TempDir::new("doctor-bmc-daemon");
    let more = temperature(1, "System Temp", 38) + memory_fault();
    let bmc = Bmc::start_with(&folder.join("bmc"), None, &more);
    let tool = folder.join("tool");
    bmc.tool(&tool);
    let Some(within) = with_board(&folder) else { return };
    let mut volume = Volume::new(&folder, 16 << 20, Tier::Memory, IoMode::Uring);
    volume.within = within;
    volume.environment.push(("PATH".to_owned(), path_with(&tool)));
    let logged = || -> Vec<(String, String)> {
        let events = volume.get_json("/v1/events?kind=board-log");
        let text = |event: &Value, what: &str| event[what].as_str().unwrap().to_owned();
        events["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| (text(event, "severity"), text(event, "text")))
            .collect()
    };
    let looks_until_told = |count: usize| {
        let begun = Instant::now();
        while logged().len() < count {
            assert!(begun.elapsed() < MINUTE, "{:?} of {}", logged(), volume.get_json("/v1/doctor"));
            volume.get_json("/v1/doctor?fresh=true");
        }
    };
    let daemon = volume.start();
    looks_until_told(1);
    let (severity, text) = logged().remove(0);
    assert!(severity == "warning" && text.starts_with("the board's event log has one entry: "), "{severity}: {text}");
    assert!(text.contains("Uncorrectable ECC"), "{text}");
    let metrics = volume.get("/metrics").1;
    for line in ["forebay_board_sensor{sensor=\"System Temp\",unit=\"degrees C\"} 38", "forebay_board_log_entries 1"] {
        assert!(metrics.lines().any(|l| l == line), "no {line} in {metrics}");
    }
    // Add SEL Entry (IPMI 2.0, section 31.6): a temperature that rises above its upper limit.
    let entry = "0x0a 0x44 0 0 2 0 0 0 0 0x20 0 4 1 0x30 1 0x59 0xff 0xff";
    run_script(MINUTE, &format!("exec \"$1/ipmitool\" raw {entry}"), [&tool]).expect_success();
    looks_until_told(2);
    let (severity, text) = logged().remove(1);
    assert!(severity == "info" && text.starts_with("the board's event log: "), "{severity}: {text}");
    assert!(text.contains("Temperature"), "{text}");
    daemon.kill9();
    let daemon = volume.start();
    let doctor = volume.get_json("/v1/doctor?fresh=true");
    assert_eq!((&doctor["log_entries"], doctor["log_newest"].as_array().map(Vec::len)), (&json!(2), Some(2)));
    assert_eq!(logged().len(), 2, "a start is no news");
    daemon.stop(MINUTE);
}
