//! `forebay report`: what the tiers of a node did over a time. What they kept from the slow storage, what clients waited
//! instead of what the slow storage takes, what a larger or smaller cache would bring, and what went wrong.
//!
//! Everything comes from the daemon's history, by its API; this only adds up and writes it down, as [`text`], JSON or [`html`].

mod html;
mod text;

use crate::Client;
use crate::top::model::Fleet;
use crate::words::{Language, Sentence, say};
use anyhow::{Context, Result};
use forebay_api::events::{Event, Severity};
use forebay_api::history::History;
use forebay_io::folder;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Steps of a chart, at most.
const POINTS: usize = 600;
/// Volumes of one report, the busiest first where there are more.
const VOLUMES_MAX: usize = 200;
/// Events that are asked for: as many as the daemon gives at once.
const EVENTS_MAX: usize = 1000;
/// Incidents that are told one by one, the newest.
const INCIDENTS_MAX: usize = 50;

/// What the daemon's history and events say of a time.
#[derive(Serialize)]
pub struct ActivityReport {
    /// The node that was asked.
    pub node: String,
    /// Version of its daemon.
    pub version: String,
    /// When the report was made.
    pub made_at: String,
    /// The time that was asked for, such as `7d`.
    pub window: String,
    /// What went through all volumes together.
    pub totals: Totals,
    /// The volumes, the busiest first.
    pub volumes: Vec<VolumeActivity>,
    /// How often what went wrong did so.
    pub incidents_by_kind: BTreeMap<String, usize>,
    /// The newest of what went wrong, newest first.
    pub incidents: Vec<Event>,
}

/// What went through a volume, or all of them, in the time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Reads that clients have asked for.
    pub reads: u64,
    /// Writes that clients have asked for.
    pub writes: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Bytes of the writes.
    pub write_bytes: u64,
    /// Reads that the slow storage had to answer.
    pub backing_reads: u64,
    /// Writes that it got: of destaging, and of clients while the policy was write-through.
    pub backing_writes: u64,
    /// Bytes that those writes had.
    pub backing_write_bytes: u64,
    /// Writes that it was spared.
    pub writes_kept: u64,
    /// Bytes that it was spared to write.
    pub write_bytes_kept: u64,
    /// Bytes that it was spared to read.
    pub read_bytes_kept: u64,
    /// What compression kept from the wires between nodes.
    pub wire_bytes_saved: u64,
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.write_bytes += other.write_bytes;
        self.backing_reads += other.backing_reads;
        self.backing_writes += other.backing_writes;
        self.backing_write_bytes += other.backing_write_bytes;
        self.writes_kept += other.writes_kept;
        self.write_bytes_kept += other.write_bytes_kept;
        self.read_bytes_kept += other.read_bytes_kept;
        self.wire_bytes_saved += other.wire_bytes_saved;
    }
}

/// A volume over the time.
#[derive(Serialize)]
pub struct VolumeActivity {
    /// Name of the volume.
    pub name: String,
    /// Size of the volume in bytes.
    pub size_bytes: u64,
    /// What the history knows begins here, in seconds since 1970; none: it knows nothing.
    pub from: Option<u64>,
    /// What the history knows ends here, in seconds since 1970.
    pub to: Option<u64>,
    /// What went through the volume in the time.
    pub totals: Totals,
    /// Share of the read blocks that were found before the slow storage.
    pub read_hit_ratio: Option<f64>,
    /// What clients waited, and what the slow storage took.
    pub latency: Vec<Latency>,
    /// The cache that there is.
    pub cache_bytes: Option<u64>,
    /// What was read in the time, each block once.
    pub working_set_bytes: Option<u64>,
    /// What caches of other sizes would hit.
    pub miss_ratio: Vec<CurvePoint>,
    /// The same for half, once, twice and four times the cache.
    pub at_times: Vec<AtTimes>,
    /// What was written over the time, for the chart of a page.
    #[serde(skip)]
    pub chart: Chart,
}

/// Times of one side at one place, in microseconds.
#[derive(Serialize)]
pub struct Latency {
    /// What was asked for: `read` or `write`.
    pub side: &'static str,
    /// Where it was measured: `client` or `backing`.
    pub place: &'static str,
    /// How many requests were measured.
    pub count: u64,
    /// Half of them took less.
    pub p50_us: Option<f64>,
    /// Nine of ten took less.
    pub p90_us: Option<f64>,
    /// 99 of 100 took less.
    pub p99_us: Option<f64>,
    /// 999 of 1000 took less.
    pub p999_us: Option<f64>,
}

