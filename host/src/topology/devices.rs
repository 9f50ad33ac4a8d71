//! Network interfaces, disks and RDMA ports, each with the PCI function and the node below it.

use super::super::system::System;
use super::locality::Locality;
use super::pci::{base, node_of};
use super::{Disk, Nic, NodeNumber, Nodes, PciDevice, RdmaPort, is_address, only};
use std::collections::BTreeMap;

/// What says where devices are.
pub struct Places<'a> {
    /// All PCI functions, by their addresses.
    pub pci: &'a BTreeMap<String, PciDevice>,
    /// What an operator has written down of where devices are.
    pub locality: &'a Locality,
    /// The host's nodes. One alone is everything's.
    pub nodes: &'a Nodes,
}

/// What lies below a device of a class.
struct Below {
    /// Where it is, all links followed.
    real: String,
    pci: Option<String>,
    node: Option<NodeNumber>,
}

impl Below {
    /// `path` is the device's in its class.
    fn of(system: &System, path: &str, places: &Places<'_>) -> Below {
        // Old kernels had folders in the class, with the device behind a link.
        let device = system.real(&format!("{path}/device")).known();
        let real = device.or_else(|| system.real(path).known()).unwrap_or_default();
        Below::at(system, real, places)
    }

    fn at(system: &System, real: String, places: &Places<'_>) -> Below {
        // At USB the PCI function is the bus's controller, whose link is not the device's.
        let function = real.rsplit('/').find(|part| is_address(part)).map(str::to_owned);
        let function = function.filter(|address| places.pci.contains_key(address) && !is_usb(&real));
        // virtio has no node of its own: whoever above it has one knows.
        let above = std::iter::successors(Some(real.as_str()), |path| path.rsplit_once('/').map(|(above, _)| above));
        let is_virtual = real.starts_with("/sys/devices/virtual/");
        let node_at = |path| places.locality.of_path(path).or_else(|| node_of(system, path, places.nodes));
        let node = above.take_while(|path| path.len() > "/sys/devices".len()).find_map(node_at);
        Below { pci: function, node: node.or(only(places.nodes).filter(|_| !is_virtual)), real }
    }
}

fn is_usb(real: &str) -> bool {
    let bus = |part: &str| part.strip_prefix("usb").is_some_and(|bus| bus.parse::<u32>().is_ok());
    real.split('/').any(bus)
}

/// All network interfaces, virtual ones too, by name.
pub fn nics(system: &System, places: &Places<'_>) -> BTreeMap<String, Nic> {
    let names = system.list("/sys/class/net").known().unwrap_or_default();
    // `bonding_masters` is a file.
    let names = names.into_iter().filter(|name| system.has(&format!("/sys/class/net/{name}/mtu")));
    let nic = |name: &str| {
        let folder = format!("/sys/class/net/{name}");
        let below = Below::of(system, &folder, places);
        let mbits: Option<u64> = system.number(&format!("{folder}/speed")).known();
        let up = match system.number::<u8>(&format!("{folder}/carrier")).known() {
            Some(carrier) => carrier == 1,
            None => system.text(&format!("{folder}/operstate")).known().as_deref() == Some("up"),
        };
        Nic {
            usb_mbits: usb_mbits(system, &below.real),
            // 4294967295 is a -1: down, or not known.
            speed_bits: mbits
                .filter(|&mbits| up && mbits > 0 && mbits < u64::from(u32::MAX))
                .map(|mbits| mbits * 1_000_000),
            infiniband: system.number::<u32>(&format!("{folder}/type")).known() == Some(ARPHRD_INFINIBAND),
            port: port(system, &folder),
            for_guest: {
                let port = system.text(&format!("{folder}/phys_port_name")).known().unwrap_or_default();
                port.contains("vf") || port.contains("sf")
            },
            up,
            mtu: system.number(&format!("{folder}/mtu")).known().unwrap_or(0),
            duplex: system.text(&format!("{folder}/duplex")).known().filter(|duplex| duplex != "unknown"),
            driver: base(system, &format!("{folder}/device/driver")),
            master: base(system, &format!("{folder}/master")),
            kind: kind(system, &folder),
            pci: below.pci,
            node: below.node,
        }
    };
    names.map(|name| (name.clone(), nic(&name))).collect()
}

