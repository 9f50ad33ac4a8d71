//! An owner: its lease (L1), who is left out (A3) and who is learnt (S6), what the record says of the log (A5) and of former
//! owners (T6).

use super::coordinator::Stage;
use super::peers::{Wanted, choose_peers};
use super::take::Sealing;
use super::{Answer, Candidate, CommandError, Effect, Ownership, Requested, Role};
use crate::api::Order;
use crate::cluster::*;
use crate::message::*;
use crate::ownership::commands::{Goal, GoalStage, Guest};
use crate::record::{MEMBERS_MAX, UNFENCED_MAX};
use crate::types::*;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// So many of its former records does an owner know again.
const FORMER_MAX: usize = 32;

/// What an owner knows.
#[derive(Clone, Debug)]
pub(super) struct Owning {
    /// The record, as it was last decided.
    pub(super) record: Record,
    /// Those that were decided before it in this term, the newest last, and no more than [`FORMER_MAX`].
    former: VecDeque<Record>,
    /// Records that were proposed since and are not decided; one, unless the coordinator went back meanwhile.
    pub(super) undecided: Vec<Record>,
    pub(super) phase: Phase,
    /// The members agree on the tail.
    pub(super) agreed: bool,
    pub(super) backing: OwnBacking,
    /// The other members, of all sets, and learners.
    pub(super) peers: BTreeMap<NodeId, Peer>,
    pub(super) learners: BTreeMap<NodeId, Learner>,
    since: Instant,
    /// When the next beacon goes out.
    beacon_at: Instant,
    /// When former owners are asked again where they run (T6).
    ask_hosts_at: Instant,
    /// When others are asked again what they have seen, by an owner to whom nobody else would say it (T9).
    ask_around_at: Instant,
    /// What the volume was told last.
    pub(super) lease_told: Option<Instant>,
    /// The volume was told that all former owners are proven gone.
    proven_told: bool,
    /// The pinned ranges have been written again.
    rewritten: bool,
    /// Peers and backing have room for it.
    pub(super) grown: Option<u64>,
    pub(super) goal: Option<Goal>,
    pub(super) guest: Option<Guest>,
    /// Its tier has failed, and since then it answers nothing: a member that is well is looked for.
    pub(super) silent_since: Option<Instant>,
    /// A change under way leaves this member out because there is one too many, and not because of anything it did.
    surplus: Option<NodeId>,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// The others are sealed (T3).
    Sealing(Sealing),
    /// The members agree on the tail, and the backing is opened (T4).
    Agreeing,
    /// All of the volume but the backing is here.
    Custodian,
    /// Clients are served.
    Serving,
}

/// What an owner knows of the backing in its term (T4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OwnBacking {
    /// The tail is not fixed yet.
    Unasked,
    /// It is being opened; from `until` on it counts as out of reach.
    Awaited {
        /// When that is.
        until: Instant,
    },
    /// It could not be opened.
    Failed {
        /// When it is asked for again.
        again: Instant,
    },
    /// The volume has it.
    Open,
}

#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) incarnation: Incarnation,
    /// The lease that it has granted began then.
    granted: Option<Instant>,
    /// Since when a beacon is not answered.
    pub(super) open: Option<Instant>,
    /// When the last beacon was sent.
    sent: Instant,
    /// It is to be left out.
    pub(super) failed: bool,
}

/// A node that is to become a member.
#[derive(Clone, Debug)]
pub(super) struct Learner {
    /// What it is, once it has said so, and its clock then.
    incarnation: Option<Incarnation>,
    said_at: Instant,
    stage: Teaching,
    /// What was asked before says nothing.
    called: Instant,
    /// When it is asked again, and when it is given up.
    again: Instant,
    until: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Teaching {
    /// It is to make a new tier ready (S7).
    Called,
    /// The volume brings it up to date.
    Learning,
    /// It may be proposed (S6).
    Ready,
}

impl Peer {
    fn new(incarnation: Incarnation, now: Instant) -> Peer {
        Peer { incarnation, granted: None, open: None, sent: now, failed: false }
    }

    /// It has answered the newest beacon.
    pub(super) fn is_well(&self) -> bool {
        !self.failed && self.open.is_none()
    }

    fn is_lost(&self, now: Instant, member_drop: Duration) -> bool {
        self.failed || self.open.is_some_and(|open| now >= open + member_drop)
    }
}

impl Owning {
    pub(super) fn new(record: Record, sealing: Sealing, own: Incarnation, now: Instant) -> Owning {
        let others = record.members.iter().filter(|member| member.node != own.node);
        let peers = others.map(|member| (member.node, Peer::new(*member, now))).collect();
        Owning {
            record,
            former: VecDeque::new(),
            undecided: Vec::new(),
            phase: Phase::Sealing(sealing),
            agreed: false,
            backing: OwnBacking::Unasked,
            peers,
            learners: BTreeMap::new(),
            since: now,
            beacon_at: now,
            ask_hosts_at: now,
            ask_around_at: now,
            lease_told: None,
            proven_told: false,
            rewritten: false,
            grown: None,
            goal: None,
            guest: None,
            silent_since: None,
            surplus: None,
        }
    }

