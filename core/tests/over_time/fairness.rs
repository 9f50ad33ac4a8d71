//! Nobody waits for frames for ever while others get them: reads, small and large writes, and writes that read before they
//! write, each beside more of the others than the arena holds.

use crate::stand::{MILLISECOND, SECOND, Stand, config};
use forebay_core::api::*;
use forebay_core::format::*;
use forebay_core::status::Phase;
use forebay_core::types::*;
use forebay_core::{Volume, VolumeConfig};
use std::collections::{BTreeMap, VecDeque};

/// 8 MiB of memory.
const BLOCKS: u32 = 2 << 10;
const VOLUME_BYTES: u64 = 8 << 30;
/// What the backing moves, reads and writes alike.
const BACKING_BYTES_PER_S: u64 = 100 << 20;
/// A write that found no room in the log waits for the backing; so does a read for those before it. Both are done well
/// within this where the order is kept: the whole arena goes through the backing in 80 ms. A run is longer.
const WAIT_MAX: u64 = SECOND;
const RUN_SECONDS: u64 = 4;

/// What a client does, again and again.
#[derive(Clone, Copy)]
enum Habit {
    Read {
        bytes: u32,
        depth: usize,
    },
    /// One after the other, as a connection does: the next one is not looked at while this one waits for frames.
    Write {
        bytes: u32,
        depth: usize,
    },
    /// Of a part of a sector.
    Unaligned {
        depth: usize,
    },
    Prefetch {
        bytes: u32,
        depth: usize,
    },
}

struct Client {
    habit: Habit,
    open: usize,
    /// Refused frames since then.
    refused_at: Option<u64>,
    done: u64,
    longest: u64,
}

struct Asked {
    client: usize,
    at: u64,
}

/// A volume before a backing that does one thing after the other.
struct Bench {
    volume: Volume,
    now: u64,
    backing: VecDeque<(u64, OpId)>,
    /// Tier operations end in the next millisecond.
    tier: Vec<OpId>,
    free_at: u64,
    clients: Vec<Client>,
    asked: BTreeMap<u64, Asked>,
    requests: u64,
    sent: Vec<Pieces>,
}

impl Stand for Bench {
    fn volume(&mut self) -> &mut Volume {
        &mut self.volume
    }

    fn now(&self) -> Instant {
        Instant(self.now)
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { id, result } => {
                let asked = self.asked.remove(&id.0).expect("open");
                let client = &mut self.clients[asked.client];
                client.open -= 1;
                client.done += 1;
                client.longest = client.longest.max(self.now - asked.at);
                self.sent.push(result.expect("nothing fails here"));
            }
            Effect::TierWrite { op, .. } | Effect::TierSync { op } | Effect::TierRead { op, .. } => self.tier.push(op),
            Effect::BackingRead { op, frames, .. } => self.at_backing(op, frames.len() as u64 * BLOCK_BYTES),
            Effect::BackingWrite { op, parts, .. } => {
                self.at_backing(op, parts.iter().map(|part| u64::from(part.length)).sum());
            }
            Effect::BackingSync { op } => self.at_backing(op, 1),
            Effect::Merge { op, .. } => self.handle(Event::Done { op, outcome: Outcome::Merged(0) }),
            Effect::FramesFree | Effect::Answer { .. } => {}
            Effect::Describe { .. } | Effect::Copy { .. } => {}
            other => panic!("not needed here: {other:?}"),
        }
    }
}

impl Bench {
    fn new(kind: TierKind, habits: &[Habit]) -> Bench {
        let layout = match kind {
            TierKind::Memory => TierLayout::memory(BLOCKS),
            TierKind::Flash => TierLayout::flash(4 * BLOCKS),
        }
        .unwrap();
        let frames = if kind == TierKind::Memory { layout.payload_blocks } else { BLOCKS };
        let config = VolumeConfig { frames, ..config(layout, VOLUME_BYTES) };
        let mut volume = Volume::new(config, Instant(SECOND));
        volume.handle(Instant(SECOND), Event::BackingReady);
        let client = |&habit| Client { habit, open: 0, refused_at: None, done: 0, longest: 0 };
        let mut bench = Bench {
            volume,
            now: SECOND,
            backing: VecDeque::new(),
            tier: Vec::new(),
            free_at: 0,
            clients: habits.iter().map(client).collect(),
            asked: BTreeMap::new(),
            requests: 0,
            sent: Vec::new(),
        };
        while bench.work() {
            bench.end_tier_operations();
        }
        bench
    }

    fn end_tier_operations(&mut self) {
        for op in std::mem::take(&mut self.tier) {
            self.done(op);
        }
    }

