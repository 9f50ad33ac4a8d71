//! What operators decide where the cluster cannot know: that a loss is accepted, that a machine is off, that a record which went
//! back in time is to be written anew, that a node will not come back.
//!
//! Invariants:
//! - Each needs a second word, which says what it costs, and leaves a line in the audit log: in the very transaction that it
//!   allows, and before it counts where it allows more than that.
//! - None goes by without what core asks for besides: proof about the last owner, a member that may be alive.

use super::commands::{Answer, command_words, failure, no_such_volume};
use super::control::Cluster;
use super::report::name_of;
use crate::coordinator::words::{self, AuditLine, Kept, NodeEntry};
use crate::coordinator::{Audit, Error, Outcome};
use crate::node::{Failure, FailureKind};
use crate::report::VolumeReport;
use crate::volume_store::VolumeId;
use anyhow::{Result, bail};
use forebay_core::cluster::{LogState, NodeId, Record, Unfenced};
use forebay_core::ownership::{Command, CommandError, State};
use forebay_io::Backing;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Of a record that is written anew: the transaction compares with what went back in time.
pub(super) const RESTORE: &str = "restore-record";

/// A line that goes with whatever changes the record as long as this lives.
struct Said<'a> {
    cluster: &'a Cluster,
    volume: VolumeId,
}

impl Drop for Said<'_> {
    fn drop(&mut self) {
        self.cluster.all_said().remove(&self.volume);
    }
}

