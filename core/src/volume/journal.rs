//! Journaled destage: many barrier groups reach the backing as one atomic batch.
//!
//! Strict group order costs a sync of the slow backing for every client flush. A journaled batch merges all groups
//! up to some position, keeps only the newest content of each sector, writes that one after the other into a journal
//! beside the backing, syncs the journal, and only then applies it to the backing in any order. A loss of all logs
//! leaves the backing plus the journal: replayed, the batch is there whole; incomplete, it is not there at all.
//! (Koller et al., "Write Policies for Host-side Flash Caches", FAST'13.)
//!
//! The journal has two areas, written in turn, so that the batch being written never overwrites the one that a replay
//! may still need. Rules:
//! 1. a batch begins when everything before it is durable in the backing and checkpointed;
//! 2. nothing of a batch reaches the backing before the batch is synced in the journal;
//! 3. an ordered group goes out only when no batch can be found in the journal: a replay after it would take the
//!    backing back. The journal is erased, and the erasure synced, before. A batch whose writing or sync has failed
//!    counts: it may have landed. The erasure waits for the checkpoint that ends the batch, because a restart without
//!    both would send the batch's groups again one by one; and it takes the newest complete batch last, because an
//!    older one, found alone, would take the backing back;
//! 4. a batch that is complete in the journal but not yet in the backing is followed only by a batch that begins with
//!    the same records, never by an ordered group;
//! 5. nothing is written over the newest complete batch, however often the writing of the next one fails;
//! 6. a batch has only records that the tier has synced: a replay must not bring back what a restart after a loss of
//!    power has shown to be gone;
//! 7. a batch speaks of every record up to its last one, also of those that newer ones of their group have ended, which
//!    are in neither batch nor backing. What has ended them may lie behind the batch, and not yet be in the log. So
//!    nothing of a batch is written before every record that had ended another when the batch was chosen is held by all
//!    members and synced by the tier. The records of the batch end no more from then on: a block that is written all
//!    the time delays a batch once, by one sync of the tier, however often it is written meanwhile.
//!
//! What an earlier life left in the journal is brought into the backing by the executor, before [`Event::BackingReady`]:
//! it applies the newest complete batch and syncs the backing; tells it to [`Volume::journal_replayed`]; waits until
//! [`Volume::replay_is_recorded`]; only then erases the journal (older batch first), and sends the event.

use super::destage::Pick;
use super::frames::Owner;
use super::log_index::State;
use super::*;
use crate::format::{Descriptor, JournalBatch, Kind, TIER_BLOCK_BYTES};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;

/// Zeroed ranges in one batch: each is compared with every older record of the batch.
const RANGES_MAX: usize = 32;
/// Blocks of one journal write: large, because the journal is there to make the slow device write in sequence.
const WRITE_BLOCKS: usize = 256;
/// Mean size of a group below which groups are worth merging.
const GROUP_BYTES_SMALL: u64 = 1 << 20;
/// Mean size from which they are not any more: apart from the former, so that a mean in between changes nothing.
const GROUP_BYTES_LARGE: u64 = 2 << 20;
/// A backlog is merged whatever the size of its groups, as long as so many of them fit into one batch.
const GROUPS_IN_BATCH_MIN: u64 = 4;
/// Each closed group moves the mean by one so many-th of the difference.
const GROUP_MEAN_WEIGHT: u64 = 8;
/// How often the backlog is looked at, and the fill above which it counts as one.
const BACKLOG_PERIOD: Duration = Duration::from_secs(1);
const BACKLOG_FILL: f64 = 0.25;
/// Time that one batch should take to apply.
const BATCH_TIME: Duration = Duration::from_secs(5);
/// Payloads that a batch may always have, however slow the backing seems.
const BATCH_PAYLOADS_MIN: usize = 256;
/// Records looked at for one batch: they are looked at in one go, and clients wait meanwhile.
const BATCH_RECORDS_MAX: usize = 32_768;

