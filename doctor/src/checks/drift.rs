//! Check 10: interrupts that have left the place where the baseline, or forebay, has put them, and who moves them.

use super::super::Host;
use super::super::act::journal::{Entry, entries_of};
use super::super::baseline::{Baseline, FILE, How};
use super::super::findings::{Confidence, Evidence, Finding, Remedy, Sentence, Severity, Verdict, Write};
use super::processes::is_running;
use crate::show;
use forebay_host::system::{OWN_FOLDER, Seen, System};
use forebay_host::topology::numbers;
use std::collections::BTreeMap;

// Check 10. Reads the baseline, the journal of what was applied, and where the interrupts may go now. Rules: interrupts of a
// device have left its node since the baseline; one that was placed since boot is at another place.
pub fn drift(host: &Host) -> Verdict {
    let (baseline, entries) = match (host.system.bytes(FILE), host.system.bytes(&format!("{OWN_FOLDER}/journal"))) {
        (Seen::Hidden(what), _) | (_, Seen::Hidden(what)) => {
            return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") };
        }
        (baseline, journal) => (
            // One that cannot be read is told by `doctor baseline check`.
            baseline.and_then(|bytes| serde_json::from_slice::<Baseline>(&bytes).ok()).known(),
            entries_of(&journal.known().unwrap_or_default()).0,
        ),
    };
    let placed = placed_in_this_boot(&host.system, entries);
    let undone: Vec<(&Entry, String)> = placed.iter().filter_map(|entry| Some((entry, moved(host, entry)?))).collect();
    let mut found: Vec<Finding> = undone_finding(&host.system, &undone).into_iter().collect();
    found.extend(baseline.iter().flat_map(|baseline| left(host, baseline)));
    let kept = baseline.as_ref().map_or(0, |baseline| baseline.interrupts().count());
    match (found.is_empty(), kept + placed.len()) {
        (false, _) => Verdict::Found(found),
        (true, 0) => Verdict::NotHere,
        (true, count) => Verdict::Fine(Sentence::new("numa.drift-fine").with("count", count)),
    }
}

/// What forebay has set of interrupts, the last of each file; a reboot ends such settings.
fn placed_in_this_boot(system: &System, entries: BTreeMap<u64, Entry>) -> Vec<Entry> {
    let boot = system.text("/proc/sys/kernel/random/boot_id").known().unwrap_or_default();
    let holds = |entry: &Entry| entry.state.is_open() && entry.boot_id == boot && entry.path.starts_with("/proc/irq/");
    let last: BTreeMap<String, Entry> =
        entries.into_values().filter(holds).map(|entry| (entry.path.clone(), entry)).collect();
    last.into_values().collect()
}

/// Where an interrupt may go now, when that is not what was set. One that is there no more was not moved.
fn moved(host: &Host, entry: &Entry) -> Option<String> {
    let now = host.system.text(&entry.path).known()?;
    (numbers(&now) != numbers(&entry.new)).then_some(now)
}

fn undone_finding(system: &System, undone: &[(&Entry, String)]) -> Option<Finding> {
    let (first, now) = undone.first()?;
    let by_irqbalance = is_running(system, "irqbalance");
    let interrupts: Vec<&str> = undone.iter().filter_map(|(entry, _)| entry.path.split('/').nth(3)).collect();
    let key = if by_irqbalance { "numa.undone-irqbalance" } else { "numa.undone" };
    let remedy = match by_irqbalance {
        true => Remedy::Explain {
            what: Sentence::new("numa.undone-irqbalance-remedy"),
            command: Some("IRQBALANCE_ARGS=\"--policyscript=/usr/lib/forebay/irqbalance-policy\"".to_owned()),
        },
        false => Remedy::Explain { what: Sentence::new("numa.undone-remedy"), command: None },
    };
    let was = format!("{now} (set to {})", first.new.trim());
    Some(Finding {
        id: "irq-moved/undone".to_owned(),
        check: 10,
        severity: Severity::Warning,
        // That it runs does not show that it was this program.
        confidence: if by_irqbalance { Confidence::Likely } else { Confidence::Certain },
        text: Sentence::new(key).with("count", undone.len()).with("interrupts", show::names(&interrupts)),
        evidence: vec![Evidence::new(&first.path, was)],
        number: None,
        remedies: vec![remedy],
    })
}

