//! The clients of a shard: listening sockets, clients that are still negotiating, and connections to its volumes.
//!
//! Invariants:
//! - A client that negotiates costs itself only.
//! - A listener has at most its number of clients ([`seats`](crate::datapath::seats)), those that negotiate included; a few more may
//!   negotiate, to be told that there is no place. Of those that negotiate, the one that has done so longest makes room, of whoever has
//!   most; so silent clients keep nobody out.
//! - Clients of a volume that gives way to another in its place ([`Parking`]) are parked, those too that come meanwhile:
//!   each is with the one volume, or parked, or with the other.
//!
//! What connections do from then on is in [`crate::datapath::connections`].

use super::Slot;
use crate::datapath::connections::{Connections, Home};
use crate::datapath::directory::{Directory, Place};
use crate::datapath::forward::ToForwarder;
use crate::datapath::mailbox::ToShard;
use crate::datapath::seats::{Crowded, Origin, Seat, Seats};
use crate::log;
use forebay_core::Volume;
use forebay_core::api::{Effect, Event, Pieces, Request, RequestError};
use forebay_core::format::payload_checksum;
use forebay_core::roles::Client;
use forebay_core::types::{BlockIndex, ClientId, Duration, FrameId, Frames, Instant, RequestId, SectorMask};
use forebay_core::volume::Extent;
use forebay_front::Backend;
use forebay_front::nbd::channel::Channel;
use forebay_front::nbd::connection::{Connection, Packed};
use forebay_front::nbd::greeter::{Greeter, Greeting};
use forebay_front::nbd::handshake::{ExportInfo, Exports, HANDSHAKE_MAX, Negotiated};
use forebay_front::nbd::tls::TlsServer;
use forebay_io::{Interest, Reactor, VolumeIo};
use slab::Slab;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Watch tokens: what it is in the upper half, which one in the lower.
const LISTENER: u64 = 1 << 32;
const GREETER: u64 = 2 << 32;
const CONNECTION: u64 = 3 << 32;

/// Clients taken from a listener in one round, so that a flood of them leaves time for others.
const ACCEPTS_PER_ROUND: usize = 64;
/// A listener that cannot accept (no descriptors left) is asked again after this time, not in a loop.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// So many may negotiate even where all places are taken, so that they can be told; else as many as there are places left.
const GREETED_MIN: u64 = 16;
/// Who asks for an export that cannot be entered yet is answered after so many times [`HANDSHAKE_MAX`] at the latest.
const AWAITS_MAX: u32 = 3;
/// Whether it can be is looked at so often.
const AWAITS_LOOK: Duration = Duration::from_millis(50);
/// That clients find no place is logged so often at most.
const CROWDED_TOLD_EVERY: Duration = Duration::from_secs(60);

type Volumes = [Option<Box<Slot>>];

/// A volume on its way to be closed while its clients stay.
#[derive(Default)]
pub enum Parking {
    /// It serves its clients as usual.
    #[default]
    No,
    /// Nothing more is taken from its clients; somebody waits until all that was taken is answered.
    Pausing(oneshot::Sender<u32>),
    /// It has no clients any more: they are parked.
    Parked,
}

struct Listener {
    socket: OwnedFd,
    /// Clients must use it.
    tls: Option<TlsServer>,
    seats: Arc<Seats>,
    paused_until: Option<Instant>,
    crowded_told: Option<Instant>,
}

struct Greeted {
    /// Taken out only while it is advanced.
    greeter: Option<Greeter>,
    from: Origin,
    /// As soon as it has chosen its export.
    seat: Option<Seat>,
    listener: usize,
    number: u64,
    interest: Interest,
    /// It has asked for an export that cannot be entered yet.
    awaits_export: bool,
    /// So many times it was given more time for that.
    prolonged: u32,
}

/// What a client that negotiates finds: the directory, and a place.
struct Door<'a> {
    directory: &'a Directory,
    seats: &'a Arc<Seats>,
    from: Origin,
    /// It has waited long enough for what cannot be entered yet.
    hurries: bool,
    seat: RefCell<Option<Seat>>,
    /// It was told so.
    crowded: RefCell<Option<Crowded>>,
}

