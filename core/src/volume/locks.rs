//! Blocks that writes have locked until their edges are merged, and the requests that wait behind each of these locks.
//!
//! A client may have as many of both as requests in flight, and so may each of its connections. So a lock is found by its blocks, and
//! its end concerns only who waits behind it: were all looked at then, against all locks, and whatever else admission walks, a
//! few thousand writes of parts of sectors would take the thread from all its volumes for many seconds.
//!
//! Locks do not overlap: who would lock what is locked waits. A request that several of them keep out waits behind one,
//! and looks for the next one when that has ended. That is cheap where requests lie apart. Of those that all wait for one block each end
//! still frees all, of whom one goes on; and a request that is much wider than what is locked comes to wait behind one after the other.

use super::write::changed;
use crate::api::Request;
use crate::types::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A request on its way into the log.
#[derive(Debug)]
pub(super) struct Arrived {
    /// Its place among those that came before and after it.
    pub turn: u64,
    pub id: RequestId,
    pub request: Request,
}

#[derive(Debug)]
struct Lock {
    last: BlockIndex,
    behind: Vec<Arrived>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Locks {
    /// By first block, and the write that holds it.
    held: BTreeMap<(BlockIndex, usize), Lock>,
    behind: usize,
    draws: u64,
    /// Requests for which a lock was looked for.
    #[cfg(test)]
    pub looked_for: u64,
}

/// First and last block that a request changes.
fn blocks_of(request: &Request) -> (BlockIndex, BlockIndex) {
    let (offset, length) = changed(request);
    (BlockIndex::of_byte(offset), BlockIndex::of_byte(offset + length - 1))
}

impl Locks {
    /// A write locks its whole range, not only its edges: it is accepted later, and an edge that was merged meanwhile would bring back
    /// what lay under it.
    pub(super) fn lock(&mut self, task: usize, request: &Request) {
        let (first, last) = blocks_of(request);
        self.held.insert((first, task), Lock { last, behind: Vec::new() });
    }

    /// The write has ended. Who waited behind it and can go on, in the order of their turns: nobody else has become free.
    pub(super) fn unlock(&mut self, task: usize, request: &Request) -> Vec<Arrived> {
        let (first, _) = blocks_of(request);
        let lock = self.held.remove(&(first, task)).expect("a write holds its lock until it ends");
        self.behind -= lock.behind.len();
        let mut freed: Vec<Arrived> =
            lock.behind.into_iter().filter_map(|arrived| self.wait_behind(arrived).err()).collect();
        freed.sort_unstable_by_key(|arrived| arrived.turn);
        freed
    }

    /// The request waits behind a lock that keeps it out. `Err`: none does, and it is the caller's again.
    pub(super) fn wait_behind(&mut self, arrived: Arrived) -> Result<(), Arrived> {
        let Some(key) = self.lock_over(&arrived.request) else { return Err(arrived) };
        self.held.get_mut(&key).expect("just found").behind.push(arrived);
        self.behind += 1;
        Ok(())
    }

    /// Any lock of the request's blocks, drawn by its place: so a request comes to wait behind few of them, in whatever order they end, where
    /// they are spread over it. Behind the first one it would wait behind each, if they end in their order.
    fn lock_over(&mut self, request: &Request) -> Option<(BlockIndex, usize)> {
        #[cfg(test)]
        {
            self.looked_for += 1;
        }
        if self.held.is_empty() {
            return None;
        }
        let (first, last) = blocks_of(request);
        self.draws = self.draws.wrapping_add(1);
        let drawn = self.draws.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 16;
        let point = BlockIndex(first.0 + drawn % (last.0 - first.0 + 1));
        let before = self.held.range(..=(point, usize::MAX)).next_back().filter(|(_, lock)| first <= lock.last);
        let found = before.or_else(|| self.held.range((point, usize::MAX)..=(last, usize::MAX)).next());
        found.map(|(key, _)| *key)
    }

    /// Requests behind locks.
    pub(super) fn len_behind(&self) -> usize {
        self.behind
    }

