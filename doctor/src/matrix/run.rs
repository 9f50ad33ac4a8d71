//! Threads that use memory at the same time, counted over the same windows of time.

use super::kernels::{Kernels, Mix};
use super::place::{Buffer, HUGE_PAGE, pin};
use anyhow::{Context, Result, bail};
use forebay_host::topology::{Cpu, NodeNumber};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes of a stream between two looks at the clock's hand.
const BLOCK: usize = 1 << 20;
/// The same where a delay lies between blocks, so that the delay and not the block makes the rhythm.
const BLOCK_WITH_DELAY: usize = 16 << 10;
/// Steps of a chase between two looks.
const STEPS: usize = 1024;
/// Distance between the elements of a chase: two lines, because CPUs fetch a line's neighbour as well.
const GRAIN: usize = 128;
/// Before anything is counted: clocks rise, cores leave their sleep states.
const WARM_UP: Duration = Duration::from_millis(200);

/// What one thread does.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    /// Goes over its buffer again and again, and waits between blocks.
    Stream {
        /// The mix of reads and writes.
        mix: Mix,
        /// How long it waits after each block.
        pause: Duration,
    },
    /// Follows a chain through its buffer, each step to where the one before says.
    Chase,
    /// Keeps its core, and with it its socket, awake.
    Spin,
}

/// What one thread does, and where.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// The CPU that it is kept on.
    pub cpu: Cpu,
    /// NUMA node of its buffer.
    pub memory: NodeNumber,
    /// Size of its buffer in bytes.
    pub bytes: usize,
    /// What it does with its buffer.
    pub task: Task,
}

/// How long is counted, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// How many windows are counted.
    pub count: usize,
    /// How long each window is.
    pub length: Duration,
}

/// What the threads did in all windows.
#[derive(Clone, Debug)]
pub struct Counted {
    /// For each window, what each worker did in a second: bytes of the program, or steps.
    pub rates: Vec<Vec<f64>>,
    /// All buffers are in huge pages.
    pub huge: bool,
}

impl Counted {
    /// Median over the windows of what some workers did together, and how far the windows are apart, as a share of it.
    pub fn together(&self, which: impl Fn(usize) -> bool) -> (f64, f64) {
        // Not `sum`, which makes -0 of nobody.
        let sum = |window: &Vec<f64>| {
            window.iter().enumerate().filter(|(at, _)| which(*at)).fold(0.0, |sum, (_, rate)| sum + rate)
        };
        median_and_spread(self.rates.iter().map(sum).collect())
    }
}

/// Of some values: the one in the middle, and largest minus smallest as a share of it.
pub fn median_and_spread(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let (Some(&first), Some(&last)) = (values.first(), values.last()) else { return (0.0, 0.0) };
    let median = values[values.len() / 2];
    (median, if median > 0.0 { (last - first) / median } else { 0.0 })
}

/// The time that no one sets or slews.
fn now() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the one value. It has this clock since 2.6.28.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Phases: 0 until all are ready, 1 while warm, from 2 on the windows, and at the end this.
const STOP: usize = usize::MAX;

/// Lets the workers run together, and counts. `bind`: the host has several nodes.
pub fn run(workers: &[Worker], windows: Windows, bind: bool) -> Result<Counted> {
    let (phase, ready, failed) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter()
            .map(|worker| {
                let (phase, ready, failed) = (&phase, &ready, &failed);
                std::thread::Builder::new().name(format!("matrix-{}", worker.cpu)).spawn_scoped(
                    scope,
                    move || -> Result<(Vec<u64>, bool)> {
                        let made = Worker::prepare(worker, bind);
                        failed.fetch_or(made.is_err(), Ordering::Relaxed);
                        ready.fetch_add(1, Ordering::Release);
                        let buffer = made?;
                        let huge = buffer.as_ref().is_none_or(Buffer::is_huge);
                        while phase.load(Ordering::Relaxed) == 0 {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        Ok((worker.work(buffer.as_ref(), windows.count, phase), huge))
                    },
                )
            })
            .collect();
        let unstarted = threads.iter().filter(|thread| thread.is_err()).count();
        while ready.load(Ordering::Acquire) + unstarted < workers.len() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut lengths = Vec::with_capacity(windows.count);
        if unstarted == 0 && !failed.load(Ordering::Relaxed) {
            phase.store(1, Ordering::Relaxed);
            std::thread::sleep(WARM_UP);
            let mut begin = now();
            for window in 0..=windows.count {
                let before = now();
                phase.store(if window < windows.count { 2 + window } else { STOP }, Ordering::Relaxed);
                if window > 0 {
                    // From before the one store to after the other: where this thread had to wait in between, too little is told, never too much.
                    lengths.push((now() - begin).as_secs_f64());
                }
                begin = before;
                if window < windows.count {
                    std::thread::sleep(windows.length);
                }
            }
        }
        phase.store(STOP, Ordering::Relaxed);
        let mut counted = Counted { rates: vec![Vec::new(); windows.count], huge: true };
        for thread in threads {
            let thread = thread.context("start a thread")?;
            let Ok(done) = thread.join() else { bail!("a measuring thread panicked") };
            let (counts, huge) = done?;
            counted.huge &= huge;
            // Where another thread has failed, there are no windows; its error is returned when its turn comes.
            for ((window, count), length) in counted.rates.iter_mut().zip(counts).zip(&lengths) {
                window.push(count as f64 / length);
            }
        }
        Ok(counted)
    })
}

