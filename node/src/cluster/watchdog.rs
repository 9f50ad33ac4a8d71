//! This machine's watchdog: armed before it is announced, fed while nothing here can outlive a lease, and disarmed when all has been
//! given up. And a successor's count about another machine's. `forebay_core::watchdog` says how long; docs/protocol.md, Watchdog, has
//! the rules H1 to H4.
//!
//! Invariants:
//! - It is fed by a thread of its own, each time after an answer of the data path's thread: one that hangs is not fed for.
//! - A process feeds what a killed one before it has left counting only when that one's writes have ended (H4). Where that cannot
//!   be seen it leaves the machine to be reset.
//! - Another machine's counts by a linearizable read of what its node has announced, begun after the own take-over.

use super::control::Cluster;
use super::fencing::Search;
use crate::coordinator::schema::{Definition, WatchdogDefinition};
use crate::coordinator::{Error, Registered};
use crate::datapath::driver::{Late, ToDriver};
use crate::datapath::mailbox::{ShardHandle, ToShard};
use crate::log;
use anyhow::{Context, Result, anyhow, bail};
use forebay_api::checked::Line;
use forebay_api::config::watchdog::WatchdogConfig;
use forebay_api::units::show_seconds;
use forebay_core::cluster::{Host, Unfenced};
use forebay_core::fence::{LockReach, Means};
use forebay_core::types::{Duration, Term};
use forebay_core::watchdog::{Feeding, counts_after};
use forebay_io::backing::TermLock;
use forebay_io::clock;
use forebay_io::durable::write_atomically;
use forebay_io::fence::Watchdog;
use forebay_io::fence::watchdog::{Looked, look};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration as Time;
use tokio::sync::oneshot;

/// Between two attempts at what does not answer.
const RETRY: Time = Time::from_secs(1);
/// Between two looks at a lock.
const LOCK_LOOK: Time = Time::from_millis(50);
/// So many feeds fall into the timer.
const FEEDS: u64 = 8;

/// A device that takes longer to be armed does not answer; the end of the daemon does not wait for that.
const ARMING_MAX: Time = Time::from_secs(5);

/// What this node has to do with its own watchdog.
pub(super) struct OwnWatchdog {
    /// No process of this boot before this one may still have writes under way: there was none, it ended in order, or its locks
    /// have shown it.
    former_has_ended: AtomicBool,
    /// Where that is kept.
    boot_file: PathBuf,
    /// By which who feeds it is told to disarm it.
    armed: Mutex<Option<Sender<oneshot::Sender<Result<()>>>>>,
    /// Held while it is armed, which then is known before the daemon ends. True: the daemon ends, and nothing is armed any more.
    ends: tokio::sync::Mutex<bool>,
}

impl OwnWatchdog {
    /// Notes durably that a process runs in this boot, before it can own anything.
    pub(super) fn begin(state: &Path, host: &Host) -> Result<OwnWatchdog> {
        let boot_file = state.join("cluster").join("boot");
        let boot = format!("{:032x}", u128::from_be_bytes(host.boot));
        let former_process = std::fs::read_to_string(&boot_file).is_ok_and(|text| text == boot);
        write_atomically(&boot_file, boot.as_bytes())?;
        let former_has_ended = AtomicBool::new(!former_process);
        Ok(OwnWatchdog { former_has_ended, boot_file, armed: Mutex::default(), ends: tokio::sync::Mutex::default() })
    }
}

impl Cluster {
    /// Arms it, has it fed, and announces it. What fails is said, and then nobody counts on it.
    pub(super) async fn use_watchdog(self: Arc<Cluster>, config: WatchdogConfig) {
        let device = config.device.display();
        match self.try_watchdog(&config).await {
            Ok(words) => log::say!(
                Notice,
                "the watchdog {device} ({}) is armed: whatever outlives the lease of an owner here by {} dies with this \
                 machine",
                words.identity,
                show_seconds(words.resets_within_ms as f64 / 1e3)
            ),
            Err(error) => {
                log::say!(Warning, "the watchdog {device} is no fence for this node: {error:#}");
            }
        }
    }

