//! A machine that resets itself when its daemon hangs: when the hardware watchdog is fed, and from when on a successor may take
//! for granted that nothing of a former owner is under way any more. `docs/protocol.md`, Watchdog, states the rules H1 to H4.
//!
//! ```text
//!  the lease of the former owner ends          last feed          the machine has been reset
//!  |------------- patience -----------|-- a pause --|-- the timer --|-- margin --|
//!                                        < timeout      timeout                  a successor counts it as fenced
//! ```
//!
//! Invariants:
//! - Nothing is fed on the strength of a look that is older than the timer: a pause that is longer has reset the machine.
//! - Whoever runs on, and has nothing under way, is fed without a lease: it begins no write without one (L3). So the loss of a
//!   network alone resets nobody whose backing answers.
//!
//! Left to others: the device (io), what a node announces and who looks (node), what the proof is for (`ownership`).

use crate::types::{Duration, Instant};

/// Clocks of two machines differ by so many per cent at most (L1), a watchdog's among them.
const CLOCKS_DIFFER_PERCENT: u64 = 2;
/// Whatever a timer is coarse by.
const MARGIN: Duration = Duration::from_secs(5);

/// How a node feeds the watchdog of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feeding {
    /// The machine is reset so long after the last feed.
    timeout: Duration,
    /// A write to a backing that is still under way may outlast its lease by so much.
    patience: Duration,
}

impl Feeding {
    /// `Err`: what does not fit together.
    pub fn new(timeout: Duration, patience: Duration) -> Result<Feeding, &'static str> {
        if timeout.0 == 0 {
            return Err("a watchdog needs a time after which it resets the machine");
        }
        if patience < timeout {
            return Err(
                "patience must be at least the watchdog's timeout: feeding goes by looks that are as old as that",
            );
        }
        Ok(Feeding { timeout, patience })
    }

    /// H1: until when the watchdog may be fed, by a look at all volumes at this moment. `late`: of each that has a write to its
    /// backing under way, when the last lease for it ends or ended.
    pub fn fed_until(&self, now: Instant, late: impl Iterator<Item = Instant>) -> Instant {
        let resting = now + self.timeout;
        late.map(|lease| lease + self.patience).min().map_or(resting, |ends| ends.min(resting))
    }

    /// H2: what is announced: so long after the end of an owner's lease, at most, its machine has been reset, or nothing of it is
    /// under way.
    pub fn resets_within(&self) -> Duration {
        Duration(self.patience.0 + 2 * self.timeout.0)
    }
}

/// H3: how long a successor counts, from a moment in which its own take-over was known to be recorded.
pub fn counts_after(lease: Duration, resets_within: Duration) -> Duration {
    let exact = lease.0.saturating_add(resets_within.0);
    Duration(exact.saturating_add(exact / 100 * CLOCKS_DIFFER_PERCENT).saturating_add(MARGIN.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(3);

    fn feeding() -> Feeding {
        Feeding::new(Duration::from_secs(10), Duration::from_secs(20)).unwrap()
    }

    fn at(seconds: u64) -> Instant {
        Instant(0) + Duration::from_secs(seconds)
    }

    /// What is left out of the rules.
    #[derive(Clone, Copy, PartialEq)]
    enum Planted {
        Nothing,
        /// H1: a look at the lease is left out.
        FedWithoutLease,
        /// H3: the successor counts the lease alone.
        CountedEarly,
        /// H2: a pause between look and feed is forgotten.
        PauseForgotten,
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    /// One life, in tenths of a second from the end of the lease on: a write that was begun under it hangs, the process pauses
    /// now and then, between a look and its feed, too. When the write lands, if the machine lives to see that.
    fn late_write(random: &mut Random, planted: Planted) -> Option<Instant> {
        let tenth = Duration::from_millis(100);
        let (lease, feeding) = (at(100), feeding());
        let lands = lease + Duration(tenth.0 * random.below(1200));
        let mut fed = lease;
        let mut now = lease;
        loop {
            // What the look is worth when the process goes on.
            let under_way = (now < lands).then_some(lease).filter(|_| planted != Planted::FedWithoutLease);
            let until = feeding.fed_until(now, under_way.into_iter());
            let may = now < until;
            now = now + Duration(tenth.0 * if random.below(8) == 0 { random.below(150) } else { 1 });
            let reset = fed + feeding.timeout;
            if now >= reset {
                return (lands < reset).then_some(lands);
            }
            if may {
                fed = now;
            }
            if now >= lands {
                return Some(lands);
            }
        }
    }

    /// The first life in which a write lands after a successor has counted the owner as fenced.
    fn first_wrong(planted: Planted) -> Option<u64> {
        let within = match planted {
            Planted::CountedEarly => Duration(0),
            // As if the last feed could not come after the patience has ended, nor the timer run out later than that.
            Planted::PauseForgotten => feeding().patience,
            Planted::Nothing | Planted::FedWithoutLease => feeding().resets_within(),
        };
        // Without the margin: it is for clocks, which are exact here.
        let counted = at(100) + within;
        (0..20_000).find(|seed| late_write(&mut Random(*seed), planted).is_some_and(|lands| lands >= counted))
    }

    #[test]
    fn nothing_lands_after_a_successor_has_counted_and_each_rule_is_needed() {
        assert_eq!(first_wrong(Planted::Nothing), None);
        for planted in [Planted::FedWithoutLease, Planted::CountedEarly, Planted::PauseForgotten] {
            assert!(first_wrong(planted).is_some());
        }
    }

    #[test]
    fn who_rests_is_fed_without_a_lease_and_who_writes_until_the_patience_ends() {
        let feeding = feeding();
        assert_eq!(feeding.fed_until(at(1000), [].into_iter()), at(1010));
        assert_eq!(feeding.fed_until(at(1000), [at(985)].into_iter()), at(1005));
        assert_eq!(feeding.fed_until(at(1000), [at(1003), at(970)].into_iter()), at(990));
        // Alone no lease is needed, and none ends.
        assert_eq!(feeding.fed_until(at(1000), [Instant(u64::MAX)].into_iter()), at(1010));
    }

    #[test]
    fn a_successor_counts_lease_patience_pause_and_timer_by_the_slower_clock() {
        let within = feeding().resets_within();
        assert_eq!(within, Duration::from_secs(40));
        let counted = counts_after(LEASE, within);
        assert!(counted > Duration::from_secs(48) && counted < Duration::from_secs(50), "{counted:?}");
        assert!(Feeding::new(Duration::from_secs(10), Duration::from_secs(9)).is_err());
        assert!(Feeding::new(Duration(0), Duration(0)).is_err());
    }
}
