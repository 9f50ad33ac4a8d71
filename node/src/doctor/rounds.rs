//! The daemon's doctor: looks at the host a while after the start, each hour, when a link came or went, and on request; tells
//! what is new and what is gone.
//!
//! It looks by a process of its own, `forebay doctor --json`: what a check does wrong on a host that nobody has seen before
//! (a panic ends the whole process, a file of a sick device that never answers) must not touch the volumes.

use super::checks::management::Reading;
use super::findings::Severity;
use super::report::{Report, Said};
use crate::calendar;
use crate::events::{self, Filter, Happened};
use crate::node::Node;
use crate::seeing::Seeing;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The first look: the start itself is busy, and what it counts is its own.
const FIRST_AFTER: Duration = Duration::from_secs(15);
const EVERY: Duration = Duration::from_secs(3600);
/// How often links are looked at, and how long after a change they have until the doctor looks.
const LINKS_EVERY: Duration = Duration::from_secs(5);
/// A look takes under a second; one that takes so long hangs at some device.
const LOOK_MAX: Duration = Duration::from_secs(60);
/// Bytes of what it says; a large host has a hundred thousand.
const SAID_BYTES_MAX: u64 = 16 << 20;
/// Less than the daemon's threads, more than idle ones.
const NICENESS: i32 = 10;
/// Whoever asks again so soon gets the same.
const FRESH: Duration = Duration::from_secs(2);

const FOUND: &str = "doctor-finding";
const GONE: &str = "doctor-finding-gone";

/// What one look has come to.
#[derive(Debug, Serialize)]
pub struct Round {
    /// When it ended, RFC 3339.
    pub at: String,
    /// How long it took.
    pub took_s: f64,
    /// What it says.
    #[serde(flatten)]
    pub report: Report,
    #[serde(skip)]
    ended: Instant,
}

/// The same in a line, for the node's report and the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// When it ended, RFC 3339.
    pub at: String,
    /// Findings: something is broken, or most of what the hardware can do is lost.
    pub errors: usize,
    /// Findings that cost throughput or latency.
    pub warnings: usize,
    /// Findings worth knowing.
    pub notes: usize,
    /// Checks that could not look.
    pub hidden: usize,
    /// Sensors of the board, for the metrics alone: the doctor's own report has them.
    #[serde(skip)]
    pub sensors: Vec<Reading>,
    /// Entries of the board's event log, likewise.
    #[serde(skip)]
    pub log_entries: Option<usize>,
}

/// See the module's text.
#[derive(Default)]
pub struct Rounds {
    last: Mutex<Option<Arc<Round>>>,
    /// Ids of warnings and errors that were told; none before the first look.
    told: Mutex<Option<BTreeSet<String>>>,
    turn: tokio::sync::Mutex<()>,
    /// A look's process has not ended: it hangs in the kernel, and another would hang beside it.
    hangs: Arc<AtomicBool>,
}

const HELD: &str = "nobody panics while holding it";

impl Rounds {
    /// The last look.
    pub fn last(&self) -> Option<Arc<Round>> {
        self.last.lock().expect(HELD).clone()
    }

    /// The last look, in a line.
    pub fn summary(&self) -> Option<Summary> {
        self.last().map(|round| round.summary())
    }

    /// Looks; one at a time, and whoever waited for another's turn gets what that has seen.
    pub async fn look(&self, seeing: &Seeing) -> Result<Arc<Round>, String> {
        let _turn = self.turn.lock().await;
        if let Some(last) = self.last().filter(|last| last.ended.elapsed() < FRESH) {
            return Ok(last);
        }
        let begun = Instant::now();
        let report = run_doctor(self.hangs.clone()).await?;
        let at = calendar::show_ms(calendar::now_ms());
        let round = Arc::new(Round { at, took_s: begun.elapsed().as_secs_f64(), report, ended: Instant::now() });
        *self.last.lock().expect(HELD) = Some(round.clone());
        if !seeing.is_ending() {
            self.tell(seeing, &round.report);
        }
        Ok(round)
    }

    fn tell(&self, seeing: &Seeing, report: &Report) {
        let mut told = self.told.lock().expect(HELD);
        let before = told.take().unwrap_or_else(|| told_earlier(seeing));
        let (news, now) = news(&before, report);
        for happened in news {
            seeing.happened(happened);
        }
        *told = Some(now);
    }
}

impl Round {
    fn summary(&self) -> Summary {
        let count = |severity| self.report.findings.iter().filter(|said| said.finding.severity == severity).count();
        Summary {
            at: self.at.clone(),
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            notes: count(Severity::Note),
            hidden: self.report.hidden.len(),
            sensors: self.report.sensors.clone(),
            log_entries: self.report.log_entries,
        }
    }
}

