//! The first words on a channel: who is there. Nothing else is read before it is known, and nobody who is not let in
//! learns more than one refusal.
//!
//! Bounds: whoever has not said who it is costs a socket, the buffers of a TLS handshake and a hello
//! ([`GREETING_MAX`] of time, [`VISITORS_MAX`] of them at one time), and begins TLS when its network's turn has come ([`Turns`]).

use super::failure::Failure;
use super::security::{self, Security};
use crate::certificate::Revoked;
use crate::channel::Channel;
use crate::reactor::{Interest, Reactor};
use crate::socket::{Moved, network_of, vector};
use crate::turns::Turns;
use forebay_core::cluster::{Host, NodeId};
use forebay_core::types::{Duration, Instant};
use forebay_core::wire::*;
use slab::Slab;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// Time from the connection to the hello. Two round trips and some arithmetic; a second is long on any link.
pub const GREETING_MAX: Duration = Duration::from_secs(3);
/// Connections that have not said who they are. When one more comes, one goes of the network that has most, the oldest that was not
/// heard yet, or else the oldest: an honest one takes milliseconds.
pub const VISITORS_MAX: usize = 64;
/// Connections taken by one call.
const ACCEPTS_MAX: usize = 16;
/// Pause after a connection that could not be taken.
const REST: Duration = Duration::from_millis(100);

/// This node, as its links say.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Identity of the cluster; nodes of another one are not let in.
    pub cluster: [u8; 16],
    /// This node's number.
    pub node: NodeId,
    /// This node's name, which its certificate must name.
    pub name: NodeName,
    /// The machine in its present boot.
    pub host: Host,
    /// Drawn at random when the process started; of a link, another one for each that is made.
    pub session: u64,
    /// Nodes' certificates that count no more.
    pub revoked: Arc<Revoked>,
}

impl Identity {
    pub(super) fn hello(&self, lane: u16, channel: u16) -> Hello {
        Hello {
            wire_min: WIRE_VERSION_MIN,
            wire_max: WIRE_VERSION,
            lane,
            channel,
            cluster: self.cluster,
            node: self.node,
            session: self.session,
            host: self.host,
            name: self.name.clone(),
            volume: None,
        }
    }

    /// Of a connection to the owner of a volume.
    pub(super) fn forward_hello(&self, volume: [u8; 16]) -> Hello {
        Hello { volume: Some(volume), ..self.hello(LANE_FORWARD, 0) }
    }

    /// Why the other side's hello is not one that may be answered; none: it may.
    fn objection(&self, hello: &Hello, channel: &Channel) -> Option<Rejection> {
        if hello.cluster != self.cluster {
            return Some(Rejection::OtherCluster);
        }
        if let Some(session) = channel.session()
            && !security::names(session.certificate(), &hello.name)
        {
            return Some(Rejection::NotItsCertificate);
        }
        self.hello(0, 0).version_with(hello).err()
    }
}

/// A TCP connection as a channel wants it: never blocking, and with little in the kernel that was not yet sent, so that
/// what is urgent is not behind it.
pub(super) fn prepare(socket: &socket2::Socket) -> io::Result<()> {
    /// Unsent bytes in the kernel beyond which the socket takes no more.
    const UNSENT_BYTES_MAX: u32 = 512 << 10;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    let bytes: *const u32 = &UNSENT_BYTES_MAX;
    // SAFETY: four bytes are read from a constant that lives through the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes.cast(), 4) };
    match io::Error::last_os_error() {
        _ if result == 0 => Ok(()),
        // Multipath TCP before Linux 6.11: what is urgent may be behind more of what is not.
        error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        error => Err(error),
    }
}

/// Reads one hello, and not a byte behind it.
#[derive(Default)]
pub(super) struct HelloReader {
    bytes: Vec<u8>,
}

impl HelloReader {
    /// None: more has to come. The hello was found right in itself; who may say it is checked by [`meet`].
    fn read(&mut self, channel: &mut Channel) -> Result<Option<Hello>, Failure> {
        loop {
            let wanted = match self.bytes.first_chunk::<HEAD_BYTES>() {
                None => HEAD_BYTES,
                Some(head) => HEAD_BYTES + self.body_bytes(head)? as usize,
            };
            let filled = self.bytes.len();
            if filled == wanted {
                return self.decode().map(Some);
            }
            self.bytes.resize(wanted, 0);
            let moved = channel.receive(&mut self.bytes[filled..]);
            let got = match &moved {
                Moved::Bytes(got) => *got,
                Moved::WouldBlock | Moved::Failed(_) => 0,
            };
            self.bytes.truncate(filled + got);
            match moved {
                Moved::Bytes(0) => return Err(Failure::HungUp),
                Moved::Bytes(_) => {}
                Moved::WouldBlock => return Ok(None),
                Moved::Failed(error) => return Err(Failure::of(&error)),
            }
        }
    }

