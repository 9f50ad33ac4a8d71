//! Putting records into the log and getting them onto the tier: descriptors in place on a memory tier; batches, group
//! commit and compaction on flash.

use super::flash::{BATCHES_IN_FLIGHT_MAX, Flying, Owed};
use super::frames::Owner;
use super::log_index::State;
use super::write::needs;
use super::*;
use crate::format::{Batch, DESCRIPTOR_BYTES, Descriptor, Kind, TIER_BLOCK_BYTES};
use alloc::vec;

/// Segments that clients' writes leave free, so that compaction always has somewhere to go.
pub(super) const SEGMENTS_KEPT_FREE: u32 = 2;
/// Loads that compaction has in flight at one time.
const COMPACTION_LOADS_MAX: usize = 64;
/// Segments that compaction looks at before it waits for the next event.
const COMPACTION_CANDIDATES_MAX: usize = 32;
/// Completed blocks after which a sync is begun without being asked, and after which, while that sync runs, no more is
/// written: together they bound what a restart must verify and write again. 64 MiB.
pub(super) const UNSYNCED_BLOCKS_MAX: u32 = 16_384;
/// Segments opened after which a checkpoint is written without being asked: a start believes the summaries of what the
/// checkpoint knows to be durable, and walks everything newer batch by batch.
const SEGMENTS_UNTOLD_MAX: u32 = 8;

/// What a sync of a flash tier makes durable.
#[derive(Debug)]
pub(super) struct TierSync {
    /// The tier had completed every record up to here when it began,
    held: Lsn,
    /// and every batch up to this one.
    batch: u64,
    /// Number of the sync.
    number: u64,
    /// Was written before it began.
    checkpoint: Option<Box<Checkpoint>>,
}

impl Volume {
    /// Accepts one record at the end of the log. `frame` holds the payload and belongs to the log from here on. The
    /// caller has made sure that there is room, and tells `on_held` (memory) when its request is complete.
    pub(super) fn append_record(&mut self, block: BlockIndex, kind: Kind, frame: Option<FrameId>) {
        self.part_from_older(block, &kind);
        let lsn = self.positions.accepted().next();
        self.append_descriptor(
            Descriptor { lsn, block, group: self.groups.current(), term: self.identity.term(), kind },
            frame,
        );
    }

    /// Write-through supersedes nothing, and members cannot know that: they would drop an older record of the same group that
    /// is still to be written, and with it what they know of its range (D4). So the newer one is of another group.
    ///
    /// And a group is no larger than a window: of the one that a window ends in, all is pinned after a take-over (W17).
    fn part_from_older(&mut self, block: BlockIndex, kind: &Kind) {
        if self.role() != Role::Owner || self.replication.members.peers.is_empty() {
            return;
        }
        if self.open_group_bytes() >= self.cluster().window_bytes_max {
            self.close_group();
        }
        if self.control.effective == Policy::Back {
            return;
        }
        let newest = self.index.newest_record(block).map(|id| self.index.get(id).descriptor.group);
        if newest == Some(self.groups.current()) || matches!(kind, Kind::ZeroBlocks { .. }) {
            self.close_group();
        }
    }

    /// The same for a record that has its place in the log already: an owner's, at a member.
    pub(super) fn append_descriptor(&mut self, descriptor: Descriptor, frame: Option<FrameId>) {
        let Descriptor { lsn, block, kind, .. } = descriptor;
        self.positions.accept_record(lsn);
        self.groups.put(descriptor.group);
        let (blocks, whole) = match kind {
            Kind::Data { mask, .. } => (1, mask.is_full()),
            Kind::ZeroSectors { .. } => (1, false),
            Kind::ZeroBlocks { blocks, .. } => (u64::from(blocks), false),
        };
        if !whole {
            self.stage_unwritten(block);
        }
        self.outdate_copies(block, blocks, whole);
        let id = self.give_place(descriptor, frame, whole);
        self.index_record(id, descriptor);
        self.note_age(lsn);
        if self.role() == Role::Follower {
            self.pin_if_in_window(id);
        }
    }

    /// What is cached of these blocks, or is being read of them, is their content no more.
    fn outdate_copies(&mut self, block: BlockIndex, blocks: u64, whole: bool) {
        let keeps = planted!(self, keep_overwritten) && self.role() == Role::Follower;
        if !keeps && (!planted!(self, keep_cached_below) || whole) {
            self.pool.uncache_range(block, blocks);
        }
        if !planted!(self, fill_over_newer_write) {
            self.reads.mark_stale(block, blocks);
            self.replication.predecessor_cache.mark_stale(block, blocks);
        }
    }

