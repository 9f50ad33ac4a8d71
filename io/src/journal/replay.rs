//! Brings the batch that a journal was left with into the backing, once, before anything else writes to it.
//!
//! Why the batch with the highest sequence, and no other, and in which order the heads are erased:
//! - A batch is applied only when it is complete, because only a complete one may have begun to reach the backing.
//! - An incomplete batch with a higher sequence changes nothing: it had not been synced, so nothing of it is in the
//!   backing, and the older one is either there whole already (then applying it again changes nothing) or must come.
//! - An older complete batch must never be found alone after the newer one was applied: it would take the backing back.
//!   So its head is erased, and that is synced, before the newer one's is touched; and the newer one's is touched only
//!   when the backing was synced with it.
//! - A complete batch that can be read may still not be on the medium. It is written again, as it is, and synced before
//!   a part of it reaches the backing: else a loss of power could leave a part of it without the rest.
//! - Whatever fails on the way leaves the batch in the journal: the next replay begins from the start, and ends the same.

use super::{Journal, JournalError, byte_of, failed, failed_at, is_newer, open_locked, read_superblock, unusable};
use crate::backing::Backing;
use crate::backing::faulty::{DeviceOperation, Fate};
use crate::buffers::Buffers;
use crate::clock::{now, until};
use crate::file::DeviceFile;
use crate::folder;
use crate::memory::AlignedBuffer;
use crate::operation::{Operation, OperationKind};
use forebay_core::format::{Descriptor, JournalBatch, Kind, TIER_BLOCK_BYTES, payload_checksum};
use forebay_core::types::*;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration as StdDuration;

/// Payload blocks read by one call while a batch is verified.
const VERIFY_BLOCKS: usize = 256;
/// Payload blocks in memory at one time while a batch is applied: sorted by address within them, so that the slow
/// medium is written in one sweep.
const WINDOW_BLOCKS: usize = 8192;
/// Bytes of one write to the backing at most.
const WRITE_BYTES: usize = 1 << 20;
/// Writes to the backing at one time.
const WRITES_IN_FLIGHT: usize = 32;

/// What the newest checkpoint of the volume's tier says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierWord {
    /// Its last owner. A batch of a later one was written beside a newer tier than this: an owner's batches come only
    /// after its term is durable in the tier.
    pub term: Term,
    /// Every record up to here is durable in the backing, so a batch that ends there is done, whatever the journal says.
    pub destaged: Lsn,
}

/// What a replay must know.
#[derive(Clone, Copy, Debug)]
pub struct ReplayRequest {
    /// Whose journal it must be.
    pub volume: [u8; 16],
    /// Size of the volume. Where nobody knows it any more, the backing's.
    pub volume_bytes: u64,
    /// None: the tier is lost.
    pub tier: Option<TierWord>,
    /// How long to wait for requests of an earlier process to the journal.
    pub lock_timeout: StdDuration,
}

/// A batch of which head and payload are whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFound {
    /// Its number among the journal's batches; the newer has the higher.
    pub sequence: u64,
    /// Everything up to here is in the backing once it is applied.
    pub through: Lsn,
    /// Term of the owner that wrote it.
    pub term: Term,
    /// How many records it has.
    pub records: usize,
    /// How many blocks of payload it has.
    pub payload_blocks: u32,
}

/// What lies in one of the two areas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AreaState {
    /// Nothing: never used, or erased.
    Empty,
    /// Something that was not written to its end, or is damaged: not applied.
    Incomplete {
        /// Its number, where the head is whole.
        sequence: Option<u64>,
        /// What is missing or damaged, for people.
        reason: String,
    },
    /// A whole batch, which counts if it is the newest.
    Complete(BatchFound),
}

/// What is to be done, or was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No area holds a complete batch.
    NothingToApply,
    /// The newest complete batch is durable in the backing by the tier's word.
    AlreadyInBacking(BatchFound),
    /// The newest complete batch belongs into the backing.
    Apply(BatchFound),
}

