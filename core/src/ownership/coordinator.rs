//! Reads of the record and changes of it: one operation at a time, one change at a time (C1 to C3).
//!
//! A change goes through four stages: *preparing* while the volume covers it, *ready*, *sent*, and *unknown* when its
//! answer was lost. It ends when an answer shows its result, or a record that has moved on without it; nothing else
//! decides it (C2).

use super::commands::Opening;
use super::{CommandError, Effect, Outside, Ownership, Role};
use crate::cluster::*;
use crate::ownership::seam::{Committed, Override, Read};
use crate::types::*;

#[derive(Clone, Debug, Default)]
pub(super) struct Coordinator {
    op_next: u64,
    open: Option<Open>,
    read_wanted: bool,
    /// Nothing is asked before: it did not answer.
    retry: Option<Instant>,
    /// When it last answered.
    looked: Instant,
    /// When that question was sent.
    asked: Instant,
    pub(super) change: Option<Change>,
    /// Since when it does not answer.
    pub(super) away_since: Option<Instant>,
    /// When it answered again after that.
    pub(super) back_since: Option<Instant>,
    /// A record that is older than what was seen, or another one of the same number (C3).
    pub(super) went_back: Option<Record>,
    /// The same, as the last look has found it (C6).
    shown_before: Option<Record>,
    /// Who waits for the record to be written anew.
    pub(super) restores: Option<ControlId>,
    /// How many changes the volume was told of: the number of the newest.
    pub(super) proposals: u64,
}

/// An operation under way.
#[derive(Clone, Debug)]
struct Open {
    op: OpId,
    sent: Instant,
    /// What had been seen when it was sent: an answer that is older than this went back in time. One that is only older
    /// than what is seen now was slow.
    seen: (Term, Epoch),
    /// The record that it makes, if it makes one.
    new: Option<Record>,
}

/// A change of the record that this node proposes.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) compare: Record,
    pub(super) new: Record,
    pub(super) stage: Stage,
    /// What the operator has overridden for it, and for no other change.
    pub(super) by: Option<Override>,
}

