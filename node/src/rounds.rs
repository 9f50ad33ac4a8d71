//! The daemon's doctor: looks at the host a while after the start, each hour, when a link came or went, and on request; tells
//! what is new and what is gone.
//!
//! It looks by a process of its own, `forebay doctor --json`: what a check does wrong on a host that nobody has seen before
//! (a panic ends the whole process, a file of a sick device that never answers) must not touch the volumes.

use super::board;
use crate::events::Filter;
use crate::seconds::Seconds;
use crate::telemetry::Telemetry;
use forebay_api::calendar;
use forebay_api::events::{EventKind, Happened};
use forebay_api::sentence::Sentence;
use forebay_api::status::{DoctorSummary, Reading};
use forebay_api::told::Told;
use forebay_doctor::findings::Severity;
use forebay_doctor::report::{FineSaid, Hidden, Report, Said};
use forebay_doctor::words::Language;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The first look: the start itself is busy, and what it counts is its own.
const FIRST_AFTER: Duration = Duration::from_secs(15);
const EVERY: Duration = Duration::from_secs(3600);
/// How often links are looked at, and how long they have until the doctor looks after a change.
const LINKS_SECONDS: u32 = 10;
/// A look takes under a second; one that takes so long hangs at some device.
const LOOK_MAX: Duration = Duration::from_secs(60);
/// Bytes of what it says; a large host has a hundred thousand.
const SAID_BYTES_MAX: u64 = 16 << 20;
/// Less than the daemon's threads, more than idle ones.
const NICENESS: i32 = 10;
/// Whoever asks again so soon gets the same.
const FRESH: Duration = Duration::from_secs(2);

/// What one look has come to.
#[derive(Debug)]
pub struct Round {
    /// When it ended, RFC 3339.
    at: String,
    /// How long it took.
    took_s: f64,
    /// What it says.
    report: Report,
    /// Since when each of its findings is there, by id: RFC 3339, no earlier than is known.
    since: BTreeMap<String, String>,
    ended: Instant,
}

/// A round in a language, as the API tells it.
#[derive(Debug, Serialize)]
pub struct Announced<'a> {
    at: &'a str,
    took_s: f64,
    /// Why the last look failed, if it did: then the round is that of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    findings: Vec<Lasting<'a>>,
    fine: Vec<FineSaid>,
    hidden: Vec<Hidden>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sensors: Vec<Reading>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_entries: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    log_newest: Vec<String>,
}

/// A finding, and since when it is there.
#[derive(Debug, Serialize)]
struct Lasting<'a> {
    #[serde(flatten)]
    said: Said,
    since: &'a str,
}

/// See the module's text.
#[derive(Default)]
pub struct Rounds {
    last: Mutex<Option<Arc<Round>>>,
    /// Why the last look failed, if it did.
    problem: Mutex<Option<String>>,
    /// Ids of warnings and errors that were told, and when; none before the first look.
    told: Mutex<Option<BTreeMap<String, String>>>,
    /// The entry of the board's event log that was told last.
    board_told: Mutex<Option<String>>,
    turn: tokio::sync::Mutex<()>,
    /// A look's process has not ended: it hangs in the kernel, and another would hang beside it.
    hangs: Arc<AtomicBool>,
}

const HELD: &str = "nobody panics while holding it";

impl Rounds {
    /// The last look that saw something; none before the first.
    pub fn last(&self) -> Option<Arc<Round>> {
        self.last.lock().expect(HELD).clone()
    }