/// What [`inspect`] has found, or [`replay`] has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayReport {
    /// The journal that was looked at.
    pub path: PathBuf,
    /// Identity of the volume that it was written for.
    pub volume: [u8; 16],
    /// Blocks of 4096 bytes in both areas together.
    pub blocks: u32,
    /// What lies in the first area and in the second.
    pub areas: [AreaState; 2],
    /// Which batch counts, and whether it must be applied.
    pub verdict: Verdict,
}

impl ReplayReport {
    /// After a [`replay`]: the backing has every record up to here, durably. A tier that thinks it has less must be
    /// told, before it sends a single group of those again.
    pub fn in_backing_through(&self) -> Option<Lsn> {
        match self.verdict {
            Verdict::NothingToApply => None,
            Verdict::AlreadyInBacking(batch) | Verdict::Apply(batch) => Some(batch.through),
        }
    }
}

/// What a journal holds. Reads only and takes no lock, so what a running daemon is writing looks incomplete.
pub fn inspect(path: &Path) -> Result<ReplayReport, JournalError> {
    let file = folder::open_file(path).map_err(failed("open", path))?;
    let file = DeviceFile::buffered(file, path, "it is only looked at").map_err(failed("look at", path))?;
    let (report, _) = look(&mut JournalReader { file: Arc::new(file), wrappers: None }, None, None)?;
    Ok(report)
}

/// Applies what must be applied, syncs the backing, erases the journal: for an image whose tier is lost, or given up.
/// Blocks until it is done. The backing's lock must be held. On an error the batch is still in the journal, and the
/// backing must not be used before a replay has succeeded.
pub fn replay(path: &Path, request: &ReplayRequest, backing: &mut Backing) -> Result<ReplayReport, JournalError> {
    let replay = Replay::begin(path, *request, backing)?;
    replay.apply(backing)?;
    let report = replay.report().clone();
    replay.erase(backing)?;
    Ok(report)
}

/// Writes the batch of a journal, if it belongs into the image, into a copy of the image. The journal is only read.
pub fn copy_into(path: &Path, request: &ReplayRequest, copy: &mut Backing) -> Result<ReplayReport, JournalError> {
    let file = folder::open_file(path).map_err(failed("open", path))?;
    let file = DeviceFile::buffered(file, path, "it is only read").map_err(failed("look at", path))?;
    let mut journal = JournalReader { file: Arc::new(file), wrappers: Some(copy) };
    let (report, chosen) = look(&mut journal, Some(&request.volume), request.tier)?;
    if let (Verdict::Apply(_), Some(chosen)) = (report.verdict, &chosen) {
        apply(&mut journal, request, chosen)?;
    }
    Ok(report)
}

/// A replay in steps, for a volume whose tier is there: between [`Replay::apply`] and [`Replay::erase`] the tier must
/// have recorded what the backing holds now. Has the journal's lock. Each step blocks; one that has failed may be done
/// again.
#[derive(Debug)]
pub struct Replay {
    file: Arc<DeviceFile>,
    request: ReplayRequest,
    report: ReplayReport,
    chosen: Option<Chosen>,
}

impl Replay {
    /// Looks at the journal, as soon as nobody else has it. The backing's lock must be held.
    pub fn begin(path: &Path, request: ReplayRequest, backing: &mut Backing) -> Result<Replay, JournalError> {
        assert!(backing.locked(), "the backing is written to only under its lock");
        let file = Arc::new(open_locked(path, request.lock_timeout)?);
        let mut journal = JournalReader { file: file.clone(), wrappers: Some(backing) };
        let (report, chosen) = look(&mut journal, Some(&request.volume), request.tier)?;
        Ok(Replay { file, request, report, chosen })
    }

    /// What was found, and what of it counts.
    pub fn report(&self) -> &ReplayReport {
        &self.report
    }

    /// Brings the batch that belongs into the backing there, durably.
    pub fn apply(&self, backing: &mut Backing) -> Result<(), JournalError> {
        let (Verdict::Apply(_), Some(chosen)) = (self.report.verdict, &self.chosen) else { return Ok(()) };
        let mut journal = JournalReader { file: self.file.clone(), wrappers: Some(backing) };
        check_bounds(&mut journal, self.request.volume_bytes, &chosen.batch)?;
        make_durable(&mut journal, chosen)?;
        apply(&mut journal, &self.request, chosen)
    }

