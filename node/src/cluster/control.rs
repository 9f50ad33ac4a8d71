//! The control thread's part of a cluster: it asks the coordinator, opens tiers and backings, and keeps the list of nodes
//! and volumes.
//!
//! Invariants:
//! - Whatever the data path asks is answered once; what takes too long is answered as failed, and core asks again.
//! - A backing is given to a volume only under the lock of the owner's term, and after a read of the record that was begun
//!   with that lock held and names this node: a successor may have had the lock, and given it up, before.
//! - Nothing here decides who serves.

use super::backing_probe::BackingProbe;
use super::fencing::{Fence, Search};
use super::marker::{ImageMarker, Words};
use super::member::{Opened, Place};
use super::registration::Registration;
use super::tier_migration::all_read_flushed;
use crate::addresses::Addresses;
use crate::allowed::NamedBy;
use crate::coordinator::answers::Told;
use crate::coordinator::clients::ClientsWord;
use crate::coordinator::link_asks::Ask;
use crate::coordinator::schema::{Call, Definition, Evacuation, Load, NodeEntry, StoredRecord};
use crate::coordinator::{Coordinator, Hint, schema};
use crate::datapath::acceptor::AcceptorHandle;
use crate::datapath::directory::Directory;
use crate::datapath::driver::opening::{OpenedBacking, OpeningEnd};
use crate::datapath::driver::{Asked, PeerNode, ToDriver};
use crate::datapath::mailbox::{ShardHandle, ToShard, VolumeKey, await_closed};
use crate::facts::VolumeFacts;
use crate::log;
use crate::names;
use anyhow::{Context, Result, bail};
use forebay_api::checked::NodeName;
use forebay_api::config;
use forebay_api::config::{FlushName, TierName};
use forebay_api::record::VolumeId;
use forebay_core::api::Control;
use forebay_core::cluster::{Incarnation, LogState, RewindId, Unfenced};
use forebay_core::fence::LockReach;
use forebay_core::ownership::{BackingAnswer, Candidate, Event, Requested, Setup, State};
use forebay_core::types::*;
use forebay_host::proofs::Proofs;
use forebay_host::seals::Seals;
use forebay_io::backing::{OwnerLock, TermLock};
use forebay_io::fence::{ReservableDevice, ReservationKey};
use forebay_io::identity::sync_beside;
use forebay_io::link::AddressPair;
use forebay_io::{Backing, LockAttempt};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration as Time;
use tokio::sync::{mpsc, oneshot};

/// Before definitions are looked at again of which something is not known.
const LOOK_AGAIN: Time = Time::from_secs(2);
/// The same where it was in vain again and again.
const LOOK_AGAIN_MAX: Time = Time::from_secs(16);
/// A node without a tier says why at most so often, when the reason changes.
const NO_TIER_SAID_AGAIN: Time = Time::from_secs(60);
/// How long the lock of an own term is tried at one time.
const LOCK_WAIT: Time = Time::from_secs(5);
/// Between two looks at a lock.
const LOCK_LOOK: Time = Time::from_millis(50);
/// A backing that is not open after so long is told to the operator, and a look at one that takes longer is given up.
const BACKING_WAIT: Time = Time::from_secs(10);
/// How often a marker follows what has been destaged.
const MARKER_PERIOD: Time = Time::from_secs(2);
/// How often a node tells what it has to give.
const LOAD_PERIOD: Time = Time::from_secs(5);

/// A volume of the cluster.
pub(super) struct Known {
    pub(super) definition: Definition,
    pub(super) facts: Option<VolumeFacts>,
    /// What its tier on this node waits for.
    pub(super) waits: Option<String>,
    /// Why there is none, as it was said last, and when.
    pub(super) no_tier: Option<(String, std::time::Instant)>,
    /// Why its backing could not be opened, as it was said last.
    pub(super) no_backing: Option<String>,
    /// There was one, and it could not be opened or read: it is put aside where another one takes its place, and not removed.
    pub(super) unreadable: bool,
    /// About whom a lock on its backing proves anything, as seen from here.
    pub(super) reach: LockReach,
    /// Why this node does not open its backing, if it does not.
    pub(super) not_allowed: Option<String>,
}

