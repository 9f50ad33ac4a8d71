//! The settings of the kernel that checks write, each with what may be written to it: a closed list. Whoever could write to the doctor's
//! journal, or lead it elsewhere, would else write as root what he likes: `core_pattern` is a program that runs as root.

/// What one setting takes.
#[derive(Clone, Copy)]
enum Takes {
    /// A number up to this.
    UpTo(u64),
    /// Three numbers: least, at first, at most.
    Sizes,
    /// CPUs by number: `0-3,8`.
    CpuList,
    /// CPUs by bits: `f,ffffffff`.
    CpuMask,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// A word of which the kernel knows whether it has it: a governor, a scheduler.
    Word,
}

const BYTES_MAX: u64 = 1 << 50;
const COUNT_MAX: u64 = u32::MAX as u64;
const DEFRAG: &[&str] = &["always", "defer", "defer+madvise", "madvise", "never"];
const HASHES: &[&str] = &["layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4", "vlan+srcmac"];

/// A part of a path is `*`, any name; or has one `#`, which is a number; or is what it says.
const LIST: &[(&str, Takes)] = &[
    ("/proc/irq/#/smp_affinity_list", Takes::CpuList),
    ("/proc/fs/nfsd/threads", Takes::UpTo(100_000)),
    ("/proc/sys/vm/zone_reclaim_mode", Takes::UpTo(7)),
    ("/proc/sys/vm/dirty_ratio", Takes::UpTo(100)),
    ("/proc/sys/vm/dirty_background_ratio", Takes::UpTo(100)),
    ("/proc/sys/vm/dirty_bytes", Takes::UpTo(BYTES_MAX)),
    ("/proc/sys/vm/dirty_background_bytes", Takes::UpTo(BYTES_MAX)),
    ("/proc/sys/kernel/numa_balancing", Takes::UpTo(3)),
    ("/proc/sys/net/core/netdev_max_backlog", Takes::UpTo(COUNT_MAX)),
    ("/proc/sys/net/core/netdev_budget", Takes::UpTo(COUNT_MAX)),
    ("/proc/sys/net/ipv4/tcp_rmem", Takes::Sizes),
    ("/proc/sys/net/ipv4/tcp_wmem", Takes::Sizes),
    ("/sys/kernel/mm/transparent_hugepage/defrag", Takes::OneOf(DEFRAG)),
    ("/sys/devices/system/cpu/cpufreq/policy#/scaling_governor", Takes::Word),
    ("/sys/devices/system/cpu/cpufreq/policy#/scaling_max_freq", Takes::UpTo(COUNT_MAX)),
    ("/sys/devices/system/cpu/cpufreq/policy#/energy_performance_preference", Takes::Word),
    ("/sys/devices/system/cpu/cpufreq/boost", Takes::UpTo(1)),
    ("/sys/devices/system/cpu/intel_pstate/no_turbo", Takes::UpTo(1)),
    ("/sys/devices/system/cpu/intel_uncore_frequency/*/max_freq_khz", Takes::UpTo(COUNT_MAX)),
    ("/sys/devices/system/cpu/cpu#/cpuidle/state#/disable", Takes::UpTo(1)),
    ("/sys/class/net/*/bonding/xmit_hash_policy", Takes::OneOf(HASHES)),
    ("/sys/class/net/*/queues/rx-#/rps_cpus", Takes::CpuMask),
    ("/sys/block/*/queue/scheduler", Takes::Word),
    ("/sys/block/*/queue/rq_affinity", Takes::UpTo(2)),
    ("/sys/bus/pci/devices/*/link/l1_aspm", Takes::UpTo(1)),
];

/// Whether it is one of them.
pub fn is_listed(path: &str) -> bool {
    of(path).is_some()
}

/// Whether it is one of them, and takes this.
pub fn may_hold(path: &str, value: &str) -> bool {
    of(path).is_some_and(|takes| takes.is_fit(value))
}

