//! The hops of a path through a host: what its devices, their slots, memory and the links between nodes can carry, each with what shows it.

use super::ends::{End, Part, Way};
use super::traffic::{Edge, Move, copies, traffic};
use super::{Chain, Hop};
use crate::findings::{Evidence, Sentence};
use crate::formulas::{
    DDR_REACHABLE, Dma, ddr, infiniband, pcie_raw, pcie_useful, rate_bits, rdma_mtu, roce_v2, sas, sata,
    tcp_over_ethernet, tcp_over_infiniband, usb,
};
use crate::matrix::{KEPT, Matrix};
use crate::parts::{full_channels, is_on_die};
use forebay_host::system::System;
use forebay_host::topology::{LinkEnd, Nic, NodeNumber, PciDevice, RdmaPort, Topology};
use std::collections::BTreeSet;

/// The largest packet that Ethernet is commonly set to.
const JUMBO: u32 = 9000;
/// Payload of a PCIe packet where nobody could read it: the least that there is.
const PAYLOAD_MIN: u32 = 128;

/// A host, and what was measured of it.
pub struct Ground<'a> {
    /// The host's files, live or recorded.
    pub system: &'a System,
    /// What it is made of.
    pub topology: &'a Topology,
    /// What was measured of its memory since it booted.
    pub matrix: Option<Matrix>,
}

/// What goes through a host.
pub struct Route<'a> {
    /// Devices that bytes come from, with their shares.
    pub from: &'a [Part],
    /// Devices that bytes go to, with their shares.
    pub to: &'a [Part],
    /// How often CPUs copy them in between.
    pub copies: u32,
    /// Node of the CPUs and of the memory in between. None: nobody has placed them.
    pub node: Option<NodeNumber>,
}

