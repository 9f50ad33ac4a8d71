//! What the volumes have measured, for whoever shows it.

use super::Node;
use crate::mailbox::ToShard;
use forebay_core::seen::Seen;
use tokio::sync::oneshot;

impl Node {
    /// Of every volume whose log is open on this node: its name, and what it has measured since it was opened.
    pub async fn measured(&self) -> Vec<(String, Box<Seen>)> {
        let running: Vec<_> = {
            let entries = self.entries();
            let running = entries.iter().filter_map(|e| Some((e.facts.name.clone(), e.running.clone()?)));
            running.collect()
        };
        let mut measured = Vec::new();
        for (name, running) in running {
            let (answer, answered) = oneshot::channel();
            self.shards[running.shard].send(ToShard::Snapshot { key: running.key, with_seen: true, answer });
            // One that has just been closed is left out.
            if let Some(seen) = answered.await.ok().and_then(|snapshot| snapshot.seen) {
                measured.push((name, seen));
            }
        }
        if let Some(cluster) = self.cluster() {
            for name in cluster.names() {
                if let Some(seen) = cluster.measured(&name).await {
                    measured.push((name, seen));
                }
            }
        }
        measured.sort_by(|(a, _), (b, _)| a.cmp(b));
        measured
    }
}
