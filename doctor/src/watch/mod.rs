//! What moves on this host, second by second: memory, PCIe, links between sockets, interfaces and disks.
//!
//! As high on a ladder as host and rights allow, and it says on which rung it stands and what would lead higher: 1 counters of
//! memory controllers, PCIe and socket links; 2 bandwidth monitoring of the caches (resctrl); 4 what software counts, which is
//! always told as well. Rung 3, events of the cores themselves, is not there: they differ with each processor.

pub mod devices;
pub mod perf;
pub mod pmu;
pub mod uncore;

use super::counters::{self, matching};
use super::findings::Sentence;
use forebay_host::system::{RECORDED, System};
use forebay_host::topology::{Topology, in_brackets};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use uncore::{Opened, Totals};

/// Of `/proc/diskstats`, whatever the disk's own are.
const SECTOR_BYTES: f64 = 512.0;
const RESCTRL: &str = "/sys/fs/resctrl";

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Read from memory by anybody.
    MemoryRead,
    /// Written to memory by anybody.
    MemoryWritten,
    /// Read from memory or written to it, by anybody.
    Memory,
    /// Memory of the own node, by the cores.
    MemoryLocal,
    /// Memory of other nodes, by the cores.
    MemoryRemote,
    /// Written to memory by devices.
    DeviceToMemory,
    /// Read from memory by devices.
    MemoryToDevice,
    /// Read and written by devices, of memory of their own socket.
    DevicesNear,
    /// Read and written by devices, of memory of other sockets.
    DevicesFar,
    /// Bytes that went to other sockets.
    SocketLink,
    /// Received by an interface, or by an RDMA port.
    Received,
    /// Sent by an interface, or by an RDMA port.
    Sent,
    /// Read from a disk.
    DiskRead,
    /// Written to a disk.
    DiskWritten,
    /// Pages of memory that a process got of this node while it ran on another.
    PagesForOthers,
}

impl What {
    /// The unit of its rate.
    pub fn unit(self) -> &'static str {
        match self {
            What::PagesForOthers => "pages/s",
            _ => "B/s",
        }
    }

    /// Its name in the table of words.
    pub fn sentence(self) -> Sentence {
        Sentence::new(match self {
            What::MemoryRead => "watch.memory-read",
            What::MemoryWritten => "watch.memory-written",
            What::Memory => "watch.memory",
            What::MemoryLocal => "watch.memory-local",
            What::MemoryRemote => "watch.memory-remote",
            What::DeviceToMemory => "watch.device-to-memory",
            What::MemoryToDevice => "watch.memory-to-device",
            What::DevicesNear => "watch.devices-near",
            What::DevicesFar => "watch.devices-far",
            What::SocketLink => "watch.socket-link",
            What::Received => "watch.received",
            What::Sent => "watch.sent",
            What::DiskRead => "watch.disk-read",
            What::DiskWritten => "watch.disk-written",
            What::PagesForOthers => "watch.pages-for-others",
        })
    }
}

/// How much of it in a second.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Rate {
    /// What it is that was counted.
    pub what: What,
    /// The part of the host that it was counted of.
    pub of: String,
    /// The file or counter that showed it.
    pub source: String,
    /// How much of it in a second, in `unit`.
    pub rate: f64,
    /// Unit of the rate: `B/s` or `pages/s`.
    pub unit: &'static str,
}

/// Looks again and again at what moves in a host.
pub struct Watch {
    system: System,
    topology: Topology,
    opened: Option<Opened>,
    /// 1, 2 or 4.
    pub rung: u8,
    /// Why it stands no higher, and what would lead there.
    pub lacking: Vec<Sentence>,
}

impl Watch {
    /// Climbs as high as it can.
    pub fn new(system: System, topology: Topology) -> Watch {
        let mut lacking = Vec::new();
        let opened = open(&system, &topology).map_err(|why| lacking.push(why)).ok();
        let mut rung = 1;
        if opened.is_none() {
            rung = if resctrl(&system, "").is_empty() {
                lacking.push(no_resctrl(&system));
                4
            } else {
                2
            };
        }
        Watch { system, topology, opened, rung, lacking }
    }

