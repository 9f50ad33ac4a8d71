//! Does the effects of one volume on its arena, tier, backing and journal, and tells their ends as events.
//!
//! Invariants:
//! - Each effect with an `OpId` ends in exactly one event (never, for a backing that hangs); errors are told as they are.
//! - Payload with a check leaves for the backing or the journal only after the frame was verified, and comes from the
//!   tier only so.
//! - Nothing is written to the backing or the journal before the backing's lock is held.
//! - The journal lies on the backing's medium: its operations pass the same wrappers and count in the same statistics.
//!
//! Left to the shard: `Reply`, `Answer` and `FramesFree`, the reactor, and feeding the events to core in between.

use crate::arena::Arena;
use crate::backing::faulty::{DeviceOperation, Fate};
use crate::backing::nbd::NbdClient;
use crate::backing::{Backing, Device};
use crate::buffers::Buffers;
use crate::clock::now as clock_now;
use crate::journal::Journal;
use crate::memory::AlignedBuffer;
use crate::operation::{Operation, OperationKind};
use crate::reactor::Reactor;
use crate::stats::{DeviceStats, OperationStats};
use crate::tier::Tier;
use forebay_core::api::{Check, Checks, Effect, Event, Outcome, Part, Source};
use forebay_core::format::{Superblock, TIER_BLOCK_BYTES, payload_checksum};
use forebay_core::types::*;
use slab::Slab;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

/// The volume that a reactor token belongs to.
pub fn volume_of(token: u64) -> u32 {
    (token >> 32) as u32
}

/// Watch tokens of backings have this bit; the volume is named as in those of operations.
const BACKING_SOCKET: u64 = 1 << 63;

/// The volume whose backing's socket a readiness token belongs to, if it is one.
pub fn backing_socket_volume(token: u64) -> Option<u32> {
    (token & BACKING_SOCKET != 0).then(|| volume_of(token & !BACKING_SOCKET))
}

/// What `execute` leaves to the caller.
#[derive(Debug)]
pub enum Executed {
    /// Nothing: it took effect, or its event comes with a completion or timer.
    Nothing,
    /// It is done; hand this to core before the next effect is polled, or together with others: the order is free.
    Done(Event),
    /// The shard's own: a reply, an answer, or that frames are free.
    Yours(Effect),
}

/// Which counters an operation goes to, and what is left to do at its end.
#[derive(Debug)]
enum Kind {
    TierWrite { of_frames: bool },
    TierSync,
    TierRead { frames: Checks },
    TierScan,
    BackingRead { first: Option<FrameId> },
    BackingWrite,
    BackingZero,
    BackingSync,
    JournalWrite,
    JournalSync,
}

/// In the place of an operation's key: a look at the server of the backing, which is no operation of core's.
const LOOK: usize = usize::MAX;

const BACKING_OF_OWNER: &str = "only who owns the volume has operations on its backing";

#[derive(Debug)]
struct Pending {
    op: OpId,
    kind: Kind,
    asked: Instant,
    due: Instant,
    bytes: u64,
    pieces: u64,
    /// Lie of a `faulty:` backing: the bits of a read are changed.
    corrupt: bool,
    /// Lie of a `faulty:` backing: core has been told, the real operation still runs.
    told: bool,
    /// How it ended, while a model's delay is still to pass.
    outcome: Option<Outcome>,
}

/// The devices of one volume, and what is under way to them.
#[derive(Debug)]
pub struct VolumeIo {
    index: u32,
    volume: [u8; 16],
    arena: Arena,
    tier: Tier,
    /// None: a member of a cluster that owns no term of the volume.
    backing: Option<Backing>,
    journal: Option<Journal>,
    /// Nothing is asked of backing and journal: what core asks of them fails at once.
    left: bool,
    /// Nothing counts that the backing was not synced for: core is told so by the failure of the next operation that changes backing or journal.
    unsynced_lost: bool,
    pending: Slab<Pending>,
    /// Ended operations whose event waits for a model's time.
    delayed: BinaryHeap<Reverse<(Instant, usize)>>,
    tier_stats: DeviceStats,
    /// The block of the volume whose payload last failed its check.
    damaged: Cell<Option<BlockIndex>>,
    /// The server of the backing is being looked at.
    looks: bool,
    /// How that has ended.
    looked: Option<io::Result<()>>,
}

