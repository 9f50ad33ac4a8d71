//! Who this node is for the volume: alone, a follower, or the owner of a term; and how one becomes the other. Ownership decides
//! ([`Order`]), this carries it out, and keeps what must outlive the process: the highest term and epoch seen (S1, C3).
//!
//! - No message of a lower term than the highest seen is listened to, nor one that is meant for another incarnation
//!   (S1, S2). A higher term is remembered before anything of it is answered.
//! - An owner that hears of a higher term acknowledges nothing more: whoever sends it has been told so by the record.
//!
//! Left to others: the agreement by which a term begins ([`super::agreeing`]), the log itself ([`super::member`], [`super::stream`]), reads without a lease ([`super::read`]).

use super::*;
use crate::cluster::{Epoch, MarkNumber};
use crate::message::{Envelope, LogMessage, Refusal};

impl Volume {
    /// Set-up of a volume that several nodes keep.
    pub(super) fn cluster(&self) -> &ClusterConfig {
        self.config.cluster.as_ref().expect("only a volume of a cluster has peers")
    }

    pub(super) fn own(&self) -> Incarnation {
        self.cluster().own
    }

    /// The other nodes, as an owner sees them: how far each is known to hold the log.
    pub fn peer_positions(&self) -> Vec<(Incarnation, Lsn)> {
        self.replication
            .members
            .peers
            .iter()
            .map(|peer| (peer.who, if peer.agreed { peer.held } else { Lsn(0) }))
            .collect()
    }

    /// Whether the log of each other node is in memory, as far as it has said so in this term.
    pub fn peers_in_memory(&self) -> Vec<(Incarnation, Option<bool>)> {
        self.replication
            .members
            .peers
            .iter()
            .map(|peer| (peer.who, peer.agreed.then_some(peer.synced.is_none())))
            .collect()
    }

    /// What a flush that comes from now on promises (A2).
    pub fn set_flush(&mut self, flush: crate::status::Flush) {
        if let Some(cluster) = &mut self.config.cluster {
            cluster.flush = flush;
            if flush == crate::status::Flush::Destage {
                self.await_backing_for_flushes();
            }
        }
    }

    /// With fewer copies besides the owner's own, the backing must have a write as well from now on (A1).
    pub fn set_min_peers(&mut self, min_peers: u32) {
        if let Some(cluster) = &mut self.config.cluster {
            cluster.min_peers = min_peers;
            self.look_at_copies();
        }
    }

    /// What nodes have told each other.
    pub fn peer_counters(&self) -> PeerCounters {
        self.replication.counters
    }

    /// Where this node stands by its durable checkpoint; none: in an older term.
    pub(super) fn recorded(&self) -> Option<&Standing> {
        self.checkpoints.newest().standing.as_ref().filter(|_| self.checkpoints.newest().term == self.identity.term())
    }

    /// The newest mark of the term in the durable checkpoint.
    pub(super) fn recorded_mark(&self) -> MarkNumber {
        self.recorded().filter(|recorded| recorded.agreed).map_or(MarkNumber(0), |recorded| recorded.mark.number)
    }

    pub(super) fn report(&mut self, report: Report) {
        self.effects.push_back(Effect::Report(report));
    }

    /// How far a volume of a cluster is.
    pub fn figures(&self) -> Figures {
        // A follower says what would be there after its death.
        let standing = match (self.role(), &self.checkpoints.newest().standing) {
            (Role::Follower, Some(recorded)) => recorded,
            (Role::Follower, None) | (Role::Owner | Role::Alone, _) => &self.replication.standing,
        };
        let outlives = if self.role() == Role::Follower { self.outlives() } else { self.positions.held() };
        Figures {
            term: if self.role() == Role::Follower { self.checkpoints.newest().term } else { self.identity.term() },
            epoch: standing.epoch,
            agreed: standing.agreed,
            accepted: self.positions.accepted(),
            held: outlives,
            synced: self.flash.is_some().then_some(self.positions.synced().min(outlives)),
            committed: self.positions.committed(),
            mark: standing.mark.clone(),
            serving: self.role() == Role::Owner && self.phase == Phase::Serving,
            drained: self.role() == Role::Owner
                && self.policy_kept() == Policy::Through
                && self.control.effective == Policy::Through
                && self.replication.standing.mark.pins.is_empty(),
            wants_log: self.role() == Role::Owner && self.wants_log(),
            wants_flushed: self.wants_flushed(),
            tier_failed: self.tier.has_failed(),
        }
    }

    // --- messages ---

    pub(super) fn on_peer(&mut self, envelope: Envelope, message: LogMessage, payload: Vec<Payload>) {
        if !self.listens_to_peers() {
            return self.release_payloads(payload);
        }
        if let LogMessage::Said { held, mark } = message {
            return self.on_said(&envelope, held, mark);
        }
        if let Err(why) = self.listen(&envelope) {
            self.release_payloads(payload);
            return why.into_iter().for_each(|why| self.refuse_peer(envelope.from, why));
        }
        if self.role() == Role::Owner {
            self.on_peer_of_owner(envelope, message, payload);
        } else {
            self.follow(envelope, message, payload);
        }
    }