    /// What has been counted until now.
    pub fn totals(&mut self) -> Totals {
        let mut totals = totals(&self.system, &self.topology, "");
        if let Some(opened) = &mut self.opened {
            totals.extend(opened.read());
        }
        totals
    }

    /// The one sample of a recorded tree: what grew between its two looks.
    pub fn recorded(&self) -> Option<(Duration, Vec<Rate>)> {
        let seconds = self.system.number::<f64>(&format!("{RECORDED}/earlier/seconds")).known()?;
        let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero())?;
        let earlier = totals(&self.system, &self.topology, &format!("{RECORDED}/earlier"));
        Some((time, rates(&earlier, &totals(&self.system, &self.topology, ""), time)))
    }
}

/// What grew between two looks. What was set back, or came between, is left out.
pub fn rates(before: &Totals, now: &Totals, time: Duration) -> Vec<Rate> {
    let rate = |(key, (total, source)): (&(What, String), &(f64, String))| {
        let grown = total - before.get(key)?.0;
        let (what, of) = key.clone();
        let rate = grown / time.as_secs_f64();
        (grown >= 0.0).then(|| Rate { what, of, source: source.clone(), rate, unit: what.unit() })
    };
    now.iter().filter_map(rate).collect()
}

fn open(system: &System, topology: &Topology) -> Result<Opened, Sentence> {
    if !system.is_live() {
        return Err(Sentence::new("watch.recorded"));
    }
    let plans = uncore::plans(system, topology);
    if plans.is_empty() {
        return Err(match &topology.hypervisor {
            Some(hypervisor) => Sentence::new("watch.virtual").with("hypervisor", in_brackets(hypervisor)),
            None => Sentence::new("watch.no-counters"),
        });
    }
    Opened::open(plans).map_err(|e| match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let file = "/proc/sys/kernel/perf_event_paranoid";
            Sentence::new("watch.no-right")
                .with("file", file)
                .with("value", system.text(file).known().unwrap_or_default())
        }
        _ => Sentence::new("watch.not-opened").with("why", e),
    })
}

fn no_resctrl(system: &System) -> Sentence {
    let flags = system.text("/proc/cpuinfo").known().unwrap_or_default();
    let can = flags.lines().find(|line| line.starts_with("flags")).is_some_and(|line| line.contains("cqm_mbm_total"));
    Sentence::new(if can { "watch.resctrl-mount" } else { "watch.no-resctrl" })
}

/// Files of bandwidth monitoring, below a folder of the tree.
fn resctrl(system: &System, below: &str) -> Vec<String> {
    matching(system, &format!("{below}{RESCTRL}/mon_data/*/mbm_total_bytes"))
}

/// What files count; `below`: of the earlier look of a recorded tree.
fn totals(system: &System, topology: &Topology, below: &str) -> Totals {
    let mut totals = Totals::new();
    let mut add = |what: What, of: &str, total: f64, source: &str| {
        totals.insert((what, of.to_owned()), (total, source.to_owned()));
    };
    for path in resctrl(system, below) {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let cache = folder.rsplit_once('/').map_or("", |(_, name)| name).trim_start_matches("mon_");
        let number = |name: &str| system.number::<u64>(&format!("{folder}/{name}")).known();
        let shown = |name: &str| format!("{}/{name}", &folder[below.len()..]);
        if let (Some(all), Some(local)) = (number("mbm_total_bytes"), number("mbm_local_bytes")) {
            add(What::MemoryLocal, cache, local as f64, &shown("mbm_local_bytes"));
            add(What::MemoryRemote, cache, all.saturating_sub(local) as f64, &shown("mbm_total_bytes"));
        }
    }
    let text = |path: &str| system.text(&format!("{below}{path}")).known().unwrap_or_default();
    const NICS: &str = "/proc/net/dev";
    for (name, received, sent) in interfaces(&text(NICS)) {
        if topology.nics.get(name).is_some_and(|nic| nic.kind == "physical") {
            add(What::Received, name, received, NICS);
            add(What::Sent, name, sent, NICS);
        }
    }
    for port in topology.rdma.keys() {
        for (what, counter) in [What::Received, What::Sent].into_iter().zip(counters::RDMA_DATA) {
            let Some(file) = counters::rdma_file(port, counter) else { continue };
            let count = text(&file).trim().parse::<u64>().ok().filter(|count| *count != counters::RDMA_STUCK);
            if let Some(count) = count {
                add(what, port, count as f64 * counters::RDMA_UNIT, &file);
            }
        }
    }
    const DISKS: &str = "/proc/diskstats";
    for (name, read, written) in disks(&text(DISKS)) {
        let counts = |kind: &str| !["loop", "dm", "md", "ram"].contains(&kind);
        if topology.disks.get(name).is_some_and(|disk| counts(&disk.kind)) {
            add(What::DiskRead, name, read * SECTOR_BYTES, DISKS);
            add(What::DiskWritten, name, written * SECTOR_BYTES, DISKS);
        }
    }
    // One node has no others.
    for node in topology.nodes.keys().filter(|_| topology.nodes.len() > 1) {
        let path = format!("/sys/devices/system/node/node{node}/numastat");
        let numbers: BTreeMap<String, f64> = text(&path)
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)))
            .collect();
        if let Some(&pages) = numbers.get("other_node") {
            add(What::PagesForOthers, &format!("node {node}"), pages, &path);
        }
    }
    totals
}