impl VolumeIo {
    /// `index` names the volume in reactor tokens. The superblock gives identity and layout. The arena of a memory
    /// tier is its payload area (see [`VolumeIo::arena_of`]); that of a flash tier is the volume's staging and cache.
    pub fn new(index: u32, superblock: &Superblock, arena: Arena, tier: Tier, backing: Backing) -> VolumeIo {
        let mut io = VolumeIo::without_backing(index, superblock, arena, tier);
        io.set_backing(backing);
        io
    }

    /// Of a node that keeps the log of the volume and does not own it: it opens the backing with a term of its own.
    pub fn without_backing(index: u32, superblock: &Superblock, arena: Arena, mut tier: Tier) -> VolumeIo {
        assert!(index < 1 << 31, "the upper half of a token has room for 31 bits and a mark");
        if let Tier::Memory(tier) = &mut tier {
            tier.set_table(superblock.layout.table_first, superblock.layout.table_blocks);
        }
        VolumeIo {
            index,
            volume: superblock.volume,
            arena,
            tier,
            backing: None,
            journal: None,
            left: false,
            unsynced_lost: false,
            pending: Slab::new(),
            delayed: BinaryHeap::new(),
            tier_stats: DeviceStats::default(),
            damaged: Cell::new(None),
            looks: false,
            looked: None,
        }
    }

    /// The block of the volume whose payload last failed its check, if any did: the operator wants to know which.
    pub fn damaged(&self) -> Option<BlockIndex> {
        self.damaged.get()
    }

    /// The arena that fits a tier: its own payload area in memory, or so many frames of this process for flash.
    pub fn arena_of(tier: &Tier, superblock: &Superblock, flash_frames: u32) -> io::Result<Arena> {
        match tier {
            Tier::Memory(memory) => {
                let layout = &superblock.layout;
                if u64::from(layout.payload_first) + u64::from(layout.payload_blocks) > u64::from(memory.blocks()) {
                    let reason = format!(
                        "the tier {} has {} blocks and its superblock says {}: it was cut off; its content is lost \
                         in part, `salvage` takes what is left",
                        memory.path().display(),
                        memory.blocks(),
                        layout.tier_blocks
                    );
                    return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
                }
                let first = layout.payload_first as usize * TIER_BLOCK_BYTES;
                Ok(Arena::within(memory.mapping().clone(), first, layout.payload_blocks))
            }
            Tier::Flash(_) => Arena::anonymous(flash_frames, true),
        }
    }

    /// The frames, for front ends.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The frames, to be written by front ends.
    pub fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// Neither the kernel nor a model has to do with a frame. A log that is opened writes its checkpoint at once, from memory of
    /// its own.
    pub fn frames_rest(&self) -> bool {
        let of_frames = |pending: &Pending| match pending.kind {
            Kind::TierWrite { of_frames } => of_frames,
            Kind::TierRead { .. } | Kind::BackingRead { .. } | Kind::BackingWrite | Kind::JournalWrite => true,
            Kind::TierSync | Kind::TierScan | Kind::BackingZero | Kind::BackingSync | Kind::JournalSync => false,
        };
        !self.pending.iter().any(|(_, pending)| of_frames(pending))
    }

    /// Goes on with the frames of another, of the same number: what is in the present ones is of no use to anybody.
    pub fn go_on_with(&mut self, arena: Arena) {
        assert_eq!(arena.frames(), self.arena.frames(), "frames take the place of as many");
        assert!(self.frames_rest(), "nothing is under way to the frames that go");
        self.arena = arena;
    }

    /// The tier that holds the log.
    pub fn tier(&self) -> &Tier {
        &self.tier
    }

    /// Whether there is a backing: not while another node owns the volume.
    pub fn has_backing(&self) -> bool {
        self.backing.is_some()
    }

    /// The backing; it must be there ([`VolumeIo::has_backing`]).
    pub fn backing(&self) -> &Backing {
        self.backing.as_ref().expect(BACKING_OF_OWNER)
    }

