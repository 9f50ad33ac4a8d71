//! The operator's words, and what ends an ownership by intent: hand-over, release; and what begins one without a log: opening.

use super::coordinator::{Change, Stage};
use super::own::Phase;
use super::{Asking, Command, CommandError, Effect, Ownership, Role};
use crate::api::Order;
use crate::cluster::*;
use crate::record::MEMBERS_MAX;
use crate::types::*;
use alloc::vec::Vec;

/// Where the ownership is to go.
#[derive(Debug)]
pub(super) struct Goal {
    /// A member; none: nobody is to serve (release).
    pub(super) to: Option<NodeId>,
    pub(super) id: Option<ControlId>,
    pub(super) stage: GoalStage,
    /// The member has said where it runs since then.
    since: Instant,
    /// Given up if it is not quiet by then.
    until: Instant,
    /// The volume is quiet.
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GoalStage {
    /// Another change is open, or the member has not said where it runs.
    Waiting,
    /// The volume becomes quiet.
    Quiescing,
    /// The change is proposed. It cannot be taken back: nobody is served until it is decided (C2).
    Proposed,
}

/// A node that is made a member beside those that are asked for, because it is to become the owner.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) node: NodeId,
    /// Answered when it is a member.
    pub(super) id: Option<ControlId>,
    /// Given up by then, if nothing comes of it; as a member it is one too many from then on.
    pub(super) until: Instant,
    /// Given up by then, whatever it is about.
    pub(super) until_at_most: Instant,
}

impl Goal {
    pub(super) fn timeout(&self) -> Option<Instant> {
        (self.stage != GoalStage::Proposed).then_some(self.until)
    }
}

/// A volume that nobody serves is opened here.
#[derive(Debug)]
pub(super) struct Opening {
    id: ControlId,
    /// The record whose logs the operator gives up, by what this node knew of it then. A read may be answered much later, and
    /// show the logs of somebody who has served meanwhile.
    given_up: Option<(Term, Config)>,
    stage: OpeningStage,
}

#[derive(Debug)]
enum OpeningStage {
    /// The record is read.
    Looking,
    /// Members are asked whether one of them has the log.
    Asking { record: Record, since: Instant, until: Instant },
    /// The tier is made anew.
    Formatting { record: Record },
    /// The change is proposed.
    Proposed,
}

impl Opening {
    pub(super) fn timeout(&self) -> Option<Instant> {
        match &self.stage {
            OpeningStage::Asking { until, .. } => Some(*until),
            OpeningStage::Looking | OpeningStage::Formatting { .. } | OpeningStage::Proposed => None,
        }
    }
}

/// Who was asked to take over.
#[derive(Debug)]
pub(super) struct GaveWay {
    to: Incarnation,
    /// The term that was given up, or the one that was handed over.
    term: Term,
    again: Instant,
    until: Instant,
}

impl GaveWay {
    pub(super) fn timeout(&self) -> Instant {
        self.again.min(self.until)
    }

    /// The one who was asked is the owner, and is heard.
    pub(super) fn is_heard(&self, envelope: &Envelope) -> bool {
        envelope.from.node == self.to.node && envelope.term >= self.term
    }
}

impl Ownership {
    pub(super) fn on_command(&mut self, id: ControlId, command: Command) {
        let refused = match command {
            Command::HandOver { to } => self.begin_goal(Some(to), Some(id)),
            Command::Recruit { node } => self.begin_recruiting(node, id),
            Command::Release => self.begin_goal(None, Some(id)),
            Command::Open { accept_loss } => self.begin_opening(id, accept_loss),
            Command::Fenced => self.believe_operator(id),
            Command::RestoreRecord => self.restore_record(id),
        };
        if let Err(error) = refused {
            self.answer(id, Err(error));
        }
    }

    pub(super) fn answer(&mut self, id: ControlId, result: Result<(), CommandError>) {
        self.effects.push_back(Effect::Answer(id, result));
    }

