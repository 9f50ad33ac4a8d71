//! How long requests wait once nothing keeps them: each is answered within a bound ([`World::wait_max_allowed`]) of being possible.
//!
//! A request is possible while its volume serves and no fault is under way: no operation of a device stalls, the backing is there, and nothing
//! has failed of late. Whatever it waits for besides is the volume's own doing: room in the log, frames, the end of a hold, an operation
//! that is not begun, or nothing at all.
//!
//! In a cluster a request is judged at the node that owns the volume by the record and serves; whoever asks a former owner that does not
//! know it is answered by nobody. Two more bounds are held there: whoever needs nothing but the log is answered without the backing
//! ([`BY_LOG_MAX`]), and a volume is served ([`UNSERVED_MAX`]). Nothing is possible from the beginning of any of these faults until it has
//! ended and the times are over by which the product notices, decides and mends ([`Mended`]):
//!
//! - A node is down, or starts: it may be the owner, or the copy without which a write waits for the backing.
//! - A node is paused: the same, and by its own clock nothing has happened.
//! - A link is cut, or crawls: a write waits for the copy behind it until that is left out.
//! - A message was lost, doubled or damaged: it is sent again after a while, which may count as the failure of a peer.
//! - The coordinator is out of reach for a node, or a question or an answer was lost: nobody is left out, added or followed meanwhile. A
//!   question that is late may still change the record when it arrives.
//! - A tier stalls or has failed: its node goes, and the operator starts it anew when he has seen it.
//! - The image was not opened, or late: who won the term does not serve before.
//! - The server of the image refuses a node: it is an owner that must go, and is told of that later.
//! - A former owner may still write (`unfenced`): what it may hit is pinned, destage goes around that, and the proof is the world's to give.
//! - No recorded member has its log, or the log is released: only the operator opens the volume, when he has seen it.
//! - The operator has it handed over: its requests are held for that.
//!
//! A backing that stalls or fails keeps who waits for it, and that only until it has ended: it changes no owner. Who needs only the log is
//! not kept by that, but by too few copies in the record, and by a record that lets logs stand for nothing (A1, A5).

use super::*;
use forebay_core::ownership::Timing;
use forebay_core::stats::Histogram;
use forebay_core::status::Flush;

/// A request that is possible is answered within this, and what a slow backing needs.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A request that the log has, and that needs nothing else, is answered within this: some hundred times what tiers and links take.
const BY_LOG_MAX: Duration = Duration::from_secs(10);
/// A volume that could be served is served within this. Each fault has ended, and the times of a take-over are over before it counts.
const UNSERVED_MAX: Duration = Duration::from_secs(60);

/// Waits of one kind: those that have ended, and the longest of all.
#[derive(Clone, Default)]
pub struct Waited {
    /// How long each lasted from when it was possible to end it.
    pub ended: Histogram,
    /// The longest, whether or not it has ended.
    pub longest: Duration,
}

impl Waited {
    fn note(&mut self, waited: Duration, ended: bool) {
        self.longest = self.longest.max(waited);
        if ended {
            self.ended.record(waited);
        }
    }

    fn merge(&mut self, other: &Waited) {
        self.ended.merge(&other.ended);
        self.longest = self.longest.max(other.longest);
    }
}

/// How long was waited though it was possible to be answered.
#[derive(Clone, Default)]
pub struct WaitsSeen {
    /// Of requests, whatever they need.
    pub requests: Waited,
    /// In a cluster: of those that the log has, and that need nothing else.
    pub by_log: Waited,
    /// In a cluster: for a node that serves.
    pub unserved: Waited,
}

impl WaitsSeen {
    /// Adds what another run has seen.
    pub fn merge(&mut self, other: &WaitsSeen) {
        self.requests.merge(&other.requests);
        self.by_log.merge(&other.by_log);
        self.unserved.merge(&other.unserved);
    }
}

/// Since when nothing keeps whom.
#[derive(Default)]
pub(super) struct Waits {
    /// No fault has been under way since, or will be from then on.
    possible_since: Instant,
    /// The same for who needs only the log: the backing does not count, copies do.
    by_log_since: Instant,
    /// In a cluster: since when this node has served, without an end.
    serving: Option<(usize, Instant)>,
    /// In a cluster: when a node last served.
    served_at: Instant,
    pub(super) seen: WaitsSeen,
}

