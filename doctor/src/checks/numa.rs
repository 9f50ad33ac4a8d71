//! Checks 8 to 14: what sits on which node. Those of processes and their memory are in [`super::placement`], of interrupts that
//! were moved in [`super::drift`].
//!
//! Far is what lies in another socket. Nodes of one socket (sub-NUMA clusters, NPS) share its links to devices and to the
//! other sockets, so nothing that lies in a neighbouring one of these is called far.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict, Write};
use super::processes::links_thread;
use super::storage::real_disks;
use super::{Check, drift, growth, placement};
use crate::formulas::rate_bits;
use crate::parts::sockets;
use crate::show;
use forebay_host::system::Seen;
use forebay_host::topology::{Cpu, Interrupt, NodeNumber, RdmaPort, Topology, infiniband_bits, list_of, locality};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// Checks 8 to 14, in the order of their numbers.
pub const CHECKS: &[Check] = &[
    Check { number: 8, word: "numa-apart", look: apart },
    Check { number: 9, word: "irq-far", look: far_interrupts },
    Check { number: 10, word: "irq-moved", look: drift::drift },
    Check { number: 11, word: "queues-few", look: queues },
    Check { number: 12, word: "process-far", look: placement::processes },
    Check { number: 13, word: "buffers-far", look: placement::buffers },
    Check { number: 14, word: "page-cache-far", look: placement::page_cache },
];

/// Slowest line that can load a link between sockets: a tenth of the slowest link still in use (QPI 6.4: 12.8 GB/s).
const DATA_PORT_BITS: u64 = 10_000_000_000;
/// A path is in use when both its ends move so many bytes a second: more than logs and monitoring do.
const PATH_IN_USE: f64 = 50e6;
/// Share of a device's interrupts on a far socket from which it is told; a queue or two that went astray cost nothing.
const FAR_INTERRUPTS: f64 = 0.10;
/// Fewer interrupts a second between the looks say nothing of a device: what came since boot is taken instead.
const RATE_TO_JUDGE: f64 = 100.0;
/// A thousand interrupts a second, each with a line of cache or two from the far socket, is what begins to cost.
const RATE_THAT_COSTS: f64 = 1000.0;
/// Fewer since boot say nothing of where the data goes.
const COUNT_TO_JUDGE: u64 = 10_000;
/// CPUs that share a queue from which it is told: a queue for each core and its sibling is as good as one for each.
const CPUS_FOR_A_QUEUE: usize = 4;

/// A port that can carry much: an interface of the host, or one of RDMA without an interface.
pub struct DataPort<'a> {
    pub name: &'a str,
    pub pci: &'a str,
    pub node: Option<NodeNumber>,
    pub bits: Option<u64>,
    /// What moves by RDMA is counted at this port, and not at the interface.
    pub rdma: Option<&'a str>,
}

impl DataPort<'_> {
    /// Bytes a second through it, by IP and by RDMA. A port of InfiniBand counts both, one of Ethernet what is RDMA alone.
    fn through(&self, topology: &Topology, rates: &growth::Ports) -> f64 {
        let by_ip = rates.interfaces.get(self.name).copied().unwrap_or(0.0);
        let by_rdma = self.rdma.and_then(|port| rates.rdma.get(port)).copied().unwrap_or(0.0);
        let counts_all =
            self.rdma.and_then(|port| topology.rdma.get(port)).is_some_and(|p| p.link_layer == "InfiniBand");
        if counts_all { by_ip.max(by_rdma) } else { by_ip + by_rdma }
    }
}

/// Those that are up. Of an interface that tells no speed (virtio) it is not known, so it counts.
pub fn data_ports(topology: &Topology) -> Vec<DataPort<'_>> {
    let mut ports = Vec::new();
    let mut taken = BTreeSet::new();
    for (name, nic) in &topology.nics {
        let Some(pci) = nic.pci.as_deref().filter(|_| nic.up && nic.kind == "physical" && !nic.for_guest) else {
            continue;
        };
        let same = topology.rdma_of(nic).find(|(_, port)| port.state.contains("ACTIVE"));
        let bits = nic.speed_bits.or_else(|| rdma_bits(same?.1));
        let rdma = same.map(|(port, _)| port.as_str());
        // Several interfaces may lie on one port: what it counts is counted once.
        ports.push(DataPort { name, pci, node: nic.node, bits, rdma: rdma.filter(|port| taken.insert(*port)) });
    }
    for (name, port) in topology.rdma.iter().filter(|(name, _)| !taken.contains(name.as_str())) {
        if let Some(pci) = port.pci.as_deref()
            && port.state.contains("ACTIVE")
        {
            ports.push(DataPort { name, pci, node: port.node, bits: rdma_bits(port), rdma: Some(name) });
        }
    }
    ports.sort_by_key(|port| (port.pci, port.name));
    ports.retain(|port| port.bits.is_none_or(|bits| bits >= DATA_PORT_BITS));
    ports
}

