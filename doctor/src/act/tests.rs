//! Acting on a tree: kept, taken back, refused, and ended at any step.

use super::*;
use crate::findings::{Confidence, Evidence, Severity};
use crate::fixture::Tree;
use forebay_host::system::OWN_FOLDER;
use forebay_host::topology;
use forebay_host::topology::Interrupt;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

const RECLAIM: &str = "/proc/sys/vm/zone_reclaim_mode";
const DEFRAG: &str = "/sys/kernel/mm/transparent_hugepage/defrag";
const HASH: &str = "/sys/class/net/bond0/bonding/xmit_hash_policy";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

fn tree() -> Tree {
    let tree = Tree::new().file(RECLAIM, "1\n").file(DEFRAG, "[always] defer madvise never\n").file(BOOT, "first\n");
    tree.file("/proc/irq/24/smp_affinity_list", "0-3\n").file(HASH, "layer2 0\n")
}

fn finding(writes: &[(&str, &str)]) -> Finding {
    let writes = writes.iter().map(|&(path, value)| Write { path: path.to_owned(), value: value.to_owned() });
    Finding {
        id: "memory-policy/host".to_owned(),
        check: 21,
        severity: Severity::Warning,
        confidence: Confidence::Certain,
        text: Sentence::new("doctor.none"),
        evidence: vec![Evidence::new(RECLAIM, "1")],
        number: Some(Number { is: 1.0, could_be: 2.0, unit: "B/s".to_owned() }),
        remedies: vec![Remedy::Apply { what: Sentence::new("doctor.none"), writes: writes.collect() }],
    }
}

fn both() -> Finding {
    finding(&[(RECLAIM, "0"), (DEFRAG, "madvise")])
}

/// Where the journal of a host lies for this process.
fn folder(system: &System) -> PathBuf {
    system.place(OWN_FOLDER)
}

/// Every file of a tree and what it holds, but for the doctor's own.
fn everything(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with(OWN_FOLDER.trim_start_matches('/')) => {}
                true => folders.push(path),
                false => {
                    all.insert(path.clone(), std::fs::read(&path).unwrap());
                }
            }
        }
    }
    all
}

struct Trial {
    tree: Tree,
    host: Host,
    guarded: RefCell<Vec<u64>>,
}

impl Trial {
    fn of(tree: Tree) -> Trial {
        let host = Host::look(tree.system());
        Trial { tree, host, guarded: RefCell::default() }
    }

    fn journal(&self) -> Journal {
        Journal::at(&folder(&self.host.system)).unwrap()
    }

    fn apply(&self, finding: &Finding, then: Verdict) -> Outcome {
        self.applied(finding, then, false)
    }

    fn applied(&self, finding: &Finding, then: Verdict, persists: bool) -> Outcome {
        let guard = |change| {
            self.guarded.borrow_mut().push(change);
            Ok(())
        };
        let how = How { settles: Duration::ZERO, persists, look_again: &move |_| then.clone(), guard: &guard };
        apply(&self.host, &mut self.journal(), finding, &how).unwrap()
    }

    fn reads(&self, path: &str) -> String {
        self.host.system.text(path).known().unwrap()
    }

    fn revert(&self, which: &Which) -> Vec<Outcome> {
        revert(&self.host.system, &mut self.journal(), which).unwrap()
    }

    /// As a reboot leaves it: another boot, and these files.
    fn reboot(&self, boot: &str, files: &[(&str, &str)]) {
        for (path, text) in files.iter().chain(&[(BOOT, boot)]) {
            std::fs::write(self.tree.system().place(path), text).unwrap();
        }
    }

    fn again(&self) -> Vec<(Became, String)> {
        let (system, mut journal) = (self.tree.system(), self.journal());
        let outcomes = again(&system, &topology::read(&system), &mut journal).unwrap();
        outcomes.into_iter().map(|outcome| (outcome.became, outcome.why.key)).collect()
    }

    fn everything(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        everything(&self.tree.system().place("/"))
    }
}

