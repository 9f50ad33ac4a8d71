//! The operator's words, and what ends an ownership by intent: hand-over, release; and what begins one without a log: opening.

use super::coordinator::{Change, Stage};
use super::own::Phase;
use super::{Asking, Command, CommandError, Effect, Override, Ownership, Role};
use crate::api::Order;
use crate::cluster::*;
use crate::message::*;
use crate::record::MEMBERS_MAX;
use crate::status::Unrest;
use crate::types::*;
use alloc::vec::Vec;

/// Where the ownership is to go.
#[derive(Clone, Debug)]
pub(super) struct Goal {
    /// A member; none: nobody is to serve (release).
    pub(super) to: Option<NodeId>,
    pub(super) id: Option<ControlId>,
    pub(super) stage: GoalStage,
    /// The member has said where it runs since then.
    since: Instant,
    /// Given up if nothing was sent for it by then.
    pub(super) until: Instant,
    /// The volume is quiet.
    quiet: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GoalStage {
    /// Another change is open, or the member has not said where it runs.
    Waiting,
    /// The volume becomes quiet.
    Quiescing,
    /// The change is proposed. Once it was sent it cannot be taken back: nobody is served until it is decided (C2).
    Proposed,
}

/// A node that is made a member beside those that are asked for, because it is to become the owner.
#[derive(Clone, Debug)]
pub(super) struct Guest {
    pub(super) node: NodeId,
    /// Answered when it is a member.
    pub(super) id: Option<ControlId>,
    /// Given up by then, if nothing comes of it; as a member it is one too many from then on.
    pub(super) until: Instant,
    /// Given up by then, whatever it is about.
    pub(super) until_at_most: Instant,
}

/// A volume that nobody serves is opened here.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    /// None: by itself (T11).
    id: Option<ControlId>,
    /// The record whose logs the operator gives up, by what this node knew of it then. A read may be answered much later, and
    /// show the logs of somebody who has served meanwhile.
    given_up: Option<(Term, Epoch)>,
    /// Not the logs are given up, but what they have lost with the power: one that is left is taken (T10).
    takes_synced: bool,
    stage: OpeningStage,
}

#[derive(Clone, Debug)]
enum OpeningStage {
    /// The record is read.
    Looking,
    /// Members are asked whether one of them has the log.
    Asking { record: Record, since: Instant, again: Instant, until: Instant },
    /// The tier is made anew.
    Formatting { record: Record },
    /// The change is proposed.
    Proposed,
}

impl Opening {
    /// The operator gives up what logs hold, where that was his word.
    pub(super) fn accepts_loss(&self) -> Option<Override> {
        self.given_up.and(self.id).map(Override::AcceptsLoss)
    }

    pub(super) fn timeout(&self) -> Option<Instant> {
        match &self.stage {
            OpeningStage::Asking { again, until, .. } => Some(*again.min(until)),
            OpeningStage::Looking | OpeningStage::Formatting { .. } | OpeningStage::Proposed => None,
        }
    }
}

