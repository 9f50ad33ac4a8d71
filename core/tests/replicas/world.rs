//! Nodes, the pipes between them, one backing, one client. What a killed process had asked of the backing still lands.

use crate::disks::{Block, Disks, hash};
use crate::oracle::{Oracle, Stamp};
use crate::weather::{Chance, Weather};
use forebay_core::api::*;
use forebay_core::cluster::*;
use forebay_core::format::*;
use forebay_core::message::*;
use forebay_core::status::{ControlError, DestageMode, Flush, PeerCounters, Phase, Policy, Status, Unrest};
use forebay_core::types::*;
use forebay_core::volume::Rules;
use forebay_core::wire::records_of;
use forebay_core::{ClusterConfig, Volume, VolumeConfig};
use std::collections::{BTreeMap, BTreeSet};

pub const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
pub const BLOCKS: u64 = 48;
const VOLUME: [u8; 16] = [7; 16];

std::thread_local! {
    /// Rules that are broken on purpose, for the nodes of this thread's worlds.
    pub static PLANTED: std::cell::Cell<Rules> = std::cell::Cell::new(Rules::default());
}

/// What a node is made of.
#[derive(Clone, Copy, Debug)]
pub struct Make {
    pub kind: TierKind,
    pub tier_blocks: u32,
    pub frames: u32,
    pub min_peers: u32,
    pub flush: Flush,
    pub destage: DestageMode,
    pub journal_blocks: u32,
    pub backing_align: u32,
    pub peer_window_bytes_max: u64,
}

pub const MEMORY: Make = Make {
    kind: TierKind::Memory,
    tier_blocks: 640,
    frames: 0,
    min_peers: 1,
    flush: Flush::Best,
    destage: DestageMode::Ordered,
    journal_blocks: 0,
    backing_align: 512,
    peer_window_bytes_max: 256 << 10,
};

pub const FLASH: Make = Make { kind: TierKind::Flash, tier_blocks: 4096, frames: 512, ..MEMORY };

/// What is done when an operation ends.
#[derive(Debug)]
enum Work {
    Nothing(Outcome),
    TierWrite(TierBlock, Vec<u8>, Vec<FrameId>),
    TierSync,
    TierRead(TierBlock, Checks),
    BackingRead(BlockIndex, Frames),
    BackingWrite(Vec<(u64, Stamp)>, Outcome),
    Send(Box<Letter>, Vec<FrameId>),
}

#[derive(Clone, Debug)]
struct Letter {
    envelope: Envelope,
    message: Message,
    blocks: Vec<Block>,
}

#[derive(Debug)]
enum Due {
    Done { node: usize, life: u64, op: OpId, work: Work },
    Arrive(Letter),
}

pub struct Node {
    pub make: Make,
    pub own: Incarnation,
    pub volume: Option<Volume>,
    pub disks: Disks,
    pub life: u64,
    pub reports: Vec<Report>,
    /// So much it has said to hold: what starts on its tier holds that.
    pub told: Lsn,
    /// The last write of an earlier process lands then.
    pub late_until: u64,
    /// Nothing reaches it, and nothing leaves it.
    pub cut_off: bool,
}

/// What may be under way to a tier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TierWork {
    Checkpoint,
    Erasure,
    Log,
    Sync,
}

/// What of a tier fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fails {
    Writes,
    Syncs,
}

enum Asked {
    Write { sectors: Vec<u64>, stamp: Stamp },
    Read { first: u64 },
    Flush,
}

/// Told of what happens, in its order; times are nanoseconds of the world's clock.
pub trait Watch {
    /// A message arrives.
    fn arrives(&mut self, now: u64, envelope: &Envelope, message: &Message);
    /// A message will not arrive.
    fn lost(&mut self, now: u64, envelope: &Envelope, message: &Message);
    /// A node asks for something that is none of the others here.
    fn asks(&mut self, now: u64, node: usize, effect: &Effect);
    /// A node asks for a write to the backing of these sectors, each with its stamp.
    fn destages(&mut self, now: u64, node: usize, sectors: &[(u64, Stamp)]);
    /// That is in the backing.
    fn lands(&mut self, now: u64, node: usize, sectors: &[(u64, Stamp)]);
    /// A request is answered, a read with these sectors.
    fn answers(&mut self, now: u64, node: usize, id: RequestId, sectors: &[(u64, Stamp)]);
    /// A node has nothing left to do now.
    fn rests(&mut self, now: u64, node: usize, volume: &Volume);
}

