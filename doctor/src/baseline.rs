//! What an update, a reboot or a hand may change without anybody's notice: kept once while all is well, compared later.
//!
//! Kept is what the checks look at and what does not change by itself: places of interrupts, links of network, storage and
//! RDMA functions, interfaces with what their drivers are set to, governors, settings of the kernel, disks' queues, memory modules;
//! and the versions of kernel, firmware and drivers, which often are the reason.

use super::counters::matching;
use super::findings::Sentence;
use super::words::{Language, say};
use super::{Host, interfaces};
use anyhow::{Context, Result, bail};
use forebay_api::calendar;
use forebay_host::net::Ethernet;
use forebay_host::system::{Seen, System};
use forebay_host::topology::numbers;
use forebay_io::folder::Folder;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;

/// Where it lies when nobody says otherwise, as a path of the host.
pub const FILE: &str = "/var/lib/forebay-doctor/baseline.json";
/// Of the file.
const FORMAT: u32 = 1;
/// Bytes that are read of it.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Settings of the kernel that checks read, and which way is worse.
const SETTINGS: &[(&str, Better)] = &[
    ("/proc/sys/vm/zone_reclaim_mode", Better::Lower),
    ("/proc/sys/kernel/numa_balancing", Better::Unknown),
    ("/sys/kernel/mm/transparent_hugepage/enabled", Better::Unknown),
    ("/sys/kernel/mm/transparent_hugepage/defrag", Better::Unknown),
    ("/proc/sys/vm/dirty_ratio", Better::Unknown),
    ("/proc/sys/vm/dirty_bytes", Better::Unknown),
    ("/proc/sys/vm/dirty_background_ratio", Better::Unknown),
    ("/proc/sys/vm/dirty_background_bytes", Better::Unknown),
    ("/proc/sys/net/core/rmem_max", Better::Higher),
    ("/proc/sys/net/core/wmem_max", Better::Higher),
    ("/proc/sys/net/ipv4/tcp_rmem", Better::Higher),
    ("/proc/sys/net/ipv4/tcp_wmem", Better::Higher),
    ("/proc/sys/net/ipv4/tcp_congestion_control", Better::Unknown),
    ("/proc/sys/net/mptcp/enabled", Better::Higher),
    ("/sys/module/pcie_aspm/parameters/policy", Better::Unknown),
    ("/sys/devices/system/cpu/intel_pstate/no_turbo", Better::Lower),
    ("/sys/devices/system/cpu/cpufreq/boost", Better::Higher),
    ("/sys/devices/system/cpu/smt/active", Better::Unknown),
    ("/proc/cmdline", Better::Unknown),
];

/// Files of each CPU: which CPUs have which value is one line.
const OF_CPUS: &[(&str, Better)] = &[
    ("/sys/devices/system/cpu/*/cpufreq/scaling_governor", Better::Word("performance")),
    ("/sys/devices/system/cpu/*/cpufreq/energy_performance_preference", Better::Word("performance")),
];

/// Files of a disk's queue.
const OF_QUEUES: &[(&str, Better)] = &[
    ("scheduler", Better::Unknown),
    ("rq_affinity", Better::Unknown),
    ("nr_requests", Better::Unknown),
    ("read_ahead_kb", Better::Unknown),
    ("write_cache", Better::Unknown),
];

/// Upper eight bits of a PCI class whose link bounds a data path: storage, network, serial buses (InfiniBand is one of them).
const CLASSES: [u32; 3] = [0x01, 0x02, 0x0c];

/// Which way is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Better {
    /// The last number of it.
    Higher,
    /// The last number of it, the lower the better.
    Lower,
    /// This word for all.
    Word(&'static str),
    /// More of these CPUs are of the device's own node.
    Nearer,
    /// That it is there.
    There,
    /// Either may be.
    Unknown,
}

/// One thing, as it was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Item {
    /// The file that says so.
    pub file: String,
    /// What the file says of it.
    pub value: String,
}

/// A host, as it was.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Baseline {
    format: u32,
    /// When the host was looked at, RFC 3339.
    pub time: String,
    /// Release of the kernel that ran then.
    pub kernel: String,
    /// By what they are, which outlives a reboot: interrupts have other numbers then.
    pub items: BTreeMap<String, Item>,
}

/// How something differs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// It has become worse.
    Worse,
    /// It is another, and either may be better.
    Other,
    /// It has become better.
    Better,
}

/// What differs from the baseline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    /// Name of the thing that differs.
    pub what: String,
    /// The file that shows it, now or then.
    pub file: String,
    /// Nothing: it was not there.
    pub was: Option<String>,
    /// Nothing: it is there no more.
    pub now: Option<String>,
    /// Whether it is worse, better, or only other than it was.
    pub how: How,
}