/// Bits of data a second that an RDMA port carries.
fn rdma_bits(port: &RdmaPort) -> Option<u64> {
    match port.link_layer.as_str() {
        "Ethernet" => rate_bits(&port.rate),
        _ => infiniband_bits(&port.rate).or_else(|| rate_bits(&port.rate)),
    }
}

/// The socket of a node; None: it has no CPUs, or those of several.
pub fn socket_of(topology: &Topology, node: NodeNumber) -> Option<u32> {
    let cpus = &topology.nodes.get(&node)?.cpus;
    let sockets: BTreeSet<u32> = cpus.iter().filter_map(|cpu| Some(topology.cpus.get(cpu)?.package)).collect();
    sockets.first().copied().filter(|_| sockets.len() == 1)
}

/// Whether a CPU is in another socket than a node.
pub fn is_far(topology: &Topology, cpu: Cpu, socket: u32) -> bool {
    topology.cpus.get(&cpu).is_some_and(|place| place.package != socket)
}

/// Evidence of a device's node.
pub fn node_shown(topology: &Topology, pci: &str, node: NodeNumber) -> Evidence {
    match topology.locality.of(pci) {
        Some((_, line)) => Evidence::new(locality::FILE, line),
        None => Evidence::new(format!("/sys/bus/pci/devices/{pci}/numa_node"), node),
    }
}

/// What a virtual machine is told of its nodes need not be what is below.
pub fn trust(host: &Host, confidence: Confidence) -> Confidence {
    if host.topology.hypervisor.is_some() { Confidence::Likely } else { confidence }
}

// Check 8. Reads the nodes of interfaces and disks. Rule: a disk is in a socket where no fast interface that is up is.
fn apart(host: &Host) -> Verdict {
    let topology = &host.topology;
    if topology.cpus.is_empty() {
        return Verdict::NotHere;
    }
    if sockets(topology).len() < 2 {
        return Verdict::Fine(Sentence::new("numa.one-socket").with("cpus", topology.cpus.len()));
    }
    let ports = data_ports(topology);
    if ports.is_empty() {
        return Verdict::NotHere;
    }
    let placed: Vec<(&DataPort, u32)> =
        ports.iter().filter_map(|port| Some((port, socket_of(topology, port.node?)?))).collect();
    if placed.is_empty() {
        // A node with the CPUs of several sockets tells nothing of distance.
        let Some(unplaced) = ports.iter().find(|port| port.node.is_none()) else { return Verdict::NotHere };
        let what = format!("/sys/bus/pci/devices/{}/numa_node: -1", unplaced.pci);
        return Verdict::NotSeen { what, how: Sentence::new("numa.node-unknown") };
    }
    let near: BTreeSet<u32> = placed.iter().map(|(_, socket)| *socket).collect();
    let mut apart: BTreeMap<NodeNumber, Vec<(&str, &str)>> = BTreeMap::new();
    let mut together = 0;
    for (name, disk) in real_disks(host) {
        let (Some(pci), Some(node)) = (disk.pci.as_deref(), disk.node) else { continue };
        let Some(socket) = socket_of(topology, node) else { continue };
        if near.contains(&socket) {
            together += 1;
        } else {
            apart.entry(node).or_default().push((name, pci));
        }
    }
    let port_names: Vec<&str> = placed.iter().map(|(port, _)| port.name).collect();
    if apart.is_empty() {
        let fine = Sentence::new("numa.together").with("disks", together).with("ports", show::names(&port_names));
        return if together > 0 { Verdict::Fine(fine) } else { Verdict::NotHere };
    }
    let (rates, disks) = (growth::ports(host), growth::disks(host));
    let through_ports: f64 = placed.iter().map(|(port, _)| port.through(topology, &rates)).sum();
    let finding = |(node, on_it): (NodeNumber, Vec<(&str, &str)>)| {
        let of = |name: &str| disks.as_ref().and_then(|disks| disks.get(name)).map_or(0.0, |work| work.bytes);
        let through_disks: f64 = on_it.iter().map(|(name, _)| of(name)).sum();
        let in_use = through_ports >= PATH_IN_USE && through_disks >= PATH_IN_USE;
        let disk_names: Vec<&str> = on_it.iter().map(|(name, _)| *name).collect();
        let port_nodes = show::cpu_list(placed.iter().filter_map(|(port, _)| port.node));
        let text = Sentence::new(if in_use { "numa.apart-in-use" } else { "numa.apart" })
            .with("disks", show::names(&disk_names))
            .with("disk_node", node)
            .with("ports", show::names(&port_names))
            .with("port_node", &port_nodes)
            .with("through_disks", show::bytes(through_disks))
            .with("through_ports", show::bytes(through_ports));
        let mut evidence = vec![node_shown(topology, on_it[0].1, node)];
        evidence.extend(placed.iter().take(2).filter_map(|(port, _)| Some(node_shown(topology, port.pci, port.node?))));
        Finding {
            id: format!("numa-apart/{}", disk_names[0]),
            check: 8,
            severity: if in_use { Severity::Warning } else { Severity::Note },
            confidence: trust(host, Confidence::Computed),
            text,
            evidence,
            number: None,
            remedies: vec![Remedy::Explain {
                what: Sentence::new("numa.apart-remedy").with("port_node", port_nodes),
                command: None,
            }],
        }
    };
    Verdict::Found(apart.into_iter().map(finding).collect())
}