    /// Erases the journal and opens it for new batches. The backing has what was in it, and so says the tier, if there
    /// is one.
    pub fn erase(&self, backing: &mut Backing) -> Result<Journal, JournalError> {
        let path = self.file.path();
        // The batch that counts last: see the module's text.
        let [first, second] = [0, 1].map(|area| (area * self.report.blocks / 2, &self.report.areas[area as usize]));
        let first_counts = self.chosen.as_ref().is_some_and(|chosen| chosen.area == 0);
        for (area, state) in if first_counts { [second, first] } else { [first, second] } {
            match state {
                AreaState::Empty => {}
                AreaState::Incomplete { .. } | AreaState::Complete(_) => {
                    let zeros = AlignedBuffer::new(TIER_BLOCK_BYTES);
                    write(backing, &self.file, byte_of(area.into()), &zeros).map_err(failed("erase", path))?;
                    sync(backing, &self.file).map_err(failed("sync", path))?;
                }
            }
        }
        Ok(Journal { file: self.file.clone(), blocks: self.report.blocks })
    }
}

/// The batch may never have been synced, or a failed sync has dropped it from the medium though it can still be read:
/// once a part of it is in the backing it must not be lost. What is written again is what lies there.
fn make_durable(journal: &mut JournalReader<'_>, chosen: &Chosen) -> Result<(), JournalError> {
    let (file, path) = (journal.file.clone(), journal.file.path().to_owned());
    let payloads = chosen.batch.records.iter().filter(|record| record.has_payload()).count();
    let blocks = JournalBatch::head_blocks(chosen.batch.records.len()) as usize + payloads;
    let mut done = 0;
    while done < blocks {
        let piece = (blocks - done).min(VERIFY_BLOCKS);
        let at = u64::from(chosen.area) + done as u64;
        let bytes = journal.read(at, piece)?;
        write(journal.backing(), &file, byte_of(at), &bytes).map_err(failed("write again", &path))?;
        done += piece;
    }
    sync(journal.backing(), &file).map_err(failed("sync", &path))
}

/// A complete batch and where it lies.
#[derive(Debug)]
struct Chosen {
    area: u32,
    batch: JournalBatch,
}

/// An open journal; where it is replayed, behind the wrappers of the backing whose medium it shares.
pub(super) struct JournalReader<'a> {
    pub(super) file: Arc<DeviceFile>,
    pub(super) wrappers: Option<&'a mut Backing>,
}

impl JournalReader<'_> {
    fn backing(&mut self) -> &mut Backing {
        self.wrappers.as_deref_mut().expect("only a replay, which has a backing, writes")
    }

    /// Blocks of the areas.
    fn read(&mut self, at: u64, blocks: usize) -> Result<AlignedBuffer, JournalError> {
        let mut buffer = AlignedBuffer::new(blocks * TIER_BLOCK_BYTES);
        let result = match &mut self.wrappers {
            Some(backing) => read(backing, &self.file, byte_of(at), &mut buffer),
            None => self.file.read_now(byte_of(at), &mut buffer),
        };
        result.map_err(failed("read", self.file.path()))?;
        Ok(buffer)
    }
}

fn look(
    journal: &mut JournalReader<'_>,
    expected: Option<&[u8; 16]>,
    tier: Option<TierWord>,
) -> Result<(ReplayReport, Option<Chosen>), JournalError> {
    let path = journal.file.path().to_owned();
    let superblock = read_superblock(&journal.file)?;
    if let Some(expected) = expected
        && superblock.volume != *expected
    {
        return Err(JournalError::OtherVolume { path, found: superblock.volume, expected: *expected });
    }
    let area_blocks = superblock.area_blocks;
    let mut chosen: Option<(Chosen, BatchFound)> = None;
    let mut look_into = |area: u32| -> Result<AreaState, JournalError> {
        let (state, batch) = look_into_area(journal, &superblock.volume, area, area_blocks, tier)?;
        if let (AreaState::Complete(found), Some(batch)) = (&state, batch)
            && chosen.as_ref().is_none_or(|(_, other)| other.sequence < found.sequence)
        {
            chosen = Some((Chosen { area, batch }, *found));
        }
        Ok(state)
    };
    let areas = [look_into(0)?, look_into(area_blocks)?];
    let verdict = match &chosen {
        None => Verdict::NothingToApply,
        Some((_, found)) if tier.is_some_and(|tier| found.through <= tier.destaged) => {
            Verdict::AlreadyInBacking(*found)
        }
        Some((_, found)) => Verdict::Apply(*found),
    };
    let report = ReplayReport { path, volume: superblock.volume, blocks: 2 * area_blocks, areas, verdict };
    Ok((report, chosen.map(|(chosen, _)| chosen)))
}