/// What earlier lives have told and not taken back: a start is no news.
fn told_earlier(seeing: &Seeing) -> BTreeSet<String> {
    let of = |kind: &str| {
        let filter = Filter { kind: Some(kind.to_owned()), ..Filter::default() };
        let events = seeing.events(&filter, usize::MAX);
        let ids = events
            .into_iter()
            .filter_map(|event| Some((event.what.details.get("finding")?.as_str()?.to_owned(), event.id)));
        ids.collect::<BTreeMap<String, u64>>()
    };
    let gone = of(GONE);
    of(FOUND).into_iter().filter(|(id, found)| gone.get(id).is_none_or(|gone| gone < found)).map(|(id, _)| id).collect()
}

/// Events of what is new and what is gone, and what is told then.
fn news(before: &BTreeSet<String>, report: &Report) -> (Vec<Happened>, BTreeSet<String>) {
    let counts = |said: &&Said| said.finding.severity >= Severity::Warning;
    let mut now: BTreeMap<&str, &Said> = BTreeMap::new();
    for said in report.findings.iter().filter(counts) {
        now.insert(&said.finding.id, said);
    }
    let mut news = Vec::new();
    for (id, said) in now.iter().filter(|(id, _)| !before.contains(**id)) {
        let severity = match said.finding.severity {
            Severity::Error => events::Severity::Error,
            Severity::Warning | Severity::Note => events::Severity::Warning,
        };
        news.push(Happened::new(FOUND, severity, said.says.clone()).with("finding", *id));
    }
    let mut told: BTreeSet<String> = now.keys().map(|&id| id.to_owned()).collect();
    for id in before.iter().filter(|id| !now.contains_key(id.as_str())) {
        // A check that cannot look now says nothing about what it has found before.
        if report.hidden.iter().any(|hidden| id.split('/').next() == Some(hidden.word.as_str())) {
            told.insert(id.clone());
            continue;
        }
        let text = format!("{id}: the doctor finds it no more");
        news.push(Happened::new(GONE, events::Severity::Info, text).with("finding", id.as_str()));
    }
    (news, told)
}

/// Has this very program look, as a process of its own.
async fn run_doctor(hangs: Arc<AtomicBool>) -> Result<Report, String> {
    if hangs.load(Ordering::Acquire) {
        return Err("the last look has not ended yet: it hangs at some device that does not answer".to_owned());
    }
    let mut command = Command::new("/proc/self/exe");
    command.args(["doctor", "--json", "--language", "en"]);
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = spawned.map_err(|e| format!("cannot start `forebay doctor`: {e}"))?;
    // SAFETY: a number that is a child's, and two that are plain; it touches no memory of ours. Without it the look is not
    // as modest, and nothing else.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, child.id(), NICENESS) };
    let output = child.stdout.take().expect("it was asked for");
    let reading = tokio::task::spawn_blocking(move || {
        let mut said = Vec::new();
        output.take(SAID_BYTES_MAX).read_to_end(&mut said).map(|_| said)
    });
    let said = tokio::time::timeout(LOOK_MAX, reading).await;
    if said.is_err() {
        let _ = child.kill();
    }
    // At once, but for a child that hangs in the kernel.
    hangs.store(true, Ordering::Release);
    let status = tokio::task::spawn_blocking(move || {
        let status = child.wait();
        hangs.store(false, Ordering::Release);
        status
    });
    let seconds = LOOK_MAX.as_secs();
    let said = match said {
        Ok(Ok(Ok(said))) => said,
        Ok(Ok(Err(e))) => return Err(format!("cannot read what `forebay doctor` says: {e}")),
        Ok(Err(e)) => return Err(format!("cannot read what `forebay doctor` says: {e}")),
        Err(_) => {
            return Err(format!("`forebay doctor` had said nothing after {seconds} s: some device does not answer"));
        }
    };
    match status.await {
        Ok(Ok(status)) if status.success() => {}
        Ok(Ok(status)) => return Err(format!("`forebay doctor` failed ({status}); run it by hand to see why")),
        Ok(Err(e)) => return Err(format!("cannot wait for `forebay doctor`: {e}")),
        Err(e) => return Err(format!("cannot wait for `forebay doctor`: {e}")),
    }
    serde_json::from_slice(&said).map_err(|e| format!("`forebay doctor` says what is not understood: {e}"))
}

/// Looks for as long as the daemon lives.
pub async fn run(node: Arc<Node>) {
    tokio::time::sleep(FIRST_AFTER).await;
    let mut failed = false;
    loop {
        let links = links().await;
        // Told once; the next look may succeed.
        match node.doctor().look(node.seeing()).await {
            Ok(_) => failed = false,
            Err(why) if !failed => {
                failed = true;
                node.seeing().happened(Happened::new("doctor-failed", events::Severity::Warning, why));
            }
            Err(_) => {}
        }
        let looked = Instant::now();
        while looked.elapsed() < EVERY {
            tokio::time::sleep(LINKS_EVERY).await;
            if self::links().await != links {
                tokio::time::sleep(LINKS_EVERY).await;
                break;
            }
        }
    }
}

