//! File systems on a volume: nbdfuse shows it as a file, a loop device makes a disk of it, and ext4, xfs and btrfs
//! are made, loaded and checked on it. nbdfuse dies with its server, so the kill tests read the image afterwards.

use forebay_tests::harness::{
    Daemon, IoMode, TempDir, Tier, Volume, find_tool, rounds, run_command, run_script, run_tool, skip, workspace,
};
use forebay_tests::in_both_io_modes;
use forebay_tests::kernel::{Fuse, Loop, Mounted, no_fuse_or_loop};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// nbdfuse and a loop device over a volume, taken down in this order when dropped, also when the daemon is dead.
struct Disk {
    device: Loop,
    _fuse: Fuse,
}

impl Disk {
    fn attach(folder: &TempDir, uri: &str) -> Disk {
        let fuse = Fuse::mount(&folder.join("volume"), uri);
        Disk { device: Loop::attach(fuse.file()), _fuse: fuse }
    }

    fn device(&self) -> &str {
        self.device.path().to_str().expect("a plain path")
    }
}

fn fsx() -> PathBuf {
    let root = workspace().join(".cache/fsx");
    let path = root.join("bin/fsx");
    if let Some(installed) = find_tool("fsx") {
        return installed;
    }
    if !path.exists() {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["install", "fsx", "--version", "0.3.2", "--locked", "-j2", "--root"]).arg(&root);
        run_command(Duration::from_secs(600), command).expect_success();
    }
    path
}

const MAKE: &str = r#"
case $1 in
ext4) mkfs.ext4 -q -F "$2" ;;
xfs) mkfs.xfs -q -f "$2" ;;
btrfs) mkfs.btrfs -q -f "$2" ;;
esac
"#;

/// After an unmount: clean without any repair.
const CHECK: &str = r#"
case $1 in
ext4) e2fsck -fn "$2" ;;
xfs) xfs_repair -n "$2" ;;
btrfs) btrfs check --readonly "$2" ;;
esac
"#;

const LOAD: &str = r#"
fs=$1 fsx=$2
"$fsx" -q -N 1500 -S 9 -P "$fs" "$fs/fsx"
fio --name=v --filename="$fs/fio.dat" --size=24m --rw=randwrite --bsrange=512-16k --ioengine=psync --direct=0 \
  --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --fsync=64 --output=/dev/null
mkdir "$fs/many"
for i in $(seq 300); do echo "file $i" > "$fs/many/$i"; done
sync
for i in $(seq 1 3 300); do rm "$fs/many/$i"; done
for i in $(seq 2 3 300); do mv "$fs/many/$i" "$fs/many/moved-$i"; done
(cd "$fs" && find . -type f -print0 | sort -z | xargs -0 sha256sum) > "$3"
sync
"#;

fn made_loaded_and_checked(kind: &str, size: u64, io: IoMode) {
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    let kinds = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !kinds.split_whitespace().any(|word| word == kind) {
        return skip(&format!("this kernel has no {kind}"));
    }
    let folder = TempDir::new(kind);
    let mut volume = Volume::new(&folder, size, Tier::Flash, io);
    volume.tier_size = 64 << 20;
    let daemon = volume.start();
    let (sums, mount) = (folder.join("sums"), folder.join("mnt"));
    let (sums, mount) = (sums.to_str().unwrap(), mount.to_str().unwrap());
    {
        let disk = Disk::attach(&folder, &volume.uri());
        run_script(MINUTE, MAKE, [kind, disk.device()]).expect_success();
        let _mounted = Mounted::new(&[], disk.device(), Path::new(mount));
        run_script(Duration::from_secs(180), LOAD, [mount, fsx().to_str().unwrap(), sums]).expect_success();
    }
    daemon.stop(MINUTE);
    let daemon = volume.start();
    {
        let disk = Disk::attach(&folder, &volume.uri());
        {
            let _mounted = Mounted::new(&[], disk.device(), Path::new(mount));
            let compare = r#"cd "$1" && sha256sum --quiet -c "$2""#;
            run_script(MINUTE, compare, [mount, sums]).expect_success();
        }
        run_script(MINUTE, CHECK, [kind, disk.device()]).expect_success();
    }
    daemon.stop(MINUTE);
    // And the image alone.
    let image = Loop::attach(&volume.image());
    run_script(MINUTE, CHECK, [kind, image.path().to_str().unwrap()]).expect_success();
}

