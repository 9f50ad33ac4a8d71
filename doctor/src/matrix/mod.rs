//! `forebay doctor matrix`: memory bandwidth and latency between NUMA nodes, latency under load, and from core to core.
//!
//! ```text
//! thread on a CPU -> memory bound to a node -> first touch -> looked at where it is -> warm -> counted in common windows
//! ```
//!
//! Each figure is a median of several windows with their spread. A cell whose memory is not where it was asked for is an error, and no figure.

mod cores;
mod kernels;
mod place;
pub mod report;
mod run;

pub use cores::{Pair, Relation};
pub use kernels::Mix;
pub use report::table;

use super::findings::Sentence;
use super::words::{Language, say};
use anyhow::{Context, Result, bail};
use forebay_host::system::System;
use forebay_host::topology::{Cpu, NodeNumber, NumaNode, Topology};
use kernels::Kernels;
use run::{Counted, Task, Windows, Worker};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Where a measurement is kept for `forebay doctor`, which compares with it. It belongs to one boot: firmware may change between two.
pub const KEPT: &str = "/var/lib/forebay-doctor/matrix.json";

/// Buffers together are so many times the caches that the measuring cores have. Of four times, a cache that does not simply drop what was
/// used longest ago still has some when it comes round again: on a Zen with 32 MiB reads were 14 % faster than memory is.
const CACHES: u64 = 16;
/// Where there is less memory, at least so many times.
const CACHES_MIN: u64 = 4;
/// And no smaller than this each, where caches are small, or not told.
const BUFFER_MIN: u64 = 32 << 20;
/// Nor larger: with caches stacked to a gigabyte it would take long to touch and tell nothing more.
const BUFFER_MAX: u64 = 1 << 30;
/// Groups of threads that use a node's memory at the same time: those that stream, and one that chases beside them.
const GROUPS: u64 = 2;
/// Memory that stays free: as much as is used.
const FREE_TIMES: u64 = 2;
/// Share of its CPUs' time that a host may be busy: what is measured on a busier one is what its programs leave.
const BUSY_MAX: f64 = 0.25;
/// How long it is watched for that.
const WATCHED: Duration = Duration::from_millis(300);
/// Windows further apart than this share: the host was not idle.
pub const SPREAD_MAX: f64 = 0.05;
/// Pauses between blocks of 16 KiB, in nanoseconds, from hardly any traffic to all there can be.
const PAUSES: [u64; 9] = [50_000, 20_000, 8_000, 4_000, 2_000, 1_000, 500, 200, 0];
/// The knee of latency under load: where it is so many times the idle latency.
const KNEE: f64 = 2.0;

/// What can be measured alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Part {
    /// Bytes that are read and written between the nodes
    Bandwidth,
    /// Loads that depend on the one before
    Latency,
    /// The same while others use the memory
    Loaded,
    /// From core to core
    Cores,
}

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// These parts alone; none: all of them.
    pub only: Vec<Part>,
    /// Also where the host is busy or small.
    pub force: bool,
    /// Of bandwidth: three windows, with the warm-up two seconds a cell.
    pub window: Duration,
    /// Of latency, and of each point under load.
    pub latency_window: Duration,
    /// Of two cores, each way of asking.
    pub pair: Duration,
}

impl Default for Plan {
    fn default() -> Plan {
        let milliseconds = Duration::from_millis;
        Plan {
            only: Vec::new(),
            force: false,
            window: milliseconds(600),
            latency_window: milliseconds(200),
            pair: milliseconds(500),
        }
    }
}

/// Bandwidth from the CPUs of one node to the memory of one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bandwidth {
    /// NUMA node of the threads.
    pub cpus: NodeNumber,
    /// NUMA node of the memory.
    pub memory: NodeNumber,
    /// What the threads did with the memory.
    pub mix: Mix,
    /// How many threads there were.
    pub threads: usize,
    /// Bytes a second that the program moved: the median.
    pub bytes_per_second: f64,
    /// Bytes a second on the memory bus, where it is known how many these are.
    pub bus_bytes_per_second: Option<f64>,
    /// Largest minus smallest window, as a share of the median.
    pub spread: f64,
}

