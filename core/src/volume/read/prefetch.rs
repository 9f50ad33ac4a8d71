//! Prefetches: ranges that clients only want to have in the read cache.
//!
//! They are hints, and cost nobody else anything. They have a line of their own, behind all reads, and are brought in part by part: one
//! part of a volume at a time, those of several requests by turns. (Of too many at one time some end at once.) A part begins only while no read waits and there are frames beyond
//! those that reads and payloads of clients may still take; what is in the cache already is passed over at a pace that leaves the thread
//! to others.
//!
//! A request ends, and always well, when its last part has come, or one could not be brought, after [`PREFETCH_MAX`], or when the volume
//! is to become quiet or stops. Nobody can tell the difference but by the time of the reads that follow.
//!
//! Only what is the backing's, or a whole record on flash, is brought in: of a block in pieces nothing would stay cached.

use super::*;

/// Blocks of a part, 512 KiB; fewer where the arena is small. A read that comes just behind it waits for no more than that: 5 ms where
/// the backing gives 100 MB/s.
const PART_BLOCKS_MAX: u32 = 128;
/// Reads of the backing that a part comes to at most: with every second block in the cache already it would be one for each block.
const PART_FILLS_MAX: u32 = 4;
/// So many may wait. One more ends at once: who asks for so much will read most of it before its turn comes, and requests that wait keep
/// others of the same connection out.
const LINE_MAX: usize = 64;
/// So long after it was asked for a range counts as brought in as far as it is.
const PREFETCH_MAX: Duration = Duration::from_secs(10);
/// Between two parts of which nothing had to be waited for.
const PACE: Duration = Duration::from_micros(200);
/// Between two looks at who has waited for too long, and whether there are frames by now.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A range that a client wants cached.
#[derive(Debug)]
struct Prefetch {
    /// None: nobody waits for it any more.
    id: Option<RequestId>,
    /// The block that comes next.
    next: BlockIndex,
    /// The block behind the last.
    end: BlockIndex,
    /// When it was asked for.
    since: Instant,
}

/// See the module.
#[derive(Default)]
pub(super) struct Prefetches {
    line: VecDeque<Prefetch>,
    /// Its part is being read.
    under_way: Option<Prefetch>,
    /// The next part begins no earlier.
    not_before: Instant,
    /// When those who have waited for too long were last looked for.
    swept_at: Instant,
}

impl Prefetches {
    /// Nobody waits for any of it.
    pub(super) fn is_empty(&self) -> bool {
        self.line.is_empty() && self.under_way.as_ref().is_none_or(|part| part.id.is_none())
    }

    /// Nobody waits for these any more.
    pub(super) fn forget(&mut self, ids: &RequestIds) {
        self.take_ids(|prefetch| prefetch.id.is_some_and(|id| ids.contains(id)));
    }

    /// Takes the requests of some of them: what is under way goes on, and nothing is begun any more.
    fn take_ids(&mut self, is_one: impl Fn(&Prefetch) -> bool) -> Vec<RequestId> {
        let mut ids = Vec::new();
        self.line.retain(|prefetch| {
            let is_one = is_one(prefetch);
            ids.extend(prefetch.id.filter(|_| is_one));
            !is_one
        });
        ids.extend(self.under_way.as_mut().filter(|part| is_one(part)).and_then(|part| part.id.take()));
        ids
    }
}

impl Volume {
    /// Takes a client's wish to have a range cached.
    pub(in super::super) fn prefetch(&mut self, id: RequestId, offset: u64, length: u32) {
        let next = BlockIndex::of_byte(offset);
        let last = BlockIndex::of_byte(offset + u64::from(length) - 1);
        // More than half of the cache would only displace its own beginning.
        let end = BlockIndex((last.0 + 1).min(next.0 + u64::from(self.pool.total() / 2)));
        let prefetches = &mut self.reads.prefetches;
        // Nothing comes from the backing any more.
        let hangs = prefetches.under_way.as_ref().is_some_and(|part| self.now >= part.since + PREFETCH_MAX);
        if hangs || prefetches.line.len() >= LINE_MAX {
            return self.answer(id, Ok(()));
        }
        if prefetches.is_empty() {
            prefetches.swept_at = self.now;
        }
        prefetches.line.push_back(Prefetch { id: Some(id), next, end, since: self.now });
    }

    /// Brings in the next part, where that takes nothing from anybody.
    pub(in super::super) fn settle_prefetches(&mut self) {
        if self.phase == Phase::Stopping {
            return self.abandon_prefetches();
        }
        if self.reads.prefetches.is_empty() {
            return;
        }
        // What is under way is waited for: it goes into frames that are left to whoever is next.
        if self.is_leaving() {
            return self.end_prefetches();
        }
        let now = self.now;
        if now >= self.reads.prefetches.swept_at + LOOK_EVERY {
            self.reads.prefetches.swept_at = now;
            let over = self.reads.prefetches.take_ids(|prefetch| now >= prefetch.since + PREFETCH_MAX);
            self.end_as_prefetched(over);
        }
        if self.may_prefetch() {
            self.begin_prefetched_part();
        }
    }

