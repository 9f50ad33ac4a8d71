//! Counters of a device, kept by whoever completes its operations.

/// Buckets of the latency histogram: bucket i counts latencies of 2^i to 2^(i+1) ns, the last one all above (9 min).
pub const LATENCY_BUCKETS: usize = 40;

/// Counters of one kind of operation; all grow only, except the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationStats {
    /// Operations completed, failed ones included.
    pub operations: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Pieces (parts or frames) beyond the first of each operation: what merging saved in operations.
    pub merged: u64,
    /// Sum of latencies, from being asked for to completion, any model delay included.
    pub latency_sum_ns: u64,
    /// Longest latency, in nanoseconds.
    pub latency_max_ns: u64,
    /// Latencies by power of two.
    pub latency_histogram: [u64; LATENCY_BUCKETS],
}

impl Default for OperationStats {
    fn default() -> OperationStats {
        OperationStats {
            operations: 0,
            bytes: 0,
            errors: 0,
            merged: 0,
            latency_sum_ns: 0,
            latency_max_ns: 0,
            latency_histogram: [0; LATENCY_BUCKETS],
        }
    }
}

impl OperationStats {
    /// Counts one operation that has ended; its latency is in nanoseconds.
    pub fn record(&mut self, bytes: u64, pieces: u64, latency_ns: u64, failed: bool) {
        self.operations += 1;
        if failed {
            self.errors += 1;
        } else {
            self.bytes += bytes;
        }
        self.merged += pieces.saturating_sub(1);
        self.latency_sum_ns += latency_ns;
        self.latency_max_ns = self.latency_max_ns.max(latency_ns);
        let bucket = latency_ns.max(1).ilog2() as usize;
        self.latency_histogram[bucket.min(LATENCY_BUCKETS - 1)] += 1;
    }

    /// Mean latency, 0 when there was no operation.
    pub fn latency_mean_ns(&self) -> u64 {
        self.latency_sum_ns.checked_div(self.operations).unwrap_or(0)
    }
}

/// Counters of a device by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // each name says what it counts
pub struct DeviceStats {
    pub reads: OperationStats,
    pub writes: OperationStats,
    pub zeros: OperationStats,
    pub syncs: OperationStats,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_fall_into_their_power_of_two() {
        let mut stats = OperationStats::default();
        for latency in [0, 1, 2, 3, 1024, u64::MAX >> 20] {
            stats.record(512, 3, latency, false);
        }
        stats.record(512, 1, 1024, true);
        assert_eq!((stats.operations, stats.errors, stats.bytes, stats.merged), (7, 1, 6 * 512, 12));
        assert_eq!(&stats.latency_histogram[..3], &[2, 2, 0]);
        assert_eq!(stats.latency_histogram[10], 2);
        assert_eq!(stats.latency_histogram[LATENCY_BUCKETS - 1], 1);
        assert_eq!(stats.latency_max_ns, u64::MAX >> 20);
    }
}
