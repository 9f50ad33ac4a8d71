//! The link between two nodes: messages about volumes, over several channels at one time.
//!
//! ```text
//! send -> outbox: urgent, bulk -> channel, channel, ...  ==  channel, channel, ... -> receiver: place, deliver
//!            ^ a dead channel's messages                        duplicates are dropped by their numbers
//! ```
//!
//! A *channel* is one TCP connection between one address of each node ([`connection`]); the bytes on it are
//! `forebay_core::wire`, and `docs/protocol.md` draws them. Messages go by the channel where they are predicted to arrive
//! first ([`schedule`]), each when its socket takes more, so that unequal links add up.
//!
//! Invariants:
//! - A message that was taken is delivered at most once, in no promised order, or given up with the last channel:
//!   then [`LinkEvent::Interrupted`] says so, and the volume's stream sends again what it needs to.
//! - Its memory is read until [`Link::take_released`] has named it.
//! - What is not acknowledged is bounded by `bytes_max`; who would send more is told so, and asks again when there is room.
//! - A channel on which nothing gets on for [`connection::STALL_MAX`] while something is open, and another is well, is dead. What it
//!   carried goes by the others at once; it is begun anew, with growing pauses.
//! - Nobody is let in, and nothing is told to anybody, before both sides have shown who they are ([`greeting`],
//!   [`security`]). What a peer sends costs its own link only.
//! - Nothing here blocks, waits or keeps a clock: the shard that owns the link calls it.
//!
//! Of two nodes the one whose name sorts first calls, so that no two channels cross. Where the other node has other addresses than
//! before, [`follow`] says what becomes of its channels.
//!
//! Left to others: what messages mean and when they are sent again (core), which addresses there are (node).

mod compress;
mod compression_policy;
mod connection;
mod failure;
mod follow;
mod forward;
mod greeting;
mod inflight;
mod multipath;
mod pace;
mod pairs;
mod place;
mod revoked;
mod schedule;
mod security;
mod status;
mod twins;

pub use compression_policy::{Compression, CompressionStatus, Decision, WhyOff};
pub use connection::Counts;
pub use failure::Failure;
pub use forward::{CALL_TIME_MAX, call_owner};
pub use greeting::{Arrival, Door, GREETING_MAX, Identity, TurnedAway, VISITORS_MAX};
pub use multipath::listen;
pub use place::Place;
pub use security::{PeerTls, Security};
pub use status::{ChannelPhase, ChannelStatus, LinkStatus};

use crate::address::own_address;
use crate::buffers::Buffers;
use crate::channel::Channel;
use crate::reactor::{Interest, Reactor};
use crate::socket::{Moved, VECTORS_MAX, vector};
use compress::Packer;
use compression_policy::CompressionPolicy;
use connection::{Connection, Desk};
use follow::Standing;
use forebay_core::cluster::NodeId;
use forebay_core::message::{Envelope, LogMessage, Message, OwnershipMessage};
use forebay_core::types::{Duration, FrameId, Instant, Payload};
use forebay_core::wire::*;
use greeting::HelloReader;
use inflight::{Inbox, Outbox, Way};
use schedule::{Outlook, choose};
use socket2::Socket;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use twins::Twins;

/// Most channels of a link: pairs of addresses.
pub const CHANNELS_MAX: usize = 16;
/// Time for a connection to come about. Shorter than the second after which the kernel repeats its first packet: a new call is sooner.
const CALL_MAX: Duration = Duration::from_millis(500);
/// Pause before a channel is begun anew, doubled from one attempt to the next.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// A link that comes back is in use again within two seconds: this pause and a connection.
const PAUSE_MAX: Duration = Duration::from_millis(800);
/// The same after a refusal, which takes a person to mend.
const PAUSE_REFUSED: Duration = Duration::from_secs(10);
/// The same where another daemon has this node's place, which may have ended just now.
const PAUSE_SECOND: Duration = Duration::from_secs(3);
/// A channel that lived this long has not failed in a row.
const LIVED_LONG: Duration = Duration::from_secs(10);
/// Bytes of the buffer through which everything comes in: it stays in the CPU's second-level cache.
const HOT_BYTES: usize = 256 << 10;
/// A channel on which something was heard within this is prompt.
const PROMPT: Duration = Duration::from_millis(50);
/// Messages that are given to a second channel at one time.
const OVERDUE_MAX: usize = 4;
/// Rounds of giving messages to channels and sending them in one turn.
const ROUNDS_MAX: usize = 8;
/// Messages that wait for a channel beyond which no more are taken, whatever their bytes.
const WAITING_MAX: usize = inflight::OPEN_MAX;