    /// On a memory tier the frame is the place, and the descriptor is stored at once; on flash the record joins the batch that
    /// collects.
    fn give_place(&mut self, descriptor: Descriptor, frame: Option<FrameId>, whole: bool) -> u32 {
        let other = frame.is_none().then(|| self.index.take_other_id());
        match &mut self.flash {
            None => {
                let id = match frame {
                    Some(frame) => {
                        self.pool.give_to_log(frame);
                        frame.0
                    }
                    None => other.expect("taken above"),
                };
                let bytes = descriptor.encode(self.identity.volume(), u64::from(id));
                self.effects.push_back(Effect::Describe { index: id, bytes });
                id
            }
            Some(flash) => {
                let volume = self.identity.volume();
                let id = flash.append(volume, descriptor, frame, other, true).expect("admission left room");
                if let Some(frame) = frame {
                    self.pool.pin(frame);
                    if whole {
                        self.pool.cache(frame, descriptor.block, descriptor.lsn);
                    } else {
                        flash.stage(id, frame);
                    }
                }
                id
            }
        }
    }

    /// The record is the newest of its blocks, and ends what it covers.
    fn index_record(&mut self, id: u32, mut descriptor: Descriptor) {
        if planted!(self, supersede_across_groups)
            && let Some(newest) = self.index.newest_record(descriptor.block)
        {
            descriptor.group = self.index.get(newest).descriptor.group;
        }
        if planted!(self, supersede_batched)
            && let Some(newest) = self.index.newest_record(descriptor.block)
            && self.index.get(newest).state == log_index::State::Batched
        {
            self.index.set_state(newest, log_index::State::Queued);
        }
        // Write-through counts each record's own completion, so none may end early.
        let supersede = self.control.effective == Policy::Back || self.role() == Role::Follower;
        self.index.append(id, descriptor, supersede);
        self.recorder.counters.superseded_blocks += self.free_ended();
    }

    /// Flash: a block's newest whole record is about to leave the cache under a record of some sectors. Until its batch
    /// is written, its bytes are nowhere but in that frame. Unless compaction is moving the record: then the batch's frame
    /// is noted already, and the cached one may be another, which is free as soon as it has left the cache.
    fn stage_unwritten(&mut self, block: BlockIndex) {
        if let Some(flash) = &mut self.flash
            && let Some((frame, lsn)) = self.pool.cached_frame(block)
            && let Some(newest) = self.index.newest_record(block)
            && self.index.is_live(newest, lsn)
            && flash.is_unwritten(newest)
        {
            flash.stage_if_not(newest, frame);
        }
    }

    /// What newer records have ended gives up its place; how many there were.
    pub(super) fn free_ended(&mut self) -> u64 {
        let mut freed = 0;
        while let Some(id) = self.index.take_ended() {
            self.free_place(id);
            freed += 1;
        }
        freed
    }

    /// A record has ended without becoming clean cache: its place is free.
    fn free_place(&mut self, id: u32) {
        match &mut self.flash {
            None => {
                self.erase_entry(id);
                if id < self.config.superblock.layout.payload_blocks {
                    self.pool.release(FrameId(id));
                }
                if planted!(self, reuse_frames_at_once) {
                    self.pool.thaw();
                }
            }
            Some(flash) => flash.forget_one(flash.segment_of(id)),
        }
    }

    /// A member's recovery keeps what it finds above the committed position, covered or not (S5): on a memory tier the entry
    /// of a record that has ended must go before its slot receives something else.
    pub(super) fn erase_entry(&mut self, id: u32) {
        if self.flash.is_none() && self.config.cluster.is_some() {
            self.effects.push_back(Effect::Describe { index: id, bytes: [0; DESCRIPTOR_BYTES] });
        }
    }

    /// Closes the barrier group: what comes later may not reach the backing before all of this is durable there.
    pub(super) fn close_group(&mut self) {
        if !planted!(self, ignore_groups) && self.groups.close() {
            self.note_group_closed();
        }
    }

