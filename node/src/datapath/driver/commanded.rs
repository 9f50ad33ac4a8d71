//! Commands of operators that ownership carries out, and changes of the record with what an operator has said for them.
//!
//! Invariant: a change that an operator's word allows is sent with that word, which is the one of the command that core names with it, or it
//! is not sent.

use super::Driver;
use crate::coordinator::Audit;
use crate::coordinator::answers::Word;
use crate::datapath::driver::Asked;
use crate::log;
use forebay_api::record::VolumeId;
use forebay_core::cluster::Record;
use forebay_core::ownership::{self, CommandError, Committed, Override};
use forebay_core::types::{ControlId, Instant, OpId};
use std::collections::HashMap;
use tokio::sync::oneshot;

/// A command that has not ended.
pub(super) struct Commanded {
    /// Told how it ended.
    pub(super) answer: oneshot::Sender<Result<(), CommandError>>,
    /// The line of the audit log that goes with what it allows.
    pub(super) audit: Option<Box<Audit>>,
}

/// Commands that ownership of one volume carries out.
#[derive(Default)]
pub(super) struct Commands {
    made: u64,
    open: HashMap<u64, Commanded>,
}

impl Commands {
    /// Takes one, and names it.
    fn begin(&mut self, commanded: Commanded) -> ControlId {
        self.made += 1;
        self.open.insert(self.made, commanded);
        ControlId(self.made)
    }

    /// It is answered: what was said with it allows nothing more.
    pub(super) fn end(&mut self, id: ControlId, result: Result<(), CommandError>) {
        if let Some(commanded) = self.open.remove(&id.0) {
            // Whoever asked may have gone.
            let _ = commanded.answer.send(result);
        }
    }

    /// What the operator has said with the command that a change is by; none where that has been answered, or he has said nothing.
    fn word(&self, by: Override) -> Option<Word> {
        let audit = |id: ControlId| self.open.get(&id.0)?.audit.as_deref().cloned();
        match by {
            Override::Restores(id) => audit(id).map(Word::WritesAnew),
            Override::AcceptsLoss(id) => audit(id).map(Word::Allows),
        }
    }
}

/// A change of the record, as core wants it.
pub(super) struct Change {
    pub(super) op: OpId,
    pub(super) compare: Record,
    pub(super) new: Record,
    pub(super) by: Option<Override>,
}

impl Driver {
    pub(super) fn command(
        &mut self,
        now: Instant,
        volume: &[u8; 16],
        command: ownership::Command,
        commanded: Commanded,
    ) {
        let Some(replica) = self.replicas.get_mut(volume) else { return };
        let id = replica.commands.begin(commanded);
        replica.ownership.handle(now, ownership::Event::Command(id, command));
    }

    /// Has the coordinator change the record.
    pub(super) fn commit(&mut self, now: Instant, volume: &[u8; 16], change: Change) {
        let Change { op, compare, new, by } = change;
        let Some(replica) = self.replicas.get_mut(volume) else { return };
        let word = by.map(|by| replica.commands.word(by));
        if word == Some(None) {
            // Nobody would find in the audit log why it was allowed. For core its fate is unknown, which it asks about.
            log::say!(Error, volume(replica.name), "{by:?} has no line of the audit log; this is a bug");
            return replica.ownership.handle(now, ownership::Event::Committed(op, Committed::Unknown));
        }
        self.ask(Asked::Commit {
            volume: VolumeId(*volume),
            op,
            compare: Box::new(compare),
            new: Box::new(new),
            word: word.flatten().map(Box::new),
            decided: now,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::schema::{AuditLine, VERSION};
    use forebay_api::checked::{Code, Line, NodeName};

    fn audit(words: &str) -> Audit {
        let (node, action) = (NodeName::new("alpha").unwrap(), Code::of("test"));
        Audit::new(AuditLine { version: VERSION, at_ms: 1, node, volume: None, action, words: Line::of(words) })
            .unwrap()
    }

    #[test]
    fn a_word_is_that_of_the_command_that_a_change_is_by_and_goes_with_its_answer() {
        let mut commands = Commands::default();
        let mut begin = |audit: Option<Audit>| {
            let (answer, answered) = oneshot::channel();
            (commands.begin(Commanded { answer, audit: audit.map(Box::new) }), answered)
        };
        let (loss, anew) = (audit("a loss"), audit("written anew"));
        let (opens, mut opened) = begin(Some(loss.clone()));
        let (hands_over, _waits) = begin(None);
        let (restores, _restored) = begin(Some(anew.clone()));
        assert_eq!(commands.word(Override::AcceptsLoss(opens)), Some(Word::Allows(loss)));
        assert_eq!(commands.word(Override::Restores(restores)), Some(Word::WritesAnew(anew)));
        assert_eq!(commands.word(Override::AcceptsLoss(hands_over)), None, "nothing was said with it");
        commands.end(opens, Err(CommandError::Superseded));
        assert_eq!(opened.try_recv(), Ok(Err(CommandError::Superseded)));
        assert_eq!(commands.word(Override::AcceptsLoss(opens)), None);
    }
}
