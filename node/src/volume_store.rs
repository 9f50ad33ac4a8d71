//! What the daemon remembers of a volume besides its tier: the record in the state folder, and the marker beside
//! the image.
//!
//! Invariants:
//! - Both are replaced whole: written aside, synced, renamed, and the folder synced. A reader sees the old or the new.
//! - After a writing that failed nobody knows which of the two a loss of power leaves: the record counts as written again only when
//!   it was written once more, whole. One that is there already, by a writing that did not fail, needs no room to be kept.
//! - A marker that is not clean lies beside the image before the first write of a volume is acknowledged, so an image
//!   without it, before a dirty tier, is not the image that the tier belongs to.
//!
//! Left to others: whether a volume may be served with what was found ([`crate::judgement`]).
//!
//! Whether another process uses the image *now* is not told by a marker but by the lock on it (`forebay-io`).

use crate::names;
use anyhow::{Context, Result, bail};
use forebay_api::config::TierName;
use forebay_api::paths;
use forebay_api::record::{FILE_BYTES_MAX, Record};
use forebay_io::durable::{remove_durably, write_atomically};
use forebay_io::folder::{self, Folder};
use forebay_io::place::Place;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Volume records and what else lies in the state folder.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    /// How the last writing of each record ended, as far as this process has written it: true, it is on the medium.
    kept: Arc<Mutex<HashMap<String, bool>>>,
}

impl Store {
    /// Makes the folders where they are missing.
    pub fn open(dir: &Path) -> Result<Store> {
        for folder in [dir.to_owned(), dir.join("volumes"), dir.join("tiers")] {
            // Its records say which files root opens, and writes to.
            let made = match paths::is_root() {
                true => Folder::make_private(&folder, 0o755).map(|_| ()),
                false => fs::create_dir_all(&folder),
            };
            made.with_context(|| {
                format!(
                    "cannot make the state folder {}: give the daemon's user the right to write there, or another folder with --state",
                    folder.display()
                )
            })?;
        }
        // Found out now, not when the first record has to be written.
        let probe = dir.join(".write-probe");
        fs::write(&probe, b"").and_then(|()| fs::remove_file(&probe)).with_context(|| {
            format!(
                "cannot write in the state folder {}: give the daemon's user the right to, free some of its room, or mount it anew, \
                 whichever is missing; or give another folder with --state",
                dir.display()
            )
        })?;
        Ok(Store { dir: dir.to_owned(), kept: Arc::default() })
    }

