//! What the host is made of and where each part sits: NUMA nodes, caches, PCIe, devices, interrupts, memory.
//!
//! Own reader of sysfs and procfs. What the kernel does not tell is [`Seen::Hidden`] or [`Seen::Absent`], never a guess.

mod devices;
mod interrupts;
pub mod locality;
mod modules;
mod pci;
mod processors;

use super::system::{Seen, System};
pub use interrupts::counted;
pub use processors::in_brackets;
use std::collections::{BTreeMap, BTreeSet};

/// Number of a NUMA node, as the kernel counts. They may be sparse.
pub type NodeNumber = u32;
/// Number of a logical CPU.
pub type Cpu = u32;

/// What one host is made of, and where each part of it is.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// Logical CPUs that are online.
    pub cpus: BTreeMap<Cpu, CpuPlace>,
    /// NUMA nodes that are online; a host without NUMA has one.
    pub nodes: BTreeMap<NodeNumber, NumaNode>,
    /// What was written down of where devices are.
    pub locality: locality::Locality,
    /// PCI functions, by address such as `0000:82:00.0`.
    pub pci: BTreeMap<String, PciDevice>,
    /// Network interfaces, all of them.
    pub nics: BTreeMap<String, Nic>,
    /// Block devices that are whole disks.
    pub disks: BTreeMap<String, Disk>,
    /// RDMA ports, by `device/port`.
    pub rdma: BTreeMap<String, RdmaPort>,
    /// Interrupts of devices, by number.
    pub interrupts: BTreeMap<u32, Interrupt>,
    /// Memory modules, as the firmware lists them (SMBIOS type 17).
    pub modules: Vec<MemoryModule>,
    /// Whether the module list could be read, and why not.
    pub modules_hidden: Option<String>,
    /// A virtual machine: its hypervisor's name, where it can be told.
    pub hypervisor: Option<String>,
    /// Model of the CPUs, as the kernel names it.
    pub cpu_model: String,
    /// Release of the kernel that runs.
    pub kernel: String,
}

/// Where a logical CPU sits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuPlace {
    /// The NUMA node that it belongs to.
    pub node: NodeNumber,
    /// Number of the socket that it is in.
    pub package: u32,
    /// Its core: the lowest CPU number among its hardware threads.
    pub core: Cpu,
    /// The CPUs that share its last cache.
    pub shares_cache: Vec<Cpu>,
    /// Size of that cache in bytes; 0: unknown.
    pub cache_bytes: u64,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// Its CPUs; none: memory only.
    pub cpus: Vec<Cpu>,
    /// Bytes of memory that it has; 0: CPUs only.
    pub memory_bytes: u64,
    /// Distance to each node, as the firmware says.
    pub distances: BTreeMap<NodeNumber, u32>,
}

/// One end of a PCIe link. It is there when the kernel shows what it runs at now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkEnd {
    /// Giga-transfers a second, now.
    pub speed_gts: f64,
    /// Lanes that are in use now.
    pub width: u32,
    /// At most; 0: the kernel does not show it.
    pub speed_max_gts: f64,
    /// At most; 0: the kernel does not show it.
    pub width_max: u32,
}

/// A PCI function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PciDevice {
    /// Class, subclass, interface: `0x020000` is an Ethernet controller.
    pub class: u32,
    /// Number of the vendor, as PCI's register of them has it.
    pub vendor: u16,
    /// Number of the device among the vendor's.
    pub device: u16,
    /// Its NUMA node; None: the kernel does not know.
    pub node: Option<NodeNumber>,
    /// The port or bridge above it, by address; None: it sits at a host bridge.
    pub parent: Option<String>,
    /// Its own end of the link. None: it has none, or the kernel shows none.
    pub link: Option<LinkEnd>,
    /// Type in the PCIe capability: 0 endpoint, 4 root port, 5 upstream, 6 downstream, 9 integrated endpoint (RCiEP).
    pub port_type: Option<u8>,
    /// Largest payload that is set (MPS), that the device can do, and largest read request (MRRS), in bytes.
    pub payload: Option<Payload>,
    /// Why the two above could not be read of a function that may have them: its file of configuration, and what hides it.
    pub config_hidden: Option<String>,
    /// Name of the driver that has it; none: no driver has.
    pub driver: Option<String>,
    /// Name of the slot that it is plugged into, as the board has it; none: soldered, or the firmware names no slots.
    pub slot: Option<String>,
    /// What the firmware calls it, as in `Onboard LAN 1`.
    pub label: Option<String>,
}

