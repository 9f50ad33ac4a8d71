//! Forwarding: a client uses the NBD socket of its own host, always the same, whichever node owns its volume.
//!
//! ```text
//! client -> this node's socket -> Forwarded (requests, kept until answered) -> Owner (one connection) -> the owner's door
//!                  ^                                                                                         |
//!                  +--- when this node owns the volume: the connection moves to the volume's own thread  <---+
//! ```
//!
//! A thread of its own has the clients of all volumes that other nodes own: what they do costs no local volume anything. It
//! ends their sessions exactly as the data path does ([`Connections`]); only the volume behind them is another.
//!
//! Invariants (the rules named F are those of `docs/protocol.md`):
//! - A request is kept until an owner has answered it, and asked again by each new connection, in order (F1). The client sees a
//!   pause, never an error that is not an owner's answer.
//! - There is one connection to the owner for all clients of a volume. A new one is used only when the owner has let it in,
//!   and with that has ended the one before (F1).
//! - When this node becomes the owner, the connections move to the volume with all that was not answered; when it is no more,
//!   they come back the same way.
//! - A client that came by an address that moves ([`Addresses`]) is never forwarded: its session ends, and it comes again where
//!   the address is then.
//!
//! What each file owns: [`volume`] requests and their memory, [`owner`] the connection to the owner. Left to others: who owns a
//! volume (core's ownership, told by `cluster::driver`), and doors and certificates (`forebay_io::link`).

mod owner;
mod volume;

use crate::addresses::Addresses;
use crate::datapath::connections::Connections;
use crate::datapath::directory::{Directory, Export, Place};
use crate::datapath::mailbox::{ToShard, VolumeKey};
use crate::datapath::seats::Seat;
use crate::log;
use forebay_api::record::VolumeId;
use forebay_core::cluster::NodeId;
use forebay_core::types::{Duration, Instant, Term};
use forebay_core::wire::{Entered, NodeName, Rejection};
use forebay_front::nbd::connection::{Connection, Packed};
use forebay_io::channel::Channel;
use forebay_io::link::{AddressPair, Failure, Identity, Security, call_owner};
use forebay_io::{Completion, Interest, ModeChoice, Reactor, Waker, clock};
use owner::{HOT_BYTES, Owner};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, mpsc};
use volume::Forwarded;
pub use volume::VOLUME_BYTES;

/// Watch tokens: what it is in the upper half, which one in the lower.
const CONNECTION: u64 = 3 << 32;
const OWNER: u64 = 6 << 32;
/// Between two calls to an owner that does not answer, doubled from one to the next.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(800);
/// The same after the word that it is not the owner, or not yet: a take-over is a matter of such a time.
const PAUSE_NOT_SERVED: Duration = Duration::from_millis(100);

/// What is shown of a volume's forwarding.
#[derive(Debug, Default)]
pub struct Figures {
    /// The owner has let this node in.
    pub connected: AtomicBool,
    /// Clients of this node that are connected now.
    pub clients: AtomicU64,
    /// Requests that no owner has answered yet.
    pub waiting: AtomicU64,
    /// Requests of clients since the start.
    pub requests: AtomicU64,
    /// Bytes of their reads and writes.
    pub bytes: AtomicU64,
    /// Requests that were asked again of another connection, or another owner.
    pub again: AtomicU64,
}

/// Who owns a volume, as far as this node knows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Who {
    /// Nobody owns it, or this node does not know who.
    #[default]
    Nobody,
    /// This node, which serves it.
    Here(VolumeKey),
    /// Another node, which is called for each client's requests.
    There {
        /// The owner's number in the cluster.
        node: NodeId,
        /// The owner's name in the cluster.
        name: NodeName,
        /// Addresses by which it is called, each with the own one for it.
        pairs: Vec<AddressPair>,
    },
}

impl Who {
    fn is_same_as(&self, other: &Who) -> bool {
        match (self, other) {
            (Who::There { node, name, .. }, Who::There { node: other_node, name: other_name, .. }) => {
                (node, name) == (other_node, other_name)
            }
            (Who::Nobody | Who::Here(_) | Who::There { .. }, _) => self == other,
        }
    }
}

/// The way to the owner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Route {
    /// Number of that owner.
    pub term: Term,
    /// Who owns the volume then.
    pub who: Who,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
}

