//! What is told of a cluster's volumes and nodes, in words for the API and the command line.

use super::addresses::AddressReport;
use super::driver::{LinkShown, Shown};
use super::without_copy::WithoutCopy;
use crate::config::TierName;
use crate::coordinator::words::{Definition, NodeEntry};
use crate::forward::Figures;
use forebay_core::cluster::{Flushed, Incarnation, LogState, NodeId, Unfenced};
use forebay_core::ownership::{Counters, Status};
use forebay_core::status::PeerCounters;
use forebay_core::wire::Packing;
use forebay_io::link::{ChannelPhase, CompressionStatus, Decision};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// A volume of the cluster, as this node sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterReport {
    /// Where this node stands: `no-member`, `learner`, `following`, `sealed`, `agreeing`, `owner`, `custodian` or
    /// `stepping-down`.
    pub state: String,
    /// Code of why, or of what it waits for.
    pub reason: String,
    /// For how long.
    pub since_s: f64,
    /// Who owns it.
    pub owner: String,
    /// What the owner waits for, as it has told: a code as in `reason`. None where this node is the owner, or has heard nothing
    /// of it for long.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub owner_reason: Option<String>,
    /// For how long.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub owner_since_s: Option<f64>,
    /// How long ago the owner has told this, the policy and its reason, the lag of the members, and what is dirty.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub told_ago_s: Option<f64>,
    /// Number of the owner.
    pub term: u32,
    /// Number of the set of members within the term.
    pub config: u32,
    /// Who may become owner: `needed`, `through` or `released`.
    pub log: String,
    /// What logs are worth of all that a flush was answered for, when every member loses its power: `durable`, `held`, or
    /// `unrecorded`: the record does not say.
    #[serde(default)]
    pub flushed: String,
    /// Where nobody serves it: members that lost their power, and answer with what was synced of the log.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub left: Vec<String>,
    /// Copies besides the owner's that are asked for.
    pub peers: u8,
    /// With fewer the backing must have each write as well.
    pub min_peers: u8,
    /// Who keeps the log.
    pub members: Vec<MemberReport>,
    /// Where there are fewer copies than asked for: nodes that keep none, and why, as far as it is known.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub without_copy: Vec<WithoutCopy>,
    /// Former owners that may still write to the backing.
    pub unfenced: u32,
    /// What this node knows of the record, where the coordinator shows less or nodes are waited for since it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub known: Option<KnownReport>,
    /// Where clients reach it, whichever node serves it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<AddressReport>,
    /// What keeps former owners from writing to the backing, or shows that they do no more.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fence: Option<FenceReport>,
    /// How often each step of the protocol was taken on this node since its start.
    #[serde(default)]
    pub counters: BTreeMap<String, u64>,
    /// What this node does for its clients, whose requests the owner answers.
    #[serde(default)]
    pub forwarding: ForwardingReport,
    /// Nodes whose clients' requests come here.
    #[serde(default)]
    pub forwarders: Vec<String>,
    /// Where reads go before the backing, at an owner that was handed the volume.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub former_cache: Option<FormerCacheReport>,
}

/// The newest record that a node has seen, after the coordinator went back (C3, C6).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KnownReport {
    /// Number of the owner.
    pub term: u32,
    /// Number of the set of members within the term.
    pub config: u32,
    /// Who it was.
    pub owner: String,
    /// What the coordinator shows, if that is older.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shown_term: Option<u32>,
    /// Likewise.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shown_config: Option<u32>,
    /// Nodes that have not said what they know since the coordinator went back.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unheard: Vec<String>,
}

fn known_report(status: &Status, nodes: &[NodeEntry]) -> Option<KnownReport> {
    let known = status.known.as_ref()?;
    let shown = status.went_back_to;
    let is_of_interest = shown.is_some() || !status.unheard.is_empty();
    is_of_interest.then(|| KnownReport {
        term: known.term.0,
        config: known.config.0,
        owner: name_of(nodes, known.owner),
        shown_term: shown.map(|(term, _)| term.0),
        shown_config: shown.map(|(_, config)| config.0),
        unheard: status.unheard.iter().map(|node| name_of(nodes, *node)).collect(),
    })
}

/// Reads from the cache of the owner that has handed over; counts are blocks, of this term.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FormerCacheReport {
    /// The former owner.
    pub node: String,
    /// Found there.
    pub hits: u64,
    /// Not there, or not in time: read from the backing.
    pub misses: u64,
    /// It is asked for so long at most.
    pub left_s: f64,
}

/// What is known about the writes of an owner that was given up, and what that is worth.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FenceReport {
    /// `fence`, `evidence` or `detection`: what there is about that other node about which there is least.
    pub class: String,
    /// What a volume may do on the strength of it.
    pub allows: String,
    /// What there is.
    pub means: Vec<MeansReport>,
    /// Former owners about whom there is no proof yet, as far as this node looks for it.
    pub former: Vec<FormerReport>,
}

