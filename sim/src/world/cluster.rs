//! Several nodes and one volume: what the world keeps beside its nodes, how they start, die and pause, and what goes wrong
//! now and then.
//!
//! Checked: see [`super::replicas`].

use super::*;
use crate::cluster::{Mischief, Planned, Target};
use std::ops::Bound;

/// What nodes share, beside backing and clients.
pub(super) struct Cluster {
    pub(super) setup: ClusterSetup,
    pub(super) links: Links,
    pub(super) coordinator: Coordinator,
    pub(super) terms: Terms,
    /// Tiers and boots that ever were: the numbers that are random elsewhere.
    numbers: u64,
    /// What owners have put into their logs, by position: of each what the owner of the highest term has put there.
    pub(super) log: BTreeMap<u64, (Term, Logged)>,
    /// The first record in which a sector's bytes came into a log, by block, sector and checksum: the write's own. Later
    /// ones may hold them, too, where an edge was merged.
    pub(super) first: BTreeMap<(u64, u32, u32), Lsn>,
    /// When the operator last asked for something.
    pub(super) commanded_at: Instant,
    /// The operator has accepted that what only lost logs had is lost.
    pub(super) loss_accepted: bool,
    /// What the next owner's log lacks.
    pub(super) loss: Option<Loss>,
    /// The backing has failed, and is written again from the last good sync on: what it had completed before may be covered by
    /// older content of the same group until this position is destaged.
    pub(super) backing_behind: Option<Lsn>,
    /// Commands, and whether they were carried out.
    pub(super) answered: BTreeMap<u64, bool>,
    /// Term and node that clients were last served by.
    pub(super) served: Option<(Term, usize)>,
    /// Since when no recorded member has its log any more.
    pub(super) lost_since: Option<Instant>,
}

impl Cluster {
    /// Nodes with empty tiers, the first of them the owner, and as many members as are wanted.
    pub(super) fn new(setup: &ClusterSetup, size_bytes: u64) -> (Cluster, Vec<Node>) {
        let mut nodes = Vec::new();
        for (i, place) in setup.nodes.iter().enumerate() {
            let clock = Clock::new(place.clock_offset, place.clock_fast);
            let mut node = Node::new(place.layout, place.frames, clock);
            node.incarnation = Incarnation { node: name_of(i), tier: i as u64 + 1, life: 0 };
            node.boot = i as u64 + 1;
            nodes.push(node);
        }
        let record = Record::of_new_volume(name_of(0), size_bytes);
        let cluster = Cluster {
            setup: setup.clone(),
            links: Links::default(),
            coordinator: Coordinator::new(record),
            terms: Terms::default(),
            numbers: nodes.len() as u64,
            log: BTreeMap::new(),
            first: BTreeMap::new(),
            commanded_at: Instant(0),
            loss_accepted: false,
            loss: None,
            backing_behind: None,
            answered: BTreeMap::new(),
            served: None,
            lost_since: None,
        };
        (cluster, nodes)
    }

    /// Where the group of a window's last record ends: its rest is pinned with the window (W17).
    pub(super) fn end_of_group(&self, above: Lsn, through: Lsn) -> Lsn {
        let last = self.log.range(above.0 + 1..=through.0).next_back();
        let Some(group) = last.map(|(_, (_, logged))| logged.group) else { return through };
        let rest = self.log.range(through.0 + 1..).take_while(|(_, (_, logged))| logged.group == group);
        rest.last().map_or(through, |(&lsn, _)| Lsn(lsn))
    }

    /// The checksum that the log up to a position gives this sector, if a record above another position says anything of it.
    pub(super) fn newest_sum_of(&self, sector: u64, above: u64, through: Lsn) -> Option<u32> {
        let newer = (Bound::Excluded(above), Bound::Included(through.0));
        self.log.range(newer).rev().find_map(|(_, (_, logged))| logged.sum_of(sector))
    }

    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

impl World {
    pub(super) fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().expect("a world of several nodes")
    }

    pub(super) fn cluster_mut(&mut self) -> &mut Cluster {
        self.cluster.as_mut().expect("a world of several nodes")
    }

    /// All nodes start.
    pub(super) fn start_cluster(&mut self) {
        for i in 0..self.away.len() {
            self.turn_to(i);
            let wait = self.micros(100_000);
            self.schedule(wait, Due::Restart);
        }
        self.schedule_mischief();
    }

    /// T10: no member of the record has what it held, some have what was synced.
    pub(super) fn power_was_cut_everywhere(&self, record: &Record) -> bool {
        let lost_power = |member: &Incarnation| {
            let own = self.node_at(index_of(member.node)).incarnation;
            own.tier != member.tier || own.life > member.life
        };
        let one_left = |member: &Incarnation| self.node_at(index_of(member.node)).incarnation.tier == member.tier;
        record.members.iter().all(lost_power) && record.members.iter().any(one_left)
    }

