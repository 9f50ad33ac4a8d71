//! Power cuts of the real daemon: it runs under load in a QEMU guest with tier and backing each on a dm-log-writes
//! recorder; then the disks are rebuilt as 200 cuts leave them, the daemon starts on each, and every write that an
//! acknowledged flush or FUA covered before the cut must be there. The same with the backing as a file on a file system, which
//! is what a journal needs: there the tier is taken away as well, and what the journal and the image have left must be a crash image.

use forebay_tests::harness::{
    IoMode, TempDir, Tier, Volume, forebay, forebay_planted, require_tool, rounds, run_command, skip, workspace,
};
use forebay_tests::in_both_io_modes;
use forebay_tests::kernel::{Loop, Mounted, no_fuse_or_loop};
use forebay_tests::locks::wait_for_late_writes;
use forebay_tests::logwrites::{Cut, Disk, Log, backing_cuts, cuts, write_sparse};
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

/// What the guest has left.
struct Recording {
    folder: PathBuf,
    tier: Log,
    backing: Log,
    history: History,
    /// What of the backing's disk is never torn.
    whole: Range<u64>,
    /// Cuts that are looked at side by side.
    at_once: usize,
}

fn record(folder: &TempDir, binary: &Path, parameters: &[&str], tier: u64, backing: u64) -> Recording {
    let out = folder.join("guest");
    let mut command = Command::new(require_tool("bash"));
    command.arg(workspace().join("scripts/guest/power-cut.sh")).arg(&out);
    command.arg(env!("CARGO_BIN_EXE_pattern")).arg(binary).args(parameters);
    command.args([format!("tier_mib={}", tier >> 20), format!("backing_mib={}", backing >> 20)]);
    run_command(Duration::from_secs(300), command).expect_success();
    let open = |name: &str| Log::open(&out.join(name)).unwrap_or_else(|e| panic!("{e}"));
    let (tier, backing) = (open("tier.recording"), open("backing.recording"));
    for (name, log) in [("tier", &tier), ("backing", &backing)] {
        let marks = log.entries.iter().filter(|e| e.mark.is_some()).count();
        let flushes = log.entries.iter().filter(|e| e.flush || e.fua).count();
        println!("{name}: {} entries, {flushes} flushes and forced writes, {marks} marks", log.entries.len());
    }
    let history = History::read(&out.join("journal")).unwrap();
    Recording { folder: out, tier, backing, history, whole: 0..0, at_once: 2 }
}

impl Recording {
    /// The newest barrier whose acknowledgement is certainly before this entry of the tier's recording.
    fn promised(&self, before: usize) -> u64 {
        self.tier.last_mark(before).map_or(0, |mark| mark.parse().unwrap_or(0))
    }
}

/// The machinery first: a plain disk with a page cache (nbdkit) keeps what it flushed, at every cut.
#[test]
fn a_plain_disk_passes_and_one_deaf_to_flushes_is_caught() {
    let folder = TempDir::new("plain-cuts");
    let (tier, size) = (1 << 20, 16 << 20);
    let recording = record(&folder, Path::new("none"), &["server=nbdkit", "requests=2500"], tier, size);
    // The plain disk has no tier; its own recording gives the cuts.
    let log = &recording.backing;
    let cuts = cuts(log, log, 120, 1);
    assert!(cuts.len() >= 120, "{} cuts", cuts.len());
    let image = folder.join("cut");
    let check = |mut disk: Disk| -> Result<(), String> {
        for cut in &cuts {
            disk.advance(cut.tier)?;
            write_sparse(&image, &disk.after_cut(cut.keep)?)?;
            let promised = log.last_mark(cut.tier).map_or(0, |mark| mark.parse().unwrap_or(0));
            check::disk_after_power_loss(&recording.history, &image, Some(promised))
                .map_err(|e| format!("{cut:?}, promised up to #{promised}: {e}"))?;
        }
        Ok(())
    };
    check(Disk::new(log, size)).unwrap();
    let caught = check(Disk::deaf_to_flushes(log, size)).unwrap_err();
    assert!(caught.contains("the promise for flushed writes"), "{caught}");
    assert!(recording.folder.join("load.log").exists());
}

/// Where it is looked at what a cut has left.
trait Site {
    /// `before`: entries of the tier's recording that had been sent.
    fn check(&self, recording: &Recording, tier: &[u8], backing: &[u8], before: usize) -> Result<(), String>;
}

/// Where the daemon is started on two devices: the state folder of the guest, its paths those of the host.
struct Devices {
    _folder: TempDir,
    volume: Volume,
}

