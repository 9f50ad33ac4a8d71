//! etcd reaches its quota: it takes no write any more. That is shown before and then, with what to do, and volumes are served all the time.

use forebay_tests::cluster::Cluster;
use forebay_tests::harness::run_command;
use serde_json::Value;
use std::time::Duration;

/// The quota of the data of a member, in bytes.
const QUOTA_BYTES: u64 = 4_900_000;
/// One value that fills it; the words of a command have less than 128 KiB.
const FILL_BYTES: usize = 100 << 10;
const COMMAND: Duration = Duration::from_secs(30);

/// Writes until so many bytes are there, or etcd takes no more. True: it has taken all.
fn fill(cluster: &Cluster, name: &str, bytes: u64) -> bool {
    let value = "x".repeat(FILL_BYTES);
    let put = |number: u64| {
        let mut command = cluster.etcd.etcdctl(None);
        command.args(["put", &format!("/fill/{name}/{number}"), &value]);
        run_command(COMMAND, command)
    };
    (0..bytes / FILL_BYTES as u64).all(|number| {
        // On a busy machine one may time out; only want of room ends it.
        let ended =
            (0..20).map(|_| put(number)).find(|put| put.status.success() || put.stderr.contains("space exceeded"));
        ended.expect("etcd takes it, or says why not").status.success()
    })
}

/// Writes value after value until the data of a member is near the quota. How much of its file a value takes depends on how many are
/// committed at one time, so what was written alone does not tell.
fn fill_until_near(cluster: &Cluster) {
    let near = QUOTA_BYTES / 100 * 82;
    for number in 0..QUOTA_BYTES / FILL_BYTES as u64 {
        assert!(fill(cluster, &format!("near/{number}"), FILL_BYTES as u64), "that much is within the quota");
        let mut command = cluster.etcd.etcdctl(None);
        command.args(["endpoint", "status", "--write-out=json"]);
        let said = run_command(COMMAND, command);
        let members: Value = serde_json::from_str(&said.stdout).unwrap_or_default();
        let sizes = members.as_array().into_iter().flatten().filter_map(|member| member["Status"]["dbSize"].as_u64());
        if sizes.max().is_some_and(|bytes| bytes >= near) {
            return;
        }
    }
    panic!("no member of etcd is near its quota after as many bytes as that has");
}

fn troubles(cluster: &Cluster) -> Vec<String> {
    let status = cluster.try_command(0, &["status"]).unwrap_or_default();
    let listed = status["coordinator"].as_array().cloned().unwrap_or_default();
    listed.iter().filter_map(|trouble| trouble["code"].as_str().map(str::to_owned)).collect()
}

fn events(cluster: &Cluster, kind: &str) -> usize {
    let events = cluster.try_command(0, &["events", "--kind", kind]).unwrap_or_default();
    let list = events.as_array().or(events["events"].as_array()).cloned().unwrap_or_default();
    list.iter().filter(|event| event["kind"] == kind).count()
}

#[test]
fn a_quota_of_etcd_is_told_before_and_when_it_is_reached_and_volumes_are_served() {
    let Some(mut cluster) = Cluster::new("etcd-quota", 2) else { return };
    cluster.serve_with_a_copy("memory");
    cluster.etcd.limit(QUOTA_BYTES);
    cluster.wait_for("nothing to be wrong", |cluster| cluster.try_command(0, &["status"]).is_ok());
    assert_eq!(troubles(&cluster), [""; 0]);

    fill_until_near(&cluster);
    cluster
        .wait_for("the quota to be told as near", |cluster| troubles(cluster).contains(&"etcd-nearly-full".to_owned()));
    cluster.wait_for("the same as an event", |cluster| events(cluster, "coordinator-trouble") > 0);
    assert!(!fill(&cluster, "full", QUOTA_BYTES), "it takes no more");
    // What is asked for meanwhile fails with what to do.
    let image = cluster.folder.join("other.img");
    let image = image.to_str().expect("a plain path");
    let create = ["volume", "create", "vm2", "--backing", image, "--size", "16M", "--create", "--peers", "0"];
    cluster.wait_for("a change to fail for want of room", |cluster| {
        let output = cluster.command(0, &create);
        !output.status.success() && output.stderr.contains("etcdctl alarm disarm")
    });
    cluster.wait_for("that it is full to be told", |cluster| troubles(cluster).contains(&"etcd-no-space".to_owned()));
    let done = cluster.begin_load_for(0, Duration::from_secs(2));
    cluster.load_has_finished(done);

    // As the words say: compact, defragment, disarm.
    cluster.etcd.control(None, &["del", "--prefix", "/fill/"]);
    let now = cluster.etcd.control(None, &["get", "/fill/none", "-w", "json"]);
    let now: Value = serde_json::from_str(&now).expect("JSON");
    cluster.etcd.control(None, &["compact", &now["header"]["revision"].to_string()]);
    for at in 0..3 {
        cluster.etcd.control(Some(at), &["defrag"]);
    }
    cluster.etcd.control(None, &["alarm", "disarm"]);
    cluster.wait_for("nothing to be wrong any more", |cluster| troubles(cluster).is_empty());
    cluster.wait_for("the same as an event", |cluster| events(cluster, "coordinator-well") > 0);
}
