//! Reads of the record and changes of it: one operation at a time, one change at a time (C1 to C3).
//!
//! A change goes through four stages: *preparing* while the volume covers it, *ready*, *sent*, and *unknown* when its
//! answer was lost. It ends when an answer shows its result, or a record that has moved on without it; nothing else
//! decides it (C2).

use super::{CommandError, Effect, Ownership, Role};
use crate::cluster::*;
use crate::ownership::seam::{Committed, Read};
use crate::types::*;

#[derive(Debug, Default)]
pub(super) struct Coordinator {
    op_next: u64,
    open: Option<Open>,
    read_wanted: bool,
    /// Nothing is asked before: it did not answer.
    retry: Option<Instant>,
    /// When it last answered.
    looked: Instant,
    pub(super) change: Option<Change>,
    /// Since when it does not answer.
    pub(super) away_since: Option<Instant>,
    /// A record that is older than what was seen, or another one of the same number (C3).
    pub(super) went_back: Option<Record>,
    /// The operator's command to write the record anew.
    pub(super) restores: Option<ControlId>,
}

/// An operation under way.
#[derive(Debug)]
struct Open {
    op: OpId,
    /// What had been seen when it was sent: an answer that is older than this went back in time. One that is only older
    /// than what is seen now was slow.
    seen: (Term, Config),
    /// The record that it makes, if it makes one.
    new: Option<Record>,
}

/// A change of the record that this node proposes.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) compare: Record,
    pub(super) new: Record,
    pub(super) stage: Stage,
    /// It writes the record anew after the coordinator went back (C3).
    pub(super) restores: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The volume asks both sets already, and has not yet said that all that was acknowledged is covered.
    Preparing,
    /// To be sent.
    Ready,
    /// Under way.
    Sent,
    /// Its answer is lost.
    Unknown,
}

impl Coordinator {
    pub(super) fn want_read(&mut self) {
        self.read_wanted = true;
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

    pub(super) fn propose(&mut self, compare: Record, new: Record, stage: Stage) {
        debug_assert!(self.coordinator.change.is_none(), "one change at a time");
        debug_assert_eq!(new.validate(), Ok(()), "{new:?}");
        debug_assert!(new.version() > compare.version(), "C1");
        self.coordinator.change = Some(Change { compare, new, stage, restores: false });
    }

    pub(super) fn settle_coordinator(&mut self) {
        if self.coordinator.went_back.is_some() {
            // Until the operator has had the record written anew.
            self.look();
        }
        let coordinator = &mut self.coordinator;
        if coordinator.open.is_some() || coordinator.retry.is_some_and(|retry| self.now < retry) {
            return;
        }
        coordinator.retry = None;
        let frozen = coordinator.went_back.is_some();
        let ready = |change: &&mut Change| {
            matches!(change.stage, Stage::Ready | Stage::Unknown) && (!frozen || change.restores)
        };
        let op = OpId(coordinator.op_next);
        let seen = self.seen;
        if coordinator.read_wanted {
            coordinator.read_wanted = false;
            coordinator.open = Some(Open { op, seen, new: None });
            self.effects.push_back(Effect::Read(op));
        } else if let Some(change) = coordinator.change.as_mut().filter(ready) {
            change.stage = Stage::Sent;
            let (compare, new) = (change.compare.clone(), change.new.clone());
            coordinator.open = Some(Open { op, seen, new: Some(new.clone()) });
            self.effects.push_back(Effect::Commit { op, compare, new });
        } else {
            return;
        }
        self.coordinator.op_next += 1;
    }

    pub(super) fn on_read(&mut self, op: OpId, read: Read) {
        let Some(open) = self.coordinator.open.take_if(|open| open.op == op) else { return };
        match read {
            Read::Is(record) => self.observe(record, open.seen),
            Read::Absent => {
                self.answered();
                if self.seen.0 == Term(0) {
                    self.no_record();
                } else {
                    self.coordinator.went_back = Some(Record::of_new_volume(self.own.node, 0));
                }
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
            (Committed::Won, Some(new)) => self.observe(new, open.seen),
            (Committed::Lost(record), _) => {
                self.counters.changes_lost += 1;
                self.observe(record, open.seen);
            }
            (Committed::Unknown, Some(new)) if planted!(self, unknown_is_won) => self.observe(new, open.seen),
            (Committed::Unknown, _) | (Committed::Won, None) => {
                self.unanswered();
                self.counters.changes_unknown += 1;
                if let Some(change) = self.coordinator.change.as_mut().filter(|change| change.stage == Stage::Sent) {
                    change.stage = Stage::Unknown;
                }
                // A candidate looks first: the owner that it took for dead may have been heard meanwhile (T2).
                if matches!(self.role, Role::Asking(_)) || planted!(self, read_decides) {
                    self.want_read();
                }
            }
        }
    }

    fn answered(&mut self) {
        self.coordinator.away_since = None;
        self.coordinator.looked = self.now;
    }

    fn unanswered(&mut self) {
        self.coordinator.away_since.get_or_insert(self.now);
        self.coordinator.retry = Some(self.now + self.setup.timing.retry);
    }

    /// The coordinator has shown the record, as it was at some moment since `seen` was all that was seen.
    fn observe(&mut self, record: Record, seen: (Term, Config)) {
        self.answered();
        let other = |known: &Record| known.version() == record.version() && *known != record;
        let went_back = record.version() < seen || self.record.as_ref().is_some_and(other);
        if (went_back || record.validate().is_err()) && !planted!(self, believes_older_record) {
            self.coordinator.went_back = Some(record);
            return self.keep_open();
        }
        if record.version() < self.seen && !planted!(self, believes_older_record) {
            return self.want_read();
        }
        self.coordinator.went_back = None;
        if record.version() > self.seen {
            self.seen = record.version();
            self.remember();
        }
        self.record = Some(record.clone());
        match self.coordinator.change.take() {
            Some(change) if change.new == record => self.won(change),
            Some(change) if change.compare.version() < record.version() => self.lost(change, record),
            Some(change) => self.undecided(change),
            None => self.learn(record),
        }
    }

    /// What was proposed is undecided until the record has been written anew; writing it anew can be asked for again, upon
    /// what the coordinator shows by then.
    fn keep_open(&mut self) {
        if let Some(change) = self.coordinator.change.take_if(|change| change.stage == Stage::Sent)
            && !change.restores
        {
            self.coordinator.change = Some(Change { stage: Stage::Unknown, ..change });
        } else if let Some(id) = self.coordinator.restores.take() {
            self.effects.push_back(Effect::Answer(id, Err(CommandError::RecordWentBack)));
        }
    }

    fn won(&mut self, change: Change) {
        match &self.role {
            Role::Owning(_) => self.on_decided(change.new),
            Role::Asking(_) => self.on_won(change.new),
            Role::Outside(_) | Role::Following(_) | Role::Leaving => self.learn(change.new),
        }
    }

    fn lost(&mut self, change: Change, record: Record) {
        if planted!(self, compares_with_the_winner) && matches!(self.role, Role::Owning(_) | Role::Asking(_)) {
            let term = Term(record.term.0.max(change.new.term.0));
            let new = Record { term, config: Config(record.config.0 + 1), ..change.new };
            self.coordinator.change = Some(Change { compare: record, new, stage: Stage::Ready, restores: false });
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
            // Nobody else changes the record within its term (C1).
            Role::Owning(_) => self.coordinator.went_back = Some(record),
            Role::Asking(_) => self.on_read_to_ask(record),
            Role::Outside(_) | Role::Following(_) => self.take_place(record),
            Role::Leaving => {}
        }
    }
}
