//! The world around one real [`Volume`]: clients, a tier, a backing, a clock, an operator, and faults.
//!
//! It is the executor of core's seam, with every freedom that the seam leaves and that real devices take: operations
//! end in any order and at any time, payloads arrive late, writes tear, syncs fail, the process or the power dies
//! between any two effects. What is decided here by chance is decided by the seed alone.
//!
//! Frames are real 4096-byte blocks and volumes are tiny: that is fast enough (milliseconds a run), and it puts every
//! slice, mask and checksum of core under test, with the very checksum function that production uses.
//!
//! Checked here at every step: the seam's rules (no frame changed while it is in use, no reply twice, alignment,
//! depth, nothing written to the backing before its lock), `Volume::validate`, and what [`Oracle`] knows.
//!
//! This file has the state, the clock and the turns. What each other file owns: [`life`] starts and stops, [`crash`] the
//! other ends and what is late, [`rot`] what damages a tier between two lives; [`effects`] operations begun and ended, on [`tier`], [`backing`] and [`journal`], with
//! [`frames`] between them; [`clients`] and [`operator`] those who ask; [`checks`] what must hold at any moment; [`stages`]
//! the way from faults to rest; [`brief`] traces. Of several nodes: [`node`] what each has, [`cluster`] what they share and what goes
//! wrong, [`links`] and [`coordinator`] between them, [`ownership`] who may serve, [`replicas`] and [`terms`] what must hold.

/// Prints a line when the run is traced.
macro_rules! trace {
    ($world:expr, $($text:tt)*) => {
        if $world.trace {
            let node = if $world.away.len() > 1 { format!(" n{}", $world.at) } else { String::new() };
            eprintln!("{:>12.6} {:>6}{node} {}", $world.now.0 as f64 / 1e9, $world.moment, format_args!($($text)*));
        }
    };
}

mod backing;
mod brief;
mod checks;
mod clients;
mod cluster;
mod coordinator;
mod crash;
mod effects;
mod frames;
mod journal;
mod life;
mod links;
mod node;
mod operator;
mod ownership;
mod replicas;
mod rot;
mod stages;
mod stats;
mod terms;
mod tier;
mod waits;

use crate::cluster::{ClusterSetup, Planned};
use crate::coverage::Coverage;
use crate::journal::Found;
use crate::oracle::{FlushId, Moment, Oracle, WriteId};
use crate::random::Random;
use crate::setup::{Crash, Lie, Setup, Step};
use crate::tier_migration::{Landing, Media, land};
use crate::{digest, pattern};
use brief::{brief_effect, brief_event};
use clients::{Asked, Audit, Client, Coming, Open};
use cluster::Cluster;
use coordinator::{Coordinator, Loss, Question, Verdict};
use crash::Late;
use effects::{Op, OpKind};
use forebay_core::api::*;
use forebay_core::cluster::*;
use forebay_core::format::*;
use forebay_core::message::*;
use forebay_core::ownership::BackingAnswer;
use forebay_core::status::{ControlError, DestageMode, Phase, Policy, Reason};
use forebay_core::types::*;
use forebay_core::volume::{ClusterConfig, Rules};
use forebay_core::{STOP_PATIENCE, Volume, VolumeConfig};
use journal::Replay;
use links::{Letter, Links, index_of, name_of};
use node::{Clock, Node};
use ownership::Part;
use rot::Rot;
use stages::Stage;
use stats::Answers;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use terms::Terms;
use tier::Logged;
use waits::{Mended, Waits};
pub use waits::{Waited, WaitsSeen};

/// What the world's clock shows when all nodes start.
const BEGINNING: Instant = Instant(1_000_000_000);
const BLOCK: usize = BLOCK_BYTES as usize;
/// Sectors compared in one run in search of a backing that is no crash image; keeps a run below a second.
const SECTORS_CHECKED_MAX: u64 = 400_000;
/// Turns without the clock moving after which a run counts as a livelock.
const TURNS_AT_ONE_INSTANT_MAX: u32 = 20_000;
/// Moments of a run: the longest of some thousand took 70,000. One with more works on without an end.
const MOMENTS_MAX: u64 = 2_000_000;
const VOLUME_UUID: [u8; 16] = *b"simulated volume";