/// A point of a miss-ratio curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// A cache of this size.
    pub cache_bytes: u64,
    /// Would have this of what was read.
    pub hit_ratio: f64,
}

/// The same, by times of the cache that there is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AtTimes {
    /// How many times the present cache it is.
    pub times: f64,
    /// A cache of that many bytes.
    pub cache_bytes: u64,
    /// None: too little was read to say.
    pub hit_ratio: Option<f64>,
}

/// What was written over time.
#[derive(Default)]
pub struct Chart {
    /// The first step's begin, and the last one's end.
    pub from: u64,
    /// The last step's end, in seconds since 1970.
    pub to: u64,
    /// Bytes a second that clients wrote.
    pub written: Vec<Option<f64>>,
    /// Bytes a second that the slow storage got.
    pub destaged: Vec<Option<f64>>,
}

/// Of which time, and as what.
#[derive(clap::Args)]
pub struct ReportArgs {
    /// A time that ends now, such as 8h, 1d or 7d
    #[arg(long, value_name = "TIME", default_value = "7d")]
    window: String,
    /// Write it as one HTML page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// What it is told in [default: as LC_ALL, LC_MESSAGES, LANG say; with --json: en]
    #[arg(long, value_name = "LANGUAGE")]
    language: Option<Language>,
}

/// Makes the report and prints it, or writes it to a file.
pub fn run(client: &Client, json: bool, args: &ReportArgs) -> Result<bool> {
    // Programs compare texts, too: theirs do not depend on who calls them.
    let of_environment = if json { Language::default() } else { Language::of_environment() };
    let language = args.language.unwrap_or(of_environment);
    let report = gather(client, &args.window, language)?;
    if let Some(path) = &args.html {
        let page = html::page(&report, language);
        folder::replace(path, page.as_bytes(), 0o644)
            .with_context(|| format!("cannot write the report to {}", path.display()))?;
        if !json {
            println!("{}", say(language, &Sentence::new("report.written-to").with("path", path.display())));
        }
    } else if !json {
        print!("{}", text::page(&report, language));
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    }
    Ok(true)
}

fn gather(client: &Client, window: &str, language: Language) -> Result<ActivityReport> {
    const OTHER: &str = "the daemon is of another version; use its own forebay binary";
    // First what says no to a window that cannot be.
    let events = events(client, plain(window)?, language)?;
    let events: Vec<Event> = serde_json::from_value(events["events"].clone()).context(OTHER)?;
    let fleet = client.call("GET", "/v1/fleet", None)?;
    let fleet: Fleet = serde_json::from_value(fleet).context(OTHER)?;
    let mut volumes = Vec::new();
    for volume in &fleet.volumes {
        let (name, size) = (&volume.report.name, volume.report.size_bytes);
        match of_volume(client, name, size, window) {
            Ok(volume) => volumes.push(volume),
            // It was deleted since the fleet was asked for.
            Err(_) if client.call("GET", &format!("/v1/volumes/{name}"), None).is_err() => {}
            Err(error) => return Err(error.context(format!("volume {name}"))),
        }
    }
    volumes.sort_by_key(|volume| std::cmp::Reverse(volume.totals.reads + volume.totals.writes));
    let mut totals = Totals::default();
    volumes.iter().for_each(|volume| totals.add(&volume.totals));
    volumes.truncate(VOLUMES_MAX);
    let own = fleet.nodes.iter().find(|node| node.own);
    let incidents: Vec<Event> =
        events.into_iter().rev().filter(|event| event.what.severity != Severity::Info).collect();
    let mut incidents_by_kind = BTreeMap::new();
    for incident in &incidents {
        *incidents_by_kind.entry(incident.what.kind.clone()).or_insert(0) += 1;
    }
    Ok(ActivityReport {
        node: own.map(|node| node.name.clone()).unwrap_or_default(),
        version: own.and_then(|node| node.report.as_ref()).map(|report| report.version.clone()).unwrap_or_default(),
        made_at: forebay_api::calendar::show_ms(forebay_api::calendar::now_ms()),
        window: window.to_owned(),
        totals,
        volumes,
        incidents_by_kind,
        incidents: incidents.into_iter().take(INCIDENTS_MAX).collect(),
    })
}

