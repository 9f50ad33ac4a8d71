//! The transmission phase of one connection, over a non-blocking socket.
//!
//! The shard calls [`Connection::receive`] when the socket is readable (and when what it waits for has come, see
//! [`Connection::waits_for`]), [`Connection::reply`] for each answer of the volume, and once after a batch of events
//! [`Connection::flush_replies`]: all answers leave by as few system calls as there can be.
//!
//! Invariants:
//! - A payload goes through the shard's hot buffer, which stays in the CPU's cache. As soon as a block of it is whole it
//!   gets its checksum there and is copied once, past the cache, into its frame. (Receiving straight into frames was
//!   built and measured, by scatter for foreseen 4 KiB writes and for large ones: the kernel's copy into cold memory and
//!   the checksum over it cost more than the copy. `limit` has both.)
//! - A request is handed in when its last byte has arrived, never before. Frames of a request that never came whole
//!   are returned.
//! - Each request handed in is answered once or named in a hang-up. One that a stop abandons is answered by the end of the connection:
//!   clients take an error for good, and ask again whom they find when they connect anew. Pieces of an answer go back to the volume when
//!   their last byte has left, in order, or when the connection is closed.
//! - Frames that are in use until the client does its part (a payload that is not yet whole, an answer that is not yet
//!   taken) are held in the volume's account, which refuses one client what others need.
//! - A client costs at most [`REQUESTS_MAX`] requests, [`REQUEST_BYTES_IN_FLIGHT_MAX`] bytes of them,
//!   [`REPLY_HEAD_BYTES_MAX`] of reply heads beyond those of requests in flight, and one hot buffer of bytes that wait
//!   for room, or for the rest of their block. When a bound is reached nothing more is read from its socket.
//! - Whatever a client sends harms its own connection only: it is answered with an error, or closed.

use super::channel::Channel;
use super::handshake::{ExportInfo, Negotiated};
use super::proto::*;
pub use super::replies::EXTENTS_MAX;
use super::replies::{Label, Replies};
use crate::Backend;
use core::num::NonZeroU32;
use forebay_core::api::{Pieces, Request, RequestError};
use forebay_core::roles::Client;
use forebay_core::types::*;
use forebay_io::nontemporal_copy;
use forebay_io::socket::{Moved, VECTORS_MAX};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

/// Most requests of one connection that are not answered to the last byte.
pub const REQUESTS_MAX: usize = 1024;
/// Most bytes of reads and writes of one connection that are not answered to the last byte.
pub const REQUEST_BYTES_IN_FLIGHT_MAX: u64 = 64 << 20;
/// No further request is taken while more reply heads than this wait to be sent.
pub const REPLY_HEAD_BYTES_MAX: usize = 1 << 20;
/// A write that announces more is not skipped but closed: it is no mistake of a size limit.
pub const SKIPPED_PAYLOAD_BYTES_MAX: u32 = 64 << 20;
/// A connection that has not moved for this long while it holds frames or answers is closed by the caller.
pub const STALL_MAX: Duration = Duration::from_secs(60);
/// Bytes that count as having moved, unless it was all there was: who takes an answer byte by byte is as slow as he who
/// takes none.
pub const PROGRESS_BYTES_MIN: u64 = 128 << 10;
/// No more answers than begin within so many bytes leave in one [`Connection::flush_replies`]: whoever takes them as fast as they
/// come must not keep the shard from the others. Twice what a local client's socket takes at once.
pub const SEND_BYTES_MAX: usize = 1 << 20;
/// Receive calls in one [`Connection::receive`]: a fast client must not keep the shard from the others.
const RECEIVE_ROUNDS_MAX: usize = 4;
/// Bytes of the hot buffer: large enough for a whole batch, small enough to stay in the second-level cache.
const HOT_BYTES: usize = 256 << 10;

const BLOCK: usize = BLOCK_BYTES as usize;

mod leaving;
mod pack;
use leaving::code_of;
pub use pack::Packed;

/// Memory that all connections of a shard use in turn; nothing in it outlives a call.
pub struct Scratch {
    hot: Box<[u8]>,
    vectors: Vec<libc::iovec>,
}

// SAFETY: the vectors' pointers are made and used within one call on the connection; between calls the list is stale
// memory that nobody reads.
unsafe impl Send for Scratch {}

impl Default for Scratch {
    fn default() -> Self {
        Scratch { hot: vec![0; HOT_BYTES].into_boxed_slice(), vectors: Vec::with_capacity(VECTORS_MAX) }
    }
}

/// What must happen before [`Connection::receive`] is of use again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// The socket becomes readable.
    Readable,
    /// Nothing: call `receive` again in the next round, after the other connections had theirs.
    Turn,
    /// The volume has frames again.
    Frames,
    /// Answers must leave first, or requests be answered.
    Replies,
    /// Nothing more is read: the client has said good-bye, or the connection is closed.
    Nothing,
}

