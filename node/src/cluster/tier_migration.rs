//! The copies of a volume change to the medium that its definition asks for, one after the other, while it serves.
//!
//! A member's tier never changes: a copy on another medium is another incarnation. So a node whose copy is on the former medium
//! is left out of the record, and learns the log anew on the new one; the owner is last, and hands over before. All of that is
//! done by what there is: [`Requested`], [`Candidate`](forebay_core::ownership::Candidate)s that are leaving, and commands.
//!
//! Invariants:
//! - What is done follows from the record, the definition, and what members have said of their tiers. So nothing has to be
//!   remembered: the next owner goes on, and a change that is taken back is undone in the same way.
//! - While another node can have the copy, there is never one less than is asked for. Where none can, one copy at a time is
//!   missing, and the volume says so; a copy is given up only for a medium on which its node has room.
//! - Who may own the volume, and when a member may go, core decides as ever.

use super::commands::{Answer, failure};
use super::control::{Cluster, requested};
use super::status::name_of;
use crate::coordinator::schema::{Definition, Load, NodeEntry, VERSION_FLUSHED};
use crate::datapath::driver::Shown;
use crate::failure::FailureKind;
use crate::log;
use forebay_api::config::TierName;
use forebay_api::record::VolumeId;
use forebay_api::status::TierChangeReport;
use forebay_api::units::show_size;
use forebay_core::cluster::NodeId;
use forebay_core::ownership::{Event, Requested, State};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration as Time, Instant};

/// Between two looks at what is on which medium.
const LOOK: Time = Time::from_secs(1);
/// A volume whose hand-over failed had stood still for it: it is left alone for a while.
const PAUSE_AFTER_FAILURE: Time = Time::from_secs(10);

/// A record may say what flushes have promised: each registered node reads that.
pub(super) fn all_read_flushed(nodes: &[NodeEntry]) -> bool {
    !nodes.is_empty() && nodes.iter().all(|node| node.record_version >= VERSION_FLUSHED)
}

/// What there is, as the owner sees it.
struct Scene {
    own: NodeId,
    /// The owner's own copy is on the former medium.
    own_differs: bool,
    /// Other members, and whether their copies are; none: they have not said.
    others: Vec<(NodeId, Option<bool>)>,
    /// Learners: copies on their way.
    learners: usize,
    /// Nodes without a copy that could have one.
    spare: Vec<NodeId>,
    /// Nodes that have room on the new medium.
    roomy: BTreeSet<NodeId>,
    /// Copies besides the owner's that are asked for.
    peers: usize,
}

/// What the owner does next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    /// Members that make room for others, or for themselves on the new medium.
    migrating: BTreeSet<NodeId>,
    /// So many peers are asked for meanwhile.
    peers: Option<usize>,
    /// Who is to own the volume; a node without a copy gets one first.
    hand_to: Option<NodeId>,
    /// Copies on the former medium, the owner's last.
    differ: Vec<NodeId>,
    /// Nothing can be done: not on these nodes, which have no room; or, without any, because there is no other node.
    stuck: Option<BTreeSet<NodeId>>,
}

fn plan(scene: &Scene) -> Plan {
    let differing: Vec<NodeId> =
        scene.others.iter().filter(|(_, differs)| *differs == Some(true)).map(|(node, _)| *node).collect();
    let mut plan = Plan { differ: differing.clone(), ..Plan::default() };
    plan.differ.extend(Some(scene.own).filter(|_| scene.own_differs));
    if !differing.is_empty() {
        let roomy = |node: &&NodeId| scene.roomy.contains(node);
        if !scene.spare.is_empty() || scene.learners > 0 {
            plan.migrating.extend(differing);
        } else if let Some(next) = differing.iter().find(roomy) {
            plan.migrating.insert(*next);
            plan.peers = Some(scene.peers.min(scene.others.len() - 1));
        } else {
            plan.stuck = Some(differing.into_iter().collect());
        }
        return plan;
    }
    let all_have_said = scene.others.iter().all(|(_, differs)| differs.is_some());
    let all_are_there = scene.others.len() >= scene.peers || (scene.spare.is_empty() && scene.learners == 0);
    if !scene.own_differs || !all_have_said || !all_are_there {
        return plan;
    }
    plan.hand_to = scene.others.first().map(|(node, _)| *node).or_else(|| scene.spare.first().copied());
    if plan.hand_to.is_none() {
        plan.stuck = Some(BTreeSet::new());
    }
    plan
}

