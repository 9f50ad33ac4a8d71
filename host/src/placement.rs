//! On which NUMA node each data-path thread runs and has its memory: a function of what is known, which touches nothing.
//!
//! Rules:
//! - A thread gets all CPUs of a node that the process may use, not one of them: guests and other services share the host, and the scheduler
//!   sees what they do. What costs is the way to the other node, not the next core.
//! - The first thread has the cluster's links, so it goes where their interfaces are; the others where the clients' are. Which of several
//!   nodes that leave open the next kind of device decides: clients' interfaces, links', tiers.
//! - Data comes and goes by an interface, and both its interrupts and the copies are the CPU's work; a disk reads and writes memory by
//!   itself. So a tier on another node than the interface moves nothing.
//! - No node gets more threads than CPUs while another has some left.
//! - Where anything of this is not known, or cannot be true, nothing is placed: the kernel's own placement is no worse than a guess.

use crate::topology::{Cpu, NodeNumber, Topology, cpu_list};
use forebay_api::config::placement::Wish;
use forebay_api::placement::{Device, Role};
use std::collections::BTreeMap;

/// All that the plan is made of.
pub struct Facts<'a> {
    /// CPUs, nodes and devices of the host.
    pub topology: &'a Topology,
    /// CPUs that the process may use: its affinity, within its cpuset.
    pub cpus: &'a [Cpu],
    /// Nodes whose memory it may use.
    pub memory_nodes: &'a [NodeNumber],
    /// Devices that data goes through.
    pub devices: &'a [Device],
    /// How many data-path threads are to be placed.
    pub shards: usize,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Nothing: the kernel places threads and memory.
    Free {
        /// Why nothing is placed, in words for people.
        why: String,
        /// The configuration asks for something that cannot be done.
        unmet: bool,
    },
    /// Each thread has its place.
    Placed(Vec<Seat>),
}

/// The place of a data-path thread and of the memory of its volumes.
#[derive(Clone, Debug, PartialEq)]
pub struct Seat {
    /// The NUMA node that the thread gets.
    pub node: NodeNumber,
    /// CPUs of that which the process may use.
    pub cpus: Vec<Cpu>,
    /// Where its memory comes from; none: nowhere near is any that the process may use.
    pub memory: Option<NodeNumber>,
    /// It is where it was wanted, and not where there was room.
    pub home: bool,
    /// Why it is there, in words for people.
    pub why: String,
}

