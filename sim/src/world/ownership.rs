//! What a daemon does around core's [`Ownership`]: carries its questions to the coordinator, its messages to other nodes and
//! its orders to the volume, tells it what it can see of other nodes, and lets clients in when it says so.
//!
//! Checked: what ownership says of itself ([`Ownership::validate`]), and that a tier which the record names is not made anew.

use super::*;
use forebay_core::api::{PeerFailure, Report};
use forebay_core::ownership::{
    Admission, Candidate, Command, Committed, Effect as Deed, Event as News, Ownership, Proof, Read, Reason as Why,
    Remembered, Requested, State, Timing,
};
use forebay_core::status::Flush;
use forebay_core::volume::KeptCache;

/// A tier that has failed for so long is noticed by the operator.
const OPERATOR_LOOKS: Duration = Duration::from_secs(20);

/// What a process keeps beside the volume; it dies with it.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The volume is opening the tier it had, before anything can be decided.
    pub(super) starting: bool,
    pub(super) ownership: Option<Box<Ownership>>,
    /// The tier is being opened on its order; true: as a new one.
    opening: Option<bool>,
    /// The clean cache of a volume that has handed over, until its tier is open again, and the arena under it.
    kept: Option<(KeptCache, Vec<u8>)>,
    /// The term that the volume was told it owns.
    pub(super) owns: Option<Term>,
    /// Terms whose lock on the image this process has taken.
    locks: BTreeSet<Term>,
    /// The newest change of the record that was asked for.
    commits: Option<(OpId, Record)>,
    /// Clients are let in.
    pub(super) let_in: bool,
    /// The backing refuses it.
    pub(super) fenced: bool,
    pub(super) lease_until: Instant,
    /// When ownership last ended a lease before its time, and until when that would have been.
    pub(super) lease_cut: Option<(Instant, Instant)>,
}

impl Part {
    /// The tier is being opened, and somebody waits to hear that it is.
    pub(super) fn is_opening(&self) -> bool {
        self.starting || self.opening.is_some()
    }

    /// It may write as the owner of this term, or become that.
    pub(super) fn may_write(&self, term: Term) -> bool {
        self.locks.contains(&term) && !self.fenced
    }

    /// It has read of an owner after this term's.
    pub(super) fn knows_of_later(&self, term: Term) -> bool {
        let record = self.ownership.as_ref().and_then(|ownership| ownership.status().record);
        record.is_some_and(|record| record.term > term)
    }

    /// When ownership must be called at the latest, by its own clock.
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.ownership.as_ref().and_then(|ownership| ownership.poll_timeout())
    }
}

impl World {
    pub(super) fn requested(&self) -> Requested {
        let setup = &self.cluster().setup;
        Requested {
            peers: setup.peers as u32,
            min_peers: setup.min_peers,
            through: false,
            tier_bytes: 0,
            // As the product maps what a definition asks for.
            media: setup.flush == Flush::Media,
            flushed_readable: setup.flushed_readable,
        }
    }

    /// The process of this node begins: with the tier that it had, if that can be opened.
    pub(super) fn start_process(&mut self) {
        self.node.part.starting = true;
        if self.node.formatted {
            return self.begin_volume(false);
        }
        // One that was never ready has vouched for nothing.
        (self.node.incarnation.tier, self.node.incarnation.life) = (0, 0);
        self.begin_ownership(Remembered::default());
    }

    fn begin_ownership(&mut self, remembered: Remembered) {
        let setup = forebay_core::ownership::Setup {
            volume: VOLUME_UUID,
            own: self.node.incarnation,
            host: self.host_of(self.at),
            remembered,
            known: self.node.seen.clone(),
            rewinds: self.node.rewinds.clone(),
            fresh: false,
            timing: Timing { kept_out_max: Duration::from_secs(8), ..Timing::default() },
            requested: self.requested(),
            writes_die_with_host: false,
        };
        trace!(self, "ownership begins as {:?}, remembers {remembered:?}", setup.own);
        self.node.part.starting = false;
        let now = self.clock();
        let ownership = Ownership::new(setup, now);
        #[cfg(feature = "mutants")]
        let ownership = {
            let mut ownership = ownership;
            ownership.rules = self.rules_of_ownership;
            ownership
        };
        self.node.part.ownership = Some(Box::new(ownership));
        self.beat();
    }