/// Latency from the CPUs of one node to the memory of one.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// NUMA node of the thread.
    pub cpus: NodeNumber,
    /// NUMA node of the memory.
    pub memory: NodeNumber,
    /// A load that depends on the one before.
    pub nanoseconds: f64,
    /// As in [`Bandwidth`].
    pub spread: f64,
}

/// Latency while others use the memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Loaded {
    /// Node of the threads and of the memory.
    pub node: NodeNumber,
    /// Bytes a second of the others, and what a load then takes in nanoseconds; the first is without them.
    pub points: Vec<(f64, f64)>,
    /// Bytes a second where it takes twice as long as without them. None: it never did.
    pub knee: Option<f64>,
}

/// Two nodes that read each other's memory at the same time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BothWays {
    /// One of the two nodes.
    pub a: NodeNumber,
    /// The other one of the two.
    pub b: NodeNumber,
    /// Bytes a second of both together.
    pub bytes_per_second: f64,
    /// As in [`Bandwidth`].
    pub spread: f64,
}

/// All that was measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Matrix {
    /// The boot that it belongs to, as `/proc/sys/kernel/random/boot_id` names it.
    pub boot_id: String,
    /// Release of the kernel, as it names itself.
    pub kernel: String,
    /// Model of the CPUs, as they name themselves.
    pub cpu_model: String,
    /// The hypervisor: its nodes may not be the machine's.
    pub hypervisor: Option<String>,
    /// Instructions that were used.
    pub instructions: String,
    /// All memory was in huge pages: else the TLB is measured as well.
    pub huge_pages: bool,
    /// Why it would not have been measured without `--force`: so far its figures may be wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forced: Vec<Sentence>,
    /// Reads, one thread a core.
    pub read: Vec<Bandwidth>,
    /// Reads with all hardware threads, where cores have several.
    pub read_all_threads: Vec<Bandwidth>,
    /// Other mixes, each node with its own memory.
    pub mixes: Vec<Bandwidth>,
    /// Reads over a link in both directions.
    pub both_ways: Vec<BothWays>,
    /// Latency of each node's memory for each node's CPUs, without other load.
    pub latency: Vec<Latency>,
    /// Latency of each node's own memory under growing load.
    pub loaded: Vec<Loaded>,
    /// Latency from core to core.
    pub cores: Vec<Pair>,
}

impl Matrix {
    /// What was measured from one node to another's memory, one thread a core.
    pub fn read_between(&self, cpus: NodeNumber, memory: NodeNumber) -> Option<&Bandwidth> {
        self.read.iter().find(|cell| (cell.cpus, cell.memory) == (cpus, memory))
    }

    /// The most that was read from a node's memory by its own CPUs, by cores or all their threads.
    pub fn local(&self, node: NodeNumber) -> Option<f64> {
        let own =
            self.read.iter().chain(&self.read_all_threads).filter(|cell| (cell.cpus, cell.memory) == (node, node));
        own.map(|cell| cell.bytes_per_second).max_by(f64::total_cmp)
    }

    /// The one that is kept, if it is of this boot.
    pub fn kept(system: &System) -> Option<Matrix> {
        let matrix: Matrix = serde_json::from_slice(&system.bytes(KEPT).known()?).ok()?;
        (Some(&matrix.boot_id) == boot_id(system).as_ref()).then_some(matrix)
    }
}

fn boot_id(system: &System) -> Option<String> {
    system.text("/proc/sys/kernel/random/boot_id").known()
}

/// What takes part: the CPUs of each node that this process may use.
struct Cast<'a> {
    topology: &'a Topology,
    /// One CPU a core.
    cores: BTreeMap<NodeNumber, Vec<Cpu>>,
    /// All of them.
    threads: BTreeMap<NodeNumber, Vec<Cpu>>,
    /// Bytes that each node with memory can lend to one group, as far as is known.
    lends: u64,
}

