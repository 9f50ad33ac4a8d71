//! NBD clients that come in: listening sockets, and clients that are still negotiating. Who has chosen its export goes to who serves it.
//!
//! Invariants:
//! - A client that negotiates costs itself only.
//! - A listener has at most its number of clients ([`seats`](crate::datapath::seats)), those that negotiate included; a few more may
//!   negotiate, to be told that there is no place. Of those that negotiate, one makes room of whoever has most: the oldest that was not
//!   heard yet, or else the oldest. So silent clients keep nobody out.
//! - Where clients must use TLS, each that has begun to speak is heard when its turn has come ([`Turns`]).

use crate::datapath::directory::{Directory, Place};
use crate::datapath::forward::ToForwarder;
use crate::datapath::mailbox::ToShard;
use crate::datapath::seats::{Crowded, Origin, Seat, Seats};
use crate::log;
use forebay_core::roles::Client;
use forebay_core::types::{Duration, Instant};
use forebay_front::nbd::channel::Channel;
use forebay_front::nbd::connection::Packed;
use forebay_front::nbd::greeter::{Greeter, Greeting};
use forebay_front::nbd::handshake::{ExportInfo, Exports, HANDSHAKE_MAX, Negotiated};
use forebay_front::nbd::tls::TlsServer;
use forebay_io::turns::Turns;
use forebay_io::{Interest, Reactor};
use slab::Slab;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Watch tokens: what it is in the upper half, which one in the lower.
const LISTENER: u64 = 1 << 32;
const GREETER: u64 = 2 << 32;

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

struct Listener {
    socket: OwnedFd,
    /// Clients must use it.
    tls: Option<TlsServer>,
    seats: Arc<Seats>,
    paused_until: Option<Instant>,
    crowded_told: Option<Instant>,
}

/// How far a client has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hearing {
    /// It must use TLS, and has said nothing yet.
    Silent,
    /// It has begun to speak, and is not watched.
    AwaitsTurn,
    /// It needs no turn, or its turn has come.
    Begun,
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
    hearing: Hearing,
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
    /// Those who await their turn, by their place.
    turns: Turns<Origin, usize>,
    /// In order of their arrival, which is that of their deadlines. Names that are gone are passed over.
    greeted_order: VecDeque<(Instant, usize, u64)>,
    greeted_made: u64,
    /// When those are looked at who ask for an export that cannot be entered yet.
    awaits_look: Option<Instant>,
}

impl Clients {
    pub fn new(directory: Arc<Directory>) -> Clients {
        Clients {
            directory,
            listeners: Vec::new(),
            greeted: Slab::new(),
            turns: Turns::default(),
            greeted_order: VecDeque::new(),
            greeted_made: 0,
            awaits_look: None,
        }
    }

    /// True for watch tokens of listeners and of clients that negotiate.
    pub fn has_token(token: u64) -> bool {
        matches!(token & !0xffff_ffff, LISTENER | GREETER)
    }