/// How a device's interrupts are spread.
struct Spread<'a> {
    /// All of them: number, what it is, how often it came (on far CPUs).
    interrupts: Vec<(u32, &'a Interrupt, u64, u64)>,
    /// Seconds that they were counted for; None: since boot.
    seconds: Option<f64>,
}

impl Spread<'_> {
    fn came(&self) -> u64 {
        self.interrupts.iter().map(|(_, _, came, _)| came).sum()
    }

    /// What the kernel has placed by itself lies beside the queue's submitters, and is no defect.
    fn astray(&self) -> impl Iterator<Item = &(u32, &Interrupt, u64, u64)> {
        self.interrupts.iter().filter(|(_, interrupt, _, far)| !interrupt.managed && *far > 0)
    }

    fn far_share(&self) -> f64 {
        self.astray().map(|(_, _, _, far)| far).sum::<u64>() as f64 / self.came().max(1) as f64
    }
}

fn spread<'a>(
    topology: &'a Topology,
    grown: Option<&(growth::Interrupts, f64)>,
    interrupts: &[(u32, &'a Interrupt)],
    socket: u32,
) -> Option<Spread<'a>> {
    let far = |counts: &BTreeMap<Cpu, u64>| -> u64 {
        counts.iter().filter(|(cpu, _)| is_far(topology, **cpu, socket)).map(|(_, count)| count).sum()
    };
    if let Some((grown, seconds)) = grown {
        let grew = |&(number, interrupt): &(u32, &'a Interrupt)| {
            let counts = grown.get(&number)?;
            Some((number, interrupt, counts.values().sum(), far(counts)))
        };
        let now = Spread { interrupts: interrupts.iter().filter_map(grew).collect(), seconds: Some(*seconds) };
        if now.came() as f64 / seconds >= RATE_TO_JUDGE {
            return Some(now);
        }
    }
    // Where they went once does not matter, only where they go now.
    let stands = |&(number, interrupt): &(u32, &'a Interrupt)| {
        let came = interrupt.counts.values().sum();
        let goes_far =
            !interrupt.goes_to.is_empty() && interrupt.goes_to.iter().all(|cpu| is_far(topology, *cpu, socket));
        (number, interrupt, came, if goes_far { came } else { 0 })
    };
    let since_boot = Spread { interrupts: interrupts.iter().map(stands).collect(), seconds: None };
    (since_boot.came() >= COUNT_TO_JUDGE).then_some(since_boot)
}

// Check 9. Reads the counts of devices' interrupts and where they go. Rule: more than FAR_INTERRUPTS of a device's are on
// CPUs of another socket than the device's.
fn far_interrupts(host: &Host) -> Verdict {
    let topology = &host.topology;
    if sockets(topology).len() < 2 {
        return Verdict::NotHere;
    }
    // Where there are hundreds of CPUs it has megabytes.
    let is_counted = host.counters.0.contains_key("/proc/interrupts");
    if let Some(Seen::Hidden(what)) = (!is_counted).then(|| host.system.text("/proc/interrupts")) {
        return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") };
    }
    let devices = with_interrupts(topology);
    let mut of_device: BTreeMap<&str, Vec<(u32, &Interrupt)>> = BTreeMap::new();
    for (&number, interrupt) in &topology.interrupts {
        if let Some(pci) = &interrupt.pci {
            of_device.entry(pci).or_default().push((number, interrupt));
        }
    }
    // All processes are looked through for it: once, and not for each device.
    let links = OnceCell::new();
    let grown = growth::interrupts(host);
    let (mut found, mut judged, mut most) = (Vec::new(), 0, 0f64);
    for (pci, (names, node)) in devices {
        let Some(socket) = socket_of(topology, node) else { continue };
        let Some(interrupts) = of_device.get(pci) else { continue };
        let Some(spread) = spread(topology, grown.as_ref(), interrupts, socket) else { continue };
        judged += 1;
        most = most.max(spread.far_share());
        if spread.far_share() > FAR_INTERRUPTS {
            let links = links.get_or_init(|| links_thread(&host.system)).as_ref();
            found.push(far_finding(host, (pci, &names, node), &spread, links));
        }
    }
    match (found.is_empty(), judged) {
        (false, _) => Verdict::Found(found),
        (true, 0) => Verdict::NotHere,
        (true, _) => {
            Verdict::Fine(Sentence::new("numa.irq-near").with("devices", judged).with("share", show::percent(most)))
        }
    }
}