/// See the module's text.
pub struct Cluster {
    pub(super) coordinator: Coordinator,
    pub(super) place: Place,
    pub(super) name: NodeName,
    pub(super) links: super::own_addresses::OwnLinks,
    /// By which clients reach the volumes that are served here.
    pub(super) addresses: Arc<Addresses>,
    pub(super) shard: ShardHandle,
    /// Where other nodes come in.
    pub(super) acceptor: AcceptorHandle,
    /// Who may use the volumes, for those who ask for them here.
    pub(super) directory: Arc<Directory>,
    pub(super) keys: Arc<AtomicU64>,
    pub(super) volumes: Mutex<BTreeMap<VolumeId, Known>>,
    pub(super) nodes: Mutex<Vec<NodeEntry>>,
    /// Looks at them that were begun, and the last of those whose result was taken.
    pub(super) nodes_looks: (AtomicU64, Mutex<u64>),
    /// What they have said to have room for.
    pub(super) loads: Mutex<Vec<Load>>,
    /// Nodes that are to be evacuated.
    pub(super) evacuations: Mutex<Vec<Evacuation>>,
    /// How copies come to the medium that is asked for, of volumes that this node owns.
    pub(super) migrations: Mutex<BTreeMap<VolumeId, super::tier_migration::Plan>>,
    /// Calls of other nodes that were taken.
    pub(super) calls_taken: super::requests::Taken,
    /// What others must seal with what they ask of this node.
    pub(super) nonces: super::requests::Nonces,
    /// Says what this node says, and checks what others have said.
    pub(super) seals: Seals,
    /// When it was said last that something was forged.
    pub(super) forged_said: Mutex<Option<std::time::Instant>>,
    /// A call of this node may have been answered.
    pub(super) answered: tokio::sync::Notify,
    /// What this node sees of its links.
    pub(super) link_diagnosis: super::link_diagnosis::LinkDiagnosis,
    /// What owners have told of their volumes.
    pub(super) heard: Mutex<super::owner_status::OwnerStatuses>,
    /// Tiers of deleted volumes have been looked for.
    pub(super) leftovers_seen: Mutex<bool>,
    /// How other nodes' machines are switched off.
    pub(super) fences: Vec<Fence>,
    /// This machine's watchdog.
    pub(super) own_watchdog: super::watchdog::OwnWatchdog,
    /// When this node's certificates end.
    pub(super) own_identity: super::own_identity::OwnIdentity,
    /// Whose identities count no more.
    pub(super) revocations: Arc<super::revocations::Revocations>,
    /// When fences were last proven from here.
    pub(super) proofs: Proofs,
    /// Terms of former owners that have ended, as they say themselves.
    pub(super) ended: super::ended_terms::Ended,
    /// Proof that is looked for, by volume.
    pub(super) searches: Mutex<BTreeMap<VolumeId, Arc<Search>>>,
    /// What the coordinator must have of this node.
    pub(super) registration: Registration,
    /// Held while volumes come or go.
    pub(super) admin: tokio::sync::Mutex<()>,
    /// A look at the definitions has left something unknown, of which no change may tell.
    pub(super) look_again: tokio::sync::Notify,
    /// Held while the image of a volume that this node owns grows, or comes to be held: it does not grow under a hold.
    pub(super) images: Mutex<BTreeMap<VolumeId, Arc<tokio::sync::Mutex<()>>>>,
}

impl Cluster {
    pub(super) fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<VolumeId, Known>> {
        self.volumes.lock().expect("nobody panics while holding it")
    }

    pub(super) fn nodes(&self) -> Vec<NodeEntry> {
        self.nodes.lock().expect("nobody panics while holding it").clone()
    }

    pub(super) fn definition(&self, volume: VolumeId) -> Option<Definition> {
        self.known().get(&volume).map(|known| known.definition.clone())
    }

    /// Its name, as far as it is known here.
    pub(super) fn shown(&self, volume: VolumeId) -> String {
        self.known().get(&volume).map_or_else(|| names::shown(volume), |known| known.definition.name.to_string())
    }

    pub(super) fn mail(&self, mail: ToDriver) {
        self.shard.send(ToShard::Cluster(Box::new(mail)));
    }

    pub(super) fn notify(&self, volume: VolumeId, event: Event) {
        self.mail(ToDriver::Tell { volume, event });
    }

    // --- what the data path asks ---

    pub(super) async fn serve_asked(self: Arc<Cluster>, mut asked: mpsc::UnboundedReceiver<Asked>) {
        while let Some(asked) = asked.recv().await {
            let cluster = self.clone();
            tokio::spawn(async move { cluster.answer(asked).await });
        }
    }

    async fn answer(self: Arc<Cluster>, asked: Asked) {
        match asked {
            Asked::Read { volume, op } => {
                let told = self.coordinator.execute_read(volume).await;
                self.notify_of_record(volume, &told);
                self.notify(volume, Event::Read(op, told.answer));
            }
            Asked::Commit { volume, op, compare, new, word, decided } => {
                let told = self.coordinator.execute_commit(volume, &compare, &new, word.as_deref(), decided).await;
                self.notify_of_record(volume, &told);
                self.notify(volume, Event::Committed(op, told.answer));
            }
            Asked::RewindNoticed { volume, sent } => {
                let (id, kept) = self.coordinator.name_rewind(volume, sent);
                self.notify_of_rewind(id, kept);
            }
            Asked::Rewound { volume, id } => {
                self.notify_of_rewind(id, self.coordinator.remember_rewind(volume, id));
            }
            Asked::RewindSettled { volume, id } => {
                // Else it is settled once more after a restart.
                if let Err(error) = self.coordinator.remember_settled(volume, id) {
                    log::say!(
                        Error,
                        volume(self.shown(volume)),
                        "that all nodes were heard about it is not remembered: {error:#}"
                    );
                }
            }
            Asked::OpenTier { volume, format } => self.open_tier(volume, format).await,
            Asked::OpenBacking { volume, key, term } => self.open_backing(volume, key, term).await,
            Asked::UnknownNode => self.refresh_nodes().await,
        }
    }

