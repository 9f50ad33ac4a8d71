//! A tier that changed by itself, or lost what was never synced, between two starts: named schedules, each of which
//! once lost data without a word. The device here does what it is asked at once; the test changes its bytes.

use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::{Phase, Policy};
use forebay_core::types::*;
use forebay_core::{Volume, VolumeConfig};

const BLOCK: usize = BLOCK_BYTES as usize;
const TIER_BLOCKS: usize = 1024;
const VOLUME_BLOCKS: usize = 64;
const ID: [u8; 16] = [7; 16];

/// A volume whose backing never gets ready: everything stays in the log.
struct Life {
    volume: Volume,
    kind: TierKind,
    tier: Vec<u8>,
    frames: Vec<u8>,
    now: u64,
    requests: u64,
}

fn layout(kind: TierKind) -> TierLayout {
    match kind {
        TierKind::Memory => TierLayout::memory(TIER_BLOCKS as u32).unwrap(),
        TierKind::Flash => TierLayout::flash(TIER_BLOCKS as u32).unwrap(),
    }
}

fn at(block: u32) -> usize {
    block as usize * BLOCK
}

impl Life {
    fn first(kind: TierKind) -> Life {
        Life::begin(kind, vec![0; TIER_BLOCKS * BLOCK], true)
    }

    fn after(kind: TierKind, tier: Vec<u8>) -> Life {
        Life::begin(kind, tier, false)
    }

    fn begin(kind: TierKind, tier: Vec<u8>, fresh: bool) -> Life {
        let layout = layout(kind);
        let size_bytes = (VOLUME_BLOCKS * BLOCK) as u64;
        let superblock = if fresh {
            Superblock { volume: ID, name: [0; 64], size_bytes, created_unix_s: 0, layout }
        } else {
            Superblock::decode(&tier).unwrap()
        };
        let frames = if kind == TierKind::Memory { layout.payload_blocks } else { 256 };
        let config = VolumeConfig {
            superblock,
            fresh,
            size_bytes,
            policy: Policy::Back,
            frames,
            backing_align: 512,
            backing_depth_max: 8,
            backing_write_bytes_max: 1 << 20,
            destage_round_bytes_max: 1 << 20,
            destage_delay: Duration(0),
            drain_max: Duration(0),
        };
        let volume = Volume::new(config, Instant(1));
        let mut life = Life { volume, kind, tier, frames: vec![0; frames as usize * BLOCK], now: 1, requests: 0 };
        if kind == TierKind::Memory {
            let first = at(layout.payload_first);
            life.frames.copy_from_slice(&life.tier[first..]);
        }
        life.run();
        life
    }

    fn phase(&self) -> Phase {
        self.volume.status(Instant(self.now)).phase
    }

    fn frame(&mut self, frame: FrameId) -> &mut [u8] {
        &mut self.frames[at(frame.0)..][..BLOCK]
    }

    /// Until nothing is left to do; the replies.
    fn run(&mut self) -> Vec<(RequestId, Result<Pieces, RequestError>)> {
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

    fn execute(&mut self, effect: Effect) -> Option<(OpId, Outcome)> {
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
                Some((op, Outcome::Ok))
            }
            Effect::TierSync { op } => Some((op, Outcome::Ok)),
            Effect::TierRead { op, at: place, frame, check } => {
                let bytes = self.tier[at(place.0)..][..BLOCK].to_vec();
                let sum = payload_checksum(&ID, check.block, check.mask, check.term, &bytes);
                self.frame(frame).copy_from_slice(&bytes);
                let good = sum == check.checksum;
                Some((op, if good { Outcome::Ok } else { Outcome::Failed(IoError::Checksum) }))
            }
            Effect::TierScan { op, at: place, blocks } => {
                Some((op, Outcome::Bytes(self.tier[at(place.0)..][..at(blocks)].to_vec())))
            }
            Effect::BackingRead { op, frames, .. } => {
                frames.iter().for_each(|&frame| self.frame(frame).fill(0));
                Some((op, Outcome::Ok))
            }
            Effect::Copy { source: Source::Zero, target, start, length } => {
                self.frame(target)[usize::from(start)..][..usize::from(length)].fill(0);
                None
            }
            Effect::FramesFree | Effect::TierDiscard { .. } => None,
            other => panic!("not asked for by whole blocks before an absent backing: {other:?}"),
        }
    }

    fn request(&mut self, request: Request) -> Result<Pieces, RequestError> {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.volume.handle(Instant(self.now), Event::Request { id, request });
        self.run().into_iter().find(|(answered, _)| *answered == id).expect("it is answered").1
    }

    /// A whole block of one byte value, acknowledged.
    fn write(&mut self, block: u64, value: u8) {
        let mut frames = Frames::new();
        assert!(self.volume.take_frames(1, &mut frames));
        let frame = frames[0];
        self.frame(frame).fill(value);
        let term = self.volume.term();
        let checksum = payload_checksum(&ID, BlockIndex(block), SectorMask::FULL, term, self.frame(frame));
        let payload = Payloads::from_slice(&[Payload { frame, checksum }]);
        let offset = block * BLOCK_BYTES;
        self.request(Request::Write { offset, length: BLOCK as u32, payload, fua: false }).expect("acknowledged");
    }

    fn flush(&mut self) {
        self.request(Request::Flush).expect("acknowledged");
    }

    fn read(&mut self, block: u64) -> Result<u8, RequestError> {
        let pieces = self.request(Request::Read { offset: block * BLOCK_BYTES, length: BLOCK as u32 })?;
        let value = match pieces[0].source {
            Source::Frame(frame, offset) => self.frame(frame)[usize::from(offset)],
            Source::Zero => 0,
        };
        self.volume.handle(Instant(self.now), Event::Sent(pieces));
        Ok(value)
    }

    /// The process dies; what it wrote stays.
    fn kill(mut self) -> Vec<u8> {
        if self.kind == TierKind::Memory {
            let first = at(layout(self.kind).payload_first);
            let frames = core::mem::take(&mut self.frames);
            self.tier[first..].copy_from_slice(&frames);
        }
        self.tier
    }
}

