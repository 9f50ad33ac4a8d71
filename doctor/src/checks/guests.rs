//! Check 68: disks of virtual machines, on the host that runs them by QEMU, and in the guest itself.

mod options;

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::Check;
use super::nics::Gathered;
use super::processes::command_line;
use crate::show;
use forebay_host::system::{RECORDED, Seen, System};
use forebay_host::topology::numbers;
use options::Guest;
#[cfg(test)]
use options::{Cache, Disk};

/// Check 68 alone.
pub const CHECKS: &[Check] = &[Check { number: 68, word: "guest-disk", look: guests }];

/// Virtual machines that are looked at.
const GUESTS_MAX: usize = 512;
/// Disks that are named as evidence.
const SHOWN: usize = 6;
/// CPUs that may share a queue without waiting for each other much, as for NVMe (check 11).
const CPUS_FOR_A_QUEUE: usize = 4;

/// Where a recorded host has what its virtual machines' disks are set to. Of their command lines a record has no more than the program.
fn recorded_at() -> String {
    format!("{RECORDED}/guests.json")
}

// Check 68. Reads the command lines of QEMU and, in a guest, the queues of its disks. Rules: each write waits for the host's disk; flushes
// are left out; requests that pass by the host's cache go to threads, where the kernel could take them; disks without a thread of their
// own; a queue that more than CPUS_FOR_A_QUEUE share.
fn guests(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let guests = gathered.see(read(&host.system)).unwrap_or_default();
    let with_disks: Vec<&Guest> = guests.iter().filter(|guest| !guest.disks.is_empty()).collect();
    let disks: usize = with_disks.iter().map(|guest| guest.disks.len()).sum();
    if let Some(guest) = guests.iter().find(|guest| guest.partly) {
        gathered.hide(format!("/proc/{}/cmdline", guest.pid), Sentence::new("guests.partly"));
    }
    for kind in &KINDS {
        if let Some(found) = of_kind(kind, &guests) {
            gathered.find(found);
        }
    }
    if disks > 0 {
        gathered.fine(Sentence::new("guests.fine").with("disks", disks).with("guests", with_disks.len()));
    }
    if host.topology.hypervisor.is_some() {
        queues(host, &mut gathered);
    }
    gathered.verdict()
}

/// Virtual machines that run here.
fn read(system: &System) -> Seen<Vec<Guest>> {
    let path = recorded_at();
    if !system.is_live() {
        match system.text(&path) {
            Seen::Is(text) => {
                let guests = serde_json::from_str::<Vec<Guest>>(&text);
                return guests.map_or_else(|e| Seen::Hidden(format!("understand {path}: {e}")), Seen::Is);
            }
            Seen::Absent => {}
            Seen::Hidden(why) => return Seen::Hidden(why),
        }
    }
    let names = match system.list("/proc") {
        Seen::Is(names) => names,
        Seen::Absent => return Seen::Absent,
        Seen::Hidden(why) => return Seen::Hidden(why),
    };
    let mut guests = Vec::new();
    for pid in names.iter().filter_map(|name| name.parse::<u32>().ok()) {
        let name = match system.text(&format!("/proc/{pid}/comm")) {
            Seen::Is(name) => name,
            // It has ended.
            Seen::Absent => continue,
            Seen::Hidden(why) => return Seen::Hidden(why),
        };
        let is_qemu = name.starts_with("qemu-system") || name == "qemu-kvm" || name == "kvm";
        if !is_qemu {
            continue;
        }
        if guests.len() == GUESTS_MAX {
            guests.push(Guest { pid, partly: true, ..Guest::default() });
            break;
        }
        match command_line(system, pid) {
            Seen::Is(line) => guests.push(Guest::of(pid, &line)),
            Seen::Absent => {}
            Seen::Hidden(why) => return Seen::Hidden(why),
        }
    }
    // What they are called is their owners'.
    let unnamed: Vec<Guest> = guests.iter().map(Guest::without_name).collect();
    if system.is_live() && !unnamed.is_empty() {
        system.told(&path, &serde_json::to_string(&unnamed).expect("words and numbers are JSON"));
    }
    Seen::Is(guests)
}

