//! etcd is restored from a backup while a node that was left behind by then stands still: with real daemons and a real etcd.

use forebay_tests::cluster::{Cluster, NAMES};
use forebay_tests::harness::Output;
use forebay_tests::nbd::Client;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Longer than any node waits before it goes on by itself: the grace, and what it is asked within.
const LONG_ENOUGH: Duration = Duration::from_secs(12);

fn members(cluster: &Cluster, at: usize) -> Vec<String> {
    let shown = cluster.show(at);
    let all = shown["cluster"]["members"].as_array().into_iter().flatten().filter(|member| member["role"] != "learner");
    all.filter_map(|member| member["node"].as_str().map(str::to_owned)).collect()
}

fn reason(cluster: &Cluster, at: usize) -> String {
    cluster.show(at)["cluster"]["reason"].as_str().unwrap_or_default().to_owned()
}

fn known(cluster: &Cluster, at: usize) -> Value {
    cluster.show(at)["cluster"]["known"].clone()
}

fn restore(cluster: &Cluster, at: usize, saw: &str) -> Output {
    let words = ["volume", "restore-record", "vm1", "--yes-the-coordinator-went-back", "--i-saw", saw];
    cluster.command(at, &words)
}

fn version(known: &Value) -> String {
    format!("{}/{}", known["term"], known["epoch"])
}

#[track_caller]
fn stop(cluster: &mut Cluster, node: usize) {
    cluster.daemons[node].as_mut().expect("it runs").stop();
}

#[track_caller]
fn resume(cluster: &mut Cluster, node: usize) {
    cluster.daemons[node].as_mut().expect("it runs").resume();
}

/// Nobody of these serves, all the time.
#[track_caller]
fn nobody_owns(cluster: &Cluster, nodes: &[usize]) {
    let begun = Instant::now();
    while begun.elapsed() < LONG_ENOUGH {
        for node in nodes {
            let shown = cluster.show(*node);
            let state = &shown["cluster"]["state"];
            assert!(state != "owner" && state != "agreeing", "{} goes on by itself: {shown:#}", NAMES[*node]);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Proves N-M-9: a member that missed its own drop had taken over with its log of then, and acknowledged writes were gone.
#[test]
fn a_member_that_missed_its_own_drop_takes_nothing_over_after_a_restore() {
    let Some(mut cluster) = Cluster::new("restored-member", 3) else { return };
    cluster.serve_with_a_copy("memory");
    let first = members(&cluster, 0);
    let stale = if first.contains(&NAMES[1].to_owned()) { 1 } else { 2 };
    let other = 3 - stale;
    let backup = cluster.folder.join("etcd.backup");
    cluster.etcd.backup(&backup);
    stop(&mut cluster, stale);
    cluster.wait_for("another copy", |cluster| {
        let members = members(cluster, 0);
        members.contains(&NAMES[other].to_owned()) && members.len() == 2
    });
    cluster.load_and_kill(0);
    cluster.etcd.restore(&backup);
    resume(&mut cluster, stale);
    nobody_owns(&cluster, &[stale, other]);

    // Both show what they know; the one that knows less is told so.
    for node in [stale, other] {
        cluster.wait_for("both to have noticed", |cluster| reason(cluster, node) == "record-went-back");
    }
    let (less, more) = (known(&cluster, stale), known(&cluster, other));
    assert!(less["epoch"].as_u64() < more["epoch"].as_u64(), "{less:#} {more:#}");
    let refused = restore(&cluster, stale, &version(&less));
    assert!(!refused.status.success() && refused.stderr.contains("another node knows a newer record"), "{refused:?}");
    let unseen = restore(&cluster, other, &version(&less));
    assert!(!unseen.status.success() && unseen.stderr.contains("--i-saw"), "{unseen:?}");
    let done = restore(&cluster, other, &version(&more));
    assert!(done.status.success(), "{}", done.describe());
    cluster.wait_for("the lost node to be asked for", |cluster| {
        known(cluster, other)["unheard"].as_array().is_some_and(|unheard| unheard == &[Value::from("alpha")])
    });
    let words = ["node", "cannot-answer", "alpha", "--yes-what-it-knows-may-be-lost"];
    let said = cluster.command(other, &words);
    assert!(said.status.success(), "{}", said.describe());
    cluster.wait_for_owner(other);
    cluster.every_acknowledged_write_is_at(other);
}

/// Proves N-M-9: two owners had acknowledged for as long as the link was cut.
#[test]
fn a_deposed_owner_that_hears_nobody_goes_on_with_nothing_after_a_restore() {
    let Some(mut cluster) = Cluster::new("restored-owner", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let backup = cluster.folder.join("etcd.backup");
    cluster.etcd.backup(&backup);
    // From here on it hears nothing of the other one: nor finds it in its sockets when it goes on.
    cluster.network.silence(0, 1);
    cluster.network.silence(1, 0);
    stop(&mut cluster, 0);
    cluster.wait_for_owner(1);
    // The members of etcd on these hosts do not reach each other, either: unless the third leads, one of them answers nothing.
    cluster.etcd.put_back(&backup);
    cluster.wait_for("the new owner to notice", |cluster| reason(cluster, 1) == "record-went-back");
    resume(&mut cluster, 0);
    let target = cluster.target(0);
    let written = std::thread::spawn(move || {
        let mut client = Client::connect_within(&target, LONG_ENOUGH)?;
        client.write(0, &[7; 4096], 0)
    });
    std::thread::sleep(LONG_ENOUGH);
    let acknowledged = written.is_finished().then(|| written.join().expect("it does not panic"));
    assert!(!matches!(acknowledged, Some(Ok(Ok(())))), "the former owner acknowledges: {:#}", cluster.show(0));
    cluster.wait_for("the former owner to await answers", |cluster| reason(cluster, 0) == "awaiting-answers");
    assert_eq!(known(&cluster, 0)["unheard"], serde_json::json!(["beta"]), "{:#}", cluster.show(0));
    assert_eq!(cluster.show(1)["cluster"]["state"], "owner", "{:#}", cluster.show(1));
}

/// A node that the restored coordinator does not know is known again by itself, as it is now: others ask whom they find registered.
#[test]
fn a_node_that_a_restore_has_taken_away_registers_anew() {
    let Some(mut cluster) = Cluster::prepare("restored-registration", 2, "") else { return };
    cluster.launch(0);
    let registered = |cluster: &Cluster, name: &str| {
        let entry = cluster.etcd.control(None, &["get", "--prefix", "--print-value-only", "/forebay/lab/node/"]);
        entry.lines().any(|line| line.contains(&format!("\"name\":\"{name}\"")))
    };
    cluster.wait_for("the first node to be registered", |cluster| registered(cluster, "alpha"));
    let backup = cluster.folder.join("etcd.backup");
    cluster.etcd.backup(&backup);
    cluster.launch(1);
    cluster.wait_for("the second node to be registered", |cluster| registered(cluster, "beta"));
    cluster.etcd.restore(&backup);
    cluster.wait_for("it to be registered anew", |cluster| registered(cluster, "beta"));
    cluster.wait_for("the link between the two", |cluster| {
        let nodes = cluster.try_command(0, &["node", "list"]).unwrap_or_default();
        nodes.as_array().into_iter().flatten().any(|node| node["name"] == "beta" && node["up"] == true)
    });
}
