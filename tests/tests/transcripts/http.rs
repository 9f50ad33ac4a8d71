//! HTTP of one node: every route, who may call it, and what it refuses; and the metrics.

use super::{MINUTE, commands, is_root, one_volume, transcript_of, wait_until};
use forebay_tests::curl::{curl, free_address};
use forebay_tests::harness::{TempDir, Volume};
use forebay_tests::nbd::Client;
use forebay_tests::transcript::{Json, Transcript, hash};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

const OPEN_METRICS: &str = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
/// Headers that are on every answer; an answer that has others is told with them.
const USUAL: [&str; 8] = [
    "content-security-policy",
    "x-content-type-options",
    "x-frame-options",
    "referrer-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "content-length",
    "date",
];

/// How much of a body is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    /// All of it.
    Whole,
    /// JSON: which kinds of values are where.
    Shape,
    /// Nothing, for it is a page of the dashboard.
    Nothing,
}

/// One daemon that is asked over TCP.
struct Asked {
    transcript: Transcript,
    address: String,
    token: String,
    usual: Vec<(String, String)>,
    /// Methods and paths that were asked for, as the description of the API has them.
    called: BTreeSet<(String, String)>,
}

impl Asked {
    /// With the token that may change everything.
    fn ask(&mut self, method: &str, path: &str, body: Option<&str>, told: Told) {
        let token = format!("Authorization: Bearer {}", self.token);
        self.ask_with(method, path, body, told, &[&token]);
    }

    fn ask_with(&mut self, method: &str, path: &str, body: Option<&str>, told: Told, headers: &[&str]) {
        let url = format!("http://{}{path}", self.address);
        let mut words = vec!["--request", method, &url];
        for header in headers {
            words.extend(["--header", header]);
        }
        if let Some(body) = body {
            words.extend(["--header", "Content-Type: application/json", "--data", body]);
        }
        if method == "HEAD" {
            words = vec!["--head", &url];
        }
        self.called.insert((method.to_lowercase(), path.split('?').next().unwrap_or_default().to_owned()));
        let answer = curl(&words);
        self.transcript.line(&format!("\n> {method} {path}"));
        for header in headers {
            self.transcript.line(&format!("> {header}"));
        }
        self.transcript.lines(">", body.unwrap_or_default());
        self.transcript.line(&format!("< {}", answer.status));
        let mut heads: Vec<(String, String)> = answer
            .head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
            .collect();
        heads.sort();
        let (usual, others): (Vec<_>, Vec<_>) = heads.into_iter().partition(|(name, _)| USUAL.contains(&name.as_str()));
        let usual: Vec<_> = usual.into_iter().filter(|(name, _)| name != "content-length" && name != "date").collect();
        if self.usual != usual {
            usual.iter().for_each(|(name, value)| self.transcript.line(&format!("< {name}: {value}")));
            self.usual = usual;
        }
        others.iter().for_each(|(name, value)| self.transcript.line(&format!("< {name}: {value}")));
        self.body(&answer.body, told);
    }

    fn body(&mut self, body: &str, told: Told) {
        let parsed = Json::parse(body).filter(|value| matches!(value, Json::List(_) | Json::Fields(_)));
        match (told, parsed) {
            (Told::Nothing, _) => {}
            (Told::Whole, Some(value)) => self.transcript.json("|", &value.sorted()),
            (Told::Shape, Some(value)) => {
                let shape = value.sorted().shape(&[]);
                shape.pretty().lines().for_each(|line| self.transcript.line(&format!("| {line}")));
            }
            (Told::Whole | Told::Shape, None) => self.transcript.lines("|", body),
        }
    }

    fn get(&mut self, path: &str) {
        self.ask_with("GET", path, None, Told::Whole, &[]);
    }

    fn shape(&mut self, path: &str) {
        self.ask_with("GET", path, None, Told::Shape, &[]);
    }
}