    /// The volume has read its tier, or made it.
    pub(super) fn tier_is_open(&mut self) {
        let volume = self.node.volume.as_ref().expect("it has opened the tier");
        assert_eq!(volume.life(), self.node.incarnation.life, "the life of {:?}", self.node.incarnation);
        let figures = volume.figures();
        if self.node.part.starting {
            let Figures { term, epoch, agreed, .. } = figures;
            return self.begin_ownership(Remembered { term, epoch, agreed });
        }
        if let Some(fresh) = self.node.part.opening.take() {
            if let Some((kept, arena)) = self.node.part.kept.take()
                && self.node.volume.as_mut().is_some_and(|volume| volume.keep_cache(kept))
            {
                self.node.arena = arena;
                self.coverage.see("cache kept by a former owner");
            }
            let own = self.node.incarnation;
            self.tell(News::TierOpened { own, fresh });
        }
    }

    /// Something happened that ownership must know.
    pub(super) fn tell(&mut self, news: News) {
        let now = self.clock();
        let Some(ownership) = &mut self.node.part.ownership else { return };
        if self.trace {
            eprintln!("{:>12.6} {:>6} n{} => {news:?}", self.now.0 as f64 / 1e9, self.moment, self.at);
        }
        ownership.handle(now, news);
        self.do_deeds();
    }

    /// What ownership asks for, in order.
    fn do_deeds(&mut self) {
        while let Some(deed) = self.node.part.ownership.as_mut().and_then(|ownership| ownership.poll_effect()) {
            trace!(self, "<= {deed:?}");
            digest::ownership_decided(self.now.0, self.at, &deed);
            match deed {
                Deed::Read(op) => self.ask_coordinator(op, Question::Read),
                Deed::RewindNoticed { .. } => {
                    let id = RewindId::drawn(self.random.draw());
                    self.node.rewinds.open(id);
                    self.tell(News::Rewound(id));
                }
                Deed::Rewound(id) => {
                    self.node.rewinds.open(id);
                }
                Deed::RewindSettled(id) => self.node.rewinds.settle(id),
                Deed::Commit { op, compare, new, .. } => {
                    self.node.part.commits = Some((op, new.clone()));
                    if new.owner == self.node.incarnation.node && new.term > compare.term {
                        self.node.part.locks.insert(new.term);
                    }
                    let (compare, new) = (Box::new(compare), Box::new(new));
                    self.ask_coordinator(op, Question::Change { compare, new });
                }
                Deed::Send(envelope, message) => self.post(Letter { envelope, message, blocks: Vec::new() }),
                Deed::Volume(order) => self.carry_order(order),
                Deed::Serve(_) => {
                    self.node.part.let_in = true;
                    self.pump();
                }
                Deed::OpenBacking(term) => self.open_backing(term),
                Deed::UseBacking(term) => self.use_backing(term),
                Deed::EndSessions => self.end_sessions(),
                Deed::OpenTier { format } => self.open_tier(format),
                Deed::Answer(id, result) => self.commanded(id, result),
            }
        }
        if let Some(ownership) = &self.node.part.ownership {
            ownership.validate();
        }
    }

    /// Each term has a byte of its own to lock: nobody is waited for. But the place of the image may be slow, or out of reach.
    fn open_backing(&mut self, term: Term) {
        let mut random = Random::new(self.now.0 ^ u64::from(term.0));
        let slow = if random.chance(150_000) { random.below(4_000_000) } else { 0 };
        let away = random.chance(50_000) || self.now < BEGINNING + self.cluster().setup.image_away;
        let answer = if away { BackingAnswer::Failed } else { BackingAnswer::Opened };
        let slow = Duration::from_micros(slow);
        if slow > Duration(0) || answer == BackingAnswer::Failed {
            self.note_fault_until(self.now + slow, Mended::TakenOver);
        }
        self.schedule(slow, Due::BackingOpened(term, answer));
    }

