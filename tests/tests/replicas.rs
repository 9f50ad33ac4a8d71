//! A volume whose log several nodes keep, on real hosts: network namespaces with two links each, a real etcd, real daemons, and
//! a load whose every acknowledged write is looked for after each fault.

use forebay_tests::cluster::{Cluster, PATIENCE};
use forebay_tests::harness::{forebay, run_command};
use forebay_tests::nbd::{Client, Target};
use forebay_tests::pattern::load::{self, Ended};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

/// The whole story of two nodes: alone, with a copy, without the owner, and with the former owner back.
fn the_owner_is_killed_and_comes_back(name: &str, tier: &str) {
    let Some(mut cluster) = Cluster::new(name, 2) else { return };
    cluster.serve_with_a_copy(tier);
    let shown = cluster.show(0);
    assert_eq!(shown["cluster"]["owner"], "alpha", "{shown:#}");

    cluster.load_and_kill(0);
    cluster.wait_for_owner(1);
    cluster.every_acknowledged_write_is_at(1);
    cluster.wait_for("write-through, because one log is less than was asked for", |cluster| {
        let shown = cluster.show(1);
        shown["policy"]["effective"] == "through" && shown["policy"]["reason"] == "too-few-peers"
    });

    cluster.start(0);
    cluster.wait_for_copies(1);
    cluster.load_and_kill(1);
    cluster.wait_for_owner(0);
    cluster.every_acknowledged_write_is_at(0);
}

#[test]
fn memory_of_two_nodes_outlives_each_of_them() {
    the_owner_is_killed_and_comes_back("replicas-memory", "memory");
}

#[test]
fn flash_of_two_nodes_outlives_each_of_them() {
    the_owner_is_killed_and_comes_back("replicas-flash", "flash");
}

/// Whether a client of this socket is answered.
fn answers_within(target: &Target, limit: Duration) -> bool {
    let Ok(mut client) = Client::connect(target) else { return false };
    client.stream.set_read_timeout(Some(limit)).expect("a time to wait");
    client.read(0, &mut [0; 512]).is_ok()
}

/// It answers nothing more that the others do not know, and when it hears of them again it has stepped down. Its client's session
/// ends where a write was in the log that nobody else has, and goes on with the new owner else.
#[test]
fn an_owner_that_is_cut_off_is_replaced_and_acknowledges_nothing_alone() {
    let Some(mut cluster) = Cluster::new("replicas-cut-off", 3) else { return };
    cluster.serve_with_a_copy("memory");
    let loading = cluster.begin_load_for(0, Duration::from_secs(30));
    cluster.network.isolate(0);
    let owner = cluster.owner_among(&[1, 2]);
    cluster.network.heal();
    let ended = loading.join().expect("the load does not panic").unwrap_or_else(|why| panic!("{why}"));
    println!("the client of the owner that was cut off: {ended:?}");
    assert!(ended.totals().acknowledged > 0 && ended.totals().failed == 0, "{ended:?}");
    cluster.every_acknowledged_write_is_at(owner);
    cluster.wait_for("the former owner to have stepped down", |cluster| {
        let state = cluster.show(0)["cluster"]["state"].clone();
        state == "no-member" || state == "learner" || state == "following"
    });
    cluster.wait_for_copies(owner);
}

