//! A node that the operator is about to stop: whatever it owns is handed over, and whatever it keeps a copy of is kept by others
//! instead, where there are any. That is written down in the coordinator, and stays so until the operator takes it back.
//!
//! Invariants:
//! - Nothing is less safe meanwhile: a copy goes only when another node has its place (core decides that, as for any member).
//! - A node that is to be evacuated works at it by itself, whoever asked for it and whether he still waits.

use super::commands::{Answer, Trouble, failure};
use super::control::Cluster;
use super::status::name_of;
use crate::coordinator::Outcome;
use crate::coordinator::schema::{Evacuation, NodeEntry};
use crate::datapath::driver::Shown;
use crate::failure::FailureKind;
use crate::log;
use forebay_api::cluster::{ClusterNodeReport, EvacuationReport, KeptReport, ReplicaRole};
use forebay_api::record::VolumeId;
use forebay_api::told::AWAITING_FENCE;
use forebay_api::units::show_size;
use forebay_api::words::EvacuationState;
use forebay_core::api::Control;
use forebay_core::cluster::{Incarnation, LogState, NodeId, Record};
use forebay_core::ownership::{Command, CommandError, State};
use forebay_core::status::BackingState;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration as Time, Instant};

/// Between two looks at what there is to hand over.
const LOOK: Time = Time::from_millis(500);
/// How long a node that ends waits for its hand-overs, of which one takes 12 s at most, and then the coordinator's answer; and for the next
/// progress of a log that is being emptied.
const LEAVE_MAX: Time = Time::from_secs(20);
/// A hand-over that has come to nothing by then is tried again, and ends within [`LEAVE_MAX`].
const AGAIN_WITHIN: Time = Time::from_secs(7);
/// Clients are served so long before that.
const SERVED_BETWEEN: Time = Time::from_secs(1);
/// Between two looks at how far a log is with being emptied.
const EMPTY_LOOK: Time = Time::from_millis(100);
/// A volume whose hand-over failed had stood still for it: it is left alone for a while.
const PAUSE_AFTER_FAILURE: Time = Time::from_secs(30);

impl Cluster {
    pub(super) fn evacuations(&self) -> Vec<Evacuation> {
        self.evacuations.lock().expect("nobody panics while holding it").clone()
    }

    pub(super) fn is_evacuated(&self, name: &str) -> bool {
        self.evacuations().iter().any(|evacuation| evacuation.name == name)
    }

    fn is_evacuated_node(&self, nodes: &[NodeEntry], node: NodeId) -> bool {
        nodes.iter().any(|entry| entry.node() == node && self.is_evacuated(&entry.name))
    }

    /// Begins to empty a node, or ends it.
    pub async fn evacuate_node(self: &Arc<Cluster>, name: &str, undo: bool) -> Answer<ClusterNodeReport> {
        let entry = self.node_called(name)?;
        let changed = match undo {
            false => self.coordinator.begin_evacuation(&Evacuation::now(entry.name)).await,
            true => self.coordinator.end_evacuation(name).await,
        };
        match changed {
            Ok(Outcome::Won | Outcome::Lost(())) => {}
            Ok(Outcome::Unknown(why)) => {
                let message = format!("whether node {name} is to be evacuated is not known yet: {why}; say it again");
                return failure(FailureKind::Failed, message);
            }
            Err(error) => return failure(FailureKind::Failed, format!("node {name}: {error}")),
        }
        self.refresh_nodes().await;
        let mut reports = self.node_reports().await;
        match reports.iter().position(|report| report.name == name) {
            Some(at) => Ok(reports.swap_remove(at)),
            None => failure(FailureKind::NotFound, format!("node {name} has been forgotten meanwhile")),
        }
    }

    /// Hands over what this node owns while it is to be evacuated. Never ends.
    pub(super) async fn evacuate_this_node(self: Arc<Cluster>) {
        let mut paused: BTreeMap<VolumeId, Instant> = BTreeMap::new();
        loop {
            tokio::time::sleep(LOOK).await;
            if !self.is_evacuated(&self.name) {
                paused.clear();
                continue;
            }
            for (volume, name) in self.ids_and_names() {
                if paused.get(&volume).is_some_and(|until| Instant::now() < *until) {
                    continue;
                }
                if let Err(why) = self.hand_on(volume, &name).await {
                    log::say!(Error, volume(name), "this node is to be evacuated, and still owns it: {why}");
                    paused.insert(volume, Instant::now() + PAUSE_AFTER_FAILURE);
                }
            }
        }
    }

