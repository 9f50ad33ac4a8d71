//! Reads a tier that nobody serves: superblock, checkpoints, records. Read-only, and liberal with damage: it is noted
//! with its place and reading goes on, because whoever reads a tier by hand wants all that is left.
//!
//! What counts as the log is decided where a start has it decided ([`forebay_core::log`]). A start refuses a tier that lacks what
//! was durable once; here that is a remark.

use anyhow::{Context, Result, bail};
use forebay_core::format::*;
use forebay_core::log::{self, FoundBatch, FoundBatches, Retention, Witness};
use forebay_core::types::{Lsn, SectorMask, Term, TierBlock};
use forebay_io::folder::Held;
use forebay_io::lock;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Something that is not as it should be.
#[derive(Clone, Debug, Serialize)]
pub struct Damage {
    /// First byte of the structure.
    pub byte: u64,
    /// What is wrong with it, in words.
    pub reason: String,
}

/// A record with the place of its payload.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The record as it is in the log.
    pub record: Descriptor,
    /// Tier block of its payload, for a record that has one.
    pub payload: Option<TierBlock>,
    /// The batch that holds it; none on a memory tier.
    pub sequence: Option<u64>,
    /// Newer records cover all of it: its slot may be in use for something else already.
    pub superseded: bool,
}

