//! What happened, as a list: policy changes with their reasons, changes of owner, lost members, throttling, failures.
//!
//! Kept in memory, newest last, and bounded; on disk as lines of JSON, each after its checksum, in two files of which the
//! older one gives way: `events.log`, `events.log.1` in the history's folder. A line that is torn or damaged is passed over.

use forebay_api::calendar;
use forebay_api::events::{Event, Happened};
use forebay_api::sentence::Language;
use forebay_api::told;
use forebay_core::format::crc32c;
use forebay_doctor::words;
use serde_json::Map;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Lines of one of the two files, and half of what is kept in memory.
const FILE_LINES_MAX: usize = 2048;
/// Bytes that are read of a file; one that was written here is shorter.
const FILE_BYTES_MAX: u64 = (FILE_LINES_MAX * LINE_BYTES_MAX) as u64;
const LINE_BYTES_MAX: usize = 4096;
/// Bytes of a text; a longer one is cut.
const TEXT_BYTES_MAX: usize = 1024;
const DETAILS_BYTES_MAX: usize = 1024;
/// Bytes of a text that is too long a line with more: JSON takes six for each of some letters.
const SHORT_TEXT_BYTES_MAX: usize = 256;

/// Which events are asked for.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// From this second on, since 1970; none: from the first.
    pub from: Option<u64>,
    /// Before this second, since 1970; none: up to the last.
    pub to: Option<u64>,
    /// Of the volume of this name; none: of any, or of no volume.
    pub volume: Option<String>,
    /// Of this kind, by its word; none: of all.
    pub kind: Option<String>,
    /// With a greater number than this; none: with any.
    pub after: Option<u64>,
}

impl Filter {
    fn takes(&self, event: &Event) -> bool {
        let at = || calendar::parse(&event.at).unwrap_or(0);
        self.after.is_none_or(|after| event.id > after)
            && self.volume.as_ref().is_none_or(|volume| event.what.volume.as_ref() == Some(volume))
            && self.kind.as_ref().is_none_or(|kind| event.what.kind == *kind)
            && (self.from.is_none() && self.to.is_none()
                || self.from.is_none_or(|from| at() >= from) && self.to.is_none_or(|to| at() < to))
    }
}

/// The event as it is told: in a language, where it is a sentence that this daemon knows; in English as it was told first.
pub fn spoken(mut event: Event, language: Language) -> Event {
    if let Some(sentence) = event.what.sentence.take().filter(|_| language != Language::En) {
        let said = told::say(language, &sentence).or_else(|| words::known(language, &sentence));
        event.what.text = said.unwrap_or(event.what.text);
    }
    event
}

/// The events of this node.
pub struct Events {
    next_id: u64,
    kept: VecDeque<Event>,
}

impl Events {
    /// With what earlier lives have left; nothing where that cannot be read.
    pub fn load(dir: &Path) -> Events {
        let mut kept = VecDeque::new();
        for path in paths(dir).iter().rev() {
            let mut text = Vec::new();
            if let Ok(file) = File::open(path)
                && file.take(FILE_BYTES_MAX).read_to_end(&mut text).is_ok()
            {
                kept.extend(text.split(|&byte| byte == b'\n').filter_map(decode_line));
            }
        }
        let excess = kept.len().saturating_sub(2 * FILE_LINES_MAX);
        kept.drain(..excess);
        let next_id = kept.iter().map(|event| event.id).max().map_or(1, |last| last.saturating_add(1));
        Events { next_id, kept }
    }

    /// Takes in one that this node tells; the event as it is now known.
    pub fn add(&mut self, node: &str, mut what: Happened) -> Event {
        cut(&mut what.text, TEXT_BYTES_MAX);
        if serde_json::to_string(&what.details).is_ok_and(|text| text.len() > DETAILS_BYTES_MAX) {
            what.details = Map::new();
        }
        let at = calendar::show_ms(calendar::now_ms());
        let mut event = Event { id: self.next_id, at, node: node.to_owned(), what };
        // What says it in other languages goes first; then it stays in English.
        let shorten: [fn(&mut Happened); 3] = [
            |what| what.sentence = None,
            |what| what.details = Map::new(),
            |what| cut(&mut what.text, SHORT_TEXT_BYTES_MAX),
        ];
        for shorten in shorten {
            if encode_line(&event).len() >= LINE_BYTES_MAX {
                shorten(&mut event.what);
            }
        }
        self.next_id = self.next_id.saturating_add(1);
        if self.kept.len() >= 2 * FILE_LINES_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(event.clone());
        event
    }

