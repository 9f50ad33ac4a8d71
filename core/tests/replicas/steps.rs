//! What stories and transcripts are made of: the orders that ownership gives, and what is waited for.

use crate::world::*;
use forebay_core::api::*;
use forebay_core::cluster::*;
use forebay_core::status::Phase;
use forebay_core::types::*;

impl World {
    pub fn own(&self, node: usize) -> Incarnation {
        self.nodes[node].own
    }

    pub fn members(&self, nodes: &[usize]) -> Vec<Incarnation> {
        nodes.iter().map(|&node| self.own(node)).collect()
    }

    /// The first term of the volume, or the first of nodes that have nothing of it.
    pub fn found(&mut self, owner: usize, nodes: &[usize]) {
        let members = self.members(nodes);
        let own = Own {
            term: Term(1),
            epoch: Epoch(1),
            members,
            log: LogState::Needed,
            flushed: Flushed::Unrecorded,
            watermark: Lsn(0),
            fetch: None,
            unfenced: Vec::new(),
            former: None,
        };
        self.owner = owner;
        self.order(owner, Order::Own(own));
        self.order(owner, Order::Lease { until: Instant(u64::MAX) });
        self.hand(owner, Event::BackingReady);
    }

    pub fn until_serving(&mut self) {
        let owner = self.owner;
        self.until("the owner serves", |world| world.status(owner).phase == Phase::Serving);
    }

    pub fn until_answered(&mut self) {
        self.until("all is answered", |world| world.open() == 0);
    }

    pub fn until_clean(&mut self) {
        let owner = self.owner;
        self.until("all is in the backing", |world| world.status(owner).dirty_bytes == 0);
    }

    /// Everything that was acknowledged is what is read, of every block.
    pub fn read_all(&mut self) {
        for block in 0..BLOCKS {
            assert!(self.read(block), "block {block} is free");
        }
        self.until_answered();
    }

    pub fn reported(&self, node: usize, wanted: impl Fn(&Report) -> bool) -> bool {
        self.nodes[node].reports.iter().any(wanted)
    }

    /// Asks everybody whom it needs, and fixes the tail, as ownership does (T2, T3). The former owner can write no more.
    pub fn take_over(&mut self, owner: usize, former: &[usize], term: u32, epoch: u32) {
        self.take_over_from(owner, former, term, epoch, &[]);
    }

    /// The same while the owners of these terms may still write (T5).
    pub fn take_over_from(&mut self, owner: usize, former: &[usize], term: u32, epoch: u32, unfenced: &[u32]) {
        let own = self.seal_all(owner, former, term, epoch);
        self.begin_term(owner, Own { unfenced: unfenced.iter().map(|&term| Term(term)).collect(), ..own });
    }

    /// Seals the former members (T3): what the new owner is to begin with.
    pub fn seal_all(&mut self, owner: usize, former: &[usize], term: u32, epoch: u32) -> Own {
        self.order(owner, Order::Seal);
        let others: Vec<usize> = former.iter().copied().filter(|node| *node != owner).collect();
        for &node in &others {
            self.order(node, Order::Remember { term: Term(term), epoch: Epoch(epoch) });
            self.until("the term is remembered", |world| {
                world.reported(node, |report| matches!(report, Report::Remembered { term: t, .. } if t.0 == term))
            });
        }
        let longest = others.iter().map(|&node| (self.figures(node).held, node)).max();
        let watermarks = former.iter().map(|&node| self.figures(node).mark.watermark);
        let watermark = watermarks.max().expect("the owner is one");
        let fetch = longest.map(|(held, node)| (self.own(node), held));
        Own {
            term: Term(term),
            epoch: Epoch(epoch),
            members: self.members(former),
            log: LogState::Needed,
            flushed: Flushed::Unrecorded,
            watermark,
            fetch: fetch.filter(|(_, held)| *held > self.figures(owner).accepted),
            unfenced: Vec::new(),
            former: None,
        }
    }

    pub fn begin_term(&mut self, owner: usize, own: Own) {
        self.owner = owner;
        self.sessions_end();
        self.order(owner, Order::Own(own));
        self.order(owner, Order::Lease { until: Instant(u64::MAX) });
        self.hand(owner, Event::BackingReady);
    }

    /// Brings another node up to date and makes it a member.
    pub fn learn_member(&mut self, owner: usize, members: &[usize], learner: usize, epoch: u32) {
        let who = self.own(learner);
        self.order(owner, Order::Learn(who));
        self.until("the learner is ready", |world| {
            world.reported(owner, |report| matches!(report, Report::LearnerReady { .. }))
        });
        let epoch = Epoch(epoch);
        let mut members = self.members(members);
        members.push(who);
        self.order(
            owner,
            Order::Propose {
                proposal: epoch.0.into(),
                epoch,
                members: members.clone(),
                log: LogState::Needed,
                flushed: Flushed::Unrecorded,
            },
        );
        self.until("the learner holds all that was acknowledged", |world| {
            world.reported(owner, |report| *report == Report::Covered { proposal: epoch.0.into() })
        });
        self.order(owner, Order::Decide { epoch, members, log: LogState::Needed, flushed: Flushed::Unrecorded });
    }

    /// What an owner has acknowledged, every member holds.
    pub fn check_copies(&self, owner: usize, members: &[usize]) {
        let committed = self.status(owner).committed;
        for &member in members {
            if self.nodes[member].volume.is_some() {
                let held = self.status(member).held;
                assert!(held >= committed, "node {member} holds {held}, committed is {committed}\n{}", self.tell());
            }
        }
    }
}
