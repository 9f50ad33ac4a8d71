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
const OWN: &str = "var/lib/forebay-doctor";

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
    let line = "policy0/scaling_governor: performance -> powersave";
    assert!(back.stdout.lines().any(|told| told.ends_with(line)), "{}", back.describe());
    assert_eq!(host.everything(), before);
    let nothing = host.doctor(&["--revert"]).expect_success();
    assert!(nothing.stdout.contains("Nothing that the doctor has changed"), "{}", nothing.describe());
    assert_eq!(host.everything(), before, "looking and asking change nothing");
}

/// Applies, and is killed while it measures.
fn killed(host: &Host) {
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
}

#[test]
fn the_guard_takes_back_what_nobody_has_kept_when_its_time_is_over_and_nothing_else() {
    let host = Host::new("doctor-guard");
    let before = host.everything();
    killed(&host);
    let begun = Instant::now();
    host.doctor(&["--guard", "1", "1"]).expect_success();
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(host.everything(), before);
    host.doctor(&["--apply", "cpu-clock/governor"]).expect_success();
    let kept = host.everything();
    let second = (POLICIES + 1).to_string();
    host.doctor(&["--guard", &second, "0"]).expect_success();
    assert_eq!(host.everything(), kept);
}

/// A host with a bond that sends everything by one member, and what it hashes by.
fn with_bond(name: &str) -> (Host, PathBuf) {
    let host = Host::new(name);
    for interface in ["eth0", "eth1", "bond0"] {
        for (file, value) in [("mtu", "1500\n"), ("carrier", "1\n"), ("speed", "25000\n"), ("type", "1\n")] {
            host.put(&format!("sys/class/net/{interface}/{file}"), value);
        }
    }
    for interface in ["eth0", "eth1"] {
        std::fs::create_dir(host.0.join(&format!("sys/class/net/{interface}/device"))).unwrap();
    }
    let bonding = "sys/class/net/bond0/bonding";
    for (file, value) in [("mode", "802.3ad 4\n"), ("slaves", "eth0 eth1\n"), ("xmit_hash_policy", "layer2 0\n")] {
        host.put(&format!("{bonding}/{file}"), value);
    }
    host.put(
        "forebay/net/neighbours.json",
        r#"{"is":[{"interface":"bond0","address":"10.0.0.9","hardware":"aa:bb"}]}"#,
    );
    let hash = host.0.join(&format!("{bonding}/xmit_hash_policy"));
    (host, hash)
}

fn wait_for(path: &Path, text: &str) {
    let begun = Instant::now();
    while std::fs::read_to_string(path).unwrap() != text {
        assert!(begun.elapsed() < MINUTE, "{} never became {text:?}", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_can_cut_off_goes_back_unless_it_is_confirmed_also_when_who_applied_it_is_killed() {
    let (host, hash) = with_bond("doctor-confirm");
    let before = host.everything();
    let back = host.doctor(&["--apply", "bond", "--confirm-within", "1s"]).expect_failure();
    assert!(back.stderr.contains("nobody has confirmed it"), "{}", back.describe());
    assert_eq!(host.everything(), before);

    let quiet = |within: &str| {
        let mut command = host.command(&["--apply", "bond", "--confirm-within", within]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut killed = quiet("2s");
    wait_for(&hash, "layer3+4");
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_for(&hash, "layer2 0\n");

    let mut confirmed = quiet("3s");
    wait_for(&hash, "layer3+4");
    host.doctor(&["--confirm"]).expect_success();
    assert!(confirmed.wait().unwrap().success());
    std::thread::sleep(Duration::from_millis(3500));
    assert_eq!(std::fs::read_to_string(&hash).unwrap(), "layer3+4", "its time is over, and it was confirmed");
    host.doctor(&["--revert"]).expect_success();
    assert_eq!(host.everything(), before);
}

#[test]
fn killed_while_it_measures_the_next_revert_has_every_byte_back() {
    let host = Host::new("doctor-killed");
    let before = host.everything();
    killed(&host);
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
fn what_is_to_persist_is_applied_again_at_boot_and_not_to_another_machine() {
    let host = Host::new("doctor-persist");
    host.put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Old CPU\n");
    let before = host.everything();
    let nothing = host.doctor(&["restore"]).expect_success();
    assert!(nothing.stdout.contains("Nothing was applied with --persist"), "{}", nothing.describe());
    let applied = host.doctor(&["--apply", "cpu-clock/governor", "--persist"]).expect_success();
    assert!(applied.stderr.contains("systemctl enable forebay-doctor.service"), "{}", applied.describe());
    let boot = |id: &str| {
        host.put("proc/sys/kernel/random/boot_id", id);
        for policy in 0..POLICIES {
            host.put(&format!("sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor"), "powersave\n");
        }
    };
    boot("4a1d\n");
    let again = json(&host.doctor(&["restore", "--json"]).expect_success());
    assert_eq!(again["changes"][0]["became"], "applied-again", "{again}");
    assert_eq!(again["changes"][0]["writes"].as_array().unwrap().len(), POLICIES);
    assert!((0..POLICIES).all(|policy| host.governor(policy) == "performance"));

    boot("5b2e\n");
    host.put("proc/cpuinfo", "processor\t: 0\nmodel name\t: New CPU\n");
    let other = host.doctor(&["restore"]).expect_failure();
    assert!(other.stdout.contains("NOT applied again") && other.stdout.contains("Old CPU"), "{}", other.describe());
    assert!((0..POLICIES).all(|policy| host.governor(policy) == "powersave\n"));
    host.put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Old CPU\n");
    host.doctor(&["restore"]).expect_success();

    host.doctor(&["--revert"]).expect_success();
    boot("6c3f\n");
    host.doctor(&["restore"]).expect_success();
    host.put("proc/sys/kernel/random/boot_id", "3f2c\n");
    assert_eq!(host.everything(), before, "taken back, it is applied no more");
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
