//! Commands of operators that ownership carries out, and the line of the audit log that goes with what each allows.

use super::Driver;
use crate::coordinator::Audit;
use crate::coordinator::answers::Word;
use forebay_core::ownership::{self, CommandError, Override};
use forebay_core::types::{ControlId, Instant};
use tokio::sync::oneshot;

/// A command that has not ended.
pub(super) struct Commanded {
    pub(super) answer: oneshot::Sender<Result<(), CommandError>>,
    pub(super) audit: Option<Box<Audit>>,
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
        replica.commands_made += 1;
        replica.commands.insert(replica.commands_made, commanded);
        let event = ownership::Event::Command(ControlId(replica.commands_made), command);
        replica.ownership.handle(now, event);
    }

    /// What the operator has said with the command that a change is by.
    pub(super) fn word(&self, volume: &[u8; 16], by: Override) -> Option<Word> {
        let audit = |id: ControlId| self.replicas.get(volume)?.commands.get(&id.0)?.audit.as_deref().cloned();
        match by {
            Override::Restores(id) => audit(id).map(Word::WritesAnew),
            Override::AcceptsLoss(id) => audit(id).map(Word::Allows),
        }
    }
}
