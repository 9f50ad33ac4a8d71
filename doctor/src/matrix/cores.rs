//! How long a line takes from one core to another: two threads that wait for each other.

use super::place::{Buffer, HUGE_PAGE, pin};
use super::run::median_and_spread;
use anyhow::{Result, bail};
use forebay_host::topology::{Cpu, CpuPlace, NodeNumber, Topology};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Round trips in one sample: enough that reading the clock does not count.
const ROUND_TRIPS: u32 = 1000;
/// Samples of a pair.
const SAMPLES: usize = 300;
/// Pairs at most: what a large host needs to show each kind, in half a minute.
const PAIRS_MAX: usize = 64;
/// Words of two different lines: two lines, because CPUs fetch a line's neighbour as well.
const APART: usize = 128;

/// How two CPUs are related, the nearest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// They are threads of one core.
    SameCore,
    /// Cores below one last cache.
    SameCache,
    /// They are cores of one socket, below different last caches.
    SameSocket,
    /// They are cores of two sockets.
    OtherSocket,
}

/// How two CPUs of a host are related.
fn relation(a: &CpuPlace, b: Cpu, b_place: &CpuPlace) -> Relation {
    match () {
        () if a.package != b_place.package => Relation::OtherSocket,
        () if a.core == b_place.core => Relation::SameCore,
        () if a.shares_cache.contains(&b) => Relation::SameCache,
        () => Relation::SameSocket,
    }
}

/// How long one way between two CPUs takes, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct OneWay {
    /// The fastest of the samples.
    pub min: f64,
    /// The one in the middle.
    pub median: f64,
}

/// Two CPUs, and a line between them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Pair {
    /// The CPU of one of the two threads.
    pub a: Cpu,
    /// The CPU of the other thread.
    pub b: Cpu,
    /// How the two are related.
    pub relation: Relation,
    /// Node of the memory that the lines belong to: its home agent is asked on some machines.
    pub memory: NodeNumber,
    /// Both change one line, by compare and swap.
    pub swap: OneWay,
    /// Each writes a line of its own, and reads the other's.
    pub lines: OneWay,
}

/// The pairs that are measured: some of each kind, spread over the host.
pub fn choose(topology: &Topology, cpus: &[Cpu]) -> Vec<(Cpu, Cpu, Relation)> {
    let mut kinds: BTreeMap<Relation, Vec<(Cpu, Cpu)>> = BTreeMap::new();
    for (at, &a) in cpus.iter().enumerate() {
        for &b in &cpus[at + 1..] {
            let (Some(place), Some(other)) = (topology.cpus.get(&a), topology.cpus.get(&b)) else { continue };
            kinds.entry(relation(place, b, other)).or_default().push((a, b));
        }
    }
    let each = PAIRS_MAX / kinds.len().max(1);
    let spread = |(relation, pairs): (Relation, Vec<(Cpu, Cpu)>)| {
        let count = pairs.len().min(each);
        (0..count).map(move |number| {
            let (a, b) = pairs[number * pairs.len() / count];
            (a, b, relation)
        })
    };
    kinds.into_iter().flat_map(spread).collect()
}

/// Measures one pair with lines on one node.
pub fn measure(
    (a, b, relation): (Cpu, Cpu, Relation),
    memory: NodeNumber,
    bind: bool,
    at_most: Duration,
) -> Result<Pair> {
    let swap = one_way(a, b, memory, bind, at_most, [swap_from, swap_back])?;
    let lines = one_way(a, b, memory, bind, at_most, [line_from, line_back])?;
    Ok(Pair { a, b, relation, memory, swap, lines })
}

/// What one side does in one round trip; false: the other side has gone.
type Side = fn(lines: &Lines, round: u32) -> bool;

/// Two words, each in a line of its own, on a node.
struct Lines<'a> {
    first: &'a AtomicU32,
    second: &'a AtomicU32,
    gone: &'a AtomicBool,
}

/// Waits for a word to change as `done` says.
fn until(lines: &Lines, done: impl Fn() -> bool) -> bool {
    while !done() {
        if lines.gone.load(Ordering::Relaxed) {
            return false;
        }
        spin_loop();
    }
    true
}

