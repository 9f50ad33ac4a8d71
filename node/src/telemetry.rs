//! What is seen of this node, in one place: the latest figures, what is not as it should be, the events, and whoever
//! watches them live. The [`sampler`](crate::sampler) fills it; the API reads it.
//!
//! Nothing here is in the data path, and nobody here waits for a disk or for a reader: what a disk does not take is
//! dropped and told ([`crate::history::writer`]), and a reader that does not keep up is cut off.

use crate::events::{Events, Filter, encode_line, spoken};
use crate::history::query::Query;
use crate::history::writer::{Job, Writer};
use crate::history::{album, files, query};
use anyhow::Result;
use axum::body::Bytes;
use forebay_api::events::{Event, Happened};
use forebay_api::history::format::Owner;
use forebay_api::history::pictures::{PICTURE_S, Picture};
use forebay_api::history::series::{Kind, NO_VALUES, Values};
use forebay_api::history::{History, pictures};
use forebay_api::record::VolumeId;
use forebay_api::sentence::Language;
use forebay_api::status::{Degraded, HistoryState};
use forebay_core::stats::Stats;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Whoever watches live, at one time.
pub const READERS_MAX: usize = 32;
/// Messages that wait for one of them: with one a second, it may pause for so many seconds.
const READER_MESSAGES_MAX: usize = 12;
/// Volumes that a reader names: what it gets is made for it alone.
pub const READER_VOLUMES_MAX: usize = 64;
/// Bound on the memory of all this: events, what waits for the disk, and what waits for readers.
pub const BYTES_MAX: u64 = 48 << 20;
/// The same for each volume: its last looks, and what it measures.
pub const VOLUME_BYTES_MAX: u64 = 256 << 10;
/// Events that a reader gets at its begin, from the last that it had seen.
pub const RESUMED_MAX: usize = 1000;

/// Figures of the last second.
#[derive(Clone)]
pub struct Latest {
    /// Which second it is, since 1970.
    pub at: u64,
    /// Figures of each volume, by its name.
    pub volumes: BTreeMap<String, Values>,
    /// Figures of the node itself.
    pub node: Values,
    /// What is not as it should be.
    pub degraded: Vec<Degraded>,
}

/// What a volume measures since its last picture.
struct Measured {
    from: u64,
    to: u64,
    first: Box<Stats>,
    last: Box<Stats>,
}

impl Measured {
    fn picture(&self) -> Picture {
        Picture { from: self.from.min(self.to), to: self.to, seen: self.last.minus(&self.first) }
    }
}

/// Nothing was asked of the volume.
fn is_idle(seen: &Stats) -> bool {
    let histograms = [&seen.reads.client, &seen.writes.client, &seen.zeros, &seen.flush, &seen.destage];
    histograms.iter().all(|histogram| histogram.count() == 0)
}

/// What somebody who watches wants to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Names of the volumes; none: all of them.
    pub volumes: Option<Vec<String>>,
    /// Events are told to it, too.
    pub events: bool,
    /// Figures are not told to it.
    pub without_points: bool,
    /// What events and trouble are told in.
    pub language: Language,
}

struct Reader {
    queue: mpsc::Sender<Bytes>,
    interest: Interest,
}

/// See the module's text.
pub struct Telemetry {
    dir: PathBuf,
    writer: Writer,
    name: Mutex<String>,
    events: Mutex<Events>,
    latest: Mutex<Latest>,
    measured: Mutex<HashMap<VolumeId, Measured>>,
    readers: Mutex<Vec<Reader>>,
    /// The daemon ends: volumes that go are no news.
    ending: AtomicBool,
}

const HELD: &str = "nobody panics while holding it";

impl Telemetry {
    /// With what earlier lives have left in the state folder. `name`: the node's.
    pub fn new(state: &Path, name: String) -> std::io::Result<Telemetry> {
        let dir = state.join("history");
        Ok(Telemetry {
            writer: Writer::start(&dir)?,
            events: Mutex::new(Events::load(&dir)),
            dir,
            name: Mutex::new(name),
            latest: Mutex::new(Latest { at: 0, volumes: BTreeMap::new(), node: NO_VALUES, degraded: Vec::new() }),
            measured: Mutex::default(),
            readers: Mutex::default(),
            ending: AtomicBool::new(false),
        })
    }

    /// Name of the node, or of the host where there is no cluster.
    pub fn name(&self) -> String {
        self.name.lock().expect(HELD).clone()
    }

    /// The name that it has in its cluster.
    pub fn call_it(&self, name: &str) {
        *self.name.lock().expect(HELD) = name.to_owned();
    }

    // --- events ---