/// How often the link of each interface of hardware came or went.
async fn links() -> BTreeMap<String, String> {
    let read = || {
        let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        let hardware = entries.map(|entry| entry.path()).filter(|path| path.join("device").exists());
        let changes = hardware.filter_map(|path| {
            let changes = std::fs::read_to_string(path.join("carrier_changes")).ok()?;
            Some((path.file_name()?.to_string_lossy().into_owned(), changes))
        });
        changes.collect()
    };
    tokio::task::spawn_blocking(read).await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::findings::{Confidence, Evidence, Finding, Sentence};
    use crate::doctor::report::Hidden;

    fn report(findings: &[(&str, Severity)], hidden: &[&str]) -> Report {
        let said = |&(id, severity): &(&str, Severity)| Said {
            says: format!("{id} costs"),
            finding: Finding {
                id: id.to_owned(),
                check: 1,
                severity,
                confidence: Confidence::Certain,
                text: Sentence::new("doctor.none"),
                evidence: vec![Evidence::new("/sys/x", 1)],
                number: None,
                remedies: Vec::new(),
            },
        };
        let hide = |&word: &&str| Hidden { check: 2, word: word.to_owned(), what: String::new(), how: String::new() };
        let hidden = hidden.iter().map(hide).collect();
        Report { findings: findings.iter().map(said).collect(), hidden, ..Report::default() }
    }

    fn kinds(news: &[Happened]) -> Vec<(&str, events::Severity, &str)> {
        news.iter().map(|n| (n.kind.as_str(), n.severity, n.details["finding"].as_str().unwrap())).collect()
    }

    #[test]
    fn what_is_new_and_what_is_gone_is_told_once_and_notes_are_not() {
        let all = [("a/1", Severity::Error), ("b/1", Severity::Warning), ("c/1", Severity::Note)];
        let (first, told) = news(&BTreeSet::new(), &report(&all, &[]));
        let wanted = [(FOUND, events::Severity::Error, "a/1"), (FOUND, events::Severity::Warning, "b/1")];
        assert_eq!(kinds(&first), wanted);
        let (again, told) = news(&told, &report(&all, &[]));
        assert!(again.is_empty());
        let (gone, told) = news(&told, &report(&all[1..], &[]));
        assert_eq!(kinds(&gone), [(GONE, events::Severity::Info, "a/1")]);
        assert_eq!(told, BTreeSet::from(["b/1".to_owned()]));
    }

    #[test]
    fn a_check_that_cannot_look_takes_nothing_back() {
        let before = BTreeSet::from(["a/1".to_owned(), "b/1".to_owned()]);
        let (news, told) = news(&before, &report(&[], &["a"]));
        assert_eq!(kinds(&news), [(GONE, events::Severity::Info, "b/1")]);
        assert_eq!(told, BTreeSet::from(["a/1".to_owned()]));
    }

    #[test]
    fn a_start_is_no_news() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("history")).unwrap();
        let seeing = Seeing::new(dir.path(), "alpha".to_owned()).unwrap();
        let rounds = Rounds::default();
        let two = report(&[("a/1", Severity::Error), ("b/1", Severity::Warning)], &[]);
        rounds.tell(&seeing, &two);
        rounds.tell(&seeing, &report(&[("a/1", Severity::Error)], &[]));
        assert_eq!(seeing.events(&Filter::default(), 9).len(), 3);
        Rounds::default().tell(&seeing, &two);
        let events = seeing.events(&Filter::default(), 9);
        assert_eq!(events.len(), 4, "a/1 was told by the life before");
        assert_eq!(events[3].what.details["finding"], "b/1");
    }

    #[tokio::test]
    async fn beside_a_look_that_hangs_no_other_is_begun() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("history")).unwrap();
        let seeing = Seeing::new(dir.path(), "alpha".to_owned()).unwrap();
        let rounds = Rounds::default();
        rounds.hangs.store(true, Ordering::Release);
        let why = rounds.look(&seeing).await.unwrap_err();
        assert!(why.contains("has not ended"), "{why}");
    }

    #[test]
    fn what_the_doctor_prints_is_read_back() {
        let said = serde_json::to_string(&report(&[("a/1", Severity::Error)], &["b"])).unwrap();
        let read: Report = serde_json::from_str(&said).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), said);
        let round = Round { at: "now".to_owned(), took_s: 0.5, report: read, ended: Instant::now() };
        let summary = round.summary();
        assert_eq!((summary.errors, summary.warnings, summary.notes, summary.hidden), (1, 0, 0, 1));
        let json = serde_json::to_value(&round).unwrap();
        assert_eq!((json["findings"][0]["id"].as_str(), json["at"].as_str()), (Some("a/1"), Some("now")));
    }
}
