//! What a look at a volume finds, and what two looks say about the time between them. The same difference serves a second
//! and ten minutes, so that a coarse step's rates and percentiles are those of its whole time, not means of means.

use forebay_api::history::series;
use forebay_api::history::series::{NO_VALUES, VOLUME, Values};
use forebay_api::status::VolumeReport;
use forebay_core::stats::{Histogram, Legs, Stats, Streams};

/// Counters, which only grow while a volume stays attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    read_blocks: u64,
    read_blocks_found: u64,
    backing_write_bytes: u64,
    evictions: u64,
    throttled: u64,
    peer_blocks: u64,
}

impl Counts {
    fn of(report: &VolumeReport) -> Counts {
        let count = |name: &str| report.counters.get(name).copied().unwrap_or(0);
        let found = count("read_blocks_from_log") + count("read_blocks_from_cache") + count("read_blocks_of_zeros");
        Counts {
            reads: count("reads"),
            read_bytes: count("read_bytes"),
            writes: count("writes") + count("zeros"),
            write_bytes: count("write_bytes"),
            read_blocks: found + count("read_blocks_from_backing"),
            read_blocks_found: found,
            backing_write_bytes: count("backing_write_bytes"),
            evictions: count("evictions"),
            throttled: count("throttled_writes"),
            peer_blocks: report.cluster.as_ref().and_then(|c| c.counters.get("peer_blocks")).copied().unwrap_or(0),
        }
    }

    /// What came to them. They began anew when the volume was opened anew: then it is all that they hold.
    fn minus(&self, earlier: &Counts) -> Counts {
        let began_anew =
            self.reads < earlier.reads || self.writes < earlier.writes || self.read_blocks < earlier.read_blocks;
        let earlier = if began_anew { &Counts::default() } else { earlier };
        Counts {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            writes: self.writes - earlier.writes,
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
            read_blocks: self.read_blocks - earlier.read_blocks,
            read_blocks_found: self.read_blocks_found.saturating_sub(earlier.read_blocks_found),
            backing_write_bytes: self.backing_write_bytes.saturating_sub(earlier.backing_write_bytes),
            evictions: self.evictions.saturating_sub(earlier.evictions),
            throttled: self.throttled.saturating_sub(earlier.throttled),
            peer_blocks: self.peer_blocks.saturating_sub(earlier.peer_blocks),
        }
    }
}

/// What one look has found.
#[derive(Clone, Debug)]
pub struct Reading {
    counts: Counts,
    dirty_bytes: u64,
    drain_s: Option<f64>,
    oldest_dirty_s: f64,
    groups_waiting: u32,
    /// Bytes that compression has kept from the wire for this volume, in all.
    pub saved_bytes: u64,
    times: Option<Box<Times>>,
}

/// The part of what a volume has measured that becomes series.
#[derive(Clone, Debug)]
struct Times {
    reads: Legs,
    writes: Legs,
    flush: Histogram,
    streams: Streams,
}

impl Times {
    fn since(&self, earlier: &Times, values: &mut Values) {
        let streams = self.streams.minus(&earlier.streams);
        let mut both = streams.reads();
        both.merge(&streams.writes());
        values[SEQUENTIAL_RATIO] = figure(both.sequential_ratio());
        values[FLUSH_P99_US] = figure(self.flush.minus(&earlier.flush).percentile(99.0).map(|us| us as f64));
        let (reads, writes) = (self.reads.minus(&earlier.reads), self.writes.minus(&earlier.writes));
        let legs =
            [&reads, &writes].into_iter().flat_map(|legs| [&legs.client, &legs.local, &legs.network, &legs.backing]);
        let places = (series::LEGS..).step_by(4).zip(legs);
        let waiting = [(series::WAITING, &reads.waiting), (series::WAITING + 4, &writes.waiting)];
        for (place, leg) in places.chain(waiting) {
            let us = |time: Option<u64>| figure(time.map(|us| us as f64));
            values[place] = figure(leg.mean_us());
            values[place + 1] = us(leg.percentile(50.0));
            values[place + 2] = us(leg.percentile(99.0));
            values[place + 3] = us(leg.max_us());
        }
    }
}

const SEQUENTIAL_RATIO: usize = 13;
const FLUSH_P99_US: usize = 14;

fn figure(value: Option<f64>) -> f32 {
    value.map_or(f32::NAN, |value| value as f32)
}

impl Reading {
    /// Of a volume that runs.
    pub fn new(report: &VolumeReport, seen: Option<&Stats>) -> Reading {
        let times = |seen: &Stats| {
            let Stats { reads, writes, flush, streams, .. } = seen;
            Box::new(Times { reads: reads.clone(), writes: writes.clone(), flush: flush.clone(), streams: *streams })
        };
        Reading {
            counts: Counts::of(report),
            dirty_bytes: report.dirty.bytes,
            drain_s: report.dirty.drain_s,
            oldest_dirty_s: report.dirty.oldest_s,
            groups_waiting: report.dirty.groups_waiting,
            saved_bytes: 0,
            times: seen.map(times),
        }
    }

    /// Nothing has happened to the volume since an earlier one.
    pub fn is_as(&self, earlier: &Reading) -> bool {
        let shown = |reading: &Reading| (reading.counts, reading.dirty_bytes, reading.groups_waiting);
        shown(self) == shown(earlier)
    }

