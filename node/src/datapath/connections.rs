//! The connections of a thread to the volumes that its clients use: which socket is ready, who has something to say, whose
//! time is over. The thread that has the volumes calls it; the volumes are its own ([`Home`]).
//!
//! Invariants:
//! - A client costs itself only: whatever it does ends at most its own connection.
//! - A connection ends within [`STALL_MAX`] of the last progress that is the client's to make.
//! - A connection is in the list of its volume as long as it is here.

use crate::datapath::directory::Directory;
use crate::datapath::seats::Seat;
use forebay_core::api::{Pieces, RequestError};
use forebay_core::types::{Instant, RequestId};
use forebay_front::Backend;
use forebay_front::nbd::connection::{Connection, Packed, STALL_MAX, Scratch, WaitsFor, drop_reply};
use forebay_io::address::own_address;
use forebay_io::{Interest, Reactor};
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::AsRawFd;

/// Connections that receive without waiting for their sockets, in one round: each may keep the thread busy for thousands of blocks.
const TURNS_MAX: usize = 8;
/// Once so many bytes were received in a round, whose socket is ready as well waits for a turn; and turns end with as many. Sixteen
/// clients that write as fast as they can would else be looked at in one go, before anybody has an answer.
const ROUND_RECEIVED_BYTES_MAX: usize = 2 << 20;
/// Connections with more to send than [`SHORT_ANSWER_BYTES`] that send in one round. The others wait in the order of their coming.
const SENDS_MAX: usize = 4;
/// Answers up to here wait for nobody's turn: all of them together cost less than one large one.
const SHORT_ANSWER_BYTES: u64 = 64 << 10;

/// Something that connections lead to.
pub trait Home {
    /// The volume as a connection sees it.
    fn desk(&mut self, now: Instant) -> impl Backend + '_;

    /// Places of its connections in the thread's list.
    fn connections(&mut self) -> &mut Vec<usize>;

    /// Parked: nothing more is taken from its clients until it is unparked; what was taken is answered.
    fn is_paused(&self) -> bool {
        false
    }
}

/// What connections lead to, by number.
pub type Homes<H> = [Option<Box<H>>];

struct Client {
    connection: Connection,
    volume: usize,
    interest: Interest,
    /// When to look whether it has stalled.
    stall_check: Option<Instant>,
    touched: bool,
    has_turn: bool,
    /// It is among those that wait for a turn to send.
    awaits_send: bool,
    /// Counted by its listener as long as it lives.
    seat: Seat,
}

/// See the module's text.
pub struct Connections {
    /// Watch token of the first one.
    token: u64,
    clients: Slab<Client>,
    by_number: HashMap<u32, usize>,
    numbers_made: u32,
    /// The connection of the last reply: replies come in runs.
    last: Option<(u32, usize)>,
    touched: Vec<usize>,
    turns: VecDeque<usize>,
    /// Those with large answers that wait for a turn to send.
    sends: VecDeque<usize>,
    /// Bytes received since the last `poll`.
    received: usize,
    stall_checks: VecDeque<(Instant, u32)>,
    scratch: Scratch,
}

impl Connections {
    /// None yet. Their watch tokens are `token` and those behind it.
    pub fn new(token: u64) -> Connections {
        Connections {
            token,
            clients: Slab::new(),
            by_number: HashMap::new(),
            numbers_made: 0,
            last: None,
            touched: Vec::new(),
            turns: VecDeque::new(),
            sends: VecDeque::new(),
            received: 0,
            stall_checks: VecDeque::new(),
            scratch: Scratch::default(),
        }
    }

    /// True when a connection can go on without waiting for anything.
    pub fn has_work(&self) -> bool {
        !self.turns.is_empty() || !self.sends.is_empty() || !self.touched.is_empty()
    }

