//! The other nodes that keep the log, as its owner sees them: which of them are asked, and how far each has got.
//!
//! Who is asked: the members of the record, and those of every change of it that is proposed and not decided (C4). Learners
//! receive the log and are not asked. A volume that one node has to itself has no peers, and every question here is
//! answered by that node alone.
//!
//! Left to others: what is sent and when ([`super::stream`]), windows and watermarks ([`super::marks`]), what is
//! acknowledged ([`super::acks`]), changes of the record (ownership).

use super::stream::Stream;
use super::*;
use crate::cluster::MarkNumber;
use crate::message::Room;

/// Another node that gets the log: a member or a learner.
pub(super) struct Peer {
    pub(super) who: Incarnation,
    /// The record names it, or a proposed change of it does. Otherwise it is a learner.
    pub(super) named: bool,
    /// It has had the newest mark since it was first named.
    pub(super) marked_since_proposal: bool,
    /// It has answered this term's `Begin`: what it says to hold counts (S9).
    pub(super) agreed: bool,
    pub(super) held: Lsn,
    /// None: its tier is in memory, or it has not said.
    pub(super) synced: Option<Lsn>,
    pub(super) mark: MarkNumber,
    pub(super) room: Room,
    /// A learner: from here on it has missed nothing, and misses nothing (S6). None while it is far behind.
    pub(super) whole_from: Option<Lsn>,
    /// Ownership knows that it may be proposed.
    pub(super) ready_told: bool,
    /// Ownership knows that it is of no use.
    pub(super) failure_told: bool,
    pub(super) stream: Stream,
}

/// See the module.
#[derive(Default)]
pub(super) struct Members {
    pub(super) peers: Vec<Peer>,
    /// The record's set first, then the proposed ones; all without the own node.
    sets: Vec<Vec<Incarnation>>,
    learners: Vec<Incarnation>,
}

/// Who begins and ends by a change of the sets.
#[derive(Default)]
pub(super) struct Changes {
    /// Streams to be opened.
    pub(super) come: Vec<Incarnation>,
    /// Streams to be closed.
    pub(super) gone: Vec<Peer>,
}

impl Members {
    /// The record says so, and nothing is proposed.
    pub(super) fn decide(&mut self, own: NodeId, members: &[Incarnation]) -> Changes {
        self.sets.clear();
        // A learner whose proposal was not to be stays one.
        self.learners.retain(|learner| !members.contains(learner));
        // Whatever was reported, and did not lead to this, is reported again.
        for peer in &mut self.peers {
            (peer.ready_told, peer.failure_told) = (false, false);
        }
        self.propose(own, members)
    }

    /// May become what the record says.
    pub(super) fn propose(&mut self, own: NodeId, members: &[Incarnation]) -> Changes {
        self.sets.push(members.iter().copied().filter(|who| who.node != own).collect());
        self.changes()
    }

    /// A learner comes.
    pub(super) fn learn(&mut self, who: Incarnation) -> Changes {
        if !self.learners.contains(&who) {
            self.learners.push(who);
        }
        self.changes()
    }

    /// A learner goes.
    pub(super) fn forget(&mut self, node: NodeId) -> Changes {
        self.learners.retain(|learner| learner.node != node);
        self.changes()
    }

    /// Members and learners all go: the node is not the owner.
    pub(super) fn clear(&mut self) -> Changes {
        self.sets.clear();
        self.learners.clear();
        self.changes()
    }

    fn changes(&mut self) -> Changes {
        let named = |who: &Incarnation| self.sets.iter().flatten().any(|other| other == who);
        let known = |who: &Incarnation| self.peers.iter().any(|peer| peer.who == *who);
        let mut changes = Changes::default();
        for who in self.sets.iter().flatten().chain(&self.learners) {
            if !known(who) && !changes.come.contains(who) {
                changes.come.push(*who);
            }
        }
        for at in (0..self.peers.len()).rev() {
            let who = self.peers[at].who;
            self.peers[at].named = named(&who);
            if !self.peers[at].named && !self.learners.contains(&who) {
                changes.gone.push(self.peers.swap_remove(at));
            }
        }
        changes
    }