/// How far the batch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// No batch has been chosen.
    Idle,
    /// Chosen. What has ended records that the batch speaks of is not durably in the log yet (rule 7).
    AwaitingLog { through: Lsn },
    /// Payloads of the next piece that left memory are read from the tier. None left: it waits for frames.
    Loading { left: u32 },
    /// A piece is on its way into the journal.
    Writing,
    /// In the journal, not yet durable there.
    Syncing,
    /// Zeroed ranges go to the backing, one after the other.
    ApplyingRanges,
    /// Everything else goes to the backing.
    Applying,
    /// The head of one area is being erased, for an ordered group.
    Erasing { area: Area },
    /// Erased, not yet durable.
    ErasingSync { area: Area },
}

/// One half of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Area {
    First,
    Second,
}

impl Area {
    fn other(self) -> Area {
        match self {
            Area::First => Area::Second,
            Area::Second => Area::First,
        }
    }
}

/// What a batch needs at most: a block that is written whole several times is in it once.
#[derive(Default)]
struct BatchSize {
    records: usize,
    payloads: usize,
    ranges: usize,
    whole: BTreeSet<BlockIndex>,
}

impl BatchSize {
    fn fits_one_more(&self, area_blocks: u32) -> bool {
        JournalBatch::head_blocks(self.records + 1) as usize + self.payloads < area_blocks as usize
    }

    fn add(&mut self, descriptor: &Descriptor, full: bool) {
        match descriptor.kind {
            Kind::Data { .. } if full && !self.whole.insert(descriptor.block) => return,
            Kind::Data { .. } => self.payloads += 1,
            Kind::ZeroSectors { .. } => {}
            Kind::ZeroBlocks { .. } => self.ranges += 1,
        }
        self.records += 1;
    }
}

/// What an earlier life left in it; until [`Event::BackingReady`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Earlier {
    /// Nothing that anybody knows of.
    Nothing,
    /// Something that is looked at when the backing is ours.
    ToReplay,
    /// That is being done.
    Replaying,
}

/// The newest batch that is complete in the journal.
#[derive(Clone, Copy, Debug)]
struct Complete {
    area: Area,
    /// It ends with this position.
    through: Lsn,
}

/// How much was waiting when last looked.
#[derive(Clone, Copy, Debug)]
struct Backlog {
    at: Instant,
    blocks: u32,
    grows: bool,
}

/// See the module.
pub(super) struct Journal {
    /// What the operator wants.
    pub(super) requested: DestageMode,
    /// What is done now, and why.
    journaled: bool,
    pub(super) reason: DestageReason,
    backlog: Backlog,
    /// Mean bytes of closed groups; bytes that clients had written when the last one was closed.
    group_bytes: Option<u64>,
    group_began: u64,
    /// A batch could begin, had the tier synced its first record (rule 6).
    awaits_tier_sync: bool,
    /// Blocks of one area; 0: there is no journal.
    area_blocks: u32,
    sequence: u64,
    complete: Option<Complete>,
    /// A batch was begun since the last erasure: a replay may find one.
    written: bool,
    stage: Stage,
    /// Kept records in log order.
    batch: Vec<(u32, Lsn)>,
    /// So many of them are in the journal, or in the piece that is on its way there.
    taken: usize,
    /// That piece: what goes before it, where it goes, its pinned payloads.
    head: Vec<u8>,
    at: u32,
    piece: Vec<(FrameId, Check)>,
    ranges: VecDeque<(u32, Lsn)>,
    failed: Option<IoError>,
    earlier: Earlier,
    /// What the executor has told of an earlier life's batch.
    replayed: Option<Lsn>,
}

impl Journal {
    pub(super) fn new(config: &VolumeConfig, now: Instant) -> Journal {
        Journal {
            requested: config.destage,
            journaled: false,
            reason: DestageReason::NothingToMerge,
            backlog: Backlog { at: now, blocks: 0, grows: false },
            group_bytes: None,
            group_began: 0,
            awaits_tier_sync: false,
            area_blocks: area_blocks(config.journal_blocks),
            sequence: 0,
            complete: None,
            written: false,
            stage: Stage::Idle,
            batch: Vec::new(),
            taken: 0,
            head: Vec::new(),
            at: 0,
            piece: Vec::new(),
            ranges: VecDeque::new(),
            failed: None,
            earlier: Earlier::Nothing,
            replayed: None,
        }
    }

