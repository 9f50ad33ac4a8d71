//! The live records of the log: in log order (a list through the table) and by block (newest first, a chain through
//! the table). A record is live from its acceptance until it is durable in the backing, or superseded.
//!
//! Record ids are places: id i below `payloads` is payload block i of the tier; ids from there on are records without
//! payload (zeroed ranges and sectors).
//!
//! Invariants: the list is strictly ascending in position; a chain is strictly descending; an id is in the list if and
//! only if its position is not 0; the destage cursor points at the first record that is not yet collected. A superseded
//! record that must stay ([`LogIndex::keep_above`]) is in the list and in no chain: nobody reads it, it is only sent.

use super::chunked::Chunked;
use super::free_ids::FreeIds;
use crate::block_map::{self, BlockMap};
use crate::format::{Descriptor, Kind, RANGES_MAX, TIER_BLOCKS_MAX};
use crate::ranges::ZeroMap;
use crate::types::*;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use slab::Slab;
use smallvec::SmallVec;

const _: () = assert!((TIER_BLOCKS_MAX + RANGES_MAX) as u64 <= block_map::VALUE_MAX as u64, "every id fits the index");

/// The id that stands for no record.
pub const NONE: u32 = u32::MAX;

/// How far a record is on its way to the backing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// In the log only.
    Idle,
    /// In the log only, and no longer part of its block's content: it stays until all members hold it (S5).
    Superseded,
    /// Chosen for this round, not issued.
    Queued,
    /// Chosen for a journaled batch: older records were left out of it because this one is in it, so it must stay.
    Batched,
    /// The backing is writing it: must not be forgotten, nor overtaken by a newer write of the same block.
    InFlight,
    /// The backing has completed it but has not synced.
    Written,
}

/// A live record.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// What it is.
    pub descriptor: Descriptor,
    /// Sectors of its block (full for whole-block ranges).
    pub mask: SectorMask,
    /// Way to the backing.
    pub state: State,
    prev: u32,
    next: u32,
    older: u32,
}

impl Record {
    /// It is the whole content of one block: a newer one of its group leaves nothing of it to be written.
    pub fn covers_its_block(&self) -> bool {
        self.mask.is_full() && !matches!(self.descriptor.kind, Kind::ZeroBlocks { .. })
    }
}

const UNUSED: Record = Record {
    descriptor: Descriptor {
        lsn: Lsn(0),
        block: BlockIndex(0),
        group: Group(0),
        term: Term(0),
        kind: Kind::ZeroSectors { mask: SectorMask::NONE },
    },
    mask: SectorMask::NONE,
    state: State::Idle,
    prev: NONE,
    next: NONE,
    older: NONE,
};

/// Where some sectors of a block are to be read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// In this record's payload.
    Record(u32),
    /// Nowhere: they are zeros.
    Zero,
    /// In the backing (or the read cache).
    Backing,
}

/// See the module.
pub struct LogIndex {
    table: Chunked<Record>,
    payloads: u32,
    head: u32,
    tail: u32,
    cursor: u32,
    /// For each reader of the log the first record that it has not seen; [`NONE`]: it has seen all.
    readers: Slab<u32>,
    /// Of them the one that ends superseded records.
    keeper: Option<usize>,
    /// Records above this stay in the list when they are superseded.
    kept_above: Lsn,
    /// Records up to here are not superseded.
    fixed_through: Lsn,
    /// The newest record that has ended an older one.
    superseded_by: Lsn,
    /// Records that have ended, whose places are to be freed.
    ended: VecDeque<u32>,
    /// Nor are those of these blocks, pinned from a position on.
    pinned: ZeroMap,
    /// Of these blocks everything up to a position is history, pinned or not: what was newer there has ended when no pin kept
    /// it, and only a zeroed range is left, because of others of its blocks.
    history: ZeroMap,
    index: BlockMap,
    zeros: ZeroMap,
    free_ids: FreeIds,
    live_payloads: u32,
    live_others: u32,
}

