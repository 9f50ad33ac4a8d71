//! A volume on a test stand whose device does what it is asked at once, and keeps its bytes for the next start.

use forebay_core::api::*;
use forebay_core::cluster::{Host, Incarnation, NodeId};
use forebay_core::format::*;
use forebay_core::status::{ControlError, DestageMode, Flush, Phase, Policy};
use forebay_core::types::*;
use forebay_core::volume::ClusterConfig;
use forebay_core::{Volume, VolumeConfig};

pub const BLOCK: usize = BLOCK_BYTES as usize;
pub const TIER_BLOCKS: usize = 1024;
pub const VOLUME_BLOCKS: usize = 64;
pub const ID: [u8; 16] = [7; 16];
/// Number of the first life of a segment: opened by the first start, and the first of all.
pub const FIRST_LIFE: u64 = 1 << 32 | 1;

/// A volume whose backing never gets ready: everything stays in the log.
pub struct Life {
    pub volume: Volume,
    pub kind: TierKind,
    pub tier: Vec<u8>,
    pub frames: Vec<u8>,
    pub now: u64,
    pub requests: u64,
    /// What the tier answers to writes and syncs.
    pub tier_answer: Outcome,
    pub answers: Vec<Result<(), ControlError>>,
    /// Reads from the backing are never answered.
    pub backing_hangs: bool,
}

pub fn layout(kind: TierKind) -> TierLayout {
    match kind {
        TierKind::Memory => TierLayout::memory(TIER_BLOCKS as u32).unwrap(),
        TierKind::Flash => TierLayout::flash(TIER_BLOCKS as u32).unwrap(),
    }
}

pub fn at(block: u32) -> usize {
    block as usize * BLOCK
}

impl Life {
    pub fn first(kind: TierKind) -> Life {
        Life::first_with(kind, |_| ())
    }

    pub fn after(kind: TierKind, tier: Vec<u8>) -> Life {
        Life::after_with(kind, tier, |_| ())
    }

    pub fn first_with(kind: TierKind, change: impl FnOnce(&mut VolumeConfig)) -> Life {
        Life::begin(kind, vec![0; TIER_BLOCKS * BLOCK], true, change)
    }

    pub fn after_with(kind: TierKind, tier: Vec<u8>, change: impl FnOnce(&mut VolumeConfig)) -> Life {
        Life::begin(kind, tier, false, change)
    }

    fn begin(kind: TierKind, tier: Vec<u8>, fresh: bool, change: impl FnOnce(&mut VolumeConfig)) -> Life {
        let mut life = Life::opened(kind, tier, fresh, change);
        life.run();
        life
    }

    /// Before anything is read from the tier.
    pub fn opened(kind: TierKind, tier: Vec<u8>, fresh: bool, change: impl FnOnce(&mut VolumeConfig)) -> Life {
        let layout = layout(kind);
        let size_bytes = (VOLUME_BLOCKS * BLOCK) as u64;
        let superblock = if fresh {
            Superblock {
                version: Version::Two,
                tier: 1,
                volume: ID,
                name: [0; 64],
                size_bytes,
                created_unix_s: 0,
                layout,
            }
        } else {
            Superblock::decode(&tier).unwrap()
        };
        let frames = if kind == TierKind::Memory { layout.payload_blocks } else { 256 };
        let mut config = VolumeConfig {
            superblock,
            fresh,
            size_bytes,
            policy: Policy::Back,
            frames,
            backing_align: 512,
            backing_depth_max: 16,
            backing_write_bytes_max: 1 << 20,
            destage_round_bytes_max: 1 << 20,
            journal_blocks: 0,
            destage: DestageMode::Auto,
            destage_delay: Duration(0),
            drain_max: Duration(0),
            cluster: None,
        };
        change(&mut config);
        let volume = Volume::new(config, Instant(1));
        let frames = vec![0; frames as usize * BLOCK];
        let mut life = Life {
            volume,
            kind,
            tier,
            frames,
            now: 1,
            requests: 0,
            tier_answer: Outcome::Ok,
            answers: Vec::new(),
            backing_hangs: false,
        };
        if kind == TierKind::Memory {
            let first = at(layout.payload_first);
            let payload = life.tier.get(first..).unwrap_or_default();
            life.frames[..payload.len()].copy_from_slice(payload);
        }
        life
    }

