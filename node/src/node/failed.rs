//! Volumes that could not be opened: they stay in the list with the reason, so that whoever looks finds it.

use super::{Absence, Answer, Entry, Node, blocking, failure};
use crate::facts::VolumeFacts;
use crate::failure::{Failure, FailureKind};
use crate::log;
use crate::open::{self, FirstSteps, also_left};
use forebay_api::config::volume::VolumeSpec;
use forebay_api::record::Record;

impl Node {
    /// A recorded volume that cannot be opened stays in the list with its reason, also where its record cannot be read.
    pub(super) fn note_failed(&self, name: &str, problem: &str) {
        match self.store.load(name) {
            Ok(Some(record)) => self.show_failed(record, Absence::Failed(problem.to_owned())),
            Ok(None) => {}
            Err(_) if self.store.has_record(name) => self.show_unreadable(name, problem),
            Err(_) => {}
        }
    }

    /// A record that could not be read may be readable by now, as where there were no descriptors left. From then on it is a volume that could
    /// not be opened, as it would be after a restart.
    pub(super) fn read_again(&self, name: &str) {
        let why = {
            let entries = self.entries();
            let absence =
                entries.iter().find(|entry| entry.facts.name == name).and_then(|entry| entry.absence.as_ref());
            let Some(Absence::Unreadable(why)) = absence else { return };
            why.clone()
        };
        match self.store.load(name) {
            Ok(Some(record)) => self.show_failed(record, Absence::Failed(why)),
            Ok(None) => self.entries().retain(|entry| entry.facts.name != name),
            Err(_) => {}
        }
    }

    /// A volume whose record is there and cannot be read may have served, and have writes in its tier. Where it is in the list already that
    /// goes on to say what it has.
    fn show_unreadable(&self, name: &str, problem: &str) {
        let known = self.entries().iter().find(|entry| entry.facts.name == name).map(|entry| entry.record.clone());
        let record = known.map_or_else(|| open::stand_in(name), Ok);
        match record {
            Ok(record) => self.show_failed(record, Absence::Unreadable(problem.to_owned())),
            Err(error) => log::say!(Error, about(name), "volume {name} is not in the list of volumes: {error:#}"),
        }
    }

    /// Refuses to touch anything of a volume whose record could not be read: nobody knows what of it is the volume's.
    pub(super) fn refuse_unreadable(&self, name: &str) -> Answer<()> {
        let entries = self.entries();
        let absence = entries.iter().find(|entry| entry.facts.name == name).and_then(|entry| entry.absence.as_ref());
        let Some(Absence::Unreadable(why)) = absence else { return Ok(()) };
        let cure = "Repair that file and restart the daemon; or put it aside, and what it names is nobody's";
        failure(FailureKind::Conflict, format!("volume {name}: {why}; nothing of it is removed. {cure}"))
    }

    /// One that a config file names is in the list in any case: it may have no record, which a volume gets when its backing is there.
    /// `default`: no other volume is the default export in its place.
    pub fn note_failed_of_config(&self, spec: &VolumeSpec, default: bool, problem: &str) {
        let name = &spec.name;
        let listed = self.entries().iter().find(|entry| entry.facts.name == *name).map(Entry::is_open);
        // It was made by a command meanwhile, and is served.
        if listed == Some(true) {
            return;
        }
        if default {
            self.directory.await_default(name);
        }
        if listed.is_some() {
            return;
        }
        // What cannot be read may be the record of a volume that has served: nothing is put in its place.
        let record =
            self.store.load(name).and_then(|recorded| recorded.map_or_else(|| open::record_of(&self.store, spec), Ok));
        match record {
            Ok(record) => self.show_failed(record, Absence::Failed(problem.to_owned())),
            Err(error) => log::say!(Error, about(name), "volume {name} is not in the list of volumes: {error:#}"),
        }
    }

    fn show_failed(&self, record: Record, absence: Absence) {
        let facts = VolumeFacts {
            name: record.name.clone(),
            volume: record.volume.to_string(),
            backing: record.backing.clone(),
            access: "closed".to_owned(),
            tier_kind: record.tier.kind,
            tier_path: record.tier.path.display().to_string(),
            tier_bytes: record.tier.size_bytes,
            volatile: record.volatile,
            memory_bytes: 0,
            journal: Err("the volume is not open".to_owned()),
        };
        let mut entries = self.entries();
        entries.retain(|e| e.facts.name != record.name);
        entries.push(Entry::absent(facts, record, absence));
    }

    /// What is in the list of a volume that has never served: once it is made it goes on with the identity under which it was shown.
    pub(super) fn shown_without_record(&self, name: &str) -> Option<Record> {
        let entries = self.entries();
        let entry = entries.iter().find(|entry| entry.facts.name == name)?;
        (entry.running.is_none() && !entry.record.tier.made).then(|| entry.record.clone())
    }

    /// A volume that was opened for the first time and did not come to serve: takes back what was made of it. `was_shown`: it stays in the
    /// list, where it was before.
    pub(super) async fn take_back(&self, name: &str, steps: FirstSteps, was_shown: bool, failed: Failure) -> Failure {
        let store = self.store.clone();
        // What the steps have open ends with them, before anybody is told.
        let work = move || {
            steps.unmake(&store)?;
            steps.take_back(&store)
        };
        if let Err(why) = blocking(work).await {
            let message = also_left(&failed.message, &why);
            self.note_failed(name, &message);
            return Failure { message, ..failed };
        }
        if !was_shown {
            self.forget_without_record(name);
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