    // --- hand-over and release ---

    fn begin_goal(&mut self, to: Option<NodeId>, id: Option<ControlId>) -> Result<(), CommandError> {
        let (now, quiet_max) = (self.now, self.setup.timing.quiet_max);
        let went_back = self.coordinator.went_back.is_some();
        let own = self.own.node;
        let Role::Owning(owning) = &mut self.role else { return Err(CommandError::NotOwner) };
        let ready = match &owning.phase {
            Phase::Serving => true,
            Phase::Custodian => to.is_some(),
            Phase::Sealing(_) | Phase::Agreeing => false,
        };
        if !ready || owning.goal.is_some() {
            return Err(CommandError::Busy);
        }
        if went_back {
            return Err(CommandError::RecordWentBack);
        }
        match to {
            Some(to) if to == own => return Err(CommandError::NothingToDo),
            Some(to) if owning.record.member(to).is_none() => return Err(CommandError::NotMember),
            // Whoever opens a released volume pins nothing.
            None if !owning.record.unfenced.is_empty() => return Err(CommandError::Unfenced),
            Some(_) | None => {}
        }
        let stage = GoalStage::Waiting;
        owning.goal = Some(Goal { to, id, stage, since: now, until: now + quiet_max, quiet: false });
        if let Some(to) = to {
            self.send(Incarnation::none(to), Message::Who { sent: now });
        }
        Ok(())
    }

    fn begin_recruiting(&mut self, node: NodeId, id: ControlId) -> Result<(), CommandError> {
        let (now, quiet_max) = (self.now, self.setup.timing.quiet_max);
        let known = self.candidates.iter().any(|candidate| candidate.node == node);
        let Role::Owning(owning) = &mut self.role else { return Err(CommandError::NotOwner) };
        if owning.record.member(node).is_some() {
            return Err(CommandError::NothingToDo);
        }
        if !matches!(owning.phase, Phase::Serving) || owning.goal.is_some() || owning.guest.is_some() {
            return Err(CommandError::Busy);
        }
        if self.coordinator.went_back.is_some() {
            return Err(CommandError::RecordWentBack);
        }
        if !known || owning.record.members.len() >= MEMBERS_MAX {
            return Err(CommandError::NotRecruited);
        }
        let until_at_most = now + self.setup.timing.kept_out_max;
        owning.guest = Some(Guest { node, id: Some(id), until: now + quiet_max, until_at_most });
        Ok(())
    }

    pub(super) fn settle_goal(&mut self) {
        self.give_custody();
        let (now, open_change) = (self.now, self.coordinator.change.is_some());
        let Role::Owning(owning) = &mut self.role else { return };
        let Some(goal) = &mut owning.goal else { return };
        let gone = goal.to.is_some_and(|to| owning.record.member(to).is_none());
        if goal.stage != GoalStage::Proposed && (now >= goal.until || gone) {
            return self.give_up_goal(if gone { CommandError::NotMember } else { CommandError::TimedOut });
        }
        let at_once = match goal.to {
            Some(_) => planted!(self, hands_over_unquiet),
            None => planted!(self, releases_unquiet),
        };
        let to = goal.to;
        let answered = to.is_none_or(|to| self.answers.get(&to).is_some_and(|answer| answer.sent >= goal.since));
        match goal.stage {
            GoalStage::Waiting if answered && !open_change => {
                goal.stage = GoalStage::Quiescing;
                goal.quiet = at_once;
                if !at_once {
                    self.order(Order::Quiesce { to });
                }
                self.settle_goal();
            }
            GoalStage::Quiescing if goal.quiet && !open_change => self.propose_goal(),
            GoalStage::Waiting | GoalStage::Quiescing | GoalStage::Proposed => {}
        }
    }

