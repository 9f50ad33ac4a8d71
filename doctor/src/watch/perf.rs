//! `perf_event_open` for counters beside the cores: each counts on one CPU for all processes. Counting only, no samples.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

/// `struct perf_event_attr` up to its fifth version, which every kernel since 4.1 takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock_id: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attributes>() == 112);

/// PERF_FORMAT_TOTAL_TIME_ENABLED and PERF_FORMAT_TOTAL_TIME_RUNNING.
const TIMES: u64 = 1 | 2;
/// `PERF_FLAG_FD_CLOEXEC`: no program that is started gets the counter.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// A counter of the kernel that is open and counts.
#[derive(Debug)]
pub struct Counter(File);

impl Counter {
    /// Begins to count on a CPU. No bits that exclude anything: counters beside the cores refuse them.
    pub fn open(kind: u32, config: [u64; 3], cpu: u32) -> io::Result<Counter> {
        let attributes = Attributes {
            kind,
            size: size_of::<Attributes>() as u32,
            config: config[0],
            config1: config[1],
            config2: config[2],
            read_format: TIMES,
            ..Attributes::default()
        };
        let (every_process, no_group): (libc::pid_t, libc::c_int) = (-1, -1);
        // SAFETY: the kernel reads as many bytes of the attributes as their size says, which live until it returns.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                every_process,
                cpu as libc::c_int,
                no_group,
                CLOSE_ON_EXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just made it, and nobody else knows it.
        Ok(Counter(unsafe { File::from_raw_fd(fd as libc::c_int) }))
    }

    /// What it has counted since it was opened.
    pub fn read(&mut self) -> io::Result<Count> {
        let mut bytes = [0; 24];
        self.0.read_exact(&mut bytes)?;
        let word = |n: usize| u64::from_ne_bytes(bytes[8 * n..8 * n + 8].try_into().expect("eight bytes"));
        Ok(Count { counted: word(0), enabled_ns: word(1), running_ns: word(2) })
    }
}

/// A counter that shares its register with others is let in for slices of milliseconds, spread over all of the time: a tenth of
/// it is a fair sample, less may be chance.
const FAIR_SAMPLE: f64 = 0.1;

/// What a counter has counted, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// As it stands in its register.
    pub counted: u64,
    /// How long it was to count.
    pub enabled_ns: u64,
    /// How long it did; less where it had to share its register.
    pub running_ns: u64,
}

impl Count {
    /// Where it had to share its register, as much as it would have counted.
    pub fn whole(self) -> f64 {
        match self.running_ns {
            0 => 0.0,
            running => self.counted as f64 * (self.enabled_ns as f64 / running as f64),
        }
    }

    /// Of a second. None: it was let in for less than a fair sample of the time.
    pub fn per_second(self) -> Option<f64> {
        let fair = self.running_ns > 0 && self.running_ns as f64 >= self.enabled_ns as f64 * FAIR_SAMPLE;
        fair.then(|| self.counted as f64 * 1e9 / self.running_ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(counted: u64, enabled_ns: u64, running_ns: u64) -> Count {
        Count { counted, enabled_ns, running_ns }
    }

    #[test]
    fn a_counter_that_shared_its_register_is_scaled() {
        assert_eq!(count(100, 10, 10).whole(), 100.0);
        assert_eq!(count(100, 10, 5).whole(), 200.0);
        assert_eq!(count(0, 10, 0).whole(), 0.0);
    }

    #[test]
    fn a_rate_is_of_the_time_in_which_it_counted_and_a_counter_that_was_hardly_let_in_has_none() {
        assert_eq!(count(100, 400_000_000, 200_000_000).per_second(), Some(500.0));
        assert_eq!(count(0, 400_000_000, 400_000_000).per_second(), Some(0.0));
        assert_eq!(count(100, 400_000_000, 39_000_000).per_second(), None);
        assert_eq!(count(0, 400_000_000, 0).per_second(), None);
        assert_eq!(count(0, 0, 0).per_second(), None);
    }

    #[test]
    fn the_kernel_takes_the_call_and_the_count_grows_or_it_says_why_not() {
        // PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK: it is there on every host.
        match Counter::open(1, [0; 3], 0) {
            Ok(mut counter) => {
                let first = counter.read().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(counter.read().unwrap().whole() > first.whole());
            }
            Err(e) => assert!(matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::ENOSYS)), "{e}"),
        }
        let error = Counter::open(u32::MAX, [0; 3], 0).unwrap_err();
        let known = [libc::ENOENT, libc::EACCES, libc::EPERM, libc::ENOSYS];
        assert!(error.raw_os_error().is_some_and(|code| known.contains(&code)), "{error}");
    }
}