    pub(super) fn serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// The volume is on its way to another owner, or to none.
    pub(super) fn is_leaving(&self) -> bool {
        self.goal.as_ref().is_some_and(|goal| goal.stage == GoalStage::Proposed)
    }

    /// The record, or one that was proposed, under another number.
    pub(super) fn may_be_but_for_config(&self, shown: &Record) -> bool {
        let mut known = core::iter::once(&self.record).chain(&self.undecided);
        known.any(|known| Record { epoch: shown.epoch, ..known.clone() } == *shown)
    }

    /// One of its own of this term, under whatever number: somebody has written it anew.
    pub(super) fn was_but_for_config(&self, shown: &Record) -> bool {
        self.former.iter().any(|former| Record { epoch: shown.epoch, ..former.clone() } == *shown)
    }

    /// Peers that are neither members nor learners any more.
    fn let_go(&mut self) -> Vec<NodeId> {
        let (record, learners) = (&self.record, &self.learners);
        let teaches = |peer: &Peer| {
            learners.get(&peer.incarnation.node).is_some_and(|learner| learner.incarnation == Some(peer.incarnation))
        };
        let stays = |peer: &Peer| record.names(peer.incarnation) || teaches(peer);
        let gone = self.peers.iter().filter(|(_, peer)| !stays(peer)).map(|(node, _)| *node).collect();
        self.peers.retain(|_, peer| stays(peer));
        gone
    }

    /// C4: the other members of every set that the record may have.
    pub(super) fn asked(&self) -> impl Iterator<Item = Incarnation> {
        let all = core::iter::once(&self.record).chain(&self.undecided).flat_map(|record| &record.members);
        let node = self.record.owner;
        all.copied().filter(move |member| member.node != node)
    }
}

impl Ownership {
    pub(super) fn owning_timeout(&self, owning: &Owning) -> Option<Instant> {
        let timing = &self.setup.timing;
        let own_phase = match &owning.phase {
            Phase::Sealing(sealing) => self.sealing_timeout(sealing),
            Phase::Agreeing | Phase::Custodian | Phase::Serving => None,
        };
        let backing = owning.backing.next();
        let beacon = Some(owning.beacon_at).filter(|_| !owning.peers.is_empty());
        let drops = owning.peers.values().filter_map(|peer| Some(peer.open? + timing.member_drop));
        let learners = owning.learners.values().filter(|learner| learner.stage == Teaching::Called);
        let learners = learners.flat_map(|learner| [learner.again, learner.until]);
        let goal = owning.goal.as_ref().map(|goal| goal.until);
        let asks_hosts = owning.serving() && !owning.record.unfenced.is_empty() && !owning.proven_told;
        let hosts = Some(owning.ask_hosts_at).filter(|_| asks_hosts);
        let guest = owning.guest.as_ref().map(|guest| guest.until);
        let silent = owning.silent_since.map(|since| since + self.looks_for_well_member());
        let rest = [
            own_phase,
            backing,
            beacon,
            goal,
            guest,
            hosts,
            silent,
            Some(self.next_look()),
            self.kept_out.next(self.now),
        ];
        rest.into_iter().flatten().chain(drops).chain(learners).filter(|at| *at > self.now).min()
    }

    pub(super) fn settle_owning(&mut self) {
        // Nothing waits for it: it shows a coordinator that went back, and to an owner alone that it is none.
        self.look();
        self.ask_around();
        self.send_beacons();
        self.settle_failed_tier();
        self.settle_sealing();
        self.settle_backing();
        self.settle_custodian();
        self.settle_goal();
        self.settle_guest();
        self.settle_pins();
        self.settle_learners();
        self.recruit();
        self.next_change();
        self.publish_lease();
    }

    /// T9: an owner that is alone hears of its successor by the record, and where the coordinator does not answer by whoever has seen
    /// that: no member refuses its messages, since it has none.
    fn ask_around(&mut self) {
        let (now, look) = (self.now, self.setup.timing.look);
        let away = self.coordinator.away_since.is_some();
        let Role::Owning(owning) = &mut self.role else { return };
        if away && owning.peers.is_empty() && now >= owning.ask_around_at && !planted!(self, alone_asks_nobody) {
            owning.ask_around_at = now + look;
            self.ask_all_what_they_know();
        }
    }

    // --- lease ---

    fn send_beacons(&mut self) {
        let (now, timing) = (self.now, self.setup.timing);
        let Role::Owning(owning) = &mut self.role else { return };
        if now < owning.beacon_at {
            return;
        }
        let mut to = Vec::new();
        for peer in owning.peers.values_mut() {
            peer.sent = now;
            peer.open.get_or_insert(now);
            to.push(peer.incarnation);
        }
        // Soon again, until all have answered.
        owning.beacon_at = now + timing.channel_dead;
        to.into_iter().for_each(|to| self.send(to, OwnershipMessage::Beacon { sent: now }));
    }

