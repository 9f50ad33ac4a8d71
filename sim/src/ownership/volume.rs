//! A stand-in for the volume: a log of numbers, its stream to peers, acknowledgement and destage, as simple as the rules allow.
//! It obeys what `docs/protocol.md` asks of the volume (S3, S5, S9, A1, D1, T4), so that what goes wrong is ownership's.

use forebay_core::api::{Figures, Order, Own, PeerFailure, Report};
use forebay_core::cluster::*;
use forebay_core::message::*;
use forebay_core::record::UNFENCED_MAX;
use forebay_core::status::Unrest;
use forebay_core::types::*;
use forebay_core::volume::HELD_MAX;
use std::collections::{BTreeMap, BTreeSet};

/// What outlives a process.
#[derive(Clone, Debug)]
pub struct Tier {
    /// Which life of which tier.
    pub incarnation: Incarnation,
    /// Keeps what was synced when power is lost.
    pub flash: bool,
    /// Nothing has ever been in it.
    pub fresh: bool,
    /// A number for each position; 0 where it was freed before this tier had it.
    pub log: Vec<u64>,
    /// Positions that survive a loss of power.
    pub synced: usize,
    /// The newest watermark told or made.
    pub watermark: usize,
    /// The watermark of the checkpoint: an owner's may lag behind what its members know.
    pub checkpoint: usize,
    /// Highest term and epoch seen.
    pub seen: (Term, Epoch),
    /// The term's `Begin` was answered.
    pub agreed: bool,
    /// Every member holds everything up to here, as far as is known.
    pub committed: usize,
    /// It was put back to an earlier state of itself, and lacks what it had said to hold.
    pub put_back: Option<PutBack>,
}

/// What has become of a tier since it was put back, in true time.
#[derive(Clone, Copy, Debug)]
pub struct PutBack {
    /// When an owner that knows more was first heard, and which process that is.
    pub heard: Option<(u64, u64)>,
    /// The node was told that it was put back.
    pub told: bool,
}

/// A write to the backing that is under way; it outlives its process.
#[derive(Clone, Copy, Debug)]
pub struct BackingWrite {
    /// Term of the owner that sent it.
    pub term: Term,
    /// Everything up to here is in the backing when it lands.
    pub through: usize,
    /// Which process sent it.
    pub process: u64,
    /// The machine, in its boot, that the process ran on.
    pub host: Host,
}

/// What the volume asks the world for.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Send; the numbers go with an `Append`.
    Send(Envelope, Message, Vec<u64>),
    /// Tell ownership after so many microseconds.
    Report(Report, u64),
    /// Make seen terms durable, after so many microseconds, then report.
    Remember(Term, Epoch, u64),
    /// Begin a write to the backing.
    Write(BackingWrite),
    /// A write is acknowledged: its position, from 1.
    Acknowledged(usize),
    /// A flush of everything up to here is answered.
    Flushed(usize),
}

#[derive(Clone, Debug)]
struct Peer {
    incarnation: Incarnation,
    agreed: bool,
    held: usize,
    synced: usize,
    /// What it is to hold in the end grew, and it has made no progress since then.
    open: Option<Instant>,
    sent_at: Instant,
    told_failed: bool,
    told_ready: bool,
}

#[derive(Clone, Debug)]
struct Sets {
    /// 0: it is decided.
    proposal: u64,
    epoch: Epoch,
    members: Vec<Incarnation>,
    log: LogState,
    flushed: Flushed,
}

/// The owner's part.
#[derive(Clone, Debug)]
struct Owner {
    term: Term,
    decided: Sets,
    /// With what must be on the media of all before it may be recorded.
    proposed: Vec<(Sets, usize)>,
    peers: BTreeMap<NodeId, Peer>,
    fetch: Option<(Incarnation, usize, Instant)>,
    begun: bool,
    tail: usize,
    agreed: bool,
    opens_window: bool,
    lease: Instant,
    acked: usize,
    flushed: usize,
    under_way: bool,
    quiesced: Option<Option<NodeId>>,
    held_until: Instant,
    told_quiet: bool,
    told_covered: BTreeSet<u64>,
    pinned: bool,
    rewriting: Rewriting,
}