    pub(super) fn on_quiet(&mut self) {
        if let Role::Owning(owning) = &mut self.role
            && let Some(goal) = owning.goal.as_mut().filter(|goal| goal.stage == GoalStage::Quiescing)
        {
            goal.quiet = true;
        }
    }

    fn propose_goal(&mut self) {
        let Role::Owning(owning) = &mut self.role else { return };
        let Some(goal) = &mut owning.goal else { return };
        let record = &owning.record;
        let new = match goal.to {
            Some(to) => {
                let Some(answer) = self.answers.get(&to).filter(|answer| record.names(answer.from)) else {
                    return self.give_up_goal(CommandError::NotMember);
                };
                record.handed_over(to, answer.host)
            }
            None => Record { log: LogState::Released, ..record.changed() },
        };
        goal.stage = GoalStage::Proposed;
        if planted!(self, serves_while_handing_over) {
            self.order(Order::Resume);
        }
        // The sets are the same, so the volume need not hear of it; and it does nothing while it is quiet.
        self.announce_only(new, Stage::Ready);
        self.tell_lease();
    }

    fn give_up_goal(&mut self, error: CommandError) {
        let Role::Owning(owning) = &mut self.role else { return };
        let Some(goal) = owning.goal.take() else { return };
        if goal.stage == GoalStage::Quiescing {
            self.order(Order::Resume);
        }
        if let Some(id) = goal.id {
            self.answer(id, Err(error));
        }
    }

    /// The record was written anew meanwhile (C3): what was proposed will never be.
    pub(super) fn give_up_proposed_goal(&mut self) {
        let Role::Owning(owning) = &mut self.role else { return };
        let Some(goal) = owning.goal.take_if(|goal| goal.stage == GoalStage::Proposed) else { return };
        self.order(Order::Resume);
        if let Some(id) = goal.id {
            self.answer(id, Err(CommandError::RecordWentBack));
        }
    }

    /// A custodian hands over to a member that reaches the backing.
    fn give_custody(&mut self) {
        let Role::Owning(owning) = &self.role else { return };
        if !matches!(owning.phase, Phase::Custodian) || owning.goal.is_some() || self.backing_reached {
            return;
        }
        let reaches = |member: &&Incarnation| {
            let mut candidates = self.candidates.iter();
            candidates.any(|candidate| candidate.node == member.node && candidate.reaches_backing)
        };
        let others = owning.record.members.iter().filter(|member| member.node != self.own.node);
        if let Some(to) = others.filter(reaches).map(|member| member.node).next() {
            // A refusal has a cause that passes by itself: it is tried again at the next event.
            let _ = self.begin_goal(Some(to), None);
        }
    }

    /// The record names another owner, by this one's will, or is released.
    pub(super) fn on_given_up(&mut self, record: Record) {
        let Role::Owning(owning) = &mut self.role else { return };
        let goal = owning.goal.take();
        if let Some(id) = goal.as_ref().and_then(|goal| goal.id) {
            self.answer(id, Ok(()));
        }
        if goal.is_some_and(|goal| goal.stage == GoalStage::Proposed && goal.to == Some(record.owner)) {
            self.order(Order::HandedOver(record.term));
        }
        self.counters.hand_overs += 1;
        self.retire();
        let to = record.member(record.owner).filter(|_| record.owner != self.own.node);
        if let Some(to) = to {
            self.ask_to_take_over(to, record.term);
        }
    }

    fn ask_to_take_over(&mut self, to: Incarnation, term: Term) {
        let until = self.now + self.setup.timing.grace;
        self.gave_way = Some(GaveWay { to, term, again: self.now, until });
    }

    pub(super) fn settle_gave_way(&mut self) {
        let (now, again_after) = (self.now, self.setup.timing.channel_dead);
        let Some(gave_way) = &mut self.gave_way else { return };
        if now >= gave_way.until {
            self.gave_way = None;
        } else if now >= gave_way.again {
            gave_way.again = now + again_after;
            let to = gave_way.to;
            self.send(to, Message::TakeOver);
        }
    }