in_both_io_modes! {
    fn ext4_is_made_loaded_and_clean_after_a_restart(io: IoMode) {
        made_loaded_and_checked("ext4", 192 << 20, io);
    }

    fn xfs_is_made_loaded_and_clean_after_a_restart(io: IoMode) {
        made_loaded_and_checked("xfs", 384 << 20, io);
    }

    fn btrfs_is_made_loaded_and_clean_after_a_restart(io: IoMode) {
        made_loaded_and_checked("btrfs", 256 << 20, io);
    }
}

/// Folders made, or transactions committed, before a kill: some of them are synced.
const STEPS_MIN: u32 = 6;

/// Runs a load on a mounted file system, kills the daemon in the middle, loses all logs, and returns the image.
fn image_after_all_logs_lost(
    folder: &TempDir,
    (kind, destage): (&str, &'static str),
    io: IoMode,
    load: &str,
    alive: Duration,
) -> PathBuf {
    let size = if kind == "xfs" { 384 << 20 } else { 128 << 20 };
    let mut volume = Volume::new(folder, size, Tier::Flash, io);
    volume.tier_size = 24 << 20;
    volume.destage = destage;
    // Slow enough that the kill finds many groups that are not in the image, and one of them on its way.
    volume.backing = format!("slow:iops=2000,latency=2ms,depth=16:{}", volume.backing);
    let daemon: Daemon = volume.start();
    let mount = folder.join("mnt");
    let mount = mount.to_str().unwrap();
    let disk = Disk::attach(folder, &volume.uri());
    run_script(MINUTE, MAKE, [kind, disk.device()]).expect_success();
    let mounted = Mounted::new(&[], disk.device(), Path::new(mount));
    // What was made must be in the image before the kill, or there is nothing to check.
    run_script(MINUTE, "sync", [""]).expect_success();
    daemon.drain();
    let (fsx, outside) = (fsx(), folder.join("outside"));
    std::fs::create_dir_all(&outside).unwrap();
    std::thread::scope(|scope| {
        let arguments = [mount, fsx.to_str().unwrap(), outside.to_str().unwrap()].map(str::to_owned);
        let load = scope.spawn(move || run_script(MINUTE, load, arguments));
        let begun = Instant::now();
        let done = || std::fs::read_to_string(outside.join("done")).unwrap_or_default().trim().parse().unwrap_or(0);
        while done() < STEPS_MIN {
            assert!(!load.is_finished(), "the load has ended by itself after {} steps", done());
            assert!(begun.elapsed() < MINUTE, "the load has come to {} steps in a minute", done());
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(alive);
        let dirty = daemon.show()["dirty"].clone();
        daemon.kill9();
        assert!(dirty["groups_waiting"].as_u64() > Some(1), "the image was not behind: nothing is proved: {dirty}");
        // The load fails with the device; how, does not matter.
        let _ = load.join();
    });
    drop(mounted);
    drop(disk);
    // By turns the two ways in which the journal is replayed.
    if alive.as_millis() % 200 == 100 { volume.image_after_accepted_loss() } else { volume.image_after_salvage() }
}

/// A crash image is clean after the file system's own journal replay: nothing is repaired.
fn clean_after_journal_replay(folder: &TempDir, kind: &str, image: &Path) -> Result<(), String> {
    let device = Loop::attach(image);
    let device_path = device.path().to_str().unwrap();
    let mount = folder.join("replayed");
    std::fs::create_dir_all(&mount).unwrap();
    let mount = mount.to_str().unwrap();
    // The kernel may still hold the dead disk's mount: xfs refuses a second file system of the same UUID meanwhile.
    let options = if kind == "xfs" { "nouuid" } else { "defaults" };
    let output = run_tool(MINUTE, "mount", ["-o", options, device_path, mount]);
    if !output.status.success() {
        return Err(output.describe());
    }
    let files = r#"find "$1" -type f -exec cat {} + >/dev/null"#;
    let read = run_script(MINUTE, files, [mount]);
    run_tool(MINUTE, "umount", [mount]).expect_success();
    for output in [read, run_script(MINUTE, CHECK, [kind, device_path])] {
        if !output.status.success() {
            return Err(output.describe());
        }
    }
    Ok(())
}

const BUSY: &str = r#"
fs=$1
( "$2" -q -S 5 -P "$3" "$fs/fsx" ) &
i=0
while :; do
  i=$((i + 1))
  mkdir "$fs/d$i"; for f in 1 2 3 4 5 6 7 8; do head -c $((f * 3000)) /dev/zero | tr '\0' "$f" > "$fs/d$i/$f"; done
  [ $((i % 4)) = 0 ] && sync -f "$fs"
  echo $i > "$3/done"
  [ $i -gt 6 ] && { rm -r "$fs/d$((i - 6))"; mv "$fs/d$((i - 3))/1" "$fs/d$i/moved"; }
  true
done
"#;

const SQLITE: &str = r#"
db=$1/db
sqlite3 "$db" 'PRAGMA journal_mode=DELETE; CREATE TABLE t(id INTEGER PRIMARY KEY, half INTEGER, payload BLOB);' >/dev/null
i=0
while :; do
  i=$((i + 1))
  sqlite3 "$db" "PRAGMA synchronous=FULL; BEGIN; INSERT INTO t VALUES($((2 * i)), 1, randomblob(3000)); UPDATE t SET payload=randomblob(2500) WHERE id%7=$((i % 7)) AND id>$((2 * i - 60)); INSERT INTO t VALUES($((2 * i + 1)), 2, randomblob(9000)); COMMIT;"
  echo $i > "$3/done"
done
"#;

in_both_io_modes! {
    fn ext4_is_clean_from_the_image_alone_when_all_logs_are_lost(io: IoMode) {
        logs_lost_under_a_file_system("ext4", io);
    }

    fn xfs_is_clean_from_the_image_alone_when_all_logs_are_lost(io: IoMode) {
        logs_lost_under_a_file_system("xfs", io);
    }

    fn sqlite_is_whole_from_the_image_alone_when_all_logs_are_lost(io: IoMode) {
        if let Some(reason) = no_fuse_or_loop() {
            return skip(reason);
        }
        for round in 0..rounds(2, 20) {
            let folder = TempDir::new("sqlite");
            let (destage, alive) = way_and_time(round, 500);
            let image = image_after_all_logs_lost(&folder, ("ext4", destage), io, SQLITE, alive);
            clean_after_journal_replay(&folder, "ext4", &image).unwrap_or_else(|e| panic!("round {round}: {e}"));
            let device = Loop::attach(&image);
            let mount = folder.join("replayed");
            let mounted = Mounted::new(&[], device.path().to_str().unwrap(), &mount);
            // Transactions are whole: each inserts one row of either half.
            let check = r#"
[ -e "$1/db" ] || { echo "ok, before the first commit"; exit 0; }
sqlite3 "$1/db" 'PRAGMA integrity_check;' | grep -qx ok
tables=$(sqlite3 "$1/db" "SELECT count(*) FROM sqlite_master WHERE name='t'")
[ "$tables" = 0 ] || [ "$(sqlite3 "$1/db" 'SELECT count(*) FROM t WHERE half=1')" = "$(sqlite3 "$1/db" 'SELECT count(*) FROM t WHERE half=2')" ]
"#;
            run_script(MINUTE, check, [mount.to_str().unwrap()]).expect_success();
            drop(mounted);
        }
    }
}

/// How a round destages, and how long its daemon lives when the load is under way.
fn way_and_time(round: u64, least_ms: u64) -> (&'static str, Duration) {
    (
        ["journaled", "ordered"][round as usize % 2],
        Duration::from_millis(least_ms + 300 * (round / 2) + 100 * (round % 4)),
    )
}

fn logs_lost_under_a_file_system(kind: &str, io: IoMode) {
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    for round in 0..rounds(2, 30) {
        let folder = TempDir::new(&format!("{kind}-lost"));
        let (destage, alive) = way_and_time(round, 400);
        let image = image_after_all_logs_lost(&folder, (kind, destage), io, BUSY, alive);
        clean_after_journal_replay(&folder, kind, &image).unwrap_or_else(|e| panic!("round {round}: {e}"));
    }
}
