//! Commands of one node, as text and as JSON, and what they leave in the state folder.

use super::{MINUTE, files, is_root, one_volume, run, transcript_of, wait_until};
use forebay_tests::harness::{Daemon, TempDir, Volume};
use forebay_tests::nbd::{Client, Target};
use forebay_tests::transcript::{Json, Transcript};

/// One daemon with its transcript.
struct Asked<'a> {
    transcript: Transcript,
    folder: &'a TempDir,
    api: String,
    daemon: Daemon,
}

impl<'a> Asked<'a> {
    fn new(name: &'static str, folder: &'a TempDir, volume: &Volume) -> Asked<'a> {
        let mut transcript = transcript_of(name, folder);
        let daemon = volume.start();
        transcript.names.know(&daemon.pid().to_string(), "<pid>");
        vary(&mut transcript);
        Asked { transcript, folder, api: volume.api().to_str().expect("a plain path").to_owned(), daemon }
    }

    fn part(&mut self, title: &str) {
        self.transcript.part(title);
    }

    /// A command as it is typed, but for where the daemon is.
    fn ask(&mut self, words: &[&str]) {
        run(&mut self.transcript, self.folder, words, &["--api", &self.api]);
    }

    /// As text, and as JSON.
    fn both(&mut self, words: &[&str]) {
        self.ask(words);
        self.ask(&[words, &["--json"]].concat());
    }

    /// The shape of what it prints as JSON.
    fn shape(&mut self, words: &[&str], open: &[&str]) {
        let words = [words, &["--json"]].concat();
        let output = super::typed(Some(self.folder), &[&words[..], &["--api", &self.api]].concat());
        self.transcript.line(&format!("\n$ forebay {}", super::shown(&words)));
        let shape = Json::parse(&output.stdout).unwrap_or_else(|| panic!("{}", output.describe())).shape(open);
        for line in shape.pretty().lines() {
            self.transcript.line(&format!("| {line}"));
        }
        self.transcript.outcome(&output);
    }

    /// Waits until a volume shows this.
    #[track_caller]
    fn wait(&self, volume: &str, what: &str, done: impl Fn(&serde_json::Value) -> bool) {
        wait_until(what, || {
            let shown = self.daemon.volume_command(["show", volume, "--json"]);
            serde_json::from_str(&shown.stdout).is_ok_and(|shown| done(&shown))
        });
    }
}

/// What of a node and its volumes is another one in each run.
pub(super) fn vary(transcript: &mut Transcript) {
    let names = &mut transcript.names;
    names.vary_fields(&["pid", "memory_bytes_max", "at_ms", "access", "io_why"]);
    names.vary_fields(&["destage_bytes_per_s", "group_bytes_mean"]);
    names.vary_fields(&["history.bytes", "history.files", "doctor", "doctor.*", "placement.why", "placement.placed"]);
    // Of the machine: its places and its processors. Of the moment: whether the history has begun.
    names.vary("place  ", "");
    names.vary("memory  at most ", "");
    names.vary("memory   at most ", "");
    names.vary("history  ", " files of ");
    names.vary(" files of ", "");
    names.vary("img (", "),");
    names.vary("oldest ", ",");
    names.vary(", up ", "");
    names.vary("drained-through for ", ")");
    names.vary("tier_syncs ", "");
    names.vary("line 1 column ", "");
    names.vary_fields(&[
        "tier_syncs",
        ".destaged",
        "image.inode",
        "image.born_ns",
        "image.changed_ns",
        "image.size_bytes",
    ]);
    names.vary_fields(&["created_unix_s"]);
    names.vary(" left at ", "/s");
    names.vary("ready (", ")");
}

fn image(folder: &TempDir, name: &str) -> String {
    folder.join(name).to_str().expect("a plain path").to_owned()
}