/// Makes the plan of where threads and memory are to be.
pub fn plan(facts: &Facts<'_>, wish: Wish) -> Plan {
    let free = |why: String| Plan::Free { why, unmet: false };
    if wish == Wish::Off {
        return free("[placement] mode = \"off\"".to_owned());
    }
    let topology = facts.topology;
    let mut nodes: BTreeMap<NodeNumber, Vec<Cpu>> = BTreeMap::new();
    for (&cpu, place) in &topology.cpus {
        nodes.entry(place.node).or_default().push(cpu);
    }
    let all: Vec<NodeNumber> = nodes.keys().copied().collect();
    for cpus in nodes.values_mut() {
        cpus.retain(|cpu| facts.cpus.contains(cpu));
    }
    nodes.retain(|_, cpus| !cpus.is_empty());
    if let Wish::Node(node) = wish
        && !nodes.contains_key(&node)
    {
        let what = match (all.contains(&node), topology.nodes.contains_key(&node)) {
            (true, _) => "its affinity or cpuset keeps this process from the CPUs of that node",
            (false, true) => "that node has memory only, and no CPUs",
            (false, false) => "this host has no such node",
        };
        return Plan::Free { why: format!("[placement] node = {node}, but {what}: nothing is placed"), unmet: true };
    }
    match (&all[..], nodes.len()) {
        ([] | [_], _) => return free("this host has one NUMA node".to_owned()),
        (_, 0) => return free("none of the CPUs that this process may use is known".to_owned()),
        (_, 1) => {
            let (node, cpus) = nodes.first_key_value().expect("there is one");
            let cpus = cpu_list(cpus.iter().copied());
            return free(format!(
                "affinity or cpuset keep this process on node {node} already (CPUs {cpus}), and its memory is taken near by"
            ));
        }
        _ => {}
    }
    // Each CPU is in one node, or the firmware's tables are wrong (or made up: numa=fake).
    let listed: usize = topology.nodes.values().map(|node| node.cpus.len()).sum();
    let known = |(cpu, node): (&Cpu, NodeNumber)| topology.nodes.get(&node).is_some_and(|node| node.cpus.contains(cpu));
    if listed != topology.cpus.len() || !topology.cpus.iter().map(|(cpu, place)| (cpu, place.node)).all(known) {
        return free("the host's tables give CPUs to several NUMA nodes, or to none".to_owned());
    }
    let seat = |node: NodeNumber, home: bool, why: String| Seat {
        node,
        cpus: nodes[&node].clone(),
        memory: memory_near(facts, node),
        home,
        why,
    };
    if let Wish::Node(node) = wish {
        return Plan::Placed(vec![seat(node, true, format!("[placement] node = {node}")); facts.shards]);
    }
    let usable: Vec<NodeNumber> = nodes.keys().copied().collect();
    let first = choose(facts, &usable, [Role::Link, Role::Client, Role::Tier]);
    let others = choose(facts, &usable, [Role::Client, Role::Link, Role::Tier]);
    let (Some(first), Some(others)) = (first.clone().or(others.clone()), others.or(first)) else {
        return free(undecided(facts.devices));
    };
    let homes = (0..facts.shards).map(|shard| if shard == 0 { &first } else { &others });
    let at_homes = near_homes(topology, &nodes, homes);
    Plan::Placed(at_homes.into_iter().map(|(node, home, why)| seat(node, home, why)).collect())
}

/// A node for each thread, the nearest to its home that has a CPU left for it; whether that is its home, and why there.
fn near_homes<'a>(
    topology: &Topology,
    nodes: &BTreeMap<NodeNumber, Vec<Cpu>>,
    homes: impl Iterator<Item = &'a Home>,
) -> Vec<(NodeNumber, bool, String)> {
    let mut left: BTreeMap<NodeNumber, usize> = nodes.iter().map(|(node, cpus)| (*node, cpus.len())).collect();
    let mut near = Vec::new();
    for home in homes {
        let mut by_distance: Vec<NodeNumber> = nodes.keys().copied().collect();
        by_distance.sort_by_key(|node| (*node != home.node, distance(topology, home.node, *node), *node));
        let roomy = by_distance.into_iter().find(|node| left[node] > 0);
        let node = roomy.unwrap_or(home.node);
        left.entry(node).and_modify(|left| *left = left.saturating_sub(1));
        let why = if node == home.node {
            home.why.clone()
        } else {
            format!(
                "node {} has {} CPUs for this process, and as many data-path threads",
                home.node,
                nodes[&home.node].len()
            )
        };
        near.push((node, node == home.node, why));
    }
    near
}

/// A node, and why that one.
#[derive(Clone)]
struct Home {
    node: NodeNumber,
    why: String,
}

/// The node for which most of the first kind of device speaks; of several the one for which the next kind does.
fn choose(facts: &Facts<'_>, usable: &[NodeNumber], order: [Role; 3]) -> Option<Home> {
    let mut open: Option<Vec<NodeNumber>> = None;
    let mut deciding = order[0];
    for role in order {
        let mut votes: BTreeMap<NodeNumber, u64> = BTreeMap::new();
        for device in facts.devices.iter().filter(|device| device.role == role) {
            if let Some(node) = device.node.and_then(|node| usable_near(facts.topology, node, usable)) {
                *votes.entry(node).or_default() += device.weight.max(1);
            }
        }
        let Some(most) = votes.values().max() else { continue };
        let favourites: Vec<NodeNumber> = votes.iter().filter(|(_, of)| *of == most).map(|(node, _)| *node).collect();
        let both = open.as_ref().map(|open| favourites.iter().filter(|node| open.contains(node)).copied().collect());
        open = match both {
            None => Some(favourites),
            Some(both) if Vec::is_empty(&both) => open,
            Some(both) => Some(both),
        };
        deciding = role;
        if open.as_ref().is_some_and(|open| open.len() == 1) {
            break;
        }
    }
    match &open?[..] {
        [node] => Some(Home { node: *node, why: reason(facts, *node, deciding, usable) }),
        _ => None,
    }
}

