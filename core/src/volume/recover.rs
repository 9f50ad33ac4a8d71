//! From a tier to a serving volume: formatting a new one, or reading what an earlier process left.
//!
//! Each start has a number of its own, in everything that it writes. Where the tier is the whole log, a restart is
//! a take-over from oneself: a new term, too, the former records in a group of their own, and the whole open part of the log
//! destaged again before anything new. A member follows after a start, in the term that it knows.
//!
//! Which records count (docs/format.md has the argument):
//! - everything up to the checkpoint's `destaged` is history;
//! - memory: every descriptor that decodes. The one that was being stored when the process died decodes to nothing;
//!   one that does not decode is damage, and the tier is refused;
//! - flash: batches in order of their number. Up to the highest `synced_through` that is found, a batch that is
//!   missing or does not decode is damage. Above it, the first batch that is missing, does not decode, or whose
//!   payload does not match ends the log: nothing behind it was promised to survive. The heads of what is cut off are
//!   erased before serving, or a later recovery could take them for the continuation of what is written now;
//! - of a member's tier some that newer ones cover, and some that the backing has ([`crate::log::Retention`]).
//!
//! What is read is not always durable: a sync may have failed, or never been asked for, before the process died, and
//! the device forgets by a loss of power what it still shows now. So everything that is kept and not proven durable
//! is written again, same bytes in the same place, and synced before anything relies on it ([`super::rewrite`]).

mod segments;

use self::segments::Segments;
pub(super) use self::segments::ToRewrite;
use super::flash::{following_number, segment_number};
use super::log_index::{NONE, State};
use super::rewrite::{Chunk, Doubt, Rewrites};
use super::*;
use crate::format::{Batch, Descriptor, Kind, SUMMARY_HEAD_BYTES, Summary, TIER_BLOCK_BYTES, TierKind, Version};
use crate::log::{self, FoundBatch, FoundBatches, Retention, Witness};
use alloc::collections::{BTreeMap, BTreeSet};

/// Metadata blocks read at one time: 4 MiB.
const SCAN_BLOCKS: u32 = 1024;
/// Segments whose heads are read, and payloads that are verified, at one time.
const PARALLEL: usize = 32;

const TOO_SHORT: &str = "the tier is shorter than its superblock says";
const MISPLACED: &str = "a record in the tier is for a place that does not exist: it was not written by this volume";

/// A step of recovery that waits for the tier.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Write,
    Sync,
    Checkpoints,
    Table { first: u32 },
    Head { segment: u32 },
    SummaryOf { segment: u32 },
    LeftSummary { segment: u32 },
    Walk { segment: u32, at: u32 },
    Search { segment: u32, at: u32 },
    Verify { chunk: usize },
    Rewritten { chunk: usize },
    Rewrite,
}

/// What formatting or finishing still writes, one after the other: each is synced before the next.
type Writes = VecDeque<(TierBlock, Vec<u8>)>;

#[derive(Debug)]
struct FoundRecord {
    descriptor: Descriptor,
    id: u32,
    /// Batch that it lies in (flash), for choosing between copies.
    batch: u64,
    segment: u32,
}

/// See the module.
#[derive(Default)]
pub(super) struct Recovery {
    writes: Writes,
    pub(super) pending: u32,
    records: Vec<FoundRecord>,
    // flash
    next_segment: u32,
    found: FoundBatches,
    /// Segments without a head that have something in the place of their summary.
    left_summaries: Vec<u32>,
    /// Segments whose head is no head: damaged, or the first batch of a new life landed in part, and their payload with it.
    unreadable: BTreeSet<u32>,
    /// Last batch that the summary of each segment speaks of, if there is one: not all of them may have landed.
    summaries: BTreeMap<u32, u64>,
    /// Highest counter of a segment's life in anything that decodes, used or not: the next one is above it.
    counter_max: u32,
    pub(super) verify: Vec<Doubt>,
    pub(super) verify_next: usize,
    pub(super) chunks: Vec<Chunk>,
    pub(super) bad_from: Option<u64>,
    pub(super) rewrites: Rewrites,
}

/// Keeps what `keep` says of each; what is dropped.
fn divide(records: &mut Vec<FoundRecord>, keep: &[bool]) -> Vec<FoundRecord> {
    let mut keep = keep.iter();
    let is_dropped = |_: &mut FoundRecord| !keep.next().expect("one for each");
    records.extract_if(.., is_dropped).collect()
}

