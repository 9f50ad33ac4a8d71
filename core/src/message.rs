//! What nodes tell each other about a volume. `docs/protocol.md` states the rules; the names here are its names.
//!
//! These are plain values. Who decides by them: `ownership` (who may serve) and `volume` (the stream). How they look as
//! bytes on a wire: `wire`.

use crate::cluster::*;
use crate::format::Descriptor;
use crate::types::*;
use alloc::vec::Vec;

/// What every message begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Identity of the volume that it is about.
    pub volume: [u8; 16],
    /// Term in which the sender speaks.
    pub term: Term,
    /// Epoch of that term by which the sender speaks.
    pub epoch: Epoch,
    /// Who sends, with its tier.
    pub from: Incarnation,
    /// Whom it is meant for (S2).
    pub to: Incarnation,
}

/// Room in a tier, for admission at the owner (S8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    /// Records with a payload block.
    pub blocks: u32,
    /// Records without a payload block.
    pub ranges: u32,
}

/// Blocks of one [`LogMessage::Ask`] at most: an answer is a message like those of the stream, which it must not hold up.
pub const ASK_BLOCKS_MAX: u32 = 64;

/// Why a message was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// A higher term has been seen (S1).
    OldTerm,
    /// Not the incarnation that was meant (S2).
    OtherIncarnation,
    /// The log is longer than the term's tail (S9).
    BeyondTail,
    /// The tier has no room.
    NoRoom,
    /// A record lies beyond the size that is known here (A7).
    BeyondSize,
    /// The tier has failed.
    TierFailed,
    /// Nothing is known of this volume here.
    UnknownVolume,
}

/// How far a peer is, as it tells the owner; cumulative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Received without a gap up to here.
    pub accepted: Lsn,
    /// Would be there after the death of the process.
    pub held: Lsn,
    /// Would be there after a loss of power; none: the tier is in memory, nothing would.
    pub synced: Option<Lsn>,
    /// The mark it has; on flash: durably.
    pub mark: MarkNumber,
    /// Room that is left in its tier.
    pub room: Room,
    /// Where it runs.
    pub host: Host,
}

/// What nodes tell each other about a volume. On the wire it is one list of kinds; here it says who handles what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// About the log: handled by the volume, after ownership has admitted it.
    Log(LogMessage),
    /// About who may serve: handled by ownership.
    Ownership(OwnershipMessage),
    /// To whoever sent what cannot be taken, of either; so both handle it.
    Refused {
        /// Why it cannot be taken.
        why: Refusal,
    },
}

impl From<LogMessage> for Message {
    fn from(message: LogMessage) -> Message {
        Message::Log(message)
    }
}

impl From<OwnershipMessage> for Message {
    fn from(message: OwnershipMessage) -> Message {
        Message::Ownership(message)
    }
}

