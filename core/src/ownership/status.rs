//! What is shown of ownership: where a node stands with a volume, why, and since when.

use super::commands::GoalStage;
use super::coordinator::Stage;
use super::follow::Why;
use super::own::{OwnBacking, Phase};
use super::{Ownership, Role};
use crate::cluster::*;
use crate::types::*;
use alloc::vec::Vec;

/// Where a node stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// It has no part in the volume.
    NoMember,
    /// It receives the log and is not recorded.
    Learner,
    /// It receives the log and counts as a copy.
    Following,
    /// It takes nothing of the former owner any more, and is about to become the owner (T2).
    Sealed,
    /// It is the owner of a new term, and the members do not yet agree on the tail (T3, T4).
    Agreeing,
    /// It is the owner and serves.
    Owner,
    /// It is the owner and cannot reach the backing.
    Custodian,
    /// It was the owner, and its last writes are under way (T9).
    SteppingDown,
}

/// Why a node stands where it does, or what it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// All is as it should be.
    AsItShouldBe,
    /// The record has not been read yet.
    ReadingRecord,
    /// There is no record of the volume.
    NoRecord,
    /// The coordinator does not answer: nothing can be changed; I/O goes on as long as nothing must be.
    CoordinatorAway,
    /// The record is older than what was seen (C3): the operator must have it written anew.
    RecordWentBack,
    /// The coordinator went back, and nodes have not said what they know of before: no owner without them (C6).
    AwaitingAnswers,
    /// Nobody serves the volume.
    Released,
    /// The record does not name this node.
    NotNamed,
    /// Power was lost, and with it perhaps what was held (T10).
    EarlierLife,
    /// Every member has lost what its medium had not synced, and by the record flushes have promised no more: the operator says
    /// whether what is left is taken (T10).
    UnsyncedLost,
    /// No member has its log any more: `--accept-loss` is the only way.
    LossSuspected,
    /// No member has its log any more, and nothing acknowledged depended on it: any node may open the volume, with proof for its
    /// last owner. One that was alone does it by itself when its machine was started anew (T11).
    LogNotNeeded,
    /// The tier has failed.
    TierFailed,
    /// The log is shorter than what this node has told others: it was put back to an earlier state (S10).
    LogWentBack,
    /// No beacon of an owner is heard.
    OwnerSilent,
    /// Members are sealed.
    SealingMembers,
    /// Members must hold the tail.
    AwaitingMembers,
    /// The members agree; the backing is being opened under the lock of the term.
    AwaitingBacking,
    /// A lease that this node has granted is not over yet.
    AwaitingLease,
    /// A change of the record is undecided: both sets of members are asked.
    ChangeUndecided,
    /// A member does not answer: nothing is read without its lease.
    NoLease,
    /// Former owners may still write to the backing: it is not a crash image by itself.
    Unfenced,
    /// Fewer copies than asked for: nodes are brought up to date, or there are none.
    TooFewMembers,
    /// The backing cannot be reached from here.
    BackingOutOfReach,
    /// It is being handed over.
    HandingOver,
    /// It is being released.
    Releasing,
}

impl State {
    /// Stable code for scripts and metrics.
    pub fn code(self) -> &'static str {
        match self {
            State::NoMember => "no-member",
            State::Learner => "learner",
            State::Following => "following",
            State::Sealed => "sealed",
            State::Agreeing => "agreeing",
            State::Owner => "owner",
            State::Custodian => "custodian",
            State::SteppingDown => "stepping-down",
        }
    }
}

impl Reason {
    /// Stable code for scripts and metrics.
    pub fn code(self) -> &'static str {
        match self {
            Reason::AsItShouldBe => "as-it-should-be",
            Reason::ReadingRecord => "reading-record",
            Reason::NoRecord => "no-record",
            Reason::CoordinatorAway => "coordinator-away",
            Reason::RecordWentBack => "record-went-back",
            Reason::AwaitingAnswers => "awaiting-answers",
            Reason::Released => "released",
            Reason::NotNamed => "not-named",
            Reason::EarlierLife => "earlier-life",
            Reason::UnsyncedLost => "unsynced-lost",
            Reason::LossSuspected => "loss-suspected",
            Reason::LogNotNeeded => "log-not-needed",
            Reason::TierFailed => "tier-failed",
            Reason::LogWentBack => "log-went-back",
            Reason::OwnerSilent => "owner-silent",
            Reason::SealingMembers => "sealing-members",
            Reason::AwaitingMembers => "awaiting-members",
            Reason::AwaitingBacking => "awaiting-backing",
            Reason::AwaitingLease => "awaiting-lease",
            Reason::ChangeUndecided => "change-undecided",
            Reason::NoLease => "no-lease",
            Reason::Unfenced => "unfenced",
            Reason::TooFewMembers => "too-few-members",
            Reason::BackingOutOfReach => "backing-out-of-reach",
            Reason::HandingOver => "handing-over",
            Reason::Releasing => "releasing",
        }
    }
}