    /// Bytes of both areas together; 0: there is no journal.
    pub(super) fn bytes(&self) -> u64 {
        2 * u64::from(self.area_blocks) * BLOCK_BYTES
    }

    /// A new term: its batches are newer than those of any earlier one.
    pub(super) fn resume(&mut self, term: Term) {
        self.sequence = u64::from(term.0) << 32;
    }

    fn first_block(&self, area: Area) -> u32 {
        match area {
            Area::First => 0,
            Area::Second => self.area_blocks,
        }
    }

    /// Where the next batch goes.
    fn free_area(&self) -> Area {
        self.complete.map_or(Area::First, |complete| complete.area.other())
    }

    /// The executor is at what an earlier life left in it.
    pub(super) fn is_replaying(&self) -> bool {
        self.earlier == Earlier::Replaying
    }

    /// A batch or an erasure is under way: nothing else may be chosen.
    pub(super) fn is_busy(&self) -> bool {
        self.stage != Stage::Idle
    }

    /// The backing may be synced: the batch is being applied and every part of it has been issued.
    pub(super) fn may_sync_backing(&self) -> bool {
        matches!(self.stage, Stage::Idle | Stage::Applying)
    }

    /// The batch waits for nothing but the sync of the backing.
    pub(super) fn is_applying(&self) -> bool {
        self.stage == Stage::Applying
    }
}

/// Of each of two. No batch fits into less than a head and a payload.
fn area_blocks(journal_blocks: u32) -> u32 {
    Some(journal_blocks / 2).filter(|&blocks| blocks >= 2).unwrap_or(0)
}

impl Volume {
    /// There is a journal beside the backing now, erased, of so many blocks. Not while there is one already.
    pub fn journal_made(&mut self, blocks: u32) {
        assert_eq!(self.journal.area_blocks, 0, "a journal is made where there is none");
        self.journal.area_blocks = area_blocks(blocks);
    }

    /// Is destage journaled now? Shown in the status.
    pub(super) fn is_journaled(&self) -> bool {
        self.journal.journaled || self.must_journal()
    }

    /// Mean size of groups; one that is still open counts when it is larger.
    pub(super) fn group_bytes_mean(&self) -> u64 {
        let open = self.recorder.counters.write_bytes - self.journal.group_began;
        self.journal.group_bytes.unwrap_or(0).max(open)
    }

    /// Bytes that clients have written since the last group was closed.
    pub(super) fn open_group_bytes(&self) -> u64 {
        self.recorder.counters.write_bytes - self.journal.group_began
    }

    pub(super) fn note_group_closed(&mut self) {
        let journal = &mut self.journal;
        let bytes = self.recorder.counters.write_bytes - journal.group_began;
        journal.group_began = self.recorder.counters.write_bytes;
        let mean = journal.group_bytes.unwrap_or(bytes);
        journal.group_bytes = Some(mean - mean / GROUP_MEAN_WEIGHT + bytes / GROUP_MEAN_WEIGHT);
    }

    /// Looks anew at how groups should go out.
    pub(super) fn choose_mode(&mut self) {
        self.look_at_backlog();
        let forced = if self.journal.area_blocks == 0 {
            Some(DestageReason::NoJournal)
        } else if self.control.effective == Policy::Through {
            Some(DestageReason::PolicyThrough)
        } else if self.tier.has_failed() {
            Some(DestageReason::TierError)
        } else {
            None
        };
        let (journaled, reason) = match (self.journal.requested, forced) {
            (DestageMode::Ordered, _) => (false, DestageReason::AsRequested),
            (DestageMode::Journaled | DestageMode::Auto, Some(reason)) => (false, reason),
            (DestageMode::Journaled, None) => (true, DestageReason::AsRequested),
            (DestageMode::Auto, None) => self.choose_by_load(),
        };
        self.journal.journaled = journaled;
        self.journal.reason = reason;
    }

