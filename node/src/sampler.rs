//! The sampler: a task of the control thread that looks at all volumes when a second of the wall clock is over, and makes
//! points, events and the latest figures of what it finds.
//!
//! Invariants:
//! - A point stands for `[at, at + 1)` by the wall clock; what lies between two looks is measured by the monotonic one.
//! - A look that comes late stands for all the seconds since the one before; after a long gap there is a gap.
//! - A step of a coarse ring that is not over is written every ten seconds, so that a kill costs ten seconds of it.
//! - Points are written when their second is over; those of a node on which nothing happens a few at one time, or when somebody reads.

use crate::degraded;
use crate::degraded::{LastReported, Since};
use crate::history::query;
use crate::history::query::Fold;
use crate::history::reading::{Reading, is_amount};
use crate::history::writer::Job;
use crate::node::{Look, Node};
use crate::seconds::Seconds;
use crate::telemetry::{Latest, Telemetry};
use forebay_api::calendar;
use forebay_api::cluster::ClusterNodeReport;
use forebay_api::events::{EventKind, Happened, Severity};
use forebay_api::history::format::{Owner, RINGS, Slot};
use forebay_api::history::series::{Kind, NO_VALUES, Values};
use forebay_api::record::VolumeId;
use forebay_api::sentence::Sentence;
use forebay_api::status::{CoordinatorTrouble, Degraded, VolumeReport};
use forebay_core::stats::Stats;
use forebay_host::identity::ends::Due;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a look may take: a shard that does not answer leaves a gap in its volumes' history, and in nothing else.
const LOOK_MAX: Duration = Duration::from_millis(900);
/// Seconds that a late look may stand for.
const LATE_MAX_S: u64 = 10;
/// Open steps are written so often.
const OPEN_STEPS_S: u64 = 10;
/// So many seconds in which nothing happens are written at one time.
const REST_S: u64 = 5;
/// The wall clock was set when it went so much further than the monotonic one, or so much less.
const CLOCK_SET_S: f64 = 3.0;

/// Looks once a second, for ever.
pub async fn run(node: Arc<Node>, mut seconds: Seconds) {
    let mut sampler = Sampler::new(node.telemetry().clone());
    loop {
        seconds.next().await;
        let until = tokio::time::Instant::now() + LOOK_MAX;
        let looks = node.looks(until).await;
        let nodes = match node.cluster() {
            Some(cluster) => tokio::time::timeout_at(until, cluster.node_reports()).await.unwrap_or_default(),
            None => Vec::new(),
        };
        sampler.identity_due = node.cluster().and_then(|cluster| cluster.identity_due());
        sampler.note_coordinator(node.cluster().map(|cluster| cluster.coordinator_trouble()).unwrap_or_default());
        let present = node.identities().into_iter().map(|(_, volume)| volume).collect();
        // The second that is over.
        let at = (calendar::now_ms() / 1000).saturating_sub(1);
        sampler.take(at, Instant::now(), looks, &nodes, &present);
    }
}

/// A step of a coarse ring that is not over.
struct OpenStep {
    ring: usize,
    begin: u64,
    seconds: u16,
    began: Instant,
    /// The look at its begin; none for a node.
    first: Option<Reading>,
    folds: Vec<Fold>,
}

impl OpenStep {
    fn new(ring: usize, at: u64, began: Instant, first: Option<Reading>, series: usize) -> OpenStep {
        let begin = RINGS[ring].begin(at);
        OpenStep { ring, begin, seconds: 0, began, first, folds: vec![Fold::NOTHING; series] }
    }

    fn put(&mut self, seconds: u64, values: &Values) {
        self.seconds = self.seconds.saturating_add(seconds as u16).min(RINGS[self.ring].step_s as u16);
        for (fold, &value) in self.folds.iter_mut().zip(values) {
            fold.put(seconds as f64, value, value, value);
        }
    }

