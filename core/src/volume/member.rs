//! The role of a member, and of a learner: it takes the owner's log into its own, at the same positions, and says how far
//! it is. It serves no client, destages nothing and touches no backing.
//!
//! - A record is taken when everything before it was (S3); a message that comes too early waits, within bounds.
//! - A payload that does not match its descriptor is as if it had not arrived (S4).
//! - What it says to hold, the tier has; what it says of term and marks is in a durable checkpoint (S1, S9, D3).
//! - It frees only what the owner's watermark has passed (D4), keeps superseded records until they are committed (S5), and
//!   lets nothing supersede what lies in the window (D4).
//!
//! Left to others: who the owner is (ownership), sealing and terms ([`super::replica_role`]).

use super::append::SEGMENTS_KEPT_FREE;
use super::log_index::State;
use super::*;
use crate::cluster::Mark;
use crate::format::{Descriptor, Kind};
use crate::message::{Envelope, Held, LogMessage, Message, Refusal, Room};
use alloc::collections::BTreeMap;

/// An `Append` of the owner.
pub(super) struct Append {
    pub(super) from: Lsn,
    pub(super) through: Lsn,
    pub(super) committed: Lsn,
    pub(super) sync: Lsn,
    pub(super) records: Vec<Descriptor>,
    pub(super) mark: Option<Mark>,
    pub(super) payload: Vec<Payload>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Follower {
    /// Whose `Begin` was taken in this term.
    owner: Option<Incarnation>,
    /// The node asks for ownership: the present term is listened to no more (T2).
    sealed: bool,
    /// What came before its turn, by where it begins.
    early: BTreeMap<Lsn, Append>,
    early_blocks: u64,
    /// The owner is to be told how far this node is.
    answer: bool,
    /// The owner asks for everything up to here to be durable in the medium.
    sync_wanted: Lsn,
    /// A new owner reads our log.
    fetch: Option<(Incarnation, usize)>,
    /// The message for it whose payloads are on their way from flash.
    fetch_under_way: Option<usize>,
}

impl Follower {
    /// A sync of the tier that begins now would answer the owner.
    pub(super) fn tier_sync_would_help(&self, held: Lsn, synced: Lsn) -> bool {
        self.sync_wanted <= held && self.sync_wanted > synced
    }

    /// The owner waits for a sync.
    pub(super) fn awaits_tier_sync(&self, synced: Lsn) -> bool {
        self.sync_wanted > synced
    }

    /// The node asks for ownership, or does so no more.
    pub(super) fn seal(&mut self, sealed: bool) {
        self.sealed = sealed;
    }

    /// The present term is listened to no more (T2).
    pub(super) fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// The payloads of a message have come. True: a new owner has asked for it.
    pub(super) fn end_gathering(&mut self, message: usize) -> bool {
        self.fetch_under_way.take_if(|under_way| *under_way == message).is_some()
    }

    /// The tier has got further.
    pub(super) fn answer(&mut self) {
        self.answer = true;
    }
}

impl Volume {
    /// A message for a follower, of its own term.
    pub(super) fn follow(&mut self, envelope: Envelope, message: LogMessage, payload: Vec<Payload>) {
        match message {
            LogMessage::Begin { tail, committed, whole_from: _, mark } => {
                self.take_begin(envelope.from, tail, committed, mark);
            }
            LogMessage::Append { from, through, committed, sync, records, mark } => {
                let append = Append { from, through, committed, sync, records, mark, payload };
                if self.is_from_owner(&envelope) {
                    self.take_append(append);
                } else {
                    self.release_append(append);
                }
                return;
            }
            LogMessage::Mark(mark) => {
                if self.is_from_owner(&envelope) {
                    // A newer one is answered when the checkpoint has it (D3).
                    self.replication.follower.answer |= mark.number <= self.recorded_mark();
                    self.take_mark(mark);
                }
            }
            LogMessage::Fetch { from } => self.take_fetch(envelope.from, from),
            LogMessage::Ask { number, first, blocks } => {
                if self.is_from_owner(&envelope) {
                    self.answer_ask(&envelope, number, first, blocks);
                }
            }
            // What is said to an owner, by somebody who does not know that this node is none; what was said is heard before.
            LogMessage::Held(_) | LogMessage::Cached { .. } | LogMessage::Said { .. } => {}
        }
        self.release_payloads(payload);
    }