/// What an area begins with.
pub(super) enum Head {
    /// Nothing: never used, or erased.
    Empty,
    /// No whole head of a batch, and why.
    Incomplete(String),
    /// A whole one.
    Whole(JournalBatch),
}

/// A read error is no torn write: it is told, never taken for an incomplete head. One of a later term than the tier's is
/// refused, whatever became of the batch behind it.
pub(super) fn read_head(
    journal: &mut JournalReader<'_>,
    volume: &[u8; 16],
    area: u32,
    area_blocks: u32,
    tier_term: Option<Term>,
) -> Result<Head, JournalError> {
    let first = journal.read(area.into(), 1)?;
    if first.iter().all(|&byte| byte == 0) {
        return Ok(Head::Empty);
    }
    let path = || journal.file.path().to_owned();
    if is_newer(&first) {
        return Err(JournalError::Newer { path: path() });
    }
    let Some(blocks) = JournalBatch::head_blocks_hint(&first) else {
        return Ok(Head::Incomplete("it does not begin with the head of a batch".into()));
    };
    if blocks > area_blocks {
        return Ok(Head::Incomplete(format!("its head claims {blocks} blocks of the area's {area_blocks}")));
    }
    let path = path();
    let head = journal.read(area.into(), blocks as usize)?;
    match (JournalBatch::decode(volume, area, &head), tier_term) {
        (Err(reason), _) => Ok(Head::Incomplete(reason.into())),
        (Ok(batch), Some(tier)) if batch.term > tier => Err(JournalError::LaterTerm { path, found: batch.term, tier }),
        (Ok(batch), _) => Ok(Head::Whole(batch)),
    }
}

fn look_into_area(
    journal: &mut JournalReader<'_>,
    volume: &[u8; 16],
    area: u32,
    area_blocks: u32,
    tier: Option<TierWord>,
) -> Result<(AreaState, Option<JournalBatch>), JournalError> {
    let incomplete = |sequence, reason: String| Ok((AreaState::Incomplete { sequence, reason }, None));
    let batch = match read_head(journal, volume, area, area_blocks, tier.map(|tier| tier.term))? {
        Head::Empty => return Ok((AreaState::Empty, None)),
        Head::Incomplete(reason) => return incomplete(None, reason),
        Head::Whole(batch) => batch,
    };
    let head_blocks = JournalBatch::head_blocks(batch.records.len());
    let sequence = Some(batch.sequence);
    if !is_of_one_writing(&batch) {
        return incomplete(sequence, "its records are not in log order".into());
    }
    let data: Vec<&Descriptor> = batch.records.iter().filter(|record| record.has_payload()).collect();
    if u64::from(head_blocks) + data.len() as u64 > u64::from(area_blocks) {
        return incomplete(sequence, format!("its {} payload blocks reach past the area", data.len()));
    }
    let mut at = u64::from(area) + u64::from(head_blocks);
    for records in data.chunks(VERIFY_BLOCKS) {
        let payload = journal.read(at, records.len())?;
        if let Some(wrong) = first_mismatch(volume, records, &payload) {
            return incomplete(sequence, format!("the payload of block {} does not match its checksum", wrong.block));
        }
        at += records.len() as u64;
    }
    let found = BatchFound {
        sequence: batch.sequence,
        through: batch.through,
        term: batch.term,
        records: batch.records.len(),
        payload_blocks: data.len() as u32,
    };
    Ok((AreaState::Complete(found), Some(batch)))
}

