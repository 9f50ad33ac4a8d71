//! Reads: what each sector's newest content is, and fetching what is not in memory.
//!
//! A block is looked for in the log first (records and zeroings, newest first), then in the read cache, then in the
//! backing. All frames of an answer are pinned until the front end has sent it. Clients' reads leave a few frames for
//! edges and destage, which nobody but us can finish, and those are not kept waiting behind them.
//!
//! What the backing fails to deliver is read again for a while before anybody is told ([`READ_FAILS_AFTER`]), by a read that
//! begins anew: it holds no frame meanwhile, and finds what was written since. A write that waits for such a read has had no
//! effect, and can be taken back.
//!
//! A fill that was overtaken by a write is never cached (bcache once did): every fill in flight is marked stale by a
//! write to its blocks, and blocks with any live record are not cached at all, because retiring the record would
//! leave the cached copy behind.

mod assembly;
mod fills;
mod prefetch;

use assembly::Stretch;
pub(super) use assembly::StretchLoad;

use super::log_index::Found;
use super::*;
use crate::message::ASK_BLOCKS_MAX;
use smallvec::SmallVec;

/// So long after its client has asked a read is not begun anew any more, but fails with its backing. A guest waits longer (Linux: 30 s),
/// and a server that is started anew, or a path that fails over, is often faster.
const READ_FAILS_AFTER: Duration = Duration::from_secs(20);
/// What had to wait so long before its turn came is tried for this long.
const READ_TRIED_FOR: Duration = Duration::from_secs(2);
/// What the backing failed to deliver is asked for again after so long.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// That reads fail is shown for so long after the last did.
const FAILURE_SHOWN_FOR: Duration = Duration::from_secs(5);

/// For whom a read is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// A client, which gets the pieces.
    Client(RequestId),
    /// The read cache, for a client that only wants that, see [`prefetch`].
    Prefetch,
    /// A write whose edge needs the old content.
    Edge {
        /// Index of the write.
        task: usize,
        /// Index of the edge in it.
        edge: usize,
    },
    /// Nobody any more: a stop has answered.
    Nobody,
}

/// What is read, and for whom.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    target: Target,
    offset: u64,
    length: u32,
    /// When its turn came.
    since: Instant,
    /// So often it was begun anew.
    repeats: u32,
    /// Nobody waits for it any more.
    hung_up: bool,
}

impl Wanted {
    fn is_by_client(&self) -> bool {
        matches!(self.target, Target::Client(_) | Target::Prefetch)
    }
}

/// A read that the backing failed to deliver, and that begins anew.
#[derive(Debug)]
struct Failing {
    wanted: Wanted,
    again_at: Instant,
}

#[derive(Debug)]
struct Reading {
    wanted: Wanted,
    pieces: Pieces,
    /// For an edge: what the frames of records among the pieces must be.
    checks: Checks,
    /// For a client: the newest record among the pieces that some member did not hold when the read began.
    shows: Lsn,
    /// Parts that are under way.
    left: u32,
    /// What is to be copied into blocks that are put together, when nothing is under way any more.
    stretches: Vec<Stretch>,
    /// Its own frame to load records into, as long as it lasts, where blocks are put together.
    scratch: Option<FrameId>,
    failed: Option<ReadFailure>,
    /// Nothing had to be waited for.
    from_memory: bool,
}

impl Reading {
    fn new(wanted: Wanted, shows: Lsn) -> Reading {
        let (pieces, checks, stretches) = (Pieces::new(), Checks::new(), Vec::new());
        Reading { wanted, pieces, checks, shows, left: 0, stretches, scratch: None, failed: None, from_memory: false }
    }
}

/// What has failed of a read.
#[derive(Clone, Copy, Debug)]
enum ReadFailure {
    /// The tier: what it does not give once it will not give later.
    Tier,
    /// The backing: it may give it later.
    Backing(IoError),
}

/// Blocks on their way into frames, from the backing or from the cache of the former owner.
#[derive(Debug)]
pub(super) struct Fill {
    read: usize,
    pub(super) first: BlockIndex,
    pub(super) frames: Frames,
    /// For each block: no record was live when the fill began.
    cacheable: SmallVec<[bool; 2]>,
    stale: bool,
    /// The former owner is asked first, and since then.
    ask: bool,
    begun: Instant,
}

impl Fill {
    /// Blocks are being changed: if it has one of them, it will not be cached.
    pub(super) fn mark_stale(&mut self, first: BlockIndex, blocks: u64) {
        self.stale |= self.first.0 < first.0 + blocks && first.0 < self.first.0 + self.frames.len() as u64;
    }