/// Something for the thread to do.
pub enum ToForwarder {
    /// A volume of the cluster is known from now on.
    Volume {
        /// The volume's identity in the cluster.
        volume: VolumeId,
        /// The volume's name, by which clients choose it.
        name: String,
        /// Where to tell how it is.
        figures: Arc<Figures>,
    },
    /// Who may use a volume has changed: end the sessions of who may not any more.
    ReviewClients,
    /// Identities of nodes were revoked: nothing is forwarded to them any more.
    EndRevoked,
    /// Its owner, or its size, is another one.
    Route {
        /// The volume whose route it is.
        volume: VolumeId,
        /// The route from now on.
        route: Route,
    },
    /// There is no such volume any more on this node: its clients' sessions end.
    Forget(VolumeId),
    /// A client, from negotiation or from the volume's own thread.
    Client {
        /// The volume that the client has chosen.
        volume: VolumeId,
        /// The client, and what it has asked.
        client: Box<Packed>,
        /// Its place in its listener's count.
        seat: Seat,
    },
    /// A call to an owner has ended.
    Called {
        /// The volume whose owner was called.
        volume: VolumeId,
        /// Number of the call among the volume's.
        call: u64,
        /// The connection and what the owner says of the volume, or why there is none.
        result: Box<Result<(Channel, Entered), Failure>>,
    },
}

/// The end at which others hand things over to the thread.
#[derive(Clone)]
pub struct ForwarderHandle {
    sender: mpsc::Sender<ToForwarder>,
    waker: Waker,
}

impl ForwarderHandle {
    /// Hands something over; a thread that has ended takes nothing.
    pub fn send(&self, mail: ToForwarder) {
        if self.sender.send(mail).is_ok() {
            self.waker.wake();
        }
    }
}

/// A volume that those who forward know, as long as this lives.
pub struct Registered {
    handle: ForwarderHandle,
    volume: VolumeId,
}

impl Registered {
    /// Makes the volume known to the forwarding thread, from now on.
    pub fn new(handle: &ForwarderHandle, volume: VolumeId, name: &str, figures: &Arc<Figures>) -> Registered {
        handle.send(ToForwarder::Volume { volume, name: name.to_owned(), figures: figures.clone() });
        Registered { handle: handle.clone(), volume }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.handle.send(ToForwarder::Forget(self.volume));
    }
}

/// Starts the thread, and makes it known to those who look for exports.
pub fn spawn(
    directory: Arc<Directory>,
    identity: Arc<Identity>,
    security: Security,
    addresses: Arc<Addresses>,
) -> std::io::Result<ForwarderHandle> {
    let (started, start) = mpsc::channel();
    let known = directory.clone();
    std::thread::Builder::new().name("forwarder".to_owned()).spawn(move || {
        // No disk is read or written here.
        let reactor = match Reactor::new(ModeChoice::Threads) {
            Ok(reactor) => reactor,
            Err(error) => return drop(started.send(Err(error))),
        };
        let (sender, mail) = mpsc::channel();
        let handle = ForwarderHandle { sender, waker: reactor.waker() };
        if started.send(Ok(handle.clone())).is_ok() {
            Forwarder::new(reactor, mail, handle, directory, identity, security, addresses).run();
        }
    })?;
    let handle = start.recv().map_err(|_| std::io::Error::other("the forwarding thread ended while it started"))??;
    known.set_forwarder(handle.clone());
    Ok(handle)
}

/// How a volume stands with its owner.
enum Way {
    /// Nobody is called before then.
    Closed {
        call_at: Instant,
    },
    /// A thread calls.
    Calling,
    Open(Box<Owner>),
}

/// A volume and its way to the owner.
struct Line {
    way: Way,
    /// Number of the last call: the answers of others come too late.
    calls: u64,
    /// In a row that have failed.
    failures: u32,
    /// What was said last of it.
    told: Option<String>,
}

struct Forwarder {
    reactor: Reactor,
    mail: mpsc::Receiver<ToForwarder>,
    handle: ForwarderHandle,
    directory: Arc<Directory>,
    identity: Arc<Identity>,
    security: Security,
    addresses: Arc<Addresses>,
    connections: Connections,
    volumes: Vec<Option<Box<Forwarded>>>,
    lines: Vec<Line>,
    by_id: BTreeMap<VolumeId, usize>,
    hot: Box<[u8]>,
}

impl Forwarder {
    fn new(
        reactor: Reactor,
        mail: mpsc::Receiver<ToForwarder>,
        handle: ForwarderHandle,
        directory: Arc<Directory>,
        identity: Arc<Identity>,
        security: Security,
        addresses: Arc<Addresses>,
    ) -> Forwarder {
        Forwarder {
            reactor,
            mail,
            handle,
            directory,
            identity,
            security,
            addresses,
            connections: Connections::new(CONNECTION),
            volumes: Vec::new(),
            lines: Vec::new(),
            by_id: BTreeMap::new(),
            hot: vec![0; HOT_BYTES].into_boxed_slice(),
        }
    }

