//! Who may serve, played by the rules of docs/protocol.md (C1 to C4, L1 to L3, S7, T1 to T9) as plainly as they can be
//! written down: one step at each beat of a node, nothing optimised. It stands where a daemon has core's ownership, and
//! lets a volume be driven through every change of members and of owner.

use super::*;
use forebay_core::api::Report;

/// How long a member grants a lease, by the owner's clock (L1).
const LEASE: Duration = Duration::from_secs(3);
/// Without a beacon for so long a member asks for ownership (L2).
const GRACE: Duration = Duration::from_secs(5);
/// A sealed member that has not answered for so long is dropped.
const SEAL_PATIENCE: Duration = Duration::from_millis(800);
/// A change that nobody has got ready for in this time is given up.
const COVER_PATIENCE: Duration = Duration::from_secs(2);
/// An undecided transaction is asked about after so long.
const DECISION_PATIENCE: Duration = Duration::from_millis(500);
/// A node that is no member and has heard of nobody for so long makes its tier anew.
const LEARNER_PATIENCE: Duration = Duration::from_secs(3);

/// What ownership knows at a node; it dies with the process.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The record is being read, before the tier is opened.
    pub(super) starting: bool,
    /// The record as last read.
    pub(super) known: Option<Record>,
    /// The volume was told that it owns this term.
    pub(super) owns: Option<Term>,
    pub(super) stepping_down: bool,
    /// The backing refuses it.
    pub(super) fenced: bool,
    /// It has sealed itself and asks, or has asked, for this record.
    sealed: bool,
    /// The last beacon, by the own clock.
    pub(super) heard: Instant,
    /// When something last came for the volume, by the world's.
    pub(super) letter_from_peer: Instant,
    /// The newest beacon that each member has answered.
    granted: BTreeMap<NodeId, Instant>,
    pub(super) lease_until: Instant,
    /// Changes whose outcome is not known, oldest first, and when they were last asked about.
    undecided: Vec<(Record, Record)>,
    asked_at: Instant,
    /// A change that waits until those whom it adds have all that was acknowledged.
    proposed: Option<(Instant, Record, Record)>,
    /// Of a term that was won and is not yet begun: since when, the record before it, and who has been sealed.
    won: Option<(Instant, Record)>,
    seals: BTreeMap<NodeId, (Incarnation, Lsn, Lsn)>,
    /// Who is to be told that a seal is remembered.
    seal_for: Option<Envelope>,
    failed: BTreeSet<Incarnation>,
    ready: BTreeSet<Incarnation>,
    learning: BTreeSet<Incarnation>,
    proven: bool,
    pins_ended: bool,
}

impl World {
    /// What ownership does when nothing happens.
    pub(super) fn beat(&mut self) {
        let wait = Duration::from_millis(self.random.range(100, 300));
        self.schedule(wait, Due::Beat);
        if self.node.part.starting {
            return self.ask_coordinator(Question::Read);
        }
        let Some(volume) = &self.node.volume else { return };
        match volume.status(self.clock()).phase {
            Phase::Recovering | Phase::Stopping | Phase::Stopped | Phase::Refused(_) => return,
            Phase::Following | Phase::Agreeing | Phase::Serving => {}
        }
        if self.node.part.stepping_down {
            return;
        }
        if self.node.part.owns.is_some() {
            self.owner_beats();
        } else if self.node.part.won.is_some() {
            self.seal_members();
        } else if self.node.part.undecided.is_empty() {
            self.follower_beats();
        } else {
            self.ask_about_undecided();
        }
    }

    fn order(&mut self, order: Order) {
        self.hand(Event::Ownership(order));
    }

    fn known(&self) -> Record {
        self.node.part.known.clone().expect("the record was read at the start")
    }

    /// Asks for a change, and remembers that it is undecided (C2).
    fn ask_for(&mut self, compare: Record, new: Record) {
        trace!(self, "asks for {new:?}");
        self.node.part.undecided.push((compare.clone(), new.clone()));
        self.node.part.asked_at = self.now;
        self.ask_coordinator(Question::Change { compare, new });
    }

    fn ask_about_undecided(&mut self) {
        if self.now - self.node.part.asked_at >= DECISION_PATIENCE {
            self.node.part.asked_at = self.now;
            self.ask_coordinator(Question::Read);
        }
    }