fn of(path: &str) -> Option<Takes> {
    let fits = |pattern: &str| {
        let parts = pattern.split('/').count() == path.split('/').count();
        parts && pattern.split('/').zip(path.split('/')).all(|(pattern, part)| part_fits(pattern, part))
    };
    LIST.iter().find(|(pattern, _)| fits(pattern)).map(|(_, takes)| *takes)
}

fn part_fits(pattern: &str, part: &str) -> bool {
    match pattern.split_once('#') {
        _ if pattern == "*" => !part.is_empty() && part != "." && part != "..",
        Some((before, after)) => part
            .strip_prefix(before)
            .and_then(|part| part.strip_suffix(after))
            .is_some_and(|number| number_up_to(number, COUNT_MAX)),
        None => pattern == part,
    }
}

fn number_up_to(text: &str, most: u64) -> bool {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits && text.parse::<u64>().is_ok_and(|number| number <= most)
}

impl Takes {
    fn is_fit(self, value: &str) -> bool {
        match self {
            Takes::UpTo(most) => number_up_to(value, most),
            Takes::Sizes => {
                let sizes: Vec<&str> = value.split_whitespace().collect();
                sizes.len() == 3 && sizes.iter().all(|size| number_up_to(size, COUNT_MAX))
            }
            Takes::CpuList => {
                value.split(',').all(|range| range.splitn(2, '-').all(|number| number_up_to(number, COUNT_MAX)))
            }
            Takes::CpuMask => value
                .split(',')
                .all(|word| (1..=8).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit())),
            Takes::OneOf(words) => words.contains(&value),
            Takes::Word => {
                let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
                (1..=32).contains(&value.len()) && value.bytes().all(plain)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_but_what_is_listed_and_only_what_it_takes() {
        for (path, value) in [
            ("/proc/irq/24/smp_affinity_list", "0-3,8"),
            ("/proc/sys/vm/dirty_bytes", "268435456"),
            ("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456"),
            ("/sys/devices/system/cpu/cpufreq/policy12/scaling_governor", "performance"),
            ("/sys/devices/system/cpu/cpu3/cpuidle/state4/disable", "1"),
            ("/sys/class/net/eth0.7/queues/rx-0/rps_cpus", "f,ffffffff"),
            ("/sys/class/net/bond0/bonding/xmit_hash_policy", "layer3+4"),
            ("/sys/block/nvme0n1/queue/scheduler", "mq-deadline"),
        ] {
            assert!(may_hold(path, value), "{path} {value}");
        }
        for path in [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/../kernel/core_pattern",
            "/proc/sys/vm/../kernel/core_pattern",
            "/proc/irq/24/../../sys/kernel/core_pattern",
            "/sys/class/net/../bonding/xmit_hash_policy",
            "/sys/class/net//bonding/xmit_hash_policy",
            "/sys/block/sda/queue/scheduler/",
            "/sys/devices/system/cpu/cpux/cpuidle/state0/disable",
            "/sys/devices/system/cpu/cpu/cpuidle/state0/disable",
            "/sys/kernel/uevent_helper",
            "/sys/class/net/eth0/mtu",
            "proc/sys/vm/dirty_ratio",
        ] {
            assert!(!is_listed(path), "{path}");
        }
        for (path, value) in [
            ("/proc/sys/vm/dirty_ratio", "101"),
            ("/proc/sys/vm/dirty_ratio", "-1"),
            ("/proc/sys/vm/dirty_ratio", "+1"),
            ("/proc/sys/vm/dirty_ratio", ""),
            ("/proc/sys/net/ipv4/tcp_wmem", "1 2"),
            ("/proc/irq/24/smp_affinity_list", "0-1-2"),
            ("/sys/class/net/eth0/queues/rx-0/rps_cpus", "fffffffff"),
            ("/sys/block/sda/queue/scheduler", "../../evil"),
            ("/sys/block/sda/queue/scheduler", "none\nx"),
            ("/sys/kernel/mm/transparent_hugepage/defrag", "sometimes"),
        ] {
            assert!(!may_hold(path, value), "{path} {value:?}");
        }
    }
}