fn swapped(word: &AtomicU32, from: u32, to: u32) -> bool {
    word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

fn swap_from(lines: &Lines, _: u32) -> bool {
    until(lines, || swapped(lines.first, 0, 1))
}

fn swap_back(lines: &Lines, _: u32) -> bool {
    until(lines, || swapped(lines.first, 1, 0))
}

fn line_from(lines: &Lines, round: u32) -> bool {
    lines.first.store(round, Ordering::Release);
    until(lines, || lines.second.load(Ordering::Acquire) == round)
}

fn line_back(lines: &Lines, round: u32) -> bool {
    let came = until(lines, || lines.first.load(Ordering::Acquire) == round);
    lines.second.store(round, Ordering::Release);
    came
}

fn one_way(
    a: Cpu,
    b: Cpu,
    memory: NodeNumber,
    bind: bool,
    at_most: Duration,
    [from, back]: [Side; 2],
) -> Result<OneWay> {
    let gone = AtomicBool::new(false);
    let buffer = Buffer::on(memory, HUGE_PAGE, bind)?;
    // SAFETY: the buffer is 2 MiB of written memory; a word at each of two multiples of 128, used as atomics only, and for less long than it lives.
    let word = |line: usize| unsafe { &*buffer.address().add(line * APART).cast::<AtomicU32>() };
    let lines = Lines { first: word(0), second: word(1), gone: &gone };
    lines.first.store(0, Ordering::Relaxed);
    lines.second.store(0, Ordering::Relaxed);
    let samples = std::thread::scope(|scope| {
        let lines = &lines;
        let answering = scope.spawn(move || {
            let pinned = pin(b);
            if pinned.is_err() {
                lines.gone.store(true, Ordering::Relaxed);
            }
            let mut round = 0u32;
            while pinned.is_ok() && back(lines, round.wrapping_add(1)) {
                round = round.wrapping_add(1);
            }
            pinned
        });
        let asking = scope.spawn(move || {
            let samples = pin(a).map(|()| ask(lines, from, at_most));
            lines.gone.store(true, Ordering::Relaxed);
            samples
        });
        let (answered, asked) = (answering.join(), asking.join());
        match (answered, asked) {
            (Ok(answered), Ok(asked)) => answered.and(asked),
            _ => bail!("a measuring thread panicked"),
        }
    })?;
    let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
    if min.is_infinite() {
        bail!("CPU {a} and CPU {b} did not once run at the same time for long enough");
    }
    Ok(OneWay { min, median: median_and_spread(samples).0 })
}

/// Samples in nanoseconds one way; fewer where the time is up.
fn ask(lines: &Lines, from: Side, at_most: Duration) -> Vec<f64> {
    let end = Instant::now() + at_most;
    let mut samples = Vec::with_capacity(SAMPLES);
    let mut round = 0u32;
    while samples.len() < SAMPLES && (samples.is_empty() || Instant::now() < end) {
        let begin = Instant::now();
        for _ in 0..ROUND_TRIPS {
            round = round.wrapping_add(1);
            if !from(lines, round) {
                return samples;
            }
        }
        // The word is taken and given: a round trip is twice the way.
        samples.push(begin.elapsed().as_secs_f64() * 1e9 / f64::from(ROUND_TRIPS) / 2.0);
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets, four cores each in two groups of a cache, two threads a core.
    fn host() -> Topology {
        let cpus = (0..16).map(|cpu| {
            let (core, package) = (cpu % 8, cpu % 8 / 4);
            let shares_cache = (0..16).filter(|other| other % 8 / 2 == core / 2).collect();
            (cpu, CpuPlace { node: package, package, core, shares_cache, cache_bytes: 1 << 20 })
        });
        Topology { cpus: cpus.collect(), ..Topology::default() }
    }

    #[test]
    fn each_kind_of_pair_is_measured_and_none_twice() {
        let topology = host();
        let cpus: Vec<Cpu> = topology.cpus.keys().copied().collect();
        let pairs = choose(&topology, &cpus);
        let of = |relation| pairs.iter().filter(|pair| pair.2 == relation).count();
        assert_eq!(of(Relation::SameCore), 8);
        assert_eq!(of(Relation::SameCache), 16);
        assert_eq!((of(Relation::SameSocket), of(Relation::OtherSocket)), (16, 16));
        let mut distinct = pairs.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), pairs.len());
        assert!(pairs.contains(&(0, 8, Relation::SameCore)) && pairs.contains(&(0, 1, Relation::SameCache)));
        assert!(choose(&topology, &[3]).is_empty(), "one CPU has no pair");
    }

    #[test]
    fn a_cpu_that_is_not_there_ends_the_measurement_with_its_reason() {
        let here = forebay_io::numa::allowed_cpus().expect("asked")[0];
        let at_most = Duration::from_millis(50);
        for (a, b) in [(here, 8191), (8191, here)] {
            let error = measure((a, b, Relation::SameSocket), 0, false, at_most).expect_err("no such CPU");
            assert!(error.to_string().contains("CPU 8191"), "{error}");
        }
    }
}
