//! What drivers of network interfaces say through `SIOCETHTOOL`: queues, rings, offloads, link modes, counters.
//!
//! The system call of all kernels. What it lacks (counters of pause frames and of FEC) comes by generic netlink.

use super::super::system::Seen;
use super::netlink::{Netlink, attribute, attributes, put, u64_of};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// What the driver of one interface tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ethernet {
    /// How many queues (`ethtool -l`).
    pub channels: Seen<Channels>,
    /// How long they are (`ethtool -g`).
    pub rings: Seen<Rings>,
    /// Offloads by the kernel's names (`ethtool -k`).
    pub features: Seen<BTreeMap<String, Feature>>,
    /// When it interrupts (`ethtool -c`).
    pub coalescing: Seen<Coalescing>,
    /// Speeds of both ends (`ethtool`).
    pub modes: Seen<Modes>,
    /// Queues that receive anything, by its table for spreading (`ethtool -x`).
    pub receiving_queues: Seen<u32>,
}

/// Queues of an interface: as they are, and at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Channels {
    /// How many are for receiving alone.
    pub rx: u32,
    /// How many are for sending alone.
    pub tx: u32,
    /// How many are for receiving and sending.
    pub combined: u32,
    /// The most that `rx` can be set to.
    pub rx_max: u32,
    /// The most that `combined` can be set to.
    pub combined_max: u32,
}

impl Channels {
    /// How many queues receive.
    pub fn receiving(&self) -> u32 {
        self.rx + self.combined
    }

    /// How many queues send.
    pub fn sending(&self) -> u32 {
        self.tx + self.combined
    }

    /// The most queues that can receive.
    pub fn receiving_max(&self) -> u32 {
        self.rx_max.max(self.combined_max)
    }
}

/// Packets that a queue holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rings {
    /// Received packets that wait for the kernel.
    pub rx: u32,
    /// The most that `rx` can be set to.
    pub rx_max: u32,
    /// Packets that wait to be sent.
    pub tx: u32,
}

/// An offload: work that the hardware may do for the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Feature {
    /// It is in use now.
    pub on: bool,
    /// The driver could switch it.
    pub can_change: bool,
}

/// How many packets, and how long, an interface waits before it interrupts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Coalescing {
    /// The driver decides by the load.
    pub adaptive_rx: bool,
    /// How long it waits after a received packet, in microseconds.
    pub rx_usecs: u32,
    /// How many received packets it waits for.
    pub rx_frames: u32,
    /// The driver decides by the load of what is sent.
    pub adaptive_tx: bool,
    /// How long it waits after a packet was sent, in microseconds.
    pub tx_usecs: u32,
    /// How many sent packets it waits for.
    pub tx_frames: u32,
}

/// Speeds in megabits a second. Empty: the driver does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Modes {
    /// What the interface can do.
    pub supported: BTreeSet<u32>,
    /// What it offers to the other end.
    pub offered: BTreeSet<u32>,
    /// What the other end offers.
    pub partner: BTreeSet<u32>,
}

/// What an interface's line is by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Megabits a second; none: the driver does not tell, or there is no line.
    pub speed_mbit: Option<u32>,
    /// Both directions at one time.
    pub full_duplex: Option<bool>,
}

const GET_COALESCING: u32 = 0x0e;
const GET_RINGS: u32 = 0x10;
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_STRING_COUNT: u32 = 0x37;
const GET_SPREADING: u32 = 0x38;
const GET_FEATURES: u32 = 0x3a;
const GET_CHANNELS: u32 = 0x3c;
const GET_LINK_SETTINGS: u32 = 0x4c;
const STRINGS_STATISTICS: u32 = 1;
const STRINGS_FEATURES: u32 = 4;
const STRING_BYTES: usize = 32;
/// No driver has more; a number beyond is not believed.
const STRINGS_MAX: u32 = 1 << 16;
/// Counters come and go with queues, and the kernel writes as many as there are by then: room for that.
const STRINGS_MORE: usize = 16 << 10;

/// Asks the drivers of interfaces, through a socket.
pub struct Asker {
    socket: File,
}