    pub(super) fn on_granted(&mut self, from: Incarnation, sent: Instant) {
        if sent > self.now {
            // It was sent by this owner, which does not know it any more (S10). Only who had a part in the volume was sent any.
            if self.has_part(from.node) || planted!(self, grant_from_anybody) {
                self.on_former_state();
            }
            return;
        }
        let (now, timing) = (self.now, self.setup.timing);
        let counts_from = if planted!(self, lease_from_arrival) { now } else { sent };
        let Role::Owning(owning) = &mut self.role else { return };
        let Some(peer) = owning.peers.get_mut(&from.node).filter(|peer| peer.incarnation == from) else { return };
        if sent > peer.sent {
            return;
        }
        peer.granted = peer.granted.max(Some(counts_from));
        peer.open = if sent == peer.sent { None } else { Some(sent.max(peer.open.unwrap_or(sent))) };
        if owning.peers.values().all(|peer| peer.open.is_none()) {
            let newest = owning.peers.values().map(|peer| peer.sent).max().unwrap_or(now);
            owning.beacon_at = newest + timing.beacon;
        }
    }

    /// This node has a part in the volume, and knows this one as a member of it, recorded or proposed, or as one that is to become it. Also
    /// an owner that has stepped down since, and asks to be the next: what it answers for is the same process with the same clock.
    fn has_part(&self, node: NodeId) -> bool {
        let names = |record: &Record| record.member(node).is_some() && record.names(self.own);
        let recorded = self.record.iter().chain(&self.known).any(names);
        match &self.role {
            Role::Owning(owning) => recorded || owning.peers.contains_key(&node),
            _ => recorded && !planted!(self, owners_alone_go_back),
        }
    }

    /// L1, C4: the earliest of what all of both sets have granted. Alone none is needed.
    pub(super) fn lease_until(&self, owning: &Owning) -> Instant {
        let lease = self.setup.timing.lease;
        let of = |member: Incarnation| {
            let peer = owning.peers.get(&member.node).filter(|peer| peer.incarnation == member);
            peer.and_then(|peer| peer.granted).map_or(Instant(0), |granted| granted + lease)
        };
        if planted!(self, endless_lease) {
            return Instant(u64::MAX);
        }
        if planted!(self, lease_of_latest) {
            return owning.asked().map(of).max().unwrap_or(Instant(u64::MAX));
        }
        if planted!(self, lease_of_new_set) {
            let newest = owning.undecided.last().unwrap_or(&owning.record);
            let others = newest.members.iter().filter(|member| member.node != self.own.node);
            return others.map(|member| of(*member)).min().unwrap_or(Instant(u64::MAX));
        }
        owning.asked().map(of).min().unwrap_or(Instant(u64::MAX))
    }

    pub(super) fn publish_lease(&mut self) {
        let Role::Owning(owning) = &self.role else { return };
        let serves_on = planted!(self, serves_while_handing_over);
        let until =
            if owning.serving() && (!owning.is_leaving() || serves_on) { self.lease_until(owning) } else { Instant(0) };
        let told = owning.lease_told;
        if told.unwrap_or(Instant(0)) != until {
            let Role::Owning(owning) = &mut self.role else { return };
            owning.lease_told = Some(until).filter(|until| until.0 > 0);
            self.order(Order::Lease { until });
        }
    }

    // --- changes of the record ---

