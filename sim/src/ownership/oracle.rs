//! What must hold: checked at every acknowledgement, read, write to the backing and change of the record.

use super::volume::{BackingWrite, Tier};
use forebay_core::cluster::*;
use forebay_core::types::*;
use std::collections::BTreeMap;

/// What was promised so far.
#[derive(Debug, Default)]
pub struct Oracle {
    /// The acknowledged number of each position.
    pub acked: Vec<u64>,
    /// How many acknowledgements there were.
    pub total: u64,
    /// Positions that a flush has answered for: they survive the loss of power everywhere.
    pub flushed: usize,
    /// Everything up to here is durable in the backing.
    pub backing: usize,
    /// The term in which positions began anew.
    began: Term,
    /// Which process began to own a term.
    owners: BTreeMap<Term, u64>,
}

/// A broken promise ends the run.
pub fn violated(what: String) -> ! {
    panic!("violation: {what}")
}

/// What a run ends with that is promised nothing more.
pub const WITHDRAWN: &str = "withdrawn: ";

/// The run ends here: of what comes next nothing is promised (losses.md, row 9).
pub fn withdrawn(what: &str) -> ! {
    panic!("{WITHDRAWN}{what}")
}

impl Oracle {
    /// The log of this term begins here, whatever was above it.
    pub fn begin_at(&mut self, term: Term, end: usize) {
        self.began = term;
        self.acked.truncate(end);
        self.flushed = self.flushed.min(end);
        self.backing = self.backing.min(end);
    }

    /// A process begins to own a term.
    pub fn owns(&mut self, term: Term, node: NodeId, process: u64, history: &[Record]) -> Result<(), String> {
        let recorded = history.iter().any(|record| record.term == term && record.owner == node);
        if !recorded {
            return Err(format!("node {node} owns term {term}, and the record never said so"));
        }
        let first = *self.owners.entry(term).or_insert(process);
        if first != process {
            return Err(format!("two processes own term {term}"));
        }
        Ok(())
    }

    /// A write is acknowledged: every recorded member that is what the record names must hold it.
    pub fn acknowledged(
        &mut self,
        term: Term,
        position: usize,
        number: u64,
        record: &Record,
        tiers: &[Option<Tier>],
    ) -> Result<(), String> {
        self.total += 1;
        let goes_on = position <= self.acked.len() + 1;
        if !goes_on {
            return Err(format!("{position} is acknowledged after {}", self.acked.len()));
        }
        if self.acked.len() < position {
            self.acked.push(number);
        } else if self.acked[position - 1] != number && number != 0 && position > self.backing {
            return Err(format!("{position} was acknowledged as {}, now as {number}", self.acked[position - 1]));
        }
        for member in &record.members {
            if lacks(tiers, *member, position, number, self.backing) {
                return Err(format!("owner of term {term} acknowledges {position}, which member {member:?} lacks"));
            }
        }
        if record.log != LogState::Needed && position > self.backing {
            let log = record.log;
            return Err(format!("{position} is acknowledged and not in the backing, and the record says {log:?}"));
        }
        Ok(())
    }

    /// A flush of everything up to there is answered. Who owned the volume before positions began anew speaks of others.
    pub fn flush_answered(&mut self, term: Term, through: usize) {
        if term >= self.began {
            self.flushed = self.flushed.max(through);
        }
    }

    /// A reader is shown everything up to there.
    pub fn read(&self, term: Term, shown: usize) {
        if shown < self.acked.len() {
            violated(format!("owner of term {term} shows {shown} writes, {} were acknowledged", self.acked.len()));
        }
    }

    /// The record is another one.
    pub fn changed(&self, record: &Record, tiers: &[Option<Tier>], under_way: &[BackingWrite]) -> Result<(), String> {
        for member in &record.members {
            self.has_everything(*member, tiers)?;
        }
        let depends = self.acked.len() > self.backing;
        if record.log != LogState::Needed && depends {
            let (from, to) = (self.backing + 1, self.acked.len());
            return Err(format!("the record says {:?}, and only logs have {from} to {to}", record.log));
        }
        if record.log == LogState::Released && !under_way.is_empty() {
            return Err(format!("released while {under_way:?} is under way"));
        }
        Ok(())
    }

    /// No acknowledged number is missing at a recorded member that is what the record names.
    fn has_everything(&self, member: Incarnation, tiers: &[Option<Tier>]) -> Result<(), String> {
        let Some(tier) = present(tiers, member).filter(|tier| tier.put_back.is_none()) else { return Ok(()) };
        let freed = self.backing;
        for (at, number) in self.acked.iter().enumerate().skip(freed) {
            if tier.log.get(at) != Some(number) {
                return Err(format!("recorded member {member:?} lacks {} of {}", at + 1, self.acked.len()));
            }
        }
        Ok(())
    }

    /// A write that may land belongs to the owner, or to one whom the record names as unfenced.
    pub fn may_land(&self, write: &BackingWrite, record: &Record) {
        let known = record.term == write.term || record.unfenced.iter().any(|former| former.term == write.term);
        if !known {
            violated(format!("{write:?} may land, and the record of term {} does not know", record.term));
        }
    }
}

fn present(tiers: &[Option<Tier>], member: Incarnation) -> Option<&Tier> {
    tiers.iter().flatten().find(|tier| tier.incarnation == member)
}

fn lacks(tiers: &[Option<Tier>], member: Incarnation, position: usize, number: u64, backing: usize) -> bool {
    // Of one that was put back the next owner shows whether it counts.
    let Some(tier) = present(tiers, member).filter(|tier| tier.put_back.is_none()) else { return false };
    position > backing && tier.log.get(position - 1) != Some(&number)
}