/// See the module.
pub struct World {
    pub now: u64,
    pub chance: Chance,
    pub weather: Weather,
    pub nodes: Vec<Node>,
    pub backing: Vec<Block>,
    pub oracle: Oracle,
    pub owner: usize,
    pub answered: u64,
    agenda: BTreeMap<(u64, u64), Due>,
    agenda_next: u64,
    asked: BTreeMap<u64, Asked>,
    busy: BTreeSet<u64>,
    request_next: u64,
    stamp_next: Stamp,
    pub trace: bool,
    pub watch: Option<Box<dyn Watch>>,
    /// What is due at the same time happens in the order of asking, and not in one that is drawn.
    pub in_order: bool,
    /// Messages that get lost, but for a mark that rides on them.
    pub lose: Option<fn(&Message) -> bool>,
    /// Writes to the backing by this node do not end by themselves.
    pub backing_hangs: Option<usize>,
    /// The backing completes what it is asked to write, and fails to sync it.
    pub syncs_fail: bool,
    /// Records reach the node of this number so many milliseconds late, and everything else at once.
    pub slow: Option<(usize, u64)>,
    /// What the tier of the node of this number does not do any more.
    pub tier_fails: Option<(usize, Fails)>,
    /// Commands that were answered.
    pub answers: Vec<(ControlId, Result<(), ControlError>)>,
    /// Who the owner's members are.
    pub sets: crate::copies::Sets,
}

impl World {
    pub fn new(seed: u64, weather: Weather, makes: &[Make]) -> World {
        let mut world = World {
            now: SECOND,
            chance: Chance(seed),
            weather,
            nodes: Vec::new(),
            backing: vec![[0; 8]; BLOCKS as usize],
            oracle: Oracle::default(),
            owner: 0,
            answered: 0,
            agenda: BTreeMap::new(),
            agenda_next: 0,
            asked: BTreeMap::new(),
            busy: BTreeSet::new(),
            request_next: 1,
            stamp_next: 1,
            trace: std::env::var_os("TRACE").is_some(),
            watch: None,
            in_order: false,
            lose: None,
            backing_hangs: None,
            syncs_fail: false,
            slow: None,
            tier_fails: None,
            answers: Vec::new(),
            sets: Default::default(),
        };
        for make in makes {
            world.add(*make);
        }
        world
    }

    /// A new node with a new tier.
    pub fn add(&mut self, make: Make) -> usize {
        let node = self.nodes.len();
        let own = Incarnation { node: NodeId(node as u64 + 1), tier: 0, life: 0 };
        let layout = layout_of(&make);
        let disks = Disks::new(layout, frames_of(&make, layout));
        let (reports, told) = (Vec::new(), Lsn(0));
        self.nodes.push(Node { make, own, volume: None, disks, life: 0, reports, told, late_until: 0, cut_off: false });
        self.format(node);
        node
    }

    /// The node's tier is a new incarnation.
    pub fn format(&mut self, node: usize) {
        let layout = layout_of(&self.nodes[node].make);
        self.nodes[node].disks = Disks::new(layout, frames_of(&self.nodes[node].make, layout));
        self.nodes[node].own.tier = self.chance.draw();
        self.nodes[node].told = Lsn(0);
        self.start(node);
    }