    pub fn phase(&self) -> Phase {
        self.volume.status(Instant(self.now)).phase
    }

    pub fn frame(&mut self, frame: FrameId) -> &mut [u8] {
        &mut self.frames[at(frame.0)..][..BLOCK]
    }

    /// Until nothing is left to do; the replies.
    pub fn run(&mut self) -> Vec<(RequestId, Result<Pieces, RequestError>)> {
        let mut replies = Vec::new();
        loop {
            self.now += 1_000_000;
            self.volume.settle(Instant(self.now));
            let mut idle = true;
            while let Some(effect) = self.volume.poll_effect() {
                idle = false;
                if let Effect::Reply { id, result } = effect {
                    replies.push((id, result));
                } else if let Some((op, outcome)) = self.execute(effect) {
                    self.volume.handle(Instant(self.now), Event::Done { op, outcome });
                }
            }
            if idle {
                return replies;
            }
        }
    }

    pub fn execute(&mut self, effect: Effect) -> Option<(OpId, Outcome)> {
        match effect {
            Effect::Describe { index, bytes } => {
                let entry = at(layout(self.kind).table_first) + index as usize * DESCRIPTOR_BYTES;
                self.tier[entry..entry + DESCRIPTOR_BYTES].copy_from_slice(&bytes);
                None
            }
            Effect::TierWrite { op, at: place, head, frames } => {
                let mut bytes = head;
                for frame in frames {
                    bytes.extend_from_slice(self.frame(frame));
                }
                self.tier[at(place.0)..][..bytes.len()].copy_from_slice(&bytes);
                Some((op, self.tier_answer.clone()))
            }
            Effect::TierSync { op } => Some((op, self.tier_answer.clone())),
            Effect::TierRead { op, at: place, frames } => {
                let mut good = true;
                for (place, (frame, check)) in (place.0..).zip(frames) {
                    let bytes = self.tier[at(place)..][..BLOCK].to_vec();
                    good &= payload_checksum(&ID, check.block, check.mask, check.term, &bytes) == check.checksum;
                    self.frame(frame).copy_from_slice(&bytes);
                }
                Some((op, if good { Outcome::Ok } else { Outcome::Failed(IoError::Checksum) }))
            }
            Effect::TierScan { op, at: place, blocks } => {
                let end = self.tier.len().min(at(place.0 + blocks));
                Some((op, Outcome::Bytes(self.tier[end.min(at(place.0))..end].to_vec())))
            }
            Effect::BackingRead { .. } if self.backing_hangs => None,
            Effect::BackingRead { op, frames, .. } => {
                frames.iter().for_each(|&frame| self.frame(frame).fill(0));
                Some((op, Outcome::Ok))
            }
            Effect::Copy { source: Source::Zero, target, start, length } => {
                self.frame(target)[usize::from(start)..][..usize::from(length)].fill(0);
                None
            }
            Effect::FramesFree => None,
            Effect::Answer { result, .. } => {
                self.answers.push(result);
                None
            }
            other => panic!("not asked for by whole blocks before an absent backing: {other:?}"),
        }
    }

    pub fn request(&mut self, request: Request) -> Result<Pieces, RequestError> {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.volume.handle(Instant(self.now), Event::Request { id, request });
        self.run().into_iter().find(|(answered, _)| *answered == id).expect("it is answered").1
    }

    /// A whole block of one byte value, acknowledged.
    pub fn write(&mut self, block: u64, value: u8) {
        self.write_blocks(block, 1, value);
    }

    /// Neighbouring blocks in one request, and so in one batch where they fit.
    pub fn write_blocks(&mut self, first: u64, count: u32, value: u8) {
        let request = self.write_request(first, count, value);
        self.request(request).expect("acknowledged");
    }

