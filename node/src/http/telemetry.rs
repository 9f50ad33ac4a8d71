//! What is seen, over HTTP: the fleet at a glance, history, events, and all of it live.

use super::{Failed, Outcome, cluster_of, ok};
use crate::events::{Filter, spoken};
use crate::history::query::{POINTS_MAX, Query as Asked, SERIES_ASKED_MAX, WINDOW_MAX_S};
use crate::node::Node;
use crate::telemetry::{Interest, READER_VOLUMES_MAX};
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_api::calendar;
use forebay_api::cluster::ClusterNodeReport;
use forebay_api::events::Event;
use forebay_api::history::format::Owner;
use forebay_api::history::pictures::Picture;
use forebay_api::history::series::{Kind, Values};
use forebay_api::sentence::Language;
use forebay_api::status::{Degraded, NodeReport, VolumeReport};
use forebay_core::stats::{HeatMap, Histogram, LATENCY_CLASSES, Legs, MissRatio, SIZE_CLASSES, Shares, Stats};
use forebay_doctor::peer::compare::{Compared, compare};
use forebay_doctor::peer::{BothEnds, Silence};
use hyper::body::{Body, Frame};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// Events of one answer.
const EVENTS_MAX: usize = 1000;
/// Events of an answer that names no limit.
const EVENTS_DEFAULT: usize = 200;
/// Steps of an answer that names no number of points.
const POINTS_DEFAULT: u64 = 600;
const WINDOW_DEFAULT_S: u64 = 600;

fn invalid(message: impl Into<String>) -> Failed {
    Failed(StatusCode::BAD_REQUEST, message.into())
}

// --- the fleet ---

type Figures = BTreeMap<&'static str, f32>;

/// A volume with its figures of the last second.
#[derive(Serialize)]
struct FleetVolume {
    #[serde(flatten)]
    report: VolumeReport,
    now: Figures,
}

/// A node: what it says of itself, if it is this one, and what the cluster knows of it, if there is one.
#[derive(Serialize)]
struct FleetNode {
    name: String,
    own: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<NodeReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<ClusterNodeReport>,
    now: Figures,
}

#[derive(Serialize)]
struct Fleet {
    at: u64,
    nodes: Vec<FleetNode>,
    volumes: Vec<FleetVolume>,
    degraded: Vec<Degraded>,
    totals: serde_json::Value,
}

/// What an answer is to be in. Nothing else is asked of it, so that whatever else is said changes nothing.
#[derive(Deserialize)]
pub(super) struct Speech {
    language: Option<Language>,
}

/// The language that was asked for; without a word the one of an `Accept-Language`, else English.
fn language(asked: Option<Language>, headers: &HeaderMap) -> Language {
    let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|accepted| accepted.to_str().ok());
    asked.or_else(|| accepted.and_then(Language::accepted)).unwrap_or_default()
}

/// Everything at a glance: one answer for a page, a terminal or a report to begin with.
pub(super) async fn fleet(
    State(node): State<Arc<Node>>,
    headers: HeaderMap,
    asked: Result<Query<Speech>, QueryRejection>,
) -> Outcome {
    let Query(asked) = asked.map_err(|rejection| invalid(rejection.body_text()))?;
    let language = language(asked.language, &headers);
    let latest = node.telemetry().latest();
    let reports = node.reports().await;
    let mut nodes = vec![FleetNode {
        name: node.telemetry().name(),
        own: true,
        report: Some(node.node_report()),
        cluster: None,
        now: figures(Kind::Node, &latest.node),
    }];
    if let Some(cluster) = node.cluster() {
        for report in cluster.node_reports().await {
            let (name, own) = (report.name.clone(), report.own);
            match own {
                true => nodes[0].cluster = Some(report),
                false => {
                    let now = Figures::default();
                    nodes.push(FleetNode { name, own, report: None, cluster: Some(report), now });
                }
            }
        }
    }
    let sum = |figure: fn(&VolumeReport) -> u64| reports.iter().map(figure).sum::<u64>();
    let rate = |name: &str| {
        let place = Kind::Volume.place(name).expect("a name of the list");
        latest.volumes.values().map(|values| values[place]).filter(|value| value.is_finite()).sum::<f32>()
    };
    let totals = serde_json::json!({
        "volumes": reports.len(),
        "size_bytes": sum(|v| v.size_bytes),
        "tier_bytes": sum(|v| v.tier.size_bytes),
        "dirty_bytes": sum(|v| v.dirty.bytes),
        "connections": sum(|v| u64::from(v.connections)),
        "read_iops": rate("read_iops"),
        "write_iops": rate("write_iops"),
        "read_bytes_per_s": rate("read_bytes_per_s"),
        "write_bytes_per_s": rate("write_bytes_per_s"),
        "destage_bytes_per_s": rate("destage_bytes_per_s"),
        "degraded": latest.degraded.len(),
    });
    let now = |name: &str| latest.volumes.get(name).map(|values| figures(Kind::Volume, values)).unwrap_or_default();
    let volumes: Vec<FleetVolume> =
        reports.into_iter().map(|report| FleetVolume { now: now(&report.name), report }).collect();
    let degraded = latest.degraded.iter().map(|found| found.spoken(language)).collect();
    in_language(Fleet { at: latest.at, nodes, volumes, degraded, totals })
}

