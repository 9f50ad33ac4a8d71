//! What is told of a cluster's volumes and nodes, in words for the API and the command line.

use crate::coordinator::schema::{Definition, NodeEntry};
use crate::datapath::driver::{LinkShown, Shown};
use crate::datapath::forward::Figures;
use forebay_api::cluster::{
    AddressReport, ChannelReport, ClusterNodeReport, ClusterReport, CompressionReport, ForwardingReport, KnownReport,
    MemberReport, PredecessorCacheReport, ReplicaRole,
};
use forebay_api::config::TierName;
use forebay_api::words::ChannelPhase;
use forebay_core::cluster::{Incarnation, NodeId, Unfenced};
use forebay_core::ownership::{Counters, Status};
use forebay_core::status::PeerCounters;
use forebay_core::wire::Packing;
use forebay_io::link::{self, CompressionStatus, Decision};
use std::sync::atomic::Ordering;

/// Of another node.
pub const TWINS: &str = "two daemons run with its identity, and each takes the link to this node over from the other: stop one of them, and \
                         enrol a copied machine under a name of its own";

fn known_report(status: &Status, nodes: &[NodeEntry]) -> Option<KnownReport> {
    let known = status.known.as_ref()?;
    let shown = status.went_back_to;
    let is_of_interest = shown.is_some() || !status.unheard.is_empty();
    is_of_interest.then(|| KnownReport {
        term: known.term.0,
        epoch: known.epoch.0,
        owner: name_of(nodes, known.owner),
        shown_term: shown.map(|(term, _)| term.0),
        shown_epoch: shown.map(|(_, config)| config.0),
        unheard: status.unheard.iter().map(|node| name_of(nodes, *node)).collect(),
    })
}

fn forwarding_report(figures: &Figures) -> ForwardingReport {
    ForwardingReport {
        connected: figures.connected.load(Ordering::Relaxed),
        clients: figures.clients.load(Ordering::Relaxed),
        waiting: figures.waiting.load(Ordering::Relaxed),
        requests: figures.requests.load(Ordering::Relaxed),
        bytes: figures.bytes.load(Ordering::Relaxed),
        again: figures.again.load(Ordering::Relaxed),
    }
}

/// A node's name, or its number while that is not known.
pub fn name_of(nodes: &[NodeEntry], node: NodeId) -> String {
    let known = nodes.iter().find(|entry| entry.node() == node);
    known.map_or_else(|| format!("{:016x}", node.0), |entry| entry.name.to_string())
}

/// A former owner by its name and the term in which it was the owner, such as `alpha@5`: what an operator has to say about whom he has
/// made sure of (`--i-fenced-it`). The same node may have been the owner again since.
pub fn called(nodes: &[NodeEntry], former: &Unfenced) -> String {
    format!("{}@{}", name_of(nodes, former.node), former.term.0)
}

/// What is told of a volume of the cluster.
pub fn of_volume(
    definition: &Definition,
    shown: &Shown,
    nodes: &[NodeEntry],
    address: Option<AddressReport>,
) -> ClusterReport {
    let status = &shown.ownership;
    let record = status.record.as_ref();
    let lag_of = |who: &Incarnation| {
        let held = shown.peers.iter().find(|(peer, _)| peer == who)?.1;
        Some(shown.accepted.0.saturating_sub(held.0))
    };
    let medium_of = |who: &Incarnation| {
        let in_memory = shown.in_memory.iter().find(|(known, _)| known == who)?.1?;
        Some(if in_memory { TierName::Memory } else { TierName::Flash })
    };
    let member = |who: &Incarnation, role: ReplicaRole| MemberReport {
        node: name_of(nodes, who.node),
        role,
        lag: lag_of(who),
        tier: medium_of(who),
    };
    let recorded = record.map(|record| record.members.as_slice()).unwrap_or_default();
    let is_owner = |who: &Incarnation| record.is_some_and(|record| record.owner == who.node);
    let role = |who: &Incarnation| if is_owner(who) { ReplicaRole::Owner } else { ReplicaRole::Member };
    let mut members: Vec<MemberReport> = recorded.iter().map(|who| member(who, role(who))).collect();
    for learner in &status.learners {
        let who = shown.peers.iter().find(|(peer, _)| peer.node == *learner).map(|(peer, _)| *peer);
        members.push(member(&who.unwrap_or(Incarnation::none(*learner)), ReplicaRole::Learner));
    }
    ClusterReport {
        state: status.state.into(),
        reason: status.reason.into(),
        since_s: (shown.at - status.since).as_secs_f64(),
        owner_reason: None,
        owner_since_s: None,
        told_ago_s: None,
        owner: record.map_or_else(String::new, |record| name_of(nodes, record.owner)),
        term: status.term.0,
        epoch: status.epoch.0,
        log: record.map(|record| record.log).into(),
        flushed: record.map(|record| record.flushed).into(),
        left: status.left.iter().map(|node| name_of(nodes, *node)).collect(),
        peers: definition.peers,
        min_peers: definition.min_peers,
        members,
        missing_replicas: Vec::new(),
        unfenced: record.map_or(0, |record| record.unfenced.len() as u32),
        known: known_report(status, nodes),
        address,
        fence: None,
        counters: counters(&shown.steps, &shown.told).map(|(name, value)| (name.to_owned(), value)).into(),
        forwarding: forwarding_report(&shown.forwarding),
        forwarders: shown.forwarders.iter().map(|node| name_of(nodes, *node)).collect(),
        predecessor_cache: shown.former.map(|former| PredecessorCacheReport {
            node: name_of(nodes, former.node),
            hits: former.hits,
            misses: former.misses,
            left_s: (former.until - shown.at).as_secs_f64(),
        }),
    }
}

