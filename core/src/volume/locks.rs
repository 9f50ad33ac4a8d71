//! The order of writes that overlap, where one of them locks its blocks until its edges are merged.
//!
//! A request that overlaps a lock waits, and whoever would lock some of its blocks later waits behind it: of those that overlap, one
//! goes after the other, in the order in which they came. So no stream of small writes keeps out a wide one, and a client that has
//! thousands of requests in flight, at one place or at as many, takes no more of the thread for each of them than one with a few. Who
//! will lock nothing and meets no lock overtakes those that wait: a block that the backing does not deliver stops, with a wide request
//! that waits for it, only those that need more of the backing. That is safe: who waits has read nothing, and none of them is answered.
//!
//! For each block a map of disjoint ranges knows the newest request that wants it. Whoever comes waits for those whose ranges it
//! meets, and takes its own range out of theirs. That makes three ranges at most, and each is removed once: so all together wait for no
//! more others than three for each of them, and the end of one concerns only those who waited for it. (In this way runtimes of
//! parallel languages find which task depends on which.)
//!
//! Who is taken back leaves an empty place behind, because those after it wait for those before it only by way of it. Empty places end
//! in their turn; where they are more than a quarter of all, or all are few, the order is made anew without them.

use super::write::changed;
use crate::api::Request;
use crate::types::*;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use smallvec::SmallVec;

/// With so few places the order is made anew whenever one of them is empty.
const FEW_PLACES: usize = 64;

/// A request on its way into the log.
#[derive(Debug)]
pub(super) struct Arrived {
    /// Its place among those that came before and after it.
    pub turn: u64,
    pub id: RequestId,
    pub request: Request,
}

/// One that locks its blocks, or has to.
#[derive(Debug)]
struct Place {
    first: BlockIndex,
    last: BlockIndex,
    /// How many it waits for.
    awaited: u32,
    /// The turns of those who wait for it.
    behind: SmallVec<[u64; 2]>,
    /// As long as it waits; then it is the caller's again. None of one that waits: it was taken back.
    request: Option<Arrived>,
}

