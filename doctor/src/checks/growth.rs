//! What grew between the two looks at a host's counters.

use super::super::Host;
use super::super::counters::{RDMA_DATA, RDMA_STUCK, RDMA_UNIT, rdma_file};
use forebay_host::topology::{Cpu, counted};
use std::collections::BTreeMap;

/// How often each interrupt came, on each CPU.
pub type Interrupts = BTreeMap<u32, BTreeMap<Cpu, u64>>;

/// Where a CPU's time went, as shares of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// It worked, without what gives way to others (nice). Time that a hypervisor took away is neither work nor rest.
    pub busy: f64,
    /// The part of that in interrupts and what they leave behind (softirqs).
    pub interrupts: f64,
}

/// What a disk did between the two looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskWork {
    /// Bytes a second, both ways.
    pub bytes: f64,
    /// Those of them that were written.
    pub written: f64,
    /// Bytes of a write, in the mean; 0: there was none.
    pub of_a_write: f64,
    /// Share of the time in which it had something to do.
    pub busy: f64,
}

/// A counter's text now and before, and the seconds between.
fn both<'a>(host: &'a Host, path: &str) -> Option<(&'a str, &'a str, f64)> {
    let (before, between) = host.earlier.as_ref()?;
    let seconds = between.as_secs_f64();
    let (before, now) = (before.0.get(path)?, host.counters.0.get(path)?);
    (seconds > 0.0).then_some((before, now, seconds))
}

/// Numbers in lines of a name, perhaps more words, and a number, as in `/proc/vmstat` and the kernel's statistics of ZFS.
pub fn rows(text: &str) -> BTreeMap<&str, u64> {
    let row = |line: &'_ str| -> Option<(usize, u64)> {
        let mut words = line.split_whitespace();
        Some((words.next()?.len(), words.next_back()?.parse().ok()?))
    };
    text.lines().filter_map(|line| row(line).map(|(length, number)| (&line.trim_start()[..length], number))).collect()
}

/// What such numbers grew by between the looks, and the seconds.
pub fn grown(host: &Host, path: &str) -> Option<(BTreeMap<String, u64>, f64)> {
    let (before, now, seconds) = both(host, path)?;
    let before = rows(before);
    let grew = |(name, now): (&str, u64)| Some((name.to_owned(), now.saturating_sub(*before.get(name)?)));
    Some((rows(now).into_iter().filter_map(grew).collect(), seconds))
}

/// How often interrupts came between the looks, and the seconds.
pub fn interrupts(host: &Host) -> Option<(Interrupts, f64)> {
    let (before, now, seconds) = both(host, "/proc/interrupts")?;
    let counts =
        |text| -> Interrupts { counted(text).into_iter().map(|(number, (_, counts))| (number, counts)).collect() };
    let (before, mut grown) = (counts(before), counts(now));
    for (number, counts) in &mut grown {
        for (cpu, count) in counts.iter_mut() {
            let was = before.get(number).and_then(|counts| counts.get(cpu)).copied().unwrap_or(0);
            *count = count.saturating_sub(was);
        }
    }
    Some((grown, seconds))
}

/// What each CPU did between the looks.
pub fn loads(host: &Host) -> Option<BTreeMap<Cpu, Load>> {
    let (before, now, _) = both(host, "/proc/stat")?;
    let (before, now) = (times(before), times(now));
    let load = |(cpu, now): (&Cpu, &[u64; 8])| {
        let before = before.get(cpu)?;
        let spent: Vec<f64> = now.iter().zip(before).map(|(now, before)| now.saturating_sub(*before) as f64).collect();
        let total: f64 = spent.iter().sum();
        let [user, _, system, _, _, hard, soft, _] = spent[..] else { return None };
        let share = |ticks: f64| ticks / total;
        let load = Load { busy: share(user + system + hard + soft), interrupts: share(hard + soft) };
        (total > 0.0).then_some((*cpu, load))
    };
    Some(now.iter().filter_map(load).collect())
}

/// Ticks of each CPU: user, nice, system, idle, waiting for disks, interrupts, softirqs, stolen.
fn times(text: &str) -> BTreeMap<Cpu, [u64; 8]> {
    let times_of = |line: &str| {
        let mut words = line.split_whitespace();
        let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
        let times: Vec<u64> = words.take(8).filter_map(|word| word.parse().ok()).collect();
        Some((cpu, times.try_into().ok()?))
    };
    text.lines().filter_map(times_of).collect()
}

/// Bytes a second through each network interface, both ways.
pub fn interfaces(host: &Host) -> Option<BTreeMap<String, f64>> {
    let (before, now, seconds) = both(host, "/proc/net/dev")?;
    let bytes = |text: &str| -> BTreeMap<String, u64> {
        let of = |line: &str| {
            let (name, counts) = line.split_once(':')?;
            let counts: Vec<u64> = counts.split_whitespace().filter_map(|count| count.parse().ok()).collect();
            Some((name.trim().to_owned(), counts.first()? + counts.get(8)?))
        };
        text.lines().filter_map(of).collect()
    };
    let (before, now) = (bytes(before), bytes(now));
    let rate = |(name, now): (String, u64)| {
        let grown = now.saturating_sub(*before.get(&name)?);
        Some((name, grown as f64 / seconds))
    };
    Some(now.into_iter().filter_map(rate).collect())
}