/// T6: the pinned ranges are written once more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rewriting {
    No,
    Due,
    UnderWay,
}

/// The stand-in. The tier lies beside it.
#[derive(Clone, Debug)]
pub struct Volume {
    id: [u8; 16],
    own: Incarnation,
    host: Host,
    process: u64,
    copies_min: usize,
    /// A flush is asked to promise no more than that all hold it.
    pub flush_held: bool,
    /// It is drained through: the backing has every write before it is acknowledged.
    pub keeps_through: bool,
    /// No sync of the medium ends.
    pub medium_hangs: bool,
    sealed: bool,
    owner: Option<Owner>,
    stopping: bool,
    stopped: bool,
    failed: bool,
    /// Others have heard more from it than it holds (S10).
    went_back: bool,
    /// That is broken on purpose.
    pub goes_on_in_former_state: bool,
    ticks: u64,
    /// As far as is known durable in the backing.
    backing: usize,
    /// What the world is to do.
    pub asks: Vec<Ask>,
}

impl Owner {
    /// What it or a former owner may have acknowledged.
    fn promised(&self) -> usize {
        self.acked.max(self.tail)
    }

    fn sets(&self) -> impl Iterator<Item = &Sets> {
        self.proposed.iter().map(|(sets, _)| sets).chain([&self.decided])
    }

    /// Some set that is asked, decided or proposed, promises that flushes are durable (A2, C4).
    fn promises_durable(&self) -> bool {
        self.sets().any(|sets| sets.flushed == Flushed::Durable)
    }

    /// What somebody waits for on the media of all.
    fn wanted_on_media(&self) -> usize {
        self.proposed.iter().map(|(_, on_media)| *on_media).fold(self.flushed, usize::max)
    }
}

const RESEND: Duration = Duration::from_millis(150);
const STALL: Duration = Duration::from_millis(800);

impl Volume {
    /// Opens a tier as a follower.
    pub fn new(id: [u8; 16], own: Incarnation, host: Host, process: u64, min_peers: u32) -> Volume {
        Volume {
            id,
            own,
            host,
            process,
            copies_min: 1 + min_peers as usize,
            flush_held: false,
            keeps_through: false,
            medium_hangs: false,
            sealed: false,
            owner: None,
            stopping: false,
            stopped: false,
            failed: false,
            went_back: false,
            goes_on_in_former_state: false,
            ticks: 0,
            backing: 0,
            asks: Vec::new(),
        }
    }

    /// The term that it owns, as far as it knows.
    pub fn owned(&self) -> Option<Term> {
        self.owner.as_ref().filter(|_| !self.stopped).map(|owner| owner.term)
    }

    /// How many writes this owner would show to a reader now; none: reads wait.
    pub fn readable(&self, now: Instant) -> Option<usize> {
        let owner = self.owner.as_ref()?;
        let may = owner.agreed && now < owner.lease && !self.stopped && owner.quiesced.is_none();
        may.then_some(owner.promised())
    }

    /// How far it is, as ownership asks.
    pub fn figures(&self, tier: &Tier) -> Figures {
        let end = Lsn(tier.log.len() as u64);
        let acked = self.owner.as_ref().map_or(0, |owner| owner.acked);
        Figures {
            term: tier.seen.0,
            epoch: tier.seen.1,
            agreed: tier.agreed,
            accepted: end,
            held: end,
            synced: tier.flash.then_some(Lsn(tier.synced as u64)),
            committed: Lsn(acked.max(tier.committed) as u64),
            mark: mark(tier),
            serving: self.owner.as_ref().is_some_and(|owner| owner.agreed),
            drained: self.owner.as_ref().is_some_and(|owner| owner.promised() <= self.backing && !owner.pinned),
            wants_log: !self.keeps_through
                && self.owner.as_ref().is_some_and(|owner| owner.decided.members.len() >= self.copies_min),
            wants_flushed: self.owner.as_ref().filter(|owner| owner.agreed).map(|_| {
                match tier.flash && !self.flush_held {
                    true => Flushed::Durable,
                    false => Flushed::Held,
                }
            }),
            tier_failed: self.failed,
        }
    }

