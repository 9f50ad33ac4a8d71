//! `forebay doctor --peer`: two nodes on hosts that are network namespaces, and what is done to the links between them is found
//! from either end, with the figures of both.

use forebay_tests::cluster::{Cluster, NAMES};
use forebay_tests::harness::{IoMode, TempDir, Tier, Volume, forebay, run_command};
use forebay_tests::hosts::Namespace;
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// Two nodes with two channels between them.
fn two_nodes(name: &str) -> Option<Cluster> {
    let cluster = Cluster::new(name, 2)?;
    for (node, other) in [(0, 1), (1, 0)] {
        cluster.wait_for("two channels", |cluster| {
            let nodes = cluster.try_command(node, &["node", "list"]).unwrap_or_default();
            let peer =
                nodes.as_array().and_then(|nodes| nodes.iter().find(|peer| peer["name"] == NAMES[other]).cloned());
            let channels = peer.map(|peer| peer["channels"].clone()).unwrap_or_default();
            channels.as_array().is_some_and(|all| all.len() == 2 && all.iter().all(|channel| channel["phase"] == "up"))
        });
    }
    Some(cluster)
}

/// What one node says of the links to the other. On a machine that is busy with something else a channel may truly be down for
/// a moment, and is begun anew: such a look is not what is asked for here, and is taken again.
#[track_caller]
fn doctor(cluster: &Cluster, node: usize) -> Value {
    let begun = Instant::now();
    loop {
        let answer = cluster.try_command(node, &["doctor", "--language", "en", "--peer", NAMES[1 - node]]);
        let report = answer.unwrap_or_else(|why| {
            cluster.describe_all();
            panic!("{why}")
        });
        let is_down = ids(&report).iter().any(|id| id.starts_with("peer-channel/"));
        if !is_down || begun.elapsed() > MINUTE / 2 {
            return report;
        }
    }
}

/// A tool with these words, in a network.
#[track_caller]
fn on(namespace: &Namespace, words: &str) {
    let mut command = namespace.command("ip");
    command.args(words.split_whitespace());
    run_command(MINUTE, command).expect_success();
}

fn ids(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["id"].as_str().expect("text").to_owned()).collect()
}

#[track_caller]
fn finding(report: &Value, id: &str) -> Value {
    let findings = report["findings"].as_array().expect("a list");
    let found = findings.iter().find(|finding| finding["id"] == id);
    found.unwrap_or_else(|| panic!("no {id} in {report:#}")).clone()
}

/// Both ends have looked, and have nothing to say against any pair.
#[track_caller]
fn is_healthy(report: &Value, bytes: u32) {
    assert!(ids(report).is_empty(), "{report:#}");
    assert_eq!(report["hidden"], Value::Array(Vec::new()), "{report:#}");
    let fine: Vec<&str> =
        report["fine"].as_array().expect("a list").iter().filter_map(|fine| fine["says"].as_str()).collect();
    assert_eq!(fine.len(), 2, "{report:#}");
    let arrive = format!("packets of {bytes} bytes arrive both ways");
    assert!(fine.iter().all(|says| says.starts_with(&arrive)), "{report:#}");
    let pairs = report["pairs"].as_array().expect("a list");
    assert!(pairs.len() == 2 && pairs.iter().all(|pair| pair["verdict"] == "good"), "{report:#}");
}

#[test]
fn what_is_wrong_between_two_nodes_is_found_from_either_end_and_a_healthy_link_is_not_complained_of() {
    let Some(cluster) = two_nodes("doctor-peer") else { return };
    let (alpha, beta) = (cluster.host(0).namespace(), cluster.host(1).namespace());
    for node in [0, 1] {
        let report = doctor(&cluster, node);
        is_healthy(&report, 1500);
        let (here, there) = (&report["here"], &report["there"]);
        assert_eq!((&here["node"], &there["node"]), (&NAMES[node].into(), &NAMES[1 - node].into()));
        for side in [here, there] {
            let ends = side["looked"]["ends"].as_array().expect("a list");
            for (at, end) in ends.iter().enumerate() {
                assert_eq!((&end["interface"], &end["prefix"]), (&format!("link{at}").into(), &24.into()), "{side:#}");
                assert!(end["tcp"]["connections"].as_u64() >= Some(1), "{side:#}");
                assert_eq!(end["tcp"]["path_mtu"], 1500, "{side:#}");
            }
        }
    }

    // One end of one cable takes less.
    on(beta, "link set link1 mtu 1400");
    for (node, id) in [(0, "peer-mtu/10.77.1.1-10.77.1.2"), (1, "peer-mtu/10.77.1.2-10.77.1.1")] {
        let report = doctor(&cluster, node);
        assert_eq!(ids(&report), [id], "{report:#}");
        let found = finding(&report, id);
        assert_eq!((&found["severity"], &found["check"]), (&"error".into(), &29.into()));
        let shown = found["evidence"].to_string();
        for figure in
            ["alpha: ip link show dev link1", "mtu 1500", "beta: ip link show dev link1", "mtu 1400", "no answer"]
        {
            assert!(shown.contains(figure), "{figure}: {found:#}");
        }
        let says = found["says"].as_str().expect("words");
        assert!(says.contains("1500") && says.contains("1400"), "{says}");
        let verdicts: Vec<&str> =
            report["pairs"].as_array().expect("a list").iter().filter_map(|pair| pair["verdict"].as_str()).collect();
        assert_eq!(verdicts, ["good", "ERROR"]);
    }
    on(beta, "link set link1 mtu 1500");

    // The switch takes less than both ends, and does not say so.
    on(cluster.network.switch(), "link set h2l0 mtu 1400");
    let report = doctor(&cluster, 0);
    // Answers of etcd stand still on that way as well, so the other end may not say in time what it sees.
    let found = ids(&report);
    let from_both = ["peer-path/10.77.0.1-10.77.0.2", "peer-path/10.77.0.2-10.77.0.1"];
    assert!(found == from_both || found == ["peer-silent/beta", from_both[0]], "{report:#}");
    assert_eq!(finding(&report, "peer-path/10.77.0.1-10.77.0.2")["severity"], "error");
    on(cluster.network.switch(), "link set h2l0 mtu 1500");

    // A route leads the second channel out by the first interface, and the other end answers ARP for all that it has.
    on(alpha, "route add 10.77.1.2/32 dev link0");
    let report = doctor(&cluster, 0);
    let found = finding(&report, "peer-way/alpha/10.77.1.1");
    assert!(found["evidence"].to_string().contains("alpha: ip route get 10.77.1.2 from 10.77.1.1"), "{found:#}");
    let found = finding(&report, "peer-arrives/10.77.1.1-10.77.1.2");
    assert!(found["says"].as_str().is_some_and(|says| says.contains("arrives at link0 of beta")), "{found:#}");
    on(alpha, "route del 10.77.1.2/32 dev link0");
    is_healthy(&doctor(&cluster, 1), 1500);
}