/// Bytes a second through ports, both ways.
#[derive(Default)]
pub struct Ports {
    /// By interface: what the kernel's network moved.
    pub interfaces: BTreeMap<String, f64>,
    /// By RDMA port, `device/port`: of InfiniBand all that it moved, of Ethernet what went by RDMA, past the kernel.
    pub rdma: BTreeMap<String, f64>,
}

/// What went through ports; nothing where there is one look only.
pub fn ports(host: &Host) -> Ports {
    let rdma = host.topology.rdma.keys().filter_map(|port| Some((port.clone(), rdma(host, port)?)));
    Ports { interfaces: interfaces(host).unwrap_or_default(), rdma: rdma.collect() }
}

fn rdma(host: &Host, port: &str) -> Option<f64> {
    let mut bytes = None;
    for direction in RDMA_DATA {
        let (before, now, seconds) = both(host, &rdma_file(port, direction)?)?;
        let number = |text: &str| text.trim().parse::<u64>().ok().filter(|count| *count != RDMA_STUCK);
        let (Some(before), Some(now)) = (number(before), number(now)) else { continue };
        *bytes.get_or_insert(0.0) += now.saturating_sub(before) as f64 * RDMA_UNIT / seconds;
    }
    bytes
}

/// What each block device did.
pub fn disks(host: &Host) -> Option<BTreeMap<String, DiskWork>> {
    /// Bytes of a sector in `/proc/diskstats`, whatever the device's are.
    const SECTOR: f64 = 512.0;
    let (before, now, seconds) = both(host, "/proc/diskstats")?;
    let counts = |text: &str| -> BTreeMap<String, [u64; 4]> {
        let of = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |at: usize| words.get(at)?.parse().ok();
            Some(((*words.get(2)?).to_owned(), [number(5)?, number(9)?, number(12)?, number(7)?]))
        };
        text.lines().filter_map(of).collect()
    };
    let (before, now) = (counts(before), counts(now));
    let work = |(name, now): (String, [u64; 4])| {
        let before = before.get(&name)?;
        let grown = |at: usize| now[at].saturating_sub(before[at]) as f64;
        let (read, written) = (grown(0) * SECTOR / seconds, grown(1) * SECTOR / seconds);
        let busy = (grown(2) / 1000.0 / seconds).min(1.0);
        let of_a_write = grown(1) * SECTOR / grown(3).max(1.0);
        Some((name, DiskWork { bytes: read + written, written, of_a_write, busy }))
    };
    Some(now.into_iter().filter_map(work).collect())
}

/// Packets that the kernel dropped, and times that it ran out of its budget, on each CPU (`softnet_stat`).
pub fn softnet(host: &Host) -> Option<(BTreeMap<Cpu, [u64; 2]>, f64)> {
    let (before, now, seconds) = both(host, "/proc/net/softnet_stat")?;
    let counts = |text: &str| -> BTreeMap<Cpu, [u64; 2]> {
        let of = |(row, line): (usize, &str)| {
            let hex = |word: &str| u64::from_str_radix(word, 16).ok();
            let words: Vec<u64> = line.split_whitespace().filter_map(hex).collect();
            // The thirteenth is the CPU's number; older kernels leave it to the order.
            let cpu = words.get(12).map_or(row as Cpu, |&cpu| cpu as Cpu);
            Some((cpu, [*words.get(1)?, *words.get(2)?]))
        };
        text.lines().enumerate().filter_map(of).collect()
    };
    let (before, now) = (counts(before), counts(now));
    let grown = |(cpu, now): (Cpu, [u64; 2])| {
        let before = before.get(&cpu)?;
        Some((cpu, [now[0].saturating_sub(before[0]), now[1].saturating_sub(before[1])]))
    };
    Some((now.into_iter().filter_map(grown).collect(), seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn what_grew_is_told_from_what_stood() {
        let tree = Tree::new()
            .file("/proc/stat", "cpu  0\ncpu0 10 10 10 50 0 0 20 0 0 0\n")
            .earlier("/proc/stat", "cpu  0\ncpu0 0 0 10 10 0 0 0 0 0 0\n")
            .file("/proc/net/dev", "Inter-|\n face |\n ens1: 6100 1 0 0 0 0 0 0 1000 1 0\n")
            .earlier("/proc/net/dev", "Inter-|\n face |\n ens1: 100 1 0 0 0 0 0 0 1000 1 0\n")
            .file("/proc/diskstats", "259 0 nvme0n1 9 0 120 0 13 0 1200 0 0 30000 0\n")
            .earlier("/proc/diskstats", "259 0 nvme0n1 9 0 0 0 9 0 0 0 0 0 0\n")
            .file("/proc/net/softnet_stat", "10 03 05\n00 00 00\n")
            .earlier("/proc/net/softnet_stat", "10 01 05\n00 00 00\n");
        let host = Host::look(tree.system());
        let loads = loads(&host).expect("two looks");
        assert_eq!(loads[&0], Load { busy: 0.375, interrupts: 0.25 });
        assert_eq!(interfaces(&host).expect("two looks")["ens1"], 100.0);
        let disk = disks(&host).expect("two looks")["nvme0n1"];
        assert_eq!(disk, DiskWork { bytes: 11264.0, written: 10240.0, of_a_write: 153_600.0, busy: 0.5 });
        assert_eq!(softnet(&host).expect("two looks").0[&0], [2, 0]);
        assert_eq!(interrupts(&host), None);
    }
}
