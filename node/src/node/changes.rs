//! What is changed of a volume while it serves: each part is in effect, and recorded, or refused by itself.

use super::markers::{Moment, save_marker};
use super::{Answer, Node, Running, blocking, failure, no_such_volume, tier_change};
use crate::datapath::mailbox::{Snapshot, ToShard};
use crate::failure::FailureKind;
use crate::journal;
use forebay_api::change::Change;
use forebay_api::config;
use forebay_api::config::DestageName;
use forebay_api::record::Record;
use forebay_api::status::VolumeReport;
use forebay_core::api::Control;
use forebay_core::types::Duration;
use std::path::PathBuf;
use std::sync::Arc;

impl Node {
    /// Changes what can be changed while a volume serves.
    pub async fn set(self: &Arc<Node>, name: &str, change: Change) -> Answer<VolumeReport> {
        let Change { policy, drain_max_s, destage, tier, tier_size, volatile, .. } = change;
        let of_one_node = policy.is_some() || drain_max_s.is_some() || destage.is_some() || tier.is_some();
        let of_one_node = of_one_node || change.clients.is_some();
        if !of_one_node && !change.is_of_cluster() {
            let message = format!(
                "volume {name}: give a policy, a destage, a tier, a drain_max_s, clients, peers, min_peers, a flush or an address to \
                 change"
            );
            return failure(FailureKind::Invalid, message);
        }
        if tier.is_none() && (tier_size.is_some() || volatile) {
            let message =
                format!("volume {name}: tier_size and volatile are of the tier that it is to change to; give that");
            return failure(FailureKind::Invalid, message);
        }
        if let Some(Err(error)) = drain_max_s.map(|seconds| config::check_drain_max(name, seconds)) {
            return failure(FailureKind::Invalid, format!("{error:#}"));
        }
        if let Some(cluster) = self.cluster_of(name) {
            return cluster.set(name, change).await;
        }
        if change.is_of_cluster() {
            let message =
                format!("volume {name} is of this node alone, and has neither peers nor an address that moves");
            return failure(FailureKind::Conflict, message);
        }
        let running = self.running(name)?;
        // What is in effect is recorded: nothing comes back with the next start that was changed before.
        if let Some(policy) = policy {
            self.change_record(name, |record| record.policy = policy).await?;
            self.control(name, &self.running(name)?, Control::SetPolicy(policy.into())).await?;
        }
        if let Some(seconds) = drain_max_s {
            self.change_record(name, |record| record.drain_max_s = seconds).await?;
            let command = Control::SetDrainMax(Duration::from_secs(seconds));
            self.control(name, &self.running(name)?, command).await?;
        }
        if let Some(mode) = destage {
            self.set_destage(name, &running, mode).await?;
        }
        if let Some(clients) = change.clients {
            let recorded = clients.clone();
            self.change_record(name, |record| record.clients = recorded).await?;
            self.directory.let_in(name, clients);
        }
        if let Some(kind) = tier {
            self.change_tier(name, tier_change::Wanted { kind, size_bytes: tier_size, volatile }).await?;
        }
        self.report(name).await
    }

    /// Asks for another way of destage; makes a journal where one is needed and there is none.
    async fn set_destage(&self, name: &str, running: &Running, mode: DestageName) -> Answer<()> {
        let _admin = self.admin.lock().await;
        let snapshot = self.when_prepared(name, running).await?;
        let missing = snapshot.status.journal_bytes == 0 && mode != DestageName::Ordered;
        match &running.journal_place {
            Ok(path) if missing => self.make_journal(name, running, mode, path.clone(), &snapshot).await?,
            Err(why) if mode == DestageName::Journaled => {
                return failure(
                    FailureKind::Conflict,
                    format!("volume {name}: journaled destage needs a journal, but {why}; use auto or ordered"),
                );
            }
            Ok(_) | Err(_) => {}
        }
        self.change_record(name, |record| record.destage = mode).await?;
        self.control(name, running, Control::SetDestage(mode.into())).await
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
        let Some(mut record) = self.entries().iter().find(|e| e.facts.name == name).map(|e| e.record.clone()) else {
            return no_such_volume(name);
        };
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
        let Some(record) = self.entries().iter().find(|e| e.facts.name == name).map(|e| e.record.clone()) else {
            return no_such_volume(name);
        };
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
}
