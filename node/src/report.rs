//! What is told of volumes and the node, in the words that the API, the command line and the metrics share.

use crate::cluster::report::ClusterReport;
use crate::config::certificates::Clients;
use crate::config::{DestageName, PolicyName, TierName};
use crate::mailbox::Snapshot;
use crate::volume_store::Record;
use forebay_core::api::IoError;
use forebay_core::status::{BackingState, Counters, Phase, Policy};
use forebay_core::types::{BLOCK_BYTES, BlockIndex};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Name, and NBD export name.
    pub name: String,
    /// Identity.
    pub volume: String,
    /// Size.
    pub size_bytes: u64,
    /// `waiting`, `recovering`, `serving`, `stopping`, `stopped` or `failed`.
    pub phase: String,
    /// Why it is `waiting` or `failed`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
    /// When writes are acknowledged.
    pub policy: PolicyReport,
    /// The slow store.
    pub backing: BackingReport,
    /// The fast medium.
    pub tier: TierReport,
    /// Number of its owner, one more with each start.
    pub term: u32,
    /// NBD clients.
    pub connections: u32,
    /// Which of those with certificates may use it.
    #[serde(default)]
    pub clients: Clients,
    /// RAM for its frames besides a memory tier.
    pub memory_bytes: u64,
    /// How groups reach the backing.
    pub destage: DestageReport,
    /// What waits to be destaged.
    pub dirty: DirtyReport,
    /// Log positions.
    pub positions: Positions,
    /// Counters since the daemon's start.
    pub counters: BTreeMap<String, u64>,
    /// Of a volume of the cluster: who owns it, and who keeps its log.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cluster: Option<ClusterReport>,
}

/// Requested and effective policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolicyReport {
    /// As asked for.
    pub requested: PolicyName,
    /// As it is.
    pub effective: PolicyName,
    /// Code of why they differ, or `as-requested`.
    pub reason: String,
    /// For how long.
    pub since_s: f64,
}

/// Requested and effective way of destage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DestageReport {
    /// As asked for.
    pub requested: DestageName,
    /// As it is: `ordered` or `journaled`.
    pub effective: DestageName,
    /// Code of why.
    pub reason: String,
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
    /// As given.
    pub spec: String,
    /// How it is accessed.
    pub access: String,
    /// `awaiting-lock`, `replaying-journal`, `ready`, `held`, `failing` or `closed`.
    pub state: String,
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
    /// Medium.
    pub kind: TierName,
    /// Where.
    pub path: String,
    /// Size.
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
    pub drain_left_s: Option<f64>,
    pub drain_max_s: u64,
    pub waiting_writes: u32,
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

/// The node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeReport {
    /// Name: of a node of a cluster as that knows it, else of the host.
    #[serde(default)]
    pub name: String,
    /// Version of the daemon.
    pub version: String,
    /// Host.
    pub host: String,
    /// Process.
    pub pid: u32,
    /// Since its start.
    pub uptime_s: f64,
    /// `uring` or `threads`.
    pub io_mode: String,
    /// Why that one.
    pub io_why: String,
    /// Data-path threads.
    pub shards: u32,
    /// Bound on the daemon's memory, arenas included.
    pub memory_bytes_max: u64,
    /// Folder of records and flash tiers.
    pub state: String,
    /// How the history of its volumes fares.
    #[serde(default)]
    pub history: crate::history::writer::State,
    /// What its doctor has found at the last look, and whether that failed; none before the first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub doctor: Option<crate::doctor::rounds::Summary>,
    /// On which NUMA nodes its data path is, and why.
    #[serde(default)]
    pub placement: crate::placement::PlacementReport,
    /// Where NBD clients connect.
    pub nbd: Vec<String>,
    /// Where the dashboard is; none: it is not served over TCP.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub page: Option<String>,
    /// Volumes.
    pub volumes: u32,
    /// What in the cluster's coordinator is not used here, with why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub not_used: Vec<NotUsed>,
    /// What should be done about the cluster's coordinator, before nothing can be changed there any more.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub coordinator: Vec<CoordinatorTrouble>,
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