/// The part of a node that messages are for.
pub trait Receiver {
    /// Where the payload of a message is to lie: so many frames. None: there is no room, or nobody wants it, and it is as
    /// if it had not arrived.
    fn place(&mut self, envelope: &Envelope, message: &Message, blocks: usize) -> Option<Place>;
    /// A whole message of the node at the other end. Of an append, the frames that were placed, and the checksum of what
    /// is in each, computed with block, mask and term of its record: that they match is for the receiver to see (S4).
    fn deliver(&mut self, envelope: Envelope, message: Message, payload: Vec<Payload>);
    /// Frames whose message will not come, or came by another channel.
    fn give_back(&mut self, volume: [u8; 16], frames: Vec<FrameId>);
}

/// A pair of addresses that a channel connects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AddressPair {
    /// Of this node: the address that the connection comes from, and with it the interface.
    pub own: IpAddr,
    /// Of the other one, with the port of its door.
    pub peer: SocketAddr,
}

/// What a link is made from.
#[derive(Clone)]
pub struct LinkConfig {
    /// Who this node is, as it says itself on each channel.
    pub identity: Arc<Identity>,
    /// The other one, as its certificate names it.
    pub peer: NodeName,
    /// Its number, where that is known: the certificate does not tell it, and a node that says another one is not let in.
    pub peer_node: Option<NodeId>,
    /// Which of the links between the two: one for each shard that needs one.
    pub lane: u16,
    /// Where the other one is said to be: who calls needs them, and who is called forgets by them; at most [`CHANNELS_MAX`].
    pub pairs: Vec<AddressPair>,
    /// How its channels are protected.
    pub security: Security,
    /// First of [`CHANNELS_MAX`] reactor tokens.
    pub token: u64,
    /// Bytes of messages that are not acknowledged.
    pub bytes_max: u64,
    /// Whether payload is packed, and for how much CPU.
    pub compression: Compression,
    /// Channels that this node begins are Multipath TCP, where the other end is, too.
    pub multipath: bool,
}

/// Why a message was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotSent {
    /// There is no living channel.
    Down,
    /// As much as may be is not acknowledged.
    Full,
    /// The other node speaks an older version, which does not have this message.
    OlderVersion,
}

/// Why there can be no such link. Who and where the other end is comes from outside: it ends nobody's process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoLink {
    /// The other end would have this node's own name.
    Itself,
    /// More pairs of addresses than [`CHANNELS_MAX`].
    Pairs(usize),
}

impl std::fmt::Display for NoLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoLink::Itself => write!(f, "a node has no link to itself"),
            NoLink::Pairs(pairs) => {
                write!(f, "{pairs} pairs of addresses; a link has at most {CHANNELS_MAX}")
            }
        }
    }
}

impl std::error::Error for NoLink {}

/// Something that the owner of a link must know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// The last channel has died, or the other node has begun anew: whatever was not acknowledged may be lost.
    Interrupted,
    /// A channel is in use.
    Up {
        /// Index of the channel's pair of addresses.
        channel: usize,
        /// Address of the other end.
        address: SocketAddr,
    },
    /// A channel is no longer in use, or did not come about.
    Down {
        /// Index of the channel's pair of addresses.
        channel: usize,
        /// Why it ended, or did not come about.
        why: Failure,
    },
    /// A channel's address is the other node's no more: it was given up.
    Left {
        /// Index that it had; another pair may have it from now on.
        channel: usize,
        /// Address of the other end.
        address: SocketAddr,
    },
}

enum State {
    Down { again_at: Option<Instant> },
    Calling { socket: Socket },
    Greeting { channel: Channel, reader: HelloReader },
    Up(Box<Connection>),
}

struct Slot {
    pair: Option<AddressPair>,
    standing: Standing,
    /// Where the other one has called; none: this one calls.
    called_at: Option<IpAddr>,
    address: Option<SocketAddr>,
    state: State,
    since: Instant,
    why: Option<Failure>,
    pause: Duration,
    resent: u64,
    failures: u64,
    /// Of earlier lives: sent, received.
    traffic: (u64, u64),
}

impl Slot {
    fn new(pair: Option<AddressPair>, now: Instant) -> Slot {
        let again_at = pair.map(|_| now);
        let (address, why, pause) = (pair.map(|pair| pair.peer), None, PAUSE_MIN);
        let (state, standing) = (State::Down { again_at }, Standing::Asked);
        let (called_at, since, traffic) = (None, now, (0, 0));
        Slot { pair, standing, called_at, address, state, since, why, pause, resent: 0, failures: 0, traffic }
    }

    fn connection(&self) -> Option<&Connection> {
        match &self.state {
            State::Up(live) => Some(live),
            State::Down { .. } | State::Calling { .. } | State::Greeting { .. } => None,
        }
    }

