//! What the daemon remembers of a volume besides its tier: the record in the state folder, and the marker beside
//! the image.
//!
//! Invariants:
//! - Both are replaced whole: written aside, synced, renamed, and the folder synced. A reader sees the old or the new.
//! - A marker that is not clean lies beside the image before the first write of a volume is acknowledged, so an image
//!   without it, before a dirty tier, is not the image that the tier belongs to.
//! - [`judge`] is pure: it sees what was found and says whether the volume may be served; nothing is changed before.
//!
//! Whether another process uses the image *now* is not told by a marker but by the lock on it (`forebay-io`).

use crate::config::{DestageName, PolicyName, TierName};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Version of records and markers that this code writes; it reads this one only, being the first.
pub const STORE_VERSION: u32 = 1;

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
}

impl Store {
    /// Makes the folders where they are missing.
    pub fn open(dir: &Path) -> Result<Store> {
        for folder in [dir.to_owned(), dir.join("volumes"), dir.join("tiers")] {
            fs::create_dir_all(&folder).with_context(|| {
                format!(
                    "cannot make the state folder {}: give the daemon's user the right to write there, or another folder with --state",
                    folder.display()
                )
            })?;
        }
        let store = Store { dir: dir.to_owned() };
        // Found out now, not when the first record has to be written.
        let probe = dir.join(".write-probe");
        fs::write(&probe, b"").and_then(|()| fs::remove_file(&probe)).with_context(|| {
            format!(
                "cannot write in the state folder {}: give the daemon's user the right to, or another folder with --state",
                dir.display()
            )
        })?;
        Ok(store)
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

    /// One record.
    pub fn load(&self, name: &str) -> Result<Option<Record>> {
        let path = self.record_path(name);
        let text = match fs::read_to_string(&path) {
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

    /// Writes a record.
    pub fn save(&self, record: &Record) -> Result<()> {
        let text = toml::to_string(record).context("cannot encode the volume record")?;
        write_atomically(&self.record_path(&record.name), text.as_bytes())
    }

    /// Removes a record.
    pub fn remove(&self, name: &str) -> Result<()> {
        remove_durably(&self.record_path(name))
    }
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
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    let replace = || -> std::io::Result<()> {
        let mut file = File::create(&aside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&aside, path)?;
        File::open(folder)?.sync_all()
    };
    replace().with_context(|| format!("cannot write {}", path.display()))
}

/// Removes a file, durably; one that is not there is as good.
pub fn remove_durably(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot remove {}", path.display())),
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|f| f.sync_all()).with_context(|| format!("cannot sync {}", folder.display()))
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
    /// The image after its last sync.
    pub image: ImageIdentity,
    /// The image is complete by itself: the log was empty when the daemon stopped.
    pub clean: bool,
}

impl Marker {
    /// Reads one.
    pub fn load(path: &Path) -> Result<Option<Marker>> {
        let text = match fs::read_to_string(path) {
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
    fn journal_words(&self) -> String {
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

/// What was found of our own tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TierFound {
    /// It was never made.
    FirstStart,
    /// It was made and is not there any more.
    Missing,
    /// It is there.
    Present {
        /// The log was empty when it was closed.
        clean: bool,
        /// Its last owner's number.
        term: u32,
    },
}

/// Whether the volume may be served over this image with this tier. An error says what is wrong and what to do; a
/// good end may carry a remark for the operator.
pub fn judge(
    marker: Option<&Marker>,
    volume: VolumeId,
    tier: TierFound,
    image: &ImageIdentity,
    image_name: &str,
) -> Result<Option<String>> {
    const WAY_OUT: &str = "put the right one back, copy the tier's content out with `forebay salvage`, \
                           or accept the image as it is with --adopt-changed-backing";
    let Some(marker) = marker else {
        return match tier {
            TierFound::FirstStart | TierFound::Present { clean: true, .. } => Ok(None),
            TierFound::Present { clean: false, .. } => bail!(
                "{image_name} has no marker beside it, but the tier holds writes for an image that had one: this is another \
                 image or a copy; {WAY_OUT}"
            ),
            TierFound::Missing => bail!(
                "{image_name} has no marker beside it and the tier of this volume is missing, with writes that may be in \
                 no other place; {WAY_OUT}"
            ),
        };
    };
    if marker.volume != volume {
        if marker.clean {
            return Ok(Some(format!(
                "{image_name} belonged to volume {} of host {}, which left it complete",
                marker.name, marker.host
            )));
        }
        bail!(
            "{image_name} is not complete: newer writes of volume {} ({}) lie on host {} in the tier {}; serve or drain it \
             there first, or accept the image without them with --adopt-changed-backing{}",
            marker.name,
            marker.volume,
            marker.host,
            marker.tier.display(),
            marker.journal_words()
        );
    }
    match tier {
        TierFound::FirstStart | TierFound::Missing if marker.clean => Ok(None),
        TierFound::FirstStart | TierFound::Missing => bail!(
            "{image_name} is not complete: the writes after log position {} lie in the tier {} of host {}, which is not \
             there; {WAY_OUT}{}",
            marker.destaged,
            marker.tier.display(),
            marker.host,
            marker.journal_words()
        ),
        TierFound::Present { term, .. } if term < marker.term => bail!(
            "the tier is of term {term}, but {image_name} was written to in term {}: the tier is an older copy, and newer \
             writes are missing in it; {WAY_OUT}",
            marker.term
        ),
        TierFound::Present { clean: true, .. } if marker.clean => Ok(None),
        // A marker that is not clean beside a clean tier: the daemon was killed between the two, or the image was not at its
        // path when the volume stopped.
        TierFound::Present { .. } => match difference(&marker.image, image) {
            None => Ok(None),
            Some(what) => bail!(
                "{image_name} is not the image that the tier's writes belong to: {what}. Writing them over it would mix two \
                 states; {WAY_OUT}"
            ),
        },
    }
}

/// What shows that an image is another one or an older copy. Growing and newer changes are legal: our own former
/// process made them after it last wrote the marker.
pub fn difference(was: &ImageIdentity, is: &ImageIdentity) -> Option<String> {
    if let (Some(was), Some(is)) = (was.inode, is.inode)
        && was != is
    {
        return Some(format!("its inode is {is}, it was {was}"));
    }
    if let (Some(was), Some(is)) = (was.born_ns, is.born_ns)
        && was != is
    {
        return Some(format!("its birth time is {}, it was {}", show_time(is), show_time(was)));
    }
    if is.size_bytes < was.size_bytes {
        return Some(format!("its size is {} bytes, it was {}", is.size_bytes, was.size_bytes));
    }
    if let (Some(was), Some(is)) = (was.changed_ns, is.changed_ns)
        && is < was
    {
        return Some(format!("it was last changed at {}, but had been changed at {}", show_time(is), show_time(was)));
    }
    None
}

fn show_time(ns: i64) -> String {
    format!("{}.{:09} s after 1970", ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000))
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

    const US: VolumeId = VolumeId([1; 16]);
    const IMAGE: ImageIdentity =
        ImageIdentity { inode: Some(7), born_ns: Some(100), size_bytes: 4096, changed_ns: Some(500) };
    const DIRTY: TierFound = TierFound::Present { clean: false, term: 3 };

    fn marker() -> Marker {
        Marker {
            version: STORE_VERSION,
            volume: US,
            name: "vm1".into(),
            host: "a".into(),
            tier: "/t".into(),
            term: 3,
            destaged: 42,
            journal: None,
            image: IMAGE,
            clean: false,
        }
    }

    fn refusal(marker: Option<&Marker>, tier: TierFound, image: ImageIdentity) -> String {
        format!("{:#}", judge(marker, US, tier, &image, "disk.img").unwrap_err())
    }

    #[test]
    fn same_image_or_a_newer_state_of_it_is_served() {
        for image in [
            IMAGE,
            ImageIdentity { size_bytes: 8192, ..IMAGE },
            ImageIdentity { changed_ns: Some(501), ..IMAGE },
            ImageIdentity { born_ns: None, ..IMAGE },
        ] {
            assert_eq!(judge(Some(&marker()), US, DIRTY, &image, "disk.img").unwrap(), None);
        }
    }

    #[test]
    fn changed_or_older_image_is_refused_before_a_dirty_tier_and_the_field_is_named() {
        let cases = [
            (ImageIdentity { inode: Some(8), ..IMAGE }, "inode"),
            (ImageIdentity { born_ns: Some(101), ..IMAGE }, "birth time"),
            (ImageIdentity { size_bytes: 512, ..IMAGE }, "size"),
            (ImageIdentity { changed_ns: Some(499), ..IMAGE }, "last changed"),
        ];
        for (image, field) in cases {
            let error = refusal(Some(&marker()), DIRTY, image);
            assert!(error.contains(field) && error.contains("--adopt-changed-backing"), "{error}");
            let clean = TierFound::Present { clean: true, term: 3 };
            assert!(refusal(Some(&marker()), clean, image).contains(field));
            let stopped = Marker { clean: true, ..marker() };
            assert!(judge(Some(&stopped), US, clean, &image, "disk.img").is_ok());
        }
    }

    #[test]
    fn dirty_data_elsewhere_is_named() {
        let other = Marker { volume: VolumeId([2; 16]), host: "b".into(), tier: "/far/tier".into(), ..marker() };
        for tier in [TierFound::FirstStart, DIRTY] {
            let error = refusal(Some(&other), tier, IMAGE);
            assert!(error.contains("host b") && error.contains("/far/tier"), "{error}");
        }
        let left = Marker { clean: true, ..other };
        assert!(judge(Some(&left), US, TierFound::FirstStart, &IMAGE, "disk.img").unwrap().is_some());
    }

    #[test]
    fn missing_or_older_tier_is_refused_unless_the_image_was_left_complete() {
        assert!(refusal(Some(&marker()), TierFound::Missing, IMAGE).contains("position 42"));
        let journaled = Marker { journal: Some("/x.img.forebay-journal".into()), ..marker() };
        assert!(refusal(Some(&journaled), TierFound::Missing, IMAGE).contains("replays the journal /x.img"));
        assert!(refusal(None, TierFound::Missing, IMAGE).contains("no marker"));
        assert!(refusal(None, DIRTY, IMAGE).contains("no marker"));
        assert!(refusal(Some(&marker()), TierFound::Present { clean: false, term: 2 }, IMAGE).contains("older copy"));
        let clean = Marker { clean: true, ..marker() };
        assert!(judge(Some(&clean), US, TierFound::Missing, &IMAGE, "disk.img").is_ok());
        assert!(judge(None, US, TierFound::FirstStart, &IMAGE, "disk.img").is_ok());
    }

    #[test]
    fn records_and_markers_come_back_as_written_and_newer_ones_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let record = Record {
            version: STORE_VERSION,
            name: "vm1".into(),
            volume: VolumeId::random().unwrap(),
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
            tier: TierRecord { kind: TierName::Flash, path: "/t".into(), size_bytes: 1 << 26, made: true },
        };
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
