//! What is told of volumes and the node: the words that the API, the command line, the metrics and the dashboard share.
//!
//! Plain values. Who fills them: the daemon.

use crate::cluster::ClusterReport;
use crate::config::volume::Common;
use crate::config::{DestageName, PolicyName, TierName};
use crate::sentence::{Language, Sentence};
use crate::told::{self, Told};
use crate::words::{BackingState, DestageReason, PolicyReason, VolumePhase};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A volume as it is now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Name, and NBD export name.
    pub name: String,
    /// Identity of the volume, as text.
    pub volume: String,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// How far it is with being served.
    pub phase: VolumePhase,
    /// Why it is `waiting` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
    /// When writes are acknowledged, as asked for and as it is.
    pub policy: PolicyReport,
    /// The slow store under it.
    pub backing: BackingReport,
    /// The fast medium before its backing.
    pub tier: TierReport,
    /// Number of its owner, one more with each start.
    pub term: u32,
    /// NBD clients that are connected now.
    pub connections: u32,
    /// What its record and its definition have as well.
    #[serde(flatten, serialize_with = "Common::show")]
    pub common: Common,
    /// RAM for its frames besides a memory tier.
    pub memory_bytes: u64,
    /// How groups reach the backing.
    pub destage: DestageReport,
    /// What waits to be destaged.
    pub dirty: DirtyReport,
    /// How far its log has got, as positions in it.
    pub positions: Positions,
    /// Counters since the daemon's start.
    pub counters: BTreeMap<String, u64>,
    /// Of a volume of the cluster: who owns it, and who keeps its log.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cluster: Option<ClusterReport>,
}

/// When writes are acknowledged, as asked for and as it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyReport {
    /// The policy that the user asked for.
    pub requested: PolicyName,
    /// The policy that is followed now.
    pub effective: PolicyName,
    /// Why they differ, or that it is as requested.
    pub reason: PolicyReason,
    /// For how many seconds that has been so.
    pub since_s: f64,
}

/// Requested and effective way of destage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DestageReport {
    /// The way that the user asked for.
    pub requested: DestageName,
    /// The way that is followed now: `ordered` or `journaled`.
    pub effective: DestageName,
    /// Why it is done so.
    pub reason: DestageReason,
    /// Mean size of the groups that clients make.
    pub group_bytes_mean: u64,
    /// The journal beside the image, where it lies or would lie.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub journal: Option<String>,
    /// Why there is no place for one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub no_journal: Option<String>,
    /// Size of the journal; 0 while there is none.
    pub journal_bytes: u64,
}

/// The slow store under a volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackingReport {
    /// The backing's spec, as the user gave it.
    pub spec: String,
    /// How it is accessed.
    pub access: String,
    /// How it fares.
    pub state: BackingState,
    /// Time until a hold ends by itself, while it is held.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hold_left_s: Option<f64>,
    /// The last error, while it is failing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// What became of the image, while it is not at its path: it was deleted, moved or replaced.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub displaced: Option<String>,
}

/// The fast medium before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TierReport {
    /// The medium that it is on.
    pub kind: TierName,
    /// Path of its file or block device.
    pub path: String,
    /// Size of the tier in bytes.
    pub size_bytes: u64,
    /// May lose acknowledged writes with the host.
    pub volatile: bool,
    /// How far a change of its medium is, while there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub changing: Option<TierChangeReport>,
}

/// A change of a tier's medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierChangeReport {
    /// The medium that it is to have.
    pub to: TierName,
    /// `preparing`, `draining`, `switching`, or `members`: the nodes of a cluster change one after the other.
    pub stage: String,
    /// What the backing must have first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub left_bytes: Option<u64>,
    /// Nodes whose copies are on the former medium still, the owner last.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub nodes: Vec<String>,
    /// What it waits for, where that is not plain.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waits: Option<String>,
}

/// What waits to be destaged.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // each name says what it is
pub struct DirtyReport {
    pub bytes: u64,
    pub bytes_max: u64,
    pub dead_bytes: u64,
    pub clean_bytes: u64,
    pub groups_waiting: u32,
    pub oldest_s: f64,
    pub destage_bytes_per_s: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drain_s: Option<f64>,
    pub drain_max_s: u64,
    pub waiting_writes: u32,
    /// For how long the oldest write or flush has waited that was taken and not answered. Told where it is long, as what is degraded.
    #[serde(skip)]
    pub unanswered_s: f64,
}