/// What happened, told in a language; an older daemon has one language, and refuses a request that names another.
fn events(client: &Client, window: &str, language: Language) -> Result<Value> {
    let path = format!("/v1/events?window={window}&limit={EVENTS_MAX}");
    match client.call("GET", &format!("{path}&language={}", language.word()), None) {
        Err(error) if error.to_string().contains("`language`") => client.call("GET", &path, None),
        answer => answer,
    }
}

/// A window goes into a path: what is no letter or digit is none.
fn plain(window: &str) -> Result<&str> {
    match window.chars().all(|c| c.is_ascii_alphanumeric()) {
        true => Ok(window),
        false => anyhow::bail!("window {window:?}: write a time such as 8h, 1d or 7d"),
    }
}

fn of_volume(client: &Client, name: &str, size_bytes: u64, window: &str) -> Result<VolumeActivity> {
    let get = |what: String| client.call("GET", &format!("/v1/volumes/{name}/{what}"), None);
    let measured = get(format!("heatmap?window={window}"))?;
    let curve = get(format!("miss-ratio?window={window}"))?;
    // As far as anything was measured: steps are shorter then, and count no time before.
    let time = match (measured["from"].as_u64(), measured["to"].as_u64()) {
        (Some(from), Some(to)) if from < to => format!("from={from}&to={to}"),
        _ => format!("window={window}"),
    };
    let series = "write_bytes_per_s,read_bytes_per_s,read_hit_ratio,destage_bytes_per_s,compression_saved_bytes_per_s";
    let history = get(format!("history?{time}&points={POINTS}&series={series}"))?;
    let history: History = serde_json::from_value(history).context("its history")?;
    Ok(activity_of(name, size_bytes, &measured, &curve, &history))
}

/// Adds up what the daemon has said.
fn activity_of(name: &str, size_bytes: u64, measured: &Value, curve: &Value, history: &History) -> VolumeActivity {
    let line = |series: &str| -> Vec<Option<f64>> {
        let line = history.series.get(series).map(|line| line.avg.clone()).unwrap_or_default();
        line.into_iter().map(|value| value.map(f64::from)).collect()
    };
    let amount = |values: &[Option<f64>]| -> u64 {
        values.iter().flatten().map(|rate| rate * history.step_s as f64).sum::<f64>().round() as u64
    };
    let (written, destaged, read, hits) =
        (line("write_bytes_per_s"), line("destage_bytes_per_s"), line("read_bytes_per_s"), line("read_hit_ratio"));
    let found: Vec<Option<f64>> = read.iter().zip(&hits).map(|(read, hit)| Some((*read)? * (*hit)?)).collect();
    let read_and_judged: Vec<Option<f64>> = read.iter().zip(&hits).map(|(read, hit)| hit.and(*read)).collect();
    let judged = amount(&read_and_judged);
    let count = |of: &Value| of["count"].as_u64().unwrap_or(0);
    let legs = &measured["legs"];
    let bytes = |side: &str| {
        let shares = &measured["sequential"][side];
        shares["bytes"].as_u64().unwrap_or(0) + shares["random_bytes"].as_u64().unwrap_or(0)
    };
    let (writes, backing_writes) =
        (count(&legs["write"]["client"]), count(&measured["destage"]) + count(&legs["write"]["backing"]));
    let (write_bytes, backing_write_bytes) = (bytes("writes"), amount(&destaged));
    let totals = Totals {
        reads: count(&legs["read"]["client"]),
        writes,
        read_bytes: bytes("reads"),
        write_bytes,
        backing_reads: count(&legs["read"]["backing"]),
        backing_writes,
        backing_write_bytes,
        writes_kept: writes.saturating_sub(backing_writes),
        write_bytes_kept: write_bytes.saturating_sub(backing_write_bytes),
        read_bytes_kept: amount(&found),
        wire_bytes_saved: amount(&line("compression_saved_bytes_per_s")),
    };
    // While the policy is write-back nobody waits for the slow storage: what it takes is seen by destaging.
    let of_writes = if count(&legs["write"]["backing"]) > 0 { &legs["write"]["backing"] } else { &measured["destage"] };
    let latency = |side, place, times: &Value| Latency {
        side,
        place,
        count: count(times),
        p50_us: times["p50_us"].as_f64(),
        p90_us: times["p90_us"].as_f64(),
        p99_us: times["p99_us"].as_f64(),
        p999_us: times["p999_us"].as_f64(),
    };
    let cache_bytes = curve["cache_bytes"].as_u64().filter(|bytes| *bytes > 0);
    let points = curve["points"].as_array().into_iter().flatten();
    let miss_ratio: Vec<CurvePoint> = points
        .filter_map(|point| {
            Some(CurvePoint { cache_bytes: point["cache_bytes"].as_u64()?, hit_ratio: point["hit_ratio"].as_f64()? })
        })
        .collect();
    let at_times = cache_bytes.into_iter().flat_map(|cache| [0.5, 1.0, 2.0, 4.0].map(|times| (cache, times)));
    let at_times = at_times.map(|(cache, times)| {
        // As the daemon computes its points: in sixteenths of the cache.
        let cache_bytes = cache / 16 * (times * 16.0) as u64;
        let hit_ratio = miss_ratio.iter().find(|point| point.cache_bytes == cache_bytes).map(|point| point.hit_ratio);
        AtTimes { times, cache_bytes, hit_ratio }
    });
    VolumeActivity {
        name: name.to_owned(),
        size_bytes,
        from: measured["from"].as_u64(),
        to: measured["to"].as_u64(),
        read_hit_ratio: (judged > 0).then(|| totals.read_bytes_kept as f64 / judged as f64),
        totals,
        latency: vec![
            latency("read", "client", &legs["read"]["client"]),
            latency("read", "backing", &legs["read"]["backing"]),
            latency("write", "client", &legs["write"]["client"]),
            latency("write", "backing", of_writes),
        ],
        cache_bytes,
        working_set_bytes: curve["working_set_bytes"].as_u64(),
        at_times: at_times.collect(),
        miss_ratio,
        chart: Chart { from: history.from, to: history.to, written, destaged },
    }
}