impl Cluster {
    /// A member of the volume that is to make room, for the sake of a medium.
    pub(super) fn is_migrating(&self, volume: VolumeId, node: NodeId) -> bool {
        let plans = self.migrations.lock().expect("nobody panics while holding it");
        plans.get(&volume).is_some_and(|plan| plan.migrating.contains(&node))
    }

    /// What is asked of the data path meanwhile.
    pub(super) fn requested_now(&self, definition: &Definition) -> Requested {
        let plans = self.migrations.lock().expect("nobody panics while holding it");
        let peers = plans.get(&definition.volume).and_then(|plan| plan.peers);
        let asked = requested(definition);
        let peers = peers.map_or(asked.peers, |peers| asked.peers.min(peers as u32));
        Requested { peers, flushed_readable: all_read_flushed(&self.nodes()), ..asked }
    }

    /// Sees to it that copies come to the medium that is asked for. Never ends.
    pub(super) async fn migrate_tiers(self: Arc<Cluster>) {
        let mut paused: BTreeMap<VolumeId, Instant> = BTreeMap::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let definitions: Vec<Definition> = self.known().values().map(|known| known.definition.clone()).collect();
            self.migrations
                .lock()
                .expect("nobody panics while holding it")
                .retain(|volume, _| definitions.iter().any(|definition| definition.volume == *volume));
            for definition in definitions {
                let hand_to = self.plan_migration(&definition).await;
                let volume = definition.volume;
                if let Some(to) = hand_to
                    && paused.get(&volume).is_none_or(|until| Instant::now() >= *until)
                    && let Err(why) = self.hand_over_to_migrate(&definition, to).await
                {
                    log::say!(Error, volume(definition.name), "its owner is to change its tier, and stays: {why}");
                    paused.insert(volume, Instant::now() + PAUSE_AFTER_FAILURE);
                }
            }
        }
    }

    /// Makes a plan, and tells the data path of it.
    async fn plan_migration(&self, definition: &Definition) -> Option<NodeId> {
        let volume = definition.volume;
        let scene = match self.show(volume).await {
            Some(shown) => self.scene(definition, &shown).await,
            None => None,
        };
        let new = scene.map(|scene| plan(&scene)).unwrap_or_default();
        let before = {
            let mut plans = self.migrations.lock().expect("nobody panics while holding it");
            match new == Plan::default() {
                true => plans.remove(&volume),
                false => plans.insert(volume, new.clone()),
            }
        };
        let before = before.unwrap_or_default();
        if (&before.migrating, before.peers) != (&new.migrating, new.peers) {
            let (nodes, loads) = (self.nodes(), self.loads());
            let candidates = self.candidates(&nodes, &loads, volume, definition.tier.kind);
            // Who goes first, then that one is too many: else another one would go.
            self.notify(volume, Event::Candidates(candidates));
            self.notify(volume, Event::Requested(self.requested_now(definition)));
        }
        new.hand_to
    }

    /// None: this node does not own the volume, or all of it is as it should be.
    async fn scene(&self, definition: &Definition, shown: &Shown) -> Option<Scene> {
        if shown.ownership.state != State::Owner {
            return None;
        }
        let record = shown.ownership.record.as_ref()?;
        let own = self.place.node;
        let kind = definition.tier.kind;
        let own_kind = self.known().get(&definition.volume)?.facts.as_ref()?.tier_kind;
        let differs = |in_memory: bool| in_memory != (kind == TierName::Memory);
        let said = |node: NodeId| {
            let member = record.member(node)?;
            let in_memory = shown.in_memory.iter().find(|(peer, _)| *peer == member)?.1;
            in_memory.map(differs)
        };
        let others: Vec<_> = record.members.iter().filter(|m| m.node != own).map(|m| (m.node, said(m.node))).collect();
        let own_differs = own_kind != kind;
        if !own_differs && others.iter().all(|(_, differs)| *differs == Some(false)) {
            return None;
        }
        let (nodes, loads) = (self.nodes(), self.loads());
        let roomy: BTreeSet<NodeId> = nodes
            .iter()
            .filter(|entry| room(&loads, entry, kind).is_none_or(|free| free >= definition.tier.size_bytes))
            .map(NodeEntry::node)
            .collect();
        let links = self.links().await;
        let is_spare = |entry: &&NodeEntry| {
            let node = entry.node();
            record.member(node).is_none()
                && !shown.ownership.learners.contains(&node)
                && links.iter().any(|link| link.node == node && link.up)
                && !self.is_evacuated(&entry.name)
                && roomy.contains(&node)
        };
        let spare = nodes.iter().filter(is_spare).map(NodeEntry::node).collect();
        let learners = shown.ownership.learners.iter().filter(|node| record.member(**node).is_none()).count();
        let peers = definition.peers.into();
        Some(Scene { own, own_differs, others, learners, spare, roomy, peers })
    }

    async fn hand_over_to_migrate(&self, definition: &Definition, to: NodeId) -> Result<(), String> {
        let Some(to) = self.node_name(to) else { return Ok(()) };
        let done = self.hand_to(definition.volume, &definition.name, &to).await;
        done.map_err(|trouble| trouble.into_words().1)
    }

    /// How far the change is, where this node owns the volume.
    pub(super) fn migration_report(&self, definition: &Definition) -> Option<TierChangeReport> {
        let plans = self.migrations.lock().expect("nobody panics while holding it");
        let plan = plans.get(&definition.volume).filter(|plan| !plan.differ.is_empty())?;
        let (nodes, loads) = (self.nodes(), self.loads());
        let names = |of: &mut dyn Iterator<Item = &NodeId>| of.map(|node| name_of(&nodes, *node)).collect::<Vec<_>>();
        let waits = match (&plan.stuck, plan.peers) {
            (Some(stuck), _) if stuck.is_empty() => Some("no other node can own it meanwhile".to_owned()),
            (Some(stuck), _) => Some(
                nodes
                    .iter()
                    .filter(|entry| stuck.contains(&entry.node()))
                    .map(|entry| self.missing_room(definition, entry, &loads))
                    .collect::<Vec<_>>()
                    .join("; "),
            ),
            (None, Some(_)) => Some("one copy is missing meanwhile, because no other node can have it".to_owned()),
            (None, None) => None,
        };
        Some(TierChangeReport {
            to: definition.tier.kind,
            stage: "members".to_owned(),
            left_bytes: None,
            nodes: names(&mut plan.differ.iter()),
            waits,
        })
    }

    fn missing_room(&self, definition: &Definition, entry: &NodeEntry, loads: &[Load]) -> String {
        let (kind, wanted) = (definition.tier.kind, definition.tier.size_bytes);
        let free = room(loads, entry, kind).unwrap_or(0);
        format!(
            "{} has {} of {} free, {} less than the tier needs",
            entry.name,
            show_size(free),
            kind.word(),
            show_size(wanted.saturating_sub(free))
        )
    }

    /// Refuses a medium for which there is no room on as many nodes as there are copies.
    pub(super) fn check_migration(&self, from: &Definition, to: &Definition) -> Answer<()> {
        if from.tier.kind == to.tier.kind {
            return Ok(());
        }
        let (nodes, loads) = (self.nodes(), self.loads());
        let has_room =
            |entry: &NodeEntry| room(&loads, entry, to.tier.kind).is_none_or(|free| free >= to.tier.size_bytes);
        let (roomy, full): (Vec<NodeEntry>, Vec<NodeEntry>) = nodes.into_iter().partition(has_room);
        let conflict =
            |why: String| failure(FailureKind::Conflict, format!("volume {} keeps its tiers: {why}", to.name));
        if roomy.len() + full.len() < 2 {
            return conflict("another node has to own it while its owner changes, and there is none".to_owned());
        }
        if roomy.len() < 1 + usize::from(to.peers) && !full.is_empty() {
            return conflict(
                full.iter().map(|entry| self.missing_room(to, entry, &loads)).collect::<Vec<_>>().join("; "),
            );
        }
        Ok(())
    }

    pub(super) fn loads(&self) -> Vec<Load> {
        self.loads.lock().expect("nobody panics while holding it").clone()
    }
}