/// L-BF-7, L-BF-3: the summary of a segment landed and one of its batches did not. The batches behind it are cut off;
/// the summary must not bring them back when the numbers of those batches have been given again.
#[test]
fn summary_does_not_bring_back_what_was_cut_off() {
    let mut life = Life::first(TierKind::Flash);
    for block in 0..14 {
        life.write(block, 100 + block as u8);
    }
    let mut tier = life.kill();
    // Power was cut, nothing had been flushed: the payload of the fifth batch is not there.
    tier[at(layout(TierKind::Flash).payload_first + 4 * 2 + 1)..][..BLOCK].fill(0);

    let mut life = Life::after(TierKind::Flash, tier);
    assert_eq!((life.read(3), life.read(4), life.read(7)), (Ok(103), Ok(0), Ok(0)));
    for block in 20..30 {
        life.write(block, 200);
    }
    life.flush();
    let mut tier = life.kill();
    for _ in 0..3 {
        let mut life = Life::after(TierKind::Flash, tier);
        assert_eq!(
            (life.read(3), life.read(4), life.read(7)),
            (Ok(103), Ok(0), Ok(0)),
            "a read does not change its mind"
        );
        assert_eq!(life.read(29), Ok(200));
        tier = life.kill();
    }
}

/// L-BF-6: a batch header in the open segment was damaged. The marks in the headers behind it say that it was synced,
/// but its length, by which they are found, is gone.
#[test]
fn damaged_header_before_synced_batches_is_no_end_of_the_log() {
    for damaged_batch in 0..6 {
        let mut life = Life::first(TierKind::Flash);
        for block in 0..8 {
            life.write(block, 100 + block as u8);
            life.flush();
        }
        let mut tier = life.kill();
        tier[at(layout(TierKind::Flash).payload_first + 2 * damaged_batch) + 70] ^= 1;
        let life = Life::after(TierKind::Flash, tier);
        assert!(matches!(life.phase(), Phase::Refused(_)), "batch {damaged_batch}: {:?}", life.phase());
    }
}

/// L-BM-6: the entry of the newest acknowledged write was damaged: not to be taken for one that was being stored.
#[test]
fn damaged_newest_descriptor_is_no_interrupted_store() {
    let mut life = Life::first(TierKind::Memory);
    for block in 0..8 {
        life.write(block, 100 + block as u8);
    }
    let tier = life.kill();
    let layout = layout(TierKind::Memory);
    let position = |entry: usize| u64::from_le_bytes(tier[entry..entry + 8].try_into().unwrap());
    let entries = (0..layout.payload_blocks as usize).map(|i| at(layout.table_first) + i * DESCRIPTOR_BYTES);
    let newest = entries.max_by_key(|&entry| position(entry)).unwrap();
    for byte in 0..DESCRIPTOR_BYTES {
        let mut tier = tier.clone();
        tier[newest + byte] ^= 4;
        let life = Life::after(TierKind::Memory, tier);
        assert!(matches!(life.phase(), Phase::Refused(_)), "byte {byte}: {:?}", life.phase());
    }
}

/// L-BM-2: a kill between two stores of an entry leaves everything before it, and the volume serves.
#[test]
fn interrupted_store_of_a_descriptor_is_forgotten() {
    let mut life = Life::first(TierKind::Memory);
    for block in 0..8 {
        life.write(block, 100 + block as u8);
    }
    let tier = life.kill();
    let layout = layout(TierKind::Memory);
    let free = (0..layout.payload_blocks as usize)
        .map(|i| at(layout.table_first) + i * DESCRIPTOR_BYTES)
        .find(|&entry| tier[entry..entry + DESCRIPTOR_BYTES].iter().all(|&byte| byte == 0))
        .unwrap();
    for words in 1..4 {
        let mut tier = tier.clone();
        tier[free..free + 8].copy_from_slice(&DESCRIPTOR_UNFINISHED.to_le_bytes());
        tier[free + 8..free + 8 * words].fill(0xab);
        let mut life = Life::after(TierKind::Memory, tier);
        assert_eq!(life.phase(), Phase::Serving);
        for block in 0..8 {
            assert_eq!(life.read(block), Ok(100 + block as u8));
        }
    }
}

/// L-BF-6, L-BM-6: either copy of the checkpoint holds everything that was relied upon.
#[test]
fn damaged_checkpoint_is_covered_by_its_copy() {
    for kind in [TierKind::Memory, TierKind::Flash] {
        let mut life = Life::first(kind);
        life.write(1, 1);
        life.flush();
        let tier = life.kill();
        let life = Life::after(kind, tier);
        let (term, tier) = (life.volume.term(), life.kill());
        for copy in [1, 2] {
            let mut tier = tier.clone();
            tier[at(copy) + 30] ^= 1;
            let mut life = Life::after(kind, tier);
            assert_eq!(life.phase(), Phase::Serving);
            assert!(life.volume.term() > term, "a term is given once, whichever copy is damaged");
            assert_eq!(life.read(1), Ok(1));
        }
        let mut tier = tier;
        tier[at(1) + 30] ^= 1;
        tier[at(2) + 30] ^= 1;
        assert!(matches!(Life::after(kind, tier).phase(), Phase::Refused(_)));
    }
}
