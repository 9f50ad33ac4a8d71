//! Whether payload is packed, and how: decided a few times a second from what was seen, by [`decide`], which is pure.
//!
//! Packing pays where the wire is the bound, CPU is free, and the data gets shorter. With `W` the bytes a second that the
//! wire carries, `r` the ratio, `s` the bytes that a second of CPU packs and `c` the share of a core that may be spent, so
//! much gets through:
//!
//! ```text
//! min(W * r,  W + c * s * (1 - 1/r))      all of it packed, or as much as the CPU manages and the rest as it is
//! ```
//!
//! Invariants:
//! - No more than the budget is spent: each packing is paid for in time of this thread, and where nothing is left a
//!   message goes as it is. The CPU time that the kernel counts is at most that; much less of it means that others take
//!   the CPU that had looked free, and packing would only keep the wire waiting: then it is off.
//! - Data that does not get shorter is left alone, volume by volume, but for a sample now and then.
//! - While it is off for whatever reason, that reason is shown.

use super::compress::{Packed, Packer};
use crate::buffers::Buffers;
use crate::clock;
use forebay_core::types::{Duration, Instant};
use forebay_core::wire::Packing;
use std::collections::HashMap;
use std::fmt;

/// How often it is decided anew.
const PERIOD: Duration = Duration::from_millis(250);
/// One message of so many is tried where it did not pay, or by the other way of packing.
const SAMPLE_ONE_IN: u32 = 64;
/// Less payload is not worth the call.
const PAYLOAD_BYTES_MIN: u64 = 8 << 10;
/// Share of the time that messages must have waited for the wire.
const BOUND_MIN: f64 = 0.5;
/// What comes must be this share of what the wire carries, for packing that is on to stay on.
const DEMAND_MIN: f64 = 0.8;
/// Less of a core is no budget.
const CORES_MIN: f64 = 0.05;
/// Of the time of packing, this share must be CPU time of this thread.
const SHARE_MIN: f64 = 0.5;
/// Judged by so much time of packing: many time slices, because a scheduler that balances two cores takes one away now and
/// then, however much of the other core is idle.
const SHARE_JUDGED_AFTER: Duration = Duration::from_millis(40);
/// How much of what is missing of that share is forgiven in each period in which nothing was packed: after some seconds it
/// is tried again.
const SHARE_FORGIVEN: f64 = 0.05;
/// What is saved must be this share at least: an eighth.
const RATIO_MIN: f64 = 8.0 / 7.0;
/// Cores for each 100 MB/s saved, beyond which it is too dear.
const CORES_PER_SAVED_MAX: f64 = 0.4;
/// What gets through must grow by this much, or it is not worth it; and by as much again for the dearer way.
const GAIN_MIN: f64 = 1.05;
/// CPU time that may be saved up while nothing was packed.
const CREDIT_MAX: f64 = 0.05;
/// Part of a core that the shard keeps for everything else.
const SHARD_RESERVE: f64 = 0.1;
/// Weight of a new measurement; the first ones weigh the same each.
const WEIGHT: f64 = 0.02;
/// So many tell what a way of packing does: the first ones run on cold caches.
const TRIES_MIN: u32 = 8;

/// What the operator asks for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Compression {
    /// Nothing is ever packed.
    Off,
    /// When it pays, for at most this share of the CPU that would else be idle.
    Auto {
        /// 0 to 1: the part of it that packing may take.
        cpu_share: f64,
    },
}

impl Default for Compression {
    fn default() -> Self {
        Compression::Auto { cpu_share: 0.5 }
    }
}

/// Why payload goes as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhyOff {
    /// The operator wants it so.
    Asked,
    /// The wire carries all that comes.
    WireIdle,
    /// The CPU has nothing to spare.
    NoCpu,
    /// The data does not get shorter.
    Incompressible,
    /// It costs more CPU than it is worth.
    TooDear,
}

