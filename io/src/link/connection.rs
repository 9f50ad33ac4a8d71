//! One living channel: what goes out on it, what comes in, and how fast it is.
//!
//! Invariants:
//! - A frame that was begun is finished before anything else goes out, so that the stream stays in step.
//! - What is urgent goes before everything that was not begun.
//! - A payload goes through the shard's hot buffer, where it gets its checksums, and is copied once, past the cache, into
//!   the frames that the receiver has named. (As with clients; `front::nbd::connection` has what was measured.)
//! - Nothing of a message is delivered before its last byte has come, and never twice.

use super::Receiver;
use super::compress::Packer;
use super::failure::Failure;
use super::inflight::{Inbox, Outbox};
use super::pace::Pace;
use super::place::Place;
use crate::channel::Channel;
use crate::nontemporal_copy;
use crate::reactor::Interest;
use crate::socket::{Moved, VECTORS_MAX, tcp_trouble};
use forebay_core::cluster::NodeId;
use forebay_core::format::{Kind, payload_checksum};
use forebay_core::message::{Envelope, Message};
use forebay_core::types::*;
use forebay_core::wire::*;
use std::collections::VecDeque;

/// No progress for so long while something is open: the channel is dead, and its messages go by others.
pub(super) const STALL_MAX: Duration = Duration::from_millis(150);
/// The same where no other channel is better: nothing could go by another, and it is rather the other node that is slow.
const STALL_EVERYWHERE_MAX: Duration = Duration::from_millis(600);
/// No progress for so long makes one ask the other channels how they are.
const SUSPECT: Duration = Duration::from_millis(60);
/// A channel on which something was heard within this shows that the other node is well.
const WELL: Duration = Duration::from_millis(100);
/// As long as the other side's kernel takes bytes, its process may be that slow; then the channel is begun anew.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How often a living channel is looked at while something is open.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// How often a channel's round trip is measured; an idle one is found dead by it.
const PING_EVERY: Duration = Duration::from_millis(500);
/// Answers to pings that have not begun to leave.
const PONGS_MAX: usize = 16;
/// Receive and send calls in one turn: a fast peer must not keep the shard from others.
const ROUNDS_MAX: usize = 4;
/// Bytes that are not yet with the kernel, below which a channel takes another message.
const AHEAD_BYTES: u64 = 64 << 10;
/// Bytes of frames put together for one call.
const CALL_BYTES_MAX: u64 = 1 << 20;

const BLOCK: usize = BLOCK_BYTES as usize;

/// What goes out.
enum Item {
    /// Frames of the channel itself.
    Bytes(Vec<u8>),
    /// The answer to a ping.
    Pong(Vec<u8>),
    /// A message in the outbox.
    Message(u64),
}

/// Where the next byte belongs.
enum Incoming {
    Head,
    Body(FrameHead),
    /// Whole blocks, each to its frame.
    Plain(Payloads),
    /// Bytes of a packed payload.
    Packed(Payloads, Packing, usize, Vec<u8>),
    /// Nobody wants it: it was here before, or there is no place for it.
    Skip {
        left: usize,
        sequence: u64,
    },
}

/// A message whose payload is arriving.
struct Payloads {
    sequence: u64,
    envelope: Envelope,
    message: Message,
    place: Place,
    /// Of the message's records, those looked at.
    records: usize,
    done: Vec<Payload>,
}

impl Payloads {
    fn is_whole(&self) -> bool {
        self.done.len() == self.place.frames.len()
    }

    /// Takes one block.
    fn take(&mut self, block: &[u8]) {
        let records = records_of(&self.message);
        let ahead = records[self.records..].iter().position(|record| record.has_payload());
        let record = &records[self.records + ahead.expect("a place was made for as many as have a payload")];
        self.records += ahead.expect("as above") + 1;
        let Kind::Data { mask, .. } = record.kind else { unreachable!("records with a payload are data") };
        let checksum = payload_checksum(&self.envelope.volume, record.block, mask, record.term, block);
        let index = self.done.len();
        self.place.put(index, block);
        self.done.push(Payload { frame: self.place.frames[index], checksum });
    }
}

/// What all channels of a link share while one of them works.
pub(super) struct Desk<'a> {
    pub(super) outbox: &'a mut Outbox,
    pub(super) inbox: &'a mut Inbox,
    pub(super) packer: &'a mut Packer,
    pub(super) receiver: &'a mut dyn Receiver,
    pub(super) hot: &'a mut [u8],
    pub(super) own: NodeId,
    pub(super) peer: NodeId,
    pub(super) now: Instant,
    pub(super) counts: &'a mut Counts,
}

