//! A volume in memory with nothing behind it: no log, no destage, no durability.
//!
//! It is what benchmarks put beside a real volume (everything that is slower than this is the volume's own cost), and
//! what the front ends' tests run against. It behaves as a volume does at the seam: a payload stays in the frame in
//! which it was received, what it replaces is freed once no answer uses it, unwritten blocks are holes.

use crate::Backend;
use core::ptr::NonNull;
use forebay_core::api::{Piece, Pieces, Request, RequestError, Source};
use forebay_core::format::payload_checksum;
use forebay_core::types::*;
use forebay_core::volume::Extent;
use forebay_io::nontemporal_copy;
use std::io;

const BLOCK: usize = BLOCK_BYTES as usize;
/// In `blocks`: a hole.
const HOLE: u32 = u32::MAX;

/// Anonymous memory in 4 KiB frames, prefaulted so that no page fault is counted as a volume's cost.
pub struct Arena {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Arena {}

impl Arena {
    /// Maps and prefaults so many frames.
    pub fn new(frames: usize) -> io::Result<Arena> {
        let bytes = frames * BLOCK;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no other memory.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), bytes, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let arena = Arena { start: NonNull::new(start.cast()).expect("a mapping is never at 0"), bytes };
        // SAFETY: the range is the mapping made above. Advice may fail without harm.
        unsafe { libc::madvise(start, bytes, libc::MADV_HUGEPAGE) };
        // SAFETY: as above; populating only touches pages of the mapping.
        if unsafe { libc::madvise(start, bytes, libc::MADV_POPULATE_WRITE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(arena)
    }

    /// Where a frame's bytes lie.
    ///
    /// # Panics
    /// When there is no such frame.
    pub fn frame(&self, index: usize) -> NonNull<u8> {
        assert!((index + 1) * BLOCK <= self.bytes, "frame {index} lies within the arena");
        // SAFETY: asserted to lie within the mapping.
        unsafe { self.start.add(index * BLOCK) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` and is not used after this.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A volume that lies in memory alone, for tests and measurements.
pub struct MemoryVolume {
    arena: Arena,
    size_bytes: u64,
    /// Frame of each block.
    blocks: Vec<u32>,
    free: Vec<u32>,
    /// Uses of each frame: one for being a block's content, one for each piece of an answer, one while a front end
    /// receives into it.
    uses: Vec<u32>,
    check_payloads: bool,
    answers: Vec<(RequestId, Result<Pieces, RequestError>)>,
    holds_requests: bool,
    waiting: Vec<(RequestId, Request)>,
    hangups: Vec<RequestId>,
    /// Frames that connections hold, and may.
    held: u32,
    held_max: u32,
}

/// Identity for checksums; a volume that nothing outlives needs no other.
const VOLUME: [u8; 16] = *b"memory volume\0\0\0";

impl MemoryVolume {
    /// A volume of so many bytes with `spare` frames besides those that its content can take.
    pub fn new(size_bytes: u64, spare: usize) -> io::Result<MemoryVolume> {
        let blocks = size_bytes.div_ceil(BLOCK_BYTES) as usize;
        let frames = blocks + spare;
        Ok(MemoryVolume {
            arena: Arena::new(frames)?,
            size_bytes,
            blocks: vec![HOLE; blocks],
            free: (0..frames as u32).rev().collect(),
            uses: vec![0; frames],
            check_payloads: false,
            answers: Vec::new(),
            holds_requests: false,
            waiting: Vec::new(),
            hangups: Vec::new(),
            held: 0,
            held_max: u32::MAX,
        })
    }

    /// Verifies each payload's checksum, and that it is zero outside the request, when it is handed in.
    pub fn check_payloads(&mut self) {
        self.check_payloads = true;
    }

    /// Connections may hold no more than this together.
    pub fn limit_holds(&mut self, frames: u32) {
        self.held_max = frames;
    }

    /// Frames that connections hold.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Whether requests wait from here on, as they do where nobody may be answered yet.
    pub fn hold_requests(&mut self, hold: bool) {
        self.holds_requests = hold;
    }

    /// Takes the answers that have come up.
    pub fn take_answers(&mut self, into: &mut Vec<(RequestId, Result<Pieces, RequestError>)>) {
        into.append(&mut self.answers);
    }

    /// Takes the requests whose clients have hung up.
    pub fn take_hangups(&mut self) -> Vec<RequestId> {
        core::mem::take(&mut self.hangups)
    }

    /// Frames that are neither content nor in use by a front end or an answer.
    pub fn frames_free(&self) -> usize {
        self.free.len()
    }

    /// Frames that hold content.
    pub fn frames_of_content(&self) -> usize {
        self.blocks.iter().filter(|&&frame| frame != HOLE).count()
    }

    fn release(&mut self, frame: u32) {
        let uses = &mut self.uses[frame as usize];
        assert!(*uses > 0, "frame {frame} is given back once");
        *uses -= 1;
        if *uses == 0 {
            self.free.push(frame);
        }
    }

    fn bytes(&self, frame: u32) -> &[u8] {
        // SAFETY: the arena lives as long as `self`; frames are written only through front ends, which by the
        // Backend's contract do not run during this borrow, and by `write`, which borrows `self` mutably.
        unsafe { core::slice::from_raw_parts(self.arena.frame(frame as usize).as_ptr(), BLOCK) }
    }

    fn read(&mut self, offset: u64, length: u32) -> Pieces {
        let mut pieces = Pieces::new();
        let end = offset + u64::from(length);
        let mut at = offset;
        while at < end {
            let from = at % BLOCK_BYTES;
            let part = (BLOCK_BYTES - from).min(end - at);
            let frame = self.blocks[(at / BLOCK_BYTES) as usize];
            let source = if frame == HOLE {
                Source::Zero
            } else {
                self.uses[frame as usize] += 1;
                Source::Frame(FrameId(frame), from as u16)
            };
            pieces.push(Piece { source, length: part as u32 });
            at += part;
        }
        pieces
    }

    fn write(&mut self, offset: u64, length: u32, payload: &Payloads) {
        let end = offset + u64::from(length);
        for (index, payload) in payload.iter().enumerate() {
            let block = BlockIndex(offset / BLOCK_BYTES + index as u64);
            let from = offset.saturating_sub(block.byte()) as usize;
            let to = (end - block.byte()).min(BLOCK_BYTES) as usize;
            if self.check_payloads {
                self.check_payload(block, from, to, payload);
            }
            let old = core::mem::replace(&mut self.blocks[block.0 as usize], payload.frame.0);
            if old == HOLE {
                continue;
            }
            if from > 0 || to < BLOCK {
                // Completed at once, where a real volume does it in its own time.
                nontemporal_copy::settle();
                let old = self.arena.frame(old as usize).as_ptr();
                let new = self.arena.frame(payload.frame.0 as usize).as_ptr();
                // SAFETY: two different frames, `from` and `to` lie within a block; the new one was handed in, so
                // that the front end no longer touches it.
                unsafe {
                    new.copy_from_nonoverlapping(old, from);
                    new.add(to).copy_from_nonoverlapping(old.add(to), BLOCK - to);
                }
            }
            self.release(old);
        }
    }

    fn check_payload(&self, block: BlockIndex, from: usize, to: usize, payload: &Payload) {
        nontemporal_copy::settle();
        let bytes = self.bytes(payload.frame.0);
        assert!(bytes[..from].iter().chain(&bytes[to..]).all(|&byte| byte == 0), "uncovered bytes are zero");
        if (from as u64).is_multiple_of(SECTOR_BYTES) && (to as u64).is_multiple_of(SECTOR_BYTES) {
            let mask = SectorMask::of_bytes(from as u64, to as u64);
            assert_eq!(payload.checksum, payload_checksum(&VOLUME, block, mask, Term(1), bytes), "payload of {block}");
        }
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), RequestError> {
        if self.free.len() < 2 {
            // Both edges of the range may need a frame.
            return Err(RequestError::NoSpace);
        }
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let (block, from) = ((at / BLOCK_BYTES) as usize, at % BLOCK_BYTES);
            let part = (BLOCK_BYTES - from).min(end - at);
            let frame = self.blocks[block];
            at += part;
            if frame == HOLE {
                continue;
            }
            self.blocks[block] = HOLE;
            if part < BLOCK_BYTES {
                nontemporal_copy::settle();
                // Never in place: an answer may still be using the old frame.
                let fresh = self.free.pop().expect("a range has two edges");
                self.uses[fresh as usize] = 1;
                let (old, new) = (self.arena.frame(frame as usize), self.arena.frame(fresh as usize));
                // SAFETY: two different frames of the arena, the new one unused by others; the range lies within.
                unsafe {
                    new.copy_from_nonoverlapping(old, BLOCK);
                    new.add(from as usize).write_bytes(0, part as usize);
                }
                self.blocks[block] = fresh;
            }
            self.release(frame);
        }
        Ok(())
    }
}

// SAFETY: frames lie in the arena, which lives as long as the volume; `uses` keeps a frame from being given out again
// until it was returned or sent, and the volume never writes to a frame that an answer uses.
unsafe impl Backend for MemoryVolume {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn admissible(&self, request: &Request) -> Result<(), RequestError> {
        let (offset, length) = match *request {
            Request::Read { offset, length } | Request::Prefetch { offset, length } => (offset, u64::from(length)),
            Request::Write { offset, length, .. } => (offset, u64::from(length)),
            Request::Zero { offset, length, .. } => (offset, length),
            Request::Flush => return Ok(()),
        };
        match offset.checked_add(length) {
            Some(end) if end <= self.size_bytes => Ok(()),
            Some(_) | None => Err(RequestError::Invalid),
        }
    }

    fn take_frames(&mut self, _client: ClientId, held: u32, count: u32, into: &mut Frames) -> bool {
        let Some(left) = self.free.len().checked_sub(count as usize) else { return false };
        if !self.hold(held, count) {
            return false;
        }
        for frame in self.free.drain(left..).rev() {
            self.uses[frame as usize] = 1;
            into.push(FrameId(frame));
        }
        true
    }

    fn withdraw(&mut self, _client: ClientId) {}

    fn hold(&mut self, held: u32, count: u32) -> bool {
        assert!(held <= self.held, "each connection holds a part of it");
        let granted = self.held + count <= self.held_max;
        self.held += count * u32::from(granted);
        granted
    }

    fn let_go(&mut self, count: u32) {
        self.held -= count;
    }

    fn return_frames(&mut self, frames: &[FrameId]) {
        frames.iter().rev().for_each(|frame| self.release(frame.0));
    }

    fn frame(&self, frame: FrameId) -> NonNull<u8> {
        self.arena.frame(frame.0 as usize)
    }

    fn checksum(&self, block: BlockIndex, mask: SectorMask, bytes: &[u8]) -> u32 {
        payload_checksum(&VOLUME, block, mask, Term(1), bytes)
    }

    fn submit(&mut self, id: RequestId, request: Request) {
        if self.holds_requests {
            return self.waiting.push((id, request));
        }
        let result = match request {
            Request::Read { offset, length } => Ok(self.read(offset, length)),
            Request::Write { offset, length, payload, .. } => {
                self.write(offset, length, &payload);
                Ok(Pieces::new())
            }
            Request::Zero { offset, length, .. } => self.zero(offset, length).map(|()| Pieces::new()),
            Request::Flush | Request::Prefetch { .. } => Ok(Pieces::new()),
        };
        self.answers.push((id, result));
    }

    fn sent(&mut self, pieces: Pieces) {
        for piece in &pieces {
            match piece.source {
                Source::Frame(frame, _) => self.release(frame.0),
                Source::Zero => {}
            }
        }
    }

    fn hangup(&mut self, ids: Vec<RequestId>) {
        self.hangups.extend(ids);
    }

    fn take_back(&mut self, ids: &[RequestId]) -> Vec<(RequestId, Request)> {
        self.waiting.extract_if(.., |(id, _)| ids.contains(id)).collect()
    }

    fn extents(&self, offset: u64, length: u64, max: usize) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        let end = offset + length;
        let mut at = offset;
        while at < end && extents.len() <= max {
            let part = (BLOCK_BYTES - at % BLOCK_BYTES).min(end - at);
            let zero = self.blocks[(at / BLOCK_BYTES) as usize] == HOLE;
            match extents.last_mut() {
                Some(last) if last.zero == zero => last.length += part,
                Some(_) | None => extents.push(Extent { length: part, zero, dirty: !zero, cached: !zero }),
            }
            at += part;
        }
        extents.truncate(max);
        extents
    }
}