    fn notify_of_rewind(&self, id: RewindId, kept: Result<()>) {
        if let Err(error) = kept {
            log::say!(Error, "that the coordinator went back is not remembered: {error:#}");
        }
        // What stands for those without room is that of one volume.
        if id.is_name() {
            self.mail(ToDriver::TellAll(Event::Rewound(id)));
        }
    }

    /// What this node knows besides the answer, which is told after it.
    fn notify_of_record<T>(&self, volume: VolumeId, told: &Told<T>) {
        if let Some(why) = &told.why {
            log::say!(Error, volume(self.shown(volume)), "{why}");
        }
        if let Some(seen) = &told.seen {
            self.notify(volume, seen.clone());
        }
        for id in self.coordinator.rewinds(volume).open {
            self.notify(volume, Event::Rewound(id));
        }
    }

    async fn open_tier(&self, volume: VolumeId, format: bool) {
        let Some(definition) = self.definition(volume) else { return };
        let opened = match format {
            true => self.format_tier(definition).await.map(Some),
            false => self.open_found_tier(definition).await,
        };
        let (key, fresh) = match opened {
            Ok(Some((key, fresh))) => {
                if let Some(known) = self.known().get_mut(&volume) {
                    (known.no_tier, known.unreadable) = (None, false);
                }
                (Some(key), fresh)
            }
            Ok(None) => (None, false),
            Err(error) => {
                self.has_no_tier(volume, &format!("{error:#}"));
                // What prevents it may pass by the next start of the daemon: until then another tier may take its place, beside it.
                if let Some(known) = self.known().get_mut(&volume).filter(|_| !format) {
                    known.unreadable = true;
                }
                (None, false)
            }
        };
        self.mail(ToDriver::TierOpened { volume, key, fresh });
    }

    /// Said once, and again when it has changed, but not each time that the owner tries again.
    fn has_no_tier(&self, volume: VolumeId, why: &str) {
        let mut known = self.known();
        let Some(known) = known.get_mut(&volume) else { return };
        let said = known.no_tier.as_ref().is_some_and(|(said, at)| said == why || at.elapsed() < NO_TIER_SAID_AGAIN);
        if !said {
            log::say!(Error, volume(known.definition.name), "this node has no tier for it: {why}");
            known.no_tier = Some((why.to_owned(), std::time::Instant::now()));
        }
    }

    async fn format_tier(&self, known: Definition) -> Result<(VolumeKey, bool)> {
        // Read anew: the definition that this node has heard of last may ask for the former medium.
        let definition = self.coordinator.definition(known.volume).await?;
        self.place.admit(&definition, NamedBy::Elsewhere)?;
        let StoredRecord::Record(record) = self.coordinator.record(definition.volume).await? else {
            bail!("it was deleted");
        };
        let place = self.place.clone();
        let unreadable = self.known().get(&definition.volume).is_some_and(|known| known.unreadable);
        let work = move || place.format(&definition, record.size_bytes, unreadable);
        let opened = tokio::task::spawn_blocking(work).await.context("making the tier panicked; this is a bug")??;
        self.attach(opened).await
    }

    async fn open_found_tier(&self, definition: Definition) -> Result<Option<(VolumeKey, bool)>> {
        if self.place.tier_place(&definition)?.0 == TierName::Memory {
            self.await_late_requests(&definition).await?;
        }
        let place = self.place.clone();
        let work = move || place.open(&definition);
        let opened = tokio::task::spawn_blocking(work).await.context("opening the tier panicked; this is a bug")??;
        match opened {
            Some(opened) => self.attach(opened).await.map(Some),
            None => Ok(None),
        }
    }

    /// Waits until no request of a killed process of this node to the backing is under way: its description, and with it the lock
    /// of its term, is gone. Where that cannot be seen, the record may say that somebody else has seen it.
    async fn await_late_requests(&self, definition: &Definition) -> Result<()> {
        let Some(term) = self.place.owned_term(definition.volume)? else { return Ok(()) };
        loop {
            let (looked, place) = (definition.clone(), self.place.clone());
            let look = move || -> Result<TermLock> { Ok(place.open_backing(&looked)?.lock_of_term(term)?) };
            let looked = tokio::task::spawn_blocking(look).await.context("a look at a lock panicked; this is a bug")?;
            let why = match looked {
                Ok(TermLock::Gone | TermLock::Unknown) => break,
                Ok(TermLock::HeldBy(holder)) => {
                    format!("{holder} has the lock of term {} on {}", term.0, definition.backing)
                }
                Err(error) => format!("{error:#}"),
            };
            if let Ok(StoredRecord::Record(record)) = self.coordinator.record(definition.volume).await
                && record.term > term
                && record.unfenced.iter().all(|former| former.term != term)
            {
                break;
            }
            self.waits(
                definition,
                Some(format!("the end of requests of a killed process, which may change the tier: {why}")),
            );
            tokio::time::sleep(LOCK_LOOK).await;
        }
        self.waits(definition, None);
        Ok(())
    }

