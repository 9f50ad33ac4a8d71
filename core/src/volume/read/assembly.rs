//! Blocks of a read that are put together: their newest content lies in several records on flash, or in records and in the backing.
//!
//! With a frame for each source such a block takes up to eight, and a large read of such blocks more than there are. So it has one
//! frame, like any other block, and its records are read into frames that are used again and again:
//!
//! - What the backing has of the block comes first, into the block's frame.
//! - Then its records are read, and what is wanted of each is copied over it.
//!
//! One frame for records is the read's own from its beginning on, so it comes to its end with what it has. While nobody waits for
//! frames it has more of them ([`LOADS_MAX`]), out of the share of clients' reads.
//!
//! Where the records lie is decided when the read begins, as for all reads, and no segment of theirs is used again before they have
//! been read ([`Segment::read_by`](super::super::flash::Segment::read_by)). Compaction empties such a segment like any other: reads
//! that never pause would keep it from all of the log. **A read that hangs at the backing keeps its segments until it ends.** One that
//! the backing fails keeps nothing until it begins anew, and has failed for good after [`READ_FAILS_AFTER`]; a backing over NBD fails what
//! it has no connection for after 20 s; but a file system that hangs has no bound. Nothing is destaged to it either, and writes that
//! find no room wait for it as they do when the log is full.
//!
//! What has been put together is not cached: records of the block are live.
//!
//! The old content of an edge is read into a frame for each source, because each is checked once more when the edge is merged.

use super::*;

/// Records of one read that are loaded at one time.
const LOADS_MAX: u32 = 16;

/// Sectors of a record on flash that belong into the frame of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    target: FrameId,
    sectors: SectorMask,
    /// Where the record was when the read began.
    at: TierBlock,
    check: Check,
    segment: u32,
}

/// A record on its way into a frame from which some of it is copied.
#[derive(Clone, Copy, Debug)]
pub(in crate::volume) struct StretchLoad {
    read: usize,
    scratch: FrameId,
    stretch: Stretch,
}

impl Reads {
    /// Somebody waits for what is still to be read of it.
    fn is_wanted(&self, read: usize) -> bool {
        let reading = &self.reading[read];
        reading.failed.is_none() && reading.wanted.target != Target::Nobody
    }
}

impl Volume {
    /// These sectors of a record are to be copied into a block's frame; its segment stays until then.
    pub(super) fn stretch_of(&mut self, id: u32, sectors: SectorMask, target: FrameId) -> Stretch {
        let check = self.check_of(id);
        let unheld = planted!(self, forget_what_is_read);
        let flash = self.flash.as_mut().expect("memory tiers have every record in memory");
        let segment = flash.segment_of(id);
        flash.segments[segment as usize].read_by += u32::from(!unheld);
        Stretch { target, sectors, at: flash.place(id), check, segment }
    }

    fn end_stretch(&mut self, segment: u32) {
        let unheld = planted!(self, forget_what_is_read);
        let flash = self.flash.as_mut().expect("only flash is read back");
        flash.segments[segment as usize].read_by -= u32::from(!unheld);
        flash.drain_if_empty(segment);
    }

    /// Nothing of the read is under way any more: its blocks are put together, or it has ended.
    pub(super) fn go_on_reading(&mut self, read: usize) {
        if !self.reads.is_wanted(read) {
            self.let_go_of_segments(read);
        }
        let reading = &self.reads.reading[read];
        if reading.stretches.is_empty() {
            return self.end_read(read);
        }
        let own = reading.scratch.expect("a read that puts blocks together has one");
        let more = (reading.stretches.len() as u32 - 1).min(self.frames_for_more_loads());
        self.load_stretch(read, own);
        for _ in 0..more {
            let scratch = self.pool.allocate().expect("available() was asked");
            self.load_stretch(read, scratch);
        }
    }

    /// What a read may take beside its own to load records into. It gives them back as soon as somebody waits for frames.
    fn frames_for_more_loads(&self) -> u32 {
        match self.reads.wait_for_frames() {
            true => 0,
            false => self.pool.available().saturating_sub(self.frames_left_by_reads()).min(LOADS_MAX - 1),
        }
    }

    fn let_go_of_segments(&mut self, read: usize) {
        for stretch in core::mem::take(&mut self.reads.reading[read].stretches) {
            self.end_stretch(stretch.segment);
        }
    }

    /// Reads for which nobody waits any more keep no segments but those that they are reading from.
    pub(super) fn abandon_assemblies(&mut self) {
        let unwanted = self.reads.reading.iter().filter(|(_, reading)| reading.wanted.target == Target::Nobody);
        for read in unwanted.map(|(read, _)| read).collect::<Vec<usize>>() {
            self.let_go_of_segments(read);
        }
    }

    fn load_stretch(&mut self, read: usize, scratch: FrameId) {
        let reading = &mut self.reads.reading[read];
        let stretch = reading.stretches.pop().expect("some are left");
        reading.left += 1;
        let op = self.begin_op(Op::ReadStretch(StretchLoad { read, scratch, stretch }));
        let frames = Checks::from_slice(&[(scratch, stretch.check)]);
        self.effects.push_back(Effect::TierRead { op, at: stretch.at, frames });
    }

    pub(in crate::volume) fn on_stretch_loaded(&mut self, load: StretchLoad, took: Duration, failed: Option<IoError>) {
        let StretchLoad { read, scratch, stretch: Stretch { target, sectors, segment, .. } } = load;
        self.end_stretch(segment);
        if failed.is_none() {
            self.note_tier_read(read, took);
            for (first, count) in sectors.runs() {
                let (start, length) = (first as u16 * SECTOR_BYTES as u16, count as u16 * SECTOR_BYTES as u16);
                self.effects.push_back(Effect::Copy { source: Source::Frame(scratch, 0), target, start, length });
            }
        }
        let is_own = self.reads.reading[read].scratch == Some(scratch);
        let goes_on = failed.is_none() && self.reads.is_wanted(read) && !self.reads.reading[read].stretches.is_empty();
        if goes_on && (is_own || !self.reads.wait_for_frames()) {
            // The copy is made before the next record is read into the same frame: effects are taken in order.
            self.load_stretch(read, scratch);
        } else if !is_own {
            self.pool.release(scratch);
        }
        self.end_part(read, failed.map(|_| ReadFailure::Tier));
    }
}
