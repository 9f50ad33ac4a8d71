//! Ownership simulated by itself: several real [`Ownership`] machines over a simulated coordinator and network, each with a
//! stand-in for the volume that keeps numbers ([`volume`]). One seed decides everything.
//!
//! [`oracle`] says what must hold, [`chaos`] what goes wrong, [`coordinator`] what a record goes through. Messages are
//! reordered, delayed, lost, doubled and cut off, also one way; clocks drift, processes pause, are killed and lose power;
//! transactions are lost, late and without an answer, and the coordinator goes back in time.
//!
//! What it leaves to others: the real volume, payload, damage, bytes on a wire.

mod backing;
pub mod chaos;
pub mod coordinator;
mod former_state;
mod mishaps;
pub mod oracle;
pub mod stories;
pub mod volume;

use crate::digest;
use crate::random::Random;
use chaos::Chaos;
use coordinator::{Coordinator, Header, Transaction};
use forebay_core::api::Report;
use forebay_core::cluster::*;
use forebay_core::message::*;
use forebay_core::ownership::*;
use forebay_core::types::*;
use oracle::{Oracle, violated, withdrawn};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use volume::{Ask, BackingWrite, PutBack, Tier, Volume};

const VOLUME: [u8; 16] = [7; 16];
/// A millisecond of true time.
pub const MS: u64 = 1_000_000;
const TICK: u64 = 100 * MS;

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How many nodes there are, from 2.
    pub nodes: usize,
    /// Tiers are on flash, not in memory.
    pub flash: bool,
    /// What the volume's definition asks for.
    pub requested: Requested,
    /// Clocks run up to so many parts of a million fast or slow.
    pub drift_ppm: u64,
    /// What was given to the backing dies with its host.
    pub writes_die_with_host: bool,
    /// A flush is asked to promise no more than that all hold it.
    pub flush_held: bool,
}

/// What happens at a moment.
#[derive(Debug)]
enum Item {
    Wake { node: usize, process: u64 },
    Tick { node: usize, process: u64 },
    Arrive { node: usize, envelope: Envelope, message: Message, numbers: Vec<u64> },
    Report { node: usize, process: u64, report: Report },
    Remembered { node: usize, process: u64, seen: (Term, Epoch) },
    TierOpened { node: usize, process: u64 },
    Ask { node: usize, process: u64, op: OpId, transaction: Option<Transaction>, answered: Option<Instant>, age: u64 },
    Answer { node: usize, process: u64, event: Event },
    Header { node: usize, process: u64, header: Header },
    Late(Transaction, Option<u64>),
    Landed { node: usize, write: BackingWrite },
    Written { node: usize, process: u64, write: BackingWrite },
    Refused { node: usize, process: u64 },
    LockLost { node: usize, process: u64, term: Term },
    Start { node: usize },
    Fault,
}

struct Entry(u64, u64, Item);

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

#[derive(Clone)]
struct Process {
    id: u64,
    /// The first of the processes that it is a copy of.
    first_id: u64,
    /// What the coordinator was asked and has not answered; it changes the record, or not.
    open: Option<(OpId, bool)>,
    ownership: Ownership,
    volume: Volume,
    /// Clients are let in, for this term.
    served: Option<Term>,
    /// Its volume has the backing, opened for this term.
    backing: Option<Term>,
    wake: Option<u64>,
    /// A new tier is asked for.
    formats: bool,
    /// The greatest watermark that it was told by those whom it has sealed, and in which term.
    sealed: (Term, usize),
    /// Locks on the image that it has taken, each for a term.
    locks: BTreeSet<Term>,
    /// The newest term whose lock was taken from it while it lives; whether it was told.
    revoked: Option<(Term, bool)>,
    /// The newest change that it has asked for.
    commits: Option<(OpId, Record)>,
    /// What the coordinator called itself when it answered last.
    heard: Option<u64>,
}

impl Process {
    /// A lock goes when its term is over, or was not won, and nothing of it is under way (T9).
    fn holds(&self, term: Term) -> bool {
        let state = || self.ownership.status().state;
        let claims = || matches!(state(), State::Sealed | State::Agreeing | State::Owner | State::Custodian);
        let claimed = || self.ownership.seen().0 <= term && claims();
        self.locks.contains(&term) && (self.volume.owned() == Some(term) || claimed())
    }

    /// The server of the image refuses what it writes as the owner of this term.
    fn is_refused(&self, term: Term) -> bool {
        self.revoked.is_some_and(|(revoked, _)| revoked == term)
    }
}