    fn at_backing(&mut self, op: OpId, bytes: u64) {
        self.free_at = self.free_at.max(self.now) + bytes * SECOND / BACKING_BYTES_PER_S;
        self.backing.push_back((self.free_at, op));
    }

    /// The first clients come first in each round: who is last gets what they leave.
    fn clients_act(&mut self) {
        for client in 0..self.clients.len() {
            while self.ask(client) {}
        }
    }

    /// One more request of this client. False: it is as deep as it goes, or waits for frames.
    fn ask(&mut self, client: usize) -> bool {
        let begun = self.clients[client].refused_at.unwrap_or(self.now);
        let random = |n: u64| (self.requests + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) % n;
        let (depth, bytes, offset) = match self.clients[client].habit {
            Habit::Read { bytes, depth } => (depth, bytes, random(VOLUME_BYTES / u64::from(bytes)) * u64::from(bytes)),
            Habit::Write { bytes, depth } => (depth, bytes, random(VOLUME_BYTES / u64::from(bytes)) * u64::from(bytes)),
            Habit::Unaligned { depth } => (depth, 100, random(VOLUME_BYTES / 4096) * 4096 + 700),
            Habit::Prefetch { bytes, depth } => {
                (depth, bytes, random(VOLUME_BYTES / u64::from(bytes)) * u64::from(bytes))
            }
        };
        if self.clients[client].open >= depth {
            return false;
        }
        let request = match self.clients[client].habit {
            Habit::Read { .. } => Request::Read { offset, length: bytes },
            Habit::Prefetch { .. } => Request::Prefetch { offset, length: bytes },
            Habit::Write { .. } | Habit::Unaligned { .. } => {
                let mut frames = Frames::new();
                let count = u64::from(bytes).div_ceil(BLOCK_BYTES) as u32;
                if !self.volume.take_frames(ClientId(client as u32), count, &mut frames) {
                    self.clients[client].refused_at = Some(begun);
                    self.clients[client].longest = self.clients[client].longest.max(self.now - begun);
                    return false;
                }
                let payload = frames.iter().map(|&frame| Payload { frame, checksum: 0 }).collect();
                Request::Write { offset, length: bytes, payload, fua: false }
            }
        };
        self.clients[client].refused_at = None;
        self.clients[client].open += 1;
        self.requests += 1;
        self.asked.insert(self.requests, Asked { client, at: begun });
        self.handle(Event::Request { id: RequestId(self.requests), request });
        true
    }

    /// A request of this client that is not by its habit.
    fn hand_in(&mut self, client: usize, id: u64, request: Request) {
        self.clients[client].open += 1;
        self.asked.insert(id, Asked { client, at: self.now });
        self.handle(Event::Request { id: RequestId(id), request });
    }

    fn run(&mut self, seconds: u64) {
        let end = self.now + seconds * SECOND;
        while self.now < end {
            self.now += MILLISECOND;
            while self.backing.front().is_some_and(|(at, _)| *at <= self.now) {
                let (_, op) = self.backing.pop_front().unwrap();
                self.done(op);
            }
            self.end_tier_operations();
            for pieces in std::mem::take(&mut self.sent) {
                self.handle(Event::Sent(pieces));
            }
            // What is freed now is asked for at once by who comes first.
            for _ in 0..4 {
                self.clients_act();
                self.work();
            }
            if self.now.is_multiple_of(100 * MILLISECOND) {
                self.volume.validate();
            }
        }
        // Who waits still counts as well.
        for Asked { client, at } in self.asked.values() {
            let longest = &mut self.clients[*client].longest;
            *longest = (*longest).max(self.now - at);
        }
    }
}

/// Runs the clients beside each other on both tiers and asserts that none of them waits long.
#[track_caller]
fn nobody_waits_long(habits: &[Habit]) {
    for kind in [TierKind::Memory, TierKind::Flash] {
        let mut bench = Bench::new(kind, habits);
        bench.run(RUN_SECONDS);
        let told: Vec<_> = bench.clients.iter().map(|c| (c.done, c.longest as f64 / MILLISECOND as f64)).collect();
        println!("{kind:?}: done, longest wait in ms: {told:?}");
        for (i, client) in bench.clients.iter().enumerate() {
            assert!(client.done > 0 && client.longest < WAIT_MAX, "{kind:?}: client {i} is starved: {told:?}");
        }
    }
}

const DEEP_READS: Habit = Habit::Read { bytes: 1 << 20, depth: 8 };

#[test]
fn deep_large_reads_do_not_starve_writes() {
    nobody_waits_long(&[DEEP_READS, DEEP_READS, DEEP_READS, Habit::Write { bytes: 4096, depth: 1 }]);
}

