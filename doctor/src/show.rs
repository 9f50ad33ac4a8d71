//! Numbers as the sentences of the checks show them.

use forebay_host::topology::Cpu;
pub use forebay_host::topology::cpu_list;

/// Bytes in decimal units, as data sheets and line rates have them: `46.2 GB`.
pub fn bytes(bytes: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match UNITS.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes / unit),
        None => format!("{bytes:.0} B"),
    }
}

/// Bits a second of a line: `25 Gb/s`.
pub fn line_rate(bits: u64) -> String {
    match bits {
        1_000_000_000.. => format!("{} Gb/s", bits as f64 / 1e9),
        _ => format!("{} Mb/s", bits as f64 / 1e6),
    }
}

/// A share of 1: `68 %`.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Kilohertz, as cpufreq counts: `2.40 GHz`.
pub fn clock(khz: u64) -> String {
    format!("{:.2} GHz", khz as f64 / 1e6)
}

/// CPUs as the kernel takes a mask: groups of 32 in hexadecimal, the highest first.
pub fn cpu_mask(cpus: impl IntoIterator<Item = Cpu>) -> String {
    let mut groups = vec![0u32];
    for cpu in cpus {
        let group = cpu as usize / 32;
        groups.resize(groups.len().max(group + 1), 0);
        groups[group] |= 1 << (cpu % 32);
    }
    groups.iter().rev().map(|group| format!("{group:08x}")).collect::<Vec<String>>().join(",")
}

/// Names, few of them: `sda, sdb, sdc and 9 more` in any language.
pub fn names<T: AsRef<str>>(names: &[T]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<&str> = names.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} (+{more})", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_and_masked_as_the_kernel_takes_them() {
        assert_eq!(cpu_list([8, 0, 1, 2, 3, 10]), "0-3,8,10");
        assert_eq!(cpu_list([]), "");
        assert_eq!(cpu_mask([0, 3]), "00000009");
        assert_eq!(cpu_mask([0, 33]), "00000002,00000001");
    }

    #[test]
    fn numbers_carry_their_unit() {
        assert_eq!(bytes(46_242_900_000.0), "46.2 GB");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(line_rate(2_500_000_000), "2.5 Gb/s");
        assert_eq!(line_rate(100_000_000), "100 Mb/s");
        assert_eq!(percent(0.683), "68 %");
        assert_eq!(clock(1_200_000), "1.20 GHz");
        assert_eq!(names(&["a", "b", "c", "d", "e", "f"]), "a, b, c, d (+2)");
    }
}