impl Worker {
    fn prepare(&self, bind: bool) -> Result<Option<Buffer>> {
        pin(self.cpu)?;
        match self.task {
            Task::Spin => Ok(None),
            Task::Stream { .. } => Buffer::on(self.memory, self.bytes, bind).map(Some),
            Task::Chase => {
                let buffer = Buffer::on(self.memory, self.bytes, bind)?;
                link(&buffer);
                Ok(Some(buffer))
            }
        }
    }

    /// Works until it is told to stop; what it did in each window.
    fn work(&self, buffer: Option<&Buffer>, windows: usize, phase: &AtomicUsize) -> Vec<u64> {
        let mut counts = vec![0; windows];
        let mut count = |done: u64| {
            let phase = phase.load(Ordering::Relaxed);
            // What was begun in the window before counts to this one, and so on: nothing is lost.
            if let Some(count) = phase.checked_sub(2).and_then(|window| counts.get_mut(window)) {
                *count += done;
            }
            phase != STOP
        };
        match (self.task, buffer) {
            (Task::Stream { mix, pause }, Some(buffer)) => stream(buffer, mix, pause, &mut count),
            (Task::Chase, Some(buffer)) => chase(buffer, &mut count),
            _ => {
                while count(0) {
                    std::hint::spin_loop();
                }
            }
        }
        counts
    }
}

fn stream(buffer: &Buffer, mix: Mix, pause: Duration, count: &mut impl FnMut(u64) -> bool) {
    let kernels = Kernels::best();
    let block = if pause.is_zero() { BLOCK } else { BLOCK_WITH_DELAY };
    // Whole blocks in each of the streams; what is left at the end stays unused.
    let part = buffer.bytes() / mix.streams() / block * block;
    // SAFETY: parts of the buffer, one behind the other.
    let part_at =
        |number: usize| unsafe { buffer.address().add(if number < mix.streams() { number * part } else { 0 }) };
    let parts = [0, 1, 2].map(part_at);
    loop {
        for at in (0..part).step_by(block) {
            // SAFETY: `at` is within the part, and so is the block, which begins at a multiple of 16 KiB; the buffer is this thread's alone.
            // The streams that a mix does not have are not used.
            unsafe { kernels.run(mix, parts.map(|part| part.add(at)), block) };
            if !pause.is_zero() {
                let until = now() + pause;
                while now() < until {
                    std::hint::spin_loop();
                }
            }
            if !count((block * mix.streams()) as u64) {
                return;
            }
        }
    }
}

/// One cycle through all elements of a buffer in random order (Sattolo): no prefetcher sees the next step, and none is left out.
fn link(buffer: &Buffer) {
    let elements = buffer.bytes() / GRAIN;
    // SAFETY: an element of the buffer, which this thread alone knows; 128 is a multiple of a word's size.
    let at = |element: usize| unsafe { &mut *buffer.address().add(element * GRAIN).cast::<usize>() };
    (0..elements).for_each(|element| *at(element) = element);
    let mut seed = 0x2545_F491_4F6C_DD1D_u64;
    for last in (1..elements).rev() {
        // xorshift64: only the order has to look random.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let other = (seed % last as u64) as usize;
        let moved = *at(last);
        *at(last) = *at(other);
        *at(other) = moved;
    }
}

fn chase(buffer: &Buffer, count: &mut impl FnMut(u64) -> bool) {
    let mut element = 0usize;
    loop {
        for _ in 0..STEPS {
            // SAFETY: `link` has put the number of an element at each.
            element = unsafe { buffer.address().add(element * GRAIN).cast::<usize>().read_volatile() };
        }
        if !count(STEPS as u64) {
            return;
        }
    }
}

/// Rounds a buffer's size up so that each mix's streams are whole blocks.
pub fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of(3 * HUGE_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chase_visits_each_element_once_before_it_comes_back() {
        let buffer = Buffer::on(0, 1 << 20, false).expect("mapped");
        link(&buffer);
        let elements = buffer.bytes() / GRAIN;
        // SAFETY: an element of the buffer.
        let next = |element: usize| unsafe { buffer.address().add(element * GRAIN).cast::<usize>().read() };
        let (mut at, mut steps) = (next(0), 1);
        while at != 0 {
            (at, steps) = (next(at), steps + 1);
            assert!(steps <= elements, "a cycle that leaves out element 0");
        }
        assert_eq!(steps, elements);
    }

    #[test]
    fn the_middle_of_the_windows_counts_and_their_spread_is_told() {
        assert_eq!(median_and_spread(vec![11.0, 9.0, 10.0]), (10.0, 0.2));
        assert_eq!(median_and_spread(vec![]), (0.0, 0.0));
        let counted = Counted { rates: vec![vec![1.0, 5.0], vec![2.0, 6.0], vec![3.0, 7.0]], huge: true };
        assert_eq!(counted.together(|at| at == 0), (2.0, 1.0));
        assert_eq!(counted.together(|_| true).0, 8.0);
    }

    #[test]
    fn a_worker_that_cannot_start_ends_all_with_its_reason() {
        let cpu = forebay_io::numa::allowed_cpus().expect("asked")[0];
        let stream = Task::Stream { mix: Mix::Read, pause: Duration::ZERO };
        let worker = Worker { cpu, memory: 0, bytes: 6 << 20, task: stream };
        let windows = Windows { count: 1, length: Duration::from_millis(20) };
        let error = run(&[worker, Worker { cpu: 8191, ..worker }], windows, false).expect_err("no such CPU");
        assert!(error.to_string().contains("CPU 8191"), "{error}");
    }
}