    fn run(mut self) -> ! {
        let mut completions = Vec::new();
        loop {
            let timeout = self.timeout(clock::now());
            if let Err(error) = self.reactor.wait(timeout, &mut completions) {
                panic!("cannot wait for clients and owners: {error}");
            }
            let now = clock::now();
            for completion in completions.drain(..) {
                match completion {
                    Completion::Done { .. } => unreachable!("nothing is submitted here"),
                    Completion::Woken => self.take_mail(now),
                    Completion::Ready { token, readable, hangup, .. } => {
                        let index = (token & 0xffff_ffff) as usize;
                        match token & !0xffff_ffff {
                            CONNECTION => {
                                self.connections.ready(&mut self.volumes, index, readable, hangup, now);
                            }
                            OWNER if readable || hangup => self.on_frames(index, now),
                            // `work` sends to whoever takes it.
                            OWNER => {}
                            _ => unreachable!("connections of clients and to owners are watched"),
                        }
                    }
                }
            }
            self.connections.poll(&mut self.volumes, now);
            self.connections.timers(&mut self.volumes, now);
            for index in 0..self.volumes.len() {
                self.work(index, now);
            }
            self.connections.flush(&mut self.volumes, &mut self.reactor, now);
            for index in 0..self.volumes.len() {
                self.settle(index);
            }
        }
    }

    fn timeout(&self, now: Instant) -> Option<std::time::Duration> {
        let has_more = |line: &Line| matches!(&line.way, Way::Open(owner) if owner.has_more);
        if self.connections.has_work() || self.lines.iter().any(has_more) {
            return Some(std::time::Duration::ZERO);
        }
        let calls = self.volumes.iter().zip(&self.lines).filter_map(|(volume, line)| match line.way {
            Way::Closed { call_at } if volume.as_ref().is_some_and(|volume| wants_owner(volume)) => Some(call_at),
            Way::Closed { .. } | Way::Calling | Way::Open(_) => None,
        });
        calls.chain(self.connections.deadline()).min().map(|at| clock::until(at, now))
    }

    // --- the owner ---

    /// The owner has said something.
    fn on_frames(&mut self, index: usize, now: Instant) {
        let Some(volume) = self.volumes[index].as_mut() else { return };
        let Way::Open(owner) = &mut self.lines[index].way else { return };
        let heard = owner.receive(volume, &mut self.hot);
        // At once: a connection that is moved must know what was answered.
        for (id, result) in std::mem::take(&mut volume.answers) {
            self.connections.reply(&mut **volume, id, result, now);
        }
        if let Err(why) = heard {
            self.lose_owner(index, &why, now);
        }
    }

    /// Calls, and sends what there is.
    fn work(&mut self, index: usize, now: Instant) {
        if matches!(&self.lines[index].way, Way::Open(owner) if owner.has_more) {
            self.on_frames(index, now);
        }
        let Some(volume) = self.volumes[index].as_mut() else { return };
        let line = &mut self.lines[index];
        match &mut line.way {
            Way::Closed { call_at } if *call_at <= now && wants_owner(volume) => self.call(index),
            Way::Closed { .. } | Way::Calling => {}
            Way::Open(owner) => {
                let sent = owner.send(volume);
                let interest = owner.wanted_interest();
                let changed = std::mem::replace(&mut owner.interest, interest) != interest;
                let token = OWNER | index as u64;
                let watched = !changed || self.reactor.rewatch(owner.descriptor(), token, interest).is_ok();
                match sent {
                    Ok(()) if watched => {}
                    Ok(()) => self.lose_owner(index, "its socket cannot be watched", now),
                    Err(why) => self.lose_owner(index, &why, now),
                }
            }
        }
    }

    /// At the end of a round: whoever waits for frames may go on, and what nobody needs is given up.
    fn settle(&mut self, index: usize) {
        let Some(volume) = self.volumes[index].as_mut() else { return };
        if std::mem::take(&mut volume.frames_freed) {
            self.connections.frames_are_free(&mut **volume);
        }
        let line = &mut self.lines[index];
        volume.publish_figures(matches!(line.way, Way::Open(_)));
        if !volume.has_clients() && matches!(line.way, Way::Open(_)) {
            // What a client that has gone had asked is not waited for, and not asked again.
            self.close_way(index, clock::now());
        }
        if let Some(volume) = self.volumes[index].as_mut() {
            volume.close_arena();
        }
    }

