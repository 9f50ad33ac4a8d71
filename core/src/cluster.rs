//! Words of the protocol between nodes: who is who, what the coordinator keeps, and what nodes tell each other.
//! `docs/protocol.md` states the rules; the names here are its names.
//!
//! These are plain values. Who decides by them: `ownership` (who may serve) and `volume` (the stream). How they look as
//! bytes on a wire: `wire`.

use crate::format::Descriptor;
use crate::types::*;
use alloc::vec::Vec;

number!(/// A node: one daemon. Drawn at random when the node is enrolled; its name is for people.
    NodeId(u64));
number!(/// Number of a set of members within a term.
    Config(u32));
number!(/// Number of a [`Mark`] within a term. Of two marks the higher counts.
    MarkNumber(u64));

/// Identity of one tier and of what it can vouch for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Incarnation {
    /// Node that the tier belongs to.
    pub node: NodeId,
    /// Random, written when the tier is formatted.
    pub tier: u64,
    /// One more at each start that may have lost what was held: on flash under another boot id.
    pub life: u32,
}

impl Incarnation {
    /// A node without a tier, or whose incarnation is not known.
    pub const fn none(node: NodeId) -> Incarnation {
        Incarnation { node, tier: 0, life: 0 }
    }

    /// The same tier, in a life before that of `present`: it held what `present` may have lost (T10).
    pub fn is_earlier_life_of(self, present: Incarnation) -> bool {
        self.node == present.node && self.tier == present.tier && self.life < present.life
    }
}

/// A machine in one of its boots: the same machine under another boot id can write nothing of the former one any more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Host {
    /// Which machine: its `/etc/machine-id`.
    pub machine: [u8; 16],
    /// Which boot of it: its `/proc/sys/kernel/random/boot_id`.
    pub boot: [u8; 16],
}

/// Who may become owner, as far as logs are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LogState {
    /// Only logs hold something acknowledged: only a member may become owner.
    Needed,
    /// Nothing acknowledged depends on a log, but an owner serves: another node needs proof that it can write no more.
    Through,
    /// Nobody serves, and nothing depends on a log: any node may.
    Released,
}

/// What logs are worth of everything that a flush was answered for, when all members lose their power (A2, T10).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Flushed {
    /// The record is of a time before it said so: nothing is known.
    #[default]
    Unrecorded,
    /// No more than any acknowledged write: every member holds it.
    Held,
    /// It is synced on the medium of every member that has one; or the backing has synced it, and every such medium knows the
    /// watermark behind it.
    Durable,
}

/// A former owner that may still write to the backing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unfenced {
    /// Term in which it was the owner.
    pub term: Term,
    /// Node that was the owner.
    pub node: NodeId,
    /// Where it ran.
    pub host: Host,
}

/// What the coordinator keeps of a volume. Changed only by a transaction that compares it with what was read (C1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Number of the owner; each new owner has a higher one.
    pub term: Term,
    /// Number of the set of members within the term.
    pub config: Config,
    /// One of `members`, unless the log is released.
    pub owner: NodeId,
    /// Where the owner runs: whoever takes over names it in `unfenced`, also when it has never heard the owner.
    pub host: Host,
    /// Whose logs count. Each node at most once.
    pub members: Vec<Incarnation>,
    /// Who may become owner.
    pub log: LogState,
    /// What was promised of it by flushes (A2): what logs are worth after a loss of power (T10).
    pub flushed: Flushed,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// Former owners that may still write to the backing (T5, T6).
    pub unfenced: Vec<Unfenced>,
}

/// Highest term that a record, or a message, may name. No volume gets there: a change of owner takes a second, so it is decades away.
pub const TERM_MAX: Term = Term(1 << 30);
/// Highest config that a record, or a message, may name.
pub const CONFIG_MAX: Config = Config(1 << 31);

/// One time that the coordinator went back (C6), by a random name: two of them never have the same, whatever a restore has taken from
/// the coordinator, and from nodes that have seen the one and not the other. Never 0. A restore that several nodes have noticed by
/// themselves has several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RewindId(pub u64);

impl RewindId {
    /// Stands for all that found no room among those that are open. No message and no mark names it, and nobody settles it by another's
    /// word: it is settled last of all, when every node was heard since it alone was left.
    pub const MORE: RewindId = RewindId(u64::MAX);

    /// Whether it can be the name of one.
    pub fn is_name(self) -> bool {
        self.0 > 0 && self != RewindId::MORE
    }

    /// The nearest name to a number that was drawn.
    pub fn drawn(number: u64) -> RewindId {
        RewindId(number.clamp(1, RewindId::MORE.0 - 1))
    }
}

/// So many of one volume are open by their names at a time at most; what comes beyond is open as [`RewindId::MORE`].
pub const REWINDS_OPEN_MAX: usize = 64;
/// So many are told in one message: the newest, by which those before them are settled as well.
pub const REWINDS_TOLD_MAX: usize = 16;
/// So many that are settled are remembered of one volume. One that is forgotten, and told by a node that was away, is settled again.
pub const REWINDS_SETTLED_MAX: usize = 64;