/// Devices by the PCI function that interrupts for them: all the ports of one, its interfaces where it has some.
fn with_interrupts<'a>(topology: &'a Topology) -> BTreeMap<&'a str, (Vec<&'a str>, NodeNumber)> {
    let mut devices: BTreeMap<&str, (Vec<&str>, NodeNumber)> = BTreeMap::new();
    for (name, disk) in &topology.disks {
        devices.extend(disk.pci.as_deref().zip(disk.node).map(|(pci, node)| (pci, (vec![name.as_str()], node))));
    }
    let mut of_kind = |ports: &mut dyn Iterator<Item = (&'a String, Option<&'a str>, Option<NodeNumber>)>| {
        let mut own: BTreeMap<&str, (Vec<&str>, NodeNumber)> = BTreeMap::new();
        for (name, pci, node) in ports {
            let Some((pci, node)) = pci.zip(node) else { continue };
            own.entry(pci).or_insert((Vec::new(), node)).0.push(name);
        }
        devices.extend(own);
    };
    of_kind(&mut topology.rdma.iter().map(|(name, port)| (name, port.pci.as_deref(), port.node)));
    of_kind(&mut topology.nics.iter().map(|(name, nic)| (name, nic.pci.as_deref(), nic.node)));
    devices
}

fn far_finding(
    host: &Host,
    (pci, names, node): (&str, &[&str], NodeNumber),
    spread: &Spread,
    links: Option<&(String, Vec<Cpu>)>,
) -> Finding {
    // What was applied or kept as a baseline by the last name of a function with several ports has to be found again by it.
    let name = names.last().copied().unwrap_or(pci);
    let all = show::names(names);
    let share = spread.far_share();
    let rate = spread.seconds.map(|seconds| spread.came() as f64 / seconds);
    let costs = rate.is_some_and(|rate| rate >= RATE_THAT_COSTS);
    let text = match rate {
        Some(rate) => Sentence::new("numa.irq-far-now").with("rate", format!("{rate:.0}")),
        None => Sentence::new("numa.irq-far").with("count", spread.came()),
    };
    let text = text.with("share", show::percent(share)).with("device", &all).with("node", node);
    let mut astray: Vec<_> = spread.astray().collect();
    astray.sort_by_key(|(number, _, _, far)| (std::cmp::Reverse(*far), *number));
    let mut evidence = vec![node_shown(&host.topology, pci, node)];
    for (number, interrupt, came, far) in astray.iter().take(2) {
        let goes_to = show::cpu_list(interrupt.goes_to.iter().copied());
        evidence.push(Evidence::new(format!("/proc/irq/{number}/effective_affinity_list"), goes_to));
        let counted = format!("{number} {}: {far} / {came}", interrupt.name);
        evidence.push(Evidence::new("/proc/interrupts", counted));
    }
    let mut remedies = Vec::new();
    if host.topology.nics.contains_key(name)
        && let Some((file, cpus)) = links
        && let Some(links_node) = only_node(&host.topology, cpus)
    {
        let cpus = show::cpu_list(cpus.iter().copied());
        evidence.push(Evidence::new(file, format!("Cpus_allowed_list: {cpus}")));
        let what = Sentence::new("numa.irq-links").with("node", links_node).with("cpus", cpus).with("device", &all);
        remedies.push(Remedy::Explain { what, command: None });
    }
    let movable: Vec<u32> = astray.iter().map(|(number, ..)| *number).collect();
    let what = Sentence::new("numa.irq-remedy").with("device", &all).with("node", node);
    remedies.insert(0, Remedy::Apply { what, writes: spread_over(&host.topology, node, &movable) });
    Finding {
        id: format!("irq-far/{name}"),
        check: 9,
        severity: if costs { Severity::Warning } else { Severity::Note },
        confidence: trust(host, if rate.is_some() { Confidence::Certain } else { Confidence::Computed }),
        text,
        evidence,
        number: Some(Number { is: share, could_be: 0.0, unit: "1".to_owned() }),
        remedies,
    }
}

/// The node of all these CPUs; None: they are of several.
fn only_node(topology: &Topology, cpus: &[Cpu]) -> Option<NodeNumber> {
    let nodes: Option<BTreeSet<NodeNumber>> = cpus.iter().map(|cpu| Some(topology.cpus.get(cpu)?.node)).collect();
    nodes.filter(|nodes| nodes.len() == 1)?.into_iter().next()
}

/// Each of the interrupts to a core of the node, the least used first.
pub fn spread_over(topology: &Topology, node: NodeNumber, interrupts: &[u32]) -> Vec<Write> {
    let cpus = topology.nodes.get(&node).map_or(&[][..], |node| &node.cpus[..]);
    let first_of_core = |cpu: &&Cpu| topology.cpus.get(cpu).is_some_and(|place| place.core == **cpu);
    let mut used: BTreeMap<Cpu, usize> = cpus.iter().filter(first_of_core).map(|cpu| (*cpu, 0)).collect();
    let stay = topology
        .interrupts
        .iter()
        .filter(|(number, other)| !interrupts.contains(number) && other.counts.values().any(|count| *count > 0));
    for cpu in stay.flat_map(|(_, other)| &other.goes_to) {
        used.entry(*cpu).and_modify(|used| *used += 1);
    }
    let place = |number: &u32| {
        let (cpu, uses) = used.iter_mut().min_by_key(|(cpu, uses)| (**uses, **cpu))?;
        *uses += 1;
        Some(Write { path: format!("/proc/irq/{number}/smp_affinity_list"), value: cpu.to_string() })
    };
    interrupts.iter().filter_map(place).collect()
}