    /// The most urgent change that there is ground for, if none is open.
    fn next_change(&mut self) {
        let frozen = self.coordinator.went_back.is_some();
        let Role::Owning(owning) = &self.role else { return };
        // An owner that answers nothing leaves nobody out: a member that is cut off from it may be the one that takes over.
        let silent = owning.silent_since.is_some();
        if frozen || silent || matches!(owning.phase, Phase::Sealing(_)) || owning.is_leaving() {
            return;
        }
        if self.coordinator.change.is_some() {
            return self.take_back();
        }
        let record = &owning.record;
        let quiescing = owning.goal.as_ref().is_some_and(|goal| goal.stage == GoalStage::Quiescing);
        let lost = self.lost_members(owning);
        let ready = owning.learners.values().find(|learner| learner.stage == Teaching::Ready);
        let agreed = !matches!(owning.phase, Phase::Agreeing);
        let log = self.wanted_log(owning);
        let flushed = self.wanted_flushed(record);
        if !lost.is_empty() {
            let new = record.without(&lost);
            self.announce(new, Stage::Ready);
        } else if quiescing || !agreed {
            // What is under way comes first: these changes would only delay it.
        } else if !record.unfenced.is_empty() && owning.rewritten {
            let new = record.fenced();
            self.announce(new, Stage::Ready);
        } else if self.waits_for_room(record) && self.all_are_proven(record) {
            let new = record.shortened();
            self.announce(new, Stage::Ready);
        } else if log == LogState::Needed && log != record.log {
            let new = Record { log, ..record.changed() };
            self.announce(new, Stage::Ready);
        } else if flushed < record.flushed {
            let new = Record { flushed, ..record.changed() };
            self.announce(new, Stage::Ready);
        } else if let Some(size_bytes) = owning.grown.filter(|size| *size > record.size_bytes) {
            let new = Record { size_bytes, ..record.changed() };
            self.announce(new, Stage::Ready);
        } else if let Some(incarnation) = ready.and_then(|learner| learner.incarnation) {
            let new = record.with(incarnation);
            self.announce(new, if planted!(self, adds_uncovered) { Stage::Ready } else { Stage::Preparing });
        } else if log != record.log {
            let new = Record { log, ..record.changed() };
            self.announce(new, if planted!(self, through_uncovered) { Stage::Ready } else { Stage::Preparing });
        } else if flushed != record.flushed && owning.goal.is_none() {
            // Whoever owns it next proposes that: media under load would keep the volume from leaving.
            let new = Record { flushed, ..record.changed() };
            let covered = flushed == Flushed::Held || planted!(self, durable_uncovered);
            self.announce(new, if covered { Stage::Ready } else { Stage::Preparing });
        } else if let Some(surplus) = self.surplus_member(owning) {
            let new = record.without(&[surplus]);
            if let Role::Owning(owning) = &mut self.role {
                owning.surplus = Some(surplus);
            }
            self.announce(new, Stage::Ready);
        }
    }

    /// Fewer copies are asked for than there are: one that is about to leave goes, else the newest. Whoever is to become the
    /// owner stays, and an owner that is about to leave is no copy of those that will be.
    fn surplus_member(&self, owning: &Owning) -> Option<NodeId> {
        let members = &owning.record.members;
        let hosts_guest = owning.guest.as_ref().is_some_and(|guest| owning.record.member(guest.node).is_some());
        let besides = usize::from(self.is_leaving_node(self.own.node)) + usize::from(hosts_guest);
        let surplus = owning.serving() && members.len() > 1 + self.requested.peers as usize + besides;
        let is_guest = |node: NodeId| owning.guest.as_ref().is_some_and(|guest| guest.node == node);
        let others = || members.iter().rev().map(|member| member.node).filter(|node| *node != self.own.node);
        let mut may_go = others().filter(|node| !is_guest(*node));
        let leaving = others().find(|node| self.is_leaving_node(*node) && !is_guest(*node));
        leaving.or_else(|| may_go.next()).filter(|_| surplus)
    }

    fn is_leaving_node(&self, node: NodeId) -> bool {
        self.candidates.iter().any(|candidate| candidate.node == node && candidate.leaving)
    }

    /// A3: members without progress.
    fn lost_members(&self, owning: &Owning) -> Vec<NodeId> {
        let lost = |peer: &&Peer| peer.is_lost(self.now, self.setup.timing.member_drop);
        let recorded = |peer: &&Peer| owning.record.names(peer.incarnation);
        owning.peers.values().filter(recorded).filter(lost).map(|peer| peer.incarnation.node).collect()
    }

    /// A5. A volume with too few copies counts as write-through: it is as fast, and a node without its log may open it.
    fn wanted_log(&self, owning: &Owning) -> LogState {
        let few = (owning.record.members.len() as u32) < 1 + self.requested.min_peers;
        let drained = self.figures.as_ref().is_some_and(|figures| figures.drained) || planted!(self, through_uncovered);
        let wanted = self.figures.as_ref().is_some_and(|figures| figures.wants_log);
        match owning.record.log {
            // Also where the operator drains it through, and it is to stay so until a release.
            LogState::Needed
                if (self.requested.through || few || !wanted) && drained && owning.record.unfenced.is_empty() =>
            {
                LogState::Through
            }
            LogState::Through if !self.requested.through && !few && wanted => LogState::Needed,
            LogState::Needed | LogState::Through | LogState::Released => owning.record.log,
        }
    }

    /// A2: what the record is to say of flushes. As long as a registered node cannot read that, a record that says nothing stays
    /// as it is.
    fn wanted_flushed(&self, record: &Record) -> Flushed {
        let says_so = self.requested.flushed_readable || record.flushed != Flushed::Unrecorded;
        let wanted = self.figures.as_ref().and_then(|figures| figures.wants_flushed).filter(|_| says_so);
        wanted.unwrap_or(record.flushed)
    }