fn reading(asked: &mut Asked) {
    asked.transcript.part("what is read");
    for path in ["/", "/login", "/assets/nothing.js"] {
        asked.ask_with("GET", path, None, Told::Nothing, &[]);
    }
    asked.get("/v1/login");
    asked.ask("GET", "/v1/login", None, Told::Whole);
    asked.get("/v1/status");
    asked.get("/v1/volumes");
    asked.get("/v1/volumes/vm1");
    asked.ask_with("HEAD", "/v1/volumes", None, Told::Whole, &[]);
    for path in ["/v1/volumes/nothing", "/v1/volumes/..", "/v1/nothing", "/v1/nodes", "/v1/audit"] {
        asked.get(path);
    }
    asked.transcript.part("what is seen");
    asked.shape("/v1/fleet");
    asked.shape("/v1/volumes/vm1/history?window=1m&points=10");
    // Of a time before anything was: what of the present is told by whole minutes is a matter of the moment.
    asked.shape("/v1/volumes/vm1/heatmap?from=1000&to=2000");
    asked.shape("/v1/volumes/vm1/miss-ratio?from=1000&to=2000");
    let node = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a machine has a name");
    asked.shape(&format!("/v1/nodes/{}/history?window=1m&points=10", node.trim()));
    asked.get("/v1/events?kind=volume-created&limit=1");
    asked.shape("/v1/events?limit=1000");
    asked.ask_with("GET", "/v1/doctor", None, Told::Nothing, &[]);
    asked.transcript.part("what is asked wrongly");
    for path in [
        "/v1/volumes/nothing/history",
        "/v1/volumes/nothing/heatmap",
        "/v1/volumes/nothing/miss-ratio",
        "/v1/nodes/nothing/history",
        "/v1/volumes/vm1/history?window=1x",
        "/v1/volumes/vm1/history?window=1m&from=0",
        "/v1/volumes/vm1/history?points=0",
        "/v1/volumes/vm1/history?series=nothing",
        "/v1/volumes/vm1/history?nothing=1",
        "/v1/volumes/vm1/heatmap?window=0",
        "/v1/volumes/vm1/miss-ratio?from=x",
        "/v1/events?limit=0",
        "/v1/events?limit=1001",
        "/v1/events?window=1x",
        "/v1/events?window=8",
        "/v1/events?language=xx",
        "/v1/fleet?language=xx",
        "/v1/events?nothing=1",
        "/v1/stream?points=x",
        "/v1/doctor/peers/beta",
        "/v1/doctor?language=xx",
    ] {
        asked.get(path);
    }
}

fn changing(asked: &mut Asked, folder: &TempDir) {
    let image = folder.join("second.img");
    let image = image.to_str().expect("a plain path");
    asked.transcript.part("what is changed");
    let spec = |more: &str| format!("{{\"name\": \"second\", \"backing\": \"{image}\"{more}}}");
    let made = spec(", \"size\": \"32M\", \"create\": true, \"tier_size\": 67108864");
    asked.ask("POST", "/v1/volumes", Some(&made), Told::Whole);
    let at = "/v1/volumes/second";
    let cases: [(&str, &str, Option<&str>); 24] = [
        ("PATCH", "", Some("{\"policy\": \"through\"}")),
        ("PATCH", "", Some("{\"drain_max_s\": 30, \"destage\": \"ordered\", \"clients\": [\"dns:a.lab\"]}")),
        ("PATCH", "", Some("{\"policy\": \"back\", \"clients\": \"any\"}")),
        ("PATCH", "", Some("{}")),
        ("PATCH", "", Some("{\"policy\": \"sideways\"}")),
        ("PATCH", "", Some("{\"nothing\": 1}")),
        ("PATCH", "", Some("{\"peers\": 1}")),
        ("PATCH", "", Some("{\"tier\": \"memory\"}")),
        ("PATCH", "", Some("{\"policy\": ")),
        ("PATCH", "", None),
        ("POST", "/resize", Some("{\"size_bytes\": 50331648}")),
        ("POST", "/resize", Some("{\"size_bytes\": 1048576}")),
        ("POST", "/resize", Some("{\"size_bytes\": -1}")),
        ("POST", "/resize", Some("{}")),
        ("POST", "/drain", None),
        ("POST", "/drain", Some("{\"through\": true}")),
        ("POST", "/release", None),
        ("POST", "/release", None),
        ("POST", "/drain", Some("{\"through\": 1}")),
        ("POST", "/hold", Some("{\"seconds\": 600}")),
        ("POST", "/drain", None),
        ("POST", "/release", None),
        ("POST", "/hold", Some("{\"seconds\": 0}")),
        ("POST", "/hold", Some("{}")),
    ];
    for (method, path, body) in cases {
        asked.ask(method, &format!("{at}{path}"), body, Told::Whole);
    }
    asked.transcript.part("what is not made");
    for body in [
        made.clone(),
        made.replace("second", "third"),
        spec(""),
        spec(", \"size\": \"many\""),
        spec(", \"nothing\": 1"),
        "{}".to_owned(),
        "[]".to_owned(),
        "{".to_owned(),
        made.replace("\"second\"", "\"a/b\""),
        "{\"name\": \"fourth\", \"backing\": \"/etc/passwd\"}".to_owned(),
    ] {
        asked.ask("POST", "/v1/volumes", Some(&body), Told::Whole);
    }
    asked.ask("POST", "/v1/volumes", None, Told::Whole);
}

