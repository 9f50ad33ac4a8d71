//! The one clock: CLOCK_BOOTTIME, which never goes back and counts time in suspend.

use forebay_core::types::{Duration, Instant};

/// The present time, as core counts it.
pub fn now() -> Instant {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the kernel to write a timespec to.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    assert_eq!(result, 0, "CLOCK_BOOTTIME exists on every kernel this program starts on");
    Instant(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// How long to wait, in std's type, until an instant of core; zero when it has passed.
pub fn until(deadline: Instant, now: Instant) -> std::time::Duration {
    let Duration(nanos) = deadline - now;
    std::time::Duration::from_nanos(nanos)
}