    fn call(&mut self, index: usize) {
        let Some(volume) = self.volumes[index].as_ref() else { return };
        let Who::There { node, name, pairs } = volume.route.who.clone() else { return };
        let line = &mut self.lines[index];
        line.calls += 1;
        line.way = Way::Calling;
        // Another path each time: the one before may be why it failed.
        let Some(pair) = pairs.get(line.failures as usize % pairs.len().max(1)).copied() else {
            let call_at = clock::now() + PAUSE_MAX;
            line.way = Way::Closed { call_at };
            return;
        };
        let (identity, security, handle) = (self.identity.clone(), self.security.clone(), self.handle.clone());
        let (id, number) = (volume.id, line.calls);
        let work = move || {
            let result = call_owner(&identity, &security, (&name, node), &pair, id.0);
            handle.send(ToForwarder::Called { volume: id, call: number, result: Box::new(result) });
        };
        if std::thread::Builder::new().name("caller".to_owned()).spawn(work).is_err() {
            self.lines[index].way = Way::Closed { call_at: clock::now() + PAUSE_MAX };
        }
    }

    fn called(&mut self, id: VolumeId, call: u64, result: Result<(Channel, Entered), Failure>, now: Instant) {
        let Some(&index) = self.by_id.get(&id) else { return };
        if self.lines[index].calls != call || !matches!(self.lines[index].way, Way::Calling) {
            // The route has changed meanwhile. Nothing was asked on this connection.
            return;
        }
        let Some(volume) = self.volumes[index].as_mut() else { return };
        let why = match result {
            // An owner that does not know yet that it is none: nothing that it takes is ever acknowledged.
            Ok((_, entered)) if entered.term < volume.route.term => "its term is over".to_owned(),
            // Since TLS has looked at it.
            Ok((channel, _)) if self.identity.refuses(&channel) => Failure::Revoked.to_string(),
            Ok((channel, entered)) => {
                let owner = Box::new(Owner::new(channel));
                if self.reactor.watch(owner.descriptor(), OWNER | index as u64, Interest::READ).is_ok() {
                    let line = &mut self.lines[index];
                    (line.way, line.failures, line.told) = (Way::Open(owner), 0, None);
                    volume.size_bytes = volume.size_bytes.max(entered.size_bytes);
                    volume.request_bytes_max = Some(entered.request_bytes_max);
                    return self.export(index);
                }
                "its socket cannot be watched".to_owned()
            }
            Err(Failure::RefusedByPeer(Rejection::NotServed)) => {
                self.lines[index].failures += 1;
                self.lines[index].way = Way::Closed { call_at: now + PAUSE_NOT_SERVED };
                return;
            }
            Err(why) => why.to_string(),
        };
        self.lose_owner(index, &why, now);
    }

    /// The connection to the owner has failed, or none came about.
    fn lose_owner(&mut self, index: usize, why: &str, now: Instant) {
        let line = &mut self.lines[index];
        line.failures += 1;
        let pause = Duration((PAUSE_MIN.0 << line.failures.min(8)).min(PAUSE_MAX.0));
        if let Some(volume) = &self.volumes[index]
            && line.told.as_deref() != Some(why)
        {
            log::say!(Error, volume(volume.name), "requests cannot be forwarded to its owner for now: {why}");
            line.told = Some(why.to_owned());
        }
        self.close_way(index, now + pause);
    }

    /// Ends the connection to the owner; what was not answered is asked again by the next one.
    fn close_way(&mut self, index: usize, call_at: Instant) {
        if let Way::Open(mut owner) = std::mem::replace(&mut self.lines[index].way, Way::Closed { call_at }) {
            let _ = self.reactor.unwatch(owner.descriptor());
            owner.shut_down();
            if let Some(volume) = self.volumes[index].as_mut() {
                volume.ask_again();
            }
        }
    }

    // --- mail ---

    fn take_mail(&mut self, now: Instant) {
        while let Ok(mail) = self.mail.try_recv() {
            match mail {
                ToForwarder::Volume { volume, name, figures } => {
                    let index = self.volumes.len();
                    self.by_id.insert(volume, index);
                    self.volumes.push(Some(Box::new(Forwarded::new(volume, name, figures))));
                    self.lines.push(Line { way: Way::Closed { call_at: now }, calls: 0, failures: 0, told: None });
                }
                ToForwarder::ReviewClients => self.close_barred(now),
                ToForwarder::EndRevoked => self.end_revoked(now),
                ToForwarder::Route { volume, route } => self.set_route(volume, route, now),
                ToForwarder::Forget(volume) => self.forget(volume, now),
                ToForwarder::Client { volume, client, seat } => self.take_client(volume, *client, seat, now),
                ToForwarder::Called { volume, call, result } => self.called(volume, call, *result, now),
            }
        }
    }