/// What falls due.
enum Due {
    /// An operation ends.
    Op(u64),
    /// A payload has arrived, or a request without one.
    Arrive(u64),
    /// A client thinks of something.
    Wake(usize),
    /// A reply's frames have left.
    Sent(Pieces),
    /// No write of an earlier life can land any more.
    BackingReady,
    /// In a cluster: the opening of the backing for a term has ended.
    BackingOpened(Term, BackingAnswer),
    /// What an earlier life had asked of the backing lands.
    Ghost(Late),
    /// What is left to do about an earlier life's journal.
    Replay(Replay),
    /// A write that the backing lied about lands.
    LieLands(usize, Vec<u8>),
    Operator,
    Restart,
    /// The auditor's next read.
    Audit,
    /// A message arrives.
    Letter(Box<Letter>),
    /// The coordinator is asked, or answers.
    Question(Option<OpId>, Box<Question>),
    Verdict(Box<Verdict>),
    /// Ownership looks around.
    Beat,
    /// An owner sees that the lock of this term is lost.
    LockLost(Term),
    Mischief(Option<Planned>),
}

impl Due {
    /// A process does it, so a paused one does it later.
    fn waits_for_process(&self) -> bool {
        match self {
            Due::Op(_)
            | Due::Arrive(_)
            | Due::Wake(_)
            | Due::Sent(_)
            | Due::BackingReady
            | Due::BackingOpened(..)
            | Due::Replay(_)
            | Due::Operator
            | Due::Restart
            | Due::Audit
            | Due::Letter(_)
            | Due::Verdict(_)
            | Due::LockLost(_)
            | Due::Beat => true,
            Due::Ghost(_) | Due::LieLands(..) | Due::Question(..) | Due::Mischief(_) => false,
        }
    }

    /// A device may do it for a process that is gone.
    fn is_late(&self) -> bool {
        matches!(self, Due::Ghost(_) | Due::LieLands(..))
    }

    fn late(self) -> Option<Late> {
        match self {
            Due::Ghost(late) => Some(late),
            Due::LieLands(offset, bytes) => Some(Late::Write { offset, bytes, parts: Parts::new() }),
            Due::Op(_)
            | Due::Arrive(_)
            | Due::Wake(_)
            | Due::Sent(_)
            | Due::BackingReady
            | Due::BackingOpened(..)
            | Due::Replay(_)
            | Due::Operator
            | Due::Restart
            | Due::Audit
            | Due::Letter(_)
            | Due::Verdict(_)
            | Due::Beat
            | Due::LockLost(_)
            | Due::Question(..)
            | Due::Mischief(_) => None,
        }
    }

    /// It was asked for by a volume, or is meant for it.
    fn dies_with_volume(&self) -> bool {
        let is_ownerships =
            matches!(self, Due::Verdict(_) | Due::Beat | Due::LockLost(_) | Due::BackingOpened(..) | Due::Restart);
        self.dies_with_process() && !is_ownerships
    }

    /// Nobody is left to whom it could happen when the process has died.
    fn dies_with_process(&self) -> bool {
        self.waits_for_process() && !matches!(self, Due::Letter(_))
    }
}

/// What a run leaves when nothing was wrong.
pub struct Report {
    /// Which states were reached, and how often.
    pub coverage: Coverage,
    /// Effects executed and events delivered: the possible crash points.
    pub points: u64,
    /// True when the planned crash happened.
    pub crashed: bool,
    /// Virtual time from start to end.
    pub elapsed: Duration,
    /// Longest time without an answer while clients worked.
    pub pause_max: Duration,
    /// Longest time that one request waited for frames, or for its answer, while the backing was there.
    pub wait_max: Duration,
    /// How long was waited though nothing kept anybody.
    pub waits: WaitsSeen,
}

