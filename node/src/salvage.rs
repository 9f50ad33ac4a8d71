//! `forebay salvage`: replays a tier's log into a new image when nothing else is left. Neither the tier nor the base
//! image is ever written to.

use crate::tier_reader::{Damage, TierReader, byte_of};
use crate::units::show_size;
use anyhow::{Context, Result, bail};
use forebay_core::format::Kind;
use forebay_core::types::{BLOCK_BYTES, Lsn, SECTOR_BYTES};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// What was done.
#[derive(Debug, serde::Serialize)]
pub struct Salvaged {
    /// The volume's name.
    pub name: String,
    /// Bytes of the new image.
    pub size_bytes: u64,
    /// Records written into it.
    pub replayed: usize,
    /// Records left out because the base has them or newer ones.
    pub in_base: usize,
    /// Records left out because newer ones cover them.
    pub superseded: usize,
    /// Records whose payload was damaged; their ranges hold what was there before.
    pub lost: usize,
    /// What was wrong with the tier.
    pub damage: Vec<Damage>,
}

/// Replays. With a base image, records that are in the backing already are left out: an older one of them could undo a
/// newer one whose record is gone. Without one, everything readable is used, and what no record covers reads as zeros.
pub fn run(tier: &Path, to: &Path, base: Option<&Path>) -> Result<Salvaged> {
    let reader = TierReader::open(tier)?;
    let content = reader.content()?;
    let size_bytes = content.size_bytes();
    for source in [Some(tier), base].into_iter().flatten() {
        if same_file(source, to) {
            bail!("cannot salvage to {}: it is the original; name a new file", to.display());
        }
    }
    let mut image = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(to)
        .with_context(|| format!("cannot make {}; name a file that is not there yet", to.display()))?;
    if let Some(base) = base {
        copy_sparse(base, &mut image, to)?;
    }
    let length = image.metadata()?.len().max(size_bytes);
    image.set_len(length).with_context(|| format!("cannot size {} to {}", to.display(), show_size(length)))?;

    let from = if base.is_some() { content.destaged() } else { Lsn(0) };
    let volume = content.superblock.volume;
    let mut done = Salvaged {
        name: content.name(),
        size_bytes,
        replayed: 0,
        in_base: 0,
        superseded: 0,
        lost: 0,
        damage: content.damage.clone(),
    };
    for found in &content.records {
        let record = &found.record;
        if record.lsn <= from {
            done.in_base += 1;
            continue;
        }
        if found.superseded {
            done.superseded += 1;
            continue;
        }
        let outcome = match record.kind {
            Kind::Data { mask, .. } => match found.payload {
                None => Err(Damage {
                    byte: byte_of(Default::default()),
                    reason: format!("log position {}: a data record without payload", record.lsn),
                }),
                Some(_) => reader.payload(&volume, found).map(|bytes| {
                    mask.runs()
                        .map(|(first, count)| {
                            let at = u64::from(first) * SECTOR_BYTES;
                            let length = u64::from(count) * SECTOR_BYTES;
                            (at, bytes[at as usize..(at + length) as usize].to_vec())
                        })
                        .collect::<Vec<_>>()
                }),
            },
            Kind::ZeroSectors { mask } => Ok(mask
                .runs()
                .map(|(first, count)| {
                    (u64::from(first) * SECTOR_BYTES, vec![0; count as usize * SECTOR_BYTES as usize])
                })
                .collect()),
            Kind::ZeroBlocks { blocks, .. } => {
                let end = (record.block.byte() + u64::from(blocks) * BLOCK_BYTES).min(size_bytes);
                write_zeros(&image, record.block.byte(), end)
                    .with_context(|| format!("cannot write {}", to.display()))?;
                Ok(Vec::new())
            }
        };
        match outcome {
            Ok(pieces) => {
                for (at, bytes) in pieces {
                    let start = record.block.byte() + at;
                    let end = (start + bytes.len() as u64).min(size_bytes);
                    if start < end {
                        image
                            .write_all_at(&bytes[..(end - start) as usize], start)
                            .with_context(|| format!("cannot write {}", to.display()))?;
                    }
                }
                done.replayed += 1;
            }
            // The slot of a record that is in the backing may be in use for a newer one: no loss where there is a base.
            Err(_) if record.lsn <= content.destaged() => done.in_base += 1,
            Err(damage) => {
                done.lost += 1;
                done.damage.push(damage);
            }
        }
    }
    image.sync_all().with_context(|| format!("cannot sync {}", to.display()))?;
    Ok(done)
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (std::fs::metadata(a), std::fs::metadata(b)) {
        (Ok(a), Ok(b)) => a.dev() == b.dev() && a.ino() == b.ino(),
        _ => false,
    }
}

/// Copies what is not zero, so that a sparse base stays sparse.
fn copy_sparse(base: &Path, image: &mut File, to: &Path) -> Result<()> {
    let mut source = File::open(base).with_context(|| format!("cannot open the base image {}", base.display()))?;
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

/// Prints what was done; true when nothing was lost.
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
        for d in &done.damage {
            println!("damage at byte {}: {}", d.byte, d.reason);
        }
        if done.lost > 0 {
            println!("{} records could not be read; their ranges hold older data", done.lost);
        }
    }
    Ok(done.lost == 0)
}
