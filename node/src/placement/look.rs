//! What the plan is made of, as it is on this host: CPUs and memory that the process may use, and the devices that its configuration and
//! its volumes lead to.

use crate::volume_store::Store;
use forebay_api::config::cluster::LinkEnd;
use forebay_api::config::{Config, NbdAddress, TierName};
use forebay_api::placement::{Device, Role};
use forebay_doctor::chain::ends;
use forebay_doctor::chain::ends::{End, Way};
use forebay_host::interfaces::{Addresses, addresses_here};
use forebay_host::system::{Seen, System};
use forebay_host::topology::{NodeNumber, Topology, numbers};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// The folders of NUMA nodes.
const NODES: &str = "/sys/devices/system/node";

/// Whether the kernel shows several NUMA nodes: else there is nothing to look at.
pub fn has_nodes(system: &System) -> Result<bool, String> {
    match system.list(NODES) {
        Seen::Is(names) => {
            let is_node = |name: &&String| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok());
            Ok(names.iter().filter(is_node).count() > 1)
        }
        Seen::Absent => Ok(false),
        Seen::Hidden(why) => Err(format!("the host's NUMA nodes cannot be seen: {why}")),
    }
}

/// Nodes whose memory the process may use.
pub fn memory_nodes(system: &System) -> Vec<NodeNumber> {
    let status = system.text("/proc/self/status").known().unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:")).map(numbers).unwrap_or_default()
}

/// What the daemon will move data through, as far as it can be told before it does.
pub fn devices(system: &System, topology: &Topology, config: &Config, store: &Store) -> Vec<Device> {
    // A machine whose addresses cannot be listed has none that could be found.
    let addresses = addresses_here().unwrap_or_default();
    let links = links(config, &addresses);
    let clients = clients(config, &addresses, topology);
    let mut devices = Vec::new();
    for (role, names) in [(Role::Link, links), (Role::Client, clients)] {
        devices.extend(names.iter().map(|name| interface(system, topology, name, role)));
    }
    let disks: BTreeMap<String, Device> = tiers(config, store)
        .iter()
        .filter_map(|path| disk(system, topology, path))
        .map(|device| (device.name.clone(), device))
        .collect();
    devices.extend(disks.into_values());
    devices
}

fn links(config: &Config, addresses: &Addresses) -> BTreeSet<String> {
    let name = |end: &LinkEnd| match end {
        LinkEnd::Interface(name) => Some(name.clone()),
        LinkEnd::Address(address) => interface_of(address, addresses),
    };
    config.link.iter().filter_map(|link| name(&link.own)).collect()
}

fn interface_of(address: &IpAddr, addresses: &Addresses) -> Option<String> {
    addresses.iter().find(|(_, known)| known == address).map(|(name, _)| name.clone())
}

/// Interfaces that clients may come by: of an address that is none in particular all that carry, the host's own loop apart.
fn clients(config: &Config, addresses: &Addresses, topology: &Topology) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for address in &config.listen.nbd {
        let NbdAddress::Tcp(text) = address else { continue };
        for ip in text.to_socket_addrs().into_iter().flatten().map(|address| address.ip()) {
            if ip.is_unspecified() {
                let carry = topology.nics.iter().filter(|(_, nic)| nic.up && nic.kind == "physical");
                names.extend(carry.map(|(name, _)| name.clone()));
            } else if !ip.is_loopback() {
                names.extend(interface_of(&ip, addresses));
            }
        }
    }
    names
}

/// An interface, or what it is made of: a bond over cards of two nodes is at none.
fn interface(system: &System, topology: &Topology, name: &str, role: Role) -> Device {
    let parts = ends::resolve(system, topology, name, Way::From).unwrap_or_default();
    let nics = || {
        parts.iter().filter_map(|(end, _)| match end {
            End::Nic(name) => topology.nics.get(name),
            End::Ram | End::Rdma(_) | End::Disk(_) => None,
        })
    };
    let node = only(nics().map(|nic| nic.node));
    Device { name: name.to_owned(), role, node, weight: nics().filter_map(|nic| nic.speed_bits).sum() }
}

/// The disk under a path, if it is there: of a tier that is still to be made under the folder that it will be in.
fn disk(system: &System, topology: &Topology, path: &Path) -> Option<Device> {
    let there = path.ancestors().find(|path| path.exists())?;
    let parts = ends::resolve(system, topology, there.to_str()?, Way::To).unwrap_or_default();
    let names: Vec<&str> = parts
        .iter()
        .filter_map(|(end, _)| match end {
            End::Disk(name) => Some(name.as_str()),
            End::Ram | End::Rdma(_) | End::Nic(_) => None,
        })
        .collect();
    let node = only(names.iter().map(|name| topology.disks.get(*name)?.node));
    (!names.is_empty()).then(|| Device { name: names.join("+"), role: Role::Tier, node, weight: 1 })
}

