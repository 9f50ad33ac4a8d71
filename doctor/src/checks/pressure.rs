//! Checks 56 to 58: what waits for disks, memory and CPUs, and swapping. Check 58 is in [`super::limits`].

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::nics::Gathered;
use super::processes::{Server, servers};
use super::{Check, growth, limits, storage};
use crate::show;
use forebay_host::system::{Seen, System};

/// Checks 56 to 58, in the order of their numbers.
pub const CHECKS: &[Check] = &[
    Check { number: 56, word: "pressure", look: pressure },
    Check { number: 57, word: "swapping", look: swapping },
    Check { number: 58, word: "cgroup-limit", look: limits::limits },
];

/// What is waited for, and how much waiting is told.
struct Resource {
    /// Its file below `/proc/pressure`.
    name: &'static str,
    /// `full`: all that had work waited at once. `some`: one at least.
    who: &'static str,
    /// Percent of the last minute, from which it is a note.
    note: f64,
    /// From which it is a warning.
    warning: f64,
    text: &'static str,
    help: &'static str,
}

/// A host is there to be waited for by its clients, not to wait. That something waits for a CPU is common; that it does for two fifths
/// of the time is not. Of memory there is no wait at all where there is enough.
const RESOURCES: [Resource; 3] = [
    Resource { name: "io", who: "full", note: 10.0, warning: 40.0, text: "psi.io", help: "psi.io-help" },
    Resource { name: "memory", who: "full", note: 1.0, warning: 10.0, text: "psi.memory", help: "psi.memory-help" },
    Resource { name: "cpu", who: "some", note: 40.0, warning: 80.0, text: "psi.cpu", help: "psi.cpu-help" },
];

/// A disk that is waited for is busy for so much of the waiting.
const DISK_PART: f64 = 0.5;
/// Where the busiest CPU has less work that gives way to nothing (nice), what waits is what gives way, or what a limit holds back.
const CPU_BUSY: f64 = 0.75;

/// Percent of the last 10 s and of the last minute, of the line that begins with `who`.
fn shares(text: &str, who: &str) -> Option<(String, f64, f64)> {
    let line = text.lines().find(|line| line.split(' ').next() == Some(who))?;
    let value = |name: &str| {
        let value: f64 = line.split(' ').find_map(|word| word.strip_prefix(name))?.parse().ok()?;
        (0.0..=100.0).contains(&value).then_some(value)
    };
    Some((line.to_owned(), value("avg10=")?, value("avg60=")?))
}

