//! Where an arriving payload is to lie.

use crate::arena::Arena;
use crate::memory::Mapping;
use crate::nontemporal_copy;
use forebay_core::types::{BLOCK_BYTES, FrameId};
use std::ptr::NonNull;
use std::sync::Arc;

/// Frames for one payload: a block each, in order. Taken by the receiver for this payload alone: until it is delivered or
/// the frames are given back, the link writes into them, and nobody else may touch them.
#[derive(Debug)]
pub struct Place {
    pub(super) frames: Vec<FrameId>,
    targets: Vec<NonNull<u8>>,
    /// Keeps what the targets point into.
    _mapping: Arc<Mapping>,
}

impl Place {
    /// A place of these frames, one block of the payload in each.
    pub fn new(arena: &Arena, frames: Vec<FrameId>) -> Place {
        let target = |frame: &FrameId| NonNull::new(arena.frame(*frame)).expect("a mapping is never at 0");
        let targets = frames.iter().map(target).collect();
        Place { frames, targets, _mapping: arena.mapping().clone() }
    }

    pub(super) fn put(&mut self, index: usize, block: &[u8]) {
        assert_eq!(block.len() as u64, BLOCK_BYTES);
        // SAFETY: the target is a frame: a block long, aligned, and alive with its mapping; it was taken for this payload
        // alone, and the channel settles before anybody is told of it.
        unsafe { nontemporal_copy::copy(block, self.targets[index]) };
    }
}