    /// A stream to this node is open.
    pub(super) fn join(&mut self, who: Incarnation, stream: Stream) {
        let named = self.sets.iter().flatten().any(|other| *other == who);
        self.peers.push(Peer {
            who,
            named,
            marked_since_proposal: false,
            agreed: false,
            held: Lsn(0),
            synced: None,
            mark: MarkNumber(0),
            room: Room::default(),
            whole_from: None,
            ready_told: false,
            failure_told: false,
            stream,
        });
    }

    pub(super) fn place_of(&self, who: &Incarnation) -> Option<usize> {
        self.peers.iter().position(|peer| peer.who == *who)
    }

    /// The record names it.
    pub(super) fn is_recorded(&self, who: &Incarnation) -> bool {
        self.sets.first().is_some_and(|set| set.contains(who))
    }

    /// Those whose word is needed.
    pub(super) fn asked(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(|peer| peer.named)
    }

    /// Nobody is asked but the own node.
    pub(super) fn is_alone(&self) -> bool {
        self.sets.iter().all(|set| set.is_empty())
    }

    /// Copies besides the own one that every set names: whom only one of them names is not counted (C4, A4).
    pub(super) fn copies(&self) -> usize {
        let Some((recorded, proposed)) = self.sets.split_first() else { return 0 };
        recorded.iter().filter(|who| proposed.iter().all(|set| set.contains(who))).count()
    }

    /// Everybody who is asked holds everything up to here, as far as is known, the own node up to `own`.
    pub(super) fn held_by_all(&self, own: Lsn) -> Lsn {
        let held = |peer: &Peer| if peer.agreed { peer.held } else { Lsn(0) };
        self.asked().map(held).fold(own, Lsn::min)
    }

    /// The media of everybody who is asked have everything up to here; none: one of them has no medium.
    pub(super) fn synced_by_all(&self, own: Lsn) -> Option<Lsn> {
        self.asked().try_fold(own, |all, peer| {
            let synced = peer.synced.filter(|_| peer.agreed)?;
            Some(all.min(synced))
        })
    }

    /// The newest mark that everybody who is asked has.
    pub(super) fn mark_of_all(&self) -> MarkNumber {
        let mark = |peer: &Peer| if peer.agreed { peer.mark } else { MarkNumber(0) };
        self.asked().map(mark).min().unwrap_or(MarkNumber(u64::MAX))
    }

    /// Superseded records above this are still to be sent to somebody who must miss nothing (S5, S6).
    pub(super) fn whole_above(&self, committed: Lsn) -> Lsn {
        let asked = if self.is_alone() { Lsn(u64::MAX) } else { committed };
        self.peers.iter().filter_map(|peer| Some(peer.whole_from?.max(peer.held))).fold(asked, Lsn::min)
    }

    /// One of those who are asked holds all that there is, and has no room for so many more records.
    pub(super) fn is_full(&self, accepted: Lsn, blocks: u64, others: u32) -> bool {
        let lacks = |room: &Room| u64::from(room.blocks) < blocks || room.ranges < others;
        self.asked().any(|peer| peer.agreed && peer.held == accepted && lacks(&peer.room))
    }

    /// Everybody who is asked has room for so many more records besides what is on its way there, and is not further behind
    /// than `window` records (S8).
    pub(super) fn have_room(&self, accepted: Lsn, blocks: u64, others: u32, window: u64) -> bool {
        self.asked().all(|peer| {
            // Counted by positions, of either kind: never too few.
            let behind = accepted.0 - peer.held.0;
            let ranges = others == 0 || behind + u64::from(others) <= u64::from(peer.room.ranges);
            behind + blocks <= u64::from(peer.room.blocks) && ranges && (behind == 0 || behind + blocks <= window)
        })
    }
}
