//! `forebay volume stats` and `forebay events`: what was seen, for people, for programs and for spreadsheets.

use super::client::{Client, Message};
use anyhow::{Context, Result};
use clap::Args;
use forebay_api::events::{Event, Severity};
use forebay_api::history::History;
use forebay_api::sentence::Language;
use forebay_api::units::show_seconds;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::time::Duration;

const OTHER: &str = "the daemon is of another version; use its own forebay binary, or --json";
/// Between two attempts to reach a daemon whose events are followed.
const RETRY: Duration = Duration::from_secs(1);

/// Which time, and which figures.
#[derive(Args)]
pub struct StatsArgs {
    /// Name of the volume
    name: String,
    /// A time that ends now, such as 10m, 1h, 8h, 1d or 7d [default: 10m]
    #[arg(long, value_name = "TIME", conflicts_with = "from")]
    window: Option<String>,
    /// From this time on: RFC 3339, or seconds since 1970
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Up to this time [default: now]
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Steps, at most [default: 600]
    #[arg(long, value_name = "N")]
    points: Option<u64>,
    /// Only these figures, with commas between them
    #[arg(long, value_name = "NAMES")]
    series: Option<String>,
    /// Print a line for each step, with commas between the figures
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// `forebay volume stats`: prints a volume's figures over time.
pub fn stats(client: &Client, json: bool, args: &StatsArgs) -> Result<bool> {
    let points = args.points.map(|points| points.to_string());
    let time = [("window", &args.window), ("from", &args.from), ("to", &args.to)];
    let figures = [("points", &points), ("series", &args.series)];
    let history = crate::client::volume_path(&args.name, &format!("/history{}", query(time.iter().chain(&figures))));
    let mut answer = client.call("GET", &history, None)?;
    if args.csv {
        let history = serde_json::from_value(answer).context(OTHER)?;
        print!("{}", csv(&history, args.series.as_deref()));
        return Ok(true);
    }
    let measured = crate::client::volume_path(&args.name, &format!("/heatmap{}", query(time.iter())));
    let measured = client.call("GET", &measured, None)?;
    if json {
        for name in ["legs", "flush", "zero", "destage", "backing_sync"] {
            answer[name] = measured[name].clone();
        }
        println!("{}", serde_json::to_string_pretty(&answer)?);
        return Ok(true);
    }
    let history: History = serde_json::from_value(answer).context(OTHER)?;
    print!("{}{}", table(&args.name, &history), times(&measured));
    Ok(true)
}

fn query<'a>(parameters: impl Iterator<Item = &'a (&'a str, &'a Option<String>)>) -> String {
    let mut text = String::new();
    for (name, value) in parameters {
        if let Some(value) = value {
            let before = if text.is_empty() { '?' } else { '&' };
            let _ = write!(text, "{before}{name}={}", encode(value));
        }
    }
    text
}

/// As a query spells it: whatever might mean something else there is written as its number.
fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b',' | b':' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// A line for each step; the figures in the order in which they were asked for, else by name.
fn csv(history: &History, asked: Option<&str>) -> String {
    let known = |name: &&str| history.series.contains_key(*name);
    let names: Vec<&str> = match asked {
        Some(asked) => asked.split(',').map(str::trim).filter(known).collect(),
        None => history.series.keys().map(String::as_str).collect(),
    };
    let mut text = format!("at,{}\n", names.join(","));
    for (step, at) in history.at.iter().enumerate() {
        text.push_str(&forebay_api::calendar::show_ms(at * 1000));
        for line in names.iter().map(|name| &history.series[*name]) {
            text.push(',');
            if let Some(value) = line.avg.get(step).copied().flatten() {
                let _ = write!(text, "{value}");
            }
        }
        text.push('\n');
    }
    text
}