impl Cast<'_> {
    fn of<'a>(topology: &'a Topology, allowed: &[Cpu]) -> Cast<'a> {
        let mut cast = Cast { topology, cores: BTreeMap::new(), threads: BTreeMap::new(), lends: u64::MAX };
        let mut seen = BTreeSet::new();
        for (&cpu, place) in topology.cpus.iter().filter(|(cpu, _)| allowed.contains(cpu)) {
            cast.threads.entry(place.node).or_default().push(cpu);
            if seen.insert((place.package, place.core)) {
                cast.cores.entry(place.node).or_default().push(cpu);
            }
        }
        cast
    }

    /// Nodes with memory, with CPUs or without.
    fn memories(&self) -> Vec<NodeNumber> {
        self.topology.nodes.iter().filter(|(_, node)| node.memory_bytes > 0).map(|(&number, _)| number).collect()
    }

    fn has_threads(&self) -> bool {
        self.threads.values().map(Vec::len).sum::<usize>() > self.cores.values().map(Vec::len).sum()
    }

    /// Bytes of each thread's buffer: together many times the caches above them.
    fn buffer(&self, cpus: &[Cpu]) -> usize {
        self.buffer_of(cpus, |caches| (CACHES * caches).min(self.lends.max(CACHES_MIN * caches)))
    }

    fn buffer_of(&self, cpus: &[Cpu], together: impl Fn(u64) -> u64) -> usize {
        let mut caches: BTreeMap<Cpu, u64> = BTreeMap::new();
        for place in cpus.iter().filter_map(|cpu| self.topology.cpus.get(cpu)) {
            let first = place.shares_cache.first().copied().unwrap_or(place.core);
            caches.insert(first, place.cache_bytes);
        }
        let all: u64 = caches.values().sum();
        run::rounded((together(all) / cpus.len().max(1) as u64).clamp(BUFFER_MIN, BUFFER_MAX) as usize)
    }

    /// Bytes that one node's memory has to lend at least, to all groups.
    fn needed(&self) -> u64 {
        let least = |cpus: &Vec<Cpu>| (cpus.len() * self.buffer_of(cpus, |caches| CACHES_MIN * caches)) as u64;
        GROUPS * self.threads.values().chain(self.cores.values()).map(least).max().unwrap_or(0)
    }

    /// A core of each node that has none of these: so that no socket sleeps while its memory is measured.
    fn awake(&self, working: &[Worker]) -> Vec<Worker> {
        let at_work = |node: &NodeNumber| {
            working.iter().any(|worker| self.topology.cpus.get(&worker.cpu).is_some_and(|place| place.node == *node))
        };
        let idle = self.cores.iter().filter(|(node, _)| !at_work(node)).filter_map(|(_, cpus)| cpus.first());
        idle.map(|&cpu| Worker { cpu, memory: 0, bytes: 0, task: Task::Spin }).collect()
    }
}

/// Why not to measure here and now, in words. Empty: nothing against it.
fn against(system: &System, cast: &Cast) -> Vec<Sentence> {
    let mut reasons = Vec::new();
    let busy = busy(system, WATCHED);
    if let Some(busy) = busy.filter(|busy| *busy > BUSY_MAX) {
        let percent = |share: f64| format!("{:.0}", share * 100.0);
        reasons.push(Sentence::new("matrix.busy").with("busy", percent(busy)).with("max", percent(BUSY_MAX)));
    }
    let needed = cast.needed() * FREE_TIMES;
    for node in cast.memories() {
        let Some(free) = free(system, node, cast.topology.nodes.get(&node)) else { continue };
        if free < needed {
            let mebibytes = |bytes: u64| bytes >> 20;
            reasons.push(
                Sentence::new("matrix.small")
                    .with("node", node)
                    .with("free", mebibytes(free))
                    .with("needed", mebibytes(needed)),
            );
        }
    }
    reasons
}