impl Exports for Door<'_> {
    fn lookup(&self, client: &Client, name: &str) -> Option<ExportInfo> {
        self.directory.lookup(client, name)
    }

    fn list(&self, client: &Client) -> Vec<(String, String)> {
        self.directory.list(client)
    }

    fn awaits(&self, client: &Client, name: &str) -> bool {
        !self.hurries && self.directory.awaits(client, name)
    }

    fn admit(&self, client: &Client) -> Result<(), String> {
        match self.seats.take(self.from, client) {
            Ok(seat) => {
                self.seat.replace(Some(seat));
                Ok(())
            }
            Err(crowded) => {
                let words = crowded.to_string();
                self.crowded.replace(Some(crowded));
                Err(words)
            }
        }
    }
}

/// See the module's text.
pub struct Clients {
    directory: Arc<Directory>,
    listeners: Vec<Listener>,
    greeted: Slab<Greeted>,
    /// In order of their arrival, which is that of their deadlines. Names that are gone are passed over.
    greeted_order: VecDeque<(Instant, usize, u64)>,
    greeted_made: u64,
    /// When those are looked at who ask for an export that cannot be entered yet.
    awaits_look: Option<Instant>,
    connections: Connections,
    /// Clients whose volume was taken away, until another is in its place.
    parked: HashMap<u32, Vec<(Packed, Seat)>>,
    /// Which volume is in the place of a former one: clients may still come that were told of that.
    in_place_of: HashMap<u32, u32>,
}

impl Clients {
    pub fn new(directory: Arc<Directory>) -> Clients {
        Clients {
            directory,
            listeners: Vec::new(),
            greeted: Slab::new(),
            greeted_order: VecDeque::new(),
            greeted_made: 0,
            awaits_look: None,
            connections: Connections::new(CONNECTION),
            parked: HashMap::new(),
            in_place_of: HashMap::new(),
        }
    }

    /// Which volumes can be connected to.
    pub fn directory(&self) -> Arc<Directory> {
        self.directory.clone()
    }

    /// True when a connection can go on without waiting for anything.
    pub fn has_work(&self) -> bool {
        self.connections.has_work()
    }

