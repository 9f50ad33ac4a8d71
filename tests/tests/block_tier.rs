//! A block device as flash tier: made, served, killed, inspected, given back; and refused where it is in use, too
//! small, or holds something.

use forebay_tests::harness::{TempDir, Tier, VOLUME_NAME, Volume, forebay, run_command, run_tool, skip};
use forebay_tests::in_both_io_modes;
use forebay_tests::kernel::{Loop, Mounted, no_fuse_or_loop};
use forebay_tests::locks::wait_for_late_writes;
use forebay_tests::pattern::load::{self, LoadOptions};
use forebay_tests::scene::{SIZE, all_there};
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const DEVICE_BYTES: u64 = 64 << 20;

/// A device of 64 MiB, and a volume whose tier it is to be.
fn volume_on_a_device(folder: &TempDir, io: forebay_tests::harness::IoMode) -> (Loop, Volume) {
    let device = Loop::attach(&folder.sparse("disk", DEVICE_BYTES));
    let mut volume = Volume::new(folder, SIZE, Tier::Flash, io);
    volume.tier_size = DEVICE_BYTES / 2;
    volume.arguments = vec!["--tier-path".into(), device.path().into()];
    (device, volume)
}

in_both_io_modes! {
    fn a_block_device_is_a_tier_over_sigkill_and_is_given_back(io: IoMode) {
        if let Some(reason) = no_fuse_or_loop() {
            return skip(reason);
        }
        let folder = TempDir::new("block-tier");
        let (device, mut volume) = volume_on_a_device(&folder, io);
        let image = volume.backing.clone();
        volume.backing = format!("slow:latency=30s:{image}");
        let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
        options.requests = Some(300);
        let daemon = volume.start();
        assert_eq!(daemon.show()["tier"]["path"], device.path().to_str().unwrap());
        load::run(&options).unwrap();
        // Nobody else gets it meanwhile.
        let point = folder.join("point");
        std::fs::create_dir(&point).unwrap();
        let words = ["-t", "ext4", device.path().to_str().unwrap(), point.to_str().unwrap()];
        let said = run_tool(MINUTE, "mount", words).expect_failure().text();
        assert!(said.contains("busy"), "{said}");
        daemon.kill9();
        wait_for_late_writes(&volume.image());
        volume.backing = image;
        let mut inspect = Command::new(forebay());
        inspect.arg("inspect").arg(device.path()).arg("--json");
        let text = run_command(MINUTE, inspect).expect_success().stdout;
        let inspected: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(inspected.to_string().contains(VOLUME_NAME), "{inspected}");
        all_there(&volume, &options);
        // Another volume does not take it for empty, and may have it once this one is deleted.
        let daemon = volume.start();
        let other = folder.sparse("other.img", SIZE);
        let create = |name: &str| {
            let words = ["create", name, "--backing", other.to_str().unwrap(), "--tier-size", "32M", "--tier-path"];
            daemon.volume_command(words.into_iter().chain([device.path().to_str().unwrap()]))
        };
        let said = create("other").expect_failure().text();
        assert!(said.contains("holds the tier of volume") || said.contains("in use"), "{said}");
        // Nothing is left of what was refused, and what the refusal has protected is as it was.
        let said = daemon.volume_command(["delete", "other"]).expect_failure().text();
        assert!(said.contains("there is no volume other"), "{said}");
        let mut inspect = Command::new(forebay());
        inspect.arg("inspect").arg(device.path()).arg("--json");
        let said = run_command(MINUTE, inspect).expect_success().stdout;
        assert!(said.contains(VOLUME_NAME), "{said}");
        daemon.volume_command(["delete", VOLUME_NAME]).expect_success();
        let said = create("other").expect_failure().text();
        assert!(said.contains("not empty") && said.contains("dd if=/dev/zero"), "{said}");
        let output = format!("of={}", device.path().display());
        run_tool(MINUTE, "dd", ["if=/dev/zero", output.as_str(), "bs=1M", "count=1", "conv=fsync"]).expect_success();
        create("other").expect_success();
    }

    /// Proves O-13: a device cannot be put aside, so nothing happens before it was wiped.
    fn a_tier_on_a_device_is_given_up_by_wiping_it(io: IoMode) {
        if let Some(reason) = no_fuse_or_loop() {
            return skip(reason);
        }
        let folder = TempDir::new("block-given-up");
        let (device, mut volume) = volume_on_a_device(&folder, io);
        let image = volume.backing.clone();
        volume.backing = format!("slow:latency=30s:{image}");
        let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
        options.requests = Some(100);
        let daemon = volume.start();
        load::run(&options).unwrap();
        daemon.kill9();
        wait_for_late_writes(&volume.image());
        volume.backing = image;
        std::fs::rename(volume.image(), folder.join("kept")).unwrap();
        std::fs::rename(folder.sparse("old", SIZE), volume.image()).unwrap();
        volume.arguments.push("--adopt-changed-backing".into());
        volume.expect_refusal().says(&["cannot be put aside", "forebay salvage", "dd if=/dev/zero"]);
        let output = format!("of={}", device.path().display());
        run_tool(MINUTE, "dd", ["if=/dev/zero", output.as_str(), "bs=1M", "count=1", "conv=fsync"]).expect_success();
        volume.start().stop(MINUTE);
        assert!(std::fs::read(volume.image()).unwrap().iter().all(|&byte| byte == 0), "it was written to");
    }

    fn a_device_in_use_too_small_or_with_a_file_system_is_refused(io: IoMode) {
        if let Some(reason) = no_fuse_or_loop() {
            return skip(reason);
        }
        let folder = TempDir::new("block-refused");
        let (device, mut volume) = volume_on_a_device(&folder, io);
        volume.tier_size = 2 * DEVICE_BYTES;
        volume.expect_refusal().says(&["the device has 67108864 bytes", "choose a smaller tier"]);
        // What was refused may be asked for again with what was wrong put right.
        volume.tier_size = DEVICE_BYTES / 2;
        run_tool(MINUTE, "mkfs.ext4", ["-q", device.path().to_str().unwrap()]).expect_success();
        let mounted = Mounted::new(&[], device.path().to_str().unwrap(), &folder.join("point"));
        volume.expect_refusal().says(&["mounted at", device.path().to_str().unwrap()]);
        drop(mounted);
        volume.expect_refusal().says(&["not empty", "dd if=/dev/zero", device.path().to_str().unwrap()]);
        run_tool(MINUTE, "fsck.ext4", ["-n", device.path().to_str().unwrap()]).expect_success();
        volume.arguments.clear();
        volume.start().stop(MINUTE);
    }
}