    fn use_backing(&mut self, term: Term) {
        assert_eq!(self.node.part.owns, Some(term), "the backing of a term that the volume does not own");
        self.node.backing_ready = true;
        self.node.ready_since = self.now;
        if self.volume_is_open() {
            self.hand(Event::BackingReady);
        }
    }

    fn carry_order(&mut self, order: Order) {
        match &order {
            Order::Own(own) => {
                self.assert_watermark_of_all(own.watermark);
                self.own_log_counts(own.term);
                self.node.part.owns = Some(own.term);
                self.node.part.locks.insert(own.term);
                self.node.part.lease_until = Instant(0);
                if own.fetch.is_some() {
                    self.coverage.see("longer tail fetched from a member");
                }
                self.coverage.see("take-over won");
            }
            Order::Lease { until } => {
                if *until < self.node.part.lease_until {
                    self.node.part.lease_cut = Some((self.now, self.node.part.lease_until));
                }
                self.node.part.lease_until = *until;
            }
            Order::Seal => self.coverage.see("take-over asked for"),
            Order::Unseal => self.coverage.see("take-over lost to another"),
            Order::Propose { .. } => self.coverage.see("change of members proposed"),
            Order::Decide { .. } => self.coverage.see("change of members decided"),
            Order::Learn(_) => self.coverage.see("learner begun"),
            Order::HandedOver(_) => self.coverage.see("owner handed over"),
            Order::StepDown => self.coverage.see("owner stepped down"),
            Order::Quiesce { .. } => self.coverage.see("owner made quiet"),
            Order::Proven => self.coverage.see("former owners proven gone"),
            Order::Size(_) => self.coverage.see("record has the new size"),
            Order::Remember { .. } | Order::Forget(_) | Order::Resume => {}
        }
        if self.volume_is_open() {
            self.hand(Event::Ownership(order));
        }
    }

    /// What it was sent by an owner that died before its own tier had it is in the log from now on.
    fn own_log_counts(&mut self, term: Term) {
        let accepted = self.node.volume.as_ref().map_or(Lsn(0), |volume| volume.figures().accepted);
        let cluster = self.cluster.as_mut().expect("a world of several nodes");
        for (&lsn, logged) in self.node.records.range(..=accepted.0) {
            cluster.log.entry(lsn).or_insert_with(|| (term, logged.clone()));
        }
    }

    fn end_sessions(&mut self) {
        self.node.part.let_in = false;
        self.node.serving = false;
        self.move_clients_from(self.at);
    }

    /// The tier is opened anew, and the volume on it as a follower.
    fn open_tier(&mut self, format: bool) {
        self.assert_writes_nothing("opens its tier anew");
        if !format {
            self.assert_tier_rests();
        }
        // What is under way to a frame would come to the follower's.
        let rests = self.node.ops.values().all(|op| matches!(op.kind, OpKind::Send { .. }));
        let volume = self.node.volume.as_ref().filter(|_| rests && !format);
        let kept = volume.and_then(|volume| volume.kept_cache());
        self.node.part.kept = kept.map(|kept| (kept, self.node.arena.clone()));
        let ghosts = self.volume_ends();
        for late in ghosts {
            let wait = self.micros(4_000_000);
            self.schedule(wait, Due::Ghost(late));
        }
        self.node.part.owns = None;
        self.node.part.fenced = false;
        self.node.part.locks.clear();
        self.node.part.opening = Some(format);
        if format {
            self.assert_may_format();
            self.coverage.see("tier made anew");
            self.new_tier();
            self.node.tier = Media::new(self.node.tier.current.len());
        } else if self.node.layout.kind == TierKind::Memory {
            // The backing's lock is awaited before the arena is used.
            self.ghosts_end();
        }
        trace!(self, "tier {:?} is {}", self.node.incarnation, if format { "made" } else { "opened" });
        self.begin_volume(format);
    }

