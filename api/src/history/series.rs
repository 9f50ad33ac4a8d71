//! The figures that are kept over time: their names, which are the same in the API, the command line and the charts.
//!
//! A name's place in its list is its place in a slot on disk ([`super::format`]): names are only ever added at the end.

use super::format::SERIES_MAX;

/// One figure for each series; NaN where there is none.
pub type Values = [f32; SERIES_MAX];

/// No figure in any series.
pub const NO_VALUES: Values = [f32::NAN; SERIES_MAX];

/// Whose series they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Those of one volume.
    Volume,
    /// The node's own.
    Node,
}

impl Kind {
    /// The names, in the order of their places.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Kind::Volume => &VOLUME,
            Kind::Node => &NODE,
        }
    }

    /// The place of a name.
    pub fn place(self, name: &str) -> Option<usize> {
        self.names().iter().position(|known| *known == name)
    }
}

/// Of a volume. Those of a leg come in fours: mean, median, 99th percentile, largest; from [`LEGS`] on, and from [`WAITING`] on.
pub const VOLUME: [&str; 55] = [
    "read_iops",
    "write_iops",
    "read_bytes_per_s",
    "write_bytes_per_s",
    "read_hit_ratio",
    "dirty_bytes",
    "drain_s",
    "oldest_dirty_s",
    "groups_waiting",
    "destage_bytes_per_s",
    "evictions_per_s",
    "compression_saved_bytes_per_s",
    "throttled_per_s",
    "sequential_ratio",
    "flush_p99_us",
    "read_client_us",
    "read_client_p50_us",
    "read_client_p99_us",
    "read_client_max_us",
    "read_local_us",
    "read_local_p50_us",
    "read_local_p99_us",
    "read_local_max_us",
    "read_network_us",
    "read_network_p50_us",
    "read_network_p99_us",
    "read_network_max_us",
    "read_backing_us",
    "read_backing_p50_us",
    "read_backing_p99_us",
    "read_backing_max_us",
    "write_client_us",
    "write_client_p50_us",
    "write_client_p99_us",
    "write_client_max_us",
    "write_local_us",
    "write_local_p50_us",
    "write_local_p99_us",
    "write_local_max_us",
    "write_network_us",
    "write_network_p50_us",
    "write_network_p99_us",
    "write_network_max_us",
    "write_backing_us",
    "write_backing_p50_us",
    "write_backing_p99_us",
    "write_backing_max_us",
    "read_waiting_us",
    "read_waiting_p50_us",
    "read_waiting_p99_us",
    "read_waiting_max_us",
    "write_waiting_us",
    "write_waiting_p50_us",
    "write_waiting_p99_us",
    "write_waiting_max_us",
];

/// Where the legs begin in [`VOLUME`].
pub const LEGS: usize = 15;

/// Where the waiting of reads and of writes begins.
pub const WAITING: usize = LEGS + 2 * 4 * 4;

/// Names of a node's series, in the order of their places.
pub const NODE: [&str; 7] = [
    "cpu_ratio",
    "memory_bytes",
    "link_send_bytes_per_s",
    "link_receive_bytes_per_s",
    "dirty_bytes",
    "volumes",
    "degraded",
];

const _: () = assert!(VOLUME.len() <= SERIES_MAX && NODE.len() <= SERIES_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legs_of_both_sides_have_their_four_figures_at_their_places() {
        let mut place = LEGS;
        for legs in [&["client", "local", "network", "backing"][..], &["waiting"]] {
            for side in ["read", "write"] {
                for leg in legs {
                    for figure in ["us", "p50_us", "p99_us", "max_us"] {
                        assert_eq!(VOLUME[place], format!("{side}_{leg}_{figure}"));
                        place += 1;
                    }
                }
            }
        }
        assert_eq!(VOLUME[WAITING], "read_waiting_us");
        assert_eq!(place, VOLUME.len());
    }

    #[test]
    fn a_name_has_one_place() {
        for kind in [Kind::Volume, Kind::Node] {
            for (place, name) in kind.names().iter().enumerate() {
                assert_eq!(kind.place(name), Some(place), "{name}");
            }
        }
        assert_eq!(Kind::Node.place("read_iops"), None);
    }
}