/// Log positions; each is at most the one before it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[allow(missing_docs)] // each name says what it is
pub struct Positions {
    pub accepted: u64,
    pub held: u64,
    pub synced: u64,
    pub destaged: u64,
}

/// The node and its daemon as they are now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeReport {
    /// Name: of a node of a cluster as that knows it, else of the host.
    #[serde(default)]
    pub name: String,
    /// Version of the daemon that runs.
    pub version: String,
    /// Name of the host that it runs on.
    pub host: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Seconds since the daemon's start.
    pub uptime_s: f64,
    /// How it does its I/O: `uring` or `threads`.
    pub io_mode: String,
    /// Why it does its I/O in that way.
    pub io_why: String,
    /// How many data-path threads there are.
    pub shards: u32,
    /// Bound on the daemon's memory, arenas included.
    pub memory_bytes_max: u64,
    /// Folder of records and flash tiers.
    pub state: String,
    /// How the history of its volumes fares.
    #[serde(default)]
    pub history: HistoryState,
    /// What its doctor has found at the last look, and whether that failed; none before the first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub doctor: Option<DoctorSummary>,
    /// On which NUMA nodes its data path is, and why.
    #[serde(default)]
    pub placement: crate::placement::PlacementReport,
    /// Addresses at which NBD clients can connect.
    pub nbd: Vec<String>,
    /// Where the dashboard is; none: it is not served over TCP.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub page: Option<String>,
    /// Why the address that its config gives the dashboard is not listened on yet; it is tried again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub no_page: Option<String>,
    /// How many volumes it knows: its own and the cluster's.
    pub volumes: u32,
    /// What in the cluster's coordinator is not used here, with why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub not_used: Vec<NotUsed>,
    /// What should be done about the cluster's coordinator, before nothing can be changed there any more.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub coordinator: Vec<CoordinatorTrouble>,
    /// What is not as it should be with this node and those that it is linked to, at the last look of each second.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub degraded: Vec<Degraded>,
}

/// Something that is not as it should be with the coordinator itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoordinatorTrouble {
    /// `etcd-no-space`, `etcd-corrupt`, `etcd-alarm` or `etcd-nearly-full`.
    pub code: String,
    /// Which member, what, and what to do.
    pub text: String,
}

/// A key of the coordinator whose value is not used.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NotUsed {
    /// The key, as far as it is plain text.
    pub key: String,
    /// Why, and what to do.
    pub why: String,
}

/// How the files of the history fare.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryState {
    /// What fails, on what, and what to do; none while all is well.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
    /// Points and events that were not written since the daemon's start.
    pub dropped: u64,
    /// Files of volumes and of the node.
    pub files: u32,
    /// What they take of the disk.
    pub bytes: u64,
    /// What was put aside: damaged files, and why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub put_aside: Vec<String>,
}

/// The same in a line, for the node's report and the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorSummary {
    /// When the last look ended that saw something, RFC 3339; none before the first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<String>,
    /// Why the last look failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
    /// Findings: something is broken, or most of what the hardware can do is lost.
    pub errors: usize,
    /// Findings that cost throughput or latency.
    pub warnings: usize,
    /// Findings that are worth knowing, and cost little.
    pub notes: usize,
    /// Checks that could not look.
    pub hidden: usize,
    /// Sensors of the board, for the metrics alone: the doctor's own report has them.
    #[serde(skip)]
    pub sensors: Vec<Reading>,
    /// How many entries the board's event log has, for the metrics alone.
    #[serde(skip)]
    pub log_entries: Option<usize>,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Degraded {
    /// The volume, if it is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volume: Option<String>,
    /// The node, if it is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<String>,
    /// A word of a closed list.
    pub code: String,
    /// What is wrong, as a sentence for people.
    pub text: String,
    /// The same in any language, where the daemon keeps it; told is the text.
    #[serde(skip)]
    pub sentence: Option<Sentence>,
    /// For how long, as far as this daemon has seen it.
    pub since_s: f64,
}

