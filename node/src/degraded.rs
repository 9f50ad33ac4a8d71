//! What is not as it should be, and what has changed: words for the fleet's view and for events, out of reports.

use forebay_api::cluster::{ClusterNodeReport, MemberReport, ReplicaRole};
use forebay_api::config::{DestageName, PolicyName};
use forebay_api::events::{EventKind, Happened, Severity};
use forebay_api::sentence::Sentence;
use forebay_api::status::{CoordinatorTrouble, Degraded, VolumeReport};
use forebay_api::told::Told;
use forebay_api::units::show_size;
use forebay_api::words::{BackingState, ChannelPhase, PolicyReason, VolumePhase};
use forebay_host::identity::ends::Due;
use forebay_io::closing::UnderWay;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Throttling is over when no write had to wait for so long: a load at the limit would tell of it each second.
const THROTTLED_UNTIL: Duration = Duration::from_secs(10);
/// To close a file takes no longer on a file system that answers.
const CLOSING_MAX: Duration = Duration::from_secs(5);

/// A healthy cluster answers in milliseconds, and one that leaves out a member within two seconds.
const UNANSWERED_MAX_S: f64 = 5.0;

/// What is not as it should be with a volume.
pub fn of_volume(v: &VolumeReport) -> Vec<Degraded> {
    let mut found = Vec::new();
    let mut add = |code: &str, told: Told| found.push(Degraded::of_volume(&v.name, code, told));
    if let (VolumePhase::Failed | VolumePhase::Waiting, Some(problem)) = (&v.phase, &v.problem) {
        add(&format!("volume-{}", v.phase), problem.as_str().into());
    }
    if v.policy.reason != PolicyReason::AsRequested && v.policy.requested != v.policy.effective {
        add(v.policy.reason.as_str(), policy_instead(v).into());
    }
    if v.backing.state == BackingState::Failing {
        add("backing-failing", backing_fails(v).into());
    }
    if v.backing.state == BackingState::AwaitingLock {
        add("awaiting-lock", Sentence::new("degraded.awaiting-lock").into());
    }
    if v.backing.state == BackingState::AwaitingFence {
        add("awaiting-fence", Sentence::new("degraded.awaiting-fence").into());
    }
    if let Some(displaced) = &v.backing.displaced {
        add("image-displaced", displaced.as_str().into());
    }
    if v.dirty.waiting_writes > 0 {
        add("writes-wait", dirty_of_most("degraded.writes-wait", v).into());
    }
    if v.dirty.unanswered_s >= UNANSWERED_MAX_S {
        let seconds = format!("{:.0}", v.dirty.unanswered_s);
        add("writes-unanswered", Sentence::new("degraded.writes-unanswered").with("seconds", seconds).into());
    }
    if let Some(cluster) = &v.cluster {
        let copies = cluster.members.iter().filter(|member| member.role == ReplicaRole::Member).count();
        if copies < usize::from(cluster.peers) && !cluster.owner.is_empty() {
            let why: Vec<String> =
                cluster.missing_replicas.iter().map(|without| format!("{}: {}", without.node, without.why)).collect();
            let sentence = match why.is_empty() {
                true => Sentence::new("degraded.too-few-copies"),
                false => Sentence::new("degraded.too-few-copies-why").with("why", why.join("; ")),
            };
            add("too-few-copies", sentence.with("copies", copies).with("wanted", cluster.peers).into());
        }
        if cluster.unfenced > 0 {
            add("unfenced", Sentence::new("degraded.unfenced").with("owners", cluster.unfenced).into());
        }
    }
    found
}

/// What is not as it should be with the cluster's coordinator, as this node has found it: one of each kind, with all that is said of it.
pub fn of_coordinator(node: &str, troubles: &[CoordinatorTrouble]) -> Vec<Degraded> {
    let mut found: Vec<Degraded> = Vec::new();
    for trouble in troubles {
        match found.iter_mut().find(|known| known.code == trouble.code) {
            Some(known) => known.text = format!("{}; {}", known.text, trouble.text),
            None => found.push(Degraded::of_node(node, &trouble.code, trouble.text.as_str())),
        }
    }
    found
}

/// A certificate of this node that ends soon, or has ended.
pub fn of_identity(node: &str, due: Due) -> Degraded {
    Degraded::of_node(node, "identity-ends", due.text)
}