impl fmt::Display for WhyOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WhyOff::Asked => "switched off",
            WhyOff::WireIdle => "the wire carries all that comes",
            WhyOff::NoCpu => "no CPU to spare",
            WhyOff::Incompressible => "the data does not get shorter",
            WhyOff::TooDear => "it would cost more CPU than it is worth",
        })
    }
}

/// What is done with payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It goes as it is.
    Off(WhyOff),
    /// It is packed, by LZ4 or zstd.
    Pack(Packing),
}

/// What a way of packing was seen to do with what is sent here.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Skill {
    /// Before to after.
    pub(super) ratio: f64,
    /// Bytes before, for each second of CPU.
    pub(super) rate: f64,
}

/// What was seen in the last period.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Situation {
    /// Share of the time that messages waited although every channel was busy.
    pub(super) bound: f64,
    /// Payload that came, bytes a second.
    pub(super) demand: f64,
    /// Bytes a second that the wire carries; 0: not known.
    pub(super) wire: f64,
    /// Cores that may be spent.
    pub(super) cores: f64,
    /// Of the time of packing, what was CPU time of this thread.
    pub(super) share: f64,
    pub(super) lz4: Option<Skill>,
    pub(super) zstd: Option<Skill>,
}

impl Skill {
    /// Bytes a second that get through.
    fn throughput(&self, situation: &Situation) -> f64 {
        let by_cpu = situation.wire + situation.cores * self.rate * (1.0 - 1.0 / self.ratio);
        (situation.wire * self.ratio).min(by_cpu)
    }

    fn is_dear(&self) -> bool {
        let saved_by_a_core = self.rate * (1.0 - 1.0 / self.ratio);
        1e8 / saved_by_a_core > CORES_PER_SAVED_MAX
    }
}

/// What to do next.
pub(super) fn decide(present: Decision, situation: &Situation) -> Decision {
    let busy = match present {
        Decision::Off(_) => situation.bound >= BOUND_MIN,
        // Packing may have made the queue empty, which is no reason to end it.
        Decision::Pack(_) => situation.bound >= BOUND_MIN || situation.demand >= situation.wire * DEMAND_MIN,
    };
    if !busy {
        return Decision::Off(WhyOff::WireIdle);
    }
    if situation.cores < CORES_MIN || situation.share < SHARE_MIN {
        return Decision::Off(WhyOff::NoCpu);
    }
    let Some(lz4) = situation.lz4 else { return Decision::Pack(Packing::Lz4) };
    if lz4.ratio < RATIO_MIN {
        return Decision::Off(WhyOff::Incompressible);
    }
    let by_lz4 = if lz4.is_dear() { 0.0 } else { lz4.throughput(situation) };
    let zstd = situation.zstd.filter(|zstd| zstd.ratio >= RATIO_MIN && !zstd.is_dear());
    let by_zstd = zstd.map_or(0.0, |zstd| zstd.throughput(situation));
    let enough = situation.wire * GAIN_MIN;
    if by_zstd > by_lz4 * GAIN_MIN && by_zstd > enough {
        Decision::Pack(Packing::Zstd)
    } else if by_lz4 > enough {
        Decision::Pack(Packing::Lz4)
    } else {
        Decision::Off(WhyOff::TooDear)
    }
}

/// What packing has done so far.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CompressionStatus {
    /// What is done now, or why nothing is.
    pub decision: Decision,
    /// Cores that may be spent now.
    pub cores: f64,
    /// Payload bytes that were sent packed, before.
    pub packed_from_bytes: u64,
    /// The same payload bytes as they went out.
    pub packed_to_bytes: u64,
    /// CPU time spent, trials that were of no use included.
    pub cpu: Duration,
    /// Payloads that it was spent on.
    pub tries: u64,
}

impl CompressionStatus {
    /// Before to after; none where nothing was packed.
    pub fn ratio(&self) -> Option<f64> {
        (self.packed_to_bytes > 0).then(|| self.packed_from_bytes as f64 / self.packed_to_bytes as f64)
    }
}