/// What becomes of a fault, and how long the product takes for it when the fault has ended: times of its own, added up although many of
/// them run at once.
#[derive(Clone, Copy)]
pub(super) enum Mended {
    /// A message is sent again, or whoever does not answer it is left out (A3), which the coordinator is asked for once more.
    SentAgain,
    /// A node is left out or takes over: the owner is silent for so long (L2), what was granted ends (T4), the next one has to reach
    /// the coordinator and the image, and says so to all.
    TakenOver,
    /// A hand-over that does not become quiet is given up, with requests held in the end.
    HandedOver,
}

impl Mended {
    fn within(self) -> Duration {
        let timing = Timing::default();
        let Timing { channel_dead, member_drop, retry, grace, beacon, backing_retry, quiet_max, held_max, .. } = timing;
        let left_out = [channel_dead, member_drop, retry];
        let parts = match self {
            Mended::SentAgain => &[][..],
            Mended::TakenOver => &[grace, timing.lease_elsewhere(), beacon, backing_retry],
            Mended::HandedOver => &[quiet_max, held_max],
        };
        Duration(left_out.iter().chain(parts).map(|part| part.0).sum())
    }
}

impl World {
    /// Where the log is full, a request waits until enough of it has been destaged: the whole volume may have to be written, twice, with one
    /// write after the other. In a cluster each window is told to all members before, and each of them answers.
    fn wait_max_allowed(&self) -> Duration {
        let writes = self.setup.size_bytes_max / u64::from(self.setup.backing_write_bytes_max);
        let told = self.cluster.as_ref().map_or(0, |cluster| {
            let windows = self.setup.size_bytes_max / cluster.setup.window_bytes_max + 1;
            2 * windows * 2 * cluster.setup.link_micros_max
        });
        Duration(WAIT_MAX.0 + Duration::from_micros(2 * writes * self.setup.backing_micros_max + told).0)
    }

    /// A fault of the backing is under way until then, and nothing that waits meanwhile has waited too long.
    pub(super) fn note_trouble_until(&mut self, until: Instant) {
        self.waits.possible_since = self.waits.possible_since.max(until);
    }

    /// The same of any other fault: also who needs only the log is kept by it, and in a cluster until the product has mended what comes of it.
    pub(super) fn note_fault_until(&mut self, until: Instant, mended: Mended) {
        let clear = if self.cluster.is_some() { until + mended.within() } else { until };
        self.note_trouble_until(clear);
        self.waits.by_log_since = self.waits.by_log_since.max(clear);
    }

    /// What is wrong at this moment in a cluster, and since when its volume is served.
    pub(super) fn look_for_faults(&mut self) {
        let now = self.now;
        if self.cluster_is_kept() {
            match self.cluster().served {
                Some(_) => self.note_fault_until(now, Mended::TakenOver),
                // The first start of all nodes is no fault: there is nothing to be mended.
                None => self.note_trouble_until(now),
            }
        }
        if !self.logs_stand() {
            self.waits.by_log_since = self.waits.by_log_since.max(now);
        }
        let serving = self.serving_node();
        self.check_served(serving.is_some());
        self.waits.serving = serving.map(|node| match self.waits.serving {
            Some((of, since)) if of == node => (of, since),
            Some(_) | None => (node, now),
        });
        if serving == Some(self.at) {
            self.note_what_is_in_the_log();
        }
    }

    /// A fault is under way that does not only concern the backing. See the module.
    fn cluster_is_kept(&self) -> bool {
        let (now, cluster) = (self.now, self.cluster());
        let kept = |node: &Node| {
            node.part.ownership.is_none()
                || node.is_paused(now)
                || node.coordinator_away_until > now
                || node.part.fenced
                || node.tier_errors > 0
        };
        self.each_node().any(|(_, node)| kept(node))
            || cluster.links.are_impaired(now)
            || cluster.coordinator.away_until > now
            || cluster.lost_since.is_some()
            || cluster.coordinator.record.log == LogState::Released
            || self.in_quarantine()
    }

    /// By the record, what the members hold may be acknowledged without the backing (A1, A5).
    fn logs_stand(&self) -> bool {
        let Cluster { setup, coordinator, .. } = self.cluster();
        let copies = coordinator.record.members.len() as u32 - u32::from(!coordinator.record.members.is_empty());
        coordinator.record.log == LogState::Needed && copies >= setup.min_peers
    }