fn table(name: &str, history: &History) -> String {
    let time = |second: u64| forebay_api::calendar::show_ms(second * 1000);
    let mut text = format!(
        "{name}, {} to {}, in steps of {}\n",
        time(history.from),
        time(history.to),
        show_seconds(history.step_s as f64)
    );
    let _ = writeln!(text, "{:<30} {:>12} {:>12} {:>12} {:>12}", "", "mean", "min", "max", "last");
    for (series, line) in &history.series {
        let known: Vec<f32> = line.avg.iter().copied().flatten().collect();
        let Some(last) = known.last() else { continue };
        let mean = known.iter().map(|value| f64::from(*value)).sum::<f64>() / known.len() as f64;
        let all = |of: &Option<Vec<Option<f32>>>| -> Vec<f32> {
            of.as_ref().map_or_else(|| known.clone(), |of| of.iter().copied().flatten().collect())
        };
        let min = all(&line.min).into_iter().fold(f32::INFINITY, f32::min);
        let max = all(&line.max).into_iter().fold(0.0, f32::max);
        let cells = [mean, f64::from(min), f64::from(max), f64::from(*last)].map(show_figure);
        let _ = writeln!(text, "{series:<30} {:>12} {:>12} {:>12} {:>12}", cells[0], cells[1], cells[2], cells[3]);
    }
    if history.series.values().all(|line| line.avg.iter().all(Option::is_none)) {
        text.push_str("nothing is known of this time\n");
    }
    text
}

/// Four digits, or all that a whole number has.
fn show_figure(value: f64) -> String {
    if value >= 1000.0 || value == value.trunc() {
        format!("{value:.0}")
    } else {
        let digits = if value >= 10.0 { 1 } else { 3 };
        format!("{value:.digits$}")
    }
}

/// The times of all requests of a time, where there were any.
fn times(measured: &Value) -> String {
    let mut rows = Vec::new();
    for side in ["read", "write"] {
        for leg in ["client", "local", "network", "backing", "waiting"] {
            rows.push((format!("{side} {leg}"), &measured["legs"][side][leg]));
        }
    }
    for name in ["flush", "zero", "destage", "backing_sync"] {
        rows.push((name.replace('_', " "), &measured[name]));
    }
    rows.retain(|(_, times)| times["count"].as_u64().unwrap_or(0) > 0);
    if rows.is_empty() {
        return String::new();
    }
    let at =
        |name: &str| measured[name].as_u64().map_or_else(String::new, |at| forebay_api::calendar::show_ms(at * 1000));
    let mut text = format!("\ntimes of requests in us, {} to {}\n", at("from"), at("to"));
    let heads = ["count", "mean", "p50", "p99", "p99.9", "max"].map(|head| format!("{head:>10}"));
    let _ = writeln!(text, "{:<16}{}", "", heads.join(" "));
    for (name, times) in rows {
        let cells = ["count", "mean_us", "p50_us", "p99_us", "p999_us", "max_us"]
            .map(|figure| format!("{:>10}", times[figure].as_f64().map_or_else(String::new, show_figure)));
        let _ = writeln!(text, "{name:<16}{}", cells.join(" "));
    }
    text
}

/// Which events are shown, and how.
#[derive(Args)]
pub struct EventsArgs {
    /// Go on with what happens from now on, until Ctrl-C
    #[arg(long)]
    follow: bool,
    /// Of this volume
    #[arg(long, value_name = "NAME")]
    volume: Option<String>,
    /// Of this kind, such as policy-changed
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Not older than so, such as 1h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// The newest so many [default: 200]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// What events are told in [default: as LC_ALL, LC_MESSAGES, LANG say; with --json: en]
    #[arg(long, value_name = "LANGUAGE")]
    language: Option<Language>,
}

