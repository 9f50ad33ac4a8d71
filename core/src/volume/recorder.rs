//! What the volume measures of its requests ([`crate::stats`]): when each arrived, and where each of its legs begins and ends.
//!
//! - A request is open from its arrival to its answer. Only so many are followed at one time, [`OPEN_MAX`]; those that come
//!   while there are as many are served like all others and not timed.
//! - An answer counts when the last effect has been taken, with the time of the last call: that of [`Volume::settle`], which is
//!   later than the round's own. So it is with writes that a memory tier has at once. Else what a round of events decides
//!   would seem to have taken no time.
//! - Only what went well is counted: the time of a failure would hide in that of successes.
//!
//! Left to others: what the counts are made of ([`crate::stats`]), how they are kept and shown (the executor).

use super::*;
use crate::stats::ReuseSampler;

/// Most memory that a volume's measuring takes: its counts, the sampled blocks, and what is known of open requests and of
/// writes that members do not hold.
pub const MEASURED_BYTES_MAX: u64 = 2 << 20;
/// Open requests that are followed at one time. Their table has less than twice as many places of 24 bytes.
const OPEN_MAX: usize = 8_192;
/// Places of the table at first: as many as a few clients need.
const OPEN_PLACES_MIN: usize = 256;
/// Answers that are collected before they are counted.
const ANSWERED_MAX: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Read,
    Write,
    Zero,
    Flush,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    id: RequestId,
    at: Instant,
    what: What,
    /// Of a read or write.
    bytes: u32,
    /// It waits for room.
    waits: bool,
}

/// Requests by their ids: open addressing with linear probing, as [`crate::block_map`] does it.
#[derive(Debug)]
struct OpenRequests {
    places: Vec<Option<Open>>,
    len: usize,
}

impl OpenRequests {
    fn home(&self, id: RequestId) -> usize {
        (id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - self.places.len().trailing_zeros())) as usize
    }

    fn find(&self, id: RequestId) -> Result<usize, usize> {
        let mut at = self.home(id);
        loop {
            match &self.places[at] {
                None => return Err(at),
                Some(open) if open.id == id => return Ok(at),
                Some(_) => at = (at + 1) & (self.places.len() - 1),
            }
        }
    }

    fn insert(&mut self, open: Open) {
        if self.len * 2 >= self.places.len() {
            if self.len >= OPEN_MAX {
                return;
            }
            let doubled = alloc::vec![None; self.places.len() * 2];
            for open in core::mem::replace(&mut self.places, doubled).into_iter().flatten() {
                let (Ok(at) | Err(at)) = self.find(open.id);
                self.places[at] = Some(open);
            }
        }
        match self.find(open.id) {
            Ok(at) => self.places[at] = Some(open),
            Err(at) => {
                self.places[at] = Some(open);
                self.len += 1;
            }
        }
    }

    fn get_mut(&mut self, id: RequestId) -> Option<&mut Open> {
        let at = self.find(id).ok()?;
        self.places[at].as_mut()
    }

    fn remove(&mut self, id: RequestId) -> Option<Open> {
        let mut hole = self.find(id).ok()?;
        let removed = self.places[hole].take();
        self.len -= 1;
        let mask = self.places.len() - 1;
        let mut next = (hole + 1) & mask;
        while let Some(open) = self.places[next] {
            // It may move back only if its home is not after the hole on the way to it.
            if (next.wrapping_sub(self.home(open.id)) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.places[hole] = self.places[next].take();
                hole = next;
            }
            next = (next + 1) & mask;
        }
        removed
    }
}

/// See the module.
pub(super) struct Recorder {
    pub(super) seen: Box<Stats>,
    /// What happened so often, or to so many bytes.
    pub(super) counters: Counters,
    reuse: ReuseSampler,
    open: OpenRequests,
    /// Answered since the last count, and whether memory alone had what was read.
    answered: Vec<(Open, bool)>,
    /// Writes that a memory tier has taken at one time, not yet counted.
    logged: u64,
    logged_at: Instant,
    /// Writes that members do not hold yet, by their last position; the first `sent` of them are on their way since that time.
    on_way: VecDeque<(Lsn, Instant)>,
    sent: usize,
}

impl Recorder {
    pub(super) fn new(cache_blocks: u64) -> Recorder {
        let seen = Box::new(Stats::new(cache_blocks));
        Recorder {
            reuse: ReuseSampler::new(&seen.miss_ratio),
            seen,
            counters: Counters::default(),
            open: OpenRequests { places: alloc::vec![None; OPEN_PLACES_MIN], len: 0 },
            answered: Vec::with_capacity(ANSWERED_MAX),
            logged: 0,
            logged_at: Instant(0),
            on_way: VecDeque::new(),
            sent: 0,
        }
    }

    // --- a request's way ---

