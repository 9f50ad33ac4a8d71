//! The coordinator: one record, changed by comparison. Transactions and answers are late or lost, and for a while it does
//! not answer at all.
//!
//! Checked: a record only grows, is valid, and has one owner in a term.

use super::*;

/// The coordinator as the world sees it.
pub(super) struct Coordinator {
    pub(super) record: Record,
    pub(super) away_until: Instant,
    /// Who became owner in which term.
    owners: BTreeMap<Term, NodeId>,
}

/// What a node asks of it.
#[derive(Clone)]
pub(super) enum Question {
    /// What it is now, linearizably.
    Read,
    /// Make it `new` if it is `compare`.
    Change { compare: Record, new: Record },
}

/// What a node hears.
#[derive(Clone)]
pub(super) struct Verdict {
    /// The record, when it was looked at.
    pub(super) record: Record,
    /// The change that was asked for has been made by this very transaction.
    pub(super) won: bool,
}

impl Coordinator {
    pub(super) fn new(record: Record) -> Coordinator {
        let owners = BTreeMap::from([(record.term, record.owner)]);
        Coordinator { record, away_until: Instant(0), owners }
    }

    /// True when it was changed.
    fn change(&mut self, compare: &Record, new: Record) -> bool {
        if self.record != *compare {
            return false;
        }
        assert!((new.term, new.config) > (self.record.term, self.record.config), "a record only grows");
        assert!(new.members.iter().any(|member| member.node == new.owner), "an owner is a member");
        assert!(new.unfenced.len() <= PINS_MAX, "at most so many former owners may still write");
        let owner = *self.owners.entry(new.term).or_insert(new.owner);
        assert_eq!(owner, new.owner, "two nodes own the volume in {:?}", new.term);
        self.record = new;
        true
    }

    /// The operator's word.
    pub(super) fn force(&mut self, compare: &Record, new: Record) {
        assert!(self.change(compare, new), "nobody else changes it at this moment");
    }
}

impl World {
    /// A node asks; nobody tells it whether the question has arrived.
    pub(super) fn ask_coordinator(&mut self, question: Question) {
        let lost = self.cluster().setup.faults.transaction_lost;
        if self.fault(lost) {
            return self.coverage.see("transaction lost");
        }
        let way = self.micros(20_000);
        self.schedule(way, Due::Question(Box::new(question)));
    }

    /// The question of this node arrives there.
    pub(super) fn question_arrives(&mut self, question: Question) {
        let away = self.cluster().coordinator.away_until;
        if away > self.now {
            // It waits there, or is lost with the connection.
            self.coverage.see("coordinator away");
            if self.random.below(2) == 0 {
                self.schedule(away - self.now, Due::Question(Box::new(question)));
            }
            return;
        }
        let coordinator = &mut self.cluster_mut().coordinator;
        let won = match question {
            Question::Read => false,
            Question::Change { compare, new } => coordinator.change(&compare, new),
        };
        let record = coordinator.record.clone();
        if won {
            trace!(self, "RECORD {record:?}");
        }
        let lost = self.cluster().setup.faults.answer_lost;
        if self.fault(lost) {
            return self.coverage.see("answer of the coordinator lost");
        }
        let way = self.micros(20_000);
        self.schedule(way, Due::Verdict(Box::new(Verdict { record, won })));
    }
}