    fn slot(&self, kind: Kind, reading: Option<&Reading>, now: Instant) -> Slot {
        let mut slot = Slot::empty(self.begin);
        slot.seconds = self.seconds;
        let whole = match (&self.first, reading) {
            (Some(first), Some(reading)) => {
                Some(reading.since(first, now.saturating_duration_since(self.began).as_secs_f64()))
            }
            (None, _) | (_, None) => None,
        };
        for (place, (name, fold)) in kind.names().iter().zip(&self.folds).enumerate() {
            slot.avg[place] = match &whole {
                Some(whole) if !is_amount(place) => whole[place],
                Some(_) | None => fold.avg(query::is_largest(name)),
            };
            (slot.min[place], slot.max[place]) = (fold.min(), fold.max());
        }
        slot
    }
}

/// One volume, or the node, as it was at the last look.
struct Track {
    owner: Owner,
    at: u64,
    moment: Instant,
    reading: Option<Reading>,
    steps: Vec<OpenStep>,
}

impl Track {
    fn new(owner: Owner, at: u64, moment: Instant, reading: Option<Reading>) -> Track {
        let steps = Track::steps_at(&owner, at + 1, moment, &reading);
        Track { owner, at, moment, reading, steps }
    }

    fn steps_at(owner: &Owner, at: u64, began: Instant, first: &Option<Reading>) -> Vec<OpenStep> {
        let series = owner.series().names().len();
        (1..RINGS.len()).map(|ring| OpenStep::new(ring, at, began, first.clone(), series)).collect()
    }

    /// The figures of the time since the last look become slots: those of its seconds, and of steps that it ends.
    fn advance(&mut self, at: u64, moment: Instant, reading: Option<Reading>, values: &Values) -> Vec<(usize, Slot)> {
        let mut slots = Vec::new();
        let series = self.owner.series().names().len();
        let late = at.checked_sub(self.at).filter(|&late| (1..=LATE_MAX_S).contains(&late));
        let first = late.map_or(at, |late| at + 1 - late);
        for second in first..=at {
            let mut slot = Slot::empty(second);
            slot.seconds = 1;
            slot.avg = *values;
            slots.push((0, slot));
        }
        for step in &mut self.steps {
            if step.begin != RINGS[step.ring].begin(at) {
                if step.seconds > 0 {
                    slots.push((step.ring, step.slot(self.owner.series(), self.reading.as_ref(), self.moment)));
                }
                *step = OpenStep::new(step.ring, at, self.moment, self.reading.clone(), series);
            }
            step.put(at + 1 - first, values);
            if (at + 1).is_multiple_of(OPEN_STEPS_S) {
                slots.push((step.ring, step.slot(self.owner.series(), reading.as_ref(), moment)));
            }
        }
        (self.at, self.moment, self.reading) = (at, moment, reading);
        slots
    }
}

struct Sampler {
    telemetry: Arc<Telemetry>,
    volumes: HashMap<VolumeId, (Track, String)>,
    told: HashMap<VolumeId, LastReported>,
    node: Track,
    node_counts: NodeCounts,
    nodes_up: HashMap<String, bool>,
    since: Since,
    history_problem: Option<String>,
    coordinator: Vec<CoordinatorTrouble>,
    identity_due: Option<Due>,
    last: Option<(u64, Instant)>,
    /// Something has happened to a volume since points were last written.
    has_news: bool,
    /// The last time that points were written, in [`REST_S`].
    written: u64,
}

impl Sampler {
    fn new(telemetry: Arc<Telemetry>) -> Sampler {
        let (at, moment) = (calendar::now_ms() / 1000, Instant::now());
        Sampler {
            telemetry,
            volumes: HashMap::new(),
            told: HashMap::new(),
            node: Track::new(Owner::NODE, at, moment, None),
            node_counts: NodeCounts::now(&[]),
            nodes_up: HashMap::new(),
            since: Since::default(),
            history_problem: None,
            coordinator: Vec::new(),
            identity_due: None,
            last: None,
            has_news: false,
            written: 0,
        }
    }