    /// It has arrived whole.
    pub(super) fn arrived(&mut self, id: RequestId, request: &Request, now: Instant) {
        let (what, bytes) = match *request {
            Request::Read { length, .. } => (What::Read, length),
            Request::Write { length, .. } => (What::Write, length),
            Request::Zero { .. } => (What::Zero, 0),
            Request::Flush => (What::Flush, 0),
            Request::Prefetch { .. } => return,
        };
        self.open.insert(Open { id, at: now, what, bytes, waits: false });
    }

    /// When a request came, as long as it is followed.
    pub(super) fn arrival(&mut self, id: RequestId) -> Option<Instant> {
        self.open.get_mut(id).map(|open| open.at)
    }

    /// A read is begun.
    pub(super) fn reads(&mut self, offset: u64, length: u32) {
        self.seen.streams.read(offset, u64::from(length));
        let (first, count) = blocks_of(offset, u64::from(length));
        self.reuse.read(&mut self.seen.miss_ratio, first, count);
    }

    /// A write enters the log.
    pub(super) fn writes(&mut self, offset: u64, length: u64) {
        self.seen.streams.write(offset, length);
        let (first, count) = blocks_of(offset, length);
        self.reuse.touch(first, count);
    }

    /// It finds no room or memory, or is slowed.
    pub(super) fn waits(&mut self, id: RequestId) {
        if let Some(open) = self.open.get_mut(id) {
            open.waits = true;
        }
    }

    /// What had to wait for room is admitted.
    pub(super) fn admitted(&mut self, id: RequestId, now: Instant) {
        if let Some(open) = self.open.get_mut(id)
            && core::mem::take(&mut open.waits)
        {
            let (since, what) = (open.at, open.what);
            let legs = if what == What::Read { &mut self.seen.reads } else { &mut self.seen.writes };
            legs.waiting.record(now - since);
        }
    }

    /// A read waited so long for copies of what it shows, or a lease, or between attempts at a backing that failed.
    pub(super) fn read_waited(&mut self, took: Duration) {
        self.seen.reads.waiting.record(took);
    }

    /// The backing has what this request waited for.
    pub(super) fn backed(&mut self, id: RequestId, took: Duration) {
        if self.open.get_mut(id).is_some_and(|open| open.what == What::Write) {
            self.seen.writes.backing.record(took);
        }
    }

    /// It is answered as it wished. `from_memory`: a read that waited for no device.
    pub(super) fn answered(&mut self, id: RequestId, from_memory: bool, now: Instant) {
        if let Some(open) = self.open.remove(id) {
            if self.answered.len() == ANSWERED_MAX {
                self.count(now);
            }
            self.answered.push((open, from_memory));
        }
    }

    /// It will not be answered, or by an error.
    pub(super) fn forget(&mut self, id: RequestId) {
        self.open.remove(id);
    }

    /// The effects of what was decided have been taken.
    pub(super) fn count(&mut self, now: Instant) {
        let Stats { reads, writes, zeros, flush, heat, .. } = &mut *self.seen;
        for (Open { at, what, bytes, .. }, from_memory) in self.answered.drain(..) {
            let took = now - at;
            match what {
                What::Read => {
                    reads.client.record(took);
                    heat.read(u64::from(bytes), took);
                    if from_memory {
                        reads.local.record(took);
                    }
                }
                What::Write => {
                    writes.client.record(took);
                    heat.write(u64::from(bytes), took);
                }
                What::Zero => zeros.record(took),
                What::Flush => flush.record(took),
            }
        }
        if self.logged > 0 {
            writes.local.record_many(now - self.logged_at, core::mem::take(&mut self.logged));
        }
    }

    // --- legs ---

    /// A memory tier has a write in its log.
    pub(super) fn logged(&mut self, now: Instant) {
        if self.logged > 0 && self.logged_at != now {
            self.count(now);
        }
        self.logged_at = now;
        self.logged += 1;
    }

    /// Flash has so many writes, which it was given in one batch.
    pub(super) fn held(&mut self, took: Duration, writes: u64) {
        if writes > 0 {
            self.seen.writes.local.record_many(took, writes);
        }
    }

    /// Members are asked for a write that ends here.
    pub(super) fn awaits_members(&mut self, last: Lsn) {
        self.on_way.push_back((last, Instant(0)));
    }

    /// Everything up to here was sent to a member.
    pub(super) fn sent_to_member(&mut self, through: Lsn, now: Instant) {
        while let Some((last, at)) = self.on_way.get_mut(self.sent)
            && *last <= through
        {
            *at = now;
            self.sent += 1;
        }
    }

    /// Some member does not hold some write yet.
    pub(super) fn awaits_any(&self) -> bool {
        !self.on_way.is_empty()
    }