/// Why a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Closed {
    /// The client said good-bye and has all its answers.
    Disconnected,
    /// The client closed its end without a good-bye.
    HungUp,
    /// The volume is being stopped, and what it has answered has left.
    Stopped,
    /// The client broke the protocol; what it did.
    Violation(&'static str),
    /// The socket failed.
    Socket(std::io::ErrorKind),
    /// The caller closed it.
    ByCaller,
}

#[derive(PartialEq, Eq, Debug)]
enum Phase {
    Open,
    /// The client said good-bye: what it asked before is still answered.
    Finishing,
    /// The volume has abandoned something, or does not take it: the rest is still answered, and then the connection ends.
    Leaving,
    Closed(Closed),
}

/// Where the next byte belongs.
enum Incoming {
    Head,
    Payload(Payload),
    /// The payload of a block status request.
    Status(StatusQuery),
    Skip {
        left: u32,
        label: Label,
        error: ErrorCode,
    },
}

/// A block status request whose payload is arriving.
struct StatusQuery {
    head: RequestHead,
    bytes: [u8; STATUS_PAYLOAD_BYTES_MAX],
    received: usize,
}

/// A write whose bytes are arriving.
struct Payload {
    head: RequestHead,
    length: u32,
    fua: bool,
    frames: Frames,
    /// The blocks that have arrived, in order.
    blocks: Payloads,
}

impl Payload {
    fn is_whole(&self) -> bool {
        self.blocks.len() == self.frames.len()
    }

    /// Takes the blocks of which `bytes` holds everything that the write covers; returns how many bytes that are.
    fn take<B: Backend + ?Sized>(&mut self, backend: &B, bytes: &[u8]) -> usize {
        let (offset, end) = (self.head.offset, self.head.offset + u64::from(self.length));
        let mut at = 0;
        while let Some(&frame) = self.frames.get(self.blocks.len()) {
            let block = BlockIndex(offset / BLOCK_BYTES + self.blocks.len() as u64);
            let from = offset.saturating_sub(block.byte());
            let to = (end - block.byte()).min(BLOCK_BYTES);
            let Some(part) = bytes.get(at..at + (to - from) as usize) else { break };
            let checksum = place(backend, frame, block, from, part);
            self.blocks.push(forebay_core::types::Payload { frame, checksum });
            at += part.len();
        }
        at
    }
}

/// Puts what a write covers of a block, which begins at `from`, into a frame that the connection has taken and not handed
/// in, with zeros around it; returns the checksum.
fn place<B: Backend + ?Sized>(backend: &B, frame: FrameId, block: BlockIndex, from: u64, bytes: &[u8]) -> u32 {
    let start = backend.frame(frame);
    if bytes.len() == BLOCK {
        // SAFETY: the connection has taken the frame and not handed it in: it is as long as a block and nothing else
        // refers to it. `receive` settles before it ends.
        unsafe { nontemporal_copy::copy(bytes, start) };
        return backend.checksum(block, SectorMask::FULL, bytes);
    }
    let (first, to) = (from as usize, from as usize + bytes.len());
    // SAFETY: as above, nothing else refers to the frame; `first` and `to` lie within it in this order, and every byte of
    // it is set here.
    let whole = unsafe {
        start.write_bytes(0, first);
        start.add(first).as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        start.add(to).write_bytes(0, BLOCK - to);
        core::slice::from_raw_parts(start.as_ptr(), BLOCK)
    };
    let whole_sectors = from.is_multiple_of(SECTOR_BYTES) && (to as u64).is_multiple_of(SECTOR_BYTES);
    // Where a sector is covered in part, the volume completes the block and computes the checksum then.
    if whole_sectors { backend.checksum(block, SectorMask::of_bytes(from, to as u64), whole) } else { 0 }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    Free,
    /// Handed to the volume, which has not answered.
    Open {
        head: RequestHead,
        asked: Asked,
    },
    /// Its answer is queued.
    Answered,
}

/// Blocks that a range touches: a frame each.
fn blocks_of(offset: u64, length: u32) -> u32 {
    (offset % BLOCK_BYTES + u64::from(length)).div_ceil(BLOCK_BYTES) as u32
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    Read { length: u32, one_chunk: bool },
    Write { length: u32 },
    Other,
}

impl Asked {
    fn bytes(self) -> u64 {
        match self {
            Asked::Read { length, .. } | Asked::Write { length } => u64::from(length),
            Asked::Other => 0,
        }
    }

    /// Frames in the volume's account until it is answered: those of a read.
    fn frames_held(self, offset: u64) -> u32 {
        match self {
            Asked::Read { length, .. } => blocks_of(offset, length),
            Asked::Write { .. } | Asked::Other => 0,
        }
    }
}