impl Ground<'_> {
    /// Every hop of it, in the order in which bytes pass.
    pub fn chain(&self, route: &Route) -> Chain {
        let mut chain = Chain::default();
        for (end, share) in route.from {
            self.device(&mut chain, end, Way::From, *share);
        }
        self.memory(&mut chain, route);
        for (end, share) in route.to {
            self.device(&mut chain, end, Way::To, *share);
        }
        chain
    }

    /// Nodes that have memory.
    pub fn nodes(&self) -> Vec<NodeNumber> {
        let nodes = self.topology.nodes.iter().filter(|(_, node)| node.memory_bytes > 0);
        nodes.map(|(&number, _)| number).collect()
    }

    /// Nodes where a path can be placed: they have CPUs as well.
    pub fn places(&self) -> Vec<NodeNumber> {
        let has_cpus = |node: &NodeNumber| self.topology.nodes.get(node).is_some_and(|node| !node.cpus.is_empty());
        self.nodes().into_iter().filter(has_cpus).collect()
    }

    fn device(&self, chain: &mut Chain, end: &End, way: Way, share: f64) {
        // Seen from the host: what comes from a device is received, or read from a disk.
        let (line, function, name) = match end {
            End::Ram => return,
            End::Nic(name) => {
                let nic = self.topology.nics.get(name);
                (self.nic(name), nic.and_then(|nic| nic.pci.as_deref()), name)
            }
            End::Rdma(port) => {
                let place = self.topology.rdma.get(port);
                (self.rdma(port), place.and_then(|port| port.pci.as_deref()), port)
            }
            End::Disk(name) => {
                let disk = self.topology.disks.get(name);
                (self.disk(name), disk.and_then(|disk| disk.pci.as_deref()), name)
            }
        };
        let direction = ["in", "out"][usize::from(way == Way::To)];
        let mut hops = self.usb(name);
        let at_line = line.capacity.filter(|_| !matches!(end, End::Disk(_)));
        hops.extend(function.map_or_else(Vec::new, |address| self.slots(address, way, at_line)));
        hops.insert(0, line);
        // From the wire to memory, or from memory to the wire.
        if way == Way::To {
            hops.reverse();
        }
        for mut hop in hops {
            hop.resource = format!("{} {direction}", hop.resource);
            hop.multiplicity *= share;
            chain.pass(hop);
        }
    }

    fn nic(&self, name: &str) -> Hop {
        let file = |file: &str| format!("/sys/class/net/{name}/{file}");
        let nic = self.topology.nics.get(name).cloned().unwrap_or_default();
        let mut hop = hop(format!("net/{name}"), Sentence::new("hop.nic-unknown").with("name", name));
        let Some(bits) = nic.speed_bits.filter(|_| nic.mtu > 0) else {
            let said = self.system.text(&file("speed")).known();
            hop.evidence.push(Evidence::new(file("speed"), said.unwrap_or_else(|| "-".to_owned())));
            return hop;
        };
        if nic.infiniband {
            return self.ip_over_infiniband(name, &nic, bits, hop);
        }
        hop.text = Sentence::new("hop.nic").with("name", name).with("speed", speed(bits)).with("mtu", nic.mtu);
        hop.capacity = Some(tcp_over_ethernet(bits, nic.mtu));
        hop.evidence = vec![Evidence::new(file("speed"), bits / 1_000_000), Evidence::new(file("mtu"), nic.mtu)];
        let gain = tcp_over_ethernet(bits, JUMBO) / tcp_over_ethernet(bits, nic.mtu) - 1.0;
        hop.cure = Some(if nic.mtu < JUMBO {
            Sentence::new("hop.cure-mtu").with("mtu", JUMBO).with("gain", format!("{:.1}", gain * 100.0))
        } else {
            Sentence::new("hop.cure-line")
        });
        hop
    }

    fn ip_over_infiniband(&self, name: &str, nic: &Nic, bits: u64, mut hop: Hop) -> Hop {
        let text = Sentence::new("hop.ipoib").with("name", name).with("mtu", nic.mtu);
        hop.capacity = Some(tcp_over_infiniband(bits, nic.mtu));
        hop.cure = Some(Sentence::new("hop.cure-ipoib"));
        let mtu = Evidence::new(format!("/sys/class/net/{name}/mtu"), nic.mtu);
        match self.topology.rdma_of(nic).find(|(_, port)| infiniband(&port.rate).is_some()) {
            Some((port, RdmaPort { rate, .. })) => {
                hop.text = text.with("rate", rate);
                hop.evidence = vec![Evidence::new(rate_file(port), rate), mtu];
            }
            None => {
                hop.text = text.with("rate", speed(bits));
                hop.evidence = vec![Evidence::new(format!("/sys/class/net/{name}/speed"), bits / 1_000_000), mtu];
            }
        }
        hop
    }

    fn rdma(&self, name: &str) -> Hop {
        let port = self.topology.rdma.get(name).cloned().unwrap_or_default();
        let text = Sentence::new("hop.rdma").with("name", name).with("rate", &port.rate);
        let mut hop = hop(format!("rdma/{name}"), text);
        hop.evidence.push(Evidence::new(rate_file(name), &port.rate));
        if port.link_layer == "Ethernet" {
            let mtu = self.topology.nics_of(name).map(|(_, nic)| nic.mtu).max().unwrap_or(1500);
            hop.capacity = rate_bits(&port.rate).map(|bits| roce_v2(bits, rdma_mtu(mtu)));
        } else {
            hop.capacity = infiniband(&port.rate);
        }
        hop.cure = Some(Sentence::new("hop.cure-line"));
        hop
    }

    /// A disk's own bus where it has one that is not PCIe. What the disk itself can do, no register says.
    fn disk(&self, name: &str) -> Hop {
        let folder = format!("/sys/block/{name}");
        let real = self.system.real(&folder).known().unwrap_or_default();
        let mut hop = hop(format!("disk/{name}"), Sentence::new("hop.disk").with("name", name));
        if let Some((file, gigabits)) = self.sata(&real) {
            hop.text = Sentence::new("hop.sata").with("name", name).with("speed", gigabits);
            hop.capacity = Some(sata(gigabits));
            hop.evidence.push(Evidence::new(file, format!("{gigabits} Gbps")));
        } else if let Some((files, gigabits)) = self.sas(&real) {
            let lanes = files.len() as u32;
            hop.text = Sentence::new("hop.sas").with("name", name).with("speed", gigabits).with("lanes", lanes);
            hop.capacity = Some(sas(gigabits, lanes));
            hop.evidence.extend(files.into_iter().map(|file| Evidence::new(file, format!("{gigabits} Gbit"))));
        }
        hop
    }

    /// The rate of a SATA disk's link: `.../ata1/host0/...` has `.../ata1/link1/ata_link/link1/sata_spd`.
    fn sata(&self, real: &str) -> Option<(String, f64)> {
        let is_port = |part: &&str| part.strip_prefix("ata").is_some_and(|number| number.parse::<u32>().is_ok());
        let port = real.split('/').find(is_port)?;
        let number = &port["ata".len()..];
        let file = format!("/sys/class/ata_link/link{number}/sata_spd");
        let gigabits = self.system.text(&file).known()?.strip_suffix(" Gbps")?.parse().ok()?;
        Some((file, gigabits))
    }

    /// The rate of a SAS disk's lanes: `.../port-0:0/end_device-0:0/...` has `.../port-0:0/phy-0:0`, a link for each lane.
    fn sas(&self, real: &str) -> Option<(Vec<String>, f64)> {
        let (above, _) = real.split_once("/end_device-")?;
        let names = self.system.list(above).known()?;
        let lanes = names.into_iter().filter(|name| name.starts_with("phy-"));
        let files: Vec<String> = lanes.map(|name| format!("/sys/class/sas_phy/{name}/negotiated_linkrate")).collect();
        let rate = |file: &String| self.system.text(file).known()?.strip_suffix(" Gbit")?.parse::<f64>().ok();
        let rates: Vec<f64> = files.iter().filter_map(rate).collect();
        let slowest = rates.iter().copied().min_by(f64::total_cmp).filter(|_| rates.len() == files.len())?;
        Some((files, slowest))
    }

    /// The bus of an interface at USB.
    fn usb(&self, name: &str) -> Vec<Hop> {
        let Some(mbits) = self.topology.nics.get(name).and_then(|nic| nic.usb_mbits) else { return Vec::new() };
        let text = Sentence::new("hop.usb").with("name", name).with("speed", mbits);
        let evidence = vec![Evidence::new(format!("/sys/class/net/{name}/device/../speed"), mbits)];
        vec![Hop { capacity: Some(usb(mbits)), evidence, ..hop(format!("usb/{name}"), text) }]
    }

    /// The PCIe links from a function up to its root port, without those that are none: inside of a chip or of a virtual machine, links are
    /// registers without wires, which say 2.5 GT/s x1 of a port of 10 Gb/s. `line`: what its own line carries.
    fn slots(&self, address: &str, way: Way, line: Option<f64>) -> Vec<Hop> {
        let way_up = self.topology.up_from(address);
        let is_real = |own: &PciDevice| {
            let most = own.link.map(|end| pcie_raw(end.speed_max_gts.max(end.speed_gts), end.width_max.max(end.width)));
            !is_on_die(own) && most.zip(line).is_none_or(|(most, line)| most >= line)
        };
        if self.topology.hypervisor.is_some() || way_up.first().is_none_or(|(_, own)| !is_real(own)) {
            return Vec::new();
        }
        // A wire is between an endpoint or a switch's upper port, and the port above it. Between the two ports of a switch there is none.
        let mut hops = Vec::new();
        for pair in way_up.chunks_exact(2) {
            let [(low, below), (high, above)] = pair else { continue };
            let (end, named) = match (below.link, above.link) {
                (Some(end), _) => (end, low),
                (None, Some(end)) => (end, high),
                (None, None) => continue,
            };
            hops.push(slot((low, below), (high, above), (end, named), way));
        }
        hops
    }

    fn memory(&self, chain: &mut Chain, route: &Route) {
        // Nobody copies at a node without CPUs, and memory is taken of the own node as long as there is any.
        let nodes = match self.places() {
            places if places.is_empty() => self.nodes(),
            places => places,
        };
        let device = |(end, share): &Part, edge| {
            let node = match end {
                End::Ram => return None,
                End::Nic(name) => self.topology.nics.get(name)?.node,
                End::Rdma(name) => self.topology.rdma.get(name)?.node,
                End::Disk(name) => self.topology.disks.get(name)?.node,
            };
            Some(Move { edge, agent: node, share: *share })
        };
        let brought = route.from.iter().filter_map(|part| device(part, Edge::DmaIn));
        let taken = route.to.iter().filter_map(|part| device(part, Edge::DmaOut));
        let moves: Vec<Move> = brought.chain(copies(route.copies, route.node)).chain(taken).collect();
        let traffic = traffic(&moves, route.node, &nodes);
        for (&node, &multiplicity) in &traffic.memory {
            let mut hop =
                Hop { multiplicity, ..hop(format!("node {node}"), Sentence::new("hop.ram").with("node", node)) };
            hop.capacity = self.matrix.as_ref().and_then(|matrix| matrix.local(node));
            hop.evidence.extend(hop.capacity.map(measured));
            if hop.capacity.is_none()
                && let Some((speed, channels)) = self.modules()
            {
                hop.text =
                    Sentence::new("hop.ram-modules").with("node", node).with("channels", channels).with("speed", speed);
                hop.capacity = Some(ddr(speed, channels) * DDR_REACHABLE);
                hop.evidence.push(Evidence::new("/sys/firmware/dmi/entries/17-*/raw", format!("{speed} MT/s")));
            }
            hop.cure = Some(Sentence::new("hop.cure-ram"));
            chain.pass(hop);
        }
        for (&(from, to), &multiplicity) in &traffic.links {
            let text = Sentence::new("hop.link").with("from", from).with("to", to);
            let mut hop = Hop { multiplicity, ..hop(format!("link {from}>{to}"), text) };
            // CPUs of `to` that read memory of `from`.
            let read = self.matrix.as_ref().and_then(|matrix| matrix.read_between(to, from));
            hop.capacity = read.map(|cell| cell.bytes_per_second);
            hop.evidence.extend(hop.capacity.map(measured));
            hop.cure = Some(Sentence::new("hop.cure-link"));
            chain.pass(hop);
        }
    }
}

