//! Requests that change the volume: admission and throttle, unaligned edges, and their way into the log.
//!
//! A write whose edge covers part of a sector is one atomic read-modify-write: its edge blocks are locked, the old
//! content is read through the normal read path and merged, and only then does the write enter the log. Edges that
//! end on sector boundaries do this only when the old block is in memory anyway; otherwise they become records of
//! some sectors, because the slow backing is never read to accept a small write.

use super::append::SEGMENTS_KEPT_FREE;
use super::locks::{Arrived, Locks};
use super::read::Target;
use super::*;
use crate::format::Kind;
use alloc::collections::BTreeMap;
use smallvec::SmallVec;

/// Pressure ([`Volume::pressure`]) above which writes are slowed.
const THROTTLE_FROM: f64 = 0.5;
/// Pressure at which admission equals the backing's speed; the rest of the log absorbs the steps of destage rounds.
const THROTTLE_BALANCE: f64 = 0.95;
/// Admission is never slower than the backing's speed divided by this: when a backing slows down, the time to drain may
/// pass its limit by any factor, and clients must go on all the same.
const THROTTLE_MAX: f64 = 2.0;
/// While the log has to get small, writes get what the backing takes divided by this at most.
const SHRINK_PACE: f64 = 2.0;

#[derive(Debug)]
struct Edge {
    block: BlockIndex,
    from: u16,
    to: u16,
    frame: FrameId,
    /// Frame of the old content, when it had to be put together.
    base: Option<FrameId>,
    /// What the base was put together from; pinned until the merge is done.
    pieces: Pieces,
    checksum: Option<u32>,
    ended: bool,
}

#[derive(Debug)]
struct Task {
    turn: u64,
    id: RequestId,
    since: Instant,
    request: Request,
    edges: SmallVec<[Edge; 2]>,
    failed: Option<RequestError>,
    /// Answered already, by a stop that did not wait for it.
    abandoned: bool,
    /// Its client has hung up: it is executed if nothing fails, and not tried again.
    hung_up: bool,
}

/// See the module.
pub(super) struct Writes {
    /// By their turns: whoever a lock has kept out goes before those who came later.
    waiting: BTreeMap<u64, (RequestId, Request)>,
    turns: u64,
    tasks: Slab<Task>,
    /// Payload blocks and other records of all of them, see [`Volume::claimed`].
    claimed: (u64, u32),
    /// What the tasks have locked, and whoever has to go after them.
    locks: Locks,
    admit_next: Instant,
    /// Under a hold, or before a change of hands: since when the first of those that wait lacks room, which destage or compaction makes.
    without_room: Option<Instant>,
}

impl Writes {
    pub(super) fn new(now: Instant) -> Writes {
        Writes {
            waiting: BTreeMap::new(),
            turns: 0,
            tasks: Slab::new(),
            claimed: (0, 0),
            locks: Locks::default(),
            admit_next: now,
            without_room: None,
        }
    }

    pub(super) fn waiting_len(&self) -> u32 {
        (self.waiting.len() + self.locks.waiting_len()) as u32
    }

    #[cfg(test)]
    pub(super) fn lock_steps(&self) -> u64 {
        self.locks.steps
    }

    #[cfg(test)]
    pub(super) fn has_no_locks(&self) -> bool {
        self.locks.is_empty()
    }

    /// The request that is admitted next.
    pub(super) fn first_waiting(&self) -> Option<&Request> {
        self.waiting.first_key_value().map(|(_, (_, request))| request)
    }

    fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    fn wait(&mut self, Arrived { turn, id, request }: Arrived) {
        self.waiting.insert(turn, (id, request));
    }

    /// The first of those that wait, which is not admitted.
    fn pop_waiting(&mut self) -> Option<(RequestId, Request)> {
        let (turn, waiting) = self.waiting.pop_first()?;
        self.leave(turn);
        Some(waiting)
    }

    /// The request keeps out nobody any more.
    fn leave(&mut self, turn: u64) {
        self.locks.end(turn).into_iter().for_each(|arrived| self.wait(arrived));
    }

    /// Its edges are being merged: meanwhile what it will append is claimed.
    fn begin_task(&mut self, task: Task) -> usize {
        let (blocks, others) = needs(&task.request);
        self.claimed = (self.claimed.0 + blocks, self.claimed.1 + others);
        self.tasks.insert(task)
    }

