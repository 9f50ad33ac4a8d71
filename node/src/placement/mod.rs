//! Data-path threads and their memory on the NUMA node where the daemon's interfaces and tiers are.
//!
//! ```text
//! look (files, addresses, volumes) -> plan (decides, touches nothing) -> each thread takes its seat; memory is preferred there
//! ```
//!
//! Made once, when the daemon starts. Interrupts are not moved: `forebay doctor --apply` does that, when it is told to. What cannot be had
//! (a container that forbids it) is said, and costs speed alone.

mod look;

use crate::log;
use crate::open::Opened;
use crate::volume_store::Store;
use anyhow::Result;
use forebay_api::config::Config;
use forebay_api::config::placement::Wish;
use forebay_api::placement::{Device, MemoryReport, PlacementReport, SeatReport};
use forebay_doctor::show::cpu_list;
use forebay_host::placement::{Facts, Plan, Seat, plan};
use forebay_host::system::System;
use forebay_host::topology;
use forebay_host::topology::locality::Locality;
use forebay_host::topology::{NodeNumber, locality};
use forebay_io::{Arena, Mapping, Reactor, numa};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// Share of a volume's memory on other nodes from which it is told: below, moving it gains less than the spread of a measurement.
const ELSEWHERE_SHARE: f64 = 0.20;
/// Fewer pages than an eighth of those that are looked at say nothing of the whole.
const PAGES_TO_JUDGE: u32 = 8;

/// Where data-path threads and their memory are, and why.
#[derive(Debug)]
pub struct Placement {
    plan: Plan,
    devices: Vec<Device>,
    warnings: Vec<String>,
    /// By shard: what could not be done.
    problems: Mutex<BTreeMap<usize, String>>,
    /// Memory of volumes, by name. Not kept: a mapping holds the lock of its tier.
    arenas: Mutex<BTreeMap<String, (NodeNumber, Weak<Mapping>)>>,
}

impl Placement {
    /// Of this process on this host, for so many data-path threads.
    pub fn of_this_host(config: &Config, store: &Store, shards: usize) -> Placement {
        let system = System::live();
        let wish = config.placement.wish();
        let free = |why: String| Placement::new(Plan::Free { why, unmet: false }, Vec::new());
        match look::has_nodes(&system) {
            Ok(true) => {}
            // The one there is may be another than what was asked for: the plan says it. It is small.
            Ok(false) if matches!(wish, Wish::Node(_)) => {}
            Ok(false) if wish == Wish::Off => {}
            Ok(false) => return free("this host has one NUMA node".to_owned()),
            Err(why) => return free(why),
        }
        let cpus = match numa::allowed_cpus() {
            Ok(cpus) => cpus,
            Err(why) => return free(format!("the kernel does not say which CPUs this process may use: {why}")),
        };
        let topology = topology::read(&system);
        let devices = look::devices(&system, &topology, config, store);
        let memory_nodes = look::memory_nodes(&system);
        let facts = Facts { topology: &topology, cpus: &cpus, memory_nodes: &memory_nodes, devices: &devices, shards };
        let plan = plan(&facts, wish);
        let mut warnings = said_wrongly(&topology.locality);
        if let Plan::Free { why, unmet: true } = &plan {
            warnings.push(why.clone());
        }
        Placement { warnings, ..Placement::new(plan, devices) }
    }

    fn new(plan: Plan, devices: Vec<Device>) -> Placement {
        Placement { plan, devices, warnings: Vec::new(), problems: Mutex::default(), arenas: Mutex::default() }
    }

    fn seat(&self, shard: usize) -> Option<&Seat> {
        match &self.plan {
            Plan::Free { .. } => None,
            Plan::Placed(seats) => seats.get(shard),
        }
    }

    /// What the operator should know: what is asked for and cannot be done.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Puts the calling thread in the place of a shard, before it has made anything. Threads that it starts stay there as well.
    pub fn take_seat(&self, shard: usize) {
        let Some(seat) = self.seat(shard) else { return };
        let cpus = cpu_list(seat.cpus.iter().copied());
        if let Err(why) = numa::stay_on(&seat.cpus) {
            self.failed(shard, format!("cannot keep the thread on the CPUs {cpus} of node {}: {why}", seat.node));
            return;
        }
        if let Some(node) = seat.memory
            && let Err(why) = numa::prefer(node)
        {
            // What a thread touches first is near it all the same.
            self.failed(
                shard,
                format!("cannot prefer memory of node {node}: {why}; a container must allow set_mempolicy"),
            );
        }
    }