/// Their node, if it is one and the same and known of each.
fn only(mut nodes: impl Iterator<Item = Option<NodeNumber>>) -> Option<NodeNumber> {
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

/// Where the flash tiers of this node lie; where it has no volume yet, where they would.
fn tiers(config: &Config, store: &Store) -> BTreeSet<PathBuf> {
    let recorded = store.names().unwrap_or_default();
    let recorded = recorded.iter().filter_map(|name| store.load(name).ok().flatten()).map(|record| record.tier);
    let mut volumes = false;
    let mut paths = BTreeSet::new();
    for tier in recorded {
        volumes = true;
        if tier.kind == TierName::Flash {
            paths.insert(tier.path);
        }
    }
    for spec in &config.volume {
        volumes = true;
        if spec.tier.unwrap_or_default() == TierName::Flash {
            paths.insert(spec.tier_path.clone().unwrap_or_else(|| store.tier_path(&spec.name)));
        }
    }
    if !volumes || config.cluster.is_some() {
        paths.insert(store.dir().to_owned());
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_host::fixture::Tree;
    use forebay_host::topology::read;

    const NIC: &str = "0000:82:00.0";

    fn host() -> Tree {
        Tree::new()
            .node(0, "0-3", 4)
            .node(1, "4-7", 4)
            .pci("0000:00:02.0", 0x020000, 0)
            .nic("eno1", "0000:00:02.0", 1000)
            .pci(NIC, 0x020000, 1)
            .nic("ens1", NIC, 25_000)
            .pci("0000:83:00.0", 0x010802, 1)
            .disk("nvme0n1", "0000:83:00.0", 100)
    }

    fn config(text: &str) -> Config {
        Config::parse(text).expect("it is valid")
    }

    fn here() -> Addresses {
        [("lo", "127.0.0.1"), ("eno1", "192.0.2.1"), ("ens1", "198.51.100.1")]
            .map(|(name, address)| (name.to_owned(), address.parse().expect("an address")))
            .to_vec()
    }

    #[test]
    fn several_nodes_are_told_from_one_from_none_and_from_what_cannot_be_seen() {
        assert_eq!(has_nodes(&host().system()), Ok(true));
        assert_eq!(has_nodes(&Tree::new().node(0, "0-3", 4).system()), Ok(false));
        assert_eq!(has_nodes(&Tree::new().system()), Ok(false));
        assert_eq!(memory_nodes(&host().system()), [0u32; 0]);
        let status = "Name:\tforebay\nMems_allowed:\t3\nMems_allowed_list:\t0-1\n";
        assert_eq!(memory_nodes(&host().file("/proc/self/status", status).system()), [0, 1]);
    }

    #[test]
    fn clients_come_by_the_interface_of_the_address_by_all_or_by_none() {
        let topology = read(&host().system());
        let of = |nbd: &str| {
            let names = clients(&config(&format!("[listen]\nnbd = [{nbd}]\n")), &here(), &topology);
            names.into_iter().collect::<Vec<String>>().join(" ")
        };
        assert_eq!(of("\"tcp:198.51.100.1:10809\""), "ens1");
        assert_eq!(of("\"tcp:0.0.0.0:10809\", \"unix:/run/x\""), "eno1 ens1");
        assert_eq!(of("\"tcp:127.0.0.1:10809\", \"unix:/run/x\""), "");
        assert_eq!(of("\"tcp:203.0.113.9:10809\""), "");
        assert_eq!(of(""), "");
    }

    #[test]
    fn an_interface_that_is_made_of_others_is_where_all_of_them_are() {
        let tree = host()
            .nic("bond0", "", 26_000)
            .link("/sys/class/net/bond0/lower_ens1", "../../ens1")
            .file("/sys/class/net/bond0/bonding/mode", "802.3ad 4");
        let of = |tree: &Tree, name: &str| {
            let system = tree.system();
            interface(&system, &read(&system), name, Role::Client)
        };
        assert_eq!((of(&tree, "bond0").node, of(&tree, "bond0").weight), (Some(1), 25_000_000_000));
        let both = tree.link("/sys/class/net/bond0/lower_eno1", "../../eno1");
        assert_eq!((of(&both, "bond0").node, of(&both, "bond0").weight), (None, 26_000_000_000));
        assert_eq!((of(&both, "eno1").node, of(&both, "tun7").node), (Some(0), None));
    }

    #[test]
    fn flash_tiers_are_looked_for_where_they_lie_and_memory_tiers_nowhere() {
        let state = tempfile::tempdir().expect("a folder");
        let store = Store::open(state.path()).expect("a new one");
        let of = |text: &str| tiers(&config(text), &store).into_iter().collect::<Vec<PathBuf>>();
        let own = state.path().to_owned();
        assert_eq!(of(""), [store.dir()]);
        let volume = "[[volume]]\nname = \"vm1\"\nbacking = \"/x.img\"\n";
        assert_eq!(of(volume), [own.join("tiers/vm1.tier")]);
        assert_eq!(of(&format!("{volume}tier_path = \"/dev/nvme0n1\"\n")), [Path::new("/dev/nvme0n1")]);
        assert_eq!(of(&format!("{volume}tier = \"memory\"\nvolatile = true\n")), [""; 0].map(PathBuf::from));
    }
}
