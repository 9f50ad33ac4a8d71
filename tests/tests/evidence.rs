//! What is known about the writes of an owner that was given up, in real daemons: fences and evidence end its quarantine, and
//! operators have ways out where nothing does, each by two words and with a line in the audit log. A peer that is slower than
//! the others is left out.

use forebay_tests::bmc::{Bmc, lives};
use forebay_tests::cluster::{Cluster, NAMES, PATIENCE};
use forebay_tests::harness::{Nbdkit, require_tool, run_tool, skip};
use forebay_tests::hosts::Shape;
use forebay_tests::kernel::{Fuse, Loop, Mounted, no_fuse_or_loop};
use forebay_tests::nbd::Client;
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::{check, load};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Nodes on machines of their own, so that locks prove nothing from one to the other.
fn on_machines(name: &str, nodes: usize) -> Option<Cluster> {
    let mut cluster = Cluster::prepare(name, nodes, "")?;
    cluster.give_machines();
    Some(cluster)
}

#[track_caller]
fn done(cluster: &Cluster, node: usize, words: &[&str]) -> Value {
    cluster.try_command(node, words).unwrap_or_else(|why| {
        cluster.describe_all();
        panic!("{words:?} at {}: {why}", NAMES[node])
    })
}

#[track_caller]
fn refused(cluster: &Cluster, node: usize, words: &[&str], exit: i32, why: &str) {
    let output = cluster.command(node, words);
    assert_eq!(output.status.code(), Some(exit), "{words:?}: {}", output.describe());
    assert!(output.stderr.contains(why), "{words:?}: {}", output.describe());
}

/// The lines of the audit log that are of one kind.
fn audited(cluster: &Cluster, node: usize, action: &str) -> Vec<Value> {
    let lines = done(cluster, node, &["node", "audit"]);
    lines.as_array().into_iter().flatten().filter(|line| line["action"] == action).cloned().collect()
}

fn unfenced(cluster: &Cluster, node: usize) -> u64 {
    cluster.show(node)["cluster"]["unfenced"].as_u64().unwrap_or(u64::MAX)
}

/// The first of the former owners about whom proof is missing, as an operator has to name it: `alpha@5`.
fn former(cluster: &Cluster, node: usize) -> String {
    let former = &cluster.show(node)["cluster"]["fence"]["former"][0];
    format!("{}@{}", former["node"].as_str().unwrap_or_default(), former["term"])
}

/// The recorded owner, likewise.
fn owner(cluster: &Cluster, node: usize) -> String {
    let shown = &cluster.show(node)["cluster"];
    format!("{}@{}", shown["owner"].as_str().unwrap_or_default(), shown["term"])
}

/// Why there is no proof about the first of the former owners.
fn why_unproven(cluster: &Cluster, node: usize) -> String {
    cluster.show(node)["cluster"]["fence"]["former"][0].to_string()
}

/// Proves N-M-6: a machine that hangs is switched off, seen to be off, and what it had under way is pinned no longer.
#[test]
fn an_owner_that_hangs_is_switched_off_by_its_successor_and_the_quarantine_ends() {
    require_tool("fence_ipmilan");
    require_tool("ipmitool");
    let Some(mut cluster) = on_machines("evidence-power", 2) else { return };
    let mut bmc = Bmc::start(&cluster.folder.join("bmc"), Some(cluster.host(1).namespace()));
    cluster.add_tables(1, &bmc.table("alpha"));
    cluster.start_all();
    cluster.serve_with_a_copy("memory");
    let alpha = cluster.daemons[0].as_ref().expect("it runs").pid();
    bmc.stands_for(alpha);
    let means = cluster.show(1)["cluster"]["fence"].clone();
    assert_eq!((&means["class"], &means["means"][0]["means"]), (&"fence".into(), &"power".into()), "{means:#}");
    assert_eq!(means["means"][0]["last_proven_unix_s"], Value::Null, "{means:#}");

    let loading = cluster.begin_load(0);
    cluster.daemons[0].as_mut().expect("it runs").stop();
    cluster.wait_for_owner(1);
    cluster.wait_for("what is waited for to be shown", |cluster| {
        unfenced(cluster, 1) == 1 && why_unproven(cluster, 1).contains("alpha")
    });
    assert!(lives(alpha), "evidence has its time before a machine is switched off");
    cluster.wait_for("the machine to be switched off, and the quarantine to end", |cluster| unfenced(cluster, 1) == 0);
    assert!(!lives(alpha), "alpha was said to be off, and lives");
    cluster.load_has_broken_off(loading);
    cluster.daemons[0] = None;
    cluster.every_acknowledged_write_is_at(1);
    let power = audited(&cluster, 1, "power-off");
    assert_eq!(power.len(), 1, "once, and once only: {power:?}");
    assert!(power[0]["words"].as_str().is_some_and(|words| words.contains("alpha was switched off by fence_ipmilan")));
    let means = cluster.show(1)["cluster"]["fence"]["means"][0].clone();
    assert!(means["last_proven_unix_s"].as_u64().is_some(), "{means:#}");
}

