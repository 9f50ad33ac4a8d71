//! Which channel a message goes by: the one where it is predicted to arrive first. Pure.
//!
//! Messages are handed to channels late, each when its socket takes more, so that unequal links add up by themselves:
//! whoever is faster asks more often. What is left to decide is the end of a burst and the lone message: there the
//! slower channel may be free and yet be the later one.

use forebay_core::types::Duration;

/// What is known of a living channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    /// Its socket takes more now.
    pub(super) ready: bool,
    /// Bytes sent on it, or waiting for it, that are not acknowledged.
    pub(super) in_flight: u64,
    /// Bytes a second that were seen to arrive; none yet.
    pub(super) rate: Option<f64>,
    /// Round trip when nothing is in the way.
    pub(super) round_trip: Duration,
}

/// A channel that nothing is known of is taken for fast: that is how it becomes known.
const RATE_UNKNOWN: f64 = 1.25e9;

impl Outlook {
    fn rate(&self) -> f64 {
        self.rate.unwrap_or(RATE_UNKNOWN).max(1.0)
    }

    /// Seconds until the last of so many further bytes has arrived.
    fn arrival(&self, bytes: u64) -> f64 {
        (self.in_flight + bytes) as f64 / self.rate() + self.round_trip.as_secs_f64() / 2.0
    }
}

/// The index of the channel for a message of so many bytes; none: it waits for one that is not ready now. `backlog` is
/// what waits behind it.
pub(super) fn choose(outlooks: &[Outlook], bytes: u64, backlog: u64) -> Option<usize> {
    let first = |ready_only: bool| {
        let all = outlooks.iter().enumerate().filter(|(_, outlook)| outlook.ready || !ready_only);
        all.map(|(index, outlook)| (index, outlook.arrival(bytes))).min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let ((ready, at), (_, earliest)) = (first(true)?, first(false)?);
    if at <= earliest {
        return Some(ready);
    }
    // Another channel would bring this message earlier. But when all of them are busy beyond that with what waits
    // behind it, leaving this one idle costs more than it saves.
    let in_flight: u64 = outlooks.iter().map(|outlook| outlook.in_flight).sum();
    let rate: f64 = outlooks.iter().map(Outlook::rate).sum();
    let all_done = (in_flight + bytes + backlog) as f64 / rate;
    (at <= all_done + outlooks[ready].round_trip.as_secs_f64() / 2.0).then_some(ready)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: f64 = 312e6;
    const SLOW: f64 = 125e6;

    fn outlook(ready: bool, in_flight: u64, rate: f64) -> Outlook {
        Outlook { ready, in_flight, rate: Some(rate), round_trip: Duration::from_micros(200) }
    }

    #[test]
    fn a_lone_message_goes_by_the_faster_channel() {
        assert_eq!(choose(&[outlook(true, 0, SLOW), outlook(true, 0, FAST)], 65536, 0), Some(1));
        let far = Outlook { round_trip: Duration::from_millis(20), ..outlook(true, 0, FAST) };
        assert_eq!(choose(&[outlook(true, 0, SLOW), far], 65536, 0), Some(0), "near and slow beats far and fast");
    }

    #[test]
    fn a_free_slow_channel_is_left_alone_when_a_busy_fast_one_is_earlier() {
        let channels = [outlook(true, 0, SLOW), outlook(false, 256 << 10, FAST)];
        assert_eq!(choose(&channels, 256 << 10, 0), None);
    }

    #[test]
    fn a_backlog_makes_use_of_every_channel() {
        let channels = [outlook(true, 0, SLOW), outlook(false, 256 << 10, FAST)];
        assert_eq!(choose(&channels, 256 << 10, 16 << 20), Some(0));
        let very_slow = [outlook(true, 0, 1e6), outlook(false, 256 << 10, FAST)];
        assert_eq!(choose(&very_slow, 1 << 20, 16 << 20), None, "a second for one message is longer than all of it");
    }

    #[test]
    fn an_unknown_channel_is_tried_and_none_is_no_choice() {
        let unknown = Outlook { rate: None, ..outlook(true, 0, 0.0) };
        assert_eq!(choose(&[outlook(true, 0, FAST), unknown], 65536, 0), Some(1));
        assert_eq!(choose(&[], 1, 0), None);
        assert_eq!(choose(&[outlook(false, 0, FAST)], 1, 1 << 20), None);
    }

    /// Two channels that each carry what they are given at their rate: all of a backlog is done when both are.
    #[test]
    fn a_burst_ends_on_unequal_channels_at_about_the_same_time() {
        let message = 256 << 10;
        for (rates, total) in [([FAST, SLOW], 64u64 << 20), ([FAST, FAST], 64 << 20), ([SLOW, 12.5e6], 16 << 20)] {
            let (mut free_at, mut left, mut now) = ([0.0f64; 2], total, 0.0);
            while left > 0 {
                // As the link does: a channel is ready when less than a message waits in it.
                let channels = [0, 1].map(|i| {
                    let in_flight = ((free_at[i] - now).max(0.0) * rates[i]) as u64;
                    outlook(in_flight < message, in_flight, rates[i])
                });
                match choose(&channels, message, left - message) {
                    Some(i) => {
                        free_at[i] = free_at[i].max(now) + message as f64 / rates[i];
                        left -= message;
                    }
                    None => now += 1e-4,
                }
            }
            let ideal = total as f64 / (rates[0] + rates[1]);
            let done = free_at[0].max(free_at[1]);
            assert!(done < ideal * 1.03 + message as f64 / rates[1], "{done} s, ideal {ideal} s");
        }
    }
}
