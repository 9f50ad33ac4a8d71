//! Where devices are of which the firmware does not say it, or says it wrongly: a file that whoever knows the board writes.
//!
//! ```text
//! # PCI buses, or one function, and the NUMA node
//! 0000:40-46    1
//! 0000:82:00.0  0
//! ```
//!
//! A line for one function counts before one for its bus; of two that say the same thing of something the last counts. Writing to
//! `numa_node` in sysfs would do the same until the next boot, and the kernel calls itself tainted for it.

use super::super::system::{Seen, System};
use super::{NodeNumber, is_address};
use std::collections::BTreeSet;

pub use crate::system::LOCALITY_FILE as FILE;

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    rules: Vec<Rule>,
    /// Lines that say nothing: they cannot be read, or name a node that this host does not have.
    pub faults: Vec<String>,
    /// Why the file, which is there, could not be read.
    pub hidden: Option<String>,
}

/// What one line of the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    of: Of,
    node: NodeNumber,
    /// As it is written.
    line: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    Function(String),
    /// Of a domain, from the first to the last of these.
    Buses(u32, u8, u8),
}

impl Locality {
    /// Reads the file. `nodes`: those of this host.
    pub fn read(system: &System, nodes: &BTreeSet<NodeNumber>) -> Locality {
        let text = match system.text(FILE) {
            Seen::Is(text) => text,
            Seen::Absent => return Locality::default(),
            Seen::Hidden(why) => return Locality { hidden: Some(why), ..Locality::default() },
        };
        let mut locality = Locality::default();
        for line in text.lines() {
            let said = line.split('#').next().unwrap_or_default().trim();
            if said.is_empty() {
                continue;
            }
            match rule(said) {
                Some(rule) if nodes.contains(&rule.node) => locality.rules.push(rule),
                Some(_) | None => locality.faults.push(said.to_owned()),
            }
        }
        locality
    }

    /// The node of a function, and the line that says so.
    pub fn of(&self, address: &str) -> Option<(NodeNumber, &str)> {
        let (domain, bus) = bus_of(address)?;
        let function = |rule: &&Rule| matches!(&rule.of, Of::Function(of) if of == address);
        let buses = |rule: &&Rule| matches!(rule.of, Of::Buses(of, first, last) if of == domain && (first..=last).contains(&bus));
        let rule = self.rules.iter().rfind(function).or_else(|| self.rules.iter().rfind(buses))?;
        Some((rule.node, &rule.line))
    }

    /// The same for what lies at a path of sysfs that is named as a function is.
    pub fn of_path(&self, path: &str) -> Option<NodeNumber> {
        let name = path.rsplit('/').next()?;
        if is_address(name) { self.of(name).map(|(node, _)| node) } else { None }
    }
}

fn bus_of(address: &str) -> Option<(u32, u8)> {
    let mut parts = address.split(':');
    let domain = u32::from_str_radix(parts.next()?, 16).ok()?;
    Some((domain, u8::from_str_radix(parts.next()?, 16).ok()?))
}

fn rule(line: &str) -> Option<Rule> {
    let mut words = line.split_whitespace();
    let (of, node, None) = (words.next()?.to_lowercase(), words.next()?.parse().ok()?, words.next()) else {
        return None;
    };
    let of = if is_address(&of) { Of::Function(of) } else { buses(&of)? };
    Some(Rule { of, node, line: line.to_owned() })
}

/// `0000:40-46`, or `0000:40`.
fn buses(text: &str) -> Option<Of> {
    let (domain, buses) = text.split_once(':')?;
    let (first, last) = buses.split_once('-').unwrap_or((buses, buses));
    let hex = |text: &str| u8::from_str_radix(text, 16).ok().filter(|_| text.len() == 2);
    let (first, last) = (hex(first)?, hex(last)?);
    let domain = u32::from_str_radix(domain, 16).ok().filter(|_| domain.len() >= 4)?;
    (first <= last).then_some(Of::Buses(domain, first, last))
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;
    use crate::fixture::Tree;

    fn tree() -> Tree {
        Tree::new()
            .node(0, "0-3", 4)
            .node(1, "4-7", 4)
            .pci("0000:40:01.0", 0x060400, -1)
            .pci("0000:40:01.0/0000:41:00.0", 0x020000, -1)
            .pci("0000:40:01.0/0000:42:00.0", 0x010802, 0)
            .nic("ens1", "0000:41:00.0", 25_000)
            .disk("nvme0n1", "0000:42:00.0", 100)
    }

    #[test]
    fn a_file_says_where_devices_are_whatever_the_firmware_says() {
        let topology = read(&tree().file(FILE, "# the riser\n0000:40-46 1 # right\n\n").system());
        assert_eq!((topology.nics["ens1"].node, topology.disks["nvme0n1"].node), (Some(1), Some(1)));
        assert_eq!(topology.pci["0000:40:01.0"].node, Some(1));
        assert_eq!(topology.locality.of("0000:41:00.0"), Some((1, "0000:40-46 1")));
        assert_eq!((topology.locality.of("0000:47:00.0"), topology.locality.of("0001:41:00.0")), (None, None));
        assert_eq!(topology.locality.faults, [""; 0]);
        let without = read(&tree().system());
        assert_eq!((without.nics["ens1"].node, without.disks["nvme0n1"].node), (None, Some(0)));
    }

    #[test]
    fn a_line_for_a_function_counts_before_one_for_its_bus_and_the_last_before_the_first() {
        let topology = read(&tree().file(FILE, "0000:41:00.0 0\n0000:40-46 0\n0000:40-46 1\n").system());
        assert_eq!((topology.nics["ens1"].node, topology.disks["nvme0n1"].node), (Some(0), Some(1)));
    }

    #[test]
    fn what_lies_below_a_bus_that_is_named_alone_keeps_what_it_says_itself() {
        let topology = read(&tree().file(FILE, "0000:40 1\n").system());
        assert_eq!((topology.nics["ens1"].node, topology.disks["nvme0n1"].node), (Some(1), Some(0)));
    }

    #[test]
    fn lines_that_cannot_be_read_and_nodes_that_are_not_there_count_for_nothing_and_are_kept_to_be_told() {
        for line in ["0000:41:00.0", "0000:4-46 1", "0000:46-40 1", "40-46 1", "0000:40-46 1 2", "x 1", "0000:40-46 7"]
        {
            let topology = read(&tree().file(FILE, line).system());
            assert_eq!(topology.nics["ens1"].node, None, "{line}");
            assert_eq!(topology.locality.faults, [line]);
        }
        let topology = read(&tree().hidden(FILE).system());
        assert!(topology.nics["ens1"].node.is_none() && topology.locality.hidden.is_some());
        assert_eq!(read(&tree().system()).locality, Locality::default());
    }
}
