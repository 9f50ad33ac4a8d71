//! The data path's part of a cluster: links, and for each volume of the cluster its ownership beside the volume.
//!
//! ```text
//! links -> messages -> Ownership -- orders --> Volume        the coordinator, tiers and backings are opened by the
//!   ^                     |  ^                  |            control thread: asked by a channel, answered by mail
//!   +------ messages -----+--+---- reports -----+
//! ```
//!
//! Invariants:
//! - All of it lives on one shard: a link belongs to one reactor, and so do the volumes whose frames it reads and writes.
//! - Effects of ownership are carried out in the order in which they are polled; a message that is for the volume goes there
//!   only when ownership admits it.
//! - A backing that was opened is the volume's only when ownership says so of its term, and is closed else.
//! - A client's session ends with the client, not with the ownership: it goes to who forwards, and comes back from there. A
//!   node that forwards is let in only while its volume is served here, and by one connection at a time ([`forwarding`]).
//! - Nothing here decides: what is not sent now is lost, and core sends again.

mod agenda;
mod asked;
mod closes;
mod commanded;
mod forwarding;
pub mod opening;
mod peers;

use crate::addresses::Addresses;
use crate::coordinator::Audit;
use crate::datapath::directory::{Directory, Export, Place as ExportPlace};
use crate::datapath::forward::{self, ForwarderHandle};
use crate::datapath::mailbox::{Snapshot, VolumeKey};
use crate::datapath::shard::{Clients, Slot};
use crate::log;
use agenda::Agenda;
pub use asked::Asked;
use closes::Closes;
use commanded::{Change, Commanded, Commands};
use forebay_api::record::VolumeId;
use forebay_core::api::{Event, Figures, Order, Outcome, Report, Sending};
use forebay_core::cluster::{Incarnation, NodeId};
use forebay_core::message::{Envelope, Message};
use forebay_core::ownership::{self, Admission, BackingAnswer, CommandError, Ownership, Setup, State};
use forebay_core::status::{Flush, FormerStatus, PeerCounters};
use forebay_core::types::*;
use forebay_core::volume::KeptCache;
use forebay_core::wire::{self, NodeName};
use forebay_io::buffers::Buffers;
use forebay_io::link::{AddressPair, Arrival, Compression, Identity, Link, LinkStatus, Place, Receiver, Security};
use forebay_io::{Arena, Reactor, Tier};
use opening::{OpenedBacking, OpeningEnd, end_opening};
use slab::Slab;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Watch tokens: what it is in the upper half, which one in the lower.
const LINK: u64 = 5 << 32;
/// Not acknowledged by a peer at most. Each volume bounds its own stream; this is for all of them.
const LINK_BYTES_MAX: u64 = 256 << 20;
/// Nodes that have called and are not known yet wait so long for the registry to be read.
const ARRIVAL_WAIT: Duration = Duration::from_secs(3);
/// So many of them.
const ARRIVALS_MAX: usize = 16;
/// Figures that nothing waits for are told to ownership so often.
const FIGURES_PERIOD: Duration = Duration::from_millis(100);

type Volumes = [Option<Box<Slot>>];

/// How the data path joins a cluster.
pub struct DriverSetup {
    /// Who this node is, with its certificate and key.
    pub identity: Arc<Identity>,
    /// How links to other nodes are protected.
    pub security: Security,
    /// Whether what goes by them is packed.
    pub compression: Compression,
    /// Whether they are Multipath TCP.
    pub multipath: bool,
    /// What only the control thread can do.
    pub control: mpsc::UnboundedSender<Asked>,
    /// By which clients reach the volumes that are served here.
    pub addresses: Arc<Addresses>,
}

/// Another node of the cluster, and how to reach it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerNode {
    /// The node's number in the cluster.
    pub node: NodeId,
    /// The node's name in the cluster.
    pub name: NodeName,
    /// Addresses by which it is called, each with the own one for it.
    pub pairs: Vec<AddressPair>,
}

