//! What is known of parts of a host that several checks and the chain of a path judge by: processors, memory modules, controllers.

use forebay_host::topology::{MemoryModule, PciDevice, Topology};
use std::collections::BTreeSet;

/// Memory channels of a socket, by the processor's name; None: not in this list, which is of servers.
pub fn channels_of(model: &str) -> Option<u32> {
    let after = |word: &str| Some(model.split_once(word)?.1.trim_start());
    let digit =
        |text: &str, at: usize| text.as_bytes().get(at).copied().filter(u8::is_ascii_digit).map(|byte| byte - b'0');
    if let Some(number) = after("EPYC ") {
        // 7xx1 to 7xx3; 9xx4 and 9xx5.
        return match (digit(number, 0)?, digit(number, 3)?) {
            (7, 1..=3) => Some(8),
            (9, 4 | 5) => Some(12),
            (8, 4) => Some(6),
            _ => None,
        };
    }
    for line in ["Xeon(R) Platinum ", "Xeon(R) Gold ", "Xeon(R) Silver ", "Xeon(R) Bronze "] {
        if let Some(number) = after(line) {
            // The second digit is the generation. Cooper Lake, of the third, has an H and six channels.
            let cooper_lake = number.split([' ', '@']).next().is_some_and(|number| number.contains('H'));
            return match (digit(number, 0)?, digit(number, 1)?) {
                (3..=9, 1 | 2) => Some(6),
                (3..=9, 3) => Some(if cooper_lake { 6 } else { 8 }),
                (3..=9, 4 | 5) => Some(8),
                _ => None,
            };
        }
    }
    let number = after("Xeon(R) CPU E5-").or_else(|| after("Xeon(R) CPU  E5-"))?;
    match number.get(..2)? {
        "16" | "26" | "46" => Some(4),
        "14" | "24" => Some(3),
        _ => None,
    }
}

/// What each socket's memory runs at, in mega-transfers a second, and its channels: where the processor is known and every channel has a module.
pub fn full_channels(topology: &Topology) -> Option<(u32, u32)> {
    let plugged: Vec<&MemoryModule> = topology.modules.iter().filter(|module| module.bytes > 0).collect();
    let (channels, sockets) = (channels_of(&topology.cpu_model)?, sockets(topology).len());
    let is_plain = |module: &&MemoryModule| module.kind.starts_with("DDR") && module.configured_mts > 0;
    let even = plugged.len().is_multiple_of(sockets.max(1) * channels as usize) && plugged.iter().all(is_plain);
    let speed = plugged.iter().map(|module| module.configured_mts).min()?;
    even.then_some((speed, channels))
}

/// The sockets of the host.
pub fn sockets(topology: &Topology) -> BTreeSet<u32> {
    topology.cpus.values().map(|cpu| cpu.package).collect()
}

/// Controllers inside the processor or its chipset. Their link is made up: an X722 says `2.5 GT/s x1` and carries
/// 10 Gb/s (device numbers of the drivers ixgbe, i40e, ice and amd-xgbe), the SATA controllers of AMD's processors x16.
pub fn is_on_die(device: &PciDevice) -> bool {
    match (device.vendor, device.device) {
        (
            0x8086,
            0x15aa..=0x15ae
            | 0x15b0
            | 0x15c2..=0x15c8
            | 0x15ce
            | 0x15e4
            | 0x15e5
            | 0x37cc..=0x37d3
            | 0x0dda
            | 0x124c..=0x124f
            | 0x151d
            | 0x1888..=0x1899
            | 0x579c..=0x579f,
        ) => true,
        (0x1022, 0x1458 | 0x1459 | 0x1468 | 0x1641) => true,
        (0x1022, 0x7900..=0x7906 | 0x7916 | 0x7917) => true,
        // An endpoint of the root complex has no link at all.
        _ => device.port_type == Some(9),
    }
}
