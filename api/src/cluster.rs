//! What is told of a cluster's volumes and nodes: the words of the API and the command line.
//!
//! Plain values. Who fills them: the daemon.

use crate::config::TierName;
use crate::words::{ChannelPhase, EvacuationState, FlushedBy, LogNeed, MemberState, OwnershipReason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A volume of the cluster, as this node sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterReport {
    /// Where this node stands.
    pub state: MemberState,
    /// Why, or what it waits for.
    pub reason: OwnershipReason,
    /// For how many seconds this node has stood there.
    pub since_s: f64,
    /// Name of the node that owns it; empty while the record has not been read.
    pub owner: String,
    /// What the owner waits for, as it has told. None where this node is the owner, or has heard nothing
    /// of it for long.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub owner_reason: Option<OwnershipReason>,
    /// For how many seconds the owner has waited for that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub owner_since_s: Option<f64>,
    /// How long ago the owner has told this, the policy and its reason, the lag of the members, and what is dirty.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub told_ago_s: Option<f64>,
    /// Number of the present owner; greater with each new one.
    pub term: u32,
    /// Number of the set of members within the term.
    pub epoch: u32,
    /// Who may become owner.
    pub log: LogNeed,
    /// What logs are worth of all that a flush was answered for, when every member loses its power.
    #[serde(default)]
    pub flushed: FlushedBy,
    /// Where nobody serves it: members that lost their power, and answer with what was synced of the log.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub left: Vec<String>,
    /// Copies besides the owner's that are asked for.
    pub peers: u8,
    /// With fewer the backing must have each write as well.
    pub min_peers: u8,
    /// The nodes that keep the log, the owner among them.
    pub members: Vec<MemberReport>,
    /// Where there are fewer copies than asked for: nodes that keep none, and why, as far as it is known.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub missing_replicas: Vec<MissingReplica>,
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
    pub predecessor_cache: Option<PredecessorCacheReport>,
}

/// The newest record that a node has seen, after the coordinator went back (C3, C6).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KnownReport {
    /// Number of that record's owner.
    pub term: u32,
    /// Number of the set of members within the term.
    pub epoch: u32,
    /// Name of the node that was the owner.
    pub owner: String,
    /// What the coordinator shows, if that is older.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shown_term: Option<u32>,
    /// The number of the set of members that the coordinator shows, if that is older.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shown_epoch: Option<u32>,
    /// Nodes that have not said what they know since the coordinator went back.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unheard: Vec<String>,
}

/// Reads from the cache of the owner that has handed over; counts are blocks, of this term.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PredecessorCacheReport {
    /// Name of the former owner's node.
    pub node: String,
    /// Blocks of reads that were found in its cache.
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
    /// Each means of knowing that a former owner writes no more.
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
    /// How much it is worth: `fence`, `evidence` or `detection`.
    pub class: String,
    /// What is certain once it has succeeded.
    pub proves: String,
    /// What stays uncertain all the same.
    pub leaves: String,
    /// When a fence was last proven: from this node; a watchdog: by the node that has it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_proven_unix_s: Option<u64>,
}

/// A former owner about whom there is no proof.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FormerReport {
    /// The term in which it was the owner.
    pub term: u32,
    /// Name of the node that it was.
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
    /// Clients that are connected to this node now.
    pub clients: u64,
    /// Requests that no owner has answered yet; they wait while there is none.
    pub waiting: u64,
    /// Requests that were forwarded to an owner.
    pub requests: u64,
    /// Bytes of reads and writes among them.
    pub bytes: u64,
    /// Requests that were asked again, of another owner or by another connection.
    pub again: u64,
}

/// What a node is to the log of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaRole {
    /// It serves the volume.
    Owner,
    /// It keeps the log, and the record names it.
    Member,
    /// It is taught the log, and counts for nothing yet.
    Learner,
    /// The record has not been read yet.
    Unknown,
}

impl ReplicaRole {
    /// The word that JSON has for it.
    pub fn word(self) -> &'static str {
        match self {
            ReplicaRole::Owner => "owner",
            ReplicaRole::Member => "member",
            ReplicaRole::Learner => "learner",
            ReplicaRole::Unknown => "unknown",
        }
    }
}

/// A node that keeps the log of a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemberReport {
    /// Name of that node.
    pub node: String,
    /// What it is to the log; never unknown.
    pub role: ReplicaRole,
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
    /// Name of the node in the cluster.
    pub name: String,
    /// The node's number, as 16 hexadecimal digits.
    pub node: String,
    /// It is the node that tells this.
    pub own: bool,
    /// What fails together with it.
    pub fault_domain: String,
    /// Addresses at which its links listen, with ports.
    pub addresses: Vec<String>,
    /// The link to it works; none of the own node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub up: Option<bool>,
    /// Each channel of the link to it; empty for the own node.
    pub channels: Vec<ChannelReport>,
    /// Two daemons run with its identity: what has shown it, and what to do. None: nothing shows that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duplicated: Option<String>,
    /// What is done with payload that goes there; none of the own node.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub compression: Option<CompressionReport>,
    /// It is to be evacuated, and how far that is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evacuation: Option<EvacuationReport>,
}

/// Compression of what goes to another node, since the daemon's start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CompressionReport {
    /// What it does now: `off`, `lz4` or `zstd`.
    pub now: String,
    /// Why nothing is compressed now; none while something is.
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
    /// `from_bytes` divided by `to_bytes`; none while nothing was compressed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio: Option<f64>,
    /// CPU time that it has taken, trials that were of no use included.
    pub cpu_s: f64,
}

/// How far a node is with being evacuated.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EvacuationReport {
    /// How far it is.
    pub state: EvacuationState,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// What it still owns or has a copy of.
    pub keeps: Vec<KeptReport>,
}