    pub fn write_request(&mut self, first: u64, count: u32, value: u8) -> Request {
        let mut frames = Frames::new();
        assert!(self.volume.take_frames(ClientId(0), count, &mut frames));
        let term = self.volume.term();
        let mut payload = Payloads::new();
        for (block, &frame) in (first..).zip(&frames) {
            self.frame(frame).fill(value);
            let checksum = payload_checksum(&ID, BlockIndex(block), SectorMask::FULL, term, self.frame(frame));
            payload.push(Payload { frame, checksum });
        }
        Request::Write { offset: first * BLOCK_BYTES, length: count * BLOCK as u32, payload, fua: false }
    }

    /// Requests that arrive together, and so lie in one batch where they fit.
    pub fn together(&mut self, requests: Vec<Request>) {
        for request in requests {
            self.requests += 1;
            self.volume.handle(Instant(self.now), Event::Request { id: RequestId(self.requests), request });
        }
        assert!(self.run().iter().all(|(_, result)| result.is_ok()));
    }

    pub fn command(&mut self, command: Control) {
        self.volume.handle(Instant(self.now), Event::Control { id: ControlId(1), command });
        self.run();
    }

    pub fn flush(&mut self) {
        self.request(Request::Flush).expect("acknowledged");
    }

    pub fn read(&mut self, block: u64) -> Result<u8, RequestError> {
        let pieces = self.request(Request::Read { offset: block * BLOCK_BYTES, length: BLOCK as u32 })?;
        let value = match pieces[0].source {
            Source::Frame(frame, offset) => self.frame(frame)[usize::from(offset)],
            Source::Zero => 0,
        };
        self.volume.handle(Instant(self.now), Event::Sent(pieces));
        Ok(value)
    }

    /// The process dies; what it wrote stays.
    pub fn kill(mut self) -> Vec<u8> {
        if self.kind == TierKind::Memory {
            let first = at(layout(self.kind).payload_first);
            let frames = core::mem::take(&mut self.frames);
            self.tier[first..].copy_from_slice(&frames);
        }
        self.tier
    }
}

pub const KINDS: [TierKind; 2] = [TierKind::Memory, TierKind::Flash];

pub fn host(boot: u8) -> Host {
    Host { machine: [1; 16], boot: [boot; 16] }
}

/// A member of a cluster, in the boot of this number.
pub fn member(boot: u8) -> Option<ClusterConfig> {
    Some(ClusterConfig {
        own: Incarnation { node: NodeId(5), tier: 0, life: 0 },
        host: host(boot),
        min_peers: 0,
        flush: Flush::Best,
        peer_window_bytes_max: 64 << 20,
        window_bytes_max: 256 << 20,
        resend_after: Duration::from_millis(150),
        stall_max: Duration::from_millis(800),
        degrade_stall_max: Duration::from_secs(10),
    })
}

/// Both copies, the newer one last.
pub fn checkpoints(version: Version, tier: &[u8]) -> [Checkpoint; 2] {
    let copy = |place| Checkpoint::decode(version, &ID, TierBlock(place), &tier[at(place)..at(place + 1)]).unwrap();
    let mut copies = [copy(1), copy(2)];
    copies.sort_by_key(|checkpoint| checkpoint.sequence);
    copies
}

pub fn newest(tier: &[u8]) -> Checkpoint {
    let [older, newer] = checkpoints(Version::Two, tier);
    assert_eq!(older, Checkpoint { sequence: newer.sequence - 1, ..newer.clone() }, "both hold the same");
    newer
}

/// Puts a checkpoint there that a member's role could have written.
pub fn with_checkpoint(tier: &mut [u8], checkpoint: Checkpoint) {
    for sequence in [checkpoint.sequence + 1, checkpoint.sequence + 2] {
        let copy = Checkpoint { sequence, ..checkpoint.clone() };
        let place = copy.place().0;
        tier[at(place)..at(place + 1)].copy_from_slice(&copy.encode(Version::Two, &ID));
    }
}
