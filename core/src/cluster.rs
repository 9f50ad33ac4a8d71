//! Words of the protocol between nodes: who is who, and what the coordinator and the members keep. `docs/protocol.md` states the
//! rules; the names here are its names.
//!
//! These are plain values. Who decides by them: `ownership` (who may serve) and `volume` (the stream). What nodes tell each
//! other in them: `message`.

use crate::types::*;
use alloc::vec::Vec;

number!(/// A node: one daemon. Drawn at random when the node is enrolled; its name is for people.
    NodeId(u64));
number!(/// Number of a set of members within a term.
    Epoch(u32));
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
    pub epoch: Epoch,
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
/// Highest epoch that a record, or a message, may name.
pub const EPOCH_MAX: Epoch = Epoch(1 << 31);

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