    /// When [`Clients::timers`] must run at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        let greeting = self.greeted_order.front().map(|(since, _, _)| *since + HANDSHAKE_MAX);
        let paused = self.listeners.iter().filter_map(|l| l.paused_until).min();
        [greeting, self.connections.deadline(), paused, self.awaits_look].into_iter().flatten().min()
    }

    // --- listeners ---

    pub fn listen(&mut self, reactor: &mut Reactor, socket: OwnedFd, tls: Option<TlsServer>, connections_max: u32) {
        let token = LISTENER | self.listeners.len() as u64;
        if let Err(error) = reactor.watch(socket.as_raw_fd(), token, Interest::READ) {
            log::say!(Error, "cannot wait for clients: {error}; the listener stays closed");
            return;
        }
        let seats = Seats::new(connections_max.into());
        self.listeners.push(Listener { socket, tls, seats, paused_until: None, crowded_told: None });
    }

    pub fn stop_listening(&mut self, reactor: &mut Reactor) {
        for listener in self.listeners.drain(..) {
            let _ = reactor.unwatch(listener.socket.as_raw_fd());
        }
        for greeted in self.greeted.drain() {
            if let Some(greeter) = greeted.greeter {
                let _ = reactor.unwatch(greeter.socket().as_raw_fd());
            }
        }
        self.greeted_order.clear();
    }

    fn accept(&mut self, volumes: &mut Volumes, reactor: &mut Reactor, index: usize, now: Instant) {
        for _ in 0..ACCEPTS_PER_ROUND {
            let Some(listener) = self.listeners.get_mut(index) else { return };
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            // SAFETY: an open descriptor; no address is asked for.
            let fd = unsafe {
                libc::accept4(listener.socket.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags)
            };
            if fd < 0 {
                let error = std::io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EAGAIN) => return,
                    // This one client is gone, or spoke to a network that is.
                    Some(libc::ECONNABORTED | libc::EINTR | libc::EPROTO | libc::ENETDOWN | libc::EHOSTUNREACH) => {
                        continue;
                    }
                    Some(_) | None => {
                        log::say!(Error, "cannot accept a client: {error}; trying again in a second");
                        listener.paused_until = Some(now + ACCEPT_PAUSE);
                        let token = LISTENER | index as u64;
                        let _ = reactor.rewatch(listener.socket.as_raw_fd(), token, Interest::NONE);
                        return;
                    }
                }
            }
            // SAFETY: accept4 has just made this descriptor, and nobody else knows of it.
            let socket = unsafe { OwnedFd::from_raw_fd(fd) };
            let tls = listener.tls.clone();
            self.make_room(reactor, index);
            let from = origin(&socket);
            no_delay(&socket);
            forebay_io::socket::keep_alive(socket.as_fd());
            make_room_for_answers(&socket);
            let entry = self.greeted.vacant_entry();
            let key = entry.key();
            if reactor.watch(socket.as_raw_fd(), GREETER | key as u64, Interest::READ).is_err() {
                continue;
            }
            self.greeted_made += 1;
            entry.insert(Greeted {
                greeter: Some(Greeter::new(socket, tls, now)),
                from,
                seat: None,
                listener: index,
                number: self.greeted_made,
                interest: Interest::READ,
                awaits_export: false,
                prolonged: 0,
            });
            self.greeted_order.push_back((now, key, self.greeted_made));
            self.greet(volumes, reactor, key, now);
        }
    }

    /// For one more that negotiates.
    fn make_room(&mut self, reactor: &mut Reactor, listener: usize) {
        let room = self.listeners[listener].seats.left().max(GREETED_MIN);
        let all = self.greeted.iter().filter(|(_, greeted)| greeted.listener == listener).count() as u64;
        if all < room {
            return;
        }
        let mut by_origin: HashMap<Origin, (usize, u64, usize)> = HashMap::new();
        for (key, greeted) in self.greeted.iter().filter(|(_, greeted)| greeted.listener == listener) {
            let (count, oldest, at) = by_origin.entry(greeted.from).or_insert((0, u64::MAX, key));
            *count += 1;
            if greeted.number < *oldest {
                (*oldest, *at) = (greeted.number, key);
            }
        }
        let gives_way = by_origin.into_values().max_by_key(|(count, oldest, _)| (*count, u64::MAX - *oldest));
        if let Some((_, _, key)) = gives_way {
            self.drop_greeted(reactor, key);
        }
    }

    fn tell_crowded(&mut self, listener: usize, crowded: &Crowded, now: Instant) {
        let Some(listener) = self.listeners.get_mut(listener) else { return };
        if listener.crowded_told.is_none_or(|told| now >= told + CROWDED_TOLD_EVERY) {
            listener.crowded_told = Some(now);
            log::say!(Warning, "an NBD client was not let in, and told so: {crowded}");
        }
    }

    fn drop_greeted(&mut self, reactor: &mut Reactor, key: usize) {
        if let Some(greeter) = self.greeted.remove(key).greeter {
            let _ = reactor.unwatch(greeter.socket().as_raw_fd());
        }
    }

    // --- clients that are negotiating ---

    fn greet(&mut self, volumes: &mut Volumes, reactor: &mut Reactor, key: usize, now: Instant) {
        let Some(greeted) = self.greeted.get_mut(key) else { return };
        let (index, from) = (greeted.listener, greeted.from);
        let Some(listener) = self.listeners.get(index) else { return };
        let (directory, seats) = (&*self.directory, &listener.seats);
        let seat = RefCell::new(greeted.seat.take());
        let hurries = greeted.prolonged >= AWAITS_MAX;
        let door = Door { directory, seats, from, hurries, seat, crowded: RefCell::default() };
        let greeter = greeted.greeter.take().expect("taken out only here");
        let fd = greeter.socket().as_raw_fd();
        let greeting = greeter.advance(&door);
        let (seat, crowded) = (door.seat.into_inner(), door.crowded.into_inner());
        if let Some(crowded) = crowded {
            self.tell_crowded(index, &crowded, now);
        }
        let awaits_export = matches!(greeting, Greeting::AwaitsExport(_));
        let (greeter, interest) = match greeting {
            Greeting::WaitsReadable(greeter) => (greeter, Interest::READ),
            Greeting::AwaitsExport(greeter) => {
                self.awaits_look.get_or_insert(now + AWAITS_LOOK);
                (greeter, Interest::NONE)
            }
            Greeting::WaitsWritable(greeter) => (greeter, Interest::WRITE),
            Greeting::Closed(_) => {
                // The socket is closed, and with it out of the reactor's list.
                self.greeted.remove(key);
                return;
            }
            Greeting::Ready(channel, negotiated) => {
                let _ = reactor.unwatch(fd);
                self.greeted.remove(key);
                let seat = seat.expect("who enters was admitted");
                return self.hand_over(volumes, reactor, channel, seat, negotiated, now);
            }
        };
        let Some(greeted) = self.greeted.get_mut(key) else { return };
        if greeted.awaits_export && !awaits_export && greeted.prolonged < AWAITS_MAX {
            // Its own time begins when it is answered.
            self.greeted_made += 1;
            (greeted.number, greeted.prolonged) = (self.greeted_made, greeted.prolonged + 1);
            self.greeted_order.push_back((now, key, self.greeted_made));
        }
        (greeted.greeter, greeted.seat, greeted.awaits_export) = (Some(greeter), seat, awaits_export);
        if greeted.interest != interest {
            greeted.interest = interest;
            if reactor.rewatch(fd, GREETER | key as u64, interest).is_err() {
                self.drop_greeted(reactor, key);
            }
        }
    }

    /// To the shard of the chosen volume; this one's own volumes as well, so that there is one way.
    fn hand_over(
        &mut self,
        volumes: &mut Volumes,
        reactor: &mut Reactor,
        channel: Channel,
        seat: Seat,
        negotiated: Box<Negotiated>,
        now: Instant,
    ) {
        let Some(export) = self.directory.find(&negotiated.export.name) else { return };
        let (number, key) = match export.place {
            Place::Shard { number, key } => (number, key),
            Place::Forwarder(volume) => {
                let client = Box::new(Packed { channel, negotiated: *negotiated, unsent: Vec::new() });
                return self.directory.forwarder().send(ToForwarder::Client { volume, client, seat });
            }
        };
        if volumes.get(key.0 as usize).is_some_and(Option::is_some) {
            self.take_in(volumes, reactor, key.0, channel, seat, *negotiated, now);
        } else {
            self.directory.shard(number).send(ToShard::Connection { key, channel, seat, negotiated });
        }
    }

    /// A client that has chosen a volume of this shard, or one that another is in the place of. Where there is none any more,
    /// the end of its channel is its answer.
    #[allow(clippy::too_many_arguments)] // what makes a connection; a struct would be made for this one call
    pub fn take_in(
        &mut self,
        volumes: &mut Volumes,
        reactor: &mut Reactor,
        key: u32,
        channel: Channel,
        seat: Seat,
        negotiated: Negotiated,
        now: Instant,
    ) {
        let mut key = key;
        while let Some(next) = self.in_place_of.get(&key) {
            key = *next;
        }
        if let Some(parked) = self.parked.get_mut(&key) {
            return parked.push((Packed { channel, negotiated, unsent: Vec::new() }, seat));
        }
        if let Some(slot) = volumes.get_mut(key as usize).and_then(Option::as_mut) {
            // It was still choosing when another tier came, which takes less: it chooses again, and is told.
            if negotiated.export.request_bytes_max <= slot.volume.request_bytes_max() {
                self.connect(slot, key, reactor, channel, seat, negotiated, now);
            }
        }
    }

    /// Takes the clients away from a volume that is pausing, as soon as all that they had asked is answered.
    pub fn park_if_still(&mut self, slot: &mut Slot, key: u32, reactor: &mut Reactor, now: Instant) {
        if !matches!(slot.parking, Parking::Pausing(_)) || self.connections.await_answers(slot) {
            return;
        }
        let Parking::Pausing(still) = std::mem::replace(&mut slot.parking, Parking::Parked) else { return };
        let packed = self.connections.pack_all_of(slot, reactor, now);
        let told = packed.iter().map(|(client, _)| client.negotiated.export.request_bytes_max).max();
        self.parked.insert(key, packed);
        // Whoever asked unparks them, or has gone, and this shard with it.
        let _ = still.send(told.unwrap_or(0));
    }

    /// Gives the clients that were parked, or are to be, to the volume that is there now: the same, or another in its place.
    pub fn unpark(&mut self, volumes: &mut Volumes, reactor: &mut Reactor, key: u32, to: u32, now: Instant) {
        let parked = self.parked.remove(&key);
        if key != to {
            self.in_place_of.insert(key, to);
        }
        let Some(slot) = volumes.get_mut(to as usize).and_then(Option::as_mut) else { return };
        slot.parking = Parking::No;
        self.connections.go_on(&mut **slot);
        for (client, seat) in parked.into_iter().flatten() {
            self.resume(slot, to, reactor, client, seat, now);
        }
    }

    // --- connections ---

    #[allow(clippy::too_many_arguments)] // what makes a connection; a struct would be made for this one call
    pub fn connect(
        &mut self,
        slot: &mut Slot,
        volume: u32,
        reactor: &mut Reactor,
        channel: Channel,
        seat: Seat,
        negotiated: Negotiated,
        now: Instant,
    ) -> Option<u32> {
        // Who may use the volume can have changed since it was chosen.
        if !self.directory.admits(&negotiated.client, &negotiated.export.name) {
            return None;
        }
        let make = |number| Connection::new(channel, number, negotiated, now);
        self.connections.add(slot, volume as usize, reactor, seat, make)
    }

    /// A client that was served elsewhere.
    pub fn resume(
        &mut self,
        slot: &mut Slot,
        volume: u32,
        reactor: &mut Reactor,
        client: Packed,
        seat: Seat,
        now: Instant,
    ) {
        if !self.directory.admits(&client.negotiated.client, &client.negotiated.export.name) {
            return;
        }
        self.connections.add(slot, volume as usize, reactor, seat, |number| Connection::resume(client, number, now));
    }

    /// A watched socket is ready. Returns the volume that has got something to do by it.
    #[allow(clippy::too_many_arguments)] // the reactor's words, passed on
    pub fn ready(
        &mut self,
        volumes: &mut Volumes,
        reactor: &mut Reactor,
        token: u64,
        readable: bool,
        hangup: bool,
        now: Instant,
    ) -> Option<usize> {
        let index = (token & 0xffff_ffff) as usize;
        match token & !0xffff_ffff {
            LISTENER => self.accept(volumes, reactor, index, now),
            GREETER => self.greet(volumes, reactor, index, now),
            // That it is writable need not be said: `flush` sends to every touched connection.
            CONNECTION => return self.connections.ready(volumes, index, readable, hangup, now),
            _ => unreachable!("the shard watches listeners, greeters and connections"),
        }
        None
    }

    /// Lets the connections go on that need not wait. Returns the volumes that have got something to do by it.
    pub fn poll(&mut self, volumes: &mut Volumes, now: Instant) -> Vec<usize> {
        self.connections.poll(volumes, now)
    }

    /// Does what a volume's effect asks of its clients.
    pub fn execute(&mut self, slot: &mut Slot, effect: Effect, now: Instant) {
        match effect {
            Effect::Reply { id, result } => self.connections.reply(slot, id, result, now),
            Effect::FramesFree => self.connections.frames_are_free(slot),
            Effect::Answer { id, result } => slot.answer(id, result),
            Effect::Send(_) | Effect::Report(_) => {
                unreachable!("the cluster's part carries out what nodes tell each other")
            }
            Effect::Describe { .. }
            | Effect::TierWrite { .. }
            | Effect::TierSync { .. }
            | Effect::TierRead { .. }
            | Effect::TierScan { .. }
            | Effect::BackingRead { .. }
            | Effect::BackingWrite { .. }
            | Effect::BackingZero { .. }
            | Effect::BackingSync { .. }
            | Effect::JournalWrite { .. }
            | Effect::JournalSync { .. }
            | Effect::Merge { .. }
            | Effect::Copy { .. } => unreachable!("io carries out effects on devices and memory"),
        }
    }

    /// At the end of a round: answers leave, interests follow, ended connections go. Returns the volumes that got
    /// something back (frames, room) and must be looked at again.
    pub fn flush(&mut self, volumes: &mut Volumes, reactor: &mut Reactor, now: Instant) -> Vec<usize> {
        self.connections.flush(volumes, reactor, now)
    }

    /// Closes one connection, if it is still there.
    pub fn close(&mut self, slot: &mut Slot, reactor: &mut Reactor, number: u32, now: Instant) {
        self.connections.close(slot, reactor, number, now);
    }

    /// Closes every connection of a volume that is about to go.
    pub fn close_all_of(&mut self, slot: &mut Slot, reactor: &mut Reactor, now: Instant) {
        self.connections.close_all_of(slot, reactor, now);
    }

    /// Closes those whose clients may not use their volume any more.
    pub fn close_barred(&mut self, volumes: &mut Volumes, reactor: &mut Reactor, now: Instant) {
        for slot in volumes.iter_mut().flatten() {
            self.connections.close_barred(&mut **slot, reactor, &self.directory, now);
        }
    }

    /// Closes those of a volume whose client has called this address.
    pub fn close_all_at(&mut self, slot: &mut Slot, reactor: &mut Reactor, ip: IpAddr, now: Instant) {
        self.connections.close_all_at(slot, reactor, ip, now);
    }

    /// Takes every connection of a volume away, to be served elsewhere.
    pub fn pack_all_of(&mut self, slot: &mut Slot, reactor: &mut Reactor, now: Instant) -> Vec<(Packed, Seat)> {
        self.connections.pack_all_of(slot, reactor, now)
    }

    /// Sends away who is over time.
    pub fn timers(&mut self, volumes: &mut Volumes, reactor: &mut Reactor, now: Instant) {
        while let Some(&(since, key, number)) = self.greeted_order.front() {
            let there = self.greeted.get_mut(key).filter(|greeted| greeted.number == number);
            if there.is_some() && since + HANDSHAKE_MAX > now {
                break;
            }
            self.greeted_order.pop_front();
            match there {
                Some(greeted) if greeted.awaits_export && greeted.prolonged < AWAITS_MAX => {
                    greeted.prolonged += 1;
                    self.greeted_order.push_back((now, key, number));
                }
                Some(_) => self.drop_greeted(reactor, key),
                None => {}
            }
        }
        if self.awaits_look.take_if(|look| *look <= now).is_some() {
            let await_export = self.greeted.iter().filter(|(_, greeted)| greeted.awaits_export);
            let keys: Vec<usize> = await_export.map(|(key, _)| key).collect();
            for key in keys {
                self.greet(volumes, reactor, key, now);
            }
        }
        self.connections.timers(volumes, now);
        for index in 0..self.listeners.len() {
            let listener = &mut self.listeners[index];
            if listener.paused_until.is_some_and(|until| until <= now) {
                listener.paused_until = None;
                let token = LISTENER | index as u64;
                let _ = reactor.rewatch(listener.socket.as_raw_fd(), token, Interest::READ);
            }
        }
    }
}