/// The devices that decided, and those of other kinds that are elsewhere.
fn reason(facts: &Facts<'_>, node: NodeNumber, deciding: Role, usable: &[NodeNumber]) -> String {
    let near = |device: &&Device| device.node.and_then(|at| usable_near(facts.topology, at, usable)) == Some(node);
    let names = |devices: Vec<&Device>| {
        let shown: Vec<String> =
            devices.iter().map(|device| format!("{} ({})", device.name, device.role.words())).collect();
        shown.join(", ")
    };
    let here = facts.devices.iter().filter(|device| device.role == deciding).filter(near).collect();
    let far: Vec<&Device> = facts.devices.iter().filter(|device| device.node.is_some() && !near(device)).collect();
    let mut why = format!("near {}", names(here));
    if !far.is_empty() {
        why += &format!("; {} elsewhere: its bytes pass the link between nodes", names(far));
    }
    why
}

fn undecided(devices: &[Device]) -> String {
    if devices.is_empty() {
        return "neither links, nor clients over TCP, nor a flash tier are at a node: nothing speaks for one"
            .to_owned();
    }
    let shown = devices.iter().map(|device| {
        let at = device.node.map_or("unknown".to_owned(), |node| node.to_string());
        format!("{} ({}): {at}", device.name, device.role.words())
    });
    let shown: Vec<String> = shown.collect();
    format!("nothing speaks for one node more than for another; nodes of what is used are {}", shown.join(", "))
}

fn distance(topology: &Topology, from: NodeNumber, to: NodeNumber) -> u32 {
    let distances = topology.nodes.get(&from).map(|node| &node.distances);
    distances.and_then(|distances| distances.get(&to).copied()).unwrap_or(u32::MAX)
}

/// The node itself where its CPUs can be used, else the only nearest one of which they can.
fn usable_near(topology: &Topology, node: NodeNumber, usable: &[NodeNumber]) -> Option<NodeNumber> {
    if usable.contains(&node) {
        return Some(node);
    }
    nearest(topology, node, usable).filter(|_| topology.nodes.contains_key(&node))
}

/// None where several are as near, or the distances are not known.
fn nearest(topology: &Topology, from: NodeNumber, among: &[NodeNumber]) -> Option<NodeNumber> {
    let least = among.iter().map(|to| distance(topology, from, *to)).min().filter(|least| *least < u32::MAX)?;
    let mut nearest = among.iter().filter(|to| distance(topology, from, **to) == least);
    let only = nearest.next().copied();
    only.filter(|_| nearest.next().is_none())
}