/// A volume whose data did not get shorter, lately.
#[derive(Clone, Copy, Default)]
struct Poor {
    in_a_row: u32,
    /// Messages that go as they are before the next is tried.
    skip: u32,
}

pub(super) struct CompressionPolicy {
    choice: Compression,
    status: CompressionStatus,
    lz4: Learned,
    zstd: Learned,
    volumes: HashMap<[u8; 16], Poor>,
    messages: u32,
    share: f64,
    /// Seconds that may be spent; below zero: that were overspent.
    credit: f64,
    seen_at: Instant,
    was_bound: bool,
    /// Of this period.
    since: Instant,
    bound: Duration,
    came: u64,
    spent: Duration,
    took: Duration,
    cpu: CpuTimes,
}

impl CompressionPolicy {
    pub(super) fn new(choice: Compression, now: Instant) -> CompressionPolicy {
        let why = if choice == Compression::Off { WhyOff::Asked } else { WhyOff::WireIdle };
        let decision = Decision::Off(why);
        let (packed_from_bytes, packed_to_bytes, nothing) = (0, 0, Duration(0));
        CompressionPolicy {
            choice,
            status: CompressionStatus {
                decision,
                cores: 0.0,
                packed_from_bytes,
                packed_to_bytes,
                cpu: nothing,
                tries: 0,
            },
            lz4: Learned::default(),
            zstd: Learned::default(),
            volumes: HashMap::new(),
            messages: 0,
            share: 1.0,
            credit: 0.0,
            seen_at: now,
            was_bound: false,
            since: now,
            bound: nothing,
            came: 0,
            spent: nothing,
            took: nothing,
            cpu: CpuTimes::now(),
        }
    }

    pub(super) fn status(&self) -> CompressionStatus {
        self.status
    }

    /// As if that had been decided, with CPU to spare.
    #[cfg(test)]
    pub(super) fn force(&mut self, packing: Packing) {
        (self.status.decision, self.credit, self.choice) = (Decision::Pack(packing), 1e6, Compression::Off);
    }

    pub(super) fn forget(&mut self, volume: &[u8; 16]) {
        self.volumes.remove(volume);
    }

    /// How it is after a turn: `bound` when messages wait and every channel is busy; `wire` is what they carry.
    pub(super) fn see(&mut self, now: Instant, bound: bool, wire: f64) {
        let Compression::Auto { cpu_share } = self.choice else { return };
        let past = now - self.seen_at;
        self.bound.0 += if self.was_bound { past.0 } else { 0 };
        self.credit = (self.credit + past.as_secs_f64() * self.status.cores).min(CREDIT_MAX);
        (self.seen_at, self.was_bound) = (now, bound);
        let period = now - self.since;
        if period < PERIOD {
            return;
        }
        let cpu = CpuTimes::now();
        let cores = cpu.free_since(&self.cpu, self.spent) * cpu_share;
        let left = 1.0 - SHARD_RESERVE - cpu.thread_share_since(&self.cpu, self.spent, period);
        self.status.cores = cores.min(left).max(0.0);
        if self.spent == Duration(0) {
            self.share += (1.0 - self.share) * SHARE_FORGIVEN;
        }
        let seconds = period.as_secs_f64();
        let situation = Situation {
            bound: self.bound.as_secs_f64() / seconds,
            demand: self.came as f64 / seconds,
            wire,
            cores: self.status.cores,
            share: self.share,
            lz4: self.lz4.known(),
            zstd: self.zstd.known(),
        };
        let next = decide(self.status.decision, &situation);
        if let (Decision::Pack(_), Decision::Off(_)) = (self.status.decision, next) {
            self.lz4.doubt();
            self.zstd.doubt();
        }
        self.status.decision = next;
        (self.since, self.cpu) = (now, cpu);
        (self.bound, self.spent, self.took, self.came) = (Duration(0), Duration(0), Duration(0), 0);
    }

