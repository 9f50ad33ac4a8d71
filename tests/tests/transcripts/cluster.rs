//! A cluster of three with a real etcd: what each node says of a volume in each step of its life, and every key that lies in etcd then.
//! What passes through etcd in between, such as requests from node to node, is told at the end by the shapes of keys and values.

use super::{commands, is_root, shown, transcript_of, typed};
use forebay_tests::cluster::{Cluster, NAMES};
use forebay_tests::harness::Output;
use forebay_tests::hosts::Process;
use forebay_tests::transcript::{Json, Transcript, merged};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::time::Duration;

/// Keys whose values are those of the moment: their shapes are told at the end.
const OF_THE_MOMENT: [&str; 3] = ["load", "told", "nonce"];
/// What a node tells another one of its links depends on the machine: objects and lists in it that are data.
const OPEN: [&str; 0] = [];
/// A step that takes longer than this does not come.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);

struct Asked<'a> {
    transcript: Transcript,
    cluster: &'a Cluster,
}

impl Asked<'_> {
    fn part(&mut self, title: &str) {
        self.transcript.part(title);
    }

    fn typed(&self, node: usize, words: &[&str]) -> Output {
        let api = self.cluster.place(node, "api.sock");
        typed(Some(&self.cluster.folder), &[words, &["--api", api.to_str().expect("a plain path")]].concat())
    }

    /// A command at a node.
    fn ask(&mut self, node: usize, words: &[&str]) -> Output {
        let mut output = self.typed(node, words);
        output.stdout = match Json::parse(&output.stdout) {
            Some(value) => tidy(value).pretty(),
            None => {
                output.stdout.lines().filter(|line| is_of_the_volume(line)).map(|line| format!("{line}\n")).collect()
            }
        };
        self.transcript.command(&format!("{}    # at {}", shown(words), NAMES[node]), &output);
        output
    }

    /// As text, and as JSON.
    fn both(&mut self, node: usize, words: &[&str]) {
        self.ask(node, words);
        self.ask(node, &[words, &["--json"]].concat());
    }

    /// A command that takes its time: what it says on the way depends on that, how it ends does not.
    fn end_of(&mut self, node: usize, words: &[&str]) {
        let output = self.typed(node, words);
        self.transcript.line(&format!("\n$ forebay {}    # at {}", shown(words), NAMES[node]));
        self.transcript.columns("|", &output.stdout);
        self.transcript.line(&format!("= {}", output.status.code().expect("it ends by itself")));
    }

    /// Every key in etcd, with its value unless that is of the moment.
    fn keys(&mut self, title: &str) {
        self.transcript.line(&format!("\netcd: {title}"));
        for (key, value) in self.settled_keys() {
            let kind = key.trim_start_matches("/forebay/lab/").split('/').next().unwrap_or_default().to_owned();
            // With placeholders first: members are sorted by these.
            let value = self.transcript.names.settle(&value);
            let value = Json::parse(&value).unwrap_or(Json::Text(value));
            if OF_THE_MOMENT.contains(&kind.as_str()) {
                self.transcript.line(&key);
            } else {
                self.transcript.line(&format!("{key} ="));
                self.transcript.json(" ", &tidy(value));
            }
        }
    }

    /// Keys with their placeholders, sorted by these; a request that is under way is not among them.
    fn settled_keys(&mut self) -> Vec<(String, String)> {
        let listed = self.cluster.etcd.control(None, &["get", "--prefix", "/"]);
        let lines: Vec<&str> = listed.lines().collect();
        let pairs =
            lines.chunks(2).map(|pair| (pair[0].to_owned(), pair.get(1).copied().unwrap_or_default().to_owned()));
        let mut pairs: Vec<(String, String)> = pairs.filter(|(key, _)| !is_of_a_request(key)).collect();
        // Identities are counted in the order of what they belong to, not of their digits.
        let order = ["cluster", "node", "number", "name", "definition", "record"];
        let place = |key: &str| {
            let kind = key.trim_start_matches("/forebay/lab/").split('/').next().unwrap_or_default().to_owned();
            order.iter().position(|other| *other == kind).unwrap_or(order.len())
        };
        pairs.sort_by_key(|(key, _)| (place(key), key.clone()));
        for (key, value) in &pairs {
            if key.contains("/node/") || key.contains("/name/") {
                self.transcript.names.settle(value);
            }
        }
        let mut settled: Vec<(String, String)> =
            pairs.into_iter().map(|(key, value)| (self.transcript.names.settle(&key), value)).collect();
        settled.sort();
        settled
    }

    /// Waits until what etcd has of a volume stays as it is, and every node sees it so.
    #[track_caller]
    fn settle(&self, what: &str, done: impl Fn(&Value) -> bool) {
        let begun = std::time::Instant::now();
        let mut last = (String::new(), 0);
        while last.1 < 6 {
            assert!(begun.elapsed() < SETTLED_WITHIN, "waited in vain for {what}");
            let shown: Vec<Value> = (0..NAMES.len()).map(|node| self.cluster.show(node)).collect();
            let record = self.cluster.etcd.control(None, &["get", "--prefix", "/forebay/lab/record/"]);
            let seen = shown.iter().map(|shown| {
                let cluster = &shown["cluster"];
                let reasons =
                    [&cluster["state"], &cluster["reason"], &cluster["owner_reason"], &shown["policy"]["reason"]];
                format!("{reasons:?} {} {} {}", cluster["owner"], cluster["term"], cluster["config"])
            });
            let seen = format!("{record}{}", seen.collect::<Vec<_>>().join("\n"));
            let same = shown.iter().all(&done) && seen == last.0;
            last = (seen, if same { last.1 + 1 } else { 0 });
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The same for a volume with so many copies, that is served by this node as it should be.
    #[track_caller]
    fn settle_with(&self, owner: usize, members: usize) {
        self.settle("the volume to be whole", |shown| {
            let cluster = &shown["cluster"];
            let recorded =
                cluster["members"].as_array().into_iter().flatten().filter(|member| member["role"] != "learner");
            cluster["owner"] == NAMES[owner]
                && recorded.count() == members
                && cluster["members"].as_array().is_some_and(|all| all.len() == members)
                && shown["policy"]["reason"] == "as-requested"
                && cluster["unfenced"] == 0
        });
    }
}

/// Members and forwarders by name: their order is that in which they came. A report tells the medium and the lag of those that it has
/// heard of.
fn tidy(value: Json) -> Json {
    match value {
        Json::List(all) => Json::List(all.into_iter().map(tidy).collect()),
        Json::Fields(fields) => {
            let tidied = fields.into_iter().map(|(name, value)| match (name.as_str(), tidy(value)) {
                ("members" | "forwarders", Json::List(all)) => {
                    let mut all: Vec<Json> = all.into_iter().map(member).collect();
                    all.sort_by_key(Json::pretty);
                    (name, Json::List(all))
                }
                // It comes a moment after the owner.
                ("connected", _) => (name, Json::Word("<n>".to_owned())),
                (_, value) => (name, value),
            });
            Json::Fields(tidied.collect())
        }
        plain => plain,
    }
}

fn member(value: Json) -> Json {
    let Json::Fields(fields) = value else { return value };
    let is_report = fields.iter().any(|(name, _)| name == "role");
    let kept = fields.into_iter().filter(|(name, _)| !is_report || (name != "tier" && name != "lag"));
    let drawn = kept.map(|(name, value)| match name.as_str() {
        "tier" => (name, Json::Text("<tier>".to_owned())),
        _ => (name, value),
    });
    Json::Fields(drawn.collect())
}

/// Not of its members, clients and counters, which are told with the JSON.
fn is_of_the_volume(line: &str) -> bool {
    !["          ", "members ", "counters ", "clients   of"].iter().any(|begin| line.starts_with(begin))
}

fn is_of_a_request(key: &str) -> bool {
    ["/ask/", "/seen/", "/call/", "/answer/"].iter().any(|kind| key.contains(kind))
}

/// Everything that is written to etcd and deleted there, from the beginning on.
fn watch(cluster: &Cluster) -> (Process, std::path::PathBuf) {
    let path = cluster.folder.join("watched");
    let mut command = cluster.etcd.etcdctl(None);
    command.args(["watch", "--prefix", "/", "--rev", "1"]);
    command.stdout(File::create(&path).expect("room for a file"));
    (Process::spawn(command), path)
}

/// A key without what differs from node to node and from one to the next.
fn kind_of(transcript: &mut Transcript, key: &str) -> String {
    let settled = transcript.names.settle(key);
    let parts = settled.split('/').map(|part| match part {
        "alpha" | "beta" | "gamma" => "<node>".to_owned(),
        part => match part.strip_prefix('<').and_then(|rest| rest.split_once(' ')) {
            Some((kind, _)) => format!("<{kind}>"),
            None => part.to_owned(),
        },
    });
    parts.collect::<Vec<_>>().join("/")
}

/// The shapes of all keys and values that ever appeared.
fn what_passed(transcript: &mut Transcript, watched: &str) {
    let mut kinds: BTreeMap<String, (Json, bool)> = BTreeMap::new();
    let mut lines = watched.lines();
    while let Some(change) = lines.next() {
        let key = kind_of(transcript, lines.next().unwrap_or_default());
        let value = lines.next().unwrap_or_default();
        match change {
            "PUT" => {
                let shape = Json::parse(value).unwrap_or(Json::Text(value.to_owned())).shape(&OPEN);
                let (kind, deleted) =
                    kinds.remove(&key).map_or((shape.clone(), false), |(old, was)| (merged(old, shape), was));
                kinds.insert(key, (kind, deleted));
            }
            "DELETE" => {
                kinds.entry(key).and_modify(|(_, deleted)| *deleted = true);
            }
            other => panic!("etcd has watched {other:?}"),
        }
    }
    for (key, (shape, deleted)) in kinds {
        transcript.line(&format!("\n{key}{}", if deleted { "    (and deleted)" } else { "" }));
        shape.pretty().lines().for_each(|line| transcript.line(&format!("  {line}")));
    }
}

fn vary(transcript: &mut Transcript) {
    commands::vary(transcript);
    let names = &mut transcript.names;
    names.vary_fields(&[
        "boot",
        "machine",
        "config",
        "certificate",
        "signature",
        "counters.*",
        "emptying.since_ms",
        "life",
    ]);
    names.vary_fields(&["channels.address", "channels.failures", "channels.resent", "channels.round_trip_ms"]);
    names.vary_fields(&["channels.received_bytes", "channels.sent_bytes", "forwarding.again", "compression.*"]);
    names.vary(", config ", ",");
    for state in ["owner", "following"] {
        names.vary(&format!("{state} for "), " (");
    }
    names.vary("-be for ", ",");
    names.vary(", told ", " ago");
    names.vary("in use by process ", "");
}

fn creating(asked: &mut Asked<'_>) {
    let image = asked.cluster.image();
    let image = image.to_str().expect("a plain path");
    let made = ["volume", "create", "vm1", "--backing", image, "--size", "48M", "--create"];
    let how = ["--policy", "back", "--peers", "2", "--tier", "flash", "--tier-size", "64M"];
    let words = [&made[..], &how[..]].concat();
    let output = asked.typed(0, &words).expect_success();
    asked.transcript.line(&format!("\n$ forebay {}    # at alpha", shown(&words)));
    asked.transcript.outcome(&output);
    asked.settle_with(0, 3);
}

fn refusals(asked: &mut Asked<'_>) {
    let image = asked.cluster.image();
    let image = image.to_str().expect("a plain path");
    let commands: [&[&str]; 16] = [
        &["volume", "create", "vm1", "--backing", image, "--peers", "1"],
        &["volume", "create", "vm2", "--backing", "/none/vm2.img", "--peers", "1"],
        &["volume", "create", "vm2", "--backing", image, "--peers", "9"],
        &["volume", "set", "vm1", "--min-peers", "3"],
        &["volume", "set", "vm1", "--address", "10.0.0.50/24", "--interface", "no-such-one"],
        &["volume", "set", "nothing", "--peers", "1"],
        &["volume", "hand-over", "vm1", "delta"],
        &["volume", "hand-over", "nothing", "beta"],
        &["volume", "resize", "vm1", "1M"],
        &["volume", "release", "vm1"],
        &["volume", "open", "vm1"],
        &["volume", "fenced", "vm1", "--i-fenced-it", "alpha@1"],
        &["volume", "restore-record", "vm1", "--yes-the-coordinator-went-back"],
        &["node", "drain", "delta"],
        &["node", "forget", "beta", "--yes-its-machine-is-gone"],
        &["node", "cannot-answer", "delta", "--yes-what-it-knows-may-be-lost"],
    ];
    for words in commands {
        asked.ask(1, words);
    }
}

fn setting(asked: &mut Asked<'_>) {
    let settings: [&[&str]; 6] = [
        &["--policy", "through"],
        &["--policy", "back"],
        &["--drain-max", "30s", "--destage", "ordered"],
        &["--flush", "destage"],
        &["--clients", "dns:vm-host-1.lab"],
        &["--peers", "2", "--min-peers", "2"],
    ];
    for setting in settings {
        let words = [&["volume", "set", "vm1"], setting].concat();
        let output = asked.typed(1, &words);
        asked.transcript.line(&format!("\n$ forebay {}    # at beta", shown(&words)));
        asked.transcript.outcome(&output);
        asked.settle_with(0, 3);
    }
}

fn silent(asked: &mut Asked<'_>, node: usize, words: &[&str], owner: usize, members: usize) {
    let output = asked.typed(node, words);
    asked.transcript.line(&format!("\n$ forebay {}    # at {}", shown(words), NAMES[node]));
    asked.transcript.outcome(&output);
    asked.settle_with(owner, members);
}

fn moving(asked: &mut Asked<'_>) {
    asked.part("a hold, and a size");
    asked.ask(2, &["volume", "drain", "vm1"]);
    asked.ask(2, &["volume", "drain", "vm1", "--hold", "10m"]);
    asked.ask(1, &["volume", "release", "vm1"]);
    asked.ask(1, &["volume", "release", "vm1"]);
    asked.ask(2, &["volume", "resize", "vm1", "96M"]);
    asked.settle_with(0, 3);
    asked.part("another owner");
    silent(asked, 2, &["volume", "hand-over", "vm1", "beta"], 1, 3);
    asked.both(0, &["volume", "show", "vm1"]);
    asked.keys("after it was handed over");
    asked.part("a node that is emptied");
    asked.end_of(0, &["node", "drain", "gamma"]);
    asked.keys("while it cannot be emptied");
    silent(asked, 0, &["volume", "set", "vm1", "--peers", "1", "--min-peers", "1"], 1, 2);
    asked.ask(0, &["node", "drain", "gamma"]);
    asked.both(2, &["node", "list"]);
    asked.keys("while it is emptied");
    asked.ask(1, &["node", "drain", "gamma", "--undo"]);
}

#[test]
fn a_cluster_says_and_writes_what_is_recorded() {
    if !is_root() {
        return;
    }
    let Some(mut cluster) = Cluster::new("transcripts-cluster", 3) else { return };
    let (mut watcher, watched) = watch(&cluster);
    cluster.wait_for("links between all", |cluster| {
        (0..NAMES.len()).all(|node| {
            let nodes = cluster.try_command(node, &["node", "list"]).unwrap_or_default();
            let is_whole = |other: &&Value| {
                let channels = other["channels"].as_array().into_iter().flatten();
                other["up"] == true && channels.filter(|channel| channel["phase"] == "up").count() == 2
            };
            nodes.as_array().is_some_and(|nodes| nodes.iter().filter(is_whole).count() == 2)
        })
    });
    let mut transcript = transcript_of("cluster", &cluster.folder);
    vary(&mut transcript);
    let mut asked = Asked { transcript, cluster: &cluster };
    asked.part("three nodes");
    asked.keys("before there is a volume");
    asked.both(0, &["node", "list"]);
    asked.both(1, &["volume", "list"]);
    asked.part("a volume");
    creating(&mut asked);
    asked.keys("with a volume");
    asked.both(0, &["volume", "show", "vm1"]);
    asked.both(1, &["volume", "show", "vm1"]);
    asked.ask(2, &["volume", "list"]);
    asked.part("what is refused");
    refusals(&mut asked);
    asked.part("settings");
    setting(&mut asked);
    asked.keys("after all settings");
    moving(&mut asked);
    asked.part("decisions");
    let _ = asked.typed(0, &["doctor", "--peer", "beta", "--json"]);
    asked.ask(0, &["node", "cannot-answer", "gamma", "--yes-what-it-knows-may-be-lost"]);
    asked.ask(1, &["node", "audit", "--json"]);
    asked.part("an end");
    asked.ask(2, &["volume", "delete", "vm1"]);
    asked.cluster.wait_for("the volume to be gone", |cluster| {
        (0..NAMES.len())
            .all(|node| cluster.try_command(node, &["volume", "list"]).is_ok_and(|list| list == Value::Array(vec![])))
    });
    asked.keys("after the volume was deleted");
    let Asked { mut transcript, .. } = asked;
    cluster.kill(2);
    cluster.wait_for("gamma to be down", |cluster| {
        let nodes = cluster.try_command(0, &["node", "list"]).unwrap_or_default();
        nodes.as_array().into_iter().flatten().any(|node| node["name"] == "gamma" && node["up"] == false)
    });
    transcript.part("a node that is forgotten");
    let mut asked = Asked { transcript, cluster: &cluster };
    asked.ask(0, &["node", "forget", "gamma", "--yes-its-machine-is-gone"]);
    asked.ask(0, &["node", "list"]);
    asked.keys("after a node was forgotten");
    let Asked { mut transcript, .. } = asked;
    std::thread::sleep(Duration::from_millis(300));
    watcher.kill();
    transcript.part("what passed through etcd");
    what_passed(&mut transcript, &std::fs::read_to_string(watched).expect("what was watched"));
    transcript.finish();
}
