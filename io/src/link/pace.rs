//! How fast a channel is, from what the other side acknowledges. Pure.
//!
//! A sample counts from one acknowledgement to a later one while something was in flight all the time. One that was
//! taken while there was not enough to send says how fast the sender was, not the channel: it may only raise the rate.

use forebay_core::types::{Duration, Instant};

/// Length of a sample: long beside the burst of a shaper or a batch of acknowledgements.
const SAMPLE: Duration = Duration::from_millis(20);
/// How much faster a channel is believed to be for each half second without a sample, and how fast at most.
const FORGETS: f64 = 1.5;
const RATE_BELIEVED_MAX: f64 = 1.25e9;
/// Weight of a new sample.
const WEIGHT: f64 = 0.3;
/// Round trips whose smallest counts.
const ROUND_TRIPS: usize = 16;
/// In flight on a channel whose rate is not known yet.
const WINDOW_UNKNOWN_BYTES: u64 = 4 << 20;
/// In flight beyond what the round trip needs: for what the other side's process and the path's queues hold up.
const WINDOW_TIME: f64 = 0.05;
const WINDOW_BYTES_MIN: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Pace {
    rate: Option<f64>,
    round_trips: [Duration; ROUND_TRIPS],
    measured: usize,
    since: Instant,
    bytes: u64,
    idle: bool,
    starved: bool,
    /// Since `forgets` was called last.
    sampled: bool,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        let round_trips = [Duration(u64::MAX); ROUND_TRIPS];
        Pace { rate: None, round_trips, measured: 0, since: now, bytes: 0, idle: true, starved: false, sampled: false }
    }

    /// Bytes a second, if anything is known.
    pub(super) fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// The smallest of the last round trips; a guess before the first.
    pub(super) fn round_trip_min(&self) -> Duration {
        match self.measured {
            0 => Duration::from_millis(1),
            _ => self.round_trips.into_iter().min().expect("there are sixteen"),
        }
    }

    /// Most bytes that are worth having in flight.
    pub(super) fn window(&self) -> u64 {
        match self.rate {
            None => WINDOW_UNKNOWN_BYTES,
            Some(rate) => WINDOW_BYTES_MIN + (rate * (self.round_trip_min().as_secs_f64() + WINDOW_TIME)) as u64,
        }
    }

    pub(super) fn round_trip(&mut self, time: Duration) {
        self.round_trips[self.measured % ROUND_TRIPS] = time;
        self.measured += 1;
    }

    /// So many more bytes have arrived.
    pub(super) fn arrived(&mut self, bytes: u64, now: Instant) {
        if std::mem::take(&mut self.idle) {
            (self.since, self.bytes) = (now, 0);
            return;
        }
        self.bytes += bytes;
        let time = now - self.since;
        if time < SAMPLE {
            return;
        }
        let sample = self.bytes as f64 / time.as_secs_f64();
        self.rate = Some(match self.rate {
            None if self.starved => {
                (self.since, self.bytes, self.starved) = (now, 0, false);
                return;
            }
            None => sample,
            Some(rate) if self.starved => rate.max(sample),
            Some(rate) => rate + (sample - rate) * WEIGHT,
        });
        (self.since, self.bytes, self.starved) = (now, 0, false);
        self.sampled = true;
    }

    /// Called now and then: a rate that nothing has confirmed meanwhile is believed to be higher than it was, so that a
    /// channel that was slow for a moment is tried again.
    pub(super) fn forgets(&mut self) {
        if !std::mem::take(&mut self.sampled) {
            self.rate = self.rate.map(|rate| (rate * FORGETS).min(RATE_BELIEVED_MAX));
        }
    }

    /// It could have carried more than there was.
    pub(super) fn starved(&mut self) {
        self.starved = true;
    }

    /// Nothing is in flight any more.
    pub(super) fn idle(&mut self) {
        self.idle = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledgements of `bytes` every millisecond, for so many of them.
    fn run(pace: &mut Pace, from_ms: u64, count: u64, bytes: u64) {
        (0..count).for_each(|i| pace.arrived(bytes, Instant((from_ms + i) * 1_000_000)));
    }

    #[test]
    fn the_rate_is_that_of_what_arrives_while_busy() {
        let mut pace = Pace::new(Instant(0));
        assert_eq!(pace.rate(), None);
        run(&mut pace, 1, 200, 312_000);
        let rate = pace.rate().unwrap();
        assert!((rate - 312e6).abs() < 1e6, "{rate}");
        run(&mut pace, 201, 400, 125_000);
        let rate = pace.rate().unwrap();
        assert!((rate - 125e6).abs() < 2e6, "{rate}");
    }

    #[test]
    fn idle_time_and_a_slow_sender_do_not_make_a_channel_slow() {
        let mut pace = Pace::new(Instant(0));
        run(&mut pace, 1, 200, 312_000);
        pace.idle();
        run(&mut pace, 90_000, 100, 312_000);
        assert!((pace.rate().unwrap() - 312e6).abs() < 1e6, "a minute of nothing");
        for i in 0..500 {
            pace.starved();
            pace.arrived(1000, Instant((100_000 + i) * 1_000_000));
        }
        assert!((pace.rate().unwrap() - 312e6).abs() < 1e6, "a megabyte a second because there was no more");
    }

    #[test]
    fn a_channel_that_was_slow_for_a_moment_is_tried_again() {
        let mut pace = Pace::new(Instant(0));
        pace.starved();
        run(&mut pace, 1, 30, 5_000);
        assert_eq!(pace.rate(), None, "five megabytes a second, because there was no more");
        run(&mut pace, 100, 100, 5_000);
        assert!(pace.rate().unwrap() < 6e6);
        pace.forgets();
        assert!(pace.rate().unwrap() < 6e6, "that was confirmed just now");
        (0..10).for_each(|_| pace.forgets());
        assert!(pace.rate().unwrap() > 150e6, "five seconds later it may be anything");
        (0..100).for_each(|_| pace.forgets());
        assert!(pace.rate().unwrap() <= RATE_BELIEVED_MAX);
    }

    #[test]
    fn the_window_covers_the_round_trip() {
        let mut pace = Pace::new(Instant(0));
        run(&mut pace, 1, 200, 125_000);
        pace.round_trip(Duration::from_millis(40));
        pace.round_trip(Duration::from_millis(100));
        assert_eq!(pace.round_trip_min(), Duration::from_millis(40));
        assert!(pace.window() > (125e6 * 0.04) as u64);
    }
}
