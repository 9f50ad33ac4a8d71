//! Whether a block waits for several operations. A device ends many in one burst, but the kernel may tell them one by one
//! (ext4 ends each direct write in a worker thread of its own), and then each costs a wake-up and a round of the shard.
//! So after the first of a burst the thread sleeps a moment longer, as network interfaces moderate interrupts.
//!
//! Invariant: nobody notices. It happens only when no descriptor has been ready for long beside that moment, so
//! whoever still waits has waited long; and only where it was seen to pay.

use std::time::{Duration, Instant};

/// Longest sleep for the rest of a burst; the kernel's timer slack (50 us) may come on top.
const SLEEP: Duration = Duration::from_micros(20);
/// No descriptor ready for so long: nobody is asking anything.
const QUIET: Duration = Duration::from_millis(1);
/// Fewer are no burst.
const IN_FLIGHT_MIN: usize = 8;
/// A sleep that saves fewer wake-ups has cost as much.
const GATHERED_MIN: usize = 3;
/// Chances that are passed over after a sleep that did not pay; doubled while none pays.
const PASSED_MIN: u32 = 4;
const PASSED_MAX: u32 = 256;

pub(super) struct Bursts {
    descriptors_ready_at: Option<Instant>,
    /// The last block has ended with an operation, and not yet been followed by a sleep.
    begun: bool,
    pass: u32,
    passes_next: u32,
}

impl Bursts {
    pub(super) fn new() -> Bursts {
        Bursts { descriptors_ready_at: None, begun: false, pass: 0, passes_next: PASSED_MIN }
    }

    /// So many operations were found to have ended.
    pub(super) fn note_ended(&mut self, operations: usize) {
        self.begun |= operations > 0;
    }

    pub(super) fn note_descriptors(&mut self, now: Instant) {
        self.descriptors_ready_at = Some(now);
    }

    pub(super) fn descriptors_are_quiet(&self, now: Instant) -> bool {
        self.descriptors_ready_at.is_none_or(|at| now.duration_since(at) >= QUIET)
    }

    /// How many operations the next block waits for, and how long; none: for one, as ever.
    pub(super) fn next_block(
        &mut self,
        now: Instant,
        timeout: Option<Duration>,
        in_flight: usize,
    ) -> Option<(usize, Duration)> {
        let begun = std::mem::take(&mut self.begun);
        let possible = begun && in_flight >= IN_FLIGHT_MIN && timeout.is_none_or(|timeout| timeout > SLEEP);
        if !possible || !self.descriptors_are_quiet(now) {
            return None;
        }
        if self.pass > 0 {
            self.pass -= 1;
            return None;
        }
        Some((in_flight / 2, SLEEP))
    }

    /// What a sleep has brought. The next block is an ordinary one.
    pub(super) fn gathered(&mut self, operations: usize) {
        self.begun = false;
        if operations >= GATHERED_MIN {
            self.passes_next = PASSED_MIN;
        } else {
            self.pass = self.passes_next;
            self.passes_next = (self.passes_next * 2).min(PASSED_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the next block would be after one operation has ended, with so many more in flight.
    fn after_one(bursts: &mut Bursts, now: Instant, in_flight: usize) -> Option<(usize, Duration)> {
        bursts.note_ended(1);
        bursts.next_block(now, None, in_flight)
    }

    #[test]
    fn only_after_the_first_of_a_burst_and_only_once() {
        let (mut bursts, now) = (Bursts::new(), Instant::now());
        assert_eq!(bursts.next_block(now, None, 31), None, "nothing has ended");
        assert_eq!(after_one(&mut bursts, now, 31), Some((15, SLEEP)));
        bursts.note_ended(15);
        bursts.gathered(15);
        assert_eq!(bursts.next_block(now, None, 16), None, "the next block waits for one");
        assert_eq!(after_one(&mut bursts, now, IN_FLIGHT_MIN - 1), None, "no burst");
        bursts.note_ended(1);
        assert_eq!(bursts.next_block(now, Some(SLEEP), 31), None, "a timer is due");
    }

    #[test]
    fn not_while_somebody_asks() {
        let (mut bursts, now) = (Bursts::new(), Instant::now());
        bursts.note_descriptors(now);
        assert!(!bursts.descriptors_are_quiet(now + QUIET / 2));
        assert_eq!(after_one(&mut bursts, now + QUIET / 2, 31), None);
        assert!(after_one(&mut bursts, now + QUIET, 31).is_some());
    }

    #[test]
    fn ever_more_rarely_where_it_does_not_pay() {
        let (mut bursts, now) = (Bursts::new(), Instant::now());
        let mut passed = Vec::new();
        let mut count = 0;
        while passed.len() < 9 {
            if after_one(&mut bursts, now, 31).is_some() {
                bursts.gathered(GATHERED_MIN - 1);
                passed.push(std::mem::take(&mut count));
            } else {
                count += 1;
            }
        }
        assert_eq!(passed, [0, 4, 8, 16, 32, 64, 128, 256, 256]);
        while after_one(&mut bursts, now, 31).is_none() {}
        bursts.gathered(GATHERED_MIN);
        assert!(after_one(&mut bursts, now, 31).is_some(), "it pays again");
    }
}