    /// Leaving the journal costs its erasure, so what speaks for neither way changes nothing.
    fn choose_by_load(&self) -> (bool, DestageReason) {
        let mean = self.group_bytes_mean();
        let several = self.groups_waiting() >= 2;
        let area_bytes = u64::from(self.journal.area_blocks) * BLOCK_BYTES;
        if several && mean < GROUP_BYTES_SMALL {
            (true, DestageReason::SmallGroups)
        } else if several && self.journal.backlog.grows && mean * GROUPS_IN_BATCH_MIN <= area_bytes {
            (true, DestageReason::BacklogGrows)
        } else if mean >= GROUP_BYTES_LARGE {
            (false, DestageReason::LargeGroups)
        } else {
            match self.journal.reason {
                DestageReason::SmallGroups | DestageReason::BacklogGrows | DestageReason::LargeGroups => {
                    (self.journal.journaled, self.journal.reason)
                }
                DestageReason::AsRequested
                | DestageReason::NoJournal
                | DestageReason::PolicyThrough
                | DestageReason::TierError
                | DestageReason::NothingToMerge => (false, DestageReason::NothingToMerge),
            }
        }
    }

    fn look_at_backlog(&mut self) {
        let Backlog { at, blocks, grows } = self.journal.backlog;
        if self.now - at < BACKLOG_PERIOD {
            return;
        }
        let now = self.index.payload_blocks();
        // One that only stops to grow is still there.
        let grows = self.fill() > BACKLOG_FILL && (now > blocks || grows);
        self.journal.backlog = Backlog { at: self.now, blocks: now, grows };
    }

    /// Should what is chosen next be a journaled batch?
    pub(super) fn wants_journal(&self) -> bool {
        let first_window = self.first_window().is_some() && self.journal.area_blocks > 0;
        self.must_journal() || ((self.journal.journaled || first_window) && self.index.cursor().is_some())
    }

    /// The next can only be a batch: one is complete in the journal and not yet in the backing (rule 4).
    pub(super) fn must_journal(&self) -> bool {
        self.journal.complete.is_some_and(|complete| complete.through > self.positions.durable())
    }

    /// The tier has synced the record, so it may be in a batch (rule 6).
    fn is_synced(&self, id: u32) -> bool {
        self.index.get(id).descriptor.lsn <= self.positions.synced() || planted!(self, journal_unsynced_records)
    }

    /// Begins a batch, if anything can be chosen now. The caller has made sure of rule 1.
    pub(super) fn begin_batch(&mut self) {
        let rate_blocks = self.destage.bytes_per_sec() as f64 * BATCH_TIME.as_secs_f64() / BLOCK_BYTES as f64;
        let most = (rate_blocks as usize).max(BATCH_PAYLOADS_MIN);
        let must = self
            .journal
            .complete
            .map(|complete| complete.through)
            .filter(|through| *through > self.positions.durable());
        // Who is answered by the backing's own completion of a record must not find it left out of a batch.
        let more = self.control.effective == Policy::Back;
        // A former owner's window is one batch (T5).
        let first_window = self.first_window();
        let mut chosen: Vec<(u32, Lsn)> = Vec::new();
        let mut size = BatchSize::default();
        while let Some(id) = self.index.cursor() {
            let descriptor = self.index.get(id).descriptor;
            if first_window.is_some_and(|through| descriptor.lsn > through) {
                break;
            }
            // A batch that is tried again takes all that it took before, whatever the pace is now.
            let again = must.is_some_and(|through| descriptor.lsn <= through);
            let fits = size.fits_one_more(self.journal.area_blocks)
                && (again
                    || first_window.is_some()
                    || (more && size.payloads < most && size.ranges < RANGES_MAX && chosen.len() < BATCH_RECORDS_MAX));
            if !fits || !(again || (self.is_eligible(id) && self.is_synced(id))) {
                break;
            }
            if must.is_some() && !chosen.is_empty() && planted!(self, retry_takes_less) {
                break;
            }
            size.add(&descriptor, self.index.get(id).mask.is_full());
            chosen.push((id, descriptor.lsn));
            self.index.set_state(id, State::Batched);
            self.index.advance_cursor();
            self.destage.collected = descriptor.lsn;
            self.destage.group = descriptor.group;
        }
        if chosen.is_empty() {
            self.journal.awaits_tier_sync = self.index.cursor().is_some_and(|id| !self.is_synced(id));
            return;
        }
        self.journal.awaits_tier_sync = false;
        // Sent again group by group it would take the backing back: only the checkpoint, or a replay, ends it.
        self.destage.repeatable = false;
        self.journal.batch = self.keep_newest(&chosen);
        self.journal.stage = Stage::AwaitingLog { through: self.index.superseded_by() };
        self.write_when_log_has();
    }

