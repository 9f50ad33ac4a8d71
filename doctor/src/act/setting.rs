//! One file of procfs or sysfs that is written: where it may lie, what it reads back, and what restores it.

use super::allowed;
use crate::findings::Write as Setting;
use forebay_host::system::{Seen, System, chosen};
use forebay_host::topology::{Topology, numbers};
use std::time::{Duration, Instant};

/// Writing one takes effect by setting the other to zero, and zero is refused: what restores is the other's value.
const PAIRS: [(&str, &str); 2] = [
    ("/proc/sys/vm/dirty_bytes", "/proc/sys/vm/dirty_ratio"),
    ("/proc/sys/vm/dirty_background_bytes", "/proc/sys/vm/dirty_background_ratio"),
];

/// Whether it is one of the settings that checks write: nothing else is ever read or written for the journal's sake.
pub fn is_setting(path: &str) -> bool {
    allowed::is_listed(path)
}

/// Whether it may be written to a setting, or written back.
pub fn may_hold(path: &str, value: &str) -> bool {
    allowed::may_hold(path, choice(path, value).unwrap_or(value.trim()))
}

/// The interrupt that it belongs to.
pub fn interrupt_of(path: &str) -> Option<u32> {
    path.strip_prefix("/proc/irq/")?.split('/').next()?.parse().ok()
}

/// Whether it belongs to an interrupt that the kernel places by itself.
pub fn is_managed(topology: &Topology, path: &str) -> bool {
    interrupt_of(path).and_then(|number| topology.interrupts.get(&number)).is_some_and(|interrupt| interrupt.managed)
}

/// Whether a wrong value can cut off the person who writes it: anything of a network interface but who serves its queues.
pub fn can_cut_off(system: &System, path: &str) -> bool {
    let of_network = |path: &str| path.starts_with("/sys/") && path.contains("/net/") && !path.contains("/queues/");
    of_network(path) || system.real(path).known().is_some_and(|real| of_network(&real))
}

fn is_of_the_kernel(real: &str) -> bool {
    real.starts_with("/proc/") || real.starts_with("/sys/")
}

/// What it holds, to the byte.
pub fn read(system: &System, path: &str) -> Result<String, String> {
    if !is_setting(path) {
        return Err(format!("{path}: no setting that the doctor writes"));
    }
    match system.bytes(path) {
        Seen::Is(bytes) => String::from_utf8(bytes).map_err(|_| format!("{path}: not a text")),
        Seen::Absent => Err(format!("{path}: no such file")),
        Seen::Hidden(why) => Err(why),
    }
}

/// Writes to what is there already, in one call as the kernel wants it.
pub fn write(system: &System, path: &str, value: &str) -> Result<(), String> {
    if !may_hold(path, value) {
        return Err(format!("{path}: {value:?} is nothing that the doctor writes there"));
    }
    let real = match system.real(path) {
        Seen::Is(real) if is_of_the_kernel(&real) => real,
        Seen::Is(real) => return Err(format!("{path}: leads to {real}, which is no setting of the kernel")),
        Seen::Absent => return Err(format!("{path}: no such file")),
        Seen::Hidden(why) => return Err(why),
    };
    system.write(&real, value.as_bytes()).map_err(|e| format!("{path}: {e}"))
}

/// What it holds after it was written to, as soon as that is `value`, or else what it still holds after a while.
///
/// Linux moves an interrupt when it next comes, and a reader in that moment sees its former place: `irq_move_masked_irq` forgets that a
/// move is due before it has made it, and `show_irq_affinity` takes no lock (kernel/irq/migration.c and proc.c).
pub fn read_back(system: &System, path: &str, value: &str) -> Result<String, String> {
    const SETTLED_WITHIN: Duration = Duration::from_secs(1);
    const GLANCE: Duration = Duration::from_millis(10);
    let begun = Instant::now();
    loop {
        let reads = read(system, path)?;
        if is_same(path, &reads, value) || begun.elapsed() >= SETTLED_WITHIN {
            return Ok(reads);
        }
        std::thread::sleep(GLANCE);
    }
}

