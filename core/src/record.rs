//! The record's own rules: what a valid one is, and which changes of it there are.
//!
//! Every change is a function from the record as read to the one that is proposed, and makes `(term, epoch)` grow
//! (C1). Whether a change may be proposed now is `ownership`'s decision; how a record looks as text is the coordinator's.

use crate::cluster::*;
use crate::types::*;
use alloc::vec::Vec;

/// Most former owners that a record names (T5): each may have a window under way to the backing.
pub const UNFENCED_MAX: usize = PINS_MAX;

/// Most members that a record names.
pub const MEMBERS_MAX: usize = 16;

impl Record {
    /// A volume that has never been served: any node may open it.
    pub fn of_new_volume(creator: NodeId, size_bytes: u64) -> Record {
        Record {
            term: Term(0),
            epoch: Epoch(0),
            owner: creator,
            host: Host::default(),
            members: Vec::new(),
            log: LogState::Released,
            flushed: Flushed::Unrecorded,
            size_bytes,
            unfenced: Vec::new(),
        }
    }

    /// Whether this can be a record; the text says what is wrong with it.
    pub fn validate(&self) -> Result<(), &'static str> {
        let twice = |at: usize| self.members[..at].iter().any(|other| other.node == self.members[at].node);
        if (0..self.members.len()).any(twice) {
            return Err("a node is named twice as a member");
        }
        if self.members.len() > MEMBERS_MAX {
            return Err("more members than a volume can have");
        }
        if self.members.iter().any(|member| member.tier == 0) {
            return Err("a member is named without a tier");
        }
        if self.log != LogState::Released && self.member(self.owner).is_none() {
            return Err("the owner is no member");
        }
        if self.log == LogState::Released && !self.unfenced.is_empty() {
            return Err("released, while former owners may write to the backing");
        }
        if self.unfenced.len() > UNFENCED_MAX {
            return Err("more unfenced owners than windows can be pinned");
        }
        if self.unfenced.iter().any(|former| former.term >= self.term) {
            return Err("an unfenced owner of this term or a later one");
        }
        if self.unfenced.windows(2).any(|pair| pair[0].term >= pair[1].term) {
            return Err("unfenced owners are not in the order of their terms");
        }
        if !self.size_bytes.is_multiple_of(SECTOR_BYTES) || self.size_bytes > VOLUME_BYTES_MAX {
            return Err("a size that no volume can have");
        }
        Ok(())
    }

    /// What grows with every change.
    pub fn version(&self) -> (Term, Epoch) {
        (self.term, self.epoch)
    }

    /// The incarnation that is recorded of a node.
    pub fn member(&self, node: NodeId) -> Option<Incarnation> {
        self.members.iter().copied().find(|member| member.node == node)
    }

    /// Whether exactly this incarnation is a member.
    pub fn names(&self, incarnation: Incarnation) -> bool {
        self.member(incarnation.node) == Some(incarnation)
    }

    /// A change within the term.
    pub fn changed(&self) -> Record {
        Record { epoch: Epoch(self.epoch.0 + 1), ..self.clone() }
    }

    /// `by` owns a new term (T2). The former owner is no member any more, nor is whoever is `left_out`, and it is
    /// unfenced. One that found the list full has written nothing to the backing before it was shortened (T8), and
    /// need not be named.
    pub fn taken_over(&self, by: Incarnation, host: Host, left_out: impl Fn(NodeId) -> bool) -> Record {
        let stays = |member: &&Incarnation| member.node != self.owner && !left_out(member.node);
        let others = self.members.iter().filter(|member| member.node != by.node).filter(stays).copied();
        let members = core::iter::once(by).chain(others).collect();
        let mut unfenced = self.unfenced.clone();
        if unfenced.len() < UNFENCED_MAX {
            unfenced.push(Unfenced { term: self.term, node: self.owner, host: self.host });
        }
        // As long as the former owner may write to the backing, that alone is no ground for anything (A5).
        let log = match self.log {
            LogState::Through | LogState::Needed => LogState::Needed,
            LogState::Released => LogState::Released,
        };
        Record { members, unfenced, log, ..self.in_new_term(by.node, host) }
    }

    /// A volume that nobody serves, or whose members are all lost, is opened by `by` alone. Of a released one nobody is
    /// left who might write to the backing.
    pub fn opened(&self, by: Incarnation, host: Host, log: LogState) -> Record {
        let opened = match self.log {
            LogState::Released => self.in_new_term(by.node, host),
            LogState::Needed | LogState::Through => self.taken_over(by, host, |_| true),
        };
        Record { members: alloc::vec![by], log, ..opened }
    }

    /// A member owns the next term by the former owner's will, who has nothing under way and stays a member.
    pub fn handed_over(&self, to: NodeId, host: Host) -> Record {
        self.in_new_term(to, host)
    }

    /// The next record of the term, without those members.
    pub fn without(&self, lost: &[NodeId]) -> Record {
        let members = self.members.iter().filter(|member| !lost.contains(&member.node)).copied().collect();
        Record { members, ..self.changed() }
    }

    /// The next record of the term, with that member.
    pub fn with(&self, member: Incarnation) -> Record {
        let others = self.members.iter().filter(|other| other.node != member.node).copied();
        Record { members: others.chain([member]).collect(), ..self.changed() }
    }

    /// Nobody can write to the backing but the owner (T6).
    pub fn fenced(&self) -> Record {
        Record { unfenced: Vec::new(), ..self.changed() }
    }

    /// All who are listed can write no more. Only the last of them stays, and with it the quarantine: so there is room for
    /// the owner of this term, who writes the pinned ranges again, when another takes over (T8).
    pub fn shortened(&self) -> Record {
        let last = self.unfenced.last().copied();
        Record { unfenced: last.into_iter().collect(), ..self.changed() }
    }

    fn in_new_term(&self, owner: NodeId, host: Host) -> Record {
        Record { term: Term(self.term.0 + 1), owner, host, ..self.changed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn incarnation(node: u64) -> Incarnation {
        Incarnation { node: NodeId(node), tier: 100 + node, life: 1 }
    }

    fn host(boot: u8) -> Host {
        Host { machine: [boot; 16], boot: [boot; 16] }
    }

    fn of_three() -> Record {
        let opened = Record::of_new_volume(NodeId(1), 1 << 20).opened(incarnation(1), host(1), LogState::Needed);
        opened.with(incarnation(2)).with(incarnation(3))
    }

    #[test]
    fn every_change_is_valid_and_grows() {
        let record = of_three();
        assert_eq!(record.validate(), Ok(()));
        let changes = [
            record.changed(),
            record.taken_over(incarnation(2), host(2), |_| false),
            record.taken_over(incarnation(1), host(1), |_| false),
            record.opened(incarnation(4), host(4), LogState::Needed),
            record.handed_over(NodeId(3), host(3)),
            record.without(&[NodeId(2), NodeId(3)]),
            record.with(incarnation(4)),
            record.fenced(),
            record.shortened(),
        ];
        for change in changes {
            assert_eq!(change.validate(), Ok(()), "{change:?}");
            assert!(change.version() > record.version(), "{change:?}");
        }
    }

    #[test]
    fn a_take_over_leaves_out_the_former_owner_and_names_it_unfenced() {
        let after = of_three().taken_over(incarnation(2), host(2), |node| node == NodeId(3));
        assert_eq!(after.members, vec![incarnation(2)]);
        assert_eq!(after.unfenced, vec![Unfenced { term: Term(1), node: NodeId(1), host: host(1) }]);
        assert_eq!((after.owner, after.host, after.term), (NodeId(2), host(2), Term(2)));
    }

    #[test]
    fn a_restarted_owner_keeps_the_others_and_is_unfenced_itself() {
        let after = of_three().taken_over(incarnation(1), host(9), |_| false);
        assert_eq!(after.members, vec![incarnation(1), incarnation(2), incarnation(3)]);
        assert_eq!(after.unfenced, vec![Unfenced { term: Term(1), node: NodeId(1), host: host(1) }]);
    }

    #[test]
    fn a_released_volume_is_opened_with_nobody_unfenced() {
        let released = Record { log: LogState::Released, ..of_three().changed() };
        let after = released.opened(incarnation(4), host(4), LogState::Through);
        assert_eq!((after.unfenced, after.members, after.log), (vec![], vec![incarnation(4)], LogState::Through));
    }

    #[test]
    fn a_fifth_owner_is_unfenced_once_the_list_was_shortened() {
        let take_over = |record: &Record| record.taken_over(incarnation(1), host(1), |_| false);
        let terms = |record: &Record| record.unfenced.iter().map(|former| former.term.0).collect::<Vec<_>>();
        let mut record = of_three();
        for _ in 0..UNFENCED_MAX + 2 {
            record = take_over(&record);
            assert_eq!(record.validate(), Ok(()));
        }
        assert_eq!((terms(&record), record.term), (vec![1, 2, 3, 4], Term(7)));
        let shortened = record.shortened();
        assert_eq!((shortened.validate(), terms(&shortened)), (Ok(()), vec![4]));
        assert_eq!(terms(&take_over(&shortened)), [4, 7]);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let good = of_three();
        let former = |term| Unfenced { term: Term(term), node: NodeId(1), host: host(1) };
        let bad = [
            Record { members: vec![incarnation(1), incarnation(1)], ..good.clone() },
            Record { members: vec![incarnation(2)], ..good.clone() },
            Record { members: vec![incarnation(1), Incarnation::none(NodeId(2))], ..good.clone() },
            Record { members: (1..=17).map(incarnation).collect(), ..good.clone() },
            Record { term: Term(9), unfenced: (1..=5).map(former).collect(), ..good.clone() },
            Record { term: Term(9), unfenced: vec![former(2), former(1)], ..good.clone() },
            Record { unfenced: vec![former(1)], ..good.clone() },
            Record { log: LogState::Released, term: Term(9), unfenced: vec![former(1)], ..good.clone() },
            Record { size_bytes: 100, ..good.clone() },
        ];
        for record in bad {
            assert!(record.validate().is_err(), "{record:?}");
        }
    }
}