/// Every counter with its name. A counter that core gains does not compile until it is named here.
pub fn counters(steps: &Counters, told: &PeerCounters) -> [(&'static str, u64); 24] {
    macro_rules! named {
        ($($step:ident),* ; $($word:ident as $name:literal),* $(,)?) => {{
            let Counters { $($step),* } = *steps;
            let PeerCounters { $($word),* } = *told;
            [$((stringify!($step), $step)),*, $(($name, $word)),*]
        }};
    }
    named!(
        terms_begun,
        take_overs,
        hand_overs,
        step_downs,
        locks_lost,
        seals_answered,
        members_dropped,
        members_added,
        tiers_formatted,
        older_terms_refused,
        other_incarnations_refused,
        changes_lost,
        changes_unknown,
        proofs,
        pins_ended,
        former_states;
        messages as "peer_messages",
        blocks as "peer_blocks",
        resends as "peer_resends",
        refusals as "peer_refusals",
        marks as "peer_marks",
        former_hits as "former_hits",
        former_misses as "former_misses",
        cached_blocks_sent as "cached_blocks_sent",
    )
}

/// What is told of the cluster's nodes.
pub fn of_nodes(nodes: &[NodeEntry], own: NodeId, links: &[LinkShown]) -> Vec<ClusterNodeReport> {
    let report = |entry: &NodeEntry| {
        let link = links.iter().find(|link| link.node == entry.node());
        ClusterNodeReport {
            name: entry.name.to_string(),
            node: format!("{:016x}", entry.node().0),
            own: entry.node() == own,
            fault_domain: entry.fault_domain.to_string(),
            addresses: entry.addresses.clone(),
            up: link.map(|link| link.up),
            channels: link.map(channels).unwrap_or_default(),
            duplicated: link.filter(|link| link.has_twins).map(|_| TWINS.to_owned()),
            compression: link.map(|link| compression(&link.status.compression)),
            evacuation: None,
        }
    };
    nodes.iter().map(report).collect()
}

fn compression(status: &CompressionStatus) -> CompressionReport {
    let (now, reason) = match status.decision {
        Decision::Off(why) => ("off", Some(why.to_string())),
        Decision::Pack(Packing::Plain) => ("off", None),
        Decision::Pack(Packing::Lz4) => ("lz4", None),
        Decision::Pack(Packing::Zstd) => ("zstd", None),
    };
    CompressionReport {
        now: now.to_owned(),
        reason,
        cores_max: status.cores,
        from_bytes: status.packed_from_bytes,
        to_bytes: status.packed_to_bytes,
        saved_bytes: status.packed_from_bytes.saturating_sub(status.packed_to_bytes),
        ratio: status.ratio(),
        cpu_s: status.cpu.as_secs_f64(),
    }
}

fn channels(link: &LinkShown) -> Vec<ChannelReport> {
    let report = |channel: &forebay_io::link::ChannelStatus| {
        let (phase, why) = match &channel.phase {
            link::ChannelPhase::Up => (ChannelPhase::Up, None),
            link::ChannelPhase::Beginning => (ChannelPhase::Beginning, None),
            link::ChannelPhase::Down(why) => (ChannelPhase::Down, why.as_ref().map(ToString::to_string)),
        };
        ChannelReport {
            address: channel.address.map(|address| address.to_string()),
            phase,
            multipath: channel.multipath,
            why,
            sent_bytes: channel.sent_bytes,
            received_bytes: channel.received_bytes,
            round_trip_us: channel.round_trip.map(|time| time.as_secs_f64() * 1e6),
            bytes_per_s: channel.rate,
            resent: channel.resent,
            failures: channel.failures,
        }
    };
    link.status.channels.iter().map(report).collect()
}
