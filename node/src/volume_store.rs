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

use crate::config::certificates::Clients;
use crate::config::{DestageName, PolicyName, TierName};
use crate::paths;
use anyhow::{Context, Result, bail};
use forebay_io::folder::{self, Folder};
use forebay_io::place::Place;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Version of records and markers that this code writes; it reads this one only, being the first.
pub const STORE_VERSION: u32 = 1;

/// Bytes that are read of a record or a marker.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Identity of a volume, as hyphenated hexadecimal in files and on screen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeId(pub [u8; 16]);

impl VolumeId {
    /// A random one.
    pub fn random() -> Result<VolumeId> {
        let mut id = [0u8; 16];
        random_bytes(&mut id)?;
        // Version and variant bits of a random UUID, so that other tools print it as one.
        id[6] = id[6] & 0x0f | 0x40;
        id[8] = id[8] & 0x3f | 0x80;
        Ok(VolumeId(id))
    }
}

/// Fills with random bytes of the kernel.
pub fn random_bytes(bytes: &mut [u8]) -> Result<()> {
    // SAFETY: the pointer and length are those of one exclusively borrowed slice.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    // Requests of up to 256 bytes are answered whole or not at all.
    assert!(bytes.len() <= 256);
    if got != bytes.len() as isize {
        return Err(std::io::Error::last_os_error()).context("the kernel gave no random bytes");
    }
    Ok(())
}

impl std::fmt::Display for VolumeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        forebay_io::journal::Uuid(&self.0).fmt(f)
    }
}

impl From<VolumeId> for String {
    fn from(id: VolumeId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for VolumeId {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<VolumeId> {
        let hex: Vec<u8> = text.bytes().filter(|&b| b != b'-').collect();
        if hex.len() != 32 || !hex.iter().all(u8::is_ascii_hexdigit) {
            bail!("{text:?} is not a volume identity: 32 hexadecimal digits are");
        }
        let digit = |b: u8| (b as char).to_digit(16).expect("checked above") as u8;
        let mut id = [0u8; 16];
        for (byte, pair) in id.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = digit(pair[0]) << 4 | digit(pair[1]);
        }
        Ok(VolumeId(id))
    }
}

/// A volume's record in the state folder: what is needed to serve it again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`STORE_VERSION`].
    pub version: u32,
    /// Its name.
    pub name: String,
    /// Its identity; also in the tier and in the marker.
    pub volume: VolumeId,
    /// As given by the user, made absolute.
    pub backing: String,
    /// When it was created; the tier knows later sizes.
    pub size_bytes: u64,
    /// Requested policy.
    pub policy: PolicyName,
    /// Seconds that the log may take to drain before writes are slowed to the backing's speed; 0 = no such limit.
    #[serde(default)]
    pub drain_max_s: u64,
    /// A host crash may lose what is not destaged.
    pub volatile: bool,
    /// The backing is raw whatever its first bytes say.
    pub format_raw: bool,
    /// RAM for staging and read cache before a flash tier.
    pub memory_bytes: u64,
    /// Requested way of destage.
    #[serde(default)]
    pub destage: DestageName,
    /// Bytes of the journal beside the image; 0: as the size of the volume suggests.
    #[serde(default)]
    pub journal_bytes: u64,
    /// While the tier is changed for one on another medium: the one of both that holds nothing. A start removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<PathBuf>,
    /// Which clients with certificates may use it.
    #[serde(default, skip_serializing_if = "Clients::is_any")]
    pub clients: Clients,
    /// The tier.
    pub tier: TierRecord,
}

/// Where a volume's tier lies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierRecord {
    /// Medium.
    pub kind: TierName,
    /// File or block device.
    pub path: PathBuf,
    /// Bytes.
    pub size_bytes: u64,
    /// The tier has been laid out: from now on a missing tier is a loss, not a first start.
    pub made: bool,
}

/// The state folder.
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

    /// The folder itself.
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
            return remove_durably(&path);
        }
        let present = format!("{} {}", boot_id()?, record.volume);
        match fs::read_to_string(&path) {
            Ok(noted) if noted == present => Ok(()),
            Ok(_) | Err(_) => write_atomically(&path, present.as_bytes()),
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

    /// One record.
    pub fn load(&self, name: &str) -> Result<Option<Record>> {
        let path = self.record_path(name);
        let text = match folder::read_text(&path, FILE_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read the volume record {}", path.display()));
            }
        };
        check_version(&path, toml::from_str::<Versioned>(&text).ok().map(|v| v.version))?;
        let record: Record = toml::from_str(&text)
            .with_context(|| format!("the volume record {} is damaged; restore it from a backup", path.display()))?;
        if record.name != name {
            bail!("the volume record {} is that of volume {}; it was renamed or copied", path.display(), record.name);
        }
        Ok(Some(record))
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

    /// Removes a record.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.kept().remove(name);
        remove_durably(&self.boot_path(name))?;
        remove_durably(&self.record_path(name))
    }
}

/// Number of the host's present boot.
fn boot_id() -> Result<String> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(PATH).with_context(|| format!("cannot read which boot this is from {PATH}"))?;
    Ok(text.trim().to_owned())
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

fn check_version(path: &Path, version: Option<u32>) -> Result<()> {
    match version {
        Some(version) if version > STORE_VERSION => bail!(
            "{} was written by a newer version of Forebay (format {version}, this one knows {STORE_VERSION}); use that version",
            path.display()
        ),
        Some(STORE_VERSION) => Ok(()),
        Some(_) | None => bail!("{} is damaged: it has no valid version; restore it from a backup", path.display()),
    }
}

