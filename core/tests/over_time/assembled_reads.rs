//! Reads of blocks whose content lies in many records on flash: more of those than there are frames.

use crate::stand::{MILLISECOND, SECOND, Stand, config};
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::{ControlError, DestageMode, Phase};
use forebay_core::types::*;
use forebay_core::{Volume, VolumeConfig};
use std::collections::BTreeMap;

const VOLUME: [u8; 16] = [1; 16];
const VOLUME_BYTES: u64 = 256 << 20;
/// Of 21 segments.
const SMALL: TierLayout = TierLayout {
    kind: TierKind::Flash,
    tier_blocks: 512,
    table_first: 0,
    table_blocks: 0,
    ranges_max: 64,
    payload_first: 3,
    payload_blocks: 504,
    segment_blocks: 24,
    summary_blocks: 2,
};
/// 4 MiB of memory.
const FRAMES: u32 = 1 << 10;
/// The fewest that a volume takes, and those of the least memory that the configuration takes.
const FEWEST_FRAMES: [u32; 2] = [64, 256];
/// What a frame has while something is being read into it. Nothing here is written with it.
const UNREAD: u8 = 0xEE;
/// The stop of every story.
const STOP: ControlId = ControlId(1);
const BLOCK: usize = BLOCK_BYTES as usize;
/// What a read is given up for here.
const WAIT_MAX: u64 = 10 * SECOND;

type Block = [u8; BLOCK];

/// What ends later.
enum Ending {
    Plain,
    Loaded(TierBlock, Checks),
    Delivered(BlockIndex, Frames),
}

/// A volume whose frames and devices have content. Everything takes a millisecond; the bytes are those of its end.
struct Bench {
    volume: Volume,
    now: u64,
    frames: Vec<Block>,
    tier: BTreeMap<u32, Block>,
    backing: BTreeMap<u64, Block>,
    agenda: BTreeMap<(u64, OpId), Ending>,
    /// The backing delivers nothing before.
    delivers_at: u64,
    /// Nor takes anything.
    takes_at: u64,
    stopped: Option<Result<(), ControlError>>,
    requests: u64,
    /// Of each read that was answered.
    answers: BTreeMap<u64, Result<Vec<u8>, RequestError>>,
    written: u64,
    /// Pieces that a client has not taken yet.
    most_pieces: usize,
}

impl Stand for Bench {
    fn volume(&mut self) -> &mut Volume {
        &mut self.volume
    }

    fn now(&self) -> Instant {
        Instant(self.now)
    }

    fn execute(&mut self, effect: Effect) {
        let taken_at = self.now.max(self.takes_at);
        let (op, ending, end) = match effect {
            Effect::Reply { id, result } => return self.answer(id.0, result),
            Effect::TierWrite { op, at, head, frames } => {
                let blocks = head.chunks(BLOCK).map(|block| block.try_into().unwrap());
                let payload = frames.iter().map(|frame| self.frames[frame.0 as usize]);
                let all: Vec<Block> = blocks.chain(payload).collect();
                for (i, block) in all.into_iter().enumerate() {
                    self.tier.insert(at.0 + i as u32, block);
                }
                (op, Ending::Plain, self.now)
            }
            Effect::TierRead { op, at, frames } => {
                self.begin_to_read(frames.iter().map(|(frame, _)| *frame));
                (op, Ending::Loaded(at, frames), self.now)
            }
            Effect::BackingRead { op, at, frames } => {
                self.begin_to_read(frames.iter().copied());
                (op, Ending::Delivered(at, frames), self.now.max(self.delivers_at))
            }
            Effect::BackingWrite { op, offset, parts } => {
                let mut at = offset;
                for part in parts {
                    let from = usize::from(part.from);
                    let bytes = &self.frames[part.frame.0 as usize][from..from + usize::from(part.length)];
                    let block = self.backing.entry(at / BLOCK_BYTES).or_insert([0; BLOCK]);
                    block[(at % BLOCK_BYTES) as usize..][..bytes.len()].copy_from_slice(bytes);
                    at += u64::from(part.length);
                }
                (op, Ending::Plain, taken_at)
            }
            Effect::TierSync { op } => (op, Ending::Plain, self.now),
            Effect::BackingSync { op } => (op, Ending::Plain, taken_at),
            Effect::Copy { source, target, start, length } => {
                let range = usize::from(start)..usize::from(start) + usize::from(length);
                let bytes = self.bytes_at(source);
                return self.frames[target.0 as usize][range.clone()].copy_from_slice(&bytes[range]);
            }
            Effect::Merge { op, target, base, from, to, block, term, .. } => {
                let mut bytes = self.bytes_at(base);
                let new = usize::from(from)..usize::from(to);
                bytes[new.clone()].copy_from_slice(&self.frames[target.0 as usize][new]);
                self.frames[target.0 as usize] = bytes;
                let checksum = payload_checksum(&VOLUME, block, SectorMask::FULL, term, &bytes);
                return self.handle(Event::Done { op, outcome: Outcome::Merged(checksum) });
            }
            Effect::Answer { id: STOP, result } => {
                self.stopped = Some(result);
                return;
            }
            Effect::FramesFree => return,
            other => panic!("nobody asks here for {other:?}"),
        };
        self.agenda.insert((end + MILLISECOND, op), ending);
    }
}

