//! What ownership changes while a node owns the volume: the sets of members, proposed and decided, and the pause before
//! the volume changes hands.
//!
//! - A proposal is *covered* when all that has been acknowledged is held by everybody whom it names, and, where its log is
//!   not needed, the backing has synced it. So it stays, because from the proposal on everybody is asked (C4, S6).
//! - A volume that is *quiescing* takes requests and carries none out, not those either that wait for room by then; it is
//!   quiet when nothing is under way and nothing is left to be done for whoever is next.

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

/// The volume is about to change hands.
#[derive(Clone, Copy, Debug)]
struct Quiescing {
    /// To this member; to nobody: the log is emptied.
    to: Option<NodeId>,
    quiet_told: bool,
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
        self.replication.open_changes.quiescing = Some(Quiescing { to, quiet_told: false });
        self.close_group();
    }

    pub(super) fn resume_requests(&mut self) {
        if let Some(Quiescing { to, .. }) = self.replication.open_changes.quiescing.take() {
            self.replication.open_changes.unrest = self.unrest(to);
        }
        self.resume_early_requests();
    }

    pub(super) fn is_quiescing(&self) -> bool {
        self.replication.open_changes.quiescing.is_some()
    }

    /// Nothing new goes to the backing but what is waited for: the next owner has all of it.
    pub(super) fn is_quiescing_to_member(&self) -> bool {
        self.replication.open_changes.quiescing.is_some_and(|quiescing| quiescing.to.is_some())
    }

    pub(super) fn publish_quiet(&mut self) {
        let Some(Quiescing { to, quiet_told: false }) = self.replication.open_changes.quiescing else { return };
        match self.unrest(to) {
            None => {}
            Some(Unrest::Journal) => {
                // It is erased when nothing else is left.
                self.journal_is_erased();
                return;
            }
            Some(_) => return,
        }
        self.replication.open_changes.quiescing = Some(Quiescing { to, quiet_told: true });
        self.report(Report::Quiet);
    }

    /// What keeps it from being quiet for that member, or for nobody; none: it is quiet.
    fn unrest(&self, to: Option<NodeId>) -> Option<Unrest> {
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
