//! A volume that another node owns, as the clients of this one see it: their requests with all that is needed to ask them
//! again, until the owner has answered.
//!
//! Invariants:
//! - A request is answered by an owner's answer and by nothing else. Without an owner it waits; what waits is bounded by the
//!   frames, and by what one connection may have in flight.
//! - A request stays whole until it is answered: a read's answer is handed on only when its last byte is here.
//! - Requests go to an owner in the order in which they came, and again in that order to the next one (F1).

use super::{Figures, Route};
use crate::datapath::connections::Home;
use forebay_api::record::VolumeId;
use forebay_core::api::{Piece, Pieces, Request, RequestError, Source};
use forebay_core::types::*;
use forebay_core::volume::Extent;
use forebay_front::Backend;
use forebay_front::nbd::proto::{Command, RequestHead, command_flags};
use forebay_io::Arena;
use std::collections::{HashMap, VecDeque};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Frames of a volume's requests: two of the largest that are not aligned, and some.
const FRAMES: u32 = 2 * (32 << 20 >> 12) + 512;
/// Memory of a volume that has clients.
pub const VOLUME_BYTES: u64 = FRAMES as u64 * BLOCK_BYTES;

/// A request that is not answered.
pub(super) struct Asked {
    /// Its place among all.
    order: u64,
    pub(super) request: Request,
    /// Where a read's answer goes.
    frames: Frames,
    /// A part of it, or all, has gone to the owner of now.
    pub(super) sent: bool,
    /// Nobody waits for it any more.
    abandoned: bool,
    /// Of a read's answer.
    pub(super) received: u64,
    pub(super) error: Option<RequestError>,
}

/// See the module's text.
pub(super) struct Forwarded {
    pub(super) id: VolumeId,
    pub(super) name: String,
    pub(super) figures: Arc<Figures>,
    pub(super) route: Route,
    pub(super) size_bytes: u64,
    /// None: no owner has ever said it.
    pub(super) request_bytes_max: Option<u32>,
    /// While there are clients.
    arena: Option<Arena>,
    free: Vec<FrameId>,
    /// Clients whose payload finds no frames, the first to come first.
    waiting: VecDeque<ClientId>,
    /// Somebody may find now what it has waited for.
    pub(super) frames_freed: bool,
    connections: Vec<usize>,
    open: HashMap<RequestId, Asked>,
    asked: u64,
    /// To be sent, in order.
    queue: VecDeque<RequestId>,
    pub(super) answers: Vec<(RequestId, Result<Pieces, RequestError>)>,
}

impl Forwarded {
    pub(super) fn new(id: VolumeId, name: String, figures: Arc<Figures>) -> Forwarded {
        Forwarded {
            id,
            name,
            figures,
            route: Route::default(),
            size_bytes: 0,
            request_bytes_max: None,
            arena: None,
            free: Vec::new(),
            waiting: VecDeque::new(),
            frames_freed: false,
            connections: Vec::new(),
            open: HashMap::new(),
            asked: 0,
            queue: VecDeque::new(),
            answers: Vec::new(),
        }
    }

