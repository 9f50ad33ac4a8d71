//! A volume whose tier was to change, and that was closed for it, is served again where that fails: from its former tier, or from the new
//! one where the marker speaks of that already, as a start would. As long as it takes, without a restart.
//!
//! Invariants:
//! - Nothing is opened before all has ended that the closed volume had under way: an older content could land over a newer one.
//! - What could not be ended stays in the list with its volume, until it has ended: a deletion ends it before it is told as done. Nobody
//!   leaves it on its shard.
//! - What may take for ever (a backing that does not answer) is awaited without any lock that others wait for, but for a file server that
//!   hangs just after it has answered ([`super`]).
//! - A volume that was deleted meanwhile, or whose daemon stops, is not opened any more (`cancelled`, which is set under the lock on
//!   the node's volumes and looked at under it).

use super::super::{Absence, Answer, Entry, Node, Running, blocking};
use super::NewTier;
use crate::datapath::mailbox::{ToShard, VolumeKey};
use crate::facts::VolumeFacts;
use crate::log;
use forebay_api::record::Record;
use forebay_io::Backing;
use forebay_io::durable::remove_durably;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Between two attempts, and between two looks whether it is still wanted.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a volume had under way that was to be stopped, and that may go on.
pub(super) struct Unended {
    /// The stop, where that itself was not answered.
    pub(super) stop: Option<JoinHandle<Answer<()>>>,
}

/// What is known of a volume that is to be served again.
pub(super) struct WayBack {
    /// The volume that was closed, or is about to be.
    running: Running,
    /// As it was recorded.
    pub(super) from: Record,
    /// What is shown of it while it is closed.
    facts: VolumeFacts,
    /// The tier that it was to have.
    given_up: PathBuf,
    /// What has to end before.
    pub(super) unended: Option<Unended>,
    /// The volume is on its shard still.
    pub(super) attached: bool,
    /// It is not wanted any more.
    pub(super) cancelled: Arc<AtomicBool>,
}

