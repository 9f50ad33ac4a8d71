//! Checks 4 to 7: links that repeat packets or sleep, the IOMMU, and devices whose node nobody knows.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict, Write};
use super::pcie::{all_called, called, moves_data};
use forebay_host::system::{Seen, chosen};
use forebay_host::topology::{NodeNumber, Topology, locality};
use std::collections::{BTreeMap, BTreeSet};

/// Lines from which the price of the IOMMU's flush at each packet shows, in bits a second.
const FAST_LINE: u64 = 25_000_000_000;
/// Lines from which the wrong socket costs throughput, in bits a second.
const NODE_MATTERS: u64 = 10_000_000_000;
/// Corrected errors a second from which replays take a share of the link that shows, rather than come from one bad moment.
const REPLAYS: f64 = 1.0;
/// The errors that make a link repeat a packet, or that are a packet lost on it.
const OF_LINK: [&str; 5] = ["RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout"];

/// Sum of a file of AER's counters that concerns the link.
fn errors_of_link(text: &str) -> u64 {
    let count = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        OF_LINK.contains(&name).then(|| count.trim().parse::<u64>().ok())?
    };
    text.lines().filter_map(count).sum()
}

// Check 4. Reads `aer_dev_correctable` of each function at both looks. Rule: errors of the link that grow.
pub fn corrected_errors(host: &Host) -> Verdict {
    const FILE: &str = "/aer_dev_correctable";
    let files = |counters: &BTreeMap<String, String>| -> BTreeMap<String, u64> {
        let of_pci = counters.iter().filter(|(path, _)| path.ends_with(FILE));
        of_pci.map(|(path, text)| (path.clone(), errors_of_link(text))).collect()
    };
    let now = files(&host.counters.0);
    if now.is_empty() {
        return Verdict::NotHere;
    }
    let Some((earlier, between)) = &host.earlier else {
        let what = format!("{FILE} of {} PCI functions: one look only", now.len());
        return Verdict::NotSeen { what, how: Sentence::new("pcie.second-look") };
    };
    let (earlier, seconds) = (files(&earlier.0), between.as_secs_f64());
    let growing = |(path, &now): (&String, &u64)| {
        let grown = now.checked_sub(*earlier.get(path)?).filter(|&grown| grown > 0)?;
        let address = path.strip_suffix(FILE)?.rsplit('/').next()?;
        let a_second = grown as f64 / seconds;
        Some(Finding {
            id: format!("pcie-errors/{address}"),
            check: 4,
            severity: if a_second >= REPLAYS { Severity::Warning } else { Severity::Note },
            confidence: Confidence::Certain,
            text: Sentence::new("pcie.errors")
                .with("device", called(&host.topology, address))
                .with("grown", grown)
                .with("seconds", format!("{seconds:.1}"))
                .with("total", now),
            evidence: vec![Evidence::new(path, format!("{now} (+{grown} in {seconds:.1} s): {}", OF_LINK.join(" + ")))],
            number: Some(Number { is: a_second, could_be: 0.0, unit: "1/s".to_owned() }),
            remedies: vec![Remedy::Explain { what: Sentence::new("pcie.errors-remedy"), command: None }],
        })
    };
    let found: Vec<Finding> = now.iter().filter_map(growing).collect();
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    let total: u64 = now.values().sum();
    Verdict::Fine(Sentence::new("pcie.errors-fine").with("functions", now.len()).with("total", total))
}