#[test]
fn a_node_that_is_dead_older_or_unknown_is_told_as_such() {
    let Some(mut cluster) = two_nodes("doctor-peer-silent") else { return };
    let refused = cluster.command(0, &["doctor", "--peer", "delta"]).expect_failure();
    assert!(refused.stderr.contains("no node delta; other nodes: beta"), "{}", refused.stderr);
    let refused = cluster.command(0, &["doctor", "--peer", "alpha"]).expect_failure();
    assert!(refused.stderr.contains("alpha is this very node"), "{}", refused.stderr);

    // As a node of the version before has registered.
    let key = "/forebay/lab/node/beta";
    let entry = cluster.etcd.control(None, &["get", "--print-value-only", key]).trim().to_owned();
    let older = entry.replace("\"record_version\":4", "\"record_version\":1");
    assert_ne!(entry, older, "{entry}");
    // One that runs registers anew within seconds, so it is written again until a look has met it.
    let met = std::cell::RefCell::new(Value::Null);
    cluster.wait_for("the older node to be known", |cluster| {
        cluster.etcd.control(None, &["put", key, &older]);
        let report = cluster.try_command(0, &["doctor", "--peer", "beta"]).unwrap_or_default();
        let is_older = report["silence"] == "older";
        met.replace(report);
        is_older
    });
    let report = met.into_inner();
    assert!(ids(&report).is_empty(), "{report:#}");
    assert!(report["hidden"][0]["how"].as_str().is_some_and(|how| how.contains("upgrade beta")), "{report:#}");
    assert_eq!(report["here"]["looked"]["ends"].as_array().map(Vec::len), Some(2), "{report:#}");
    cluster.etcd.control(None, &["put", key, &entry]);
    cluster.wait_for("the node to be known as it is", |cluster| {
        let report = cluster.try_command(0, &["doctor", "--peer", "beta"]).unwrap_or_default();
        report["there"]["node"] == "beta"
    });

    // A link that went down is told of one that was seen as up, by a look each second.
    std::thread::sleep(Duration::from_millis(2_500));
    cluster.kill(1);
    cluster.wait_for("the link to be seen as down", |cluster| {
        let events = cluster.try_command(0, &["events", "--kind", "link-down"]).unwrap_or_default();
        events.to_string().contains("the link to beta is down")
    });
    let report = doctor(&cluster, 0);
    assert_eq!(ids(&report), ["peer-silent/beta"], "{report:#}");
    let found = finding(&report, "peer-silent/beta");
    assert_eq!(found["severity"], "error");
    let says = found["says"].as_str().expect("words");
    assert!(says.contains("is down since 20") && says.contains("its machine answers packets"), "{says}");
    assert_eq!(report["there"], Value::Null);
    assert_eq!(report["here"]["looked"]["ends"][0]["interface"], "link0", "this side is shown: {report:#}");
    let mut command = Command::new(forebay());
    command.args(["doctor", "--peer", "beta", "--language", "en", "--api"]).arg(cluster.place(0, "api.sock"));
    let text = run_command(MINUTE, command).expect_success().stdout;
    assert!(text.contains("10.77.1.1 link1 MTU 1500") && text.contains("seen from here alone"), "{text}");
}

#[test]
fn without_a_daemon_and_without_a_cluster_it_says_what_is_missing() {
    let folder = TempDir::new("doctor-peer-alone");
    let asked = |api: &std::path::Path| {
        let mut command = Command::new(forebay());
        command.args(["doctor", "--peer", "beta", "--api"]).arg(api);
        run_command(MINUTE, command).expect_failure().stderr
    };
    let why = asked(&folder.join("none.sock"));
    assert!(why.contains("cannot look at the links to beta") && why.contains("forebay serve"), "{why}");
    let volume = Volume::new(&folder, 16 << 20, Tier::Flash, IoMode::Threads);
    let _daemon = volume.start();
    let why = asked(&volume.api());
    assert!(why.contains("this node is not part of a cluster"), "{why}");
}