/// Proves N-M-6: where no fence works, its own words are shown, and the operator's word ends the quarantine.
#[test]
fn a_fence_that_is_missing_is_shown_and_the_operators_word_counts_when_it_names_the_right_node() {
    let Some(mut cluster) = on_machines("evidence-word", 2) else { return };
    cluster.add_tables(1, "[[fence]]\nnode = \"alpha\"\nagent = \"fence_nosuchthing\"\n");
    cluster.start_all();
    cluster.serve_with_a_copy("memory");
    cluster.load_and_kill(0);
    cluster.wait_for_owner(1);
    cluster.wait_for("the agent's absence to be shown", |cluster| {
        let why = why_unproven(cluster, 1);
        why.contains("cannot find the fence agent fence_nosuchthing") && why.contains("its lock says nothing")
    });
    cluster.every_acknowledged_write_is_at(1);
    assert_eq!(unfenced(&cluster, 1), 1);

    refused(&cluster, 1, &["volume", "fenced", "vm1"], 2, "--i-fenced-it");
    let alpha = former(&cluster, 1);
    let missing = format!("proof is missing about {alpha}");
    refused(&cluster, 1, &["volume", "fenced", "vm1", "--i-fenced-it", &alpha.replace("alpha", "beta")], 1, &missing);
    // His word is about the term that he has seen: alpha may have been the owner again since.
    let term: u32 = alpha.split_once('@').and_then(|(_, term)| term.parse().ok()).expect("a term");
    for other in ["alpha".to_owned(), format!("alpha@{}", term - 1), format!("alpha@{}", term + 1)] {
        refused(&cluster, 1, &["volume", "fenced", "vm1", "--i-fenced-it", &other], 1, &missing);
    }
    assert!(audited(&cluster, 1, "fenced").is_empty());
    assert_eq!(unfenced(&cluster, 1), 1);
    done(&cluster, 1, &["volume", "fenced", "vm1", "--i-fenced-it", &alpha]);
    cluster.wait_for("the quarantine to end", |cluster| unfenced(cluster, 1) == 0);
    let said = audited(&cluster, 1, "fenced");
    assert_eq!((said.len(), &said[0]["volume"], &said[0]["node"]), (1, &"vm1".into(), &"beta".into()), "{said:?}");
    assert!(said[0]["words"].as_str().is_some_and(|words| words.contains(&alpha)), "{said:?}");
    refused(&cluster, 1, &["volume", "fenced", "vm1", "--i-fenced-it", &alpha], 1, "waits for no proof");
    cluster.every_acknowledged_write_is_at(1);
}