impl Devices {
    fn new(io: IoMode, tier: u64) -> Devices {
        let folder = TempDir::new("cut");
        let mut volume = Volume::new(&folder, 0, Tier::Flash, io);
        volume.size = None;
        volume.tier_size = tier;
        Devices { _folder: folder, volume }
    }
}

impl Site for Devices {
    fn check(
        &self,
        recording: &Recording,
        tier_bytes: &[u8],
        backing_bytes: &[u8],
        before: usize,
    ) -> Result<(), String> {
        let (tier, backing) = (self.volume.state().join("tiers/vm1.tier"), self.volume.image());
        let volumes = self.volume.state().join("volumes");
        let _ = std::fs::remove_dir_all(self.volume.state());
        let _ = std::fs::remove_file(format!("{}.forebay", backing.display()));
        let _ = std::fs::remove_file(format!("{}.forebay-journal", backing.display()));
        for folder in [&volumes, &self.volume.state().join("tiers")] {
            std::fs::create_dir_all(folder).map_err(|e| format!("make {}: {e}", folder.display()))?;
        }
        write_sparse(&tier, tier_bytes)?;
        write_sparse(&backing, backing_bytes)?;
        let serving = recording.tier.last_mark(before).is_some();
        let here = |name: &str| -> Result<String, String> {
            let text = std::fs::read_to_string(recording.folder.join("state/volumes").join(name));
            Ok(text
                .map_err(|e| format!("the guest's {name}: {e}"))?
                .replace("/dev/mapper/tier", tier.to_str().expect("a plain path"))
                .replace("/dev/mapper/backing", backing.to_str().expect("a plain path")))
        };
        // Until it served, the guest's record said that its tier was still to be made.
        let record = here("vm1.toml")?.replace("made = true", &format!("made = {serving}"));
        std::fs::write(volumes.join("vm1.toml"), record).map_err(|e| e.to_string())?;
        if serving {
            // A device's marker lies in the state folder, an image's beside it.
            let marker = format!("{}.forebay", backing.display());
            std::fs::write(marker, here("vm1.marker")?).map_err(|e| e.to_string())?;
        }
        let daemon = self.volume.try_start().map_err(|refusal| format!("the daemon refuses: {refusal}"))?;
        let verdict =
            check::volume_after_power_loss(&recording.history, &self.volume.target(), Some(recording.promised(before)));
        let verdict = verdict.map(|_| ()).map_err(|e| format!("{e}\nthe daemon said: {}", daemon.output()));
        daemon.kill9();
        verdict
    }
}

/// Starts the daemon on every cut; stops at the first that is wrong. Returns how many were looked at.
fn check_cuts(recording: &Recording, io: IoMode, tier: u64, backing: u64, wanted: usize) -> Result<usize, String> {
    let cuts = cuts(&recording.tier, &recording.backing, wanted, 7);
    assert!(cuts.len() >= wanted.min(200), "the recording has only {} places to cut", cuts.len());
    check_each(recording, &cuts, tier, vec![0; backing as usize], || Devices::new(io, tier))?;
    Ok(cuts.len())
}

/// Rebuilds both disks for every cut, the backing over what it held before, and has each looked at; stops at the first
/// that is wrong.
fn check_each<S: Site>(
    recording: &Recording,
    cuts: &[Cut],
    tier: u64,
    backing: Vec<u8>,
    site: impl Fn() -> S + Sync,
) -> Result<(), String> {
    let failure: Mutex<Option<String>> = Mutex::new(None);
    // Replaying goes on in order while the daemons of the cuts before are being looked at.
    let (sender, receiver) = mpsc::sync_channel::<(Cut, Vec<u8>, Vec<u8>)>(1);
    let receiver = Mutex::new(receiver);
    std::thread::scope(|scope| {
        for _ in 0..recording.at_once {
            scope.spawn(|| {
                let site = site();
                loop {
                    let next = receiver.lock().expect("no panic with the lock").recv();
                    let Ok((cut, tier, backing)) = next else { return };
                    let promised = recording.promised(cut.tier);
                    if let Err(e) = site.check(recording, &tier, &backing, cut.tier) {
                        let text = format!("{cut:?}, flushed up to request #{promised}: {e}");
                        failure.lock().expect("no panic with the lock").get_or_insert(text);
                    }
                }
            });
        }
        let mut tier = Disk::new(&recording.tier, tier);
        let mut backing = Disk::over(&recording.backing, backing).never_tears(recording.whole.clone());
        for cut in cuts {
            if failure.lock().expect("no panic with the lock").is_some() {
                break;
            }
            let mut at_cut = || -> Result<(Vec<u8>, Vec<u8>), String> {
                tier.advance(cut.tier)?;
                backing.advance(cut.backing)?;
                Ok((tier.after_cut(cut.keep)?, backing.after_cut(cut.keep)?))
            };
            let (tier, backing) = at_cut().expect("the recordings can be replayed");
            sender.send((*cut, tier, backing)).expect("the workers take every cut");
        }
        drop(sender);
    });
    match failure.into_inner().expect("no panic with the lock") {
        None => Ok(()),
        Some(message) => Err(message),
    }
}

