//! Before this node changes the record it asks who knows more (C5); and a coordinator that went back is the concern of
//! every node (C6).
//!
//! Two things make a node ask: a change of the record that is about to be sent, and a rewind that is not settled. An answer that names a higher number than was seen is taken as seen, which is the veto: what the coordinator
//! shows is then older than what is known (C3), and nothing is sent.
//!
//! The coordinator is asked like the nodes: it may be another one than the one that answered before, and its answer tells. Who did not
//! reach it was out of reach of the nodes as well, perhaps, and hears them a moment later: until then their silence says nothing.

use super::coordinator::{Change, Stage};
use super::{CommandError, Effect, Override, Ownership, Role};
use crate::cluster::*;
use crate::message::*;
use crate::types::*;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// What was asked of other nodes, and what they have answered.
#[derive(Clone, Debug)]
pub(super) struct Inquiry {
    /// A change waits for the answers since then; what was asked before says nothing.
    since: Option<Instant>,
    /// When those who have not answered are asked again.
    again: Instant,
    /// When the newest question was sent that each has answered, and what it was then.
    answered: BTreeMap<NodeId, (Instant, Incarnation)>,
    /// Since when each cannot be reached.
    down_since: BTreeMap<NodeId, Instant>,
    /// Of coordinators that went back, as far as anybody has told.
    rewinds: KnownRewinds,
    /// When this node has heard of those that are open, one for each.
    rewound_at: Vec<Instant>,
    /// Nodes that cannot answer about it, by the operator's word.
    excused: BTreeSet<NodeId>,
}

impl Inquiry {
    pub(super) fn new(now: Instant, rewinds: KnownRewinds) -> Inquiry {
        Inquiry {
            since: None,
            again: now,
            answered: BTreeMap::new(),
            down_since: BTreeMap::new(),
            rewound_at: vec![now; rewinds.open.len()],
            rewinds,
            excused: BTreeSet::new(),
        }
    }

    /// What was asked about is asked once more.
    pub(super) fn begin_anew(&mut self) {
        self.since = None;
    }

    /// This process did not run for so long: what it had asked about is long ago, and nobody was out of its reach meanwhile as far as it
    /// can tell.
    pub(super) fn forgive(&mut self, late: Duration, now: Instant) {
        self.begin_anew();
        self.down_since.values_mut().for_each(|since| *since = (*since + late).min(now));
    }

    pub(super) fn is_settled(&self) -> bool {
        self.rewinds.open.is_empty()
    }

    /// When this node has heard of the newest rewind that is open.
    fn newest_rewind(&self) -> Option<Instant> {
        self.rewound_at.last().copied()
    }

    pub(super) fn link(&mut self, node: NodeId, up: bool, now: Instant) {
        if up {
            self.down_since.remove(&node);
        } else {
            self.down_since.entry(node).or_insert(now);
        }
    }

    fn has_answered(&self, node: NodeId, since: Instant) -> bool {
        self.answered.get(&node).is_some_and(|(sent, _)| *sent >= since)
    }

    /// What a node is that has answered since a change waits for that.
    pub(super) fn heard_as(&self, node: NodeId) -> Option<Incarnation> {
        let (sent, from) = self.answered.get(&node)?;
        self.since.is_some_and(|since| *sent >= since).then_some(*from)
    }
}

impl Change {
    /// It waits to be sent, and is sent only when others were asked (C5).
    pub(super) fn waits_for_answers(&self) -> bool {
        !self.restores() && matches!(self.stage, Stage::Ready | Stage::Unknown)
    }
}

impl Ownership {
    /// All other nodes that are registered, or that the newest known record names. None: nobody has told who is.
    fn others(&self) -> Option<BTreeSet<NodeId>> {
        let registered = self.candidates.iter().map(|candidate| candidate.node);
        let members = self.known.iter().flat_map(|record| &record.members).map(|member| member.node);
        let others = registered.chain(members).filter(|node| *node != self.own.node).collect();
        (!self.candidates.is_empty()).then_some(others)
    }

    /// Others who have said nothing since.
    fn unheard_since(&self, since: Instant) -> Vec<NodeId> {
        let others = self.others().unwrap_or_default();
        others.into_iter().filter(|node| !self.inquiry.has_answered(*node, since)).collect()
    }

