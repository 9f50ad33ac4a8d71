//! The marker beside the image of a cluster's volume: the same file, and the same words, as beside one that a single node
//! serves ([`forebay_api::record::Marker`]), so that each is refused where the other's newest writes lie in logs.
//!
//! - Written before the first write of each term, then as it is destaged, and for the last time, as clean, when the volume was
//!   released. What a former owner writes late says less, never more: nobody relies on its term.
//! - A notice, not the truth: who may serve is the record's matter. A marker that is missing keeps nobody out, so that an
//!   image can be accepted by removing it.
//! - Only regular files have one. A device or an NBD export has no beside that all nodes see.

use crate::coordinator::schema::Definition;
use crate::judgement::difference;
use anyhow::{Context, Result, bail};
use forebay_api::record::{ImageIdentity, Marker, STORE_VERSION, VolumeId};
use forebay_core::types::{Lsn, Term};
use forebay_io::Backing;
use forebay_io::durable::remove_durably;
use forebay_io::folder::FileKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Times of change are not compared more exactly: a client of a file system over a network may have an older one in its cache.
const CHANGED_SLACK_NS: i64 = 60_000_000_000;

/// Where the marker of a backing lies, and which file it is about. It holds nothing open: the opening of the backing carries
/// the owner's lock, and must end with the last write.
pub(super) struct ImageMarker {
    path: PathBuf,
    image: PathBuf,
    inode: u64,
}

/// Who writes a marker, and what of the volume it says.
pub(super) struct Words<'a> {
    /// What the operator asks of the volume.
    pub definition: &'a Definition,
    /// Name of the owner's node.
    pub node: &'a str,
    /// Where its log lies there.
    pub tier: PathBuf,
    /// Number of the volume's owner.
    pub term: Term,
    /// Up to here the image is complete.
    pub destaged: Lsn,
    /// Nothing is in logs any more.
    pub clean: bool,
}

impl ImageMarker {
    /// None: the backing is no regular file.
    pub(super) fn of(backing: &Backing) -> Option<ImageMarker> {
        let file = backing.file().filter(|file| file.kind() == FileKind::Regular)?;
        let mut path = file.path().as_os_str().to_owned();
        path.push(".forebay");
        let inode = file.file().metadata().ok()?.ino();
        Some(ImageMarker { path: path.into(), image: file.path().to_owned(), inode })
    }

    /// Of the file at the path now, which must be the one that was opened, as no loss of power takes it back.
    fn durable_identity(&self) -> Result<ImageIdentity> {
        let read = self.identity()?;
        let image = self.image.display();
        // Of its own: a sync by the description of the I/O would take an error of that one's writes upon itself.
        let synced = forebay_io::folder::open_image(&self.image).and_then(|file| file.sync_all());
        synced.with_context(|| format!("cannot sync {image} before its marker is written"))?;
        Ok(read)
    }

    /// Of the file at the path now, which must be the one that was opened.
    fn identity(&self) -> Result<ImageIdentity> {
        let image = self.image.display();
        let is = std::fs::metadata(&self.image).with_context(|| format!("cannot look at {image}"))?;
        if is.ino() != self.inode {
            bail!("{image} is not the file any more that is written to: it was moved or replaced; put it back");
        }
        let ns = |time: std::io::Result<SystemTime>| {
            i64::try_from(time.ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
        };
        Ok(ImageIdentity {
            inode: Some(is.ino()),
            born_ns: ns(is.created()),
            size_bytes: is.len(),
            changed_ns: ns(is.modified()),
        })
    }

    /// Refuses an image whose newest writes lie in the logs of somebody else, or that is not the one that this volume's
    /// logs belong to.
    pub(super) fn check(&self, volume: VolumeId) -> Result<()> {
        match Marker::load(&self.path)? {
            Some(marker) => judge(&marker, volume, &self.identity()?, &self.image.display().to_string()),
            None => Ok(()),
        }
    }

    /// Removes the marker of a volume that was deleted; another volume's stays.
    pub(super) fn remove(&self, volume: VolumeId) -> Result<()> {
        match Marker::load(&self.path)? {
            Some(marker) if marker.volume == volume => Ok(remove_durably(&self.path)?),
            Some(_) | None => Ok(()),
        }
    }

    /// Writes the marker beside the image anew.
    pub(super) fn write(&self, words: &Words<'_>) -> Result<()> {
        let marker = Marker {
            version: STORE_VERSION,
            volume: words.definition.volume,
            name: words.definition.name.to_string(),
            host: words.node.to_owned(),
            tier: words.tier.clone(),
            term: words.term.0,
            destaged: words.destaged.0,
            journal: None,
            image: self.durable_identity()?,
            clean: words.clean,
        };
        marker.save(&self.path)
    }
}

fn judge(marker: &Marker, volume: VolumeId, image: &ImageIdentity, name: &str) -> Result<()> {
    if marker.volume != volume {
        if marker.clean {
            return Ok(());
        }
        bail!(
            "{name} is not complete: newer writes of volume {} ({}) lie in the log {} of {}; serve or drain it there first, or \
             accept the image without them by removing {name}.forebay",
            marker.name,
            marker.volume,
            marker.tier.display(),
            marker.host
        );
    }
    // Nodes may see another inode and birth time of one file (CIFS without server inodes); size and the time of its last
    // change come from where it lies.
    let changed_ns = marker.image.changed_ns.map(|ns| ns.saturating_sub(CHANGED_SLACK_NS));
    let was = ImageIdentity { inode: None, born_ns: None, changed_ns, ..marker.image };
    match difference(&was, image) {
        None => Ok(()),
        Some(what) => bail!(
            "{name} is not the image that the volume's logs belong to, or an older copy of it: {what}. Writing them over it would \
             mix two states; put the right one back, or accept it as it is by removing {name}.forebay"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(clean: bool) -> Marker {
        Marker {
            version: STORE_VERSION,
            volume: VolumeId([1; 16]),
            name: "vm1".into(),
            host: "alpha".into(),
            tier: "/dev/shm/vm1.tier".into(),
            term: 3,
            destaged: 7,
            journal: None,
            image: ImageIdentity {
                inode: Some(1),
                born_ns: Some(1),
                size_bytes: 4096,
                changed_ns: Some(2 * CHANGED_SLACK_NS),
            },
            clean,
        }
    }

    #[test]
    fn an_image_is_refused_where_newer_writes_lie_in_other_logs_and_where_it_is_an_older_one() {
        let (own, other) = (VolumeId([1; 16]), VolumeId([2; 16]));
        let same = marker(false).image;
        let refused =
            |marker: Marker, volume, image| format!("{:#}", judge(&marker, volume, &image, "d.img").unwrap_err());
        judge(&marker(false), own, &same, "d.img").unwrap();
        judge(&marker(true), other, &same, "d.img").unwrap();
        assert!(refused(marker(false), other, same).contains("alpha"));
        let grown = ImageIdentity {
            size_bytes: 8192,
            changed_ns: Some(3 * CHANGED_SLACK_NS),
            inode: Some(9),
            born_ns: Some(9),
        };
        judge(&marker(false), own, &grown, "d.img").unwrap();
        let nearly = ImageIdentity { changed_ns: Some(CHANGED_SLACK_NS), ..same };
        judge(&marker(false), own, &nearly, "d.img").unwrap();
        let older = ImageIdentity { changed_ns: Some(CHANGED_SLACK_NS - 1), ..same };
        assert!(refused(marker(true), own, older).contains("older copy"));
        let cut = ImageIdentity { size_bytes: 512, ..same };
        assert!(refused(marker(false), own, cut).contains("512"));
    }
}