    /// And what the kernel starts for its disk operations.
    pub fn seat_workers(&self, shard: usize, reactor: &Reactor) {
        if let Some(seat) = self.seat(shard)
            && let Err(why) = reactor.keep_workers_on(&seat.cpus)
        {
            self.failed(
                shard,
                format!("cannot keep io_uring's workers on the CPUs {}: {why}", cpu_list(seat.cpus.iter().copied())),
            );
        }
    }

    fn failed(&self, shard: usize, why: String) {
        log::say!(Warning, "data-path thread {shard}: {why}");
        lock(&self.problems).entry(shard).or_insert(why);
    }

    /// Whether a shard is where shards are wanted: of two that are equally full it is the better one.
    pub fn is_home(&self, shard: usize) -> bool {
        self.seat(shard).is_none_or(|seat| seat.home)
    }

    /// Where the memory of a shard's volumes is to be.
    pub fn memory_node(&self, shard: usize) -> Option<NodeNumber> {
        self.seat(shard)?.memory
    }

    /// Does work that may touch memory for the first time, of a volume whose memory is to be on a node.
    pub fn near<T>(&self, node: Option<NodeNumber>, work: impl FnOnce() -> T) -> T {
        // Where it cannot be preferred the shard's thread has said so.
        let _preferring = node.and_then(|node| numa::Preferring::node(node).ok());
        work()
    }

    /// Opens a volume of this node whose memory is to be on a node, and says where it is.
    pub fn open(&self, node: Option<NodeNumber>, open: impl FnOnce() -> Result<Opened>) -> Result<Opened> {
        let mut opened = self.near(node, open)?;
        opened.memory_node = node;
        opened.remarks.extend(self.has_memory(&opened.record.name, node, &opened.volume.arena));
        Ok(opened)
    }

    /// A volume has this memory, which was to be on a node. What there is to be said of where it is.
    pub fn has_memory(&self, volume: &str, node: Option<NodeNumber>, arena: &Arena) -> Option<String> {
        let node = node?;
        // Where it cannot be had the shard's thread has said so: what forbids the one forbids the other.
        let _ = numa::prefer_for(arena.mapping(), node);
        lock(&self.arenas).insert(volume.to_owned(), (node, std::sync::Arc::downgrade(arena.mapping())));
        let memory = memory_report(volume, node, arena.mapping())?;
        memory.elsewhere.then(|| {
            format!(
                "its memory is on the nodes {}, and its data-path thread is near node {node}: that node had no room for it, or an \
                 earlier daemon has left it elsewhere; each access passes the link between nodes",
                memory.pages_shown()
            )
        })
    }

    /// What is told of where threads and memory are.
    pub fn report(&self) -> PlacementReport {
        let (placed, why) = match &self.plan {
            Plan::Free { why, .. } => (false, Some(why.clone())),
            Plan::Placed(_) => (true, None),
        };
        let seats = match &self.plan {
            Plan::Free { .. } => &[][..],
            Plan::Placed(seats) => &seats[..],
        };
        let problems = lock(&self.problems);
        let thread = |(shard, seat): (usize, &Seat)| SeatReport {
            shard: shard as u32,
            node: seat.node,
            cpus: cpu_list(seat.cpus.iter().copied()),
            memory_node: seat.memory,
            why: seat.why.clone(),
            problem: problems.get(&shard).cloned(),
        };
        let mut arenas = lock(&self.arenas);
        arenas.retain(|_, (_, mapping)| mapping.strong_count() > 0);
        let memory = arenas.iter().filter_map(|(volume, (node, mapping))| {
            let mapping = mapping.upgrade()?;
            memory_report(volume, *node, &mapping)
        });
        PlacementReport {
            placed,
            why,
            devices: self.devices.clone(),
            threads: seats.iter().enumerate().map(thread).collect(),
            memory: memory.collect(),
        }
    }
}