/// Sizes of a function's packets, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The largest payload that is allowed now.
    pub set: u32,
    /// The largest payload that the function can take.
    pub supported: u32,
    /// The largest request to read that it may send.
    pub read_request: u32,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nic {
    /// The PCI function below it, also through virtio. None: virtual, or at another bus.
    pub pci: Option<String>,
    /// The NUMA node that it is at; none: not known.
    pub node: Option<NodeNumber>,
    /// Bits a second, while the link is up; of InfiniBand those that are left for data after its line code.
    pub speed_bits: Option<u64>,
    /// IP over InfiniBand, not Ethernet.
    pub infiniband: bool,
    /// What a card that switches by itself shows for a function that it gives to a guest (`pf0vf3`, `pf0sf1`): a handle to set it up by,
    /// with a queue for what has no rule yet.
    pub for_guest: bool,
    /// Which of its function's ports it is, counted from 1; several interfaces may be of one function. None: not told.
    pub port: Option<u32>,
    /// Whether its line carries.
    pub up: bool,
    /// Bytes of the largest packet that it sends.
    pub mtu: u32,
    /// `full` or `half`; none: its driver does not tell.
    pub duplex: Option<String>,
    /// At a USB bus: megabits a second of that.
    pub usb_mbits: Option<u32>,
    /// Name of the driver that has it; none: it is not told.
    pub driver: Option<String>,
    /// Bond, bridge or team that it belongs to.
    pub master: Option<String>,
    /// `physical`, or what kind it is: `bond`, `bridge`, `vlan`, `veth`, `loopback`, `virtual`.
    pub kind: String,
}

/// A block device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disk {
    /// The PCI function below it.
    pub pci: Option<String>,
    /// The NUMA node that it is at; none: not known.
    pub node: Option<NodeNumber>,
    /// Size of the disk in bytes.
    pub bytes: u64,
    /// It has platters that turn.
    pub rotational: bool,
    /// `nvme`, `scsi`, `virtio`, `loop`, `dm`, `md`, `ram` or `other`.
    pub kind: String,
    /// What its maker calls it; none: it does not tell, as layers above disks.
    pub model: Option<String>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RdmaPort {
    /// Address of the PCI function that it belongs to.
    pub pci: Option<String>,
    /// The NUMA node that it is at; none: not known.
    pub node: Option<NodeNumber>,
    /// As the kernel prints it: `56 Gb/sec (4X FDR)`. It is the signalling rate.
    pub rate: String,
    /// What the port does, in the kernel's word: `ACTIVE`, `DOWN` ...
    pub state: String,
    /// What the port speaks: `InfiniBand` or `Ethernet`.
    pub link_layer: String,
}

/// An interrupt of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interrupt {
    /// Address of the PCI function that it belongs to.
    pub pci: Option<String>,
    /// Its name in `/proc/interrupts`.
    pub name: String,
    /// CPUs that it is allowed to go to.
    pub allowed: Vec<Cpu>,
    /// CPUs that it goes to in truth.
    pub goes_to: Vec<Cpu>,
    /// The kernel decides by itself, and refuses changes.
    pub managed: bool,
    /// How often it came, on each CPU to which it came at all.
    pub counts: BTreeMap<Cpu, u64>,
}

/// A memory module, or an empty slot for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryModule {
    /// Name of the slot, as the board has it.
    pub slot: String,
    /// Name of its bank, often the channel's.
    pub bank: String,
    /// 0: the slot is empty.
    pub bytes: u64,
    /// The kind of memory, such as `DDR4`.
    pub kind: String,
    /// Mega-transfers a second that it can do; 0: unknown.
    pub rated_mts: u32,
    /// That it runs at; 0: unknown.
    pub configured_mts: u32,
    /// Bits of data that it moves at one time.
    pub data_bits: u32,
}