    /// C4: the volume asks both sets before the coordinator hears of the change.
    fn announce(&mut self, new: Record, stage: Stage) {
        let Record { epoch, log, flushed, .. } = new;
        self.coordinator.proposals += 1;
        let proposal = self.coordinator.proposals;
        let propose = Order::Propose { proposal, epoch, members: new.members.clone(), log, flushed };
        let order = if planted!(self, drops_uncommitted) && new.members.len() < self.known_members() {
            Some(Order::Decide { epoch, members: new.members.clone(), log, flushed })
        } else if planted!(self, asks_old_set_only) {
            None
        } else {
            Some(propose)
        };
        let stage = if planted!(self, asks_old_set_only) { Stage::Ready } else { stage };
        order.into_iter().for_each(|order| self.order(order));
        self.announce_only(new, stage);
        // What the members of both sets have granted is all that counts, from before the transaction is sent.
        self.publish_lease();
    }

    fn known_members(&self) -> usize {
        self.record.as_ref().map_or(0, |record| record.members.len())
    }

    pub(super) fn announce_only(&mut self, new: Record, stage: Stage) {
        let Role::Owning(owning) = &mut self.role else { return };
        owning.undecided.push(new.clone());
        let compare = owning.record.clone();
        self.propose(compare, new, stage, None);
    }

    /// A change that still waits to be covered has not been sent to anybody: it is taken back when one of those whom it
    /// waits for is lost; and one that waits for the backing, which may fail for long, when it is wanted no more, or there is
    /// a copy to be had. One that is covered, and waits until it may be sent (C6), is taken back when one whom it would make a member
    /// is lost.
    fn take_back(&mut self) {
        if let Some(change) = self.coordinator.change.as_ref().filter(|_| self.coordinator.has_unsent_change())
            && let Role::Owning(owning) = &self.role
        {
            let mut new = change.new.members.iter().filter(|member| owning.record.member(member.node).is_none());
            let is_lost = |member: &Incarnation| match owning.peers.get(&member.node) {
                Some(peer) => peer.incarnation != *member || peer.is_lost(self.now, self.setup.timing.member_drop),
                None => true,
            };
            if new.any(is_lost) && !planted!(self, keeps_unsent_change) {
                self.coordinator.change = None;
                return self.on_undone();
            }
        }
        let Some(change) = self.coordinator.change.as_ref().filter(|change| change.stage == Stage::Preparing) else {
            return;
        };
        let Role::Owning(owning) = &self.role else { return };
        let waits_for_backing = change.new.log == LogState::Through && owning.record.log == LogState::Needed;
        let copy_is_ready = owning.learners.values().any(|learner| learner.stage == Teaching::Ready);
        let unwanted = copy_is_ready || self.wanted_log(owning) != LogState::Through;
        let less_is_promised = self.wanted_flushed(&owning.record) < change.new.flushed;
        // That more is promised can wait.
        let waits_for_media = change.new.flushed > owning.record.flushed;
        let gives_way = waits_for_media && (copy_is_ready || owning.goal.is_some());
        let is_lost = |member: Incarnation| match owning.peers.get(&member.node) {
            Some(peer) => peer.incarnation != member || peer.is_lost(self.now, self.setup.timing.member_drop),
            None => true,
        };
        if owning.asked().any(is_lost) || (waits_for_backing && unwanted) || less_is_promised || gives_way {
            self.coordinator.change = None;
            self.on_undone();
        }
    }

    /// No proposal is open any more, and the record is as before.
    pub(super) fn on_undone(&mut self) {
        let Role::Owning(owning) = &mut self.role else { return };
        owning.undecided.clear();
        owning.surplus = None;
        let strangers = owning.let_go();
        let decide = decided(&owning.record);
        self.order(decide);
        strangers.into_iter().for_each(|node| self.order(Order::Forget(node)));
        self.next_change();
    }

    /// The volume says so later than it is, and of the proposal that it was: a change that took the place of that one has its number.
    pub(super) fn on_covered(&mut self, proposal: u64) {
        let newest = self.coordinator.proposals == proposal || planted!(self, covers_the_next);
        if let Some(change) = &mut self.coordinator.change
            && change.stage == Stage::Preparing
            && newest
        {
            change.stage = Stage::Ready;
        }
    }

    /// The record is what was proposed.
    pub(super) fn on_decided(&mut self, record: Record) {
        let now = self.now;
        let Role::Owning(owning) = &mut self.role else { return };
        let before = core::mem::replace(&mut owning.record, record.clone());
        if owning.former.len() == FORMER_MAX {
            owning.former.pop_front();
        }
        owning.former.push_back(before.clone());
        owning.undecided.clear();
        let surplus = owning.surplus.take();
        let flaps = |member: &&Incarnation| !record.names(**member) && surplus != Some(member.node);
        for member in before.members.iter().filter(flaps) {
            self.kept_out.dropped(member.node, now, &self.setup.timing);
        }
        for member in &record.members {
            owning.learners.remove(&member.node);
        }
        let count = |some: &Record, other: &Record| some.members.iter().filter(|m| !other.names(**m)).count() as u64;
        self.counters.members_dropped += count(&before, &record);
        self.counters.members_added += count(&record, &before);
        let mut strangers = owning.let_go();
        strangers.retain(|node| before.member(*node).is_none());
        let own = self.own.node;
        for member in record.members.iter().filter(|member| member.node != own) {
            owning.peers.entry(member.node).or_insert_with(|| Peer::new(*member, now));
        }
        if record.unfenced.is_empty() {
            owning.rewritten = false;
        }
        if record.owner != own || record.log == LogState::Released {
            return self.on_given_up(record);
        }
        self.restored();
        self.give_up_proposed_goal();
        self.order(decided(&record));
        if record.size_bytes > before.size_bytes {
            self.order(Order::Size(record.size_bytes));
        }
        strangers.into_iter().for_each(|node| self.order(Order::Forget(node)));
    }