    /// Why the last look failed, if it did.
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().expect(HELD).clone()
    }

    /// The last look, in a line; none before the first.
    pub fn summary(&self) -> Option<DoctorSummary> {
        let problem = self.problem();
        match self.last() {
            Some(round) => Some(DoctorSummary { problem, ..round.summary() }),
            None => problem.map(|why| DoctorSummary { problem: Some(why), ..DoctorSummary::default() }),
        }
    }

    /// Looks; one at a time, and whoever waited for another's turn gets what that has seen.
    pub async fn look(&self, telemetry: &Telemetry) -> Result<Arc<Round>, String> {
        let _turn = self.turn.lock().await;
        if let Some(last) = self.last().filter(|last| last.ended.elapsed() < FRESH) {
            return Ok(last);
        }
        let begun = Instant::now();
        let looked = said_by(&["--json", "--language", "en"], self.hangs.clone()).await;
        *self.problem.lock().expect(HELD) = looked.as_ref().err().cloned();
        Ok(self.keep(telemetry, looked?, begun))
    }

    fn keep(&self, telemetry: &Telemetry, report: Report, begun: Instant) -> Arc<Round> {
        let at = calendar::show_ms(calendar::now_ms());
        let told = self.announce(telemetry, &report, &at);
        let last = self.last();
        let since = |id: &str| {
            let before = last.as_ref().and_then(|last| last.since.get(id));
            before.or_else(|| told.get(id)).unwrap_or(&at).clone()
        };
        let since = report.findings.iter().map(|said| (said.finding.id.clone(), since(&said.finding.id))).collect();
        let round = Round { at, took_s: begun.elapsed().as_secs_f64(), report, since, ended: Instant::now() };
        let round = Arc::new(round);
        *self.last.lock().expect(HELD) = Some(round.clone());
        round
    }

    /// Tells what is new and what is gone; all that was told, and when.
    fn announce(&self, telemetry: &Telemetry, report: &Report, at: &str) -> BTreeMap<String, String> {
        let mut told = self.told.lock().expect(HELD);
        let before = told.clone().unwrap_or_else(|| told_earlier(telemetry));
        // Who is ending tells no more.
        if telemetry.is_ending() {
            return before;
        }
        let (news, now) = news(&before, report, at);
        let mut board = self.board_told.lock().expect(HELD);
        let last = board.take().or_else(|| board::told_last(telemetry));
        let entries = board::news(last.as_deref(), &report.log_newest, report.log_entries.unwrap_or(0));
        *board = report.log_newest.last().cloned().or(last);
        for happened in news.into_iter().chain(entries) {
            telemetry.happened(happened);
        }
        *told = Some(now.clone());
        now
    }
}

impl Round {
    /// In a language, with why the last look failed, if one has since.
    pub fn told(&self, language: Language, problem: Option<String>) -> Announced<'_> {
        let Report { findings, fine, hidden, sensors, log_entries, log_newest, .. } =
            self.report.clone().spoken(language);
        let lasting = |said: Said| {
            let since = self.since.get(&said.finding.id).unwrap_or(&self.at);
            Lasting { since, said }
        };
        let findings = findings.into_iter().map(lasting).collect();
        let (at, took_s) = (&self.at, self.took_s);
        Announced { at, took_s, problem, findings, fine, hidden, sensors, log_entries, log_newest }
    }

    fn summary(&self) -> DoctorSummary {
        let count = |severity| self.report.findings.iter().filter(|said| said.finding.severity == severity).count();
        DoctorSummary {
            at: Some(self.at.clone()),
            problem: None,
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            notes: count(Severity::Note),
            hidden: self.report.not_looked(),
            sensors: self.report.sensors.clone(),
            log_entries: self.report.log_entries,
        }
    }
}

/// What earlier lives have told and not taken back, and when: a start is no news.
fn told_earlier(telemetry: &Telemetry) -> BTreeMap<String, String> {
    let of = |kind: EventKind| {
        let filter = Filter { kind: Some(kind.word()), ..Filter::default() };
        let events = telemetry.events(&filter, usize::MAX);
        let ids = events
            .into_iter()
            .filter_map(|event| Some((event.what.details.get("finding")?.as_str()?.to_owned(), (event.id, event.at))));
        ids.collect::<BTreeMap<_, _>>()
    };
    let gone = of(EventKind::DoctorFindingGone);
    let found = of(EventKind::DoctorFinding).into_iter();
    let there = found.filter(|(id, (found, _))| gone.get(id).is_none_or(|(gone, _)| gone < found));
    there.map(|(id, (_, at))| (id, at)).collect()
}

