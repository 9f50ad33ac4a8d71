//! What is told of volumes and the node, in the words that the API, the command line and the metrics share.

use crate::datapath::mailbox::Snapshot;
use crate::facts::VolumeFacts;
use forebay_api::config::volume::Common;
use forebay_api::config::{DestageName, PolicyName};
use forebay_api::record::Record;
use forebay_api::status::{
    BackingReport, DestageReport, DirtyReport, PolicyReport, Positions, TierReport, VolumeReport,
};
use forebay_api::told::AWAITING_FENCE;
use forebay_api::words::{BackingState, DestageReason, PolicyReason, VolumePhase};
use forebay_core::status::{self as core, Counters, Phase, Policy};
use forebay_core::types::{BLOCK_BYTES, BlockIndex, IoError};
use std::collections::BTreeMap;

/// Of a volume that runs. `displaced`: what became of its image, if it is not at its path.
pub fn volume_running(
    facts: &VolumeFacts,
    common: &Common,
    snapshot: &Snapshot,
    displaced: Option<String>,
) -> VolumeReport {
    let s = &snapshot.status;
    let (phase, problem) = phase_and_problem(s.phase);
    let (state, error) = backing_and_error(snapshot);
    VolumeReport {
        name: facts.name.clone(),
        volume: facts.volume.clone(),
        size_bytes: s.size_bytes,
        phase,
        problem,
        policy: PolicyReport {
            requested: policy_name(s.requested),
            effective: policy_name(s.effective),
            reason: s.reason.into(),
            since_s: (snapshot.at - s.reason_since).as_secs_f64(),
        },
        backing: BackingReport {
            spec: facts.backing.clone(),
            access: facts.access.clone(),
            state,
            hold_left_s: s.hold_left.map(|left| left.as_secs_f64()),
            error,
            displaced,
        },
        tier: tier_report(facts),
        term: s.term.0,
        connections: snapshot.connections,
        common: common.clone(),
        memory_bytes: facts.memory_bytes,
        destage: DestageReport {
            requested: s.destage.into(),
            effective: if s.journaled { DestageName::Journaled } else { DestageName::Ordered },
            reason: s.destage_reason.into(),
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
            drain_s: s.drain_left.map(|left| left.as_secs_f64()),
            drain_max_s: s.drain_max.0 / 1_000_000_000,
            waiting_writes: s.waiting_writes,
            unanswered_s: s.oldest_unanswered.as_secs_f64(),
        },
        positions: Positions { accepted: s.accepted.0, held: s.held.0, synced: s.synced.0, destaged: s.destaged.0 },
        counters: counters(&s.counters).into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        cluster: None,
    }
}