    /// Takes back those behind locks that are asked for, in the order of their turns.
    pub(super) fn take_back(&mut self, mut is_asked_for: impl FnMut(RequestId) -> bool) -> Vec<Arrived> {
        let mut taken: Vec<Arrived> = Vec::new();
        for lock in self.held.values_mut().filter(|lock| !lock.behind.is_empty()) {
            taken.extend(lock.behind.extract_if(.., |arrived| is_asked_for(arrived.id)));
        }
        self.behind -= taken.len();
        taken.sort_unstable_by_key(|arrived| arrived.turn);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use crate::format::TierLayout;
    use alloc::collections::BTreeMap;

    const NOW: Instant = Instant(1);

    fn change(block: u64, blocks: u64) -> Request {
        let length = (blocks - 1) * BLOCK_BYTES + 700;
        Request::Zero { offset: block * BLOCK_BYTES + 1, length, hole: false, fua: false }
    }

    fn arrived(turn: u64, request: Request) -> Arrived {
        Arrived { turn, id: RequestId(turn), request }
    }

    /// Some thousand times, at random: beside a plain list of what is locked.
    #[test]
    fn who_is_kept_out_waits_until_nothing_keeps_him_out() {
        let (mut locks, mut held, mut x) = (Locks::default(), BTreeMap::<usize, Request>::new(), 1u64);
        let mut below = |limit: u64| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 33) % limit
        };
        let mut waiting: BTreeMap<u64, Request> = BTreeMap::new();
        let overlap = |a: &Request, b: &Request| {
            let ((first, last), (from, to)) = (blocks_of(a), blocks_of(b));
            first <= to && from <= last
        };
        let mut gone_on = 0;
        for turn in 0..5000 {
            let blocks_max = if below(10) == 0 { 60 } else { 3 };
            let request = change(below(100), 1 + below(blocks_max));
            let is_locked = held.values().any(|other| overlap(other, &request));
            match locks.wait_behind(arrived(turn, request.clone())) {
                Ok(()) => {
                    assert!(is_locked, "nothing keeps {request:?} out");
                    waiting.insert(turn, request);
                }
                Err(_) => {
                    assert!(!is_locked, "{request:?} is locked");
                    let task = (0..).find(|task| !held.contains_key(task)).expect("a number");
                    locks.lock(task, &request);
                    held.insert(task, request);
                }
            }
            if below(3) == 0
                && let Some(task) = held.keys().nth(below(held.len() as u64) as usize).copied()
            {
                let request = held.remove(&task).expect("one of them");
                let freed = locks.unlock(task, &request);
                assert!(freed.is_sorted_by_key(|arrived| arrived.turn));
                let expected: Vec<u64> = waiting
                    .iter()
                    .filter(|(_, request)| !held.values().any(|other| overlap(other, request)))
                    .map(|(turn, _)| *turn)
                    .collect();
                assert_eq!(freed.iter().map(|arrived| arrived.turn).collect::<Vec<_>>(), expected);
                gone_on += freed.len();
                waiting.retain(|turn, _| !expected.contains(turn));
            }
            if below(50) == 0 {
                let taken = locks.take_back(|id| id.0.is_multiple_of(2));
                let even: Vec<u64> = waiting.keys().copied().filter(|turn| turn % 2 == 0).collect();
                assert_eq!(taken.iter().map(|arrived| arrived.turn).collect::<Vec<_>>(), even);
                waiting.retain(|turn, _| turn % 2 != 0);
            }
            assert_eq!(locks.len_behind(), waiting.len());
        }
        assert!(gone_on > 500, "{gone_on} went on");
    }

    /// Does what the volume asks until it rests, but for reads of the backing, which it keeps. Number of answers.
    fn go_on(volume: &mut Volume, reads: &mut VecDeque<OpId>) -> u64 {
        let mut answers = 0;
        volume.settle(NOW);
        while let Some(effect) = volume.poll_effect() {
            let done = match effect {
                Effect::TierWrite { op, .. } | Effect::TierSync { op } => Some((op, Outcome::Ok)),
                Effect::Merge { op, .. } => Some((op, Outcome::Merged(0))),
                Effect::BackingRead { op, .. } => {
                    reads.push_back(op);
                    None
                }
                Effect::Reply { result, .. } => {
                    assert!(result.is_ok());
                    answers += 1;
                    None
                }
                _ => None,
            };
            if let Some((op, outcome)) = done {
                volume.handle(NOW, Event::Done { op, outcome });
                volume.settle(NOW);
            }
        }
        answers
    }

    /// How often a lock is looked for, for each request: parts of sectors are written at so many places, twice, and beside that all of it
    /// is zeroed so many times; reads of the edges end in any of two orders.
    fn looked_for(places: u64, zeros: u64, newest_first: bool) -> f64 {
        let layout = TierLayout::memory(1 << 15).expect("a possible size");
        let (mut volume, mut reads) = (fresh_volume(layout, layout.payload_blocks), VecDeque::new());
        go_on(&mut volume, &mut reads);
        let (mut answers, mut asked) = (0, 0);
        let wholes = (0..zeros).map(|_| (0, 2 * places * BLOCK_BYTES, true));
        let parts = (0..2 * places).map(|number| (number % places * 2 * BLOCK_BYTES + 1, 700, false));
        for (offset, length, is_zero) in parts.chain(wholes) {
            let request = if is_zero {
                Request::Zero { offset, length, hole: false, fua: false }
            } else {
                let mut frames = Frames::new();
                assert!(volume.take_frames(ClientId(1), 1, &mut frames), "frames for {asked} requests");
                let payload = frames.iter().map(|&frame| Payload { frame, checksum: 0 }).collect();
                Request::Write { offset, length: length as u32, payload, fua: false }
            };
            volume.handle(NOW, Event::Request { id: RequestId(asked), request });
            answers += go_on(&mut volume, &mut reads);
            asked += 1;
        }
        assert_eq!(reads.len() as u64, places, "each place is read once, and the others wait");
        while let Some(op) = if newest_first { reads.pop_back() } else { reads.pop_front() } {
            volume.handle(NOW, Event::Done { op, outcome: Outcome::Ok });
            answers += go_on(&mut volume, &mut reads);
        }
        assert_eq!(answers, asked, "each is answered");
        volume.validate();
        volume.writes.locks_looked_for() as f64 / asked as f64
    }

    #[test]
    fn among_many_locks_a_request_looks_for_no_more_than_among_few() {
        for newest_first in [false, true] {
            for places in [100, 400, 1600] {
                let of_parts = looked_for(places, 0, newest_first);
                assert!(of_parts <= 3.0, "{of_parts} times for each of {places}");
                let of_wholes = looked_for(places, places, newest_first);
                assert!(of_wholes <= 20.0, "{of_wholes} times for each of {places}, all of it zeroed");
            }
        }
    }
}
