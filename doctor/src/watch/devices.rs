//! What devices read and write of memory (DMA): of their own socket, and, across the link between sockets, of others. Counted
//! between the doctor's two looks.
//!
//! It is told only where all of it was counted: what one counter lacks would show as a share of the others.

use super::What;
use super::perf::Count;
use super::pmu::{FOLDER, Pmu};
use super::uncore::{LINE_BYTES, Opened, Plan, Processor, Raw, add};
use crate::findings::Sentence;
use forebay_host::system::{RECORDED, System};
use forebay_host::topology::{Cpu, Topology};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

const FABRIC: &str = "amd_df";
const CACHES: &str = "uncore_cha";
/// What has to be allowed.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// Counters of it, as Linux' tables have them for those generations of processors that have such.
pub(super) fn plan(processor: &Processor, pmus: &[Pmu], of: &impl Fn(&Pmu, Cpu) -> String, plans: &mut Vec<Plan>) {
    use What::{DevicesFar, DevicesNear};
    let mut count = |pmu: &Pmu, event: u64, (what, umask): (What, u64)| {
        let terms = [("event", event), ("umask", umask)];
        add(plans, pmu, &Raw { what, terms: &terms, bytes: LINE_BYTES }, of);
    };
    if let Some(complexes) = processor.counted_root_complexes() {
        // Upstream beats of 64 bytes between a root complex and the local, or a remote, socket: reads, and writes.
        const MASKS: [(What, u64); 4] =
            [(DevicesNear, 0x7fe), (DevicesNear, 0x7ff), (DevicesFar, 0xbfe), (DevicesFar, 0xbff)];
        for pmu in pmus.iter().filter(|pmu| pmu.name == FABRIC) {
            for event in (0..complexes).map(|complex| 0x81f + 0x40 * complex) {
                MASKS.into_iter().for_each(|mask| count(pmu, event, mask));
            }
        }
    }
    if processor.counts_devices_at_caches() {
        // TOR_INSERTS of PCIRdCur (a device reads a line), ItoM (it writes one) and ItoMCacheNear (it writes a part of one).
        const MASKS: [(What, u64); 6] = [
            (DevicesNear, 0xc8f2_ff04),
            (DevicesFar, 0xc8f3_7f04),
            (DevicesNear, 0xcc42_ff04),
            (DevicesFar, 0xcc43_7f04),
            (DevicesNear, 0xcd42_ff04),
            (DevicesFar, 0xcd43_7f04),
        ];
        for pmu in pmus.iter().filter(|pmu| pmu.number_of(CACHES).is_some()) {
            MASKS.into_iter().for_each(|mask| count(pmu, 0x35, mask));
        }
    }
}

/// By one event, all PMUs of its kind together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// Number of the socket that the devices are at.
    pub socket: u32,
    /// Whether the memory is of another one.
    pub far: bool,
    /// The event, as `perf stat -a --per-socket -e` takes it.
    pub source: String,
    /// Bytes that they moved in a second.
    pub bytes_per_second: f64,
}

/// What there is to know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Devices {
    /// One socket has no other, a virtual machine no such counters, and a record may have nothing of it.
    #[default]
    NotHere,
    /// All of it was counted.
    Counted(Vec<Moved>),
    /// Not all of it could be counted.
    NotCounted {
        /// What could not be counted, and why.
        what: String,
        /// What would make it countable.
        how: Sentence,
    },
}

impl Devices {
    /// As a file of a record.
    pub fn record(&self) -> Option<(String, String)> {
        let text = serde_json::to_string(self).ok().filter(|_| *self != Devices::NotHere)?;
        Some((place(), text))
    }