    /// What a tier waits for, or that it waits no more. Said once.
    fn waits(&self, definition: &Definition, why: Option<String>) {
        let mut known = self.known();
        let Some(known) = known.get_mut(&definition.volume).filter(|known| known.waits != why) else { return };
        if let Some(why) = &why {
            log::say!(Error, volume(definition.name), "its tier here waits for {why}");
        }
        known.waits = why;
    }

    /// To the shard of the links; there it follows the log when its tier has been read.
    async fn attach(&self, opened: Opened) -> Result<(VolumeKey, bool)> {
        let Opened { volume, facts, fresh } = opened;
        let key = VolumeKey(self.keys.fetch_add(1, Ordering::Relaxed) as u32);
        let id = VolumeId(volume.config.superblock.volume);
        let (serving, served) = oneshot::channel();
        let activity = Arc::new(AtomicU64::new(0));
        self.shard.send(ToShard::Attach { key, volume: Box::new(volume), activity, serving });
        let refused = match served.await {
            Ok(Ok(())) => None,
            Ok(Err(why)) => Some(format!("the tier {} cannot be used: {why}", facts.tier_path)),
            Err(_) => Some("its data-path thread has ended; see the daemon's messages".to_owned()),
        };
        if let Some(why) = refused {
            let (answer, answered) = oneshot::channel();
            self.shard.send(ToShard::Detach { key, answer });
            await_closed(answered).await;
            bail!("{why}");
        }
        if let Some(known) = self.known().get_mut(&id) {
            known.facts = Some(facts);
        }
        Ok((key, fresh))
    }

    /// Until the backing is open under the lock of the term, or the term is not the own one any more.
    /// Once: whether and when it is tried again, and what an owner does meanwhile, is decided by ownership.
    async fn open_backing(self: Arc<Cluster>, volume: VolumeId, key: VolumeKey, term: Term) {
        let opened = match self.definition(volume) {
            Some(definition) => self.opened_backing(&definition, key, term).await,
            None => Err(BackingAnswer::NotOwner),
        };
        self.mail(ToDriver::Backing { volume, key, term, opened });
    }

    async fn opened_backing(
        self: &Arc<Cluster>,
        definition: &Definition,
        key: VolumeKey,
        term: Term,
    ) -> Result<OpenedBacking, BackingAnswer> {
        let mut attempt = std::pin::pin!(self.try_backing(definition, term));
        let tried = match tokio::time::timeout(BACKING_WAIT, &mut attempt).await {
            Ok(tried) => tried,
            Err(_) => {
                log::say!(Notice, volume(definition.name), "its backing does not answer");
                attempt.await
            }
        };
        let failed = tried.as_ref().err().map(|error| format!("{error:#}"));
        if let Some(known) = self.known().get_mut(&definition.volume)
            && known.no_backing != failed
        {
            if let Some(words) = &failed {
                log::say!(Error, volume(definition.name), "its backing is out of reach: {words}");
            }
            known.no_backing = failed;
        }
        match tried {
            Ok(Tried::Open(backing, unfenced)) => {
                self.set_policy(key, definition);
                let end = Arc::new(OpeningEnd::default());
                if let Some(marker) = ImageMarker::of(&backing) {
                    tokio::spawn(self.clone().keep_marker(definition.clone(), term, marker, end.clone()));
                }
                if backing.nbd().is_some() {
                    tokio::spawn(self.clone().say_when_ended(definition.volume, term, end.clone()));
                }
                self.begin_fencing(definition, backing.share(), term, unfenced, end.clone());
                self.watch_own_lock(definition, &backing, term, &end);
                Ok((backing, end))
            }
            Ok(Tried::NotOwner) => Err(BackingAnswer::NotOwner),
            Err(_) => Err(BackingAnswer::Failed),
        }
    }

    async fn try_backing(&self, definition: &Definition, term: Term) -> Result<Tried> {
        let (volume, node) = (definition.volume, self.place.node);
        let StoredRecord::Record(record) = self.coordinator.record(volume).await? else { return Ok(Tried::NotOwner) };
        if (record.term, record.owner) != (term, node) {
            return Ok(Tried::NotOwner);
        }
        let (place, definition, former) = (self.place.clone(), definition.clone(), record.unfenced.clone());
        let size_bytes = record.size_bytes;
        let name = self.name.clone();
        let work = move || open_as_owner(&place, &name, &definition, size_bytes, term, &former);
        let backing = tokio::task::spawn_blocking(work).await.context("opening it panicked; this is a bug")??;
        match self.coordinator.record(volume).await? {
            StoredRecord::Record(now) if (now.term, now.owner) == (term, node) => {
                Ok(Tried::Open(Box::new(backing), record.unfenced))
            }
            StoredRecord::Record(_) | StoredRecord::Deleted { .. } => Ok(Tried::NotOwner),
        }
    }