impl Difference {
    /// The sentence that tells it, with `-` for what is not there.
    pub fn says(&self) -> Sentence {
        let sentence = Sentence::new(match self.how {
            How::Worse => "baseline.worse",
            How::Other => "baseline.other",
            How::Better => "baseline.better",
        });
        sentence.with("what", &self.what).with("was", shown(&self.was)).with("now", shown(&self.now))
    }
}

/// Settings of one device that a line names, or more where more have become worse; JSON, and `--verbose`, have all of them.
const NAMED_OF_DEVICE: usize = 8;

/// Where a thing of a device stands in its line: the device itself, what bounds it outright, and the versions that may be the reason come
/// before its settings and interrupts.
fn rank(thing: &str) -> usize {
    let first = ["", "lanes", "speed", "mtu", "duplex", "version", "srcversion"];
    first.iter().position(|name| *name == thing).unwrap_or(first.len() + usize::from(thing.starts_with(INTERRUPT)))
}

/// What a device's interrupts begin with in its line.
const INTERRUPT: &str = "interrupt ";

/// The device, driver or the like that a thing belongs to, and its name there: `interface eth0: mtu` is `mtu` of `interface eth0`. None:
/// it stands for itself.
fn part_of(name: &str) -> Option<(String, String)> {
    let (kind, rest) = name.split_once(' ')?;
    let (of, thing) = match kind {
        "interface" | "disk" => match rest.split_once(": ") {
            Some((device, setting)) => (format!("{kind} {device}"), setting.to_owned()),
            None => (name.to_owned(), String::new()),
        },
        "driver" => rest.split_once(' ').map(|(driver, file)| (format!("driver {driver}"), file.to_owned()))?,
        "lanes" | "speed" | "node" => (format!("device {}", rest.strip_prefix("of ")?), kind.to_owned()),
        "interrupt" => {
            let (device, interrupt) = rest.split_once(' ')?;
            (format!("device {device}"), format!("interrupt {interrupt}"))
        }
        _ => return None,
    };
    Some((of, thing))
}

/// The differences as lines, one for each device: what has become worse of it, then what is only another, then what is better. The
/// worse devices come first.
pub fn lines(differences: &[Difference], language: Language) -> Vec<String> {
    let mut devices: Vec<(String, Vec<(String, &Difference)>)> = Vec::new();
    let mut at: BTreeMap<String, usize> = BTreeMap::new();
    for difference in differences {
        let (of, thing) = part_of(&difference.what).unwrap_or_else(|| (difference.what.clone(), String::new()));
        let nth = *at.entry(of.clone()).or_insert(devices.len());
        if nth == devices.len() {
            devices.push((of, Vec::new()));
        }
        devices[nth].1.push((thing, difference));
    }
    devices.iter().map(|(device, things)| line(device, things, language)).collect()
}

/// What differs of one device: the worse first, none of which is left out, and several interrupts as their number.
fn line(device: &str, things: &[(String, &Difference)], language: Language) -> String {
    if let [(_, only)] = things {
        return say(language, &only.says());
    }
    let mut things: Vec<&(String, &Difference)> = things.iter().collect();
    things.sort_by_key(|(thing, difference)| (difference.how, rank(thing)));
    let is_interrupt = |thing: &str| thing.starts_with(INTERRUPT);
    let together: Vec<_> = things
        .chunk_by(|(one, was), (other, is)| is_interrupt(one) && is_interrupt(other) && was.how == is.how)
        .collect();
    let mut text = String::new();
    let mut before = things.first().map_or(How::Other, |(_, difference)| difference.how);
    let key = match before {
        How::Worse => "baseline.worse-device",
        How::Other => "baseline.other-device",
        How::Better => "baseline.better-device",
    };
    let mut left = 0;
    for (nth, alike) in together.iter().enumerate() {
        let (thing, Difference { was, now, how, .. }) = alike[0];
        if nth >= NAMED_OF_DEVICE && *how != How::Worse {
            left += alike.len();
            continue;
        }
        // Of what follows in another direction it is said which.
        let turn = match how {
            _ if *how == before => None,
            How::Worse => Some("baseline.worse-word"),
            How::Other => Some("baseline.other-word"),
            How::Better => Some("baseline.better-word"),
        };
        before = *how;
        if let Some(word) = turn {
            text.push_str(&format!("; {}: ", say(language, &Sentence::new(word))));
        } else if !text.is_empty() {
            text.push_str(", ");
        }
        if alike.len() > 1 {
            text.push_str(&say(language, &Sentence::new("baseline.interrupts").with("count", alike.len())));
            continue;
        }
        let name = if thing.is_empty() { String::new() } else { format!("{thing} ") };
        text.push_str(&format!("{name}{} -> {}", shown(was), shown(now)));
    }
    if left > 0 {
        text.push_str(&format!(" (+{left})"));
    }
    say(language, &Sentence::new(key).with("what", device).with("differs", text))
}

