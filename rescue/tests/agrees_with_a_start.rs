//! A start of a volume and `salvage` take the same records for the log, whatever has become of the tier: many tiers that were written,
//! killed and damaged at random. Where a start serves, the salvaged image holds what it reads; where it refuses, salvage has
//! a remark.

use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::{DestageMode, Phase, Policy};
use forebay_core::types::*;
use forebay_core::{Volume, VolumeConfig};
use forebay_rescue::salvage;
use std::path::Path;

const BLOCK: usize = BLOCK_BYTES as usize;
const TIER_BLOCKS: usize = 512;
const VOLUME_BLOCKS: u64 = 48;
const ID: [u8; 16] = [7; 16];

/// A xorshift generator: a seed makes the same run again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
}

fn at(block: u32) -> usize {
    block as usize * BLOCK
}

fn layout(kind: TierKind) -> TierLayout {
    match kind {
        TierKind::Memory => TierLayout::memory(TIER_BLOCKS as u32).unwrap(),
        TierKind::Flash => TierLayout::flash(TIER_BLOCKS as u32).unwrap(),
    }
}

/// A volume before a backing that never gets ready: everything stays in the log. Its device answers at once.
struct Life {
    volume: Volume,
    layout: TierLayout,
    tier: Vec<u8>,
    frames: Vec<u8>,
    now: u64,
    requests: u64,
}

