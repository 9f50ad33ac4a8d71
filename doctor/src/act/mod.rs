//! Acts on findings: applies what [`Remedy::Apply`] says, measures, and keeps it or takes it back.
//!
//! Invariants:
//! - The journal has what a file held before that file is written, on the medium. So whatever ends this process, and when,
//!   the next [`revert()`] has every byte back; a reboot ends such settings by itself.
//! - A change that the kernel did not take as it was meant, or that the finding survives, is taken back at once.
//! - Interrupts that the kernel manages are never written.
//!
//! What can cut off the person who does it (anything of a network interface) goes back by itself, by a process of its own,
//! unless a person confirms it. What a person wants to outlive a reboot is applied again by [`again()`].

mod again;
mod allowed;
pub mod irqbalance;
pub mod journal;
pub mod setting;

use super::Host;
use super::findings::{Finding, Number, Remedy, Sentence, Verdict, Write};
pub use again::again;
use anyhow::{Result, bail};
use forebay_host::system::System;
use journal::{Entry, Journal, State, now};
use serde::Serialize;
use std::time::Duration;

/// How long a change has until it is measured.
pub const SETTLES: Duration = Duration::from_secs(2);
/// How long a change that can cut somebody off waits for a confirmation.
pub const CONFIRM_WITHIN: Duration = Duration::from_secs(60);
/// A number is better when a tenth of what was lacking is there: less is noise.
const BETTER: f64 = 0.9;

/// What became of a finding's remedy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Became {
    /// Applied, measured better, and there.
    Kept,
    /// Applied, measured better, and there until the time is over, unless it is confirmed.
    AwaitsConfirmation,
    /// Applied, not better, and taken back; or taken back because that was asked for.
    Reverted,
    /// It was refused, and nothing was written.
    Refused,
    /// The kernel did not take it, and it was taken back.
    Failed,
    /// It could not be taken back: it is still in the journal.
    NotReverted,
    /// A reboot, or the device's removal, had taken it already.
    Gone,
    /// There again after a reboot.
    AppliedAgain,
    /// Not there after a reboot, and still in the journal.
    NotAppliedAgain,
}

impl Outcome {
    /// The files as a line each: `path: before -> now`. Nothing of those that a reboot or the removal of a device has taken; a remedy that
    /// went back at once has the way there and back.
    pub fn lines(&self, asked_to_apply: bool) -> Vec<String> {
        let line = |Written { path, old, new }: &Written| {
            let chosen = |text| setting::choice(path, text).unwrap_or(text);
            let (old, new) = (chosen(old), chosen(new));
            match self.became {
                Became::Gone => None,
                Became::Reverted | Became::Failed if asked_to_apply => Some(format!("{path}: {old} -> {new} -> {old}")),
                Became::Reverted if old == new => None,
                _ => Some(format!("{path}: {old} -> {new}")),
            }
        };
        self.writes.iter().filter_map(line).collect()
    }
}

impl Became {
    /// Whether it is what was asked for.
    pub fn is_good(self, asked_to_apply: bool) -> bool {
        match self {
            Became::Kept | Became::AwaitsConfirmation | Became::AppliedAgain => true,
            Became::Reverted | Became::Gone => !asked_to_apply,
            Became::Refused | Became::Failed | Became::NotReverted | Became::NotAppliedAgain => false,
        }
    }
}

/// One file that was written: by a remedy, or by taking it back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Written {
    /// Path of the file in procfs or sysfs.
    pub path: String,
    /// What the file held before that.
    pub old: String,
    /// What the file holds since.
    pub new: String,
}

/// What was done about one finding.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// The id of that finding.
    pub finding: String,
    /// How it ended for the finding's remedy.
    pub became: Became,
    /// Why, or how it is now.
    pub why: Sentence,
    /// Files that were written, in this order.
    pub writes: Vec<Written>,
    /// The finding's number before anything was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Number>,
    /// The finding's number after it was measured again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Number>,
    /// Names the change to [`Which::Change`].
    #[serde(skip)]
    pub change: u64,
}

/// How changes are made.
pub struct How<'a> {
    /// How long a change has until it is measured.
    pub settles: Duration,
    /// It is to be applied again after a reboot.
    pub persists: bool,
    /// What the finding's check says now.
    pub look_again: &'a dyn Fn(&Finding) -> Verdict,
    /// Starts what takes the change of this number back by itself, unless somebody confirms it.
    pub guard: &'a dyn Fn(u64) -> Result<()>,
}

