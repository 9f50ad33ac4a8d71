//! What the kernel tells of this process, under the names that all exporters use for it.

use super::exposition::{Exposition, Kind};

/// Fields of `/proc/self/stat` behind the name, which may hold anything up to its last bracket.
fn stat_fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default()
}

/// CPU time in clock ticks, of the text of `/proc/self/stat`.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let fields = stat_fields(stat);
    // Fields 14 and 15 of the whole line, of which two stand before the bracket ends.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(field(14)? + field(15)?)
}

/// Resident pages, of the text of `/proc/self/statm`.
fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_whitespace().nth(1)?.parse().ok()
}

/// Writes the families; what cannot be read is left out.
pub fn render(out: &mut Exposition) {
    // SAFETY: sysconf takes an integer and touches nothing.
    let constant = |name| unsafe { libc::sysconf(name) } as f64;
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    if let Some(ticks) = cpu_ticks(&read("/proc/self/stat")) {
        out.family(Kind::Counter, "process_cpu_seconds", "CPU time of the daemon, all threads.")
            .sample(&[], ticks as f64 / constant(libc::_SC_CLK_TCK));
    }
    if let Some(pages) = resident_pages(&read("/proc/self/statm")) {
        out.family(Kind::Gauge, "process_resident_memory_bytes", "Memory of the daemon, arenas included.")
            .sample(&[], pages as f64 * constant(libc::_SC_PAGESIZE));
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        out.family(Kind::Gauge, "process_open_fds", "Open file descriptors of the daemon.")
            .sample(&[], open.count() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_kernel() {
        let stat = "42 (a) name) S 1 42 42 0 -1 4194560 9 8 7 6 120 30 0 0 20 0 3 0 5 6 7";
        assert_eq!(cpu_ticks(stat), Some(150));
        assert_eq!(resident_pages("100 25 3 1 0 9 0\n"), Some(25));
        assert_eq!(cpu_ticks("nonsense"), None);
    }
}