/// Files and memory that are not given back, because their file system does not answer: one entry, for the one that has taken longest.
pub fn of_closing(node: &str, under_way: &[UnderWay]) -> Option<Degraded> {
    let late = || under_way.iter().filter(|end| end.time >= CLOSING_MAX);
    let longest = late().max_by_key(|end| end.time)?;
    let sentence = match late().count() - 1 {
        0 => Sentence::new("degraded.close-hangs"),
        others => Sentence::new("degraded.close-hangs-more").with("more", others),
    };
    let sentence = sentence.with("what", &longest.what).with("seconds", longest.time.as_secs());
    Some(Degraded::of_node(node, "close-hangs", sentence))
}

/// What is not as it should be with the other nodes of a cluster.
pub fn of_nodes(nodes: &[ClusterNodeReport]) -> Vec<Degraded> {
    let down = nodes.iter().filter(|node| node.up == Some(false));
    let mut found: Vec<Degraded> = down
        .map(|node| {
            let why = node.channels.iter().find_map(|channel| channel.why.as_deref()).unwrap_or("no channel is up");
            Degraded::of_node(&node.name, "link-down", Sentence::new("degraded.link-down").with("why", why))
        })
        .collect();
    let duplicated = nodes.iter().filter_map(|node| Some((&node.name, node.duplicated.as_ref()?)));
    found.extend(duplicated.map(|(name, why)| Degraded::of_node(name, "duplicate-identity", why.as_str())));
    for node in nodes.iter().filter(|node| node.up == Some(true)) {
        let down: Vec<_> = node.channels.iter().filter(|channel| channel.phase == ChannelPhase::Down).collect();
        if let Some(first) = down.first() {
            let why = first.why.as_deref().unwrap_or("no reason is known");
            let sentence = Sentence::new("degraded.channels-down").with("why", why);
            let sentence = sentence.with("down", down.len()).with("channels", node.channels.len());
            found.push(Degraded::of_node(&node.name, "channels-down", sentence));
        }
    }
    found
}

fn policy_word(name: PolicyName) -> &'static str {
    match name {
        PolicyName::Through => "write-through",
        PolicyName::Back => "write-back",
    }
}

fn policy_instead(v: &VolumeReport) -> Sentence {
    Sentence::new("event.policy-instead")
        .with("policy", policy_word(v.policy.effective))
        .with("requested", policy_word(v.policy.requested))
        .with("reason", v.policy.reason.as_str())
}

fn backing_fails(v: &VolumeReport) -> Sentence {
    let why = v.backing.error.as_deref().unwrap_or("no reason is known");
    Sentence::new("event.backing-failing").with("why", why)
}

fn dirty_of_most(key: &'static str, v: &VolumeReport) -> Sentence {
    Sentence::new(key).with("dirty", show_size(v.dirty.bytes)).with("most", show_size(v.dirty.bytes_max))
}

/// Since when each thing is as it is.
#[derive(Default)]
pub struct Since(HashMap<(Option<String>, Option<String>, String), Instant>);

impl Since {
    /// Gives each its time; what is no more is forgotten. True when things came or went.
    pub fn note(&mut self, found: &mut [Degraded], now: Instant) -> bool {
        let mut changed = self.0.len() != found.len();
        let mut known = HashMap::with_capacity(found.len());
        for degraded in found {
            let key = degraded.key();
            let since = self.0.get(&key).copied().unwrap_or_else(|| {
                changed = true;
                now
            });
            degraded.since_s = now.saturating_duration_since(since).as_secs_f64();
            known.insert(key, since);
        }
        self.0 = known;
        changed
    }
}

/// What was told of a volume last, to tell what is new.
#[derive(Clone, Debug)]
pub struct LastReported {
    report: VolumeReport,
    throttled_at: Option<Instant>,
    throttled: u64,
}

impl LastReported {
    /// Of a volume that is new to us.
    pub fn new(report: &VolumeReport) -> LastReported {
        let throttled = report.counters.get("throttled_writes").copied().unwrap_or(0);
        LastReported { report: report.clone(), throttled_at: None, throttled }
    }

    /// The first look, and what it finds wrong with the backing: whoever was told before, was told by another process.
    pub fn first(report: &VolumeReport) -> (LastReported, Vec<Happened>) {
        let mut well = report.clone();
        (well.backing.state, well.backing.displaced) = (BackingState::Ready, None);
        let mut events = Vec::new();
        backing(&well, report, &mut events);
        events.retain(|event| event.severity == Severity::Error);
        (LastReported::new(report), events.into_iter().map(|event| event.of(&report.name)).collect())
    }

    /// The volume's name at the last look.
    pub fn name(&self) -> &str {
        &self.report.name
    }

