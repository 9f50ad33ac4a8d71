//! A volume of the cluster is deleted: it is released, its record says so for ever, and every node removes its tier, also one that was
//! away meanwhile. Its image stays.
//!
//! Invariants:
//! - A tier is removed only when a linearizable read shows that the volume was deleted: a definition that is gone says nothing by
//!   itself (C3).
//! - Nothing that is in no other place is removed unless the operator gives it up, which the audit log says.

use super::calls::Owner;
use super::commands::{Answer, Trouble, failure, no_such_volume};
use super::control::Cluster;
use super::driver::ToDriver;
use super::marker::ImageMarker;
use super::member::options;
use crate::coordinator::words::{self, AuditLine, Definition, Kept, Wish};
use crate::coordinator::{Audit, Outcome, wishes};
use crate::node::{Failure, FailureKind};
use crate::units::show_size;
use crate::volume_store::VolumeId;
use forebay_core::cluster::{LogState, Record};
use forebay_core::ownership::Command;
use forebay_io::Backing;
use std::sync::Arc;
use std::time::Duration as Time;
use tokio::sync::oneshot;

/// Between two attempts at a change whose fate is not known.
const RETRY: Time = Time::from_millis(500);
/// So many of them.
const ATTEMPTS_MAX: usize = 20;

impl Cluster {
    /// Forgets a volume, and removes its tiers on all nodes.
    pub async fn delete(self: &Arc<Cluster>, name: &str, discard_dirty: bool) -> Answer<()> {
        let known =
            self.known().values().find(|known| known.definition.name == name).map(|known| known.definition.clone());
        let Some(definition) = known else { return no_such_volume(name) };
        let volume = definition.volume;
        let (_caller, mut gone) = oneshot::channel();
        match self.owner_of(volume).await {
            // What its logs hold is given up, so nobody has to be asked for it.
            Owner::Here | Owner::There(_) | Owner::Nobody | Owner::Unsettled if discard_dirty => {
                self.delete_record(volume, name, true).await?;
            }
            Owner::Nobody => self.delete_record(volume, name, false).await?,
            Owner::Here | Owner::There(_) | Owner::Unsettled => {
                self.at_owner(volume, name, Wish::Delete { discard_dirty }, &mut gone).await?;
            }
        }
        self.refresh_definitions().await;
        // One that is still written to by a former owner is removed by that.
        let cluster = self.clone();
        tokio::spawn(async move { cluster.remove_marker(&definition).await });
        Ok(())
    }

    /// The marker beside the image speaks of logs that are gone.
    pub(super) async fn remove_marker(&self, definition: &Definition) {
        let (definition, name) = (definition.clone(), definition.name.clone());
        let work = move || -> anyhow::Result<()> {
            let backing = Backing::open(&definition.backing, options(&definition))?;
            ImageMarker::of(&backing).map_or(Ok(()), |marker| marker.remove(definition.volume))
        };
        if let Ok(Err(error)) = tokio::task::spawn_blocking(work).await {
            eprintln!("forebay: volume {name}: it was deleted, and the marker beside its image is left: {error:#}");
        }
    }

    /// The owner's part.
    pub(super) async fn delete_owned(&self, volume: VolumeId, name: &str) -> Result<(), Trouble> {
        let refused = |message: String| Err(Trouble::Failure(Failure { kind: FailureKind::Conflict, message }));
        let shown = self.show(volume).await.ok_or(Trouble::NotOwner)?;
        if let Some(snapshot) = &shown.volume {
            if snapshot.connections > 0 {
                let clients = snapshot.connections;
                return refused(format!(
                    "volume {name} has {clients} clients; disconnect them first, or use --discard-dirty"
                ));
            }
            if snapshot.status.dirty_bytes > 0 {
                return refused(format!(
                    "volume {name} holds {} that are not in the backing; run `forebay volume drain {name}` first, or give \
                     them up with --discard-dirty",
                    show_size(snapshot.status.dirty_bytes)
                ));
            }
        }
        self.command_owner(volume, name, Command::Release).await?;
        self.delete_record(volume, name, false).await.map_err(Trouble::Failure)
    }