/// What core writes is in log order. A head that is not was not written by it, whatever its checksum says.
fn is_of_one_writing(batch: &JournalBatch) -> bool {
    batch.records.is_sorted_by(|a, b| a.lsn < b.lsn)
        && batch.records.last().is_none_or(|last| last.lsn <= batch.through)
}

/// The first record whose payload is not what it must be.
fn first_mismatch<'a>(volume: &[u8; 16], records: &[&'a Descriptor], payload: &[u8]) -> Option<&'a Descriptor> {
    let blocks = payload.chunks_exact(TIER_BLOCK_BYTES);
    records.iter().zip(blocks).find_map(|(record, bytes)| match record.kind {
        Kind::Data { mask, checksum } => {
            (payload_checksum(volume, record.block, mask, record.term, bytes) != checksum).then_some(*record)
        }
        Kind::ZeroSectors { .. } | Kind::ZeroBlocks { .. } => None,
    })
}

/// New content of some sectors of one block.
pub(super) struct Sectors {
    pub(super) block: BlockIndex,
    pub(super) mask: SectorMask,
    /// Index of the payload in the window; none: zeros.
    pub(super) payload: Option<usize>,
}

/// The records of a batch in log order, in windows that end at a zeroed range.
fn apply(journal: &mut JournalReader<'_>, request: &ReplayRequest, chosen: &Chosen) -> Result<(), JournalError> {
    let path = journal.file.path().to_owned();
    let volume_bytes = request.volume_bytes;
    check_bounds(journal, volume_bytes, &chosen.batch)?;
    let image_file = image_file(journal.backing());
    let image = image_file.path().to_owned();
    let mut at = u64::from(chosen.area) + u64::from(JournalBatch::head_blocks(chosen.batch.records.len()));
    let records = &chosen.batch.records;
    let mut next = 0;
    while next < records.len() {
        let mut sectors = Vec::new();
        let mut data = Vec::new();
        let mut range = None;
        while let Some(record) = records.get(next) {
            match record.kind {
                Kind::Data { .. } if data.len() == WINDOW_BLOCKS => break,
                Kind::Data { mask, .. } => {
                    let mask = within(mask, record.block, volume_bytes);
                    sectors.push(Sectors { block: record.block, mask, payload: Some(data.len()) });
                    data.push(record);
                }
                Kind::ZeroSectors { mask } => {
                    let mask = within(mask, record.block, volume_bytes);
                    sectors.push(Sectors { block: record.block, mask, payload: None });
                }
                Kind::ZeroBlocks { blocks, hole } => {
                    let end = (record.block.byte() + u64::from(blocks) * BLOCK_BYTES).min(volume_bytes);
                    let whole = end - end % BLOCK_BYTES;
                    range = Some((record.block.byte(), whole.saturating_sub(record.block.byte()), hole, end));
                    next += 1;
                    break;
                }
            }
            next += 1;
        }
        let payload = journal.read(at, data.len())?;
        if first_mismatch(&request.volume, &data, &payload).is_some() {
            return Err(unusable(&path, "its payload changed while it was replayed; check its medium and try again"));
        }
        at += data.len() as u64;
        let backing = journal.backing();
        write_window(backing, backing.align(), sectors, &payload).map_err(failed_at(
            "the image",
            "replay the journal into",
            &image,
        ))?;
        if let Some((offset, length, hole, end)) = range {
            let mut zeroed = Ok(());
            if length > 0 {
                zeroed = zero(backing, &image_file, offset, length, hole);
            }
            if end % BLOCK_BYTES != 0 {
                // The volume ends within a block: what lies behind it in the backing is not the volume's.
                let mask = SectorMask::of_bytes(0, end % BLOCK_BYTES);
                let tail = Sectors { block: BlockIndex::of_byte(end), mask, payload: None };
                zeroed = zeroed.and_then(|()| write_window(backing, backing.align(), vec![tail], &[]));
            }
            zeroed.map_err(failed_at("the image", "replay the journal into", &image))?;
        }
    }
    sync(journal.backing(), &image_file).map_err(failed_at("the backing", "sync", &image))
}