fn of_a_cluster(asked: &mut Asked) {
    asked.transcript.part("what only a cluster has");
    let cases: [(&str, &str, Option<&str>); 24] = [
        ("POST", "/v1/volumes/second/hand-over", Some("{\"to\": \"beta\"}")),
        ("POST", "/v1/volumes/second/hand-over", Some("{}")),
        ("POST", "/v1/volumes/second/open", Some("{}")),
        ("POST", "/v1/volumes/second/open", Some("{\"accept_loss\": true}")),
        ("POST", "/v1/volumes/second/open", Some("{\"take_synced\": true}")),
        (
            "POST",
            "/v1/volumes/second/open",
            Some(
                "{\"accept_loss\": true, \"yes_lose_acknowledged_writes\": true, \"take_synced\": true, \"yes_lose_unsynced_writes\": true}",
            ),
        ),
        ("POST", "/v1/volumes/second/open", Some("{\"accept_loss\": true, \"yes_lose_acknowledged_writes\": true}")),
        ("POST", "/v1/volumes/second/fenced", Some("{\"i_fenced\": [\"alpha@5\"]}")),
        ("POST", "/v1/volumes/second/fenced", Some("{\"i_fenced\": 1}")),
        ("POST", "/v1/volumes/second/restore-record", Some("{}")),
        ("POST", "/v1/volumes/second/restore-record", Some("{\"yes_the_coordinator_went_back\": true}")),
        (
            "POST",
            "/v1/volumes/second/restore-record",
            Some("{\"yes_the_coordinator_went_back\": true, \"i_saw\": \"x\"}"),
        ),
        ("POST", "/v1/nodes/alpha/evacuate", None),
        ("DELETE", "/v1/nodes/alpha/evacuate", None),
        ("POST", "/v1/nodes/alpha/forget", Some("{}")),
        ("POST", "/v1/nodes/alpha/forget", Some("{\"yes_its_machine_is_gone\": true}")),
        ("POST", "/v1/revocations", Some("{}")),
        ("POST", "/v1/revocations", Some("{\"revocations\": []}")),
        ("POST", "/v1/nodes/alpha/cannot-answer", Some("{}")),
        ("POST", "/v1/nodes/alpha/cannot-answer", Some("{\"yes_what_it_knows_may_be_lost\": true}")),
        ("GET", "/v1/nodes", None),
        ("GET", "/v1/audit", None),
        ("GET", "/v1/doctor/peers/beta", None),
        ("POST", "/v1/nodes/alpha/nothing", None),
    ];
    for (method, path, body) in cases {
        asked.ask(method, path, body, Told::Whole);
    }
}

