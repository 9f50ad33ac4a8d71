//! The coordinator: one record, changed by comparison; requests and answers are late or lost, and it may be away.

use forebay_core::cluster::{Config, Record};
use forebay_core::types::Term;
use std::collections::BTreeSet;

/// A transaction on its way.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// What the record must be.
    pub compare: Record,
    /// What it becomes.
    pub new: Record,
}

/// The record and what it was.
#[derive(Debug)]
pub struct Coordinator {
    /// What it shows.
    pub record: Record,
    /// Every record that there was, oldest first.
    pub history: Vec<Record>,
    /// No request is answered before.
    pub away_until: u64,
    /// Transactions are answered by nothing, and take effect so many nanoseconds later.
    pub late_by: Option<u64>,
    /// Nodes, from 0, that do not reach it.
    pub cut_off: BTreeSet<usize>,
    /// How often it went back.
    pub age: u64,
    /// Highest version that it ever had: below that it went back.
    pub highest: (Term, Config),
}

impl Coordinator {
    /// With its first record.
    pub fn new(record: Record) -> Coordinator {
        let (history, highest) = (vec![record.clone()], record.version());
        Coordinator { record, history, away_until: 0, late_by: None, cut_off: BTreeSet::new(), age: 0, highest }
    }

    /// It shows an older record than it had.
    pub fn went_back(&self) -> bool {
        self.record.version() < self.highest
    }

    /// Carries out a transaction; true when the comparison held.
    pub fn commit(&mut self, transaction: &Transaction) -> bool {
        let holds = self.record == transaction.compare;
        if holds {
            self.record = transaction.new.clone();
            self.history.push(self.record.clone());
            self.highest = self.highest.max(self.record.version());
        }
        holds
    }
}