    /// Within a term, after `Begin` (S3, S9). That may have been before a restart: only the owner of a term sends these.
    fn is_from_owner(&mut self, envelope: &Envelope) -> bool {
        self.replication.standing.agreed
            && *self.replication.follower.owner.get_or_insert(envelope.from) == envelope.from
    }

    pub(super) fn release_payloads(&mut self, payload: Vec<Payload>) {
        for Payload { frame, .. } in payload {
            self.pool.release(frame);
        }
    }

    fn release_append(&mut self, append: Append) {
        self.release_payloads(append.payload);
    }

    /// A new term has been heard of: what an older owner sent does not count any more.
    pub(super) fn forget_owner(&mut self) {
        self.replication.follower.owner = None;
        self.replication.follower.sealed = false;
        self.replication.follower.sync_wanted = Lsn(0);
        self.replication.follower.early_blocks = 0;
        for (_, append) in core::mem::take(&mut self.replication.follower.early) {
            self.release_append(append);
        }
        self.end_fetch();
    }

    // --- Begin ---

    fn take_begin(&mut self, from: Incarnation, tail: Lsn, committed: Lsn, mark: Mark) {
        if self.replication.standing.agreed {
            // A repeated one is answered again.
            if *self.replication.follower.owner.get_or_insert(from) == from {
                self.replication.follower.answer = true;
            }
            return;
        }
        if self.positions.accepted() > tail && !planted!(self, keep_longer_tail) {
            if self.positions.committed() > tail.max(self.positions.durable()) {
                // It is not this log that is too long: who begins the term held all that, and has it no more (S10).
                return self.answer_committed(from);
            }
            return self.refuse_peer(from, Refusal::BeyondTail);
        }
        // A learner begins where the owner's log does (S7). A member has all of that.
        let first = mark.pins.iter().map(|pin| pin.above).fold(mark.watermark, Lsn::min);
        if self.positions.accepted() < first {
            if self.positions.accepted() > Lsn(0) || !self.index.is_empty() {
                // It misses something that nobody can send any more: it is to be learnt anew.
                return self.refuse_peer(from, Refusal::OtherIncarnation);
            }
            self.begin_at(first);
        }
        self.replication.follower.owner = Some(from);
        self.replication.follower.answer = true;
        self.replication.standing.agreed = true;
        self.replication.standing.mark = mark;
        self.size_bytes = self.replication.standing.mark.size_bytes;
        self.learn_committed(committed);
        self.apply_mark();
        self.checkpoints.want();
    }

    /// The log of a learner begins behind this position.
    fn begin_at(&mut self, first: Lsn) {
        self.positions.begin_at(first);
        self.destage.resume(first);
    }

    // --- Append ---

    pub(super) fn take_append(&mut self, append: Append) {
        if !self.is_as_described(&append) {
            self.recorder.counters.checksum_errors += 1;
            return self.release_append(append);
        }
        if append.from > self.positions.accepted() && !planted!(self, take_gaps) {
            return self.keep_early(append);
        }
        if !self.take_now(append) {
            return;
        }
        // What was waiting for this.
        while let Some(first) = self.replication.follower.early.first_entry()
            && *first.key() <= self.positions.accepted()
        {
            let append = first.remove();
            self.replication.follower.early_blocks -= append.payload.len() as u64;
            self.take_now(append);
        }
    }

    /// The message hangs together, and every payload is what its record says (S4).
    fn is_as_described(&self, append: &Append) -> bool {
        let mut payloads = append.payload.iter();
        let mut last = append.from;
        let ordered = append.records.iter().all(|record| {
            let follows = record.lsn > last && record.lsn <= append.through;
            last = record.lsn;
            let whole = match record.kind {
                Kind::Data { checksum, .. } => {
                    payloads.next().is_some_and(|payload| payload.checksum == checksum || planted!(self, trust_payload))
                }
                Kind::ZeroSectors { .. } | Kind::ZeroBlocks { .. } => true,
            };
            follows && whole
        });
        ordered && payloads.next().is_none()
    }

