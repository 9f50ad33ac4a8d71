//! (in work) public face of a volume.
use crate::api::*;
use crate::format::{Superblock, TierLayout};
use crate::status::*;
use crate::types::*;
use alloc::vec::Vec;

/// How a volume is set up. Bounds are counts and bytes; their sum is the volume's memory.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Identity and layout of the tier; for an existing tier, as decoded from its block 0.
    pub superblock: Superblock,
    /// The tier is new: core formats it. Otherwise it is recovered.
    pub fresh: bool,
    /// Size for a fresh tier; an existing one knows its size.
    pub size_bytes: u64,
    /// Requested policy.
    pub policy: Policy,
    /// Frames of the arena. Memory tier: exactly the layout's payload blocks (frame i is payload block i).
    /// Flash tier: staging and read cache.
    pub frames: u32,
    /// Backing writes and zeros must be multiples of this: 512 or 4096.
    pub backing_align: u32,
    /// Backing operations in flight at one time.
    pub backing_depth_max: u32,
    /// Largest single backing write.
    pub backing_write_bytes_max: u32,
    /// Bytes issued to the backing between two syncs at most.
    pub destage_round_bytes_max: u64,
    /// Dirty writes younger than this wait for more to merge with (write-back only).
    pub destage_delay: Duration,
}

/// The kinds of tier as seen by a configuration.
pub type TierConfig = TierLayout;

/// Extent for block status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// Reads as zeros, known without asking the backing.
    pub zero: bool,
    /// Not yet durable in the backing.
    pub dirty: bool,
    /// In the read cache or the log's memory.
    pub cached: bool,
}

/// One volume.
pub struct Volume {}

#[allow(unused_variables, missing_docs)]
impl Volume {
    /// Begins: poll effects, feed events, until `status().phase` is `Serving`.
    pub fn new(config: VolumeConfig, now: Instant) -> Volume {
        todo!()
    }
    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        todo!()
    }
    /// Term of this owner; payload checksums of writes are computed with it. Known from `Serving` on.
    pub fn term(&self) -> Term {
        todo!()
    }
    /// Checks a request's bounds before it is handed in.
    pub fn admissible(&self, request: &Request) -> Result<(), RequestError> {
        todo!()
    }
    /// Takes frames for a payload to be received; false (and none taken) when there are not enough now:
    /// wait for `Effect::FramesFree`.
    pub fn take_frames(&mut self, count: u32, into: &mut Frames) -> bool {
        todo!()
    }
    /// Gives back frames whose request never came.
    pub fn return_frames(&mut self, frames: &[FrameId]) {
        todo!()
    }
    /// Something happened. Cheap; decisions that profit from seeing several events wait for `settle`.
    pub fn handle(&mut self, now: Instant, event: Event) {
        todo!()
    }
    /// After a batch of events, or when a timeout is due: seal log batches, destage, admit waiting writes.
    pub fn settle(&mut self, now: Instant) {
        todo!()
    }
    /// Next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        todo!()
    }
    /// When `settle` must be called at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        todo!()
    }
    /// What it shows of itself.
    pub fn status(&self, now: Instant) -> Status {
        todo!()
    }
    /// Extents from `offset` on, at most `max` of them, for block status.
    pub fn extents(&self, offset: u64, length: u64, max: usize) -> Vec<Extent> {
        todo!()
    }
    /// Checks every invariant of the state; for tests and simulation.
    pub fn validate(&self) {
        todo!()
    }
}
