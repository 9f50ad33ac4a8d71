//! Real machines' trees, as hwloc's tests have them: they lie beside the project, where they do, and are read in place, never
//! committed. What is said of each is laid down here, so that a new check that finds something on one of them has to be defended here.

mod oracle;

use super::Host;
use super::findings::{Evidence, Finding, Sentence, Verdict};
use super::fixture::assert_no_contradictions;
use forebay_api::config::placement::Wish;
use forebay_api::placement::{Device, Role};
use forebay_host::placement::{Facts, Plan, plan};
use forebay_host::system::System;
use forebay_host::topology::{NodeNumber, Topology, locality};
use forebay_tests::harness::skip;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the archives are, seen from this package.
fn archives() -> Option<PathBuf> {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().skip(1);
    above.map(|folder| folder.join("shared/hwloc")).find(|folder| folder.is_dir())
}

/// Their names. None, said aloud: they are not here.
fn names_of_archives() -> Option<Vec<String>> {
    let Some(folder) = archives() else {
        skip("the trees of hwloc's tests are not beside the project (shared/hwloc)");
        return None;
    };
    let names = std::fs::read_dir(&folder).expect("readable").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> =
        names.filter_map(|name| Some(name.to_str()?.strip_suffix(".tar.bz2")?.to_owned())).collect();
    names.sort();
    Some(names)
}

/// A machine's tree, unpacked.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// By the archive's name. None, said aloud: the archives or the tools are not here.
    fn called(name: &str) -> Option<Machine> {
        let Some(archives) = archives() else {
            skip("the trees of hwloc's tests are not beside the project (shared/hwloc)");
            return None;
        };
        // In memory where there is some: ext4 takes its time for thousands of files that follow others just deleted.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        let archive = archives.join(format!("{name}.tar.bz2"));
        let unpacked = Command::new("tar").arg("-xjf").arg(&archive).arg("-C").arg(folder.path()).output();
        match unpacked {
            // Archives of root have owners that nobody else can give away; the files are there.
            Ok(output) if output.status.success() => Some(Machine { folder }),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                skip(&format!("tar cannot unpack {} (is bzip2 installed?): {why}", archive.display()));
                None
            }
            Err(e) => {
                skip(&format!("tar does not run: {e}"));
                None
            }
        }
    }

    fn inside(&self) -> PathBuf {
        let inside = std::fs::read_dir(self.folder.path()).expect("unpacked").next().expect("one folder");
        inside.expect("an entry").path()
    }

    fn look(&self) -> Host {
        Host::look(System::recorded(&self.inside()).expect("it is there"))
    }
}

fn verdict(host: &Host, number: u8) -> Verdict {
    let all = host.examine();
    all.into_iter()
        .find(|(check, _)| check.number == number)
        .map(|(_, verdict)| verdict)
        .expect("there is such a check")
}

fn finding(host: &Host, number: u8) -> Finding {
    match verdict(host, number) {
        Verdict::Found(found) | Verdict::FoundPart { found, .. } => found.into_iter().next().expect("never empty"),
        other => panic!("check {number}: {other:?}"),
    }
}

fn with<'a>(sentence: &'a Sentence, name: &str) -> &'a str {
    sentence.with.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
}

/// What is found on each machine, over all checks. Of those that are not named, nothing.
///
/// Why each of these holds:
/// - `numa-apart/...`: the files `numa_node` of the disk's controller and of the InfiniBand adapter differ.
/// - `pcie-slot/...`: five cards of x16 behind a switch that has x16 itself; it is a note, because they may not work at once.
/// - `node-unknown/pci`: the adapters' `numa_node` is -1 on a machine of four nodes.
/// - `memory-modules/nodes`: `MemTotal` is 8 GB in one node and 16 GB in another.
/// - `numa-tables/distance`: all distances are 10 with eight nodes; CPUs belong to several nodes.
const FOUND: &[(&str, &[&str])] = &[
    ("32em64t-2n8c+dax+nvme+mic+dimms", &["numa-apart/sda"]),
    ("32intel64-2p8co2t+8ve", &["pcie-slot/0000:18:00.0", "pcie-slot/0000:3b:00.0"]),
    ("40intel64-2g2n4c+pcilocality", &["node-unknown/pci"]),
    ("48amd64-4pa2n6c-sparse", &["memory-modules/nodes"]),
    ("8em64t-2s2ca2c-buggynuma", &["numa-tables/distance"]),
    ("fakeheterocpunuma", &["numa-tables/distance"]),
    ("fakepcilocalities", &["numa-apart/sda"]),
];

