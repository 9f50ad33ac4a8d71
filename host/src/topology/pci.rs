//! PCI functions: where each sits, its end of the link, and what its PCIe capability says.

use super::super::system::{Seen, System};
use super::locality::Locality;
use super::{LinkEnd, NodeNumber, Nodes, NumaNode, Payload, PciDevice, is_address, list_or_mask, only};
use std::collections::BTreeMap;

const FOLDER: &str = "/sys/bus/pci/devices";

/// All of them. Where the host has one node alone, it is everything's.
pub fn read(system: &System, locality: &Locality, nodes: &Nodes) -> BTreeMap<String, PciDevice> {
    let addresses = system.list(FOLDER).known().unwrap_or_default();
    let slots = slots(system);
    addresses
        .into_iter()
        .filter(|name| is_address(name))
        .map(|address| {
            let mut device = function(system, &address, locality, nodes);
            device.slot = address.split_once('.').and_then(|(card, _)| slots.get(card)).cloned();
            (address, device)
        })
        .collect()
}

/// Names of the slots, by the address of the card that sits there, without a function's number: `0000:82:00`.
fn slots(system: &System) -> BTreeMap<String, String> {
    const SLOTS: &str = "/sys/bus/pci/slots";
    let names = system.list(SLOTS).known().unwrap_or_default();
    let of = |name: String| Some((system.text(&format!("{SLOTS}/{name}/address")).known()?, name));
    names.into_iter().filter_map(of).collect()
}

fn function(system: &System, address: &str, locality: &Locality, nodes: &Nodes) -> PciDevice {
    let folder = format!("{FOLDER}/{address}");
    let hex = |name: &str| {
        let text = system.text(&format!("{folder}/{name}")).known()?;
        u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
    };
    let real = system.real(&folder).known().unwrap_or_default();
    let capability = capability(system, &format!("{folder}/config"));
    let (capability, config_hidden) = match capability {
        Seen::Is(capability) => (Some(capability), None),
        Seen::Absent => (None, None),
        Seen::Hidden(why) => (None, Some(why)),
    };
    PciDevice {
        class: hex("class").unwrap_or(0),
        vendor: hex("vendor").and_then(|id| id.try_into().ok()).unwrap_or(0),
        device: hex("device").and_then(|id| id.try_into().ok()).unwrap_or(0),
        node: locality.of_path(&folder).or_else(|| node_of(system, &folder, nodes)).or(only(nodes)),
        // A host bridge may itself sit at a function (Intel's VMD): then the tree above it is another one.
        parent: real.rsplit('/').nth(1).filter(|part| is_address(part)).map(str::to_owned),
        link: link(system, &folder),
        port_type: capability.map(|(port_type, _)| port_type),
        payload: capability.map(|(_, payload)| payload),
        config_hidden,
        driver: base(system, &format!("{folder}/driver")),
        slot: None,
        label: system.text(&format!("{folder}/label")).known().filter(|label| !label.is_empty()),
    }
}

/// A device's node; -1 says that the kernel does not know. Without that file (old kernels, and trees that were gathered without it) it is
/// the only node that has all of the CPUs that the device is said to be near.
pub fn node_of(system: &System, folder: &str, nodes: &Nodes) -> Option<NodeNumber> {
    match system.number::<i64>(&format!("{folder}/numa_node")) {
        Seen::Is(number) => return number.try_into().ok(),
        Seen::Hidden(_) => return None,
        Seen::Absent => {}
    }
    let near = list_or_mask(system, &format!("{folder}/local_cpulist"), &format!("{folder}/local_cpus"))?;
    let has_all = |node: &NumaNode| !near.is_empty() && near.iter().all(|cpu| node.cpus.contains(cpu));
    let mut having = nodes.iter().filter(|(_, node)| has_all(node)).map(|(&number, _)| number);
    // Tables of broken firmware give CPUs to several: then nobody knows.
    having.next().filter(|_| having.next().is_none())
}

/// Name of what a link leads to.
pub fn base(system: &System, link: &str) -> Option<String> {
    if !system.has(link) {
        return None;
    }
    Some(system.real(link).known()?.rsplit('/').next()?.to_owned())
}