impl Ground<'_> {
    /// Speed and channels of a node's modules: only where each socket is one node, and the hardware is no hypervisor's.
    fn modules(&self) -> Option<(u32, u32)> {
        let placed: BTreeSet<(u32, NodeNumber)> =
            self.topology.cpus.values().map(|place| (place.package, place.node)).collect();
        let packages: BTreeSet<u32> = placed.iter().map(|(package, _)| *package).collect();
        let one_each = placed.len() == packages.len() && self.nodes().len() == packages.len();
        (one_each && self.topology.hypervisor.is_none()).then(|| full_channels(self.topology))?
    }
}

/// Where an RDMA port, as in `mlx4_0/1`, says its rate.
fn rate_file(port: &str) -> String {
    let (device, number) = port.split_once('/').unwrap_or((port, "1"));
    format!("/sys/class/infiniband/{device}/ports/{number}/rate")
}

fn measured(bytes_per_second: f64) -> Evidence {
    Evidence::new(KEPT, format!("{:.1} GB/s", bytes_per_second / crate::formulas::GB))
}

fn hop(resource: String, text: Sentence) -> Hop {
    Hop { resource, text, capacity: None, other: 0.0, multiplicity: 1.0, evidence: Vec::new(), cure: None }
}

/// A PCIe link between two functions; `named` is the one that says how it runs. All that shares the upper port shares the link.
fn slot(
    (low, below): (&str, &PciDevice),
    (high, above): (&str, &PciDevice),
    (end, named): (LinkEnd, &str),
    way: Way,
) -> Hop {
    let sizes = [below.payload, above.payload].into_iter().flatten().map(|payload| payload.set);
    let payload = sizes.min();
    let dma = if way == Way::From { Dma::Writes } else { Dma::Reads };
    let key = if payload.is_some() { "hop.slot" } else { "hop.slot-assumed" };
    let text = Sentence::new(key)
        .with("address", low)
        .with("speed", end.speed_gts)
        .with("lanes", end.width)
        .with("payload", payload.unwrap_or(PAYLOAD_MIN));
    let mut hop = hop(format!("pci/{high}"), text);
    hop.capacity = Some(pcie_useful(end.speed_gts, end.width, payload.unwrap_or(PAYLOAD_MIN), dma));
    let file = |name: &str| format!("/sys/bus/pci/devices/{named}/{name}");
    hop.evidence = vec![
        Evidence::new(file("current_link_speed"), format!("{} GT/s", end.speed_gts)),
        Evidence::new(file("current_link_width"), end.width),
    ];
    hop.evidence.extend(payload.map(|payload| Evidence::new(file("config"), format!("payload {payload}"))));
    hop.cure = Some(Sentence::new("hop.cure-slot"));
    hop
}

/// Bits a second as they stand on a box: `2.5 Gb/s`.
fn speed(bits: u64) -> String {
    if bits >= 1_000_000_000 { format!("{} Gb/s", bits as f64 / 1e9) } else { format!("{} Mb/s", bits / 1_000_000) }
}
