//! Volumes that could not be opened: they stay in the list with the reason, so that whoever looks finds it.

use super::{Absence, Entry, Node, blocking, markers::MarkerFile};
use crate::facts::VolumeFacts;
use crate::failure::Failure;
use crate::open::{FirstSteps, also_left};
use forebay_api::record::Record;
use std::sync::Arc;

/// Said of a volume that could not be opened, behind the reason.
const TRIED_AGAIN: &str = "; it is tried again by itself";

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
        let mut entries = self.entries();
        entries.retain(|e| e.facts.name != record.name);
        let absence = Absence::Failed(problem.to_owned());
        entries.push(Entry::absent(VolumeFacts::of_closed(&record), record, absence));
    }

    /// A volume that could not be opened is going to be opened again; what is told of it says so.
    pub fn note_tried_again(&self, name: &str) {
        if let Some(entry) = self.entries().iter_mut().find(|e| e.facts.name == name)
            && let Some(Absence::Failed(why)) = &mut entry.absence
            && !why.ends_with(TRIED_AGAIN)
        {
            why.push_str(TRIED_AGAIN);
        }
    }

    /// The record of a volume that could not be opened, if it is in the list as one.
    pub fn record_of_failed(&self, name: &str) -> Option<Record> {
        let entries = self.entries();
        entries.iter().find(|e| e.facts.name == name && !e.is_open()).map(|e| e.record.clone())
    }

    /// It was not tried to open it again, for this reason.
    pub fn note_not_tried(&self, name: &str, why: &str) {
        if self.record_of_failed(name).is_some() {
            self.note_failed(name, why);
        }
    }

    /// What is in the list of a volume that has never served: once it is made it goes on with the identity under which it was shown.
    pub(super) fn shown_without_record(&self, name: &str) -> Option<Record> {
        let entries = self.entries();
        let entry = entries.iter().find(|entry| entry.facts.name == name)?;
        (entry.running.is_none() && !entry.record.tier.made).then(|| entry.record.clone())
    }

    /// A volume that was opened for the first time and did not come to serve: takes back what was made of it, its marker before the tier
    /// that it speaks of. `was_shown`: it stays in the list, where it was before, as one that was never made.
    pub(super) async fn take_back(
        &self,
        name: &str,
        (steps, marker): (FirstSteps, Arc<MarkerFile>),
        was_shown: bool,
        failed: Failure,
    ) -> Failure {
        let store = self.store.clone();
        let work = move || {
            let unmade = steps.unmake(&store)?.cloned();
            if let Some(record) = &unmade {
                marker.put_back(record.volume)?;
            }
            steps.take_back(&store).map(|()| unmade)
        };
        match blocking(work).await {
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