    /// Rule 7: begins to write the chosen batch when it may say what it says. True: the batch was given up, and something
    /// else may be chosen.
    fn write_when_log_has(&mut self) -> bool {
        let Stage::AwaitingLog { through } = self.journal.stage else { return false };
        if through <= self.positions.committed().min(self.positions.synced()) || planted!(self, journal_over_unheld) {
            self.begin_writing();
        } else if self.tier.has_failed() && !self.must_journal() {
            // The log will never have it. What was chosen goes out by itself, as far as that is possible without the tier.
            self.rewind();
            return true;
        }
        false
    }

    /// A sync of the tier begun now would let a batch begin, or go on.
    pub(super) fn journal_awaits_tier_sync(&self) -> bool {
        match self.journal.stage {
            Stage::AwaitingLog { through } => through <= self.positions.held() && through > self.positions.synced(),
            Stage::Idle => self.journal.awaits_tier_sync,
            Stage::Loading { .. }
            | Stage::Writing
            | Stage::Syncing
            | Stage::ApplyingRanges
            | Stage::Applying
            | Stage::Erasing { .. }
            | Stage::ErasingSync { .. } => false,
        }
    }

    /// Which of the chosen records still contribute a sector; the others are done when the batch is.
    fn keep_newest(&mut self, chosen: &[(u32, Lsn)]) -> Vec<(u32, Lsn)> {
        let mut covered: BTreeMap<BlockIndex, SectorMask> = BTreeMap::new();
        let mut zeroed: Vec<(u64, u64)> = Vec::new();
        let mut kept = Vec::new();
        for &(id, lsn) in chosen.iter().rev() {
            let record = *self.index.get(id);
            let block = record.descriptor.block;
            let contributes = match record.descriptor.kind {
                Kind::ZeroBlocks { blocks, .. } => {
                    zeroed.push((block.0, block.0 + u64::from(blocks)));
                    true
                }
                Kind::Data { .. } | Kind::ZeroSectors { .. } => {
                    let mask = covered.entry(block).or_default();
                    let new = record.mask.without(*mask);
                    *mask = mask.or(record.mask);
                    let in_range = zeroed.iter().any(|&(first, end)| (first..end).contains(&block.0));
                    !new.is_empty() && (!in_range || planted!(self, keep_zeroed_data))
                }
            };
            if contributes {
                kept.push((id, lsn));
            } else {
                self.index.set_state(id, State::Written);
                self.destage.note_written_bytes(BLOCK_BYTES);
                self.recorder.counters.journal_left_out += 1;
            }
        }
        kept.reverse();
        kept
    }

    fn begin_writing(&mut self) {
        self.destage.begin_work(self.now);
        self.journal.sequence += 1;
        self.journal.written = true;
        let area = match planted!(self, overwrite_complete_batch) {
            true if self.journal.sequence % 2 == 1 => self.journal.area_blocks,
            true => 0,
            false => self.journal.first_block(self.journal.free_area()),
        };
        let records = self.journal.batch.iter().map(|&(id, _)| self.index.get(id).descriptor).collect();
        let (sequence, through) = (self.journal.sequence, self.destage.collected);
        self.journal.head = JournalBatch { sequence, through, term: self.identity.term(), records }
            .encode(self.identity.volume(), area);
        self.journal.at = area;
        self.journal.taken = 0;
        self.load_piece();
    }