/// An answer in a language, as whoever keeps answers must know.
fn in_language(answer: impl Serialize) -> Outcome {
    let mut response = ok(answer)?;
    response.headers_mut().insert(header::VARY, header::HeaderValue::from_static("Accept-Language"));
    Ok(response)
}

fn figures(kind: Kind, values: &Values) -> Figures {
    kind.names().iter().copied().zip(values.iter().copied()).filter(|(_, value)| value.is_finite()).collect()
}

// --- history ---

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Window {
    window: Option<String>,
    from: Option<String>,
    to: Option<String>,
    points: Option<u64>,
    series: Option<String>,
}

/// `10m`, `8h`, `7d`: a window that ends now.
fn parse_window(text: &str) -> Result<u64, Failed> {
    let refuse = || {
        invalid(format!(
            "window {text:?}: write a whole number with s, m, h or d, such as 10m, 8h or 7d, of at most {} d",
            WINDOW_MAX_S / 86400
        ))
    };
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match &text[digits..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => return Err(refuse()),
    };
    let seconds = text[..digits].parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    seconds.filter(|seconds| (1..=WINDOW_MAX_S).contains(seconds)).ok_or_else(refuse)
}

/// From when to when, in seconds since 1970.
fn range(window: Option<&str>, from: Option<&str>, to: Option<&str>, now: u64) -> Result<(u64, u64), Failed> {
    let time = |text: &str| calendar::parse(text).map_err(|error| invalid(error.to_string()));
    let to = to.map(time).transpose()?.unwrap_or(now);
    let from = match (window, from) {
        (Some(_), Some(_)) => return Err(invalid("give a window, or from and to, not both")),
        (Some(window), None) => to.saturating_sub(parse_window(window)?),
        (None, Some(from)) => time(from)?,
        (None, None) => to.saturating_sub(WINDOW_DEFAULT_S),
    };
    if from >= to {
        return Err(invalid(format!("from ({from}) is not before to ({to})")));
    }
    if to - from > WINDOW_MAX_S {
        return Err(invalid(format!("a time of {} s is longer than {WINDOW_MAX_S} s, the most", to - from)));
    }
    Ok((from, to))
}

fn asked(kind: Kind, window: &Window, now: u64) -> Result<Asked, Failed> {
    let (from, to) = range(window.window.as_deref(), window.from.as_deref(), window.to.as_deref(), now)?;
    let points = window.points.unwrap_or(POINTS_DEFAULT);
    let mut names: Vec<&str> = match &window.series {
        Some(list) => list.split(',').filter(|name| !name.is_empty()).collect(),
        None => kind.names().to_vec(),
    };
    if names.len() > SERIES_ASKED_MAX || !(1..=POINTS_MAX).contains(&points) {
        return Err(invalid(format!(
            "{} series and {points} points: a request has at most {SERIES_ASKED_MAX} series and 1 to {POINTS_MAX} points",
            names.len()
        )));
    }
    names.sort_unstable();
    names.dedup();
    let place = |name: &str| {
        kind.place(name)
            .ok_or_else(|| invalid(format!("there is no series {name:?}; there are {}", kind.names().join(", "))))
    };
    let series = names.into_iter().map(place).collect::<Result<_, _>>()?;
    Ok(Asked { from, to, points, series })
}

type Limits = Result<Query<Window>, QueryRejection>;

async fn history(node: Arc<Node>, owner: Owner, window: Limits) -> Result<forebay_api::history::History, Failed> {
    let Query(window) = window.map_err(|rejection| invalid(rejection.body_text()))?;
    let now = calendar::now_ms() / 1000;
    let asked = asked(owner.series(), &window, now)?;
    read_files(move || node.telemetry().history(&owner, &asked, now)).await
}