    /// All members hold everything up to here.
    pub(super) fn held_by_members(&mut self, through: Lsn, now: Instant) {
        while let Some((_, at)) = self.on_way.pop_front_if(|(last, _)| *last <= through) {
            // One that was never sent from here lay with a member already.
            if self.sent > 0 {
                self.sent -= 1;
                self.seen.writes.network.record(now - at);
            }
        }
    }

    /// No member is asked any more.
    pub(super) fn awaits_none(&mut self) {
        self.on_way.clear();
        self.sent = 0;
    }

    /// Open requests are what is known of them.
    pub(super) fn validate(&self) {
        let counters = &self.counters;
        assert_eq!(self.open.len, self.open.places.iter().flatten().count());
        assert!(self.open.places.iter().flatten().all(|open| self.open.find(open.id).is_ok()), "each is found");
        assert!(self.sent <= self.on_way.len());
        let Stats { streams, heat, reads, writes, flush, .. } = &*self.seen;
        let (read, written) = (streams.reads(), streams.writes());
        assert_eq!(read.sequential + read.random, counters.reads);
        assert_eq!(read.sequential_bytes + read.random_bytes, counters.read_bytes);
        assert_eq!(written.sequential + written.random, counters.writes);
        assert_eq!(written.sequential_bytes + written.random_bytes, counters.write_bytes);
        let cells = |map: &[[u64; crate::stats::LATENCY_CLASSES]]| map.iter().flatten().sum::<u64>();
        assert_eq!((cells(heat.reads()), cells(heat.writes())), (reads.client.count(), writes.client.count()));
        assert!(reads.client.count() <= counters.reads && writes.client.count() <= counters.writes);
        assert!(writes.local.count() <= counters.writes && writes.network.count() <= counters.writes);
        assert!(flush.count() <= counters.flushes && writes.waiting.count() <= counters.throttled_writes);
        let most = 2 * counters.reads + counters.repeated_reads;
        assert!(reads.waiting.count() <= most, "once for memory, once for copies, once between attempts");
    }
}

/// The blocks that a range of bytes touches.
fn blocks_of(offset: u64, length: u64) -> (BlockIndex, u64) {
    let first = BlockIndex::of_byte(offset);
    (first, BlockIndex::of_byte(offset + length - 1).0 - first.0 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    fn open_requests() -> OpenRequests {
        OpenRequests { places: alloc::vec![None; OPEN_PLACES_MIN], len: 0 }
    }

    fn open(id: u64, at: u64) -> Open {
        Open { id: RequestId(id), at: Instant(at), what: What::Flush, bytes: 0, waits: false }
    }

    #[test]
    fn open_requests_are_found_until_they_end_whatever_their_numbers() {
        let (mut table, mut model, mut x) = (open_requests(), BTreeMap::new(), 3u64);
        for step in 0..40_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // As the front end numbers them: a connection, and a slot of it.
            let id = (x >> 40 & 0x1f) << 32 | (x >> 50 & 0x7f);
            if x >> 62 == 0 || model.len() > 900 {
                assert_eq!(table.remove(RequestId(id)).map(|open| open.at.0), model.remove(&id));
            } else {
                table.insert(open(id, step));
                model.insert(id, step);
            }
            assert_eq!(table.len, model.len());
        }
        for (id, at) in model {
            assert_eq!(table.get_mut(RequestId(id)).map(|open| open.at.0), Some(at));
        }
    }

    #[test]
    fn all_that_is_measured_fits_the_stated_memory() {
        let recorder = Recorder::new(4 << 20);
        // While the table of open requests doubles for the last time, half of it is there once more.
        let open = OPEN_MAX * 3 * size_of::<Option<Open>>();
        // Members are sent 64 MiB before they hold any of it, and a queue doubles, too.
        let on_way = (64 << 20) / BLOCK_BYTES as usize * 2 * size_of::<(Lsn, Instant)>();
        let answered = recorder.answered.capacity() * size_of::<(Open, bool)>();
        let sum = size_of::<Stats>() + recorder.reuse.bytes() + open + on_way + answered;
        assert!(sum as u64 <= MEASURED_BYTES_MAX, "{sum}");
    }

    #[test]
    fn more_open_requests_than_are_followed_cost_no_memory_and_no_time_of_others() {
        let mut table = open_requests();
        for id in 0..5 * OPEN_MAX as u64 {
            table.insert(open(id, id));
        }
        assert_eq!((table.len, table.places.len()), (OPEN_MAX, 2 * OPEN_MAX));
        assert!(size_of_val(&table.places[..]) <= 1 << 20);
        for id in 0..5 * OPEN_MAX as u64 {
            assert_eq!(table.remove(RequestId(id)).is_some(), id < OPEN_MAX as u64);
        }
        assert_eq!(table.len, 0);
    }
}