/// Name, bytes received, bytes sent.
fn interfaces(text: &str) -> impl Iterator<Item = (&str, f64, f64)> {
    text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        Some((name.trim(), words.first()?.parse().ok()?, words.get(8)?.parse().ok()?))
    })
}

/// Name, sectors read, sectors written.
fn disks(text: &str) -> impl Iterator<Item = (&str, f64, f64)> {
    text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        Some((*words.get(2)?, words.get(5)?.parse().ok()?, words.get(9)?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;
    use forebay_host::topology;

    const NIC: &str = "0000:01:00.0";
    const DISK: &str = "0000:02:00.0";

    fn tree() -> Tree {
        let dev = |received: u64| {
            format!(
                "Inter-| Receive\n face |bytes\n  eth0: {received} 2 0 0 0 0 0 0 600 7 0 0 0 0 0 0\n    lo: 5 0 0 0 0 0 0 0 5 0 0 0 0 0 0 0\n"
            )
        };
        let disk = |sectors: u64| {
            format!(" 259 0 nvme0n1 1 0 {sectors} 4 5 0 80 8 0 0 0\n   7 0 loop0 1 0 9 9 9 9 9 9 0 0 0\n")
        };
        let numastat = |pages: u64| format!("numa_hit 5\nnuma_miss 0\nother_node {pages}\n");
        Tree::new()
            .node(0, "0", 8)
            .node(1, "1", 8)
            .pci(NIC, 0x020000, 0)
            .nic("eth0", NIC, 25_000)
            .pci(DISK, 0x010802, 1)
            .disk("nvme0n1", DISK, 100)
            .file("/proc/net/dev", &dev(6000))
            .earlier("/proc/net/dev", &dev(0))
            .file("/proc/diskstats", &disk(240))
            .earlier("/proc/diskstats", &disk(120))
            .file("/sys/devices/system/node/node1/numastat", &numastat(120))
            .earlier("/sys/devices/system/node/node1/numastat", &numastat(0))
    }

    fn watch(tree: &Tree) -> Watch {
        let system = tree.system();
        let topology = topology::read(&system);
        Watch::new(system, topology)
    }

    fn rate(rates: &[Rate], what: What, of: &str) -> Option<f64> {
        rates.iter().find(|rate| rate.what == what && rate.of == of).map(|rate| rate.rate)
    }

    #[test]
    fn the_lowest_rung_tells_interfaces_disks_and_pages_and_why_it_is_the_lowest() {
        let tree = tree();
        let watch = watch(&tree);
        assert_eq!(watch.rung, 4);
        let keys: Vec<&str> = watch.lacking.iter().map(|why| why.key.as_str()).collect();
        assert_eq!(keys, ["watch.recorded", "watch.no-resctrl"]);
        let (time, rates) = watch.recorded().unwrap();
        assert_eq!(time, Duration::from_secs(60));
        assert_eq!(rate(&rates, What::Received, "eth0"), Some(100.0));
        assert_eq!(rate(&rates, What::Sent, "eth0"), Some(0.0));
        assert_eq!(rate(&rates, What::DiskRead, "nvme0n1"), Some(1024.0));
        assert_eq!(rate(&rates, What::PagesForOthers, "node 1"), Some(2.0));
        assert_eq!(rate(&rates, What::PagesForOthers, "node 0"), None, "its file is not there");
        assert_eq!(rate(&rates, What::Received, "lo"), None, "no hardware");
        assert_eq!(rate(&rates, What::DiskRead, "loop0"), None, "its file counts already");
    }

    #[test]
    fn what_goes_by_rdma_past_the_kernel_is_counted_at_its_port_in_words_of_four_bytes() {
        let file = |name: &str| format!("/sys/class/infiniband/mlx4_0/ports/1/counters/{name}");
        let (sent, received) = (file("port_xmit_data"), file("port_rcv_data"));
        let tree = tree().rdma("mlx4_0", 1, NIC, "40 Gb/sec (4X QDR)", "4: ACTIVE", "InfiniBand");
        let tree = tree.earlier(&sent, "100").file(&sent, "1600").earlier(&received, "7").file(&received, "4294967295");
        let (_, rates) = watch(&tree).recorded().unwrap();
        assert_eq!(rate(&rates, What::Sent, "mlx4_0/1"), Some(100.0));
        assert_eq!(rate(&rates, What::Received, "mlx4_0/1"), None, "a counter that has stopped at its end");
    }

    #[test]
    fn with_resctrl_the_second_rung_tells_local_and_remote_memory() {
        let mut tree = tree();
        for (name, before, now) in [("mbm_total_bytes", "100", "6100"), ("mbm_local_bytes", "100", "4300")] {
            let path = format!("{RESCTRL}/mon_data/mon_L3_00/{name}");
            tree = tree.file(&path, now).earlier(&path, before);
        }
        let watch = watch(&tree);
        assert_eq!((watch.rung, watch.lacking.len()), (2, 1));
        let (_, rates) = watch.recorded().unwrap();
        assert_eq!(rate(&rates, What::MemoryLocal, "L3_00"), Some(70.0));
        assert_eq!(rate(&rates, What::MemoryRemote, "L3_00"), Some(30.0));
        let source = rates.iter().find(|rate| rate.what == What::MemoryLocal).map(|rate| rate.source.as_str());
        assert_eq!(source, Some("/sys/fs/resctrl/mon_data/mon_L3_00/mbm_local_bytes"));
    }

    #[test]
    fn a_processor_that_could_is_told_to_mount_it() {
        let tree = tree().file("/proc/cpuinfo", "processor : 0\nflags : fpu cqm_mbm_total cqm_mbm_local\n");
        assert_eq!(watch(&tree).lacking[1].key, "watch.resctrl-mount");
    }

    #[test]
    fn what_was_set_back_or_came_between_is_left_out() {
        let totals = |all: &[(&str, f64)]| -> Totals {
            all.iter().map(|&(of, n)| ((What::Sent, of.to_owned()), (n, String::new()))).collect()
        };
        let before = totals(&[("a", 10.0), ("b", 10.0)]);
        let rates = rates(&before, &totals(&[("a", 30.0), ("b", 0.0), ("c", 5.0)]), Duration::from_secs(2));
        assert_eq!(rates.iter().map(|rate| (rate.of.as_str(), rate.rate)).collect::<Vec<_>>(), [("a", 10.0)]);
    }

    #[test]
    fn a_living_host_is_looked_at_without_a_guess() {
        let system = System::live();
        let topology = topology::read(&system);
        let mut watch = Watch::new(system, topology);
        assert!([1, 2, 4].contains(&watch.rung));
        assert_eq!(watch.lacking.is_empty(), watch.rung == 1);
        let first = watch.totals();
        let rates = rates(&first, &watch.totals(), Duration::from_millis(1));
        assert!(rates.iter().all(|rate| rate.rate.is_finite() && rate.rate >= 0.0), "{rates:?}");
    }
}