/// A sensor's number, for the metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Name of the sensor, as the controller prints it.
    pub sensor: String,
    /// The number, as the controller prints it.
    pub value: String,
    /// `degrees C`, `RPM`, `Volts`, `Watts` ...
    pub unit: String,
}

impl Degraded {
    /// Something that is not as it should be with a node.
    pub fn of_node(node: &str, code: &str, told: impl Into<Told>) -> Degraded {
        let Told { text, sentence } = told.into();
        Degraded { volume: None, node: Some(node.to_owned()), code: code.to_owned(), text, sentence, since_s: 0.0 }
    }

    /// Something that is not as it should be with a volume.
    pub fn of_volume(volume: &str, code: &str, told: impl Into<Told>) -> Degraded {
        let Told { text, sentence } = told.into();
        Degraded { volume: Some(volume.to_owned()), node: None, code: code.to_owned(), text, sentence, since_s: 0.0 }
    }

    /// The same in a language, where it is a sentence of [`crate::told`].
    #[must_use]
    pub fn spoken(&self, language: Language) -> Degraded {
        let said = self.sentence.as_ref().and_then(|sentence| told::say(language, sentence));
        Degraded { text: said.unwrap_or_else(|| self.text.clone()), ..self.clone() }
    }

    /// What makes it the same from look to look.
    pub fn key(&self) -> (Option<String>, Option<String>, String) {
        (self.volume.clone(), self.node.clone(), self.code.clone())
    }
}

/// A node with one of everything, for the tests of what is made of its report.
#[cfg(any(test, feature = "examples"))]
pub fn example_node() -> NodeReport {
    NodeReport {
        name: "alpha".into(),
        version: "0.1.0".into(),
        host: "a".into(),
        pid: 1,
        uptime_s: 2.5,
        io_mode: "uring".into(),
        io_why: "it works".into(),
        shards: 1,
        memory_bytes_max: 1 << 30,
        state: "/s".into(),
        history: Default::default(),
        doctor: Some(DoctorSummary {
            at: Some("then".to_owned()),
            problem: Some("a device does not answer".to_owned()),
            errors: 1,
            notes: 2,
            ..Default::default()
        }),
        placement: crate::placement::example(),
        nbd: vec!["unix:/n".into()],
        page: None,
        no_page: Some("another process has its address".into()),
        volumes: 1,
        not_used: vec![NotUsed { key: "/forebay/lab/node/x".into(), why: "it is damaged".into() }],
        coordinator: vec![CoordinatorTrouble { code: "etcd-no-space".into(), text: "it takes no writes".into() }],
        degraded: Vec::new(),
    }
}

/// A volume whose tier and backing fail, for the tests of what is made of its report.
#[cfg(any(test, feature = "examples"))]
pub fn example_volume() -> VolumeReport {
    VolumeReport {
        name: "vm1".into(),
        volume: "0".into(),
        size_bytes: 1 << 30,
        phase: "serving".into(),
        problem: None,
        policy: PolicyReport {
            requested: PolicyName::Back,
            effective: PolicyName::Through,
            reason: "tier-error".into(),
            since_s: 2.5,
        },
        backing: BackingReport {
            spec: "/x.img".into(),
            access: "O_DIRECT".into(),
            state: "failing".into(),
            hold_left_s: Some(1.0),
            error: Some("no space left".into()),
            displaced: Some("the image was deleted".into()),
        },
        tier: TierReport {
            kind: TierName::Flash,
            path: "/t".into(),
            size_bytes: 1 << 26,
            volatile: false,
            changing: None,
        },
        term: 3,
        connections: 1,
        common: Common::default(),
        memory_bytes: 1 << 24,
        destage: DestageReport {
            requested: DestageName::Auto,
            effective: DestageName::Journaled,
            reason: "small-groups".into(),
            group_bytes_mean: 4096,
            journal: Some("/x.img.forebay-journal".into()),
            no_journal: None,
            journal_bytes: 1 << 27,
        },
        dirty: DirtyReport {
            bytes: 4096,
            bytes_max: 1 << 25,
            groups_waiting: 1,
            oldest_s: 1.0,
            drain_s: Some(0.0),
            ..DirtyReport::default()
        },
        positions: Positions { accepted: 4, held: 3, synced: 2, destaged: 1 },
        counters: [("writes".to_owned(), 7)].into(),
        cluster: None,
    }
}
