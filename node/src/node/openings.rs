//! Volumes come: one by a command, or all of a start side by side, so that none waits for what another one waits for.
//!
//! Invariants:
//! - Whoever opens a volume has its name, its backing and a place on a shard to himself, from before the opening until it has ended:
//!   a command by holding up all other ones, a start by what it has reserved. What is reserved is given back whatever becomes of it.
//! - While a volume is being opened by a start nobody deletes it, and clients that may use it wait for it.
//! - An opening that ends when the volumes are being stopped is given up, as if the daemon had been killed before.

use super::markers::MarkerFile;
use super::{Absence, Answer, Entry, Node, blocking, failure};
use crate::allowed::NamedBy;
use crate::facts::VolumeFacts;
use crate::failure::FailureKind;
use crate::log;
use crate::open::{self, FirstSteps, Inherited, Opened};
use forebay_api::config;
use forebay_api::config::volume::VolumeSpec;
use forebay_api::record::Record;
use forebay_host::topology::NodeNumber;
use forebay_io::LockAttempt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two attempts to lock a backing: each looks through /proc for the holder.
const LOCK_RETRY: Duration = Duration::from_millis(100);
/// Between two looks whether openings have ended.
const OPENINGS_LOOK: Duration = Duration::from_millis(20);

/// What is opened, and what of it is settled before.
struct Asked {
    name: String,
    spec: Option<VolumeSpec>,
    default: bool,
    /// None: the emptiest one when it is open.
    shard: Option<usize>,
    /// It stays in the list when it cannot be opened.
    was_shown: bool,
}

/// The place of a volume that is about to be opened: nobody else opens it, or another one on its backing, until this is dropped.
pub struct Reserved {
    node: Arc<Node>,
    name: String,
    spec: Option<VolumeSpec>,
    default: bool,
    shard: usize,
    has_record: bool,
}

impl Reserved {
    /// Name of the volume.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut entries = self.node.entries();
        // Whoever has come to an end with it has put another entry in the place of this one.
        if let Some(entry) = entries.iter_mut().find(|e| e.facts.name == self.name)
            && entry.opening.take().is_some()
            && matches!(entry.absence, Some(Absence::Waiting(..)))
        {
            let why = "its opening was broken off; the daemon's messages say more".to_owned();
            entry.absence = Some(Absence::Failed(why));
        }
        drop(entries);
        self.node.directory.end_opening(&self.name);
    }
}