    /// The newest of those that a filter takes, `limit` at most, oldest first; with `after` the oldest, so that whoever
    /// goes on from the last one misses none.
    pub fn find(&self, filter: &Filter, limit: usize) -> Vec<Event> {
        let taken = self.kept.iter().filter(|event| filter.takes(event));
        if filter.after.is_some() {
            return taken.take(limit).cloned().collect();
        }
        let mut newest: Vec<Event> = taken.rev().take(limit).cloned().collect();
        newest.reverse();
        newest
    }

    /// The newest event that is kept.
    pub fn last(&self) -> Option<&Event> {
        self.kept.back()
    }
}

fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let end = (0..=bytes_max - 4).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push_str(" ...");
    }
}

fn paths(dir: &Path) -> [PathBuf; 2] {
    [dir.join("events.log"), dir.join("events.log.1")]
}

/// A line of the file: the checksum in hexadecimal, a space, JSON.
pub fn encode_line(event: &Event) -> String {
    let text = serde_json::to_string(event).expect("an event is plain values");
    format!("{:08x} {text}\n", crc32c(text.as_bytes()))
}

fn decode_line(line: &[u8]) -> Option<Event> {
    let (sum, text) = line.split_at_checked(8)?;
    let text = text.strip_prefix(b" ")?;
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    (crc32c(text) == sum).then(|| serde_json::from_slice(text).ok()).flatten()
}

/// The file that events are added to.
pub struct Journal {
    dir: PathBuf,
    file: File,
    lines: usize,
}