/// Everything that was read.
#[derive(Debug)]
pub struct TierContent {
    /// The first block of the tier, which says how the rest is laid out.
    pub superblock: Superblock,
    /// Valid checkpoints, newest first.
    pub checkpoints: Vec<Checkpoint>,
    /// Records of the log in log order, each position once.
    pub records: Vec<Found>,
    /// Records that were read and are not of the log: left by an earlier life of a segment, or discarded by a start.
    pub discarded: usize,
    /// Last batch known to have been durable (flash).
    pub synced_through: u64,
    /// The tier is shorter than it was made.
    pub cut_off: bool,
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
        let held = Held::of(path).with_context(|| format!("cannot open the tier {}", path.display()))?;
        TierReader::of(&held)
    }

    /// The same of what is held.
    pub fn of(held: &Held) -> Result<TierReader> {
        use std::io::{Seek, SeekFrom};
        let path = held.path();
        let mut file = held.open(false, 0).with_context(|| format!("cannot open the tier {}", path.display()))?;
        let length =
            file.seek(SeekFrom::End(0)).with_context(|| format!("cannot read the size of {}", path.display()))?;
        let blocks = u32::try_from(length / TIER_BLOCK_BYTES as u64).unwrap_or(u32::MAX);
        Ok(TierReader { file, path: path.to_owned(), blocks })
    }

    /// Who serves from the tier now: what is read then is a moving log, and no two readings are of the same moment.
    pub fn in_use_by(&self) -> Option<String> {
        lock::holder(&self.file).ok().flatten().map(|holder| holder.to_string())
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
        if self.blocks == 0 && self.file.metadata().is_ok_and(|data| data.is_file()) {
            bail!("{} is no tier: it is shorter than one block of {TIER_BLOCK_BYTES} bytes", self.path.display());
        }
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
            match Checkpoint::decode(superblock.version, &superblock.volume, place, &block) {
                Ok(checkpoint) => found.push(checkpoint),
                // A young tier has written only one of the two.
                Err(_) if block.iter().all(|&b| b == 0) => {}
                Err(reason) => damage.push(Damage { byte: byte_of(place), reason: reason.to_owned() }),
            }
        }
        found.sort_by_key(|c| std::cmp::Reverse(c.sequence));
        found
    }

    /// Reads everything that is on the tier; an error only where its superblock cannot be read.
    pub fn content(&self) -> Result<TierContent> {
        let superblock = self.superblock()?;
        let mut damage = Vec::new();
        let cut_off = self.blocks < superblock.layout.tier_blocks;
        if cut_off {
            damage.push(Damage {
                byte: u64::from(self.blocks) * TIER_BLOCK_BYTES as u64,
                reason: format!(
                    "the tier was made with {} blocks and ends after {}",
                    superblock.layout.tier_blocks, self.blocks
                ),
            });
        }
        let checkpoints = self.checkpoints(&superblock, &mut damage);
        if checkpoints.is_empty() {
            let reason = "neither checkpoint is valid: nothing says what the backing has, and a start refuses the tier"
                .to_owned();
            damage.push(Damage { byte: byte_of(TierBlock(1)), reason });
        }
        let mut content = TierContent {
            superblock,
            checkpoints,
            records: Vec::new(),
            discarded: 0,
            synced_through: 0,
            cut_off,
            damage,
        };
        match content.superblock.layout.kind {
            TierKind::Memory => self.read_table(&mut content),
            TierKind::Flash => self.read_segments(&mut content),
        }
        mark_superseded(&mut content.records);
        Ok(content)
    }

    fn read_table(&self, content: &mut TierContent) {
        let layout = content.superblock.layout;
        let mut found = Vec::new();
        // That the tier is cut off is noted once: a superblock may claim any length, and what is not there costs nothing.
        let there = self.blocks.saturating_sub(layout.table_first).min(layout.table_blocks);
        for table_block in 0..there {
            let at = TierBlock(layout.table_first + table_block);
            let block = self.read(at, 1, &mut content.damage);
            for (i, bytes) in block.chunks_exact(DESCRIPTOR_BYTES).enumerate() {
                let index = table_block * DESCRIPTORS_PER_BLOCK + i as u32;
                if index >= log::table_entries(&layout) {
                    break;
                }
                match Descriptor::decode(&content.superblock.volume, u64::from(index), bytes) {
                    Ok(None) => {}
                    Ok(Some(record)) => {
                        let payload = (index < layout.payload_blocks).then(|| TierBlock(layout.payload_first + index));
                        found.push(Found { record, payload, sequence: None, superseded: false });
                    }
                    Err(reason) => content
                        .damage
                        .push(Damage { byte: byte_of(at) + (i * DESCRIPTOR_BYTES) as u64, reason: reason.to_owned() }),
                }
            }
        }
        let read = found.len();
        log::once_in_log_order(&mut found, |found| (found.record.lsn, 0));
        content.discarded = read - found.len();
        content.records = found;
    }

    fn read_segments(&self, content: &mut TierContent) {
        let layout = content.superblock.layout;
        let checkpointed = content.checkpoints.first().map(|checkpoint| checkpoint.batches_synced);
        let mut segments = FoundBatches { synced: checkpointed.unwrap_or(0), ..FoundBatches::default() };
        for segment in 0..layout.segments() {
            self.read_segment(segment, checkpointed.unwrap_or(0), &mut segments, content);
        }
        match checkpointed {
            Some(checkpointed) => {
                if let Some(reason) = segments.damage(checkpointed) {
                    let byte = byte_of(TierBlock(layout.payload_first));
                    content.damage.push(Damage { byte, reason: format!("somewhere in the segments: {reason}") });
                }
                if segments.goes_on_behind() {
                    let byte = byte_of(TierBlock(layout.payload_first));
                    let reason = "the log goes on behind a header in the segments that is damaged".to_owned();
                    content.damage.push(Damage { byte, reason });
                }
            }
            // Nothing says where the log begins: with what is left of it.
            None => segments.on_synced(segments.batches.keys().next().map_or(0, |first| first.saturating_sub(1))),
        }
        content.synced_through = segments.synced;
        let read =
            segments.batches.values().chain(&segments.cut_off).map(|found| found.batch.records.len()).sum::<usize>()
                + segments.sealed.values().map(|summary| summary.records.len()).sum::<usize>();
        let mut found: Vec<Found> = Vec::new();
        for (segment, summary) in &segments.sealed {
            let first = layout.payload_first + segment * layout.segment_blocks;
            found.extend(summary.records.iter().map(|&(record, at)| {
                let payload = record.has_payload().then(|| TierBlock(first.saturating_add(at)));
                Found { record, payload, sequence: Some(summary.last_batch), superseded: false }
            }));
        }
        self.take_batches(&segments, checkpointed.unwrap_or(0), &mut found, content);
        log::once_in_log_order(&mut found, |found| (found.record.lsn, found.sequence.unwrap_or(0)));
        content.discarded = read - found.len();
        content.records = found;
    }

    /// The records of the batches that are the log's.
    fn take_batches(
        &self,
        segments: &FoundBatches,
        checkpointed: u64,
        found: &mut Vec<Found>,
        content: &mut TierContent,
    ) {
        let layout = content.superblock.layout;
        let volume = content.superblock.volume;
        let place =
            |found: &FoundBatch| TierBlock(layout.payload_first + found.segment * layout.segment_blocks + found.at);
        for (sequence, batch) in segments.of_the_log(checkpointed) {
            let first = found.len();
            let mut payload = place(batch).0 + 1;
            for &record in &batch.batch.records {
                let at = record.has_payload().then(|| {
                    payload += 1;
                    TierBlock(payload - 1)
                });
                found.push(Found { record, payload: at, sequence: Some(sequence), superseded: false });
            }
            // Behind what is known to be durable a batch may have landed in part: the log ends before it.
            let torn = |f: &Found| f.payload.is_some() && self.payload(&volume, f).is_err();
            if sequence > segments.synced && found[first..].iter().any(torn) {
                found.truncate(first);
                let reason = format!("the log ends before batch {sequence}, which has landed in part only");
                content.damage.push(Damage { byte: byte_of(place(batch)), reason });
                return;
            }
        }
        let Some(end) = segments.end() else { return };
        if let Some((&next, batch)) = segments.batches.range(end..).next() {
            let reason = if next == end {
                format!("the log ends before batch {end}, which is of a start that was cut off there")
            } else {
                format!(
                    "the log ends before batch {end}, which is missing: the next one found is {next}, and nothing behind a gap was promised"
                )
            };
            content.damage.push(Damage { byte: byte_of(place(batch)), reason });
        }
    }

    /// What one segment shows.
    fn read_segment(&self, segment: u32, checkpointed: u64, segments: &mut FoundBatches, content: &mut TierContent) {
        let layout = content.superblock.layout;
        let volume = content.superblock.volume;
        let first = layout.payload_first + segment * layout.segment_blocks;
        let summary_at = TierBlock(first + layout.segment_blocks - layout.summary_blocks);
        let end = summary_at.0.min(self.blocks);
        if first >= end {
            return;
        }
        let bytes = self.read(TierBlock(first), end - first, &mut content.damage);
        let mut summary = None;
        if summary_at.0 + layout.summary_blocks <= self.blocks {
            let bytes = self.read(summary_at, layout.summary_blocks, &mut content.damage);
            match Summary::decode(&volume, summary_at, &bytes) {
                Ok(found) => summary = Some(found),
                Err(_) if bytes[..TIER_BLOCK_BYTES].iter().all(|&b| b == 0) => {}
                Err(reason) => content.damage.push(Damage { byte: byte_of(summary_at), reason: reason.to_owned() }),
            }
        }
        let head = &bytes[..TIER_BLOCK_BYTES];
        if head.iter().all(|&b| b == 0) {
            // Never used, or erased to be used again: what may follow is of an earlier life.
            return;
        }
        let life = Batch::decode(&volume, TierBlock(first), head).ok().map(|batch| batch.segment);
        let headers = Headers { volume, first: TierBlock(first), bytes: &bytes };
        match log::witness(life, summary, checkpointed) {
            Witness::Summary(summary) => segments.seal(segment, summary),
            Witness::SummaryAndSearch(summary) if !headers.show_a_life_after(summary.segment) => {
                segments.seal(segment, summary);
                headers.take_marks(1, segments);
            }
            Witness::SummaryAndSearch(_) | Witness::Headers | Witness::Search => {
                headers.walk(segment, segments, &mut content.damage);
            }
        }
    }

    /// The payload of a record that has one; damage where it cannot be read, or does not match its checksum.
    pub fn payload(&self, volume: &[u8; 16], found: &Found) -> std::result::Result<Vec<u8>, Damage> {
        let at = found.payload.expect("asked only of records with a payload");
        let mut damage = Vec::new();
        let bytes = self.read(at, 1, &mut damage);
        if let Some(damage) = damage.pop() {
            return Err(damage);
        }
        // Of a memory tier the slot's number says that there is one, whatever the entry says.
        let Kind::Data { mask, checksum } = found.record.kind else {
            let reason = format!("log position {} has a place for a payload, and is no data", found.record.lsn);
            return Err(Damage { byte: byte_of(at), reason });
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

/// The blocks of one segment before its summary.
struct Headers<'a> {
    volume: [u8; 16],
    first: TierBlock,
    bytes: &'a [u8],
}

impl Headers<'_> {
    fn batch(&self, at: u32) -> std::result::Result<Batch, &'static str> {
        let start = at as usize * TIER_BLOCK_BYTES;
        Batch::decode(&self.volume, TierBlock(self.first.0 + at), &self.bytes[start..start + TIER_BLOCK_BYTES])
    }

    /// One batch behind the other; those of an earlier life of the segment are left out. Where a header is damaged the next valid
    /// one is looked for: a header is bound to its place, so no payload passes for one.
    fn walk(&self, segment: u32, segments: &mut FoundBatches, damage: &mut Vec<Damage>) {
        let end = (self.bytes.len() / TIER_BLOCK_BYTES) as u32;
        let mut before: Option<(u64, u64)> = None;
        let mut at = 0;
        while at < end {
            let follows = |batch: &Batch| match before {
                None => true,
                Some((life, sequence)) => batch.segment == life && batch.sequence > sequence,
            };
            match self.batch(at) {
                Ok(batch) if follows(&batch) => {
                    before = Some((batch.segment, batch.sequence));
                    let next = at + 1 + batch.payload_blocks();
                    segments.lives.insert(segment, batch.segment);
                    segments.on_synced(batch.synced_through);
                    segments.add(FoundBatch { segment, at, batch });
                    at = next;
                }
                // An earlier life's: all behind it is as old, or older.
                Ok(_) => return self.take_marks(at, segments),
                Err(reason) => {
                    // A batch has at most so many payload blocks: this header hides none that is further away.
                    let reach = end.min(at + 2 + BATCH_DESCRIPTORS_MAX as u32);
                    let next = (at + 1..reach).find(|&next| self.batch(next).is_ok_and(|batch| follows(&batch)));
                    if next.is_some() || before.is_none() {
                        let byte = byte_of(TierBlock(self.first.0 + at));
                        damage.push(Damage { byte, reason: reason.to_owned() });
                    }
                    match next {
                        Some(next) => at = next,
                        None => return self.take_marks(at + 1, segments),
                    }
                }
            }
        }
    }

    /// Behind the first header there are batches of a later life than this one.
    fn show_a_life_after(&self, life: u64) -> bool {
        let end = (self.bytes.len() / TIER_BLOCK_BYTES) as u32;
        (1..end).filter_map(|at| self.batch(at).ok()).any(|batch| batch.segment > life)
    }

    /// No walk leads here. What headers say of durable batches is true all the same, whatever life they are of (R4, R5).
    fn take_marks(&self, from: u32, segments: &mut FoundBatches) {
        let end = (self.bytes.len() / TIER_BLOCK_BYTES) as u32;
        for batch in (from..end).filter_map(|at| self.batch(at).ok()) {
            segments.on_synced(batch.synced_through);
            segments.behind.insert((batch.sequence, batch.start));
        }
    }
}

