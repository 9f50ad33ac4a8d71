//! Which of the records that a tier shows are the log. Decided here once, for a start of a volume, for `inspect` and for
//! `salvage`; `docs/format.md`, R2 to R5 and R10, says why it is so.
//!
//! Nothing here reads: whoever reads a tier tells what its segments show, in any order. What is damage to a start, which then
//! refuses the tier, is a remark to whoever wants all that is left.

mod retention;

use crate::format::{Batch, Descriptor, Kind, Summary, TierLayout};
use crate::ranges::ZeroMap;
use crate::types::*;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

pub(crate) use retention::PinReach;
pub use retention::Retention;

/// What says which records a segment of a flash tier holds (R3, R4).
#[derive(Debug)]
pub enum Witness {
    /// Its summary, which lists all of them.
    Summary(Summary),
    /// Its headers, one behind the other from the first on.
    Headers,
    /// Its first header cannot be read, and the summary is that of the present life or of an earlier one: the rest is searched for marks.
    SummaryAndSearch(Summary),
    /// Its first header cannot be read, and no summary stands for it: the rest is searched for marks.
    Search,
}

/// Chooses it. `number` is that of the segment's life by its first header, none where that does not decode; `summary` is what
/// stands at its end; everything up to the batch `synced` is durable.
pub fn witness(number: Option<u64>, summary: Option<Summary>, synced: u64) -> Witness {
    match (number, summary) {
        // Perhaps of an earlier life: its records are all dead, so it does no harm to take them for live ones. What the present life has
        // is behind the header.
        (None, Some(summary)) if summary.last_batch <= synced => Witness::SummaryAndSearch(summary),
        (None, _) => Witness::Search,
        (Some(number), Some(summary)) if summary.segment == number && summary.last_batch <= synced => {
            Witness::Summary(summary)
        }
        // A summary of an earlier life, or of batches that may not all have landed, says nothing.
        (Some(_), _) => Witness::Headers,
    }
}

/// A batch and where its header lies.
#[derive(Debug)]
pub struct FoundBatch {
    /// Index of the segment that it lies in.
    pub segment: u32,
    /// Block of the segment at which the header lies.
    pub at: u32,
    /// What the header says.
    pub batch: Batch,
}

/// What the segments of a flash tier show that are in use.
#[derive(Debug, Default)]
pub struct FoundBatches {
    /// Of each segment the number of its life.
    pub lives: BTreeMap<u32, u64>,
    /// Summaries that stand for their segments.
    pub sealed: BTreeMap<u32, Summary>,
    /// Of the other segments the batches, each number once.
    pub batches: BTreeMap<u64, FoundBatch>,
    /// Batches whose number a later start gave out again: its recovery had cut them off.
    pub cut_off: Vec<FoundBatch>,
    /// Batches that were found behind a header that does not decode, which no walk reaches: number and start.
    pub behind: BTreeSet<(u64, Start)>,
    /// Everything up to this batch was durable once: it is there, or the tier is damaged.
    pub synced: u64,
}

impl FoundBatches {
    /// A summary stands for its segment.
    pub fn seal(&mut self, segment: u32, summary: Summary) {
        self.lives.insert(segment, summary.segment);
        self.sealed.insert(segment, summary);
    }

    /// A header says that everything up to this batch is durable. That is true whatever became of the batch that says it.
    pub fn on_synced(&mut self, through: u64) {
        self.synced = self.synced.max(through);
    }

    /// A batch of a segment whose headers are read one behind the other.
    pub fn add(&mut self, found: FoundBatch) {
        let sequence = found.batch.sequence;
        match self.batches.get(&sequence) {
            Some(other) if other.batch.start >= found.batch.start => self.cut_off.push(found),
            Some(_) => {
                let other = self.batches.insert(sequence, found).expect("looked at above");
                self.cut_off.push(other);
            }
            None => {
                self.batches.insert(sequence, found);
            }
        }
    }