/// What the kernel calls the kind of a link, `type`: of InfiniBand, on which IP is carried.
const ARPHRD_INFINIBAND: u32 = 32;

/// Which of its function's ports an interface is, counted from 1 as RDMA counts them. Kernels before 3.15 have it as `dev_id`.
fn port(system: &System, folder: &str) -> Option<u32> {
    let text = |name: &str| system.text(&format!("{folder}/{name}")).known();
    let number = |text: String| match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let (port, id) = (text("dev_port").and_then(number), text("dev_id").and_then(number));
    // Other drivers keep other things in `dev_id`.
    let id = id.filter(|id| *id < PORTS_MAX);
    port.filter(|port| *port > 0).or(id).or(port)?.checked_add(1)
}

/// More ports than a function of any adapter has.
const PORTS_MAX: u32 = 8;

fn kind(system: &System, folder: &str) -> String {
    let uevent = system.text(&format!("{folder}/uevent")).known().unwrap_or_default();
    let of_kernel = uevent.lines().find_map(|line| line.strip_prefix("DEVTYPE=").map(str::to_owned));
    let number = |name: &str| system.number::<i64>(&format!("{folder}/{name}")).known();
    // ARPHRD_LOOPBACK.
    if number("type") == Some(772) {
        return "loopback".to_owned();
    }
    if system.has(&format!("{folder}/device")) {
        return "physical".to_owned();
    }
    match of_kernel.as_deref() {
        Some(kind @ ("bond" | "bridge" | "vlan")) => kind.to_owned(),
        _ if system.has(&format!("{folder}/bonding")) => "bond".to_owned(),
        _ if system.has(&format!("{folder}/bridge")) => "bridge".to_owned(),
        _ if system.has(&format!("/proc/net/vlan/{}", folder.rsplit('/').next().unwrap_or_default())) => {
            "vlan".to_owned()
        }
        // The other end of a pair is what lies below it. Of other kinds that lie on one the kernel tells the name.
        None if number("iflink") != number("ifindex") => "veth".to_owned(),
        _ => "virtual".to_owned(),
    }
}

/// Speed of the USB device that something is a part of.
fn usb_mbits(system: &System, real: &str) -> Option<u32> {
    if !is_usb(real) {
        return None;
    }
    let above = std::iter::successors(Some(real), |path| path.rsplit_once('/').map(|(above, _)| above));
    let device = above.take_while(|path| !path.is_empty()).find(|path| system.has(&format!("{path}/busnum")))?;
    // `1.5` was the first one's.
    system.number::<f64>(&format!("{device}/speed")).known().map(|mbits| mbits as u32)
}

/// The block devices that are no partitions, by name.
pub fn disks(system: &System, places: &Places<'_>) -> BTreeMap<String, Disk> {
    let class = if system.has("/sys/block") { "/sys/block" } else { "/sys/class/block" };
    let names = system.list(class).known().unwrap_or_default();
    let whole = names.into_iter().filter(|name| !system.has(&format!("{class}/{name}/partition")));
    let disk = |name: &str| {
        let folder = format!("{class}/{name}");
        let real = system.real(&folder).known().unwrap_or_default();
        let below = Below::at(system, controller(system, &real).unwrap_or(real), places);
        let kind = [("nvme", "nvme"), ("sd", "scsi"), ("vd", "virtio"), ("loop", "loop"), ("dm-", "dm"), ("md", "md")]
            .into_iter()
            .chain([("ram", "ram"), ("zram", "ram")])
            .find(|(prefix, _)| name.strip_prefix(prefix).is_some_and(|rest| !rest.starts_with('-')))
            .map_or("other", |(_, kind)| kind);
        Disk {
            pci: below.pci,
            node: below.node,
            // In sectors of 512 bytes, whatever the disk's own are.
            bytes: system.number::<u64>(&format!("{folder}/size")).known().unwrap_or(0).saturating_mul(512),
            rotational: system.number::<u8>(&format!("{folder}/queue/rotational")).known() == Some(1),
            kind: kind.to_owned(),
            model: model(system, &folder),
        }
    };
    whole.map(|name| (name.clone(), disk(&name))).collect()
}

