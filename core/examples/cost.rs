//! What the decisions of one request of 4 KiB cost, without any I/O: nanoseconds of core alone, on a memory tier.
//!
//! `cargo run --release -p forebay-core --example cost` prints for each kind and depth the best of some rounds; two
//! versions are compared by running them in turns.

use forebay_core::api::*;
use forebay_core::format::{Superblock, TierLayout, Version};
use forebay_core::status::{DestageMode, Phase, Policy};
use forebay_core::types::*;
use forebay_core::{Volume, VolumeConfig};
use std::time::Instant as Clock;

const BLOCKS: u64 = 32 << 10;
const ROUNDS: usize = 30;
const REQUESTS: u64 = 100_000;

struct Bench {
    volume: Volume,
    now: u64,
    random: u64,
    answered: u64,
    asked: u64,
}

impl Bench {
    fn begin() -> Bench {
        let layout = TierLayout::memory(3 * BLOCKS as u32).expect("a possible size");
        let size_bytes = 2 * BLOCKS * BLOCK_BYTES;
        let superblock = Superblock {
            version: Version::Two,
            tier: 1,
            volume: [1; 16],
            name: [0; 64],
            size_bytes,
            created_unix_s: 0,
            layout,
        };
        let config = VolumeConfig {
            superblock,
            fresh: true,
            size_bytes,
            policy: Policy::Back,
            frames: layout.payload_blocks,
            backing_align: 512,
            backing_depth_max: 64,
            backing_write_bytes_max: 1 << 20,
            destage_round_bytes_max: 32 << 20,
            journal_blocks: 0,
            destage: DestageMode::Ordered,
            destage_delay: Duration::from_millis(500),
            drain_max: Duration(0),
            cluster: None,
        };
        // The backing is never ready: what is written stays in the log, and is superseded there.
        let mut bench = Bench { volume: Volume::new(config, Instant(1)), now: 1, random: 1, answered: 0, asked: 0 };
        bench.settle();
        assert_eq!(bench.volume.status(Instant(1)).phase, Phase::Serving);
        for block in 0..BLOCKS {
            bench.ask(block, false);
            bench.settle();
        }
        bench
    }

    fn ask(&mut self, block: u64, reads: bool) {
        let (offset, length) = (block * BLOCK_BYTES, BLOCK_BYTES as u32);
        let request = if reads {
            Request::Read { offset, length }
        } else {
            let mut frames = Frames::new();
            assert!(self.volume.take_frames(ClientId(0), 1, &mut frames), "there is room");
            let payload = Payloads::from_slice(&[Payload { frame: frames[0], checksum: 0 }]);
            Request::Write { offset, length, payload, fua: false }
        };
        // As the front end names them: a connection, and one of its slots.
        let id = RequestId((1 << 32) | (self.asked % 32));
        self.asked += 1;
        self.volume.handle(Instant(self.now), Event::Request { id, request });
    }

    fn settle(&mut self) {
        loop {
            self.volume.settle(Instant(self.now));
            let mut done_at_once = false;
            while let Some(effect) = self.volume.poll_effect() {
                let event = match effect {
                    Effect::Reply { result, .. } => {
                        self.answered += 1;
                        Event::Sent(result.expect("nothing fails here"))
                    }
                    Effect::TierWrite { op, .. } | Effect::TierSync { op } => {
                        done_at_once = true;
                        Event::Done { op, outcome: Outcome::Ok }
                    }
                    _ => continue,
                };
                self.volume.handle(Instant(self.now), event);
            }
            if !done_at_once {
                return;
            }
        }
    }

    /// Nanoseconds for each request.
    fn round(&mut self, depth: u64, reads: bool) -> f64 {
        let (began, answered) = (Clock::now(), self.answered);
        for _ in 0..REQUESTS / depth {
            self.now += 10_000;
            for _ in 0..depth {
                self.random = self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                self.ask((self.random >> 33) % BLOCKS, reads);
            }
            self.now += 5_000;
            self.settle();
        }
        let took = began.elapsed().as_nanos() as f64;
        took / (self.answered - answered) as f64
    }
}

fn main() {
    let mut bench = Bench::begin();
    let cases = [("write", 1, false), ("write", 32, false), ("read", 1, true), ("read", 32, true)];
    for (name, depth, reads) in cases {
        let best = (0..ROUNDS).map(|_| bench.round(depth, reads)).fold(f64::MAX, f64::min);
        println!("{name:5} depth {depth:2}: {best:6.1} ns");
    }
}