/// Proves N-M-6 for a volume that is given up: a former owner's late write would land in whatever its backing is used for next.
#[test]
fn a_volume_is_not_deleted_before_its_former_owners_are_proved_to_write_no_more() {
    let Some(mut cluster) = on_machines("evidence-delete", 2) else { return };
    cluster.start_all();
    cluster.serve_with_a_copy("memory");
    cluster.load_and_kill(0);
    cluster.wait_for_owner(1);
    assert_eq!(unfenced(&cluster, 1), 1);
    let delete = ["volume", "delete", "vm1", "--discard-dirty"];
    let alpha = former(&cluster, 1);
    refused(&cluster, 1, &delete, 1, &format!("forebay volume fenced vm1 --i-fenced-it {alpha}`"));
    // What its owner can tell is not for the operator to say here.
    refused(&cluster, 1, &[&delete[..], &["--i-fenced-it", &alpha]].concat(), 1, "leave --i-fenced-it out");
    assert!(audited(&cluster, 1, "delete-discard-dirty").is_empty());
    cluster.every_acknowledged_write_is_at(1);
    done(&cluster, 1, &["volume", "fenced", "vm1", "--i-fenced-it", &alpha]);
    cluster.wait_for("the quarantine to end", |cluster| unfenced(cluster, 1) == 0);
    done(&cluster, 1, &delete);
    assert_eq!(audited(&cluster, 1, "delete-discard-dirty").len(), 1);

    // Nobody serves it, and its owner's machine says nothing: it may hang with writes under way.
    let Some(mut cluster) = on_machines("evidence-delete-dead", 2) else { return };
    cluster.start_all();
    let image = cluster.image().to_str().expect("a plain path").to_owned();
    let create = ["volume", "create", "vm1", "--backing", &image, "--size", "16M", "--create", "--peers", "0"];
    done(&cluster, 0, &create);
    cluster.wait_for_owner(0);
    cluster.kill(0);
    let alpha = owner(&cluster, 1);
    let asked_for = format!("--discard-dirty --i-fenced-it {alpha}`");
    let asked = |cluster: &Cluster| cluster.command(1, &delete).stderr.contains(&asked_for);
    cluster.wait_for("the owner to be seen as gone, and the operator to be asked", asked);
    for other in [alpha.replace("alpha", "beta"), "alpha".to_owned(), format!("{alpha}1")] {
        refused(&cluster, 1, &[&delete[..], &["--i-fenced-it", &other]].concat(), 1, &asked_for);
    }
    done(&cluster, 1, &[&delete[..], &["--i-fenced-it", &alpha]].concat());
    let said = audited(&cluster, 1, "delete-discard-dirty");
    let words = format!("by the operator's word {alpha}");
    assert!(said.len() == 1 && said[0]["words"].to_string().contains(&words), "{said:?}");
}

/// An export has no locks, so nothing proves that an owner's last writes have ended: it is asked for before anything ends.
#[test]
fn a_volume_without_locks_is_served_until_its_deletion_is_sure() {
    let Some(mut cluster) = on_machines("evidence-delete-export", 2) else { return };
    cluster.start_all();
    let (image, socket) = (cluster.folder.sparse("export.img", 16 << 20), cluster.folder.join("export.sock"));
    let _server = Nbdkit::start_at(&socket, ["file", image.to_str().expect("a plain path")]);
    let backing = format!("nbd+unix:///?socket={}&nbd_quiet=0s", socket.display());
    done(&cluster, 0, &["volume", "create", "vm1", "--backing", &backing, "--size", "16M", "--peers", "0"]);
    cluster.wait_for_owner(0);
    let alpha = owner(&cluster, 0);
    let delete = ["volume", "delete", "vm1", "--discard-dirty"];
    let asked_for = format!("--discard-dirty --i-fenced-it {alpha}`");
    for node in 0..2 {
        refused(&cluster, node, &delete, 1, &asked_for);
    }
    refused(
        &cluster,
        0,
        &[&delete[..], &["--i-fenced-it", &format!("{alpha}1")]].concat(),
        1,
        "leave --i-fenced-it out",
    );
    assert_eq!(cluster.show(0)["cluster"]["state"], "owner", "it is served as before");
    assert!(audited(&cluster, 0, "delete-discard-dirty").is_empty());
    done(&cluster, 0, &[&delete[..], &["--i-fenced-it", &alpha]].concat());
    let said = audited(&cluster, 0, "delete-discard-dirty");
    assert!(said.len() == 1 && said[0]["words"].to_string().contains(&alpha), "{said:?}");
}

