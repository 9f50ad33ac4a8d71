//! How long things took: counts in classes whose width is an eighth of a power of two, so that a percentile is off by an
//! eighth at most however long the times are.

use super::KEPT_COUNT_MAX;
use crate::types::Duration;

/// Classes in each power of two.
const PER_OCTAVE: usize = 8;
/// Times from 2^27 microseconds (134 s) on are counted in the last class.
const OCTAVES: usize = 27;
/// Classes: one for each microsecond below 8, and 8 for each power of two from there on.
const BUCKETS: usize = (OCTAVES - 2) * PER_OCTAVE;

/// Times of operations. Only grows; what came between two looks is their difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    count: u64,
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: [0; BUCKETS], count: 0, sum_ns: 0 }
    }
}

/// The class of a value: exact below 8, then by its highest bit and the three after it.
pub(super) fn class_of(value: u64) -> usize {
    if value < PER_OCTAVE as u64 {
        return value as usize;
    }
    let octave = value.ilog2() as usize;
    (octave - 2) * PER_OCTAVE + (value >> (octave - 3)) as usize % PER_OCTAVE
}

/// The smallest value above a class.
pub(super) fn edge_above(class: usize) -> u64 {
    if class < PER_OCTAVE {
        return class as u64 + 1;
    }
    ((class % PER_OCTAVE + PER_OCTAVE + 1) as u64) << (class / PER_OCTAVE - 1)
}

impl Histogram {
    /// Counts one thing that took so long.
    pub fn record(&mut self, took: Duration) {
        self.record_many(took, 1);
    }

    /// So many things took so long each.
    pub fn record_many(&mut self, took: Duration, count: u64) {
        self.buckets[class_of(took.0 / 1_000).min(BUCKETS - 1)] += count;
        self.count += count;
        self.sum_ns = self.sum_ns.saturating_add(took.0.saturating_mul(count));
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (own, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += more;
        }
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// What was counted since an earlier look. A look of another life, which is no beginning of this one, counts for nothing.
    pub fn minus(&self, earlier: &Histogram) -> Histogram {
        let mut since = self.clone();
        if earlier.buckets.iter().zip(&self.buckets).any(|(before, now)| before > now) || earlier.sum_ns > self.sum_ns {
            return since;
        }
        for (own, before) in since.buckets.iter_mut().zip(&earlier.buckets) {
            *own -= before;
        }
        since.count -= earlier.count;
        since.sum_ns -= earlier.sum_ns;
        since
    }

    /// How many times were recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All their time together, in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_ns / 1_000
    }

    /// Their mean time; none where nothing was counted.
    pub fn mean_us(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / 1e3 / self.count as f64)
    }

    /// So many of a hundred took less than this. A class is told by its upper edge, so the truth is at most an eighth
    /// lower; none where nothing was counted.
    pub fn percentile(&self, p: f64) -> Option<u64> {
        let wanted = (self.count as f64 * p.clamp(0.0, 100.0) / 100.0).max(1.0);
        let mut seen = 0;
        self.buckets().find_map(|(edge, count)| {
            seen += count;
            (seen as f64 >= wanted).then_some(edge)
        })
    }

    /// Nothing took as long as this; none where nothing was counted.
    pub fn max_us(&self) -> Option<u64> {
        self.buckets.iter().rposition(|&count| count > 0).map(edge_above)
    }

    /// The classes in which something was counted, the shortest first: `(its upper edge in microseconds, count)`. What is
    /// counted took less than the edge, and at least that of the class below. The last class has everything longer, too.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(class, &count)| (edge_above(class), count))
    }

    /// All that it holds, in a fixed order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        core::iter::once(self.sum_ns).chain(self.buckets.iter().copied())
    }

    /// Of what [`Histogram::numbers`] gave.
    pub(super) fn of_numbers(next: &mut impl FnMut() -> u64) -> Histogram {
        let sum_ns = next();
        let buckets = core::array::from_fn(|_| next().min(KEPT_COUNT_MAX));
        Histogram { buckets, count: buckets.iter().sum(), sum_ns }
    }

    /// How many took less than this; exact where an upper edge of a class is given, as every power of two is.
    pub fn count_below(&self, edge_us: u64) -> u64 {
        self.buckets().take_while(|(edge, _)| *edge <= edge_us).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn classes_join_without_gap_and_are_an_eighth_wide_at_most() {
        for class in 0..BUCKETS {
            let (from, to) = (class.checked_sub(1).map_or(0, edge_above), edge_above(class));
            assert!(from < to && (to - from == 1 || (to - from) * 8 <= from), "{class}: {from} to {to}");
            assert_eq!((class_of(from), class_of(to - 1)), (class, class));
        }
        assert_eq!(edge_above(BUCKETS - 1), 1 << OCTAVES);
    }

    #[test]
    fn percentiles_are_off_by_an_eighth_at_most() {
        let (mut seen, mut exact, mut x) = (Histogram::default(), Vec::new(), 1u64);
        for _ in 0..50_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // From a microsecond to a minute, as often in each power of two.
            let value = (1 << ((x >> 33) % 26)) + (x >> 40) % 1_000;
            seen.record(us(value));
            exact.push(value);
        }
        exact.sort_unstable();
        for p in [0.0, 1.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
            let at = (exact.len() as f64 * p / 100.0).ceil().max(1.0) as usize - 1;
            let (true_us, told) = (exact[at], seen.percentile(p).unwrap());
            assert!(told > true_us && told as f64 <= true_us as f64 * 1.125 + 1.0, "{p}: {told} for {true_us}");
        }
        let mean = exact.iter().sum::<u64>() as f64 / exact.len() as f64;
        assert!((seen.mean_us().unwrap() / mean - 1.0).abs() < 1e-9);
        assert_eq!((seen.count(), seen.max_us()), (50_000, seen.percentile(100.0)));
    }

    #[test]
    fn nothing_is_told_of_nothing() {
        let empty = Histogram::default();
        assert_eq!((empty.percentile(50.0), empty.mean_us(), empty.max_us()), (None, None, None));
        assert_eq!(empty.buckets().count(), 0);
    }

    #[test]
    fn two_looks_subtract_and_parts_add_up() {
        let mut now = Histogram::default();
        now.record_many(us(10), 3);
        let before = now.clone();
        now.record(us(5_000));
        now.record(Duration(999));
        let since = now.minus(&before);
        assert_eq!((since.count(), since.sum_us()), (2, 5_000));
        assert_eq!(since.buckets().collect::<Vec<_>>(), [(1, 1), (5_120, 1)]);
        let mut both = before.clone();
        both.merge(&since);
        assert_eq!(both, now);
        assert_eq!(before.minus(&now), before, "the volume has begun anew in between: all of it is new");
    }

    #[test]
    fn longest_times_are_counted_and_overflow_nothing() {
        let mut seen = Histogram::default();
        seen.record_many(Duration(u64::MAX), 3);
        seen.record(Duration::from_secs(600));
        assert_eq!((seen.count(), seen.max_us()), (4, Some(1 << 27)));
        assert_eq!(seen.percentile(50.0), Some(1 << 27));
    }

    #[test]
    fn how_many_were_quicker_is_exact_at_powers_of_two() {
        let mut seen = Histogram::default();
        for value in 0..5_000 {
            seen.record(us(value));
        }
        for edge in [1, 2, 8, 64, 1_024, 4_096] {
            assert_eq!(seen.count_below(edge), edge);
        }
        assert_eq!(seen.count_below(1 << 20), 5_000);
    }
}
