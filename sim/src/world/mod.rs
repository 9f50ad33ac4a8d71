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
//! the way from faults to rest; [`brief`] traces.

/// Prints a line when the run is traced.
macro_rules! trace {
    ($world:expr, $($text:tt)*) => {
        if $world.trace {
            eprintln!("{:>12.6} {:>6} {}", $world.now.0 as f64 / 1e9, $world.moment, format_args!($($text)*));
        }
    };
}

mod backing;
mod brief;
mod checks;
mod clients;
mod crash;
mod effects;
mod frames;
mod journal;
mod life;
mod operator;
mod rot;
mod stages;
mod tier;

use crate::coverage::Coverage;
use crate::journal::Found;
use crate::media::{Landing, Media, land};
use crate::oracle::{FlushId, Moment, Oracle, WriteId};
use crate::pattern;
use crate::random::Random;
use crate::setup::{Crash, Lie, Setup, Step};
use brief::{brief_effect, brief_event};
use clients::{Audit, Client, Coming, Open};
use crash::Late;
use effects::{Op, OpKind};
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::{ControlError, Counters, DestageMode, Phase, Policy, Reason};
use forebay_core::types::*;
use forebay_core::volume::Rules;
use forebay_core::{STOP_PATIENCE, Volume, VolumeConfig};
use journal::Replay;
use rot::Rot;
use stages::Stage;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tier::Record;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Sectors compared in one run in search of a backing that is no crash image; keeps a run below a second.
const SECTORS_CHECKED_MAX: u64 = 400_000;
/// Turns without the clock moving after which a run counts as a livelock.
const TURNS_AT_ONE_INSTANT_MAX: u32 = 20_000;
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
}

/// What a run leaves.
pub struct Report {
    /// States reached.
    pub coverage: Coverage,
    /// Effects executed and events delivered: the possible crash points.
    pub points: u64,
    /// True when the planned crash happened.
    pub crashed: bool,
    /// Virtual time.
    pub elapsed: Duration,
    /// Longest time without an answer while clients worked.
    pub pause_max: Duration,
    /// Longest time that one request waited for frames, or for its answer, while the backing was there.
    pub wait_max: Duration,
}

/// The world.
pub struct World {
    setup: Setup,
    random: Random,
    lie: Option<Lie>,
    /// Bugs planted in the volume; it has no fields without the feature `mutants`.
    #[cfg_attr(not(feature = "mutants"), allow(dead_code))]
    rules: Rules,
    trace: bool,

    now: Instant,
    moment: Moment,
    points: u64,
    agenda: BTreeMap<(u64, u64), Due>,
    agenda_next: u64,

    volume: Option<Volume>,
    serving: bool,
    backing_ready: bool,
    ready_since: Instant,
    term: Term,
    formatted: bool,
    crash: Option<Crash>,
    planned_crash_done: bool,
    crashes: u32,
    turns_at_one_instant: u32,
    counters_before: Counters,

    tier: Media,
    backing: Media,
    journal: Media,
    /// The complete batch that `journal.current` holds, when it was looked at since the last change.
    journal_found: Option<Option<Found>>,
    /// Where the last batch of this life ended whose sync succeeded.
    journal_through: Lsn,
    /// Flash tier: the arena, which dies with the process.
    arena: Vec<u8>,
    ops: BTreeMap<u64, Op>,
    readers: Vec<u32>,
    writing: Vec<bool>,
    taken: Vec<bool>,
    backing_gone_until: Instant,
    backing_sync_failed: BTreeSet<usize>,
    errors_injected: bool,
    /// Failed tier operations of this life.
    tier_errors: u32,
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
    open: BTreeMap<u64, Open>,
    coming: BTreeMap<u64, Coming>,
    request_next: u64,
    controls: BTreeMap<u64, (Control, Moment)>,
    control_next: u64,
    /// Size that a client may rely on.
    size_promised: u64,
    stopping: bool,
    stop_asked: Instant,
    /// Backing at the moment a hold was granted, and how often it was written by then.
    hold: Option<(Vec<u8>, u64)>,
    /// A drain through has been answered, and no release yet.
    keeping: bool,
    backing_changes: u64,
    releasing: Option<u64>,
    audit: Option<Audit>,

    records: BTreeMap<u64, Record>,
    destaged_seen: Lsn,
    through_since: Option<Moment>,

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
    coverage: Coverage,
}