fn without_payload(records: &[FoundRecord]) -> usize {
    records.iter().filter(|record| !record.descriptor.has_payload()).count()
}

impl Volume {
    pub(super) fn begin_recovery(&mut self) {
        self.recovery = Some(Recovery::default());
        if self.config.superblock.version == Version::One && self.config.cluster.is_some() {
            self.refuse_tier("a tier of version 1 has no place for what a member must remember: make a new one");
        } else if self.config.fresh {
            self.begin_start(&Checkpoint::default());
            let first = self.next_checkpoint();
            let second = Checkpoint { sequence: 2, ..first.clone() };
            let writes = [
                // The superblock last: until it is there, the tier is not one.
                (first.place(), self.encoded(&first)),
                (second.place(), self.encoded(&second)),
                (TierBlock(0), self.config.superblock.encode()),
            ];
            self.checkpoints.begin_with(second);
            self.recovery_mut().writes = writes.into();
            self.recovery_write();
        } else {
            let op = self.begin_op(Op::Recover(Step::Checkpoints));
            self.effects.push_back(Effect::TierScan { op, at: TierBlock(1), blocks: 2 });
        }
    }

    pub(super) fn recovery_mut(&mut self) -> &mut Recovery {
        self.recovery.as_mut().expect("recovery is under way")
    }

    pub(super) fn refuse_tier(&mut self, reason: &'static str) {
        self.recovery = None;
        self.phase = Phase::Refused(reason);
    }

    pub(super) fn on_recovery_step(&mut self, step: Step, outcome: Outcome) {
        if self.recovery.is_none() {
            return; // refused already; stragglers
        }
        match (step, outcome) {
            (Step::Write, Outcome::Ok) if planted!(self, serve_before_recovery_sync) => self.recovery_write(),
            (Step::Write, Outcome::Ok) => {
                let op = self.begin_op(Op::Recover(Step::Sync));
                self.effects.push_back(Effect::TierSync { op });
            }
            (Step::Sync, Outcome::Ok) => self.recovery_write(),
            (Step::Checkpoints, Outcome::Bytes(bytes)) => self.on_checkpoints(&bytes),
            (Step::Table { first }, Outcome::Bytes(bytes)) => self.on_table(first, &bytes),
            (Step::Head { segment }, Outcome::Bytes(bytes)) => self.on_segment_head(segment, &bytes),
            (Step::SummaryOf { segment }, Outcome::Bytes(bytes)) => self.on_summary(segment, &bytes),
            (Step::LeftSummary { segment }, Outcome::Bytes(bytes)) => self.on_left_summary(segment, &bytes),
            (Step::Walk { segment, at }, Outcome::Bytes(bytes)) => self.on_walk(segment, at, &bytes),
            (Step::Search { segment, at }, Outcome::Bytes(bytes)) => self.on_searched(segment, at, &bytes),
            (Step::Verify { chunk }, outcome) => self.on_verified(chunk, outcome),
            (Step::Rewritten { chunk }, Outcome::Ok) => self.on_chunk_rewritten(chunk),
            (Step::Rewrite, Outcome::Ok) => self.on_rewritten(),
            (_, Outcome::Failed(_)) => self.refuse_tier("the tier cannot be read or written"),
            (_, _) => self.refuse_tier("the tier's device answered what was not asked"),
        }
    }

    fn recovery_write(&mut self) {
        match self.recovery_mut().writes.pop_front() {
            Some((at, head)) => {
                let op = self.begin_op(Op::Recover(Step::Write));
                self.effects.push_back(Effect::TierWrite { op, at, head, frames: Vec::new() });
            }
            None => {
                self.recovery = None;
                if let Some(flash) = &mut self.flash {
                    flash.checkpoint_begins(self.checkpoints.newest().batches_synced);
                    flash.checkpointed(self.checkpoints.newest().batches_synced);
                }
                if self.config.cluster.is_some() {
                    self.phase = Phase::Following;
                    self.keep_whole();
                    self.apply_mark();
                } else {
                    self.journal.resume(self.identity.term());
                    self.phase = Phase::Serving;
                    self.end_replayed();
                }
            }
        }
    }