    /// The part of it from a block on, for the backing.
    fn part(&self, from: usize, to: usize) -> Fill {
        Fill {
            read: self.read,
            first: BlockIndex(self.first.0 + from as u64),
            frames: Frames::from_slice(&self.frames[from..to]),
            cacheable: SmallVec::from_slice(&self.cacheable[from..to]),
            stale: self.stale,
            ask: false,
            begun: self.begun,
        }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Reads {
    reading: Slab<Reading>,
    fills: fills::Fills,
    /// Reads of clients that wait for frames, in the order of their asking.
    waiting: VecDeque<Wanted>,
    /// Reads of writes that do. They go before all others: what holds the frames may wait for those very writes.
    waiting_edges: VecDeque<Wanted>,
    /// Ranges that clients only want cached. They go after all others.
    prefetches: prefetch::Prefetches,
    /// Those that begin anew, because the backing failed to deliver.
    failing: Vec<Failing>,
    /// The last failure of the backing to deliver.
    failed: Option<(Instant, IoError)>,
    /// Whole, and not to be shown yet.
    pub(super) ready: super::ready::ReadyReads,
}

/// Which frames a read may take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    /// All there are.
    All,
    /// Those of clients' reads, see [`super::frame_quota`].
    Clients,
    /// None, and it may pin none that could be evicted: others wait for both.
    Nothing,
}

impl Reads {
    /// Blocks are being changed: fills of them that are under way will not be cached.
    pub(super) fn mark_stale(&mut self, first: BlockIndex, blocks: u64) {
        self.fills.mark_stale(first, blocks);
    }
}

impl Reads {
    /// Where it waits.
    fn line(&mut self, target: Target) -> &mut VecDeque<Wanted> {
        match target {
            Target::Client(_) | Target::Prefetch | Target::Nobody => &mut self.waiting,
            Target::Edge { .. } => &mut self.waiting_edges,
        }
    }

    /// Reads of writes wait for frames: nobody else takes any.
    pub(super) fn edges_wait(&self) -> bool {
        !self.waiting_edges.is_empty()
    }

    fn wait_for_frames(&self) -> bool {
        self.edges_wait() || !self.waiting.is_empty()
    }

    /// No client reads; the reads of writes are those writes' affair.
    pub(super) fn is_empty(&self) -> bool {
        self.rest() && !self.failing.iter().any(|failing| failing.wanted.is_by_client())
    }

    /// No client reads, but for what is to begin anew: nothing of that is under way, and whoever is next may begin it as well.
    pub(super) fn rest(&self) -> bool {
        !self.reading.iter().any(|(_, reading)| reading.wanted.is_by_client())
            && !self.waiting.iter().any(Wanted::is_by_client)
            && self.prefetches.is_empty()
            && self.ready.is_empty()
    }

    /// A client's read waits that began until then, but for what is to begin anew.
    pub(super) fn wait_since(&self, then: Instant) -> bool {
        let waits = |wanted: &Wanted| wanted.is_by_client() && wanted.since <= then;
        self.reading.iter().any(|(_, reading)| waits(&reading.wanted))
            || self.waiting.iter().any(waits)
            || !self.prefetches.is_empty()
    }

    /// A read of that write begins anew.
    pub(super) fn begin_anew_for(&self, write: usize) -> bool {
        self.failing.iter().any(|failing| matches!(failing.wanted.target, Target::Edge { task, .. } if task == write))
    }

    /// Why reads begin anew, or have just failed.
    pub(super) fn failing(&self, now: Instant) -> Option<IoError> {
        let (at, error) = self.failed?;
        let repeats = || self.reading.iter().any(|(_, reading)| reading.wanted.repeats > 0);
        (now < at + FAILURE_SHOWN_FOR || !self.failing.is_empty() || repeats()).then_some(error)
    }

    /// Nobody waits any more for what is under way for these: it is not begun anew.
    pub(super) fn hang_up(&mut self, ids: &RequestIds) {
        for (_, reading) in self.reading.iter_mut() {
            reading.wanted.hung_up |= matches!(reading.wanted.target, Target::Client(id) if ids.contains(id));
        }
    }

    /// Edges of this task begin anew.
    pub(super) fn failing_edges_of(&self, task: usize) -> usize {
        let of_task = |failing: &&Failing| matches!(failing.wanted.target, Target::Edge { task: of, .. } if of == task);
        self.failing.iter().filter(of_task).count()
    }