    fn set_route(&mut self, id: VolumeId, route: Route, now: Instant) {
        let Some(&index) = self.by_id.get(&id) else { return };
        let Some(volume) = self.volumes[index].as_mut() else { return };
        // By other addresses it is the same one: a connection that works stays, and the next call goes there.
        let same_owner = volume.route.term == route.term && volume.route.who.is_same_as(&route.who);
        volume.size_bytes = volume.size_bytes.max(route.size_bytes);
        volume.route = route;
        if same_owner {
            return;
        }
        self.close_way(index, now);
        // A call to the former owner is not waited for.
        let line = &mut self.lines[index];
        (line.way, line.failures, line.told) = (Way::Closed { call_at: now }, 0, None);
        self.move_clients(index, now);
        self.export(index);
    }

    /// To the volume's own thread, where this node owns it.
    fn move_clients(&mut self, index: usize, now: Instant) {
        let Some(volume) = self.volumes[index].as_mut() else { return };
        let (Who::Here(key), id) = (volume.route.who.clone(), volume.id) else { return };
        for (client, seat) in self.connections.pack_all_of(&mut **volume, &mut self.reactor, now) {
            // Volumes of a cluster live on the first shard, where its links are.
            self.directory.shard(0).send(ToShard::Moved { volume: id, key, client: Box::new(client), seat });
        }
    }

    fn take_client(&mut self, id: VolumeId, client: Packed, seat: Seat, now: Instant) {
        // The address goes to the volume's owner, and whoever came by it goes there, too: kept, the session would never end.
        if self.addresses.have_brought(client.channel.socket()) {
            return;
        }
        // Who may use the volume can have changed on its way here.
        if !self.directory.admits(&client.negotiated.client, &client.negotiated.export.name) {
            return;
        }
        // Dropping the client of a volume that has just gone is its answer.
        let Some(&index) = self.by_id.get(&id) else { return };
        let Some(volume) = self.volumes[index].as_mut() else { return };
        if let Err(error) = volume.open_arena() {
            log::say!(Error, volume(volume.name), "no memory to forward a client's requests: {error}");
            return;
        }
        // Where it came from the data path, the owner of that moment was this node.
        let largest = client.negotiated.export.request_bytes_max;
        volume.size_bytes = volume.size_bytes.max(client.negotiated.export.size_bytes);
        volume.request_bytes_max.get_or_insert(largest);
        let make = |number| Connection::resume(client, number, now);
        self.connections.add(&mut **volume, index, &mut self.reactor, seat, make);
        self.move_clients(index, now);
    }

    fn close_barred(&mut self, now: Instant) {
        for volume in self.volumes.iter_mut().flatten() {
            self.connections.close_barred(&mut **volume, &mut self.reactor, &self.directory, now);
        }
    }

    fn end_revoked(&mut self, now: Instant) {
        for index in 0..self.lines.len() {
            if matches!(&self.lines[index].way, Way::Open(owner) if owner.is_refused_by(&self.identity)) {
                self.lose_owner(index, &Failure::Revoked.to_string(), now);
            }
        }
    }

    fn forget(&mut self, id: VolumeId, now: Instant) {
        let Some(index) = self.by_id.remove(&id) else { return };
        self.close_way(index, now);
        if let Some(mut volume) = self.volumes[index].take() {
            self.connections.close_all_of(&mut *volume, &mut self.reactor, now);
            self.directory.remove(&volume.name);
        }
    }

    /// Clients may choose it, unless it is served here.
    fn export(&self, index: usize) {
        let Some(volume) = &self.volumes[index] else { return };
        let (Who::There { .. } | Who::Nobody, Some(largest)) = (&volume.route.who, volume.request_bytes_max) else {
            return;
        };
        self.directory.put_forwarded(Export {
            name: volume.name.clone(),
            size_bytes: volume.size_bytes,
            request_bytes_max: largest,
            place: Place::Forwarder(volume.id),
        });
    }
}

/// Somebody waits for the owner, or nobody knows yet what to tell clients.
fn wants_owner(volume: &Forwarded) -> bool {
    matches!(volume.route.who, Who::There { .. }) && (volume.has_clients() || volume.request_bytes_max.is_none())
}

#[cfg(test)]
mod tests;