/// Clients, nodes, links and devices, and all that happens between them in one seed.
pub struct World {
    setup: Setup,
    random: Random,
    lie: Option<Lie>,
    /// Bugs planted in the volume; it has no fields without the feature `mutants`.
    #[cfg_attr(not(feature = "mutants"), allow(dead_code))]
    rules: Rules,
    /// Bugs planted in the ownership of every node, likewise.
    #[cfg_attr(not(feature = "mutants"), allow(dead_code))]
    rules_of_ownership: forebay_core::ownership::Rules,
    trace: bool,

    now: Instant,
    moment: Moment,
    /// An effect ended while it was carried out.
    done_at_once: bool,
    points: u64,
    /// What falls due, at which node.
    agenda: BTreeMap<(u64, u64), (usize, Due)>,
    agenda_next: u64,

    /// The node whose turn it is ...
    node: Box<Node>,
    /// ... which is this one ...
    at: usize,
    /// ... of these; its own place here is empty meanwhile.
    away: Vec<Option<Box<Node>>>,
    /// What several nodes share; none: one has the volume to itself.
    cluster: Option<Box<Cluster>>,
    planned_crash_done: bool,
    crashes: u32,
    turns_at_one_instant: u32,

    backing: Media,
    journal: Media,
    /// The complete batch that `journal.current` holds, when it was looked at since the last change.
    journal_found: Option<Option<Found>>,
    /// Writes that a tier was asked for.
    tier_writes: u64,
    backing_gone_until: Instant,
    backing_sync_failed: BTreeSet<usize>,
    errors_injected: bool,
    damaged: bool,
    damage_carried: bool,
    /// A frame has rotted: reads from memory are not verified, the way to the backing is.
    rotten: bool,
    /// What has rotted between two lives.
    rot: Option<Rot>,
    refused: bool,
    liar_backlog: usize,
    old_backing: Vec<u8>,

    oracle: Oracle,
    clients: Vec<Client>,
    script: VecDeque<Step>,
    requests_left: u32,
    request_next: u64,
    control_next: u64,
    /// Size that a client may rely on.
    size_promised: u64,
    backing_changes: u64,
    audit: Option<Audit>,

    /// Work left for the dearest check: a large volume is checked less often, not for longer.
    sectors_to_check: u64,
    stage: Stage,
    healing_since: Instant,
    /// When a request was last answered, or a life began.
    progress: Instant,
    /// Longest time without an answer while clients worked.
    pause_max: Duration,
    /// Longest time that one request waited for frames, or for its answer, while the backing was there.
    wait_max: Duration,
    /// Since when nothing keeps whom, and how long was waited then.
    waits: Waits,
    coverage: Coverage,
}

