//! Copies of blocks into memory that is not looked at soon: past the CPU's cache, where the CPU can do that.
//!
//! A usual store first reads the line that it overwrites, from memory where it is cold, and pushes another one out. For
//! the blocks of a log, both are waste: 4 KiB into a cold frame take 0.20 us past the cache and 0.42 us through it
//! (Sapphire Rapids, huge pages). Such stores are not ordered with others, so whoever copies calls [`settle`] before
//! anybody else is told of the bytes; once for many copies, because it waits until the last of them has left the CPU.

use core::ptr::NonNull;

const LINE: usize = 64;

/// Copies a block to a place aligned to lines. Nobody may look at the target before [`settle`].
///
/// # Safety
/// `target` must be valid for writes of as many bytes, and nothing else may refer to them.
///
/// # Panics
/// When the block is not whole lines, or the target is not aligned to them.
#[cfg(target_arch = "x86_64")]
pub unsafe fn copy(block: &[u8], target: NonNull<u8>) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    const VECTOR: usize = size_of::<__m128i>();
    assert!(block.len().is_multiple_of(LINE) && target.addr().get().is_multiple_of(LINE), "whole lines are copied");
    for at in (0..block.len()).step_by(LINE) {
        for at in (at..at + LINE).step_by(VECTOR) {
            // SAFETY: `at + VECTOR` is at most the block's length, so both stay within what the caller vouches for; the
            // target is aligned to vectors, being aligned to lines. SSE2 is part of x86-64.
            unsafe {
                let vector = _mm_loadu_si128(block.as_ptr().add(at).cast());
                _mm_stream_si128(target.as_ptr().add(at).cast(), vector);
            }
        }
    }
}

/// Everything copied by this thread may be looked at, by whoever learns of it from here on.
#[cfg(target_arch = "x86_64")]
pub fn settle() {
    // SAFETY: SSE is part of x86-64.
    unsafe { core::arch::x86_64::_mm_sfence() };
}

/// Copies a block. Nobody may look at the target before [`settle`].
///
/// # Safety
/// `target` must be valid for writes of as many bytes, and nothing else may refer to them.
///
/// # Panics
/// When the block is not whole lines, or the target is not aligned to them.
#[cfg(not(target_arch = "x86_64"))]
pub unsafe fn copy(block: &[u8], target: NonNull<u8>) {
    assert!(block.len().is_multiple_of(LINE) && target.addr().get().is_multiple_of(LINE), "whole lines are copied");
    // SAFETY: the caller's promise, passed on.
    unsafe { target.as_ptr().copy_from_nonoverlapping(block.as_ptr(), block.len()) };
}

/// Everything copied by this thread may be looked at: usual stores need nothing for that.
#[cfg(not(target_arch = "x86_64"))]
pub fn settle() {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use forebay_core::types::FrameId;

    #[test]
    fn every_byte_arrives_and_no_other_changes() {
        let arena = Arena::anonymous(3, true).unwrap();
        let source: Vec<u8> = (0..3 * 4096u32).map(|i| ((i * 31) >> 3) as u8).collect();
        for (offset, length) in [(0, 4096), (1, 4096), (28, 4096), (63, 64), (5, 2048)] {
            let [middle, whole] = [1, 0].map(|frame| NonNull::new(arena.frame(FrameId(frame))).unwrap());
            // SAFETY: the arena's three frames, which nothing else refers to.
            unsafe { whole.write_bytes(7, 3 * 4096) };
            // SAFETY: the arena's middle frame, which nothing else refers to.
            unsafe { copy(&source[offset..offset + length], middle) };
            settle();
            // SAFETY: the arena's three frames, which nothing writes to now.
            let found = unsafe { core::slice::from_raw_parts(whole.as_ptr(), 3 * 4096) };
            assert_eq!(found[4096..4096 + length], source[offset..offset + length]);
            assert!(found[..4096].iter().chain(&found[4096 + length..]).all(|&byte| byte == 7));
        }
    }

    #[test]
    #[should_panic(expected = "whole lines")]
    fn a_target_between_lines_is_a_bug() {
        let arena = Arena::anonymous(1, true).unwrap();
        // SAFETY: within the arena's only frame.
        let target = NonNull::new(unsafe { arena.frame(FrameId(0)).add(16) }).unwrap();
        // SAFETY: as above; nothing else refers to it.
        unsafe { copy(&[0; 64], target) };
    }
}