    /// It goes on, or fails. With it comes who waited for nothing but its lock.
    fn end_task(&mut self, at: usize) -> (Task, Vec<Arrived>) {
        let task = self.tasks.remove(at);
        let (blocks, others) = needs(&task.request);
        self.claimed = (self.claimed.0 - blocks, self.claimed.1 - others);
        let freed = self.locks.end(task.turn);
        (task, freed)
    }

    /// Its client waits for what its edges cover.
    pub(super) fn awaits_edges_of(&self, task: usize) -> bool {
        let task = &self.tasks[task];
        !task.abandoned && !task.hung_up
    }

    /// Whose edges they are.
    pub(super) fn request_of(&self, task: usize) -> RequestId {
        self.tasks[task].id
    }

    /// A write waits that began until then, for what lies beside it in the backing, but for those whose reads begin anew.
    pub(super) fn wait_since(&self, then: Instant, begin_anew_for: impl Fn(usize) -> bool) -> bool {
        self.tasks.iter().any(|(at, task)| !task.abandoned && task.since <= then && !begin_anew_for(at))
    }

    /// Nobody waits for anything on its way into the log.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.locks.waiting_len() == 0 && self.tasks.iter().all(|(_, task)| task.abandoned)
    }
}

/// Range of bytes that a request changes.
pub(super) fn changed(request: &Request) -> (u64, u64) {
    match *request {
        Request::Write { offset, length, .. } => (offset, u64::from(length)),
        Request::Zero { offset, length, .. } => (offset, length),
        Request::Read { .. } | Request::Flush | Request::Prefetch { .. } => unreachable!("these change nothing"),
    }
}

/// Payload blocks and other records that a request may append at most.
pub(super) fn needs(request: &Request) -> (u64, u32) {
    match request {
        Request::Write { payload, .. } => (payload.len() as u64, 0),
        // Two edges, and whole blocks in records of less than 2^32 each; a volume has at most 2^34.
        Request::Zero { .. } => (2, 7),
        Request::Read { .. } | Request::Flush | Request::Prefetch { .. } => unreachable!("these change nothing"),
    }
}

impl Volume {
    pub(super) fn on_request(&mut self, id: RequestId, request: Request) {
        if (self.phase == Phase::Agreeing || self.is_quiescing()) && !self.replication.own_role.is_stepping_down() {
            return self.replication.agreement.keep_request(id, request);
        }
        if self.phase != Phase::Serving || self.is_mute() {
            return self.refuse(id, request, RequestError::Shutdown);
        }
        if let Err(error) = self.admissible(&request) {
            return self.refuse(id, request, error);
        }
        match request {
            Request::Read { offset, length } => {
                self.recorder.counters.reads += 1;
                self.recorder.counters.read_bytes += u64::from(length);
                self.recorder.reads(offset, length);
                self.read(Target::Client(id), offset, length);
            }
            Request::Prefetch { offset, length } => self.prefetch(id, offset, length),
            Request::Flush => self.flush(id),
            Request::Write { .. } | Request::Zero { .. } => {
                if self.tier.has_failed() {
                    return self.refuse(id, request, RequestError::Io);
                }
                let admitted = self.writes.waiting.is_empty() && self.may_admit(&request);
                let arrived = Arrived { turn: self.writes.next_turn(), id, request };
                if admitted {
                    self.begin_write(arrived);
                } else {
                    self.recorder.counters.throttled_writes += 1;
                    self.recorder.waits(id);
                    self.writes.wait(arrived);
                }
            }
        }
    }

    fn refuse(&mut self, id: RequestId, request: Request, error: RequestError) {
        self.release_payload(request);
        self.answer(id, Err(error));
    }

    pub(super) fn release_payload(&mut self, request: Request) {
        if let Request::Write { payload, .. } = request {
            for block in payload {
                self.pool.release(block.frame);
            }
        }
    }

    /// Everything that waits for admission fails.
    pub(super) fn refuse_waiting(&mut self, error: RequestError) {
        while let Some((id, request)) = self.writes.pop_waiting() {
            self.refuse(id, request, error);
        }
    }

    fn refuse_arrived(&mut self, arrived: Vec<Arrived>, error: RequestError) {
        for Arrived { id, request, .. } in arrived {
            self.refuse(id, request, error);
        }
    }