    /// Its write is taken back.
    pub(super) fn forget_edges_of(&mut self, task: usize) {
        self.failing.retain(|failing| !matches!(failing.wanted.target, Target::Edge { task: of, .. } if of == task));
    }
}

/// Where a piece's bytes will be when the read is complete.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    Memory(FrameId),
    Zero,
    Load(u32),
    Backing,
}

type BlockPlan = SmallVec<[(SectorMask, Plan); 1]>;

/// Where the pieces of a block will be.
type BlockSources = SmallVec<[(SectorMask, Source); 2]>;

/// Pieces of a block that have to be fetched, each into a frame of its own if it is not put together; all that the backing has are
/// one.
fn fetches(plan: &BlockPlan) -> u32 {
    let loads = plan.iter().filter(|(_, how)| matches!(how, Plan::Load(_))).count() as u32;
    loads + u32::from(plan.iter().any(|(_, how)| *how == Plan::Backing))
}

/// The block is put together in one frame; see [`assembly`].
fn is_put_together(target: Target, plan: &BlockPlan) -> bool {
    !matches!(target, Target::Edge { .. }) && fetches(plan) > 1
}

/// A read that has changed nothing yet.
struct Planned {
    /// Of each block.
    plans: SmallVec<[BlockPlan; 1]>,
    frames_needed: u32,
    /// Some blocks are put together: one of the frames is to load their records into.
    puts_together: bool,
    /// The newest record among the pieces that some member does not hold yet; see [`Reading::shows`].
    shows: Lsn,
}

impl Planned {
    fn in_memory(&self) -> impl Iterator<Item = FrameId> + '_ {
        self.plans.iter().flatten().filter_map(|(_, how)| match how {
            Plan::Memory(frame) => Some(*frame),
            Plan::Zero | Plan::Load(_) | Plan::Backing => None,
        })
    }
}

/// A read whose frames are being gathered.
struct Begun {
    read: usize,
    target: Target,
    checks: Checks,
    /// The fill that the next block may still belong to.
    run: Option<Fill>,
    /// What it waits for.
    left: u32,
    /// What is to be copied into blocks that are put together; see [`Reading::stretches`].
    stretches: Vec<Stretch>,
}

/// What a range has of a block: the bytes `[from, to)` in it.
fn part_of(range: &core::ops::Range<u64>, block: BlockIndex) -> (u64, u64) {
    (range.start.max(block.byte()) - block.byte(), (range.end - block.byte()).min(BLOCK_BYTES))
}

impl Volume {
    /// Begins a read; when there are no frames for it, it waits for some.
    pub(super) fn read(&mut self, target: Target, offset: u64, length: u32) {
        self.begin_read(Wanted { target, offset, length, since: self.now, repeats: 0, hung_up: false });
    }

    fn begin_read(&mut self, wanted: Wanted) {
        let target = wanted.target;
        let edges_wait = self.reads.edges_wait();
        let share = match target {
            Target::Edge { .. } if !edges_wait => Share::All,
            Target::Client(_) | Target::Prefetch | Target::Nobody if !edges_wait && self.reads.waiting.is_empty() => {
                Share::Clients
            }
            Target::Client(_) | Target::Prefetch | Target::Nobody | Target::Edge { .. } => Share::Nothing,
        };
        if !self.try_read(wanted, share) {
            if let Target::Client(id) = target
                && wanted.repeats == 0
            {
                self.recorder.waits(id);
            }
            self.reads.line(target).push_back(wanted);
        }
    }

    pub(super) fn retry_edge_reads(&mut self) {
        while let Some(&wanted) = self.reads.waiting_edges.front() {
            if !self.try_read(wanted, Share::All) {
                return;
            }
            self.reads.waiting_edges.pop_front();
        }
    }

    pub(super) fn retry_waiting_reads(&mut self) {
        while !self.reads.edges_wait()
            && let Some(&wanted) = self.reads.waiting.front()
        {
            if !self.try_read(wanted, Share::Clients) {
                return;
            }
            self.reads.waiting.pop_front();
            if let Target::Client(id) = wanted.target {
                self.recorder.admitted(id, self.now);
            }
        }
    }

    pub(super) fn drop_waiting_reads(&mut self, ids: &RequestIds) {
        let recorder = &mut self.recorder;
        let mut is_kept = |wanted: &Wanted| match wanted.target {
            Target::Client(id) if ids.contains(id) => {
                recorder.forget(id);
                false
            }
            Target::Client(_) | Target::Prefetch | Target::Edge { .. } | Target::Nobody => true,
        };
        self.reads.waiting.retain(&mut is_kept);
        self.reads.failing.retain(|failing| is_kept(&failing.wanted));
        self.reads.prefetches.forget(ids);
        self.drop_ready_reads(ids);
    }