impl Life {
    fn begin(kind: TierKind, tier: Option<Vec<u8>>) -> Life {
        let layout = layout(kind);
        let size_bytes = VOLUME_BLOCKS * BLOCK_BYTES;
        let fresh = tier.is_none();
        let superblock = Superblock {
            version: Version::Two,
            tier: 1,
            volume: ID,
            name: [0; 64],
            size_bytes,
            created_unix_s: 0,
            layout,
        };
        let tier = tier.unwrap_or_else(|| vec![0; TIER_BLOCKS * BLOCK]);
        let frames = if kind == TierKind::Memory { layout.payload_blocks } else { 128 };
        let config = VolumeConfig {
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
        let mut arena = vec![0; frames as usize * BLOCK];
        if kind == TierKind::Memory {
            let payload = &tier[at(layout.payload_first)..];
            arena[..payload.len()].copy_from_slice(payload);
        }
        let volume = Volume::new(config, Instant(1));
        let mut life = Life { volume, layout, tier, frames: arena, now: 1, requests: 0 };
        life.run();
        life
    }

    fn phase(&self) -> Phase {
        self.volume.status(Instant(self.now)).phase
    }

    fn frame(&mut self, frame: FrameId) -> &mut [u8] {
        &mut self.frames[at(frame.0)..][..BLOCK]
    }

    /// Until nothing is left to do; the answer to the last request.
    fn run(&mut self) -> Option<Result<Pieces, RequestError>> {
        let mut answer = None;
        loop {
            self.now += 1_000_000;
            self.volume.settle(Instant(self.now));
            let mut idle = true;
            while let Some(effect) = self.volume.poll_effect() {
                idle = false;
                if let Effect::Reply { result, .. } = effect {
                    answer = Some(result);
                } else if let Some((op, outcome)) = self.execute(effect) {
                    self.volume.handle(Instant(self.now), Event::Done { op, outcome });
                }
            }
            if idle {
                return answer;
            }
        }
    }

    fn execute(&mut self, effect: Effect) -> Option<(OpId, Outcome)> {
        match effect {
            Effect::Describe { index, bytes } => {
                let entry = at(self.layout.table_first) + index as usize * DESCRIPTOR_BYTES;
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
            Effect::BackingRead { op, frames, .. } => {
                frames.iter().for_each(|&frame| self.frame(frame).fill(0));
                Some((op, Outcome::Ok))
            }
            Effect::Copy { source: Source::Zero, target, start, length } => {
                self.frame(target)[usize::from(start)..][..usize::from(length)].fill(0);
                None
            }
            Effect::FramesFree => None,
            other => panic!("not asked for by whole blocks before an absent backing: {other:?}"),
        }
    }

    fn request(&mut self, request: Request) -> Result<Pieces, RequestError> {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.volume.handle(Instant(self.now), Event::Request { id, request });
        self.run().expect("it is answered")
    }

    /// Whole blocks of one byte value. Without effect where the log has no room: this backing never makes any.
    fn write(&mut self, first: u64, count: u32, value: u8) {
        let mut frames = Frames::new();
        if !self.volume.take_frames(ClientId(0), count, &mut frames) {
            return;
        }
        let term = self.volume.term();
        let mut payload = Payloads::new();
        for (block, &frame) in (first..).zip(&frames) {
            self.frame(frame).fill(value);
            let checksum = payload_checksum(&ID, BlockIndex(block), SectorMask::FULL, term, self.frame(frame));
            payload.push(Payload { frame, checksum });
        }
        let length = count * BLOCK as u32;
        self.request(Request::Write { offset: first * BLOCK_BYTES, length, payload, fua: false })
            .expect("acknowledged");
    }

    /// One step of a client.
    fn step(&mut self, random: &mut Random) {
        let first = random.below(VOLUME_BLOCKS);
        let count = 1 + random.below((VOLUME_BLOCKS - first).min(8));
        let (offset, length) = (first * BLOCK_BYTES, count as u32 * BLOCK as u32);
        match random.below(10) {
            0 | 2 => drop(self.request(Request::Flush).expect("acknowledged")),
            1 => {
                let zero = Request::Zero { offset, length: length.into(), hole: true, fua: false };
                drop(self.request(zero).expect("acknowledged"));
            }
            _ => self.write(first, count as u32, 1 + random.below(255) as u8),
        }
    }

    /// Every block's content, none where it cannot be read.
    fn read_all(&mut self) -> Vec<Option<u8>> {
        let read = |block: u64| {
            let pieces = self.request(Request::Read { offset: block * BLOCK_BYTES, length: BLOCK as u32 }).ok()?;
            let value = match pieces[0].source {
                Source::Frame(frame, offset) => self.frame(frame)[usize::from(offset)],
                Source::Zero => 0,
            };
            self.volume.handle(Instant(self.now), Event::Sent(pieces));
            Some(value)
        };
        (0..VOLUME_BLOCKS).map(read).collect()
    }

    /// The process dies; what it wrote stays.
    fn kill(mut self) -> Vec<u8> {
        if self.layout.kind == TierKind::Memory {
            self.tier[at(self.layout.payload_first)..].copy_from_slice(&self.frames);
        }
        self.tier
    }
}

/// A few blocks change by themselves: lost, flipped, or as they were at an earlier time. The superblock stays: without it nothing is a tier.
/// What a memory tier keeps of payloads is not looked at by a start (RAM does not change by itself), so it is left alone.
fn damage(kind: TierKind, tier: &mut [u8], earlier: &[u8], random: &mut Random) {
    let end = if kind == TierKind::Memory { layout(kind).payload_first } else { TIER_BLOCKS as u32 };
    let used = tier[..at(end)].chunks_exact(BLOCK).rposition(|block| block.iter().any(|&byte| byte != 0)).unwrap_or(3)
        as u64
        + 1;
    for _ in 0..random.below(4) {
        // Half of the places near the end of what was written, where a loss of power finds its victims.
        let near = used.saturating_sub(1 + random.below(12)).max(1);
        let block = if random.below(2) == 0 { near } else { 1 + random.below(used.max(2) - 1) } as u32;
        let bytes = at(block)..at(block) + BLOCK;
        match random.below(3) {
            0 => tier[bytes].fill(0),
            1 => tier[bytes.start + random.below(BLOCK_BYTES) as usize] ^= 1 << random.below(8),
            _ => tier[bytes.clone()].copy_from_slice(&earlier[bytes]),
        }
    }
}

/// What many rounds have met: a test that never meets a kind of tier shows nothing of it.
#[derive(Default, Debug)]
struct Met {
    served_with_all: u32,
    served_with_less: u32,
    refused: u32,
    lost_payload: u32,
}

fn round(kind: TierKind, seed: u64, folder: &Path, met: &mut Met) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut life = Life::begin(kind, None);
    let mut earlier = life.tier.clone();
    // Few enough that the log never needs the room that no backing makes.
    for _ in 0..random.below(3) {
        for _ in 0..random.below(9) {
            life.step(&mut random);
        }
        earlier = life.kill();
        let mut tier = earlier.clone();
        if random.below(2) == 0 {
            damage(kind, &mut tier, &earlier, &mut random);
        }
        life = Life::begin(kind, Some(tier));
        if life.phase() != Phase::Serving {
            break;
        }
    }
    if life.phase() == Phase::Serving {
        for _ in 0..1 + random.below(12) {
            life.step(&mut random);
        }
    }
    let whole = if life.phase() == Phase::Serving { life.read_all() } else { Vec::new() };
    let mut tier = life.kill();
    damage(kind, &mut tier, &earlier, &mut random);

    let (tier_path, image_path) = (folder.join("tier"), folder.join("image"));
    std::fs::write(&tier_path, &tier).unwrap();
    let salvaged = salvage::run(&tier_path, &image_path, None).unwrap_or_else(|e| panic!("seed {seed}: {e:#}"));
    let image = std::fs::read(&image_path).unwrap();
    std::fs::remove_file(&image_path).unwrap();

    let mut life = Life::begin(kind, Some(tier));
    if life.phase() != Phase::Serving {
        met.refused += 1;
        assert!(
            !salvaged.damage.is_empty(),
            "{kind:?}, seed {seed}: a start says {:?}, salvage {salvaged:?}",
            life.phase()
        );
        return;
    }
    if kind == TierKind::Memory && salvaged.lost > 0 {
        met.lost_payload += 1; // an entry is as it was earlier, its payload is not
        return;
    }
    let read = life.read_all();
    if read == whole {
        met.served_with_all += 1
    } else {
        met.served_with_less += 1
    }
    for (block, content) in read.iter().enumerate() {
        let found = image[block * BLOCK];
        match content {
            Some(value) => assert_eq!(
                found, *value,
                "{kind:?}, seed {seed}, block {block}: salvage finds {found}, a start {value}; {salvaged:?}"
            ),
            None => {
                met.lost_payload += 1;
                assert!(
                    salvaged.lost > 0,
                    "{kind:?}, seed {seed}, block {block}: cannot be read, and salvage lost nothing"
                );
            }
        }
    }
}

fn rounds(kind: TierKind) -> Met {
    // Each image is synced, which costs nothing in RAM.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let many = if std::env::var_os("FOREBAY_SOAK").is_some() { 20_000 } else { 800 };
    let mut met = Met::default();
    for seed in 1..=many {
        round(kind, seed, folder.path(), &mut met);
    }
    met
}

#[test]
fn salvage_finds_on_a_flash_tier_what_a_start_finds() {
    let met = rounds(TierKind::Flash);
    assert!(
        met.served_with_all > 100 && met.served_with_less > 100 && met.refused > 15 && met.lost_payload > 20,
        "{met:?}"
    );
}

#[test]
fn salvage_finds_on_a_memory_tier_what_a_start_finds() {
    let met = rounds(TierKind::Memory);
    assert!(
        met.served_with_all > 100 && met.served_with_less > 30 && met.refused > 50 && met.lost_payload > 0,
        "{met:?}"
    );
}
