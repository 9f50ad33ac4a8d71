//! The marker beside an image: written while the volume serves, for the last time when it has stopped, and removed when
//! the volume is deleted.
//!
//! Invariants:
//! - Markers are written one after the other, and none comes after the last one or after the removal, however late a periodic
//!   writing gets its turn.
//! - Once ours is there, it is replaced only as it was left. Who has written another one, or removed it, has taken the image, or restored
//!   an older state of it: that is for the next start to judge. For the same reason none is written while the image cannot be read by its
//!   opening, or its lock is not ours.
//! - A server that hangs holds up the markers of its own images, and nothing else.

use super::{Node, Running, blocking};
use crate::datapath::mailbox::Snapshot;
use crate::judgement::{Label, difference};
use crate::log;
use crate::seconds::Seconds;
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

/// How often markers follow what has been destaged, in seconds.
const MARKER_SECONDS: u32 = 2;

/// When a marker is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Serving,
    /// The volume has stopped; `clean`: with an empty log, on purpose.
    Stopped {
        clean: bool,
    },
}

/// Places for markers that follow, which may hang with a server of images: threads are left for what is asked of volumes elsewhere.
static FOLLOWS: Semaphore = Semaphore::const_new(64);

/// Where the marker of a volume lies.
pub(super) struct MarkerFile {
    path: PathBuf,
    /// Held while the marker is written.
    progress: Mutex<Progress>,
    /// A periodic writing is under way.
    is_followed: AtomicBool,
    /// One is due, whatever the volume does.
    is_owed: AtomicBool,
    /// What was the matter at the last periodic writing.
    problem: Mutex<Option<String>>,
}

/// How far the marker of a volume is.
enum Progress {
    /// None of this opening has been written.
    Before,
    /// So it was left, or, where that was not told as done, like the other one.
    Left(Box<Marker>, Option<Box<Marker>>),
    /// Nothing may be written any more.
    Final,
}

