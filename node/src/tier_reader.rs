//! Reads a tier that nobody serves: superblock, checkpoints, records. Read-only, and liberal with damage: it is noted
//! with its place and reading goes on, because whoever reads a tier by hand wants all that is left.
//!
//! What counts as the log is decided as a start decides it, as far as the bytes tell (`docs/format.md`): a batch that a
//! later owner wrote over in the log's order is discarded; behind the last batch known to be durable, the first gap
//! ends the log.

use anyhow::{Context, Result, bail};
use forebay_core::format::*;
use forebay_core::types::{Lsn, Term, TierBlock};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Something that is not as it should be.
#[derive(Clone, Debug, Serialize)]
pub struct Damage {
    /// First byte of the structure.
    pub byte: u64,
    /// What is wrong.
    pub reason: String,
}

/// A record with the place of its payload.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The record.
    pub record: Descriptor,
    /// Tier block of its payload, for a record that has one.
    pub payload: Option<TierBlock>,
    /// The batch that holds it; none on a memory tier.
    pub sequence: Option<u64>,
}

/// Everything that was read.
#[derive(Debug)]
pub struct TierContent {
    /// Block 0.
    pub superblock: Superblock,
    /// Valid checkpoints, newest first.
    pub checkpoints: Vec<Checkpoint>,
    /// Records of the log in log order, each position once.
    pub records: Vec<Found>,
    /// Records that were read and are not of the log: left by an earlier life of a segment, or discarded by a start.
    pub discarded: usize,
    /// Last batch known to have been durable (flash).
    pub synced_through: u64,
    /// What is not as it should be.
    pub damage: Vec<Damage>,
}

/// An open tier.
pub struct TierReader {
    file: File,
    path: PathBuf,
    blocks: u32,
}

impl TierReader {
    /// Opens for reading only.
    pub fn open(path: &Path) -> Result<TierReader> {
        use std::io::{Seek, SeekFrom};
        let mut file = File::open(path).with_context(|| format!("cannot open the tier {}", path.display()))?;
        let length = file.seek(SeekFrom::End(0)).with_context(|| format!("cannot read the size of {}", path.display()))?;
        let blocks = u32::try_from(length / TIER_BLOCK_BYTES as u64).unwrap_or(u32::MAX);
        Ok(TierReader { file, path: path.to_owned(), blocks })
    }

    /// Reads whole blocks; what lies behind the end of the file, or cannot be read, is zeros and damage.
    pub fn read(&self, at: TierBlock, blocks: u32, damage: &mut Vec<Damage>) -> Vec<u8> {
        let start = u64::from(at.0) * TIER_BLOCK_BYTES as u64;
        let mut bytes = vec![0u8; blocks as usize * TIER_BLOCK_BYTES];
        if self.file.read_exact_at(&mut bytes, start).is_ok() {
            return bytes;
        }
        for (i, block) in bytes.chunks_exact_mut(TIER_BLOCK_BYTES).enumerate() {
            let byte = start + (i * TIER_BLOCK_BYTES) as u64;
            if let Err(error) = self.file.read_exact_at(block, byte) {
                block.fill(0);
                let reason = match error.kind() {
                    std::io::ErrorKind::UnexpectedEof => "the tier ends before this block".to_owned(),
                    _ => format!("cannot be read: {error}"),
                };
                damage.push(Damage { byte, reason });
                if error.kind() == std::io::ErrorKind::UnexpectedEof {
                    break;
                }
            }
        }
        bytes
    }

    /// Identity and layout; without them nothing else can be found.
    pub fn superblock(&self) -> Result<Superblock> {
        let mut damage = Vec::new();
        let block = self.read(TierBlock(0), 1, &mut damage);
        if let Some(damage) = damage.first() {
            bail!("cannot read the superblock of {}: {}", self.path.display(), damage.reason);
        }
        match Superblock::decode(&block) {
            Ok(superblock) => Ok(superblock),
            Err(reason) => bail!("{} cannot be read as a tier: {reason}", self.path.display()),
        }
    }

    /// The valid checkpoints, newest first.
    pub fn checkpoints(&self, superblock: &Superblock, damage: &mut Vec<Damage>) -> Vec<Checkpoint> {
        let mut found = Vec::new();
        for place in [TierBlock(1), TierBlock(2)] {
            let block = self.read(place, 1, damage);
            match Checkpoint::decode(&superblock.volume, place, &block) {
                Ok(checkpoint) => found.push(checkpoint),
                // A young tier has written only one of the two.
                Err(_) if block.iter().all(|&b| b == 0) => {}
                Err(reason) => damage.push(Damage { byte: byte_of(place), reason: reason.to_owned() }),
            }
        }
        found.sort_by_key(|c| std::cmp::Reverse(c.sequence));
        found
    }