    /// Who has not said what it knows since the coordinator went back, and is waited for.
    pub(super) fn unheard_of_rewind(&self) -> Vec<NodeId> {
        let newest = self.inquiry.newest_rewind();
        let mut unheard = newest.map(|since| self.unheard_since(since)).unwrap_or_default();
        unheard.retain(|node| !self.inquiry.excused.contains(node));
        unheard
    }

    /// A change waits for what others know.
    pub(super) fn awaits_answers(&self) -> bool {
        self.coordinator.change.as_ref().is_some_and(Change::waits_for_answers) && !self.may_go_on()
    }

    /// Whether a change may be sent, as far as others are concerned (C5, C6).
    pub(super) fn may_send(&self, change: &Change) -> bool {
        if change.restores() {
            return true;
        }
        // The veto: somebody knows a newer record than the one that is compared with.
        let vetoed = change.compare.version() < self.seen && !planted!(self, believes_older_record);
        // Nor is one repeated of which nobody knows whether it took effect, by an owner that answers nothing more.
        let silent = matches!(&self.role, Role::Owning(owning) if owning.silent_since.is_some());
        !vetoed && (!silent || planted!(self, drops_in_silence)) && self.may_go_on()
    }

    /// Everybody was asked just now, and has answered, or is silent where silence says nothing.
    fn may_go_on(&self) -> bool {
        if planted!(self, goes_on_unasked) {
            return true;
        }
        let (Some(since), Some(_)) = (self.inquiry.since, self.others()) else { return false };
        if !self.coordinator.looked_since(since) && !planted!(self, sends_unlooked) {
            return false;
        }
        let silent = self.unheard_since(since);
        let patience = self.setup.timing.silence();
        let is_gone =
            |node: &NodeId| self.inquiry.down_since.get(node).is_some_and(|down| self.now >= *down + patience);
        let may_be_silent = if self.inquiry.is_settled() || planted!(self, rewind_waits_for_nobody) {
            let long_back = self.coordinator.back_since.is_none_or(|back| self.now >= back + patience);
            (long_back || planted!(self, silence_counts_at_once))
                && (self.now >= since + patience || silent.iter().all(is_gone))
        } else {
            silent.iter().all(|node| self.inquiry.excused.contains(node))
        };
        (silent.is_empty() || may_be_silent) && !self.is_long_ago(since)
    }

    /// A change waits for the coordinator to answer a question first.
    pub(super) fn awaits_look(&self) -> bool {
        let Some(since) = self.inquiry.since.filter(|_| self.coordinator.went_back.is_none()) else { return false };
        let waits = |change: &Change| change.waits_for_answers() && change.compare.version() >= self.seen;
        // Where it takes longer than what the others say is of worth, the answer to the question that is open is the look.
        let is_slow = self.coordinator.is_asked_since(self.now, self.setup.timing.silence());
        let is_wanted = self.coordinator.change.as_ref().is_some_and(waits) && !is_slow;
        is_wanted && !self.coordinator.looked_since(since) && !planted!(self, sends_unlooked)
    }

    /// What was answered then may have changed since.
    fn is_long_ago(&self, since: Instant) -> bool {
        let silence = self.setup.timing.silence();
        self.now > since + silence + silence
    }

    /// A change that needs the answers is there, or may be soon: they cost no time where they come in the time that is waited
    /// anyway.
    fn wants_answers(&self) -> bool {
        let timing = &self.setup.timing;
        let soon = match &self.role {
            Role::Following(following) => self.now + timing.silence() >= following.heard + timing.grace,
            Role::Owning(owning) => owning
                .peers
                .values()
                .any(|peer| peer.failed || peer.open.is_some_and(|open| self.now >= open + timing.channel_dead)),
            Role::Asking(_) => true,
            Role::Outside(_) | Role::Leaving => false,
        };
        let change = self.coordinator.change.as_ref();
        soon || self.restoring.is_some() || change.is_some_and(Change::waits_for_answers)
    }