    /// Pins the next payloads, fetching what is not in memory: as many as there are frames for, because clients whose
    /// writes wait for this batch may hold all others. Records without a payload are only passed, also behind a full
    /// piece: the next piece, if there is one, begins with a payload, and no write is empty.
    fn load_piece(&mut self) {
        let mut left = 0;
        while let Some(&(id, _)) = self.journal.batch.get(self.journal.taken) {
            if self.index.get(id).descriptor.has_payload() {
                if self.journal.piece.len() == WRITE_BLOCKS {
                    break;
                }
                let Some((frame, loads)) = self.frame_for_journal(id, left) else { break };
                self.journal.piece.push((frame, self.check_of(id)));
                left += u32::from(loads);
            }
            self.journal.taken += 1;
        }
        self.journal.stage = Stage::Loading { left };
        let starved = self.journal.piece.is_empty() && self.journal.taken < self.journal.batch.len();
        if left == 0 && !starved {
            self.write_piece();
        }
    }

    /// A pinned frame with the payload of a record, and whether it must be read first, as `loads` others are. None: no
    /// frame is to be had for it.
    fn frame_for_journal(&mut self, id: u32, loads: u32) -> Option<(FrameId, bool)> {
        if let Some(frame) = self.frame_of_record(id) {
            self.pool.pin(frame);
            return Some((frame, false));
        }
        if loads >= self.loads_max() {
            return None;
        }
        let frame = self.pool.allocate()?;
        self.pool.pin(frame);
        let check = self.check_of(id);
        let flash = self.flash.as_mut().expect("memory tiers have every record in memory");
        let segment = flash.segment_of(id);
        flash.segments[segment as usize].busy += 1;
        let at = flash.place(id);
        let op = self.begin_op(Op::LoadForJournal { segment });
        self.effects.push_back(Effect::TierRead { op, at, frames: Checks::from_slice(&[(frame, check)]) });
        Some((frame, true))
    }

    pub(super) fn on_loaded_for_journal(&mut self, segment: u32, failed: Option<IoError>) {
        let flash = self.flash.as_mut().expect("only flash is read back");
        flash.segments[segment as usize].busy -= 1;
        flash.drain_if_empty(segment);
        let Stage::Loading { left } = self.journal.stage else { panic!("a load ends while loading") };
        self.journal.failed = self.journal.failed.or(failed);
        self.journal.stage = Stage::Loading { left: left - 1 };
        if left == 1 {
            self.write_piece();
        }
    }

    fn write_piece(&mut self) {
        if let Some(error) = self.journal.failed.take() {
            return self.abandon_batch(error);
        }
        if !self.has_lease() {
            // Tried again with whatever is chosen next.
            self.journal.stage = Stage::Loading { left: 0 };
            return;
        }
        let head = core::mem::take(&mut self.journal.head);
        let (frames, checks): (Vec<_>, Vec<_>) = self.journal.piece.iter().copied().unzip();
        let blocks = (head.len() / TIER_BLOCK_BYTES + frames.len()) as u32;
        assert!(blocks > 0, "a piece has the head or a payload");
        let (op, at) = (self.begin_op(Op::JournalWrite), self.journal.at);
        self.recorder.counters.journal_write_bytes += u64::from(blocks) * BLOCK_BYTES;
        self.recorder.counters.journal_writes += 1;
        self.journal.at += blocks;
        self.journal.stage = Stage::Writing;
        self.effects.push_back(Effect::JournalWrite { op, at, head, frames, checks });
    }

