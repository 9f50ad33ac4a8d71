//! What was seen, from outside: figures that agree with what fio counted, events of what was done, and what happens to
//! both when the daemon is killed, the disk is full, a file is torn or too much is asked for.

use forebay_tests::cluster::Cluster;
use forebay_tests::harness::{Daemon, IoMode, TempDir, Tier, VOLUME_NAME, Volume, forebay, require_tool, run_command};
use forebay_tests::kernel::Mounted;
use forebay_tests::nbd::Client;
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// `forebay ARGUMENTS --json` against the daemon, read as JSON.
#[track_caller]
fn json<S: AsRef<OsStr>>(daemon: &Daemon, arguments: impl IntoIterator<Item = S>) -> Value {
    let arguments = arguments.into_iter().map(|argument| argument.as_ref().to_owned());
    let output = daemon.command(arguments.chain(["--json".into()])).expect_success();
    serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {}", output.stdout))
}

#[track_caller]
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < MINUTE, "waited a minute in vain for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[track_caller]
fn refusal(volume: &Volume, path: &str, status: u16) -> String {
    let (found, body) = volume.get(path);
    assert_eq!(found, status, "{body}");
    let answer: Value = serde_json::from_str(&body).expect("an error is JSON");
    answer["error"].as_str().expect("an error says something").to_owned()
}

/// What the steps of a series add up to.
fn total(history: &Value, series: &str) -> f64 {
    let step = history["step_s"].as_f64().unwrap();
    let steps = history["series"][series]["avg"].as_array().unwrap_or_else(|| panic!("no {series} in {history}"));
    steps.iter().filter_map(Value::as_f64).sum::<f64>() * step
}

