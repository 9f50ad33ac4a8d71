//! The search for proof that former owners of a volume write no more (T6): evidence is looked for, and fences are used, off
//! the data path.
//!
//! Invariants:
//! - Ownership is told of a proof only where `forebay_core::fence` says that the means proves something about that host, and
//!   only of what was looked for or brought about after the own transaction: whoever was slower reads that it is no owner.
//! - A machine is switched off by one attempt at a time, whichever volumes wait for it, and only after a linearizable read of a
//!   record that names this node the owner and the other one unfenced. Seen off once, it proves it for all that had been
//!   unfenced before that was asked for.
//! - Evidence comes first: it costs nobody a machine.
//! - What fails is shown in its own words, and tried again after growing pauses, until the opening of the backing has ended.

use super::control::Cluster;
use super::status::name_of;
use super::watchdog::NotReset;
use crate::coordinator::schema::{Definition, NodeEntry, StoredRecord};
use crate::datapath::driver::Shown;
use crate::datapath::driver::opening::OpeningEnd;
use crate::log;
use crate::names;
use anyhow::{Context, Result, bail};
use forebay_api::cluster::{FenceReport, FormerReport, MeansReport};
use forebay_api::config::fence::FenceConfig;
use forebay_api::record::VolumeId;
use forebay_api::units::show_seconds;
use forebay_core::cluster::{Host, NodeId, Unfenced};
use forebay_core::fence::{Class, LockReach, Means};
use forebay_core::ownership::{Event, Proof};
use forebay_core::types::Term;
use forebay_host::proofs::{Proofs, device_name, fence_name, name_of_device};
use forebay_io::backing::{BackingSpec, OwnerLock, TermLock};
use forebay_io::fence::{Expelled, ReservableDevice, ReservationError, ReservationKey};
use forebay_io::{Backing, LockAttempt};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two looks at a lock.
const LOCK_LOOK: Duration = Duration::from_millis(50);
/// Between two attempts to lock out strangers, which a former owner keeps out until it ends.
const STRANGERS_LOOK: Duration = Duration::from_secs(1);
/// Evidence has so long before a machine is switched off: the lock of a killed process is gone by then.
const EVIDENCE_WAIT: Duration = Duration::from_secs(5);
/// Between two looks whether a former owner says itself that it has ended, while evidence has its time ...
const HEARING_MIN: Duration = Duration::from_secs(1);
/// ... and twice as long after each further one, up to this.
const HEARING_MAX: Duration = Duration::from_secs(10);
/// After the first attempt that failed; twice as long after each further one ...
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// ... up to this.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A node's fence, as this node uses it.
pub struct Fence {
    /// The agent, its options, and how long it may take.
    pub config: FenceConfig,
    /// Held while it is used: when the last attempt was begun that has seen the machine off.
    seen_off: tokio::sync::Mutex<Option<Instant>>,
}

impl Fence {
    /// A fence that has not been used yet.
    pub fn new(config: FenceConfig) -> Fence {
        Fence { config, seen_off: tokio::sync::Mutex::default() }
    }
}

/// By what is looked for proof, each with words of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum By {
    Lock,
    Itself,
    Reservation,
    Watchdog,
    Power,
}

/// A former owner, and why there is no proof for it yet.
#[derive(Clone, Debug)]
pub struct Former {
    /// The former owner, with its term.
    pub unfenced: Unfenced,
    /// For how long it has been looked for.
    pub waiting: Duration,
    /// What each means has said last.
    pub words: Vec<String>,
}

struct Looked {
    former: Unfenced,
    proven: bool,
    words: BTreeMap<By, String>,
}

/// Who else has the backing locked, by the last look.
#[derive(Clone, PartialEq, Eq, Debug)]
enum StrangersSeen {
    /// A former owner keeps them out, and may end.
    MayCome,
    /// Somebody who is no former owner, once.
    One,
    /// Nobody comes any more.
    Out,
    /// It could not be looked at.
    Unknown(String),
}

