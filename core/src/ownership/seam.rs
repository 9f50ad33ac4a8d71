//! The seam of [`Ownership`](super::Ownership): what it is told, and what must be done.
//!
//! Rules for the executor:
//! - Effects are taken in the order in which they are polled, each before the next. So the volume asks both sets of members
//!   (C4) before the coordinator hears of a change.
//! - An operation of the coordinator is answered exactly once. One that takes too long is answered as failed or unknown: what
//!   to do then is decided here.
//! - A message about the log ([`Message::Log`]) goes to the volume only when [`Ownership::admit`](super::Ownership::admit) takes it.
//!   [`Message::Refused`] goes to both.

use crate::api::{Figures, Order, Report};
use crate::cluster::*;
use crate::message::*;
use crate::status::Unrest;
use crate::types::*;
use alloc::vec::Vec;

/// What a node knows when its ownership of a volume begins.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Identity of the volume.
    pub volume: [u8; 16],
    /// This node with its tier; [`Incarnation::none`] where it has none.
    pub own: Incarnation,
    /// The machine in its present boot.
    pub host: Host,
    /// Of the tier's checkpoint; the default where there is none.
    pub remembered: Remembered,
    /// The newest record that this node knows in whole, whatever process of it has read that.
    pub known: Option<Record>,
    /// Of coordinators that went back, what this node knows (C6).
    pub rewinds: KnownRewinds,
    /// The tier is new: nothing has ever been in it.
    pub fresh: bool,
    /// The same on all nodes.
    pub timing: Timing,
    /// What the volume asks for.
    pub requested: Requested,
    /// What a process has given to the backing dies with its host: the machine under another boot id is evidence (T6).
    pub writes_die_with_host: bool,
}

/// What a tier remembers of ownership when its process has died.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remembered {
    /// Highest term that was seen.
    pub term: Term,
    /// Highest epoch seen of that term.
    pub epoch: Epoch,
    /// The term's `Begin` has been answered, by its owner's own log too (S9): an owner may have served in it.
    pub agreed: bool,
}

/// What the volume's definition asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requested {
    /// Copies that are wanted beside the owner's own.
    pub peers: u32,
    /// With fewer the backing must have a write as well (A1).
    pub min_peers: u32,
    /// Write-through: nothing acknowledged is to depend on a log (A5).
    pub through: bool,
    /// A flush is to promise every member's medium: no member is on memory (A2).
    pub media: bool,
    /// Each registered node reads a record that says what flushes have promised.
    pub flushed_readable: bool,
    /// Bytes of tier that a member must have room for.
    pub tier_bytes: u64,
}

/// Times of the protocol, the same on all nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// What was open so long without progress is sent again.
    pub channel_dead: Duration,
    /// A member whose oldest open message made no progress for so long is dropped (A3).
    pub member_drop: Duration,
    /// A grant lasts so long from the moment in which its beacon was sent (L1).
    pub lease: Duration,
    /// A member that has heard no beacon for so long asks for ownership (L2).
    pub grace: Duration,
    /// Time between two beacons of an owner.
    pub beacon: Duration,
    /// Between two attempts at a coordinator that does not answer.
    pub retry: Duration,
    /// A backing that is not open after so long counts as out of reach until it is.
    pub backing_wait: Duration,
    /// Between two attempts at a backing that could not be opened.
    pub backing_retry: Duration,
    /// Between two looks at the record of a node that waits for nothing.
    pub look: Duration,
    /// A hand-over or release that is not quiet by then is given up.
    pub quiet_max: Duration,
    /// The volume is quiet, and the change that is to give it away was not sent: requests are held so long at most.
    pub held_max: Duration,
    /// A node that was dropped is kept out so long, each time in a row twice as long ...
    pub kept_out_min: Duration,
    /// ... and not longer than this.
    pub kept_out_max: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            channel_dead: Duration::from_millis(150),
            member_drop: Duration::from_millis(800),
            lease: Duration::from_secs(3),
            grace: Duration::from_secs(5),
            beacon: Duration::from_millis(500),
            retry: Duration::from_millis(500),
            backing_wait: Duration::from_secs(10),
            backing_retry: Duration::from_secs(1),
            look: Duration::from_secs(5),
            quiet_max: Duration::from_secs(10),
            held_max: Duration::from_secs(2),
            kept_out_min: Duration::from_secs(1),
            kept_out_max: Duration::from_secs(600),
        }
    }
}