    fn take(
        &mut self,
        at: u64,
        moment: Instant,
        looks: Vec<Look>,
        nodes: &[ClusterNodeReport],
        present: &HashSet<VolumeId>,
    ) {
        self.note_clock(at, moment);
        self.note_history();
        let mut found: Vec<Degraded> = self.history_trouble().into_iter().collect();
        found.extend(degraded::of_coordinator(&self.telemetry.name(), &self.coordinator));
        found.extend(self.identity_due.clone().map(|due| degraded::of_identity(&self.telemetry.name(), due)));
        found.extend(degraded::of_nodes(nodes));
        found.extend(degraded::of_closing(&self.telemetry.name(), &forebay_io::closing::under_way()));
        let counts = NodeCounts::now(nodes);
        let shares = Shares::of(&self.node_counts, &counts, &looks, &self.volumes);
        let mut volumes = BTreeMap::new();
        let mut changed = false;
        let mut dirty = 0;
        for Look { volume, report, seen } in looks {
            found.extend(degraded::of_volume(&report));
            dirty += report.dirty.bytes;
            changed |= self.note_changes(volume, &report, moment);
            let values = self.look_at(volume, &report, seen.as_deref(), at, moment, &shares);
            if let Some(seen) = seen {
                self.telemetry.measured(volume, at, seen);
            }
            volumes.insert(report.name, values);
        }
        changed |= self.forget_gone(present);
        changed |= self.since.note(&mut found, moment);
        self.note_links(nodes);
        let elapsed = moment.saturating_duration_since(self.node.moment).as_secs_f64().max(1e-3);
        let mut node = counts.since(&self.node_counts, elapsed);
        for (place, figure) in [(4, dirty as f64), (5, present.len() as f64), (6, found.len() as f64)] {
            node[place] = figure as f32;
        }
        self.node_counts = counts;
        let slots = self.node.advance(at, moment, None, &node);
        self.telemetry.write(Job::Slots(Owner::NODE, slots));
        self.write_if_due(at, changed);
        self.telemetry.publish(Latest { at, volumes, node, degraded: found }, changed);
    }

    fn write_if_due(&mut self, at: u64, changed: bool) {
        let rest = (at + 1) / REST_S;
        if std::mem::take(&mut self.has_news) || changed || rest != self.written {
            self.written = rest;
            self.telemetry.write_now();
        }
    }

    fn look_at(
        &mut self,
        volume: VolumeId,
        report: &VolumeReport,
        seen: Option<&Stats>,
        at: u64,
        moment: Instant,
        shares: &Shares,
    ) -> Values {
        if report.counters.is_empty() {
            // It does not run: nothing is known of this second.
            self.volumes.remove(&volume);
            return NO_VALUES;
        }
        let mut reading = Reading::new(report, seen);
        let Some((track, name)) = self.volumes.get_mut(&volume) else {
            let track = Track::new(Owner::volume(volume.0), at, moment, Some(reading));
            self.volumes.insert(volume, (track, report.name.clone()));
            self.has_news = true;
            return NO_VALUES;
        };
        name.clone_from(&report.name);
        let before = track.reading.as_ref().expect("a volume's track has a reading");
        self.has_news |= !reading.is_as(before);
        reading.saved_bytes = before.saved_bytes + shares.of_volume(reading.peer_blocks_since(before));
        let elapsed = moment.saturating_duration_since(track.moment).as_secs_f64().max(1e-3);
        let values = reading.since(before, elapsed);
        let slots = track.advance(at, moment, Some(reading), &values);
        self.telemetry.write(Job::Slots(track.owner, slots));
        values
    }

    fn note_changes(&mut self, volume: VolumeId, report: &VolumeReport, moment: Instant) -> bool {
        let (events, is_new) = match self.told.get_mut(&volume) {
            Some(told) => (told.changes(report, moment), false),
            None => {
                let (told, events) = LastReported::first(report);
                self.told.insert(volume, told);
                (events, true)
            }
        };
        if !self.telemetry.is_ending() {
            events.into_iter().for_each(|event| self.telemetry.happened(event));
        }
        is_new
    }

    /// Volumes that were deleted, whoever did it.
    fn forget_gone(&mut self, present: &HashSet<VolumeId>) -> bool {
        let gone: Vec<VolumeId> = self.told.keys().filter(|volume| !present.contains(volume)).copied().collect();
        if self.telemetry.is_ending() {
            return false;
        }
        for volume in &gone {
            let told = self.told.remove(volume).expect("it was just found there");
            self.volumes.remove(volume);
            self.telemetry.forget(*volume);
            let deleted = Happened::new(EventKind::VolumeDeleted, Severity::Info, Sentence::new("event.deleted"));
            self.telemetry.happened(deleted.of(told.name()));
        }
        !gone.is_empty()
    }