    /// A stop does not wait for old content that the backing does not deliver: nothing of these is in the log.
    pub(super) fn abandon_writes(&mut self) {
        self.refuse_waiting(RequestError::Shutdown);
        let (locked, _) = self.writes.locks.take_back(|_| true);
        self.refuse_arrived(locked, RequestError::Shutdown);
        let open: SmallVec<[RequestId; 4]> = self
            .writes
            .tasks
            .iter_mut()
            .filter_map(|(_, task)| (!core::mem::replace(&mut task.abandoned, true)).then_some(task.id))
            .collect();
        for id in open {
            self.answer(id, Err(RequestError::Shutdown));
        }
    }

    pub(super) fn on_hangup(&mut self, ids: &[RequestId]) {
        // Given a position already: executed, and the reply finds nobody. Not yet: dropped with their connection.
        for (_, request) in self.take_back(ids) {
            self.release_payload(request);
        }
        let ids = RequestIds::new(ids);
        self.reads.hang_up(&ids);
        self.writes.tasks.iter_mut().for_each(|(_, task)| task.hung_up |= ids.contains(task.id));
    }

    /// Takes back those of these requests that wait and have had no effect: of the others nobody can say any more what
    /// becomes of them. The frames of their payloads are the caller's again.
    pub fn take_back(&mut self, ids: &[RequestId]) -> Vec<(RequestId, Request)> {
        let ids = RequestIds::new(ids);
        let asked_for = |id: RequestId| ids.contains(id);
        let (locked, freed) = self.writes.locks.take_back(asked_for);
        let waiting: Vec<(u64, (RequestId, Request))> =
            self.writes.waiting.extract_if(.., |_, (id, _)| asked_for(*id)).collect();
        freed.into_iter().for_each(|arrived| self.writes.wait(arrived));
        waiting.iter().for_each(|(turn, _)| self.writes.leave(*turn));
        let mut taken: Vec<(RequestId, Request)> = waiting.into_iter().map(|(_, waiting)| waiting).collect();
        taken.extend(locked.into_iter().map(|Arrived { id, request, .. }| (id, request)));
        let kept = self.replication.agreement.kept_requests();
        for (id, request) in core::mem::take(kept) {
            if asked_for(id) {
                taken.push((id, request));
            } else {
                kept.push_back((id, request));
            }
        }
        taken.iter().for_each(|(id, _)| self.recorder.forget(*id));
        self.take_back_failing(&ids, &mut taken);
        self.drop_waiting_reads(&ids);
        taken
    }

    /// Writes of these whose edges wait until the backing is asked once more: nothing of them is under way.
    fn take_back_failing(&mut self, ids: &RequestIds, taken: &mut Vec<(RequestId, Request)>) {
        let rests = |(at, task): (usize, &mut Task)| {
            let open = task.edges.iter().filter(|edge| !edge.ended).count();
            let rests = !task.abandoned && ids.contains(task.id) && open == self.reads.failing_edges_of(at);
            rests.then_some(at)
        };
        let resting: SmallVec<[usize; 4]> = self.writes.tasks.iter_mut().filter_map(rests).collect();
        for at in &resting {
            self.reads.forget_edges_of(*at);
            let (Task { id, request, edges, .. }, freed) = self.writes.end_task(*at);
            freed.into_iter().for_each(|arrived| self.writes.wait(arrived));
            self.release_bases(&edges);
            self.release_zeroed(&request, &edges);
            self.recorder.forget(id);
            taken.push((id, request));
        }
    }

    /// The payload is again what its client has sent, with zeros around it, as its checksums say.
    fn unmerge(&mut self, request: &Request, edges: &[Edge]) {
        if !matches!(request, Request::Write { .. }) {
            return;
        }
        for edge in edges.iter().filter(|edge| edge.checksum.is_some()) {
            for (start, end) in [(0, edge.from), (edge.to, BLOCK_BYTES as u16)] {
                if start < end {
                    let (source, target) = (Source::Zero, edge.frame);
                    self.effects.push_back(Effect::Copy { source, target, start, length: end - start });
                }
            }
        }
    }

    fn release_bases(&mut self, edges: &[Edge]) {
        edges.iter().filter_map(|edge| edge.base).for_each(|base| self.pool.release(base));
    }

