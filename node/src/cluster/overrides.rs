//! What operators decide where the cluster cannot know: that a loss is accepted, that a machine is off, that a record which went
//! back in time is to be written anew, that a node will not come back.
//!
//! Invariants:
//! - Each needs a second word, which says what it costs, and leaves a line in the audit log: in the very transaction that it
//!   allows, and before it counts where it allows more than that.
//! - None goes by without what core asks for besides: proof about the last owner, a member that may be alive.

use super::commands::{Answer, command_words, failure, no_such_volume};
use super::control::Cluster;
use super::status::{called, name_of};
use crate::coordinator::schema::{self, AuditLine, NodeEntry, StoredRecord};
use crate::coordinator::{Audit, Outcome};
use crate::failure::{Failure, FailureKind};
use anyhow::{Result, bail};
use forebay_api::checked::{Code, Line};
use forebay_api::cluster::AuditReport;
use forebay_api::record::VolumeId;
use forebay_api::status::VolumeReport;
use forebay_core::cluster::{Epoch, LogState, NodeId, Record, Unfenced};
use forebay_core::ownership::{Command, CommandError};
use forebay_core::types::Term;
use forebay_host::identity::revocation::Revocation;
use forebay_io::Backing;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

impl Cluster {
    fn audit(&self, action: &str, volume: Option<VolumeId>, words: &str) -> Result<Audit> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
        let (node, action, words) = (self.name.clone(), Code::of(action), Line::of(words));
        Audit::new(AuditLine { version: schema::VERSION, at_ms: at, node, volume, action, words })
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
        let audit = match accept_loss {
            true => Some(self.audit("accept-loss", Some(volume), &words).map_err(failed)?),
            false => None,
        };
        let mut opened = self.try_audited(volume, name, Command::Open { accept_loss }, audit.clone()).await?;
        let mut kept_out = None;
        if opened == Err(CommandError::NeedsProof) {
            kept_out = self.keep_out_formers(volume).await?;
            opened = self.try_audited(volume, name, Command::Open { accept_loss }, audit).await?;
        }
        // By now the record says who opens it: whoever gets those locks reads that it is no owner.
        drop(kept_out);
        match opened {
            Ok(()) => {}
            Err(CommandError::NeedsProof) => return Err(self.needs_proof(volume, name).await),
            Err(CommandError::LossSuspected | CommandError::LogsAnswer) if !self.logs_left(volume).await.is_empty() => {
                return failure(FailureKind::Conflict, self.waits_for_logs(volume, name).await);
            }
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

    /// Serves here with what a loss of power has left of the log, although what was not synced is lost.
    pub async fn take_synced(self: &Arc<Cluster>, name: &str, by: &str) -> Answer<VolumeReport> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        let words =
            format!("{by}: opened with what the media have of those members that answer; what was not synced is lost");
        let audit = self.audit("take-synced", Some(volume), &words).map_err(failed)?;
        match self.try_audited(volume, name, Command::TakeSynced, Some(audit)).await? {
            Ok(()) => {}
            Err(CommandError::NotMember) => {
                let left = self.logs_left(volume).await;
                let message = match left.is_empty() {
                    true => format!(
                        "volume {name}: this node has no log of it, and it has not heard of another one that has"
                    ),
                    false => format!("volume {name}: this node has no log of it; say so at {}", left.join(" or ")),
                };
                return failure(FailureKind::Conflict, message);
            }
            Err(error) => return failure(FailureKind::Conflict, format!("volume {name}: {}", command_words(error))),
        }
        self.until_served(volume).await;
        self.report(name).await
    }

    /// Members that answer with what a loss of power has left of their logs.
    async fn logs_left(&self, volume: VolumeId) -> Vec<String> {
        let left = self.show(volume).await.map(|shown| shown.ownership.left).unwrap_or_default();
        let nodes = self.nodes();
        left.into_iter().map(|node| name_of(&nodes, node)).collect()
    }

    /// What is to be done where logs answer: they are not given up.
    async fn waits_for_logs(&self, volume: VolumeId, name: &str) -> String {
        let left = self.logs_left(volume).await;
        let silent: Vec<String> = match self.show(volume).await.and_then(|shown| shown.ownership.record) {
            Some(record) => {
                let nodes = self.nodes();
                let members = record.members.iter().map(|member| name_of(&nodes, member.node));
                members.filter(|member| !left.contains(member)).collect()
            }
            None => Vec::new(),
        };
        let others = match silent.is_empty() {
            true => String::new(),
            false => format!(
                "; its other members, {}, do not answer, or have nothing left: one that still has the log takes over by itself",
                silent.join(", ")
            ),
        };
        format!(
            "volume {name}: power was lost, and {} still {} what was synced of the log, which is not given up{others}. Where \
             flushes have promised the media, it opens by itself when every member has answered. If none comes back with more, \
             take what there is, at {}: `forebay volume open {name} --take-synced --yes-lose-unsynced-writes`",
            left.join(", "),
            if left.len() == 1 { "has" } else { "have" },
            left.join(" or "),
        )
    }