    pub(in super::super) fn prefetches_timeout(&self) -> Option<Instant> {
        let prefetches = &self.reads.prefetches;
        if prefetches.is_empty() {
            return None;
        }
        let look_at = prefetches.swept_at + LOOK_EVERY;
        let is_paced = prefetches.under_way.is_none() && prefetches.not_before > self.now;
        Some(if is_paced { look_at.min(prefetches.not_before) } else { look_at })
    }

    fn may_prefetch(&self) -> bool {
        let reads = &self.reads;
        let is_next = reads.prefetches.under_way.is_none() && self.now >= reads.prefetches.not_before;
        let nobody_waits = reads.waiting.is_empty() && reads.waiting_edges.is_empty();
        // What the backing gives before it is ready is not cached.
        is_next && nobody_waits && self.destage.ready && self.pool.available() >= self.frames_for_prefetching()
    }

    /// A part takes what is free beyond what reads leave, and beyond what the largest of them needs.
    fn frames_for_prefetching(&self) -> u32 {
        self.prefetched_part_blocks() + self.frames_left_by_reads() + self.frames_reserved()
    }

    fn prefetched_part_blocks(&self) -> u32 {
        (self.frames_reserved() / 2).min(PART_BLOCKS_MAX)
    }

    fn begin_prefetched_part(&mut self) {
        let blocks_max = u64::from(self.prefetched_part_blocks());
        let Some(mut part) = self.reads.prefetches.line.pop_front() else { return };
        let first = part.next;
        let end = BlockIndex(part.end.0.min(first.0 + blocks_max));
        let (target, length) = (Target::Prefetch, ((end.0 - first.0) * BLOCK_BYTES) as u32);
        let wanted = Wanted { target, offset: first.byte(), length, since: self.now, repeats: 0, hung_up: false };
        let read = self.reads.reading.insert(Reading::new(wanted, Lsn(0)));
        let mut begun = Begun { read, target, checks: Checks::new(), run: None, left: 0, stretches: Vec::new() };
        let mut pieces = Pieces::new();
        let (mut fills, mut before) = (0, None);
        while part.next < end {
            let how = self.plan_prefetched(part.next);
            fills += u32::from(how == Some(Plan::Backing) && before != how);
            if fills > PART_FILLS_MAX {
                break;
            }
            if let Some(how) = how {
                self.count_source(part.next, how);
                let source = self.begin_source(&mut begun, part.next, how);
                pieces.push(Piece { source, length: BLOCK_BYTES as u32 });
            }
            before = how;
            part.next.0 += 1;
        }
        self.reads.prefetches.under_way = Some(part);
        self.await_pieces(begun, pieces, false);
        if self.reads.prefetches.under_way.is_none() {
            self.reads.prefetches.not_before = self.now + PACE;
        }
    }

    /// Where a block comes from that is to be cached; none: it is, or would not be.
    fn plan_prefetched(&self, block: BlockIndex) -> Option<Plan> {
        if self.index.is_clean(block) {
            return self.pool.cached_frame(block).is_none().then_some(Plan::Backing);
        }
        match self.plan_block(block, SectorMask::FULL).as_slice() {
            [(mask, Plan::Load(id))] if mask.is_full() => Some(Plan::Load(*id)),
            _ => None,
        }
    }

    /// What could not be brought in failed nobody: the read that follows will tell.
    pub(super) fn end_prefetched_part(&mut self, failed: bool) {
        let Some(part) = self.reads.prefetches.under_way.take() else { return };
        match part.id {
            Some(id) if failed || part.next >= part.end => self.answer(id, Ok(())),
            Some(_) => self.reads.prefetches.line.push_back(part),
            None => {}
        }
    }

    /// Ends all requests to have something cached, as done. What is under way of one goes on.
    pub fn end_prefetches(&mut self) {
        let all = self.reads.prefetches.take_ids(|_| true);
        self.end_as_prefetched(all);
    }

    /// Ends all, and nobody waits for what is under way of one.
    pub(super) fn abandon_prefetches(&mut self) {
        self.end_prefetches();
        if self.reads.prefetches.under_way.take().is_some() {
            let reading = self.reads.reading.iter_mut().map(|(_, reading)| &mut reading.wanted.target);
            reading.filter(|target| **target == Target::Prefetch).for_each(|target| *target = Target::Nobody);
        }
    }

    fn end_as_prefetched(&mut self, ids: Vec<RequestId>) {
        ids.into_iter().for_each(|id| self.answer(id, Ok(())));
    }
}