    // --- reads that the backing failed to deliver ---

    /// The backing failed to deliver it, and it begins anew in a while. False: it has failed for too long, or nobody waits for it.
    fn begins_anew(&mut self, wanted: Wanted, error: IoError) -> bool {
        self.reads.failed = Some((self.now, error));
        let request = match wanted.target {
            _ if self.phase == Phase::Stopping => return false,
            Target::Client(id) if !self.is_mute() && !wanted.hung_up => id,
            Target::Edge { task, .. } if self.writes.awaits_edges_of(task) => self.writes.request_of(task),
            // A prefetch needs no second attempt: the read that follows will tell.
            Target::Client(_) | Target::Edge { .. } | Target::Prefetch | Target::Nobody => return false,
        };
        let asked_at = self.recorder.arrival(request).unwrap_or(wanted.since);
        let again_at = self.now + READ_AGAIN_AFTER;
        if again_at > (asked_at + READ_FAILS_AFTER).max(wanted.since + READ_TRIED_FOR) {
            return false;
        }
        self.recorder.counters.repeated_reads += 1;
        let wanted = Wanted { repeats: wanted.repeats + 1, ..wanted };
        self.reads.failing.push(Failing { wanted, again_at });
        true
    }

    /// What is due begins anew. When the volume is to become quiet nothing does: what waits, and the writes that wait for it, are for
    /// whoever is next. After a failure of the tier no write needs anything any more, and a stop waits for none of this.
    pub(super) fn retry_failing_reads(&mut self) {
        if self.phase == Phase::Stopping {
            return self.abandon_failing_reads();
        }
        let quiesces = self.is_quiescing();
        let ends_writes = quiesces || self.tier.has_failed();
        let is_due = |failing: &mut Failing| match failing.wanted.target {
            Target::Edge { .. } if ends_writes => true,
            _ => !quiesces && failing.again_at <= self.now,
        };
        let due: SmallVec<[Failing; 4]> = self.reads.failing.extract_if(.., is_due).collect();
        for Failing { wanted, .. } in due {
            match wanted.target {
                Target::Edge { task, edge } if ends_writes => self.end_edge(task, edge, Err(RequestError::Io)),
                _ => self.begin_read(wanted),
            }
        }
    }

    fn abandon_failing_reads(&mut self) {
        for Failing { wanted, .. } in core::mem::take(&mut self.reads.failing) {
            match wanted.target {
                Target::Client(id) => self.answer(id, Err(RequestError::Shutdown)),
                Target::Edge { task, edge } => self.end_edge(task, edge, Err(RequestError::Shutdown)),
                Target::Prefetch | Target::Nobody => {}
            }
        }
    }

    pub(super) fn failing_reads_timeout(&self) -> Option<Instant> {
        let next = self.reads.failing.iter().map(|failing| failing.again_at).min();
        next.filter(|_| !self.is_quiescing())
    }

    /// The whole newest content of a block can be had without any device.
    pub(super) fn whole_block_in_memory(&self, block: BlockIndex) -> bool {
        self.plan_block(block, SectorMask::FULL).iter().all(|(_, plan)| matches!(plan, Plan::Memory(_) | Plan::Zero))
    }

    fn plan_block(&self, block: BlockIndex, wanted: SectorMask) -> BlockPlan {
        let mut plan = BlockPlan::new();
        for (mask, found) in self.index.find(block, wanted) {
            let how = match found {
                Found::Zero => Plan::Zero,
                Found::Record(id) => self.frame_of_record(id).map_or(Plan::Load(id), Plan::Memory),
                Found::Backing => match self.pool.cached_frame(block) {
                    Some((frame, _)) => Plan::Memory(frame),
                    None => Plan::Backing,
                },
            };
            plan.push((mask, how));
        }
        plan
    }

    /// The frame that holds a live record's payload, if one does.
    pub(super) fn frame_of_record(&self, id: u32) -> Option<FrameId> {
        if self.flash.is_none() {
            return Some(FrameId(id));
        }
        let descriptor = self.index.get(id).descriptor;
        match self.pool.cached_frame(descriptor.block) {
            Some((frame, lsn)) if lsn == descriptor.lsn => Some(frame),
            _ => self.flash.as_ref()?.staged_frame(id),
        }
    }

