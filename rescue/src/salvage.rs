//! `forebay salvage`: replays a tier's log, and the journal beside an image, into a new image when nothing else is left.
//! Neither the tier nor the journal nor the base image is ever written to.

use crate::tier_reader::{Damage, Found, TierContent, TierReader, byte_of};
use anyhow::{Context, Result, bail};
use forebay_api::units::show_size;
use forebay_core::format::{Descriptor, Kind};
use forebay_core::log::Retention;
use forebay_core::types::{BLOCK_BYTES, Lsn, SECTOR_BYTES, SectorMask};
use forebay_io::Backing;
use forebay_io::folder::{self, Folder};
use forebay_io::journal::{self, JournalError, ReplayRequest, TierWord, Verdict};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What a salvage has made of a log or a journal.
#[derive(Debug, serde::Serialize)]
pub struct Salvaged {
    /// Name of the volume whose log it was.
    pub name: String,
    /// Bytes of the new image.
    pub size_bytes: u64,
    /// An image was the beginning; else everything that no record covers is zeros.
    pub with_base: bool,
    /// Records that were written into the new image.
    pub replayed: usize,
    /// Records left out because the base has them or newer ones.
    pub in_base: usize,
    /// Records left out because newer ones cover them.
    pub superseded: usize,
    /// Records whose payload was damaged; their ranges hold what was there before.
    pub lost: usize,
    /// The tier is shorter than it was made: nobody knows what its end held.
    pub tier_cut_off: bool,
    /// Log position up to which a batch of the journal beside the base was written into the new image before.
    pub journal_through: Option<u64>,
    /// What was wrong with the tier or the journal.
    pub damage: Vec<Damage>,
}

/// What became of an image whose tier is lost.
#[derive(Debug, serde::Serialize)]
pub struct JournalSalvaged {
    /// Bytes of the new image.
    pub size_bytes: u64,
    /// Log position up to which the batch of the journal brought it, if the journal held one.
    pub journal_through: Option<u64>,
}

/// The tier is lost: makes of an image and the journal beside it an image that is a crash image by itself.
pub fn run_journal(journal: &Path, to: &Path, base: Option<&Path>) -> Result<JournalSalvaged> {
    let beside = journal.to_str().and_then(|path| path.strip_suffix(journal::NAME_SUFFIX)).map(PathBuf::from);
    let Some(base) = base.map(Path::to_owned).or(beside) else {
        bail!("{} is not named after its image; name the image by --base", journal.display());
    };
    let report = journal::inspect(journal)?;
    let mut image = make_image(to, &[journal, &base])?;
    let unfinished = Unfinished(to);
    copy_sparse(&base, &mut image, to)?;
    let size_bytes = image.metadata()?.len();
    let through = apply_journal(journal, to, &image, report.volume, size_bytes, None)?;
    image.sync_all().with_context(|| format!("cannot sync {}", to.display()))?;
    std::mem::forget(unfinished);
    Ok(JournalSalvaged { size_bytes, journal_through: through.map(|through| through.0) })
}

/// Writes the batch of a journal into the new image, if it belongs there.
fn apply_journal(
    journal: &Path,
    to: &Path,
    image: &File,
    volume: [u8; 16],
    volume_bytes: u64,
    tier: Option<TierWord>,
) -> Result<Option<Lsn>> {
    // Whole blocks while it is written to, whatever its file system's unit.
    let length = image.metadata()?.len();
    image.set_len(length.next_multiple_of(BLOCK_BYTES))?;
    // The file that was made, whatever has its name by now.
    let mut copy = image.try_clone().and_then(|image| Backing::of_file(image, to))?;
    let volume_bytes = volume_bytes - volume_bytes % SECTOR_BYTES;
    let request = ReplayRequest { volume, volume_bytes, tier, lock_timeout: Default::default() };
    let report = journal::copy_into(journal, &request, &mut copy)?;
    image.set_len(length)?;
    Ok(match report.verdict {
        Verdict::Apply(batch) => Some(batch.through),
        Verdict::AlreadyInBacking(_) | Verdict::NothingToApply => None,
    })
}

/// A new image that is taken away again where something fails: a part of one could be taken for all of it.
struct Unfinished<'a>(&'a Path);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let _ = folder::remove(self.0);
    }
}

fn make_image(to: &Path, sources: &[&Path]) -> Result<File> {
    if sources.iter().any(|source| same_file(source, to)) {
        bail!("cannot salvage to {}: it is the original; name a new file", to.display());
    }
    let made = Folder::of(to).and_then(|(folder, name)| folder.make_readable_file(name, 0o600));
    made.with_context(|| format!("cannot make {}; name a file that is not there yet", to.display()))
}

