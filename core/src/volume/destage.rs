//! Destage: the log's records go to the backing, barrier group by barrier group.
//!
//! Rules (the argument is in docs/losses.md; the simulator breaks each on purpose):
//! 1. a record goes out only when every member of the log holds it, and lies in the window that all know ([`super::marks`]);
//! 2. a record of group g+1 goes out only when everything of group g is durable in the backing *and* the tier vouches for
//!    it: by a durable checkpoint; or, one group behind, by holding on its medium all that sending g once more needs
//!    (see [`Volume::vouched`]). So a restart sends at most one complete group again, and that takes nothing back;
//! 3. a record never overtakes an older one of the same block that is chosen and that the backing has not completed;
//! 4. a record ends only when the backing has *synced* it and the checkpoint says so; a failed write or sync means
//!    that everything since the last good sync is written again;
//! 5. nothing goes out before the backing is locked by this process.
//!
//! Within a group records leave oldest first, in chunks sorted by address with neighbours merged. Oldest first makes
//! a group that is still open drain what was not rewritten for the longest time: what is rewritten supersedes its
//! older self in the log and never reaches the backing twice.

mod collect;
mod sync;

use super::ahead::Ahead;
use super::control::Goal;
use super::frames::Owner;
use super::log_index::State;
use super::*;
use crate::format::Kind;
use smallvec::SmallVec;

/// Records collected at one time: enough to sort and merge, few enough that newer writes can still supersede.
const CHUNK_RECORDS_MAX: usize = 512;
/// A sync that nobody waits for is delayed by this much, so that trickling writes share one.
const SYNC_DELAY: Duration = Duration::from_millis(500);
/// Pause after a failed operation, doubled up to the maximum while it keeps failing.
const RETRY_DELAY_MIN: Duration = Duration::from_millis(50);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);
/// A round between two syncs is sized to take about this long, so that room is freed smoothly.
const ROUND_TIME: Duration = Duration::from_millis(500);
/// The first round, while the backing's speed is not known: two thirds of a second for a disk of 100 operations a second. A
/// larger one fills a small tier before the first sync tells how much to slow down, and then nothing moves until it ends.
const FIRST_ROUND_BYTES: u64 = 256 << 10;
/// Pressure above which destage does not wait for writes to age.
const FILL_EAGER: f64 = 0.25;
/// Writes in a second from which on a backing is fast: it gets the whole depth, others half of it. Twice as many at one
/// time cost less CPU each, and here they take some milliseconds at most; a read waits behind them.
const FAST_WRITES_PER_SEC: u64 = 16_000;
/// Ages are noted this often.
const AGE_STEP: Duration = Duration::from_millis(50);

/// One write to the backing: neighbouring whole blocks, or some sectors of one block.
#[derive(Debug)]
struct Writing {
    records: SmallVec<[(u32, Lsn); 4]>,
    /// Pinned; of a payload that had to be loaded, also taken.
    frames: SmallVec<[FrameId; 4]>,
    /// Frames that were taken to load payloads.
    loads: u32,
    loads_left: u32,
    writes_left: u32,
    /// Old block under a partial record on a backing of 4 KiB sectors.
    old_block: Option<FrameId>,
    failed: Option<IoError>,
    /// Something of it was sent to the backing.
    wrote: bool,
    /// Pieces of a zeroed range that come after this one, as bytes `[.0, .1)`.
    pieces_left: Vec<(u64, u64)>,
    /// The piece at hand.
    piece: (u64, u64),
    /// The backing cannot zero: bytes `[.0, .1)` of the piece are still to be written as data.
    zeros_left: Option<(u64, u64)>,
}

