//! Whether to look again for a moment before a wait blocks. A block and its wake-up cost more than a short look where
//! the next event is near; where it is not, or other processes need the CPU, the look is a waste.

use std::time::{Duration, Instant};

/// Longest look.
const SPIN: Duration = Duration::from_micros(50);
/// A block that ended within this, wake-up included, would have been a hit.
const SHORT_BLOCK: Duration = Duration::from_micros(80);
/// Share of time that some task waited for a CPU, in percent since the last reading, above which it is short. The kernel's own
/// average over 10 s would speak of loads that are long over.
const PRESSURE_MAX: u64 = 10;
/// Between two readings.
const PRESSURE_PERIOD: Duration = Duration::from_millis(200);
/// A reading that is older says nothing of now.
const PRESSURE_AGE_MAX: Duration = Duration::from_secs(2);
/// Score from which spinning is on; each hit adds one, each miss takes two.
const SCORE_ON: i32 = 4;
const SCORE_MAX: i32 = 16;

pub(super) struct Spin {
    score: i32,
    alone: bool,
    /// The last reading: when, and how long some task had waited since boot.
    pressure_read: Option<(Instant, Duration)>,
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
        if self.pressure_read.is_none_or(|(read, _)| now.duration_since(read) >= PRESSURE_PERIOD) {
            let text = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
            self.note_pressure(now, some_total(&text));
        }
        (!self.pressure_high).then_some(SPIN)
    }

    /// Without a figure, or none to compare it with, the CPU is not taken to be short: a spin that harms is seen soon.
    fn note_pressure(&mut self, now: Instant, waited: Option<Duration>) {
        self.pressure_high = match (self.pressure_read, waited) {
            (Some((read, before)), Some(waited)) if now.duration_since(read) <= PRESSURE_AGE_MAX => {
                let share =
                    waited.saturating_sub(before).as_micros() * 100 / now.duration_since(read).as_micros().max(1);
                share > u128::from(PRESSURE_MAX)
            }
            (_, _) => false,
        };
        self.pressure_read = Some((now, waited.unwrap_or_default()));
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

fn some_total(text: &str) -> Option<Duration> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let micros = line.split_whitespace().find_map(|word| word.strip_prefix("total="))?;
    micros.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Spin {
        // A reading from far enough ahead is not refreshed, so the test does not depend on the machine's load.
        let ahead = Instant::now() + Duration::from_secs(3600);
        Spin { score: 0, alone: false, pressure_read: Some((ahead, Duration::ZERO)), pressure_high: false }
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
        assert_eq!(some_total(text), Some(Duration::from_micros(5)));
        assert_eq!(some_total(""), None);
    }

    #[test]
    fn pressure_is_that_of_the_last_moments() {
        let start = Instant::now();
        let mut spin = Spin { pressure_read: None, ..quiet() };
        let mut high_at = |ms: u64, waited_ms: u64| {
            spin.note_pressure(start + Duration::from_millis(ms), Some(Duration::from_millis(waited_ms)));
            spin.pressure_high
        };
        assert!(!high_at(0, 50_000), "there is nothing to compare with");
        assert!(high_at(200, 50_030), "30 ms of 200");
        assert!(!high_at(400, 50_045), "15 ms of 200");
        assert!(!high_at(9_000, 58_000), "too long ago to tell");
    }
}