    pub(super) fn has_clients(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Memory for requests, as long as there is anybody who might have some. `Err`: there is none.
    pub(super) fn open_arena(&mut self) -> std::io::Result<()> {
        if self.arena.is_none() {
            self.arena = Some(Arena::anonymous(FRAMES, false)?);
            self.free = (0..FRAMES).map(FrameId).collect();
        }
        Ok(())
    }

    /// Its last client has gone, and nothing of it is under way.
    pub(super) fn close_arena(&mut self) {
        if self.connections.is_empty() && self.open.is_empty() && self.answers.is_empty() {
            (self.arena, self.free) = (None, Vec::new());
        }
    }

    /// What is shown.
    pub(super) fn publish_figures(&self, connected: bool) {
        self.figures.connected.store(connected, Ordering::Relaxed);
        self.figures.waiting.store(self.open.len() as u64, Ordering::Relaxed);
        self.figures.clients.store(self.connections.len() as u64, Ordering::Relaxed);
    }

    // --- on its way to the owner ---

    /// The next request to be sent.
    pub(super) fn next_to_send(&mut self) -> Option<RequestId> {
        let id = self.queue.pop_front()?;
        self.open.get_mut(&id).expect("what is queued is open").sent = true;
        Some(id)
    }

    pub(super) fn get_mut(&mut self, id: RequestId) -> Option<&mut Asked> {
        self.open.get_mut(&id)
    }

    /// What the owner is asked, and how many bytes follow.
    pub(super) fn head_of(&self, id: RequestId) -> (RequestHead, u64) {
        let (command, flags, offset, length) = match self.open[&id].request {
            Request::Read { offset, length } => (Command::Read, 0, offset, u64::from(length)),
            Request::Prefetch { offset, length } => (Command::Cache, 0, offset, u64::from(length)),
            Request::Flush => (Command::Flush, 0, 0, 0),
            Request::Write { offset, length, fua, .. } => {
                let flags = command_flags::PAYLOAD_LEN | if fua { command_flags::FUA } else { 0 };
                (Command::Write, flags, offset, length.into())
            }
            Request::Zero { offset, length, hole, fua } => {
                let flags = if hole { 0 } else { command_flags::NO_HOLE } | if fua { command_flags::FUA } else { 0 };
                (Command::WriteZeroes, flags, offset, length)
            }
        };
        let payload = if command == Command::Write { length } else { 0 };
        (RequestHead { flags, command, cookie: id.0, offset, length }, payload)
    }

    /// Some of a write's bytes, from the `at`th on: as many as lie in one frame.
    pub(super) fn payload_from(&self, id: RequestId, at: u64) -> &[u8] {
        let Request::Write { offset, length, payload, .. } = &self.open[&id].request else { return &[] };
        let (byte, end) = (offset + at, offset + u64::from(*length));
        let index = (byte / BLOCK_BYTES - offset / BLOCK_BYTES) as usize;
        let (from, to) = (byte % BLOCK_BYTES, (end - byte / BLOCK_BYTES * BLOCK_BYTES).min(BLOCK_BYTES));
        let arena = self.arena.as_ref().expect("an open request has memory");
        &arena.bytes(payload[index].frame)[from as usize..to as usize]
    }

    /// Bytes of a read's answer, zeros where `bytes` is `Err`. False: they lie outside of what was asked for.
    pub(super) fn put_answer(&mut self, id: RequestId, at: u64, bytes: Result<&[u8], u64>) -> bool {
        let Some(asked) = self.open.get_mut(&id) else { return false };
        let Request::Read { offset, length } = asked.request else { return false };
        let count = bytes.map_or_else(|zeros| zeros, |bytes| bytes.len() as u64);
        let end = offset + u64::from(length);
        if at < offset || at.checked_add(count).is_none_or(|last| last > end) {
            return false;
        }
        asked.received += count;
        let arena = self.arena.as_mut().expect("an open request has memory");
        let mut done = 0;
        while done < count {
            let byte = at + done;
            let frame = asked.frames[(byte / BLOCK_BYTES - offset / BLOCK_BYTES) as usize];
            let from = (byte % BLOCK_BYTES) as usize;
            let part = (count - done).min(BLOCK_BYTES - from as u64);
            let place = &mut arena.bytes_mut(frame)[from..from + part as usize];
            match bytes {
                Ok(bytes) => place.copy_from_slice(&bytes[done as usize..(done + part) as usize]),
                Err(_) => place.fill(0),
            }
            done += part;
        }
        true
    }

    /// The owner has said all there is to say. False: less than was asked for.
    pub(super) fn answered(&mut self, id: RequestId) -> bool {
        let whole = |asked: &Asked| match asked.request {
            Request::Read { length, .. } => asked.error.is_some() || asked.received == u64::from(length),
            Request::Write { .. } | Request::Flush | Request::Zero { .. } | Request::Prefetch { .. } => true,
        };
        if !self.open.get(&id).is_some_and(whole) {
            return false;
        }
        let Asked { request, mut frames, abandoned, error, .. } = self.open.remove(&id).expect("it was just seen");
        let mut pieces = Pieces::new();
        match request {
            Request::Read { offset, length } if error.is_none() && !abandoned => {
                let end = offset + u64::from(length);
                for (index, frame) in std::mem::take(&mut frames).into_iter().enumerate() {
                    let block = BlockIndex(offset / BLOCK_BYTES + index as u64).byte();
                    let (from, to) = (offset.max(block), end.min(block + BLOCK_BYTES));
                    let source = Source::Frame(frame, (from - block) as u16);
                    pieces.push(Piece { source, length: (to - from) as u32 });
                }
            }
            Request::Write { payload, .. } => frames.extend(payload.iter().map(|payload| payload.frame)),
            Request::Read { .. } | Request::Flush | Request::Zero { .. } | Request::Prefetch { .. } => {}
        }
        self.release(&frames);
        if !abandoned {
            self.answers.push((id, error.map_or(Ok(pieces), Err)));
        }
        true
    }

    /// The connection to the owner has gone: what it has not answered is asked again, what nobody waits for is not.
    pub(super) fn ask_again(&mut self) {
        let abandoned: Vec<RequestId> =
            self.open.iter().filter(|(_, asked)| asked.abandoned).map(|(id, _)| *id).collect();
        abandoned.into_iter().for_each(|id| self.drop_request(id));
        let mut order: Vec<(u64, RequestId)> = self.open.iter().map(|(id, asked)| (asked.order, *id)).collect();
        order.sort_unstable();
        let again = self.open.values().filter(|asked| asked.sent).count() as u64;
        self.figures.again.fetch_add(again, Ordering::Relaxed);
        for asked in self.open.values_mut() {
            (asked.sent, asked.received, asked.error) = (false, 0, None);
        }
        self.queue = order.into_iter().map(|(_, id)| id).collect();
    }

    fn drop_request(&mut self, id: RequestId) {
        let Some(asked) = self.open.remove(&id) else { return };
        self.queue.retain(|queued| *queued != id);
        self.release(&asked.frames);
        if let Request::Write { payload, .. } = asked.request {
            let frames: Vec<FrameId> = payload.iter().map(|payload| payload.frame).collect();
            self.release(&frames);
        }
    }

    fn release(&mut self, frames: &[FrameId]) {
        self.free.extend_from_slice(frames);
        self.frames_freed |= !frames.is_empty();
    }

    /// A client may hold half of the frames, and nobody passes those who wait.
    fn may_take(&self, held: u32, count: u32) -> bool {
        self.free.len() >= count as usize && held + count <= FRAMES / 2
    }
}

impl Home for Forwarded {
    fn desk(&mut self, _now: Instant) -> impl Backend + '_ {
        Desk(self)
    }