    /// A request that zeroes has frames of its own for its edges, which go where it does not enter the log.
    fn release_zeroed(&mut self, request: &Request, edges: &[Edge]) {
        if matches!(request, Request::Zero { .. }) {
            edges.iter().for_each(|edge| self.pool.release(edge.frame));
        }
    }

    fn flush(&mut self, id: RequestId) {
        self.recorder.counters.flushes += 1;
        if self.tier.has_failed() {
            return self.answer(id, Err(RequestError::Io));
        }
        self.close_group();
        let lsn = self.positions.accepted();
        let ground = self.flush_ground();
        self.answer_at(id, lsn, ground);
    }

    // --- admission ---

    /// Payload blocks and other records that admitted writes will append when their edges are merged.
    pub(super) fn claimed(&self) -> (u64, u32) {
        self.writes.claimed
    }

    fn may_admit(&mut self, request: &Request) -> bool {
        // Frames taken for its edges would be missed by those that wait for frames, and before which it could not end anyway.
        if self.reads.edges_wait() && !self.edges_to_merge(request).is_empty() {
            return false;
        }
        let (own_blocks, own_others) = needs(request);
        let (claimed_blocks, claimed_others) = self.claimed();
        let (blocks, others) = (own_blocks + claimed_blocks, own_others + claimed_others);
        if !self.log_has_room(blocks, others) || !self.peers_have_room(blocks, others) {
            return false;
        }
        let pressure = self.pressure();
        let rate = self.destage.bytes_per_sec();
        // On the way to write-through the log has to get small, whatever clients do.
        let shrinks = self.control.reason == Reason::Draining;
        let paced = (pressure > THROTTLE_FROM || shrinks) && rate > 0 && self.control.effective == Policy::Back;
        if paced && (shrinks || !self.supersedes_all(request)) {
            if self.now < self.writes.admit_next {
                return false;
            }
            let x = ((pressure - THROTTLE_FROM) / (THROTTLE_BALANCE - THROTTLE_FROM)).max(0.0);
            let slower = (x * x).min(THROTTLE_MAX).max(if shrinks { SHRINK_PACE } else { 0.0 });
            let bytes = (own_blocks * BLOCK_BYTES) as f64;
            let wait = bytes / rate as f64 * slower * 1e9;
            let from = self.writes.admit_next.max(Instant(self.now.0.saturating_sub(10_000_000)));
            self.writes.admit_next = Instant(from.0 + wait as u64);
        }
        true
    }

    /// The own log takes so many more blocks and other records.
    fn log_has_room(&self, blocks: u64, others: u32) -> bool {
        self.index.others_left() >= others
            && u64::from(self.index.payload_blocks()) + blocks <= u64::from(self.dirty_blocks_max())
            && self.flash.as_ref().is_none_or(|flash| flash.room(SEGMENTS_KEPT_FREE) >= blocks + u64::from(others))
    }

    /// The write that comes next waits for room, here or at a member that has all it was sent.
    fn note_room(&mut self) {
        let needed = self.writes.first_waiting().filter(|_| self.control.is_held() || self.is_leaving()).map(needs);
        let lacks = needed.is_some_and(|(blocks, others)| {
            !self.log_has_room(blocks, others)
                || self.replication.members.is_full(self.positions.accepted(), blocks, others)
        });
        self.writes.without_room = self.writes.without_room.or(Some(self.now)).filter(|_| lacks);
    }

    /// When a write has waited so long for room that destage does not make now: under a hold, or before a change of hands.
    pub(super) fn without_room_until(&self, patience: Duration) -> Option<Instant> {
        self.writes.without_room.map(|since| since + patience)
    }

    /// The write only replaces what it supersedes: the log does not grow by it, so a hot set is never slowed.
    fn supersedes_all(&self, request: &Request) -> bool {
        let Request::Write { offset, payload, .. } = request else { return false };
        let first = BlockIndex::of_byte(*offset).0;
        (first..first + payload.len() as u64).all(|block| {
            let newest = self.index.newest_record(BlockIndex(block));
            newest.is_some_and(|id| {
                let record = self.index.get(id);
                record.descriptor.group == self.groups.current() && record.mask.is_full()
            })
        })
    }