    /// Path of the state folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn record_path(&self, name: &str) -> PathBuf {
        self.dir.join("volumes").join(format!("{name}.toml"))
    }

    /// Where a flash tier lies unless another place is given.
    pub fn tier_path(&self, name: &str) -> PathBuf {
        self.dir.join("tiers").join(format!("{name}.tier"))
    }

    /// Where the marker of an image lies: beside a file; for a block device or an NBD export, which have no beside, in
    /// the state folder.
    pub fn marker_path(&self, name: &str, image_file: Option<&Path>) -> PathBuf {
        let Some(image) = image_file else {
            return self.dir.join("volumes").join(format!("{name}.marker"));
        };
        let mut path = image.as_os_str().to_owned();
        path.push(".forebay");
        PathBuf::from(path)
    }

    /// Where it is kept in which boot a volume's tier was last in memory.
    fn boot_path(&self, name: &str) -> PathBuf {
        self.dir.join("volumes").join(format!("{name}.boot"))
    }

    /// Keeps that the tier of a volume that serves lies in memory, which ends with this boot; of another one that it does not.
    pub fn note_boot(&self, record: &Record) -> Result<()> {
        let path = self.boot_path(&record.name);
        if record.tier.kind != TierName::Memory || !Place::of(&record.tier.path).is_memory() {
            return Ok(remove_durably(&path)?);
        }
        let present = format!("{} {}", boot_id()?, record.volume);
        match fs::read_to_string(&path) {
            Ok(noted) if noted == present => Ok(()),
            Ok(_) | Err(_) => Ok(write_atomically(&path, present.as_bytes())?),
        }
    }

    /// Whether the tier of a volume was in memory, and that memory has ended with its boot. What is not known for certain is no.
    pub fn was_in_memory_of_an_earlier_boot(&self, record: &Record) -> Result<bool> {
        let path = self.boot_path(&record.name);
        match fs::read_to_string(&path) {
            Ok(noted) => {
                // A volume that has lost its tier is another one: what an older version has left is not about this one.
                let boot_of_this = noted.strip_suffix(&format!(" {}", record.volume));
                let present = boot_id()?;
                Ok(record.tier.kind == TierName::Memory && boot_of_this.is_some_and(|boot| boot != present))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// The record of this volume; none if there is none.
    pub fn load(&self, name: &str) -> Result<Option<Record>> {
        let path = self.record_path(name);
        let text = match folder::read_text(&path, FILE_BYTES_MAX) {
            Ok(text) => text,
            // A link that leads to nothing is a record that cannot be read now.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !path.is_symlink() => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read the volume record {}", path.display()));
            }
        };
        let record = Record::decode(&path, &text)?;
        if record.name != name {
            bail!("the volume record {} is that of volume {}; it was renamed or copied", path.display(), record.name);
        }
        names::learn(record.volume, &record.name);
        Ok(Some(record))
    }

    /// Whether there is a record of this volume, or something in its place, as far as that can be told without reading it.
    pub fn has_record(&self, name: &str) -> bool {
        let found = fs::symlink_metadata(self.record_path(name));
        !found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    }

    /// Names of all records, sorted.
    pub fn names(&self) -> Result<Vec<String>> {
        let dir = self.dir.join("volumes");
        let mut names = Vec::new();
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "toml")
                && let Some(name) = path.file_stem().and_then(|s| s.to_str())
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Has a record on the medium. One that is there as it is to be is not written again: a folder without room has to take nothing.
    pub fn save(&self, record: &Record) -> Result<()> {
        let path = self.record_path(&record.name);
        names::learn(record.volume, &record.name);
        let mut kept = self.kept();
        let is_same = self.load(&record.name).is_ok_and(|there| there.as_ref() == Some(record));
        match kept.get(&record.name) {
            Some(true) if is_same => return Ok(()),
            // Of a process before this one, which may have ended before it had synced the folder.
            None if is_same => {
                let synced = Folder::open(&self.dir.join("volumes")).and_then(|folder| folder.sync());
                synced.with_context(|| format!("cannot sync the folder of {}", path.display()))?;
                kept.insert(record.name.clone(), true);
                return Ok(());
            }
            Some(_) | None => {}
        }
        kept.insert(record.name.clone(), false);
        let text = toml::to_string(record).context("cannot encode the volume record")?;
        write_atomically(&path, text.as_bytes())?;
        kept.insert(record.name.clone(), true);
        Ok(())
    }

    /// Has `changed` on the medium in the place of `record`, or that again. The error says which of them counts from now on.
    pub fn change(&self, record: &Record, changed: &Record) -> Result<()> {
        let Err(error) = self.save(changed) else { return Ok(()) };
        let (name, why) = (&record.name, format!("{error:#}, then ask again"));
        match self.save(record) {
            Ok(()) => bail!("volume {name} stays as it was: {why}"),
            Err(_) => bail!("volume {name} stays as it was, at least until the next start: {why}"),
        }
    }

    /// Writes a record that is there already once more: whether the folder takes what is about to be written.
    pub fn rehearse(&self, record: &Record) -> Result<()> {
        self.kept().insert(record.name.clone(), false);
        self.save(record)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<String, bool>> {
        self.kept.lock().expect("nobody panics while a record is written")
    }

    /// Removes the record of a volume.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.kept().remove(name);
        remove_durably(&self.boot_path(name))?;
        Ok(remove_durably(&self.record_path(name))?)
    }
}

/// Number of the host's present boot.
fn boot_id() -> Result<String> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(PATH).with_context(|| format!("cannot read which boot this is from {PATH}"))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::config::{DestageName, PolicyName};
    use forebay_api::record::{ImageIdentity, Marker, STORE_VERSION, TierRecord, VolumeId};

    fn marker() -> Marker {
        Marker {
            version: STORE_VERSION,
            volume: VolumeId([1; 16]),
            name: "vm1".into(),
            host: "a".into(),
            tier: "/t".into(),
            term: 3,
            destaged: 42,
            journal: None,
            image: ImageIdentity { inode: Some(7), born_ns: Some(100), size_bytes: 4096, changed_ns: Some(500) },
            clean: false,
        }
    }

    #[test]
    fn only_a_memory_tier_of_an_earlier_boot_is_known_to_have_ended_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let record = |kind, path: &str| Record {
            version: STORE_VERSION,
            name: "vm1".into(),
            volume: VolumeId([1; 16]),
            backing: "/x.img".into(),
            size_bytes: 1 << 30,
            policy: PolicyName::Back,
            drain_max_s: 0,
            volatile: true,
            format_raw: false,
            memory_bytes: 0,
            destage: DestageName::Auto,
            journal_bytes: 0,
            spare: None,
            common: Default::default(),
            tier: TierRecord { kind, path: path.into(), size_bytes: 1 << 26, made: true },
        };
        let earlier = |record: &Record| {
            let noted = format!("11111111-2222-3333-4444-555555555555 {}", VolumeId([1; 16]));
            fs::write(dir.path().join("volumes/vm1.boot"), noted).unwrap();
            store.was_in_memory_of_an_earlier_boot(record).unwrap()
        };
        let memory = record(TierName::Memory, "/dev/shm");
        assert!(!store.was_in_memory_of_an_earlier_boot(&memory).unwrap(), "nobody has noted a boot");
        store.note_boot(&memory).unwrap();
        assert!(!store.was_in_memory_of_an_earlier_boot(&memory).unwrap(), "it was this boot");
        assert!(earlier(&memory));
        assert!(!earlier(&Record { volume: VolumeId([2; 16]), ..memory.clone() }), "of another volume of this name");
        let flash = record(TierName::Flash, "/dev/shm");
        assert!(!earlier(&flash));
        // A memory tier whose file is on a disk outlives the boot, wherever it is now.
        store.note_boot(&memory).unwrap();
        store.note_boot(&record(TierName::Memory, "/proc")).unwrap();
        assert!(!dir.path().join("volumes/vm1.boot").exists());
        store.note_boot(&memory).unwrap();
        store.note_boot(&flash).unwrap();
        assert!(!dir.path().join("volumes/vm1.boot").exists());
        // It is no record, and goes with it.
        store.note_boot(&memory).unwrap();
        store.save(&memory).unwrap();
        assert_eq!(store.names().unwrap(), ["vm1"]);
        store.remove("vm1").unwrap();
        assert_eq!(fs::read_dir(dir.path().join("volumes")).unwrap().count(), 0);
    }

    #[test]
    fn a_record_that_is_there_needs_no_room_unless_a_writing_of_it_has_failed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (record, changed) = (record(), Record { drain_max_s: 20, ..record() });
        store.save(&record).unwrap();
        // As where there is no room: no file can be written aside.
        let aside = dir.path().join("volumes/vm1.toml.new");
        fs::create_dir(&aside).unwrap();
        store.save(&record).unwrap();
        Store::open(dir.path()).unwrap().save(&record).unwrap();
        assert!(format!("{:#}", store.rehearse(&record).unwrap_err()).contains("vm1.toml"));
        let said = format!("{:#}", store.change(&record, &changed).unwrap_err());
        assert!(said.contains("stays as it was, at least until the next start: cannot write"), "{said}");
        assert!(store.save(&record).is_err(), "nobody knows what a loss of power would leave");
        fs::remove_dir(&aside).unwrap();
        store.save(&record).unwrap();
        store.change(&record, &changed).unwrap();
        assert_eq!(store.load("vm1").unwrap(), Some(changed));
    }

    fn record() -> Record {
        Record {
            version: STORE_VERSION,
            name: "vm1".into(),
            volume: VolumeId([1; 16]),
            backing: "slow:iops=700:/x.img".into(),
            size_bytes: 1 << 30,
            policy: PolicyName::Back,
            drain_max_s: 10,
            volatile: false,
            format_raw: false,
            memory_bytes: 64 << 20,
            destage: DestageName::Journaled,
            journal_bytes: 8 << 20,
            spare: Some("/s".into()),
            common: Default::default(),
            tier: TierRecord { kind: TierName::Flash, path: "/t".into(), size_bytes: 1 << 26, made: true },
        }
    }

    #[test]
    fn records_and_markers_come_back_as_written_and_newer_ones_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let record = Record { volume: VolumeId::random().unwrap(), ..record() };
        assert_eq!(store.load("vm1").unwrap(), None);
        store.save(&record).unwrap();
        assert_eq!(store.load("vm1").unwrap().as_ref(), Some(&record));
        assert_eq!(store.names().unwrap(), ["vm1"]);
        store.save(&Record { version: 2, ..record }).unwrap();
        assert!(format!("{:#}", store.load("vm1").unwrap_err()).contains("newer version"));
        store.remove("vm1").unwrap();
        assert_eq!(store.load("vm1").unwrap(), None);
        // Its disk is not there now: nobody takes the volume for one that is not recorded.
        let link = dir.path().join("volumes/vm1.toml");
        std::os::unix::fs::symlink("/nowhere/vm1.toml", &link).unwrap();
        assert_eq!(store.names().unwrap(), ["vm1"]);
        assert!(format!("{:#}", store.load("vm1").unwrap_err()).contains("vm1.toml"));
        fs::remove_file(&link).unwrap();

        let path = dir.path().join("m");
        assert_eq!(Marker::load(&path).unwrap(), None);
        marker().save(&path).unwrap();
        assert_eq!(Marker::load(&path).unwrap(), Some(marker()));
        Marker { version: 2, ..marker() }.save(&path).unwrap();
        assert!(format!("{:#}", Marker::load(&path).unwrap_err()).contains("newer version"));
        fs::write(&path, "{").unwrap();
        assert!(format!("{:#}", Marker::load(&path).unwrap_err()).contains("damaged"));
    }
}