    fn live_mut(&mut self) -> Option<&mut Connection> {
        match &mut self.state {
            State::Up(live) => Some(live),
            State::Down { .. } | State::Calling { .. } | State::Greeting { .. } => None,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Down { again_at } => *again_at,
            State::Calling { .. } => Some(self.since + CALL_MAX),
            State::Greeting { .. } => Some(self.since + GREETING_MAX),
            State::Up(live) => Some(live.deadline()),
        }
    }
}

/// The node at the other end, as its last hello said.
struct Peer {
    node: NodeId,
    session: u64,
    machine: [u8; 16],
    /// The newest version that both speak.
    version: u16,
}

/// See the module's text.
pub struct Link {
    config: LinkConfig,
    slots: Vec<Slot>,
    peer: Option<Peer>,
    outbox: Outbox,
    inbox: Inbox,
    twins: Twins,
    packer: Packer,
    compression: CompressionPolicy,
    counts: Counts,
    given_up: u64,
    hot: Box<[u8]>,
    vectors: Vec<libc::iovec>,
    events: VecDeque<LinkEvent>,
    /// Bytes may wait that no readiness will tell of.
    unread: u32,
    /// There is more to give to channels.
    unsent: bool,
    /// When new pairs were called at once.
    new_called_at: Option<Instant>,
    /// A place has become free, which a pair may wait for.
    is_to_rearrange: bool,
}

impl Link {
    /// A link without a channel; the first are begun by [`Link::timers`].
    pub fn new(config: LinkConfig, now: Instant) -> Result<Link, NoLink> {
        if config.pairs.len() > CHANNELS_MAX {
            return Err(NoLink::Pairs(config.pairs.len()));
        }
        if config.peer == config.identity.name {
            return Err(NoLink::Itself);
        }
        let calls = config.identity.name < config.peer;
        let slots = config.pairs.iter().filter(|_| calls).map(|pair| Slot::new(Some(*pair), now)).collect();
        Ok(Link {
            compression: CompressionPolicy::new(config.compression, now),
            config,
            slots,
            peer: None,
            outbox: Outbox::new(),
            inbox: Inbox::default(),
            twins: Twins::default(),
            packer: Packer::new(),
            counts: Counts::default(),
            given_up: 0,
            hot: vec![0; HOT_BYTES].into_boxed_slice(),
            vectors: Vec::with_capacity(VECTORS_MAX),
            events: VecDeque::new(),
            unread: 0,
            unsent: false,
            new_called_at: None,
            is_to_rearrange: false,
        })
    }

    /// Whether this end begins the channels.
    pub fn calls(&self) -> bool {
        self.config.identity.name < self.config.peer
    }

    /// Name of the other node.
    pub fn peer(&self) -> &NodeName {
        &self.config.peer
    }

    /// Which of the links to it this is.
    pub fn lane(&self) -> u16 {
        self.config.lane
    }

    /// Takes the oldest event that has not been taken; none: there is none.
    pub fn take_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    // --- messages ---

    /// Whether anything can be sent.
    pub fn is_up(&self) -> bool {
        self.slots.iter().any(|slot| slot.connection().is_some())
    }

    /// Bytes of further messages that are taken now.
    pub fn room(&self) -> u64 {
        self.config.bytes_max.saturating_sub(self.outbox.bytes())
    }

    /// Takes a message with the payload of its records. `token` comes back by [`Link::take_released`] when the payload's
    /// memory is read no more. What is urgent is taken beyond `bytes_max`: it has no payload.
    pub fn send(
        &mut self,
        envelope: &Envelope,
        message: &Message,
        payload: Buffers,
        token: Option<u64>,
    ) -> Result<(), NotSent> {
        if !self.is_up() {
            return Err(NotSent::Down);
        }
        if self.peer.as_ref().is_some_and(|peer| peer.version < version_of(message)) {
            return Err(NotSent::OlderVersion);
        }
        let way = way_of(message);
        let full = way == Way::Bulk && self.room() < payload.len();
        if full || self.outbox.waiting() >= WAITING_MAX {
            return Err(NotSent::Full);
        }
        assert_eq!(payload.len(), payload_blocks(message) as u64 * 4096, "a whole block for each record with payload");
        let mut front = vec![0; HEAD_BYTES];
        encode_message(envelope, message, &mut front);
        self.outbox.put(front, payload, envelope.volume, way, token);
        Ok(())
    }

    /// A message whose payload nothing reads any more: it has arrived, or was given up, or was packed.
    pub fn take_released(&mut self) -> Option<u64> {
        self.outbox.take_released()
    }