impl LogIndex {
    /// An empty log of a tier with so many payload blocks and records without payload.
    pub fn new(payloads: u32, others: u32) -> LogIndex {
        LogIndex {
            table: Chunked::new((payloads + others) as usize, UNUSED),
            payloads,
            head: NONE,
            tail: NONE,
            cursor: NONE,
            readers: Slab::new(),
            keeper: None,
            kept_above: Lsn(u64::MAX),
            fixed_through: Lsn(0),
            superseded_by: Lsn(0),
            ended: VecDeque::new(),
            pinned: ZeroMap::default(),
            history: ZeroMap::default(),
            index: BlockMap::with_capacity((payloads + others) as usize),
            zeros: ZeroMap::default(),
            free_ids: FreeIds::new(payloads, others),
            live_payloads: 0,
            live_others: 0,
        }
    }

    /// Live payload blocks.
    pub fn payload_blocks(&self) -> u32 {
        self.live_payloads
    }

    /// Records without a payload: zeroed ranges and sectors.
    pub fn others(&self) -> u32 {
        self.live_others
    }

    /// No record is live.
    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Records without payload that can still be accepted.
    pub fn others_left(&self) -> u32 {
        self.free_ids.len() as u32
    }

    /// An id for a record without payload.
    pub fn take_other_id(&mut self) -> u32 {
        self.free_ids.take().expect("admission has checked others_left")
    }

    /// A certain id without payload, found by recovery.
    pub fn claim_other_id(&mut self, id: u32) {
        assert!(self.free_ids.claim(id), "each id is found once");
    }

    /// A record; its position is 0 when it is not live.
    pub fn get(&self, id: u32) -> &Record {
        self.table.get(id)
    }

    /// True while the id still means the record of this position.
    pub fn is_live(&self, id: u32, lsn: Lsn) -> bool {
        self.table.get(id).descriptor.lsn == lsn
    }

    /// Moves a record along its way.
    pub fn set_state(&mut self, id: u32, state: State) {
        self.table.get_mut(id).state = state;
    }