/// Something for the driver to do.
pub enum ToDriver {
    /// The nodes that there are.
    Peers(Vec<PeerNode>),
    /// Nodes have called, and were found to be who they say.
    Arrived {
        /// Their connections, with what they have said.
        arrivals: Vec<Arrival>,
        /// Dropped when they are taken.
        under_way: Arc<()>,
    },
    /// Identities of nodes were revoked: what they have here ends.
    EndRevoked,
    /// A volume of the cluster is known from now on. With a key: its tier was found and its log follows already.
    Begin {
        /// The volume's name, by which clients choose it.
        name: String,
        /// For ownership; the tier's incarnation and what it remembers are filled in here.
        setup: Box<Setup>,
        /// Key of the attached volume, if there is one.
        key: Option<VolumeKey>,
    },
    /// After [`Asked::OpenTier`]. Without a key: there is no tier that could be used.
    TierOpened {
        /// The volume whose tier it is.
        volume: VolumeId,
        /// Key of the attached volume, if there is one.
        key: Option<VolumeKey>,
        /// Nothing has ever been in it.
        fresh: bool,
    },
    /// Something has happened that its ownership is to know.
    Tell {
        /// The volume whose ownership is told.
        volume: VolumeId,
        /// What has happened to it.
        event: ownership::Event,
    },
    /// What a flush is to promise from now on.
    SetFlush {
        /// The volume whose flushes are meant.
        volume: VolumeId,
        /// The promise from now on.
        flush: Flush,
    },
    /// Something has happened that the ownership of all volumes is to know.
    TellAll(ownership::Event),
    /// The address by which clients reach a volume has changed: their sessions end, and they come again by the new one.
    EndClients {
        /// The volume whose clients are meant.
        volume: VolumeId,
    },
    /// The answer to [`Asked::OpenBacking`].
    Backing {
        /// The volume whose backing it is.
        volume: VolumeId,
        /// Key of the attached volume.
        key: VolumeKey,
        /// The term that it was opened for.
        term: Term,
        /// Open, locked for the term; or why it is not.
        opened: Result<OpenedBacking, BackingAnswer>,
    },
    /// A command of an operator for a volume's ownership.
    Command {
        /// The volume that it is about.
        volume: VolumeId,
        /// What the operator asks for.
        command: ownership::Command,
        /// The line of the audit log that goes with what it allows.
        audit: Option<Box<Audit>>,
        /// Told how the command ended.
        answer: oneshot::Sender<Result<(), CommandError>>,
    },
    /// Show how a volume of the cluster is.
    Show {
        /// The volume that is to show itself.
        volume: VolumeId,
        /// With what it has measured, see [`crate::datapath::mailbox::ToShard::Snapshot`].
        with_seen: bool,
        /// Where to tell what it shows.
        answer: oneshot::Sender<Shown>,
    },
    /// A volume was deleted: it ends here, with whatever it has.
    End {
        /// The volume that was deleted.
        volume: VolumeId,
        /// Told when the volume has ended here.
        answer: oneshot::Sender<()>,
    },
    /// Is a write to a backing under way (H1)?
    LateWrites {
        /// Where to tell what was found.
        answer: oneshot::Sender<Late>,
    },
    /// What do the links show?
    ShowLinks {
        /// Where to tell what each link shows.
        answer: oneshot::Sender<Vec<LinkShown>>,
    },
}

/// Whether a write to a backing is under way on this node.
#[derive(Clone, Copy, Debug)]
pub struct Late {
    /// When the backings were looked at.
    pub at: Instant,
    /// One is: of the volume whose lease ends first, or has ended, when.
    pub leases_end: Option<Instant>,
    /// This node owns a volume.
    pub owns: bool,
}

/// A volume of the cluster at a glance, on this node.
#[derive(Clone, Debug)]
pub struct Shown {
    /// When it was looked at.
    pub at: Instant,
    /// Who may serve it, as ownership says.
    pub ownership: ownership::Status,
    /// Its place among the shard's volumes, while a tier of it is open here.
    pub key: Option<VolumeKey>,
    /// What the volume shows of itself, while a tier of it is open here.
    pub volume: Option<Snapshot>,
    /// The owner's log, and how far the others are.
    pub accepted: Lsn,
    /// The others, while this node owns it.
    pub peers: Vec<(Incarnation, Lsn)>,
    /// Whether each log is in memory, this node's included, as far as that was said.
    pub in_memory: Vec<(Incarnation, Option<bool>)>,
    /// How often each step of the protocol was taken here.
    pub steps: ownership::Counters,
    /// What was told to other nodes.
    pub told: PeerCounters,
    /// Clients of this node whose requests go to another one.
    pub forwarding: Arc<forward::Figures>,
    /// Nodes that forward requests to this one.
    pub forwarders: Vec<NodeId>,
    /// Whose cache is asked before the backing.
    pub former: Option<FormerStatus>,
}

/// A link at a glance.
#[derive(Clone, Debug)]
pub struct LinkShown {
    /// Number of the node at the other end.
    pub node: NodeId,
    /// At least one channel works: something can be sent.
    pub up: bool,
    /// Two daemons run with that node's identity.
    pub has_twins: bool,
    /// Its channels, and how much waits for them.
    pub status: LinkStatus,
}

struct Peer {
    node: NodeId,
    /// As the registry has them.
    pairs: Vec<AddressPair>,
    /// As it had them before, of addresses by which the link worked when they were replaced.
    former: Vec<AddressPair>,
    link: Link,
    was_up: bool,
}

impl Peer {
    /// Where it is called by who forwards to it.
    fn ways(&self) -> impl Iterator<Item = &AddressPair> {
        self.pairs.iter().chain(&self.former)
    }
}