    pub(super) fn on_journal_written(&mut self, failed: Option<IoError>) {
        self.unpin_piece();
        if let Some(error) = failed {
            return self.abandon_batch(error);
        }
        let next = match self.journal.stage {
            Stage::Writing if self.journal.taken < self.journal.batch.len() => return self.load_piece(),
            Stage::Writing => Stage::Syncing,
            Stage::Erasing { area } => Stage::ErasingSync { area },
            Stage::Idle
            | Stage::AwaitingLog { .. }
            | Stage::Loading { .. }
            | Stage::Syncing
            | Stage::ApplyingRanges
            | Stage::Applying
            | Stage::ErasingSync { .. } => panic!("a journal write ends while writing"),
        };
        self.journal.stage = next;
        if next == Stage::Syncing && planted!(self, apply_before_journal_sync) {
            return self.on_journal_synced(None);
        }
        let op = self.begin_op(Op::JournalSync);
        self.recorder.counters.backing_syncs += 1;
        self.effects.push_back(Effect::JournalSync { op });
    }

    pub(super) fn on_journal_synced(&mut self, failed: Option<IoError>) {
        if let Some(error) = failed {
            return self.abandon_batch(error);
        }
        match self.journal.stage {
            // The other area is done: now the newest.
            Stage::ErasingSync { area } if area == self.journal.free_area() => self.erase(area.other()),
            Stage::ErasingSync { .. } => {
                self.journal.complete = None;
                self.journal.written = false;
                self.journal.stage = Stage::Idle;
            }
            Stage::Syncing => {
                self.recorder.counters.journal_batches += 1;
                let area = self.journal.free_area();
                self.journal.complete = Some(Complete { area, through: self.destage.collected });
                self.journal.stage = Stage::ApplyingRanges;
                let mut data: Vec<(BlockIndex, u32, Lsn)> = Vec::new();
                for (id, lsn) in core::mem::take(&mut self.journal.batch) {
                    let descriptor = self.index.get(id).descriptor;
                    if matches!(descriptor.kind, Kind::ZeroBlocks { .. }) {
                        self.journal.ranges.push_back((id, lsn));
                    } else {
                        data.push((descriptor.block, id, lsn));
                    }
                }
                data.sort_unstable_by_key(|&(block, _, lsn)| (block, lsn));
                self.destage.hold_back(data.into_iter().map(|(_, id, lsn)| (id, lsn)).collect());
            }
            Stage::Idle
            | Stage::AwaitingLog { .. }
            | Stage::Loading { .. }
            | Stage::Writing
            | Stage::ApplyingRanges
            | Stage::Applying
            | Stage::Erasing { .. } => panic!("a journal sync ends while syncing"),
        }
    }

    /// Hands the next part of a synced batch to the ordinary way to the backing. False: nothing to hand over now.
    pub(super) fn apply_batch(&mut self) -> bool {
        if self.write_when_log_has() {
            return true;
        }
        if self.journal.stage == (Stage::Loading { left: 0 }) {
            self.load_piece();
        }
        if self.journal.stage != Stage::ApplyingRanges || self.destage.in_flight > 0 {
            return false;
        }
        // Every kept record that a range overlaps is newer than the range (the older ones were dropped), so ranges go
        // first; among themselves they go in log order.
        match self.journal.ranges.pop_front() {
            Some(range) => self.destage.queue_now(Pick::One(range)),
            None => {
                self.journal.stage = Stage::Applying;
                self.destage.queue_now(Pick::HeldBack);
            }
        }
        true
    }

    /// The batch is durable in the backing, or something failed and everything is tried again.
    pub(super) fn end_batch(&mut self) {
        self.unpin_piece();
        self.journal.batch.clear();
        self.journal.head.clear();
        self.journal.ranges.clear();
        self.journal.stage = Stage::Idle;
    }

    /// Something is on its way to the journal.
    pub(super) fn journal_is_writing(&self) -> bool {
        match self.journal.stage {
            Stage::Idle
            | Stage::AwaitingLog { .. }
            | Stage::Loading { .. }
            | Stage::ApplyingRanges
            | Stage::Applying => false,
            Stage::Writing | Stage::Syncing | Stage::Erasing { .. } | Stage::ErasingSync { .. } => true,
        }
    }