impl MarkerFile {
    pub(super) fn new(path: PathBuf) -> MarkerFile {
        let (progress, problem) = (Mutex::new(Progress::Before), Mutex::new(None));
        MarkerFile { path, progress, is_followed: AtomicBool::new(false), is_owed: AtomicBool::new(false), problem }
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

    /// The marker, if it is there as it was left.
    pub(super) fn as_left(&self) -> anyhow::Result<Marker> {
        let progress = self.progress();
        match (&*progress, self.there(&progress)?) {
            (Progress::Left(..), Some(there)) => Ok(there),
            (Progress::Before | Progress::Left(..) | Progress::Final, _) => self.is_gone(),
        }
    }

    /// Writes what `marker` makes, unless the last version has been written. `may` is asked once there was one, last of all.
    fn write(
        &self,
        moment: Moment,
        may: impl Fn() -> anyhow::Result<()>,
        marker: impl FnOnce() -> anyhow::Result<Marker>,
    ) -> anyhow::Result<()> {
        let mut progress = self.progress();
        // What is there; nothing where nothing is asked of it.
        let require = |progress: &Progress| match (progress, self.there(progress)?) {
            (Progress::Left(..), None) => self.is_gone(),
            (Progress::Left(..), found) => may().map(|()| found),
            (Progress::Before | Progress::Final, _) => Ok(None),
        };
        match &*progress {
            Progress::Final => return Ok(()),
            // A complete image needs none.
            Progress::Left(..) if moment == Moment::Stopped { clean: true } && self.there(&progress)?.is_none() => {
                *progress = Progress::Final;
                return Ok(());
            }
            Progress::Before => {}
            Progress::Left(..) => drop(require(&progress)?),
        }
        let mut new = Box::new(marker()?);
        // That took as long as the image's server does, and others may have been here meanwhile.
        let found = match *progress {
            Progress::Before | Progress::Final => None,
            Progress::Left(..) => require(&progress)?.map(Box::new),
        };
        // An image that has become older or shorter is for the next start to judge, unless all is in it.
        if let Some(found) = found.as_ref().filter(|_| !new.clean)
            && difference(&found.image, &new.image).is_some()
        {
            new.image = found.image;
        }
        let saved = new.save(&self.path);
        *progress = match (&saved, found) {
            (Ok(()), _) if moment != Moment::Serving => Progress::Final,
            (Ok(()), _) => Progress::Left(new, None),
            (Err(_), Some(found)) => Progress::Left(found, Some(new)),
            (Err(_), None) => Progress::Before,
        };
        saved
    }

    /// What is there; an error where that is another one than was left.
    fn there(&self, progress: &Progress) -> anyhow::Result<Option<Marker>> {
        let there = Marker::load(&self.path)?;
        let (Progress::Left(left, or), Some(is)) = (progress, &there) else { return Ok(there) };
        let path = self.path.display();
        if is.volume != left.volume {
            bail!(
                "the marker {path} is that of volume {} of host {} by now, and is left alone: whoever has written it has taken the image",
                is.name,
                is.host
            );
        }
        if *is != **left && or.as_ref().is_none_or(|or| *is != **or) {
            bail!(
                "the marker {path} is not as this node has left it, and is left alone: somebody has restored it, or serves the volume as well"
            );
        }
        Ok(there)
    }

    fn is_gone<T>(&self) -> anyhow::Result<T> {
        bail!(
            "the marker {} is gone, and is not written again while the volume serves: whoever has removed it may have had the image for his \
             own. If nobody has, drain the volume and restart the daemon",
            self.path.display()
        )
    }

    /// Whether there is one, of another volume. What cannot be read says neither.
    pub(super) fn is_of_another(&self, volume: VolumeId) -> anyhow::Result<bool> {
        Ok(Marker::load(&self.path)?.is_some_and(|marker| marker.volume != volume))
    }

    /// What it says, whosever it is; none where there is none.
    pub(super) fn load(&self) -> anyhow::Result<Option<Marker>> {
        Marker::load(&self.path)
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
    let may = || {
        running.opening.require_lock()?;
        if clean {
            // All has just been synced by this opening.
            return Ok(());
        }
        match crate::status::backing_trouble(snapshot) {
            Some(why) if !running.opening.reads() => {
                bail!("its marker stays as it is: its backing fails ({why}), and cannot be read")
            }
            Some(_) | None => Ok(()),
        }
    };
    running.marker.write(moment, may, || {
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
    pub async fn keep_markers(self: Arc<Node>, mut seconds: Seconds) {
        // What was told of the backing of each volume: only what changes is told again.
        let mut told: HashMap<String, Option<String>> = HashMap::new();
        loop {
            seconds.pass(MARKER_SECONDS).await;
            let mut due = Vec::new();
            for entry in self.entries().iter_mut() {
                if let Some(running) = &entry.running {
                    let activity = running.activity.load(Ordering::Relaxed);
                    // Of one in trouble it is told when that is over, however quiet it is.
                    let in_trouble = told.get(&entry.facts.name).is_some_and(Option::is_some)
                        || running.opening.is_given_up()
                        || running.marker.is_owed.load(Ordering::Relaxed);
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
                let is_serving = matches!(snapshot.status.phase, Phase::Serving);
                let name = record.name.clone();
                let before = told.entry(name.clone()).or_default();
                if is_serving && *before != trouble {
                    match &trouble {
                        Some(why) => log::say!(
                            Error,
                            volume(name),
                            "the backing fails: {why}; what was acknowledged stays in the tier"
                        ),
                        None => log::say!(Notice, volume(name), "the backing works again"),
                    }
                    before.clone_from(&trouble);
                }
                let marker = running.marker.clone();
                let (of, volume) = (record.clone(), running.clone());
                let follows = match trouble {
                    None => {
                        running.opening.works();
                        is_serving && follow(record, running, snapshot)
                    }
                    // Also of one that stops.
                    Some(_) => {
                        self.look_at_opening(of, volume, move || {
                            let _ = is_serving && follow(record, running, snapshot);
                        });
                        false
                    }
                };
                marker.is_owed.store(is_serving && !follows, Ordering::Relaxed);
            }
        }
    }
}

/// Has the marker follow what is destaged. Returns at once; false: it does not, because it does already, or there is no place.
fn follow(record: Record, running: Running, snapshot: Snapshot) -> bool {
    let Ok(place) = FOLLOWS.try_acquire() else { return false };
    if running.marker.is_followed.swap(true, Ordering::AcqRel) {
        return false;
    }
    tokio::spawn(async move {
        let _place = place;
        let (name, marker) = (record.name.clone(), running.marker.clone());
        let problem = blocking(move || save_marker(&record, &running, &snapshot, Moment::Serving)).await.err();
        let mut before = marker.problem.lock().expect("nobody panics while holding it");
        if let Some(message) = problem.as_ref().filter(|_| *before != problem) {
            log::say!(Notice, volume(name), "{message}");
        }
        *before = problem;
        drop(before);
        marker.is_followed.store(false, Ordering::Release);
    });
    true
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

    const CLEAN: Moment = Moment::Stopped { clean: true };
    const UNCLEAN: Moment = Moment::Stopped { clean: false };

    #[test]
    fn nothing_is_written_after_the_last_marker_or_its_removal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.img.forebay");
        let destaged = || Marker::load(&path).unwrap().map(|marker| marker.destaged);

        let stopped = MarkerFile::new(path.clone());
        stopped.write(Moment::Serving, may, || Ok(marker(VOLUME, 1))).unwrap();
        stopped.write(CLEAN, may, || Ok(marker(VOLUME, 2))).unwrap();
        stopped.write(Moment::Serving, may, || panic!("a marker is made after the last one")).unwrap();
        assert_eq!(destaged(), Some(2));

        let deleted = MarkerFile::new(path.clone());
        deleted.write(Moment::Serving, may, || Ok(marker(VOLUME, 3))).unwrap();
        deleted.remove(VOLUME).unwrap();
        deleted.write(Moment::Serving, may, || panic!("a marker is made after its removal")).unwrap();
        assert_eq!(destaged(), None);
    }

    /// What is there by now is for the next start to judge, which would take a new one for the image's.
    #[test]
    fn a_marker_that_is_not_as_it_was_left_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.img.forebay");
        let other = VolumeId([2; 16]);
        let never = || panic!("nothing is said of an image that may be another's");
        // One that was there before, and left the image complete, gives way.
        marker(other, 7).save(&path).unwrap();
        let ours = MarkerFile::new(path.clone());
        assert!(ours.as_left().is_err(), "none was written");
        ours.write(Moment::Serving, may, || Ok(marker(VOLUME, 1))).unwrap();
        ours.write(Moment::Serving, may, || Ok(marker(VOLUME, 2))).unwrap();
        assert_eq!(ours.as_left().unwrap().destaged, 2);
        for (there, words) in
            [(marker(other, 8), "has taken the image"), (marker(VOLUME, 1), "not as this node has left it")]
        {
            there.save(&path).unwrap();
            for moment in [Moment::Serving, CLEAN, UNCLEAN] {
                let refused = ours.write(moment, may, never).unwrap_err();
                assert!(refused.to_string().contains(words), "{refused}");
            }
            assert!(ours.as_left().is_err());
            assert_eq!(Marker::load(&path).unwrap(), Some(there));
        }
        // Others come while it is made.
        marker(VOLUME, 2).save(&path).unwrap();
        let made = || {
            marker(other, 3).save(&path).unwrap();
            Ok(marker(VOLUME, 4))
        };
        assert!(ours.write(Moment::Serving, may, made).is_err());
        assert_eq!(Marker::load(&path).unwrap(), Some(marker(other, 3)));
        // A complete image needs none; another one's is missed.
        std::fs::remove_file(&path).unwrap();
        for moment in [Moment::Serving, UNCLEAN] {
            assert!(ours.write(moment, may, never).unwrap_err().to_string().contains("is gone"));
        }
        ours.write(CLEAN, may, never).unwrap();
        assert!(!path.exists());
    }

    /// Else a state that somebody has restored would pass for the newest one.
    #[test]
    fn what_a_marker_says_of_its_image_does_not_become_older() {
        let folder = tempfile::tempdir().unwrap();
        let ours = MarkerFile::new(folder.path().join("x.img.forebay"));
        let changed = |destaged, changed_ns| {
            let marker = marker(VOLUME, destaged);
            Marker { image: ImageIdentity { changed_ns: Some(changed_ns), ..marker.image }, ..marker }
        };
        for (destaged, changed_ns) in [(1, 500), (2, 400), (3, 600)] {
            ours.write(Moment::Serving, may, || Ok(changed(destaged, changed_ns))).unwrap();
            let left = ours.as_left().unwrap();
            assert_eq!((left.destaged, left.image.changed_ns), (destaged, Some(changed_ns.max(500))));
        }
        ours.write(CLEAN, may, || Ok(Marker { clean: true, ..changed(4, 300) })).unwrap();
        assert_eq!(Marker::load(&ours.path).unwrap().unwrap().image.changed_ns, Some(300), "all is in it");
    }

    #[test]
    fn no_marker_is_written_while_the_backing_fails_but_the_first_one() {
        let folder = tempfile::tempdir().unwrap();
        let ours = MarkerFile::new(folder.path().join("x.img.forebay"));
        let fails = || bail!("it fails");
        ours.write(Moment::Serving, fails, || Ok(marker(VOLUME, 1))).unwrap();
        for moment in [Moment::Serving, CLEAN, UNCLEAN] {
            assert!(ours.write(moment, fails, || Ok(marker(VOLUME, 2))).is_err());
        }
        assert_eq!(ours.as_left().unwrap().destaged, 1);
        ours.write(UNCLEAN, may, || Ok(marker(VOLUME, 2))).unwrap();
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