/// The findings that are meant: each by its id, or all of a check by its word.
pub fn chosen<'a>(findings: &[&'a Finding], ids: &[String]) -> Result<Vec<&'a Finding>> {
    let mut all: Vec<&Finding> = Vec::new();
    for id in ids {
        let word = format!("{id}/");
        let meant = findings.iter().filter(|finding| finding.id == *id || finding.id.starts_with(&word));
        let new: Vec<&Finding> = meant.copied().collect();
        if new.is_empty() {
            let known: Vec<&str> = findings.iter().map(|finding| finding.id.as_str()).collect();
            bail!(
                "there is no finding {id:?} now; there are: {}",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            );
        }
        all.extend(new.into_iter().filter(|new| !all.iter().any(|finding| finding.id == new.id)).collect::<Vec<_>>());
    }
    Ok(all)
}

/// Applies the first remedy of a finding that can be, measures, and keeps it or takes it back.
pub fn apply(host: &Host, journal: &mut Journal, finding: &Finding, how: &How<'_>) -> Result<Outcome> {
    let change = journal.next();
    let outcome = |became, why, writes: &[&Entry]| Outcome {
        finding: finding.id.clone(),
        became,
        why,
        writes: writes.iter().map(|entry| written(entry)).collect(),
        before: finding.number.clone(),
        after: None,
        change,
    };
    let entries = match prepare(host, journal, finding, how.persists) {
        Ok(entries) => entries,
        Err(why) => return Ok(outcome(Became::Refused, why, &[])),
    };
    let all: Vec<&Entry> = entries.iter().collect();
    let unless_confirmed = entries[0].unless_confirmed;
    steps::step();
    if unless_confirmed {
        (how.guard)(change)?;
    }
    for entry in &entries {
        if let Err(why) = put(&host.system, journal, entry)? {
            let back = revert(&host.system, journal, &Which::Change(change))?;
            return Ok(match back.iter().find(|back| !back.became.is_good(false)) {
                None => outcome(Became::Failed, why, &all),
                Some(back) => outcome(Became::NotReverted, back.why.clone(), &all),
            });
        }
    }
    steps::step();
    std::thread::sleep(how.settles);
    let (is_better, why, after) = measured(finding, &(how.look_again)(finding));
    let mut done = if !is_better {
        let back = revert(&host.system, journal, &Which::Change(change))?;
        match back.iter().find(|back| !back.became.is_good(false)) {
            None => outcome(Became::Reverted, why, &all),
            Some(back) => outcome(Became::NotReverted, back.why.clone(), &all),
        }
    } else if unless_confirmed {
        outcome(Became::AwaitsConfirmation, why, &all)
    } else {
        for entry in &entries {
            journal.advance(entry.number, State::Kept)?;
            steps::step();
        }
        outcome(Became::Kept, why, &all)
    };
    done.after = after;
    Ok(done)
}

fn written(entry: &Entry) -> Written {
    Written { path: entry.path.clone(), old: entry.old.trim_end().to_owned(), new: entry.new.clone() }
}