    /// The coordinator has answered.
    pub(super) fn verdict_arrives(&mut self, verdict: Verdict) {
        let Verdict { record, won } = verdict;
        if self.node.part.starting {
            return self.open_tier(&record);
        }
        if self.node.volume.is_none() || self.node.part.stepping_down {
            return;
        }
        let known = self.known();
        if (record.term, record.config) < (known.term, known.config) {
            // An answer that was overtaken.
            return;
        }
        self.node.part.known = Some(record.clone());
        let me = self.node.incarnation;
        if let Some(owns) = self.node.part.owns {
            if record.term != owns || record.owner != me.node {
                return self.steps_down();
            }
            return self.decide(&record, won);
        }
        if record.owner == me.node && record.members.contains(&me) && self.node.part.sealed {
            let asked = self.node.part.undecided.iter().find(|(_, new)| *new == record);
            if let Some((before, _)) = asked.cloned() {
                self.coverage.see("take-over won");
                self.node.part.undecided.clear();
                self.node.part.won = Some((self.now, before));
                if self.cluster().setup.fenced_first {
                    self.fence_former_owners(&record);
                }
                return self.seal_members();
            }
        }
        if let Some((compare, new)) = self.node.part.undecided.first().cloned() {
            if record == compare {
                // It may still take effect: the same again decides it.
                self.coverage.see("undecided transaction asked again");
                return self.ask_coordinator(Question::Change { compare, new });
            }
            self.coverage.see("take-over lost to another");
            self.node.part.undecided.clear();
            self.node.part.sealed = false;
            let (term, config) = (record.term, record.config);
            self.order(Order::Remember { term, config });
            self.order(Order::Unseal);
            self.node.part.heard = self.clock();
        } else if record.term > known.term {
            self.node.part.heard = self.clock();
        }
    }

    /// The owner hears of the record of its own term: the oldest undecided change is in it, or is not and may yet be.
    fn decide(&mut self, record: &Record, won: bool) {
        let part = &mut self.node.part;
        let decided = part.undecided.iter().position(|(_, new)| new == record);
        if let Some(i) = decided {
            part.undecided.drain(..=i);
        } else if let Some((compare, new)) = part.undecided.first().cloned()
            && *record == compare
        {
            if won {
                return;
            }
            self.coverage.see("undecided transaction asked again");
            return self.ask_coordinator(Question::Change { compare, new });
        }
        if self.node.part.undecided.is_empty() && decided.is_some() {
            let part = &mut self.node.part;
            part.failed.retain(|failed| record.members.contains(failed));
            part.learning.retain(|learning| !record.members.contains(learning));
            part.ready.clear();
            part.granted.retain(|node, _| record.members.iter().any(|member| member.node == *node));
            if record.unfenced.is_empty() {
                (part.proven, part.pins_ended) = (false, false);
            }
            let decide = Order::Decide { config: record.config, members: record.members.clone(), log: record.log };
            self.coverage.see("change of members decided");
            self.order(decide);
            self.renew_lease();
        }
    }

    fn steps_down(&mut self) {
        self.coverage.see("owner stepped down");
        self.node.part.stepping_down = true;
        self.node.serving = false;
        self.move_clients_from(self.at);
        self.order(Order::StepDown);
    }

    // --- owner ---

    fn owner_beats(&mut self) {
        let beacon = Message::Beacon { sent: self.clock() };
        for member in self.asked_members() {
            self.tell(member, beacon.clone());
        }
        self.renew_lease();
        if self.clock() >= self.node.part.lease_until {
            // Somebody else may own it by now.
            self.ask_coordinator(Question::Read);
        }
        if self.node.part.proposed.is_some() {
            return self.wait_until_covered();
        }
        if !self.node.part.undecided.is_empty() {
            return self.ask_about_undecided();
        }
        self.look_for_learners();
        self.look_for_proof();
        let known = self.known();
        let Some(mut new) = self.wanted_change(&known) else { return };
        new.config = Config(known.config.0 + 1);
        self.order(Order::Propose { config: new.config, members: new.members.clone(), log: new.log });
        let adds = new.members.iter().any(|member| !known.members.contains(member));
        if adds {
            self.node.part.proposed = Some((self.now, known, new));
        } else {
            self.ask_for(known, new);
        }
    }

