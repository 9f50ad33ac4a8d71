//! The answers of one connection on their way out: encoded in its framing and queued as heads, frames and zeros.
//!
//! Positions count bytes of everything ever queued. A frame named here stays untouched until [`Replies::on_sent`] has
//! passed it; the connection knows which answer it belongs to.

use super::proto::*;
use crate::Backend;
use forebay_core::api::{Piece, Pieces, Source};
use forebay_core::types::*;
use forebay_io::socket::{VECTORS_MAX, vector};
use std::collections::VecDeque;

/// Most extents in one context of a block status reply.
pub const EXTENTS_MAX: usize = 1024;
/// Zeros within a structured answer that are worth a chunk of their own.
const HOLE_BYTES_MIN: u32 = 4096;

/// Zeros for answers that no memory holds.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What a reply repeats of its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Label {
    pub(super) cookie: u64,
    pub(super) offset: u64,
}

impl Label {
    pub(super) fn of(head: &RequestHead) -> Label {
        Label { cookie: head.cookie, offset: head.offset }
    }
}

/// Bytes that wait to be sent.
enum Segment {
    /// From the buffer of heads; positions count from the connection's first head.
    Heads {
        start: u64,
        length: u32,
    },
    Frame {
        frame: FrameId,
        from: u16,
        length: u16,
    },
    Zeros {
        length: u32,
    },
}

pub(super) struct Replies {
    framing: Framing,
    heads: Vec<u8>,
    /// Position of `heads[0]`.
    heads_base: u64,
    segments: VecDeque<Segment>,
    queued: u64,
    sent: u64,
}

impl Replies {
    pub(super) fn new(framing: Framing) -> Replies {
        Replies { framing, heads: Vec::new(), heads_base: 0, segments: VecDeque::new(), queued: 0, sent: 0 }
    }

    pub(super) fn framing(&self) -> Framing {
        self.framing
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes of heads that wait to be sent.
    pub(super) fn head_bytes(&self) -> usize {
        self.heads.len()
    }

    /// Bytes queued since the beginning.
    pub(super) fn queued(&self) -> u64 {
        self.queued
    }

    /// Bytes that wait to be sent.
    pub(super) fn bytes_to_send(&self) -> u64 {
        // What was forgotten counts as queued and is never sent.
        if self.is_empty() { 0 } else { self.queued - self.sent }
    }

    /// Bytes sent since the beginning.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    // --- what is said ---

    /// Answers that were encoded elsewhere.
    pub(super) fn put_ready(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.put_bytes(bytes);
        }
    }

    /// Success, with nothing to tell.
    pub(super) fn put_done(&mut self, label: Label) {
        match self.framing {
            // A structured session may use simple replies where there is no data.
            Framing::Simple | Framing::Structured => self.put_bytes(&simple_reply(0, label.cookie)),
            Framing::Extended => self.put_chunk(ChunkKind::None, true, label, 0),
        }
    }

    pub(super) fn put_error(&mut self, label: Label, error: ErrorCode) {
        if !self.framing.has_chunks() {
            return self.put_bytes(&simple_reply(error as u32, label.cookie));
        }
        let text: &[u8] = match error {
            ErrorCode::Perm => b"the export is read-only",
            ErrorCode::Io => b"input/output error",
            ErrorCode::Invalid => {
                b"invalid: an unknown command, out of range, or larger than the export's maximum block size"
            }
            ErrorCode::NoSpace => b"past the end of the volume, or no space left",
            ErrorCode::Shutdown => b"the volume is being stopped",
        };
        self.put_chunk(ChunkKind::Error, true, label, 6 + text.len() as u32);
        self.put_bytes(&(error as u32).to_be_bytes());
        self.put_bytes(&(text.len() as u16).to_be_bytes());
        self.put_bytes(text);
    }

    /// A read's answer; in one chunk where the client has asked for that.
    pub(super) fn put_read(&mut self, label: Label, length: u32, one_chunk: bool, pieces: &Pieces) {
        if self.framing.has_chunks() {
            return self.put_read_chunks(label, length, one_chunk, pieces);
        }
        self.put_bytes(&simple_reply(0, label.cookie));
        pieces.iter().for_each(|piece| self.put_piece(piece));
    }