    /// To the member that is furthest and stays, if there is one.
    async fn hand_on(&self, volume: VolumeId, name: &str) -> Result<(), String> {
        let Some(shown) = self.show(volume).await else { return Ok(()) };
        if !matches!(shown.ownership.state, State::Owner | State::Custodian) {
            return Ok(());
        }
        let Some(to) = self.next_owner(&shown) else { return Ok(()) };
        match self.command_owner(volume, name, Command::HandOver { to }).await {
            Ok(()) => Ok(()),
            Err(trouble) => Err(trouble.into_words().1),
        }
    }

    /// Who has the log, stays, and is furthest.
    pub(super) fn next_owner(&self, shown: &Shown) -> Option<NodeId> {
        let (record, nodes) = (shown.ownership.record.as_ref()?, self.nodes());
        let held = |member: &Incarnation| shown.peers.iter().find(|(peer, _)| peer == member).map(|(_, held)| *held);
        let others = record.members.iter().filter(|member| member.node != self.place.node);
        let staying = others.filter(|member| !self.is_evacuated_node(&nodes, member.node));
        staying.max_by_key(|member| held(member)).map(|member| member.node)
    }

    /// The node is about to end: whatever it owns goes to another member, all volumes at one time and within [`LEAVE_MAX`]. Where no
    /// other node has the log, `drain` asks for that to be evacuated, as long as it gets on. What stays here, and why.
    pub async fn leave(self: &Arc<Cluster>, drain: bool) -> Vec<String> {
        let leave = |(volume, name): (VolumeId, String)| {
            let cluster = self.clone();
            tokio::spawn(async move {
                let why = cluster.leave_one(volume, &name, drain).await;
                why.map(|why| format!("{name}: {why}"))
            })
        };
        let leaving: Vec<_> = self.ids_and_names().into_iter().map(leave).collect();
        let mut left = Vec::new();
        for leaving in leaving {
            match leaving.await {
                Ok(why) => left.extend(why),
                Err(panic) => left.push(format!("a volume's hand-over broke off ({panic}); this is a bug")),
            }
        }
        let addresses = self.addresses.clone();
        // What panics there has been said.
        let _ = tokio::task::spawn_blocking(move || addresses.end()).await;
        left
    }

    async fn leave_one(&self, volume: VolumeId, name: &str, drain: bool) -> Option<String> {
        let Ok(shown) = tokio::time::timeout(LEAVE_MAX, self.show(volume)).await else {
            return Some("its data path does not answer".to_owned());
        };
        let shown = shown?;
        if !matches!(shown.ownership.state, State::Owner | State::Custodian) {
            return None;
        }
        let member = |record: &Record| record.members.iter().map(|m| m.node).find(|node| *node != self.place.node);
        let any = shown.ownership.record.as_ref().and_then(member);
        let Some(to) = self.next_owner(&shown).or(any) else {
            return match drain {
                true => self.drain_alone(volume, name).await,
                false => Some("no other node has its log; it is served again when this one starts".to_owned()),
            };
        };
        let successor = name_of(&self.nodes(), to);
        log::say!(Notice, volume(name), "handing over to {successor}");
        match tokio::time::timeout(LEAVE_MAX, self.give_away(volume, name, to)).await {
            Ok(Ok(())) => {
                log::say!(Notice, volume(name), "{successor} is its owner");
                None
            }
            Ok(Err(trouble)) => Some(format!("it could not be handed over to {successor}: {}", trouble.into_words().1)),
            // A change that was sent may take effect all the same: then the other node serves, else this one does again.
            Err(_) => Some("its hand-over is not decided: the coordinator is slow".to_owned()),
        }
    }

    /// Hands over, and tries again where the volume soon proves not to become quiet, or the coordinator not to answer: this node ends in
    /// any case, and its clients wait longer for a take-over than for a hand-over.
    async fn give_away(&self, volume: VolumeId, name: &str, to: NodeId) -> std::result::Result<(), Trouble> {
        let begun = Instant::now();
        loop {
            let handed_over =
                self.try_command(volume, name, Command::HandOver { to }).await.map_err(Trouble::Failure)?;
            match handed_over {
                Err(CommandError::NotQuiet(_) | CommandError::TimedOut) if begun.elapsed() < AGAIN_WITHIN => {
                    tokio::time::sleep(SERVED_BETWEEN).await
                }
                outcome => return Trouble::of_command(name, outcome),
            }
        }
    }

