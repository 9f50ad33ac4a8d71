//! The seam between a volume's decisions and the world: what happened ([`Event`]) and what must be done ([`Effect`]).
//!
//! Rules for the executor (`forebay-io` with `forebay-node`, or the simulator):
//! - Effects are taken in the order in which they are polled. Those without an [`OpId`] take effect at once, before
//!   the next is polled; those with one may complete in any order, each by exactly one [`Event::Done`].
//! - Core orders what depends on each other: it asks for the second only when the first is done. The executor adds no
//!   barrier of its own and may run everything it has been given at the same time.
//! - A frame named in an effect with an `OpId` stays untouched by core until that operation is done; a frame named in
//!   a reply until [`Event::Sent`].
//! - A failed operation is reported, never retried: what to do is core's decision.

use crate::status::{ControlError, DestageMode, Policy};
use crate::types::*;
use alloc::vec::Vec;
use smallvec::SmallVec;

/// What a client asks for. Offsets and lengths are bytes, any alignment, already checked against the volume's size
/// at the time of arrival by [`crate::Volume::admissible`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read bytes.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes, 1 to [`REQUEST_BYTES_MAX`].
        length: u32,
    },
    /// Write bytes that already lie in frames taken by [`crate::Volume::take_frames`].
    Write {
        /// First byte.
        offset: u64,
        /// Bytes, 1 to [`REQUEST_BYTES_MAX`].
        length: u32,
        /// One entry for each block that the range touches.
        payload: Payloads,
        /// Complete only when this write survives what a flush survives.
        fua: bool,
    },
    /// Make a range read as zeros, in O(extents).
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes; up to the whole volume.
        length: u64,
        /// The backing may deallocate the range (a trim, or write-zeroes without NO_HOLE).
        hole: bool,
        /// As for a write.
        fua: bool,
    },
    /// The client's barrier: everything replied to before it survives what the policy promises for a flush.
    Flush,
    /// Bring a range into the read cache.
    Prefetch {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u32,
    },
}

/// Why an operation of the executor failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoError {
    /// The device or file reported an error (EIO and the like).
    Failed,
    /// No room left on the device (ENOSPC, EDQUOT).
    NoSpace,
    /// The device is gone (ENODEV, ESTALE, connection lost).
    Gone,
    /// The bytes read do not match the checksum that was given.
    Checksum,
    /// The device does not support the operation (a hole or zero request).
    Unsupported,
}

/// What an operation brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Ok,
    /// Done; the bytes asked for by [`Effect::TierScan`].
    Bytes(Vec<u8>),
    /// Done; the checksum of the whole block merged by [`Effect::Merge`].
    Merged(u32),
    /// Not done, or done in part.
    Failed(IoError),
}

/// A command of the operator or the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Ask for another policy. Replied to at once; the effective policy follows, see [`crate::status`].
    SetPolicy(Policy),
    /// Ask for another way of destage. Replied to at once; the effective one follows, see [`crate::status`].
    SetDestage(DestageMode),
    /// Destage everything that is in the log now; replied to when it is durable in the backing. Writes go on.
    Drain,
    /// As `Drain`, then keep the backing complete while it moves: write-through until a release, whatever policy is
    /// requested. Replied to when all that the tier alone held is in the backing.
    DrainThrough,
    /// As `Drain`, then leave the backing unchanged for at most the given time.
    Hold(Duration),
    /// End a hold, or what `DrainThrough` began. Fails when the hold had ended before, so that a script knows its backup is void,
    /// and when it had not begun: it does not begin then.
    Release,
    /// Grow to a new size in bytes; the caller has grown the backing.
    Resize(u64),
    /// Change how long the log may take to drain; 0 = as long as it has room. Replied to at once.
    SetDrainMax(Duration),
    /// Refuse new requests, finish those taken, make the log durable and, if asked, empty it into the backing.
    ///
    /// Requests that only the backing can finish are waited for while it works, and not for long: when it fails, or after
    /// [`crate::STOP_PATIENCE`], they are abandoned. Each is answered by [`RequestError::Shutdown`], which leaves open
    /// whether it took effect; a write that is in the log does so at the next start. After the answer to this command
    /// nothing is done any more, whatever operations are still under way.
    Stop {
        /// Destage everything first and mark the tier clean.
        drain: bool,
    },
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client's request has arrived whole.
    Request {
        /// Names it in the reply.
        id: RequestId,
        /// What is asked.
        request: Request,
    },
    /// The reply's frames have left, or the client is gone: the pieces are handed back.
    Sent(Pieces),
    /// The client hung up. Requests of it that still wait are dropped, never executed, and not answered. A write whose
    /// edge is being merged goes on, and its range stays locked until then: what comes later comes after it.
    Hangup(Vec<RequestId>),
    /// An operation has ended.
    Done {
        /// The operation.
        op: OpId,
        /// How.
        outcome: Outcome,
    },
    /// The backing is locked by this process, so no write of an earlier one can land any more: destage may begin.
    BackingReady,
    /// An operator's command.
    Control {
        /// Names it in the answer.
        id: ControlId,
        /// What is asked.
        command: Control,
    },
}

/// Where a piece of a read's answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A frame, from this byte on.
    Frame(FrameId, u16),
    /// Zeros that no memory holds: a hole.
    Zero,
}

/// Neighbouring bytes of a read's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where they lie.
    pub source: Source,
    /// How many; within one frame, or any number of zeros.
    pub length: u32,
}

/// A read's answer in order.
pub type Pieces = SmallVec<[Piece; 2]>;

/// Why a request failed, in the words of the client's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// EIO.
    Io,
    /// ENOSPC.
    NoSpace,
    /// EINVAL: out of range or malformed.
    Invalid,
    /// ESHUTDOWN.
    Shutdown,
}