/// See the module.
pub(super) struct Destage {
    pub(super) ready: bool,
    /// Chosen and sorted, to be issued.
    queue: VecDeque<(u32, Lsn)>,
    /// Chosen, but an older write of the same block is still in flight.
    deferred: Vec<(u32, Lsn)>,
    /// Payloads of the queue that are read from flash.
    pub(super) ahead: Ahead,
    /// A synced journal batch waits here until its ranges are applied.
    held_back: VecDeque<(u32, Lsn)>,
    pub(super) group: Group,
    /// Where the group before it ended.
    group_after: Lsn,
    /// Sending the group again, whole, from its start would not at any moment take back what it has written: every
    /// record chosen from it covers its block, so a restart sends the newest of each block and nothing else.
    pub(super) repeatable: bool,
    /// Everything live up to here has been chosen since the last rewind.
    pub(super) collected: Lsn,
    writing: Slab<Writing>,
    pub(super) in_flight: u32,
    /// Frames taken for what had to be loaded.
    pub(super) loads: u32,
    /// Writes that wait for a lease with their bytes in memory.
    leaseless: Vec<usize>,
    /// A zeroed range is in flight: it may overlap anything, so it runs alone.
    range_in_flight: bool,
    /// The backing has refused a zero or hole request: ranges are written as data.
    zero_unsupported: bool,
    /// Bytes completed since the last sync began.
    unsynced_bytes: u64,
    /// Writes completed since the last sync began.
    unsynced_writes: u64,
    unsynced_since: Option<Instant>,
    syncing: bool,
    failing: Option<IoError>,
    /// What failed may have cost what the backing had completed since the last good sync.
    lost: bool,
    retry_at: Instant,
    retry_delay: Duration,
    round_bytes: u64,
    /// Since when the backing has had something to do, and how long before that in this round: the pauses in which a
    /// light load leaves it alone say nothing of its speed.
    busy_since: Option<Instant>,
    busy: Duration,
    rate_bytes_per_sec: u64,
    /// The last round that was long enough to tell went at [`FAST_WRITES_PER_SEC`].
    fast: bool,
    /// When positions were accepted, coarsely: `(first position, time)`.
    ages: VecDeque<(Lsn, Instant)>,
}

impl Destage {
    pub(super) fn new(config: &VolumeConfig, now: Instant) -> Destage {
        Destage {
            ready: false,
            queue: VecDeque::new(),
            deferred: Vec::new(),
            ahead: Ahead::default(),
            held_back: VecDeque::new(),
            group: Group(0),
            group_after: Lsn(0),
            repeatable: true,
            collected: Lsn(0),
            writing: Slab::with_capacity(config.backing_depth_max as usize + 1),
            in_flight: 0,
            loads: 0,
            leaseless: Vec::new(),
            range_in_flight: false,
            zero_unsupported: false,
            unsynced_bytes: 0,
            unsynced_writes: 0,
            unsynced_since: None,
            syncing: false,
            failing: None,
            lost: false,
            retry_at: now,
            retry_delay: RETRY_DELAY_MIN,
            round_bytes: config.destage_round_bytes_max.min(FIRST_ROUND_BYTES),
            busy_since: None,
            busy: Duration(0),
            rate_bytes_per_sec: 0,
            fast: false,
            ages: VecDeque::new(),
        }
    }

    /// Measured speed while destaging.
    pub(super) fn bytes_per_sec(&self) -> u64 {
        self.rate_bytes_per_sec
    }

    /// The backing has something to do from now on.
    pub(super) fn begin_work(&mut self, now: Instant) {
        self.busy_since.get_or_insert(now);
    }

    /// Records of a journaled batch that are done because newer ones of it cover them.
    pub(super) fn note_written_bytes(&mut self, bytes: u64) {
        self.unsynced_bytes += bytes;
    }

    /// Sorted records that follow when their ranges are applied.
    pub(super) fn hold_back(&mut self, records: VecDeque<(u32, Lsn)>) {
        self.held_back = records;
    }

    /// Part of a journaled batch goes to the backing now.
    pub(super) fn queue_now(&mut self, pick: Pick) {
        match pick {
            Pick::One(record) => self.queue.push_back(record),
            Pick::HeldBack => self.queue.append(&mut self.held_back),
        }
    }

    /// All these go to the backing, in this order.
    pub(super) fn queue_all(&mut self, records: Vec<(u32, Lsn)>) {
        self.queue.extend(records);
    }

    /// Recovery has filled the log.
    pub(super) fn resume(&mut self, destaged: Lsn) {
        self.collected = destaged;
        self.group_after = destaged;
    }
}

/// Part of a journaled batch.
pub(super) enum Pick {
    /// One zeroed range.
    One((u32, Lsn)),
    /// All that was held back.
    HeldBack,
}

/// How a record reaches the backing.
enum Way {
    /// Its payload's bytes as they are, all or some sectors.
    Payload,
    /// Zeros to some sectors.
    ZeroSectors,
    /// Zeros to a range of blocks.
    Range { blocks: u32 },
}

impl Volume {
    pub(super) fn note_age(&mut self, lsn: Lsn) {
        let due = self.destage.ages.back().is_none_or(|(_, noted)| self.now - *noted >= AGE_STEP);
        if due && self.destage.ages.len() < 4096 {
            self.destage.ages.push_back((lsn, self.now));
        }
    }