    /// A refusal is not answered: two nodes would refuse each other for ever.
    pub(super) fn on_refused_by_peer(&mut self, envelope: &Envelope, why: Refusal) {
        let heard = self.listens_to_peers() && self.listen(envelope).is_ok();
        // What is said to an owner, by somebody who may not know that this node is none.
        if heard && self.role() == Role::Owner {
            self.peer_failed(&envelope.from, PeerFailure::Refused(why));
        }
    }

    fn listens_to_peers(&self) -> bool {
        assert_ne!(self.role(), Role::Alone, "only a volume of a cluster has peers");
        let known = matches!(self.phase, Phase::Following | Phase::Agreeing | Phase::Serving | Phase::Stopping);
        known && !self.replication.own_role.is_stepping_down()
    }

    /// Whether a message is listened to; where it is not, what its sender is told, if anything. What it names is seen (C3).
    fn listen(&mut self, envelope: &Envelope) -> Result<(), Option<Refusal>> {
        if self.replication.own_role.went_back() && self.role() == Role::Follower {
            return Err(Some(Refusal::TierFailed));
        }
        if let Some(why) = self.unfit(envelope) {
            return Err(Some(why));
        }
        if envelope.term > self.identity.term() && self.role() == Role::Owner {
            self.outdated(envelope);
            return Err(None);
        }
        self.remember(envelope.term, envelope.epoch);
        Ok(())
    }

    /// Why a message cannot be listened to.
    fn unfit(&self, envelope: &Envelope) -> Option<Refusal> {
        if envelope.volume != *self.identity.volume() {
            return Some(Refusal::UnknownVolume);
        }
        if envelope.to != self.own() && !planted!(self, take_for_others) {
            return Some(Refusal::OtherIncarnation);
        }
        let older = envelope.term < self.identity.term()
            || (envelope.term == self.identity.term() && self.replication.follower.is_sealed());
        (older && !planted!(self, take_older_terms)).then_some(Refusal::OldTerm)
    }

    fn on_peer_of_owner(&mut self, envelope: Envelope, message: LogMessage, payload: Vec<Payload>) {
        match message {
            LogMessage::Held(said) => {
                if let Some(at) = self.replication.members.place_of(&envelope.from) {
                    self.on_held_by_peer(at, said);
                }
            }
            LogMessage::Append { from, through, committed, records, .. } => {
                let (sync, mark) = (Lsn(0), None);
                let append = member::Append { from, through, committed, sync, records, mark, payload };
                return self.take_fetched(&envelope, append);
            }
            LogMessage::Cached { number, kept, records } => {
                return self.on_cached(&envelope.from, predecessor_cache::Answer { number, kept, records, payload });
            }
            // Of this term there is no other owner, and an owner is not sealed. What was said is heard before, whoever this node is.
            LogMessage::Begin { .. }
            | LogMessage::Mark(_)
            | LogMessage::Fetch { .. }
            | LogMessage::Ask { .. }
            | LogMessage::Said { .. } => {}
        }
        self.release_payloads(payload);
    }

    /// Somebody knows of a higher term than the own.
    fn outdated(&mut self, envelope: &Envelope) {
        if self.replication.own_role.outdate() {
            self.report(Report::Outdated { term: envelope.term, epoch: envelope.epoch });
        }
    }

    // --- orders ---

    pub(super) fn on_order(&mut self, order: Order) {
        assert_ne!(self.role(), Role::Alone, "ownership of a volume that one node has to itself is not decided");
        match order {
            Order::Seal => self.replication.follower.seal(true),
            Order::Unseal => self.replication.follower.seal(false),
            Order::Remember { term, epoch } => {
                self.replication.own_role.want_remembered();
                self.remember(term, epoch);
            }
            Order::Own(own) => self.begin_term(own),
            Order::Propose { proposal, members, log, flushed, .. } => self.propose(proposal, members, log, flushed),
            Order::Decide { epoch, members, log, flushed } => self.decide(epoch, &members, log, flushed),
            Order::Learn(who) => {
                let changes = self.replication.members.learn(who);
                self.execute(changes);
            }
            Order::Forget(node) => {
                let changes = self.replication.members.forget(node);
                self.execute(changes);
            }
            Order::Quiesce { to } => self.quiesce(to),
            Order::Resume => self.resume_requests(),
            Order::Lease { until } => {
                self.lease.renew(until, self.now);
                self.lease_is_back();
            }
            Order::Size(bytes) => self.take_size(bytes),
            Order::Proven => self.on_proven(),
            Order::HandedOver(term) => self.note_handed_over(term),
            Order::StepDown => self.step_down(),
        }
    }