/// Proves N-M-1: on a local file system a machine in another boot has forgotten what it had under way.
#[test]
fn an_owner_whose_machine_was_started_anew_needs_no_fence() {
    let Some(mut cluster) = on_machines("evidence-boot", 2) else { return };
    cluster.start_all();
    cluster.serve_with_a_copy("memory");
    cluster.load_and_kill(0);
    cluster.wait_for_owner(1);
    assert_eq!(unfenced(&cluster, 1), 1);
    cluster.reboot(0);
    cluster.start(0);
    cluster.wait_for("the other boot to be seen", |cluster| unfenced(cluster, 1) == 0);
    cluster.every_acknowledged_write_is_at(1);
}

/// T11: a node that has a log alone, in memory, is stopped under load and its machine is started anew: what was acknowledged is in the image, and
/// the volume opens by itself. Killed it is not so, and the operator is asked.
#[test]
fn a_lone_owner_that_is_stopped_in_order_opens_by_itself_after_a_reboot() {
    let Some(mut cluster) = on_machines("evidence-alone", 1) else { return };
    cluster.start_all();
    let image = cluster.image().to_str().expect("a plain path").to_owned();
    let create = ["volume", "create", "vm1", "--backing", &image, "--size", "64M", "--create", "--policy", "back"];
    let alone = ["--peers", "0", "--min-peers", "0", "--tier", "memory", "--tier-size", "64M", "--volatile"];
    // A node alone has nobody to wait for at its start, and is in the cluster a moment later.
    let words = [&create[..], &alone].concat();
    cluster.wait_for("the volume to be made", |cluster| cluster.try_command(0, &words).is_ok());
    cluster.wait_for_owner(0);
    let tier = cluster.show(0)["tier"]["path"].as_str().expect("it has a tier").to_owned();
    let lose_memory = |cluster: &mut Cluster| {
        std::fs::remove_file(&tier).unwrap_or_else(|e| panic!("remove {tier}: {e}"));
        cluster.reboot(0);
        cluster.start(0);
    };
    let loading = cluster.begin_load(0);
    assert_eq!(cluster.show(0)["policy"]["effective"], "back");
    cluster.stop(0);
    cluster.load_has_broken_off(loading);
    lose_memory(&mut cluster);
    cluster.wait_for_owner(0);
    cluster.every_acknowledged_write_is_at(0);
    cluster.wait_for("the policy that was asked for", |cluster| cluster.show(0)["policy"]["effective"] == "back");
    let mut client = Client::connect(&cluster.target(0)).expect("the export");
    client.write(0, &[7; 4096], 0).expect("an answer").expect("taken");
    cluster.kill(0);
    lose_memory(&mut cluster);
    cluster.wait_for("the loss to be suspected", |cluster| cluster.show(0)["cluster"]["reason"] == "loss-suspected");
}

/// Power is cut at both nodes, with a write of everything that was asked for by default.
fn cut_power_of_both(cluster: &mut Cluster) {
    // Its successor must not take over before it is gone, too.
    let loading = cluster.begin_load(0);
    cluster.kill(1);
    cluster.kill(0);
    cluster.load_has_broken_off(loading);
    (0..2).for_each(|node| cluster.reboot(node));
}

