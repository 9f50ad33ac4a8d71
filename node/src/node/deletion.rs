//! A volume is deleted: stopped, then its tier, journal, marker and record are removed. Its image stays.
//!
//! Invariants:
//! - Nothing that is in no other place is removed unless the operator gives it up.
//! - Wherever the removal breaks off, what is left is known for what it is, and the deletion can be done again.

use super::markers::MarkerFile;
use super::{Absence, Answer, FailureKind, Node, Running, blocking, failure, no_such_volume};
use crate::journal;
use crate::open::remove_spare;
use crate::units::show_size;
use crate::volume_store::{Record, Store, remove_durably};
use forebay_core::status::Phase;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Node {
    /// Forgets a volume and removes its tier.
    pub async fn delete(self: &Arc<Node>, name: &str, discard_dirty: bool) -> Answer<()> {
        if let Some(cluster) = self.cluster_of(name) {
            return cluster.delete(name, discard_dirty).await;
        }
        let _admin = self.admin.lock().await;
        let (record, running) = {
            let entries = self.entries();
            let Some(entry) = entries.iter().find(|e| e.facts.name == name) else { return no_such_volume(name) };
            if let (Some(Absence::Waiting(_, cancelled)), true) = (&entry.absence, discard_dirty) {
                cancelled.store(true, Ordering::Relaxed);
            }
            (entry.record.clone(), entry.running.clone())
        };
        let mut displaced = None;
        match &running {
            None if record.tier.made && !discard_dirty => {
                return failure(
                    FailureKind::Conflict,
                    format!(
                        "volume {name} does not run, so its tier may hold writes that are in no other place; repair and \
                         drain it, or give them up with --discard-dirty"
                    ),
                );
            }
            None => {}
            Some(running) => {
                displaced = running.look_at_image(name).await;
                if let (Some(text), false) = (&displaced, discard_dirty) {
                    let message = format!("volume {name}: {text}; --discard-dirty forgets the volume all the same");
                    return failure(FailureKind::Conflict, message);
                }
                self.directory.remove(name);
                if let Err(refused) = self.stop_for_deletion(name, running, discard_dirty).await {
                    if let Some(export) = self.export_of(name, running).await {
                        self.directory.add(export, false);
                    }
                    return Err(refused);
                }
            }
        }
        self.entries().retain(|e| e.facts.name != name);
        if let (Some(_), Some(Ok(path))) = (&displaced, running.as_ref().map(|running| &running.journal_place))
            && path.exists()
        {
            let path = path.display();
            eprintln!(
                "forebay: volume {name}: its journal {path} stays, for its image; remove it if that is gone for good"
            );
        }
        let store = self.store.clone();
        let marker = match running {
            Some(running) => Some(running.marker),
            None => MarkerFile::of(&store, &record).map(Arc::new),
        };
        match blocking(move || forget(&store, &record, marker.as_deref(), displaced.is_some())).await {
            Ok(()) => Ok(()),
            Err(message) => {
                let message = format!("volume {name} is closed, but not wholly removed: {message}");
                self.note_failed(name, &message);
                failure(FailureKind::Failed, message)
            }
        }
    }

    async fn stop_for_deletion(&self, name: &str, running: &Running, discard_dirty: bool) -> Answer<()> {
        let Some(snapshot) = self.snapshot(running).await else { return Ok(()) };
        if !discard_dirty {
            if snapshot.connections > 0 {
                return failure(
                    FailureKind::Conflict,
                    format!(
                        "volume {name} has {} clients; disconnect them first, or use --discard-dirty",
                        snapshot.connections
                    ),
                );
            }
            if snapshot.status.dirty_bytes > 0 {
                return failure(
                    FailureKind::Conflict,
                    format!(
                        "volume {name} holds {} that are not in the backing; run `forebay volume drain {name}` first, or give \
                         them up with --discard-dirty",
                        show_size(snapshot.status.dirty_bytes)
                    ),
                );
            }
        }
        if !matches!(snapshot.status.phase, Phase::Refused(_)) {
            // What it could not make durable is thrown away with it.
            let _ = self.stop_without_drain(name, running).await;
        }
        self.detach(running).await;
        Ok(())
    }
}

/// Removes what is left of a volume that is closed. In this order a kill in between leaves what is known for what it is,
/// and can be deleted again: the tier before the journal, because a tier whose batches are gone from the journal would
/// send their groups once more over an image that is further on; the marker, which says that the image needs its journal,
/// after that; the record last.
///
/// `displaced`: the file at the image's path is not the volume's image, so the journal is not replayed into it, and stays.
fn forget(store: &Store, record: &Record, marker: Option<&MarkerFile>, displaced: bool) -> anyhow::Result<()> {
    // One that cannot be replayed is found out while the tier still has all that it holds.
    let journal = match displaced {
        true => None,
        false => journal::left_behind(record, marker.and_then(|m| m.image_of(record.volume)).as_ref())?,
    };
    wipe_tier(record)?;
    if let Some(kept) = record.spare.as_deref().and_then(|path| remove_spare(&record.name, path)) {
        eprintln!("forebay: volume {}: {kept}", record.name);
    }
    if let Some(path) = journal {
        // Of a volume whose dirty data is given up, too: in the middle of a batch the image is no crash image.
        journal::finish(record, &path)?;
    }
    if let Some(marker) = marker {
        marker.remove(record.volume)?;
    }
    store.remove(&record.name)
}

