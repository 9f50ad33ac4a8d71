//! What operators ask of a cluster, given at whichever node: a node that is evacuated, owners by name, drains and holds, deletion, and
//! what is asked of a volume while it serves. Real daemons in network namespaces, and a real etcd.

use forebay_tests::cluster::{Cluster, NAMES, SIZE};
use forebay_tests::nbd::{Client, Target};
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::load::{self, Ended};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Three nodes. None, and said so, where the machine does not let us.
fn three(name: &str) -> Option<Cluster> {
    let cluster = Cluster::new(name, 3)?;
    cluster.wait_for("links between all", |cluster| {
        (0..NAMES.len()).all(|node| {
            let nodes = cluster.try_command(node, &["node", "list"]).unwrap_or_default();
            nodes.as_array().is_some_and(|nodes| nodes.iter().filter(|other| other["up"] == true).count() == 2)
        })
    });
    Some(cluster)
}

#[track_caller]
fn done(cluster: &Cluster, node: usize, words: &[&str]) -> Value {
    cluster.try_command(node, words).unwrap_or_else(|why| {
        cluster.describe_all();
        panic!("{why}")
    })
}

#[track_caller]
fn refused(cluster: &Cluster, node: usize, words: &[&str], because: &str) {
    match cluster.try_command(node, words) {
        Ok(done) => panic!("{words:?} is done: {done:#}"),
        Err(why) => assert!(why.contains(because), "{words:?}: {why}"),
    }
}

/// The record's members, as a node knows them.
fn members(cluster: &Cluster, node: usize) -> Vec<String> {
    let shown = cluster.show(node);
    let members = shown["cluster"]["members"].as_array().cloned().unwrap_or_default();
    let recorded = members.iter().filter(|member| member["role"] != "learner");
    recorded.map(|member| member["node"].as_str().expect("a member has a name").to_owned()).collect()
}

fn evacuation(cluster: &Cluster, node: usize, name: &str) -> Value {
    let nodes = cluster.try_command(node, &["node", "list"]).unwrap_or_default();
    let found = nodes.as_array().into_iter().flatten().find(|entry| entry["name"] == name);
    found.map(|entry| entry["evacuation"].clone()).unwrap_or_default()
}

/// Makes `vm1`, and waits for its copies.
#[track_caller]
fn create(cluster: &Cluster, node: usize, peers: usize, tier: &str) {
    let (size, copies) = (SIZE.to_string(), peers.to_string());
    let image = cluster.image();
    let image = image.to_str().expect("a plain path");
    let made = ["volume", "create", "vm1", "--backing", image, "--size", &size, "--create", "--policy", "back"];
    let asked = ["--peers", &copies, "--tier", tier, "--tier-size", "64M"];
    done(cluster, node, &[&made[..], &asked[..]].concat());
    cluster.wait_for("the copies", |cluster| members(cluster, node).len() == 1 + peers);
}

/// A short load, to its end.
#[track_caller]
fn write_to(cluster: &Cluster, node: usize) {
    match load::run(&cluster.load(node, Duration::from_secs(2))) {
        Ok(Ended::Finished(_)) => {}
        other => panic!("the load ends early: {other:?}"),
    }
}