/// What is put into a sentence.
type With = Vec<(&'static str, String)>;

fn put(sentence: Sentence, (name, value): (&'static str, String)) -> Sentence {
    sentence.with(name, value)
}

/// What was busy between the looks, as it is put into the sentence, and what shows it: it bears out what is waited for. Absent: nothing
/// does. Hidden: there was one look alone.
fn borne_out(host: &Host, resource: &Resource, minute: f64) -> Seen<(With, Option<Evidence>)> {
    match resource.name {
        "io" => {
            let Some(work) = growth::disks(host) else { return Seen::Hidden("/proc/diskstats".to_owned()) };
            let busy = storage::real_disks(host).filter_map(|(name, _)| Some((name.clone(), work.get(name)?.busy)));
            let busiest = busy.max_by(|(_, a), (_, b)| a.total_cmp(b));
            let Some((disk, busy)) = busiest.filter(|(_, busy)| busy * 100.0 >= minute * DISK_PART) else {
                return Seen::Absent;
            };
            let busy = show::percent(busy);
            let shown = Evidence::new("/proc/diskstats", format!("{disk}: busy {busy}"));
            Seen::Is((vec![("disk", disk), ("busy", busy)], Some(shown)))
        }
        "cpu" => {
            let Some(loads) = growth::loads(host).filter(|loads| !loads.is_empty()) else {
                return Seen::Hidden("/proc/stat".to_owned());
            };
            let busiest = loads.into_iter().max_by(|(_, a), (_, b)| a.busy.total_cmp(&b.busy));
            let Some((cpu, load)) = busiest.filter(|(_, load)| load.busy >= CPU_BUSY) else { return Seen::Absent };
            let busy = show::percent(load.busy);
            let shown = Evidence::new("/proc/stat", format!("cpu{cpu}: busy {busy}"));
            Seen::Is((vec![("cpu", cpu.to_string()), ("busy", busy)], Some(shown)))
        }
        _ => Seen::Is((vec![], None)),
    }
}

// Check 56. Reads /proc/pressure, and how busy disks were between the looks. Rule: a share of the last minute above its limit, and above
// half of it in the last 10 s, so that it still goes on. For I/O a disk has to have been busy as well: who waits by io_uring for a request
// that may come by the network counts as waiting for I/O, on a host that is idle. For CPUs these have to have been busy, and not with
// what is there to give way.
fn pressure(host: &Host) -> Verdict {
    let (mut gathered, mut fine) = (Gathered::default(), Vec::new());
    for resource in RESOURCES {
        let path = format!("/proc/pressure/{}", resource.name);
        let Some(text) = gathered.see(host.system.text(&path)) else { continue };
        let Some((line, now, minute)) = shares(&text, resource.who) else { continue };
        if minute < resource.note || now < resource.note / 2.0 {
            fine.push(format!("{} {} {minute:.1} %", resource.name, resource.who));
            continue;
        }
        let share = |key| Sentence::new(key).with("share", show::percent(minute / 100.0));
        let (text, shown) = match borne_out(host, &resource, minute) {
            Seen::Is((with, shown)) => (with.into_iter().fold(share(resource.text), put), shown),
            Seen::Absent => {
                let what = format!("{path}: {} {}", resource.who, show::percent(minute / 100.0));
                gathered.hide(what, Sentence::new("psi.not-shown"));
                continue;
            }
            Seen::Hidden(what) => {
                gathered.hide(what, Sentence::new("cpu.second-look"));
                continue;
            }
        };
        let evidence = std::iter::once(Evidence::new(path, line)).chain(shown).collect();
        let severity = if minute >= resource.warning { Severity::Warning } else { Severity::Note };
        gathered.find(Finding {
            id: format!("pressure/{}", resource.name),
            check: 56,
            severity,
            confidence: Confidence::Certain,
            text,
            evidence,
            number: Some(Number { is: minute / 100.0, could_be: resource.note / 100.0, unit: "1".to_owned() }),
            remedies: vec![Remedy::Explain { what: Sentence::new(resource.help), command: None }],
        });
    }
    if !fine.is_empty() {
        gathered.fine(Sentence::new("psi.fine").with("shares", fine.join(", ")));
    }
    gathered.verdict()
}

/// Pages a second that are swapping, and no page that happens to be wanted again.
const PAGES: f64 = 50.0;
/// So many are swapping, also where the kernel does not tell whether anything waits for memory.
const PAGES_ALONE: f64 = 200.0;
/// So much of a server's memory in swap is more than what it used at its start alone.
const SERVER_BYTES: u64 = 16 << 20;
/// Processes of a server that are asked.
const PROCESSES_MAX: usize = 1024;
const VMSTAT: &str = "/proc/vmstat";
const SWAPS: &str = "/proc/swaps";

// Check 57. Reads the areas for swap, how many pages went and came between the looks, and how much of servers lies there.
fn swapping(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let areas = gathered.see(host.system.text(SWAPS)).unwrap_or_default();
    let areas: Vec<&str> = areas.lines().skip(1).filter(|line| !line.trim().is_empty()).collect();
    if areas.is_empty() {
        return gathered.verdict();
    }
    let in_use = |area: &&&str| area.split_whitespace().nth(3).is_some_and(|used| used != "0");
    let used: Vec<&str> = areas.iter().filter(in_use).copied().collect();
    let in_memory = used.iter().all(|area| area.split_whitespace().next().is_some_and(|name| name.contains("/zram")));
    match growth::grown(host, VMSTAT) {
        None => gathered.hide(VMSTAT.to_owned(), Sentence::new("cpu.second-look")),
        Some((grown, seconds)) => {
            let rate = |name: &str| grown.get(name).map_or(0.0, |pages| *pages as f64 / seconds);
            let (back, out) = (rate("pswpin"), rate("pswpout"));
            let words = |key| Sentence::new(key).with("in", format!("{back:.0}")).with("out", format!("{out:.0}"));
            let most = back.max(out);
            if used.is_empty() || most < PAGES || most < PAGES_ALONE && !waits_for_memory(&host.system) {
                gathered.fine(words("swap.fine"));
            } else {
                let is_slow = back >= PAGES && !in_memory;
                gathered.find(Finding {
                    id: "swapping/now".to_owned(),
                    check: 57,
                    severity: if is_slow { Severity::Warning } else { Severity::Note },
                    confidence: Confidence::Certain,
                    text: words(if in_memory { "swap.zram" } else { "swap.now" }),
                    evidence: vec![
                        Evidence::new(VMSTAT, format!("pswpin {back:.0}/s, pswpout {out:.0}/s")),
                        Evidence::new(SWAPS, used[0]),
                    ],
                    number: None,
                    remedies: vec![Remedy::Explain { what: Sentence::new("swap.help"), command: None }],
                });
            }
        }
    }
    for server in gathered.see(servers(&host.system)).unwrap_or_default() {
        if let Some(found) = in_swap(&host.system, &server) {
            gathered.find(found);
        }
    }
    gathered.verdict()
}

/// Whether anything waited for memory in the last minute, as far as the kernel tells.
fn waits_for_memory(system: &System) -> bool {
    let text = system.text("/proc/pressure/memory").known().unwrap_or_default();
    shares(&text, "some").is_some_and(|(_, now, minute)| now > 0.0 || minute > 0.0)
}

/// A server of which much lies in swap: whoever asks for that waits until it is read back.
fn in_swap(system: &System, server: &Server) -> Option<Finding> {
    let of = |pid: &u32| {
        let path = format!("/proc/{pid}/status");
        let status = system.text(&path).known()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmSwap:"))?.trim();
        let kib: u64 = line.trim_end_matches("kB").trim().parse().ok()?;
        Some((kib.saturating_mul(1024), path, line.to_owned()))
    };
    let swapped: Vec<_> = server.pids.iter().take(PROCESSES_MAX).filter_map(of).collect();
    let bytes = swapped.iter().fold(0, |sum: u64, (bytes, ..)| sum.saturating_add(*bytes));
    let (_, path, line) = swapped.into_iter().max_by_key(|(bytes, ..)| *bytes)?;
    (bytes >= SERVER_BYTES).then(|| Finding {
        id: format!("swapping/{}", server.name),
        check: 57,
        severity: Severity::Note,
        confidence: Confidence::Certain,
        text: Sentence::new("swap.server").with("server", &server.name).with("bytes", show::bytes(bytes as f64)),
        evidence: vec![Evidence::new(path, format!("VmSwap: {line}"))],
        number: None,
        remedies: vec![Remedy::Explain { what: Sentence::new("swap.server-help"), command: None }],
    })
}

#[cfg(test)]
mod tests {
    use super::super::expect::{fine, found, not_here, not_seen, one, text};
    use super::super::processes::with_process;
    use super::*;
    use crate::fixture::Tree;

    fn psi(name: &str, who: &str, now: f64, minute: f64) -> Tree {
        let line = format!("{who} avg10={now:.2} avg60={minute:.2} avg300=0.00 total=1\n");
        let stat = |ticks: u32| format!("cpu  0\ncpu0 {ticks} 0 0 {} 0 0 0 0 0 0\n", ticks / 4);
        let tree = Tree::new().file("/proc/stat", &stat(800)).earlier("/proc/stat", &stat(0));
        busy(tree, 90).file(&format!("/proc/pressure/{name}"), &line)
    }

    /// A disk that was busy for so many percent of a minute.
    fn busy(tree: Tree, percent: u64) -> Tree {
        let card = "0000:03:00.0";
        tree.pci(card, 0x010601, 0)
            .disk("sda", card, 9)
            .file("/proc/diskstats", &format!("8 0 sda 1 0 9 1 0 0 0 0 0 {} 0\n", percent * 600))
            .earlier("/proc/diskstats", "8 0 sda 1 0 0 1 0 0 0 0 0 0 0\n")
    }

    #[test]
    fn waiting_that_goes_on_is_told_by_its_share() {
        for (name, who, minute, severity) in [
            ("io", "full", 12.0, Severity::Note),
            ("io", "full", 55.0, Severity::Warning),
            ("memory", "full", 2.0, Severity::Note),
            ("memory", "full", 11.0, Severity::Warning),
            ("cpu", "some", 45.0, Severity::Note),
            ("cpu", "some", 90.0, Severity::Warning),
        ] {
            for tree in [psi(name, who, minute, minute), psi(name, who, minute, minute).virtual_machine()] {
                let finding = one(&tree, 56);
                assert_eq!((finding.id, finding.severity), (format!("pressure/{name}"), severity));
            }
        }
        let finding = one(&psi("io", "full", 30.0, 34.0), 56);
        assert!(text(&finding).starts_with("In 34 % of the last minute everything"), "{}", text(&finding));
        assert!(text(&finding).contains("sda, busy for 90 %"), "{}", text(&finding));
        assert!(finding.evidence[0].value.contains("avg60=34.00"));
    }

    #[test]
    fn little_waiting_and_waiting_that_is_over_are_fine() {
        assert!(fine(&psi("io", "full", 2.0, 3.5), 56).contains("io full 3.5 %"));
        fine(&psi("io", "full", 0.0, 60.0), 56);
        fine(&psi("cpu", "some", 30.0, 35.0), 56);
    }

    #[test]
    fn waiting_while_no_disk_is_busy_is_no_waiting_for_disks() {
        let line = "full avg10=99.00 avg60=99.00 avg300=99.00 total=1\n";
        let tree = |tree: Tree| tree.file("/proc/pressure/io", line);
        assert_eq!(not_seen(&tree(busy(Tree::new(), 3)), 56), "/proc/pressure/io: full 99 %");
        let no_disk = Tree::new().file("/proc/diskstats", "").earlier("/proc/diskstats", "");
        assert_eq!(not_seen(&tree(no_disk), 56), "/proc/pressure/io: full 99 %");
        assert_eq!(not_seen(&tree(Tree::new()), 56), "/proc/diskstats", "one look");
    }

    #[test]
    fn what_gives_way_on_purpose_is_no_waiting_for_cpus() {
        let nice = psi("cpu", "some", 97.0, 97.0).file("/proc/stat", "cpu  0\ncpu0 10 800 0 100 0 0 0 0 0 0\n");
        assert_eq!(not_seen(&nice, 56), "/proc/pressure/cpu: some 97 %");
        // One that is busy among many that rest is what something waits for.
        let idle = |ticks: u32| (1..8).map(|cpu| format!("cpu{cpu} 0 0 0 {ticks} 0 0 0 0 0 0\n")).collect::<String>();
        let stat = |ticks: u32| format!("cpu  0\ncpu0 {ticks} 0 0 0 0 0 0 0 0 0\n{}", idle(ticks));
        let pinned = psi("cpu", "some", 97.0, 97.0).file("/proc/stat", &stat(900)).earlier("/proc/stat", &stat(0));
        assert_eq!(one(&pinned, 56).evidence[1].value, "cpu0: busy 100 %");
        let line = "some avg10=97.00 avg60=97.00 avg300=1.00 total=1\n";
        assert_eq!(not_seen(&Tree::new().file("/proc/pressure/cpu", line), 56), "/proc/stat");
    }

    #[test]
    fn pressure_that_is_hidden_absent_or_damaged_is_no_finding() {
        assert!(not_seen(&Tree::new().hidden("/proc/pressure/io"), 56).starts_with("/proc/pressure/io: "));
        not_here(&Tree::new(), 56);
        for damaged in ["full avg10=nan avg60=inf", "full avg10=-1 avg60=1e9", "full", "", "some avg10=50 avg60=50"] {
            not_here(&psi("io", "full", 50.0, 50.0).file("/proc/pressure/io", damaged), 56);
        }
    }

    /// A host that swaps to an area so many pages out and in, in a minute.
    fn swaps(area: &str, back: u64, out: u64) -> Tree {
        Tree::new()
            .file(SWAPS, &format!("Filename\tType\tSize\tUsed\tPriority\n{area} partition 8388604 4096 -2\n"))
            .file(VMSTAT, &format!("pswpin {}\npswpout {}\n", 100 + back, 100 + out))
            .earlier(VMSTAT, "pswpin 100\npswpout 100\n")
    }

    #[test]
    fn pages_that_come_back_are_worse_than_those_that_go_and_those_in_memory_cost_cpu_only() {
        let finding = one(&swaps("/dev/sda2", 6000, 12_000), 57);
        assert!(text(&finding).contains("100 pages/s") && text(&finding).contains("200 pages/s"));
        assert_eq!(finding.severity, Severity::Warning);
        assert_eq!(one(&swaps("/dev/sda2", 0, 12_000), 57).severity, Severity::Note);
        let waits = |tree: Tree, share: &str| {
            let line = format!("some avg10=0.00 avg60={share} avg300=0.00 total=1\n");
            tree.file("/proc/pressure/memory", &line)
        };
        let packed = one(&waits(swaps("/dev/zram0", 6000, 6000).virtual_machine(), "0.50"), 57);
        assert_eq!((packed.severity, packed.text.key.as_str()), (Severity::Note, "swap.zram"));
        assert!(fine(&swaps("/dev/sda2", 60, 60), 57).contains("1 pages/s"));
        // Few pages, for which nothing waits, and an area that nothing is in.
        fine(&waits(swaps("/dev/sda2", 6000, 6000), "0.00"), 57);
        fine(&swaps("/dev/sda2", 6000, 6000), 57);
        let empty = "Filename\n/dev/sda2 partition 9 0 -2\n";
        fine(&swaps("/dev/sda2", 60_000, 60_000).file(SWAPS, empty), 57);
        let both = "Filename\n/dev/sda2 partition 9 0 -2\n/dev/zram0 partition 9 5 100\n";
        assert_eq!(one(&swaps("", 60_000, 60_000).file(SWAPS, both), 57).text.key, "swap.zram");
    }

    #[test]
    fn memory_of_servers_that_lies_in_swap_is_told() {
        let tree = with_process(swaps("/dev/sda2", 0, 0), 7, "smbd", "smbd\0-F", &[(0, 1)]);
        let of = |tree: Tree, kib: u64| tree.file("/proc/7/status", &format!("Name:\tsmbd\nVmSwap:\t   {kib} kB\n"));
        let tree = of(tree, 40_000);
        let finding = one(&tree, 57);
        assert_eq!((finding.id.as_str(), finding.severity), ("swapping/smbd", Severity::Note));
        assert!(text(&finding).contains("41.0 MB"), "{}", text(&finding));
        fine(&of(tree, 400), 57);
    }

    #[test]
    fn swap_that_is_hidden_absent_or_seen_once_is_no_finding() {
        assert!(not_seen(&Tree::new().hidden(SWAPS), 57).starts_with("/proc/swaps: "));
        not_here(&Tree::new(), 57);
        not_here(&Tree::new().file(SWAPS, "Filename\tType\tSize\tUsed\tPriority\n"), 57);
        let once = Tree::new().file(SWAPS, "Filename\n/dev/sda2 partition 1 0 -2\n").file(VMSTAT, "pswpin 9\n");
        assert_eq!(not_seen(&once, 57), VMSTAT);
        let counts = found(&swaps("/dev/sda2", u64::MAX - 100, 0), 57);
        assert_eq!(counts.len(), 1, "a number at its end is no panic");
    }
}