    /// Waits until what is before it has come, unless that is too much: then it is sent again.
    fn keep_early(&mut self, append: Append) {
        let blocks = append.payload.len() as u64;
        // What comes next must find frames, or none of these ever has its turn.
        let most = (self.cluster().peer_window_bytes_max / BLOCK_BYTES).min(u64::from(self.frames_reserved()));
        let known =
            self.replication.follower.early.get(&append.from).is_some_and(|other| other.through >= append.through);
        if known || self.replication.follower.early_blocks + blocks > most {
            return self.release_append(append);
        }
        self.replication.follower.early_blocks += blocks;
        if let Some(shorter) = self.replication.follower.early.insert(append.from, append) {
            self.replication.follower.early_blocks -= shorter.payload.len() as u64;
            self.release_append(shorter);
        }
    }

    /// Takes what of it is new. False: nothing can be taken now.
    fn take_now(&mut self, append: Append) -> bool {
        let Append { from: _, through, committed, sync, records, mark, payload } = append;
        let known = self.positions.accepted();
        let new = |record: &&Descriptor| record.lsn > known;
        let blocks = records.iter().filter(new).filter(|record| record.has_payload()).count() as u64;
        let others = records.iter().filter(new).filter(|record| !record.has_payload()).count() as u32;
        let refused = if !records.iter().all(|record| self.lies_within(record)) {
            Some(Some(Refusal::BeyondSize))
        } else if self.tier.has_failed() {
            Some(Some(Refusal::TierFailed))
        } else if !self.has_room_for(blocks, others) {
            Some(None)
        } else {
            None
        };
        if let Some(why) = refused {
            self.release_payloads(payload);
            self.replication.follower.answer = true;
            if let (Some(why), Some(owner)) = (why, self.replication.follower.owner) {
                self.refuse_peer(owner, why);
            }
            return false;
        }
        let mut payload = payload.into_iter();
        for record in records {
            let frame = record.has_payload().then(|| payload.next().expect("counted before").frame);
            if record.lsn > known {
                self.append_descriptor(record, frame);
            } else if let Some(frame) = frame {
                self.pool.release(frame);
            }
        }
        if through <= known {
            // A duplicate: its answer was lost, perhaps.
            self.replication.follower.answer = true;
        }
        self.positions.accept_through(through);
        self.hold_accepted();
        self.learn_committed(committed);
        if sync > self.replication.follower.sync_wanted {
            self.replication.follower.sync_wanted = sync;
            self.replication.follower.answer |= self.positions.synced() >= sync;
        }
        match mark {
            Some(mark) => self.take_mark(mark),
            None => self.apply_mark(),
        }
        true
    }

    fn lies_within(&self, record: &Descriptor) -> bool {
        let blocks = match record.kind {
            Kind::Data { .. } | Kind::ZeroSectors { .. } => 1,
            Kind::ZeroBlocks { blocks, .. } => u64::from(blocks),
        };
        record.block.0.checked_add(blocks).is_some_and(|end| end <= self.size_bytes.div_ceil(BLOCK_BYTES))
    }

    fn has_room_for(&self, blocks: u64, others: u32) -> bool {
        let flash_has = |flash: &FlashLog| flash.room(SEGMENTS_KEPT_FREE) >= blocks + u64::from(others);
        self.index.others_left() >= others && self.flash.as_ref().is_none_or(flash_has)
    }

    /// Memory holds what it has accepted; flash, too, when nothing accepted is on its way, also positions that no record has.
    pub(super) fn hold_accepted(&mut self) {
        if self.flash.as_ref().is_none_or(|flash| !flash.has_new_unwritten()) {
            self.on_held(self.positions.accepted());
        }
    }

    /// Room for more records, as the owner counts it: besides all that is accepted.
    fn room(&self) -> Room {
        let live = self.index.payload_blocks();
        let blocks = self.dirty_blocks_max().saturating_sub(live);
        let blocks = match &self.flash {
            Some(flash) => {
                let frames = self.pool.available_to_clients().saturating_sub(self.frames_kept());
                u64::from(blocks).min(flash.room(SEGMENTS_KEPT_FREE)).min(u64::from(frames)) as u32
            }
            None => blocks,
        };
        Room { blocks, ranges: self.index.others_left() }
    }

    fn learn_committed(&mut self, committed: Lsn) {
        if self.positions.commit(committed.min(self.positions.accepted())) {
            self.keep_whole();
        }
    }

