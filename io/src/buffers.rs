//! The memory of operations: which stretches the kernel reads or writes, as iovecs.
//!
//! Invariant: an iovec made here points into memory that its [`Buffers`] keep alive. What lies in that memory is
//! governed by core's rule that a frame named in an operation is touched by nobody until the operation is done.

use crate::arena::Arena;
use crate::memory::{AlignedBuffer, Mapping};
use forebay_core::types::FrameId;
use std::sync::Arc;

/// The memory of one operation: iovecs, and ownership of all that they point to.
#[derive(Debug, Default)]
pub struct Buffers {
    pub(crate) iovecs: Vec<libc::iovec>,
    pub(crate) owned: Option<AlignedBuffer>,
    mappings: Option<Arc<Mapping>>,
    length: u64,
}

// SAFETY: the iovecs point into memory that this value owns alone (`owned`) or keeps alive (`mappings`), both of which
// are Send themselves.
unsafe impl Send for Buffers {}

impl Buffers {
    /// No memory, for operations that carry none.
    pub fn none() -> Buffers {
        Buffers::default()
    }

    /// One owned buffer, handed back by the completion.
    pub fn owned(mut buffer: AlignedBuffer) -> Buffers {
        let iovec = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let length = buffer.len() as u64;
        Buffers { iovecs: vec![iovec], owned: Some(buffer), mappings: None, length }
    }

    /// Appends a stretch of a frame. Neighbours in memory become one iovec. All frames are of one arena.
    pub fn push_frame(&mut self, arena: &Arena, frame: FrameId, from: usize, length: usize) {
        match &self.mappings {
            Some(mapping) => {
                assert!(Arc::ptr_eq(mapping, arena.mapping()), "the frames of an operation are of one arena")
            }
            None => self.mappings = Some(arena.mapping().clone()),
        }
        let piece = arena.iovec(frame, from, length);
        self.length += length as u64;
        // The owned buffer comes first and is another allocation, never to be merged with.
        let last_is_owned = self.owned.is_some() && self.iovecs.len() == 1;
        if let Some(last) = self.iovecs.last_mut()
            && !last_is_owned
            && last.iov_base as usize + last.iov_len == piece.iov_base as usize
        {
            last.iov_len += length;
            return;
        }
        self.iovecs.push(piece);
    }

    /// Bytes in all.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// True when there is no memory.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// True when every piece begins and ends at a multiple of `align` in memory.
    pub fn is_aligned(&self, align: usize) -> bool {
        self.iovecs.iter().all(|v| (v.iov_base as usize).is_multiple_of(align) && v.iov_len.is_multiple_of(align))
    }

    /// One owned buffer with the same bytes, for a device that is stricter about memory than our pieces are.
    pub fn gathered(&self) -> Buffers {
        let mut copy = AlignedBuffer::new(self.length as usize);
        let mut at = 0;
        for piece in &self.iovecs {
            // SAFETY: the iovec points to `iov_len` bytes that `self` keeps alive, and core lets nobody change them.
            let bytes = unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) };
            copy[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        Buffers::owned(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_frames_become_one_iovec() {
        let mut arena = Arena::anonymous(4, false).unwrap();
        for i in 0..4 {
            arena.bytes_mut(FrameId(i)).fill(i as u8 + 1);
        }
        let mut buffers = Buffers::none();
        for (frame, from, length) in [(0, 0, 4096), (1, 0, 4096), (3, 512, 512), (3, 1024, 512), (2, 0, 512)] {
            buffers.push_frame(&arena, FrameId(frame), from, length);
        }
        assert_eq!(buffers.iovecs.len(), 3);
        assert_eq!(buffers.len(), 2 * 4096 + 3 * 512);
        assert!(buffers.is_aligned(512));
        assert!(!buffers.is_aligned(4096));
        let gathered = buffers.gathered();
        let copy = gathered.owned.as_ref().unwrap();
        assert!(copy[..4096].iter().all(|&b| b == 1));
        assert!(copy[8192..9216].iter().all(|&b| b == 4));
        assert!(copy[9216..].iter().all(|&b| b == 3));
    }
}
