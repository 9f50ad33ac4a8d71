//! The log on flash: segments filled one after another by batches, each batch one write of a header block and its
//! payload. This file owns places and their life; `append.rs` decides what goes in.
//!
//! A segment's life: free -> open (batches are appended) -> sealed (its summary is written) -> drained (nothing live
//! in it) -> free again, but only when a durable checkpoint knows every batch begun until then to be durable: what made
//! its records superfluous (a newer write, a compacted copy) may lie in one of them and must survive before they are
//! overwritten; and recovery relies on every batch above the checkpoint's still being there.

use crate::format::*;
use crate::types::*;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Moved records of one batch, while more are being read.
const MOVED_RECORDS_MIN: usize = 8;
/// Batches being written at one time. Two keep the device busy while the next collects; more would only make
/// batches smaller.
pub const BATCHES_IN_FLIGHT_MAX: usize = 2;

/// So many records under way at a time are few, see [`FlashLog::is_worth_writing`].
const FEW_RECORDS: usize = 8;

/// What is known of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// May be opened.
    Free,
    /// Batches are appended to it.
    Open,
    /// Full; its summary is on its way or written.
    Sealed,
    /// Nothing live in it; free as soon as this batch and all before it are durable and a checkpoint says so.
    Drained(u64),
    /// Its first block is being overwritten with zeros. Without that, a first batch of its next life that lands in
    /// part would leave the old head over destroyed batches, which recovery must take for damage.
    Erasing,
    /// Erased when so many syncs had begun: free after a later one.
    Erased(u64),
}

/// What is known of one segment of the tier.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Grows with every opening of any segment; written in its batches. See [`segment_number`].
    pub number: u64,
    /// Where it is between free and free again.
    pub life: Life,
    /// Live records whose descriptor lies here.
    pub live: u32,
    /// Blocks given to batches, from its start on, written or not yet.
    pub used: u32,
    /// Reads and writes under way in it.
    pub busy: u32,
    /// Places in it that reads under way still have to read, see [`super::read`]. They keep it from being used again, and from nothing
    /// else: what is live in it may be moved elsewhere meanwhile.
    pub read_by: u32,
    /// Found by recovery: the last batch in it. The segment is not overwritten before a later batch is durable:
    /// recovery takes a log that does not reach the batches the checkpoint vouches for as damaged.
    pub last_batch: u64,
    /// Compaction could not read a record in it, and is not to try again and again.
    pub unreadable: bool,
    /// Compaction found every live record in it on its way to the backing: not worth a look until one of them has ended.
    pub on_its_way: bool,
}

const UNUSED: Segment = Segment {
    number: 0,
    life: Life::Free,
    live: 0,
    used: 0,
    busy: 0,
    read_by: 0,
    last_batch: 0,
    unreadable: false,
    on_its_way: false,
};

/// Number of a segment's life: which start opened it, and a count over all lives. The count shows which segment follows
/// which; the start makes the number new, though one may have opened segments of which no later one finds a trace.
pub fn segment_number(start: Start, count: u32) -> u64 {
    u64::from(start.0) << 32 | u64::from(count)
}

/// The number of the segment that is opened next.
pub fn following_number(number: u64) -> u64 {
    number & !u64::from(u32::MAX) | u64::from((number as u32).wrapping_add(1))
}

/// A batch that collects, waits for its write, or is being written.
#[derive(Debug)]
pub struct Building {
    /// Index of the segment that it goes to.
    pub segment: u32,
    /// Header block, counted from the tier's start.
    pub at: TierBlock,
    /// Number in the log.
    pub sequence: u64,
    /// Descriptors, in the order of their payloads.
    pub records: Vec<Descriptor>,
    /// Frames of the payload, pinned.
    pub frames: Vec<FrameId>,
    /// Highest position first written here (compaction repeats older ones).
    pub lsn_max: Lsn,
    /// Clients' writes that end here.
    pub writes: u64,
}