    /// It goes on as another process.
    pub fn go_on_as(&mut self, process: u64) {
        self.process = process;
    }

    /// The newest change that it was told of, while none is decided.
    pub fn proposal(&self) -> Option<u64> {
        self.owner.as_ref()?.proposed.last().map(|(sets, _)| sets.proposal)
    }

    /// The tier has failed in this process.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The tier fails.
    pub fn fail(&mut self) {
        self.failed = true;
        let others = |sets: &Sets| sets.members.iter().any(|member| member.node != self.own.node);
        let answers = !self.owner.as_ref().is_some_and(|owner| owner.sets().any(others));
        self.asks.push(Ask::Report(Report::TierFailed { answers }, 0));
    }

    // --- orders ---

    /// Ownership has decided something.
    pub fn order(&mut self, now: Instant, tier: &mut Tier, order: Order, delay: u64) {
        match order {
            Order::Seal => self.sealed = true,
            Order::Unseal => self.sealed = false,
            Order::Remember { term, epoch } => self.asks.push(Ask::Remember(term, epoch, delay)),
            Order::Own(own) => self.own_term(now, tier, own),
            Order::Propose { proposal, epoch, members, log, flushed } => self.with_owner(|owner| {
                let becomes_durable = flushed == Flushed::Durable && owner.decided.flushed != Flushed::Durable;
                let on_media = if becomes_durable { owner.promised() } else { owner.flushed };
                owner.proposed.push((Sets { proposal, epoch, members, log, flushed }, on_media));
            }),
            Order::Decide { epoch, members, log, flushed } => {
                self.decide(now, Sets { proposal: 0, epoch, members, log, flushed });
            }
            Order::Learn(learner) => {
                self.with_owner(|owner| {
                    owner.peers.insert(learner.node, Peer::new(learner, now));
                });
                self.begin_to(now, tier, learner);
            }
            Order::Forget(node) => self.with_owner(|owner| {
                owner.peers.remove(&node);
            }),
            Order::Quiesce { to } => self.with_owner(|owner| {
                owner.quiesced = Some(to);
                owner.held_until = now + HELD_MAX;
                owner.told_quiet = false;
            }),
            Order::Resume => self.with_owner(|owner| {
                owner.quiesced = None;
                owner.told_quiet = false;
            }),
            Order::Lease { until } => self.with_owner(|owner| owner.lease = until),
            // A size is the real volume's.
            Order::Size(_) => {}
            Order::Proven => self.with_owner(|owner| owner.rewriting = Rewriting::Due),
            // It has no cache.
            Order::HandedOver(_) => {}
            Order::StepDown => self.stopping = true,
        }
        self.progress(now, tier);
    }

    fn with_owner(&mut self, change: impl FnOnce(&mut Owner)) {
        if let Some(owner) = &mut self.owner {
            change(owner);
        }
    }

    fn own_term(&mut self, now: Instant, tier: &mut Tier, own: Own) {
        tier.agreed = true;
        tier.fresh = false;
        tier.watermark = tier.watermark.max(own.watermark.0 as usize);
        let others = own.members.iter().filter(|member| member.node != self.own.node);
        let fetch = own.fetch.map(|(from, through)| (from, through.0 as usize, now));
        self.owner = Some(Owner {
            term: own.term,
            decided: Sets {
                proposal: 0,
                epoch: own.epoch,
                members: own.members.clone(),
                log: own.log,
                flushed: own.flushed,
            },
            proposed: Vec::new(),
            peers: others.map(|member| (member.node, Peer::new(*member, now))).collect(),
            fetch,
            begun: false,
            tail: 0,
            agreed: false,
            opens_window: own.unfenced.len() < UNFENCED_MAX,
            lease: Instant(0),
            acked: 0,
            flushed: 0,
            under_way: false,
            quiesced: None,
            held_until: now,
            told_quiet: false,
            told_covered: BTreeSet::new(),
            pinned: !own.unfenced.is_empty(),
            rewriting: Rewriting::No,
        });
        if let Some((from, _, _)) = fetch {
            let message = LogMessage::Fetch { from: Lsn(tier.log.len() as u64) };
            self.send(from, message, Vec::new());
        }
    }