fn link(system: &System, folder: &str) -> Option<LinkEnd> {
    // `8.0 GT/s PCIe`, `8 GT/s`; `Unknown` while nothing is plugged in.
    let speed = |name: &str| {
        let text = system.text(&format!("{folder}/{name}")).known()?;
        text.strip_suffix(" PCIe").unwrap_or(&text).strip_suffix(" GT/s")?.parse::<f64>().ok()
    };
    // 0 while the link is down; 255 where the kernel does not know.
    let width =
        |name: &str| system.number::<u32>(&format!("{folder}/{name}")).known().filter(|width| (1..=32).contains(width));
    Some(LinkEnd {
        speed_gts: speed("current_link_speed")?,
        width: width("current_link_width")?,
        speed_max_gts: speed("max_link_speed").unwrap_or(0.0),
        width_max: width("max_link_width").unwrap_or(0),
    })
}

/// Of the PCIe capability (PCI Express Base Specification, 7.5.3): the port's type, and its sizes.
fn capability(system: &System, path: &str) -> Seen<(u8, Payload)> {
    // What everybody may read of a function, root apart: the header, without the list of capabilities that it points to.
    const HEADER: usize = 64;
    const STATUS_HAS_LIST: u8 = 1 << 4;
    const PCIE: u8 = 0x10;
    let config = match system.bytes(path) {
        Seen::Is(config) => config,
        Seen::Absent => return Seen::Absent,
        Seen::Hidden(why) => return Seen::Hidden(why),
    };
    let byte = |at: usize| config.get(at).copied();
    if byte(0x06).unwrap_or(0) & STATUS_HAS_LIST == 0 {
        return Seen::Absent;
    }
    let mut at = usize::from(byte(0x34).unwrap_or(0) & !3);
    // As many as fit; a broken list may be a circle.
    for _ in 0..48 {
        if at < HEADER {
            return Seen::Absent;
        }
        let (Some(id), Some(next)) = (byte(at), byte(at + 1)) else { break };
        if id == PCIE {
            let word = |at| Some(u16::from_le_bytes([byte(at)?, byte(at + 1)?]));
            let (Some(flags), Some(device), Some(control)) = (word(at + 2), word(at + 4), word(at + 8)) else { break };
            // Three bits say 128, 256 ... 4096 bytes.
            let size = |bits: u16| 128 << (bits & 7).min(5);
            let payload =
                Payload { set: size(control >> 5), supported: size(device), read_request: size(control >> 12) };
            return Seen::Is(((flags >> 4 & 0xf) as u8, payload));
        }
        at = usize::from(next & !3);
    }
    if config.len() <= HEADER {
        return Seen::Hidden(format!("{path}: only its first {} bytes can be read", config.len()));
    }
    Seen::Absent
}

#[cfg(test)]
mod tests {
    use super::super::{LinkEnd, Payload, read};
    use crate::fixture::Tree;

    #[test]
    fn both_ends_of_a_link_and_the_way_up_to_the_root_port_are_seen() {
        let tree = Tree::new()
            .node(0, "0", 1)
            .node(1, "1", 1)
            .pci("0000:80:02.0", 0x060400, 1)
            .pci("0000:80:02.0/0000:82:00.0", 0x020000, 1)
            .pci_link("0000:80:02.0", (8.0, 4), (16.0, 16))
            .pci_link("0000:82:00.0", (8.0, 4), (8.0, 8));
        let topology = read(&tree.system());
        let chain: Vec<&str> = topology.up_from("0000:82:00.0").into_iter().map(|(address, _)| address).collect();
        assert_eq!(chain, ["0000:82:00.0", "0000:80:02.0"]);
        let end = LinkEnd { speed_gts: 8.0, width: 4, speed_max_gts: 8.0, width_max: 8 };
        assert_eq!(topology.pci["0000:82:00.0"].link, Some(end));
        assert_eq!(topology.pci["0000:80:02.0"].link.map(|end| end.width_max), Some(16));
        assert_eq!((topology.pci["0000:82:00.0"].node, topology.pci["0000:82:00.0"].class), (Some(1), 0x020000));
    }

    #[test]
    fn a_card_has_the_name_of_its_slot_and_what_the_firmware_calls_it() {
        let tree = Tree::new()
            .pci("0000:82:00.0", 0x020000, -1)
            .pci("0000:82:00.1", 0x020000, -1)
            .pci("0000:83:00.0", 0x020000, -1)
            .pci("0000:84:00.0", 0x020000, -1)
            .file("/sys/bus/pci/slots/4/address", "0000:82:00\n")
            .hidden("/sys/bus/pci/slots/5/address")
            .file("/sys/bus/pci/devices/0000:83:00.0/label", "Onboard LAN 1\n")
            .hidden("/sys/bus/pci/devices/0000:84:00.0/label");
        let pci = read(&tree.system()).pci;
        let named = |address: &str| (pci[address].slot.as_deref(), pci[address].label.as_deref());
        assert_eq!((named("0000:82:00.0"), named("0000:82:00.1")), ((Some("4"), None), (Some("4"), None)));
        assert_eq!((named("0000:83:00.0"), named("0000:84:00.0")), ((None, Some("Onboard LAN 1")), (None, None)));
    }