    /// Flash: writes what has collected.
    pub(super) fn write_log(&mut self) {
        while let Some(owed) = self.next_owed() {
            match owed {
                Owed::Batch(batch) => self.write_batch(batch),
                Owed::Summary { segment, at, bytes } => {
                    let op = self.begin_op(Op::Summary { segment });
                    self.recorder.counters.tier_writes += 1;
                    self.effects.push_back(Effect::TierWrite { op, at, head: bytes, frames: Vec::new() });
                }
            }
        }
    }

    /// Flash: what may be written now, in order; a batch that collects is closed for it when it is worth a write, or awaited.
    fn next_owed(&mut self) -> Option<Owed> {
        let flash = self.flash.as_mut()?;
        if self.tier.has_failed()
            || (self.tier.is_syncing() && flash.unsynced_blocks >= UNSYNCED_BLOCKS_MAX)
            || flash.flying.len() >= BATCHES_IN_FLIGHT_MAX
        {
            return None;
        }
        if flash.owed.is_empty() {
            let awaited =
                self.acks.awaits_tier_sync() || self.replication.follower.awaits_tier_sync(self.positions.synced());
            if !flash.is_worth_writing() && !awaited {
                return None;
            }
            flash.close_batch();
        }
        flash.owed.pop_front()
    }

    fn write_batch(&mut self, batch: flash::Building) {
        let mark_held = planted!(self, mark_unsynced_as_synced);
        let flash = self.flash.as_mut().expect("batches are written to flash");
        let records = batch.records.len();
        let head = Batch {
            segment: flash.segments[batch.segment as usize].number,
            sequence: batch.sequence,
            synced_through: if mark_held { flash.batch_held } else { flash.batch_synced },
            start: self.identity.start(),
            records: batch.records,
        }
        .encode(self.identity.volume(), batch.at);
        flash.flying.push_back(Flying {
            sequence: batch.sequence,
            segment: batch.segment,
            at: batch.at,
            lsn_max: batch.lsn_max,
            writes: batch.writes,
            begun: self.now,
            records,
            frames: batch.frames.clone(),
            done: false,
        });
        self.recorder.counters.tier_writes += 1;
        self.recorder.counters.tier_write_blocks += 1 + batch.frames.len() as u64;
        let op = self.begin_op(Op::Batch { sequence: batch.sequence });
        self.effects.push_back(Effect::TierWrite { op, at: batch.at, head, frames: batch.frames });
    }

    pub(super) fn on_batch_done(&mut self, sequence: u64, failed: Option<IoError>) {
        let flash = self.flash.as_mut().expect("batches are written to flash");
        let at = flash.flying.iter().position(|batch| batch.sequence == sequence).expect("it was in flight");
        flash.note_under_way();
        flash.flying[at].done = true;
        let own = flash.flying[at].lsn_max;
        if let Some(error) = failed {
            self.fail_tier(error);
        }
        if self.tier.has_failed() {
            return self.let_written_batches_go();
        }
        let time_batches = planted!(self, time_batches);
        let mut held = if planted!(self, acknowledge_by_completion) { own } else { Lsn(0) };
        // Acknowledgement is by prefix: a batch counts when all before it count.
        while let Some(flash) = &mut self.flash
            && flash.flying.front().is_some_and(|front| front.done)
        {
            let batch = flash.flying.pop_front().expect("looked at above");
            held = held.max(batch.lsn_max);
            self.recorder.held(self.now - batch.begun, if time_batches { batch.writes.min(1) } else { batch.writes });
            flash.batch_held = batch.sequence;
            flash.unsynced_blocks += 1 + batch.frames.len() as u32;
            flash.segments[batch.segment as usize].busy -= 1;
            flash.drain_if_empty(batch.segment);
            self.let_frames_go(batch.frames);
        }
        if held > Lsn(0) {
            self.on_held(held);
        }
        if matches!(self.phase, Phase::Following | Phase::Agreeing) {
            self.hold_accepted();
        }
    }

    /// The tier has failed: nothing of what was written counts any more, nor of what was written before it and waited for an
    /// earlier batch; but the frames are free.
    fn let_written_batches_go(&mut self) {
        while let Some(flash) = &mut self.flash
            && let Some(at) = flash.flying.iter().position(|batch| batch.done)
        {
            let batch = flash.flying.remove(at).expect("just found");
            flash.segments[batch.segment as usize].busy -= 1;
            self.let_frames_go(batch.frames);
        }
    }