/// Proves N-F-3: with all defaults, on flash, power is cut at every node. What is served after that, nobody had to ask for.
#[test]
fn a_volume_on_flash_opens_by_itself_after_a_power_cut_of_all_its_nodes() {
    let Some(mut cluster) = on_machines("evidence-blackout", 2) else { return };
    cluster.start_all();
    cluster.serve_with_a_copy("flash");
    cluster.wait_for("the record to promise media", |cluster| cluster.show(0)["cluster"]["flushed"] == "durable");
    cut_power_of_both(&mut cluster);
    // One that is missing may have more than the one that is there.
    cluster.start(1);
    cluster.wait_for("the other boot to be seen", |cluster| cluster.show(1)["cluster"]["reason"] == "earlier-life");
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert_eq!(cluster.show(1)["cluster"]["state"], "no-member");
    assert_eq!(cluster.show(1)["cluster"]["left"], serde_json::json!(["beta"]));
    let words = ["volume", "open", "vm1", "--accept-loss", "--yes-lose-acknowledged-writes"];
    refused(&cluster, 1, &words, 1, "--take-synced --yes-lose-unsynced-writes");
    refused(&cluster, 1, &["volume", "open", "vm1"], 1, "which is not given up");
    assert!(audited(&cluster, 1, "accept-loss").is_empty(), "a refused word leaves no line");
    cluster.start(0);
    let owner = cluster.owner_among(&[0, 1]);
    cluster.every_acknowledged_write_is_at(owner);
    for said in ["accept-loss", "take-synced"] {
        assert!(audited(&cluster, owner, said).is_empty(), "nobody was asked");
    }
    cluster.wait_for_copies(owner);
}

/// Power is cut at every node, and one does not come back: what the other has is taken by two words, at that one only.
#[test]
fn what_is_left_of_the_log_is_taken_by_two_words_where_it_is() {
    let Some(mut cluster) = on_machines("evidence-left", 3) else { return };
    cluster.start_all();
    cluster.serve_with_a_copy("flash");
    let members: Vec<usize> = (0..3).filter(|node| is_member(&cluster, *node)).collect();
    let [0, other] = members[..] else { panic!("the first one owns it, and another is a member: {members:?}") };
    let bystander = 3 - other;
    cluster.wait_for("the record to promise media", |cluster| cluster.show(0)["cluster"]["flushed"] == "durable");
    let loading = cluster.begin_load(0);
    cluster.kill(other);
    cluster.kill(0);
    cluster.load_has_broken_off(loading);
    cluster.reboot(other);
    cluster.start(other);
    cluster.wait_for("the other boot to be seen", |cluster| {
        cluster.show(bystander)["cluster"]["left"].as_array().is_some_and(|left| left.len() == 1)
    });
    done(&cluster, bystander, &["volume", "fenced", "vm1", "--i-fenced-it", &owner(&cluster, bystander)]);
    let words = ["volume", "open", "vm1", "--accept-loss", "--yes-lose-acknowledged-writes"];
    refused(&cluster, bystander, &words, 1, "which is not given up");
    let words = ["volume", "open", "vm1", "--take-synced", "--yes-lose-unsynced-writes"];
    refused(&cluster, bystander, &words, 1, "say so at");
    refused(&cluster, other, &words[..4], 2, "--yes-lose-unsynced-writes");
    done(&cluster, other, &words);
    cluster.wait_for_owner(other);
    assert_eq!(audited(&cluster, other, "take-synced").len(), 1);
    cluster.every_acknowledged_write_is_at(other);
}

fn is_member(cluster: &Cluster, node: usize) -> bool {
    cluster.show(node)["cluster"]["state"] != "no-member"
}