    /// The payload packed, if that is what is done now and it is worth it.
    pub(super) fn pack(&mut self, packer: &mut Packer, volume: [u8; 16], payload: &Buffers) -> Option<Packed> {
        self.came += payload.len();
        if payload.len() < PAYLOAD_BYTES_MIN {
            return None;
        }
        let packing = self.choose(volume)?;
        let (start, before) = (clock::now(), thread_cpu());
        let packed = packer.pack(payload, packing);
        let (time, cpu) = (clock::now() - start, Duration(thread_cpu().0 - before.0));
        self.pay(time, cpu);
        let after = packed.as_ref().map_or(payload.len(), |packed| packed.bytes.len() as u64);
        self.learn(packing, payload.len(), after, cpu);
        let poor = self.volumes.entry(volume).or_default();
        if packed.is_some() {
            *poor = Poor::default();
            self.status.packed_from_bytes += payload.len();
            self.status.packed_to_bytes += after;
        } else {
            poor.in_a_row = (poor.in_a_row + 1).min(SAMPLE_ONE_IN.ilog2());
            poor.skip = (1 << poor.in_a_row) - 1;
        }
        packed
    }

    fn pay(&mut self, time: Duration, cpu: Duration) {
        self.credit -= time.as_secs_f64();
        self.spent.0 += cpu.0;
        self.took.0 += time.0;
        self.status.cpu.0 += cpu.0;
        self.status.tries += 1;
        if self.took >= SHARE_JUDGED_AFTER {
            self.share = (self.spent.as_secs_f64() / self.took.as_secs_f64()).min(1.0);
            if self.share < SHARE_MIN {
                self.status.decision = Decision::Off(WhyOff::NoCpu);
            }
        }
    }

    /// How this message is packed.
    fn choose(&mut self, volume: [u8; 16]) -> Option<Packing> {
        self.messages = self.messages.wrapping_add(1);
        let sample = self.messages.is_multiple_of(SAMPLE_ONE_IN);
        if self.credit <= 0.0 {
            return None;
        }
        match self.status.decision {
            Decision::Off(WhyOff::Asked | WhyOff::WireIdle | WhyOff::NoCpu) => None,
            Decision::Off(WhyOff::Incompressible | WhyOff::TooDear) => sample.then_some(Packing::Lz4),
            Decision::Pack(packing) => {
                let poor = self.volumes.entry(volume).or_default();
                if poor.skip > 0 {
                    poor.skip -= 1;
                    return None;
                }
                let other = if packing == Packing::Lz4 { Packing::Zstd } else { Packing::Lz4 };
                // LZ4 is known before zstd is tried at all.
                Some(if sample && self.lz4.known().is_some() { other } else { packing })
            }
        }
    }

    fn learn(&mut self, packing: Packing, before: u64, after: u64, cpu: Duration) {
        let new = Skill { ratio: before as f64 / after as f64, rate: before as f64 / cpu.as_secs_f64().max(1e-9) };
        match packing {
            Packing::Plain => {}
            Packing::Lz4 => self.lz4.learn(new),
            Packing::Zstd => self.zstd.learn(new),
        }
    }
}

/// What is known of a way of packing.
#[derive(Default)]
struct Learned {
    skill: Option<Skill>,
    tries: u32,
}

impl Learned {
    /// None: not known yet.
    fn known(&self) -> Option<Skill> {
        self.skill.filter(|_| self.tries >= TRIES_MIN)
    }