struct Replica {
    name: String,
    ownership: Ownership,
    key: Option<usize>,
    /// What was opened for this term, until ownership has said what becomes of it.
    opened: Option<(Term, OpenedBacking)>,
    backing_end: Option<Arc<OpeningEnd>>,
    /// The term in which it is served here.
    serves: Option<Term>,
    /// Nodes that forward to this one: numbers of their connections.
    forwarders: BTreeMap<NodeId, forwarding::Forwarding>,
    /// What those who forward were told last.
    route: forward::Route,
    forwarding: Arc<forward::Figures>,
    /// With those who forward; its end is the end of all sessions there.
    _registered: forward::Registered,
    commands: Commands,
    figures_told: Option<(Instant, Figures)>,
    /// What volumes on former tiers have told other nodes.
    told: PeerCounters,
    /// Numbers of the closes of what it had open that are under way.
    closing: Vec<u64>,
    /// Which of them is that of its tier, and whether a tier is opened after it, laid out anew or not.
    tier_closing: Option<(u64, Option<bool>)>,
    /// The clean cache of a volume that has handed over, until the follower on its frames is there; and on flash the memory
    /// under it, which is nobody else's.
    kept: Option<(KeptCache, Option<Arena>)>,
}

impl Replica {
    fn new(
        volume: VolumeId,
        name: String,
        ownership: Ownership,
        key: Option<usize>,
        forwarder: &ForwarderHandle,
    ) -> Replica {
        let forwarding = Arc::default();
        Replica {
            _registered: forward::Registered::new(forwarder, volume, &name, &forwarding),
            name,
            ownership,
            key,
            opened: None,
            backing_end: None,
            serves: None,
            forwarders: BTreeMap::new(),
            route: forward::Route::default(),
            forwarding,
            commands: Commands::default(),
            figures_told: None,
            told: PeerCounters::default(),
            closing: Vec::new(),
            tier_closing: None,
            kept: None,
        }
    }

    /// The opening of the backing ends with the volume that used it. `all_done`: none of its changes can still come.
    fn end_backing(&mut self, all_done: bool) {
        if let Some(end) = self.backing_end.take() {
            end.end(all_done);
        }
    }
}

/// What a volume leaves to the driver: its [`Effect`](forebay_core::api::Effect)s for other nodes and for ownership.
pub enum Outgoing {
    /// A message to a peer.
    Send(Box<Sending>),
    /// Something for ownership.
    Report(Report),
}

struct Delivery {
    from: NodeId,
    envelope: Envelope,
    message: Message,
    payload: Vec<Payload>,
}

/// What links see of the volumes.
struct Desk<'a> {
    from: NodeId,
    volumes: &'a mut Volumes,
    keys: &'a HashMap<[u8; 16], usize>,
    inbox: &'a mut Vec<Delivery>,
}

impl Desk<'_> {
    fn slot(&mut self, volume: &[u8; 16]) -> Option<&mut Slot> {
        self.volumes.get_mut(*self.keys.get(volume)?)?.as_deref_mut()
    }
}

impl Receiver for Desk<'_> {
    fn place(&mut self, envelope: &Envelope, _: &Message, blocks: usize) -> Option<Place> {
        let slot = self.slot(&envelope.volume)?;
        let mut frames = Frames::new();
        slot.volume.take_frames_for_peer(blocks as u32, &mut frames).then_some(())?;
        Some(Place::new(slot.io.arena(), frames.into_vec()))
    }

    fn deliver(&mut self, envelope: Envelope, message: Message, payload: Vec<Payload>) {
        self.inbox.push(Delivery { from: self.from, envelope, message, payload });
    }

    fn give_back(&mut self, volume: [u8; 16], frames: Vec<FrameId>) {
        if let Some(slot) = self.slot(&volume) {
            slot.volume.return_frames(&frames);
        }
    }
}

/// What of the shard the driver works on.
pub struct Desks<'a> {
    /// All volumes of the shard.
    pub volumes: &'a mut Volumes,
    /// The clients that this shard serves.
    pub clients: &'a mut Clients,
    /// The reactor of the shard's thread.
    pub reactor: &'a mut Reactor,
    /// The time of this call, for all that is decided in it.
    pub now: Instant,
}

/// See the module's text.
pub struct Driver {
    identity: Arc<Identity>,
    security: Security,
    compression: Compression,
    multipath: bool,
    directory: Arc<Directory>,
    control: mpsc::UnboundedSender<Asked>,
    addresses: Arc<Addresses>,
    peers: Vec<Peer>,
    /// Links that were begun: each has tokens of its own.
    links_made: u32,
    replicas: Agenda<Replica>,
    /// Attached volumes, by identity.
    keys: HashMap<[u8; 16], usize>,
    inbox: Vec<Delivery>,
    outbox: Vec<(usize, Outgoing)>,
    /// Payloads under way: whose, and which operation.
    sends: Slab<(usize, OpId)>,
    arrivals: Vec<Arrival>,
    /// Nodes that are not known yet.
    strangers: Vec<(Instant, Arrival)>,
    touched: Vec<usize>,
    /// Volumes that have worked since their figures were last looked at.
    worked: Vec<usize>,
    /// The turns of the last round did not do for all that there was.
    is_behind: bool,
    forwarder: ForwarderHandle,
    closes: Closes,
}