impl Cluster {
    fn all_said(&self) -> std::sync::MutexGuard<'_, std::collections::BTreeMap<VolumeId, Audit>> {
        self.said.lock().expect("nobody panics while holding it")
    }

    /// The line that goes with the next change of this volume's record.
    pub(super) fn said(&self, volume: VolumeId) -> Option<Audit> {
        self.all_said().get(&volume).cloned()
    }

    fn audit(&self, action: &str, volume: Option<VolumeId>, words: &str) -> Result<Audit> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
        let (node, action, words) = (self.name.clone(), action.to_owned(), words.to_owned());
        Audit::new(AuditLine { version: words::VERSION, at_ms: at, node, volume, action, words })
    }

    fn say(&self, action: &str, volume: VolumeId, words: &str) -> Answer<Said<'_>> {
        let audit = self.audit(action, Some(volume), words).map_err(failed)?;
        if self.all_said().contains_key(&volume) {
            return failure(FailureKind::Conflict, "another such command is being carried out for this volume");
        }
        self.all_said().insert(volume, audit);
        Ok(Said { cluster: self, volume })
    }

    /// A line that goes with no change of a record.
    pub(super) async fn note(&self, action: &str, volume: Option<VolumeId>, words: &str) -> Result<()> {
        let audit = self.audit(action, volume, words)?;
        match self.coordinator.note(&audit).await? {
            Outcome::Won => Ok(()),
            Outcome::Lost(()) => bail!("the coordinator has not taken the line"),
            Outcome::Unknown(why) => bail!("whether the coordinator has the line is not known: {why}"),
        }
    }

    // --- a volume that nobody serves ---

    /// Serves here a volume that nobody serves and whose log is nowhere.
    pub async fn open(self: &Arc<Cluster>, name: &str, accept_loss: bool, by: &str) -> Answer<VolumeReport> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        let words = format!("{by}: opened without the logs of its members; what only they had is lost");
        let _said = match accept_loss {
            true => Some(self.say("accept-loss", volume, &words)?),
            false => None,
        };
        let mut opened = self.try_command(volume, name, Command::Open { accept_loss }).await?;
        let mut kept_out = Vec::new();
        if opened == Err(CommandError::NeedsProof) {
            kept_out = self.keep_out_formers(volume).await?;
            opened = self.try_command(volume, name, Command::Open { accept_loss }).await?;
        }
        // By now the record says who opens it: whoever gets those locks reads that it is no owner.
        drop(kept_out);
        match opened {
            Ok(()) => {}
            Err(CommandError::NeedsProof) => return Err(self.needs_proof(volume, name).await),
            Err(CommandError::LossSuspected) => {
                let message = format!(
                    "volume {name}: {}; if none of its members will come back with its log, accept that: \
                     `forebay volume open {name} --accept-loss --yes-lose-acknowledged-writes`",
                    command_words(CommandError::LossSuspected)
                );
                return failure(FailureKind::Conflict, message);
            }
            Err(error) => {
                return failure(FailureKind::Conflict, format!("volume {name}: {}", command_words(error)));
            }
        }
        self.until_served(volume).await;
        self.report(name).await
    }

    async fn keep_out_formers(&self, volume: VolumeId) -> Answer<Vec<Backing>> {
        let definition = self.known().get(&volume).map(|known| known.definition.clone());
        let Some(definition) = definition else { return Ok(Vec::new()) };
        let kept = match self.coordinator.record(volume).await {
            Ok(Kept::Record(record)) => self.keep_out(&definition, formers_of(&record)).await,
            Ok(Kept::Deleted { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        };
        kept.map_err(failed)
    }

    async fn needs_proof(&self, volume: VolumeId, name: &str) -> Failure {
        let formers = self.unproven_formers(volume).await;
        let nodes = names(&self.nodes(), &formers);
        let message = format!(
            "volume {name}: nothing proves that its last owner can write to the backing no more ({nodes}). Make sure that \
             its machine is off, or was started anew since, and say so: `forebay volume fenced {name} --i-fenced-it {}`; then \
             open it again",
            nodes.replace(", ", " --i-fenced-it ")
        );
        Failure { kind: FailureKind::Conflict, message }
    }

    // --- the operator's word about a machine ---

    /// About whom ownership of this volume has no proof, as seen from this node.
    async fn unproven_formers(&self, volume: VolumeId) -> Vec<Unfenced> {
        let Some(shown) = self.show(volume).await else { return Vec::new() };
        let status = shown.ownership;
        let mut formers = status.unproven;
        if let (State::NoMember, Some(record)) = (status.state, status.record) {
            // Whoever has no part in the volume is to open it: the recorded owner is gone as well.
            formers.extend(owner_of(&record));
        }
        formers
    }

    /// The operator has made sure that these nodes write to the volume's backing no more.
    pub async fn fenced(&self, name: &str, nodes: &[String], by: &str) -> Answer<VolumeReport> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        let formers = self.unproven_formers(volume).await;
        let known = self.nodes();
        let mut waiting: Vec<String> = formers.iter().map(|former| name_of(&known, former.node)).collect();
        waiting.sort();
        waiting.dedup();
        let mut said = nodes.to_vec();
        said.sort();
        said.dedup();
        if waiting.is_empty() {
            return failure(FailureKind::Conflict, format!("volume {name}: it waits for no proof about any node"));
        }
        if said != waiting {
            let message = format!(
                "volume {name}: proof is missing about {}, and you speak of {}; nothing was changed. All of them must be \
                 off, and named: --i-fenced-it NODE for each",
                waiting.join(", "),
                said.join(", ")
            );
            return failure(FailureKind::Conflict, message);
        }
        // It allows writes to the backing before it allows a change of the record: so the line comes first.
        let words = format!("{by}: {} can write to its backing no more", waiting.join(", "));
        self.note("fenced", Some(volume), &words).await.map_err(failed)?;
        self.command(volume, name, Command::Fenced).await?;
        self.report(name).await
    }

    // --- a coordinator that went back in time ---

    /// Writes the record anew, by the owner, who knows what it was (C3).
    pub async fn restore_record(&self, name: &str, by: &str) -> Answer<VolumeReport> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        let _said = self.say(RESTORE, volume, &format!("{by}: the record is written anew as its owner knows it"))?;
        self.command(volume, name, Command::RestoreRecord).await?;
        self.report(name).await
    }

    /// The transaction of [`Cluster::restore_record`].
    pub(super) async fn write_anew(
        &self,
        volume: VolumeId,
        new: &Kept,
        audit: &Audit,
    ) -> std::result::Result<Outcome<Kept>, Error> {
        match self.coordinator.record(volume).await {
            Ok(found) => Ok(Outcome::Lost(found)),
            Err(Error::WentBack { seen, found, .. }) => {
                let newest = seen.iter().chain(found.iter()).map(Kept::number).max();
                if newest.is_some_and(|newest| new.number() <= newest) {
                    return Ok(Outcome::Unknown(
                        "a newer record was seen than the one that was to be written".to_owned(),
                    ));
                }
                self.coordinator.write_anew(volume, found.as_ref().as_ref(), new, audit).await
            }
            Err(error) => Err(error),
        }
    }

    // --- nodes ---

    /// Frees the name and number of a node that will not come back.
    pub async fn forget(self: &Arc<Cluster>, name: &str, by: &str) -> Answer<()> {
        if name == self.name {
            return failure(
                FailureKind::Conflict,
                format!("{name} is this very node; have it forgotten at another one"),
            );
        }
        let nodes = self.coordinator.nodes().await.map_err(|error| failed(error.into()))?;
        let Some(entry) = nodes.iter().find(|entry| entry.name == name) else {
            let message = format!("there is no node {name}; `forebay node list` shows those there are");
            return failure(FailureKind::NotFound, message);
        };
        if self.node_reports().await.iter().any(|node| node.name == name && node.up == Some(true)) {
            return failure(FailureKind::Conflict, format!("{name} answers; stop it first"));
        }
        if let Some(needed) = self.needed_by(entry.node()).await.map_err(failed)? {
            return failure(FailureKind::Conflict, format!("{name} cannot be forgotten: {needed}"));
        }
        let audit = self.audit("forget-node", None, &format!("{by}: {name} is forgotten")).map_err(failed)?;
        match self.coordinator.forget(entry, &audit).await.map_err(|error| failed(error.into()))? {
            Outcome::Won => {}
            Outcome::Lost(()) => {
                return failure(FailureKind::Conflict, format!("{name} has registered anew meanwhile: it is alive"));
            }
            Outcome::Unknown(why) => {
                let message = format!("whether {name} is forgotten is not known yet: {why}; try again");
                return failure(FailureKind::Failed, message);
            }
        }
        self.refresh_nodes().await;
        Ok(())
    }

    /// What speaks of a node: whoever looks for proof about it must know its name and machine.
    async fn needed_by(&self, node: NodeId) -> Result<Option<String>> {
        for definition in self.coordinator.definitions().await? {
            let name = &definition.name;
            let Kept::Record(record) = self.coordinator.record(definition.volume).await? else { continue };
            if record.unfenced.iter().any(|former| former.node == node) {
                return Ok(Some(format!(
                    "volume {name} waits for proof that it writes no more (`forebay volume fenced`)"
                )));
            }
            if record.log != LogState::Released && record.member(node).is_some() {
                let role = if record.owner == node { "its recorded owner" } else { "a member of it" };
                return Ok(Some(format!("volume {name} has it as {role}")));
            }
        }
        Ok(None)
    }

    /// The audit log, oldest line first, with names for volumes.
    pub async fn audit_log(&self) -> Answer<Vec<AuditReport>> {
        let lines = self.coordinator.audit_log().await.map_err(|error| failed(error.into()))?;
        let names = |volume: VolumeId| {
            let known = self.known().get(&volume).map(|known| known.definition.name.clone());
            known.unwrap_or_else(|| volume.to_string())
        };
        Ok(lines.into_iter().map(|line| AuditReport::new(line, names)).collect())
    }
}