    fn on_checkpoints(&mut self, bytes: &[u8]) {
        let version = self.config.superblock.version;
        let copies = [1u32, 2].map(|place| {
            let at = (place as usize - 1) * TIER_BLOCK_BYTES;
            let block = bytes.get(at..at + TIER_BLOCK_BYTES)?;
            Checkpoint::decode(version, self.identity.volume(), TierBlock(place), block).ok()
        });
        let mut valid: Vec<Checkpoint> = copies.into_iter().flatten().collect();
        valid.sort_unstable_by_key(|checkpoint| checkpoint.sequence);
        if planted!(self, believe_older_checkpoint) {
            valid.truncate(1);
        }
        let Some(newest) = valid.pop() else {
            return self.refuse_tier("both checkpoints of the tier are damaged");
        };
        let can_grow = [newest.term.0, newest.start.0, newest.life].iter().all(|&number| number < u32::MAX);
        if !is_a_size(newest.size_bytes) || !can_grow {
            return self.refuse_tier("the checkpoint of the tier has a size or a number that no volume has");
        }
        if newest.standing.is_some() && self.config.cluster.is_none() {
            return self
                .refuse_tier("the tier is one of several that hold this volume: by itself it may be an older state");
        }
        if newest.standing.as_ref().is_some_and(|standing| !standing.is_possible()) {
            return self.refuse_tier("the checkpoint of the tier has a mark that no volume has");
        }
        self.size_bytes = newest.size_bytes;
        self.positions.begin_start(newest.destaged);
        self.begin_start(&newest);
        self.checkpoints.begin_with(newest);
        match self.config.superblock.layout.kind {
            TierKind::Memory => self.scan_table(0),
            TierKind::Flash => {
                self.recovery_mut().found.synced = self.checkpoints.newest().batches_synced;
                self.scan_segments();
            }
        }
    }

    /// The numbers of this start, from what the one before it has left (defaults on a new tier).
    fn begin_start(&mut self, before: &Checkpoint) {
        self.replication.standing = before.standing.clone().unwrap_or_default();
        let host = self.config.cluster.map(|cluster| cluster.host);
        let same_boot = host.is_some() && host == before.host;
        // Whoever starts is a new owner, unless others have a say in that.
        self.identity.begin_start(before, self.config.cluster.is_none(), same_boot || self.config.fresh);
        if let Some(cluster) = &mut self.config.cluster {
            cluster.own.tier = self.config.superblock.tier;
            cluster.own.life = self.identity.life();
        }
    }

    // --- memory ---

    fn scan_table(&mut self, first: u32) {
        let layout = self.config.superblock.layout;
        let blocks = SCAN_BLOCKS.min(layout.table_blocks - first);
        let op = self.begin_op(Op::Recover(Step::Table { first }));
        self.effects.push_back(Effect::TierScan { op, at: TierBlock(layout.table_first + first), blocks });
    }

    fn on_table(&mut self, first: u32, bytes: &[u8]) {
        let layout = self.config.superblock.layout;
        let base = first * crate::format::DESCRIPTORS_PER_BLOCK;
        let id = *self.identity.volume();
        let recovery = self.recovery.as_mut().expect("recovery is under way");
        for (i, chunk) in bytes.chunks_exact(crate::format::DESCRIPTOR_BYTES).enumerate() {
            let index = base + i as u32;
            if index >= log::table_entries(&layout) {
                break;
            }
            match Descriptor::decode(&id, u64::from(index), chunk) {
                Ok(None) => {}
                Ok(Some(descriptor)) => {
                    recovery.records.push(FoundRecord { descriptor, id: index, batch: 0, segment: 0 });
                }
                Err(_) if planted!(self, skip_damaged_descriptors) => {}
                Err(_) => {
                    return self.refuse_tier("a descriptor in the tier is damaged: an acknowledged write may be in it");
                }
            }
        }
        let read = bytes.len() as u32 / TIER_BLOCK_BYTES as u32;
        let next = first + read;
        if read == 0 {
            self.refuse_tier(TOO_SHORT);
        } else if next < layout.table_blocks {
            self.scan_table(next);
        } else {
            self.finish_memory();
        }
    }

    fn finish_memory(&mut self) {
        let recovery = self.recovery.as_mut().expect("recovery is under way");
        let records = &recovery.records;
        let found = records.iter().map(|r| r.descriptor.lsn).max().unwrap_or_default();
        self.load(found.max(self.positions.destaged()).max(self.checkpoints.newest().accepted));
    }

    // --- flash ---