    pub(super) fn settle_inquiry(&mut self) {
        let (now, timing) = (self.now, self.setup.timing);
        let wanted = self.wants_answers();
        let fresh = self.inquiry.since.filter(|since| wanted && !self.is_long_ago(*since));
        if wanted && fresh.is_none() {
            self.inquiry.again = now;
        }
        self.inquiry.since = fresh.or(wanted.then_some(now));
        self.settle_rewind();
        self.give_up_unheard_opening();
        let Some(since) = self.inquiry.since.or(self.inquiry.newest_rewind()) else { return };
        if now < self.inquiry.again || planted!(self, goes_on_unasked) {
            return;
        }
        self.inquiry.again = now + if wanted { timing.channel_dead } else { timing.beacon };
        // Who has answered may have settled it since, or this node may have read since what keeps it from believing that.
        let asked = match self.inquiry.is_settled() {
            true => self.unheard_since(since),
            false => self.others().unwrap_or_default().into_iter().collect(),
        };
        for node in asked {
            self.ask_what_is_known(node);
        }
    }

    /// Once, whoever has answered before.
    pub(super) fn ask_all_what_they_know(&mut self) {
        for node in self.others().unwrap_or_default() {
            self.ask_what_is_known(node);
        }
    }

    fn ask_what_is_known(&mut self, node: NodeId) {
        let rewinds = Rewinds { open: self.told_rewinds(), settled: Vec::new() };
        self.send_knowledge(Incarnation::none(node), OwnershipMessage::Know { sent: self.now, rewinds });
    }

    /// Whoever is to open the volume by an operator's command, and waits for nodes that do not answer, says so instead.
    fn give_up_unheard_opening(&mut self) {
        let Some(since) = self.inquiry.since else { return };
        let silent = self.now >= since + self.setup.timing.silence() && !self.unheard_of_rewind().is_empty();
        if silent && self.opening.is_some() && self.awaits_answers() {
            self.stop_asking(CommandError::Unheard);
        }
    }

    pub(super) fn inquiry_timeout(&self) -> Option<Instant> {
        let timing = &self.setup.timing;
        let soon = match &self.role {
            Role::Following(following) => {
                Some(Instant((following.heard + timing.grace).0.saturating_sub(timing.silence().0)))
            }
            Role::Outside(_) | Role::Asking(_) | Role::Owning(_) | Role::Leaving => None,
        };
        let Some(since) = self.inquiry.since else {
            return soon.into_iter().chain((!self.inquiry.is_settled()).then_some(self.inquiry.again)).min();
        };
        let ends = since + timing.silence();
        let stale = ends + timing.silence() + Duration(1);
        let long_back = self.coordinator.back_since.map(|back| back + timing.silence());
        [ends, stale, self.inquiry.again].into_iter().chain(long_back).filter(|at| *at > self.now).min()
    }

    fn told_rewinds(&self) -> Vec<RewindId> {
        if planted!(self, rewind_not_told) {
            return Vec::new();
        }
        let named: Vec<RewindId> = self.inquiry.rewinds.open.iter().copied().filter(|id| id.is_name()).collect();
        named[named.len().saturating_sub(REWINDS_TOLD_MAX)..].to_vec()
    }

    fn send_knowledge(&mut self, to: Incarnation, message: OwnershipMessage) {
        let (term, epoch) = self.seen;
        let envelope = Envelope { volume: self.setup.volume, term, epoch, from: self.own, to };
        self.effects.push_back(Effect::Send(envelope, message.into()));
    }

    pub(super) fn on_know(&mut self, envelope: &Envelope, sent: Instant, rewinds: Rewinds) {
        self.on_knowledge(envelope, &rewinds);
        self.answer_asker(envelope.from);
        // What this node has heard of just now is open here as well.
        let settled = |id: &RewindId| self.inquiry.rewinds.settled.contains(id) && !planted!(self, rewind_not_told);
        let settled = rewinds.open.into_iter().filter(settled).collect();
        let rewinds = Rewinds { open: self.told_rewinds(), settled };
        self.send_knowledge(envelope.from, OwnershipMessage::Known { sent, rewinds });
    }

    pub(super) fn on_known(&mut self, envelope: &Envelope, sent: Instant, rewinds: Rewinds) {
        if sent > self.now {
            return;
        }
        self.on_knowledge(envelope, &rewinds);
        let answer = (sent, envelope.from);
        let newest = self.inquiry.answered.entry(envelope.from.node).or_insert(answer);
        *newest = (*newest).max(answer);
    }