impl Timing {
    /// How long another node must count for this node's lease to be over: clocks differ by 1 % each at most.
    pub fn lease_elsewhere(&self) -> Duration {
        Duration(self.lease.0 + self.lease.0 / 50)
    }

    /// Another node that has not answered for so long, asked again all the time, is silent (C5): the time in which a member is
    /// left out, but for the first moment of it.
    pub fn silence(&self) -> Duration {
        Duration(self.member_drop.0 - self.channel_dead.0)
    }

    /// Whether the times fit together; the text says which do not.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.grace <= self.lease_elsewhere() {
            return Err("the grace must be longer than the lease by more than clocks may differ (2 %)");
        }
        let again = [self.channel_dead, self.retry, self.backing_retry, self.look, self.kept_out_min];
        if again.contains(&Duration(0)) {
            return Err("a time after which something is tried again must not be 0");
        }
        if self.member_drop <= self.channel_dead {
            return Err("a member must not be dropped before what is open was sent again");
        }
        if self.beacon < self.channel_dead || self.beacon.0 > self.lease.0 / 3 {
            return Err("at least three beacons must fall into a lease, and none is sent faster than again");
        }
        Ok(())
    }
}

/// Why a former owner can write to the backing no more (T6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// The backing refuses it, or its host is off for certain.
    Fence,
    /// Its lock on the image is gone.
    LockGone,
    /// Its machine has another boot id.
    OtherBoot,
    /// It says itself that it has given up the term, and that all it asked of the backing has ended.
    SaidByItself,
    /// The operator says so.
    Operator,
}

/// A node that may become a member, as the registry of nodes knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Node that may become one.
    pub node: NodeId,
    /// Nodes of one domain may fail together.
    pub domain: u64,
    /// Room in its tiers, in bytes.
    pub free_bytes: u64,
    /// 0 idle to 1000 busy.
    pub load_permille: u32,
    /// Its tier for this volume would be on flash.
    pub flash: bool,
    /// It can reach the backing.
    pub reaches_backing: bool,
    /// The operator is about to stop it: it gets no copy, and those that it has are brought elsewhere.
    pub leaving: bool,
}

/// What the operator, or the daemon for him, asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Make a member the owner, without an I/O error.
    HandOver {
        /// Member that is to own the volume next.
        to: NodeId,
    },
    /// Make a node a member, beside those that are asked for, so that it can be handed to (S6). One that does not become it
    /// is given up.
    Recruit {
        /// Node that is to become a member.
        node: NodeId,
    },
    /// Serve no more: empty the log into the backing, so that any node may open the volume.
    Release,
    /// Serve here a volume that nobody serves: where the record names an owner, with proof for that one, too.
    Open {
        /// Although acknowledged writes are lost with the logs that are gone: those of the record that this node knows now.
        accept_loss: bool,
    },
    /// Serve with what the media of the members have that answer, although all that was acknowledged and not synced is lost, and
    /// whatever only silent ones have: those of the record that this node knows now (T10).
    TakeSynced,
    /// The former owners are off, or cannot reach the backing: the operator's word. Said at a node that has no part in the
    /// volume, it is about the recorded owner as well.
    Fenced {
        /// Theirs, as the operator has seen them: his word is not about others that have come since.
        terms: Vec<Term>,
    },
    /// The coordinator was restored from a backup: write the record anew as this node knows it (C3).
    RestoreRecord {
        /// What the operator has seen that this node knows.
        saw: (Term, Epoch),
    },
    /// The coordinator went back, and this node cannot say what it knows of before: it is not waited for (C6).
    CannotAnswer {
        /// Node that is not waited for.
        node: NodeId,
    },
}