const TIER: u64 = 16 << 20;
const BACKING: u64 = 32 << 20;

/// A tier smaller than the load, so that segments are reused, and a backing that keeps destage behind.
fn parameters(io: IoMode) -> Vec<String> {
    let requests = format!("requests={}", rounds(3000, 20_000));
    vec![requests, format!("io={}", io.word()), "wrapper=slow:iops=3000,latency=1ms:".into()]
}

in_both_io_modes! {
    /// Proves L-BF-3, L-BF-7.
    fn at_two_hundred_power_cuts_every_flushed_write_is_there(io: IoMode) {
        let folder = TempDir::new("power");
        let parameters = parameters(io);
        let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
        let recording = record(&folder, forebay(), &parameters, TIER, BACKING);
        // Both modes together make two hundred and more in the gate.
        let looked_at = check_cuts(&recording, io, TIER, BACKING, rounds(110, 2000) as usize).unwrap();
        println!("{looked_at} cuts");
    }
}

/// The proof must be able to fail: planted builds do not sync before they answer a flush, or do not sync the backing before
/// the log lets go of what it holds.
#[test]
fn a_daemon_that_drops_its_syncs_is_caught() {
    for plant in ["sync-dropped", "sync-early", "backing-sync-dropped"] {
        let folder = TempDir::new(plant);
        let plant_parameter = format!("plant={plant}");
        let parameters = [plant_parameter.as_str(), "requests=1500", "wrapper=slow:iops=3000,latency=1ms:"];
        let recording = record(&folder, forebay_planted(), &parameters, TIER, BACKING);
        // A tier that was never made is no finding: only what was promised to a client is.
        let mut cuts = cuts(&recording.tier, &recording.backing, 220, 7);
        cuts.retain(|cut| recording.promised(cut.tier) > 0);
        let cuts: Vec<Cut> = cuts.into_iter().step_by(2).collect();
        assert!(cuts.len() >= 60, "the recording has only {} places to cut", cuts.len());
        let devices = || Devices::new(IoMode::Uring, TIER);
        let caught = check_each(&recording, &cuts, TIER, vec![0; BACKING as usize], devices);
        let caught = caught.expect_err("no cut has shown it");
        println!("{plant}: {caught}");
        // Where nothing was ever synced, so much of the tier is missing that it may not be opened at all.
        let refused = plant == "sync-dropped" && caught.contains("the daemon refuses");
        assert!(refused || caught.contains("the promise for flushed writes"), "{caught}");
    }
}

/// The file system that the image lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FileSystem {
    /// With a journal beside the image.
    Ext4,
    /// It keeps the image's time of change in memory for longer than what was written (L-BF-12); the image is never synced, so that
    /// nobody else makes that time durable.
    Btrfs,
}

impl FileSystem {
    fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Btrfs => "btrfs",
        }
    }

    fn destage(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "journaled",
            FileSystem::Btrfs => "ordered",
        }
    }

    fn wrapper(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "slow:iops=3000,latency=1ms:",
            FileSystem::Btrfs => "faulty:sync_error=1:",
        }
    }

    /// The disk under it.
    fn disk(self) -> u64 {
        match self {
            FileSystem::Ext4 => 64 << 20,
            FileSystem::Btrfs => 160 << 20,
        }
    }

    /// Its superblock: it cannot be mounted with a torn one, so it takes a disk for granted that never tears it.
    fn superblock(self) -> Range<u64> {
        match self {
            FileSystem::Ext4 => 0..4096,
            FileSystem::Btrfs => 64 << 10..68 << 10,
        }
    }
}

/// Where a file system that holds image and journal is mounted, as a host does after a loss of power: the file system
/// recovers, then everything that lies on it is looked at.
struct OnFileSystem<'a> {
    kind: FileSystem,
    folder: TempDir,
    volume: Volume,
    /// Cuts at which the journal had what the image had not.
    replays: &'a AtomicU32,
}