    /// When [`Connections::timers`] must run at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        self.stall_checks.front().map(|(at, _)| *at)
    }

    /// Takes a client in, which `make` turns into a connection of the number that is returned. None: the reactor does not take
    /// its socket.
    pub fn add<H: Home>(
        &mut self,
        home: &mut H,
        volume: usize,
        reactor: &mut Reactor,
        seat: Seat,
        make: impl FnOnce(u32) -> Connection,
    ) -> Option<u32> {
        self.numbers_made = self.numbers_made.wrapping_add(1);
        let number = self.numbers_made;
        let connection = make(number);
        let entry = self.clients.vacant_entry();
        let index = entry.key();
        if reactor.watch(connection.socket().as_raw_fd(), self.token | index as u64, Interest::READ).is_err() {
            return None;
        }
        entry.insert(Client {
            connection,
            volume,
            interest: Interest::READ,
            stall_check: None,
            touched: false,
            has_turn: false,
            awaits_send: false,
            seat,
        });
        self.by_number.insert(number, index);
        home.connections().push(index);
        // `flush` gives it a turn where something of it has arrived already.
        self.touch(index);
        Some(number)
    }

    fn touch(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if !client.touched {
            client.touched = true;
            self.touched.push(index);
        }
    }

    fn give_turn(turns: &mut VecDeque<usize>, client: &mut Client, index: usize) {
        if !client.has_turn {
            client.has_turn = true;
            turns.push_back(index);
        }
    }

    /// A socket is ready. Returns the volume that has got something to do by it.
    pub fn ready<H: Home>(
        &mut self,
        homes: &mut Homes<H>,
        index: usize,
        readable: bool,
        hangup: bool,
        now: Instant,
    ) -> Option<usize> {
        let client = self.clients.get_mut(index)?;
        let volume = client.volume;
        let home = homes[volume].as_mut()?;
        match client.connection.waits_for() {
            WaitsFor::Readable if (readable || hangup) && !home.is_paused() => {
                if self.received < ROUND_RECEIVED_BYTES_MAX {
                    self.received += client.connection.receive(&mut home.desk(now), &mut self.scratch, now);
                } else {
                    Self::give_turn(&mut self.turns, client, index);
                }
            }
            // It will find out when its turn comes.
            WaitsFor::Turn if !home.is_paused() => {}
            WaitsFor::Turn | WaitsFor::Readable | WaitsFor::Frames | WaitsFor::Replies | WaitsFor::Nothing => {
                if hangup {
                    client.connection.close(&mut home.desk(now));
                }
            }
        }
        // `flush` sends to every touched connection: that it is writable need not be said.
        self.touch(index);
        Some(volume)
    }

    /// Lets the connections go on that need not wait. Returns the volumes that have got something to do by it.
    pub fn poll<H: Home>(&mut self, homes: &mut Homes<H>, now: Instant) -> Vec<usize> {
        let mut turned = Vec::new();
        // The others have theirs in the next round: meanwhile sockets are looked at, and devices.
        let (mut received, mut turns) = (0, 0);
        for _ in 0..self.turns.len() {
            if turns == TURNS_MAX || received >= ROUND_RECEIVED_BYTES_MAX {
                break;
            }
            let Some(index) = self.turns.pop_front() else { break };
            let Some(client) = self.clients.get_mut(index) else { continue };
            client.has_turn = false;
            let volume = client.volume;
            if let Some(home) = homes[volume].as_mut()
                && !home.is_paused()
            {
                // Who was put off only because others have sent much costs what it has sent.
                turns += usize::from(client.connection.waits_for() == WaitsFor::Turn);
                received += client.connection.receive(&mut home.desk(now), &mut self.scratch, now);
                turned.push(volume);
                self.touch(index);
            }
        }
        self.received = 0;
        turned
    }

    /// The volume has answered a request.
    pub fn reply<H: Home>(&mut self, home: &mut H, id: RequestId, result: Result<Pieces, RequestError>, now: Instant) {
        let number = Connection::number_of(id);
        let index = match self.last {
            Some((last, index)) if last == number => Some(index),
            Some(_) | None => self.by_number.get(&number).copied(),
        };
        match index {
            Some(index) => {
                self.last = Some((number, index));
                self.clients[index].connection.reply(&mut home.desk(now), id, result);
                self.touch(index);
            }
            None => drop_reply(&mut home.desk(now), result),
        }
    }

    /// The volume has frames again.
    pub fn frames_are_free<H: Home>(&mut self, home: &mut H) {
        for &index in home.connections().iter() {
            let client = &mut self.clients[index];
            if client.connection.waits_for() == WaitsFor::Frames {
                Self::give_turn(&mut self.turns, client, index);
            }
        }
    }

    /// At the end of a round: answers leave, interests follow, ended connections go. Returns the volumes that got
    /// something back (frames, room) and must be looked at again.
    pub fn flush<H: Home>(&mut self, homes: &mut Homes<H>, reactor: &mut Reactor, now: Instant) -> Vec<usize> {
        let mut given_back = Vec::new();
        let touched = std::mem::take(&mut self.touched);
        // Who has waited for a turn to send is before those that have something to send only now.
        let mut sends_left = SENDS_MAX;
        for _ in 0..self.sends.len().min(SENDS_MAX) {
            let Some(index) = self.sends.pop_front() else { break };
            let client = &mut self.clients[index];
            (client.awaits_send, client.touched) = (false, false);
            sends_left -= 1;
            given_back.extend(self.send(homes, index, now));
            self.settle(homes, reactor, index, now);
        }
        for index in touched {
            // Who had its turn above is done with, or gone.
            let Some(client) = self.clients.get_mut(index).filter(|client| client.touched) else { continue };
            client.touched = false;
            let has_ended = client.connection.closed().is_some();
            let is_short = has_ended || client.connection.bytes_to_send() <= SHORT_ANSWER_BYTES;
            if has_ended || (!client.awaits_send && (is_short || sends_left > 0)) {
                sends_left -= usize::from(!is_short);
                given_back.extend(self.send(homes, index, now));
            } else if !client.awaits_send {
                client.awaits_send = true;
                self.sends.push_back(index);
            }
            self.settle(homes, reactor, index, now);
        }
        given_back
    }

    /// Sends what one connection sends in one turn. Returns its volume, if it may have got something back.
    fn send<H: Home>(&mut self, homes: &mut Homes<H>, index: usize, now: Instant) -> Option<usize> {
        let client = &mut self.clients[index];
        let gives_back = client.connection.has_unsent() || client.connection.closed().is_some();
        if let Some(home) = homes[client.volume].as_mut() {
            client.connection.flush_replies(&mut home.desk(now), &mut self.scratch, now);
        }
        if client.connection.sends_on() {
            client.awaits_send = true;
            self.sends.push_back(index);
        }
        gives_back.then_some(client.volume)
    }

    /// What one connection waits for from now on, or its end.
    fn settle<H: Home>(&mut self, homes: &mut Homes<H>, reactor: &mut Reactor, index: usize, now: Instant) {
        let client = &mut self.clients[index];
        if client.connection.closed().is_some() {
            return self.remove(homes, reactor, index);
        }
        let paused = homes[client.volume].as_ref().is_some_and(|home| home.is_paused());
        let waits_for = if paused { WaitsFor::Nothing } else { client.connection.waits_for() };
        match waits_for {
            WaitsFor::Turn => Self::give_turn(&mut self.turns, client, index),
            WaitsFor::Readable | WaitsFor::Frames | WaitsFor::Replies | WaitsFor::Nothing => {}
        }
        let interest = Interest {
            // A connection with a turn will be read in the next round anyway: two calls to epoll are saved.
            read: matches!(waits_for, WaitsFor::Readable | WaitsFor::Turn),
            // Likewise one with a turn to send.
            write: client.connection.has_unsent() && !client.awaits_send,
        };
        let fd = client.connection.socket().as_raw_fd();
        if client.interest != interest {
            client.interest = interest;
            if reactor.rewatch(fd, self.token | index as u64, interest).is_err() {
                if let Some(home) = homes[client.volume].as_mut() {
                    client.connection.close(&mut home.desk(now));
                }
                return self.remove(homes, reactor, index);
            }
        }
        if client.stall_check.is_none() && client.connection.stalled_since().is_some() {
            let at = now + STALL_MAX;
            client.stall_check = Some(at);
            self.stall_checks.push_back((at, client.connection.number()));
        }
    }

    fn remove<H: Home>(&mut self, homes: &mut Homes<H>, reactor: &mut Reactor, index: usize) {
        let volume = self.clients[index].volume;
        self.forget(reactor, index);
        if let Some(home) = homes[volume].as_mut() {
            home.connections().retain(|&i| i != index);
        }
    }

    /// Takes a connection out of all lists but its volume's.
    fn forget(&mut self, reactor: &mut Reactor, index: usize) -> Client {
        let client = self.clients.remove(index);
        let number = client.connection.number();
        let _ = reactor.unwatch(client.connection.socket().as_raw_fd());
        self.by_number.remove(&number);
        if self.last.is_some_and(|(last, _)| last == number) {
            self.last = None;
        }
        self.touched.retain(|&i| i != index);
        self.turns.retain(|&i| i != index);
        self.sends.retain(|&i| i != index);
        client
    }

    /// Closes one connection, if it is still there.
    pub fn close<H: Home>(&mut self, home: &mut H, reactor: &mut Reactor, number: u32, now: Instant) {
        let Some(&index) = self.by_number.get(&number) else { return };
        if let Some(at) = home.connections().iter().position(|&i| i == index) {
            home.connections().swap_remove(at);
            let mut client = self.forget(reactor, index);
            client.connection.close(&mut home.desk(now));
        }
    }

    /// Closes those of a volume whose client has called this address.
    pub fn close_all_at<H: Home>(&mut self, home: &mut H, reactor: &mut Reactor, ip: IpAddr, now: Instant) {
        let called = |index: &usize| own_address(self.clients[*index].connection.socket());
        let is_there = |index: &usize| called(index) == Some(ip.to_canonical());
        let (gone, kept): (Vec<usize>, Vec<usize>) = std::mem::take(home.connections()).into_iter().partition(is_there);
        *home.connections() = kept;
        for index in gone {
            let mut client = self.forget(reactor, index);
            client.connection.close(&mut home.desk(now));
        }
    }

    /// Closes those of a volume whose clients may not use it any more.
    pub fn close_barred<H: Home>(&mut self, home: &mut H, reactor: &mut Reactor, directory: &Directory, now: Instant) {
        let is_barred = |index: &usize| {
            let connection = &self.clients[*index].connection;
            !directory.admits(connection.client(), connection.export_name())
        };
        let (gone, kept): (Vec<usize>, Vec<usize>) =
            std::mem::take(home.connections()).into_iter().partition(is_barred);
        *home.connections() = kept;
        for index in gone {
            let mut client = self.forget(reactor, index);
            client.connection.close(&mut home.desk(now));
        }
    }

    /// Closes every connection of a volume that is about to go.
    pub fn close_all_of<H: Home>(&mut self, home: &mut H, reactor: &mut Reactor, now: Instant) {
        for index in std::mem::take(home.connections()) {
            let mut client = self.forget(reactor, index);
            client.connection.close(&mut home.desk(now));
        }
    }

    /// Takes every connection of a volume away, to be served elsewhere. Those that cannot be moved have ended.
    pub fn pack_all_of<H: Home>(&mut self, home: &mut H, reactor: &mut Reactor, now: Instant) -> Vec<(Packed, Seat)> {
        let mut packed = Vec::new();
        for index in std::mem::take(home.connections()) {
            let Client { connection, seat, .. } = self.forget(reactor, index);
            packed.extend(connection.pack(&mut home.desk(now)).map(|connection| (connection, seat)));
        }
        packed
    }

    /// A client of the volume has asked something that is not answered.
    pub fn await_answers<H: Home>(&self, home: &mut H) -> bool {
        home.connections().iter().any(|&index| self.clients[index].connection.awaits_answers())
    }

    /// The volume is paused no more.
    pub fn go_on<H: Home>(&mut self, home: &mut H) {
        for &index in home.connections().iter() {
            Self::give_turn(&mut self.turns, &mut self.clients[index], index);
        }
    }

    /// Sends away who is over time.
    pub fn timers<H: Home>(&mut self, homes: &mut Homes<H>, now: Instant) {
        while let Some(&(at, number)) = self.stall_checks.front()
            && at <= now
        {
            self.stall_checks.pop_front();
            let Some(&index) = self.by_number.get(&number) else { continue };
            let client = &mut self.clients[index];
            client.stall_check = None;
            match client.connection.stalled_since() {
                Some(since) if since + STALL_MAX <= now => {
                    if let Some(home) = homes[client.volume].as_mut() {
                        client.connection.close(&mut home.desk(now));
                    }
                    self.touch(index);
                }
                // It has moved since, and has stalled again: `flush` sets the next check, which is late by less than
                // the limit itself.
                Some(_) => self.touch(index),
                None => {}
            }
        }
    }
}
