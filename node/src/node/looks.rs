//! What the history's sampler asks of the node: all volumes at one time, and none of them may make it wait.

use super::{Answer, Node, Running, no_such_volume};
use crate::datapath::mailbox::{Snapshot, ToShard};
use crate::telemetry::Telemetry;
use forebay_api::record::VolumeId;
use forebay_api::status::VolumeReport;
use forebay_core::stats::Stats;
use forebay_io::clock;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;
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

/// What a volume showed last with what it had measured, and how often its shard had worked before it was asked.
#[derive(Default)]
pub(super) struct LastShown(Mutex<Option<(u64, Snapshot)>>);

impl LastShown {
    /// It, if nothing else is to be shown by a shard that has worked so often.
    fn after(&self, worked: u64) -> Option<Snapshot> {
        let shown = self.0.lock().expect("nobody panics while holding it");
        let (_, snapshot) = shown.as_ref().filter(|(then, snapshot)| *then == worked && !snapshot.ages())?;
        Some(Snapshot { at: clock::now(), ..snapshot.clone() })
    }

    fn keep(&self, worked: u64, snapshot: Snapshot) {
        *self.0.lock().expect("nobody panics while holding it") = Some((worked, snapshot));
    }
}

impl Node {
    /// A snapshot with what was measured. A shard to which nothing has happened since the last one is left alone.
    pub(super) async fn measured(&self, running: &Running) -> Option<Snapshot> {
        let shard = &self.shards[running.shard];
        let worked = shard.times_worked();
        if let Some(shown) = worked.and_then(|worked| running.shown.after(worked)) {
            return Some(shown);
        }
        let (answer, answered) = oneshot::channel();
        shard.send(ToShard::Snapshot { key: running.key, with_seen: true, answer });
        let snapshot = answered.await.ok()?;
        if let Some(worked) = worked.filter(|_| !snapshot.ages()) {
            running.shown.keep(worked, snapshot.clone());
        }
        Some(snapshot)
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::status::BackingState;
    use forebay_core::types::Duration;

    #[test]
    fn what_rests_is_shown_again_and_what_has_worked_or_ages_is_not() {
        let mut snapshot = crate::status::tests::snapshot();
        (snapshot.status.dirty_bytes, snapshot.status.oldest_dirty) = (0, Duration::default());
        (snapshot.status.backing, snapshot.status.hold_left) = (BackingState::Ready, None);
        let shown_after = |worked: u64, snapshot: &Snapshot| {
            let shown = LastShown::default();
            shown.keep(3, snapshot.clone());
            shown.after(worked)
        };
        let again = shown_after(3, &snapshot).expect("nothing has happened");
        assert_eq!(again.status, snapshot.status);
        assert!(again.at != snapshot.at, "it is told how old a reason is by now");
        assert!(shown_after(4, &snapshot).is_none() && LastShown::default().after(3).is_none());
        let ages: [fn(&mut Snapshot); 5] = [
            |it| it.status.dirty_bytes = 512,
            |it| it.status.oldest_dirty = Duration::from_millis(1),
            |it| it.status.oldest_unanswered = Duration::from_millis(1),
            |it| it.status.hold_left = Some(Duration::from_secs(5)),
            |it| it.status.backing = BackingState::AwaitingLock,
        ];
        for make in ages {
            let mut aging = snapshot.clone();
            make(&mut aging);
            assert!(shown_after(3, &aging).is_none(), "{:?}", aging.status);
        }
    }
}