    fn body_bytes(&self, head: &[u8; HEAD_BYTES]) -> Result<u32, Failure> {
        // A handshake record of TLS, of any version.
        if head[..2] == [22, 3] {
            return Err(Failure::NotPlain);
        }
        let head = FrameHead::decode(head).map_err(Failure::Malformed)?;
        match head.kind {
            FrameKind::Hello | FrameKind::Refusal => Ok(head.body_bytes),
            FrameKind::Start
            | FrameKind::Message
            | FrameKind::Acknowledge
            | FrameKind::Ping
            | FrameKind::Pong
            | FrameKind::Entered => Err(Failure::Malformed("frame: another one where a hello must be")),
        }
    }

    fn decode(&self) -> Result<Hello, Failure> {
        let (head, body) = self.bytes.split_first_chunk().expect("the head is here");
        let head = FrameHead::decode(head).map_err(Failure::Malformed)?;
        head.check_body(body).map_err(Failure::Malformed)?;
        match ChannelFrame::decode(head.kind, body).map_err(Failure::Malformed)? {
            ChannelFrame::Hello(hello) => Ok(hello),
            ChannelFrame::Refusal(why) => Err(Failure::RefusedByPeer(why)),
            ChannelFrame::Start { .. }
            | ChannelFrame::Acknowledge { .. }
            | ChannelFrame::Ping { .. }
            | ChannelFrame::Pong { .. }
            | ChannelFrame::Entered(_) => Err(Failure::Malformed("frame: another one where a hello must be")),
        }
    }
}

/// Takes the other side's hello, when it is there, and tells it when it cannot be answered.
pub(super) fn meet(
    reader: &mut HelloReader,
    channel: &mut Channel,
    identity: &Identity,
    called: Option<(&NodeName, Option<NodeId>)>,
) -> Result<Option<Hello>, Failure> {
    let hello = match reader.read(channel) {
        Ok(Some(hello)) => hello,
        Ok(None) => return Ok(None),
        Err(why) => {
            if let Failure::Malformed(_) = why {
                send_goodbye(channel, Rejection::Malformed);
            }
            return Err(why);
        }
    };
    // TLS has looked at it before; it may have been revoked since.
    if identity.refuses(channel) {
        send_goodbye(channel, Rejection::UnknownNode);
        return Err(Failure::Revoked);
    }
    let other = called.is_some_and(|(name, node)| *name != hello.name || node.is_some_and(|node| node != hello.node));
    let objection = if other { Some(Rejection::NotWhoWasCalled) } else { identity.objection(&hello, channel) };
    match objection {
        None => Ok(Some(hello)),
        Some(why) => {
            send_goodbye(channel, why);
            Err(Failure::Refused(why))
        }
    }
}

/// Sends a refusal, if the socket takes it now, and ends the connection.
pub(super) fn send_goodbye(channel: &mut Channel, why: Rejection) {
    let mut bytes = Vec::new();
    ChannelFrame::Refusal(why).encode(&mut bytes);
    // SAFETY: the vector names `bytes`, which lives through the call. Who does not take it now never learns.
    let _ = unsafe { channel.send(&[vector(bytes.as_ptr(), bytes.len())]) };
    channel.shut_down();
}

/// What a visitor's channel waits for.
fn interest(channel: &Channel) -> Interest {
    if channel.has_unsent() { Interest::BOTH } else { Interest::READ }
}

/// How far a visitor has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hearing {
    /// It has said nothing yet.
    Silent,
    /// It has begun to speak, and is not watched.
    AwaitsTurn,
    /// Its turn has come.
    Begun,
}

struct Visitor {
    channel: Channel,
    reader: HelloReader,
    address: SocketAddr,
    since: Instant,
    hearing: Hearing,
}

/// A node that calls and was found to be who it says.
pub struct Arrival {
    pub(super) channel: Channel,
    pub(super) hello: Hello,
    /// Where its connection comes from.
    pub address: SocketAddr,
}

impl Arrival {
    /// The name that the node says; with TLS its certificate names it.
    pub fn name(&self) -> &NodeName {
        &self.hello.name
    }

    /// The node's number, as it says itself.
    pub fn node(&self) -> NodeId {
        self.hello.node
    }

    /// Which of the links to it is meant.
    pub fn lane(&self) -> u16 {
        self.hello.lane
    }

