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
/// PERF_FLAG_FD_CLOEXEC.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// A counter that counts.
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

    /// What it has counted; where it had to share its register with others, as much as it would have.
    pub fn read(&mut self) -> io::Result<f64> {
        let mut bytes = [0; 24];
        self.0.read_exact(&mut bytes)?;
        let word = |n: usize| u64::from_ne_bytes(bytes[8 * n..8 * n + 8].try_into().expect("eight bytes"));
        Ok(whole(word(0), word(1), word(2)))
    }
}

fn whole(count: u64, enabled: u64, running: u64) -> f64 {
    match running {
        0 => 0.0,
        running => count as f64 * (enabled as f64 / running as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_shared_its_register_is_scaled() {
        assert_eq!(whole(100, 10, 10), 100.0);
        assert_eq!(whole(100, 10, 5), 200.0);
        assert_eq!(whole(0, 10, 0), 0.0);
    }

    #[test]
    fn the_kernel_takes_the_call_and_the_count_grows_or_it_says_why_not() {
        // PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK: it is there on every host.
        match Counter::open(1, [0; 3], 0) {
            Ok(mut counter) => {
                let first = counter.read().unwrap();
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(counter.read().unwrap() > first);
            }
            Err(e) => assert!(matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::ENOSYS)), "{e}"),
        }
        let error = Counter::open(u32::MAX, [0; 3], 0).unwrap_err();
        let known = [libc::ENOENT, libc::EACCES, libc::EPERM, libc::ENOSYS];
        assert!(error.raw_os_error().is_some_and(|code| known.contains(&code)), "{error}");
    }
}
