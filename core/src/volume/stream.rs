//! The stream from an owner to each peer: the log in order of positions, cut into messages.
//!
//! - What is sent is in the list of live records: of members and of learners that must miss nothing, superseded records
//!   stay in it until they hold them ([`super::log_index::LogIndex::keep_above`], S5, S6).
//! - A payload is sent from the frame where it lies, pinned until the executor has done with it; one that has left memory is
//!   read from flash into a frame of the message. One message of a peer at a time waits for such reads.
//! - Nothing is relied upon but what the peer says to hold. What is open and does not move is sent again from there (S3),
//!   and a peer whose oldest open thing does not move at all is reported (A3). So is one that moves too slowly ([`super::pace`]).
//! - Sent and not yet held is bounded (S8).
//!
//! A member that a new owner fetches from (T3) sends by the same way, one message for each that is asked for.

use super::frames::Owner;
use super::members::Peer;
use super::pace::Pace;
use super::*;
use crate::cluster::MarkNumber;
use crate::format::Descriptor;
use crate::message::{Envelope, Held, LogMessage, Message};

/// Payload blocks in one message at most: 256 KiB.
const MESSAGE_BLOCKS_MAX: usize = 64;
/// Records in one message at most.
const MESSAGE_RECORDS_MAX: usize = 256;
/// A peer that has nothing else to be told hears after this time what is committed: it frees room by it.
const COMMITTED_DELAY: Duration = Duration::from_millis(50);

/// A message under way, sent and not yet held.
#[derive(Debug)]
struct Open {
    through: Lsn,
    blocks: u64,
}

/// What of a peer's is open, each with its own clock: one that moves does not excuse another that does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Thing {
    Begin,
    Records,
    Mark,
    Sync,
}

const THINGS: [Thing; 4] = [Thing::Begin, Thing::Records, Thing::Mark, Thing::Sync];

/// See the module.
pub(super) struct Stream {
    /// In the log.
    reader: usize,
    /// Everything up to here was sent, since the last time of beginning again.
    pub(super) sent: Lsn,
    open: VecDeque<Open>,
    open_blocks: u64,
    /// A message waits for payloads from flash.
    building: Option<usize>,
    begin_sent: bool,
    committed_told: Lsn,
    committed_told_at: Instant,
    mark_told: MarkNumber,
    sync_told: Lsn,
    /// Since when each thing is open and has not moved.
    since: [Option<Instant>; 4],
    send_again_at: Instant,
    send_again_after: Duration,
    /// When the peer is told again what it has said (S10).
    pub(super) said_at: Instant,
    pace: Pace,
}

/// A message whose payloads are being gathered, or are being sent.
struct Building {
    to: Incarnation,
    from: Lsn,
    through: Lsn,
    records: Vec<Descriptor>,
    /// Pinned; of a payload that had to be loaded, also taken.
    frames: Vec<FrameId>,
    loads_left: u32,
    failed: bool,
}

/// What the streams to all peers have in common.
#[derive(Default)]
pub(super) struct Streams {
    /// Messages that are being put together, or sent.
    messages: Slab<Building>,
    /// By then this node looks after its peers, if it runs.
    due: Option<Instant>,
}

impl Streams {
    /// Some payloads of this message are on their way from flash.
    pub(super) fn waits(&self, message: usize) -> bool {
        self.messages[message].loads_left > 0
    }
}

impl Stream {
    fn blocks_open(&self) -> u64 {
        self.open_blocks
    }

    /// Held up to here: those messages are not open any more.
    fn close_through(&mut self, held: Lsn) {
        while let Some(first) = self.open.front()
            && first.through <= held
        {
            self.open_blocks -= first.blocks;
            self.open.pop_front();
        }
    }
}

impl Peer {
    fn is_open(&self, thing: Thing) -> bool {
        match thing {
            Thing::Begin => self.stream.begin_sent && !self.agreed,
            Thing::Records => self.stream.sent > self.held,
            Thing::Mark => self.agreed && self.stream.mark_told > self.mark,
            Thing::Sync => self.synced.is_some_and(|synced| self.stream.sync_told > synced),
        }
    }