impl Asker {
    /// Any socket will do.
    pub fn open() -> io::Result<Asker> {
        // SAFETY: it takes three numbers.
        let made = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else's.
        Ok(Asker { socket: unsafe { File::from_raw_fd(made) } })
    }

    /// All that is told of one.
    pub fn look(&self, name: &str) -> Ethernet {
        let numbers = |command: u32, count: usize| {
            let mut words = vec![0_u32; count];
            words[0] = command;
            self.ask(name, &mut words).map(|()| words)
        };
        Ethernet {
            channels: seen(name, "its queues", numbers(GET_CHANNELS, 9)).map(|words| Channels {
                rx: words[5],
                tx: words[6],
                combined: words[8],
                rx_max: words[1],
                combined_max: words[4],
            }),
            rings: seen(name, "its rings", numbers(GET_RINGS, 9)).map(|words| Rings {
                rx: words[5],
                rx_max: words[1],
                tx: words[8],
            }),
            features: seen(name, "its offloads", self.features(name)),
            coalescing: seen(name, "its coalescing", numbers(GET_COALESCING, 23)).map(|words| Coalescing {
                adaptive_rx: words[10] != 0,
                rx_usecs: words[1],
                rx_frames: words[2],
                adaptive_tx: words[11] != 0,
                tx_usecs: words[5],
                tx_frames: words[6],
            }),
            modes: seen(name, "its link modes", self.modes(name)),
            receiving_queues: seen(name, "how it spreads", self.receiving_queues(name)),
        }
    }

    /// Counters of the driver, in its own words.
    pub fn statistics(&self, name: &str) -> io::Result<Vec<(String, u64)>> {
        let names = self.strings(name, STRINGS_STATISTICS)?;
        // Command and count, then 64 bits for each.
        let mut words = vec![0_u32; 2 + 2 * (names.len() + STRINGS_MORE)];
        (words[0], words[1]) = (GET_STATISTICS, names.len() as u32);
        self.ask(name, &mut words)?;
        if words[1] as usize != names.len() {
            return Err(io::Error::other("its queues are being changed"));
        }
        let values = words[2..].chunks_exact(2).map(|pair| wide(pair[0], pair[1]));
        Ok(names.into_iter().zip(values).collect())
    }

    fn features(&self, name: &str) -> io::Result<BTreeMap<String, Feature>> {
        let names = self.strings(name, STRINGS_FEATURES)?;
        let blocks = names.len().div_ceil(32);
        let mut words = vec![0_u32; 2 + 4 * blocks];
        (words[0], words[1]) = (GET_FEATURES, blocks as u32);
        self.ask(name, &mut words)?;
        // Of 32 features each: available, requested, active, never changed.
        let bit = |index: usize, part: usize| words[2 + index / 32 * 4 + part] >> (index % 32) & 1 == 1;
        let feature = |index| Feature { on: bit(index, 2), can_change: bit(index, 0) && !bit(index, 3) };
        let told = names.into_iter().enumerate().filter(|(_, name)| !name.is_empty());
        Ok(told.map(|(index, name)| (name, feature(index))).collect())
    }

    /// Speed of an interface's line, and whether it carries both directions at one time.
    pub fn line(&self, name: &str) -> io::Result<Line> {
        let (words, _) = self.link_settings(name)?;
        Ok(Line {
            speed_mbit: Some(words[1]).filter(|speed| !matches!(*speed, 0 | u32::MAX)),
            full_duplex: match words[2].to_ne_bytes()[0] {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            },
        })
    }

    fn modes(&self, name: &str) -> io::Result<Modes> {
        let (words, length) = self.link_settings(name)?;
        let speeds = |map: usize| speeds(&words[12 + map * length..12 + (map + 1) * length]);
        Ok(Modes { supported: speeds(0), offered: speeds(1), partner: speeds(2) })
    }