impl Topology {
    /// PCI functions from this one up to the root port, itself first.
    pub fn up_from(&self, address: &str) -> Vec<(&str, &PciDevice)> {
        let mut chain = Vec::new();
        let mut next = self.pci.get_key_value(address);
        while let Some((address, device)) = next
            && chain.len() < 32
        {
            chain.push((address.as_str(), device));
            next = device.parent.as_ref().and_then(|parent| self.pci.get_key_value(parent));
        }
        chain
    }

    /// The RDMA ports that are the same line as an interface, by `device/port`: of its PCI function the one with its number, where
    /// the function has several.
    pub fn rdma_of<'a>(&'a self, nic: &'a Nic) -> impl Iterator<Item = (&'a String, &'a RdmaPort)> {
        let of_function = move |port: &RdmaPort| nic.pci.is_some() && port.pci == nic.pci;
        let several = self.rdma.values().filter(|port| of_function(port)).count() > 1;
        self.rdma.iter().filter(move |(name, port)| {
            let number = name.rsplit('/').next().and_then(|number| number.parse::<u32>().ok());
            of_function(port) && (!several || nic.port.is_none() || nic.port == number)
        })
    }

    /// The interfaces that are the same line as an RDMA port, by its `device/port`.
    pub fn nics_of<'a>(&'a self, port: &'a str) -> impl Iterator<Item = (&'a String, &'a Nic)> {
        self.nics.iter().filter(move |(_, nic)| self.rdma_of(nic).any(|(name, _)| name == port))
    }

    /// Interrupts of one PCI function.
    pub fn interrupts_of<'a>(&'a self, address: &'a str) -> impl Iterator<Item = (u32, &'a Interrupt)> {
        let of = move |(_, interrupt): &(&u32, &Interrupt)| interrupt.pci.as_deref() == Some(address);
        self.interrupts.iter().filter(of).map(|(&number, interrupt)| (number, interrupt))
    }
}

/// The longest list of CPUs or nodes that is believed; Linux has 8192 CPUs at most. A broken file is no reason to fill memory.
const NUMBERS_MAX: usize = 1 << 16;

/// A list of numbers as the kernel writes them: `0-3,8`.
pub fn numbers(text: &str) -> Vec<u32> {
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => Some(first.trim().parse().ok()?..=last.trim().parse().ok()?),
        None => part.trim().parse().ok().map(|only| only..=only),
    };
    text.split(',').filter_map(range).flatten().take(NUMBERS_MAX).collect()
}

/// The numbers of the bits in a mask as the kernel writes it: `00000000,000000ff`, 32 bits a group, the highest first.
fn bits(text: &str) -> Vec<u32> {
    let groups: Vec<u32> =
        text.trim().rsplit(',').map_while(|group| u32::from_str_radix(group.trim(), 16).ok()).collect();
    let bits_of =
        |(group, bits): (u32, u32)| (0..32).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| group * 32 + bit);
    (0..).zip(groups).flat_map(bits_of).take(NUMBERS_MAX).collect()
}

/// What a list file holds.
pub fn list_of(system: &System, path: &str) -> Seen<Vec<u32>> {
    system.text(path).and_then(|text| Some(numbers(&text)))
}

/// What a list file holds, or the mask that older kernels have in its place.
fn list_or_mask(system: &System, list: &str, mask: &str) -> Option<Vec<u32>> {
    list_of(system, list).known().or_else(|| system.text(mask).known().map(|text| bits(&text)))
}

/// Nodes by number.
type Nodes = BTreeMap<NodeNumber, NumaNode>;

/// The only node, where a host has one alone.
fn only(nodes: &Nodes) -> Option<NodeNumber> {
    nodes.keys().next().copied().filter(|_| nodes.len() == 1)
}