    fn note_links(&mut self, nodes: &[ClusterNodeReport]) {
        for (name, up) in nodes.iter().filter_map(|node| Some((&node.name, node.up?))) {
            let before = self.nodes_up.insert(name.clone(), up);
            if before.is_none_or(|before| before == up) || self.telemetry.is_ending() {
                continue;
            }
            let (kind, severity, key) = match up {
                true => (EventKind::LinkUp, Severity::Info, "event.link-up"),
                false => (EventKind::LinkDown, Severity::Warning, "event.link-down"),
            };
            let event = Happened::new(kind, severity, Sentence::new(key).with("peer", name));
            self.telemetry.happened(event.with("peer", name.as_str()));
        }
    }

    fn note_clock(&mut self, at: u64, moment: Instant) {
        if let Some((before, then)) = self.last.replace((at, moment)) {
            let ahead = at as f64 - before as f64 - moment.saturating_duration_since(then).as_secs_f64();
            if ahead.abs() > CLOCK_SET_S {
                let key = if ahead < 0.0 { "event.clock-back" } else { "event.clock-forward" };
                let sentence = Sentence::new(key).with("seconds", format!("{:.0}", ahead.abs()));
                self.telemetry.happened(
                    Happened::new(EventKind::ClockSet, Severity::Warning, sentence).with("seconds", ahead.round()),
                );
            }
        }
    }

    fn note_history(&mut self) {
        let problem = self.telemetry.history_state().problem;
        if problem.is_some() != self.history_problem.is_some() {
            self.telemetry.happened(match &problem {
                Some(why) => Happened::new(EventKind::HistoryFailing, Severity::Warning, why.as_str()),
                None => Happened::new(EventKind::HistoryReady, Severity::Info, Sentence::new("event.history-ready")),
            });
        }
        self.history_problem = problem;
    }

    /// What is new of it is an event, and so is that there is nothing any more.
    fn note_coordinator(&mut self, troubles: Vec<CoordinatorTrouble>) {
        for trouble in &troubles {
            if self.coordinator.iter().all(|known| known.code != trouble.code) {
                let severity = if trouble.code == "etcd-nearly-full" { Severity::Warning } else { Severity::Error };
                let happened = Happened::new(EventKind::CoordinatorTrouble, severity, trouble.text.as_str());
                self.telemetry.happened(happened.with("code", trouble.code.as_str()));
            }
        }
        if troubles.is_empty() && !self.coordinator.is_empty() {
            let sentence = Sentence::new("event.coordinator-well");
            self.telemetry.happened(Happened::new(EventKind::CoordinatorWell, Severity::Info, sentence));
        }
        self.coordinator = troubles;
    }

    fn history_trouble(&self) -> Option<Degraded> {
        let why = self.history_problem.as_ref()?;
        Some(Degraded::of_node(&self.telemetry.name(), "history-failing", why.as_str()))
    }
}

/// What the node has counted since its start.
struct NodeCounts {
    cpu_s: f64,
    memory_bytes: Option<u64>,
    sent_bytes: u64,
    received_bytes: u64,
    saved_bytes: u64,
}

impl NodeCounts {
    fn now(nodes: &[ClusterNodeReport]) -> NodeCounts {
        let channels = || nodes.iter().flat_map(|node| &node.channels);
        let saved = nodes.iter().filter_map(|node| node.compression.as_ref()).map(|packing| packing.saved_bytes);
        NodeCounts {
            cpu_s: cpu_seconds(),
            memory_bytes: memory_bytes(),
            sent_bytes: channels().map(|channel| channel.sent_bytes).sum(),
            received_bytes: channels().map(|channel| channel.received_bytes).sum(),
            saved_bytes: saved.sum(),
        }
    }