/// How often each step of the protocol was taken by this process; all grow only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Terms of which this node became the owner, its own restarts included.
    pub terms_begun: u64,
    /// Those that another node had owned before, and had not handed over (T2).
    pub take_overs: u64,
    /// Hand-overs and releases that were carried out.
    pub hand_overs: u64,
    /// Times that it was owner no more (T9).
    pub step_downs: u64,
    /// Those of them that were because the lock on the backing, or the reservation of its device, was lost.
    pub locks_lost: u64,
    /// Seals of new owners that were answered (T3).
    pub seals_answered: u64,
    /// Members left out by a committed change (A3).
    pub members_dropped: u64,
    /// Members added by one (S6).
    pub members_added: u64,
    /// Tiers made new to learn the log (S7).
    pub tiers_formatted: u64,
    /// Messages of older terms that were not listened to (S1).
    pub older_terms_refused: u64,
    /// Messages for another incarnation that were not listened to (S2).
    pub other_incarnations_refused: u64,
    /// Changes of the record that lost to another (C1).
    pub changes_lost: u64,
    /// Changes of the record whose answer was lost (C2).
    pub changes_unknown: u64,
    /// Proofs that a former owner can write no more (T6).
    pub proofs: u64,
    /// Times that all pins ended (T6).
    pub pins_ended: u64,
    /// Times that others had heard more from this node than it knew (S10).
    pub former_states: u64,
}

/// What a node shows of its ownership of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Where this node stands.
    pub state: State,
    /// Why, or what it waits for.
    pub reason: Reason,
    /// When state or reason last changed.
    pub since: Instant,
    /// Highest term that was seen.
    pub term: Term,
    /// Highest epoch seen of it.
    pub epoch: Epoch,
    /// The record, as it was last read or decided.
    pub record: Option<Record>,
    /// Nodes that are brought up to date.
    pub learners: Vec<NodeId>,
    /// Until when reads are answered; none: they wait.
    pub lease: Option<Instant>,
    /// Former owners for whom there is no proof yet.
    pub unproven: Vec<Unfenced>,
    /// Former owners, and where nobody serves here the recorded one, about whom the operator's word would count.
    pub may_be_called_fenced: Vec<Unfenced>,
    /// This node opens the volume by itself as soon as there is proof for these (T11); none: it does not.
    pub opens_alone_after: Option<Vec<Unfenced>>,
    /// Since when the coordinator does not answer.
    pub coordinator_away_since: Option<Instant>,
    /// While only logs count: recorded members whose power was lost, and that answer with what it has left of theirs (T10).
    pub left: Vec<NodeId>,
    /// The newest record that this node knows in whole; what the coordinator shows is older where it went back.
    pub known: Option<Record>,
    /// What the coordinator shows, where that is older than what was seen (C3).
    pub went_back_to: Option<(Term, Epoch)>,
    /// Nodes that have not said what they know since the coordinator went back (C6).
    pub unheard: Vec<NodeId>,
}

#[derive(Clone, Debug)]
pub(super) struct Shown {
    state: State,
    reason: Reason,
    since: Instant,
}

impl Shown {
    pub(super) fn new(now: Instant) -> Shown {
        Shown { state: State::NoMember, reason: Reason::ReadingRecord, since: now }
    }

    pub(super) fn now_is(&mut self, state: State, reason: Reason, now: Instant) {
        if (self.state, self.reason) != (state, reason) {
            *self = Shown { state, reason, since: now };
        }
    }

    pub(super) fn status(&self, of: &Ownership) -> Status {
        let owning = if let Role::Owning(owning) = &of.role { Some(owning) } else { None };
        let record = owning.map(|owning| &owning.record).or(of.record.as_ref());
        let unfenced = record.map(|record| record.unfenced.as_slice()).unwrap_or_default();
        Status {
            state: self.state,
            reason: self.reason,
            since: self.since,
            term: of.seen.0,
            epoch: of.seen.1,
            learners: owning.map(|owning| owning.learners.keys().copied().collect()).unwrap_or_default(),
            lease: owning.and_then(|owning| owning.lease_told),
            unproven: unfenced.iter().filter(|former| !of.is_proven(former)).copied().collect(),
            may_be_called_fenced: of.may_be_called_fenced(),
            opens_alone_after: of.opens_alone().then(|| of.unproven_to_open()),
            coordinator_away_since: of.coordinator.away_since,
            left: of.logs_left(),
            known: of.newest_known().cloned(),
            went_back_to: of.coordinator.went_back.as_ref().map(Record::version),
            unheard: of.unheard_of_rewind(),
            record: record.cloned(),
        }
    }
}

impl Ownership {
    /// Who owns the volume, as far as this node has read: term, owner, size. None: nobody, or it has not read that yet.
    pub fn owner(&self) -> Option<(Term, NodeId, u64)> {
        let owning = if let Role::Owning(owning) = &self.role { Some(&owning.record) } else { None };
        let record = owning.or(self.record.as_ref())?;
        (record.log != LogState::Released).then_some((record.term, record.owner, record.size_bytes))
    }