fn who_may(asked: &mut Asked, read_token: &str) {
    asked.transcript.part("who may");
    let drain = "/v1/volumes/second/drain";
    let admin = format!("Authorization: Bearer {}", asked.token);
    let reader = format!("Authorization: Bearer {read_token}");
    asked.ask_with("POST", drain, None, Told::Whole, &[]);
    asked.ask_with("POST", drain, None, Told::Whole, &["Authorization: Bearer wrong"]);
    asked.ask_with("POST", drain, None, Told::Whole, &["Authorization: Basic wrong"]);
    asked.ask_with("POST", drain, None, Told::Whole, &[&reader]);
    asked.ask_with("GET", "/v1/login", None, Told::Whole, &[&reader]);
    asked.ask_with("GET", "/v1/volumes", None, Told::Nothing, &["Host: rebound.example"]);
    asked.ask_with("GET", "/v1/volumes", None, Told::Whole, &["Host: rebound.example"]);
    asked.ask_with("POST", drain, None, Told::Whole, &[&admin, "Origin: http://elsewhere.example"]);
    asked.ask_with("GET", "/v1/volumes", None, Told::Whole, &["Sec-Fetch-Site: cross-site"]);
    asked.ask_with("PUT", "/v1/volumes", None, Told::Whole, &[&admin]);
    asked.ask_with("POST", "/v1/status", None, Told::Whole, &[&admin]);
    asked.transcript.part("a session");
    let body = format!("{{\"token\": \"{}\"}}", asked.token);
    asked.ask_with("POST", "/v1/login", Some("{\"token\": \"wrong\"}"), Told::Whole, &[]);
    asked.ask_with("POST", "/v1/login", Some("{}"), Told::Whole, &[]);
    asked.ask_with("POST", "/v1/login", Some(&body), Told::Whole, &[]);
    let url = format!("http://{}/v1/login", asked.address);
    let json = "Content-Type: application/json";
    let answer = curl(&["--request", "POST", "--header", json, "--data", &body, &url]);
    let cookie = answer.header("set-cookie").and_then(|cookie| cookie.split(';').next()).expect("a cookie").to_owned();
    asked.transcript.names.know(cookie.split_once('=').expect("a name").1, "<session>");
    let cookie = format!("Cookie: {cookie}");
    asked.ask_with("GET", "/v1/login", None, Told::Whole, &[&cookie]);
    asked.ask_with("POST", drain, None, Told::Whole, &[&cookie]);
    asked.ask_with("POST", drain, None, Told::Nothing, &[&cookie, "X-Forebay: 1"]);
    asked.ask_with("DELETE", "/v1/login", None, Told::Whole, &[&cookie, "X-Forebay: 1"]);
    asked.ask_with("GET", "/v1/login", None, Told::Whole, &[&cookie]);
}

/// The first message of each kind that the stream begins with.
fn stream(asked: &mut Asked, volume: &Volume) {
    asked.transcript.part("the stream");
    asked.called.insert(("get".to_owned(), "/v1/stream".to_owned()));
    let mut socket = UnixStream::connect(volume.api()).expect("the API listens");
    socket.set_read_timeout(Some(MINUTE)).expect("a time limit");
    write!(socket, "GET /v1/stream?points=0&events=1&after=0 HTTP/1.0\r\nHost: localhost\r\n\r\n")
        .expect("it is taken");
    let mut lines = BufReader::new(socket).lines().map(|line| line.expect("it goes on"));
    for line in lines.by_ref().take_while(|line| !line.is_empty()) {
        let skip = ["date:", "content-security", "x-", "referrer", "cross-origin"];
        if !skip.iter().any(|name| line.starts_with(name)) {
            asked.transcript.line(&format!("< {line}"));
        }
    }
    let mut shapes: BTreeMap<String, Json> = BTreeMap::new();
    let mut event = String::new();
    while !(shapes.contains_key("event") && shapes.contains_key("fleet")) {
        let Some(line) = lines.next() else { break };
        if let Some(name) = line.strip_prefix("event:") {
            event = name.trim().to_owned();
        } else if let Some(data) = line.strip_prefix("data:") {
            let shape = Json::parse(data).map(|value| value.sorted().shape(&["nodes", "volumes"]));
            shapes.entry(event.clone()).or_insert(shape.expect("data is JSON"));
        }
    }
    for (event, shape) in shapes {
        asked.transcript.line(&format!("event: {event}"));
        shape.pretty().lines().for_each(|line| asked.transcript.line(&format!("| {line}")));
    }
}

/// Each family with type, help and the names of its labels. Which samples there are depends on the moment; not what they are called.
fn metrics(asked: &mut Asked, format: &[&str]) {
    let url = format!("http://{}/metrics", asked.address);
    let headers = format.iter().flat_map(|header| ["--header", header]);
    let answer = curl(&headers.chain([url.as_str()]).collect::<Vec<_>>());
    asked.called.insert(("get".to_owned(), "/metrics".to_owned()));
    asked.transcript.line(&format!("\n> GET /metrics {}", format.join(" ")));
    asked.transcript.line(&format!("< {} {}", answer.status, answer.header("content-type").unwrap_or_default()));
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in answer.body.lines().filter(|line| !line.starts_with('#')) {
        let sample = line.rsplit_once(' ').map_or(line, |(sample, _)| sample);
        let (name, list) = sample.split_once('{').unwrap_or((sample, ""));
        let names = list.split('"').step_by(2).filter_map(|part| part.trim_start_matches(',').strip_suffix('='));
        labels.entry(name.to_owned()).or_default().insert(names.collect::<Vec<_>>().join(", "));
    }
    for line in answer.body.lines().filter(|line| line.starts_with('#')) {
        asked.transcript.line(line);
        let Some(name) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split(' ').next()) else { continue };
        for suffix in ["", "_total", "_info", "_bucket", "_sum", "_count"] {
            for names in labels.remove(&format!("{name}{suffix}")).into_iter().flatten() {
                asked.transcript.line(&format!("  {name}{suffix} {{{names}}}"));
            }
        }
    }
    assert!(labels.is_empty(), "samples of no family: {labels:?}");
}