    /// What another node has seen, and what it knows of a coordinator that went back.
    fn on_knowledge(&mut self, envelope: &Envelope, rewinds: &Rewinds) {
        let theirs = (envelope.term, envelope.epoch);
        if theirs > self.seen && !planted!(self, veto_ignored) {
            self.see(envelope, false);
            self.want_read();
        }
        if planted!(self, rewind_not_told) {
            return;
        }
        for id in &rewinds.open {
            self.on_rewind(*id);
        }
        // It has heard all since it knew of that very one, and by then it had happened.
        for id in &rewinds.settled {
            if self.inquiry.rewinds.open.contains(id) && self.has_read_all(theirs) {
                self.rewind_is_settled(*id);
            }
        }
    }

    /// The node knows of one, by another volume or by the coordinator. Of one that is settled here it may not know that.
    pub(super) fn on_rewound(&mut self, id: RewindId) {
        if self.inquiry.rewinds.settled.contains(&id) {
            self.effects.push_back(Effect::RewindSettled(id));
        }
        self.on_rewind(id);
    }

    /// The coordinator went back.
    fn on_rewind(&mut self, id: RewindId) {
        let full = self.inquiry.rewinds.open.len() >= REWINDS_OPEN_MAX;
        if full && planted!(self, rewind_without_room_is_lost) {
            return;
        }
        let Some(opened) = self.inquiry.rewinds.open(id) else { return };
        self.inquiry.rewound_at.push(self.now);
        self.effects.push_back(Effect::Rewound(opened));
        self.ask_all_anew();
    }

    /// What was heard before, and whom the operator has excused, says nothing of what is open from now on.
    fn ask_all_anew(&mut self) {
        self.inquiry.excused.clear();
        self.inquiry.since = None;
        self.inquiry.again = self.now;
        self.want_read();
    }

    /// All have said what they know, and nobody knows more than is recorded.
    fn settle_rewind(&mut self) {
        if self.inquiry.is_settled() || self.others().is_none() || !self.has_read_all((Term(0), Epoch(0))) {
            return;
        }
        let open = self.inquiry.rewinds.open.iter().copied().zip(self.inquiry.rewound_at.iter().copied());
        let is_heard = |since: Instant| {
            let unheard = self.unheard_since(since);
            unheard.iter().all(|node| self.inquiry.excused.contains(node)) && self.coordinator.answered_since(since)
        };
        let may_be = |id: &RewindId| id.is_name() || self.inquiry.rewinds.has_only_more();
        let heard: Vec<RewindId> =
            open.filter(|(id, since)| may_be(id) && is_heard(*since)).map(|(id, _)| id).collect();
        for id in heard {
            self.rewind_is_settled(id);
        }
    }

    /// What the coordinator shows is no older than what was seen, here or there.
    fn has_read_all(&self, there: (Term, Epoch)) -> bool {
        let recorded = self.record.as_ref().map_or((Term(0), Epoch(0)), Record::version);
        self.coordinator.went_back.is_none() && recorded >= self.seen.max(there)
    }

    fn rewind_is_settled(&mut self, id: RewindId) {
        let Some(at) = self.inquiry.rewinds.open.iter().position(|open| *open == id) else { return };
        self.inquiry.rewound_at.remove(at);
        self.inquiry.rewinds.settle(id);
        self.effects.push_back(Effect::RewindSettled(id));
        // None of those that had no room came later than now: from now on another one has.
        if self.inquiry.rewinds.has_only_more() {
            self.inquiry.rewound_at = vec![self.now];
            self.ask_all_anew();
        }
    }

    /// The operator has named a node that cannot say what it knows.
    pub(super) fn excuse(&mut self, id: ControlId, node: NodeId) -> Result<(), CommandError> {
        let Some(newest) = self.inquiry.newest_rewind() else { return Err(CommandError::NothingToDo) };
        if self.inquiry.has_answered(node, newest) {
            return Err(CommandError::Answered);
        }
        self.inquiry.excused.insert(node);
        self.answer(id, Ok(()));
        Ok(())
    }
}

/// The operator has the record written anew (C3).
#[derive(Clone, Copy, Debug)]
pub(super) struct Restoring {
    id: ControlId,
    since: Instant,
    /// The record that was to be written, by the number that the operator has seen here.
    saw: (Term, Epoch),
}