// Check 11. Reads which CPUs share each queue of an NVMe device. Rule: more than CPUS_FOR_A_QUEUE share one.
fn queues(host: &Host) -> Verdict {
    let (mut found, mut fewest, mut hidden) = (Vec::new(), None::<(usize, &str)>, None);
    let cpus = host.topology.cpus.len();
    for name in host.topology.disks.iter().filter(|(_, disk)| disk.kind == "nvme").map(|(name, _)| name) {
        let folder = format!("/sys/block/{name}/mq");
        let queues = match host.system.list(&folder) {
            Seen::Is(queues) => queues,
            Seen::Absent => continue,
            Seen::Hidden(what) => {
                hidden.get_or_insert(what);
                continue;
            }
        };
        let shared_by =
            |queue: &String| Some(list_of(&host.system, &format!("{folder}/{queue}/cpu_list")).known()?.len());
        let sharers: Vec<usize> = queues.iter().filter_map(shared_by).filter(|cpus| *cpus > 0).collect();
        let Some(most) = sharers.iter().max().copied() else { continue };
        if fewest.is_none_or(|(queues, _)| sharers.len() < queues) {
            fewest = Some((sharers.len(), name));
        }
        if most > CPUS_FOR_A_QUEUE {
            let text = Sentence::new("numa.queues").with("disk", name).with("queues", sharers.len());
            let crowded = queues.iter().max_by_key(|queue| shared_by(queue)).expect("one has the most");
            let path = format!("{folder}/{crowded}/cpu_list");
            let list = host.system.text(&path).known().unwrap_or_default();
            found.push(Finding {
                id: format!("queues-few/{name}"),
                check: 11,
                severity: Severity::Note,
                confidence: Confidence::Certain,
                text: text.with("cpus", cpus).with("most", most),
                evidence: vec![Evidence::new(path, list)],
                number: Some(Number { is: sharers.len() as f64, could_be: cpus as f64, unit: "queues".to_owned() }),
                remedies: vec![Remedy::Explain { what: Sentence::new("numa.queues-remedy"), command: None }],
            });
        }
    }
    match (found.is_empty(), hidden, fewest) {
        (false, ..) => Verdict::Found(found),
        (true, Some(what), _) => Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
        (true, None, Some((queues, disk))) => Verdict::Fine(
            Sentence::new("numa.queues-fine").with("disk", disk).with("queues", queues).with("cpus", cpus),
        ),
        (true, None, None) => Verdict::NotHere,
    }
}

#[cfg(test)]
mod tests {
    use super::super::expect::{fine, not_here, not_seen, one, text, writes};
    use super::super::processes::with_process;
    use super::*;
    use crate::fixture::Tree;

    const NIC: &str = "0000:82:00.0";
    const DISK: &str = "0000:03:00.0";

    /// Two sockets of four cores; a 25 Gb/s interface in the second, an NVMe device in the first.
    fn apart_by_sockets() -> Tree {
        Tree::new()
            .node(0, "0-3", 32)
            .node(1, "4-7", 32)
            .pci(NIC, 0x020000, 1)
            .nic("ens1", NIC, 25_000)
            .pci(DISK, 0x010802, 0)
            .disk("nvme0n1", DISK, 1000)
    }

    #[test]
    fn a_disk_in_a_socket_without_a_fast_interface_is_told() {
        let finding = one(&apart_by_sockets(), 8);
        assert_eq!((finding.id.as_str(), finding.severity), ("numa-apart/nvme0n1", Severity::Note));
        assert!(text(&finding).starts_with("nvme0n1 at node 0, but ens1 at node 1"), "{}", text(&finding));
        let files: Vec<&str> = finding.evidence.iter().map(|shown| shown.source.as_str()).collect();
        assert_eq!(files[0], format!("/sys/bus/pci/devices/{DISK}/numa_node"));
        assert_eq!(finding.confidence, Confidence::Computed);
    }

    #[test]
    fn a_path_that_is_in_use_makes_it_a_warning() {
        let busy = apart_by_sockets()
            .file("/proc/net/dev", " ens1: 60000000000 1 0 0 0 0 0 0 0 1 0\n")
            .earlier("/proc/net/dev", " ens1: 0 1 0 0 0 0 0 0 0 1 0\n")
            .file("/proc/diskstats", "259 0 nvme0n1 9 0 12000000 0 9 0 0 0 0 30000 0\n")
            .earlier("/proc/diskstats", "259 0 nvme0n1 9 0 0 0 9 0 0 0 0 0 0\n");
        let finding = one(&busy, 8);
        assert_eq!(finding.severity, Severity::Warning);
        assert!(text(&finding).contains("102.4 MB/s now, ens1 at node 1 1.0 GB/s"), "{}", text(&finding));
    }

    #[test]
    fn a_disk_beside_one_of_two_fast_interfaces_is_not_told() {
        let tree = apart_by_sockets().pci("0000:04:00.0", 0x020000, 0).nic("ens2", "0000:04:00.0", 25_000);
        assert!(fine(&tree, 8).contains("all disks (1) are in the sockets of ens2, ens1"), "{}", fine(&tree, 8));
    }

