//! The marker beside an image: written while the volume serves, for the last time when it has stopped, and removed when
//! the volume is deleted.
//!
//! Invariants:
//! - Markers are written one after the other, and none comes after the last one or after the removal, however late a periodic
//!   writing gets its turn.
//! - Once ours is there, that of another volume is not replaced: whoever has written it has taken the image. And none is written while
//!   the backing fails, or the lock of the image is not ours: it is by the marker that an image is judged that is opened anew.
//! - A server that hangs holds up the markers of its own images, and nothing else.

use super::{Node, Running, blocking};
use crate::datapath::mailbox::Snapshot;
use crate::judgement::{Label, difference};
use crate::log;
use crate::volume_store::Store;
use anyhow::bail;
use forebay_api::config::DestageName;
use forebay_api::record::{Marker, Record, STORE_VERSION, VolumeId};
use forebay_core::status::Phase;
use forebay_io::durable::remove_durably;
use forebay_io::machine::host_name;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Semaphore;

/// How often markers follow what has been destaged.
const MARKER_PERIOD: std::time::Duration = std::time::Duration::from_secs(2);

/// When a marker is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Serving,
    /// The volume has stopped; `clean`: with an empty log, on purpose.
    Stopped {
        clean: bool,
    },
}

/// Places for calls that may hang with a server of images, of the control plane's threads that may block: others are left for what is asked
/// of volumes elsewhere. Who finds none tries again at the next look.
pub(super) static PLACES: Semaphore = Semaphore::const_new(64);

/// Where the marker of a volume lies.
pub(super) struct MarkerFile {
    path: PathBuf,
    /// Held while the marker is written.
    progress: Mutex<Progress>,
    /// A periodic writing is under way.
    is_followed: AtomicBool,
    /// What was the matter at the last periodic writing.
    problem: Mutex<Option<String>>,
}

/// How far the marker of a volume is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// None of this opening has been written.
    Before,
    /// One has been, and was there as it was left whenever the next one was written; or not always.
    Written { was_always_there: bool },
    /// Nothing may be written any more.
    Final,
}

impl MarkerFile {
    pub(super) fn new(path: PathBuf) -> MarkerFile {
        let (progress, problem) = (Mutex::new(Progress::Before), Mutex::new(None));
        MarkerFile { path, progress, is_followed: AtomicBool::new(false), problem }
    }

    /// The marker of a volume that does not run; none: its backing's spec cannot be read.
    pub(super) fn of(store: &Store, record: &Record) -> Option<MarkerFile> {
        let spec = forebay_io::backing::BackingSpec::parse(&record.backing).ok()?;
        let device = |path: &&std::path::Path| {
            forebay_io::file::kind_of(path).is_ok_and(|kind| kind == forebay_io::folder::FileKind::Block)
        };
        Some(MarkerFile::new(store.marker_path(&record.name, spec.path().filter(|path| !device(path)))))
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("nobody panics while it writes a marker")
    }