    fn decide(&mut self, now: Instant, sets: Sets) {
        let own = self.own.node;
        self.with_owner(|owner| {
            owner.proposed.clear();
            for member in sets.members.iter().filter(|member| member.node != own) {
                owner.peers.entry(member.node).or_insert_with(|| Peer::new(*member, now));
            }
            let before = &owner.decided.members;
            let left_out =
                |peer: &Peer| before.contains(&peer.incarnation) && !sets.members.contains(&peer.incarnation);
            owner.peers.retain(|_, peer| !left_out(peer));
            owner.told_covered.clear();
            owner.decided = sets;
        });
    }

    // --- stream ---

    fn send(&mut self, to: Incarnation, message: LogMessage, numbers: Vec<u64>) {
        let (term, epoch) = match &self.owner {
            Some(owner) => (owner.term, owner.decided.epoch),
            None => (Term(0), Epoch(0)),
        };
        let envelope = Envelope { volume: self.id, term, epoch, from: self.own, to };
        self.asks.push(Ask::Send(envelope, message.into(), numbers));
    }

    fn begin_to(&mut self, now: Instant, tier: &Tier, peer: Incarnation) {
        let Some(owner) = &mut self.owner else { return };
        let tail = Lsn(owner.tail.max(tier.watermark) as u64);
        let committed = Lsn(owner.acked as u64);
        if let Some(peer) = owner.peers.get_mut(&peer.node) {
            peer.sent_at = now;
            peer.open.get_or_insert(now);
        }
        self.send(peer, LogMessage::Begin { tail, committed, whole_from: Lsn(0), mark: mark(tier) }, Vec::new());
    }

    fn append_to(&mut self, now: Instant, tier: &Tier, node: NodeId) {
        let Some(owner) = &mut self.owner else { return };
        let Some(peer) = owner.peers.get_mut(&node) else { return };
        let (from, end, to) = (peer.held.min(tier.log.len()), tier.log.len(), peer.incarnation);
        peer.sent_at = now;
        if peer.held < end {
            peer.open.get_or_insert(now);
        }
        let message = LogMessage::Append {
            from: Lsn(from as u64),
            through: Lsn(end as u64),
            committed: Lsn(owner.acked as u64),
            sync: Lsn(owner.wanted_on_media() as u64),
            records: Vec::new(),
            mark: Some(mark(tier)),
        };
        self.send(to, message, tier.log[from..end].to_vec());
    }

    /// A message that ownership has admitted.
    pub fn receive(
        &mut self,
        now: Instant,
        tier: &mut Tier,
        envelope: &Envelope,
        message: &LogMessage,
        numbers: &[u64],
    ) {
        match message {
            LogMessage::Begin { tail, mark, .. } => self.on_begin(tier, envelope, tail.0 as usize, mark),
            LogMessage::Append { from, mark, sync, committed, .. } => {
                let fetched = self.owner.is_some();
                let committed = committed.0 as usize;
                if fetched {
                    self.on_fetched(tier, envelope, from.0 as usize, numbers, committed);
                } else {
                    self.on_append(tier, envelope, from.0 as usize, numbers, mark.as_ref());
                    if tier.agreed && !self.sealed && tier.seen.0 == envelope.term {
                        tier.committed = tier.committed.max(committed.min(tier.log.len()));
                    }
                    let behind = (tier.synced as u64) < sync.0;
                    if tier.flash && behind && !self.medium_hangs && !self.sealed {
                        tier.synced = tier.log.len();
                    }
                }
            }
            LogMessage::Mark(mark) => tier.watermark = tier.watermark.max(mark.watermark.0 as usize),
            LogMessage::Held(Held { held, synced, .. }) => self.on_held(now, tier, envelope, held.0 as usize, *synced),
            LogMessage::Fetch { from } => self.on_fetch(tier, envelope, from.0 as usize),
            LogMessage::Said { held, .. } => self.on_said(tier, held.0 as usize),
            LogMessage::Ask { .. } | LogMessage::Cached { .. } => unreachable!("this volume has no cache"),
        }
        self.progress(now, tier);
    }