impl Bench {
    fn new(layout: TierLayout, frames: u32) -> Bench {
        let config = VolumeConfig {
            frames,
            destage: DestageMode::Auto,
            destage_delay: Duration::from_secs(3600),
            ..config(layout, VOLUME_BYTES)
        };
        let mut bench = Bench {
            volume: Volume::new(config, Instant(SECOND)),
            now: SECOND,
            frames: vec![[0; BLOCK]; frames as usize + 1],
            tier: BTreeMap::new(),
            backing: BTreeMap::new(),
            agenda: BTreeMap::new(),
            delivers_at: 0,
            takes_at: 0,
            stopped: None,
            requests: 0,
            answers: BTreeMap::new(),
            written: 0,
            most_pieces: 0,
        };
        bench.handle(Event::BackingReady);
        bench.work();
        bench.run_until("it serves", |bench| bench.status().phase == Phase::Serving);
        bench
    }

    fn bytes_at(&self, source: Source) -> Block {
        match source {
            Source::Zero => [0; BLOCK],
            Source::Frame(frame, _) => self.frames[frame.0 as usize],
        }
    }

    fn begin_to_read(&mut self, into: impl Iterator<Item = FrameId>) {
        into.for_each(|frame| self.frames[frame.0 as usize].fill(UNREAD));
    }

    fn answer(&mut self, id: u64, result: Result<Pieces, RequestError>) {
        let Ok(pieces) = result else {
            self.answers.insert(id, result.map(|_| Vec::new()));
            return;
        };
        self.most_pieces = self.most_pieces.max(pieces.len());
        let mut bytes = Vec::new();
        for piece in &pieces {
            match piece.source {
                Source::Zero => bytes.resize(bytes.len() + piece.length as usize, 0),
                Source::Frame(frame, at) => {
                    let frame = &self.frames[frame.0 as usize];
                    bytes.extend_from_slice(&frame[usize::from(at)..usize::from(at) + piece.length as usize]);
                }
            }
        }
        self.answers.insert(id, Ok(bytes));
        self.handle(Event::Sent(pieces));
    }

    /// When the next operation ends, or the volume's time comes.
    fn next(&self) -> Option<u64> {
        let due = self.agenda.keys().next().map(|(at, _)| *at);
        let timeout = self.volume.poll_timeout().map(|at| at.0);
        due.into_iter().chain(timeout).min()
    }

    fn run_to(&mut self, end: u64) {
        while self.next().is_some_and(|at| at <= end) {
            self.wait();
        }
        self.now = end;
    }

    /// Until the next operation ends, or the volume's time has come.
    fn wait(&mut self) {
        let at = self.next().expect("something is under way");
        self.now = self.now.max(at);
        while let Some(entry) = self.agenda.first_entry()
            && entry.key().0 <= self.now
        {
            let ((_, op), ending) = entry.remove_entry();
            let outcome = self.end(ending);
            self.handle(Event::Done { op, outcome });
        }
        self.work();
        self.volume.validate();
    }

