//! Interrupts of devices: whose they are, where they may go, where they go, and which the kernel keeps for itself.

use super::super::system::System;
use super::{Cpu, Interrupt, PciDevice, list_of};
use std::collections::{BTreeMap, BTreeSet};

/// All that `/proc/irq` and `/proc/interrupts` have. A recorded tree may lack either.
pub fn read(system: &System, pci: &BTreeMap<String, PciDevice>) -> BTreeMap<u32, Interrupt> {
    let mut counted = counted(&system.text("/proc/interrupts").known().unwrap_or_default());
    let mut owners: BTreeMap<u32, String> = BTreeMap::new();
    for address in pci.keys() {
        let folder = format!("/sys/bus/pci/devices/{address}");
        let messages = system.list(&format!("{folder}/msi_irqs")).known().unwrap_or_default();
        owners.extend(messages.iter().filter_map(|name| Some((name.parse().ok()?, address.clone()))));
        // A line that functions may share: the first one's. 0 says that it has none.
        if let Some(line) = system.number(&format!("{folder}/irq")).known().filter(|&line| line > 0) {
            owners.entry(line).or_insert_with(|| address.clone());
        }
    }
    let folders = system.list("/proc/irq").known().unwrap_or_default();
    let numbers = folders.iter().filter_map(|name| name.parse::<u32>().ok()).chain(counted.keys().copied());
    let numbers: BTreeSet<u32> = numbers.collect();
    let mut interrupt = |number: u32| {
        let folder = format!("/proc/irq/{number}");
        let (name, counts) = counted.remove(&number).unwrap_or_default();
        let allowed = list_of(system, &format!("{folder}/smp_affinity_list")).known().unwrap_or_default();
        let goes_to = list_of(system, &format!("{folder}/effective_affinity_list")).known();
        let owner = owners.get(&number).cloned();
        let driver = owner.as_ref().and_then(|address| pci[address].driver.as_deref());
        Interrupt {
            managed: is_managed(system, number, driver, &name),
            // Kernels before 4.15, and machines without the difference.
            goes_to: goes_to.filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| allowed.clone()),
            pci: owner,
            name,
            allowed,
            counts,
        }
    };
    numbers.into_iter().map(|number| (number, interrupt(number))).collect()
}

/// Names and counts of `/proc/interrupts`, by number. A CPU to which it never came has no count: of a thousand interrupts and hundreds of
/// CPUs nearly all are such.
pub fn counted(text: &str) -> BTreeMap<u32, (String, BTreeMap<Cpu, u64>)> {
    let mut lines = text.lines();
    // CPUs that are offline have no column.
    let header = lines.next().unwrap_or_default();
    let cpus: Vec<Cpu> = header.split_whitespace().filter_map(|word| word.strip_prefix("CPU")?.parse().ok()).collect();
    let line = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        let (mut words, mut counts) = (rest.split_ascii_whitespace().peekable(), BTreeMap::new());
        for &cpu in &cpus {
            let count = match words.peek() {
                Some(&"0") => 0,
                word => match word.and_then(|word| word.parse::<u64>().ok()) {
                    Some(count) => count,
                    None => break,
                },
            };
            words.next();
            if count > 0 {
                counts.insert(cpu, count);
            }
        }
        Some((number, (name(&words.collect::<Vec<_>>()), counts)))
    };
    lines.filter_map(line).collect()
}

/// What follows the counts: the chip, its own number and how it triggers in one word or two, and then the name.
fn name(words: &[&str]) -> String {
    let of_chip = |word: &&&str| {
        let (number, trigger) = word.split_once('-').unwrap_or((word, ""));
        let is_trigger = |word: &str| ["edge", "level", "fasteoi"].contains(&word.to_lowercase().as_str());
        is_trigger(word) || number.parse::<u64>().is_ok() && (trigger.is_empty() || is_trigger(trigger))
    };
    let after_chip = words.get(1..).unwrap_or_default();
    let own = after_chip.iter().take(2).take_while(of_chip).count();
    after_chip[own..].join(" ")
}