    #[test]
    fn a_slow_interface_loads_no_link_between_sockets() {
        let tree = Tree::new().node(0, "0-3", 32).node(1, "4-7", 32);
        not_here(&tree.pci(NIC, 0x020000, 1).nic("eno1", NIC, 1000).pci(DISK, 0x010802, 0).disk("nvme0n1", DISK, 9), 8);
    }

    #[test]
    fn an_rdma_port_counts_as_its_rate_says() {
        let tree = Tree::new()
            .node(0, "0-3", 32)
            .node(1, "4-7", 32)
            .pci(NIC, 0x028000, 1)
            .rdma("mlx4_0", 1, NIC, "56 Gb/sec (4X FDR)", "4: ACTIVE", "InfiniBand")
            .pci(DISK, 0x010601, 0)
            .disk("sda", DISK, 500);
        assert!(text(&one(&tree, 8)).starts_with("sda at node 0, but mlx4_0/1 at node 1"));
    }

    /// Two ports of one function of an adapter, one of InfiniBand with IP on it, one of Ethernet.
    fn one_function() -> Tree {
        Tree::new()
            .node(0, "0-3", 32)
            .node(1, "4-7", 32)
            .pci(NIC, 0x020700, 1)
            .nic("ib0", NIC, 40_000)
            .file("/sys/class/net/ib0/type", "32")
            .file("/sys/class/net/ib0/dev_port", "0")
            .nic("eth1", NIC, 10_000)
            .file("/sys/class/net/eth1/dev_port", "1")
            .rdma("mlx4_0", 1, NIC, "40 Gb/sec (4X QDR)", "4: ACTIVE", "InfiniBand")
            .rdma("mlx4_0", 2, NIC, "10 Gb/sec (1X QDR)", "4: ACTIVE", "Ethernet")
            .pci(DISK, 0x010802, 0)
            .disk("nvme0n1", DISK, 1000)
    }

    #[test]
    fn two_ports_of_one_function_are_both_there_each_with_its_own_line() {
        let tree = one_function();
        let topology = forebay_host::topology::read(&tree.system());
        let ports: Vec<_> = data_ports(&topology).into_iter().map(|port| (port.name, port.bits, port.rdma)).collect();
        let of = |gigabits: u64| Some(gigabits * 1_000_000_000);
        assert_eq!(ports, [("eth1", of(10), Some("mlx4_0/2")), ("ib0", of(32), Some("mlx4_0/1"))]);
        assert!(text(&one(&tree, 8)).starts_with("nvme0n1 at node 0, but eth1, ib0 at node 1"));
        // A handle of a guest's function is no port of the host.
        let guest = one_function().file("/sys/class/net/eth1/phys_port_name", "pf0vf0");
        let topology = forebay_host::topology::read(&guest.system());
        let names: Vec<_> = data_ports(&topology).into_iter().map(|port| port.name).collect();
        assert_eq!(names, ["ib0", "mlx4_0/2"]);
        let irq = one_function().interrupt(40, NIC, "mlx4-0@pci:0000:82:00.0", "0", &[600_000]);
        assert!(text(&one(&irq, 9)).contains("eth1, ib0"), "{}", text(&one(&irq, 9)));
        // As journals of earlier versions have it.
        assert_eq!(one(&irq, 9).id, "irq-far/ib0");
    }

    #[test]
    fn a_path_that_is_in_use_by_rdma_alone_is_in_use() {
        let disk = "/proc/diskstats";
        let busy = || {
            let tree = one_function().file(disk, "259 0 nvme0n1 9 0 12000000 0 9 0 0 0 0 30000 0\n");
            tree.earlier(disk, "259 0 nvme0n1 9 0 0 0 9 0 0 0 0 0 0\n")
        };
        assert_eq!(one(&busy(), 8).severity, Severity::Note);
        let count = |tree: Tree, port: u32, name: &str, words: u64| {
            let file = format!("/sys/class/infiniband/mlx4_0/ports/{port}/counters/{name}");
            tree.earlier(&file, "0").file(&file, &words.to_string())
        };
        // 6 * 10^10 bytes in 60 s.
        let moved = |port| count(count(busy(), port, "port_xmit_data", 15_000_000_000), port, "port_rcv_data", 0);
        for port in [1, 2] {
            let finding = one(&moved(port), 8);
            assert_eq!(finding.severity, Severity::Warning, "port {port}");
            assert!(text(&finding).contains("1.0 GB/s"), "{}", text(&finding));
        }
        // InfiniBand's port counts IP as well: it is not counted twice.
        let line = " ib0: 60000000000 1 0 0 0 0 0 0 0 1 0\n";
        let both = moved(1).file("/proc/net/dev", line).earlier("/proc/net/dev", " ib0: 0 1 0 0 0 0 0 0 0 1 0\n");
        assert!(text(&one(&both, 8)).contains("1.0 GB/s"));
        let stopped = count(count(busy(), 1, "port_xmit_data", 0xffff_ffff), 1, "port_rcv_data", 0xffff_ffff);
        assert_eq!(one(&stopped, 8).severity, Severity::Note);
    }

