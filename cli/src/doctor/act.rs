//! `forebay doctor --apply ID... | --revert [ID] | --confirm`: done by [`forebay_doctor::act`], told here.

use super::Asked;
use crate::seconds;
use anyhow::{Context, Result, bail};
use forebay_api::paths;
use forebay_doctor::act::irqbalance::Running;
use forebay_doctor::act::journal::{Journal, State};
use forebay_doctor::act::{Became, CONFIRM_WITHIN, How, Outcome, SETTLES, Which, irqbalance, journal, setting};
use forebay_doctor::findings::{Finding, Sentence};
use forebay_doctor::{Host, act, checks};
use forebay_host::topology;
use forebay_io::folder::Folder;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Between two looks whether somebody has confirmed.
const CONFIRM_LOOK: Duration = Duration::from_millis(200);
/// What a guard may take beyond its time.
const GUARD_SLACK: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub struct ActArgs {
    /// Apply what helps with these findings, measure, and keep it or take it back; ID or the word before its slash
    #[arg(long, value_name = "ID", num_args = 1.., conflicts_with_all = ["revert", "confirm"])]
    apply: Vec<String>,
    /// Take back what was applied: for one finding, or all of it
    #[arg(long, value_name = "ID", num_args = 0..=1, conflicts_with = "confirm")]
    revert: Option<Option<String>>,
    /// Keep what waits for a confirmation
    #[arg(long)]
    confirm: bool,
    /// What can cut you off (MTU, links) goes back by itself unless `--confirm` comes in this time [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = seconds, requires = "apply")]
    confirm_within: Option<u64>,
    /// Have it applied again after a reboot, by `forebay doctor restore` (forebay-doctor.service), until --revert
    #[arg(long, requires = "apply")]
    persist: bool,
    /// How long a change has until it is measured [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = seconds, requires = "apply")]
    settle: Option<u64>,
    /// Folder of the journal [default: /var/lib/forebay-doctor]
    #[arg(long, value_name = "DIR")]
    journal: Option<PathBuf>,
    /// Take back this change when the time is over; started by --apply
    #[arg(long, hide = true, num_args = 2, value_names = ["CHANGE", "SECONDS"], conflicts_with_all = ["apply", "revert", "confirm"])]
    guard: Option<Vec<u64>>,
}

impl ActArgs {
    /// Does what is asked for, if anything is; whether all of it was reached.
    pub(super) fn run(&self, asked: &Asked, sysroot: Option<&Path>) -> Result<Option<bool>> {
        if let Some([change, seconds]) = self.guard.as_deref() {
            std::thread::sleep(Duration::from_secs(*seconds));
            let mut journal = Journal::open(self.make_folder(asked)?)?;
            let outcomes = act::revert(&asked.system, &mut journal, &Which::Unconfirmed(*change))?;
            return Ok(Some(outcomes.iter().all(|outcome| outcome.became.is_good(false))));
        }
        let wants = if !self.apply.is_empty() {
            "apply"
        } else if self.revert.is_some() {
            "take back"
        } else if self.confirm {
            "confirm"
        } else {
            return Ok(None);
        };
        asked.may_write(wants, sysroot)?;
        if !self.apply.is_empty() {
            return self.apply(asked, sysroot).map(Some);
        }
        // Where nothing was ever applied no journal is made.
        let Some(folder) = self.folder_with_journal(asked)? else {
            return match self.confirm {
                true => Ok(Some(asked.tell_confirmed(&[]))),
                false => asked.tell(&[], false, "act.nothing-open").map(|()| Some(true)),
            };
        };
        let mut journal = asked.open(folder)?;
        if self.confirm {
            return Ok(Some(asked.tell_confirmed(&act::confirm(&mut journal)?)));
        }
        let which = self.revert.clone().flatten().map_or(Which::All, Which::Finding);
        let outcomes = act::revert(&asked.system, &mut journal, &which)?;
        asked.tell(&outcomes, false, "act.nothing-open")?;
        asked.tell_irqbalance(&outcomes);
        Ok(Some(outcomes.iter().all(|outcome| outcome.became.is_good(false))))
    }

    /// Answers irqbalance, which asks by its policy script about one interrupt.
    pub(super) fn irq_policy(&self, asked: &Asked, interrupt: u32) -> Result<bool> {
        let Some(folder) = self.folder_with_journal(asked)? else { return Ok(true) };
        let placed = irqbalance::is_placed(&asked.system, &folder, interrupt)
            .with_context(|| format!("read the journal in {}", folder.path().display()))?;
        if placed {
            println!("ban=true");
        }
        Ok(true)
    }