impl OnFileSystem<'_> {
    fn new(kind: FileSystem, replays: &AtomicU32) -> OnFileSystem<'_> {
        let folder = TempDir::new("cut-fs");
        let mut volume = Volume::new(&folder, 0, Tier::Flash, IoMode::Uring);
        (volume.size, volume.tier_size, volume.destage) = (None, TIER, kind.destage());
        volume.backing = folder.join("mnt/backing.img").to_str().expect("a plain path").to_owned();
        OnFileSystem { kind, folder, volume, replays }
    }

    /// The guest's record of the volume, with the tier as the cut has left it.
    fn restore_state(&self, recording: &Recording, tier: &[u8]) -> Result<(), String> {
        let (state, guest) = (self.volume.state(), recording.folder.join("state/volumes/vm1.toml"));
        let _ = std::fs::remove_dir_all(&state);
        let path = state.join("tiers/vm1.tier");
        for folder in ["volumes", "tiers"] {
            std::fs::create_dir_all(state.join(folder)).map_err(|e| format!("make {folder}: {e}"))?;
        }
        write_sparse(&path, tier)?;
        let record = std::fs::read_to_string(guest).map_err(|e| format!("the guest's vm1.toml: {e}"))?;
        let record = record
            .replace("/dev/mapper/tier", path.to_str().expect("a plain path"))
            .replace("/mnt/backing.img", &self.volume.backing);
        std::fs::write(state.join("volumes/vm1.toml"), record).map_err(|e| e.to_string())
    }

    /// The tier is gone: image and journal together are a crash image. Only read.
    fn check_without_tier(&self, recording: &Recording) -> Result<(), String> {
        let (image, salvaged) = (PathBuf::from(&self.volume.backing), self.folder.join("salvaged.img"));
        let journal = PathBuf::from(format!("{}.forebay-journal", image.display()));
        let _ = std::fs::remove_file(&salvaged);
        let mut command = Command::new(forebay());
        command.arg("salvage").arg(&journal).arg("--to").arg(&salvaged);
        let output = run_command(Duration::from_secs(60), command);
        if !output.status.success() {
            return Err(format!("the journal cannot be salvaged: {}", output.describe()));
        }
        let bytes = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        if bytes(&image)? != bytes(&salvaged)? {
            self.replays.fetch_add(1, Ordering::Relaxed);
        }
        check::image(&recording.history, &salvaged).map(|_| ()).map_err(|e| format!("all logs lost: {e}"))
    }

    fn check_with_tier(&self, recording: &Recording, before: usize) -> Result<(), String> {
        let daemon = self.volume.try_start().map_err(|refusal| format!("the daemon refuses: {refusal}"))?;
        let promised = Some(recording.promised(before));
        let verdict = check::volume_after_power_loss(&recording.history, &self.volume.target(), promised);
        let verdict = verdict.map(|_| ()).map_err(|e| format!("{e}\nthe daemon said: {}", daemon.output()));
        daemon.kill9();
        // Else the file system is still in use.
        wait_for_late_writes(Path::new(&self.volume.backing));
        verdict
    }
}

impl Site for OnFileSystem<'_> {
    fn check(&self, recording: &Recording, tier: &[u8], backing: &[u8], before: usize) -> Result<(), String> {
        let disk = self.folder.join("disk");
        // The one before may still be in use by a device that is on its way out.
        let _ = std::fs::remove_file(&disk);
        write_sparse(&disk, backing)?;
        let device = Loop::attach(&disk);
        let device_path = device.path().to_str().expect("a plain path");
        let mounted = Mounted::new(&["-t", self.kind.name()], device_path, &self.folder.join("mnt"));
        self.restore_state(recording, tier)?;
        let without = match self.kind {
            FileSystem::Ext4 => self.check_without_tier(recording),
            FileSystem::Btrfs => Ok(()),
        };
        let verdict = without.and_then(|()| self.check_with_tier(recording, before));
        drop(mounted);
        drop(device);
        verdict
    }
}

