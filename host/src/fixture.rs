//! Made for tests: hosts, each a tree of files in a folder of its own; and nodes of a cluster, with what they can seal.

use crate::identity::{Authority, Identity};
use crate::net::Net;
use crate::seals::Seals;
use crate::system::{RECORDED, System};
use crate::topology::{MemoryModule, Payload, numbers};
use std::path::{Path, PathBuf};

/// A host's tree, which goes away with it.
pub struct Tree {
    folder: tempfile::TempDir,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::new()
    }
}

impl Tree {
    /// An empty one.
    pub fn new() -> Tree {
        Tree { folder: tempfile::tempdir().expect("a folder for the tree") }
    }

    fn place(&self, path: &str) -> PathBuf {
        let place = self.folder.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().expect("below the folder")).expect("folders made");
        place
    }

    /// A file, in place of what was there.
    pub fn file(self, path: &str, content: &str) -> Tree {
        std::fs::write(self.place(path), content).unwrap_or_else(|e| panic!("write {path}: {e}"));
        self
    }

    /// What a file held at the earlier of two looks.
    pub fn earlier(self, path: &str, content: &str) -> Tree {
        let tree = self.file(&format!("{RECORDED}/earlier/seconds"), "60");
        tree.file(&format!("{RECORDED}/earlier{path}"), content)
    }

    /// A symbolic link at `path` that leads to `to`.
    pub fn link(self, path: &str, to: &str) -> Tree {
        std::os::unix::fs::symlink(to, self.place(path)).unwrap_or_else(|e| panic!("link {path}: {e}"));
        self
    }

    /// A file that is there and cannot be read, not by root either: a folder.
    pub fn hidden(self, path: &str) -> Tree {
        std::fs::create_dir_all(self.place(path)).expect("made");
        self
    }

    /// A file of bytes.
    pub fn bytes(self, path: &str, content: &[u8]) -> Tree {
        std::fs::write(self.place(path), content).unwrap_or_else(|e| panic!("write {path}: {e}"));
        self
    }

    /// Leaves the first bytes of a file.
    pub fn cut(self, path: &str, bytes: usize) -> Tree {
        let content = std::fs::read(self.place(path)).unwrap_or_else(|e| panic!("read {path}: {e}"));
        self.bytes(path, &content[..bytes])
    }

    /// A file's text; empty where there is none.
    pub fn text(&self, path: &str) -> String {
        self.system().text(path).known().unwrap_or_default()
    }

    /// A NUMA node with its CPUs (as in `0-3`) and its memory; each CPU is a core of its own, the node is a socket with one L3
    /// cache. Distances are 10 and 21.
    pub fn node(self, number: u32, cpus: &str, gib: u64) -> Tree {
        let folder = format!("/sys/devices/system/node/node{number}");
        let mut tree = self
            .file(&format!("{folder}/cpulist"), cpus)
            .file(&format!("{folder}/meminfo"), &format!("Node {number} MemTotal:       {} kB\n", gib << 20));
        for cpu in numbers(cpus) {
            tree = tree
                .cpu(cpu, number, cpu)
                .file(&format!("/sys/devices/system/cpu/cpu{cpu}/cache/index3/shared_cpu_list"), cpus);
        }
        let names = tree.system().list("/sys/devices/system/node").known().unwrap_or_default();
        let mut nodes: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok()).collect();
        nodes.sort_unstable();
        for &node in &nodes {
            let distances = nodes.iter().map(|other| if *other == node { "10" } else { "21" });
            let text = distances.collect::<Vec<_>>().join(" ");
            tree = tree.file(&format!("/sys/devices/system/node/node{node}/distance"), &text);
        }
        let online: Vec<String> = nodes.iter().map(u32::to_string).collect();
        tree.file("/sys/devices/system/node/online", &online.join(","))
    }

    /// A CPU of a socket, a hardware thread of a core; [`Tree::node`] makes those that are cores of their own.
    pub fn cpu(self, cpu: u32, package: u32, core: u32) -> Tree {
        let online = self.text("/sys/devices/system/cpu/online");
        let online = if numbers(&online).contains(&cpu) || online.is_empty() { online } else { format!("{online},") };
        let online = if numbers(&online).contains(&cpu) { online } else { format!("{online}{cpu}") };
        let folder = format!("/sys/devices/system/cpu/cpu{cpu}");
        let siblings = if core == cpu { cpu.to_string() } else { format!("{core},{cpu}") };
        self.file("/sys/devices/system/cpu/online", &online)
            .file(&format!("{folder}/topology/physical_package_id"), &package.to_string())
            .file(&format!("{folder}/topology/core_cpus_list"), &siblings)
            .file(&format!("/sys/devices/system/cpu/cpu{core}/topology/core_cpus_list"), &siblings)
            .file(&format!("{folder}/cache/index3/level"), "3")
            .file(&format!("{folder}/cache/index3/type"), "Unified")
            .file(&format!("{folder}/cache/index3/size"), "16384K")
            .file(&format!("{folder}/cache/index3/shared_cpu_list"), &cpu.to_string())
    }

    /// A virtual machine.
    pub fn virtual_machine(self) -> Tree {
        let name = "processor\t: 0\nmodel name\t: Virtual CPU\nflags\t\t: fpu hypervisor\n";
        self.file("/proc/cpuinfo", name).file("/sys/class/dmi/id/sys_vendor", "QEMU")
    }

    /// A PCI function: its way from the root, as in `0000:80:02.0/0000:82:00.0`; its class; its node, or -1.
    pub fn pci(self, way: &str, class: u32, node: i32) -> Tree {
        let address = way.rsplit('/').next().expect("an address");
        let folder = format!("devices/pci{}/{way}", &way[..7]);
        let at = |name: &str| format!("/sys/{folder}/{name}");
        self.file(&at("class"), &format!("{class:#08x}"))
            .file(&at("vendor"), "0x1af4")
            .file(&at("device"), "0x1000")
            .file(&at("numa_node"), &node.to_string())
            .link(&format!("/sys/bus/pci/devices/{address}"), &format!("../../../{folder}"))
    }

    /// Vendor and device of a function.
    pub fn pci_id(self, address: &str, vendor: u16, device: u16) -> Tree {
        let at = |name: &str| format!("/sys/bus/pci/devices/{address}/{name}");
        self.file(&at("vendor"), &format!("{vendor:#06x}")).file(&at("device"), &format!("{device:#06x}"))
    }

    /// A function's end of its link: GT/s and lanes now, and at most.
    pub fn pci_link(self, address: &str, now: (f64, u32), at_most: (f64, u32)) -> Tree {
        let at = |name: &str| format!("/sys/bus/pci/devices/{address}/{name}");
        self.file(&at("current_link_speed"), &format!("{:.1} GT/s PCIe", now.0))
            .file(&at("current_link_width"), &now.1.to_string())
            .file(&at("max_link_speed"), &format!("{:.1} GT/s PCIe", at_most.0))
            .file(&at("max_link_width"), &at_most.1.to_string())
    }

    /// A function's configuration, as root reads it: its kind of port and its sizes.
    pub fn pci_config(self, address: &str, port_type: u8, payload: Payload) -> Tree {
        const CAPABILITY: usize = 0x40;
        let mut config = [0; 256];
        (config[0x06], config[0x34]) = (1 << 4, CAPABILITY as u8);
        let bits = |bytes: u32| (bytes / 128).trailing_zeros() as u16;
        let words = [
            (0x00, 0x10),
            (0x02, u16::from(port_type) << 4 | 2),
            (0x04, bits(payload.supported)),
            (0x08, bits(payload.set) << 5 | bits(payload.read_request) << 12),
        ];
        for (at, word) in words {
            config[CAPABILITY + at..][..2].copy_from_slice(&word.to_le_bytes());
        }
        self.bytes(&format!("/sys/bus/pci/devices/{address}/config"), &config)
    }

    /// A function's driver.
    pub fn driver(self, address: &str, name: &str) -> Tree {
        let folder = self.function(address);
        let up = "../".repeat(folder.matches('/').count() - 1);
        self.file(&format!("/sys/bus/pci/drivers/{name}/uevent"), "")
            .link(&format!("{folder}/driver"), &format!("{up}bus/pci/drivers/{name}"))
    }

    /// Where a function lies.
    fn function(&self, address: &str) -> String {
        self.system().real(&format!("/sys/bus/pci/devices/{address}")).known().expect("the function is there")
    }

    /// An interface that is up, of a function; none (`""`): a virtual one.
    pub fn nic(self, name: &str, address: &str, mbits: i64) -> Tree {
        let (above, device) = match address {
            "" => ("/sys/devices/virtual".to_owned(), None),
            address => (self.function(address), Some("../..")),
        };
        self.interface(name, &above, device, mbits)
    }

    /// The same at virtio, which sits between the function and the interface, and has no node of its own.
    pub fn virtio_nic(self, name: &str, address: &str, mbits: i64) -> Tree {
        let above = format!("{}/virtio0", self.function(address));
        let up = "../".repeat(above.matches('/').count() - 1);
        self.file("/sys/bus/virtio/drivers/virtio_net/uevent", "")
            .interface(name, &above, Some("../.."), mbits)
            .link(&format!("{above}/driver"), &format!("{up}bus/virtio/drivers/virtio_net"))
    }

    fn interface(self, name: &str, above: &str, device: Option<&str>, mbits: i64) -> Tree {
        let folder = format!("{above}/net/{name}");
        let at = |file: &str| format!("{folder}/{file}");
        let tree = self
            .file(&at("speed"), &mbits.to_string())
            .file(&at("carrier"), "1")
            .file(&at("operstate"), "up")
            .file(&at("mtu"), "1500")
            .file(&at("duplex"), "full")
            .file(&at("type"), "1")
            .file(&at("ifindex"), "2")
            .file(&at("iflink"), "2")
            .file(&at("uevent"), "")
            .link(&format!("/sys/class/net/{name}"), &format!("../../{}", &folder["/sys/".len()..]));
        match device {
            Some(device) => tree.link(&at("device"), device),
            None => tree,
        }
    }

    /// A disk of a function; none (`""`): a virtual one. Its name says of which kind.
    pub fn disk(self, name: &str, address: &str, gib: u64) -> Tree {
        let above = match address {
            "" => "/sys/devices/virtual/block".to_owned(),
            address if name.starts_with("nvme") => format!("{}/nvme/nvme0", self.function(address)),
            address if name.starts_with("vd") => format!("{}/virtio1/block", self.function(address)),
            address => format!("{}/host0/target0:0:0/0:0:0:0/block", self.function(address)),
        };
        self.file(&format!("{above}/{name}/size"), &(gib << 21).to_string())
            .file(&format!("{above}/{name}/queue/rotational"), "0")
            .link(&format!("/sys/block/{name}"), &format!("../{}/{name}", &above["/sys/".len()..]))
    }

    /// A disk at a port of a SATA controller, whose link runs so fast (`6.0 Gbps`); none (`""`): it does not tell.
    pub fn sata(self, name: &str, address: &str, port: u32, speed: &str) -> Tree {
        const GIB: u64 = 1000;
        let above = format!("{}/ata{port}", self.function(address));
        let block = format!("{above}/host{port}/target{port}:0:0/{port}:0:0:0/block");
        let tree = self
            .file(&format!("{block}/{name}/size"), &(GIB << 21).to_string())
            .file(&format!("{block}/{name}/queue/rotational"), "0")
            .link(&format!("/sys/block/{name}"), &format!("../{}/{name}", &block["/sys/".len()..]));
        match speed {
            "" => tree,
            speed => tree.file(&format!("/sys/class/ata_link/link{port}/sata_spd"), speed),
        }
    }

    /// A port of an RDMA device; `state` as in `4: ACTIVE`.
    pub fn rdma(self, device: &str, port: u32, address: &str, rate: &str, state: &str, layer: &str) -> Tree {
        let folder = format!("{}/infiniband/{device}", self.function(address));
        let at = |name: &str| format!("{folder}/ports/{port}/{name}");
        let tree = self.file(&at("rate"), rate).file(&at("state"), state).file(&at("link_layer"), layer);
        let class = format!("/sys/class/infiniband/{device}");
        if tree.system().has(&class) {
            return tree;
        }
        tree.link(&format!("{folder}/device"), "../..").link(&class, &format!("../../{}", &folder["/sys/".len()..]))
    }

    /// An interrupt of a function (or, `""`, of none): where it may go and goes, and how often it came on each CPU of
    /// the host until now. At the earlier look it had not come yet.
    pub fn interrupt(self, number: u32, address: &str, name: &str, allowed: &str, counts: &[u64]) -> Tree {
        const FILE: &str = "/proc/interrupts";
        let cpus = numbers(&self.text("/sys/devices/system/cpu/online"));
        let line = |counts: &[u64]| {
            let counts = (0..cpus.len()).map(|nth| format!(" {:>10}", counts.get(nth).copied().unwrap_or(0)));
            format!("{number:>4}:{}  PCI-MSIX-{address} 0-edge      {name}\n", counts.collect::<String>())
        };
        let with = |before: String, counts: &[u64]| {
            let header: String = cpus.iter().map(|cpu| format!("       CPU{cpu}")).collect();
            let before = if before.is_empty() { format!("     {header}") } else { before };
            format!("{before}\n{}", line(counts))
        };
        let now = with(self.text(FILE), counts);
        let earlier = with(self.text(&format!("{RECORDED}/earlier{FILE}")), &[]);
        let tree = self
            .file(FILE, &now)
            .earlier(FILE, &earlier)
            .file(&format!("/proc/irq/{number}/smp_affinity_list"), allowed)
            .file(&format!("/proc/irq/{number}/effective_affinity_list"), allowed);
        match address {
            "" => tree,
            address => tree.file(&format!("/sys/bus/pci/devices/{address}/msi_irqs/{number}"), "msix"),
        }
    }

    /// A memory module or an empty slot, in the firmware's table (SMBIOS, type 17).
    pub fn module(self, module: MemoryModule) -> Tree {
        const LENGTH: usize = 0x28;
        let mut raw = [0; LENGTH];
        let mut put = |at: usize, word: u16| raw[at..at + 2].copy_from_slice(&word.to_le_bytes());
        let mib = module.bytes >> 20;
        put(0x0a, module.data_bits as u16);
        put(0x0c, if mib >= 0x7fff { 0x7fff } else { mib as u16 });
        put(0x15, module.rated_mts as u16);
        put(0x1c, mib as u16);
        put(0x1e, (mib >> 16) as u16);
        put(0x20, module.configured_mts as u16);
        (raw[0], raw[1], raw[0x10], raw[0x11]) = (17, LENGTH as u8, 1, 2);
        raw[0x12] = match module.kind.as_str() {
            "DDR3" => 0x18,
            "DDR4" => 0x1a,
            "DDR5" => 0x22,
            "non-volatile" => 0x1f,
            _ => 0x02,
        };
        let raw = [&raw[..], module.slot.as_bytes(), &[0], module.bank.as_bytes(), &[0, 0]].concat();
        let entries = self.system().list("/sys/firmware/dmi/entries").known().map_or(0, |entries| entries.len());
        self.bytes(&format!("/sys/firmware/dmi/entries/17-{entries}/raw"), &raw)
    }

    /// What the kernel tells of its network.
    pub fn net(self, net: &Net) -> Tree {
        net.record().into_iter().fold(self, |tree, (path, text)| tree.file(&path, &text))
    }

    /// What the driver of an interface counted: names, at the earlier look, and now.
    pub fn counted(self, name: &str, counters: &[(&str, u64, u64)]) -> Tree {
        let path = format!("{RECORDED}/net/statistics/{name}");
        let lines = |now: bool| {
            let line =
                |&(name, before, after): &(&str, u64, u64)| format!("{name}: {}", if now { after } else { before });
            counters.iter().map(line).collect::<Vec<_>>().join("\n")
        };
        self.earlier(&path, &lines(false)).file(&path, &lines(true))
    }

    /// What is seen of it.
    pub fn system(&self) -> System {
        System::recorded(self.folder.path()).expect("the tree is there")
    }
}

/// Identities of nodes of one cluster, made below a folder.
pub fn identities_of_nodes(folder: &Path, cluster: &str, names: &[&str]) -> Vec<Identity> {
    let place = folder.join(cluster);
    Authority::init(&place, cluster).expect("an authority");
    let mut authority = Authority::open(&place).expect("the authority");
    let of = |name: &&str| {
        let path = place.join(format!("{name}.toml"));
        authority.enrol(name, &path, false).expect("enrolled");
        Identity::load(&path).expect("an identity")
    };
    names.iter().map(of).collect()
}

/// What nodes of one cluster seal with; their identities are made below a folder.
pub fn seals_of_nodes(folder: &Path, cluster: &str, names: &[&str]) -> Vec<Seals> {
    let identities = identities_of_nodes(folder, cluster, names);
    identities.iter().map(|identity| Seals::new(identity, Default::default()).expect("seals")).collect()
}