    fn recorded(system: &System) -> Devices {
        let text = system.text(&place()).known();
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    fn not_counted(why: &str, how: &'static str) -> Devices {
        Devices::NotCounted { what: format!("memory that devices move: {why}"), how: Sentence::new(how) }
    }

    fn refused(system: &System, source: &str, error: &io::Error) -> Devices {
        let error = match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                let paranoid = system.text(PARANOID).known();
                let shown = paranoid.map_or_else(|| error.to_string(), |value| format!("{PARANOID} is {value}"));
                return Devices::not_counted(&shown, "dma.no-right");
            }
            _ => error,
        };
        Devices::not_counted(&format!("{source}: {error}"), "dma.refused")
    }

    /// This host's kernel, or nobody, knows such counters of its processor.
    fn without_counters(system: &System) -> Devices {
        let processor = Processor::of(system);
        let known = processor.counted_root_complexes().is_some() || processor.counts_devices_at_caches();
        let how = if known { "dma.no-counters" } else { "dma.not-published" };
        Devices::not_counted(&format!("{FOLDER} has no {FABRIC} or {CACHES} that counts it"), how)
    }

    fn summed(counts: Counts, system: &System, topology: &Topology) -> Devices {
        let mut sums: BTreeMap<(u32, bool, String), f64> = BTreeMap::new();
        for (plan, count) in counts {
            let rate = match count.map(Count::per_second) {
                Ok(Some(rate)) => rate,
                Ok(None) => {
                    let why = format!("{} was let in for less than a tenth of the time", plan.source);
                    return Devices::not_counted(&why, "dma.shared");
                }
                Err(e) => return Devices::refused(system, &plan.source, &e),
            };
            let socket = topology.cpus.get(&plan.cpu).map_or(0, |place| place.package);
            let event = (socket, plan.what == What::DevicesFar, of_all(&plan.source));
            *sums.entry(event).or_default() += rate * plan.bytes;
        }
        let moved = |((socket, far, source), bytes_per_second)| Moved { socket, far, source, bytes_per_second };
        Devices::Counted(sums.into_iter().map(moved).collect())
    }
}

fn place() -> String {
    format!("{RECORDED}/devices")
}

/// `uncore_cha/event=0x35/` of `uncore_cha_12/event=0x35/`: by that name all of a kind are meant.
fn of_all(source: &str) -> String {
    let (name, event) = source.split_once('/').unwrap_or((source, ""));
    let kind = name.trim_end_matches(|letter: char| letter.is_ascii_digit()).trim_end_matches('_');
    format!("{kind}/{event}")
}

/// What each counter has come to.
type Counts = Vec<(Plan, io::Result<Count>)>;

/// What was counted between two looks; nothing, where there is nothing that could. Or which counter could not be opened.
#[derive(Debug)]
pub struct Between(Result<Counts, (String, io::Error)>);

impl Default for Between {
    fn default() -> Between {
        Between(Ok(Vec::new()))
    }
}

impl Between {
    /// Waits for so long, and has this host's counters count meanwhile.
    pub fn wait(time: Duration) -> Between {
        let began = Instant::now();
        let wait_for = |share: f64| std::thread::sleep(time.mul_f64(share).saturating_sub(began.elapsed()));
        let turns = turns(of_this_host());
        let (last, mut counts, mut refused) = (turns.len(), Vec::new(), None);
        for (turn, plans) in (1_u32..).zip(turns) {
            match Opened::open_all(plans) {
                Ok(mut opened) => {
                    wait_for(f64::from(turn) / last as f64);
                    counts.extend(opened.each().map(|(plan, count)| (plan.clone(), count)));
                }
                Err(why) => {
                    refused = Some(why);
                    break;
                }
            }
        }
        wait_for(1.0);
        Between(refused.map_or(Ok(counts), Err))
    }

    /// What that says of a host; a recorded one has said it itself.
    pub fn devices(self, system: &System, topology: &Topology) -> Devices {
        let sockets: BTreeSet<u32> = topology.cpus.values().map(|place| place.package).collect();
        if sockets.len() < 2 || topology.hypervisor.is_some() {
            return Devices::NotHere;
        }
        match self.0 {
            _ if !system.is_live() => Devices::recorded(system),
            Err((source, error)) => Devices::refused(system, &source, &error),
            Ok(counts) if counts.is_empty() => Devices::without_counters(system),
            Ok(counts) => Devices::summed(counts, system, topology),
        }
    }
}