    /// Keeps the marker beside the image up with what is destaged, until the opening has ended; a released volume leaves it clean.
    async fn keep_marker(
        self: Arc<Cluster>,
        mut definition: Definition,
        term: Term,
        marker: ImageMarker,
        end: Arc<OpeningEnd>,
    ) {
        let (marker, volume) = (Arc::new(marker), definition.volume);
        let (mut written, mut told) = (None, None);
        loop {
            tokio::time::sleep(MARKER_PERIOD).await;
            let is_over = end.has_ended();
            // A volume that was deleted has none any more.
            definition = self.definition(volume).unwrap_or(definition);
            let clean = match is_over {
                false => false,
                true => match self.coordinator.record(volume).await {
                    Ok(StoredRecord::Record(record)) => record.term == term && record.log == LogState::Released,
                    Ok(StoredRecord::Deleted { .. }) => return self.remove_marker(&definition).await,
                    Err(_) => false,
                },
            };
            let (destaged, size_bytes) = match self.show(volume).await.and_then(|shown| shown.volume) {
                Some(snapshot) => (snapshot.status.destaged, snapshot.status.size_bytes),
                None => written.unwrap_or((Lsn(0), 0)),
            };
            if clean || (!is_over && written != Some((destaged, size_bytes))) {
                let (marker, node, place) = (marker.clone(), self.name.clone(), self.place.clone());
                let definition = definition.clone();
                let write = move || {
                    let (_, tier) = place.tier_place(&definition)?;
                    marker.write(&Words { definition: &definition, node: &node, tier, term, destaged, clean })
                };
                let problem = match tokio::task::spawn_blocking(write).await {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(format!("{error:#}")),
                    Err(_) => Some("writing the marker panicked; this is a bug".to_owned()),
                };
                // The old marker still protects: it only knows an older state of the image.
                if let Some(words) = problem.as_ref().filter(|_| problem != told) {
                    log::say!(Notice, volume(self.shown(volume)), "{words}");
                }
                (written, told) = (Some((destaged, size_bytes)), problem);
            }
            if is_over {
                return;
            }
        }
    }

    /// A follower's volume was set up when its tier was opened; what is asked for may have changed since.
    fn set_policy(&self, key: VolumeKey, definition: &Definition) {
        let commands = [
            Control::SetPolicy(definition.policy.into()),
            Control::SetDrainMax(Duration::from_secs(definition.drain_max_s)),
        ];
        for command in commands {
            let (answer, _) = oneshot::channel();
            self.shard.send(ToShard::Control { key, command, answer });
        }
        self.mail(ToDriver::SetFlush { volume: definition.volume, flush: definition.flush.into() });
    }

    // --- what the coordinator says ---

    pub(super) async fn watch(self: Arc<Cluster>) {
        tokio::join!(self.clone().follow_changes(), self.look_again_later());
    }

    /// Such as a deletion that the state folder could not take: the coordinator tells of it once.
    async fn look_again_later(self: Arc<Cluster>) {
        self.look_again.notified().await;
        let mut pause = LOOK_AGAIN;
        loop {
            tokio::time::sleep(pause).await;
            self.refresh_definitions().await;
            // What lasts is not looked at all the time.
            if tokio::time::timeout(Time::ZERO, self.look_again.notified()).await.is_ok() {
                pause = (pause * 2).min(LOOK_AGAIN_MAX);
            } else {
                pause = LOOK_AGAIN;
                self.look_again.notified().await;
            }
        }
    }

    async fn follow_changes(self: Arc<Cluster>) {
        let mut watch = self.coordinator.watch();
        self.drop_old_requests().await;
        loop {
            match watch.next().await {
                Hint::Record(volume) => self.notify(volume, Event::RecordChanged),
                Hint::Definition(_) => drop(self.refresh_definitions().await),
                Hint::Nodes => self.refresh_nodes().await,
                Hint::Revoked => self.revocations.changed.notify_one(),
                Hint::Told => self.poll_owners().await,
                Hint::Call => self.take_requests::<Call>().await,
                Hint::Answer => self.answered.notify_waiters(),
                Hint::Ask => self.take_requests::<Ask>().await,
                Hint::Nothing => {}
                Hint::Everything => {
                    self.revocations.changed.notify_one();
                    self.take_requests::<Call>().await;
                    self.take_requests::<Ask>().await;
                    self.refresh_nodes().await;
                    self.refresh_definitions().await;
                    self.mail(ToDriver::TellAll(Event::RecordChanged));
                }
            }
        }
    }

    async fn poll_owners(&self) {
        // What is not known now is asked for again soon.
        if let Ok(told) = self.coordinator.owner_statuses().await {
            self.heard.lock().expect("nobody panics while holding it").take(told);
        }
    }