    fn accepted_at(&self, lsn: Lsn) -> Instant {
        let after = self.destage.ages.partition_point(|(first, _)| *first <= lsn);
        match after.checked_sub(1) {
            Some(i) => self.destage.ages[i].1,
            None => Instant(0),
        }
    }

    pub(super) fn oldest_dirty(&self, now: Instant) -> Duration {
        match self.index.oldest() {
            Some(id) => now - self.accepted_at(self.index.get(id).descriptor.lsn),
            None => Duration(0),
        }
    }

    pub(super) fn groups_waiting(&self) -> u32 {
        match self.index.oldest() {
            Some(id) => {
                let oldest = self.index.get(id).descriptor.group;
                self.groups.from(oldest)
            }
            None => 0,
        }
    }

    pub(super) fn backing_state(&self, now: Instant) -> BackingState {
        match (self.destage.ready, self.destage.failing) {
            (false, _) if self.journal.is_replaying() => BackingState::ReplayingJournal,
            (false, _) => BackingState::AwaitingLock,
            (true, Some(error)) => BackingState::Failing(error),
            (true, None) if self.control.is_held() => BackingState::Held,
            (true, None) if self.awaits_fence() => BackingState::AwaitingFence,
            (true, None) => self.reads.failing(now).map_or(BackingState::Ready, BackingState::FailingReads),
        }
    }

    /// The backing keeps failing: for those who wait for a drain with an end.
    pub(super) fn backing_failing(&self) -> bool {
        self.destage.failing.is_some()
    }

    /// Nothing is under way to the backing and nothing completed is unsynced.
    pub(super) fn backing_quiet(&self) -> bool {
        self.destage.in_flight == 0
            && self.destage.queue.is_empty()
            && self.destage.deferred.is_empty()
            && !self.destage.syncing
            && self.destage.unsynced_since.is_none()
            && !self.journal.is_busy()
            && !self.must_journal()
    }

    /// How long a record must have been accepted before it goes out.
    fn delay_now(&self) -> Duration {
        let eager = self.control.effective == Policy::Through
            || self.control.goal.is_some()
            || self.is_leaving_to_nobody()
            || self.control.reason == Reason::Draining
            || self.acks.wants_backing_sync()
            || self.pressure() > FILL_EAGER
            || self.writes.first_waiting().is_some()
            || self.flash.as_ref().is_some_and(|flash| flash.free_segments() < 4);
        if eager { Duration(0) } else { self.config.destage_delay }
    }

    /// When something becomes due by time alone.
    pub(super) fn destage_timeout(&self) -> Option<Instant> {
        let d = &self.destage;
        if !d.ready || self.control.is_held() {
            return None;
        }
        if d.failing.is_some() && self.now < d.retry_at {
            return Some(d.retry_at);
        }
        if d.in_flight > 0 || d.syncing {
            return None;
        }
        let age = self
            .index
            .cursor()
            .map(|id| self.accepted_at(self.index.get(id).descriptor.lsn) + self.delay_now() + AGE_STEP);
        let sync = d.unsynced_since.map(|since| since + SYNC_DELAY);
        // A time that has passed means waiting for an event, not for the clock.
        [age, sync].into_iter().flatten().filter(|at| *at > self.now).min()
    }

    /// Moves as much as the rules allow.
    pub(super) fn destage(&mut self) {
        self.choose_mode();
        if !self.backing_is_ready() || !self.has_lease() {
            return;
        }
        if self.destage.failing.is_some() {
            if self.destage.in_flight > 0 || self.destage.syncing || self.now < self.destage.retry_at {
                return;
            }
            if self.destage.lost {
                self.rewind();
            }
            // Trying again counts as in use until it fails again.
            self.destage.failing = None;
        }
        loop {
            self.issue_queued();
            if !self.destage.queue.is_empty() || !self.destage.deferred.is_empty() {
                break;
            }
            self.end_ahead();
            if !self.collect() {
                break;
            }
        }
        self.sync_backing_if_wanted();
    }

    /// Nothing goes out before the backing is locked by this process (rule 5).
    fn backing_is_ready(&self) -> bool {
        self.destage.ready || planted!(self, destage_before_lock)
    }