/// What is fixed while a volume is open.
#[derive(Clone, Debug)]
pub struct VolumeFacts {
    /// Name.
    pub name: String,
    /// Identity.
    pub volume: String,
    /// The backing, as given.
    pub backing: String,
    /// How it is accessed.
    pub access: String,
    /// Medium of the tier.
    pub tier_kind: TierName,
    /// Where it lies.
    pub tier_path: String,
    /// Its size.
    pub tier_bytes: u64,
    /// May lose acknowledged writes with the host.
    pub volatile: bool,
    /// RAM for frames besides a memory tier.
    pub memory_bytes: u64,
    /// Where its journal lies, or why it has no place for one.
    pub journal: Result<String, String>,
}

impl VolumeReport {
    /// Of a volume that runs. `displaced`: what became of its image, if it is not at its path.
    pub fn running(
        facts: &VolumeFacts,
        clients: &Clients,
        snapshot: &Snapshot,
        displaced: Option<String>,
    ) -> VolumeReport {
        let s = &snapshot.status;
        let (phase, problem) = phase_words(s.phase);
        let (state, error) = backing_words(s.backing, snapshot.damaged);
        VolumeReport {
            name: facts.name.clone(),
            volume: facts.volume.clone(),
            size_bytes: s.size_bytes,
            phase: phase.to_owned(),
            problem,
            policy: PolicyReport {
                requested: policy_name(s.requested),
                effective: policy_name(s.effective),
                reason: s.reason.code().to_owned(),
                since_s: (snapshot.at - s.reason_since).as_secs_f64(),
            },
            backing: BackingReport {
                spec: facts.backing.clone(),
                access: facts.access.clone(),
                state: state.to_owned(),
                hold_left_s: s.hold_left.map(|left| left.as_secs_f64()),
                error,
                displaced,
            },
            tier: tier_report(facts),
            term: s.term.0,
            connections: snapshot.connections,
            clients: clients.clone(),
            memory_bytes: facts.memory_bytes,
            destage: DestageReport {
                requested: s.destage.into(),
                effective: if s.journaled { DestageName::Journaled } else { DestageName::Ordered },
                reason: s.destage_reason.code().to_owned(),
                group_bytes_mean: s.group_bytes_mean,
                journal: facts.journal.clone().ok(),
                no_journal: facts.journal.clone().err(),
                journal_bytes: s.journal_bytes,
            },
            dirty: DirtyReport {
                bytes: s.dirty_bytes,
                bytes_max: s.dirty_bytes_max,
                dead_bytes: s.dead_bytes,
                clean_bytes: s.clean_bytes,
                groups_waiting: s.groups_waiting,
                oldest_s: s.oldest_dirty.as_secs_f64(),
                destage_bytes_per_s: s.destage_bytes_per_sec,
                drain_left_s: s.drain_left.map(|left| left.as_secs_f64()),
                drain_max_s: s.drain_max.0 / 1_000_000_000,
                waiting_writes: s.waiting_writes,
            },
            positions: Positions { accepted: s.accepted.0, held: s.held.0, synced: s.synced.0, destaged: s.destaged.0 },
            counters: counters(&s.counters).into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            cluster: None,
        }
    }

    /// Of a volume that does not run.
    pub fn absent(facts: &VolumeFacts, record: &Record, phase: &str, problem: &str) -> VolumeReport {
        let (size_bytes, policy) = (record.size_bytes, record.policy);
        VolumeReport {
            name: facts.name.clone(),
            volume: facts.volume.clone(),
            size_bytes,
            phase: phase.to_owned(),
            problem: Some(problem.to_owned()),
            policy: PolicyReport {
                requested: policy,
                effective: policy,
                reason: "as-requested".to_owned(),
                since_s: 0.0,
            },
            backing: BackingReport {
                spec: facts.backing.clone(),
                access: facts.access.clone(),
                state: "closed".to_owned(),
                hold_left_s: None,
                error: None,
                displaced: None,
            },
            tier: tier_report(facts),
            term: 0,
            connections: 0,
            clients: record.clients.clone(),
            memory_bytes: facts.memory_bytes,
            destage: DestageReport {
                requested: record.destage,
                effective: DestageName::Ordered,
                reason: "as-requested".to_owned(),
                group_bytes_mean: 0,
                journal: facts.journal.clone().ok(),
                no_journal: facts.journal.clone().err(),
                journal_bytes: 0,
            },
            dirty: DirtyReport::default(),
            positions: Positions::default(),
            counters: BTreeMap::new(),
            cluster: None,
        }
    }
}

