//! Data-path threads and their memory on the NUMA node where the daemon's interfaces and tiers are.
//!
//! ```text
//! look (files, addresses, volumes) -> plan (decides, touches nothing) -> each thread takes its seat; memory is preferred there
//! ```
//!
//! Made once, when the daemon starts. Interrupts are not moved: `forebay doctor --apply` does that, when it is told to. What cannot be had
//! (a container that forbids it) is said, and costs speed alone.

mod look;
pub mod plan;

use crate::config::Config;
use crate::doctor::checks::show::cpu_list;
use crate::doctor::system::System;
use crate::doctor::topology::locality::{self, Locality};
use crate::doctor::topology::{self, NodeNumber};
use crate::open::Opened;
use crate::volume_store::Store;
use anyhow::Result;
use forebay_io::{Arena, Mapping, Reactor, numa};
use plan::{Device, Facts, Plan, Seat, Wish, plan};
use serde::{Deserialize, Serialize};
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
        eprintln!("forebay: warning: data-path thread {shard}: {why}");
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
        let memory = MemoryReport::of(volume, node, arena.mapping())?;
        memory.elsewhere.then(|| {
            format!(
                "its memory is on the nodes {}, and its data-path thread is near node {node}: that node had no room for it, or an \
                 earlier daemon has left it elsewhere; each access passes the link between nodes",
                memory.pages_shown()
            )
        })
    }

    /// What is told.
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
            MemoryReport::of(volume, *node, &mapping)
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

/// Where data-path threads and their memory are, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlacementReport {
    /// Threads and memory have a node each; else the kernel places them.
    pub placed: bool,
    /// Why nothing is placed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// What was looked at.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub devices: Vec<Device>,
    /// The data-path threads; links are the first one's.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub threads: Vec<SeatReport>,
    /// Where the volumes' memory is in truth.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub memory: Vec<MemoryReport>,
}

/// One of everything, for the tests of what is made of reports.
#[cfg(test)]
pub(crate) fn example() -> PlacementReport {
    let device = Device { name: "ens1".into(), role: plan::Role::Client, node: Some(0), weight: 0 };
    let thread = SeatReport {
        shard: 0,
        node: 0,
        cpus: "0-3".into(),
        memory_node: Some(0),
        why: "near ens1 (clients)".into(),
        problem: Some("refused".into()),
    };
    let memory = MemoryReport { volume: "vm1".into(), node: 0, pages: [(0, 64)].into(), elsewhere: false };
    let why = Some("why".into());
    PlacementReport { placed: true, why, devices: vec![device], threads: vec![thread], memory: vec![memory] }
}

/// A data-path thread's place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeatReport {
    /// Its number.
    pub shard: u32,
    /// Its node.
    pub node: NodeNumber,
    /// Where it may run.
    pub cpus: String,
    /// Where its memory comes from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_node: Option<NodeNumber>,
    /// Why there.
    pub why: String,
    /// What could not be done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
}

/// Where a volume's memory is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// Its name.
    pub volume: String,
    /// Where it is to be.
    pub node: NodeNumber,
    /// Pages that were looked at, by node: some all over it.
    pub pages: BTreeMap<NodeNumber, u32>,
    /// More than a fifth of them is on other nodes.
    pub elsewhere: bool,
}

impl MemoryReport {
    /// None where the kernel does not tell.
    fn of(volume: &str, node: NodeNumber, mapping: &Mapping) -> Option<MemoryReport> {
        let pages = numa::nodes_of(mapping).ok()?;
        let all: u32 = pages.values().sum();
        let here = pages.get(&node).copied().unwrap_or(0);
        let elsewhere = all >= PAGES_TO_JUDGE && f64::from(all - here) > ELSEWHERE_SHARE * f64::from(all);
        Some(MemoryReport { volume: volume.to_owned(), node, pages, elsewhere })
    }

    /// As in `0 (48 of 64 pages), 1 (16 of 64 pages)`.
    pub fn pages_shown(&self) -> String {
        let all: u32 = self.pages.values().sum();
        let shown = self.pages.iter().map(|(node, pages)| format!("{node} ({pages} of {all} pages)"));
        shown.collect::<Vec<String>>().join(", ")
    }
}

impl PlacementReport {
    /// Lines for people.
    pub fn lines(&self) -> Vec<String> {
        if !self.placed {
            let why = self.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            return vec![format!("left to the kernel{why}")];
        }
        let mut lines: Vec<String> = Vec::new();
        let mut threads = self.threads.iter().peekable();
        // Neighbours that differ in nothing share a line.
        while let Some(first) = threads.next() {
            let same = |other: &&SeatReport| SeatReport { shard: first.shard, ..(*other).clone() } == *first;
            let mut last = first.shard;
            while let Some(next) = threads.next_if(same) {
                last = next.shard;
            }
            let shards = if last == first.shard { last.to_string() } else { format!("{}-{last}", first.shard) };
            let memory = match first.memory_node {
                Some(node) if node == first.node => String::new(),
                Some(node) => format!(", memory of node {node}"),
                None => ", memory anywhere".to_owned(),
            };
            lines.push(format!("threads {shards} on node {} (CPUs {}){memory}: {}", first.node, first.cpus, first.why));
            lines.extend(first.problem.clone());
        }
        let elsewhere = self.memory.iter().filter(|memory| memory.elsewhere);
        lines.extend(elsewhere.map(|memory| {
            format!(
                "volume {}: its memory is on the nodes {}, not on {}",
                memory.volume,
                memory.pages_shown(),
                memory.node
            )
        }));
        lines
    }
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
