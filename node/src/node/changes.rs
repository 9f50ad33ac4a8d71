//! What is changed of a volume while it serves.
//!
//! Invariant: a change is in effect and recorded whole, or not at all. It is judged whole before any of it is done ([`super::plan`]), and
//! recorded with one writing: of settings alone before they are put into effect, with another tier by the record that names that.

use super::markers::{Moment, save_marker};
use super::plan::{Settings, plan};
use super::{Answer, Node, Running, blocking, failure, no_such_volume};
use crate::datapath::mailbox::{Snapshot, ToShard};
use crate::failure::{Failure, FailureKind};
use crate::journal;
use forebay_api::config::DestageName;
use forebay_api::config::volume::Change;
use forebay_api::record::Record;
use forebay_api::status::VolumeReport;
use forebay_core::api::Control;
use forebay_core::types::Duration;
use std::path::PathBuf;
use std::sync::Arc;

impl Node {
    /// Changes what can be changed while a volume serves: all that is asked for, or nothing.
    pub async fn set(self: &Arc<Node>, name: &str, change: Change) -> Answer<VolumeReport> {
        if let Err(error) = change.check(name) {
            return failure(FailureKind::Invalid, format!("{error:#}"));
        }
        if let Some(cluster) = self.cluster_of(name) {
            return cluster.set(name, change).await;
        }
        let plan = plan(&change, &self.record_of(name)?)?;
        let running = self.running(name)?;
        if let Some(mode) = plan.settings.destage {
            check_destage(name, &running, mode)?;
        }
        match plan.tier {
            // Whoever writes the record of the new tier writes the settings with it.
            Some(_) => self.change_tier(name, &change).await?,
            None => self.change_settings(name, &plan.settings).await?,
        }
        self.report(name).await
    }

    /// Changes settings of a volume that keeps its tier: recorded with one writing, then in effect. What the data path refuses is taken
    /// back, from the record as well: nothing comes into effect with the next start that was refused.
    pub(super) async fn change_settings(&self, name: &str, settings: &Settings) -> Answer<()> {
        let _admin = match settings.destage {
            Some(mode) => {
                let admin = self.admin.lock().await;
                self.have_journal(name, mode).await?;
                Some(admin)
            }
            None => None,
        };
        let _turn = self.recordings.turn(name).await;
        let (before, running) = (self.record_of(name)?, self.running(name)?);
        self.write_record(name, |record| settings.put_into(record)).await?;
        let Err((refused, done)) = self.apply(name, &running, settings).await else { return Ok(()) };
        let undone = self.apply(name, &running, &done.as_in(&before)).await.map_err(|(why, _)| why);
        let recorded = self.write_record(name, |record| settings.as_in(&before).put_into(record)).await;
        let rest = match undone.and(recorded) {
            Ok(()) => "nothing is changed".to_owned(),
            Err(why) => format!(
                "what was changed before could not be taken back, and `forebay volume show` tells what is in effect: {}",
                why.message
            ),
        };
        failure(refused.kind, format!("{}; {rest}", refused.message))
    }

    /// Puts settings into effect; one that is refused ends it. The error names those that are in effect then.
    async fn apply(&self, name: &str, running: &Running, settings: &Settings) -> Result<(), (Failure, Settings)> {
        let mut done = Settings::default();
        if let Some(policy) = settings.policy {
            let set = self.control(name, running, Control::SetPolicy(policy.into())).await;
            set.map_err(|refused| (refused, done.clone()))?;
            done.policy = settings.policy;
        }
        if let Some(seconds) = settings.drain_max_s {
            let set = self.control(name, running, Control::SetDrainMax(Duration::from_secs(seconds))).await;
            set.map_err(|refused| (refused, done.clone()))?;
            done.drain_max_s = settings.drain_max_s;
        }
        if let Some(mode) = settings.destage {
            let set = self.control(name, running, Control::SetDestage(mode.into())).await;
            set.map_err(|refused| (refused, done))?;
        }
        // Last, being what nothing refuses.
        if let Some(clients) = &settings.common.clients {
            self.directory.let_in(name, clients.clone());
        }
        Ok(())
    }

    /// Makes a journal where a way of destage needs one and there is none.
    async fn have_journal(&self, name: &str, mode: DestageName) -> Answer<()> {
        let running = self.running(name)?;
        let snapshot = self.when_prepared(name, &running).await?;
        let missing = snapshot.status.journal_bytes == 0 && mode != DestageName::Ordered;
        match &running.journal_place {
            Ok(path) if missing => self.make_journal(name, &running, mode, path.clone(), &snapshot).await,
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// What is done about its journal at the start has ended.
    pub(super) async fn when_prepared(&self, name: &str, running: &Running) -> Answer<Snapshot> {
        if !running.until_prepared().await {
            let message = "its journal is still being replayed or made; try again later";
            return failure(FailureKind::Conflict, format!("volume {name}: {message}"));
        }
        match self.snapshot(running).await {
            Some(snapshot) => Ok(snapshot),
            None => failure(FailureKind::Failed, format!("the data-path thread of volume {name} has ended")),
        }
    }

    async fn make_journal(
        &self,
        name: &str,
        running: &Running,
        mode: DestageName,
        path: PathBuf,
        snapshot: &Snapshot,
    ) -> Answer<()> {
        let mut record = self.record_of(name)?;
        record.destage = mode;
        let (marked, snapshot) = (running.clone(), snapshot.clone());
        let work = move || {
            // The marker first: whoever finds the image must know of the journal before it may hold anything.
            save_marker(&record, &marked, &snapshot, Moment::Serving)?;
            forebay_io::journal::remove_left_empty(&path)?;
            let bytes = journal::areas_bytes(&record);
            Ok(forebay_io::Journal::create(&path, &record.volume.0, bytes, std::time::Duration::from_secs(1))?)
        };
        match blocking(work).await {
            Ok(journal) => {
                self.shards[running.shard].send(ToShard::JournalMade { key: running.key, journal });
                Ok(())
            }
            Err(message) => failure(FailureKind::Failed, format!("volume {name}: {message}")),
        }
    }

    /// Changes the record, on the medium first: what cannot be written down is not changed.
    pub(super) async fn change_record(&self, name: &str, change: impl FnOnce(&mut Record)) -> Answer<()> {
        let _turn = self.recordings.turn(name).await;
        self.write_record(name, change).await
    }

    /// The same, for whoever has the turn at the record.
    async fn write_record(&self, name: &str, change: impl FnOnce(&mut Record)) -> Answer<()> {
        let record = self.record_of(name)?;
        let mut changed = record.clone();
        change(&mut changed);
        let (store, recorded) = (self.store.clone(), changed.clone());
        if let Err(message) = blocking(move || store.change(&record, &recorded)).await {
            return failure(FailureKind::Failed, message);
        }
        if let Some(entry) = self.entries().iter_mut().find(|e| e.facts.name == name) {
            entry.record = changed;
        }
        Ok(())
    }

    pub(super) fn record_of(&self, name: &str) -> Answer<Record> {
        match self.entries().iter().find(|entry| entry.facts.name == name) {
            Some(entry) => Ok(entry.record.clone()),
            None => no_such_volume(name),
        }
    }
}

/// Journaled destage needs a place for a journal.
fn check_destage(name: &str, running: &Running, mode: DestageName) -> Answer<()> {
    match &running.journal_place {
        Err(why) if mode == DestageName::Journaled => failure(
            FailureKind::Conflict,
            format!("volume {name}: journaled destage needs a journal, but {why}; use auto or ordered"),
        ),
        Ok(_) | Err(_) => Ok(()),
    }
}