    /// What has changed since the last look.
    pub fn changes(&mut self, now: &VolumeReport, at: Instant) -> Vec<Happened> {
        let mut events = between(&self.report, now);
        events.extend(self.throttling(now, at));
        self.report = now.clone();
        events.into_iter().map(|event| event.of(&now.name)).collect()
    }

    fn throttling(&mut self, now: &VolumeReport, at: Instant) -> Option<Happened> {
        let throttled = now.counters.get("throttled_writes").copied().unwrap_or(0);
        let grown = throttled > self.throttled || now.dirty.waiting_writes > 0;
        self.throttled = throttled;
        if grown {
            let began = self.throttled_at.replace(at).is_none();
            return began.then(|| {
                let sentence = dirty_of_most("event.throttling-begun", now);
                Happened::new(EventKind::ThrottlingBegun, Severity::Warning, sentence)
                    .with("dirty_bytes", now.dirty.bytes)
            });
        }
        if self.throttled_at.is_some_and(|last| at.saturating_duration_since(last) >= THROTTLED_UNTIL) {
            self.throttled_at = None;
            return Some(info(EventKind::ThrottlingEnded, Sentence::new("event.throttling-ended")));
        }
        None
    }
}

fn info(kind: EventKind, sentence: Sentence) -> Happened {
    Happened::new(kind, Severity::Info, sentence)
}

fn between(was: &VolumeReport, is: &VolumeReport) -> Vec<Happened> {
    let mut events = Vec::new();
    if was.phase != is.phase {
        let severity = if is.phase == VolumePhase::Failed { Severity::Error } else { Severity::Info };
        let sentence = match &is.problem {
            Some(why) => Sentence::new("event.phase-why").with("why", why),
            None => Sentence::new("event.phase"),
        };
        let sentence = sentence.with("from", was.phase.as_str()).with("to", is.phase.as_str());
        events.push(
            Happened::new(EventKind::PhaseChanged, severity, sentence)
                .with("from", was.phase.as_str())
                .with("to", is.phase.as_str()),
        );
    }
    // What the policy is, its owner tells; who that is, is told below.
    let of_owner = |reason: &PolicyReason| match reason {
        PolicyReason::OwnedElsewhere => PolicyReason::AsRequested,
        reason => reason.clone(),
    };
    if (was.policy.effective, was.policy.requested, of_owner(&was.policy.reason))
        != (is.policy.effective, is.policy.requested, of_owner(&is.policy.reason))
        && is.policy.reason != PolicyReason::OwnedElsewhere
    {
        let (severity, sentence) = match is.policy.reason {
            PolicyReason::AsRequested => {
                let policy = policy_word(is.policy.effective);
                (Severity::Info, Sentence::new("event.policy").with("policy", policy))
            }
            PolicyReason::TierError => (Severity::Error, policy_instead(is)),
            _ => (Severity::Warning, policy_instead(is)),
        };
        events.push(
            Happened::new(EventKind::PolicyChanged, severity, sentence)
                .with("requested", serde_json::json!(is.policy.requested))
                .with("effective", serde_json::json!(is.policy.effective))
                .with("reason", is.policy.reason.as_str()),
        );
    }
    if was.policy.reason != PolicyReason::TierError && is.policy.reason == PolicyReason::TierError {
        let sentence = Sentence::new("event.tier-failed").with("path", &is.tier.path);
        events.push(Happened::new(EventKind::TierFailed, Severity::Error, sentence));
    }
    backing(was, is, &mut events);
    if was.destage.effective != is.destage.effective && was.phase == is.phase {
        let word = if is.destage.effective == DestageName::Journaled { "journaled" } else { "ordered" };
        let sentence = Sentence::new("event.destage").with("mode", word).with("reason", is.destage.reason.as_str());
        events.push(
            info(EventKind::DestageChanged, sentence)
                .with("effective", word)
                .with("reason", is.destage.reason.as_str()),
        );
    }
    if was.size_bytes != is.size_bytes && was.size_bytes > 0 && is.size_bytes > 0 {
        let (from, to) = (show_size(was.size_bytes), show_size(is.size_bytes));
        let sentence = Sentence::new("event.resized").with("from", from).with("to", to);
        events.push(info(EventKind::VolumeResized, sentence).with("size_bytes", is.size_bytes));
    }
    if was.tier.kind != is.tier.kind {
        let sentence = Sentence::new("event.tier").with("tier", is.tier.kind.word());
        events.push(info(EventKind::TierChanged, sentence).with("tier", is.tier.kind.word()));
    }
    cluster(was, is, &mut events);
    events
}

