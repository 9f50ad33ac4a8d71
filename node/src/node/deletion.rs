//! A volume is deleted: stopped, then its tier, journal, marker and record are removed. Its image stays.
//!
//! Invariants:
//! - Nothing that is in no other place is removed unless the operator gives it up.
//! - Whoever is told that a volume is deleted can use its image: nothing of it is on its shard any more.
//! - Wherever the removal breaks off, what is left is known for what it is, and the deletion can be done again.

use super::markers::{MarkerFile, Moment, save_marker};
use super::{Absence, Answer, Node, Running, STOP_MAX, blocking, close_files, failure, no_such_volume};
use crate::cluster::deletion::GivenUp;
use crate::failure::FailureKind;
use crate::journal;
use crate::log;
use crate::names;
use crate::open::{Removal, TIER_LOCK_WAIT, is_all_zeros, is_own_place, remove_spare};
use crate::volume_store::Store;
use anyhow::Context;
use forebay_api::record::{Record, TierRecord, VolumeId};
use forebay_api::units::show_size;
use forebay_core::api::Control;
use forebay_core::format::TIER_BLOCK_BYTES;
use forebay_core::status::Phase;
use forebay_io::folder::{FileKind, Held};
use forebay_io::memory::AlignedBuffer;
use forebay_io::{FlashTier, HolderDescription, lock};
use forebay_rescue::tier_reader::TierReader;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Node {
    /// Forgets a volume and removes its tier.
    pub async fn delete(self: &Arc<Node>, name: &str, given_up: Option<GivenUp>) -> Answer<()> {
        if let Some(cluster) = self.cluster_of(name) {
            return cluster.delete(name, given_up).await;
        }
        if given_up.as_ref().is_some_and(|given_up| !given_up.fenced.is_empty()) {
            let message =
                "it is of this node alone, and no other one has ever written to its backing; leave --i-fenced-it out";
            return failure(FailureKind::Invalid, format!("volume {name}: {message}"));
        }
        let discard_dirty = given_up.is_some();
        let _admin = self.admin.lock().await;
        if self.forget_without_record(name) {
            return Ok(());
        }
        self.read_again(name);
        self.refuse_unreadable(name)?;
        let (record, running, unended) = {
            let entries = self.entries();
            let Some(entry) = entries.iter().find(|e| e.facts.name == name) else { return no_such_volume(name) };
            if let (Some(Absence::Waiting(_, cancelled)), true) = (&entry.absence, discard_dirty) {
                cancelled.store(true, Ordering::Relaxed);
            }
            (entry.record.clone(), entry.running.clone(), entry.unended.clone())
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
            None => self.set_aside(name, unended.as_ref()).await,
            Some(running) => {
                displaced = running.look_at_image(name).await;
                if let (Some(text), false) = (&displaced, discard_dirty) {
                    let message = format!("volume {name}: {text}; --discard-dirty forgets the volume all the same");
                    return failure(FailureKind::Conflict, message);
                }
                self.directory.set_aside(name);
                if let Err(refused) = self.stop_for_deletion(&record, running, discard_dirty).await {
                    if let Some(export) = self.export_of(&record, running).await {
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
            say_journal_stays(name, path);
        }
        let store = self.store.clone();
        let marker = match running.or(unended) {
            Some(running) => {
                let marker = running.marker.clone();
                close_files(name, running).await;
                Some(marker)
            }
            None => MarkerFile::of(&store, &record).map(Arc::new),
        };
        match blocking(move || forget(&store, &record, marker.as_deref(), displaced.is_some())).await {
            Ok(()) => {
                self.directory.remove(name);
                Ok(())
            }
            Err(message) => {
                let message = format!("volume {name} is closed, but not wholly removed: {message}");
                self.note_failed(name, &message);
                failure(FailureKind::Failed, message)
            }
        }
    }

    /// Of a volume that does not run. It may have been stopped, which has not ended: what it may still do ends here, with its connection or
    /// its files.
    async fn set_aside(&self, name: &str, unended: Option<&Running>) {
        self.directory.set_aside(name);
        if let Some(unended) = unended {
            self.detach(unended).await;
        }
    }

    async fn stop_for_deletion(&self, record: &Record, running: &Running, discard_dirty: bool) -> Answer<()> {
        let name = &record.name;
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
            match discard_dirty {
                // What it could not make durable is thrown away with it.
                true => drop(self.stop_without_drain(name, running).await),
                false => self.stop_complete(record, running).await,
            }
        }
        self.detach(running).await;
        Ok(())
    }

    /// Stops a volume that holds nothing, and has the marker say that its image is complete: where the removal breaks off, the
    /// next start does not miss in the tier what nobody had put there. Where that fails it misses it, and says so.
    async fn stop_complete(&self, record: &Record, running: &Running) {
        let stop = self.control(&record.name, running, Control::Stop { drain: true });
        let stopped = matches!(tokio::time::timeout(STOP_MAX, stop).await, Ok(Ok(())));
        if let Some(snapshot) = self.snapshot(running).await.filter(|_| stopped)
            && snapshot.status.dirty_bytes == 0
            && snapshot.status.phase == Phase::Stopped
        {
            let (record, running) = (record.clone(), running.clone());
            let save = move || save_marker(&record, &running, &snapshot, Moment::Stopped { clean: true });
            if let Err(message) = blocking(save).await {
                log::say!(Notice, "{message}");
            }
        }
    }
}

fn say_journal_stays(name: &str, path: &Path) {
    let path = path.display();
    log::say!(Notice, volume(name), "its journal {path} stays, for its image; remove it if that is gone for good");
}

/// Removes what is left of a volume that is closed. In this order a kill in between leaves what is known for what it is,
/// and can be deleted again: the tier before the journal, because a tier whose batches are gone from the journal would
/// send their groups once more over an image that is further on; the marker, which says that the image needs its journal,
/// after that; the record last, which says before the marker goes that there is no tier to be missed.
///
/// `displaced`: the file at the image's path is not the volume's image, so the journal is not replayed into it, and stays.
fn forget(store: &Store, record: &Record, marker: Option<&MarkerFile>, displaced: bool) -> anyhow::Result<()> {
    // One that cannot be replayed is found out while the tier still has all that it holds.
    let journal = match displaced {
        true => None,
        false => {
            let own = marker.map(|marker| marker.of_volume(record.volume)).transpose()?.flatten();
            journal::left_behind(record, own.as_ref())?
        }
    };
    if let Some(remark) = remove_tier(store, record)? {
        log::say!(Notice, volume(record.name), "{remark}");
    }
    match record.spare.as_deref().map(|path| remove_spare(record, path)) {
        None | Some(Removal::Done) => {}
        Some(Removal::NotOurs(kept) | Removal::HasWrites(kept)) => {
            log::say!(Notice, volume(record.name), "{kept}");
        }
        Some(Removal::Failed(why)) => anyhow::bail!(why),
    }
    if let Some(path) = journal {
        // Of a volume whose dirty data is given up, too: in the middle of a batch the image is no crash image.
        journal::finish(record, &path)?;
    }
    // Without tier and marker it would be a volume that has lost both.
    let unmade = TierRecord { made: false, ..record.tier.clone() };
    store.save(&Record { tier: unmade, spare: None, ..record.clone() })?;
    if let Some(marker) = marker {
        marker.remove(record.volume)?;
    }
    store.remove(&record.name)
}

/// Removes the volume's tier: its file; of a device the superblock is wiped, so that it is free for another volume. Only what says
/// of itself that it is this volume's goes, and what lies under a name that Forebay gives to this volume's tiers alone: a record
/// whose opening was refused names what the refusal has protected. A remark about all else, which stays.
fn remove_tier(store: &Store, record: &Record) -> anyhow::Result<Option<String>> {
    let path = record.tier.path.display();
    let stays = |why: String| Ok(Some(format!("what lies at {path} stays: {why}; remove it when nobody needs it")));
    // What cannot be looked at any more is given up with its volume, and named.
    let held = match Held::of(&record.tier.path) {
        Ok(held) => held,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return stays(format!("it cannot be looked at: {error}")),
    };
    let Ok(kind) = held.kind() else { return stays("it is no tier".to_owned()) };
    let found = match TierReader::of(&held).map(|reader| reader.superblock()) {
        Ok(found) => found,
        Err(error) => return stays(format!("{error:#}")),
    };
    let is_removable = match &found {
        Ok(superblock) if superblock.volume != record.volume.0 => {
            return stays(format!("it is the tier of volume {}", names::shown_in_full(VolumeId(superblock.volume))));
        }
        Ok(_) => true,
        Err(_) => kind == FileKind::Regular && (is_own_place(store, record) || is_made_and_blank(record, &held)?),
    };
    match (is_removable, kind) {
        (false, FileKind::Regular | FileKind::Block) => {
            stays(format!("nothing says that it is the tier of {}", record.name))
        }
        (true, FileKind::Regular) => {
            refuse_in_use(&held)?;
            held.remove().with_context(|| format!("cannot remove the tier {path}"))?;
            Ok(None)
        }
        (true, FileKind::Block) => {
            // Under its claim, and looked at once more under it.
            let tier = FlashTier::open_held(&held, TIER_LOCK_WAIT)?;
            if TierReader::of(&held)?.superblock().is_ok_and(|superblock| superblock.volume == record.volume.0) {
                let wiped = tier.file().write_now(0, &AlignedBuffer::new(TIER_BLOCK_BYTES));
                wiped
                    .and_then(|()| tier.file().file().sync_all())
                    .with_context(|| format!("cannot wipe the tier {path}"))?;
            }
            Ok(None)
        }
    }
}

/// A tier that has served and has nothing in it any more. A record that has never served may name a file of anybody's.
fn is_made_and_blank(record: &Record, held: &Held) -> anyhow::Result<bool> {
    Ok(record.tier.made && is_all_zeros(held)?)
}

/// Refuses where another process has it locked. Requests of this one, or of one that was killed, may go on: they end in a file
/// that has no name any more.
fn refuse_in_use(held: &Held) -> anyhow::Result<()> {
    let path = held.path().display();
    let look = || lock::holder(&held.open(false, 0)?);
    match look().with_context(|| format!("cannot look for a lock on the tier {path}"))? {
        Some(holder @ HolderDescription::Process { pid, .. }) if pid != std::process::id() => {
            anyhow::bail!("the tier {path} is in use by {holder}; end that use first")
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::config::{DestageName, PolicyName, TierName};
    use forebay_api::record::{ImageIdentity, Marker, STORE_VERSION};
    use forebay_core::format::{Superblock, TierLayout, Version};
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
            common: Default::default(),
            tier: TierRecord { kind: TierName::Flash, path: tier.to_owned(), size_bytes: 4096, made: true },
        }
    }

    fn marker(record: &Record, journal: &Path, image: ImageIdentity) -> Marker {
        Marker {
            version: STORE_VERSION,
            volume: record.volume,
            name: record.name.clone(),
            host: "a".into(),
            tier: record.tier.path.clone(),
            term: 1,
            destaged: 0,
            journal: Some(journal.to_owned()),
            image,
            clean: false,
        }
    }

    fn tier_of(volume: VolumeId) -> Vec<u8> {
        let layout = TierLayout::flash(1024).unwrap();
        let superblock = Superblock {
            version: Version::Two,
            tier: 1,
            volume: volume.0,
            name: [0; 64],
            size_bytes: 1 << 30,
            created_unix_s: 0,
            layout,
        };
        let mut bytes = superblock.encode();
        bytes.resize(4 << 20, 0);
        bytes
    }

    /// The record of a volume whose opening was refused names what the refusal has protected.
    #[test]
    fn nothing_but_the_volumes_own_tier_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        let tier = folder.path().join("tier");
        let served = record(&folder.path().join("disk.img"), &tier);
        let refused = Record { tier: TierRecord { made: false, ..served.tier.clone() }, ..served.clone() };
        let deleted = |record: &Record| {
            store.save(record).unwrap();
            forget(&store, record, None, false).unwrap();
            assert_eq!(store.load("vm1").unwrap(), None);
            tier.exists()
        };
        let others = tier_of(VolumeId([2; 16]));
        for kept in [&others, &b"a file of anybody's".to_vec(), &vec![7; 8192]] {
            for record in [&refused, &served] {
                std::fs::write(&tier, kept).unwrap();
                assert!(deleted(record) && std::fs::read(&tier).unwrap() == **kept);
            }
        }
        std::fs::write(&tier, vec![0; 8192]).unwrap();
        assert!(deleted(&refused), "an empty image of anybody's");
        assert!(!deleted(&served), "a tier that was wiped");
        for record in [&refused, &served] {
            std::fs::write(&tier, tier_of(VOLUME)).unwrap();
            assert!(!deleted(record), "its own");
        }
        std::fs::create_dir(&tier).unwrap();
        assert!(deleted(&refused), "a folder");

        // Under a name that is this volume's alone goes what a start has left there, unless it is another volume's.
        let own = store.tier_path("vm1");
        let in_own_place = record(&folder.path().join("disk.img"), &own);
        for (content, stays) in [(b"left".to_vec(), false), (others, true)] {
            std::fs::create_dir_all(own.parent().unwrap()).unwrap();
            std::fs::write(&own, content).unwrap();
            store.save(&in_own_place).unwrap();
            forget(&store, &in_own_place, None, false).unwrap();
            assert_eq!(own.exists(), stays);
        }
    }

    #[test]
    fn a_deletion_that_breaks_off_at_the_journal_keeps_what_speaks_of_it_and_is_done_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        let (image, tier) = (folder.path().join("disk.img"), folder.path().join("tier"));
        let record = record(&image, &tier);
        store.save(&record).unwrap();
        std::fs::write(&tier, tier_of(VOLUME)).unwrap();
        // An image that was cut off: its journal can be looked at, and not be replayed.
        std::fs::write(&image, b"").unwrap();
        let journal = forebay_io::journal::path_of(&image).unwrap();
        drop(forebay_io::Journal::create(&journal, &VOLUME.0, 16384, std::time::Duration::from_secs(1)).unwrap());
        std::fs::File::options().write(true).open(&journal).unwrap().write_all_at(b"torn", 4096).unwrap();
        let marker_path = store.marker_path("vm1", Some(&image));
        marker(&record, &journal, ANY_IMAGE).save(&marker_path).unwrap();
        let marker = MarkerFile::of(&store, &record).unwrap();

        let error = format!("{:#}", forget(&store, &record, Some(&marker), false).unwrap_err());
        assert!(error.contains("disk.img"), "{error}");
        assert!(!tier.exists() && journal.exists() && marker_path.exists(), "{error}");
        assert_eq!(store.load("vm1").unwrap(), Some(record.clone()));

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
        let other = marker(&record, &journal, ImageIdentity { inode: Some(0), ..ANY_IMAGE });
        let error = format!("{:#}", journal::left_behind(&record, Some(&other)).unwrap_err());
        assert!(error.contains("its inode is"), "{error}");
        let own = marker(&record, &journal, ANY_IMAGE);
        // What has the image's name now is not opened to find out what it is: whoever opens a pipe waits.
        let aside = folder.path().join("aside");
        std::fs::rename(&image, &aside).unwrap();
        let pipe = std::ffi::CString::new(image.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the name outlives the call.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        assert!(journal::left_behind(&record, Some(&own)).is_err());
        std::fs::rename(&aside, &image).unwrap();
        assert_eq!(journal::left_behind(&record, Some(&own)).unwrap(), Some(journal));
    }
}
