//! Cells of docs/losses.md that need a fault put in place by hand: a tier that is gone, damaged, copied or failing, a
//! backing that is another one or hangs. Each test says which cells it proves.

use forebay_tests::harness::{Nbdkit, TempDir, Tier, Volume, forebay, run_command, run_tool, skip};
use forebay_tests::in_both_io_modes;
use forebay_tests::kernel::{Fuse, Loop, no_fuse_or_loop};
use forebay_tests::nbd::Client;
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::load::{self, LoadOptions};
use forebay_tests::scene::{SIZE, all_there, host_restarted, killed, killed_with_a_dirty_tier, tier_path};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;
const TIERS: [Tier; 2] = [Tier::Memory, Tier::Flash];
const POLICIES: [&str; 2] = ["back", "through"];

/// NBD's number for an I/O error.
const EIO: u32 = 5;

/// As if the volume had been made with `--volatile`, which a flash tier takes and does not need.
fn make_volatile(volume: &Volume) {
    let path = volume.state().join("volumes/vm1.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("volatile = false"), "{text}");
    std::fs::write(&path, text.replace("volatile = false", "volatile = true")).unwrap();
}

/// A block that nothing else contains.
fn block_of(mark: u8) -> Vec<u8> {
    (0..BLOCK).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ mark).collect()
}

/// Where a tier holds these bytes.
fn place_in(tier: &Path, bytes: &[u8]) -> u64 {
    let content = std::fs::read(tier).unwrap();
    let found = content.chunks_exact(BLOCK).position(|block| block == bytes);
    (found.expect("the tier holds the payload that was not destaged") * BLOCK) as u64
}

fn flip(path: &Path, byte: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut one = [0; 1];
    file.read_exact_at(&mut one, byte).unwrap();
    file.write_all_at(&[one[0] ^ 0x10], byte).unwrap();
}

