//! Pictures: what a volume has measured in five minutes, with all its histograms, so that a percentile, a heat map or a
//! miss-ratio curve of any time is that of its requests, and no mean of means.
//!
//! A picture is a few hundred numbers of which most are zero: records of varying length in two files, of which the older
//! gives way when the newer is full. `docs/format.md` has the bytes. A torn end costs the last picture.

use super::format::Owner;
use anyhow::{Context, Result};
use forebay_core::format::crc32c;
use forebay_core::seen::Seen;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Seconds of a picture.
pub const PICTURE_S: u64 = 300;
/// Bytes of one of the two files: a week or more of a busy volume.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a picture; all its numbers with as many bytes as they can have are fewer.
const PICTURE_BYTES_MAX: usize = 64 << 10;
const HEAD: usize = 32;
const VERSION: u16 = 1;
/// More numbers than a picture has: where a later version adds some, they are passed over.
const NUMBERS_MAX: usize = 16 << 10;

/// What was measured in a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// From this second on.
    pub from: u64,
    /// Up to this one.
    pub to: u64,
    /// What.
    pub seen: Seen,
}

/// The bytes of a picture; `place`: where it goes in its file.
pub fn encode(owner: &Owner, picture: &Picture, place: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    let mut zeros = 0u64;
    for number in picture.seen.numbers() {
        if number == 0 {
            zeros += 1;
            continue;
        }
        if zeros > 0 {
            bytes.push(0);
            put_number(&mut bytes, zeros);
            zeros = 0;
        }
        put_number(&mut bytes, number);
    }
    bytes[..4].copy_from_slice(b"FBPI");
    let length = bytes.len() as u32;
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes[12..14].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&picture.from.to_le_bytes());
    bytes[24..32].copy_from_slice(&picture.to.to_le_bytes());
    let sum = checksum(owner, place, &bytes);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The picture at the begin of some bytes, and how many are its own; none where there is none, or a torn one.
pub fn decode(owner: &Owner, bytes: &[u8], place: u64) -> Option<(Picture, usize)> {
    let head = bytes.get(..HEAD)?;
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    let length = word(4) as usize;
    if &head[..4] != b"FBPI" || !(HEAD..=PICTURE_BYTES_MAX).contains(&length) {
        return None;
    }
    let bytes = bytes.get(..length)?;
    let mut summed = bytes.to_vec();
    summed[8..12].fill(0);
    if checksum(owner, place, &summed) != word(8) || word(12) as u16 != VERSION {
        return None;
    }
    let mut rest = &bytes[HEAD..];
    let mut numbers = Vec::new();
    while !rest.is_empty() && numbers.len() < NUMBERS_MAX {
        match take_number(&mut rest)? {
            0 => {
                let zeros = take_number(&mut rest)?.min((NUMBERS_MAX - numbers.len()) as u64);
                numbers.resize(numbers.len() + zeros as usize, 0);
            }
            number => numbers.push(number),
        }
    }
    let seen = Seen::of_numbers(numbers.into_iter());
    Some((Picture { from: long(16), to: long(24), seen }, length))
}

fn checksum(owner: &Owner, place: u64, bytes: &[u8]) -> u32 {
    let mut seed = [0; 24];
    seed[..16].copy_from_slice(&owner.id);
    seed[16..].copy_from_slice(&place.to_le_bytes());
    crc32c(bytes) ^ crc32c(&seed)
}

/// Seven bits a byte, the lowest first; the eighth says that more follow.
fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

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

    /// Adds one.
    pub fn add(&mut self, picture: &Picture) -> Result<()> {
        if self.end >= FILE_BYTES_MAX {
            let [newer, older] = paths(&self.dir, &self.owner);
            std::fs::rename(&newer, &older).with_context(|| format!("cannot rename {}", newer.display()))?;
            *self = Album::open(&self.dir, self.owner)?;
        }
        let bytes = encode(&self.owner, picture, self.end);
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
    while let Some((picture, length)) = decode(owner, &bytes[at..], at as u64) {
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
                add(&mut all, picture);
            }
        };
        for_each(&file, owner, take).with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(all)
}

/// Adds a newer one. Distances of another cache, or of another sampling, do not add up: those of the newest count.
pub fn add(all: &mut Option<Picture>, picture: Picture) {
    let Some(sum) = all else {
        *all = Some(picture);
        return;
    };
    (sum.from, sum.to) = (sum.from.min(picture.from), sum.to.max(picture.to));
    let shape = |seen: &Seen| (seen.miss_ratio.cache_bytes(), seen.miss_ratio.deepest_bytes());
    let same = shape(&sum.seen) == shape(&picture.seen);
    sum.seen.merge(&picture.seen);
    if !same {
        sum.seen.miss_ratio = picture.seen.miss_ratio;
    }
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
    use forebay_core::types::Duration;

    const US: Owner = Owner { kind: 1, id: *b"0123456789abcdef" };

    fn picture(from: u64, reads: u64) -> Picture {
        let mut seen = Seen::new(1000);
        seen.reads.client.record_many(Duration::from_micros(100), reads);
        seen.heat.read(4096, Duration::from_micros(100));
        Picture { from, to: from + PICTURE_S, seen }
    }

    fn reads(dir: &Path, from: u64, to: u64) -> (u64, u64, u64) {
        let picture = read(dir, &US, from, to).unwrap().unwrap();
        (picture.from, picture.to, picture.seen.reads.client.count())
    }

    #[test]
    fn pictures_have_their_golden_bytes() {
        let mut seen = Seen::new(0);
        seen.reads.client.record_many(Duration::from_micros(3), 300);
        let bytes = encode(&US, &Picture { from: 1_700_000_100, to: 1_700_000_400, seen }, 4096);
        assert_eq!(&bytes[..8], b"FBPI\x2e\0\0\0");
        assert_eq!(&bytes[12..32], b"\x01\0\0\0\x64\xf1\x53\x65\0\0\0\0\x90\xf2\x53\x65\0\0\0\0");
        // 900000 ns; three zeros; 300 in the class below 4 us; zeros; stride 16, and the deepest.
        assert_eq!(&bytes[32..], b"\xa0\xf7\x36\0\x03\xac\x02\0\xf0\x1b\x10\x80\x80\x08");
        assert_eq!(u32::from_le_bytes(bytes[8..12].try_into().unwrap()), GOLDEN_SUM);
    }

    // Computed by a second implementation of the format's page.
    const GOLDEN_SUM: u32 = 0x5031_009f;

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

    #[test]
    fn curves_of_different_caches_do_not_add_up() {
        let mut all = None;
        let with = |cache_blocks, reads| {
            let mut seen = Seen::new(cache_blocks);
            let mut sampler = forebay_core::seen::ReuseSampler::new(&seen.miss_ratio);
            (0..reads).for_each(|block| {
                sampler.read(&mut seen.miss_ratio, forebay_core::types::BlockIndex(block), 1);
            });
            Picture { from: 0, to: 300, seen }
        };
        for picture in [with(1 << 20, 1000), with(1 << 30, 50), with(1 << 30, 20)] {
            add(&mut all, picture);
        }
        let curve = all.unwrap().seen.miss_ratio;
        assert_eq!((curve.cache_bytes(), curve.blocks_read()), (4 << 40, 70));
    }
}
