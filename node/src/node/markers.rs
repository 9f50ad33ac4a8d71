//! The marker beside an image: written while the volume serves, for the last time when it has stopped, and removed when
//! the volume is deleted.
//!
//! Invariant: markers are written one after the other, and none comes after the last one or after the removal, however late
//! a periodic writing gets its turn.

use super::Running;
use crate::datapath::mailbox::Snapshot;
use crate::judgement::Label;
use crate::volume_store::Store;
use forebay_api::config::DestageName;
use forebay_api::record::{Marker, Record, STORE_VERSION, VolumeId};
use forebay_io::durable::remove_durably;
use forebay_io::machine::host_name;
use std::path::PathBuf;
use std::sync::Mutex;

/// When a marker is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Serving,
    /// The volume has stopped; `clean`: with an empty log, on purpose.
    Stopped {
        clean: bool,
    },
}

/// Where the marker of a volume lies.
pub(super) struct MarkerFile {
    path: PathBuf,
    /// Held while the marker is written: true when nothing may be written any more.
    is_final: Mutex<bool>,
}

impl MarkerFile {
    pub(super) fn new(path: PathBuf) -> MarkerFile {
        MarkerFile { path, is_final: Mutex::new(false) }
    }

    /// The marker of a volume that does not run; none: its backing's spec cannot be read.
    pub(super) fn of(store: &Store, record: &Record) -> Option<MarkerFile> {
        let spec = forebay_io::backing::BackingSpec::parse(&record.backing).ok()?;
        let device = |path: &&std::path::Path| {
            forebay_io::file::kind_of(path).is_ok_and(|kind| kind == forebay_io::folder::FileKind::Block)
        };
        Some(MarkerFile::new(store.marker_path(&record.name, spec.path().filter(|path| !device(path)))))
    }

    /// Writes what `marker` makes, unless the last version has been written.
    fn write(&self, last: bool, marker: impl FnOnce() -> anyhow::Result<Marker>) -> anyhow::Result<()> {
        let mut is_final = self.is_final.lock().expect("nobody panics while it writes a marker");
        if *is_final {
            return Ok(());
        }
        marker()?.save(&self.path)?;
        *is_final = last;
        Ok(())
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
        let mut is_final = self.is_final.lock().expect("nobody panics while it writes a marker");
        *is_final = true;
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
    running.marker.write(moment != Moment::Serving, || {
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
            image: running.image.settle(Label { volume: record.volume, term: snapshot.status.term.0 })?,
            clean,
        })
    })
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
        stopped.write(false, || Ok(marker(VOLUME, 1))).unwrap();
        stopped.write(true, || Ok(marker(VOLUME, 2))).unwrap();
        stopped.write(false, || panic!("a marker is made after the last one")).unwrap();
        assert_eq!(destaged(), Some(2));

        let deleted = MarkerFile::new(path.clone());
        deleted.write(false, || Ok(marker(VOLUME, 3))).unwrap();
        deleted.remove(VOLUME).unwrap();
        deleted.write(false, || panic!("a marker is made after its removal")).unwrap();
        assert_eq!(destaged(), None);
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