    pub(super) fn admit_waiting(&mut self) {
        if self.tier.has_failed() {
            return self.refuse_waiting(RequestError::Io);
        }
        if self.is_quiescing() && !self.replication.own_role.is_stepping_down() {
            return self.keep_waiting();
        }
        let first = self.writes.waiting.first_key_value().map(|(turn, _)| *turn);
        self.admit_what_finds_room();
        if self.writes.waiting.first_key_value().map(|(turn, _)| *turn) != first {
            self.writes.without_room = None;
        }
        self.note_room();
    }

    /// What waits for room when the volume is to become quiet is for whoever is next.
    fn keep_waiting(&mut self) {
        while let Some((id, request)) = self.writes.pop_waiting() {
            self.recorder.admitted(id, self.now);
            self.replication.agreement.keep_request(id, request);
        }
    }

    fn admit_what_finds_room(&mut self) {
        while let Some((turn, (id, request))) = self.writes.waiting.pop_first() {
            let arrived = Arrived { turn, id, request };
            if !self.may_admit(&arrived.request) {
                return self.writes.wait(arrived);
            }
            self.recorder.admitted(id, self.now);
            if planted!(self, time_from_admission) {
                self.recorder.arrived(id, &arrived.request, self.now);
            }
            if !self.begin_write(arrived) {
                return;
            }
        }
    }

    pub(super) fn admission_timeout(&self) -> Option<Instant> {
        let paced = !self.writes.waiting.is_empty() && self.writes.admit_next > self.now;
        let gives_up_hold = self.hold_gives_room_at();
        [paced.then_some(self.writes.admit_next), gives_up_hold].into_iter().flatten().min()
    }

    // --- unaligned edges ---

    /// Begins an admitted write. False: no frame is free for an edge, and it waits again.
    fn begin_write(&mut self, arrived: Arrived) -> bool {
        let skips_lock = planted!(self, skip_edge_lock);
        let edges = self.edges_to_merge(&arrived.request);
        let is_to_lock = !edges.is_empty();
        let not_locked = if skips_lock { Err(arrived) } else { self.writes.locks.wait_behind(arrived, is_to_lock) };
        let Err(Arrived { turn, id, request }) = not_locked else { return true };
        if edges.is_empty() {
            self.accept(id, request, &[]);
            self.writes.leave(turn);
            return true;
        }
        let is_zero = matches!(request, Request::Zero { .. });
        if (self.pool.available() as usize) < edges.len() * (1 + usize::from(is_zero)) {
            self.writes.wait(Arrived { turn, id, request });
            return false;
        }
        let mut task_edges: SmallVec<[Edge; 2]> = SmallVec::new();
        for (block, from, to) in edges {
            // The frame that the old content is put together in, should it lie in pieces: taken now, because a merge
            // under way cannot wait for one.
            let scratch = self.pool.allocate().expect("available() was asked");
            let frame = match &request {
                Request::Write { offset, payload, .. } => {
                    payload[(block.0 - BlockIndex::of_byte(*offset).0) as usize].frame
                }
                _ => self.pool.allocate().expect("available() was asked"),
            };
            if is_zero {
                let (source, length) = (Source::Zero, BLOCK_BYTES as u16);
                self.effects.push_back(Effect::Copy { source, target: frame, start: 0, length });
            }
            task_edges.push(Edge {
                block,
                from,
                to,
                frame,
                base: Some(scratch),
                pieces: Pieces::new(),
                checksum: None,
                ended: false,
            });
        }
        let blocks: SmallVec<[BlockIndex; 2]> = task_edges.iter().map(|edge| edge.block).collect();
        if !skips_lock {
            self.writes.locks.lock(turn, &request);
        }
        let task = self.writes.begin_task(Task {
            turn,
            id,
            since: self.now,
            request,
            edges: task_edges,
            failed: None,
            abandoned: false,
            hung_up: false,
        });
        for (edge, block) in blocks.into_iter().enumerate() {
            let length = self.block_bytes(block) as u32;
            self.read(Target::Edge { task, edge }, block.byte(), length);
        }
        true
    }

