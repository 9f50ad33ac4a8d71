//! A volume: one pipeline from a client's write to the backing, and the reads that see through it.
//!
//! ```text
//!  request -> admission -> log (accepted) -> tier has it (held) -> tier synced it (synced)
//!                            |                                          |
//!                            +-> destage, group by group -> backing synced it (durable) -> checkpoint (destaged)
//! ```
//!
//! The order that these positions keep is stated in [`positions`], and checked by [`Volume::validate`]; `committed` is what every
//! member of the log holds, where one node has the volume to itself: `held`.
//! Which of them answers a client is the acknowledgement rule ([`acks`]), and the only difference between policies:
//! write-back waits for `committed` (a flush for `synced`), write-through for the backing as well (a flush for its sync, and
//! for the tier to vouch for it).
//!
//! [`Volume`] routes: events to where they are decided, completions to where they were asked for ([`operations`]), and what
//! is to be settled in its order. Each part of it has a file, and mostly only that file can change what it owns:
//!
//! - **log**: [`positions`] how far it is, [`groups`] the barriers in it, [`log_index`] its records in order and by block,
//!   [`free_ids`] numbers for those without a payload, [`append`] how they come into it, [`identity`] what they are marked with;
//! - **tier**: [`flash`] places on one of flash, [`tier_state`] whether it works, [`checkpoint`] what changes slowly,
//!   [`recover`] from a tier to this state, [`Retention`](crate::log::Retention) what a member's finds needed, [`rewrite`] making durable what that keeps;
//! - **memory**: [`frames`] and the read cache, [`frame_quota`] who may take how much of it;
//! - **clients**: [`acks`] who waits for what, [`mod@write`] admission and unaligned edges, [`locks`] who waits for those, [`read`]
//!   resolving and filling, [`ready`] when a client may see it;
//! - **backing**: [`destage`] groups to it, [`ahead`] what that reads from flash in runs, [`journal`] many groups at once;
//! - **operator**: [`control`] policies, drain, hold, stop; [`recorder`] what is measured of all that;
//! - **log of several nodes** (docs/protocol.md): [`replication`] has the parts. [`role`] who this node is, [`replica_role`] how it
//!   comes to be that, [`agreeing`] on where a term begins, [`lease`] how long it may act, [`former_state`] what was put back, [`changes`] of
//!   the record; [`members`] the others as their owner sees them, [`stream`] what they are sent and [`pace`] how fast they take it,
//!   [`marks`] what they know of destage, [`pins`] what a former owner may still write, [`predecessor_cache`] reads from its
//!   cache; [`member`] the role of one of them.
//!
//! Left to others: payload bytes, devices, clocks, sockets, files beside the image.

mod acks;
mod agreeing;
mod ahead;
mod append;
mod changes;
mod checkpoint;
mod chunked;
mod control;
mod destage;
mod flash;
mod former_state;
mod frame_quota;
mod frames;
mod free_ids;
mod groups;
mod identity;
mod journal;
mod largest;
mod lease;
mod locks;
mod log_index;
mod marks;
mod member;
mod members;
mod operations;
mod pace;
mod pins;
mod positions;
mod predecessor_cache;
mod read;
mod ready;
mod recorder;
mod recover;
mod replica_role;
mod replication;
mod rewrite;
mod role;
mod rules;
mod stream;
mod tier_state;
mod write;

use crate::api::*;
use crate::cluster::{Host, Incarnation, NodeId};
use crate::format::{Checkpoint, Standing, Superblock, TierKind};
#[cfg(test)]
use crate::format::{TierLayout, Version};
use crate::stats::Stats;
use crate::status::*;
use crate::types::*;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
pub use changes::HELD_MAX;
pub use control::STOP_PATIENCE;
use flash::FlashLog;
use frames::FramePool;
pub use largest::request_bytes_max;
use log_index::LogIndex;
use operations::Op;
pub use predecessor_cache::KeptCache;
pub use recorder::MEASURED_BYTES_MAX;
use role::Role;
pub use rules::Rules;
use slab::Slab;