/// Devices whose interrupts went to more CPUs of their node when all was well.
fn left(host: &Host, baseline: &Baseline) -> Vec<Finding> {
    let mut devices: BTreeMap<String, Vec<Write>> = BTreeMap::new();
    let mut shown: BTreeMap<String, Evidence> = BTreeMap::new();
    for difference in baseline.differences(host).into_iter().filter(|difference| difference.how == How::Worse) {
        let pci = difference.what.strip_prefix("interrupt ").and_then(|rest| rest.split(' ').next());
        let (Some(pci), Some(was), Some(now)) = (pci, difference.was, difference.now) else { continue };
        shown
            .entry(pci.to_owned())
            .or_insert_with(|| Evidence::new(&difference.file, format!("{now} ({was}, {})", baseline.time)));
        devices.entry(pci.to_owned()).or_default().push(Write { path: difference.file, value: was });
    }
    let finding = |(pci, writes): (String, Vec<Write>)| {
        let nics = host.topology.nics.iter().filter(|(_, nic)| nic.pci.as_deref() == Some(&pci));
        let names: Vec<&String> = nics.map(|(name, _)| name).collect();
        let device = names.first().map_or(pci.clone(), |name| (*name).clone());
        let all = if names.is_empty() { pci.clone() } else { show::names(&names) };
        Finding {
            id: format!("irq-moved/{device}"),
            check: 10,
            severity: Severity::Warning,
            confidence: Confidence::Certain,
            text: Sentence::new("numa.left")
                .with("device", &all)
                .with("count", writes.len())
                .with("time", &baseline.time)
                .with("before", &baseline.kernel)
                .with("kernel", &host.topology.kernel),
            evidence: vec![shown[&pci].clone(), Evidence::new(FILE, &baseline.time)],
            number: None,
            remedies: vec![Remedy::Apply { what: Sentence::new("numa.left-remedy").with("device", all), writes }],
        }
    };
    devices.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::expect::{command, fine, not_here, not_seen, one, text, writes};
    use super::*;
    use crate::act::journal::{Journal, State};
    use crate::fixture::Tree;

    const CARD: &str = "0000:82:00.0";
    const AFFINITY: &str = "/proc/irq/40/smp_affinity_list";

    fn host(affinity: &str) -> Tree {
        Tree::new()
            .node(0, "0-3", 32)
            .node(1, "4-7", 32)
            .file("/proc/sys/kernel/osrelease", "5.4.0")
            .file("/proc/sys/kernel/random/boot_id", "this")
            .pci(CARD, 0x020000, 1)
            .nic("ens1", CARD, 25_000)
            .interrupt(40, CARD, "ens1-rx-0", affinity, &[9])
    }

    fn with_baseline(tree: Tree) -> Tree {
        let baseline = Baseline::of(&Host::look(tree.system()));
        baseline.save(&tree.system().make_own_folder().expect("made"), "baseline.json".as_ref()).expect("saved");
        tree
    }

    /// Set to 4 in a boot.
    fn placed(tree: Tree, boot: &str, state: State) -> Tree {
        let mut journal = Journal::at(&tree.system().place(OWN_FOLDER)).expect("a journal");
        let entry = Entry {
            old: "0\n".to_owned(),
            new: "4".to_owned(),
            boot_id: boot.to_owned(),
            state,
            ..Entry::of_test(1, AFFINITY)
        };
        journal.record(entry).expect("recorded");
        tree
    }

    #[test]
    fn interrupts_that_left_their_node_since_the_baseline_are_told_with_both_kernels() {
        let before = with_baseline(host("4"));
        assert!(fine(&before, 10).contains("1 interrupts"));
        let after = before.file(AFFINITY, "0-3").file("/proc/sys/kernel/osrelease", "6.8.0");
        let finding = one(&after, 10);
        assert!(
            text(&finding).starts_with("1 interrupts of ens1 have left its node since the baseline"),
            "{}",
            text(&finding)
        );
        assert!(text(&finding).contains("kernel 5.4.0 then, 6.8.0 now"));
        assert_eq!(writes(&finding), [format!("{AFFINITY}=4")]);
        assert_eq!(finding.evidence[0].source, AFFINITY);
        fine(&after.file(AFFINITY, "5-6"), 10);
    }

    #[test]
    fn a_placement_of_ours_that_somebody_undid_is_told_and_irqbalance_by_name() {
        let finding = one(&placed(host("0"), "this", State::Kept), 10);
        assert!(
            text(&finding).starts_with("1 interrupts that forebay had placed (40) are elsewhere"),
            "{}",
            text(&finding)
        );
        assert_eq!(finding.evidence, [Evidence::new(AFFINITY, "0 (set to 4)")]);
        let balanced = placed(host("0"), "this", State::Kept).file("/proc/77/comm", "irqbalance");
        assert_eq!(
            command(&one(&balanced, 10)),
            "IRQBALANCE_ARGS=\"--policyscript=/usr/lib/forebay/irqbalance-policy\""
        );
        assert_eq!(one(&balanced, 10).confidence, Confidence::Likely);
    }

    #[test]
    fn a_placement_that_holds_was_taken_back_or_ended_with_its_boot_is_not_told() {
        assert!(fine(&placed(host("4"), "this", State::Applied), 10).contains("1 interrupts"));
        not_here(&placed(host("0"), "this", State::Reverted), 10);
        not_here(&placed(host("0"), "another", State::Kept), 10);
    }

    #[test]
    fn without_a_baseline_or_a_placement_irqbalance_is_no_finding_and_what_is_hidden_is_told() {
        not_here(&host("0").file("/proc/77/comm", "irqbalance"), 10);
        not_here(&Tree::new().node(0, "0-1", 4).virtual_machine(), 10);
        assert!(not_seen(&host("0").hidden(FILE), 10).starts_with(FILE));
        assert!(not_seen(&host("0").hidden(&format!("{OWN_FOLDER}/journal")), 10).contains("journal: "));
    }
}
