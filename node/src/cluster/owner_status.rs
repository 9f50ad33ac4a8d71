//! How an owner's volumes are, told to the other nodes for their reports: how writes are acknowledged there and why, how far each
//! copy is, what is dirty. It lies in the coordinator, and is written when it changes in kind, and else now and then.
//!
//! Invariant: it is shown, and nothing else. What is old, or of another term than the record's, is not shown.

use super::control::Cluster;
use super::status::name_of;
use crate::coordinator::commands::now_ms;
use crate::coordinator::schema;
use crate::coordinator::schema::{OwnedVolume, OwnedVolumes};
use crate::datapath::driver::Shown;
use forebay_api::checked::{Code, Hex64};
use forebay_api::cluster::ClusterReport;
use forebay_api::record::VolumeId;
use forebay_api::status::VolumeReport;
use forebay_core::cluster::NodeId;
use forebay_core::ownership::State;
use std::sync::Arc;
use std::time::{Duration as Time, Instant};

/// Between two looks at what has changed.
const LOOK: Time = Time::from_secs(1);
/// What changes in figures alone is told so often.
const TOLD_PERIOD: Time = Time::from_secs(5);
/// What was told longer ago is not shown: the owner is gone, or cannot tell.
const SHOWN_MAX: Time = Time::from_secs(20);

/// What another owner has told last, and when this node has read that.
#[derive(Default)]
pub(super) struct OwnerStatuses {
    told: Vec<(OwnedVolumes, Instant)>,
}

impl OwnerStatuses {
    pub(super) fn take(&mut self, told: Vec<OwnedVolumes>) {
        let before = std::mem::take(&mut self.told);
        self.told = told
            .into_iter()
            .map(|told| {
                let known = before.iter().find(|(before, _)| *before == told).map(|(_, at)| *at);
                (told, known.unwrap_or_else(Instant::now))
            })
            .collect();
    }

    fn of(&self, owner: &str, volume: VolumeId, term: u32) -> Option<(OwnedVolume, Time)> {
        let (told, at) = self.told.iter().find(|(told, _)| told.name == owner)?;
        let told = told.volumes.iter().find(|told| told.volume == volume && told.term == term)?;
        (at.elapsed() < SHOWN_MAX).then(|| (told.clone(), at.elapsed()))
    }
}

/// Without the figures that change all the time.
fn in_kind(volumes: &[OwnedVolume]) -> Vec<OwnedVolume> {
    let of = |volume: &OwnedVolume| OwnedVolume {
        since_s: 0,
        owner_since_s: 0,
        dirty_bytes: 0,
        lag: volume.lag.iter().map(|(node, _)| (*node, 0)).collect(),
        ..volume.clone()
    };
    volumes.iter().map(of).collect()
}

impl Cluster {
    /// Tells the others. Never ends.
    pub(super) async fn publish_owner_status(self: Arc<Cluster>) {
        let mut told: Option<(Vec<OwnedVolume>, Instant)> = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let volumes = self.to_tell().await;
            let due = match &told {
                None => !volumes.is_empty(),
                Some((before, at)) => {
                    in_kind(before) != in_kind(&volumes) || (at.elapsed() >= TOLD_PERIOD && !volumes.is_empty())
                }
            };
            if due {
                let message = OwnedVolumes {
                    version: schema::VERSION,
                    name: self.name.clone(),
                    at_ms: now_ms(),
                    volumes: volumes.clone(),
                };
                // The next one follows soon.
                let _ = self.coordinator.publish_owner_status(&message).await;
                told = Some((volumes, Instant::now()));
            }
        }
    }

    async fn to_tell(&self) -> Vec<OwnedVolume> {
        let mut all = Vec::new();
        for (volume, name) in self.ids_and_names() {
            let Some(shown) = self.show(volume).await else { continue };
            if !matches!(shown.ownership.state, State::Owner | State::Custodian | State::Agreeing) {
                continue;
            }
            let Ok(report) = self.report(&name).await else { continue };
            let lag = |held: u64| shown.accepted.0.saturating_sub(held);
            all.push(OwnedVolume {
                volume,
                term: shown.ownership.term.0,
                effective: report.policy.effective,
                reason: Code::of(report.policy.reason.as_str()),
                since_s: report.policy.since_s as u64,
                owner_reason: Code::of(shown.ownership.reason.code()),
                owner_since_s: (shown.at - shown.ownership.since).as_secs_f64() as u64,
                backing: Code::of(report.backing.state.as_str()),
                dirty_bytes: report.dirty.bytes,
                lag: shown.peers.iter().map(|(peer, held)| (Hex64(peer.node.0), lag(held.0))).collect(),
            });
        }
        all
    }

    /// Fills a report of this node with what the owner has told.
    pub(super) fn add_owner_status(
        &self,
        volume: VolumeId,
        shown: &Shown,
        report: &mut VolumeReport,
        cluster: &mut ClusterReport,
    ) {
        let term = shown.ownership.record.as_ref().map_or(0, |record| record.term.0);
        let heard = self.heard.lock().expect("nobody panics while holding it").of(&cluster.owner, volume, term);
        let Some((told, ago)) = heard else { return };
        report.policy.effective = told.effective;
        report.policy.reason = String::from(told.reason).as_str().into();
        report.policy.since_s = told.since_s as f64 + ago.as_secs_f64();
        report.backing.state = String::from(told.backing).as_str().into();
        report.dirty.bytes = told.dirty_bytes;
        cluster.owner_reason = Some(String::from(told.owner_reason).as_str().into());
        cluster.owner_since_s = Some(told.owner_since_s as f64 + ago.as_secs_f64());
        cluster.told_ago_s = Some(ago.as_secs_f64());
        let nodes = self.nodes();
        for (node, lag) in told.lag {
            let name = name_of(&nodes, NodeId(node.0));
            if let Some(member) = cluster.members.iter_mut().find(|member| member.node == name) {
                member.lag = Some(lag);
            }
        }
    }
}