    /// S9, and a learner's beginning (S7).
    fn on_begin(&mut self, tier: &mut Tier, envelope: &Envelope, tail: usize, mark: &Mark) {
        if self.owner.is_some() || tier.seen.0 < envelope.term {
            return;
        }
        let learner = tier.fresh;
        let watermark = mark.watermark.0 as usize;
        if learner {
            tier.log = vec![0; watermark];
            tier.synced = 0;
            tier.fresh = false;
        } else if !tier.agreed && tier.log.len() > tail && tier.committed > tail {
            let (held, mark) = (Lsn(tier.committed as u64), MarkNumber(0));
            return self.reply(tier, envelope, LogMessage::Said { held, mark });
        } else if !tier.agreed && tier.log.len() > tail {
            return self.reply(tier, envelope, Message::Refused { why: Refusal::BeyondTail });
        }
        tier.agreed = true;
        tier.watermark = tier.watermark.max(watermark);
        tier.checkpoint = tier.watermark;
        self.tell_held(tier, envelope);
    }

    /// Takes what goes on from the own log without a gap, and answers how far it is (S3).
    fn on_append(&mut self, tier: &mut Tier, envelope: &Envelope, from: usize, numbers: &[u64], mark: Option<&Mark>) {
        let end = tier.log.len();
        if self.sealed || self.went_back || !tier.agreed || tier.seen.0 < envelope.term || from > end {
            return;
        }
        if from + numbers.len() > end {
            tier.log.extend_from_slice(&numbers[end - from..]);
        }
        if let Some(mark) = mark {
            tier.watermark = tier.watermark.max(mark.watermark.0 as usize);
            tier.checkpoint = tier.watermark;
        }
        if tier.flash && tier.log.len().is_multiple_of(3) && !self.medium_hangs {
            tier.synced = tier.log.len();
        }
        self.tell_held(tier, envelope);
    }

    fn tell_held(&mut self, tier: &Tier, envelope: &Envelope) {
        let end = Lsn(tier.log.len() as u64);
        let held = LogMessage::Held(Held {
            accepted: end,
            held: end,
            synced: tier.flash.then_some(Lsn(tier.synced as u64)),
            mark: MarkNumber(tier.watermark as u64),
            room: Room::default(),
            host: self.host,
        });
        self.reply(tier, envelope, held);
    }

    fn reply(&mut self, tier: &Tier, to: &Envelope, message: impl Into<Message>) {
        let (term, epoch) = tier.seen;
        let envelope = Envelope { volume: self.id, term, epoch, from: self.own, to: to.from };
        self.asks.push(Ask::Send(envelope, message.into(), Vec::new()));
    }

    fn on_fetch(&mut self, tier: &Tier, envelope: &Envelope, from: usize) {
        if from < tier.log.len() && self.owner.is_none() {
            let message = LogMessage::Append {
                from: Lsn(from as u64),
                through: Lsn(tier.log.len() as u64),
                committed: Lsn(tier.committed as u64),
                sync: Lsn(0),
                records: Vec::new(),
                mark: None,
            };
            let (term, epoch) = tier.seen;
            let envelope = Envelope { volume: self.id, term, epoch, from: self.own, to: envelope.from };
            self.asks.push(Ask::Send(envelope, message.into(), tier.log[from..].to_vec()));
        }
    }

    fn on_fetched(&mut self, tier: &mut Tier, envelope: &Envelope, from: usize, numbers: &[u64], committed: usize) {
        let Some(owner) = &mut self.owner else { return };
        let asked = owner.fetch.is_some_and(|(member, _, _)| member == envelope.from);
        if asked && committed > tier.log.len() {
            return self.goes_back();
        }
        if asked && !owner.begun && from == tier.log.len() {
            tier.log.extend_from_slice(numbers);
            owner.fetch = None;
        }
    }