    fn since(&self, earlier: &NodeCounts, seconds: f64) -> Values {
        let mut values = NO_VALUES;
        values[0] = ((self.cpu_s - earlier.cpu_s).max(0.0) / seconds) as f32;
        values[1] = self.memory_bytes.map_or(f32::NAN, |bytes| bytes as f32);
        values[2] = (self.sent_bytes.saturating_sub(earlier.sent_bytes) as f64 / seconds) as f32;
        values[3] = (self.received_bytes.saturating_sub(earlier.received_bytes) as f64 / seconds) as f32;
        values
    }
}

/// CPU time of the daemon, all threads.
pub fn cpu_seconds() -> f64 {
    // SAFETY: all zeros are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a place for one rusage.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } != 0 {
        return 0.0;
    }
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// What the daemon has in RAM, arenas included.
pub fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: a call with a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Some(pages * u64::try_from(page).ok()?)
}

/// Compression is a link's, not a volume's: a volume's share of what it saved is its share of the blocks that were sent.
struct Shares {
    saved_bytes: u64,
    blocks: u64,
}

impl Shares {
    fn of(
        before: &NodeCounts,
        now: &NodeCounts,
        looks: &[Look],
        tracks: &HashMap<VolumeId, (Track, String)>,
    ) -> Shares {
        let blocks = looks.iter().filter_map(|look| {
            let before = tracks.get(&look.volume)?.0.reading.as_ref()?;
            Some(Reading::new(&look.report, None).peer_blocks_since(before))
        });
        Shares { saved_bytes: now.saved_bytes.saturating_sub(before.saved_bytes), blocks: blocks.sum() }
    }