/// Of all channels of a link.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Messages that had arrived before, by another channel.
    pub duplicates: u64,
    /// Messages that found no place here.
    pub no_place: u64,
    /// Payload bytes that came packed, as they came.
    pub unpacked_from_bytes: u64,
    /// The same payload bytes, unpacked.
    pub unpacked_to_bytes: u64,
}

/// See the module's text.
pub(super) struct Connection {
    channel: Channel,
    index: usize,

    /// Begun, and how much of it has gone.
    current: Option<(Item, usize)>,
    urgent: VecDeque<Item>,
    bulk: VecDeque<u64>,
    /// Bytes queued here that the kernel has not got.
    unsent: u64,
    /// Bytes that it has, since the hello.
    sent: u64,
    /// The socket takes no more now.
    blocked: bool,
    /// Messages with the kernel, and where each ends in the stream.
    flight: VecDeque<(u64, u64)>,
    acknowledged: u64,

    incoming: Incoming,
    /// Bytes that wait for their rest.
    pending: Vec<u8>,
    started: bool,
    consumed: u64,
    owes_acknowledgement: bool,

    pub(super) pace: Pace,
    /// Something is open without a break since [`Connection::look`] has last seen so: of what is sent after all was answered, the
    /// time in which it could have got on begins anew.
    was_open: bool,
    progress_at: Instant,
    heard_at: Instant,
    /// Something was heard since the hello.
    has_spoken: bool,
    looked_at: Instant,
    pinged_at: Instant,
    ping_open: bool,
    /// As the reactor has it.
    pub(super) interest: Interest,
}

impl Connection {
    /// On a channel whose hellos have been said.
    pub(super) fn new(channel: Channel, index: usize, first: u64, now: Instant) -> Connection {
        let mut live = Connection {
            channel,
            index,
            current: None,
            urgent: VecDeque::new(),
            bulk: VecDeque::new(),
            unsent: 0,
            sent: 0,
            blocked: false,
            flight: VecDeque::new(),
            acknowledged: 0,
            incoming: Incoming::Head,
            pending: Vec::new(),
            started: false,
            consumed: 0,
            owes_acknowledgement: false,
            pace: Pace::new(now),
            was_open: false,
            progress_at: now,
            heard_at: now,
            has_spoken: false,
            looked_at: now,
            pinged_at: now,
            ping_open: false,
            interest: Interest::READ,
        };
        live.queue(ChannelFrame::Start { first });
        live.ping(now);
        live
    }

    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Bytes given to it that are not acknowledged.
    pub(super) fn in_flight(&self) -> u64 {
        self.sent - self.acknowledged + self.unsent
    }

    /// Bytes sent and received, since the hello.
    pub(super) fn traffic(&self) -> (u64, u64) {
        (self.sent, self.consumed)
    }

    /// Takes another message of the bulk now.
    pub(super) fn is_ready(&self) -> bool {
        !self.blocked && self.unsent < AHEAD_BYTES && self.in_flight() < self.pace.window()
    }

    /// When something was last heard.
    pub(super) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// Whether the other end has said more than its hello, which may be a late one of a process that has ended.
    pub(super) fn has_spoken(&self) -> bool {
        self.has_spoken
    }

    // --- out ---

    fn queue(&mut self, frame: ChannelFrame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.unsent += bytes.len() as u64;
        self.urgent.push_back(Item::Bytes(bytes));
    }

    fn ping(&mut self, now: Instant) {
        self.pinged_at = now;
        self.ping_open = true;
        self.queue(ChannelFrame::Ping { sent: now });
    }

    /// Takes a message of so many bytes.
    pub(super) fn carry(&mut self, sequence: u64, bytes: u64, urgent: bool) {
        self.unsent += bytes;
        if urgent {
            self.urgent.push_back(Item::Message(sequence));
        } else {
            self.bulk.push_back(sequence);
        }
    }