/// Replaces a file whole and durably.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    folder::replace(path, bytes, 0o644).map_err(|error| with_cure(error, format!("cannot write {}", path.display())))
}

/// The same of a file that nobody but the daemon's user may read.
pub fn write_secret_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    folder::replace(path, bytes, 0o600).map_err(|error| with_cure(error, format!("cannot write {}", path.display())))
}

/// What was attempted, why it failed, and what to do about a folder that takes nothing.
fn with_cure(error: std::io::Error, attempted: String) -> anyhow::Error {
    let cure = match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => "; free some room there",
        Some(libc::EROFS) => "; see why its file system is read-only (dmesg), and mount it writable",
        Some(libc::EIO) => "; its medium fails: see dmesg",
        Some(libc::EACCES | libc::EPERM) => "; give the daemon's user the right to",
        Some(libc::EMFILE) => "; allow the daemon more open files (LimitNOFILE=)",
        Some(_) | None => "",
    };
    anyhow::anyhow!("{attempted}: {error}{cure}")
}

/// Removes a file, durably; one that is not there is as good.
pub fn remove_durably(path: &Path) -> Result<()> {
    let removed = folder::remove(path).map(|_| ());
    removed.map_err(|error| with_cure(error, format!("cannot remove {}", path.display())))
}

/// What tells one image from another, and an older copy from the present one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImageIdentity {
    /// Inode number; none for a device node, which has another one after each boot, and for an NBD export.
    pub inode: Option<u64>,
    /// Birth time in nanoseconds since 1970, where the file system keeps one.
    pub born_ns: Option<i64>,
    /// Bytes.
    pub size_bytes: u64,
    /// Time of the last change in nanoseconds since 1970; none for a device node or an NBD export.
    pub changed_ns: Option<i64>,
}

/// The marker beside an image: whose it is, and where its newest data lies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marker {
    /// [`STORE_VERSION`].
    pub version: u32,
    /// The volume.
    pub volume: VolumeId,
    /// Its name.
    pub name: String,
    /// Host that serves it.
    pub host: String,
    /// Its tier on that host.
    pub tier: PathBuf,
    /// The owner's number.
    pub term: u32,
    /// Log position up to which the image is complete.
    pub destaged: u64,
    /// The journal beside the image: while the image is not complete, it may hold a batch that must be replayed before
    /// anything else uses the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<PathBuf>,
    /// The image as no loss of power takes it back.
    pub image: ImageIdentity,
    /// The image is complete by itself: the log was empty when the daemon stopped.
    pub clean: bool,
}

impl Marker {
    /// Reads one.
    pub fn load(path: &Path) -> Result<Option<Marker>> {
        // It lies beside the image, in a folder that others may change.
        Marker::of_read(path, folder::read_text(path, FILE_BYTES_MAX))
    }

    /// Reads one that only root and this process's user can have put there; of another it is an error.
    pub fn load_private(path: &Path) -> Result<Option<Marker>> {
        Marker::of_read(path, folder::read_private_text(path, FILE_BYTES_MAX))
    }

    fn of_read(path: &Path, read: std::io::Result<String>) -> Result<Option<Marker>> {
        let text = match read {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read the marker {}", path.display())),
        };
        check_version(path, serde_json::from_str::<Versioned>(&text).ok().map(|v| v.version))?;
        let marker = serde_json::from_str(&text).with_context(|| {
            format!(
                "the marker {} is damaged; remove it only if you know that no tier holds data for the image",
                path.display()
            )
        })?;
        Ok(Some(marker))
    }

    /// What is due besides, before the image is used by itself.
    pub fn journal_words(&self) -> String {
        self.journal.as_ref().map_or(String::new(), |path| {
            format!(
                ", which first replays the journal {}; without that the image may be in the middle of a batch",
                path.display()
            )
        })
    }

    /// Writes one.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self).context("cannot encode the marker")?;
        text.push(b'\n');
        write_atomically(path, &text)
    }
}

/// Name of this host.
pub fn host_name() -> String {
    let mut buffer = [0u8; 256];
    // SAFETY: the pointer and length are those of one local array; the last byte is left to stay zero.
    let rc = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    let end = buffer.iter().position(|&b| b == 0).unwrap_or(0);
    if rc != 0 || end == 0 { "unknown-host".to_owned() } else { String::from_utf8_lossy(&buffer[..end]).into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            clients: Default::default(),
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
            clients: Clients::Any,
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

        let path = dir.path().join("m");
        assert_eq!(Marker::load(&path).unwrap(), None);
        marker().save(&path).unwrap();
        assert_eq!(Marker::load(&path).unwrap(), Some(marker()));
        Marker { version: 2, ..marker() }.save(&path).unwrap();
        assert!(format!("{:#}", Marker::load(&path).unwrap_err()).contains("newer version"));
        fs::write(&path, "{").unwrap();
        assert!(format!("{:#}", Marker::load(&path).unwrap_err()).contains("damaged"));
    }

    #[test]
    fn identities_print_as_uuids_and_parse_back() {
        let id = VolumeId::random().unwrap();
        let text = id.to_string();
        assert_eq!(text.len(), 36);
        assert_eq!(VolumeId::try_from(text).unwrap(), id);
        assert!(VolumeId::try_from("xyz".to_owned()).is_err());
    }
}
