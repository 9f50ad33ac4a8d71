//! A node that was put back to an earlier state of itself (S10): its memory by a snapshot, its tier by whatever is below it. Nothing
//! in it can tell; those who have heard it can.
//!
//! - Whoever is told that it has said to hold more than it holds has gone back: what it holds only grows within an incarnation,
//!   so no such word is ever too old to be true. It is judged at the one who has said it, never from what arrives late elsewhere.
//! - An owner has gone back where a member of its own term has more than it, or a later mark: only it could have sent that.
//! - Such a log is whole no more. A follower takes and tells nothing; an owner answers nothing, and another takes over.
//!
//! Left to others: what becomes of the node's part in the volume (ownership).

use super::*;
use crate::cluster::MarkNumber;
use crate::message::{Envelope, LogMessage};

/// An owner tells each peer so often what it has heard from it.
const SAID_EVERY: Duration = Duration::from_millis(500);

impl Volume {
    /// What somebody has heard of this node, itself or by the word of an owner that all members held it.
    pub(super) fn on_said(&mut self, envelope: &Envelope, held: Lsn, mark: MarkNumber) {
        let meant = envelope.volume == *self.identity.volume() && envelope.to == self.own();
        // Marks are of a term; what is held is of the incarnation.
        let follows = self.role() == Role::Follower && envelope.term == self.identity.term();
        let lacks = held > self.positions.held() || (follows && mark > self.recorded_mark());
        if meant && lacks {
            self.goes_back();
        }
    }

    /// S10: what this node has is less than what others rely on.
    pub(super) fn goes_back(&mut self) {
        if !planted!(self, goes_on_in_former_state) && self.replication.own_role.go_back() {
            self.report(Report::WentBack);
        }
    }

    /// Every member held this much when an owner last said so: a member that has less has gone back. Nobody is told before what is
    /// whole here is known.
    pub(super) fn answer_committed(&mut self, to: Incarnation) {
        self.send(to, LogMessage::Said { held: self.positions.committed(), mark: MarkNumber(0) });
    }

    /// All members are known to have held this. Nothing, where that is known of the watermark alone: what the backing has, a member may
    /// have lost with the unsynced end of its log (T10), and needs no more.
    fn known_held(&self) -> Lsn {
        if self.positions.committed() > self.positions.durable() { self.positions.committed() } else { Lsn(0) }
    }

    /// Tells a peer what it has said, now and then.
    pub(super) fn send_what_was_heard(&mut self, at: usize) {
        let peer = &self.replication.members.peers[at];
        if self.now < peer.stream.said_at {
            return;
        }
        let by_itself = if peer.agreed { (peer.held, peer.mark) } else { (Lsn(0), MarkNumber(0)) };
        // What all members hold, each that is recorded has said to hold: to this owner, or to one before it.
        let by_all = if self.replication.members.is_recorded(&peer.who) { self.known_held() } else { Lsn(0) };
        let (to, held, mark) = (peer.who, by_itself.0.max(by_all), by_itself.1);
        self.replication.members.peers[at].stream.said_at = self.now + SAID_EVERY;
        self.send(to, LogMessage::Said { held, mark });
    }
}