    #[test]
    fn links_without_anything_plugged_in_or_without_a_known_speed_are_none() {
        let none = |speed: &str, width: &str| {
            let tree = Tree::new().pci("0000:00:01.0", 0x060400, -1);
            let at = |name: &str| format!("/sys/bus/pci/devices/0000:00:01.0/{name}");
            let tree = tree.file(&at("current_link_speed"), speed).file(&at("current_link_width"), width);
            read(&tree.system()).pci["0000:00:01.0"].link
        };
        assert_eq!(none("Unknown", "0"), None);
        assert_eq!(none("Unknown speed", "8"), None);
        assert_eq!(none("2.5 GT/s PCIe", "0"), None);
        assert_eq!(none("2.5 GT/s PCIe", "255"), None);
        let end = LinkEnd { speed_gts: 2.5, width: 1, speed_max_gts: 0.0, width_max: 0 };
        assert_eq!(none("2.5 GT/s", "1"), Some(end));
    }

    #[test]
    fn payload_and_kind_of_port_come_of_the_capability_and_need_more_than_the_header() {
        let payload = Payload { set: 128, supported: 512, read_request: 4096 };
        let tree = || Tree::new().pci("0000:00:01.0", 0x020000, -1).pci_config("0000:00:01.0", 4, payload);
        let device = read(&tree().system()).pci["0000:00:01.0"].clone();
        assert_eq!((device.port_type, device.payload, device.config_hidden), (Some(4), Some(payload), None));

        let tree = tree().cut("/sys/bus/pci/devices/0000:00:01.0/config", 64);
        let device = read(&tree.system()).pci["0000:00:01.0"].clone();
        assert_eq!((device.port_type, device.payload), (None, None));
        let why = device.config_hidden.expect("it says why");
        assert!(why.starts_with("/sys/bus/pci/devices/0000:00:01.0/config: only its first 64 bytes"), "{why}");

        // A function of conventional PCI has no capabilities: nothing is hidden of it.
        let tree = Tree::new().pci("0000:00:01.0", 0x030000, -1);
        let tree = tree.bytes("/sys/bus/pci/devices/0000:00:01.0/config", &[0; 64]);
        assert_eq!(read(&tree.system()).pci["0000:00:01.0"].config_hidden, None);
        let tree = Tree::new().pci("0000:00:01.0", 0, -1).hidden("/sys/bus/pci/devices/0000:00:01.0/config");
        assert!(read(&tree.system()).pci["0000:00:01.0"].config_hidden.is_some());
    }

    #[test]
    fn a_list_of_capabilities_that_is_a_circle_ends() {
        let mut config = [0; 256];
        (config[0x06], config[0x34], config[0x40], config[0x41]) = (0x10, 0x40, 0x05, 0x40);
        let tree = Tree::new().pci("0000:00:01.0", 0, -1);
        let tree = tree.bytes("/sys/bus/pci/devices/0000:00:01.0/config", &config);
        assert_eq!(read(&tree.system()).pci["0000:00:01.0"].port_type, None);
    }

    #[test]
    fn a_function_without_a_number_of_its_node_is_where_all_of_its_near_cpus_are() {
        let at = |near: &str| {
            let folder = "/sys/bus/pci/devices/0000:01:00.0";
            let tree = Tree::new().node(0, "0-3", 1).node(1, "4-7", 1).file(&format!("{folder}/class"), "0x020000");
            let tree = if near.is_empty() { tree } else { tree.file(&format!("{folder}/local_cpus"), near) };
            super::super::read(&tree.system()).pci["0000:01:00.0"].node
        };
        assert_eq!((at("000000f0"), at("00000030"), at("0000000f")), (Some(1), Some(1), Some(0)));
        assert_eq!((at("000000ff"), at("00000000"), at("")), (None, None, None));
    }

    #[test]
    fn minus_one_is_no_node_unless_the_host_has_one_only() {
        let tree = || Tree::new().node(0, "0", 1).pci("0000:00:01.0", 0x020000, -1);
        assert_eq!(read(&tree().system()).pci["0000:00:01.0"].node, Some(0));
        assert_eq!(read(&tree().node(1, "1", 1).system()).pci["0000:00:01.0"].node, None);
    }
}