/// A write the log owes to the device, in order.
#[derive(Debug)]
pub enum Owed {
    /// A full or sealed batch.
    Batch(Building),
    /// A full segment's summary.
    Summary {
        /// Index of the segment that it is about.
        segment: u32,
        /// First block, counted from the tier's start.
        at: TierBlock,
        /// The encoded summary, in whole blocks.
        bytes: Vec<u8>,
    },
}

/// A batch being written.
#[derive(Debug)]
pub struct Flying {
    /// Number in the log.
    pub sequence: u64,
    /// Index of the segment that it goes to.
    pub segment: u32,
    /// Header block, counted from the tier's start.
    pub at: TierBlock,
    /// Highest position first written here.
    pub lsn_max: Lsn,
    /// Clients' writes that end here.
    pub writes: u64,
    /// When it was submitted.
    pub begun: Instant,
    /// How many it has.
    pub records: usize,
    /// Frames of the payload, pinned until it has completed.
    pub frames: Vec<FrameId>,
    /// Completed; waits for those before it.
    pub done: bool,
}

/// See the module.
pub struct FlashLog {
    layout: TierLayout,
    /// All segments of the tier, by index.
    pub segments: Vec<Segment>,
    open: Option<u32>,
    /// Entries of the open segment's summary.
    entries: Vec<(Descriptor, u32)>,
    first_batch: u64,
    next_number: u64,
    next_batch: u64,
    building: Option<Building>,
    /// Closed batches and summaries that wait for a place in flight.
    pub owed: VecDeque<Owed>,
    /// Batches in flight in order of their number.
    pub flying: VecDeque<Flying>,
    /// Records that were on their way when a batch was last completed.
    under_way: usize,
    /// Records that compaction is reading, to move them.
    pub loads: u32,
    /// Highest batch with all before it completed.
    pub batch_held: u64,
    /// Highest batch with all before it durable.
    pub batch_synced: u64,
    /// Highest batch that a durable checkpoint knows to be durable.
    pub batch_checkpointed: u64,
    syncs_begun: u64,
    /// Blocks completed since the last sync began.
    pub unsynced_blocks: u32,
    /// Segment of each record without payload, by id minus the payload blocks.
    pub other_segment: Vec<u32>,
    /// Records whose payload may be nowhere but in the frame from which their batch is being written: those that cover part of
    /// a block, those that left the cache under such a one, and those that compaction moves.
    staged: BTreeMap<u32, FrameId>,
    free: u32,
    /// Segments in [`Life::Drained`].
    drained: Vec<u32>,
    /// Segments in [`Life::Erasing`] and [`Life::Erased`].
    erasing: u32,
    erased: u32,
    /// What the newest checkpoint that was begun says to be durable, and how many segments were opened since.
    batch_told: u64,
    opened_since_told: u32,
}

impl FlashLog {
    /// All segments free.
    pub fn new(layout: TierLayout) -> FlashLog {
        let count = layout.segments();
        FlashLog {
            layout,
            segments: (0..count).map(|_| UNUSED).collect(),
            open: None,
            entries: Vec::with_capacity(layout.segment_blocks as usize),
            first_batch: 0,
            next_number: following_number(segment_number(Start(1), 0)),
            next_batch: 1,
            building: None,
            owed: VecDeque::new(),
            flying: VecDeque::new(),
            under_way: 0,
            loads: 0,
            batch_held: 0,
            batch_synced: 0,
            batch_checkpointed: 0,
            syncs_begun: 0,
            unsynced_blocks: 0,
            other_segment: (0..layout.ranges_max).map(|_| u32::MAX).collect(),
            staged: BTreeMap::new(),
            free: count,
            drained: Vec::with_capacity(count as usize),
            erasing: 0,
            erased: 0,
            batch_told: 0,
            opened_since_told: 0,
        }
    }

    /// Blocks of a segment that batches may use.
    pub fn segment_data_blocks(&self) -> u32 {
        self.layout.segment_blocks - self.layout.summary_blocks
    }

    /// Tier block of a payload id.
    pub fn place(&self, id: u32) -> TierBlock {
        TierBlock(self.layout.payload_first + id)
    }