/// Memory that is free at a node; of the host where it has no nodes to ask.
fn free(system: &System, node: NodeNumber, known: Option<&NumaNode>) -> Option<u64> {
    let of_node = system.text(&format!("/sys/devices/system/node/node{node}/meminfo")).known();
    let text = of_node.or_else(|| known.and(system.text("/proc/meminfo").known()))?;
    let line = text.lines().find_map(|line| line.split_once("MemFree:"))?.1;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

/// Share of the CPUs' time that was used.
fn busy(system: &System, watched: Duration) -> Option<f64> {
    let before = cpu_time(&system.text("/proc/stat").known()?)?;
    std::thread::sleep(watched);
    let after = cpu_time(&system.text("/proc/stat").known()?)?;
    let (all, idle) = (after.0.checked_sub(before.0)?, after.1.checked_sub(before.1)?);
    (all > 0).then(|| 1.0 - idle as f64 / all as f64)
}

/// Ticks of all CPUs since boot: all, and idle ones with those that waited for a disk.
fn cpu_time(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is in user already.
    let ticks: Vec<u64> = line.split_whitespace().take(8).filter_map(|ticks| ticks.parse().ok()).collect();
    Some((ticks.iter().sum(), ticks.get(3)? + ticks.get(4).unwrap_or(&0)))
}

/// Measures, and tells how far it is: what is measured next, its number, and how many there are.
pub fn measure(
    system: &System,
    topology: &Topology,
    plan: &Plan,
    mut progress: impl FnMut(&Sentence, usize, usize),
) -> Result<std::result::Result<Matrix, Vec<Sentence>>> {
    if !system.is_live() {
        bail!("measure a recorded host: only the host itself can be measured; leave --sysroot away");
    }
    let allowed = forebay_io::numa::allowed_cpus().context("ask which CPUs this process may run on")?;
    let mut cast = Cast::of(topology, &allowed);
    let free = cast.memories().into_iter().filter_map(|node| free(system, node, topology.nodes.get(&node))).min();
    cast.lends = free.map_or(u64::MAX, |free| free / FREE_TIMES / GROUPS);
    if cast.cores.is_empty() || cast.memories().is_empty() {
        bail!("measure this host: sysfs shows no CPU, or no memory, that this process may use");
    }
    let forced = against(system, &cast);
    if !plan.force && !forced.is_empty() {
        return Ok(Err(forced));
    }
    let mut cells = cells(&cast);
    cells.retain(|cell| plan.only.is_empty() || plan.only.contains(&cell.part()));
    let mut matrix = Matrix {
        boot_id: boot_id(system).unwrap_or_default(),
        kernel: topology.kernel.clone(),
        cpu_model: topology.cpu_model.clone(),
        hypervisor: topology.hypervisor.clone(),
        instructions: Kernels::best().name.to_owned(),
        huge_pages: true,
        forced,
        ..Matrix::default()
    };
    for (number, cell) in cells.iter().enumerate() {
        progress(&cell.name(), number + 1, cells.len());
        let name = || say(Language::En, &cell.name());
        cell.measure(&cast, plan, &mut matrix).with_context(|| format!("measure {}", name()))?;
    }
    Ok(Ok(matrix))
}

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    Read { cpus: NodeNumber, memory: NodeNumber, all_threads: bool },
    Mix { node: NodeNumber, mix: Mix },
    BothWays { a: NodeNumber, b: NodeNumber },
    Latency { cpus: NodeNumber, memory: NodeNumber },
    Loaded { node: NodeNumber },
    Cores { a: Cpu, b: Cpu, relation: Relation, memory: NodeNumber },
}