impl WayBack {
    pub(super) fn new(running: &Running, from: &Record, facts: VolumeFacts, new: &NewTier) -> WayBack {
        let (from, given_up) = (from.clone(), new.tier.path.clone());
        let facts = VolumeFacts { access: "closed".to_owned(), memory_bytes: 0, ..facts };
        WayBack {
            running: running.clone(),
            from,
            facts,
            given_up,
            unended: None,
            attached: true,
            cancelled: Arc::default(),
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// What comes of it, unless it is not wanted any more before.
    async fn unless_cancelled<T>(&self, mut comes: impl Future<Output = T> + Unpin) -> Option<T> {
        loop {
            match tokio::time::timeout(AGAIN_AFTER, &mut comes).await {
                Ok(come) => return Some(come),
                Err(_) if self.is_cancelled() => return None,
                Err(_) => {}
            }
        }
    }
}

impl Node {
    /// Shows that a volume is closed, and for what it waits: as the one that it was, whatever an attempt has left in the list. Under the
    /// lock on the node's volumes.
    pub(super) fn show_waiting(&self, way: &WayBack, what: &str) {
        let name = &way.from.name;
        let why = format!("waiting to be served again, after a change of its tier that failed: {what}");
        let absence = Absence::Waiting(why, way.cancelled.clone());
        if let Some(entry) = self.entries().iter_mut().find(|entry| entry.facts.name == *name) {
            *entry = Entry::absent(way.facts.clone(), way.from.clone(), absence);
            entry.unended = way.attached.then(|| way.running.clone());
        }
    }

    /// Serves a volume again, however long that takes, and gives it its clients back.
    pub(super) async fn serve_again(self: Arc<Node>, mut way: WayBack) {
        let unended = way.unended.take();
        let opened = match self.await_end(&mut way, unended).await {
            Some(()) => self.until_opened(&way).await,
            None => None,
        };
        // Those of a volume that is not wanted any more have none.
        let (key, to) = (way.running.key, opened.unwrap_or(way.running.key));
        self.shards[way.running.shard].send(ToShard::Unpark { key, to });
        if let Some(key) = opened
            && let Err(kept) = self.forget_spare(&way.from.name, key).await
        {
            log::say!(Notice, volume(way.from.name), "{kept}");
        }
    }

    /// Waits until the volume has nothing under way any more, and closes it. None: it is not wanted any more, and closed all the same.
    async fn await_end(&self, way: &mut WayBack, unended: Option<Unended>) -> Option<()> {
        let Some(Unended { stop }) = unended else { return Some(()) };
        let ended = self.until_at_rest(way, stop).await;
        self.detach(&way.running).await;
        way.attached = false;
        if let Some(entry) = self.entries().iter_mut().find(|entry| entry.facts.name == way.from.name)
            && entry.unended.as_ref().is_some_and(|unended| unended.key == way.running.key)
        {
            entry.unended = None;
        }
        ended
    }

    async fn until_at_rest(&self, way: &WayBack, stop: Option<JoinHandle<Answer<()>>>) -> Option<()> {
        let what = "what it had under way to its backing and its tier has not ended, and it must not be opened before";
        log::say!(Error, volume(way.from.name), "it is closed until it can be served again: {what}");
        {
            let _admin = self.admin.lock().await;
            if way.is_cancelled() {
                return None;
            }
            self.show_waiting(way, what);
        }
        if let Some(stop) = stop {
            // However it ends, nothing is begun after it.
            let _ = way.unless_cancelled(stop).await?;
        }
        let (rests, at_rest) = oneshot::channel();
        self.shards[way.running.shard].send(ToShard::AwaitRest { key: way.running.key, rests });
        // Where it is closed already nobody tells, and nothing rests to be awaited.
        let _ = way.unless_cancelled(at_rest).await?;
        Some(())
    }

    async fn until_opened(self: &Arc<Node>, way: &WayBack) -> Option<VolumeKey> {
        let name = &way.from.name;
        let mut told = String::new();
        while !way.is_cancelled() {
            match self.open_again(way).await {
                Ok(Some(key)) => {
                    log::say!(Notice, volume(name), "it is served again, after a change of its tier that failed");
                    return Some(key);
                }
                Ok(None) => return None,
                Err(why) if why != told => {
                    log::say!(Error, volume(name), "it cannot be served again yet: {why}; that is tried all the time");
                    told = why;
                }
                Err(_) => {}
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        None
    }

    /// One attempt. None: it is not wanted any more.
    async fn open_again(self: &Arc<Node>, way: &WayBack) -> Result<Option<VolumeKey>, String> {
        let (from, opening) = (way.from.clone(), way.running.opening.clone());
        let backing = match blocking(move || opening.for_next(&from)).await {
            Ok(backing) => backing,
            Err(why) => {
                let _admin = self.admin.lock().await;
                if !way.is_cancelled() {
                    self.show_waiting(way, &why);
                }
                return Err(why);
            }
        };
        let _admin = self.admin.lock().await;
        let _recording = self.recordings.turn(&way.from.name).await;
        if way.is_cancelled() {
            return Ok(None);
        }
        let opened = self.open_over(way, backing).await;
        if let Err(why) = &opened {
            self.show_waiting(way, why);
        }
        opened.map(Some)
    }

    async fn open_over(self: &Arc<Node>, way: &WayBack, backing: Backing) -> Result<VolumeKey, String> {
        let (store, from, running, given_up) =
            (self.store.clone(), way.from.clone(), way.running.clone(), way.given_up.clone());
        let record = blocking(move || {
            if running.marker.is_of_another(from.volume)?
                && let Some(record) = store.load(&from.name)?
                && record.volume != from.volume
            {
                return Ok(record);
            }
            store.save(&from)?;
            // Nobody was ever served from it. What stays is known by the record.
            let _ = remove_durably(&given_up);
            Ok(from)
        });
        let opened = self.put_in_place(&way.running, record.await?, None, Some(backing)).await;
        opened.map_err(|failed| failed.message)
    }
}