    /// Nobody else has the log. What is in it goes to the backing, and from there on the backing has every write before it is
    /// acknowledged, until the record says that no log is needed (A5): then this node opens the volume by itself also where its machine is
    /// started anew and the memory is gone (T11). It is waited for as long as it gets on.
    async fn drain_alone(&self, volume: VolumeId, name: &str) -> Option<String> {
        log::say!(Notice, volume(name), "no other node has its log, which is emptied");
        let asked = self.control(volume, name, Control::DrainThrough);
        tokio::pin!(asked);
        // Where it was drained through before, it is told that it is busy, and the record says the rest.
        let (mut answered, mut refused) = (false, None);
        let (mut least, mut moved) = (u64::MAX, Instant::now());
        loop {
            let Ok(shown) = tokio::time::timeout(LEAVE_MAX, self.show(volume)).await else {
                return Some("no other node has its log, and its data path does not answer".to_owned());
            };
            let shown = shown?;
            let record = shown.ownership.record.as_ref()?;
            // Before it is drained through, the record may say so and be about to change.
            let stalled = moved.elapsed() >= LEAVE_MAX;
            if record.log != LogState::Needed && (answered || stalled) {
                return None;
            }
            let status = shown.volume.map(|snapshot| snapshot.status);
            let dirty = status.as_ref().map_or(0, |status| status.dirty_bytes);
            let awaits_fence = status.is_some_and(|status| status.backing == BackingState::AwaitingFence);
            if dirty < least {
                (least, moved) = (dirty, Instant::now());
            }
            let why = if stalled {
                Some(match awaits_fence {
                    true => AWAITING_FENCE.to_owned(),
                    false => refused.take().unwrap_or_else(|| "it gets no further".to_owned()),
                })
            } else if !matches!(shown.ownership.state, State::Owner) {
                Some("this node does not serve it".to_owned())
            } else {
                None
            };
            if let Some(why) = why {
                let left = show_size(dirty);
                return Some(format!("no other node has its log, which could not be emptied ({left} are left): {why}"));
            }
            tokio::select! {
                answer = &mut asked, if !answered => {
                    answered = true;
                    refused = answer.err().map(|trouble| trouble.into_words().1);
                }
                () = tokio::time::sleep(EMPTY_LOOK) => {}
            }
        }
    }

    // --- what is shown ---

    /// How far a node is with being evacuated, as this node knows the records.
    pub(super) async fn evacuation_report(&self, nodes: &[NodeEntry], entry: &NodeEntry) -> Option<EvacuationReport> {
        let leaving = self.evacuations().into_iter().find(|leaving| leaving.name == entry.name)?;
        let mut keeps = Vec::new();
        for (volume, name) in self.ids_and_names() {
            let record = match self.show(volume).await {
                Some(shown) => shown.ownership.record,
                None => None,
            };
            let Some(record) = record else {
                // What is not known must not pass for nothing.
                keeps.push(KeptReport {
                    volume: name,
                    role: ReplicaRole::Unknown,
                    why: "its record has not been read yet".to_owned(),
                    stays: false,
                });
                continue;
            };
            if record.log != LogState::Released && record.member(entry.node()).is_some() {
                keeps.push(self.kept(volume, name, &record, nodes, entry.node()));
            }
        }
        let state = if keeps.is_empty() { EvacuationState::Evacuated } else { EvacuationState::Evacuating };
        Some(EvacuationReport { state, since_ms: leaving.at_ms, keeps })
    }

    fn kept(&self, volume: VolumeId, name: String, record: &Record, nodes: &[NodeEntry], node: NodeId) -> KeptReport {
        let peers = self.known().get(&volume).map_or(0, |known| known.definition.peers);
        let staying = nodes.iter().filter(|entry| !self.is_evacuated(&entry.name)).count();
        let has_log = record.members.iter().any(|m| m.node != node && !self.is_evacuated_node(nodes, m.node));
        let owner = record.owner == node;
        let (why, stays) = if owner && has_log {
            ("it is being handed over".to_owned(), false)
        } else if owner && staying > 0 {
            ("another node is being brought up to date to own it".to_owned(), false)
        } else if owner {
            ("no node stays that could own it".to_owned(), true)
        } else if staying > usize::from(peers) {
            ("another node is being brought up to date in its place".to_owned(), false)
        } else {
            (format!("it asks for {peers} peers besides its owner, and only {staying} nodes stay"), true)
        };
        let role = if owner { ReplicaRole::Owner } else { ReplicaRole::Member };
        KeptReport { volume: name, role, why, stays }
    }
}