/// The node's own memory, or what is nearest to it.
fn memory_near(facts: &Facts<'_>, node: NodeNumber) -> Option<NodeNumber> {
    let has_memory = |at: &NodeNumber| facts.topology.nodes.get(at).is_some_and(|node| node.memory_bytes > 0);
    let with_memory: Vec<NodeNumber> = facts.memory_nodes.iter().copied().filter(has_memory).collect();
    if with_memory.contains(&node) { Some(node) } else { nearest(facts.topology, node, &with_memory) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;
    use crate::topology::read;

    fn two_sockets() -> Topology {
        read(&Tree::new().node(0, "0-7", 16).node(1, "8-15", 16).system())
    }

    fn device(name: &str, role: Role, node: Option<NodeNumber>) -> Device {
        Device { name: name.to_owned(), role, node, weight: 10 }
    }

    fn all_cpus(topology: &Topology) -> Vec<Cpu> {
        topology.cpus.keys().copied().collect()
    }

    fn made(topology: &Topology, devices: &[Device], shards: usize, wish: Wish) -> Plan {
        let memory_nodes: Vec<NodeNumber> = topology.nodes.keys().copied().collect();
        let facts = Facts { topology, cpus: &all_cpus(topology), memory_nodes: &memory_nodes, devices, shards };
        plan(&facts, wish)
    }

    fn seats(plan: Plan) -> Vec<Seat> {
        match plan {
            Plan::Placed(seats) => seats,
            Plan::Free { why, .. } => panic!("not placed: {why}"),
        }
    }

    fn free(plan: Plan) -> String {
        match plan {
            Plan::Free { why, unmet: false } => why,
            other => panic!("{other:?}"),
        }
    }

    fn nodes(seats: &[Seat]) -> Vec<NodeNumber> {
        seats.iter().map(|seat| seat.node).collect()
    }

    #[test]
    fn threads_go_to_the_interfaces_node_and_a_disk_elsewhere_is_told_and_moves_nothing() {
        let devices = [device("ens1", Role::Client, Some(0)), device("nvme0n1", Role::Tier, Some(1))];
        let seats = seats(made(&two_sockets(), &devices, 3, Wish::Auto));
        assert_eq!(nodes(&seats), [0, 0, 0]);
        assert_eq!((seats[0].cpus.as_slice(), seats[0].memory), (&[0, 1, 2, 3, 4, 5, 6, 7][..], Some(0)));
        assert_eq!(
            seats[2].why,
            "near ens1 (clients); nvme0n1 (tier) elsewhere: its bytes pass the link between nodes"
        );
    }

    #[test]
    fn the_thread_with_the_links_goes_to_their_interfaces_and_the_others_to_the_clients() {
        let devices = [device("ib0", Role::Link, Some(1)), device("ens1", Role::Client, Some(0))];
        let seats = seats(made(&two_sockets(), &devices, 3, Wish::Auto));
        assert_eq!(nodes(&seats), [1, 0, 0]);
        assert!(seats[0].why.starts_with("near ib0 (links)"), "{}", seats[0].why);
    }

    #[test]
    fn a_tier_decides_where_no_interface_does_and_between_two_that_are_alike() {
        let tier = device("nvme0n1", Role::Tier, Some(1));
        assert_eq!(nodes(&seats(made(&two_sockets(), std::slice::from_ref(&tier), 2, Wish::Auto))), [1, 1]);
        let unknown = [device("ens1", Role::Client, None), tier.clone()];
        assert_eq!(nodes(&seats(made(&two_sockets(), &unknown, 1, Wish::Auto))), [1]);
        let alike = [device("ens1", Role::Client, Some(0)), device("ens2", Role::Client, Some(1)), tier];
        assert_eq!(nodes(&seats(made(&two_sockets(), &alike, 1, Wish::Auto))), [1]);
        let faster = Device { weight: 100, ..alike[0].clone() };
        let seats = seats(made(&two_sockets(), &[faster, alike[1].clone(), alike[2].clone()], 1, Wish::Auto));
        assert_eq!(nodes(&seats), [0]);
        assert!(seats[0].why.contains("ens2 (clients), nvme0n1 (tier) elsewhere"), "{}", seats[0].why);
    }

    #[test]
    fn where_nothing_speaks_for_one_node_nothing_is_placed() {
        let nothing = free(made(&two_sockets(), &[], 2, Wish::Auto));
        assert!(nothing.contains("nothing speaks for one"), "{nothing}");
        let unknown = free(made(&two_sockets(), &[device("ens1", Role::Client, None)], 2, Wish::Auto));
        assert!(unknown.ends_with("ens1 (clients): unknown"), "{unknown}");
        let alike = [device("ens1", Role::Client, Some(0)), device("ens2", Role::Client, Some(1))];
        let why = free(made(&two_sockets(), &alike, 2, Wish::Auto));
        assert!(why.ends_with("ens1 (clients): 0, ens2 (clients): 1"), "{why}");
    }

    #[test]
    fn hosts_with_one_node_and_those_that_show_none_are_left_alone() {
        let devices = [device("ens1", Role::Client, Some(0))];
        let one = read(&Tree::new().node(0, "0-7", 16).system());
        assert_eq!(free(made(&one, &devices, 2, Wish::Auto)), "this host has one NUMA node");
        // Memory alone, such as CXL's, makes no second node for threads.
        let with_memory = read(&Tree::new().node(0, "0-7", 16).node(1, "", 64).system());
        assert_eq!(free(made(&with_memory, &devices, 2, Wish::Auto)), "this host has one NUMA node");
        assert_eq!(free(made(&Topology::default(), &devices, 2, Wish::Auto)), "this host has one NUMA node");
        assert_eq!(free(made(&two_sockets(), &devices, 2, Wish::Off)), "[placement] mode = \"off\"");
    }

    #[test]
    fn a_cpuset_of_one_node_leaves_nothing_to_do_and_one_of_parts_is_kept_within() {
        let topology = two_sockets();
        let devices = [device("ens1", Role::Client, Some(0))];
        let in_set = |cpus: &[Cpu], memory_nodes: &[NodeNumber], wish| {
            plan(&Facts { topology: &topology, cpus, memory_nodes, devices: &devices, shards: 3 }, wish)
        };
        let why = free(in_set(&[8, 9, 10], &[1], Wish::Auto));
        assert!(why.contains("on node 1 already (CPUs 8-10)"), "{why}");
        let seats = seats(in_set(&[6, 7, 8, 9], &[1], Wish::Auto));
        // Two CPUs of node 0 for three threads; its memory is not in the set, and that of the other node is the nearest.
        assert_eq!(nodes(&seats), [0, 0, 1]);
        assert_eq!((seats[0].cpus.as_slice(), seats[0].memory), (&[6, 7][..], Some(1)));
        assert_eq!(
            (seats[2].home, seats[2].why.as_str()),
            (false, "node 0 has 2 CPUs for this process, and as many data-path threads")
        );
        let none = in_set(&[6, 7, 8], &[], Wish::Auto);
        assert!(matches!(none, Plan::Placed(seats) if seats.iter().all(|seat| seat.memory.is_none())));
        let kept_away = in_set(&[8, 9], &[1], Wish::Node(0));
        assert!(
            matches!(&kept_away, Plan::Free { why, unmet: true } if why.contains("keeps this process from the CPUs")),
            "{kept_away:?}"
        );
        assert_eq!(free(in_set(&[100], &[0, 1], Wish::Auto)), "none of the CPUs that this process may use is known");
    }

    #[test]
    fn a_node_that_is_asked_for_gets_all_threads_and_one_that_is_not_there_is_told() {
        let devices = [device("ens1", Role::Client, Some(0))];
        let seats = seats(made(&two_sockets(), &devices, 12, Wish::Node(1)));
        assert!(seats.iter().all(|seat| seat.node == 1 && seat.home && seat.why == "[placement] node = 1"));
        let unmet = |topology: &Topology, node, why: &str| match made(topology, &devices, 1, Wish::Node(node)) {
            Plan::Free { why: said, unmet: true } => assert!(said.contains(why), "{said}"),
            other => panic!("{other:?}"),
        };
        unmet(&two_sockets(), 7, "this host has no such node");
        unmet(&read(&Tree::new().node(0, "0-7", 16).node(1, "8-15", 16).node(2, "", 64).system()), 2, "memory only");
        let one = read(&Tree::new().node(0, "0-7", 16).system());
        unmet(&one, 1, "this host has no such node");
        assert_eq!(free(made(&one, &devices, 1, Wish::Node(0))), "this host has one NUMA node");
    }

    #[test]
    fn a_node_without_memory_takes_that_of_the_only_nearest() {
        let topology = read(&Tree::new().node(0, "0-3", 0).node(1, "4-7", 16).system());
        let devices = [device("ens1", Role::Client, Some(0))];
        let seats = seats(made(&topology, &devices, 1, Wish::Auto));
        assert_eq!((seats[0].node, seats[0].memory), (0, Some(1)));
    }

    #[test]
    fn a_device_at_a_node_without_cpus_counts_for_the_nearest_and_for_none_where_several_are_as_near() {
        let three = |distances: &str| {
            let tree = Tree::new().node(0, "0-3", 4).node(1, "4-7", 4).node(2, "", 4);
            read(&tree.file("/sys/devices/system/node/node2/distance", distances).system())
        };
        let devices = [device("ens1", Role::Client, Some(2))];
        assert_eq!(nodes(&seats(made(&three("31 20 10"), &devices, 1, Wish::Auto))), [1]);
        free(made(&three("20 20 10"), &devices, 1, Wish::Auto));
        // Nor for one that the host does not have.
        free(made(&two_sockets(), &[device("ens1", Role::Client, Some(9))], 1, Wish::Auto));
    }

    #[test]
    fn tables_that_give_a_cpu_to_several_nodes_place_nothing() {
        let topology = read(&Tree::new().node(0, "0-3", 4).node(1, "0-3", 4).node(2, "4-7", 4).system());
        let why = free(made(&topology, &[device("ens1", Role::Client, Some(2))], 1, Wish::Auto));
        assert!(why.contains("several NUMA nodes"), "{why}");
    }

    /// All hosts of up to four nodes of two CPUs, all cpusets of them that are whole or half nodes, all places of an interface and a disk,
    /// all numbers of threads.
    #[test]
    fn no_plan_leaves_what_the_process_may_use_nor_crowds_a_node_while_another_has_room() {
        let mut placed = 0;
        for count in 1..=4u32 {
            let tree = (0..count)
                .fold(Tree::new(), |tree, node| tree.node(node, &format!("{}-{}", 2 * node, 2 * node + 1), 4));
            let topology = read(&tree.system());
            for set in 0..3u32.pow(count) {
                let share = |node: u32| set / 3u32.pow(node) % 3;
                let cpus: Vec<Cpu> = (0..count).flat_map(|node| 2 * node..2 * node + share(node)).collect();
                let memory_nodes: Vec<NodeNumber> = (0..count).filter(|node| share(*node) != 1).collect();
                for (interface, disk) in (0..=count).flat_map(|one| (0..=count).map(move |other| (one, other))) {
                    let known = |node: u32| Some(node).filter(|node| *node < count);
                    let devices =
                        [device("ens1", Role::Client, known(interface)), device("sda", Role::Tier, known(disk))];
                    for shards in [1, 2, 3, 8] {
                        let facts = Facts {
                            topology: &topology,
                            cpus: &cpus,
                            memory_nodes: &memory_nodes,
                            devices: &devices,
                            shards,
                        };
                        let Plan::Placed(seats) = plan(&facts, Wish::Auto) else { continue };
                        placed += 1;
                        assert_eq!(seats.len(), shards);
                        let used = |node: NodeNumber| seats.iter().filter(|seat| seat.node == node).count();
                        let has = |node: NodeNumber| {
                            topology.nodes[&node].cpus.iter().filter(|cpu| cpus.contains(cpu)).count()
                        };
                        for seat in &seats {
                            assert!(!seat.cpus.is_empty() && seat.cpus.iter().all(|cpu| cpus.contains(cpu)));
                            assert!(seat.cpus.iter().all(|cpu| topology.cpus[cpu].node == seat.node));
                            assert!(seat.memory.is_none_or(|node| memory_nodes.contains(&node)));
                            assert!(!memory_nodes.contains(&seat.node) || seat.memory == Some(seat.node));
                            let crowded = used(seat.node) > has(seat.node);
                            assert!(!crowded || (0..count).all(|node| used(node) >= has(node)), "{seats:?}");
                        }
                        let home = known(interface).filter(|node| has(*node) > 0);
                        assert!(home.is_none_or(|home| seats[0].node == home), "{seats:?}");
                    }
                }
            }
        }
        assert!(placed > 1000, "{placed}");
    }
}