    /// Starts and stops the clocks of what is open.
    fn note_open(&mut self, now: Instant, send_again_after: Duration) {
        let rested = self.stream.since.iter().all(Option::is_none);
        for thing in THINGS {
            let open = self.is_open(thing);
            let since = &mut self.stream.since[thing as usize];
            *since = if open { Some(since.unwrap_or(now)) } else { None };
        }
        if rested {
            self.stream.send_again_after = send_again_after;
            self.stream.send_again_at = now + send_again_after;
        }
    }

    /// A thing has moved.
    fn moved(&mut self, thing: Thing, now: Instant, send_again_after: Duration) {
        self.stream.since[thing as usize] = None;
        self.stream.send_again_after = send_again_after;
        self.stream.send_again_at = now + send_again_after;
        self.failure_told = false;
    }

    fn oldest_open(&self) -> Option<Instant> {
        self.stream.since.iter().flatten().min().copied()
    }
}

impl Volume {
    pub(super) fn open_stream(&mut self, after: Lsn) -> Stream {
        Stream {
            reader: self.index.begin_reading(after),
            sent: after,
            open: VecDeque::new(),
            open_blocks: 0,
            building: None,
            begin_sent: false,
            committed_told: Lsn(0),
            committed_told_at: self.now,
            mark_told: MarkNumber(0),
            sync_told: Lsn(0),
            since: [None; 4],
            send_again_at: self.now,
            send_again_after: Duration(0),
            said_at: self.now,
            pace: Pace::new(self.now),
        }
    }

    /// What it was reading for is of no use any more.
    pub(super) fn close_stream(&mut self, stream: Stream) {
        self.index.end_reading(stream.reader);
        // A message that is being gathered finds nobody, and lets its frames go.
    }

    pub(super) fn envelope_to(&self, to: Incarnation) -> Envelope {
        let from = self.own();
        Envelope {
            volume: *self.identity.volume(),
            term: self.identity.term(),
            epoch: self.replication.standing.epoch,
            from,
            to,
        }
    }

    pub(super) fn send(&mut self, to: Incarnation, message: impl Into<Message>) {
        let (envelope, message) = (self.envelope_to(to), message.into());
        self.effects.push_back(Effect::Send(Box::new(Sending { op: None, envelope, message, frames: Vec::new() })));
    }

    /// Sends whatever may be sent to every peer.
    pub(super) fn send_streams(&mut self) {
        for at in 0..self.replication.members.peers.len() {
            self.send_again_if_due(at);
            self.send_what_was_heard(at);
            if !self.replication.members.peers[at].agreed {
                self.send_begin(at);
            } else {
                while self.send_records(at) {}
                self.send_mark(at);
                self.send_sync(at);
                self.send_committed(at);
            }
            let after = self.cluster().resend_after;
            self.replication.members.peers[at].note_open(self.now, after);
        }
        self.watch_learners();
        self.report_failures();
        self.replication.streams.due = self.streams_timeout();
    }

    /// The time in which this node did not run counts for nobody's silence: what it has not heard may lie in its sockets.
    pub(super) fn forgive_peers(&mut self) {
        let Some(late) = self.replication.streams.due.map(|due| self.now - due) else { return };
        if late <= self.cluster().resend_after {
            return;
        }
        self.replication.streams.due = None;
        for peer in &mut self.replication.members.peers {
            peer.stream.pace.forgive(late, self.now);
            for since in peer.stream.since.iter_mut().flatten() {
                *since = (*since + late).min(self.now);
            }
        }
    }

    fn send_begin(&mut self, at: usize) {
        let Some(tail) = self.replication.agreement.tail() else { return };
        if core::mem::replace(&mut self.replication.members.peers[at].stream.begin_sent, true) {
            return;
        }
        let mark = self.replication.standing.mark.clone();
        let peer = &mut self.replication.members.peers[at];
        peer.stream.mark_told = mark.number;
        let (to, whole_from) = (peer.who, if peer.named { Lsn(0) } else { self.positions.accepted() });
        self.send(to, LogMessage::Begin { tail, committed: self.positions.committed(), whole_from, mark });
    }