    fn of_volume(&self, own: u64) -> u64 {
        (u128::from(self.saved_bytes) * u128::from(own)).checked_div(u128::from(self.blocks)).unwrap_or(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(writes: u64, dirty: u64) -> VolumeReport {
        let (_, mut report) = crate::status::tests::example();
        report.counters = [("writes".to_owned(), writes)].into();
        report.dirty.bytes = dirty;
        report
    }

    fn track(at: u64, moment: Instant) -> Track {
        Track::new(Owner::volume([1; 16]), at, moment, Some(Reading::new(&report(0, 0), None)))
    }

    /// One look a second, each with its wall time; of each what was written.
    fn advance(track: &mut Track, looks: &[(u64, u64, u64)], begin: Instant) -> Vec<Vec<(usize, Slot)>> {
        let mut written = Vec::new();
        for (number, &(at, writes, dirty)) in looks.iter().enumerate() {
            let moment = begin + Duration::from_secs(number as u64 + 1);
            let reading = Reading::new(&report(writes, dirty), None);
            let elapsed = moment.saturating_duration_since(track.moment).as_secs_f64();
            let values = reading.since(track.reading.as_ref().unwrap(), elapsed);
            written.push(track.advance(at, moment, Some(reading), &values));
        }
        written
    }

    const WRITE_IOPS: usize = 1;
    const DIRTY: usize = 5;

    #[test]
    fn ten_seconds_become_a_step_with_rates_of_the_whole_and_bounds_of_the_seconds() {
        let begin = Instant::now();
        let mut track = track(999, begin);
        let looks: Vec<(u64, u64, u64)> = (0..10).map(|n| (1000 + n, (n + 1) * (n + 1), n)).collect();
        let written = advance(&mut track, &looks, begin);
        assert!(written[..9].iter().all(|slots| slots.len() == 1 && slots[0].0 == 0));
        let last: HashMap<usize, Slot> = written[9].iter().map(|&(ring, slot)| (ring, slot)).collect();
        let step = &last[&1];
        assert_eq!((step.at, step.seconds), (1000, 10));
        assert_eq!((step.avg[WRITE_IOPS], step.min[WRITE_IOPS], step.max[WRITE_IOPS]), (10.0, 1.0, 19.0));
        assert_eq!((step.avg[DIRTY], step.max[DIRTY]), (4.5, 9.0));
        assert_eq!((last[&2].at, last[&2].seconds), (960, 10), "an open minute is written, too");
        assert_eq!((last[&3].at, last[&3].seconds), (600, 10));
    }

    #[test]
    fn a_late_look_fills_its_seconds_and_a_long_gap_stays_one() {
        let begin = Instant::now();
        let mut track = track(999, begin);
        let written = advance(&mut track, &[(1000, 0, 0), (1003, 30, 0), (1100, 60, 0)], begin);
        let ats: Vec<Vec<u64>> = written
            .iter()
            .map(|slots| slots.iter().filter(|(ring, _)| *ring == 0).map(|(_, slot)| slot.at).collect())
            .collect();
        assert_eq!(ats, [vec![1000], vec![1001, 1002, 1003], vec![1100]]);
        let closed: Vec<(usize, u64, u16)> = written[2]
            .iter()
            .filter(|(ring, _)| *ring > 0)
            .map(|(ring, slot)| (*ring, slot.at, slot.seconds))
            .collect();
        assert_eq!(closed, [(1, 1000, 4), (2, 960, 4)], "steps that the gap has ended");
    }

    #[test]
    fn a_clock_that_is_set_back_begins_its_steps_again() {
        let begin = Instant::now();
        let mut track = track(999, begin);
        let written = advance(&mut track, &[(1000, 1, 0), (1001, 2, 0), (501, 3, 0), (502, 4, 0)], begin);
        let seconds: Vec<u64> = written.iter().map(|slots| slots[0].1.at).collect();
        assert_eq!(seconds, [1000, 1001, 501, 502]);
        assert!(written[2].iter().all(|(_, slot)| slot.avg[WRITE_IOPS] == 1.0), "a second is a second by any clock");
        assert_eq!(track.steps.iter().map(|step| step.begin).collect::<Vec<_>>(), [500, 480, 0]);
    }

    #[test]
    fn a_clock_that_was_set_and_a_volume_that_went_are_events() {
        let dir = tempfile::tempdir().unwrap();
        let telemetry = Arc::new(Telemetry::new(dir.path(), "alpha".to_owned()).unwrap());
        let mut sampler = Sampler::new(telemetry.clone());
        let (begin, volume) = (Instant::now(), VolumeId([7; 16]));
        let looks = |dirty| vec![Look { volume, report: report(0, dirty), seen: None }];
        let mut take = |at, second, looks, present: &[VolumeId]| {
            let present = present.iter().copied().collect();
            sampler.take(at, begin + Duration::from_secs(second), looks, &[], &present);
        };
        take(5000, 1, looks(1), &[volume]);
        take(5001, 2, looks(2), &[volume]);
        // As told, and no more: an hour back, then a day forward.
        take(1402, 3, looks(3), &[volume]);
        take(87_803, 4, Vec::new(), &[volume]);
        take(87_804, 5, Vec::new(), &[]);
        let events = telemetry.events(&crate::events::Filter::default(), 100);
        let seen: Vec<(&str, Option<f64>)> = events
            .iter()
            .map(|e| (e.what.kind.as_str(), e.what.details.get("seconds").and_then(|s| s.as_f64())))
            .collect();
        let at_first = [("backing-failing", None), ("image-displaced", None)];
        let later = [("clock-set", Some(-3600.0)), ("clock-set", Some(86400.0)), ("volume-deleted", None)];
        assert_eq!(seen, [&at_first[..], &later].concat());
        assert_eq!(events.last().and_then(|event| event.what.volume.as_deref()), Some("vm1"));
        telemetry.end();
        let query = query::Query { from: 1400, to: 1404, points: 4, series: vec![DIRTY] };
        let after = telemetry.history(&Owner::volume(volume.0), &query, 1404).unwrap();
        assert_eq!(after.series["dirty_bytes"].avg, [None; 4], "what was deleted has no past");
        let node = query::Query { series: vec![4], ..query };
        let node = telemetry.history(&Owner::NODE, &node, 1404).unwrap();
        assert_eq!(node.series["dirty_bytes"].avg, [None, None, Some(3.0), None]);
    }

    #[test]
    fn the_daemon_knows_its_own_cost() {
        let before = NodeCounts::now(&[]);
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until {}
        let values = NodeCounts::now(&[]).since(&before, 0.05);
        assert!(values[0] > 0.0 && values[1] > 1e6, "{:?}", &values[..2]);
    }
}