    /// Nothing is written while this is held.
    pub(super) fn hold(&self) -> impl Drop + '_ {
        self.progress()
    }

    /// Whether the marker that is there has been ours since it was first written, and the image never older than it.
    pub(super) fn was_always_there(&self) -> bool {
        matches!(*self.progress(), Progress::Written { was_always_there: true })
    }

    /// Writes what `marker` makes of that volume, unless the last version has been written. `may` is asked last.
    fn write(
        &self,
        volume: VolumeId,
        last: bool,
        may: impl Fn() -> anyhow::Result<()>,
        marker: impl FnOnce() -> anyhow::Result<Marker>,
    ) -> anyhow::Result<()> {
        let mut progress = self.progress();
        if *progress == Progress::Final {
            return Ok(());
        }
        may()?;
        let mut there = self.left_by(volume, *progress)?;
        // It takes as long as the image's server does, and others may have been here meanwhile.
        let new = marker()?;
        may()?;
        let mut was_always_there = true;
        if let Progress::Written { was_always_there: before } = *progress {
            there = self.left_by(volume, *progress)?.and(there);
            was_always_there = before && there.is_some_and(|there| difference(&there.image, &new.image).is_none());
        }
        new.save(&self.path)?;
        *progress = if last { Progress::Final } else { Progress::Written { was_always_there } };
        Ok(())
    }

    /// Ours, if it is there. That of another is an error once ours was.
    fn left_by(&self, volume: VolumeId, progress: Progress) -> anyhow::Result<Option<Marker>> {
        if progress == Progress::Before {
            return Ok(None);
        }
        let there = Marker::load(&self.path)?;
        if let Some(other) = there.as_ref().filter(|there| there.volume != volume) {
            bail!(
                "the marker {} is that of volume {} of host {} by now, and is left alone: whoever has written it has taken the image",
                self.path.display(),
                other.name,
                other.host
            );
        }
        Ok(there)
    }

    /// There is one, of another volume.
    pub(super) fn is_of_another(&self, volume: VolumeId) -> bool {
        Marker::load(&self.path).is_ok_and(|marker| marker.is_some_and(|marker| marker.volume != volume))
    }

    /// What it says, if it is this volume's.
    pub(super) fn of_volume(&self, volume: VolumeId) -> anyhow::Result<Option<Marker>> {
        Ok(Marker::load(&self.path)?.filter(|marker| marker.volume == volume))
    }

    /// Removes it if it is this volume's, for good.
    pub(super) fn remove(&self, volume: VolumeId) -> anyhow::Result<()> {
        let mut progress = self.progress();
        *progress = Progress::Final;
        match Marker::load(&self.path) {
            Ok(Some(marker)) if marker.volume == volume => Ok(remove_durably(&self.path)?),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

pub(super) fn save_marker(
    record: &Record,
    running: &Running,
    snapshot: &Snapshot,
    moment: Moment,
) -> anyhow::Result<()> {
    let clean = moment == Moment::Stopped { clean: true };
    let may = || running.opening.require_lock();
    running.marker.write(record.volume, moment != Moment::Serving, may, || {
        Ok(Marker {
            version: STORE_VERSION,
            volume: record.volume,
            name: record.name.clone(),
            host: host_name(),
            tier: record.tier.path.clone(),
            term: snapshot.status.term.0,
            destaged: snapshot.status.destaged.0,
            journal: match (&running.journal_place, record.destage) {
                (Ok(path), DestageName::Journaled | DestageName::Auto) => Some(path.clone()),
                (Ok(path), DestageName::Ordered) if snapshot.status.journal_bytes > 0 || path.exists() => {
                    Some(path.clone())
                }
                (Ok(_), DestageName::Ordered) | (Err(_), _) => None,
            }
            .filter(|_| !clean),
            image: running.opening.image().settle(Label { volume: record.volume, term: snapshot.status.term.0 })?,
            clean,
        })
    })
}

impl Node {
    /// Keeps the markers of volumes that do something up with what is destaged, and looks after backings that fail. Never ends.
    pub async fn keep_markers(self: Arc<Node>) {
        let mut ticks = tokio::time::interval(MARKER_PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // What was told of the backing of each volume: only what changes is told again.
        let mut told: HashMap<String, Option<String>> = HashMap::new();
        loop {
            ticks.tick().await;
            let mut due = Vec::new();
            for entry in self.entries().iter_mut() {
                if let Some(running) = &entry.running {
                    let activity = running.activity.load(Ordering::Relaxed);
                    // Of one in trouble it is told when that is over, however quiet it is.
                    let in_trouble =
                        told.get(&entry.facts.name).is_some_and(Option::is_some) || running.opening.is_given_up();
                    if activity != entry.activity_seen || in_trouble {
                        entry.activity_seen = activity;
                        due.push((entry.record.clone(), running.clone()));
                    }
                }
            }
            for (record, running) in due {
                let Some(snapshot) = self.snapshot(&running).await else { continue };
                let given_up = || running.opening.is_given_up().then(|| "its lock is not this node's".to_owned());
                let trouble = crate::status::backing_trouble(&snapshot).or_else(given_up);
                // Also of one that stops.
                match &trouble {
                    Some(_) => self.look_at_opening(&record, &running, snapshot.status.term.0),
                    None => running.opening.works(),
                }
                if !matches!(snapshot.status.phase, Phase::Serving) {
                    continue;
                }
                let works = trouble.is_none();
                let name = &record.name;
                let before = told.entry(name.clone()).or_default();
                if *before != trouble {
                    match &trouble {
                        Some(why) => log::say!(
                            Error,
                            "volume {name}: the backing fails: {why}; what was acknowledged stays in the tier"
                        ),
                        None => log::say!(Notice, "volume {name}: the backing works again"),
                    }
                    *before = trouble;
                }
                // The former one still protects: it only knows an older state of the image.
                if works {
                    follow(record, running, snapshot);
                }
            }
        }
    }
}

/// Has the marker follow what is destaged. Returns at once.
fn follow(record: Record, running: Running, snapshot: Snapshot) {
    let Ok(place) = PLACES.try_acquire() else { return };
    if running.marker.is_followed.swap(true, Ordering::AcqRel) {
        return;
    }
    tokio::spawn(async move {
        let _place = place;
        let (name, marker) = (record.name.clone(), running.marker.clone());
        let problem = blocking(move || save_marker(&record, &running, &snapshot, Moment::Serving)).await.err();
        let mut before = marker.problem.lock().expect("nobody panics while holding it");
        if let Some(message) = problem.as_ref().filter(|_| *before != problem) {
            log::say!(Notice, "volume {name}: {message}");
        }
        *before = problem;
        drop(before);
        marker.is_followed.store(false, Ordering::Release);
    });
}

/// Records that a volume serves, after its marker. Where that fails of one that never did, the marker goes again, if it is still recorded
/// so: the next start is not to look for writes that nobody has made.
pub(super) fn record_as_made(
    store: &Store,
    before: &Record,
    record: &Record,
    marker: &MarkerFile,
) -> anyhow::Result<()> {
    if before.tier.made {
        return store.save(record);
    }
    let Err(error) = store.change(before, record) else { return Ok(()) };
    if store.load(&record.name).is_ok_and(|there| there.is_none_or(|there| !there.tier.made)) {
        // Where it stays, the next start refuses, and says what it misses.
        let _ = marker.remove(record.volume);
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::record::ImageIdentity;

    const VOLUME: VolumeId = VolumeId([1; 16]);

    fn may() -> anyhow::Result<()> {
        Ok(())
    }

    fn marker(volume: VolumeId, destaged: u64) -> Marker {
        Marker {
            version: STORE_VERSION,
            volume,
            name: "vm1".into(),
            host: "a".into(),
            tier: "/t".into(),
            term: 1,
            destaged,
            journal: None,
            image: ImageIdentity { inode: None, born_ns: None, size_bytes: 4096, changed_ns: None },
            clean: false,
        }
    }

    #[test]
    fn nothing_is_written_after_the_last_marker_or_its_removal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.img.forebay");
        let destaged = || Marker::load(&path).unwrap().map(|marker| marker.destaged);

        let stopped = MarkerFile::new(path.clone());
        stopped.write(VOLUME, false, may, || Ok(marker(VOLUME, 1))).unwrap();
        stopped.write(VOLUME, true, may, || Ok(marker(VOLUME, 2))).unwrap();
        stopped.write(VOLUME, false, may, || panic!("a marker is made after the last one")).unwrap();
        assert_eq!(destaged(), Some(2));

        let deleted = MarkerFile::new(path.clone());
        deleted.write(VOLUME, false, may, || Ok(marker(VOLUME, 3))).unwrap();
        deleted.remove(VOLUME).unwrap();
        deleted.write(VOLUME, false, may, || panic!("a marker is made after its removal")).unwrap();
        assert_eq!(destaged(), None);
    }

    #[test]
    fn whoever_has_taken_the_image_keeps_his_marker() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.img.forebay");
        let other = VolumeId([2; 16]);
        // One that was there before, and left the image complete, gives way.
        marker(other, 7).save(&path).unwrap();
        let ours = MarkerFile::new(path.clone());
        ours.write(VOLUME, false, may, || Ok(marker(VOLUME, 1))).unwrap();
        marker(other, 8).save(&path).unwrap();
        for last in [false, true] {
            let refused =
                ours.write(VOLUME, last, may, || panic!("nothing is said of an image that is another's")).unwrap_err();
            assert!(refused.to_string().contains("has taken the image"), "{refused}");
        }
        assert_eq!(Marker::load(&path).unwrap().unwrap().destaged, 8);
        // What it was before is written again when it is ours again.
        marker(VOLUME, 1).save(&path).unwrap();
        ours.write(VOLUME, true, may, || Ok(marker(VOLUME, 9))).unwrap();
        assert_eq!(Marker::load(&path).unwrap().unwrap().destaged, 9);
    }

    /// By such a marker no image is judged that is opened anew.
    #[test]
    fn a_marker_that_was_not_as_it_was_left_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.img.forebay");
        let of_size = |size_bytes| {
            let marker = marker(VOLUME, 1);
            Marker { image: ImageIdentity { size_bytes, ..marker.image }, ..marker }
        };
        let write = |file: &MarkerFile, bytes| file.write(VOLUME, false, may, || Ok(of_size(bytes))).unwrap();
        for spoil in [true, false] {
            let ours = MarkerFile::new(path.clone());
            assert!(!ours.was_always_there(), "none was written");
            write(&ours, 4096);
            write(&ours, 8192);
            assert!(ours.was_always_there());
            if spoil {
                std::fs::remove_file(&path).unwrap();
                write(&ours, 8192);
            } else {
                write(&ours, 4096);
            }
            assert!(!ours.was_always_there(), "it was removed, or the image got shorter");
            write(&ours, 8192);
            assert!(!ours.was_always_there(), "it is not forgotten");
        }
        // Others come while it is made.
        let ours = MarkerFile::new(path.clone());
        write(&ours, 4096);
        let made = || {
            marker(VolumeId([2; 16]), 3).save(&path).unwrap();
            Ok(marker(VOLUME, 2))
        };
        assert!(ours.write(VOLUME, false, may, made).is_err());
        assert_eq!(Marker::load(&path).unwrap().unwrap().volume, VolumeId([2; 16]));
    }

    #[test]
    fn the_marker_of_another_volume_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.img.forebay");
        marker(VolumeId([2; 16]), 7).save(&path).unwrap();
        MarkerFile::new(path.clone()).remove(VOLUME).unwrap();
        assert!(path.exists());
    }
}
