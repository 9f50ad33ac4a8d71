//! What is counted beside the cores, and by which event: memory controllers, PCIe at each root, links between sockets.
//!
//! Events that the kernel names are taken by name, with its scale. The others are of the vendors' documents, as Intel's PCM
//! and Linux' own tables (`tools/perf/pmu-events`) have them; where they differ between generations, an event is left out
//! rather than guessed.

use super::perf::{Count, Counter};
use super::pmu::Pmu;
use super::{What, devices};
use forebay_host::system::System;
use forebay_host::topology::{Cpu, Topology};
use std::collections::BTreeMap;
use std::io;

/// A line of the cache, which is what a memory controller moves.
pub(super) const LINE_BYTES: f64 = 64.0;

/// One counter that is to be opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What it is that it counts.
    pub what: What,
    /// The part of the host that it counts for.
    pub of: String,
    /// Counter and event, for people.
    pub source: String,
    /// Number of the PMU for `perf_event_open`.
    pub kind: u32,
    /// The three words that choose the event.
    pub config: [u64; 3],
    /// The CPU at which it is read.
    pub cpu: Cpu,
    /// How many bytes one count stands for.
    pub bytes: f64,
}

/// An event by its words.
pub(super) struct Raw<'a> {
    pub what: What,
    pub terms: &'a [(&'a str, u64)],
    pub bytes: f64,
}

/// All that this host's PMUs can tell.
pub fn plans(system: &System, topology: &Topology) -> Vec<Plan> {
    let (pmus, processor) = (Pmu::all(system), Processor::of(system));
    let mut plans = Vec::new();
    let socket = |cpu: Cpu| format!("socket {}", topology.cpus.get(&cpu).map_or(0, |place| place.package));
    memory_by_name(system, &pmus, &socket, &mut plans);
    let of_socket = |_: &Pmu, cpu: Cpu| socket(cpu);
    // Zen 4 and later: a memory controller each (kernel 6.8).
    for pmu in pmus.iter().filter(|pmu| pmu.number_of("amd_umc").is_some()) {
        for (what, mask) in [(What::MemoryRead, 1), (What::MemoryWritten, 2)] {
            let terms = [("event", 0x0a), ("rdwrmask", mask)];
            add(&mut plans, pmu, &Raw { what, terms: &terms, bytes: LINE_BYTES }, &of_socket);
        }
    }
    if processor.is_zen_before_4() {
        for pmu in pmus.iter().filter(|pmu| pmu.name == "amd_df") {
            // dram_channel_data_controller_0..7: reads and writes together.
            for channel in 0..8 {
                let terms = [("event", 0x07 + 0x40 * channel), ("umask", 0x38)];
                add(&mut plans, pmu, &Raw { what: What::Memory, terms: &terms, bytes: LINE_BYTES }, &of_socket);
            }
            // remote_outbound_data_controller_0..3, in units of 32 bytes.
            for event in [0x7c7, 0x807, 0x847, 0x887] {
                let terms = [("event", event), ("umask", 0x02)];
                add(&mut plans, pmu, &Raw { what: What::SocketLink, terms: &terms, bytes: 32.0 }, &of_socket);
            }
        }
    }
    // TxL_FLITS.ALL_DATA: nine flits for a line.
    for pmu in pmus.iter().filter(|pmu| pmu.number_of("uncore_upi").is_some()) {
        let terms = [("event", 0x02), ("umask", 0x0f)];
        add(&mut plans, pmu, &Raw { what: What::SocketLink, terms: &terms, bytes: LINE_BYTES / 9.0 }, &of_socket);
    }
    // TxL_FLITS_G0.DATA: eight bytes of a flit.
    for pmu in pmus.iter().filter(|pmu| pmu.number_of("uncore_qpi").is_some()) {
        let terms = [("event", 0x00), ("umask", 0x02)];
        add(&mut plans, pmu, &Raw { what: What::SocketLink, terms: &terms, bytes: 8.0 }, &of_socket);
    }
    // DATA_REQ_OF_CPU of all ports of a stack: four bytes of a count. MEM_WRITE is what devices write to memory.
    for pmu in pmus.iter().filter(|pmu| pmu.number_of("uncore_iio").is_some()) {
        let Some(ports) = pmu.most("ch_mask") else { continue };
        let of_root = |pmu: &Pmu, cpu: Cpu| root_of(system, topology, pmu, cpu);
        for (what, umask) in [(What::DeviceToMemory, 1), (What::MemoryToDevice, 4)] {
            let terms = [("event", 0x83), ("umask", umask), ("ch_mask", ports.min(0xff)), ("fc_mask", 7)];
            add(&mut plans, pmu, &Raw { what, terms: &terms, bytes: 4.0 }, &of_root);
        }
    }
    devices::plan(&processor, &pmus, &of_socket, &mut plans);
    plans
}