struct Node {
    process: Option<Process>,
    host: Host,
    offset: i64,
    ppm: i64,
    paused_until: u64,
    reaches_backing: bool,
    leaving: bool,
    /// The newest record that was seen, in the state folder: it outlives processes, power and tiers.
    seen: Option<Record>,
    /// What it knows of coordinators that went back, likewise.
    rewinds: KnownRewinds,
    /// When it has named one last, by its own clock.
    named: Option<(Instant, RewindId)>,
    /// What the coordinator has told it of rewinds.
    mark: Vec<RewindId>,
    /// The highest that was heard from others since the coordinator went back.
    warned: (Term, Epoch),
}

/// Why a log may begin shorter than what was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loss {
    /// The backing has everything.
    InBacking,
    /// Power was lost everywhere: what was flushed is there.
    Power,
    /// The operator has accepted it.
    Accepted,
}

/// Several nodes with one volume.
pub struct World {
    /// What the seed has drawn.
    pub setup: Setup,
    /// Clients write nothing.
    pub idle: bool,
    /// Broken on purpose; nothing is without the feature `mutants`.
    #[cfg_attr(not(feature = "mutants"), allow(dead_code))]
    rules: Rules,
    random: Random,
    now: u64,
    agenda: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
    nodes: Vec<Node>,
    tiers: Vec<Option<Tier>>,
    snapshots: Vec<Option<former_state::Snapshot>>,
    /// A node was put back to before something that it had said.
    forgot: bool,
    /// The one store of records.
    pub coordinator: Coordinator,
    chaos: Chaos,
    /// Ordered pairs of nodes between which nothing arrives.
    cut: BTreeSet<(usize, usize)>,
    /// When a path between two nodes was last cut or mended.
    paths_changed_at: u64,
    under_way: Vec<BackingWrite>,
    /// A stream of its own, so that what is drawn here changes nothing else in a seed.
    backings: Random,
    /// How the next openings of the backing end, and after how many nanoseconds; those behind it as chance has it.
    pub openings: VecDeque<(u64, BackingAnswer)>,
    /// Every write to the backing takes so many nanoseconds.
    pub writes_take: Option<u64>,
    /// What clients were promised.
    pub oracle: Oracle,
    next_number: u64,
    next_process: u64,
    next_tier: u64,
    next_command: u64,
    /// What operators have overridden, with each change that was sent for it.
    pub overrides: Vec<Override>,
    /// The operator's commands and their answers.
    pub answers: BTreeMap<ControlId, Result<(), CommandError>>,
    /// Pinned ranges were written again, by the owner of this term.
    rewritten: Option<Term>,
    /// The next owner begins with another log than the one before.
    loss: Option<Loss>,
    /// The operator has said so.
    loss_accepted: bool,
    /// The definition asked for media when a flush was answered last.
    flushed_for_media: bool,
    media_hang: bool,
    /// How often each thing happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// The newest question to each node to become a learner.
    learns: BTreeMap<usize, (Envelope, Message)>,
    trace: bool,
}

impl World {
    /// Nodes that start now; nobody serves yet.
    pub fn new(setup: Setup, chaos: Chaos, mut random: Random, rules: Rules, trace: bool) -> World {
        let record = Record::of_new_volume(NodeId(1), 1 << 30);
        let mut nodes = Vec::new();
        for node in 0..setup.nodes {
            let ppm = random.range(0, 2 * setup.drift_ppm) as i64 - setup.drift_ppm as i64;
            let host = Host { machine: [node as u8 + 1; 16], boot: [1; 16] };
            let offset = (random.range(1, 1_000_000) * MS) as i64 + 100_000 * MS as i64;
            nodes.push(Node {
                process: None,
                host,
                offset,
                ppm,
                paused_until: 0,
                reaches_backing: true,
                leaving: false,
                seen: None,
                rewinds: KnownRewinds::default(),
                named: None,
                mark: Vec::new(),
                warned: Default::default(),
            });
        }
        let backings = Random::new(random.clone().draw());
        let mut world = World {
            tiers: vec![None; setup.nodes],
            snapshots: vec![None; setup.nodes],
            forgot: false,
            setup,
            idle: false,
            rules,
            random,
            now: 0,
            agenda: BinaryHeap::new(),
            sequence: 0,
            nodes,
            coordinator: Coordinator::new(record),
            chaos,
            cut: BTreeSet::new(),
            paths_changed_at: 0,
            under_way: Vec::new(),
            backings,
            openings: VecDeque::new(),
            writes_take: None,
            oracle: Oracle::default(),
            next_number: 1,
            next_process: 1,
            next_tier: 1,
            next_command: 1,
            overrides: Vec::new(),
            answers: BTreeMap::new(),
            rewritten: None,
            loss: None,
            loss_accepted: false,
            flushed_for_media: setup.requested.media,
            media_hang: false,
            counts: BTreeMap::new(),
            learns: BTreeMap::new(),
            trace,
        };
        for node in 0..setup.nodes {
            world.start(node);
        }
        world.at(0, Item::Fault);
        world
    }