    /// Some record's bytes are in this frame until its batch is written.
    pub(super) fn is_staged(&self, frame: FrameId) -> bool {
        self.flash.iter().flat_map(FlashLog::staged).any(|(_, staged)| staged == frame)
    }

    /// A batch needs its frames no longer: cached ones become evictable, the others free.
    fn let_frames_go(&mut self, mut frames: Vec<FrameId>) {
        if let Some(flash) = &mut self.flash {
            flash.unstage(&mut frames);
        }
        for frame in frames {
            match self.pool.owner(frame) {
                Owner::Taken => self.pool.release(frame),
                Owner::Cache | Owner::Nobody | Owner::Log => {}
            }
            self.pool.unpin(frame);
        }
    }

    pub(super) fn on_summary_done(&mut self, segment: u32, failed: Option<IoError>) {
        if let Some(error) = failed {
            return self.fail_tier(error);
        }
        let flash = self.flash.as_mut().expect("summaries are written to flash");
        flash.segments[segment as usize].busy -= 1;
        flash.drain_if_empty(segment);
    }

    /// A failed write or sync of the tier is not retried: nobody knows what the device kept. Nothing more is
    /// acknowledged, and as no checkpoint can be written, destage ends with the group it is at. What was acknowledged
    /// stays in the log for the next start.
    pub(super) fn fail_tier(&mut self, _error: IoError) {
        self.recorder.counters.tier_errors += 1;
        if self.tier.fail() {
            self.control.reason_since = self.now;
            self.report_tier_failed();
            self.fail_tier_waiters();
            self.fail_ready_reads();
            self.refuse_waiting(RequestError::Io);
            self.fail_resize();
            if self.checkpoints.awaits_sync() {
                self.give_up_checkpoint();
            }
            // What was collected will never be written; its frames must not be missed for ever.
            let unwritten = self.flash.as_mut().map(|flash| flash.give_up()).unwrap_or_default();
            for frames in unwritten {
                self.let_frames_go(frames);
            }
        }
    }

    /// Flash: begins a sync when somebody waits for one, when segments wait to become free, or when much is unsynced.
    pub(super) fn sync_log_if_wanted(&mut self) {
        let Some(flash) = &self.flash else { return };
        if self.tier.has_failed() {
            return;
        }
        let low = flash.free_segments() < self.segments_low();
        // Not only when the log rests: under writes that never pause there is always something unsynced.
        if (low && flash.drained_awaits_checkpoint())
            || (flash.opened_since_checkpoint() >= SEGMENTS_UNTOLD_MAX && flash.batch_synced > flash.batch_checkpointed)
        {
            self.checkpoints.want();
            self.write_checkpoint();
        }
        if self.tier.is_syncing() {
            return;
        }
        let flash = self.flash.as_ref().expect("looked at above");
        let unsynced = flash.batch_held > flash.batch_synced;
        let blocked = low && flash.drained_awaits_sync();
        let asked =
            self.acks.tier_sync_would_help(self.positions.held(), self.positions.synced(), self.flush_is_media())
                || self.replication.follower.tier_sync_would_help(self.positions.held(), self.positions.synced())
                || (self.last_proposed_on_media() > self.positions.synced()
                    && self.last_proposed_on_media() <= self.positions.held())
                || (self.journal_awaits_tier_sync() && unsynced)
                || (unsynced && self.phase == Phase::Stopping)
                || (self.phase == Phase::Agreeing
                    && self
                        .replication
                        .agreement
                        .tail()
                        .is_some_and(|tail| tail <= self.positions.held() && tail > self.positions.synced()));
        let tidies = (low && flash.erased_segments() > 0)
            || (unsynced && (blocked || flash.unsynced_blocks >= UNSYNCED_BLOCKS_MAX));
        // A checkpoint that is being written brings a sync of its own, which one begun now would only hold up.
        if asked || (tidies && !self.checkpoints.is_busy()) {
            self.sync_tier();
        }
    }

    /// Flash: begins a sync, of all that the tier has completed and of the checkpoint that waits for one. **Never two at one time**:
    /// an error of write-back is told once to an open file (Linux' errseq_t), and of two syncs that overlap the other one would say
    /// that what was lost is durable.
    pub(super) fn sync_tier(&mut self) {
        self.tier.begin_sync();
        let held = self.positions.held();
        let checkpoint = self.checkpoints.take_for_sync();
        let flash = self.flash.as_mut().expect("only flash is synced");
        flash.unsynced_blocks = 0;
        let sync = TierSync { held, batch: flash.batch_held, number: flash.sync_begins(), checkpoint };
        let op = self.begin_op(Op::TierSync(Box::new(sync)));
        self.recorder.counters.tier_syncs += 1;
        self.effects.push_back(Effect::TierSync { op });
    }