/// A means of knowing that a former owner writes no more.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeansReport {
    /// `reservation`, `power`, `watchdog` or `image-lock`.
    pub means: String,
    /// The node that it is about, or `every node`.
    pub of: String,
    /// The agent, or the hardware.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub by: Option<String>,
    /// `fence`, `evidence` or `detection`.
    pub class: String,
    /// What is certain once it has succeeded.
    pub proves: String,
    /// What is not.
    pub leaves: String,
    /// When a fence was last proven: from this node; a watchdog: by the node that has it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_proven_unix_s: Option<u64>,
}

/// A former owner about whom there is no proof.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FormerReport {
    /// Its term.
    pub term: u32,
    /// Its node.
    pub node: String,
    /// For how long proof has been looked for.
    pub waiting_s: f64,
    /// Why there is none, in the words of each means.
    pub why: Vec<String>,
}

/// Clients of this node while another one owns the volume; counts are since the daemon's start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ForwardingReport {
    /// The owner has let this node in. It does so when there is a client.
    pub connected: bool,
    /// Clients now.
    pub clients: u64,
    /// Requests that no owner has answered yet; they wait while there is none.
    pub waiting: u64,
    /// Requests forwarded.
    pub requests: u64,
    /// Bytes of reads and writes among them.
    pub bytes: u64,
    /// Requests that were asked again, of another owner or by another connection.
    pub again: u64,
}

impl ForwardingReport {
    fn of(figures: &Figures) -> ForwardingReport {
        ForwardingReport {
            connected: figures.connected.load(Ordering::Relaxed),
            clients: figures.clients.load(Ordering::Relaxed),
            waiting: figures.waiting.load(Ordering::Relaxed),
            requests: figures.requests.load(Ordering::Relaxed),
            bytes: figures.bytes.load(Ordering::Relaxed),
            again: figures.again.load(Ordering::Relaxed),
        }
    }
}

/// A node that keeps the log of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemberReport {
    /// Its name.
    pub node: String,
    /// `owner`, `member` or `learner`.
    pub role: String,
    /// Records that the owner has and this one is not known to have; none for the owner, and where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lag: Option<u64>,
    /// The medium of its log; none where the owner is another node, and while it has not been said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tier: Option<TierName>,
}

/// A node of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterNodeReport {
    /// Its name.
    pub name: String,
    /// Its number.
    pub node: String,
    /// It is this one.
    pub own: bool,
    /// What fails together with it.
    pub fault_domain: String,
    /// Where its links listen.
    pub addresses: Vec<String>,
    /// The link to it works; none of the own node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub up: Option<bool>,
    /// Channels of that link.
    pub channels: Vec<ChannelReport>,
    /// What is done with payload that goes there; none of the own node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub compression: Option<CompressionReport>,
    /// It is to be emptied, and how far that is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub emptying: Option<EmptyingReport>,
}

/// Compression of what goes to another node, since the daemon's start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CompressionReport {
    /// `off`, `lz4` or `zstd`.
    pub now: String,
    /// Why it is off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Cores that it may take now.
    pub cores_max: f64,
    /// Payload that was sent compressed, as it was before.
    pub from_bytes: u64,
    /// The same, as it was sent.
    pub to_bytes: u64,
    /// What did not have to go over the wire.
    pub saved_bytes: u64,
    /// `from_bytes` / `to_bytes`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<f64>,
    /// CPU time that it has taken, trials that were of no use included.
    pub cpu_s: f64,
}

/// How far a node is with being emptied.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EmptyingReport {
    /// `draining` or `drained`.
    pub state: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// What it still owns or has a copy of.
    pub keeps: Vec<KeptReport>,
}

/// A volume that a node still owns or has a copy of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptReport {
    /// Its name.
    pub volume: String,
    /// `owner`, `member` or `unknown`.
    pub role: String,
    /// What is done about it, or what keeps it here.
    pub why: String,
    /// It stays here until something changes in the cluster, or in what is asked of the volume.
    pub stays: bool,
}

/// A channel of a link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChannelReport {
    /// Where it leads.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<String>,
    /// `up`, `beginning` or `down`.
    pub phase: String,
    /// It is Multipath TCP, at both ends.
    pub multipath: bool,
    /// Why it is down.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// Sent in all its lives.
    pub sent_bytes: u64,
    /// Received in all its lives.
    pub received_bytes: u64,
    /// The smallest of the last round trips.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub round_trip_ms: Option<f64>,
    /// Bytes a second that it was seen to carry.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_per_s: Option<f64>,
    /// Messages that it carried because another channel had died with them, or was late.
    pub resent: u64,
    /// Times that it has ended, or did not come about.
    pub failures: u64,
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

