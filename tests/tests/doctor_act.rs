//! `forebay doctor` acts on a host that is a tree of files: keeps what cures, takes back what does not, and has every byte back
//! after a kill; finds what has changed since a baseline; and tells what moves.

use forebay_tests::harness::{Output, TempDir, forebay, run_command};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const POLICIES: usize = 4;
/// Where a host has the doctor's own files.
const OWN: &str = "var/lib/forebay/doctor";

/// A host whose clocks a governor holds down.
struct Host(TempDir);

impl Host {
    fn new(name: &str) -> Host {
        let host = Host(TempDir::new(name));
        host.put("proc/sys/kernel/random/boot_id", "3f2c\n");
        host.put("proc/sys/kernel/osrelease", "6.8.0-1-amd64\n");
        for policy in 0..POLICIES {
            for (file, value) in [
                ("scaling_driver", "acpi-cpufreq\n"),
                ("scaling_governor", "powersave\n"),
                ("scaling_max_freq", "3300000\n"),
                ("cpuinfo_max_freq", "3300000\n"),
                ("cpuinfo_min_freq", "1200000\n"),
            ] {
                host.put(&format!("sys/devices/system/cpu/cpufreq/policy{policy}/{file}"), value);
            }
        }
        host
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn governor(&self, policy: usize) -> String {
        let path = format!("sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor");
        std::fs::read_to_string(self.0.join(&path)).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(forebay());
        command.args(["doctor", "--language", "en", "--sysroot"]).arg(self.0.path()).args(arguments);
        command
    }

    fn doctor(&self, arguments: &[&str]) -> Output {
        run_command(MINUTE, self.command(arguments))
    }

    /// Every file of it and what it holds, but for the doctor's own.
    fn everything(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fn add(folder: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true if path.ends_with(OWN) => {}
                    true => add(&path, all),
                    false => {
                        all.insert(path.clone(), std::fs::read(&path).unwrap());
                    }
                }
            }
        }
        let mut all = BTreeMap::new();
        add(self.0.path(), &mut all);
        all
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {}", output.describe()))
}

#[test]
fn what_cures_is_kept_and_taken_back_to_the_byte_when_asked_for() {
    let host = Host::new("doctor-kept");
    let before = host.everything();
    let applied = host.doctor(&["--apply", "cpu-clock/governor", "--json"]).expect_success();
    let change = &json(&applied)["changes"][0];
    assert_eq!(change["became"], "kept", "{change}");
    assert_eq!(change["writes"].as_array().unwrap().len(), POLICIES);
    assert_eq!(change["writes"][0]["old"], "powersave");
    assert!((0..POLICIES).all(|policy| host.governor(policy) == "performance"));
    let again = host.doctor(&["--apply", "cpu-clock/governor"]).expect_failure();
    assert!(again.stderr.contains("there is no finding"), "{}", again.describe());
    let back = host.doctor(&["--revert", "cpu-clock/governor"]).expect_success();
    assert_eq!(back.stdout.lines().filter(|line| line.starts_with("cpu-clock/governor: taken back")).count(), POLICIES);
    assert_eq!(host.everything(), before);
    let nothing = host.doctor(&["--revert"]).expect_success();
    assert!(nothing.stdout.contains("Nothing that the doctor has changed"), "{}", nothing.describe());
    assert_eq!(host.everything(), before, "looking and asking change nothing");
}

#[test]
fn killed_while_it_measures_the_next_revert_has_every_byte_back() {
    let host = Host::new("doctor-killed");
    let before = host.everything();
    let mut command = host.command(&["--apply", "cpu-clock/governor", "--settle", "1h"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while host.governor(POLICIES - 1) != "performance" {
        assert!(begun.elapsed() < MINUTE, "it never applied anything");
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it had applied anything");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(host.everything(), before);
    let back = json(&host.doctor(&["--revert", "--json"]).expect_success());
    let changes = back["changes"].as_array().unwrap();
    assert_eq!(changes.len(), POLICIES);
    assert!(changes.iter().all(|change| change["became"] == "reverted"), "{back}");
    assert_eq!(host.everything(), before);
}

#[test]
fn after_a_reboot_nothing_is_written() {
    let host = Host::new("doctor-reboot");
    host.doctor(&["--apply", "cpu-clock"]).expect_success();
    host.put("proc/sys/kernel/random/boot_id", "4a1d\n");
    let before = host.everything();
    let back = json(&host.doctor(&["--revert", "--json"]).expect_success());
    assert!(back["changes"].as_array().unwrap().iter().all(|change| change["became"] == "gone"), "{back}");
    assert_eq!(host.everything(), before);
}

#[test]
fn a_baseline_tells_what_got_worse_and_its_exit_code_does_too() {
    let host = Host::new("doctor-baseline");
    host.put("proc/sys/vm/zone_reclaim_mode", "0\n");
    host.put("proc/sys/net/core/rmem_max", "16777216\n");
    host.doctor(&["baseline", "save"]).expect_success();
    host.doctor(&["baseline", "check"]).expect_success();
    host.put("proc/sys/kernel/osrelease", "6.12.0-2-amd64\n");
    let newer = json(&host.doctor(&["baseline", "check", "--json"]).expect_success());
    assert_eq!(newer["differences"][0]["what"], "kernel", "{newer}");
    assert_eq!(newer["kernel"]["now"], "6.12.0-2-amd64");
    host.put("proc/sys/net/core/rmem_max", "212992\n");
    let worse = host.doctor(&["baseline", "check"]).expect_failure();
    let line = "worse   setting /proc/sys/net/core/rmem_max: 16777216 -> 212992";
    assert!(worse.stdout.lines().any(|told| told.trim() == line), "{}", worse.describe());
    let none = host.doctor(&["baseline", "check", "/nowhere/b.json"]).expect_failure();
    assert!(none.stderr.contains("/nowhere/b.json") && none.stderr.contains("baseline save"), "{}", none.describe());
}

#[test]
fn what_moves_is_told_of_this_host_with_the_rung_and_what_would_lead_higher() {
    let mut command = Command::new(forebay());
    command.args(["doctor", "watch", "--count", "2", "--json", "--language", "en"]);
    let output = run_command(MINUTE, command).expect_success();
    let lines: Vec<Value> = output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{}", output.describe());
    for line in &lines {
        let rung = line["rung"].as_u64().unwrap();
        assert!([1, 2, 4].contains(&rung), "{line}");
        assert_eq!(line["lacking"].as_array().unwrap().is_empty(), rung == 1, "{line}");
        assert!((0.9..10.0).contains(&line["seconds"].as_f64().unwrap()), "{line}");
        assert!(line["rates"].as_array().unwrap().iter().all(|rate| rate["rate"].as_f64().unwrap() >= 0.0), "{line}");
    }
}