    /// Begins a read if there are frames for it, and it is not one that must not be shown.
    fn try_read(&mut self, wanted: Wanted, share: Share) -> bool {
        let Wanted { target, offset, length, .. } = wanted;
        let range = offset..offset + u64::from(length);
        let first = BlockIndex::of_byte(offset);
        let planned = self.plan_read(target, &range);
        if let Target::Client(id) = target
            && self.never_shown(planned.shows)
        {
            self.answer(id, Err(RequestError::Io));
            return true;
        }
        if !self.pin_if_frames_suffice(&planned, share) {
            return false;
        }
        let checks = match target {
            Target::Edge { .. } => self.checks_in_memory(first),
            Target::Client(_) | Target::Prefetch | Target::Nobody => Checks::new(),
        };
        let read = self.reads.reading.insert(Reading::new(wanted, planned.shows));
        let mut begun = Begun { read, target, checks, run: None, left: 0, stretches: Vec::new() };
        let mut pieces = Pieces::new();
        for (i, plan) in planned.plans.iter().enumerate() {
            let block = BlockIndex(first.0 + i as u64);
            let (from, to) = part_of(&range, block);
            let sources = self.begin_block(&mut begun, block, plan, wanted.repeats == 0);
            self.push_pieces(&mut pieces, &sources, from, to);
        }
        self.await_pieces(begun, pieces, planned.puts_together);
        true
    }

    /// The read's pieces are on their way, or all there; `puts_together`: some of them are put together by a frame more.
    fn await_pieces(&mut self, begun: Begun, pieces: Pieces, puts_together: bool) {
        let Begun { read, checks, run, mut left, stretches, .. } = begun;
        left += self.begin_fill(run);
        let together = puts_together.then(|| self.pool.allocate().expect("available() was asked"));
        let reading = &mut self.reads.reading[read];
        reading.pieces = pieces;
        reading.checks = checks;
        reading.left = left;
        reading.from_memory = left == 0 && stretches.is_empty() && reading.wanted.repeats == 0;
        (reading.stretches, reading.scratch) = (stretches, together);
        if left == 0 {
            self.go_on_reading(read);
        }
    }

    /// Begins to bring all that is wanted of a block to where the read finds it.
    fn begin_block(&mut self, begun: &mut Begun, block: BlockIndex, plan: &BlockPlan, counts: bool) -> BlockSources {
        let together = is_put_together(begun.target, plan).then(|| self.frame_to_put_together(begun, block, plan));
        let mut sources = BlockSources::new();
        for &(mask, how) in plan {
            if counts {
                self.count_source(block, how);
            }
            let source = match (together, how) {
                (Some(frame), Plan::Load(id)) => {
                    begun.stretches.push(self.stretch_of(id, mask, frame));
                    Source::Frame(frame, 0)
                }
                (Some(frame), Plan::Backing) => Source::Frame(frame, 0),
                (_, how) => self.begin_source(begun, block, how),
            };
            sources.push((mask, source));
        }
        sources
    }

    /// The one frame of a block that is put together, pinned once. It is nobody's: the read has it as long as its pieces pin it.
    fn frame_to_put_together(&mut self, begun: &mut Begun, block: BlockIndex, plan: &BlockPlan) -> FrameId {
        if plan.iter().any(|(_, how)| *how == Plan::Backing) {
            return self.add_to_fill(begun, block);
        }
        let frame = self.pool.allocate().expect("available() was asked");
        self.pool.pin(frame);
        self.pool.release(frame);
        frame
    }

    /// Where the newest content of a range is.
    fn plan_read(&self, target: Target, range: &core::ops::Range<u64>) -> Planned {
        let first = BlockIndex::of_byte(range.start);
        let last = BlockIndex::of_byte(range.end - 1);
        let plans = SmallVec::with_capacity((last.0 - first.0 + 1) as usize);
        let mut planned = Planned { plans, frames_needed: 0, puts_together: false, shows: Lsn(0) };
        let all_held = self.positions.committed() == self.positions.accepted();
        for block in first.0..=last.0 {
            let block = BlockIndex(block);
            let (from, to) = part_of(range, block);
            let wanted =
                SectorMask::of_bytes(from / SECTOR_BYTES * SECTOR_BYTES, to.div_ceil(SECTOR_BYTES) * SECTOR_BYTES);
            let plan = self.plan_block(block, wanted);
            if !all_held {
                let newest = self.index.newest_above(self.positions.committed(), block, wanted);
                planned.shows = planned.shows.max(newest);
            }
            let together = is_put_together(target, &plan);
            planned.puts_together |= together;
            planned.frames_needed += if together { 1 } else { fetches(&plan) };
            planned.plans.push(plan);
        }
        planned.frames_needed += u32::from(planned.puts_together);
        planned
    }