    /// A read as data and hole chunks.
    fn put_read_chunks(&mut self, label: Label, length: u32, one_chunk: bool, pieces: &Pieces) {
        /// Zero pieces at the start: how many, and their bytes.
        fn zeros(pieces: &[Piece]) -> (usize, u32) {
            let run = pieces.iter().take_while(|piece| piece.source == Source::Zero);
            run.fold((0, 0), |(count, bytes), piece| (count + 1, bytes + piece.length))
        }
        let is_hole = |bytes: u32| !one_chunk && bytes > 0 && (bytes >= HOLE_BYTES_MIN || bytes == length);
        let mut at = label.offset;
        let mut next = 0;
        while next < pieces.len() {
            let (count, bytes) = zeros(&pieces[next..]);
            if is_hole(bytes) {
                next += count;
                self.put_chunk(ChunkKind::OffsetHole, next == pieces.len(), label, 12);
                self.put_bytes(&at.to_be_bytes());
                self.put_bytes(&bytes.to_be_bytes());
                at += u64::from(bytes);
                continue;
            }
            let first = next;
            let mut data_bytes = 0;
            while next < pieces.len() {
                let (count, bytes) = zeros(&pieces[next..]);
                if is_hole(bytes) {
                    break;
                }
                // Zeros too few for a chunk of their own travel as data.
                let (count, bytes) = if count > 0 { (count, bytes) } else { (1, pieces[next].length) };
                next += count;
                data_bytes += bytes;
            }
            self.put_chunk(ChunkKind::OffsetData, next == pieces.len(), label, 8 + data_bytes);
            self.put_bytes(&at.to_be_bytes());
            pieces[first..next].iter().for_each(|piece| self.put_piece(piece));
            at += u64::from(data_bytes);
        }
    }

    /// Block status of `length` bytes in these contexts; only the first extent of each where `one` is asked for.
    pub(super) fn put_block_status<B: Backend + ?Sized>(
        &mut self,
        backend: &B,
        label: Label,
        length: u64,
        contexts: ContextSet,
        one: bool,
    ) {
        let extents = backend.extents(label.offset, length, EXTENTS_MAX);
        let last = contexts.iter().last();
        let mut runs: Vec<(u64, u32)> = Vec::with_capacity(extents.len());
        for context in contexts.iter() {
            runs.clear();
            let mut left = length;
            for extent in extents.iter().take(EXTENTS_MAX) {
                let length = left.min(extent.length);
                if length == 0 {
                    continue;
                }
                let state = match context {
                    Context::Allocation => u32::from(extent.zero) * 0b11,
                    Context::Dirty => u32::from(extent.dirty),
                    Context::Tier => u32::from(extent.cached),
                };
                match runs.last_mut() {
                    Some((bytes, same)) if *same == state => *bytes += length,
                    Some(_) if one => break,
                    Some(_) | None => runs.push((length, state)),
                }
                left -= length;
            }
            if runs.is_empty() {
                // The protocol wants at least one extent; data that is neither dirty nor cached promises nothing.
                runs.push((length, 0));
            }
            self.put_runs(label, context, Some(context) == last, &runs);
        }
    }

    fn put_runs(&mut self, label: Label, context: Context, last: bool, runs: &[(u64, u32)]) {
        let count = runs.len() as u32;
        match self.framing {
            Framing::Simple | Framing::Structured => {
                self.put_chunk(ChunkKind::BlockStatus, last, label, 4 + 8 * count);
                self.put_bytes(&context.id().to_be_bytes());
                for (bytes, state) in runs {
                    let bytes = u32::try_from(*bytes).expect("a compact request asks for less than 4 GiB");
                    self.put_bytes(&bytes.to_be_bytes());
                    self.put_bytes(&state.to_be_bytes());
                }
            }
            Framing::Extended => {
                self.put_chunk(ChunkKind::BlockStatusExt, last, label, 8 + 16 * count);
                self.put_bytes(&context.id().to_be_bytes());
                self.put_bytes(&count.to_be_bytes());
                for (bytes, state) in runs {
                    self.put_bytes(&bytes.to_be_bytes());
                    self.put_bytes(&u64::from(*state).to_be_bytes());
                }
            }
        }
    }

    fn put_chunk(&mut self, kind: ChunkKind, done: bool, label: Label, length: u32) {
        match self.framing {
            Framing::Simple | Framing::Structured => self.put_bytes(&chunk(kind, done, label.cookie, length)),
            Framing::Extended => {
                self.put_bytes(&extended_chunk(kind, done, label.cookie, label.offset, length.into()));
            }
        }
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        let start = self.heads_base + self.heads.len() as u64;
        self.heads.extend_from_slice(bytes);
        self.queued += bytes.len() as u64;
        match self.segments.back_mut() {
            // Neighbours in the buffer leave as one vector.
            Some(Segment::Heads { length, .. }) => *length += bytes.len() as u32,
            Some(Segment::Frame { .. } | Segment::Zeros { .. }) | None => {
                self.segments.push_back(Segment::Heads { start, length: bytes.len() as u32 });
            }
        }
    }

    fn put_piece(&mut self, piece: &Piece) {
        let length = piece.length;
        self.queued += u64::from(length);
        self.segments.push_back(match piece.source {
            Source::Frame(frame, from) => {
                assert!(u64::from(from) + u64::from(length) <= BLOCK_BYTES, "a piece lies within its frame");
                Segment::Frame { frame, from, length: length as u16 }
            }
            Source::Zero => Segment::Zeros { length },
        });
    }

    // --- how it leaves ---