    /// The request's blocks whose old content must be merged before it can be accepted, and those where that is worth while: it is not
    /// where others wait for frames.
    fn edges_to_merge(&self, request: &Request) -> SmallVec<[(BlockIndex, u16, u16); 2]> {
        let (offset, length) = changed(request);
        let end = offset + length;
        let (first, last) = (BlockIndex::of_byte(offset), BlockIndex::of_byte(end - 1));
        let mut edges = SmallVec::new();
        for block in [first, last] {
            let from = offset.max(block.byte()) - block.byte();
            let to = (end - block.byte()).min(BLOCK_BYTES);
            let partial = from > 0 || to < self.block_bytes(block);
            let within_sector = !from.is_multiple_of(SECTOR_BYTES) || !to.is_multiple_of(SECTOR_BYTES);
            let data = matches!(request, Request::Write { .. });
            let spares_a_record = || data && !self.reads.edges_wait() && self.whole_block_in_memory(block);
            if partial && (within_sector || spares_a_record()) {
                edges.push((block, from as u16, to as u16));
            }
            if first == last {
                break;
            }
        }
        edges
    }

    /// The old content of an edge has been read.
    pub(super) fn on_edge_read(&mut self, task: usize, edge: usize, pieces: Pieces, checks: Checks) {
        let checks = if planted!(self, merge_unchecked) { Checks::new() } else { checks };
        let Edge { block, from, to, frame, .. } = self.writes.tasks[task].edges[edge];
        let base = match pieces.as_slice() {
            [Piece { source: Source::Zero, .. }] => Source::Zero,
            [Piece { source: Source::Frame(whole, 0), length }] if u64::from(*length) == BLOCK_BYTES => {
                Source::Frame(*whole, 0)
            }
            _ => {
                let together = self.writes.tasks[task].edges[edge].base.expect("taken with the edge");
                let mut at = 0u16;
                self.effects.push_back(Effect::Copy {
                    source: Source::Zero,
                    target: together,
                    start: 0,
                    length: BLOCK_BYTES as u16,
                });
                for piece in &pieces {
                    if let Source::Frame(..) = piece.source {
                        let (source, length) = (piece.source, piece.length as u16);
                        self.effects.push_back(Effect::Copy { source, target: together, start: at, length });
                    }
                    at += piece.length as u16;
                }
                Source::Frame(together, 0)
            }
        };
        let op = self.begin_op(Op::Merge { task, edge });
        self.effects.push_back(Effect::Merge {
            op,
            checks,
            target: frame,
            base,
            from,
            to,
            block,
            term: self.identity.term(),
        });
        // Unpinned when the merge is done: until it is polled, a client must not be given one of these frames.
        self.writes.tasks[task].edges[edge].pieces = pieces;
    }

    pub(super) fn on_merged(&mut self, task: usize, edge: usize, merged: Result<u32, RequestError>) {
        let pieces = core::mem::take(&mut self.writes.tasks[task].edges[edge].pieces);
        self.unpin_pieces(&pieces);
        self.end_edge(task, edge, merged);
    }

    /// One edge is merged, or cannot be. When both have ended the request goes on, or fails whole.
    pub(super) fn end_edge(&mut self, task: usize, edge: usize, result: Result<u32, RequestError>) {
        let entry = &mut self.writes.tasks[task];
        entry.edges[edge].ended = true;
        match result {
            Ok(checksum) => entry.edges[edge].checksum = Some(checksum),
            Err(error) => entry.failed = Some(error),
        }
        if !entry.edges.iter().all(|edge| edge.ended) {
            return;
        }
        let (task, freed) = self.writes.end_task(task);
        let Task { id, request, edges, failed, abandoned, hung_up, .. } = task;
        self.release_bases(&edges);
        let failed = if self.tier.has_failed() { Some(RequestError::Io) } else { failed };
        let quiesces = self.is_quiescing() && !self.replication.own_role.is_stepping_down();
        let keeps = quiesces && self.phase == Phase::Serving && !self.tier.has_failed() && !abandoned && !hung_up;
        if failed.is_none() && !abandoned {
            self.accept(id, request, &edges);
        } else {
            self.release_zeroed(&request, &edges);
            match failed {
                // Nothing of it is in the log, and whoever is next may do better.
                Some(_) if keeps => {
                    self.unmerge(&request, &edges);
                    self.replication.agreement.keep_request(id, request);
                }
                Some(error) if !abandoned => self.refuse(id, request, error),
                Some(_) | None => self.release_payload(request),
            }
        }
        self.retry_freed(freed);
    }