#[test]
fn what_cures_is_kept_until_it_is_taken_back_to_the_byte() {
    let trial = Trial::of(tree());
    let before = trial.everything();
    let outcome = trial.apply(&both(), Verdict::Fine(Sentence::new("doctor.none")));
    assert_eq!((outcome.became, outcome.why.key.as_str()), (Became::Kept, "act.gone"));
    assert_eq!((trial.reads(RECLAIM), trial.reads(DEFRAG)), ("0".to_owned(), "madvise".to_owned()));
    assert!(trial.guarded.borrow().is_empty());
    let again = trial.apply(&both(), Verdict::NotHere);
    assert_eq!((again.became, again.why.key.as_str()), (Became::Refused, "act.refused.open"));
    assert!(trial.revert(&Which::Finding("other".to_owned())).is_empty());
    let back = trial.revert(&Which::Finding("memory-policy/host".to_owned()));
    let lines: Vec<String> = back.iter().flat_map(|outcome| outcome.lines(false)).collect();
    let wanted = [format!("{DEFRAG}: madvise -> always"), format!("{RECLAIM}: 0 -> 1")];
    assert_eq!(lines, wanted, "the last one first, and what was there until now before what is there now");
    assert_eq!(trial.everything(), before);
    assert!(trial.revert(&Which::All).is_empty(), "once");
}

#[test]
fn what_does_not_cure_is_taken_back_at_once() {
    let trial = Trial::of(tree());
    let before = trial.everything();
    let unseen = Verdict::NotSeen { what: "x".to_owned(), how: Sentence::new("doctor.as-root") };
    let part = |id: &str| Verdict::FoundPart {
        found: vec![Finding { id: id.to_owned(), ..both() }],
        what: "x".to_owned(),
        how: Sentence::new("doctor.as-root"),
    };
    for (then, why) in [
        (Verdict::Found(vec![both()]), "act.not-better"),
        (unseen, "act.unseen"),
        (part(&both().id), "act.not-better"),
        (part("another"), "act.unseen"),
    ] {
        let outcome = trial.apply(&both(), then);
        assert_eq!((outcome.became, outcome.why.key.as_str()), (Became::Reverted, why));
        assert_eq!(outcome.lines(true)[0], format!("{RECLAIM}: 1 -> 0 -> 1"), "there and back");
        assert_eq!(trial.everything(), before);
    }
    let mut better = both();
    better.number.as_mut().unwrap().is = 1.5;
    let outcome = trial.apply(&both(), Verdict::Found(vec![better.clone()]));
    assert_eq!((outcome.became, outcome.after), (Became::Kept, better.number));
}

#[test]
fn what_the_kernel_does_not_take_is_told_and_nothing_stays_open() {
    let trial = Trial::of(tree());
    // More than the kernel counts to.
    let sizes = finding(&[("/proc/sys/net/ipv4/tcp_wmem", "4096 16384 4294967295")]);
    let host = Host { system: System::live(), ..Host::look(trial.tree.system()) };
    let mut journal = trial.journal();
    let how = How {
        settles: Duration::ZERO,
        persists: false,
        look_again: &|_| panic!("there is nothing to measure"),
        guard: &|_| Ok(()),
    };
    let outcome = apply(&host, &mut journal, &sizes, &how).unwrap();
    assert_eq!((outcome.became, outcome.why.key.as_str()), (Became::Failed, "act.failed.write"));
    let (_, why) = outcome.why.with.iter().find(|(name, _)| name == "why").unwrap();
    assert!(why.starts_with("/proc/sys/net/ipv4/tcp_wmem: "), "{why}");
    assert_eq!(journal.open_entries().count(), 0);
}

#[test]
fn the_living_kernel_takes_a_setting_refuses_another_and_has_the_old_one_back() {
    // SAFETY: it gives this thread a network of its own, whose settings are nobody else's.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        forebay_tests::harness::skip("it needs the right to make a network namespace (root)");
        return;
    }
    let trial = Trial::of(tree());
    let host = Host { system: System::live(), ..Host::look(trial.tree.system()) };
    let mut journal = trial.journal();
    let how = How { settles: Duration::ZERO, persists: false, look_again: &|_| Verdict::NotHere, guard: &|_| Ok(()) };
    const SIZES: &str = "/proc/sys/net/ipv4/tcp_rmem";
    // Of this thread, not of the process.
    let before = std::fs::read_to_string(SIZES).unwrap();
    let both = finding(&[(SIZES, "4096 131072 8388608"), ("/proc/sys/net/ipv4/tcp_wmem", "4096 16384 4294967295")]);
    let outcome = apply(&host, &mut journal, &both, &how).unwrap();
    assert_eq!((outcome.became, outcome.why.key.as_str()), (Became::Failed, "act.failed.write"));
    assert_eq!(std::fs::read_to_string(SIZES).unwrap(), before, "the one that was taken is back");
    let one = finding(&[(SIZES, "4096 131072 8388608")]);
    assert_eq!(apply(&host, &mut journal, &one, &how).unwrap().became, Became::Kept);
    assert_eq!(std::fs::read_to_string(SIZES).unwrap(), "4096\t131072\t8388608\n");
    revert(&host.system, &mut journal, &Which::All).unwrap();
    assert_eq!(std::fs::read_to_string(SIZES).unwrap(), before);
}