/// Events of what is new and what is gone, and what is told then: `at` is when the new was.
fn news(before: &BTreeMap<String, String>, report: &Report, at: &str) -> (Vec<Happened>, BTreeMap<String, String>) {
    let counts = |said: &&Said| said.finding.severity >= Severity::Warning;
    let mut now: BTreeMap<&str, &Said> = BTreeMap::new();
    for said in report.findings.iter().filter(counts) {
        now.insert(&said.finding.id, said);
    }
    let mut news = Vec::new();
    for (id, said) in now.iter().filter(|(id, _)| !before.contains_key(**id)) {
        let severity = match said.finding.severity {
            Severity::Error => forebay_api::events::Severity::Error,
            Severity::Warning | Severity::Note => forebay_api::events::Severity::Warning,
        };
        let told = Told { text: said.says.clone(), sentence: Some(said.finding.text.clone()) };
        news.push(Happened::new(EventKind::DoctorFinding, severity, told).with("finding", *id));
    }
    let since = |id: &str| before.get(id).map_or(at, String::as_str).to_owned();
    let mut told: BTreeMap<String, String> = now.keys().map(|&id| (id.to_owned(), since(id))).collect();
    for (id, since) in before.iter().filter(|(id, _)| !now.contains_key(id.as_str())) {
        // A check that cannot look now says nothing about what it has found before.
        if report.hidden.iter().any(|hidden| id.split('/').next() == Some(hidden.word.as_str())) {
            told.insert(id.clone(), since.clone());
            continue;
        }
        let gone = Sentence::new("event.finding-gone").with("finding", id);
        news.push(
            Happened::new(EventKind::DoctorFindingGone, forebay_api::events::Severity::Info, gone)
                .with("finding", id.as_str()),
        );
    }
    (news, told)
}

