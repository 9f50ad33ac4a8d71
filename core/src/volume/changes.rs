//! What ownership changes while a node owns the volume: the sets of members, proposed and decided, and the pause before
//! the volume changes hands.
//!
//! - A proposal is *covered* when all that has been acknowledged is held by everybody whom it names, and, where its log is
//!   not needed, the backing has synced it. So it stays, because from the proposal on everybody is asked (C4, S6).
//! - A volume that is to change hands *settles* first: requests are carried out as before, and what was under way when it began
//!   is waited for, while nothing new goes to the backing. When that has ended, requests are *held*: they are taken and none is
//!   carried out, not those either that wait for room by then, so that what came meanwhile ends as well. It is quiet when nothing is
//!   under way and nothing is left to be done for whoever is next. A hold has an end, [`HELD_MAX`], and then nothing comes of it.

use super::members::Changes;
use super::*;
use crate::cluster::{Epoch, Flushed, LogState};
use crate::status::{Flush, Unrest};

/// A change of the record that may take effect.
#[derive(Clone, Debug)]
struct Proposal {
    number: u64,
    members: Vec<Incarnation>,
    log: LogState,
    flushed: Flushed,
    /// Everything acknowledged before it lies at or below this position,
    acknowledged: Lsn,
    /// and everything that a flush has promised to be on the media at or below this one.
    on_media: Lsn,
    covered_told: bool,
}

/// Requests are held for so long at most before the volume is quiet. What takes long was under way before, and that is waited for
/// while clients are served: what takes longer than this has begun to hang meanwhile, and no client is to wait for that.
pub const HELD_MAX: Duration = Duration::from_secs(2);

/// A log that is to be emptied is left with what the backing takes in so long, before requests are held.
const EMPTIED_WITHIN: Duration = Duration::from_secs(1);

/// The volume is about to change hands.
#[derive(Clone, Copy, Debug)]
struct Quiescing {
    /// To this member; to nobody: the log is emptied.
    to: Option<NodeId>,
    stage: QuietStage,
}

#[derive(Clone, Copy, Debug)]
enum QuietStage {
    /// What began until then, and was accepted up to there, comes to its end. Clients are served.
    Settling { since: Instant, accepted: Lsn },
    /// Requests are held.
    Holding { until: Instant },
    /// Requests are held, and it was told that the volume is quiet, or that it is not.
    Told,
}

/// See the module.
pub(super) struct RecordChanges {
    /// The record lets logs alone stand for what is acknowledged (A5).
    log_needed: bool,
    /// What the record says of flushes; no proposal counts here (A2).
    flushed: Flushed,
    proposals: Vec<Proposal>,
    quiescing: Option<Quiescing>,
    /// What kept it from being quiet when it was given up last.
    unrest: Option<Unrest>,
}

impl Default for RecordChanges {
    fn default() -> RecordChanges {
        RecordChanges {
            log_needed: true,
            flushed: Flushed::Unrecorded,
            proposals: Vec::new(),
            quiescing: None,
            unrest: None,
        }
    }
}

impl RecordChanges {
    /// The record says this of logs and flushes.
    pub(super) fn recorded(&mut self, log: LogState, flushed: Flushed) {
        (self.log_needed, self.flushed) = (log == LogState::Needed, flushed);
    }
}

impl Volume {
    pub(super) fn propose(&mut self, number: u64, members: Vec<Incarnation>, log: LogState, flushed: Flushed) {
        let becomes_durable = flushed == Flushed::Durable && self.replication.open_changes.flushed != Flushed::Durable;
        let on_media = match self.flush_is_media() {
            // Flushes were answered for what was only held.
            _ if becomes_durable => self.positions.committed(),
            true => self.positions.synced().min(self.positions.committed()),
            false => Lsn(0),
        };
        if !planted!(self, ask_recorded_only) {
            let changes = self.replication.members.propose(self.own().node, &members);
            self.execute(changes);
        }
        let acknowledged = self.positions.committed();
        let proposal = Proposal { number, members, log, flushed, acknowledged, on_media, covered_told: false };
        self.replication.open_changes.proposals.push(proposal);
        self.look_at_copies();
    }