/// A value, or `-` for what is not there.
fn shown(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or("-")
}

/// What there is of one thing: its name, the item, and which way is better.
type Kept = (String, Item, Better);

impl Baseline {
    /// The baseline of a host as it is now.
    pub fn of(host: &Host) -> Baseline {
        let items = kept(host).into_iter().map(|(name, item, _)| (name, item));
        Baseline {
            format: FORMAT,
            time: calendar::show_ms(calendar::now_ms()),
            kernel: host.topology.kernel.clone(),
            items: items.collect(),
        }
    }

    /// Of a file in a folder.
    pub fn read(folder: &Folder, name: &OsStr) -> Result<Baseline> {
        let path = folder.path().join(name);
        let with = || format!("read the baseline in {}; `forebay doctor baseline save` makes one", path.display());
        let bytes = folder.read(name, FILE_BYTES_MAX).with_context(with)?;
        let baseline: Baseline = serde_json::from_slice(&bytes).with_context(with)?;
        if baseline.format != FORMAT {
            let format = baseline.format;
            bail!("{}: format {format}; this program reads {FORMAT}: save the baseline again", path.display());
        }
        Ok(baseline)
    }

    /// Into a file, in one go: an earlier one is there until the new one is whole.
    pub fn save(&self, folder: &Folder, name: &OsStr) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let with = || format!("save the baseline in {}", folder.path().join(name).display());
        folder.replace(name, &text, 0o644).with_context(with)
    }

    /// What is kept of interrupts: which, and where it might go.
    pub fn interrupts(&self) -> impl Iterator<Item = (&String, &Item)> {
        self.items.iter().filter(|(name, _)| name.starts_with("interrupt "))
    }

    /// What differs now, the worse first.
    pub fn differences(&self, host: &Host) -> Vec<Difference> {
        let now: BTreeMap<String, (Item, Better)> =
            kept(host).into_iter().map(|(name, item, better)| (name, (item, better))).collect();
        let names: BTreeSet<&String> = self.items.keys().chain(now.keys()).collect();
        let mut all: Vec<Difference> = names
            .into_iter()
            .filter_map(|name| {
                let (was, there) = (self.items.get(name), now.get(name));
                let how = match (was, there) {
                    (Some(was), Some((now, _))) if was.value == now.value => return None,
                    (Some(was), Some((now, better))) => judged(*better, &was.value, &now.value, near(host, name)),
                    (Some(was), None) if is_hidden(host, name, was) => return None,
                    // A part that tells of no such settings now, or told of none then, has lost and won none.
                    (Some(_), None) if !tells(&now, name) => return None,
                    (None, Some(_)) if !tells(&self.items, name) => return None,
                    // Versions of what is not there any more say nothing by themselves.
                    (Some(_), None) if is_part(name) => How::Worse,
                    (Some(_), None) | (None, Some(_)) => How::Other,
                    (None, None) => unreachable!("the name is of one of them"),
                };
                let value = |item: &Item| item.value.clone();
                let file = there.map(|(item, _)| item).or(was).map(|item| item.file.clone()).unwrap_or_default();
                let (was, now) = (was.map(value), there.map(|(item, _)| value(item)));
                Some(Difference { what: name.clone(), file, was, now, how })
            })
            .collect();
        all.sort_by_key(|difference| difference.how);
        all
    }
}

/// Whether a thing is a part of the host, whose loss is one.
fn is_part(name: &str) -> bool {
    ["disk ", "interface ", "memory module "].iter().any(|kind| name.starts_with(kind)) && !name.contains(": ")
}

/// Whether a part told of any setting of this one's kind: `interface eth0: offload rx-gro` is one of `interface eth0: offload`.
/// True for what is no setting of a part.
fn tells<T>(all: &BTreeMap<String, T>, name: &str) -> bool {
    let Some((kind, _)) = name.rsplit_once(' ').filter(|_| name.contains(": ")) else { return true };
    all.keys().any(|other| other.strip_prefix(kind).is_some_and(|rest| rest.starts_with(' ')))
}

/// Whether what was seen then is there and cannot be seen now, as by another user: it is not lost.
fn is_hidden(host: &Host, name: &str, was: &Item) -> bool {
    match name.starts_with("memory module ") {
        true => host.topology.modules_hidden.is_some(),
        false => matches!(host.system.text(&was.file), Seen::Hidden(_)),
    }
}