/// Why a command was not carried out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CommandError {
    /// This node is not the owner.
    NotOwner,
    /// Another command is being carried out.
    Busy,
    /// The node is no member; only a member has the log.
    NotMember,
    /// The node cannot be reached, has no room, or did not take the log.
    NotRecruited,
    /// It could not be decided in time whether the volume changes hands; it serves on.
    TimedOut,
    /// The volume did not become quiet in time; it serves on. What kept it from it is filled in by whoever has the volume.
    NotQuiet(Option<Unrest>),
    /// Former owners may still write to the backing.
    Unfenced,
    /// The volume has an owner, or a member that may become it.
    Served,
    /// Logs that are gone may hold the only copy of acknowledged writes.
    LossSuspected,
    /// A recorded member is alive and has the log.
    MemberAlive,
    /// A recorded member answers with what of its log a loss of power has left: that is not given up.
    LogsAnswer,
    /// A recorded member answers by now, and the change that gives up its log was sent before: whether it takes effect is not known.
    Undecided,
    /// The record is not the one that this node knew when the operator gave his word: somebody has owned the volume since, or
    /// other logs are lost than he knew of.
    RecordChanged,
    /// There is no proof that the recorded owner can write no more.
    NeedsProof,
    /// The coordinator does not answer, or not with a record.
    NoRecord,
    /// The record is older than what this node has seen.
    RecordWentBack,
    /// Another node knows a newer record: it is to be written anew there.
    KnownElsewhere,
    /// What is there now is not what the operator has seen.
    NotAsSeen,
    /// The coordinator went back, and nodes have not said yet what they know of before.
    Unheard,
    /// The node has said what it knows.
    Answered,
    /// The tier for the volume could not be made at this node.
    NoTier,
    /// The record is what it should be.
    NothingToDo,
    /// Another node was faster, or the node has lost the volume meanwhile.
    Superseded,
}

impl CommandError {
    /// Stable code for scripts.
    pub fn code(self) -> &'static str {
        match self {
            CommandError::NotOwner => "not-owner",
            CommandError::Busy => "busy",
            CommandError::NotMember => "not-member",
            CommandError::NotRecruited => "not-recruited",
            CommandError::TimedOut | CommandError::NotQuiet(_) => "timed-out",
            CommandError::Unfenced => "unfenced",
            CommandError::Served => "served",
            CommandError::LossSuspected => "loss-suspected",
            CommandError::MemberAlive => "member-alive",
            CommandError::LogsAnswer => "logs-answer",
            CommandError::Undecided => "undecided",
            CommandError::RecordChanged => "record-changed",
            CommandError::NeedsProof => "needs-proof",
            CommandError::NoRecord => "no-record",
            CommandError::RecordWentBack => "record-went-back",
            CommandError::KnownElsewhere => "known-elsewhere",
            CommandError::NotAsSeen => "not-as-seen",
            CommandError::Unheard => "unheard",
            CommandError::Answered => "answered",
            CommandError::NoTier => "no-tier",
            CommandError::NothingToDo => "nothing-to-do",
            CommandError::Superseded => "superseded",
        }
    }
}

/// Result of a linearizable read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// The record as the coordinator had it at some moment after the question.
    Is(Record),
    /// There is none.
    Absent,
    /// The volume was deleted, with this number.
    Deleted(Term, Epoch),
    /// The coordinator did not answer.
    Failed,
}

/// How a transaction at the coordinator ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Committed {
    /// The record is the new one.
    Won,
    /// The comparison failed; this is the record.
    Lost(Record),
    /// The answer is lost, or none came (C2).
    Unknown,
}

/// What ownership is told of, one event at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The time of [`poll_timeout`](super::Ownership::poll_timeout) has come.
    Timeout,
    /// A read has ended.
    Read(OpId, Read),
    /// A transaction has ended.
    Committed(OpId, Committed),
    /// The record may have changed. Nothing depends on hearing it.
    RecordChanged,
    /// A message about who may serve. The executor has made sure that who sent it is `envelope.from.node`.
    Message(Envelope, OwnershipMessage),
    /// A node did not take what this one sent. The executor has made sure which, as for a message.
    Refused(Envelope, Refusal),
    /// A node can be reached, or can not.
    Link(NodeId, bool),
    /// There is no link to this node any more, and none is tried: it is neither registered nor named by a record.
    NoLink(NodeId),
    /// The volume has something to say; how far it was then.
    Volume(Report, Figures),
    /// How far the volume is, told from time to time.
    Figures(Figures),
    /// The answer to [`Effect::OpenTier`].
    TierOpened {
        /// The tier as it is now, in its present life.
        own: Incarnation,
        /// Nothing has ever been in it.
        fresh: bool,
    },
    /// The owner of a term can write to the backing no more.
    Proof(Term, Proof),
    /// What the operator asks for, or the daemon for him; answered by its number.
    Command(ControlId, Command),
    /// The nodes that there are now.
    Candidates(Vec<Candidate>),
    /// The volume's definition has changed.
    Requested(Requested),
    /// After [`Effect::OpenBacking`], for that term.
    Backing(Term, BackingAnswer),
    /// The lock of this term on the backing, or the reservation that lets its owner write there, is lost: another node may take it
    /// for proof that this one writes no more.
    LockLost(Term),
    /// The coordinator went back, as this node or any volume of it knows (C6).
    Rewound(RewindId),
    /// This node has seen this record, in whatever question: said before the answer to one that shows less.
    Seen(Record),
    /// This node has seen that the volume was deleted, with this number: said before the answer to a question that shows less.
    SeenDeleted(Term, Epoch),
}