    pub(super) async fn refresh_nodes(&self) {
        let look = self.nodes_looks.0.fetch_add(1, Ordering::Relaxed) + 1;
        // What is not known now is asked for again soon.
        let Ok(nodes) = self.coordinator.nodes().await else { return };
        self.stay_registered(&nodes).await;
        let Ok(leaving) = self.coordinator.evacuations().await else { return };
        let loads = self.coordinator.loads().await.unwrap_or_default();
        // Of looks that overlap, the one that was begun last is told last.
        let mut told = self.nodes_looks.1.lock().expect("nobody panics while holding it");
        if look < *told {
            return;
        }
        *told = look;
        let nodes = self.without_twin(nodes);
        let nodes = self.registration.with_former(nodes, &self.nodes(), &self.coordinator.open_rewinds());
        *self.evacuations.lock().expect("nobody panics while holding it") = leaving;
        let others = nodes.iter().filter(|entry| entry.node() != self.place.node);
        self.mail(ToDriver::Peers(others.filter_map(|entry| self.peer(entry)).collect()));
        let kinds: Vec<(VolumeId, TierName)> =
            self.known().iter().map(|(id, known)| (*id, known.definition.tier.kind)).collect();
        for (volume, kind) in kinds {
            self.notify(volume, Event::Candidates(self.candidates(&nodes, &loads, volume, kind)));
        }
        let before = std::mem::replace(&mut *self.nodes.lock().expect("nobody panics while holding it"), nodes);
        if all_read_flushed(&before) != all_read_flushed(&self.nodes()) {
            let definitions: Vec<Definition> = self.known().values().map(|known| known.definition.clone()).collect();
            for definition in definitions {
                self.notify(definition.volume, Event::Requested(self.requested_now(&definition)));
            }
        }
        *self.loads.lock().expect("nobody panics while holding it") = loads;
    }

    /// Our links in order with the other node's addresses in order.
    pub(super) fn peer(&self, entry: &NodeEntry) -> Option<PeerNode> {
        let name = forebay_core::wire::NodeName::new(&entry.name).ok()?;
        let theirs: Vec<SocketAddr> = entry.addresses.iter().filter_map(|text| text.parse().ok()).collect();
        let pair = |(at, (own, given)): (usize, &(IpAddr, Option<SocketAddr>))| {
            let peer = given.or_else(|| theirs.get(at).copied())?;
            Some(AddressPair { own: *own, peer })
        };
        Some(PeerNode {
            node: entry.node(),
            name,
            pairs: self.links.now().iter().enumerate().filter_map(pair).collect(),
        })
    }

    /// Takes up what the cluster has now. False: it could not be read, and is soon looked at again.
    pub(super) async fn refresh_definitions(self: &Arc<Cluster>) -> bool {
        let _admin = self.admin.lock().await;
        // What is not known now is asked for again soon.
        let Ok((definitions, is_whole)) = self.coordinator.usable_definitions().await else {
            self.look_again.notify_one();
            return false;
        };
        if !self.end_deleted(&definitions).await {
            self.look_again.notify_one();
        }
        let Ok(words) = self.coordinator.clients_words().await else {
            self.look_again.notify_one();
            return false;
        };
        self.place.pins.begin_look();
        let mut refused = Vec::new();
        for definition in definitions {
            let volume = definition.volume;
            let word = words.iter().find(|word| word.volume == volume);
            match self.take_definition(definition, NamedBy::Elsewhere, word).await {
                Ok((new, objection)) => {
                    refused.extend(objection.map(|why| (volume, why)));
                    // A tier that waits for something keeps the others waiting for nothing.
                    if let Some(new) = new {
                        let cluster = self.clone();
                        tokio::spawn(async move { cluster.take_up(new).await });
                    }
                }
                Err(error) => refused.push((volume, format!("{error:#}"))),
            }
        }
        // It may have been the state folder that did not take one.
        if !refused.is_empty() {
            self.look_again.notify_one();
        }
        self.place.pins.end_look(is_whole);
        self.show_refused(refused);
        true
    }

    /// A volume of which something else may be asked now. If it is new: it is to be taken up; and what of it is not used, and why. `Err`: it
    /// cannot be what it says. `clients`: what was found that somebody says of its clients.
    pub(super) async fn take_definition(
        self: &Arc<Cluster>,
        mut definition: Definition,
        by: NamedBy,
        clients: Option<&ClientsWord>,
    ) -> Result<(Option<Definition>, Option<String>)> {
        let volume = definition.volume;
        self.place.admit(&definition, by)?;
        let objection = self.judge_clients(&mut definition, clients).await;
        let before = {
            let mut known = self.known();
            match known.get_mut(&volume) {
                Some(known) => Some(std::mem::replace(&mut known.definition, definition.clone())),
                None => {
                    let reach = LockReach::Nobody;
                    known.insert(
                        volume,
                        Known {
                            definition: definition.clone(),
                            facts: None,
                            waits: None,
                            no_tier: None,
                            no_backing: None,
                            unreadable: false,
                            reach,
                            not_allowed: None,
                        },
                    );
                    None
                }
            }
        };
        self.directory.let_in(&definition.name, definition.common.clients.clone());
        self.directory.expect(&definition.name);
        if before.as_ref().is_none_or(|before| before.address != definition.address) {
            self.addresses.define(volume, &definition.name, definition.address.as_ref());
        }
        let new = match before {
            Some(before) if before == definition => None,
            Some(before) => {
                if before.address.is_some() && before.address != definition.address {
                    self.mail(ToDriver::EndClients { volume });
                }
                self.notify(volume, Event::Requested(self.requested_now(&definition)));
                self.mail(ToDriver::SetFlush { volume, flush: definition.flush.into() });
                if let Some(shown) = self.show(volume).await
                    && let (State::Owner | State::Custodian | State::Agreeing, Some(key)) =
                        (shown.ownership.state, shown.key)
                {
                    self.set_policy(key, &definition);
                }
                None
            }
            None => Some(definition),
        };
        Ok((new, objection))
    }