    pub(super) fn on_grown(&mut self, size_bytes: u64) {
        let Role::Owning(owning) = &mut self.role else { return };
        owning.grown = owning.grown.max(Some(size_bytes));
        if size_bytes <= owning.record.size_bytes {
            self.order(Order::Size(size_bytes));
        }
    }

    // --- members and learners ---

    pub(super) fn on_peer_failed(&mut self, failed: Incarnation) {
        let Role::Owning(owning) = &mut self.role else { return };
        if owning.learners.get(&failed.node).is_some_and(|learner| learner.incarnation == Some(failed)) {
            self.give_up_learner(failed.node);
        } else if let Some(peer) = owning.peers.get_mut(&failed.node).filter(|peer| peer.incarnation == failed) {
            peer.failed = true;
        }
    }

    /// Refusals of terms and incarnations; what concerns the stream, the volume handles.
    pub(super) fn on_refused(&mut self, envelope: &Envelope, why: Refusal) {
        let from = envelope.from;
        match why {
            Refusal::OldTerm => self.want_read(),
            Refusal::OtherIncarnation => self.on_other_incarnation(from),
            Refusal::TierFailed | Refusal::UnknownVolume | Refusal::BeyondTail => self.on_peer_failed(from),
            Refusal::NoRoom | Refusal::BeyondSize => {}
        }
    }

    /// S2: whom the record names is not there any more.
    fn on_other_incarnation(&mut self, present: Incarnation) {
        let Role::Owning(owning) = &mut self.role else { return };
        let known = owning.peers.get(&present.node).map(|peer| peer.incarnation);
        if let Some(gone) = known.filter(|known| *known != present) {
            self.on_peer_failed(gone);
        } else if let Some(learner) = owning.learners.get_mut(&present.node)
            && learner.stage == Teaching::Called
            && learner.incarnation != Some(present)
        {
            // It was addressed as what it was before; the answer to the next question tells what it is.
            learner.incarnation = None;
        }
    }

    fn give_up_learner(&mut self, node: NodeId) {
        let now = self.now;
        let Role::Owning(owning) = &mut self.role else { return };
        let Some(learner) = owning.learners.remove(&node) else { return };
        let proposed = owning.undecided.iter().any(|record| record.member(node) == learner.incarnation);
        self.kept_out.dropped(node, now, &self.setup.timing);
        if proposed && learner.incarnation.is_some() {
            // It may be a member already: until that is decided it is asked like one, and then left out like one.
            owning.peers.entry(node).and_modify(|peer| peer.failed = true);
        } else {
            owning.peers.remove(&node);
            self.order(Order::Forget(node));
        }
    }

    fn settle_learners(&mut self) {
        let (now, timing) = (self.now, self.setup.timing);
        let Role::Owning(owning) = &mut self.role else { return };
        let mut gone = Vec::new();
        let mut ask = Vec::new();
        for (node, learner) in owning.learners.iter_mut() {
            let lost = owning.peers.get(node).is_some_and(|peer| peer.is_lost(now, timing.member_drop));
            let silent = learner.stage == Teaching::Called && now >= learner.until;
            if lost || silent {
                gone.push(*node);
            } else if learner.stage == Teaching::Called && now >= learner.again {
                learner.again = now + timing.beacon;
                ask.push((*node, learner.incarnation, learner.said_at));
            }
        }
        for (node, incarnation, at) in ask {
            match incarnation {
                Some(incarnation) => self.send(incarnation, OwnershipMessage::Learn { sent: now, at }),
                None => self.send(Incarnation::none(node), OwnershipMessage::Who { sent: now }),
            }
        }
        gone.into_iter().for_each(|node| self.give_up_learner(node));
    }