/// The sectors of a block that lie in the volume.
fn within(mask: SectorMask, block: BlockIndex, volume_bytes: u64) -> SectorMask {
    let end = (volume_bytes - block.byte()).min(BLOCK_BYTES);
    mask.and(SectorMask::of_bytes(0, end))
}

/// Every record lies in the volume, and the volume in the backing: found out before anything is written.
fn check_bounds(journal: &mut JournalReader<'_>, volume_bytes: u64, batch: &JournalBatch) -> Result<(), JournalError> {
    let path = journal.file.path().to_owned();
    let backing = journal.backing();
    let image = image_file(backing);
    let has = backing.size().map_err(failed_at("the backing", "read the size of", image.path()))?;
    if volume_bytes > has || !volume_bytes.is_multiple_of(SECTOR_BYTES) {
        let reason = format!(
            "its volume has {volume_bytes} bytes and the image {} has {has}: the image was cut off; bring back the \
             whole image, or enlarge it by `truncate -s {volume_bytes}` if its lost end is given up",
            image.path().display()
        );
        return Err(unusable(&path, reason));
    }
    let volume_blocks = volume_bytes.div_ceil(BLOCK_BYTES);
    for record in &batch.records {
        let blocks = match record.kind {
            Kind::Data { .. } | Kind::ZeroSectors { .. } => 1,
            Kind::ZeroBlocks { blocks, .. } => u64::from(blocks),
        };
        if record.block.0 + blocks > volume_blocks {
            let reason = format!(
                "its batch {} changes block {} and the volume has only {volume_blocks} blocks; the image beside it is \
                 another or an older one: bring back the one that was served",
                batch.sequence,
                record.block.0 + blocks - 1
            );
            return Err(unusable(&path, reason));
        }
    }
    Ok(())
}

/// Writes sectors that are given in log order: sorted by address, the newest of each, neighbours together, in units
/// of `align`.
pub(super) fn write_window(
    backing: &mut Backing,
    align: u32,
    mut sectors: Vec<Sectors>,
    payload: &[u8],
) -> io::Result<()> {
    sectors.sort_by_key(|sectors| sectors.block); // stable: records of one block stay in log order
    let mut runs = Runs::default();
    let mut whole = AlignedBuffer::new(TIER_BLOCK_BYTES);
    for same_block in sectors.chunk_by(|a, b| a.block == b.block) {
        let block = same_block[0].block;
        let mut mask = same_block.iter().fold(SectorMask::NONE, |mask, sectors| mask.or(sectors.mask));
        if !mask.is_full() && u64::from(align) > SECTOR_BYTES {
            // The medium has no smaller unit, so the rest of the block is written again as it is.
            let file = image_file(backing);
            read(backing, &file, block.byte(), &mut whole)?;
            mask = SectorMask::FULL;
        }
        for Sectors { mask, payload: from, .. } in same_block {
            for (first, count) in mask.runs() {
                let span = first as usize * SECTOR_BYTES as usize..(first + count) as usize * SECTOR_BYTES as usize;
                match from {
                    Some(index) => whole[span.clone()]
                        .copy_from_slice(&payload[index * TIER_BLOCK_BYTES..][..TIER_BLOCK_BYTES][span]),
                    None => whole[span].fill(0),
                }
            }
        }
        for (first, count) in mask.runs() {
            let (from, bytes) = (u64::from(first) * SECTOR_BYTES, (u64::from(count) * SECTOR_BYTES) as usize);
            runs.append(block.byte() + from, &whole[from as usize..][..bytes]);
        }
    }
    runs.write(backing)
}

/// Neighbouring bytes of a window on their way to the backing, by address.
#[derive(Default)]
struct Runs(Vec<(u64, Vec<u8>)>);

impl Runs {
    fn append(&mut self, offset: u64, bytes: &[u8]) {
        match self.0.last_mut() {
            Some((start, run)) if *start + run.len() as u64 == offset && run.len() + bytes.len() <= WRITE_BYTES => {
                run.extend_from_slice(bytes);
            }
            Some(_) | None => self.0.push((offset, bytes.to_vec())),
        }
    }

