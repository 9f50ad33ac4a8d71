//! A volume of the cluster is deleted: it is released, its record says so for ever, and every node removes its tier, also one that was
//! away meanwhile. Its image stays.
//!
//! Invariants:
//! - A tier is removed only when a linearizable read shows that the volume was deleted: a definition that is gone says nothing by
//!   itself (C3).
//! - Nothing that is in no other place is removed unless the operator gives it up, which the audit log says.
//! - Nobody is told that a volume is deleted, and so that its backing is free for another use, before nothing of the volume can land
//!   there any more: each owner, the recorded one included, has released it, or is proved to write no more (T6), or the operator has named
//!   it. A record that was read anew is judged anew.

use super::calls::Owner;
use super::commands::{Answer, Trouble, failure, no_such_volume};
use super::control::Cluster;
use super::marker::ImageMarker;
use super::overrides::{formers_of, names};
use crate::coordinator::schema::{self, AuditLine, Definition, OwnerCommand, StoredRecord};
use crate::coordinator::{Audit, Error, Outcome, commands};
use crate::datapath::driver::ToDriver;
use crate::datapath::mailbox::await_closed;
use crate::failure::{Failure, FailureKind};
use crate::log;
use forebay_api::checked::{Code, Line};
use forebay_api::record::VolumeId;
use forebay_api::units::show_size;
use forebay_core::cluster::{LogState, NodeId, Record, Unfenced};
use forebay_core::fence::{LockReach, Means};
use forebay_core::ownership::Command;
use forebay_io::Backing;
use std::sync::Arc;
use std::time::Duration as Time;
use tokio::sync::oneshot;

/// Between two attempts at a change whose fate is not known.
const RETRY: Time = Time::from_millis(500);
/// So many of them.
const ATTEMPTS_MAX: usize = 20;

/// How long the end of a marker is awaited before whoever has asked for the deletion is told of it.
const MARKER_WAIT: Time = Time::from_secs(10);

/// How long an owner that holds nothing may take to release the volume.
const RELEASE_WAIT: Time = Time::from_secs(10);

/// How long the last requests of an owner that was ended are awaited: longer, and the operator's word is asked for.
const ENDED_WAIT: Time = Time::from_secs(10);

/// What an operator gives up with a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenUp {
    /// Former owners, each with its term, of whom the operator has made sure that they write to its backing no more.
    pub fenced: Vec<String>,
    /// Who has said so; nothing: an owner that was asked by another node.
    pub by: String,
}

/// `by`: the node that serves it, if it is another one.
fn word_is_not_asked_for<T>(name: &str, by: &str) -> Answer<T> {
    failure(
        FailureKind::Conflict,
        format!(
            "volume {name} is served{by}, and its owner can tell whether it waits for proof about a former one: `forebay volume \
             show {name}`, `forebay volume fenced {name}`; leave --i-fenced-it out here (the word about its present owner itself is said at that node)"
        ),
    )
}

impl Cluster {
    /// Forgets a volume, and removes its tiers on all nodes.
    ///
    /// `given_up`: what its logs hold, and the nodes of which the operator has made sure that they write no more.
    pub async fn delete(self: &Arc<Cluster>, name: &str, given_up: Option<GivenUp>) -> Answer<()> {
        let known =
            self.known().values().find(|known| known.definition.name == name).map(|known| known.definition.clone());
        let Some(definition) = known else { return no_such_volume(name) };
        let volume = definition.volume;
        let (_caller, mut gone) = oneshot::channel();
        let discard_dirty = given_up.is_some();
        match (self.owner_of(volume).await, given_up) {
            // What the operator says of nodes is said where nobody else can tell.
            (Owner::Nobody | Owner::Unsettled, Some(given_up)) => {
                self.delete_record(volume, name, Some(&given_up)).await?;
            }
            (Owner::Nobody, None) => self.delete_record(volume, name, None).await?,
            (Owner::There(node), Some(given_up)) if !self.answers(node).await => {
                self.delete_record(volume, name, Some(&given_up)).await?;
            }
            // An owner takes the word about itself; what it can tell of former ones is not for the operator to say here.
            (Owner::Here, Some(given_up)) if !given_up.fenced.is_empty() => {
                self.discard_owned(volume, name, &given_up).await.map_err(Trouble::into_failure)?;
            }
            (Owner::There(node), Some(given_up)) if !given_up.fenced.is_empty() => {
                return word_is_not_asked_for(
                    name,
                    &self.node_name(node).map_or_else(String::new, |node| format!(" by {node}")),
                );
            }
            (Owner::Here | Owner::There(_) | Owner::Unsettled, _) => {
                self.at_owner(volume, name, OwnerCommand::Delete { discard_dirty }, &mut gone).await?;
            }
        }
        self.refresh_definitions().await;
        // One that is still written to by a former owner is removed by that. Awaited, because a marker that says of the image that it is
        // not complete, or the opening that looks for it, would have the next volume of this backing refused.
        let cluster = self.clone();
        let removal = tokio::spawn(async move { cluster.remove_marker(&definition).await });
        if tokio::time::timeout(MARKER_WAIT, removal).await.is_err() {
            log::say!(
                Notice,
                volume(name),
                "it was deleted, and its backing does not answer: the marker beside it goes when it does"
            );
        }
        Ok(())
    }

