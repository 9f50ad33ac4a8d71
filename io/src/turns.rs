//! Turns: who comes by the network begins what costs this host work before it is known who it is (a TLS handshake) when its turn has come. Who says
//! nothing needs none, and is not to wait here.
//!
//! Networks take turns, and each begins its oldest: one that comes a thousand times a second delays itself, and the others by one turn. All
//! together begin at most [`A_SECOND`] times a second, after [`AT_ONCE`] that need not wait: hosts that all come back after an outage do.
//!
//! Rejected: so many failures to an address, and then it waits. Whoever can open a socket on a host could then keep that host out.

use forebay_core::types::{Duration, Instant};
use std::collections::VecDeque;

/// Most turns in a second: a third of a core where a handshake that fails takes 0.6 to 0.8 ms, as measured on a small virtual machine.
pub const A_SECOND: u64 = 500;
/// Turns that are given at once after a time in which nobody came.
pub const AT_ONCE: u64 = 64;

const PERIOD: Duration = Duration(1_000_000_000 / A_SECOND);

/// Those who wait for their turn. Their number is bounded by who lets them wait.
#[derive(Debug)]
pub struct Turns<N, K> {
    /// Networks in the order of their next turns, none of them without anybody who waits.
    networks: VecDeque<(N, VecDeque<K>)>,
    /// Turns that may be given now, as counted then.
    left: u64,
    counted: Instant,
}

impl<N, K> Default for Turns<N, K> {
    fn default() -> Self {
        Turns { networks: VecDeque::new(), left: AT_ONCE, counted: Instant::default() }
    }
}

impl<N: PartialEq, K: PartialEq> Turns<N, K> {
    /// One from this network waits.
    pub fn wait(&mut self, network: N, who: K) {
        match self.networks.iter_mut().find(|(other, _)| *other == network) {
            Some((_, waiting)) => waiting.push_back(who),
            None => self.networks.push_back((network, VecDeque::from([who]))),
        }
    }

    /// It waits no more.
    pub fn forget(&mut self, who: &K) {
        for (_, waiting) in &mut self.networks {
            waiting.retain(|other| other != who);
        }
        self.networks.retain(|(_, waiting)| !waiting.is_empty());
    }

    /// Whose turn it is, if there is one to be given.
    pub fn next(&mut self, now: Instant) -> Option<K> {
        let due = (now - self.counted).0 / PERIOD.0;
        self.left = self.left.saturating_add(due).min(AT_ONCE);
        // What is left of a period counts for the next turn.
        self.counted = if self.left == AT_ONCE { now } else { self.counted + Duration(due * PERIOD.0) };
        if self.left == 0 {
            return None;
        }
        let (network, mut waiting) = self.networks.pop_front()?;
        let who = waiting.pop_front();
        if !waiting.is_empty() {
            self.networks.push_back((network, waiting));
        }
        self.left -= 1;
        who
    }

    /// When [`Turns::next`] is to be called again.
    pub fn deadline(&self) -> Option<Instant> {
        let pause = if self.left == 0 { PERIOD } else { Duration::default() };
        (!self.networks.is_empty()).then(|| self.counted + pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant(Duration::from_secs(9).0 + Duration::from_millis(millis).0)
    }

    #[test]
    fn a_network_that_comes_all_the_time_delays_others_by_one_turn() {
        let mut turns = Turns::default();
        (0..1000).for_each(|who| turns.wait("flood", who));
        turns.wait("calm", 7000);
        assert_eq!((turns.next(at(0)), turns.next(at(0))), (Some(0), Some(7000)));
        turns.wait("calm", 7001);
        assert_eq!((turns.next(at(0)), turns.next(at(0))), (Some(1), Some(7001)));
        assert_eq!(turns.next(at(0)), Some(2));
    }

    #[test]
    fn so_many_begin_at_once_and_then_so_many_a_second() {
        let mut turns = Turns::default();
        (0..5000).for_each(|who| turns.wait("flood", who));
        let mut given = |now| std::iter::from_fn(|| turns.next(now)).count() as u64;
        assert_eq!(given(at(0)), AT_ONCE);
        assert_eq!(given(at(1)), 0);
        assert_eq!(given(at(3)), 1, "what is left of a period is not lost");
        assert_eq!(given(at(4)), 1);
        let second: u64 = (5..=1004).map(|millis| given(at(millis))).sum();
        assert_eq!(second, A_SECOND);
        assert_eq!(turns.deadline(), Some(at(1004) + PERIOD));
        (0..5000).for_each(|who| turns.forget(&who));
        assert_eq!((turns.deadline(), turns.next(at(9000))), (None, None));
    }
}
