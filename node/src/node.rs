//! The control plane of a node: its volumes, what operators ask of them, and their markers.
//!
//! Invariants:
//! - A volume can be chosen by clients only after its marker and record say that its tier may hold the only copy.
//! - Volumes are created, resized, deleted and stopped one at a time; reports and drains do not wait for that.
//! - Whatever fails on one volume leaves the others alone.

mod changes;
mod deletion;
mod failed;
mod images;
mod looks;
mod markers;
mod of_cluster;
mod opening;
mod places;
mod plan;
mod recordings;
mod tier_change;
mod unserved;

use crate::allowed::{Allowed, NamedBy};
use crate::cluster::control::Cluster;
use crate::datapath::acceptor::{AcceptorHandle, ToAcceptor};
use crate::datapath::directory::{Directory, Export, Place};
use crate::datapath::mailbox::{ShardHandle, Snapshot, ToShard, VolumeKey, await_closed};
use crate::datapath::shard::IoReport;
use crate::facts::{VolumeFacts, volume_memory};
use crate::failure::{Failure, FailureKind, HELD_IMAGE, command_failure};
use crate::journal::{Preparation, Step};
use crate::log;
use crate::open::{self, FirstSteps, Inherited, Opened};
use crate::placement::Placement;
use crate::rounds::Rounds;
use crate::telemetry::Telemetry;
use crate::volume_store::Store;
use forebay_api::config;
use forebay_api::config::volume::VolumeSpec;
use forebay_api::record::Record;
use forebay_api::status::{NodeReport, VolumeReport};
use forebay_api::units::show_size;
use forebay_api::words::{BackingState, VolumePhase};
use forebay_core::api::Control;
use forebay_core::stats::Stats;
use forebay_core::status::Phase;
use forebay_core::types::Duration;
use forebay_host::topology::NodeNumber;
use forebay_io::machine::host_name;
use forebay_io::{Backing, LockAttempt, closing};
use images::ImageWatch;
use looks::LastShown;
pub use looks::Look;
use markers::{MarkerFile, Moment, record_as_made, save_marker};
use opening::Opening;
use recordings::Recordings;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::oneshot;

/// Pause between two attempts to lock a backing: each looks through /proc for the holder.
const LOCK_RETRY: std::time::Duration = std::time::Duration::from_millis(100);

/// How long a stop without drain waits for requests that were taken.
const STOP_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// How long a change of destage, or a stop that is otherwise done, waits for what is done about the journal at the start.
const PREPARED_WAIT: std::time::Duration = std::time::Duration::from_secs(10);
/// Between two looks whether that has ended.
const PREPARED_LOOK: std::time::Duration = std::time::Duration::from_millis(20);

type Answer<T> = Result<T, Failure>;

fn failure<T>(kind: FailureKind, message: impl Into<String>) -> Answer<T> {
    Err(Failure { kind, message: message.into() })
}

/// A volume that runs on a shard.
#[derive(Clone)]
struct Running {
    shard: usize,
    key: VolumeKey,
    activity: Arc<AtomicU64>,
    opening: Arc<Opening>,
    watch: Arc<ImageWatch>,
    marker: Arc<MarkerFile>,
    journal_place: Result<PathBuf, String>,
    /// Ends what is done about its backing and journal besides serving.
    closed: Arc<AtomicBool>,
    /// That has ended.
    prepared: Arc<AtomicBool>,
    /// Drains and holds of a volume come one after the other.
    draining: Arc<tokio::sync::Mutex<()>>,
    shown: Arc<LastShown>,
}

impl Running {
    /// Waits until what is done about its backing and journal besides serving has ended; false when that takes too long.
    async fn until_prepared(&self) -> bool {
        let until = std::time::Instant::now() + PREPARED_WAIT;
        while !self.prepared.load(Ordering::Acquire) {
            if std::time::Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(PREPARED_LOOK).await;
        }
        true
    }
}

/// Why a volume does not run.
#[derive(Clone)]
enum Absence {
    /// It could not be opened.
    Failed(String),
    /// Its record cannot be read, so nobody knows what it has: what stands for the record in the list lends nothing to anybody.
    Unreadable(String),
    /// Its tier may not be used yet: why, and what ends the wait for good.
    Waiting(String, Arc<AtomicBool>),
}

impl Absence {
    fn why(&self) -> &str {
        match self {
            Absence::Failed(why) | Absence::Unreadable(why) | Absence::Waiting(why, _) => why,
        }
    }
}

struct Entry {
    facts: VolumeFacts,
    record: Record,
    running: Option<Running>,
    /// Why it does not run.
    absence: Option<Absence>,
    /// It does not run, and could not be ended: what of it is on its shard still. Whoever deletes it ends that first.
    unended: Option<Running>,
    /// Its activity when the marker was last written.
    activity_seen: u64,
    /// How far a change of its tier's medium is.
    changing: Option<tier_change::Progress>,
}