    /// The backing, to be locked.
    pub fn backing_mut(&mut self) -> &mut Backing {
        self.backing.as_mut().expect(BACKING_OF_OWNER)
    }

    /// The backing of the term that this node owns from now on, opened for that term and locked.
    pub fn set_backing(&mut self, mut backing: Backing) {
        assert!(self.backing.is_none(), "an opening of a volume has one backing");
        if let Some(client) = backing.nbd_mut() {
            client.set_token(BACKING_SOCKET | u64::from(self.index) << 32);
        }
        self.backing = Some(backing);
    }

    /// What it has open beside its tier, to be closed by itself. A connection to an NBD server ends here and now: this thread's reactor
    /// tells its readiness, and its close waits for nobody.
    pub fn take_backing(&mut self) -> (Option<Backing>, Option<Journal>) {
        self.looks = false;
        (self.backing.take().filter(|backing| backing.file().is_some()), self.journal.take())
    }

    /// Asks nothing more of backing and journal: whatever core asks of them fails at once, until [`VolumeIo::return_to_backing`].
    pub fn leave_backing(&mut self) {
        self.left = true;
    }

    /// Nothing is under way to backing and journal.
    pub fn backing_rests(&self) -> bool {
        let of_tier = |kind: &Kind| {
            matches!(kind, Kind::TierWrite { .. } | Kind::TierSync | Kind::TierRead { .. } | Kind::TierScan)
        };
        self.pending.iter().all(|(_, pending)| of_tier(&pending.kind))
    }

    /// No change that was asked of the backing can still come, when it is closed now; false where the backing alone does not show that.
    pub fn every_change_is_done(&self) -> bool {
        let client = self.backing.as_ref().and_then(Backing::nbd);
        self.journal.is_none() && client.is_some_and(NbdClient::every_change_is_done)
    }

    /// Goes on with the backing that was left, or with another opening of the same file, under its lock, and with one of the
    /// journal, if there is one. Of what was written by the former opening nothing counts that no sync has covered, as after a restart:
    /// core, which writes everything again since the last sync when one operation fails, is told so by such a failure.
    pub fn return_to_backing(&mut self, anew: Option<(Backing, Option<Journal>)>) {
        self.left = false;
        let Some((backing, journal)) = anew else { return };
        assert!(self.backing_rests(), "the former opening has come to rest before its lock is given up");
        // The last owner of the file ends it, on a thread that may wait.
        drop(self.backing_mut().go_on_with(backing));
        if self.journal.is_some() && journal.is_some() {
            self.journal = journal;
        }
        self.unsynced_lost = true;
    }

    /// The journal beside the backing, erased: to be given before core may write to it.
    pub fn set_journal(&mut self, journal: Journal) {
        self.journal = Some(journal);
    }

    /// The journal beside the backing.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Counters of the tier. A memory tier is done at once and counts no latency.
    pub fn tier_stats(&self) -> &DeviceStats {
        &self.tier_stats
    }