impl World {
    /// A new world with a fresh volume.
    pub fn new(setup: Setup, random: Random, lie: Option<Lie>, rules: Rules, trace: bool) -> World {
        let backing_bytes = (setup.size_bytes_max as usize).next_multiple_of(BLOCK) + BLOCK;
        let (cluster, mut nodes) = match &setup.cluster {
            None => (None, vec![Node::new(setup.layout, setup.frames, Clock::TRUE)]),
            Some(shape) => {
                let (cluster, nodes) = Cluster::new(shape, setup.size_bytes);
                (Some(Box::new(cluster)), nodes)
            }
        };
        let node = Box::new(nodes.remove(0));
        let mut away = vec![None];
        away.extend(nodes.into_iter().map(|node| Some(Box::new(node))));
        let mut world = World {
            random,
            lie,
            rules,
            rules_of_ownership: forebay_core::ownership::Rules::default(),
            trace,
            now: BEGINNING,
            moment: 0,
            done_at_once: false,
            points: 0,
            agenda: BTreeMap::new(),
            agenda_next: 0,
            node,
            at: 0,
            away,
            cluster,
            planned_crash_done: false,
            crashes: 0,
            turns_at_one_instant: 0,
            backing: Media::new(backing_bytes),
            journal: Media::new(setup.journal_blocks as usize * BLOCK),
            journal_found: None,
            tier_writes: 0,
            backing_gone_until: Instant(0),
            backing_sync_failed: BTreeSet::new(),
            errors_injected: false,
            damaged: false,
            damage_carried: false,
            rotten: false,
            rot: None,
            refused: false,
            liar_backlog: 0,
            old_backing: vec![0; backing_bytes],
            oracle: Oracle::new(setup.size_bytes),
            clients: (0..setup.clients).map(|_| Client::default()).collect(),
            script: setup.script.clone().unwrap_or_default().into(),
            requests_left: setup.script.as_ref().map_or(setup.requests, |s| s.len() as u32),
            request_next: 1,
            control_next: 1,
            size_promised: setup.size_bytes,
            backing_changes: 0,
            audit: None,
            stage: Stage::Work,
            sectors_to_check: SECTORS_CHECKED_MAX,
            healing_since: Instant(0),
            progress: BEGINNING,
            pause_max: Duration(0),
            wait_max: Duration(0),
            waits: Waits::default(),
            coverage: Coverage::default(),
            setup,
        };
        trace!(world, "setup {:?}", world.setup);
        if world.cluster.is_some() {
            world.start_cluster();
        } else {
            world.start_life();
        }
        world
    }

    /// The same with bugs planted in the ownership of every node.
    #[cfg(feature = "mutants")]
    pub fn with_ownership(mut self, rules: forebay_core::ownership::Rules) -> World {
        self.rules_of_ownership = rules;
        self
    }

    /// Runs to the end. Panics on a violation.
    pub fn run(mut self) -> Report {
        let start = self.now;
        while self.stage != Stage::Done {
            self.turn();
            assert!(self.moment < MOMENTS_MAX, "the run does not end: {:?} at {:?}", self.stage, self.now);
        }
        self.collect_counters();
        Report {
            coverage: self.coverage,
            points: self.points,
            crashed: self.planned_crash_done,
            elapsed: self.now - start,
            pause_max: self.pause_max,
            wait_max: self.wait_max,
            waits: self.waits.seen,
        }
    }

