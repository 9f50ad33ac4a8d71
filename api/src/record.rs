//! What is kept of a volume besides its tier, as plain values: the record in the state folder, and the marker beside the image.
//!
//! Who keeps and judges them: the daemon. Here is what they say, and how they are read and written.

use crate::config::volume::Common;
use crate::config::{DestageName, PolicyName, TierName};
use anyhow::{Context, Result, bail};
use forebay_io::durable::write_atomically;
use forebay_io::folder;
use forebay_io::machine::random_bytes;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Version of records and markers that this code writes; it reads this one only, being the first.
pub const STORE_VERSION: u32 = 1;

/// Bytes that are read of a record or a marker.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Identity of a volume, as hyphenated hexadecimal in files and on screen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeId(pub [u8; 16]);

impl VolumeId {
    /// An identity of random bytes, which nothing else has.
    pub fn random() -> Result<VolumeId> {
        let mut id = [0u8; 16];
        random_bytes(&mut id)?;
        // Version and variant bits of a random UUID, so that other tools print it as one.
        id[6] = id[6] & 0x0f | 0x40;
        id[8] = id[8] & 0x3f | 0x80;
        Ok(VolumeId(id))
    }
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
    /// The layout of this record: [`STORE_VERSION`].
    pub version: u32,
    /// The volume's name, which its users call it by.
    pub name: String,
    /// Its identity; also in the tier and in the marker.
    pub volume: VolumeId,
    /// The backing's spec, as the user gave it, but absolute.
    pub backing: String,
    /// When it was created; the tier knows later sizes.
    pub size_bytes: u64,
    /// When a write is acknowledged, as the user asked for.
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
    /// How groups reach the backing, as the user asked for.
    #[serde(default)]
    pub destage: DestageName,
    /// Bytes of the journal beside the image; 0: as the size of the volume suggests.
    #[serde(default)]
    pub journal_bytes: u64,
    /// While the tier is changed for one on another medium: the one of both that holds nothing. A start removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<PathBuf>,
    /// What its definition and its report have as well.
    #[serde(flatten)]
    pub common: Common,
    /// Where its tier lies, and whether that has been made.
    pub tier: TierRecord,
}

/// Where a volume's tier lies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierRecord {
    /// The medium that it is on.
    pub kind: TierName,
    /// Path of its file or block device.
    pub path: PathBuf,
    /// Size of the tier in bytes.
    pub size_bytes: u64,
    /// The tier has been laid out: from now on a missing tier is a loss, not a first start.
    pub made: bool,
}

impl Record {
    /// Reads the text of the file at `path`. The error says whether it is damaged, or of a newer version.
    pub fn decode(path: &Path, text: &str) -> Result<Record> {
        check_version(path, toml::from_str::<Versioned>(text).ok().map(|v| v.version))?;
        toml::from_str(text)
            .with_context(|| format!("the volume record {} is damaged; restore it from a backup", path.display()))
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

/// What tells one image from another, and an older copy from the present one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImageIdentity {
    /// Inode number; none for a device node, which has another one after each boot, and for an NBD export.
    pub inode: Option<u64>,
    /// Birth time in nanoseconds since 1970, where the file system keeps one.
    pub born_ns: Option<i64>,
    /// Size of the image in bytes.
    pub size_bytes: u64,
    /// Time of the last change in nanoseconds since 1970; none for a device node or an NBD export.
    pub changed_ns: Option<i64>,
}

/// The marker beside an image: whose it is, and where its newest data lies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marker {
    /// The layout of this marker: [`STORE_VERSION`].
    pub version: u32,
    /// Identity of the volume that the image belongs to.
    pub volume: VolumeId,
    /// Name of that volume.
    pub name: String,
    /// Name of the host that serves it.
    pub host: String,
    /// Its tier on that host.
    pub tier: PathBuf,
    /// Number of the owner that wrote the marker.
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
    /// Reads the marker at this path; none where there is no file.
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

    /// Writes the marker to this path, in one step: after a crash there is the old one or the new one.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self).context("cannot encode the marker")?;
        text.push(b'\n');
        Ok(write_atomically(path, &text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_with_a_word_that_is_not_known_is_refused() {
        let text = "version = 1\nname = \"vm1\"\nvolume = \"07070707-0707-0707-0707-070707070707\"\nbacking = \"/x\"\nsize_bytes = 4096\n\
                    policy = \"back\"\nvolatile = false\nformat_raw = false\nmemory_bytes = 0\n";
        let tier = "[tier]\nkind = \"flash\"\npath = \"/t\"\nsize_bytes = 4096\nmade = true\n";
        let decode = |more: &str| Record::decode(Path::new("/r"), &format!("{text}{more}{tier}"));
        let known = decode("clients = [\"dns:vm1\"]\ndescription = \"the mail store\"\n").unwrap();
        assert_eq!(known.common.description.as_deref(), Some("the mail store"));
        assert_eq!(toml::from_str::<Record>(&toml::to_string(&known).unwrap()).unwrap(), known);
        assert_eq!(decode("").unwrap().common, Common::default());
        assert!(decode("owner = \"me\"\n").is_err());
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
