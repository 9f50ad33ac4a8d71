//! Two nodes, and a small third machine that runs a member of etcd and nothing else: any one of the three may be lost, or the way
//! between the two.

use forebay_tests::cluster::{Cluster, PATIENCE, SIZE};
use forebay_tests::pattern::load::{self, Ended, LoadOptions};
use std::time::Duration;

/// The third host: it has no daemon.
const WITNESS: usize = 2;

/// This node serves, alone, and no write depends on its log.
fn writes_through(cluster: &Cluster, node: usize) -> bool {
    let shown = cluster.show(node);
    let members = shown["cluster"]["members"].as_array().map_or(0, Vec::len);
    shown["cluster"]["state"] == "owner" && shown["policy"]["effective"] == "through" && members == 1
}

#[test]
fn a_host_may_be_lost_with_its_member_of_etcd() {
    let Some(mut cluster) = Cluster::new("witness-host", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let loading = cluster.begin_load(0);
    cluster.etcd.kill(0);
    cluster.network.isolate(0);
    cluster.kill(0);
    cluster.load_has_broken_off(loading);
    cluster.wait_for_owner(1);
    cluster.every_acknowledged_write_is_at(1);
    cluster.wait_for("writing through", |cluster| writes_through(cluster, 1));

    cluster.network.heal();
    cluster.etcd.restart(0);
    cluster.start(0);
    cluster.wait_for_copies(1);
}

#[test]
fn the_small_machine_may_be_lost_and_nothing_changes() {
    let Some(mut cluster) = Cluster::new("witness-gone", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let term = cluster.show(0)["cluster"]["term"].clone();
    cluster.etcd.kill(WITNESS);
    cluster.network.isolate(WITNESS);
    let mut options = LoadOptions::new(cluster.target(0), cluster.folder.join("journal"), 0..SIZE);
    options.time = Some(Duration::from_secs(3));
    match load::run(&options) {
        Ok(Ended::Finished(totals)) => assert!(totals.acknowledged > 0 && totals.failed == 0, "{totals:?}"),
        other => panic!("the load ends early: {other:?}"),
    }
    let shown = cluster.show(0);
    assert_eq!((&shown["cluster"]["term"], shown["cluster"]["state"].as_str()), (&term, Some("owner")), "{shown:#}");
    // Two of three members of etcd are enough to change the owner.
    cluster.try_command(0, &["volume", "hand-over", "vm1", "beta"]).unwrap_or_else(|why| panic!("{why}"));
    cluster.wait_for_owner(1);
    cluster.every_acknowledged_write_is_at(1);
}

/// Both hear the small machine, so that one of them is left out, and never both go on by themselves.
#[test]
fn the_way_between_the_two_hosts_may_be_lost() {
    let Some(mut cluster) = Cluster::new("witness-parted", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let mut options = cluster.load(0, 3 * PATIENCE);
    // What is read from a node that has lost the volume meanwhile is not answered: the load ends with its session, or by itself.
    options.requests = Some(2_000);
    let journal = options.journal.clone();
    let before = load::journal_bytes(&journal);
    let loading = std::thread::spawn(move || load::run(&options));
    load::wait_until_under_way(&journal, before);
    cluster.network.silence(0, 1);
    cluster.network.silence(1, 0);
    cluster
        .wait_for("one of the two to serve alone", |cluster| writes_through(cluster, 0) != writes_through(cluster, 1));
    let owner = usize::from(writes_through(&cluster, 1));
    // A client of the one that was left out waits until that one reaches the other again.
    cluster.network.heal();
    let ended = loading.join().expect("the load does not panic");
    assert!(matches!(ended, Ok(Ended::Finished(_) | Ended::ConnectionLost(_))), "{ended:?}");
    cluster.every_acknowledged_write_is_at(owner);
    cluster.wait_for_copies(owner);
}