impl Node {
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
        self.refuse_open(name)?;
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
        let was_shown = self.entries().iter().any(|e| e.facts.name == name);
        let asked = Asked { name: name.to_owned(), spec, default, shard: None, was_shown };
        self.open_and_attach(asked, None, progress).await
    }

    fn refuse_open(&self, name: &str) -> Answer<()> {
        let entries = self.entries();
        match entries.iter().find(|e| e.facts.name == name && e.is_open()) {
            Some(entry) if entry.opening.is_some() => {
                failure(FailureKind::Conflict, format!("volume {name} is being opened; `forebay volume list` shows it"))
            }
            Some(_) => failure(FailureKind::Conflict, format!("volume {name} is there already")),
            None => Ok(()),
        }
    }

    async fn open_and_attach(
        self: &Arc<Node>,
        asked: Asked,
        reserved: Option<Reserved>,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Answer<Vec<String>> {
        let Asked { name, spec, default, shard, was_shown } = asked;
        let name = name.as_str();
        // Whoever gives volumes to shards meanwhile counts those that are being opened.
        let memory_node = self.placement.memory_node(shard.unwrap_or_else(|| self.emptiest_shard(None)));
        match self.open_blocking(name, spec, memory_node, progress).await {
            Ok((opened, _)) if opened.waits.is_some() => Ok(self.attach_later(opened, default, reserved)),
            Ok((opened, steps)) => {
                let marker = MarkerFile::of_opened(&opened, steps.has_begun());
                match self.attach(opened, marker.clone(), default, shard).await {
                    Err(failed) => Err(self.take_back(name, (steps, marker), was_shown, failed).await),
                    attached => attached,
                }
            }
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
    fn attach_later(self: &Arc<Node>, mut opened: Opened, default: bool, reserved: Option<Reserved>) -> Vec<String> {
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
            // Clients that ask for it wait as long as it does.
            let _reserved = reserved;
            let ended = cancelled.clone();
            let wait = move || await_backing(opened, &ended);
            let waited = tokio::task::spawn_blocking(wait).await;
            let _admin = node.admin.lock().await;
            if cancelled.load(Ordering::Relaxed) {
                return;
            }
            let attached = match waited {
                Ok(Some(opened)) => {
                    let marker = MarkerFile::of_opened(&opened, false);
                    node.attach(opened, marker, default, None).await
                }
                Ok(None) => return,
                Err(_) => {
                    let message = "the thread that waited for it panicked; this is a bug";
                    node.note_failed(&name, message);
                    failure(FailureKind::Failed, format!("cannot serve volume {name}: {message}"))
                }
            };
            match attached {
                Ok(_) => log::say!(Notice, volume(name), "I/O of the former process has ended; it is served"),
                Err(failure) => log::say!(Error, about(name), "{}", failure.message),
            }
        });
        remarks
    }

    /// Reserves the place of a volume that the start opens; it is in the list from now on. `again`: it is one that could not be opened
    /// before, and none is reserved where it is not in the list any more, or was opened meanwhile.
    pub async fn reserve(
        self: &Arc<Node>,
        name: &str,
        spec: Option<VolumeSpec>,
        default: bool,
        again: bool,
    ) -> Answer<Option<Reserved>> {
        let _admin = self.admin.lock().await;
        let is_failed = |e: &Entry| e.facts.name == name && !e.is_open();
        if again && !self.entries().iter().any(is_failed) {
            return Ok(None);
        }
        self.refuse_open(name)?;
        let unreadable = |error: anyhow::Error| format!("cannot open volume {name}: {error:#}");
        let recorded = self.store.load(name).map_err(unreadable);
        let has_record = recorded.as_ref().is_ok_and(Option::is_some);
        let record = match (recorded, &spec) {
            (Ok(Some(record)), _) => Ok(record),
            (Ok(None), Some(spec)) => match self.shown_without_record(name) {
                Some(shown) => Ok(shown),
                None => open::record_of(&self.store, spec).map_err(unreadable),
            },
            (Ok(None), None) => Err(format!("cannot open volume {name}: there is no record of it")),
            (Err(why), _) => Err(why),
        };
        if default {
            self.directory.await_default(name);
        }
        let record = match record {
            Ok(record) => record,
            Err(why) => return failure(FailureKind::Failed, why),
        };
        let backing = spec.as_ref().map_or(&record.backing, |spec| &spec.backing);
        if let Some(other) = self.running_on(&config::absolute_spec(backing)) {
            let message = format!("cannot open volume {name}: volume {other} has the backing {backing} already");
            self.show_failed(record, &message);
            return failure(FailureKind::Conflict, message);
        }
        let shard = self.emptiest_shard(None);
        let clients =
            spec.as_ref().map_or_else(|| record.common.clone(), |spec| record.common.with(&spec.into())).clients;
        self.directory.begin_opening(name, clients);
        self.list_as_being_opened(record, shard);
        Ok(Some(Reserved { node: self.clone(), name: name.to_owned(), spec, default, shard, has_record }))
    }

    /// One that is opened again keeps the reason for which that failed before.
    fn list_as_being_opened(&self, record: Record, shard: usize) {
        let mut entries = self.entries();
        if let Some(entry) = entries.iter_mut().find(|e| e.facts.name == record.name) {
            entry.opening = Some(shard);
            return;
        }
        let why = format!(
            "being opened, which takes as long as its backing {} and its tier {} do",
            record.backing,
            record.tier.path.display()
        );
        let absence = Absence::Waiting(why, Arc::new(AtomicBool::new(false)));
        let mut entry = Entry::absent(VolumeFacts::of_closed(&record), record, absence);
        entry.opening = Some(shard);
        entries.push(entry);
    }

    /// Opens what was reserved, and serves it. One that fails stays in the list, with the reason.
    pub async fn open_reserved(
        self: &Arc<Node>,
        reserved: Reserved,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Answer<Vec<String>> {
        let name = reserved.name.clone();
        if let Some(new) = reserved.spec.as_ref().filter(|_| !reserved.has_record)
            && let Err(why) = self.check_places(new, NamedBy::Here).await
        {
            self.note_failed(&name, &why.message);
            return Err(why);
        }
        let (spec, default, shard) = (reserved.spec.clone(), reserved.default, Some(reserved.shard));
        let asked = Asked { name, spec, default, shard, was_shown: true };
        self.open_and_attach(asked, Some(reserved), progress).await
    }

    /// Waits until no start is opening a volume, of this name or at all; false when that takes too long.
    async fn until_not_opened(&self, name: Option<&str>, time: Duration) -> bool {
        let until = Instant::now() + time;
        let is_meant = |e: &Entry| e.opening.is_some() && name.is_none_or(|name| e.facts.name == name);
        while self.entries().iter().any(is_meant) {
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(OPENINGS_LOOK).await;
        }
        true
    }

    /// Waits until no volume is being opened by a start, or for so long.
    pub(super) async fn until_none_is_opened(&self, time: Duration) {
        self.until_not_opened(None, time).await;
    }

    /// Keeps volumes from coming and going, when no start is opening this one: refused where that takes longer than so long.
    pub(super) async fn admin_of_unopened(
        &self,
        name: &str,
        time: Duration,
    ) -> Answer<tokio::sync::MutexGuard<'_, ()>> {
        let is_over = self.until_not_opened(Some(name), time).await;
        let admin = self.admin.lock().await;
        // No start begins to open it while that is held.
        if is_over && self.until_not_opened(Some(name), Duration::ZERO).await {
            return Ok(admin);
        }
        let message =
            format!("volume {name} is being opened; ask again when that has ended, as `forebay volume show` tells");
        failure(FailureKind::Conflict, message)
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
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }
    None
}