/// What will be written, when nothing speaks against it. Nothing is changed here.
fn prepare(host: &Host, journal: &Journal, finding: &Finding, persists: bool) -> Result<Vec<Entry>, Sentence> {
    let apply = finding.remedies.iter().find_map(|remedy| match remedy {
        Remedy::Apply { writes, .. } => Some(writes),
        Remedy::Explain { .. } => None,
    });
    let writes = apply.filter(|writes| !writes.is_empty()).ok_or_else(|| Sentence::new("act.refused.by-hand"))?;
    let system = &host.system;
    let boot_id = boot_id(system);
    let unless_confirmed = writes.iter().any(|write| setting::can_cut_off(system, &write.path));
    if persists && unless_confirmed {
        return Err(Sentence::new("act.refused.persist-network"));
    }
    let change = journal.next();
    let mut entries = Vec::new();
    for (Write { path, value }, number) in writes.iter().zip(change..) {
        if !setting::is_setting(path) {
            return Err(Sentence::new("act.refused.place").with("path", path));
        }
        if setting::is_managed(&host.topology, path) {
            return Err(Sentence::new("act.refused.managed").with("path", path));
        }
        if let Some(open) = journal.open_entries().find(|open| open.path == *path && open.boot_id == boot_id) {
            return Err(Sentence::new("act.refused.open").with("path", path).with("finding", &open.finding));
        }
        let old = setting::read(system, path).map_err(|why| Sentence::new("act.refused.unread").with("why", why))?;
        let restore = setting::restoring(system, path, &old);
        let writes = restore.iter().map(|write| (&write.path, &write.value)).chain([(path, value)]);
        let strange = writes.into_iter().find(|(path, value)| !setting::may_hold(path, value));
        if let Some((path, value)) = strange {
            return Err(Sentence::new("act.refused.value").with("path", path).with("value", value.trim_end()));
        }
        let identity = match persists {
            true => again::identity(system, &host.topology, path)
                .ok_or_else(|| Sentence::new("act.refused.persist-unknown").with("path", path))?,
            false => String::new(),
        };
        entries.push(Entry {
            number,
            change,
            finding: finding.id.clone(),
            path: path.clone(),
            restore,
            old,
            new: value.clone(),
            boot_id: boot_id.clone(),
            time: now(),
            unless_confirmed,
            persists,
            identity,
            state: State::Intended,
        });
    }
    Ok(entries)
}

fn boot_id(system: &System) -> String {
    system.text("/proc/sys/kernel/random/boot_id").known().unwrap_or_default()
}

/// Writes one file; the journal first. Why not, where the kernel did not take it.
fn put(system: &System, journal: &mut Journal, entry: &Entry) -> Result<Result<(), Sentence>> {
    journal.record(entry.clone())?;
    steps::step();
    if let Err(why) = setting::write(system, &entry.path, &entry.new) {
        return Ok(Err(Sentence::new("act.failed.write").with("value", &entry.new).with("why", why)));
    }
    steps::step();
    let reads = match setting::read_back(system, &entry.path, &entry.new) {
        Ok(reads) => reads,
        Err(why) => return Ok(Err(Sentence::new("act.failed.write").with("value", &entry.new).with("why", why))),
    };
    if !setting::is_same(&entry.path, &reads, &entry.new) {
        let why = Sentence::new("act.failed.read-back").with("path", &entry.path).with("value", &entry.new);
        return Ok(Err(why.with("reads", reads.trim_end())));
    }
    journal.advance(entry.number, State::Applied)?;
    steps::step();
    Ok(Ok(()))
}

/// Whether the finding's check says better things now, in words, and the number that it names.
fn measured(finding: &Finding, now: &Verdict) -> (bool, Sentence, Option<Number>) {
    let (all, hidden) = match now {
        Verdict::Found(all) => (&all[..], None),
        Verdict::FoundPart { found, what, .. } => (&found[..], Some(what)),
        Verdict::Fine(_) | Verdict::NotHere => (&[][..], None),
        Verdict::NotSeen { what, .. } => (&[][..], Some(what)),
    };
    let found = all.iter().find(|now| now.id == finding.id);
    // What is not among the findings may be in the part that could not be seen.
    if let (None, Some(what)) = (found, hidden) {
        return (false, Sentence::new("act.unseen").with("what", what), None);
    }
    let Some(found) = found else { return (true, Sentence::new("act.gone"), None) };
    let numbers = finding.number.as_ref().zip(found.number.as_ref()).filter(|(was, is)| was.unit == is.unit);
    let lacking = |number: &Number| (number.could_be - number.is).abs();
    let better = numbers.is_some_and(|(was, is)| lacking(is) < BETTER * lacking(was));
    if better || found.severity < finding.severity {
        return (true, Sentence::new("act.better"), found.number.clone());
    }
    (false, Sentence::new("act.not-better"), found.number.clone())
}

/// What is to be taken back.
pub enum Which {
    /// Every change that is in the journal.
    All,
    /// What was done for one finding.
    Finding(String),
    /// One change, by its number in the journal.
    Change(u64),
    /// One change, unless it was confirmed: what its guard does when the time is over.
    Unconfirmed(u64),
}