    /// Sends the next message with records, or begins to gather it. False: there is none to be sent now.
    fn send_records(&mut self, at: usize) -> bool {
        let window = self.cluster().peer_window_bytes_max / BLOCK_BYTES;
        let peer = &self.replication.members.peers[at];
        let nothing = peer.stream.sent >= self.positions.accepted();
        if nothing || peer.stream.building.is_some() || peer.stream.blocks_open() >= window {
            return false;
        }
        let (to, reader, from) = (peer.who, peer.stream.reader, peer.stream.sent);
        let Some(message) = self.gather(to, reader, from) else { return false };
        let through = self.replication.streams.messages[message].through;
        let stream = &mut self.replication.members.peers[at].stream;
        stream.sent = through;
        let blocks = self.replication.streams.messages[message].frames.len() as u64;
        stream.open.push_back(Open { through, blocks });
        stream.open_blocks += blocks;
        if self.replication.streams.messages[message].loads_left > 0 {
            stream.building = Some(message);
            return false;
        }
        self.send_gathered(message);
        true
    }

    /// Gathers what comes next for a reader, pinned or on its way from flash. None: it cannot be had now.
    pub(super) fn gather(&mut self, to: Incarnation, reader: usize, from: Lsn) -> Option<usize> {
        let mut records = Vec::new();
        let mut frames: Vec<FrameId> = Vec::new();
        let mut loads: Vec<(u32, FrameId)> = Vec::new();
        let mut through = from;
        let whole = loop {
            let Some(id) = self.index.next_of(reader) else { break true };
            if frames.len() == MESSAGE_BLOCKS_MAX || records.len() == MESSAGE_RECORDS_MAX {
                break false;
            }
            let descriptor = self.index.get(id).descriptor;
            if descriptor.has_payload() {
                let Some((frame, load)) = self.frame_for_peer(id, loads.len() as u32) else { break false };
                frames.push(frame);
                if load {
                    loads.push((id, frame));
                }
            }
            records.push(descriptor);
            through = descriptor.lsn;
            self.index.advance(reader);
        };
        if whole {
            // Positions without a record are told by this, too.
            through = self.positions.accepted();
        } else if records.is_empty() {
            return None;
        }
        let loads_left = loads.len() as u32;
        let message = Building { to, from, through, records, frames, loads_left, failed: false };
        let message = self.replication.streams.messages.insert(message);
        for (id, frame) in loads {
            self.load_for_peer(message, id, frame);
        }
        Some(message)
    }

    /// A pinned frame with the payload of a record, and whether it must be read first. None: not to be had now.
    fn frame_for_peer(&mut self, id: u32, loads: u32) -> Option<(FrameId, bool)> {
        if let Some(frame) = self.frame_of_record(id) {
            self.pool.pin(frame);
            return Some((frame, false));
        }
        let unwritten = self.flash.as_ref().is_some_and(|flash| flash.is_unwritten(id));
        if unwritten || loads >= self.loads_max() {
            return None;
        }
        let frame = self.pool.allocate()?;
        self.pool.pin(frame);
        Some((frame, true))
    }

    fn load_for_peer(&mut self, message: usize, id: u32, frame: FrameId) {
        let check = self.check_of(id);
        let flash = self.flash.as_mut().expect("memory tiers have every record in memory");
        let segment = flash.segment_of(id);
        flash.segments[segment as usize].busy += 1;
        let at = flash.place(id);
        let op = self.begin_op(Op::LoadForPeer { message, segment });
        self.effects.push_back(Effect::TierRead { op, at, frames: Checks::from_slice(&[(frame, check)]) });
    }

