//! Which sizes of requests take how long.

use super::KEPT_COUNT_MAX;
use crate::types::Duration;

/// Classes of size: up to 512 bytes, up to 1 KiB, and so on up to 32 MiB.
pub const SIZE_CLASSES: usize = 17;
/// Classes of time: less than 1 us, less than 2 us, and so on; the last has everything from 67 s on.
pub const LATENCY_CLASSES: usize = 28;

/// Requests of clients by size and by the time that the client saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatMap {
    reads: [[u64; LATENCY_CLASSES]; SIZE_CLASSES],
    writes: [[u64; LATENCY_CLASSES]; SIZE_CLASSES],
}

impl Default for HeatMap {
    fn default() -> HeatMap {
        let none = [[0; LATENCY_CLASSES]; SIZE_CLASSES];
        HeatMap { reads: none, writes: none }
    }
}

impl HeatMap {
    /// Largest request of a class.
    pub fn size_bytes(class: usize) -> u64 {
        512 << class
    }

    /// A request of this class of time took less.
    pub fn latency_us(class: usize) -> u64 {
        1 << class
    }

    /// The class of a size.
    pub fn size_class(bytes: u64) -> usize {
        let sectors = bytes.div_ceil(512).max(1);
        (sectors.next_power_of_two().ilog2() as usize).min(SIZE_CLASSES - 1)
    }

    /// The class of a time.
    pub fn latency_class(took: Duration) -> usize {
        let us = took.0 / 1_000;
        ((u64::BITS - us.leading_zeros()) as usize).min(LATENCY_CLASSES - 1)
    }

    /// A read of so many bytes took so long.
    pub fn read(&mut self, bytes: u64, took: Duration) {
        self.reads[HeatMap::size_class(bytes)][HeatMap::latency_class(took)] += 1;
    }

    /// The same of a write.
    pub fn write(&mut self, bytes: u64, took: Duration) {
        self.writes[HeatMap::size_class(bytes)][HeatMap::latency_class(took)] += 1;
    }

    /// Reads: a row for each class of size, in it a count for each class of time.
    pub fn reads(&self) -> &[[u64; LATENCY_CLASSES]; SIZE_CLASSES] {
        &self.reads
    }

    /// Writes, in the same classes.
    pub fn writes(&self) -> &[[u64; LATENCY_CLASSES]; SIZE_CLASSES] {
        &self.writes
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &HeatMap) {
        self.with_cells_of(other, u64::wrapping_add);
    }

    /// What was counted since an earlier look. A look of another life counts for nothing.
    pub fn minus(&self, earlier: &HeatMap) -> HeatMap {
        let mut since = self.clone();
        let cells = |map: &HeatMap| map.reads.into_iter().chain(map.writes).flatten();
        if cells(earlier).zip(cells(self)).all(|(before, now)| before <= now) {
            since.with_cells_of(earlier, u64::wrapping_sub);
        }
        since
    }

    /// All that it holds, in a fixed order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.reads.iter().chain(&self.writes).flatten().copied()
    }

    /// Of what [`HeatMap::numbers`] gave.
    pub(super) fn of_numbers(next: &mut impl FnMut() -> u64) -> HeatMap {
        let mut map = HeatMap::default();
        for cell in map.reads.iter_mut().chain(&mut map.writes).flatten() {
            *cell = next().min(KEPT_COUNT_MAX);
        }
        map
    }

    fn with_cells_of(&mut self, other: &HeatMap, combine: impl Fn(u64, u64) -> u64) {
        let own = self.reads.iter_mut().chain(&mut self.writes).flatten();
        let others = other.reads.iter().chain(&other.writes).flatten();
        for (own, other) in own.zip(others) {
            *own = combine(*own, *other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_counted_in_the_class_whose_edges_hold_it() {
        for (bytes, class) in [(1, 0), (512, 0), (513, 1), (4096, 3), (4097, 4), (32 << 20, 16), (1 << 40, 16)] {
            assert_eq!(HeatMap::size_class(bytes), class, "{bytes} bytes");
            assert!(HeatMap::size_bytes(class) >= bytes || class == SIZE_CLASSES - 1);
        }
        for (ns, class) in [(0, 0), (999, 0), (1_000, 1), (1_999, 1), (2_000, 2), (67_108_864_000, 27), (u64::MAX, 27)]
        {
            assert_eq!(HeatMap::latency_class(Duration(ns)), class, "{ns} ns");
            assert!(HeatMap::latency_us(class) * 1_000 > ns || class == LATENCY_CLASSES - 1);
        }
    }

    #[test]
    fn two_looks_subtract_and_parts_add_up() {
        let mut now = HeatMap::default();
        now.read(4096, Duration::from_micros(3));
        let before = now.clone();
        now.write(4096, Duration::from_micros(3));
        let since = now.minus(&before);
        assert_eq!((since.reads()[3][2], since.writes()[3][2]), (0, 1));
        let mut both = before.clone();
        both.merge(&since);
        assert_eq!(both, now);
        assert_eq!(before.minus(&now), before, "the volume has begun anew in between: all of it is new");
    }
}