impl Entry {
    fn absent(facts: VolumeFacts, record: Record, absence: Absence) -> Entry {
        Entry { facts, record, running: None, absence: Some(absence), unended: None, activity_seen: 0, changing: None }
    }

    /// It runs, or will by itself.
    fn is_open(&self) -> bool {
        match &self.absence {
            None => self.running.is_some(),
            Some(Absence::Waiting(..)) => true,
            Some(Absence::Failed(_) | Absence::Unreadable(_)) => false,
        }
    }
}

/// What is left of a volume that has stopped, with its name and why.
enum Left {
    Nothing,
    /// The image is not complete by itself; serving it again goes on from the tier.
    Incomplete(String),
    /// The image was deleted, moved or replaced while it was served.
    Displaced(String),
}

/// What a stop in order has before it, of all volumes.
pub struct ToDestage {
    /// Bytes that are dirty, in all tiers together.
    pub bytes: u64,
    /// The longest of the times to drain of those that are drained.
    pub seconds: f64,
    /// Volumes of which nothing is destaged before former owners are fenced.
    pub await_fences: Vec<String>,
}

/// Volumes that did not stop with a complete image at its path, with the reasons.
#[derive(Debug, Default)]
pub struct Stopped {
    /// Serving them again goes on from their tiers.
    pub incomplete: Vec<String>,
    /// Their images were deleted, moved or replaced while they were served.
    pub displaced: Vec<String>,
}

/// The data-path threads of the node.
pub struct Shards {
    /// The way to each of them.
    pub handles: Vec<ShardHandle>,
    /// What they say of their I/O.
    pub io: IoReport,
    /// Where they and their memory are.
    pub placement: Arc<Placement>,
    /// Where clients come in.
    pub acceptor: AcceptorHandle,
}

/// Where the dashboard is.
#[derive(Clone, Debug, Default)]
pub enum Page {
    /// It is not served over TCP, as was asked for.
    #[default]
    Nowhere,
    /// It is to be had at this URL.
    At(String),
    /// Its address cannot be had yet: why, and that it is tried again.
    Missing(String),
}

/// See the module's text.
pub struct Node {
    store: Store,
    directory: Arc<Directory>,
    shards: Vec<ShardHandle>,
    acceptor: AcceptorHandle,
    io: IoReport,
    placement: Arc<Placement>,
    started: std::time::Instant,
    shm_size: Option<u64>,
    nbd: Vec<String>,
    page: Mutex<Page>,
    memory_bytes_besides: u64,
    allowed: Arc<Allowed>,
    keys: Arc<AtomicU64>,
    /// The cluster that this is a node of.
    cluster: OnceLock<Arc<Cluster>>,
    telemetry: Arc<Telemetry>,
    doctor: Arc<Rounds>,
    entries: Mutex<Vec<Entry>>,
    /// Held while volumes come, go or change size.
    admin: tokio::sync::Mutex<()>,
    /// Whose turn it is to change the record of a volume that is there.
    recordings: Recordings,
}

impl Node {
    /// Makes known where the dashboard is, or why it is not there.
    pub fn set_page(&self, page: Page) {
        *self.page.lock().expect("nobody panics while holding it") = page;
    }

    /// A node without volumes. `memory_bytes_besides`: bound on memory that is not of volumes.
    pub fn new(
        store: Store,
        directory: Arc<Directory>,
        shards: Shards,
        shm_size: Option<u64>,
        nbd: Vec<String>,
        memory_bytes_besides: u64,
        allowed: Arc<Allowed>,
    ) -> std::io::Result<Arc<Node>> {
        let telemetry = Arc::new(Telemetry::new(store.dir(), host_name())?);
        Ok(Arc::new(Node {
            store,
            directory,
            acceptor: shards.acceptor,
            shards: shards.handles,
            io: shards.io,
            placement: shards.placement,
            started: std::time::Instant::now(),
            shm_size,
            nbd,
            page: Mutex::default(),
            memory_bytes_besides,
            allowed,
            keys: Arc::default(),
            cluster: OnceLock::new(),
            telemetry,
            doctor: Arc::default(),
            entries: Mutex::new(Vec::new()),
            admin: tokio::sync::Mutex::new(()),
            recordings: Recordings::default(),
        }))
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().expect("nobody panics while holding it")
    }

    fn running(&self, name: &str) -> Answer<Running> {
        if self.cluster_of(name).is_some() {
            let message = format!("volume {name} is of the cluster, for which there is no such command");
            return failure(FailureKind::Conflict, message);
        }
        let entries = self.entries();
        let Some(entry) = entries.iter().find(|e| e.facts.name == name) else { return no_such_volume(name) };
        match &entry.running {
            Some(running) => Ok(running.clone()),
            None => failure(
                FailureKind::Conflict,
                format!(
                    "volume {name} does not run: {}",
                    entry.absence.as_ref().map_or("it is being opened or closed", Absence::why)
                ),
            ),
        }
    }