    /// Nodes are called while copies are missing, and by a custodian until one is there that reaches the backing.
    fn recruit(&mut self) {
        let Role::Owning(owning) = &self.role else { return };
        let settled = matches!(owning.phase, Phase::Serving | Phase::Custodian) && owning.goal.is_none();
        if !settled || self.coordinator.went_back.is_some() {
            return;
        }
        let mut present: Vec<NodeId> = owning.record.members.iter().map(|member| member.node).collect();
        present.extend(owning.asked().map(|member| member.node).filter(|node| owning.record.member(*node).is_none()));
        present.extend(owning.learners.keys().filter(|node| owning.record.member(**node).is_none()));
        present.sort();
        present.dedup();
        let reaches = |node: &NodeId| {
            self.candidates.iter().any(|candidate| candidate.node == *node && candidate.reaches_backing)
        };
        let is_custodian = matches!(owning.phase, Phase::Custodian) && owning.backing != OwnBacking::Open;
        let stuck = is_custodian && !present.iter().any(reaches);
        // Whoever is about to leave stays a member until another has its place.
        let staying = present.iter().filter(|node| !self.is_leaving_node(**node)).count();
        let missing = (1 + self.requested.peers as usize).saturating_sub(staying);
        let count = if stuck { 1 } else { missing }.min(MEMBERS_MAX.saturating_sub(present.len()));
        let free = |candidate: &&Candidate| {
            !self.kept_out.is_out(candidate.node, self.now) && !self.links_down.contains(&candidate.node)
        };
        let candidates: Vec<Candidate> = self.candidates.iter().filter(free).copied().collect();
        let Requested { media, tier_bytes, .. } = self.requested;
        let wanted = Wanted { count, bytes: tier_bytes, flash: media, reaches_backing: stuck };
        let chosen = choose_peers(wanted, &present, &candidates);
        self.call(&chosen);
    }

    /// They are to become learners.
    fn call(&mut self, nodes: &[NodeId]) {
        let (now, grace) = (self.now, self.setup.timing.grace);
        let Role::Owning(owning) = &mut self.role else { return };
        for node in nodes {
            let stage = Teaching::Called;
            let (incarnation, said_at) = (None, Instant(0));
            let learner = Learner { incarnation, said_at, stage, called: now, again: now, until: now + grace };
            owning.learners.insert(*node, learner);
        }
        self.settle_learners();
    }

    /// Whoever is to become the owner is called like any learner, also where it was dropped just before.
    fn settle_guest(&mut self) {
        let (now, quiet_max) = (self.now, self.setup.timing.quiet_max);
        let Role::Owning(owning) = &mut self.role else { return };
        let Some(guest) = &mut owning.guest else { return };
        let node = guest.node;
        let learner = owning.learners.get(&node);
        if learner.is_some_and(|learner| learner.stage != Teaching::Called) {
            guest.until = (now + quiet_max).min(guest.until_at_most);
        }
        if owning.record.member(node).is_some() {
            if let Some(id) = guest.id.take() {
                guest.until = now + quiet_max;
                self.answer(id, Ok(()));
            } else if now >= guest.until {
                owning.guest = None;
            }
        } else if now >= guest.until {
            let id = guest.id.take();
            owning.guest = None;
            if let Some(id) = id {
                self.answer(id, Err(CommandError::NotRecruited));
            }
        } else if learner.is_none() && owning.serving() && owning.goal.is_none() && !self.links_down.contains(&node) {
            self.call(&[node]);
        }
    }

    /// A node says which incarnation it is.
    pub(super) fn on_here(&mut self, answer: Answer) {
        if answer.sent > self.now {
            return;
        }
        let from = answer.from;
        let newest = self.answers.entry(from.node).or_insert(answer);
        if newest.sent <= answer.sent {
            *newest = answer;
        }
        self.consider_earlier_lives();
        let (now, grace) = (self.now, self.setup.timing.grace);
        let Role::Owning(owning) = &mut self.role else { return };
        let Some(learner) = owning.learners.get_mut(&from.node).filter(|l| l.stage == Teaching::Called) else { return };
        if answer.sent < learner.called {
            return;
        }
        learner.until = now + grace;
        if answer.fresh {
            learner.stage = Teaching::Learning;
            learner.incarnation = Some(from);
            owning.peers.insert(from.node, Peer::new(from, now));
            owning.beacon_at = now;
            self.order(Order::Learn(from));
        } else if learner.incarnation != Some(from) || learner.said_at < answer.at {
            learner.incarnation = Some(from);
            learner.said_at = answer.at;
            learner.again = learner.again.min(now + self.setup.timing.channel_dead);
        }
    }

    pub(super) fn on_learner_ready(&mut self, ready: Incarnation) {
        let Role::Owning(owning) = &mut self.role else { return };
        let learner = owning.learners.get_mut(&ready.node).filter(|learner| learner.incarnation == Some(ready));
        if let Some(learner) = learner {
            learner.stage = Teaching::Ready;
        }
    }

    // --- pins ---

    /// Since when this node has been what it is, in the term that the record shows: an owner may have been in an earlier boot before that.
    fn place_since(&self) -> Instant {
        let term_since = if planted!(self, believes_earlier_boot) { Instant(0) } else { self.term_since };
        match &self.role {
            Role::Owning(owning) => owning.since,
            Role::Outside(outside) => outside.since.max(term_since),
            Role::Following(_) | Role::Asking(_) | Role::Leaving => Instant(u64::MAX),
        }
    }

