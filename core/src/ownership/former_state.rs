//! A node that was put back to an earlier state of itself (S10), as by a virtual machine's memory snapshot: its part in the
//! volume. That its log is shorter than what others have heard from it the volume sees; that its clock is, is seen here.

use super::{Ownership, Role};
use crate::api::Figures;
use crate::cluster::*;
use crate::message::*;
use crate::types::*;

impl Ownership {
    /// This log is whole no more. It is never sealed or owned again: its incarnation ends when the record does not name it and
    /// an owner teaches the node anew (S7).
    pub(super) fn on_former_state(&mut self) {
        if planted!(self, goes_on_in_former_state) {
            return;
        }
        self.went_back = Some(self.own);
        self.tier_failed = true;
        self.counters.former_states += 1;
        match &self.role {
            Role::Owning(owning) => {
                let well = |peer: &&super::own::Peer| !peer.failed && peer.open.is_none();
                let members = || owning.peers.values().filter(|peer| owning.record.names(peer.incarnation));
                let to = members().filter(well).chain(members()).map(|peer| peer.incarnation).next();
                let term = owning.record.term;
                self.retire();
                if let Some(to) = to {
                    self.ask_to_take_over(to, term);
                }
            }
            Role::Asking(_) => self.give_up_asking(),
            Role::Outside(_) | Role::Following(_) | Role::Leaving => {}
        }
    }

    /// What is whole here. A tier that had failed and was opened anew shows less than all members held where its device has forgotten what
    /// it never synced: then another member has that, and this one has gone back.
    pub(super) fn on_figures(&mut self, figures: Figures) {
        let forgot = |held: Lsn| figures.held < held && held > figures.mark.watermark;
        let below = self.reopened_below.take().is_some_and(forgot) && !planted!(self, trusts_reopened_tier);
        self.figures = Some(figures);
        let others = |record: &Record| record.names(self.own) && record.members.len() > 1;
        if below && self.record.as_ref().is_some_and(others) {
            self.on_former_state();
        }
    }

    /// The newest beacon of this owner's term, by its own clock: an owner that hears of one that it has not sent yet has gone back.
    pub(super) fn newest_beacon_of(&mut self, envelope: &Envelope, sent: Instant) -> Instant {
        let known = self.newest_beacon.filter(|(from, term, _)| (*from, *term) == (envelope.from, envelope.term));
        let newest = known.map_or(sent, |(_, _, newest)| newest.max(sent));
        self.newest_beacon = Some((envelope.from, envelope.term, newest));
        newest
    }

    /// All members held this, as far as is known here: whoever of them has less has gone back. Not so where it is the watermark alone
    /// that is known: what the backing has, a member may have lost with the unsynced end of its log (T10), and needs no more.
    pub(super) fn send_committed(&mut self, to: Incarnation) {
        let told = |figures: &Figures| (figures.committed > figures.mark.watermark).then_some(figures.committed);
        let Some(held) = self.figures.as_ref().and_then(told) else { return };
        self.send(to, LogMessage::Said { held, mark: MarkNumber(0) });
    }

    /// Whoever asks what is known here, about to change the record, is told what it has said: as a member how much it held, as an
    /// owner until when it was heard.
    pub(super) fn answer_asker(&mut self, asker: Incarnation) {
        let recorded = |record: &Record| record.names(asker) && record.names(self.own);
        if self.went_back == Some(self.own) || !self.record.as_ref().is_some_and(recorded) {
            return;
        }
        if matches!(self.role, Role::Following(_)) {
            self.send_committed(asker);
        }
        if let Some((owner, term, newest)) = self.newest_beacon
            && owner == asker
            && term == self.seen.0
        {
            self.send(asker, OwnershipMessage::Granted { sent: newest });
        }
    }
}