/// What the volumes of two nodes tell each other about the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogMessage {
    /// Owner to peer, first of a term, and to each learner.
    Begin {
        /// Where the owner's log ended when the term began.
        tail: Lsn,
        /// Every member holds everything up to here.
        committed: Lsn,
        /// From here on a learner misses nothing (S6).
        whole_from: Lsn,
        /// The owner's newest mark: watermark, window and pins.
        mark: Mark,
    },
    /// Owner to peer: everything above `from` up to `through`. The payload of those that have one goes with it, a
    /// whole block each, in order.
    Append {
        /// The records follow this position ...
        from: Lsn,
        /// ... and nothing is missing up to this one, also where fewer records are left.
        through: Lsn,
        /// Every member holds everything up to here.
        committed: Lsn,
        /// Please make everything up to here durable in the medium; not above `through`.
        sync: Lsn,
        /// Their descriptors, in the order of positions.
        records: Vec<Descriptor>,
        /// A mark may ride along.
        mark: Option<Mark>,
    },
    /// Owner to peer: its newest mark.
    Mark(Mark),
    /// Peer to owner: how far it is.
    Held(Held),
    /// To a node that keeps the log: so much it has said to hold, or an owner has said that all members do (S10).
    Said {
        /// Held, in whatever term of its incarnation.
        held: Lsn,
        /// The mark that it has said to have in the envelope's term; 0: nothing is known of that.
        mark: MarkNumber,
    },
    /// New owner to sealed member: send what you have above this; answered by `Append`.
    Fetch {
        /// Where the asker's log ends; what lies above it is wanted.
        from: Lsn,
    },
    /// Owner to the member that has handed over to it: what does your read cache have of these blocks? (K1)
    Ask {
        /// Number of the question, which the answer repeats.
        number: u64,
        /// First block that is asked for.
        first: BlockIndex,
        /// How many, at most [`ASK_BLOCKS_MAX`].
        blocks: u32,
    },
    /// The answer to `Ask`. A whole block goes with each record, in order.
    Cached {
        /// Number of the question that it answers.
        number: u64,
        /// Blocks that its cache has in all; 0: it is not to be asked again.
        kept: u32,
        /// Of each block that it has of those asked for: where it belongs, and the checksum of its bytes, which the
        /// executor computes when it sends them. Positions count from 1.
        records: Vec<Descriptor>,
    },
}

impl LogMessage {
    /// Its records, where it has any.
    pub fn records(&self) -> &[Descriptor] {
        match self {
            LogMessage::Append { records, .. } | LogMessage::Cached { records, .. } => records,
            LogMessage::Begin { .. }
            | LogMessage::Mark(_)
            | LogMessage::Held(_)
            | LogMessage::Said { .. }
            | LogMessage::Fetch { .. }
            | LogMessage::Ask { .. } => &[],
        }
    }
}

/// What the ownerships of one volume at two nodes tell each other about who may serve it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnershipMessage {
    /// Owner to member: asks for the lease (L1).
    Beacon {
        /// The owner's clock when it asked.
        sent: Instant,
    },
    /// Member to owner: grants it, from `sent` on.
    Granted {
        /// As in the beacon that it answers: the lease begins there.
        sent: Instant,
    },
    /// New owner to member: listen to no older term any more (T3).
    Seal,
    /// Member to new owner: it listens to no older term any more, and has this (T3).
    Sealed {
        /// How far its log goes.
        held: Lsn,
        /// The newest mark it has.
        mark: Mark,
        /// Where it runs.
        host: Host,
    },
    /// Owner to member: ask for ownership without waiting (L2).
    TakeOver,
    /// To a node: which incarnation are you? Answered whatever incarnation and term the envelope names.
    Who {
        /// The asker's clock when it asked.
        sent: Instant,
    },
    /// The answer to `Who` and `Learn`; the envelope's sender is the answer.
    Here {
        /// As in the question: what a node was long ago says nothing of what it is.
        sent: Instant,
        /// The clock of the one who answers.
        at: Instant,
        /// Where it runs.
        host: Host,
        /// Nothing has ever been in its tier.
        fresh: bool,
    },
    /// To a node: what have you seen of this volume's record (C5)? Answered whatever incarnation and term the envelope names. What the
    /// asker itself has seen, the envelope's term and epoch say.
    Know {
        /// The asker's clock when it asked.
        sent: Instant,
        /// What it knows of coordinators that went back (C6).
        rewinds: Rewinds,
    },
    /// The answer to `Know`: the envelope's term and epoch are the highest that were seen.
    Known {
        /// As in the question that it answers.
        sent: Instant,
        /// What the answering node knows of coordinators that went back (C6).
        rewinds: Rewinds,
    },
    /// Owner to a node that is no member: make a new tier ready (S7). It is meant for the incarnation that the node has
    /// now, and for nobody who has been taught since it said so: one that arrives late or twice formats nothing.
    Learn {
        /// The asker's clock when it asked.
        sent: Instant,
        /// As in the `Here` that it follows.
        at: Instant,
    },
}