/// Proves N-F-4: all logs are gone; the volume refuses, and opens by two words and with proof for its last owner.
#[test]
fn a_volume_whose_logs_are_lost_opens_only_when_the_loss_is_accepted() {
    let Some(mut cluster) = on_machines("evidence-loss", 2) else { return };
    cluster.start_all();
    cluster.serve_with_a_copy("flash");
    cluster.load_and_kill(0);
    // Its successor must not take over before it is gone, too.
    cluster.kill(1);
    for node in 0..2 {
        let tiers = cluster.place(node, "state").join("tiers");
        std::fs::remove_dir_all(&tiers).unwrap();
        std::fs::create_dir(&tiers).unwrap();
    }
    let history = History::read(&cluster.folder.join("journal")).expect("a journal");
    check::image(&history, &cluster.image()).unwrap_or_else(|why| panic!("the backing by itself: {why}"));
    let left = std::fs::read(cluster.image()).expect("the backing");
    cluster.reboot(0);
    cluster.start(1);
    cluster.start(0);
    cluster.wait_for("the loss to be suspected", |cluster| cluster.show(1)["cluster"]["reason"] == "loss-suspected");

    refused(&cluster, 1, &["volume", "open", "vm1"], 1, "--accept-loss --yes-lose-acknowledged-writes");
    refused(&cluster, 1, &["volume", "open", "vm1", "--accept-loss"], 2, "--yes-lose-acknowledged-writes");
    assert!(audited(&cluster, 1, "accept-loss").is_empty());
    let words = ["volume", "open", "vm1", "--accept-loss", "--yes-lose-acknowledged-writes"];
    let fenced = ["volume", "fenced", "vm1", "--i-fenced-it"];
    // Where the last owner's other boot is no proof, the operator's word is needed, and is asked for.
    let opened = cluster.command(1, &words);
    if !opened.status.success() {
        let alpha = owner(&cluster, 1);
        assert!(opened.stderr.contains(&format!("--i-fenced-it {alpha}`")), "{}", opened.describe());
        assert!(audited(&cluster, 1, "accept-loss").is_empty(), "a refused word leaves no line");
        done(&cluster, 1, &[&fenced[..], &[alpha.as_str()]].concat());
        done(&cluster, 1, &words);
    }
    cluster.wait_for_owner(1);
    let said = audited(&cluster, 1, "accept-loss");
    assert_eq!((said.len(), &said[0]["volume"]), (1, &"vm1".into()), "{said:?}");
    // What is served is that crash image, and it takes writes.
    let mut client = Client::connect(&cluster.target(1)).expect("the export");
    let mut served = vec![0; left.len()];
    for (number, part) in served.chunks_mut(1 << 20).enumerate() {
        client.read((number as u64) << 20, part).expect("an answer").expect("its bytes");
    }
    assert!(served == left, "what is served is not what the backing had");
    client.write(0, &[7; 4096], 0).expect("an answer").expect("taken");
    client.flush().expect("an answer").expect("flushed");
    cluster.wait_for_copies(1);
}