/// What is told of a volume that does not run.
pub fn volume_absent(facts: &VolumeFacts, record: &Record, phase: VolumePhase, problem: &str) -> VolumeReport {
    let (size_bytes, policy) = (record.size_bytes, record.policy);
    VolumeReport {
        name: facts.name.clone(),
        volume: facts.volume.clone(),
        size_bytes,
        phase,
        problem: Some(problem.to_owned()),
        policy: PolicyReport { requested: policy, effective: policy, reason: PolicyReason::AsRequested, since_s: 0.0 },
        backing: BackingReport {
            spec: facts.backing.clone(),
            access: facts.access.clone(),
            state: BackingState::Closed,
            hold_left_s: None,
            error: None,
            displaced: None,
        },
        tier: tier_report(facts),
        term: 0,
        connections: 0,
        common: record.common.clone(),
        memory_bytes: facts.memory_bytes,
        destage: DestageReport {
            requested: record.destage,
            effective: DestageName::Ordered,
            reason: DestageReason::AsRequested,
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

fn phase_and_problem(phase: Phase) -> (VolumePhase, Option<String>) {
    match phase {
        Phase::Recovering => (VolumePhase::Recovering, None),
        Phase::Following => (VolumePhase::Following, None),
        Phase::Agreeing => (VolumePhase::Agreeing, None),
        Phase::Serving => (VolumePhase::Serving, None),
        Phase::Stopping => (VolumePhase::Stopping, None),
        Phase::Stopped => (VolumePhase::Stopped, None),
        Phase::Refused(reason) => (VolumePhase::Failed, Some(reason.to_owned())),
    }
}

/// What keeps the backing from its work, while something does.
pub fn backing_trouble(snapshot: &Snapshot) -> Option<String> {
    backing_and_error(snapshot).1
}

/// Core hears of a server that is away when it asks it for something; that a connection is lost is shown before.
fn backing_and_error(snapshot: &Snapshot) -> (BackingState, Option<String>) {
    let (state, error) = state_and_error(snapshot.status.backing, snapshot.damaged);
    let Some(unreached) = snapshot.unreached.clone() else { return (state, error) };
    match (state, error) {
        (BackingState::Ready, _) => (BackingState::Failing, Some(unreached)),
        (state, None) => (state, Some(unreached)),
        (state, Some(error)) => (state, Some(format!("{error}; {unreached}"))),
    }
}

fn state_and_error(state: core::BackingState, damaged: Option<BlockIndex>) -> (BackingState, Option<String>) {
    match state {
        core::BackingState::AwaitingLock => (BackingState::AwaitingLock, None),
        core::BackingState::ReplayingJournal => (BackingState::ReplayingJournal, None),
        core::BackingState::AwaitingFence => (BackingState::AwaitingFence, Some(AWAITING_FENCE.to_owned())),
        core::BackingState::Ready => (BackingState::Ready, None),
        core::BackingState::Held => (BackingState::Held, None),
        core::BackingState::Failing(IoError::Checksum) => (BackingState::Failing, Some(damage_words(damaged))),
        core::BackingState::Failing(error) => (BackingState::Failing, Some(error_words(error).to_owned())),
        core::BackingState::FailingReads(error) => {
            let words = format!("reads of it fail ({}), and each is tried again for 20 s", error_words(error));
            (BackingState::Failing, Some(words))
        }
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
pub fn counters(c: &Counters) -> [(&'static str, u64); 32] {
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
        repeated_reads,
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use forebay_api::config::TierName;
    use forebay_api::status::NodeReport;
    use forebay_core::status::{DestageMode, DestageReason, Reason, Status};
    use forebay_core::types::{Duration, Instant, Lsn, Term};

    /// What a volume shows of itself.
    pub(crate) fn snapshot() -> Snapshot {
        let status = Status {
            phase: Phase::Serving,
            size_bytes: 1 << 30,
            term: Term(2),
            requested: Policy::Back,
            effective: Policy::Through,
            reason: Reason::TierError,
            reason_since: Instant(1_000_000_000),
            backing: core::BackingState::Failing(IoError::NoSpace),
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
            oldest_unanswered: Duration::default(),
            accepted: Lsn(4),
            held: Lsn(3),
            committed: Lsn(3),
            synced: Lsn(2),
            destaged: Lsn(1),
            counters: Counters { writes: 7, ..Counters::default() },
        };
        Snapshot {
            status,
            at: Instant(3_500_000_000),
            connections: 1,
            request_bytes_max: 1 << 20,
            damaged: None,
            unreached: None,
            seen: None,
        }
    }

    /// A node with one volume, for the tests of what is made of reports.
    pub(crate) fn example() -> (NodeReport, VolumeReport) {
        let node = forebay_api::status::example_node();
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
        (node, volume_running(&facts, &Common::default(), &snapshot(), Some("the image was deleted".into())))
    }

    #[test]
    fn damage_is_told_with_its_place() {
        let words = state_and_error(core::BackingState::Failing(IoError::Checksum), Some(BlockIndex(7))).1.unwrap();
        assert!(words.contains("bytes 28672 to 32767") && words.contains("salvage"), "{words}");
    }

    #[test]
    fn a_server_that_is_away_is_trouble_of_a_backing_that_nothing_was_asked_of() {
        let mut away = snapshot();
        away.unreached = Some("the connection is lost".into());
        let mut shown = |state| {
            away.status.backing = state;
            let (state, error) = backing_and_error(&away);
            (state, error.unwrap())
        };
        let lost = "the connection is lost".to_owned();
        assert_eq!(shown(core::BackingState::Ready), (BackingState::Failing, lost.clone()));
        assert_eq!(shown(core::BackingState::Held), (BackingState::Held, lost), "nothing is to be written to it");
        let (state, error) = shown(core::BackingState::Failing(IoError::Gone));
        assert_eq!((state, error.as_str()), (BackingState::Failing, "the device is gone; the connection is lost"));
    }

    #[test]
    fn report_names_the_reason_and_its_age_and_survives_json() {
        let (_, report) = example();
        assert_eq!(report.policy.reason, PolicyReason::TierError);
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
