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

use crate::coverage::Coverage;
use crate::journal::{self, AreaState, Found};
use crate::media::{Landing, Media, land};
use crate::oracle::{FlushId, Moment, Oracle, WriteId};
use crate::pattern;
use crate::random::Random;
use crate::setup::{Crash, Lie, Setup, Step};
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::{ControlError, Counters, DestageMode, Phase, Policy, Reason};
use forebay_core::types::*;
use forebay_core::volume::Rules;
use forebay_core::{STOP_PATIENCE, Volume, VolumeConfig};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const BLOCK: usize = BLOCK_BYTES as usize;
/// Everything must be answered and destaged within this of virtual time once faults have stopped.
const HEALING_MAX: Duration = Duration::from_secs(1_800);
/// Faults end early when nothing was answered for so long.
const STANDSTILL_MAX: Duration = Duration::from_secs(600);
/// Sectors compared in one run in search of a backing that is no crash image; keeps a run below a second.
const SECTORS_CHECKED_MAX: u64 = 400_000;
/// Faults end after so many crashes: more of them in one run find nothing that another seed does not.
const CRASHES_MAX: u32 = 30;
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

/// Which medium a write goes to.
#[derive(Clone, Copy)]
enum Medium {
    Backing,
    Journal,
}

/// An operation on the backing that the process which asked for it did not live to see ended.
enum Late {
    /// These bytes are written. On a memory tier they still lie in frames, at these parts.
    Write { offset: usize, bytes: Vec<u8>, parts: Parts },
    /// These bytes are read into frames of a memory tier.
    Read { frames: Frames, bytes: Vec<u8> },
    /// These bytes are written to the journal. What the device fetches late from frames that are in use again does not
    /// match its checksum, so the batch stays incomplete: as if a part of it had not landed.
    Journal { offset: usize, bytes: Vec<u8> },
}

/// The steps of a replay; the process may die between any two.
#[derive(Clone, Copy)]
enum Replay {
    /// The batch, if one counts, was written to the backing.
    Sync,
    /// The volume was told.
    Await,
    /// The heads in this order: the batch that counts last.
    Erase { first: usize, second: Option<usize> },
}

enum OpKind {
    TierWrite { offset: usize, bytes: Vec<u8>, frames: Vec<FrameId> },
    TierSync { mark: u64 },
    TierRead { at: TierBlock, frames: Checks },
    TierScan { at: TierBlock, blocks: u32 },
    BackingRead { at: BlockIndex, frames: Frames, early: Option<Vec<u8>> },
    BackingWrite { offset: usize, bytes: Vec<u8>, parts: Parts },
    BackingZero { offset: usize, length: usize },
    BackingSync { mark: u64 },
    JournalWrite { offset: usize, bytes: Vec<u8>, frames: Vec<FrameId> },
    JournalSync { mark: u64 },
    Merge { target: FrameId, outcome: Outcome },
}

struct Op {
    kind: OpKind,
    error: Option<IoError>,
}

#[derive(Clone, Copy)]
enum Asked {
    Read { offset: u64, length: u32, audit: bool },
    Write(WriteId),
    Flush(FlushId),
    Prefetch,
}

struct Open {
    client: usize,
    asked: Asked,
    began: Moment,
    /// Effective policy was write-through, as requested, when it was asked for.
    through: bool,
    hung_up: bool,
}

/// A request on its way to the volume.
struct Coming {
    client: usize,
    step: Step,
    write: Option<(WriteId, Frames)>,
}

#[derive(Default)]
struct Client {
    /// Requests under way, also those that are still arriving.
    open: usize,
    waiting: Option<Step>,
}

#[derive(PartialEq, Eq, Clone, Copy, Debug)]
enum Stage {
    /// Clients work and faults happen.
    Work,
    /// No more faults: everything must end well.
    Healing,
    /// The whole volume is read once more.
    LastAudit,
    /// A last stop with drain.
    LastStop,
    Done,
}

struct Audit {
    next: u64,
    /// Content that survived a loss of power.
    durable: bool,
    failures: u32,
    /// First read after a crash.
    settle: bool,
}

/// One record that the volume has put into its log, as seen from outside.
struct Record {
    block: BlockIndex,
    group: Group,
    /// For each of its sectors the bytes' checksum.
    sectors: Vec<(u32, u32)>,
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
    coverage: Coverage,
}