    /// When [`Clients::timers`] must run at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        let greeting = self.greeted_order.front().map(|(since, _, _)| *since + HANDSHAKE_MAX);
        let paused = self.listeners.iter().filter_map(|l| l.paused_until).min();
        [greeting, paused, self.awaits_look, self.turns.deadline()].into_iter().flatten().min()
    }

    /// A watched socket is ready.
    pub fn ready(&mut self, reactor: &mut Reactor, token: u64, now: Instant) {
        let index = (token & 0xffff_ffff) as usize;
        match token & !0xffff_ffff {
            LISTENER => self.accept(reactor, index, now),
            GREETER => match self.greeted.get(index).map(|greeted| greeted.hearing) {
                Some(Hearing::Silent) => self.await_turn(reactor, index, now),
                Some(Hearing::Begun) => self.greet(reactor, index, now),
                // It is not watched: it was another one in its place.
                Some(Hearing::AwaitsTurn) | None => {}
            },
            _ => unreachable!("listeners and greeters are watched"),
        }
    }

    /// It has begun to speak.
    fn await_turn(&mut self, reactor: &mut Reactor, key: usize, now: Instant) {
        let greeted = &mut self.greeted[key];
        greeted.hearing = Hearing::AwaitsTurn;
        let greeter = greeted.greeter.as_ref().expect("taken out only while it is advanced");
        let _ = reactor.unwatch(greeter.socket().as_raw_fd());
        self.turns.wait(greeted.from, key);
        self.give_turns(reactor, now);
    }

    /// Hears those whose turn has come.
    fn give_turns(&mut self, reactor: &mut Reactor, now: Instant) {
        while let Some(key) = self.turns.next(now) {
            let greeted = &mut self.greeted[key];
            (greeted.hearing, greeted.interest) = (Hearing::Begun, Interest::READ);
            let fd = greeted.greeter.as_ref().expect("taken out only while it is advanced").socket().as_raw_fd();
            match reactor.watch(fd, GREETER | key as u64, Interest::READ) {
                Ok(()) => self.greet(reactor, key, now),
                Err(_) => drop(self.greeted.remove(key)),
            }
        }
    }

    /// Sends away who is over time, and goes on with those whose time has come.
    pub fn timers(&mut self, reactor: &mut Reactor, now: Instant) {
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
        self.give_turns(reactor, now);
        if self.awaits_look.take_if(|look| *look <= now).is_some() {
            let await_export = self.greeted.iter().filter(|(_, greeted)| greeted.awaits_export);
            let keys: Vec<usize> = await_export.map(|(key, _)| key).collect();
            for key in keys {
                self.greet(reactor, key, now);
            }
        }
        for index in 0..self.listeners.len() {
            let listener = &mut self.listeners[index];
            if listener.paused_until.is_some_and(|until| until <= now) {
                listener.paused_until = None;
                let token = LISTENER | index as u64;
                let _ = reactor.rewatch(listener.socket.as_raw_fd(), token, Interest::READ);
            }
        }
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
        let keys: Vec<usize> = self.greeted.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.drop_greeted(reactor, key);
        }
        self.greeted_order.clear();
    }

    fn accept(&mut self, reactor: &mut Reactor, index: usize, now: Instant) {
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
            let hearing = if tls.is_some() { Hearing::Silent } else { Hearing::Begun };
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
                hearing,
                awaits_export: false,
                prolonged: 0,
            });
            self.greeted_order.push_back((now, key, self.greeted_made));
            self.greet(reactor, key, now);
        }
    }

    /// For one more that negotiates.
    fn make_room(&mut self, reactor: &mut Reactor, listener: usize) {
        let room = self.listeners[listener].seats.left().max(GREETED_MIN);
        let all = self.greeted.iter().filter(|(_, greeted)| greeted.listener == listener).count() as u64;
        if all < room {
            return;
        }
        let here = || self.greeted.iter().filter(|(_, greeted)| greeted.listener == listener);
        let mut origins: HashMap<Origin, usize> = HashMap::new();
        here().for_each(|(_, greeted)| *origins.entry(greeted.from).or_default() += 1);
        let rank =
            |greeted: &Greeted| (origins[&greeted.from], greeted.hearing != Hearing::Begun, Reverse(greeted.number));
        let gives_way = here().max_by_key(|(_, greeted)| rank(greeted)).map(|(key, _)| key);
        if let Some(key) = gives_way {
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
        let greeted = self.greeted.remove(key);
        if greeted.hearing == Hearing::AwaitsTurn {
            self.turns.forget(&key);
        } else if let Some(greeter) = greeted.greeter {
            let _ = reactor.unwatch(greeter.socket().as_raw_fd());
        }
    }

    // --- clients that are negotiating ---

    fn greet(&mut self, reactor: &mut Reactor, key: usize, now: Instant) {
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
                return self.hand_over(channel, seat, negotiated);
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

    /// To who serves the chosen volume.
    fn hand_over(&self, channel: Channel, seat: Seat, negotiated: Box<Negotiated>) {
        let Some(export) = self.directory.find(&negotiated.export.name) else { return };
        let (number, key) = match export.place {
            Place::Shard { number, key } => (number, key),
            Place::Forwarder(volume) => {
                let client = Box::new(Packed { channel, negotiated: *negotiated, unsent: Vec::new() });
                return self.directory.forwarder().send(ToForwarder::Client { volume, client, seat });
            }
        };
        self.directory.shard(number).send(ToShard::Connection { key, channel, seat, negotiated });
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
