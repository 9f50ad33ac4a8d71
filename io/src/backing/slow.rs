//! `slow:` a queueing model of an array, so that demos, tests and users can have one without owning one.
//!
//! ```text
//! asked -> [admission: one each 1/iops] -> [one of `depth` servers: latency] -> [shared link: bytes/rate] -> done
//! ```
//!
//! A server is taken until the transfer is done. At queue depth 1 an operation takes `latency + bytes/rate`; under load
//! the throughput is the least of `iops`, `depth / (latency + transfer)` and `rate`. A sync waits for everything asked
//! before it and then takes its own latency; syncs follow each other. The model is a pure function of the instants
//! it is fed: it never sleeps.

use crate::units::{parse_bytes, parse_duration};
use forebay_core::types::{Duration, Instant};

/// Parameters. Zero means "no limit" for `iops` and `rate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowParameters {
    /// Operations each second at most.
    pub iops: u64,
    /// Time that each operation takes before its transfer: the seek.
    pub latency: Duration,
    /// Bytes each second over the link.
    pub rate: u64,
    /// Operations worked on at one time.
    pub depth: u32,
    /// Time that a sync takes by itself.
    pub sync: Duration,
}

/// Depth when nothing determines it.
const DEPTH_DEFAULT: u32 = 32;
const DEPTH_MAX: u32 = 4096;

impl SlowParameters {
    /// From `iops=700,latency=8ms,rate=110M,depth=8,sync=8ms`. Each may be left out: `depth` then is what `iops` at
    /// this latency needs, `sync` is the latency.
    pub fn parse(text: &str) -> Result<SlowParameters, String> {
        let (mut iops, mut latency, mut rate, mut depth, mut sync) = (0, Duration(0), 0, None, None);
        for (key, value) in super::pairs("slow:", text)? {
            match key {
                "iops" => iops = super::number(key, value)?,
                "latency" => latency = parse_duration(value)?,
                "rate" => rate = parse_bytes(value)?,
                "depth" => depth = Some(super::number(key, value)?),
                "sync" => sync = Some(parse_duration(value)?),
                _ => {
                    return Err(format!("slow: has no parameter `{key}`; it has iops, latency, rate, depth and sync"));
                }
            }
        }
        if iops > 1_000_000_000 {
            return Err("slow: iops is at most 1000000000".into());
        }
        let needed = match u64::from(DEPTH_MAX).min(iops.saturating_mul(latency.0).div_ceil(1_000_000_000)) {
            0 => u64::from(DEPTH_DEFAULT),
            needed => needed,
        };
        let depth = depth.unwrap_or(needed);
        if depth == 0 || depth > u64::from(DEPTH_MAX) {
            return Err(format!("slow: depth lies between 1 and {DEPTH_MAX}"));
        }
        Ok(SlowParameters { iops, latency, rate, depth: depth as u32, sync: sync.unwrap_or(latency) })
    }
}

/// The state of the model: when each resource is free again.
#[derive(Clone, Debug)]
pub struct SlowModel {
    parameters: SlowParameters,
    next_admission: Instant,
    servers: Vec<Instant>,
    link: Instant,
    /// End of everything asked so far, syncs apart.
    all_done: Instant,
    last_sync: Instant,
}

impl SlowModel {
    /// A model of an array with nothing to do.
    pub fn new(parameters: SlowParameters) -> SlowModel {
        SlowModel {
            parameters,
            next_admission: Instant(0),
            servers: vec![Instant(0); parameters.depth as usize],
            link: Instant(0),
            all_done: Instant(0),
            last_sync: Instant(0),
        }
    }

    /// What the model was made with.
    pub fn parameters(&self) -> &SlowParameters {
        &self.parameters
    }

    /// A read, write or zero asked for now: when it is done. Zeros move no bytes.
    pub fn operation(&mut self, now: Instant, bytes: u64) -> Instant {
        let p = &self.parameters;
        let server = self.servers.iter_mut().min().expect("at least one server");
        let start = now.max(*server).max(self.next_admission);
        if let Some(gap) = 1_000_000_000u64.checked_div(p.iops) {
            self.next_admission = start + Duration(gap);
        }
        let sought = start + p.latency;
        let transfer = (u128::from(bytes) * 1_000_000_000).checked_div(u128::from(p.rate)).unwrap_or(0);
        let transfer = Duration(u64::try_from(transfer).unwrap_or(u64::MAX));
        let done = if transfer.0 == 0 { sought } else { sought.max(self.link) + transfer };
        if transfer.0 > 0 {
            self.link = done;
        }
        *server = done;
        self.all_done = self.all_done.max(done);
        done
    }