/// Replays. With a base image, records that are in the backing already are left out: an older one of them could undo a
/// newer one whose record is gone. Without one, everything readable is used, and what no record covers reads as zeros.
pub fn run(tier: &Path, to: &Path, base: Option<&Path>) -> Result<Salvaged> {
    let reader = TierReader::open(tier)?;
    let content = reader.content()?;
    let size_bytes = content.size_bytes();
    let word = TierWord { term: content.term(), destaged: content.destaged() };
    let journal = base.and_then(|base| journal::path_of(base).ok()).filter(|path| path.exists());
    if let Some(path) = &journal
        && let Err(error @ JournalError::LaterTerm { .. }) =
            journal::check(path, &content.superblock.volume, Some(word.term))
    {
        return Err(error.into());
    }
    let sources: Vec<&Path> = [Some(tier), base].into_iter().flatten().collect();
    let mut image = make_image(to, &sources)?;
    let unfinished = Unfinished(to);
    if let Some(base) = base {
        copy_sparse(base, &mut image, to)?;
    }
    let length = image.metadata()?.len().max(size_bytes);
    image.set_len(length).with_context(|| format!("cannot size {} to {}", to.display(), show_size(length)))?;

    let kept = content.kept();
    let in_backing = content.is_in_backing(kept.as_ref());
    let volume = content.superblock.volume;
    let mut done = Salvaged {
        name: content.name(),
        size_bytes,
        with_base: base.is_some(),
        replayed: 0,
        in_base: 0,
        superseded: 0,
        lost: 0,
        tier_cut_off: content.cut_off,
        journal_through: None,
        damage: content.damage.clone(),
    };
    if let Some(journal) = journal {
        match apply_journal(&journal, to, &image, volume, size_bytes, Some(word)) {
            Ok(through) => done.journal_through = through.map(|through| through.0),
            // The tier has every record that a journal may hold and the image lacks.
            Err(error) => done.damage.push(Damage { byte: 0, reason: format!("{error:#}") }),
        }
    }
    let replay = Replay { reader: &reader, content: &content, kept, image: &image, to, with_base: base.is_some() };
    for (found, in_backing) in content.records.iter().zip(in_backing) {
        if in_backing && base.is_some() {
            done.in_base += 1;
        } else if found.superseded {
            done.superseded += 1;
        } else {
            replay.record(found, &mut done)?;
        }
    }
    image.sync_all().with_context(|| format!("cannot sync {}", to.display()))?;
    std::mem::forget(unfinished);
    Ok(done)
}

/// Of one record: where in its block, and the bytes.
type RecordPiece = (u64, Vec<u8>);

/// What the records of a tier are written into a new image with.
struct Replay<'a> {
    reader: &'a TierReader,
    content: &'a TierContent,
    kept: Option<Retention>,
    image: &'a File,
    to: &'a Path,
    with_base: bool,
}

impl Replay<'_> {
    /// Writes a record into the image, or counts why that was not done.
    fn record(&self, found: &Found, done: &mut Salvaged) -> Result<()> {
        let record = &found.record;
        let outcome = match record.kind {
            Kind::Data { mask, .. } => self.data(found, mask),
            Kind::ZeroSectors { mask } => Ok(mask
                .runs()
                .map(|(first, count)| {
                    (u64::from(first) * SECTOR_BYTES, vec![0; count as usize * SECTOR_BYTES as usize])
                })
                .collect()),
            Kind::ZeroBlocks { blocks, .. } => {
                self.zero_blocks(record, blocks)?;
                Ok(Vec::new())
            }
        };
        match outcome {
            Ok(pieces) => {
                self.write(record, pieces)?;
                done.replayed += 1;
            }
            // The slot of a record that is in the backing may be in use for a newer one: no loss where there is a base.
            Err(_) if record.lsn <= self.content.destaged() => done.in_base += 1,
            Err(damage) => {
                done.lost += 1;
                done.damage.push(damage);
            }
        }
        Ok(())
    }

    /// The pieces of a data record, from its payload in the tier.
    fn data(&self, found: &Found, mask: SectorMask) -> Result<Vec<RecordPiece>, Damage> {
        if found.payload.is_none() {
            return Err(Damage {
                byte: byte_of(Default::default()),
                reason: format!("log position {}: a data record without payload", found.record.lsn),
            });
        }
        let bytes = self.reader.payload(&self.content.superblock.volume, found)?;
        let piece = |(first, count)| {
            let at = u64::from(first) * SECTOR_BYTES;
            let length = u64::from(count) * SECTOR_BYTES;
            (at, bytes[at as usize..(at + length) as usize].to_vec())
        };
        Ok(mask.runs().map(piece).collect())
    }

    fn zero_blocks(&self, record: &Descriptor, blocks: u32) -> Result<()> {
        // Of a range that the backing has had, what is not pinned may have newer content there.
        let ranges = match &self.kept {
            Some(kept) if record.lsn <= self.content.destaged() && self.with_base => kept.pinned(record),
            _ => vec![(record.block, u64::from(blocks))],
        };
        for (first, blocks) in ranges {
            let end = (first.byte() + blocks * BLOCK_BYTES).min(self.content.size_bytes());
            write_zeros(self.image, first.byte(), end)
                .with_context(|| format!("cannot write {}", self.to.display()))?;
        }
        Ok(())
    }

    /// Writes what of the pieces lies within the volume.
    fn write(&self, record: &Descriptor, pieces: Vec<RecordPiece>) -> Result<()> {
        for (at, bytes) in pieces {
            let start = record.block.byte() + at;
            let end = (start + bytes.len() as u64).min(self.content.size_bytes());
            if start < end {
                self.image
                    .write_all_at(&bytes[..(end - start) as usize], start)
                    .with_context(|| format!("cannot write {}", self.to.display()))?;
            }
        }
        Ok(())
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (std::fs::metadata(a), std::fs::metadata(b)) {
        (Ok(a), Ok(b)) => a.dev() == b.dev() && a.ino() == b.ino(),
        _ => false,
    }
}