    async fn try_watchdog(&self, config: &WatchdogConfig) -> Result<WatchdogDefinition> {
        if !self.own_watchdog.former_has_ended.load(Ordering::Acquire) {
            self.await_former_process().await?;
            self.own_watchdog.former_has_ended.store(true, Ordering::Release);
        }
        let ends = self.own_watchdog.ends.lock().await;
        if *ends {
            bail!("the daemon ends");
        }
        let asked = config.clone();
        let arm = move || -> Result<(Looked, Watchdog, Feeding)> {
            let looked = look(&asked.device)?;
            let watchdog = Watchdog::arm(&asked.device, asked.timeout_s)?;
            match asked.feeding(watchdog.timeout()) {
                Ok(feeding) => Ok((looked, watchdog, feeding)),
                Err(error) => {
                    watchdog.disarm()?;
                    Err(error)
                }
            }
        };
        let armed = tokio::task::spawn_blocking(arm).await.context("arming it panicked; this is a bug")?;
        let (looked, watchdog, feeding) = armed?;
        let (stop, stopped) = channel();
        let shard = self.shard.clone();
        let feeder = std::thread::Builder::new().name("watchdog".to_owned());
        feeder.spawn(move || feed(watchdog, feeding, &shard, &stopped)).context("cannot start a thread")?;
        *self.own_watchdog.armed.lock().expect("nobody panics while holding it") = Some(stop);
        drop(ends);
        let words = WatchdogDefinition {
            proven_unix_s: self.last_reset(&config.device, &looked),
            identity: Line::of(&looked.identity),
            resets_within_ms: feeding.resets_within().0.div_ceil(1_000_000),
        };
        self.registration.change(|entry| entry.watchdog = Some(words.clone()));
        self.announce().await?;
        Ok(words)
    }

    /// When it has reset this machine last, as far as that is known; kept, because the hardware forgets it with the next start.
    fn last_reset(&self, device: &Path, looked: &Looked) -> Option<u64> {
        let target = device.display().to_string();
        let kept = || Some(self.proofs.last("watchdog", &target).ok()??.proven_unix_s);
        let started = std::time::SystemTime::now().checked_sub(Time::from_nanos(clock::now().0))?;
        let started = started.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
        if looked.has_reset && kept().is_none_or(|proven| proven < started) {
            super::fencing::keep(&self.proofs, Means::Watchdog, &target, &looked.identity, Time::ZERO);
        }
        kept()
    }

    async fn announce(&self) -> Result<()> {
        loop {
            match self.register().await {
                Ok(Registered::Done) => return Ok(()),
                Ok(Registered::NameTaken(_) | Registered::NumberTaken(_)) => {
                    bail!("this node's name or number is another one's now")
                }
                Err(Error::Revoked(why)) => bail!(why),
                Ok(Registered::Unknown(_)) | Err(_) => tokio::time::sleep(RETRY).await,
            }
        }
    }