    /// Segment of a payload id.
    pub fn segment_of(&self, id: u32) -> u32 {
        if id < self.layout.payload_blocks {
            id / self.layout.segment_blocks
        } else {
            self.other_segment[(id - self.layout.payload_blocks) as usize]
        }
    }

    /// Segments that can be opened now.
    pub fn free_segments(&self) -> u32 {
        self.free
    }

    /// Payload blocks that can certainly be appended while so many segments stay free. Counts one header for each
    /// payload block: the worst case, a batch of one.
    pub fn room(&self, keep_free: u32) -> u64 {
        let (open_blocks, open_entries) = match self.open {
            Some(open) => {
                let entries = Summary::capacity(self.layout.summary_blocks) - self.entries.len();
                (self.segment_data_blocks() - self.segments[open as usize].used, entries as u64)
            }
            None => (0, 0),
        };
        let segments = u64::from(self.free.saturating_sub(keep_free));
        let open = u64::from(open_blocks / 2).min(open_entries);
        open + segments * u64::from(self.segment_data_blocks() / 2)
    }

    /// Free segments in which so many payload blocks can certainly be appended, counted as [`FlashLog::room`] counts.
    pub fn segments_for(&self, blocks: u64) -> u32 {
        blocks.div_ceil(u64::from(self.segment_data_blocks() / 2)).min(u64::from(self.layout.segments())) as u32
    }

    /// Until its batch is written, the bytes of this record are in this frame.
    pub fn stage(&mut self, id: u32, frame: FrameId) {
        self.staged.insert(id, frame);
    }

    /// The same, of a record that may be staged already, in another frame.
    pub fn stage_if_not(&mut self, id: u32, frame: FrameId) {
        self.staged.entry(id).or_insert(frame);
    }

    /// These frames were written. They are sorted by this.
    pub fn unstage(&mut self, frames: &mut [FrameId]) {
        // Nothing is staged unless writes cover part of a block, or records are being compacted.
        if !self.staged.is_empty() {
            frames.sort_unstable();
            self.staged.retain(|_, staged| frames.binary_search(staged).is_err());
        }
    }

    /// Where the bytes of this record are staged.
    pub fn staged_frame(&self, id: u32) -> Option<FrameId> {
        self.staged.get(&id).copied()
    }

    /// All that are staged, with where.
    pub fn staged(&self) -> impl Iterator<Item = (u32, FrameId)> {
        self.staged.iter().map(|(&id, &frame)| (id, frame))
    }

    /// Recovery found where the log goes on.
    pub fn resume(&mut self, next_number: u64, last_batch: u64) {
        self.next_number = next_number;
        self.next_batch = last_batch + 1;
        self.batch_held = last_batch;
        self.batch_synced = last_batch;
    }

    /// Recovery found a segment in use (or not).
    pub fn restore_segment(&mut self, segment: u32, number: u64, used: u32, last_batch: u64) {
        let entry = &mut self.segments[segment as usize];
        debug_assert_eq!(entry.life, Life::Free);
        // Busy until all records are loaded: one that is superseded while loading must not drain it.
        *entry = Segment { number, life: Life::Sealed, used, busy: 1, last_batch, ..UNUSED };
        self.free -= 1;
    }

    /// All records are loaded: segments without a live one are drained.
    pub fn restored(&mut self) {
        for segment in 0..self.segments.len() as u32 {
            let state = &mut self.segments[segment as usize];
            if state.life == Life::Sealed {
                state.busy -= 1;
                self.drain_if_empty(segment);
            }
        }
    }