    // --- volumes come ---

    /// Opens what the state folder holds of a volume, what a spec asks for, or both, and serves it. What is not known
    /// by a record and fails leaves nothing behind: neither in the list nor in files.
    pub async fn open(
        self: &Arc<Node>,
        name: &str,
        spec: Option<VolumeSpec>,
        default: bool,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Answer<Vec<String>> {
        let _admin = self.admin.lock().await;
        if self.entries().iter().any(|e| e.facts.name == name && e.is_open()) {
            return failure(FailureKind::Conflict, format!("volume {name} is there already"));
        }
        let recorded = || self.store.load(name).ok().flatten().map(|record| record.backing);
        if let Some(new) = spec.as_ref().filter(|_| recorded().is_none())
            && let Err(why) = self.check_places(new, NamedBy::Here).await
        {
            self.note_failed(name, &why.message);
            return Err(why);
        }
        if let Some(backing) = spec.as_ref().map(|spec| spec.backing.clone()).or_else(recorded)
            && let Some(other) = self.running_on(&backing)
        {
            let message = format!("cannot open volume {name}: volume {other} has the backing {backing} already");
            self.note_failed(name, &message);
            return failure(FailureKind::Conflict, message);
        }
        // Nobody else gives volumes to shards meanwhile.
        let memory_node = self.placement.memory_node(self.emptiest_shard(None));
        let was_shown = self.entries().iter().any(|e| e.facts.name == name);
        let opened = self.open_blocking(name, spec, memory_node, progress).await;
        match opened {
            Ok((opened, _)) if opened.waits.is_some() => Ok(self.attach_later(opened, default)),
            Ok((opened, steps)) => match self.attach(opened, default, None).await {
                Err(failed) => Err(self.take_back(name, steps, was_shown, failed).await),
                attached => attached,
            },
            Err(message) => {
                self.note_failed(name, &message);
                failure(FailureKind::Failed, format!("cannot open volume {name}: {message}"))
            }
        }
    }

    /// The volume that runs on this backing.
    fn running_on(&self, backing: &str) -> Option<String> {
        let entries = self.entries();
        let same = |e: &&Entry| e.is_open() && config::same_backing(&e.facts.backing, backing);
        entries.iter().find(same).map(|e| e.facts.name.clone())
    }

    async fn open_blocking(
        self: &Arc<Node>,
        name: &str,
        spec: Option<VolumeSpec>,
        memory_node: Option<NodeNumber>,
        mut progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<(Opened, FirstSteps), String> {
        let (node, name) = (self.clone(), name.to_owned());
        let shown = spec.as_ref().and_then(|_| self.shown_without_record(&name));
        let work = move || -> anyhow::Result<(Opened, FirstSteps)> {
            let before = node.store.load(&name)?;
            let mut steps = FirstSteps::new(before.clone());
            let recorded = before.or(shown);
            anyhow::ensure!(recorded.is_some() || spec.is_some(), "there is no record of it");
            let (store, inherited) = (&node.store, Inherited::default());
            let open =
                || open::open(store, recorded, spec.as_ref(), node.shm_size, inherited, &mut steps, &mut progress);
            match node.placement.open(memory_node, open) {
                Ok(opened) => Ok((opened, steps)),
                Err(error) => Err(steps.take_back_after(store, error)),
            }
        };
        blocking(work).await
    }

    /// Attaches a volume when the backing's lock is ours, and meanwhile shows what it waits for.
    fn attach_later(self: &Arc<Node>, mut opened: Opened, default: bool) -> Vec<String> {
        let why = opened.waits.take().expect("it waits for something");
        let name = opened.record.name.clone();
        if default {
            self.directory.await_default(&name);
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let absence = Absence::Waiting(why.clone(), cancelled.clone());
        let mut entries = self.entries();
        entries.retain(|e| e.facts.name != name);
        entries.push(Entry::absent(opened.facts.clone(), opened.record.clone(), absence));
        drop(entries);
        let mut remarks = std::mem::take(&mut opened.remarks);
        remarks.push(why);
        let node = self.clone();
        tokio::spawn(async move {
            let ended = cancelled.clone();
            let wait = move || await_backing(opened, &ended);
            let waited = tokio::task::spawn_blocking(wait).await;
            let _admin = node.admin.lock().await;
            if cancelled.load(Ordering::Relaxed) {
                return;
            }
            let attached = match waited {
                Ok(Some(opened)) => node.attach(opened, default, None).await,
                Ok(None) => return,
                Err(_) => failure(FailureKind::Failed, "the thread that waited for it panicked; this is a bug"),
            };
            match attached {
                Ok(_) => log::say!(Notice, volume(name), "I/O of the former process has ended; it is served"),
                Err(failure) => log::say!(Error, about(name), "{}", failure.message),
            }
        });
        remarks
    }

    /// `former`: in whose place it comes, and at whose shard its clients wait. Its turn goes on being the new one's: what is still to be
    /// done for the change ends before another one begins.
    async fn attach(self: &Arc<Node>, opened: Opened, default: bool, former: Option<&Running>) -> Answer<Vec<String>> {
        let Opened {
            volume,
            mut record,
            facts,
            marker_path,
            image,
            preparation,
            journal_place,
            remarks,
            memory_node,
            waits: _,
        } = opened;
        let name = record.name.clone();
        let key = VolumeKey(self.keys.fetch_add(1, Ordering::Relaxed) as u32);
        let shard = former.map_or_else(|| self.emptiest_shard(memory_node), |former| former.shard);
        let opening = Arc::new(Opening::new(volume.backing.as_ref().and_then(Backing::share), image));
        let activity = Arc::new(AtomicU64::new(0));
        let closed = Arc::new(AtomicBool::new(false));
        let prepared = Arc::new(AtomicBool::new(false));
        let (serving, served) = oneshot::channel();
        self.shards[shard].send(ToShard::Attach { key, volume: Box::new(volume), activity: activity.clone(), serving });
        let marker = Arc::new(MarkerFile::new(marker_path));
        let watch = Arc::default();
        let draining = former.map_or_else(Arc::default, |former| former.draining.clone());
        let shown = Arc::default();
        let running =
            Running { shard, key, activity, opening, watch, marker, journal_place, closed, prepared, draining, shown };
        let outcome = match served.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(format!(
                "the tier {} cannot be used: {reason}. Nothing was changed; `forebay inspect` shows what is left of it, \
                 `forebay salvage` copies it out",
                record.tier.path.display()
            )),
            Err(_) => Err("its data-path thread has ended; see the daemon's messages".to_owned()),
        };
        let outcome = match outcome {
            Ok(()) => {
                let before = record.clone();
                record.tier.made = true;
                self.save_both(before, &record, &running).await
            }
            Err(reason) => Err(reason),
        };
        if let Err(reason) = outcome {
            if former.is_some() {
                self.leave_empty(&name, &running).await;
            }
            self.detach(&running).await;
            // Whoever tries again at once finds no lock of this attempt.
            drop(preparation);
            close_files(&name, running).await;
            self.note_failed(&name, &reason);
            return failure(FailureKind::Failed, format!("cannot serve volume {name}: {reason}"));
        }
        let Some(export) = self.export_of(&record, &running).await else {
            return failure(FailureKind::Failed, format!("the data-path thread of volume {name} has ended"));
        };
        self.prepare_backing(&name, &running, preparation);
        let mut entries = self.entries();
        entries.retain(|e| e.facts.name != name);
        self.directory.let_in(&name, record.common.clients.clone());
        let (running, absence, unended) = (Some(running), None, None);
        entries.push(Entry { facts, record, running, absence, unended, activity_seen: 0, changing: None });
        drop(entries);
        self.directory.add(export, default);
        Ok(remarks)
    }

    async fn export_of(&self, record: &Record, running: &Running) -> Option<Export> {
        let snapshot = self.snapshot(running).await?;
        Some(Export {
            name: record.name.clone(),
            size_bytes: snapshot.status.size_bytes,
            request_bytes_max: snapshot.request_bytes_max.min(open::request_bytes_told(record)),
            place: Place::Shard { number: running.shard, key: running.key },
        })
    }

    /// The record and a marker that is not clean: from now on writes may lie in the tier alone.
    async fn save_both(self: &Arc<Node>, before: Record, record: &Record, running: &Running) -> Result<(), String> {
        let Some(snapshot) = self.snapshot(running).await else {
            return Err("its data-path thread has ended; see the daemon's messages".to_owned());
        };
        let (store, record, running) = (self.store.clone(), record.clone(), running.clone());
        let work = move || {
            store.note_boot(&record)?;
            // The marker of another volume, which left the image complete, lets the new tier be used, however it is left now; a
            // marker of this one, before it is recorded that there is a tier, would speak of a tier that is lost.
            let record_first = running.marker.is_of_another(record.volume)?;
            if record_first {
                store.save(&record)?;
            }
            save_marker(&record, &running, &snapshot, Moment::Serving)?;
            if record_first { Ok(()) } else { record_as_made(&store, &before, &record, &running.marker) }
        };
        blocking(work).await
    }

    /// `memory_node`: of those whose memory is on this node.
    fn emptiest_shard(&self, memory_node: Option<NodeNumber>) -> usize {
        let entries = self.entries();
        let on = |shard| entries.iter().filter(|e| e.running.as_ref().is_some_and(|r| r.shard == shard)).count();
        let fits = |shard: &usize| memory_node.is_none() || self.placement.memory_node(*shard) == memory_node;
        // Shard 0 accepts all clients: of two that are equally full it is the second choice.
        let shards = (0..self.shards.len()).rev().filter(fits);
        shards.min_by_key(|&shard| (on(shard), !self.placement.is_home(shard))).expect("the node is that of a shard")
    }

    /// On a thread of its own: waits until no request of an earlier process can land any more (on an NBD export: until none
    /// is expected), then does what is to be done about the journal.
    fn prepare_backing(&self, name: &str, running: &Running, preparation: Preparation) {
        let (shard, running, name) = (self.shards[running.shard].clone(), running.clone(), name.to_owned());
        std::thread::spawn(move || {
            if running.opening.image().await_free(&running.closed) {
                let say = |text| log::say!(Notice, volume(name), "{text}");
                let key = running.key;
                let tell = |step| {
                    shard.send(match step {
                        Step::ReplayBegins => ToShard::ReplayBegins(key),
                        Step::Replayed { through, recorded } => ToShard::JournalReplayed { key, through, recorded },
                        Step::Made(journal) => ToShard::JournalMade { key, journal },
                        Step::BackingReady => ToShard::BackingReady(key),
                    });
                };
                preparation.run(tell, &running.closed, say);
            }
            running.prepared.store(true, Ordering::Release);
        });
    }

    /// Creates a volume, and serves it.
    pub async fn create(self: &Arc<Node>, spec: VolumeSpec, by: NamedBy) -> Answer<VolumeReport> {
        if let Err(error) = spec.check() {
            return failure(FailureKind::Invalid, format!("{error:#}"));
        }
        let name = spec.name.clone();
        match self.cluster() {
            Some(cluster) if spec.peers.is_some() => return cluster.create(&spec, by).await,
            Some(cluster) if cluster.find(&name).is_some() => {
                return failure(FailureKind::Conflict, format!("the cluster has a volume {name} already"));
            }
            None if spec.peers.is_some() => {
                let message = format!(
                    "volume {name}: peers are other nodes, and this node is not part of a cluster: enrol it and name the \
                     cluster in its config ([cluster], docs/cluster.md), or leave --peers out"
                );
                return failure(FailureKind::Invalid, message);
            }
            Some(_) | None => {}
        }
        let backing = config::absolute_spec(&spec.backing);
        self.check_places(&spec, by).await?;
        self.read_again(&name);
        // One that has never served may be asked for again, with what was wrong put right.
        let unmade = |e: &Entry| e.facts.name == name && e.running.is_none() && !e.record.tier.made;
        let clash = |e: &Entry| e.facts.name == name || config::same_backing(&e.facts.backing, &backing);
        if let Some(other) = self.entries().iter().find(|e| clash(e) && !unmade(e)) {
            let same = if other.facts.name == name { "name" } else { "backing" };
            return failure(FailureKind::Conflict, format!("volume {} has that {same} already", other.facts.name));
        }
        let no_progress = |_, _| {};
        for remark in self.open(&name, Some(spec), false, no_progress).await? {
            log::say!(Notice, volume(name), "{remark}");
        }
        self.report(&name).await
    }

    // --- reports ---

    async fn snapshot(&self, running: &Running) -> Option<Snapshot> {
        let (answer, answered) = oneshot::channel();
        self.shards[running.shard].send(ToShard::Snapshot { key: running.key, with_seen: false, answer });
        answered.await.ok()
    }

    /// What is told of one volume.
    pub async fn report(&self, name: &str) -> Answer<VolumeReport> {
        Ok(self.look(name, false).await?.0)
    }

    /// One volume, and what it has measured, where that is asked for and it runs here.
    pub async fn look(&self, name: &str, with_seen: bool) -> Answer<(VolumeReport, Option<Box<Stats>>)> {
        if let Some(cluster) = self.cluster_of(name) {
            return cluster.look(name, with_seen).await;
        }
        let (facts, running, record, absence, changing) = {
            let entries = self.entries();
            let Some(e) = entries.iter().find(|e| e.facts.name == name) else { return no_such_volume(name) };
            (e.facts.clone(), e.running.clone(), e.record.clone(), e.absence.clone(), e.changing)
        };
        if let Some(running) = running
            && let Some(snapshot) =
                if with_seen { self.measured(&running).await } else { self.snapshot(&running).await }
        {
            let mut report =
                crate::status::volume_running(&facts, &record.common, &snapshot, running.watch.displaced());
            running.opening.show_in(&mut report.backing);
            report.tier.changing = changing.map(|progress| progress.shown(snapshot.status.dirty_bytes));
            return Ok((report, snapshot.seen));
        }
        let (phase, problem) = match &absence {
            Some(Absence::Waiting(why, _)) => (VolumePhase::Waiting, why.as_str()),
            Some(Absence::Failed(why) | Absence::Unreadable(why)) => (VolumePhase::Failed, why.as_str()),
            None => (VolumePhase::Failed, "its data-path thread has ended; see the daemon's messages"),
        };
        Ok((crate::status::volume_absent(&facts, &record, phase, problem), None))
    }

    /// All of them, sorted by name.
    pub async fn reports(&self) -> Vec<VolumeReport> {
        let mut names: Vec<String> = self.entries().iter().map(|e| e.facts.name.clone()).collect();
        names.extend(self.cluster().map(|cluster| cluster.names()).unwrap_or_default());
        names.sort();
        let mut reports = Vec::with_capacity(names.len());
        for name in names {
            // One that has just been deleted is left out.
            if let Ok(report) = self.report(&name).await {
                reports.push(report);
            }
        }
        reports
    }

    /// Bound on the daemon's memory: that of its volumes, and everything besides.
    pub fn memory_bytes_max(&self) -> u64 {
        let entries = self.entries();
        self.memory_bytes_besides
            + self.cluster().map_or(0, |cluster| cluster.memory_bytes_max())
            + entries.iter().filter(|e| e.running.is_some()).map(|e| volume_memory(&e.facts)).sum::<u64>()
    }

    /// That part of the bound that is not of volumes.
    pub fn memory_bytes_besides(&self) -> u64 {
        self.memory_bytes_besides
    }

    /// What its doctor has seen of the host.
    pub fn doctor(&self) -> &Arc<Rounds> {
        &self.doctor
    }

    /// What is told of this node and its daemon.
    pub fn node_report(&self) -> NodeReport {
        let (page, no_page) = match self.page.lock().expect("nobody panics while holding it").clone() {
            Page::Nowhere => (None, None),
            Page::At(url) => (Some(url), None),
            Page::Missing(why) => (None, Some(why)),
        };
        NodeReport {
            name: self.telemetry.name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: host_name(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            io_mode: self.io.mode.to_owned(),
            io_why: self.io.why.clone(),
            shards: self.shards.len() as u32,
            memory_bytes_max: self.memory_bytes_max(),
            state: self.store.dir().display().to_string(),
            history: self.telemetry.history_state(),
            doctor: self.doctor.summary(),
            placement: self.placement.report(),
            nbd: self.nbd.clone(),
            page,
            no_page,
            volumes: self.entries().len() as u32 + self.cluster().map_or(0, |cluster| cluster.names().len() as u32),
            not_used: self.cluster().map(|cluster| cluster.not_used()).unwrap_or_default(),
            coordinator: self.cluster().map(|cluster| cluster.coordinator_trouble()).unwrap_or_default(),
            degraded: self.telemetry.latest().degraded.into_iter().filter(|found| found.volume.is_none()).collect(),
        }
    }

    // --- commands ---

    async fn control(&self, name: &str, running: &Running, command: Control) -> Answer<()> {
        let (answer, answered) = oneshot::channel();
        self.shards[running.shard].send(ToShard::Control { key: running.key, command, answer });
        match answered.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(command_failure(name, &error)),
            Err(_) => failure(FailureKind::Failed, format!("volume {name} was closed before it had answered")),
        }
    }

    /// Its turn among drains, holds, growths and changes of the tier, and what runs under its name then.
    async fn turn(&self, name: &str) -> Answer<(Running, tokio::sync::OwnedMutexGuard<()>)> {
        loop {
            let running = self.running(name)?;
            let turn = running.draining.clone().lock_owned().await;
            // A change of the tier puts another one in its place.
            if self.running(name)?.key == running.key {
                return Ok((running, turn));
            }
        }
    }

    /// Destages everything that is in the log now; `through`: and keeps the backing complete until a release.
    pub async fn drain(&self, name: &str, through: bool) -> Answer<VolumeReport> {
        if let Some(cluster) = self.cluster_of(name) {
            return cluster.drain(name, through).await;
        }
        let (running, _turn) = self.turn(name).await?;
        self.require_image_in_place(name, &running).await?;
        let command = if through { Control::DrainThrough } else { Control::Drain };
        self.control(name, &running, command).await?;
        self.require_image_in_place(name, &running).await?;
        self.report(name).await
    }

    /// Drains, then leaves the backing unchanged for at most so long. When the caller goes away before, there is no hold:
    /// nobody would know of it.
    pub async fn hold(&self, name: &str, seconds: u64, mut gone: oneshot::Receiver<()>) -> Answer<VolumeReport> {
        if seconds == 0 || seconds > 7 * 24 * 3600 {
            return failure(
                FailureKind::Invalid,
                format!("volume {name}: a hold lasts from 1 second to 7 days, not {seconds} s"),
            );
        }
        if let Some(cluster) = self.cluster_of(name) {
            return cluster.hold(name, seconds, gone).await;
        }
        let (running, _turn) = self.turn(name).await?;
        self.require_image_in_place(name, &running).await?;
        self.control(name, &running, Control::Hold(Duration::from_secs(seconds))).await?;
        // Only now: a release before it might end another one's hold.
        if gone.try_recv() == Err(oneshot::error::TryRecvError::Closed) {
            let _ = self.control(name, &running, Control::Release).await;
            return failure(FailureKind::Conflict, format!("volume {name}: who asked for the hold has gone away"));
        }
        if let Err(displaced) = self.require_image_in_place(name, &running).await {
            // Whoever is told of a failure copies nothing, and releases nothing.
            let _ = self.control(name, &running, Control::Release).await;
            return Err(displaced);
        }
        self.report(name).await
    }

    /// Ends the hold of a volume's backing.
    pub async fn release(&self, name: &str) -> Answer<VolumeReport> {
        if let Some(cluster) = self.cluster_of(name) {
            return cluster.release(name).await;
        }
        let running = self.running(name)?;
        self.control(name, &running, Control::Release).await?;
        if let Some(text) = running.look_at_image(name).await {
            let message = format!("volume {name}: it is released, but what was copied from its path is void: {text}");
            return failure(FailureKind::Conflict, message);
        }
        self.report(name).await
    }

    /// Grows a volume and its backing.
    pub async fn resize(&self, name: &str, size_bytes: u64) -> Answer<VolumeReport> {
        if let Err(error) = config::check_size(name, size_bytes) {
            return failure(FailureKind::Invalid, format!("{error:#}"));
        }
        let has = self.report(name).await?.size_bytes;
        if size_bytes < has {
            return failure(
                FailureKind::Invalid,
                format!("volume {name} has {} and can only grow; {} is less", show_size(has), show_size(size_bytes)),
            );
        }
        if let Some(cluster) = self.cluster_of(name) {
            return cluster.resize(name, size_bytes).await;
        }
        // A hold that is on its way would begin while the image grows.
        let (running, _turn) = self.turn(name).await?;
        let _admin = self.admin.lock().await;
        if self.snapshot(&running).await.is_some_and(|snapshot| snapshot.status.hold_left.is_some()) {
            return failure(FailureKind::Conflict, format!("volume {name}: {HELD_IMAGE}"));
        }
        // Here and not on the data path, which a file system that is slow would hold up.
        let opening = running.opening.clone();
        if let Err(message) = blocking(move || opening.grow(size_bytes)).await {
            return failure(FailureKind::Failed, format!("volume {name}: {message}"));
        }
        // Before the tier, which a start believes more: what is told as failed has not grown, and what has grown is recorded.
        self.change_record(name, |record| record.size_bytes = size_bytes).await?;
        self.control(name, &running, Control::Resize(size_bytes)).await?;
        self.directory.resize(name, size_bytes);
        self.report(name).await
    }

    async fn detach(&self, running: &Running) {
        running.closed.store(true, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.shards[running.shard].send(ToShard::Detach { key: running.key, answer });
        await_closed(answered).await;
    }

    // --- the end ---

    /// Stops every volume; with `drain` each one destages everything first.
    pub async fn stop(self: &Arc<Node>, drain: bool) -> Stopped {
        let _admin = self.admin.lock().await;
        self.acceptor.send(ToAcceptor::StopListening);
        let running: Vec<(Record, Running)> =
            self.entries().iter().filter_map(|e| Some((e.record.clone(), e.running.clone()?))).collect();
        let stop = |(record, running)| {
            let node = self.clone();
            tokio::spawn(async move { node.stop_one(record, running, drain).await })
        };
        let stops: Vec<_> = running.into_iter().map(stop).collect();
        let mut stopped = Stopped::default();
        if let Some(cluster) = self.cluster() {
            stopped.incomplete.extend(cluster.leave(drain).await);
        }
        let unserved = self.unserved();
        for stop in stops {
            match stop.await {
                Ok(Left::Nothing) => {}
                Ok(Left::Incomplete(what)) => stopped.incomplete.push(what),
                Ok(Left::Displaced(what)) => stopped.displaced.push(what),
                // Whatever it had come to, nobody may take the image for complete.
                Err(panic) => stopped.incomplete.push(format!("a volume's stop broke off ({panic}); this is a bug")),
            }
        }
        stopped.incomplete.extend(self.incomplete_of(unserved).await);
        let last_look = self.cluster().map(|cluster| (cluster.last_look(), cluster));
        for shard in &self.shards {
            shard.send(ToShard::Exit);
        }
        if let Some((last_look, cluster)) = last_look {
            cluster.end_watchdog(last_look).await;
        }
        stopped
    }

    /// Finishes what was taken, but does not wait for ever for a backing that takes nothing: such requests have no
    /// answer, so nobody was promised anything.
    async fn stop_without_drain(&self, name: &str, running: &Running) -> Answer<()> {
        match tokio::time::timeout(STOP_MAX, self.control(name, running, Control::Stop { drain: false })).await {
            Ok(answer) => answer,
            Err(_) => failure(
                FailureKind::Failed,
                format!(
                    "volume {name}: its backing did not answer within {} s, and it was closed without",
                    STOP_MAX.as_secs()
                ),
            ),
        }
    }

    async fn stop_one(self: Arc<Node>, record: Record, running: Running, drain: bool) -> Left {
        let (name, volume) = (record.name.clone(), record.volume.0);
        self.directory.remove(&name);
        // What is destaged into a file that is not at its path any more may be gone with the daemon: the tier keeps it.
        let drain = drain && running.look_at_image(&name).await.is_none();
        let stopped = match drain {
            true => self.control(&name, &running, Control::Stop { drain }).await,
            false => self.stop_without_drain(&name, &running).await,
        };
        let snapshot = self.snapshot(&running).await;
        let complete = snapshot.as_ref().is_some_and(|s| s.status.dirty_bytes == 0 && s.status.phase == Phase::Stopped);
        let mut left = match &stopped {
            Ok(()) if complete => Left::Nothing,
            Ok(()) => {
                let dirty = snapshot.as_ref().map_or(0, |s| s.status.dirty_bytes);
                Left::Incomplete(format!("{name}: {} are still in its tier", show_size(dirty)))
            }
            Err(failure) => Left::Incomplete(failure.message.clone()),
        };
        if let Some(text) = running.look_at_image(&name).await {
            left = Left::Displaced(format!("{name}: {text}"));
        }
        if let Some(snapshot) = snapshot {
            // Clean only if the log was emptied on purpose, the tier says so as well, and the image is where it is looked for.
            let clean = complete && stopped.is_ok() && drain && !matches!(left, Left::Displaced(_));
            let marker = running.clone();
            if let Err(message) =
                blocking(move || save_marker(&record, &marker, &snapshot, Moment::Stopped { clean })).await
            {
                match left {
                    Left::Nothing => left = Left::Incomplete(format!("{name}: {message}")),
                    Left::Incomplete(_) => log::say!(Notice, volume(name), "{message}"),
                    // Of an image that is not at its path, no marker beside it can speak.
                    Left::Displaced(_) => {}
                }
            }
        }
        self.detach(&running).await;
        if matches!(left, Left::Nothing)
            && drain
            && let Ok(path) = running.journal_place.clone()
        {
            // What is done about the journal ends with the volume, and must not make a new one behind our back.
            running.until_prepared().await;
            if let Err(message) = blocking(move || Ok(forebay_io::journal::remove(&path, &volume)?)).await {
                log::say!(Notice, volume(name), "{message}");
            }
        }
        left
    }

    /// What a stop in order has before it.
    pub async fn to_destage(&self) -> ToDestage {
        let reports = self.reports().await;
        let awaits = |report: &&VolumeReport| report.backing.state == BackingState::AwaitingFence;
        ToDestage {
            bytes: reports.iter().map(|r| r.dirty.bytes).sum(),
            seconds: reports.iter().filter(|r| !awaits(r)).filter_map(|r| r.dirty.drain_s).fold(0.0, f64::max),
            await_fences: reports.iter().filter(awaits).map(|report| report.name.clone()).collect(),
        }
    }
}

/// Waits until no request of an earlier process is under way to the backing. None when the wait was cancelled.
fn await_backing(mut opened: Opened, cancelled: &AtomicBool) -> Option<Opened> {
    while !cancelled.load(Ordering::Relaxed) {
        let backing = opened.volume.backing.as_mut().expect("a volume of one node has its backing");
        match backing.try_lock() {
            Ok(LockAttempt::Locked) => return Some(opened),
            Ok(LockAttempt::HeldBy(_)) => std::thread::sleep(LOCK_RETRY),
            Err(error) => {
                log::say!(Error, "cannot lock {}: {error}; trying again", backing.name());
                std::thread::sleep(std::time::Duration::from_secs(1));
            }
        }
    }
    None
}

/// Ends what the control plane has of a volume's files, on a thread that may wait for it.
async fn close_files(name: &str, running: Running) {
    let (ended, end) = oneshot::channel();
    closing::end_then(format!("files of volume {name}"), running, move || {
        // Whoever waits may have gone.
        let _ = ended.send(());
    });
    await_closed(end).await;
}

fn no_such_volume<T>(name: &str) -> Answer<T> {
    failure(FailureKind::NotFound, format!("there is no volume {name}; `forebay volume list` shows those there are"))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> anyhow::Result<T> + Send + 'static) -> Result<T, String> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(format!("{error:#}")),
        Err(_) => Err("a thread of the control plane panicked; this is a bug".to_owned()),
    }
}