// Check 5. Reads ASPM's policy and `link/l1_aspm` of adapters that are up and of NVMe. Rule: links may sleep. A virtual machine
// has no link.
pub fn link_sleep(host: &Host) -> Verdict {
    const POLICY: &str = "/sys/module/pcie_aspm/parameters/policy";
    let topology = &host.topology;
    if topology.hypervisor.is_some() {
        return Verdict::NotHere;
    }
    let nics = topology.nics.values().filter(|nic| nic.up).filter_map(|nic| nic.pci.as_deref());
    let disks = topology.disks.values().filter(|disk| disk.kind == "nvme").filter_map(|disk| disk.pci.as_deref());
    let ports = topology.rdma.values().filter(|port| port.state == "ACTIVE").filter_map(|port| port.pci.as_deref());
    let devices: BTreeSet<&str> = nics.chain(disks).chain(ports).collect();
    let (mut asleep, mut judged, mut hidden) = (Vec::new(), 0, None);
    for address in devices {
        let path = format!("/sys/bus/pci/devices/{address}/link/l1_aspm");
        match host.system.number::<u8>(&path) {
            Seen::Is(on) => {
                judged += 1;
                if on == 1 {
                    asleep.push((address, path));
                }
            }
            // Links that cannot sleep have no such file.
            Seen::Absent => {}
            Seen::Hidden(why) => hidden = hidden.or(Some(why)),
        }
    }
    let policy = host.system.text(POLICY).known().unwrap_or_default();
    match (asleep.is_empty(), judged, hidden) {
        (true, 0, Some(what)) => return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
        (true, 0, None) => return Verdict::NotHere,
        (true, ..) => {
            return Verdict::Fine(
                Sentence::new("pcie.sleep-fine")
                    .with("links", judged)
                    .with("policy", chosen(&policy).unwrap_or_default()),
            );
        }
        (false, ..) => {}
    }
    let names = all_called(topology, asleep.iter().map(|(address, _)| *address));
    let evidence = asleep.iter().map(|(_, path)| Evidence::new(path, 1));
    let of_policy = (!policy.is_empty()).then(|| Evidence::new(POLICY, &policy));
    Verdict::Found(vec![Finding {
        id: "pcie-sleep/l1".to_owned(),
        check: 5,
        severity: Severity::Note,
        confidence: Confidence::Certain,
        text: Sentence::new("pcie.sleep").with("device", names),
        evidence: evidence.chain(of_policy).collect(),
        number: None,
        remedies: vec![Remedy::Apply {
            what: Sentence::new("pcie.sleep-remedy"),
            writes: asleep.into_iter().map(|(_, path)| Write { path, value: "0".to_owned() }).collect(),
        }],
    }])
}

// Check 6. Reads the type of each IOMMU group with a fast adapter or an NVMe disk in it. Rule: `DMA`, which flushes at each unmap
// (`DMA-FQ` gathers them, `identity` has none).
pub fn iommu(host: &Host) -> Verdict {
    const GROUPS: &str = "/sys/kernel/iommu_groups";
    let topology = &host.topology;
    let fast_nics = topology.nics.values().filter(|nic| nic.speed_bits.is_some_and(|bits| bits >= FAST_LINE));
    let fast: BTreeSet<&str> = fast_nics.filter_map(|nic| nic.pci.as_deref()).collect();
    let nvme = topology.disks.values().filter(|disk| disk.kind == "nvme").filter_map(|disk| disk.pci.as_deref());
    let devices: BTreeSet<&str> = fast.iter().copied().chain(nvme).collect();
    let (mut strict, mut kinds, mut unseen) = (Vec::new(), BTreeSet::new(), None);
    for address in devices {
        let link = format!("/sys/bus/pci/devices/{address}/iommu_group");
        let Some(group) = host.system.real(&link).known().and_then(|real| Some(real.rsplit('/').next()?.to_owned()))
        else {
            continue;
        };
        // What can be plugged in from outside is kept apart for safety's sake, whatever the setting.
        let removable = host.system.text(&format!("/sys/bus/pci/devices/{address}/removable"));
        if removable.known().as_deref() == Some("removable") {
            continue;
        }
        let path = format!("{GROUPS}/{group}/type");
        match host.system.text(&path) {
            Seen::Is(kind) => {
                if kind == "DMA" {
                    strict.push((address, path));
                }
                kinds.insert(kind);
            }
            Seen::Absent => unseen = unseen.or(Some((path, "pcie.iommu-kernel"))),
            Seen::Hidden(why) => unseen = unseen.or(Some((why, "doctor.as-root"))),
        }
    }
    match (strict.is_empty(), kinds.is_empty(), unseen) {
        (true, true, Some((what, how))) => return Verdict::NotSeen { what, how: Sentence::new(how) },
        (true, true, None) => return Verdict::NotHere,
        (true, false, _) => {
            let kinds: Vec<String> = kinds.into_iter().collect();
            return Verdict::Fine(Sentence::new("pcie.iommu-fine").with("kinds", kinds.join(", ")));
        }
        (false, ..) => {}
    }
    let names = all_called(topology, strict.iter().map(|(address, _)| *address));
    let warn = strict.iter().any(|(address, _)| fast.contains(address));
    Verdict::Found(vec![Finding {
        id: "iommu/strict".to_owned(),
        check: 6,
        severity: if warn { Severity::Warning } else { Severity::Note },
        confidence: Confidence::Likely,
        text: Sentence::new("pcie.iommu").with("device", names),
        evidence: strict.iter().map(|(_, path)| Evidence::new(path, "DMA")).collect(),
        number: None,
        remedies: vec![Remedy::Explain {
            what: Sentence::new("pcie.iommu-remedy"),
            command: Some("iommu.strict=0".to_owned()),
        }],
    }])
}