    /// The end of every story: nothing is left that a stop would have to wait for.
    fn stop(mut self) {
        self.volume.validate();
        self.handle(Event::Control { id: STOP, command: Control::Stop { drain: false } });
        self.work();
        self.run_until("a stop", |bench| bench.stopped.is_some());
        assert_eq!(self.stopped, Some(Ok(())));
        assert_eq!(self.status().phase, Phase::Stopped);
        self.volume.validate();
    }

    fn end(&mut self, ending: Ending) -> Outcome {
        match ending {
            Ending::Plain => {}
            Ending::Loaded(at, frames) => {
                for (i, (frame, check)) in frames.into_iter().enumerate() {
                    let block = self.tier.get(&(at.0 + i as u32)).copied().unwrap_or([0; BLOCK]);
                    self.frames[frame.0 as usize] = block;
                    if payload_checksum(&VOLUME, check.block, check.mask, check.term, &block) != check.checksum {
                        return Outcome::Failed(IoError::Checksum);
                    }
                }
            }
            Ending::Delivered(at, frames) => {
                for (i, frame) in frames.into_iter().enumerate() {
                    let block = self.backing.get(&(at.0 + i as u64)).copied().unwrap_or([0; BLOCK]);
                    self.frames[frame.0 as usize] = block;
                }
            }
        }
        Outcome::Ok
    }

    fn run_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Bench) -> bool) {
        let end = self.now + WAIT_MAX;
        while !is_so(self) {
            assert!(self.now < end, "waited in vain: {what}: {:?}", self.status());
            self.wait();
        }
    }

    /// Writes this byte to a sector of a block, and waits for the answer.
    fn write(&mut self, block: u64, sector: u64, byte: u8) {
        let mut begun = None;
        self.run_until("a frame for a write", |bench| {
            begun = bench.begin_write(block, sector, byte);
            begun.is_some()
        });
        let id = begun.expect("it has begun");
        self.run_until("a write", |bench| bench.answers.remove(&id).is_some());
        self.written += 1;
    }

    /// None: there is no frame for it.
    fn begin_write(&mut self, block: u64, sector: u64, byte: u8) -> Option<u64> {
        let mut frames = Frames::new();
        if !self.volume.take_frames(ClientId(0), 1, &mut frames) {
            return None;
        }
        let mut bytes = [0; BLOCK];
        bytes[sector as usize * 512..][..512].fill(byte);
        self.frames[frames[0].0 as usize] = bytes;
        let mask = SectorMask::of_bytes(sector * 512, sector * 512 + 512);
        let checksum = payload_checksum(&VOLUME, BlockIndex(block), mask, self.volume.term(), &bytes);
        let payload = Payloads::from_slice(&[Payload { frame: frames[0], checksum }]);
        Some(self.ask(Request::Write { offset: block * BLOCK_BYTES + sector * 512, length: 512, payload, fua: false }))
    }

    fn ask(&mut self, request: Request) -> u64 {
        self.requests += 1;
        let id = self.requests;
        self.handle(Event::Request { id: RequestId(id), request });
        self.work();
        id
    }

    fn read(&mut self, block: u64, length: u32) -> u64 {
        self.ask(Request::Read { offset: block * BLOCK_BYTES, length })
    }

    fn bytes_of(&mut self, read: u64) -> Vec<u8> {
        self.run_until("a read", |bench| bench.answers.contains_key(&read));
        self.answers.remove(&read).unwrap().expect("nothing fails here")
    }
}

/// What [`sector_byte`] gives, of all sectors from a block on.
fn expected(block: u64, length: u32) -> Vec<u8> {
    let sectors = 0..u64::from(length) / 512;
    sectors.flat_map(|sector| [sector_byte(block + sector / 8, sector % 8); 512]).collect()
}

fn sector_byte(block: u64, sector: u64) -> u8 {
    (block * 8 + sector) as u8 | 1
}