/// Replies must not wait for more bytes to fill a packet. Fails on unix sockets, which never wait.
fn no_delay(socket: &OwnedFd) {
    let one: libc::c_int = 1;
    // SAFETY: an open descriptor and an integer of the size that is given.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NODELAY,
            (&raw const one).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// Where a client has come from.
fn origin(socket: &OwnedFd) -> Origin {
    match forebay_io::socket::is_local(socket.as_fd()) {
        true => Origin::User(forebay_io::socket::peer_user(socket.as_fd())),
        false => {
            let address = forebay_io::socket::peer_address(socket.as_fd());
            Origin::Network(address.map(forebay_io::socket::network_of))
        }
    }
}

/// Bytes of answers that a local client's socket takes at once (the kernel doubles it for its own overhead): a large read.
/// With the kernel's usual 208 KiB a read of 512 KiB needs three wake-ups on each side. It is part of what a client may cost.
const LOCAL_SEND_BYTES: libc::c_int = 512 << 10;

/// Unix sockets keep the size that they are made with; those of TCP grow by themselves, unless they are told a size.
fn make_room_for_answers(socket: &OwnedFd) {
    if !forebay_io::socket::is_local(socket.as_fd()) {
        return;
    }
    let bytes = LOCAL_SEND_BYTES;
    // SAFETY: an open descriptor, and an integer of the size that is given. Where the system allows less, it is less.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

impl Home for Slot {
    fn desk(&mut self, now: Instant) -> impl Backend + '_ {
        Desk::new(&mut self.volume, &self.io, &self.identity, now)
    }

    fn connections(&mut self) -> &mut Vec<usize> {
        &mut self.connections
    }

    fn is_paused(&self) -> bool {
        !matches!(self.parking, Parking::No)
    }
}

/// A volume as a connection sees it.
pub struct Desk<'a> {
    volume: &'a mut Volume,
    io: &'a VolumeIo,
    identity: &'a [u8; 16],
    now: Instant,
}