/// Copies what is not zero, so that a sparse base stays sparse.
fn copy_sparse(base: &Path, image: &mut File, to: &Path) -> Result<()> {
    let mut source =
        folder::open_image(base).with_context(|| format!("cannot open the base image {}", base.display()))?;
    let length =
        source.seek(SeekFrom::End(0)).with_context(|| format!("cannot read the size of {}", base.display()))?;
    source.seek(SeekFrom::Start(0))?;
    let mut buffer = vec![0u8; 1 << 20];
    let mut at = 0;
    loop {
        let read = source.read(&mut buffer).with_context(|| format!("cannot read {} at byte {at}", base.display()))?;
        if read == 0 {
            break;
        }
        if buffer[..read].iter().any(|&b| b != 0) {
            image.seek(SeekFrom::Start(at))?;
            image.write_all(&buffer[..read]).with_context(|| format!("cannot write {}", to.display()))?;
        }
        at += read as u64;
    }
    image.set_len(length)?;
    Ok(())
}

fn write_zeros(image: &File, mut at: u64, end: u64) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    if at >= end {
        return Ok(());
    }
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: an open descriptor and numbers.
    if unsafe { libc::fallocate(image.as_raw_fd(), mode, at as libc::off_t, (end - at) as libc::off_t) } == 0 {
        return Ok(());
    }
    let zeros = vec![0u8; 1 << 20];
    while at < end {
        let length = (end - at).min(zeros.len() as u64);
        image.write_all_at(&zeros[..length as usize], at)?;
        at += length;
    }
    Ok(())
}

/// Prints what was done with an image and its journal.
pub fn report_journal(done: &JournalSalvaged, to: &Path, json: bool) -> Result<bool> {
    if json {
        println!("{}", serde_json::to_string_pretty(done)?);
        return Ok(true);
    }
    match done.journal_through {
        Some(through) => {
            println!("{} holds everything up to log position {through}: it is a crash image", to.display());
        }
        None => println!("{} is a copy: the journal holds no complete batch", to.display()),
    }
    Ok(true)
}

/// Prints what was done; true when nothing was lost, as far as it can be told.
pub fn report(done: &Salvaged, to: &Path, json: bool) -> Result<bool> {
    if json {
        println!("{}", serde_json::to_string_pretty(done)?);
    } else {
        println!(
            "volume {} ({}): {} records replayed into {}; left out: {} that the backing has, {} that newer ones cover",
            done.name,
            show_size(done.size_bytes),
            done.replayed,
            to.display(),
            done.in_base,
            done.superseded
        );
        if let Some(through) = done.journal_through {
            println!("the journal beside the base was written first: everything up to log position {through}");
        }
        for d in &done.damage {
            println!("damage at byte {}: {}", d.byte, d.reason);
        }
        if done.lost > 0 {
            println!("{} records could not be read; their ranges hold older data", done.lost);
        }
        if done.tier_cut_off {
            println!("the tier's end is missing, and what it held is lost, however much that was");
        }
        if !done.with_base {
            println!(
                "there was no --base: whatever the log does not hold is zeros; with the image as base it is whole"
            );
        }
    }
    Ok(done.lost == 0 && !done.tier_cut_off)
}