    /// A proposal that adds a member is sent when that has all that was acknowledged (S6), and given up when it does not
    /// get there.
    fn wait_until_covered(&mut self) {
        let Some((since, known, new)) = self.node.part.proposed.clone() else { return };
        if self.now - since > COVER_PATIENCE {
            self.coverage.see("proposal withdrawn");
            self.node.part.proposed = None;
            self.node.part.ready.retain(|ready| !new.members.contains(ready));
            self.order(Order::Decide { config: known.config, members: known.members, log: known.log });
        }
    }

    /// Who is asked whatever asks for every member: both sets of a change (C4), but for the node itself.
    fn asked_members(&self) -> BTreeSet<Incarnation> {
        let part = &self.node.part;
        let undecided = part.undecided.iter().map(|(_, new)| new);
        let proposed = undecided.chain(part.proposed.as_ref().map(|(_, _, new)| new)).flat_map(|new| &new.members);
        let known = part.known.iter().flat_map(|record| &record.members);
        known.chain(proposed).copied().filter(|member| *member != self.node.incarnation).collect()
    }

    fn renew_lease(&mut self) {
        let part = &self.node.part;
        let oldest = self.asked_members().iter().map(|member| part.granted.get(&member.node).copied()).min();
        let until = match oldest {
            None => Instant(u64::MAX),
            Some(None) => return,
            Some(Some(sent)) => sent + LEASE,
        };
        if until != part.lease_until {
            self.node.part.lease_until = until;
            self.order(Order::Lease { until });
        }
    }

    fn wanted_change(&self, known: &Record) -> Option<Record> {
        let part = &self.node.part;
        let mut new = known.clone();
        new.members.retain(|member| !part.failed.contains(member) || *member == self.node.incarnation);
        if new.members.len() < known.members.len() {
            return Some(new);
        }
        if part.pins_ended && !known.unfenced.is_empty() {
            new.unfenced.clear();
            return Some(new);
        }
        let joins = part.ready.iter().find(|ready| known.members.iter().all(|member| member.node != ready.node))?;
        new.members.push(*joins);
        Some(new)
    }

    /// Nodes that are up and no members are brought up to date, as many as are wanted (S6).
    fn look_for_learners(&mut self) {
        let known = self.known();
        let part = &self.node.part;
        if known.members.len() + part.learning.len() > self.cluster().setup.peers || part.owns.is_none() {
            return;
        }
        let is_free = |node: &Node| {
            let free = |figures: Figures| figures.term == Term(0) && figures.accepted == Lsn(0);
            !node.is_paused(self.now)
                && node.part.owns.is_none()
                && !node.part.starting
                && node.volume.as_ref().is_some_and(|volume| free(volume.figures()))
                && known.members.iter().all(|member| member.node != node.incarnation.node)
                && !part.learning.contains(&node.incarnation)
        };
        let found = self.each_node().find(|(i, node)| *i != self.at && is_free(node)).map(|(_, node)| node.incarnation);
        if let Some(learner) = found {
            self.coverage.see("learner begun");
            self.node.part.learning.insert(learner);
            self.order(Order::Learn(learner));
        }
    }

    /// A proof for every former owner that it writes no more (T6).
    fn look_for_proof(&mut self) {
        let known = self.known();
        if known.unfenced.is_empty() || self.node.part.proven {
            return;
        }
        if self.random.below(4) == 0 {
            self.fence_former_owners(&known);
        }
        if known.unfenced.iter().all(|former| self.writes_no_more(former)) {
            self.coverage.see("former owners proven gone");
            self.node.part.proven = true;
            self.order(Order::Proven);
        }
    }

    // --- follower and candidate ---

    fn follower_beats(&mut self) {
        let known = self.known();
        let me = self.node.incarnation;
        let alone = self.now - self.node.part.letter_from_peer;
        if self.random.below(4) == 0 {
            self.ask_coordinator(Question::Read);
        }
        if self.power_was_cut_everywhere(&known) {
            return self.take_over_after_power_cut(&known);
        }
        if !known.members.contains(&me) {
            let figures = self.node.volume.as_ref().expect("it lives").figures();
            let used = figures.accepted > Lsn(0) || figures.term > Term(0);
            if alone > LEARNER_PATIENCE {
                self.node.part.letter_from_peer = self.now;
                if used && self.node.part.asked_at != self.now {
                    // Asked once more before what it has is thrown away (S7).
                    self.coverage.see("tier of no member made anew");
                    return self.restart_process();
                }
            }
            return;
        }
        let own_restart = known.owner == me.node;
        if own_restart && !std::mem::replace(&mut self.cluster_mut().begun, true) {
            return self.begin_term(known, Lsn(0), None);
        }
        if !own_restart && self.clock() - self.node.part.heard < GRACE {
            return;
        }
        self.ask_for_ownership(&known, known.clone());
    }