impl<'a> Desk<'a> {
    pub fn new(volume: &'a mut Volume, io: &'a VolumeIo, identity: &'a [u8; 16], now: Instant) -> Desk<'a> {
        Desk { volume, io, identity, now }
    }
}

// SAFETY: frames lie in the volume's arena, whose mapping lives as long as `io`, which outlives every connection of
// the volume (`close_all_of` runs before a slot is dropped). Core gives a frame to one taker at a time and leaves it
// alone until it is returned, submitted or sent; io makes references into frames only within its own calls, for frames
// that core has named in an effect.
unsafe impl Backend for Desk<'_> {
    fn size_bytes(&self) -> u64 {
        self.volume.size_bytes()
    }

    fn admissible(&self, request: &Request) -> Result<(), RequestError> {
        self.volume.admissible(request)
    }

    fn take_frames(&mut self, client: ClientId, held: u32, count: u32, into: &mut Frames) -> bool {
        if !self.volume.may_hold(held, count) {
            // It waits for others to let go, and must not keep its place meanwhile.
            self.volume.withdraw(client);
            return false;
        }
        let taken = self.volume.take_frames(client, count, into);
        if taken {
            self.volume.hold(count);
        }
        taken
    }

    fn withdraw(&mut self, client: ClientId) {
        self.volume.withdraw(client);
    }