    #[test]
    fn an_unknown_node_is_no_finding() {
        let tree = Tree::new().node(0, "0-3", 32).node(1, "4-7", 32).pci(NIC, 0x020000, -1).nic("ens1", NIC, 25_000);
        assert_eq!(not_seen(&tree, 8), format!("/sys/bus/pci/devices/{NIC}/numa_node: -1"));
    }

    #[test]
    fn nodes_that_claim_the_cpus_of_all_sockets_tell_no_distance() {
        let tree = apart_by_sockets()
            .file("/sys/devices/system/node/node0/cpulist", "0-7")
            .file("/sys/devices/system/node/node1/cpulist", "0-7");
        not_here(&tree, 8);
        not_here(&tree.interrupt(40, NIC, "ens1-rx-0", "0", &[90_000]), 9);
    }

    #[test]
    fn where_the_kernel_knows_no_sockets_nodes_are_what_is_near_and_far() {
        let unknown = |tree: Tree, cpu: u32| {
            tree.file(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), "-1")
        };
        let tree = (0..8).fold(apart_by_sockets(), unknown);
        assert_eq!(one(&tree, 8).id, "numa-apart/nvme0n1");
    }

    #[test]
    fn a_drive_for_disks_that_are_put_in_is_no_disk_of_a_data_path() {
        let tree = Tree::new().node(0, "0-3", 32).node(1, "4-7", 32).pci(NIC, 0x020000, 1).nic("ens1", NIC, 25_000);
        not_here(&tree.pci(DISK, 0x010601, 0).disk("sr0", DISK, 4), 8);
    }

    #[test]
    fn nodes_of_one_socket_are_not_far_from_each_other() {
        let tree = (4..8).fold(apart_by_sockets(), |tree, cpu| tree.cpu(cpu, 0, cpu));
        assert!(fine(&tree, 8).contains("all 8 CPUs are in one socket"));
        not_here(&tree.interrupt(40, NIC, "ens1-rx-0", "0", &[90_000]), 9);
        not_here(&Tree::new(), 8);
    }

    #[test]
    fn what_a_virtual_machine_is_told_of_its_nodes_is_likely_only() {
        assert_eq!(one(&apart_by_sockets().virtual_machine(), 8).confidence, Confidence::Likely);
    }

    #[test]
    fn interrupts_in_the_far_socket_are_told_and_sent_to_different_cores_of_the_near_one() {
        let tree = apart_by_sockets()
            .interrupt(40, NIC, "ens1-rx-0", "0", &[60_000])
            .interrupt(41, NIC, "ens1-rx-1", "1", &[0, 60_000])
            .interrupt(42, NIC, "ens1-rx-2", "4", &[0, 0, 0, 0, 60_000]);
        let finding = one(&tree, 9);
        assert!(text(&finding).starts_with("67 % of the interrupts of ens1 (3000/s)"), "{}", text(&finding));
        assert_eq!((finding.id.as_str(), finding.severity), ("irq-far/ens1", Severity::Warning));
        // CPU 4 has one already.
        assert_eq!(writes(&finding), ["/proc/irq/40/smp_affinity_list=5", "/proc/irq/41/smp_affinity_list=6"]);
        assert!(finding.evidence.iter().any(|shown| shown.source == "/proc/irq/40/effective_affinity_list"));
    }

    #[test]
    fn where_the_daemons_links_run_is_told_with_far_interrupts_when_they_are_kept_on_one_node() {
        let far = || {
            let tree = apart_by_sockets().interrupt(40, NIC, "ens1-rx-0", "0", &[60_000]);
            with_process(tree, 70, "forebay", "forebay\0serve\0", &[(4, 10), (5, 10)])
                .file("/proc/70/task/71/comm", "shard-0")
        };
        let placed = far().file("/proc/70/task/71/status", "Name:\tshard-0\nCpus_allowed_list:\t4-7\n");
        let finding = one(&placed, 9);
        assert!(finding.evidence.contains(&Evidence::new("/proc/70/task/71/status", "Cpus_allowed_list: 4-7")));
        let Remedy::Explain { what, .. } = &finding.remedies[1] else { panic!("{finding:?}") };
        assert_eq!((what.key.as_str(), what.with[0].1.as_str()), ("numa.irq-links", "1"));
        assert_eq!(writes(&finding).len(), 1);
        // The kernel may have them anywhere, does not say where, or there is no daemon.
        let free = far().file("/proc/70/task/71/status", "Name:\tshard-0\nCpus_allowed_list:\t0-7\n");
        assert_eq!(one(&free, 9).remedies.len(), 1);
        assert_eq!(one(&far().hidden("/proc/70/task/71/status"), 9).remedies.len(), 1);
    }

    #[test]
    fn a_managed_interrupt_is_neither_told_nor_moved() {
        let tree = apart_by_sockets().interrupt(50, DISK, "nvme0q1", "5", &[0, 0, 0, 0, 0, 90_000]);
        assert!(fine(&tree, 9).contains("none sends more than 0 %"), "{}", fine(&tree, 9));
    }

    #[test]
    fn a_tenth_of_the_interrupts_in_the_far_socket_is_fine() {
        let tree = apart_by_sockets().interrupt(40, NIC, "ens1-rx-0", "0", &[9_000]).interrupt(
            41,
            NIC,
            "ens1-rx-1",
            "4",
            &[0, 0, 0, 0, 91_000],
        );
        assert!(fine(&tree, 9).contains("none sends more than 9 %"), "{}", fine(&tree, 9));
    }

    #[test]
    fn of_a_quiet_device_what_came_since_boot_counts_by_where_it_goes_now() {
        let counts = "       CPU0  CPU1  CPU2  CPU3  CPU4  CPU5  CPU6  CPU7\n  40: 20000 0 0 0 0 0 0 0  PCI-MSIX-0 0-edge ens1-rx-0\n";
        let tree = apart_by_sockets().interrupt(40, NIC, "ens1-rx-0", "0", &[]);
        let tree = tree.file("/proc/interrupts", counts).earlier("/proc/interrupts", counts);
        let finding = one(&tree, 9);
        assert_eq!((finding.severity, finding.confidence), (Severity::Note, Confidence::Computed));
        assert!(text(&finding).contains("100 % of its 20000 since boot"), "{}", text(&finding));
        // It was moved since.
        assert!(fine(&tree.file("/proc/irq/40/effective_affinity_list", "4"), 9).contains("0 %"));
    }

    #[test]
    fn interrupts_that_cannot_be_read_or_never_came_are_no_finding() {
        let unread = Tree::new().node(0, "0-3", 32).node(1, "4-7", 32).hidden("/proc/interrupts");
        assert!(not_seen(&unread, 9).starts_with("/proc/interrupts: "));
        not_here(&apart_by_sockets(), 9);
        not_here(&apart_by_sockets().interrupt(40, NIC, "ens1-rx-0", "0", &[90]), 9);
        let tree = apart_by_sockets().virtual_machine().interrupt(40, NIC, "virtio0-input.0", "0", &[90_000]);
        assert_eq!(one(&tree, 9).confidence, Confidence::Likely);
    }

    #[test]
    fn queues_that_more_than_four_cpus_share_are_told() {
        let one_queue = apart_by_sockets().file("/sys/block/nvme0n1/mq/0/cpu_list", "0, 1, 2, 3, 4, 5, 6, 7");
        let finding = one(&one_queue, 11);
        assert_eq!(
            text(&finding),
            "Queues of nvme0n1: 1 for 8 CPUs; up to 8 CPUs share one, and wait for each other under load."
        );
        assert_eq!(finding.evidence[0], Evidence::new("/sys/block/nvme0n1/mq/0/cpu_list", "0, 1, 2, 3, 4, 5, 6, 7"));
        let two = one_queue
            .file("/sys/block/nvme0n1/mq/0/cpu_list", "0, 1, 2, 3")
            .file("/sys/block/nvme0n1/mq/1/cpu_list", "4, 5, 6, 7");
        assert!(fine(&two, 11).contains("nvme0n1 has the fewest, 2 for 8 CPUs"));
        // Of another disk they cannot be read: what was found stays found, and without it nothing is called fine.
        let second = |tree: Tree| {
            let tree = tree.pci("0000:04:00.0", 0x010802, 0).disk("nvme1n1", "0000:04:00.0", 1000);
            tree.link("/sys/block/nvme1n1/mq", "mq")
        };
        assert!(not_seen(&second(two), 11).starts_with("/sys/block/nvme1n1/mq"));
        let again = apart_by_sockets().file("/sys/block/nvme0n1/mq/0/cpu_list", "0, 1, 2, 3, 4, 5, 6, 7");
        assert_eq!(one(&second(again), 11).id, "queues-few/nvme0n1");
    }

    #[test]
    fn without_nvme_or_its_queues_there_is_nothing_to_say_of_them() {
        not_here(&apart_by_sockets(), 11);
        let of_virtio = Tree::new().node(0, "0-7", 4).virtual_machine().pci(DISK, 0x010000, 0).disk("vda", DISK, 9);
        not_here(&of_virtio.file("/sys/block/vda/mq/0/cpu_list", "0, 1, 2, 3, 4, 5, 6, 7"), 11);
        // Each list is hidden: of how many share one nothing is known.
        not_here(&apart_by_sockets().hidden("/sys/block/nvme0n1/mq/0/cpu_list"), 11);
    }

    #[test]
    fn interrupts_are_spread_over_cores_and_not_over_their_siblings() {
        let tree = Tree::new().node(0, "0-3", 4).cpu(2, 0, 0).cpu(3, 0, 1);
        let topology = forebay_host::topology::read(&tree.system());
        let values: Vec<String> = spread_over(&topology, 0, &[1, 2, 3]).into_iter().map(|write| write.value).collect();
        assert_eq!(values, ["0", "1", "0"]);
        assert!(spread_over(&topology, 7, &[1]).is_empty());
    }
}