    /// Several at a time, because a slow medium is slow by its latency first. The first error ends it.
    fn write(self, backing: &mut Backing) -> io::Result<()> {
        let file = image_file(backing);
        let writers = self.0.len().min(WRITES_IN_FLIGHT);
        let (backing, left) = (Mutex::new(backing), Mutex::new(self.0.into_iter()));
        let write_some = || -> io::Result<()> {
            loop {
                let Some((offset, bytes)) = left.lock().expect("nobody panics with it").next() else { return Ok(()) };
                let mut buffer = AlignedBuffer::new(bytes.len());
                buffer.copy_from_slice(&bytes);
                let operation = DeviceOperation::Write { bytes: bytes.len() as u64 };
                let written = through_wrappers(&backing, operation, || file.write_now(offset, &buffer));
                if written.is_err() {
                    left.lock().expect("nobody panics with it").by_ref().for_each(drop);
                }
                written?;
            }
        };
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..writers).map(|_| scope.spawn(write_some)).collect();
            writers.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))
        })
    }
}

/// Only a file has a journal beside it.
fn image_file(backing: &Backing) -> Arc<DeviceFile> {
    backing.file().expect("a journal lies beside a file").clone()
}

fn read(backing: &mut Backing, file: &Arc<DeviceFile>, offset: u64, buffer: &mut AlignedBuffer) -> io::Result<()> {
    if buffer.is_empty() {
        return Ok(());
    }
    let bytes = buffer.len() as u64;
    let corrupt =
        through_wrappers(&Mutex::new(backing), DeviceOperation::Read { bytes }, || file.read_now(offset, buffer))?;
    if corrupt {
        buffer[0] ^= 1;
    }
    Ok(())
}

fn write(backing: &mut Backing, file: &Arc<DeviceFile>, offset: u64, buffer: &AlignedBuffer) -> io::Result<()> {
    let operation = DeviceOperation::Write { bytes: buffer.len() as u64 };
    through_wrappers(&Mutex::new(backing), operation, || file.write_now(offset, buffer)).map(|_| ())
}

fn zero(backing: &mut Backing, file: &Arc<DeviceFile>, offset: u64, length: u64, hole: bool) -> io::Result<()> {
    let kind = OperationKind::Zero { offset, length, hole };
    let mut operation = Operation::new(file.clone(), kind, Buffers::none());
    through_wrappers(&Mutex::new(backing), DeviceOperation::Zero { bytes: length }, || operation.run()).map(|_| ())
}

fn sync(backing: &mut Backing, file: &Arc<DeviceFile>) -> io::Result<()> {
    let mut operation = Operation::new(file.clone(), OperationKind::Sync, Buffers::none());
    through_wrappers(&Mutex::new(backing), DeviceOperation::Sync, || operation.run()).map(|_| ())
}

/// Does one operation in this thread as the wrappers will have it, and counts it. True: what was read is to be
/// corrupted.
fn through_wrappers(
    backing: &Mutex<&mut Backing>,
    operation: DeviceOperation,
    make: impl FnOnce() -> io::Result<()>,
) -> io::Result<bool> {
    let asked = now();
    let admission = backing.lock().expect("nobody panics with it").admit(asked, operation);
    let result = match admission.fate {
        Fate::Honest | Fate::Corrupted | Fate::AnsweredEarly => make(),
        Fate::Fails(errno) => Err(io::Error::from_raw_os_error(errno)),
        // A synchronous caller cannot be left waiting for ever.
        Fate::Hangs => Err(io::Error::new(io::ErrorKind::TimedOut, "the device does not answer")),
        Fate::Dropped => Ok(()),
    };
    std::thread::sleep(until(admission.due, now()));
    let mut backing = backing.lock().expect("nobody panics with it");
    let (stats, bytes) = match operation {
        DeviceOperation::Read { bytes } => (&mut backing.stats.reads, bytes),
        DeviceOperation::Write { bytes } => (&mut backing.stats.writes, bytes),
        DeviceOperation::Zero { bytes } => (&mut backing.stats.zeros, bytes),
        DeviceOperation::Sync => (&mut backing.stats.syncs, 0),
    };
    stats.record(bytes, 1, (now() - asked).0, result.is_err());
    result.map(|()| admission.fate == Fate::Corrupted)
}
