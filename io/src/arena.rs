//! Frames: 4 KiB pieces of memory that core names by number.
//!
//! Invariant: a frame lies at `first + 4096 * number` of its mapping, aligned to 4 KiB. Who may touch a frame, and
//! when, is core's rule (see `forebay_core::api`): one that is named in an operation under way belongs to the kernel.

use crate::memory::Mapping;
use forebay_core::types::{BLOCK_BYTES, FrameId};
use std::io;
use std::sync::Arc;

const FRAME_BYTES: usize = BLOCK_BYTES as usize;

/// The memory of one volume's frames.
#[derive(Debug)]
pub struct Arena {
    mapping: Arc<Mapping>,
    first: usize,
    frames: u32,
}

impl Arena {
    /// Frames in memory of this process: staging and read cache of a flash tier.
    pub fn anonymous(frames: u32, prefault: bool) -> io::Result<Arena> {
        let mapping = Arc::new(Mapping::anonymous(frames.max(1) as usize * FRAME_BYTES, prefault)?);
        Ok(Arena { mapping, first: 0, frames })
    }

    /// Frames that lie in a shared mapping from the byte `first` on: frame i is payload block i of a memory tier.
    pub fn within(mapping: Arc<Mapping>, first: usize, frames: u32) -> Arena {
        assert!(first.is_multiple_of(FRAME_BYTES), "frames are aligned to their size");
        assert!(first + frames as usize * FRAME_BYTES <= mapping.len(), "the frames lie within the mapping");
        Arena { mapping, first, frames }
    }

    /// The same frames, for who goes on with them when their present user has ended.
    pub fn share(&self) -> Arena {
        Arena { mapping: self.mapping.clone(), first: self.first, frames: self.frames }
    }

    /// Number of frames.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The memory under the frames.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// First byte of a frame.
    pub fn frame(&self, frame: FrameId) -> *mut u8 {
        assert!(frame.0 < self.frames, "frame {frame} of {}", self.frames);
        // SAFETY: checked above and in the constructors: the frame lies within the mapping.
        unsafe { self.mapping.as_ptr().add(self.first + frame.0 as usize * FRAME_BYTES) }
    }

    /// A frame's bytes. The frame must not be the target of an operation under way.
    pub fn bytes(&self, frame: FrameId) -> &[u8] {
        // SAFETY: the frame lies within the mapping, which `self` keeps alive; by core's rule the kernel does not
        // write to it now, and writers of this process need `&mut self`.
        unsafe { std::slice::from_raw_parts(self.frame(frame), FRAME_BYTES) }
    }

    /// A frame's bytes, to be changed. The frame must not be part of any operation under way.
    pub fn bytes_mut(&mut self, frame: FrameId) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.frame(frame), FRAME_BYTES) }
    }

    /// Copies a stretch between two frames at the same place; they may be one and the same.
    pub fn copy(&mut self, source: FrameId, target: FrameId, start: usize, length: usize) {
        assert!(start + length <= FRAME_BYTES, "a copy stays within a frame");
        // SAFETY: both stretches lie within their frames (asserted), and `copy` allows them to overlap.
        unsafe { std::ptr::copy(self.frame(source).add(start), self.frame(target).add(start), length) };
    }

    /// A stretch of a frame for a system call. It is valid as long as the arena's mapping is.
    pub fn iovec(&self, frame: FrameId, from: usize, length: usize) -> libc::iovec {
        assert!(from + length <= FRAME_BYTES, "a piece stays within its frame");
        // SAFETY: `from` lies within the frame (asserted).
        libc::iovec { iov_base: unsafe { self.frame(frame).add(from) }.cast(), iov_len: length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_do_not_overlap_and_copies_stay_in_place() {
        let mut arena = Arena::anonymous(3, true).unwrap();
        arena.bytes_mut(FrameId(0)).fill(7);
        arena.bytes_mut(FrameId(2)).fill(9);
        assert!(arena.bytes(FrameId(1)).iter().all(|&b| b == 0));
        arena.copy(FrameId(0), FrameId(1), 512, 1024);
        let bytes = arena.bytes(FrameId(1));
        assert!(bytes[..512].iter().all(|&b| b == 0));
        assert!(bytes[512..1536].iter().all(|&b| b == 7));
        assert!(bytes[1536..].iter().all(|&b| b == 0));
    }

    #[test]
    #[should_panic(expected = "frame 3 of 3")]
    fn a_frame_outside_is_a_bug() {
        let arena = Arena::anonymous(3, false).unwrap();
        arena.bytes(FrameId(3));
    }
}
