//! What was applied to stay, applied again after a reboot, which ends settings of the running kernel.
//!
//! Nothing is taken for the same device that does not say so itself: numbers of interrupts and names of disks change from boot to boot.
//! What was kept then is in the journal until what is kept now is there as well, so that a kill in between loses nothing; the next call
//! first takes back what a killed one has begun.

use super::journal::{Entry, Journal, State, now};
use super::{Became, Outcome, Which, boot_id, put, revert, setting, steps, written};
use crate::findings::Sentence;
use anyhow::{Result, bail};
use forebay_host::system::System;
use forebay_host::topology::Topology;
use std::collections::BTreeSet;

/// What a file of a PCI function is, beside its place, so that another card in the same slot is another.
const IDS: [&str; 4] = ["vendor", "device", "subsystem_vendor", "subsystem_device"];

/// Which thing a setting is one of, in words that are the same after a reboot, and others for another thing. None: that cannot be told.
pub fn identity(system: &System, topology: &Topology, path: &str) -> Option<String> {
    if let Some(number) = setting::interrupt_of(path) {
        return of_interrupt(system, topology, number);
    }
    if path.starts_with("/proc/") {
        return Some(path.to_owned());
    }
    let place = system.real(path).known()?;
    let function = place.split('/').rfind(|part| topology.pci.contains_key(*part));
    match function {
        Some(address) => Some(format!("{place} {}", ids(system, address)?)),
        None if place.starts_with("/sys/devices/system/cpu/") => Some(format!("{place} {}", topology.cpu_model)),
        None => Some(place),
    }
}

fn of_interrupt(system: &System, topology: &Topology, number: u32) -> Option<String> {
    let interrupt = topology.interrupts.get(&number)?;
    let address = interrupt.pci.as_ref().filter(|_| !interrupt.name.is_empty())?;
    Some(format!("interrupt {} of {address} {}", interrupt.name, ids(system, address)?))
}

fn ids(system: &System, address: &str) -> Option<String> {
    let id = |name| system.text(&format!("/sys/bus/pci/devices/{address}/{name}")).known();
    Some(IDS.map(id).into_iter().collect::<Option<Vec<_>>>()?.join(":"))
}

/// Where the file of an entry is in this boot.
fn place_now(system: &System, topology: &Topology, entry: &Entry) -> Result<String, Sentence> {
    let gone = |key| Err(Sentence::new(key).with("path", &entry.path).with("device", &entry.identity));
    let Some(number) = setting::interrupt_of(&entry.path) else {
        return match identity(system, topology, &entry.path) {
            None => gone("act.again.gone"),
            Some(is) if is != entry.identity => gone("act.again.other"),
            Some(_) => Ok(entry.path.clone()),
        };
    };
    let mut same = topology
        .interrupts
        .keys()
        .filter(|&&number| of_interrupt(system, topology, number).as_deref() == Some(entry.identity.as_str()));
    match (same.next(), same.next()) {
        (Some(is), None) => Ok(entry.path.replacen(&format!("/{number}/"), &format!("/{is}/"), 1)),
        (None, _) => gone("act.again.gone"),
        // Two of one name: either could be it.
        (Some(_), Some(_)) => gone("act.again.other"),
    }
}

/// Applies again what was applied to stay, and has ended with an earlier boot.
pub fn again(system: &System, topology: &Topology, journal: &mut Journal) -> Result<Vec<Outcome>> {
    let boot = boot_id(system);
    if boot.is_empty() {
        bail!("tell this boot from those before: /proc/sys/kernel/random/boot_id cannot be read; nothing was changed");
    }
    // Whoever began it would hold the journal's lock still: it was killed.
    let begun = |entry: &&Entry| entry.boot_id == boot && entry.persists && entry.state != State::Kept;
    let begun: BTreeSet<u64> = journal.open_entries().filter(begun).map(|entry| entry.change).collect();
    let mut outcomes = Vec::new();
    for change in begun {
        outcomes.extend(revert(system, journal, &Which::Change(change))?);
    }
    let ended = |entry: &&Entry| entry.boot_id != boot && entry.persists && entry.state == State::Kept;
    let changes: BTreeSet<u64> = journal.open_entries().filter(ended).map(|entry| entry.change).collect();
    // Of two changes of one file the later one is what was wanted last.
    for change in changes.into_iter().rev() {
        let entries: Vec<Entry> = journal.of_change(change).filter(ended).cloned().collect();
        outcomes.extend(one(system, topology, journal, &entries, &boot)?);
    }
    Ok(outcomes)
}

/// The entries of one change. None: they are there in this boot already.
fn one(
    system: &System,
    topology: &Topology,
    journal: &mut Journal,
    entries: &[Entry],
    boot: &str,
) -> Result<Option<Outcome>> {
    let change = journal.next();
    let outcome = |became, why, writes: &[Entry]| Outcome {
        finding: entries[0].finding.clone(),
        became,
        why,
        writes: writes.iter().map(written).collect(),
        before: None,
        after: None,
        change,
    };
    let mut wanted = Vec::new();
    for entry in entries {
        let path = match place_now(system, topology, entry) {
            Ok(path) => path,
            Err(why) => return Ok(Some(outcome(Became::NotAppliedAgain, why, &[]))),
        };
        if journal.open_entries().any(|open| open.path == path && open.boot_id == boot) {
            continue;
        }
        if !setting::is_setting(&path) || setting::is_managed(topology, &path) {
            let key = if setting::is_setting(&path) { "act.refused.managed" } else { "act.refused.place" };
            let why = Sentence::new(key).with("path", path);
            return Ok(Some(outcome(Became::NotAppliedAgain, why, &[])));
        }
        let old = match setting::read(system, &path) {
            Ok(old) => old,
            Err(why) => {
                let why = Sentence::new("act.refused.unread").with("why", why);
                return Ok(Some(outcome(Became::NotAppliedAgain, why, &[])));
            }
        };
        wanted.push(Entry {
            number: change + wanted.len() as u64,
            change,
            restore: setting::restoring(system, &path, &old),
            path,
            old,
            boot_id: boot.to_owned(),
            time: now(),
            state: State::Intended,
            ..entry.clone()
        });
    }
    for entry in &wanted {
        if let Err(why) = put(system, journal, entry)? {
            let back = revert(system, journal, &Which::Change(change))?;
            return Ok(Some(match back.into_iter().find(|back| back.became == Became::NotReverted) {
                None => outcome(Became::NotAppliedAgain, why, &wanted),
                Some(back) => outcome(Became::NotReverted, back.why, &wanted),
            }));
        }
    }
    for entry in &wanted {
        journal.advance(entry.number, State::Kept)?;
        steps::step();
    }
    for entry in entries {
        journal.advance(entry.number, State::Gone)?;
        steps::step();
    }
    let why = Sentence::new("act.again.done").with("time", &entries[0].time);
    Ok((!wanted.is_empty()).then(|| outcome(Became::AppliedAgain, why, &wanted)))
}