    pub(super) fn state_and_reason(&self) -> (State, Reason) {
        let (state, own) = match &self.role {
            Role::Outside(outside) => (State::NoMember, self.reason_outside(outside.why)),
            Role::Following(following) => {
                let state = if following.member { State::Following } else { State::Learner };
                (state, self.reason_of_tier())
            }
            Role::Asking(asking) if asking.sealed => (State::Sealed, Reason::OwnerSilent),
            Role::Asking(_) => (State::Following, Reason::OwnerSilent),
            Role::Owning(owning) => self.shown_of_owner(owning),
            Role::Leaving => (State::SteppingDown, self.reason_of_tier()),
        };
        if self.coordinator.went_back.is_some() {
            (state, Reason::RecordWentBack)
        } else if self.coordinator.away_since.is_some() {
            (state, Reason::CoordinatorAway)
        } else if self.awaits_answers() && !self.inquiry.is_settled() {
            (state, Reason::AwaitingAnswers)
        } else {
            (state, own)
        }
    }

    fn reason_of_tier(&self) -> Reason {
        match self.tier_failed {
            true if self.went_back == Some(self.own) => Reason::LogWentBack,
            true => Reason::TierFailed,
            false => Reason::AsItShouldBe,
        }
    }

    fn logs_left(&self) -> Vec<NodeId> {
        let Role::Outside(_) = &self.role else { return Vec::new() };
        let Some(record) = self.record.as_ref().filter(|record| record.log == LogState::Needed) else {
            return Vec::new();
        };
        let is_left = |member: &&Incarnation| {
            let present = self.present(**member, Instant(0));
            present.is_some_and(|present| member.is_earlier_life_of(present))
        };
        record.members.iter().filter(is_left).map(|member| member.node).collect()
    }

    fn reason_outside(&self, why: Why) -> Reason {
        let Some(record) = self.record.as_ref() else {
            return if why == Why::NoRecord { Reason::NoRecord } else { Reason::ReadingRecord };
        };
        let gone = |member: &Incarnation| {
            let present = self.present(*member, Instant(0));
            present.is_some_and(|present| present != *member)
        };
        let all_gone = record.members.iter().all(gone);
        let some_left = !self.logs_left().is_empty();
        match why {
            Why::Unread => Reason::ReadingRecord,
            Why::NoRecord => Reason::NoRecord,
            Why::Released => Reason::Released,
            Why::NotNamed | Why::EarlierLife if all_gone && record.log == LogState::Through => Reason::LogNotNeeded,
            Why::NotNamed | Why::EarlierLife if all_gone && !some_left => Reason::LossSuspected,
            Why::NotNamed | Why::EarlierLife if all_gone && !self.media_have_what_was_flushed(record) => {
                Reason::UnsyncedLost
            }
            Why::NotNamed => Reason::NotNamed,
            Why::EarlierLife => Reason::EarlierLife,
        }
    }

    fn shown_of_owner(&self, owning: &super::Owning) -> (State, Reason) {
        if owning.silent_since.is_some() {
            let state = match &owning.phase {
                Phase::Sealing(_) | Phase::Agreeing => State::Agreeing,
                Phase::Custodian => State::Custodian,
                Phase::Serving => State::Owner,
            };
            return (state, Reason::TierFailed);
        }
        let goal = owning.goal.as_ref().filter(|goal| goal.stage != GoalStage::Waiting);
        let going = goal.map(|goal| if goal.to.is_some() { Reason::HandingOver } else { Reason::Releasing });
        match &owning.phase {
            Phase::Sealing(_) if self.now < self.old_lease_ends() => (State::Agreeing, Reason::AwaitingLease),
            Phase::Sealing(_) => (State::Agreeing, Reason::SealingMembers),
            Phase::Agreeing if owning.agreed => (State::Agreeing, Reason::AwaitingBacking),
            Phase::Agreeing => (State::Agreeing, Reason::AwaitingMembers),
            Phase::Custodian if owning.backing == OwnBacking::Open => {
                (State::Custodian, going.unwrap_or(Reason::NoLease))
            }
            Phase::Custodian => (State::Custodian, going.unwrap_or(Reason::BackingOutOfReach)),
            Phase::Serving => (State::Owner, going.unwrap_or_else(|| self.reason_serving(owning))),
        }
    }

    fn reason_serving(&self, owning: &super::Owning) -> Reason {
        let undecided = self.coordinator.change.as_ref().is_some_and(|change| change.stage == Stage::Unknown);
        if undecided {
            Reason::ChangeUndecided
        } else if self.tier_failed {
            Reason::TierFailed
        } else if owning.lease_told.is_none_or(|lease| lease <= self.now) {
            Reason::NoLease
        } else if !owning.record.unfenced.is_empty() {
            Reason::Unfenced
        } else if (owning.record.members.len() as u32) < 1 + self.requested.peers {
            Reason::TooFewMembers
        } else {
            Reason::AsItShouldBe
        }
    }
}