/// Part of a whole as a percentage; nothing of nothing is none, and not quite all is not all.
fn percent(part: u64, of: u64) -> String {
    match of {
        0 => "-".to_owned(),
        of if part >= of => "100 %".to_owned(),
        of => format!("{:.1} %", (part as f64 * 100.0 / of as f64).min(99.9)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{Read, Write};

    pub(crate) fn example() -> ActivityReport {
        let times = |count: u64, us: f64| json!({ "count": count, "p50_us": us, "p90_us": us * 2.0, "p99_us": us * 4.0, "p999_us": us * 8.0 });
        let measured = json!({
            "from": 1_700_000_000u64, "to": 1_700_000_030u64,
            "sequential": { "reads": { "bytes": 600, "random_bytes": 400 }, "writes": { "bytes": 8000, "random_bytes": 2000 } },
            "legs": {
                "read": { "client": times(100, 50.0), "backing": times(20, 8000.0) },
                "write": { "client": times(1000, 30.0), "backing": times(0, 0.0) },
            },
            "destage": times(40, 9000.0),
        });
        let curve = json!({
            "cache_bytes": 16384, "working_set_bytes": 65536,
            "points": [
                { "cache_bytes": 8192, "hit_ratio": 0.5 }, { "cache_bytes": 16384, "hit_ratio": 0.7 },
                { "cache_bytes": 32768, "hit_ratio": 0.9 }, { "cache_bytes": 40960, "hit_ratio": null },
            ],
        });
        let history: History = serde_json::from_value(json!({
            "volume": "vm1", "from": 1_700_000_000u64, "to": 1_700_000_030u64, "step_s": 10, "at": [0, 10, 20],
            "series": {
                "write_bytes_per_s": { "avg": [900.0, null, 100.0] },
                "read_bytes_per_s": { "avg": [60.0, null, 40.0] },
                "read_hit_ratio": { "avg": [0.5, null, 1.0] },
                "destage_bytes_per_s": { "avg": [200.0, null, 100.0] },
                "compression_saved_bytes_per_s": { "avg": [10.0, null, 0.0] },
            },
        }))
        .unwrap();
        let volume = activity_of("vm1", 1 << 30, &measured, &curve, &history);
        let incident = forebay_api::events::Happened::new(
            forebay_api::events::EventKind::BackingFailing,
            Severity::Error,
            "no space <left> & \"more\"",
        )
        .of("vm1");
        let incident = Event { id: 7, at: "2023-11-14T22:13:20.000Z".into(), node: "alpha".into(), what: incident };
        ActivityReport {
            node: "alpha".into(),
            version: "0.1.0".into(),
            made_at: "2023-11-14T22:14:00.000Z".into(),
            window: "7d".into(),
            totals: volume.totals.clone(),
            volumes: vec![volume],
            incidents_by_kind: [("backing-failing".to_owned(), 1)].into(),
            incidents: vec![incident],
        }
    }

    #[test]
    fn amounts_are_those_of_the_history() {
        let report = example();
        let volume = &report.volumes[0];
        let t = &volume.totals;
        assert_eq!((t.reads, t.writes, t.read_bytes, t.write_bytes), (100, 1000, 1000, 10_000));
        assert_eq!((t.backing_writes, t.writes_kept), (40, 960));
        assert_eq!((t.backing_write_bytes, t.write_bytes_kept), (3000, 7000));
        assert_eq!((t.read_bytes_kept, t.wire_bytes_saved), (700, 100));
        assert_eq!(volume.read_hit_ratio, Some(0.7));
        let hits: Vec<Option<f64>> = volume.at_times.iter().map(|at| at.hit_ratio).collect();
        assert_eq!(hits, [Some(0.5), Some(0.7), Some(0.9), None], "what is not known is not made up");
        let write = |place| volume.latency.iter().find(|l| l.side == "write" && l.place == place).unwrap();
        assert_eq!((write("client").p99_us, write("backing").p99_us), (Some(120.0), Some(36_000.0)));
    }

    #[test]
    fn a_volume_without_a_history_is_told_as_such() {
        let history =
            History { volume: None, node: None, from: 0, to: 0, step_s: 1, at: vec![], series: BTreeMap::new() };
        let volume = activity_of("new", 1, &json!({}), &json!({}), &history);
        assert_eq!((volume.totals, volume.read_hit_ratio, volume.from), (Totals::default(), None, None));
        assert!(volume.at_times.is_empty());
    }

    #[test]
    fn not_quite_all_is_not_all() {
        assert_eq!(
            [percent(0, 0), percent(0, 9), percent(1999, 2000), percent(9, 9)],
            ["-", "0.0 %", "99.9 %", "100 %"]
        );
    }

    #[test]
    fn a_window_cannot_reach_another_path() {
        assert!(plain("7d").is_ok());
        for window in ["7d&limit=1", "../x", "7d ", "%20"] {
            assert!(plain(window).is_err(), "{window}");
        }
    }

    /// A daemon that answers one request after another, and what it was asked for.
    fn daemon(name: &str, answer: fn(&str) -> (u16, Value)) -> (Client, std::thread::JoinHandle<Vec<String>>) {
        let path = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let client = Client::new(Some(path.clone()));
        let served = std::thread::spawn(move || {
            let mut asked = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let length = stream.read(&mut request).unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let target = request.split(' ').nth(1).unwrap_or_default().to_owned();
                let (status, body) = answer(&target);
                let body = body.to_string();
                write!(stream, "HTTP/1.1 {status} -\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
                asked.push(target);
                if status == 200 || asked.len() > 2 {
                    std::fs::remove_file(&path).unwrap();
                    return asked;
                }
            }
        });
        (client, served)
    }

    #[test]
    fn events_are_asked_for_in_a_language_and_without_where_a_daemon_knows_none() {
        let path = "/v1/events?window=1h&limit=1000";
        let (client, served) = daemon("new", |_| (200, json!({ "events": [7] })));
        assert_eq!(events(&client, "1h", Language::Ko).unwrap(), json!({ "events": [7] }));
        assert_eq!(served.join().unwrap(), [format!("{path}&language=ko")]);
        let old = |target: &str| match target.contains("language") {
            true => (400, json!({ "error": "unknown field `language`, expected one of `window`, `from`" })),
            false => (200, json!({ "events": [] })),
        };
        let (client, served) = daemon("old", old);
        assert_eq!(events(&client, "1h", Language::Ja).unwrap(), json!({ "events": [] }));
        assert_eq!(served.join().unwrap(), [format!("{path}&language=ja"), path.to_owned()]);
    }
}
