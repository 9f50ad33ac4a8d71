//! `forebay doctor` asks a board's controller, which is OpenIPMI's simulator, by the real ipmitool.

use forebay_tests::bmc::{Bmc, memory_fault, temperature};
use forebay_tests::harness::{TempDir, forebay, run_script, skip};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// In a namespace of mounts with a `/dev/ipmi0`, which the doctor looks for: `$1` is a folder, `$2` that of the tool, `$3` the doctor.
const LOOK: &str = r#"
mount --make-rprivate /
mkdir -p "$1/dev"
mount -t tmpfs none "$1/dev"
cp -a /dev/null /dev/zero /dev/urandom "$1/dev"
touch "$1/dev/ipmi0"
mount --bind "$1/dev" /dev
PATH="$2:$PATH" exec "$3" doctor --json --language en
"#;

/// What the doctor says; none where this machine lets nobody mount.
fn look(folder: &TempDir, tool: &Path) -> Option<Value> {
    let words = [folder.path(), tool, forebay()].map(|path| path.to_str().expect("a plain path").to_owned());
    let may = run_script(MINUTE, "unshare -m true", [""; 0]);
    if !may.status.success() {
        skip(&format!("a controller of the doctor's own host: {}", may.stderr.trim()));
        return None;
    }
    let script = format!("exec unshare -m bash -c 'set -eu\n{LOOK}' look \"$@\"");
    let said = run_script(MINUTE, &script, words).expect_success();
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
