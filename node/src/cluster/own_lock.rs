//! What a lock on a backing is to its own node: looked after while it owns the volume, and awaited where a lone owner's log went with its
//! machine.
//!
//! Invariants:
//! - Nothing here runs on the data path, and no look keeps an opening, and with that its lock, longer than it takes.
//! - Ownership is told of a loss that was seen, never of a look that failed.
//! - Whoever is kept out for an opening without a log is kept out until that is decided.

use super::control::Cluster;
use crate::coordinator::schema::Definition;
use crate::datapath::driver::opening::OpeningEnd;
use crate::log;
use forebay_api::record::VolumeId;
use forebay_core::ownership::{Event, State};
use forebay_core::types::Term;
use forebay_io::Backing;
use forebay_io::backing::lock_look::{LockLook, Looked};
use forebay_io::fence::ReservationKey;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Between two looks at the own lock.
const OWN_LOOK: Duration = Duration::from_secs(1);
/// A look that takes longer is told.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Between two looks for volumes that this node opens by itself.
const ALONE_LOOK: Duration = Duration::from_secs(1);
/// An opening that proof was found for is decided by then, or tried again.
const DECIDED_MAX: Duration = Duration::from_secs(15);
/// Between two looks whether it is.
const DECIDED_LOOK: Duration = Duration::from_millis(50);

impl Cluster {
    /// Looks after the lock of a term that this node owns, until the opening has ended or the lock is lost.
    pub(super) fn watch_own_lock(
        self: &Arc<Cluster>,
        definition: &Definition,
        backing: &Backing,
        term: Term,
        end: &Arc<OpeningEnd>,
    ) {
        let key = definition.reserves.then(|| ReservationKey::of_node(self.place.node));
        match backing.lock_look(key) {
            Ok(Some(look)) => {
                tokio::spawn(self.clone().look_after_lock(definition.clone(), look, term, end.clone()));
            }
            Ok(None) => {}
            Err(error) => log::say!(
                Error,
                volume(definition.name),
                "whether the lock on its backing is lost cannot be looked at: {error}"
            ),
        }
    }

    async fn look_after_lock(
        self: Arc<Cluster>,
        definition: Definition,
        look: LockLook,
        term: Term,
        end: Arc<OpeningEnd>,
    ) {
        let (look, name) = (Arc::new(look), &definition.name);
        let mut told = None;
        let mut tell_once = |words: Option<String>| {
            if let Some(words) = words.as_ref().filter(|_| words != told) {
                log::say!(Notice, volume(name), "a look at the lock on its backing {words}");
            }
            told = words;
        };
        loop {
            tokio::time::sleep(OWN_LOOK).await;
            if end.has_ended() {
                return;
            }
            let looks = look.clone();
            let mut looking = tokio::task::spawn_blocking(move || looks.look());
            let looked = match tokio::time::timeout(LOOK_MAX, &mut looking).await {
                Ok(looked) => looked,
                Err(_) => {
                    tell_once(Some("is not answered: the backing hangs".to_owned()));
                    // One thread waits for it, not one more each second.
                    looking.await
                }
            };
            match looked {
                Ok(Ok(Looked::Ours)) => tell_once(None),
                Ok(Ok(Looked::Ended)) => return,
                Ok(Ok(Looked::Lost(why))) => {
                    log::say!(
                        Error,
                        volume(name),
                        "{why}. Nothing is read or written any more by what this node knows of the \
                         volume; it is served again, here or elsewhere, when it was taken over as after a restart"
                    );
                    return self.notify(definition.volume, Event::LockLost(term));
                }
                Ok(Err(error)) => tell_once(Some(format!("failed: {error}"))),
                Err(_) => tell_once(Some("panicked; this is a bug".to_owned())),
            }
        }
    }

    /// Looks for the locks of volumes that this node opens by itself once their former owner, which it was, is proved to have ended
    /// (T11). Ownership knows by itself where the other boot of its machine is proof enough. Never ends.
    pub(super) async fn prove_own_ends(self: Arc<Cluster>) {
        let mut proving: BTreeMap<VolumeId, JoinHandle<()>> = BTreeMap::new();
        loop {
            tokio::time::sleep(ALONE_LOOK).await;
            proving.retain(|_, task| !task.is_finished());
            for (volume, name) in self.ids_and_names() {
                let waits = self.show(volume).await.and_then(|shown| shown.ownership.opens_alone_after);
                if waits.is_some_and(|formers| !formers.is_empty()) && !proving.contains_key(&volume) {
                    proving.insert(volume, tokio::spawn(self.clone().prove_own_end(volume, name)));
                }
            }
        }
    }

    async fn prove_own_end(self: Arc<Cluster>, volume: VolumeId, name: String) {
        let kept_out = match self.keep_out_formers(volume).await {
            Ok(kept_out) => kept_out,
            Err(failure) => {
                log::say!(
                    Error,
                    volume(name),
                    "it is opened here by itself when its last owner is proved to have ended, which \
                     cannot be looked at: {}",
                    failure.message
                );
                return tokio::time::sleep(DECIDED_MAX).await;
            }
        };
        // Whoever gets those locks later reads that it is no owner.
        let until = Instant::now() + DECIDED_MAX;
        while Instant::now() < until {
            let state = self.show(volume).await.map(|shown| shown.ownership.state);
            if !matches!(state, Some(State::NoMember | State::Sealed)) {
                break;
            }
            tokio::time::sleep(DECIDED_LOOK).await;
        }
        drop(kept_out);
    }
}