    pub(super) fn decide(&mut self, epoch: Epoch, members: &[Incarnation], log: LogState, flushed: Flushed) {
        self.replication.open_changes.proposals.clear();
        self.replication.standing.epoch = epoch;
        self.checkpoints.want();
        self.replication.open_changes.recorded(log, flushed);
        let changes = self.replication.members.decide(self.own().node, members);
        self.execute(changes);
    }

    /// Logs alone may stand for what is acknowledged: the record says so, and so does every change of it (A5).
    pub(super) fn log_may_stand(&self) -> bool {
        planted!(self, logs_stand_early)
            || self.replication.open_changes.log_needed
                && self.replication.open_changes.proposals.iter().all(|proposal| proposal.log == LogState::Needed)
    }

    /// The record, or a change of it that is undecided, says that what a flush was answered for is durable: no flush is answered
    /// for less (A2, C4).
    pub(super) fn durable_is_promised(&self) -> bool {
        let proposals = &self.replication.open_changes.proposals;
        let recorded =
            self.replication.open_changes.flushed == Flushed::Durable && !planted!(self, flush_for_less_than_recorded);
        recorded || proposals.iter().any(|proposal| proposal.flushed == Flushed::Durable)
    }

    /// What the record is to say of flushes (A2). A learner counts as well: one in memory may be recorded only when less is
    /// promised, or flushes would have to wait for its medium, which it has not got.
    pub(super) fn wants_flushed(&self) -> Option<Flushed> {
        let flush = self.config.cluster.as_ref()?.flush;
        if self.role() != Role::Owner || self.phase != Phase::Serving {
            return None;
        }
        match flush {
            Flush::Media | Flush::Destage => Some(Flushed::Durable),
            Flush::Replicated => Some(Flushed::Held),
            Flush::Best => {
                let peers = &self.replication.members.peers;
                let in_memory = self.flash.is_none() || peers.iter().any(|peer| peer.agreed && peer.synced.is_none());
                let all_have_said = peers.iter().all(|peer| peer.agreed);
                match in_memory {
                    true => Some(Flushed::Held),
                    false => all_have_said.then_some(Flushed::Durable),
                }
            }
        }
    }

    /// The last position that everybody must have on its medium before what is proposed may be recorded.
    pub(super) fn last_proposed_on_media(&self) -> Lsn {
        let open = self.replication.open_changes.proposals.iter().filter(|proposal| !proposal.covered_told);
        open.map(|proposal| proposal.on_media).max().unwrap_or(Lsn(0))
    }

    /// Tells ownership which proposals are covered.
    pub(super) fn publish_covered(&mut self) {
        let mut told = Vec::new();
        for at in 0..self.replication.open_changes.proposals.len() {
            if !self.replication.open_changes.proposals[at].covered_told
                && self.is_covered(&self.replication.open_changes.proposals[at])
            {
                self.replication.open_changes.proposals[at].covered_told = true;
                told.push(self.replication.open_changes.proposals[at].number);
            }
        }
        for proposal in told {
            self.report(Report::Covered { proposal });
        }
    }

    fn is_covered(&self, proposal: &Proposal) -> bool {
        if planted!(self, cover_at_once) {
            return true;
        }
        let own = self.own().node;
        let newest = self.replication.standing.mark.number;
        let held = proposal.members.iter().filter(|who| who.node != own).all(|who| {
            let peer = self.replication.members.place_of(who).map(|at| &self.replication.members.peers[at]);
            peer.is_some_and(|peer| {
                // Whom the record names already holds it by being asked; who comes has the present mark as well (S6).
                let known =
                    self.replication.members.is_recorded(who) || peer.mark == newest || peer.marked_since_proposal;
                // One in memory changes what a flush promises from now on, one on flash must keep what it has promised.
                let on_media = peer.synced.is_none_or(|synced| synced >= proposal.on_media);
                peer.agreed && peer.held >= proposal.acknowledged && on_media && known
            })
        });
        let written = self.policy_kept() == Policy::Through && self.replication.standing.mark.pins.is_empty();
        let in_backing =
            proposal.log == LogState::Needed || (written && self.backing_has_durably(proposal.acknowledged));
        let own_on_media = self.flash.is_none() || self.positions.synced() >= proposal.on_media;
        held && in_backing && own_on_media
    }