/// An answer in the queue.
struct Answer {
    /// `None` where the request was never handed in.
    slot: Option<NonZeroU32>,
    bytes: u64,
    /// Frames held until then.
    held: u32,
    pieces: Pieces,
    /// Sent when so many bytes have left the connection.
    end: u64,
}

/// A connection in its transmission phase.
pub struct Connection {
    channel: Channel,
    number: u32,
    client: Client,
    export: ExportInfo,
    contexts: ContextSet,
    phase: Phase,

    incoming: Incoming,
    /// Bytes received that wait for their rest, or for room.
    pending: Vec<u8>,
    pending_at: usize,
    waits_for: WaitsFor,
    /// While it waits for replies: bytes of the request that found no room.
    wanted_bytes: u64,
    /// When `receive` was last called; when the message that is arriving began, or had got on by [`PROGRESS_BYTES_MIN`].
    now: Instant,
    received_at: Instant,
    received_since: u64,
    /// Bytes received since the beginning.
    received: u64,

    /// Slot 0 is never used, so that an optional slot takes no more room than a slot.
    slots: Vec<Slot>,
    slots_free: Vec<NonZeroU32>,
    in_flight: usize,
    in_flight_bytes: u64,
    /// Frames in the volume's account.
    held: u32,

    replies: Replies,
    answers: VecDeque<Answer>,
    /// The last `flush_replies` ended by its bound, and not by the socket.
    sends_on: bool,
    /// Since when the socket has taken less than [`PROGRESS_BYTES_MIN`] although something waits; what had left then.
    send_stalled: Option<Instant>,
    sent_before: u64,
}

impl Connection {
    /// Takes over a client that was served elsewhere.
    pub fn resume(packed: Packed, number: u32, now: Instant) -> Connection {
        let Packed { channel, negotiated, unsent } = packed;
        let mut connection = Connection::new(channel, number, negotiated, now);
        connection.replies.put_ready(&unsent);
        connection
    }

    /// Who is at the other end.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Name of the export that it has chosen.
    pub fn export_name(&self) -> &str {
        &self.export.name
    }

    /// Takes over a client after negotiation. `number` must be unique among the connections that ever reach the
    /// volume: it is the upper half of every [`RequestId`] from here.
    pub fn new(channel: Channel, number: u32, negotiated: Negotiated, now: Instant) -> Connection {
        // Under TLS further bytes may have been decrypted that no readiness of the socket tells of.
        let waits_for =
            if negotiated.leftover.is_empty() && !channel.is_encrypted() { WaitsFor::Readable } else { WaitsFor::Turn };
        Connection {
            channel,
            number,
            client: negotiated.client,
            export: negotiated.export,
            contexts: negotiated.contexts,
            phase: Phase::Open,
            incoming: Incoming::Head,
            waits_for,
            pending: negotiated.leftover,
            pending_at: 0,
            wanted_bytes: 0,
            now,
            received_at: now,
            received_since: 0,
            received: 0,
            slots: vec![Slot::Free],
            slots_free: Vec::new(),
            in_flight: 0,
            in_flight_bytes: 0,
            held: 0,
            replies: Replies::new(negotiated.framing),
            answers: VecDeque::new(),
            sends_on: false,
            send_stalled: None,
            sent_before: 0,
        }
    }

    /// The connection to which a request belongs.
    pub fn number_of(id: RequestId) -> u32 {
        (id.0 >> 32) as u32
    }

    /// The number that its requests begin with.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The socket, to wait on.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }

    /// What `receive` waits for. Whatever it is, when the socket reports a hang-up or an error and is not waited on for
    /// reading, the caller ends the connection by `close`: nobody is left to answer.
    pub fn waits_for(&self) -> WaitsFor {
        match (&self.phase, self.waits_for) {
            (Phase::Finishing | Phase::Leaving | Phase::Closed(_), _) => WaitsFor::Nothing,
            (Phase::Open, WaitsFor::Replies) if self.has_room(self.wanted_bytes) => WaitsFor::Turn,
            (Phase::Open, waits_for) => waits_for,
        }
    }

    /// True when answers wait for the socket to become writable (after `flush_replies`), or for `flush_replies`.
    pub fn has_unsent(&self) -> bool {
        !self.replies.is_empty() || self.channel.has_unsent()
    }

    /// True when more answers wait than one `flush_replies` sends, and the socket has taken all of those: it is to be called again
    /// after the others had their turn, whether the socket is told to be writable or not.
    pub fn sends_on(&self) -> bool {
        self.sends_on
    }

    /// Bytes of answers that wait to be sent.
    pub fn bytes_to_send(&self) -> u64 {
        self.replies.bytes_to_send()
    }