    /// Everything since the last good sync is written again.
    pub(super) fn rewind(&mut self) {
        self.rewrite_pins_again();
        let d = &mut self.destage;
        d.queue.clear();
        d.deferred.clear();
        d.held_back.clear();
        self.end_ahead();
        if let Some(flash) = &mut self.flash {
            flash.nothing_is_on_its_way();
        }
        let d = &mut self.destage;
        (d.unsynced_bytes, d.unsynced_writes) = (0, 0);
        d.unsynced_since = None;
        d.busy = Duration(0);
        d.collected = self.positions.durable();
        self.index.rewind_cursor(self.positions.durable());
        self.recount_written();
        self.end_batch();
        self.destage.lost = false;
    }

    /// Nobody knows what became of what was written since the last good sync.
    pub(super) fn backing_failed(&mut self, error: IoError) {
        self.destage.lost = true;
        self.try_again_later(error);
    }

    /// There is reason to believe that a backing that has failed works by now: it is tried again at once.
    pub fn try_backing_at_once(&mut self) {
        let d = &mut self.destage;
        d.retry_delay = RETRY_DELAY_MIN;
        d.retry_at = d.retry_at.min(self.now);
    }

    fn try_again_later(&mut self, error: IoError) {
        let d = &mut self.destage;
        self.recorder.counters.backing_errors += 1;
        d.failing = Some(error);
        d.retry_at = self.now + d.retry_delay;
        d.retry_delay = Duration((d.retry_delay.0 * 2).min(RETRY_DELAY_MAX.0));
    }

    /// May this record be chosen now?
    pub(super) fn is_eligible(&self, id: u32) -> bool {
        self.is_in_window(self.index.get(id).descriptor.lsn) && self.is_due(id)
    }

    /// The same, but for the window.
    pub(super) fn is_due(&self, id: u32) -> bool {
        let descriptor = self.index.get(id).descriptor;
        let uncommitted = descriptor.lsn > self.positions.committed() && !planted!(self, destage_uncommitted);
        if (uncommitted || descriptor.lsn > self.positions.held()) && !planted!(self, destage_unheld) {
            return false;
        }
        if let Some(stop) = self.control.destage_stops_after()
            && descriptor.lsn > stop
            && !planted!(self, destage_under_hold)
        {
            return false;
        }
        self.now - self.accepted_at(descriptor.lsn) >= self.delay_now()
    }

    /// Everything up to here is durable in the backing, and no crash takes it back there. Either a durable checkpoint
    /// says so. Or the checkpoint is behind by no more than the group that destage is at, and a restart, which would send
    /// that group once more, finds all of it on the tier's medium and writes nothing but the newest content of each
    /// of its blocks: then the backing holds the group before, during and after, whatever it holds of the next one.
    /// So a group need not wait for the checkpoint of the one before it, which is a sync on the way of every flush.
    /// With other members, all have been told so: they would send from there on.
    pub(super) fn vouched(&self, lsn: Lsn) -> bool {
        if self.role() == Role::Owner {
            return self.positions.destaged() >= lsn;
        }
        self.positions.destaged() >= lsn
            || (self.positions.durable() >= lsn
                && (self.positions.synced() >= lsn || planted!(self, repeat_unsynced_group))
                && (self.positions.destaged() >= self.destage.group_after || planted!(self, checkpoint_far_behind))
                && (self.destage.repeatable || planted!(self, repeat_any_group)))
    }

    fn round_full(&self) -> bool {
        self.destage.unsynced_bytes >= self.destage.round_bytes
    }

    /// Backing operations in flight at one time, now.
    fn depth_now(&self) -> u32 {
        let most = self.config.backing_depth_max;
        if self.destage.fast { most } else { most.div_ceil(2) }
    }

    fn issue_queued(&mut self) {
        let depth = self.depth_now();
        // By halves: what goes out together costs one wake-up and one notification of the device, and ends together as
        // well. Not while a client waits for the backing.
        let awaited = self.control.effective == Policy::Through || self.acks.wants_backing_sync();
        if self.destage.in_flight > depth / 2 && !awaited {
            return;
        }
        let mut deferred = core::mem::take(&mut self.destage.deferred);
        deferred.sort_unstable_by_key(|&(_, lsn)| lsn);
        for &entry in deferred.iter().rev() {
            self.destage.queue.push_front(entry);
        }
        while self.destage.in_flight < depth {
            let Some((id, lsn)) = self.destage.queue.pop_front() else { break };
            if !self.index.is_live(id, lsn) || !matches!(self.index.get(id).state, State::Queued | State::Batched) {
                continue; // superseded since it was chosen
            }
            let range = matches!(self.index.get(id).descriptor.kind, Kind::ZeroBlocks { .. });
            // A range may overlap anything: it runs alone.
            if self.destage.ahead.is_reading(lsn) || (range && self.destage.in_flight > 0) {
                self.destage.queue.push_front((id, lsn));
                break;
            }
            if self.destage.range_in_flight || self.overtakes(id) {
                self.destage.deferred.push((id, lsn));
                continue;
            }
            if !self.issue(id, lsn) {
                self.destage.deferred.push((id, lsn));
                break;
            }
            if self.waits_for_frames() {
                break;
            }
        }
    }

