//! Volumes come: one by a command, or all of a start side by side, so that none waits for what another one waits for.
//!
//! Invariants:
//! - Whoever opens a volume has its name, its backing and a place on a shard to himself, from before the opening until it has ended, and
//!   with it what takes back what was made: a command by holding up all other ones, a start by what it has reserved. What is reserved is
//!   given back whatever becomes of it, and by its own end alone.
//! - While a volume is being opened by a start nobody deletes it, and clients that may use it wait for it.
//! - A volume is tried again only as the one that the start has listed as failed: what a command has created, opened, deleted or failed with
//!   under its name since is left alone.
//! - An opening that ends when the volumes are being stopped is given up, as if the daemon had been killed before.
//! - What may wait for a server of images waits on a thread of its own: however many there are, commands have theirs.

use super::failed::Undo;
use super::{Absence, Answer, Entry, Node, OpeningPlace, failure, on_own_thread};
use crate::allowed::NamedBy;
use crate::facts::VolumeFacts;
use crate::failure::FailureKind;
use crate::log;
use crate::open::{self, FirstSteps, Inherited, Opened};
use anyhow::bail;
use forebay_api::config;
use forebay_api::config::volume::VolumeSpec;
use forebay_api::record::Record;
use forebay_host::topology::NodeNumber;
use forebay_io::LockAttempt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Pause between two attempts to lock a backing: each looks through /proc for the holder.
const LOCK_RETRY: Duration = Duration::from_millis(100);
/// Between two looks whether openings have ended.
const OPENINGS_LOOK: Duration = Duration::from_millis(20);
/// Among openings, a command comes after all that have begun.
const NUMBER_OF_COMMANDS: u64 = u64::MAX;

/// What is opened, and what of it is settled before.
struct Asked {
    name: String,
    spec: Option<VolumeSpec>,
    default: bool,
    /// None: the emptiest one when it is open.
    shard: Option<usize>,
    /// Number of the opening.
    number: u64,
    /// It stays in the list when it cannot be opened.
    was_shown: bool,
}

/// The place of a volume that is about to be opened: nobody else opens it, or another one on its backing, until this is dropped.
pub struct Reserved {
    node: Arc<Node>,
    name: String,
    spec: Option<VolumeSpec>,
    default: bool,
    place: OpeningPlace,
    has_record: bool,
    has_served: bool,
    /// It is tried again where it cannot be opened.
    again: bool,
}

/// What there is to be done for a volume that the start could not open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// To try it again.
    Due,
    /// Nothing now: it is being opened, or waits by itself.
    NotNow,
    /// Nothing any more: it is served, gone, or a command has taken its name.
    Over,
}

impl Reserved {
    /// Name of the volume.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// It has served before, as its record says.
    pub fn has_served(&self) -> bool {
        self.has_served
    }