    /// What is missing of the batches that were durable. `checkpointed` is the last of those that the checkpoint knows: segments
    /// with nothing above it may have been freed.
    pub fn damage(&self, checkpointed: u64) -> Option<&'static str> {
        const DAMAGED: &str = "a synced batch in the tier is damaged: an acknowledged write may be in it";
        if self.a_segment_lacks_a_batch() {
            return Some(DAMAGED);
        }
        // No segment with a batch above the checkpoint's can have been freed: all of those must be there.
        if (checkpointed.saturating_add(1)..=self.synced).any(|sequence| !self.batches.contains_key(&sequence)) {
            return Some(DAMAGED);
        }
        // The last segment must hold everything that was synced.
        if self.newest() < self.synced {
            return Some("the end of the log in the tier is damaged: an acknowledged write may be in it");
        }
        // A cut-off life may have left a batch where this log's own one did not land: its start is too low for its place.
        let mut start = Start(0);
        for (&sequence, found) in self.batches.range(..=self.synced) {
            if sequence > checkpointed && found.batch.start < start {
                return Some(DAMAGED);
            }
            start = start.max(found.batch.start);
        }
        None
    }

    /// Batches that were synced are whole unless damaged. They are known by their segment: one that was walked holds an unbroken
    /// run of batches up to where the next segment's begin, or to the end of the log.
    fn a_segment_lacks_a_batch(&self) -> bool {
        let walked =
            self.batches.iter().filter(|(_, found)| found.at == 0).map(|(&first, found)| (first, found.segment));
        let sealed = self.sealed.iter().map(|(&segment, summary)| (summary.first_batch, segment));
        let mut firsts: Vec<(u64, u32)> = walked.chain(sealed).collect();
        firsts.sort_unstable();
        firsts.windows(2).any(|pair| {
            let ((first, segment), (next, next_segment)) = (pair[0], pair[1]);
            // By the count alone: a later start may have opened the next one.
            let follows = self.lives[&next_segment] as u32 == (self.lives[&segment] as u32).wrapping_add(1);
            follows
                && !self.sealed.contains_key(&segment)
                && (first..next.min(self.synced.saturating_add(1)))
                    .any(|sequence| !self.batches.contains_key(&sequence))
        })
    }

    /// The last batch that was found.
    pub fn newest(&self) -> u64 {
        let sealed = self.sealed.values().map(|summary| summary.last_batch).max().unwrap_or(0);
        self.batches.keys().next_back().copied().unwrap_or(0).max(sealed)
    }

    /// The first batch number that is not the log's, as far as the headers say: behind what was synced the first batch that is
    /// missing, or that a life left which was cut off before it, ends the log. So does one whose payload does not match.
    pub fn end(&self) -> Option<u64> {
        let (last, _) = self.last();
        (self.batches.keys().next_back().is_some_and(|&newest| newest > last)).then(|| last + 1)
    }

    /// The batches that are the log's, as far as the headers say, in log order. Up to the batch `checkpointed` segments may have been
    /// freed, so of those the ones that are left stand each for itself. Of the others a start that is lower than one before it
    /// says that its life was cut off: to a start of the volume that is damage where it was synced, to a reader it is none of the log.
    pub fn of_the_log(&self, checkpointed: u64) -> impl Iterator<Item = (u64, &FoundBatch)> {
        let end = self.end();
        let mut start = Start(0);
        let belongs = move |&(&sequence, found): &(&u64, &FoundBatch)| {
            let cut_off = sequence > checkpointed && found.batch.start < start;
            start = start.max(found.batch.start);
            !cut_off
        };
        let before_end = self.batches.iter().take_while(move |(sequence, _)| end.is_none_or(|end| **sequence < end));
        before_end.filter(belongs).map(|(&sequence, found)| (sequence, found))
    }

    /// The log goes on where it seems to end. What a loss of power tore is not found; a batch that is found where no walk leads is in a
    /// segment whose head is damaged: none with a batch above the checkpoint's has been freed, so its head is no next life's. (One
    /// that an earlier start had cut off is of a lower start than the batch before it.)
    pub fn goes_on_behind(&self) -> bool {
        let (last, start) = self.last();
        let Some(next) = last.checked_add(1) else { return false };
        self.behind.range((next, start)..).next().is_some_and(|(sequence, _)| *sequence == next)
    }

    /// The log's last batch, as far as the headers say, and the highest start in it. A summary lists no starts, but the number of its
    /// segment's life says which one opened it, and none of its batches is of an earlier one.
    fn last(&self) -> (u64, Start) {
        let walked = self.batches.range(..=self.synced).map(|(_, found)| found.batch.start);
        let sealed = self.sealed.values().map(|summary| Start((summary.segment >> 32) as u32));
        let mut start = walked.chain(sealed).max().unwrap_or_default();
        let mut last = self.synced;
        for (&sequence, found) in self.unproven() {
            if sequence - last != 1 || found.batch.start < start {
                break;
            }
            (last, start) = (sequence, found.batch.start);
        }
        (last, start)
    }

    /// Batches that may have landed in part, in log order.
    fn unproven(&self) -> impl Iterator<Item = (&u64, &FoundBatch)> {
        use core::ops::Bound::{Excluded, Unbounded};
        self.batches.range((Excluded(self.synced), Unbounded))
    }
}

