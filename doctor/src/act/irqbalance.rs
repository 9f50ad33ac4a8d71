//! irqbalance moves interrupts as it sees fit, and would undo what was placed here. It has a way to be told: the program of its
//! `--policyscript` is asked about each interrupt, and `forebay doctor irq-policy` answers from the journal.
//!
//! Nothing of its configuration is written. When interrupts were placed, or given back, it is told to ask again (SIGHUP).

use super::journal::{FILE_BYTES_MAX, NAME, entries_of};
use super::{boot_id, setting};
use forebay_host::system::System;
use forebay_io::folder::Folder;
use std::io;

/// Whether an interrupt was placed here in this boot, and is not given back. The journal is read as it stands: whoever changes it
/// may wait for irqbalance, and a line that is being written is none yet.
pub fn is_placed(system: &System, folder: &Folder, interrupt: u32) -> io::Result<bool> {
    let bytes = match folder.read(NAME, FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let boot = boot_id(system);
    let (entries, _) = entries_of(&bytes);
    Ok(entries.values().any(|entry| {
        entry.state.is_open() && entry.boot_id == boot && setting::interrupt_of(&entry.path) == Some(interrupt)
    }))
}

/// What runs of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Running {
    /// No process of it runs.
    No,
    /// It asks a policy script, and was told to ask again.
    AsksAgain,
    /// It asks nobody, and moves what was placed.
    AsksNobody,
}

/// Tells it to ask again about all interrupts.
pub fn ask_again(system: &System) -> Running {
    let mut running = Running::No;
    for pid in system.list("/proc").known().unwrap_or_default() {
        let Ok(number) = pid.parse::<i32>() else { continue };
        let text = |file: &str| system.text(&format!("/proc/{pid}/{file}")).known().unwrap_or_default();
        if text("comm") != "irqbalance" {
            continue;
        }
        let options = text("cmdline");
        let asks = options.split('\0').any(|word| word.starts_with("--policyscript") || word.starts_with("-l"));
        if !asks || !catches_hangup(&text("status")) {
            running = Running::AsksNobody;
            continue;
        }
        if system.is_live() {
            // SAFETY: two numbers; the process catches this signal. Where it has ended meanwhile there is nobody to ask.
            unsafe { libc::kill(number, libc::SIGHUP) };
        }
        if running == Running::No {
            running = Running::AsksAgain;
        }
    }
    running
}

/// Whether a process does something of its own with SIGHUP, of its `status`: others, as old versions of it, would end.
fn catches_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::super::journal::{Entry, Journal, State};
    use super::*;
    use crate::fixture::Tree;
    use forebay_host::system::OWN_FOLDER;

    const BOOT: &str = "/proc/sys/kernel/random/boot_id";

    fn placed(boot: &str, state: State) -> (Tree, std::path::PathBuf) {
        let tree = Tree::new().file(BOOT, "this\n");
        let folder = tree.system().place(OWN_FOLDER);
        let entry = |number, path| Entry { change: 1, boot_id: boot.to_owned(), state, ..Entry::of_test(number, path) };
        let mut journal = Journal::at(&folder).expect("a journal");
        journal.record(entry(1, "/proc/irq/40/smp_affinity_list")).expect("recorded");
        journal.record(entry(2, "/proc/sys/vm/41")).expect("recorded");
        (tree, folder)
    }

    #[test]
    fn what_was_placed_in_this_boot_is_left_alone_until_it_is_given_back() {
        let is = |boot, state, interrupt| {
            let (tree, folder) = placed(boot, state);
            is_placed(&tree.system(), &Folder::open(&folder).expect("it is there"), interrupt).expect("it is readable")
        };
        assert!(is("this", State::Kept, 40) && is("this", State::Intended, 40));
        assert!(!is("this", State::Kept, 41) && !is("this", State::Kept, 4));
        assert!(!is("this", State::Reverted, 40) && !is("another", State::Kept, 40));
        assert!(
            !is_placed(&Tree::new().system(), &Folder::open(std::path::Path::new("/")).expect("it is there"), 40)
                .expect("no journal, no placement")
        );
    }

    #[test]
    fn a_journal_that_is_held_or_torn_is_read_as_it_stands() {
        let (tree, folder) = placed("this", State::Kept);
        let _held = Journal::at(&folder).expect("a journal");
        let path = folder.join("journal");
        let mut bytes = std::fs::read(&path).expect("it is there");
        bytes.extend(b"0badc0de {\"number\":3,");
        std::fs::write(&path, bytes).expect("written");
        assert!(is_placed(&tree.system(), &Folder::open(&folder).expect("it is there"), 40).expect("read"));
    }

    #[test]
    fn one_that_asks_nobody_or_would_end_is_not_signalled() {
        let policy = "/usr/sbin/irqbalance\0--foreground\0--policyscript=/usr/lib/forebay/irqbalance-policy\0";
        let caught = "0000000100004a03";
        assert_eq!(ask_again(&Tree::new().file("/proc/77/comm", "sshd\n").system()), Running::No);
        let of = |options, caught| {
            let tree = Tree::new().file("/proc/77/comm", "irqbalance\n").file("/proc/77/cmdline", options);
            ask_again(&tree.file("/proc/77/status", &format!("SigCgt:\t{caught}\n")).system())
        };
        assert_eq!(of(policy, caught), Running::AsksAgain);
        assert_eq!(of("/usr/sbin/irqbalance\0-l\0/x\0", caught), Running::AsksAgain);
        assert_eq!(of("/usr/sbin/irqbalance\0--foreground\0", caught), Running::AsksNobody);
        assert_eq!(of(policy, "0000000100004a02"), Running::AsksNobody);
        assert_eq!(of(policy, ""), Running::AsksNobody);
    }
}