    /// Somebody serves soon when nothing keeps that.
    fn check_served(&mut self, served: bool) {
        let waits = &mut self.waits;
        let since = waits.served_at.max(waits.possible_since);
        let judged = matches!(self.stage, Stage::Work | Stage::Healing) && waits.serving.is_none();
        if served {
            waits.served_at = self.now;
        }
        if judged && self.now >= since {
            let waited = self.now - since;
            waits.seen.unserved.note(waited, served);
            assert!(
                waited <= UNSERVED_MAX,
                "a volume that could be served is not served for {waited:?}: {}",
                self.unfinished()
            );
        }
    }

    fn note_what_is_in_the_log(&mut self) {
        let (now, Some(volume)) = (self.now, &self.node.volume) else { return };
        for (&id, open) in self.node.open.iter_mut().filter(|(_, open)| open.in_log_since.is_none()) {
            open.in_log_since = volume.awaits_answer(RequestId(id)).then_some(now);
        }
    }

    /// Nobody who could be answered waits too long, at the node whose turn it is.
    pub(super) fn check_waits(&mut self) {
        let frames = self.clients.iter().filter(|client| client.node == self.at).filter_map(|client| client.refused_at);
        let open = self.node.open.values().filter(|open| !open.hung_up);
        if let Some(oldest) = open.map(|open| open.asked_at).chain(frames).min() {
            self.check_wait(oldest, false);
        }
        if self.cluster.is_some() {
            let open = self.node.open.values().filter(|open| !open.hung_up && self.needs_only_the_log(open.asked));
            if let Some(oldest) = open.filter_map(|open| open.in_log_since).min() {
                self.check_by_log(oldest, false);
            }
        }
    }

    /// A request of this kind is answered here, or nobody listens any more.
    pub(super) fn check_answer(&mut self, open: &Open) {
        self.check_wait(open.asked_at, true);
        if let Some(since) = open.in_log_since.filter(|_| self.needs_only_the_log(open.asked)) {
            self.check_by_log(since, true);
        }
    }

    /// Where there are enough copies, a write or a flush is answered by what the members hold, or have synced (A1, A2).
    fn needs_only_the_log(&self, asked: Asked) -> bool {
        let flush_means_destage = self.cluster.as_ref().is_none_or(|cluster| cluster.setup.flush == Flush::Destage);
        match asked {
            Asked::Write(write) => !self.oracle.is_fua(write) || !flush_means_destage,
            Asked::Flush(_) => !flush_means_destage,
            Asked::Read { .. } | Asked::Prefetch => false,
        }
    }

    /// When requests of this node's clients began to be answered; none: they need not be.
    fn answers_since(&self) -> Option<Instant> {
        if self.cluster.is_none() {
            return (self.node.serving && self.node.backing_ready && !self.damaged).then_some(self.node.ready_since);
        }
        let judged = matches!(self.stage, Stage::Work | Stage::Healing | Stage::LastAudit);
        self.waits.serving.filter(|(node, _)| judged && *node == self.at).map(|(_, since)| since)
    }

    /// Neither does who asked then, and is answered now or is not.
    pub(super) fn check_wait(&mut self, asked: Instant, answered: bool) {
        let Some(answers) = self.answers_since() else { return };
        let since = asked.max(self.waits.possible_since).max(answers);
        if self.now < since {
            return;
        }
        let waited = self.now - since;
        self.waits.seen.requests.note(waited, answered);
        assert!(
            waited <= self.wait_max_allowed(),
            "a request that could be answered waits for {waited:?}: {}",
            self.unfinished()
        );
    }

    /// Neither does who has been in the log since then, and needs nothing else.
    fn check_by_log(&mut self, in_log: Instant, answered: bool) {
        let Some(answers) = self.answers_since() else { return };
        let since = in_log.max(self.waits.by_log_since).max(answers);
        if self.now < since {
            return;
        }
        let waited = self.now - since;
        self.waits.seen.by_log.note(waited, answered);
        assert!(
            waited <= BY_LOG_MAX,
            "a request that the log has, and that needs nothing else, waits for {waited:?}: {}",
            self.unfinished()
        );
    }
}
