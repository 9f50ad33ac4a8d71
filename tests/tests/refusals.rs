//! Bad input and bad days: each is refused with words that say what to do, nothing is lost by the refusal, and what
//! can be served again afterwards is.

use forebay_tests::harness::{Nbdkit, TempDir, Tier, Volume, forebay, rounds, run_command, run_tool, skip};
use forebay_tests::in_both_io_modes;
use forebay_tests::kernel::{Fuse, Mounted, no_fuse_or_loop};
use forebay_tests::locks::wait_for_late_writes;
use forebay_tests::nbd::Client;
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::load::{self, LoadOptions};
use forebay_tests::rng::Rng;
use forebay_tests::scene::{SIZE, Snapshot, all_there, killed_with_a_dirty_tier, killed_with_a_marked_tier, tier_path};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

in_both_io_modes! {
    /// Proves O-1.
    fn a_second_daemon_on_the_same_backing_is_refused_and_told_who_holds_it(io: IoMode) {
        let folder = TempDir::new("second");
        let first = Volume::new(&folder, SIZE, Tier::Flash, io);
        let daemon = first.start();
        let other = TempDir::new("second-state");
        let mut second = Volume::new(&other, SIZE, Tier::Flash, io);
        second.backing = first.backing.clone();
        let holder = format!("is in use by process {} (", daemon.pid());
        second.expect_refusal().says(&["backing.img", &holder]);
        // QEMU is stopped by the same lock.
        let qemu = run_tool(MINUTE, "qemu-io", ["-f", "raw", "-c", "write 0 4k", &first.backing]);
        assert!(qemu.expect_failure().text().contains("Failed to lock"), "stopped by something else");
        // The same state folder cannot be served twice either, whatever else is told apart.
        let inner = first.command();
        let mut command = Command::new(inner.get_program());
        for argument in inner.get_args() {
            let argument = argument.to_str().expect("plain arguments");
            let names = [("backing.img", "twin.img"), ("nbd.sock", "twin.sock"), ("api.sock", "twin-api.sock")];
            command.arg(names.iter().fold(argument.to_owned(), |argument, (from, to)| argument.replace(from, to)));
        }
        let output = run_command(MINUTE, command).expect_failure();
        let holder = format!("the state folder {} is in use by process {}", first.state().display(), daemon.pid());
        assert!(output.stderr.contains(&holder), "{}", output.describe());
        let mut client = Client::connect(&first.target()).unwrap();
        client.write(0, &[1; 512], 0).unwrap().unwrap();
    }

    fn a_refused_start_says_once_why_and_leaves_no_socket(io: IoMode) {
        let folder = TempDir::new("once");
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        for (backing, words) in [
            ("nbd://127.0.0.1:1/x".to_owned(), "Connection refused"),
            (folder.path().to_str().unwrap().to_owned(), "neither a regular file nor a block device"),
            (folder.join("none/x.img").to_str().unwrap().to_owned(), "its folder is not there"),
            ("http://host/x.img".to_owned(), "`http://` is none"),
        ] {
            volume.backing = backing;
            let refusal = volume.expect_refusal();
            assert_eq!(refusal.text.matches(words).count(), 1, "{words}: {refusal}");
            assert!(!volume.socket().exists() && !volume.api().exists(), "a socket nobody listens on is left: {refusal}");
        }
    }

    fn a_qcow2_given_as_raw_is_refused_with_the_line_that_exports_it(io: IoMode) {
        let folder = TempDir::new("qcow2");
        let image = folder.join("disk.qcow2");
        run_tool(MINUTE, "qemu-img", ["create", "-q", "-f", "qcow2", image.to_str().unwrap(), "64M"]).expect_success();
        let before = std::fs::read(&image).unwrap();
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        volume.backing = image.to_str().unwrap().to_owned();
        volume.size = None;
        volume.expect_refusal().says(&["qcow2", "--format raw", "qemu"]);
        assert!(std::fs::read(&image).unwrap() == before, "the image was touched");
        volume.arguments = vec!["--format".into(), "raw".into()];
        volume.start();
    }

    fn a_missing_backing_is_made_only_on_request(io: IoMode) {
        let folder = TempDir::new("missing");
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        volume.size = None;
        volume.expect_refusal().says(&["backing.img", "--create"]);
        assert!(!volume.image().exists());
    }

    fn sizes_of_zero_and_beyond_64_tib_are_refused_and_64_tib_is_served(io: IoMode) {
        let folder = TempDir::new("sizes");
        let sizes = [(0, "a size of 0 bytes"), ((64 << 40) + 512, "more than the largest"), (1000, "not a multiple of 512")];
        for (size, words) in sizes {
            let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
            volume.size = Some(size);
            let output = run_command(MINUTE, volume.command());
            assert!(matches!(output.status.code(), Some(1 | 2)), "size {size}: {}", output.describe());
            assert!(output.stderr.contains(words), "size {size}: {}", output.describe());
            assert!(!volume.image().exists(), "size {size}: an image was left behind");
        }
        let huge = TempDir::new("64tib");
        let mut volume = Volume::new(&huge, 64 << 40, Tier::Flash, io);
        // ext4 ends at 16 TiB; a tmpfs file may be that long, and stays sparse.
        let image = std::path::Path::new("/dev/shm").join(format!("forebay-64tib-{}-{}", std::process::id(), io.word()));
        volume.backing = image.to_str().unwrap().to_owned();
        let daemon = volume.start();
        let mut client = Client::connect(&volume.target()).unwrap();
        assert_eq!(client.size, 64 << 40);
        let last = (64u64 << 40) - 4096;
        client.write(last, &[9; 4096], 0).unwrap().unwrap();
        client.trim(1 << 40, 0xffff_f000).unwrap().unwrap();
        client.flush().unwrap().unwrap();
        let mut bytes = [0; 4096];
        client.read(last, &mut bytes).unwrap().unwrap();
        assert_eq!(bytes, [9; 4096]);
        assert!(client.read(last + 512, &mut bytes).unwrap().is_err(), "behind the end");
        drop(client);
        daemon.stop(MINUTE);
        let marker = format!("{}.forebay", image.display());
        std::fs::remove_file(&image).unwrap();
        let _ = std::fs::remove_file(marker);
    }

    fn a_memory_tier_is_refused_unless_losing_it_was_accepted(io: IoMode) {
        let folder = TempDir::new("volatile");
        let volume = Volume::new(&folder, SIZE, Tier::Memory, io);
        let mut command = Command::new(forebay());
        command.args(volume.command().get_args().filter(|a| *a != "--volatile"));
        let output = run_command(MINUTE, command);
        assert!(!output.status.success() && output.stderr.contains("--volatile"), "{}", output.describe());
    }

    fn a_truncated_tier_is_refused_untouched(io: IoMode) {
        let folder = TempDir::new("truncated");
        let (volume, options) = killed_with_a_dirty_tier(&folder, Tier::Flash, io);
        let path = tier_path(&volume);
        let whole = std::fs::read(&path).unwrap();
        let image = std::fs::read(volume.image()).unwrap();
        let cut_off = "it was cut off";
        let places = [(0, "shorter than one block"), (100, "shorter than one block"), (4096, cut_off)];
        for (length, word) in places.into_iter().chain([(whole.len() / 2, cut_off), (whole.len() - 4096, cut_off)]) {
            std::fs::write(&path, &whole[..length]).unwrap();
            let refusal = volume.expect_refusal();
            refusal.says(&[path.to_str().unwrap(), word]);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), length as u64, "the tier was changed: {refusal}");
            assert!(std::fs::read(volume.image()).unwrap() == image, "the image was changed: {refusal}");
        }
        std::fs::write(&path, &whole).unwrap();
        all_there(&volume, &options);
    }

    fn a_tier_of_a_newer_version_or_another_volume_is_refused_untouched(io: IoMode) {
        let folder = TempDir::new("newer");
        let (volume, options) = killed_with_a_dirty_tier(&folder, Tier::Flash, io);
        let path = tier_path(&volume);
        let whole = std::fs::read(&path).unwrap();
        let mut newer = whole.clone();
        newer[8..10].copy_from_slice(&9u16.to_le_bytes());
        let other_folder = TempDir::new("other");
        let (other, _) = killed_with_a_dirty_tier(&other_folder, Tier::Flash, io);
        let foreign = std::fs::read(tier_path(&other)).unwrap();
        for (name, bytes, word) in [("newer", &newer, "newer version"), ("foreign", &foreign, "it is the tier of volume")] {
            std::fs::write(&path, bytes).unwrap();
            volume.expect_refusal().says(&[word]);
            assert!(std::fs::read(&path).unwrap() == *bytes, "{name}: the tier was changed");
        }
        std::fs::write(&path, &whole).unwrap();
        all_there(&volume, &options);
    }

    /// Proves L-BF-5, L-BF-6.
    /// A flipped bit in what the log relies upon is refused or answered as an error, and never served as data: everything
    /// that is read is right. (In the newest batch, which nothing relies upon yet, it looks like a torn tail.)
    fn flipped_bits_in_a_tier_are_never_returned_as_data(io: IoMode) {
        let folder = TempDir::new("flipped");
        let (volume, options) = killed_with_a_marked_tier(&folder, Tier::Flash, io);
        let path = tier_path(&volume);
        let whole = std::fs::read(&path).unwrap();
        let before = Snapshot::of(folder.path());
        let used: Vec<usize> = (0..whole.len()).step_by(512).filter(|&s| whole[s..s + 512].iter().any(|&b| b != 0)).collect();
        let history = History::read(&options.journal).unwrap();
        let seed = Rng::fresh_seed();
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let (mut refused, mut errors, mut harmless) = (0, 0, 0);
        for round in 0..rounds(12, 200) {
            before.restore();
            let sector = used[rng.below(used.len() as u64) as usize];
            let byte = sector + rng.below(512) as usize;
            let bit = 1u8 << rng.below(8);
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[whole[byte] ^ bit], byte as u64).unwrap();
            drop(file);
            let flip = format!("seed {seed}, round {round}, byte {byte}, bit {bit:#x}");
            match volume.try_start() {
                // Of what was damaged, and of nothing else: the marker and the image are as they were.
                Err(refusal) => {
                    assert!(refusal.text.contains("checksum") || refusal.text.contains("damaged"), "{flip}: {refusal}");
                    refused += 1;
                }
                Ok(daemon) => {
                    match check::volume_after_kill(&history, &volume.target()) {
                        Ok(_) => harmless += 1,
                        // An error for what is damaged is right; wrong data is not.
                        Err(message) => {
                            assert!(message.contains("NBD error 5"), "{flip}: {message}\n{}", daemon.output());
                            errors += 1;
                        }
                    }
                    daemon.kill9();
                }
            }
            wait_for_late_writes(&volume.image());
        }
        println!("{refused} refused, {errors} answered by an error, {harmless} harmless");
        assert!(errors > 0, "most of the log is payload, and damage to it is an error of its reads alone");
    }

    fn a_backing_replaced_by_an_older_copy_is_refused_while_a_dirty_tier_waits(io: IoMode) {
        let folder = TempDir::new("replaced");
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
        options.requests = Some(200);
        let daemon = volume.start();
        load::run(&options).unwrap();
        daemon.stop(MINUTE);
        let old = folder.join("old");
        std::fs::copy(volume.image(), &old).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let plain = volume.backing.clone();
        let daemon = volume.start();
        load::run(&options).unwrap();
        daemon.drain();
        daemon.kill9();
        volume.backing = format!("slow:latency=30s:{plain}");
        let daemon = volume.start();
        load::run(&options).unwrap();
        daemon.kill9();
        wait_for_late_writes(&volume.image());
        volume.backing = plain;
        let kept = folder.join("kept");
        std::fs::rename(volume.image(), &kept).unwrap();
        std::fs::copy(&old, volume.image()).unwrap();
        volume.expect_refusal().says(&["is not the image", "its inode is", "--adopt-changed-backing"]);
        // The right image back in its place: everything is there.
        std::fs::remove_file(volume.image()).unwrap();
        std::fs::rename(&kept, volume.image()).unwrap();
        all_there(&volume, &options);
    }

    /// Proves L-BF-12.
    fn a_backing_that_vanished_is_not_made_again_while_a_dirty_tier_waits(io: IoMode) {
        let folder = TempDir::new("vanished");
        let (volume, options) = killed_with_a_dirty_tier(&folder, Tier::Flash, io);
        let kept = folder.join("kept");
        std::fs::rename(volume.image(), &kept).unwrap();
        // `volume` carries --create, as a service's command line would.
        volume.expect_refusal().says(&["backing.img", "is not there: mount its file system"]);
        assert!(!volume.image().exists(), "an empty image took its place");
        std::fs::rename(&kept, volume.image()).unwrap();
        all_there(&volume, &options);
    }

    /// Proves O-4.
    fn a_lost_flash_tier_is_not_silently_replaced_by_an_empty_one(io: IoMode) {
        let folder = TempDir::new("tier-gone");
        let (volume, options) = killed_with_a_dirty_tier(&folder, Tier::Flash, io);
        let (path, kept) = (tier_path(&volume), folder.join("tier-kept"));
        std::fs::rename(&path, &kept).unwrap();
        volume.expect_refusal().says(&["the tier", path.to_str().unwrap(), "which is not there"]);
        assert!(!path.exists(), "an empty tier took its place");
        std::fs::rename(&kept, &path).unwrap();
        all_there(&volume, &options);
    }

    /// Proves L-BF-9, L-BF-10: no client hears of it.
    fn backing_errors_lose_nothing_and_are_shown(io: IoMode) {
        for faults in ["write_error=0.05,seed=1", "sync_error=0.5,seed=2", "write_error=0.02,sync_error=0.3,seed=3"] {
            let folder = TempDir::new("faulty");
            let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
            let plain = volume.backing.clone();
            volume.backing = format!("faulty:{faults}:{plain}");
            let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
            options.requests = Some(400);
            let daemon = volume.start();
            let begun = std::time::Instant::now();
            while daemon.show()["counters"]["backing_errors"] == 0 {
                assert!(begun.elapsed() < MINUTE, "{faults}: nothing has failed: {}", daemon.show());
                load::run(&options).unwrap();
            }
            check::settle_after_kill(&options.journal, &volume.target()).unwrap_or_else(|e| panic!("{faults}: {e}"));
            daemon.kill9();
            wait_for_late_writes(&volume.image());
            volume.backing = plain;
            all_there(&volume, &options);
        }
    }

    /// Proves L-BF-10: what no sync has covered stays in the log, and is written again before the next sync.
    fn a_failed_sync_of_the_backing_frees_nothing_and_is_not_simply_repeated(io: IoMode) {
        const BYTES: usize = 1 << 20;
        for destage in ["ordered", "journaled"] {
            let folder = TempDir::new("sync-fails");
            let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
            let plain = volume.backing.clone();
            (volume.backing, volume.destage) = (format!("faulty:sync_error=1:{plain}"), destage);
            let daemon = volume.start();
            let mut client = Client::connect(&volume.target()).unwrap();
            let written: Vec<u8> = (0..BYTES).map(|at| (at / 4096) as u8 | 1).collect();
            client.write(0, &written, 0).unwrap().unwrap();
            client.flush().unwrap().unwrap();
            let begun = std::time::Instant::now();
            while daemon.show()["counters"]["backing_errors"].as_u64() < Some(3) {
                assert!(begun.elapsed() < MINUTE, "no sync has failed: {}", daemon.show());
                std::thread::sleep(Duration::from_millis(50));
            }
            let shown = daemon.show();
            assert_eq!(shown["backing"]["state"], "failing", "{destage}: {shown}");
            assert_eq!(shown["positions"]["destaged"], 0, "{destage}: freed without a sync: {shown}");
            assert!(shown["dirty"]["bytes"].as_u64() >= Some(BYTES as u64), "{destage}: {shown}");
            let sent = ["backing_write_bytes", "journal_write_bytes"].map(|name| shown["counters"][name].as_u64().unwrap());
            assert!(sent[0] + sent[1] >= 2 * BYTES as u64, "{destage}: synced again, and not written again: {shown}");
            daemon.kill9();
            wait_for_late_writes(&volume.image());
            volume.backing = plain;
            volume.start().stop(MINUTE);
            assert!(std::fs::read(volume.image()).unwrap()[..BYTES] == written[..], "{destage}: it is not in the image");
        }
    }

    /// Proves L-BF-9.
    /// nbdkit's error filter behind nbdfuse: a server of foreign make that fails, until its trigger file goes away.
    fn errors_of_a_foreign_server_lose_nothing(io: IoMode) {
        if let Some(reason) = no_fuse_or_loop() {
            return skip(reason);
        }
        let folder = TempDir::new("nbdkit-error");
        let (disk, trigger) = (folder.sparse("disk", SIZE), folder.join("trigger"));
        let trigger_parameter = format!("error-file={}", trigger.display());
        let arguments = ["--filter=error", "file", disk.to_str().unwrap(), "error=EIO", "error-pwrite-rate=20%"];
        let server = Nbdkit::start(&folder, arguments.into_iter().chain([trigger_parameter.as_str()]));
        let fuse = Fuse::mount(&folder.join("remote.img"), &server.uri());
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        volume.backing = fuse.file().to_str().unwrap().to_owned();
        volume.size = None;
        let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
        options.requests = Some(250);
        let daemon = volume.start();
        std::fs::write(&trigger, b"").unwrap();
        load::run(&options).unwrap();
        let begun = std::time::Instant::now();
        while daemon.show()["counters"]["backing_errors"] == 0 {
            assert!(begun.elapsed() < MINUTE, "no write has failed: {}", daemon.show());
            std::thread::sleep(Duration::from_millis(50));
        }
        check::settle_after_kill(&options.journal, &volume.target()).unwrap();
        std::fs::remove_file(&trigger).unwrap();
        while daemon.show()["backing"]["state"] != "ready" {
            assert!(begun.elapsed() < MINUTE, "the server is well again, the volume is not: {}", daemon.show());
            std::thread::sleep(Duration::from_millis(50));
        }
        daemon.stop(MINUTE);
        drop(fuse);
        drop(server);
        check::image_complete(&History::read(&options.journal).unwrap(), &disk).unwrap();
    }

    /// Proves L-BF-9.
    fn a_full_backing_holds_the_data_in_the_log_and_recovers_when_there_is_room(io: IoMode) {
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return skip("needs root to mount a small tmpfs");
        }
        let folder = TempDir::new("enospc");
        let mount = folder.join("small");
        let mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=8m"], "tmpfs", &mount);
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        let image = mount.join("disk.img");
        volume.backing = image.to_str().unwrap().to_owned();
        let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
        options.requests = Some(1500);
        options.zero_percent = 0;
        let daemon = volume.start();
        load::run(&options).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let shown = daemon.show();
        assert_eq!(shown["backing"]["state"], "failing", "{shown}");
        // The log tells once what began, and once that it is over.
        let told = |words: &str| {
            let begun = std::time::Instant::now();
            while !daemon.output().contains(words) {
                assert!(begun.elapsed() < MINUTE, "not told: {words}: {}", daemon.output());
                std::thread::sleep(Duration::from_millis(100));
            }
            assert_eq!(daemon.output().matches(words).count(), 1, "{}", daemon.output());
        };
        told("the backing fails: no space left");
        check::settle_after_kill(&options.journal, &volume.target()).unwrap();
        run_tool(MINUTE, "mount", ["-o", "remount,size=100m", mount.to_str().unwrap()]).expect_success();
        let begun = std::time::Instant::now();
        while daemon.show()["backing"]["state"] != "ready" {
            assert!(begun.elapsed() < MINUTE, "the backing has room again, and is still failing: {}", daemon.show());
            std::thread::sleep(Duration::from_millis(100));
        }
        told("the backing works again");
        daemon.stop(MINUTE);
        check::image_complete(&History::read(&options.journal).unwrap(), &image).unwrap();
        drop(mounted);
    }

    fn a_state_folder_without_rights_is_an_error_that_names_it(io: IoMode) {
        let folder = TempDir::new("rights");
        let mut volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        // A file where the folder should be stops root as well.
        std::fs::write(volume.state(), b"not a folder").unwrap();
        volume.expect_refusal().says(&["cannot make the state folder", volume.state().to_str().unwrap()]);
        std::fs::remove_file(volume.state()).unwrap();
        std::fs::create_dir(volume.state()).unwrap();
        std::fs::set_permissions(volume.state(), PermissionsExt::from_mode(0o500)).unwrap();
        let Some(setpriv) = forebay_tests::harness::find_tool("setpriv") else {
            panic!("setpriv is not installed; it is part of util-linux");
        };
        // As another user, without root's way around permissions. The folder must be passable and the image its own.
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        volume.arguments.clear();
        let inner = volume.command();
        let mut command = Command::new(setpriv);
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(inner.get_program()).args(inner.get_args());
        let output = run_command(MINUTE, command);
        if output.stderr.contains("setpriv:") {
            return skip(&format!("cannot become another user: {}", output.stderr.trim()));
        }
        assert_eq!(output.status.code(), Some(1), "{}", output.describe());
        let state = volume.state();
        for words in ["Permission denied", state.to_str().unwrap()] {
            assert!(output.stderr.contains(words), "no {words}: {}", output.describe());
        }
    }

    fn unknown_keys_in_the_config_are_errors_with_their_line(io: IoMode) {
        let folder = TempDir::new("config");
        let config = folder.join("forebay.toml");
        let text = format!("[node]\nstate = \"{0}/state\"\nio = \"{1}\"\n[[volume]]\nname = \"a\"\nbacking = \"{0}/a.img\"\nsizze = \"1G\"\n", folder.path().display(), io.word());
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(forebay());
        command.args(["serve", "--config"]).arg(&config);
        let output = run_command(MINUTE, command);
        assert_ne!(output.status.code(), Some(0));
        assert!(output.stderr.contains("sizze") && output.stderr.contains("line 7"), "{}", output.describe());
        assert!(!folder.join("state").exists() || std::fs::read_dir(folder.join("state")).unwrap().next().is_none());
    }

    fn a_tier_copied_beside_its_volume_is_refused_by_the_marker(io: IoMode) {
        // Two state folders, one image: the second daemon must not take the image over with a tier of its own.
        let folder = TempDir::new("two-states");
        let (volume, options) = killed_with_a_dirty_tier(&folder, Tier::Flash, io);
        let other = TempDir::new("two-states-b");
        let mut second = Volume::new(&other, SIZE, Tier::Flash, io);
        second.backing = volume.backing.clone();
        let refusal = second.expect_refusal();
        // It says where the dirty data lies.
        refusal.says(&["is not complete", "in the tier", volume.state().to_str().unwrap(), "serve or drain it there"]);
        all_there(&volume, &options);
    }
}

#[test]
fn usage_errors_end_with_2() {
    for arguments in
        [&["serve"][..], &["volume", "drain"], &["no-such-command"], &["serve", "--backing", "x", "--size", "many"]]
    {
        let mut command = Command::new(forebay());
        command.args(arguments);
        let output = run_command(MINUTE, command);
        assert_eq!(output.status.code(), Some(2), "{}", output.describe());
    }
}