/// What one node tells another of coordinators that went back (C6).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rewinds {
    /// Those about which it has not heard all nodes.
    pub open: Vec<RewindId>,
    /// Of those that it was asked about: about which it has, since it knew of them.
    pub settled: Vec<RewindId>,
}

/// What a node remembers of coordinators that went back, as far as one volume is concerned (C6). One that it had settled, or never had
/// to settle because it had seen nothing of the volume, is not open.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KnownRewinds {
    /// Not all registered nodes have said what they know since; in the order in which they were heard of.
    pub open: Vec<RewindId>,
    /// Every one has, or the operator that it cannot.
    pub settled: Vec<RewindId>,
}

impl KnownRewinds {
    /// Another one. What is open now and was not: this one, or, where there is no room for its name, [`RewindId::MORE`].
    pub fn open(&mut self, id: RewindId) -> Option<RewindId> {
        if self.settled.contains(&id) || self.open.contains(&id) {
            return None;
        }
        let names = self.open.iter().filter(|open| open.is_name()).count();
        let kept = if names < REWINDS_OPEN_MAX { id } else { RewindId::MORE };
        let is_new = !self.open.contains(&kept);
        if is_new {
            self.open.push(kept);
        }
        is_new.then_some(kept)
    }

    /// All that are open but those that had no room for their names are settled.
    pub fn has_only_more(&self) -> bool {
        self.open == [RewindId::MORE]
    }

    /// All were heard since. What had no room is not settled before all that had it are.
    pub fn settle(&mut self, id: RewindId) {
        if !id.is_name() && !self.has_only_more() {
            return;
        }
        self.open.retain(|open| *open != id);
        if id.is_name() && !self.settled.contains(&id) {
            self.settled.push(id);
        }
        if self.settled.len() > REWINDS_SETTLED_MAX {
            self.settled.remove(0);
        }
    }
}

/// Ranges of the volume that a former owner may still write to: the window of a former term (T5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pin {
    /// Term of the owner whose window it was.
    pub term: Term,
    /// The window: above this position ...
    pub above: Lsn,
    /// ... up to this one.
    pub through: Lsn,
    /// Blocks of a zeroed range that were under way (D6); 0 blocks: none.
    pub part: Part,
}

/// A piece of a zeroed range, destaged alone (D6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Part {
    /// First block of the piece.
    pub block: BlockIndex,
    /// Blocks; 0 = no part is under way.
    pub blocks: u32,
}

/// Highest position of a log, and highest number of a mark, that a message may name. No log gets there.
pub const POSITION_MAX: u64 = 1 << 62;

/// Most windows that are pinned at one time (T5).
pub const PINS_MAX: usize = 4;

/// What the owner tells of its destaging: its watermark and its window (D2, D3).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mark {
    /// Of two marks of a term the higher number counts.
    pub number: MarkNumber,
    /// Every record up to here is durable in the backing; the log before it may go (D4).
    pub watermark: Lsn,
    /// All that may be under way to the backing lies above the watermark and not above this.
    pub through: Lsn,
    /// The piece of a zeroed range under way.
    pub part: Part,
    /// Size of the volume in bytes (A7).
    pub size_bytes: u64,
    /// Windows of former terms, at most [`PINS_MAX`].
    pub pins: Vec<Pin>,
}

impl Mark {
    /// None of its parts leads beyond any volume.
    pub fn lies_within_a_volume(&self) -> bool {
        let exists = |part: &Part| {
            let end = part.block.0.checked_add(u64::from(part.blocks));
            end.is_some_and(|end| end <= VOLUME_BYTES_MAX / BLOCK_BYTES)
        };
        exists(&self.part) && self.pins.iter().all(|pin| exists(&pin.part) && pin.above <= pin.through)
    }

    /// Some owner may tell it: its size is one that a volume can have, and no position is beyond all logs.
    pub fn is_possible(&self) -> bool {
        let is_a_size = is_a_size(self.size_bytes);
        let ends = self.pins.iter().map(|pin| pin.through.0);
        let highest = ends.chain([self.number.0, self.watermark.0, self.through.0]).max().unwrap_or(0);
        is_a_size && highest <= POSITION_MAX && self.lies_within_a_volume()
    }
}

/// What every message begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Identity of the volume that it is about.
    pub volume: [u8; 16],
    /// Term in which the sender speaks.
    pub term: Term,
    /// Config of that term by which the sender speaks.
    pub config: Config,
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
    /// asker itself has seen, the envelope's term and config say.
    Know {
        /// The asker's clock when it asked.
        sent: Instant,
        /// What it knows of coordinators that went back (C6).
        rewinds: Rewinds,
    },
    /// The answer to `Know`: the envelope's term and config are the highest that were seen.
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