    pub(super) fn segment_block(&self, segment: u32, at: u32) -> TierBlock {
        let layout = self.config.superblock.layout;
        TierBlock(layout.payload_first + segment * layout.segment_blocks + at)
    }

    fn scan_segments(&mut self) {
        let layout = self.config.superblock.layout;
        while self.recovery_mut().pending < PARALLEL as u32 && self.recovery_mut().next_segment < layout.segments() {
            let segment = self.recovery_mut().next_segment;
            self.recovery_mut().next_segment += 1;
            self.recovery_mut().pending += 1;
            let at = self.segment_block(segment, 0);
            let op = self.begin_op(Op::Recover(Step::Head { segment }));
            self.effects.push_back(Effect::TierScan { op, at, blocks: 1 });
        }
        if self.recovery_mut().pending == 0 {
            self.order_batches();
        }
    }

    fn on_segment_head(&mut self, segment: u32, bytes: &[u8]) {
        self.recovery_mut().pending -= 1;
        let at = self.segment_block(segment, 0);
        if bytes.len() != TIER_BLOCK_BYTES {
            return self.refuse_tier(TOO_SHORT);
        }
        match Batch::decode(self.identity.volume(), at, bytes) {
            Ok(batch) => {
                self.recovery_mut().found.lives.insert(segment, batch.segment);
                self.scan_summary(segment, self.config.superblock.layout.summary_blocks, Step::SummaryOf { segment });
            }
            // Torn when the segment was opened again, or damaged: its summary may know more than its head.
            Err(_) if bytes.iter().any(|&byte| byte != 0) => {
                self.recovery_mut().unreadable.insert(segment);
                self.scan_summary(segment, self.config.superblock.layout.summary_blocks, Step::SummaryOf { segment });
            }
            Err(_) => self.scan_summary(segment, 1, Step::LeftSummary { segment }),
        }
        self.scan_segments();
    }

    fn scan_summary(&mut self, segment: u32, blocks: u32, step: Step) {
        self.recovery_mut().pending += 1;
        let layout = self.config.superblock.layout;
        let at = self.segment_block(segment, layout.segment_blocks - layout.summary_blocks);
        let op = self.begin_op(Op::Recover(step));
        self.effects.push_back(Effect::TierScan { op, at, blocks });
    }

    /// The segment is unused: its head was erased, or never landed. A summary in it lists records that have ended, or that
    /// were cut off, and would bring them back the day a torn head makes the summary the better witness.
    fn on_left_summary(&mut self, segment: u32, bytes: &[u8]) {
        self.recovery_mut().pending -= 1;
        if bytes.iter().any(|&byte| byte != 0) {
            self.recovery_mut().left_summaries.push(segment);
        }
        self.scan_segments();
    }

    fn on_summary(&mut self, segment: u32, bytes: &[u8]) {
        self.recovery_mut().pending -= 1;
        let layout = self.config.superblock.layout;
        let at = self.segment_block(segment, layout.segment_blocks - layout.summary_blocks);
        let summary = Summary::decode(self.identity.volume(), at, bytes).ok();
        let recovery = self.recovery.as_mut().expect("recovery is under way");
        if let Some(summary) = &summary {
            recovery.counter_max = recovery.counter_max.max(summary.segment as u32);
            recovery.summaries.insert(segment, summary.last_batch);
        }
        let number = recovery.found.lives.get(&segment).copied();
        match log::witness(number, summary, self.checkpoints.newest().batches_synced) {
            Witness::Summary(summary) => recovery.found.seal(segment, summary),
            Witness::SummaryAndSearch(summary) => {
                recovery.found.seal(segment, summary);
                self.search(segment, 1);
            }
            Witness::Headers => self.walk(segment, 0),
            Witness::Search => self.search(segment, 1),
        }
        self.scan_segments();
    }

    fn walk(&mut self, segment: u32, at: u32) {
        self.recovery_mut().pending += 1;
        let place = self.segment_block(segment, at);
        let op = self.begin_op(Op::Recover(Step::Walk { segment, at }));
        self.effects.push_back(Effect::TierScan { op, at: place, blocks: 1 });
    }