    /// Gives a record its place at the end of the log. `other` is the id of a record without payload. Returns the
    /// record's id; the frame must stay pinned until the batch is written. None: no segment is free.
    pub fn append(
        &mut self,
        volume: &[u8; 16],
        descriptor: Descriptor,
        frame: Option<FrameId>,
        other: Option<u32>,
        lsn_new: bool,
    ) -> Option<u32> {
        debug_assert_eq!(descriptor.has_payload(), frame.is_some());
        let fits = match &self.building {
            Some(batch) => {
                batch.records.len() < BATCH_DESCRIPTORS_MAX
                    && self.entries.len() < Summary::capacity(self.layout.summary_blocks)
                    && (frame.is_none() || self.segments[batch.segment as usize].used < self.segment_data_blocks())
            }
            None => false,
        };
        if !fits && !self.begin_batch(volume) {
            return None;
        }
        let segment_blocks = self.layout.segment_blocks;
        let batch = self.building.as_mut().expect("begun above");
        let segment = batch.segment;
        let state = &mut self.segments[segment as usize];
        let id = if let Some(frame) = frame {
            batch.frames.push(frame);
            let id = segment * segment_blocks + state.used;
            state.used += 1;
            id
        } else {
            let id = other.expect("a record without payload brings its id");
            self.other_segment[(id - self.layout.payload_blocks) as usize] = segment;
            id
        };
        let payload = if frame.is_some() { id - segment * segment_blocks } else { 0 };
        self.entries.push((descriptor, payload));
        batch.records.push(descriptor);
        if lsn_new {
            batch.lsn_max = descriptor.lsn;
        }
        state.live += 1;
        Some(id)
    }

    fn begin_batch(&mut self, volume: &[u8; 16]) -> bool {
        self.close_batch();
        let room_in_open = self.open.is_some_and(|open| {
            self.segments[open as usize].used + 2 <= self.segment_data_blocks()
                && self.entries.len() < Summary::capacity(self.layout.summary_blocks)
        });
        if !room_in_open {
            // Look before sealing: a refused append must leave everything as it was.
            let Some(free) = self.segments.iter().position(|s| s.life == Life::Free) else { return false };
            self.seal_segment(volume);
            let number = self.next_number;
            self.next_number = following_number(number);
            self.segments[free] = Segment { number, life: Life::Open, ..UNUSED };
            self.free -= 1;
            self.opened_since_told += 1;
            self.open = Some(free as u32);
            self.first_batch = self.next_batch;
        }
        let segment = self.open.expect("opened above");
        let state = &mut self.segments[segment as usize];
        let at = TierBlock(self.layout.payload_first + segment * self.layout.segment_blocks + state.used);
        state.used += 1;
        state.busy += 1;
        self.building = Some(Building {
            segment,
            at,
            sequence: self.next_batch,
            records: Vec::with_capacity(BATCH_DESCRIPTORS_MAX),
            frames: Vec::with_capacity(BATCH_DESCRIPTORS_MAX),
            lsn_max: Lsn(0),
            writes: 0,
        });
        self.next_batch += 1;
        true
    }

    /// The record that was put in last ends a client's write.
    pub fn note_write(&mut self) {
        self.building.as_mut().expect("a record was put into it").writes += 1;
    }

    /// The batch that collects is worth a write of its own beside those in flight. Each write costs the CPU what ten
    /// records cost, so beside another it takes most of what is under way at a time; of few, half, because there the
    /// device's latency counts. One writer alone never waits.
    ///
    /// What compaction alone has moved waits until there are enough for a header, while more is being read: segments of small
    /// batches are full of headers, and would be compacted again and again without any gain.
    pub fn is_worth_writing(&self) -> bool {
        let collected = self.building.as_ref().map_or(0, |batch| batch.records.len());
        let only_moved = self.building.as_ref().is_some_and(|batch| batch.lsn_max == Lsn(0));
        if only_moved && collected < MOVED_RECORDS_MIN && self.loads > 0 {
            return false;
        }
        let wanted = if self.under_way <= FEW_RECORDS { self.under_way / 2 } else { self.under_way / 4 * 3 };
        self.flying.is_empty() || collected >= wanted
    }

    /// A batch has been completed.
    pub fn note_under_way(&mut self) {
        let flying: usize = self.flying.iter().map(|batch| batch.records).sum();
        let owed = self.owed.iter().map(|owed| match owed {
            Owed::Batch(batch) => batch.records.len(),
            Owed::Summary { .. } => 0,
        });
        let collected = self.building.as_ref().map_or(0, |batch| batch.records.len());
        self.under_way = flying + owed.sum::<usize>() + collected;
    }

    /// What has collected is to be written.
    pub fn close_batch(&mut self) {
        if let Some(batch) = self.building.take() {
            self.owed.push_back(Owed::Batch(batch));
        }
    }