    /// There was no frame for what was to go out, and it waits to be tried again: so does everything behind it.
    fn waits_for_frames(&self) -> bool {
        self.destage.failing.is_some() && !planted!(self, overtake_deferred)
    }

    /// An older record of the same block is chosen, and the backing has not completed it (rule 3).
    fn overtakes(&self, id: u32) -> bool {
        let in_flight_only = planted!(self, overtake_deferred);
        let overtakes = match in_flight_only {
            true => self.index.has_older(id, |state| state == State::InFlight),
            false => self.index.overtakes(id),
        };
        overtakes && !planted!(self, overtake_same_block)
    }

    fn way_of(&self, id: u32) -> Way {
        match self.index.get(id).descriptor.kind {
            Kind::Data { .. } => Way::Payload,
            Kind::ZeroSectors { .. } => Way::ZeroSectors,
            Kind::ZeroBlocks { blocks, .. } => Way::Range { blocks },
        }
    }

    /// Starts one backing operation. False: no frame is free for what must be loaded.
    fn issue(&mut self, id: u32, lsn: Lsn) -> bool {
        let mut writing = Writing {
            records: SmallVec::from_slice(&[(id, lsn)]),
            frames: SmallVec::new(),
            loads: 0,
            loads_left: 0,
            writes_left: 0,
            old_block: None,
            failed: None,
            wrote: false,
            pieces_left: Vec::new(),
            piece: (0, 0),
            zeros_left: None,
        };
        match self.way_of(id) {
            Way::Range { blocks } => {
                let block = self.index.get(id).descriptor.block;
                self.index.set_state(id, State::InFlight);
                let bytes = |(first, blocks): (BlockIndex, u64)| {
                    (first.byte(), (first.byte() + blocks * BLOCK_BYTES).min(self.size_bytes))
                };
                writing.pieces_left = match self.pinned_pieces(lsn) {
                    Some(pieces) => pieces.iter().rev().copied().map(bytes).collect(),
                    None => alloc::vec![bytes((block, u64::from(blocks)))],
                };
                self.destage.range_in_flight = true;
                self.begin_backing_write();
                let write = self.destage.writing.insert(writing);
                self.zero_next_piece(write);
                true
            }
            Way::ZeroSectors => {
                self.index.set_state(id, State::InFlight);
                let write = self.destage.writing.insert(writing);
                self.begin_backing_write();
                self.write_out(write);
                true
            }
            Way::Payload => {
                if self.index.get(id).mask.is_full() {
                    self.extend_run(&mut writing);
                }
                self.start_payload(writing)
            }
        }
    }

    /// Adds queued neighbours that follow without a gap.
    fn extend_run(&mut self, writing: &mut Writing) {
        let mut block = self.index.get(writing.records[0].0).descriptor.block;
        while let Some(&(id, lsn)) = self.destage.queue.front() {
            if (writing.records.len() as u64 + 1) * BLOCK_BYTES > u64::from(self.config.backing_write_bytes_max) {
                return;
            }
            let record = self.index.get(id);
            let joins = record.descriptor.lsn == lsn
                && matches!(record.state, State::Queued | State::Batched)
                && record.mask.is_full()
                && record.descriptor.has_payload()
                && record.descriptor.block.0 == block.0 + 1
                && !self.destage.ahead.is_reading(lsn)
                && !self.overtakes(id);
            if !joins {
                return;
            }
            block = record.descriptor.block;
            writing.records.push((id, lsn));
            self.destage.queue.pop_front();
        }
    }

