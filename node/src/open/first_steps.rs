//! What the first opening of a volume has made before the volume serves, and how that is taken back: a volume that could not be made
//! leaves nothing of itself, neither now nor at the next start.
//!
//! Invariants:
//! - Only what the opening itself has made goes, known by what is held of it, whatever lies at its path by now: a record that was there
//!   before is there again, and a file that was there is not touched. Of what is not certain nothing is changed, and it is named.
//! - A tier, a journal and an image go under their own lock, the marker under the image's, which is kept from the opening until then.
//! - A device is wiped under its claim, and only where it says itself that it is this volume's tier.
//! - What goes holds no write: no client can have chosen a volume that did not come to serve.
//! - Of a volume that is recorded as made, the record says first that it is not: without its tier it would be one that has lost it.
//! - The record goes last. Where the removal breaks off it names what is left, and the volume can be deleted or asked for again.

use super::{FoundTier, TIER_LOCK_WAIT, make_tier, wipe_fixed_blocks};
use crate::journal::Preparation;
use crate::log;
use crate::volume_store::Store;
use anyhow::{Context, Result, bail};
use forebay_api::record::{Marker, Record, VolumeId};
use forebay_core::format::TIER_FIXED_BLOCKS;
use forebay_core::types::BLOCK_BYTES;
use forebay_io::backing::MadeImage;
use forebay_io::durable::remove_durably;
use forebay_io::folder::{FileKind, Held};
use forebay_io::{Backing, DeviceFile, FlashTier, Journal, JournalError, LockAttempt, Tier, TierError};
use forebay_rescue::tier_reader::TierReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A tier that has been made.
enum MadeTier {
    /// So it is known again.
    Held(Held),
    /// It could not be held, such as where no descriptor is left: nothing tells for certain what is this tier later on. Why, with its path.
    Unheld(String),
}

/// See the module's text. Of a volume that has served before there are none.
pub struct FirstSteps {
    /// What was recorded before.
    before: Option<Record>,
    /// What has been recorded since.
    recorded: Option<Record>,
    /// The tier that has been made.
    tier: Option<MadeTier>,
    /// The journal that has been made, or was begun.
    journal: Option<PathBuf>,
    /// The image that has been made.
    image: Option<MadeImage>,
    /// The image, open and locked, until this ends.
    opened: Option<Arc<DeviceFile>>,
    /// Where the volume's marker comes to lie, and what was there before.
    marker: Option<(PathBuf, Option<Marker>)>,
}

impl FirstSteps {
    /// Nothing is made yet; `before` is recorded.
    pub fn new(before: Option<Record>) -> FirstSteps {
        FirstSteps { before, recorded: None, tier: None, journal: None, image: None, opened: None, marker: None }
    }

    /// The backing has been opened, and made if it had to be.
    pub(super) fn note_image(&mut self, backing: &mut Backing) {
        self.image = backing.take_made();
        self.opened = backing.file().cloned();
    }

    /// What lies at the place of the volume's marker, before one of this opening is written.
    pub(super) fn load_marker(&mut self, path: &Path) -> Result<Option<Marker>> {
        let found = Marker::load(path)?;
        self.marker = Some((path.to_owned(), found.clone()));
        Ok(found)
    }

    /// Records the volume; `first`: it has never served.
    pub(super) fn save(&mut self, store: &Store, record: &Record, first: bool) -> Result<()> {
        // Of a writing that has failed nobody knows what it has left.
        self.recorded = first.then(|| record.clone());
        store.save(record)
    }

    /// Makes the journal, if there is one to be made.
    pub(super) fn make_journal(&mut self, preparation: &mut Preparation) -> Result<Option<Journal>> {
        let path = preparation.path.clone();
        let made = preparation.make_now();
        // Of a making that has failed nobody knows what it has left.
        self.journal = matches!(made, Ok(Some(_)) | Err(_)).then_some(path);
        Ok(made?)
    }