/// The bytes that a frame must hold, checked by the executor where an effect carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// Address that seeded the checksum.
    pub block: BlockIndex,
    /// Sectors that were written; the others are zero.
    pub mask: SectorMask,
    /// Term of the first writing.
    pub term: Term,
    /// Expected [`crate::format::payload_checksum`].
    pub checksum: u32,
}

/// A stretch of one frame that goes to the backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The frame.
    pub frame: FrameId,
    /// First byte within the frame.
    pub from: u16,
    /// Bytes.
    pub length: u16,
    /// The whole frame is verified against this before it leaves; a mismatch fails the operation with
    /// [`IoError::Checksum`] and nothing is written.
    pub check: Option<Check>,
}

/// Frames with what each must be.
pub type Checks = SmallVec<[(FrameId, Check); 1]>;

/// Parts of one backing write, adjacent in the backing.
pub type Parts = SmallVec<[Part; 2]>;

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    // --- client ---
    /// Answer a request.
    Reply {
        /// Which.
        id: RequestId,
        /// For a read: the pieces, to be handed back by [`Event::Sent`]; empty for all others.
        result: Result<Pieces, RequestError>,
    },
    /// Frames have become free: every client that was refused by `take_frames` or `may_hold` asks again, or is withdrawn.
    FramesFree,
    /// Answer a command.
    Answer {
        /// Which.
        id: ControlId,
        /// How it ended.
        result: Result<(), ControlError>,
    },

    // --- tier ---
    /// Memory tier only: store a 32-byte descriptor at this index of the descriptor table. Takes effect at once and
    /// in order (one thread, release stores): a later descriptor is never there without an earlier one.
    Describe {
        /// Index in the table.
        index: u32,
        /// [`crate::format::Descriptor`] encoded.
        bytes: [u8; 32],
    },
    /// Write `head`, then the frames, to neighbouring tier blocks.
    TierWrite {
        /// Completion.
        op: OpId,
        /// First tier block.
        at: TierBlock,
        /// Whole blocks of metadata.
        head: Vec<u8>,
        /// Payload blocks after it.
        frames: Vec<FrameId>,
    },
    /// Make every completed tier write durable in the device.
    TierSync {
        /// Completion.
        op: OpId,
    },
    /// Read neighbouring payload blocks and verify each; one that does not match fails all with [`IoError::Checksum`].
    TierRead {
        /// Completion.
        op: OpId,
        /// First tier block.
        at: TierBlock,
        /// Where to put each block, and what it must be.
        frames: Checks,
    },
    /// Read metadata blocks: answered by [`Outcome::Bytes`].
    TierScan {
        /// Completion.
        op: OpId,
        /// First tier block.
        at: TierBlock,
        /// How many.
        blocks: u32,
    },
    /// The tier may forget these blocks (flash trim); a hint, no completion.
    TierDiscard {
        /// First tier block.
        at: TierBlock,
        /// How many.
        blocks: u32,
    },

    // --- backing ---
    /// Read whole blocks into frames; past the end of the backing they read as zeros.
    BackingRead {
        /// Completion.
        op: OpId,
        /// First block.
        at: BlockIndex,
        /// One frame for each block.
        frames: Frames,
    },
    /// Write neighbouring bytes. Completed = the backing has taken them (a stable or O_DIRECT write).
    BackingWrite {
        /// Completion.
        op: OpId,
        /// First byte, a multiple of the backing's alignment.
        offset: u64,
        /// The bytes, in order; a multiple of the alignment together, except at the end of the volume.
        parts: Parts,
    },
    /// Make a range read as zeros.
    BackingZero {
        /// Completion.
        op: OpId,
        /// First byte, a multiple of the backing's alignment.
        offset: u64,
        /// Bytes, likewise.
        length: u64,
        /// May deallocate.
        hole: bool,
    },
    /// Make every completed backing write durable.
    BackingSync {
        /// Completion.
        op: OpId,
    },

    // --- journal beside the backing ---
    /// Write `head`, then the frames, to neighbouring 4 KiB blocks of the journal.
    JournalWrite {
        /// Completion.
        op: OpId,
        /// First block.
        at: u32,
        /// Whole blocks of metadata; may be empty.
        head: Vec<u8>,
        /// Payload blocks after it.
        frames: Vec<FrameId>,
        /// What each frame must hold: verified before anything is written; a mismatch fails the operation with
        /// [`IoError::Checksum`].
        checks: Vec<Check>,
    },
    /// Make every completed journal write durable.
    JournalSync {
        /// Completion.
        op: OpId,
    },

    // --- memory, at once ---
    /// Complete a block: `target` holds new bytes in `[from, to)`; fill the rest from `base` (a frame, or zeros) and
    /// answer the checksum of the whole block by [`Outcome::Merged`]. The bytes are merged at once and in order, as with
    /// effects that have no `OpId`; only the answer may come later.
    Merge {
        /// Completion; the executor may send it before anything else is polled.
        op: OpId,
        /// Where the base came from: each frame is verified first, or memory that was damaged would get a valid
        /// checksum here. A mismatch fails the operation with [`IoError::Checksum`].
        checks: Checks,
        /// Frame to complete.
        target: FrameId,
        /// Whole old block.
        base: Source,
        /// First new byte.
        from: u16,
        /// One past the last new byte.
        to: u16,
        /// Address for the checksum; the mask is full.
        block: BlockIndex,
        /// Term for the checksum.
        term: Term,
    },
    /// Copy bytes between frames (or zeros into one) at the same place.
    Copy {
        /// From here; an offset in it is ignored, the place is `start`.
        source: Source,
        /// To here.
        target: FrameId,
        /// First byte in both.
        start: u16,
        /// Bytes.
        length: u16,
    },
}