    fn learn(&mut self, new: Skill) {
        self.tries = self.tries.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(self.tries));
        let old = self.skill.unwrap_or(new);
        // Shares are what add up, and so do times: their inverses are averaged.
        let mean = |old: f64, new: f64| 1.0 / (1.0 / old + (1.0 / new - 1.0 / old) * weight);
        self.skill = Some(Skill { ratio: mean(old.ratio, new.ratio), rate: mean(old.rate, new.rate) });
    }

    /// Packing has ended, and only samples tell whether it should begin again: what comes counts as if little were known.
    fn doubt(&mut self) {
        self.tries = self.tries.min(TRIES_MIN);
    }
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a timespec to `time`.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(result, 0, "every thread has a clock of its own");
    Duration(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// CPU time of the host and of this thread.
struct CpuTimes {
    at: Instant,
    /// Of all cores: nobody ran, or only what yields to everybody (a positive nice value).
    free: Duration,
    thread: Duration,
}

impl CpuTimes {
    fn now() -> CpuTimes {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        CpuTimes { at: clock::now(), free: free_time(&text), thread: thread_cpu() }
    }

    /// Cores that were free, and those that packing had.
    fn free_since(&self, before: &CpuTimes, spent: Duration) -> f64 {
        let seconds = (self.at - before.at).as_secs_f64().max(1e-3);
        (Duration(self.free.0.saturating_sub(before.free.0)).as_secs_f64() + spent.as_secs_f64()) / seconds
    }

    /// Part of a core that this thread had for everything but packing.
    fn thread_share_since(&self, before: &CpuTimes, spent: Duration, period: Duration) -> f64 {
        Duration(self.thread.0.saturating_sub(before.thread.0 + spent.0)).as_secs_f64() / period.as_secs_f64()
    }
}

/// Of `/proc/stat`: the first line has the times of all cores together, in hundredths of a second: user, nice, system,
/// idle, waiting for disks. Where there is none, nothing is known to be free.
fn free_time(stat: &str) -> Duration {
    let fields: Vec<u64> =
        stat.lines().next().unwrap_or("").split_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    match fields[..] {
        [_, nice, _, idle, waiting, ..] => Duration::from_millis((nice + idle + waiting) * 10),
        _ => Duration(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen on 1 Gbit/s with sources and object files, one free core.
    const SOURCES: Situation = Situation {
        bound: 0.98,
        demand: 118e6,
        wire: 118e6,
        cores: 0.5,
        share: 0.98,
        lz4: Some(Skill { ratio: 2.4, rate: 650e6 }),
        zstd: None,
    };
    const ZSTD: Skill = Skill { ratio: 3.4, rate: 500e6 };
    const OFF: Decision = Decision::Off(WhyOff::WireIdle);
    const LZ4: Decision = Decision::Pack(Packing::Lz4);

    #[test]
    fn a_wire_that_carries_everything_is_left_alone() {
        let idle = Situation { bound: 0.02, demand: 40e6, ..SOURCES };
        assert_eq!(decide(OFF, &idle), Decision::Off(WhyOff::WireIdle));
        assert_eq!(decide(LZ4, &idle), Decision::Off(WhyOff::WireIdle));
    }

    #[test]
    fn a_wire_that_is_the_bound_is_relieved() {
        assert_eq!(decide(OFF, &Situation { lz4: None, ..SOURCES }), LZ4, "LZ4 is tried first");
        assert_eq!(decide(OFF, &SOURCES), LZ4);
        // Half a core packs 250 MB/s by zstd, and LZ4 brings 283 MB/s through; with 0.8 of one it is 400 MB/s and still 283.
        assert_eq!(decide(LZ4, &Situation { zstd: Some(ZSTD), ..SOURCES }), LZ4);
        let more_cpu = Situation { zstd: Some(ZSTD), cores: 0.8, ..SOURCES };
        assert_eq!(decide(LZ4, &more_cpu), Decision::Pack(Packing::Zstd));
        let slow_zstd = Skill { rate: 200e6, ..ZSTD };
        assert_eq!(decide(LZ4, &Situation { zstd: Some(slow_zstd), ..more_cpu }), LZ4);
        let same_ratio = Skill { ratio: 2.45, ..ZSTD };
        assert_eq!(decide(LZ4, &Situation { zstd: Some(same_ratio), ..more_cpu }), LZ4, "not for two in a hundred");
    }

    #[test]
    fn what_has_made_the_queue_empty_stays_on() {
        let relieved = Situation { bound: 0.1, demand: 200e6, ..SOURCES };
        assert_eq!(decide(LZ4, &relieved), LZ4);
        assert_eq!(decide(OFF, &relieved), Decision::Off(WhyOff::WireIdle));
    }

    #[test]
    fn without_cpu_nothing_is_packed() {
        assert_eq!(decide(LZ4, &Situation { cores: 0.01, ..SOURCES }), Decision::Off(WhyOff::NoCpu));
        assert_eq!(decide(OFF, &Situation { cores: 0.01, lz4: None, ..SOURCES }), Decision::Off(WhyOff::NoCpu));
        let crowded = Situation { share: 0.3, ..SOURCES };
        assert_eq!(decide(LZ4, &crowded), Decision::Off(WhyOff::NoCpu), "what looked free is taken by others");
        // On 25 Gbit/s half a core would bring a hundredth more.
        let fast = Situation { wire: 3e9, demand: 3e9, cores: 0.2, ..SOURCES };
        assert_eq!(decide(LZ4, &fast), Decision::Off(WhyOff::TooDear));
    }

    #[test]
    fn what_does_not_get_shorter_is_left_alone() {
        let noise = Situation { lz4: Some(Skill { ratio: 1.0, rate: 5e9 }), ..SOURCES };
        assert_eq!(decide(LZ4, &noise), Decision::Off(WhyOff::Incompressible));
        // 0.45 of a core for each 100 MB/s saved.
        let dear = Situation { lz4: Some(Skill { ratio: 1.5, rate: 660e6 }), ..SOURCES };
        assert_eq!(decide(LZ4, &dear), Decision::Off(WhyOff::TooDear));
    }

    fn payload(arena: &mut crate::Arena, noise: bool) -> Buffers {
        let (mut buffers, mut state) = (Buffers::none(), 1u64);
        for frame in 0..16 {
            for byte in arena.bytes_mut(forebay_core::types::FrameId(frame)) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = if noise { (state >> 56) as u8 } else { (state >> 62) as u8 };
            }
            buffers.push_frame(arena, forebay_core::types::FrameId(frame), 0, 4096);
        }
        buffers
    }

    fn governor(decision: Decision, credit: f64) -> CompressionPolicy {
        let mut governor = CompressionPolicy::new(Compression::default(), Instant(0));
        (governor.status.decision, governor.credit) = (decision, credit);
        governor
    }

    #[test]
    fn a_volume_of_noise_is_tried_less_and_less_and_others_are_not_kept_from_packing() {
        let mut arena = crate::Arena::anonymous(16, false).unwrap();
        let noise = payload(&mut arena, true);
        let mut packer = Packer::new();
        let mut governor = governor(LZ4, 1e6);
        let mut tried = 0;
        for _ in 0..1000 {
            let before = governor.status.cpu;
            assert!(governor.pack(&mut packer, [1; 16], &noise).is_none());
            tried += u32::from(governor.status.cpu > before);
        }
        assert!((15..=25).contains(&tried), "{tried} of 1000");
        let mut arena = crate::Arena::anonymous(16, false).unwrap();
        let text = payload(&mut arena, false);
        assert!(governor.pack(&mut packer, [2; 16], &text).is_some());
        assert!(governor.status().ratio().unwrap() > 1.5);
    }

    #[test]
    fn the_budget_is_not_overspent() {
        let mut arena = crate::Arena::anonymous(16, false).unwrap();
        let text = payload(&mut arena, false);
        let mut packer = Packer::new();
        let mut governor = governor(LZ4, 0.001);
        governor.status.cores = 0.25;
        let packed = (0..10_000).filter(|_| governor.pack(&mut packer, [2; 16], &text).is_some()).count();
        assert!(packed > 0 && packed < 1000, "{packed} for a millisecond of CPU");
        assert!(governor.status.cpu < Duration::from_millis(10), "{:?}", governor.status.cpu);
        // Time brings new credit, at a quarter of a core.
        governor.see(Instant(100_000_000), true, 1e8);
        assert!(governor.pack(&mut packer, [2; 16], &text).is_some());
    }

    #[test]
    fn cpu_that_others_take_ends_it_at_once_and_for_some_seconds() {
        let mut governor = governor(LZ4, 1e6);
        let start = governor.since;
        (0..4).for_each(|_| governor.pay(Duration::from_millis(10), Duration::from_millis(2)));
        assert_eq!(governor.status().decision, Decision::Off(WhyOff::NoCpu));
        governor.spent = Duration(0);
        let mut at = start;
        let mut again_after = None;
        for period in 1..200u64 {
            at = at + PERIOD;
            // All of a core is free, as far as the host tells.
            governor.cpu.free.0 = governor.cpu.free.0.saturating_sub(1_000_000_000);
            governor.was_bound = true;
            governor.see(at, true, 118e6);
            if governor.status().decision == LZ4 && again_after.is_none() {
                again_after = Some(period);
            }
        }
        assert!(again_after.is_some_and(|periods| (8..60).contains(&periods)), "{again_after:?} periods");
    }

    #[test]
    fn the_first_packings_on_cold_caches_do_not_end_it_and_a_slow_core_does() {
        let slow = Skill { ratio: 2.4, rate: 150e6 };
        let usual = Skill { ratio: 2.4, rate: 650e6 };
        let mut lz4 = Learned::default();
        (1..TRIES_MIN).for_each(|_| lz4.learn(slow));
        assert_eq!(lz4.known(), None);
        (0..100).for_each(|_| lz4.learn(usual));
        assert!(lz4.known().is_some_and(|skill| !skill.is_dear()), "{:?}", lz4.known());
        (0..5).for_each(|_| lz4.learn(slow));
        assert!(lz4.known().is_some_and(|skill| !skill.is_dear()), "a few that were slow: {:?}", lz4.known());
        (0..200).for_each(|_| lz4.learn(slow));
        assert!(lz4.known().is_some_and(|skill| skill.is_dear()), "{:?}", lz4.known());
        // Then a few samples tell when that has passed.
        lz4.doubt();
        (0..80).for_each(|_| lz4.learn(usual));
        assert!(lz4.known().is_some_and(|skill| !skill.is_dear()), "{:?}", lz4.known());
    }

    #[test]
    fn what_is_off_by_choice_stays_off() {
        let mut arena = crate::Arena::anonymous(16, false).unwrap();
        let text = payload(&mut arena, false);
        let mut governor = CompressionPolicy::new(Compression::Off, Instant(0));
        (0..100).for_each(|i| governor.see(Instant(i * 100_000_000), true, 1e8));
        assert!(governor.pack(&mut Packer::new(), [2; 16], &text).is_none());
        assert_eq!(governor.status().decision, Decision::Off(WhyOff::Asked));
    }

    #[test]
    fn a_bound_wire_turns_it_on_by_itself_where_cpu_is_free() {
        let mut governor = CompressionPolicy::new(Compression::default(), clock::now());
        // All of a core was free, whatever else runs on this machine.
        governor.cpu.free.0 = governor.cpu.free.0.saturating_sub(10_000_000_000);
        let start = governor.since;
        for i in 1..=30 {
            governor.see(start + Duration::from_millis(i * 10), true, 118e6);
        }
        assert_eq!(governor.status().decision, LZ4);
        assert!(governor.status().cores > 0.0);
    }

    #[test]
    fn free_time_is_idle_time_and_that_of_the_nice() {
        let stat = "cpu  100 20 30 4000 500 0 7 0 0 0\ncpu0 1 2 3 4 5 6 7 0 0 0\n";
        assert_eq!(free_time(stat), Duration::from_millis(45_200));
        assert_eq!(free_time(""), Duration(0));
    }
}
