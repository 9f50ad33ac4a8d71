//! Checks 16, 17 and 21: what the firmware says of nodes, which memory is plugged in, and how the kernel hands it out.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict, Write};
use super::Check;
use super::processes::servers;
use crate::formulas::ddr;
use crate::parts::{channels_of, sockets};
use crate::show;
use forebay_host::system::{Seen, chosen};
use forebay_host::topology::{MemoryModule, NodeNumber, NumaNode, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// Checks 16, 17 and 21.
pub const CHECKS: &[Check] = &[
    Check { number: 16, word: "numa-tables", look: tables },
    Check { number: 17, word: "memory-modules", look: modules },
    Check { number: 21, word: "memory-policy", look: policy },
];

/// What the firmware calls near (ACPI, SLIT).
const LOCAL_DISTANCE: u32 = 10;
/// Two names of one speed, such as 2666 and 2667, are no difference.
const SAME_SPEED: f64 = 0.99;
/// Modules that run at so little of what they are sold for cost more than the processor's usual limits do.
const SLOW: f64 = 0.85;
/// A node with so much less memory than another has fewer or smaller modules: what firmware and kernel keep for themselves is less.
const UNEQUAL: f64 = 0.80;

fn distance_file(node: NodeNumber) -> String {
    format!("/sys/devices/system/node/node{node}/distance")
}

// Check 16. Reads the nodes' distances and CPUs. Rules: all nodes equally near; one CPU in several nodes. What a hypervisor
// makes up for its guest is its own affair. (The bandwidth that HMAT tells is of the nearest CPUs only, and 0 on many machines.)
fn tables(host: &Host) -> Verdict {
    let nodes = &host.topology.nodes;
    let distances: Vec<u32> = nodes.values().flat_map(|node| node.distances.values().copied()).collect();
    if nodes.len() < 2 || distances.is_empty() || host.topology.hypervisor.is_some() {
        return Verdict::NotHere;
    }
    let all_near = distances.iter().all(|&distance| distance == LOCAL_DISTANCE);
    let mut owners: BTreeMap<u32, u32> = BTreeMap::new();
    nodes.values().flat_map(|node| &node.cpus).for_each(|&cpu| *owners.entry(cpu).or_default() += 1);
    let shared = owners.values().any(|&owners| owners > 1);
    if !all_near && !shared {
        let far = distances.into_iter().max().unwrap_or(LOCAL_DISTANCE);
        return Verdict::Fine(
            Sentence::new("memory.tables-fine")
                .with("nodes", nodes.len())
                .with("far", f64::from(far) / f64::from(LOCAL_DISTANCE)),
        );
    }
    let evidence = nodes.iter().flat_map(|(&number, node)| {
        let row: Vec<String> = node.distances.values().map(u32::to_string).collect();
        let near = all_near.then(|| Evidence::new(distance_file(number), row.join(" ")));
        let file = format!("/sys/devices/system/node/node{number}/cpulist");
        near.into_iter().chain(shared.then(|| Evidence::new(file, show::cpu_list(node.cpus.iter().copied()))))
    });
    Verdict::Found(vec![Finding {
        id: "numa-tables/distance".to_owned(),
        check: 16,
        severity: Severity::Note,
        confidence: Confidence::Certain,
        text: Sentence::new(if all_near { "memory.tables-near" } else { "memory.tables-shared" })
            .with("nodes", nodes.len()),
        evidence: evidence.collect(),
        number: None,
        remedies: vec![Remedy::Explain {
            what: Sentence::new("memory.tables-remedy"),
            command: Some("forebay doctor matrix".to_owned()),
        }],
    }])
}

/// A module's channel, where the firmware names it: a text up to and with the channel's name, as in `P0 CHANNEL A` or
/// `P1_Node1_Channel2_Dimm0`.
fn channel(module: &MemoryModule) -> Option<String> {
    [&module.slot, &module.bank].into_iter().find_map(|text| {
        let end = text.to_ascii_lowercase().find("channel")? + "channel".len();
        let rest = text.get(end..)?;
        let name = rest.trim_start_matches([' ', '_', '-']);
        let length = name.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(name.len());
        (length > 0).then(|| text[..end + (rest.len() - name.len()) + length].to_owned())
    })
}

/// Whether all slots are of one channel by their letter, as in `DIMM_A1` and `DIMM_A2`.
fn share_a_letter(slots: &[(usize, &MemoryModule)]) -> bool {
    let letter = |module: &MemoryModule| {
        let name = module.slot.to_ascii_uppercase();
        let rest = name.rsplit("DIMM").next().unwrap_or_default().trim_start_matches([' ', '_', '-']);
        let letter = rest.chars().next().filter(char::is_ascii_uppercase)?;
        let number = rest.get(1..)?;
        (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(letter)
    };
    let letters: Option<BTreeSet<char>> = slots.iter().map(|(_, module)| letter(module)).collect();
    letters.is_some_and(|letters| letters.len() == 1)
}

/// Where the firmware's table shows something of the modules.
fn module_file(at: usize) -> String {
    format!("/sys/firmware/dmi/entries/17-{at}/raw")
}

// Check 17. Reads the firmware's list of modules, and each node's memory. Rules: channels without a module; modules slower than
// they are sold; nodes with unequal memory. Channels are counted only where the firmware names them or the processor is known,
// because slots alone do not tell: a channel has one to three.
fn modules(host: &Host) -> Verdict {
    let topology = &host.topology;
    if topology.hypervisor.is_some() {
        return Verdict::NotHere;
    }
    // Slots of the kind that keeps its content are there for another reason than bandwidth.
    let slots: Vec<(usize, &MemoryModule)> =
        topology.modules.iter().enumerate().filter(|(_, module)| module.kind != "non-volatile").collect();
    let plugged: Vec<(usize, &MemoryModule)> = slots.iter().copied().filter(|(_, module)| module.bytes > 0).collect();
    let found: Vec<Finding> =
        [empty_channels(topology, &slots, &plugged), slow_modules(&plugged), unequal_nodes(topology)]
            .into_iter()
            .flatten()
            .collect();
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    if let Some(what) = topology.modules_hidden.clone() {
        return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") };
    }
    let speeds = plugged.iter().map(|(_, module)| module.configured_mts).filter(|&speed| speed > 0);
    let (Some(speed), Some((_, first))) = (speeds.min(), plugged.first()) else { return Verdict::NotHere };
    let named = Sentence::new("memory.modules-fine")
        .with("modules", plugged.len())
        .with("kind", &first.kind)
        .with("speed", speed);
    let sockets = sockets(topology).len();
    match channels_of(&topology.cpu_model).filter(|&channels| plugged.len() >= sockets * channels as usize) {
        Some(channels) => Verdict::Fine(Sentence {
            key: "memory.channels-fine".to_owned(),
            with: named
                .with("channels", channels)
                .with("peak", format!("{}/s", show::bytes(ddr(speed, channels))))
                .with,
        }),
        None => Verdict::Fine(named),
    }
}

fn empty_channels(
    topology: &Topology,
    slots: &[(usize, &MemoryModule)],
    plugged: &[(usize, &MemoryModule)],
) -> Option<Finding> {
    let named = |modules: &[(usize, &MemoryModule)]| -> Option<BTreeSet<String>> {
        modules.iter().map(|(_, module)| channel(module)).collect()
    };
    let sockets = sockets(topology).len();
    let (filled, all, confidence) = match (named(plugged), named(slots), channels_of(&topology.cpu_model)) {
        (Some(filled), Some(all), _) if !all.is_empty() => (filled.len(), all.len(), Confidence::Computed),
        // Fewer modules than channels leave one of them empty, wherever they are.
        (_, _, Some(channels)) => (plugged.len(), channels as usize * sockets, Confidence::Computed),
        // Nobody names the channels. One module has one of them, and hardly a board has slots for a second one at the same alone.
        _ if plugged.len() == sockets
            && slots.len() >= 2 * sockets
            && !share_a_letter(slots)
            && topology.modules_hidden.is_none() =>
        {
            (plugged.len(), 2 * sockets, Confidence::Likely)
        }
        _ => return None,
    };
    if plugged.is_empty() || filled >= all {
        return None;
    }
    let key = |known, of_channels, of_speed| match (confidence, known) {
        (Confidence::Likely, true) => "memory.one-module",
        (Confidence::Likely, false) => "memory.one-module-only",
        (_, true) => of_speed,
        (_, false) => of_channels,
    };
    let speed = plugged.iter().map(|(_, module)| module.configured_mts.max(1)).min()?;
    let (is, could_be) = (ddr(speed, filled as u32), ddr(speed, all as u32));
    let known = speed > 1;
    let evidence = slots.iter().filter(|(_, module)| module.bytes == 0);
    let evidence = evidence
        .map(|(at, module)| Evidence::new(module_file(*at), format!("{} {}: 0 bytes", module.slot, module.bank)));
    let shown: Vec<Evidence> = evidence.take(4).collect();
    let counted = || vec![Evidence::new("/sys/firmware/dmi/entries/17-*/raw", format!("{} modules", plugged.len()))];
    Some(Finding {
        id: "memory-modules/channels".to_owned(),
        check: 17,
        severity: Severity::Warning,
        confidence,
        text: Sentence::new(key(known, "memory.channels-only", "memory.channels"))
            .with("filled", filled)
            .with("all", all)
            .with("slots", slots.len())
            .with("is", format!("{}/s", show::bytes(is)))
            .with("could_be", format!("{}/s", show::bytes(could_be))),
        evidence: if shown.is_empty() { counted() } else { shown },
        number: known.then(|| Number { is, could_be, unit: "B/s".to_owned() }),
        remedies: vec![Remedy::Explain { what: Sentence::new("memory.channels-remedy"), command: None }],
    })
}

fn slow_modules(plugged: &[(usize, &MemoryModule)]) -> Option<Finding> {
    let slow = |(_, module): &&(usize, &MemoryModule)| {
        let share = f64::from(module.configured_mts) / f64::from(module.rated_mts);
        // Half is the same speed told in clocks instead of transfers: some firmware mixes the two.
        let in_clocks = (share * 2.0 - 1.0).abs() < 1.0 - SAME_SPEED;
        module.configured_mts > 0 && module.rated_mts > 0 && share < SAME_SPEED && !in_clocks
    };
    let slow: Vec<&(usize, &MemoryModule)> = plugged.iter().filter(slow).collect();
    let (at, first) = slow.iter().min_by_key(|(_, module)| module.configured_mts)?;
    let share = f64::from(first.configured_mts) / f64::from(first.rated_mts);
    Some(Finding {
        id: "memory-modules/speed".to_owned(),
        check: 17,
        severity: if share < SLOW { Severity::Warning } else { Severity::Note },
        confidence: Confidence::Certain,
        text: Sentence::new("memory.slow")
            .with("modules", slow.len())
            .with("kind", &first.kind)
            .with("is", first.configured_mts)
            .with("could_be", first.rated_mts)
            .with("loss", show::percent(1.0 - share)),
        evidence: vec![Evidence::new(
            module_file(*at),
            format!("{}: speed {} MT/s, configured {} MT/s", first.slot, first.rated_mts, first.configured_mts),
        )],
        number: Some(Number {
            is: ddr(first.configured_mts, 1),
            could_be: ddr(first.rated_mts, 1),
            unit: "B/s".to_owned(),
        }),
        remedies: vec![Remedy::Explain { what: Sentence::new("memory.slow-remedy"), command: None }],
    })
}

fn unequal_nodes(topology: &Topology) -> Option<Finding> {
    let with_cpus = || topology.nodes.iter().filter(|(_, node)| !node.cpus.is_empty() && node.memory_bytes > 0);
    let by_memory = |(_, node): &(&NodeNumber, &NumaNode)| node.memory_bytes;
    let ((least, small), (most, large)) = (with_cpus().min_by_key(by_memory)?, with_cpus().max_by_key(by_memory)?);
    if small.memory_bytes as f64 >= large.memory_bytes as f64 * UNEQUAL {
        return None;
    }
    let shown = |number: &NodeNumber, node: &NumaNode| {
        Evidence::new(
            format!("/sys/devices/system/node/node{number}/meminfo"),
            format!("MemTotal: {} kB", node.memory_bytes >> 10),
        )
    };
    Some(Finding {
        id: "memory-modules/nodes".to_owned(),
        check: 17,
        severity: Severity::Note,
        confidence: Confidence::Certain,
        text: Sentence::new("memory.unequal")
            .with("small", least)
            .with("is", show::bytes(small.memory_bytes as f64))
            .with("large", most)
            .with("could_be", show::bytes(large.memory_bytes as f64)),
        evidence: vec![shown(least, small), shown(most, large)],
        number: Some(Number {
            is: small.memory_bytes as f64,
            could_be: large.memory_bytes as f64,
            unit: "B".to_owned(),
        }),
        remedies: vec![Remedy::Explain { what: Sentence::new("memory.unequal-remedy"), command: None }],
    })
}

/// A setting of the kernel's that costs, and what to write instead.
fn setting(id: &str, severity: Severity, key: &'static str, path: &str, is: &str, value: &str) -> Finding {
    Finding {
        id: format!("memory-policy/{id}"),
        check: 21,
        severity,
        confidence: Confidence::Likely,
        text: Sentence::new(key).with("value", is),
        evidence: vec![Evidence::new(path, is)],
        number: None,
        remedies: vec![Remedy::Apply {
            what: Sentence::new("memory.setting-remedy").with("value", value),
            writes: vec![Write { path: path.to_owned(), value: value.to_owned() }],
        }],
    }
}

// Check 21. Reads three settings of how memory is handed out. Rules: zone_reclaim_mode is not 0 with several nodes; numa_balancing
// is on while a server is held to one node; defragmenting for huge pages at each fault.
fn policy(host: &Host) -> Verdict {
    const RECLAIM: &str = "/proc/sys/vm/zone_reclaim_mode";
    const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
    const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    const DEFRAG: &str = "/sys/kernel/mm/transparent_hugepage/defrag";
    let system = &host.system;
    let several = host.topology.nodes.values().filter(|node| !node.cpus.is_empty()).count() > 1;
    let (reclaim, balancing, defrag) = (system.text(RECLAIM), system.text(BALANCING), system.text(DEFRAG));
    let mut found = Vec::new();
    if let Seen::Is(mode) = &reclaim
        && several
        && mode != "0"
    {
        found.push(setting("zone-reclaim", Severity::Warning, "memory.zone-reclaim", RECLAIM, mode, "0"));
    }
    // 1 and 2 are bits: 2 moves pages between kinds of memory, which is no fight over nodes.
    let balances = |mode: &String| mode.parse::<u32>().is_ok_and(|mode| mode & 1 == 1);
    if let Seen::Is(mode) = &balancing
        && several
        && balances(mode)
        && let Some(held) = held_server(host)
    {
        let finding = setting("numa-balancing", Severity::Note, "memory.balancing", BALANCING, mode, "0");
        found.push(Finding { text: finding.text.with("server", held), ..finding });
    }
    // `[always] defer defer+madvise madvise never`
    let is_always = |text: &Seen<String>| matches!(text, Seen::Is(text) if text.contains("[always]"));
    let never = matches!(system.text(ENABLED), Seen::Is(text) if text.contains("[never]"));
    if let Seen::Is(text) = &defrag
        && is_always(&defrag)
        && !never
    {
        found.push(setting("defrag", Severity::Note, "memory.defrag", DEFRAG, text, "madvise"));
    }
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    let hidden = [&reclaim, &balancing, &defrag].into_iter().find_map(|seen| match seen {
        Seen::Hidden(why) => Some(why.clone()),
        Seen::Is(_) | Seen::Absent => None,
    });
    let shown = |seen: Seen<String>| {
        seen.known().map_or_else(|| "–".to_owned(), |text| chosen(&text).unwrap_or(&text).to_owned())
    };
    match (hidden, &reclaim, &defrag) {
        (Some(what), ..) => Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
        (None, Seen::Absent, Seen::Absent) => Verdict::NotHere,
        (None, ..) => Verdict::Fine(
            Sentence::new("memory.policy-fine")
                .with("reclaim", shown(reclaim))
                .with("balancing", shown(balancing))
                .with("defrag", shown(defrag)),
        ),
    }
}

/// A server that may run in one node only.
fn held_server(host: &Host) -> Option<String> {
    let nodes = |cpus: &[u32]| -> BTreeSet<NodeNumber> {
        cpus.iter().filter_map(|cpu| Some(host.topology.cpus.get(cpu)?.node)).collect()
    };
    let servers = servers(&host.system).known()?;
    servers.into_iter().find(|server| nodes(&server.allowed).len() == 1).map(|server| server.name)
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{Examined, Tree};
    use super::super::expect::{key, of_verdict as found};
    use super::*;

    fn two_nodes() -> Tree {
        Tree::new().node(0, "0-3", 16).node(1, "4-7", 16)
    }

    #[test]
    fn nodes_that_are_all_near_or_share_cpus_have_a_useless_table() {
        let near = |tree: Tree| {
            let tree = tree.file("/sys/devices/system/node/node0/distance", "10 10");
            tree.file("/sys/devices/system/node/node1/distance", "10 10")
        };
        let [finding] = &found(near(two_nodes()).says(16))[..] else { panic!("one") };
        assert_eq!((finding.text.key.as_str(), finding.severity), ("memory.tables-near", Severity::Note));
        assert_eq!(finding.evidence[0], Evidence::new("/sys/devices/system/node/node0/distance", "10 10"));
        assert_eq!(near(two_nodes()).virtual_machine().says(16), Verdict::NotHere);
        let shared = two_nodes().file("/sys/devices/system/node/node1/cpulist", "0-7");
        assert_eq!(key(&shared.says(16)), "memory.tables-shared");
    }

    #[test]
    fn plain_tables_are_fine_and_hidden_ones_are_none() {
        assert_eq!(key(&two_nodes().says(16)), "memory.tables-fine");
        assert_eq!(Tree::new().node(0, "0-3", 4).says(16), Verdict::NotHere);
        let hidden = Tree::new().hidden("/sys/devices/system/node/node0/distance");
        let hidden = hidden.hidden("/sys/devices/system/node/node1/distance");
        assert_eq!(hidden.says(16), Verdict::NotHere);
    }

    #[test]
    fn channels_of_processors_are_known_by_their_names() {
        for (model, channels) in [
            ("Intel(R) Xeon(R) CPU E5-2680 0 @ 2.70GHz", Some(4)),
            ("Intel(R) Xeon(R) CPU E5-2430 0 @ 2.20GHz", Some(3)),
            ("Intel(R) Xeon(R) Silver 4108 CPU @ 1.80GHz", Some(6)),
            ("Intel(R) Xeon(R) Gold 6330 CPU @ 2.00GHz", Some(8)),
            ("Intel(R) Xeon(R) Platinum 8380H CPU @ 2.90GHz", Some(6)),
            ("Intel(R) Xeon(R) Platinum 8480+", Some(8)),
            ("AMD EPYC 7543 32-Core Processor", Some(8)),
            ("AMD EPYC 9654 96-Core Processor", Some(12)),
            ("AMD EPYC", None),
            ("AMD EPYC 3251 8-Core Processor", None),
            ("Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz", None),
            ("", None),
        ] {
            assert_eq!(channels_of(model), channels, "{model}");
        }
    }

    #[test]
    fn channels_are_known_where_the_firmware_names_them() {
        let of = |slot: &str, bank: &str| {
            channel(&MemoryModule { slot: slot.to_owned(), bank: bank.to_owned(), ..MemoryModule::default() })
        };
        assert_eq!(of("DIMM 0", "P0 CHANNEL A").as_deref(), Some("P0 CHANNEL A"));
        assert_eq!(of("P1_Node1_Channel2_Dimm0", "").as_deref(), Some("P1_Node1_Channel2"));
        assert_eq!(of("Controller0-ChannelA-DIMM1", "BANK 0").as_deref(), Some("Controller0-ChannelA"));
        assert_eq!(of("DIMM_A1", "BANK 0"), None);
        assert_eq!(of("CHANNEL", ""), None);
    }

    fn module(slot: &str, bank: &str, gib: u64) -> MemoryModule {
        MemoryModule {
            slot: slot.to_owned(),
            bank: bank.to_owned(),
            bytes: gib << 30,
            kind: "DDR4".to_owned(),
            rated_mts: 3200,
            configured_mts: 3200,
            data_bits: 64,
        }
    }

    #[test]
    fn empty_channels_halve_the_bandwidth() {
        let tree = Tree::new()
            .node(0, "0-3", 32)
            .module(module("DIMM 0", "P0 CHANNEL A", 16))
            .module(module("DIMM 0", "P0 CHANNEL B", 16))
            .module(module("DIMM 0", "P0 CHANNEL C", 0))
            .module(module("DIMM 0", "P0 CHANNEL D", 0));
        let [finding] = &found(tree.says(17))[..] else { panic!("one") };
        assert_eq!((finding.id.as_str(), finding.severity), ("memory-modules/channels", Severity::Warning));
        let number = finding.number.clone().expect("a number");
        assert_eq!((number.is, number.could_be), (51.2e9, 102.4e9));
        assert_eq!(finding.evidence[0].source, "/sys/firmware/dmi/entries/17-2/raw");
        assert_eq!(tree.virtual_machine().says(17), Verdict::NotHere);
    }

    #[test]
    fn fewer_modules_than_channels_of_a_known_processor_leave_some_empty() {
        let tree = |modules: u32| {
            let tree =
                Tree::new().node(0, "0-3", 32).file("/proc/cpuinfo", "model name\t: AMD EPYC 7543 32-Core Processor\n");
            (0..modules).fold(tree, |tree, at| tree.module(module(&format!("DIMM{at}"), "", 16)))
        };
        let number = found(tree(2).says(17))[0].number.clone().expect("a number");
        assert_eq!((number.is, number.could_be), (51.2e9, 204.8e9));
        let Verdict::Fine(fine) = tree(8).says(17) else { panic!("fine") };
        assert_eq!(fine.key, "memory.channels-fine");
        assert!(fine.with.contains(&("peak".to_owned(), "204.8 GB/s".to_owned())));
    }

    #[test]
    fn one_module_in_a_board_of_several_slots_is_half_of_the_bandwidth() {
        let board = |plugged: usize, slots: usize| {
            let of = |tree: Tree, at| {
                tree.module(module(&format!("DIMM_{at}"), "BANK 0", if at < plugged { 16 } else { 0 }))
            };
            (0..slots).fold(Tree::new().node(0, "0-3", 16), of)
        };
        for slots in [2, 4] {
            let Verdict::Found(found) = board(1, slots).says(17) else { panic!("one of {slots}") };
            assert_eq!((found[0].id.as_str(), found[0].confidence), ("memory-modules/channels", Confidence::Likely));
            assert_eq!(found[0].text.key, "memory.one-module");
            let number = found[0].number.clone().expect("a number");
            assert_eq!(number.could_be, 2.0 * number.is);
        }
        // Two may be at two channels, or at one: slots do not tell.
        for fine in [board(1, 1), board(2, 4), board(2, 2)] {
            assert_eq!(key(&fine.says(17)), "memory.modules-fine");
        }
        let hidden = board(1, 2).hidden("/sys/firmware/dmi/entries/17-2/raw");
        assert!(matches!(hidden.says(17), Verdict::NotSeen { .. }), "one of the others may have a module");
        assert_eq!(board(0, 2).says(17), Verdict::NotHere);
        assert_eq!(board(1, 2).virtual_machine().says(17), Verdict::NotHere);
        // What keeps its content is no slot for a second channel.
        let lasting = MemoryModule { kind: "non-volatile".to_owned(), ..module("NVDIMM", "", 16) };
        assert_eq!(key(&board(1, 1).module(lasting).says(17)), "memory.modules-fine");
        let nameless = MemoryModule { configured_mts: 0, ..module("DIMM_0", "", 16) };
        let tree = Tree::new().node(0, "0-3", 16).module(nameless).module(module("DIMM_1", "", 0));
        assert_eq!(key(&tree.says(17)), "memory.one-module-only");
    }

    #[test]
    fn empty_slots_whose_channels_nobody_names_are_no_finding() {
        // A letter before the number is the channel's: both slots are at one.
        let tree = Tree::new().node(0, "0-3", 32).module(module("DIMM_A1", "", 16)).module(module("DIMM_A2", "", 0));
        assert_eq!(key(&tree.says(17)), "memory.modules-fine");
    }

    #[test]
    fn modules_slower_than_they_are_made_for_are_told() {
        let slow = |configured| MemoryModule { configured_mts: configured, rated_mts: 1600, ..module("A1", "", 16) };
        let tree = |configured| Tree::new().node(0, "0-3", 32).module(slow(configured));
        let [finding] = &found(tree(1333).says(17))[..] else { panic!("one") };
        assert_eq!((finding.id.as_str(), finding.severity), ("memory-modules/speed", Severity::Warning));
        assert!(finding.evidence[0].value.contains("configured 1333 MT/s"));
        assert_eq!(found(tree(1500).says(17))[0].severity, Severity::Note);
        assert_eq!(key(&tree(1599).says(17)), "memory.modules-fine");
    }

    #[test]
    fn a_speed_told_in_clocks_is_not_half_a_speed() {
        let module = MemoryModule { configured_mts: 800, rated_mts: 1600, ..module("A1", "", 16) };
        assert_eq!(key(&Tree::new().node(0, "0-3", 32).module(module).says(17)), "memory.modules-fine");
    }

    #[test]
    fn nodes_with_unequal_memory_are_told_and_those_without_cpus_are_not_compared() {
        let [finding] = &found(Tree::new().node(0, "0-3", 64).node(1, "4-7", 32).says(17))[..] else { panic!("one") };
        assert_eq!(finding.id, "memory-modules/nodes");
        assert!(finding.evidence.iter().any(|evidence| evidence.source == "/sys/devices/system/node/node1/meminfo"));
        assert_eq!(Tree::new().node(0, "0-3", 64).node(1, "", 8).says(17), Verdict::NotHere);
        // What the kernel keeps of one node.
        assert_eq!(Tree::new().node(0, "0-3", 60).node(1, "4-7", 64).says(17), Verdict::NotHere);
    }

    #[test]
    fn modules_that_only_root_may_read_are_hidden() {
        let tree = two_nodes().hidden("/sys/firmware/dmi/entries/17-0/raw");
        assert_eq!(key(&tree.says(17)), "doctor.as-root");
        assert_eq!(two_nodes().says(17), Verdict::NotHere);
    }

    #[test]
    fn zone_reclaim_is_told_where_there_are_several_nodes() {
        const FILE: &str = "/proc/sys/vm/zone_reclaim_mode";
        let [finding] = &found(two_nodes().file(FILE, "1").says(21))[..] else { panic!("one") };
        assert_eq!((finding.id.as_str(), finding.evidence[0].source.as_str()), ("memory-policy/zone-reclaim", FILE));
        let write = Write { path: FILE.to_owned(), value: "0".to_owned() };
        assert!(matches!(&finding.remedies[0], Remedy::Apply { writes, .. } if *writes == [write]));
        assert_eq!(key(&two_nodes().file(FILE, "0").says(21)), "memory.policy-fine");
        assert_eq!(key(&Tree::new().node(0, "0-3", 4).file(FILE, "1").says(21)), "memory.policy-fine");
        assert_eq!(key(&two_nodes().hidden(FILE).says(21)), "doctor.as-root");
        assert_eq!(two_nodes().says(21), Verdict::NotHere);
    }

    #[test]
    fn balancing_is_told_only_while_a_server_is_held_to_one_node() {
        const FILE: &str = "/proc/sys/kernel/numa_balancing";
        let smbd = |allowed: &str| {
            two_nodes()
                .file(FILE, "1")
                .file("/proc/sys/vm/zone_reclaim_mode", "0")
                .file("/proc/77/comm", "smbd")
                .file("/proc/77/status", &format!("Name:\tsmbd\nCpus_allowed_list:\t{allowed}\n"))
        };
        assert_eq!(found(smbd("0-3").says(21))[0].id, "memory-policy/numa-balancing");
        assert_eq!(key(&smbd("0-7").says(21)), "memory.policy-fine");
        assert_eq!(key(&smbd("0-3").file(FILE, "2").says(21)), "memory.policy-fine");
    }

    #[test]
    fn making_room_for_huge_pages_at_each_fault_is_told_unless_there_are_none() {
        const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";
        let tree = || two_nodes().file(&format!("{FOLDER}/defrag"), "[always] defer defer+madvise madvise never");
        assert_eq!(found(tree().says(21))[0].id, "memory-policy/defrag");
        assert_eq!(
            key(&tree().file(&format!("{FOLDER}/enabled"), "always madvise [never]").says(21)),
            "memory.policy-fine"
        );
        assert_eq!(found(tree().virtual_machine().says(21))[0].check, 21);
    }
}
