//! What the history's sampler asks of the node: all volumes at one time, and none of them may make it wait.

use super::{Answer, Node, no_such_volume};
use crate::telemetry::Telemetry;
use forebay_api::record::VolumeId;
use forebay_api::status::VolumeReport;
use forebay_core::stats::Stats;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// A volume as it is now.
pub struct Look {
    /// Identity of the volume that it is about.
    pub volume: VolumeId,
    /// What is told of it.
    pub report: VolumeReport,
    /// What it has measured since it was opened, if it runs here.
    pub seen: Option<Box<Stats>>,
}

impl Node {
    /// What is seen of it.
    pub fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// Every volume with its identity, running or not.
    pub fn identities(&self) -> Vec<(String, VolumeId)> {
        let mut all: Vec<(String, VolumeId)> =
            self.entries().iter().map(|entry| (entry.facts.name.clone(), entry.record.volume)).collect();
        if let Some(cluster) = self.cluster() {
            all.extend(cluster.names().into_iter().filter_map(|name| {
                let volume = cluster.find(&name)?;
                Some((name, volume))
            }));
        }
        all
    }

    /// The identity of a volume.
    pub fn identity(&self, name: &str) -> Answer<VolumeId> {
        match self.identities().into_iter().find(|(known, _)| known == name) {
            Some((_, volume)) => Ok(volume),
            None => no_such_volume(name),
        }
    }

    /// Those of the volumes that answer in time, with what they have measured.
    pub async fn looks(self: &Arc<Node>, until: Instant) -> Vec<Look> {
        let mut asked = JoinSet::new();
        for (name, volume) in self.identities() {
            let node = self.clone();
            asked.spawn(async move {
                let (report, seen) = node.look(&name, true).await.ok()?;
                Some(Look { volume, report, seen })
            });
        }
        let mut looks = Vec::new();
        while let Ok(Some(answer)) = timeout_at(until, asked.join_next()).await {
            looks.extend(answer.ok().flatten());
        }
        looks
    }
}
