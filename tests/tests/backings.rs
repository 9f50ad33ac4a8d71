//! The `slow:` model beside nbdkit's delay and rate filters: both stand for the same array and must take the same time.

use forebay_tests::harness::{IoMode, Nbdkit, TempDir, Tier, Volume, require_tool, run_command};
use forebay_tests::in_both_io_modes;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SIZE: u64 = 64 << 20;

/// Mean completion latency in seconds and requests per second, by fio's NBD engine.
fn measure(folder: &Path, uri: &str, rw: &str, bs: &str, depth: u32, seconds: u32) -> (f64, f64) {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60"]).arg(require_tool("fio")).current_dir(folder);
    command.args(["--name=m", "--ioengine=nbd", &format!("--uri={uri}"), &format!("--size={SIZE}")]);
    command.args([&format!("--rw={rw}"), &format!("--bs={bs}"), &format!("--iodepth={depth}"), "--norandommap"]);
    command.args(["--time_based", &format!("--runtime={seconds}"), "--output-format=json", "--randrepeat=0"]);
    let output = run_command(Duration::from_secs(70), command).expect_success();
    // fio's nbd engine prints a line of its own before the JSON.
    let json = &output.stdout[output.stdout.find('{').expect("JSON")..];
    let report: serde_json::Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {json}"));
    let kind = if rw.contains("read") { "read" } else { "write" };
    let job = &report["jobs"][0][kind];
    (job["clat_ns"]["mean"].as_f64().unwrap() / 1e9, job["iops"].as_f64().unwrap())
}

/// Write-through reads and writes go straight to the backing: what the client sees is the model.
fn served_slow(name: &str, wrapper: &str, io: IoMode) -> (TempDir, Volume) {
    let folder = TempDir::new(name);
    let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
    // Written throughout: a hole would be answered without asking the backing.
    std::fs::write(volume.image(), vec![0x5a; SIZE as usize]).unwrap();
    volume.size = None;
    volume.policy = "through";
    volume.backing = format!("{wrapper}:{}", volume.backing);
    (folder, volume)
}

/// Whether both sides came to about the same.
fn alike(what: &str, ours: f64, theirs: f64, tolerance: f64) -> Result<(), String> {
    let ratio = ours / theirs;
    let is_alike = (1.0 - tolerance..=1.0 + tolerance).contains(&ratio);
    is_alike.then_some(()).ok_or_else(|| format!("{what}: slow: gives {ours:.4}, nbdkit {theirs:.4}, ratio {ratio:.2}"))
}

/// A model that is wrong is wrong each time; a machine that is busy with something else is not.
#[track_caller]
fn in_three_attempts(measured: impl Fn() -> Result<(), String>) {
    let wrong: Vec<String> = (0..3).map_while(|_| measured().err()).collect();
    assert!(wrong.len() < 3, "{}", wrong.join("\n"));
}

in_both_io_modes! {
    fn latency_is_that_of_nbdkits_delay_filter(io: IoMode) {
        let (folder, volume) = served_slow("slow-latency", "slow:latency=20ms", io);
        let _daemon = volume.start();
        let image = folder.join("theirs");
        std::fs::write(&image, vec![0x5a; SIZE as usize]).unwrap();
        let nbdkit = Nbdkit::start(&folder, ["--filter=delay", "file", image.to_str().unwrap(), "rdelay=20ms", "wdelay=20ms"]);
        in_three_attempts(|| {
            let (ours, _) = measure(folder.path(), &volume.uri(), "randread", "4k", 1, 2);
            let (theirs, _) = measure(folder.path(), &nbdkit.uri(), "randread", "4k", 1, 2);
            alike("read latency", ours, theirs, 0.25)
        });
    }

    fn throughput_is_that_of_nbdkits_rate_filter(io: IoMode) {
        let (folder, volume) = served_slow("slow-rate", "slow:rate=16M", io);
        let _daemon = volume.start();
        let image = folder.join("theirs");
        std::fs::write(&image, vec![0x5a; SIZE as usize]).unwrap();
        // The rate filter counts bits, and lets two seconds of them pass at once unless told otherwise.
        let rate = format!("rate={}", (16 << 20) * 8);
        let nbdkit = Nbdkit::start(&folder, ["--filter=rate", "file", image.to_str().unwrap(), &rate, "burstiness=0.1"]);
        in_three_attempts(|| {
            let (_, ours) = measure(folder.path(), &volume.uri(), "read", "256k", 4, 3);
            let (_, theirs) = measure(folder.path(), &nbdkit.uri(), "read", "256k", 4, 3);
            alike("256 KiB reads per second", ours, theirs, 0.25)
        });
    }

    fn operations_per_second_are_what_was_asked_for_at_any_depth(io: IoMode) {
        let (folder, volume) = served_slow("slow-iops", "slow:iops=400,latency=8ms", io);
        let _daemon = volume.start();
        let (latency, alone) = measure(folder.path(), &volume.uri(), "randread", "4k", 1, 2);
        assert!(latency >= 0.0079, "one at a time takes at least the latency, took {latency:.4} s");
        assert!(alone <= 127.0, "one at a time is bounded by the latency: {alone:.0}/s");
        in_three_attempts(|| {
            let (_, many) = measure(folder.path(), &volume.uri(), "randread", "4k", 32, 3);
            let is_right = (320.0..=440.0).contains(&many);
            is_right.then_some(()).ok_or_else(|| format!("at depth 32 it gives its 400 operations: {many:.0}/s"))
        });
    }
}