/// How a volume is set up. Bounds are counts and bytes; their sum is the volume's memory.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Identity and layout of the tier; for an existing tier, as decoded from its block 0.
    pub superblock: Superblock,
    /// The tier is new: core formats it. Otherwise it is recovered.
    pub fresh: bool,
    /// Size for a fresh tier; an existing one knows its size.
    pub size_bytes: u64,
    /// Policy that is asked for; the effective one may differ ([`crate::status`]).
    pub policy: Policy,
    /// Frames of the arena. Memory tier: exactly the layout's payload blocks (frame i is payload block i).
    /// Flash tier: staging and read cache.
    pub frames: u32,
    /// Backing writes and zeros must be multiples of this: 512 or 4096.
    pub backing_align: u32,
    /// Backing operations in flight at one time, before a fast backing; before others half of it.
    pub backing_depth_max: u32,
    /// Bytes of the largest single write to the backing.
    pub backing_write_bytes_max: u32,
    /// Bytes issued to the backing between two syncs at most.
    pub destage_round_bytes_max: u64,
    /// Blocks of the journal beside the backing, both areas together; 0: there is none, every group goes by itself.
    pub journal_blocks: u32,
    /// Way of destage that is asked for; the effective one may differ.
    pub destage: DestageMode,
    /// Dirty writes younger than this wait for more to merge with (write-back only).
    pub destage_delay: Duration,
    /// How long the log may take to drain, at the backing's measured speed, before writes are slowed to that speed;
    /// 0 = as long as the log has room.
    pub drain_max: Duration,
    /// The volume's log is kept on several nodes. None: one node has the volume to itself.
    pub cluster: Option<ClusterConfig>,
}

/// What a volume needs that several nodes keep (docs/protocol.md). Times and bounds are the same on all of them.
#[derive(Clone, Copy, Debug)]
pub struct ClusterConfig {
    /// This node with its tier. The node counts; what is said of the tier is replaced by what a start finds it to be.
    pub own: Incarnation,
    /// The machine in its present boot.
    pub host: Host,
    /// With fewer copies besides the owner's own, the backing must have a write as well (A1).
    pub min_peers: u32,
    /// What a flush promises.
    pub flush: Flush,
    /// Sent to one peer and not yet held by it, at most (S8).
    pub peer_window_bytes_max: u64,
    /// Under way to the backing at most (D2).
    pub window_bytes_max: u64,
    /// What is open is sent again when nothing has moved for so long (S3).
    pub resend_after: Duration,
    /// A peer is dropped when its oldest open message has made no progress for so long (A3).
    pub stall_max: Duration,
    /// A volume whose record has no spare peer keeps no more dirty data than what drains in this time (A6).
    pub degrade_stall_max: Duration,
}

/// An extent of a volume, for block status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes that the extent covers.
    pub length: u64,
    /// Reads as zeros, known without asking the backing.
    pub zero: bool,
    /// Not yet durable in the backing.
    pub dirty: bool,
    /// In the read cache or the log's memory.
    pub cached: bool,
}

/// True when the named rule is broken on purpose; constant false in a product build.
macro_rules! planted {
    ($volume:expr, $rule:ident) => {{
        #[cfg(feature = "mutants")]
        let planted = $volume.rules.$rule;
        #[cfg(not(feature = "mutants"))]
        let planted = false;
        planted
    }};
}
use planted;

/// One volume. See the module.
pub struct Volume {
    config: VolumeConfig,
    /// Broken on purpose, for the simulator.
    #[cfg(feature = "mutants")]
    pub rules: Rules,
    phase: Phase,
    size_bytes: u64,
    identity: identity::Identity,

    pool: FramePool,
    index: LogIndex,
    flash: Option<FlashLog>,

    replication: replication::Replication,
    lease: lease::Lease,

    groups: groups::Groups,
    positions: positions::Positions,
    tier: tier_state::TierState,

    checkpoints: checkpoint::Checkpoints,
    acks: acks::Acks,
    writes: write::Writes,
    reads: read::Reads,
    destage: destage::Destage,
    journal: journal::Journal,
    control: control::ControlState,
    recovery: Option<recover::Recovery>,

    effects: VecDeque<Effect>,
    operations: operations::Operations,
    quota: frame_quota::FrameQuota,
    now: Instant,
    recorder: recorder::Recorder,
}

/// A client must not keep everybody else waiting with one question.
const EXTENT_BLOCKS_MAX: u64 = 8_192;
/// Enough for edges and old blocks under sectors to go on at the speed of a slow backing.
const FRAMES_KEPT_MAX: u32 = 64;
/// Enough for the largest request that is not aligned, and a frame to load records into, beside those.
const FRAMES_RESERVED_MAX: u32 = (REQUEST_BYTES_MAX / BLOCK_BYTES) as u32 + 2 + FRAMES_KEPT_MAX;