impl Driver {
    /// Makes the driver, and the thread of those who forward.
    pub fn new(setup: DriverSetup, directory: Arc<Directory>, reactor: &mut Reactor) -> std::io::Result<Driver> {
        let DriverSetup { identity, security, compression, multipath, control, addresses } = setup;
        let forwarder = forward::spawn(directory.clone(), identity.clone(), security.clone(), addresses.clone())?;
        Ok(Driver {
            identity,
            security,
            compression,
            multipath,
            directory,
            control,
            addresses,
            peers: Vec::new(),
            links_made: 0,
            replicas: Agenda::new(),
            keys: HashMap::new(),
            inbox: Vec::new(),
            outbox: Vec::new(),
            sends: Slab::new(),
            arrivals: Vec::new(),
            strangers: Vec::new(),
            touched: Vec::new(),
            worked: Vec::new(),
            is_behind: false,
            forwarder,
            closes: Closes::new(reactor.waker()),
        })
    }

    /// True for watch tokens of links.
    pub fn has_token(token: u64) -> bool {
        token & !0xffff_ffff == LINK
    }

    /// What a volume leaves to this part; taken in order.
    pub fn take(&mut self, key: usize, what: Outgoing) {
        self.outbox.push((key, what));
    }

    /// A volume of this shard has worked: its figures may be others.
    pub fn has_worked(&mut self, key: usize) {
        self.worked.push(key);
    }

    /// What is left is for the next round, which is not to wait.
    pub fn is_left_behind(&mut self) {
        self.is_behind = true;
    }

    /// [`Driver::poll`] is to be called again without waiting.
    pub fn has_work(&self) -> bool {
        self.is_behind
            || self.replicas.has_work()
            || !self.inbox.is_empty()
            || !self.outbox.is_empty()
            || self.peers.iter().any(|peer| peer.link.has_work())
    }