#[test]
fn nothing_is_found_on_real_machines_that_their_owner_would_deny() {
    let Some(names) = names_of_archives() else { return };
    let expected: BTreeMap<&str, &[&str]> = FOUND.iter().copied().collect();
    let mut wrong = Vec::new();
    for name in names {
        let Some(machine) = Machine::called(&name) else { return };
        let host = machine.look();
        assert_plans_hold(&name, &host.topology);
        let verdicts: Vec<Verdict> = host.examine().into_iter().map(|(_, verdict)| verdict).collect();
        assert_no_contradictions(verdicts.clone());
        let found: Vec<Finding> = verdicts.into_iter().flat_map(Verdict::into_found).collect();
        assert!(found.iter().all(|finding| !finding.evidence.is_empty()), "{name}: each finding has its evidence");
        let ids: Vec<&str> = found.iter().map(|finding| finding.id.as_str()).collect();
        if ids != expected.get(name.as_str()).copied().unwrap_or_default() {
            wrong.push(format!("{name}: {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn infiniband_and_disk_of_a_real_machine_are_on_different_sockets_and_its_memory_is_whole() {
    let Some(machine) = Machine::called("32em64t-2n8c+dax+nvme+mic+dimms") else { return };
    let host = machine.look();
    let topology = &host.topology;
    assert_eq!(topology.nodes.keys().collect::<Vec<_>>(), [&0, &1]);
    assert_eq!((topology.nodes[&0].cpus.len(), topology.nodes[&0].distances[&1]), (8, 21));
    let port = &topology.rdma["mlx4_0/1"];
    assert_eq!((port.pci.as_deref(), port.node), (Some("0000:82:00.0"), Some(1)));
    assert_eq!((port.rate.as_str(), port.state.as_str()), ("56 Gb/sec (4X FDR)", "ACTIVE"));
    assert_eq!((topology.disks["sda"].node, topology.nics["eth0"].node), (Some(0), Some(0)));
    let chain: Vec<&str> = topology.up_from("0000:82:00.0").into_iter().map(|(address, _)| address).collect();
    assert_eq!(chain, ["0000:82:00.0", "0000:80:02.2"]);
    assert!(topology.pci["0000:82:00.0"].config_hidden.is_some());

    assert_eq!(topology.modules.len(), 24);
    let plugged: Vec<&str> =
        topology.modules.iter().filter(|module| module.bytes > 0).map(|module| module.slot.as_str()).collect();
    assert_eq!(plugged, ["DIMM_A1", "DIMM_A2", "DIMM_A3", "DIMM_A4", "DIMM_B1", "DIMM_B2", "DIMM_B3", "DIMM_B4"]);
    let module = &topology.modules[0];
    assert_eq!(
        (module.bytes, module.kind.as_str(), module.rated_mts, module.configured_mts),
        (4 << 30, "DDR3", 1600, 1600)
    );
    let Verdict::Fine(fine) = verdict(&host, 17) else { panic!("memory is whole") };
    assert_eq!((with(&fine, "channels"), with(&fine, "peak")), ("4", "51.2 GB/s"));
}

#[test]
fn a_switch_with_five_cards_is_oversubscribed_and_an_adapter_on_the_die_is_not_degraded() {
    let Some(machine) = Machine::called("32intel64-2p8co2t+8ve") else { return };
    let host = machine.look();
    let found = finding(&host, 2);
    assert_eq!(with(&found.text, "ports"), "5");
    let width = Evidence::new("/sys/bus/pci/devices/0000:18:00.0/current_link_width", 16);
    assert!(found.evidence.contains(&width), "{:?}", found.evidence);
    // An X722 whose link is made up, at 2.5 GT/s x1 of 8 GT/s.
    let device = &host.topology.pci["0000:60:00.0"];
    let link = device.link.expect("it shows one");
    assert_eq!((link.speed_gts, link.speed_max_gts, link.width), (2.5, 8.0, 1));
    let Verdict::Fine(fine) = verdict(&host, 1) else { panic!("no link is degraded") };
    assert!(with(&fine, "links").parse::<u32>().is_ok_and(|links| links >= 4));
}

#[test]
fn adapters_without_a_node_on_a_machine_of_four_are_told_and_a_locality_given_by_hand_is_taken() {
    let Some(machine) = Machine::called("40intel64-2g2n4c+pcilocality") else { return };
    let host = machine.look();
    let found = finding(&host, 7);
    assert!(found.evidence.iter().all(|evidence| evidence.value == "-1"));
    assert!(with(&found.text, "device").contains("eth0"));
    assert_eq!((with(&found.text, "nodes"), host.topology.pci["0000:43:00.0"].node), ("4", Some(2)));
    let Some(machine) = Machine::called("fakepcilocalities") else { return };
    let host = machine.look();
    let Verdict::Fine(fine) = verdict(&host, 7) else { panic!("all have their node") };
    assert_eq!(with(&fine, "nodes"), "4");
    assert_eq!(host.topology.rdma["qib0/1"].node, Some(1));
}

#[test]
fn nodes_are_not_sockets_and_tables_of_kinds_of_memory_are_read_as_they_are() {
    let nodes = |name: &str| -> Option<(Topology, Verdict)> {
        let host = Machine::called(name)?.look();
        let tables = verdict(&host, 16);
        Some((host.topology, tables))
    };
    // Two sockets with two nodes each.
    let Some((topology, tables)) = nodes("memorysidecaches") else { return };
    let sockets = |topology: &Topology| {
        topology.cpus.values().map(|cpu| cpu.package).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((topology.nodes.len(), sockets(&topology)), (4, 2));
    assert_eq!(topology.nodes[&0].distances, [(0, 10), (1, 21), (2, 11), (3, 21)].into());
    assert!(matches!(tables, Verdict::Fine(_)));
    // Nodes of memory alone.
    let Some((topology, _)) = nodes("fakeheteromemtiers") else { return };
    assert_eq!(topology.nodes.len(), 7);
    assert!(topology.nodes.values().any(|node| node.cpus.is_empty() && node.memory_bytes > 0));
    let Some((topology, _)) = nodes("fakememinitiators-1np2c+1npp+gi") else { return };
    assert_eq!(topology.nodes.len(), 11);
    assert!(topology.nodes.values().any(|node| !node.cpus.is_empty() && node.memory_bytes == 0));
    // Numbers with gaps.
    let Some((topology, tables)) = nodes("48amd64-4pa2n6c-sparse") else { return };
    assert_eq!(topology.nodes.keys().copied().collect::<Vec<u32>>(), [0, 1, 2, 33, 34, 45, 72, 73]);
    assert_eq!(topology.nodes[&73].distances[&73], 10);
    assert!(matches!(tables, Verdict::Fine(_)));
    // Eight nodes that own all CPUs, each as near as the other.
    let Some((topology, tables)) = nodes("8em64t-2s2ca2c-buggynuma") else { return };
    assert_eq!((topology.nodes.len(), topology.cpus.values().all(|cpu| cpu.node == 0)), (8, true));
    assert!(matches!(tables, Verdict::Found(_)));
    // CPUs 0 to 3 and node 0 are offline.
    let Some((topology, _)) = nodes("offline-cpu0-node0") else { return };
    assert!(!topology.cpus.contains_key(&0) && topology.cpus.contains_key(&4), "{:?}", topology.cpus.keys());
    assert!(!topology.nodes.contains_key(&0) || topology.nodes[&0].cpus.is_empty());
    assert!(!topology.nodes.is_empty());
}

#[test]
fn a_whole_look_at_a_machine_of_two_sockets_takes_little_time_and_memory() {
    let Some(machine) = Machine::called("32em64t-2n8c+dax+nvme+mic+dimms") else { return };
    let began = std::time::Instant::now();
    let host = machine.look();
    let verdicts = host.examine();
    let took = began.elapsed();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("unknown").trim();
    // Not asserted: a busy machine is no fault, and the tests beside this one have their share of the memory.
    println!("{} checks in {took:?}; all tests of this process until now: {peak} at most", verdicts.len());
    assert!(verdicts.len() > 30);
}

/// Places two threads by an interface, with all of a machine's CPUs and memory.
fn placed_by(topology: &Topology, interface: &str) -> Plan {
    let device =
        Device { name: interface.to_owned(), role: Role::Client, node: topology.nics[interface].node, weight: 1 };
    let cpus: Vec<u32> = topology.cpus.keys().copied().collect();
    let memory_nodes: Vec<NodeNumber> = topology.nodes.keys().copied().collect();
    let facts = Facts { topology, cpus: &cpus, memory_nodes: &memory_nodes, devices: &[device], shards: 2 };
    plan(&facts, Wish::Auto)
}

#[test]
fn threads_of_real_machines_go_to_their_interfaces_nodes_or_stay_where_the_kernel_has_them() {
    // Whose interfaces say where they are, on a host with several nodes with CPUs. Of the second somebody has written it to sysfs.
    const PLACED: &[(&str, &str, NodeNumber)] =
        &[("32em64t-2n8c+dax+nvme+mic+dimms", "eth0", 0), ("40intel64-2g2n4c+pcilocality", "ib0", 2)];
    for (machine, interface, node) in PLACED {
        let Some(machine) = Machine::called(machine) else { return };
        let topology = machine.look().topology;
        let Plan::Placed(seats) = placed_by(&topology, interface) else { panic!("{interface} is at a node") };
        for seat in seats {
            assert_eq!((seat.node, seat.memory, &seat.cpus), (*node, Some(*node), &topology.nodes[node].cpus));
        }
    }
    // The adapter's file says -1.
    let Some(machine) = Machine::called("40intel64-2g2n4c+pcilocality") else { return };
    assert!(matches!(placed_by(&machine.look().topology, "eth0"), Plan::Free { unmet: false, .. }));
}

/// By whichever interface: a thread that is placed has CPUs, all of its node, and memory of a node that has some.
fn assert_plans_hold(name: &str, topology: &Topology) {
    for interface in topology.nics.keys() {
        let Plan::Placed(seats) = placed_by(topology, interface) else { continue };
        for seat in seats {
            let of_node = |cpu: &u32| topology.cpus.get(cpu).is_some_and(|place| place.node == seat.node);
            assert!(!seat.cpus.is_empty() && seat.cpus.iter().all(of_node), "{name}: {interface}: {seat:?}");
            assert!(
                seat.memory.is_none_or(|node| topology.nodes[&node].memory_bytes > 0),
                "{name}: {interface}: {seat:?}"
            );
            let at = topology.nics[interface].node;
            assert!(!seat.home || at == Some(seat.node), "{name}: {interface}: {seat:?}");
        }
    }
}

#[test]
fn a_real_machine_whose_firmware_is_silent_is_placed_by_what_was_written_down() {
    let Some(machine) = Machine::called("40intel64-2g2n4c+pcilocality") else { return };
    let file = machine.inside().join(locality::FILE.trim_start_matches('/'));
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    // As its owners say it to hwloc, by HWLOC_PCI_LOCALITY.
    std::fs::write(&file, "0000:00-09 0\n0000:40-46 2\n").expect("written");
    let host = machine.look();
    let interface = host.topology.nics.iter().find(|(_, nic)| nic.pci.as_deref().is_some_and(|pci| pci < "0000:0a"));
    let Some((interface, _)) = interface else { panic!("it has four at bus 4 and 5: {:?}", host.topology.nics) };
    let Plan::Placed(seats) = placed_by(&host.topology, interface) else { panic!("{interface} is at node 0 now") };
    assert_eq!((seats[0].node, &seats[0].cpus), (0, &host.topology.nodes[&0].cpus));
    assert!(matches!(verdict(&host, 7), Verdict::Fine(_)), "{:?}", verdict(&host, 7));
}