    // --- Mark ---

    fn take_mark(&mut self, mark: Mark) {
        // Of two marks the higher number counts (S3).
        if mark.number > self.replication.standing.mark.number {
            self.size_bytes = self.size_bytes.max(mark.size_bytes);
            self.replication.standing.mark = mark;
            self.checkpoints.want();
        }
        self.apply_mark();
    }

    /// What is below the watermark ends, when the checkpoint says so; what is in the window stays as it is (D4).
    pub(super) fn apply_mark(&mut self) {
        let mark = &self.replication.standing.mark;
        let watermark = if planted!(self, free_before_mark) { self.positions.committed() } else { mark.watermark };
        let (watermark, through) = (watermark.min(self.positions.accepted()), mark.through);
        self.index.fix_through(through);
        self.refresh_pins();
        self.learn_committed(watermark);
        if watermark <= self.positions.durable() {
            return;
        }
        self.pass_to_durable(watermark);
    }

    /// Everything up to here is durable in the backing, by another's word.
    pub(super) fn pass_to_durable(&mut self, through: Lsn) {
        while let Some(id) = self.index.cursor() {
            let lsn = self.index.get(id).descriptor.lsn;
            if lsn > through {
                break;
            }
            self.index.set_state(id, State::Written);
            self.index.advance_cursor();
            self.destage.collected = lsn;
        }
        self.destage.collected = self.destage.collected.max(through);
        self.positions.make_durable(through);
        self.checkpoints.want();
    }

    // --- Fetch ---

    /// A new owner wants what this log has more (T3): one message for each time it asks.
    fn take_fetch(&mut self, to: Incarnation, from: Lsn) {
        if self.replication.follower.fetch_under_way.is_some() {
            return;
        }
        let reader = match self.replication.follower.fetch {
            Some((asker, reader)) if asker == to => {
                self.index.seek(reader, from);
                reader
            }
            Some(_) | None => {
                self.end_fetch();
                let reader = self.index.begin_reading(from);
                self.replication.follower.fetch = Some((to, reader));
                reader
            }
        };
        // It asks again where nothing comes.
        if let Some(message) = self.gather(to, reader, from) {
            if self.replication.streams.waits(message) {
                self.replication.follower.fetch_under_way = Some(message);
            } else {
                self.send_gathered(message);
            }
        }
    }

    fn end_fetch(&mut self) {
        self.replication.follower.fetch_under_way = None;
        if let Some((_, reader)) = self.replication.follower.fetch.take() {
            self.index.end_reading(reader);
        }
    }

    // --- Held ---

    /// What would be held here after the death of this process: no more is ever said to be, or a start would count as one in a former
    /// state (S10). Positions behind the newest record have none, since what they had was in the backing before it was sent (S6): they
    /// are known by the checkpoint, once that is durable.
    pub(super) fn outlives(&self) -> Lsn {
        let recorded = match &self.flash {
            Some(_) => self.checkpoints.newest().destaged,
            None => self.checkpoints.newest().destaged.max(self.checkpoints.newest().accepted),
        };
        let found = self.positions.record_held().max(recorded);
        if planted!(self, tell_unrecorded) { self.positions.held() } else { self.positions.held().min(found) }
    }

    /// Tells the owner how far this node is, as soon as all it would say is so.
    pub(super) fn answer_owner(&mut self) {
        let Some(owner) = self.replication.follower.owner else { return };
        let told = self.replication.standing.agreed && self.recorded().is_some_and(|recorded| recorded.agreed);
        if !self.replication.follower.answer || !told || self.tier.has_failed() || self.replication.own_role.went_back()
        {
            return;
        }
        self.replication.follower.answer = false;
        let held = self.outlives();
        let synced = self.flash.is_some().then_some(self.positions.synced().min(held));
        let mark = self.recorded_mark();
        let (accepted, room, host) = (self.positions.accepted(), self.room(), self.cluster().host);
        self.replication.counters.messages += 1;
        self.send(owner, LogMessage::Held(Held { accepted, held, synced, mark, room, host }));
    }

    /// The tier has failed: the owner is told, once it says something.
    pub(super) fn refuse_peer(&mut self, to: Incarnation, why: Refusal) {
        self.replication.counters.refusals += 1;
        self.send(to, Message::Refused { why });
    }
}