/// A line of the audit log.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct AuditReport {
    /// Milliseconds since 1970 by the clock of the node that was told.
    pub at_unix_ms: u64,
    /// The node that was told.
    pub node: String,
    /// The volume, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volume: Option<String>,
    /// What was decided.
    pub action: String,
    /// By whom, and what it means.
    pub words: String,
}

impl AuditReport {
    fn new(line: AuditLine, name: impl Fn(VolumeId) -> String) -> AuditReport {
        let AuditLine { at_ms, node, volume, action, words, .. } = line;
        AuditReport { at_unix_ms: at_ms, node, volume: volume.map(name), action, words }
    }
}

/// All who may write to the backing of a volume that is to be opened without its log.
fn formers_of(record: &Record) -> Vec<Unfenced> {
    record.unfenced.iter().copied().chain(owner_of(record)).collect()
}

fn owner_of(record: &Record) -> Option<Unfenced> {
    let owner = Unfenced { term: record.term, node: record.owner, host: record.host };
    (record.log != LogState::Released).then_some(owner)
}

fn names(nodes: &[NodeEntry], formers: &[Unfenced]) -> String {
    let mut names: Vec<String> = formers.iter().map(|former| name_of(nodes, former.node)).collect();
    names.sort();
    names.dedup();
    names.join(", ")
}

fn failed(error: anyhow::Error) -> Failure {
    Failure { kind: FailureKind::Failed, message: format!("{error:#}") }
}