#[test]
fn managed_interrupts_and_other_places_are_refused_before_anything_is_written() {
    let mut trial = Trial::of(tree());
    trial.host.topology.interrupts.insert(24, Interrupt { managed: true, ..Interrupt::default() });
    let before = trial.everything();
    let by_hand =
        Finding { remedies: vec![Remedy::Explain { what: Sentence::new("doctor.none"), command: None }], ..both() };
    for (finding, why) in [
        (finding(&[(RECLAIM, "0"), ("/proc/irq/24/smp_affinity_list", "0")]), "act.refused.managed"),
        (finding(&[(RECLAIM, "0"), ("/etc/passwd", "0")]), "act.refused.place"),
        (finding(&[(RECLAIM, "0"), ("/proc/sys/kernel/core_pattern", "|/tmp/x")]), "act.refused.place"),
        (finding(&[(RECLAIM, "0"), (DEFRAG, "|/tmp/x")]), "act.refused.value"),
        (finding(&[(RECLAIM, "0"), ("/sys/block/none/queue/scheduler", "none")]), "act.refused.unread"),
        (by_hand, "act.refused.by-hand"),
    ] {
        let outcome = trial.apply(&finding, Verdict::NotHere);
        assert_eq!((outcome.became, outcome.why.key.as_str()), (Became::Refused, why));
        assert_eq!(trial.everything(), before);
    }
    assert_eq!(trial.journal().next(), 1, "nor is anything in the journal");
    trial.host.topology.interrupts.get_mut(&24).unwrap().managed = false;
    let moved = trial.apply(&finding(&[("/proc/irq/24/smp_affinity_list", "2")]), Verdict::NotHere);
    assert_eq!((moved.became, trial.reads("/proc/irq/24/smp_affinity_list").as_str()), (Became::Kept, "2"));
}

#[test]
fn a_link_goes_back_by_its_guard_unless_somebody_confirms() {
    let trial = Trial::of(tree());
    let before = trial.everything();
    let hash = finding(&[(HASH, "layer3+4")]);
    for confirmed in [false, true] {
        let outcome = trial.apply(&hash, Verdict::NotHere);
        assert_eq!(outcome.became, Became::AwaitsConfirmation);
        assert_eq!(trial.guarded.borrow_mut().pop(), Some(outcome.change), "it is there before anything is written");
        if confirmed {
            assert_eq!(confirm(&mut trial.journal()).unwrap(), ["memory-policy/host"]);
        }
        assert_eq!(trial.revert(&Which::Unconfirmed(outcome.change)).len(), usize::from(!confirmed));
        assert_eq!(trial.everything() == before, !confirmed);
    }
    trial.revert(&Which::All);
    assert_eq!(trial.everything(), before);
}

#[test]
fn what_a_reboot_or_a_removal_has_taken_is_settled_and_nothing_is_written() {
    let trial = Trial::of(tree());
    trial.apply(&both(), Verdict::NotHere);
    let system = &trial.host.system;
    std::fs::write(system.place(BOOT), "second\n").unwrap();
    std::fs::write(system.place(RECLAIM), "7\n").unwrap();
    let back = trial.revert(&Which::All);
    assert!(back.iter().all(|outcome| outcome.became == Became::Gone), "{back:?}");
    assert_eq!(trial.reads(RECLAIM), "7", "it may be somebody else's by now");
    let mut once_more = trial.apply(&finding(&[(RECLAIM, "0")]), Verdict::NotHere);
    assert_eq!(once_more.became, Became::Kept);
    std::fs::remove_file(system.place(RECLAIM)).unwrap();
    once_more = trial.revert(&Which::All).remove(0);
    assert_eq!((once_more.became, once_more.why.key.as_str()), (Became::Gone, "act.gone-with-device"));
    assert_eq!(once_more.lines(false), [""; 0], "nothing was written");
}

