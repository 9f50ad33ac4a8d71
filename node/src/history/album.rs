//! The files of the pictures: two for each volume, of which the older gives way when the newer is full. A torn end costs the
//! last picture.

use anyhow::{Context, Result};
use forebay_api::history::format::Owner;
use forebay_api::history::pictures;
use forebay_api::history::pictures::{PICTURE_BYTES_MAX, Picture};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of one of the two files: a week or more of a busy volume.
pub const FILE_BYTES_MAX: u64 = 4 << 20;

fn paths(dir: &Path, owner: &Owner) -> [PathBuf; 2] {
    let path = owner.path(dir);
    [path.with_extension("pictures"), path.with_extension("pictures.1")]
}

/// Where the pictures of a volume are added.
pub struct Album {
    owner: Owner,
    dir: PathBuf,
    file: File,
    end: u64,
}

impl Album {
    /// Opens or makes it; what is torn at its end is written over.
    pub fn open(dir: &Path, owner: Owner) -> Result<Album> {
        let path = &paths(dir, &owner)[0];
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = open.with_context(|| format!("cannot open {}", path.display()))?;
        let mut end = 0;
        for_each(&file, &owner, |_, behind| end = behind).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Album { owner, dir: dir.to_owned(), file, end })
    }

    /// Adds a picture behind the others; a full file becomes the older one, and a new one is begun.
    pub fn add(&mut self, picture: &Picture) -> Result<()> {
        if self.end >= FILE_BYTES_MAX {
            let [newer, older] = paths(&self.dir, &self.owner);
            std::fs::rename(&newer, &older).with_context(|| format!("cannot rename {}", newer.display()))?;
            *self = Album::open(&self.dir, self.owner)?;
        }
        let bytes = pictures::encode(&self.owner, picture, self.end);
        self.file.write_all_at(&bytes, self.end).context("cannot write the pictures' file")?;
        self.end += bytes.len() as u64;
        // What an earlier life has left behind a torn one is not to be found behind this one.
        self.file.set_len(self.end).context("cannot cut the pictures' file")
    }
}

fn for_each(file: &File, owner: &Owner, mut take: impl FnMut(Picture, u64)) -> std::io::Result<()> {
    let length = file.metadata()?.len().min(FILE_BYTES_MAX + PICTURE_BYTES_MAX as u64);
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let mut at = 0;
    while let Some((picture, length)) = pictures::decode(owner, &bytes[at..], at as u64) {
        at += length;
        take(picture, at as u64);
    }
    Ok(())
}

/// All pictures that have something of a time, together; none where nothing was measured.
pub fn read(dir: &Path, owner: &Owner, from: u64, to: u64) -> Result<Option<Picture>> {
    let mut all: Option<Picture> = None;
    let [newer, older] = paths(dir, owner);
    for path in [older, newer] {
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot open {}", path.display())),
        };
        let take = |picture: Picture, _| {
            if picture.to > from && picture.from < to {
                pictures::add(&mut all, picture);
            }
        };
        for_each(&file, owner, take).with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(all)
}

/// Removes what there is of a volume that is gone.
pub fn remove(dir: &Path, owner: &Owner) {
    for path in paths(dir, owner) {
        // One that is not there need not be removed; one that cannot be is a leftover.
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::history::pictures::PICTURE_S;
    use forebay_core::stats::Stats;
    use forebay_core::types::Duration;

    const US: Owner = Owner { kind: 1, id: *b"0123456789abcdef" };

    fn picture(from: u64, reads: u64) -> Picture {
        let mut seen = Stats::new(1000);
        seen.reads.client.record_many(Duration::from_micros(100), reads);
        seen.heat.read(4096, Duration::from_micros(100));
        Picture { from, to: from + PICTURE_S, seen }
    }

    fn reads(dir: &Path, from: u64, to: u64) -> (u64, u64, u64) {
        let picture = read(dir, &US, from, to).unwrap().unwrap();
        (picture.from, picture.to, picture.seen.reads.client.count())
    }

    #[test]
    fn what_was_added_is_found_by_its_time() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path(), &US, 0, u64::MAX).unwrap().is_none());
        let mut album = Album::open(dir.path(), US).unwrap();
        for (number, count) in [(0, 1), (1, 10), (2, 100)] {
            album.add(&picture(number * PICTURE_S, count)).unwrap();
        }
        assert_eq!(reads(dir.path(), 0, 900), (0, 900, 111));
        assert_eq!(reads(dir.path(), 300, 600), (300, 600, 10));
        assert_eq!(reads(dir.path(), 299, 301), (0, 600, 11), "a time that it only touches is told whole");
    }

    #[test]
    fn a_torn_end_costs_the_last_picture() {
        let dir = tempfile::tempdir().unwrap();
        let mut album = Album::open(dir.path(), US).unwrap();
        for (number, count) in [(0, 1), (1, 10), (2, 100)] {
            album.add(&picture(number * PICTURE_S, count)).unwrap();
        }
        album.file.set_len(album.end - 3).unwrap();
        assert_eq!(reads(dir.path(), 0, 900).2, 11);
        let mut album = Album::open(dir.path(), US).unwrap();
        album.add(&picture(900, 1000)).unwrap();
        assert_eq!(reads(dir.path(), 0, 2000).2, 1011);
    }

    #[test]
    fn the_older_file_gives_way() {
        let dir = tempfile::tempdir().unwrap();
        let mut album = Album::open(dir.path(), US).unwrap();
        for number in 0..3 {
            album.add(&picture(number * PICTURE_S, 1)).unwrap();
            album.end = FILE_BYTES_MAX;
        }
        let pictures = read(dir.path(), &US, 0, u64::MAX).unwrap().unwrap();
        assert_eq!(pictures.seen.reads.client.count(), 2);
        assert_eq!(pictures.from, PICTURE_S);
    }
}