/// All sectors of so many blocks are written, or every second one, and the backing has the others from the beginning.
fn filled(layout: TierLayout, frames: u32, blocks: u64, with_backing: bool) -> Bench {
    let mut bench = Bench::new(layout, frames);
    for block in 0..blocks {
        for sector in 0..8 {
            let byte = sector_byte(block, sector);
            if with_backing && sector % 2 == 1 {
                bench.backing.entry(block).or_insert([0; BLOCK])[sector as usize * 512..][..512].fill(byte);
            } else {
                bench.write(block, sector, byte);
            }
        }
    }
    bench
}

/// Blocks of the largest request that is told, aligned; one more if it is not.
fn largest(layout: TierLayout, frames: u32) -> u64 {
    u64::from(Bench::new(layout, frames).volume.request_bytes_max()) / BLOCK_BYTES
}

/// The largest request that is told is read, beginning within a block.
fn the_largest_is_read(layout: TierLayout, frames: u32, with_backing: bool) {
    let blocks = largest(layout, frames) + 1;
    let length = (blocks - 1) as u32 * BLOCK as u32;
    let mut bench = filled(layout, frames, blocks, with_backing);
    let read = bench.ask(Request::Read { offset: 512, length });
    let small = bench.read(3, BLOCK as u32);
    assert_eq!(bench.bytes_of(read), expected(0, length + 512)[512..], "{frames} frames, backing: {with_backing}");
    assert_eq!(bench.bytes_of(small), expected(3, BLOCK as u32));
    assert!(bench.most_pieces <= blocks as usize, "{} pieces", bench.most_pieces);
    bench.stop();
}

#[test]
fn the_largest_read_of_blocks_that_were_written_by_sectors_is_answered() {
    let layout = TierLayout::flash(16 << 10).unwrap();
    for with_backing in [false, true] {
        the_largest_is_read(layout, FRAMES, with_backing);
    }
}

#[test]
fn the_largest_read_of_blocks_that_were_written_by_sectors_is_answered_with_the_least_memory() {
    let layout = TierLayout::flash(16 << 10).unwrap();
    for frames in FEWEST_FRAMES {
        for with_backing in [false, true] {
            the_largest_is_read(layout, frames, with_backing);
        }
    }
}

#[test]
fn several_of_the_largest_reads_come_to_an_end_beside_each_other() {
    let layout = TierLayout::flash(16 << 10).unwrap();
    for frames in [FEWEST_FRAMES[0], FRAMES] {
        let blocks = largest(layout, frames);
        let length = blocks as u32 * BLOCK as u32;
        let mut bench = filled(layout, frames, blocks, true);
        let reads: Vec<u64> = (0..8).map(|_| bench.read(0, length)).collect();
        for read in reads {
            assert_eq!(bench.bytes_of(read), expected(0, length), "{frames} frames");
        }
        bench.stop();
    }
}

/// Blocks of which half is in the backing are read, and written over until each segment of the log would have been used again.
/// True: what was read is what was there when it began.
fn reads_what_was_there(#[allow(unused)] plant: fn(&mut Volume)) -> bool {
    let blocks = 16;
    let mut bench = filled(SMALL, FRAMES, blocks, true);
    plant(&mut bench.volume);
    bench.delivers_at = bench.now + 4 * SECOND;
    let read = bench.read(0, blocks as u32 * BLOCK as u32);
    let before = bench.written;
    while bench.written < before + 2 * u64::from(SMALL.payload_blocks) {
        let round = bench.written / blocks;
        bench.write(bench.written % blocks, round % 4 * 2, 0);
    }
    assert!(bench.now < bench.delivers_at && !bench.answers.contains_key(&read), "at {}", bench.now);
    bench.run_until("a read", |bench| bench.answers.contains_key(&read));
    let is_right = bench.answers.remove(&read).unwrap() == Ok(expected(0, blocks as u32 * BLOCK as u32));
    bench.stop();
    is_right
}