    /// T10: when all that are left are there, the first of them asks; the longest tail counts.
    fn take_over_after_power_cut(&mut self, known: &Record) {
        let left = |member: &&Incarnation| self.node_at(index_of(member.node)).incarnation.tier == member.tier;
        let left: Vec<usize> = known.members.iter().filter(left).map(|member| index_of(member.node)).collect();
        let is_up = |volume: &Volume| volume.status(self.now).phase == Phase::Following;
        let all_up = left.iter().all(|&node| self.node_at(node).volume.as_ref().is_some_and(is_up));
        if !all_up || left.first() != Some(&self.at) {
            return;
        }
        let mut with_lives = known.clone();
        with_lives.members = left.iter().map(|&node| self.node_at(node).incarnation).collect();
        self.coverage.see("take-over after a power cut everywhere");
        self.cluster_mut().power_cut = true;
        self.ask_for_ownership(known, with_lives);
    }

    /// T2.
    fn ask_for_ownership(&mut self, known: &Record, mut new: Record) {
        let me = self.node.incarnation;
        new.term = Term(known.term.0 + 1);
        new.config = Config(1);
        (new.owner, new.host) = (me.node, self.host_of(self.at));
        // A fifth opens no window (T5).
        if new.unfenced.len() < PINS_MAX {
            new.unfenced.push(Unfenced { term: known.term, node: known.owner, host: known.host });
        }
        // Those that answered lately, as chance sees it.
        let answered = self.random.below(2) == 0;
        new.members.retain(|member| {
            let node = self.node_at(index_of(member.node));
            *member == me || !answered || (node.volume.is_some() && node.incarnation == *member)
        });
        self.coverage.see("take-over asked for");
        self.node.part.sealed = true;
        self.order(Order::Seal);
        self.ask_for(known.clone(), new);
    }

    /// T3.
    fn seal_members(&mut self) {
        let (since, before) = self.node.part.won.clone().expect("a term was won");
        let record = self.known();
        let me = self.node.incarnation;
        // Under its life of now, where that is another (T10).
        let of_now = |member: &Incarnation| {
            let own = self.node_at(index_of(member.node)).incarnation;
            if record.members.contains(&own) { own } else { *member }
        };
        let asked: Vec<Incarnation> = before.members.iter().map(of_now).filter(|member| *member != me).collect();
        let open: Vec<Incarnation> =
            asked.iter().copied().filter(|member| !self.node.part.seals.contains_key(&member.node)).collect();
        if !open.is_empty() && self.now - since < SEAL_PATIENCE {
            for member in open {
                self.tell(member, Message::Seal);
            }
            return;
        }
        let figures = self.node.volume.as_ref().expect("it lives").figures();
        let seals: Vec<(Incarnation, Lsn, Lsn)> = self.node.part.seals.values().copied().collect();
        let watermark = seals.iter().map(|seal| seal.2).max().unwrap_or_default().max(figures.mark.watermark);
        let longest = seals.iter().max_by_key(|seal| seal.1).filter(|seal| seal.1 > figures.held);
        let fetch = longest.map(|&(member, held, _)| (member, held));
        if fetch.is_some() {
            self.coverage.see("longer tail fetched from a member");
        }
        self.node.part.failed.extend(record.members.iter().filter(|member| open.contains(member)));
        self.begin_term(record, watermark, fetch);
    }

    /// The volume is told that it owns the term of this record.
    pub(super) fn begin_term(&mut self, record: Record, watermark: Lsn, fetch: Option<(Incarnation, Lsn)>) {
        let part = &mut self.node.part;
        (part.won, part.sealed, part.owns) = (None, false, Some(record.term));
        part.seals.clear();
        part.known = Some(record.clone());
        let own = Own {
            term: record.term,
            config: record.config,
            members: record.members.clone(),
            log: record.log,
            watermark,
            fetch,
            unfenced: record.unfenced.iter().map(|former| former.term).collect(),
        };
        self.order(Order::Own(own));
        self.schedule(Duration(0), Due::BackingReady);
        self.renew_lease();
    }