/// A kind of setting, of which all virtual machines together are one finding.
struct Kind {
    word: &'static str,
    severity: Severity,
    is: fn(&options::Disk) -> bool,
    text: &'static str,
    help: &'static str,
}

const KINDS: [Kind; 4] = [
    Kind {
        word: "flushed",
        severity: Severity::Warning,
        is: |disk| disk.cache.through && !disk.cache.no_flush,
        text: "guests.flushed",
        help: "guests.flushed-help",
    },
    Kind {
        word: "unsafe",
        severity: Severity::Warning,
        is: |disk| disk.cache.no_flush,
        text: "guests.unsafe",
        help: "guests.unsafe-help",
    },
    Kind {
        word: "threads",
        severity: Severity::Note,
        is: |disk| disk.cache.direct && disk.aio.as_deref() == Some("threads"),
        text: "guests.threads",
        help: "guests.threads-help",
    },
    Kind {
        word: "iothread",
        severity: Severity::Note,
        is: |disk| disk.iothread == Some(false),
        text: "guests.iothread",
        help: "guests.iothread-help",
    },
];

fn of_kind(kind: &Kind, guests: &[Guest]) -> Option<Finding> {
    let (mut names, mut evidence, mut count) = (Vec::new(), Vec::new(), 0);
    for guest in guests {
        let disks: Vec<&options::Disk> = guest.disks.iter().filter(|disk| (kind.is)(disk)).collect();
        if disks.is_empty() {
            continue;
        }
        count += disks.len();
        names.push(guest.called());
        let lines = disks.iter().map(|disk| Evidence::new(format!("/proc/{}/cmdline", guest.pid), disk.shown()));
        evidence.extend(lines.take(SHOWN.saturating_sub(evidence.len())));
    }
    (count > 0).then(|| Finding {
        id: format!("guest-disk/{}", kind.word),
        check: 68,
        severity: kind.severity,
        confidence: Confidence::Certain,
        text: Sentence::new(kind.text).with("disks", count).with("guests", show::names(&names)),
        evidence,
        number: None,
        remedies: vec![Remedy::Explain { what: Sentence::new(kind.help), command: None }],
    })
}

/// Queues of a guest's disks, all of them one finding: whoever runs the guest sets them.
fn queues(host: &Host, gathered: &mut Gathered) {
    let cpus = host.topology.cpus.len();
    let (mut few, mut evidence, mut judged, mut least) = (Vec::new(), Vec::new(), 0, usize::MAX);
    for (name, disk) in &host.topology.disks {
        let real = || host.system.real(&format!("/sys/block/{name}")).known().unwrap_or_default();
        if disk.bytes == 0 || !(disk.kind == "virtio" || disk.kind == "scsi" && real().contains("/virtio")) {
            continue;
        }
        let folder = format!("/sys/block/{name}/mq");
        let Some(queues) = gathered.see(host.system.list(&folder)) else { continue };
        let mut shares = Vec::new();
        for queue in queues {
            let path = format!("{folder}/{queue}/cpu_list");
            let Some(text) = gathered.see(host.system.text(&path)) else { continue };
            let sharing = numbers(&text.replace(' ', "")).len();
            if sharing > 0 {
                shares.push((sharing, path, text));
            }
        }
        let count = shares.len();
        let Some((most, path, text)) = shares.into_iter().max_by_key(|(cpus, ..)| *cpus) else { continue };
        judged += 1;
        least = least.min(count);
        if most > CPUS_FOR_A_QUEUE {
            few.push(name.as_str());
            evidence.push(Evidence::new(path, text));
        }
    }
    let words = |key| Sentence::new(key).with("queues", least).with("cpus", cpus);
    if !few.is_empty() {
        evidence.truncate(SHOWN);
        gathered.find(Finding {
            id: "guest-disk/queues".to_owned(),
            check: 68,
            severity: Severity::Note,
            confidence: Confidence::Certain,
            text: words("guests.queues").with("disks", show::names(&few)),
            evidence,
            number: Some(Number { is: least as f64, could_be: cpus as f64, unit: "queues".to_owned() }),
            remedies: vec![Remedy::Explain { what: Sentence::new("guests.queues-help"), command: None }],
        });
    } else if judged > 0 {
        gathered.fine(words("guests.queues-fine").with("disks", judged));
    }
}

#[cfg(test)]
mod tests;