/// Proves N-M-9: nothing is changed until the operator has spoken, the owner serves on, and writes the record anew.
#[test]
fn a_coordinator_that_went_back_in_time_is_noticed_and_the_record_is_written_anew_by_two_words() {
    let Some(mut cluster) = Cluster::new("evidence-back", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let backup = cluster.folder.join("etcd.backup");
    cluster.etcd.backup(&backup);
    refused(
        &cluster,
        0,
        &["volume", "restore-record", "vm1", "--yes-the-coordinator-went-back"],
        1,
        "it is so already",
    );
    // A change that the backup does not have.
    done(&cluster, 0, &["volume", "set", "vm1", "--peers", "0"]);
    cluster.wait_for("one member", |cluster| cluster.show(0)["cluster"]["members"].as_array().map(Vec::len) == Some(1));
    let before = cluster.show(0)["cluster"]["epoch"].as_u64().expect("a number");
    cluster.etcd.restore(&backup);
    cluster.wait_for("the older record to be noticed", |cluster| {
        cluster.show(0)["cluster"]["reason"] == "record-went-back"
    });
    let options = cluster.load(0, Duration::from_secs(1));
    load::run(&options).unwrap_or_else(|why| panic!("the owner does not serve on: {why}"));

    refused(&cluster, 0, &["volume", "restore-record", "vm1"], 2, "--yes-the-coordinator-went-back");
    // He has to say what he has seen, and is told what it is.
    let words = ["volume", "restore-record", "vm1", "--yes-the-coordinator-went-back"];
    refused(&cluster, 0, &words, 1, "--i-saw");
    let known = cluster.show(0)["cluster"]["known"].clone();
    let saw = format!("{}/{}", known["term"], known["epoch"]);
    done(&cluster, 0, &[&words[..], &["--i-saw", &saw]].concat());
    cluster.wait_for("the record to be the owner's", |cluster| {
        let shown = cluster.show(0)["cluster"].clone();
        shown["reason"] != "record-went-back" && shown["epoch"].as_u64().is_some_and(|epoch| epoch > before)
    });
    let said = audited(&cluster, 0, "restore-record");
    assert_eq!((said.len(), &said[0]["volume"]), (1, &"vm1".into()), "{said:?}");
    cluster.every_acknowledged_write_is_at(0);
    // Changes go on.
    done(&cluster, 0, &["volume", "set", "vm1", "--peers", "1"]);
    cluster.wait_for_copies(0);
}

/// A name belongs to a machine until that one is forgotten, by two words and at another node.
#[test]
fn a_node_on_another_machine_is_refused_until_the_former_one_is_forgotten() {
    let Some(mut cluster) = on_machines("evidence-forget", 3) else { return };
    cluster.start_all();
    cluster.serve_with_a_copy("memory");
    let words = |name: &'static str| ["node", "forget", name, "--yes-its-machine-is-gone", "--without-revoking"];
    refused(&cluster, 0, &words("alpha"), 1, "this very node");
    refused(&cluster, 0, &words("delta"), 1, "there is no node delta");
    refused(&cluster, 0, &words("beta")[..3], 2, "--yes-its-machine-is-gone");
    cluster.wait_for("beta to answer", |cluster| {
        cluster.command(0, &words("beta")).stderr.contains("beta answers; stop it first")
    });
    // Whoever keeps the log is needed; the other one is not.
    let shown = cluster.show(0);
    let members = shown["cluster"]["members"].as_array().expect("members");
    let copy = if members.iter().any(|member| member["node"] == "beta") { 1 } else { 2 };
    let spare = 3 - copy;
    cluster.kill(spare);
    cluster.wait_for("the spare node's end to be noticed", |cluster| {
        let nodes = cluster.try_command(0, &["node", "list"]).unwrap_or_default();
        nodes.as_array().is_some_and(|nodes| nodes.iter().any(|n| n["name"] == NAMES[spare] && n["up"] == false))
    });
    done(&cluster, 0, &words(NAMES[spare]));
    assert_eq!(audited(&cluster, 0, "forget-node").len(), 1);
    let nodes = done(&cluster, 0, &["node", "list"]);
    assert_eq!(nodes.as_array().map(Vec::len), Some(2), "{nodes:#}");
    // The same identity on whatever machine is a new node from now on.
    cluster.start(spare);
    cluster.wait_for("it to be a node again", |cluster| {
        done(cluster, 0, &["node", "list"]).as_array().map(Vec::len) == Some(3)
    });
}

/// Proves N-M-11: who keeps the log must not keep the others waiting: a member without progress is left out by a committed change, and
/// the load goes on at the one that is well.
fn a_slow_member_is_left_out(name: &str, slow: impl Fn(&mut Cluster, usize), well: impl Fn(&mut Cluster, usize)) {
    let Some(mut cluster) = Cluster::new(name, 3) else { return };
    the_slow_member_is_left_out(&mut cluster, "memory", slow, well);
}

fn the_slow_member_is_left_out(
    cluster: &mut Cluster,
    tier: &str,
    slow: impl Fn(&mut Cluster, usize),
    well: impl Fn(&mut Cluster, usize),
) {
    cluster.serve_with_a_copy(tier);
    let shown = cluster.show(0);
    let epoch = shown["cluster"]["epoch"].as_u64().expect("a number");
    let members = shown["cluster"]["members"].as_array().expect("members");
    let member = if members.iter().any(|member| member["node"] == "beta") { 1 } else { 2 };
    let loading = cluster.begin_load(0);
    slow(cluster, member);
    let names_it = |cluster: &Cluster| {
        let shown = cluster.show(0);
        shown["cluster"]["members"].as_array().is_some_and(|all| all.iter().any(|m| m["node"] == NAMES[member]))
    };
    cluster.wait_for("the slow member to be left out", |cluster| {
        !names_it(cluster) && cluster.show(0)["cluster"]["epoch"].as_u64().is_some_and(|now| now > epoch)
    });
    // The third one is well, and the owner acknowledges by two logs again.
    cluster.wait_for("another copy", |cluster| {
        let shown = cluster.show(0);
        let members = shown["cluster"]["members"].as_array().cloned().unwrap_or_default();
        shown["policy"]["effective"] == "back"
            && members.iter().any(|m| m["node"] == NAMES[3 - member] && m["role"] == "member")
    });
    let shown = cluster.show(0);
    assert_eq!((&shown["cluster"]["state"], &shown["cluster"]["term"]), (&"owner".into(), &1.into()), "{shown:#}");
    assert!(!loading.is_finished(), "the load has ended");
    well(cluster, member);
    cluster.kill(0);
    cluster.load_has_broken_off(loading);
    cluster.wait_for_owner(3 - member);
    cluster.every_acknowledged_write_is_at(3 - member);
}

#[test]
fn a_member_that_stands_still_is_left_out_and_another_takes_its_place() {
    let process = |cluster: &mut Cluster, node: usize| cluster.daemons[node].take().expect("it runs");
    a_slow_member_is_left_out(
        "evidence-stopped",
        |cluster, node| cluster.daemons[node].as_mut().expect("it runs").stop(),
        |cluster, node| process(cluster, node).kill(),
    );
}

#[test]
fn a_member_behind_links_that_crawl_is_left_out_and_another_takes_its_place() {
    let shape = |cluster: &mut Cluster, node: usize, rate_mbit: Option<u32>| {
        for link in 0..2 {
            let shaped = cluster.network.shape(node, link, Shape { rate_mbit, delay_ms: None });
            shaped.unwrap_or_else(|why| panic!("shape a link: {why}"));
        }
    };
    a_slow_member_is_left_out(
        "evidence-crawl",
        |cluster, node| shape(cluster, node, Some(1)),
        |cluster, node| shape(cluster, node, None),
    );
}

/// Proves N-F-11: the tiers of the two other nodes lie on disks whose server stops.
#[test]
fn a_member_whose_tier_stalls_is_left_out_and_another_takes_its_place() {
    if let Some(reason) = no_fuse_or_loop() {
        return skip(reason);
    }
    let Some(mut cluster) = Cluster::prepare("evidence-stall", 3, "") else { return };
    let disks = [1, 2].map(|node| Disk::new(&cluster, node));
    cluster.start_all();
    // A daemon that waits for its disk cannot even be killed: where the test fails, this lets it go.
    let server = |node: usize| disks[node - 1].server.clone();
    let stop = |_: &mut Cluster, node: usize| {
        let server = server(node);
        server.signal(libc::SIGSTOP);
        std::thread::spawn(move || {
            std::thread::sleep(2 * PATIENCE);
            server.signal(libc::SIGCONT);
        });
    };
    the_slow_member_is_left_out(&mut cluster, "flash", stop, |_, node| server(node).signal(libc::SIGCONT));
    // The disks are mounted in the cluster's folder, and its daemons use them.
    cluster.daemons.clear();
    drop(disks);
}

/// A file system for a node's tiers, on a disk behind a server that can be stopped.
struct Disk {
    // In this order: each lies on the next.
    _mounted: Mounted,
    _device: Loop,
    _file: Fuse,
    server: Arc<Nbdkit>,
}

impl Disk {
    fn new(cluster: &Cluster, node: usize) -> Disk {
        let folder = cluster.place(node, "disk");
        std::fs::create_dir(&folder).unwrap_or_else(|e| panic!("make {}: {e}", folder.display()));
        let image = folder.join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(512 << 20)).expect("a sparse file");
        let server = Arc::new(Nbdkit::start(&cluster.folder, ["file", image.to_str().expect("a plain path")]));
        let file = Fuse::mount(&folder.join("fuse"), &server.uri());
        let device = Loop::attach(file.file());
        let name = device.path().to_str().expect("a plain path").to_owned();
        run_tool(Duration::from_secs(60), "mkfs.ext4", ["-q", &name]).expect_success();
        let mounted = Mounted::new(&[], &name, &cluster.place(node, "state").join("tiers"));
        Disk { _mounted: mounted, _device: device, _file: file, server }
    }
}