    /// When [`Driver::poll`] must run at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        let links = self.peers.iter().filter_map(|peer| peer.link.deadline());
        let owners = self.replicas.first_due();
        let strangers = self.strangers.iter().map(|(until, _)| *until);
        links.chain(owners).chain(strangers).min()
    }

    /// A watched socket is ready.
    pub fn ready(&mut self, desks: &mut Desks<'_>, token: u64, writable: bool) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.link.has_token(token)) {
            let mut desk = Desk { from: peer.node, volumes: desks.volumes, keys: &self.keys, inbox: &mut self.inbox };
            peer.link.ready(desks.reactor, &mut desk, token, writable, desks.now);
        }
    }

    /// Carries out whatever there is, once. The volumes that have got something to do by it.
    pub fn poll(&mut self, desks: &mut Desks<'_>) -> Vec<usize> {
        self.is_behind = false;
        self.note_closed();
        self.run_timers(desks);
        self.poll_links(desks);
        self.pump_stirred(desks);
        for delivery in std::mem::take(&mut self.inbox) {
            self.on_delivery(desks, delivery);
        }
        for (key, what) in std::mem::take(&mut self.outbox) {
            self.execute(desks, key, what);
        }
        self.publish_figures(desks);
        self.pump_stirred(desks);
        for peer in &mut self.peers {
            let mut desk = Desk { from: peer.node, volumes: desks.volumes, keys: &self.keys, inbox: &mut self.inbox };
            peer.link.flush(desks.reactor, &mut desk, desks.now);
        }
        std::mem::take(&mut self.touched)
    }

    fn run_timers(&mut self, desks: &mut Desks<'_>) {
        let now = desks.now;
        for peer in &mut self.peers {
            if peer.link.deadline().is_some_and(|at| at <= now) {
                let mut desk =
                    Desk { from: peer.node, volumes: desks.volumes, keys: &self.keys, inbox: &mut self.inbox };
                peer.link.timers(desks.reactor, &mut desk, now);
            }
        }
        self.strangers.retain(|(until, _)| *until > now);
        while let Some(replica) = self.replicas.take_due(now) {
            replica.ownership.handle(now, ownership::Event::Timeout);
        }
    }

    // --- links ---

    /// Nodes that have called. One that is not known is looked for in the registry.
    fn let_in(&mut self, desks: &mut Desks<'_>) {
        let now = desks.now;
        for arrival in std::mem::take(&mut self.arrivals) {
            if let Some(volume) = arrival.volume() {
                self.let_forwarder_in(desks, arrival, volume);
                continue;
            }
            let Some(peer) = self.peer_that_calls(&arrival).map(|at| &mut self.peers[at]) else {
                let _ = self.control.send(Asked::UnknownNode);
                if self.strangers.len() < ARRIVALS_MAX {
                    self.strangers.push((now + ARRIVAL_WAIT, arrival));
                }
                continue;
            };
            let mut desk = Desk { from: peer.node, volumes: desks.volumes, keys: &self.keys, inbox: &mut self.inbox };
            if let Err(why) = peer.link.adopt(desks.reactor, &mut desk, arrival, now) {
                log::say!(Error, "a channel of {} was not taken: {why}", peer.link.peer());
            }
        }
    }

    /// A message has arrived.
    fn on_delivery(&mut self, desks: &mut Desks<'_>, delivery: Delivery) {
        let Delivery { from, envelope, message, payload } = delivery;
        let now = desks.now;
        #[cfg(feature = "planted")]
        let key = self.keys.get(&envelope.volume).copied();
        let replica = self.replicas.get_mut(&envelope.volume).filter(|_| envelope.from.node == from);
        #[cfg(feature = "planted")]
        if let Some(replica) = &replica
            && let Some(answer) = crate::planted::does_not_hear(&replica.ownership, &envelope, &message)
        {
            if let Some(slot) = key.and_then(|key| desks.volumes[key].as_mut()) {
                let frames: Vec<FrameId> = payload.iter().map(|payload| payload.frame).collect();
                slot.volume.return_frames(&frames);
            }
            if let Some((envelope, answer)) = answer {
                self.send(&envelope, &answer, Buffers::none(), None);
            }
            return;
        }
        let event = match (replica, message) {
            (None, _) => Err(payload),
            (Some(replica), Message::Ownership(message)) => {
                replica.ownership.handle(now, ownership::Event::Message(envelope, message));
                Err(payload)
            }
            (Some(replica), Message::Refused { why }) => {
                replica.ownership.handle(now, ownership::Event::Refused(envelope, why));
                Ok(Event::Refused { envelope, why })
            }
            (Some(replica), Message::Log(message)) => match replica.ownership.admit(now, &envelope, &message) {
                Admission::Take => Ok(Event::Peer { envelope, message, payload }),
                Admission::Drop => Err(payload),
            },
        };
        // What ownership has decided goes before what it admits.
        if self.replicas.get(&envelope.volume).is_some_and(|replica| replica.ownership.has_effects()) {
            self.pump(desks, &envelope.volume);
        }
        let Some(key) = self.keys.get(&envelope.volume).copied() else { return };
        let Some(slot) = desks.volumes[key].as_mut() else { return };
        match event {
            Ok(event) => slot.volume.handle(now, event),
            Err(payload) => {
                let frames: Vec<FrameId> = payload.iter().map(|payload| payload.frame).collect();
                slot.volume.return_frames(&frames);
            }
        }
        self.touched.push(key);
    }

    fn send(&mut self, envelope: &Envelope, message: &Message, payload: Buffers, token: Option<u64>) -> bool {
        let peer = self.peer_of(envelope.to.node);
        peer.is_some_and(|at| self.peers[at].link.send(envelope, message, payload, token).is_ok())
    }

    // --- the volume ---

    fn execute(&mut self, desks: &mut Desks<'_>, key: usize, what: Outgoing) {
        let Some(slot) = desks.volumes[key].as_mut() else { return };
        match what {
            Outgoing::Send(sending) => {
                let Sending { op, envelope, mut message, frames } = *sending;
                wire::seal_cached(&envelope.volume, &mut message, |index| slot.io.arena().bytes(frames[index]));
                let mut payload = Buffers::none();
                frames.iter().for_each(|frame| payload.push_frame(slot.io.arena(), *frame, 0, BLOCK_BYTES as usize));
                let token = op.map(|op| self.sends.insert((key, op)) as u64);
                if !self.send(&envelope, &message, payload, token)
                    && let (Some(op), Some(token)) = (op, token)
                {
                    self.sends.remove(token as usize);
                    slot.volume.handle(desks.now, Event::Done { op, outcome: Outcome::Ok });
                    self.touched.push(key);
                }
            }
            Outgoing::Report(report) => {
                let figures = slot.volume.figures();
                let Some(replica) = self.replicas.get_mut(&slot.identity) else { return };
                replica.figures_told = Some((desks.now, figures.clone()));
                replica.ownership.handle(desks.now, ownership::Event::Volume(report, figures));
            }
        }
    }

    /// How far each volume is that has worked, when something of it may matter to ownership.
    fn publish_figures(&mut self, desks: &mut Desks<'_>) {
        let mut worked = std::mem::take(&mut self.worked);
        worked.sort_unstable();
        worked.dedup();
        worked.retain(|&key| {
            let Some(slot) = desks.volumes.get(key).and_then(Option::as_ref) else { return false };
            let Some(replica) = self.replicas.get(&slot.identity).filter(|replica| replica.key == Some(key)) else {
                return false;
            };
            let due = replica.figures_told.as_ref().is_none_or(|(at, _)| desks.now >= *at + FIGURES_PERIOD);
            let figures = slot.volume.figures();
            let matters = |told: &Figures| {
                (told.drained, told.wants_log, told.wants_flushed, told.tier_failed, told.serving)
                    != (figures.drained, figures.wants_log, figures.wants_flushed, figures.tier_failed, figures.serving)
            };
            let told = replica.figures_told.as_ref().map(|(_, told)| told);
            if told == Some(&figures) {
                return false;
            }
            if !due && !told.is_none_or(matters) {
                // Told in time, with what it comes to by then.
                return true;
            }
            let replica = self.replicas.get_mut(&slot.identity).expect("it was just looked up");
            replica.figures_told = Some((desks.now, figures.clone()));
            replica.ownership.handle(desks.now, ownership::Event::Figures(figures));
            false
        });
        self.worked = worked;
    }

    // --- ownership ---

    fn pump_stirred(&mut self, desks: &mut Desks<'_>) {
        while let Some(volume) = self.replicas.take_stirred() {
            self.pump(desks, &volume);
        }
    }

    /// Carries out what ownership wants, in its order.
    fn pump(&mut self, desks: &mut Desks<'_>, volume: &[u8; 16]) {
        while let Some(effect) = self.replicas.in_hand(volume).and_then(|replica| replica.ownership.poll_effect()) {
            match effect {
                ownership::Effect::Read(op) => self.ask(Asked::Read { volume: VolumeId(*volume), op }),
                ownership::Effect::Commit { op, compare, new, by } => {
                    self.commit(desks.now, volume, Change { op, compare, new, by });
                }
                ownership::Effect::RewindNoticed { sent } => {
                    self.ask(Asked::RewindNoticed { volume: VolumeId(*volume), sent });
                }
                ownership::Effect::Rewound(id) => self.ask(Asked::Rewound { volume: VolumeId(*volume), id }),
                ownership::Effect::RewindSettled(id) => {
                    self.ask(Asked::RewindSettled { volume: VolumeId(*volume), id });
                }
                ownership::Effect::Send(envelope, message) => {
                    // What is lost is asked again.
                    self.send(&envelope, &message, Buffers::none(), None);
                }
                ownership::Effect::Volume(order) => self.order(desks, volume, order),
                ownership::Effect::Serve(term) => self.serve(desks, volume, term),
                ownership::Effect::OpenBacking(term) => self.open_backing(volume, term),
                ownership::Effect::UseBacking(term) => self.use_backing(desks, volume, term),
                ownership::Effect::EndSessions => self.end_sessions(desks, volume),
                ownership::Effect::OpenTier { format } => {
                    let kept = if format { None } else { self.kept_cache(desks, volume) };
                    self.detach(desks, volume);
                    let Some(replica) = self.replicas.get_mut(volume) else { continue };
                    replica.kept = kept;
                    match &mut replica.tier_closing {
                        // Its lock ends with the last of it, and who opens it anew waits for that lock only so long.
                        Some((_, opens)) => *opens = Some(format),
                        None => self.ask(Asked::OpenTier { volume: VolumeId(*volume), format }),
                    }
                }
                ownership::Effect::Answer(id, result) => {
                    let replica = self.replicas.get_mut(volume).expect("it was just looked up");
                    let slot = replica.key.and_then(|key| desks.volumes[key].as_ref());
                    let unrest = || slot.and_then(|slot| slot.volume.why_not_quiet());
                    let fill_in = |error| match error {
                        CommandError::NotQuiet(None) => CommandError::NotQuiet(unrest()),
                        error => error,
                    };
                    replica.commands.end(id, result.map_err(fill_in));
                }
            }
        }
        self.publish_route(volume);
        self.replicas.settle(volume, |replica| replica.ownership.poll_timeout());
    }

    fn ask(&self, asked: Asked) {
        // The control thread ends after this one.
        let _ = self.control.send(asked);
    }

    fn order(&mut self, desks: &mut Desks<'_>, volume: &[u8; 16], order: Order) {
        let Some(replica) = self.replicas.get_mut(volume) else { return };
        let Some(key) = replica.key else { return };
        let Some(slot) = desks.volumes[key].as_mut() else { return };
        if let Order::Size(size_bytes) = &order {
            self.directory.resize(&replica.name, *size_bytes);
        }
        slot.volume.handle(desks.now, Event::Ownership(order));
        self.touched.push(key);
    }

    fn end_clients(&mut self, desks: &mut Desks<'_>, volume: &[u8; 16]) {
        let Some(replica) = self.replicas.get(volume) else { return };
        if let Some(key) = replica.key
            && let Some(slot) = desks.volumes[key].as_mut()
        {
            desks.clients.close_all_of(slot, desks.reactor, desks.now);
            self.touched.push(key);
        }
    }

    /// What a volume that has handed over leaves to the follower on the same frames. None where something is under way to
    /// the frames, which would come to those of the follower.
    fn kept_cache(&self, desks: &Desks<'_>, volume: &[u8; 16]) -> Option<(KeptCache, Option<Arena>)> {
        let slot = desks.volumes[self.replicas.get(volume)?.key?].as_ref()?;
        let kept = slot.volume.kept_cache().filter(|_| slot.io.frames_rest())?;
        let arena = matches!(slot.io.tier(), Tier::Flash(_)).then(|| slot.io.arena().share());
        Some((kept, arena))
    }

    // --- mail ---

    /// Something that the control thread has to say.
    pub fn take_mail(&mut self, desks: &mut Desks<'_>, mail: ToDriver) {
        let now = desks.now;
        match mail {
            ToDriver::Peers(nodes) => self.set_peers(desks, nodes),
            ToDriver::EndRevoked => self.end_revoked(desks),
            // Whoever asked may have gone.
            ToDriver::Arrived { arrivals, under_way } => {
                drop(under_way);
                self.arrivals.extend(arrivals);
                self.let_in(desks);
            }
            ToDriver::Begin { name, setup, key } => self.begin(desks, name, *setup, key),
            ToDriver::TierOpened { volume, key: Some(key), .. } if !self.replicas.contains(&volume.0) => {
                // It was deleted meanwhile.
                if let Some(slot) = desks.volumes[key.0 as usize].take() {
                    slot.close(|| {}, || {});
                }
            }
            ToDriver::TierOpened { volume, key, fresh } => {
                let own = self.attached(desks, &volume.0, key);
                if let Some(replica) = self.replicas.get_mut(&volume.0) {
                    let own = own.unwrap_or(Incarnation::none(self.identity.node));
                    replica.ownership.handle(now, ownership::Event::TierOpened { own, fresh });
                }
            }
            ToDriver::Tell { volume, event } => self.notify(desks, &volume.0, event),
            ToDriver::SetFlush { volume, flush } => {
                if let Some(&key) = self.keys.get(&volume.0)
                    && let Some(slot) = desks.volumes[key].as_mut()
                {
                    slot.volume.set_flush(flush);
                    self.touched.push(key);
                }
            }
            ToDriver::TellAll(event) => {
                for replica in self.replicas.all_mut() {
                    replica.ownership.handle(now, event.clone());
                }
            }
            ToDriver::EndClients { volume } => self.end_clients(desks, &volume.0),
            ToDriver::Backing { volume, key, term, opened } => {
                self.take_backing(desks, &volume.0, key, term, opened);
            }
            ToDriver::Command { volume, command, audit, answer } => {
                self.command(now, &volume.0, command, Commanded { answer, audit });
            }
            ToDriver::Show { volume, with_seen, answer } => {
                if let Some(shown) = self.show(desks, &volume.0, with_seen) {
                    // Whoever asked may have gone.
                    let _ = answer.send(shown);
                }
            }
            ToDriver::End { volume, answer } => self.end(desks, volume, answer),
            ToDriver::LateWrites { answer } => {
                let leases_end = desks.volumes.iter().flatten().filter_map(|slot| slot.volume.late_writes()).min();
                let owns = |replica: &Replica| {
                    matches!(replica.ownership.status().state, State::Owner | State::Custodian | State::Agreeing)
                };
                let owns = self.replicas.iter().any(|(_, replica)| owns(replica));
                // Whoever asked may have gone.
                let _ = answer.send(Late { at: now, leases_end, owns });
            }
            ToDriver::ShowLinks { answer } => {
                let shown = |peer: &Peer| LinkShown {
                    node: peer.node,
                    up: peer.link.is_up(),
                    has_twins: peer.link.has_twins(desks.now),
                    status: peer.link.status(),
                };
                // Whoever asked may have gone.
                let _ = answer.send(self.peers.iter().map(shown).collect());
            }
        }
    }

    /// Hands an event to the ownership of a volume. What is asked of its copies, the volume must know as well.
    fn notify(&mut self, desks: &mut Desks<'_>, volume: &[u8; 16], event: ownership::Event) {
        let Some(replica) = self.replicas.get_mut(volume) else { return };
        if let ownership::Event::Requested(requested) = &event
            && let Some(key) = replica.key
            && let Some(slot) = desks.volumes[key].as_mut()
        {
            slot.volume.set_min_peers(requested.min_peers);
            self.touched.push(key);
        }
        replica.ownership.handle(desks.now, event);
    }

    /// An attached volume follows the log from now on: which incarnation it is.
    fn attached(&mut self, desks: &mut Desks<'_>, volume: &[u8; 16], key: Option<VolumeKey>) -> Option<Incarnation> {
        let key = key?.0 as usize;
        let slot = desks.volumes[key].as_mut()?;
        self.keys.insert(*volume, key);
        self.worked.push(key);
        if let Some(replica) = self.replicas.get_mut(volume) {
            replica.key = Some(key);
            if let Some((kept, arena)) = replica.kept.take()
                && (arena.is_none() || slot.io.frames_rest())
                && slot.volume.keep_cache(kept)
                && let Some(arena) = arena
            {
                slot.io.go_on_with(arena);
            }
        }
        Some(Incarnation { node: self.identity.node, tier: slot.tier, life: slot.volume.life() })
    }

    fn begin(&mut self, desks: &mut Desks<'_>, name: String, mut setup: Setup, key: Option<VolumeKey>) {
        let volume = setup.volume;
        if let Some(own) = self.attached(desks, &volume, key)
            && let Some(slot) = key.and_then(|key| desks.volumes[key.0 as usize].as_ref())
        {
            let Figures { term, epoch: config, agreed, .. } = slot.volume.figures();
            setup.own = own;
            setup.remembered = ownership::Remembered { term, epoch: config, agreed };
        }
        let mut ownership = Ownership::new(setup, desks.now);
        #[cfg(feature = "planted")]
        crate::planted::plant_in(&mut ownership);
        for peer in self.peers.iter().filter(|peer| !self.is_linked(peer.node)) {
            ownership.handle(desks.now, ownership::Event::Link(peer.node, false));
        }
        let key = key.map(|key| key.0 as usize);
        let replica = Replica::new(VolumeId(volume), name, ownership, key, &self.forwarder);
        self.replicas.insert(volume, replica);
    }

    fn open_backing(&mut self, volume: &[u8; 16], term: Term) {
        if let Some(key) = self.replicas.get(volume).and_then(|replica| replica.key) {
            self.ask(Asked::OpenBacking { volume: VolumeId(*volume), key: VolumeKey(key as u32), term });
        }
    }

    fn take_backing(
        &mut self,
        desks: &mut Desks<'_>,
        volume: &[u8; 16],
        key: VolumeKey,
        term: Term,
        opened: Result<OpenedBacking, BackingAnswer>,
    ) {
        // Of a volume that was closed in the meantime there is no owner that waits for it.
        let replica = self.replicas.get_mut(volume).filter(|replica| replica.key == Some(key.0 as usize));
        let Some(replica) = replica else { return end_opening(opened.ok()) };
        let answer = match opened {
            Ok(opened) => {
                replica.opened = Some((term, opened));
                BackingAnswer::Opened
            }
            Err(answer) => answer,
        };
        replica.ownership.handle(desks.now, ownership::Event::Backing(term, answer));
        self.pump(desks, volume);
        if let Some(replica) = self.replicas.get_mut(volume) {
            end_opening(replica.opened.take().map(|(_, opened)| opened));
        }
    }

    fn use_backing(&mut self, desks: &mut Desks<'_>, volume: &[u8; 16], term: Term) {
        let Some(replica) = self.replicas.get_mut(volume) else { return };
        let Some(key) = replica.key else { return };
        let Some(slot) = desks.volumes[key].as_mut() else { return };
        if let Some((_, (backing, end))) = replica.opened.take_if(|(opened, _)| *opened == term) {
            replica.backing_end = Some(end);
            slot.io.set_backing(*backing);
            slot.volume.handle(desks.now, Event::BackingReady);
            self.touched.push(key);
        }
    }

    fn in_memory(&self, slot: &Slot) -> Vec<(Incarnation, Option<bool>)> {
        let own = Incarnation { node: self.identity.node, tier: slot.tier, life: slot.volume.life() };
        let mut all = slot.volume.peers_in_memory();
        all.push((own, Some(matches!(slot.io.tier(), Tier::Memory(_)))));
        all
    }

    fn show(&self, desks: &mut Desks<'_>, volume: &[u8; 16], with_seen: bool) -> Option<Shown> {
        let replica = self.replicas.get(volume)?;
        let slot = replica.key.and_then(|key| desks.volumes[key].as_ref());
        Some(Shown {
            at: desks.now,
            ownership: replica.ownership.status(),
            key: replica.key.map(|key| VolumeKey(key as u32)),
            volume: slot.map(|slot| slot.snapshot(with_seen, desks.now)),
            accepted: slot.map_or(Lsn(0), |slot| slot.volume.figures().accepted),
            peers: slot.map(|slot| slot.volume.peer_positions()).unwrap_or_default(),
            in_memory: slot.map(|slot| self.in_memory(slot)).unwrap_or_default(),
            steps: replica.ownership.counters(),
            told: slot.map_or(replica.told, |slot| replica.told.and(&slot.volume.peer_counters())),
            forwarding: replica.forwarding.clone(),
            forwarders: replica.forwarders.keys().copied().collect(),
            former: slot.and_then(|slot| slot.volume.former()),
        })
    }
}