    /// A term and epoch were seen: nothing older counts from here on (S1, C3).
    fn remember(&mut self, term: Term, epoch: Epoch) {
        if self.role() == Role::Owner {
            return;
        }
        if term > self.identity.term() {
            self.identity.see(term);
            self.replication.standing.epoch = epoch;
            self.replication.standing.agreed = false;
            self.forget_owner();
            self.checkpoints.want();
        } else if term == self.identity.term() && epoch > self.replication.standing.epoch {
            self.replication.standing.epoch = epoch;
            self.checkpoints.want();
        }
    }

    /// The checkpoint has what ownership asked to be remembered.
    pub(super) fn publish_remembered(&mut self) {
        let same = self.recorded().is_some_and(|recorded| recorded.epoch == self.replication.standing.epoch);
        if same && self.replication.own_role.take_remembered() {
            self.report(Report::Remembered { term: self.identity.term(), epoch: self.replication.standing.epoch });
        }
    }

    fn begin_term(&mut self, own: Own) {
        assert_eq!(self.role(), Role::Follower, "who owns a term already begins no other: it steps down first");
        assert!(own.term >= self.identity.term(), "an owner's term is the highest that was seen");
        self.forget_owner();
        self.replication.own_role.own();
        self.phase = Phase::Agreeing;
        self.identity.see(own.term);
        self.replication.standing.epoch = own.epoch;
        self.replication.standing.agreed = true;
        // What an owner of an earlier process, or of none, was granted is not this one's (L3).
        self.lease.forget();
        self.replication.open_changes.recorded(own.log, own.flushed);
        self.drop_clean_cache();
        // From here on everything is kept for whom the record names.
        let changes = self.replication.members.decide(self.own().node, &own.members);
        let watermark = self
            .replication
            .standing
            .mark
            .watermark
            .max(own.watermark)
            .max(self.positions.durable())
            .min(self.positions.accepted());
        self.learn_watermark(watermark);
        let pins = self.pins_of_new_term(watermark, &own.unfenced);
        self.begin_marks(watermark, pins);
        self.confine_kept(watermark);
        self.journal.resume(self.identity.term());
        self.begin_agreeing(own.fetch, own.watermark);
        self.begin_asking(own.former);
        self.execute(changes);
    }

    fn learn_watermark(&mut self, watermark: Lsn) {
        self.positions.commit(watermark);
        self.keep_whole();
        self.pass_to_durable(watermark);
    }

    /// What was superseded and must still be sent stays, everything else superseded ends (S5).
    pub(super) fn keep_whole(&mut self) {
        let above = match self.role() {
            Role::Alone => return,
            Role::Follower => self.positions.committed(),
            Role::Owner => self.replication.members.whole_above(self.positions.committed()),
        };
        let above = if planted!(self, free_uncommitted) { Lsn(u64::MAX) } else { above };
        self.index.keep_above(above);
        self.recorder.counters.superseded_blocks += self.free_ended();
    }

    /// Admission: every member's tier has room for it, and its window (S8).
    pub(super) fn peers_have_room(&self, blocks: u64, others: u32) -> bool {
        let Some(cluster) = &self.config.cluster else { return true };
        self.replication.members.have_room(
            self.positions.accepted(),
            blocks,
            others,
            cluster.peer_window_bytes_max / BLOCK_BYTES,
        )
    }

    /// Cached content is valid for one ownership only: what is clean may have been written by another since.
    fn drop_clean_cache(&mut self) {
        for block in self.pool.cached_blocks() {
            if self.index.is_clean(block) {
                self.pool.uncache(block);
            }
        }
    }

    /// An owner with other members answers nothing more, and one of them takes over; alone it does what a single node does.
    pub(super) fn report_tier_failed(&mut self) {
        if self.role() == Role::Alone {
            return;
        }
        if !self.replication.members.is_alone() {
            self.replication.own_role.outdate();
        }
        self.report(Report::TierFailed { answers: !self.replication.own_role.is_outdated() });
    }

    // --- stepping down ---

    /// Nothing is answered from here on, and nothing begun (T9). Nor is anything counted as committed, or told as a
    /// watermark, because nobody is asked any more: the next owner believes what this tier says of its mark (T3, D7).
    fn step_down(&mut self) {
        self.replication.own_role.step_down();
        self.lease.end(self.now);
        for peer in self.replication.members.clear().gone {
            self.close_stream(peer.stream);
        }
        self.forget_owner();
        if planted!(self, commit_alone_at_the_end) {
            self.commit();
        }
    }

    /// Stops when the last write under way has ended, and whatever else changes the tier or makes it durable: the tier is opened
    /// anew after that, by a process that asks nothing of what this one had under way.
    pub(super) fn go_on_stepping_down(&mut self) {
        let tier_rests = if planted!(self, rests_but_for_batches) {
            self.flash.as_ref().is_none_or(|flash| flash.flying.is_empty())
        } else {
            !self.operations.change_tier()
        };
        let rests = self.backing_rests() && !self.journal_is_writing() && tier_rests && !self.checkpoints.is_busy();
        if rests {
            self.phase = Phase::Stopped;
            self.report(Report::BackingQuiet);
        }
    }
}
