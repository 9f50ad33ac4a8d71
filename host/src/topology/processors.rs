//! CPUs, NUMA nodes, and what kind of machine it is.

use super::super::system::System;
use super::{Cpu, CpuPlace, NodeNumber, NumaNode, bits, list_of, list_or_mask};
use std::collections::BTreeMap;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

/// The numbers in names such as `node3`.
fn numbered(system: &System, folder: &str, prefix: &str) -> Vec<u32> {
    let names = system.list(folder).known().unwrap_or_default();
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// CPUs that are online. Where sysfs has no list of them (old kernels), those that `/proc/cpuinfo` lists, or that have a folder, but for
/// those whose own file says that they are not.
fn online(system: &System) -> Vec<Cpu> {
    if let Some(online) = list_of(system, &format!("{CPUS}/online")).known() {
        return online;
    }
    let listed = |line: &str| line.strip_prefix("processor")?.trim_start().strip_prefix(':')?.trim().parse().ok();
    let text = system.text("/proc/cpuinfo").known().unwrap_or_default();
    let listed: Vec<Cpu> = text.lines().filter_map(listed).collect();
    let mut all = if listed.is_empty() { numbered(system, CPUS, "cpu") } else { listed };
    all.retain(|cpu| system.number(&format!("{CPUS}/cpu{cpu}/online")).known() != Some(0));
    all
}

/// The nodes that are online; one where the kernel knows of none.
pub fn nodes(system: &System) -> BTreeMap<NodeNumber, NumaNode> {
    let online_cpus = online(system);
    // The folders, not the file `online`: a node that went away takes its folder along, and old kernels have no such file.
    let numbers = numbered(system, NODES, "node");
    if numbers.is_empty() {
        let memory_bytes =
            system.text("/proc/meminfo").known().and_then(|text| kib_of(&text, "MemTotal:")).unwrap_or(0);
        return BTreeMap::from([(0, NumaNode { cpus: online_cpus, memory_bytes, distances: BTreeMap::new() })]);
    }
    let node = |&number: &NodeNumber| {
        let folder = format!("{NODES}/node{number}");
        let mut cpus =
            list_or_mask(system, &format!("{folder}/cpulist"), &format!("{folder}/cpumap")).unwrap_or_default();
        cpus.retain(|cpu| online_cpus.contains(cpu));
        let meminfo = system.text(&format!("{folder}/meminfo")).known().unwrap_or_default();
        // One number for each node that is online, in the nodes' order.
        let distances = system.text(&format!("{folder}/distance")).known().unwrap_or_default();
        let distances: Vec<u32> = distances.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let distances = if distances.len() == numbers.len() {
            numbers.iter().copied().zip(distances).collect()
        } else {
            BTreeMap::new()
        };
        (number, NumaNode { cpus, memory_bytes: kib_of(&meminfo, "MemTotal:").unwrap_or(0), distances })
    };
    numbers.iter().map(node).collect()
}

/// Bytes of a line such as `Node 0 MemTotal:  16384 kB`.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    let after = text.lines().find_map(|line| line.split_once(name))?.1;
    Some(after.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// The CPUs that are online, each with its place.
pub fn cpus(system: &System, nodes: &BTreeMap<NodeNumber, NumaNode>) -> BTreeMap<Cpu, CpuPlace> {
    let place = |cpu: Cpu| {
        let folder = format!("{CPUS}/cpu{cpu}");
        let siblings = ["core_cpus_list", "thread_siblings_list"]
            .into_iter()
            .find_map(|name| list_of(system, &format!("{folder}/topology/{name}")).known())
            .or_else(|| Some(bits(&system.text(&format!("{folder}/topology/thread_siblings")).known()?)));
        let (shares_cache, cache_bytes) = last_cache(system, &folder);
        // Where tables of broken firmware give a CPU to several nodes, the first has it, as with the kernel.
        let node = nodes.iter().find(|(_, node)| node.cpus.contains(&cpu)).map_or(0, |(&number, _)| number);
        CpuPlace {
            node,
            // -1 where the kernel does not know, on some ARM and POWER machines: there nodes are what is near and far.
            package: system.number(&format!("{folder}/topology/physical_package_id")).known().unwrap_or(node),
            core: siblings.unwrap_or_default().into_iter().min().unwrap_or(cpu),
            shares_cache: if shares_cache.is_empty() { vec![cpu] } else { shares_cache },
            cache_bytes,
        }
    };
    online(system).into_iter().map(|cpu| (cpu, place(cpu))).collect()
}

/// The CPUs that share the highest cache for data of a CPU, and its size.
fn last_cache(system: &System, folder: &str) -> (Vec<Cpu>, u64) {
    let level = |index: &u32| {
        let cache = format!("{folder}/cache/index{index}");
        let level: u32 = system.number(&format!("{cache}/level")).known()?;
        let kind = system.text(&format!("{cache}/type")).known().unwrap_or_default();
        (kind != "Instruction").then_some((level, cache))
    };
    let indexes = numbered(system, &format!("{folder}/cache"), "index");
    let Some((_, cache)) = indexes.iter().filter_map(level).max_by_key(|(level, _)| *level) else {
        return (Vec::new(), 0);
    };
    let shared = list_or_mask(system, &format!("{cache}/shared_cpu_list"), &format!("{cache}/shared_cpu_map"));
    let size = system.text(&format!("{cache}/size")).known().and_then(|text| {
        let (digits, shift) = match text.strip_suffix('K') {
            Some(digits) => (digits, 10),
            None => (text.strip_suffix('M')?, 20),
        };
        Some(digits.parse::<u64>().ok()? << shift)
    });
    (shared.unwrap_or_default(), size.unwrap_or(0))
}

/// What `/proc/cpuinfo` says of the first CPU.
pub struct Processor {
    /// Name of the CPU's model.
    pub model: String,
    /// Whether it is an x86 processor, which says when it is virtual; and whether it says so.
    virtual_x86: Option<bool>,
}

/// The processor, by its own words.
pub fn description(system: &System) -> Processor {
    let text = system.text("/proc/cpuinfo").known().unwrap_or_default();
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    Processor {
        // x86 and s390, then POWER, old ARM, MIPS.
        model: ["model name", "cpu", "Processor", "cpu model"].into_iter().find_map(value).unwrap_or_default(),
        virtual_x86: value("flags").map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
    }
}

/// What a hypervisor is called whose name cannot be told.
const UNNAMED: &str = "unknown";

/// A hypervisor's name behind what says that there is one: nothing where it has none.
pub fn in_brackets(hypervisor: &str) -> String {
    if hypervisor == UNNAMED { String::new() } else { format!(" ({hypervisor})") }
}

/// The hypervisor below, where there is one. A processor of x86 decides it: clouds give out whole machines
/// ("metal") whose firmware has the same names in it as their virtual ones.
pub fn hypervisor(system: &System, processor: &Processor) -> Option<String> {
    // The first domain of Xen sees the hardware as it is.
    if system.text("/proc/xen/capabilities").known().is_some_and(|text| text.contains("control_d")) {
        return None;
    }
    let of_kernel = system.text("/sys/hypervisor/type").known().filter(|kind| !kind.is_empty());
    match processor.virtual_x86 {
        Some(true) => of_kernel.or_else(|| of_firmware(system)).or_else(|| Some(UNNAMED.to_owned())),
        Some(false) => of_kernel,
        None => of_kernel.or_else(|| of_firmware(system)),
    }
}

/// By the names that hypervisors write into the firmware's tables.
fn of_firmware(system: &System) -> Option<String> {
    const NAMES: [(&str, &str); 9] = [
        ("VMware", "VMware"),
        ("VirtualBox", "VirtualBox"),
        ("Parallels", "Parallels"),
        ("Microsoft Corporation Virtual", "Hyper-V"),
        ("Google Compute Engine", "KVM"),
        ("Amazon EC2", "KVM"),
        ("KVM", "KVM"),
        ("QEMU", "QEMU"),
        ("Xen", "Xen"),
    ];
    let words = ["sys_vendor", "product_name"]
        .map(|field| system.text(&format!("/sys/class/dmi/id/{field}")).known().unwrap_or_default())
        .join(" ");
    let named = NAMES.into_iter().find(|(word, _)| words.contains(word) && !words.contains("metal"));
    let tree = || system.text("/sys/firmware/devicetree/base/hypervisor/compatible").known();
    named.map(|(_, name)| name.to_owned()).or_else(|| Some(tree()?.trim_matches('\0').to_owned()))
}

/// Release of the kernel that runs, or ran when the host was recorded.
pub fn kernel(system: &System) -> String {
    system
        .text("/proc/sys/kernel/osrelease")
        .known()
        .or_else(|| {
            let version = system.text("/proc/version").known()?;
            version.split_whitespace().nth(2).map(str::to_owned)
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::{Seen, read};
    use crate::fixture::Tree;

    #[test]
    fn hosts_without_numa_have_one_node_with_all_cpus_and_all_memory() {
        let tree = Tree::new()
            .file("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Old\n\nprocessor\t: 1\n")
            .file("/proc/meminfo", "MemTotal:        2048 kB\n");
        let topology = read(&tree.system());
        assert_eq!(topology.nodes[&0].cpus, [0, 1]);
        assert_eq!(topology.nodes[&0].memory_bytes, 2 << 20);
        assert_eq!((topology.cpus[&1].node, topology.cpus[&1].core), (0, 1));
        assert_eq!(topology.cpu_model, "Old");
    }

    #[test]
    fn hardware_threads_share_a_core_and_masks_of_old_kernels_are_read() {
        let tree = Tree::new()
            .node(0, "0-3", 4)
            .file("/sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "0,2")
            .file("/sys/devices/system/cpu/cpu2/topology/core_cpus_list", "0,2");
        let topology = read(&tree.system());
        assert_eq!((topology.cpus[&2].core, topology.cpus[&3].core), (0, 3));
        assert_eq!(topology.cpus[&3].shares_cache, [0, 1, 2, 3]);
        let tree = Tree::new()
            .file("/sys/devices/system/cpu/online", "0-1")
            .file("/sys/devices/system/cpu/cpu1/topology/thread_siblings", "00000003")
            .file("/sys/devices/system/node/node4/cpumap", "00000000,00000003");
        let topology = read(&tree.system());
        assert_eq!((topology.cpus[&1].core, topology.cpus[&1].node), (0, 4));
    }

    #[test]
    fn lists_that_end_with_a_zero_are_read_to_their_end() {
        let tree = Tree::new()
            .file("/sys/devices/system/cpu/online", "0-3\n")
            .file("/sys/devices/system/node/node0/cpulist", "0-1\n\0")
            .file("/sys/devices/system/node/node1/cpulist", "2-3\n\0");
        let topology = read(&tree.system());
        assert_eq!((&topology.nodes[&0].cpus[..], &topology.nodes[&1].cpus[..]), (&[0, 1][..], &[2, 3][..]));
    }

    #[test]
    fn a_cpu_whose_own_file_says_that_it_is_off_is_no_part_of_the_host() {
        let tree = Tree::new()
            .file("/proc/cpuinfo", "processor\t: 0\nprocessor\t: 1\nprocessor\t: 2\n")
            .file("/sys/devices/system/cpu/cpu1/online", "1\n")
            .file("/sys/devices/system/cpu/cpu2/online", "0\n");
        assert_eq!(read(&tree.system()).cpus.keys().collect::<Vec<_>>(), [&0, &1]);
    }

    #[test]
    fn distances_of_sparse_nodes_belong_to_the_nodes_that_are_there() {
        let topology = read(&Tree::new().node(0, "0-1", 1).node(33, "2-3", 1).system());
        assert_eq!(topology.nodes[&0].distances, [(0, 10), (33, 21)].into());
        assert_eq!(topology.nodes[&33].distances, [(0, 21), (33, 10)].into());
    }

    #[test]
    fn a_processor_says_that_it_is_virtual_and_metal_of_a_cloud_is_not() {
        let cloud = || Tree::new().file("/sys/class/dmi/id/sys_vendor", "Amazon EC2");
        let of = |tree: Tree| read(&tree.system()).hypervisor;
        assert_eq!(of(cloud().file("/proc/cpuinfo", "flags\t: fpu hypervisor sse\n")), Some("KVM".to_owned()));
        assert_eq!(of(cloud().file("/proc/cpuinfo", "flags\t: fpu sse\n")), None);
        assert_eq!(of(Tree::new().file("/proc/cpuinfo", "flags\t: hypervisor\n")), Some("unknown".to_owned()));
        assert_eq!(["KVM", "unknown"].map(super::in_brackets), [" (KVM)", ""]);
        assert_eq!(of(Tree::new().file("/sys/class/dmi/id/sys_vendor", "QEMU")), Some("QEMU".to_owned()));
        assert_eq!(of(Tree::new()), None);
    }

    #[test]
    fn what_is_hidden_of_the_processor_is_empty_and_not_a_guess() {
        let tree = Tree::new().hidden("/proc/cpuinfo").hidden("/proc/sys/kernel/osrelease");
        assert!(matches!(tree.system().text("/proc/cpuinfo"), Seen::Hidden(_)));
        let topology = read(&tree.system());
        assert_eq!((topology.cpu_model.as_str(), topology.kernel.as_str(), topology.hypervisor), ("", "", None));
    }
}