/// The nodes that have CPUs of their own. Broken firmware gives all CPUs to each of many nodes.
fn nodes_with_cpus(topology: &Topology) -> BTreeSet<NodeNumber> {
    topology.cpus.values().map(|place| place.node).collect()
}

// Check 7. Reads `numa_node` of each device of the data path and of the ports above it, and what was written down in their place.
// Rules: all say -1 where there are several nodes; a line that was written down says nothing.
pub fn node_unknown(host: &Host) -> Verdict {
    let nodes = nodes_with_cpus(&host.topology);
    if nodes.len() < 2 {
        return Verdict::NotHere;
    }
    let locality = &host.topology.locality;
    if let Some(why) = &locality.hidden {
        return Verdict::NotSeen { what: why.clone(), how: Sentence::new("doctor.as-root") };
    }
    let verdict = devices_unknown(host, nodes.len());
    if locality.faults.is_empty() {
        return verdict;
    }
    let (mut found, hidden) = match verdict {
        Verdict::NotSeen { what, how } => (Vec::new(), Some((what, how))),
        verdict => (verdict.into_found(), None),
    };
    found.push(Finding {
        id: "node-unknown/locality".to_owned(),
        check: 7,
        severity: Severity::Note,
        confidence: Confidence::Certain,
        text: Sentence::new("pcie.locality").with("file", locality::FILE).with("lines", locality.faults.len()),
        evidence: locality.faults.iter().map(|line| Evidence::new(locality::FILE, line)).collect(),
        number: None,
        remedies: vec![Remedy::Explain { what: Sentence::new("pcie.locality-remedy"), command: None }],
    });
    Verdict::of_found(found, hidden)
}

