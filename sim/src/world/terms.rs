//! What an owner may do in its term, and what it leaves to the next: judged by the messages and records that the world has
//! carried itself, and not by what ownership says of them.
//!
//! Checked: every recorded member has granted the lease (L1, C4); who takes over names the former owner (T5), and writes
//! nothing where the list has no room for its own term (T8); who hands over, or opens its tier anew, has nothing under way
//! to the backing (T9), and answers nothing more in that term.

use super::*;
use forebay_core::ownership::Timing;
use forebay_core::record::UNFENCED_MAX;

/// What was seen of terms.
#[derive(Default)]
pub(super) struct Terms {
    /// The newest beacon of a term's owner that a node has answered: when it was sent, by the owner's clock.
    granted: BTreeMap<(usize, Term), Instant>,
    /// The members that the record named last in a term.
    members: BTreeMap<Term, Vec<Incarnation>>,
    /// Ended by their owners themselves.
    handed_over: BTreeSet<Term>,
}

impl World {
    /// This node sends something.
    pub(super) fn note_grant(&mut self, letter: &Letter) {
        if let Message::Ownership(OwnershipMessage::Granted { sent }) = letter.message {
            let by = (self.at, letter.envelope.term);
            let known = self.cluster_mut().terms.granted.entry(by).or_insert(sent);
            *known = sent.max(*known);
        }
    }

    /// The record was changed, as this node has asked.
    pub(super) fn note_record(&mut self, before: &Record, after: &Record) {
        let own = name_of(self.at);
        let new_term = after.term > before.term && before.log != LogState::Released;
        let served = self.cluster().served.is_some_and(|(term, _)| term == before.term);
        let continues = after.member(after.owner).is_some_and(|owner| before.members.contains(&owner));
        // One that found no room in the list has written nothing (T8).
        let had_room = before.unfenced.len() < UNFENCED_MAX;
        if new_term && after.owner == own && served && continues && had_room {
            let named = after.unfenced.iter().any(|former| former.term == before.term);
            assert!(named, "{own:?} takes over, and does not say that its predecessor may write on: {after:?}");
        }
        if new_term && before.owner == own && after.owner != own && after.log != LogState::Released {
            self.assert_writes_nothing("hands over");
            self.cluster_mut().terms.handed_over.insert(before.term);
        }
        self.cluster_mut().terms.members.insert(after.term, after.members.clone());
    }

    /// T8: nobody would ask for proof about an owner that finds no room in the list.
    pub(super) fn assert_listed(&self) {
        let Some(cluster) = &self.cluster else { return };
        let record = &cluster.coordinator.record;
        let full = self.node.part.owns == Some(record.term) && record.unfenced.len() >= UNFENCED_MAX;
        assert!(!full, "the backing is written by an owner for whom the list has no room: {record:?}");
    }

    /// Nothing of this node's is under way to the backing.
    pub(super) fn assert_writes_nothing(&self, what: &str) {
        let writes = |op: &&Op| {
            matches!(op.kind, OpKind::BackingWrite { .. } | OpKind::BackingZero { .. } | OpKind::JournalWrite { .. })
        };
        let writes = self.node.ops.values().filter(writes).count();
        assert_eq!(writes, 0, "n{} {what} while it writes to the backing", self.at);
    }

    /// It has not given its term away.
    pub(super) fn assert_not_handed_over(&self, what: &str) {
        let Some(cluster) = &self.cluster else { return };
        let away = self.node.part.owns.filter(|term| cluster.terms.handed_over.contains(term));
        assert!(away.is_none(), "{what} in {away:?}, which n{} has handed over", self.at);
    }

    /// L1: the lease is the earliest of all whom the record names.
    pub(super) fn assert_lease_is_granted(&self, what: &str) {
        let Some(term) = self.node.part.owns else { return };
        let (terms, now, own) = (&self.cluster().terms, self.clock(), name_of(self.at));
        let lease = Timing::default().lease;
        for member in terms.members.get(&term).into_iter().flatten().filter(|member| member.node != own) {
            let sent = terms.granted.get(&(index_of(member.node), term));
            assert!(
                sent.is_some_and(|sent| now < *sent + lease),
                "{what} at {now:?} in {term:?}, and the lease of {member:?} counts from {sent:?}"
            );
        }
    }
}