    /// From now on this node has a part in the volume, or may get one.
    pub(super) async fn take_up(self: &Arc<Cluster>, definition: Definition) {
        let (volume, name) = (definition.volume, definition.name.to_string());
        let (reach, local, not_allowed) = self.reach_of(&definition).await;
        if let Some(known) = self.known().get_mut(&volume) {
            (known.reach, known.not_allowed) = (reach, not_allowed);
        }
        let setup = Setup {
            volume: volume.0,
            own: Incarnation::none(self.place.node),
            host: self.place.host,
            remembered: Default::default(),
            known: self.coordinator.known(volume),
            rewinds: self.coordinator.rewinds(volume),
            fresh: false,
            timing: self.place.timing,
            requested: self.requested_now(&definition),
            writes_die_with_host: local,
        };
        let kind = definition.tier.kind;
        let key = match self.open_found_tier(definition).await {
            Ok(opened) => opened.map(|(key, _)| key),
            Err(error) => {
                log::say!(Error, volume(name), "its tier on this node is of no use: {error:#}");
                if let Some(known) = self.known().get_mut(&volume) {
                    known.unreadable = true;
                }
                None
            }
        };
        self.mail(ToDriver::Begin { name, setup: Box::new(setup), key });
        // Of a volume that is defined again after a restore no record is known, but that it was deleted.
        if let Some(seen) = self.coordinator.seen(volume) {
            self.notify(volume, seen);
        }
        let (nodes, loads) = (self.nodes(), self.loads.lock().expect("nobody panics while holding it").clone());
        self.notify(volume, Event::Candidates(self.candidates(&nodes, &loads, volume, kind)));
    }

    pub(super) fn candidates(
        &self,
        nodes: &[NodeEntry],
        loads: &[Load],
        volume: VolumeId,
        kind: TierName,
    ) -> Vec<Candidate> {
        let leaving = |entry: &NodeEntry| self.is_evacuated(&entry.name) || self.is_migrating(volume, entry.node());
        let of = |entry: &NodeEntry| candidate(entry, loads, volume, kind, leaving(entry));
        nodes.iter().map(of).collect()
    }

    /// As [`Place::look_at_backing`], within a time.
    pub(super) async fn reach_of(&self, definition: &Definition) -> (LockReach, bool, Option<String>) {
        let (place, definition) = (self.place.clone(), definition.clone());
        let look = tokio::task::spawn_blocking(move || place.look_at_backing(&definition));
        match tokio::time::timeout(BACKING_WAIT, look).await {
            Ok(Ok(looked)) => looked,
            Ok(Err(_)) | Err(_) => (LockReach::Nobody, false, None),
        }
    }

    pub(super) async fn publish_load(self: Arc<Cluster>) {
        let mut reach = BackingProbe::default();
        loop {
            let unreached = reach.unreached(&self).await;
            let load = Load {
                version: schema::VERSION,
                name: self.name.clone(),
                at_ms: std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .map_or(0, |time| time.as_millis() as u64),
                memory_free_bytes: memory_free_bytes(),
                flash_free_bytes: flash_free_bytes(&self.place.flash_folder()),
                busy_percent: busy_percent(),
                owned: self.owned().await,
                held: self.known().values().filter(|known| known.facts.is_some()).count() as u32,
                unreached,
            };
            // The next one follows soon.
            let _ = self.coordinator.report(&load).await;
            tokio::time::sleep(LOAD_PERIOD).await;
        }
    }

    /// Volumes that this node owns.
    async fn owned(&self) -> u32 {
        let volumes: Vec<VolumeId> = self.known().keys().copied().collect();
        let mut owned = 0;
        for volume in volumes {
            let shown = self.show(volume).await;
            owned += u32::from(shown.is_some_and(|shown| shown.ownership.state == State::Owner));
        }
        owned
    }
}

/// How an attempt at the backing has ended.
enum Tried {
    Open(Box<Backing>, Vec<Unfenced>),
    NotOwner,
}