/// How the opening of the backing for a term ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackingAnswer {
    /// It is open, under the lock of that term, and a read after that has shown that the record names this node with it. It is
    /// nobody's until [`Effect::UseBacking`] of the same term: else it is closed, and its lock goes with it.
    Opened,
    /// It is out of reach for now, or cannot be locked.
    Failed,
    /// The record does not name this node as the owner of that term.
    NotOwner,
}

/// What the operator has decided where the record alone would not allow a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Override {
    /// The record is written anew, with a number above all that were seen (C3).
    Restores(ControlId),
    /// The volume is opened without the logs of its members.
    AcceptsLoss(ControlId),
}

/// What the executor must do for ownership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Read the record, linearizably.
    Read(OpId),
    /// Change the record, if it is still the first, into the second (C1). Where the second names this node as the owner of
    /// a new term, that term's lock on the image is taken before it is sent: a lock that is not there must mean that its
    /// owner is gone, and never that it has not come yet.
    Commit {
        /// Names it in [`Event::Committed`].
        op: OpId,
        /// The whole record as read.
        compare: Record,
        /// The record that it becomes.
        new: Record,
        /// It is by this command of the operator: his word goes into the audit log with it, and where it writes anew a
        /// record that went back, that was his decision.
        by: Option<Override>,
    },
    /// Send a message; it may be lost.
    Send(Envelope, Message),
    /// Tell the volume.
    Volume(Order),
    /// Open the backing for this term, which this node owns: lock it, then read the record, then begin its journal and look for
    /// proof about former owners (T6). It may take as long as it takes: it is answered once, by [`Event::Backing`], and one at
    /// a time is asked for in a term. One for an older term may be open still.
    OpenBacking(Term),
    /// What was opened for this term is the volume's, which hears of it. What was opened and is not used at once is closed.
    UseBacking(Term),
    /// Let clients in, for this term: the volume answers them under its lease.
    Serve(Term),
    /// All sessions of clients and of nodes that forward for them end; what was read of them and not carried out is
    /// dropped (T9).
    EndSessions,
    /// Open the tier anew, and the volume on it as a follower; answered by [`Event::TierOpened`].
    OpenTier {
        /// As a new tier of a new incarnation (S7): what is in it goes.
        format: bool,
    },
    /// The coordinator shows a record that is older than what was seen. It is given a random name, durably, which all volumes of the
    /// node are told ([`Event::Rewound`]), unless the node has given one to what it noticed since `sent`: that is the same restore.
    RewindNoticed {
        /// When the question was sent that this was the answer to.
        sent: Instant,
    },
    /// The coordinator went back, which this volume's ownership has heard: kept durably, and told to that of the node's
    /// other volumes ([`Event::Rewound`]) and, as far as it can be, to the coordinator.
    Rewound(RewindId),
    /// All nodes were heard since, as far as this volume is concerned: kept durably.
    RewindSettled(RewindId),
    /// Answer a command. `Ok` after [`Command::Fenced`] goes into the audit log.
    Answer(ControlId, Result<(), CommandError>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_do_not_fit_together_are_refused() {
        let good = Timing::default();
        assert_eq!(good.check(), Ok(()));
        let ms = Duration::from_millis;
        // A lease of 4.95 s may last 5.05 s by another clock, which is longer than the grace.
        let bad = [
            Timing { lease: ms(4_950), ..good },
            Timing { grace: ms(3_000), ..good },
            Timing { member_drop: ms(150), ..good },
            Timing { beacon: ms(1_100), ..good },
            Timing { beacon: ms(100), ..good },
            Timing { retry: ms(0), ..good },
        ];
        for timing in bad {
            assert!(timing.check().is_err(), "{timing:?}");
        }
    }
}