    fn start_payload(&mut self, mut writing: Writing) -> bool {
        // Pin first: allocating for the missing ones evicts.
        let mut pinned: SmallVec<[Option<FrameId>; 4]> = SmallVec::new();
        let mut missing = 0;
        let loads_max = self.loads_max() - self.destage.loads;
        for &(id, lsn) in &writing.records {
            let frame = self.frame_of_record(id).or_else(|| self.destage.ahead.frame_of(lsn));
            match frame {
                Some(frame) => self.pool.pin(frame),
                None => missing += 1,
            }
            if missing > self.pool.available().min(loads_max) {
                if let Some(frame) = frame {
                    self.pool.unpin(frame);
                }
                break;
            }
            pinned.push(frame);
        }
        // The run is as long as there are frames for it: one that waited for all of its frames could wait for ever,
        // with clients' payloads in them that wait for room in the log. The rest goes back to where it came from; of
        // an empty run the caller keeps the first.
        for &entry in writing.records[pinned.len().max(1)..].iter().rev() {
            self.destage.queue.push_front(entry);
        }
        if pinned.is_empty() {
            return false;
        }
        writing.records.truncate(pinned.len());
        let mut loads: SmallVec<[(u32, FrameId); 4]> = SmallVec::new();
        for (i, frame) in pinned.into_iter().enumerate() {
            if let Some(frame) = frame {
                self.destage.ahead.give(writing.records[i].1, frame);
            }
            let frame = frame.unwrap_or_else(|| {
                let frame = self.pool.allocate().expect("available() was asked");
                self.pool.pin(frame);
                loads.push((writing.records[i].0, frame));
                frame
            });
            writing.frames.push(frame);
        }
        for &(id, _) in &writing.records {
            self.index.set_state(id, State::InFlight);
        }
        writing.loads = loads.len() as u32;
        writing.loads_left = writing.loads;
        self.destage.loads += writing.loads;
        let write = self.destage.writing.insert(writing);
        self.begin_backing_write();
        for &(id, frame) in &loads {
            let check = self.check_of(id);
            let flash = self.flash.as_mut().expect("memory tiers have every record in memory");
            let segment = flash.segment_of(id);
            flash.segments[segment as usize].busy += 1;
            let at = flash.place(id);
            let op = self.begin_op(Op::LoadForWrite { write, segment });
            self.effects.push_back(Effect::TierRead { op, at, frames: Checks::from_slice(&[(frame, check)]) });
        }
        if loads.is_empty() {
            self.write_out(write);
        }
        true
    }

    pub(super) fn on_loaded_for_write(&mut self, write: usize, segment: u32, failed: Option<IoError>) {
        let flash = self.flash.as_mut().expect("only flash is read back");
        flash.segments[segment as usize].busy -= 1;
        flash.drain_if_empty(segment);
        let writing = &mut self.destage.writing[write];
        writing.failed = writing.failed.or(failed);
        writing.loads_left -= 1;
        if writing.loads_left > 0 {
            return;
        }
        if writing.failed.is_some() { self.end_write(write) } else { self.write_out(write) }
    }

    /// All bytes are in memory: asks the backing.
    fn write_out(&mut self, write: usize) {
        if !self.has_lease() {
            return self.destage.leaseless.push(write);
        }
        let records = self.destage.writing[write].records.clone();
        let (first, _) = records[0];
        let record = *self.index.get(first);
        let block = record.descriptor.block;
        if record.mask.is_full() && record.descriptor.has_payload() {
            let frames = self.destage.writing[write].frames.clone();
            let mut parts = Parts::new();
            for (&(id, _), &frame) in records.iter().zip(&frames) {
                let length = self.block_bytes(self.index.get(id).descriptor.block) as u16;
                parts.push(Part { frame, from: 0, length, check: self.check_for_backing(id) });
            }
            return self.write_parts(write, block.byte(), parts);
        }
        if u64::from(self.config.backing_align) > SECTOR_BYTES {
            let Some(old) = self.destage.writing[write].old_block.or_else(|| self.pool.allocate()) else {
                self.destage.writing[write].failed = Some(IoError::NoSpace);
                return self.end_write(write);
            };
            self.destage.writing[write].old_block = Some(old);
            let op = self.begin_op(Op::OldBlock { write });
            self.recorder.counters.backing_reads += 1;
            self.effects.push_back(Effect::BackingRead { op, at: block, frames: Frames::from_slice(&[old]) });
            return;
        }
        // Each run of sectors is a write of its own.
        for (sector, count) in record.mask.runs() {
            let from = (u64::from(sector) * SECTOR_BYTES) as u16;
            let length = (u64::from(count) * SECTOR_BYTES) as u16;
            let (frame, check) = match self.destage.writing[write].frames.first() {
                Some(&frame) => (frame, Some(self.check_of(first))),
                None => (self.pool.zero_frame(), None),
            };
            let parts = Parts::from_slice(&[Part { frame, from, length, check }]);
            self.write_parts(write, block.byte() + u64::from(from), parts);
        }
    }