/// Has this very program look, as a process of its own: what `forebay doctor` says with these words. `hangs` is set while such a
/// process has not ended.
pub async fn said_by<T: DeserializeOwned>(words: &[&str], hangs: Arc<AtomicBool>) -> Result<T, String> {
    if hangs.load(Ordering::Acquire) {
        return Err("the last look has not ended yet: it hangs at some device that does not answer".to_owned());
    }
    let mut command = Command::new("/proc/self/exe");
    command.arg("doctor").args(words);
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
pub async fn run(rounds: Arc<Rounds>, telemetry: Arc<Telemetry>, mut seconds: Seconds) {
    tokio::time::sleep(FIRST_AFTER).await;
    let mut failed = false;
    loop {
        let links = Arc::new(LinkWatch::begin().await);
        // Told once; the next look may succeed.
        match rounds.look(&telemetry).await {
            Ok(_) => failed = false,
            Err(why) if !failed => {
                failed = true;
                telemetry.happened(Happened::new(EventKind::DoctorFailed, forebay_api::events::Severity::Warning, why));
            }
            Err(_) => {}
        }
        let looked = Instant::now();
        while looked.elapsed() < EVERY && !links.have_changed.load(Ordering::Acquire) {
            LinkWatch::look(&links);
            seconds.pass(LINKS_SECONDS).await;
        }
    }
}

/// Whether the link of an interface has come or gone since it began.
#[derive(Default)]
struct LinkWatch {
    before: BTreeMap<String, String>,
    have_changed: AtomicBool,
    is_looking: AtomicBool,
}

impl LinkWatch {
    async fn begin() -> LinkWatch {
        let before = tokio::task::spawn_blocking(links).await.unwrap_or_default();
        LinkWatch { before, ..LinkWatch::default() }
    }

    /// On another thread, and nobody is woken when it ends: what it has seen is for the next time that somebody asks.
    fn look(watch: &Arc<LinkWatch>) {
        if watch.is_looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let watch = watch.clone();
        tokio::task::spawn_blocking(move || {
            watch.have_changed.store(links() != watch.before, Ordering::Release);
            watch.is_looking.store(false, Ordering::Release);
        });
    }
}

/// How often the link of each interface of hardware came or went.
fn links() -> BTreeMap<String, String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let hardware = entries.map(|entry| entry.path()).filter(|path| path.join("device").exists());
    let changes = hardware.filter_map(|path| {
        let changes = std::fs::read_to_string(path.join("carrier_changes")).ok()?;
        Some((path.file_name()?.to_string_lossy().into_owned(), changes))
    });
    changes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_doctor::findings::{Confidence, Evidence, Finding, Sentence};

    fn report(findings: &[(&str, Severity)], hidden: &[&str]) -> Report {
        let said = |&(id, severity): &(&str, Severity)| Said {
            says: format!("{id} costs"),
            help: Vec::new(),
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
        let text = Sentence::new("doctor.as-root");
        let hide = |&word: &&str| Hidden {
            check: 2,
            word: word.to_owned(),
            what: String::new(),
            text: text.clone(),
            how: String::new(),
        };
        let hidden = hidden.iter().map(hide).collect();
        Report { findings: findings.iter().map(said).collect(), hidden, ..Report::default() }
    }

    const FOUND: &str = "doctor-finding";
    const GONE: &str = "doctor-finding-gone";

    fn at(ids: &[&str], time: &str) -> BTreeMap<String, String> {
        ids.iter().map(|&id| (id.to_owned(), time.to_owned())).collect()
    }

    fn kinds(news: &[Happened]) -> Vec<(&str, forebay_api::events::Severity, &str)> {
        news.iter().map(|n| (n.kind.as_str(), n.severity, n.details["finding"].as_str().unwrap())).collect()
    }

    #[test]
    fn what_is_new_and_what_is_gone_is_told_once_and_notes_are_not() {
        let all = [("a/1", Severity::Error), ("b/1", Severity::Warning), ("c/1", Severity::Note)];
        let (first, told) = news(&BTreeMap::new(), &report(&all, &[]), "1 o'clock");
        let wanted = [
            (FOUND, forebay_api::events::Severity::Error, "a/1"),
            (FOUND, forebay_api::events::Severity::Warning, "b/1"),
        ];
        assert_eq!(kinds(&first), wanted);
        let (again, told) = news(&told, &report(&all, &[]), "2 o'clock");
        assert!(again.is_empty());
        let (gone, told) = news(&told, &report(&all[1..], &[]), "3 o'clock");
        assert_eq!(kinds(&gone), [(GONE, forebay_api::events::Severity::Info, "a/1")]);
        assert_eq!(told, at(&["b/1"], "1 o'clock"));
    }

    #[test]
    fn a_check_that_cannot_look_takes_nothing_back() {
        let (news, told) = news(&at(&["a/1", "b/1"], "1 o'clock"), &report(&[], &["a"]), "2 o'clock");
        assert_eq!(kinds(&news), [(GONE, forebay_api::events::Severity::Info, "b/1")]);
        assert_eq!(told, at(&["a/1"], "1 o'clock"));
    }

    #[test]
    fn an_entry_of_the_boards_log_is_told_once_also_over_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("history")).unwrap();
        let telemetry = Telemetry::new(dir.path(), "alpha".to_owned()).unwrap();
        let logged = |entries: &[&str]| Report {
            log_entries: Some(entries.len()),
            log_newest: entries.iter().map(|&entry| entry.to_owned()).collect(),
            ..Report::default()
        };
        let told = || {
            let events = telemetry.events(&Filter::default(), 9).into_iter();
            events.map(|event| event.what.details["entry"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let rounds = Rounds::default();
        rounds.keep(&telemetry, logged(&[]), Instant::now());
        rounds.keep(&telemetry, logged(&["1 | a"]), Instant::now());
        rounds.keep(&telemetry, logged(&["1 | a", "2 | b", "3 | c"]), Instant::now());
        // A controller that does not answer for a while has told nothing anew.
        rounds.keep(&telemetry, report(&[], &["management"]), Instant::now());
        rounds.keep(&telemetry, logged(&["1 | a", "2 | b", "3 | c"]), Instant::now());
        assert_eq!(told(), ["1 | a", "2 | b", "3 | c"]);
        Rounds::default().keep(&telemetry, logged(&["1 | a", "2 | b", "3 | c", "4 | d"]), Instant::now());
        assert_eq!(told(), ["1 | a", "2 | b", "3 | c", "4 | d"]);
    }

    #[test]
    fn a_start_is_no_news() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("history")).unwrap();
        let telemetry = Telemetry::new(dir.path(), "alpha".to_owned()).unwrap();
        let rounds = Rounds::default();
        let two = report(&[("a/1", Severity::Error), ("b/1", Severity::Warning)], &[]);
        rounds.keep(&telemetry, two.clone(), Instant::now());
        rounds.keep(&telemetry, report(&[("a/1", Severity::Error)], &[]), Instant::now());
        assert_eq!(telemetry.events(&Filter::default(), 9).len(), 3);
        let round = Rounds::default().keep(&telemetry, two, Instant::now());
        let events = telemetry.events(&Filter::default(), 9);
        assert_eq!(events.len(), 4, "a/1 was told by the life before");
        assert_eq!(events[3].what.details["finding"], "b/1");
        let since = |id: &str| round.since[id].as_str();
        assert_eq!(since("a/1"), events[0].at, "it is there since that life found it");
        assert_eq!(since("b/1"), round.at, "it was away meanwhile");
    }

    #[test]
    fn since_when_a_finding_is_there_is_told_also_of_notes() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("history")).unwrap();
        let telemetry = Telemetry::new(dir.path(), "alpha".to_owned()).unwrap();
        let rounds = Rounds::default();
        let first = rounds.keep(&telemetry, report(&[("a/1", Severity::Note)], &[]), Instant::now());
        // Times of looks are told in milliseconds.
        std::thread::sleep(Duration::from_millis(2));
        let all = report(&[("a/1", Severity::Note), ("b/1", Severity::Warning)], &[]);
        let second = rounds.keep(&telemetry, all, Instant::now());
        assert_ne!(first.at, second.at);
        assert_eq!((&second.since["a/1"], &second.since["b/1"]), (&first.at, &second.at));
        let told = serde_json::to_value(second.told(Language::Ja, None)).unwrap();
        assert_eq!(told["findings"][0]["since"], serde_json::json!(first.at));
        assert_eq!(told["findings"][0]["says"], "このホストを制限しているものは見つかりませんでした。");
        assert!(told.get("problem").is_none());
    }

    #[tokio::test]
    async fn beside_a_look_that_hangs_no_other_is_begun() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("history")).unwrap();
        let telemetry = Telemetry::new(dir.path(), "alpha".to_owned()).unwrap();
        let rounds = Rounds::default();
        rounds.hangs.store(true, Ordering::Release);
        let why = rounds.look(&telemetry).await.unwrap_err();
        assert!(why.contains("has not ended"), "{why}");
        let summary = rounds.summary().unwrap();
        assert_eq!((summary.problem.as_ref(), summary.at), (Some(&why), None), "it is told where nobody has asked");
        let round = rounds.keep(&telemetry, report(&[], &[]), Instant::now());
        let told = serde_json::to_value(round.told(Language::En, rounds.problem())).unwrap();
        assert_eq!(told["problem"], why, "what is known is of an earlier look");
    }

    #[test]
    fn what_the_doctor_prints_is_read_back() {
        let said = serde_json::to_string(&report(&[("a/1", Severity::Error)], &["b"])).unwrap();
        let read: Report = serde_json::from_str(&said).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), said);
        let ended = Instant::now();
        let round = Round { at: "now".to_owned(), took_s: 0.5, report: read, since: at(&["a/1"], "then"), ended };
        let summary = round.summary();
        assert_eq!((summary.errors, summary.warnings, summary.notes, summary.hidden), (1, 0, 0, 1));
        let json = serde_json::to_value(round.told(Language::En, None)).unwrap();
        assert_eq!((json["findings"][0]["id"].as_str(), json["at"].as_str()), (Some("a/1"), Some("now")));
        assert_eq!(json["findings"][0]["since"], "then");
    }
}