    /// The folder of the journal, made where it is missing.
    fn make_folder(&self, asked: &Asked) -> Result<Folder> {
        let folder = match &self.journal {
            Some(folder) => Folder::make_private(folder, 0o755),
            None => asked.system.make_own_folder(),
        };
        folder.context("open the folder of the journal")
    }

    /// The folder of the journal, where something was ever applied.
    fn folder_with_journal(&self, asked: &Asked) -> Result<Option<Folder>> {
        let folder = match &self.journal {
            Some(folder) => match Folder::open_private(folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                folder => folder.map(Some),
            },
            None => {
                asked.tell_earlier();
                asked.system.own_folder()
            }
        };
        let folder = folder.context("open the folder of the journal; nothing was changed")?;
        Ok(folder.filter(|folder| folder.has(journal::NAME)))
    }

    /// Applies again what was applied to stay, and a reboot has ended.
    pub(super) fn restore(&self, asked: &Asked, sysroot: Option<&Path>) -> Result<bool> {
        asked.may_write("apply again", sysroot)?;
        let Some(folder) = self.folder_with_journal(asked)? else {
            return asked.tell(&[], true, "act.again.nothing").map(|()| true);
        };
        let outcomes = act::again(&asked.system, &topology::read(&asked.system), &mut asked.open(folder)?)?;
        asked.tell(&outcomes, true, "act.again.nothing")?;
        asked.tell_irqbalance(&outcomes);
        Ok(outcomes.iter().all(|outcome| outcome.became.is_good(false)))
    }

    fn apply(&self, asked: &Asked, sysroot: Option<&Path>) -> Result<bool> {
        let folder = self.make_folder(asked)?;
        let host = Host::look(asked.system.clone());
        let found: Vec<Finding> = host.examine().into_iter().flat_map(|(_, verdict)| verdict.into_found()).collect();
        let chosen = act::chosen(&found.iter().collect::<Vec<_>>(), &self.apply)?;
        let within = self.confirm_within.map_or(CONFIRM_WITHIN, Duration::from_secs);
        // A recorded tree has no life that would settle.
        let settles = if asked.system.is_live() { SETTLES } else { Duration::ZERO };
        let how = How {
            settles: self.settle.map_or(settles, Duration::from_secs),
            persists: self.persist,
            look_again: &|finding| {
                let check = checks::all().into_iter().find(|check| check.number == finding.check);
                let check = check.expect("the finding comes from it");
                (check.look)(&Host::look(asked.system.clone()))
            },
            guard: &|change| start_guard(change, within, self.journal.as_deref(), sysroot),
        };
        let mut journal = asked.open(folder)?;
        let mut outcomes = Vec::new();
        for finding in chosen {
            outcomes.push(act::apply(&host, &mut journal, finding, &how)?);
        }
        asked.tell(&outcomes, true, "act.nothing-open")?;
        asked.tell_irqbalance(&outcomes);
        drop(journal);
        if self.persist && outcomes.iter().any(|outcome| outcome.became == Became::Kept) {
            eprintln!("{}", asked.say(&Sentence::new("act.again.hint")));
        }
        let mut good = outcomes.iter().all(|outcome| outcome.became.is_good(true));
        for outcome in outcomes.iter().filter(|outcome| outcome.became == Became::AwaitsConfirmation) {
            good &= asked.await_confirmation(&self.make_folder(asked)?, outcome, within)?;
        }
        Ok(good)
    }
}

/// A process that the end of this one, or of its terminal, does not end: it takes the change back when the time is over.
fn start_guard(change: u64, within: Duration, journal: Option<&Path>, sysroot: Option<&Path>) -> Result<()> {
    let mut guard = Command::new("/proc/self/exe");
    guard.args(["doctor", "--guard", &change.to_string(), &within.as_secs().to_string()]);
    if let Some(folder) = journal {
        guard.arg("--journal").arg(std::path::absolute(folder)?);
    }
    if let Some(root) = sysroot {
        guard.arg("--sysroot").arg(std::path::absolute(root)?);
    }
    guard.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    guard
        .spawn()
        .context("start the process that takes the change back unless it is confirmed; nothing was changed")?;
    Ok(())
}