fn tier_report(facts: &VolumeFacts) -> TierReport {
    TierReport {
        kind: facts.tier_kind,
        path: facts.tier_path.clone(),
        size_bytes: facts.tier_bytes,
        volatile: facts.volatile,
        changing: None,
    }
}

fn policy_name(policy: Policy) -> PolicyName {
    match policy {
        Policy::Through => PolicyName::Through,
        Policy::Back => PolicyName::Back,
    }
}

fn phase_words(phase: Phase) -> (&'static str, Option<String>) {
    match phase {
        Phase::Recovering => ("recovering", None),
        Phase::Following => ("following", None),
        Phase::Agreeing => ("agreeing", None),
        Phase::Serving => ("serving", None),
        Phase::Stopping => ("stopping", None),
        Phase::Stopped => ("stopped", None),
        Phase::Refused(reason) => ("failed", Some(reason.to_owned())),
    }
}

/// What keeps the backing from its work, while something does.
pub fn backing_trouble(snapshot: &Snapshot) -> Option<String> {
    backing_words(snapshot.status.backing, snapshot.damaged).1
}

fn backing_words(state: BackingState, damaged: Option<BlockIndex>) -> (&'static str, Option<String>) {
    match state {
        BackingState::AwaitingLock => ("awaiting-lock", None),
        BackingState::ReplayingJournal => ("replaying-journal", None),
        BackingState::Ready => ("ready", None),
        BackingState::Held => ("held", None),
        BackingState::Failing(IoError::Checksum) => ("failing", Some(damage_words(damaged))),
        BackingState::Failing(error) => ("failing", Some(error_words(error).to_owned())),
    }
}

/// The backing is well then, but gets nothing past a record whose payload changed in the tier.
fn damage_words(damaged: Option<BlockIndex>) -> String {
    let place = match damaged {
        Some(block) => format!("the tier's copy of bytes {} to {}", block.byte(), block.byte() + BLOCK_BYTES - 1),
        None => "a block in the tier".to_owned(),
    };
    format!(
        "{place} does not match its checksum: it and what was written after it stays in the tier; stop the daemon, \
         and `forebay salvage` copies out what is whole"
    )
}

fn error_words(error: IoError) -> &'static str {
    match error {
        IoError::Failed => "the device reports an error",
        IoError::NoSpace => "no space left",
        IoError::Gone => "the device is gone",
        IoError::Checksum => "a block did not match its checksum",
        IoError::Unsupported => "the operation is not supported",
    }
}