    /// A sync asked for now: when it is done.
    pub fn sync(&mut self, now: Instant) -> Instant {
        self.last_sync = now.max(self.all_done).max(self.last_sync) + self.parameters.sync;
        self.last_sync
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(text: &str) -> SlowModel {
        SlowModel::new(SlowParameters::parse(text).unwrap())
    }

    /// Closed loop at a queue depth: operations in the time, by the model's own clock.
    fn throughput(model: &mut SlowModel, queue_depth: usize, bytes: u64, seconds: u64) -> f64 {
        let mut in_flight: Vec<Instant> = (0..queue_depth).map(|_| model.operation(Instant(0), bytes)).collect();
        let mut done = 0u64;
        loop {
            let first = (0..in_flight.len()).min_by_key(|&i| in_flight[i]).unwrap();
            let now = in_flight[first];
            if now.0 > seconds * 1_000_000_000 {
                return done as f64 / seconds as f64;
            }
            done += 1;
            in_flight[first] = model.operation(now, bytes);
        }
    }

    #[test]
    fn alone_an_operation_takes_seek_and_transfer() {
        let mut slow = model("iops=700,latency=8ms,rate=100M");
        let now = Instant(5_000_000_000);
        assert_eq!(slow.operation(now, 0) - now, Duration::from_millis(8));
        let mut slow = model("latency=8ms,rate=1M");
        assert_eq!(slow.operation(now, 1 << 20) - now, Duration::from_millis(1008));
    }

    #[test]
    fn at_depth_one_the_latency_bounds_and_at_depth_the_iops() {
        let rate = throughput(&mut model("iops=700,latency=8ms,rate=110M"), 1, 4096, 20);
        assert!((118.0..=125.0).contains(&rate), "{rate}");
        let rate = throughput(&mut model("iops=700,latency=8ms,rate=110M"), 32, 4096, 20);
        assert!((690.0..=701.0).contains(&rate), "{rate}");
    }

    #[test]
    fn the_depth_bounds_where_it_is_given() {
        let rate = throughput(&mut model("latency=10ms,depth=4"), 32, 4096, 20);
        assert!((395.0..=401.0).contains(&rate), "{rate}");
    }

    #[test]
    fn the_link_bounds_large_operations() {
        let bytes = 1 << 20;
        let rate = throughput(&mut model("iops=700,latency=8ms,rate=110M,depth=16"), 16, bytes, 20);
        assert!((109.0..=110.1).contains(&rate), "{rate} MiB/s");
    }

    #[test]
    fn a_sync_waits_for_all_before_it_and_for_no_later_one() {
        let mut slow = model("latency=8ms,depth=2,sync=5ms");
        let now = Instant(1_000_000_000);
        for _ in 0..4 {
            slow.operation(now, 4096);
        }
        let first = slow.sync(now);
        assert_eq!(first - now, Duration::from_millis(2 * 8 + 5));
        slow.operation(now, 4096);
        assert_eq!(slow.sync(first) - first, Duration::from_millis(3 + 5));
    }

    #[test]
    fn completion_never_precedes_the_request_and_idle_time_is_not_saved_up() {
        let mut slow = model("iops=100,latency=1ms");
        let mut last = Instant(0);
        for i in 0..5 {
            let done = slow.operation(Instant(60_000_000_000), 0);
            assert_eq!(done - Instant(60_000_000_000), Duration::from_millis(1 + 10 * i));
            assert!(done > last);
            last = done;
        }
    }

    #[test]
    fn parameters_have_defaults_and_limits() {
        let p = SlowParameters::parse("iops=700,latency=8ms,rate=110M").unwrap();
        assert_eq!((p.depth, p.sync, p.rate), (6, Duration::from_millis(8), 110 << 20));
        assert_eq!(SlowParameters::parse("rate=1M").unwrap().depth, 32);
        for wrong in ["depth=0", "depth=5000", "iops=x", "speed=1", "latency", "latency=8"] {
            assert!(SlowParameters::parse(wrong).is_err(), "{wrong}");
        }
    }
}