/// Every route that the description names was asked for.
fn every_route_was_called(asked: &Asked, described: &serde_json::Value) {
    for (path, methods) in described["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys().filter(|key| *key != "parameters") {
            let parts: Vec<&str> = path.split('/').collect();
            let fits = |(verb, called): &(String, String)| {
                let other: Vec<&str> = called.split('/').collect();
                let same = parts.iter().zip(&other).all(|(a, b)| a == b || a.starts_with('{'));
                verb == method && parts.len() == other.len() && same
            };
            assert!(asked.called.iter().any(fits), "{method} {path} is in no transcript");
        }
    }
}

#[test]
fn http_of_one_node_is_answered_as_recorded() {
    if !is_root() {
        return;
    }
    let folder = TempDir::new("transcripts-http");
    let mut volume = one_volume(&folder);
    volume.http = free_address();
    let daemon = volume.start();
    let mut transcript = transcript_of("http", &folder);
    commands::vary(&mut transcript);
    transcript.names.know(&daemon.pid().to_string(), "<pid>");
    transcript.names.know(&volume.http, "<address>");
    let port = volume.http.rsplit_once(':').expect("a port").1.to_owned();
    transcript.names.know(&port, "<port>");
    let token = |name: &str| std::fs::read_to_string(volume.state().join(name)).expect("a token").trim().to_owned();
    let read_token = token("token-read");
    transcript.names.know(&token("token"), "<token>");
    transcript.names.know(&read_token, "<token to read>");
    let address = volume.http.clone();
    let mut asked = Asked { transcript, address, token: token("token"), usual: Vec::new(), called: BTreeSet::new() };
    let mut client = Client::connect(&volume.target()).expect("it serves");
    client.write(0, &[1; 8192], 0).expect("a reply").expect("it is written");
    client.flush().expect("a reply").expect("it is synced");
    drop(client);
    daemon.drain();
    wait_until("the first look of the doctor, and the history to have begun", || {
        let seen = volume.get_json("/v1/fleet");
        daemon.show()["connections"] == 0
            && volume.get_json("/v1/status").get("doctor").is_some()
            && seen["volumes"][0]["now"].as_object().is_some_and(|now| now.len() > 5)
    });
    let described = curl(&[&format!("http://{}/v1/openapi.json", asked.address)]);
    asked.transcript.part("the description of the API");
    asked.called.insert(("get".to_owned(), "/v1/openapi.json".to_owned()));
    let text = asked.transcript.names.settle(&described.body);
    asked.transcript.line(&format!("{} {}", described.header("content-type").unwrap_or_default(), hash(&text)));
    for (path, methods) in described.json()["paths"].as_object().expect("paths") {
        let methods = methods.as_object().expect("methods").keys().cloned().collect::<Vec<_>>().join(" ");
        asked.transcript.line(&format!("{path}: {methods}"));
    }
    reading(&mut asked);
    changing(&mut asked, &folder);
    of_a_cluster(&mut asked);
    who_may(&mut asked, &read_token);
    asked.transcript.part("an end");
    asked.ask("DELETE", "/v1/volumes/nothing", None, Told::Whole);
    asked.ask("DELETE", "/v1/volumes/second?nothing=1", None, Told::Whole);
    asked.ask("DELETE", "/v1/volumes/second?discard_dirty=x", None, Told::Whole);
    asked.ask("DELETE", "/v1/volumes/second", None, Told::Whole);
    stream(&mut asked, &volume);
    asked.transcript.part("metrics");
    metrics(&mut asked, &[]);
    metrics(&mut asked, &[OPEN_METRICS]);
    every_route_was_called(&asked, &described.json());
    let said = daemon.stop(MINUTE);
    asked.transcript.part("what the daemon said");
    asked.transcript.lines("!", &said);
    asked.transcript.finish();
}