/// CPUs of the node that the device of an interrupt is at; none where the host has one node, or its place is unknown.
fn near(host: &Host, name: &str) -> Option<Vec<u32>> {
    let pci = name.strip_prefix("interrupt ")?.split(' ').next()?;
    let node = host.topology.pci.get(pci)?.node?;
    let cpus = host.topology.nodes.get(&node).map(|node| node.cpus.clone())?;
    (host.topology.nodes.values().filter(|node| !node.cpus.is_empty()).count() > 1).then_some(cpus)
}

/// Which way a thing differs.
fn judged(better: Better, was: &str, now: &str, near: Option<Vec<u32>>) -> How {
    let last = |text: &str| text.split_whitespace().filter_map(|word| word.parse::<f64>().ok()).next_back();
    let order = |was: f64, now: f64| match now.total_cmp(&was) {
        std::cmp::Ordering::Less => How::Worse,
        std::cmp::Ordering::Equal => How::Other,
        std::cmp::Ordering::Greater => How::Better,
    };
    match better {
        Better::Higher => last(was).zip(last(now)).map_or(How::Other, |(was, now)| order(was, now)),
        Better::Lower => last(was).zip(last(now)).map_or(How::Other, |(was, now)| order(now, was)),
        Better::Word(word) => {
            let has = |text: &str| text.split(", ").all(|part| part.split(':').next() == Some(word));
            order(f64::from(u8::from(has(was))), f64::from(u8::from(has(now))))
        }
        Better::Nearer => {
            let Some(near) = near else { return How::Other };
            let share = |text: &str| {
                let cpus = numbers(text);
                cpus.iter().filter(|cpu| near.contains(cpu)).count() as f64 / cpus.len().max(1) as f64
            };
            order(share(was), share(now))
        }
        Better::There | Better::Unknown => How::Other,
    }
}

/// Everything that is kept.
fn kept(host: &Host) -> Vec<Kept> {
    let (system, topology) = (&host.system, &host.topology);
    let mut all = Vec::new();
    let mut add = |name: String, file: &str, better: Better| {
        if let Some(value) = system.text(file).known() {
            all.push((name, Item { file: file.to_owned(), value }, better));
        }
    };
    add("kernel".to_owned(), "/proc/sys/kernel/osrelease", Better::Unknown);
    add("firmware".to_owned(), "/sys/class/dmi/id/bios_version", Better::Unknown);
    for &(file, better) in SETTINGS {
        add(format!("setting {file}"), file, better);
    }
    let drivers = topology.pci.values().filter(|device| CLASSES.contains(&(device.class >> 16)));
    let drivers: BTreeSet<&String> = drivers.filter_map(|device| device.driver.as_ref()).collect();
    for driver in drivers {
        for name in ["version", "srcversion"] {
            add(format!("driver {driver} {name}"), &format!("/sys/module/{driver}/{name}"), Better::Unknown);
        }
    }
    for (address, device) in topology.pci.iter().filter(|(_, device)| CLASSES.contains(&(device.class >> 16))) {
        let at = |name: &str| format!("/sys/bus/pci/devices/{address}/{name}");
        if device.link.is_some() {
            add(format!("lanes of {address}"), &at("current_link_width"), Better::Higher);
            add(format!("speed of {address}"), &at("current_link_speed"), Better::Higher);
        }
        add(format!("node of {address}"), &at("numa_node"), Better::Unknown);
    }
    for (name, nic) in topology.nics.iter().filter(|(_, nic)| !["loopback", "veth", "virtual"].contains(&&*nic.kind)) {
        let at = |file: &str| format!("/sys/class/net/{name}/{file}");
        add(format!("interface {name}"), &at("type"), Better::There);
        add(format!("interface {name}: mtu"), &at("mtu"), Better::Higher);
        // Of one that is down the kernel says nothing that holds.
        if nic.up {
            add(format!("interface {name}: speed"), &at("speed"), Better::Higher);
            add(format!("interface {name}: duplex"), &at("duplex"), Better::Unknown);
        }
    }
    for (name, _) in topology.disks.iter().filter(|(_, disk)| disk.pci.is_some()) {
        add(format!("disk {name}"), &format!("/sys/block/{name}/size"), Better::There);
        for &(file, better) in OF_QUEUES {
            add(format!("disk {name}: {file}"), &format!("/sys/block/{name}/queue/{file}"), better);
        }
    }
    for (number, interrupt) in topology.interrupts.iter().filter(|(_, interrupt)| !interrupt.managed) {
        let Some(pci) = &interrupt.pci else { continue };
        let file = format!("/proc/irq/{number}/smp_affinity_list");
        add(format!("interrupt {pci} {}", interrupt.name), &file, Better::Nearer);
    }
    for &(pattern, better) in OF_CPUS {
        all.extend(of_cpus(system, pattern, better));
    }
    for module in topology.modules.iter().filter(|module| module.bytes > 0) {
        let value = format!("{} MiB {} MT/s", module.bytes >> 20, module.configured_mts);
        let item = Item { file: "/sys/firmware/dmi/entries".to_owned(), value };
        all.push((format!("memory module {} {}", module.slot, module.bank), item, Better::Unknown));
    }
    all.extend(interfaces::hardware(host).flat_map(|(name, _)| of_driver(name, host.net.ethernet(name))));
    all
}