/// A disk's model without the white space that fills its field up; a name longer than any field is none.
fn model(system: &System, folder: &str) -> Option<String> {
    /// Letters of NVMe's field, which is the longest.
    const LETTERS: usize = 40;
    let text = system.text(&format!("{folder}/device/model")).known()?;
    let model = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    (!model.is_empty() && model.chars().count() <= LETTERS).then_some(model)
}

/// Of a disk of NVMe that several controllers may lead to (native multipath), which sits at none of them: the only one there is.
fn controller(system: &System, real: &str) -> Option<String> {
    let (subsystem, _) = real.rsplit_once('/').filter(|(above, _)| above.contains("/nvme-subsys"))?;
    let is_controller = |name: &String| name.strip_prefix("nvme").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let names: Vec<String> = system.list(subsystem).known()?.into_iter().filter(is_controller).collect();
    let [only] = &names[..] else { return None };
    system.real(&format!("{subsystem}/{only}")).known()
}

/// Ports of RDMA devices.
pub fn rdma(system: &System, places: &Places<'_>) -> BTreeMap<String, RdmaPort> {
    const CLASS: &str = "/sys/class/infiniband";
    let mut ports = BTreeMap::new();
    for device in system.list(CLASS).known().unwrap_or_default() {
        let below = Below::of(system, &format!("{CLASS}/{device}"), places);
        for port in system.list(&format!("{CLASS}/{device}/ports")).known().unwrap_or_default() {
            let text = |name: &str| system.text(&format!("{CLASS}/{device}/ports/{port}/{name}")).known();
            // `4: ACTIVE`.
            let state = text("state").unwrap_or_default();
            let rdma = RdmaPort {
                pci: below.pci.clone(),
                node: below.node,
                rate: text("rate").unwrap_or_default(),
                state: state.split_once(": ").map_or(state.as_str(), |(_, word)| word).to_owned(),
                // Kernels before RoCE had nothing else.
                link_layer: text("link_layer").unwrap_or_else(|| "InfiniBand".to_owned()),
            };
            ports.insert(format!("{device}/{port}"), rdma);
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use crate::fixture::Tree;

    fn two_nodes() -> Tree {
        Tree::new().node(0, "0-1", 4).node(1, "2-3", 4).pci("0000:80:02.0", 0x060400, 1)
    }

    #[test]
    fn a_virtio_interface_has_the_node_of_the_function_above_it() {
        let tree = two_nodes().pci("0000:80:02.0/0000:82:00.0", 0x020000, 1).virtio_nic("ens1", "0000:82:00.0", 10_000);
        let nic = read(&tree.system()).nics["ens1"].clone();
        assert_eq!((nic.pci.as_deref(), nic.node, nic.kind.as_str()), (Some("0000:82:00.0"), Some(1), "physical"));
        assert_eq!((nic.driver.as_deref(), nic.speed_bits), (Some("virtio_net"), Some(10_000_000_000)));
    }

    #[test]
    fn a_function_without_a_node_has_the_one_of_the_port_above_it() {
        let tree = two_nodes().pci("0000:80:02.0/0000:82:00.0", 0x020000, -1).nic("eth0", "0000:82:00.0", 25_000);
        let topology = read(&tree.system());
        assert_eq!((topology.nics["eth0"].node, topology.pci["0000:82:00.0"].node), (Some(1), None));
    }

    #[test]
    fn an_interface_at_usb_has_the_speed_of_its_device_and_no_link_of_its_own() {
        let tree = two_nodes().pci("0000:80:14.0", 0x0c0330, 1);
        let device = "/sys/devices/pci0000:80/0000:80:14.0/usb2/2-1";
        let tree = tree
            .file(&format!("{device}/busnum"), "2")
            .file(&format!("{device}/speed"), "5000")
            .file(&format!("{device}/2-1:1.0/net/usb0/mtu"), "1500")
            .link(&format!("{device}/2-1:1.0/net/usb0/device"), "../..")
            .link("/sys/class/net/usb0", "../../devices/pci0000:80/0000:80:14.0/usb2/2-1/2-1:1.0/net/usb0");
        let nic = read(&tree.system()).nics["usb0"].clone();
        assert_eq!((nic.usb_mbits, nic.pci, nic.node), (Some(5000), None, Some(1)));
    }

    #[test]
    fn interfaces_that_are_down_or_virtual_have_no_speed_and_say_what_they_are() {
        let tree = two_nodes()
            .pci("0000:80:02.0/0000:82:00.0", 0x020000, 1)
            .nic("eth0", "0000:82:00.0", 25_000)
            .file("/sys/class/net/eth0/carrier", "0")
            .nic("lo", "", 0)
            .file("/sys/class/net/lo/type", "772")
            .nic("bond0", "", 50_000)
            .file("/sys/class/net/bond0/bonding/mode", "802.3ad 4")
            .nic("br0", "", 0)
            .file("/sys/class/net/br0/uevent", "DEVTYPE=bridge")
            .nic("veth1", "", 10_000)
            .file("/sys/class/net/veth1/iflink", "77")
            .nic("tun0", "", 0)
            .file("/sys/class/net/bonding_masters", "bond0");
        let nics = read(&tree.system()).nics;
        assert_eq!((nics["eth0"].up, nics["eth0"].speed_bits), (false, None));
        let kind = |name: &str| nics[name].kind.as_str();
        assert_eq!([kind("lo"), kind("bond0"), kind("br0")], ["loopback", "bond", "bridge"]);
        assert_eq!([kind("veth1"), kind("tun0")], ["veth", "virtual"]);
        assert_eq!((nics["bond0"].pci.as_deref(), nics["bond0"].node), (None, None));
        assert_eq!(nics["bond0"].speed_bits, Some(50_000_000_000));
        assert!(!nics.contains_key("bonding_masters"));
    }

    #[test]
    fn disks_are_whole_and_have_their_kind_and_the_function_below_them() {
        let tree = two_nodes()
            .pci("0000:80:02.0/0000:83:00.0", 0x010802, 1)
            .disk("nvme0n1", "0000:83:00.0", 100)
            .file("/sys/block/nvme0n1/device/model", "Samsung SSD 980 PRO 1TB                 \n")
            .file("/sys/block/nvme0n1/nvme0n1p1/partition", "1")
            .pci("0000:00:1f.2", 0x010601, 0)
            .disk("sda", "0000:00:1f.2", 200)
            .file("/sys/block/sda/queue/rotational", "1")
            .disk("dm-0", "", 1)
            .disk("zram0", "", 1);
        let disks = read(&tree.system()).disks;
        let of = |name: &str| (disks[name].kind.as_str(), disks[name].node, disks[name].rotational);
        assert_eq!(of("nvme0n1"), ("nvme", Some(1), false));
        assert_eq!(of("sda"), ("scsi", Some(0), true));
        assert_eq!([of("dm-0"), of("zram0")], [("dm", None, false), ("ram", None, false)]);
        assert_eq!(disks["nvme0n1"].bytes, 100 << 30);
        let model = |name: &str| disks[name].model.as_deref();
        assert_eq!([model("nvme0n1"), model("sda")], [Some("Samsung SSD 980 PRO 1TB"), None]);
        assert_eq!(disks["nvme0n1"].pci.as_deref(), Some("0000:83:00.0"));
    }

    #[test]
    fn a_disk_of_nvme_behind_its_subsystem_has_its_only_controllers_place() {
        let subsystem = "/sys/devices/virtual/nvme-subsystem/nvme-subsys0";
        let tree = |tree: Tree| {
            tree.pci("0000:80:02.0/0000:83:00.0", 0x010802, 1)
                .file("/sys/devices/pci0000:80/0000:80:02.0/0000:83:00.0/nvme/nvme0/state", "live")
                .link(&format!("{subsystem}/nvme0"), "../../../pci0000:80/0000:80:02.0/0000:83:00.0/nvme/nvme0")
                .file(&format!("{subsystem}/nvme0n1/size"), "2048")
                .link("/sys/block/nvme0n1", "../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1")
        };
        let disk = read(&tree(two_nodes()).system()).disks["nvme0n1"].clone();
        assert_eq!((disk.node, disk.pci.as_deref()), (Some(1), Some("0000:83:00.0")));
        let two = tree(two_nodes()).link(&format!("{subsystem}/nvme1"), "../../../pci0000:80");
        assert_eq!(read(&two.system()).disks["nvme0n1"].pci, None);
    }

    #[test]
    fn ports_of_rdma_say_their_rate_and_state() {
        let tree = two_nodes().pci("0000:80:02.0/0000:82:00.0", 0x020700, 1);
        let tree = tree.rdma("mlx4_0", 1, "0000:82:00.0", "56 Gb/sec (4X FDR)", "4: ACTIVE", "InfiniBand");
        let port = read(&tree.system()).rdma["mlx4_0/1"].clone();
        assert_eq!((port.pci.as_deref(), port.node), (Some("0000:82:00.0"), Some(1)));
        assert_eq!((port.rate.as_str(), port.state.as_str()), ("56 Gb/sec (4X FDR)", "ACTIVE"));
    }

    #[test]
    fn two_interfaces_of_one_function_have_each_its_own_rdma_port_by_their_numbers() {
        const CARD: &str = "0000:82:00.0";
        let ports = |one: (&str, &str), two: (&str, &str)| {
            let tree = two_nodes().pci(&format!("0000:80:02.0/{CARD}"), 0x020700, 1);
            let tree = tree.nic("ib0", CARD, 40_000).nic("eth1", CARD, 10_000);
            let tree = tree.rdma("mlx4_0", 1, CARD, "40 Gb/sec (4X QDR)", "4: ACTIVE", "InfiniBand");
            let tree = tree.rdma("mlx4_0", 2, CARD, "10 Gb/sec (1X QDR)", "4: ACTIVE", "Ethernet");
            tree.file("/sys/class/net/ib0/type", "32")
                .file(&format!("/sys/class/net/ib0/{}", one.0), one.1)
                .file(&format!("/sys/class/net/eth1/{}", two.0), two.1)
        };
        let tree = ports(("dev_port", "0"), ("dev_port", "1"));
        let topology = read(&tree.system());
        let of = |nic: &str| topology.rdma_of(&topology.nics[nic]).map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        assert_eq!((of("ib0"), of("eth1")), (vec!["mlx4_0/1"], vec!["mlx4_0/2"]));
        let back: Vec<&String> = topology.nics_of("mlx4_0/2").map(|(name, _)| name).collect();
        assert_eq!(back, ["eth1"]);
        // 8b/10b leaves 32 of 40 Gb/s; Ethernet's own number is that of its data.
        let speed = |nic: &str| topology.nics[nic].speed_bits;
        assert_eq!((speed("ib0"), speed("eth1")), (Some(32_000_000_000), Some(10_000_000_000)));
        // As kernels before 3.15 have it, and others beside a port of 0.
        for old in [ports(("dev_id", "0x0"), ("dev_id", "0x1")), ports(("dev_port", "0"), ("dev_id", "0x1"))] {
            let nics = read(&old.system()).nics;
            assert_eq!((nics["ib0"].port, nics["eth1"].port), (Some(1), Some(2)));
        }
        let odd = read(&ports(("dev_port", "4294967295"), ("dev_id", "0xfe")).system());
        assert_eq!((odd.nics["ib0"].port, odd.nics["eth1"].port), (None, None));
    }

    #[test]
    fn what_cannot_be_read_of_an_interface_stays_empty() {
        let tree = two_nodes().nic("eth0", "", 1000).hidden("/sys/class/net/eth1/mtu");
        let nics = read(&tree.system()).nics;
        assert_eq!((nics["eth1"].mtu, nics["eth1"].speed_bits, nics["eth1"].up), (0, None, false));
    }
}