/// Walks from the newest record to the oldest and marks those that are covered.
fn mark_superseded(records: &mut [Found]) {
    let mut sectors: HashMap<u64, SectorMask> = HashMap::new();
    // Whole blocks made zero: start and end of ranges that do not touch.
    let mut zeroed: BTreeMap<u64, u64> = BTreeMap::new();
    for found in records.iter_mut().rev() {
        let block = found.record.block.0;
        let last_before = |zeroed: &BTreeMap<u64, u64>, at: u64| zeroed.range(..=at).next_back().map(|(&s, &e)| (s, e));
        match found.record.kind {
            Kind::Data { mask, .. } | Kind::ZeroSectors { mask } => {
                let covered = sectors.entry(block).or_default();
                let in_zeroed = last_before(&zeroed, block).is_some_and(|(_, end)| block < end);
                found.superseded = in_zeroed || mask.without(*covered).is_empty();
                *covered = covered.or(mask);
            }
            Kind::ZeroBlocks { blocks, .. } => {
                let (mut start, mut end) = (block, block + u64::from(blocks));
                found.superseded = last_before(&zeroed, start).is_some_and(|(_, known)| end <= known);
                while let Some((s, e)) = last_before(&zeroed, end)
                    && e >= start
                {
                    zeroed.remove(&s);
                    (start, end) = (start.min(s), end.max(e));
                }
                zeroed.insert(start, end);
            }
        }
    }
}