#[test]
fn what_somebody_else_wrote_meanwhile_is_told() {
    let trial = Trial::of(tree());
    trial.apply(&finding(&[(RECLAIM, "0")]), Verdict::NotHere);
    std::fs::write(trial.host.system.place(RECLAIM), "3\n").unwrap();
    let back = trial.revert(&Which::All).remove(0);
    assert_eq!((back.why.key.as_str(), back.lines(false)), ("act.restored-over", vec![format!("{RECLAIM}: 3 -> 1")]));
    assert_eq!(trial.reads(RECLAIM), "1");
}

#[test]
fn findings_are_chosen_by_id_or_by_word_and_once() {
    let (one, mut two, mut other) = (both(), both(), both());
    two.id = "memory-policy/node1".to_owned();
    other.id = "memory".to_owned();
    let all = [&one, &two, &other];
    let ids = |ids: &[&str]| {
        let ids: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
        chosen(&all, &ids).map(|chosen| chosen.into_iter().map(|finding| finding.id.clone()).collect::<Vec<_>>())
    };
    assert_eq!(ids(&["memory-policy"]).unwrap(), [one.id.as_str(), &two.id]);
    assert_eq!(ids(&["memory", "memory-policy/node1", "memory"]).unwrap(), ["memory", &two.id]);
    let error = ids(&["memory-policy/node7"]).unwrap_err().to_string();
    assert!(error.contains("memory-policy/node1"), "{error}");
}

/// Applies in a process of its own, which ends at the step that it is told.
#[test]
#[ignore = "it is run by the test that ends it at every step"]
fn child_that_ends_at_a_step() {
    let of = |name: &str| std::env::var(name).expect("the test that runs it sets it");
    let system = System::recorded(Path::new(&of("FOREBAY_TRIAL_TREE"))).unwrap();
    let host = Host::look(system);
    let then = match of("FOREBAY_TRIAL_CURES").as_str() {
        "yes" => Verdict::NotHere,
        _ => Verdict::Found(vec![both()]),
    };
    let mut journal = Journal::at(&folder(&host.system)).unwrap();
    steps::LEFT.store(of("FOREBAY_TRIAL_STEPS").parse().unwrap(), std::sync::atomic::Ordering::SeqCst);
    if of("FOREBAY_TRIAL_CURES") == "of an earlier boot" {
        again(&host.system, &host.topology, &mut journal).unwrap();
        return;
    }
    let how = How { settles: Duration::ZERO, persists: false, look_again: &move |_| then.clone(), guard: &|_| Ok(()) };
    apply(&host, &mut journal, &both(), &how).unwrap();
    revert(&host.system, &mut journal, &Which::All).unwrap();
}

fn end_at(trial: &Trial, cures: &str, step: u32) -> std::process::Output {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "act::tests::child_that_ends_at_a_step", "--ignored"]);
    child.env("FOREBAY_TRIAL_TREE", trial.host.system.place("/")).env("FOREBAY_TRIAL_CURES", cures);
    child.env("FOREBAY_TRIAL_STEPS", step.to_string()).output().unwrap()
}

#[test]
fn ended_at_any_step_the_next_revert_has_every_byte_back() {
    for cures in ["yes", "no"] {
        let mut ended = 0;
        loop {
            let trial = Trial::of(tree());
            let before = trial.everything();
            let child = end_at(&trial, cures, ended);
            if child.status.success() {
                assert_eq!(trial.everything(), before, "the whole way leads back, too");
                break;
            }
            assert_eq!(child.status.signal(), Some(libc::SIGKILL), "{child:?}");
            for outcome in trial.revert(&Which::All) {
                assert_eq!(outcome.became, Became::Reverted, "{outcome:?}");
            }
            assert_eq!(trial.everything(), before, "ended at step {ended}");
            assert_eq!(trial.journal().open_entries().count(), 0);
            ended += 1;
        }
        assert!(ended >= 11, "{ended} steps: it ends in between");
    }
}

const BEFORE: [(&str, &str); 2] = [(RECLAIM, "1\n"), (DEFRAG, "[always] defer madvise never\n")];