    /// T6, T8: the volume writes the pinned ranges again when there is proof for every former owner.
    fn settle_pins(&mut self) {
        let (now, look) = (self.now, self.setup.timing.look);
        let Role::Owning(owning) = &mut self.role else { return };
        if !owning.serving() || owning.record.unfenced.is_empty() || owning.proven_told {
            return;
        }
        if now >= owning.ask_hosts_at {
            owning.ask_hosts_at = now + look;
            let former: Vec<NodeId> = owning.record.unfenced.iter().map(|former| former.node).collect();
            let own = self.own.node;
            let others = former.into_iter().filter(|node| *node != own);
            others.for_each(|node| self.send(Incarnation::none(node), OwnershipMessage::Who { sent: now }));
        }
        let Role::Owning(owning) = &self.role else { return };
        if self.all_are_proven(&owning.record) && !self.waits_for_room(&owning.record) {
            let early = planted!(self, fenced_before_rewritten);
            let Role::Owning(owning) = &mut self.role else { return };
            owning.proven_told = true;
            owning.rewritten = early;
            self.order(Order::Proven);
        }
    }

    /// T8: whoever takes over from this owner finds no room for it in the list. It writes nothing to the backing before
    /// that was shortened.
    fn waits_for_room(&self, record: &Record) -> bool {
        record.unfenced.len() >= UNFENCED_MAX && !planted!(self, rewrites_unlisted)
    }

    fn all_are_proven(&self, record: &Record) -> bool {
        let mut unfenced = record.unfenced.iter();
        let all = if planted!(self, one_proof_for_all) {
            unfenced.any(|former| self.is_proven(former))
        } else {
            unfenced.all(|former| self.is_proven(former))
        };
        all || planted!(self, ends_pins_unproven)
    }

    pub(super) fn is_proven(&self, former: &Unfenced) -> bool {
        // Asked since it was deposed: what a machine was before says nothing.
        let answer = self.answers.get(&former.node).filter(|answer| answer.sent >= self.place_since());
        let host = if former.node == self.own.node { Some(self.setup.host) } else { answer.map(|answer| answer.host) };
        let other_boot = host.is_some_and(|host| host.machine == former.host.machine && host.boot != former.host.boot);
        self.proven.contains(&former.term) || (other_boot && self.setup.writes_die_with_host)
    }

    pub(super) fn on_pins_ended(&mut self) {
        if let Role::Owning(owning) = &mut self.role {
            owning.rewritten = owning.proven_told;
            self.counters.pins_ended += 1;
        }
    }

    // --- the end ---

    /// T9: the record names another owner.
    pub(super) fn on_superseded(&mut self) {
        if planted!(self, goes_on_when_superseded) {
            return;
        }
        self.retire();
    }

    /// T9: somebody has seen a record of a higher term. The record itself may show none any more, where the coordinator went back.
    pub(super) fn on_told_of_higher_term(&mut self) {
        self.want_read();
        if !planted!(self, goes_on_when_told) {
            self.retire();
        }
    }

    /// T9: somebody else may own the volume by now, with a proof about this owner. If nobody does, the record still names this one,
    /// and it takes over from itself.
    pub(super) fn on_lock_lost(&mut self, term: Term) {
        let owns = matches!(&self.role, Role::Owning(owning) if owning.record.term == term);
        if owns && !planted!(self, goes_on_without_lock) {
            self.counters.locks_lost += 1;
            self.want_read();
            self.retire();
        }
    }

    /// T9: nothing is answered any more, and no write is begun; the volume waits for its last one.
    pub(super) fn retire(&mut self) {
        let Role::Owning(owning) = &mut self.role else { return };
        let goal = owning.goal.take();
        let guest = owning.guest.take();
        self.coordinator.change = None;
        // Whether it has taken effect the record shows; it can be asked for again.
        let restores = self.coordinator.restores.take();
        self.role = Role::Leaving;
        self.counters.step_downs += 1;
        self.effects.push_back(Effect::EndSessions);
        self.order(Order::StepDown);
        for id in [goal.and_then(|goal| goal.id), guest.and_then(|guest| guest.id)].into_iter().flatten() {
            self.answer(id, Err(CommandError::Superseded));
        }
        if let Some(id) = restores {
            self.answer(id, Err(CommandError::RecordWentBack));
        }
        if planted!(self, leaves_while_writing) {
            self.on_backing_quiet();
        }
    }

    pub(super) fn on_backing_quiet(&mut self) {
        if matches!(self.role, Role::Leaving) {
            self.effects.push_back(Effect::OpenTier { format: false });
        }
    }
}

/// The record says so, and nothing is proposed.
fn decided(record: &Record) -> Order {
    let Record { epoch, log, flushed, .. } = *record;
    Order::Decide { epoch, members: record.members.clone(), log, flushed }
}