/// The search of one opening of a backing.
pub struct Search {
    volume: VolumeId,
    begun: Instant,
    /// Of the opening that it is for.
    end: Arc<OpeningEnd>,
    formers: Mutex<Vec<Looked>>,
}

impl Search {
    fn new(volume: VolumeId, unfenced: Vec<Unfenced>, end: Arc<OpeningEnd>) -> Search {
        let looked = |former| Looked { former, proven: false, words: BTreeMap::new() };
        let formers = Mutex::new(unfenced.into_iter().map(looked).collect());
        Search { volume, begun: Instant::now(), end, formers }
    }

    /// Since a moment in which the own take-over was known to be recorded.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn formers(&self) -> std::sync::MutexGuard<'_, Vec<Looked>> {
        self.formers.lock().expect("nobody panics while holding it")
    }

    fn has_ended(&self) -> bool {
        self.end.has_ended()
    }

    fn terms(&self) -> Vec<Term> {
        self.formers().iter().map(|looked| looked.former.term).collect()
    }

    /// Those whom nothing has been proved about.
    fn open(&self) -> Vec<Unfenced> {
        self.formers().iter().filter(|looked| !looked.proven).map(|looked| looked.former).collect()
    }

    /// What a means says; on the daemon's log once.
    fn says(&self, term: Term, by: By, words: String) {
        let mut formers = self.formers();
        let Some(looked) = formers.iter_mut().find(|looked| looked.former.term == term) else { return };
        if looked.words.get(&by) != Some(&words) {
            log::say!(
                Notice,
                volume(names::shown(self.volume)),
                "no proof yet about the owner of term {}: {words}",
                term.0
            );
            looked.words.insert(by, words);
        }
    }

    /// Each former owner without proof, for reports.
    pub fn shown(&self) -> Vec<Former> {
        let waiting = self.begun.elapsed();
        let former = |looked: &Looked| Former {
            unfenced: looked.former,
            waiting,
            words: looked.words.values().cloned().collect(),
        };
        self.formers().iter().filter(|looked| !looked.proven).map(former).collect()
    }
}

/// The backing's device, or why it cannot be reserved.
type Reservable = Arc<Result<ReservableDevice, ReservationError>>;

impl Cluster {
    /// What is known of the search of a volume's last opening here.
    pub(super) fn search(&self, volume: VolumeId) -> Option<Arc<Search>> {
        self.searches.lock().expect("nobody panics while holding it").get(&volume).cloned()
    }

    /// Looks for proof that former owners write no more, until the opening has ended. `shared`: the backing's file, if it is one.
    pub(super) fn begin_fencing(
        self: &Arc<Cluster>,
        definition: &Definition,
        shared: Option<Backing>,
        own: Term,
        unfenced: Vec<Unfenced>,
        end: Arc<OpeningEnd>,
    ) {
        let volume = definition.volume;
        let search = Arc::new(Search::new(volume, unfenced, end));
        self.searches.lock().expect("nobody panics while holding it").insert(volume, search.clone());
        if search.open().is_empty() {
            return;
        }
        // The device that is open, and not what its path leads to later; by an opening of its own, which keeps no lock.
        let file = shared.as_ref().filter(|_| definition.reserves).and_then(Backing::file);
        let device = file.map(|file| Arc::new(ReservableDevice::of(file)));
        // Where locks say something, they say this as well.
        let by_itself = shared.is_none();
        // What lies in a page cache may be written much later than it was taken.
        let past_cache = shared.as_ref().is_none_or(Backing::is_past_cache);
        if let Some(backing) = shared {
            let (cluster, search) = (self.clone(), search.clone());
            std::thread::spawn(move || cluster.watch_locks(&search, backing, own));
        }
        if by_itself {
            tokio::spawn(self.clone().hear_formers(search.clone()));
        }
        tokio::spawn(self.clone().use_fences(search, device, past_cache));
    }

    fn is_proven(&self, search: &Search, term: Term, proof: Proof) {
        for looked in search.formers().iter_mut().filter(|looked| looked.former.term == term) {
            looked.proven = true;
        }
        self.notify(search.volume, Event::Proof(term, proof));
    }