impl Which {
    fn takes(&self, entry: &Entry) -> bool {
        match self {
            Which::All => true,
            Which::Finding(finding) => entry.finding == *finding,
            Which::Change(change) => entry.change == *change,
            Which::Unconfirmed(change) => entry.change == *change && entry.state != State::Kept,
        }
    }
}

/// Takes changes back, the last one first.
pub fn revert(system: &System, journal: &mut Journal, which: &Which) -> Result<Vec<Outcome>> {
    let boot_id = boot_id(system);
    let open: Vec<Entry> = journal.open_entries().rev().filter(|entry| which.takes(entry)).cloned().collect();
    let mut outcomes = Vec::new();
    for entry in open {
        let mut writes = vec![written(&entry)];
        let (state, became, why) = if entry.boot_id != boot_id && entry.persists {
            (Some(State::Gone), Became::Gone, Sentence::new("act.again.no-more").with("path", &entry.path))
        } else if entry.boot_id != boot_id {
            (Some(State::Gone), Became::Gone, Sentence::new("act.gone-with-boot").with("path", &entry.path))
        } else if !system.has(&entry.path) {
            (Some(State::Gone), Became::Gone, Sentence::new("act.gone-with-device").with("path", &entry.path))
        } else {
            steps::step();
            match restore(system, &entry) {
                Ok((is, why)) => {
                    let (old, new) = (is.trim_end().to_owned(), entry.old.trim_end().to_owned());
                    writes = vec![Written { path: entry.path.clone(), old, new }];
                    (Some(State::Reverted), Became::Reverted, why)
                }
                Err(why) => (None, Became::NotReverted, Sentence::new("act.not-restored").with("why", why)),
            }
        };
        steps::step();
        if let Some(state) = state {
            journal.advance(entry.number, state)?;
        }
        let finding = entry.finding;
        outcomes.push(Outcome { finding, became, why, writes, before: None, after: None, change: entry.change });
    }
    Ok(outcomes)
}

/// Has what a file held before there again. What it held until now, and what is to be said of it.
fn restore(system: &System, entry: &Entry) -> Result<(String, Sentence), String> {
    let is = setting::read(system, &entry.path)?;
    let old = entry.old.trim_end();
    if is == entry.old {
        let why = Sentence::new("act.was-back").with("path", &entry.path).with("old", old);
        return Ok((is, why));
    }
    for Write { path, value } in &entry.restore {
        // Whoever could write to the journal must not write everywhere by it.
        if !setting::is_setting(path) {
            return Err(format!("{path}: no setting of the kernel; the journal is not what the doctor has written"));
        }
        setting::write(system, path, value)?;
        let reads = setting::read_back(system, path, value)?;
        if !setting::is_same(path, &reads, value) {
            return Err(format!("{path}: {:?} was written and it reads {:?}", value.trim_end(), reads.trim_end()));
        }
    }
    // Somebody else has changed it meanwhile; the old state is what was asked for all the same.
    if !is.trim().is_empty() && !setting::is_same(&entry.path, &is, &entry.new) {
        let why = Sentence::new("act.restored-over").with("path", &entry.path).with("old", old);
        let why = why.with("was", is.trim_end());
        return Ok((is, why));
    }
    Ok((is, Sentence::new("act.restored").with("path", &entry.path).with("old", old)))
}

/// A person says that what awaits confirmation stays. The findings that it was for.
pub fn confirm(journal: &mut Journal) -> Result<Vec<String>> {
    let waiting: Vec<(u64, String)> = journal
        .open_entries()
        .filter(|entry| entry.unless_confirmed && entry.state == State::Applied)
        .map(|entry| (entry.number, entry.finding.clone()))
        .collect();
    let mut findings = Vec::new();
    for (number, finding) in waiting {
        journal.advance(number, State::Kept)?;
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    Ok(findings)
}

/// Where a test ends the process as a power cut would.
#[cfg(test)]
mod steps {
    use std::sync::atomic::{AtomicI64, Ordering};

    /// Steps until the end; none below zero.
    pub(super) static LEFT: AtomicI64 = AtomicI64::new(-1);

    pub(super) fn step() {
        if LEFT.fetch_sub(1, Ordering::SeqCst) == 0 {
            // SAFETY: a signal to this very process, which ends it.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    }
}

#[cfg(not(test))]
mod steps {
    pub(super) const fn step() {}
}

#[cfg(test)]
mod tests;