impl World {
    /// A new world with a fresh volume.
    pub fn new(setup: Setup, random: Random, lie: Option<Lie>, rules: Rules, trace: bool) -> World {
        let frames = setup.frames as usize;
        let backing_bytes = (setup.size_bytes_max as usize).next_multiple_of(BLOCK) + BLOCK;
        let mut world = World {
            random,
            lie,
            rules,
            trace,
            now: Instant(1_000_000_000),
            moment: 0,
            points: 0,
            agenda: BTreeMap::new(),
            agenda_next: 0,
            volume: None,
            serving: false,
            backing_ready: false,
            ready_since: Instant(0),
            term: Term(0),
            formatted: false,
            crash: None,
            planned_crash_done: false,
            crashes: 0,
            turns_at_one_instant: 0,
            counters_before: Counters::default(),
            tier: Media::new(setup.layout.tier_blocks as usize * BLOCK),
            backing: Media::new(backing_bytes),
            journal: Media::new(setup.journal_blocks as usize * BLOCK),
            journal_found: None,
            journal_through: Lsn(0),
            arena: vec![0xdb; if setup.layout.kind == TierKind::Flash { frames * BLOCK } else { 0 }],
            ops: BTreeMap::new(),
            readers: vec![0; frames],
            writing: vec![false; frames],
            taken: vec![false; frames],
            backing_gone_until: Instant(0),
            backing_sync_failed: BTreeSet::new(),
            errors_injected: false,
            tier_errors: 0,
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
            open: BTreeMap::new(),
            coming: BTreeMap::new(),
            request_next: 1,
            controls: BTreeMap::new(),
            control_next: 1,
            size_promised: setup.size_bytes,
            stopping: false,
            stop_asked: Instant(0),
            hold: None,
            keeping: false,
            backing_changes: 0,
            releasing: None,
            audit: None,
            records: BTreeMap::new(),
            destaged_seen: Lsn(0),
            through_since: None,
            stage: Stage::Work,
            sectors_to_check: SECTORS_CHECKED_MAX,
            healing_since: Instant(0),
            progress: Instant(1_000_000_000),
            pause_max: Duration(0),
            wait_max: Duration(0),
            coverage: Coverage::default(),
            setup,
        };
        trace!(world, "setup {:?}", world.setup);
        world.start_life();
        world
    }

    /// Runs to the end. Panics on a violation.
    pub fn run(mut self) -> Report {
        let start = self.now;
        while self.stage != Stage::Done {
            self.turn();
        }
        self.collect_counters();
        Report {
            coverage: self.coverage,
            points: self.points,
            crashed: self.planned_crash_done,
            elapsed: self.now - start,
            pause_max: self.pause_max,
            wait_max: self.wait_max,
        }
    }

    fn tick(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }

    fn schedule(&mut self, after: Duration, due: Due) {
        self.agenda_next += 1;
        // Things due at one instant happen in any order.
        let order = self.random.draw() >> 32 << 32 | self.agenda_next;
        self.agenda.insert(((self.now + after).0, order), due);
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
        let timeout = self.volume.as_ref().and_then(|v| v.poll_timeout());
        let next = self.agenda.keys().next().map(|k| Instant(k.0));
        let at = match (next, timeout) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) => a,
            (None, Some(b)) => b,
            (None, None) => {
                assert!(
                    self.stage != Stage::Work || self.script_is_over(),
                    "nothing will ever happen again, but requests are open: {}",
                    self.unfinished()
                );
                self.advance_stage();
                assert!(
                    self.stage == Stage::Done || !self.agenda.is_empty() || self.has_timeout(),
                    "nothing will ever happen again in stage {:?}: {}",
                    self.stage,
                    self.unfinished()
                );
                return;
            }
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
        let batch = self.random.range(1, self.setup.batch_max);
        for _ in 0..batch {
            let Some((&key, _)) = self.agenda.iter().next() else { break };
            if key.0 > self.now.0 {
                break;
            }
            let due = self.agenda.remove(&key).expect("just seen");
            self.tick();
            self.deliver(due);
            if self.point() {
                break;
            }
            if self.random.below(4) == 0 {
                self.pump();
            }
            if self.crash.is_some() || self.refused {
                break;
            }
        }
        if self.crash.is_none()
            && let Some(volume) = &mut self.volume
        {
            volume.settle(self.now);
            self.pump();
        }
        if let Some(crash) = self.crash.take() {
            self.crash_now(crash);
        }
        self.inspect();
        self.advance_stage();
    }

    fn has_timeout(&self) -> bool {
        self.volume.as_ref().is_some_and(|v| v.poll_timeout().is_some())
    }

    fn unfinished(&self) -> String {
        let mut text = format!(
            "{} requests open, {} coming, {} commands, {} operations",
            self.open.len(),
            self.coming.len(),
            self.controls.len(),
            self.ops.len()
        );
        if let Some(volume) = &self.volume {
            text += &format!("\n{:?}", volume.status(self.now));
        }
        text
    }

    /// A place where the world may end a life. True when it does.
    fn point(&mut self) -> bool {
        self.points += 1;
        if self.volume.is_none() || self.crash.is_some() {
            return self.crash.is_some();
        }
        if let Some(plan) = self.setup.crash_plan {
            if !self.planned_crash_done && self.points >= plan.point && self.stage == Stage::Work {
                self.planned_crash_done = true;
                self.crash = Some(plan.crash);
            }
        } else if self.fault(self.setup.faults.process_killed) {
            self.crash = Some(Crash::ProcessKilled);
        } else if self.fault(self.setup.faults.power_lost) {
            self.crash = Some(Crash::PowerLost);
        } else if self.fault(self.setup.faults.logs_lost) {
            self.crash = Some(Crash::LogsLost);
        }
        self.crash.is_some()
    }

    fn hand(&mut self, event: Event) {
        let Some(volume) = self.volume.as_mut() else { panic!("an event for no volume: {event:?}") };
        if self.trace {
            trace!(self, "-> {}", brief_event(&event));
        }
        volume.handle(self.now, event);
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
            Due::BackingReady => {
                self.ghosts_end();
                if self.setup.journal_blocks > 0 {
                    self.begin_replay();
                } else {
                    self.backing_ready = true;
                    self.ready_since = self.now;
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
                if self.setup.layout.kind == TierKind::Memory && self.lie != Some(Lie::ArenaBeforeLock) {
                    // The backing's lock is awaited before the arena is used.
                    self.ghosts_end();
                }
                self.start_life();
            }
            Due::Audit => self.audit_reads(),
        }
    }
}