#[test]
fn one_of_two_links_may_go_and_nothing_changes() {
    let Some(cluster) = Cluster::new("replicas-link", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let term = cluster.show(0)["cluster"]["term"].clone();
    let options = cluster.load(0, Duration::from_secs(6));
    let loading = std::thread::spawn(move || load::run(&options));
    std::thread::sleep(Duration::from_secs(1));
    // The second: etcd is on the first.
    cluster.network.unplug(0, 1);
    std::thread::sleep(Duration::from_secs(2));
    cluster.network.plug(0, 1);
    match loading.join().expect("the load does not panic") {
        Ok(Ended::Finished(_)) => {}
        other => panic!("the load ends early: {other:?}"),
    }
    let shown = cluster.show(0);
    assert_eq!((&shown["cluster"]["term"], &shown["cluster"]["state"]), (&term, &Value::from("owner")), "{shown:#}");
    cluster.every_acknowledged_write_is_at(0);
}

/// Copies come and go while it serves, and the owner changes without a loss; a stop in order is a change of owner, too.
#[test]
fn copies_and_owners_change_by_command() {
    let Some(mut cluster) = Cluster::new("replicas-commands", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let loading = cluster.begin_load_for(0, Duration::from_secs(8));
    cluster.try_command(0, &["volume", "hand-over", "vm1", "beta"]).unwrap_or_else(|why| panic!("{why}"));
    cluster.load_has_finished(loading);
    cluster.wait_for_owner(1);
    cluster.every_acknowledged_write_is_at(1);

    cluster.try_command(0, &["volume", "set", "vm1", "--peers", "0"]).unwrap_or_else(|why| panic!("{why}"));
    cluster.wait_for("one log to be enough", |cluster| {
        let shown = cluster.show(1);
        shown["cluster"]["peers"] == 0 && shown["cluster"]["min_peers"] == 0 && shown["policy"]["effective"] == "back"
    });
    cluster.try_command(1, &["volume", "set", "vm1", "--peers", "1"]).unwrap_or_else(|why| panic!("{why}"));
    cluster.wait_for_copies(1);
    let refused = cluster.try_command(1, &["volume", "hand-over", "vm1", "gamma"]).expect_err("there is no such node");
    assert!(refused.contains("gamma"), "{refused}");

    cluster.stop(1);
    cluster.wait_for_owner(0);
    cluster.every_acknowledged_write_is_at(0);
}

/// The backing is the owner's own disk. Its host is lost with its memory: the other node has the log and nothing to put it on. It
/// serves nobody, and gives the volume back as soon as that host is there again, without an operator.
#[test]
fn an_owner_with_its_own_disk_gets_its_log_back_from_the_other_node() {
    let Some(mut cluster) = Cluster::with_disk_of("replicas-custodian", 3, 0) else { return };
    cluster.serve_with_a_copy("memory");
    let tier = cluster.show(0)["tier"]["path"].as_str().expect("the owner has a tier").to_owned();
    cluster.load_and_kill(0);
    std::fs::remove_file(&tier).unwrap_or_else(|e| panic!("remove {tier}: {e}"));
    cluster.wait_for("a custodian", |cluster| {
        [1, 2].iter().any(|node| cluster.show(*node)["cluster"]["state"] == "custodian")
    });
    for node in [1, 2] {
        assert!(!answers_within(&cluster.target(node), Duration::from_secs(1)), "a custodian serves nobody");
    }
    let begun = Instant::now();
    cluster.start(0);
    cluster.wait_for_owner(0);
    println!("serving again {:.1} s after the start of the owner's daemon", begun.elapsed().as_secs_f64());
    cluster.every_acknowledged_write_is_at(0);
}

/// The image of a volume whose newest writes lie in the nodes' logs is refused to a daemon that is of no cluster, and to a second
/// volume; and an image that a single daemon's log belongs to is refused to the cluster.
#[test]
fn an_image_whose_newest_writes_lie_in_logs_elsewhere_is_refused() {
    let Some(mut cluster) = Cluster::new("replicas-marker", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let loading = cluster.begin_load(0);
    cluster.kill(0);
    cluster.kill(1);
    cluster.load_has_broken_off(loading);
    let image = cluster.image();
    let image = image.to_str().expect("a plain path");
    let alone = cluster.folder.join("alone");
    let alone = alone.to_str().expect("a plain path");
    let begun = Instant::now();
    let refused = loop {
        let mut command = Command::new(forebay());
        command.args(["serve", "--state", alone, "--backing", image, "--http", "off"]);
        let refused = run_command(PATIENCE, command);
        // What the kernel still does for the killed daemons has the image's lock.
        if !refused.stderr.contains("requests of a killed process") || begun.elapsed() > PATIENCE {
            break refused;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(
        !refused.status.success() && refused.stderr.contains("newer writes of volume vm1"),
        "{}",
        refused.describe()
    );

    cluster.start(0);
    cluster.start(1);
    let owner = cluster.owner_among(&[0, 1]);
    cluster.wait_for_owner(owner);
    let second = ["volume", "create", "vm2", "--backing", image, "--peers", "1", "--tier", "memory"];
    let refused = cluster.try_command(owner, &second).expect_err("the image is in use");
    assert!(refused.contains("in use"), "{refused}");
    cluster.every_acknowledged_write_is_at(owner);

    let other = cluster.folder.join("other.img");
    let marker = std::fs::read_to_string(format!("{image}.forebay")).expect("the marker lies beside the image");
    std::fs::copy(image, &other).expect("copy the image");
    std::fs::write(other.with_extension("img.forebay"), marker).expect("copy its marker");
    let copied = ["volume", "create", "vm3", "--backing", other.to_str().expect("a plain path"), "--peers", "1"];
    let refused = cluster.try_command(owner, &copied).expect_err("newer writes lie in logs");
    assert!(refused.contains("newer writes of volume vm1"), "{refused}");
}