/// Reads all of it. What is not there stays empty.
pub fn read(system: &System) -> Topology {
    let nodes = processors::nodes(system);
    let locality = locality::Locality::read(system, &nodes.keys().copied().collect());
    let pci = pci::read(system, &locality, &nodes);
    let places = devices::Places { pci: &pci, locality: &locality, nodes: &nodes };
    let (modules, modules_hidden) = modules::read(system);
    let rdma = devices::rdma(system, &places);
    let processor = processors::description(system);
    let mut topology = Topology {
        cpus: processors::cpus(system, &nodes),
        nics: devices::nics(system, &places),
        disks: devices::disks(system, &places),
        rdma,
        interrupts: interrupts::read(system, &pci),
        hypervisor: processors::hypervisor(system, &processor),
        cpu_model: processor.model,
        kernel: processors::kernel(system),
        nodes,
        pci,
        locality,
        modules,
        modules_hidden,
    };
    data_rates(&mut topology);
    topology
}

/// What IP over InfiniBand says of its speed is the signalling rate, of which the line code takes a fifth up to QDR: what is left is
/// told by the rate of its port, with its generation.
fn data_rates(topology: &mut Topology) {
    let of = |(name, nic): (&String, &Nic)| {
        let ports = topology.rdma_of(nic).filter(|_| nic.infiniband && nic.up);
        Some((name.clone(), ports.filter_map(|(_, port)| infiniband_bits(&port.rate)).max()?))
    };
    let rates: Vec<(String, u64)> = topology.nics.iter().filter_map(of).collect();
    for (name, bits) in rates {
        topology.nics.entry(name).and_modify(|nic| nic.speed_bits = Some(bits));
    }
}

/// Bits of data a second that InfiniBand carries after its line code, by the rate as sysfs prints it, which is the signalling rate:
/// `40 Gb/sec (4X QDR)` carries 32. InfiniBand architecture specification, volume 2: 8b/10b up to QDR, 64b/66b from FDR10 on; EDR and
/// later are named by their data rate.
pub fn infiniband_bits(rate: &str) -> Option<u64> {
    let (lanes, speed) = rate.split_once('(')?.1.split_once(')')?.0.split_once("X ")?;
    let lane = match speed {
        "SDR" => 2.0,
        "DDR" => 4.0,
        "QDR" => 8.0,
        "FDR10" => 10.0,
        "FDR" => 14.0625 * 64.0 / 66.0,
        "EDR" => 25.0,
        "HDR" => 50.0,
        "NDR" => 100.0,
        "XDR" => 200.0,
        _ => return None,
    };
    // Twelve lanes are the most that the specification has.
    let lanes: u32 = lanes.parse().ok().filter(|lanes| (1..=12).contains(lanes))?;
    Some((f64::from(lanes) * lane * 1e9) as u64)
}

/// Whether it is the address of a PCI function: `0000:82:00.0`; the domain may be longer.
fn is_address(name: &str) -> bool {
    let hex = |part: &str, least: usize| part.len() >= least && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<&str> = name.split([':', '.']).collect();
    matches!(parts[..], [domain, bus, slot, function]
        if hex(domain, 4) && hex(bus, 2) && hex(slot, 2) && hex(function, 1))
        && name.matches(':').count() == 2
}

/// CPUs as the kernel lists them: `0-3,8`.
pub fn cpu_list(cpus: impl IntoIterator<Item = Cpu>) -> String {
    let mut ranges: Vec<(Cpu, Cpu)> = Vec::new();
    for cpu in cpus.into_iter().collect::<BTreeSet<Cpu>>() {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): &(Cpu, Cpu)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<String>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_are_read_as_the_kernel_writes_them() {
        assert_eq!(numbers("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(numbers(""), [0u32; 0]);
        assert_eq!(numbers("0-4294967295").len(), NUMBERS_MAX);
        assert_eq!(bits("00000001,80000003"), [0, 1, 31, 32]);
        assert_eq!(bits("0"), [0u32; 0]);
    }

    #[test]
    fn an_address_of_a_pci_function_is_told_from_other_names() {
        for name in ["0000:82:00.0", "10000:e1:00.0"] {
            assert!(is_address(name), "{name}");
        }
        for name in ["pci0000:80", "0:0:0:0", "virtio2", "2-1.4:1.0", "0000.82.00.0", "0000:82:00"] {
            assert!(!is_address(name), "{name}");
        }
    }
}