    /// Pins what is in memory, if the frames that the read may take are as many as it needs; else nothing is pinned.
    fn pin_if_frames_suffice(&mut self, planned: &Planned, share: Share) -> bool {
        // Pin what is in memory before anything is allocated: allocation evicts.
        let available_before = self.pool.available();
        for frame in planned.in_memory() {
            self.pool.pin(frame);
        }
        let available = self.pool.available();
        let needed = planned.frames_needed;
        let takes_none = needed == 0 && available == available_before;
        let fits = match share {
            Share::All => available >= needed,
            Share::Clients => takes_none || available >= needed + self.frames_left_by_reads(),
            Share::Nothing => takes_none,
        };
        if !fits {
            for frame in planned.in_memory() {
                self.pool.unpin(frame);
            }
        }
        fits
    }

    /// Where a piece of a block was found, or not, when it was first looked for.
    fn count_source(&mut self, block: BlockIndex, how: Plan) {
        let is_clean = self.index.is_clean(block);
        let counters = &mut self.recorder.counters;
        match how {
            Plan::Zero => counters.read_blocks_of_zeros += 1,
            Plan::Memory(_) if is_clean => counters.read_blocks_from_cache += 1,
            Plan::Memory(_) | Plan::Load(_) => counters.read_blocks_from_log += 1,
            // Counted when it is clear who is asked.
            Plan::Backing => {}
        }
    }

    /// Begins to bring a piece of a block to where the read finds it; a frame comes pinned.
    fn begin_source(&mut self, begun: &mut Begun, block: BlockIndex, how: Plan) -> Source {
        match how {
            Plan::Zero => Source::Zero,
            Plan::Memory(frame) => {
                if let Target::Client(_) = begun.target {
                    self.pool.touch(frame);
                }
                Source::Frame(frame, 0)
            }
            Plan::Load(id) => {
                begun.left += 1;
                let frame = self.load_record(begun.read, id);
                if let Target::Edge { .. } = begun.target {
                    begun.checks.push((frame, self.check_of(id)));
                }
                Source::Frame(frame, 0)
            }
            Plan::Backing => Source::Frame(self.add_to_fill(begun, block), 0),
        }
    }

    /// A frame for a block from the backing, or the former owner's cache: of the fill that ends before it, or of a new one.
    fn add_to_fill(&mut self, begun: &mut Begun, block: BlockIndex) -> FrameId {
        let frame = self.pool.allocate().expect("available() was asked");
        self.pool.pin(frame);
        let cacheable = self.destage.ready && self.index.is_clean(block);
        let ask = self.may_ask_for(block);
        let blocks_max = match ask {
            true => ASK_BLOCKS_MAX,
            false => self.config.backing_write_bytes_max / BLOCK_BYTES as u32,
        };
        match &mut begun.run {
            Some(fill)
                if fill.first.0 + fill.frames.len() as u64 == block.0
                    && fill.ask == ask
                    && (fill.frames.len() as u32) < blocks_max =>
            {
                fill.frames.push(frame);
                fill.cacheable.push(cacheable);
            }
            _ => {
                begun.left += self.begin_fill(begun.run.take());
                begun.run = Some(Fill {
                    read: begun.read,
                    first: block,
                    frames: Frames::from_slice(&[frame]),
                    cacheable: SmallVec::from_slice(&[cacheable]),
                    stale: false,
                    ask,
                    begun: self.now,
                });
            }
        }
        frame
    }

    /// What the frames that hold records of a block must be. Clean cache has no checksum.
    fn checks_in_memory(&self, block: BlockIndex) -> Checks {
        let check = |(_, found)| match found {
            log_index::Found::Record(id) => Some((self.frame_of_record(id)?, self.check_of(id))),
            log_index::Found::Zero | log_index::Found::Backing => None,
        };
        self.index.find(block, SectorMask::FULL).into_iter().filter_map(check).collect()
    }

