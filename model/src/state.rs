//! The types of the model: what a node, the coordinator, the network and the backing are in one moment.
//!
//! Numbers are small and sets are arrays or bit masks, because a state is hashed some million times. Everything is plain
//! data; what may happen to it is in [`crate::protocol`], what must hold in [`crate::checks`].

use std::fmt;

/// Nodes of the largest set-up.
pub const NODES: usize = 3;
/// Blocks of the volume: two, so that a group can be there in part and one range pinned while the other moves on.
pub const BLOCKS: usize = 2;
/// Positions of a log.
pub const LOG: usize = 4;

/// A node's number, from 0.
pub type NodeId = usize;
/// What one client write wrote; values are numbered in the order in which the client made them. Two writes never have one
/// value, so a value stands for what the code compares: term of the first writing, position and checksum. 0 is nothing.
pub type Value = u8;
/// A place in the log, from 1.
pub type Position = u8;
/// For each node the incarnation in which it is a member, or 0.
pub type Members = [u8; NODES];
/// A bit for each block.
pub type Ranges = u8;

/// The values by position; 0 is a hole, which later positions may lie behind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Log(pub [Value; LOG]);

impl Log {
    /// The last position up to which nothing is missing.
    pub fn prefix(&self) -> Position {
        self.0.iter().take_while(|value| **value != 0).count() as Position
    }

    /// What lies at a position; 0 where nothing does.
    pub fn at(&self, position: Position) -> Value {
        if position == 0 { 0 } else { self.0[position as usize - 1] }
    }

    /// Puts a value at a position.
    pub fn put(&mut self, position: Position, value: Value) {
        self.0[position as usize - 1] = value;
    }

    /// Without what lies behind a position.
    pub fn cut(mut self, position: Position) -> Log {
        self.0[position as usize..].fill(0);
        self
    }

    /// The position at which a value lies; none where it is not in the log.
    pub fn find(&self, value: Value) -> Option<Position> {
        self.0.iter().position(|there| value != 0 && *there == value).map(|at| at as Position + 1)
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0[..])
    }
}

/// What the coordinator keeps of the volume. Changed only by a transaction that compares term and epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Record {
    /// Number of the owner; a new owner has a higher one.
    pub term: u8,
    /// Numbers changes of the record.
    pub epoch: u8,
    /// The one node that may serve.
    pub owner: NodeId,
    /// Who holds everything that was acknowledged.
    pub members: Members,
    /// The backing has everything and nobody writes: any node may take over.
    pub clean: bool,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clean = if self.clean { ", clean" } else { "" };
        write!(
            f,
            "{{term {}, epoch {}, owner {}, members {:?}{clean}}}",
            self.term, self.epoch, self.owner, self.members
        )
    }
}

/// A change of the record: applied only while term and epoch are still those that it was made from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Transaction {
    /// Term and epoch that it compares.
    pub expected: (u8, u8),
    /// The record that it makes.
    pub new: Record,
}

/// A node's own transaction, as far as it knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pending {
    /// What was sent to the coordinator.
    pub transaction: Transaction,
    /// The answer is lost: it may have been applied, or may be later, or never.
    pub unknown: bool,
}

/// Where an owner stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// Not every member has answered the seal yet.
    Sealing,
    /// Takes the client's requests and answers them.
    Serving,
    /// Owns the volume and cannot reach the backing: serves nobody, hands its log to who can.
    Custodian,
    /// Has stopped serving, to hand over or to stop.
    Leaving,
}

/// What the owner is writing to the backing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Open {
    /// No write of it is open.
    Nothing,
    /// The group that ends at this position.
    Group(Position),
    /// The pinned ranges, again.
    Rewrite,
}

/// What one node has told the owner in this term.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Peer {
    /// It has answered the seal: it follows this term, and has cut what is not in the owner's log.
    pub answered: bool,
    /// It holds everything up to here.
    pub held: Position,
    /// It knows that the backing has everything up to here.
    pub watermark: Position,
}