/// Intel's memory controllers, which have names for reads and writes: servers one PMU for each channel, others one for all.
/// Only the first kind that there is: a second one counts the same bytes.
fn memory_by_name(system: &System, pmus: &[Pmu], socket: &impl Fn(Cpu) -> String, plans: &mut Vec<Plan>) {
    const KINDS: [(&str, &str, &str); 3] = [
        ("uncore_imc", "cas_count_read", "cas_count_write"),
        ("uncore_imc_free_running", "data_read", "data_write"),
        ("uncore_imc", "data_reads", "data_writes"),
    ];
    for (kind, read, write) in KINDS {
        let before = plans.len();
        for pmu in pmus.iter().filter(|pmu| pmu.number_of(kind).is_some()) {
            for (what, event) in [(What::MemoryRead, read), (What::MemoryWritten, write)] {
                let Some(named) = pmu.named(system, event) else { continue };
                let Some(config) = pmu.encode(&named.terms) else { continue };
                plans.extend(pmu.cpus.iter().map(|&cpu| Plan {
                    what,
                    of: socket(cpu),
                    source: format!("{}/{event}/", pmu.name),
                    kind: pmu.kind,
                    config,
                    cpu,
                    bytes: named.bytes,
                }));
            }
        }
        if plans.len() > before {
            return;
        }
    }
}

pub(super) fn add(plans: &mut Vec<Plan>, pmu: &Pmu, event: &Raw<'_>, of: &impl Fn(&Pmu, Cpu) -> String) {
    // A kernel or a processor that spells it otherwise.
    let Some(config) = pmu.encode(event.terms) else { return };
    let words: Vec<String> = event.terms.iter().map(|(term, value)| format!("{term}={value:#x}")).collect();
    plans.extend(pmu.cpus.iter().map(|&cpu| Plan {
        what: event.what,
        of: of(pmu, cpu),
        source: format!("{}/{}/", pmu.name, words.join(",")),
        kind: pmu.kind,
        config,
        cpu,
        bytes: event.bytes,
    }));
}

/// The PCI bus below a stack, as the kernel maps them (`/sys/devices/uncore_iio_N/dieM`); else the stack's own name.
fn root_of(system: &System, topology: &Topology, pmu: &Pmu, cpu: Cpu) -> String {
    let package = topology.cpus.get(&cpu).map_or(0, |place| place.package);
    match system.text(&format!("/sys/devices/{}/die{package}", pmu.name)).known() {
        Some(bus) => format!("PCI {bus}"),
        None => format!("{} of socket {package}", pmu.name),
    }
}

/// Which processor it is, as far as events depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Processor {
    vendor: String,
    family: u32,
    model: u32,
}

