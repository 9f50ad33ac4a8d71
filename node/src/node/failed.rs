//! Volumes that could not be opened: they stay in the list with the reason, so that whoever looks finds it.

use super::{Absence, Answer, Entry, Node, Running, close_files, failure, on_own_thread};
use crate::facts::VolumeFacts;
use crate::failure::{Failure, FailureKind};
use crate::journal::Preparation;
use crate::log;
use crate::open::{self, FirstSteps, also_left};
use forebay_api::config::volume::VolumeSpec;
use forebay_api::record::Record;
use std::sync::Arc;

/// Said of a volume that could not be opened, behind the reason.
const TRIED_AGAIN: &str = "; it is tried again by itself";

/// How a volume that is opened for the first time, and does not come to serve, is taken back.
pub(super) struct Undo {
    /// What was made of it.
    pub(super) steps: Arc<FirstSteps>,
    /// It stays in the list, where it was before.
    pub(super) was_shown: bool,
}

impl Entry {
    /// It is opened again by itself; what is told of it says so.
    pub(super) fn note_tried_again(&mut self) {
        if let Some(Absence::Failed(why)) = &mut self.absence {
            self.again = true;
            if !why.ends_with(TRIED_AGAIN) {
                why.push_str(TRIED_AGAIN);
            }
        }
    }
}

impl Node {
    /// A recorded volume that cannot be opened stays in the list with its reason; so does one that was there without a record, or whose
    /// record cannot be read now.
    pub(super) fn note_failed(&self, name: &str, problem: &str) {
        let listed = || self.entries().iter().find(|e| e.facts.name == name).map(|e| e.record.clone());
        if let Some(record) = self.store.load(name).ok().flatten().or_else(listed) {
            self.show_failed(record, problem);
        }
    }

    pub(super) fn show_failed(&self, record: Record, problem: &str) {
        let absence = Absence::Failed(problem.to_owned());
        Entry::absent(VolumeFacts::of_closed(&record), record, absence).put_into(&mut self.entries());
    }

    /// A volume of the config whose record cannot be read is in the list as well. It may have served: what stands for its record there
    /// lends its identity to nobody, and a deletion refuses.
    pub(super) fn show_unreadable(&self, spec: &VolumeSpec, problem: &str) {
        if self.entries().iter().any(|e| e.facts.name == spec.name) {
            return self.note_failed(&spec.name, problem);
        }
        match open::record_of(&self.store, spec) {
            Ok(mut record) => {
                record.tier.made = true;
                self.show_failed(record, problem);
            }
            Err(error) => log::say!(Error, about(spec.name), "it is not in the list of volumes: {error:#}"),
        }
    }

    /// Refuses to remove anything of a volume whose record is there and cannot be read: nobody knows what of it is the volume's.
    pub(super) fn refuse_unreadable(&self, name: &str) -> Answer<()> {
        match self.store.load(name) {
            Ok(_) => Ok(()),
            Err(error) => failure(
                FailureKind::Conflict,
                format!("volume {name}: {error:#}; nothing of it is removed. Repair that file, or put it aside"),
            ),
        }
    }

    /// A volume that could not be opened is going to be opened again.
    pub(super) fn note_tried_again(&self, name: &str) {
        if let Some(entry) = self.entries().iter_mut().find(|e| e.facts.name == name) {
            entry.note_tried_again();
        }
    }

    /// Whether a volume of this name runs: then nothing of that name is taken back.
    pub(super) fn runs(&self, name: &str) -> bool {
        self.entries().iter().any(|e| e.facts.name == name && e.running.is_some())
    }

    /// What is in the list of a volume that has never served: once it is made it goes on with the identity under which it was shown.
    pub(super) fn shown_without_record(&self, name: &str) -> Option<Record> {
        let entries = self.entries();
        let entry = entries.iter().find(|entry| entry.facts.name == name)?;
        (entry.running.is_none() && !entry.record.tier.made).then(|| entry.record.clone())
    }

    /// A volume that was opened did not come to serve: closes it, and takes back what was made of it where this was its first opening.
    /// Its marker goes before the tier that it speaks of, and under the lock of the image, which nobody else can have taken by then.
    pub(super) async fn give_up(
        &self,
        name: &str,
        running: Running,
        preparation: Preparation,
        undo: Option<Undo>,
        reason: &str,
    ) -> Failure {
        self.detach(&running).await;
        // Whoever tries again at once finds no lock of this attempt.
        drop(preparation);
        let unmade = match &undo {
            Some(undo) => self.unmake(name, &undo.steps, running.clone()).await,
            None => Ok(None),
        };
        close_files(name, running).await;
        let message = format!("cannot serve volume {name}: {reason}");
        let failed = Failure { kind: FailureKind::Failed, message };
        self.note_failed(name, reason);
        match undo {
            Some(undo) => self.take_back(name, undo, unmade, failed).await,
            None => failed,
        }
    }

    /// Has the record say that the volume is not made, and puts the marker back. Its record, if it came so far.
    async fn unmake(&self, name: &str, steps: &Arc<FirstSteps>, running: Running) -> Result<Option<Record>, String> {
        if self.runs(name) {
            return Err("a volume of that name is served".to_owned());
        }
        let (store, steps) = (self.store.clone(), steps.clone());
        on_own_thread(move || {
            let Some(record) = steps.unmake(&store)? else { return Ok(None) };
            running.opening.require_lock()?;
            running.marker.put_back(record.volume)?;
            Ok(Some(record.clone()))
        })
        .await
    }

    /// Takes back the rest, of which nothing is open any more.
    async fn take_back(
        &self,
        name: &str,
        undo: Undo,
        unmade: Result<Option<Record>, String>,
        failed: Failure,
    ) -> Failure {
        let Undo { steps, was_shown } = undo;
        let store = self.store.clone();
        let taken_back = match unmade {
            Ok(unmade) => on_own_thread(move || steps.take_back(&store)).await.map(|()| unmade),
            Err(why) => Err(why),
        };
        match taken_back {
            Err(why) => {
                let message = also_left(&failed.message, &why);
                self.note_failed(name, &message);
                return Failure { message, ..failed };
            }
            Ok(_) if !was_shown => drop(self.forget_without_record(name)),
            Ok(Some(unmade)) => self.show_failed(unmade, &failed.message),
            Ok(None) => {}
        }
        failed
    }

    /// Takes a volume out of the list that is in no record, and so has nothing else that could be removed; whether it was one.
    pub(super) fn forget_without_record(&self, name: &str) -> bool {
        let is_closed = self.entries().iter().any(|entry| entry.facts.name == name && !entry.is_open());
        let is_without = is_closed && matches!(self.store.load(name), Ok(None));
        if is_without {
            self.directory.remove(name);
            self.entries().retain(|entry| entry.facts.name != name);
        }
        is_without
    }
}