    /// Makes the tier.
    pub(super) fn make_tier(
        &mut self,
        store: &Store,
        record: &Record,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<FoundTier> {
        let made = make_tier(store, record, progress)?;
        self.note_tier(match &made.0 {
            Tier::Memory(tier) => tier.hold(),
            Tier::Flash(tier) => tier.hold(),
        })?;
        Ok(made)
    }

    fn note_tier(&mut self, held: Result<Held, TierError>) -> Result<()> {
        match held {
            Ok(held) => self.tier = Some(MadeTier::Held(held)),
            Err(error) => {
                self.tier = Some(MadeTier::Unheld(error.to_string()));
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// First, of a volume that may be recorded as made: from now on no start misses its tier. Where that fails all is left as it is, which
    /// is a volume that holds nothing, and can be served.
    pub fn unmake(&self, store: &Store) -> Result<()> {
        let Some(record) = &self.recorded else { return Ok(()) };
        let is_made = || of_this(store, record).map(|there| there.is_some_and(|there| there.tier.made));
        if is_made()? {
            let saved = store.save(record);
            // Nobody knows which of the two a loss of power leaves, and either can be started from.
            if is_made()? {
                saved?;
            }
        }
        Ok(())
    }

    /// Removes what was made. Whatever was open of it is closed, but for the image here.
    pub fn take_back(&self, store: &Store) -> Result<()> {
        if let Some(record) = &self.recorded {
            of_this(store, record)?;
            self.take_marker_back(record.volume)?;
            self.take_tier_back(record)?;
            self.take_journal_back(record.volume)?;
        }
        self.take_image_back()?;
        match (&self.recorded, &self.before) {
            (None, _) => Ok(()),
            (Some(_), Some(before)) => store.save(before),
            (Some(record), None) => store.remove(&record.name),
        }
    }

    /// The same after a failure, with what is to be told of both.
    pub fn take_back_after(&self, store: &Store, failure: anyhow::Error) -> anyhow::Error {
        match self.take_back(store) {
            Ok(()) => failure,
            Err(error) => anyhow::anyhow!("{}", also_left(&format!("{failure:#}"), &format!("{error:#}"))),
        }
    }

    /// Before the tier, of which it speaks. What stood there before stands there again; what another volume has put there since stays.
    fn take_marker_back(&self, volume: VolumeId) -> Result<()> {
        let Some((path, before)) = &self.marker else { return Ok(()) };
        // One that cannot be read may be what this opening has written: then nothing goes that it speaks of, and the record names the rest.
        let Some(there) = Marker::load(path)? else { return Ok(()) };
        if there.volume != volume {
            return Ok(());
        }
        match before {
            Some(before) if *before == there => Ok(()),
            Some(before) => before.save(path),
            None => Ok(remove_durably(path)?),
        }
    }

    fn take_tier_back(&self, record: &Record) -> Result<()> {
        let tier = match &self.tier {
            None => return Ok(()),
            Some(MadeTier::Unheld(why)) => bail!("{why}, so the tier stays until its volume is made or deleted"),
            Some(MadeTier::Held(tier)) => tier,
        };
        let path = tier.path().display();
        let removed = remove_made_tier(tier, record.volume);
        if !removed.with_context(|| format!("cannot remove the tier {path} again"))? {
            log::say!(
                Notice,
                volume(record.name),
                "the tier that was made at {path} for it is not there any more: whoever has moved it has it, and what is there stays"
            );
        }
        Ok(())
    }

    /// Nothing was ever destaged by it. One of another volume is none that was made here.
    fn take_journal_back(&self, volume: VolumeId) -> Result<()> {
        let Some(path) = &self.journal else { return Ok(()) };
        match forebay_io::journal::remove(path, &volume.0) {
            Ok(()) | Err(JournalError::OtherVolume { .. }) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot remove the journal {} again", path.display())),
        }
    }

    /// An image that somebody has written to, or uses, is his.
    fn take_image_back(&self) -> Result<()> {
        let (Some(image), Some(opened)) = (&self.image, &self.opened) else { return Ok(()) };
        let path = image.path().display();
        let stays = image.take_back(opened.file());
        if let Some(why) = stays.with_context(|| format!("cannot remove the image {path} again"))? {
            log::say!(Notice, "the image {path}, which was made for a volume that could not be made, stays: {why}");
        }
        Ok(())
    }
}

/// What is recorded of this volume now; an error where another volume has its name by now.
fn of_this(store: &Store, record: &Record) -> Result<Option<Record>> {
    let there = store.load(&record.name)?;
    if there.as_ref().is_some_and(|there| there.volume != record.volume) {
        bail!("another volume of the name {} is recorded by now", record.name);
    }
    Ok(there)
}

/// Removes a tier that was just made; of a device, what formatting has written. False: its name is another's by now, and nothing is done.
fn remove_made_tier(tier: &Held, volume: VolumeId) -> Result<bool> {
    let path = tier.path().display();
    match tier.kind()? {
        FileKind::Regular => {
            // Requests of the shard that has given it up have ended when it can be locked. Who else has it by then uses it.
            let file = tier.open(true, 0).with_context(|| format!("cannot open {path}"))?;
            match forebay_io::lock::await_lock(&file, TIER_LOCK_WAIT)? {
                LockAttempt::Locked => Ok(tier.remove_own()?),
                LockAttempt::HeldBy(holder) => bail!("it is in use by {holder}"),
            }
        }
        FileKind::Block => {
            // The same of a claim.
            let claimed = FlashTier::open_held(tier, TIER_LOCK_WAIT)?;
            match TierReader::of(tier)?.superblock() {
                Ok(superblock) if superblock.volume == volume.0 => wipe_fixed_blocks(tier)?,
                Ok(_) => bail!("another volume has it by now"),
                Err(_) if fixed_blocks_are_zeros(tier)? => {}
                Err(_) => bail!(
                    "what is on the device does not say whose it is, and stays; if nobody needs it, say so by `dd if=/dev/zero \
                     of={path} bs=1M count=1 conv=fsync`"
                ),
            }
            drop(claimed);
            Ok(true)
        }
    }
}

/// Whether nothing of a formatting is on it.
fn fixed_blocks_are_zeros(held: &Held) -> Result<bool> {
    use std::io::Read;
    let mut fixed = vec![0; TIER_FIXED_BLOCKS as usize * BLOCK_BYTES as usize];
    held.open(false, 0)?.read_exact(&mut fixed).with_context(|| format!("cannot read {}", held.path().display()))?;
    Ok(fixed.iter().all(|&byte| byte == 0))
}

/// The words for a failure after which not all could be taken back.
pub fn also_left(failure: &str, why: &str) -> String {
    format!(
        "{failure}; and not all that was made for it is removed again: {why}. `forebay volume delete` removes the rest"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::config::{DestageName, PolicyName, TierName};
    use forebay_api::record::{ImageIdentity, STORE_VERSION, TierRecord};
    use forebay_io::file_error::FileError;

    fn record(tier: &Path) -> Record {
        Record {
            version: STORE_VERSION,
            name: "vm1".into(),
            volume: VolumeId([7; 16]),
            backing: "/x.img".into(),
            size_bytes: 1 << 30,
            policy: PolicyName::Back,
            drain_max_s: 0,
            volatile: false,
            format_raw: false,
            memory_bytes: 64 << 20,
            destage: DestageName::Auto,
            journal_bytes: 0,
            spare: None,
            common: Default::default(),
            tier: TierRecord { kind: TierName::Flash, path: tier.into(), size_bytes: 1 << 22, made: false },
        }
    }

    fn marker(volume: VolumeId) -> Marker {
        Marker {
            version: STORE_VERSION,
            volume,
            name: "vm1".into(),
            host: "a".into(),
            tier: "/t".into(),
            term: 1,
            destaged: 0,
            journal: None,
            image: ImageIdentity { inode: None, born_ns: None, size_bytes: 4096, changed_ns: None },
            clean: true,
        }
    }

    fn made(store: &Store, record: &Record) -> FirstSteps {
        let mut steps = FirstSteps::new(None);
        steps.save(store, record, true).unwrap();
        drop(steps.make_tier(store, record, &mut |_, _| {}).unwrap());
        steps
    }

    #[test]
    fn what_goes_is_what_was_made_whatever_is_in_it_and_whatever_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        let path = folder.path().join("tier");
        let record = record(&path);
        // Formatting was broken off behind its first block: nothing in it says whose it is.
        let half = made(&store, &record);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8192..8200].copy_from_slice(b"a piece!");
        std::fs::write(&path, bytes).unwrap();
        half.take_back(&store).unwrap();
        assert!(!path.exists() && store.load("vm1").unwrap().is_none());

        // Somebody has moved it, and has put another file there, which is as empty as the tier is.
        let moved = made(&store, &record);
        std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        std::fs::write(&path, vec![0; 1 << 22]).unwrap();
        moved.take_back(&store).unwrap();
        assert!(path.exists() && store.load("vm1").unwrap().is_none());
    }

    #[test]
    fn nothing_goes_once_another_volume_of_the_name_is_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        let path = folder.path().join("tier");
        let record = record(&path);
        let steps = made(&store, &record);
        let mut other = Record { volume: VolumeId([8; 16]), ..record };
        other.tier.made = true;
        store.save(&other).unwrap();
        assert!(steps.unmake(&store).is_err() && steps.take_back(&store).is_err());
        assert!(path.exists() && store.load("vm1").unwrap() == Some(other));
    }

    #[test]
    fn the_marker_that_stood_there_stands_there_again_and_another_volumes_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        let (path, record) = (folder.path().join("x.img.forebay"), record(&folder.path().join("tier")));
        let others = [None, Some(marker(VolumeId([8; 16])))];
        for before in others {
            let mut steps = made(&store, &record);
            if let Some(before) = &before {
                before.save(&path).unwrap();
            }
            assert_eq!(steps.load_marker(&path).unwrap(), before);
            marker(record.volume).save(&path).unwrap();
            steps.take_back(&store).unwrap();
            assert_eq!(Marker::load(&path).unwrap(), before);
        }
        std::fs::remove_file(&path).unwrap();
        let mut steps = made(&store, &record);
        assert_eq!(steps.load_marker(&path).unwrap(), None);
        marker(VolumeId([9; 16])).save(&path).unwrap();
        steps.take_back(&store).unwrap();
        assert_eq!(
            Marker::load(&path).unwrap(),
            Some(marker(VolumeId([9; 16]))),
            "whoever has written it has the image"
        );
    }

    /// Else the marker would go on to say that writes lie in a tier that is gone, and nobody could use the image again.
    #[test]
    fn where_the_marker_cannot_be_read_the_record_goes_on_to_name_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        let (path, tier) = (folder.path().join("x.img.forebay"), folder.path().join("tier"));
        let record = record(&tier);
        let mut steps = made(&store, &record);
        assert_eq!(steps.load_marker(&path).unwrap(), None);
        std::fs::write(&path, "torn").unwrap();
        assert!(steps.take_back(&store).is_err());
        assert!(tier.exists() && store.load("vm1").unwrap() == Some(record.clone()));
        // It can be read again.
        marker(record.volume).save(&path).unwrap();
        steps.take_back(&store).unwrap();
        assert!(!path.exists() && !tier.exists() && store.load("vm1").unwrap().is_none());
    }

    #[test]
    fn a_tier_that_could_not_be_held_is_named_by_the_record_until_the_volume_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("state")).unwrap();
        let tier = folder.path().join("tier");
        let record = record(&tier);
        let mut steps = made(&store, &record);
        let none_left = || std::io::Error::from_raw_os_error(libc::EMFILE);
        let error = FileError::failed("the tier", &tier, "hold", none_left());
        assert!(steps.note_tier(Err(TierError::File(error))).is_err());
        let told = format!("{:#}", steps.take_back_after(&store, none_left().into()));
        assert!(told.contains("cannot hold the tier") && told.contains("volume delete"), "{told}");
        assert!(tier.exists() && store.load("vm1").unwrap() == Some(record.clone()));
        made(&store, &record).take_back(&store).unwrap();
        assert!(!tier.exists());
    }
}