    pub(super) fn on_loaded_for_peer(&mut self, message: usize, segment: u32, failed: Option<IoError>) {
        let flash = self.flash.as_mut().expect("only flash is read back");
        flash.segments[segment as usize].busy -= 1;
        flash.drain_if_empty(segment);
        let building = &mut self.replication.streams.messages[message];
        building.failed |= failed.is_some();
        building.loads_left -= 1;
        if building.loads_left > 0 {
            return;
        }
        let (to, failed) = (building.to, building.failed);
        let waits = self
            .replication
            .members
            .place_of(&to)
            .filter(|&at| self.replication.members.peers[at].stream.building == Some(message));
        if let Some(at) = waits {
            self.replication.members.peers[at].stream.building = None;
        }
        let asked_for = self.replication.follower.end_gathering(message);
        // A payload that cannot be read is not sent: the peer's record stays open, and ownership hears of it.
        if failed || (waits.is_none() && !asked_for) { self.end_message(message) } else { self.send_gathered(message) }
    }

    pub(super) fn send_gathered(&mut self, message: usize) {
        let Building { to, from, through, .. } = self.replication.streams.messages[message];
        let records = core::mem::take(&mut self.replication.streams.messages[message].records);
        let blocks = self.replication.streams.messages[message].frames.len() as u64;
        let (mark, sync) = match self.replication.members.place_of(&to) {
            Some(at) => {
                if self.replication.members.peers[at].named {
                    self.recorder.sent_to_member(through, self.now);
                }
                let newest = self.replication.standing.mark.number;
                let wanted = self.sync_wanted().min(through);
                let stream = &mut self.replication.members.peers[at].stream;
                stream.committed_told = self.positions.committed();
                stream.committed_told_at = self.now;
                stream.sync_told = stream.sync_told.max(wanted);
                stream.pace.sent(through, blocks, self.now);
                let told = core::mem::replace(&mut stream.mark_told, newest);
                ((told < newest).then(|| self.replication.standing.mark.clone()), wanted)
            }
            None => (None, Lsn(0)),
        };
        let append = LogMessage::Append { from, through, committed: self.positions.committed(), sync, records, mark };
        self.replication.counters.blocks += blocks;
        self.send_message(message, append);
    }

    /// Sends frames, which come pinned, with a message that is gathered at once.
    pub(super) fn send_frames(&mut self, to: Incarnation, message: LogMessage, frames: Vec<FrameId>) {
        let (records, loads_left, failed) = (Vec::new(), 0, false);
        let building = Building { to, from: Lsn(0), through: Lsn(0), records, frames, loads_left, failed };
        let at = self.replication.streams.messages.insert(building);
        self.send_message(at, message);
    }

    /// Frames of what is sent without being of the log: nothing is before the first position.
    pub(super) fn frames_of_answers(&self) -> u32 {
        let answers = self.replication.streams.messages.iter().filter(|(_, message)| message.through == Lsn(0));
        answers.map(|(_, message)| message.frames.len() as u32).sum()
    }

    fn send_message(&mut self, at: usize, message: LogMessage) {
        let (to, frames) =
            (self.replication.streams.messages[at].to, self.replication.streams.messages[at].frames.clone());
        self.replication.counters.messages += 1;
        let op = if frames.is_empty() {
            self.end_message(at);
            None
        } else {
            Some(self.begin_op(Op::Send { message: at }))
        };
        let (envelope, message) = (self.envelope_to(to), Message::Log(message));
        self.effects.push_back(Effect::Send(Box::new(Sending { op, envelope, message, frames })));
    }

    /// Nothing reads the message's frames any more.
    pub(super) fn end_message(&mut self, message: usize) {
        for frame in self.replication.streams.messages.remove(message).frames {
            // One that was loaded for this alone has no other owner.
            if self.pool.owner(frame) == Owner::Taken && !self.is_staged(frame) {
                self.pool.release(frame);
            }
            self.pool.unpin(frame);
        }
    }

    /// Position that a flush waits for on the media of all.
    fn sync_wanted(&self) -> Lsn {
        let flushes = if self.flush_is_media() { self.acks.last_awaiting_sync() } else { Lsn(0) };
        flushes.max(self.last_proposed_on_media())
    }

    fn send_mark(&mut self, at: usize) {
        let newest = self.replication.standing.mark.number;
        let stream = &mut self.replication.members.peers[at].stream;
        if stream.mark_told < newest {
            stream.mark_told = newest;
            let (to, mark) = (self.replication.members.peers[at].who, self.replication.standing.mark.clone());
            self.send(to, LogMessage::Mark(mark));
        }
    }