#[test]
fn deep_large_reads_do_not_starve_large_writes() {
    nobody_waits_long(&[DEEP_READS, DEEP_READS, Habit::Write { bytes: 1 << 20, depth: 1 }]);
}

#[test]
fn deep_reads_do_not_starve_writes_that_must_read_before() {
    nobody_waits_long(&[DEEP_READS, DEEP_READS, Habit::Unaligned { depth: 4 }]);
}

#[test]
fn deep_writes_do_not_starve_reads() {
    let write = Habit::Write { bytes: 16 << 10, depth: 64 };
    nobody_waits_long(&[
        write,
        write,
        write,
        Habit::Read { bytes: 4096, depth: 1 },
        Habit::Read { bytes: 1 << 20, depth: 1 },
    ]);
}

#[test]
fn small_writes_do_not_overtake_a_large_one_for_ever() {
    let small = Habit::Write { bytes: 16 << 10, depth: 64 };
    nobody_waits_long(&[DEEP_READS, small, small, Habit::Write { bytes: 1500 << 10, depth: 1 }]);
}

#[test]
fn reads_of_what_is_in_memory_go_on_beside_reads_that_wait_for_frames() {
    let mut bench = Bench::new(TierKind::Memory, &[DEEP_READS, DEEP_READS]);
    // Three blocks in the log.
    let mut frames = Frames::new();
    assert!(bench.volume.take_frames(ClientId(9), 3, &mut frames));
    let payload = frames.iter().map(|&frame| Payload { frame, checksum: 0 }).collect();
    let request = Request::Write { offset: 0, length: 3 * 4096, payload, fua: false };
    bench.clients.push(Client {
        habit: Habit::Read { bytes: 4096, depth: 0 },
        open: 2,
        refused_at: None,
        done: 0,
        longest: 0,
    });
    bench.asked.insert(u64::MAX, Asked { client: 2, at: bench.now });
    bench.handle(Event::Request { id: RequestId(u64::MAX), request });
    bench.work();
    bench.clients_act();
    bench.work();
    assert!(bench.asked.len() == 16, "reads wait for frames");
    let answered = bench.clients[2].done;
    bench.asked.insert(u64::MAX, Asked { client: 2, at: bench.now });
    let request = Request::Read { offset: 4096, length: 4096 };
    bench.handle(Event::Request { id: RequestId(u64::MAX), request });
    bench.work();
    assert_eq!(bench.clients[2].done, answered + 1, "what needs no frame is answered at once");
}

/// They are of one client or of many; what a read waits for is the part that is under way.
#[test]
fn prefetches_keep_a_read_waiting_for_one_part_of_one_of_them() {
    let prefetches = Habit::Prefetch { bytes: 1 << 20, depth: 20 };
    let reads = Habit::Read { bytes: 4096, depth: 1 };
    let large = Habit::Read { bytes: 1 << 20, depth: 1 };
    for kind in [TierKind::Memory, TierKind::Flash] {
        let mut bench = Bench::new(kind, &[prefetches, prefetches, prefetches, reads, large]);
        bench.run(RUN_SECONDS);
        let longest: Vec<u64> = bench.clients.iter().map(|client| client.longest / MILLISECOND).collect();
        assert!(longest[3] <= 20 && longest[4] <= 30, "{kind:?}: waited so many ms: {longest:?}");
        assert!(bench.clients.iter().all(|client| client.done >= 10), "{kind:?}: nobody is starved");
    }
}

#[test]
fn prefetches_do_not_starve_writes() {
    let prefetches = Habit::Prefetch { bytes: 64 << 20, depth: 100 };
    let write = Habit::Write { bytes: 1 << 20, depth: 1 };
    for kind in [TierKind::Memory, TierKind::Flash] {
        let mut bench = Bench::new(kind, &[prefetches, write, Habit::Unaligned { depth: 4 }]);
        bench.run(RUN_SECONDS);
        let waited = bench.clients.iter().map(|client| client.longest / MILLISECOND).collect::<Vec<_>>();
        assert!(waited[1] < 1000 && waited[2] < 1000, "{kind:?}: waited so many ms: {waited:?}");
    }
}