fn flash_tiers(cluster: &Cluster, node: usize) -> Vec<PathBuf> {
    let files = std::fs::read_dir(cluster.place(node, "state").join("tiers"));
    files.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn number_of(name: &str) -> usize {
    NAMES.iter().position(|other| *other == name).expect("a node of this test")
}

/// Maintenance: everything moves away, stays away over a restart, and comes back when it is asked to.
#[test]
fn a_drained_node_owns_nothing_and_has_no_copy_until_it_is_taken_back() {
    let Some(mut cluster) = three("commands-drain") else { return };
    create(&cluster, 0, 1, "memory");
    write_to(&cluster, 0);

    done(&cluster, 2, &["node", "evacuate", "alpha"]);
    assert_eq!(evacuation(&cluster, 2, "alpha")["state"], "evacuated");
    let owner = number_of(cluster.show(2)["cluster"]["owner"].as_str().expect("it has an owner"));
    assert_ne!(owner, 0);
    cluster.wait_for_owner(owner);
    cluster.wait_for("the other two to be the members", |cluster| {
        let mut all = members(cluster, owner);
        all.sort();
        all == ["beta", "gamma"]
    });
    cluster.every_acknowledged_write_is_at(owner);

    cluster.stop(0);
    cluster.start(0);
    cluster
        .wait_for("it to know that it is evacuated", |cluster| evacuation(cluster, 0, "alpha")["state"] == "evacuated");
    refused(&cluster, 0, &["volume", "hand-over", "vm1", "alpha"], "to be evacuated");
    refused(&cluster, 0, &["volume", "create", "vm2", "--backing", "/none", "--peers", "0"], "to be evacuated");

    // One of the two that are left has nobody to give its copy to.
    let other = 3 - owner;
    let kept = cluster.command(0, &["node", "evacuate", NAMES[other]]);
    assert!(!kept.status.success(), "{}", kept.describe());
    let kept: Value = serde_json::from_str(&kept.stdout).expect("JSON");
    let keeps = &kept["evacuation"]["keeps"];
    assert_eq!((&keeps[0]["volume"], &keeps[0]["stays"]), (&Value::from("vm1"), &Value::from(true)), "{kept:#}");
    assert_eq!(members(&cluster, owner).len(), 2, "no copy is given up for nothing");

    done(&cluster, 1, &["node", "evacuate", "alpha", "--undo"]);
    cluster.wait_for("the copy to move to the node that is back", |cluster| {
        evacuation(cluster, 0, NAMES[other])["state"] == "evacuated" && evacuation(cluster, 0, "alpha").is_null()
    });
    cluster.wait_for("alpha to have the copy", |cluster| members(cluster, owner).contains(&"alpha".to_owned()));
    cluster.every_acknowledged_write_is_at(owner);
}

/// It is made a member first (S6), then the owner, then one copy too many goes.
#[test]
fn a_volume_is_handed_over_to_a_node_without_a_copy_by_a_command_at_any_node() {
    let Some(cluster) = three("commands-hand-over") else { return };
    create(&cluster, 0, 1, "flash");
    write_to(&cluster, 0);
    let member = members(&cluster, 0).into_iter().find(|name| name != "alpha").expect("it has a copy");
    let outsider = 3 - number_of(&member);
    let shown = done(&cluster, number_of(&member), &["volume", "hand-over", "vm1", NAMES[outsider]]);
    assert_eq!(shown["cluster"]["owner"], NAMES[outsider], "{shown:#}");
    cluster.wait_for_owner(outsider);
    cluster.every_acknowledged_write_is_at(outsider);
    cluster.wait_for("as many copies as are asked for", |cluster| members(cluster, outsider).len() == 2);
    refused(&cluster, 0, &["volume", "hand-over", "vm1", "delta"], "delta");
}

#[test]
fn drains_and_holds_of_a_cluster_volume_are_commands_at_any_node() {
    let Some(cluster) = three("commands-hold") else { return };
    create(&cluster, 0, 2, "memory");
    write_to(&cluster, 0);
    done(&cluster, 1, &["volume", "drain", "vm1"]);
    let history = History::read(&cluster.folder.join("journal")).expect("the load has written it");
    if let Err(why) = check::image_complete(&history, &cluster.image()) {
        panic!("{why}");
    }

    done(&cluster, 2, &["volume", "drain", "vm1", "--hold", "10m"]);
    assert_eq!(cluster.show(0)["backing"]["state"], "held");
    write_to(&cluster, 0);
    assert!(cluster.show(0)["dirty"]["bytes"].as_u64() > Some(0), "what is held is not destaged");
    refused(&cluster, 1, &["volume", "drain", "vm1"], "held");
    done(&cluster, 1, &["volume", "release", "vm1"]);
    refused(&cluster, 1, &["volume", "release", "vm1"], "void");

    done(&cluster, 2, &["volume", "drain", "vm1", "--through"]);
    assert_eq!(cluster.show(0)["policy"]["effective"], "through");
    done(&cluster, 1, &["volume", "release", "vm1"]);
    cluster.wait_for("write-back again", |cluster| cluster.show(0)["policy"]["effective"] == "back");
    cluster.every_acknowledged_write_is_at(0);
}

/// What `--create` has made for it goes again; what was there stays.
#[test]
fn a_volume_that_could_not_be_made_leaves_no_image_that_was_made_for_it() {
    let Some(cluster) = three("commands-create") else { return };
    create(&cluster, 0, 1, "memory");
    let image = cluster.image().with_file_name("another.img");
    let path = image.to_str().expect("a plain path");
    let ask = |name, more: &[&str], because| {
        let words = ["volume", "create", name, "--backing", path, "--size", "16M", "--create", "--peers", "1"];
        refused(&cluster, 1, &[&words[..], more].concat(), because);
    };
    // Another one has that name, and a file cannot be reserved.
    for (name, more, because) in [("vm1", &[][..], "has its name"), ("vm2", &["--reserve"], "leave --reserve out")] {
        ask(name, more, because);
        assert!(!image.exists(), "{because}");
        std::fs::write(&image, vec![5; 16 << 20]).expect("a file of our own");
        ask(name, more, because);
        assert!(std::fs::read(&image).expect("it stays") == vec![5; 16 << 20], "{because}");
        std::fs::remove_file(&image).expect("it is ours");
    }
    assert_eq!(cluster.try_command(1, &["volume", "list"]).unwrap_or_default().as_array().map(Vec::len), Some(1));
    // Nothing of the attempts is in the way.
    let words = ["volume", "create", "vm2", "--backing", path, "--size", "16M", "--create", "--peers", "1"];
    done(&cluster, 1, &[&words[..], &["--tier", "memory", "--tier-size", "64M"]].concat());
}

/// Its record stays, as one of a deleted volume; its tiers go everywhere, also where a node was away.
#[test]
fn a_deleted_volume_is_gone_everywhere_also_on_a_node_that_was_away() {
    let Some(mut cluster) = three("commands-delete") else { return };
    create(&cluster, 0, 2, "flash");
    write_to(&cluster, 0);
    cluster.kill(2);
    cluster.wait_for("the member that died to be left out", |cluster| members(cluster, 0).len() == 2);

    let client = Client::connect(&cluster.target(0)).expect("alpha serves it");
    refused(&cluster, 1, &["volume", "delete", "vm1"], "clients");
    drop(client);
    done(&cluster, 1, &["volume", "drain", "vm1"]);
    cluster.wait_for("its client to have gone", |cluster| cluster.show(0)["connections"] == 0);
    done(&cluster, 1, &["volume", "delete", "vm1"]);
    for node in [0, 1] {
        cluster.wait_for("the volume to be gone", |cluster| {
            cluster.try_command(node, &["volume", "list"]).is_ok_and(|list| list == Value::Array(vec![]))
        });
    }
    cluster.wait_for("the tiers to be gone", |cluster| {
        flash_tiers(cluster, 0).is_empty() && flash_tiers(cluster, 1).is_empty()
    });
    assert_eq!(flash_tiers(&cluster, 2).len(), 1, "gamma was away");
    cluster.start(2);
    cluster.wait_for("its tier to be gone, too", |cluster| flash_tiers(cluster, 2).is_empty());
    assert_eq!(done(&cluster, 2, &["volume", "list"]), Value::Array(vec![]));

    // Its name is free, and its image as it was.
    let image = cluster.image();
    let image = image.to_str().expect("a plain path");
    let again = ["volume", "create", "vm1", "--backing", image, "--policy", "back", "--peers", "1", "--tier", "flash"];
    done(&cluster, 2, &[&again[..], &["--tier-size", "48M"]].concat());
    cluster.wait_for_owner(2);
    cluster.every_acknowledged_write_is_at(2);
}

#[test]
fn what_is_asked_of_a_cluster_volume_changes_while_it_serves() {
    let Some(cluster) = three("commands-set") else { return };
    create(&cluster, 0, 1, "memory");
    refused(&cluster, 1, &["volume", "set", "vm1", "--min-peers", "2"], "min_peers = 2 is more than peers = 1");
    refused(&cluster, 1, &["volume", "set", "vm1", "--flush", "media"], "flash");
    done(&cluster, 1, &["volume", "set", "vm1", "--flush", "destage"]);

    // Three nodes are all that there are: with fewer copies than this the backing is needed, too.
    done(&cluster, 1, &["volume", "set", "vm1", "--peers", "3", "--min-peers", "3"]);
    cluster.wait_for("write-through for want of a fourth node", |cluster| {
        let shown = cluster.show(0);
        shown["policy"]["effective"] == "through" && shown["policy"]["reason"] == "too-few-peers"
    });
    done(&cluster, 2, &["volume", "set", "vm1", "--min-peers", "1"]);
    cluster.wait_for("write-back again", |cluster| cluster.show(0)["policy"]["effective"] == "back");
    write_to(&cluster, 0);
    done(&cluster, 2, &["volume", "set", "vm1", "--policy", "through"]);
    cluster.wait_for("write-through", |cluster| {
        let shown = cluster.show(0);
        shown["policy"]["effective"] == "through" && shown["policy"]["reason"] == "as-requested"
    });
    write_to(&cluster, 0);
    done(&cluster, 0, &["volume", "set", "vm1", "--policy", "back", "--peers", "0"]);
    cluster.wait_for("one log to be enough", |cluster| {
        cluster.show(0)["policy"]["effective"] == "back" && members(cluster, 0) == ["alpha"]
    });
    cluster.every_acknowledged_write_is_at(0);
}

/// Requests beyond the old end come last; whoever takes over then has the size, too (A7).
#[test]
fn a_cluster_volume_grows_while_it_serves_and_keeps_its_size_over_a_take_over() {
    let Some(mut cluster) = three("commands-resize") else { return };
    create(&cluster, 0, 1, "flash");
    write_to(&cluster, 0);
    refused(&cluster, 1, &["volume", "resize", "vm1", "1M"], "only grow");
    let grown = 2 * SIZE;
    let shown = done(&cluster, 2, &["volume", "resize", "vm1", &grown.to_string()]);
    assert_eq!(shown["size_bytes"], grown, "{shown:#}");
    let image = std::fs::metadata(cluster.image()).expect("the image is there");
    assert!(image.len() >= grown);

    let block = [0x5a; 4096];
    let mut client = Client::connect(&cluster.target(0)).expect("alpha serves it");
    client.write(grown - 4096, &block, 0).expect("a reply").expect("a write beyond the old end");
    drop(client);
    cluster.kill(0);
    let owner = cluster.owner_among(&[1, 2]);
    cluster.wait_for_owner(owner);
    let mut client = Client::connect(&cluster.target(owner)).expect("the new owner serves it");
    let mut found = [0; 4096];
    client.read(grown - 4096, &mut found).expect("a reply").expect("a read beyond the old end");
    assert_eq!(found, block);
    drop(client);
    cluster.every_acknowledged_write_is_at(owner);
    cluster.start(0);
    cluster.wait_for("a second copy of the grown volume", |cluster| members(cluster, owner).len() == 2);
}

#[test]
fn every_node_shows_what_the_owner_sees() {
    let Some(cluster) = three("commands-show") else { return };
    create(&cluster, 0, 1, "memory");
    let outsider =
        (1..3).find(|node| !members(&cluster, 0).contains(&NAMES[*node].to_owned())).expect("one has no copy");
    cluster.wait_for("the owner to have told", |cluster| {
        let shown = cluster.show(outsider);
        let lags = shown["cluster"]["members"].as_array().into_iter().flatten().filter(|member| member["lag"].is_u64());
        shown["policy"]["reason"] == "as-requested"
            && shown["policy"]["effective"] == "back"
            && shown["cluster"]["owner_reason"] == "as-it-should-be"
            && lags.count() == 1
    });
    done(&cluster, outsider, &["volume", "set", "vm1", "--peers", "3", "--min-peers", "3"]);
    cluster.wait_for("the reason at every node", |cluster| {
        (0..3).all(|node| {
            let shown = cluster.show(node);
            (&shown["policy"]["effective"], &shown["policy"]["reason"])
                == (&Value::from("through"), &Value::from("too-few-peers"))
        })
    });
}

/// SIGTERM: all that the node owns goes to others, and it says so.
#[test]
fn a_node_that_stops_hands_over_all_that_it_owns() {
    let Some(mut cluster) = three("commands-stop") else { return };
    create(&cluster, 0, 1, "memory");
    write_to(&cluster, 0);
    let second = cluster.image().with_file_name("vm2.img");
    let second = second.to_str().expect("a plain path");
    let made = ["volume", "create", "vm2", "--backing", second, "--size", "16M", "--create", "--policy", "back"];
    done(&cluster, 0, &[&made[..], &["--peers", "2", "--tier", "flash", "--tier-size", "48M"]].concat());
    cluster.wait_for("the copies of the second", |cluster| {
        let shown = cluster.try_command(0, &["volume", "show", "vm2"]).unwrap_or_default();
        shown["cluster"]["members"].as_array().is_some_and(|members| members.len() == 3)
            && shown["policy"]["effective"] == "back"
    });
    cluster.stop(0);
    for volume in ["vm1", "vm2"] {
        let owner = |cluster: &Cluster, node: usize| {
            let shown = cluster.try_command(node, &["volume", "show", volume]).unwrap_or_default();
            shown["cluster"]["state"] == "owner" && shown["phase"] == "serving"
        };
        cluster.wait_for("another owner", |cluster| owner(cluster, 1) || owner(cluster, 2));
    }
    let said = std::fs::read_to_string(cluster.place(0, "log")).expect("its log");
    for volume in ["vm1", "vm2"] {
        assert!(said.contains(&format!("volume {volume}: handing over to ")), "{said}");
    }
    let owner = cluster.owner_among(&[1, 2]);
    let first = format!("nbd+unix:///vm1?socket={}", cluster.place(owner, "nbd.sock").display());
    let target = Target::parse(&first).expect("a URI");
    if let Err(why) = check::settle_after_kill(&cluster.folder.join("journal"), &target) {
        cluster.describe_all();
        panic!("{why}");
    }
}