    /// Sends what the socket takes; `received` is what the other side may forget.
    pub(super) fn send(
        &mut self,
        outbox: &mut Outbox,
        received: u64,
        vectors: &mut Vec<libc::iovec>,
    ) -> Result<(), Failure> {
        // At once, even with nothing else to say. To let it wait for an answer (up to 4 ms) was built and measured: it halves the
        // messages of a small write and gains nothing, because both sides then wait too long for a look before they block
        // (`reactor::spin`): at depth 1, 9,100 writes a second instead of 11,600 (ten alternations, shared machine), and 7,400
        // instead of 7,200 (five, a busier one).
        if std::mem::take(&mut self.owes_acknowledgement) {
            self.queue(ChannelFrame::Acknowledge { received, bytes: self.consumed });
        }
        for _ in 0..ROUNDS_MAX {
            if self.unsent == 0 && !self.channel.has_unsent() {
                break;
            }
            let wanted = self.vectors(outbox, vectors);
            // SAFETY: the vectors name frames' heads and bodies in `self` and in the outbox, neither of which changes
            // during the call, and payload that the outbox keeps alive and core lets nobody change.
            match unsafe { self.channel.send(vectors) } {
                Moved::Bytes(sent) => {
                    self.on_sent(outbox, sent);
                    if (sent as u64) < wanted || self.channel.has_unsent() {
                        self.blocked = true;
                        break;
                    }
                }
                Moved::WouldBlock => {
                    self.blocked = true;
                    break;
                }
                Moved::Failed(error) => return Err(Failure::of(&error)),
            }
        }
        vectors.clear();
        // Here, and not where an answer comes: a pong or an acknowledgement of this side may still have been queued then.
        self.was_open &= self.is_open();
        Ok(())
    }

    /// Vectors over what goes next; returns their bytes.
    fn vectors(&self, outbox: &Outbox, vectors: &mut Vec<libc::iovec>) -> u64 {
        vectors.clear();
        let mut bytes = 0;
        let begun = self.current.iter().map(|(item, at)| (item, *at));
        let urgent = self.urgent.iter().map(|item| (item, 0));
        for (item, at) in begun.chain(urgent) {
            bytes += item_vectors(item, at, outbox, vectors);
        }
        for sequence in &self.bulk {
            if bytes >= CALL_BYTES_MAX || vectors.len() >= VECTORS_MAX {
                break;
            }
            bytes += item_vectors(&Item::Message(*sequence), 0, outbox, vectors);
        }
        if vectors.len() > VECTORS_MAX {
            vectors.truncate(VECTORS_MAX);
            bytes = vectors.iter().map(|vector| vector.iov_len as u64).sum();
        }
        bytes
    }

    fn on_sent(&mut self, outbox: &mut Outbox, bytes: usize) {
        self.sent += bytes as u64;
        self.unsent -= bytes as u64;
        let mut left = bytes;
        while left > 0 {
            let (item, at) = match self.current.take() {
                Some(begun) => begun,
                None => {
                    let bulk = || self.bulk.pop_front().map(Item::Message);
                    let item = self.urgent.pop_front().or_else(bulk);
                    (item.expect("no more is sent than was queued"), 0)
                }
            };
            let length = item_bytes(&item, outbox);
            if length - at > left {
                self.current = Some((item, at + left));
                return;
            }
            left -= length - at;
            if let Item::Message(sequence) = item {
                self.flight.push_back((sequence, self.sent - left as u64));
                outbox.sent(sequence, self.index);
            }
        }
    }

    /// The socket takes more.
    pub(super) fn on_writable(&mut self) {
        self.blocked = false;
    }

    /// What the reactor is to tell.
    pub(super) fn wants(&self) -> Interest {
        if self.blocked || self.channel.has_unsent() { Interest::BOTH } else { Interest::READ }
    }

    // --- in ---

    /// Receives what has come. True: more may be there that no readiness will tell of.
    pub(super) fn receive(&mut self, desk: &mut Desk<'_>) -> Result<bool, Failure> {
        let mut prefix = self.pending.len();
        desk.hot[..prefix].copy_from_slice(&self.pending);
        self.pending.clear();
        for round in 1..=ROUNDS_MAX {
            let got = match self.channel.receive(&mut desk.hot[prefix..]) {
                Moved::Bytes(0) => return Err(Failure::HungUp),
                Moved::Bytes(got) => got,
                Moved::WouldBlock => break,
                Moved::Failed(error) => return Err(Failure::of(&error)),
            };
            (self.progress_at, self.heard_at, self.has_spoken) = (desk.now, desk.now, true);
            let filled = prefix + got;
            let room = desk.hot.len();
            // The parser borrows the bytes and the rest of the desk at the same time.
            let hot = std::mem::take(&mut desk.hot);
            let used = self.parse(&hot[..filled], desk);
            desk.hot = hot;
            let used = used?;
            desk.hot.copy_within(used..filled, 0);
            prefix = filled - used;
            if filled < room {
                break;
            }
            if round == ROUNDS_MAX {
                self.pending.extend_from_slice(&desk.hot[..prefix]);
                return Ok(true);
            }
        }
        self.pending.extend_from_slice(&desk.hot[..prefix]);
        Ok(false)
    }