    /// What the backing had completed and then failed to sync is written again from its oldest on, and what was pinned once more
    /// (T6): until that has ended there may be less in it than what was acknowledged because it was there.
    fn backing_has_durably(&self, lsn: Lsn) -> bool {
        self.positions.durable() >= lsn || self.index.is_empty() || planted!(self, through_unsynced)
    }

    // --- quiescing ---

    pub(super) fn quiesce(&mut self, to: Option<NodeId>) {
        let settling = QuietStage::Settling { since: self.now, accepted: self.positions.accepted() };
        self.enter_quiet_stage(to, settling);
        self.close_group();
        if planted!(self, holds_unsettled) {
            self.hold_requests(to);
        }
    }

    pub(super) fn resume_requests(&mut self) {
        if let Some(Quiescing { to, stage }) = self.replication.open_changes.quiescing.take() {
            self.replication.open_changes.unrest = self.unrest(to, stage);
        }
        self.resume_early_requests();
    }

    /// The volume is to change hands, whether or not requests are held for that by now.
    pub(super) fn is_leaving(&self) -> bool {
        self.replication.open_changes.quiescing.is_some()
    }

    /// Requests are held, and none is carried out.
    pub(super) fn is_quiescing(&self) -> bool {
        let quiescing = self.replication.open_changes.quiescing;
        quiescing.is_some_and(|quiescing| !matches!(quiescing.stage, QuietStage::Settling { .. }))
    }

    /// Nothing new goes to the backing but what is waited for: the next owner has all of it.
    pub(super) fn is_leaving_to_member(&self) -> bool {
        self.replication.open_changes.quiescing.is_some_and(|quiescing| quiescing.to.is_some())
    }

    /// The log is being emptied, so that nobody needs it.
    pub(super) fn is_leaving_to_nobody(&self) -> bool {
        self.replication.open_changes.quiescing.is_some_and(|quiescing| quiescing.to.is_none())
    }

    pub(super) fn quiet_timeout(&self) -> Option<Instant> {
        match self.replication.open_changes.quiescing?.stage {
            QuietStage::Holding { until } => Some(until),
            QuietStage::Settling { .. } => self.without_room_until(HELD_MAX).filter(|at| *at > self.now),
            QuietStage::Told => None,
        }
    }

    /// Goes on to hold requests, and to tell whether it is quiet, as far as it has got.
    pub(super) fn settle_quiet(&mut self) {
        let Some(Quiescing { to, stage: settling @ QuietStage::Settling { .. } }) =
            self.replication.open_changes.quiescing
        else {
            return self.publish_quiet();
        };
        match self.unrest(to, settling) {
            None => {
                self.hold_requests(to);
                self.publish_quiet();
            }
            // Destage rests meanwhile, so who waits for room waits for this.
            Some(unrest) if self.without_room_until(HELD_MAX).is_some_and(|at| at <= self.now) => {
                self.enter_quiet_stage(to, QuietStage::Told);
                self.report(Report::NotQuiet(unrest));
            }
            Some(_) => {}
        }
    }

    fn enter_quiet_stage(&mut self, to: Option<NodeId>, stage: QuietStage) {
        self.replication.open_changes.quiescing = Some(Quiescing { to, stage });
    }

    fn hold_requests(&mut self, to: Option<NodeId>) {
        self.enter_quiet_stage(to, QuietStage::Holding { until: self.now + HELD_MAX });
        self.close_group();
        // What waits for its turn is for whoever is next.
        self.retry_failing_reads();
        self.admit_waiting();
        self.settle_prefetches();
        self.destage();
    }