#[test]
fn what_a_waiting_read_needs_is_not_overwritten() {
    assert!(reads_what_was_there(|_| {}));
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_overwrite_what_a_waiting_read_needs() {
    assert!(!reads_what_was_there(|volume| volume.rules.forget_what_is_read = true));
}

/// The backing hangs, writes to it as well, and reads keep more of the log than writes can do without. Those wait for the backing,
/// and when it is back all come to their end: the reads with what was there when they began.
#[test]
fn reads_that_hang_and_writes_behind_them_end_when_the_backing_is_back() {
    let blocks = 40;
    let mut bench = filled(SMALL, FRAMES, blocks, true);
    bench.delivers_at = bench.now + 60 * SECOND;
    bench.takes_at = bench.delivers_at;
    let reads: Vec<(u64, u64)> =
        (0..blocks).step_by(4).cycle().take(60).map(|block| (bench.read(block, 4 * BLOCK as u32), block)).collect();
    let mut writes = Vec::new();
    let mut answered = 0;
    while bench.now + SECOND < bench.delivers_at {
        let at = bench.written;
        if let Some(id) = bench.begin_write(at % blocks, at / blocks % 4 * 2, 7) {
            bench.written += 1;
            writes.push(id);
        }
        // A client that is in no hurry, for the test's sake.
        bench.run_to(bench.now + 20 * MILLISECOND);
        answered = writes.iter().filter(|id| bench.answers.contains_key(id)).count();
    }
    assert!(answered > 0, "writes go on as long as there is room");
    assert!(answered < writes.len(), "reads keep so much that others wait");
    assert!(reads.iter().all(|(read, _)| !bench.answers.contains_key(read)), "the backing hangs");
    for (read, block) in reads {
        assert_eq!(bench.bytes_of(read), expected(block, 4 * BLOCK as u32), "at {block}");
    }
    for id in writes {
        bench.run_until("a write", |bench| bench.answers.contains_key(&id));
        assert_eq!(bench.answers.remove(&id), Some(Ok(Vec::new())));
    }
    let read = bench.read(0, 4 * BLOCK as u32);
    let bytes = bench.bytes_of(read);
    assert!(bytes.chunks(1024).all(|pair| pair[..512] == [7; 512]), "what was written meanwhile");
    bench.stop();
}

/// Old content of edges that lies in many records needs more frames than a block of a read: whoever waits for those is not kept waiting
/// by others that take frames for their own edges, and then wait as well.
#[test]
fn edges_of_blocks_that_were_written_by_sectors_get_their_frames() {
    let layout = TierLayout::flash(16 << 10).unwrap();
    let (frames, blocks) = (FEWEST_FRAMES[0], 64);
    let mut bench = filled(layout, frames, blocks, false);
    let length = largest(layout, frames) as u32 * BLOCK as u32;
    let mut asked: Vec<u64> = Vec::new();
    for block in (0..blocks).step_by(2) {
        // All but the first and the last hundred bytes of two blocks.
        let (offset, zeros) = (block * BLOCK_BYTES + 100, 2 * BLOCK_BYTES - 200);
        bench.requests += 1;
        let id = RequestId(bench.requests);
        let request = Request::Zero { offset, length: zeros, hole: false, fua: false };
        bench.handle(Event::Request { id, request });
        asked.push(id.0);
        asked.push(bench.read(block / 2, length));
    }
    for id in asked {
        bench.run_until("a request", |bench| bench.answers.contains_key(&id));
        assert!(bench.answers.remove(&id).unwrap().is_ok());
    }
    for block in (0..blocks).step_by(2) {
        let read = bench.read(block, 2 * BLOCK as u32);
        let mut bytes = expected(block, 2 * BLOCK as u32);
        bytes[100..2 * BLOCK - 100].fill(0);
        assert_eq!(bench.bytes_of(read), bytes, "at {block}");
    }
    bench.stop();
}

/// A stop is answered although the backing hangs, and so are the reads that hang at it.
#[test]
fn a_stop_does_not_wait_for_reads_that_hang() {
    let blocks = 16;
    let mut bench = filled(SMALL, FRAMES, blocks, true);
    bench.delivers_at = bench.now + 60 * SECOND;
    bench.takes_at = bench.delivers_at;
    let read = bench.read(0, blocks as u32 * BLOCK as u32);
    bench.handle(Event::Control { id: STOP, command: Control::Stop { drain: false } });
    bench.work();
    bench.run_until("a stop", |bench| bench.stopped.is_some());
    assert_eq!(bench.answers.remove(&read), Some(Err(RequestError::Shutdown)));
    assert!(bench.now < bench.delivers_at);
    bench.volume.validate();
}