impl Restoring {
    pub(super) fn timeout(&self, patience: Duration) -> Instant {
        self.since + patience
    }
}

impl Ownership {
    /// The newest record that this node knows in whole.
    pub(super) fn newest_known(&self) -> Option<&Record> {
        match &self.role {
            Role::Owning(owning) => Some(&owning.record),
            Role::Outside(_) | Role::Following(_) | Role::Asking(_) | Role::Leaving => self.known.as_ref(),
        }
    }

    /// C3: whoever knows what the record was has it written anew, unless another node that can be reached knows more.
    pub(super) fn begin_restoring(&mut self, id: ControlId, saw: (Term, Epoch)) -> Result<(), CommandError> {
        if self.coordinator.went_back.is_none() {
            // As far as is known here. It may have gone back since the last look: the next word meets what it shows.
            self.want_read();
            return Err(CommandError::NothingToDo);
        }
        if self.restoring.is_some() || self.coordinator.restores.is_some() {
            return Err(CommandError::Busy);
        }
        let known = self.newest_known().ok_or(CommandError::NoRecord)?;
        if known.version() != saw {
            return Err(CommandError::NotAsSeen);
        }
        self.may_restore()?;
        self.restoring = Some(Restoring { id, since: self.now, saw });
        self.inquiry.begin_anew();
        Ok(())
    }

    /// Nobody has told of a record that is newer than the one that this node knows, nor does the coordinator show one.
    fn may_restore(&self) -> Result<(), CommandError> {
        let known = self.newest_known().ok_or(CommandError::NoRecord)?;
        // An owner knows of what it has proposed itself. Of a term that it gives away others know only once that has begun.
        let proposed = match &self.role {
            Role::Owning(owning) => {
                let is_own = |record: &&Record| record.term == known.term || planted!(self, restores_what_it_gave_away);
                let of_own_term = owning.undecided.iter().filter(is_own);
                of_own_term.map(Record::version).max()
            }
            Role::Outside(_) | Role::Following(_) | Role::Asking(_) | Role::Leaving => None,
        };
        let newest = known.version().max(proposed.unwrap_or_default());
        let shown = self.coordinator.went_back.as_ref().ok_or(CommandError::NothingToDo)?;
        let elsewhere = (self.seen > newest || shown.term > known.term) && !planted!(self, restores_the_older);
        if elsewhere { Err(CommandError::KnownElsewhere) } else { Ok(()) }
    }

    pub(super) fn settle_restoring(&mut self) {
        let Some(Restoring { id, since, saw }) = self.restoring else { return };
        let silent = !self.unheard_since(since).is_empty() && self.now < since + self.setup.timing.silence();
        if silent || self.others().is_none() {
            return;
        }
        self.restoring = None;
        let same = self.newest_known().is_some_and(|known| known.version() == saw);
        let result = if same { self.may_restore() } else { Err(CommandError::NotAsSeen) };
        if let Err(error) = result.and_then(|()| self.restore_record(id)) {
            self.answer(id, Err(error));
        }
    }

    /// It is written as a change of what the coordinator shows, with a number that is higher than all that were seen.
    fn restore_record(&mut self, id: ControlId) -> Result<(), CommandError> {
        let shown = self.coordinator.went_back.clone().ok_or(CommandError::NothingToDo)?;
        let known = self.newest_known().cloned().ok_or(CommandError::NoRecord)?;
        let of_term = |(term, epoch): (Term, Epoch)| if term == known.term { epoch.0 } else { 0 };
        let mut highest = of_term(self.seen).max(known.epoch.0).max(shown.epoch.0);
        if let Role::Owning(owning) = &self.role {
            highest = owning.undecided.iter().map(|record| record.epoch.0).fold(highest, u32::max);
        }
        let epoch = highest.checked_add(1).map(Epoch).filter(|epoch| *epoch <= EPOCH_MAX);
        let new = Record { epoch: epoch.ok_or(CommandError::KnownElsewhere)?, ..known };
        if let Role::Owning(owning) = &mut self.role {
            owning.undecided.push(new.clone());
        }
        self.coordinator.change =
            Some(Change { compare: shown, new, stage: Stage::Ready, by: Some(Override::Restores(id)) });
        self.coordinator.restores = Some(id);
        Ok(())
    }
}