impl Asked {
    fn may_write(&self, wants: &str, sysroot: Option<&Path>) -> Result<()> {
        if self.system.is_live() && paths::user_id() != 0 {
            bail!("cannot {wants} settings of the kernel as user {}: run it as root (sudo)", paths::user_id());
        }
        if let Some(file) = sysroot.filter(|root| root.is_file()) {
            bail!(
                "cannot {wants} settings in {}: it is a record; only a host, or a folder with its tree, has any",
                file.display()
            );
        }
        Ok(())
    }

    /// Where interrupts were placed or given back, irqbalance is to know, and a person that it does not ask.
    fn tell_irqbalance(&self, outcomes: &[Outcome]) {
        let mut paths = outcomes.iter().flat_map(|outcome| &outcome.writes).map(|write| &write.path);
        if !paths.any(|path| setting::interrupt_of(path).is_some()) {
            return;
        }
        match irqbalance::ask_again(&self.system) {
            Running::No | Running::AsksAgain => {}
            Running::AsksNobody => eprintln!("{}", self.say(&Sentence::new("act.irqbalance"))),
        }
    }

    /// What an earlier version has kept below the daemon's state folder is not read, and this is said.
    fn tell_earlier(&self) {
        const EARLIER: &str = "/var/lib/forebay/doctor";
        if self.system.is_live() && std::fs::symlink_metadata(Path::new(EARLIER).join(journal::NAME)).is_ok() {
            eprintln!("{}", self.say(&Sentence::new("act.earlier").with("path", EARLIER)));
        }
    }

    fn open(&self, folder: Folder) -> Result<Journal> {
        let journal = Journal::open(folder)?;
        if journal.damaged() > 0 {
            eprintln!("{}", self.say(&Sentence::new("act.damaged").with("count", journal.damaged())));
        }
        Ok(journal)
    }

    fn tell(&self, outcomes: &[Outcome], asked_to_apply: bool, nothing: &'static str) -> Result<()> {
        if self.json {
            let said = |outcome: &Outcome| {
                let mut value = serde_json::to_value(outcome).expect("plain values");
                value["says"] = self.say(&outcome.why).into();
                value
            };
            let changes: Vec<serde_json::Value> = outcomes.iter().map(said).collect();
            println!("{}", serde_json::to_string_pretty(&serde_json::json!({ "changes": changes }))?);
            return Ok(());
        }
        if outcomes.is_empty() {
            println!("{}", self.say(&Sentence::new(nothing)));
        }
        for outcome in outcomes {
            let Outcome { finding, became, why, before, after, .. } = outcome;
            let became = serde_json::to_value(became)?;
            let became = format!("act.became.{}", became.as_str().expect("a word"));
            println!("{finding}: {}: {}", self.say(&Sentence { key: became, with: Vec::new() }), self.say(why));
            outcome.lines(asked_to_apply).iter().for_each(|line| println!("    {line}"));
            if let (Some(before), Some(after)) = (before, after) {
                println!("    {} -> {} {}", before.is, after.is, after.unit);
            }
        }
        Ok(())
    }

    fn tell_confirmed(&self, findings: &[String]) -> bool {
        if self.json {
            println!("{}", serde_json::json!({ "confirmed": findings }));
        } else if findings.is_empty() {
            println!("{}", self.say(&Sentence::new("act.nothing-awaits")));
        }
        for finding in findings.iter().filter(|_| !self.json) {
            println!("{}", self.say(&Sentence::new("act.confirmed").with("finding", finding)));
        }
        !findings.is_empty()
    }

    /// Waits until somebody has confirmed, or the guard has taken it back.
    fn await_confirmation(&self, folder: &Folder, outcome: &Outcome, within: Duration) -> Result<bool> {
        eprintln!("{}: {}", outcome.finding, self.say(&Sentence::new("act.confirm").with("seconds", within.as_secs())));
        let begun = std::time::Instant::now();
        while begun.elapsed() < within + GUARD_SLACK {
            let journal = Journal::open(folder.again()?)?;
            if journal.of_change(outcome.change).all(|entry| entry.state != State::Applied) {
                let kept = journal.of_change(outcome.change).all(|entry| entry.state == State::Kept);
                let key = if kept { "act.confirmed" } else { "act.not-confirmed" };
                eprintln!("{}", self.say(&Sentence::new(key).with("finding", &outcome.finding)));
                return Ok(kept);
            }
            drop(journal);
            std::thread::sleep(CONFIRM_LOOK);
        }
        bail!(
            "{}: nobody has confirmed it and it was not taken back in time; try: forebay doctor --revert {}",
            outcome.finding,
            outcome.finding
        )
    }
}