fn backing(was: &VolumeReport, is: &VolumeReport, events: &mut Vec<Happened>) {
    let (before, after) = (&was.backing.state, &is.backing.state);
    if before != after {
        match after {
            BackingState::Failing => {
                let why = is.backing.error.as_deref().unwrap_or("no reason is known");
                let failing = Happened::new(EventKind::BackingFailing, Severity::Error, backing_fails(is));
                events.push(failing.with("error", why));
            }
            BackingState::AwaitingFence => {
                let sentence = Sentence::new("degraded.awaiting-fence");
                events.push(Happened::new(EventKind::BackingAwaitsFence, Severity::Error, sentence));
            }
            BackingState::Ready if *before == BackingState::Held => {
                events.push(info(EventKind::HoldEnded, Sentence::new("event.hold-ended")));
            }
            BackingState::Ready if *before == BackingState::Closed => {
                events.push(info(EventKind::BackingReady, Sentence::new("event.backing-opened")));
            }
            BackingState::Ready => {
                let sentence = Sentence::new("event.backing-ready").with("before", before.as_str());
                events.push(info(EventKind::BackingReady, sentence));
            }
            BackingState::Held => {
                let left = is.backing.hold_left_s.unwrap_or(0.0);
                let sentence = Sentence::new("event.hold-begun").with("seconds", format!("{left:.0}"));
                events.push(info(EventKind::HoldBegun, sentence).with("seconds", left));
            }
            _ => {}
        }
    }
    match (&was.backing.displaced, &is.backing.displaced) {
        (None, Some(text)) => events.push(Happened::new(EventKind::ImageDisplaced, Severity::Error, text.as_str())),
        (Some(_), None) => events.push(info(EventKind::ImageInPlace, Sentence::new("event.image-in-place"))),
        (None, None) | (Some(_), Some(_)) => {}
    }
}