    fn connections(&mut self) -> &mut Vec<usize> {
        &mut self.connections
    }
}

/// The volume as a connection sees it.
struct Desk<'a>(&'a mut Forwarded);

// SAFETY: frames lie in the arena, whose mapping lives as long as the volume has a connection or an open request. A frame is
// given to one taker at a time: it is on the list of the free ones, or with one connection, or with one request. The volume
// writes only to frames of reads that are not answered, and makes no reference that outlives its calls.
unsafe impl Backend for Desk<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes
    }

    fn admissible(&self, request: &Request) -> Result<(), RequestError> {
        let (offset, length, largest, past_end) = match *request {
            Request::Flush => return Ok(()),
            Request::Read { offset, length } => (offset, length.into(), true, RequestError::Invalid),
            Request::Prefetch { offset, length } => (offset, length.into(), false, RequestError::Invalid),
            Request::Write { offset, length, .. } => (offset, length.into(), true, RequestError::NoSpace),
            Request::Zero { offset, length, .. } => (offset, length, false, RequestError::NoSpace),
        };
        if largest && self.0.request_bytes_max.is_some_and(|most| length > u64::from(most)) {
            return Err(RequestError::Invalid);
        }
        match offset.checked_add(length) {
            Some(end) if end <= self.0.size_bytes => Ok(()),
            Some(_) | None => Err(past_end),
        }
    }

    fn take_frames(&mut self, client: ClientId, held: u32, count: u32, into: &mut Frames) -> bool {
        let volume = &mut *self.0;
        let is_next = volume.waiting.front().is_none_or(|first| *first == client);
        if !is_next || !volume.may_take(held, count) {
            if !volume.waiting.contains(&client) {
                volume.waiting.push_back(client);
            }
            return false;
        }
        self.withdraw(client);
        let left = self.0.free.len() - count as usize;
        into.extend(self.0.free.drain(left..));
        true
    }

    fn withdraw(&mut self, client: ClientId) {
        let before = self.0.waiting.len();
        self.0.waiting.retain(|waiting| *waiting != client);
        self.0.frames_freed |= self.0.waiting.len() < before;
    }

    fn hold(&mut self, held: u32, count: u32) -> bool {
        // Taken by `submit`, which follows at once.
        self.0.waiting.is_empty() && self.0.may_take(held, count)
    }

    fn let_go(&mut self, _count: u32) {}

    fn return_frames(&mut self, frames: &[FrameId]) {
        self.0.release(frames);
    }

    fn frame(&self, frame: FrameId) -> NonNull<u8> {
        let arena = self.0.arena.as_ref().expect("a volume with connections has memory");
        NonNull::new(arena.frame(frame)).expect("a frame lies in a mapping, never at address 0")
    }

    fn checksum(&self, _block: BlockIndex, _mask: SectorMask, _bytes: &[u8]) -> u32 {
        // The owner computes it, from what has arrived there.
        0
    }

    fn submit(&mut self, id: RequestId, request: Request) {
        let volume = &mut *self.0;
        let (mut frames, mut bytes) = (Frames::new(), 0);
        match request {
            Request::Read { offset, length } => {
                bytes = u64::from(length);
                let blocks = (offset % BLOCK_BYTES + bytes).div_ceil(BLOCK_BYTES) as usize;
                let left = volume.free.len().checked_sub(blocks).expect("`hold` has seen that they are there");
                frames.extend(volume.free.drain(left..));
            }
            Request::Write { length, .. } => bytes = u64::from(length),
            Request::Flush | Request::Zero { .. } | Request::Prefetch { .. } => {}
        }
        volume.figures.requests.fetch_add(1, Ordering::Relaxed);
        volume.figures.bytes.fetch_add(bytes, Ordering::Relaxed);
        volume.asked += 1;
        let (order, sent, abandoned, received, error) = (volume.asked, false, false, 0, None);
        volume.open.insert(id, Asked { order, request, frames, sent, abandoned, received, error });
        volume.queue.push_back(id);
    }

    fn sent(&mut self, pieces: Pieces) {
        let frame = |piece: &Piece| match piece.source {
            Source::Frame(frame, _) => Some(frame),
            Source::Zero => None,
        };
        let frames: Vec<FrameId> = pieces.iter().filter_map(frame).collect();
        self.0.release(&frames);
    }

    fn hangup(&mut self, ids: Vec<RequestId>) {
        for id in ids {
            match self.0.open.get_mut(&id) {
                // The owner may have it already: its answer is waited for, and its memory kept until then.
                Some(asked) if asked.sent => asked.abandoned = true,
                Some(_) => self.0.drop_request(id),
                None => {}
            }
        }
    }

    fn take_back(&mut self, ids: &[RequestId]) -> Vec<(RequestId, Request)> {
        let volume = &mut *self.0;
        let mut taken = Vec::new();
        for id in ids {
            // What an owner has been asked by a connection that has gone may be asked again by whoever keeps its bytes.
            if let Some(asked) = volume.open.remove(id) {
                volume.queue.retain(|queued| queued != id);
                volume.release(&asked.frames);
                taken.push((*id, asked.request));
            }
        }
        taken
    }

    fn extents(&self, _offset: u64, length: u64, _max: usize) -> Vec<Extent> {
        // The owner may know of holes; that all of it may be data is never wrong.
        vec![Extent { length, zero: false, dirty: false, cached: false }]
    }
}