    /// Turns a block's sources into pieces of the bytes `[from, to)`. Every frame among the sources comes pinned
    /// once; a piece takes one pin, so extra pieces of a frame pin again and an unused pin is given back.
    fn push_pieces(&mut self, pieces: &mut Pieces, sources: &[(SectorMask, Source)], from: u64, to: u64) {
        let source_of = |sector: u64| {
            sources.iter().find(|(mask, _)| mask.0 & 1 << sector != 0).expect("every wanted sector has a source").1
        };
        let mut used: SmallVec<[FrameId; 4]> = SmallVec::new();
        let mut at = from;
        while at < to {
            let source = source_of(at / SECTOR_BYTES);
            let mut stop = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
            while stop < to && source_of(stop / SECTOR_BYTES) == source {
                stop += SECTOR_BYTES;
            }
            let stop = stop.min(to);
            let length = (stop - at) as u32;
            match source {
                Source::Frame(frame, _) => {
                    if used.contains(&frame) {
                        self.pool.pin(frame);
                    }
                    used.push(frame);
                    pieces.push(Piece { source: Source::Frame(frame, at as u16), length });
                }
                Source::Zero => match pieces.last_mut() {
                    Some(Piece { source: Source::Zero, length: zeros }) => *zeros += length,
                    _ => pieces.push(Piece { source: Source::Zero, length }),
                },
            }
            at = stop;
        }
    }

    fn begin_fill(&mut self, fill: Option<Fill>) -> u32 {
        let Some(fill) = fill else { return 0 };
        if fill.ask {
            self.ask_former(fill)
        } else {
            self.fill_from_backing(fill)
        }
        1
    }

    fn fill_from_backing(&mut self, fill: Fill) {
        let (at, frames) = (fill.first, fill.frames.clone());
        let repeats = self.reads.reading[fill.read].wanted.repeats;
        let fill = self.reads.fills.insert(fill);
        let op = self.begin_op(Op::ReadBacking { fill });
        self.recorder.counters.backing_reads += 1;
        if repeats == 0 {
            self.recorder.counters.read_blocks_from_backing += frames.len() as u64;
        }
        self.effects.push_back(Effect::BackingRead { op, at, frames });
    }

    /// The former owner has answered, or is not waited for: what it has not sent is read from the backing.
    pub(super) fn end_asked(&mut self, fill: Fill, there: &[bool]) {
        if let Target::Client(_) = self.reads.reading[fill.read].wanted.target {
            self.recorder.seen.reads.network.record(self.now - fill.begun);
        }
        let has = |at: usize| there.get(at).copied().unwrap_or(false);
        let mut at = 0;
        while at < fill.frames.len() {
            let from = at;
            while at < fill.frames.len() && has(at) == has(from) {
                at += 1;
            }
            let part = fill.part(from, at);
            if has(from) {
                self.settle_fill(&part, true);
            } else {
                self.reads.reading[fill.read].left += 1;
                self.fill_from_backing(part);
            }
        }
        self.end_part(fill.read, None);
    }

    /// Flash: fetches a record's payload; the frame comes pinned.
    fn load_record(&mut self, read: usize, id: u32) -> FrameId {
        let frame = self.pool.allocate().expect("available() was asked");
        self.pool.pin(frame);
        let check = self.check_of(id);
        let lsn = self.index.get(id).descriptor.lsn;
        let flash = self.flash.as_mut().expect("memory tiers have every record in memory");
        let segment = flash.segment_of(id);
        // The segment must not be freed and overwritten while it is being read.
        flash.segments[segment as usize].busy += 1;
        let at = flash.place(id);
        let op = self.begin_op(Op::ReadTier { read, frame, segment, block: check.block, lsn });
        self.effects.push_back(Effect::TierRead { op, at, frames: Checks::from_slice(&[(frame, check)]) });
        frame
    }

    pub(super) fn on_tier_read(
        &mut self,
        read: usize,
        frame: FrameId,
        segment: u32,
        block: BlockIndex,
        lsn: Lsn,
        failed: Option<IoError>,
    ) {
        let flash = self.flash.as_mut().expect("only flash is read back");
        flash.segments[segment as usize].busy -= 1;
        flash.drain_if_empty(segment);
        let newest = self.index.newest_record(block).map(|id| *self.index.get(id));
        let keep = failed.is_none()
            && newest.is_some_and(|r| r.descriptor.lsn == lsn && r.mask.is_full() && self.index.zeroed(block) < lsn);
        if keep {
            self.pool.cache(frame, block, lsn);
        } else {
            self.pool.release(frame);
        }
        self.end_part(read, failed.map(|_| ReadFailure::Tier));
    }

    /// A block has come from flash.
    pub(super) fn note_tier_read(&mut self, read: usize, took: Duration) {
        if let Target::Client(_) = self.reads.reading[read].wanted.target {
            self.recorder.seen.reads.local.record(took);
        }
    }