    /// What no lock keeps out any more is admitted anew: room was granted before, and others may have used it since.
    fn retry_freed(&mut self, mut freed: Vec<Arrived>) {
        if self.tier.has_failed() || self.phase != Phase::Serving && self.phase != Phase::Stopping {
            let (locked, _) = self.writes.locks.take_back(|_| true);
            freed.iter().for_each(|arrived| self.writes.leave(arrived.turn));
            freed.extend(locked);
            freed.sort_unstable_by_key(|arrived| arrived.turn);
            self.refuse_arrived(freed, RequestError::Io);
        } else {
            freed.into_iter().for_each(|arrived| self.writes.wait(arrived));
        }
        self.admit_waiting();
    }

    // --- into the log ---

    fn accept(&mut self, id: RequestId, request: Request, edges: &[Edge]) {
        let before = self.positions.accepted();
        let fua = match request {
            Request::Write { offset, length, payload, fua } => {
                self.recorder.counters.writes += 1;
                self.recorder.counters.write_bytes += u64::from(length);
                self.recorder.writes(offset, u64::from(length));
                self.accept_data(offset, u64::from(length), &payload, edges);
                self.note_write();
                fua
            }
            Request::Zero { offset, length, hole, fua } => {
                self.recorder.counters.zeros += 1;
                self.recorder.counters.zero_bytes += length;
                self.accept_zeros(offset, length, hole, edges);
                fua
            }
            Request::Read { .. } | Request::Flush | Request::Prefetch { .. } => unreachable!("these change nothing"),
        };
        let lsn = self.positions.accepted();
        let ground = self.write_ground(fua, (lsn.0 - before.0) as u32);
        if fua && !planted!(self, fua_is_no_barrier) {
            self.close_group();
        }
        if self.flash.is_none() {
            self.on_held(lsn);
        }
        self.answer_at(id, lsn, ground);
    }

    /// A client's write is in the log: its legs begin.
    fn note_write(&mut self) {
        match &mut self.flash {
            Some(flash) => flash.note_write(),
            None => self.recorder.logged(self.now),
        }
        if !self.replication.members.is_alone() {
            self.recorder.awaits_members(self.positions.accepted());
        }
    }

    fn accept_data(&mut self, offset: u64, length: u64, payload: &[Payload], edges: &[Edge]) {
        let end = offset + length;
        let mut block = BlockIndex::of_byte(offset);
        for part in payload {
            let merged = edges.iter().find(|edge| edge.block == block);
            let from = offset.max(block.byte()) - block.byte();
            let to = (end - block.byte()).min(BLOCK_BYTES);
            let (mask, checksum) = match merged {
                Some(edge) => (SectorMask::FULL, edge.checksum.expect("merged before acceptance")),
                None => (SectorMask::of_bytes(from, to), part.checksum),
            };
            self.append_record(block, Kind::Data { mask, checksum }, Some(part.frame));
            block = BlockIndex(block.0 + 1);
        }
    }

    fn accept_zeros(&mut self, offset: u64, length: u64, hole: bool, edges: &[Edge]) {
        let end = offset + length;
        let mut block = BlockIndex::of_byte(offset);
        while block.byte() < end {
            let from = offset.max(block.byte()) - block.byte();
            let to = (end - block.byte()).min(BLOCK_BYTES);
            if let Some(edge) = edges.iter().find(|edge| edge.block == block) {
                let checksum = edge.checksum.expect("merged before acceptance");
                self.append_record(block, Kind::Data { mask: SectorMask::FULL, checksum }, Some(edge.frame));
                block = BlockIndex(block.0 + 1);
            } else if from > 0 || to < self.block_bytes(block) {
                self.append_record(block, Kind::ZeroSectors { mask: SectorMask::of_bytes(from, to) }, None);
                block = BlockIndex(block.0 + 1);
            } else {
                // Whole blocks up to the last one that is either whole or ends the volume.
                let stop = if end == self.size_bytes { end.div_ceil(BLOCK_BYTES) } else { end / BLOCK_BYTES };
                let blocks = (stop - block.0).min(u64::from(u32::MAX)) as u32;
                if planted!(self, forget_zeros) {
                    return;
                }
                self.append_record(block, Kind::ZeroBlocks { blocks, hole }, None);
                block = BlockIndex(block.0 + u64::from(blocks));
            }
        }
    }
}
