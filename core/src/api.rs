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
//!
//! What nodes tell each other about a volume ([`Message`]) goes to two parties. What is about the log ([`LogMessage`]) the
//! **volume** handles and sends, what is about who may serve (`OwnershipMessage`) **ownership**; a refusal goes to both. Ownership puts
//! the volume's [`Figures`] into `Sealed`. The volume keeps what must outlive the
//! process: the highest term and epoch seen (S1, C3) are in its tier's checkpoint, so ownership asks by
//! [`Order::Remember`] and answers a `Seal` only after [`Report::Remembered`].

use crate::cluster::{Epoch, Flushed, Incarnation, LogState, Mark, NodeId};
use crate::message::{Envelope, LogMessage, Message, Refusal};
use crate::status::{ControlError, DestageMode, Policy, Unrest};
use crate::types::*;
use alloc::boxed::Box;
use alloc::vec::Vec;
use smallvec::SmallVec;

/// What a client asks for. Offsets and lengths are bytes, any alignment, already checked against the volume's size
/// at the time of arrival by [`crate::Volume::admissible`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read a range: of each sector the newest content, wherever that lies.
    Read {
        /// First byte, counted from the volume's start.
        offset: u64,
        /// Bytes, 1 to [`REQUEST_BYTES_MAX`].
        length: u32,
    },
    /// Write bytes that already lie in frames taken by [`crate::Volume::take_frames`].
    Write {
        /// First byte, counted from the volume's start.
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
        /// First byte, counted from the volume's start.
        offset: u64,
        /// Bytes; up to the whole volume.
        length: u64,
        /// The backing may deallocate the range (a trim, or write-zeroes without NO_HOLE).
        hole: bool,
        /// As for a write: complete only when it survives what a flush survives.
        fua: bool,
    },
    /// The client's barrier: everything replied to before it survives what the policy promises for a flush.
    Flush,
    /// Bring a range into the read cache.
    Prefetch {
        /// First byte, counted from the volume's start.
        offset: u64,
        /// Bytes from there on.
        length: u32,
    },
}

/// How an operation ended, and what it brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, and there is nothing more to tell.
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
    /// Grow to a new size in bytes; the caller has grown the backing. In a cluster answered after [`Order::Size`].
    Resize(u64),
    /// Change how long the log may take to drain; 0 = as long as it has room. Replied to at once.
    SetDrainMax(Duration),
    /// Refuse new requests, finish those taken, make the log durable and, if asked, empty it into the backing.
    ///
    /// Requests that only the backing can finish are waited for while it works, and not for long: when it fails, or after
    /// [`crate::STOP_PATIENCE`], they are abandoned. Each is answered by [`RequestError::Shutdown`], which leaves open
    /// whether it took effect; a write that is in the log does so at the next start. After the answer to this command
    /// nothing is done any more, whatever operations are still under way. Fails when the tier has failed with something in its log
    /// that was not synced, which a power cut may still take; with a drain also when the tier has failed before the log was empty.
    Stop {
        /// Destage everything first and mark the tier clean.
        drain: bool,
    },
}

/// Something that happened, told to the volume by the executor.
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
        /// As the effect named it; each comes once.
        op: OpId,
        /// How it ended, and what it brought.
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
    /// A message of another node about this volume's log, which ownership has admitted. The executor has made sure that who sent
    /// it is `envelope.from.node`.
    Peer {
        /// Who, whom, which term.
        envelope: Envelope,
        /// What it says of the log.
        message: LogMessage,
        /// For each record of an [`LogMessage::Append`] or [`LogMessage::Cached`] that has a payload, in order: the frame, taken by
        /// [`crate::Volume::take_frames_for_peer`], that holds it, and the checksum that the executor computed of those bytes
        /// with the block, mask and term of the record's descriptor. Core compares it with the descriptor's own (S4).
        payload: Vec<Payload>,
    },
    /// A node did not take what this volume sent. The executor has made sure which, as for a message.
    Refused {
        /// Who, whom, which term.
        envelope: Envelope,
        /// Why the node did not take it.
        why: Refusal,
    },
    /// What was under way to this node may be lost: its last channel has died, or it has begun a new session. The volume
    /// sends again from where the node was last heard to be.
    Interrupted(NodeId),
    /// Ownership has decided something that the volume must follow.
    Ownership(Order),
}