    fn on_held(&mut self, now: Instant, tier: &Tier, envelope: &Envelope, held: usize, synced: Option<Lsn>) {
        let Some(owner) = &mut self.owner else { return };
        let Some(peer) = owner.peers.get_mut(&envelope.from.node) else { return };
        if peer.incarnation != envelope.from || envelope.term != owner.term {
            return;
        }
        if held > tier.log.len() && !self.goes_on_in_former_state {
            return self.goes_back();
        }
        if held > peer.held || !peer.agreed {
            peer.open = Some(now);
            peer.told_failed = false;
        }
        peer.agreed = true;
        peer.held = peer.held.max(held);
        peer.synced = peer.synced.max(synced.map_or(0, |synced| synced.0 as usize));
    }

    /// S10: others have heard more from this node than it has.
    fn on_said(&mut self, tier: &Tier, held: usize) {
        if held > tier.log.len() {
            self.goes_back();
        }
    }

    fn goes_back(&mut self) {
        if !self.went_back && !self.goes_on_in_former_state {
            self.went_back = true;
            self.asks.push(Ask::Report(Report::WentBack, 0));
        }
    }

    /// Peers are told what was heard from them.
    fn say_what_was_heard(&mut self, tier: &Tier) {
        let Some(owner) = &self.owner else { return };
        let recorded = |peer: &Peer| owner.decided.members.contains(&peer.incarnation);
        let by_all = |peer: &Peer| if recorded(peer) { tier.committed } else { 0 };
        let said = |peer: &Peer| (peer.incarnation, if peer.agreed { peer.held } else { 0 }.max(by_all(peer)));
        let said: Vec<(Incarnation, usize)> = owner.peers.values().map(said).collect();
        for (to, held) in said {
            self.send(to, LogMessage::Said { held: Lsn(held as u64), mark: MarkNumber(0) }, Vec::new());
        }
    }

    /// A node did not take what this one sent.
    pub fn refused(&mut self, now: Instant, tier: &mut Tier, from: Incarnation, why: Refusal) {
        if why == Refusal::BeyondTail {
            self.on_refused(from);
        }
        self.progress(now, tier);
    }

    fn on_refused(&mut self, from: Incarnation) {
        let failed = self.owner.as_ref().is_some_and(|owner| {
            owner.peers.get(&from.node).is_some_and(|peer| peer.incarnation == from && !peer.agreed)
        });
        if failed {
            let why = PeerFailure::Refused(Refusal::BeyondTail);
            self.asks.push(Ask::Report(Report::PeerFailed { peer: from, why }, 0));
        }
    }

    // --- time and client ---

    /// Some time has passed: clients write `writes` numbers, the backing takes what may go to it.
    pub fn tick(&mut self, now: Instant, tier: &mut Tier, backing: usize, reached: bool, writes: &[u64]) {
        self.ticks += 1;
        if self.ticks.is_multiple_of(5) && !self.stopping {
            self.say_what_was_heard(tier);
        }
        let went_back = self.went_back;
        let Some(owner) = &mut self.owner else { return };
        if self.stopped {
            return;
        }
        if owner.agreed && owner.quiesced.is_none() && !self.stopping && !self.failed && !went_back {
            tier.log.extend_from_slice(writes);
        }
        if tier.flash && !self.medium_hangs {
            tier.synced = tier.log.len();
        }
        let drains = owner.quiesced.is_none_or(|to| to.is_none()) && !owner.told_quiet && !owner.under_way;
        let may_write = owner.agreed && now < owner.lease && reached && drains && !self.stopping;
        let (rewrites, opens_window) = (owner.rewriting == Rewriting::Due, owner.opens_window);
        let committed = self.committed(tier);
        let through = if rewrites { tier.watermark } else { committed };
        if may_write && (rewrites || (opens_window && through > tier.watermark)) {
            let Some(owner) = &mut self.owner else { return };
            owner.under_way = true;
            if rewrites {
                owner.rewriting = Rewriting::UnderWay;
            }
            let (term, process, host) = (owner.term, self.process, self.host);
            self.asks.push(Ask::Write(BackingWrite { term, through, process, host }));
        }
        self.resend(now, tier);
        self.backing = self.backing.max(backing);
        self.progress(now, tier);
    }