/// What is to be written to a file that reads otherwise: of all choices the one in brackets, `always [madvise] never`; of a
/// bond the word before its number, `layer2 0`.
pub fn choice<'a>(path: &str, text: &'a str) -> Option<&'a str> {
    if path.contains("/bonding/") {
        let (word, number) = text.trim().split_once(' ')?;
        return number.parse::<u32>().is_ok().then_some(word);
    }
    chosen(text)
}

/// Whether what a file reads is what was written to it, which the kernel shows in its own way.
pub fn is_same(path: &str, reads: &str, written: &str) -> bool {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mask = |text: &str| text.trim().replace(',', "").trim_start_matches('0').to_lowercase();
    let is_list = path.ends_with("_list");
    let is_mask = path.ends_with("_affinity") || path.ends_with("_cpus");
    words(reads) == words(written)
        || choice(path, reads).is_some_and(|chosen| chosen == written.trim())
        || is_list && numbers(reads.trim()) == numbers(written.trim())
        || is_mask && mask(reads) == mask(written)
}

/// What has the old state back.
pub fn restoring(system: &System, path: &str, old: &str) -> Vec<Setting> {
    let put = |path: &str, value: &str| vec![Setting { path: path.to_owned(), value: value.to_owned() }];
    // A recorded tree has plain files.
    if !system.is_live() {
        return put(path, old);
    }
    let pair = PAIRS.iter().find_map(|&(one, other)| match path {
        _ if path == one => Some(other),
        _ if path == other => Some(one),
        _ => None,
    });
    if let Some(other) = pair
        && old.trim() == "0"
        && let Ok(value) = read(system, other)
    {
        return put(other, value.trim_end());
    }
    put(path, choice(path, old).unwrap_or(old.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;
    use forebay_host::topology::Interrupt;

    #[test]
    fn only_settings_of_the_running_kernel_are_written() {
        for path in [
            "/proc/sys/vm/zone_reclaim_mode",
            "/proc/irq/24/smp_affinity_list",
            "/proc/fs/nfsd/threads",
            "/sys/block/sda/queue/scheduler",
        ] {
            assert!(is_setting(path), "{path}");
        }
        for path in
            ["/etc/passwd", "/proc/sysrq-trigger", "/proc/sys/../sysrq-trigger", "sys/x", "/sysfoo/x", "/dev/sda"]
        {
            assert!(!is_setting(path), "{path}");
        }
    }

    #[test]
    fn what_the_kernel_shows_in_its_own_way_is_the_same() {
        assert!(is_same("/sys/kernel/mm/transparent_hugepage/defrag", "always defer [madvise] never\n", "madvise"));
        assert!(!is_same("/sys/kernel/mm/transparent_hugepage/defrag", "[always] madvise never\n", "madvise"));
        assert!(is_same("/sys/class/net/bond0/bonding/xmit_hash_policy", "layer3+4 1\n", "layer3+4"));
        assert!(!is_same("/sys/class/net/bond0/bonding/xmit_hash_policy", "layer2 0\n", "layer3+4"));
        assert!(is_same("/proc/irq/9/smp_affinity_list", "0-2,5\n", "0,1,2,5"));
        assert!(!is_same("/proc/irq/9/smp_affinity_list", "0-3\n", "0"));
        assert!(is_same("/proc/irq/9/smp_affinity", "00000000,0000000f\n", "f"));
        assert!(is_same("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n", "4096 131072 6291456"));
        assert!(!is_same("/proc/sys/vm/dirty_bytes", "0\n", "100"));
    }

    #[test]
    fn a_managed_interrupt_is_known_by_any_of_its_files() {
        let mut topology = Topology::default();
        topology.interrupts.insert(24, Interrupt { managed: true, ..Interrupt::default() });
        topology.interrupts.insert(25, Interrupt::default());
        assert!(
            is_managed(&topology, "/proc/irq/24/smp_affinity")
                && is_managed(&topology, "/proc/irq/24/smp_affinity_list")
        );
        assert!(!is_managed(&topology, "/proc/irq/25/smp_affinity") && !is_managed(&topology, "/proc/sys/vm/24"));
    }

    #[test]
    fn what_lies_behind_a_link_of_a_tree_is_written_there_and_nowhere_else() {
        let tree = Tree::new()
            .file("/sys/devices/pci0000:00/net/eth0/queues/rx-0/rps_cpus", "00000000,00000000\n")
            .link("/sys/class/net/eth0", "/sys/devices/pci0000:00/net/eth0");
        let system = tree.system();
        write(&system, "/sys/class/net/eth0/queues/rx-0/rps_cpus", "f").unwrap();
        let held = system.text("/sys/devices/pci0000:00/net/eth0/queues/rx-0/rps_cpus");
        assert_eq!(held, Seen::Is("f".to_owned()), "and nothing is left of a longer value");
        assert!(can_cut_off(&system, "/sys/class/net/eth0/mtu"));
        assert!(!can_cut_off(&system, "/sys/class/net/eth0/queues/rx-0/rps_cpus"));
        assert!(!can_cut_off(&system, "/proc/sys/vm/zone_reclaim_mode"));
        let error = write(&system, "/sys/class/net/eth1/queues/rx-0/rps_cpus", "f").unwrap_err();
        assert_eq!(error, "/sys/class/net/eth1/queues/rx-0/rps_cpus: no such file", "nothing is made");
        let error = write(&system, "/sys/class/net/eth0/mtu", "9000").unwrap_err();
        assert!(error.contains("nothing that the doctor writes there"), "{error}");
        let out = Tree::new().file("/etc/passwd", "root").link("/sys/block/sda/queue/scheduler", "/etc/passwd");
        let error = write(&out.system(), "/sys/block/sda/queue/scheduler", "none").unwrap_err();
        assert!(error.contains("leads to /etc/passwd, which is no setting"), "{error}");
    }

    #[test]
    fn what_takes_effect_a_moment_after_it_was_written_is_waited_for_and_not_for_ever() {
        let path = "/proc/irq/24/smp_affinity_list";
        let tree = Tree::new().file(path, "3\n");
        let (system, place) = (tree.system(), tree.system().place(path));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                std::fs::write(place, "0-1\n").unwrap();
            });
            assert_eq!(read_back(&system, path, "0-1").unwrap(), "0-1\n");
        });
        assert_eq!(read_back(&system, path, "2").unwrap(), "0-1\n", "it says what is there instead");
    }

    #[test]
    fn the_living_host_gets_the_chosen_word_and_a_tree_every_byte() {
        let path = "/sys/kernel/mm/transparent_hugepage/defrag";
        let bond = restoring(&System::live(), "/sys/class/net/bond0/bonding/xmit_hash_policy", "layer2 0\n");
        assert_eq!(bond[0].value, "layer2", "what follows is its number");
        let of = |system: &System| restoring(system, path, "always [madvise] never\n").remove(0).value;
        assert_eq!(of(&System::live()), "madvise");
        assert_eq!(of(&Tree::new().system()), "always [madvise] never\n");
    }

    #[test]
    fn bytes_of_dirty_data_that_were_none_go_back_by_their_ratio() {
        let live = System::live();
        let [restore] = &restoring(&live, "/proc/sys/vm/dirty_bytes", "0\n")[..] else { panic!("one write") };
        assert_eq!(restore.path, "/proc/sys/vm/dirty_ratio");
        assert_eq!(Some(restore.value.clone()), live.text("/proc/sys/vm/dirty_ratio").known());
        assert_eq!(restoring(&live, "/proc/sys/vm/dirty_bytes", "4096\n")[0].path, "/proc/sys/vm/dirty_bytes");
    }
}