    async fn delete_record(&self, volume: VolumeId, name: &str, given_up: bool) -> Answer<()> {
        let failed = |why: String| Failure {
            kind: FailureKind::Failed,
            message: format!("volume {name} is not deleted, or not known to be: {why}; delete it again"),
        };
        let definition = self.known().get(&volume).map(|known| known.definition.clone());
        let Some(definition) = definition else { return no_such_volume(name) };
        let audit =
            given_up.then(|| self.audit_of_deletion(&definition)).transpose().map_err(|e| failed(format!("{e:#}")))?;
        let mut why = String::new();
        for _ in 0..ATTEMPTS_MAX {
            let record = match self.coordinator.record(volume).await {
                Ok(Kept::Deleted { .. }) => return Ok(()),
                Ok(Kept::Record(record)) => record,
                Err(error) => return Err(failed(error.to_string())),
            };
            if record.log != LogState::Released && !given_up {
                return failure(FailureKind::Conflict, format!("volume {name} was opened again meanwhile"));
            }
            match self.delete_as_read(&definition, &record, audit.as_ref()).await {
                Ok(true) => return Ok(()),
                Ok(false) => why = "its record changes all the time".to_owned(),
                Err(error) => why = error,
            }
            tokio::time::sleep(RETRY).await;
        }
        Err(failed(why))
    }

    async fn delete_as_read(
        &self,
        definition: &Definition,
        record: &Record,
        audit: Option<&Audit>,
    ) -> Result<bool, String> {
        match self.coordinator.delete(definition, record, audit).await {
            Ok(Outcome::Won) => Ok(true),
            Ok(Outcome::Lost(found)) => Ok(matches!(found, Kept::Deleted { .. })),
            Ok(Outcome::Unknown(why)) => Err(why),
            Err(error) => Err(error.to_string()),
        }
    }

    fn audit_of_deletion(&self, definition: &Definition) -> anyhow::Result<Audit> {
        Audit::new(AuditLine {
            version: words::VERSION,
            at_ms: wishes::now_ms(),
            node: self.name.clone(),
            volume: Some(definition.volume),
            action: "delete-discard-dirty".to_owned(),
            words: format!("volume {} was deleted with whatever only its logs held", definition.name),
        })
    }

    // --- every node ---

    /// Volumes that are defined no more: those that were deleted end here, too.
    pub(super) async fn end_deleted(&self, defined: &[Definition]) {
        let mut gone: Vec<VolumeId> = self.known().keys().copied().collect();
        if !std::mem::replace(&mut *self.leftovers_seen.lock().expect("nobody panics while holding it"), true) {
            gone.extend(self.place.volumes_with_tiers());
        }
        gone.retain(|volume| defined.iter().all(|definition| definition.volume != *volume));
        gone.sort();
        gone.dedup();
        for volume in gone {
            if let Ok(Kept::Deleted { .. }) = self.coordinator.record(volume).await {
                self.end_volume(volume).await;
            }
        }
    }

    async fn end_volume(&self, volume: VolumeId) {
        let known = self.known().remove(&volume);
        let (answer, answered) = oneshot::channel();
        self.mail(ToDriver::End { volume, answer });
        // The data path may have ended before.
        let _ = answered.await;
        let place = self.place.clone();
        let removed = tokio::task::spawn_blocking(move || place.remove_tiers(volume)).await;
        let name = known.map_or_else(|| volume.to_string(), |known| known.definition.name);
        match removed {
            Ok(Ok(0)) => eprintln!("forebay: volume {name}: it was deleted"),
            Ok(Ok(_)) => eprintln!("forebay: volume {name}: it was deleted; its tier on this node is removed"),
            Ok(Err(error)) => {
                eprintln!("forebay: volume {name}: it was deleted, and its tier on this node is left: {error:#}");
            }
            Err(_) => eprintln!("forebay: volume {name}: removing its tier panicked; this is a bug"),
        }
    }
}