/// What the driver of an interface is set to: drivers forget it when they are loaded anew.
fn of_driver(nic: &str, told: Ethernet) -> Vec<Kept> {
    let mut all = Vec::new();
    let mut add = |kind: &str, option: char, name: &str, value: String, better: Better| {
        let file = format!("ethtool -{option} {nic}: {name}");
        all.push((format!("interface {nic}: {kind} {name}"), Item { file, value }, better));
    };
    let on = |on: bool| if on { "on" } else { "off" }.to_owned();
    for (name, feature) in told.features.known().unwrap_or_default() {
        let wanted = interfaces::WANTED.iter().any(|(wanted, _)| *wanted == name);
        // A new kernel brings names of what this card never does.
        if wanted || feature.on || feature.can_change {
            add("offload", 'k', &name, on(feature.on), if wanted { Better::Word("on") } else { Better::Unknown });
        }
    }
    if let Some(rings) = told.rings.known() {
        for (name, packets) in [("rx", rings.rx), ("tx", rings.tx)].into_iter().filter(|(_, packets)| *packets > 0) {
            add("ring", 'g', name, packets.to_string(), Better::Higher);
        }
    }
    if let Some(channels) = told.channels.known() {
        add("queues", 'l', "rx", channels.receiving().to_string(), Better::Higher);
        add("queues", 'l', "tx", channels.sending().to_string(), Better::Higher);
    }
    if let Some(queues) = told.receiving_queues.known() {
        add("spreading", 'x', "queues", queues.to_string(), Better::Higher);
    }
    if let Some(waits) = told.coalescing.known() {
        let of_way = [
            ("rx", waits.adaptive_rx, waits.rx_usecs, waits.rx_frames),
            ("tx", waits.adaptive_tx, waits.tx_usecs, waits.tx_frames),
        ];
        for (way, adaptive, microseconds, frames) in of_way {
            add("coalescing", 'c', &format!("adaptive-{way}"), on(adaptive), Better::Unknown);
            // Where the driver decides by the load, it is another at each look.
            if !adaptive {
                add("coalescing", 'c', &format!("{way}-usecs"), microseconds.to_string(), Better::Unknown);
                add("coalescing", 'c', &format!("{way}-frames"), frames.to_string(), Better::Unknown);
            }
        }
    }
    all
}

/// Which CPUs have which value of a file, as `performance: 0-7`.
fn of_cpus(system: &System, pattern: &str, better: Better) -> Option<Kept> {
    let (before, after) = pattern.split_once('*').expect("a pattern of CPUs");
    let mut values: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for path in matching(system, pattern) {
        let number = path[before.len()..].strip_prefix("cpu").and_then(|rest| rest.split('/').next()?.parse().ok());
        if let (Some(number), Some(value)) = (number, system.text(&path).known()) {
            values.entry(value).or_default().push(number);
        }
    }
    if values.is_empty() {
        return None;
    }
    let parts: Vec<String> = values.iter_mut().map(|(value, cpus)| format!("{value}: {}", ranges(cpus))).collect();
    let name = format!("CPUs {}", after.rsplit('/').next().expect("a name"));
    Some((name, Item { file: pattern.to_owned(), value: parts.join(", ") }, better))
}

