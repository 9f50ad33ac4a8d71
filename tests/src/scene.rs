//! Scenes that several tests begin with: a volume that was loaded and killed, where its tier lies, and the check that
//! in the end everything is there.

use crate::harness::{IoMode, TempDir, Tier, VOLUME_NAME, Volume};
use crate::locks::wait_for_late_writes;
use crate::nbd::Client;
use crate::pattern::check;
use crate::pattern::journal::History;
use crate::pattern::load::{self, LoadOptions};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Size of the volumes here.
pub const SIZE: u64 = 48 << 20;
/// Where the loads end that leave a dirty tier.
const LOADED: u64 = SIZE - (1 << 16);
const MINUTE: Duration = Duration::from_secs(60);

/// Write-back: a volume whose backing is too slow to take anything, loaded and killed. Everything waits in the tier.
#[track_caller]
pub fn killed_with_a_dirty_tier(folder: &TempDir, tier: Tier, io: IoMode) -> (Volume, LoadOptions) {
    killed_after(folder, tier, io, |_| ())
}

/// The same, where a later batch says of every batch of the load that it is durable: damage to any of them can be told
/// from a torn tail. That last batch holds nothing that would be missed, zeros where the load wrote nothing.
#[track_caller]
pub fn killed_with_a_marked_tier(folder: &TempDir, tier: Tier, io: IoMode) -> (Volume, LoadOptions) {
    killed_after(folder, tier, io, |client| {
        client.flush().unwrap().unwrap();
        client.write(LOADED, &vec![0; (SIZE - LOADED) as usize], 0).unwrap().unwrap();
        client.flush().unwrap().unwrap();
    })
}

#[track_caller]
fn killed_after(folder: &TempDir, tier: Tier, io: IoMode, last: impl FnOnce(&mut Client)) -> (Volume, LoadOptions) {
    let mut volume = Volume::new(folder, SIZE, tier, io);
    let image = volume.backing.clone();
    volume.backing = format!("slow:latency=30s:{image}");
    // What a batch in the journal changes has tests of its own.
    volume.destage = "ordered";
    let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..LOADED);
    options.requests = Some(300);
    let daemon = volume.start();
    load::run(&options).unwrap();
    last(&mut Client::connect(&volume.target()).unwrap());
    daemon.kill9();
    wait_for_late_writes(&volume.image());
    volume.backing = image;
    (volume, options)
}

/// Write-through: loaded and killed with the last writes neither flushed nor synced, so that their records are still
/// in the log.
#[track_caller]
pub fn killed_while_writing_through(folder: &TempDir, tier: Tier, io: IoMode) -> (Volume, LoadOptions) {
    let mut volume = Volume::new(folder, SIZE, tier, io);
    let image = volume.backing.clone();
    volume.policy = "through";
    volume.backing = format!("slow:latency=50ms:{image}");
    let mut options = LoadOptions::new(volume.target(), folder.join("journal"), 0..SIZE);
    (options.requests, options.in_flight, options.flush_every) = (Some(120), 8, 30);
    let daemon = volume.start();
    load::run(&options).unwrap();
    // One more that nobody flushes.
    (options.requests, options.flush_every, options.fua_percent) = (Some(4), 0, 0);
    load::run(&options).unwrap();
    daemon.kill9();
    wait_for_late_writes(&volume.image());
    volume.backing = image;
    (volume, options)
}

/// Either of them, as the policy wants.
#[track_caller]
pub fn killed(folder: &TempDir, policy: &str, tier: Tier, io: IoMode) -> (Volume, LoadOptions) {
    match policy {
        "back" => killed_with_a_dirty_tier(folder, tier, io),
        "through" => killed_while_writing_through(folder, tier, io),
        other => panic!("no such policy: {other}"),
    }
}

/// Serves the volume again: every acknowledged write is there, and after a stop in the image alone.
#[track_caller]
pub fn all_there(volume: &Volume, options: &LoadOptions) {
    let daemon = volume.start();
    check::settle_after_kill(&options.journal, &volume.target()).unwrap();
    daemon.stop(MINUTE);
    check::image_complete(&History::read(&options.journal).unwrap(), &volume.image()).unwrap();
}

/// Where the tier of the one volume lies, by the record in its state folder.
#[track_caller]
pub fn tier_path(volume: &Volume) -> PathBuf {
    let record = volume.state().join("volumes").join(format!("{VOLUME_NAME}.toml"));
    let text = std::fs::read_to_string(&record).unwrap_or_else(|e| panic!("{}: {e}", record.display()));
    let path = text.lines().find_map(|line| line.strip_prefix("path = ")).map(|path| path.trim_matches('"'));
    PathBuf::from(path.unwrap_or_else(|| panic!("no path in {text}")))
}

/// The host was started again: a tier in memory is gone, and was of an earlier boot, as far as the daemon can tell.
#[track_caller]
pub fn host_restarted(volume: &Volume) {
    if volume.tier == Tier::Memory {
        std::fs::remove_file(tier_path(volume)).unwrap();
        let noted = volume.state().join("volumes").join(format!("{VOLUME_NAME}.boot"));
        let text = std::fs::read_to_string(&noted).expect("somebody has noted in which boot the tier was made");
        let (boot, volume) = text.split_once(' ').expect("a boot and a volume");
        assert_eq!(boot.len(), 36, "{text}");
        std::fs::write(noted, format!("00000000-0000-4000-8000-000000000000 {volume}")).unwrap();
    }
}

/// Every file below a folder, with its bytes and the time of its last change, to be put back in place: the files keep
/// their inodes, by which a marker knows its image. No daemon may be running at either moment.
#[derive(Debug)]
pub struct Snapshot {
    folder: PathBuf,
    files: BTreeMap<PathBuf, (Vec<u8>, SystemTime)>,
}

impl Snapshot {
    /// The files below a folder, as they are now.
    #[track_caller]
    pub fn of(folder: &Path) -> Snapshot {
        let read = |path: PathBuf| {
            let changed = std::fs::metadata(&path).and_then(|m| m.modified()).unwrap();
            let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            (path, (bytes, changed))
        };
        Snapshot { folder: folder.to_owned(), files: files_below(folder).into_iter().map(read).collect() }
    }

    /// What came since is removed, what was there is as it was.
    #[track_caller]
    pub fn restore(&self) {
        const PIECE: usize = 1 << 16;
        for path in files_below(&self.folder) {
            if !self.files.contains_key(&path) {
                std::fs::remove_file(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            }
        }
        for (path, (bytes, changed)) in &self.files {
            let restored =
                File::options().read(true).write(true).create(true).truncate(false).open(path).and_then(|file| {
                    let now = std::fs::read(path)?;
                    file.set_len(bytes.len() as u64)?;
                    // Only what differs: the disk is slower than the test.
                    for (number, piece) in bytes.chunks(PIECE).enumerate() {
                        let offset = number * PIECE;
                        if now.get(offset..offset + piece.len()) != Some(piece) {
                            file.write_all_at(piece, offset as u64)?;
                        }
                    }
                    file.set_modified(*changed)
                });
            restored.unwrap_or_else(|e| panic!("restore {}: {e}", path.display()));
        }
    }
}

/// Regular files; sockets and the like are left out.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => files.extend(files_below(&entry.path())),
            kind if kind.is_file() => files.push(entry.path()),
            _ => (),
        }
    }
    files
}
