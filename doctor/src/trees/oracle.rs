//! hwloc reads the same trees, and this host: what it says of CPUs, cores, sockets, nodes and PCI functions is compared.
//!
//! Where hwloc knows more by its own tables of models, or mends what the kernel said wrongly, the difference is written down here.

use super::{Machine, names_of_archives};
use forebay_host::system::System;
use forebay_host::topology::{Cpu, NodeNumber, Topology, read};
use forebay_tests::harness::{find_tool, skip};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// What both can say, in one form.
#[derive(Debug, Default, PartialEq)]
struct Said {
    cpus: BTreeSet<Cpu>,
    /// CPUs and bytes of memory.
    nodes: BTreeMap<NodeNumber, (BTreeSet<Cpu>, u64)>,
    sockets: BTreeSet<BTreeSet<Cpu>>,
    cores: BTreeSet<BTreeSet<Cpu>>,
    /// The node of each function that is at one; hwloc says for the others that they are at all of them.
    functions: BTreeMap<String, NodeNumber>,
}

impl Said {
    fn by_us(topology: &Topology) -> Said {
        let mut sockets: BTreeMap<u32, BTreeSet<Cpu>> = BTreeMap::new();
        let mut cores: BTreeMap<(u32, Cpu), BTreeSet<Cpu>> = BTreeMap::new();
        for (&cpu, place) in &topology.cpus {
            sockets.entry(place.package).or_default().insert(cpu);
            cores.entry((place.package, place.core)).or_default().insert(cpu);
        }
        let node = |(&number, node): (&NodeNumber, &forebay_host::topology::NumaNode)| {
            (number, (node.cpus.iter().copied().collect(), node.memory_bytes))
        };
        let at = topology.pci.iter().filter_map(|(address, function)| Some((address.clone(), function.node?)));
        Said {
            cpus: topology.cpus.keys().copied().collect(),
            nodes: topology.nodes.iter().map(node).collect(),
            sockets: sockets.into_values().collect(),
            cores: cores.into_values().collect(),
            functions: at.collect(),
        }
    }

    /// From `lstopo --of xml`, which has an element a line.
    fn by_hwloc(xml: &str) -> Said {
        let mut said = Said::default();
        // Nodes of the objects around a line.
        let mut around: Vec<BTreeSet<u32>> = Vec::new();
        for line in xml.lines().map(str::trim) {
            if line == "</object>" {
                around.pop();
                continue;
            }
            let Some(object) = line.strip_prefix("<object ") else { continue };
            let number = || attribute(object, "os_index").and_then(|number| number.parse().ok()).expect("a number");
            let cpus = || bits(attribute(object, "cpuset").expect("CPUs"));
            let nodes = attribute(object, "nodeset").map(bits).or_else(|| around.last().cloned()).unwrap_or_default();
            match attribute(object, "type").expect("a type") {
                "PU" => drop(said.cpus.insert(number())),
                "NUMANode" => {
                    let bytes = attribute(object, "local_memory").map_or(0, |bytes| bytes.parse().expect("bytes"));
                    said.nodes.insert(number(), (cpus(), bytes));
                }
                "Package" => drop(said.sockets.insert(cpus())),
                "Core" => drop(said.cores.insert(cpus())),
                "PCIDev" => {
                    let address = attribute(object, "pci_busid").expect("an address").to_owned();
                    if let (1, Some(&node)) = (nodes.len(), nodes.first()) {
                        said.functions.insert(address, node);
                    }
                }
                _ => {}
            }
            if !object.ends_with("/>") {
                around.push(nodes);
            }
        }
        said
    }

