//! Which image is the right one, after what may happen to the right one: a loss of power on file systems that keep times of
//! change in memory, and a file that looks older than it is. `node/src/judgement.rs` has the other cases, told by what
//! kinds of file systems show.

use forebay_tests::harness::{IoMode, TempDir, Tier, VOLUME_NAME, Volume, forebay_planted, run_tool, skip};
use forebay_tests::kernel::{Loop, Mounted, no_fuse_or_loop};
use forebay_tests::locks::wait_for_late_writes;
use forebay_tests::pattern::load::{self, LoadOptions};
use forebay_tests::scene::{SIZE, all_there, killed_with_a_dirty_tier};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
/// Power cuts until the planted fault shows.
const ROUNDS_MAX: usize = 10;
/// Bytes of a disk on which every one of the file systems can be made.
const DISK: u64 = 320 << 20;

/// A disk with a file system on which nothing is made durable but by a sync of somebody's.
struct Disk {
    file: PathBuf,
    kind: &'static str,
    point: PathBuf,
}

impl Disk {
    fn make(folder: &TempDir, kind: &'static str) -> Disk {
        let file = folder.sparse("disk", DISK);
        let tool = format!("mkfs.{kind}");
        run_tool(MINUTE, &tool, ["-q", file.to_str().unwrap()]).expect_success();
        Disk { file, kind, point: folder.join("mnt") }
    }

    fn mount(&self) -> (Mounted, Loop) {
        // xfs has no such option: it writes its log out within half a minute.
        let options: &[&str] = if self.kind == "xfs" { &["-t", "xfs"] } else { &["-t", self.kind, "-o", "commit=300"] };
        let device = Loop::attach(&self.file);
        (Mounted::new(options, device.path().to_str().unwrap(), &self.point), device)
    }
}

/// What the marker beside an image says of the last change.
fn marked(image: &Path) -> Option<i64> {
    let text = std::fs::read_to_string(format!("{}.forebay", image.display())).ok()?;
    serde_json::from_str::<serde_json::Value>(&text).ok()?["image"]["changed_ns"].as_i64()
}

/// The image is written to and never synced, and marked; then power is cut. Whether the volume serves from what is left, with
/// everything that was flushed; else why not.
fn cut(kind: &'static str, plant: Option<&'static str>) -> Result<(), String> {
    let folder = TempDir::new("cut-identity");
    let disk = Disk::make(&folder, kind);
    let mounted = disk.mount();
    let mut volume = Volume::new(&folder, SIZE, Tier::Flash, IoMode::Uring);
    let image = disk.point.join("backing.img");
    volume.backing = format!("faulty:sync_error=1:{}", image.display());
    // What is destaged by way of a journal waits for its syncs, and never comes to the image.
    (volume.destage, volume.plant) = ("ordered", plant);
    let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
    options.requests = Some(300);
    let daemon = volume.start();
    let first = marked(&image);
    load::run(&options).unwrap();
    let begun = Instant::now();
    // The second one after the load: what the first one saw may be from before the writes.
    let mut seen = vec![first];
    while seen.len() < 3 {
        assert!(begun.elapsed() < MINUTE, "{kind}: the marker does not follow the image: {}", daemon.output());
        let now = marked(&image);
        if !seen.contains(&now) {
            seen.push(now);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    daemon.kill9();
    wait_for_late_writes(&image);
    // All that was sent to the disk is on it; what a file system had not sent by then is gone.
    let after = folder.join("after");
    run_tool(MINUTE, "cp", ["--sparse=always", disk.file.to_str().unwrap(), after.to_str().unwrap()]).expect_success();
    drop(mounted);
    std::fs::rename(&after, &disk.file).unwrap();

    let mounted = disk.mount();
    (volume.backing, volume.plant) = (image.display().to_string(), None);
    let served = volume.try_start().map_err(|refusal| refusal.text);
    if let Ok(daemon) = served {
        forebay_tests::pattern::check::settle_after_kill(&options.journal, &volume.target()).unwrap();
        daemon.stop(MINUTE);
        drop(mounted);
        return Ok(());
    }
    drop(mounted);
    served.map(|_| ())
}

/// Proves L-BF-3, L-BF-12.
#[test]
fn after_a_power_cut_the_right_image_is_served_on_every_file_system() {
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    for kind in ["btrfs", "ext4", "xfs"] {
        cut(kind, None).unwrap_or_else(|why| panic!("{kind}: {why}"));
    }
}

/// The planted build marks what the file system shows, and not what is durable.
#[test]
fn a_marker_that_is_ahead_of_its_image_is_caught() {
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    assert!(forebay_planted().exists());
    // sync(2) is the whole host's: one of anybody else at the wrong moment makes durable what the marker is ahead of, and then there is
    // nothing to see.
    let shown = (0..ROUNDS_MAX).find_map(|_| cut("btrfs", Some("marker-ahead")).err());
    let why = shown.expect("no power cut has shown it");
    assert!(why.contains("last changed") && why.contains("--same-image"), "{why}");
}

/// Proves O-15.
#[test]
fn an_image_that_looks_older_is_served_at_the_operators_word_and_nothing_is_given_up() {
    let folder = TempDir::new("same-image");
    let (mut volume, options) = killed_with_a_dirty_tier(&folder, Tier::Flash, IoMode::Uring);
    let image = volume.image();
    let image = image.to_str().unwrap();
    run_tool(MINUTE, "touch", ["-d", "yesterday", image]).expect_success();
    let said = volume.expect_refusal().text;
    let at = |words: &str| said.find(words).unwrap_or_else(|| panic!("{words}: {said}"));
    assert!(at("--same-image") < at("salvage") && at("salvage") < at("--adopt-changed-backing"), "{said}");
    // Both words at once contradict each other.
    volume.arguments.extend(["--same-image".into(), "--adopt-changed-backing".into()]);
    assert!(volume.try_start().is_err());
    volume.arguments.pop();
    all_there(&volume, &options);
    let record = volume.state().join(format!("volumes/{VOLUME_NAME}.toml"));
    assert!(record.exists(), "it is the volume that it was");
    // Shorter, it is not the same one whatever is said.
    let folder = TempDir::new("same-image-cut");
    let (mut volume, options) = killed_with_a_dirty_tier(&folder, Tier::Flash, IoMode::Uring);
    let whole = std::fs::File::options().write(true).open(volume.image()).unwrap();
    whole.set_len(SIZE / 2).unwrap();
    volume.arguments.push("--same-image".into());
    volume.expect_refusal().says(&["cut off", "its size is"]);
    whole.set_len(SIZE).unwrap();
    drop(whole);
    all_there(&volume, &options);
}