    pub(super) fn on_tier_synced(&mut self, sync: TierSync, failed: Option<IoError>) {
        self.tier.end_sync();
        let TierSync { held, batch, number, checkpoint } = sync;
        let carried = checkpoint.is_some();
        match failed {
            Some(_) if checkpoint.is_none() && planted!(self, retry_failed_sync) => {}
            Some(error) => self.fail_tier(error),
            // What a write has lost, this did not save.
            None if self.tier.has_failed() => {}
            None => {
                let flash = self.flash.as_mut().expect("only flash is synced");
                flash.batch_synced = flash.batch_synced.max(batch);
                flash.sync_ended(number);
                self.on_synced(held);
                if let Some(written) = checkpoint {
                    self.checkpoint_taken(*written);
                }
            }
        }
        if carried && self.tier.has_failed() {
            self.give_up_checkpoint();
        }
        self.sync_checkpoint_if_written();
    }

    /// Flash: erases the heads of segments that nothing needs any more.
    pub(super) fn erase_drained(&mut self) {
        if planted!(self, reuse_segment_early)
            && let Some(flash) = &mut self.flash
        {
            flash.checkpointed(u64::MAX);
        }
        while !self.tier.has_failed()
            && let Some(flash) = &mut self.flash
            && let Some(segment) = flash.begin_erase()
        {
            if planted!(self, reuse_without_erasing) {
                flash.erased(segment);
                continue;
            }
            let at = self.segment_block(segment, 0);
            let op = self.begin_op(Op::Erase { segment });
            self.recorder.counters.tier_writes += 1;
            self.effects.push_back(Effect::TierWrite { op, at, head: vec![0; TIER_BLOCK_BYTES], frames: Vec::new() });
        }
    }

    pub(super) fn on_erased(&mut self, segment: u32, failed: Option<IoError>) {
        match failed {
            Some(error) => self.fail_tier(error),
            None => self.flash.as_mut().expect("segments are of flash").erased(segment),
        }
    }

    /// Below so many free segments the log cleans up: always an eighth; a third of what nothing live needs, because a
    /// segment comes back three syncs after it was emptied, and a fast writer meanwhile fills many; and as many as the
    /// first write that waits needs, which else would wait for a clean-up that nothing begins.
    fn segments_low(&self) -> u32 {
        let Some(flash) = &self.flash else { return 0 };
        let segments = self.config.superblock.layout.segments();
        let live = self.index.payload_blocks().div_ceil(flash.segment_data_blocks());
        let usual = (segments / 8).max(2).max(segments.saturating_sub(live) / 3);
        let wanted = self.writes.first_waiting().map_or(0, |request| {
            let (blocks, others) = needs(request);
            let (claimed_blocks, claimed_others) = self.claimed();
            flash.segments_for(blocks + claimed_blocks + u64::from(others + claimed_others))
        });
        SEGMENTS_KEPT_FREE + usual.max(wanted)
    }

    /// Segments that are emptied already count as free: to empty more while those wait for syncs would only move fuller
    /// ones. Unless free ones get scarce meanwhile, because the device is slow to sync.
    fn wants_compaction(&self, flash: &FlashLog) -> bool {
        let low = self.segments_low();
        let soon = flash.free_segments_soon();
        soon < low || (flash.free_segments() < low / 2 && soon < 2 * low)
    }

