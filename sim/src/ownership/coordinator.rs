//! The coordinator: one record, changed by comparison; requests and answers are late or lost, and it may be away. Every
//! change of the record is judged here.

use super::oracle::violated;
use super::{Item, Loss, MS, Node, World};
use forebay_core::cluster::*;
use forebay_core::ownership::*;
use forebay_core::types::*;
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

impl World {
    pub(super) fn ask_coordinator(&mut self, node: usize, process: u64, op: OpId, transaction: Option<Transaction>) {
        let away = self.now < self.coordinator.away_until || self.coordinator.cut_off.contains(&node);
        if let (Some(late), Some(transaction), false) = (self.coordinator.late_by, &transaction, away) {
            self.after(late, Item::Late(transaction.clone(), self.coordinator.age));
            return self.leave_open(node, process, op, true);
        }
        let lost = away || self.chaos.loses_request(&mut self.random);
        let delay = self.random.range(1, 10) * MS;
        if !lost {
            let answered = !self.chaos.loses_answer(&mut self.random);
            let age = self.coordinator.age;
            return self.after(delay, Item::Ask { node, process, op, transaction, answered, age });
        }
        self.leave_open(node, process, op, transaction.is_some());
        if let Some(transaction) = transaction
            && !self.coordinator.cut_off.contains(&node)
            && self.random.chance(500_000)
        {
            // It is not lost, only late.
            let delay = self.random.range(100, 8_000) * MS;
            self.after(delay, Item::Late(transaction, self.coordinator.age));
        }
    }

    /// No answer comes, and in the end it is given up.
    pub(super) fn leave_open(&mut self, node: usize, process: u64, op: OpId, changes: bool) {
        let unknown = Event::Committed(op, Committed::Unknown);
        let event = if changes { unknown } else { Event::Read(op, Read::Failed) };
        self.after(1_000 * MS, Item::Answer { node, process, event });
    }

    pub(super) fn coordinate(
        &mut self,
        node: usize,
        process: u64,
        op: OpId,
        what: Option<Transaction>,
        answered: bool,
    ) {
        let event = match what {
            None if answered => Event::Read(op, Read::Is(self.coordinator.record.clone())),
            None => Event::Read(op, Read::Failed),
            Some(transaction) => {
                let won = self.commit(&transaction);
                let committed = match (answered, won) {
                    (false, _) => Committed::Unknown,
                    (true, true) => Committed::Won,
                    (true, false) => Committed::Lost(self.coordinator.record.clone()),
                };
                Event::Committed(op, committed)
            }
        };
        let delay = if answered { self.random.range(1, 10) * MS } else { 1_000 * MS };
        self.after(delay, Item::Answer { node, process, event });
    }

    pub(super) fn commit(&mut self, transaction: &Transaction) -> bool {
        let before = self.coordinator.record.clone();
        let (newest, went_back) = (self.newest_record().clone(), self.coordinator.went_back());
        if !self.coordinator.commit(transaction) {
            return false;
        }
        let after = self.coordinator.record.clone();
        self.tell(|| format!("RECORD {after:?}"));
        self.count("changes of the record");
        if after.version() <= before.version() || after.version() <= newest.version() {
            violated(format!("the record of {:?} becomes {:?}", newest.version(), after.version()));
        }
        if went_back && after.term != newest.term {
            violated("a record that went back changed hands".into());
        }
        self.check_fenced(&newest, &after);
        self.check_loss(&newest, &after);
        if self.loss.is_none() {
            self.oracle.changed(&after, &self.tiers, &self.under_way);
        }
        true
    }

    /// T6, T8: a former owner leaves the list when it can write no more, and the last one after the pinned ranges were
    /// written again.
    pub(super) fn check_fenced(&mut self, before: &Record, after: &Record) {
        let gone = |former: &&Unfenced| !after.unfenced.contains(former);
        let emptied: Vec<Unfenced> = before.unfenced.iter().filter(gone).copied().collect();
        if emptied.is_empty() {
            return;
        }
        self.count(if after.unfenced.is_empty() { "pins ended" } else { "unfenced shortened" });
        for former in &emptied {
            let owner = &self.nodes[former.node.0 as usize - 1];
            let same = owner.host == former.host && owner.process.is_some();
            let owner_may = same && owner.process.as_ref().is_some_and(|process| process.holds(former.term));
            if owner_may || self.is_writing(former.term) {
                violated(format!("{former:?} is called fenced and may still write"));
            }
        }
        if after.unfenced.is_empty() && self.rewritten != Some(before.term) {
            violated("unfenced is emptied before the pinned ranges were written again".into());
        }
    }

    /// Somebody holds a lock of that term: its owner, or a candidate for it.
    pub(super) fn may_write(&self, term: Term) -> bool {
        let holds = |node: &Node| node.process.as_ref().is_some_and(|process| process.holds(term));
        self.is_writing(term) || self.nodes.iter().any(holds)
    }

    /// T10 and `--accept-loss`: what is acknowledged may be lost only when nobody has it any more.
    pub(super) fn check_loss(&mut self, before: &Record, after: &Record) {
        let own = after.member(after.owner);
        let continues = own.is_some_and(|own| before.names(own));
        if after.term == before.term {
            return;
        }
        if before.log == LogState::Released {
            self.loss = Some(Loss::InBacking);
            return;
        }
        if continues {
            return;
        }
        let alive = |member: &Incarnation| self.tiers.iter().flatten().any(|tier| tier.incarnation == *member);
        let later_life = own.is_some_and(|own| before.members.iter().any(|member| member.is_earlier_life_of(own)));
        if before.log == LogState::Through && !self.may_write(before.term) {
            self.count("opened after write-through");
            self.loss = Some(Loss::InBacking);
            return;
        }
        if let Some(member) = before.members.iter().find(|member| alive(member)) {
            violated(format!("{own:?} becomes the owner while {member:?} has the log"));
        }
        let power_was_lost = later_life && self.setup.requested.media;
        if !self.loss_accepted && !power_was_lost {
            violated(format!("{own:?} becomes the owner without the log, and nobody said that it may"));
        }
        self.count(if self.loss_accepted { "losses accepted" } else { "power lost everywhere" });
        self.loss = Some(if self.loss_accepted { Loss::Accepted } else { Loss::Power });
    }
}