    /// Blocks that went to other nodes since an earlier one.
    pub fn peer_blocks_since(&self, earlier: &Reading) -> u64 {
        self.counts.minus(&earlier.counts).peer_blocks
    }

    /// What happened since an earlier one, `seconds` ago, by series. Amounts are those of now.
    pub fn since(&self, earlier: &Reading, seconds: f64) -> Values {
        let mut values = NO_VALUES;
        let c = self.counts.minus(&earlier.counts);
        let rate = |count: u64| count as f64 / seconds;
        let ratio = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let figures: [Option<f64>; 13] = [
            Some(rate(c.reads)),
            Some(rate(c.writes)),
            Some(rate(c.read_bytes)),
            Some(rate(c.write_bytes)),
            ratio(c.read_blocks_found, c.read_blocks),
            Some(self.dirty_bytes as f64),
            self.drain_s,
            Some(self.oldest_dirty_s),
            Some(f64::from(self.groups_waiting)),
            Some(rate(c.backing_write_bytes)),
            Some(rate(c.evictions)),
            Some(rate(self.saved_bytes.saturating_sub(earlier.saved_bytes))),
            Some(rate(c.throttled)),
        ];
        for (place, figure) in figures.into_iter().enumerate() {
            values[place] = self::figure(figure);
        }
        if let (Some(now), Some(earlier)) = (&self.times, &earlier.times) {
            now.since(earlier, &mut values);
        }
        values
    }
}

/// Amounts of a moment: a coarse step has their mean over its seconds, where all others come from its two ends.
pub fn is_amount(place: usize) -> bool {
    matches!(VOLUME[place], "dirty_bytes" | "drain_s" | "oldest_dirty_s" | "groups_waiting")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::history::series::Kind;
    use forebay_core::types::Duration;

    fn reading(counters: &[(&str, u64)]) -> Reading {
        let (_, mut report) = crate::status::tests::example();
        report.counters = counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        Reading::new(&report, None)
    }

    #[test]
    fn legs_are_those_of_the_time_between_two_looks() {
        let (_, report) = crate::status::tests::example();
        let mut seen = Stats::new(100);
        let us = Duration::from_micros;
        seen.reads.client.record_many(us(1000), 50);
        let before = Reading::new(&report, Some(&seen));
        seen.reads.client.record_many(us(10), 98);
        seen.reads.client.record_many(us(100), 2);
        seen.writes.network.record(us(64));
        seen.reads.waiting.record(us(512));
        seen.writes.waiting.record(us(2048));
        seen.flush.record(us(1 << 20));
        seen.streams.read(0, 4096);
        seen.streams.read(4096, 4096);
        let values = Reading::new(&report, Some(&seen)).since(&before, 1.0);
        let near = |name: &str, expected: f32| {
            let found = value(&values, name);
            assert!((expected..=expected * 1.13).contains(&found), "{name}: {found}, not {expected}");
        };
        near("read_client_us", 11.8);
        near("read_client_p50_us", 10.0);
        near("read_client_p99_us", 100.0);
        near("read_client_max_us", 100.0);
        near("write_network_p50_us", 64.0);
        near("read_waiting_p99_us", 512.0);
        near("write_waiting_max_us", 2048.0);
        near("flush_p99_us", (1 << 20) as f32);
        assert_eq!(value(&values, "sequential_ratio"), 0.5);
        assert!(value(&values, "write_client_us").is_nan(), "nothing was written");
        let unmeasured = Reading::new(&report, None).since(&before, 1.0);
        assert!(value(&unmeasured, "read_client_us").is_nan());
        for (place, name) in [(SEQUENTIAL_RATIO, "sequential_ratio"), (FLUSH_P99_US, "flush_p99_us")] {
            assert_eq!(Kind::Volume.place(name), Some(place));
        }
    }

    fn value(values: &Values, name: &str) -> f32 {
        values[Kind::Volume.place(name).unwrap()]
    }

    #[test]
    fn two_looks_say_what_happened_between_them() {
        let before = reading(&[("reads", 100), ("read_bytes", 1000)]);
        let after = reading(&[
            ("reads", 300),
            ("read_bytes", 5000),
            ("writes", 10),
            ("zeros", 10),
            ("read_blocks_from_log", 2),
            ("read_blocks_from_cache", 1),
            ("read_blocks_from_backing", 1),
        ]);
        let values = after.since(&before, 2.0);
        assert_eq!(value(&values, "read_iops"), 100.0);
        assert_eq!(value(&values, "read_bytes_per_s"), 2000.0);
        assert_eq!(value(&values, "write_iops"), 10.0);
        assert_eq!(value(&values, "read_hit_ratio"), 0.75);
        assert_eq!(value(&values, "dirty_bytes"), 4096.0);
        let idle = after.since(&after, 1.0);
        assert_eq!(value(&idle, "read_iops"), 0.0);
        assert!(value(&idle, "read_hit_ratio").is_nan(), "nothing was read, so nothing was found");
    }

    #[test]
    fn counters_that_began_anew_are_no_drop() {
        let before = reading(&[("reads", 1_000_000), ("writes", 5)]);
        let after = reading(&[("reads", 40), ("writes", 9)]);
        let values = after.since(&before, 1.0);
        assert_eq!((value(&values, "read_iops"), value(&values, "write_iops")), (40.0, 9.0));
    }
}