    /// Vectors over what waits, in order, at most as many as one call takes and no more than begin within `bytes_max`
    /// bytes; how many bytes they name. They are good until the next call on `self`, or until a frame named in them is
    /// given back.
    pub(super) fn vectors<B: Backend + ?Sized>(
        &self,
        backend: &B,
        bytes_max: usize,
        vectors: &mut Vec<libc::iovec>,
    ) -> usize {
        vectors.clear();
        let mut bytes = 0;
        for segment in &self.segments {
            if bytes >= bytes_max {
                break;
            }
            let room = bytes_max - bytes;
            bytes += segment.length();
            match *segment {
                Segment::Heads { start, length } => {
                    let from = (start - self.heads_base) as usize;
                    let part = (length as usize).min(room);
                    bytes -= length as usize - part;
                    let heads = &self.heads[from..from + part];
                    vectors.push(vector(heads.as_ptr(), heads.len()));
                }
                Segment::Frame { frame, from, length } => {
                    // SAFETY: `put_piece` has checked that the piece lies within the frame.
                    let start = unsafe { backend.frame(frame).add(usize::from(from)) };
                    match vectors.last_mut() {
                        // Neighbours in memory leave as one vector: the kernel copies long stretches faster.
                        Some(last) if last.iov_base.wrapping_byte_add(last.iov_len) == start.as_ptr().cast() => {
                            last.iov_len += usize::from(length);
                        }
                        Some(_) | None => vectors.push(vector(start.as_ptr(), usize::from(length))),
                    }
                }
                Segment::Zeros { length } => {
                    let mut left = (length as usize).min(room);
                    bytes -= length as usize - left;
                    while left > 0 && vectors.len() < VECTORS_MAX {
                        let part = ZEROS.len().min(left);
                        vectors.push(vector(ZEROS.as_ptr(), part));
                        left -= part;
                    }
                    bytes -= left;
                }
            }
            if vectors.len() == VECTORS_MAX {
                break;
            }
        }
        bytes
    }

    /// So many bytes have left.
    pub(super) fn on_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        let mut left = bytes;
        while left > 0 {
            let segment = self.segments.front_mut().expect("no more is sent than was queued");
            let length = segment.length();
            if length <= left {
                left -= length;
                self.segments.pop_front();
            } else {
                segment.cut(left);
                left = 0;
            }
        }
        let first_head = self.segments.iter().find_map(|segment| match segment {
            Segment::Heads { start, .. } => Some(*start),
            Segment::Frame { .. } | Segment::Zeros { .. } => None,
        });
        let done = match first_head {
            Some(start) => (start - self.heads_base) as usize,
            None => self.heads.len(),
        };
        // Moving the rest to the front must be rare: only when as much has been sent as is left to move.
        if done * 2 >= self.heads.len() {
            self.heads.drain(..done);
            self.heads_base += done as u64;
        }
    }

    /// Forgets what waits, and its memory.
    pub(super) fn clear(&mut self) {
        *self = Replies { queued: self.queued, sent: self.sent, ..Replies::new(self.framing) };
    }
}

impl Segment {
    fn length(&self) -> usize {
        match *self {
            Segment::Heads { length, .. } | Segment::Zeros { length } => length as usize,
            Segment::Frame { length, .. } => usize::from(length),
        }
    }

    /// Drops bytes from its start; fewer than it has.
    fn cut(&mut self, bytes: usize) {
        match self {
            Segment::Heads { start, length } => {
                *start += bytes as u64;
                *length -= bytes as u32;
            }
            Segment::Zeros { length } => *length -= bytes as u32,
            Segment::Frame { from, length, .. } => {
                *from += bytes as u16;
                *length -= bytes as u16;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryVolume;

    /// Whoever sends in turns sends no more in one of them than he has said, and all of it in the end.
    #[test]
    fn what_leaves_at_one_time_ends_where_it_is_to_end() {
        const BYTES_MAX: usize = 1 << 20;
        let volume = MemoryVolume::new(1 << 20, 1).expect("memory");
        let mut replies = Replies::new(Framing::Simple);
        let length = (5 << 20) + 512;
        let zeros: Pieces = core::iter::once(Piece { source: Source::Zero, length }).collect();
        let frames: Pieces =
            (0..1024).map(|_| Piece { source: Source::Frame(FrameId(0), 0), length: BLOCK_BYTES as u32 }).collect();
        let label = Label { cookie: 1, offset: 0 };
        replies.put_read(label, length, false, &zeros);
        replies.put_read(label, 4 << 20, false, &frames);
        let (mut vectors, mut calls) = (Vec::new(), 0);
        while !replies.is_empty() {
            let named = replies.vectors(&volume, BYTES_MAX, &mut vectors);
            assert_eq!(vectors.iter().map(|vector| vector.iov_len).sum::<usize>(), named);
            assert!(named > 0 && named < BYTES_MAX + BLOCK_BYTES as usize, "{named} bytes in one call");
            replies.on_sent(named);
            calls += 1;
        }
        assert_eq!(replies.bytes_to_send(), 0);
        assert!((9..=12).contains(&calls), "{calls} calls for 9 MiB");
    }
}
