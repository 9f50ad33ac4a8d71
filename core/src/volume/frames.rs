//! The arena's frames: who owns each, and the read cache made of those that hold the newest content of a block.
//!
//! Invariants:
//! - a frame is free, or has exactly one owner; a pinned frame is never free (its bytes are being read by a reply or
//!   an operation), it becomes free when its owner has let go *and* the last pin is gone;
//! - the cache maps a block to at most one frame, which holds the whole newest content of that block;
//! - `available()` counts what `allocate()` can deliver now;
//! - a frame that became free *cools* until all effects have been polled: one of them may still name it (the
//!   descriptor of a record that was superseded at once, a merge), and a client would fill it meanwhile. Core's own
//!   operations may take it at once, because effects are taken in order.
//!
//! Replacement is S3-FIFO (Yang et al., SOSP'23): new blocks pass a small probation queue of a tenth of the cache,
//! and only those touched again there, or remembered by the ghost table, reach the main queue. One sequential pass
//! therefore displaces the probation queue and nothing else.

use super::chunked::Chunked;
use crate::block_map::BlockMap;
use crate::types::*;
use alloc::vec;
use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// Who decides about a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// Nobody: free, or waiting for its last pin to go.
    Nobody,
    /// A request being received, or an operation.
    Taken,
    /// A dirty record (memory tier only: the frame is the log).
    Log,
    /// The read cache.
    Cache,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Queue {
    Off,
    Probation,
    Main,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    block: BlockIndex,
    /// Position of the record whose bytes these are; 0 when they came from the backing.
    lsn: Lsn,
    prev: u32,
    next: u32,
    pins: u32,
    owner: Owner,
    queue: Queue,
    touches: u8,
    /// Taken for a client's payload, and since then neither free, nor evictable, nor the log's.
    payload: bool,
}

const UNUSED: Frame = Frame {
    block: BlockIndex(0),
    lsn: Lsn(0),
    prev: NONE,
    next: NONE,
    pins: 0,
    owner: Owner::Nobody,
    queue: Queue::Off,
    touches: 0,
    payload: false,
};

#[derive(Clone, Copy)]
struct Fifo {
    head: u32,
    tail: u32,
    len: u32,
    /// Those of them that nobody has pinned.
    evictable: u32,
}

const EMPTY: Fifo = Fifo { head: NONE, tail: NONE, len: 0, evictable: 0 };

/// See the module.
pub struct FramePool {
    frames: Chunked<Frame>,
    total: u32,
    /// Frames from here on were never used: not yet in the free list, so their memory is not yet touched.
    fresh: u32,
    free_head: u32,
    free_len: u32,
    cooling: Vec<u32>,
    cached: BlockMap,
    probation: Fifo,
    main: Fifo,
    payloads: u32,
    ghosts: Vec<u32>,
    /// Counts evictions for the status.
    pub evictions: u64,
    /// Frames that evictions have met.
    #[cfg(test)]
    steps: u64,
}