fn cells(cast: &Cast) -> Vec<Cell> {
    let mut cells = Vec::new();
    let (memories, nodes): (_, Vec<NodeNumber>) = (cast.memories(), cast.cores.keys().copied().collect());
    let grid = || nodes.iter().flat_map(|&cpus| memories.iter().map(move |&memory| (cpus, memory)));
    cells.extend(grid().map(|(cpus, memory)| Cell::Read { cpus, memory, all_threads: false }));
    if cast.has_threads() {
        cells.extend(grid().map(|(cpus, memory)| Cell::Read { cpus, memory, all_threads: true }));
    }
    let own = || nodes.iter().copied().filter(|node| memories.contains(node));
    let other_mixes = Mix::ALL.into_iter().filter(|mix| *mix != Mix::Read);
    cells.extend(own().flat_map(|node| other_mixes.clone().map(move |mix| Cell::Mix { node, mix })));
    cells.extend(own().flat_map(|a| own().filter(move |b| a < *b).map(move |b| Cell::BothWays { a, b })));
    cells.extend(grid().map(|(cpus, memory)| Cell::Latency { cpus, memory }));
    // Without a second core nobody makes the load.
    let with_others = own().filter(|node| cast.cores.get(node).is_some_and(|cores| cores.len() > 1));
    cells.extend(with_others.map(|node| Cell::Loaded { node }));
    let all: Vec<Cpu> = cast.threads.values().flatten().copied().collect();
    for (a, b, relation) in cores::choose(cast.topology, &all) {
        let homes: BTreeSet<NodeNumber> =
            [a, b].into_iter().filter_map(|cpu| Some(cast.topology.cpus.get(&cpu)?.node)).collect();
        let homes = homes.into_iter().filter(|home| memories.contains(home));
        cells.extend(homes.map(|memory| Cell::Cores { a, b, relation, memory }));
    }
    cells
}

impl Cell {
    fn part(&self) -> Part {
        match self {
            Cell::Read { .. } | Cell::Mix { .. } | Cell::BothWays { .. } => Part::Bandwidth,
            Cell::Latency { .. } => Part::Latency,
            Cell::Loaded { .. } => Part::Loaded,
            Cell::Cores { .. } => Part::Cores,
        }
    }

    /// For who waits, and for an error.
    fn name(&self) -> Sentence {
        let between = |key, cpus: u32, memory: u32| Sentence::new(key).with("cpus", cpus).with("memory", memory);
        match *self {
            Cell::Read { cpus, memory, all_threads: false } => between("matrix.cell.read", cpus, memory),
            Cell::Read { cpus, memory, all_threads: true } => between("matrix.cell.threads", cpus, memory),
            Cell::Mix { node, mix } => Sentence::new("matrix.cell.mix").with("node", node).with("mix", mix.figures()),
            Cell::BothWays { a, b } => Sentence::new("matrix.cell.both").with("a", a).with("b", b),
            Cell::Latency { cpus, memory } => between("matrix.cell.latency", cpus, memory),
            Cell::Loaded { node } => Sentence::new("matrix.cell.loaded").with("node", node),
            Cell::Cores { a, b, .. } => Sentence::new("matrix.cell.cores").with("a", a).with("b", b),
        }
    }