    /// Effects whose event has not been told.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Carries an effect out, or begins to; what is not for devices is given back.
    pub fn execute(&mut self, reactor: &mut Reactor, effect: Effect) -> Executed {
        match effect {
            Effect::Reply { .. } | Effect::FramesFree | Effect::Answer { .. } | Effect::Send(_) | Effect::Report(_) => {
                Executed::Yours(effect)
            }

            Effect::Describe { index, bytes } => {
                match &mut self.tier {
                    Tier::Memory(tier) => tier.describe(index, &bytes),
                    Tier::Flash(_) => unreachable!("core describes on memory tiers only"),
                }
                Executed::Nothing
            }
            Effect::TierWrite { op, at, head, frames } => self.tier_write(reactor, op, at, &head, &frames),
            Effect::TierSync { op } => match &self.tier {
                Tier::Memory(_) => {
                    self.tier_stats.syncs.record(0, 1, 0, false);
                    done(op, Outcome::Ok)
                }
                Tier::Flash(tier) => {
                    let file = tier.file().clone();
                    let token = self.pend(op, Kind::TierSync, 0, 1);
                    reactor.submit(token, Operation::new(file, OperationKind::Sync, Buffers::none()));
                    Executed::Nothing
                }
            },
            Effect::TierRead { op, at, frames } => self.tier_read(reactor, op, at, frames),
            Effect::TierScan { op, at, blocks } => self.tier_scan(reactor, op, at, blocks),

            Effect::BackingRead { op, at, frames } => self.backing_read(reactor, op, at, &frames),
            Effect::BackingWrite { op, offset, parts } => self.backing_write(reactor, op, offset, &parts),
            Effect::BackingZero { op, offset, length, hole } => {
                let operation = DeviceOperation::Zero { bytes: length };
                let what = OperationKind::Zero { offset, length, hole };
                self.backing_operation(reactor, op, Kind::BackingZero, operation, 1, what, Buffers::none())
            }
            Effect::BackingSync { op } => {
                let (operation, what) = (DeviceOperation::Sync, OperationKind::Sync);
                self.backing_operation(reactor, op, Kind::BackingSync, operation, 1, what, Buffers::none())
            }

            Effect::JournalWrite { op, at, head, frames, checks } => {
                self.journal_write(reactor, op, at, &head, &frames, &checks)
            }
            Effect::JournalSync { op } => {
                let (operation, what) = (DeviceOperation::Sync, OperationKind::Sync);
                self.backing_operation(reactor, op, Kind::JournalSync, operation, 1, what, Buffers::none())
            }

            Effect::Merge { op, checks, target, base, from, to, block, term } => {
                if checks.iter().any(|(frame, check)| self.verified(*frame, check) != Outcome::Ok) {
                    return done(op, Outcome::Failed(IoError::Checksum));
                }
                let (from, to) = (usize::from(from), usize::from(to));
                self.fill(base, target, 0, from);
                self.fill(base, target, to, BLOCK_BYTES as usize - to);
                let bytes = self.arena.bytes(target);
                done(op, Outcome::Merged(payload_checksum(&self.volume, block, SectorMask::FULL, term, bytes)))
            }
            Effect::Copy { source, target, start, length } => {
                self.fill(source, target, usize::from(start), usize::from(length));
                Executed::Nothing
            }
        }
    }

    fn backing_read(&mut self, reactor: &mut Reactor, op: OpId, at: BlockIndex, frames: &[FrameId]) -> Executed {
        let bytes = frames.len() as u64 * BLOCK_BYTES;
        let mut buffers = Buffers::none();
        for &frame in frames {
            buffers.push_frame(&self.arena, frame, 0, BLOCK_BYTES as usize);
        }
        let kind = Kind::BackingRead { first: frames.first().copied() };
        let (operation, pieces) = (DeviceOperation::Read { bytes }, frames.len() as u64);
        let what = OperationKind::Read { offset: at.byte() };
        self.backing_operation(reactor, op, kind, operation, pieces, what, buffers)
    }

    fn backing_write(&mut self, reactor: &mut Reactor, op: OpId, offset: u64, parts: &[Part]) -> Executed {
        if !self.parts_verified(parts) {
            self.backing_mut().stats.writes.record(0, parts.len() as u64, 0, true);
            return done(op, Outcome::Failed(IoError::Checksum));
        }
        let mut buffers = Buffers::none();
        for part in parts {
            buffers.push_frame(&self.arena, part.frame, usize::from(part.from), usize::from(part.length));
        }
        if !buffers.is_aligned(self.backing().align() as usize) {
            buffers = buffers.gathered();
        }
        let (bytes, pieces) = (buffers.len(), parts.len() as u64);
        let operation = DeviceOperation::Write { bytes };
        let what = OperationKind::Write { offset };
        self.backing_operation(reactor, op, Kind::BackingWrite, operation, pieces, what, buffers)
    }

    fn fill(&mut self, source: Source, target: FrameId, start: usize, length: usize) {
        match source {
            Source::Frame(source, _) => self.arena.copy(source, target, start, length),
            Source::Zero => self.arena.bytes_mut(target)[start..start + length].fill(0),
        }
    }