    /// The write that it had under way has ended.
    pub fn written(&mut self, now: Instant, tier: &mut Tier, through: usize, backing: usize) {
        let Some(owner) = &mut self.owner else { return };
        owner.under_way = false;
        if owner.rewriting == Rewriting::UnderWay && !self.stopping {
            owner.rewriting = Rewriting::No;
            (owner.pinned, owner.opens_window) = (false, true);
            self.asks.push(Ask::Report(Report::PinsEnded, 0));
        }
        if !self.stopping {
            tier.watermark = tier.watermark.max(through);
        }
        self.backing = self.backing.max(backing);
        self.progress(now, tier);
    }

    /// The write that it had under way has failed: it is tried again.
    pub fn write_failed(&mut self, now: Instant, tier: &mut Tier) {
        let Some(owner) = &mut self.owner else { return };
        owner.under_way = false;
        if owner.rewriting == Rewriting::UnderWay {
            owner.rewriting = Rewriting::Due;
        }
        self.progress(now, tier);
    }

    /// The log begins anew, and the backing counts as far as this.
    pub fn begin_at(&mut self, backing: usize) {
        self.backing = backing;
    }

    fn resend(&mut self, now: Instant, tier: &Tier) {
        let Some(owner) = &mut self.owner else { return };
        if !owner.begun || self.stopping {
            return;
        }
        let (end, flash, wanted) = (tier.log.len(), tier.flash, owner.wanted_on_media().min(tier.log.len()));
        let mut begin = Vec::new();
        let mut append = Vec::new();
        for peer in owner.peers.values_mut() {
            let open = !peer.agreed || peer.held < end || (flash && peer.synced < wanted);
            if !open {
                peer.open = None;
                continue;
            }
            let since = *peer.open.get_or_insert(now);
            if now - since >= STALL && !peer.told_failed {
                peer.told_failed = true;
                let failed = Report::PeerFailed { peer: peer.incarnation, why: PeerFailure::Stalled };
                self.asks.push(Ask::Report(failed, 0));
            }
            if !peer.agreed && now - peer.sent_at >= RESEND {
                begin.push(peer.incarnation);
            } else if peer.agreed {
                append.push(peer.incarnation.node);
            }
        }
        begin.into_iter().for_each(|peer| self.begin_to(now, tier, peer));
        append.into_iter().for_each(|node| self.append_to(now, tier, node));
    }

    /// What every member of all sets holds (C4).
    fn committed(&self, tier: &Tier) -> usize {
        let Some(owner) = &self.owner else { return 0 };
        let others = owner.sets().flat_map(|sets| &sets.members).filter(|member| member.node != self.own.node);
        let held = |member: &Incarnation| {
            let peer = owner.peers.get(&member.node).filter(|peer| peer.incarnation == *member && peer.agreed);
            peer.map_or(0, |peer| peer.held)
        };
        others.map(held).min().unwrap_or(usize::MAX).min(tier.log.len())
    }

    /// Goes on as far as what is known by now allows.
    fn progress(&mut self, now: Instant, tier: &mut Tier) {
        if self.stopping && !self.stopped && self.owner.as_ref().is_none_or(|owner| !owner.under_way) {
            self.stopped = true;
            self.asks.push(Ask::Report(Report::BackingQuiet, 0));
        }
        if self.stopped || self.stopping || self.failed || self.went_back {
            return;
        }
        self.begin(now, tier);
        let committed = self.committed(tier);
        if self.owner.is_some() {
            tier.committed = tier.committed.max(committed);
        }
        let (own, copies_min) = (self.own.node, self.copies_min);
        let Some(owner) = &mut self.owner else { return };
        let every = |test: &dyn Fn(&Peer) -> bool| {
            let sets = owner.proposed.iter().map(|(sets, _)| sets).chain([&owner.decided]);
            let mut all = sets.flat_map(|sets| &sets.members).filter(|member| member.node != own);
            all.all(|member| owner.peers.get(&member.node).is_some_and(|p| p.incarnation == *member && test(p)))
        };
        if owner.begun && !owner.agreed && every(&|peer| peer.agreed && peer.held >= owner.tail) {
            owner.agreed = true;
            self.asks.push(Ask::Report(Report::Agreed { term: owner.term }, 0));
        }
        if !owner.agreed {
            return;
        }
        let flushed = owner.peers.values().map(|peer| peer.synced).min().unwrap_or(tier.synced).min(tier.synced);
        if self.flush_held && !owner.promises_durable() {
            // The weakest that it may be: everything acknowledged.
            self.asks.push(Ask::Flushed(owner.acked));
        } else if tier.flash
            && flushed > owner.flushed
            && every(&|peer| peer.synced >= flushed)
            && flushed <= owner.acked
        {
            owner.flushed = flushed;
            self.asks.push(Ask::Flushed(flushed));
        }
        // A1: the members of all sets, and the backing as well where the record asks for it or copies are missing.
        let copies = |sets: &Sets| sets.members.len() >= copies_min && sets.log == LogState::Needed;
        let backing_too = !owner.sets().all(copies);
        let ground = if backing_too { committed.min(self.backing) } else { committed };
        for position in owner.acked + 1..=ground {
            self.asks.push(Ask::Acknowledged(position));
        }
        owner.acked = owner.acked.max(ground);
        self.tell_progress(now, tier, committed);
    }