/// What ownership tells the volume. A volume of a cluster begins as a follower, and is told who it is by these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The node is about to ask for ownership, and what the present owner sends is refused from here on (T2). Not written
    /// down: whoever finds itself owner after a restart gives this order again.
    Seal,
    /// It was not to be: what the owner of the term sends is taken again (T2).
    Unseal,
    /// This term and epoch are in the record, or in a message of somebody who owns the term: nothing older is listened to
    /// from here on. Answered by [`Report::Remembered`] when that is durable. No effect where higher ones are known.
    Remember {
        /// Of the record or message.
        term: Term,
        /// Number of the set of members that goes with the term.
        epoch: Epoch,
    },
    /// The record names this node as the owner of a term (T3, T4).
    Own(Own),
    /// A change of the record is about to be asked for. From here on whatever asks for every member asks for these as well
    /// (C4). Several may be undecided at one time.
    ///
    /// A change that adds a member, that lets the log become [`LogState::Through`], or by which flushes become
    /// [`Flushed::Durable`], is sent to the coordinator only after
    /// [`Report::Covered`]: a transaction may take effect at once, and whoever it names must have all that was acknowledged.
    Propose {
        /// Names it in the report. No two proposals of a process have the same, as those may that follow the same record.
        proposal: u64,
        /// Number of the set that it would make.
        epoch: Epoch,
        /// The members of that set, own node included.
        members: Vec<Incarnation>,
        /// Its log: if not [`LogState::Needed`], the backing is asked from here on, too.
        log: LogState,
        /// What it says of flushes: if [`Flushed::Durable`], that is promised from here on.
        flushed: Flushed,
    },
    /// The record of the own term is so, and no proposal is open any more.
    Decide {
        /// Number of the set of members.
        epoch: Epoch,
        /// The members, own node included.
        members: Vec<Incarnation>,
        /// Only with [`LogState::Needed`] is anything acknowledged that the backing has not got (A5).
        log: LogState,
        /// With [`Flushed::Durable`] no flush is answered for less (A2).
        flushed: Flushed,
    },
    /// Bring a node up to date, which is no member (S6, S7). Its tier was formatted for that.
    Learn(Incarnation),
    /// A learner is given up.
    Forget(NodeId),
    /// Before a hand-over or a release: what is under way is waited for while requests are carried out, then requests are held
    /// and what came meanwhile is waited for, for two seconds at most; [`Report::Quiet`] or [`Report::NotQuiet`] follows.
    Quiesce {
        /// The member that is to hold everything. None: nobody is, and the log is emptied into the backing first (A5).
        to: Option<NodeId>,
    },
    /// It was not to be: requests are taken again.
    Resume,
    /// The owner may answer reads and begin writes to the backing before this time, and not at or after it (L3).
    Lease {
        /// By the clock of the events.
        until: Instant,
    },
    /// The record has this size, and so have the backing and every member: requests up to there are taken (A7).
    Size(u64),
    /// No former owner can write to the backing any more, for every term in the record's `unfenced`, and that has room for
    /// this owner (T8): the pinned ranges are written once more, then [`Report::PinsEnded`] follows (T6).
    Proven,
    /// Followed by [`Order::StepDown`]: this node has handed over, so another owns the volume from this term on. What is
    /// clean in the cache is the newest there is (K1).
    HandedOver(Term),
    /// The node is not the owner (any more): nothing is answered from here on, not even errors, and no write to the backing
    /// or the journal is begun (T9). What is under way is waited for: then [`Report::BackingQuiet`] follows, and the
    /// volume has stopped. To follow, the tier is opened anew.
    StepDown,
}

