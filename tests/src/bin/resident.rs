//! Stands for a server of data: holds memory, where it first ran, works for a while, and then waits for its end.
//!
//! `resident serve MIB SECONDS`: the doctor knows the daemon by `serve`. Copied to another name, it is another server.

use std::hint::black_box;
use std::io::Write;
use std::sync::Barrier;
use std::time::Duration;

/// Threads that share the work.
const THREADS: u32 = 2;
/// Bytes of a page: one that is written makes it there.
const PAGE: usize = 4096;
/// A thread shows where it may run now only when it runs.
const LOOKS_UP: Duration = Duration::from_millis(100);

fn main() {
    let numbers: Vec<u32> = std::env::args().skip(2).filter_map(|word| word.parse().ok()).collect();
    let [mebibytes, seconds] = numbers[..] else { panic!("usage: resident serve MIB SECONDS") };
    let works = Duration::from_secs(seconds.into()) / THREADS;
    let mut memory = vec![0u8; (mebibytes as usize) << 20];
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    let all_worked = Barrier::new(THREADS as usize + 1);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while thread_time() < works {
                    black_box(memory.iter().step_by(PAGE).map(|byte| u64::from(*byte)).sum::<u64>());
                }
                all_worked.wait();
                stay();
            });
        }
        all_worked.wait();
        writeln!(std::io::stdout(), "worked").expect("somebody waits for it");
        stay();
    });
}

/// Waits for the end of the process.
fn stay() -> ! {
    loop {
        std::thread::park_timeout(LOOKS_UP);
    }
}

/// Time on CPUs of the calling thread.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure lives through the call, which writes nothing else.
    let asked = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(asked, 0, "ask for the thread's time: {}", std::io::Error::last_os_error());
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