    /// Until the writes of a killed process of this node have ended (H4).
    async fn await_former_process(&self) -> Result<()> {
        let definitions = loop {
            match self.coordinator.definitions().await {
                Ok(definitions) => break definitions,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        };
        for definition in definitions {
            if let Some(term) = self.place.owned_term(definition.volume)? {
                self.await_end_of_term(&definition, term).await?;
            }
        }
        Ok(())
    }

    async fn await_end_of_term(&self, definition: &Definition, term: Term) -> Result<()> {
        let mut told = false;
        loop {
            let (looked, place) = (definition.clone(), self.place.clone());
            let look = move || -> Result<(LockReach, TermLock)> {
                let backing = place.open_backing(&looked)?;
                Ok((backing.lock_reach()?.about, backing.lock_of_term(term)?))
            };
            let why = match tokio::task::spawn_blocking(look).await.context("a look at a lock panicked")? {
                Ok((LockReach::EveryHost | LockReach::ThisHost, TermLock::Gone)) => return Ok(()),
                Ok((LockReach::EveryHost | LockReach::ThisHost, TermLock::HeldBy(holder))) => {
                    format!("{holder} has the lock of term {}", term.0)
                }
                Ok((LockReach::Nobody, _) | (_, TermLock::Unknown)) => bail!(
                    "a process of this node was killed since this machine was started, and the locks of the backing of volume {} \
                     do not tell whether its writes have ended; this is so until the machine is started anew",
                    definition.name
                ),
                Err(error) => format!("{error:#}"),
            };
            if !std::mem::replace(&mut told, true) {
                log::say!(
                    Error,
                    volume(definition.name),
                    "the watchdog waits for the end of writes of a killed process to its backing: {why}"
                );
            }
            tokio::time::sleep(LOCK_LOOK).await;
        }
    }

    /// The last question to the data path before it ends. Nothing is begun there between the answer and that end.
    pub fn last_look(&self) -> oneshot::Receiver<Late> {
        let (answer, answered) = oneshot::channel();
        self.mail(ToDriver::LateWrites { answer });
        answered
    }

    /// The daemon ends: where nothing is owned here and nothing is under way, the watchdog is disarmed (H4).
    pub async fn end_watchdog(&self, last_look: oneshot::Receiver<Late>) {
        // To arm it takes a moment. What is armed behind our back would reset a machine whose daemon ended in order.
        if let Ok(mut ends) = tokio::time::timeout(ARMING_MAX, self.own_watchdog.ends.lock()).await {
            *ends = true;
        }
        let rests = last_look.await.is_ok_and(|late| late.leases_end.is_none() && !late.owns);
        let armed = self.own_watchdog.armed.lock().expect("nobody panics while holding it").take();
        if !rests {
            if armed.is_some() {
                log::say!(
                    Notice,
                    "the watchdog stays armed, because a volume is still owned here: this machine is reset unless the \
                     daemon is started again in time"
                );
            }
            return;
        }
        // The next process need not look for the writes of this one; for those of one before it, unless they were seen to have ended.
        if self.own_watchdog.former_has_ended.load(Ordering::Acquire)
            && let Err(error) = std::fs::remove_file(&self.own_watchdog.boot_file)
        {
            log::say!(Error, "cannot remove {}: {error}", self.own_watchdog.boot_file.display());
        }
        let Some(stop) = armed else { return };
        let (answer, answered) = oneshot::channel();
        let disarmed = match stop.send(answer) {
            Ok(()) => answered.await.unwrap_or_else(|_| Err(anyhow!("who feeds it has ended"))),
            Err(_) => Err(anyhow!("who feeds it has ended")),
        };
        if let Err(error) = disarmed {
            log::say!(Error, "the watchdog stays armed: {error:#}");
        }
    }

    /// H3: whether the machine of a former owner has certainly been reset, or has nothing of it under way.
    pub(super) async fn has_been_reset(&self, search: &Search, former: &Unfenced) -> Result<(), NotReset> {
        let nodes = self.coordinator.nodes().await?;
        let entry = nodes.into_iter().find(|entry| entry.node() == former.node);
        let Some((entry, words)) = entry.and_then(|entry| Some((entry.clone(), entry.watchdog?))) else {
            return Err(NotReset::NoWatchdog);
        };
        if let Err(why) = Means::Watchdog.proof(&former.host, &self.place.host) {
            return Err(anyhow!("its watchdog says nothing: {why}").into());
        }
        if entry.host().machine != former.host.machine {
            return Err(anyhow!("its watchdog says nothing: {} is on another machine now", entry.name).into());
        }
        let waits = counts_after(self.place.timing.lease, Duration::from_millis(words.resets_within_ms));
        let waits = Time::from_nanos(waits.0);
        let left = waits.saturating_sub(search.elapsed());
        // Under another boot id it is seen to have been reset.
        if entry.host() == former.host && !left.is_zero() {
            return Err(NotReset::Waits { node: entry.name.into(), waits, left });
        }
        Ok(self.still_unfenced(search, former).await?)
    }
}

/// Why a watchdog proves nothing.
#[derive(Debug)]
pub(super) enum NotReset {
    /// That node has no watchdog, as far as the cluster knows.
    NoWatchdog,
    /// There is no proof by it.
    Unproven(anyhow::Error),
    /// It will prove it; only time is missing.
    Waits {
        /// Name of the node whose watchdog it is.
        node: String,
        /// From the own take-over on.
        waits: Time,
        /// How much of that wait is left.
        left: Time,
    },
}

impl<E: Into<anyhow::Error>> From<E> for NotReset {
    fn from(error: E) -> NotReset {
        NotReset::Unproven(error.into())
    }
}

/// Until it is told to disarm, or the data path has ended.
fn feed(watchdog: Watchdog, feeding: Feeding, shard: &ShardHandle, stopped: &Receiver<oneshot::Sender<Result<()>>>) {
    let period = Time::from_nanos(watchdog.timeout().0 / FEEDS);
    let mut fed = true;
    loop {
        match stopped.recv_timeout(period) {
            Ok(answer) => {
                // Whoever asked may have gone.
                let _ = answer.send(watchdog.disarm().map_err(anyhow::Error::from));
                return;
            }
            Err(RecvTimeoutError::Timeout) => {}
            // The daemon ends, and has not given up everything.
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let (answer, answered) = oneshot::channel();
        shard.send(ToShard::Cluster(Box::new(ToDriver::LateWrites { answer })));
        let Ok(late) = answered.blocking_recv() else { continue };
        // The look at the clock is the last thing before it.
        let may = clock::now() < feeding.fed_until(late.at, late.leases_end.into_iter());
        let done = if may { watchdog.feed().map_err(|error| error.to_string()) } else { Ok(()) };
        let why = match (&done, may) {
            (Err(error), _) => Some(error.clone()),
            (Ok(()), false) => Some("a write to a backing has outlived its lease for too long".to_owned()),
            (Ok(()), true) => None,
        };
        if let Some(why) = why.as_ref().filter(|_| fed) {
            let timeout = show_seconds(watchdog.timeout().as_secs_f64());
            log::say!(Error, "the watchdog is not fed, and resets this machine within {timeout}: {why}");
        }
        fed = why.is_none();
    }
}