/// So many entries has the table of a memory tier. What stands behind them, up to the end of the last block, is none.
pub fn table_entries(layout: &TierLayout) -> u32 {
    layout.payload_blocks + layout.ranges_max
}

/// Log order, each record once. Of two copies the later batch's is kept: compaction may have freed the earlier place.
pub fn once_in_log_order<T>(records: &mut Vec<T>, position_and_batch: impl Fn(&T) -> (Lsn, u64)) {
    records.sort_unstable_by_key(|record| {
        let (lsn, batch) = position_and_batch(record);
        (lsn, core::cmp::Reverse(batch))
    });
    records.dedup_by_key(|record| position_and_batch(record).0);
}

/// Of records in log order, each once, those that the log goes on with. The others have ended: the backing has everything up to
/// `destaged`, and no former owner can have taken back what a member does not keep.
pub fn goes_on(records: &[Descriptor], destaged: Lsn, kept: Option<&Retention>) -> Vec<bool> {
    let durable = records.partition_point(|record| record.lsn <= destaged);
    let mut goes_on = match kept {
        None => alloc::vec![false; durable],
        Some(kept) => {
            let history = kept.history_through(destaged);
            let ended = records.partition_point(|record| record.lsn <= history);
            let mut needed = alloc::vec![false; ended];
            needed.extend(kept.needed(&records[ended..durable]));
            needed
        }
    };
    goes_on.resize(records.len(), true);
    goes_on
}

/// Of records in log order those that newer ones of the same group cover: none of their content can be asked for.
pub fn covered<'a>(records: impl DoubleEndedIterator<Item = &'a Descriptor>) -> Vec<bool> {
    let mut sectors: BTreeMap<BlockIndex, SectorMask> = BTreeMap::new();
    let mut zeroed = ZeroMap::default();
    let mut newer_group = None;
    let is_covered = |&Descriptor { lsn, group, block, kind, .. }: &Descriptor| {
        // The records of a group are neighbours in the log.
        if newer_group.replace(group) != Some(group) {
            sectors.clear();
            zeroed = ZeroMap::default();
        }
        match kind {
            Kind::Data { mask, .. } | Kind::ZeroSectors { mask } => {
                let newer = sectors.entry(block).or_default();
                let covered = zeroed.zeroed(block) > Lsn(0) || mask.without(*newer).is_empty();
                *newer = newer.or(mask);
                covered
            }
            Kind::ZeroBlocks { blocks, .. } => {
                zeroed.zero(block, u64::from(blocks), lsn);
                false
            }
        }
    };
    let mut covered: Vec<bool> = records.rev().map(is_covered).collect();
    covered.reverse();
    covered
}