impl Volume {
    /// Begins: poll effects, feed events, until `status().phase` is `Serving` (or `Refused`).
    pub fn new(config: VolumeConfig, now: Instant) -> Volume {
        let layout = config.superblock.layout;
        if layout.kind == TierKind::Memory {
            assert_eq!(config.frames, layout.payload_blocks, "a memory tier's frames are its payload blocks");
        }
        assert!(config.frames >= 64, "an arena has at least 64 frames");
        assert!(config.backing_align == 512 || config.backing_align == 4096);
        assert!(u64::from(config.backing_write_bytes_max) >= BLOCK_BYTES && config.backing_depth_max > 0);
        // The last frame is nobody's: on a memory tier every other one may hold a record.
        let pool = FramePool::new(config.frames - 1);
        let role = if config.cluster.is_some() { Role::Follower } else { Role::Alone };
        let mut volume = Volume {
            #[cfg(feature = "mutants")]
            rules: Rules::default(),
            phase: Phase::Recovering,
            size_bytes: config.size_bytes,
            identity: identity::Identity::new(config.superblock.volume),
            pool,
            index: LogIndex::new(layout.payload_blocks, layout.ranges_max),
            flash: (layout.kind == TierKind::Flash).then(|| FlashLog::new(layout)),
            replication: replication::Replication::new(role),
            lease: lease::Lease::new(),
            groups: groups::Groups::new(),
            positions: positions::Positions::new(),
            tier: Default::default(),
            checkpoints: Default::default(),
            acks: Default::default(),
            writes: write::Writes::new(now),
            reads: Default::default(),
            destage: destage::Destage::new(&config, now),
            journal: journal::Journal::new(&config, now),
            control: control::ControlState::new(config.policy, config.drain_max, now),
            recovery: None,
            effects: VecDeque::with_capacity(256),
            operations: operations::Operations::new(),
            quota: Default::default(),
            now,
            recorder: recorder::Recorder::new(u64::from(config.frames)),
            config,
        };
        // An arena begins with whatever its memory holds.
        let (source, length) = (Source::Zero, BLOCK_BYTES as u16);
        volume.effects.push_back(Effect::Copy { source, target: volume.pool.zero_frame(), start: 0, length });
        volume.begin_recovery();
        volume
    }

    /// Size of the volume in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Identity; payload checksums are computed with it.
    pub fn id(&self) -> &[u8; 16] {
        self.identity.volume()
    }

    /// Term of this owner, or the highest that a member has seen; payload checksums of writes are computed with it. Known from `Serving` on.
    pub fn term(&self) -> Term {
        self.identity.term()
    }

    /// Number of this start of the tier.
    pub fn start(&self) -> Start {
        self.identity.start()
    }

    /// What this tier may have lost of what it had held counts in it: another number is another incarnation.
    pub fn life(&self) -> u32 {
        self.identity.life()
    }

    /// Largest request that is accepted: what is always kept back from dirty data and fits into an empty log, at most
    /// [`REQUEST_BYTES_MAX`].
    pub fn request_bytes_max(&self) -> u32 {
        request_bytes_max(&self.config.superblock.layout, self.config.frames)
    }

    /// Checks a request's bounds before it is handed in.
    pub fn admissible(&self, request: &Request) -> Result<(), RequestError> {
        if !matches!(self.phase, Phase::Serving) {
            return Err(RequestError::Shutdown);
        }
        let (offset, length, past_end) = match *request {
            Request::Flush => return Ok(()),
            Request::Read { length, .. } if length > self.request_bytes_max() => return Err(RequestError::Invalid),
            Request::Read { offset, length } | Request::Prefetch { offset, length } => {
                (offset, u64::from(length), RequestError::Invalid)
            }
            Request::Write { offset, length, .. } => {
                if length > self.request_bytes_max() {
                    return Err(RequestError::Invalid);
                }
                (offset, u64::from(length), RequestError::NoSpace)
            }
            Request::Zero { offset, length, hole, .. } => {
                (offset, length, if hole { RequestError::Invalid } else { RequestError::NoSpace })
            }
        };
        if length == 0 {
            return Err(RequestError::Invalid);
        }
        match offset.checked_add(length) {
            Some(end) if end <= self.size_bytes => Ok(()),
            _ => Err(past_end),
        }
    }

    fn advance(&mut self, now: Instant) {
        // A round of events has the time of its beginning, and ends later than the last settling in it.
        self.now = self.now.max(now);
        self.forgive_peers();
    }