/// The beginning of a term, for its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// The new term, of which this node is the owner.
    pub term: Term,
    /// Number of its set of members.
    pub epoch: Epoch,
    /// Of that set, own node included. All the others have been sealed, except those that ownership is about to drop.
    pub members: Vec<Incarnation>,
    /// What the record says of the log (A5).
    pub log: LogState,
    /// What the record says of flushes (A2).
    pub flushed: Flushed,
    /// The greatest watermark of the sealed members, and of the own mark (T3).
    pub watermark: Lsn,
    /// The sealed member of the former term with the longest log, and how far that goes, if it is longer than the own:
    /// what it has more is fetched before the tail is fixed (T3).
    pub fetch: Option<(Incarnation, Lsn)>,
    /// Terms of the record's `unfenced`: owners that may still write to the backing (T5). None: nothing is pinned.
    pub unfenced: Vec<Term>,
    /// Who has handed over to this node, as far as it knows: its read cache is asked before the backing (K1).
    pub former: Option<Incarnation>,
}

/// Why a peer is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerFailure {
    /// Its oldest open message has made no progress for the time of [`crate::VolumeConfig`].
    Stalled,
    /// It moves, and for seconds it has held nothing in the time that the others, or its bytes on a slow link, take.
    Slow,
    /// It refused for this reason.
    Refused(crate::message::Refusal),
}

/// What the volume tells ownership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// [`Order::Remember`] is durable, and so is every higher term seen meanwhile. [`crate::Volume::figures`] is now what
    /// a `Sealed` has to say.
    Remembered {
        /// Highest term that was seen.
        term: Term,
        /// The highest seen of that term.
        epoch: Epoch,
    },
    /// Every member has answered `Begin` and holds all of the tail: requests are answered from here on (T4).
    Agreed {
        /// Term of the owner that reports.
        term: Term,
    },
    /// A member must be left out, by a committed change and before anything is acknowledged without it (A3). A learner with
    /// this fate has been given up. Told again after [`Order::Decide`] if it is still so.
    PeerFailed {
        /// The member or learner, by its tier.
        peer: Incarnation,
        /// Why it is of no use any more.
        why: PeerFailure,
    },
    /// The learner may be proposed as a member (S6). Told again after [`Order::Decide`] if it is still so.
    LearnerReady {
        /// The learner, by its tier.
        peer: Incarnation,
    },
    /// After [`Order::Propose`]: all that has been acknowledged is held by every member of that set, and where its log is
    /// not needed the backing has synced it. So it stays, because nothing is acknowledged without them any more (C4).
    Covered {
        /// Which one: by the time that it is heard, another may have taken its place.
        proposal: u64,
    },
    /// After [`Order::Quiesce`]: nothing is under way to the backing or the journal, the backing is synced, the journal
    /// erased, and the member holds everything (or the log is empty).
    Quiet,
    /// After [`Order::Quiesce`]: requests were held as long as clients can be kept waiting, and this has not ended. They are held
    /// until [`Order::Resume`].
    NotQuiet(Unrest),
    /// Somebody knows of a higher term: the record is to be read. An owner acknowledges nothing more meanwhile.
    Outdated {
        /// The term that somebody knows of.
        term: Term,
        /// The epoch that goes with it.
        epoch: Epoch,
    },
    /// Every member's checkpoint, and the backing, have room for this size, in bytes (A7): the record may have it.
    Grown(u64),
    /// The pinned ranges have been written again, and nothing is pinned any more (T6): `unfenced` may be emptied.
    PinsEnded,
    /// The tier has failed: an owner acknowledges nothing more.
    TierFailed {
        /// Alone an owner goes on as a single node does. With other members it answers nothing more, not even errors.
        answers: bool,
    },
    /// Others have heard that this log held more than it does (S10): an owner acknowledges nothing more.
    WentBack,
    /// After [`Order::StepDown`]: the last write to backing and journal has ended, so their locks may go (T9).
    BackingQuiet,
}