    /// Keeps what is needed at the end of an operation; the reactor's token for it.
    fn pend(&mut self, op: OpId, kind: Kind, bytes: u64, pieces: u64) -> u64 {
        let asked = clock_now();
        let due = asked;
        let pending = Pending { op, kind, asked, due, bytes, pieces, corrupt: false, told: false, outcome: None };
        let key = u32::try_from(self.pending.insert(pending)).expect("fewer than 2^32 operations are in flight");
        u64::from(self.index) << 32 | u64::from(key)
    }

    fn tier_write(
        &mut self,
        reactor: &mut Reactor,
        op: OpId,
        at: TierBlock,
        head: &[u8],
        frames: &[FrameId],
    ) -> Executed {
        assert!(head.len().is_multiple_of(TIER_BLOCK_BYTES), "metadata is whole blocks");
        let bytes = head.len() as u64 + frames.len() as u64 * BLOCK_BYTES;
        if bytes == 0 {
            return done(op, Outcome::Ok);
        }
        let pieces = frames.len() as u64 + u64::from(!head.is_empty());
        match &mut self.tier {
            Tier::Memory(tier) => {
                let arena = &self.arena;
                tier.write(at, head, frames.iter().map(|&frame| arena.bytes(frame)));
                self.tier_stats.writes.record(bytes, pieces, 0, false);
                done(op, Outcome::Ok)
            }
            Tier::Flash(tier) => {
                let offset = tier.offset(at, bytes / BLOCK_BYTES);
                let file = tier.file().clone();
                let mut buffers = Buffers::none();
                if !head.is_empty() {
                    let mut buffer = tier.take_buffer(head.len());
                    buffer.copy_from_slice(head);
                    buffers = Buffers::owned(buffer);
                }
                for &frame in frames {
                    buffers.push_frame(&self.arena, frame, 0, TIER_BLOCK_BYTES);
                }
                let token = self.pend(op, Kind::TierWrite { of_frames: !frames.is_empty() }, bytes, pieces);
                reactor.submit(token, Operation::new(file, OperationKind::Write { offset }, buffers));
                Executed::Nothing
            }
        }
    }

    fn tier_read(&mut self, reactor: &mut Reactor, op: OpId, at: TierBlock, frames: Checks) -> Executed {
        let (blocks, bytes) = (frames.len() as u64, frames.len() as u64 * BLOCK_BYTES);
        match &self.tier {
            Tier::Memory(tier) => {
                for (place, &(frame, _)) in (at.0..).zip(&frames) {
                    tier.read(TierBlock(place), self.arena.frame(frame));
                }
                let outcome = self.all_verified(&frames);
                self.tier_stats.reads.record(bytes, blocks, 0, outcome != Outcome::Ok);
                done(op, outcome)
            }
            Tier::Flash(tier) => {
                let (file, offset) = (tier.file().clone(), tier.offset(at, blocks));
                let mut buffers = Buffers::none();
                for &(frame, _) in &frames {
                    buffers.push_frame(&self.arena, frame, 0, TIER_BLOCK_BYTES);
                }
                let token = self.pend(op, Kind::TierRead { frames }, bytes, blocks);
                reactor.submit(token, Operation::new(file, OperationKind::Read { offset }, buffers));
                Executed::Nothing
            }
        }
    }

    fn tier_scan(&mut self, reactor: &mut Reactor, op: OpId, at: TierBlock, blocks: u32) -> Executed {
        let bytes = u64::from(blocks) * BLOCK_BYTES;
        match &mut self.tier {
            Tier::Memory(tier) => {
                let found = tier.scan(at, blocks);
                self.tier_stats.reads.record(bytes, 1, 0, false);
                done(op, Outcome::Bytes(found))
            }
            Tier::Flash(tier) => {
                let (file, offset) = (tier.file().clone(), tier.offset(at, u64::from(blocks)));
                let buffers = Buffers::owned(tier.take_buffer(bytes as usize));
                let token = self.pend(op, Kind::TierScan, bytes, 1);
                reactor.submit(token, Operation::new(file, OperationKind::Read { offset }, buffers));
                Executed::Nothing
            }
        }
    }

    fn the_journal(&self) -> &Journal {
        self.journal.as_ref().expect("core journals only where it was given blocks of a journal")
    }