    /// A process starts on what the tier holds.
    pub fn start(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let superblock = node.disks.superblock();
        let fresh = superblock.is_none();
        let (volume, size_bytes) = (VOLUME, BLOCKS * BLOCK_BYTES);
        let new = Superblock {
            version: Version::Two,
            tier: node.own.tier,
            volume,
            name: [0; 64],
            size_bytes,
            created_unix_s: 0,
            layout: node.disks.layout,
        };
        node.own.life = 0;
        let cluster = ClusterConfig {
            own: node.own,
            host: Host { machine: [at as u8 + 1; 16], boot: [1; 16] },
            min_peers: node.make.min_peers,
            flush: node.make.flush,
            peer_window_bytes_max: node.make.peer_window_bytes_max,
            window_bytes_max: 64 << 10,
            resend_after: Duration::from_millis(150),
            stall_max: Duration::from_millis(800),
            degrade_stall_max: Duration::from_secs(10),
        };
        let config = VolumeConfig {
            superblock: superblock.unwrap_or(new),
            fresh,
            size_bytes,
            policy: Policy::Back,
            frames: node.disks.frames.len() as u32,
            backing_align: node.make.backing_align,
            backing_depth_max: 8,
            backing_write_bytes_max: 64 << 10,
            destage_round_bytes_max: 1 << 20,
            journal_blocks: node.make.journal_blocks,
            destage: node.make.destage,
            destage_delay: Duration::from_millis(2),
            drain_max: Duration(0),
            cluster: Some(cluster),
        };
        node.life += 1;
        node.reports.clear();
        #[allow(unused_mut)] // planted rules are there only with the feature
        let mut started = Volume::new(config, Instant(self.now));
        #[cfg(feature = "mutants")]
        {
            started.rules = PLANTED.get();
        }
        node.volume = Some(started);
        self.pump(at);
        self.until("the tier is open", |world| {
            let volume = world.nodes[at].volume.as_ref().expect("started");
            volume.status(Instant(world.now)).phase != Phase::Recovering
        });
        assert_eq!(self.status(at).phase, Phase::Following);
        let (held, told) = (self.figures(at).held, self.nodes[at].told);
        assert!(held >= told, "node {at} holds {held} after its start, and has said to hold {told}\n{}", self.tell());
    }