impl Place {
    fn is_empty(&self) -> bool {
        self.awaited > 0 && self.request.is_none()
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Locks {
    /// What is locked.
    held: Ranges,
    /// By turn: whoever came earlier first.
    places: BTreeMap<u64, Place>,
    /// What has a place that wants it, of which this is the last one that came.
    newest: Ranges,
    /// The same ranges: turn and first block.
    ranges: BTreeSet<(u64, BlockIndex)>,
    waiting: usize,
    empty: usize,
    /// Requests that were looked at, ranges made, and places found behind one that ended.
    #[cfg(test)]
    pub steps: u64,
}

/// First and last block that a request changes.
fn blocks_of(request: &Request) -> (BlockIndex, BlockIndex) {
    let (offset, length) = changed(request);
    (BlockIndex::of_byte(offset), BlockIndex::of_byte(offset + length - 1))
}

/// Disjoint ranges, by first block: the last one, and whose turn it is.
type Ranges = BTreeMap<BlockIndex, (BlockIndex, u64)>;

/// A range that has some of these blocks: its own first and last one, and whose it is.
fn range_of(ranges: &Ranges, first: BlockIndex, last: BlockIndex) -> Option<(BlockIndex, BlockIndex, u64)> {
    let (from, (to, turn)) = ranges.range(..=last).next_back()?;
    (*to >= first).then_some((*from, *to, *turn))
}

impl Locks {
    /// The request waits, if some of its blocks are locked; or if others wait that want them, and it is to lock them. `Err`: nothing keeps
    /// it out, and it is the caller's again.
    pub(super) fn wait_behind(&mut self, arrived: Arrived, is_to_lock: bool) -> Result<(), Arrived> {
        #[cfg(test)]
        {
            self.steps += 1;
        }
        let (first, last) = blocks_of(&arrived.request);
        let others = if is_to_lock { &self.newest } else { &self.held };
        // Who has been freed keeps its place until it has ended.
        if range_of(others, first, last).is_none() || self.places.contains_key(&arrived.turn) {
            return Err(arrived);
        }
        self.waiting += 1;
        self.add(arrived.turn, Place { first, last, awaited: 0, behind: SmallVec::new(), request: Some(arrived) });
        Ok(())
    }

    /// Nothing keeps the request out, and it locks its whole range until it ends, not only its edges: it is accepted later, and an edge
    /// that was merged meanwhile would bring back what lay under it.
    pub(super) fn lock(&mut self, turn: u64, request: &Request) {
        let (first, last) = blocks_of(request);
        if !self.places.contains_key(&turn) {
            self.add(turn, Place { first, last, awaited: 0, behind: SmallVec::new(), request: None });
        }
        debug_assert!(range_of(&self.held, first, last).is_none(), "locks do not overlap");
        self.held.insert(first, (last, turn));
    }

    /// The request is accepted, or is none any more. Who waited for it and for nobody else, in the order of their turns.
    pub(super) fn end(&mut self, turn: u64) -> Vec<Arrived> {
        let Some(place) = self.places.get(&turn) else { return Vec::new() };
        if self.held.get(&place.first).is_some_and(|(_, holder)| *holder == turn) {
            self.held.remove(&place.first);
        }
        let (mut freed, mut ended) = (Vec::new(), Vec::from([turn]));
        while let Some(turn) = ended.pop() {
            let Some(place) = self.places.remove(&turn) else { continue };
            while let Some((_, first)) = self.ranges.range((turn, BlockIndex(0))..(turn + 1, BlockIndex(0))).next() {
                self.remove_range(*first);
            }
            for turn in place.behind {
                let Some(next) = self.places.get_mut(&turn) else { continue };
                next.awaited -= 1;
                #[cfg(test)]
                {
                    self.steps += 1;
                }
                if next.awaited == 0 {
                    match next.request.take() {
                        Some(arrived) => freed.push(arrived),
                        None => {
                            self.empty -= 1;
                            ended.push(turn);
                        }
                    }
                }
            }
        }
        self.waiting -= freed.len();
        freed.extend(self.close_ranks());
        freed.sort_unstable_by_key(|arrived: &Arrived| arrived.turn);
        freed
    }

    /// Requests that wait.
    pub(super) fn waiting_len(&self) -> usize {
        self.waiting
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty() && self.newest.is_empty() && self.ranges.is_empty() && self.held.is_empty()
    }

    /// Takes back those that wait and are asked for. With them comes who waited for nobody else; both in the order of their turns.
    pub(super) fn take_back(
        &mut self,
        mut is_asked_for: impl FnMut(RequestId) -> bool,
    ) -> (Vec<Arrived>, Vec<Arrived>) {
        let mut is_asked_for = |arrived: &mut Arrived| is_asked_for(arrived.id);
        let taken: Vec<Arrived> =
            self.places.values_mut().filter_map(|place| place.request.take_if(&mut is_asked_for)).collect();
        self.waiting -= taken.len();
        self.empty += taken.len();
        (taken, self.close_ranks())
    }

    /// Makes the order anew without empty places, if it is time to. Who waited only for these, in the order of their turns.
    fn close_ranks(&mut self) -> Vec<Arrived> {
        if self.empty == 0 || (self.places.len() > FEW_PLACES && self.empty <= self.places.len() / 4) {
            return Vec::new();
        }
        self.newest.clear();
        self.ranges.clear();
        self.empty = 0;
        let mut freed = Vec::new();
        for (turn, mut place) in core::mem::take(&mut self.places) {
            if place.is_empty() {
                continue;
            }
            place.behind.clear();
            place.awaited = 0;
            self.add(turn, place);
            let place = self.places.get_mut(&turn).expect("just added");
            assert!(place.awaited == 0 || place.request.is_some(), "who goes on is kept out by nobody");
            if place.awaited == 0 {
                freed.extend(place.request.take());
            }
        }
        self.waiting -= freed.len();
        freed
    }

    /// The last one to come: it waits for whoever wants any of its blocks.
    fn add(&mut self, turn: u64, mut place: Place) {
        debug_assert!(self.places.last_key_value().is_none_or(|(last, _)| *last < turn), "in the order of their turns");
        let (first, last) = (place.first, place.last);
        let mut before: SmallVec<[u64; 4]> = SmallVec::new();
        while let Some((from, to, other)) = range_of(&self.newest, first, last) {
            self.remove_range(from);
            if from < first {
                self.add_range(from, BlockIndex(first.0 - 1), other);
            }
            if to > last {
                self.add_range(BlockIndex(last.0 + 1), to, other);
            }
            before.push(other);
        }
        self.add_range(first, last, turn);
        before.sort_unstable();
        before.dedup();
        for other in &before {
            self.places.get_mut(other).expect("it has ranges until it ends").behind.push(turn);
        }
        place.awaited = before.len() as u32;
        self.places.insert(turn, place);
    }

    fn add_range(&mut self, first: BlockIndex, last: BlockIndex, turn: u64) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
        self.newest.insert(first, (last, turn));
        self.ranges.insert((turn, first));
    }

    fn remove_range(&mut self, first: BlockIndex) {
        let (_, turn) = self.newest.remove(&first).expect("it was found");
        self.ranges.remove(&(turn, first));
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use crate::format::TierLayout;

    const NOW: Instant = Instant(1);

    fn change(block: u64, blocks: u64) -> Request {
        let length = (blocks - 1) * BLOCK_BYTES + 700;
        Request::Zero { offset: block * BLOCK_BYTES + 1, length, hole: false, fua: false }
    }

    fn arrived(turn: u64, request: Request) -> Arrived {
        Arrived { turn, id: RequestId(turn), request }
    }

    fn overlap(a: &Request, b: &Request) -> bool {
        let ((first, last), (from, to)) = (blocks_of(a), blocks_of(b));
        first <= to && from <= last
    }

    /// Numbers below a limit.
    fn draws() -> impl FnMut(u64) -> u64 {
        let mut x = 1u64;
        move |limit| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (x >> 33) % limit
        }
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Stands {
        Waits,
        Holds,
    }

    /// A plain list of those that have a place.
    #[derive(Default)]
    struct Plain(BTreeMap<u64, (Request, Stands)>);

    impl Plain {
        fn awaits_any(&self, turn: u64, request: &Request) -> bool {
            self.0.range(..turn).any(|(_, (other, _))| overlap(other, request))
        }

        fn is_kept_out(&self, turn: u64, request: &Request, is_to_lock: bool) -> bool {
            let locked =
                |(_, (other, stands)): (&u64, &(Request, Stands))| *stands == Stands::Holds && overlap(other, request);
            if is_to_lock { self.awaits_any(turn, request) } else { self.0.iter().any(locked) }
        }

        fn those(&self, which: Stands) -> Vec<u64> {
            self.0.iter().filter(|(_, (_, stands))| *stands == which).map(|(turn, _)| *turn).collect()
        }

        /// Those that wait, and for nobody any more.
        fn free(&self) -> Vec<u64> {
            let is_free = |turn: &u64| !self.awaits_any(*turn, &self.0[turn].0);
            self.those(Stands::Waits).into_iter().filter(is_free).collect()
        }
    }

    fn turns(all: &[Arrived]) -> Vec<u64> {
        all.iter().map(|arrived| arrived.turn).collect()
    }

    /// Some thousand times, at random, with so many places at most: beside a plain list.
    fn beside_a_plain_list(places_max: u64) {
        let (mut locks, mut plain, mut below) = (Locks::default(), Plain::default(), draws());
        let (mut gone_on, mut waiting_max, mut empty_max) = (0, 0, 0);
        let all = 1_000_000 / places_max;
        for turn in 0..all {
            let blocks_max = if below(10) == 0 { places_max } else { 3 };
            let (request, is_to_lock) = (change(below(2 * places_max), 1 + below(blocks_max)), below(4) > 0);
            let is_kept_out = plain.is_kept_out(turn, &request, is_to_lock);
            match locks.wait_behind(arrived(turn, request.clone()), is_to_lock) {
                // Who was taken back may keep him out.
                Ok(()) => assert!(is_kept_out || locks.empty > 0, "nothing keeps {request:?} out"),
                Err(_) => assert!(!is_kept_out, "{request:?} is kept out"),
            }
            if locks.places.contains_key(&turn) {
                plain.0.insert(turn, (request, Stands::Waits));
            } else if is_to_lock {
                locks.lock(turn, &request);
                plain.0.insert(turn, (request, Stands::Holds));
            }
            let mut freed = Vec::new();
            let so_many = if turn / 100 % 3 == 0 { places_max / 10 } else { places_max };
            while plain.0.len() as u64 > so_many || below(3) == 0 {
                let holders = plain.those(Stands::Holds);
                let Some(ended) = holders.get(below(holders.len().max(1) as u64) as usize) else { break };
                plain.0.remove(ended);
                freed = locks.end(*ended);
                gone_on += 1;
                if !freed.is_empty() {
                    break;
                }
            }
            if freed.is_empty() && below(20) == 0 {
                let each = [3, 40][below(2) as usize];
                let (taken, others) = locks.take_back(|id| id.0.is_multiple_of(each));
                let asked_for = |turn: &u64, (_, stands): &mut (Request, Stands)| {
                    *stands == Stands::Waits && turn.is_multiple_of(each)
                };
                let expected: Vec<u64> = plain.0.extract_if(.., asked_for).map(|(turn, _)| turn).collect();
                assert_eq!(turns(&taken), expected);
                freed = others;
            }
            let free = plain.free();
            if locks.empty == 0 {
                assert_eq!(turns(&freed), free);
            }
            for arrived in freed {
                assert!(free.contains(&arrived.turn), "{} is kept out", arrived.turn);
                // Nothing keeps it out, whoever comes meanwhile.
                let arrived = locks.wait_behind(arrived, true).expect_err("it is free");
                locks.lock(arrived.turn, &arrived.request);
                plain.0.get_mut(&arrived.turn).expect("it waited").1 = Stands::Holds;
            }
            let waiting = plain.those(Stands::Waits).len();
            assert_eq!((locks.waiting_len(), locks.places.len()), (waiting, plain.0.len() + locks.empty));
            assert!(locks.empty == 0 || locks.places.len() > FEW_PLACES && locks.empty * 4 <= locks.places.len());
            (waiting_max, empty_max) = (waiting_max.max(waiting), empty_max.max(locks.empty));
        }
        locks.take_back(|_| true);
        plain.those(Stands::Holds).into_iter().for_each(|turn| drop(locks.end(turn)));
        assert!(locks.is_empty());
        let few = places_max as usize <= FEW_PLACES;
        assert!(few == (empty_max == 0), "{empty_max} empty places");
        assert!(gone_on > all / 3 && waiting_max as u64 > places_max / 4, "{gone_on} of {all}, {waiting_max} waited");
    }

    #[test]
    fn those_that_overlap_go_one_after_the_other_in_the_order_in_which_they_came() {
        beside_a_plain_list(50);
        beside_a_plain_list(300);
    }

    /// Behind one lock some clients leave again and again, and others stay.
    #[test]
    fn who_leaves_costs_those_who_stay_little() {
        let (mut locks, mut below, mut turn) = (Locks::default(), draws(), 0);
        locks.lock(0, &change(0, 1000));
        for _ in 0..3000 {
            let first = turn + 1;
            for number in 0..10 {
                turn += 1;
                let request = if number == 0 { change(0, 1000) } else { change(below(1000), 1 + below(3)) };
                locks.wait_behind(arrived(turn, request), true).expect("all is locked");
            }
            let (taken, freed) = locks.take_back(|id| id.0 >= first && id.0 % 10 != 3);
            assert_eq!((taken.len(), freed.len()), (9, 0), "all is locked");
        }
        assert!(locks.steps < 20 * turn, "{} steps for {turn}", locks.steps);
    }

    /// A block that the backing does not deliver, and a wide request that waits for it: who needs only the log does not.
    #[test]
    fn who_locks_nothing_waits_for_nobody_that_waits() {
        let mut locks = Locks::default();
        locks.lock(1, &change(7, 1));
        locks.wait_behind(arrived(2, change(0, 1000)), true).expect("a block of it is locked");
        locks.wait_behind(arrived(3, change(8, 1)), false).expect_err("nobody has locked it");
        locks.wait_behind(arrived(4, change(8, 1)), true).expect("it would keep out the wide one");
        locks.wait_behind(arrived(5, change(7, 1)), false).expect("it is locked");
        assert_eq!(turns(&locks.end(1)), [2]);
        assert_eq!(turns(&locks.end(2)), [4, 5]);
    }

    /// Does what the volume asks until it rests, but for what it asks of the backing, which is kept. Number of answers.
    fn go_on(volume: &mut Volume, now: Instant, open: &mut VecDeque<OpId>) -> u64 {
        let mut answers = 0;
        volume.settle(now);
        while let Some(effect) = volume.poll_effect() {
            let done = match effect {
                Effect::TierWrite { op, .. } | Effect::TierSync { op } => Some((op, Outcome::Ok)),
                Effect::Merge { op, .. } => Some((op, Outcome::Merged(0))),
                Effect::BackingRead { op, .. }
                | Effect::BackingWrite { op, .. }
                | Effect::BackingZero { op, .. }
                | Effect::BackingSync { op } => {
                    open.push_back(op);
                    None
                }
                Effect::Reply { id, result } => {
                    assert!(result.is_ok(), "{id:?}: {result:?}");
                    answers += 1;
                    None
                }
                _ => None,
            };
            if let Some((op, outcome)) = done {
                volume.handle(now, Event::Done { op, outcome });
                volume.settle(now);
            }
        }
        answers
    }

    /// Writes of parts of sectors in turns at so many places, and zeros of so many blocks from the first of them.
    struct Load {
        parts: u64,
        places: u64,
        zeros: u64,
        zeroed_blocks: u64,
        /// Zeros come between the parts, else after them.
        mixed: bool,
    }

    /// Requests of all kinds and widths at a few blocks, of which some are taken back, before a backing that answers in any order and that
    /// fails at times, and in a log with room for few zeros: each is answered or taken back once, and nothing stays locked.
    #[test]
    fn whatever_is_taken_back_or_fails_leaves_no_lock() {
        let layout = TierLayout::memory(512).expect("a possible size");
        let mut below = draws();
        let (mut taken, mut waited) = (0, 0);
        for _ in 0..40 {
            let mut volume = fresh_volume(layout, layout.payload_blocks);
            let (mut backing, mut open, mut asked, mut now) = (VecDeque::new(), 0, 0, NOW);
            volume.handle(now, Event::BackingReady);
            go_on(&mut volume, now, &mut backing);
            for _ in 0..1000 {
                if let Some(request) = any_request(&mut volume, &mut below) {
                    volume.handle(now, Event::Request { id: RequestId(asked), request });
                    (asked, open) = (asked + 1, open + 1);
                }
                open -= go_on(&mut volume, now, &mut backing);
                waited += volume.writes.waiting_len();
                if below(8) == 0 && asked > 0 {
                    let ids: Vec<RequestId> = (0..3).map(|_| RequestId(asked - 1 - below(asked.min(40)))).collect();
                    for (_, request) in volume.take_back(&ids) {
                        (taken, open) = (taken + 1, open - 1);
                        volume.release_payload(request);
                    }
                    open -= go_on(&mut volume, now, &mut backing);
                }
                if below(3) == 0 && !backing.is_empty() {
                    let op = backing.swap_remove_back(below(backing.len() as u64) as usize).expect("one of them");
                    let outcome = if below(4) == 0 { Outcome::Failed(IoError::Failed) } else { Outcome::Ok };
                    volume.handle(now, Event::Done { op, outcome });
                    now = Instant(now.0 + 1_000_000);
                    open -= go_on(&mut volume, now, &mut backing);
                }
            }
            let mut turns = 0;
            while open > 0 {
                turns += 1;
                assert!(turns < 10_000, "{open} requests are never answered");
                while let Some(op) = backing.pop_front() {
                    volume.handle(now, Event::Done { op, outcome: Outcome::Ok });
                }
                open -= go_on(&mut volume, now, &mut backing);
                now = volume.poll_timeout().unwrap_or(now).max(now);
            }
            volume.validate();
            assert!(volume.writes.is_empty() && volume.writes.has_no_locks());
        }
        assert!(taken > 100 && waited > 10_000, "{taken} taken back, {waited} waited");
    }

    /// One that no lock keeps out any more waits for frames, and others wait for it. When it goes they go on.
    #[test]
    fn who_is_taken_back_while_it_waits_for_frames_keeps_nobody_out() {
        let layout = TierLayout::memory(512).expect("a possible size");
        let (mut volume, mut backing) = (fresh_volume(layout, layout.payload_blocks), VecDeque::new());
        go_on(&mut volume, NOW, &mut backing);
        let zero = |offset, length| Request::Zero { offset, length, hole: false, fua: false };
        let requests = [part(&mut volume, 0), zero(1, 2 * BLOCK_BYTES), part(&mut volume, 2)];
        for (id, request) in (0..).map(RequestId).zip(requests) {
            volume.handle(NOW, Event::Request { id, request });
            assert_eq!(go_on(&mut volume, NOW, &mut backing), 0);
        }
        assert_eq!((backing.len(), volume.writes.waiting_len()), (1, 2), "the others overlap the first, or the second");
        while volume.pool.available() > 1 {
            volume.pool.allocate().expect("one is there");
        }
        volume.handle(NOW, Event::Done { op: backing.pop_front().expect("a read"), outcome: Outcome::Ok });
        assert_eq!(go_on(&mut volume, NOW, &mut backing), 1);
        assert_eq!((backing.len(), volume.writes.waiting_len()), (0, 2), "zeros of two edges take more frames");
        assert_eq!(volume.take_back(&[RequestId(1)]).len(), 1);
        go_on(&mut volume, NOW, &mut backing);
        assert_eq!((backing.len(), volume.writes.waiting_len()), (1, 0), "nothing keeps out the third");
    }

    /// A write of a part of a block.
    fn part(volume: &mut Volume, block: u64) -> Request {
        let mut frames = Frames::new();
        assert!(volume.take_frames(ClientId(1), 1, &mut frames), "a frame");
        let payload = frames.iter().map(|&frame| Payload { frame, checksum: 0 }).collect();
        Request::Write { offset: block * BLOCK_BYTES + 1, length: 700, payload, fua: false }
    }

    /// A write of one block or two, or zeros of up to eight; none: there are no frames for it.
    fn any_request(volume: &mut Volume, below: &mut impl FnMut(u64) -> u64) -> Option<Request> {
        let offset = below(16) * BLOCK_BYTES + below(3) * 300;
        if below(4) == 0 {
            return Some(Request::Zero { offset, length: 1 + below(8 * BLOCK_BYTES), hole: false, fua: false });
        }
        let (mut frames, count) = (Frames::new(), 1 + below(2) as u32);
        if !volume.take_frames(ClientId(1), count, &mut frames) {
            volume.withdraw(ClientId(1));
            return None;
        }
        let payload = frames.iter().map(|&frame| Payload { frame, checksum: 0 }).collect();
        let of_first = BLOCK_BYTES - offset % BLOCK_BYTES;
        let length = if count == 1 { of_first.min(700) } else { of_first + 1 + below(BLOCK_BYTES - 1) } as u32;
        Some(Request::Write { offset, length, payload, fua: false })
    }

    /// Steps for each request.
    fn steps(load: &Load, newest_first: bool) -> f64 {
        let layout = TierLayout::memory(1 << 15).expect("a possible size");
        let (mut volume, mut reads) = (fresh_volume(layout, layout.payload_blocks), VecDeque::new());
        go_on(&mut volume, NOW, &mut reads);
        let zero = || Request::Zero { offset: 0, length: load.zeroed_blocks * BLOCK_BYTES, hole: false, fua: false };
        let (mut answers, mut asked, mut zeros) = (0, 0, 0);
        let all = load.parts + load.zeros;
        for number in 0..all {
            let is_zero = if load.mixed { (number + 1) * load.zeros / all > zeros } else { number >= load.parts };
            let request = if is_zero {
                zeros += 1;
                zero()
            } else {
                part(&mut volume, (number - zeros) % load.places * 2)
            };
            volume.handle(NOW, Event::Request { id: RequestId(asked), request });
            answers += go_on(&mut volume, NOW, &mut reads);
            asked += 1;
        }
        assert!(answers < asked / 2, "{answers} of {asked} had nobody to wait for");
        while let Some(op) = if newest_first { reads.pop_back() } else { reads.pop_front() } {
            volume.handle(NOW, Event::Done { op, outcome: Outcome::Ok });
            answers += go_on(&mut volume, NOW, &mut reads);
        }
        assert_eq!(answers, asked, "each is answered");
        volume.validate();
        volume.writes.lock_steps() as f64 / asked as f64
    }

    /// At one place or at as many as there are requests, with zeros that are as wide as all places, or the whole volume.
    #[test]
    fn many_requests_take_no_more_steps_for_each_than_few() {
        for newest_first in [false, true] {
            for parts in [200, 800, 3200] {
                for places in [1, 2, 10, parts / 2] {
                    for (zeros, zeroed_blocks) in [(0, 0), (parts / 4, 2 * places), (parts / 4, 1 << 13)] {
                        for mixed in [false, true] {
                            let steps = steps(&Load { parts, places, zeros, zeroed_blocks, mixed }, newest_first);
                            assert!(steps <= 8.0, "{steps} of {parts} at {places}, {zeros} zeros of {zeroed_blocks}");
                        }
                    }
                }
            }
        }
    }
}