    /// T9: what is under way to a tier could land after the next volume has read it, and a sync of the former one take the error
    /// that the next one's is to be told.
    fn assert_tier_rests(&self) {
        let changes = |op: &Op| matches!(op.kind, OpKind::TierWrite { .. } | OpKind::TierSync { .. });
        assert!(
            !self.node.ops.values().any(changes),
            "the tier is opened anew while its former owner has something under way to it"
        );
    }

    /// S7: what the record names may be all that is left. With `log: through` (A5) nothing depends on it: who opens the volume makes its
    /// tier anew after a read that did not name it, while the dead owner's change that does is still on its way.
    fn assert_may_format(&self) {
        let record = &self.cluster().coordinator.record;
        let own = self.node.incarnation;
        let named = self.node.formatted && record.members.contains(&own) && record.log == LogState::Needed;
        assert!(!named || self.cluster().loss_accepted, "{own:?} is made anew, and the record names it: {record:?}");
    }

    /// Looks around: figures, nodes, proofs.
    pub(super) fn beat(&mut self) {
        let wait = Duration::from_millis(self.random.range(100, 300));
        self.schedule(wait, Due::Beat);
        if self.node.part.ownership.is_none() {
            return;
        }
        let all = self.each_node().map(|(i, node)| Candidate {
            node: name_of(i),
            domain: i as u64,
            free_bytes: 1 << 30,
            load_permille: 0,
            flash: node.layout.kind == TierKind::Flash,
            reaches_backing: true,
            leaving: false,
        });
        let all = all.collect();
        self.tell(News::Candidates(all));
        if let Some(volume) = self.node.volume.as_ref().filter(|_| self.volume_is_open()) {
            let figures = volume.figures();
            self.tell(News::Figures(figures));
        }
        self.look_for_proof();
        self.restart_after_tier_failure();
    }

    /// A tier that has failed is used again by a new process only. The operator starts one where the node follows, or serves alone:
    /// an owner that has other members gives way by itself, and is not helped (T9).
    fn restart_after_tier_failure(&mut self) {
        let Some(ownership) = &self.node.part.ownership else { return };
        let status = ownership.status();
        let failed = status.reason == Why::TierFailed && self.clock() - status.since > OPERATOR_LOOKS;
        let copies = status.record.map_or(0, |record| record.members.len());
        let gives_way = !matches!(status.state, State::Following | State::Learner) && copies > 1;
        if failed && !gives_way {
            self.coverage.see("node started anew after its tier had failed");
            self.crash_now(Crash::ProcessKilled);
        }
    }

    /// The volume can say how far it is.
    pub(super) fn volume_is_open(&self) -> bool {
        let open = |volume: &Volume| {
            !matches!(volume.status(self.clock()).phase, Phase::Recovering | Phase::Stopped | Phase::Refused(_))
        };
        self.node.volume.as_ref().is_some_and(open) && self.node.part.opening.is_none() && !self.node.part.starting
    }

    /// A proof for former owners that they write no more (T6).
    fn look_for_proof(&mut self) {
        let Some(ownership) = &self.node.part.ownership else { return };
        let status = ownership.status();
        let Some(record) = status.record else { return };
        let owner = Unfenced { term: record.term, node: record.owner, host: record.host };
        let mut former = status.unproven;
        if self.node.part.owns.is_none() {
            former.push(owner);
        } else if !record.unfenced.is_empty() {
            let (first, one_in) = (self.cluster().setup.fenced_first, self.cluster().setup.fence_one_in);
            if first || self.random.below(one_in) == 0 {
                self.fence_former_owners(&record);
            }
        }
        for former in former {
            if self.writes_no_more(&former) {
                self.tell(News::Proof(former.term, Proof::LockGone));
            }
        }
    }

    // --- what comes back ---