fn cluster(was: &VolumeReport, is: &VolumeReport, events: &mut Vec<Happened>) {
    let (Some(was), Some(is)) = (&was.cluster, &is.cluster) else { return };
    if was.owner != is.owner && !is.owner.is_empty() {
        let sentence = match was.owner.is_empty() {
            true => Sentence::new("event.first-owner"),
            false => Sentence::new("event.owner").with("former", &was.owner),
        };
        let grown = |name: &str| is.counters.get(name) > was.counters.get(name);
        let (kind, severity) = match (grown("take_overs"), grown("hand_overs")) {
            (true, _) => (EventKind::TakeOver, Severity::Warning),
            (false, true) => (EventKind::HandOver, Severity::Info),
            (false, false) => (EventKind::OwnerChanged, Severity::Info),
        };
        events.push(
            Happened::new(kind, severity, sentence.with("owner", &is.owner))
                .with("owner", is.owner.as_str())
                .with("former", was.owner.as_str())
                .with("term", is.term),
        );
    }
    let copies = |members: &[MemberReport]| -> Vec<String> {
        members.iter().filter(|m| m.role != ReplicaRole::Learner).map(|m| m.node.clone()).collect()
    };
    let (before, after) = (copies(&was.members), copies(&is.members));
    for node in before.iter().filter(|node| !after.contains(node)) {
        let sentence = Sentence::new("event.member-lost").with("node", node);
        events.push(Happened::new(EventKind::MemberLost, Severity::Warning, sentence).with("member", node.as_str()));
    }
    for node in after.iter().filter(|node| !before.contains(node)) {
        let sentence = Sentence::new("event.member-joined").with("node", node);
        events.push(info(EventKind::MemberJoined, sentence).with("member", node.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::config::PolicyName;

    fn well() -> VolumeReport {
        let (_, mut report) = crate::status::tests::example();
        report.policy.requested = PolicyName::Back;
        report.policy.effective = PolicyName::Back;
        report.policy.reason = PolicyReason::AsRequested;
        report.phase = VolumePhase::Serving;
        report.backing.state = BackingState::Ready;
        report.backing.error = None;
        report.backing.displaced = None;
        report.dirty.waiting_writes = 0;
        report
    }

    fn kinds(was: &VolumeReport, is: &VolumeReport) -> Vec<String> {
        LastReported::new(was).changes(is, Instant::now()).into_iter().map(|event| event.kind).collect()
    }

    #[test]
    fn what_is_well_tells_nothing() {
        assert_eq!(of_volume(&well()), []);
        assert!(kinds(&well(), &well()).is_empty());
    }

    #[test]
    fn each_change_has_its_event_and_each_trouble_its_code() {
        type Turn = fn(&mut VolumeReport);
        let turns: [(Turn, &str, Option<&str>); 8] = [
            (|v| v.backing.state = BackingState::AwaitingFence, "backing-awaits-fence", Some("awaiting-fence")),
            (|v| v.backing.state = BackingState::Failing, "backing-failing", Some("backing-failing")),
            (|v| v.backing.state = BackingState::Held, "hold-begun", None),
            (|v| v.backing.displaced = Some("deleted".into()), "image-displaced", Some("image-displaced")),
            (
                |v| {
                    v.policy.effective = PolicyName::Through;
                    v.policy.reason = PolicyReason::Draining;
                },
                "policy-changed",
                Some("draining"),
            ),
            (|v| v.size_bytes *= 2, "volume-resized", None),
            (|v| v.dirty.waiting_writes = 3, "throttling-begun", Some("writes-wait")),
            (
                |v| {
                    v.phase = VolumePhase::Failed;
                    v.problem = Some("torn".into());
                },
                "phase-changed",
                Some("volume-failed"),
            ),
        ];
        for (turn, kind, code) in turns {
            let mut is = well();
            turn(&mut is);
            assert_eq!(kinds(&well(), &is), [kind]);
            let codes: Vec<String> = of_volume(&is).into_iter().map(|degraded| degraded.code).collect();
            assert_eq!(codes, code.into_iter().collect::<Vec<_>>(), "{kind}");
        }
        let mut elsewhere = well();
        elsewhere.policy.reason = "owned-elsewhere".into();
        assert_eq!((kinds(&well(), &elsewhere), kinds(&elsewhere, &well())), (vec![], vec![]), "its owner tells");
        let mut held = well();
        held.backing.state = "held".into();
        assert_eq!(kinds(&held, &well()), ["hold-ended"]);
    }

    #[test]
    fn what_is_wrong_with_a_backing_at_the_first_look_is_told() {
        type Turn = fn(&mut VolumeReport);
        let turns: [(Turn, &[&str]); 6] = [
            (|_| {}, &[]),
            (|v| v.backing.state = BackingState::Failing, &["backing-failing"]),
            (|v| v.backing.state = BackingState::AwaitingFence, &["backing-awaits-fence"]),
            (|v| v.backing.displaced = Some("deleted".into()), &["image-displaced"]),
            (|v| v.backing.state = BackingState::Held, &[]),
            (|v| v.backing.state = BackingState::Closed, &[]),
        ];
        for (turn, kinds) in turns {
            let mut found = well();
            turn(&mut found);
            let (_, events) = LastReported::first(&found);
            assert_eq!(events.into_iter().map(|event| event.kind).collect::<Vec<_>>(), kinds);
        }
    }

    #[test]
    fn writes_without_an_answer_and_two_of_one_identity_are_told() {
        let mut waits = well();
        for (seconds, codes) in [(4.9, vec![]), (5.0, vec!["writes-unanswered"])] {
            waits.dirty.unanswered_s = seconds;
            let found = of_volume(&waits);
            assert_eq!(found.iter().map(|degraded| degraded.code.as_str()).collect::<Vec<_>>(), codes);
        }
        let mut beta = forebay_api::cluster::example_node();
        beta.channels.clear();
        assert_eq!(of_nodes(&[beta.clone()]), []);
        beta.duplicated = Some("stop one".to_owned());
        assert_eq!(of_nodes(&[beta]), [Degraded::of_node("beta", "duplicate-identity", "stop one")]);
    }

    #[test]
    fn throttling_at_the_limit_is_one_event_and_its_end_another() {
        let mut told = LastReported::new(&well());
        let begin = Instant::now();
        let mut seen = Vec::new();
        for second in 0..40u64 {
            let mut report = well();
            // Every other second some write had to wait, until the 20th.
            report.counters.insert("throttled_writes".to_owned(), second.min(20) / 2);
            let at = begin + Duration::from_secs(second);
            seen.extend(told.changes(&report, at).into_iter().map(|event| (second, event.kind)));
        }
        assert_eq!(seen, [(2, "throttling-begun".to_owned()), (30, "throttling-ended".to_owned())]);
    }

    #[test]
    fn trouble_keeps_its_time_while_it_lasts() {
        let mut since = Since::default();
        let begin = Instant::now();
        let found = || vec![Degraded::of_node("beta", "link-down", "no")];
        let mut first = found();
        assert!(since.note(&mut first, begin), "it came");
        let mut second = found();
        assert!(!since.note(&mut second, begin + Duration::from_secs(5)));
        assert_eq!(second[0].since_s, 5.0);
        assert!(since.note(&mut [], begin), "it went");
    }
}