    pub(super) async fn keep_out_formers(&self, volume: VolumeId) -> Answer<Option<Backing>> {
        let Some(definition) = self.definition(volume) else { return Ok(None) };
        let kept = match self.coordinator.record(volume).await {
            Ok(StoredRecord::Record(record)) => self.keep_out(&definition, formers_of(&record)).await.map(Some),
            Ok(StoredRecord::Deleted { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        };
        kept.map_err(failed)
    }

    async fn needs_proof(&self, volume: VolumeId, name: &str) -> Failure {
        let formers = self.unproven_formers(volume).await;
        let nodes = names(&self.nodes(), &formers);
        let message = format!(
            "volume {name}: nothing proves that its last owner can write to the backing no more ({nodes}). Make sure that \
             its machine is off, or was started anew since, and say so, each with the term in which it was the owner: `forebay \
             volume fenced {name} --i-fenced-it {}`; then \
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
        let owner = status.record.as_ref().and_then(owner_of);
        let mut formers = status.may_be_called_fenced;
        formers.retain(|former| status.unproven.contains(former) || Some(*former) == owner);
        formers
    }

    /// The operator has made sure that these nodes write to the volume's backing no more. `said`: each as [`called`] shows it, with
    /// the term in which it was the owner, so that his word is about what he has seen and not about what has come since.
    pub async fn fenced(&self, name: &str, said: &[String], by: &str) -> Answer<VolumeReport> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        let formers = self.unproven_formers(volume).await;
        let known = self.nodes();
        let mut waiting: Vec<String> = formers.iter().map(|former| called(&known, former)).collect();
        waiting.sort();
        let mut said = said.to_vec();
        said.sort();
        said.dedup();
        if waiting.is_empty() {
            return failure(FailureKind::Conflict, format!("volume {name}: it waits for no proof about any node"));
        }
        if said != waiting {
            let message = format!(
                "volume {name}: proof is missing about {}, and you speak of {}; nothing was changed. Look again, make sure that \
                 all of them are off, or were started anew since, and name each with the term in which it was the owner: `forebay \
                 volume fenced {name} --i-fenced-it {}`",
                waiting.join(", "),
                said.join(", "),
                waiting.join(" --i-fenced-it ")
            );
            return failure(FailureKind::Conflict, message);
        }
        // It allows writes to the backing before it allows a change of the record: so the line comes first.
        let words = format!("{by}: {} can write to its backing no more", waiting.join(", "));
        self.note("fenced", Some(volume), &words).await.map_err(failed)?;
        let terms = formers.iter().map(|former| former.term).collect();
        self.command(volume, name, Command::Fenced { terms }).await?;
        self.report(name).await
    }

    // --- a coordinator that went back in time ---

    /// Writes the record anew as this node knows it (C3). `saw`: what the operator has seen that it knows.
    pub async fn restore_record(&self, name: &str, saw: Option<(Term, Epoch)>, by: &str) -> Answer<VolumeReport> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        let Some(shown) = self.show(volume).await else { return no_such_volume(name) };
        let Some(known) = shown.ownership.known else {
            return failure(FailureKind::Conflict, format!("volume {name}: this node knows no record of it"));
        };
        if shown.ownership.went_back_to.is_none() {
            let words = command_words(CommandError::NothingToDo);
            return failure(FailureKind::Conflict, format!("volume {name}: {words}"));
        }
        let here =
            format!("term {}, epoch {}, owner {}", known.term.0, known.epoch.0, name_of(&self.nodes(), known.owner));
        if saw != Some(known.version()) {
            let message = format!(
                "volume {name}: what this node knows is {here}. Look at `forebay volume show {name}` at every node that answers, and \
                 where the newest is known, say so: `forebay volume restore-record {name} --yes-the-coordinator-went-back --i-saw \
                 TERM/EPOCH` (here {}/{})",
                known.term.0, known.epoch.0
            );
            return failure(FailureKind::Conflict, message);
        }
        let words = format!("{by}: the record is written anew as {} knows it: {here}", self.name);
        let audit = self.audit("restore-record", Some(volume), &words).map_err(failed)?;
        let command = Command::RestoreRecord { saw: known.version() };
        if let Err(error) = self.try_audited(volume, name, command, Some(audit)).await? {
            return failure(FailureKind::Conflict, format!("volume {name}: {}", command_words(error)));
        }
        self.report(name).await
    }

    /// The coordinator went back, and a node cannot say what it knows of before: it is not waited for any more, for no volume (C6).
    pub async fn cannot_answer(&self, name: &str, by: &str) -> Answer<()> {
        let Some(node) = self.nodes().iter().find(|entry| entry.name == name).map(NodeEntry::node) else {
            let message = format!("there is no node {name}; `forebay node list` shows those there are");
            return failure(FailureKind::NotFound, message);
        };
        let volumes: Vec<(VolumeId, String)> =
            self.known().iter().map(|(id, known)| (*id, known.definition.name.clone().into())).collect();
        let mut waiting = Vec::new();
        for (volume, of) in volumes {
            if self.show(volume).await.is_some_and(|shown| shown.ownership.unheard.contains(&node)) {
                waiting.push((volume, of));
            }
        }
        if waiting.is_empty() {
            return failure(FailureKind::Conflict, format!("no volume waits for what {name} knows"));
        }
        let names: Vec<&str> = waiting.iter().map(|(_, of)| of.as_str()).collect();
        let words = format!("{by}: {name} cannot say what it knows of {}", names.join(", "));
        self.note("cannot-answer", None, &words).await.map_err(failed)?;
        for (volume, of) in &waiting {
            match self.try_command(*volume, of, Command::CannotAnswer { node }).await? {
                Ok(()) | Err(CommandError::NothingToDo) => {}
                Err(error) => {
                    return failure(FailureKind::Conflict, format!("volume {of}: {}", command_words(error)));
                }
            }
        }
        Ok(())
    }

    // --- nodes ---

    /// Frees the name and number of a node that will not come back, and revokes its identities where the authority has said that.
    pub async fn forget(self: &Arc<Cluster>, name: &str, revocation: Option<Revocation>, by: &str) -> Answer<()> {
        if self.name == name {
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
        if revocation.as_ref().is_some_and(|revocation| revocation.name != name) {
            return failure(FailureKind::Invalid, format!("the revocation is of another node than {name}"));
        }
        let identity = if revocation.is_some() { "; its identity is revoked" } else { "" };
        if let Some(revocation) = revocation {
            self.revoke(vec![revocation], by).await?;
            // That has taken its time, in which a record may have come to name it.
            let needed = self.needed_by(entry.node()).await;
            if let Some(needed) =
                needed.map_err(|error| failed(error.context(format!("{name} is not forgotten{identity}"))))?
            {
                return failure(FailureKind::Conflict, format!("{name} is not forgotten: {needed}{identity}"));
            }
        }
        let audit = self.audit("forget-node", None, &format!("{by}: {name} is forgotten")).map_err(failed)?;
        let forgotten = self.coordinator.forget(entry, &audit).await;
        match forgotten
            .map_err(|error| failed(anyhow::Error::from(error).context(format!("{name} is not forgotten{identity}"))))?
        {
            Outcome::Won => {}
            Outcome::Lost(()) => {
                return failure(
                    FailureKind::Conflict,
                    format!("{name} has registered anew meanwhile: it is alive{identity}"),
                );
            }
            Outcome::Unknown(why) => {
                let message = format!("whether {name} is forgotten is not known yet: {why}; try again{identity}");
                return failure(FailureKind::Failed, message);
            }
        }
        self.refresh_nodes().await;
        Ok(())
    }

    /// What speaks of a node: whoever looks for proof about it must know its name and machine.
    async fn needed_by(&self, node: NodeId) -> Result<Option<String>> {
        for definition in self.coordinator.every_definition().await? {
            let name = &definition.name;
            let StoredRecord::Record(record) = self.coordinator.record(definition.volume).await? else { continue };
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
            known.map_or_else(|| volume.to_string(), String::from)
        };
        Ok(lines.into_iter().map(|line| audit_report(line, names)).collect())
    }
}

fn audit_report(line: AuditLine, name: impl Fn(VolumeId) -> String) -> AuditReport {
    let AuditLine { at_ms, node, volume, action, words, .. } = line;
    AuditReport { at_ms, node: node.into(), volume: volume.map(name), action: action.into(), words: words.into() }
}

/// All who may write to the backing of a volume that is to be opened without its log.
pub(super) fn formers_of(record: &Record) -> Vec<Unfenced> {
    record.unfenced.iter().copied().chain(owner_of(record)).collect()
}

fn owner_of(record: &Record) -> Option<Unfenced> {
    let owner = Unfenced { term: record.term, node: record.owner, host: record.host };
    (record.log != LogState::Released).then_some(owner)
}

/// As the operator has to name them.
pub(super) fn names(nodes: &[NodeEntry], formers: &[Unfenced]) -> String {
    let mut names: Vec<String> = formers.iter().map(|former| called(nodes, former)).collect();
    names.sort();
    names.join(", ")
}

fn failed(error: anyhow::Error) -> Failure {
    Failure { kind: FailureKind::Failed, message: format!("{error:#}") }
}