    async fn answers(&self, node: NodeId) -> bool {
        let name = self.node_name(node);
        self.node_reports()
            .await
            .iter()
            .any(|report| Some(report.name.as_str()) == name.as_deref() && report.up == Some(true))
    }

    /// The marker beside the image speaks of logs that are gone.
    pub(super) async fn remove_marker(&self, definition: &Definition) {
        let (definition, name, place) = (definition.clone(), definition.name.clone(), self.place.clone());
        let work = move || -> anyhow::Result<()> {
            let backing = place.open_backing(&definition)?;
            ImageMarker::of(&backing).map_or(Ok(()), |marker| marker.remove(definition.volume))
        };
        if let Ok(Err(error)) = tokio::task::spawn_blocking(work).await {
            log::say!(Error, volume(name), "it was deleted, and the marker beside its image is left: {error:#}");
        }
    }

    /// The owner's part.
    pub(super) async fn delete_owned(
        self: &Arc<Cluster>,
        volume: VolumeId,
        name: &str,
        discard_dirty: bool,
    ) -> Result<(), Trouble> {
        if discard_dirty {
            return self.discard_owned(volume, name, &GivenUp::default()).await;
        }
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
        match tokio::time::timeout(RELEASE_WAIT, self.command_owner(volume, name, Command::Release)).await {
            Ok(released) => released?,
            // It goes on: nothing that is released later can be written to.
            Err(_) => {
                let seconds = RELEASE_WAIT.as_secs();
                return Err(Trouble::failed(format!(
                    "volume {name} is not deleted: its owner has not released it within {seconds} s, and the owner's log may say why (its \
                     state folder, or the coordinator); delete it again"
                )));
            }
        }
        self.delete_record(volume, name, None).await.map_err(Trouble::Failure)
    }

    /// Ends the data path, which answers no client and sends nothing more, and then deletes what is left. Where that is refused it is
    /// taken up again.
    async fn discard_owned(
        self: &Arc<Cluster>,
        volume: VolumeId,
        name: &str,
        given_up: &GivenUp,
    ) -> Result<(), Trouble> {
        let record = match self.coordinator.record(volume).await {
            Ok(StoredRecord::Record(record)) => record,
            Ok(StoredRecord::Deleted { .. }) => return Ok(()),
            Err(error) => return Err(Trouble::failed(format!("volume {name} is not deleted: {error}"))),
        };
        if record.owner != self.place.node {
            return Err(Trouble::NotOwner);
        }
        // Before anything ends: as long as it serves, it can be drained instead.
        let judged = async {
            self.require_nothing_open(volume, name)?;
            self.require_own_end(volume, &record, name, given_up).await?;
            self.require_ended(&record, &record.unfenced, name, &GivenUp::default()).await
        };
        judged.await.map_err(Trouble::Failure)?;
        let definition = self.definition(volume);
        let deleted = match self.end_data_path(volume).await {
            true => self.delete_record(volume, name, Some(given_up)).await,
            false => failure(
                FailureKind::Failed,
                format!(
                    "volume {name} is not deleted: its files are not closed, because their file system does not answer, and what \
                     lands late would destroy what the backing is used for next; delete it when the file system answers"
                ),
            ),
        };
        if let (Err(_), Some(definition)) = (&deleted, definition) {
            let cluster = self.clone();
            tokio::spawn(async move {
                // It may have been deleted all the same.
                if cluster.definition(volume).is_some() {
                    cluster.take_up(definition).await;
                }
            });
        }
        deleted.map_err(Trouble::Failure)
    }