    /// Something happened. Cheap; decisions that profit from seeing several events wait for `settle`.
    pub fn handle(&mut self, now: Instant, event: Event) {
        self.advance(now);
        match event {
            Event::Request { id, request } => {
                self.recorder.arrived(id, &request, self.now);
                self.on_request(id, request);
            }
            Event::Sent(pieces) => self.unpin_pieces(&pieces),
            Event::Hangup(ids) => self.on_hangup(&ids),
            // What is under way to a backing may end after the stop, and must not go on.
            Event::Done { .. } if self.phase == Phase::Stopped => {}
            Event::Done { op, outcome } => self.on_done(op, outcome),
            Event::BackingReady => {
                self.destage.ready = true;
            }
            Event::Control { id, command } => self.on_control(id, command),
            Event::Peer { envelope, message, payload } => self.on_peer(envelope, message, payload),
            Event::Refused { envelope, why } => self.on_refused_by_peer(&envelope, why),
            Event::Interrupted(node) => {
                self.former_interrupted(node);
                self.on_interrupted(node);
            }
            Event::Ownership(order) => self.on_order(order),
        }
    }

    /// After a batch of events, or when a timeout is due: seal log batches, destage, admit waiting writes.
    pub fn settle(&mut self, now: Instant) {
        self.advance(now);
        match self.phase {
            Phase::Recovering | Phase::Stopped | Phase::Refused(_) => {}
            _ if self.replication.own_role.is_stepping_down() => self.go_on_stepping_down(),
            Phase::Following | Phase::Agreeing => self.settle_log(),
            Phase::Serving | Phase::Stopping => self.settle_serving(),
        }
        if cfg!(debug_assertions) {
            self.validate_positions();
            // Whoever drives it would call again at once, for ever.
            let due = self.poll_timeout();
            assert!(due.is_none_or(|at| at > now), "due at {due:?}, and it is {now:?}: {:?}", self.phase);
        }
    }

    /// The log of a member, and of an owner before it serves.
    fn settle_log(&mut self) {
        self.compact();
        self.write_log();
        self.erase_drained();
        self.sync_log_if_wanted();
        self.write_checkpoint();
        match self.role() {
            Role::Alone => {}
            Role::Follower => {
                self.publish_remembered();
                self.answer_owner();
            }
            Role::Owner => {
                self.go_on_agreeing();
                self.send_streams();
            }
        }
    }

    fn settle_serving(&mut self) {
        self.settle_former();
        self.retry_failing_reads();
        // Before new writes, which wait behind those that wait for frames.
        self.retry_edge_reads();
        self.admit_waiting();
        self.compact();
        self.write_log();
        self.erase_drained();
        self.sync_log_if_wanted();
        self.expire_hold();
        self.extend_window();
        self.destage();
        if self.journal_awaits_tier_sync() {
            self.sync_log_if_wanted();
        }
        // After destage, which may wait for frames as well, and which everybody waits for.
        self.retry_waiting_reads();
        self.settle_prefetches();
        let limited = self.control.destage_stops_after().is_some();
        self.settle_control();
        if limited && self.control.destage_stops_after().is_none() {
            self.extend_window();
            self.destage();
            if self.journal_awaits_tier_sync() {
                self.sync_log_if_wanted();
            }
        }
        if self.role() == Role::Owner {
            self.send_streams();
            self.publish_covered();
            self.settle_quiet();
        }
        if self.frames_are_free() {
            self.effects.push_back(Effect::FramesFree);
        }
    }

