//! How soon a peer holds what it is sent. One that moves, and yet keeps every write waiting, is noticed here (A3).
//!
//! - A message counts from the moment in which it was first sent: that it was sent again excuses nothing.
//! - It is held *in time* within what a peer is given for one message, and what it and all that was under way before it take
//!   on the slowest link that is taken for one: a link that carries its bytes is not to blame for being slow.
//! - A peer is *slow* when for [`PATIENCE`] of the time in which it had anything under way nothing was in time. One message
//!   in time, and it is not: what comes and goes, as on a busy machine, drops nobody.
//!
//! Left to others: a peer that does not move at all ([`super::stream`]), and what becomes of a slow one (ownership).

use super::*;

/// Time with something under way in which nothing was in time, before a peer is slow.
const PATIENCE: Duration = Duration::from_secs(5);
/// The slowest link that is taken for one: 4 Mbit/s.
const LINK_BYTES_PER_SEC_MIN: u64 = 512 << 10;
/// A peer may take so many times as long as the quickest of the others.
const TIMES_THE_QUICKEST: u64 = 10;
/// Each message moves the usual time by one so many-th of the difference.
const USUAL_WEIGHT: u64 = 8;

/// A message on its way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    through: Lsn,
    at: Instant,
    blocks: u64,
    /// Under way when it was sent, its own included.
    blocks_before: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    under_way: VecDeque<Sent>,
    blocks: u64,
    /// The last progress, or the beginning of what is under way.
    moved_at: Instant,
    /// Time with something under way, since something was in time.
    late_for: Duration,
    /// How long a message takes to be held; none: nothing was held yet.
    usual: Option<Duration>,
}

/// What a peer is given for one message, besides what its bytes take: half of the time after which one that does not move
/// at all is dropped; where others keep the log as well, ten times what the quickest of them takes, and a quarter of that
/// time at least.
fn given(stall_max: Duration, quickest: Option<Duration>) -> Duration {
    let most = stall_max.0 / 2;
    let than_others = quickest.map_or(most, |quickest| quickest.0.saturating_mul(TIMES_THE_QUICKEST));
    Duration(than_others.clamp(stall_max.0 / 4, most))
}