/// Every counter with its name. A counter that core gains does not compile until it is named here.
pub fn counters(c: &Counters) -> [(&'static str, u64); 31] {
    macro_rules! named {
        ($($name:ident),* $(,)?) => {{
            let Counters { $($name),* } = *c;
            [$((stringify!($name), $name)),*]
        }};
    }
    named!(
        reads,
        read_bytes,
        writes,
        write_bytes,
        zeros,
        zero_bytes,
        flushes,
        read_blocks_from_log,
        read_blocks_from_cache,
        read_blocks_of_zeros,
        read_blocks_from_backing,
        superseded_blocks,
        destaged_blocks,
        backing_writes,
        backing_write_bytes,
        backing_reads,
        backing_syncs,
        backing_errors,
        journal_batches,
        journal_writes,
        journal_write_bytes,
        journal_left_out,
        tier_writes,
        tier_write_blocks,
        tier_syncs,
        tier_errors,
        compacted_blocks,
        evictions,
        fills_dropped,
        checksum_errors,
        throttled_writes,
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use forebay_core::status::{DestageMode, DestageReason, Reason, Status};
    use forebay_core::types::{Duration, Instant, Lsn, Term};

    /// A node with one volume, for the tests of what is made of reports.
    pub(crate) fn example() -> (NodeReport, VolumeReport) {
        let node = NodeReport {
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
            doctor: Some(crate::doctor::rounds::Summary {
                at: Some("then".to_owned()),
                problem: Some("a device does not answer".to_owned()),
                errors: 1,
                notes: 2,
                ..Default::default()
            }),
            placement: crate::placement::example(),
            nbd: vec!["unix:/n".into()],
            page: None,
            volumes: 1,
            not_used: vec![NotUsed { key: "/forebay/lab/node/x".into(), why: "it is damaged".into() }],
            coordinator: vec![CoordinatorTrouble { code: "etcd-no-space".into(), text: "it takes no writes".into() }],
        };
        let facts = VolumeFacts {
            name: "vm1".into(),
            volume: "0".into(),
            backing: "/x.img".into(),
            access: "O_DIRECT".into(),
            tier_kind: TierName::Flash,
            tier_path: "/t".into(),
            tier_bytes: 1 << 26,
            volatile: false,
            memory_bytes: 1 << 26,
            journal: Ok("/x.img.forebay-journal".into()),
        };
        let status = Status {
            phase: Phase::Serving,
            size_bytes: 1 << 30,
            term: Term(2),
            requested: Policy::Back,
            effective: Policy::Through,
            reason: Reason::TierError,
            reason_since: Instant(1_000_000_000),
            backing: BackingState::Failing(IoError::NoSpace),
            hold_left: Some(Duration::from_secs(1)),
            destage: DestageMode::Auto,
            journaled: true,
            destage_reason: DestageReason::SmallGroups,
            journal_bytes: 1 << 27,
            group_bytes_mean: 4096,
            dirty_bytes: 4096,
            dead_bytes: 0,
            dirty_bytes_max: 1 << 25,
            clean_bytes: 0,
            groups_waiting: 1,
            oldest_dirty: Duration::from_secs(1),
            destage_bytes_per_sec: 0,
            drain_left: Some(Duration::default()),
            drain_max: Duration::default(),
            waiting_writes: 0,
            accepted: Lsn(4),
            held: Lsn(3),
            committed: Lsn(3),
            synced: Lsn(2),
            destaged: Lsn(1),
            counters: Counters { writes: 7, ..Counters::default() },
        };
        let snapshot = Snapshot {
            status,
            at: Instant(3_500_000_000),
            connections: 1,
            request_bytes_max: 1 << 20,
            damaged: None,
            seen: None,
        };
        (node, VolumeReport::running(&facts, &Clients::Any, &snapshot, Some("the image was deleted".into())))
    }

    #[test]
    fn damage_is_told_with_its_place() {
        let words = backing_words(BackingState::Failing(IoError::Checksum), Some(BlockIndex(7))).1.unwrap();
        assert!(words.contains("bytes 28672 to 32767") && words.contains("salvage"), "{words}");
    }

    #[test]
    fn report_names_the_reason_and_its_age_and_survives_json() {
        let (_, report) = example();
        assert_eq!(report.policy.reason, "tier-error");
        assert_eq!(report.policy.since_s, 2.5);
        assert_eq!(
            (report.destage.effective, report.destage.reason.as_str()),
            (DestageName::Journaled, "small-groups")
        );
        assert_eq!(report.backing.error.as_deref(), Some("no space left"));
        let text = serde_json::to_string(&report).unwrap();
        let back: VolumeReport = serde_json::from_str(&text).unwrap();
        assert_eq!(back.counters["writes"], 7);
        assert_eq!(back.policy.effective, PolicyName::Through);
    }
}