/// Those of the living host, where it has some of several sockets. What is read for it is in no record: what they counted is.
fn of_this_host() -> Vec<Plan> {
    let system = System::live();
    let pmus = Pmu::of_kinds(&system, &[FABRIC, CACHES]);
    if pmus.is_empty() {
        return Vec::new();
    }
    let mut plans = Vec::new();
    plan(&Processor::of(&system), &pmus, &|_: &Pmu, _: Cpu| String::new(), &mut plans);
    let socket = |cpu: Cpu| {
        system.number::<u32>(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id")).known()
    };
    let cpus: BTreeSet<Cpu> = plans.iter().map(|plan| plan.cpu).collect();
    let sockets: BTreeSet<u32> = cpus.into_iter().filter_map(socket).collect();
    if sockets.len() < 2 { Vec::new() } else { plans }
}

/// Events of a PMU that count at a time: as many as it has registers. The kernel would have more of them take turns of a few
/// milliseconds, by a timer for each PMU: with sixty caches to a socket these are thousands of interrupts a second on one CPU.
fn registers(plan: &Plan) -> usize {
    if plan.source.starts_with(FABRIC) { 16 } else { 4 }
}

/// One after the other; near and far of an event, which follow each other, in the same turn.
fn turns(plans: Vec<Plan>) -> Vec<Vec<Plan>> {
    let mut of_pmu: BTreeMap<(u32, Cpu), usize> = BTreeMap::new();
    let mut turns: Vec<Vec<Plan>> = Vec::new();
    for plan in plans {
        let before = of_pmu.entry((plan.kind, plan.cpu)).or_default();
        let turn = *before / registers(&plan);
        *before += 1;
        if turn == turns.len() {
            turns.push(Vec::new());
        }
        turns[turn].push(plan);
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::super::uncore::plans;
    use super::super::uncore::tests::{EVENT, pmu};
    use super::*;
    use crate::fixture::Tree;
    use forebay_host::topology;

    fn host(vendor: &str, family: u32, model: u32) -> Tree {
        let cpuinfo = format!("processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n");
        Tree::new().node(0, "0-1", 8).node(1, "2-3", 8).file("/proc/cpuinfo", &cpuinfo)
    }

    /// As a kernel shows the fabric of Zen 4: more bits for event and unit mask than before.
    fn fabric(tree: Tree) -> Tree {
        pmu(tree, FABRIC, 12, &[("event", "config:0-7,32-37"), ("umask", "config:8-15,24-27")])
    }

    fn caches(tree: Tree) -> Tree {
        let format = [EVENT, ("umask", "config:8-15,32-55")];
        pmu(pmu(tree, "uncore_cha_0", 60, &format), "uncore_cha_11", 71, &format)
    }

    fn planned(tree: &Tree) -> Vec<Plan> {
        let system = tree.system();
        let mut plans = plans(&system, &topology::read(&system));
        plans.retain(|plan| matches!(plan.what, What::DevicesNear | What::DevicesFar));
        plans
    }

    fn at(plans: &[Plan], source: &str) -> Plan {
        let found = plans.iter().find(|plan| plan.source == source && plan.cpu == 2);
        found.unwrap_or_else(|| panic!("{source}: {plans:?}")).clone()
    }

    #[test]
    fn amd_tells_by_root_complex_which_sockets_memory_devices_move_four_of_zen_4_and_eight_of_zen_5() {
        let zen4 = planned(&fabric(host("AuthenticAMD", 25, 17)));
        assert_eq!(zen4.len(), 2 * 4 * 4, "of two sockets");
        let read = at(&zen4, "amd_df/event=0x8df,umask=0x7fe/");
        assert_eq!((read.what, read.of.as_str(), read.bytes), (What::DevicesNear, "socket 1", 64.0));
        let written = at(&zen4, "amd_df/event=0x81f,umask=0xbff/");
        assert_eq!((written.what, written.config), (What::DevicesFar, [0x8_0b00_ff1f, 0, 0]));
        let zen5 = planned(&fabric(host("AuthenticAMD", 26, 2)));
        assert_eq!(zen5.len(), 2 * 8 * 4);
        assert_eq!(at(&zen5, "amd_df/event=0x9df,umask=0xbfe/").what, What::DevicesFar);
    }

    #[test]
    fn intel_tells_it_at_each_cache_by_opcode() {
        for model in [106, 108, 143, 207] {
            let plans = planned(&caches(host("GenuineIntel", 6, model)));
            assert_eq!(plans.len(), 2 * 2 * 6, "of two sockets with two caches each");
            let read = at(&plans, "uncore_cha_11/event=0x35,umask=0xc8f37f04/");
            assert_eq!((read.what, read.of.as_str(), read.kind), (What::DevicesFar, "socket 1", 71));
            assert_eq!(read.config, [0x00c8_f37f_0000_0435, 0, 0]);
            let near = plans.iter().filter(|plan| plan.what == What::DevicesNear).count();
            assert_eq!(near, plans.len() / 2);
        }
    }

    #[test]
    fn generations_of_which_no_such_events_are_published_and_formats_that_cannot_say_them_are_left_out() {
        for (family, model) in [(23, 49), (25, 1), (26, 80), (27, 1)] {
            assert_eq!(planned(&fabric(host("AuthenticAMD", family, model))), [], "{family} {model}");
        }
        for (family, model) in [(6, 85), (6, 173), (19, 143)] {
            assert_eq!(planned(&caches(host("GenuineIntel", family, model))), [], "{family} {model}");
        }
        let before_zen_4 = [("event", "config:0-7,32-35,59-60"), ("umask", "config:8-15")];
        assert_eq!(planned(&pmu(host("AuthenticAMD", 25, 17), FABRIC, 12, &before_zen_4)), []);
        assert_eq!(planned(&fabric(caches(Tree::new().node(0, "0-3", 8)))), [], "nor where nobody says which it is");
    }

    #[test]
    fn no_more_events_of_a_pmu_count_at_a_time_than_it_has_registers_and_near_and_far_beside_each_other() {
        let intel = (caches(host("GenuineIntel", 6, 143)), 2, 4);
        let zen4 = (fabric(host("AuthenticAMD", 25, 17)), 1, 16);
        let zen5 = (fabric(host("AuthenticAMD", 26, 2)), 2, 16);
        for (tree, expected, registers) in [intel, zen4, zen5] {
            let plans = planned(&tree);
            let all = plans.len();
            let turns = turns(plans);
            assert_eq!((turns.len(), turns.iter().map(Vec::len).sum::<usize>()), (expected, all));
            for turn in &turns {
                let far = turn.iter().filter(|plan| plan.what == What::DevicesFar).count();
                assert_eq!(2 * far, turn.len());
                for one in turn {
                    let same = turn.iter().filter(|plan| (plan.kind, plan.cpu) == (one.kind, one.cpu)).count();
                    assert!(same <= registers, "{same} of {}", one.source);
                }
            }
        }
        assert_eq!(turns(Vec::new()), Vec::<Vec<Plan>>::new());
    }

    const SECOND: u64 = 1_000_000_000;

    fn counted(plans: &[Plan], counted: impl Fn(&Plan) -> io::Result<Count>) -> Devices {
        let tree = host("GenuineIntel", 6, 143);
        let system = tree.system();
        let counts = plans.iter().map(|plan| (plan.clone(), counted(plan))).collect();
        Devices::summed(counts, &system, &topology::read(&system))
    }

    fn lines(counted: u64) -> io::Result<Count> {
        Ok(Count { counted, enabled_ns: SECOND, running_ns: SECOND / 2 })
    }

    fn not_counted(devices: Devices) -> (String, String) {
        match devices {
            Devices::NotCounted { what, how } => (what, how.key),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn caches_of_a_socket_are_summed_by_event_under_the_name_that_perf_takes() {
        let plans = planned(&caches(host("GenuineIntel", 6, 143)));
        let far_read = |plan: &Plan| plan.source.contains("0xc8f37f04") && plan.cpu == 2;
        let Devices::Counted(all) = counted(&plans, |plan| lines(if far_read(plan) { 5_000_000 } else { 0 })) else {
            panic!("all were counted")
        };
        assert_eq!(all.len(), 2 * 6);
        let moved: Vec<&Moved> = all.iter().filter(|moved| moved.bytes_per_second > 0.0).collect();
        let expected = Moved {
            socket: 1,
            far: true,
            source: "uncore_cha/event=0x35,umask=0xc8f37f04/".to_owned(),
            // Two caches, each let in for half of the time.
            bytes_per_second: 2.0 * 2.0 * 5e6 * 64.0,
        };
        assert_eq!(moved, [&expected]);
    }

    #[test]
    fn one_counter_that_is_hardly_let_in_or_cannot_be_read_makes_no_share_of_the_others() {
        let plans = planned(&fabric(host("AuthenticAMD", 25, 17)));
        let odd = |plan: &Plan| plan.source.contains("0x89f,umask=0x7ff");
        let hardly = || Ok(Count { counted: 7, enabled_ns: SECOND, running_ns: SECOND / 20 });
        let devices = counted(&plans, |plan| if odd(plan) { hardly() } else { lines(9) });
        let (what, how) = not_counted(devices);
        assert_eq!(how, "dma.shared");
        assert!(what.starts_with("memory that devices move: amd_df/event=0x89f,umask=0x7ff/ was let in"), "{what}");
        let fails = || Err(io::Error::from_raw_os_error(libc::ENOSPC));
        let (what, how) = not_counted(counted(&plans, |plan| if odd(plan) { fails() } else { lines(9) }));
        assert_eq!(how, "dma.refused");
        assert!(what.contains("amd_df/event=0x89f,umask=0x7ff/: No space left"), "{what}");
    }

    #[test]
    fn a_missing_right_is_told_with_the_setting_and_missing_counters_with_what_brings_them() {
        let refused = |tree: Tree| {
            let error = io::Error::from_raw_os_error(libc::EACCES);
            not_counted(Devices::refused(&tree.system(), "amd_df/event=0x81f,umask=0x7fe/", &error))
        };
        let right = |why: &str| (format!("memory that devices move: {why}"), "dma.no-right".to_owned());
        assert_eq!(refused(Tree::new().file(PARANOID, "2\n")), right("/proc/sys/kernel/perf_event_paranoid is 2"));
        assert_eq!(refused(Tree::new().hidden(PARANOID)), right("Permission denied (os error 13)"));
        let without = |tree: Tree| not_counted(Devices::without_counters(&tree.system())).1;
        assert_eq!(without(host("AuthenticAMD", 25, 17)), "dma.no-counters");
        assert_eq!(without(host("GenuineIntel", 6, 207)), "dma.no-counters");
        assert_eq!(without(host("GenuineIntel", 6, 85)), "dma.not-published");
        assert_eq!(without(Tree::new()), "dma.not-published");
    }

    #[test]
    fn of_the_living_host_all_is_counted_or_it_is_said_why_not() {
        let system = System::live();
        let topology = topology::read(&system);
        match Between::wait(Duration::from_millis(2)).devices(&system, &topology) {
            Devices::NotHere => {
                let sockets: BTreeSet<u32> = topology.cpus.values().map(|place| place.package).collect();
                assert!(topology.hypervisor.is_some() || sockets.len() < 2);
            }
            Devices::Counted(all) => {
                assert!(all.iter().any(|moved| moved.far) && all.iter().any(|moved| !moved.far), "{all:?}");
                assert!(all.iter().all(|moved| moved.bytes_per_second >= 0.0), "{all:?}");
            }
            Devices::NotCounted { what, .. } => assert!(!what.is_empty()),
        }
    }
}