    /// Alone an owner goes on as a single node does: what is in memory can still be read and destaged.
    pub(super) fn on_tier_failed(&mut self) {
        self.tier_failed = true;
        let Role::Owning(owning) = &self.role else { return };
        let well = owning.peers.values().filter(|peer| !peer.failed && peer.open.is_none());
        let members = well.map(|peer| peer.incarnation).filter(|peer| owning.record.names(*peer));
        let Some(to) = members.min() else { return };
        let term = owning.record.term;
        self.retire();
        self.ask_to_take_over(to, term);
    }

    // --- ways out ---

    fn believe_operator(&mut self, id: ControlId) -> Result<(), CommandError> {
        let record = match &self.role {
            Role::Owning(owning) => Some(&owning.record),
            Role::Outside(_) | Role::Following(_) | Role::Asking(_) | Role::Leaving => self.record.as_ref(),
        };
        let record = record.ok_or(CommandError::NoRecord)?;
        let mut terms: Vec<Term> = record.unfenced.iter().map(|former| former.term).collect();
        // Whoever has no part in the volume is to open it: the recorded owner is gone as well.
        if record.log != LogState::Released && matches!(self.role, Role::Outside(_)) {
            terms.push(record.term);
        }
        if terms.is_empty() {
            return Err(CommandError::NothingToDo);
        }
        self.proven.extend(terms);
        self.answer(id, Ok(()));
        Ok(())
    }

    /// C3: the owner knows what the record was. It is written as a change of what the coordinator shows, with a number
    /// that is higher than all that were seen.
    fn restore_record(&mut self, id: ControlId) -> Result<(), CommandError> {
        let Role::Owning(owning) = &mut self.role else { return Err(CommandError::NotOwner) };
        let Some(shown) = self.coordinator.went_back.clone() else { return Err(CommandError::NothingToDo) };
        if shown.term > owning.record.term || self.coordinator.restores.is_some() {
            return Err(CommandError::Busy);
        }
        let known = owning.undecided.iter().chain([&owning.record, &shown]).map(|record| record.config.0);
        let config = Config(known.max().unwrap_or(0) + 1);
        let new = Record { config, ..owning.record.clone() };
        owning.undecided.push(new.clone());
        self.coordinator.change = Some(Change { compare: shown, new, stage: Stage::Ready, restores: true });
        self.coordinator.restores = Some(id);
        Ok(())
    }

    /// A change is decided: if it was that one, the operator is told.
    pub(super) fn restored(&mut self) {
        if let Some(id) = self.coordinator.restores.take() {
            self.answer(id, Ok(()));
        }
    }

    // --- opening ---

    fn begin_opening(&mut self, id: ControlId, accept_loss: bool) -> Result<(), CommandError> {
        match &self.role {
            Role::Owning(_) => return Err(CommandError::Served),
            Role::Outside(outside) if outside.opening_tier => return Err(CommandError::Busy),
            Role::Asking(_) | Role::Leaving => return Err(CommandError::Busy),
            Role::Outside(_) | Role::Following(_) => {}
        }
        if self.opening.is_some() {
            return Err(CommandError::Busy);
        }
        let given_up = self.record.as_ref().map(Record::version).filter(|_| accept_loss);
        if accept_loss && given_up.is_none() {
            return Err(CommandError::NoRecord);
        }
        self.opening = Some(Opening { id, given_up, stage: OpeningStage::Looking });
        self.want_read();
        Ok(())
    }

