//! A node that has other addresses than before, from its next start on or from one moment to the next: links follow, nobody else is
//! started anew, and writes are acknowledged by two logs.

use forebay_tests::cluster::{Cluster, NAMES};
use forebay_tests::pattern::load::{self, Ended};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The addresses of another node, as one shows its channels to it, each with whether it is up.
fn channels(cluster: &Cluster, node: usize, other: usize) -> BTreeSet<(IpAddr, bool)> {
    let nodes = cluster.try_command(node, &["node", "list"]).unwrap_or_default();
    let peer = nodes.as_array().and_then(|nodes| nodes.iter().find(|peer| peer["name"] == NAMES[other]).cloned());
    let channels = peer.map(|peer| peer["channels"].clone()).unwrap_or_default();
    let shown = channels.as_array().into_iter().flatten().filter_map(|channel| {
        let address: SocketAddr = channel["address"].as_str()?.parse().ok()?;
        Some((address.ip(), channel["phase"] == "up"))
    });
    shown.collect()
}

/// Each of two nodes reaches the other one by both links where it is now, and shows nothing else.
#[track_caller]
fn wait_for_links(cluster: &Cluster) {
    for (node, other) in [(0, 1), (1, 0)] {
        let address = |link| (cluster.host(other).address(link).parse::<IpAddr>().expect("an address"), true);
        let expected = BTreeSet::from([address(0), address(1)]);
        cluster.wait_for(&format!("{expected:?} and no other channel at {}", NAMES[node]), |cluster| {
            channels(cluster, node, other) == expected
        });
    }
}

/// Writes at the owner, all of them acknowledged.
#[track_caller]
fn write_at(cluster: &Cluster, node: usize) {
    cluster.wait_for_copies(node);
    match load::run(&cluster.load(node, Duration::from_secs(2))) {
        Ok(Ended::Finished(totals)) => assert!(totals.acknowledged > 0 && totals.failed == 0, "{totals:?}"),
        other => {
            cluster.describe_all();
            panic!("{other:?}");
        }
    }
    cluster.wait_for_copies(node);
}

/// First the one that is called, then the one that calls; etcd keeps its own address beside the new one of the first link.
#[test]
fn a_node_that_is_started_with_other_addresses_has_links_without_a_restart_of_the_other() {
    let Some(mut cluster) = Cluster::new("started-elsewhere", 2) else { return };
    cluster.serve_with_a_copy("memory");
    write_at(&cluster, 0);

    for (moved, stays) in [(1, 0), (0, 1)] {
        let pid = cluster.pid(stays);
        cluster.stop(moved);
        cluster.network.readdress(moved, 0, 101 + moved as u8, true);
        cluster.network.readdress(moved, 1, 101 + moved as u8, false);
        cluster.start(moved);
        wait_for_links(&cluster);
        assert_eq!(cluster.pid(stays), pid);
        let owner = cluster.owner_among(&[0, 1]);
        write_at(&cluster, owner);
        cluster.every_acknowledged_write_is_at(owner);
    }

    // One of two: the other link works, whichever of them is up first.
    cluster.stop(1);
    cluster.network.readdress(1, 1, 202, false);
    cluster.start(1);
    wait_for_links(&cluster);
    let owner = cluster.owner_among(&[0, 1]);
    write_at(&cluster, owner);
    cluster.every_acknowledged_write_is_at(owner);
}

/// An interface is given another address while the other link works: no client sees an error, and nobody is started anew.
#[test]
fn an_interface_that_gets_another_address_is_followed_while_clients_write() {
    let Some(mut cluster) = Cluster::prepare("moves-while-serving", 2, "") else { return };
    cluster.name_interfaces();
    cluster.start_all();
    cluster.serve_with_a_copy("memory");
    let loading = cluster.begin_load_for(0, Duration::from_secs(30));
    // The one that is called, then the one that calls.
    for moved in [1, 0] {
        cluster.network.readdress(moved, 1, 101 + moved as u8, false);
        wait_for_links(&cluster);
    }
    cluster.load_has_finished(loading);
    cluster.wait_for_copies(0);
    cluster.every_acknowledged_write_is_at(0);
}