fn kinds(events: &Value) -> Vec<&str> {
    events["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect()
}

/// Seconds that some time is longer than the sampler needs to have seen it.
fn let_it_be_seen() {
    std::thread::sleep(Duration::from_millis(2500));
}

/// Runs fio against the volume; its report.
fn fio(folder: &TempDir, volume: &Volume, arguments: &[&str]) -> Value {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60"]).arg(require_tool("fio")).current_dir(folder.path());
    command.args(["--name=seen", "--ioengine=nbd", "--output-format=json"]);
    command.arg(format!("--uri={}", volume.uri())).args(arguments);
    let output = run_command(MINUTE, command).expect_success();
    // fio's nbd engine prints a line of its own before the JSON.
    let begin = output.stdout.find('{').expect("a report");
    serde_json::from_str(&output.stdout[begin..]).expect("fio's report is JSON")
}

#[test]
fn figures_are_those_that_fio_counted_and_outlive_a_kill() {
    let folder = TempDir::new("seen-fio");
    let volume = Volume::new(&folder, 64 * MIB, Tier::Flash, IoMode::Uring);
    let daemon = volume.start();
    let_it_be_seen();
    let mix = ["--rw=randrw", "--rwmixread=30", "--bs=8k", "--iodepth=4", "--rate_iops=150,350", "--size=48m"];
    let report = fio(&folder, &volume, &[&mix[..], &["--runtime=5", "--time_based"]].concat());
    let job = &report["jobs"][0];
    let counted = |side: &str, figure: &str| job[side][figure].as_f64().unwrap();
    let_it_be_seen();

    let stats = |daemon: &Daemon| json(daemon, ["volume", "stats", VOLUME_NAME, "--window", "5m"]);
    let before = stats(&daemon);
    assert_eq!(before["step_s"], 1);
    for (side, ios, bytes) in [("read", "read_iops", "read_bytes_per_s"), ("write", "write_iops", "write_bytes_per_s")]
    {
        let (seen, fio) = (total(&before, ios), counted(side, "total_ios"));
        assert!(fio > 300.0 && (seen - fio).abs() <= fio * 0.01, "{side}: {seen} seen, {fio} by fio");
        let (seen, fio) = (total(&before, bytes), counted(side, "io_bytes"));
        assert!((seen - fio).abs() <= fio * 0.01, "{side}: {seen} bytes seen, {fio} by fio");
        // What the volume has measured is counted one by one.
        let client = &before["legs"][side]["client"];
        assert_eq!(client["count"].as_f64(), Some(counted(side, "total_ios")), "{client}");
        // fio sees the socket's way on top, so it cannot have seen less than nearly all of it.
        let fio_us = job[side]["clat_ns"]["mean"].as_f64().unwrap() / 1000.0;
        assert!(client["mean_us"].as_f64().unwrap() <= fio_us * 1.05, "{client} in {fio_us} us");
    }
    let sizes = volume.get_json(&format!("/v1/volumes/{VOLUME_NAME}/heatmap?window=5m"));
    let row = sizes["sizes"].as_array().unwrap().iter().position(|size| size == 8192).unwrap();
    let writes: u64 = sizes["writes"][row].as_array().unwrap().iter().filter_map(Value::as_u64).sum();
    assert_eq!(writes as f64, counted("write", "total_ios"), "all of 8 KiB");
    assert!(sizes["sequential"]["ratio"].as_f64().unwrap() < 0.2, "it was random: {}", sizes["sequential"]);
    let curve = volume.get_json(&format!("/v1/volumes/{VOLUME_NAME}/miss-ratio?window=5m"));
    assert!(curve["blocks_read"].as_u64().unwrap() >= 2 * 300, "{curve}");

    daemon.kill9();
    let daemon = volume.start();
    let after = stats(&daemon);
    let lost = total(&before, "write_iops") - total(&after, "write_iops");
    assert_eq!(lost, 0.0, "what was seen seconds before a kill is there after it");
    let events = json(&daemon, ["events"]);
    assert_eq!(kinds(&events), ["daemon-started", "daemon-started"]);
    assert_eq!(events["events"][1]["details"]["clean"], false, "it was killed, and that is told");
    daemon.stop(MINUTE);
    let daemon = volume.start();
    let events = json(&daemon, ["events"]);
    assert_eq!(kinds(&events)[2..], ["daemon-stopped", "daemon-started"]);
    assert_eq!(events["events"][3]["details"]["clean"], true);
    // Those of an earlier process as well, in the language that is asked for.
    for (language, words) in [("en", "every image is complete"), ("ja", "停止しました"), ("ko", "중지했습니다")]
    {
        let told =
            daemon.command(["events", "--kind", "daemon-stopped", "--language", language]).expect_success().stdout;
        assert!(told.contains(words), "{language}: {told}");
    }
    assert_eq!(
        volume.get_json("/v1/events?limit=1")["events"][0].get("sentence"),
        None,
        "what it is made of is not told"
    );

    let csv = daemon.volume_command(["stats", VOLUME_NAME, "--window", "5m", "--csv"]).expect_success().stdout;
    let lines: Vec<&str> = csv.lines().collect();
    assert!(
        lines[0].starts_with("at,") && lines[0].contains("write_client_p99_us") && lines.len() == 301,
        "{}",
        lines[0]
    );
    let table = daemon.volume_command(["stats", VOLUME_NAME, "--window", "5m"]).expect_success().stdout;
    assert!(table.contains("write_iops") && table.contains("in steps of"), "{table}");
}

#[test]
fn what_is_done_becomes_events_for_whoever_asks_and_whoever_follows() {
    let folder = TempDir::new("seen-events");
    let volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    let mut daemon = volume.start();
    let mut follower = Command::new(forebay());
    follower.args(["events", "--follow", "--json", "--api"]).arg(volume.api()).stdout(Stdio::piped());
    let mut follower = follower.spawn().unwrap();
    let (heard, hears) = std::sync::mpsc::channel();
    let lines = BufReader::new(follower.stdout.take().unwrap());
    std::thread::spawn(move || lines.lines().map_while(Result::ok).try_for_each(|line| heard.send(line)));
    let first: Value = serde_json::from_str(&hears.recv_timeout(MINUTE).unwrap()).unwrap();
    assert_eq!(first["kind"], "daemon-started");
    let_it_be_seen();

    let image = folder.join("second.img");
    let image = image.to_str().unwrap();
    let create = ["volume", "create", "second", "--backing", image, "--size", "16M", "--create"];
    json(&daemon, create);
    let_it_be_seen();
    json(&daemon, ["volume", "set", "second", "--policy", "through"]);
    let_it_be_seen();
    json(&daemon, ["volume", "drain", "second", "--hold", "1m"]);
    let_it_be_seen();
    json(&daemon, ["volume", "release", "second"]);
    let_it_be_seen();
    json(&daemon, ["volume", "resize", "second", "32M"]);
    let_it_be_seen();
    let file = |daemon: &Daemon| -> PathBuf {
        let id = json(daemon, ["volume", "show", "second"])["volume"].as_str().unwrap().to_owned();
        volume.state().join("history").join(format!("{id}.history"))
    };
    let first_file = file(&daemon);
    assert!(first_file.exists(), "{}", first_file.display());
    let known = |daemon: &Daemon| total(&json(daemon, ["volume", "stats", "second", "--window", "1h"]), "dirty_bytes");
    known(&daemon);
    daemon.volume_command(["delete", "second"]).expect_success();
    let gone = refusal(&volume, "/v1/volumes/second/history?window=1h", 404);
    assert!(gone.contains("no volume second"), "{gone}");
    wait_until("the history to go with the volume", || !first_file.exists());

    // Another one of that name is another one.
    std::fs::remove_file(image).unwrap();
    json(&daemon, create);
    wait_until("its history to begin", || file(&daemon).exists());
    let history = json(&daemon, ["volume", "stats", "second", "--window", "1h"]);
    let known = history["series"]["write_iops"]["avg"].as_array().unwrap().iter().filter(|v| !v.is_null()).count();
    assert!(known <= 2, "a new volume has no past: {known} steps");

    let events = json(&daemon, ["events", "--volume", "second"]);
    let expected = [
        "volume-created",
        "policy-changed",
        "hold-begun",
        "hold-ended",
        "volume-resized",
        "volume-deleted",
        "volume-created",
    ];
    let seen: Vec<&str> = kinds(&events).into_iter().filter(|kind| expected.contains(kind)).collect();
    assert_eq!(seen, expected, "{events}");
    let ids: Vec<u64> = events["events"].as_array().unwrap().iter().map(|e| e["id"].as_u64().unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    let last = *ids.last().unwrap();
    wait_until("the follower to have heard the last", || {
        hears.try_iter().any(|line| serde_json::from_str::<Value>(&line).is_ok_and(|event| event["id"] == last))
    });
    let some = json(&daemon, ["events", "--kind", "hold-begun", "--since", "1h"]);
    assert_eq!(kinds(&some), ["hold-begun"]);
    let words = daemon.command(["events", "--volume", "second"]).expect_success().stdout;
    assert!(words.contains("hold-begun") && words.contains("second: "), "{words}");
    follower.kill().unwrap();
    follower.wait().unwrap();
    daemon.assert_healthy();
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_limits() {
    let folder = TempDir::new("seen-refusals");
    let volume = Volume::new(&folder, 16 * MIB, Tier::Memory, IoMode::Uring);
    let mut daemon = volume.start();
    let history = |rest: &str| format!("/v1/volumes/{VOLUME_NAME}/history?{rest}");
    let many = (0..10_000).map(|n| format!("s{n}")).collect::<Vec<_>>().join(",");
    let said = refusal(&volume, &history(&format!("series={many}")), 400);
    assert!(said.contains("10000 series") && said.contains("at most 64"), "{said}");
    for (rest, word) in [
        ("points=5000", "2000 points"),
        ("series=latency", "write_iops"),
        ("window=61d", "60 d"),
        ("window=soon", "such as 10m"),
        ("from=yesterday", "RFC 3339"),
        ("from=20&to=10", "not before"),
        ("windows=1h", "windows"),
    ] {
        let said = refusal(&volume, &history(rest), 400);
        assert!(said.contains(word), "{rest}: {said}");
    }
    for path in ["history", "heatmap", "miss-ratio"] {
        let said = refusal(&volume, &format!("/v1/volumes/nobody/{path}"), 404);
        assert!(said.contains("no volume nobody"), "{said}");
    }
    assert!(refusal(&volume, "/v1/nodes/nobody/history", 404).contains("ask that node"));
    assert!(refusal(&volume, "/v1/events?limit=100000", 400).contains("1000"));
    assert!(refusal(&volume, "/v1/events?after=last", 400).contains("after"));
    assert!(refusal(&volume, "/v1/stream?volumes=nobody", 404).contains("no volume nobody"));
    let failed = daemon.volume_command(["stats", "nobody"]).expect_failure().text();
    assert!(failed.contains("no volume nobody"), "{failed}");
    let name = volume.get_json("/v1/status")["name"].as_str().unwrap().to_owned();
    let_it_be_seen();
    let own = volume.get_json(&format!("/v1/nodes/{name}/history?window=1m&series=cpu_ratio,memory_bytes"));
    assert!(total(&own, "memory_bytes") > 1e6, "{own}");
    daemon.assert_healthy();
}

#[test]
fn readers_of_the_stream_are_bounded_and_one_that_sleeps_costs_nobody_anything() {
    let folder = TempDir::new("seen-stream");
    let volume = Volume::new(&folder, 32 * MIB, Tier::Memory, IoMode::Uring);
    let mut daemon = volume.start();
    let open = || {
        let mut stream = UnixStream::connect(volume.api()).unwrap();
        stream.set_read_timeout(Some(MINUTE)).unwrap();
        write!(stream, "GET /v1/stream?events=1 HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        (line.split(' ').nth(1).unwrap().to_owned(), reader)
    };
    // None of these reads on.
    let asleep: Vec<_> = (0..31).map(|_| open()).collect();
    assert!(asleep.iter().all(|(status, _)| status == "200"));
    let (status, reader) = open();
    assert_eq!(status, "200");
    assert_eq!(open().0, "503", "the 33rd reader is told that there are too many");
    let mut client = Client::connect(&volume.target()).unwrap();
    let mut points = 0;
    let mut at = 0;
    for line in reader.lines() {
        let line = line.unwrap();
        client.write(0, &[7; 4096], 0).unwrap().unwrap();
        if let Some(data) = line.strip_prefix("data: ")
            && let Ok(data) = serde_json::from_str::<Value>(data)
            && data["volumes"][VOLUME_NAME].is_object()
        {
            let now = data["at"].as_u64().unwrap();
            assert!(now > at, "points come in order");
            at = now;
            points += 1;
            if points == 4 {
                assert!(data["volumes"][VOLUME_NAME]["write_iops"].as_f64().unwrap() > 0.0, "{data}");
                break;
            }
        }
    }
    assert_eq!(points, 4);
    drop(asleep);
    wait_until("the places of those who left", || open().0 == "200");
    let fleet = volume.get_json("/v1/fleet");
    assert_eq!(fleet["volumes"][0]["name"], VOLUME_NAME);
    assert!(fleet["volumes"][0]["now"]["write_iops"].is_number(), "{fleet}");
    assert_eq!(fleet["totals"]["volumes"], 1);
    assert_eq!(fleet["degraded"], Value::Array(Vec::new()));
    daemon.assert_healthy();
}

#[test]
fn a_full_disk_costs_the_history_and_nothing_else() {
    let folder = TempDir::new("seen-full");
    let state = folder.join("state");
    std::fs::create_dir(&state).unwrap();
    let _small = Mounted::new(&["-t", "tmpfs", "-o", "size=8m,mode=700"], "none", &state);
    let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    volume.arguments = vec!["--tier-path".into(), folder.join("vm1.tier").into()];
    let mut daemon = volume.start();
    let mut client = Client::connect(&volume.target()).unwrap();
    client.write(0, &[7; 65536], 0).unwrap().unwrap();
    wait_until("the trouble to be told", || kinds(&json(&daemon, ["events"])).contains(&"history-failing"));
    let status = volume.get_json("/v1/status");
    let problem = status["history"]["problem"].as_str().expect("a state of the node").to_owned();
    assert!(problem.contains("no room") && problem.contains("free some space"), "{problem}");
    assert!(status["history"]["dropped"].as_u64().unwrap() > 0);
    wait_until("it to be shown as degraded", || {
        volume.get_json("/v1/fleet")["degraded"].as_array().unwrap().iter().any(|d| d["code"] == "history-failing")
    });
    // What is known now is known without a disk.
    let fleet = volume.get_json("/v1/fleet");
    assert!(fleet["volumes"][0]["now"]["dirty_bytes"].is_number(), "{fleet}");
    let nothing = volume.get_json(&format!("/v1/volumes/{VOLUME_NAME}/history?window=1m&series=write_iops"));
    assert_eq!(total(&nothing, "write_iops"), 0.0);
    client.write(0, &[8; 65536], 0).unwrap().unwrap();
    client.flush().unwrap().unwrap();
    drop(client);
    daemon.assert_healthy();
    daemon.stop(MINUTE);
}

fn damage(path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(b"torn", 20).unwrap();
}

#[test]
fn a_torn_file_is_put_aside_and_a_new_one_is_begun() {
    let folder = TempDir::new("seen-torn");
    let volume = Volume::new(&folder, 16 * MIB, Tier::Flash, IoMode::Uring);
    let daemon = volume.start();
    let id = daemon.show()["volume"].as_str().unwrap().to_owned();
    let file = volume.state().join("history").join(format!("{id}.history"));
    wait_until("the history to begin", || file.exists());
    daemon.kill9();
    damage(&file);
    let mut daemon = volume.start();
    let aside = file.with_extension("history.damaged");
    wait_until("the damaged file to be put aside", || aside.exists() && file.exists());
    let put_aside = volume.get_json("/v1/status")["history"]["put_aside"].to_string();
    assert!(put_aside.contains("damaged") && put_aside.contains("checksum"), "{put_aside}");
    let known = || total(&volume.get_json(&format!("/v1/volumes/{VOLUME_NAME}/history?window=1m")), "dirty_bytes");
    known();
    daemon.assert_healthy();
}

#[test]
fn a_take_over_is_told_by_whoever_does_it_with_the_lost_node_and_the_policy() {
    let Some(mut cluster) = Cluster::new("seen-take-over", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let events = |cluster: &Cluster| cluster.try_command(1, &["events"]).unwrap_or_default();
    let_it_be_seen();
    cluster.kill(0);
    cluster.wait_for_owner(1);
    let expected = ["take-over", "member-lost", "policy-changed", "link-down"];
    cluster.wait_for("the events of it", |cluster| {
        let events = events(cluster);
        expected.iter().all(|kind| events["events"].is_array() && kinds(&events).contains(kind))
    });
    let events = events(&cluster);
    let of =
        |kind: &str| events["events"].as_array().unwrap().iter().find(|event| event["kind"] == kind).unwrap().clone();
    assert_eq!(of("take-over")["details"]["owner"], "beta");
    assert_eq!(of("take-over")["details"]["former"], "alpha");
    assert_eq!(of("member-lost")["details"]["member"], "alpha");
    assert_eq!(of("link-down")["details"]["peer"], "alpha");
    assert_eq!(of("take-over")["node"], "beta", "a node of a cluster tells its name there");
}

#[test]
fn the_daemons_doctor_looks_when_it_is_asked_and_tells_everywhere_the_same() {
    let folder = TempDir::new("seeing-doctor");
    let volume = Volume::new(&folder, 16 * MIB, Tier::Flash, IoMode::Uring);
    let daemon = volume.start();
    let answer = |path: &str| volume.get_json(path);
    let doctor = answer("/v1/doctor?fresh=true");
    let findings = doctor["findings"].as_array().unwrap();
    let looked = findings.len() + doctor["fine"].as_array().unwrap().len() + doctor["hidden"].as_array().unwrap().len();
    assert!(looked > 0, "some check has something to say of any host: {doctor}");
    let count = |severity: &str| findings.iter().filter(|finding| finding["severity"] == severity).count() as u64;
    assert_eq!(answer("/v1/doctor")["at"], doctor["at"], "the last look");
    let status = answer("/v1/status");
    let (_, metrics) = volume.get("/metrics");
    for (severity, name) in [("error", "errors"), ("warning", "warnings"), ("note", "notes")] {
        assert_eq!(status["doctor"][name], count(severity), "{status}");
        let line = format!("forebay_doctor_findings{{severity=\"{severity}\"}} {}", count(severity));
        assert!(metrics.lines().any(|l| l == line), "{line} is not in the metrics");
    }
    let events = json(&daemon, ["events", "--kind", "doctor-finding"]);
    let told = events.as_array().or_else(|| events["events"].as_array()).expect("a list of events").len() as u64;
    assert_eq!(told, count("error") + count("warning"), "{events}");
    let text = daemon.command(["status"]).expect_success().stdout;
    assert!(text.lines().any(|line| line.starts_with("doctor ")), "{text}");
    let says = |path: &str| -> Vec<String> {
        let doctor = answer(path);
        let of = |list: &str, says: &str| {
            doctor[list].as_array().unwrap().iter().map(|one| one[says].to_string()).collect::<Vec<_>>()
        };
        [of("findings", "says"), of("fine", "says"), of("hidden", "how")].concat()
    };
    assert_eq!(says("/v1/doctor?language=en"), says("/v1/doctor"));
    assert_ne!(says("/v1/doctor?language=ja"), says("/v1/doctor"), "the same look in another language");
    assert_eq!(answer("/v1/doctor?language=ja")["at"], doctor["at"]);
    assert!(
        findings
            .iter()
            .all(|finding| finding["since"].as_str().is_some_and(|since| since <= doctor["at"].as_str().unwrap()))
    );
    for refused in ["/v1/doctor?later=true", "/v1/doctor?language=xx"] {
        assert_eq!(volume.get(refused).0, 400, "{refused}");
    }
}