    fn on_walk(&mut self, segment: u32, at: u32, bytes: &[u8]) {
        self.recovery_mut().pending -= 1;
        let layout = self.config.superblock.layout;
        let place = self.segment_block(segment, at);
        let number = self.recovery_mut().found.lives[&segment];
        let end = layout.segment_blocks - layout.summary_blocks;
        if let Ok(batch) = Batch::decode(self.identity.volume(), place, bytes)
            && batch.segment == number
        {
            let next = at + 1 + batch.payload_blocks();
            if next > end {
                return self.refuse_tier(MISPLACED);
            }
            let marked = if planted!(self, forget_marks) { 0 } else { batch.synced_through };
            let found = &mut self.recovery_mut().found;
            found.on_synced(marked);
            found.add(FoundBatch { segment, at, batch });
            if next + 2 <= end {
                self.walk(segment, next);
            }
        } else if !planted!(self, stop_at_bad_header) {
            self.search(segment, at + 1);
        }
        self.scan_segments();
    }

    /// Behind a header that does not decode: later ones cannot be found by their length, and the marks in them say
    /// whether that header was synced, so that its loss is damage, or is the end of the log.
    fn search(&mut self, segment: u32, at: u32) {
        let layout = self.config.superblock.layout;
        let end = layout.segment_blocks - layout.summary_blocks;
        if at < end {
            self.recovery_mut().pending += 1;
            let place = self.segment_block(segment, at);
            let op = self.begin_op(Op::Recover(Step::Search { segment, at }));
            self.effects.push_back(Effect::TierScan { op, at: place, blocks: SCAN_BLOCKS.min(end - at) });
        }
    }

    fn on_searched(&mut self, segment: u32, at: u32, bytes: &[u8]) {
        self.recovery_mut().pending -= 1;
        let mut next = at;
        for block in bytes.chunks_exact(TIER_BLOCK_BYTES) {
            let place = self.segment_block(segment, next);
            if let Ok(batch) = Batch::decode(self.identity.volume(), place, block)
                && !planted!(self, forget_marks)
            {
                let recovery = self.recovery_mut();
                recovery.found.on_synced(batch.synced_through);
                recovery.counter_max = recovery.counter_max.max(batch.segment as u32);
                recovery.found.behind.insert((batch.sequence, batch.start));
            }
            next += 1;
        }
        if next == at {
            return self.refuse_tier(TOO_SHORT);
        }
        self.search(segment, next);
        self.scan_segments();
    }

    /// All heads are read: what must be verified?
    fn order_batches(&mut self) {
        let layout = self.config.superblock.layout;
        let recovery = self.recovery.as_mut().expect("recovery is under way");
        if let Some(reason) = recovery.found.damage(self.checkpoints.newest().batches_synced) {
            return self.refuse_tier(reason);
        }
        if recovery.found.goes_on_behind() && !planted!(self, end_before_bad_head) {
            return self
                .refuse_tier("the head of a segment in the tier is damaged: an acknowledged write may be behind it");
        }
        let end = recovery.found.end();
        let synced = recovery.found.synced;
        let of_the_log = recovery.found.of_the_log(self.checkpoints.newest().batches_synced);
        for (sequence, found) in of_the_log.filter(|(sequence, _)| *sequence > synced) {
            let mut at = found.at + 1;
            for record in &found.batch.records {
                if let Kind::Data { mask, checksum } = record.kind {
                    let id = found.segment * layout.segment_blocks + at;
                    let check = Check { block: record.block, mask, term: record.term, checksum };
                    recovery.verify.push(Doubt { id, check, batch: sequence, frame: FrameId(0) });
                    at += 1;
                }
            }
        }
        recovery.bad_from = end.filter(|_| !planted!(self, accept_torn_tail));
        self.verify_some();
    }

    /// All batches that count are known, and verified: what is in use, what the log is made of, and what must be written again.
    pub(super) fn finish_flash(&mut self) {
        // A member has what it has: its owner gives out the positions. Any other must not give one out again.
        let member = self.config.cluster.is_some();
        let destaged = self.positions.destaged();
        let last = if member { destaged } else { self.checkpoints.newest().accepted.max(destaged) };
        let recovery = self.recovery.as_mut().expect("recovery is under way");
        let bad_from = recovery.bad_from.unwrap_or(u64::MAX);
        let FoundBatches { lives, sealed, batches, cut_off, synced, .. } = core::mem::take(&mut recovery.found);
        let mut segments = Segments::new(self.config.superblock.layout, lives, synced, last);
        for (sequence, found) in batches {
            if sequence < bad_from || !member {
                segments.note_positions(&found);
            }
            if sequence < bad_from { segments.take_batch(found) } else { segments.cut_off(&found) }
        }
        for found in cut_off {
            segments.cut_off(&found);
        }
        segments.erase_behind_ends(&sealed);
        for (segment, summary) in sealed {
            segments.take_summary(segment, summary);
        }
        segments.erase_false_summaries(&recovery.summaries, &recovery.left_summaries);
        recovery.records = segments.take_records();
        let counter_max = segments.counter_max().max(recovery.counter_max);
        let (last, last_batch) = segments.last();
        let next_number = following_number(segment_number(self.identity.start(), counter_max));
        let flash = self.flash.as_mut().expect("a flash tier is being recovered");
        segments.restore(flash);
        flash.resume(next_number, last_batch);
        self.plan_rewrites(segments.into_rewrites());
        self.load(last);
    }

