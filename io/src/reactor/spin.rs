//! Whether to look again for a moment before a wait blocks. A block and its wake-up cost more than a short look where
//! the next event is near; where it is not, or where others need this CPU, the look is a waste.
//!
//! How long this thread's own waits took decides, because it tells where the other side runs:
//! - On another CPU, a block takes a wake-up on each side: a look saves ours.
//! - On this CPU, a block ends almost at once, because the other side runs as soon as we leave. A look would only keep it waiting.
//! - On a CPU that somebody else wants as well, looks are interrupted for whole time slices.
//!
//! The kernel's figure of CPU pressure is not asked: a client and a server that wake each other count as pressure themselves
//! (19 to 32 % at queue depth 1 on a machine with nothing else to do), as do tasks of idle priority, which run in what is left.

use std::time::{Duration, Instant};

/// A look ends after this, whether it has found something or not.
const SPIN: Duration = Duration::from_micros(50);
/// A block that ended within this, wake-up included, would have been a hit.
const SHORT_BLOCK: Duration = Duration::from_micros(80);
/// A block that ended within this was no dearer than a look: two changes of task on one CPU, and what the other did between.
const CHEAP_BLOCK: Duration = Duration::from_micros(10);
/// A step of a look takes a microsecond. One that took this long was interrupted: another task had its slice of this CPU.
const INTERRUPTION: Duration = Duration::from_micros(500);
/// No look for so long after that. Interruptions come after a slice or two (some milliseconds), so looks cost others little.
const HOLD_OFF: Duration = Duration::from_millis(200);
/// Score from which spinning is on; each hit adds one, each miss takes two.
const SCORE_ON: i32 = 4;
const SCORE_MAX: i32 = 16;

pub(super) struct Spin {
    score: i32,
    alone: bool,
    /// The last look found nothing; the block that follows it tells whether it ever could.
    missed: bool,
    held_off_until: Option<Instant>,
}

impl Spin {
    pub(super) fn new() -> Spin {
        // On a single CPU the one that we wait for cannot run while we look.
        let alone = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        Spin { score: 0, alone, missed: false, held_off_until: None }
    }

    /// How long to look before this wait; none when it would not pay.
    pub(super) fn limit(&self, now: Instant, timeout: Option<Duration>) -> Option<Duration> {
        let off = self.score < SCORE_ON || self.alone || self.held_off_until.is_some_and(|until| now < until);
        if off || timeout.is_some_and(|timeout| timeout < SPIN) { None } else { Some(SPIN) }
    }

    pub(super) fn hit(&mut self) {
        self.score = (self.score + 1).min(SCORE_MAX);
    }

    pub(super) fn missed(&mut self) {
        self.score = (self.score - 2).max(0);
        self.missed = true;
    }

    /// Ends a look one of whose steps took long enough for another task to have run meanwhile.
    pub(super) fn interrupted(&mut self, step: Duration, now: Instant) -> bool {
        let interrupted = step >= INTERRUPTION;
        if interrupted {
            self.score = 0;
            self.held_off_until = Some(now + HOLD_OFF);
        }
        interrupted
    }

    /// A wait without a look, or after one: those as long as a wake-up are the trial that turns spinning on.
    pub(super) fn blocked_for(&mut self, time: Duration) {
        let missed = std::mem::take(&mut self.missed);
        if missed && time < CHEAP_BLOCK {
            // What we looked for came as soon as we left the CPU.
            self.score = 0;
        } else if !missed && (CHEAP_BLOCK..=SHORT_BLOCK).contains(&time) {
            self.hit();
        } else if self.score < SCORE_ON {
            self.score = (self.score - 1).max(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAKE_UP: Duration = Duration::from_micros(30);
    const CHEAP: Duration = Duration::from_micros(5);

    fn quiet() -> Spin {
        Spin { score: 0, alone: false, missed: false, held_off_until: None }
    }

    fn spinning() -> Spin {
        Spin { score: SCORE_MAX, ..quiet() }
    }

    #[test]
    fn blocks_as_long_as_a_wake_up_turn_it_on_and_misses_turn_it_off() {
        let mut spin = quiet();
        let now = Instant::now();
        for _ in 0..SCORE_ON {
            assert_eq!(spin.limit(now, None), None);
            spin.blocked_for(WAKE_UP);
        }
        assert_eq!(spin.limit(now, None), Some(SPIN));
        assert_eq!(spin.limit(now, Some(Duration::from_micros(10))), None);
        spin.missed();
        spin.blocked_for(Duration::from_millis(100));
        assert_eq!(spin.limit(now, None), None);
    }

    #[test]
    fn blocks_that_are_long_or_cheap_do_not_turn_it_on() {
        let mut spin = quiet();
        for time in [SHORT_BLOCK + Duration::from_micros(1), CHEAP] {
            for _ in 0..100 {
                spin.blocked_for(time);
            }
            assert_eq!(spin.score, 0, "{time:?}");
        }
        // They also undo a trial that has begun: a client that shares our CPU most of the time is not looked for.
        for _ in 0..100 {
            spin.blocked_for(WAKE_UP);
            spin.blocked_for(CHEAP);
        }
        assert_eq!(spin.limit(Instant::now(), None), None);
    }

    #[test]
    fn a_miss_whose_event_came_as_soon_as_the_cpu_was_free_turns_it_off_at_once() {
        let mut spin = spinning();
        spin.missed();
        spin.blocked_for(CHEAP);
        assert_eq!(spin.limit(Instant::now(), None), None);

        let mut spin = spinning();
        spin.missed();
        spin.blocked_for(WAKE_UP);
        assert_eq!(spin.score, SCORE_MAX - 2, "the block after a miss is no hit");
        spin.blocked_for(CHEAP);
        assert_eq!(spin.limit(Instant::now(), None), Some(SPIN), "that block came after no look");
    }

    #[test]
    fn a_look_that_was_interrupted_holds_it_off_for_a_while() {
        let mut spin = spinning();
        let start = Instant::now();
        assert!(!spin.interrupted(Duration::from_micros(100), start));
        assert_eq!(spin.limit(start, None), Some(SPIN));
        assert!(spin.interrupted(Duration::from_millis(3), start));
        for _ in 0..SCORE_ON {
            spin.blocked_for(WAKE_UP);
        }
        assert_eq!(spin.limit(start + HOLD_OFF - Duration::from_micros(1), None), None);
        assert_eq!(spin.limit(start + HOLD_OFF, None), Some(SPIN));
    }

    #[test]
    fn never_on_a_single_cpu() {
        let spin = Spin { alone: true, ..spinning() };
        assert_eq!(spin.limit(Instant::now(), None), None);
    }
}