macro_rules! trace {
    ($world:expr, $($text:tt)*) => {
        if $world.trace {
            eprintln!("{:>12.6} {:>6} {}", $world.now.0 as f64 / 1e9, $world.moment, format_args!($($text)*));
        }
    };
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
        }
    }

    // --- the clock ---

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
            if self.crash.is_some() {
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

    fn landing(&self) -> Landing {
        self.setup.crash_plan.map_or(Landing::Random, |p| p.landing)
    }

    // --- lives ---

    fn superblock(&self) -> Superblock {
        let mut name = [0; 64];
        name[..3].copy_from_slice(b"sim");
        Superblock {
            volume: VOLUME_UUID,
            name,
            size_bytes: self.size_promised,
            created_unix_s: 1_790_000_000,
            layout: self.setup.layout,
        }
    }

    fn start_life(&mut self) {
        let found = Superblock::decode(&self.tier.current[..BLOCK]);
        let (superblock, fresh) = match found {
            Ok(superblock) => (superblock, false),
            Err(reason) => {
                assert!(!self.formatted || self.damaged, "the tier of a served volume cannot be opened: {reason}");
                if self.formatted {
                    self.refuse();
                    return;
                }
                (self.superblock(), true)
            }
        };
        trace!(self, "life begins, {}", if fresh { "fresh tier" } else { "recovering" });
        let config = VolumeConfig {
            superblock,
            fresh,
            size_bytes: self.size_promised,
            policy: self.setup.policy,
            frames: self.setup.frames,
            backing_align: self.setup.backing_align,
            backing_depth_max: self.setup.backing_depth_max,
            backing_write_bytes_max: self.setup.backing_write_bytes_max,
            destage_round_bytes_max: self.setup.destage_round_bytes_max,
            destage: self.setup.destage,
            destage_delay: self.setup.destage_delay,
            journal_blocks: self.setup.journal_blocks,
            drain_max: self.setup.drain_max,
        };
        let volume = Volume::new(config, self.now);
        #[cfg(feature = "mutants")]
        let volume = {
            let mut volume = volume;
            volume.rules = self.rules;
            volume
        };
        self.volume = Some(volume);
        self.serving = false;
        self.backing_ready = false;
        self.tier_errors = 0;
        self.stopping = false;
        self.hold = None;
        self.releasing = None;
        self.through_since = None;
        self.keeping = false;
        self.destaged_seen = Lsn(0);
        self.journal_through = Lsn(0);
        self.records.clear();
        self.counters_before = Counters::default();
        self.backing_sync_failed.clear();
        self.readers.fill(0);
        self.writing.fill(false);
        self.taken.fill(false);
        let wait = self.micros(2_000_000);
        self.schedule(wait, Due::BackingReady);
        if self.setup.control > 0 {
            let wait = self.micros(100_000);
            self.schedule(wait, Due::Operator);
        }
        self.pump();
    }

    /// The tier was refused, which damage allows: the run ends here.
    fn refuse(&mut self) {
        trace!(self, "refused after damage");
        self.coverage.see("damage refused at start");
        self.refused = true;
        self.stage = Stage::Done;
    }

    fn on_serving(&mut self) {
        self.serving = true;
        self.formatted = true;
        self.progress = self.now;
        let volume = self.volume.as_ref().expect("it serves");
        let term = volume.term();
        // Unless the device has lied about both copies of the checkpoint.
        assert!(
            term > self.term || self.damaged || self.damage_carried,
            "term {term} follows {}: terms only grow",
            self.term
        );
        self.term = term;
        let size = volume.size_bytes();
        assert!(
            size >= self.size_promised && size <= self.oracle.bytes(),
            "the volume came back with {size} bytes, {} were promised",
            self.size_promised
        );
        self.size_promised = size;
        trace!(self, "serving, term {term}");
        if self.audit.is_some() {
            self.schedule(Duration(0), Due::Audit);
        } else {
            self.wake_clients();
        }
    }

    fn wake_clients(&mut self) {
        if self.stage != Stage::Work {
            return;
        }
        for client in 0..self.clients.len() {
            let wait = self.micros(self.setup.think_micros_max);
            self.schedule(wait, Due::Wake(client));
        }
    }

    /// Makes of the writes in flight what the end of a process makes of them.
    fn abandon_operations(&mut self, crash: Crash) -> Vec<Late> {
        let mut ghosts = Vec::new();
        let landing = self.landing();
        let power = crash == Crash::PowerLost;
        for (_, op) in std::mem::take(&mut self.ops) {
            match op.kind {
                OpKind::TierWrite { offset, bytes, .. } => {
                    if self.setup.layout.kind == TierKind::Flash
                        && self.tier.write_torn(offset, &bytes, landing, &mut self.random)
                    {
                        self.coverage.see("torn tier write at a crash");
                    }
                }
                OpKind::BackingWrite { offset, bytes, parts } => ghosts.push(Late::Write { offset, bytes, parts }),
                OpKind::BackingZero { offset, length } => {
                    ghosts.push(Late::Write { offset, bytes: vec![0; length], parts: Parts::new() });
                }
                OpKind::BackingRead { at, frames, early } => {
                    let bytes = early.unwrap_or_else(|| self.backing_bytes(at, frames.len()));
                    ghosts.push(Late::Read { frames, bytes });
                }
                OpKind::JournalWrite { offset, bytes, .. } => ghosts.push(Late::Journal { offset, bytes }),
                OpKind::BackingSync { .. }
                | OpKind::JournalSync { .. }
                | OpKind::TierSync { .. }
                | OpKind::TierRead { .. }
                | OpKind::TierScan { .. }
                | OpKind::Merge { .. } => {}
            }
        }
        if power {
            for late in std::mem::take(&mut ghosts) {
                if self.late_write_ends(late) {
                    self.coverage.see("torn backing write at a crash");
                }
            }
        }
        // Only memory outlives the process whose requests point into it.
        let memory = self.setup.layout.kind == TierKind::Memory;
        ghosts.retain(|late| memory || !matches!(late, Late::Read { .. }));
        ghosts
    }

    /// A write that nobody waits for any more lands, in part, or never. True when it was torn. Reads are forgotten.
    fn late_write_ends(&mut self, late: Late) -> bool {
        let landing = self.landing();
        match late {
            Late::Write { offset, bytes, .. } => self.backing.write_torn(offset, &bytes, landing, &mut self.random),
            Late::Journal { offset, bytes } => {
                self.journal_found = None;
                self.journal.write_torn(offset, &bytes, landing, &mut self.random)
            }
            Late::Read { .. } => false,
        }
    }

    fn crash_now(&mut self, mut crash: Crash) {
        trace!(self, "CRASH {crash:?} at point {}", self.points);
        let now = self.tick();
        self.crashes += 1;
        if self.setup.layout.kind == TierKind::Memory && crash == Crash::ProcessKilled {
            self.finish_some_effects();
        }
        self.collect_counters();
        if !self.serving {
            self.coverage.see("crash while recovering");
        }
        let writes_backing = |op: &Op| {
            matches!(op.kind, OpKind::BackingWrite { .. } | OpKind::BackingZero { .. } | OpKind::BackingSync { .. })
        };
        if self.ops.values().any(writes_backing) || self.backing.unsynced() > 0 {
            self.coverage.see("crash during destage");
        }
        self.volume = None;
        self.serving = false;
        if self.damaged {
            self.damage_carried = true;
        }
        // What the backing was told in an earlier life and has not done yet stays due, unless the power went.
        let mut ghosts: Vec<Late> = Vec::new();
        for (_, due) in std::mem::take(&mut self.agenda) {
            match due {
                Due::Ghost(late) => ghosts.push(late),
                Due::LieLands(offset, bytes) => ghosts.push(Late::Write { offset, bytes, parts: Parts::new() }),
                Due::Op(_)
                | Due::Arrive(_)
                | Due::Wake(_)
                | Due::Sent(_)
                | Due::BackingReady
                | Due::Replay(_)
                | Due::Operator
                | Due::Restart
                | Due::Audit => {}
            }
        }
        self.liar_backlog = 0;
        ghosts.extend(self.abandon_operations(crash));
        self.open.clear();
        self.coming.clear();
        self.controls.clear();
        for client in &mut self.clients {
            *client = Client::default();
        }
        if self.setup.layout.kind == TierKind::Flash {
            self.arena.fill(0xdb);
        }
        match crash {
            Crash::ProcessKilled => self.coverage.see("process killed"),
            Crash::PowerLost => {
                self.coverage.see("power lost");
                for late in std::mem::take(&mut ghosts) {
                    self.late_write_ends(late);
                }
                let landing = self.landing();
                self.backing.power_loss(landing, &mut self.random);
                self.journal.power_loss(landing, &mut self.random);
                self.journal_found = None;
                self.tier.power_loss(landing, &mut self.random);
                if self.setup.layout.kind == TierKind::Memory {
                    crash = Crash::LogsLost;
                }
            }
            Crash::LogsLost => {}
        }
        if crash == Crash::LogsLost {
            self.coverage.see("all logs lost");
            // Nothing replays a log here, so nothing waits for the last writes: they land, in part, or never.
            for late in std::mem::take(&mut ghosts) {
                self.late_write_ends(late);
            }
            if let Some(found) = journal::newest(&VOLUME_UUID, &self.journal.current) {
                self.coverage.see("batch replayed after all logs were lost");
                journal::apply(&found, &self.journal.current, self.size_promised, &mut self.backing.current);
            }
            self.journal = Media::new(self.journal.current.len());
            self.journal_found = None;
            // Whoever makes a new volume of the image has synced it before, and written again what a failed sync had
            // dropped: the image that the new volume begins with is what lies on the medium.
            self.backing.sync(self.backing.mark());
            self.backing.durable.clone_from(&self.backing.current);
            self.tier = Media::new(self.tier.current.len());
            self.formatted = false;
            self.term = Term(0);
            if !self.damage_carried {
                self.oracle.all_logs_lost(&self.backing.current, now);
            }
            self.audit = None;
        } else {
            if crash == Crash::PowerLost {
                self.oracle.power_lost(now);
            } else {
                self.oracle.process_killed(now);
            }
            self.audit = Some(Audit { next: 0, durable: crash == Crash::PowerLost, failures: 0, settle: true });
        }
        let down = self.micros(1_000_000);
        for late in ghosts {
            // Some never land.
            let keep = match self.landing() {
                Landing::Nothing => false,
                Landing::Everything => true,
                Landing::Random => self.random.below(4) > 0,
            };
            if keep {
                let wait = self.micros(4_000_000);
                self.schedule(wait, Due::Ghost(late));
            }
        }
        self.schedule(down, Due::Restart);
    }

    /// A memory tier keeps what the process stored before it died, which may be any number of the effects that it
    /// had decided on, the last of them half done.
    fn finish_some_effects(&mut self) {
        let mut left = self.random.below(4);
        while let Some(effect) = self.volume.as_mut().and_then(|v| v.poll_effect()) {
            if let Effect::TierWrite { at, head, .. } = &effect {
                let at = at.0 as usize * BLOCK;
                if land(&mut self.tier.current, at, head, Landing::Random, &mut self.random) {
                    self.coverage.see("torn tier write at a crash");
                }
            }
            let Effect::Describe { index, bytes } = effect else { break };
            let at = self.setup.layout.table_first as usize * BLOCK + index as usize * DESCRIPTOR_BYTES;
            let entry = &mut self.tier.current[at..at + DESCRIPTOR_BYTES];
            if left == 0 {
                // Stored in five steps: the mark in place of the position, the rest, the position.
                let steps = self.random.below(5) as usize;
                if steps > 0 {
                    entry[..8].copy_from_slice(&DESCRIPTOR_UNFINISHED.to_le_bytes());
                    entry[8..8 * steps].copy_from_slice(&bytes[8..8 * steps]);
                }
            } else {
                entry.copy_from_slice(&bytes);
            }
            if left == 0 {
                break;
            }
            left -= 1;
        }
    }

    // --- events ---

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

    /// The backing's lock is free: nothing of an earlier life is under way any more.
    fn ghosts_end(&mut self) {
        let early: Vec<_> =
            self.agenda.iter().filter(|(_, due)| matches!(due, Due::Ghost(_))).map(|(&key, _)| key).collect();
        for key in early {
            if let Some(Due::Ghost(late)) = self.agenda.remove(&key) {
                self.ghost_lands(late);
            }
        }
    }

    fn ghost_lands(&mut self, late: Late) {
        let landing = self.landing();
        let (offset, mut bytes, parts) = match late {
            Late::Write { offset, bytes, parts } => (offset, bytes, parts),
            Late::Journal { .. } => {
                trace!(self, "a late write to the journal lands");
                if self.late_write_ends(late) {
                    self.coverage.see("torn backing write at a crash");
                }
                return;
            }
            Late::Read { frames, bytes } => {
                trace!(self, "a late read of {} bytes lands in {frames:?}", bytes.len());
                for (i, &frame) in frames.iter().enumerate() {
                    let at = self.frame_at(frame);
                    land(&mut self.tier.current, at, &bytes[i * BLOCK..(i + 1) * BLOCK], landing, &mut self.random);
                }
                return self.coverage.see("late backing read landed in the arena");
            }
        };
        if self.setup.layout.kind == TierKind::Memory && !parts.is_empty() {
            // The device fetches them now.
            bytes = self.bytes_of(&parts);
        }
        trace!(self, "a late write of {} bytes lands at {offset}", bytes.len());
        if self.backing.write_torn(offset, &bytes, landing, &mut self.random) {
            self.coverage.see("torn backing write at a crash");
        }
        self.coverage.see("late backing write landed in the next life");
    }

    // --- the journal of an earlier life ---

    /// Where the tier says that the backing is complete; nothing where it says nothing legible.
    fn destaged_in_tier(&self) -> Option<Lsn> {
        let decode = |place: u32| {
            let at = place as usize * BLOCK;
            Checkpoint::decode(&VOLUME_UUID, TierBlock(place), &self.tier.current[at..at + BLOCK]).ok()
        };
        [1, 2].into_iter().filter_map(decode).max_by_key(|checkpoint| checkpoint.sequence).map(|c| c.destaged)
    }

    /// Everything of earlier lives has landed, in the journal too: the batch that counts goes to the backing.
    fn begin_replay(&mut self) {
        let areas = journal::look(&VOLUME_UUID, &self.journal.current);
        if areas.iter().any(|area| matches!(area, AreaState::Incomplete)) {
            self.coverage.see("incomplete batch ignored at restart");
        }
        if let Some(found) = journal::newest(&VOLUME_UUID, &self.journal.current) {
            if self.destaged_in_tier().is_some_and(|destaged| found.batch.through <= destaged) {
                self.coverage.see("batch already in the backing at restart");
            } else {
                trace!(
                    self,
                    "the journal's batch {} through {} is replayed", found.batch.sequence, found.batch.through
                );
                self.coverage.see("batch replayed at restart");
                // The batch may never have been synced, or a failed sync has forgotten it: it must not be lost half way.
                let area_bytes = self.journal.current.len() / 2;
                let whole = self.journal.current[found.area * area_bytes..][..area_bytes].to_vec();
                self.journal.write(found.area * area_bytes, &whole);
                self.journal.sync(self.journal.mark());
                // Also where the backing seems to hold the same: a failed sync may have forgotten it.
                let (journal, size) = (&self.journal.current, self.size_promised);
                journal::sectors(&found, journal, size, |at, bytes| self.backing.write(at, bytes));
            }
        }
        let wait = self.micros(100_000);
        self.schedule(wait, Due::Replay(Replay::Sync));
    }

    fn go_on_replaying(&mut self, step: Replay) {
        let newest = journal::newest(&VOLUME_UUID, &self.journal.current);
        let wait = self.micros(100_000);
        match step {
            Replay::Sync => {
                self.backing.sync(self.backing.mark());
                if let Some(found) = newest {
                    self.volume.as_mut().expect("it lives").journal_replayed(found.batch.through);
                }
                self.schedule(wait, Due::Replay(Replay::Await));
            }
            Replay::Await if !self.volume.as_ref().expect("it lives").replay_is_recorded() => {
                self.schedule(Duration(wait.0 + 10_000_000), Due::Replay(Replay::Await));
            }
            Replay::Await => {
                let last = newest.map_or(1, |found| found.area);
                self.schedule(wait, Due::Replay(Replay::Erase { first: 1 - last, second: Some(last) }));
            }
            Replay::Erase { first, second } => {
                let at = first * self.journal.current.len() / 2;
                self.journal.write(at, &[0; BLOCK]);
                self.journal.sync(self.journal.mark());
                self.journal_found = None;
                if let Some(first) = second {
                    self.schedule(wait, Due::Replay(Replay::Erase { first, second: None }));
                } else {
                    self.backing_ready = true;
                    self.hand(Event::BackingReady);
                }
            }
        }
    }

    /// The batch that a replay would find now.
    fn journal_found(&mut self) -> Option<&Found> {
        let current = &self.journal.current;
        self.journal_found.get_or_insert_with(|| journal::newest(&VOLUME_UUID, current)).as_ref()
    }

    /// While a replay would find a batch, the backing may be given nothing but parts of it: anything newer would be
    /// taken back. And nothing at all while the journal is being written.
    fn assert_journal_allows(&mut self, offset: usize, bytes: &[u8]) {
        let journal_op = |op: &Op| matches!(op.kind, OpKind::JournalWrite { .. } | OpKind::JournalSync { .. });
        assert!(!self.ops.values().any(journal_op), "a write to the backing while the journal is being written");
        let size = self.volume.as_ref().expect("it asks").size_bytes();
        let Some(found) = self.journal_found().cloned() else { return };
        assert!(
            journal::is_part_of(&found, &self.journal.current, size, &self.backing.current, offset, bytes),
            "the backing is written at {offset}+{}, but the journal holds batch {} through {}, whose replay would take it \
             back",
            bytes.len(),
            found.batch.sequence,
            found.batch.through
        );
    }

    /// A batch, or an erased head, is on its way into the journal.
    fn note_journal_write(&mut self, at: u32, bytes: &[u8]) {
        let Some(blocks) = JournalBatch::head_blocks_hint(bytes) else {
            if bytes.iter().all(|&byte| byte == 0) {
                self.coverage.see("journal erased for an ordered group");
            }
            return;
        };
        let batch = JournalBatch::decode(&VOLUME_UUID, at, &bytes[..blocks as usize * BLOCK])
            .unwrap_or_else(|reason| panic!("a journal batch at {at} cannot be read back: {reason}"));
        let groups: BTreeSet<u32> = batch.records.iter().map(|record| record.group.0).collect();
        if groups.len() > 1 {
            self.coverage.see("journaled batch of several groups");
        }
        let first = batch.records.first().expect("a batch is never empty").lsn;
        if first <= self.journal_through {
            self.coverage.see("batch tried again after a failure");
        }
        assert!(batch.records.is_sorted_by(|a, b| a.lsn < b.lsn), "a batch is in log order");
        assert!(batch.records.iter().all(|record| record.lsn <= batch.through), "a batch ends where it says");
    }

    /// A stop with drain leaves nothing that somebody might replay over what others write to the image.
    fn assert_journal_is_empty(&self) {
        for journal in [&self.journal.current, &self.journal.durable] {
            assert!(
                journal::look(&VOLUME_UUID, journal).iter().all(|area| matches!(area, AreaState::Empty)),
                "stopped with drain, and the journal holds something"
            );
        }
    }

    // --- clients ---

    fn script_is_over(&self) -> bool {
        self.requests_left == 0 && self.coming.is_empty() && self.clients.iter().all(|c| c.waiting.is_none())
    }

    fn place(&mut self, max: u64) -> (u64, u64) {
        let volume = self.volume.as_ref().expect("it serves");
        let size = volume.size_bytes();
        let max = max.min(u64::from(volume.request_bytes_max()));
        let blocks = size.div_ceil(BLOCK_BYTES);
        let block = if self.random.chance(self.setup.cold) {
            self.random.below(blocks)
        } else {
            self.random.below(self.setup.hot_blocks.min(blocks))
        };
        let unaligned = self.random.chance(self.setup.unaligned);
        let unit = if unaligned { 1 } else { 512 };
        let length = match self.random.below(4) {
            0 => self.random.range(1, 4096 / unit) * unit,
            1 => 4096,
            2 => 4096 * self.random.range(1, (max / 4096).max(1)),
            _ => self.random.range(1, max / unit) * unit,
        };
        let within = if self.random.below(2) == 0 { 0 } else { self.random.below(4096 / unit) * unit };
        let offset = (block * BLOCK_BYTES + within).min(size - unit);
        (offset, length.min(size - offset).max(1))
    }

    fn next_step(&mut self) -> Step {
        if let Some(step) = self.script.pop_front() {
            return step;
        }
        let weights = self.setup.weights;
        let mut draw = self.random.below(u64::from(weights.iter().sum::<u32>())) as u32;
        let mut kind = 0;
        while draw >= weights[kind] {
            draw -= weights[kind];
            kind += 1;
        }
        let max = u64::from(self.setup.request_bytes_max);
        let fua = self.random.chance(self.setup.fua);
        match kind {
            0 => {
                let (offset, length) = self.place(max);
                Step::Read { offset, length: length as u32 }
            }
            1 => {
                let (offset, length) = self.place(max);
                Step::Write { offset, length: length as u32, fua }
            }
            2 => {
                let (offset, mut length) = self.place(max);
                if self.random.below(8) == 0 {
                    length = self.volume.as_ref().expect("it serves").size_bytes() - offset;
                }
                Step::Zero { offset, length, hole: self.random.below(2) == 0, fua }
            }
            3 => Step::Flush,
            _ => {
                let (offset, length) = self.place(max);
                Step::Prefetch { offset, length: length as u32 }
            }
        }
    }

    fn client_acts(&mut self, client: usize) {
        if !self.serving || self.stopping || self.audit.is_some() {
            return;
        }
        if self.stage == Stage::Work && self.fault(self.setup.hang_up) {
            self.hang_up(client);
        }
        if self.clients[client].open >= self.setup.depth_max {
            return;
        }
        let step = match self.clients[client].waiting.take() {
            Some(step) => step,
            None if self.requests_left == 0 => return,
            None => {
                self.requests_left -= 1;
                self.next_step()
            }
        };
        let mut write = None;
        if let Step::Write { offset, length, .. } = step {
            let blocks = (offset + u64::from(length)).div_ceil(BLOCK_BYTES) - offset / BLOCK_BYTES;
            let mut frames = Frames::new();
            let volume = self.volume.as_mut().expect("it serves");
            if !volume.take_frames(blocks as u32, &mut frames) {
                assert!(frames.is_empty(), "frames were refused and given");
                self.coverage.see("client had to wait for frames");
                self.clients[client].waiting = Some(step);
                return;
            }
            assert_eq!(frames.len() as u64, blocks, "as many frames as asked for");
            for &frame in &frames {
                self.assert_writable(frame, "a client's payload");
                assert!(!std::mem::replace(&mut self.taken[frame.0 as usize], true), "{frame:?} is given out twice");
            }
            let id = self.oracle.reserve();
            write = Some((id, frames));
        }
        self.clients[client].open += 1;
        let id = self.request_next;
        self.request_next += 1;
        self.coming.insert(id, Coming { client, step, write });
        let slow = self.micros(self.setup.think_micros_max);
        self.schedule(slow, Due::Arrive(id));
        let think = self.micros(self.setup.think_micros_max);
        self.schedule(think, Due::Wake(client));
    }

    fn hang_up(&mut self, client: usize) {
        let coming: Vec<u64> = self.coming.iter().filter(|(_, c)| c.client == client).map(|(&id, _)| id).collect();
        for id in coming {
            let coming = self.coming.remove(&id).expect("just seen");
            if let Some((_, frames)) = coming.write {
                for &frame in &frames {
                    self.taken[frame.0 as usize] = false;
                }
                self.volume.as_mut().expect("it serves").return_frames(&frames);
            }
        }
        let mut ids = Vec::new();
        for (&id, open) in self.open.iter_mut().filter(|(_, o)| o.client == client && !o.hung_up) {
            open.hung_up = true;
            ids.push(RequestId(id));
            if matches!(open.asked, Asked::Write(_)) {
                self.coverage.see("client hung up with a write open");
            }
        }
        self.clients[client] = Client::default();
        let think = self.micros(self.setup.think_micros_max);
        self.schedule(think, Due::Wake(client));
        self.hand(Event::Hangup(ids));
    }

    /// The payload lies in its frames: the request enters the volume.
    fn arrive(&mut self, id: u64) {
        let Some(coming) = self.coming.remove(&id) else { return };
        let now = self.moment;
        let (asked, request) = match coming.step {
            Step::Read { offset, length } => {
                (Asked::Read { offset, length, audit: false }, Request::Read { offset, length })
            }
            Step::Write { offset, length, fua } => {
                let (write, frames) = coming.write.expect("a write has frames");
                let payload = self.fill_frames(write, offset, length, &frames);
                if self.over_destage(offset, u64::from(length)) {
                    self.coverage.see("write over a destage in flight");
                }
                self.oracle.write_asked(write, offset, u64::from(length), false, fua, now);
                (Asked::Write(write), Request::Write { offset, length, payload, fua })
            }
            Step::Zero { offset, length, hole, fua } => {
                let write = self.oracle.reserve();
                self.oracle.write_asked(write, offset, length, true, fua, now);
                (Asked::Write(write), Request::Zero { offset, length, hole, fua })
            }
            Step::Flush => (Asked::Flush(self.oracle.flush_asked(now)), Request::Flush),
            Step::Prefetch { offset, length } => (Asked::Prefetch, Request::Prefetch { offset, length }),
        };
        let volume = self.volume.as_ref().expect("it serves");
        if !self.stopping {
            assert_eq!(volume.admissible(&request), Ok(()), "{request:?} lies within the volume");
        }
        self.ask(id, coming.client, asked, request);
    }

    fn ask(&mut self, id: u64, client: usize, asked: Asked, request: Request) {
        self.note_policy();
        let open = Open { client, asked, began: self.moment, through: self.through_since.is_some(), hung_up: false };
        self.open.insert(id, open);
        self.hand(Event::Request { id: RequestId(id), request });
        if self.lie == Some(Lie::AcknowledgedEarly)
            && let Asked::Write(write) = asked
        {
            let now = self.tick();
            self.oracle.write_acknowledged(write, now);
        }
    }

    fn fill_frames(&mut self, write: WriteId, offset: u64, length: u32, frames: &Frames) -> Payloads {
        let end = offset + u64::from(length);
        let mut payloads = Payloads::new();
        for (i, &frame) in frames.iter().enumerate() {
            self.taken[frame.0 as usize] = false;
            self.assert_writable(frame, "a client's payload");
            let block = BlockIndex(offset / BLOCK_BYTES + i as u64);
            let from = offset.max(block.byte()) - block.byte();
            let to = end.min(block.byte() + BLOCK_BYTES) - block.byte();
            let bytes = self.frame_mut(frame);
            bytes.fill(0);
            pattern::fill(write, block.byte() + from, &mut bytes[from as usize..to as usize]);
            let checksum = if from.is_multiple_of(512) && to.is_multiple_of(512) {
                let mask = SectorMask::of_bytes(from, to);
                payload_checksum(&VOLUME_UUID, block, mask, self.term, self.frame(frame))
            } else {
                // Core must not use it.
                0xdead_beef
            };
            payloads.push(Payload { frame, checksum });
        }
        payloads
    }

    fn over_destage(&self, offset: u64, length: u64) -> bool {
        let (from, to) = (offset as usize, (offset + length) as usize);
        self.ops.values().any(|op| match &op.kind {
            OpKind::BackingWrite { offset, bytes, .. } => *offset < to && from < offset + bytes.len(),
            OpKind::BackingZero { offset, length } => *offset < to && from < offset + length,
            OpKind::TierWrite { .. }
            | OpKind::TierSync { .. }
            | OpKind::TierRead { .. }
            | OpKind::TierScan { .. }
            | OpKind::BackingRead { .. }
            | OpKind::BackingSync { .. }
            | OpKind::JournalWrite { .. }
            | OpKind::JournalSync { .. }
            | OpKind::Merge { .. } => false,
        })
    }

    // --- the auditor: reads everything after a restart and at the end ---

    fn audit_reads(&mut self) {
        let Some(audit) = &self.audit else { return };
        if !self.serving || self.stopping {
            return;
        }
        let size = self.volume.as_ref().expect("it serves").size_bytes();
        let next = audit.next;
        if next >= size {
            trace!(self, "audit ends");
            self.audit = None;
            if self.stage == Stage::Work {
                if self.damage_carried {
                    // What damage took is not known to the oracle: nothing more can be judged.
                    self.stage = Stage::Done;
                }
                self.wake_clients();
            }
            return;
        }
        let length = (self.random.range(1, 64) * 512).min(size - next) as u32;
        let id = self.request_next;
        self.request_next += 1;
        let asked = Asked::Read { offset: next, length, audit: true };
        self.ask(id, usize::MAX, asked, Request::Read { offset: next, length });
    }

    // --- the operator ---

    fn operator_acts(&mut self) {
        if self.stage != Stage::Work {
            return;
        }
        let wait = self.micros(400_000);
        self.schedule(wait, Due::Operator);
        if !self.serving || self.stopping || self.audit.is_some() || !self.random.chance(self.setup.control) {
            return;
        }
        let size = self.volume.as_ref().expect("it serves").size_bytes();
        let command = match self.random.below(10) {
            0 => Control::SetPolicy(Policy::Through),
            1 => Control::DrainThrough,
            2 | 3 => Control::SetPolicy(Policy::Back),
            4 => Control::Drain,
            5 => Control::Hold(Duration::from_millis(self.random.range(1, 60_000))),
            6 | 7 => Control::Release,
            8 => Control::Resize((size + 512 * self.random.range(1, 16)).min(self.setup.size_bytes_max)),
            _ => Control::Stop { drain: self.random.below(2) == 0 },
        };
        self.command(command);
        // By the time, so that runs without a journal draw what they always drew.
        if self.setup.journal_blocks > 0 && self.now.0.is_multiple_of(2) {
            let modes = [DestageMode::Ordered, DestageMode::Journaled, DestageMode::Auto];
            self.command(Control::SetDestage(modes[(self.now.0 / 2 % 3) as usize]));
        }
    }

    fn command(&mut self, command: Control) {
        let id = self.control_next;
        self.control_next += 1;
        match &command {
            Control::Resize(size) => self.oracle.grow(*size),
            Control::Stop { .. } => self.stopping = true,
            Control::Release => self.releasing = Some(self.backing_changes),
            Control::SetPolicy(_)
            | Control::SetDestage(_)
            | Control::SetDrainMax(_)
            | Control::Drain
            | Control::DrainThrough
            | Control::Hold(_) => {}
        }
        if let Control::Stop { .. } = command {
            self.stop_asked = self.now;
        }
        self.controls.insert(id, (command.clone(), self.moment));
        self.hand(Event::Control { id: ControlId(id), command });
    }

    fn answered(&mut self, id: u64, result: Result<(), ControlError>) {
        let (command, asked) = self.controls.remove(&id).unwrap_or_else(|| panic!("command {id} is answered twice"));
        trace!(self, "<- answer {id} {command:?} {result:?}");
        match (&command, result) {
            (Control::Drain, Ok(())) => {
                self.coverage.see("drain answered");
                self.backing_has_all_before(asked, "the backing after a drain");
            }
            (Control::DrainThrough, Ok(())) => {
                self.coverage.see("drained through");
                self.keeping = true;
                self.backing_has_all_before(asked, "the backing after a drain through");
                // From here on it stays complete: checked at every acknowledgement.
                self.note_policy();
                assert!(self.through_since.is_some(), "drained through, and the policy kept is not write-through");
            }
            (Control::Hold(_), Ok(())) => {
                self.backing_has_all_before(asked, "the backing under a hold");
                self.oracle.backing_is_crash_image(&self.backing.durable, "held for a backup");
                self.hold = Some((self.backing.current.clone(), self.backing_changes));
            }
            (Control::Release, Ok(())) => {
                if std::mem::take(&mut self.keeping) {
                    self.hold = None;
                    return self.coverage.see("drain through released");
                }
                let (image, changes) = self.hold.take().expect("a release succeeds only under a hold");
                let now = self.releasing.expect("it was asked for");
                assert_eq!(changes, now, "the backing was written under a hold");
                assert!(
                    changes != self.backing_changes || image == self.backing.current,
                    "the backing changed under a hold"
                );
                self.coverage.see("hold released with its backup valid");
            }
            (Control::Release, Err(_)) => self.hold = None,
            (Control::Resize(size), Ok(())) => {
                self.size_promised = self.size_promised.max(*size);
                self.coverage.see("volume grown");
            }
            (Control::Stop { drain }, Ok(())) => {
                let volume = self.volume.as_ref().expect("it answers");
                let status = volume.status(self.now);
                assert!(self.open.values().all(|o| o.hung_up), "stopped with requests open: {}", self.unfinished());
                if *drain {
                    self.coverage.see("stopped with drain");
                    assert_eq!(status.dirty_bytes, 0, "stopped with drain");
                    self.assert_journal_is_empty();
                    self.backing_has_all_before(self.moment, "the backing after a stop with drain");
                } else {
                    self.coverage.see("stopped without drain");
                    let took = self.now - self.stop_asked;
                    // Only the tier may keep it longer: nothing of the log is left behind.
                    let most = Duration(STOP_PATIENCE.0 + 1_000_000_000);
                    assert!(
                        took <= most || self.setup.faults.tier_stall > 0,
                        "a stop without drain took {took:?}: {}",
                        self.unfinished()
                    );
                }
                if self.setup.layout.kind == TierKind::Flash {
                    self.oracle.make_durable(self.moment + 1);
                }
            }
            // A release that came before its end; its own answer follows.
            (Control::DrainThrough, Err(ControlError::HoldEnded)) => self.keeping = true,
            (Control::SetPolicy(_) | Control::SetDestage(_) | Control::SetDrainMax(_), _)
            | (
                Control::Drain | Control::DrainThrough | Control::Hold(_) | Control::Resize(_) | Control::Stop { .. },
                Err(_),
            ) => {}
        }
    }

    fn backing_has_all_before(&mut self, moment: Moment, why: &str) {
        if self.damage_carried {
            return; // what damage took cannot be in the backing
        }
        let bytes = self.oracle.bytes();
        self.oracle.image_has_all_before(&self.backing.durable, 0, bytes, moment, why);
    }

    // --- frames ---

    fn frame_at(&self, frame: FrameId) -> usize {
        assert!(frame.0 < self.setup.frames, "{frame:?} does not exist");
        match self.setup.layout.kind {
            TierKind::Memory => (self.setup.layout.payload_first + frame.0) as usize * BLOCK,
            TierKind::Flash => frame.0 as usize * BLOCK,
        }
    }

    fn frame(&self, frame: FrameId) -> &[u8] {
        let at = self.frame_at(frame);
        match self.setup.layout.kind {
            TierKind::Memory => &self.tier.current[at..at + BLOCK],
            TierKind::Flash => &self.arena[at..at + BLOCK],
        }
    }

    fn frame_mut(&mut self, frame: FrameId) -> &mut [u8] {
        let at = self.frame_at(frame);
        match self.setup.layout.kind {
            TierKind::Memory => &mut self.tier.current[at..at + BLOCK],
            TierKind::Flash => &mut self.arena[at..at + BLOCK],
        }
    }

    fn assert_writable(&self, frame: FrameId, by: &str) {
        let i = frame.0 as usize;
        assert!(self.readers[i] == 0, "{frame:?} is overwritten by {by} while an operation or a reply reads it");
        assert!(!self.writing[i], "{frame:?} is overwritten by {by} while an operation fills it");
    }

    fn assert_readable(&self, frame: FrameId, by: &str) {
        assert!(!self.writing[frame.0 as usize], "{frame:?} is read by {by} while an operation fills it");
        assert!(!self.taken[frame.0 as usize], "{frame:?} is read by {by} while a client has it");
    }

    fn pin_source(&mut self, frame: FrameId, by: &str) {
        self.assert_readable(frame, by);
        self.readers[frame.0 as usize] += 1;
    }

    fn unpin_source(&mut self, frame: FrameId) {
        self.readers[frame.0 as usize] -= 1;
    }

    fn pin_target(&mut self, frame: FrameId, by: &str) {
        self.assert_writable(frame, by);
        assert!(!self.taken[frame.0 as usize], "{frame:?} is overwritten by {by} while a client has it");
        self.writing[frame.0 as usize] = true;
    }

    fn unpin_target(&mut self, frame: FrameId) {
        self.writing[frame.0 as usize] = false;
    }

    fn unpin_pieces(&mut self, pieces: &Pieces) {
        for piece in pieces {
            if let Source::Frame(frame, _) = piece.source {
                self.unpin_source(frame);
            }
        }
    }

    fn check_holds(&self, check: &Check, bytes: &[u8]) -> bool {
        payload_checksum(&VOLUME_UUID, check.block, check.mask, check.term, bytes) == check.checksum
    }

    // --- effects ---

    fn pump(&mut self) {
        loop {
            if self.crash.is_some() {
                return;
            }
            let Some(effect) = self.volume.as_mut().and_then(|v| v.poll_effect()) else { break };
            self.execute(effect);
            if self.stage == Stage::Done {
                return;
            }
            if self.point() {
                return;
            }
        }
        let Some(volume) = &self.volume else { return };
        let status = volume.status(self.now);
        match status.phase {
            Phase::Recovering | Phase::Stopping => {}
            Phase::Serving => {
                if !self.serving {
                    self.on_serving();
                }
            }
            Phase::Stopped => self.on_stopped(),
            Phase::Refused(reason) => {
                if self.tier_errors > 0 && !self.damaged {
                    // The device failed while the log was read: the operator tries again.
                    self.crash = Some(Crash::ProcessKilled);
                    return;
                }
                assert!(self.damaged, "an undamaged tier was refused: {reason}");
                self.volume = None;
                self.refuse();
            }
        }
    }

    fn note_policy(&mut self) {
        let Some(volume) = &self.volume else { return };
        let status = volume.status(self.now);
        if status.effective == Policy::Through && matches!(status.reason, Reason::AsRequested | Reason::DrainedThrough)
        {
            self.through_since.get_or_insert(self.moment);
        } else {
            self.through_since = None;
        }
    }

    fn on_stopped(&mut self) {
        if self.controls.values().any(|(c, _)| matches!(c, Control::Stop { .. })) {
            return;
        }
        assert!(
            !self.ops.values().any(|op| matches!(op.kind, OpKind::TierWrite { .. } | OpKind::TierSync { .. })),
            "stopped while the log is being written"
        );
        trace!(self, "stopped");
        let now = self.tick();
        self.collect_counters();
        self.volume = None;
        self.serving = false;
        let ghosts = self.abandon_operations(Crash::ProcessKilled);
        self.agenda.retain(|_, due| matches!(due, Due::LieLands(..) | Due::Ghost(..)));
        for late in ghosts {
            let wait = self.micros(4_000_000);
            self.schedule(wait, Due::Ghost(late));
        }
        self.open.clear();
        self.coming.clear();
        self.controls.clear();
        for client in &mut self.clients {
            *client = Client::default();
        }
        self.oracle.process_killed(now);
        if self.stage == Stage::LastStop {
            self.stage = Stage::Done;
            return;
        }
        if self.damaged {
            self.damage_carried = true;
        }
        self.audit = Some(Audit { next: 0, durable: false, failures: 0, settle: true });
        let down = self.micros(1_000_000);
        self.schedule(down, Due::Restart);
    }

    fn begin(&mut self, op: OpId, kind: OpKind, error: Option<IoError>, micros_max: u64, stall: u32) {
        let mut wait = self.micros(micros_max);
        let backing = match &kind {
            OpKind::BackingRead { .. }
            | OpKind::BackingWrite { .. }
            | OpKind::BackingZero { .. }
            | OpKind::BackingSync { .. }
            | OpKind::JournalWrite { .. }
            | OpKind::JournalSync { .. } => true,
            OpKind::TierWrite { .. }
            | OpKind::TierSync { .. }
            | OpKind::TierRead { .. }
            | OpKind::TierScan { .. }
            | OpKind::Merge { .. } => false,
        };
        if self.fault(stall) {
            wait = Duration::from_millis(self.random.range(100, 60_000));
            self.coverage.see(if backing { "backing stalled" } else { "tier stalled" });
        }
        if error.is_some() {
            self.errors_injected = true;
            if !backing {
                self.tier_errors += 1;
            }
        }
        assert!(self.ops.insert(op.0, Op { kind, error }).is_none(), "{op:?} is used twice");
        self.schedule(wait, Due::Op(op.0));
    }

    fn backing_error(&mut self, error: u32) -> Option<IoError> {
        if self.fault(self.setup.faults.backing_gone) {
            self.backing_gone_until = self.now + Duration::from_millis(self.random.range(10, 120_000));
        }
        if self.backing_gone_until > self.now && self.faults_on() {
            self.coverage.see("backing gone");
            return Some(IoError::Gone);
        }
        self.fault(error).then_some(IoError::Failed)
    }

    fn backing_write_error(&mut self) -> Option<IoError> {
        let error = self.backing_error(self.setup.faults.backing_write_error);
        if error.is_none() && self.fault(self.setup.faults.backing_full) {
            self.coverage.see("backing full");
            return Some(IoError::NoSpace);
        }
        error
    }

    fn assert_backing_writable(&mut self, offset: u64, length: u64, what: &str) {
        assert!(self.backing_ready, "{what} to the backing before its lock was held");
        let align = u64::from(self.setup.backing_align);
        let size = self.volume.as_ref().expect("it asks").size_bytes();
        let end = offset + length;
        assert!(length > 0 && end <= size.next_multiple_of(align), "{what} [{offset}+{length}] beyond the volume");
        assert!(offset.is_multiple_of(align), "{what} at {offset} is not aligned to {align}");
        assert!(
            end.is_multiple_of(align) || end == size,
            "{what} [{offset}+{length}] ends neither aligned to {align} nor at the end"
        );
        let flying = self
            .ops
            .values()
            .filter(|op| matches!(op.kind, OpKind::BackingWrite { .. } | OpKind::BackingZero { .. }))
            .count();
        assert!(flying < self.setup.backing_depth_max as usize, "more backing writes in flight than allowed");
        assert!(
            !self.over_destage(offset, length),
            "{what} [{offset}+{length}] overlaps one that is in flight: either may win"
        );
        self.backing_changes += 1;
        if self.backing_sync_failed.contains(&(offset as usize / 512)) {
            self.coverage.see("backing range rewritten after a failed sync");
        }
    }

    fn execute(&mut self, effect: Effect) {
        self.tick();
        if self.trace {
            trace!(self, "<- {}", brief_effect(&effect));
        }
        let tier_micros = self.setup.tier_micros_max;
        let backing_micros = self.setup.backing_micros_max;
        let faults = self.setup.faults.clone();
        let memory = self.setup.layout.kind == TierKind::Memory;
        match effect {
            Effect::Reply { id, result } => self.reply(id, result),
            Effect::FramesFree => {
                for client in 0..self.clients.len() {
                    if self.clients[client].waiting.is_some() {
                        self.schedule(Duration(0), Due::Wake(client));
                    }
                }
            }
            Effect::Answer { id, result } => self.answered(id.0, result),
            Effect::Describe { index, bytes } => {
                assert!(memory, "a flash tier has no descriptor table");
                assert!(
                    index < self.setup.layout.table_blocks * DESCRIPTORS_PER_BLOCK,
                    "descriptor {index} of the table"
                );
                let at = self.setup.layout.table_first as usize * BLOCK + index as usize * DESCRIPTOR_BYTES;
                self.tier.current[at..at + DESCRIPTOR_BYTES].copy_from_slice(&bytes);
                match Descriptor::decode(&VOLUME_UUID, u64::from(index), &bytes) {
                    Ok(Some(record)) => {
                        self.recorded(&record, Some(FrameId(index)));
                        if record.has_payload() && self.fault(faults.frame_rot) {
                            trace!(self, "a bit of frame {index} rots");
                            self.frame_mut(FrameId(index))[7] ^= 4;
                            self.rotten = true;
                            self.damage();
                        }
                    }
                    Ok(None) => {}
                    Err(reason) => panic!("descriptor {index} cannot be read back: {reason}"),
                }
            }
            Effect::TierWrite { op, at, head, frames } => {
                let mut bytes = head;
                assert!(bytes.len().is_multiple_of(BLOCK), "a tier write's head is whole blocks");
                for &frame in &frames {
                    self.pin_source(frame, "a tier write");
                    bytes.extend_from_slice(self.frame(frame));
                }
                let offset = at.0 as usize * BLOCK;
                let end = offset + bytes.len();
                let overlaps = self.ops.values().any(|op| match &op.kind {
                    OpKind::TierWrite { offset: o, bytes: b, .. } => *o < end && offset < o + b.len(),
                    OpKind::TierSync { .. }
                    | OpKind::TierRead { .. }
                    | OpKind::TierScan { .. }
                    | OpKind::BackingRead { .. }
                    | OpKind::BackingWrite { .. }
                    | OpKind::BackingZero { .. }
                    | OpKind::BackingSync { .. }
                    | OpKind::JournalWrite { .. }
                    | OpKind::JournalSync { .. }
                    | OpKind::Merge { .. } => false,
                });
                assert!(!overlaps, "a tier write at {at} overlaps one that is in flight: either may win");
                assert!(
                    offset + bytes.len() <= self.tier.current.len() && !bytes.is_empty(),
                    "a tier write beyond the tier"
                );
                self.note_batch(at, &bytes, &frames);
                let mut error = self.fault(faults.tier_write_error).then_some(IoError::Failed);
                if error.is_none() && self.fault(faults.tier_full) {
                    error = Some(IoError::NoSpace);
                }
                if memory {
                    assert!(
                        offset + bytes.len() <= self.setup.layout.payload_first as usize * BLOCK,
                        "a tier write into the arena"
                    );
                    // Memory does not fail; stored at once.
                    error = None;
                    self.tier.current[offset..offset + bytes.len()].copy_from_slice(&bytes);
                }
                self.begin(op, OpKind::TierWrite { offset, bytes, frames }, error, tier_micros, faults.tier_stall);
            }
            Effect::TierSync { op } => {
                let error = (!memory && self.fault(faults.tier_sync_error)).then_some(IoError::Failed);
                let mark = self.tier.mark();
                self.begin(op, OpKind::TierSync { mark }, error, tier_micros, faults.tier_stall);
            }
            Effect::TierRead { op, at, frames } => {
                for &(frame, _) in &frames {
                    self.pin_target(frame, "a tier read");
                }
                self.coverage.see("read from flash");
                if frames.len() > 1 {
                    self.coverage.see("payloads read from flash in a run");
                }
                let error = self.fault(faults.tier_read_error).then_some(IoError::Failed);
                self.begin(op, OpKind::TierRead { at, frames }, error, tier_micros, faults.tier_stall);
            }
            Effect::TierScan { op, at, blocks } => {
                assert!(
                    u64::from(at.0) + u64::from(blocks) <= u64::from(self.setup.layout.tier_blocks),
                    "a scan beyond the tier"
                );
                self.begin(op, OpKind::TierScan { at, blocks }, None, tier_micros, 0);
            }
            Effect::TierDiscard { at, blocks } => {
                assert!(!memory, "discards are for flash");
                // A discarded range may read as anything.
                let range = at.0 as usize * BLOCK..(at.0 + blocks) as usize * BLOCK;
                if self.random.below(2) == 0 {
                    let garbage = vec![0xee; range.len()];
                    self.tier.write(range.start, &garbage);
                }
            }
            Effect::BackingRead { op, at, frames } => {
                for &frame in &frames {
                    self.pin_target(frame, "a backing read");
                }
                self.coverage.see("read from the backing");
                let error = self.backing_error(faults.backing_read_error);
                if error.is_some() {
                    self.coverage.see("backing read failed");
                }
                let early = (self.random.below(2) == 0).then(|| self.backing_bytes(at, frames.len()));
                self.begin(op, OpKind::BackingRead { at, frames, early }, error, backing_micros, faults.backing_stall);
            }
            Effect::BackingWrite { op, offset, parts } => {
                let mut error = self.backing_write_error();
                let mut detected = false;
                for part in &parts {
                    self.pin_source(part.frame, "a backing write");
                    let frame = self.frame(part.frame);
                    if let Some(check) = &part.check
                        && !self.check_holds(check, frame)
                    {
                        assert!(
                            self.damaged,
                            "the volume destages a frame that does not match its checksum: {check:?}"
                        );
                        detected = true;
                        error = Some(IoError::Checksum);
                    }
                }
                let bytes = self.bytes_of(&parts);
                assert!(
                    bytes.len() <= self.setup.backing_write_bytes_max as usize,
                    "a backing write of {} bytes",
                    bytes.len()
                );
                if detected {
                    self.coverage.see("damage detected by checksum");
                }
                self.assert_backing_writable(offset, bytes.len() as u64, "a write");
                if error != Some(IoError::Checksum) {
                    self.assert_journal_allows(offset as usize, &bytes);
                }
                self.begin(
                    op,
                    OpKind::BackingWrite { offset: offset as usize, bytes, parts },
                    error,
                    backing_micros,
                    faults.backing_stall,
                );
            }
            Effect::BackingZero { op, offset, length, hole: _ } => {
                self.assert_backing_writable(offset, length, "a zero request");
                self.assert_journal_allows(offset as usize, &vec![0; length as usize]);
                let mut error = self.backing_write_error();
                if faults.backing_zero_unsupported {
                    self.coverage.see("zero request unsupported by the backing");
                    error = Some(IoError::Unsupported);
                }
                self.coverage.see("zeros destaged");
                self.begin(
                    op,
                    OpKind::BackingZero { offset: offset as usize, length: length as usize },
                    error,
                    backing_micros,
                    faults.backing_stall,
                );
            }
            Effect::BackingSync { op } => {
                let error = self.backing_error(faults.backing_sync_error);
                let mark = self.backing.mark();
                self.begin(op, OpKind::BackingSync { mark }, error, backing_micros, faults.backing_stall);
            }
            Effect::JournalWrite { op, at, head, frames, checks } => {
                assert!(self.backing_ready, "a write to the journal before the backing's lock was held");
                assert!(head.len().is_multiple_of(BLOCK), "a journal write's head is whole blocks");
                assert_eq!(frames.len(), checks.len(), "each frame of a journal write has its check");
                self.note_journal_write(at, &head);
                let mut bytes = head;
                let mut error = self.backing_write_error();
                for (&frame, check) in frames.iter().zip(&checks) {
                    self.pin_source(frame, "a journal write");
                    if !self.check_holds(check, self.frame(frame)) {
                        assert!(
                            self.damaged,
                            "a frame goes to the journal that does not match its checksum: {check:?}"
                        );
                        error = Some(IoError::Checksum);
                    }
                    bytes.extend_from_slice(self.frame(frame));
                }
                let offset = at as usize * BLOCK;
                let end = offset + bytes.len();
                let area_bytes = self.journal.current.len() / 2;
                assert!(
                    !bytes.is_empty()
                        && end <= self.journal.current.len()
                        && offset / area_bytes == (end - 1) / area_bytes,
                    "a journal write [{offset}+{}] leaves its area",
                    bytes.len()
                );
                let in_the_way = self.ops.values().any(|op| match &op.kind {
                    OpKind::JournalWrite { offset: o, bytes: b, .. } => *o < end && offset < o + b.len(),
                    OpKind::BackingWrite { .. }
                    | OpKind::BackingZero { .. }
                    | OpKind::BackingSync { .. }
                    | OpKind::JournalSync { .. } => true,
                    OpKind::TierWrite { .. }
                    | OpKind::TierSync { .. }
                    | OpKind::TierRead { .. }
                    | OpKind::TierScan { .. }
                    | OpKind::BackingRead { .. }
                    | OpKind::Merge { .. } => false,
                });
                assert!(!in_the_way, "a journal write while the backing is written, or over one in flight");
                let kind = OpKind::JournalWrite { offset, bytes, frames };
                self.begin(op, kind, error, backing_micros, faults.backing_stall);
            }
            Effect::JournalSync { op } => {
                let error = self.backing_error(faults.backing_sync_error);
                let mark = self.journal.mark();
                self.begin(op, OpKind::JournalSync { mark }, error, backing_micros, faults.backing_stall);
            }
            Effect::Merge { op, checks, target, base, from, to, block, term } => {
                self.assert_writable(target, "a merge");
                assert!(from < to && usize::from(to) <= BLOCK, "a merge of [{from}, {to})");
                for (frame, _) in &checks {
                    self.assert_readable(*frame, "a merge");
                }
                let whole = checks.iter().all(|(frame, check)| self.check_holds(check, self.frame(*frame)));
                assert!(whole || self.damaged, "the volume merges a frame that does not match its checksum");
                let old = match base {
                    Source::Frame(frame, _) => {
                        self.assert_readable(frame, "a merge");
                        self.frame(frame).to_vec()
                    }
                    Source::Zero => vec![0; BLOCK],
                };
                let (from, to) = (usize::from(from), usize::from(to));
                let bytes = self.frame_mut(target);
                bytes[..from].copy_from_slice(&old[..from]);
                bytes[to..].copy_from_slice(&old[to..]);
                let checksum = payload_checksum(&VOLUME_UUID, block, SectorMask::FULL, term, self.frame(target));
                let outcome = if whole { Outcome::Merged(checksum) } else { Outcome::Failed(IoError::Checksum) };
                self.coverage.see(if whole { "unaligned edge merged" } else { "damage detected by checksum" });
                if self.random.below(2) == 0 {
                    self.hand(Event::Done { op, outcome });
                } else {
                    self.pin_target(target, "a merge");
                    // The bytes are merged already, only the answer is late: the base may be reused.
                    self.begin(op, OpKind::Merge { target, outcome }, None, 1, 0);
                }
            }
            Effect::Copy { source, target, start, length } => {
                self.assert_writable(target, "a copy");
                let range = usize::from(start)..usize::from(start) + usize::from(length);
                let bytes = match source {
                    Source::Frame(frame, _) => {
                        self.assert_readable(frame, "a copy");
                        self.frame(frame)[range.clone()].to_vec()
                    }
                    Source::Zero => vec![0; range.len()],
                };
                self.frame_mut(target)[range].copy_from_slice(&bytes);
            }
        }
    }

    fn bytes_of(&self, parts: &Parts) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in parts {
            let from = usize::from(part.from);
            bytes.extend_from_slice(&self.frame(part.frame)[from..from + usize::from(part.length)]);
        }
        bytes
    }

    fn backing_bytes(&mut self, at: BlockIndex, blocks: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(blocks * BLOCK);
        let stale = self.lie == Some(Lie::BackingStaleRead) && self.random.below(4) == 0;
        let image = if stale { &self.old_backing } else { &self.backing.current };
        for block in 0..blocks {
            let from = (at.0 as usize + block) * BLOCK;
            if from + BLOCK <= image.len() {
                bytes.extend_from_slice(&image[from..from + BLOCK]);
            } else {
                bytes.resize(bytes.len() + BLOCK, 0);
            }
        }
        bytes
    }

    fn end_operation(&mut self, id: u64) {
        let Some(Op { kind, error }) = self.ops.remove(&id) else { panic!("operation {id} ends twice") };
        let mut outcome = match error {
            Some(error) => Outcome::Failed(error),
            None => Outcome::Ok,
        };
        let memory = self.setup.layout.kind == TierKind::Memory;
        match kind {
            OpKind::TierWrite { offset, bytes, frames } => {
                for frame in frames {
                    self.unpin_source(frame);
                }
                if error.is_some() {
                    self.coverage.see("tier write failed");
                    self.tier.write_torn(offset, &bytes, Landing::Random, &mut self.random);
                } else if !memory {
                    self.flash_takes(offset, &bytes);
                }
            }
            OpKind::TierSync { mark } => {
                if error.is_some() {
                    self.coverage.see("tier sync failed");
                    self.tier.sync_failed(mark, false, &mut self.random);
                } else if self.lie != Some(Lie::TierSyncDropped) {
                    self.tier.sync(mark);
                }
            }
            OpKind::TierRead { at, frames } => {
                for (place, (frame, check)) in (at.0 as usize..).zip(frames) {
                    self.unpin_target(frame);
                    let bytes = self.tier.current[place * BLOCK..(place + 1) * BLOCK].to_vec();
                    if error.is_some() {
                        self.coverage.see("tier read failed");
                        self.frame_mut(frame).fill(0xba);
                        continue;
                    }
                    if !self.check_holds(&check, &bytes) {
                        // Recovery also reads what a crash may have torn.
                        assert!(
                            self.damaged
                                || !self.serving
                                || self.lie == Some(Lie::TierWriteLost)
                                // Of a tier that has failed, what was never written may be read, and refused.
                                || self.tier_errors > 0,
                            "an undamaged tier block {at} does not match {check:?}"
                        );
                        if self.serving {
                            self.coverage.see("damage detected by checksum");
                        } else {
                            self.coverage.see("torn tail found in recovery");
                        }
                        outcome = Outcome::Failed(IoError::Checksum);
                    }
                    self.frame_mut(frame).copy_from_slice(&bytes);
                }
            }
            OpKind::TierScan { at, blocks } => {
                let from = at.0 as usize * BLOCK;
                outcome = Outcome::Bytes(self.tier.current[from..from + blocks as usize * BLOCK].to_vec());
            }
            OpKind::BackingRead { at, frames, early } => {
                let bytes = match early {
                    Some(bytes) => bytes,
                    None => self.backing_bytes(at, frames.len()),
                };
                for (i, &frame) in frames.iter().enumerate() {
                    self.unpin_target(frame);
                    let target = self.frame_mut(frame);
                    if error.is_some() {
                        target.fill(0xbb);
                    } else {
                        target.copy_from_slice(&bytes[i * BLOCK..(i + 1) * BLOCK]);
                    }
                }
            }
            OpKind::BackingWrite { offset, bytes, parts } => {
                for part in &parts {
                    self.unpin_source(part.frame);
                }
                self.end_backing_write(offset, bytes, error);
            }
            OpKind::BackingZero { offset, length } => {
                if error != Some(IoError::Unsupported) {
                    self.end_backing_write(offset, vec![0; length], error);
                }
            }
            OpKind::BackingSync { mark } => {
                if error.is_some() {
                    self.coverage.see("backing sync failed");
                    let revert = self.random.below(3) == 0;
                    self.backing.sync_failed(mark, revert, &mut self.random);
                    self.backing_sync_failed = (0..self.backing.current.len() / 512).collect();
                } else if !matches!(self.lie, Some(Lie::BackingSyncDropped)) {
                    self.backing.sync(mark);
                }
            }
            OpKind::JournalWrite { offset, bytes, frames } => {
                for frame in frames {
                    self.unpin_source(frame);
                }
                self.journal_found = None;
                match error {
                    None => self.journal.write(offset, &bytes),
                    Some(IoError::Checksum) => {}
                    Some(_) => {
                        self.coverage.see("journal write failed");
                        self.journal.write_torn(offset, &bytes, Landing::Random, &mut self.random);
                    }
                }
            }
            OpKind::JournalSync { mark } => {
                if error.is_some() {
                    self.coverage.see("journal sync failed");
                    let revert = self.random.below(3) == 0;
                    self.journal.sync_failed(mark, revert, &mut self.random);
                    self.journal_found = None;
                } else {
                    if self.lie != Some(Lie::BackingSyncDropped) {
                        self.journal.sync(mark);
                    }
                    if let Some(found) = self.journal_found() {
                        self.journal_through = found.batch.through;
                        self.coverage.see("journaled batch synced");
                    }
                }
            }
            OpKind::Merge { target, outcome: merged } => {
                self.unpin_target(target);
                outcome = merged;
            }
        }
        self.hand(Event::Done { op: OpId(id), outcome });
    }

    fn end_backing_write(&mut self, offset: usize, bytes: Vec<u8>, error: Option<IoError>) {
        if error == Some(IoError::Checksum) {
            return;
        }
        if error.is_some() {
            self.coverage.see("backing write failed");
            self.backing.write_torn(offset, &bytes, Landing::Random, &mut self.random);
        } else if self.lie == Some(Lie::BackingReordered) && self.liar_backlog < 8 {
            self.liar_backlog += 1;
            let wait = self.micros(200_000);
            self.schedule(wait, Due::LieLands(offset, bytes));
        } else {
            if self.lie == Some(Lie::BackingStaleRead) {
                let range = offset..offset + bytes.len();
                self.old_backing[range.clone()].copy_from_slice(&self.backing.current[range]);
            }
            self.backing.write(offset, &bytes);
        }
    }

    fn flash_takes(&mut self, offset: usize, bytes: &[u8]) {
        if self.lie == Some(Lie::TierWriteLost) && self.random.below(8) == 0 {
            return;
        }
        if self.fault(self.setup.faults.flash_lost) {
            trace!(self, "the write at tier byte {offset} is lost");
            self.damage();
            return;
        }
        if self.fault(self.setup.faults.flash_misdirected) {
            let blocks = (self.tier.current.len() - bytes.len()) / BLOCK;
            let elsewhere = self.random.below(blocks as u64 + 1) as usize * BLOCK;
            trace!(self, "the write at tier byte {offset} lands at {elsewhere}");
            self.tier.write(elsewhere, bytes);
            self.damage();
            return;
        }
        self.tier.write(offset, bytes);
        if self.fault(self.setup.faults.flash_rot) {
            let at = offset + self.random.below(bytes.len() as u64) as usize;
            let rotten = self.tier.current[at] ^ (1 << self.random.below(8));
            trace!(self, "a bit of tier byte {at} rots");
            self.tier.current[at] = rotten;
            let sector = at / 512 * 512;
            let bytes = self.tier.current[sector..sector + 512].to_vec();
            self.tier.write(sector, &bytes);
            self.damage();
        }
    }

    fn damage(&mut self) {
        self.coverage.see("tier damaged");
        self.damaged = true;
        self.errors_injected = true;
    }

    // --- replies ---

    fn reply(&mut self, id: RequestId, result: Result<Pieces, RequestError>) {
        self.note_policy();
        let Some(open) = self.open.remove(&id.0) else {
            panic!("request {id} is answered, which is not open: answered twice, or never asked")
        };
        let now = self.moment;
        if self.stage == Stage::Work {
            self.pause_max = self.pause_max.max(self.now - self.progress);
        }
        self.progress = self.now;
        let client = open.client;
        if !open.hung_up && client < self.clients.len() {
            self.clients[client].open -= 1;
            let think = self.micros(self.setup.think_micros_max);
            self.schedule(think, Due::Wake(client));
        }
        match (open.asked, result) {
            (Asked::Read { offset, length, audit }, Ok(pieces)) => {
                let bytes = self.gather(&pieces);
                assert_eq!(bytes.len(), length as usize, "a read of {length} bytes is answered by {}", bytes.len());
                if self.rotten {
                    // What memory holds is not what was written.
                } else if self.damage_carried {
                    // Records that damage has taken may be gone; what is shown must be something once written there.
                    self.oracle.read_is_of_this_place(offset, &bytes);
                } else if audit && self.audit.as_ref().is_some_and(|a| a.settle) {
                    let durable = self.audit.as_ref().is_some_and(|a| a.durable);
                    self.oracle.settled(offset, &bytes, durable, open.began, now);
                } else {
                    self.oracle.read_answered(offset, &bytes, open.began, now);
                }
                if audit && let Some(audit) = &mut self.audit {
                    audit.next = offset + u64::from(length);
                    self.schedule(Duration(0), Due::Audit);
                }
                if !pieces.is_empty() {
                    let wait = self.micros(self.setup.think_micros_max);
                    self.schedule(wait, Due::Sent(pieces));
                }
            }
            (Asked::Read { offset, length, audit }, Err(error)) => {
                self.assert_may_fail("a read", error);
                if audit && let Some(audit) = &mut self.audit {
                    audit.failures += 1;
                    if audit.failures > 20 && self.stage == Stage::Work {
                        if self.damaged {
                            audit.next = offset + u64::from(length);
                        } else {
                            self.begin_healing();
                        }
                    } else if self.damaged && audit.failures > 20 {
                        audit.next = offset + u64::from(length);
                    }
                    self.schedule(Duration::from_millis(100), Due::Audit);
                }
            }
            (Asked::Write(write), Ok(pieces)) => {
                assert!(pieces.is_empty(), "a write is answered with bytes");
                if self.lie != Some(Lie::AcknowledgedEarly) {
                    self.oracle.write_acknowledged(write, now);
                }
                if open.through && self.through_since.is_some_and(|since| since <= open.began) && !self.damage_carried {
                    self.coverage.see("write acknowledged by the backing");
                    let (offset, length) = self.oracle.range(write);
                    let why = "the backing after a write-through acknowledgement";
                    self.oracle.image_has_all_before(&self.backing.current, offset, length, now, why);
                }
                if self.oracle.is_fua(write) {
                    self.coverage.see("FUA acknowledged");
                }
            }
            (Asked::Write(_), Err(error)) => self.assert_may_fail("a write", error),
            (Asked::Flush(flush), Ok(pieces)) => {
                assert!(pieces.is_empty(), "a flush is answered with bytes");
                self.coverage.see("flush acknowledged");
                self.oracle.flush_acknowledged(flush);
                if open.through && self.through_since.is_some_and(|since| since <= open.began) && !self.damage_carried {
                    self.backing_has_all_before(open.began, "the backing after a write-through flush");
                }
            }
            (Asked::Flush(_), Err(error)) => self.assert_may_fail("a flush", error),
            (Asked::Prefetch, Ok(pieces)) => assert!(pieces.is_empty(), "a prefetch is answered with bytes"),
            (Asked::Prefetch, Err(error)) => self.assert_may_fail("a prefetch", error),
        }
    }

    fn assert_may_fail(&self, what: &str, error: RequestError) {
        match error {
            RequestError::Shutdown => assert!(self.stopping, "{what} is refused by a volume that is not stopping"),
            RequestError::Io | RequestError::NoSpace => {
                assert!(self.errors_injected, "{what} fails with {error:?} in a world without errors")
            }
            RequestError::Invalid => panic!("{what} within the volume is called invalid"),
        }
    }

    fn gather(&mut self, pieces: &Pieces) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in pieces {
            assert!(piece.length > 0, "an empty piece in a reply");
            match piece.source {
                Source::Frame(frame, from) => {
                    self.pin_source(frame, "a reply");
                    let (from, to) = (usize::from(from), usize::from(from) + piece.length as usize);
                    assert!(to <= BLOCK, "a piece leaves its frame");
                    bytes.extend_from_slice(&self.frame(frame)[from..to]);
                }
                Source::Zero => {
                    self.coverage.see("read of zeros");
                    bytes.resize(bytes.len() + piece.length as usize, 0);
                }
            }
        }
        bytes
    }

    // --- the log, seen from outside ---

    fn recorded(&mut self, record: &Descriptor, frame: Option<FrameId>) {
        let mut sectors = Vec::new();
        match record.kind {
            Kind::Data { mask, checksum } => {
                let frame = frame.expect("data has a payload");
                let check = Check { block: record.block, mask, term: record.term, checksum };
                let bytes = self.frame(frame).to_vec();
                assert!(self.check_holds(&check, &bytes), "a record enters the log with a payload that is not its own");
                for s in 0..SECTORS_PER_BLOCK {
                    if mask.0 & 1 << s != 0 {
                        let at = s as usize * 512;
                        sectors.push((s, crc32c(&bytes[at..at + 512])));
                    }
                }
            }
            Kind::ZeroSectors { mask } => {
                let zeros = crc32c(&[0; 512]);
                sectors.extend((0..SECTORS_PER_BLOCK).filter(|s| mask.0 & 1 << s != 0).map(|s| (s, zeros)));
            }
            Kind::ZeroBlocks { blocks, .. } => {
                let zeros = crc32c(&[0; 512]);
                sectors.extend((0..blocks * SECTORS_PER_BLOCK).map(|s| (s, zeros)));
            }
        }
        assert!(record.lsn > Lsn(0), "a record at the position before the first");
        // Asked of the volume: it may move records before this world has noticed that it serves.
        if self.volume.as_ref().is_none_or(|volume| record.term != volume.term()) {
            // Moved by compaction; what superseded it in an earlier life is not known here.
            return;
        }
        self.records.entry(record.lsn.0).or_insert(Record { block: record.block, group: record.group, sectors });
    }

    fn note_batch(&mut self, at: TierBlock, bytes: &[u8], frames: &[FrameId]) {
        let Ok(batch) = Batch::decode(&VOLUME_UUID, at, &bytes[..BLOCK]) else { return };
        if frames.is_empty() && !self.serving {
            // Recovery writes the header of a batch that it keeps once more, and the payload by itself.
            return;
        }
        assert_eq!(batch.payload_blocks() as usize, frames.len(), "a batch has the payload of its records");
        let mut frames = frames.iter();
        for record in &batch.records {
            let frame = if record.has_payload() { frames.next().copied() } else { None };
            self.recorded(record, frame);
        }
    }

    /// The watermark has passed records: the backing must hold them, or newer ones, durably.
    fn check_watermark(&mut self) {
        let Some(volume) = &self.volume else { return };
        let status = volume.status(self.now);
        let destaged = status.destaged;
        assert!(destaged >= self.destaged_seen, "the destage position goes back");
        if destaged == self.destaged_seen || self.damage_carried {
            return;
        }
        let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
        for (&lsn, record) in self.records.range(self.destaged_seen.0 + 1..=destaged.0) {
            for &(sector, _) in &record.sectors {
                newest.insert(record.block.0 * 8 + u64::from(sector), lsn);
            }
        }
        let bytes_of = |record: &Record, sector: u64| {
            let within = sector.checked_sub(record.block.0 * 8)?;
            record.sectors.iter().find(|(s, _)| u64::from(*s) == within).map(|&(_, sum)| sum)
        };
        let size = volume.size_bytes();
        for (sector, lsn) in newest {
            if sector * 512 >= size {
                continue;
            }
            let found = crc32c(&self.backing.durable[sector as usize * 512..sector as usize * 512 + 512]);
            // Or the log holds a newer record of the same group: the older one is garbage.
            let group = self.records[&lsn].group;
            let legal = self.records.range(lsn..).any(|(_, r)| bytes_of(r, sector) == Some(found))
                || self
                    .records
                    .range(destaged.0 + 1..=status.held.0.max(destaged.0 + 1))
                    .any(|(_, r)| r.group == group && bytes_of(r, sector).is_some());
            assert!(
                legal,
                "the destage position {destaged} has passed record {lsn}, but sector {sector} of the backing holds {}",
                pattern::explain(
                    sector * 512,
                    &self.backing.durable[sector as usize * 512..sector as usize * 512 + 512]
                )
            );
        }
        self.destaged_seen = destaged;
        self.records = self.records.split_off(&(destaged.0 + 1));
    }

    // --- after every turn ---

    fn inspect(&mut self) {
        if let Some(volume) = &self.volume {
            if self.serving {
                volume.validate();
            }
            self.check_watermark();
            if self.serving && self.random.below(64) == 0 {
                self.check_extents();
            }
        }
        if !self.damage_carried && self.sectors_to_check > 0 && self.random.chance(self.setup.check) {
            self.sectors_to_check = self.sectors_to_check.saturating_sub(self.oracle.bytes() / 512);
            self.check_all_logs_lost();
        }
    }

    /// If every log were lost now, would the backing be a legal crash image? Both for a dead process and for a loss
    /// of power, with what chance lets land.
    fn check_all_logs_lost(&mut self) {
        let mut flying: Vec<(Medium, usize, Vec<u8>)> = Vec::new();
        for op in self.ops.values().filter(|op| op.error != Some(IoError::Checksum)) {
            match &op.kind {
                OpKind::BackingWrite { offset, bytes, .. } => flying.push((Medium::Backing, *offset, bytes.clone())),
                OpKind::BackingZero { offset, length } => flying.push((Medium::Backing, *offset, vec![0; *length])),
                OpKind::JournalWrite { offset, bytes, .. } => flying.push((Medium::Journal, *offset, bytes.clone())),
                OpKind::TierWrite { .. }
                | OpKind::TierSync { .. }
                | OpKind::TierRead { .. }
                | OpKind::TierScan { .. }
                | OpKind::BackingRead { .. }
                | OpKind::BackingSync { .. }
                | OpKind::JournalSync { .. }
                | OpKind::Merge { .. } => {}
            }
        }
        for due in self.agenda.values() {
            match due {
                Due::Ghost(Late::Write { offset, bytes, .. }) => flying.push((Medium::Backing, *offset, bytes.clone())),
                Due::Ghost(Late::Journal { offset, bytes }) => flying.push((Medium::Journal, *offset, bytes.clone())),
                Due::Ghost(Late::Read { .. }) => {}
                Due::LieLands(offset, bytes) => flying.push((Medium::Backing, *offset, bytes.clone())),
                Due::Op(_)
                | Due::Arrive(_)
                | Due::Wake(_)
                | Due::Sent(_)
                | Due::BackingReady
                | Due::Replay(_)
                | Due::Operator
                | Due::Restart
                | Due::Audit => {}
            }
        }
        let process = (self.backing.current.clone(), self.journal.current.clone());
        let power = (
            self.backing.after_power_loss(Landing::Random, &mut self.random),
            self.journal.after_power_loss(Landing::Random, &mut self.random),
        );
        let cases = [(process, "the process and all logs"), (power, "the power and all logs")];
        for ((mut image, mut journal), lost) in cases {
            for (medium, offset, bytes) in &flying {
                let medium = match medium {
                    Medium::Backing => &mut image,
                    Medium::Journal => &mut journal,
                };
                land(medium, *offset, bytes, Landing::Random, &mut self.random);
            }
            let image = journal::replayed(&VOLUME_UUID, &journal, self.size_promised, image);
            self.oracle.backing_is_crash_image(&image, &format!("had {lost} been lost"));
        }
    }

    /// Block status may call a range zero only if a read of it may return zeros.
    fn check_extents(&mut self) {
        let volume = self.volume.as_ref().expect("it serves");
        let size = volume.size_bytes();
        let offset = self.random.below(size / 512) * 512;
        let mut at = offset;
        let zeros = vec![0; self.oracle.bytes() as usize];
        for extent in volume.extents(offset, size - offset, 64) {
            assert!(extent.length > 0, "an empty extent");
            let end = at + extent.length;
            assert!(end <= size, "an extent ends at {end}, beyond the volume's {size} bytes");
            if extent.zero && !self.damage_carried {
                let why = "an extent said to read as zeros";
                self.oracle.image_has_all_before(&zeros, at, extent.length, self.moment, why);
            }
            at = end;
        }
        assert!(at > offset, "block status says nothing");
    }

    // --- the end: everything must come to rest ---

    fn begin_healing(&mut self) {
        trace!(self, "faults stop");
        self.stage = Stage::Healing;
        self.healing_since = self.now;
        self.requests_left = 0;
        self.script.clear();
        if self.serving && !self.stopping && (self.hold.is_some() || self.setup.control > 0) {
            self.command(Control::Release);
            self.volume.as_mut().expect("it serves").settle(self.now);
            self.pump();
        }
    }

    fn advance_stage(&mut self) {
        if matches!(self.stage, Stage::Healing | Stage::LastAudit | Stage::LastStop)
            && self.now - self.healing_since > HEALING_MAX
            && !self.damaged
        {
            panic!("after faults stopped, the volume does not come to rest ({:?}): {}", self.stage, self.unfinished());
        }
        match self.stage {
            Stage::Work => {
                if self.now - self.progress > STANDSTILL_MAX || self.crashes >= CRASHES_MAX {
                    // Faults may stop everything; only without them must it move again.
                    self.begin_healing();
                } else if self.script_is_over() && self.volume.is_some() && self.serving && self.audit.is_none() {
                    // Clients' last requests are still open: faults end while they are.
                    let planned = self.setup.crash_plan.is_some() && !self.planned_crash_done;
                    if !planned || self.at_rest() {
                        self.begin_healing();
                    }
                }
            }
            Stage::Healing => {
                if self.damaged && self.now - self.healing_since > Duration::from_secs(120) {
                    // Damage that nothing can repair may keep records in the log for ever.
                    self.stage = Stage::Done;
                    return;
                }
                let failed = |v: &Volume| v.status(self.now).reason == Reason::TierError;
                if self.serving && self.volume.as_ref().is_some_and(failed) && self.ops.is_empty() {
                    // A failed tier stays failed until the operator starts the volume again.
                    assert!(self.open.values().all(|o| o.hung_up), "a failed tier leaves requests without an answer");
                    self.crash_now(Crash::ProcessKilled);
                } else if self.audit.is_none() && self.at_rest() {
                    self.at_rest_checks();
                    self.stage = Stage::LastAudit;
                    self.audit = Some(Audit { next: 0, durable: false, failures: 0, settle: false });
                    self.schedule(Duration(0), Due::Audit);
                }
            }
            Stage::LastAudit => {
                if self.audit.is_none() && self.at_rest() {
                    self.check_frames();
                    self.stage = Stage::LastStop;
                    self.command(Control::Stop { drain: true });
                    self.volume.as_mut().expect("it serves").settle(self.now);
                    self.pump();
                }
            }
            Stage::LastStop => {
                if self.damaged && self.now - self.healing_since > HEALING_MAX {
                    self.stage = Stage::Done;
                }
            }
            Stage::Done => {}
        }
    }

    fn at_rest(&self) -> bool {
        let Some(volume) = &self.volume else { return false };
        self.serving
            && self.backing_ready
            && self.open.values().all(|o| o.hung_up)
            && self.coming.is_empty()
            && self.clients.iter().all(|c| c.waiting.is_none())
            && self.controls.is_empty()
            && self.ops.is_empty()
            && !self.agenda.values().any(|d| matches!(d, Due::Sent(_)))
            && volume.status(self.now).dirty_bytes == 0
            && volume.status(self.now).groups_waiting == 0
    }

    fn at_rest_checks(&mut self) {
        if self.damage_carried || self.damaged {
            return;
        }
        trace!(self, "at rest");
        self.backing_has_all_before(self.moment, "the backing of a volume without dirty data");
    }

    /// No frame has been lost: all that exist can be had, clean cache included.
    fn check_frames(&mut self) {
        let volume = self.volume.as_mut().expect("it serves");
        let mut had = Frames::new();
        let mut one = Frames::new();
        while volume.take_frames(1, &mut one) {
            had.append(&mut one);
        }
        let distinct: BTreeSet<u32> = had.iter().map(|f| f.0).collect();
        assert_eq!(distinct.len(), had.len(), "a frame is given out twice");
        let kept_back = self.setup.frames as usize - had.len();
        // What reads, edges and destage need to go on, and the frame of zeros.
        let kept_back_max = (self.setup.frames as usize / 15 * 4).max(16) + 1;
        volume.return_frames(&had);
        trace!(self, "{kept_back} of {} frames cannot be taken at rest", self.setup.frames);
        assert!(
            kept_back <= kept_back_max,
            "frames are lost: {kept_back} of {} cannot be taken at rest",
            self.setup.frames
        );
    }

    fn collect_counters(&mut self) {
        let Some(volume) = &self.volume else { return };
        let c = volume.status(self.now).counters;
        self.coverage.add("client throttled", c.throttled_writes);
        self.coverage.add("clean frame evicted", c.evictions);
        self.coverage.add("flash segment compacted", c.compacted_blocks);
        self.coverage.add("fill dropped", c.fills_dropped);
        self.coverage.add("record superseded", c.superseded_blocks);
        self.coverage.add("record left out of a batch for a newer one", c.journal_left_out);
    }
}

