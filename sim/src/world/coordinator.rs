//! The coordinator: one record, changed by comparison. Transactions and answers are late or lost, and for a while it does
//! not answer at all.
//!
//! Checked: a record only grows, is valid, and has one owner in a term.

use super::*;
use forebay_core::ownership::{Committed, Read};

/// The coordinator as the world sees it.
pub(super) struct Coordinator {
    pub(super) record: Record,
    pub(super) away_until: Instant,
    /// Who became owner in which term.
    owners: BTreeMap<Term, NodeId>,
}

/// What the next owner's log lacks of what was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Loss {
    /// What was never acknowledged, though perhaps seen: the backing has the rest.
    Unacknowledged,
    /// What no flush covered: the backing has the rest, and had failed.
    BackingUnflushed,
    /// What no flush covered (T10).
    Unflushed,
    /// What media had not synced, flushed or not: a flush promised copies only.
    Unsynced,
    /// Everything: the backing is all that is left.
    Logs,
}

/// What a node asks of it.
#[derive(Clone)]
pub(super) enum Question {
    /// What it is now, linearizably.
    Read,
    /// Make it `new` if it is `compare`.
    Change { compare: Box<Record>, new: Box<Record> },
}

/// What a node hears.
#[derive(Clone)]
pub(super) enum Verdict {
    /// Of a read.
    Read(OpId, Read),
    /// Of a transaction.
    Changed(OpId, Committed),
}

impl Coordinator {
    pub(super) fn new(record: Record) -> Coordinator {
        Coordinator { record, away_until: Instant(0), owners: BTreeMap::new() }
    }

    /// True when it was changed.
    fn change(&mut self, compare: &Record, new: Record) -> bool {
        if self.record != *compare {
            return false;
        }
        assert!((new.term, new.epoch) > (self.record.term, self.record.epoch), "a record only grows");
        assert_eq!(new.validate(), Ok(()), "{new:?}");
        if new.log != LogState::Released {
            let owner = *self.owners.entry(new.term).or_insert(new.owner);
            assert_eq!(owner, new.owner, "two nodes own the volume in {:?}", new.term);
        }
        self.record = new;
        true
    }
}

impl World {
    /// A node asks. It is answered once: in the end by not knowing.
    pub(super) fn ask_coordinator(&mut self, op: OpId, question: Question) {
        let faults = &self.cluster().setup.faults;
        let (lost, unanswered) = (faults.transaction_lost, faults.answer_lost);
        let away = self.cluster().coordinator.away_until.max(self.node.coordinator_away_until) > self.now;
        let way = self.micros(20_000);
        if away || self.fault(lost) {
            self.coverage.see(if away { "coordinator away" } else { "transaction lost" });
            self.give_up_asking(op, &question);
            self.note_fault_until(self.now, Mended::TakenOver);
            if self.random.below(2) == 0 {
                // It is not lost, only late.
                let late = Duration::from_millis(self.random.range(100, 8_000));
                self.note_fault_until(self.now + late, Mended::TakenOver);
                self.schedule(late, Due::Question(None, Box::new(question)));
            }
        } else if self.fault(unanswered) {
            self.coverage.see("answer of the coordinator lost");
            self.note_fault_until(self.now, Mended::TakenOver);
            self.give_up_asking(op, &question);
            self.schedule(way, Due::Question(None, Box::new(question)));
        } else {
            self.schedule(way, Due::Question(Some(op), Box::new(question)));
        }
    }

    fn give_up_asking(&mut self, op: OpId, question: &Question) {
        let verdict = match question {
            Question::Read => Verdict::Read(op, Read::Failed),
            Question::Change { .. } => Verdict::Changed(op, Committed::Unknown),
        };
        self.schedule(Duration::from_secs(1), Due::Verdict(Box::new(verdict)));
    }

    /// The question of this node arrives there; `op`: somebody waits for the answer.
    pub(super) fn question_arrives(&mut self, op: Option<OpId>, question: Question) {
        let verdict = match question {
            Question::Read => {
                let record = self.cluster().coordinator.record.clone();
                op.map(|op| Verdict::Read(op, Read::Is(record)))
            }
            Question::Change { compare, new } => {
                let before = self.cluster().coordinator.record.clone();
                let won = self.cluster_mut().coordinator.change(&compare, *new);
                let record = self.cluster().coordinator.record.clone();
                if won {
                    trace!(self, "RECORD {record:?}");
                    self.note_change(&before, &record);
                    self.note_record(&before, &record);
                }
                let committed = if won { Committed::Won } else { Committed::Lost(record) };
                op.map(|op| Verdict::Changed(op, committed))
            }
        };
        if let Some(verdict) = verdict {
            let way = self.micros(20_000);
            self.schedule(way, Due::Verdict(Box::new(verdict)));
        }
    }

    /// What the next owner will have of what was acknowledged.
    fn note_change(&mut self, before: &Record, after: &Record) {
        let own = after.member(after.owner);
        let continues = own.is_some_and(|own| before.members.contains(&own));
        if after.term == before.term || continues || before.log == LogState::Released {
            return;
        }
        if before.log == LogState::Through {
            let behind = self.cluster().backing_behind.is_some();
            self.cluster_mut().loss = Some(if behind { Loss::BackingUnflushed } else { Loss::Unacknowledged });
            return;
        }
        let own = own.expect("an owner is a member");
        let has_what_was_synced = before.members.iter().any(|member| member.is_earlier_life_of(own));
        let accepted = self.cluster().loss_accepted;
        let media = match before.flushed {
            Flushed::Durable => true,
            Flushed::Held => false,
            Flushed::Unrecorded => self.requested().media,
        };
        assert!(
            accepted || (has_what_was_synced && media),
            "{own:?} owns the volume without its log, and nobody said that it may"
        );
        let loss = match (has_what_was_synced, media) {
            (true, true) => Loss::Unflushed,
            (true, false) => Loss::Unsynced,
            (false, _) => Loss::Logs,
        };
        // Nobody has served since an earlier one: what that has cost is gone with it.
        if self.cluster().loss.is_none() || loss == Loss::Logs {
            self.cluster_mut().loss = Some(loss);
        }
    }
}