/// Prints the events that `forebay events` was asked for, and goes on with new ones where it is to follow.
pub fn events(client: &Client, json: bool, args: &EventsArgs) -> Result<bool> {
    let limit = args.limit.map(|limit| limit.to_string());
    // Programs compare texts, too: theirs do not depend on who calls them.
    let of_environment = if json { Language::default() } else { Language::of_environment() };
    let language = args.language.unwrap_or(of_environment);
    // A daemon of the version before knows one language, and refuses to be asked for one.
    let spoken = (language != Language::En).then(|| language.word().to_owned());
    let asked = [
        ("window", &args.since),
        ("volume", &args.volume),
        ("kind", &args.kind),
        ("limit", &limit),
        ("language", &spoken),
    ];
    let answer = client.call("GET", &format!("/v1/events{}", query(asked.iter())), None)?;
    let events: Vec<Event> = serde_json::from_value(answer["events"].clone()).context(OTHER)?;
    if json && !args.follow {
        println!("{}", serde_json::to_string_pretty(&answer)?);
        return Ok(true);
    }
    events.iter().try_for_each(|event| show(event, json))?;
    if !args.follow {
        return Ok(true);
    }
    let newest = client.call("GET", "/v1/events?limit=1", None)?;
    let mut last = newest["events"][0]["id"].as_u64().unwrap_or(0);
    let mut lost = false;
    loop {
        let after = Some(last.to_string());
        let asked = [("language", &spoken), ("after", &after)];
        let path = format!("/v1/stream?events=1&points=0&{}", query(asked.iter()).trim_start_matches('?'));
        let followed = client.follow(&path, |message: Message<'_>| {
            lost = false;
            if message.event == "event" {
                let event: Event = message.read().context(OTHER)?;
                last = last.max(event.id);
                let ours = args.volume.is_none() || event.what.volume == args.volume;
                if ours && args.kind.as_ref().is_none_or(|kind| event.what.kind == *kind) {
                    show(&event, json)?;
                }
            }
            Ok(())
        });
        if !std::mem::replace(&mut lost, true) {
            let why = followed.err().map_or_else(|| "it has ended".to_owned(), |error| format!("{error:#}"));
            eprintln!("forebay: the daemon's stream was lost ({why}); trying again");
        }
        std::thread::sleep(RETRY);
    }
}

fn show(event: &Event, json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(event)?)?;
    } else {
        let (on, off) = match (event.what.severity, out.is_terminal()) {
            (Severity::Error, true) => ("\x1b[31m", "\x1b[0m"),
            (Severity::Warning, true) => ("\x1b[33m", "\x1b[0m"),
            (Severity::Info, _) | (_, false) => ("", ""),
        };
        let severity = match event.what.severity {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let whose = event.what.volume.as_deref().unwrap_or(&event.node);
        writeln!(out, "{}  {on}{severity:<7}{off}  {:<17} {whose}: {}", event.at, event.what.kind, event.what.text)?;
    }
    out.flush().context("cannot write to the output")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::history::Line;

    fn history() -> History {
        let line = |avg: &[Option<f32>]| Line { avg: avg.to_vec(), min: None, max: None };
        let series = [
            ("read_iops".to_owned(), line(&[Some(1.5), None, Some(3.0)])),
            ("write_iops".to_owned(), line(&[None, None, Some(1234.5)])),
        ];
        let at = vec![1_700_000_000, 1_700_000_001, 1_700_000_002];
        History { volume: None, node: None, from: at[0], to: at[2] + 1, step_s: 1, at, series: series.into() }
    }

    #[test]
    fn csv_has_a_line_for_each_step_and_gaps_are_empty() {
        let text = csv(&history(), None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "at,read_iops,write_iops");
        assert_eq!(lines[1], "2023-11-14T22:13:20.000Z,1.5,");
        let asked = csv(&history(), Some("write_iops, read_iops,unknown"));
        assert!(asked.starts_with("at,write_iops,read_iops\n2023-11-14T22:13:20.000Z,,1.5\n"), "{asked}");
        assert_eq!(lines[2], "2023-11-14T22:13:21.000Z,,");
        assert_eq!(lines[3], "2023-11-14T22:13:22.000Z,3,1234.5");
    }

    #[test]
    fn table_has_what_is_known() {
        let text = table("vm1", &history());
        let row: Vec<&str> =
            text.lines().find(|line| line.starts_with("read_iops")).unwrap().split_whitespace().collect();
        assert_eq!(row, ["read_iops", "2.250", "1.500", "3", "3"]);
        let mut nothing = history();
        nothing.series.values_mut().for_each(|line| line.avg = vec![None; 3]);
        assert!(table("vm1", &nothing).contains("nothing is known"));
    }

    #[test]
    fn a_query_cannot_become_another_one() {
        let value = Some("1h&points=9 #".to_owned());
        assert_eq!(query([("window", &value), ("from", &None)].iter()), "?window=1h%26points%3D9%20%23");
    }
}