    /// Oldest live record.
    pub fn oldest(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    /// The record after this one.
    pub fn after(&self, id: u32) -> Option<u32> {
        let next = self.table.get(id).next;
        (next != NONE).then_some(next)
    }

    /// First record that destage has not collected.
    pub fn cursor(&self) -> Option<u32> {
        (self.cursor != NONE).then_some(self.cursor)
    }

    /// Destage has collected the record at the cursor.
    pub fn advance_cursor(&mut self) {
        self.cursor = self.first_current(self.table.get(self.cursor).next);
    }

    /// The first record from this one on that is not superseded: destage passes over the others.
    fn first_current(&self, mut id: u32) -> u32 {
        while id != NONE && self.table.get(id).state == State::Superseded {
            id = self.table.get(id).next;
        }
        id
    }

    /// Destage starts again from the oldest record after `durable`, whatever state the records were in.
    pub fn rewind_cursor(&mut self, durable: Lsn) {
        let mut id = self.head;
        while id != NONE && self.table.get(id).descriptor.lsn <= durable {
            id = self.table.get(id).next;
        }
        let first = id;
        while id != NONE && id != self.cursor {
            let record = self.table.get_mut(id);
            assert_ne!(record.state, State::InFlight, "rewound while a write is in flight");
            if record.state != State::Superseded {
                record.state = State::Idle;
            }
            id = record.next;
        }
        self.cursor = self.first_current(first);
    }

    // --- readers ---

    /// A reader begins behind a position.
    pub fn begin_reading(&mut self, after: Lsn) -> usize {
        let reader = self.readers.insert(NONE);
        self.seek(reader, after);
        reader
    }

    /// A reader ends.
    pub fn end_reading(&mut self, reader: usize) {
        self.readers.remove(reader);
    }

    /// The first record that a reader has not seen.
    pub fn next_of(&self, reader: usize) -> Option<u32> {
        Some(self.readers[reader]).filter(|id| *id != NONE)
    }

    /// The reader has seen that one.
    pub fn advance(&mut self, reader: usize) {
        self.readers[reader] = self.table.get(self.readers[reader]).next;
    }

    /// The reader goes on behind a position. It steps from where it is: readers move in small steps.
    pub fn seek(&mut self, reader: usize, after: Lsn) {
        let mut id = self.readers[reader];
        if id == NONE {
            id = self.tail;
        }
        while id != NONE && self.table.get(id).descriptor.lsn > after {
            id = self.table.get(id).prev;
        }
        // At or before the position, or before the first record.
        id = if id == NONE { self.head } else { id };
        while id != NONE && self.table.get(id).descriptor.lsn <= after {
            id = self.table.get(id).next;
        }
        self.readers[reader] = id;
    }

    /// Superseded records above this position stay until this is told again with a greater one; those up to it end,
    /// see [`LogIndex::take_ended`]. `Lsn(u64::MAX)`: none stays. It does not go back, except from there: what may have ended
    /// below it is needed by nobody.
    pub fn keep_above(&mut self, lsn: Lsn) {
        let none_stayed = self.kept_above == Lsn(u64::MAX);
        if lsn == self.kept_above || (lsn < self.kept_above && !none_stayed) {
            return;
        }
        self.kept_above = lsn;
        let keeper = match self.keeper {
            Some(keeper) => keeper,
            None => *self.keeper.insert(self.readers.insert(NONE)),
        };
        if none_stayed {
            self.seek(keeper, lsn);
        }
        while let Some(id) = self.next_of(keeper)
            && self.table.get(id).descriptor.lsn <= lsn
        {
            if self.table.get(id).state == State::Superseded {
                self.unlink(id); // which moves the reader on
                self.ended.push_back(id);
            } else {
                self.advance(keeper);
            }
        }
    }

    /// The next of the records that newer ones have ended: its place is to be freed.
    pub fn take_ended(&mut self) -> Option<u32> {
        self.ended.pop_front()
    }

    /// The newest record that has ended an older one, or nothing. Whatever records have ended by being superseded, their
    /// blocks are whole wherever the log holds everything up to here.
    pub fn superseded_by(&self) -> Lsn {
        self.superseded_by
    }

    /// Records up to here are part of their block whatever comes (D4).
    pub fn fix_through(&mut self, lsn: Lsn) {
        self.fixed_through = lsn;
    }

    // --- pins ---

    /// These blocks are pinned by a window that begins behind a position (T5): what is older than all of a block's windows
    /// was in the backing before, and is history.
    pub fn pin(&mut self, first: BlockIndex, blocks: u64, above: Lsn) {
        let (mut at, end) = (first, first.0 + blocks);
        while at.0 < end {
            let next = self.pinned.next_change(at).0.clamp(at.0 + 1, end);
            let known = self.pinned.zeroed(at);
            let since = if known > Lsn(0) { known.min(above.next()) } else { above.next() };
            self.pinned.zero(at, next - at.0, since);
            at = BlockIndex(next);
        }
    }

    /// No block is.
    pub fn unpin_all(&mut self) {
        self.pinned = ZeroMap::default();
    }

    /// No window is left: what stayed because of one ends.
    pub fn forget_history(&mut self) {
        self.history = ZeroMap::default();
    }

    /// Of these blocks a zeroed range says nothing any more: the backing has what is newer.
    fn make_history(&mut self, first: BlockIndex, blocks: u64, lsn: Lsn) {
        self.zeros.forget(first, blocks, lsn);
        let (mut at, end) = (first, first.0 + blocks);
        while at.0 < end {
            let next = self.history.next_change(at).0.clamp(at.0 + 1, end);
            if self.history.zeroed(at) < lsn {
                self.history.zero(at, next - at.0, lsn);
            }
            at = BlockIndex(next);
        }
    }

    fn is_pinned(&self, block: BlockIndex) -> bool {
        self.pinned.zeroed(block) > Lsn(0)
    }

    /// It is, and a record of this position is not older than the window, nor history.
    fn is_pinned_for(&self, block: BlockIndex, lsn: Lsn) -> bool {
        self.is_pinned(block) && lsn >= self.pinned.zeroed(block) && lsn > self.history.zeroed(block)
    }

    /// Where [`LogIndex::is_pinned_for`] may change at the earliest, up to `end`.
    fn next_pin_change(&self, at: BlockIndex, end: u64) -> u64 {
        let next = self.pinned.next_change(at).min(self.history.next_change(at));
        next.0.clamp(at.0 + 1, end)
    }

    /// Parts of a record's range that are pinned.
    fn pinned_parts(&self, first: BlockIndex, blocks: u64, lsn: Lsn) -> Vec<(BlockIndex, u64)> {
        let (mut at, end) = (first, first.0 + blocks);
        let mut parts = Vec::new();
        while at.0 < end {
            let next = self.next_pin_change(at, end);
            if self.is_pinned_for(at, lsn) {
                parts.push((at, next - at.0));
            }
            at = BlockIndex(next);
        }
        parts
    }

    /// A zeroed range that stays only because of pins says nothing any more of the blocks that are not pinned: what is newer
    /// there has ended, and the backing has it.
    pub fn confine_to_pinned(&mut self, id: u32) {
        let Descriptor { lsn, block, kind, .. } = self.table.get(id).descriptor;
        let Kind::ZeroBlocks { blocks, .. } = kind else { return };
        let (mut at, end) = (block, block.0 + u64::from(blocks));
        while at.0 < end {
            let next = self.next_pin_change(at, end);
            if !self.is_pinned_for(at, lsn) {
                self.make_history(at, next - at.0, lsn);
            }
            at = BlockIndex(next);
        }
    }

    /// Up to the watermark, which parts of pinned blocks are zeros by the word of which record.
    pub fn pinned_zeros(&self, watermark: Lsn) -> Vec<(u32, Vec<(BlockIndex, u64)>)> {
        let mut zeros = ZeroMap::default();
        let mut ranges = Vec::new();
        let mut id = self.head;
        while id != NONE && self.table.get(id).descriptor.lsn <= watermark {
            let Descriptor { lsn, block, kind, .. } = self.table.get(id).descriptor;
            if let Kind::ZeroBlocks { blocks, .. } = kind {
                for (first, count) in self.pinned_parts(block, u64::from(blocks), lsn) {
                    zeros.zero(first, count, lsn);
                }
                ranges.push((id, lsn, block, u64::from(blocks)));
            }
            id = self.table.get(id).next;
        }
        ranges.into_iter().map(|(id, lsn, block, blocks)| (id, zeros.pieces(block, blocks, lsn))).collect()
    }

    /// Of records up to the watermark this one has the newest content of something in a pinned block.
    pub fn is_newest_pinned(&self, id: u32, watermark: Lsn) -> bool {
        let record = self.table.get(id);
        let Descriptor { lsn, block, kind, .. } = record.descriptor;
        if lsn > watermark || record.state == State::Superseded {
            return false;
        }
        if let Kind::ZeroBlocks { blocks, .. } = kind {
            return !self.pinned_parts(block, u64::from(blocks), lsn).is_empty();
        }
        let zeroed = self.zeros.zeroed(block);
        if !self.is_pinned_for(block, lsn) || (lsn < zeroed && zeroed <= watermark) {
            return false;
        }
        let mut left = record.mask;
        let mut newer = self.newest(block);
        while newer != id {
            assert_ne!(newer, NONE, "a live record is in its block's chain");
            let other = self.table.get(newer);
            if other.descriptor.lsn <= watermark {
                left = left.without(other.mask);
            }
            newer = other.older;
        }
        !left.is_empty()
    }

    /// True when an older record of the same block is being written by the backing, or is chosen and still to be: its turn may
    /// have come before, and something was missing for it.
    pub fn overtakes(&self, id: u32) -> bool {
        self.has_older(id, |state| matches!(state, State::InFlight | State::Queued | State::Batched))
    }

    /// True when an older record of the same block is in such a state.
    pub fn has_older(&self, id: u32, such: impl Fn(State) -> bool) -> bool {
        let mut older = self.table.get(id).older;
        while older != NONE {
            let record = self.table.get(older);
            if such(record.state) {
                return true;
            }
            older = record.older;
        }
        false
    }

    /// Accepts a record at the end of the log. With `supersede`, older records of the same barrier group whose every
    /// sector it covers, and which the backing is not writing right now, end here: see [`LogIndex::take_ended`].
    pub fn append(&mut self, id: u32, descriptor: Descriptor, supersede: bool) {
        debug_assert!(self.tail == NONE || self.table.get(self.tail).descriptor.lsn < descriptor.lsn);
        let mask = match descriptor.kind {
            Kind::Data { mask, .. } | Kind::ZeroSectors { mask } => mask,
            Kind::ZeroBlocks { .. } => SectorMask::FULL,
        };
        match descriptor.kind {
            Kind::Data { .. } | Kind::ZeroSectors { .. } => {
                let older = if supersede {
                    self.end_covered(&descriptor, descriptor.block, mask)
                } else {
                    self.newest(descriptor.block)
                };
                self.link(id, descriptor, mask, older);
                self.index.insert(descriptor.block, id);
            }
            Kind::ZeroBlocks { blocks, .. } => {
                let (first, count) = (descriptor.block, u64::from(blocks));
                let inside = if supersede { self.index.within(first, count) } else { Vec::new() };
                for (block, _) in inside {
                    self.end_covered_and_reindex(&descriptor, block);
                }
                self.zeros.zero(first, count, descriptor.lsn);
                self.link(id, descriptor, mask, NONE);
            }
        }
        if id < self.payloads {
            self.live_payloads += 1;
        } else {
            self.live_others += 1;
        }
    }

    fn link(&mut self, id: u32, descriptor: Descriptor, mask: SectorMask, older: u32) {
        let tail = self.tail;
        let record = self.table.get_mut(id);
        debug_assert_eq!(record.descriptor.lsn, Lsn(0), "the place is taken");
        *record = Record { descriptor, mask, state: State::Idle, prev: tail, next: NONE, older };
        if tail == NONE {
            self.head = id;
        } else {
            self.table.get_mut(tail).next = id;
        }
        self.tail = id;
        if self.cursor == NONE {
            self.cursor = id;
        }
        for (_, reader) in &mut self.readers {
            if *reader == NONE {
                *reader = id;
            }
        }
    }

    fn newest(&self, block: BlockIndex) -> u32 {
        self.index.get(block).unwrap_or(NONE)
    }

    /// Ends the records at the head of a block's chain that `by` supersedes; the first that stays.
    fn end_covered(&mut self, by: &Descriptor, block: BlockIndex, mask: SectorMask) -> u32 {
        let mut id = self.newest(block);
        while id != NONE {
            let record = *self.table.get(id);
            let same_group = record.descriptor.group == by.group;
            let pinned = matches!(record.state, State::InFlight | State::Batched)
                || record.descriptor.lsn <= self.fixed_through
                || (!self.pinned.is_empty() && self.is_pinned(block));
            if !same_group || pinned || !record.mask.without(mask).is_empty() {
                break;
            }
            self.superseded_by = by.lsn;
            if record.descriptor.lsn > self.kept_above {
                let kept = self.table.get_mut(id);
                (kept.state, kept.older) = (State::Superseded, NONE);
                self.cursor = self.first_current(self.cursor);
            } else {
                self.unlink(id);
                self.ended.push_back(id);
            }
            id = record.older;
        }
        id
    }

    fn end_covered_and_reindex(&mut self, by: &Descriptor, block: BlockIndex) {
        let before = self.newest(block);
        let after = self.end_covered(by, block, SectorMask::FULL);
        if after == NONE {
            self.index.remove(block);
        } else if after != before {
            self.index.insert(block, after);
        }
    }

    /// Takes a record out of the list and makes its id free; chains are the caller's.
    fn unlink(&mut self, id: u32) {
        let Record { prev, next, .. } = *self.table.get(id);
        if prev == NONE {
            self.head = next;
        } else {
            self.table.get_mut(prev).next = next;
        }
        if next == NONE {
            self.tail = prev;
        } else {
            self.table.get_mut(next).prev = prev;
        }
        if self.cursor == id {
            self.cursor = self.first_current(next);
        }
        for (_, reader) in &mut self.readers {
            if *reader == id {
                *reader = next;
            }
        }
        *self.table.get_mut(id) = UNUSED;
        if id < self.payloads {
            self.live_payloads -= 1;
        } else {
            self.live_others -= 1;
            self.free_ids.give_back(id);
        }
    }

    /// Of these blocks the record says nothing any more: the backing has what is newer.
    pub fn confine(&mut self, id: u32, history: &[(BlockIndex, u64)]) {
        let descriptor = self.table.get(id).descriptor;
        if let Kind::ZeroBlocks { .. } = descriptor.kind {
            for &(first, blocks) in history {
                self.make_history(first, blocks, descriptor.lsn);
            }
        }
    }

    /// A record is durable in the backing: it ends. Returns what it was, and whether its payload is the whole newest
    /// content of its block, so that it may stay as clean cache.
    pub fn retire(&mut self, id: u32) -> (Descriptor, bool) {
        let record = *self.table.get(id);
        let descriptor = record.descriptor;
        let mut newest_and_whole = false;
        match descriptor.kind {
            // It is in no chain any more.
            _ if record.state == State::Superseded => {}
            Kind::Data { .. } | Kind::ZeroSectors { .. } => {
                let newest = self.newest(descriptor.block);
                if newest == id {
                    newest_and_whole = descriptor.has_payload()
                        && record.mask.is_full()
                        && self.zeros.zeroed(descriptor.block) < descriptor.lsn;
                    if record.older == NONE {
                        self.index.remove(descriptor.block);
                    } else {
                        self.index.insert(descriptor.block, record.older);
                    }
                } else {
                    self.relink_chain(newest, id, record.older);
                }
            }
            Kind::ZeroBlocks { blocks, .. } => self.zeros.forget(descriptor.block, u64::from(blocks), descriptor.lsn),
        }
        self.unlink(id);
        (descriptor, newest_and_whole)
    }

    /// In the chain that begins at `from`, whoever points to `old` points to `new` instead.
    fn relink_chain(&mut self, from: u32, old: u32, new: u32) {
        let mut at = from;
        loop {
            assert_ne!(at, NONE, "a live record is in its block's chain");
            let record = self.table.get_mut(at);
            if record.older == old {
                record.older = new;
                return;
            }
            at = record.older;
        }
    }

    /// A record's payload has moved to another place (compaction): it keeps position, list and chain.
    pub fn relocate(&mut self, old: u32, new: u32) {
        let record = *self.table.get(old);
        debug_assert_eq!(record.state, State::Idle);
        let newest = self.newest(record.descriptor.block);
        if newest == old {
            self.index.insert(record.descriptor.block, new);
        } else {
            self.relink_chain(newest, old, new);
        }
        *self.table.get_mut(new) = record;
        *self.table.get_mut(old) = UNUSED;
        if record.prev == NONE {
            self.head = new;
        } else {
            self.table.get_mut(record.prev).next = new;
        }
        if record.next == NONE {
            self.tail = new;
        } else {
            self.table.get_mut(record.next).prev = new;
        }
        if self.cursor == old {
            self.cursor = new;
        }
        for (_, reader) in &mut self.readers {
            if *reader == old {
                *reader = new;
            }
        }
    }

    /// True when neither a record nor a zeroing is live for the block: its content is the backing's.
    pub fn is_clean(&self, block: BlockIndex) -> bool {
        self.index.get(block).is_none() && (self.zeros.is_empty() || self.zeros.zeroed(block) == Lsn(0))
    }

    /// Position of the newest dirty zeroing of a block.
    pub fn zeroed(&self, block: BlockIndex) -> Lsn {
        self.zeros.zeroed(block)
    }

    /// First block after this one at which zeroing may change.
    pub fn next_zero_change(&self, block: BlockIndex) -> BlockIndex {
        self.zeros.next_change(block)
    }

    /// Newest record of a block.
    pub fn newest_record(&self, block: BlockIndex) -> Option<u32> {
        self.index.get(block)
    }

    /// The newest of the records above a position that have some of the wanted sectors of a block; 0: there is none.
    pub fn newest_above(&self, lsn: Lsn, block: BlockIndex, wanted: SectorMask) -> Lsn {
        let zeroed = if self.zeros.is_empty() { Lsn(0) } else { self.zeros.zeroed(block) };
        let floor = lsn.max(zeroed);
        let mut id = self.newest(block);
        while id != NONE {
            let Record { descriptor, mask, older, .. } = self.table.get(id);
            if descriptor.lsn <= floor {
                break;
            }
            if !mask.and(wanted).is_empty() {
                return descriptor.lsn;
            }
            id = *older;
        }
        if zeroed > lsn { zeroed } else { Lsn(0) }
    }

    /// Where the wanted sectors of a block are, newest content first.
    pub fn find(&self, block: BlockIndex, wanted: SectorMask) -> SmallVec<[(SectorMask, Found); 2]> {
        let mut found = SmallVec::new();
        let mut left = wanted;
        let zeroed = if self.zeros.is_empty() { Lsn(0) } else { self.zeros.zeroed(block) };
        let mut id = self.newest(block);
        while id != NONE && !left.is_empty() {
            let record = self.table.get(id);
            if record.descriptor.lsn < zeroed {
                break;
            }
            let here = record.mask.and(left);
            if !here.is_empty() {
                let source = if record.descriptor.has_payload() { Found::Record(id) } else { Found::Zero };
                found.push((here, source));
                left = left.without(here);
            }
            id = record.older;
        }
        if !left.is_empty() {
            found.push((left, if zeroed > Lsn(0) { Found::Zero } else { Found::Backing }));
        }
        found
    }

    /// Walks everything and asserts the module's invariants.
    pub fn validate(&self) {
        let (mut id, mut before, mut lsn) = (self.head, NONE, Lsn(0));
        let (mut payloads, mut others, mut seen_cursor) = (0, 0, self.cursor == NONE);
        while id != NONE {
            let record = self.table.get(id);
            assert!(record.descriptor.lsn > lsn, "the list ascends");
            assert_eq!(record.prev, before);
            seen_cursor |= id == self.cursor;
            if record.state == State::Superseded {
                assert!(record.descriptor.lsn > self.kept_above, "what is superseded and need not stay has ended");
                assert_ne!(id, self.cursor, "destage passes over what is superseded");
            } else if seen_cursor && self.cursor != NONE {
                assert_eq!(record.state, State::Idle, "uncollected records are idle");
            } else {
                assert_ne!(record.state, State::Idle, "collected records are on their way");
            }
            if id < self.payloads {
                payloads += 1
            } else {
                others += 1
            }
            if record.older != NONE {
                assert!(self.table.get(record.older).descriptor.lsn < record.descriptor.lsn, "chains descend");
                assert_eq!(self.table.get(record.older).descriptor.block, record.descriptor.block);
            }
            lsn = record.descriptor.lsn;
            before = id;
            id = record.next;
        }
        assert!(seen_cursor);
        assert_eq!(before, self.tail);
        assert_eq!((payloads, others), (self.live_payloads, self.live_others));
        for (block, id) in self.index.iter() {
            assert_eq!(self.table.get(id).descriptor.block, block);
            assert_ne!(self.table.get(id).descriptor.lsn, Lsn(0));
            assert_ne!(self.table.get(id).state, State::Superseded, "nobody reads what is superseded");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule 3 of destage: what is chosen and not yet completed is not overtaken, wherever it waits.
    #[test]
    fn a_record_overtakes_each_older_one_of_its_block_that_is_still_to_be_written() {
        for state in [State::Idle, State::Queued, State::Batched, State::InFlight, State::Written] {
            let mut live = LogIndex::new(4, 4);
            for (id, mask) in [(0, 0b0000_1111), (1, 0b0011_0000), (2, 0b1111_0000)] {
                let kind = Kind::Data { mask: SectorMask(mask), checksum: 0 };
                let lsn = Lsn(u64::from(id) + 1);
                let descriptor = Descriptor { lsn, block: BlockIndex(7), group: Group(1), term: Term(1), kind };
                live.append(id, descriptor, false);
            }
            live.set_state(0, state);
            let is_chosen = matches!(state, State::Queued | State::Batched | State::InFlight);
            assert_eq!([0, 1, 2].map(|id| live.overtakes(id)), [false, is_chosen, is_chosen], "{state:?}");
        }
    }
}