    fn publish_quiet(&mut self) {
        let Some(Quiescing { to, stage: stage @ QuietStage::Holding { until } }) =
            self.replication.open_changes.quiescing
        else {
            return;
        };
        let Some(unrest) = self.unrest(to, stage) else {
            self.enter_quiet_stage(to, QuietStage::Told);
            return self.report(Report::Quiet);
        };
        if self.now >= until && !planted!(self, holds_without_end) {
            self.enter_quiet_stage(to, QuietStage::Told);
            self.report(Report::NotQuiet(unrest));
        } else if unrest == Unrest::Journal {
            // It is erased when nothing else is left.
            self.journal_is_erased();
        }
    }

    /// What keeps it from that stage's end, for that member or for nobody; none: it is there.
    fn unrest(&self, to: Option<NodeId>, stage: QuietStage) -> Option<Unrest> {
        match stage {
            QuietStage::Settling { since, accepted } => self.unsettled(to, since, accepted),
            QuietStage::Holding { .. } | QuietStage::Told => self.under_way(to),
        }
    }

    /// What began until then, and what was accepted up to there, and has not ended. Reads that begin anew, and writes that wait for
    /// room, are for whoever is next; the rest ends by itself when nothing else comes.
    fn unsettled(&self, to: Option<NodeId>, since: Instant, accepted: Lsn) -> Option<Unrest> {
        let has_all = |node| {
            let mut peers = self.replication.members.peers.iter();
            peers.any(|peer| peer.who.node == node && peer.agreed && peer.held >= accepted)
        };
        let in_backing = self.positions.destaged() >= accepted || self.index.is_empty();
        // Where somebody waits for the backing it gets what comes, and is never at rest while clients write.
        let backing_settled = self.backing_quiet() || in_backing && (to.is_none() || self.acks.await_backing());
        if self.reads.wait_since(since) {
            Some(Unrest::Reads)
        } else if self.writes.wait_since(since, |task| self.reads.begin_anew_for(task)) {
            Some(Unrest::Writes)
        } else if self.acks.wait_since(since) {
            Some(Unrest::Answers)
        } else if to.is_some_and(|node| !has_all(node)) {
            Some(Unrest::Member)
        } else if to.is_none() && !(in_backing && self.drains_within(EMPTIED_WITHIN)) {
            Some(Unrest::Records)
        } else if !backing_settled {
            Some(Unrest::Backing)
        } else {
            None
        }
    }

    /// What is in the log goes to the backing in so long, at the speed that was measured.
    fn drains_within(&self, time: Duration) -> bool {
        self.index.is_empty() || self.drain_left().is_some_and(|left| left <= time)
    }

    /// What keeps it from being quiet for that member, or for nobody; none: it is quiet.
    fn under_way(&self, to: Option<NodeId>) -> Option<Unrest> {
        let accepted = self.positions.accepted();
        let has_all = |node| {
            let mut peers = self.replication.members.peers.iter();
            peers.any(|peer| peer.who.node == node && peer.agreed && peer.held == accepted)
        };
        if !self.reads.rest() {
            Some(Unrest::Reads)
        } else if !self.writes.is_empty() {
            Some(Unrest::Writes)
        } else if !self.acks.is_empty() {
            Some(Unrest::Answers)
        } else if to.is_some_and(|node| !has_all(node)) {
            Some(Unrest::Member)
        } else if to.is_none() && !self.index.is_empty() {
            Some(Unrest::Records)
        } else if !self.backing_quiet() {
            Some(Unrest::Backing)
        } else if self.journal_holds_a_batch() {
            Some(Unrest::Journal)
        } else if self.checkpoints.is_busy() {
            Some(Unrest::Checkpoint)
        } else {
            None
        }
    }

    /// What kept it from being quiet when it was to change hands last, and did not.
    pub fn why_not_quiet(&self) -> Option<Unrest> {
        self.replication.open_changes.unrest
    }

    /// Opens and closes streams as the sets say, and looks anew at everything that asks all members.
    pub(super) fn execute(&mut self, changes: Changes) {
        for who in changes.come {
            // From its answer to `Begin` on it is read from where that node is.
            let stream = self.open_stream(self.positions.accepted());
            self.replication.members.join(who, stream);
        }
        for peer in changes.gone {
            self.close_stream(peer.stream);
        }
        self.look_at_copies();
        self.keep_whole();
        self.marks_changed();
        self.commit();
    }
}