    /// The volume for whose owner it has requests of its clients; none: it is a channel of a link.
    pub fn volume(&self) -> Option<[u8; 16]> {
        self.hello.volume
    }

    /// Tells the node why it is not let in, and ends the connection.
    pub fn refuse(mut self, why: Rejection) {
        send_goodbye(&mut self.channel, why);
    }
}

/// Somebody who was not let in.
#[derive(Debug)]
pub struct TurnedAway {
    /// Where the connection came from.
    pub address: SocketAddr,
    /// Why it was not let in.
    pub why: Failure,
}

/// Where other nodes call: a listener, and those that have not yet said who they are.
pub struct Door {
    listener: TcpListener,
    identity: Arc<Identity>,
    security: Security,
    token: u64,
    visitors: Slab<Visitor>,
    turns: Turns<IpAddr, usize>,
    turned_away: u64,
    /// Nobody can be taken until then: descriptors or memory are short.
    rests_until: Option<Instant>,
}

impl Door {
    /// Reactor tokens that a door uses, from its first on.
    pub const TOKENS: u64 = 1 + VISITORS_MAX as u64;

    /// Listens by a socket that is bound and listening. Its tokens are `token` and the [`Door::TOKENS`] - 1 next.
    pub fn new(
        reactor: &mut Reactor,
        listener: TcpListener,
        identity: Arc<Identity>,
        security: Security,
        token: u64,
    ) -> io::Result<Door> {
        listener.set_nonblocking(true)?;
        reactor.watch(listener.as_raw_fd(), token, Interest::READ)?;
        let (visitors, turns) = (Slab::new(), Turns::default());
        Ok(Door { listener, identity, security, token, visitors, turns, turned_away: 0, rests_until: None })
    }