/// Whether the kernel places the interrupt by itself and refuses writes to its affinity (`IRQD_AFFINITY_MANAGED`).
///
/// Neither procfs nor sysfs shows it: a write answers EIO, or EPERM, and only the debugger's files have the flag, for root and in
/// few kernels. Without them it is told by the drivers that ask for it in all their versions of the last years
/// (`PCI_IRQ_AFFINITY`, virtio's `irq_affinity`), and by the names that they give to queues. Who is taken for managed wrongly is
/// left where it is, which is the smaller mistake.
fn is_managed(system: &System, number: u32, driver: Option<&str>, name: &str) -> bool {
    if let Some(text) = system.text(&format!("/sys/kernel/debug/irq/irqs/{number}")).known() {
        return text.contains("IRQD_AFFINITY_MANAGED");
    }
    // `nvme0q0` is the queue of commands to the controller, which is not managed.
    let queue_of_nvme = |name: &str| {
        let queue = name.strip_prefix("nvme")?.split_once('q')?.1;
        queue.parse::<u32>().ok().filter(|&queue| queue > 0)
    };
    let of_virtio = name.strip_prefix("virtio").and_then(|name| name.split_once('-')).map(|(_, queue)| queue);
    match driver {
        Some("nvme") | None if queue_of_nvme(name).is_some() => true,
        Some("megaraid_sas" | "mpt3sas" | "smartpqi" | "hpsa" | "aacraid" | "lpfc" | "qla2xxx" | "hisi_sas_v3_hw") => {
            true
        }
        // virtio-blk's and virtio-scsi's queues.
        _ => of_virtio.is_some_and(|queue| queue.starts_with("req.") || queue == "request"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn names_are_what_follows_the_chips_own_words() {
        let name = |line: &str| name(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(name("PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0"), "virtio2-input.0");
        assert_eq!(name("IR-PCI-MSI 524288-edge eth0-TxRx-0"), "eth0-TxRx-0");
        assert_eq!(name("PCI-MSI-edge      eth0"), "eth0");
        assert_eq!(name("IO-APIC  16-fasteoi   ehci_hcd:usb1, i801_smbus"), "ehci_hcd:usb1, i801_smbus");
        assert_eq!(name("GICv3  23 Level     arch_timer"), "arch_timer");
        assert_eq!(name("ITS-MSI 524288 Edge      nvme0q0"), "nvme0q0");
        assert_eq!(name("IO-APIC-edge      timer"), "timer");
        assert_eq!(name(""), "");
    }

    #[test]
    fn counts_belong_to_the_cpus_that_the_header_names() {
        let text = "           CPU0       CPU2\n 24:          1          7  IO-APIC   5-edge      ACPI:Ged\n 25: 0 9 IO-APIC 6-edge rtc\nNMI: 3 4 x\nERR: 0\n";
        let counted = counted(text);
        assert_eq!(counted[&24], ("ACPI:Ged".to_owned(), [(0, 1), (2, 7)].into()));
        assert_eq!(counted[&25], ("rtc".to_owned(), [(2, 9)].into()), "where it never came it has no count");
        assert_eq!(counted.len(), 2);
    }

    #[test]
    fn interrupts_have_their_function_and_their_places() {
        let tree = Tree::new()
            .node(0, "0-3", 4)
            .pci("0000:02:00.0", 0x020000, 0)
            .interrupt(40, "0000:02:00.0", "eth0-TxRx-0", "2-3", &[0, 0, 5, 9])
            .file("/proc/irq/40/effective_affinity_list", "3");
        let topology = read(&tree.system());
        let interrupt = &topology.interrupts[&40];
        assert_eq!((interrupt.pci.as_deref(), interrupt.name.as_str()), (Some("0000:02:00.0"), "eth0-TxRx-0"));
        assert_eq!((&interrupt.allowed[..], &interrupt.goes_to[..]), (&[2, 3][..], &[3][..]));
        assert_eq!(interrupt.counts, [(2, 5), (3, 9)].into());
        assert!(!interrupt.managed);
        assert_eq!(topology.interrupts_of("0000:02:00.0").count(), 1);
    }

    #[test]
    fn queues_of_nvme_and_of_virtio_disks_are_managed_and_those_of_interfaces_are_not() {
        let managed = |driver: Option<&str>, name: &str| is_managed(&Tree::new().system(), 1, driver, name);
        for (driver, name) in [
            (Some("nvme"), "nvme0q1"),
            (None, "nvme12q31"),
            (Some("virtio-pci"), "virtio1-req.0"),
            (Some("mpt3sas"), "mpt3sas0-msix1"),
        ] {
            assert!(managed(driver, name), "{name}");
        }
        for (driver, name) in [
            (Some("nvme"), "nvme0q0"),
            (Some("virtio-pci"), "virtio2-input.0"),
            (Some("virtio-pci"), "virtio1-config"),
            (Some("mlx5_core"), "mlx5_comp0"),
            (None, ""),
        ] {
            assert!(!managed(driver, name), "{name}");
        }
    }

    #[test]
    fn the_debuggers_files_decide_where_they_can_be_read() {
        let of = |text: &str, name: &str| {
            is_managed(&Tree::new().file("/sys/kernel/debug/irq/irqs/7", text).system(), 7, Some("nvme"), name)
        };
        assert!(of("dstate: 0x1\n            IRQD_AFFINITY_MANAGED\n", "anything"));
        assert!(!of("dstate: 0x1\n", "nvme0q1"));
        let hidden = Tree::new().hidden("/sys/kernel/debug/irq/irqs/7");
        assert!(is_managed(&hidden.system(), 7, Some("nvme"), "nvme0q1"));
    }

    #[test]
    fn a_tree_without_interrupts_has_none_and_one_with_half_of_the_files_what_they_say() {
        assert!(read(&Tree::new().system()).interrupts.is_empty());
        let tree = Tree::new().file("/proc/irq/9/smp_affinity_list", "0-1").hidden("/proc/interrupts");
        let interrupt = read(&tree.system()).interrupts[&9].clone();
        assert_eq!((interrupt.name.as_str(), &interrupt.goes_to[..]), ("", &[0, 1][..]));
    }
}
