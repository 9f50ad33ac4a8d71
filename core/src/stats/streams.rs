//! Whether clients read and write in sequence.

use super::KEPT_COUNT_MAX;

/// Streams that are followed at one time, in each direction.
const FOLLOWED: usize = 8;

/// Requests of one direction: sequential is one that begins where one of the last streams ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Requests that go on with a stream.
    pub sequential: u64,
    /// Bytes of those that go on.
    pub sequential_bytes: u64,
    /// All others: also the first one of each stream.
    pub random: u64,
    /// Bytes of all others.
    pub random_bytes: u64,
}

impl Shares {
    /// How much of all, by requests; none where there were none.
    pub fn sequential_ratio(&self) -> Option<f64> {
        let all = self.sequential + self.random;
        (all > 0).then(|| self.sequential as f64 / all as f64)
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Shares) {
        self.sequential += other.sequential;
        self.sequential_bytes += other.sequential_bytes;
        self.random += other.random;
        self.random_bytes += other.random_bytes;
    }

    /// What was counted since an earlier look. A look of another life counts for nothing.
    pub fn minus(&self, earlier: &Shares) -> Shares {
        let parts = |sequential, sequential_bytes, random, random_bytes| {
            Some(Shares {
                sequential: self.sequential.checked_sub(sequential)?,
                sequential_bytes: self.sequential_bytes.checked_sub(sequential_bytes)?,
                random: self.random.checked_sub(random)?,
                random_bytes: self.random_bytes.checked_sub(random_bytes)?,
            })
        };
        let Shares { sequential, sequential_bytes, random, random_bytes } = *earlier;
        parts(sequential, sequential_bytes, random, random_bytes).unwrap_or(*self)
    }
}

/// The streams of one direction, and what they have brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Direction {
    /// Where each stream ended; no request begins at the end of all numbers.
    ends: [u64; FOLLOWED],
    /// The one that gives way to a new stream.
    oldest: usize,
    shares: Shares,
}

impl Default for Direction {
    fn default() -> Direction {
        Direction { ends: [u64::MAX; FOLLOWED], oldest: 0, shares: Shares::default() }
    }
}

impl Direction {
    fn note(&mut self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes);
        match self.ends.iter().position(|&ended| ended == offset) {
            Some(at) => {
                self.ends[at] = end;
                // One that goes on is not the next to give way.
                if at == self.oldest {
                    self.oldest = (at + 1) % FOLLOWED;
                }
                self.shares.sequential += 1;
                self.shares.sequential_bytes += bytes;
            }
            None => {
                self.ends[self.oldest] = end;
                self.oldest = (self.oldest + 1) % FOLLOWED;
                self.shares.random += 1;
                self.shares.random_bytes += bytes;
            }
        }
    }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    reads: Direction,
    writes: Direction,
}

impl Streams {
    /// A client reads so many bytes from this offset on.
    pub fn read(&mut self, offset: u64, bytes: u64) {
        self.reads.note(offset, bytes);
    }

    /// A client writes so many bytes from this offset on.
    pub fn write(&mut self, offset: u64, bytes: u64) {
        self.writes.note(offset, bytes);
    }

    /// What clients read, in sequence and otherwise.
    pub fn reads(&self) -> Shares {
        self.reads.shares
    }

    /// What clients wrote, in sequence and otherwise.
    pub fn writes(&self) -> Shares {
        self.writes.shares
    }

    /// What both have brought, in a fixed order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        [&self.reads.shares, &self.writes.shares].into_iter().flat_map(|shares| {
            let Shares { sequential, sequential_bytes, random, random_bytes } = *shares;
            [sequential, sequential_bytes, random, random_bytes]
        })
    }

    /// Of what [`Streams::numbers`] gave; it follows no stream.
    pub(super) fn of_numbers(next: &mut impl FnMut() -> u64) -> Streams {
        let mut shares = || {
            let [sequential, sequential_bytes, random, random_bytes] = [(); 4].map(|()| next().min(KEPT_COUNT_MAX));
            Direction { shares: Shares { sequential, sequential_bytes, random, random_bytes }, ..Direction::default() }
        };
        Streams { reads: shares(), writes: shares() }
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Streams) {
        self.reads.shares.merge(&other.reads.shares);
        self.writes.shares.merge(&other.writes.shares);
    }

    /// What was counted since an earlier look.
    pub fn minus(&self, earlier: &Streams) -> Streams {
        let mut since = *self;
        since.reads.shares = self.reads.shares.minus(&earlier.reads.shares);
        since.writes.shares = self.writes.shares.minus(&earlier.writes.shares);
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_streams_at_a_time_are_sequential_and_nine_are_not() {
        for (streams, ratio) in [(1, 0.99), (8, 0.99), (9, 0.0)] {
            let mut seen = Streams::default();
            for step in 0..100 {
                for stream in 0..streams {
                    seen.read((stream << 30) + step * 4096, 4096);
                }
            }
            assert_eq!(seen.reads().sequential_ratio(), Some(ratio), "{streams} streams");
            assert_eq!(seen.writes(), Shares::default());
        }
    }

    #[test]
    fn a_stream_survives_random_requests_beside_it() {
        let mut seen = Streams::default();
        for step in 0..1_000 {
            seen.write(step * 65_536, 65_536);
            seen.write((1 << 40) + step * 999_424, 512);
        }
        let Shares { sequential, sequential_bytes, random, random_bytes } = seen.writes();
        assert_eq!((sequential, sequential_bytes), (999, 999 * 65_536));
        assert_eq!((random, random_bytes), (1_001, 65_536 + 1_000 * 512));
        let mut doubled = seen;
        doubled.merge(&seen);
        assert_eq!(doubled.minus(&seen).writes(), seen.writes());
        assert_eq!(Streams::default().minus(&seen), Streams::default());
    }
}