/// Of a volume.
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
    let member = |who: &Incarnation, role: &str| MemberReport {
        node: name_of(nodes, who.node),
        role: role.to_owned(),
        lag: lag_of(who),
        tier: medium_of(who),
    };
    let recorded = record.map(|record| record.members.as_slice()).unwrap_or_default();
    let role = |who: &Incarnation| if record.is_some_and(|r| r.owner == who.node) { "owner" } else { "member" };
    let mut members: Vec<MemberReport> = recorded.iter().map(|who| member(who, role(who))).collect();
    for learner in &status.learners {
        let who = shown.peers.iter().find(|(peer, _)| peer.node == *learner).map(|(peer, _)| *peer);
        members.push(member(&who.unwrap_or(Incarnation::none(*learner)), "learner"));
    }
    ClusterReport {
        state: status.state.code().to_owned(),
        reason: status.reason.code().to_owned(),
        since_s: (shown.at - status.since).as_secs_f64(),
        owner_reason: None,
        owner_since_s: None,
        told_ago_s: None,
        owner: record.map_or_else(String::new, |record| name_of(nodes, record.owner)),
        term: status.term.0,
        config: status.config.0,
        log: match record.map(|record| record.log) {
            Some(LogState::Needed) => "needed",
            Some(LogState::Through) => "through",
            Some(LogState::Released) => "released",
            None => "unknown",
        }
        .to_owned(),
        flushed: match record.map(|record| record.flushed) {
            Some(Flushed::Durable) => "durable",
            Some(Flushed::Held) => "held",
            Some(Flushed::Unrecorded) | None => "unrecorded",
        }
        .to_owned(),
        left: status.left.iter().map(|node| name_of(nodes, *node)).collect(),
        peers: definition.peers,
        min_peers: definition.min_peers,
        members,
        without_copy: Vec::new(),
        unfenced: record.map_or(0, |record| record.unfenced.len() as u32),
        known: known_report(status, nodes),
        address,
        fence: None,
        counters: counters(&shown.steps, &shown.told).map(|(name, value)| (name.to_owned(), value)).into(),
        forwarding: ForwardingReport::of(&shown.forwarding),
        forwarders: shown.forwarders.iter().map(|node| name_of(nodes, *node)).collect(),
        former_cache: shown.former.map(|former| FormerCacheReport {
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

/// Of the nodes.
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
            compression: link.map(|link| compression(&link.status.compression)),
            emptying: None,
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
            ChannelPhase::Up => ("up", None),
            ChannelPhase::Beginning => ("beginning", None),
            ChannelPhase::Down(why) => ("down", why.as_ref().map(ToString::to_string)),
        };
        ChannelReport {
            address: channel.address.map(|address| address.to_string()),
            phase: phase.to_owned(),
            multipath: channel.multipath,
            why,
            sent_bytes: channel.sent_bytes,
            received_bytes: channel.received_bytes,
            round_trip_ms: channel.round_trip.map(|time| time.as_secs_f64() * 1e3),
            bytes_per_s: channel.rate,
            resent: channel.resent,
            failures: channel.failures,
        }
    };
    link.status.channels.iter().map(report).collect()
}

#[cfg(test)]
pub fn example_node() -> ClusterNodeReport {
    let channel = |phase: &str| ChannelReport {
        address: Some("10.0.0.2:7071".to_owned()),
        phase: phase.to_owned(),
        multipath: false,
        why: (phase == "down").then(|| "nobody listens there".to_owned()),
        sent_bytes: 1000,
        received_bytes: 500,
        round_trip_ms: Some(0.1),
        bytes_per_s: Some(1e9),
        resent: 1,
        failures: 1,
    };
    ClusterNodeReport {
        name: "beta".to_owned(),
        node: "00000000000000b2".to_owned(),
        own: false,
        fault_domain: "rack-2".to_owned(),
        addresses: vec!["10.0.0.2:7071".to_owned()],
        up: Some(true),
        channels: vec![channel("up"), channel("down")],
        compression: Some(CompressionReport {
            now: "off".to_owned(),
            reason: Some("the wire carries all that comes".to_owned()),
            cores_max: 0.5,
            from_bytes: 300,
            to_bytes: 100,
            saved_bytes: 200,
            ratio: Some(3.0),
            cpu_s: 0.25,
        }),
        emptying: Some(EmptyingReport {
            state: "draining".to_owned(),
            since_ms: 1_700_000_000_000,
            keeps: vec![KeptReport {
                volume: "vm1".to_owned(),
                role: "owner".to_owned(),
                why: "it is being handed over".to_owned(),
                stays: false,
            }],
        }),
    }
}