/// Removes a tier's file; of a device the superblock is wiped, so that it is free for another volume.
fn wipe_tier(record: &Record) -> anyhow::Result<()> {
    use std::os::unix::fs::FileExt;
    let path = &record.tier.path;
    match forebay_io::file::kind_of(path) {
        Err(_) => Ok(()),
        Ok(forebay_io::file::FileKind::Regular) => remove_durably(path),
        Ok(forebay_io::file::FileKind::Block) => {
            let file = std::fs::OpenOptions::new().write(true).open(path)?;
            file.write_all_at(&[0; 4096], 0)?;
            Ok(file.sync_all()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DestageName, PolicyName, TierName};
    use crate::volume_store::{ImageIdentity, Marker, STORE_VERSION, TierRecord, VolumeId};
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    const VOLUME: VolumeId = VolumeId([1; 16]);
    const ANY_IMAGE: ImageIdentity = ImageIdentity { inode: None, born_ns: None, size_bytes: 0, changed_ns: None };

    fn record(image: &Path, tier: &Path) -> Record {
        Record {
            version: STORE_VERSION,
            name: "vm1".into(),
            volume: VOLUME,
            backing: image.display().to_string(),
            size_bytes: 1 << 20,
            policy: PolicyName::Back,
            drain_max_s: 0,
            volatile: false,
            format_raw: false,
            memory_bytes: 0,
            destage: DestageName::Journaled,
            journal_bytes: 0,
            spare: None,
            tier: TierRecord { kind: TierName::Flash, path: tier.to_owned(), size_bytes: 4096, made: true },
        }
    }

    #[test]
    fn a_deletion_that_breaks_off_at_the_journal_keeps_what_speaks_of_it_and_is_done_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        let (image, tier) = (folder.path().join("disk.img"), folder.path().join("tier"));
        let record = record(&image, &tier);
        store.save(&record).unwrap();
        std::fs::write(&tier, b"a tier").unwrap();
        // A folder in the place of the image: its journal can be looked at, and not be replayed.
        std::fs::create_dir(&image).unwrap();
        let journal = forebay_io::journal::path_of(&image).unwrap();
        drop(forebay_io::Journal::create(&journal, &VOLUME.0, 16384, std::time::Duration::from_secs(1)).unwrap());
        std::fs::File::options().write(true).open(&journal).unwrap().write_all_at(b"torn", 4096).unwrap();
        let marker_path = store.marker_path("vm1", Some(&image));
        let marker = Marker {
            version: STORE_VERSION,
            volume: VOLUME,
            name: "vm1".into(),
            host: "a".into(),
            tier: tier.clone(),
            term: 1,
            destaged: 0,
            journal: Some(journal.clone()),
            image: ANY_IMAGE,
            clean: false,
        };
        marker.save(&marker_path).unwrap();
        let marker = MarkerFile::of(&store, &record).unwrap();

        let error = format!("{:#}", forget(&store, &record, Some(&marker), false).unwrap_err());
        assert!(error.contains("disk.img"), "{error}");
        assert!(!tier.exists() && journal.exists() && marker_path.exists(), "{error}");
        assert_eq!(store.load("vm1").unwrap(), Some(record.clone()));

        std::fs::remove_dir(&image).unwrap();
        std::fs::write(&image, vec![0; 1 << 20]).unwrap();
        forget(&store, &record, Some(&marker), false).unwrap();
        assert!(!journal.exists() && !marker_path.exists());
        assert_eq!(store.load("vm1").unwrap(), None);
    }

    #[test]
    fn a_journal_is_not_replayed_into_another_image() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("disk.img");
        let record = record(&image, &folder.path().join("tier"));
        std::fs::write(&image, vec![0; 1 << 20]).unwrap();
        let journal = forebay_io::journal::path_of(&image).unwrap();
        drop(forebay_io::Journal::create(&journal, &VOLUME.0, 16384, std::time::Duration::from_secs(1)).unwrap());
        let other = ImageIdentity { inode: Some(0), ..ANY_IMAGE };
        let error = format!("{:#}", journal::left_behind(&record, Some(&other)).unwrap_err());
        assert!(error.contains("its inode is"), "{error}");
        assert_eq!(journal::left_behind(&record, Some(&ANY_IMAGE)).unwrap(), Some(journal));
    }
}