    /// The process ends at once. What it had asked of devices lands or not.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].volume = None;
        let life = self.nodes[node].life;
        let under_way: Vec<(u64, u64)> = self
            .agenda
            .iter()
            .filter(|(_, due)| matches!(due, Due::Done { node: n, life: l, .. } if (*n, *l) == (node, life)))
            .map(|(key, _)| *key)
            .collect();
        for key in under_way {
            let Some(Due::Done { work, .. }) = self.agenda.remove(&key) else { unreachable!("just seen") };
            match work {
                Work::TierWrite(at, head, frames) if self.chance.percent(50) => {
                    self.carry_out(node, Work::TierWrite(at, head, frames));
                }
                // Later than anything else: a write that hangs in the kernel or the array.
                Work::BackingWrite(sectors, outcome) if self.chance.percent(70) => {
                    let late = key.0 + self.chance.below(3 * SECOND);
                    self.nodes[node].late_until = self.nodes[node].late_until.max(late);
                    let work = Work::BackingWrite(sectors, outcome);
                    self.schedule_at(late, Due::Done { node, life, op: OpId(0), work });
                }
                _ => {}
            }
        }
    }

    /// The volume of a former owner is opened anew as a follower, on the same frames.
    pub fn reopen(&mut self, node: usize) {
        let kept = self.nodes[node].volume.as_ref().and_then(|volume| volume.kept_cache());
        let frames = self.nodes[node].disks.frames.clone();
        self.kill(node);
        self.start(node);
        if let Some(kept) = kept {
            let volume = self.nodes[node].volume.as_mut().expect("started");
            assert!(volume.keep_cache(kept), "node {node} follows on its own frames");
            self.nodes[node].disks.frames = frames;
        }
    }

    pub fn status(&self, node: usize) -> Status {
        self.nodes[node].volume.as_ref().expect("its process runs").status(Instant(self.now))
    }

    /// What kept the volume of a node from being quiet when that was given up last.
    pub fn why_not_quiet(&self, node: usize) -> Option<Unrest> {
        self.nodes[node].volume.as_ref().expect("its process runs").why_not_quiet()
    }

    pub fn figures(&self, node: usize) -> Figures {
        self.nodes[node].volume.as_ref().expect("its process runs").figures()
    }

    pub fn counters(&self, node: usize) -> PeerCounters {
        self.nodes[node].volume.as_ref().expect("its process runs").peer_counters()
    }

    pub fn hand(&mut self, node: usize, event: Event) {
        if self.trace {
            println!("{:>12} -> {node} {event:?}", self.now / 1_000);
        }
        let now = Instant(self.now);
        if let Some(volume) = &mut self.nodes[node].volume {
            volume.handle(now, event);
            self.pump(node);
        }
    }

    pub fn order(&mut self, node: usize, order: Order) {
        if node == self.owner {
            self.sets.order(&order);
        }
        self.hand(node, Event::Ownership(order));
    }

    /// Decides and carries out until there is nothing left to do now.
    pub fn pump(&mut self, node: usize) {
        for _ in 0..10_000 {
            let now = Instant(self.now);
            let Some(volume) = &mut self.nodes[node].volume else { return };
            volume.settle(now);
            if volume.status(now).phase != Phase::Recovering {
                volume.validate();
            }
            let mut idle = true;
            while let Some(effect) = self.nodes[node].volume.as_mut().and_then(|volume| volume.poll_effect()) {
                idle = false;
                self.execute(node, effect);
            }
            if idle {
                let volume = self.nodes[node].volume.as_ref();
                if let (Some(watch), Some(volume)) = (&mut self.watch, volume) {
                    watch.rests(self.now, node, volume);
                }
                return;
            }
        }
        panic!("node {node} never rests");
    }

    fn schedule_at(&mut self, at: u64, due: Due) {
        self.agenda_next += 1;
        let drawn = if self.in_order { 0 } else { self.chance.draw() >> 32 << 32 };
        let order = drawn | self.agenda_next;
        self.agenda.insert((at, order), due);
    }

    fn schedule(&mut self, us_max: u64, due: Due) {
        let wait = self.chance.below(us_max + 1) * 1_000;
        self.schedule_at(self.now + wait, due);
    }

    /// The next thing happens, if it is not after `end`. False: nothing does.
    fn turn_until(&mut self, end: u64) -> bool {
        let due = self.agenda.keys().next().map(|key| key.0);
        let timeouts =
            (0..self.nodes.len()).filter_map(|node| Some((self.nodes[node].volume.as_ref()?.poll_timeout()?.0, node)));
        let timeout = timeouts.min();
        match (due, timeout) {
            (None, None) => return false,
            (Some(at), Some((other, node))) if other < at && other <= end => self.wake(other, node),
            (None, Some((at, node))) if at <= end => self.wake(at, node),
            (Some(at), _) if at <= end => {
                self.now = self.now.max(at);
                let (_, due) = self.agenda.pop_first().expect("just seen");
                self.happen(due);
            }
            (Some(_), _) | (None, Some(_)) => return false,
        }
        true
    }

    /// The next thing happens. False: nothing ever will.
    pub fn turn(&mut self) -> bool {
        self.turn_until(u64::MAX)
    }

    fn wake(&mut self, at: u64, node: usize) {
        self.now = self.now.max(at);
        self.pump(node);
        let volume = self.nodes[node].volume.as_ref().expect("it has a timeout");
        assert!(volume.poll_timeout().is_none_or(|next| next.0 > at), "node {node} waits for a time that has come");
    }

    /// Goes on until it is so.
    pub fn until(&mut self, what: &str, mut so: impl FnMut(&mut World) -> bool) {
        let end = self.now + 60 * SECOND;
        while !so(self) {
            assert!(self.turn(), "nothing happens any more, and not yet: {what}");
            assert!(self.now < end, "not within a minute: {what}\n{}", self.tell());
        }
    }

    pub fn run_ms(&mut self, ms: u64) {
        let end = self.now + ms * MS;
        while self.turn_until(end) {}
        self.now = end;
        for node in 0..self.nodes.len() {
            self.pump(node);
        }
    }

    /// What is under way to a node's tier.
    pub fn tier_work(&self, at: usize) -> Vec<TierWork> {
        let life = self.nodes[at].life;
        let work = self.agenda.values().filter_map(|due| match due {
            Due::Done { node, life: l, work, .. } if (*node, *l) == (at, life) => Some(work),
            Due::Done { .. } | Due::Arrive(_) => None,
        });
        let mut found: Vec<TierWork> = work
            .filter_map(|work| match work {
                // The blocks after the superblock are its places.
                Work::TierWrite(TierBlock(1 | 2), ..) => Some(TierWork::Checkpoint),
                Work::TierWrite(_, head, frames) if frames.is_empty() && head.iter().all(|byte| *byte == 0) => {
                    Some(TierWork::Erasure)
                }
                Work::TierWrite(..) => Some(TierWork::Log),
                Work::TierSync => Some(TierWork::Sync),
                _ => None,
            })
            .collect();
        found.sort();
        found.dedup();
        found
    }

    /// Whether nothing is under way from a node to the backing or its journal.
    pub fn backing_rests(&self, at: usize) -> bool {
        let life = self.nodes[at].life;
        !self.agenda.values().any(|due| match due {
            Due::Done { node, life: l, work: Work::BackingWrite(..) | Work::Nothing(_), .. } => {
                (*node, *l) == (at, life)
            }
            Due::Done { .. } | Due::Arrive(_) => false,
        })
    }

    /// Whether a write of the node's checkpoint, and a sync of its tier, are under way.
    pub fn checkpoint_and_sync(&self, at: usize) -> (bool, bool) {
        let work = self.tier_work(at);
        (work.contains(&TierWork::Checkpoint), work.contains(&TierWork::Sync))
    }

    pub fn tell(&self) -> String {
        let tell = |node: &Node| match &node.volume {
            None => "dead\n".into(),
            Some(volume) => {
                let s = volume.status(Instant(self.now));
                let figures = volume.figures();
                format!(
                    "{:?} {:?} accepted {} held {} committed {} synced {} destaged {} dirty {} {:?} {:?} mark {:?}\n",
                    s.phase,
                    figures.term,
                    s.accepted,
                    s.held,
                    s.committed,
                    s.synced,
                    s.destaged,
                    s.dirty_bytes,
                    s.reason,
                    s.backing,
                    figures.mark
                )
            }
        };
        self.nodes.iter().map(tell).collect()
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Done { node, life, op, work } => {
                let fails = match work {
                    Work::TierWrite(..) => self.tier_fails == Some((node, Fails::Writes)),
                    Work::TierSync => self.tier_fails == Some((node, Fails::Syncs)),
                    _ => false,
                };
                let outcome = if fails { Outcome::Failed(IoError::Failed) } else { self.carry_out(node, work) };
                if self.nodes[node].life == life && self.nodes[node].volume.is_some() {
                    self.hand(node, Event::Done { op, outcome });
                }
            }
            Due::Arrive(letter) => self.arrive(letter),
        }
    }

    fn carry_out(&mut self, node: usize, work: Work) -> Outcome {
        match work {
            Work::Nothing(outcome) => outcome,
            Work::TierSync => Outcome::Ok,
            Work::TierWrite(at, head, frames) => {
                let disks = &mut self.nodes[node].disks;
                let blocks: Vec<Block> = frames.iter().map(|frame| disks.frames[frame.0 as usize]).collect();
                disks.write(at, &head, &blocks);
                Outcome::Ok
            }
            Work::TierRead(at, frames) => self.nodes[node].disks.read(at, &frames),
            Work::BackingRead(at, frames) => {
                for (block, frame) in (at.0..).zip(frames) {
                    let bytes = self.backing.get(block as usize).copied().unwrap_or_default();
                    self.nodes[node].disks.frames[frame.0 as usize] = bytes;
                }
                Outcome::Ok
            }
            Work::BackingWrite(sectors, outcome) => {
                if let Some(watch) = &mut self.watch {
                    watch.lands(self.now, node, &sectors);
                }
                for (sector, stamp) in sectors {
                    self.backing[(sector / 8) as usize][(sector % 8) as usize] = stamp;
                }
                outcome
            }
            Work::Send(mut letter, frames) => {
                letter.blocks = frames.iter().map(|frame| self.nodes[node].disks.frames[frame.0 as usize]).collect();
                if let Message::Log(LogMessage::Cached { records, .. }) = &mut letter.message {
                    for (record, bytes) in records.iter_mut().zip(&letter.blocks) {
                        let checksum = hash(record.block, SectorMask::FULL, record.term, bytes);
                        record.kind = Kind::Data { mask: SectorMask::FULL, checksum };
                    }
                }
                self.post(node, *letter);
                Outcome::Ok
            }
        }
    }

    // --- pipes ---

    fn post(&mut self, from: usize, letter: Letter) {
        if let Message::Log(LogMessage::Held(Held { held, .. })) = letter.message {
            let told = &mut self.nodes[from].told;
            *told = held.max(*told);
        }
        let copies = 1 + u32::from(self.chance.percent(self.weather.twice_percent));
        for _ in 0..copies {
            let lost = self.lose.is_some_and(|lose| lose(&letter.message));
            if lost && let Message::Log(LogMessage::Append { mark: Some(mark), .. }) = &letter.message {
                // What rides on it is told by itself.
                let letter = Letter {
                    message: Message::Log(LogMessage::Mark(mark.clone())),
                    blocks: Vec::new(),
                    ..letter.clone()
                };
                self.schedule(self.weather.delay_us_max, Due::Arrive(letter));
            }
            if lost || self.chance.percent(self.weather.lost_percent) || self.nodes[from].cut_off {
                self.tell_lost(&letter);
                continue;
            }
            let mut letter = letter.clone();
            if !letter.blocks.is_empty() && self.chance.percent(self.weather.spoilt_percent) {
                let sector = self.chance.below(8) as usize;
                letter.blocks[0][sector] ^= 1 << 40;
            }
            self.deliver(letter);
        }
    }

    fn deliver(&mut self, letter: Letter) {
        let to = letter.envelope.to.node.0 as usize - 1;
        match self.slow {
            Some((slow, ms)) if slow == to && !letter.blocks.is_empty() => {
                self.schedule_at(self.now + ms * MS, Due::Arrive(letter));
            }
            Some(_) | None => self.schedule(self.weather.delay_us_max, Due::Arrive(letter)),
        }
    }

    fn tell_lost(&mut self, letter: &Letter) {
        if let Some(watch) = &mut self.watch {
            watch.lost(self.now, &letter.envelope, &letter.message);
        }
    }

    fn arrive(&mut self, letter: Letter) {
        let to = letter.envelope.to.node.0 as usize - 1;
        if self.nodes[to].cut_off || self.nodes[to].volume.is_none() {
            return self.tell_lost(&letter);
        }
        let Letter { envelope, message, blocks } = letter;
        let Some(volume) = self.nodes[to].volume.as_mut() else { return };
        let mut frames = Frames::new();
        if !blocks.is_empty() && !volume.take_frames_for_peer(blocks.len() as u32, &mut frames) {
            return;
        }
        let mut payload = Vec::new();
        if !frames.is_empty() {
            let with = records_of(&message).iter().filter(|record| record.has_payload());
            for ((record, bytes), frame) in with.zip(blocks).zip(frames) {
                self.nodes[to].disks.frames[frame.0 as usize] = bytes;
                let Kind::Data { mask, .. } = record.kind else { unreachable!("it has a payload") };
                payload.push(Payload { frame, checksum: hash(record.block, mask, record.term, &bytes) });
            }
        }
        if let Some(watch) = &mut self.watch {
            watch.arrives(self.now, &envelope, &message);
        }
        let event = match message {
            Message::Log(message) => Event::Peer { envelope, message, payload },
            Message::Refused { why } => Event::Refused { envelope, why },
            Message::Ownership(message) => unreachable!("volumes alone send no {message:?}"),
        };
        self.hand(to, event);
    }

    // --- effects ---

    fn later(&mut self, node: usize, op: OpId, work: Work) {
        let life = self.nodes[node].life;
        self.schedule(self.weather.disk_us_max, Due::Done { node, life, op, work });
    }

    fn execute(&mut self, node: usize, effect: Effect) {
        if self.trace {
            let text = format!("{effect:?}");
            println!("{:>12} <- {node} {}", self.now / 1_000, &text[..text.len().min(600)]);
        }
        if let Some(watch) = &mut self.watch {
            watch.asks(self.now, node, &effect);
        }
        match effect {
            Effect::Reply { id, result } => self.replied(node, id, result),
            Effect::Answer { id, result } => self.answers.push((id, result)),
            Effect::FramesFree => {}
            Effect::Describe { index, bytes } => self.nodes[node].disks.describe(index, &bytes),
            Effect::TierWrite { op, at, head, frames } => self.later(node, op, Work::TierWrite(at, head, frames)),
            Effect::BackingSync { op } if self.syncs_fail => {
                self.later(node, op, Work::Nothing(Outcome::Failed(IoError::Failed)));
            }
            Effect::TierSync { op } => self.later(node, op, Work::TierSync),
            Effect::BackingSync { op } | Effect::JournalSync { op } => {
                self.later(node, op, Work::Nothing(Outcome::Ok));
            }
            Effect::JournalWrite { op, .. } => self.later(node, op, Work::Nothing(Outcome::Ok)),
            Effect::TierRead { op, at, frames } => self.later(node, op, Work::TierRead(at, frames)),
            Effect::TierScan { op, at, blocks } => {
                let bytes = self.nodes[node].disks.scan(at, blocks);
                self.later(node, op, Work::Nothing(Outcome::Bytes(bytes)));
            }
            Effect::BackingRead { op, at, frames } => self.later(node, op, Work::BackingRead(at, frames)),
            Effect::BackingWrite { op, offset, parts } => self.write_backing(node, op, offset, &parts),
            Effect::BackingZero { op, offset, length, hole: _ } => {
                let sectors = (offset / 512..(offset + length) / 512).map(|sector| (sector, 0)).collect();
                self.later(node, op, Work::BackingWrite(sectors, Outcome::Ok));
            }
            Effect::Merge { op, target, base, from, to, block, term, checks: _ } => {
                let disks = &mut self.nodes[node].disks;
                disks.copy(base, target, 0, from);
                disks.copy(base, target, to, (BLOCK_BYTES - u64::from(to)) as u16);
                let bytes = disks.frames[target.0 as usize];
                let merged = Outcome::Merged(hash(block, SectorMask::FULL, term, &bytes));
                self.later(node, op, Work::Nothing(merged));
            }
            Effect::Copy { source, target, start, length } => {
                self.nodes[node].disks.copy(source, target, start, length)
            }
            Effect::Send(sending) => {
                let Sending { op, envelope, message, frames } = *sending;
                let letter = Letter { envelope, message, blocks: Vec::new() };
                match op {
                    Some(op) => self.later(node, op, Work::Send(Box::new(letter), frames)),
                    None => self.post(node, letter),
                }
            }
            Effect::Report(report) => self.nodes[node].reports.push(report),
        }
    }

    fn write_backing(&mut self, node: usize, op: OpId, offset: u64, parts: &Parts) {
        let mut sectors = Vec::new();
        let mut sector = offset / 512;
        let mut outcome = Outcome::Ok;
        for part in parts {
            let bytes = self.nodes[node].disks.frames[part.frame.0 as usize];
            if let Some(check) = part.check
                && hash(check.block, check.mask, check.term, &bytes) != check.checksum
            {
                outcome = Outcome::Failed(IoError::Checksum);
            }
            for within in part.from / 512..(part.from + part.length) / 512 {
                sectors.push((sector, bytes[usize::from(within)]));
                sector += 1;
            }
        }
        assert_eq!(outcome, Outcome::Ok, "node {node} destages a frame that is not what its record says");
        if let Some(watch) = &mut self.watch {
            watch.destages(self.now, node, &sectors);
        }
        let work = Work::BackingWrite(sectors, outcome);
        if self.backing_hangs == Some(node) {
            let life = self.nodes[node].life;
            return self.schedule_at(self.now + 30 * SECOND, Due::Done { node, life, op, work });
        }
        self.later(node, op, work);
    }

    // --- the client ---

    fn request(&mut self, request: Request, asked: Asked) {
        let id = self.request_next;
        self.request_next += 1;
        self.asked.insert(id, asked);
        self.hand(self.owner, Event::Request { id: RequestId(id), request });
    }

    /// Asks for a write of whole sectors within one block; false: not now.
    pub fn write(&mut self, first: u64, count: u64) -> bool {
        let block = BlockIndex(first / 8);
        let (now, owner) = (Instant(self.now), self.owner);
        let Some(volume) = &mut self.nodes[owner].volume else { return false };
        let mut frames = Frames::new();
        if self.busy.contains(&block.0) || !volume.take_frames(ClientId(0), 1, &mut frames) {
            return false;
        }
        let term = volume.term();
        assert!(volume.status(now).phase != Phase::Following, "a follower has no clients");
        self.busy.insert(block.0);
        let stamp = self.stamp_next;
        self.stamp_next += 1;
        let mut bytes = [0; 8];
        bytes[(first % 8) as usize..(first % 8 + count) as usize].fill(stamp);
        self.nodes[owner].disks.frames[frames[0].0 as usize] = bytes;
        let mask = SectorMask::of_bytes(first % 8 * 512, (first % 8 + count) * 512);
        let payload = Payloads::from_slice(&[Payload { frame: frames[0], checksum: hash(block, mask, term, &bytes) }]);
        let sectors: Vec<u64> = (first..first + count).collect();
        self.oracle.asked(sectors.iter().copied(), stamp);
        let request = Request::Write { offset: first * 512, length: (count * 512) as u32, payload, fua: false };
        self.request(request, Asked::Write { sectors, stamp });
        true
    }

    /// Asks for zeros in whole blocks; false: not now.
    pub fn zero(&mut self, block: u64, count: u64) -> bool {
        if (block..block + count).any(|block| self.busy.contains(&block)) || self.nodes[self.owner].volume.is_none() {
            return false;
        }
        self.busy.extend(block..block + count);
        let sectors: Vec<u64> = (block * 8..(block + count) * 8).collect();
        // Zeros are no stamp of their own: they are told apart by nothing but being zero.
        self.oracle.asked(sectors.iter().copied(), 0);
        let (offset, length) = (block * BLOCK_BYTES, count * BLOCK_BYTES);
        self.request(Request::Zero { offset, length, hole: true, fua: false }, Asked::Write { sectors, stamp: 0 });
        true
    }

    pub fn read(&mut self, block: u64) -> bool {
        if self.nodes[self.owner].volume.is_none() || !self.busy.insert(block) {
            return false;
        }
        let request = Request::Read { offset: block * BLOCK_BYTES, length: BLOCK_BYTES as u32 };
        self.request(request, Asked::Read { first: block * 8 });
        true
    }

    /// Asks for a block while writes of it are under way.
    pub fn read_beside(&mut self, block: u64) -> u64 {
        self.busy.remove(&block);
        assert!(self.read(block));
        self.request_last()
    }

    /// Asks for a block to be cached; nothing is shown of it.
    pub fn prefetch(&mut self, block: u64) {
        let request = Request::Prefetch { offset: block * BLOCK_BYTES, length: BLOCK_BYTES as u32 };
        self.request(request, Asked::Flush);
    }

    pub fn flush(&mut self) {
        if self.nodes[self.owner].volume.is_some() {
            self.request(Request::Flush, Asked::Flush);
        }
    }

    /// Sessions with an owner that is none any more end.
    pub fn sessions_end(&mut self) {
        self.asked.clear();
        self.busy.clear();
        self.oracle.session += 1;
    }

    /// Asks for a write beside others of the same block that are under way; their sectors must differ.
    pub fn write_beside(&mut self, first: u64, count: u64) -> bool {
        self.busy.remove(&(first / 8));
        self.write(first, count)
    }

    pub fn request_last(&self) -> u64 {
        self.request_next - 1
    }

    pub fn is_answered(&self, request: u64) -> bool {
        !self.asked.contains_key(&request)
    }

    pub fn open(&self) -> usize {
        self.asked.len()
    }

    fn replied(&mut self, node: usize, id: RequestId, result: Result<Pieces, RequestError>) {
        let Some(asked) = self.asked.remove(&id.0) else {
            // Its session has ended.
            if let Ok(pieces) = result {
                self.hand(node, Event::Sent(pieces));
            }
            return;
        };
        let pieces = result.unwrap_or_else(|error| panic!("request {id} fails: {error:?}\n{}", self.tell()));
        self.answered += 1;
        let mut shown = Vec::new();
        match asked {
            Asked::Write { sectors, stamp } => {
                for sector in &sectors {
                    self.busy.remove(&(sector / 8));
                }
                self.has_copies_or_is_written(&sectors, stamp);
                self.oracle.acknowledged(sectors.into_iter(), stamp);
            }
            Asked::Read { first } => {
                self.busy.remove(&(first / 8));
                let mut sector = first;
                for piece in &pieces {
                    for within in 0..piece.length / 512 {
                        let stamp = match piece.source {
                            Source::Frame(frame, from) => {
                                let at = usize::from(from) / 512 + within as usize;
                                self.nodes[node].disks.frames[frame.0 as usize][at]
                            }
                            Source::Zero => 0,
                        };
                        self.oracle.shown(sector, stamp, "a read");
                        shown.push((sector, stamp));
                        sector += 1;
                    }
                }
            }
            Asked::Flush => {}
        }
        if let Some(watch) = &mut self.watch {
            watch.answers(self.now, node, id, &shown);
        }
        self.hand(node, Event::Sent(pieces));
    }
}

fn layout_of(make: &Make) -> TierLayout {
    match make.kind {
        TierKind::Memory => TierLayout::memory(make.tier_blocks).expect("a possible size"),
        TierKind::Flash => TierLayout::flash(make.tier_blocks).expect("a possible size"),
    }
}

fn frames_of(make: &Make, layout: TierLayout) -> u32 {
    match make.kind {
        TierKind::Memory => layout.payload_blocks,
        TierKind::Flash => make.frames,
    }
}