    /// The coordinator has answered.
    /// What a node is told is in its state folder before it acts on it.
    fn see_record(&mut self, verdict: &Verdict) {
        let record = match verdict {
            Verdict::Read(_, Read::Is(record)) | Verdict::Changed(_, Committed::Lost(record)) => Some(record.clone()),
            Verdict::Changed(op, Committed::Won) => {
                self.node.part.commits.clone().filter(|(of, _)| of == op).map(|(_, new)| new)
            }
            Verdict::Read(_, Read::Absent | Read::Deleted(..) | Read::Failed)
            | Verdict::Changed(_, Committed::Unknown) => None,
        };
        if let Some(record) = record
            && self.node.seen.as_ref().is_none_or(|seen| seen.version() < record.version())
        {
            self.node.seen = Some(record);
        }
    }

    pub(super) fn verdict_arrives(&mut self, verdict: Verdict) {
        self.see_record(&verdict);
        match verdict {
            Verdict::Read(op, read) => self.tell(News::Read(op, read)),
            Verdict::Changed(op, committed) => self.tell(News::Committed(op, committed)),
        }
    }

    /// A message of those that the volume handles; true: it is to have it.
    pub(super) fn admits(&mut self, envelope: &Envelope, message: &LogMessage) -> bool {
        let now = self.clock();
        let Some(ownership) = &mut self.node.part.ownership else { return false };
        let taken = ownership.admit(now, envelope, message) == Admission::Take;
        self.do_deeds();
        taken && self.volume_is_open()
    }

    /// The volume reports.
    pub(super) fn reported(&mut self, report: Report) {
        match &report {
            Report::Remembered { .. } => self.coverage.see("term remembered"),
            Report::Agreed { .. } => self.coverage.see("term begun by agreement on the tail"),
            Report::PeerFailed { why: PeerFailure::Slow, .. } => self.coverage.see("slow peer noticed"),
            Report::PeerFailed { why: PeerFailure::Stalled | PeerFailure::Refused(_), .. } => {
                self.coverage.see("peer failed");
            }
            Report::LearnerReady { .. } => self.coverage.see("learner ready"),
            Report::Covered { .. } => self.coverage.see("proposed members hold what is acknowledged"),
            Report::Quiet => self.coverage.see("owner is quiet"),
            Report::Outdated { .. } => self.coverage.see("owner heard of a higher term"),
            Report::PinsEnded => self.coverage.see("pins ended"),
            Report::NotQuiet(_)
            | Report::TierFailed { .. }
            | Report::WentBack
            | Report::BackingQuiet
            | Report::Grown(_) => {}
        }
        let Some(volume) = &self.node.volume else { return };
        let figures = volume.figures();
        self.tell(News::Volume(report, figures));
    }

    // --- the operator ---

    /// Opens a volume that nobody serves.
    pub(super) fn open_at(&mut self, node: usize, accept_loss: bool) {
        self.command_at(node, Command::Open { accept_loss });
    }

    pub(super) fn command_at(&mut self, node: usize, command: Command) {
        self.turn_to(node);
        self.ask_for(command);
    }

    pub(super) fn ask_for(&mut self, command: Command) {
        let id = self.control_next;
        self.control_next += 1;
        trace!(self, "command {id}: {command:?}");
        self.tell(News::Command(ControlId(id), command));
    }

    fn commanded(&mut self, id: ControlId, result: Result<(), forebay_core::ownership::CommandError>) {
        trace!(self, "command {id}: {result:?}");
        self.cluster_mut().answered.insert(id.0, result.is_ok());
    }

    /// Live migration: a member owns it next.
    pub(super) fn hand_over(&mut self) {
        let Some(owner) = self.serving_node() else { return };
        let record = &self.cluster().coordinator.record;
        let Some(to) = record.members.iter().map(|member| member.node).find(|node| *node != record.owner) else {
            return;
        };
        self.turn_to(owner);
        if !self.node.is_paused(self.now) {
            self.coverage.see("hand-over asked for");
            self.note_fault_until(self.now, Mended::HandedOver);
            self.ask_for(Command::HandOver { to });
        }
    }
}