    /// On a thread of its own: looking at a lock may take as long as its file server does. Strangers are kept out by a former owner
    /// as long as that has its locks; from then on by this one, also where nothing proves that the former one writes no more.
    fn watch_locks(&self, search: &Search, mut backing: Backing, own: Term) {
        let about = backing.lock_reach().map(|reach| reach.about);
        let (mut strangers, mut look_again) = (StrangersSeen::MayCome, Instant::now());
        loop {
            let open = search.open();
            if search.has_ended() || (open.is_empty() && strangers == StrangersSeen::Out) {
                return;
            }
            for former in &open {
                let looked = match &about {
                    Ok(about) => self.look_at_lock(&backing, Means::ImageLock(*about), former),
                    Err(error) => Err(format!("what its lock proves cannot be seen: {error}")),
                };
                match looked {
                    Ok(proof) => self.is_proven(search, former.term, proof),
                    Err(why) => search.says(former.term, By::Lock, why),
                }
            }
            if strangers != StrangersSeen::Out && Instant::now() >= look_again {
                look_again = Instant::now() + STRANGERS_LOOK;
                strangers = match (backing.lock_out_strangers(&search.terms()), &strangers) {
                    (Ok(OwnerLock::Alone), _) => StrangersSeen::Out,
                    (Ok(OwnerLock::BesideFormer(_)), _) => StrangersSeen::MayCome,
                    // Seen once it may be the former owner, which has ended since.
                    (Ok(OwnerLock::HeldBy(_)), StrangersSeen::MayCome | StrangersSeen::Unknown(_)) => {
                        StrangersSeen::One
                    }
                    (Ok(OwnerLock::HeldBy(holder)), StrangersSeen::One | StrangersSeen::Out) => {
                        log::say!(
                            Notice,
                            volume(names::shown(search.volume)),
                            "a former owner has left its backing, which {holder} has locked since. Nothing is read or \
                             written any more by what this node knows of the volume, until the backing is free"
                        );
                        return self.notify(search.volume, Event::LockLost(own));
                    }
                    (Err(error), before) => {
                        let words = error.to_string();
                        if *before != StrangersSeen::Unknown(words.clone()) {
                            log::say!(
                                Error,
                                volume(names::shown(search.volume)),
                                "cannot lock its backing against others: {words}; trying again"
                            );
                        }
                        StrangersSeen::Unknown(words)
                    }
                };
            }
            std::thread::sleep(LOCK_LOOK);
        }
    }

    fn look_at_lock(&self, backing: &Backing, means: Means, former: &Unfenced) -> Result<Proof, String> {
        let proof =
            means.proof(&former.host, &self.place.host).map_err(|why| format!("its lock says nothing: {why}"))?;
        match backing.lock_of_term(former.term) {
            Ok(TermLock::Gone) => Ok(proof),
            Ok(TermLock::HeldBy(holder)) => Err(format!("its lock is held by {holder}")),
            Ok(TermLock::Unknown) => Err("the backing has no locks".to_owned()),
            Err(error) => Err(format!("its lock cannot be looked at: {error}")),
        }
    }

    /// Whether former owners are back and say themselves that they have ended: often while evidence has its time.
    async fn hear_formers(self: Arc<Cluster>, search: Arc<Search>) {
        let mut pause = HEARING_MIN;
        loop {
            let unproven = self.unproven(&search).await;
            if unproven.is_empty() {
                return;
            }
            for former in unproven {
                match self.has_said_ended(search.volume, &former).await {
                    Some(Ok(())) => self.is_proven(&search, former.term, Proof::SaidByItself),
                    Some(Err(why)) => search.says(former.term, By::Itself, why),
                    None => {}
                }
            }
            tokio::time::sleep(pause).await;
            if search.elapsed() >= EVIDENCE_WAIT {
                pause = (pause * 2).min(HEARING_MAX);
            }
        }
    }

