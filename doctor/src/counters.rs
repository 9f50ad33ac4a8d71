//! What the kernel counts, at one moment: files that only grow. Two of them show what grows.

use forebay_host::net;
use forebay_host::system::{RECORDED, System};
use std::collections::BTreeMap;
use std::time::Duration;

/// Files of counters; `*` stands for any one name.
const FILES: &[&str] = &[
    "/proc/interrupts",
    "/proc/softirqs",
    "/proc/stat",
    "/proc/diskstats",
    "/proc/vmstat",
    "/proc/spl/kstat/zfs/arcstats",
    "/proc/spl/kstat/zfs/zil",
    "/proc/net/dev",
    "/proc/net/netstat",
    "/proc/net/snmp",
    "/proc/net/softnet_stat",
    "/sys/bus/pci/devices/*/aer_dev_correctable",
    "/sys/devices/system/node/*/numastat",
    "/sys/devices/system/cpu/*/thermal_throttle/core_throttle_count",
    "/sys/devices/system/cpu/*/thermal_throttle/package_throttle_count",
    "/sys/class/infiniband/*/ports/*/counters/*",
    "/sys/class/infiniband/*/ports/*/hw_counters/*",
    "/sys/fs/resctrl/mon_data/*/mbm_total_bytes",
    "/sys/fs/resctrl/mon_data/*/mbm_local_bytes",
    "/sys/class/net/*/statistics/rx_missed_errors",
    "/sys/class/net/*/statistics/rx_fifo_errors",
    // Of a recorded tree; of this host, its drivers are asked.
    "/forebay/net/statistics/*",
];

/// Counters of an RDMA port's data, received and sent.
pub const RDMA_DATA: [&str; 2] = ["port_rcv_data", "port_xmit_data"];
/// Bytes of each count of these.
pub const RDMA_UNIT: f64 = 4.0;
/// Where counters of 32 bits stop, until they are cleared: then they say nothing.
pub const RDMA_STUCK: u64 = 0xffff_ffff;

/// A counter's file, of a port as in `mlx4_0/1`.
pub fn rdma_file(port: &str, counter: &str) -> Option<String> {
    let (device, number) = port.split_once('/')?;
    Some(format!("/sys/class/infiniband/{device}/ports/{number}/counters/{counter}"))
}

/// What the files of counters hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(pub BTreeMap<String, String>);

impl Counters {
    /// What they hold now, or held when the host was recorded; and what these other files do.
    pub fn of(system: &System, others: Vec<String>) -> Counters {
        let paths = FILES.iter().flat_map(|pattern| matching(system, pattern)).chain(others);
        let mut texts: BTreeMap<_, _> =
            paths.filter_map(|path| Some((path.clone(), system.text(&path).known()?))).collect();
        if system.is_live() {
            texts.extend(net::statistics());
        }
        Counters(texts)
    }

    /// A recorded tree's first look: the same files below a folder of their own, and how long before.
    pub fn recorded_earlier(system: &System, others: Vec<String>) -> Option<(Counters, Duration)> {
        let seconds: f64 = system.number(&format!("{RECORDED}/earlier/seconds")).known()?;
        let below = format!("{RECORDED}/earlier");
        let of = |pattern: &&str| matching(system, &format!("{below}{pattern}"));
        let groups = others.into_iter().map(|path| format!("{below}{path}"));
        let texts = FILES.iter().flat_map(of).chain(groups).filter_map(|path| {
            let text = system.text(&path).known()?;
            Some((path[below.len()..].to_owned(), text))
        });
        Some((Counters(texts.collect()), Duration::try_from_secs_f64(seconds).ok()?))
    }

    /// A file of one number.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.0.get(path)?.trim().parse().ok()
    }
}

/// Paths that one pattern may stand for: more than any host has of one kind. In a record, names can lead to each other and multiply.
const PATHS: usize = 16_384;

/// The paths that a pattern stands for, the first [`PATHS`] of them.
pub fn matching(system: &System, pattern: &str) -> Vec<String> {
    let mut paths = vec![String::new()];
    for part in pattern.split('/').skip(1) {
        paths = paths
            .into_iter()
            .flat_map(|path| match part {
                "*" => {
                    let names = system.list(&path).known().unwrap_or_default();
                    names.into_iter().map(|name| format!("{path}/{name}")).collect()
                }
                name => vec![format!("{path}/{name}")],
            })
            .take(PATHS)
            .collect();
    }
    paths.retain(|path| system.has(path));
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn names_that_lead_to_each_other_do_not_multiply() {
        let tree = (0..150)
            .fold(Tree::new().file("/sys/a/start", "1"), |tree, name| tree.link(&format!("/sys/a/{name}"), "../a"));
        assert_eq!(matching(&tree.system(), "/sys/a/*/start").len(), 150);
        assert!(matching(&tree.system(), "/sys/a/*/*").len() <= PATHS);
        assert!(matching(&tree.system(), "/sys/a/*/*/*/*").len() <= PATHS);
    }
}