    /// What the two say otherwise, each in a line.
    fn differences(&self, hwloc: &Said) -> Vec<String> {
        let mut lines = Vec::new();
        let mut compare = |what: &str, ours: String, theirs: String| {
            if ours != theirs {
                lines.push(format!("{what}: {ours}, hwloc {theirs}"));
            }
        };
        compare("CPUs", format!("{:?}", self.cpus), format!("{:?}", hwloc.cpus));
        for number in self.nodes.keys().chain(hwloc.nodes.keys()).collect::<BTreeSet<_>>() {
            let (ours, mut theirs) = (self.nodes.get(number).cloned(), hwloc.nodes.get(number).cloned());
            // A node of memory alone has none of its own: hwloc says which are near to it, and each of these is another node's.
            let elsewhere = |cpu| self.nodes.values().any(|node| node.0.contains(cpu));
            if let (Some(ours), Some(theirs)) = (&ours, &mut theirs)
                && ours.0.is_empty()
                && theirs.0.iter().all(elsewhere)
            {
                theirs.0.clear();
            }
            compare(&format!("node {number}"), format!("{ours:?}"), format!("{theirs:?}"));
        }
        // Where the kernel does not know of any, hwloc has none.
        if !hwloc.sockets.is_empty() {
            compare("sockets", format!("{:?}", self.sockets), format!("{:?}", hwloc.sockets));
        }
        if !hwloc.cores.is_empty() {
            compare("cores", format!("{:?}", self.cores), format!("{:?}", hwloc.cores));
        }
        for (address, node) in hwloc.functions.iter().filter(|_| self.nodes.len() > 1) {
            compare(address, format!("{:?}", self.functions.get(address)), format!("{:?}", Some(node)));
        }
        lines
    }
}

/// Of `name="value"` elements.
fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = element
        .split_once(&format!(" {name}=\""))
        .or_else(|| element.strip_prefix(&format!("{name}=\"")).map(|rest| ("", rest)))?;
    rest.split('"').next()
}

/// Of `0x00000001,0xff0000ff`, the lowest 32 last.
fn bits(mask: &str) -> BTreeSet<u32> {
    let word = |(at, word): (usize, &str)| {
        let word = u32::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0);
        (0..32).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 32 * at as u32 + bit)
    };
    mask.rsplit(',').enumerate().flat_map(word).collect()
}

fn lstopo(words: &[&std::ffi::OsStr]) -> Option<String> {
    let Some(tool) = find_tool("lstopo-no-graphics") else {
        skip("hwloc's lstopo-no-graphics is not installed");
        return None;
    };
    let output =
        // By what the kernel shows, as we do, and not by asking the processor itself: a hypervisor may let the two differ.
        Command::new(tool).env("HWLOC_COMPONENTS", "-x86").args(["--whole-io", "--disallowed", "--of", "xml"]).args(words).output().expect("it runs");
    assert!(output.status.success(), "lstopo: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("text"))
}

/// What is said otherwise, by tree and the beginning of a line, and who is right.
const OTHERWISE: &[(&str, &str)] = &[
    // The kernel counts the sockets of each node from 0 (Itanium). Nothing here asks which of a node's two sockets a CPU is in.
    ("16ia64-8n2s", "sockets"),
    // The kernel says -1. hwloc takes groups of four threads for sockets, we take nodes: they are what is near and far.
    ("256ppc-8n8s4t", "sockets"),
    // `numa_node` is -1: the kernel does not know, and the list of near CPUs is that of another machine, from which the disk was put in.
    ("32em64t-2n8c+dax+nvme+mic+dimms", "0000:00:02.0"),
    // Tables that give CPUs to several nodes: hwloc drops nodes, we keep them and tell (`numa-tables`).
    ("8em64t-2s2ca2c-buggynuma", "node"),
    ("fakeheterocpunuma", "node"),
    // Memory of graphics cards, which hwloc leaves out unless it is asked for.
    ("nvidiagpunumanodes", "node 25"),
];

#[test]
fn this_host_is_as_hwloc_says() {
    let Some(xml) = lstopo(&[]) else { return };
    let (ours, theirs) = (Said::by_us(&read(&System::live())), Said::by_hwloc(&xml));
    assert_eq!(ours.differences(&theirs), [""; 0]);
}

#[test]
fn real_machines_are_as_hwloc_says() {
    let Some(names) = names_of_archives() else { return };
    let (mut wrong, mut met) = (Vec::new(), BTreeSet::new());
    for name in names {
        let Some(machine) = Machine::called(&name) else { return };
        let inside = machine.inside();
        let Some(xml) = lstopo(&["--if".as_ref(), "fsroot".as_ref(), "--input".as_ref(), inside.as_os_str()]) else {
            return;
        };
        let (ours, theirs) = (Said::by_us(&machine.look().topology), Said::by_hwloc(&xml));
        for line in ours.differences(&theirs) {
            match OTHERWISE.iter().position(|(tree, begin)| *tree == name && line.starts_with(begin)) {
                Some(known) => drop(met.insert(known)),
                None => wrong.push(format!("{name}: {line}")),
            }
        }
    }
    wrong.extend(
        (0..OTHERWISE.len())
            .filter(|known| !met.contains(known))
            .map(|known| format!("{:?} is no more", OTHERWISE[known])),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