/// Away from the control thread, which a slow disk would stop.
async fn read_files<T: Send + 'static>(read: impl FnOnce() -> anyhow::Result<T> + Send + 'static) -> Result<T, Failed> {
    match tokio::task::spawn_blocking(read).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(Failed(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot read the history: {error:#}"))),
        Err(_) => Err(Failed(StatusCode::INTERNAL_SERVER_ERROR, "reading the history panicked; this is a bug".into())),
    }
}

pub(super) async fn of_volume(State(node): State<Arc<Node>>, Path(name): Path<String>, window: Limits) -> Outcome {
    let owner = Owner::volume(node.identity(&name)?.0);
    let mut history = history(node, owner, window).await?;
    history.volume = Some(name);
    ok(history)
}

pub(super) async fn of_node(State(node): State<Arc<Node>>, Path(name): Path<String>, window: Limits) -> Outcome {
    let own = node.telemetry().name();
    if name != own {
        let message = format!("this node is {own} and keeps no history of {name}; ask that node");
        return Err(Failed(StatusCode::NOT_FOUND, message));
    }
    let mut history = history(node, Owner::NODE, window).await?;
    history.node = Some(name);
    ok(history)
}

// --- what was measured ---

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PictureTime {
    window: Option<String>,
    from: Option<String>,
    to: Option<String>,
}

/// A cache of this many parts of sixteen of the one that there is.
const CURVE_SIXTEENTHS: [u64; 14] = [1, 2, 4, 6, 8, 12, 16, 24, 32, 40, 48, 64, 96, 128];

async fn picture(
    node: Arc<Node>,
    name: &str,
    time: Result<Query<PictureTime>, QueryRejection>,
) -> Result<Option<Picture>, Failed> {
    let Query(time) = time.map_err(|rejection| invalid(rejection.body_text()))?;
    let now = calendar::now_ms() / 1000;
    let (from, to) = range(time.window.as_deref(), time.from.as_deref(), time.to.as_deref(), now)?;
    let volume = node.identity(name)?;
    read_files(move || node.telemetry().picture(volume, from, to)).await
}

pub(super) async fn heat_map(
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    time: Result<Query<PictureTime>, QueryRejection>,
) -> Outcome {
    let picture = picture(node, &name, time).await?;
    let (from, to) = picture.as_ref().map_or((None, None), |picture| (Some(picture.from), Some(picture.to)));
    let seen = picture.map_or_else(|| Stats::new(0), |picture| picture.seen);
    let shares = |shares: Shares| {
        serde_json::json!({
            "requests": shares.sequential,
            "bytes": shares.sequential_bytes,
            "random_requests": shares.random,
            "random_bytes": shares.random_bytes,
            "ratio": shares.sequential_ratio(),
        })
    };
    let (reads, writes) = (seen.streams.reads(), seen.streams.writes());
    let mut both = reads;
    both.merge(&writes);
    ok(serde_json::json!({
        "volume": name,
        "from": from,
        "to": to,
        "sizes": (0..SIZE_CLASSES).map(HeatMap::size_bytes).collect::<Vec<_>>(),
        "latencies_us": (0..LATENCY_CLASSES).map(HeatMap::latency_us).collect::<Vec<_>>(),
        "reads": seen.heat.reads().iter().map(|row| row.to_vec()).collect::<Vec<_>>(),
        "writes": seen.heat.writes().iter().map(|row| row.to_vec()).collect::<Vec<_>>(),
        "sequential": { "ratio": both.sequential_ratio(), "reads": shares(reads), "writes": shares(writes) },
        "legs": { "read": legs(&seen.reads), "write": legs(&seen.writes) },
        "flush": times(&seen.flush),
        "zero": times(&seen.zeros),
        "destage": times(&seen.destage),
        "backing_sync": times(&seen.backing_sync),
    }))
}

fn legs(legs: &Legs) -> serde_json::Value {
    serde_json::json!({
        "client": times(&legs.client),
        "local": times(&legs.local),
        "network": times(&legs.network),
        "backing": times(&legs.backing),
        "waiting": times(&legs.waiting),
    })
}

fn times(histogram: &Histogram) -> serde_json::Value {
    serde_json::json!({
        "count": histogram.count(),
        "mean_us": histogram.mean_us(),
        "p50_us": histogram.percentile(50.0),
        "p90_us": histogram.percentile(90.0),
        "p99_us": histogram.percentile(99.0),
        "p999_us": histogram.percentile(99.9),
        "max_us": histogram.max_us(),
    })
}

pub(super) async fn miss_ratio(
    State(node): State<Arc<Node>>,
    Path(name): Path<String>,
    time: Result<Query<PictureTime>, QueryRejection>,
) -> Outcome {
    let picture = picture(node, &name, time).await?;
    let (from, to) = picture.as_ref().map_or((None, None), |picture| (Some(picture.from), Some(picture.to)));
    let curve = picture.map(|picture| picture.seen.miss_ratio);
    let cache_bytes = curve.as_ref().map(MissRatio::cache_bytes);
    let point = |curve: &MissRatio, bytes: u64| serde_json::json!({ "cache_bytes": bytes, "hit_ratio": curve.hit_ratio(bytes) });
    let points = curve.iter().flat_map(|curve| {
        let sizes = CURVE_SIXTEENTHS.iter().map(|parts| curve.cache_bytes() / 16 * parts);
        sizes.filter(|&bytes| bytes <= curve.deepest_bytes()).map(|bytes| point(curve, bytes)).collect::<Vec<_>>()
    });
    ok(serde_json::json!({
        "volume": name,
        "from": from,
        "to": to,
        "cache_bytes": cache_bytes,
        "points": points.collect::<Vec<_>>(),
        "working_set_bytes": curve.as_ref().and_then(MissRatio::working_set_bytes),
        "deepest_bytes": curve.as_ref().map(MissRatio::deepest_bytes),
        "blocks_read": curve.as_ref().map_or(0, MissRatio::blocks_read),
    }))
}

// --- events ---

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsAsked {
    window: Option<String>,
    from: Option<String>,
    to: Option<String>,
    volume: Option<String>,
    kind: Option<String>,
    after: Option<u64>,
    limit: Option<usize>,
    language: Option<Language>,
}

pub(super) async fn events(
    State(node): State<Arc<Node>>,
    headers: HeaderMap,
    asked: Result<Query<EventsAsked>, QueryRejection>,
) -> Outcome {
    let Query(asked) = asked.map_err(|rejection| invalid(rejection.body_text()))?;
    let limit = asked.limit.unwrap_or(EVENTS_DEFAULT);
    if !(1..=EVENTS_MAX).contains(&limit) {
        return Err(invalid(format!("limit {limit}: an answer has 1 to {EVENTS_MAX} events")));
    }
    let time = |text: &String| calendar::parse(text).map_err(|error| invalid(error.to_string()));
    let from = match (&asked.window, &asked.from) {
        (Some(_), Some(_)) => return Err(invalid("give a window, or from and to, not both")),
        (Some(window), None) => Some((calendar::now_ms() / 1000).saturating_sub(parse_window(window)?)),
        (None, from) => from.as_ref().map(time).transpose()?,
    };
    let to = asked.to.as_ref().map(time).transpose()?;
    let filter = Filter { from, to, volume: asked.volume, kind: asked.kind, after: asked.after };
    let language = language(asked.language, &headers);
    let found = node.telemetry().events(&filter, limit).into_iter();
    let events: Vec<Event> = found.map(|event| spoken(event, language)).collect();
    in_language(serde_json::json!({ "events": events }))
}

// --- the host ---

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DoctorAsked {
    #[serde(default)]
    fresh: bool,
    language: Option<Language>,
}

/// What bounds or endangers this host: as it was at the last look, or looked at now.
pub(super) async fn doctor(
    State(node): State<Arc<Node>>,
    headers: HeaderMap,
    asked: Result<Query<DoctorAsked>, QueryRejection>,
) -> Outcome {
    let Query(asked) = asked.map_err(|rejection| invalid(rejection.body_text()))?;
    let language = language(asked.language, &headers);
    let (round, problem) = match node.doctor().last().filter(|_| !asked.fresh) {
        Some(last) => (last, node.doctor().problem()),
        None => match node.doctor().look(node.telemetry()).await {
            Ok(round) => (round, None),
            Err(why) => return Err(Failed(StatusCode::INTERNAL_SERVER_ERROR, why)),
        },
    };
    in_language(round.told(language, problem))
}

/// The links to another node, seen from both ends.
#[derive(Serialize)]
struct TwoEnded {
    #[serde(flatten)]
    sides: BothEnds,
    #[serde(flatten)]
    compared: Compared,
}

pub(super) async fn doctor_of_peer(State(node): State<Arc<Node>>, Path(name): Path<String>) -> Outcome {
    let cluster = cluster_of(&node)?;
    let mut sides = cluster.both_ends(&name).await?;
    if let Some(Silence::NoAnswer { linked: false, down_since, .. }) = &mut sides.silence {
        *down_since = down_since_of(&node, &name);
    }
    let compared = compare(&sides, Language::En);
    ok(TwoEnded { sides, compared })
}

/// Since when the link to a node is down, if this node has seen that.
fn down_since_of(node: &Node, name: &str) -> Option<String> {
    let of = |kind: &str| {
        let filter = Filter { kind: Some(kind.to_owned()), ..Filter::default() };
        let mut events = node.telemetry().events(&filter, usize::MAX).into_iter();
        events.rfind(|event| event.what.details.get("peer").is_some_and(|peer| peer == name))
    };
    let down = of("link-down")?;
    of("link-up").is_none_or(|up| up.id < down.id).then_some(down.at)
}

// --- live ---

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamAsked {
    volumes: Option<String>,
    #[serde(default)]
    events: u8,
    points: Option<u8>,
    /// What `Last-Event-ID` says, for whoever cannot set a header.
    after: Option<u64>,
    language: Option<Language>,
}

/// Messages that are sent as they come.
struct Live(mpsc::Receiver<Bytes>);

impl Body for Live {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|message| message.map(|bytes| Ok(Frame::data(bytes))))
    }
}