    /// A message without records: asks for a sync, or tells what is committed.
    fn send_empty(&mut self, at: usize, sync: Lsn) {
        let stream = &mut self.replication.members.peers[at].stream;
        (stream.committed_told, stream.committed_told_at) = (self.positions.committed(), self.now);
        stream.sync_told = stream.sync_told.max(sync);
        let (to, from) = (self.replication.members.peers[at].who, self.replication.members.peers[at].stream.sent);
        let committed = self.positions.committed();
        self.replication.counters.messages += 1;
        self.send(to, LogMessage::Append { from, through: from, committed, sync, records: Vec::new(), mark: None });
    }

    fn send_sync(&mut self, at: usize) {
        let peer = &self.replication.members.peers[at];
        let wanted = self.sync_wanted().min(peer.stream.sent);
        if wanted > peer.stream.sync_told && peer.synced.is_some_and(|synced| synced < wanted) {
            self.send_empty(at, wanted);
        }
    }

    fn send_committed(&mut self, at: usize) {
        let stream = &self.replication.members.peers[at].stream;
        if stream.committed_told < self.positions.committed() && self.now - stream.committed_told_at >= COMMITTED_DELAY
        {
            self.send_empty(at, Lsn(0));
        }
    }

    /// From where the peer was last heard to be.
    fn send_again(&mut self, at: usize) {
        self.replication.counters.resends += 1;
        let peer = &mut self.replication.members.peers[at];
        peer.stream.begin_sent = false;
        peer.stream.mark_told = peer.mark;
        peer.stream.sync_told = peer.synced.unwrap_or(Lsn(0));
        if peer.stream.sent > peer.held {
            peer.stream.sent = peer.held;
            peer.stream.open.clear();
            peer.stream.open_blocks = 0;
            // What is being gathered goes out by itself, and is a duplicate at worst.
            self.index.seek(peer.stream.reader, peer.held);
        }
    }

    fn send_again_if_due(&mut self, at: usize) {
        let stream = &mut self.replication.members.peers[at].stream;
        if stream.since.iter().all(Option::is_none) || self.now < stream.send_again_at {
            return;
        }
        stream.send_again_after = Duration(stream.send_again_after.0 * 2);
        stream.send_again_at = self.now + stream.send_again_after;
        self.send_again(at);
    }

    pub(super) fn on_interrupted(&mut self, node: NodeId) {
        for at in 0..self.replication.members.peers.len() {
            if self.replication.members.peers[at].who.node == node {
                self.replication.members.peers[at].stream.said_at = self.now;
                self.send_again(at);
            }
        }
    }

    /// When something about the peers becomes due by time alone.
    pub(super) fn streams_timeout(&self) -> Option<Instant> {
        let stall = self.config.cluster.as_ref().map(|cluster| cluster.stall_max)?;
        let due = |peer: &Peer| {
            let open = peer.oldest_open();
            let again = open.map(|_| peer.stream.send_again_at);
            let failed = open.filter(|_| !peer.failure_told).map(|since| since + stall);
            let tell = (peer.agreed && peer.stream.committed_told < self.positions.committed())
                .then_some(peer.stream.committed_told_at + COMMITTED_DELAY);
            [again, failed, tell, Some(peer.stream.said_at)].into_iter().flatten().min()
        };
        self.replication.members.peers.iter().filter_map(due).min()
    }

    // --- what a peer says ---