    /// Listens no more; who has not said yet who it is is sent away.
    pub fn close(mut self, reactor: &mut Reactor) {
        let keys: Vec<usize> = self.visitors.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.leave(reactor, key).channel.shut_down();
        }
        // It was watched since it was made.
        let _ = reactor.unwatch(self.listener.as_raw_fd());
    }

    /// As after a restart of the node.
    #[cfg(test)]
    pub(super) fn identity_changes(&mut self, identity: Arc<Identity>) {
        self.identity = identity;
    }

    #[cfg(test)]
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Address and port at which it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Those who were not let in, so far.
    pub fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// True for the tokens of this door.
    pub fn has_token(&self, token: u64) -> bool {
        (self.token..self.token + Door::TOKENS).contains(&token)
    }

    /// Goes on with what the reactor has found ready. Who has arrived and who was turned away is appended.
    pub fn ready(
        &mut self,
        reactor: &mut Reactor,
        token: u64,
        now: Instant,
        arrivals: &mut Vec<Arrival>,
        turned_away: &mut Vec<TurnedAway>,
    ) {
        if token == self.token {
            for _ in 0..ACCEPTS_MAX {
                match self.listener.accept() {
                    Ok((socket, address)) => self.enter(reactor, socket.into(), address, now, turned_away),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                    Err(_) => return self.rest(reactor, now),
                }
            }
            return;
        }
        let key = (token - self.token - 1) as usize;
        let Some(visitor) = self.visitors.get_mut(key) else { return };
        match visitor.hearing {
            Hearing::Silent => {
                visitor.hearing = Hearing::AwaitsTurn;
                let _ = reactor.unwatch(visitor.channel.socket().as_raw_fd());
                self.turns.wait(network_of(visitor.address.ip()), key);
                return self.give_turns(reactor, now, turned_away);
            }
            // It is not watched: it was another one in its place.
            Hearing::AwaitsTurn => return,
            Hearing::Begun => {}
        }
        match meet(&mut visitor.reader, &mut visitor.channel, &self.identity, None) {
            Ok(None) => {
                let interest = interest(&visitor.channel);
                if reactor.rewatch(visitor.channel.socket().as_raw_fd(), token, interest).is_err() {
                    self.send_away(reactor, key, Failure::Socket(io::ErrorKind::Other), turned_away);
                }
            }
            Ok(Some(hello)) => {
                let Visitor { channel, address, .. } = self.leave(reactor, key);
                arrivals.push(Arrival { channel, hello, address });
            }
            Err(why) => self.send_away(reactor, key, why, turned_away),
        }
    }

    fn enter(
        &mut self,
        reactor: &mut Reactor,
        socket: OwnedFd,
        address: SocketAddr,
        now: Instant,
        turned_away: &mut Vec<TurnedAway>,
    ) {
        if self.visitors.len() == VISITORS_MAX {
            let other = self.who_makes_room();
            self.send_away(reactor, other, Failure::Crowded, turned_away);
        }
        let socket = socket2::Socket::from(socket);
        let prepared = prepare(&socket);
        let mut channel = Channel::plain(socket.into());
        if let (Ok(()), Security::Tls(tls)) = (&prepared, &self.security) {
            match tls.listen() {
                Ok(session) => channel.start_tls(session),
                Err(error) => return self.count(address, Failure::Tls(error.to_string()), turned_away),
            }
        }
        if let Err(error) = prepared {
            return self.count(address, Failure::Socket(error.kind()), turned_away);
        }
        let (fd, reader) = (channel.socket().as_raw_fd(), HelloReader::default());
        let key = self.visitors.insert(Visitor { channel, reader, address, since: now, hearing: Hearing::Silent });
        if let Err(error) = reactor.watch(fd, self.token + 1 + key as u64, Interest::READ) {
            self.visitors.remove(key);
            self.count(address, Failure::Socket(error.kind()), turned_away);
        }
    }

    /// Hears those whose turn has come.
    fn give_turns(&mut self, reactor: &mut Reactor, now: Instant, turned_away: &mut Vec<TurnedAway>) {
        while let Some(key) = self.turns.next(now) {
            let visitor = &mut self.visitors[key];
            visitor.hearing = Hearing::Begun;
            let fd = visitor.channel.socket().as_raw_fd();
            if let Err(error) = reactor.watch(fd, self.token + 1 + key as u64, Interest::READ) {
                self.send_away(reactor, key, Failure::Socket(error.kind()), turned_away);
            }
        }
    }

    /// The visitor that makes room for another one: of the network that has most. Who was heard has some hundred milliseconds to say who it
    /// is, however many come meanwhile.
    ///
    /// # Panics
    /// Where there is none.
    fn who_makes_room(&self) -> usize {
        let mut networks: HashMap<IpAddr, usize> = HashMap::new();
        for (_, visitor) in &self.visitors {
            *networks.entry(network_of(visitor.address.ip())).or_default() += 1;
        }
        let rank = |visitor: &Visitor| {
            let others = networks[&network_of(visitor.address.ip())];
            (others, visitor.hearing != Hearing::Begun, Reverse(visitor.since))
        };
        let gives_way = self.visitors.iter().max_by_key(|(_, visitor)| rank(visitor));
        gives_way.expect("there are visitors").0
    }

    fn leave(&mut self, reactor: &mut Reactor, key: usize) -> Visitor {
        let visitor = self.visitors.remove(key);
        if visitor.hearing == Hearing::AwaitsTurn {
            self.turns.forget(&key);
        } else {
            // It is watched; an error would mean that the kernel has forgotten it already.
            let _ = reactor.unwatch(visitor.channel.socket().as_fd().as_raw_fd());
        }
        visitor
    }

    fn send_away(&mut self, reactor: &mut Reactor, key: usize, why: Failure, turned_away: &mut Vec<TurnedAway>) {
        let mut visitor = self.leave(reactor, key);
        visitor.channel.shut_down();
        self.count(visitor.address, why, turned_away);
    }

    fn count(&mut self, address: SocketAddr, why: Failure, turned_away: &mut Vec<TurnedAway>) {
        self.turned_away += 1;
        turned_away.push(TurnedAway { address, why });
    }

    /// When [`Door::timers`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        let overdue = self.visitors.iter().map(|(_, visitor)| visitor.since + GREETING_MAX);
        overdue.chain(self.rests_until).chain(self.turns.deadline()).min()
    }

    /// Sends away who has taken too long.
    pub fn timers(&mut self, reactor: &mut Reactor, now: Instant, turned_away: &mut Vec<TurnedAway>) {
        while let Some((key, _)) = self.visitors.iter().find(|(_, visitor)| visitor.since + GREETING_MAX <= now) {
            self.send_away(reactor, key, Failure::TooSlow, turned_away);
        }
        self.give_turns(reactor, now, turned_away);
        if self.rests_until.is_some_and(|until| until <= now) {
            match reactor.rewatch(self.listener.as_raw_fd(), self.token, Interest::READ) {
                Ok(()) => self.rests_until = None,
                Err(_) => self.rests_until = Some(now + REST),
            }
        }
    }

    /// Asks no more for a while: readiness is told again and again, and each time nobody could be taken.
    fn rest(&mut self, reactor: &mut Reactor, now: Instant) {
        if reactor.rewatch(self.listener.as_raw_fd(), self.token, Interest::NONE).is_ok() {
            self.rests_until = Some(now + REST);
        }
    }
}