impl TierContent {
    /// Everything up to here is in the backing.
    pub fn destaged(&self) -> Lsn {
        self.checkpoints.first().map_or(Lsn(0), |c| c.destaged)
    }

    /// What one of several tiers keeps of its records; none: one node has the volume to itself.
    pub fn kept(&self) -> Option<Retention> {
        let standing = self.checkpoints.first()?.standing.as_ref().filter(|standing| standing.is_possible())?;
        Some(Retention::of(standing, self.records.iter().map(|found| &found.record)))
    }

    /// For each record: the backing has it, and no former owner can have taken that back.
    pub fn is_in_backing(&self, kept: Option<&Retention>) -> Vec<bool> {
        let descriptors: Vec<Descriptor> = self.records.iter().map(|found| found.record).collect();
        log::goes_on(&descriptors, self.destaged(), kept).into_iter().map(|goes_on| !goes_on).collect()
    }

    /// Number of the tier's last owner; 0 if no checkpoint is valid.
    pub fn term(&self) -> Term {
        self.checkpoints.first().map_or(Term(0), |c| c.term)
    }

    /// Size of the volume in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.checkpoints.first().map_or(self.superblock.size_bytes, |c| c.size_bytes)
    }

    /// Name of the volume.
    pub fn name(&self) -> String {
        let end = self.superblock.name.iter().position(|&b| b == 0).unwrap_or(self.superblock.name.len());
        String::from_utf8_lossy(&self.superblock.name[..end]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::types::{BlockIndex, Group, SectorMask, Start};

    const VOLUME: [u8; 16] = [7; 16];
    const TERM: Term = Term(1);

    /// A flash tier in a file, built batch by batch.
    struct Built {
        dir: tempfile::TempDir,
        layout: TierLayout,
        bytes: Vec<u8>,
    }

    fn payload(lsn: u64) -> Vec<u8> {
        (0..TIER_BLOCK_BYTES).map(|i| (lsn as usize * 31 + i) as u8).collect()
    }

    fn data(lsn: u64, block: u64) -> Descriptor {
        let checksum = payload_checksum(&VOLUME, BlockIndex(block), SectorMask::FULL, TERM, &payload(lsn));
        let kind = Kind::Data { mask: SectorMask::FULL, checksum };
        Descriptor { lsn: Lsn(lsn), block: BlockIndex(block), group: Group(1), term: TERM, kind }
    }

    impl Built {
        fn new() -> Built {
            let layout = TierLayout::flash(2048).unwrap();
            let mut name = [0; 64];
            name[..3].copy_from_slice(b"vm1");
            let superblock = Superblock {
                version: Version::Two,
                tier: 1,
                volume: VOLUME,
                name,
                size_bytes: 1 << 20,
                created_unix_s: 1,
                layout,
            };
            let mut built = Built {
                dir: tempfile::tempdir().unwrap(),
                layout,
                bytes: vec![0; layout.tier_blocks as usize * TIER_BLOCK_BYTES],
            };
            built.put(0, &superblock.encode());
            let checkpoint =
                Checkpoint { sequence: 1, start: Start(1), term: TERM, size_bytes: 1 << 20, ..Checkpoint::default() };
            built.put(1, &checkpoint.encode(Version::Two, &VOLUME));
            built
        }

        fn put(&mut self, block: u32, bytes: &[u8]) {
            let at = block as usize * TIER_BLOCK_BYTES;
            self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        }

        /// Puts a batch at a place in segment 0; returns the place behind it.
        fn batch(
            &mut self,
            at: u32,
            life: u64,
            sequence: u64,
            synced_through: u64,
            start: u32,
            records: &[(u64, u64)],
        ) -> u32 {
            let place = self.layout.payload_first + at;
            let records: Vec<Descriptor> = records.iter().map(|&(lsn, block)| data(lsn, block)).collect();
            for (i, record) in records.iter().enumerate() {
                self.put(place + 1 + i as u32, &payload(record.lsn.0));
            }
            let count = records.len() as u32;
            let batch = Batch { segment: life, sequence, synced_through, start: Start(start), records };
            let bytes = batch.encode(&VOLUME, TierBlock(place));
            self.put(place, &bytes);
            at + 1 + count
        }

        fn flip(&mut self, at: u32) {
            let byte = (self.layout.payload_first + at) as usize * TIER_BLOCK_BYTES + 100;
            self.bytes[byte] ^= 1;
        }

        fn path(&self) -> PathBuf {
            let path = self.dir.path().join("tier");
            std::fs::write(&path, &self.bytes).unwrap();
            path
        }

        fn read(&self) -> TierContent {
            TierReader::open(&self.path()).unwrap().content().unwrap()
        }
    }

    fn lsns(content: &TierContent) -> Vec<u64> {
        content.records.iter().map(|f| f.record.lsn.0).collect()
    }

    /// A former owner may have written block 5 of the image once more: what the tier says of it counts. Of block 6 the image
    /// may have newer content.
    #[test]
    fn what_is_pinned_is_salvaged_though_the_backing_had_it() {
        use forebay_core::cluster::{Mark, Part, Pin};
        let mut tier = Built::new();
        tier.batch(0, 1, 1, 0, 1, &[(1, 5), (2, 5), (3, 6), (4, 7)]);
        let image = tier.dir.path().join("image");
        std::fs::write(&image, vec![0xee; 1 << 20]).unwrap();
        // The first record of a group: whole, its window pins the rest of the group as well (W17).
        let whole = Pin { term: TERM, above: Lsn(0), through: Lsn(1), part: Part::default() };
        let one_block = Pin { part: Part { block: BlockIndex(5), blocks: 1 }, ..whole };
        let (second, third) = (payload(2)[0], payload(3)[0]);
        for (pins, expected) in
            [(vec![], [0xee, 0xee]), (vec![one_block], [second, 0xee]), (vec![whole], [second, third])]
        {
            let mark = Mark { watermark: Lsn(3), through: Lsn(3), pins, ..Mark::default() };
            let checkpoint = Checkpoint {
                sequence: 3,
                start: Start(1),
                term: TERM,
                destaged: Lsn(3),
                size_bytes: 1 << 20,
                standing: Some(Standing { committed: Lsn(4), mark, ..Standing::default() }),
                ..Checkpoint::default()
            };
            tier.put(1, &checkpoint.encode(Version::Two, &VOLUME));
            let to = tier.dir.path().join("salvaged");
            crate::salvage::run(&tier.path(), &to, Some(&image)).unwrap();
            let found = std::fs::read(&to).unwrap();
            std::fs::remove_file(&to).unwrap();
            let byte_of = |block: usize| found[block * TIER_BLOCK_BYTES];
            assert_eq!([byte_of(5), byte_of(6)], expected);
            assert_eq!(byte_of(7), payload(4)[0], "the backing never had it");
        }
    }

    #[test]
    fn log_is_read_in_order_with_its_payloads() {
        let mut tier = Built::new();
        let at = tier.batch(0, 1, 1, 0, 1, &[(1, 5), (2, 6)]);
        tier.batch(at, 1, 2, 1, 1, &[(3, 5)]);
        let content = tier.read();
        assert_eq!(lsns(&content), [1, 2, 3]);
        assert_eq!(content.name(), "vm1");
        assert!(content.damage.is_empty(), "{:?}", content.damage);
        let reader = TierReader::open(&tier.path()).unwrap();
        for found in &content.records {
            assert_eq!(reader.payload(&VOLUME, found).unwrap(), payload(found.record.lsn.0));
        }
    }

    /// Found by fuzzing: each block that the superblock claimed was looked for, some hundred million of them.
    #[test]
    fn a_superblock_that_claims_more_than_there_is_costs_neither_time_nor_memory() {
        for layout in [TierLayout::memory(TIER_BLOCKS_MAX).unwrap(), TierLayout::flash(TIER_BLOCKS_MAX).unwrap()] {
            let mut tier = Built::new();
            let superblock = Superblock {
                version: Version::Two,
                tier: 1,
                volume: VOLUME,
                name: [0; 64],
                size_bytes: 1 << 20,
                created_unix_s: 1,
                layout,
            };
            tier.put(0, &superblock.encode());
            tier.bytes.truncate(16 * TIER_BLOCK_BYTES);
            let content = tier.read();
            assert!(content.cut_off && content.records.is_empty());
            assert!(content.damage.len() <= 20, "{} remarks for 16 blocks", content.damage.len());
        }
    }

    #[test]
    fn the_greatest_batch_number_has_no_successor_and_is_read_like_any_other() {
        let mut tier = Built::new();
        tier.batch(0, 1, u64::MAX, u64::MAX - 1, 1, &[(1, 5)]);
        tier.batch(tier.layout.segment_blocks, 2, u64::MAX, u64::MAX, 2, &[(2, 6)]);
        assert_eq!(lsns(&tier.read()), [2], "of two batches of one number the later start's counts");
    }

    /// A start takes the summary of a segment that is durable for its headers; `salvage` found less than it.
    #[test]
    fn a_segment_whose_first_header_is_damaged_is_read_by_its_summary() {
        let mut tier = Built::new();
        let second = tier.batch(0, 1, 1, 0, 1, &[(1, 5), (2, 6)]);
        tier.batch(second, 1, 2, 1, 1, &[(3, 7)]);
        let records = vec![(data(1, 5), 1), (data(2, 6), 2), (data(3, 7), second + 1)];
        let summary = Summary { segment: 1, first_batch: 1, last_batch: 2, records };
        let at = tier.layout.payload_first + tier.layout.segment_blocks - tier.layout.summary_blocks;
        tier.put(at, &summary.encode(&VOLUME, TierBlock(at), tier.layout.summary_blocks));
        let checkpoint = Checkpoint {
            sequence: 2,
            start: Start(1),
            term: TERM,
            size_bytes: 1 << 20,
            batches_synced: 2,
            ..Checkpoint::default()
        };
        tier.put(2, &checkpoint.encode(Version::Two, &VOLUME));
        tier.flip(0);
        let content = tier.read();
        assert_eq!(lsns(&content), [1, 2, 3]);
        let reader = TierReader::open(&tier.path()).unwrap();
        for found in &content.records {
            assert_eq!(reader.payload(&VOLUME, found).unwrap(), payload(found.record.lsn.0));
        }
    }

    /// A segment that is used again has the summary of its earlier life at its end until it is full.
    #[test]
    fn a_summary_of_an_earlier_life_does_not_stand_for_a_segment_whose_first_header_is_damaged() {
        let mut tier = Built::new();
        let second = tier.batch(0, 9, 3, 2, 1, &[(4, 5)]);
        tier.batch(second, 9, 4, 3, 1, &[(5, 6), (6, 7)]);
        let summary = Summary { segment: 1, first_batch: 1, last_batch: 2, records: Vec::new() };
        let at = tier.layout.payload_first + tier.layout.segment_blocks - tier.layout.summary_blocks;
        tier.put(at, &summary.encode(&VOLUME, TierBlock(at), tier.layout.summary_blocks));
        let checkpoint = Checkpoint {
            sequence: 2,
            start: Start(1),
            term: TERM,
            size_bytes: 1 << 20,
            batches_synced: 2,
            ..Checkpoint::default()
        };
        tier.put(2, &checkpoint.encode(Version::Two, &VOLUME));
        tier.flip(0);
        let content = tier.read();
        assert_eq!(lsns(&content), [5, 6]);
        assert!(!content.damage.is_empty(), "the first header is told of");
    }

    #[test]
    fn a_file_that_is_shorter_than_a_block_is_no_tier() {
        let mut tier = Built::new();
        tier.bytes.truncate(100);
        let error = TierReader::open(&tier.path()).unwrap().content().unwrap_err().to_string();
        assert!(error.contains("is no tier: it is shorter than one block"), "{error}");
    }

    #[test]
    fn records_that_newer_ones_cover_are_marked() {
        let record = |lsn: u64, block: u64, kind: Kind| Found {
            record: Descriptor { lsn: Lsn(lsn), block: BlockIndex(block), group: Group(1), term: TERM, kind },
            payload: None,
            sequence: None,
            superseded: false,
        };
        let data = |mask: u8| Kind::Data { mask: SectorMask(mask), checksum: 0 };
        let zero = |blocks: u32| Kind::ZeroBlocks { blocks, hole: true };
        let mut records = [
            (record(1, 5, data(0x0f)), true),
            (record(2, 5, data(0xf0)), false),
            (record(3, 5, data(0x03)), false),
            (record(4, 5, data(0x0c)), false),
            (record(5, 20, data(0xff)), true),
            (record(6, 21, zero(3)), true),
            (record(7, 23, zero(4)), false),
            (record(8, 19, zero(5)), false),
            (record(9, 30, data(0xff)), false),
        ];
        let mut found: Vec<Found> = records.iter().map(|(f, _)| *f).collect();
        mark_superseded(&mut found);
        for (found, (_, expected)) in found.iter().zip(&mut records) {
            assert_eq!(found.superseded, *expected, "{:?}", found.record.lsn);
        }
    }

    #[test]
    fn damaged_header_is_named_and_what_follows_is_read() {
        let mut tier = Built::new();
        let second = tier.batch(0, 1, 1, 0, 1, &[(1, 5)]);
        let third = tier.batch(second, 1, 2, 1, 1, &[(2, 6), (3, 7)]);
        tier.batch(third, 1, 3, 2, 1, &[(4, 8)]);
        tier.flip(second);
        let content = tier.read();
        assert_eq!(lsns(&content), [1, 4]);
        assert_eq!(content.damage[0].byte, byte_of(TierBlock(tier.layout.payload_first + second)));
    }

    #[test]
    fn torn_tail_ends_the_log_and_damage_below_the_watermark_does_not() {
        let mut tier = Built::new();
        let second = tier.batch(0, 1, 1, 0, 1, &[(1, 5)]);
        let third = tier.batch(second, 1, 2, 1, 1, &[(2, 6)]);
        tier.batch(third, 1, 3, 1, 1, &[(3, 7)]);
        tier.flip(second + 1);
        let content = tier.read();
        assert_eq!(lsns(&content), [1]);
        assert!(content.damage[0].reason.contains("batch 2"), "{:?}", content.damage);

        tier.batch(third, 1, 3, 2, 1, &[(3, 7)]);
        let content = tier.read();
        assert_eq!(lsns(&content), [1, 2, 3]);
        let reader = TierReader::open(&tier.path()).unwrap();
        assert!(reader.payload(&VOLUME, &content.records[1]).is_err());
    }

    #[test]
    fn what_a_later_owner_discarded_or_an_earlier_life_left_is_no_part_of_the_log() {
        let mut tier = Built::new();
        let second = tier.batch(0, 2, 5, 4, 1, &[(11, 1)]);
        tier.batch(second, 1, 3, 2, 1, &[(3, 1)]);
        assert_eq!(lsns(&tier.read()), [11]);

        let mut tier = Built::new();
        let second = tier.batch(0, 1, 1, 0, 1, &[(1, 5)]);
        let third = tier.batch(second, 1, 2, 1, 2, &[(9, 6)]);
        tier.batch(third, 1, 3, 1, 1, &[(3, 7)]);
        assert_eq!(lsns(&tier.read()), [1, 9]);

        // An erased segment holds nothing, whatever lies behind its first block.
        tier.put(tier.layout.payload_first, &[0; TIER_BLOCK_BYTES]);
        assert!(tier.read().records.is_empty());
    }

    #[test]
    fn salvage_writes_the_newest_content_and_leaves_the_base_alone() {
        let mut tier = Built::new();
        let second = tier.batch(0, 1, 1, 0, 1, &[(1, 5), (2, 6)]);
        tier.batch(second, 1, 2, 1, 1, &[(3, 5)]);
        let path = tier.path();
        let base = tier.dir.path().join("base");
        std::fs::write(&base, vec![9u8; 1 << 20]).unwrap();
        let to = tier.dir.path().join("to");
        let done = crate::salvage::run(&path, &to, Some(&base)).unwrap();
        assert_eq!((done.replayed, done.in_base, done.superseded, done.lost), (2, 0, 1, 0));
        let image = std::fs::read(&to).unwrap();
        assert_eq!(image.len(), 1 << 20);
        assert_eq!(image[5 * 4096..6 * 4096], payload(3));
        assert_eq!(image[6 * 4096..7 * 4096], payload(2));
        assert!(image[..5 * 4096].iter().chain(&image[7 * 4096..]).all(|&b| b == 9));
        assert!(std::fs::read(&base).unwrap().iter().all(|&b| b == 9));
        assert_eq!(std::fs::read(&path).unwrap(), tier.bytes);
        // Never over what is there.
        assert!(crate::salvage::run(&path, &to, None).is_err());
        assert!(crate::salvage::run(&path, &path, None).is_err());

        let checkpoint = Checkpoint {
            sequence: 2,
            start: Start(1),
            term: TERM,
            destaged: Lsn(2),
            size_bytes: 1 << 20,
            ..Checkpoint::default()
        };
        tier.put(2, &checkpoint.encode(Version::Two, &VOLUME));
        let again = tier.dir.path().join("again");
        let done = crate::salvage::run(&tier.path(), &again, Some(&base)).unwrap();
        assert_eq!((done.replayed, done.in_base), (1, 2));
    }

    #[test]
    fn memory_tier_is_read_from_its_table() {
        let layout = TierLayout::memory(1024).unwrap();
        let superblock = Superblock {
            version: Version::Two,
            tier: 1,
            volume: VOLUME,
            name: [0; 64],
            size_bytes: 1 << 20,
            created_unix_s: 1,
            layout,
        };
        let mut bytes = vec![0u8; 1024 * TIER_BLOCK_BYTES];
        bytes[..TIER_BLOCK_BYTES].copy_from_slice(&superblock.encode());
        let mut describe = |index: u32, record: &Descriptor| {
            let at = layout.table_first as usize * TIER_BLOCK_BYTES + index as usize * DESCRIPTOR_BYTES;
            bytes[at..at + DESCRIPTOR_BYTES].copy_from_slice(&record.encode(&VOLUME, u64::from(index)));
        };
        describe(4, &data(2, 9));
        describe(200, &data(1, 8));
        let trim = Kind::ZeroBlocks { blocks: 3, hole: true };
        describe(
            layout.payload_blocks,
            &Descriptor { lsn: Lsn(3), block: BlockIndex(40), group: Group(1), term: TERM, kind: trim },
        );
        // No daemon writes that: the slot of a payload, and the entry of what has none.
        describe(5, &Descriptor { lsn: Lsn(4), block: BlockIndex(50), group: Group(1), term: TERM, kind: trim });
        let at = (layout.payload_first + 4) as usize * TIER_BLOCK_BYTES;
        bytes[at..at + TIER_BLOCK_BYTES].copy_from_slice(&payload(2));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tier");
        std::fs::write(&path, &bytes).unwrap();
        let reader = TierReader::open(&path).unwrap();
        let content = reader.content().unwrap();
        assert_eq!(lsns(&content), [1, 2, 3, 4]);
        assert_eq!(reader.payload(&VOLUME, &content.records[1]).unwrap(), payload(2));
        assert!(reader.payload(&VOLUME, &content.records[0]).is_err(), "its payload was never written");
        assert_eq!(content.records[2].payload, None);
        assert!(reader.payload(&VOLUME, &content.records[3]).is_err(), "told as damage");
    }

    #[test]
    fn cut_off_or_foreign_files_are_named_and_never_a_panic() {
        let mut tier = Built::new();
        tier.batch(0, 1, 1, 0, 1, &[(1, 5)]);
        let whole = tier.bytes.clone();
        for length in [0, 100, 4096, 4097, 3 * 4096, 4 * 4096 + 1, whole.len() / 2] {
            tier.bytes = whole[..length].to_vec();
            match TierReader::open(&tier.path()).unwrap().content() {
                Ok(content) => assert!(!content.damage.is_empty(), "{length} bytes"),
                Err(_) => assert!(length < 4096, "{length} bytes"),
            }
        }
        tier.bytes = vec![0x55; 1 << 20];
        let error = format!("{:#}", TierReader::open(&tier.path()).unwrap().content().unwrap_err());
        assert!(error.contains("not a Forebay tier"), "{error}");
    }
}