    /// The tier has failed: nothing more is written. Returns the frames of every batch that was still to be.
    pub fn give_up(&mut self) -> Vec<Vec<FrameId>> {
        self.close_batch();
        let mut frames = Vec::new();
        while let Some(owed) = self.owed.pop_front() {
            let segment = match owed {
                Owed::Batch(batch) => {
                    frames.push(batch.frames);
                    batch.segment
                }
                Owed::Summary { segment, .. } => segment,
            };
            self.segments[segment as usize].busy -= 1;
        }
        frames
    }

    fn seal_segment(&mut self, volume: &[u8; 16]) {
        let Some(segment) = self.open.take() else { return };
        let data_blocks = self.segment_data_blocks();
        let state = &mut self.segments[segment as usize];
        state.life = Life::Sealed;
        state.busy += 1;
        let at = TierBlock(self.layout.payload_first + segment * self.layout.segment_blocks + data_blocks);
        let summary = Summary {
            segment: state.number,
            first_batch: self.first_batch,
            last_batch: self.next_batch - 1,
            records: core::mem::take(&mut self.entries),
        };
        let bytes = summary.encode(volume, at, self.layout.summary_blocks);
        self.entries = summary.records;
        self.entries.clear();
        self.owed.push_back(Owed::Summary { segment, at, bytes });
    }

    /// The payload of this id is not on the tier yet: its batch collects, waits or is being written.
    pub fn is_unwritten(&self, id: u32) -> bool {
        let place = self.place(id).0;
        let within = |at: TierBlock, frames: usize| at.0 < place && place <= at.0 + frames as u32;
        self.building.as_ref().is_some_and(|batch| within(batch.at, batch.frames.len()))
            || self.flying.iter().any(|batch| within(batch.at, batch.frames.len()))
            || self.owed.iter().any(|owed| match owed {
                Owed::Batch(batch) => within(batch.at, batch.frames.len()),
                Owed::Summary { .. } => false,
            })
    }

    /// A record that is new in the log is on its way, or waits to be.
    pub fn has_new_unwritten(&self) -> bool {
        let new = |lsn_max: Lsn| lsn_max > Lsn(0);
        self.building.as_ref().is_some_and(|batch| new(batch.lsn_max))
            || self.flying.iter().any(|batch| new(batch.lsn_max))
            || self.owed.iter().any(|owed| match owed {
                Owed::Batch(batch) => new(batch.lsn_max),
                Owed::Summary { .. } => false,
            })
    }

    /// A batch collects records, a write is owed, or something is under way in a segment.
    pub fn has_unwritten(&self) -> bool {
        self.building.is_some() || !self.owed.is_empty() || self.segments.iter().any(|segment| segment.busy > 0)
    }

    /// A record that lay in this segment has ended.
    pub fn forget_one(&mut self, segment: u32) {
        let state = &mut self.segments[segment as usize];
        assert!(state.live > 0);
        state.live -= 1;
        state.on_its_way = false;
        self.drain_if_empty(segment);
    }

    /// A sealed segment without live records, operations or reads that still need it waits for what superseded them to be durable.
    pub fn drain_if_empty(&mut self, segment: u32) {
        let last_begun = self.next_batch - 1;
        let state = &mut self.segments[segment as usize];
        if state.life == Life::Sealed && state.live == 0 && state.busy == 0 && state.read_by == 0 {
            state.life = Life::Drained(last_begun.max(state.last_batch + 1));
            self.drained.push(segment);
        }
    }

    /// Batches up to this one are durable, and so is a checkpoint that says it.
    pub fn checkpointed(&mut self, batch: u64) {
        self.batch_checkpointed = self.batch_checkpointed.max(batch);
    }

    /// A checkpoint begins that says so much to be durable.
    pub fn checkpoint_begins(&mut self, batch: u64) {
        self.batch_told = batch;
        self.opened_since_told = 0;
    }

    /// Segments opened since the newest checkpoint began: a start walks their batches one by one.
    pub fn opened_since_checkpoint(&self) -> u32 {
        self.opened_since_told
    }