fn brief_event(event: &Event) -> String {
    match event {
        Event::Done { op, outcome: Outcome::Bytes(bytes) } => format!("Done {op:?} {} bytes", bytes.len()),
        Event::Request { .. }
        | Event::Sent(_)
        | Event::Hangup(_)
        | Event::Done { .. }
        | Event::BackingReady
        | Event::Control { .. } => format!("{event:?}"),
    }
}

fn brief_effect(effect: &Effect) -> String {
    match effect {
        Effect::TierWrite { op, at, head, frames } => {
            let what = match Batch::decode(&VOLUME_UUID, *at, &head[..BLOCK.min(head.len())]) {
                Ok(batch) => format!("{batch:?}"),
                Err(_) => match Checkpoint::decode(&VOLUME_UUID, *at, &head[..BLOCK.min(head.len())]) {
                    Ok(checkpoint) => format!("{checkpoint:?}"),
                    Err(_) => format!("{} bytes", head.len()),
                },
            };
            format!("TierWrite {op:?} at {at} {what} frames {frames:?}")
        }
        Effect::Describe { index, bytes } => {
            format!("Describe {index} {:?}", Descriptor::decode(&VOLUME_UUID, u64::from(*index), bytes))
        }
        Effect::JournalWrite { op, at, head, frames, .. } => {
            let what = match JournalBatch::head_blocks_hint(head) {
                Some(blocks) => {
                    format!("{:?}", JournalBatch::decode(&VOLUME_UUID, *at, &head[..blocks as usize * BLOCK]))
                }
                None => format!("{} bytes", head.len()),
            };
            format!("JournalWrite {op:?} at {at} {what} frames {frames:?}")
        }
        Effect::Reply { .. }
        | Effect::FramesFree
        | Effect::Answer { .. }
        | Effect::TierSync { .. }
        | Effect::TierRead { .. }
        | Effect::TierScan { .. }
        | Effect::TierDiscard { .. }
        | Effect::BackingRead { .. }
        | Effect::BackingWrite { .. }
        | Effect::BackingZero { .. }
        | Effect::BackingSync { .. }
        | Effect::JournalSync { .. }
        | Effect::Merge { .. }
        | Effect::Copy { .. } => format!("{effect:?}"),
    }
}