/// Waits until `volume show` says what is wanted.
#[track_caller]
fn await_shown(daemon: &forebay_tests::harness::Daemon, what: &str, wanted: impl Fn(&serde_json::Value) -> bool) {
    let begun = Instant::now();
    loop {
        let shown = daemon.show();
        if wanted(&shown) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}: never shown: {shown}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

in_both_io_modes! {
    /// Proves L-TM-3, L-TM-4, L-TF-4, O-4: with write-through a lost tier costs no flushed write, and a start without it
    /// is the operator's decision unless it was in the memory of an earlier boot.
    fn a_lost_tier_costs_write_through_no_flushed_write(io: IoMode) {
        for tier in TIERS {
            let folder = TempDir::new("through-tier-lost");
            let (mut volume, options) = killed(&folder, "through", tier, io);
            match tier {
                Tier::Memory => host_restarted(&volume),
                Tier::Flash => std::fs::remove_file(tier_path(&volume)).unwrap(),
            }
            let history = History::read(&options.journal).unwrap();
            check::disk_after_power_loss(&history, &volume.image(), None).unwrap();
            if tier == Tier::Flash {
                volume.expect_refusal().says(&["tier", "not there", "salvage", "--adopt-changed-backing"]);
                volume.arguments.push("--adopt-changed-backing".into());
            }
            let daemon = volume.start();
            assert!(daemon.output().contains("goes on without its tier") || tier == Tier::Flash, "{}", daemon.output());
            check::volume_after_power_loss(&history, &volume.target(), None).unwrap();
            daemon.stop(MINUTE);
        }
    }

    /// Proves L-BM-3, L-BM-4, L-BF-4, O-10: without its tier a write-back volume is the crash image that its backing is, with
    /// its journal replayed.
    fn a_lost_tier_costs_write_back_what_was_dirty_and_nothing_else(io: IoMode) {
        for tier in TIERS {
            let folder = TempDir::new("back-tier-lost");
            let mut volume = Volume::new(&folder, SIZE, tier, io);
            let image = volume.backing.clone();
            // Behind, and not empty: a part of the groups arrives.
            volume.backing = format!("slow:iops=1000,latency=2ms:{image}");
            let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
            options.requests = Some(1200);
            let daemon = volume.start();
            load::run(&options).unwrap();
            // More than the first of some hundred groups, which may be in the image in part.
            await_shown(&daemon, "a part that is in the image", |shown| {
                let position = |name: &str| shown["positions"][name].as_u64().unwrap_or(0);
                20 * position("destaged") > position("accepted")
            });
            daemon.kill9();
            forebay_tests::locks::wait_for_late_writes(&volume.image());
            match tier {
                Tier::Memory => host_restarted(&volume),
                Tier::Flash => std::fs::remove_file(tier_path(&volume)).unwrap(),
            }
            volume.backing = image;
            let history = History::read(&options.journal).unwrap();
            let salvaged = volume.image_after_salvage();
            let (from, _, all) = check::image(&history, &salvaged).unwrap().groups.expect("an image check names its groups");
            assert!(0 < from && from < all, "{tier:?}: group {from} of {all}: the image is not behind, or empty");
            let before = std::fs::read(salvaged).unwrap();
            if tier == Tier::Flash {
                volume.expect_refusal().says(&["tier", "not there", "salvage", "--adopt-changed-backing"]);
                volume.arguments.push("--adopt-changed-backing".into());
            }
            let daemon = volume.start();
            let said = daemon.output();
            assert!(said.contains("not complete") || said.contains("missing"), "the loss is told: {said}");
            let mut client = Client::connect(&volume.target()).unwrap();
            let mut bytes = vec![0; 1 << 20];
            for offset in (0..SIZE).step_by(bytes.len()) {
                client.read(offset, &mut bytes).unwrap().unwrap();
                let start = offset as usize;
                assert!(bytes == before[start..start + bytes.len()], "the volume is not its image near {offset}");
            }
            daemon.stop(MINUTE);
        }
    }

    /// Proves L-BM-4, L-BF-4, O-4, O-10: what `--volatile` accepts is the loss of the host's memory with the host. Any other tier that
    /// is not where it was, or cannot be looked at, may be somewhere.
    fn a_tier_that_is_not_there_is_given_up_unasked_only_where_the_host_was_restarted(io: IoMode) {
        for tier in TIERS {
            let folder = TempDir::new("tier-away");
            let (mut volume, options) = killed_with_a_dirty_tier(&folder, tier, io);
            if tier == Tier::Flash {
                volume.arguments.push("--volatile".into());
                make_volatile(&volume);
            }
            let (path, kept) = (tier_path(&volume), tier_path(&volume).with_extension("kept"));
            let image = std::fs::read(volume.image()).unwrap();
            // A loop of links is one of the ways in which a file is there and cannot be reached, for root as well.
            std::fs::rename(&path, &kept).unwrap();
            std::os::unix::fs::symlink(&path, &path).unwrap();
            for words in [["cannot look at the tier", "nothing was changed"], ["not there", "--adopt-changed-backing"]] {
                volume.expect_refusal().says(&words);
                assert!(std::fs::read(volume.image()).unwrap() == image, "the image was changed");
                let _ = std::fs::remove_file(&path);
            }
            std::fs::rename(&kept, &path).unwrap();
            all_there(&volume, &options);
        }
    }

    /// Proves L-BM-5, L-BF-5: a payload block changed while the daemon was down. Nothing of its group reaches the backing,
    /// flash returns an error instead of it, and the message says which block it is.
    fn a_damaged_payload_is_reported_and_never_destaged(io: IoMode) {
        for tier in TIERS {
            let folder = TempDir::new("payload");
            let mut volume = Volume::new(&folder, SIZE, tier, io);
            let image = volume.backing.clone();
            volume.backing = format!("slow:latency=30s:{image}");
            let daemon = volume.start();
            let mut client = Client::connect(&volume.target()).unwrap();
            let (damaged, whole) = (block_of(1), block_of(2));
            client.write(7 * BLOCK as u64, &damaged, 0).unwrap().unwrap();
            client.flush().unwrap().unwrap();
            client.write(1 << 20, &whole, 0).unwrap().unwrap();
            client.flush().unwrap().unwrap();
            daemon.kill9();
            forebay_tests::locks::wait_for_late_writes(&volume.image());
            volume.backing = image;
            let path = tier_path(&volume);
            flip(&path, place_in(&path, &damaged) + 1234);
            let daemon = volume.start();
            let mut client = Client::connect(&volume.target()).unwrap();
            await_shown(&daemon, "the damaged block", |shown| {
                let error = shown["backing"]["error"].as_str().unwrap_or_default();
                shown["backing"]["state"] == "failing" && error.contains("checksum") && error.contains("28672")
            });
            let mut bytes = vec![0; BLOCK];
            if tier == Tier::Flash {
                let error = client.read(7 * BLOCK as u64, &mut bytes).unwrap().unwrap_err();
                assert_eq!(error.0, EIO);
            }
            client.read(1 << 20, &mut bytes).unwrap().unwrap();
            assert!(bytes == whole, "what is not damaged is served");
            assert!(daemon.show()["dirty"]["bytes"].as_u64() > Some(0), "nothing is given up");
            let on_disk = std::fs::read(volume.image()).unwrap();
            assert!(on_disk.iter().all(|&byte| byte == 0), "{tier:?}: something was destaged past the damage");
            daemon.kill9();
            // What is left can be had.
            let (salvaged, mut command) = (folder.join("salvaged"), Command::new(forebay()));
            command.arg("salvage").arg(&path).arg("--to").arg(&salvaged).arg("--json");
            // Not all of it: its exit code says so.
            let output = run_command(MINUTE, command).expect_failure();
            let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
            assert_eq!((report["lost"].as_u64(), report["replayed"].as_u64()), (Some(1), Some(1)), "{report}");
            let copied = std::fs::read(&salvaged).unwrap();
            assert!(copied[1 << 20..][..BLOCK] == whole[..] && copied[7 * BLOCK..8 * BLOCK].iter().all(|&byte| byte == 0));
        }
    }

    /// Proves L-TM-5, L-TF-5: what was written through is in the backing, whatever becomes of its record.
    fn a_damaged_payload_costs_write_through_nothing_that_the_backing_has(io: IoMode) {
        for tier in TIERS {
            let folder = TempDir::new("payload-through");
            let mut volume = Volume::new(&folder, SIZE, tier, io);
            let image = volume.backing.clone();
            volume.policy = "through";
            // The sync that would end the record takes as long as the write, and the kill comes before.
            volume.backing = format!("slow:latency=1s:{image}");
            let daemon = volume.start();
            let mut client = Client::connect(&volume.target()).unwrap();
            let written = block_of(3);
            client.write(0, &written, 0).unwrap().unwrap();
            daemon.kill9();
            forebay_tests::locks::wait_for_late_writes(&volume.image());
            volume.backing = image;
            let path = tier_path(&volume);
            flip(&path, place_in(&path, &written) + 99);
            let daemon = volume.start();
            await_shown(&daemon, "the damaged block", |shown| shown["counters"]["checksum_errors"].as_u64() > Some(0));
            let on_disk = std::fs::read(volume.image()).unwrap();
            assert!(on_disk[..BLOCK] == written[..], "{tier:?}: the image lost what it had");
            daemon.kill9();
            assert!(std::fs::read(volume.image()).unwrap()[..BLOCK] == written[..]);
        }
    }

    /// Proves L-TM-6, L-TF-6, L-BM-6, L-BF-6: damage in what the log relies upon, at rest. The start is refused, nothing is
    /// changed, and with the right bytes back in their place everything is there.
    fn damaged_metadata_is_refused_untouched(io: IoMode) {
        for policy in POLICIES {
            for tier in TIERS {
                let folder = TempDir::new("metadata");
                let (volume, options) = killed(&folder, policy, tier, io);
                let path = tier_path(&volume);
                let whole = std::fs::read(&path).unwrap();
                let image = std::fs::read(volume.image()).unwrap();
                if policy == "through" {
                    let history = History::read(&options.journal).unwrap();
                    check::image_complete(&history, &volume.image()).unwrap();
                }
                // The superblock; both checkpoints; the first entry of the table, or the header of the first batch, which
                // write-through has let go of by now.
                let first = if tier == Tier::Memory { "a descriptor in the tier is damaged" } else { "a synced batch in the tier" };
                let places: [(&[usize], &str); 3] = [
                    (&[20], "superblock: checksum mismatch"),
                    (&[BLOCK + 30, 2 * BLOCK + 30], "neither copy of its checkpoint can be read"),
                    (&[3 * BLOCK + 9], first),
                ];
                for (places, words) in &places[..if policy == "back" { 3 } else { 2 }] {
                    let mut bytes = whole.clone();
                    places.iter().for_each(|&place| bytes[place] ^= 0x10);
                    std::fs::write(&path, &bytes).unwrap();
                    volume.expect_refusal().says(&["tier", path.to_str().unwrap(), "salvage", words]);
                    assert!(std::fs::read(&path).unwrap() == bytes, "{policy} {tier:?} {places:?}: the tier was changed");
                    assert!(std::fs::read(volume.image()).unwrap() == image, "{policy} {tier:?}: the image was changed");
                }
                std::fs::write(&path, &whole).unwrap();
                all_there(&volume, &options);
            }
        }
    }

    /// Proves L-TM-12, L-TF-12, L-BM-12, L-BF-12, O-6: an older copy in a new file, and one restored in place.
    fn another_or_older_backing_is_refused_and_not_written_to(io: IoMode) {
        for policy in POLICIES {
            for tier in TIERS {
                let folder = TempDir::new("other-backing");
                let (volume, options) = killed(&folder, policy, tier, io);
                let (kept, old) = (folder.join("kept"), folder.sparse("old", SIZE));
                std::fs::rename(volume.image(), &kept).unwrap();
                std::fs::copy(&old, volume.image()).unwrap();
                volume.expect_refusal().says(&["backing.img", "inode", "salvage", "--adopt-changed-backing"]);
                assert!(std::fs::read(volume.image()).unwrap().iter().all(|&byte| byte == 0), "it was written to");
                // Shorter, in the right file.
                std::fs::remove_file(volume.image()).unwrap();
                std::fs::rename(&kept, volume.image()).unwrap();
                let image = std::fs::read(volume.image()).unwrap();
                let times = folder.sparse("times", 0);
                run_tool(MINUTE, "touch", ["-r", volume.image().to_str().unwrap(), times.to_str().unwrap()])
                    .expect_success();
                // A backup program restores content and times into the file that is there.
                std::fs::write(volume.image(), &image).unwrap();
                run_tool(MINUTE, "touch", ["-d", "yesterday", volume.image().to_str().unwrap()]).expect_success();
                volume.expect_refusal().says(&["backing.img", "last changed", "--adopt-changed-backing"]);
                run_tool(MINUTE, "touch", ["-r", times.to_str().unwrap(), volume.image().to_str().unwrap()])
                    .expect_success();
                all_there(&volume, &options);
            }
        }
    }

    /// Proves O-13: nothing of the tier reaches an image that was accepted as it is, and nothing of the tier is destroyed.
    fn an_image_that_is_accepted_stays_as_it_is(io: IoMode) {
        for tier in TIERS {
            let folder = TempDir::new("adopted");
            let (mut volume, options) = killed_with_a_dirty_tier(&folder, tier, io);
            let (kept, tier_was) = (folder.join("kept"), tier_path(&volume));
            std::fs::rename(volume.image(), &kept).unwrap();
            std::fs::rename(folder.sparse("old", SIZE), volume.image()).unwrap();
            volume.expect_refusal().says(&["inode", "--adopt-changed-backing"]);
            volume.arguments.push("--adopt-changed-backing".into());
            let daemon = volume.start();
            let aside = format!("{}.given-up", tier_was.display());
            assert!(daemon.output().contains(&format!("forebay salvage {aside} --to")), "{}", daemon.output());
            daemon.stop(MINUTE);
            assert!(std::fs::read(volume.image()).unwrap().iter().all(|&byte| byte == 0), "it was written to");

            let new = folder.join("new.img");
            let kept = kept.to_str().unwrap();
            let mut salvage = Command::new(forebay());
            salvage.args(["salvage", &aside, "--base", kept, "--to"]).arg(&new);
            run_command(MINUTE, salvage).expect_success();
            check::image_complete(&History::read(&options.journal).unwrap(), &new).unwrap();
            std::fs::remove_file(aside).unwrap();
        }
    }

    /// Proves O-3, O-2: a copy of the tier made earlier, put back in its place; and the tiers of two volumes swapped.
    fn an_older_copy_of_the_tier_is_refused(io: IoMode) {
        for tier in TIERS {
            let folder = TempDir::new("tier-copy");
            let (volume, options) = killed_with_a_dirty_tier(&folder, tier, io);
            let path = tier_path(&volume);
            let old = std::fs::read(&path).unwrap();
            let daemon = volume.start();
            load::run(&options).unwrap();
            daemon.kill9();
            forebay_tests::locks::wait_for_late_writes(&volume.image());
            let new = std::fs::read(&path).unwrap();
            std::fs::write(&path, &old).unwrap();
            let image = std::fs::read(volume.image()).unwrap();
            volume.expect_refusal().says(&["older copy", "term", "salvage"]);
            assert!(std::fs::read(&path).unwrap() == old, "the tier was changed");
            assert!(std::fs::read(volume.image()).unwrap() == image, "the image was changed");

            let other = TempDir::new("tier-swapped");
            let (second, seconds) = killed_with_a_dirty_tier(&other, tier, io);
            let others = std::fs::read(tier_path(&second)).unwrap();
            std::fs::write(&path, &others).unwrap();
            std::fs::write(tier_path(&second), &new).unwrap();
            volume.expect_refusal().says(&["it is the tier of volume", "put the right one back"]);
            second.expect_refusal().says(&["it is the tier of volume", "put the right one back"]);
            std::fs::write(&path, &new).unwrap();
            std::fs::write(tier_path(&second), &others).unwrap();
            all_there(&volume, &options);
            all_there(&second, &seconds);
        }
    }

    /// Proves O-9: cut off at any length, or written by a newer version.
    fn a_cut_off_or_newer_memory_tier_is_refused_untouched(io: IoMode) {
        let folder = TempDir::new("memory-cut");
        let (volume, options) = killed_with_a_dirty_tier(&folder, Tier::Memory, io);
        let path = tier_path(&volume);
        let whole = std::fs::read(&path).unwrap();
        let image = std::fs::read(volume.image()).unwrap();
        let mut newer = whole.clone();
        newer[8..10].copy_from_slice(&9u16.to_le_bytes());
        let cut_off = "it was cut off";
        let cuts = [(0, "shorter than one block"), (100, "shorter than one block"), (BLOCK, cut_off)]
            .into_iter()
            .chain([(whole.len() / 2, cut_off), (whole.len() - BLOCK, cut_off)])
            .map(|(length, words)| (whole[..length].to_vec(), words));
        for (bytes, words) in cuts.chain([(newer, "written by a newer version")]) {
            std::fs::write(&path, &bytes).unwrap();
            let refusal = volume.expect_refusal();
            refusal.says(&["tier", path.to_str().unwrap(), words]);
            assert!(std::fs::read(&path).unwrap() == bytes, "the tier was changed: {refusal}");
            assert!(std::fs::read(volume.image()).unwrap() == image, "the image was changed: {refusal}");
        }
        std::fs::write(&path, &whole).unwrap();
        all_there(&volume, &options);
    }

    /// Proves O-7: none of the formats is taken for raw, and each refusal names the format and the ways on.
    fn images_of_other_formats_are_refused(io: IoMode) {
        for format in ["qcow2", "vmdk", "vhdx", "vdi", "luks"] {
            let folder = TempDir::new("format");
            let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
            volume.size = None;
            if format == "luks" {
                let path = folder.sparse("backing.img", SIZE);
                std::fs::File::options().write(true).open(path).unwrap().write_all_at(b"LUKS\xba\xbe\0\x02", 0).unwrap();
            } else {
                let image = volume.image();
                run_tool(MINUTE, "qemu-img", ["create", "-q", "-f", format, image.to_str().unwrap(), "64M"])
                    .expect_success();
            }
            let before = std::fs::read(volume.image()).unwrap();
            volume.expect_refusal().says(&[format, "--format raw"]);
            assert!(std::fs::read(volume.image()).unwrap() == before, "{format}: the image was touched");
        }
    }

    /// Proves L-TM-11, L-TF-11, L-BM-11, L-BF-11: the backing's server hangs. Write-back goes on until the tier is full and
    /// then waits, write-through waits, and when it answers again everything is there.
    fn a_backing_that_hangs_makes_writes_wait_and_loses_nothing(io: IoMode) {
        for policy in POLICIES {
            for tier in TIERS {
                let folder = TempDir::new("hang");
                let disk = folder.sparse("disk", SIZE);
                let server = Nbdkit::start(&folder, ["file", disk.to_str().unwrap()]);
                let mut volume = Volume::new(&folder, SIZE, tier, io);
                (volume.policy, volume.size) = (policy, None);
                volume.backing = format!("{}&nbd_quiet=0s", server.uri());
                volume.tier_size = 8 << 20;
                let daemon = volume.start();
                server.signal(libc::SIGSTOP);
                let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
                // More than the tier holds.
                (options.requests, options.zero_percent) = (Some(1500), 0);
                std::thread::scope(|scope| {
                    let load = scope.spawn(|| load::run(&options));
                    await_shown(&daemon, "a write that waits", |shown| {
                        let writes = shown["counters"]["writes"].as_u64();
                        let waits = shown["dirty"]["waiting_writes"].as_u64() > Some(0);
                        waits || (policy == "through" && writes > Some(0))
                    });
                    std::thread::sleep(Duration::from_millis(500));
                    assert!(!load.is_finished(), "{policy} {tier:?}: the load ended although its backing hung");
                    if policy == "back" {
                        let dirty = daemon.show()["dirty"].clone();
                        let (held, most) = (dirty["bytes"].as_u64(), dirty["bytes_max"].as_u64().map(|most| most / 10 * 9));
                        assert!(held > most, "{tier:?}: writes waited before the tier was full: {dirty}");
                    }
                    if policy == "through" {
                        let read = History::read(&options.journal).unwrap().records.len();
                        assert!(read < 200, "{tier:?}: requests went on without the backing: {read}");
                    }
                    server.signal(libc::SIGCONT);
                    load.join().unwrap().unwrap();
                });
                check::settle_after_kill(&options.journal, &volume.target()).unwrap();
                daemon.stop(MINUTE);
                check::image_complete(&History::read(&options.journal).unwrap(), &disk).unwrap();
            }
        }
    }

    /// Proves L-TF-13, L-BF-13: the device under the tier fails. Requests fail, reads go on, the state says so, and what was
    /// flushed is there when the device works again.
    fn a_tier_that_fails_while_serving_fails_requests_and_keeps_what_was_flushed(io: IoMode) {
        if let Some(reason) = no_fuse_or_loop() {
            return skip(reason);
        }
        for policy in POLICIES {
            let folder = TempDir::new("tier-fails");
            let (disk, trigger) = (folder.sparse("disk", 64 << 20), folder.join("trigger"));
            let trigger_parameter = format!("error-file={}", trigger.display());
            let arguments = ["--filter=error", "file", disk.to_str().unwrap(), "error=EIO", "error-pwrite-rate=100%"];
            let server = Nbdkit::start(&folder, arguments.into_iter().chain([trigger_parameter.as_str()]));
            let fuse = Fuse::mount(&folder.join("tier.img"), &server.uri());
            let device = Loop::attach(fuse.file());
            let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
            volume.policy = policy;
            volume.arguments = vec!["--tier-path".into(), device.path().into()];
            let daemon = volume.start();
            let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
            (options.requests, options.zero_percent, options.errors_allowed) = (Some(400), 0, true);
            load::run(&options).unwrap();
            std::fs::write(&trigger, b"").unwrap();
            let ended = load::run(&options).unwrap_or_else(|e| panic!("{policy}: {e}: {}", daemon.show()));
            let failed = ended.totals().failed;
            assert!(failed > 0, "{policy}: the tier failed and no request did");
            await_shown(&daemon, "tier-error", |shown| shown["policy"]["reason"] == "tier-error");
            let mut client = Client::connect(&volume.target()).unwrap();
            client.read(0, &mut [0; BLOCK]).unwrap().unwrap();
            let refused = client.write(0, &[1; BLOCK], 0).unwrap().unwrap_err();
            assert_eq!(refused.0, EIO, "{policy}: a write that nobody can keep");
            daemon.kill9();
            std::fs::remove_file(&trigger).unwrap();
            let daemon = volume.start();
            let history = History::read(&options.journal).unwrap();
            check::volume_after_power_loss(&history, &volume.target(), None)
                .unwrap_or_else(|e| panic!("{policy}: {e}\n{}", daemon.output()));
            daemon.stop(MINUTE);
            drop(device);
            drop(fuse);
            drop(server);
        }
    }

    /// Proves L-TF-11, L-BF-11 for reads: one that fails now and then is begun anew, and no client hears of it.
    fn reads_that_the_backing_fails_now_and_then_succeed(io: IoMode) {
        let folder = TempDir::new("reads-fail");
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        let content: Vec<u8> = (0..SIZE / BLOCK as u64).flat_map(|block| block_of(block as u8)).collect();
        std::fs::write(volume.image(), &content).unwrap();
        volume.size = None;
        volume.backing = format!("faulty:read_error=0.4,seed=1:{}", volume.backing);
        let daemon = volume.start();
        let clients = 0..8u64;
        let read = |client: u64| {
            let mut connection = Client::connect(&volume.target()).unwrap();
            for block in (client..256).step_by(64) {
                let at = block * BLOCK as u64;
                let mut bytes = [0; BLOCK];
                connection.read(at, &mut bytes).unwrap().unwrap();
                assert_eq!(bytes[..], block_of(block as u8)[..], "block {block}");
                // Of a sector that is in no cache: what is around it is read first.
                connection.write(at + 32 * BLOCK as u64 + 100, &[7; 10], 0).unwrap().unwrap();
            }
        };
        std::thread::scope(|scope| clients.for_each(|client| drop(scope.spawn(move || read(client)))));
        let shown = daemon.show();
        assert!(shown["counters"]["repeated_reads"].as_u64() > Some(0), "{shown:#}");
        daemon.stop(MINUTE);
        let kept = std::fs::read(volume.image()).unwrap();
        let around = &kept[32 * BLOCK..33 * BLOCK];
        let mut expected = block_of(32);
        expected[100..110].fill(7);
        assert_eq!(around, expected);
    }
}