    /// Forgets a volume that is being closed: nothing is written into its frames any more, and what waited to be sent of
    /// it is released. What was begun to be sent is read until it is released as well.
    pub fn forget_volume(&mut self, volume: &[u8; 16]) {
        self.outbox.forget(volume);
        self.compression.forget(volume);
        self.slots.iter_mut().filter_map(Slot::live_mut).for_each(|live| live.forget(volume));
    }

    // --- what the reactor and the clock tell ---

    /// True for the tokens of this link's channels.
    pub fn has_token(&self, token: u64) -> bool {
        (self.config.token..self.config.token + CHANNELS_MAX as u64).contains(&token)
    }

    /// Goes on with a channel that the reactor has found ready.
    pub fn ready(
        &mut self,
        reactor: &mut Reactor,
        receiver: &mut dyn Receiver,
        token: u64,
        writable: bool,
        now: Instant,
    ) {
        let index = (token - self.config.token) as usize;
        let Some(slot) = self.slots.get_mut(index) else { return };
        match &mut slot.state {
            State::Down { .. } => {}
            State::Calling { .. } => self.on_connected(reactor, receiver, index, now),
            State::Greeting { .. } => self.on_greeting(reactor, receiver, index, now),
            State::Up(live) => {
                if writable {
                    live.on_writable();
                }
                self.receive(reactor, receiver, index, now);
            }
        }
    }

    /// True: [`Link::flush`] is to be called again without waiting.
    pub fn has_work(&self) -> bool {
        self.unread != 0 || self.unsent
    }