    /// Requests that are not answered to the last byte.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Why it ended; `None` while it lives. An ended connection holds nothing and may be dropped.
    pub fn closed(&self) -> Option<&Closed> {
        match &self.phase {
            Phase::Closed(why) => Some(why),
            Phase::Open | Phase::Finishing | Phase::Leaving => None,
        }
    }

    /// Since when the client has been the one to blame for no progress: it takes no answers, or does not finish a
    /// payload for which frames are held. The caller closes it after [`STALL_MAX`].
    pub fn stalled_since(&self) -> Option<Instant> {
        let receiving = match (&self.incoming, self.waits_for()) {
            (Incoming::Payload(_) | Incoming::Status(_) | Incoming::Skip { .. }, WaitsFor::Readable) => {
                Some(self.received_at)
            }
            _ => None,
        };
        match (receiving, self.send_stalled) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    // --- from the client ---

    /// Receives and hands in what has arrived, for at most a few system calls. Returns how many bytes it has received.
    pub fn receive<B: Backend + ?Sized>(&mut self, backend: &mut B, scratch: &mut Scratch, now: Instant) -> usize {
        let before = self.received;
        if self.phase == Phase::Open {
            self.receive_rounds(backend, scratch, now);
            nontemporal_copy::settle();
        }
        (self.received - before) as usize
    }

    fn receive_rounds<B: Backend + ?Sized>(&mut self, backend: &mut B, scratch: &mut Scratch, now: Instant) {
        self.waits_for = WaitsFor::Readable;
        self.now = now;
        let Some(mut prefix) = self.take_up_pending(backend, &mut scratch.hot) else { return };
        for _ in 0..RECEIVE_ROUNDS_MAX {
            let got = match self.channel.receive(&mut scratch.hot[prefix..]) {
                Moved::Bytes(0) => return self.end(backend, Closed::HungUp),
                Moved::Bytes(got) => got,
                Moved::WouldBlock => return self.keep(&scratch.hot[..prefix]),
                Moved::Failed(error) => return self.end(backend, Closed::Socket(error.kind())),
            };
            self.received += got as u64;
            self.received_since += got as u64;
            if self.received_since >= PROGRESS_BYTES_MIN {
                self.restart_receiving();
            }
            let filled = prefix + got;
            let used = self.parse(backend, &scratch.hot[..filled]);
            if self.phase != Phase::Open {
                return self.finish_if_done(backend);
            }
            if self.waits_for != WaitsFor::Readable {
                return self.keep(&scratch.hot[used..filled]);
            }
            scratch.hot.copy_within(used..filled, 0);
            prefix = filled - used;
            if filled < scratch.hot.len() {
                // The socket had no more: the next call would only say so.
                return self.keep(&scratch.hot[..prefix]);
            }
        }
        self.keep(&scratch.hot[..prefix]);
        self.waits_for = WaitsFor::Turn;
    }

    /// From here on the client has the whole time again to get on.
    fn restart_receiving(&mut self) {
        self.received_at = self.now;
        self.received_since = 0;
    }

    /// Parses what an earlier call had to leave. `Some(n)`: `n` bytes of an incomplete head or block lie at the start of
    /// `hot`.
    /// `None`: there is still no room, or the connection has ended.
    fn take_up_pending<B: Backend + ?Sized>(&mut self, backend: &mut B, hot: &mut [u8]) -> Option<usize> {
        if self.pending.is_empty() {
            return Some(0);
        }
        let pending = core::mem::take(&mut self.pending);
        let at = self.pending_at + self.parse(backend, &pending[self.pending_at..]);
        if self.phase != Phase::Open {
            self.finish_if_done(backend);
            return None;
        }
        if self.waits_for != WaitsFor::Readable {
            self.pending = pending;
            self.pending_at = at;
            return None;
        }
        let prefix = pending.len() - at;
        hot[..prefix].copy_from_slice(&pending[at..]);
        self.pending_at = 0;
        if pending.capacity() <= 2 * BLOCK {
            // An incomplete head or block is common and its buffer worth keeping; a whole hot buffer is not.
            self.pending = pending;
            self.pending.clear();
        }
        Some(prefix)
    }

    fn keep(&mut self, bytes: &[u8]) {
        debug_assert!(self.pending.is_empty());
        self.pending_at = 0;
        self.pending.extend_from_slice(bytes);
    }

    /// Takes whole messages and blocks of payloads; returns how many bytes are done with. The rest is an incomplete head
    /// or block, or there was no room, or it is the turn of others (`waits_for` says so).
    fn parse<B: Backend + ?Sized>(&mut self, backend: &mut B, bytes: &[u8]) -> usize {
        let mut at = 0;
        loop {
            match &mut self.incoming {
                Incoming::Head => {
                    let (head, head_bytes) = match self.replies.framing().decode_request(&bytes[at..]) {
                        HeadDecoded::Whole(head, head_bytes) => (head, head_bytes),
                        HeadDecoded::Incomplete => return at,
                        HeadDecoded::WrongMagic => {
                            self.end(backend, Closed::Violation("sent a request with a wrong magic"));
                            return at;
                        }
                    };
                    if let Err(waits_for) = self.on_head(backend, head) {
                        self.waits_for = waits_for;
                        return at;
                    }
                    at += head_bytes;
                    if self.phase != Phase::Open || self.waits_for != WaitsFor::Readable {
                        return at;
                    }
                }
                Incoming::Payload(payload) => {
                    at += payload.take(backend, &bytes[at..]);
                    if !self.hand_in_if_whole(backend) || self.phase != Phase::Open {
                        return at;
                    }
                }
                Incoming::Status(query) => {
                    let part = (bytes.len() - at).min(query.head.length as usize - query.received);
                    query.bytes[query.received..query.received + part].copy_from_slice(&bytes[at..at + part]);
                    query.received += part;
                    at += part;
                    if (query.received as u64) < query.head.length {
                        return at;
                    }
                    let (head, payload) = (query.head, StatusPayload::decode(&query.bytes[..query.received]));
                    self.incoming = Incoming::Head;
                    self.answer_status_query(backend, &head, payload);
                    if self.waits_for != WaitsFor::Readable {
                        return at;
                    }
                }
                Incoming::Skip { left, label, error } => {
                    let part = (bytes.len() - at).min(*left as usize);
                    at += part;
                    *left -= part as u32;
                    if *left > 0 {
                        return at;
                    }
                    let (label, error) = (*label, *error);
                    self.incoming = Incoming::Head;
                    self.refuse(label, error);
                }
            }
        }
    }

    /// `Err`: the request finds no room now and must be presented again.
    fn on_head<B: Backend + ?Sized>(&mut self, backend: &mut B, head: RequestHead) -> Result<(), WaitsFor> {
        let bytes = match head.command {
            // What is longer is refused, and holds nothing.
            Command::Read | Command::Write => head.length.min(REQUEST_BYTES_MAX),
            Command::Disconnect => {
                self.phase = Phase::Finishing;
                return Ok(());
            }
            Command::Flush
            | Command::Trim
            | Command::Cache
            | Command::WriteZeroes
            | Command::BlockStatus
            | Command::Unknown(_) => 0,
        };
        // A request that waited for frames may find something else in its way now, and must not keep its place meanwhile.
        if !self.has_room(bytes) {
            backend.withdraw(ClientId(self.number));
            self.wanted_bytes = bytes;
            return Err(WaitsFor::Replies);
        }
        self.restart_receiving();
        let label = Label::of(&head);
        if let Err(error) = self.check(backend, &head) {
            backend.withdraw(ClientId(self.number));
            self.refuse_with_payload(backend, &head, label, error);
            return Ok(());
        }
        let fua = head.flags & command_flags::FUA != 0;
        let RequestHead { offset, length, .. } = head;
        let (request, asked) = match head.command {
            Command::Write => return self.begin_write(backend, head, label, fua),
            Command::Read => {
                let (length, one_chunk) = (length as u32, head.flags & command_flags::DF != 0);
                if let Err(error) = backend.admissible(&Request::Read { offset, length }) {
                    self.refuse_for(label, error);
                    return Ok(());
                }
                let count = blocks_of(offset, length);
                if !backend.hold(self.held, count) {
                    return Err(WaitsFor::Frames);
                }
                self.held += count;
                (Request::Read { offset, length }, Asked::Read { length, one_chunk })
            }
            Command::Flush => (Request::Flush, Asked::Other),
            Command::Trim => (Request::Zero { offset, length, hole: true, fua }, Asked::Other),
            Command::WriteZeroes => {
                // FAST_ZERO asks to fail where zeroing is as slow as writing; here it never is.
                let hole = head.flags & command_flags::NO_HOLE == 0;
                (Request::Zero { offset, length, hole, fua }, Asked::Other)
            }
            Command::Cache => {
                // A hint: of 4 GiB and more the first part is as good as all of it, which no cache holds.
                let length = length.min(u64::from(u32::MAX)) as u32;
                (Request::Prefetch { offset, length }, Asked::Other)
            }
            Command::BlockStatus if head.has_payload(self.replies.framing()) => {
                let bytes = [0; STATUS_PAYLOAD_BYTES_MAX];
                self.incoming = Incoming::Status(StatusQuery { head, bytes, received: 0 });
                return Ok(());
            }
            Command::BlockStatus => {
                self.answer_block_status(backend, &head, length, self.contexts);
                return Ok(());
            }
            Command::Disconnect | Command::Unknown(_) => unreachable!("dealt with before, or refused by check"),
        };
        self.submit(backend, head, asked, request);
        Ok(())
    }

    /// Takes frames for a write whose bytes come next; `Err` as in `on_head`.
    fn begin_write<B: Backend + ?Sized>(
        &mut self,
        backend: &mut B,
        head: RequestHead,
        label: Label,
        fua: bool,
    ) -> Result<(), WaitsFor> {
        let (offset, length) = (head.offset, head.length as u32);
        // One that is refused anyway must not wait for frames that the volume may never have.
        let request = Request::Write { offset, length, payload: Payloads::new(), fua };
        if let Err(error) = backend.admissible(&request) {
            backend.withdraw(ClientId(self.number));
            match code_of(error) {
                Some(code) => self.refuse_with_payload(backend, &head, label, code),
                None => self.leave(),
            }
            return Ok(());
        }
        let count = blocks_of(offset, length);
        let mut frames = Frames::with_capacity(count as usize);
        if !backend.take_frames(ClientId(self.number), self.held, count, &mut frames) {
            return Err(WaitsFor::Frames);
        }
        self.held += count;
        debug_assert_eq!(frames.len(), count as usize);
        let blocks = Payloads::with_capacity(count as usize);
        self.incoming = Incoming::Payload(Payload { head, length, fua, frames, blocks });
        Ok(())
    }

    /// The rules of the protocol that do not depend on the volume's state.
    fn check<B: Backend + ?Sized>(&self, backend: &B, head: &RequestHead) -> Result<(), ErrorCode> {
        let framing = self.replies.framing();
        if head.flags & !head.command.flags_allowed(framing) != 0 {
            return Err(ErrorCode::Invalid);
        }
        let (changes, past_end) = match head.command {
            Command::Unknown(_) => return Err(ErrorCode::Invalid),
            Command::Disconnect => return Ok(()),
            Command::Flush if head.offset == 0 && head.length == 0 => return Ok(()),
            Command::Flush => return Err(ErrorCode::Invalid),
            Command::Read | Command::Cache => (false, ErrorCode::Invalid),
            Command::BlockStatus if self.contexts.is_empty() => return Err(ErrorCode::Invalid),
            Command::BlockStatus => (false, ErrorCode::Invalid),
            Command::Write | Command::WriteZeroes => (true, ErrorCode::NoSpace),
            Command::Trim => (true, ErrorCode::Invalid),
        };
        if changes && self.export.read_only {
            return Err(ErrorCode::Perm);
        }
        if head.command == Command::Write && !head.has_payload(framing) {
            return Err(ErrorCode::Invalid);
        }
        if head.command == Command::BlockStatus && head.has_payload(framing) {
            // How much it asks for, the payload says.
            return if head.length <= STATUS_PAYLOAD_BYTES_MAX as u64 { Ok(()) } else { Err(ErrorCode::Invalid) };
        }
        let sized = matches!(head.command, Command::Read | Command::Write);
        if head.length == 0 || (sized && head.length > REQUEST_BYTES_MAX) {
            return Err(ErrorCode::Invalid);
        }
        within(backend, head.offset, head.length).map_err(|()| past_end)
    }

    /// Answers a request that is not executed, when what follows it has been skipped.
    fn refuse_with_payload<B: Backend + ?Sized>(
        &mut self,
        backend: &mut B,
        head: &RequestHead,
        label: Label,
        error: ErrorCode,
    ) {
        if !head.has_payload(self.replies.framing()) || head.length == 0 {
            self.refuse(label, error);
        } else if head.length > u64::from(SKIPPED_PAYLOAD_BYTES_MAX) {
            self.end(backend, Closed::Violation("announced a payload of more than 64 MiB"));
        } else {
            self.incoming = Incoming::Skip { left: head.length as u32, label, error };
        }
    }

    fn hand_in_if_whole<B: Backend + ?Sized>(&mut self, backend: &mut B) -> bool {
        match core::mem::replace(&mut self.incoming, Incoming::Head) {
            Incoming::Payload(payload) if payload.is_whole() => {
                self.hand_in(backend, payload);
                true
            }
            other => {
                self.incoming = other;
                false
            }
        }
    }

    /// All bytes of a write have arrived.
    fn hand_in<B: Backend + ?Sized>(&mut self, backend: &mut B, write: Payload) {
        let Payload { head, length, fua, frames, blocks } = write;
        self.let_go(backend, frames.len() as u32);
        let request = Request::Write { offset: head.offset, length, payload: blocks, fua };
        if !self.submit(backend, head, Asked::Write { length }, request) {
            backend.return_frames(&frames);
        }
    }

    fn let_go<B: Backend + ?Sized>(&mut self, backend: &mut B, frames: u32) {
        if frames > 0 {
            self.held -= frames;
            backend.let_go(frames);
        }
    }

    /// False when the volume does not take it; the client has its answer then.
    fn submit<B: Backend + ?Sized>(
        &mut self,
        backend: &mut B,
        head: RequestHead,
        asked: Asked,
        request: Request,
    ) -> bool {
        if let Err(error) = backend.admissible(&request) {
            self.refuse_for(Label::of(&head), error);
            return false;
        }
        let slot = self.slots_free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            NonZeroU32::new(self.slots.len() as u32 - 1).expect("slot 0 is there from the start")
        });
        debug_assert_eq!(self.slots[slot.get() as usize], Slot::Free);
        self.slots[slot.get() as usize] = Slot::Open { head, asked };
        self.in_flight += 1;
        self.in_flight_bytes += asked.bytes();
        backend.submit(self.id_of(slot.get()), request);
        true
    }

    fn id_of(&self, slot: u32) -> RequestId {
        RequestId(u64::from(self.number) << 32 | u64::from(slot))
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.in_flight < REQUESTS_MAX
            && (self.in_flight_bytes == 0 || self.in_flight_bytes + bytes <= REQUEST_BYTES_IN_FLIGHT_MAX)
            && self.replies.head_bytes() <= REPLY_HEAD_BYTES_MAX
    }

    // --- to the client ---

    /// Queues the answer to a request. The answer of a connection that has ended is handed straight back.
    ///
    /// # Panics
    /// When the request is not open, or a read's pieces do not add up to its length: to send either would corrupt
    /// what the client sees.
    pub fn reply<B: Backend + ?Sized>(&mut self, backend: &mut B, id: RequestId, result: Result<Pieces, RequestError>) {
        if let Phase::Closed(_) = self.phase {
            return drop_reply(backend, result);
        }
        assert_eq!(Self::number_of(id), self.number, "an answer reaches the connection that asked");
        let index = id.0 as u32;
        let slot = &mut self.slots[index as usize];
        let Slot::Open { head, asked } = *slot else { panic!("request {id} is answered once, while it is open") };
        let label = Label::of(&head);
        if result == Err(RequestError::Shutdown) {
            return self.abandoned(backend, index, asked, label);
        }
        *slot = Slot::Answered;
        let pieces = match result {
            Ok(pieces) => match asked {
                Asked::Read { length, one_chunk } => {
                    let sum: u64 = pieces.iter().map(|piece| u64::from(piece.length)).sum();
                    assert_eq!(sum, u64::from(length), "the pieces of a read are all of it");
                    self.replies.put_read(label, length, one_chunk, &pieces);
                    pieces
                }
                Asked::Write { .. } | Asked::Other => {
                    assert!(pieces.is_empty(), "only a read is answered with bytes");
                    self.replies.put_done(label);
                    Pieces::new()
                }
            },
            Err(error) => {
                self.replies.put_error(label, code_of(error).expect("what is abandoned has no answer"));
                Pieces::new()
            }
        };
        let slot = NonZeroU32::new(index);
        let held = asked.frames_held(label.offset);
        self.answers.push_back(Answer { slot, bytes: asked.bytes(), held, pieces, end: self.replies.queued() });
    }

    /// Answers a request that was not handed in.
    fn refuse(&mut self, label: Label, error: ErrorCode) {
        self.replies.put_error(label, error);
        self.answered_at_once();
    }

    /// A request that never had a slot takes part in the bound on requests until its answer has left.
    fn answered_at_once(&mut self) {
        self.in_flight += 1;
        let (pieces, end) = (Pieces::new(), self.replies.queued());
        self.answers.push_back(Answer { slot: None, bytes: 0, held: 0, pieces, end });
    }

    fn answer_block_status<B: Backend + ?Sized>(
        &mut self,
        backend: &B,
        head: &RequestHead,
        length: u64,
        contexts: ContextSet,
    ) {
        let label = Label::of(head);
        let one = head.flags & command_flags::REQ_ONE != 0;
        self.replies.put_block_status(backend, label, length, contexts, one);
        self.answered_at_once();
        // What was looked at took long: others have their turn before this client's next request.
        self.waits_for = WaitsFor::Turn;
    }

    /// The payload of a block status request has come; `None`: it means nothing.
    fn answer_status_query<B: Backend + ?Sized>(
        &mut self,
        backend: &B,
        head: &RequestHead,
        payload: Option<StatusPayload>,
    ) {
        let selected =
            |contexts: ContextSet| !contexts.is_empty() && contexts.iter().all(|c| self.contexts.contains(c));
        match payload {
            Some(StatusPayload { length, contexts })
                if selected(contexts) && length > 0 && within(backend, head.offset, length).is_ok() =>
            {
                self.answer_block_status(backend, head, length, contexts);
            }
            Some(_) | None => self.refuse(Label::of(head), ErrorCode::Invalid),
        }
    }

    /// Sends what is queued, by as few calls as possible and up to [`SEND_BYTES_MAX`]. What the socket does not take stays:
    /// `has_unsent` says so, and the caller calls again when the socket is writable, or as [`Connection::sends_on`] says.
    pub fn flush_replies<B: Backend + ?Sized>(&mut self, backend: &mut B, scratch: &mut Scratch, now: Instant) {
        let mut left = SEND_BYTES_MAX;
        self.sends_on = false;
        while self.has_unsent() {
            if left == 0 {
                self.sends_on = true;
                break;
            }
            let asked = self.replies.vectors(backend, left, &mut scratch.vectors);
            // SAFETY: the vectors name the buffer of heads and static zeros, which nothing changes during the call, and
            // frames of answers that have not been handed back (Backend's contract: valid, and not written to).
            match unsafe { self.channel.send(&scratch.vectors) } {
                Moved::Bytes(sent) => {
                    self.on_sent(backend, sent);
                    self.note_sent(now);
                    if sent < asked {
                        break;
                    }
                    left = left.saturating_sub(sent);
                }
                Moved::WouldBlock => {
                    self.note_sent(now);
                    break;
                }
                Moved::Failed(error) => return self.end(backend, Closed::Socket(error.kind())),
            }
        }
        self.finish_if_done(backend);
    }

    fn note_sent(&mut self, now: Instant) {
        let moved = self.replies.sent() - self.sent_before >= PROGRESS_BYTES_MIN;
        if !self.has_unsent() {
            self.send_stalled = None;
        } else if self.send_stalled.is_none() || moved {
            self.send_stalled = Some(now);
            self.sent_before = self.replies.sent();
        }
    }

    fn on_sent<B: Backend + ?Sized>(&mut self, backend: &mut B, bytes: usize) {
        self.replies.on_sent(bytes);
        while self.answers.front().is_some_and(|answer| answer.end <= self.replies.sent()) {
            let answer = self.answers.pop_front().expect("it was just seen");
            self.in_flight -= 1;
            self.in_flight_bytes -= answer.bytes;
            if let Some(slot) = answer.slot {
                debug_assert_eq!(self.slots[slot.get() as usize], Slot::Answered);
                self.slots[slot.get() as usize] = Slot::Free;
                self.slots_free.push(slot);
            }
            self.let_go(backend, answer.held);
            if !answer.pieces.is_empty() {
                backend.sent(answer.pieces);
            }
        }
    }

    // --- the end ---

    /// Ends the connection: what is in flight is abandoned, everything it holds is given back.
    pub fn close<B: Backend + ?Sized>(&mut self, backend: &mut B) {
        self.end(backend, Closed::ByCaller);
    }

    fn end<B: Backend + ?Sized>(&mut self, backend: &mut B, why: Closed) {
        if let Phase::Closed(_) = self.phase {
            return;
        }
        if self.waits_for == WaitsFor::Frames {
            backend.withdraw(ClientId(self.number));
        }
        self.phase = Phase::Closed(why);
        if let Incoming::Payload(payload) = core::mem::replace(&mut self.incoming, Incoming::Head) {
            backend.return_frames(&payload.frames);
        }
        let open = self.slots.iter().enumerate().filter(|(_, slot)| matches!(slot, Slot::Open { .. }));
        let open: Vec<RequestId> = open.map(|(index, _)| self.id_of(index as u32)).collect();
        if !open.is_empty() {
            backend.hangup(open);
        }
        for answer in self.answers.drain(..).filter(|answer| !answer.pieces.is_empty()) {
            backend.sent(answer.pieces);
        }
        self.let_go(backend, self.held);
        self.replies.clear();
        self.pending = Vec::new();
        self.slots = Vec::new();
        self.slots_free = Vec::new();
        self.in_flight = 0;
        self.in_flight_bytes = 0;
        self.sends_on = false;
        self.send_stalled = None;
        // The client learns it now, however long the owner keeps this object.
        self.channel.shut_down();
    }
}

/// Whether a range lies within the volume.
fn within<B: Backend + ?Sized>(backend: &B, offset: u64, length: u64) -> Result<(), ()> {
    match offset.checked_add(length) {
        Some(end) if end <= backend.size_bytes() => Ok(()),
        Some(_) | None => Err(()),
    }
}

/// Hands back the answer to a request whose connection is gone.
pub fn drop_reply<B: Backend + ?Sized>(backend: &mut B, result: Result<Pieces, RequestError>) {
    match result {
        Ok(pieces) if !pieces.is_empty() => backend.sent(pieces),
        Ok(_) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests;