    pub(super) fn on_held_by_peer(&mut self, at: usize, said: Held) {
        let Held { accepted: theirs, held, synced, mark, room, host: _ } = said;
        let (now, after) = (self.now, self.cluster().resend_after);
        let (accepted, newest) = (self.positions.accepted(), self.replication.standing.mark.number);
        let (stall_max, quickest) = (self.cluster().stall_max, self.quickest_but(at));
        // Of this term only this owner can have sent it: it knows less than it did (S10).
        if theirs > accepted || held > accepted || mark > newest {
            return self.goes_back();
        }
        let peer = &mut self.replication.members.peers[at];
        if !core::mem::replace(&mut peer.agreed, true) {
            peer.stream.sent = held;
            self.index.seek(peer.stream.reader, held);
            peer.moved(Thing::Begin, now, after);
        }
        if held > peer.held {
            peer.held = held;
            peer.stream.close_through(held);
            peer.stream.pace.held(held, now, stall_max, quickest);
            peer.moved(Thing::Records, now, after);
        }
        if peer.stream.sent < peer.held {
            // It was sent again what had arrived.
            peer.stream.sent = peer.held;
            self.index.seek(peer.stream.reader, peer.held);
        }
        if synced > peer.synced {
            peer.synced = synced;
            peer.moved(Thing::Sync, now, after);
        }
        if mark > peer.mark {
            peer.mark = mark;
            peer.moved(Thing::Mark, now, after);
        }
        peer.room = room;
        self.marks_changed();
        self.commit();
    }

    /// A learner that is near becomes whole; one that has fallen behind is far again; ownership hears who is ready (S6).
    fn watch_learners(&mut self) {
        let window = self.cluster().peer_window_bytes_max / BLOCK_BYTES;
        let (accepted, newest) = (self.positions.accepted(), self.replication.standing.mark.number);
        let mut ready = Vec::new();
        let mut changed = false;
        for peer in self.replication.members.peers.iter_mut().filter(|peer| peer.agreed) {
            peer.marked_since_proposal = peer.named && (peer.marked_since_proposal || peer.mark == newest);
            if peer.named {
                continue;
            }
            let behind = accepted.0 - peer.held.0;
            let whole_from = match peer.whole_from {
                None if accepted.0 - peer.stream.sent.0 <= window / 2 => Some(accepted),
                Some(from) if behind <= 2 * window => Some(from),
                None | Some(_) => None,
            };
            changed |= whole_from != peer.whole_from;
            peer.whole_from = whole_from;
            let whole = whole_from.is_some_and(|from| peer.held >= from) && behind < window;
            peer.ready_told &= whole;
            let is_ready = whole && peer.mark == newest;
            if is_ready && !core::mem::replace(&mut peer.ready_told, true) {
                ready.push(peer.who);
            }
        }
        if changed {
            self.keep_whole();
        }
        ready.retain(|_| !planted!(self, keep_learners_waiting));
        for peer in ready {
            self.report(Report::LearnerReady { peer });
        }
    }

    /// How long the quickest of the other members usually takes to hold a message.
    fn quickest_but(&self, at: usize) -> Option<Duration> {
        let who = self.replication.members.peers[at].who;
        self.replication
            .members
            .asked()
            .filter(|peer| peer.who != who)
            .filter_map(|peer| peer.stream.pace.usual())
            .min()
    }

    fn report_failures(&mut self) {
        let stall = self.cluster().stall_max;
        let stalled = |peer: &Peer| peer.oldest_open().is_some_and(|since| self.now - since >= stall);
        let failed: Vec<Incarnation> =
            self.replication.members.peers.iter().filter(|p| stalled(p)).map(|peer| peer.who).collect();
        for who in failed {
            self.peer_failed(&who, PeerFailure::Stalled);
        }
        let slow = |peer: &mut Peer| peer.stream.pace.take_slow().then_some(peer.who);
        let slow: Vec<Incarnation> = self.replication.members.peers.iter_mut().filter_map(slow).collect();
        for who in slow {
            if !planted!(self, endure_slow_peers) {
                self.peer_failed(&who, PeerFailure::Slow);
            }
        }
    }

    pub(super) fn peer_failed(&mut self, who: &Incarnation, why: PeerFailure) {
        let Some(at) = self.replication.members.place_of(who) else { return };
        let peer = &mut self.replication.members.peers[at];
        if core::mem::replace(&mut peer.failure_told, true) {
            return;
        }
        let learner = !peer.named;
        self.report(Report::PeerFailed { peer: *who, why });
        if learner {
            let changes = self.replication.members.forget(who.node);
            self.execute(changes);
        }
    }
}