    /// When [`Link::timers`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.slots.iter().filter_map(Slot::deadline).chain(self.follow_deadline()).min()
    }

    /// Does what is due by now: begins calls, ends channels that got nowhere, and sends overdue messages by others.
    pub fn timers(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, now: Instant) {
        self.follow(reactor, receiver, now);
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            if slot.deadline().is_none_or(|deadline| deadline > now) {
                continue;
            }
            match &mut slot.state {
                State::Down { .. } => self.call(reactor, receiver, index, now),
                State::Calling { .. } => {
                    self.fail(reactor, receiver, index, Failure::Connect(io::ErrorKind::TimedOut), now);
                }
                State::Greeting { .. } => self.fail(reactor, receiver, index, Failure::TooSlow, now),
                State::Up(_) => {
                    let mut others = self.slots.iter().enumerate().filter(|(other, _)| *other != index);
                    let well = others.any(|(_, slot)| slot.connection().is_some_and(|live| live.is_well(now)));
                    let live = self.slots[index].live_mut().expect("it is up");
                    if let Err(why) = live.look(well, now) {
                        self.fail(reactor, receiver, index, why, now);
                    }
                }
            }
        }
        if self.slots.iter().filter_map(Slot::connection).any(|live| live.is_suspect(now)) {
            self.slots.iter_mut().filter_map(Slot::live_mut).for_each(|live| live.ask(now));
        }
        self.give_overdue(now);
    }

    /// Gives messages to channels and sends. Called once after all events of a round.
    pub fn flush(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, now: Instant) {
        for index in 0..self.slots.len() {
            if self.unread & 1 << index != 0 {
                self.receive(reactor, receiver, index, now);
            }
        }
        self.unsent = false;
        let tries = self.compression.status().tries;
        for round in 1..=ROUNDS_MAX {
            self.give_urgent(now);
            let given = self.give_bulk(now);
            self.send_all(reactor, receiver, now);
            if !given {
                break;
            }
            // Packing takes milliseconds: one payload in a turn, or what else the shard has to do would wait for many.
            let packed = self.compression.status().tries > tries;
            if packed || round == ROUNDS_MAX {
                self.unsent = true;
                break;
            }
        }
        self.see(now);
        for index in 0..self.slots.len() {
            let Some(live) = self.slots[index].live_mut() else { continue };
            let wants = live.wants();
            let fd = live.channel().socket().as_raw_fd();
            if wants == live.interest {
                continue;
            }
            live.interest = wants;
            if let Err(error) = reactor.rewatch(fd, self.config.token + index as u64, wants) {
                self.fail(reactor, receiver, index, Failure::Socket(error.kind()), now);
            }
        }
    }

    /// Ends every channel in order, and tells the other side. The link is of no use afterwards.
    pub fn close(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, now: Instant) {
        for index in 0..self.slots.len() {
            self.take_down(reactor, receiver, index, Failure::Refused(Rejection::Leaving), now);
            self.slots[index].state = State::Down { again_at: None };
        }
        self.all_down();
    }

    // --- sending ---

    fn give_urgent(&mut self, now: Instant) {
        while let Some((message, again)) = self.outbox.next(true) {
            let (way, bytes) = (message.way, message.bytes());
            let outlooks = self.outlooks(true);
            let chosen: Vec<usize> = match way {
                Way::Everywhere => outlooks.iter().map(|(index, _)| *index).collect(),
                Way::Urgent | Way::Bulk => {
                    let all: Vec<Outlook> = outlooks.iter().map(|(_, outlook)| *outlook).collect();
                    choose(&all, bytes, 0).map(|chosen| outlooks[chosen].0).into_iter().collect()
                }
            };
            if chosen.is_empty() {
                return;
            }
            let bits = chosen.iter().fold(0, |bits, index| bits | 1 << index);
            let sequence = self.outbox.assign(true, bits, None, now);
            for index in chosen {
                let slot = &mut self.slots[index];
                slot.resent += u64::from(again);
                slot.live_mut().expect("only living ones were looked at").carry(sequence, bytes, true);
            }
        }
    }

    /// A channel that loses much is not dead and yet holds up everything behind its oldest message: those that are late on
    /// it go by a channel that is prompt as well. (Where none is, the other side's process is what is slow.)
    fn give_overdue(&mut self, now: Instant) {
        for _ in 0..OVERDUE_MAX {
            let outlooks = self.outlooks(true);
            let is_prompt = |index: usize| {
                self.slots[index].connection().is_some_and(|live| now - live.heard_at() < PROMPT && live.is_ready())
            };
            let prompt: Vec<(usize, Outlook)> = outlooks.into_iter().filter(|(index, _)| is_prompt(*index)).collect();
            let bits = prompt.iter().fold(0, |bits, (index, _)| bits | 1 << index);
            let Some(sequence) = self.outbox.overdue(connection::STALL_MAX, bits, now) else { return };
            let bytes = self.outbox.get(sequence).map_or(0, |message| message.bytes());
            let all: Vec<Outlook> = prompt.iter().map(|(_, outlook)| *outlook).collect();
            let Some(index) = choose(&all, bytes, 0).map(|chosen| prompt[chosen].0) else { return };
            self.outbox.also(sequence, index);
            let slot = &mut self.slots[index];
            slot.resent += 1;
            slot.live_mut().expect("only living ones were looked at").carry(sequence, bytes, true);
        }
    }

    /// True: a channel has got something.
    fn give_bulk(&mut self, now: Instant) -> bool {
        let mut given = false;
        let tries = self.compression.status().tries;
        while let Some((message, again)) = self.outbox.next(false) {
            let bytes = message.bytes();
            let outlooks = self.outlooks(false);
            let all: Vec<Outlook> = outlooks.iter().map(|(_, outlook)| *outlook).collect();
            let backlog = self.outbox.backlog() - bytes;
            let Some(index) = choose(&all, bytes, backlog).map(|chosen| outlooks[chosen].0) else { return given };
            let packed = match self.outbox.next(false) {
                Some((message, false)) => self.compression.pack(&mut self.packer, message.volume, &message.payload),
                Some((_, true)) | None => None,
            };
            let sequence = self.outbox.assign(false, 1 << index, packed, now);
            let bytes = self.outbox.get(sequence).expect("it was given just now").bytes();
            let slot = &mut self.slots[index];
            slot.resent += u64::from(again);
            slot.live_mut().expect("only living ones were looked at").carry(sequence, bytes, false);
            given = true;
            if self.compression.status().tries > tries {
                return given;
            }
        }
        for live in self.slots.iter_mut().filter_map(Slot::live_mut).filter(|live| live.is_ready()) {
            live.pace.starved();
        }
        given
    }

    /// Tells the governor how the wire is.
    fn see(&mut self, now: Instant) {
        let mut living = self.slots.iter().filter_map(Slot::connection);
        let bound = self.outbox.backlog() > 0 && living.clone().count() > 0 && !living.any(Connection::is_ready);
        let wire = self.slots.iter().filter_map(Slot::connection).filter_map(|live| live.pace.rate()).sum();
        self.compression.see(now, bound, wire);
    }

    /// Of each living channel. What is urgent is taken by every one at any time.
    fn outlooks(&self, urgent: bool) -> Vec<(usize, Outlook)> {
        let outlook = |live: &Connection| Outlook {
            ready: urgent || live.is_ready(),
            in_flight: live.in_flight(),
            rate: live.pace.rate(),
            round_trip: live.pace.round_trip_min(),
        };
        let living = self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, slot.connection()?)));
        living.map(|(index, live)| (index, outlook(live))).collect()
    }

    fn send_all(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, now: Instant) {
        for index in 0..self.slots.len() {
            let received = self.inbox.received();
            let Some(live) = self.slots[index].live_mut() else { continue };
            if let Err(why) = live.send(&mut self.outbox, received, &mut self.vectors) {
                self.fail(reactor, receiver, index, why, now);
            }
        }
    }

    // --- receiving ---

    fn receive(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, index: usize, now: Instant) {
        self.unread &= !(1 << index);
        let (Some(live), Some(peer)) = (self.slots[index].live_mut(), &self.peer) else { return };
        let mut desk = Desk {
            outbox: &mut self.outbox,
            inbox: &mut self.inbox,
            packer: &mut self.packer,
            receiver: &mut *receiver,
            hot: &mut self.hot,
            own: self.config.identity.node,
            peer: peer.node,
            now,
            counts: &mut self.counts,
        };
        match live.receive(&mut desk) {
            Ok(more) => self.unread |= u32::from(more) << index,
            Err(why) => self.fail(reactor, receiver, index, why, now),
        }
    }

    // --- channels come ---

    fn call(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, index: usize, now: Instant) {
        let slot = &mut self.slots[index];
        slot.since = now;
        let pair = slot.pair.expect("only channels with addresses are begun here");
        match begin_call(&pair, self.config.multipath) {
            Ok(socket) => {
                let watched = reactor.watch(socket.as_raw_fd(), self.config.token + index as u64, Interest::WRITE);
                slot.state = State::Calling { socket };
                if let Err(error) = watched {
                    self.fail(reactor, receiver, index, Failure::Socket(error.kind()), now);
                }
            }
            Err(error) => self.fail(reactor, receiver, index, Failure::Connect(error.kind()), now),
        }
    }

    fn on_connected(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, index: usize, now: Instant) {
        let down = State::Down { again_at: None };
        let State::Calling { socket } = std::mem::replace(&mut self.slots[index].state, down) else { return };
        // The connection may have failed; whatever it was, it is not watched under its old interest any more.
        let fd = socket.as_raw_fd();
        let outcome = match socket.take_error() {
            Ok(None) => self.send_hello(socket, index),
            Ok(Some(error)) | Err(error) => Err(Failure::Connect(error.kind())),
        };
        match outcome {
            Ok(channel) => {
                self.slots[index].since = now;
                self.slots[index].state = State::Greeting { channel, reader: HelloReader::default() };
                self.on_greeting(reactor, receiver, index, now);
            }
            Err(why) => {
                // Closed with its socket by now, where the kernel forgets it by itself.
                let _ = reactor.unwatch(fd);
                self.fail(reactor, receiver, index, why, now);
            }
        }
    }

    fn send_hello(&self, socket: Socket, index: usize) -> Result<Channel, Failure> {
        let mut channel = Channel::plain(socket.into());
        if let Security::Tls(tls) = &self.config.security {
            let session = tls.call(&self.config.peer).map_err(|error| Failure::Tls(error.to_string()))?;
            channel.start_tls(session);
        }
        self.put_hello(&mut channel, index)?;
        Ok(channel)
    }

    /// A fresh socket takes a hello; a TLS session keeps it until the handshake is done.
    fn put_hello(&self, channel: &mut Channel, index: usize) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        ChannelFrame::Hello(self.config.identity.hello(self.config.lane, index as u16)).encode(&mut bytes);
        // SAFETY: the vector names `bytes`, which lives through the call.
        match unsafe { channel.send(&[vector(bytes.as_ptr(), bytes.len())]) } {
            Moved::Bytes(sent) if sent == bytes.len() => Ok(()),
            Moved::Bytes(_) | Moved::WouldBlock => Err(Failure::Socket(io::ErrorKind::WouldBlock)),
            Moved::Failed(error) => Err(Failure::of(&error)),
        }
    }

    fn on_greeting(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, index: usize, now: Instant) {
        let State::Greeting { channel, reader } = &mut self.slots[index].state else { return };
        match greeting::meet(reader, channel, &self.config.identity, Some((&self.config.peer, self.config.peer_node))) {
            Ok(None) => {
                let interest = if channel.has_unsent() { Interest::BOTH } else { Interest::READ };
                let fd = channel.socket().as_raw_fd();
                if let Err(error) = reactor.rewatch(fd, self.config.token + index as u64, interest) {
                    self.fail(reactor, receiver, index, Failure::Socket(error.kind()), now);
                }
            }
            Ok(Some(hello)) if self.is_second(&hello, now) => self.send_second_away(reactor, receiver, index, now),
            Ok(Some(hello)) => {
                let down = State::Down { again_at: None };
                let State::Greeting { channel, .. } = std::mem::replace(&mut self.slots[index].state, down) else {
                    return;
                };
                self.on_session(reactor, receiver, &hello, now);
                self.begin(reactor, receiver, channel, index, now);
            }
            Err(why) => self.fail(reactor, receiver, index, why, now),
        }
    }

    /// Takes over a channel that the other node has begun, or sends it away and says why.
    pub fn adopt(
        &mut self,
        reactor: &mut Reactor,
        receiver: &mut dyn Receiver,
        arrival: Arrival,
        now: Instant,
    ) -> Result<(), Failure> {
        let Arrival { mut channel, hello, address } = arrival;
        if self.config.identity.refuses(&channel) {
            greeting::send_goodbye(&mut channel, Rejection::UnknownNode);
            return Err(Failure::Revoked);
        }
        let index = usize::from(hello.channel);
        let another = hello.name != self.config.peer
            || hello.volume.is_some()
            || hello.lane != self.config.lane
            || !self.is_its_number(&hello);
        let objection = if self.calls() || another {
            Some(Rejection::UnknownNode)
        } else if index >= CHANNELS_MAX {
            Some(Rejection::Malformed)
        } else if self.is_second(&hello, now) {
            Some(Rejection::TwoOfOneName)
        } else {
            None
        };
        if let Some(why) = objection {
            greeting::send_goodbye(&mut channel, why);
            return Err(Failure::Refused(why));
        }
        self.put_hello(&mut channel, index)?;
        let fd = channel.socket().as_raw_fd();
        let interest = Interest::READ;
        let watched = reactor.watch(fd, self.config.token + index as u64, interest);
        watched.map_err(|error| Failure::Socket(error.kind()))?;
        while self.slots.len() <= index {
            self.slots.push(Slot::new(None, now));
        }
        self.on_session(reactor, receiver, &hello, now);
        // The other side would not begin it anew if it still had the old one.
        self.take_down(reactor, receiver, index, Failure::Replaced, now);
        let slot = &mut self.slots[index];
        (slot.address, slot.called_at) = (Some(address), own_address(channel.socket()));
        slot.standing = Standing::Asked;
        self.begin(reactor, receiver, channel, index, now);
        Ok(())
    }

    fn is_its_number(&self, hello: &Hello) -> bool {
        self.config.peer_node.is_none_or(|node| node == hello.node)
    }

    /// The other node may have begun anew since it was last heard: then all that was before is void.
    fn on_session(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, hello: &Hello, now: Instant) {
        if self.peer.as_ref().is_some_and(|peer| peer.session == hello.session && peer.node == hello.node) {
            return;
        }
        let had_another = self.peer.is_some();
        self.note_session(hello, now);
        // A hello without a common version was refused before.
        let version = hello.wire_max.min(WIRE_VERSION);
        self.peer = Some(Peer { node: hello.node, session: hello.session, machine: hello.host.machine, version });
        for index in 0..self.slots.len() {
            if self.slots[index].connection().is_some() {
                self.fail_without_end(reactor, receiver, index, Failure::Replaced, now);
            }
        }
        self.inbox = Inbox::default();
        self.given_up += self.outbox.give_up();
        if had_another {
            self.events.push_back(LinkEvent::Interrupted);
        }
    }

    fn begin(
        &mut self,
        reactor: &mut Reactor,
        receiver: &mut dyn Receiver,
        channel: Channel,
        index: usize,
        now: Instant,
    ) {
        let fd = channel.socket().as_raw_fd();
        let live = Connection::new(channel, index, self.outbox.first(), now);
        let watched = reactor.rewatch(fd, self.config.token + index as u64, Interest::READ);
        let slot = &mut self.slots[index];
        (slot.since, slot.why) = (now, None);
        slot.state = State::Up(Box::new(live));
        let address = slot.address.expect("a channel that was begun has an address");
        self.events.push_back(LinkEvent::Up { channel: index, address });
        // Under TLS, bytes behind the hello may have been decrypted with it.
        self.unread |= 1 << index;
        if let Err(error) = watched {
            self.fail(reactor, receiver, index, Failure::Socket(error.kind()), now);
        }
    }

    // --- channels go ---

    /// A channel is dead, or did not come about: it is tried again, and what it carried goes by others.
    fn fail(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, index: usize, why: Failure, now: Instant) {
        let was_up = self.slots[index].connection().is_some();
        self.fail_without_end(reactor, receiver, index, why, now);
        if was_up {
            self.all_down();
        }
    }

    fn fail_without_end(
        &mut self,
        reactor: &mut Reactor,
        receiver: &mut dyn Receiver,
        index: usize,
        why: Failure,
        now: Instant,
    ) {
        let slot = &mut self.slots[index];
        let was_up = slot.connection().is_some();
        if was_up && now - slot.since > LIVED_LONG {
            slot.pause = PAUSE_MIN;
        }
        // What has worked is tried again soon, whatever ended it.
        let pause = match why {
            Failure::Refused(Rejection::TwoOfOneName) | Failure::RefusedByPeer(Rejection::TwoOfOneName) => PAUSE_SECOND,
            _ if !was_up && why.needs_a_person() => PAUSE_REFUSED,
            _ => slot.pause,
        };
        slot.pause = Duration((slot.pause.0 * 2).min(PAUSE_MAX.0));
        let again_at = slot.pair.map(|_| now + pause);
        self.take_down(reactor, receiver, index, why, now);
        self.slots[index].state = State::Down { again_at };
        self.leave_unless_needed(reactor, receiver, index, was_up, now);
    }

    /// Ends a channel, and says why. What it carried waits again.
    fn take_down(
        &mut self,
        reactor: &mut Reactor,
        receiver: &mut dyn Receiver,
        index: usize,
        why: Failure,
        now: Instant,
    ) {
        if let State::Down { .. } = self.slots[index].state {
            self.slots[index].state = State::Down { again_at: None };
            // What did not come about is told once for each reason.
            if self.slots[index].why.as_ref() == Some(&why) || why == Failure::Replaced {
                return;
            }
        }
        let word = match &why {
            Failure::Malformed(_) => Some(Rejection::Malformed),
            Failure::Refused(why) => Some(*why),
            Failure::Revoked => Some(Rejection::UnknownNode),
            Failure::Connect(_)
            | Failure::TooSlow
            | Failure::NotTls
            | Failure::NotPlain
            | Failure::Tls(_)
            | Failure::RefusedByPeer(_)
            | Failure::RevokedByPeer
            | Failure::HungUp
            | Failure::Socket(_)
            | Failure::NoProgress
            | Failure::Replaced
            | Failure::Crowded => None,
        };
        self.end_state(reactor, receiver, index, word);
        let slot = &mut self.slots[index];
        slot.failures += 1;
        (slot.since, slot.why) = (now, Some(why.clone()));
        self.events.push_back(LinkEvent::Down { channel: index, why });
    }

    /// Ends what there is of a channel, with a last word to the other side.
    fn end_state(&mut self, reactor: &mut Reactor, receiver: &mut dyn Receiver, index: usize, word: Option<Rejection>) {
        let slot = &mut self.slots[index];
        // An error of `unwatch` would mean that the kernel has forgotten the socket already.
        match std::mem::replace(&mut slot.state, State::Down { again_at: None }) {
            State::Down { .. } => {}
            State::Calling { socket } => drop(reactor.unwatch(socket.as_raw_fd())),
            State::Greeting { channel, .. } => drop(reactor.unwatch(channel.socket().as_raw_fd())),
            State::Up(live) => {
                let _ = reactor.unwatch(live.channel().socket().as_raw_fd());
                let (sent, received) = live.traffic();
                slot.traffic = (slot.traffic.0 + sent, slot.traffic.1 + received);
                live.close(receiver, word);
                self.outbox.channel_lost(index);
            }
        }
        self.unread &= !(1 << index);
    }

    /// Where no channel is left, nothing is kept for one: the volume's stream knows better what is needed then.
    fn all_down(&mut self) {
        if !self.is_up() {
            self.given_up += self.outbox.give_up();
            self.events.push_back(LinkEvent::Interrupted);
        }
    }
}