#[test]
fn what_was_applied_to_stay_is_there_again_after_a_reboot_until_it_is_taken_back() {
    let trial = Trial::of(tree());
    assert_eq!(trial.applied(&both(), Verdict::NotHere, true).became, Became::Kept);
    assert_eq!(trial.again(), [], "it is there");
    trial.reboot("second\n", &BEFORE);
    let before = trial.everything();
    assert_eq!(trial.again(), [(Became::AppliedAgain, "act.again.done".to_owned())]);
    assert_eq!((trial.reads(RECLAIM), trial.reads(DEFRAG)), ("0".to_owned(), "madvise".to_owned()));
    assert_eq!(trial.again(), [], "once in a boot");
    trial.reboot("third\n", &BEFORE);
    assert_eq!(trial.again().len(), 1);
    let back = trial.revert(&Which::All);
    assert!(back.len() == 2 && back.iter().all(|outcome| outcome.became == Became::Reverted), "{back:?}");
    trial.reboot("second\n", &[]);
    assert_eq!(trial.everything(), before);
    trial.reboot("fourth\n", &[]);
    assert_eq!(trial.again(), []);
    assert_eq!(trial.reads(RECLAIM), "1");
}

#[test]
fn taken_back_before_it_was_applied_again_it_never_is_and_without_persist_nothing_is() {
    let trial = Trial::of(tree());
    trial.applied(&both(), Verdict::NotHere, true);
    trial.reboot("second\n", &BEFORE);
    let back = trial.revert(&Which::All);
    assert!(back.iter().all(|outcome| outcome.why.key == "act.again.no-more"), "{back:?}");
    assert_eq!(trial.again(), []);
    trial.apply(&both(), Verdict::NotHere);
    trial.reboot("third\n", &BEFORE);
    assert_eq!(trial.again(), []);
    assert_eq!(trial.reads(RECLAIM), "1");
}

#[test]
fn what_could_cut_off_at_boot_or_cannot_be_known_again_is_not_made_to_stay() {
    let trial = Trial::of(tree());
    for (path, why) in [
        ("/sys/class/net/eth0/mtu", "act.refused.persist-network"),
        ("/proc/irq/24/smp_affinity_list", "act.refused.persist-unknown"),
    ] {
        let outcome = trial.applied(&finding(&[(path, "2")]), Verdict::NotHere, true);
        assert_eq!((outcome.became, outcome.why.key.as_str()), (Became::Refused, why));
    }
    assert_eq!(trial.journal().next(), 1);
}

const CARD: &str = "0000:81:00.0";
const WAY: &str = "0000:80:01.0/0000:81:00.0";

/// A card with one interrupt, and a disk of another.
fn with_card(number: u32, device: u16) -> Tree {
    let folder = "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0";
    let tree = tree().node(0, "0-1", 8).node(1, "2-3", 8).pci(WAY, 0x020000, 1).pci_id(CARD, 0x8086, device);
    let tree = tree.file(&format!("{folder}/subsystem_vendor"), "0x8086\n");
    tree.file(&format!("{folder}/subsystem_device"), "0x0001\n").interrupt(
        number,
        CARD,
        "eth0-rx-0",
        "0-1",
        &[9, 0, 0, 0],
    )
}

#[test]
fn an_interrupt_is_known_again_by_its_card_and_name_and_another_card_is_left_alone() {
    let first = Trial::of(with_card(40, 0x1572));
    let placed = finding(&[("/proc/irq/40/smp_affinity_list", "2-3")]);
    assert_eq!(first.applied(&placed, Verdict::NotHere, true).became, Became::Kept);
    let journal = std::fs::read(folder(&first.host.system).join("journal")).unwrap();
    let next_boot = |tree: Tree| {
        let trial = Trial::of(tree.file(BOOT, "second\n"));
        std::fs::create_dir_all(folder(&trial.host.system)).unwrap();
        std::fs::write(folder(&trial.host.system).join("journal"), &journal).unwrap();
        trial
    };
    // Its number is another device's now.
    let moved = next_boot(with_card(57, 0x1572).file("/proc/irq/40/smp_affinity_list", "0-3"));
    assert_eq!(moved.again(), [(Became::AppliedAgain, "act.again.done".to_owned())]);
    let reads = |number: u32| moved.reads(&format!("/proc/irq/{number}/smp_affinity_list"));
    assert_eq!((reads(57), reads(40)), ("2-3".to_owned(), "0-3".to_owned()));
    assert_eq!(moved.revert(&Which::All).len(), 1);
    assert_eq!(reads(57), "0-1");

    for (tree, why) in [(with_card(40, 0x1573), "other card"), (tree(), "no card")] {
        let other = next_boot(tree.file("/proc/irq/40/smp_affinity_list", "0-1"));
        let before = other.everything();
        assert_eq!(other.again(), [(Became::NotAppliedAgain, "act.again.gone".to_owned())], "{why}");
        assert_eq!(other.everything(), before);
        assert_eq!(other.journal().open_entries().count(), 1, "it may be back at the next boot");
    }
    let twice = next_boot(with_card(40, 0x1572).interrupt(41, CARD, "eth0-rx-0", "0-1", &[0; 4]));
    assert_eq!(twice.again(), [(Became::NotAppliedAgain, "act.again.other".to_owned())]);
}