    /// Gives its place in the list back, to what is about to be put there. Clients go on to wait.
    fn leave_list(&self) {
        if let Some(entry) = self.node.entries().iter_mut().find(|e| e.opening == Some(self.place)) {
            entry.opening = None;
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut entries = self.node.entries();
        if let Some(entry) = entries.iter_mut().find(|e| e.opening == Some(self.place)) {
            entry.opening = None;
            if matches!(entry.absence, Some(Absence::Waiting(..))) {
                let why = "its opening was broken off; the daemon's messages say more".to_owned();
                entry.absence = Some(Absence::Failed(why));
            }
            if self.again {
                entry.note_tried_again();
            }
        }
        // Another opening of the name may have begun since this one has left the list.
        if !entries.iter().any(|e| e.facts.name == self.name && e.opening.is_some()) {
            self.node.directory.end_opening(&self.name);
        }
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
        let number = NUMBER_OF_COMMANDS;
        let asked = Asked { name: name.to_owned(), spec, default, shard: None, number, was_shown };
        self.open_and_attach(asked, None, progress).await
    }

    fn refuse_open(&self, name: &str) -> Answer<()> {
        let entries = self.entries();
        match entries.iter().find(|e| e.facts.name == name && e.is_open()) {
            _ if self.stops.load(Ordering::Relaxed) => {
                failure(FailureKind::Conflict, format!("cannot open volume {name}: the daemon is being stopped"))
            }
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
        let Asked { name, spec, default, shard, number, was_shown } = asked;
        let name = name.as_str();
        // Whoever gives volumes to shards meanwhile counts those that are being opened.
        let memory_node = self.placement.memory_node(shard.unwrap_or_else(|| self.emptiest_shard(None)));
        match self.open_blocking(name, spec, number, memory_node, progress).await {
            Ok((opened, _)) if opened.waits.is_some() => Ok(self.attach_later(opened, default, reserved)),
            Ok((opened, steps)) => {
                let undo = Undo { steps: Arc::new(steps), was_shown };
                // It is there until that has ended, and what it has made is taken back where it fails.
                let attached = self.attach(opened, Some(undo), default, shard).await;
                drop(reserved);
                attached
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

    /// On a thread of its own.
    async fn open_blocking(
        self: &Arc<Node>,
        name: &str,
        spec: Option<VolumeSpec>,
        number: u64,
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
            node.refuse_tier_of_another(&name, recorded.as_ref(), spec.as_ref(), number)?;
            let (store, inherited) = (&node.store, Inherited::default());
            let open =
                || open::open(store, recorded, spec.as_ref(), node.shm_size, inherited, &mut steps, &mut progress);
            match node.placement.open(memory_node, open) {
                Ok(opened) => Ok((opened, steps)),
                Err(error) if node.runs(&name) => Err(error),
                Err(error) => Err(steps.take_back_after(store, error)),
            }
        };
        on_own_thread(work).await
    }

    /// Refuses a tier that another volume has, or whose opening had begun before this one: one file or device, whatever paths lead to it.
    fn refuse_tier_of_another(
        &self,
        name: &str,
        recorded: Option<&Record>,
        spec: Option<&VolumeSpec>,
        number: u64,
    ) -> anyhow::Result<()> {
        let asked = spec.and_then(|spec| std::path::absolute(spec.tier_path.as_ref()?).ok());
        let own = self.store.tier_path(name);
        let tier = match recorded.filter(|record| record.tier.made) {
            Some(record) => record.tier.path.clone(),
            None => asked.or_else(|| recorded.map(|record| record.tier.path.clone())).unwrap_or_else(|| own.clone()),
        };
        if tier.as_os_str().is_empty() {
            return Ok(());
        }
        let is_before = |e: &Entry| e.opening.is_none_or(|place| place.number < number);
        let others: Vec<(String, PathBuf)> = {
            let entries = self.entries();
            let others = entries.iter().filter(|e| e.facts.name != name && e.is_open() && is_before(e));
            others.map(|e| (e.facts.name.clone(), PathBuf::from(&e.facts.tier_path))).collect()
        };
        for (other, path) in others {
            // Two of those that Forebay names are two.
            let are_named_by_us = tier == own && path == self.store.tier_path(&other);
            if !are_named_by_us && is_same_place(&tier, &path) {
                bail!(
                    "the tier {} is in use by volume {other}, as {}; give another --tier-path",
                    tier.display(),
                    path.display()
                );
            }
        }
        Ok(())
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
        // From here on whoever deletes it cancels the wait, and whoever serves it keeps the others from coming and going.
        if let Some(reserved) = &reserved {
            reserved.leave_list();
        }
        Entry::absent(opened.facts.clone(), opened.record.clone(), absence).put_into(&mut self.entries());
        let mut remarks = std::mem::take(&mut opened.remarks);
        remarks.push(why);
        let node = self.clone();
        tokio::spawn(async move {
            let ended = cancelled.clone();
            let waited = on_own_thread(move || Ok(await_backing(opened, &ended))).await;
            let _admin = node.admin.lock().await;
            if cancelled.load(Ordering::Relaxed) {
                return;
            }
            let attached = match waited {
                Ok(Some(opened)) => node.attach(opened, None, default, None).await,
                Ok(None) => return,
                Err(why) => {
                    node.note_failed(&name, &why);
                    failure(FailureKind::Failed, format!("cannot serve volume {name}: {why}"))
                }
            };
            match attached {
                Ok(_) => log::say!(Notice, volume(name), "I/O of the former process has ended; it is served"),
                Err(failure) => {
                    log::say!(Error, about(name), "{}", failure.message);
                    if reserved.as_ref().is_some_and(|reserved| reserved.again) {
                        node.note_tried_again(&name);
                    }
                }
            }
            // Clients that have asked for it wait as long as it does.
            drop(reserved);
        });
        remarks
    }

    /// Reserves the place of a volume that the start opens; it is in the list from now on. `again`: and is tried again where it cannot be
    /// opened, also if it cannot be reserved.
    pub async fn reserve(
        self: &Arc<Node>,
        name: &str,
        spec: Option<VolumeSpec>,
        default: bool,
        again: bool,
    ) -> Answer<Reserved> {
        let _admin = self.admin.lock().await;
        self.refuse_open(name)?;
        let reserved = self.reserve_unopened(name, spec, default, again);
        if again && reserved.is_err() {
            self.note_tried_again(name);
        }
        reserved
    }

    /// The same for a volume that the start could not open: none where it is not in the list as that one any more.
    pub async fn reserve_again(
        self: &Arc<Node>,
        name: &str,
        spec: VolumeSpec,
        default: bool,
    ) -> Answer<Option<Reserved>> {
        let _admin = self.admin.lock().await;
        if self.retry(name) != Retry::Due {
            return Ok(None);
        }
        self.refuse_open(name)?;
        let reserved = self.reserve_unopened(name, Some(spec), default, true);
        if reserved.is_err() {
            self.note_tried_again(name);
        }
        reserved.map(Some)
    }

    /// What there is to be done for a volume that the start could not open.
    pub fn retry(&self, name: &str) -> Retry {
        let entries = self.entries();
        match entries.iter().find(|e| e.facts.name == name) {
            Some(entry) if entry.running.is_none() && entry.is_open() => Retry::NotNow,
            Some(entry) if entry.again => Retry::Due,
            Some(_) | None => Retry::Over,
        }
    }

    /// For whoever keeps volumes from coming and going.
    fn reserve_unopened(
        self: &Arc<Node>,
        name: &str,
        spec: Option<VolumeSpec>,
        default: bool,
        again: bool,
    ) -> Answer<Reserved> {
        if default {
            self.directory.await_default(name);
        }
        let (record, has_record) = match self.record_to_open(name, spec.as_ref()) {
            Ok(found) => found,
            Err(error) => {
                let why = format!("cannot open volume {name}: {error:#}");
                if let Some(spec) = &spec {
                    self.show_unreadable(spec, &why);
                }
                return failure(FailureKind::Failed, why);
            }
        };
        // What is opened is what is asked for now; a record that says something else is refused by the opening, or made anew.
        let backing = spec.as_ref().map_or_else(|| record.backing.clone(), |spec| config::absolute_spec(&spec.backing));
        if let Some(other) = self.running_on(&backing) {
            let message = format!("cannot open volume {name}: volume {other} has the backing {backing} already");
            self.show_failed(record, &message);
            return failure(FailureKind::Conflict, message);
        }
        let clients =
            spec.as_ref().map_or_else(|| record.common.clone(), |spec| record.common.with(&spec.into())).clients;
        let place =
            OpeningPlace { number: self.openings.fetch_add(1, Ordering::Relaxed), shard: self.emptiest_shard(None) };
        self.directory.begin_opening(name, clients);
        let has_served = record.tier.made;
        self.list_as_being_opened(record, backing, spec.as_ref(), place);
        Ok(Reserved { node: self.clone(), name: name.to_owned(), spec, default, place, has_record, has_served, again })
    }

    /// The record of a volume that is to be opened, and whether that is written.
    fn record_to_open(&self, name: &str, spec: Option<&VolumeSpec>) -> anyhow::Result<(Record, bool)> {
        match (self.store.load(name)?, spec) {
            (Some(record), _) => Ok((record, true)),
            (None, Some(spec)) => {
                let shown = self.shown_without_record(name);
                Ok((shown.map_or_else(|| open::record_of(&self.store, spec), Ok)?, false))
            }
            (None, None) => bail!("there is no record of it"),
        }
    }

    /// One that is opened again keeps the reason for which that failed before.
    fn list_as_being_opened(&self, record: Record, backing: String, spec: Option<&VolumeSpec>, place: OpeningPlace) {
        let mut entries = self.entries();
        let why = format!(
            "being opened, which takes as long as its backing {backing} and its tier {} do",
            record.tier.path.display()
        );
        let failed_before = entries.iter().find(|e| e.facts.name == record.name).and_then(|e| e.absence.clone());
        let absence = failed_before.unwrap_or_else(|| Absence::Waiting(why, Arc::new(AtomicBool::new(false))));
        let mut facts = VolumeFacts { backing, ..VolumeFacts::of_closed(&record) };
        if let Some(path) = spec.and_then(|spec| std::path::absolute(spec.tier_path.as_ref()?).ok()) {
            facts.tier_path = path.display().to_string();
        }
        let mut entry = Entry::absent(facts, record, absence);
        entry.opening = Some(place);
        entries.retain(|e| e.facts.name != entry.facts.name);
        entries.push(entry);
    }

    /// Opens what was reserved, and serves it. One that fails stays in the list, with the reason. `first` is done before anything else, on
    /// the thread of the opening; where that refuses, nothing is opened.
    pub async fn open_reserved(
        self: &Arc<Node>,
        reserved: Reserved,
        first: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Answer<Vec<String>> {
        let name = reserved.name.clone();
        if let Err(why) = on_own_thread(first).await {
            self.note_failed(&name, &why);
            return failure(FailureKind::Conflict, why);
        }
        if let Some(new) = reserved.spec.as_ref().filter(|_| !reserved.has_record)
            && let Err(why) = self.check_places(new, NamedBy::Here).await
        {
            self.note_failed(&name, &why.message);
            return Err(why);
        }
        let (spec, default) = (reserved.spec.clone(), reserved.default);
        let (shard, number) = (Some(reserved.place.shard), reserved.place.number);
        let asked = Asked { name, spec, default, shard, number, was_shown: true };
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

/// Whether two paths lead to one file or device.
fn is_same_place(one: &Path, other: &Path) -> bool {
    if one == other {
        return true;
    }
    let (Ok(one), Ok(other)) = (std::fs::metadata(one), std::fs::metadata(other)) else { return false };
    match (one.file_type().is_block_device(), other.file_type().is_block_device()) {
        (true, true) => one.rdev() == other.rdev(),
        (_, _) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::config::{DestageName, PolicyName, TierName};
    use forebay_api::record::{STORE_VERSION, TierRecord, VolumeId};

    fn failed(name: &str) -> Entry {
        let record = Record {
            version: STORE_VERSION,
            name: name.into(),
            volume: VolumeId([7; 16]),
            backing: "/x.img".into(),
            size_bytes: 1 << 30,
            policy: PolicyName::Back,
            drain_max_s: 0,
            volatile: false,
            format_raw: false,
            memory_bytes: 64 << 20,
            destage: DestageName::Auto,
            journal_bytes: 0,
            spare: None,
            common: Default::default(),
            tier: TierRecord { kind: TierName::Flash, path: "/t".into(), size_bytes: 1 << 22, made: false },
        };
        Entry::absent(VolumeFacts::of_closed(&record), record, Absence::Failed("why".to_owned()))
    }

    /// Else a second opening begins while the first one takes back what it has made.
    #[test]
    fn an_opening_keeps_its_volume_whatever_is_put_into_the_list_until_its_own_end() {
        let place = OpeningPlace { number: 3, shard: 0 };
        let mut entries = vec![Entry { opening: Some(place), ..failed("vm1") }, failed("vm2")];
        failed("vm1").put_into(&mut entries);
        failed("vm2").put_into(&mut entries);
        let places: Vec<_> = entries.iter().map(|e| (e.facts.name.as_str(), e.opening, e.is_open())).collect();
        assert_eq!(places, [("vm1", Some(place), true), ("vm2", None, false)]);
    }

    #[test]
    fn what_is_put_in_the_place_of_a_volume_that_is_tried_again_is_not() {
        let mut entries = vec![failed("vm1")];
        for _ in 0..2 {
            entries[0].note_tried_again();
        }
        assert!(entries[0].again);
        assert_eq!(entries[0].absence.as_ref().map(Absence::why), Some("why; it is tried again by itself"));
        failed("vm1").put_into(&mut entries);
        assert!(!entries[0].again);
    }

    #[test]
    fn one_file_is_the_same_tier_whatever_path_leads_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a"), "").unwrap();
        std::fs::write(path("b"), "").unwrap();
        std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
        assert!(is_same_place(&path("a"), &path("link")) && is_same_place(&path("none"), &path("none")));
        assert!(!is_same_place(&path("a"), &path("b")) && !is_same_place(&path("a"), &path("none")));
    }
}