    /// T10: flushed writes are on the media, so that a volume whose members all lost their power opens by itself.
    pub(super) fn media_have_what_was_flushed(&self, record: &Record) -> bool {
        match record.flushed {
            Flushed::Durable => true,
            Flushed::Held => false,
            Flushed::Unrecorded => self.requested().media,
        }
    }

    /// What this node had is nobody's any more.
    pub(super) fn new_tier(&mut self) {
        let tier = self.cluster_mut().next_number();
        self.node.incarnation = Incarnation { tier, life: 0, ..self.node.incarnation };
        self.node.formatted = false;
        self.node.term = Term(0);
    }

    /// The node's process has died, or all of its host.
    pub(super) fn node_dies(&mut self, crash: Crash, ghosts: Vec<Late>) {
        self.coverage.see(match crash {
            Crash::ProcessKilled => "node killed",
            Crash::PowerLost | Crash::LogsLost => "node lost its power",
        });
        if crash != Crash::ProcessKilled {
            self.node.boot = self.cluster_mut().next_number();
            match self.node.layout.kind {
                TierKind::Memory => self.new_tier(),
                TierKind::Flash if crash == Crash::LogsLost => self.new_tier(),
                TierKind::Flash => {
                    self.node.tier.power_loss(Landing::Random, &mut self.random);
                    // One more than the last start has written down.
                    let before = self.newest_checkpoint(&self.node.tier.current).map(|checkpoint| checkpoint.life);
                    self.node.incarnation.life = before.map_or(0, |life| life + 1);
                }
            }
        }
        self.node.paused_until = None;
        self.node.part = Part::default();
        for late in ghosts {
            if self.random.below(4) > 0 {
                let wait = self.micros(12_000_000);
                self.schedule(wait, Due::Ghost(late));
            }
        }
        self.move_clients_from(self.at);
        let down = self.micros(8_000_000);
        self.schedule(down, Due::Restart);
    }

    fn schedule_mischief(&mut self) {
        let mean = self.cluster().setup.faults.mischief_every;
        if mean > Duration(0) && self.cluster().setup.faults.mischief.iter().any(|&weight| weight > 0) {
            let wait = Duration(self.random.below(2 * mean.0 + 1));
            self.schedule_at(0, wait, Due::Mischief(None));
        }
    }

    /// Something goes wrong: as planned, or as it happens.
    pub(super) fn mischief(&mut self, planned: Option<Planned>) {
        if self.stage != Stage::Work {
            return;
        }
        if let Some(planned) = planned {
            let node = self.whom(planned.whom);
            return self.do_mischief(planned.what, node, self.now + planned.lasts);
        }
        self.schedule_mischief();
        let weights = self.cluster().setup.faults.mischief;
        let mut draw = self.random.below(u64::from(weights.iter().sum::<u32>())) as u32;
        let mut which = 0;
        while draw >= weights[which] {
            draw -= weights[which];
            which += 1;
        }
        let node = self.whom(Target::Anybody);
        let until = self.now + Duration::from_millis(self.random.pick(&[100, 900, 4_000, 15_000]));
        self.do_mischief(Mischief::ALL[which], node, until);
    }

    fn whom(&mut self, target: Target) -> usize {
        let record = &self.cluster().coordinator.record;
        match target {
            Target::Owner => index_of(record.owner),
            Target::Member => {
                let member = record.members.iter().find(|member| member.node != record.owner);
                member.map_or(0, |member| index_of(member.node))
            }
            Target::Node(node) => node,
            Target::Anybody => self.random.below(self.away.len() as u64) as usize,
        }
    }

    fn do_mischief(&mut self, what: Mischief, node: usize, until: Instant) {
        trace!(self, "MISCHIEF {what:?} at n{node} until {until:?}");
        match what {
            Mischief::Kill => self.end_life_of(node, Crash::ProcessKilled),
            Mischief::Power => self.end_life_of(node, Crash::PowerLost),
            Mischief::Destroy => self.end_life_of(node, Crash::LogsLost),
            Mischief::Pause => {
                self.turn_to(node);
                if self.node.volume.is_some() {
                    self.coverage.see("node paused");
                    self.node.paused_until = Some(until);
                }
            }
            Mischief::Cut => {
                let to = self.random.below(self.away.len() as u64) as usize;
                self.coverage.see("link cut one way");
                self.cluster_mut().links.cut(node, to, until);
            }
            Mischief::Crawl => self.cluster_mut().links.crawl(node, until),
            Mischief::Isolate => self.isolate(node, until),
            Mischief::CutOff => {
                self.isolate(node, until);
                self.turn_to(node);
                self.node.coordinator_away_until = until;
            }
            Mischief::Blackout => {
                for node in 0..self.away.len() {
                    self.end_life_of(node, Crash::PowerLost);
                }
            }
            Mischief::HandOver => self.hand_over(),
            Mischief::Revoke => self.revoke_lock(node, until),
            Mischief::Outage => self.cluster_mut().coordinator.away_until = until,
        }
    }

