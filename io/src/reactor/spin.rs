//! Whether to look again for a moment before a wait blocks. A block and its wake-up cost more than a short look where
//! the next event is near; where it is not, or other processes need the CPU, the look is a waste.

use std::time::{Duration, Instant};

/// Longest look.
const SPIN: Duration = Duration::from_micros(50);
/// A block that ended within this, wake-up included, would have been a hit.
const SHORT_BLOCK: Duration = Duration::from_micros(80);
/// Share of time that tasks waited for a CPU (percent over 10 s), above which it is short.
const PRESSURE_MAX: f32 = 10.0;
const PRESSURE_AGE_MAX: Duration = Duration::from_secs(1);
/// Score from which spinning is on; each hit adds one, each miss takes two.
const SCORE_ON: i32 = 4;
const SCORE_MAX: i32 = 16;

pub(super) struct Spin {
    score: i32,
    alone: bool,
    pressure_read: Option<Instant>,
    pressure_high: bool,
}

impl Spin {
    pub(super) fn new() -> Spin {
        // On a single CPU the one that we wait for cannot run while we look.
        let alone = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        Spin { score: 0, alone, pressure_read: None, pressure_high: false }
    }

    /// How long to look before this wait; none when it would not pay.
    pub(super) fn limit(&mut self, now: Instant, timeout: Option<Duration>) -> Option<Duration> {
        if self.score < SCORE_ON || self.alone || timeout.is_some_and(|timeout| timeout < SPIN) {
            return None;
        }
        if self.pressure_read.is_none_or(|read| now.duration_since(read) >= PRESSURE_AGE_MAX) {
            self.pressure_read = Some(now);
            let text = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
            self.pressure_high = some_avg10(&text).is_some_and(|percent| percent > PRESSURE_MAX);
        }
        (!self.pressure_high).then_some(SPIN)
    }

    pub(super) fn hit(&mut self) {
        self.score = (self.score + 1).min(SCORE_MAX);
    }

    pub(super) fn missed(&mut self) {
        self.score = (self.score - 2).max(0);
    }

    /// A wait without a look, or after one: short ones are the trial that turns spinning on.
    pub(super) fn blocked_for(&mut self, time: Duration) {
        if time <= SHORT_BLOCK {
            self.hit();
        } else if self.score < SCORE_ON {
            self.score = (self.score - 1).max(0);
        }
    }
}

fn some_avg10(text: &str) -> Option<f32> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Spin {
        // A reading from far enough ahead is not refreshed, so the test does not depend on the machine's load.
        let ahead = Instant::now() + Duration::from_secs(3600);
        Spin { score: 0, alone: false, pressure_read: Some(ahead), pressure_high: false }
    }

    #[test]
    fn short_waits_turn_it_on_and_misses_turn_it_off() {
        let mut spin = quiet();
        let now = Instant::now();
        assert_eq!(spin.limit(now, None), None);
        for _ in 0..SCORE_ON {
            spin.blocked_for(Duration::from_micros(30));
        }
        assert_eq!(spin.limit(now, None), Some(SPIN));
        assert_eq!(spin.limit(now, Some(Duration::from_micros(10))), None);
        spin.missed();
        spin.blocked_for(Duration::from_millis(100));
        assert_eq!(spin.limit(now, None), None);
    }

    #[test]
    fn never_when_the_cpu_is_short() {
        let mut spin = Spin { pressure_high: true, score: SCORE_MAX, ..quiet() };
        assert_eq!(spin.limit(Instant::now(), None), None);
        let mut spin = Spin { alone: true, score: SCORE_MAX, ..quiet() };
        assert_eq!(spin.limit(Instant::now(), None), None);
    }

    #[test]
    fn pressure_is_read_from_the_kernel_s_line() {
        let text = "some avg10=12.50 avg60=1.00 avg300=0.10 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(some_avg10(text), Some(12.5));
        assert_eq!(some_avg10(""), None);
    }
}