    /// Something has happened: it is kept, written, and told to whoever watches.
    pub fn happened(&self, what: Happened) {
        let event = self.events.lock().expect(HELD).add(&self.name(), what);
        self.writer.send(Job::Line(encode_line(&event)));
        let mut in_languages = EachLanguage::default();
        self.broadcast(|reader| {
            let text = |language| event_text(&event, language);
            reader.interest.wants(&event).then(|| in_languages.in_language(reader.interest.language, text))
        });
    }

    /// Events that a filter lets through, see [`Events::find`].
    pub fn events(&self, filter: &Filter, limit: usize) -> Vec<Event> {
        self.events.lock().expect(HELD).find(filter, limit)
    }

    /// Kind of the last one that an earlier life has left.
    pub fn last_event(&self) -> Option<String> {
        self.events.lock().expect(HELD).last().map(|event| event.what.kind.clone())
    }

    /// From here on volumes are closed on purpose.
    pub fn ends(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Whether volumes are closed on purpose.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Has everything on its way to the disk there, if the disk takes it in time.
    pub fn end(&self) {
        for (volume, mut measured) in self.measured.lock().expect(HELD).drain() {
            self.keep(volume, &mut measured);
        }
        self.writer.end();
    }

    // --- figures ---

    /// The figures of the last second.
    pub fn latest(&self) -> Latest {
        self.latest.lock().expect(HELD).clone()
    }

    /// Takes those of a second, and tells them to whoever watches. `changed`: volumes came or went, or trouble did.
    pub fn publish(&self, latest: Latest, changed: bool) {
        let name = self.name();
        // One for all who want all: fifty volumes are written once, not once for each reader.
        let mut of_all = None;
        self.broadcast(|reader| match &reader.interest {
            Interest { without_points: true, .. } => None,
            Interest { volumes: None, .. } => {
                Some(of_all.get_or_insert_with(|| point_message(&name, &latest, None)).clone())
            }
            Interest { volumes, .. } => Some(point_message(&name, &latest, volumes.as_ref())),
        });
        if changed {
            let mut in_languages = EachLanguage::default();
            let text = |language| fleet_text(&latest, language);
            self.broadcast(|reader| Some(in_languages.in_language(reader.interest.language, text)));
        }
        *self.latest.lock().expect(HELD) = latest;
    }

    // --- what volumes have measured ---

    /// What a volume has measured until the end of a second.
    pub fn measured(&self, volume: VolumeId, at: u64, seen: Box<Stats>) {
        let mut all = self.measured.lock().expect(HELD);
        let Some(measured) = all.get_mut(&volume) else {
            all.insert(volume, Measured { from: at + 1, to: at + 1, first: seen.clone(), last: seen });
            return;
        };
        (measured.to, measured.last) = (at + 1, seen);
        // A clock that was set back begins a new one.
        if !(measured.from..measured.from + PICTURE_S).contains(&measured.to) {
            self.keep(volume, measured);
        }
    }

    fn keep(&self, volume: VolumeId, measured: &mut Measured) {
        let picture = measured.picture();
        if !is_idle(&picture.seen) {
            self.writer.send(Job::Picture(Owner::volume(volume.0), Box::new(picture)));
        }
        (measured.from, measured.first) = (measured.to, measured.last.clone());
    }

    /// A volume is gone, and everything that was kept of it.
    pub fn forget(&self, volume: VolumeId) {
        self.measured.lock().expect(HELD).remove(&volume);
        self.writer.send(Job::Forget(Owner::volume(volume.0)));
    }

    /// What was measured in a time, by whole pictures; none where nothing was. Reads files, as [`Telemetry::history`] does.
    pub fn picture(&self, volume: VolumeId, from: u64, to: u64) -> Result<Option<Picture>> {
        self.writer.write_for_reader();
        let mut all = album::read(&self.dir, &Owner::volume(volume.0), from, to)?;
        let open = self.measured.lock().expect(HELD).get(&volume).map(Measured::picture);
        if let Some(open) = open.filter(|open| open.to > from && open.from < to) {
            pictures::add(&mut all, open);
        }
        Ok(all)
    }

    /// Writes what a sampler has made of its looks, when that [is due](Telemetry::write_now).
    pub fn write(&self, job: Job) {
        self.writer.hold(job);
    }

    /// Has what waits to be written on its way to the disk.
    pub fn write_now(&self) {
        self.writer.wake();
    }

    /// How the writing of the history fares.
    pub fn history_state(&self) -> HistoryState {
        self.writer.state()
    }

    /// Folder where the history lies.
    pub fn history_dir(&self) -> &Path {
        &self.dir
    }

    /// What is known of a time. Reads files: not for the control thread itself.
    pub fn history(&self, owner: &Owner, query: &Query, now: u64) -> Result<History> {
        self.writer.write_for_reader();
        files::read(&self.dir, owner, query::plan(query, now), &query.series)
    }

    // --- whoever watches ---

    /// Somebody begins to watch; none when there are too many already. What is there first: the events after the last that
    /// it had seen, and the state of the fleet.
    pub fn watch(&self, interest: Interest, last_seen: Option<u64>) -> Option<mpsc::Receiver<Bytes>> {
        let mut readers = self.readers.lock().expect(HELD);
        readers.retain(|reader| !reader.queue.is_closed());
        if readers.len() >= READERS_MAX {
            return None;
        }
        let (queue, messages) = mpsc::channel(READER_MESSAGES_MAX);
        let mut first = String::from("retry: 2000\n\n");
        if let Some(after) = last_seen.filter(|_| interest.events) {
            let missed = self.events(&Filter { after: Some(after), ..Filter::default() }, RESUMED_MAX);
            for event in missed.iter().filter(|event| interest.wants(event)) {
                first.push_str(&event_text(event, interest.language));
            }
        }
        first.push_str(&fleet_text(&self.latest.lock().expect(HELD), interest.language));
        queue.try_send(Bytes::from(first)).expect("it has room for the first");
        readers.push(Reader { queue, interest });
        Some(messages)
    }

    /// Gives each its message; who has not taken the last ones is cut off.
    fn broadcast(&self, mut message: impl FnMut(&Reader) -> Option<Bytes>) {
        let mut readers = self.readers.lock().expect(HELD);
        readers.retain(|reader| match message(reader) {
            Some(message) => reader.queue.try_send(message).is_ok(),
            None => !reader.queue.is_closed(),
        });
    }
}

impl Interest {
    fn wants(&self, event: &Event) -> bool {
        let ours = match (&self.volumes, &event.what.volume) {
            (Some(volumes), Some(volume)) => volumes.contains(volume),
            (None, _) | (_, None) => true,
        };
        self.events && ours
    }
}

/// `"name": value` of each figure that there is, with commas between them.
pub fn figures(kind: Kind, values: &Values) -> String {
    let mut text = String::new();
    for (name, value) in kind.names().iter().zip(values).filter(|(_, value)| value.is_finite()) {
        let comma = if text.is_empty() { "" } else { "," };
        // A number as Rust shows it is one of JSON: no exponent, no sign of infinity, and as short as it can be.
        let _ = write!(text, "{comma}\"{name}\":{value}");
    }
    text
}

fn point_message(node: &str, latest: &Latest, volumes: Option<&Vec<String>>) -> Bytes {
    let mut text = format!("event: point\ndata: {{\"at\":{},\"volumes\":{{", latest.at);
    let wanted = latest.volumes.iter().filter(|(name, _)| volumes.is_none_or(|wanted| wanted.contains(name)));
    for (number, (name, values)) in wanted.enumerate() {
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{}:{{{}}}", serde_json::json!(name), figures(Kind::Volume, values));
    }
    let node = serde_json::json!(node);
    let _ = write!(text, "}},\"nodes\":{{{node}:{{{}}}}}}}\n\n", figures(Kind::Node, &latest.node));
    Bytes::from(text)
}

/// A message in each language that somebody reads, made when the first of them is there.
#[derive(Default)]
struct EachLanguage([Option<Bytes>; 3]);

impl EachLanguage {
    fn in_language(&mut self, language: Language, text: impl FnOnce(Language) -> String) -> Bytes {
        self.0[language as usize].get_or_insert_with(|| Bytes::from(text(language))).clone()
    }
}

fn event_text(event: &Event, language: Language) -> String {
    let event = spoken(event.clone(), language);
    let json = serde_json::to_string(&event).expect("an event is plain values");
    format!("id: {}\nevent: event\ndata: {json}\n\n", event.id)
}

fn fleet_text(latest: &Latest, language: Language) -> String {
    let volumes: Vec<&String> = latest.volumes.keys().collect();
    let degraded: Vec<Degraded> = latest.degraded.iter().map(|found| found.spoken(language)).collect();
    let json = serde_json::json!({ "at": latest.at, "volumes": volumes, "degraded": degraded });
    format!("event: fleet\ndata: {json}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::events::{EventKind, Severity};
    use forebay_api::sentence::Sentence;

    fn telemetry(dir: &Path) -> Telemetry {
        std::fs::create_dir_all(dir.join("history")).unwrap();
        Telemetry::new(dir, "alpha".to_owned()).unwrap()
    }

    fn latest(at: u64) -> Latest {
        let mut values = NO_VALUES;
        (values[0], values[5]) = (1.5, 65_536.0);
        let volumes = ["vm1", "vm2"].map(|name| (name.to_owned(), values)).into();
        Latest { at, volumes, node: NO_VALUES, degraded: Vec::new() }
    }

    fn text(messages: &mut mpsc::Receiver<Bytes>) -> String {
        String::from_utf8(messages.try_recv().unwrap().to_vec()).unwrap()
    }

    fn data(message: &str) -> serde_json::Value {
        let line = message.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    #[test]
    fn readers_get_what_they_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let telemetry = telemetry(dir.path());
        let mut all = telemetry.watch(Interest::default(), None).unwrap();
        let interest = Interest { volumes: Some(vec!["vm2".to_owned()]), events: true, ..Interest::default() };
        let mut one = telemetry.watch(interest, None).unwrap();
        assert!(text(&mut all).starts_with("retry: 2000\n\nevent: fleet\n") && !text(&mut one).is_empty());
        telemetry.publish(latest(7), false);
        let point = data(&text(&mut all));
        assert_eq!(point["at"], 7);
        assert_eq!(point["volumes"]["vm1"]["read_iops"], 1.5);
        assert_eq!(point["volumes"]["vm1"]["dirty_bytes"], 65_536);
        assert!(point["volumes"]["vm1"].get("write_iops").is_none(), "what there is not is left out");
        assert!(point["nodes"]["alpha"].is_object());
        assert_eq!(data(&text(&mut one))["volumes"].as_object().unwrap().len(), 1);
        for volume in ["vm1", "vm2"] {
            telemetry.happened(Happened::new(EventKind::LinkUp, Severity::Info, "x").of(volume));
        }
        assert!(all.try_recv().is_err());
        let event = text(&mut one);
        assert!(event.starts_with("id: 2\nevent: event\n"), "{event}");
        assert_eq!(data(&event)["volume"], "vm2");
    }

    #[test]
    fn each_reader_is_told_in_its_language_and_what_came_before_it_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let telemetry = telemetry(dir.path());
        let link_down = || Sentence::new("event.link-down").with("peer", "beta");
        let down = || Happened::new(EventKind::LinkDown, Severity::Warning, link_down());
        telemetry.happened(down());
        let interest = |language| Interest { events: true, language, ..Interest::default() };
        let languages = [Language::En, Language::Ja, Language::Ko];
        let mut readers = languages.map(|language| telemetry.watch(interest(language), Some(0)).unwrap());
        telemetry.happened(down());
        let found = Degraded::of_node("beta", "link-down", Sentence::new("degraded.link-down").with("why", "refused"));
        telemetry.publish(Latest { degraded: vec![found], ..latest(1) }, true);
        let words = [
            ["the link to beta is down", "there is no link to it: refused"],
            ["beta へのリンクが切れています", "このノードへのリンクがありません：refused"],
            ["beta에 대한 링크가 끊겼습니다", "이 노드에 대한 링크가 없습니다: refused"],
        ];
        for (reader, [down, none]) in readers.iter_mut().zip(words) {
            let missed = text(reader);
            assert!(missed.contains(down) && !missed.contains("sentence"), "{missed}");
            assert_eq!(data(&text(reader))["text"], down);
            text(reader);
            assert_eq!(data(&text(reader))["degraded"][0]["text"], none);
        }
    }

    #[test]
    fn a_reader_that_comes_back_gets_the_events_that_it_has_missed() {
        let dir = tempfile::tempdir().unwrap();
        let telemetry = telemetry(dir.path());
        for number in 1..=3 {
            telemetry.happened(Happened::new(EventKind::LinkUp, Severity::Info, format!("text {number}")));
        }
        let interest = Interest { events: true, ..Interest::default() };
        let first = text(&mut telemetry.watch(interest, Some(1)).unwrap());
        assert!(!first.contains("text 1") && first.contains("text 2") && first.contains("text 3"), "{first}");
    }

    #[test]
    fn a_slow_reader_is_cut_off_and_readers_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let telemetry = telemetry(dir.path());
        let mut slow = telemetry.watch(Interest::default(), None).unwrap();
        let mut quick = telemetry.watch(Interest::default(), None).unwrap();
        for at in 0..100 {
            telemetry.publish(latest(at), false);
            while quick.try_recv().is_ok() {}
        }
        let mut got = 0;
        while slow.try_recv().is_ok() {
            got += 1;
        }
        assert_eq!(got, READER_MESSAGES_MAX);
        assert_eq!(slow.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
        telemetry.publish(latest(100), false);
        assert!(quick.try_recv().is_ok());
        let more: Vec<_> = (1..READERS_MAX).map(|_| telemetry.watch(Interest::default(), None).unwrap()).collect();
        assert!(telemetry.watch(Interest::default(), None).is_none());
        drop(more);
        assert!(telemetry.watch(Interest::default(), None).is_some(), "places of those who left are free again");
    }
}