    fn unpin_piece(&mut self) {
        for (frame, _) in core::mem::take(&mut self.journal.piece) {
            // One that was loaded for this alone has no other owner.
            if self.pool.owner(frame) == Owner::Taken && !self.is_staged(frame) {
                self.pool.release(frame);
            }
            self.pool.unpin(frame);
        }
    }

    fn abandon_batch(&mut self, error: IoError) {
        self.end_batch();
        self.backing_failed(error);
    }

    /// Something in it would be replayed.
    pub(super) fn journal_holds_a_batch(&self) -> bool {
        self.journal.written && !planted!(self, ordered_without_erasing)
    }

    /// Rule 3: makes sure that no replay can follow an ordered group. True: it can go out now.
    pub(super) fn journal_is_erased(&mut self) -> bool {
        if !self.journal_holds_a_batch() {
            return true;
        }
        let recorded = self.journal.complete.is_none_or(|complete| self.positions.destaged() >= complete.through);
        if recorded && !self.backing_failing() {
            let newest_first = planted!(self, erase_newest_first);
            let area = self.journal.free_area();
            self.erase(if newest_first { area.other() } else { area });
        }
        false
    }

    fn erase(&mut self, area: Area) {
        self.journal.stage = Stage::Erasing { area };
        let op = self.begin_op(Op::JournalWrite);
        let (at, head) = (self.journal.first_block(area), vec![0; TIER_BLOCK_BYTES]);
        self.effects.push_back(Effect::JournalWrite { op, at, head, frames: Vec::new(), checks: Vec::new() });
    }

    // --- what an earlier life left ---

    /// There is a journal of an earlier life, which the executor replays and erases before [`Event::BackingReady`]. A
    /// stop with drain waits for that, even where the log is empty: an image that is given away as complete must have no
    /// batch beside it.
    pub fn journal_replay_due(&mut self) {
        self.journal.earlier = Earlier::ToReplay;
    }

    /// Nothing of earlier lives is under way to the backing any more, and the executor begins with the journal.
    pub fn journal_replay_begins(&mut self) {
        self.journal.earlier = Earlier::Replaying;
    }

    /// What an earlier life left in the journal may still be there.
    pub(super) fn replay_is_open(&self) -> bool {
        self.journal.earlier != Earlier::Nothing && !self.destage.ready
    }

    /// The executor has applied a batch of an earlier life: the backing has every record up to here, durably. They are
    /// not sent again: one by one they would take the backing back. To be told once at most, before
    /// [`Event::BackingReady`].
    pub fn journal_replayed(&mut self, through: Lsn) {
        assert!(!self.destage.ready, "a journal is replayed before anything else is written to the backing");
        if planted!(self, forget_replay) {
            return;
        }
        self.journal.replayed = Some(through);
        match self.phase {
            // It ends when the log is known.
            Phase::Recovering | Phase::Refused(_) => {}
            Phase::Following | Phase::Agreeing | Phase::Serving | Phase::Stopping | Phase::Stopped => {
                self.end_replayed();
            }
        }
    }

    /// What was told by [`Volume::journal_replayed`] is durable in the tier: the journal may be erased.
    pub fn replay_is_recorded(&self) -> bool {
        self.journal
            .replayed
            .is_none_or(|through| self.phase != Phase::Recovering && self.positions.destaged() >= through)
    }

    /// The log is known: records that a replay has brought into the backing end.
    pub(super) fn end_replayed(&mut self) {
        let Some(told) = self.journal.replayed else { return };
        // Positions above the log's end are given out anew.
        let through = told.min(self.positions.recovered());
        self.journal.replayed = Some(through);
        while let Some(id) = self.index.cursor() {
            let lsn = self.index.get(id).descriptor.lsn;
            if lsn > through {
                break;
            }
            self.index.set_state(id, State::Written);
            self.index.advance_cursor();
            self.destage.collected = lsn;
        }
        if self.positions.make_durable(through) {
            self.destage.collected = self.destage.collected.max(through);
            self.checkpoints.want();
            self.positions.checkpoint_after_accepted();
            self.write_checkpoint();
        }
    }
}