    /// Reports that ownership waits for.
    fn tell_progress(&mut self, now: Instant, tier: &Tier, committed: usize) {
        let Some(owner) = &mut self.owner else { return };
        let known = self.backing;
        // A learner may trail a little when it is proposed (S6).
        let end = tier.log.len();
        for peer in owner.peers.values_mut() {
            let recorded = owner.decided.members.contains(&peer.incarnation);
            if peer.agreed && !recorded && peer.held + 3 >= end && !peer.told_ready {
                peer.told_ready = true;
                self.asks.push(Ask::Report(Report::LearnerReady { peer: peer.incarnation }, 0));
            }
        }
        // As in the real one behind what may have the proposal taken back, by which another gets its place.
        for (sets, on_media) in &owner.proposed {
            let in_backing = sets.log == LogState::Needed || owner.promised() <= known;
            // What a flush was answered for, every member must have on its medium (T10).
            let others = sets.members.iter().filter(|member| member.node != self.own.node);
            let synced = |member: &Incarnation| owner.peers.get(&member.node).map_or(0, |peer| peer.synced);
            let on_media = *on_media.max(&owner.flushed);
            let flushed =
                !tier.flash || (tier.synced >= on_media && others.map(synced).all(|synced| synced >= on_media));
            if committed >= owner.promised() && flushed && in_backing && owner.told_covered.insert(sets.proposal) {
                self.asks.push(Ask::Report(Report::Covered { proposal: sets.proposal }, 0));
            }
        }
        if let Some(to) = owner.quiesced
            && !owner.told_quiet
        {
            let has_all = match to {
                Some(to) => owner.peers.get(&to).is_some_and(|peer| peer.agreed && peer.held >= end),
                None => known >= end && owner.acked >= end,
            };
            if has_all && !owner.under_way {
                owner.told_quiet = true;
                self.asks.push(Ask::Report(Report::Quiet, 0));
            } else if now >= owner.held_until {
                owner.told_quiet = true;
                self.asks.push(Ask::Report(Report::NotQuiet(Unrest::Backing), 0));
            }
        }
    }

    /// T3's end: what was fetched is there, or the one who has it does not answer.
    fn begin(&mut self, now: Instant, tier: &Tier) {
        let Some(owner) = &mut self.owner else { return };
        let fetching = owner.fetch.is_some_and(|(_, through, since)| tier.log.len() < through && now - since < STALL);
        if owner.begun || fetching {
            return;
        }
        owner.begun = true;
        owner.fetch = None;
        owner.tail = tier.log.len();
        let peers: Vec<Incarnation> = owner.peers.values().map(|peer| peer.incarnation).collect();
        peers.into_iter().for_each(|peer| self.begin_to(now, tier, peer));
    }
}

impl Peer {
    fn new(incarnation: Incarnation, now: Instant) -> Peer {
        Peer {
            incarnation,
            agreed: false,
            held: 0,
            synced: 0,
            open: Some(now),
            sent_at: now,
            told_failed: false,
            told_ready: false,
        }
    }
}

fn mark(tier: &Tier) -> Mark {
    Mark { watermark: Lsn(tier.watermark as u64), through: Lsn(tier.watermark as u64), ..Mark::default() }
}