    fn journal_write(
        &mut self,
        reactor: &mut Reactor,
        op: OpId,
        at: u32,
        head: &[u8],
        frames: &[FrameId],
        checks: &[Check],
    ) -> Executed {
        assert!(head.len().is_multiple_of(TIER_BLOCK_BYTES), "metadata is whole blocks");
        assert_eq!(frames.len(), checks.len(), "each frame has its check");
        let pieces = frames.len() as u64 + u64::from(!head.is_empty());
        if !frames.iter().zip(checks).all(|(&frame, check)| self.verified(frame, check) == Outcome::Ok) {
            self.backing_mut().stats.writes.record(0, pieces, 0, true);
            return done(op, Outcome::Failed(IoError::Checksum));
        }
        let mut buffers = Buffers::none();
        if !head.is_empty() {
            let mut buffer = AlignedBuffer::new(head.len());
            buffer.copy_from_slice(head);
            buffers = Buffers::owned(buffer);
        }
        for &frame in frames {
            buffers.push_frame(&self.arena, frame, 0, TIER_BLOCK_BYTES);
        }
        let bytes = buffers.len();
        let what = OperationKind::Write { offset: self.the_journal().offset(at, bytes / BLOCK_BYTES) };
        let operation = DeviceOperation::Write { bytes };
        self.backing_operation(reactor, op, Kind::JournalWrite, operation, pieces, what, buffers)
    }

    /// An operation on the backing's medium, on the backing itself or the journal beside it.
    #[allow(clippy::too_many_arguments)] // few callers, above; a struct would only be taken apart again
    fn backing_operation(
        &mut self,
        reactor: &mut Reactor,
        op: OpId,
        kind: Kind,
        operation: DeviceOperation,
        pieces: u64,
        what: OperationKind,
        buffers: Buffers,
    ) -> Executed {
        let changes = !matches!(kind, Kind::BackingRead { .. });
        if self.left || (changes && std::mem::take(&mut self.unsynced_lost)) {
            self.stats_of(&kind).record(0, pieces, 0, true);
            return done(op, Outcome::Failed(IoError::Failed));
        }
        match operation {
            DeviceOperation::Write { bytes } | DeviceOperation::Zero { bytes } => {
                assert!(self.backing().locked(), "the backing is written to only under its lock");
                assert!(bytes > 0, "an empty write or zero");
            }
            DeviceOperation::Read { .. } | DeviceOperation::Sync => {}
        }
        let bytes = match operation {
            DeviceOperation::Read { bytes } | DeviceOperation::Write { bytes } | DeviceOperation::Zero { bytes } => {
                bytes
            }
            DeviceOperation::Sync => 0,
        };
        let token = self.pend(op, kind, bytes, pieces);
        let key = token as u32 as usize;
        let asked = self.pending[key].asked;
        let admission = self.backing_mut().admit(asked, operation);
        self.pending[key].due = admission.due;
        match admission.fate {
            Fate::Honest => self.submit(reactor, token, what, buffers),
            Fate::Corrupted => {
                self.pending[key].corrupt = true;
                self.submit(reactor, token, what, buffers);
            }
            Fate::Fails(errno) => return self.ended(key, Err(io::Error::from_raw_os_error(errno)), None),
            Fate::Hangs => {}
            Fate::Dropped => return self.ended(key, Ok(()), None),
            Fate::AnsweredEarly => {
                self.pending[key].told = true;
                self.submit(reactor, token, what, buffers);
                return done(op, Outcome::Ok);
            }
        }
        Executed::Nothing
    }

    fn submit(&mut self, reactor: &mut Reactor, token: u64, what: OperationKind, buffers: Buffers) {
        let on_journal = matches!(self.pending[token as u32 as usize].kind, Kind::JournalWrite | Kind::JournalSync);
        if on_journal {
            return reactor.submit(token, Operation::new(self.the_journal().file().clone(), what, buffers));
        }
        match self.backing_mut().device_mut() {
            Device::File(file) => reactor.submit(token, Operation::new(file.clone(), what, buffers)),
            Device::Nbd { client, .. } => client.submit(reactor, token as u32 as usize, what, buffers),
        }
    }