/// Begins to connect, from the address that belongs to the wire that is meant.
fn begin_call(pair: &AddressPair, multipath: bool) -> io::Result<Socket> {
    let socket = multipath::socket(pair.peer, multipath)?;
    greeting::prepare(&socket)?;
    socket.bind(&SocketAddr::new(pair.own, 0).into())?;
    match socket.connect(&pair.peer.into()) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// How a message travels.
fn way_of(message: &Message) -> Way {
    match message {
        Message::Log(LogMessage::Append { .. } | LogMessage::Cached { .. }) => Way::Bulk,
        Message::Log(
            LogMessage::Begin { .. }
            | LogMessage::Mark(_)
            | LogMessage::Held(_)
            | LogMessage::Said { .. }
            | LogMessage::Fetch { .. }
            | LogMessage::Ask { .. },
        )
        | Message::Ownership(
            OwnershipMessage::Who { .. }
            | OwnershipMessage::Here { .. }
            | OwnershipMessage::Know { .. }
            | OwnershipMessage::Known { .. }
            | OwnershipMessage::Learn { .. },
        )
        | Message::Refused { .. } => Way::Urgent,
        Message::Ownership(
            OwnershipMessage::Beacon { .. }
            | OwnershipMessage::Granted { .. }
            | OwnershipMessage::Seal
            | OwnershipMessage::Sealed { .. }
            | OwnershipMessage::TakeOver,
        ) => Way::Everywhere,
    }
}

#[cfg(test)]
mod tests;