#[test]
fn a_disk_of_the_same_name_at_another_place_is_another() {
    let tree = |way: &str, address: &str| {
        let ids = ["vendor", "device", "subsystem_vendor", "subsystem_device"];
        let tree = tree()
            .pci(way, 0x010802, 1)
            .disk("nvme0n1", address, 100)
            .file("/sys/block/nvme0n1/queue/rq_affinity", "1\n");
        let (bus, slot) = way.split_once('/').unwrap();
        let at = |name: &str| format!("/sys/devices/pci{}/{bus}/{slot}/{name}", &bus[..7]);
        ids.iter().fold(tree, |tree, id| tree.file(&at(id), "0x1\n"))
    };
    let here = Trial::of(tree(WAY, CARD));
    let queue = finding(&[("/sys/block/nvme0n1/queue/rq_affinity", "2")]);
    assert_eq!(here.applied(&queue, Verdict::NotHere, true).became, Became::Kept);
    let journal = std::fs::read(folder(&here.host.system).join("journal")).unwrap();
    let there = Trial::of(tree("0000:80:02.0/0000:82:00.0", "0000:82:00.0").file(BOOT, "second\n"));
    std::fs::create_dir_all(folder(&there.host.system)).unwrap();
    std::fs::write(folder(&there.host.system).join("journal"), journal).unwrap();
    assert_eq!(there.again(), [(Became::NotAppliedAgain, "act.again.other".to_owned())]);
    assert_eq!(there.reads("/sys/block/nvme0n1/queue/rq_affinity"), "1");
    here.reboot("second\n", &[("/sys/block/nvme0n1/queue/rq_affinity", "1\n")]);
    assert_eq!(here.again(), [(Became::AppliedAgain, "act.again.done".to_owned())]);
}

#[test]
fn what_the_kernel_does_not_take_after_the_reboot_leaves_nothing_half_applied() {
    let trial = Trial::of(tree());
    trial.applied(&both(), Verdict::NotHere, true);
    trial.reboot("second\n", &BEFORE);
    std::fs::remove_file(trial.host.system.place(DEFRAG)).unwrap();
    let before = trial.everything();
    assert_eq!(trial.again(), [(Became::NotAppliedAgain, "act.again.gone".to_owned())]);
    assert_eq!(trial.everything(), before);
    trial.reboot("third\n", &BEFORE);
    assert_eq!(trial.again(), [(Became::AppliedAgain, "act.again.done".to_owned())]);
}

#[test]
fn ended_at_any_step_after_a_reboot_the_next_call_has_all_of_it_there_and_revert_every_byte_back() {
    let mut ended = 0;
    loop {
        let trial = Trial::of(tree());
        trial.applied(&both(), Verdict::NotHere, true);
        trial.reboot("second\n", &BEFORE);
        let before = trial.everything();
        let child = end_at(&trial, "of an earlier boot", ended);
        let whole = child.status.success();
        assert!(whole || child.status.signal() == Some(libc::SIGKILL), "{child:?}");
        trial.again();
        assert_eq!((trial.reads(RECLAIM), trial.reads(DEFRAG)), ("0".to_owned(), "madvise".to_owned()), "step {ended}");
        let open = trial.journal().open_entries().map(|entry| (entry.boot_id.clone(), entry.state)).collect::<Vec<_>>();
        assert_eq!(open, vec![("second".to_owned(), State::Kept); 2], "step {ended}");
        trial.revert(&Which::All);
        assert_eq!(trial.everything(), before, "ended at step {ended}");
        if whole {
            break;
        }
        ended += 1;
    }
    assert!(ended >= 10, "{ended} steps: it ends in between");
}