impl Processor {
    /// The first of the host; the others are of its kind.
    pub fn of(system: &System) -> Processor {
        let text = system.text("/proc/cpuinfo").known().unwrap_or_default();
        let of_first = |name: &str| {
            let line = text.lines().find(|line| line.split(':').next().map(str::trim) == Some(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let number = |name| of_first(name)?.parse().ok();
        match (of_first("vendor_id"), number("cpu family"), number("model")) {
            (Some(vendor), Some(family), Some(model)) => Processor { vendor, family, model },
            _ => Processor::default(),
        }
    }

    /// Family 17h, and those models of 19h that are Zen 3.
    fn is_zen_before_4(&self) -> bool {
        self.vendor == "AuthenticAMD"
            && match self.family {
                0x17 => true,
                0x19 => matches!(self.model, 0x00..=0x0f | 0x20..=0x5f),
                _ => false,
            }
    }

    /// Root complexes of a socket of which the fabric of Zen 4 and Zen 5 counts what their devices move; of Zen 6 no such events
    /// are published.
    pub fn counted_root_complexes(&self) -> Option<u64> {
        match (self.vendor.as_str(), self.family, self.model) {
            ("AuthenticAMD", 0x19, 0x10..=0x1f | 0x60..=0xaf) => Some(4),
            ("AuthenticAMD", 0x1a, 0x00..=0x2f | 0x40..=0x4f | 0x60..=0x7f) => Some(8),
            _ => None,
        }
    }

    /// Whether its caches (CHA) tell by which opcode devices read and write: Ice Lake, Sapphire Rapids and Emerald Rapids of servers.
    pub fn counts_devices_at_caches(&self) -> bool {
        self.vendor == "GenuineIntel" && self.family == 6 && matches!(self.model, 106 | 108 | 143 | 207)
    }
}

/// Counters that are open and count.
pub struct Opened(Vec<(Plan, Counter)>);

/// What has been counted until now, in bytes, and by which counters.
pub type Totals = BTreeMap<(What, String), (f64, String)>;

impl Opened {
    /// Opens all that can be; the first error where none can. Some may be missing: firmware hides links, a kernel knows a
    /// newer processor only in part.
    pub fn open(plans: Vec<Plan>) -> io::Result<Opened> {
        let mut opened = Vec::new();
        let mut error = None;
        for plan in plans {
            match Counter::open(plan.kind, plan.config, plan.cpu) {
                Ok(counter) => opened.push((plan, counter)),
                Err(e) => error = error.or(Some(e)),
            }
        }
        match error {
            Some(error) if opened.is_empty() => Err(error),
            _ => Ok(Opened(opened)),
        }
    }

    /// Opens all of them; where one cannot be, its source and why.
    pub fn open_all(plans: Vec<Plan>) -> Result<Opened, (String, io::Error)> {
        let open = |plan: Plan| match Counter::open(plan.kind, plan.config, plan.cpu) {
            Ok(counter) => Ok((plan, counter)),
            Err(e) => Err((plan.source, e)),
        };
        plans.into_iter().map(open).collect::<Result<_, _>>().map(Opened)
    }

    /// What each has counted until now.
    pub fn each(&mut self) -> impl Iterator<Item = (&Plan, io::Result<Count>)> {
        self.0.iter_mut().map(|(plan, counter)| (&*plan, counter.read()))
    }

    /// What all have counted until now.
    pub fn read(&mut self) -> Totals {
        let mut totals = Totals::new();
        for (plan, count) in self.each() {
            let Ok(count) = count else { continue };
            let total = totals.entry((plan.what, plan.of.clone())).or_insert((0.0, plan.source.clone()));
            total.0 += count.whole() * plan.bytes;
        }
        totals
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::pmu::FOLDER;
    use super::*;
    use crate::fixture::Tree;
    use forebay_host::topology;

    /// A PMU that is read on CPUs 0 and 2, which are of two sockets.
    pub fn pmu(tree: Tree, name: &str, kind: u32, format: &[(&str, &str)]) -> Tree {
        let at = |file: &str| format!("{FOLDER}/{name}/{file}");
        let tree = tree.file(&at("type"), &kind.to_string()).file(&at("cpumask"), "0,2");
        format.iter().fold(tree, |tree, (term, bits)| tree.file(&at(&format!("format/{term}")), bits))
    }

    pub const EVENT: (&str, &str) = ("event", "config:0-7");
    const UMASK: (&str, &str) = ("umask", "config:8-15");

    fn planned(tree: &Tree) -> Vec<(What, String, String, [u64; 3])> {
        let system = tree.system();
        let plans = plans(&system, &topology::read(&system));
        plans.into_iter().map(|plan| (plan.what, plan.of, plan.source, plan.config)).collect()
    }

    fn host() -> Tree {
        Tree::new().node(0, "0-1", 8).node(1, "2-3", 8)
    }

    #[test]
    fn intel_servers_tell_memory_by_name_pcie_by_root_and_links() {
        let mut tree = host();
        for channel in 0..2 {
            let name = format!("uncore_imc_{channel}");
            tree = pmu(tree, &name, 20 + channel, &[EVENT, UMASK]);
            for (event, terms) in
                [("cas_count_read", "event=0x04,umask=0x03"), ("cas_count_write", "event=0x04,umask=0x0c")]
            {
                let at = format!("{FOLDER}/{name}/events/{event}");
                tree = tree
                    .file(&at, terms)
                    .file(&format!("{at}.scale"), "6.103515625e-5")
                    .file(&format!("{at}.unit"), "MiB");
            }
        }
        tree = pmu(tree, "uncore_imc_free_running_0", 30, &[EVENT, UMASK])
            .file(&format!("{FOLDER}/uncore_imc_free_running_0/events/data_read"), "event=0xff,umask=0x20");
        tree = pmu(tree, "uncore_upi_0", 40, &[EVENT, UMASK]);
        let iio = [EVENT, UMASK, ("ch_mask", "config:36-43"), ("fc_mask", "config:44-46")];
        tree = pmu(tree, "uncore_iio_1", 50, &iio).file("/sys/devices/uncore_iio_1/die0", "0000:17");
        let all = planned(&tree);
        let of = |what: What| all.iter().filter(|plan| plan.0 == what).collect::<Vec<_>>();
        assert_eq!(
            of(What::MemoryRead).len(),
            4,
            "two channels of two sockets, and not by the other kind as well: {all:?}"
        );
        assert_eq!(of(What::MemoryWritten)[1].1, "socket 1");
        assert_eq!(of(What::MemoryWritten)[1].3, [0x0c04, 0, 0]);
        assert_eq!(of(What::SocketLink)[0].3, [0x0f02, 0, 0]);
        let to_memory = of(What::DeviceToMemory);
        assert_eq!(
            to_memory.iter().map(|plan| plan.1.as_str()).collect::<Vec<_>>(),
            ["PCI 0000:17", "uncore_iio_1 of socket 1"]
        );
        assert_eq!(to_memory[0].3, [0x7ff0_0000_0183, 0, 0]);
        assert_eq!(of(What::MemoryToDevice)[0].2, "uncore_iio_1/event=0x83,umask=0x4,ch_mask=0xff,fc_mask=0x7/");
    }

    #[test]
    fn amd_tells_memory_by_its_controllers_or_by_its_fabric_before_zen_4() {
        let umc = pmu(host(), "amd_umc_0", 11, &[EVENT, ("rdwrmask", "config:8-9")]);
        let all = planned(&umc);
        assert_eq!(all.iter().map(|plan| plan.3[0]).collect::<Vec<_>>(), [0x10a, 0x10a, 0x20a, 0x20a]);
        let df = [("event", "config:0-7,32-35,59-60"), UMASK];
        let fabric = |model: &str| {
            let cpuinfo =
                format!("vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: {model}\nmodel name\t: EPYC\n");
            planned(&pmu(host(), "amd_df", 12, &df).file("/proc/cpuinfo", &cpuinfo))
        };
        let zen3 = fabric("1");
        assert_eq!(zen3.iter().filter(|plan| plan.0 == What::Memory).count(), 16);
        assert_eq!(zen3.last().unwrap().3, [0x8_0000_0287, 0, 0]);
        assert_eq!(fabric("17"), [], "of Zen 4 these events are others");
    }

    #[test]
    fn what_a_format_does_not_know_is_left_out_and_a_virtual_machine_has_nothing() {
        assert_eq!(planned(&pmu(host(), "uncore_upi_0", 40, &[EVENT])), []);
        assert_eq!(planned(&pmu(host(), "uncore_iio_0", 40, &[EVENT, UMASK])), []);
        assert_eq!(planned(&pmu(host().virtual_machine(), "software", 1, &[])), []);
    }

    #[test]
    fn where_no_counter_opens_the_reason_is_told() {
        let plan = Plan {
            what: What::Memory,
            of: String::new(),
            source: String::new(),
            kind: u32::MAX,
            config: [0; 3],
            cpu: 0,
            bytes: 1.0,
        };
        assert!(Opened::open(vec![plan.clone()]).is_err());
        // The second is of software, and there on every host.
        let (odd, software) = (Plan { source: "odd".to_owned(), ..plan.clone() }, Plan { kind: 1, ..plan });
        let error = Opened::open_all(vec![software, odd]).err().expect("one cannot be opened");
        let no_right = matches!(error.1.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::ENOSYS));
        assert!(error.0 == "odd" || no_right, "{error:?}");
        assert_eq!(Opened::open(Vec::new()).unwrap().read(), Totals::new());
    }
}