    fn isolate(&mut self, node: usize, until: Instant) {
        self.coverage.see("node isolated");
        for other in 0..self.away.len() {
            self.cluster_mut().links.cut(node, other, until);
            self.cluster_mut().links.cut(other, node, until);
        }
    }

    fn end_life_of(&mut self, node: usize, crash: Crash) {
        self.turn_to(node);
        if self.node.volume.is_some() {
            self.node.paused_until = None;
            self.crash_now(crash);
        }
    }

    /// No more faults.
    pub(super) fn heal_cluster(&mut self) {
        let (now, here) = (self.now, self.at);
        let cluster = self.cluster_mut();
        cluster.links.mend();
        cluster.coordinator.away_until = cluster.coordinator.away_until.min(now);
        for i in 0..self.away.len() {
            self.turn_to(i);
            self.node.paused_until = self.node.paused_until.map(|until| until.min(now));
            self.node.coordinator_away_until = self.node.coordinator_away_until.min(now);
        }
        self.turn_to(here);
    }

    /// The node that serves clients, if one does.
    pub(super) fn serving_node(&self) -> Option<usize> {
        let (term, node) = self.cluster().served?;
        let serves = |node: &Node| node.serving && node.volume.is_some() && node.part.owns == Some(term);
        serves(self.node_at(node)).then_some(node)
    }

    /// The owner of a new term answers. What was open elsewhere is there or not, and is decided by what it reads now.
    pub(super) fn on_owner_serving(&mut self, term: Term) {
        let served = self.cluster().served;
        assert!(served.is_none_or(|(earlier, _)| earlier < term), "term {term} serves after {served:?}");
        // What others had destaged before is theirs to answer for.
        self.node.destaged_seen = self.node.volume.as_ref().expect("it serves").figures().accepted;
        let here = self.at;
        let former = self.cluster_mut().served.replace((term, here));
        let loss = self.cluster_mut().loss.take();
        if loss.is_some() {
            self.cluster_mut().loss_accepted = false;
            self.cluster_mut().backing_behind = None;
        }
        let Some((_, former)) = former else {
            for planned in self.cluster().setup.plan.clone() {
                self.schedule_at(0, planned.at, Due::Mischief(Some(planned)));
            }
            return self.clients_come();
        };
        self.coverage.see(if former == self.at { "owner served again" } else { "take-over served" });
        let now = self.tick();
        let durable = matches!(loss, Some(Loss::Unflushed | Loss::Unsynced));
        match loss {
            None | Some(Loss::Unflushed | Loss::BackingUnflushed | Loss::Logs) => {}
            Some(Loss::Unsynced) => self.oracle.forget_flushes(),
            Some(Loss::Unacknowledged) => self.oracle.forget_unacknowledged(),
        }
        if loss.is_some() {
            // Whoever opens a volume without its log, or with what is left of it, has synced the image before.
            self.backing.sync(self.backing.mark());
            self.backing.durable.clone_from(&self.backing.current);
        }
        if loss == Some(Loss::Logs) {
            self.oracle.all_logs_lost(&self.backing.current, now);
        } else if loss == Some(Loss::BackingUnflushed) {
            self.coverage.see("write-through volume lost its log while the backing failed");
            self.oracle.power_lost(now);
        } else if durable {
            self.coverage.see("flushed writes survived a power cut everywhere");
            self.oracle.power_lost(now);
        } else {
            self.oracle.process_killed(now);
        }
        self.audit = Some(Audit { node: self.at, next: 0, durable, failures: 0, settle: true });
        self.schedule(Duration(0), Due::Audit);
    }

    /// Clients of this node have no connection any more.
    pub(super) fn move_clients_from(&mut self, node: usize) {
        for client in self.clients.iter_mut().filter(|client| client.node == node) {
            client.reconnect(node);
        }
    }

    /// The owner of a new term serves: clients come to it, also from an owner that does not know that it is none; but
    /// for some that have not noticed.
    pub(super) fn clients_come(&mut self) {
        for i in 0..self.clients.len() {
            let old = self.clients[i].node;
            let stays = old != self.at && self.node_at(old).serving && self.random.below(2) == 0;
            if !stays {
                self.clients[i].reconnect(self.at);
            }
        }
        self.wake_clients();
    }
}