    fn measure(self, cast: &Cast, plan: &Plan, matrix: &mut Matrix) -> Result<()> {
        let bind = cast.topology.nodes.len() > 1;
        let three = |length| Windows { count: 3, length };
        let streams = |node: NodeNumber, memory, mix, cpus: &BTreeMap<NodeNumber, Vec<Cpu>>| -> Vec<Worker> {
            let cpus = cpus.get(&node).map_or(&[][..], Vec::as_slice);
            let (bytes, task) = (cast.buffer(cpus), Task::Stream { mix, pause: Duration::ZERO });
            cpus.iter().map(|&cpu| Worker { cpu, memory, bytes, task }).collect()
        };
        let mut run = |mut workers: Vec<Worker>, windows| -> Result<Counted> {
            workers.extend(cast.awake(&workers));
            let counted = run::run(&workers, windows, bind)?;
            matrix.huge_pages &= counted.huge;
            Ok(counted)
        };
        match self {
            Cell::Read { cpus, memory, all_threads } => {
                let workers = streams(cpus, memory, Mix::Read, if all_threads { &cast.threads } else { &cast.cores });
                let threads = workers.len();
                let counted = run(workers, three(plan.window))?;
                let cells = if all_threads { &mut matrix.read_all_threads } else { &mut matrix.read };
                cells.push(bandwidth(cpus, memory, Mix::Read, threads, &counted));
            }
            Cell::Mix { node, mix } => {
                let workers = streams(node, node, mix, &cast.cores);
                let threads = workers.len();
                let counted = run(workers, three(plan.window))?;
                matrix.mixes.push(bandwidth(node, node, mix, threads, &counted));
            }
            Cell::BothWays { a, b } => {
                let mut workers = streams(a, b, Mix::Read, &cast.cores);
                workers.extend(streams(b, a, Mix::Read, &cast.cores));
                let (bytes_per_second, spread) = run(workers, three(plan.window))?.together(|_| true);
                matrix.both_ways.push(BothWays { a, b, bytes_per_second, spread });
            }
            Cell::Latency { cpus, memory } => {
                let chaser = chaser(cast, cpus, memory)?;
                let (steps, spread) = run(vec![chaser], three(plan.latency_window))?.together(|at| at == 0);
                matrix.latency.push(Latency { cpus, memory, nanoseconds: 1e9 / steps, spread });
            }
            Cell::Loaded { node } => {
                let chaser = chaser(cast, node, node)?;
                let one = Windows { count: 1, length: plan.latency_window };
                let mut points = Vec::new();
                for pause in [None].into_iter().chain(PAUSES.map(Some)) {
                    let mut workers = vec![chaser];
                    if let Some(pause) = pause.map(Duration::from_nanos) {
                        let others = streams(node, node, Mix::Read, &cast.cores).into_iter().skip(1);
                        let task = Task::Stream { mix: Mix::Read, pause };
                        workers.extend(others.map(|worker| Worker { task, ..worker }));
                    }
                    let count = workers.len();
                    let counted = run(workers, one)?;
                    let others = counted.together(|at| (1..count).contains(&at)).0;
                    points.push((others, 1e9 / counted.together(|at| at == 0).0));
                }
                matrix.loaded.push(Loaded { node, knee: knee(&points), points });
            }
            Cell::Cores { a, b, relation, memory } => {
                matrix.cores.push(cores::measure((a, b, relation), memory, bind, plan.pair)?);
            }
        }
        Ok(())
    }
}

fn bandwidth(cpus: NodeNumber, memory: NodeNumber, mix: Mix, threads: usize, counted: &Counted) -> Bandwidth {
    let (bytes_per_second, spread) = counted.together(|at| at < threads);
    let bus_bytes_per_second = mix.bus_bytes().map(|bus| bytes_per_second * bus);
    Bandwidth { cpus, memory, mix, threads, bytes_per_second, bus_bytes_per_second, spread }
}

fn chaser(cast: &Cast, cpus: NodeNumber, memory: NodeNumber) -> Result<Worker> {
    let cpu = *cast.cores.get(&cpus).and_then(|cores| cores.first()).context("no CPU at the node")?;
    Ok(Worker { cpu, memory, bytes: cast.buffer(&[cpu]), task: Task::Chase })
}

/// Traffic at which a load takes [`KNEE`] times as long as without any, between the two points around it.
fn knee(points: &[(f64, f64)]) -> Option<f64> {
    let limit = points.first()?.1 * KNEE;
    points.windows(2).find_map(|pair| {
        let ((traffic, latency), (more, longer)) = (pair[0], pair[1]);
        (latency < limit && longer >= limit)
            .then(|| traffic + (more - traffic) * (limit - latency) / (longer - latency))
    })
}

#[cfg(test)]
mod tests;