fn making(asked: &mut Asked<'_>) {
    let second = image(asked.folder, "second.img");
    let third = image(asked.folder, "third.img");
    let create = |name: &'static str, backing: &str, more: &[&str]| -> Vec<String> {
        let words = ["volume", "create", name, "--backing", backing];
        words.iter().chain(more).map(|word| (*word).to_owned()).collect()
    };
    let mut typed = |words: Vec<String>| asked.ask(&words.iter().map(String::as_str).collect::<Vec<_>>());
    typed(create("second", &second, &["--size", "32M", "--create", "--tier-size", "64M", "--memory", "64M"]));
    let all = ["--policy", "through", "--drain-max", "10s", "--destage", "ordered", "--journal-size", "16M"];
    let more = ["--size", "32M", "--create", "--tier-size", "64M", "--format", "raw", "--clients", "none", "--json"];
    typed(create("third", &third, &[&all[..], &more[..]].concat()));
    asked.both(&["volume", "list"]);
    asked.both(&["volume", "show", "second"]);
    asked.part("what is not made");
    let new = image(asked.folder, "new.img");
    let mut typed = |words: Vec<String>| asked.ask(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let sized = ["--size", "32M", "--create"];
    let with = |more: &[&'static str]| [&sized[..], more].concat();
    typed(create("second", &new, &sized));
    typed(create("fourth", &second, &sized));
    typed(create("fourth", &new, &[]));
    typed(create("fourth", &new, &["--create"]));
    typed(create("fourth", &new, &["--size", "32M"]));
    typed(create("fourth", &new, &["--size", "1000", "--create"]));
    typed(create("fourth", &new, &["--size", "many", "--create"]));
    typed(create("a name", &new, &sized));
    typed(create("-fourth", &new, &sized));
    typed(create("fourth", "", &sized));
    typed(create("fourth", "nbd://", &[]));
    typed(create("fourth", "ftp://host/x", &sized));
    typed(create("fourth", &new, &with(&["--tier", "memory"])));
    typed(create("fourth", &new, &with(&["--tier", "paper"])));
    typed(create("fourth", &new, &with(&["--tier-size", "1M"])));
    typed(create("fourth", &new, &with(&["--memory", "1K"])));
    typed(create("fourth", &new, &with(&["--journal-size", "1K"])));
    typed(create("fourth", &new, &with(&["--policy", "sideways"])));
    typed(create("fourth", &new, &with(&["--drain-max", "soon"])));
    typed(create("fourth", &new, &with(&["--clients", "somebody"])));
    typed(create("fourth", &new, &with(&["--peers", "1"])));
    typed(create("fourth", &new, &with(&["--min-peers", "1"])));
    typed(create("fourth", &new, &with(&["--flush", "media"])));
    typed(create("fourth", &new, &with(&["--address", "10.0.0.50/24"])));
    typed(create("fourth", &new, &with(&["--interface", "eth0"])));
    typed(create("fourth", &new, &with(&["--reserve"])));
    asked.ask(&["volume", "create", "fourth"]);
    asked.ask(&["volume", "create", "second", "--backing", &new, "--size", "32M", "--create", "--json"]);
}

fn setting(asked: &mut Asked<'_>) {
    let settings: [&[&str]; 9] = [
        &["--policy", "through"],
        &["--policy", "back"],
        &["--drain-max", "30s"],
        &["--drain-max", "0"],
        &["--destage", "ordered"],
        &["--destage", "auto"],
        &["--clients", "dns:vm-host-1.lab,dns:vm-host-2.lab"],
        &["--clients", "any"],
        &["--description", "the mail store, until it moves"],
    ];
    for setting in settings {
        asked.ask(&[&["volume", "set", "second"], setting].concat());
        asked
            .wait("second", "no change of policy to be under way", |shown| shown["policy"]["reason"] == "as-requested");
    }
    asked.ask(&["volume", "list"]);
    asked.ask(&["volume", "set", "second", "--description", "two\nlines"]);
    asked.ask(&["volume", "set", "second", "--drain-max", "20s", "--destage", "journaled", "--json"]);
    asked.wait("second", "its way of destage to be that", |shown| shown["destage"]["effective"] == "journaled");
    asked.ask(&["volume", "set", "second", "--description", ""]);
    asked.part("another medium");
    asked.ask(&["volume", "set", "second", "--tier", "memory"]);
    let moved = ["volume", "set", "second", "--tier", "memory", "--volatile", "--tier-size", "32M"];
    super::typed(Some(asked.folder), &[&moved[..], &["--api", &asked.api]].concat()).expect_success();
    asked.wait("second", "the tier to be in memory", |shown| {
        shown["tier"]["kind"] == "memory"
            && shown["tier"].get("changing").is_none()
            && shown["phase"] == "serving"
            && shown["destage"]["effective"] == "journaled"
    });
    asked.transcript.line(&format!("\n$ forebay {}", moved.join(" ")));
    asked.both(&["volume", "show", "second"]);
    let back = ["volume", "set", "second", "--tier", "flash"];
    super::typed(Some(asked.folder), &[&back[..], &["--api", &asked.api]].concat()).expect_success();
    asked.wait("second", "the tier to be on flash", |shown| {
        shown["tier"]["kind"] == "flash"
            && shown["tier"].get("changing").is_none()
            && shown["phase"] == "serving"
            && shown["destage"]["effective"] == "journaled"
    });
    asked.transcript.line(&format!("\n$ forebay {}", back.join(" ")));
    asked.ask(&["volume", "show", "second"]);
    asked.part("what is not set");
    let refused: [&[&str]; 12] = [
        &[],
        &["--policy", "sideways"],
        &["--destage", "sideways"],
        &["--drain-max", "soon"],
        &["--peers", "1"],
        &["--min-peers", "1"],
        &["--flush", "media"],
        &["--address", "10.0.0.50/24"],
        &["--address", "nowhere"],
        &["--clients", ""],
        &["--tier-size", "64M"],
        &["--tier", "flash", "--tier-size", "1K"],
    ];
    for setting in refused {
        asked.ask(&[&["volume", "set", "second"], setting].concat());
    }
    asked.ask(&["volume", "set", "nothing", "--policy", "back"]);
    asked.ask(&["volume", "set", "nothing", "--policy", "back", "--json"]);
    asked.part("one setting of two is refused");
    asked.ask(&["volume", "set", "third", "--policy", "back", "--tier", "memory"]);
    asked.wait("third", "no change of policy to be under way", |shown| shown["policy"]["reason"] == "as-requested");
    asked.ask(&["volume", "show", "third"]);
}

fn growing_and_holding(asked: &mut Asked<'_>) {
    asked.part("a size");
    asked.ask(&["volume", "resize", "second", "16M"]);
    asked.ask(&["volume", "resize", "second", "48M"]);
    asked.ask(&["volume", "resize", "second", "50000001"]);
    asked.ask(&["volume", "resize", "nothing", "48M"]);
    asked.ask(&["volume", "resize", "second", "big"]);
    asked.ask(&["volume", "resize", "third", "48M", "--json"]);
    asked.part("drains and holds");
    asked.both(&["volume", "drain", "second"]);
    asked.ask(&["volume", "drain", "nothing"]);
    asked.ask(&["volume", "drain", "second", "--hold", "0"]);
    asked.ask(&["volume", "drain", "second", "--hold", "1m", "--through"]);
    asked.ask(&["volume", "drain", "second", "--hold", "10m"]);
    asked.ask(&["volume", "list"]);
    asked.both(&["volume", "show", "second"]);
    asked.ask(&["volume", "drain", "second"]);
    asked.ask(&["volume", "resize", "second", "64M"]);
    asked.ask(&["volume", "set", "second", "--tier", "memory", "--volatile"]);
    asked.ask(&["volume", "release", "second"]);
    asked.both(&["volume", "release", "second"]);
    asked.ask(&["volume", "drain", "third", "--hold", "10m", "--json"]);
    asked.ask(&["volume", "release", "third", "--json"]);
    asked.ask(&["volume", "drain", "second", "--through"]);
    asked.ask(&["volume", "show", "second"]);
    asked.ask(&["volume", "release", "second"]);
    asked.ask(&["volume", "release", "nothing"]);
}

fn of_no_cluster(asked: &mut Asked<'_>) {
    let commands: [&[&str]; 11] = [
        &["volume", "hand-over", "second", "beta"],
        &["volume", "open", "second"],
        &["volume", "open", "second", "--accept-loss"],
        &["volume", "open", "second", "--take-synced", "--yes-lose-unsynced-writes"],
        &["volume", "fenced", "second", "--i-fenced-it", "alpha@5"],
        &["volume", "restore-record", "second", "--yes-the-coordinator-went-back"],
        &["node", "list"],
        &["node", "evacuate", "alpha"],
        &["node", "forget", "alpha", "--yes-its-machine-is-gone", "--without-revoking"],
        &["node", "cannot-answer", "alpha", "--yes-what-it-knows-may-be-lost"],
        &["node", "audit"],
    ];
    for words in commands {
        asked.ask(words);
    }
    asked.ask(&["node", "list", "--json"]);
    asked.ask(&["doctor", "--peer", "beta"]);
}

fn deleting(asked: &mut Asked<'_>, volume: &Volume) {
    let second = Target { export: "second".to_owned(), ..volume.target() };
    let client = Client::connect(&second).expect("it is served");
    asked.ask(&["volume", "delete", "second"]);
    drop(client);
    asked.wait("second", "its client to be gone", |shown| shown["connections"] == 0);
    asked.ask(&["volume", "delete", "nothing"]);
    asked.ask(&["volume", "delete", "second", "--i-fenced-it", "alpha@1"]);
    asked.ask(&["volume", "delete", "second"]);
    asked.ask(&["volume", "delete", "third", "--discard-dirty", "--json"]);
    asked.both(&["volume", "list"]);
}

/// What was seen: the shape, for the figures are those of the moment.
fn seen(asked: &mut Asked<'_>) {
    asked.part("what was seen");
    asked.shape(&["volume", "stats", "vm1", "--window", "1m"], &[]);
    asked.ask(&["volume", "stats", "nothing"]);
    asked.ask(&["volume", "stats", "vm1", "--window", "1x"]);
    asked.ask(&["volume", "stats", "vm1", "--series", "nothing"]);
    asked.ask(&["volume", "stats", "vm1", "--points", "0"]);
    // Not that volumes were deleted: one that had no history yet is not told of.
    asked.ask(&["events", "--kind", "volume-created"]);
    asked.ask(&["events", "--kind", "volume-created", "--json"]);
    asked.ask(&["events", "--volume", "nothing"]);
    asked.ask(&["events", "--since", "1x"]);
    asked.ask(&["events", "--limit", "0"]);
    asked.ask(&["report", "--window", "1x"]);
    asked.ask(&["dashboard"]);
    asked.ask(&["dashboard", "--json"]);
    // What is seen is a second old, or older on a busy machine: of the volumes that are deleted by now, too.
    wait_until("the one volume that is left to be seen, with figures, and nothing to be said of it", || {
        let output = super::typed(Some(asked.folder), &["top", "--once", "--json", "--api", &asked.api]);
        let seen: serde_json::Value = serde_json::from_str(&output.stdout).unwrap_or_default();
        let has_some = |volume: &serde_json::Value| volume["now"].as_object().is_some_and(|now| !now.is_empty());
        let (volumes, degraded) = (seen["volumes"].as_array(), seen["degraded"].as_array());
        volumes.is_some_and(|all| all.len() == 1 && all.iter().all(has_some)) && degraded.is_some_and(Vec::is_empty)
    });
    asked.shape(&["top", "--once"], &[]);
}

/// Names and modes of files, and what the records hold.
fn state_folder(transcript: &mut Transcript, volume: &Volume) {
    let state = volume.state();
    // A history is begun and removed a moment after its volume.
    let all = files(&state).into_iter().map(|(name, mode)| (transcript.names.settle(&name), mode));
    let mut all: Vec<_> = all.filter(|(name, _)| !name.starts_with("history/<id")).collect();
    all.sort();
    for (name, mode) in all {
        transcript.line(&format!("{mode:04o} {name}"));
    }
    for (name, _) in files(&state.join("volumes")) {
        transcript.line(&format!("\nvolumes/{name}"));
        let text = std::fs::read_to_string(state.join("volumes").join(&name)).expect("it is text");
        transcript.lines("|", &text);
    }
}

fn marker(transcript: &mut Transcript, folder: &TempDir) {
    let names = files(folder.path()).into_iter().filter(|(name, _)| name.ends_with(".forebay"));
    for (name, mode) in names.collect::<Vec<_>>() {
        transcript.line(&format!("\n{mode:04o} <folder>/{name}"));
        let text = std::fs::read_to_string(folder.join(&name)).expect("it is text");
        transcript.json("|", &Json::parse(&text).expect("a marker is JSON"));
    }
}

#[test]
fn commands_of_one_node_are_answered_as_recorded() {
    if !is_root() {
        return;
    }
    let folder = TempDir::new("transcripts-commands");
    let volume = one_volume(&folder);
    let mut asked = Asked::new("commands", &folder, &volume);
    let mut client = Client::connect(&volume.target()).expect("it serves");
    client.write(0, &[1; 8192], 0).expect("a reply").expect("it is written");
    client.flush().expect("a reply").expect("it is synced");
    drop(client);
    asked.daemon.drain();
    asked.wait("vm1", "its client to be gone", |shown| shown["connections"] == 0);
    asked.part("a node with one volume");
    asked.both(&["status"]);
    asked.both(&["volume", "list"]);
    asked.both(&["volume", "show", "vm1"]);
    asked.both(&["volume", "show", "nothing"]);
    asked.part("two more");
    making(&mut asked);
    asked.part("settings");
    setting(&mut asked);
    growing_and_holding(&mut asked);
    asked.part("what only a cluster has");
    of_no_cluster(&mut asked);
    asked.part("the state folder");
    state_folder(&mut asked.transcript, &volume);
    marker(&mut asked.transcript, &folder);
    asked.part("an end");
    deleting(&mut asked, &volume);
    seen(&mut asked);
    let Asked { mut transcript, daemon, .. } = asked;
    let said = daemon.stop(MINUTE);
    transcript.part("what the daemon said");
    transcript.lines("!", &said);
    transcript.part("the state folder after the daemon's end");
    state_folder(&mut transcript, &volume);
    marker(&mut transcript, &folder);
    transcript.part("no daemon");
    run(&mut transcript, &folder, &["status", "--api", volume.api().to_str().expect("a plain path")], &[]);
    run(&mut transcript, &folder, &["volume", "list", "--json"], &[]);
    run(&mut transcript, &folder, &["volume"], &[]);
    run(&mut transcript, &folder, &["nothing"], &[]);
    transcript.finish();
}