    fn hold(&mut self, held: u32, count: u32) -> bool {
        let granted = self.volume.may_hold(held, count);
        if granted {
            self.volume.hold(count);
        }
        granted
    }

    fn let_go(&mut self, count: u32) {
        self.volume.let_go(count);
    }

    fn return_frames(&mut self, frames: &[FrameId]) {
        self.volume.return_frames(frames);
    }

    fn frame(&self, frame: FrameId) -> NonNull<u8> {
        NonNull::new(self.io.arena().frame(frame)).expect("a frame lies in a mapping, never at address 0")
    }

    fn checksum(&self, block: BlockIndex, mask: SectorMask, bytes: &[u8]) -> u32 {
        payload_checksum(self.identity, block, mask, self.volume.term(), bytes)
    }

    fn submit(&mut self, id: RequestId, request: Request) {
        self.volume.handle(self.now, Event::Request { id, request });
    }

    fn sent(&mut self, pieces: Pieces) {
        self.volume.handle(self.now, Event::Sent(pieces));
    }

    fn hangup(&mut self, ids: Vec<RequestId>) {
        self.volume.handle(self.now, Event::Hangup(ids));
    }

    fn take_back(&mut self, ids: &[RequestId]) -> Vec<(RequestId, Request)> {
        self.volume.take_back(ids)
    }

    fn extents(&self, offset: u64, length: u64, max: usize) -> Vec<Extent> {
        self.volume.extents(offset, length, max)
    }
}