/// Who was asked to take over.
#[derive(Clone, Debug)]
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
            Command::Open { accept_loss } => self.begin_opening(id, accept_loss, false),
            Command::TakeSynced => self.begin_opening(id, true, true),
            Command::Fenced { terms } => self.believe_operator(id, &terms),
            Command::RestoreRecord { saw } => self.begin_restoring(id, saw),
            Command::CannotAnswer { node } => self.excuse(id, node),
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
            self.send(Incarnation::none(to), OwnershipMessage::Who { sent: now });
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
        let can_decide =
            (self.coordinator.answers() && self.inquiry.is_settled()) || planted!(self, quiesces_undecided);
        let Role::Owning(owning) = &mut self.role else { return };
        let Some(goal) = &mut owning.goal else { return };
        let gone = goal.to.is_some_and(|to| owning.record.member(to).is_none());
        if goal.stage != GoalStage::Proposed && (now >= goal.until || gone) {
            let why = match goal.stage {
                _ if gone => CommandError::NotMember,
                GoalStage::Quiescing if !goal.quiet => CommandError::NotQuiet(None),
                GoalStage::Waiting | GoalStage::Quiescing | GoalStage::Proposed => CommandError::TimedOut,
            };
            return self.give_up_goal(why);
        }
        if goal.stage == GoalStage::Proposed
            && now >= goal.until
            && self.coordinator.has_unsent_change()
            && !planted!(self, keeps_unsent_goal)
        {
            return self.take_back_goal();
        }
        // It was sent, and no answer comes, or none that this node can keep. The other one need not wait for that: by what is recorded it
        // is the owner, or a member whose owner has gone.
        let given_away = goal.stage == GoalStage::Proposed && goal.to.is_some();
        let is_over = now >= goal.until + self.setup.timing.quiet_max && self.coordinator.went_back.is_none();
        if given_away && is_over && !planted!(self, keeps_undecided_goal) {
            return self.retire();
        }
        let at_once = match goal.to {
            Some(_) => planted!(self, hands_over_unquiet),
            None => planted!(self, releases_unquiet),
        };
        let to = goal.to;
        let answered = to.is_none_or(|to| self.answers.get(&to).is_some_and(|answer| answer.sent >= goal.since));
        match goal.stage {
            // While nothing can be decided, becoming quiet would only keep clients waiting.
            GoalStage::Waiting if answered && !open_change && can_decide => {
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
        let held_until = self.now + self.setup.timing.held_max;
        if let Role::Owning(owning) = &mut self.role
            && let Some(goal) = owning.goal.as_mut().filter(|goal| goal.stage == GoalStage::Quiescing)
        {
            goal.quiet = true;
            goal.until = goal.until.min(held_until);
        }
    }

    /// Clients have waited as long as they can be kept waiting.
    pub(super) fn on_not_quiet(&mut self, unrest: Unrest) {
        if let Role::Owning(owning) = &self.role
            && owning.goal.as_ref().is_some_and(|goal| goal.stage == GoalStage::Quiescing && !goal.quiet)
        {
            self.give_up_goal(CommandError::NotQuiet(Some(unrest)));
        }
    }

    fn propose_goal(&mut self) {
        if self.coordinator.went_back.is_some() {
            return self.give_up_goal(CommandError::RecordWentBack);
        }
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
        self.publish_lease();
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

    /// What was proposed waits for something, and nobody was sent it: the volume is served again.
    fn take_back_goal(&mut self) {
        self.coordinator.change = None;
        self.on_undone();
        let Role::Owning(owning) = &mut self.role else { return };
        let Some(goal) = owning.goal.take() else { return };
        self.order(Order::Resume);
        if let Some(id) = goal.id {
            self.answer(id, Err(CommandError::TimedOut));
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
        let out_of_reach = self.backing_out_of_reach(owning);
        if !matches!(owning.phase, Phase::Custodian) || owning.goal.is_some() || !out_of_reach {
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

    pub(super) fn ask_to_take_over(&mut self, to: Incarnation, term: Term) {
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
            self.send(to, OwnershipMessage::TakeOver);
        }
    }

    pub(super) fn on_tier_failed(&mut self, answers: bool) {
        self.tier_failed = true;
        self.held_before = self.figures.as_ref().map(|figures| (self.own, figures.committed));
        if !answers {
            self.fall_silent();
        }
    }

    /// The owner answers nothing more: from here on it leaves nobody out, because a member that is cut off from it may be the one that
    /// takes over. What it was about to propose and has told nobody is taken back.
    fn fall_silent(&mut self) {
        let Role::Owning(owning) = &mut self.role else { return };
        owning.silent_since.get_or_insert(self.now);
        let unsent =
            |change: &mut Change| !change.restores() && matches!(change.stage, Stage::Preparing | Stage::Ready);
        if !planted!(self, drops_in_silence) && self.coordinator.change.take_if(unsent).is_some() {
            self.on_undone();
        }
    }

    /// The tier has failed. An owner that answers nothing more gives way to the first member that is well; one that is not may only
    /// have a beacon open, or be cut off for a while. When none was for as long as one that lives needs to ask by itself (L2), the tier
    /// is opened anew, as at a start. Alone an owner that serves goes on as a single node does: what is in memory can still be read
    /// and destaged, until another member is there.
    pub(super) fn settle_failed_tier(&mut self) {
        let (now, looks_for) = (self.now, self.looks_for_well_member());
        let once = planted!(self, looks_for_well_member_once);
        if !self.tier_failed {
            return;
        }
        let Role::Owning(owning) = &self.role else { return };
        if owning.silent_since.is_none() {
            if owning.serving() && owning.asked().next().is_none() {
                return;
            }
            self.fall_silent();
        }
        let Role::Owning(owning) = &self.role else { return };
        let since = owning.silent_since.unwrap_or(now);
        let well = owning.peers.values().filter(|peer| peer.is_well() && owning.record.names(peer.incarnation));
        let to = well.map(|peer| peer.incarnation).min();
        if (to.is_none() && now < since + looks_for) || (once && (to.is_none() || now > since)) {
            return;
        }
        let term = owning.record.term;
        self.retire();
        if let Some(to) = to {
            self.ask_to_take_over(to, term);
        }
    }

    /// A member that lives and hears no beacon asks by itself within the grace, once it was not heard for the time in which others
    /// would be dropped.
    pub(super) fn looks_for_well_member(&self) -> Duration {
        Duration(self.setup.timing.grace.0 + self.setup.timing.member_drop.0)
    }

    // --- ways out ---

    /// Former owners for whom the operator's word may be given here. Whoever has no part in the volume is to open it: for him
    /// the recorded owner is gone as well.
    pub(super) fn may_be_called_fenced(&self) -> Vec<Unfenced> {
        let record = match &self.role {
            Role::Owning(owning) => Some(&owning.record),
            Role::Outside(_) | Role::Following(_) | Role::Asking(_) | Role::Leaving => self.record.as_ref(),
        };
        let Some(record) = record else { return Vec::new() };
        let to_be_opened = record.log != LogState::Released && matches!(self.role, Role::Outside(_));
        let owner = Unfenced { term: record.term, node: record.owner, host: record.host };
        record.unfenced.iter().copied().chain(to_be_opened.then_some(owner)).collect()
    }

    /// T6: his word is about the terms that he has seen. Where others are without proof by now, it was given about something else.
    fn believe_operator(&mut self, id: ControlId, seen: &[Term]) -> Result<(), CommandError> {
        if self.record.is_none() {
            return Err(CommandError::NoRecord);
        }
        let formers = self.may_be_called_fenced();
        if formers.is_empty() {
            return Err(CommandError::NothingToDo);
        }
        let unseen = |former: &&Unfenced| !seen.contains(&former.term) && !self.is_proven(former);
        if formers.iter().any(|former| unseen(&former)) && !planted!(self, word_for_all_terms) {
            return Err(CommandError::NotAsSeen);
        }
        self.proven.extend(formers.iter().map(|former| former.term));
        self.answer(id, Ok(()));
        Ok(())
    }

    /// A change is decided: if it was that one, the operator is told.
    pub(super) fn restored(&mut self) {
        if let Some(id) = self.coordinator.restores.take() {
            self.answer(id, Ok(()));
        }
    }

    // --- opening ---

    fn begin_opening(&mut self, id: ControlId, gives_up: bool, takes_synced: bool) -> Result<(), CommandError> {
        match &self.role {
            Role::Owning(_) => return Err(CommandError::Served),
            Role::Outside(outside) if outside.opening_tier => return Err(CommandError::Busy),
            Role::Asking(_) | Role::Leaving => return Err(CommandError::Busy),
            Role::Outside(_) | Role::Following(_) => {}
        }
        if self.opening.is_some() {
            return Err(CommandError::Busy);
        }
        let given_up = self.record.as_ref().map(Record::version).filter(|_| gives_up);
        if gives_up && given_up.is_none() {
            return Err(CommandError::NoRecord);
        }
        self.opening = Some(Opening { id: Some(id), given_up, takes_synced, stage: OpeningStage::Looking });
        self.want_read();
        Ok(())
    }

    /// T11: by no command, and with nothing given up.
    pub(super) fn begin_opening_alone(&mut self) {
        self.opening = Some(Opening { id: None, given_up: None, takes_synced: false, stage: OpeningStage::Looking });
        self.want_read();
    }

    /// The record was read to open the volume.
    pub(super) fn consider_opening(&mut self, record: &Record) {
        let Some(opening) = &self.opening else { return };
        if !matches!(opening.stage, OpeningStage::Looking) {
            return;
        }
        if opening.id.is_none() && !self.opens_alone() {
            // Somebody has opened it meanwhile, or the record does not say any more that nothing depends on the log.
            return self.fail_opening(CommandError::RecordChanged);
        }
        let accepted = opening.given_up.is_some() || planted!(self, accepts_loss);
        let takes_synced = opening.takes_synced;
        let is_left = record.member(self.own.node).is_some_and(|member| member.is_earlier_life_of(self.own));
        match record.log {
            LogState::Released | LogState::Through if takes_synced => self.fail_opening(CommandError::NothingToDo),
            LogState::Needed if takes_synced && !is_left && !record.names(self.own) => {
                self.fail_opening(CommandError::NotMember)
            }
            LogState::Released => self.prepare_opening(record.clone()),
            LogState::Through | LogState::Needed if record.names(self.own) => self.fail_opening(CommandError::Served),
            LogState::Needed if opening.id.is_none() && planted!(self, opens_alone_with_loss) => {
                self.open_if_proven(record.clone());
            }
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
            opening.stage = OpeningStage::Asking { record, since, again: since, until };
        }
        self.ask_members_before_loss();
    }

    /// A question or its answer may be lost: they are asked all the time.
    fn ask_members_before_loss(&mut self) {
        let (now, again_after) = (self.now, self.setup.timing.channel_dead);
        let only_once = planted!(self, asks_members_once);
        let Some(Opening { stage: OpeningStage::Asking { since, again, until, .. }, .. }) = &mut self.opening else {
            return;
        };
        if now < *again || now >= *until || (only_once && now > *since) {
            return;
        }
        *again = now + again_after;
        self.ask_who_members_are();
    }

    pub(super) fn settle_opening(&mut self) {
        self.ask_members_before_loss();
        let Some(Opening { stage: OpeningStage::Asking { record, since, until, .. }, given_up, .. }) = &self.opening
        else {
            return;
        };
        let of_another = given_up.is_some_and(|given_up| given_up != record.version());
        let alive = |member: &Incarnation| self.present(*member, *since) == Some(*member);
        let is_left = |member: &Incarnation| {
            let present = self.present(*member, *since);
            present.is_some_and(|present| member.is_earlier_life_of(present))
        };
        let takes_synced = self.opening.as_ref().is_some_and(|opening| opening.takes_synced);
        let gives_up_logs = !takes_synced && !planted!(self, gives_up_answering_logs);
        if record.members.iter().any(alive) {
            self.fail_opening(CommandError::MemberAlive);
        } else if gives_up_logs && record.members.iter().any(is_left) {
            self.fail_opening(CommandError::LogsAnswer);
        } else if self.now < *until {
            // Another may answer yet.
        } else if of_another && !planted!(self, keeps_old_word) {
            self.fail_opening(CommandError::RecordChanged);
        } else if takes_synced {
            let (record, since) = (record.clone(), *since);
            let Some(opening) = &mut self.opening else { return };
            opening.stage = OpeningStage::Proposed;
            let by = opening.accepts_loss();
            // It has the log that says what may be under way to the backing: that is pinned, like at any take-over (T5).
            self.ask_as_it_is_now(record, since, by);
        } else {
            let record = record.clone();
            self.open_if_proven(record);
        }
    }

    /// T10: what the operator gives up is looked for until the change is sent, each time: a member that has answered the questions
    /// about it (C5) has its log, or what is left of it. Where the change was sent before, it may take effect all the same (C2).
    pub(super) fn stop_answered_opening(&mut self) {
        let Some(Opening { stage: OpeningStage::Proposed, given_up: Some(_), takes_synced, .. }) = &self.opening else {
            return;
        };
        let of_opening = |change: &&Change| change.waits_for_answers() && change.compare.log == LogState::Needed;
        let Some(change) = self.coordinator.change.as_ref().filter(of_opening) else { return };
        // Those that are taken are sealed, and asked for what they have (T3).
        let Role::Asking(Asking { former, .. }) = &self.role else { return };
        let counts = !planted!(self, gives_up_answering_logs);
        let is_given_up = |present: Incarnation| counts && !(*takes_synced && former.contains(&present));
        let alive = |member: &Incarnation| self.inquiry.heard_as(member.node) == Some(*member);
        let is_left = |member: &Incarnation| {
            let present = self.inquiry.heard_as(member.node);
            present.is_some_and(|present| member.is_earlier_life_of(present) && is_given_up(present))
        };
        let members = &change.compare.members;
        let error = match change.stage {
            _ if planted!(self, gives_up_what_answers_late) => return,
            _ if !members.iter().any(|member| alive(member) || is_left(member)) => return,
            Stage::Unknown => CommandError::Undecided,
            _ if members.iter().any(alive) => CommandError::MemberAlive,
            _ => CommandError::LogsAnswer,
        };
        self.stop_asking(error);
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
            if self.own.tier == 0 {
                // Nobody can own a volume without one.
                return self.fail_opening(CommandError::NoTier);
            }
            self.propose_opening(record);
        }
    }

    fn propose_opening(&mut self, record: Record) {
        let Some(opening) = &mut self.opening else { return };
        opening.stage = OpeningStage::Proposed;
        let by = opening.accepts_loss();
        let log = if self.requested.through { LogState::Through } else { LogState::Needed };
        let new = record.opened(self.own, self.setup.host, log);
        self.order(Order::Seal);
        // Who opens a volume without its log has nothing to ask those who had it.
        let (owner, former, owner_heard) = (None, Vec::new(), None);
        let handed_by = None;
        self.role = Role::Asking(Asking { owner, term: record.term, sealed: true, owner_heard, former, handed_by });
        self.propose(record, new, Stage::Ready, by);
    }

    /// The transaction was won; it was an opening's, if one was under way.
    pub(super) fn opened(&mut self) {
        if let Some(id) = self.opening.take().and_then(|opening| opening.id) {
            self.answer(id, Ok(()));
        }
    }

    pub(super) fn fail_opening(&mut self, error: CommandError) {
        let Some(opening) = self.opening.take() else { return };
        match opening.id {
            Some(id) => self.answer(id, Err(error)),
            // What failed for a tier that cannot be made, or for anything else, is not tried all the time.
            None => self.alone_again = self.now + self.setup.timing.look,
        }
    }
}
