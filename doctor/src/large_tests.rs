//! A host of 512 CPUs and 1,000 interfaces: what looking at it costs is counted here, since no test may judge by a clock.

use crate::Host;
use crate::findings::Verdict;
use forebay_host::system::System;
use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const CPUS: usize = 512;
const NODES: usize = 8;
/// Times that files are asked for to look at each part of the host, and by all checks together.
const LOOKED_MAX: u64 = 15;
const EXAMINED_MAX: u64 = 8;
/// Interfaces at PCI functions, as a card has them that gives one to each guest; as many again are pairs of containers.
const FUNCTIONS: usize = 500;

/// Processes, each of which a check may have to look at.
const PROCESSES: usize = 300;

/// A large host's tree, in memory.
struct Large(tempfile::TempDir);

impl Large {
    fn new() -> Large {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let large = Large(folder.expect("a folder for the tree"));
        large.processors();
        for nth in 0..FUNCTIONS {
            large.function(nth);
            large.pair(FUNCTIONS + nth);
        }
        large.interrupts();
        large.processes();
        large
    }

    fn place(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn files(&self, folder: &str, files: &[(&str, &str)]) {
        for (name, text) in files {
            let place = self.place(&format!("{folder}/{name}"));
            std::fs::create_dir_all(place.parent().expect("below the folder")).expect("made");
            std::fs::write(place, text).expect("written");
        }
    }

    fn link(&self, path: &str, to: &str) {
        let place = self.place(path);
        std::fs::create_dir_all(place.parent().expect("below the folder")).expect("made");
        symlink(to, place).expect("linked");
    }

    fn processors(&self) {
        let (all, of_node) = (format!("0-{}", CPUS - 1), CPUS / NODES);
        self.files("/sys/devices/system/cpu", &[("online", all.as_str())]);
        for node in 0..NODES {
            let list = format!("{}-{}", node * of_node, (node + 1) * of_node - 1);
            let memory = format!("Node {node} MemTotal:       {} kB\n", 64u64 << 20);
            let distance = (0..NODES).map(|other| if other == node { "10 " } else { "21 " }).collect::<String>();
            let files = [("cpulist", list.as_str()), ("meminfo", memory.as_str()), ("distance", distance.as_str())];
            self.files(&format!("/sys/devices/system/node/node{node}"), &files);
            self.files(&format!("/sys/devices/system/node/node{node}"), &[("numastat", "numa_hit 1\nother_node 1\n")]);
            for cpu in node * of_node..(node + 1) * of_node {
                let (package, own) = (node.to_string(), cpu.to_string());
                let files = [
                    ("topology/physical_package_id", package.as_str()),
                    ("topology/core_cpus_list", own.as_str()),
                    ("cache/index0/level", "1"),
                    ("cache/index0/type", "Data"),
                    ("cache/index3/level", "3"),
                    ("cache/index3/type", "Unified"),
                    ("cache/index3/size", "32768K"),
                    ("cache/index3/shared_cpu_list", list.as_str()),
                    ("cpufreq/scaling_governor", "performance"),
                    ("cpufreq/scaling_driver", "acpi-cpufreq"),
                    ("cpufreq/affected_cpus", own.as_str()),
                    ("cpufreq/cpuinfo_max_freq", "3500000"),
                    ("cpufreq/scaling_max_freq", "3500000"),
                    ("cpuidle/state1/name", "C1"),
                    ("cpuidle/state1/latency", "2"),
                    ("cpuidle/state1/disable", "0"),
                    ("cpuidle/state2/name", "C6"),
                    ("cpuidle/state2/latency", "133"),
                    ("cpuidle/state2/disable", "0"),
                    ("thermal_throttle/core_throttle_count", "0"),
                    ("thermal_throttle/package_throttle_count", "0"),
                ];
                self.files(&format!("/sys/devices/system/cpu/cpu{cpu}"), &files);
                let policy = format!("/sys/devices/system/cpu/cpufreq/policy{cpu}");
                self.link(&policy, &format!("../cpu{cpu}/cpufreq"));
            }
        }
    }

    fn address(nth: usize) -> String {
        format!("0000:{:02x}:{:02x}.{}", 0x40 + nth / 200, nth / 8 % 32, nth % 8)
    }

    fn function(&self, nth: usize) {
        let address = Large::address(nth);
        let port = "0000:3f:01.0";
        let folder = format!("/sys/devices/pci0000:3f/{port}/{address}");
        let node = (nth % NODES).to_string();
        let files = [
            ("class", "0x020000"),
            ("vendor", "0x15b3"),
            ("device", "0x101e"),
            ("numa_node", node.as_str()),
            ("current_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("max_link_width", "16"),
            ("aer_dev_correctable", "RxErr 0\nTOTAL_ERR_COR 0\n"),
        ];
        self.files(&folder, &files);
        if nth == 0 {
            let above = format!("/sys/devices/pci0000:3f/{port}");
            self.files(
                &above,
                &[("class", "0x060400"), ("vendor", "0x1022"), ("device", "0x1483"), ("numa_node", "0")],
            );
            self.link(&format!("/sys/bus/pci/devices/{port}"), &format!("../../../devices/pci0000:3f/{port}"));
            self.files("/sys/bus/pci/drivers/mlx5_core", &[("uevent", "")]);
        }
        self.link(&format!("{folder}/driver"), "../../../../bus/pci/drivers/mlx5_core");
        self.link(&format!("/sys/bus/pci/devices/{address}"), &format!("../../../devices/pci0000:3f/{port}/{address}"));
        for interrupt in [2 * nth, 2 * nth + 1] {
            self.files(&folder, &[(&format!("msi_irqs/{}", 100 + interrupt), "msix")]);
        }
        self.interface(&folder, &format!("eth{nth}"), nth, true);
    }

    fn pair(&self, nth: usize) {
        self.interface("/sys/devices/virtual", &format!("veth{nth}"), nth, false);
    }

    fn interface(&self, above: &str, name: &str, nth: usize, physical: bool) {
        let folder = format!("{above}/net/{name}");
        let (index, other) = ((nth + 2).to_string(), (nth + 2 + usize::from(!physical)).to_string());
        let files = [
            ("speed", "25000"),
            ("carrier", "1"),
            ("operstate", "up"),
            ("mtu", "1500"),
            ("duplex", "full"),
            ("type", "1"),
            ("ifindex", index.as_str()),
            ("iflink", other.as_str()),
            ("uevent", ""),
            ("statistics/rx_missed_errors", "0"),
            ("statistics/rx_fifo_errors", "0"),
            ("statistics/tx_dropped", "0"),
            ("statistics/rx_dropped", "0"),
            ("queues/rx-0/rps_cpus", "0"),
            ("queues/tx-0/xps_cpus", "0"),
        ];
        self.files(&folder, &files);
        if physical {
            self.link(&format!("{folder}/device"), "../..");
        }
        self.link(&format!("/sys/class/net/{name}"), &format!("../../{}", &folder["/sys/".len()..]));
    }

    /// Two of each function: `/proc/interrupts` has half a million counts.
    fn interrupts(&self) {
        let table = |times: u64| {
            let mut text = String::from("     ");
            (0..CPUS).for_each(|cpu| text.push_str(&format!("       CPU{cpu}")));
            for interrupt in 0..2 * FUNCTIONS {
                let _ = write!(text, "\n{:>4}:", 100 + interrupt);
                for cpu in 0..CPUS {
                    let count = if cpu == interrupt % CPUS { times } else { 0 };
                    let _ = write!(text, " {count:>10}");
                }
                let _ = write!(
                    text,
                    "  IR-PCI-MSIX-{} {}-edge      mlx5_comp{}",
                    Large::address(interrupt / 2),
                    interrupt % 2,
                    interrupt
                );
            }
            text.push('\n');
            text
        };
        self.files("/proc", &[("interrupts", table(90_000).as_str())]);
        self.files("/forebay/earlier/proc", &[("interrupts", table(10_000).as_str())]);
        self.files("/forebay/earlier", &[("seconds", "1")]);
        for interrupt in 0..2 * FUNCTIONS {
            let cpu = (interrupt % CPUS).to_string();
            let files = [("smp_affinity_list", cpu.as_str()), ("effective_affinity_list", cpu.as_str())];
            self.files(&format!("/proc/irq/{}", 100 + interrupt), &files);
        }
        let device = |times: u64| {
            let mut text = String::from("Inter-|   Receive                |  Transmit\n face |bytes packets errs\n");
            for nth in 0..FUNCTIONS {
                for name in [format!("eth{nth}"), format!("veth{}", FUNCTIONS + nth)] {
                    let _ = writeln!(text, "{name}: {0} {1} 0 0 0 0 0 0 {0} {1} 0 0 0 0 0 0", times * 1500, times);
                }
            }
            text
        };
        self.files("/proc/net", &[("dev", device(9_000).as_str())]);
        self.files("/forebay/earlier/proc/net", &[("dev", device(1_000).as_str())]);
        let stat = |ticks: u64| {
            let mut text = format!("cpu  {0} 0 {0} {0} 0 0 0 0 0 0\n", ticks * CPUS as u64);
            (0..CPUS).for_each(|cpu| text.push_str(&format!("cpu{cpu} {ticks} 0 {ticks} {ticks} 0 0 0 0 0 0\n")));
            text
        };
        self.files("/proc", &[("stat", stat(900).as_str()), ("version", "Linux version 6.12.0")]);
        self.files("/forebay/earlier/proc", &[("stat", stat(100).as_str())]);
        self.files("/proc", &[("meminfo", "MemTotal: 536870912 kB\nMemFree: 8388608 kB\nMemAvailable: 8388608 kB\n")]);
        self.files("/proc/sys/vm", &[("dirty_bytes", "0"), ("dirty_ratio", "20"), ("zone_reclaim_mode", "0")]);
        self.files(
            "/proc",
            &[("cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9754 128-Core Processor\nflags\t\t: fpu\n")],
        );
    }

    /// What runs: nothing that a check knows.
    fn processes(&self) {
        for pid in 1..=PROCESSES {
            self.files(&format!("/proc/{pid}"), &[("comm", "worker"), ("stat", "1 (worker) S 0 0 0")]);
        }
    }

    fn system(&self) -> System {
        System::recorded(self.0.path()).expect("the tree is there")
    }
}

/// Files are asked for a few times for each part of the host, and for no part as often as there are others: with a list of the processes
/// for each device alone it was ten times as often.
#[test]
fn what_a_large_host_costs_grows_with_its_parts_and_not_with_their_square() {
    let large = Large::new();
    let system = large.system();
    let host = Host::look(system.clone());
    let looked = system.asked();
    let verdicts = host.examine();
    let examined = system.asked() - looked;
    assert_eq!((host.topology.cpus.len(), host.topology.nics.len()), (CPUS, 2 * FUNCTIONS));
    let far = verdicts.iter().find_map(|(check, verdict)| match verdict {
        Verdict::Found(found) if check.number == 9 => Some(found.len()),
        _ => None,
    });
    assert_eq!(far.map(|far| far > FUNCTIONS / 2), Some(true), "its interrupts are astray: {far:?}");
    let parts = (CPUS + 2 * FUNCTIONS + FUNCTIONS + 2 * FUNCTIONS + PROCESSES) as u64;
    assert!(looked < LOOKED_MAX * parts, "{looked} of {parts} parts");
    assert!(examined < EXAMINED_MAX * parts, "{examined} of {parts} parts");
    // Of half a million counts a thousand are not zero.
    let counts: usize = host.topology.interrupts.values().map(|interrupt| interrupt.counts.len()).sum();
    assert_eq!(counts, 2 * FUNCTIONS);
}