    /// Everything.
    pub fn content(&self) -> Result<TierContent> {
        let superblock = self.superblock()?;
        let mut damage = Vec::new();
        if self.blocks < superblock.layout.tier_blocks {
            damage.push(Damage {
                byte: u64::from(self.blocks) * TIER_BLOCK_BYTES as u64,
                reason: format!(
                    "the tier was made with {} blocks and ends after {}",
                    superblock.layout.tier_blocks, self.blocks
                ),
            });
        }
        let checkpoints = self.checkpoints(&superblock, &mut damage);
        let mut content = TierContent {
            superblock,
            checkpoints,
            records: Vec::new(),
            discarded: 0,
            synced_through: 0,
            damage,
        };
        match content.superblock.layout.kind {
            TierKind::Memory => self.read_table(&mut content),
            TierKind::Flash => self.read_segments(&mut content),
        }
        Ok(content)
    }

    fn read_table(&self, content: &mut TierContent) {
        let layout = content.superblock.layout;
        let mut found = Vec::new();
        for table_block in 0..layout.table_blocks {
            let at = TierBlock(layout.table_first + table_block);
            let block = self.read(at, 1, &mut content.damage);
            for (i, bytes) in block.chunks_exact(DESCRIPTOR_BYTES).enumerate() {
                let index = table_block * DESCRIPTORS_PER_BLOCK + i as u32;
                match Descriptor::decode(&content.superblock.volume, u64::from(index), bytes) {
                    Ok(None) => {}
                    Ok(Some(record)) => {
                        let payload = (index < layout.payload_blocks).then(|| TierBlock(layout.payload_first + index));
                        found.push(Found { record, payload, sequence: None });
                    }
                    Err(reason) => content.damage.push(Damage {
                        byte: byte_of(at) + (i * DESCRIPTOR_BYTES) as u64,
                        reason: reason.to_owned(),
                    }),
                }
            }
        }
        content.discarded = keep_log_order(&mut found);
        content.records = found;
    }

    fn read_segments(&self, content: &mut TierContent) {
        let layout = content.superblock.layout;
        let volume = content.superblock.volume;
        let mut batches: Vec<(TierBlock, Batch)> = Vec::new();
        for segment in 0..layout.segments() {
            let first = layout.payload_first + segment * layout.segment_blocks;
            let end = (first + layout.segment_blocks).min(self.blocks);
            let bodies_end = (first + layout.segment_blocks - layout.summary_blocks).min(self.blocks);
            self.read_segment(&volume, TierBlock(first), bodies_end, &mut batches, &mut content.damage);
            let at = TierBlock(first + layout.segment_blocks - layout.summary_blocks);
            if end == first + layout.segment_blocks {
                let bytes = self.read(at, layout.summary_blocks, &mut content.damage);
                let written = bytes[..TIER_BLOCK_BYTES].iter().any(|&b| b != 0);
                if written && let Err(reason) = Summary::decode(&volume, at, &bytes) {
                    content.damage.push(Damage { byte: byte_of(at), reason: reason.to_owned() });
                }
            }
        }
        content.synced_through = batches
            .iter()
            .map(|(_, batch)| batch.synced_through)
            .chain(content.checkpoints.iter().map(|c| c.batches_synced))
            .max()
            .unwrap_or(0);
        let total: usize = batches.iter().map(|(_, b)| b.records.len()).sum();
        let log = keep_log_batches(batches, content.synced_through, &mut content.damage);
        let mut found = Vec::new();
        for (place, batch) in &log {
            let mut payload = place.0 + 1;
            for &record in &batch.records {
                let at = record.has_payload().then(|| {
                    payload += 1;
                    TierBlock(payload - 1)
                });
                found.push(Found { record, payload: at, sequence: Some(batch.sequence) });
            }
        }
        keep_log_order(&mut found);
        content.discarded = total - found.len();
        content.records = found;
    }

    /// Batches of one segment, one behind the other; those of an earlier life of the segment are left out. Where a
    /// header is damaged the next valid one is looked for: a header is bound to its place, so no payload passes for one.
    fn read_segment(
        &self,
        volume: &[u8; 16],
        first: TierBlock,
        end: u32,
        batches: &mut Vec<(TierBlock, Batch)>,
        damage: &mut Vec<Damage>,
    ) {
        if first.0 >= end {
            return;
        }
        let bytes = self.read(first, end - first.0, damage);
        let block = |at: u32| {
            let start = (at - first.0) as usize * TIER_BLOCK_BYTES;
            &bytes[start..start + TIER_BLOCK_BYTES]
        };
        let mut at = first.0;
        let mut before: Option<(u64, u64)> = None;
        while at < end {
            let follows = |batch: &Batch| match before {
                None => true,
                Some((life, sequence)) => batch.segment == life && batch.sequence > sequence,
            };
            let decoded = Batch::decode(volume, TierBlock(at), block(at));
            match decoded {
                Ok(batch) if follows(&batch) => {
                    before = Some((batch.segment, batch.sequence));
                    let next = at + 1 + batch.payload_blocks();
                    batches.push((TierBlock(at), batch));
                    at = next;
                }
                // An earlier life's: all behind it is as old, or older.
                Ok(_) => break,
                Err(reason) => {
                    // A batch has at most so many payload blocks: this header hides none that is further away.
                    let reach = end.min(at + 2 + BATCH_DESCRIPTORS_MAX as u32);
                    let next = (at + 1..reach)
                        .find(|&n| Batch::decode(volume, TierBlock(n), block(n)).is_ok_and(|batch| follows(&batch)));
                    if next.is_some() || (before.is_none() && block(at).iter().any(|&b| b != 0)) {
                        damage.push(Damage { byte: byte_of(TierBlock(at)), reason: reason.to_owned() });
                    }
                    match next {
                        Some(next) => at = next,
                        None => break,
                    }
                }
            }
        }
    }

