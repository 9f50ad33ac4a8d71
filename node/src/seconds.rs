//! Whole seconds of the wall clock: what the control thread does now and then it does when one of them has begun. So an idle daemon is
//! woken once a second for all of it, and not once for each task.
//!
//! The runtime's own timers wake the thread several times for one that is some time off, by their wheels. Here it is one timer of the
//! kernel for all.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// So long after a second's begin. By a wall clock that is being slowed down it may otherwise not have begun, when it has by the
/// monotonic one.
const AFTER: Duration = Duration::from_millis(2);

/// Those who wait for seconds.
#[derive(Clone)]
pub struct Seconds(watch::Receiver<()>);

impl Seconds {
    /// Begins to count them, on this runtime, for as long as somebody waits for any.
    pub fn begin() -> std::io::Result<Seconds> {
        // SAFETY: an owned descriptor is open, and the same one, until it is dropped.
        let timer = unsafe { AsyncFd::register_with_interest(timer()?, Interest::READABLE) }?;
        let (begun, waiting) = watch::channel(());
        tokio::spawn(async move {
            while !begun.is_closed() {
                arm(timer.get_ref(), until_next());
                // A timer that cannot be waited for any more: seconds are counted by the runtime's.
                let Ok(mut ready) = timer.readable().await else { break };
                match ready.try_io(|timer| expirations(timer.get_ref())) {
                    Ok(Ok(_)) => begun.send_replace(()),
                    Ok(Err(_)) => break,
                    // It has not expired.
                    Err(_) => {}
                }
            }
            while !begun.is_closed() {
                tokio::time::sleep(until_next()).await;
                begun.send_replace(());
            }
        });
        Ok(Seconds(waiting))
    }

    /// Waits until a second begins. However the clock is set meanwhile, it is hardly longer than one.
    pub async fn next(&mut self) {
        // What has begun while this task did something else is over: it waits for the one that is to come.
        self.0.mark_unchanged();
        if self.0.changed().await.is_err() {
            // Whoever counts lives as long as somebody waits, but for the end of the runtime.
            std::future::pending().await
        }
    }

    /// Waits until so many have begun.
    pub async fn pass(&mut self, count: u32) {
        for _ in 0..count {
            self.next().await;
        }
    }
}

fn until_next() -> Duration {
    // A clock before 1970 has no seconds to keep to.
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    left_of(since_1970)
}

fn left_of(since_1970: Duration) -> Duration {
    let second = Duration::from_secs(1);
    let into = Duration::from_nanos(since_1970.subsec_nanos().into());
    if into < AFTER { AFTER - into } else { second + AFTER - into }
}

fn timer() -> std::io::Result<OwnedFd> {
    // SAFETY: no memory is involved; a descriptor or an error comes back.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn arm(timer: &OwnedFd, wait: Duration) {
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let value = libc::timespec { tv_sec: wait.as_secs() as libc::time_t, tv_nsec: wait.subsec_nanos() as libc::c_long };
    let once = libc::itimerspec { it_interval: none, it_value: value };
    // SAFETY: an open timer, and a time that is read. Such a time is never refused.
    unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const once, std::ptr::null_mut()) };
}

/// Takes what has expired, if anything has.
fn expirations(timer: &OwnedFd) -> std::io::Result<u64> {
    let mut count = 0u64;
    // SAFETY: an open timer, and a place for the eight bytes that it gives.
    if unsafe { libc::read(timer.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_wait_wait_for_the_same_moment() {
        for (into_us, wait_us) in [(0, 2_000), (1_999, 1), (2_000, 1_000_000), (2_001, 999_999), (999_999, 2_001)] {
            let since_1970 = Duration::from_secs(1_700_000_000) + Duration::from_micros(into_us);
            assert_eq!(left_of(since_1970), Duration::from_micros(wait_us), "{into_us} us into the second");
        }
    }

    #[tokio::test]
    async fn who_comes_late_waits_for_the_next_one() {
        let mut first = Seconds::begin().unwrap();
        let mut second = first.clone();
        first.next().await;
        let of = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let begun = of(SystemTime::now());
        // It was not waiting yet when that second began.
        second.next().await;
        assert!(of(SystemTime::now()) > begun);
        first.pass(1).await;
    }
}
