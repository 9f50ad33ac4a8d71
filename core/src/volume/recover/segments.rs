//! What was found in the segments of a flash tier, put together: what is in use, the records there are, and what must be erased
//! and written again before anything relies on it.
//!
//! - Of a segment either its summary counts or its batches do ([`crate::log`] has decided which).
//! - Whatever was cut off is erased, and what may lie behind the end of what is kept: it may be gone from sight only.
//! - What was not full when its process died is never written to again: without a summary its head would be the only witness.

use super::*;
use crate::format::TierLayout;

/// What of a segment is in use.
pub(super) struct InUse {
    /// Of its life.
    number: u64,
    /// Blocks of it that hold something, from its start on.
    used: u32,
    last_batch: u64,
}

/// What a start still has to do on a flash tier.
pub(in super::super) struct ToRewrite {
    /// Batches to be written again: they were not durable.
    pub(in super::super) kept: Vec<FoundBatch>,
    /// Blocks to be erased: segment, and place in it.
    pub(in super::super) erase: Vec<(u32, u32)>,
    /// Summaries to be written, where one has room for its segment.
    pub(in super::super) half_full: BTreeMap<u32, Summary>,
    /// Segments that are in use.
    pub(in super::super) in_use: BTreeSet<u32>,
}

/// See the module.
pub(super) struct Segments {
    layout: TierLayout,
    in_use: BTreeMap<u32, InUse>,
    records: Vec<FoundRecord>,
    /// Everything up to this batch was durable once.
    synced: u64,
    /// The last batch that counts, and the last position that the log must not give out again.
    last_batch: u64,
    last: Lsn,
    /// Batches that were not durable, and are kept.
    kept: Vec<FoundBatch>,
    /// Blocks to be erased: segment, and place in it.
    erase: Vec<(u32, u32)>,
    /// Of segments whose batches count, what a summary says of them.
    half_full: BTreeMap<u32, Summary>,
}

impl Segments {
    /// With the number of each segment's life.
    pub(super) fn new(layout: TierLayout, lives: BTreeMap<u32, u64>, synced: u64, last: Lsn) -> Segments {
        let in_use = |(segment, number)| (segment, InUse { number, used: 0, last_batch: 0 });
        Segments {
            layout,
            in_use: lives.into_iter().map(in_use).collect(),
            records: Vec::new(),
            synced,
            last_batch: synced,
            last,
            kept: Vec::new(),
            erase: Vec::new(),
            half_full: BTreeMap::new(),
        }
    }

    fn data_blocks(&self) -> u32 {
        self.layout.segment_blocks - self.layout.summary_blocks
    }

    /// The batch's positions were given out.
    pub(super) fn note_positions(&mut self, found: &FoundBatch) {
        self.last = found.batch.records.iter().map(|record| record.lsn).fold(self.last, Lsn::max);
    }

    /// The batch counts.
    pub(super) fn take_batch(&mut self, found: FoundBatch) {
        let sequence = found.batch.sequence;
        self.last_batch = self.last_batch.max(sequence);
        let used = self.in_use.get_mut(&found.segment).expect("its head was read");
        let told = self.half_full.entry(found.segment).or_insert_with(|| Summary {
            segment: used.number,
            first_batch: sequence,
            last_batch: sequence,
            records: Vec::new(),
        });
        told.last_batch = sequence;
        let mut at = found.at + 1;
        for &descriptor in &found.batch.records {
            let (id, payload) = if descriptor.has_payload() {
                at += 1;
                (found.segment * self.layout.segment_blocks + at - 1, at - 1)
            } else {
                (NONE, 0)
            };
            told.records.push((descriptor, payload));
            self.records.push(FoundRecord { descriptor, id, batch: sequence, segment: found.segment });
        }
        used.used = used.used.max(at);
        used.last_batch = used.last_batch.max(sequence);
        if sequence > self.synced {
            self.kept.push(found);
        }
    }

    /// The batch does not count, and must not be taken for the continuation of what is written from here on.
    pub(super) fn cut_off(&mut self, found: &FoundBatch) {
        self.erase.push((found.segment, found.at));
    }

    /// The end of what is kept: what was cut off there before may be gone from sight only.
    pub(super) fn erase_behind_ends(&mut self, sealed: &BTreeMap<u32, Summary>) {
        let data_blocks = self.data_blocks();
        for (&segment, InUse { used, .. }) in &self.in_use {
            if !sealed.contains_key(&segment) && *used < data_blocks {
                self.erase.push((segment, *used));
            }
        }
    }

    /// The summary counts, for all of its segment.
    pub(super) fn take_summary(&mut self, segment: u32, summary: Summary) {
        self.last_batch = self.last_batch.max(summary.last_batch);
        for (descriptor, payload) in summary.records {
            self.last = self.last.max(descriptor.lsn);
            let at = segment * self.layout.segment_blocks;
            let id = if descriptor.has_payload() { at.saturating_add(payload) } else { NONE };
            self.records.push(FoundRecord { descriptor, id, batch: summary.last_batch, segment });
        }
        let used = self.data_blocks();
        let known = self.in_use.get_mut(&segment).expect("its head was read");
        (known.used, known.last_batch) = (used, summary.last_batch);
    }

    /// A summary that lists batches which are cut off would bring them back once the numbers have grown past it; so would one
    /// that was erased and is gone from sight only. `summaries`: the last batch that each one which was found speaks of; `left`:
    /// segments that are not in use, and have something in the place of their summary.
    pub(super) fn erase_false_summaries(&mut self, summaries: &BTreeMap<u32, u64>, left: &[u32]) {
        let data_blocks = self.data_blocks();
        let untold = self.in_use.keys().filter(|segment| !summaries.contains_key(segment));
        let lying = summaries.iter().filter(|(_, last)| **last > self.last_batch).map(|(segment, _)| segment);
        self.erase.extend(untold.chain(lying).chain(left).map(|&segment| (segment, data_blocks)));
    }

    /// What was found, in no order.
    pub(super) fn take_records(&mut self) -> Vec<FoundRecord> {
        core::mem::take(&mut self.records)
    }

    /// The highest count of a segment's life among those that are in use.
    pub(super) fn counter_max(&self) -> u32 {
        self.in_use.values().map(|segment| segment.number as u32).max().unwrap_or(0)
    }

    /// The last position and the last batch.
    pub(super) fn last(&self) -> (Lsn, u64) {
        (self.last, self.last_batch)
    }

    /// What is in use is not written over.
    pub(super) fn restore(&self, flash: &mut FlashLog) {
        for (&segment, InUse { number, used, last_batch }) in &self.in_use {
            flash.restore_segment(segment, *number, *used, *last_batch);
        }
    }

    /// What is left to be done on the tier.
    pub(super) fn into_rewrites(mut self) -> ToRewrite {
        let capacity = Summary::capacity(self.layout.summary_blocks);
        self.half_full.retain(|_, summary| summary.records.len() <= capacity);
        let in_use = self.in_use.into_keys().collect();
        ToRewrite { kept: self.kept, erase: self.erase, half_full: self.half_full, in_use }
    }
}