    /// `struct ethtool_link_settings` with its maps of modes, and how many words each of these has.
    fn link_settings(&self, name: &str) -> io::Result<(Vec<u32>, usize)> {
        // The first question is refused with the length of the maps, as a negative number.
        let mut words = vec![0_u32; 12];
        words[0] = GET_LINK_SETTINGS;
        self.ask(name, &mut words)?;
        let length = usize::from((words[3].to_ne_bytes()[3] as i8).unsigned_abs());
        let mut words = vec![0_u32; 12 + 3 * length];
        words[0] = GET_LINK_SETTINGS;
        let mut third = words[3].to_ne_bytes();
        third[3] = length as u8;
        words[3] = u32::from_ne_bytes(third);
        self.ask(name, &mut words)?;
        Ok((words, length))
    }

    fn receiving_queues(&self, name: &str) -> io::Result<u32> {
        let mut words = vec![GET_SPREADING, 0];
        self.ask(name, &mut words)?;
        let size = words[1].min(STRINGS_MAX);
        if size == 0 {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let mut words = vec![0; 2 + size as usize];
        (words[0], words[1]) = (GET_SPREADING, size);
        self.ask(name, &mut words)?;
        Ok(words[2..].iter().collect::<BTreeSet<_>>().len() as u32)
    }

    fn strings(&self, name: &str, set: u32) -> io::Result<Vec<String>> {
        // Command, reserved, a mask of 64 bits, and a count for each bit.
        let mut words = vec![GET_STRING_COUNT, 0, 0, 0, 0];
        let mask = (1_u64 << set).to_ne_bytes();
        words[2] = u32::from_ne_bytes([mask[0], mask[1], mask[2], mask[3]]);
        words[3] = u32::from_ne_bytes([mask[4], mask[5], mask[6], mask[7]]);
        self.ask(name, &mut words)?;
        let count = words[4];
        if wide(words[2], words[3]) == 0 || count == 0 || count > STRINGS_MAX {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let mut words = vec![0_u32; 3 + (count as usize + STRINGS_MORE) * STRING_BYTES / 4];
        (words[0], words[1], words[2]) = (GET_STRINGS, set, count);
        self.ask(name, &mut words)?;
        let told = count.min(words[2]) as usize * STRING_BYTES / 4;
        let bytes: Vec<u8> = words[3..3 + told].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let text = |bytes: &[u8]| {
            let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
        };
        Ok(bytes.chunks_exact(STRING_BYTES).map(text).collect())
    }

    /// `words`: the command with room for what the kernel answers to it.
    fn ask(&self, name: &str, words: &mut [u32]) -> io::Result<()> {
        // SAFETY: zeroes are a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *place = byte as libc::c_char;
        }
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: the name ends with a zero; `words` outlives the call and has the room for its command's answer: fixed structures
        // whole; for the others each caller has made it so, by the count that it puts in and the kernel keeps to, or with more.
        let answered = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        if answered < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn wide(first: u32, second: u32) -> u64 {
    let (first, second) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([first[0], first[1], first[2], first[3], second[0], second[1], second[2], second[3]])
}

fn seen<T>(name: &str, what: &str, result: io::Result<T>) -> Seen<T> {
    match result {
        Ok(value) => Seen::Is(value),
        Err(e) => match e.raw_os_error() {
            // The driver has no such thing, or the interface has gone.
            Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV) => Seen::Absent,
            _ => Seen::Hidden(format!("ask the driver of {name} for {what}: {e}")),
        },
    }
}

/// Speeds in Mbit/s of link modes, first and last bit of a run each (`enum ethtool_link_mode_bit_indices`); bits of no speed are left
/// out, and so are those that this program is older than.
const SPEEDS: &[(u32, u32, u32)] = &[
    (0, 1, 10),
    (2, 3, 100),
    (4, 5, 1_000),
    (12, 12, 10_000),
    (15, 15, 2_500),
    (17, 17, 1_000),
    (18, 19, 10_000),
    (21, 22, 20_000),
    (23, 26, 40_000),
    (27, 30, 56_000),
    (31, 33, 25_000),
    (34, 35, 50_000),
    (36, 39, 100_000),
    (40, 40, 50_000),
    (41, 41, 1_000),
    (42, 46, 10_000),
    (47, 47, 2_500),
    (48, 48, 5_000),
    (52, 56, 50_000),
    (57, 61, 100_000),
    (62, 66, 200_000),
    (67, 67, 100),
    (68, 68, 1_000),
    (69, 73, 400_000),
    (75, 79, 100_000),
    (80, 84, 200_000),
    (85, 89, 400_000),
    (90, 91, 100),
    (92, 92, 10),
];

fn speeds(map: &[u32]) -> BTreeSet<u32> {
    let set = |bit: u32| map.get(bit as usize / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1);
    SPEEDS.iter().filter(|&&(first, last, _)| (first..=last).any(set)).map(|&(_, _, speed)| speed).collect()
}

const GET_PAUSE: u8 = 21;
const GET_FEC: u8 = 29;
/// In both: the interface.
const HEADER: u16 = 1;
const HEADER_NAME: u16 = 2;
const HEADER_FLAGS: u16 = 3;
/// The answer is to have the counters as well.
const FLAG_STATISTICS: u32 = 4;
const PAUSE_STATISTICS: u16 = 5;
const PAUSE_SENT: u16 = 2;
const PAUSE_RECEIVED: u16 = 3;
const FEC_STATISTICS: u16 = 5;
const FEC_CORRECTED: u16 = 2;
const FEC_UNCORRECTABLE: u16 = 3;

/// Counters that the kernel names alike for all drivers: `pause/rx`, `pause/tx`, `fec/corrected`, `fec/uncorrectable`. None for a driver
/// that does not count.
pub fn standard_statistics(generic: &mut Netlink, family: u16, name: &str) -> Vec<(&'static str, u64)> {
    let mut ask = |command: u8, statistics: u16| {
        let mut header = Vec::new();
        put(&mut header, HEADER_NAME, &[name.as_bytes(), b"\0"].concat());
        put(&mut header, HEADER_FLAGS, &FLAG_STATISTICS.to_ne_bytes());
        let mut question = vec![command, 1, 0, 0];
        put(&mut question, HEADER | libc::NLA_F_NESTED as u16, &header);
        let answer = generic.get(family, &question).ok()?;
        attribute(answer.get(4..)?, statistics).map(<[u8]>::to_vec)
    };
    let mut counted = Vec::new();
    for (command, statistics, names) in [
        (GET_PAUSE, PAUSE_STATISTICS, [(PAUSE_SENT, "pause/tx"), (PAUSE_RECEIVED, "pause/rx")]),
        (GET_FEC, FEC_STATISTICS, [(FEC_CORRECTED, "fec/corrected"), (FEC_UNCORRECTABLE, "fec/uncorrectable")]),
    ] {
        let answer = ask(command, statistics).unwrap_or_default();
        for (kind, value) in attributes(&answer) {
            // FEC counts all, and then for each lane.
            let total = value.get(..8).and_then(u64_of);
            let name = names.iter().find(|(named, _)| *named == kind).map(|(_, name)| *name);
            counted.extend(name.zip(total));
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_link_modes_are_speeds() {
        // 1000baseT/Full, Autoneg, TP, Pause, 2500baseT/Full.
        let map = [1 << 5 | 1 << 6 | 1 << 7 | 1 << 13, 1 << (47 - 32), 0];
        assert_eq!(speeds(&map), BTreeSet::from([1_000, 2_500]));
        assert_eq!(speeds(&[0, 1 << (49 - 32)]), BTreeSet::new(), "FEC is no speed");
        assert_eq!(speeds(&[0, 0, 1 << (73 - 64)]), BTreeSet::from([400_000]));
    }

    #[test]
    fn the_loopback_has_offloads_and_no_rings() {
        let asked = Asker::open().expect("a socket").look("lo");
        let features = asked.features.known().expect("every interface has some");
        assert!(features.contains_key("tx-tcp-segmentation"), "{features:?}");
        assert!(features["loopback"] == Feature { on: true, can_change: false }, "{features:?}");
        assert_eq!(asked.rings, Seen::Absent);
        assert_eq!(Asker::open().expect("a socket").look("none-such").features, Seen::Absent);
    }
}
