//! Metrics, alerts and dashboard before a real Prometheus: it takes what the daemon says, knows every name that
//! `packaging/` uses, and an alert fires when it should.

use forebay_tests::curl::{curl, free_address};
use forebay_tests::harness::{
    IoMode, TempDir, Tier, VOLUME_NAME, Volume, require_tool, run_command, run_script, workspace,
};
use forebay_tests::nbd::Client;
use forebay_tests::prometheus::Prometheus;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);
const OPEN_METRICS: &str = "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";

fn packaged(name: &str) -> PathBuf {
    workspace().join("packaging").join(name)
}

/// Families that an answer in OpenMetrics announces, as names that expressions may use.
fn names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').expect("a type");
        let suffixes: &[&str] = match kind {
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        names.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
    }
    names
}

/// Names of our metrics in an expression.
fn names_used(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("forebay_") || word.starts_with("process_")).collect()
}

/// Every expression of the dashboard, with what Grafana would put for its variables.
fn dashboard_expressions() -> Vec<String> {
    let text = std::fs::read_to_string(packaged("grafana/forebay.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let annotations = dashboard["annotations"]["list"].as_array().expect("annotations").iter();
    targets
        .chain(annotations)
        .map(|target| target["expr"].as_str().expect("an expression"))
        .map(|text| text.replace("$__rate_interval", "10s").replace("$instance", ".*").replace("$volume", ".*"))
        .collect()
}

#[track_caller]
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < MINUTE, "waited a minute in vain for {what}");
        std::thread::sleep(Duration::from_millis(250));
    }
}

#[test]
fn metrics_are_taken_by_promtool_and_come_in_the_format_that_is_asked_for() {
    let folder = TempDir::new("metrics");
    let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    volume.http = free_address();
    let daemon = volume.start();
    let url = format!("http://{}/metrics", volume.http);
    Client::connect(&volume.target()).unwrap().write(0, &[1; 8192], 0).unwrap().unwrap();

    let text = curl(&[&url]);
    assert_eq!(text.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"), "{}", text.head);
    assert!(text.body.contains("# TYPE forebay_volume_writes_total counter\n") && !text.body.contains("# EOF"));
    let sample = format!("forebay_volume_write_bytes_total{{volume=\"{VOLUME_NAME}\"}} 8192");
    assert!(text.body.lines().any(|line| line == sample), "no {sample} in {}", text.body);
    run_script(MINUTE, "curl --silent \"$1\" | promtool check metrics", [&url]).expect_success();

    let open = curl(&["--header", OPEN_METRICS, &url]);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(open.header("content-type"), Some(kind), "{}", open.head);
    assert!(open.body.contains("# TYPE forebay_volume_writes counter\n") && open.body.ends_with("\n# EOF\n"));
    daemon.stop(MINUTE);
}

#[test]
fn alert_rules_fire_when_they_should_and_only_then() {
    let mut command = Command::new(require_tool("promtool"));
    command.args(["check", "rules", "forebay.rules.yml"]).current_dir(packaged("prometheus"));
    run_command(MINUTE, command).expect_success();
    let mut command = Command::new(require_tool("promtool"));
    command.args(["test", "rules", "forebay.rules.test.yml"]).current_dir(packaged("prometheus"));
    run_command(MINUTE, command).expect_success();
}

#[test]
fn a_prometheus_evaluates_dashboard_and_rules_and_alerts_of_a_failing_backing_and_a_dead_daemon() {
    let folder = TempDir::new("prometheus");
    let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Threads);
    volume.backing = format!("faulty:write_error=1:{}", volume.backing);
    volume.http = free_address();
    let daemon = volume.start();

    // The same rules, without the patience.
    let rules = std::fs::read_to_string(packaged("prometheus/forebay.rules.yml")).expect("the rules");
    let hasty: Vec<&str> = rules.lines().filter(|line| !line.trim_start().starts_with("for: ")).collect();
    assert!(hasty.len() < rules.lines().count());
    let hasty_file = folder.join("hasty.rules.yml");
    std::fs::write(&hasty_file, hasty.join("\n")).unwrap();
    let prometheus = Prometheus::start(&folder, &volume.http, &hasty_file);
    wait_until("a scrape", || !prometheus.query("forebay_uptime_seconds").is_empty());
    assert_eq!(prometheus.firing(), [""; 0], "a healthy daemon alerts nobody");

    let mut client = Client::connect(&volume.target()).unwrap();
    let mut read = [0; 4096];
    for block in 0..64 {
        client.write(block * 4096, &[1; 4096], 0).unwrap().unwrap();
        client.read(block * 4096, &mut read).unwrap().unwrap();
    }
    client.flush().unwrap().unwrap();
    wait_until("the alert", || prometheus.firing().contains(&"ForebayBackingFailing".to_owned()));

    // OpenMetrics was spoken: only it has units.
    let metadata = prometheus.get("metadata", &[("metric", "forebay_uptime_seconds")]);
    assert_eq!(metadata["forebay_uptime_seconds"][0]["unit"], "seconds", "{metadata}");

    let url = format!("http://{}/metrics", volume.http);
    let known = names(&curl(&["--header", OPEN_METRICS, &url]).body);
    let expressions = dashboard_expressions();
    assert!(expressions.len() > 30, "{}", expressions.len());
    let mut without_samples = Vec::new();
    for expression in &expressions {
        let unknown: Vec<&str> = names_used(expression).into_iter().filter(|name| !known.contains(*name)).collect();
        assert!(unknown.is_empty(), "the daemon has no {unknown:?}: {expression}");
        if prometheus.query(expression).is_empty() {
            without_samples.push(expression);
        }
    }
    // Nothing is degraded, there is no other node, and a backing that takes nothing has no speed.
    let absent = ["forebay_link_", "forebay_volume_degraded", "forebay_volume_drain_seconds"];
    let may_be_empty = |e: &str| absent.iter().any(|name| e.contains(name));
    without_samples.retain(|expression| !may_be_empty(expression));
    assert!(without_samples.is_empty(), "of one node under load nothing is shown by {without_samples:#?}");

    let groups = prometheus.get("rules", &[]);
    let rules = groups["groups"][0]["rules"].as_array().expect("rules");
    assert!(rules.len() >= 14, "{groups}");
    for rule in rules {
        assert_eq!((&rule["health"], &rule["lastError"]), (&"ok".into(), &Value::Null), "{rule}");
        let query = rule["query"].as_str().expect("an expression");
        // One node has no coordinator that could have trouble, and no certificate.
        let of_clusters = ["forebay_coordinator_", "forebay_certificate_"];
        let has = |name: &str| known.contains(name) || of_clusters.iter().any(|family| name.starts_with(family));
        assert!(names_used(query).iter().all(|name| has(name)), "the daemon has not all of {query}");
    }
    daemon.kill9();
    wait_until("the other alert", || prometheus.firing().contains(&"ForebayDaemonDown".to_owned()));
}