impl Journal {
    /// Opens the journal of events in this folder, or makes it.
    pub fn open(dir: &Path) -> std::io::Result<Journal> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&paths(dir)[0])?;
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        (&file).take(FILE_BYTES_MAX).read_to_end(&mut text)?;
        // What a power cut left of a line ends here, so that it does not spoil the next one.
        if text.last().is_some_and(|&last| last != b'\n') {
            file.write_all(b"\n")?;
        }
        let lines = text.iter().filter(|&&byte| byte == b'\n').count();
        Ok(Journal { dir: dir.to_owned(), file, lines })
    }

    /// Adds a line, and has it on the medium.
    pub fn add(&mut self, line: &str) -> std::io::Result<()> {
        if self.lines >= FILE_LINES_MAX {
            let [newer, older] = paths(&self.dir);
            std::fs::rename(&newer, &older)?;
            *self = Journal::open(&self.dir)?;
        }
        self.file.write_all(line.as_bytes())?;
        self.lines += 1;
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::events::{EventKind, Severity};
    use forebay_api::sentence::Sentence;
    use std::collections::{BTreeMap, BTreeSet};

    fn happened(number: u32) -> Happened {
        Happened::new(EventKind::LinkUp, Severity::Info, format!("text {number}")).of("vm1").with("number", number)
    }

    fn events(dir: &Path) -> Events {
        Events::load(dir)
    }

    #[test]
    fn events_outlive_the_daemon_and_their_numbers_grow() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = events(dir.path());
        let mut journal = Journal::open(dir.path()).unwrap();
        for number in 0..3 {
            journal.add(&encode_line(&first.add("alpha", happened(number)))).unwrap();
        }
        let mut second = events(dir.path());
        assert_eq!(second.find(&Filter::default(), 10), first.find(&Filter::default(), 10));
        assert_eq!(second.add("alpha", happened(9)).id, 4);
    }

    #[test]
    fn a_torn_or_damaged_line_costs_that_event_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = events(dir.path());
        let mut journal = Journal::open(dir.path()).unwrap();
        for number in 0..3 {
            journal.add(&encode_line(&kept.add("alpha", happened(number)))).unwrap();
        }
        let path = dir.path().join("events.log");
        let mut text = std::fs::read(&path).unwrap();
        let middle = text.len() / 2;
        text[middle] ^= 1;
        text.truncate(text.len() - 5);
        std::fs::write(&path, &text).unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        let mut again = events(dir.path());
        assert_eq!(again.find(&Filter::default(), 10).len(), 1);
        journal.add(&encode_line(&again.add("alpha", happened(7)))).unwrap();
        let numbers: Vec<u64> = events(dir.path()).find(&Filter::default(), 10).iter().map(|e| e.id).collect();
        assert_eq!(numbers, [1, 2], "the first, and the one after the damage");
    }

    #[test]
    fn both_files_and_the_memory_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = events(dir.path());
        let lines: String =
            (0..FILE_LINES_MAX as u32).map(|number| encode_line(&kept.add("alpha", happened(number)))).collect();
        std::fs::write(dir.path().join("events.log"), lines).unwrap();
        let mut journal = Journal::open(dir.path()).unwrap();
        let event = kept.add("alpha", happened(0));
        journal.add(&encode_line(&event)).unwrap();
        let [newer, older] = paths(dir.path());
        assert_eq!(std::fs::read_to_string(newer).unwrap().lines().count(), 1);
        assert_eq!(std::fs::read_to_string(older).unwrap().lines().count(), FILE_LINES_MAX);
        assert_eq!(events(dir.path()).last().unwrap().id, event.id);
        for number in 0..3 * FILE_LINES_MAX as u32 {
            kept.add("alpha", happened(number));
        }
        assert_eq!(kept.kept.len(), 2 * FILE_LINES_MAX);
        let long = kept.add(
            "alpha",
            Happened::new(EventKind::LinkUp, Severity::Info, "ü".repeat(5000)).with("x", "y".repeat(5000)),
        );
        assert!(encode_line(&long).len() < LINE_BYTES_MAX);
        // Letters of which JSON takes six bytes each.
        let told = Sentence::new("event.board").with("line", "\u{1}".repeat(500));
        let escaped = Happened::new(EventKind::LinkUp, Severity::Info, told).with("x", "\u{1}".repeat(150));
        let escaped = kept.add("alpha", Happened { text: "\u{1}".repeat(1000), ..escaped });
        assert!(encode_line(&escaped).len() < LINE_BYTES_MAX && escaped.what.text.len() > 200);
    }

    #[test]
    fn an_event_of_an_earlier_life_is_told_in_the_language_that_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = events(dir.path());
        let mut journal = Journal::open(dir.path()).unwrap();
        let of_doctor = Sentence::new("disk.scheduler-remedy").with("disk", "nvme0n1");
        let long = Sentence::new("event.board").with("line", "x".repeat(4000));
        for told in [Sentence::new("event.link-up").with("peer", "beta"), of_doctor, Sentence::new("of.a.newer"), long]
        {
            let event = kept.add("alpha", Happened::new(EventKind::LinkUp, Severity::Info, told));
            journal.add(&encode_line(&event)).unwrap();
        }
        journal.add(&encode_line(&kept.add("alpha", happened(5)))).unwrap();
        let told = |language| -> Vec<String> {
            let all = events(dir.path()).find(&Filter::default(), 10).into_iter();
            let all = all.map(|event| spoken(event, language)).inspect(|event| assert_eq!(event.what.sentence, None));
            all.map(|event| event.what.text).collect()
        };
        let (ja, en) = (told(Language::Ja), told(Language::En));
        assert_eq!(en[0], "the link to beta works");
        assert_eq!(ja[..3], ["beta へのリンクが回復しました", "nvme0n1 のスケジューラーを外します", ""]);
        assert_eq!((&ja[3], &ja[4]), (&en[3], &en[4]), "too long, and without a sentence");
        assert!(en[3].starts_with("the board's event log: xxx"));
    }

    #[test]
    fn filters_take_what_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = events(dir.path());
        for number in 0..10 {
            kept.add("alpha", happened(number));
        }
        kept.add("alpha", Happened::new(EventKind::TierFailed, Severity::Error, "x").of("vm2"));
        let ids = |filter: Filter, limit| kept.find(&filter, limit).iter().map(|e| e.id).collect::<Vec<_>>();
        assert_eq!(ids(Filter::default(), 2), [10, 11], "the newest");
        assert_eq!(ids(Filter { after: Some(3), ..Filter::default() }, 2), [4, 5], "those that follow");
        assert_eq!(ids(Filter { volume: Some("vm2".into()), ..Filter::default() }, 9), [11]);
        assert_eq!(ids(Filter { kind: Some("tier-failed".into()), ..Filter::default() }, 9), [11]);
        let now = calendar::now_ms() / 1000;
        assert!(ids(Filter { from: Some(now + 100), ..Filter::default() }, 9).is_empty());
        assert_eq!(ids(Filter { from: Some(now - 100), to: Some(now + 100), ..Filter::default() }, 99).len(), 11);
    }

    #[test]
    fn every_kind_has_words_in_each_language_of_the_dashboard_and_is_in_the_api() {
        let kinds: BTreeSet<String> = EventKind::all().iter().map(|kind| kind.word()).collect();
        for (language, table) in [
            ("en", include_str!("../../web/strings/en.json")),
            ("ja", include_str!("../../web/strings/ja.json")),
            ("ko", include_str!("../../web/strings/ko.json")),
        ] {
            let table: BTreeMap<String, String> = serde_json::from_str(table).unwrap();
            let named = table.iter().filter(|(_, words)| !words.is_empty());
            let named: BTreeSet<String> =
                named.filter_map(|(key, _)| Some(key.strip_prefix("kind.")?.to_owned())).collect();
            assert_eq!(named, kinds, "{language}");
        }
        let api: serde_json::Value = serde_json::from_str(include_str!("http/openapi.json")).unwrap();
        let described = api["components"]["schemas"]["Event"]["properties"]["kind"]["description"].as_str().unwrap();
        assert_eq!(described.split(", ").map(str::to_owned).collect::<BTreeSet<_>>(), kinds);
    }
}