    fn at(&mut self, time: u64, item: Item) {
        self.sequence += 1;
        self.agenda.push(Reverse(Entry(time.max(self.now), self.sequence, item)));
    }

    fn after(&mut self, delay: u64, item: Item) {
        self.at(self.now + delay, item);
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>10.3} {}", self.now as f64 / 1e9, line());
        }
    }

    // --- clocks ---

    fn local(&self, node: usize) -> Instant {
        let clock = &self.nodes[node];
        let drift = self.now as i128 * i128::from(clock.ppm) / 1_000_000;
        Instant((clock.offset as i128 + self.now as i128 + drift) as u64)
    }

    fn true_time(&self, node: usize, local: Instant) -> u64 {
        let clock = &self.nodes[node];
        let since = (local.0 as i64 - clock.offset).max(0) as i128;
        (since * 1_000_000 / i128::from(1_000_000 + clock.ppm)) as u64 + 2
    }

    // --- processes ---

    /// Starts a process on a node.
    pub fn start(&mut self, node: usize) {
        if self.nodes[node].process.is_some() {
            return;
        }
        let id = self.next_process;
        self.next_process += 1;
        self.nodes[node].paused_until = self.now;
        (self.nodes[node].warned, self.nodes[node].named) = Default::default();
        let name = NodeId(node as u64 + 1);
        // What its last process was told, this one does not know (losses.md).
        if let Some(put_back) = self.tiers[node].as_mut().and_then(|tier| tier.put_back.as_mut()) {
            *put_back = PutBack { heard: None, told: false };
        }
        let tier = &self.tiers[node];
        let own = tier.as_ref().map_or(Incarnation::none(name), |tier| tier.incarnation);
        let remembered = tier.as_ref().map_or(Remembered::default(), |tier| Remembered {
            term: tier.seen.0,
            epoch: tier.seen.1,
            agreed: tier.agreed,
        });
        let host = self.nodes[node].host;
        let setup = forebay_core::ownership::Setup {
            volume: VOLUME,
            own,
            host,
            remembered,
            known: self.nodes[node].seen.clone(),
            rewinds: self.nodes[node].rewinds.clone(),
            fresh: tier.as_ref().is_some_and(|tier| tier.fresh),
            timing: Timing { kept_out_max: Duration::from_secs(8), ..Timing::default() },
            requested: self.setup.requested,
            writes_die_with_host: self.setup.writes_die_with_host,
        };
        #[cfg_attr(not(feature = "mutants"), allow(unused_mut))]
        let mut ownership = Ownership::new(setup, self.local(node));
        #[cfg(feature = "mutants")]
        {
            ownership.rules = self.rules;
        }
        let mut volume = Volume::new(VOLUME, own, host, id, self.setup.requested.min_peers);
        volume.flush_held = self.setup.flush_held;
        volume.medium_hangs = self.media_hang;
        self.plant(&mut volume);
        self.tell(|| format!("node {} starts as {own:?}, remembers {remembered:?}", node + 1));
        let locks = BTreeSet::new();
        let process = Process {
            id,
            first_id: id,
            open: None,
            ownership,
            volume,
            served: None,
            backing: None,
            wake: None,
            formats: false,
            sealed: (Term(0), 0),
            locks,
            revoked: None,
            commits: None,
            heard: None,
        };
        self.nodes[node].process = Some(process);
        let first = self.random.below(TICK);
        self.after(first, Item::Tick { node, process: id });
        self.tell_candidates();
        self.drive(node, Event::Timeout);
    }

    #[cfg_attr(not(feature = "mutants"), allow(unused_variables))]
    fn plant(&self, volume: &mut Volume) {
        #[cfg(feature = "mutants")]
        {
            volume.goes_on_in_former_state = self.rules.goes_on_in_former_state;
        }
    }

    fn candidates(&self) -> Vec<Candidate> {
        (0..self.nodes.len())
            .map(|node| Candidate {
                node: NodeId(node as u64 + 1),
                domain: node as u64,
                free_bytes: 1 << 30,
                load_permille: 0,
                flash: self.setup.flash,
                reaches_backing: self.nodes[node].reaches_backing,
                leaving: self.nodes[node].leaving,
            })
            .collect()
    }

    fn tell_candidates(&mut self) {
        for node in 0..self.nodes.len() {
            self.drive(node, Event::Candidates(self.candidates()));
        }
    }

    /// Everybody hears everybody.
    fn is_calm(&self) -> bool {
        self.cut.is_empty() && self.chaos.is_none()
    }

    /// The operator's command; its answer appears among [`World::answers`].
    pub fn command(&mut self, node: usize, command: Command) -> ControlId {
        let id = ControlId(self.next_command);
        self.next_command += 1;
        if matches!(command, Command::Open { accept_loss: true } | Command::TakeSynced) {
            self.loss_accepted = true;
        }
        self.tell(|| format!("node {}: {command:?} as {id:?}", node + 1));
        self.drive(node, Event::Command(id, command));
        id
    }

    /// Who serves clients now, and may read: the node and its term.
    pub fn owner(&self) -> Option<(usize, Term)> {
        let owner = |(at, node): (usize, &Node)| {
            let process = node.process.as_ref()?;
            let term = process.served.filter(|term| *term == self.coordinator.record.term)?;
            process.volume.readable(self.local(at)).map(|_| (at, term))
        };
        self.nodes.iter().enumerate().find_map(owner)
    }

    /// What a node is now.
    pub fn own(&self, node: usize) -> Option<Incarnation> {
        Some(self.nodes[node].process.as_ref()?.ownership.own())
    }

    /// True time, in nanoseconds since the start.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// What a node shows; none: no process of it runs.
    pub fn status(&self, node: usize) -> Option<Status> {
        Some(self.nodes[node].process.as_ref()?.ownership.status())
    }

    /// Writes of the owner of this term may still land in the backing.
    pub fn is_writing(&self, term: Term) -> bool {
        self.under_way.iter().any(|write| write.term == term)
    }

    /// Nothing that is under way to the backing lands any more: the operator has switched off whoever sent it.
    pub fn drop_writes(&mut self) {
        self.under_way.clear();
    }

    /// How many writes were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.oracle.acked.len()
    }

    // --- running ---

    /// Lets so many nanoseconds of true time pass.
    pub fn run_for(&mut self, time: u64) {
        let end = self.now + time;
        while self.agenda.peek().is_some_and(|Reverse(entry)| entry.0 <= end) {
            let Some(Reverse(Entry(at, _, item))) = self.agenda.pop() else { break };
            self.now = at;
            self.happen(item);
        }
        self.now = end;
    }

    /// Runs until `done`, at most so long; false if it was not.
    pub fn run_until(&mut self, most: u64, mut done: impl FnMut(&mut World) -> bool) -> bool {
        let end = self.now + most;
        while self.now < end {
            if done(self) {
                return true;
            }
            self.run_for(TICK);
        }
        done(self)
    }

    fn happen(&mut self, item: Item) {
        let of = match &item {
            Item::Wake { node, process }
            | Item::Tick { node, process }
            | Item::Report { node, process, .. }
            | Item::Remembered { node, process, .. }
            | Item::TierOpened { node, process }
            | Item::Written { node, process, .. }
            | Item::Refused { node, process }
            | Item::LockLost { node, process, .. }
            | Item::Answer { node, process, .. }
            | Item::Header { node, process, .. } => Some((*node, Some(*process))),
            Item::Arrive { node, .. } => Some((*node, None)),
            Item::Ask { .. } | Item::Late(..) | Item::Landed { .. } | Item::Start { .. } | Item::Fault => None,
        };
        if let Some((node, id)) = of {
            let Some(process) = &self.nodes[node].process else { return };
            if id.is_some_and(|id| id != process.id) {
                return;
            }
            if self.now < self.nodes[node].paused_until {
                return self.at(self.nodes[node].paused_until, item);
            }
        }
        match item {
            Item::Wake { node, .. } => {
                if let Some(process) = &mut self.nodes[node].process {
                    process.wake = None;
                }
                self.drive(node, Event::Timeout);
            }
            Item::Tick { node, process } => self.tick(node, process),
            Item::Arrive { node, envelope, message, numbers } => self.arrive(node, envelope, message, &numbers),
            Item::Report { node, report, .. } => self.report(node, report),
            Item::Remembered { node, seen, .. } => self.remembered(node, seen),
            Item::TierOpened { node, .. } => self.tier_opened(node),
            // What was on its way to a coordinator that went back is forgotten with the rest.
            Item::Ask { node, process, op, transaction, answered, age } => {
                if age == self.coordinator.age {
                    self.coordinate(node, process, op, transaction, answered);
                } else {
                    self.leave_open(node, process, op, transaction.is_some());
                }
            }
            // What a paused process is told of the definition is what it is when it hears it.
            Item::Answer { node, event: Event::Requested(_), .. } => {
                self.drive(node, Event::Requested(self.setup.requested))
            }
            Item::Answer { node, event: Event::Backing(term, answer), .. } => self.backing_answers(node, term, answer),
            Item::Answer { node, event: Event::Candidates(_), .. } => {
                self.drive(node, Event::Candidates(self.candidates()))
            }
            Item::Answer { node, event, .. } => {
                if let (Event::Read(..) | Event::Committed(..), Some(process)) = (&event, &mut self.nodes[node].process)
                {
                    process.open = None;
                }
                self.see(node, &event);
                self.tell(|| format!("node {} hears {event:?}", node + 1));
                self.drive(node, event)
            }
            Item::Header { node, header, .. } => self.on_header(node, header),
            Item::Late(transaction, sent_to) => self.arrive_late(&transaction, sent_to),
            Item::Landed { node, write } => self.land(node, write),
            Item::Written { node, write, .. } => self.written(node, write),
            Item::Refused { node, .. } => self.refused(node),
            Item::LockLost { node, term, .. } => self.lock_lost(node, term),
            Item::Start { node } => self.start(node),
            Item::Fault => self.fault(),
        }
    }

    /// Gives a process an event, and does what follows.
    fn drive(&mut self, node: usize, event: Event) {
        let Some(process) = &self.nodes[node].process else { return };
        if self.now < self.nodes[node].paused_until {
            let process = process.id;
            return self.at(self.nodes[node].paused_until, Item::Answer { node, process, event });
        }
        let now = self.local(node);
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let Some(process) = &mut self.nodes[node].process else { return };
            process.ownership.handle(now, event);
            self.perform(node, now, &mut events);
        }
        let Some(process) = &self.nodes[node].process else { return };
        process.ownership.validate();
        let (id, wake) = (process.id, process.ownership.poll_timeout());
        let Some(wake) = wake.map(|wake| self.true_time(node, wake)) else { return };
        let Some(process) = &mut self.nodes[node].process else { return };
        if process.wake.is_none_or(|asked| wake < asked) {
            process.wake = Some(wake);
            self.at(wake, Item::Wake { node, process: id });
        }
    }

    /// Effects of ownership, and what the volume asks for in turn.
    fn perform(&mut self, node: usize, now: Instant, events: &mut VecDeque<Event>) {
        loop {
            let Some(process) = &mut self.nodes[node].process else { return };
            if let Some(effect) = process.ownership.poll_effect() {
                self.tell(|| format!("node {}: {effect:?}", node + 1));
                digest::ownership_decided(self.now, node, &effect);
                self.effect(node, now, effect);
                continue;
            }
            let asks = std::mem::take(&mut process.volume.asks);
            if asks.is_empty() {
                return;
            }
            for ask in asks {
                self.ask(node, ask, events);
            }
        }
    }

    fn effect(&mut self, node: usize, now: Instant, effect: Effect) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let (id, first) = (process.id, process.first_id);
        match effect {
            Effect::Read(op) => {
                process.open = Some((op, false));
                self.ask_coordinator(node, id, op, None);
            }
            Effect::RewindNoticed { sent } => self.name_noticed(node, id, sent),
            Effect::Rewound(id) => {
                self.nodes[node].rewinds.open(id);
            }
            Effect::RewindSettled(id) => self.nodes[node].rewinds.settle(id),
            Effect::Commit { op, compare, new, by } => {
                process.open = Some((op, true));
                process.commits = Some((op, new.clone()));
                if new.owner.0 == node as u64 + 1 && new.term > compare.term {
                    // That of a term that it did not win, it has let go.
                    let owned = process.volume.owned();
                    process.locks.retain(|term| owned == Some(*term));
                    process.locks.insert(new.term);
                }
                let heard = process.heard.map(|heard| (heard, self.now));
                by.into_iter().for_each(|by| self.is_overridden(by));
                let (mark, known) = (self.nodes[node].mark.clone(), self.known_at(node));
                self.ask_coordinator(node, id, op, Some(Transaction { compare, new, by: node, mark, known, heard }));
            }
            Effect::Send(envelope, message) => self.send(node, envelope, message, Vec::new()),
            Effect::Volume(order) => {
                if let forebay_core::api::Order::Own(own) = &order {
                    process.locks.insert(own.term);
                    let (term, watermark) = process.sealed;
                    if term == own.term && own.watermark.0 < watermark as u64 {
                        violated(format!("the owner of term {term} begins at {}, {watermark} was told", own.watermark));
                    }
                    self.count("terms begun");
                    let name = NodeId(node as u64 + 1);
                    if let Err(broken) = self.oracle.owns(own.term, name, first, &self.coordinator.history) {
                        if self.forgot && self.counts.contains_key("coordinator went back") {
                            withdrawn("the coordinator and whoever knew of the term were put back");
                        }
                        violated(broken);
                    }
                }
                let delay = if self.setup.flash { self.random.range(0, 5_000) } else { 0 };
                let Some(tier) = &mut self.tiers[node] else { return };
                let Some(process) = &mut self.nodes[node].process else { return };
                process.volume.order(now, tier, order, delay);
            }
            Effect::Serve(term) => self.serves(node, term),
            Effect::OpenBacking(term) => self.open_backing(node, id, term),
            Effect::UseBacking(term) => process.backing = Some(term),
            Effect::EndSessions => process.served = None,
            Effect::OpenTier { format } => {
                process.formats = format;
                let (name, delay) = (node + 1, self.random.range(1, 20) * MS);
                if format {
                    self.may_format(name);
                } else if self.under_way.iter().any(|write| write.process == id) {
                    violated(format!("node {name} lets go of its locks with a write under way"));
                }
                self.after(delay, Item::TierOpened { node, process: id });
            }
            Effect::Answer(id, result) => {
                self.answers.insert(id, result);
            }
        }
    }

    /// Clients are let in.
    fn serves(&mut self, node: usize, term: Term) {
        let Some(process) = &mut self.nodes[node].process else { return };
        if process.backing != Some(term) {
            let has = process.backing.map(|has| has.0);
            self.broken_at(node, format!("node {} serves term {} with the backing of {has:?}", node + 1, term.0));
        }
        let served = self.nodes.iter().filter_map(|node| node.process.as_ref()?.served).max();
        if let Some(later) = served.filter(|later| *later > term) {
            self.broken_at(node, format!("node {} serves term {} beside {}", node + 1, term.0, later.0));
        }
        let Some(process) = &mut self.nodes[node].process else { return };
        process.served = Some(term);
        self.count("terms served");
    }

    /// An operator's word goes with a change only while he waits for its command: after that nobody has it any more. A node that was
    /// put back has said so before.
    fn is_overridden(&mut self, by: Override) {
        let (Override::Restores(id) | Override::AcceptsLoss(id)) = by;
        if self.answers.contains_key(&id) && !self.forgot {
            violated(format!("{by:?} goes with a change, and was answered before"));
        }
        self.overrides.push(by);
    }

    /// The newest change of the record that its volume was told of, and that is undecided.
    pub fn proposal(&self, node: usize) -> Option<u64> {
        self.nodes[node].process.as_ref()?.volume.proposal()
    }

    /// The highest that this node has seen, or was told of since the coordinator went back.
    fn known_at(&self, node: usize) -> (Term, Epoch) {
        let seen = self.nodes[node].process.as_ref().map(|process| process.ownership.seen());
        seen.unwrap_or_default().max(self.nodes[node].warned)
    }

    /// S7: a tier that the record names is never formatted, whatever its life; unless the operator has given it up.
    fn may_format(&self, name: usize) {
        let Some(tier) = &self.tiers[name - 1] else { return };
        let record = &self.coordinator.record;
        let recorded = record.member(tier.incarnation.node).filter(|member| member.tier == tier.incarnation.tier);
        let read = self.nodes[name - 1].process.as_ref().and_then(|process| process.ownership.status().record);
        // After write-through one that has lost its end is worth nothing (T10), nor is one that was recorded since the node has read, by a
        // transaction that took its time.
        let has_read = read.as_ref().is_some_and(|read| read.version() >= record.version());
        let of_use = record.log == LogState::Needed || (recorded == Some(tier.incarnation) && has_read);
        // The coordinator went back after this node had read, in a newer record, that it is no member.
        let of_a_member =
            |read: &Record| read.member(tier.incarnation.node).is_some_and(|own| own.tier == tier.incarnation.tier);
        if read.is_some_and(|read| read.version() > record.version() && !of_a_member(&read)) {
            return;
        }
        if recorded.is_some() && of_use && record.log != LogState::Released && !self.loss_accepted {
            violated(format!("node {name} formats {:?}, which is recorded", tier.incarnation));
        }
    }

    fn ask(&mut self, node: usize, ask: Ask, events: &mut VecDeque<Event>) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let id = process.id;
        let term = process.volume.owned().unwrap_or_default();
        match ask {
            Ask::Send(envelope, message, numbers) => self.send(node, envelope, message, numbers),
            Ask::Report(report, 0) => {
                self.on_report(node, term, &report);
                let (Some(tier), Some(process)) = (&self.tiers[node], &self.nodes[node].process) else { return };
                events.push_back(Event::Volume(report, process.volume.figures(tier)));
            }
            Ask::Report(report, delay) => self.after(delay * 1000, Item::Report { node, process: id, report }),
            Ask::Remember(term, epoch, 0) => {
                let report = self.remember(node, (term, epoch));
                let (Some(tier), Some(process)) = (&self.tiers[node], &self.nodes[node].process) else { return };
                events.push_back(Event::Volume(report, process.volume.figures(tier)));
            }
            Ask::Remember(term, epoch, delay) => {
                self.after(delay * 1000, Item::Remembered { node, process: id, seen: (term, epoch) });
            }
            Ask::Write(write) if process.is_refused(write.term) => {
                let after = self.random.range(1, 30) * MS;
                self.after(after, Item::Refused { node, process: id });
            }
            Ask::Write(write) => {
                self.tell(|| format!("node {}: {write:?}", node + 1));
                self.may_land(&write, self.newest_record());
                self.under_way.push(write);
                let slow = self.writes_take.unwrap_or_else(|| self.chaos.slow_write(&mut self.random));
                self.after(slow, Item::Landed { node, write });
            }
            Ask::Acknowledged(position) => {
                let number = self.tiers[node].as_ref().map_or(0, |tier| tier.log[position - 1]);
                let record = self.newest_record().clone();
                let goes_on = self.oracle.acked.get(position - 1).is_none_or(|known| *known == number);
                if !goes_on && self.is_excused(node) {
                    withdrawn("an owner that was put back acknowledged before it was told");
                }
                if let Err(broken) = self.oracle.acknowledged(term, position, number, &record, &self.tiers) {
                    self.broken_at(node, broken);
                }
            }
            Ask::Flushed(through) => {
                self.oracle.flush_answered(term, through);
                self.flushed_for_media = self.setup.requested.media;
            }
        }
    }

    /// The record of the highest number that there ever was: what the coordinator shows after it went back counts for
    /// nothing.
    fn newest_record(&self) -> &Record {
        let newest = self.coordinator.history.iter().max_by_key(|record| record.version());
        newest.unwrap_or(&self.coordinator.record)
    }

    fn on_report(&mut self, node: usize, term: Term, report: &Report) {
        self.tell(|| format!("node {}: {report:?}", node + 1));
        match report {
            Report::Agreed { .. } => self.agreed(node, term),
            Report::PinsEnded => self.rewritten = Some(term),
            Report::Remembered { .. }
            | Report::PeerFailed { .. }
            | Report::LearnerReady { .. }
            | Report::Covered { .. }
            | Report::Quiet
            | Report::NotQuiet(_)
            | Report::Outdated { .. }
            | Report::TierFailed { .. }
            | Report::WentBack
            | Report::Grown(_)
            | Report::BackingQuiet => {}
        }
    }

    /// T4: the new owner has all that was acknowledged; where loss is allowed, this is what is left.
    fn agreed(&mut self, node: usize, term: Term) {
        let Some(tier) = &self.tiers[node] else { return };
        let end = tier.log.len();
        if term != self.newest_record().term {
            return;
        }
        if let Some(loss) = self.loss.take() {
            let (flushed, there) = (self.oracle.flushed, end.max(self.oracle.backing));
            if loss == Loss::Power && there < flushed {
                if self.forgot {
                    withdrawn("power was lost everywhere, and a medium had been put back before");
                }
                violated(format!("power was lost, and with it {} to {flushed} that were flushed", there + 1));
            }
            self.loss_accepted = false;
            self.oracle.begin_at(term, end);
            let backing = self.oracle.backing;
            if let Some(process) = &mut self.nodes[node].process {
                process.volume.begin_at(backing);
            }
        } else if end < self.oracle.acked.len() {
            let acknowledged = self.oracle.acked.len();
            self.broken_at(node, format!("owner of term {term} begins with {end} of {acknowledged} acknowledged"));
        }
    }

    fn report(&mut self, node: usize, report: Report) {
        let Some(process) = &self.nodes[node].process else { return };
        let term = process.volume.owned().unwrap_or_default();
        self.on_report(node, term, &report);
        let (Some(tier), Some(process)) = (&self.tiers[node], &self.nodes[node].process) else { return };
        let figures = process.volume.figures(tier);
        self.drive(node, Event::Volume(report, figures));
    }

    fn remember(&mut self, node: usize, seen: (Term, Epoch)) -> Report {
        if let Some(tier) = &mut self.tiers[node] {
            if seen.0 > tier.seen.0 {
                tier.agreed = false;
            }
            tier.seen = tier.seen.max(seen);
        }
        Report::Remembered { term: seen.0, epoch: seen.1 }
    }

    fn remembered(&mut self, node: usize, seen: (Term, Epoch)) {
        let report = self.remember(node, seen);
        let (Some(tier), Some(process)) = (&self.tiers[node], &self.nodes[node].process) else { return };
        let figures = process.volume.figures(tier);
        self.drive(node, Event::Volume(report, figures));
    }

    fn tier_opened(&mut self, node: usize) {
        let (name, host) = (NodeId(node as u64 + 1), self.nodes[node].host);
        let Some(process) = &mut self.nodes[node].process else { return };
        if process.formats || self.tiers[node].is_none() {
            let incarnation = Incarnation { node: name, tier: self.next_tier, life: 1 };
            self.next_tier += 1;
            let flash = self.setup.flash;
            let seen = (Term(0), Epoch(0));
            let log = Vec::new();
            let (watermark, checkpoint, synced, committed) = (0, 0, 0, 0);
            let (fresh, agreed, put_back) = (true, false, None);
            let tier = Tier {
                incarnation,
                flash,
                fresh,
                log,
                synced,
                watermark,
                checkpoint,
                seen,
                agreed,
                committed,
                put_back,
            };
            self.tiers[node] = Some(tier);
        }
        let Some(tier) = &self.tiers[node] else { return };
        let (own, fresh) = (tier.incarnation, tier.fresh);
        process.volume = Volume::new(VOLUME, own, host, process.id, self.setup.requested.min_peers);
        process.backing = None;
        process.volume.flush_held = self.setup.flush_held;
        process.volume.medium_hangs = self.media_hang;
        #[cfg(feature = "mutants")]
        {
            process.volume.goes_on_in_former_state = self.rules.goes_on_in_former_state;
        }
        self.drive(node, Event::TierOpened { own, fresh });
    }

    fn tick(&mut self, node: usize, id: u64) {
        let now = self.local(node);
        self.after(TICK, Item::Tick { node, process: id });
        self.prove(node);
        let writes: Vec<u64> = (0..self.random.below(3)).map(|more| self.next_number + more).collect();
        let reached = self.nodes[node].reaches_backing;
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(term) = process.volume.owned() else { return };
        let served = process.served == Some(term);
        let reached = reached && process.backing == Some(term);
        let Some(tier) = &mut self.tiers[node] else { return };
        let writes: &[u64] = if served && !self.idle { &writes } else { &[] };
        self.next_number += writes.len() as u64;
        // It sees nothing of what others write there.
        let backing = if process.is_refused(term) { 0 } else { self.oracle.backing };
        process.volume.tick(now, tier, backing, reached, writes);
        // Between the loss and the look that shows it, nothing is promised of reads (losses.md, Stale reads).
        let untold = process.revoked.is_some_and(|(revoked, told)| revoked == term && !told);
        let shown = process.volume.readable(now).filter(|_| served && !untold);
        let figures = process.volume.figures(tier);
        if let Some(shown) = shown.filter(|_| !self.is_excused(node)) {
            self.oracle.read(term, shown);
        }
        self.drive(node, Event::Figures(figures));
    }

    fn arrive(&mut self, node: usize, envelope: Envelope, message: Message, numbers: &[u64]) {
        let now = self.local(node);
        self.note_heard(node, &envelope, &message);
        match message {
            Message::Log(message) => {
                let Some(process) = &mut self.nodes[node].process else { return };
                if process.ownership.admit(now, &envelope, &message) == Admission::Take
                    && let Some(tier) = &mut self.tiers[node]
                {
                    process.volume.receive(now, tier, &envelope, &message, numbers);
                }
                self.drive(node, Event::Timeout);
            }
            Message::Refused { why } => {
                if let (Some(process), Some(tier)) = (&mut self.nodes[node].process, &mut self.tiers[node]) {
                    process.volume.refused(now, tier, envelope.from, why);
                }
                self.drive(node, Event::Refused(envelope, why));
            }
            Message::Ownership(message) => {
                self.note_ownership_message(node, &envelope, &message);
                self.drive(node, Event::Message(envelope, message));
            }
        }
    }

    fn note_ownership_message(&mut self, node: usize, envelope: &Envelope, message: &OwnershipMessage) {
        let Some(process) = &mut self.nodes[node].process else { return };
        match message {
            OwnershipMessage::Know { .. } | OwnershipMessage::Known { .. } => {
                let warned = &mut self.nodes[node].warned;
                *warned = (*warned).max((envelope.term, envelope.epoch));
            }
            OwnershipMessage::Sealed { mark, .. } if envelope.to == process.ownership.own() => {
                let before = if process.sealed.0 == envelope.term { process.sealed.1 } else { 0 };
                process.sealed = (envelope.term, before.max(mark.watermark.0 as usize));
            }
            _ => {}
        }
    }

    fn send(&mut self, from: usize, envelope: Envelope, message: Message, numbers: Vec<u64>) {
        let to = envelope.to.node.0 as usize - 1;
        if matches!(message, Message::Ownership(OwnershipMessage::Learn { .. })) {
            self.learns.insert(to, (envelope, message.clone()));
        }
        if self.cut.contains(&(from, to)) {
            return;
        }
        for delay in self.chaos.deliveries(&mut self.random) {
            let item = Item::Arrive { node: to, envelope, message: message.clone(), numbers: numbers.clone() };
            self.after(delay, item);
        }
    }
}