    // --- messages and reports ---

    fn tell(&mut self, to: Incarnation, message: Message) {
        let record = self.known();
        let envelope =
            Envelope { volume: VOLUME_UUID, term: record.term, config: record.config, from: self.node.incarnation, to };
        self.post(Letter { envelope, message, blocks: Vec::new() });
    }

    pub(super) fn letter_for_ownership(&mut self, letter: &Letter) {
        let envelope = letter.envelope;
        if envelope.to != self.node.incarnation || self.node.part.starting || self.node.part.stepping_down {
            return;
        }
        let term = self.node.volume.as_ref().expect("it lives").figures().term;
        match letter.message {
            Message::Beacon { sent } => {
                if envelope.term == term && !self.node.part.sealed && self.node.part.owns.is_none() {
                    self.node.part.heard = self.clock();
                    self.answer(envelope, Message::Granted { sent });
                } else if envelope.term > term {
                    self.order(Order::Remember { term: envelope.term, config: envelope.config });
                    self.ask_coordinator(Question::Read);
                }
            }
            Message::Granted { sent } => {
                if self.node.part.owns == Some(envelope.term) {
                    let newest = self.node.part.granted.entry(envelope.from.node).or_default();
                    *newest = sent.max(*newest);
                    self.renew_lease();
                }
            }
            Message::Seal => {
                if envelope.term >= term {
                    self.node.part.seal_for = Some(envelope);
                    self.node.part.heard = self.clock();
                    self.order(Order::Remember { term: envelope.term, config: envelope.config });
                } else {
                    self.answer(envelope, Message::Refused { why: Refusal::OldTerm });
                }
            }
            Message::Sealed { held, ref mark, .. } => {
                if self.node.part.won.is_some() && self.known().term == envelope.term {
                    let seal = (envelope.from, held, mark.watermark);
                    self.node.part.seals.insert(envelope.from.node, seal);
                    self.seal_members();
                }
            }
            Message::TakeOver | Message::Who { .. } | Message::Here { .. } | Message::Learn { .. } => {}
            Message::Begin { .. }
            | Message::Append { .. }
            | Message::Mark(_)
            | Message::Held { .. }
            | Message::Fetch { .. }
            | Message::Refused { .. } => unreachable!("the volume's"),
        }
    }

    fn answer(&mut self, asked: Envelope, message: Message) {
        let envelope = Envelope { from: self.node.incarnation, to: asked.from, ..asked };
        self.post(Letter { envelope, message, blocks: Vec::new() });
    }

    /// The volume reports.
    pub(super) fn reported(&mut self, report: Report) {
        let is_member = |world: &World, peer: &Incarnation| world.known().members.contains(peer);
        match report {
            Report::Remembered { term, .. } => {
                let Some(asked) = self.node.part.seal_for.filter(|asked| asked.term == term) else { return };
                self.node.part.seal_for = None;
                if self.node.part.owns.is_some() {
                    return;
                }
                let figures = self.node.volume.as_ref().expect("it lives").figures();
                self.coverage.see("member sealed");
                let host = self.host_of(self.at);
                self.answer(asked, Message::Sealed { held: figures.held, mark: figures.mark, host });
            }
            Report::Agreed { .. } => self.coverage.see("term begun by agreement on the tail"),
            Report::PeerFailed { peer, why } => {
                trace!(self, "peer failed: {why:?}");
                if is_member(self, &peer) || self.asked_members().contains(&peer) {
                    self.coverage.see("member failed");
                    self.node.part.failed.insert(peer);
                }
                self.node.part.learning.remove(&peer);
                self.node.part.ready.remove(&peer);
            }
            Report::LearnerReady { peer } => {
                self.coverage.see("learner ready");
                self.node.part.ready.insert(peer);
            }
            Report::Covered { config } => {
                if self.node.part.proposed.as_ref().is_some_and(|(_, _, new)| new.config == config)
                    && let Some((_, known, new)) = self.node.part.proposed.take()
                {
                    self.ask_for(known, new);
                }
            }
            Report::Quiet => {}
            Report::Outdated { .. } => self.ask_coordinator(Question::Read),
            Report::PinsEnded => {
                self.coverage.see("pins ended");
                self.node.part.pins_ended = true;
            }
            Report::TierFailed => {}
            Report::BackingQuiet => self.node.crash = Some(Crash::ProcessKilled),
        }
    }
}
