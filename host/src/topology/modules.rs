//! Memory modules, of the firmware's table (SMBIOS, DSP0134, structure type 17).

use super::super::system::{Seen, System};
use super::MemoryModule;

const ENTRIES: &str = "/sys/firmware/dmi/entries";

/// All slots, and why they could not be read, where they could not.
pub fn read(system: &System) -> (Vec<MemoryModule>, Option<String>) {
    let entries = match system.list(ENTRIES) {
        Seen::Is(entries) => entries,
        Seen::Absent => return (Vec::new(), None),
        Seen::Hidden(why) => return (Vec::new(), Some(why)),
    };
    let mut instances: Vec<u32> = entries.iter().filter_map(|name| name.strip_prefix("17-")?.parse().ok()).collect();
    instances.sort_unstable();
    let (mut modules, mut hidden) = (Vec::new(), None);
    for instance in instances {
        match system.bytes(&format!("{ENTRIES}/17-{instance}/raw")) {
            Seen::Is(raw) => modules.extend(module(&raw)),
            Seen::Absent => {}
            Seen::Hidden(why) => hidden = hidden.or(Some(why)),
        }
    }
    (modules, hidden)
}

/// Of the structure's bytes and the strings after them. None: too short, or memory that is not the system's (flash, video).
fn module(raw: &[u8]) -> Option<MemoryModule> {
    let length = usize::from(*raw.get(1)?);
    let (fields, strings) = raw.split_at_checked(length)?;
    // What version 2.1 of the table had.
    if length < 0x15 {
        return None;
    }
    let byte = |at: usize| fields.get(at).copied().unwrap_or(0);
    let word = |at: usize| u16::from_le_bytes([byte(at), byte(at + 1)]);
    let long = |at: usize| u32::from(word(at)) | u32::from(word(at + 2)) << 16;
    let string = |number: u8| {
        let nth = usize::from(number).checked_sub(1)?;
        let text = strings.split(|&byte| byte == 0).nth(nth)?;
        Some(String::from_utf8_lossy(text).trim().to_owned())
    };
    let kind = match byte(0x12) {
        0x05 | 0x08..=0x0c => return None,
        0x0f => "SDRAM",
        0x12 => "DDR",
        0x13 => "DDR2",
        0x14 => "DDR2 FB-DIMM",
        0x18 => "DDR3",
        0x1a => "DDR4",
        0x1b => "LPDDR",
        0x1c => "LPDDR2",
        0x1d => "LPDDR3",
        0x1e => "LPDDR4",
        0x1f => "non-volatile",
        0x20 => "HBM",
        0x21 => "HBM2",
        0x22 => "DDR5",
        0x23 => "LPDDR5",
        0x24 => "HBM3",
        _ => "",
    };
    let bytes = match word(0x0c) {
        0 | 0xffff => 0,
        // In megabytes, of modules too large for the old field.
        0x7fff => u64::from(long(0x1c) & 0x7fff_ffff) << 20,
        size if size & 0x8000 != 0 => u64::from(size & 0x7fff) << 10,
        size => u64::from(size) << 20,
    };
    let speed = |at: usize, extended: usize| match word(at) {
        0xffff => long(extended) & 0x7fff_ffff,
        speed => u32::from(speed),
    };
    Some(MemoryModule {
        slot: string(byte(0x10)).unwrap_or_default(),
        bank: string(byte(0x11)).unwrap_or_default(),
        bytes,
        kind: kind.to_owned(),
        rated_mts: speed(0x15, 0x54),
        configured_mts: speed(0x20, 0x58),
        data_bits: Some(u32::from(word(0x0a))).filter(|&bits| bits != 0xffff).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryModule, read};
    use super::module;
    use crate::fixture::Tree;

    fn of_ddr4() -> MemoryModule {
        MemoryModule {
            slot: "DIMM_A1".to_owned(),
            bank: "NODE 0 CHANNEL 0".to_owned(),
            bytes: 32 << 30,
            kind: "DDR4".to_owned(),
            rated_mts: 3200,
            configured_mts: 2933,
            data_bits: 64,
        }
    }

    #[test]
    fn modules_and_empty_slots_are_read_as_the_firmware_wrote_them() {
        let empty = MemoryModule { slot: "DIMM_A2".to_owned(), ..MemoryModule::default() };
        let tree = Tree::new().module(of_ddr4()).module(empty.clone());
        let topology = read(&tree.system());
        assert_eq!(topology.modules, [of_ddr4(), empty]);
        assert_eq!(topology.modules_hidden, None);
    }

    #[test]
    fn modules_that_only_root_may_read_are_hidden_and_a_host_without_the_table_has_none() {
        let tree = Tree::new().module(of_ddr4()).hidden("/sys/firmware/dmi/entries/17-1/raw");
        let topology = read(&tree.system());
        assert_eq!(topology.modules.len(), 1);
        assert!(topology.modules_hidden.is_some_and(|why| why.starts_with("/sys/firmware/dmi/entries/17-1/raw: ")));
        let topology = read(&Tree::new().system());
        assert_eq!((topology.modules.len(), topology.modules_hidden), (0, None));
    }

    #[test]
    fn short_structures_and_chips_of_flash_are_no_modules() {
        let mut raw = vec![0; 0x22];
        (raw[0], raw[1], raw[0x0c], raw[0x12]) = (17, 0x22, 16, 0x18);
        assert!(module(&raw).is_some());
        raw[0x12] = 0x09;
        assert_eq!(module(&raw), None);
        raw[1] = 0x50;
        assert_eq!(module(&raw), None);
        assert_eq!(module(&[]), None);
        assert_eq!(module(&[17, 4, 0, 0]), None);
    }
}