    /// What the executor makes sure of before a whole payload leaves memory.
    fn check_for_backing(&self, id: u32) -> Option<Check> {
        (!planted!(self, skip_check)).then(|| self.check_of(id))
    }

    /// Nothing of the backing's is under way; what waits for a lease is not.
    pub(super) fn backing_rests(&self) -> bool {
        self.destage.in_flight as usize == self.destage.leaseless.len()
    }

    /// There is a lease (again).
    pub(super) fn write_out_leaseless(&mut self) {
        for write in core::mem::take(&mut self.destage.leaseless) {
            let writing = &self.destage.writing[write];
            if writing.zeros_left.is_some() {
                self.write_zeros(write);
            } else if !writing.pieces_left.is_empty() {
                self.zero_next_piece(write);
            } else {
                self.write_out(write);
            }
        }
    }

    fn write_parts(&mut self, write: usize, offset: u64, parts: Parts) {
        self.destage.writing[write].writes_left += 1;
        self.destage.writing[write].wrote = true;
        self.recorder.counters.backing_writes += 1;
        self.recorder.counters.backing_write_bytes += parts.iter().map(|part| u64::from(part.length)).sum::<u64>();
        let op = self.begin_op(Op::Destage { write });
        self.effects.push_back(Effect::BackingWrite { op, offset, parts });
    }

    /// The old content of a block whose sectors are written to a backing of 4 KiB sectors. It comes from the backing,
    /// never from the index: newer records of the block belong to later groups, maybe.
    pub(super) fn on_old_block_read(&mut self, write: usize, failed: Option<IoError>) {
        if failed.is_some() {
            self.destage.writing[write].failed = failed;
            return self.end_write(write);
        }
        let (id, _) = self.destage.writing[write].records[0];
        let record = *self.index.get(id);
        let target = self.destage.writing[write].old_block.expect("it was read");
        let (source, checks) = match self.destage.writing[write].frames.first() {
            Some(&frame) => (Source::Frame(frame, 0), Checks::from_slice(&[(frame, self.check_of(id))])),
            None => (Source::Zero, Checks::new()),
        };
        for (sector, count) in record.mask.runs() {
            let start = (u64::from(sector) * SECTOR_BYTES) as u16;
            let length = (u64::from(count) * SECTOR_BYTES) as u16;
            self.effects.push_back(Effect::Copy { source, target, start, length });
        }
        // Nothing is left to be filled: the payload is verified, after it was copied, and the whole block has a checksum
        // of its own on its way to the backing.
        let checks = if planted!(self, copy_sectors_unchecked) { Checks::new() } else { checks };
        let (block, base, to) = (record.descriptor.block, Source::Zero, BLOCK_BYTES as u16);
        let op = self.begin_op(Op::SectorsMerged { write });
        self.effects.push_back(Effect::Merge {
            op,
            checks,
            target,
            base,
            from: 0,
            to,
            block,
            term: self.identity.term(),
        });
    }

    /// The old block has the record's sectors, and this checksum. Or the payload has rotted in memory.
    pub(super) fn on_sectors_merged(&mut self, write: usize, merged: Result<u32, IoError>) {
        let checksum = match merged {
            Ok(checksum) => checksum,
            Err(error) => {
                self.destage.writing[write].failed = Some(error);
                return self.end_write(write);
            }
        };
        if !self.has_lease() {
            // It is read once more when there is one.
            return self.destage.leaseless.push(write);
        }
        let (id, _) = self.destage.writing[write].records[0];
        let block = self.index.get(id).descriptor.block;
        let frame = self.destage.writing[write].old_block.expect("it was read");
        let check = Some(Check { block, mask: SectorMask::FULL, term: self.identity.term(), checksum });
        let parts = Parts::from_slice(&[Part { frame, from: 0, length: self.block_bytes(block) as u16, check }]);
        self.write_parts(write, block.byte(), parts);
    }