    /// A drained segment whose head may be erased now; it counts as being erased from here on.
    pub fn begin_erase(&mut self) -> Option<u32> {
        let vouched = self.batch_checkpointed;
        let at = self.drained.iter().position(|&segment| self.drained_at(segment) <= vouched)?;
        let segment = self.drained.swap_remove(at);
        self.segments[segment as usize].life = Life::Erasing;
        self.erasing += 1;
        Some(segment)
    }

    /// The batch that must be durable before a drained segment is erased.
    fn drained_at(&self, segment: u32) -> u64 {
        match self.segments[segment as usize].life {
            Life::Drained(last) => last,
            Life::Free | Life::Open | Life::Sealed | Life::Erasing | Life::Erased(_) => {
                unreachable!("only drained segments are listed as such")
            }
        }
    }

    /// The head is erased; a sync that begins from now on makes the segment free.
    pub fn erased(&mut self, segment: u32) {
        self.segments[segment as usize].life = Life::Erased(self.syncs_begun);
        self.erasing -= 1;
        self.erased += 1;
    }

    /// A sync begins; its number.
    pub fn sync_begins(&mut self) -> u64 {
        self.syncs_begun += 1;
        self.syncs_begun
    }

    /// A sync has ended well: what was erased before it began is free.
    pub fn sync_ended(&mut self, sync: u64) {
        if self.erased == 0 {
            return;
        }
        for segment in &mut self.segments {
            if let Life::Erased(before) = segment.life
                && before < sync
            {
                segment.life = Life::Free;
                self.free += 1;
                self.erased -= 1;
            }
        }
    }

    /// Heads are being erased right now.
    pub fn is_erasing(&self) -> bool {
        self.erasing > 0
    }

    /// Segments that a sync would make free.
    pub fn erased_segments(&self) -> u32 {
        self.erased
    }

    /// Free segments, and those that hold nothing live and only wait for syncs and a checkpoint to become free.
    pub fn free_segments_soon(&self) -> u32 {
        self.free + self.drained.len() as u32 + self.erasing + self.erased
    }

    /// A drained segment waits for a batch to become durable.
    pub fn drained_awaits_sync(&self) -> bool {
        self.drained.iter().any(|&segment| self.drained_at(segment) > self.batch_synced)
    }

    /// A drained segment waits for a checkpoint that says what is durable already, and that was not yet begun.
    pub fn drained_awaits_checkpoint(&self) -> bool {
        let untold = self.batch_told + 1..=self.batch_synced;
        self.drained.iter().any(|&segment| untold.contains(&self.drained_at(segment)))
    }

    /// Sealed, quiet segments that compacting gains something from, those with the fewest live records first. Their records and
    /// the headers of the batches that these are moved by are fewer than the segment's blocks.
    pub fn emptiest(&self) -> Vec<u32> {
        let headers = |s: &Segment| s.live.div_ceil(MOVED_RECORDS_MIN as u32);
        let gains = |s: &Segment| s.live > 0 && s.live + headers(s) < self.segment_data_blocks();
        let quiet = |s: &Segment| s.life == Life::Sealed && s.busy == 0 && !s.unreadable && !s.on_its_way;
        let all = self.segments.iter().enumerate();
        let mut found: Vec<u32> = all.filter(|(_, s)| quiet(s) && gains(s)).map(|(i, _)| i as u32).collect();
        found.sort_unstable_by_key(|&segment| self.segments[segment as usize].live);
        found
    }

    /// Destage starts again: what was on its way may be moved.
    pub fn nothing_is_on_its_way(&mut self) {
        for segment in &mut self.segments {
            segment.on_its_way = false;
        }
    }

    /// Written blocks that hold nothing live, headers and summaries apart.
    pub fn dead_blocks(&self) -> u64 {
        let used: u64 = self.segments.iter().filter(|s| s.life != Life::Free).map(|s| u64::from(s.used)).sum();
        let live: u64 = self.segments.iter().map(|s| u64::from(s.live)).sum();
        used.saturating_sub(live)
    }
}