/// A volume that a node still owns or has a copy of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptReport {
    /// Name of that volume.
    pub volume: String,
    /// What the node is to its log; never a learner.
    pub role: ReplicaRole,
    /// What is done about it, or what keeps it here.
    pub why: String,
    /// It stays here until something changes in the cluster, or in what is asked of the volume.
    pub stays: bool,
}

/// A channel of a link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChannelReport {
    /// The other end's address; none where it is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub address: Option<String>,
    /// How far it is.
    pub phase: ChannelPhase,
    /// It is Multipath TCP, at both ends.
    pub multipath: bool,
    /// Why it is down, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// Sent in all its lives.
    pub sent_bytes: u64,
    /// Received in all its lives.
    pub received_bytes: u64,
    /// The smallest of the last round trips.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub round_trip_us: Option<f64>,
    /// Bytes a second that it was seen to carry.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_per_s: Option<f64>,
    /// Messages that it carried because another channel had died with them, or was late.
    pub resent: u64,
    /// Times that it has ended, or did not come about.
    pub failures: u64,
}

/// A volume of a cluster with one of everything, for the tests of what is made of it.
#[cfg(any(test, feature = "examples"))]
pub fn example_volume() -> ClusterReport {
    let means = MeansReport {
        means: "power".to_owned(),
        of: "beta".to_owned(),
        by: Some("fence_ipmilan".to_owned()),
        class: "fence".to_owned(),
        proves: "beta is off".to_owned(),
        leaves: "nothing".to_owned(),
        last_proven_unix_s: Some(1_700_000_000),
    };
    ClusterReport {
        state: MemberState::Following,
        reason: OwnershipReason::AsItShouldBe,
        since_s: 1.0,
        owner: "beta".to_owned(),
        owner_reason: Some(OwnershipReason::TooFewMembers),
        owner_since_s: Some(2.0),
        told_ago_s: Some(0.5),
        term: 3,
        epoch: 2,
        log: LogNeed::Needed,
        flushed: FlushedBy::Durable,
        left: vec!["alpha".to_owned()],
        peers: 1,
        min_peers: 1,
        members: vec![MemberReport {
            node: "beta".to_owned(),
            role: ReplicaRole::Owner,
            lag: Some(0),
            tier: Some(TierName::Flash),
        }],
        missing_replicas: vec![MissingReplica { node: "gamma".to_owned(), why: "no room".to_owned() }],
        unfenced: 1,
        known: Some(KnownReport {
            term: 3,
            epoch: 2,
            owner: "beta".to_owned(),
            shown_term: Some(2),
            shown_epoch: Some(1),
            unheard: vec!["gamma".to_owned()],
        }),
        address: None,
        fence: Some(FenceReport {
            class: "fence".to_owned(),
            allows: "a take-over".to_owned(),
            means: vec![means],
            former: vec![FormerReport {
                term: 2,
                node: "alpha".to_owned(),
                waiting_s: 1.0,
                why: vec!["it does not answer".to_owned()],
            }],
        }),
        counters: BTreeMap::from([("take_overs".to_owned(), 1)]),
        forwarding: ForwardingReport::default(),
        forwarders: vec!["gamma".to_owned()],
        predecessor_cache: Some(PredecessorCacheReport { node: "alpha".to_owned(), hits: 1, misses: 2, left_s: 3.0 }),
    }
}

/// One of everything, for the tests of what is made of it.
#[cfg(any(test, feature = "examples"))]
pub fn example_node() -> ClusterNodeReport {
    let channel = |phase: ChannelPhase| ChannelReport {
        address: Some("10.0.0.2:7071".to_owned()),
        multipath: false,
        why: (phase == ChannelPhase::Down).then(|| "nobody listens there".to_owned()),
        phase,
        sent_bytes: 1000,
        received_bytes: 500,
        round_trip_us: Some(0.1),
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
        channels: vec![channel(ChannelPhase::Up), channel(ChannelPhase::Down)],
        duplicated: None,
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
        evacuation: Some(EvacuationReport {
            state: EvacuationState::Evacuating,
            since_ms: 1_700_000_000_000,
            keeps: vec![KeptReport {
                volume: "vm1".to_owned(),
                role: ReplicaRole::Owner,
                why: "it is being handed over".to_owned(),
                stays: false,
            }],
        }),
    }
}

/// Where the address of a volume is, as a node sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressState {
    /// On this node, which serves the volume.
    Here,
    /// Not on this node, which does not serve the volume.
    Elsewhere,
    /// The volume is served here, and its address is not, or nobody was told.
    Failed,
}

impl AddressState {
    /// The word that JSON has for it.
    pub fn word(self) -> &'static str {
        match self {
            AddressState::Here => "here",
            AddressState::Elsewhere => "elsewhere",
            AddressState::Failed => "failed",
        }
    }
}

/// An address at a glance, on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressReport {
    /// The address, with the bits of its network.
    pub address: String,
    /// The interface that has it here, or the one asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interface: Option<String>,
    /// Whether this node has the address.
    pub state: AddressState,
    /// Why it failed, and what to do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
}

/// A node that keeps no copy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissingReplica {
    /// Name of the node that keeps no copy.
    pub node: String,
    /// Why it keeps none, in words for people.
    pub why: String,
}

/// A line of the audit log.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct AuditReport {
    /// Milliseconds since 1970 by the clock of the node that was told.
    pub at_ms: u64,
    /// The node that was told.
    pub node: String,
    /// The volume, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volume: Option<String>,
    /// What was decided.
    pub action: String,
    /// By whose word it was decided, and what that means.
    pub words: String,
}