/// How far a volume of a cluster is, for ownership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Highest term seen; of an owner its own. On flash: durably.
    pub term: Term,
    /// Of that term. On flash: durably.
    pub epoch: Epoch,
    /// The term's `Begin` has been answered (S9).
    pub agreed: bool,
    /// Everything up to here is in the log of this process.
    pub accepted: Lsn,
    /// ... would be there after its death.
    pub held: Lsn,
    /// ... after a loss of power; none: the tier is in memory.
    pub synced: Option<Lsn>,
    /// ... is held by every member, as far as is known here.
    pub committed: Lsn,
    /// The newest mark; of a follower on flash: durably.
    pub mark: Mark,
    /// Owner: every member has answered `Begin` and holds the tail (T4).
    pub serving: bool,
    /// Owner: nothing acknowledged depends on a log: all that logs alone held is synced in the backing, and nothing is
    /// pinned (A5).
    pub drained: bool,
    /// Owner: writes are to be acknowledged without the backing, and there are copies enough: `log` is to become needed
    /// first (A5).
    pub wants_log: bool,
    /// Owner: what flushes are to promise by what is asked for, with the members and learners of now (A2). None: it is not
    /// known yet.
    pub wants_flushed: Option<Flushed>,
    /// The tier has failed.
    pub tier_failed: bool,
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
    /// Where the bytes lie.
    pub source: Source,
    /// How many; within one frame, or any number of zeros.
    pub length: u32,
}

/// A read's answer in order.
pub type Pieces = SmallVec<[Piece; 2]>;

/// Why a request failed, in the words of the client's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// EIO: what it needs, a device or memory, has failed.
    Io,
    /// ENOSPC: a write or zeroing would reach beyond the end of the volume.
    NoSpace,
    /// EINVAL: out of range or malformed.
    Invalid,
    /// ESHUTDOWN: refused by a stop, or abandoned by it: then it is open whether it took effect.
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
    /// What [`crate::format::payload_checksum`] must give for the frame.
    pub checksum: u32,
}

/// A stretch of one frame that goes to the backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where the bytes lie; pinned until the operation is done.
    pub frame: FrameId,
    /// First byte within the frame.
    pub from: u16,
    /// Bytes from there on, within the frame.
    pub length: u16,
    /// The whole frame is verified against this before it leaves; a mismatch fails the operation with
    /// [`IoError::Checksum`] and nothing is written.
    pub check: Option<Check>,
}

/// Frames with what each must be.
pub type Checks = SmallVec<[(FrameId, Check); 1]>;

/// Parts of one backing write, adjacent in the backing.
pub type Parts = SmallVec<[Part; 2]>;

/// A message for a peer, in [`Effect::Send`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Completion, there if and only if there are frames: nothing reads them any more. It says nothing of an arrival.
    pub op: Option<OpId>,
    /// Who, whom, which term.
    pub envelope: Envelope,
    /// What it tells, without the payload.
    pub message: Message,
    /// For each record that has a payload, in order: where it lies. The executor gives the records of a
    /// [`LogMessage::Cached`] their checksums ([`crate::wire::seal_cached`]).
    pub frames: Vec<FrameId>,
}

// Effects are moved several times, a few for each request: a move of more than 128 bytes is a call.
const _: () = assert!(size_of::<Effect>() <= 128);