/// What its definition asks for.
pub(super) fn requested(definition: &Definition) -> Requested {
    Requested {
        peers: definition.peers.into(),
        min_peers: definition.min_peers.into(),
        through: definition.policy == config::PolicyName::Through,
        media: definition.flush == FlushName::Media,
        flushed_readable: false,
        tier_bytes: definition.tier.size_bytes,
    }
}

/// Opens the backing for a term, and locks it.
fn open_as_owner(
    place: &Place,
    node: &str,
    definition: &Definition,
    size_bytes: u64,
    term: Term,
    unfenced: &[Unfenced],
) -> Result<Backing> {
    place.remember_term(definition.volume, term)?;
    let mut backing = place.open_backing_for(definition, Some(size_bytes))?;
    let has = backing.size().with_context(|| format!("cannot read the size of {}", backing.name()))?;
    if has < size_bytes {
        bail!(
            "the backing {} has {has} bytes, and the volume {size_bytes}: it was cut off, or is another one",
            backing.name()
        );
    }
    // An export may be another one than it was when the volume was made; a file or device is opened to fit.
    config::check_whole_units(size_bytes, &backing)?;
    let former: Vec<Term> = unfenced.iter().map(|former| former.term).collect();
    let until = std::time::Instant::now() + LOCK_WAIT;
    if definition.reserves {
        register(&backing, place, term, until)?;
    }
    loop {
        let locked = backing.lock_for_term(term).and_then(|attempt| match attempt {
            LockAttempt::Locked => backing.lock_out_strangers(&former),
            LockAttempt::HeldBy(holder) => Ok(OwnerLock::HeldBy(holder)),
        });
        match locked.with_context(|| format!("cannot lock {}", backing.name()))? {
            OwnerLock::Alone | OwnerLock::BesideFormer(_) => break,
            OwnerLock::HeldBy(holder) if std::time::Instant::now() >= until => {
                bail!("the backing {} is in use by {holder}", backing.name());
            }
            OwnerLock::HeldBy(_) => std::thread::sleep(LOCK_LOOK),
        }
    }
    if let Some(file) = backing.file() {
        // What an owner before this one had written may be in a cache, and a flush that is asked for now covers it.
        sync_beside(file.file()).with_context(|| format!("cannot sync {}", backing.name()))?;
    }
    if let Some(marker) = ImageMarker::of(&backing) {
        marker.check(definition.volume)?;
        let (tier, destaged, clean) = (place.tier_place(definition)?.1, Lsn(0), false);
        marker.write(&Words { definition, node, tier, term, destaged, clean })?;
    }
    Ok(backing)
}

/// Registers this host with the backing's device, and sees to it that nobody else can write there. A registration lets in all
/// that this host sends: it is not renewed while writes of a former term are under way from here.
fn register(backing: &Backing, place: &Place, term: Term, until: std::time::Instant) -> Result<()> {
    while let Some(holder) = backing.holder_before(term).context("cannot look at the locks of former terms")? {
        if std::time::Instant::now() >= until {
            bail!(
                "requests of a former term are under way from this host ({holder}), so it is not registered with the device"
            );
        }
        std::thread::sleep(LOCK_LOOK);
    }
    let file = backing.file().context("a volume that reserves its backing's device has one")?;
    let (device, key) = (ReservableDevice::of(file)?, ReservationKey::of_node(place.node));
    device.register(key)?;
    Ok(device.reserve_beside(key)?)
}

fn candidate(entry: &NodeEntry, loads: &[Load], volume: VolumeId, kind: TierName, leaving: bool) -> Candidate {
    let load = loads.iter().find(|load| load.name == entry.name);
    let mut domain = DefaultHasher::new();
    let alone = entry.fault_domain.is_empty();
    if alone { &*entry.name } else { &*entry.fault_domain }.hash(&mut domain);
    Candidate {
        node: entry.node(),
        domain: domain.finish(),
        free_bytes: load.map_or(0, |load| load.free_bytes(kind)),
        load_permille: load.map_or(0, |load| u32::from(load.busy_percent) * 10),
        flash: kind == TierName::Flash,
        // Who has not said anything may reach it.
        reaches_backing: load.is_none_or(|load| !load.unreached.contains(&volume)),
        leaving,
    }
}

/// Memory that this host can give; 0: not known.
pub fn memory_free_bytes() -> u64 {
    memory_bytes("MemAvailable:")
}

/// A line of `/proc/meminfo`; 0: not known.
pub(super) fn memory_bytes(what: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(what));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

/// The load of the last minute, as a share of the cores.
fn busy_percent() -> u8 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = text.split(' ').next().and_then(|load| load.parse::<f64>().ok()).unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (load * 100.0 / cores as f64).clamp(0.0, 100.0) as u8
}

fn flash_free_bytes(folder: &std::path::Path) -> u64 {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else { return 0 };
    // SAFETY: an all-zero statvfs is a valid one.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a path that ends in 0 and a place for the answer, both alive through the call.
    let result = unsafe { libc::statvfs(path.as_ptr(), &mut about) };
    if result == 0 { about.f_bavail.saturating_mul(about.f_frsize) } else { 0 }
}
