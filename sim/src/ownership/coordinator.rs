//! The coordinator: one record, changed by comparison; requests and answers are late or lost, and it may be away.

use forebay_core::cluster::{Config, Record};
use forebay_core::types::Term;

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
    /// How often it went back.
    pub age: u64,
    /// Highest version that it ever had: below that it went back.
    pub highest: (Term, Config),
}

impl Coordinator {
    /// With its first record.
    pub fn new(record: Record) -> Coordinator {
        Coordinator { history: vec![record.clone()], highest: record.version(), record, away_until: 0, age: 0 }
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