impl Peer {
    /// Nothing was heard of it yet.
    pub const UNHEARD: Peer = Peer { answered: false, held: 0, watermark: 0 };
}

/// What a node has that believes to be the owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Owner {
    /// Epoch of the record as it last knew it.
    pub epoch: u8,
    /// Members of the record as it last knew it.
    pub members: Members,
    /// Nodes that catch up and are no members yet.
    pub learners: Members,
    /// What each node has told, by its number.
    pub peers: [Peer; NODES],
    /// Where it stands.
    pub phase: Phase,
    /// The record said `clean` when it last knew it.
    pub clean: bool,
    /// Acknowledged to the client up to here.
    pub acked: Position,
    /// On its way to the backing.
    pub open: Open,
    /// The pins stand for writes up to here.
    pub pinned_through: Position,
    /// Synced in the journal of its term up to here.
    pub journaled: Position,
}

impl Owner {
    /// The owner of a new term, which has heard of nobody.
    pub fn new(epoch: u8, members: Members) -> Owner {
        Owner {
            epoch,
            members,
            learners: [0; NODES],
            peers: [Peer::UNHEARD; NODES],
            phase: Phase::Sealing,
            clean: false,
            acked: 0,
            open: Open::Nothing,
            pinned_through: 0,
            journaled: 0,
        }
    }

    /// The owner of the first term.
    pub fn first(members: Members) -> Owner {
        let peer = Peer { answered: true, ..Peer::UNHEARD };
        Owner { peers: [peer; NODES], phase: Phase::Serving, ..Owner::new(1, members) }
    }
}

/// One node, with what it keeps and what it believes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    /// A process of it runs.
    pub up: bool,
    /// Identity of its log. One that lost its log has another.
    pub incarnation: u8,
    /// The highest term it follows; frames of lower ones are refused. Kept with the log.
    pub term: u8,
    /// The last term in which it was the owner. Kept with the log.
    pub owned: u8,
    /// Its log. What lies at or below the watermark is trimmed in the code and kept here only to compare with.
    pub log: Log,
    /// A bit for each position that an owner of `term` has confirmed.
    pub confirmed: u8,
    /// The backing has everything up to here.
    pub watermark: Position,
    /// Ranges that a former owner may still write.
    pub pins: Ranges,
    /// It believes to be the owner.
    pub owner: Option<Owner>,
    /// Its change of the record that is under way.
    pub pending: Option<Pending>,
    /// A request that a client has sent here and that was not read yet.
    pub queued: Value,
}

/// What nodes send each other. A message, once sent, may arrive at any later moment, any number of times, or never: so
/// channels delay, reorder, duplicate and lose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Message {
    /// The owner of a new term to a member, or an owner to a learner: follow me; this is my log, cut what is not in it.
    Seal {
        /// Term of the owner that sends it.
        term: u8,
        /// Receiver, with its incarnation.
        to: (NodeId, u8),
        /// The owner's: what the code sends of it are terms and positions.
        log: Log,
        /// The backing has everything up to here.
        watermark: Position,
        /// Ranges that a former owner may still write.
        pins: Ranges,
    },
    /// One record of the owner's log, to a member or learner.
    Append {
        /// Term of the owner that sends it.
        term: u8,
        /// Receiver, with its incarnation.
        to: (NodeId, u8),
        /// Where it belongs in the log.
        position: Position,
        /// The write that it records.
        value: Value,
    },
    /// What the backing has, and what is pinned.
    Progress {
        /// Term of the owner that sends it.
        term: u8,
        /// Receiver, with its incarnation.
        to: (NodeId, u8),
        /// The backing has everything up to here.
        watermark: Position,
        /// Ranges that a former owner may still write.
        pins: Ranges,
    },
    /// The answer to each of them.
    Holds {
        /// Of the owner that it answers.
        term: u8,
        /// Sender, with its incarnation.
        from: (NodeId, u8),
        /// It holds everything up to here.
        prefix: Position,
        /// It knows this watermark. That pins have ended, a member may learn later: who pins too much loses nothing.
        watermark: Position,
    },
}