/// What a node has said to have free on a medium.
fn room(loads: &[Load], entry: &NodeEntry, kind: TierName) -> Option<u64> {
    loads.iter().find(|load| load.name == entry.name).map(|load| load.free_bytes(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster in which core does what a plan asks of it, one thing at a time.
    struct World {
        nodes: u64,
        peers: usize,
        owner: NodeId,
        /// Members, and whether each is on the former medium.
        members: Vec<(NodeId, bool)>,
        fewest: usize,
        without_room: BTreeSet<NodeId>,
    }

    impl World {
        fn new(nodes: u64, peers: usize) -> World {
            let members = (1..=peers as u64 + 1).map(|node| (NodeId(node), true)).collect();
            World { nodes, peers, owner: NodeId(1), members, fewest: peers + 1, without_room: BTreeSet::new() }
        }

        fn scene(&self) -> Scene {
            let is_member = |node: NodeId| self.members.iter().any(|(member, _)| *member == node);
            let roomy: BTreeSet<NodeId> =
                (1..=self.nodes).map(NodeId).filter(|node| !self.without_room.contains(node)).collect();
            Scene {
                own: self.owner,
                own_differs: self.members.contains(&(self.owner, true)),
                others: self.others().map(|(node, differs)| (node, Some(differs))).collect(),
                learners: 0,
                spare: roomy.iter().copied().filter(|node| !is_member(*node)).collect(),
                roomy,
                peers: self.peers,
            }
        }

        fn others(&self) -> impl Iterator<Item = (NodeId, bool)> {
            self.members.iter().copied().filter(|(node, _)| *node != self.owner)
        }

        /// False: nothing was to be done.
        fn step(&mut self) -> bool {
            let (scene, before) = (self.scene(), (self.owner, self.members.clone()));
            let plan = plan(&scene);
            let staying = self.members.iter().filter(|(node, _)| !plan.migrating.contains(node)).count();
            let asked = 1 + plan.peers.unwrap_or(self.peers);
            let surplus = self.members.len() > asked;
            let leaving = self.others().map(|(node, _)| node).find(|node| plan.migrating.contains(node));
            let any = self.others().last().map(|(node, _)| node);
            if let Some(to) = plan.hand_to {
                assert!(self.others().all(|(_, differs)| !differs), "the owner is last");
                if !self.members.iter().any(|(node, _)| *node == to) {
                    self.members.push((to, false));
                }
                self.owner = to;
            } else if let (true, Some(gone)) = (surplus, leaving.or(any)) {
                self.members.retain(|(node, _)| *node != gone);
            } else if let (true, Some(new)) = (staying < asked, scene.spare.first()) {
                self.members.push((*new, false));
            }
            self.fewest = self.fewest.min(self.members.len());
            (self.owner, self.members.clone()) != before
        }

        fn run(&mut self) {
            let steps = (0..50).take_while(|_| self.step()).count();
            assert!(steps < 50, "it does not end: {:?}", self.members);
        }

        fn is_changed(&self) -> bool {
            self.members.len() == self.peers + 1 && self.members.iter().all(|(_, differs)| !differs)
        }
    }

    #[test]
    fn every_copy_changes_and_one_is_missing_only_where_no_other_node_can_have_it() {
        for (nodes, peers, fewest) in [(2, 0, 1), (3, 0, 1), (2, 1, 1), (3, 1, 2), (3, 2, 2), (4, 2, 3), (5, 2, 3)] {
            let mut world = World::new(nodes, peers);
            world.run();
            assert!(world.is_changed(), "{nodes} nodes, {peers} peers: {:?}", world.members);
            assert_eq!(world.fewest, fewest, "{nodes} nodes, {peers} peers");
        }
    }

    #[test]
    fn no_copy_is_given_up_for_a_medium_without_room() {
        let mut world = World::new(2, 1);
        world.without_room.insert(NodeId(2));
        world.run();
        assert_eq!(world.members, [(NodeId(1), true), (NodeId(2), true)]);
        assert_eq!(plan(&world.scene()).stuck, Some(BTreeSet::from([NodeId(2)])));
        let mut alone = World::new(1, 0);
        alone.run();
        assert_eq!(plan(&alone.scene()).stuck, Some(BTreeSet::new()));
    }

    #[test]
    fn the_owner_stays_until_all_have_said_what_they_are_on() {
        let mut world = World::new(2, 1);
        world.members[1].1 = false;
        let mut scene = world.scene();
        scene.others[0].1 = None;
        assert_eq!(plan(&scene).hand_to, None);
        assert_eq!(plan(&world.scene()).hand_to, Some(NodeId(2)));
    }
}