    pub(super) fn on_backing_read(&mut self, fill: usize, took: Duration, failed: Option<IoError>) {
        let fill = self.reads.fills.remove(fill);
        let seen = &mut self.recorder.seen;
        match (failed, self.reads.reading[fill.read].wanted.target) {
            (Some(_), _) => self.recorder.counters.backing_errors += 1,
            (None, Target::Client(_)) => seen.reads.backing.record(took),
            (None, Target::Edge { .. }) => seen.writes.backing.record(took),
            (None, Target::Prefetch | Target::Nobody) => {}
        }
        self.settle_fill(&fill, failed.is_none());
        self.end_part(fill.read, failed.map(ReadFailure::Backing));
    }

    /// What has come is cached, unless it is not the newest any more.
    fn settle_fill(&mut self, fill: &Fill, came: bool) {
        for (i, &frame) in fill.frames.iter().enumerate() {
            let block = BlockIndex(fill.first.0 + i as u64);
            let keep = came
                && !fill.stale
                && ((fill.cacheable[i] && self.index.is_clean(block)) || planted!(self, fill_over_newer_write));
            if keep {
                self.pool.cache(frame, block, Lsn(0));
            } else {
                self.recorder.counters.fills_dropped += u64::from(came);
                self.pool.release(frame);
            }
        }
    }

    fn end_part(&mut self, read: usize, failed: Option<ReadFailure>) {
        let reading = &mut self.reads.reading[read];
        if !matches!(reading.failed, Some(ReadFailure::Tier)) {
            reading.failed = failed.or(reading.failed);
        }
        reading.left -= 1;
        if reading.left == 0 {
            self.go_on_reading(read);
        }
    }

    fn end_read(&mut self, read: usize) {
        let reading = self.reads.reading.remove(read);
        let Reading { wanted, pieces, checks, shows, scratch, failed, from_memory, .. } = reading;
        if let Some(scratch) = scratch {
            self.pool.release(scratch);
        }
        if let Some(ReadFailure::Backing(error)) = failed
            && self.begins_anew(wanted, error)
        {
            return self.unpin_pieces(&pieces);
        }
        let error = failed.map(|failure| self.error_of(failure));
        match wanted.target {
            Target::Client(id) if self.is_mute() => {
                self.recorder.forget(id);
                self.unpin_pieces(&pieces);
            }
            Target::Client(id) => match error {
                None => {
                    if wanted.repeats > 0 {
                        self.recorder.read_waited(Duration(READ_AGAIN_AFTER.0 * u64::from(wanted.repeats)));
                    }
                    self.answer_read(id, pieces, shows, from_memory);
                }
                Some(error) => {
                    self.unpin_pieces(&pieces);
                    self.answer(id, Err(error));
                }
            },
            Target::Nobody => self.unpin_pieces(&pieces),
            Target::Prefetch => {
                self.unpin_pieces(&pieces);
                self.end_prefetched_part(error.is_some());
            }
            Target::Edge { task, edge } => match error {
                None => self.on_edge_read(task, edge, pieces, checks),
                Some(error) => {
                    self.unpin_pieces(&pieces);
                    self.end_edge(task, edge, Err(error));
                }
            },
        }
    }

    /// What the backing fails to deliver to a volume that stops is abandoned: whoever serves next may still have it.
    fn error_of(&self, failure: ReadFailure) -> RequestError {
        match failure {
            ReadFailure::Backing(_) if self.phase == Phase::Stopping => RequestError::Shutdown,
            ReadFailure::Backing(_) | ReadFailure::Tier => RequestError::Io,
        }
    }

    /// A stop does not wait for a backing that does not answer.
    pub(super) fn abandon_reads(&mut self) {
        self.abandon_failing_reads();
        let reading = self.reads.reading.iter_mut().map(|(_, reading)| &mut reading.wanted.target);
        let waiting = self.reads.waiting.iter_mut().map(|wanted| &mut wanted.target);
        let mut open: SmallVec<[RequestId; 4]> = SmallVec::new();
        for target in reading.chain(waiting) {
            if let Target::Client(id) = *target {
                open.push(id);
                *target = Target::Nobody;
            }
        }
        self.abandon_prefetches();
        for id in open {
            self.answer(id, Err(RequestError::Shutdown));
        }
        self.abandon_assemblies();
        self.abandon_ready_reads();
    }

    pub(super) fn unpin_pieces(&mut self, pieces: &Pieces) {
        for piece in pieces {
            if let Source::Frame(frame, _) = piece.source {
                self.pool.unpin(frame);
            }
        }
    }
}