/// A write that was given to the backing and may land at any moment, also after its sender is gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Submission {
    /// A block, on its way to the image.
    Block {
        /// Node that sent it.
        by: NodeId,
        /// The term in which it sent.
        term: u8,
        /// Block of the image that it goes to.
        block: usize,
        /// What the block holds when it has landed.
        value: Value,
    },
    /// To the journal of that term.
    Batch {
        /// Node that sent it.
        by: NodeId,
        /// The term in which it sent.
        term: u8,
        /// What the journal holds when it has landed.
        batch: Batch,
    },
}

impl Submission {
    /// Who sent it, in which term.
    pub fn sender(&self) -> (NodeId, u8) {
        match *self {
            Submission::Block { by, term, .. } | Submission::Batch { by, term, .. } => (by, term),
        }
    }
}

/// A batch in the journal: of the log up to `through`, what the backing did not have.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Batch {
    /// The log that it was made from.
    pub log: Log,
    /// Positions behind this one are in it.
    pub from: Position,
    /// Positions up to this one are in it.
    pub through: Position,
    /// Of those ranges it has everything.
    pub pins: Ranges,
}

/// What lies beside the backing: the newest term that has begun to write, and its batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Journal {
    /// Term of the owner whose batch it has.
    pub term: u8,
    /// `None` where it was erased.
    pub batch: Option<Batch>,
}

/// How often each fault may still happen. A step that takes from here is a fault, every other one is progress.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Budget {
    /// A host dies, and its RAM with it.
    pub crash: u8,
    /// A process on a node with a lasting log dies, and its log stays.
    pub kill: u8,
    /// A host with a flash log loses power: what was not synced is gone.
    pub power: u8,
    /// A node is taken for dead that is not.
    pub suspicion: u8,
    /// An answer of the coordinator is lost.
    pub unheard: u8,
    /// The operator hands over.
    pub hand_over: u8,
    /// The operator stops the volume.
    pub stop: u8,
    /// A request lies in a connection unread.
    pub queued: u8,
}

/// Everything there is, at one moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// The record, as the coordinator has it.
    pub record: Record,
    /// Transactions whose sender no longer waits for them, and that may still be applied.
    pub floating: Vec<Transaction>,
    /// All nodes, by number.
    pub nodes: [Node; NODES],
    /// Every message that may still have an effect; sorted.
    pub network: Vec<Message>,
    /// The slow store: what each block holds.
    pub backing: [Value; BLOCKS],
    /// The journal beside the backing.
    pub journal: Journal,
    /// On their way to it; sorted.
    pub submitted: Vec<Submission>,
    /// Writes of terms below this one are refused by the backing.
    pub fenced: u8,
    /// The write that the client asks for next.
    pub next: Value,
    /// Ghost: what the client was promised, in the order of the log.
    pub acked: Log,
    /// Ghost: up to here the promise stands on the backing or the journal, and survives the loss of every log.
    pub durable: Position,
    /// Ghost: a bit for each write that an owner began to serve without; it must not come back.
    pub abandoned: u16,
    /// Ghost: the log of the latest group or batch that went to the backing.
    pub sent: Log,
    /// Ghost: all logs were lost while ranges were pinned; the volume says so and promises no crash image.
    pub flagged: bool,
    /// Ghost: two acknowledgements disagree.
    pub contradiction: bool,
    /// Faults that may still happen.
    pub budget: Budget,
}

/// Adds to a sorted set.
pub fn insert<T: Ord>(set: &mut Vec<T>, item: T) {
    if let Err(at) = set.binary_search(&item) {
        set.insert(at, item);
    }
}