    /// Refuses where nothing will prove that the last requests of this node, which owns the volume, have ended when its data path has,
    /// and the operator has not said so.
    async fn require_own_end(&self, volume: VolumeId, record: &Record, name: &str, given_up: &GivenUp) -> Answer<()> {
        let own = formers_of(record).into_iter().filter(|owner| owner.term == record.term);
        let own = names(&self.nodes(), &own.collect::<Vec<_>>());
        if given_up.fenced.iter().any(|named| *named != own) {
            return word_is_not_asked_for(name, "");
        }
        let mut reach = self.known().get(&volume).map_or(LockReach::Nobody, |known| known.reach);
        if let (LockReach::Nobody, Some(definition)) = (reach, self.definition(volume)) {
            // It may not have answered when it was looked at last.
            reach = self.reach_of(&definition).await.0;
        }
        match Means::ImageLock(reach).proof(&record.host, &self.place.host) {
            Err(why) if !own.is_empty() && given_up.fenced.is_empty() => failure(
                FailureKind::Conflict,
                format!(
                    "volume {name} is not deleted, and is served as before: when it ends here, nothing will prove that its last writes \
                     have ended as well ({why}), and what lands late would destroy what the backing is used for next. Drain it and \
                     delete it without --discard-dirty; or make sure that nothing of this node reaches the backing any more (an \
                     NBD server has closed its connection), and say so at {}: `forebay volume delete {name} --discard-dirty \
                     --i-fenced-it {own}`",
                    self.name
                ),
            ),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Whether what the volume had open here is closed.
    async fn end_data_path(&self, volume: VolumeId) -> bool {
        let (answer, answered) = oneshot::channel();
        self.mail(ToDriver::End { volume, answer });
        await_closed(answered).await
    }

    /// Refuses unless nothing of these owners can land in the backing any more, by proof or by the operator's word. What is returned
    /// keeps out those that locks speak of, until it is dropped.
    async fn require_ended(
        &self,
        record: &Record,
        formers: &[Unfenced],
        name: &str,
        given_up: &GivenUp,
    ) -> Answer<Vec<Backing>> {
        let Some(definition) = self.find(name).and_then(|volume| self.definition(volume)) else {
            return no_such_volume(name);
        };
        let nodes = self.nodes();
        let named = |former: &Unfenced| given_up.fenced.contains(&names(&nodes, &[*former]));
        let mut open: Vec<Unfenced> = formers.iter().filter(|former| !named(former)).copied().collect();
        let (mut kept, mut why) = (Vec::new(), String::new());
        let until = tokio::time::Instant::now() + ENDED_WAIT;
        while !open.is_empty() {
            match tokio::time::timeout_at(until, self.locked_out(&definition, open.clone())).await {
                Ok(Ok((gone, backing))) => {
                    let left: Vec<Unfenced> =
                        open.iter().filter(|former| !gone.contains(&former.term)).copied().collect();
                    if left.len() < open.len() {
                        kept.push(backing);
                    }
                    open = left;
                }
                Ok(Err(error)) => why = format!(" ({error:#})"),
                Err(_) => why = format!(" ({} does not answer)", definition.backing),
            }
            if open.is_empty() || tokio::time::Instant::now() >= until {
                break;
            }
            tokio::time::sleep(RETRY).await;
        }
        if open.is_empty() {
            return Ok(kept);
        }
        let who = names(&nodes, &open);
        let flags = who.replace(", ", " --i-fenced-it ");
        let command = match record.unfenced.iter().any(|former| open.contains(former)) && given_up.fenced.is_empty() {
            true if matches!(self.owner_of(definition.volume).await, Owner::Here) => {
                format!("forebay volume fenced {name} --i-fenced-it {flags}")
            }
            true | false => format!("forebay volume delete {name} --discard-dirty --i-fenced-it {flags}"),
        };
        failure(
            FailureKind::Conflict,
            format!(
                "volume {name} is not deleted: nothing proves that {who} can write to its backing no more{why}, and what lands there \
                 late would destroy what the backing is used for next. Make sure that the machine is off, or was started anew since, \
                 and say so, with the term in which it was the owner: `{command}`"
            ),
        )
    }

    /// What a record shows may be of before the volume was opened elsewhere (C6).
    fn require_nothing_open(&self, volume: VolumeId, name: &str) -> Answer<()> {
        if self.coordinator.rewinds(volume).open.is_empty() {
            return Ok(());
        }
        failure(
            FailureKind::Conflict,
            format!(
                "volume {name} is not deleted: the coordinator was put back to an older state, and not all nodes have said what \
                 they know of the volume since; see `forebay volume show {name}`"
            ),
        )
    }

    async fn delete_record(&self, volume: VolumeId, name: &str, given_up: Option<&GivenUp>) -> Answer<()> {
        let failed = |why: String| Failure {
            kind: FailureKind::Failed,
            message: format!("volume {name} is not deleted, or not known to be: {why}; delete it again"),
        };
        let definition = self.known().get(&volume).map(|known| known.definition.clone());
        let Some(definition) = definition else { return no_such_volume(name) };
        let audit = given_up.map(|given_up| self.audit_of_deletion(&definition, given_up)).transpose();
        let audit = audit.map_err(|e| failed(format!("{e:#}")))?;
        let mut why = String::new();
        for _ in 0..ATTEMPTS_MAX {
            let record = match self.coordinator.record(volume).await {
                Ok(StoredRecord::Deleted { .. }) => return Ok(()),
                Ok(StoredRecord::Record(record)) => record,
                Err(error) => return Err(failed(error.to_string())),
            };
            self.require_nothing_open(volume, name)?;
            let _kept_out = match given_up {
                Some(given_up) => self.require_ended(&record, &formers_of(&record), name, given_up).await?,
                None if record.log != LogState::Released => {
                    return failure(FailureKind::Conflict, format!("volume {name} was opened again meanwhile"));
                }
                None => Vec::new(),
            };
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
            Ok(Outcome::Lost(found)) => Ok(matches!(found, StoredRecord::Deleted { .. })),
            Ok(Outcome::Unknown(why)) => Err(why),
            Err(error) => Err(error.to_string()),
        }
    }

    fn audit_of_deletion(&self, definition: &Definition, given_up: &GivenUp) -> anyhow::Result<Audit> {
        let by = if given_up.by.is_empty() { String::new() } else { format!("{}: ", given_up.by) };
        let by_word = match given_up.fenced.join(", ") {
            none if none.is_empty() => String::new(),
            nodes => format!("; by the operator's word {nodes} can write to its backing no more"),
        };
        Audit::new(AuditLine {
            version: schema::VERSION,
            at_ms: commands::now_ms(),
            node: self.name.clone(),
            volume: Some(definition.volume),
            action: Code::of("delete-discard-dirty"),
            words: Line::of(&format!(
                "{by}volume {} was deleted with whatever only its logs held{by_word}",
                definition.name
            )),
        })
    }

    // --- every node ---

    /// Volumes that are defined no more: those that were deleted end here, too.
    ///
    /// False: of some it could not be asked, or remembered, what has become of them, or something of them is left.
    pub(super) async fn end_deleted(&self, defined: &[Definition]) -> bool {
        let mut is_known = true;
        let mut gone: Vec<VolumeId> = self.known().keys().copied().collect();
        if !std::mem::replace(&mut *self.leftovers_seen.lock().expect("nobody panics while holding it"), true) {
            gone.extend(self.place.volumes_with_tiers());
        }
        gone.extend(self.place.pins.volumes());
        gone.retain(|volume| defined.iter().all(|definition| definition.volume != *volume));
        gone.sort();
        gone.dedup();
        for volume in gone {
            match self.coordinator.record(volume).await {
                Ok(StoredRecord::Deleted { .. }) => is_known &= self.end_volume(volume).await,
                // This node has asked for it, or has read of it, and it was never made.
                Err(Error::NoVolume(_)) if !self.known().contains_key(&volume) => is_known &= self.forget_pin(volume),
                Err(Error::NotRemembered(_) | Error::Unreachable(_)) => is_known = false,
                Ok(StoredRecord::Record(_)) | Err(_) => {}
            }
        }
        if !is_known {
            *self.leftovers_seen.lock().expect("nobody panics while holding it") = false;
        }
        is_known
    }

    /// Whether nothing is left of it. As long as something is, no other volume gets its name here.
    pub(super) fn forget_pin(&self, volume: VolumeId) -> bool {
        let forgotten = self.place.pins.forget(volume);
        if let Err(error) = &forgotten {
            log::say!(
                Error,
                volume(self.shown(volume)),
                "it is no more, and what this node knows of it stays: {error:#}"
            );
        }
        forgotten.is_ok()
    }

    /// Whether nothing of it is left here.
    async fn end_volume(&self, volume: VolumeId) -> bool {
        let name = self.shown(volume);
        if let Some(known) = self.known().remove(&volume) {
            self.directory.expect_no_more(&known.definition.name);
        }
        self.end_data_path(volume).await;
        let place = self.place.clone();
        let removed = tokio::task::spawn_blocking(move || place.remove_tiers(volume)).await;
        let forgotten = self.forget_pin(volume);
        let is_gone = forgotten && matches!(removed, Ok(Ok(_)));
        match removed {
            Ok(Ok(0)) => log::say!(Notice, volume(name), "it was deleted"),
            Ok(Ok(_)) => log::say!(Notice, volume(name), "it was deleted; its tier on this node is removed"),
            Ok(Err(error)) => {
                log::say!(Error, volume(name), "it was deleted, and its tier on this node is left: {error:#}");
            }
            Err(_) => log::say!(Error, volume(name), "removing its tier panicked; this is a bug"),
        }
        is_gone
    }
}