pub(super) async fn stream(
    State(node): State<Arc<Node>>,
    headers: HeaderMap,
    asked: Result<Query<StreamAsked>, QueryRejection>,
) -> Outcome {
    let Query(asked) = asked.map_err(|rejection| invalid(rejection.body_text()))?;
    let volumes = asked.volumes.map(|list| list.split(',').map(str::to_owned).collect::<Vec<_>>());
    if volumes.as_ref().is_some_and(|names| names.len() > READER_VOLUMES_MAX) {
        return Err(invalid(format!("name at most {READER_VOLUMES_MAX} volumes, or none to have all")));
    }
    for name in volumes.iter().flatten() {
        node.identity(name)?;
    }
    let last_seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
    let interest = Interest {
        volumes,
        events: asked.events != 0,
        without_points: asked.points == Some(0),
        language: language(asked.language, &headers),
    };
    let Some(messages) = node.telemetry().watch(interest, last_seen.or(asked.after)) else {
        let message = format!("there are {} readers of the stream already", crate::telemetry::READERS_MAX);
        return Err(Failed(StatusCode::SERVICE_UNAVAILABLE, message));
    };
    let body = axum::body::Body::new(Live(messages));
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    Ok(response.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn window(window: Option<&str>, from: Option<&str>, to: Option<&str>) -> Window {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Window { window: owned(window), from: owned(from), to: owned(to), points: None, series: None }
    }

    fn refusal(window: Window) -> String {
        asked(Kind::Volume, &window, NOW).expect_err("it cannot be meant").1
    }

    #[test]
    fn windows_and_times_are_taken_and_the_rest_is_refused() {
        let of = |given| asked(Kind::Volume, &given, NOW).map(|asked| (asked.from, asked.to)).unwrap();
        assert_eq!(of(window(Some("8h"), None, None)), (NOW - 8 * 3600, NOW));
        assert_eq!(of(window(None, None, None)), (NOW - 600, NOW));
        assert_eq!(of(window(None, Some("2023-11-14T22:00:00Z"), Some("1699999800"))), (1_699_999_200, 1_699_999_800));
        assert_eq!(of(window(Some("60d"), None, None)), (NOW - 60 * 86400, NOW));
        for bad in ["", "8", "0m", "-5m", "10x", "61d", "99999999999999999999d", "1.5h"] {
            assert!(refusal(window(Some(bad), None, None)).contains("such as 10m"), "{bad:?}");
        }
        assert!(refusal(window(Some("1h"), Some("5"), None)).contains("not both"));
        assert!(refusal(window(None, Some("20"), Some("10"))).contains("not before"));
        assert!(refusal(window(None, Some("0"), None)).contains("longer"));
        assert!(refusal(window(None, Some("yesterday"), None)).contains("RFC 3339"));
    }

    #[test]
    fn too_many_series_or_points_and_unknown_ones_are_refused_with_the_limits() {
        let many = (0..10_000).map(|n| format!("s{n}")).collect::<Vec<_>>().join(",");
        let message = refusal(Window { series: Some(many), ..window(None, None, None) });
        assert!(message.contains("10000 series") && message.contains("64") && message.contains("2000"), "{message}");
        for points in [0, 2001, u64::MAX] {
            let message = refusal(Window { points: Some(points), ..window(None, None, None) });
            assert!(message.contains("2000 points"), "{message}");
        }
        let message = refusal(Window { series: Some("read_iops,latency".into()), ..window(None, None, None) });
        assert!(message.contains("\"latency\"") && message.contains("write_iops"), "{message}");
    }
}
