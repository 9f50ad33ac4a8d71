//! A data-path thread: the loop that ties the world's completions to core's events and core's effects to the world.
//!
//! ```text
//! wait -> completions, readiness, mail -> events -> Volume::handle
//!      -> of each volume touched: settle, then its effects -> devices, replies, answers -> more events
//!      -> of each connection touched: replies leave in as few calls as possible
//! ```
//!
//! Invariants:
//! - A volume, its devices and its connections live on one shard; nothing of them is shared or locked.
//! - Only what was touched, or whose time has come, is looked at: a round costs nothing for idle volumes.
//! - The shard decides nothing about data: it carries out effects in the order in which core gives them.
//!
//! Clients before and after their choice of an export are in [`clients`]; opening volumes and everything that may
//! block is the control plane's (`node`, `open`).

mod clients;

use crate::datapath::directory::{Directory, Place};
use crate::datapath::driver::{Desks, Driver, Outgoing, ToDriver};
use crate::datapath::forward::ToForwarder;
use crate::datapath::mailbox::{CommandError, OpeningStep, ShardHandle, Snapshot, ToShard, VolumeKey};
use crate::datapath::seats::Seat;
use crate::log;
use crate::names;
use crate::open::OpenVolume;
use crate::placement::Placement;
use anyhow::{Context, Result};
pub use clients::Clients;
use clients::Parking;
use forebay_api::config::IoChoice;
use forebay_api::record::VolumeId;
use forebay_core::Volume;
use forebay_core::api::{Control, Effect, Event};
use forebay_core::status::Phase;
use forebay_core::types::{ControlId, Instant, Lsn};
use forebay_front::nbd::channel::Channel;
use forebay_front::nbd::connection::Packed;
use forebay_front::nbd::handshake::Negotiated;
use forebay_io::{
    Backing, Completion, Executed, Journal, Mode, ModeChoice, Reactor, VolumeIo, backing_socket_volume, clock, closing,
    volume_of,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;

/// Turns of the cluster's part in one round: an acknowledgement of a peer answers a client within the round.
const DRIVER_TURNS_MAX: usize = 8;
/// Times that a volume decides anew in one turn because something was done at once: a chain of writes to one block, thousands long,
/// leaves the others their turns.
const DONE_AT_ONCE_MAX: usize = 64;
const LINKS_ARE_HERE: &str = "a cluster's volume is where its links are";

/// What a shard says of its I/O when it starts.
#[derive(Clone, Debug)]
pub struct IoReport {
    /// How it does its I/O: `uring` or `threads`.
    pub mode: &'static str,
    /// Why it does its I/O in that way.
    pub why: String,
}

/// Starts a shard's thread and waits until its reactor works.
pub fn spawn(
    number: usize,
    io: IoChoice,
    directory: Arc<Directory>,
    placement: Arc<Placement>,
) -> Result<(ShardHandle, IoReport, std::thread::JoinHandle<()>)> {
    let (started, start) = mpsc::channel();
    let choice = match io {
        IoChoice::Auto => ModeChoice::Auto,
        IoChoice::Uring => ModeChoice::Uring,
        IoChoice::Threads => ModeChoice::Threads,
    };
    let body = move || {
        declare_io_flusher();
        if let Err(error) = closing::never_block_this_thread() {
            return drop(started.send(Err(error)));
        }
        // Before it has made anything: what a thread touches and starts is where it is.
        placement.take_seat(number);
        let reactor = match Reactor::new(choice) {
            Ok(reactor) => reactor,
            Err(error) => return drop(started.send(Err(error))),
        };
        placement.seat_workers(number, &reactor);
        let mode = match reactor.mode() {
            Mode::Uring => "uring",
            Mode::Threads => "threads",
        };
        let report = IoReport { mode, why: reactor.why().to_owned() };
        let (sender, mail) = mpsc::channel();
        let works = Arc::new(AtomicU64::new(0));
        let handle = ShardHandle::new(sender, reactor.waker(), works.clone());
        if started.send(Ok((handle, report))).is_ok() {
            Shard::new(number, reactor, mail, directory, works).run();
        }
    };
    let thread = std::thread::Builder::new()
        .name(forebay_api::config::shard_thread_name(number))
        .spawn(body)
        .context("cannot start a data-path thread")?;
    let (handle, report) = start
        .recv()
        .context("a data-path thread ended while it started")?
        .context("cannot start a data-path thread's I/O")?;
    Ok((handle, report, thread))
}

/// Tells the kernel that this thread is part of writing dirty pages back, so that it does not wait for that itself
/// when memory is short and a volume is mounted on this very host. Needs CAP_SYS_RESOURCE; without it, nothing is lost
/// but that.
fn declare_io_flusher() {
    // From linux/prctl.h; the libc crate does not name it.
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: a call with numbers only.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
}

/// A volume with everything that is the shard's of it.
pub struct Slot {
    /// Core's part of the volume, which decides what is done.
    pub volume: Volume,
    #[cfg(feature = "planted")]
    plant: crate::planted::Plant,
    /// Its tier, backing and journal, as far as they are open.
    pub io: VolumeIo,
    /// The volume's identity, as bytes.
    pub identity: [u8; 16],
    /// Identity of the tier that is open.
    pub tier: u64,
    /// Its clients' places in the list of connections.
    connections: Vec<usize>,
    parking: Parking,
    controls: HashMap<u64, oneshot::Sender<Result<(), CommandError>>>,
    controls_made: u64,
    serving: Option<oneshot::Sender<Result<(), String>>>,
    /// Waits until the tier has recorded what a replay has brought into the backing.
    replayed: Option<mpsc::Sender<()>>,
    /// Waits until nothing of it is under way.
    rests: Option<oneshot::Sender<()>>,
    /// Waits until nothing of it is under way to its backing and journal.
    left: Option<oneshot::Sender<Option<Journal>>>,
    /// Wait for an answer of the backing's server.
    looks: Vec<oneshot::Sender<std::io::Result<()>>>,
    activity: Arc<AtomicU64>,
    touched: bool,
    /// The earliest entry of the shard's timers for it.
    armed: Option<Instant>,
}

/// Whoever waits for a volume's end is told when the last of those goes that hold this.
struct WhenClosed(Option<oneshot::Sender<()>>);

impl Drop for WhenClosed {
    fn drop(&mut self) {
        // Whoever waits may have gone.
        let _ = self.0.take().map(|ended| ended.send(()));
    }
}

struct Shard {
    number: usize,
    reactor: Reactor,
    mail: mpsc::Receiver<ToShard>,
    clients: Clients,
    /// Links and volumes of a cluster; on the first shard only.
    driver: Option<Box<Driver>>,
    /// By [`VolumeKey`]; keys of other shards' volumes stay empty.
    volumes: Vec<Option<Box<Slot>>>,
    touched: Vec<usize>,
    timers: BinaryHeap<Reverse<(Instant, usize)>>,
    events: Vec<Event>,
    /// Begins and ends of rounds in which it does more than show volumes: odd while it does.
    works: Arc<AtomicU64>,
    is_at_work: bool,
    ending: bool,
}

impl Shard {
    fn new(
        number: usize,
        reactor: Reactor,
        mail: mpsc::Receiver<ToShard>,
        directory: Arc<Directory>,
        works: Arc<AtomicU64>,
    ) -> Shard {
        Shard {
            number,
            reactor,
            mail,
            clients: Clients::new(directory),
            driver: None,
            volumes: Vec::new(),
            touched: Vec::new(),
            timers: BinaryHeap::new(),
            events: Vec::new(),
            works,
            is_at_work: false,
            ending: false,
        }
    }

    fn run(mut self) {
        let mut completions = Vec::new();
        while !self.ending {
            let timeout = self.timeout(clock::now());
            if let Err(error) = self.reactor.wait(timeout, &mut completions) {
                // Without its reactor a shard can neither serve nor stop in order. The logs hold what was acknowledged.
                panic!("shard {}: cannot wait for I/O: {error}", self.number);
            }
            let now = clock::now();
            // Woken by nothing: a time has come.
            if completions.iter().any(|it| !matches!(it, Completion::Woken)) || completions.is_empty() {
                self.begin_work();
            }
            for completion in completions.drain(..) {
                match completion {
                    Completion::Done { token, result, buffer } => {
                        let key = volume_of(token) as usize;
                        // A volume that was closed in the meantime has no use for it.
                        if let Some(slot) = self.volumes.get_mut(key).and_then(Option::as_mut) {
                            if let Some(event) = slot.io.complete(token, result, buffer) {
                                slot.on_event(event, now);
                            }
                            self.touch(key);
                        }
                    }
                    Completion::Ready { token, readable, hangup, .. }
                        if let Some(key) = backing_socket_volume(token) =>
                    {
                        // Of a volume that was closed in the meantime: its socket is closed as well.
                        if let Some(slot) = self.volumes.get_mut(key as usize).and_then(Option::as_mut) {
                            slot.io.ready(&mut self.reactor, token, readable, hangup, &mut self.events);
                            for event in self.events.drain(..) {
                                slot.volume.handle(now, event);
                            }
                            self.touch(key as usize);
                        }
                    }
                    Completion::Ready { token, writable, .. } if Driver::has_token(token) => {
                        self.with_driver(now, |driver, desks| driver.ready(desks, token, writable));
                    }
                    Completion::Ready { token, readable, hangup, .. } => {
                        if let Some(key) = self.clients.ready(&mut self.volumes, token, readable, hangup, now) {
                            self.touch(key);
                        }
                    }
                    Completion::Woken => self.take_mail(now),
                }
            }
            // Or has come meanwhile.
            if !self.is_at_work && self.timeout(now).is_some_and(|left| left.is_zero()) {
                self.begin_work();
            }
            self.run_timers(now);
            for key in self.clients.poll(&mut self.volumes, now) {
                self.touch(key);
            }
            self.clients.timers(&mut self.volumes, now);
            self.work_touched();
            self.poll_driver(now);
            // What left gives frames back, which may be all that a paused connection waits for.
            for key in self.clients.flush(&mut self.volumes, &mut self.reactor, now) {
                self.touch(key);
            }
            self.work_touched();
            self.end_work();
        }
    }

    /// What it shows may change from here on. Said before anybody can be told of a change, so whoever was told is shown it.
    fn begin_work(&mut self) {
        if !self.is_at_work {
            self.is_at_work = true;
            self.works.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn end_work(&mut self) {
        if std::mem::take(&mut self.is_at_work) {
            self.works.fetch_add(1, Ordering::Release);
        }
    }

    /// Lets the cluster's part work, if there is one.
    fn with_driver<T>(&mut self, now: Instant, work: impl FnOnce(&mut Driver, &mut Desks<'_>) -> T) -> Option<T> {
        let driver = self.driver.as_mut()?;
        let (volumes, clients) = (self.volumes.as_mut_slice(), &mut self.clients);
        Some(work(driver, &mut Desks { volumes, clients, reactor: &mut self.reactor, now }))
    }

    /// Carries messages, reports and orders between links, ownership and volumes. What is left over is for the next round.
    fn poll_driver(&mut self, now: Instant) {
        for _ in 0..DRIVER_TURNS_MAX {
            let Some(touched) = self.with_driver(now, |driver, desks| driver.poll(desks)) else { return };
            if touched.is_empty() {
                return;
            }
            touched.into_iter().for_each(|key| self.touch(key));
            self.work_touched();
        }
        if let Some(driver) = &mut self.driver {
            driver.is_left_behind();
        }
    }

    fn timeout(&self, now: Instant) -> Option<std::time::Duration> {
        let driver = self.driver.as_ref();
        if !self.touched.is_empty() || self.clients.has_work() || driver.is_some_and(|driver| driver.has_work()) {
            return Some(std::time::Duration::ZERO);
        }
        let volumes = self.timers.peek().map(|Reverse((at, _))| *at);
        let next =
            [volumes, self.clients.deadline(), driver.and_then(|driver| driver.deadline())].into_iter().flatten().min();
        next.map(|at| clock::until(at, now))
    }

    fn touch(&mut self, key: usize) {
        if let Some(slot) = self.volumes[key].as_mut()
            && !slot.touched
        {
            slot.touched = true;
            self.touched.push(key);
        }
    }

    fn run_timers(&mut self, now: Instant) {
        while let Some(&Reverse((at, key))) = self.timers.peek()
            && at <= now
        {
            self.timers.pop();
            if let Some(slot) = self.volumes.get_mut(key).and_then(Option::as_mut)
                && slot.armed == Some(at)
            {
                slot.armed = None;
                self.touch(key);
            }
        }
    }

    /// Lets each touched volume decide, and carries out what it decided, until nothing is left to do at once or it has had its turn.
    fn work_touched(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        // The round has taken some time already: without it an answer that waits for no device would seem to cost none.
        let now = clock::now();
        let mut touched = std::mem::take(&mut self.touched);
        for &key in &touched {
            let Some(slot) = self.volumes[key].as_mut() else { continue };
            slot.touched = false;
            slot.io.poll_timers(now, &mut self.events);
            for event in self.events.drain(..) {
                slot.on_event(event, now);
            }
            for turn in 1.. {
                slot.volume.settle(now);
                let mut done_at_once = false;
                while let Some(effect) = slot.volume.poll_effect() {
                    #[cfg(feature = "planted")]
                    let Some(effect) = slot.twist(effect, &mut done_at_once, now) else { continue };
                    match slot.io.execute(&mut self.reactor, effect) {
                        Executed::Nothing => {}
                        Executed::Done(event) => {
                            slot.on_event(event, now);
                            done_at_once = true;
                        }
                        Executed::Yours(Effect::Send(sending)) => {
                            self.driver.as_mut().expect(LINKS_ARE_HERE).take(key, Outgoing::Send(sending));
                        }
                        Executed::Yours(Effect::Report(report)) => {
                            self.driver.as_mut().expect(LINKS_ARE_HERE).take(key, Outgoing::Report(report));
                        }
                        Executed::Yours(effect) => self.clients.execute(slot, effect, now),
                    }
                }
                // What was done at once may let core decide more; it sees the whole batch of it.
                if !done_at_once {
                    break;
                }
                if turn == DONE_AT_ONCE_MAX {
                    slot.touched = true;
                    self.touched.push(key);
                    break;
                }
            }
            slot.io.look_at_host(&mut self.reactor);
            while let Some(notice) = slot.io.take_notice() {
                log::say!(Notice, volume(names::shown(VolumeId(slot.identity))), "{notice}");
            }
            slot.publish_when_serving(now);
            if slot.replayed.is_some() && slot.volume.replay_is_recorded() {
                // Whoever waited may have gone.
                let _ = slot.replayed.take().map(|recorded| recorded.send(()));
            }
            slot.publish_when_at_rest();
            slot.publish_looks();
            self.clients.park_if_still(slot, key as u32, &mut self.reactor, now);
            slot.activity.fetch_add(1, Ordering::Relaxed);
            if let Some(driver) = &mut self.driver {
                driver.has_worked(key);
            }
            let next = [slot.volume.poll_timeout(), slot.io.deadline()].into_iter().flatten().min();
            if let Some(next) = next
                && slot.armed.is_none_or(|armed| next < armed)
            {
                slot.armed = Some(next);
                self.timers.push(Reverse((next, key)));
            }
        }
        touched.clear();
        // The buffer is kept; what was touched meanwhile waits for the next round.
        touched.append(&mut self.touched);
        self.touched = touched;
    }

    fn take_mail(&mut self, now: Instant) {
        while let Ok(command) = self.mail.try_recv() {
            if !matches!(command, ToShard::Snapshot { .. }) {
                self.begin_work();
            }
            match command {
                ToShard::Attach { key, volume, activity, serving } => self.attach(key, *volume, activity, serving, now),
                ToShard::JoinCluster { setup, answer } => {
                    let driver = Driver::new(*setup, self.clients.directory(), &mut self.reactor);
                    // Whoever asked may have gone.
                    let _ = answer.send(driver.map(|driver| self.driver = Some(Box::new(driver))));
                }
                ToShard::Cluster(mail) => self.take_cluster_mail(*mail, now),
                ToShard::BackingReady(VolumeKey(key)) => self.backing_ready(key, now),
                ToShard::ReplayBegins(VolumeKey(key)) => {
                    let Some(slot) = self.slot(key) else { continue };
                    slot.volume.journal_replay_begins();
                }
                ToShard::JournalReplayed { key: VolumeKey(key), through, recorded } => {
                    self.journal_replayed(key, through, recorded);
                }
                ToShard::JournalMade { key: VolumeKey(key), journal } => {
                    let Some(slot) = self.slot(key) else { continue };
                    slot.volume.journal_made(journal.blocks());
                    slot.io.set_journal(journal);
                    self.touch(key as usize);
                }
                ToShard::Control { key: VolumeKey(key), command, answer } => {
                    let Some(slot) = self.slot(key) else { continue };
                    slot.command(command, answer, now);
                    self.touch(key as usize);
                }
                ToShard::Snapshot { key: VolumeKey(key), with_seen, answer } => {
                    let Some(slot) = self.slot(key) else { continue };
                    // Whoever asked may have gone.
                    let _ = answer.send(slot.snapshot(with_seen, now));
                }
                ToShard::AwaitRest { key: VolumeKey(key), rests } => {
                    let Some(slot) = self.slot(key) else { continue };
                    slot.rests = Some(rests);
                    self.touch(key as usize);
                }
                ToShard::LookAtServer { key: VolumeKey(key), answer } => self.look_at_server(key, answer),
                ToShard::Opening { key: VolumeKey(key), step } => {
                    let Some(slot) = self.slot(key) else { continue };
                    slot.take_opening_step(step);
                    self.touch(key as usize);
                }
                ToShard::Detach { key: VolumeKey(key), answer } => {
                    self.detach(key, answer, now);
                }
                ToShard::Connection { key: VolumeKey(key), channel, seat, negotiated } => {
                    self.take_in(key, channel, seat, *negotiated, now);
                }
                ToShard::ReviewClients => self.clients.close_barred(&mut self.volumes, &mut self.reactor, now),
                ToShard::Park { key: VolumeKey(key), still } => {
                    let Some(slot) = self.slot(key) else { continue };
                    slot.parking = Parking::Pausing(still);
                    // Nobody need wait for a hint.
                    slot.volume.end_prefetches();
                    self.touch(key as usize);
                }
                ToShard::Unpark { key: VolumeKey(key), to: VolumeKey(to) } => {
                    self.clients.unpark(&mut self.volumes, &mut self.reactor, key, to, now);
                    if self.slot(to).is_some() {
                        self.touch(to as usize);
                    }
                }
                ToShard::Moved { volume, key: VolumeKey(key), client, seat } => {
                    self.take_in_moved(volume, key, client, seat, now);
                }
                ToShard::Exit => self.ending = true,
            }
        }
    }

    fn look_at_server(&mut self, key: u32, answer: oneshot::Sender<std::io::Result<()>>) {
        let Some(slot) = self.volumes.get_mut(key as usize).and_then(Option::as_deref_mut) else { return };
        // A server that never answers is waited for by those alone who wait still.
        slot.looks.retain(|asked| !asked.is_closed());
        slot.looks.push(answer);
        slot.io.look_at_server(&mut self.reactor);
        self.touch(key as usize);
    }

    fn take_cluster_mail(&mut self, mail: ToDriver, now: Instant) {
        // It may end the sessions of a volume's clients. What the volume has decided goes before that: an answer on
        // its way out would reach nobody, and a client whose write is in the log cannot be moved without it.
        while !self.touched.is_empty() {
            self.work_touched();
        }
        self.with_driver(now, |driver, desks| driver.take_mail(desks, mail));
        self.poll_driver(now);
    }

    /// The backing's lock is ours, by the thread that awaited it.
    fn backing_ready(&mut self, key: u32, now: Instant) {
        let Some(slot) = self.slot(key) else { return };
        if slot.io.backing_mut().take_awaited_lock() {
            slot.volume.handle(now, Event::BackingReady);
            self.touch(key as usize);
        }
    }

    fn journal_replayed(&mut self, key: u32, through: Option<Lsn>, recorded: mpsc::Sender<()>) {
        let Some(slot) = self.slot(key) else { return };
        if let Some(through) = through {
            slot.volume.journal_replayed(through);
        }
        slot.replayed = Some(recorded);
        self.touch(key as usize);
    }

    /// Ends the clients of a volume and the volume. Whoever waits for that goes on once its files are closed.
    fn detach(&mut self, key: u32, ended: oneshot::Sender<()>, now: Instant) {
        let slot = self.volumes.get_mut(key as usize).and_then(Option::take);
        let ended = Arc::new(WhenClosed(Some(ended)));
        let Some(mut slot) = slot else { return };
        self.clients.close_all_of(&mut slot, &mut self.reactor, now);
        let (tier, backing) = (ended.clone(), ended);
        slot.close(move || drop(tier), move || drop(backing));
    }

    /// A client that has chosen a volume which was here then. One of a cluster may have another owner by now.
    fn take_in(&mut self, key: u32, channel: Channel, seat: Seat, negotiated: Negotiated, now: Instant) {
        let driver = self.driver.as_ref();
        let elsewhere = match self.volumes.get(key as usize).and_then(Option::as_ref) {
            Some(slot) => {
                driver.is_some_and(|driver| driver.is_elsewhere(&slot.identity, key)).then_some(VolumeId(slot.identity))
            }
            None => self.clients.directory().find(&negotiated.export.name).and_then(|export| match export.place {
                Place::Forwarder(volume) => Some(volume),
                Place::Shard { .. } => None,
            }),
        };
        match elsewhere {
            Some(volume) => {
                let client = Box::new(Packed { channel, negotiated, unsent: Vec::new() });
                self.clients.directory().forwarder().send(ToForwarder::Client { volume, client, seat });
            }
            None => self.clients.take_in(&mut self.volumes, &mut self.reactor, key, channel, seat, negotiated, now),
        }
    }

    /// Goes on with a client that another shard has served, unless the volume is no longer served here.
    fn take_in_moved(&mut self, volume: VolumeId, key: u32, client: Box<Packed>, seat: Seat, now: Instant) {
        let serves = self.driver.as_ref().is_some_and(|driver| driver.serves(&volume.0) == Some(key));
        match self.volumes.get_mut(key as usize).and_then(Option::as_mut).filter(|_| serves) {
            Some(slot) => self.clients.resume(slot, key, &mut self.reactor, *client, seat, now),
            // The next owner was faster.
            None => self.clients.directory().forwarder().send(ToForwarder::Client { volume, client, seat }),
        }
    }

    fn slot(&mut self, key: u32) -> Option<&mut Slot> {
        self.volumes.get_mut(key as usize).and_then(Option::as_deref_mut)
    }

    fn attach(
        &mut self,
        VolumeKey(key): VolumeKey,
        open: OpenVolume,
        activity: Arc<AtomicU64>,
        serving: oneshot::Sender<Result<(), String>>,
        now: Instant,
    ) {
        let ready = open.backing.as_ref().is_some_and(Backing::locked) && !open.replay_due;
        let identity = open.config.superblock.volume;
        let tier = open.config.superblock.tier;
        let mut io = VolumeIo::without_backing(key, &open.config.superblock, open.arena, open.tier);
        if let Some(backing) = open.backing {
            io.set_backing(backing);
        }
        if let Some(journal) = open.journal {
            io.set_journal(journal);
        }
        let mut volume = Volume::new(open.config, now);
        if open.replay_due {
            volume.journal_replay_due();
        }
        let mut slot = Slot {
            #[cfg(feature = "planted")]
            plant: crate::planted::Plant::new(&mut volume),
            volume,
            io,
            identity,
            tier,
            connections: Vec::new(),
            parking: Parking::No,
            controls: HashMap::new(),
            controls_made: 0,
            serving: Some(serving),
            replayed: None,
            rests: None,
            left: None,
            looks: Vec::new(),
            activity,
            touched: false,
            armed: None,
        };
        if ready {
            slot.volume.handle(now, Event::BackingReady);
        }
        let key = key as usize;
        if self.volumes.len() <= key {
            self.volumes.resize_with(key + 1, || None);
        }
        self.volumes[key] = Some(Box::new(slot));
        self.touch(key);
    }
}

impl Slot {
    /// Closes its files and gives its memory back, on other threads. Each of the two is told when that is closed which it names: who
    /// opens the tier again does not wait for the server of the backing.
    pub fn close(
        mut self: Box<Slot>,
        tier_closed: impl FnOnce() + Send + 'static,
        backing_closed: impl FnOnce() + Send + 'static,
    ) {
        // Who waits for a word of it hears at once that there will be none.
        self.controls.clear();
        (self.serving, self.replayed, self.rests, self.left) = (None, None, None, None);
        self.looks.clear();
        let volume = names::shown(VolumeId(self.identity));
        closing::end_then(format!("the backing of volume {volume}"), self.io.take_backing(), backing_closed);
        closing::end_then(format!("the tier of volume {volume}"), self, tier_closed);
    }

    /// Hands an end of an operation to core.
    fn on_event(&mut self, event: Event, now: Instant) {
        #[cfg(feature = "planted")]
        if !self.plant.hears(&event) {
            return;
        }
        self.volume.handle(now, event);
    }

    #[cfg(feature = "planted")]
    fn twist(
        &mut self,
        effect: forebay_core::api::Effect,
        done_at_once: &mut bool,
        now: Instant,
    ) -> Option<forebay_core::api::Effect> {
        if self.plant.asks_on_thread(&effect) {
            // Only the call counts, and how long it takes.
            let _ = self.io.backing().size();
        }
        let crate::planted::Twisted { event, effect } = self.plant.twist(effect);
        if let Some(event) = event {
            self.volume.handle(now, event);
            *done_at_once = true;
        }
        effect
    }

    fn take_opening_step(&mut self, step: OpeningStep) {
        match step {
            OpeningStep::ShareJournal { answer } => {
                // Whoever asked may have gone.
                let _ = answer.send(self.io.journal().map(Journal::share));
            }
            OpeningStep::Leave { left } => {
                self.io.leave_backing();
                self.left = Some(left);
            }
            OpeningStep::Return { anew } => {
                self.left = None;
                if anew.is_some() {
                    self.volume.try_backing_at_once();
                }
                self.io.return_to_backing(anew.map(|anew| *anew));
            }
        }
    }

    fn command(&mut self, command: Control, answer: oneshot::Sender<Result<(), CommandError>>, now: Instant) {
        if let Control::Resize(size) = command
            && let Err(error) = self.io.backing().require_room(size)
        {
            let _ = answer.send(Err(CommandError::Backing(error.to_string())));
            return;
        }
        self.controls_made += 1;
        self.controls.insert(self.controls_made, answer);
        self.volume.handle(now, Event::Control { id: ControlId(self.controls_made), command });
    }

    fn answer(&mut self, id: ControlId, result: Result<(), forebay_core::status::ControlError>) {
        if let Some(answer) = self.controls.remove(&id.0) {
            let _ = answer.send(result.map_err(CommandError::Refused));
        }
    }

    fn publish_when_serving(&mut self, now: Instant) {
        if self.serving.is_none() {
            return;
        }
        let told = match self.volume.status(now).phase {
            Phase::Recovering => return,
            Phase::Following | Phase::Agreeing | Phase::Serving | Phase::Stopping | Phase::Stopped => Ok(()),
            Phase::Refused(reason) => Err(reason.to_owned()),
        };
        if let Some(serving) = self.serving.take() {
            let _ = serving.send(told);
        }
    }

    /// A volume that has stopped begins nothing more, so what rests once rests for good.
    fn publish_when_at_rest(&mut self) {
        if self.io.in_flight() == 0
            && let Some(rests) = self.rests.take()
        {
            // Whoever asked may have gone.
            let _ = rests.send(());
        }
        // Asked only where somebody waits: it walks all that is under way.
        if self.left.is_some()
            && self.io.backing_rests()
            && let Some(left) = self.left.take()
        {
            let _ = left.send(self.io.journal().map(Journal::share));
        }
    }

    /// How its backing's server has answered, to all who have asked until then.
    fn publish_looks(&mut self) {
        let Some(looked) = self.io.take_looked() else { return };
        for asked in self.looks.drain(..) {
            let again = match &looked {
                Ok(()) => Ok(()),
                Err(error) => Err(std::io::Error::new(error.kind(), error.to_string())),
            };
            // Whoever asked may have gone.
            let _ = asked.send(again);
        }
    }

    /// What it shows of itself.
    pub fn snapshot(&self, with_seen: bool, now: Instant) -> Snapshot {
        Snapshot {
            status: self.volume.status(now),
            at: now,
            connections: self.connections.len() as u32,
            request_bytes_max: self.volume.request_bytes_max(),
            damaged: self.io.damaged(),
            unreached: self.io.backing_trouble().map(str::to_owned),
            seen: with_seen.then(|| Box::new(self.volume.seen().clone())),
        }
    }
}