    fn tick(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    fn schedule(&mut self, after: Duration, due: Due) {
        self.schedule_at(self.at, after, due);
    }

    fn schedule_at(&mut self, node: usize, after: Duration, due: Due) {
        self.agenda_next += 1;
        // Things due at one instant happen in any order.
        let order = self.random.draw() >> 32 << 32 | self.agenda_next;
        self.agenda.insert(((self.now + after).0, order), (node, due));
    }

    fn micros(&mut self, max: u64) -> Duration {
        // Half of the waits are short: many things meet at one instant.
        let max = if self.random.below(2) == 0 { max / 16 + 1 } else { max };
        Duration::from_micros(self.random.below(max + 1))
    }

    fn faults_on(&self) -> bool {
        self.stage == Stage::Work
    }

    fn fault(&mut self, per_million: u32) -> bool {
        self.faults_on() && self.random.chance(per_million)
    }

    fn turn(&mut self) {
        let Some((at, node)) = self.next_turn() else {
            self.nothing_is_due();
            return;
        };
        if at > self.now {
            self.now = at;
            self.turns_at_one_instant = 0;
        } else {
            self.turns_at_one_instant += 1;
            assert!(
                self.turns_at_one_instant < TURNS_AT_ONE_INSTANT_MAX,
                "livelock: time stands still at {:?}: {}",
                self.now,
                self.unfinished()
            );
        }
        self.turn_to(node);
        let batch = self.random.range(1, self.setup.batch_max);
        for _ in 0..batch {
            self.postpone_for_paused();
            let Some(entry) = self.agenda.first_entry() else { break };
            if entry.key().0 > self.now.0 || entry.get().0 != self.at {
                break;
            }
            let (_, due) = entry.remove();
            self.tick();
            self.deliver(due);
            if self.point() {
                break;
            }
            if self.random.below(4) == 0 {
                self.pump();
            }
            if self.node.crash.is_some() || self.refused {
                break;
            }
        }
        self.settle();
        if let Some(crash) = self.node.crash.take() {
            self.crash_now(crash);
        }
        self.inspect();
        self.advance_stage();
    }

    /// When something is due next, and at which node.
    fn next_turn(&mut self) -> Option<(Instant, usize)> {
        self.postpone_for_paused();
        let next = self.agenda.first_key_value().map(|(key, (node, _))| (Instant(key.0), *node));
        let timeout = self.each_node().filter_map(|(i, node)| Some((node.timeout()?, i))).min();
        match (next, timeout) {
            (Some(next), Some(timeout)) if timeout.0 < next.0 => Some(timeout),
            (Some(next), _) => Some(next),
            (None, timeout) => timeout,
        }
    }

    fn nothing_is_due(&mut self) {
        assert!(
            self.stage != Stage::Work || self.script_is_over(),
            "nothing will ever happen again, but requests are open: {}",
            self.unfinished()
        );
        self.advance_stage();
        assert!(
            self.stage == Stage::Done || self.next_turn().is_some(),
            "nothing will ever happen again in stage {:?}: {}",
            self.stage,
            self.unfinished()
        );
    }

    /// What falls due at a node that is paused waits for its end.
    fn postpone_for_paused(&mut self) {
        while let Some((&key, &(node, _))) = self.agenda.first_key_value() {
            let Some(until) = self.node_at(node).paused_until.filter(|until| until.0 > key.0) else { break };
            let Some((at, due)) = self.agenda.remove(&key) else { unreachable!("just seen") };
            if !due.waits_for_process() {
                // What the coordinator does, say, does not wait.
                self.agenda.insert(key, (at, due));
                break;
            }
            self.agenda.insert((until.0, key.1), (at, due));
        }
    }

    /// Every node with its index.
    fn each_node(&self) -> impl Iterator<Item = (usize, &Node)> {
        (0..self.away.len()).map(|i| (i, self.node_at(i)))
    }

    fn node_at(&self, index: usize) -> &Node {
        if index == self.at { &self.node } else { self.away[index].as_ref().expect("all others are away") }
    }

    /// From here on it is this node's turn.
    fn turn_to(&mut self, to: usize) {
        if to != self.at {
            let next = self.away[to].take().expect("only the node whose turn it is is not away");
            self.away[self.at] = Some(std::mem::replace(&mut self.node, next));
            self.at = to;
        }
    }

    /// Lets the volume of this node do what profits from seeing several events.
    fn settle(&mut self) {
        let now = self.clock();
        if !self.node.is_paused(self.now) && self.node.part.timeout().is_some_and(|at| at <= now) {
            self.tell(forebay_core::ownership::Event::Timeout);
        }
        if self.node.crash.is_some() || self.node.is_paused(self.now) || self.node.volume.is_none() {
            return;
        }
        while let Some(volume) = &mut self.node.volume {
            volume.settle(now);
            self.pump();
            // As a node does: what was done at once may let it decide more.
            if !core::mem::take(&mut self.done_at_once) || self.node.crash.is_some() {
                break;
            }
        }
        if self.node.crash.is_none() {
            self.check_seen();
        }
    }

    /// What this node's clock shows.
    fn clock(&self) -> Instant {
        self.node.clock.shows(self.now)
    }

    fn unfinished(&self) -> String {
        let mut text = String::new();
        if let Some(cluster) = &self.cluster {
            let clients = self.clients.iter().filter(|client| client.waiting.is_some()).count();
            text += &format!("{:?}\n{:?}, {clients} clients wait", cluster.coordinator.record, self.audit);
        }
        for (i, node) in self.each_node() {
            text += &format!(
                "\nnode {i}: {} requests open, {} coming, {} commands, {} operations; its clock shows {:?}, due {:?} and {:?}",
                node.open.len(),
                node.coming.len(),
                node.controls.len(),
                node.ops.len(),
                node.clock.shows(self.now),
                node.volume.as_ref().and_then(Volume::poll_timeout),
                node.part.timeout(),
            );
            if let Some(volume) = &node.volume {
                let status = volume.status(node.clock.shows(self.now));
                if self.cluster.is_some() {
                    text += &format!("\n{:?} {:?}, {} bytes dirty", node.incarnation, status.phase, status.dirty_bytes);
                    text += &format!("\n{:?}\n{:?}", volume.figures(), node.part);
                } else {
                    text += &format!("\n{status:?}");
                }
            }
        }
        text
    }

    /// A place where the world may end a life. True when it does.
    fn point(&mut self) -> bool {
        self.points += 1;
        if self.node.volume.is_none() || self.node.crash.is_some() {
            return self.node.crash.is_some();
        }
        if let Some(plan) = self.setup.crash_plan {
            if !self.planned_crash_done && self.points >= plan.point && self.stage == Stage::Work {
                self.planned_crash_done = true;
                self.node.crash = Some(plan.crash);
            }
        } else if self.fault(self.setup.faults.process_killed) {
            self.node.crash = Some(Crash::ProcessKilled);
        } else if self.fault(self.setup.faults.power_lost) {
            self.node.crash = Some(Crash::PowerLost);
        } else if self.fault(self.setup.faults.logs_lost) {
            self.node.crash = Some(Crash::LogsLost);
        }
        self.node.crash.is_some()
    }

    fn hand(&mut self, event: Event) {
        if self.trace {
            trace!(self, "-> {}", brief_event(&event));
        }
        let now = self.clock();
        let Some(volume) = self.node.volume.as_mut() else { panic!("an event for no volume: {event:?}") };
        volume.handle(now, event);
        self.note_policy();
    }

    fn deliver(&mut self, due: Due) {
        match due {
            Due::Op(op) => self.end_operation(op),
            Due::Arrive(id) => self.arrive(id),
            Due::Wake(client) => self.client_acts(client),
            Due::Sent(pieces) => {
                self.unpin_pieces(&pieces);
                self.hand(Event::Sent(pieces));
            }
            Due::BackingOpened(term, answer) => self.tell(forebay_core::ownership::Event::Backing(term, answer)),
            Due::BackingReady => {
                self.ghosts_end();
                if self.setup.journal_blocks > 0 {
                    self.begin_replay();
                } else {
                    self.node.backing_ready = true;
                    self.node.ready_since = self.now;
                    self.progress = self.now;
                    self.hand(Event::BackingReady);
                }
            }
            Due::Ghost(late) => self.ghost_lands(late),
            Due::Replay(step) => self.go_on_replaying(step),
            Due::LieLands(offset, bytes) => {
                self.liar_backlog -= 1;
                self.backing.write(offset, &bytes);
            }
            Due::Operator => self.operator_acts(),
            Due::Restart => {
                if self.node.layout.kind == TierKind::Memory && self.lie != Some(Lie::ArenaBeforeLock) {
                    // The backing's lock is awaited before the arena is used.
                    self.ghosts_end();
                }
                if self.cluster.is_some() {
                    self.start_process();
                } else {
                    self.start_life();
                }
            }
            Due::Audit => self.audit_reads(),
            Due::Letter(letter) => self.letter_arrives(*letter),
            Due::Question(op, question) => self.question_arrives(op, *question),
            Due::Verdict(verdict) => self.verdict_arrives(*verdict),
            Due::Beat => self.beat(),
            Due::LockLost(term) => self.tell(forebay_core::ownership::Event::LockLost(term)),
            Due::Mischief(planned) => self.mischief(planned),
        }
    }
}