    /// Flash: moves the live records out of the emptiest segment when free segments run low.
    pub(super) fn compact(&mut self) {
        let Some(flash) = &self.flash else { return };
        if !self.wants_compaction(flash) || self.tier.has_failed() || !self.room_to_compact() {
            return;
        }
        // What destage has chosen stays where it is, and it chooses the oldest, which lie in the emptiest segments: where
        // that is all of a segment, the next one is looked at.
        let mut candidates = flash.emptiest().into_iter().take(COMPACTION_CANDIDATES_MAX);
        let Some((segment, movable)) = candidates.find_map(|segment| {
            let movable = self.movable_records(segment);
            if movable.is_empty() {
                self.flash.as_mut().expect("looked at above").segments[segment as usize].on_its_way = true;
            }
            (!movable.is_empty()).then_some((segment, movable))
        }) else {
            return;
        };
        for id in movable {
            let descriptor = self.index.get(id).descriptor;
            if !descriptor.has_payload() {
                self.move_record(id, None);
                continue;
            }
            match self.pool.cached_frame(descriptor.block) {
                Some((frame, lsn)) if lsn == descriptor.lsn => {
                    self.pool.pin(frame);
                    if !self.move_record(id, Some(frame)) {
                        self.pool.unpin(frame);
                        return;
                    }
                }
                _ => {
                    let Some(frame) = self.pool.allocate() else { return };
                    let check = self.check_of(id);
                    let flash = self.flash.as_mut().expect("looked at above");
                    flash.segments[segment as usize].busy += 1;
                    flash.loads += 1;
                    let at = flash.place(id);
                    let op = self.begin_op(Op::LoadForCompaction { id, lsn: descriptor.lsn, frame, segment });
                    self.effects.push_back(Effect::TierRead { op, at, frames: Checks::from_slice(&[(frame, check)]) });
                }
            }
        }
    }

    /// Live records of a segment that may change their place now.
    fn movable_records(&self, segment: u32) -> Vec<u32> {
        let Some(flash) = &self.flash else { return Vec::new() };
        let layout = self.config.superblock.layout;
        let payload = segment * layout.segment_blocks..(segment + 1) * layout.segment_blocks;
        // Most logs have none of these; the list is long.
        let others_max = if self.index.others_left() == layout.ranges_max { 0 } else { layout.ranges_max };
        let others =
            (0..others_max).filter(|&i| flash.other_segment[i as usize] == segment).map(|i| layout.payload_blocks + i);
        payload
            .chain(others)
            .filter(|&id| {
                let record = self.index.get(id);
                record.descriptor.lsn > Lsn(0) && record.state == State::Idle && flash.staged_frame(id).is_none()
            })
            .take(COMPACTION_LOADS_MAX)
            .collect()
    }

    pub(super) fn on_loaded_for_compaction(
        &mut self,
        id: u32,
        lsn: Lsn,
        frame: FrameId,
        segment: u32,
        failed: Option<IoError>,
    ) {
        let flash = self.flash.as_mut().expect("only flash is compacted");
        flash.loads -= 1;
        let state = &mut flash.segments[segment as usize];
        state.busy -= 1;
        state.unreadable |= failed.is_some();
        flash.drain_if_empty(segment);
        let still_there = self.index.is_live(id, lsn) && self.index.get(id).state == State::Idle;
        if failed.is_some() || !still_there || self.tier.has_failed() {
            return self.pool.release(frame);
        }
        self.pool.pin(frame);
        if !self.move_record(id, Some(frame)) {
            self.pool.unpin(frame);
            self.pool.release(frame);
        }
    }

    /// There is room for another copy besides what belongs to writes that are admitted already.
    fn room_to_compact(&self) -> bool {
        let (blocks, others) = self.claimed();
        self.flash.as_ref().is_some_and(|flash| flash.room(0) > blocks + u64::from(others))
    }

    /// Appends a copy of a live record, pinned frame and all; the old place ends. False: there is no room.
    fn move_record(&mut self, id: u32, frame: Option<FrameId>) -> bool {
        let descriptor = self.index.get(id).descriptor;
        if !self.room_to_compact() {
            return false;
        }
        let flash = self.flash.as_mut().expect("only flash is compacted");
        let old_segment = flash.segment_of(id);
        let other = frame.is_none().then_some(id);
        let Some(new) = flash.append(self.identity.volume(), descriptor, frame, other, false) else { return false };
        if new != id {
            self.index.relocate(id, new);
        }
        // Until the batch is written its bytes are nowhere else, and unlike those of a new record they may be asked for: the log
        // held it already. A cached frame leaves the cache with the next write of its block.
        if let Some(frame) = frame {
            flash.stage(new, frame);
        }
        flash.forget_one(old_segment);
        self.recorder.counters.compacted_blocks += 1;
        true
    }

    /// What a record's payload must be.
    pub(super) fn check_of(&self, id: u32) -> Check {
        let d = self.index.get(id).descriptor;
        let Kind::Data { mask, checksum } = d.kind else { panic!("only data has a payload to check") };
        Check { block: d.block, mask, term: d.term, checksum }
    }
}