    /// Takes a readiness of the reactor whose token is of this volume's backing (see [`backing_socket_volume`]).
    pub fn ready(&mut self, reactor: &mut Reactor, token: u64, readable: bool, hangup: bool, out: &mut Vec<Event>) {
        assert_eq!(backing_socket_volume(token), Some(self.index), "a socket of another volume");
        if let Some(client) = self.nbd_mut() {
            client.ready(reactor, token, readable, hangup);
        }
        self.take_finished(out);
    }

    fn nbd_mut(&mut self) -> Option<&mut crate::backing::nbd::NbdClient> {
        self.backing.as_mut()?.nbd_mut()
    }

    /// Ends of operations that did not come through the reactor.
    fn take_finished(&mut self, out: &mut Vec<Event>) {
        while let Some((key, result)) = self.nbd_mut().and_then(|client| client.take_finished()) {
            if key == LOOK {
                (self.looks, self.looked) = (false, Some(result));
                continue;
            }
            if let Executed::Done(event) = self.ended(key, result, None) {
                out.push(event);
            }
        }
    }

    /// Why the backing's server cannot be reached, as far as is known without asking it.
    pub fn backing_trouble(&self) -> Option<&str> {
        self.backing.as_ref()?.nbd()?.trouble()
    }

    /// Asks the server of the backing for its first bytes, by the connection that there is; of a file there is nothing to ask here. One
    /// look at a time. Core knows nothing of it, and it changes nothing.
    pub fn look_at_server(&mut self, reactor: &mut Reactor) {
        let looks = self.looks;
        match self.nbd_mut() {
            None => self.looked = Some(Ok(())),
            Some(_) if looks => {}
            Some(client) => {
                let buffers = Buffers::owned(AlignedBuffer::new(client.export().align as usize));
                client.submit(reactor, LOOK, OperationKind::Read { offset: 0 }, buffers);
                self.looks = true;
            }
        }
    }

    /// How a look at the server has ended.
    pub fn take_looked(&mut self) -> Option<io::Result<()>> {
        self.looked.take()
    }

    /// Something that the operator should be told about the backing's connection.
    pub fn take_notice(&mut self) -> Option<String> {
        self.nbd_mut()?.take_notice()
    }

    /// Takes a completion of the reactor whose token is of this volume.
    pub fn complete(&mut self, token: u64, result: io::Result<()>, buffer: Option<AlignedBuffer>) -> Option<Event> {
        assert_eq!(volume_of(token), self.index, "a completion of another volume");
        match self.ended(token as u32 as usize, result, buffer) {
            Executed::Done(event) => Some(event),
            Executed::Nothing | Executed::Yours(_) => None,
        }
    }

    /// The device is done with an operation; a model's time may still have to pass.
    fn ended(&mut self, key: usize, result: io::Result<()>, buffer: Option<AlignedBuffer>) -> Executed {
        let outcome = match result {
            Err(error) => Outcome::Failed(classify(&error)),
            Ok(()) => self.outcome(key, buffer.as_deref()),
        };
        if let (Tier::Flash(tier), Some(buffer)) = (&mut self.tier, buffer) {
            tier.give_buffer(buffer);
        }
        let pending = &mut self.pending[key];
        let now = clock_now();
        if pending.due > now && !pending.told {
            pending.outcome = Some(outcome);
            self.delayed.push(Reverse((pending.due, key)));
            return Executed::Nothing;
        }
        self.finish(key, outcome, now)
    }

    fn outcome(&mut self, key: usize, buffer: Option<&[u8]>) -> Outcome {
        let pending = &self.pending[key];
        match &pending.kind {
            Kind::TierWrite { .. }
            | Kind::TierSync
            | Kind::BackingWrite
            | Kind::BackingZero
            | Kind::BackingSync
            | Kind::JournalWrite
            | Kind::JournalSync => Outcome::Ok,
            Kind::TierRead { frames } => self.all_verified(frames),
            Kind::TierScan => Outcome::Bytes(buffer.expect("a scan owns its buffer").to_vec()),
            Kind::BackingRead { first } => {
                if let (true, Some(first)) = (pending.corrupt, *first) {
                    self.arena.bytes_mut(first)[0] ^= 1;
                }
                Outcome::Ok
            }
        }
    }