    /// A reservation at once, a watchdog when its time has come, a machine's power when evidence has had its time.
    async fn use_fences(self: Arc<Cluster>, search: Arc<Search>, device: Option<Reservable>, past_cache: bool) {
        let mut pause = PAUSE_MIN;
        loop {
            let mut reset_in = None;
            for former in self.unproven(&search).await {
                if past_cache {
                    match self.has_been_reset(&search, &former).await {
                        Ok(()) => {
                            self.is_proven(&search, former.term, Proof::Fence);
                            continue;
                        }
                        Err(NotReset::NoWatchdog) => {}
                        Err(NotReset::Unproven(error)) => {
                            search.says(former.term, By::Watchdog, format!("{error:#}"));
                        }
                        Err(NotReset::Waits { node, waits, left }) => {
                            let waits = show_seconds(waits.as_secs_f64());
                            let words = format!("the watchdog of {node} counts {waits} after the own take-over");
                            search.says(former.term, By::Watchdog, words);
                            reset_in = reset_in.into_iter().chain([left]).min();
                        }
                    }
                }
                self.fence_now(&search, device.as_ref(), &former).await;
            }
            if search.has_ended() || self.unproven(&search).await.is_empty() {
                return;
            }
            let evidence_left = EVIDENCE_WAIT.checked_sub(search.begun.elapsed());
            let sleep = evidence_left.unwrap_or(pause);
            tokio::time::sleep(reset_in.map_or(sleep, |left: Duration| left.min(sleep))).await;
            if evidence_left.is_none() {
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }

    /// By what is brought about from here.
    async fn fence_now(&self, search: &Search, device: Option<&Reservable>, former: &Unfenced) {
        let mut fenced = Err(None);
        if let Some(device) = device {
            fenced = self.expel(search, device, former).await.map_err(|error| Some((By::Reservation, error)));
        }
        if fenced.is_err() && search.begun.elapsed() >= EVIDENCE_WAIT {
            let off = self.switch_off_former(search, former).await;
            fenced = off.map_err(|error| Some((By::Power, error)));
        }
        match fenced {
            Ok(()) => self.is_proven(search, former.term, Proof::Fence),
            Err(Some((by, error))) => search.says(former.term, by, format!("{error:#}")),
            Err(None) => {}
        }
    }

    /// Whom neither this search nor ownership by itself (another boot, the operator's word) has a proof about.
    async fn unproven(&self, search: &Search) -> Vec<Unfenced> {
        if search.open().is_empty() || search.has_ended() {
            return Vec::new();
        }
        let Some(shown) = self.show(search.volume).await else { return Vec::new() };
        for looked in search.formers().iter_mut() {
            // Then nobody need look any more.
            looked.proven |= !shown.ownership.unproven.contains(&looked.former);
        }
        search.open()
    }

    /// The record names this node the owner, and the other one unfenced, now.
    pub(super) async fn still_unfenced(&self, search: &Search, former: &Unfenced) -> Result<()> {
        match self.coordinator.record(search.volume).await? {
            StoredRecord::Record(record) if record.owner == self.place.node && record.unfenced.contains(former) => {
                Ok(())
            }
            StoredRecord::Record(_) | StoredRecord::Deleted { .. } => {
                bail!("the record waits for no proof about it any more")
            }
        }
    }

    async fn expel(&self, search: &Search, device: &Reservable, former: &Unfenced) -> Result<()> {
        if let Err(why) = Means::Reservation.proof(&former.host, &self.place.host) {
            bail!("the reservation says nothing: {why}");
        }
        self.still_unfenced(search, former).await?;
        let (own, other) = (ReservationKey::of_node(self.place.node), ReservationKey::of_node(former.node));
        let (device, proofs) = (device.clone(), self.proofs.clone());
        let work = move || -> Result<()> {
            let begun = Instant::now();
            let device = device.as_ref().as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
            let (path, expelled) = (device.path(), device.expel_beside(own, other)?);
            log::say!(Notice, "{other} is expelled from {} ({expelled:?})", path.display());
            if expelled == Expelled::Now {
                keep(&proofs, Means::Reservation, &name_of_device(device), "preempt and abort", begun.elapsed());
            }
            Ok(())
        };
        tokio::task::spawn_blocking(work).await.context("expelling it panicked; this is a bug")?
    }

    async fn switch_off_former(&self, search: &Search, former: &Unfenced) -> Result<()> {
        let (entry, fence) = self.fence_of(former.node, &former.host)?;
        let mut seen_off = fence.seen_off.lock().await;
        if seen_off.is_some_and(|begun| begun > search.begun) {
            return Ok(());
        }
        self.still_unfenced(search, former).await?;
        let begun = Instant::now();
        self.switch_off(&entry, fence, &format!("for volume {}, term {}", names::shown(search.volume), former.term.0))
            .await?;
        *seen_off = Some(begun);
        Ok(())
    }

    /// The fence that reaches the machine on which an owner ran.
    fn fence_of(&self, node: NodeId, host: &Host) -> Result<(NodeEntry, &Fence)> {
        if let Err(why) = Means::PowerOff.proof(host, &self.place.host) {
            bail!("switching it off is no way: {why}");
        }
        let Some(entry) = self.nodes().into_iter().find(|entry| entry.node() == node) else {
            bail!("it is no node of this cluster any more, so no [[fence]] can name it");
        };
        if entry.host().machine != host.machine {
            bail!("it ran on another machine than {} does now, which the [[fence]] of {0} does not reach", entry.name);
        }
        let Some(fence) = self.fences.iter().find(|fence| fence.config.node == entry.name) else {
            bail!("this node has no [[fence]] for {}", entry.name);
        };
        Ok((entry, fence))
    }

    /// Off, and seen to be. Whoever calls has the fence's lock.
    async fn switch_off(&self, entry: &NodeEntry, fence: &Fence, why: &str) -> Result<()> {
        let agent = fence.config.agent()?;
        let (name, by) = (entry.name.clone(), agent.name().to_owned());
        log::say!(Error, "{by} is asked to switch {name} off, {why}");
        let proofs = self.proofs.clone();
        let work = move || -> Result<()> {
            let begun = Instant::now();
            agent.off()?;
            log::say!(Notice, "{name} is off, by {} in {:.1} s", agent.name(), begun.elapsed().as_secs_f64());
            keep(&proofs, Means::PowerOff, &name, agent.name(), begun.elapsed());
            Ok(())
        };
        tokio::task::spawn_blocking(work).await.context("the fence panicked; this is a bug")??;
        let noted = self.note("power-off", None, &format!("{} was switched off by {by}, {why}", entry.name)).await;
        if let Err(error) = noted {
            // It is off all the same.
            log::say!(Error, "the audit log does not have that {} was switched off: {error:#}", entry.name);
        }
        Ok(())
    }

    /// What has to be so before a volume is opened whose last owner was not seen to stop: nobody gets the locks of those
    /// terms any more. They are kept until the returned openings are dropped.
    pub(super) async fn keep_out(&self, definition: &Definition, formers: Vec<Unfenced>) -> Result<Backing> {
        let (gone, kept) = self.locked_out(definition, formers).await?;
        gone.into_iter().for_each(|term| self.notify(definition.volume, Event::Proof(term, Proof::LockGone)));
        Ok(kept)
    }

    /// The terms whose locks prove that nothing of them is under way to the backing any more, and an opening that keeps them out
    /// until it is dropped: one for all, because a device can be claimed once.
    pub(super) async fn locked_out(
        &self,
        definition: &Definition,
        formers: Vec<Unfenced>,
    ) -> Result<(Vec<Term>, Backing)> {
        let (definition, place) = (definition.clone(), self.place.clone());
        let own = place.host;
        let work = move || -> Result<(Vec<Term>, Backing)> {
            let backing = place.open_backing(&definition)?;
            let means = Means::ImageLock(backing.lock_reach()?.about);
            let mut gone = Vec::new();
            for former in formers.iter().filter(|former| means.proof(&former.host, &own).is_ok()) {
                if backing.keep_out(former.term)? == LockAttempt::Locked {
                    gone.push(former.term);
                }
            }
            Ok((gone, backing))
        };
        tokio::task::spawn_blocking(work).await.context("looking at locks panicked; this is a bug")?
    }
}

impl Cluster {
    /// What is shown of a volume's fences.
    pub(super) fn fence_report(&self, definition: &Definition, shown: &Shown) -> FenceReport {
        let nodes = self.nodes();
        let others: Vec<&NodeEntry> = nodes.iter().filter(|entry| entry.node() != self.place.node).collect();
        let reach = self.known().get(&definition.volume).map_or(LockReach::Nobody, |known| known.reach);
        let lock = Means::ImageLock(reach);
        let mut means = Vec::new();
        if definition.reserves {
            let device = BackingSpec::parse(&definition.backing).ok();
            let target = device.as_ref().and_then(BackingSpec::path).map(device_name).unwrap_or_default();
            means.push(self.means_report(Means::Reservation, "every node", None, &target));
        }
        for (entry, words) in others.iter().filter_map(|entry| Some((entry, entry.watchdog.as_ref()?))) {
            let report = self.means_report(Means::Watchdog, &entry.name, Some(&words.identity), &entry.name);
            means.push(MeansReport { last_proven_unix_s: words.proven_unix_s, ..report });
        }
        let of = |entry: &NodeEntry| self.fences.iter().find(|fence| fence.config.node == entry.name);
        for (entry, fence) in others.iter().filter_map(|entry| Some((*entry, of(entry)?))) {
            means.push(self.means_report(Means::PowerOff, &entry.name, Some(&fence.config.agent), &entry.name));
        }
        means.push(self.means_report(lock, "every node", None, ""));
        // About an owner on another host; a lock that only this host sees says nothing of it.
        let of_lock = if reach == LockReach::EveryHost { lock.guarantee().class } else { Class::Detection };
        let has_fence = |entry: &NodeEntry| definition.reserves || of(entry).is_some() || entry.watchdog.is_some();
        let of_node = |entry: &&NodeEntry| if has_fence(entry) { Class::Fence } else { of_lock };
        let class = others.iter().map(of_node).min().unwrap_or(of_lock);
        let unproven = &shown.ownership.unproven;
        let formers = self.search(definition.volume).map(|search| search.shown()).unwrap_or_default();
        let waiting = formers.iter().filter(|former| unproven.contains(&former.unfenced));
        let former = |former: &Former| FormerReport {
            term: former.unfenced.term.0,
            node: name_of(&nodes, former.unfenced.node),
            waiting_s: former.waiting.as_secs_f64(),
            why: former.words.clone(),
        };
        FenceReport {
            class: class.name().to_owned(),
            allows: class.allows().to_owned(),
            means,
            former: waiting.map(former).collect(),
        }
    }

    fn means_report(&self, means: Means, of: &str, by: Option<&str>, target: &str) -> MeansReport {
        let guarantee = means.guarantee();
        let name = match means {
            Means::Reservation | Means::PowerOff | Means::Watchdog => fence_name(means),
            Means::ImageLock(_) => "image-lock",
            Means::OtherBoot => "other-boot",
            Means::Lease => "lease",
        };
        // A damaged file of proofs is told by `fence-check --list`; here the fence counts as not proven.
        let last = match guarantee.class {
            Class::Fence => self.proofs.last(name, target).ok().flatten(),
            Class::Evidence | Class::Detection => None,
        };
        MeansReport {
            means: name.to_owned(),
            of: of.to_owned(),
            by: by.map(str::to_owned),
            class: guarantee.class.name().to_owned(),
            proves: guarantee.proves.to_owned(),
            leaves: guarantee.leaves.to_owned(),
            last_proven_unix_s: last.map(|proof| proof.proven_unix_s),
        }
    }
}

/// What was brought about is a proof of the fence, too. Whoever waits for it does not wait for the file.
pub(super) fn keep(proofs: &Proofs, means: Means, target: &str, by: &str, took: Duration) {
    let kept = proofs.prepare().and_then(|()| proofs.keep(means, target, by, took));
    if let Err(error) = kept {
        log::say!(Error, "when the fence of {target} was last proven is not kept: {error:#}");
    }
}