/// Something that the executor must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    // --- client ---
    /// Answer a request.
    Reply {
        /// As [`Event::Request`] named it.
        id: RequestId,
        /// For a read: the pieces, to be handed back by [`Event::Sent`]; empty for all others.
        result: Result<Pieces, RequestError>,
    },
    /// Frames have become free: every client that was refused by `take_frames` or `may_hold` asks again, or is withdrawn.
    FramesFree,
    /// Answer a command.
    Answer {
        /// As [`Event::Control`] named it.
        id: ControlId,
        /// How it ended.
        result: Result<(), ControlError>,
    },

    // --- tier ---
    /// Memory tier only: store a 32-byte descriptor at this index of the descriptor table. Takes effect at once and
    /// in order (one thread, release stores): a later descriptor is never there without an earlier one.
    Describe {
        /// Index of the descriptor in the table.
        index: u32,
        /// A [`crate::format::Descriptor`], encoded.
        bytes: [u8; 32],
    },
    /// Write `head`, then the frames, to neighbouring tier blocks.
    TierWrite {
        /// Completion: the device has taken it all; durable only by a [`Effect::TierSync`] that begins later.
        op: OpId,
        /// First block, counted from the tier's start.
        at: TierBlock,
        /// Whole blocks of metadata.
        head: Vec<u8>,
        /// Payload blocks after it.
        frames: Vec<FrameId>,
    },
    /// Make every completed tier write durable in the device. Never two at one time: an error that the kernel tells to one of them
    /// would be missed by the other.
    TierSync {
        /// Completion: every tier write that had completed when this was asked for is durable.
        op: OpId,
    },
    /// Read neighbouring payload blocks and verify each; one that does not match fails all with [`IoError::Checksum`].
    TierRead {
        /// Completion: every frame holds its block, verified.
        op: OpId,
        /// First block, counted from the tier's start.
        at: TierBlock,
        /// Where to put each block, and what it must be.
        frames: Checks,
    },
    /// Read metadata blocks: answered by [`Outcome::Bytes`].
    TierScan {
        /// Completion, by [`Outcome::Bytes`].
        op: OpId,
        /// First block, counted from the tier's start.
        at: TierBlock,
        /// How many blocks of 4096 bytes.
        blocks: u32,
    },

    // --- backing ---
    /// Read whole blocks into frames; past the end of the backing they read as zeros.
    BackingRead {
        /// Completion: every frame holds its block.
        op: OpId,
        /// First block, counted from the volume's start.
        at: BlockIndex,
        /// One frame for each block.
        frames: Frames,
    },
    /// Write neighbouring bytes. Completed = the backing has taken them (a stable or O_DIRECT write).
    BackingWrite {
        /// Completion: the backing has taken all of it; durable only by a [`Effect::BackingSync`] that begins later.
        op: OpId,
        /// First byte, a multiple of the backing's alignment.
        offset: u64,
        /// The bytes, in order; a multiple of the alignment together, except at the end of the volume.
        parts: Parts,
    },
    /// Make a range read as zeros.
    BackingZero {
        /// Completion: the range reads as zeros; durable only by a [`Effect::BackingSync`] that begins later.
        op: OpId,
        /// First byte, a multiple of the backing's alignment.
        offset: u64,
        /// Bytes; a multiple of the alignment, except at the end of the volume.
        length: u64,
        /// The backing may deallocate the range instead of storing zeros.
        hole: bool,
    },
    /// Make every completed backing write durable.
    BackingSync {
        /// Completion: every backing write and zeroing that had completed when this was asked for is durable.
        op: OpId,
    },

    // --- journal beside the backing ---
    /// Write `head`, then the frames, to neighbouring 4 KiB blocks of the journal.
    JournalWrite {
        /// Completion: the journal has taken it all; durable only by a [`Effect::JournalSync`] that begins later.
        op: OpId,
        /// First block of 4 KiB, counted from the journal's start.
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
        /// Completion: every journal write that had completed when this was asked for is durable.
        op: OpId,
    },

    // --- between nodes ---
    /// Send a message to a peer: over any channel, in any order, as often as it takes. It may be lost. In a box: it is
    /// much longer than the others, and each of them would be moved at its length.
    Send(Box<Sending>),
    /// Tell ownership, at once and in order.
    Report(Report),

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
        /// Frame that holds the new bytes, and the whole block in the end.
        target: FrameId,
        /// The whole block as it was before.
        base: Source,
        /// Byte of the block at which the new ones begin.
        from: u16,
        /// One past the last new byte.
        to: u16,
        /// Address for the checksum; the mask is full.
        block: BlockIndex,
        /// Term that seeds the checksum.
        term: Term,
    },
    /// Copy bytes between frames (or zeros into one) at the same place.
    Copy {
        /// From here; an offset in it is ignored, the place is `start`.
        source: Source,
        /// Frame that receives the bytes.
        target: FrameId,
        /// First byte of the stretch, the same in both frames.
        start: u16,
        /// Bytes to copy; none lies beyond the end of a frame.
        length: u16,
    },
}