/// A hint waits for its turn as long as few do, and is not read in crumbs.
#[test]
fn a_prefetch_of_what_is_cached_in_part_asks_for_little_at_a_time_and_of_too_many_some_end_at_once() {
    let mut bench = Bench::new(TierKind::Flash, &[Habit::Prefetch { bytes: 1 << 20, depth: 0 }]);
    for block in (0..256).step_by(2) {
        bench.hand_in(0, 1000 + block, Request::Read { offset: block * BLOCK_BYTES, length: 4096 });
    }
    bench.run(1);
    for id in 0..200 {
        bench.hand_in(0, id, Request::Prefetch { offset: 0, length: 1 << 20 });
    }
    bench.work();
    assert_eq!((bench.backing.len(), bench.clients[0].done), (4, 128 + 136));
    bench.run(1);
    assert_eq!(bench.clients[0].done, 128 + 200);
    let before = bench.volume.status(Instant(bench.now)).counters.backing_reads;
    bench.hand_in(0, 1, Request::Read { offset: 0, length: 1 << 20 });
    bench.run(1);
    assert_eq!(bench.volume.status(Instant(bench.now)).counters.backing_reads, before);
}

/// A prefetch of half the arena, and more, beside nobody: what it was asked for is cached then.
#[test]
fn a_prefetch_may_be_larger_than_any_read_and_is_answered_when_its_blocks_are_cached() {
    for kind in [TierKind::Memory, TierKind::Flash] {
        let mut bench =
            Bench::new(kind, &[Habit::Prefetch { bytes: 16 << 20, depth: 1 }, Habit::Read { bytes: 4096, depth: 0 }]);
        assert!(bench.volume.request_bytes_max() < 16 << 20);
        let half = u64::from(BLOCKS / 2 - 16) * BLOCK_BYTES;
        let read = |bench: &mut Bench, offset: u64| {
            let before = bench.volume.status(Instant(bench.now)).counters.backing_reads;
            bench.hand_in(1, u64::MAX, Request::Read { offset, length: 4096 });
            bench.work();
            bench.volume.status(Instant(bench.now)).counters.backing_reads - before
        };
        bench.hand_in(0, 1, Request::Prefetch { offset: 4096, length: 16 << 20 });
        bench.clients[0].habit = Habit::Prefetch { bytes: 4096, depth: 0 };
        bench.run(1);
        assert_eq!(bench.clients[0].done, 1, "{kind:?}");
        assert_eq!(
            (read(&mut bench, 4096), read(&mut bench, half)),
            (0, 0),
            "{kind:?}: both ends of half an arena are cached"
        );
        assert_eq!(read(&mut bench, 0), 1, "{kind:?}");
        // What is there need not be brought.
        let before = bench.volume.status(Instant(bench.now)).counters.backing_reads;
        bench.hand_in(0, 2, Request::Prefetch { offset: 4096, length: 4 << 20 });
        bench.run(1);
        assert_eq!(bench.clients[0].done, 2, "{kind:?}");
        assert_eq!(bench.volume.status(Instant(bench.now)).counters.backing_reads, before, "{kind:?}");
    }
}

/// Nothing comes from the backing any more.
#[test]
fn prefetches_end_after_ten_seconds_or_when_the_volume_stops_and_not_after_a_hang_up() {
    for (stops, drain) in [(false, false), (true, false), (true, true)] {
        let mut bench = Bench::new(TierKind::Flash, &[Habit::Prefetch { bytes: 1 << 20, depth: 0 }]);
        for id in 0..40 {
            bench.hand_in(0, id, Request::Prefetch { offset: id << 20, length: 1 << 20 });
        }
        bench.work();
        assert_eq!(bench.backing.len(), 1, "one part at a time");
        // Of one whose part is under way, and of one that waits: a reply would be one to nobody.
        for gone in [0, 7] {
            bench.asked.remove(&gone);
            bench.handle(Event::Hangup(vec![RequestId(gone)]));
        }
        let begun = bench.now;
        bench.now += SECOND;
        bench.work();
        assert_eq!(bench.clients[0].done, 0);
        if stops {
            bench.handle(Event::Control { id: ControlId(1), command: Control::Stop { drain } });
            for _ in 0..10 {
                bench.work();
                bench.end_tier_operations();
            }
        }
        while !stops && bench.clients[0].done < 38 && bench.now < begun + 20 * SECOND {
            bench.now = bench.volume.poll_timeout().expect("it has a bound").0;
            bench.work();
        }
        assert_eq!(
            (bench.clients[0].done, bench.backing.len()),
            (38, 1),
            "all the others have ended, and nothing more was begun"
        );
        assert!(bench.now <= begun + 11 * SECOND);
        bench.volume.validate();
        if stops {
            let phase = bench.volume.status(Instant(bench.now)).phase;
            assert_eq!(phase, Phase::Stopped, "a hint that hangs keeps nobody waiting");
        } else {
            bench.hand_in(0, 50, Request::Prefetch { offset: 0, length: 4096 });
            assert_eq!(bench.clients[0].done, 38);
            bench.work();
            assert_eq!(bench.clients[0].done, 39, "nor who asks meanwhile");
        }
    }
}
