//! Which backings this node reaches: told to the other nodes with its load, so that a custodian (a member that has the log and
//! cannot reach the backing) hands over to a node that can.
//!
//! One that this node does not open, because its config does not allow the place, is out of its reach as well.
//!
//! A hint, like the rest of the load: who becomes owner finds out by opening the backing. Only files and devices are looked
//! at, by opening and closing them; to connect to an NBD server for a look could end it, or take the one place it has.

use super::control::Cluster;
use crate::coordinator::schema::Definition;
use forebay_api::record::VolumeId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// A look that takes longer means: not in reach. It goes on, and no other is begun beside it.
const LOOK_MAX: Duration = Duration::from_secs(3);

/// What was seen, volume by volume.
#[derive(Default)]
pub(super) struct BackingProbe {
    looks: BTreeMap<VolumeId, Look>,
}

struct Look {
    begun: Instant,
    probing: Option<JoinHandle<bool>>,
    reached: bool,
}

impl BackingProbe {
    /// Looks again wherever no look is under way; what is out of reach by what is known now.
    pub(super) async fn unreached(&mut self, cluster: &Arc<Cluster>) -> Vec<VolumeId> {
        let definitions: Vec<Definition> = cluster.known().values().map(|known| known.definition.clone()).collect();
        self.looks.retain(|volume, _| definitions.iter().any(|definition| definition.volume == *volume));
        for definition in definitions {
            self.begin(cluster, definition);
        }
        // Most are answered at once; what is not is taken up at the next call.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut unreached = Vec::new();
        for (volume, look) in &mut self.looks {
            if let Some(ended) = look.probing.take_if(|telemetry| telemetry.is_finished()) {
                look.reached = ended.await.unwrap_or(false);
            }
            let hangs = look.probing.is_some() && look.begun.elapsed() > LOOK_MAX;
            if hangs || !look.reached {
                unreached.push(*volume);
            }
        }
        unreached
    }

    fn begin(&mut self, cluster: &Cluster, definition: Definition) {
        let now = Instant::now();
        let look = self.looks.entry(definition.volume);
        // Until it was looked at, nothing speaks against it.
        let look = look.or_insert(Look { begun: now, probing: None, reached: true });
        if look.probing.is_none() {
            look.begun = now;
            let place = cluster.place.clone();
            look.probing = Some(tokio::task::spawn_blocking(move || place.reaches_backing(&definition)));
        }
    }
}