impl Change {
    /// It writes the record anew after the coordinator went back (C3).
    pub(super) fn restores(&self) -> bool {
        matches!(self.by, Some(Override::Restores(_)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The volume asks both sets already, and has not yet said that all that was acknowledged is covered.
    Preparing,
    /// To be sent.
    Ready,
    /// Sent to the coordinator, which has not answered.
    Sent,
    /// Its answer is lost.
    Unknown,
}

impl Coordinator {
    pub(super) fn want_read(&mut self) {
        self.read_wanted = true;
    }

    /// It has answered what it was asked last, and shows nothing older than what was seen.
    pub(super) fn answers(&self) -> bool {
        self.away_since.is_none() && self.went_back.is_none()
    }

    /// A change is complete, and nobody was sent it: nothing can take effect of it.
    pub(super) fn has_unsent_change(&self) -> bool {
        self.change.as_ref().is_some_and(|change| change.stage == Stage::Ready && !change.restores())
    }

    /// It was asked something so long ago, and has not answered.
    pub(super) fn is_asked_since(&self, now: Instant, long: Duration) -> bool {
        self.open.as_ref().is_some_and(|open| now >= open.sent + long)
    }

    /// It has answered since, what it was asked at any time. Whoever waits for that wants a read, which leaves before a change; only
    /// where the one that is open has been so for long, its answer is enough (a coordinator that is slow).
    pub(super) fn looked_since(&self, since: Instant) -> bool {
        self.looked >= since && self.away_since.is_none()
    }

    /// It has answered what it was asked since.
    pub(super) fn answered_since(&self, since: Instant) -> bool {
        self.asked >= since && self.away_since.is_none()
    }

    pub(super) fn timeout(&self, now: Instant, look: Duration) -> Option<Instant> {
        if self.open.is_some() {
            return None;
        }
        let waits = self.read_wanted || self.change.is_some();
        let again = self.went_back.as_ref().map(|_| self.looked + look);
        [self.retry.filter(|_| waits), again].into_iter().flatten().filter(|at| *at > now).min()
    }
}

impl Ownership {
    pub(super) fn want_read(&mut self) {
        self.coordinator.want_read();
    }

    /// Reads the record, unless that is under way or was done just now.
    fn look_again(&mut self) {
        let lately = self.now < self.coordinator.looked + self.setup.timing.channel_dead;
        if self.coordinator.open.is_none() && !lately {
            self.want_read();
        }
    }

    /// The next look at the record of a node that is not told of its changes.
    pub(super) fn next_look(&self) -> Instant {
        self.coordinator.looked + self.setup.timing.look
    }

    /// Looks at the record when that is due.
    pub(super) fn look(&mut self) {
        if self.now >= self.next_look() && self.coordinator.open.is_none() {
            self.want_read();
        }
    }

    /// `by`: what the operator has overridden, so that this may be proposed.
    pub(super) fn propose(&mut self, compare: Record, new: Record, stage: Stage, by: Option<Override>) {
        debug_assert!(self.coordinator.change.is_none(), "one change at a time");
        debug_assert_eq!(new.validate(), Ok(()), "{new:?}");
        debug_assert!(new.version() > compare.version(), "C1");
        self.coordinator.change = Some(Change { compare, new, stage, by });
    }

    /// A record that is to be written anew waits behind a read, and others have told meanwhile of one that is as new (C3).
    fn withdraw_what_is_known_elsewhere(&mut self) {
        if planted!(self, restores_the_older) {
            return;
        }
        // By an owner that takes as its own what it has given away.
        let seen = if planted!(self, restores_what_it_gave_away) { (Term(0), Epoch(0)) } else { self.seen };
        let is_old =
            |change: &mut Change| change.restores() && change.stage == Stage::Ready && change.new.version() <= seen;
        let is_withdrawn = self.coordinator.change.take_if(is_old).is_some();
        if let Some(id) = self.coordinator.restores.take_if(|_| is_withdrawn) {
            self.answer(id, Err(CommandError::KnownElsewhere));
        }
    }

    pub(super) fn settle_coordinator(&mut self) {
        self.withdraw_what_is_known_elsewhere();
        let writes_anew = self.coordinator.change.as_ref().is_some_and(Change::restores);
        debug_assert!(self.coordinator.restores.is_none() || writes_anew, "who waits for it is answered");
        if self.coordinator.went_back.is_some() {
            // Until the operator has had the record written anew.
            self.look();
        }
        let vetoed = |change: &Change| !change.restores() && change.compare.version() < self.seen;
        if self.coordinator.went_back.is_none() && self.coordinator.change.as_ref().is_some_and(vetoed) {
            // What is compared with is older than what was seen: the record decides.
            self.look_again();
        }
        if self.awaits_look() {
            self.want_read();
        }
        let may_send = self.coordinator.change.as_ref().is_some_and(|change| self.may_send(change));
        let coordinator = &mut self.coordinator;
        if coordinator.open.is_some() || coordinator.retry.is_some_and(|retry| self.now < retry) {
            return;
        }
        coordinator.retry = None;
        let frozen = coordinator.went_back.is_some();
        let ready = |change: &&mut Change| {
            matches!(change.stage, Stage::Ready | Stage::Unknown) && (!frozen || change.restores()) && may_send
        };
        let op = OpId(coordinator.op_next);
        let (seen, sent) = (self.seen, self.now);
        if coordinator.read_wanted {
            coordinator.read_wanted = false;
            coordinator.open = Some(Open { op, sent, seen, new: None });
            self.effects.push_back(Effect::Read(op));
        } else if let Some(change) = coordinator.change.as_mut().filter(ready) {
            change.stage = Stage::Sent;
            let (compare, new) = (change.compare.clone(), change.new.clone());
            let of_opening = self.opening.as_ref().filter(|_| planted!(self, word_for_any_change));
            let by = change.by.or(of_opening.and_then(Opening::accepts_loss));
            coordinator.open = Some(Open { op, sent, seen, new: Some(new.clone()) });
            self.effects.push_back(Effect::Commit { op, compare, new, by });
        } else {
            return;
        }
        self.coordinator.op_next += 1;
    }

    pub(super) fn on_read(&mut self, op: OpId, read: Read) {
        let Some(open) = self.coordinator.open.take_if(|open| open.op == op) else { return };
        match read {
            Read::Is(record) => self.observe(record, open.seen, open.sent),
            Read::Absent => {
                self.answered(open.sent);
                if self.seen.0 == Term(0) {
                    self.no_record();
                } else {
                    self.on_went_back(Record::of_new_volume(self.own.node, 0), open.sent);
                }
            }
            Read::Deleted(term, epoch) if (term, epoch) < open.seen => {
                self.answered(open.sent);
                self.on_went_back(Record::of_new_volume(self.own.node, 0), open.sent);
            }
            // Nobody serves it any more; it is no sign that the coordinator went back.
            Read::Deleted(term, epoch) => {
                self.answered(open.sent);
                self.see_number((term, epoch));
                self.freeze(Record::of_new_volume(self.own.node, 0));
            }
            Read::Failed => {
                self.unanswered();
                self.want_read();
            }
        }
    }

    pub(super) fn on_committed(&mut self, op: OpId, committed: Committed) {
        let Some(open) = self.coordinator.open.take_if(|open| open.op == op) else { return };
        match (committed, open.new) {
            (Committed::Won, Some(new)) => self.observe(new, open.seen, open.sent),
            (Committed::Lost(record), _) => {
                self.counters.changes_lost += 1;
                self.observe(record, open.seen, open.sent);
            }
            (Committed::Unknown, Some(new)) if planted!(self, unknown_is_won) => {
                self.observe(new, open.seen, open.sent);
            }
            (Committed::Unknown, _) | (Committed::Won, None) => {
                self.unanswered();
                self.counters.changes_unknown += 1;
                if let Some(change) = self.coordinator.change.as_mut().filter(|change| change.stage == Stage::Sent) {
                    change.stage = Stage::Unknown;
                }
                // A candidate looks first: the owner that it took for dead may have been heard meanwhile (T2).
                // So does who writes it anew: what others know may be more by now, and they are asked for each attempt.
                let restores = self.coordinator.change.as_ref().is_some_and(Change::restores);
                if restores || matches!(self.role, Role::Asking(_)) || planted!(self, read_decides) {
                    self.want_read();
                }
            }
        }
    }

    /// `sent`: when the question was.
    fn answered(&mut self, sent: Instant) {
        if self.coordinator.away_since.take().is_some() {
            self.coordinator.back_since = Some(self.now);
        }
        (self.coordinator.looked, self.coordinator.asked) = (self.now, sent);
    }

    fn unanswered(&mut self) {
        self.coordinator.away_since.get_or_insert(self.now);
        self.coordinator.retry = Some(self.now + self.setup.timing.retry);
    }

    /// The coordinator has shown the record, as it was at some moment since the question was sent, when `seen` was all that was seen.
    fn observe(&mut self, record: Record, seen: (Term, Epoch), sent: Instant) {
        self.answered(sent);
        let other = |known: &Record| known.version() == record.version() && *known != record;
        let went_back = record.version() < seen || self.known.as_ref().is_some_and(other);
        if (went_back || record.validate().is_err()) && !planted!(self, believes_older_record) {
            return self.on_went_back(record, sent);
        }
        if record.version() < self.seen && !planted!(self, believes_older_record) {
            return self.want_read();
        }
        (self.coordinator.went_back, self.coordinator.shown_before) = (None, None);
        if record.version() > self.seen {
            self.seen = record.version();
            self.remember();
        }
        if self.record.as_ref().is_none_or(|known| known.term != record.term) {
            self.term_since = self.now;
        }
        self.record = Some(record.clone());
        self.known = Some(record.clone());
        match self.coordinator.change.take() {
            Some(change) if change.new == record => self.won(change),
            Some(change) if change.compare.version() < record.version() => self.lost(change, record),
            Some(change) => self.undecided(change),
            None => self.learn(record),
        }
    }

    /// C3: nothing is changed until the operator has spoken. Who asked for ownership follows again: the owner may be there.
    fn on_went_back(&mut self, shown: Record, sent: Instant) {
        // Each look shows it, until it is written anew; one that shows less than the look before is another restore.
        let is_older = |before: &Record| shown.version() <= before.version() && shown != *before;
        if self.coordinator.shown_before.as_ref().is_none_or(is_older) {
            self.effects.push_back(Effect::RewindNoticed { sent });
        }
        self.coordinator.shown_before = Some(shown.clone());
        self.freeze(shown);
    }

    /// Nothing is changed any more, for what the coordinator shows is nothing that could be gone on with.
    fn freeze(&mut self, shown: Record) {
        self.coordinator.went_back = Some(shown);
        self.keep_open();
        self.stop_asking(CommandError::RecordWentBack);
    }

    /// It is no candidate any more, and opens nothing.
    pub(super) fn stop_asking(&mut self, error: CommandError) {
        self.fail_opening(error);
        if matches!(self.role, Role::Asking(_)) {
            self.give_up_asking();
            if !self.record.as_ref().is_some_and(|record| record.names(self.own)) {
                self.role = Role::Outside(Outside::at_start(self.now));
            }
        }
    }

    /// What was proposed is undecided until the record has been written anew. An attempt at that which was in vain is over: it can be
    /// asked for again, upon what the coordinator shows by then.
    fn keep_open(&mut self) {
        if let Some(change) = self.coordinator.change.as_mut().filter(|change| change.stage == Stage::Sent) {
            change.stage = Stage::Unknown;
        }
        if self.coordinator.change.take_if(|change| change.restores() && change.stage == Stage::Unknown).is_some()
            && let Some(id) = self.coordinator.restores.take()
        {
            self.answer(id, Err(CommandError::RecordWentBack));
        }
    }

    fn won(&mut self, change: Change) {
        if change.restores() && !matches!(self.role, Role::Owning(_)) {
            self.restored();
            return self.learn(change.new);
        }
        match &self.role {
            Role::Owning(_) => self.on_decided(change.new),
            Role::Asking(_) => self.on_won(change.new),
            Role::Outside(_) | Role::Following(_) | Role::Leaving => self.learn(change.new),
        }
    }

    fn lost(&mut self, change: Change, record: Record) {
        if change.restores()
            && let Some(id) = self.coordinator.restores.take()
        {
            self.answer(id, Err(CommandError::Superseded));
        }
        if planted!(self, compares_with_the_winner) && matches!(self.role, Role::Owning(_) | Role::Asking(_)) {
            let term = Term(record.term.0.max(change.new.term.0));
            let new = Record { term, epoch: Epoch(record.epoch.0 + 1), ..change.new };
            self.coordinator.change = Some(Change { compare: record, new, stage: Stage::Ready, by: None });
            return;
        }
        self.learn(record);
    }

    /// A read shows the record as it was: the change may take effect at any later time (C2).
    fn undecided(&mut self, mut change: Change) {
        if matches!(self.role, Role::Owning(_)) && planted!(self, read_decides) && change.stage == Stage::Unknown {
            return self.on_undone();
        }
        if matches!(&self.role, Role::Asking(asking) if asking.owner_is_back(self.now, self.setup.timing.member_drop)) {
            return self.give_up_asking();
        }
        if change.stage == Stage::Sent {
            change.stage = Stage::Unknown;
        }
        self.coordinator.change = Some(change);
    }

    /// This is the record; no change of this node's is open.
    fn learn(&mut self, record: Record) {
        match &self.role {
            Role::Owning(owning) if owning.record == record => {}
            Role::Owning(owning) if owning.record.term < record.term => self.on_superseded(),
            // The operator has written it anew without the owner: as it was, or as this owner had proposed.
            Role::Owning(owning) if owning.may_be_but_for_config(&record) => self.on_decided(record),
            // He has written anew what it was once.
            Role::Owning(owning)
                if owning.was_but_for_config(&record) || planted!(self, goes_on_beside_unknown_record) =>
            {
                self.coordinator.went_back = Some(record);
            }
            // Nobody else changes the record within its term (C1): this is one of its own, which it has forgotten.
            Role::Owning(_) => self.on_former_state(),
            Role::Asking(_) => self.on_read_to_ask(record),
            Role::Outside(_) | Role::Following(_) => self.take_place(record),
            Role::Leaving => {}
        }
    }
}