fn said_wrongly(locality: &Locality) -> Vec<String> {
    let faults = locality.faults.iter().map(|line| {
        format!(
            "{}: {line:?} counts for nothing: write PCI buses or one function, and a NUMA node that this host has, such as \
             0000:40-46 1",
            locality::FILE
        )
    });
    let hidden = locality.hidden.iter().map(|why| format!("where devices are cannot be read: {why}"));
    faults.chain(hidden).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// None where the kernel does not tell.
fn memory_report(volume: &str, node: NodeNumber, mapping: &Mapping) -> Option<MemoryReport> {
    let pages = numa::nodes_of(mapping).ok()?;
    let all: u32 = pages.values().sum();
    let here = pages.get(&node).copied().unwrap_or(0);
    let elsewhere = all >= PAGES_TO_JUDGE && f64::from(all - here) > ELSEWHERE_SHARE * f64::from(all);
    Some(MemoryReport { volume: volume.to_owned(), node, pages, elsewhere })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(node: NodeNumber, home: bool) -> Seat {
        Seat { node, cpus: vec![0, 1], memory: Some(node), home, why: "near ens1 (clients)".to_owned() }
    }

    #[test]
    fn what_is_placed_is_told_by_thread_and_neighbours_share_a_line() {
        let placement = Placement::new(Plan::Placed(vec![seat(0, true), seat(0, true), seat(1, false)]), Vec::new());
        let lines = placement.report().lines();
        assert_eq!(
            lines,
            [
                "threads 0-1 on node 0 (CPUs 0-1): near ens1 (clients)",
                "threads 2 on node 1 (CPUs 0-1): near ens1 (clients)"
            ]
        );
        assert_eq!((placement.is_home(1), placement.is_home(2)), (true, false));
        assert_eq!((placement.memory_node(2), placement.memory_node(3)), (Some(1), None));
    }

    #[test]
    fn memory_elsewhere_is_told_and_that_of_a_volume_that_is_gone_is_forgotten() {
        let placement = Placement::new(Plan::Placed(vec![seat(0, true)]), Vec::new());
        let arena = Arena::anonymous(1000, true).expect("memory");
        let Ok(nodes) = numa::nodes_of(arena.mapping()) else {
            return forebay_tests::harness::skip("the kernel does not say where pages are (move_pages)");
        };
        let here = *nodes.keys().next().expect("it was touched");
        assert_eq!(placement.has_memory("near", Some(here), &arena), None);
        let remark = placement.has_memory("far", Some(here + 1), &arena).expect("it is not there");
        assert!(remark.contains(&format!("on the nodes {here} (")), "{remark}");
        assert_eq!(placement.has_memory("free", None, &arena), None);
        let report = placement.report();
        let told: Vec<(&str, bool)> = report.memory.iter().map(|m| (m.volume.as_str(), m.elsewhere)).collect();
        assert_eq!(told, [("far", true), ("near", false)]);
        assert!(report.lines()[1].starts_with("volume far: its memory is on the nodes"), "{:?}", report.lines());
        drop(arena);
        assert_eq!(placement.report().memory, []);
    }

    #[test]
    fn a_thread_takes_its_seat_and_says_what_it_could_not_have() {
        let Ok(cpus) = numa::allowed_cpus() else { panic!("any kernel says that") };
        let last = *cpus.last().expect("it runs somewhere");
        let placed = Seat { cpus: vec![last], memory: None, ..seat(0, true) };
        let not_there = Seat { cpus: vec![8000], ..seat(7, true) };
        let placement = Placement::new(Plan::Placed(vec![placed, not_there]), Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                placement.take_seat(0);
                assert_eq!(numa::allowed_cpus().expect("asked"), [last]);
                placement.take_seat(1);
                assert_eq!(numa::allowed_cpus().expect("asked"), [last]);
            });
        });
        let report = placement.report();
        assert_eq!(report.threads[0].problem, None);
        let problem = report.threads[1].problem.as_ref().expect("there is no such CPU");
        assert!(problem.starts_with("cannot keep the thread on the CPUs 8000 of node 7: "), "{problem}");
    }

    #[test]
    fn nothing_is_done_where_nothing_is_placed() {
        let placement = Placement::new(Plan::Free { why: "one node".to_owned(), unmet: false }, Vec::new());
        let before = numa::allowed_cpus().expect("asked");
        placement.take_seat(0);
        assert_eq!(numa::allowed_cpus().expect("asked"), before);
        assert_eq!((placement.memory_node(0), placement.is_home(0)), (None, true));
        assert_eq!(placement.report().lines(), ["left to the kernel: one node"]);
    }
}