    /// A record's payload, verified.
    pub fn payload(&self, volume: &[u8; 16], found: &Found) -> std::result::Result<Vec<u8>, Damage> {
        let at = found.payload.expect("asked only of records with a payload");
        let mut damage = Vec::new();
        let bytes = self.read(at, 1, &mut damage);
        if let Some(damage) = damage.pop() {
            return Err(damage);
        }
        let Kind::Data { mask, checksum } = found.record.kind else {
            unreachable!("only data records have a payload");
        };
        if payload_checksum(volume, found.record.block, mask, found.record.term, &bytes) != checksum {
            let reason = format!("payload of log position {}: checksum mismatch", found.record.lsn);
            return Err(Damage { byte: byte_of(at), reason });
        }
        Ok(bytes)
    }
}

/// First byte of a tier block.
pub fn byte_of(block: TierBlock) -> u64 {
    u64::from(block.0) * TIER_BLOCK_BYTES as u64
}

/// Drops batches that are not of the log: of a number that a later owner gave out again, and those behind the first
/// gap after `synced_through`. A gap below it is damage.
fn keep_log_batches(
    mut batches: Vec<(TierBlock, Batch)>,
    synced_through: u64,
    damage: &mut Vec<Damage>,
) -> Vec<(TierBlock, Batch)> {
    batches.sort_by_key(|(_, b)| (b.sequence, b.term, b.segment));
    // A start discards what it does not find valid, and numbers on from there: from its first number on, everything of
    // earlier terms had been discarded.
    let mut first_of_term: BTreeMap<Term, u64> = BTreeMap::new();
    for (_, batch) in &batches {
        first_of_term.entry(batch.term).and_modify(|s| *s = (*s).min(batch.sequence)).or_insert(batch.sequence);
    }
    batches.retain(|(_, b)| {
        first_of_term.range((std::ops::Bound::Excluded(b.term), std::ops::Bound::Unbounded)).all(|(_, &s)| b.sequence < s)
    });
    let mut log: Vec<(TierBlock, Batch)> = Vec::with_capacity(batches.len());
    for (place, batch) in batches {
        if let Some((_, before)) = log.last()
            && batch.sequence > before.sequence + 1
        {
            // Segments that were freed leave gaps too, so a gap below is only damage when records are missing; which
            // of the two it is, the watermarks of the records tell, not this list.
            if before.sequence >= synced_through {
                damage.push(Damage {
                    byte: byte_of(place),
                    reason: format!(
                        "the log ends with batch {}: the next one found is {}, and nothing behind a gap was promised",
                        before.sequence, batch.sequence
                    ),
                });
                break;
            }
        }
        log.push((place, batch));
    }
    log
}

/// Log order, each position and block once: a record that was moved within the tier is there twice. Returns how many
/// were dropped.
fn keep_log_order(found: &mut Vec<Found>) -> usize {
    let before = found.len();
    // The later copy is kept: the earlier one's segment may be on its way to be freed.
    found.sort_by_key(|f| (f.record.lsn, f.record.block, std::cmp::Reverse(f.sequence)));
    let mut seen: BTreeSet<(Lsn, u64)> = BTreeSet::new();
    found.retain(|f| seen.insert((f.record.lsn, f.record.block.0)));
    before - found.len()
}

impl TierContent {
    /// Everything up to here is in the backing.
    pub fn destaged(&self) -> Lsn {
        self.checkpoints.first().map_or(Lsn(0), |c| c.destaged)
    }

    /// Size of the volume.
    pub fn size_bytes(&self) -> u64 {
        self.checkpoints.first().map_or(self.superblock.size_bytes, |c| c.size_bytes)
    }

    /// Name of the volume.
    pub fn name(&self) -> String {
        let end = self.superblock.name.iter().position(|&b| b == 0).unwrap_or(self.superblock.name.len());
        String::from_utf8_lossy(&self.superblock.name[..end]).into_owned()
    }
}