    // --- both ---

    /// A record lies where its kind lies, and is for blocks that the volume has.
    fn is_possible(&self, record: &FoundRecord) -> bool {
        let layout = self.config.superblock.layout;
        let blocks = match record.descriptor.kind {
            Kind::Data { .. } | Kind::ZeroSectors { .. } => 1,
            Kind::ZeroBlocks { blocks, .. } => u64::from(blocks),
        };
        let within_volume = record.descriptor.block.0 + blocks <= self.size_bytes.div_ceil(BLOCK_BYTES);
        // The last frame of a memory tier is the frame of zeros.
        let payloads = layout.payload_blocks - u32::from(layout.kind == TierKind::Memory);
        let within_tier = match (layout.kind, record.descriptor.has_payload()) {
            (TierKind::Memory, true) => record.id < payloads,
            (TierKind::Memory, false) => record.id >= layout.payload_blocks,
            (TierKind::Flash, true) => record.id / layout.segment_blocks == record.segment,
            (TierKind::Flash, false) => record.id == NONE,
        };
        within_volume && within_tier
    }

    /// Of what was found, in log order and each once, the records that the log goes on with; and what a member keeps.
    /// None: the tier is refused.
    fn choose_records(&mut self) -> Option<(Vec<FoundRecord>, Option<Retention>)> {
        let mut records = core::mem::take(&mut self.recovery_mut().records);
        log::once_in_log_order(&mut records, |record| (record.descriptor.lsn, record.batch));
        let kept = self
            .config
            .cluster
            .map(|_| Retention::of(&self.replication.standing, records.iter().map(|r| &r.descriptor)));
        let descriptors: Vec<Descriptor> = records.iter().map(|r| r.descriptor).collect();
        if !planted!(self, bring_back_destaged) {
            divide(&mut records, &log::goes_on(&descriptors, self.positions.destaged(), kept.as_ref()));
        }
        if !records.iter().all(|record| self.is_possible(record)) {
            self.refuse_tier(MISPLACED);
            return None;
        }
        let places = self.index.others_left() as usize;
        match &kept {
            Some(kept) => self.end_covered_of_member(&mut records, kept),
            // The log would drop the same, one record after the other; but where the record that superseded many was
            // superseded itself and is gone, they would all be live for a moment, and more than there are places for.
            None if without_payload(&records) > places => {
                let keep: Vec<bool> = log::covered(records.iter().map(|r| &r.descriptor)).iter().map(|c| !c).collect();
                divide(&mut records, &keep);
            }
            None => {}
        }
        if without_payload(&records) > places {
            self.refuse_tier(
                "the tier has more zeroed ranges than there are places for: it was not written by this volume",
            );
            return None;
        }
        Some((records, kept))
    }