    /// Takes what is whole; returns how many bytes.
    fn parse(&mut self, bytes: &[u8], desk: &mut Desk<'_>) -> Result<usize, Failure> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let used = match std::mem::replace(&mut self.incoming, Incoming::Head) {
                Incoming::Head => match rest.first_chunk() {
                    None => break,
                    Some(head) => {
                        let head = FrameHead::decode(head).map_err(Failure::Malformed)?;
                        self.incoming = Incoming::Body(head);
                        HEAD_BYTES
                    }
                },
                Incoming::Body(head) => match rest.get(..head.body_bytes as usize) {
                    None => {
                        self.incoming = Incoming::Body(head);
                        break;
                    }
                    Some(body) => {
                        head.check_body(body).map_err(Failure::Malformed)?;
                        self.on_body(&head, body, desk)?;
                        body.len()
                    }
                },
                Incoming::Plain(mut payloads) => {
                    let mut used = 0;
                    while !payloads.is_whole()
                        && let Some(block) = rest.get(used..used + BLOCK)
                    {
                        payloads.take(block);
                        used += BLOCK;
                    }
                    if payloads.is_whole() {
                        self.deliver(payloads, desk);
                    } else {
                        self.incoming = Incoming::Plain(payloads);
                        self.take(used);
                        at += used;
                        break;
                    }
                    used
                }
                Incoming::Packed(payloads, packing, length, mut packed) => {
                    let part = &rest[..rest.len().min(length - packed.len())];
                    packed.extend_from_slice(part);
                    if packed.len() == length {
                        self.unpack(payloads, packing, &packed, desk)?;
                    } else {
                        self.incoming = Incoming::Packed(payloads, packing, length, packed);
                        self.take(part.len());
                        at += part.len();
                        break;
                    }
                    part.len()
                }
                Incoming::Skip { left, sequence } => {
                    let part = rest.len().min(left);
                    if part < left {
                        self.incoming = Incoming::Skip { left: left - part, sequence };
                        self.take(part);
                        at += part;
                        break;
                    }
                    self.arrived(sequence, desk);
                    part
                }
            };
            self.take(used);
            at += used;
        }
        Ok(at)
    }

    /// Bytes of the stream are done with.
    fn take(&mut self, bytes: usize) {
        self.consumed += bytes as u64;
        // Bytes of a message that is not whole count as well: a slow link must not look like a dead one.
        self.owes_acknowledgement |= !matches!(self.incoming, Incoming::Head | Incoming::Body(_));
    }

    fn on_body(&mut self, head: &FrameHead, body: &[u8], desk: &mut Desk<'_>) -> Result<(), Failure> {
        if head.kind == FrameKind::Message {
            return self.on_message(head, body, desk);
        }
        match ChannelFrame::decode(head.kind, body).map_err(Failure::Malformed)? {
            ChannelFrame::Start { first } if !self.started => {
                self.started = true;
                desk.inbox.start(first);
            }
            ChannelFrame::Acknowledge { received, bytes } => return self.on_acknowledge(received, bytes, desk),
            ChannelFrame::Ping { sent } => return self.answer_ping(sent),
            ChannelFrame::Pong { sent } if self.ping_open && sent == self.pinged_at => {
                self.ping_open = false;
                self.pace.round_trip(desk.now - sent);
            }
            ChannelFrame::Refusal(why) => return Err(Failure::RefusedByPeer(why)),
            ChannelFrame::Hello(_)
            | ChannelFrame::Start { .. }
            | ChannelFrame::Pong { .. }
            | ChannelFrame::Entered(_) => {
                return Err(Failure::Malformed("frame: one that may not come now"));
            }
        }
        Ok(())
    }

    /// A node that pings has the answer before it pings again; whoever asks and takes nothing would have us keep answers without bound.
    fn answer_ping(&mut self, sent: Instant) -> Result<(), Failure> {
        let pongs = self.urgent.iter().filter(|item| matches!(item, Item::Pong(_)));
        if pongs.count() >= PONGS_MAX {
            return Err(Failure::Malformed("ping: too many before the answer to the first"));
        }
        let mut bytes = Vec::new();
        ChannelFrame::Pong { sent }.encode(&mut bytes);
        self.unsent += bytes.len() as u64;
        self.urgent.push_back(Item::Pong(bytes));
        Ok(())
    }

    fn on_acknowledge(&mut self, received: u64, bytes: u64, desk: &mut Desk<'_>) -> Result<(), Failure> {
        if bytes > self.sent || received > desk.outbox.newest() {
            return Err(Failure::Malformed("acknowledge: of what was never sent"));
        }
        if bytes > self.acknowledged {
            self.pace.arrived(bytes - self.acknowledged, desk.now);
            self.acknowledged = bytes;
        }
        while let Some(&(sequence, end)) = self.flight.front()
            && end <= bytes
        {
            self.flight.pop_front();
            desk.outbox.acknowledge(sequence);
        }
        if self.flight.is_empty() && self.unsent == 0 {
            self.pace.idle();
        }
        desk.outbox.acknowledge_through(received);
        Ok(())
    }

    fn on_message(&mut self, head: &FrameHead, body: &[u8], desk: &mut Desk<'_>) -> Result<(), Failure> {
        let sequence = head.sequence;
        if !self.started || !desk.inbox.may_come(sequence) {
            return Err(Failure::Malformed("message: its number may not come now"));
        }
        self.owes_acknowledgement = true;
        let (envelope, message) = decode_message(body).map_err(Failure::Malformed)?;
        if envelope.from.node != desk.peer || envelope.to.node != desk.own {
            return Err(Failure::Malformed("message: between other nodes than those of this link"));
        }
        let blocks = payload_blocks(&message);
        if blocks as u64 * BLOCK_BYTES != u64::from(head.unpacked_bytes) {
            return Err(Failure::Malformed("message: its payload is not that of its records"));
        }
        let left = head.payload_bytes as usize;
        if desk.inbox.has(sequence) {
            desk.counts.duplicates += 1;
            self.skip(left, sequence, desk);
        } else if blocks == 0 {
            desk.inbox.take(sequence);
            desk.receiver.deliver(envelope, message, Vec::new());
        } else if let Some(place) = desk.receiver.place(&envelope, &message, blocks) {
            assert_eq!(place.frames.len(), blocks, "a place has a frame for each block");
            let payloads =
                Payloads { sequence, envelope, message, place, records: 0, done: Vec::with_capacity(blocks) };
            self.incoming = match head.packing {
                Packing::Plain => Incoming::Plain(payloads),
                Packing::Lz4 | Packing::Zstd => {
                    Incoming::Packed(payloads, head.packing, left, Vec::with_capacity(left))
                }
            };
        } else {
            desk.counts.no_place += 1;
            self.skip(left, sequence, desk);
        }
        Ok(())
    }

    fn skip(&mut self, left: usize, sequence: u64, desk: &mut Desk<'_>) {
        match left {
            0 => self.arrived(sequence, desk),
            left => self.incoming = Incoming::Skip { left, sequence },
        }
    }

    fn arrived(&mut self, sequence: u64, desk: &mut Desk<'_>) {
        if !desk.inbox.has(sequence) {
            desk.inbox.take(sequence);
        }
        self.owes_acknowledgement = true;
    }

    fn unpack(
        &mut self,
        mut payloads: Payloads,
        packing: Packing,
        packed: &[u8],
        desk: &mut Desk<'_>,
    ) -> Result<(), Failure> {
        let length = payloads.place.frames.len() * BLOCK;
        match desk.packer.unpack(packing, packed, length) {
            Ok(unpacked) => unpacked.chunks_exact(BLOCK).for_each(|block| payloads.take(block)),
            Err(why) => {
                desk.receiver.give_back(payloads.envelope.volume, payloads.place.frames);
                return Err(Failure::Malformed(why));
            }
        }
        desk.counts.unpacked_from_bytes += packed.len() as u64;
        desk.counts.unpacked_to_bytes += length as u64;
        self.deliver(payloads, desk);
        Ok(())
    }

    fn deliver(&mut self, payloads: Payloads, desk: &mut Desk<'_>) {
        nontemporal_copy::settle();
        let Payloads { sequence, envelope, message, place, done, .. } = payloads;
        if desk.inbox.has(sequence) {
            // Another channel was faster with the same.
            desk.counts.duplicates += 1;
            desk.receiver.give_back(envelope.volume, place.frames);
        } else {
            desk.receiver.deliver(envelope, message, done);
        }
        self.arrived(sequence, desk);
    }

    /// Stops writing into a volume's frames, which the caller takes back himself.
    pub(super) fn forget(&mut self, volume: &[u8; 16]) {
        nontemporal_copy::settle();
        self.incoming = match std::mem::replace(&mut self.incoming, Incoming::Head) {
            Incoming::Plain(payloads) if payloads.envelope.volume == *volume => {
                let left = (payloads.place.frames.len() - payloads.done.len()) * BLOCK;
                Incoming::Skip { left, sequence: payloads.sequence }
            }
            Incoming::Packed(payloads, _, length, packed) if payloads.envelope.volume == *volume => {
                Incoming::Skip { left: length - packed.len(), sequence: payloads.sequence }
            }
            other @ (Incoming::Head
            | Incoming::Body(_)
            | Incoming::Plain(_)
            | Incoming::Packed(..)
            | Incoming::Skip { .. }) => other,
        };
    }

    /// Ends it. Frames of a message that was arriving go back.
    pub(super) fn close(mut self, receiver: &mut dyn Receiver, why: Option<Rejection>) {
        match self.incoming {
            Incoming::Plain(payloads) | Incoming::Packed(payloads, ..) => {
                nontemporal_copy::settle();
                receiver.give_back(payloads.envelope.volume, payloads.place.frames);
            }
            Incoming::Head | Incoming::Body(_) | Incoming::Skip { .. } => {}
        }
        match why {
            // In the middle of a frame a goodbye would be taken for its bytes.
            Some(why) if self.current.is_none() => super::greeting::send_goodbye(&mut self.channel, why),
            Some(_) | None => self.channel.shut_down(),
        }
    }

    // --- time ---

    fn is_open(&self) -> bool {
        !self.flight.is_empty() || self.unsent > 0 || self.ping_open
    }

    /// When [`Connection::look`] has something to do.
    pub(super) fn deadline(&self) -> Instant {
        let ping = self.pinged_at + PING_EVERY;
        if self.is_open() { (self.looked_at + LOOK_EVERY).min(ping) } else { ping }
    }

    /// Something was heard just now.
    pub(super) fn is_well(&self, now: Instant) -> bool {
        now - self.heard_at < WELL
    }

    /// Nothing gets on although something is open: whether others are well would tell why.
    pub(super) fn is_suspect(&self, now: Instant) -> bool {
        self.was_open && now - self.progress_at >= SUSPECT
    }

    /// Asks for a sign, if there was none lately and none is waited for.
    pub(super) fn ask(&mut self, now: Instant) {
        if !self.ping_open && !self.is_well(now) {
            self.ping(now);
        }
    }

    /// Looks whether it gets on. `others_well`: another channel does.
    pub(super) fn look(&mut self, others_well: bool, now: Instant) -> Result<(), Failure> {
        if self.deadline() > now {
            return Ok(());
        }
        self.looked_at = now;
        let open = self.is_open();
        if open && !std::mem::replace(&mut self.was_open, open) {
            self.progress_at = self.progress_at.max(self.looked_at);
        }
        self.was_open = open;
        let stall_max = if others_well { STALL_MAX } else { STALL_EVERYWHERE_MAX };
        if open && now - self.progress_at > stall_max {
            // Bytes that wait for the other side's process say nothing about the path: that is the member's matter.
            let stuck = tcp_trouble(self.channel.socket()).is_none_or(|silent_for| silent_for > STALL_MAX);
            if stuck || now - self.heard_at > SILENCE_MAX {
                return Err(Failure::NoProgress);
            }
        }
        if !self.ping_open && now - self.pinged_at >= PING_EVERY {
            self.pace.forgets();
            self.ping(now);
        }
        Ok(())
    }
}

fn item_bytes(item: &Item, outbox: &Outbox) -> usize {
    match item {
        Item::Bytes(bytes) | Item::Pong(bytes) => bytes.len(),
        Item::Message(sequence) => {
            outbox.get(*sequence).expect("a message stays while a channel is at it").bytes() as usize
        }
    }
}

fn item_vectors(item: &Item, at: usize, outbox: &Outbox, vectors: &mut Vec<libc::iovec>) -> u64 {
    match item {
        Item::Bytes(bytes) | Item::Pong(bytes) => {
            vectors.push(crate::socket::vector(bytes[at..].as_ptr(), bytes.len() - at))
        }
        Item::Message(sequence) => {
            outbox.get(*sequence).expect("a message stays while a channel is at it").vectors(at, vectors);
        }
    }
    (item_bytes(item, outbox) - at) as u64
}