/// A load before a volume whose image is a file on a file system, and the cuts to be looked at: around the syncs of both disks and
/// between them.
fn record_on_file_system(
    folder: &TempDir,
    kind: FileSystem,
    binary: &Path,
    more: &[&str],
) -> (Recording, Vec<u8>, [Vec<Cut>; 2]) {
    let requests = match kind {
        FileSystem::Ext4 => format!("requests={}", rounds(1200, 10_000)),
        // What is never synced stays in the tier, and must find room there.
        FileSystem::Btrfs => "requests=500".to_owned(),
    };
    let (on, destage) = (format!("on={}", kind.name()), format!("destage={}", kind.destage()));
    let wrapper = format!("wrapper={}", kind.wrapper());
    let mut parameters = vec![on.as_str(), &destage, &wrapper, &requests];
    if kind == FileSystem::Btrfs {
        // So long that the marker follows the image some times: a daemon looks at it every 5 s.
        parameters.push("pause_us=40000");
    }
    parameters.extend(more);
    let mut recording = record(folder, binary, &parameters, TIER, kind.disk());
    recording.whole = kind.superblock();
    if kind == FileSystem::Btrfs {
        // Every cut has the same identity, and two that are mounted at a time would be taken for one disk.
        recording.at_once = 1;
    }
    let base = std::fs::read(recording.folder.join("backing.base")).unwrap();
    let (wanted, least) = match kind {
        FileSystem::Ext4 => (rounds(36, 500) as usize, 30),
        // One after the other.
        FileSystem::Btrfs => (rounds(18, 250) as usize, 9),
    };
    let serving = recording.tier.entries.iter().position(|e| e.mark.as_deref() == Some("serving"));
    let serving = serving.expect("a mark from when it served");
    // Before that the image was still being made.
    let of_both = [
        cuts(&recording.tier, &recording.backing, 2 * wanted, 11),
        backing_cuts(&recording.tier, &recording.backing, 2 * wanted, 12),
    ]
    .map(|mut cuts| {
        cuts.retain(|cut| cut.tier > serving);
        (0..wanted.min(cuts.len())).map(|i| cuts[i * cuts.len() / wanted.min(cuts.len())]).collect::<Vec<_>>()
    });
    for cuts in &of_both {
        assert!(cuts.len() >= least, "the recording has only {} places to cut", cuts.len());
    }
    (recording, base, of_both)
}

/// Proves L-BF-3, L-BF-4 for journaled destage.
#[test]
fn at_power_cuts_of_a_file_system_nothing_flushed_is_lost_and_without_the_tier_the_journal_makes_a_crash_image() {
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    let folder = TempDir::new("power-fs");
    let (recording, base, of_both) = record_on_file_system(&folder, FileSystem::Ext4, forebay(), &["io=uring"]);
    let replays = AtomicU32::new(0);
    for cuts in &of_both {
        check_each(&recording, cuts, TIER, base.clone(), || OnFileSystem::new(FileSystem::Ext4, &replays)).unwrap();
    }
    let (cuts, replays) = (of_both[0].len() + of_both[1].len(), replays.into_inner());
    println!("{cuts} cuts, at {replays} of them the journal had what the image had not");
    assert!(cuts >= 60 && replays > 0, "{cuts} cuts, {replays} of them in the middle of a batch");
}

/// The planted build does not sync its journal before it applies a batch.
#[test]
fn a_daemon_that_drops_the_syncs_of_its_journal_is_caught() {
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    let folder = TempDir::new("journal-sync-dropped");
    // Around the syncs of the tier's disk, little is on its way to the other one.
    let (recording, base, [_, cuts]) = record_on_file_system(
        &folder,
        FileSystem::Ext4,
        forebay_planted(),
        &["plant=journal-sync-dropped", "io=threads"],
    );
    let replays = AtomicU32::new(0);
    let caught = check_each(&recording, &cuts, TIER, base, || OnFileSystem::new(FileSystem::Ext4, &replays));
    let caught = caught.expect_err("no cut has shown it");
    println!("{caught}");
    assert!(caught.contains("all logs lost"), "{caught}");
}

/// The image of every cut of a recording on btrfs is served, or why not.
fn check_on_btrfs(name: &str, binary: &Path, more: &[&str]) -> Result<usize, String> {
    let folder = TempDir::new(name);
    let (recording, base, of_both) = record_on_file_system(&folder, FileSystem::Btrfs, binary, more);
    let replays = AtomicU32::new(0);
    for cuts in &of_both {
        let site = || OnFileSystem::new(FileSystem::Btrfs, &replays);
        check_each(&recording, cuts, TIER, base.clone(), site)?;
    }
    Ok(of_both.iter().map(Vec::len).sum())
}

/// Proves L-BF-3, L-BF-12: the right image is taken for the right one at every cut.
#[test]
fn at_power_cuts_of_btrfs_the_right_image_is_served_and_nothing_flushed_is_lost() {
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    let cuts = check_on_btrfs("power-btrfs", forebay(), &["io=uring"]).unwrap();
    println!("{cuts} cuts");
}

/// The planted build marks what btrfs shows of the image, and not what is durable.
#[test]
fn a_marker_that_is_ahead_of_its_image_on_btrfs_is_caught() {
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    let caught = check_on_btrfs("marker-ahead", forebay_planted(), &["io=uring", "plant=marker-ahead"]);
    let caught = caught.expect_err("no cut has shown it");
    println!("{caught}");
    assert!(caught.contains("the daemon refuses") && caught.contains("last changed"), "{caught}");
}