    /// The record was read to open the volume.
    pub(super) fn consider_opening(&mut self, record: &Record) {
        let Some(opening) = &self.opening else { return };
        if !matches!(opening.stage, OpeningStage::Looking) {
            return;
        }
        let accepted = opening.given_up.is_some() || planted!(self, accepts_loss);
        match record.log {
            LogState::Released => self.prepare_opening(record.clone()),
            LogState::Through | LogState::Needed if record.names(self.own) => self.fail_opening(CommandError::Served),
            LogState::Needed if !accepted => self.fail_opening(CommandError::LossSuspected),
            LogState::Needed => self.ask_before_loss(record.clone()),
            LogState::Through => self.open_if_proven(record.clone()),
        }
    }

    /// The new log knows no window: nothing would be pinned where a former owner may still write.
    fn open_if_proven(&mut self, record: Record) {
        let owner = Unfenced { term: record.term, node: record.owner, host: record.host };
        let proven = record.unfenced.iter().chain([&owner]).all(|former| self.is_proven(former));
        if proven || planted!(self, opens_unproven) {
            self.prepare_opening(record);
        } else {
            self.fail_opening(CommandError::NeedsProof);
        }
    }

    fn ask_before_loss(&mut self, record: Record) {
        let (since, until) = (self.now, self.now + self.setup.timing.member_drop);
        if let Some(opening) = &mut self.opening {
            opening.stage = OpeningStage::Asking { record, since, until };
        }
        self.ask_who_members_are();
    }

    pub(super) fn settle_opening(&mut self) {
        let Some(Opening { stage: OpeningStage::Asking { record, since, until }, given_up, .. }) = &self.opening else {
            return;
        };
        let of_another = given_up.is_some_and(|given_up| given_up != record.version());
        let alive = |member: &Incarnation| self.present(*member, *since) == Some(*member);
        if record.members.iter().any(alive) {
            self.fail_opening(CommandError::MemberAlive);
        } else if self.now < *until {
            // Another may answer yet.
        } else if of_another && !planted!(self, keeps_old_word) {
            self.fail_opening(CommandError::RecordChanged);
        } else {
            let record = record.clone();
            self.open_if_proven(record);
        }
    }

    /// The own tier may go on where its log is empty, is all that is left, or nothing has ever been in it. After
    /// write-through a log that has lost its end is older than the backing, and would be written over it.
    fn prepare_opening(&mut self, record: Record) {
        let recorded = record.member(self.own.node).is_some_and(|member| member.tier == self.own.tier);
        let known = recorded && record.log != LogState::Through;
        if known || (self.fresh && self.own.tier != 0) {
            return self.propose_opening(record);
        }
        if let Some(opening) = &mut self.opening {
            opening.stage = OpeningStage::Formatting { record };
            self.role = Role::Outside(super::Outside { opening_tier: true, ..super::Outside::at_start(self.now) });
            self.effects.push_back(Effect::OpenTier { format: true });
        }
    }

    pub(super) fn on_tier_opened_to_serve(&mut self) {
        if let Some(Opening { stage: OpeningStage::Formatting { record }, .. }) = &self.opening {
            let record = record.clone();
            self.propose_opening(record);
        }
    }

    fn propose_opening(&mut self, record: Record) {
        let Some(opening) = &mut self.opening else { return };
        opening.stage = OpeningStage::Proposed;
        let log = if self.requested.through { LogState::Through } else { LogState::Needed };
        let new = record.opened(self.own, self.setup.host, log);
        self.order(Order::Seal);
        // Who opens a volume without its log has nothing to ask those who had it.
        let (owner, former, owner_heard) = (None, Vec::new(), None);
        let handed_by = None;
        self.role = Role::Asking(Asking { owner, term: record.term, sealed: true, owner_heard, former, handed_by });
        self.propose(record, new, Stage::Ready);
    }

    /// The transaction was won; it was an opening's, if one was under way.
    pub(super) fn opened(&mut self) {
        if let Some(opening) = self.opening.take() {
            self.answer(opening.id, Ok(()));
        }
    }

    pub(super) fn fail_opening(&mut self, error: CommandError) {
        if let Some(opening) = self.opening.take() {
            self.answer(opening.id, Err(error));
        }
    }
}