    /// Takes the next thing to do, in order; none: there is nothing before the next event.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if self.effects.is_empty() && self.pool.thaw() && self.frames_are_free() {
            return Some(Effect::FramesFree);
        }
        let next = self.effects.pop_front();
        if next.is_none() {
            self.recorder.count(self.now);
        }
        next
    }

    /// When `settle` must be called at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Recovering | Phase::Following | Phase::Stopped | Phase::Refused(_) => None,
            // Nothing but the end of what is under way is waited for.
            _ if self.replication.own_role.is_stepping_down() => None,
            Phase::Agreeing => [self.agreeing_timeout(), self.streams_timeout()].into_iter().flatten().min(),
            Phase::Serving | Phase::Stopping => {
                let own = [self.destage_timeout(), self.admission_timeout(), self.control.timeout(self.now)];
                let reads = [self.failing_reads_timeout(), self.prefetches_timeout()];
                let others = [self.streams_timeout(), self.former_timeout(), self.quiet_timeout()];
                own.into_iter().chain(reads).chain(others).flatten().min()
            }
        }
    }

    /// Bytes of a block that exist: less than 4 KiB only for the last block of a volume.
    fn block_bytes(&self, block: BlockIndex) -> u64 {
        (self.size_bytes - block.byte()).min(BLOCK_BYTES)
    }

    /// Most live blocks before writes wait.
    fn dirty_blocks_max(&self) -> u32 {
        match &self.flash {
            Some(_) => largest::log_dirty_blocks_max(&self.config.superblock.layout),
            None => self.pool.total() - 2 * self.frames_reserved(),
        }
    }

    fn fill(&self) -> f64 {
        f64::from(self.index.payload_blocks()) / f64::from(self.dirty_blocks_max())
    }

    /// Time that the dirty data takes at the measured speed; none while that is not known.
    fn drain_left(&self) -> Option<Duration> {
        let (dirty, rate) = (u64::from(self.index.payload_blocks()) * BLOCK_BYTES, self.destage.bytes_per_sec());
        match (dirty, rate) {
            (0, _) => Some(Duration(0)),
            (_, 0) => None,
            (dirty, rate) => Some(Duration((dirty as f64 / rate as f64 * 1e9) as u64)),
        }
    }

    /// How near the dirty data is to its limit, in bytes or in time to drain, whichever is nearer; 1 = there.
    fn pressure(&self) -> f64 {
        let most = match (self.control.drain_max, self.has_no_spare()) {
            (most, false) => most,
            (Duration(0), true) => self.cluster().degrade_stall_max,
            (most, true) => most.min(self.cluster().degrade_stall_max),
        };
        match (self.drain_left(), most) {
            (None, _) | (_, Duration(0)) => self.fill(),
            (Some(left), most) => self.fill().max(left.as_secs_f64() / most.as_secs_f64()),
        }
    }

    /// What it shows of itself.
    pub fn status(&self, now: Instant) -> Status {
        // A zeroed range has no bytes, and yet the image is not complete without it: it counts as one block.
        let dirty_bytes = u64::from(self.index.payload_blocks() + self.index.others()) * BLOCK_BYTES;
        let mut counters = self.recorder.counters;
        counters.evictions = self.pool.evictions;
        Status {
            phase: self.phase,
            size_bytes: self.size_bytes,
            term: self.identity.term(),
            requested: self.control.requested,
            effective: self.policy_kept(),
            reason: if self.tier.has_failed() { Reason::TierError } else { self.control.reason },
            reason_since: self.control.reason_since,
            backing: self.backing_state(now),
            hold_left: self.control.hold_left(now),
            destage: self.journal.requested,
            journaled: self.is_journaled(),
            destage_reason: self.journal.reason,
            journal_bytes: self.journal.bytes(),
            group_bytes_mean: self.group_bytes_mean(),
            dirty_bytes,
            dead_bytes: self.flash.as_ref().map_or(0, |flash| flash.dead_blocks() * BLOCK_BYTES),
            dirty_bytes_max: u64::from(self.dirty_blocks_max()) * BLOCK_BYTES,
            clean_bytes: u64::from(self.pool.cached()) * BLOCK_BYTES,
            groups_waiting: self.groups_waiting(),
            oldest_dirty: self.oldest_dirty(now),
            destage_bytes_per_sec: self.destage.bytes_per_sec(),
            drain_left: self.drain_left(),
            drain_max: self.control.drain_max,
            waiting_writes: self.writes.waiting_len(),
            oldest_unanswered: self.acks.waits_since().map_or(Duration::default(), |since| now - since),
            accepted: self.positions.accepted(),
            held: self.positions.held(),
            committed: self.positions.committed(),
            synced: self.positions.synced(),
            destaged: self.positions.destaged(),
            counters,
        }
    }

    /// What it has measured since it began.
    pub fn seen(&self) -> &Stats {
        &self.recorder.seen
    }

    /// Extents from `offset` on, at most `max` of them and over at most [`EXTENT_BLOCKS_MAX`] blocks that must be looked
    /// at one by one, for block status: who wants the rest asks again.
    pub fn extents(&self, offset: u64, length: u64, max: usize) -> Vec<Extent> {
        let end = offset.saturating_add(length).min(self.size_bytes);
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = offset;
        let mut looked_at = 0;
        // To call a range zero is to have read it (A8, L3).
        let answers = self.has_lease() && !self.is_mute();
        while at < end && looked_at < EXTENT_BLOCKS_MAX {
            let block = BlockIndex::of_byte(at);
            looked_at += 1;
            let found = self.index.find(block, SectorMask::FULL);
            let may_show = answers
                && self.may_be_shown(self.index.newest_above(self.positions.committed(), block, SectorMask::FULL));
            // A zeroed range without newer data is one extent however long; data goes block by block.
            let mut next = block.byte() + BLOCK_BYTES;
            if self.index.newest_record(block).is_none() && self.index.zeroed(block) > Lsn(0) {
                let change = self.index.next_zero_change(block);
                let mut probe = block.0 + 1;
                while probe < change.0 && probe * BLOCK_BYTES < end && looked_at < EXTENT_BLOCKS_MAX {
                    looked_at += 1;
                    if self.index.newest_record(BlockIndex(probe)).is_some() {
                        break;
                    }
                    probe += 1;
                }
                next = probe * BLOCK_BYTES;
            }
            let extent = Extent {
                length: next.min(end) - at,
                zero: may_show && found.iter().all(|(_, source)| *source == log_index::Found::Zero),
                dirty: found.iter().any(|(_, source)| *source != log_index::Found::Backing),
                cached: self.pool.cached_frame(block).is_some()
                    || (self.flash.is_none() && found.iter().all(|(_, s)| matches!(s, log_index::Found::Record(_)))),
            };
            let full = extents.len() == max;
            match extents.last_mut() {
                Some(last) if (last.zero, last.dirty, last.cached) == (extent.zero, extent.dirty, extent.cached) => {
                    last.length += extent.length;
                }
                _ if full => break,
                _ => extents.push(extent),
            }
            at = next;
        }
        extents
    }

    fn validate_positions(&self) {
        match self.phase {
            Phase::Recovering | Phase::Refused(_) => {}
            Phase::Following | Phase::Agreeing | Phase::Stopped => self.positions.validate(false),
            Phase::Serving | Phase::Stopping => self.positions.validate(true),
        }
    }

    /// Checks every invariant of the state; for tests and simulation.
    pub fn validate(&self) {
        self.validate_positions();
        assert!(
            self.index.superseded_by() <= self.positions.accepted(),
            "what has ended another is in the log, or on its way"
        );
        self.checkpoints.validate();
        self.index.validate();
        self.pool.validate();
        for segment in self.flash.iter().flat_map(|flash| &flash.segments) {
            let stays = matches!(segment.life, flash::Life::Open | flash::Life::Sealed);
            assert!(stays || segment.read_by == 0, "a read needs what lies in a segment that is to be used again");
        }
        for (id, frame) in self.flash.iter().flat_map(FlashLog::staged) {
            assert!(self.pool.is_kept(frame), "{frame:?} is free, and said to hold the payload of record {id}");
        }
        if let Some(oldest) = self.index.oldest() {
            let kept = self.is_kept_by_pin(oldest, self.positions.destaged());
            assert!(
                kept || self.index.get(oldest).descriptor.lsn > self.positions.destaged(),
                "what is destaged has ended"
            );
        }
        assert!(self.destage.in_flight <= self.config.backing_depth_max + 1);
        let as_requested = self.control.effective == self.control.requested;
        assert!(
            as_requested || self.control.reason != Reason::AsRequested,
            "another policy than asked for has a reason"
        );
        self.recorder.validate();
    }
}

/// A fresh volume of 1 GiB on a tier like this, with so many frames, before a backing of no speed.
#[cfg(test)]
fn fresh_volume(layout: TierLayout, frames: u32) -> Volume {
    let size_bytes = 1 << 30;
    let superblock = Superblock {
        version: Version::Two,
        tier: 1,
        volume: [1; 16],
        name: [0; 64],
        size_bytes,
        created_unix_s: 1,
        layout,
    };
    let config = VolumeConfig {
        superblock,
        fresh: true,
        size_bytes,
        policy: Policy::Back,
        frames,
        backing_align: 512,
        backing_depth_max: 1,
        backing_write_bytes_max: 4096,
        destage_round_bytes_max: 4096,
        journal_blocks: 0,
        destage: DestageMode::Auto,
        destage_delay: Duration(0),
        drain_max: Duration(0),
        cluster: None,
    };
    Volume::new(config, Instant(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_were_never_used_cost_no_memory() {
        let layout = TierLayout::memory(1 << 20).expect("a possible size");
        assert_eq!(fresh_volume(layout, layout.payload_blocks).pool.chunks_used(), 0);
    }
}