    fn finish(&mut self, key: usize, outcome: Outcome, now: Instant) -> Executed {
        let pending = self.pending.remove(key);
        let failed = matches!(outcome, Outcome::Failed(_));
        let latency = (now - pending.asked).0;
        self.stats_of(&pending.kind).record(pending.bytes, pending.pieces, latency, failed);
        if pending.told { Executed::Nothing } else { done(pending.op, outcome) }
    }

    fn stats_of(&mut self, kind: &Kind) -> &mut OperationStats {
        match kind {
            Kind::TierWrite { .. } => &mut self.tier_stats.writes,
            Kind::TierSync => &mut self.tier_stats.syncs,
            Kind::TierRead { .. } | Kind::TierScan => &mut self.tier_stats.reads,
            Kind::BackingRead { .. } => &mut self.backing_mut().stats.reads,
            Kind::BackingWrite | Kind::JournalWrite => &mut self.backing_mut().stats.writes,
            Kind::BackingZero => &mut self.backing_mut().stats.zeros,
            Kind::BackingSync | Kind::JournalSync => &mut self.backing_mut().stats.syncs,
        }
    }

    /// When [`VolumeIo::poll_timers`] must be called at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        if self.backing.as_ref().and_then(Backing::nbd).is_some_and(|client| client.has_finished()) {
            return Some(Instant(0));
        }
        let look = self.backing.as_ref().and_then(Backing::nbd).and_then(|client| client.look_due());
        let look = look.map(|left| clock_now() + Duration(left.as_nanos() as u64));
        self.delayed.peek().map(|Reverse((due, _))| *due).into_iter().chain(look).min()
    }

    /// Looks whether the host of the backing's server is still there, when it is time for that. To be called after effects were carried out.
    pub fn look_at_host(&mut self, reactor: &mut Reactor) {
        if let Some(client) = self.nbd_mut() {
            client.look(reactor);
        }
    }

    /// Tells what a model has held back until now, and what a connection ended at once.
    pub fn poll_timers(&mut self, now: Instant, out: &mut Vec<Event>) {
        self.take_finished(out);
        while let Some(&Reverse((due, key))) = self.delayed.peek() {
            if due > now {
                break;
            }
            self.delayed.pop();
            let outcome = self.pending[key].outcome.take().expect("held back with its outcome");
            if let Executed::Done(event) = self.finish(key, outcome, now) {
                out.push(event);
            }
        }
    }

    fn verified(&self, frame: FrameId, check: &Check) -> Outcome {
        let bytes = self.arena.bytes(frame);
        if payload_checksum(&self.volume, check.block, check.mask, check.term, bytes) == check.checksum {
            Outcome::Ok
        } else {
            self.damaged.set(Some(check.block));
            Outcome::Failed(IoError::Checksum)
        }
    }

    fn all_verified(&self, frames: &[(FrameId, Check)]) -> Outcome {
        let mismatch = frames.iter().map(|(frame, check)| self.verified(*frame, check)).find(|o| *o != Outcome::Ok);
        mismatch.unwrap_or(Outcome::Ok)
    }

    /// Every frame that has a check is what it must be. A frame with several runs is read once.
    fn parts_verified(&self, parts: &[Part]) -> bool {
        let mut last = None;
        parts.iter().all(|part| {
            let Some(check) = &part.check else { return true };
            if last == Some((part.frame, *check)) {
                return true;
            }
            last = Some((part.frame, *check));
            self.verified(part.frame, check) == Outcome::Ok
        })
    }
}

fn done(op: OpId, outcome: Outcome) -> Executed {
    Executed::Done(Event::Done { op, outcome })
}

/// The few kinds that core distinguishes.
pub fn classify(error: &io::Error) -> IoError {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => IoError::NoSpace,
        Some(libc::ENODEV | libc::ESTALE | libc::ENXIO) => IoError::Gone,
        Some(libc::EOPNOTSUPP) => IoError::Unsupported,
        Some(_) | None => IoError::Failed,
    }
}