/// `0-3 8` of the numbers.
fn ranges(numbers: &mut [u32]) -> String {
    numbers.sort_unstable();
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &number in numbers.iter() {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let one = |&(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    parts.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;
    use forebay_host::net::{Channels, Coalescing, Feature, Net, Rings};
    use forebay_host::topology::MemoryModule;

    const CARD: &str = "0000:81:00.0";

    fn tree() -> Tree {
        Tree::new()
            .node(0, "0-1", 8)
            .node(1, "2-3", 8)
            .file("/proc/sys/kernel/osrelease", "6.8.0\n")
            .file("/proc/sys/vm/zone_reclaim_mode", "0\n")
            .file("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t33554432\n")
            .file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
            .file("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n")
            .pci("0000:80:01.0/0000:81:00.0", 0x020000, 1)
            .pci_link(CARD, (8.0, 8), (8.0, 8))
            .nic("eth0", CARD, 25_000)
            .file("/sys/class/net/eth0/type", "1")
            .interrupt(40, CARD, "eth0-rx-0", "2-3", &[0, 0, 9, 0])
    }

    fn look(tree: &Tree) -> Host {
        Host::look(tree.system())
    }

    fn told(baseline: &Baseline, tree: &Tree) -> Vec<(How, String)> {
        let all = baseline.differences(&look(tree));
        all.into_iter().map(|difference| (difference.how, difference.what)).collect()
    }

    #[test]
    fn nothing_differs_on_the_same_host_also_through_the_file() {
        let tree = tree();
        let folder = Folder::make_all(&tree.system().place("/deep/down"), 0o755).unwrap();
        let name = OsStr::new("baseline.json");
        Baseline::of(&look(&tree)).save(&folder, name).unwrap();
        let baseline = Baseline::read(&folder, name).unwrap();
        assert!(baseline.items.len() > 10, "{baseline:?}");
        assert_eq!(baseline.differences(&look(&tree)), []);
        assert_eq!(baseline.kernel, "6.8.0");
    }

    #[test]
    fn what_an_update_took_is_worse_and_what_it_brought_is_told() {
        let before = tree();
        let baseline = Baseline::of(&look(&before));
        let after = before
            .file("/proc/sys/kernel/osrelease", "6.11.0\n")
            .file("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n")
            .file("/proc/sys/vm/zone_reclaim_mode", "1\n")
            .file("/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n")
            .file("/sys/class/net/eth0/mtu", "1400\n")
            .pci_link(CARD, (8.0, 4), (8.0, 8))
            .file("/proc/irq/40/smp_affinity_list", "0-3\n");
        let worse = [
            "CPUs scaling_governor",
            "interface eth0: mtu",
            "interrupt 0000:81:00.0 eth0-rx-0",
            "lanes of 0000:81:00.0",
            "setting /proc/sys/net/ipv4/tcp_rmem",
            "setting /proc/sys/vm/zone_reclaim_mode",
        ];
        let mut wanted: Vec<(How, String)> = worse.map(|what| (How::Worse, what.to_owned())).into();
        wanted.push((How::Other, "kernel".to_owned()));
        assert_eq!(told(&baseline, &after), wanted);
        let later = Baseline::of(&look(&after));
        let back = after.file("/proc/irq/40/smp_affinity_list", "3\n").file("/sys/class/net/eth0/mtu", "9000\n");
        let better = ["interface eth0: mtu", "interrupt 0000:81:00.0 eth0-rx-0"];
        assert_eq!(told(&later, &back), better.map(|what| (How::Better, what.to_owned())));
    }

    /// A card whose driver was told how to receive.
    fn tuned() -> Ethernet {
        let feature = |on, can_change| Feature { on, can_change };
        let features = [
            ("tx-tcp-segmentation", feature(true, true)),
            ("rx-gro", feature(true, true)),
            ("rx-lro", feature(false, true)),
            ("tx-fcoe-segmentation", feature(false, false)),
        ];
        Ethernet {
            channels: Seen::Is(Channels { combined: 16, combined_max: 32, ..Channels::default() }),
            rings: Seen::Is(Rings { rx: 8192, rx_max: 8192, tx: 1024 }),
            features: Seen::Is(features.map(|(name, feature)| (name.to_owned(), feature)).into()),
            coalescing: Seen::Is(Coalescing { rx_usecs: 8, rx_frames: 32, adaptive_tx: true, ..Coalescing::default() }),
            receiving_queues: Seen::Is(16),
            ..Ethernet::default()
        }
    }

    fn with_driver(tree: Tree, told: Ethernet) -> Tree {
        let ethernet = Seen::Is(BTreeMap::from([("eth0".to_owned(), told)]));
        tree.file("/sys/class/net/eth0/carrier", "1\n").net(&Net { ethernet, ..Net::default() })
    }

    #[test]
    fn what_a_driver_forgot_when_it_was_loaded_anew_is_named() {
        let baseline = Baseline::of(&look(&with_driver(tree(), tuned())));
        assert_eq!(told(&baseline, &with_driver(tree(), tuned())), []);
        let mut now = tuned();
        now.channels = Seen::Is(Channels { combined: 4, combined_max: 32, ..Channels::default() });
        now.rings = Seen::Is(Rings { rx: 512, rx_max: 8192, tx: 1024 });
        now.features = now.features.and_then(|mut features| {
            features.insert("tx-tcp-segmentation".to_owned(), Feature::default());
            features.insert("rx-lro".to_owned(), Feature { on: true, can_change: true });
            features.insert("tx-new-segmentation".to_owned(), Feature::default());
            Some(features)
        });
        now.coalescing = Seen::Is(Coalescing {
            rx_usecs: 3,
            rx_frames: 32,
            adaptive_tx: true,
            tx_usecs: 77,
            ..Coalescing::default()
        });
        let wanted = [
            (How::Worse, "interface eth0: offload tx-tcp-segmentation"),
            (How::Worse, "interface eth0: queues rx"),
            (How::Worse, "interface eth0: queues tx"),
            (How::Worse, "interface eth0: ring rx"),
            (How::Other, "interface eth0: coalescing rx-usecs"),
            (How::Other, "interface eth0: offload rx-lro"),
        ];
        let differs = baseline.differences(&look(&with_driver(tree(), now)));
        let named: Vec<_> = differences_of(&differs);
        assert_eq!(named, wanted);
        let ring = &differs[3];
        assert_eq!(
            (ring.file.as_str(), ring.was.as_deref(), ring.now.as_deref()),
            ("ethtool -g eth0: rx", Some("8192"), Some("512"))
        );
    }

    #[test]
    fn what_differs_of_one_device_is_one_line_with_the_worse_first() {
        let baseline = Baseline::of(&look(&with_driver(tree(), tuned())));
        let mut now = tuned();
        now.channels = Seen::Is(Channels { combined: 4, combined_max: 32, ..Channels::default() });
        now.coalescing =
            Seen::Is(Coalescing { rx_usecs: 3, rx_frames: 32, adaptive_tx: true, ..Coalescing::default() });
        let after = with_driver(tree(), now)
            .file("/sys/class/net/eth0/mtu", "1400\n")
            .file("/proc/irq/40/smp_affinity_list", "0-3\n")
            .file("/proc/sys/vm/zone_reclaim_mode", "1\n")
            .pci_link(CARD, (8.0, 4), (8.0, 8));
        let said = |language| lines(&baseline.differences(&look(&after)), language);
        let wanted = [
            "worse   interface eth0: mtu 1500 -> 1400, queues rx 16 -> 4, queues tx 16 -> 4; changed: coalescing rx-usecs 8 -> 3",
            "worse   device 0000:81:00.0: lanes 8 -> 4, interrupt eth0-rx-0 2-3 -> 0-3",
            "worse   setting /proc/sys/vm/zone_reclaim_mode: 0 -> 1",
        ];
        assert_eq!(said(Language::En), wanted);
        assert!(said(Language::Ko)[0].contains("; 변경: coalescing"), "{:?}", said(Language::Ko));
    }

    #[test]
    fn a_line_of_many_settings_hides_nothing_that_is_worse_and_counts_interrupts() {
        let difference = |how: How, what: String| Difference {
            what,
            file: String::new(),
            was: Some("8".to_owned()),
            now: Some("4".to_owned()),
            how,
        };
        let interrupts = |how, from: usize, to: usize| {
            (from..to).map(move |nth| difference(how, format!("interrupt {CARD} eth0-rx-{nth}")))
        };
        let of_nic = |how, name: &str| difference(how, format!("interface eth0: {name}"));
        let offload = |how, nth: usize| of_nic(how, &format!("offload o{nth}"));
        let mut all: Vec<Difference> = interrupts(How::Worse, 0, 9).collect();
        all.extend(["lanes", "speed"].map(|name| difference(How::Worse, format!("{name} of {CARD}"))));
        all.extend((0..9).map(|nth| offload(How::Worse, nth)));
        all.extend(["duplex", "mtu", "speed"].map(|name| of_nic(How::Worse, name)));
        all.extend(interrupts(How::Other, 9, 12));
        all.extend((9..12).map(|nth| offload(How::Other, nth)));
        let offloads: Vec<String> = (0..9).map(|nth| format!("offload o{nth} 8 -> 4")).collect();
        let wanted = [
            format!("worse   device {CARD}: lanes 8 -> 4, speed 8 -> 4, 9 interrupts; changed: 3 interrupts"),
            format!("worse   interface eth0: speed 8 -> 4, mtu 8 -> 4, duplex 8 -> 4, {} (+3)", offloads.join(", ")),
        ];
        assert_eq!(lines(&all, Language::En), wanted);
        let many: Vec<Difference> = (0..64).map(|nth| offload(How::Other, nth)).collect();
        let [said] = &lines(&many, Language::En)[..] else { panic!("one line for one device") };
        assert!(said.ends_with("o7 8 -> 4 (+56)"), "{said}");
    }

    fn differences_of(all: &[Difference]) -> Vec<(How, &str)> {
        all.iter().map(|difference| (difference.how, difference.what.as_str())).collect()
    }

    #[test]
    fn a_driver_that_tells_nothing_now_or_told_nothing_then_has_lost_and_won_nothing() {
        let (plain, tuned) = (with_driver(tree(), Ethernet::default()), with_driver(tree(), tuned()));
        let hidden = || Seen::Hidden("ask the driver of eth0: denied".to_owned());
        let unseen = Ethernet { features: hidden(), ..self::tuned() };
        let baseline = Baseline::of(&look(&tuned));
        assert_eq!(told(&baseline, &plain), []);
        assert_eq!(told(&baseline, &with_driver(tree(), unseen)), []);
        // A baseline of before they were kept.
        assert_eq!(told(&Baseline::of(&look(&plain)), &tuned), []);
        let down = with_driver(tree(), self::tuned()).file("/sys/class/net/eth0/carrier", "0\n");
        let about = told(&baseline, &down);
        assert!(about.iter().all(|(how, what)| *how == How::Other && !what.contains("offload")), "{about:?}");
    }

    #[test]
    fn what_another_user_cannot_see_is_not_lost() {
        let module = |tree: Tree| {
            tree.module(MemoryModule { slot: "A1".to_owned(), bytes: 16 << 30, ..MemoryModule::default() })
        };
        let baseline = Baseline::of(&look(&module(tree())));
        assert_eq!(told(&baseline, &module(tree())), []);
        let reclaim = "/proc/sys/vm/zone_reclaim_mode";
        let unseen = tree().hidden("/sys/firmware/dmi/entries/17-0/raw");
        std::fs::remove_file(unseen.system().place(reclaim)).unwrap();
        let unseen = unseen.hidden(reclaim);
        assert_eq!(told(&baseline, &unseen), []);
        let without = told(&baseline, &tree());
        assert_eq!(without.len(), 1, "{without:?}");
        assert_eq!(without[0].0, How::Worse);
    }

    #[test]
    fn an_interrupt_is_known_by_its_device_and_name_not_by_its_number() {
        let baseline = Baseline::of(&look(&tree()));
        let again = tree();
        std::fs::remove_dir_all(again.system().place("/proc/irq/40")).unwrap();
        let again = again.interrupt(57, CARD, "eth0-rx-0", "2-3", &[0, 0, 9, 0]);
        let about: Vec<_> =
            told(&baseline, &again).into_iter().filter(|(_, what)| what.contains("eth0-rx-0")).collect();
        assert_eq!(about, []);
    }

    #[test]
    fn a_lost_interface_is_worse_and_its_settings_and_a_new_one_are_not() {
        let before = tree();
        let baseline = Baseline::of(&look(&before));
        let now = Tree::new().pci("0000:80:01.0/0000:81:00.0", 0x020000, 1).nic("eth1", CARD, 25_000);
        let now = now.file("/sys/class/net/eth1/type", "1");
        let all = told(&baseline, &now);
        assert!(all.contains(&(How::Worse, "interface eth0".to_owned())), "{all:?}");
        assert_eq!(all.iter().filter(|(how, _)| *how == How::Worse).count(), 1, "{all:?}");
        assert!(all.contains(&(How::Other, "interface eth1".to_owned())), "{all:?}");
    }

    #[test]
    fn where_a_host_has_one_node_a_moved_interrupt_is_another_not_a_worse_one() {
        assert_eq!(judged(Better::Nearer, "0", "0-3", None), How::Other);
        assert_eq!(judged(Better::Nearer, "2-3", "0-1", Some(vec![2, 3])), How::Worse);
        assert_eq!(
            judged(Better::Word("performance"), "performance: 0-3", "performance: 0-1, powersave: 2-3", None),
            How::Worse
        );
        assert_eq!(judged(Better::Higher, "x", "7", None), How::Other);
    }

    #[test]
    fn a_file_of_another_format_or_none_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.json");
        let read = |path: &std::path::Path| {
            let folder = Folder::open(path.parent().expect("a folder"))?;
            Baseline::read(&folder, path.file_name().expect("a name"))
        };
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(error.contains("baseline save") && error.contains("b.json"), "{error}");
        let text = r#"{"format":9,"time":"","kernel":"","items":{}}"#;
        std::fs::write(&path, text).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("save the baseline again"));
    }
}