impl FramePool {
    /// All frames free. Behind them is one more, of zeros: see [`FramePool::zero_frame`].
    pub fn new(total: u32) -> FramePool {
        FramePool {
            frames: Chunked::new(total as usize, UNUSED),
            total,
            fresh: 0,
            free_head: NONE,
            free_len: 0,
            cooling: Vec::with_capacity(total.min(1024) as usize),
            cached: BlockMap::with_capacity(total as usize),
            probation: EMPTY,
            main: EMPTY,
            payloads: 0,
            ghosts: vec![0; (total as usize).next_power_of_two()],
            evictions: 0,
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Chunks of the table that have memory.
    #[cfg(test)]
    pub fn chunks_used(&self) -> usize {
        self.frames.chunks_used()
    }

    /// A frame of zeros, for zeroed sectors on their way to the backing: behind all others, never free and never written to.
    pub fn zero_frame(&self) -> FrameId {
        FrameId(self.total)
    }

    /// Frames in all.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Frames that `allocate` can deliver now.
    pub fn available(&self) -> u32 {
        self.available_to_clients() + self.cooling.len() as u32
    }

    /// Frames that `allocate_for_payload` can deliver now.
    pub fn available_to_clients(&self) -> u32 {
        self.free_len + (self.total - self.fresh) + self.evictable()
    }

    /// Cached frames that nobody has pinned.
    fn evictable(&self) -> u32 {
        self.probation.evictable + self.main.evictable
    }

    /// Frames taken for payloads: until the log of a memory tier has them, or the batch that they are in is on flash.
    pub fn payloads(&self) -> u32 {
        self.payloads
    }

    /// All effects have been polled. True when frames became available to clients by it.
    pub fn thaw(&mut self) -> bool {
        let any = !self.cooling.is_empty();
        while let Some(id) = self.cooling.pop() {
            self.put_free(id);
        }
        any
    }

    /// Frames that hold clean or logged content for reads.
    pub fn cached(&self) -> u32 {
        self.cached.len() as u32
    }

    /// Takes a frame, evicting if none is free.
    pub fn allocate(&mut self) -> Option<FrameId> {
        if self.free_head == NONE && self.fresh == self.total && !self.cooling.is_empty() {
            return self.cooling.pop().map(|id| self.taken(id));
        }
        self.allocate_warm()
    }

    /// For a client's payload: no frame that cools, because its bytes may change before the next effect is polled.
    pub fn allocate_for_payload(&mut self) -> Option<FrameId> {
        let id = self.allocate_warm()?;
        self.frames.get_mut(id.0).payload = true;
        self.payloads += 1;
        Some(id)
    }

    /// A payload's frame is the log's, evictable, or free.
    fn end_payload(&mut self, id: u32) {
        let frame = self.frames.get_mut(id);
        if core::mem::take(&mut frame.payload) {
            self.payloads -= 1;
        }
    }

    /// No frame that cools.
    fn allocate_warm(&mut self) -> Option<FrameId> {
        let id = if self.free_head != NONE {
            let id = self.free_head;
            self.free_head = self.frames.get(id).next;
            self.free_len -= 1;
            id
        } else if self.fresh < self.total {
            self.fresh += 1;
            self.fresh - 1
        } else if self.evict() {
            // No effect that is not yet polled names a cached frame without a pin.
            self.cooling.pop().expect("an evicted frame cools")
        } else {
            return None;
        };
        Some(self.taken(id))
    }

    fn taken(&mut self, id: u32) -> FrameId {
        let frame = self.frames.get_mut(id);
        debug_assert!(frame.owner == Owner::Nobody && frame.pins == 0 && frame.queue == Queue::Off);
        *frame = Frame { owner: Owner::Taken, ..UNUSED };
        FrameId(id)
    }

    /// Takes a certain frame that was never used: recovery of a memory tier finds its records in place.
    pub fn claim(&mut self, id: FrameId) {
        while self.fresh <= id.0 {
            let skipped = self.fresh;
            self.fresh += 1;
            if skipped != id.0 {
                self.put_free(skipped);
            }
        }
        let frame = self.frames.get_mut(id.0);
        if frame.next != NONE || self.free_head == id.0 || frame.prev != NONE {
            self.unlink_free(id.0);
        }
        let frame = self.frames.get_mut(id.0);
        debug_assert!(frame.owner == Owner::Nobody);
        *frame = Frame { owner: Owner::Log, ..UNUSED };
    }

    // The free list is doubly linked only so that `claim` may take from its middle.
    fn put_free(&mut self, id: u32) {
        let head = self.free_head;
        *self.frames.get_mut(id) = Frame { next: head, ..UNUSED };
        if head != NONE {
            self.frames.get_mut(head).prev = id;
        }
        self.free_head = id;
        self.free_len += 1;
    }

    fn cool(&mut self, id: u32) {
        self.end_payload(id);
        *self.frames.get_mut(id) = UNUSED;
        self.cooling.push(id);
    }

    fn unlink_free(&mut self, id: u32) {
        let Frame { prev, next, .. } = *self.frames.get(id);
        if prev == NONE {
            self.free_head = next;
        } else {
            self.frames.get_mut(prev).next = next;
        }
        if next != NONE {
            self.frames.get_mut(next).prev = prev;
        }
        self.free_len -= 1;
    }

    /// Who owns it.
    pub fn owner(&self, id: FrameId) -> Owner {
        self.frames.get(id.0).owner
    }

    /// It has an owner, or somebody reads its bytes.
    pub fn is_kept(&self, id: FrameId) -> bool {
        let frame = self.frames.get(id.0);
        frame.owner != Owner::Nobody || frame.pins > 0
    }

    /// Keeps the bytes as they are until `unpin`.
    pub fn pin(&mut self, id: FrameId) {
        let frame = self.frames.get_mut(id.0);
        debug_assert!(frame.owner != Owner::Nobody || frame.pins > 0);
        frame.pins += 1;
        if frame.pins == 1 && frame.owner == Owner::Cache {
            let queue = frame.queue;
            self.fifo(queue).evictable -= 1;
        }
    }

    /// Ends one pin. True when the frame became available by it.
    pub fn unpin(&mut self, id: FrameId) -> bool {
        let frame = self.frames.get_mut(id.0);
        assert!(frame.pins > 0, "unpinned more often than pinned");
        frame.pins -= 1;
        if frame.pins > 0 {
            return false;
        }
        match frame.owner {
            Owner::Nobody => {
                self.cool(id.0);
                true
            }
            Owner::Cache => {
                let queue = frame.queue;
                self.fifo(queue).evictable += 1;
                self.end_payload(id.0);
                true
            }
            Owner::Taken | Owner::Log => false,
        }
    }

    /// A taken frame becomes a dirty record's (memory tier).
    pub fn give_to_log(&mut self, id: FrameId) {
        let frame = self.frames.get_mut(id.0);
        assert_eq!(frame.owner, Owner::Taken);
        frame.owner = Owner::Log;
        self.end_payload(id.0);
    }

    /// The owner lets go.
    pub fn release(&mut self, id: FrameId) {
        let frame = self.frames.get_mut(id.0);
        assert!(matches!(frame.owner, Owner::Taken | Owner::Log), "{:?} released by {:?}", id, frame.owner);
        frame.owner = Owner::Nobody;
        if frame.pins == 0 {
            self.cool(id.0);
        }
    }

    /// A frame (taken, or the log's) becomes the cache's: it holds the whole newest content of `block`.
    pub fn cache(&mut self, id: FrameId, block: BlockIndex, lsn: Lsn) {
        self.uncache(block);
        let remembered = self.forget_ghost(block);
        let frame = self.frames.get_mut(id.0);
        assert!(matches!(frame.owner, Owner::Taken | Owner::Log));
        frame.owner = Owner::Cache;
        frame.block = block;
        frame.lsn = lsn;
        frame.touches = 0;
        if frame.pins == 0 {
            self.end_payload(id.0);
        }
        self.cached.insert(block, id.0);
        self.push(id.0, if remembered { Queue::Main } else { Queue::Probation });
    }

    /// Forgets what is cached of a block, if anything.
    pub fn uncache(&mut self, block: BlockIndex) {
        if let Some(id) = self.cached.get(block) {
            self.drop_cached(id);
        }
    }

    /// Forgets all cached blocks in a range.
    pub fn uncache_range(&mut self, first: BlockIndex, count: u64) {
        if count == 1 {
            return self.uncache(first);
        }
        for (_, id) in self.cached.within(first, count) {
            self.drop_cached(id);
        }
    }

    fn drop_cached(&mut self, id: u32) {
        self.unlink(id);
        let frame = self.frames.get_mut(id);
        let block = frame.block;
        frame.owner = Owner::Nobody;
        let unpinned = frame.pins == 0;
        self.cached.remove(block);
        if unpinned {
            self.cool(id);
        }
    }

    /// Blocks of which something is cached.
    pub fn cached_blocks(&self) -> Vec<BlockIndex> {
        self.cached.iter().map(|(block, _)| block).collect()
    }

    /// The frame with the newest content of a block, and the record it belongs to (0: the backing's).
    pub fn cached_frame(&self, block: BlockIndex) -> Option<(FrameId, Lsn)> {
        let id = self.cached.get(block)?;
        Some((FrameId(id), self.frames.get(id).lsn))
    }

    /// The frame that has the newest content of a block and is nobody's but the cache's.
    pub fn evictable_frame(&self, block: BlockIndex) -> Option<FrameId> {
        self.cached_frame(block).map(|(frame, _)| frame).filter(|frame| self.frames.get(frame.0).pins == 0)
    }

    /// Frames that hold the newest content of these blocks become cache, as far as nobody has them.
    pub fn adopt(&mut self, blocks: Vec<(BlockIndex, FrameId)>) {
        let mut cooling = self.cooling.clone();
        cooling.sort_unstable();
        for (block, id) in blocks {
            let frame = self.frames.get(id.0);
            let free = frame.owner == Owner::Nobody && frame.pins == 0 && cooling.binary_search(&id.0).is_err();
            if free && id.0 < self.total {
                self.claim(id);
                self.cache(id, block, Lsn(0));
            }
        }
    }

    /// A client has read the block.
    pub fn touch(&mut self, id: FrameId) {
        let frame = self.frames.get_mut(id.0);
        frame.touches = (frame.touches + 1).min(3);
    }

    /// The queue in which a cached frame is.
    fn fifo(&mut self, queue: Queue) -> &mut Fifo {
        match queue {
            Queue::Probation => &mut self.probation,
            Queue::Main => &mut self.main,
            Queue::Off => unreachable!("a cached frame is in one of the queues"),
        }
    }

    fn push(&mut self, id: u32, queue: Queue) {
        let evictable = u32::from(self.frames.get(id).pins == 0);
        let fifo = self.fifo(queue);
        let head = fifo.head;
        fifo.head = id;
        fifo.len += 1;
        fifo.evictable += evictable;
        if head == NONE {
            fifo.tail = id;
        } else {
            self.frames.get_mut(head).prev = id;
        }
        let frame = self.frames.get_mut(id);
        frame.prev = NONE;
        frame.next = head;
        frame.queue = queue;
    }

    fn unlink(&mut self, id: u32) {
        let Frame { prev, next, queue, pins, .. } = *self.frames.get(id);
        if queue == Queue::Off {
            return;
        }
        let fifo = self.fifo(queue);
        fifo.len -= 1;
        fifo.evictable -= u32::from(pins == 0);
        if prev == NONE {
            fifo.head = next;
        }
        if next == NONE {
            fifo.tail = prev;
        }
        if prev != NONE {
            self.frames.get_mut(prev).next = next;
        }
        if next != NONE {
            self.frames.get_mut(next).prev = prev;
        }
        let frame = self.frames.get_mut(id);
        frame.prev = NONE;
        frame.next = NONE;
        frame.queue = Queue::Off;
    }

    /// Frees one unpinned cached frame.
    fn evict(&mut self) -> bool {
        if self.evictable() == 0 {
            return false;
        }
        // Each frame of the probation queue is met once, each of the main queue at most once for each touch and twice
        // more: this ends long before.
        let steps_max = 10 * (self.probation.len + self.main.len) + 1;
        // Pinned frames met. They go to the head of their queue, so one in which all have been met holds no other; in
        // the main queue others go there as well, and counting begins anew. One of which it is known that it holds no other
        // is not walked: it would come out in the same order, and while much is written each eviction would walk all of that.
        let met = |fifo: Fifo| if fifo.evictable == 0 { fifo.len } else { 0 };
        let (mut pinned_probation, mut pinned_main) = (met(self.probation), met(self.main));
        for _ in 0..steps_max {
            #[cfg(test)]
            {
                self.steps += 1;
            }
            let over_its_tenth = self.probation.len * 10 > self.probation.len + self.main.len;
            let main_is_pinned = pinned_main >= self.main.len;
            let from_probation = pinned_probation < self.probation.len && (over_its_tenth || main_is_pinned);
            let id = if from_probation { self.probation.tail } else { self.main.tail };
            let frame = *self.frames.get(id);
            self.unlink(id);
            if frame.pins > 0 {
                self.push(id, frame.queue);
                *(if from_probation { &mut pinned_probation } else { &mut pinned_main }) += 1;
                continue;
            }
            pinned_main = 0;
            if from_probation && frame.touches > 0 {
                self.frames.get_mut(id).touches = 0;
                self.push(id, Queue::Main);
            } else if !from_probation && frame.touches > 0 {
                self.frames.get_mut(id).touches -= 1;
                self.push(id, Queue::Main);
            } else {
                if from_probation {
                    self.remember_ghost(frame.block);
                }
                self.evictions += 1;
                self.drop_cached(id);
                return true;
            }
        }
        false
    }

    // Ghosts are fingerprints in a direct-mapped table: an older ghost gives way to a newer one by collision, which
    // ages the table at the rate of evictions, four bytes a frame.
    fn ghost(&self, block: BlockIndex) -> (usize, u32) {
        let hash = block.0.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        ((hash >> 32) as usize & (self.ghosts.len() - 1), hash as u32 | 1)
    }

    fn remember_ghost(&mut self, block: BlockIndex) {
        let (at, fingerprint) = self.ghost(block);
        self.ghosts[at] = fingerprint;
    }

    fn forget_ghost(&mut self, block: BlockIndex) -> bool {
        let (at, fingerprint) = self.ghost(block);
        let hit = self.ghosts[at] == fingerprint;
        if hit {
            self.ghosts[at] = 0;
        }
        hit
    }

    /// Walks everything and asserts the module's invariants.
    pub fn validate(&self) {
        let (mut free, mut evictable, mut cached, mut payloads) = (0, [0, 0], 0, 0);
        for id in 0..self.fresh {
            let frame = self.frames.get(id);
            payloads += u32::from(frame.payload);
            match frame.owner {
                Owner::Nobody if frame.pins == 0 => free += 1,
                Owner::Nobody | Owner::Taken | Owner::Log => assert_eq!(frame.queue, Queue::Off),
                Owner::Cache => {
                    cached += 1;
                    evictable[usize::from(frame.queue == Queue::Main)] += u32::from(frame.pins == 0);
                    assert_ne!(frame.queue, Queue::Off);
                    assert_eq!(self.cached.get(frame.block), Some(id));
                }
            }
        }
        assert_eq!(free, self.free_len + self.cooling.len() as u32);
        assert!(self.fresh <= self.total);
        assert_eq!(evictable, [self.probation.evictable, self.main.evictable]);
        assert_eq!(payloads, self.payloads);
        assert_eq!(cached, self.cached.len());
        assert_eq!(self.probation.len + self.main.len, cached as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    fn read(pool: &mut FramePool, block: u64) -> bool {
        if let Some((frame, _)) = pool.cached_frame(BlockIndex(block)) {
            pool.touch(frame);
            return true;
        }
        let frame = pool.allocate().expect("unpinned frames can be evicted");
        pool.cache(frame, BlockIndex(block), Lsn(0));
        false
    }

    const CACHE: u64 = 1000;

    /// Hit rates before a scan of twenty times the cache, and within one pass after it.
    fn around_a_scan(mut read: impl FnMut(u64) -> bool) -> (f64, f64) {
        let mut x = 1u64;
        // 80 % of the reads go to a hot set of 80 % of the cache, the rest anywhere.
        let mut pass = |read: &mut dyn FnMut(u64) -> bool, reads: u32| {
            let mut hits = 0;
            for _ in 0..reads {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let block =
                    if (x >> 40) % 10 < 8 { (x >> 33) % (CACHE * 8 / 10) } else { 100_000 + (x >> 33) % 1_000_000 };
                hits += u32::from(read(block));
            }
            f64::from(hits) / f64::from(reads)
        };
        pass(&mut read, 50_000);
        let before = pass(&mut read, 5_000);
        for block in 0..20 * CACHE {
            read(10_000_000 + block);
        }
        (before, pass(&mut read, CACHE as u32))
    }

    #[test]
    fn a_scan_of_twenty_times_the_cache_leaves_the_hot_set() {
        let mut pool = FramePool::new(CACHE as u32);
        let (before, after) = around_a_scan(|block| read(&mut pool, block));
        assert!(before > 0.75, "hot set is cached before the scan: {before}");
        assert!(after > 0.75, "within one pass after the scan: {after}, before: {before}");
        pool.validate();
    }

    /// What the test above is worth: the usual way fails it.
    #[test]
    fn least_recently_used_loses_the_hot_set_to_the_same_scan() {
        let (mut by_age, mut age_of, mut now) = (BTreeMap::new(), BTreeMap::new(), 0u64);
        let (before, after) = around_a_scan(|block| {
            now += 1;
            by_age.insert(now, block);
            let hit = age_of.insert(block, now).map(|age| by_age.remove(&age)).is_some();
            if age_of.len() > CACHE as usize {
                let (_, oldest) = by_age.pop_first().expect("more than one");
                age_of.remove(&oldest);
            }
            hit
        });
        assert!(before > 0.6, "it serves the hot set as long as nobody scans: {before}");
        assert!(after < 0.5, "within one pass after the scan: {after}, before: {before}");
    }

    #[test]
    fn what_is_available_is_delivered_however_many_are_pinned_and_hot() {
        for pinned in 0..64 {
            for hot in 1..160 {
                let total = pinned + hot;
                let mut pool = FramePool::new(total);
                let mut fill = |block: u32, main: bool| {
                    let frame = pool.allocate().expect("a fresh one");
                    if main {
                        pool.remember_ghost(BlockIndex(u64::from(block)));
                    }
                    pool.cache(frame, BlockIndex(u64::from(block)), Lsn(0));
                    (0..3 * u32::from(main)).for_each(|_| pool.touch(frame));
                    frame
                };
                // Both queues hold pinned frames, the main one all the hot ones.
                let frames: Vec<FrameId> = (0..pinned).map(|block| fill(block, block % 5 == 0)).collect();
                for block in pinned..total {
                    fill(block, true);
                }
                frames.iter().for_each(|&frame| pool.pin(frame));
                assert_eq!(pool.available(), hot);
                for delivered in 0..hot {
                    assert!(pool.allocate().is_some(), "{pinned} pinned, {hot} hot, {delivered} delivered");
                }
                assert_eq!(pool.allocate(), None);
                pool.validate();
            }
        }
    }

    /// While much is written one queue is all pinned, and longer than its tenth: each eviction begins with it.
    #[test]
    fn an_eviction_does_not_walk_a_queue_of_which_all_is_pinned() {
        const PINNED: u32 = 1000;
        const FREE: u32 = 100;
        for main_is_pinned in [false, true] {
            let mut pool = FramePool::new(PINNED + FREE);
            let mut frames: Vec<FrameId> = Vec::new();
            for block in 0..u64::from(PINNED + FREE) {
                let frame = pool.allocate().expect("a fresh one");
                if (block < u64::from(PINNED)) == main_is_pinned {
                    pool.remember_ghost(BlockIndex(block));
                }
                pool.cache(frame, BlockIndex(block), Lsn(0));
                frames.push(frame);
            }
            frames[..PINNED as usize].iter().for_each(|&frame| pool.pin(frame));
            for _ in 0..FREE {
                assert!(pool.allocate().is_some());
            }
            assert_eq!(pool.allocate(), None);
            assert!(pool.steps <= u64::from(2 * FREE), "{} steps for {FREE} frames", pool.steps);
            pool.validate();
        }
    }

    #[test]
    fn pinned_frames_are_not_evicted_and_free_up_when_unpinned() {
        let mut pool = FramePool::new(2);
        let a = pool.allocate().unwrap();
        pool.cache(a, BlockIndex(1), Lsn(0));
        pool.pin(a);
        let b = pool.allocate().unwrap();
        assert_eq!(pool.allocate(), None);
        pool.uncache(BlockIndex(1));
        assert_eq!(pool.allocate(), None, "still pinned");
        assert!(pool.unpin(a));
        assert_eq!(pool.allocate(), Some(a));
        pool.release(b);
        pool.validate();
    }
}