fn devices_unknown(host: &Host, nodes: usize) -> Verdict {
    let topology = &host.topology;
    let nics = topology.nics.values().map(|nic| (&nic.pci, nic.node, nic.speed_bits.unwrap_or(0) >= NODE_MATTERS));
    let disks = topology.disks.values().map(|disk| (&disk.pci, disk.node, disk.kind == "nvme"));
    let ports = topology.rdma.values().map(|port| (&port.pci, port.node, true));
    let (mut unknown, mut known): (BTreeMap<&str, bool>, BTreeSet<&str>) = Default::default();
    for (pci, node, fast) in nics.chain(disks).chain(ports) {
        let Some(address) = pci.as_deref().filter(|address| moves_data(&topology.pci[*address])) else { continue };
        match node {
            Some(_) => {
                known.insert(address);
            }
            None => *unknown.entry(address).or_default() |= fast,
        }
    }
    let file = |address: &str| format!("/sys/bus/pci/devices/{address}/numa_node");
    if unknown.is_empty() {
        let fine = Sentence::new("pcie.nodes-fine").with("devices", known.len()).with("nodes", nodes);
        return if known.is_empty() { Verdict::NotHere } else { Verdict::Fine(fine) };
    }
    // Where the file cannot be read, nobody said -1.
    let hidden = unknown.keys().find_map(|address| match host.system.text(&file(address)) {
        Seen::Hidden(why) => Some(why),
        Seen::Is(_) | Seen::Absent => None,
    });
    if let Some(what) = hidden {
        return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") };
    }
    // A guest's firmware says what its hypervisor was told, and mostly that is nothing.
    if topology.hypervisor.is_some() {
        let first = unknown.keys().next().copied().unwrap_or_default();
        return Verdict::NotSeen { what: format!("{}: -1", file(first)), how: Sentence::new("pcie.node-of-guest") };
    }
    unknown.retain(|address, _| host.system.text(&file(address)).known().as_deref() == Some("-1"));
    if unknown.is_empty() {
        return Verdict::NotHere;
    }
    let names = all_called(topology, unknown.keys().copied());
    let (Some(first), fast) = (unknown.keys().next(), unknown.values().any(|fast| *fast)) else {
        return Verdict::NotHere;
    };
    Verdict::Found(vec![Finding {
        id: "node-unknown/pci".to_owned(),
        check: 7,
        severity: if fast { Severity::Warning } else { Severity::Note },
        confidence: Confidence::Certain,
        text: Sentence::new("pcie.node-unknown").with("device", names).with("nodes", nodes),
        evidence: unknown.keys().map(|address| Evidence::new(file(address), -1)).collect(),
        number: None,
        remedies: vec![Remedy::Explain {
            what: Sentence::new("pcie.node-unknown-remedy").with("file", locality::FILE),
            command: Some(format!("echo '{first} NODE' >> {}", locality::FILE)),
        }],
    }])
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{Examined, Tree};
    use super::super::expect::{key, of_verdict};
    use super::*;

    const CARD: &str = "0000:82:00.0";
    const SSD: &str = "0000:83:00.0";

    fn found(verdict: Verdict) -> Finding {
        of_verdict(verdict).swap_remove(0)
    }

    fn host(node: i32) -> Tree {
        Tree::new()
            .node(0, "0-3", 16)
            .node(1, "4-7", 16)
            .pci("0000:80:02.0", 0x060400, node)
            .pci(&format!("0000:80:02.0/{CARD}"), 0x020000, node)
            .pci(&format!("0000:80:02.0/{SSD}"), 0x010802, node)
            .nic("ens1", CARD, 25_000)
            .disk("nvme0n1", SSD, 100)
    }

    fn at(address: &str, name: &str) -> String {
        format!("/sys/bus/pci/devices/{address}/{name}")
    }

    const BEFORE: &str = "RxErr 0\nBadTLP 3\nBadDLLP 0\nRollover 0\nTimeout 1\nNonFatalErr 7\nTOTAL_ERR_COR 11\n";

    #[test]
    fn errors_of_a_link_that_grow_are_told_with_their_rate() {
        let tree = host(1).earlier(&at(CARD, "aer_dev_correctable"), BEFORE);
        let tree = tree.file(&at(CARD, "aer_dev_correctable"), &BEFORE.replace("BadTLP 3", "BadTLP 2403"));
        let finding = found(tree.says(4));
        assert_eq!((finding.id.as_str(), finding.severity), ("pcie-errors/0000:82:00.0", Severity::Warning));
        assert_eq!(finding.number.map(|number| number.is), Some(40.0));
        assert_eq!(finding.evidence[0].source, "/sys/bus/pci/devices/0000:82:00.0/aer_dev_correctable");
    }

    #[test]
    fn old_errors_and_those_that_are_no_replays_are_fine() {
        let tree = host(1).earlier(&at(CARD, "aer_dev_correctable"), BEFORE);
        let tree = tree.file(&at(CARD, "aer_dev_correctable"), &BEFORE.replace("NonFatalErr 7", "NonFatalErr 9"));
        let Verdict::Fine(fine) = tree.says(4) else { panic!("fine") };
        assert!(fine.with.contains(&("total".to_owned(), "4".to_owned())));
    }

    #[test]
    fn errors_seen_once_hidden_or_absent_are_no_finding() {
        let once = host(1).file(&at(CARD, "aer_dev_correctable"), BEFORE);
        assert_eq!(key(&once.says(4)), "pcie.second-look");
        assert_eq!(host(1).hidden(&at(CARD, "aer_dev_correctable")).says(4), Verdict::NotHere);
        assert_eq!(host(1).virtual_machine().says(4), Verdict::NotHere);
    }

    #[test]
    fn links_that_may_sleep_can_be_kept_awake() {
        let tree = host(1)
            .file(&at(SSD, "link/l1_aspm"), "1")
            .file(&at(CARD, "link/l1_aspm"), "0")
            .file("/sys/module/pcie_aspm/parameters/policy", "default performance [powersave] powersupersave");
        let finding = found(tree.says(5));
        assert_eq!(finding.evidence[0], Evidence::new(at(SSD, "link/l1_aspm"), 1));
        let write = Write { path: at(SSD, "link/l1_aspm"), value: "0".to_owned() };
        assert!(matches!(&finding.remedies[0], Remedy::Apply { writes, .. } if *writes == [write]));
        assert_eq!(tree.virtual_machine().says(5), Verdict::NotHere);
    }

    #[test]
    fn links_that_stay_awake_are_fine_and_hidden_ones_are_not_guessed() {
        assert_eq!(key(&host(1).file(&at(SSD, "link/l1_aspm"), "0").says(5)), "pcie.sleep-fine");
        assert_eq!(key(&host(1).hidden(&at(SSD, "link/l1_aspm")).says(5)), "doctor.as-root");
        assert_eq!(host(1).says(5), Verdict::NotHere);
        // An interface that is down waits for nothing.
        let down = host(1).file(&at(CARD, "link/l1_aspm"), "1").file("/sys/class/net/ens1/carrier", "0");
        assert_eq!(down.says(5), Verdict::NotHere);
    }

    fn grouped(kind: &str) -> Tree {
        host(1)
            .file("/sys/kernel/iommu_groups/7/type", kind)
            .link(&at(CARD, "iommu_group"), "../../../../kernel/iommu_groups/7")
    }

    #[test]
    fn a_strict_iommu_costs_fast_adapters() {
        let finding = found(grouped("DMA").says(6));
        assert_eq!(finding.severity, Severity::Warning);
        assert_eq!(finding.evidence, [Evidence::new("/sys/kernel/iommu_groups/7/type", "DMA")]);
        // Of an adapter at 10 Gb/s it is not told, nor of what is plugged in from outside.
        let slow = grouped("DMA").file("/sys/class/net/ens1/speed", "10000");
        assert_eq!(slow.says(6), Verdict::NotHere);
        assert_eq!(grouped("DMA").file(&at(CARD, "removable"), "removable").says(6), Verdict::NotHere);
    }

    #[test]
    fn an_iommu_that_gathers_or_does_not_translate_is_fine() {
        assert_eq!(key(&grouped("DMA-FQ").says(6)), "pcie.iommu-fine");
        assert_eq!(key(&grouped("identity").says(6)), "pcie.iommu-fine");
        assert_eq!(host(1).says(6), Verdict::NotHere);
        let link = |tree: Tree| tree.link(&at(CARD, "iommu_group"), "../../../../kernel/iommu_groups/7");
        let old = link(host(1).file("/sys/kernel/iommu_groups/7/devices/x", ""));
        assert_eq!(key(&old.says(6)), "pcie.iommu-kernel");
        assert_eq!(key(&link(host(1).hidden("/sys/kernel/iommu_groups/7/type")).says(6)), "doctor.as-root");
    }

    #[test]
    fn devices_without_a_node_on_a_host_of_several_are_told() {
        let finding = found(host(-1).says(7));
        assert_eq!((finding.id.as_str(), finding.severity), ("node-unknown/pci", Severity::Warning));
        assert_eq!(finding.evidence[0], Evidence::new(at(CARD, "numa_node"), -1));
        let slow = Tree::new().node(0, "0", 4).node(1, "1", 4).pci(CARD, 0x020000, -1).nic("ens1", CARD, 1000);
        assert_eq!(found(slow.says(7)).severity, Severity::Note);
    }

    #[test]
    fn what_was_written_down_of_a_device_is_known_and_lines_that_say_nothing_are_told() {
        let tree = host(-1).file(locality::FILE, "0000:80-8f 1\n");
        assert_eq!(key(&tree.says(7)), "pcie.nodes-fine");
        let half = found(host(-1).file(locality::FILE, &format!("{CARD} 1\n")).says(7));
        assert_eq!(half.evidence, [Evidence::new(at(SSD, "numa_node"), -1)]);
        let wrong = found(host(1).file(locality::FILE, "0000:80-8f 2\n").says(7));
        assert_eq!((wrong.id.as_str(), wrong.severity), ("node-unknown/locality", Severity::Note));
        assert_eq!(wrong.evidence, [Evidence::new(locality::FILE, "0000:80-8f 2")]);
        let both = of_verdict(host(-1).file(locality::FILE, "0000:80-8f\n").says(7));
        assert_eq!(both.len(), 2);
        assert_eq!(key(&host(1).hidden(locality::FILE).says(7)), "doctor.as-root");
    }

    #[test]
    fn a_virtio_interface_below_a_port_with_a_node_is_not_unknown() {
        let tree = Tree::new()
            .node(0, "0-1", 4)
            .node(1, "2-3", 4)
            .pci("0000:80:02.0", 0x060400, 1)
            .pci(&format!("0000:80:02.0/{CARD}"), 0x020000, -1)
            .virtio_nic("eth0", CARD, 10_000);
        assert_eq!(key(&tree.says(7)), "pcie.nodes-fine");
    }

    #[test]
    fn nodes_are_not_asked_for_where_there_is_one_or_where_a_hypervisor_was_told_none() {
        let one = Tree::new().node(0, "0-3", 4).pci(CARD, 0x020000, -1).nic("ens1", CARD, 25_000);
        assert_eq!(one.says(7), Verdict::NotHere);
        assert_eq!(key(&host(-1).virtual_machine().says(7)), "pcie.node-of-guest");
        let part = host(-1).virtual_machine().file(locality::FILE, "0000:80-8f\n").says(7);
        assert!(matches!(part, Verdict::FoundPart { how, .. } if how.key == "pcie.node-of-guest"));
        assert_eq!(key(&host(1).says(7)), "pcie.nodes-fine");
        assert_eq!(Tree::new().says(7), Verdict::NotHere);
        let hidden = Tree::new().node(0, "0", 4).node(1, "1", 4);
        let hidden = hidden.hidden("/sys/devices/pci0000:80/0000:82:00.0/numa_node");
        let hidden = hidden.file("/sys/devices/pci0000:80/0000:82:00.0/class", "0x020000");
        let hidden = hidden.link(&format!("/sys/bus/pci/devices/{CARD}"), "../../../devices/pci0000:80/0000:82:00.0");
        assert_eq!(key(&hidden.nic("ens1", CARD, 1000).says(7)), "doctor.as-root");
    }
}