    pub(super) fn on_destage_done(&mut self, write: usize, failed: Option<IoError>) {
        let (id, _) = self.destage.writing[write].records[0];
        let kind = self.index.get(id).descriptor.kind;
        let writing = &mut self.destage.writing[write];
        writing.writes_left -= 1;
        if let (Kind::ZeroBlocks { .. }, Some(IoError::Unsupported), None) = (kind, failed, writing.zeros_left) {
            writing.zeros_left = Some(writing.piece);
            self.destage.zero_unsupported = true;
            return self.write_zeros(write);
        }
        writing.failed = writing.failed.or(failed);
        if writing.writes_left > 0 {
            return;
        }
        match writing.zeros_left {
            Some((from, end)) if from < end && writing.failed.is_none() => self.write_zeros(write),
            _ if writing.failed.is_none() => self.zero_next_piece(write),
            _ => self.end_write(write),
        }
    }

    /// Zeroes the next piece of a range; when there is none, the write has ended.
    fn zero_next_piece(&mut self, write: usize) {
        // Between two pieces the lease may have ended, or the ownership.
        let may_go_on = self.has_lease();
        if !may_go_on && !self.destage.writing[write].pieces_left.is_empty() {
            return self.destage.leaseless.push(write);
        }
        let writing = &mut self.destage.writing[write];
        let Some((from, end)) = writing.pieces_left.pop() else { return self.end_write(write) };
        writing.piece = (from, end);
        writing.zeros_left = None;
        if self.destage.zero_unsupported {
            writing.zeros_left = Some((from, end));
            return self.write_zeros(write);
        }
        writing.writes_left = 1;
        writing.wrote = true;
        let (id, _) = writing.records[0];
        let hole = matches!(self.index.get(id).descriptor.kind, Kind::ZeroBlocks { hole: true, .. });
        let op = self.begin_op(Op::Destage { write });
        self.effects.push_back(Effect::BackingZero { op, offset: from, length: end - from, hole });
    }

    /// Writes the next piece of a zeroed range as data, one at a time: the range runs alone anyway.
    fn write_zeros(&mut self, write: usize) {
        if !self.has_lease() {
            return self.destage.leaseless.push(write);
        }
        let (from, end) = self.destage.writing[write].zeros_left.expect("a range that is written as data");
        let stop = end.min(from + u64::from(self.config.backing_write_bytes_max) / BLOCK_BYTES * BLOCK_BYTES);
        let mut parts = Parts::new();
        let mut at = from;
        while at < stop {
            let length = (stop - at).min(BLOCK_BYTES) as u16;
            parts.push(Part { frame: self.pool.zero_frame(), from: 0, length, check: None });
            at += u64::from(length);
        }
        self.destage.writing[write].zeros_left = Some((stop, end));
        self.write_parts(write, from, parts);
    }

    fn end_write(&mut self, write: usize) {
        let Writing { records, frames, loads, old_block, failed, wrote, .. } = self.destage.writing.remove(write);
        self.destage.in_flight -= 1;
        self.destage.loads -= loads;
        if self.destage.in_flight == 0 {
            self.rest_backing();
        }
        for frame in frames {
            // A frame that was loaded for this write alone has no other owner.
            if self.pool.owner(frame) == Owner::Taken && !self.is_staged(frame) {
                self.pool.release(frame);
            }
            self.pool.unpin(frame);
        }
        if let Some(old) = old_block {
            self.pool.release(old);
        }
        for &(id, _) in &records {
            if matches!(self.index.get(id).descriptor.kind, Kind::ZeroBlocks { .. }) {
                self.destage.range_in_flight = false;
            }
        }
        if let Some(error) = failed {
            // Still chosen.
            for &(id, _) in &records {
                self.index.set_state(id, State::Queued);
            }
            // What was only to be read first costs nothing that is there: with policy `through`, writing the group again from
            // its first record on would for a while put older content over what is acknowledged, and what has just failed
            // fails again and again. Where a connection was lost, a sync says what went with it. Pins and batches are begun anew as
            // a whole.
            let plain = records.iter().all(|&(_, lsn)| lsn > self.positions.durable()) && !self.journal.is_busy();
            if wrote || !plain {
                return self.backing_failed(error);
            }
            self.destage.deferred.extend(records);
            return self.try_again_later(error);
        }
        if self.destage.unsynced_since.is_none() {
            self.destage.unsynced_since = Some(self.now);
        }
        self.destage.unsynced_writes += 1;
        for (id, lsn) in records {
            self.index.set_state(id, State::Written);
            self.recorder.counters.destaged_blocks += 1;
            self.destage.unsynced_bytes += BLOCK_BYTES;
            // What was pinned and is written once more (T6) was counted when it was written first.
            if lsn > self.positions.durable() {
                self.on_written(lsn);
            }
        }
    }
}