impl Sent {
    fn is_late(&self, now: Instant, given: Duration) -> bool {
        let bytes = self.blocks_before * BLOCK_BYTES;
        let link = Duration((bytes as f64 / LINK_BYTES_PER_SEC_MIN as f64 * 1e9) as u64);
        now - self.at > Duration(given.0 + link.0)
    }
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace { under_way: VecDeque::new(), blocks: 0, moved_at: now, late_for: Duration(0), usual: None }
    }

    /// How long a message usually takes to be held.
    pub(super) fn usual(&self) -> Option<Duration> {
        self.usual
    }

    /// A message with everything up to `through` is sent, perhaps once more.
    pub(super) fn sent(&mut self, through: Lsn, blocks: u64, now: Instant) {
        if self.under_way.back().is_some_and(|last| through <= last.through) {
            return;
        }
        if self.under_way.is_empty() {
            self.moved_at = now;
        }
        self.blocks += blocks;
        self.under_way.push_back(Sent { through, at: now, blocks, blocks_before: self.blocks });
    }

    /// The peer holds more: everything up to here. `quickest`: what the quickest of the others usually takes.
    pub(super) fn held(&mut self, held: Lsn, now: Instant, stall_max: Duration, quickest: Option<Duration>) {
        let given = given(stall_max, quickest);
        // Longer than that it did not move at all.
        let busy = (now - self.moved_at).min(stall_max);
        self.moved_at = now;
        let (mut late, mut in_time) = (false, false);
        while let Some(first) = self.under_way.pop_front_if(|first| first.through <= held) {
            self.blocks -= first.blocks;
            let took = (now - first.at).0;
            let usual = self.usual.map_or(took, |usual| usual.0 - usual.0 / USUAL_WEIGHT + took / USUAL_WEIGHT);
            self.usual = Some(Duration(usual));
            let is_late = first.is_late(now, given);
            late |= is_late;
            in_time |= !is_late;
        }
        late |= self.under_way.front().is_some_and(|first| first.is_late(now, given));
        if in_time {
            self.late_for = Duration(0);
        } else if late {
            self.late_for = Duration(self.late_for.0 + busy.0);
        }
    }

    /// It is slow; told once, and again when that has lasted as long once more.
    pub(super) fn take_slow(&mut self) -> bool {
        let slow = self.late_for >= PATIENCE;
        if slow {
            self.late_for = Duration(0);
        }
        slow
    }

    /// This node did not run meanwhile: what it has not heard may lie in its sockets.
    pub(super) fn forgive(&mut self, late: Duration, now: Instant) {
        self.moved_at = (self.moved_at + late).min(now);
        for sent in &mut self.under_way {
            sent.at = (sent.at + late).min(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_millis(800);

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// When one is slow that holds each message so many milliseconds after it was sent, one at a time.
    fn slow_at(hold_ms: u64, quickest_ms: Option<u64>) -> Option<u64> {
        let mut pace = Pace::new(at(0));
        let mut now = 0;
        for lsn in 1..1_000 {
            pace.sent(Lsn(lsn), 1, at(now));
            now += hold_ms;
            pace.held(Lsn(lsn), at(now), STALL, quickest_ms.map(Duration::from_millis));
            if pace.take_slow() {
                return Some(now);
            }
            // In the time between nothing is under way.
            now += 3_000;
        }
        None
    }

    #[test]
    fn one_that_holds_each_message_just_before_it_counts_as_dead_is_slow_after_seconds_of_it() {
        assert_eq!(slow_at(790, None), Some(7 * 790 + 6 * 3_000));
        assert_eq!(slow_at(390, None), None, "in time for one that has nobody beside it");
        assert_eq!(slow_at(390, Some(2)), Some(13 * 390 + 12 * 3_000));
        assert_eq!(slow_at(190, Some(2)), None);
        assert_eq!(slow_at(380, Some(39)), None, "the others are hardly quicker");
    }

    #[test]
    fn a_link_that_carries_its_bytes_is_never_slow() {
        // 64 MiB at a time over 5 Mbit/s.
        let mut pace = Pace::new(at(0));
        let (window, message_ms) = (256, 64 * BLOCK_BYTES * 1_000 / (5_000_000 / 8));
        for lsn in 1..=window {
            pace.sent(Lsn(lsn), 64, at(0));
        }
        for lsn in 1..=window {
            pace.held(Lsn(lsn), at(lsn * message_ms), STALL, None);
            assert!(!pace.take_slow(), "message {lsn}");
        }
    }

    #[test]
    fn one_message_in_time_forgives_all_that_were_not() {
        let (mut pace, mut now) = (Pace::new(at(0)), 0);
        for lsn in 1..500 {
            pace.sent(Lsn(lsn), 1, at(now));
            now += if lsn % 10 == 0 { 50 } else { 500 };
            pace.held(Lsn(lsn), at(now), STALL, None);
            assert!(!pace.take_slow(), "at {now}");
        }
    }

    #[test]
    fn a_message_whose_records_trickle_is_late_before_it_is_whole() {
        let mut pace = Pace::new(at(0));
        pace.sent(Lsn(256), 64, at(0));
        let slow = (1..256).find(|&lsn| {
            pace.held(Lsn(lsn), at(lsn * 790), STALL, None);
            pace.take_slow()
        });
        // 0.9 s are given; from then on all of the time counts.
        assert_eq!(slow, Some(8));
    }

    #[test]
    fn what_is_sent_again_counts_from_the_first_time_and_the_own_sleep_for_nobody() {
        let mut pace = Pace::new(at(0));
        for lsn in 1..8 {
            pace.sent(Lsn(lsn), 1, at(lsn * 1_000));
            pace.sent(Lsn(lsn), 1, at(lsn * 1_000 + 700));
            pace.held(Lsn(lsn), at(lsn * 1_000 + 790), STALL, None);
        }
        assert!(pace.take_slow());
        assert!(!pace.take_slow(), "told once");
        for lsn in 8..18 {
            pace.sent(Lsn(lsn), 1, at(lsn * 1_000));
            pace.forgive(Duration::from_millis(700), at(lsn * 1_000 + 790));
            pace.held(Lsn(lsn), at(lsn * 1_000 + 790), STALL, None);
        }
        assert!(!pace.take_slow());
    }
}