    /// Ends what newer records of the same group cover and nobody needs.
    fn end_covered_of_member(&mut self, records: &mut Vec<FoundRecord>, kept: &Retention) {
        let covered = log::covered(records.iter().map(|r| &r.descriptor));
        let unreadable = core::mem::take(&mut self.recovery_mut().unreadable);
        // What had ended before the window was told may be found in a segment whose next life has begun: its payload is gone.
        let stays = |r: &FoundRecord| kept.is_in_window(r.descriptor.lsn) && !unreadable.contains(&r.segment);
        let may_have_ended: Vec<bool> = records
            .iter()
            .zip(&covered)
            .map(|(r, covered)| *covered && r.descriptor.lsn > self.positions.destaged())
            .collect();
        let may_end: Vec<bool> = records.iter().zip(&may_have_ended).map(|(r, may)| *may && !stays(r)).collect();
        let mut keep: Vec<bool> =
            records.iter().zip(&may_end).map(|(r, may)| !may || r.descriptor.lsn > kept.committed()).collect();
        // The log never had more ranges than there are places. Where more are found, the oldest of those that are covered
        // had ended already: more was committed than the checkpoint knows. Where that does not explain it, some in the window had
        // ended as well, before it was told; what covers them is of their group, and is pinned with the window (W17).
        let ranges = records.iter().zip(&keep).filter(|(r, keep)| **keep && !r.descriptor.has_payload()).count();
        let mut excess = ranges.saturating_sub(self.index.others_left() as usize);
        for ended in [&may_end, &may_have_ended] {
            for (i, record) in records.iter().enumerate() {
                if excess > 0 && keep[i] && ended[i] && !record.descriptor.has_payload() {
                    keep[i] = false;
                    excess -= 1;
                }
            }
        }
        for record in divide(records, &keep) {
            self.erase_entry(record.id);
        }
    }

    /// Gives a record that was found its place in the log.
    fn claim_place(&mut self, record: &mut FoundRecord) {
        let payloads = self.config.superblock.layout.payload_blocks;
        if record.id == NONE {
            record.id = self.index.take_other_id();
        } else if record.id >= payloads {
            self.index.claim_other_id(record.id);
        }
        match &mut self.flash {
            None if record.id < payloads => self.pool.claim(FrameId(record.id)),
            None => {}
            Some(flash) => {
                if record.id >= payloads {
                    flash.other_segment[(record.id - payloads) as usize] = record.segment;
                }
                flash.segments[record.segment as usize].live += 1;
            }
        }
    }

    /// The records are known: makes them the log, and has the checkpoint of the new start written.
    fn load(&mut self, last: Lsn) {
        let Some((records, kept)) = self.choose_records() else { return };
        for mut record in records {
            self.groups.found(record.descriptor.group); // in log order: the last one stays
            self.claim_place(&mut record);
            // What of a member's may end has ended.
            self.index.append(record.id, record.descriptor, kept.is_none());
            self.free_ended();
            if let Some(kept) = &kept
                && record.descriptor.lsn <= self.positions.durable()
            {
                self.index.confine(record.id, &kept.unpinned(&record.descriptor));
                self.index.set_state(record.id, State::Written);
                self.index.advance_cursor();
            }
        }
        self.begin_log(last);
        let next = Checkpoint { destaged: self.positions.durable(), accepted: last, ..self.next_checkpoint() };
        let copy = Checkpoint { sequence: next.sequence + 1, ..next.clone() };
        // What is cut off is erased first, and what is kept is made durable before the checkpoint that vouches for it.
        for checkpoint in [&next, &copy] {
            let write = (checkpoint.place(), self.encoded(checkpoint));
            self.recovery_mut().writes.push_back(write);
        }
        self.checkpoints.begin_with(copy);
        self.rewrite_some();
    }

    /// The log goes on behind this position.
    fn begin_log(&mut self, last: Lsn) {
        let committed = match self.role() {
            Role::Alone => last,
            // Where this life may have lost something, others may have, too: nobody is known to hold it any more (T10).
            Role::Follower | Role::Owner if self.identity.life() > self.checkpoints.newest().life => {
                self.positions.destaged()
            }
            // Never more than is here. A member has said to hold what is committed, and its death takes nothing of that (`outlives`). So the
            // checkpoint knows of more than there is where a learner had not held all of it yet, which nobody counts on; or where the
            // tier's device has lost in this boot what it had taken: then others know that it was held, and say so (S10), and where
            // nobody does, nothing here can be told from a log that ends there.
            Role::Follower | Role::Owner => self.replication.standing.committed.clamp(self.positions.destaged(), last),
        };
        self.positions.begin_log(last, committed);
        // Nobody knows which of these were flushed: they are a group of their own, and so is what comes now.
        if !planted!(self, go_on_in_recovered_group) {
            self.groups.begin_another();
        }
        if self.role() == Role::Alone && self.index.is_empty() {
            self.positions.begin_empty();
        }
        self.destage.resume(self.positions.durable());
        self.log_was_recovered();
        if let Some(flash) = &mut self.flash {
            flash.restored();
        }
    }
}

const _: () = assert!(SUMMARY_HEAD_BYTES < TIER_BLOCK_BYTES);
