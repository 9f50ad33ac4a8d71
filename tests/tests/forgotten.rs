//! A node that was forgotten is none any more: who has its identity from before is not let in by any other node, not even where that was
//! told while it was running, where somebody takes the word for it away, or where the node's own state folder knows of nothing. Enrolled
//! anew it is a node again.

use forebay_tests::cluster::{Cluster, NAMES, SIZE};
use forebay_tests::harness::{forebay, run_command};
use forebay_tests::nbd::Client;
use std::process::Command;
use std::time::Duration;

const LAB: &str = "/forebay/lab/";
const WORD: [&str; 2] = ["revoked/gamma", "seal/revoked/gamma"];
const FORGET: [&str; 4] = ["node", "forget", "gamma", "--yes-its-machine-is-gone"];
const STOLEN: &str = "--its-identity-is-stolen";
const RENEW: &str = "forebay node enrol gamma --renew";

/// The value of a key; empty: there is none.
fn get(cluster: &Cluster, key: &str) -> String {
    let text = cluster.etcd.control(None, &["get", "--print-value-only", &format!("{LAB}{key}")]);
    text.trim_end_matches('\n').to_owned()
}

fn log_of(cluster: &Cluster, node: usize) -> String {
    std::fs::read_to_string(cluster.place(node, "log")).unwrap_or_default()
}

/// Whether one node has a link to another one that works.
fn is_linked(cluster: &Cluster, node: usize, other: usize) -> bool {
    let nodes = cluster.try_command(node, &["node", "list"]).unwrap_or_default();
    nodes.as_array().into_iter().flatten().any(|entry| entry["name"] == NAMES[other] && entry["up"] == true)
}

fn wait_for_links(cluster: &Cluster, nodes: &[usize]) {
    cluster.wait_for("links between all of them", |cluster| {
        let pairs = nodes.iter().flat_map(|node| nodes.iter().map(move |other| (*node, *other)));
        pairs.filter(|(node, other)| node != other).all(|(node, other)| is_linked(cluster, node, other))
    });
}

/// Whether gamma's clients reach the volume at its owner.
fn gamma_forwards(cluster: &Cluster, owner: usize) -> bool {
    let shown = cluster.show(owner);
    shown["cluster"]["forwarders"].as_array().into_iter().flatten().any(|name| name == "gamma")
}

/// Whether gamma has said, after so many bytes of its log, that it is none any more, and what to do.
fn told_since(cluster: &Cluster, before: usize) -> bool {
    let said = &log_of(cluster, 2)[before..];
    said.contains("the identity of gamma was revoked") && said.contains(RENEW)
}

/// Starts a node that is to end by itself, and returns what it has said since.
fn refused_start(cluster: &mut Cluster, node: usize) -> String {
    let before = log_of(cluster, node).len();
    cluster.launch(node);
    let begun = std::time::Instant::now();
    while cluster.daemons[node].as_mut().expect("it was launched").is_alive() {
        if begun.elapsed() > Duration::from_secs(60) {
            cluster.describe_all();
            panic!("{} goes on", NAMES[node]);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    cluster.daemons[node] = None;
    log_of(cluster, node)[before..].to_owned()
}

/// `vm1` with its only log at beta, and its clients set by a command at gamma.
fn create_at_beta(cluster: &Cluster) -> String {
    let (image, size) = (cluster.image(), SIZE.to_string());
    let image = image.to_str().expect("a plain path");
    let words = ["volume", "create", "vm1", "--backing", image, "--create", "--size", &size, "--policy", "back"];
    let tier = ["--peers", "0", "--min-peers", "0", "--tier", "flash", "--tier-size", "64M"];
    cluster.try_command(1, &[&words[..], &tier[..]].concat()).expect("a volume");
    cluster.wait_for("gamma to know the volume", |cluster| cluster.show(2)["name"] == "vm1");
    cluster.try_command(2, &["volume", "set", "vm1", "--clients", "dns:vm1.lab"]).expect("a list");
    cluster.show(1)["volume"].as_str().expect("a volume has an identity").to_owned()
}

#[test]
fn who_was_forgotten_is_out_at_once_and_stays_out_until_it_is_enrolled_anew() {
    let Some(mut cluster) = Cluster::new("forgotten", 3) else { return };
    wait_for_links(&cluster, &[0, 1, 2]);
    let volume = create_at_beta(&cluster);
    assert!(get(&cluster, &format!("clients/{volume}")).contains(r#""number":1,"by":"gamma""#));
    // A client of gamma, whose requests go to beta.
    let mut client =
        Client::connect_with_patience(&cluster.target(2).clone(), Duration::from_secs(30)).expect("let in");
    client.write(0, &[7; 4096], 0).expect("an answer").expect("done");
    cluster.wait_for("gamma to forward", |cluster| gamma_forwards(cluster, 1));

    // Its running link, and what it forwards, end at beta, although it was forgotten at alpha, which does not see it.
    cluster.network.silence(0, 2);
    cluster.network.silence(2, 0);
    cluster.wait_for("alpha to see gamma no more", |cluster| !is_linked(cluster, 0, 2));
    assert!(is_linked(&cluster, 1, 2), "beta sees it");
    cluster.try_command(0, &FORGET).expect("it is forgotten");
    cluster.wait_for("the link from beta to end, and what it carries", |cluster| {
        !is_linked(cluster, 1, 2) && !gamma_forwards(cluster, 1)
    });
    // Not only for the moment between two looks of gamma at the coordinator, after which a forgotten node had registered anew.
    std::thread::sleep(Duration::from_secs(12));
    assert!(!is_linked(&cluster, 1, 2) && !gamma_forwards(&cluster, 1), "it is let in again");
    cluster.wait_for("beta to say why", |cluster| log_of(cluster, 1).contains("the identity of gamma is revoked"));
    cluster.wait_for("gamma to know it", |cluster| told_since(cluster, 0));
    // Lists of clients that gamma has said last are alpha's word now.
    assert!(get(&cluster, &format!("clients/{volume}")).contains(r#""number":2,"by":"alpha""#));
    cluster.network.heal();
    // Longer than between two looks at everything.
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(get(&cluster, "node/gamma"), "", "it does not register anew");
    assert!(!is_linked(&cluster, 0, 2) && !is_linked(&cluster, 1, 2), "nobody lets it in");
    drop(client);

    // It does not start any more; nor where its state folder is a new one.
    cluster.kill(2);
    let said = refused_start(&mut cluster, 2);
    assert!(
        said.contains("the identity of gamma was revoked: alpha has had gamma forgotten") && said.contains(RENEW),
        "{said}"
    );
    std::fs::remove_dir_all(cluster.place(2, "state")).expect("it is there");
    let said = refused_start(&mut cluster, 2);
    assert!(said.contains(RENEW), "{said}");

    // Somebody takes the word out of etcd: while nobody runs who knows it, a new folder of gamma's is told nothing, and the others let it in
    // all the same no more; and they say it again.
    cluster.kill(0);
    cluster.kill(1);
    WORD.iter().for_each(|key| drop(cluster.etcd.control(None, &["del", &format!("{LAB}{key}")])));
    std::fs::remove_dir_all(cluster.place(2, "state")).expect("it is there");
    let before = log_of(&cluster, 2).len();
    cluster.start(2);
    cluster.wait_for("gamma to register", |cluster| !get(cluster, "node/gamma").is_empty());
    cluster.start(0);
    cluster.start(1);
    wait_for_links(&cluster, &[0, 1]);
    cluster.wait_for("the word to be said again", |cluster| WORD.iter().all(|key| !get(cluster, key).is_empty()));
    cluster.wait_for("gamma to know it again", |cluster| told_since(cluster, before));
    assert!(!is_linked(&cluster, 0, 2) && !is_linked(&cluster, 1, 2), "nobody lets it in");
    for node in [0, 1] {
        let log = log_of(&cluster, node);
        assert!(log.contains("identity that the other side shows was revoked"), "{log}");
    }

    // Enrolled anew it is a node like any other.
    cluster.kill(2);
    let mut command = Command::new(forebay());
    command.args(["node", "enrol", "gamma", "--renew", "--authority"]).arg(cluster.folder.join("authority"));
    command.arg("--to").arg(cluster.folder.path());
    run_command(Duration::from_secs(60), command).expect_success();
    cluster.start(2);
    wait_for_links(&cluster, &[0, 1, 2]);
    let mut client =
        Client::connect_with_patience(&cluster.target(2).clone(), Duration::from_secs(30)).expect("let in");
    let mut block = [0; 4096];
    client.read(0, &mut block).expect("an answer").expect("done");
    assert_eq!(block, [7; 4096], "what was acknowledged is there");
}

/// Keys that a node says it does not use, with why.
fn not_used(cluster: &Cluster, node: usize) -> String {
    let status = cluster.try_command(node, &["status"]).unwrap_or_default();
    status["not_used"].to_string()
}

#[test]
fn who_writes_to_etcd_and_is_no_node_has_nobody_forgotten() {
    let Some(cluster) = Cluster::new("forgotten-forged", 2) else { return };
    wait_for_links(&cluster, &[0, 1]);
    let put = |key: &str, value: &str| drop(cluster.etcd.control(None, &["put", &format!("{LAB}{key}"), "--", value]));
    let word = |by: &str| format!(r#"{{"version":1,"name":"beta","until_s":1900000000,"by":"{by}"}}"#);
    // Without a seal, and with one that a node has made for something else.
    put("revoked/beta", &word("alpha"));
    cluster.wait_for("both to say why it is not used", |cluster| {
        (0..2).all(|node| not_used(cluster, node).contains("it has no seal"))
    });
    let image = cluster.image();
    let words =
        ["volume", "create", "vm1", "--backing", image.to_str().expect("a plain path"), "--create", "--size", "16M"];
    cluster
        .try_command(0, &[&words[..], &["--peers", "0", "--tier", "flash", "--tier-size", "64M"]].concat())
        .expect("made");
    cluster.try_command(0, &["volume", "set", "vm1", "--clients", "dns:vm1.lab"]).expect("a list");
    let volume = cluster.show(0)["volume"].as_str().expect("a volume has an identity").to_owned();
    let seal = get(&cluster, &format!("seal/clients/{volume}"));
    assert!(!seal.is_empty(), "alpha has sealed the list");
    put("seal/revoked/beta", &seal);
    cluster.wait_for("both to say that the seal is another's", |cluster| {
        (0..2).all(|node| not_used(cluster, node).contains("belongs to another text"))
    });
    put("revoked/beta", &word("beta"));
    cluster.wait_for("both to say that nobody says that", |cluster| {
        (0..2).all(|node| not_used(cluster, node).contains("a node says it of itself"))
    });
    assert!(is_linked(&cluster, 0, 1) && is_linked(&cluster, 1, 0), "nothing has come of it");
    assert!(!get(&cluster, "node/beta").is_empty());
    assert!(!cluster.place(0, "state").join("cluster/revoked.json").exists(), "nothing is kept");

    // Nor does he keep anybody from having one forgotten: by a list that cannot be read, or by taking the node's entry away.
    put(&format!("seal/clients/{volume}"), "none");
    let forget = ["node", "forget", "gamma", "--yes-its-machine-is-gone"];
    let error = cluster.try_command(0, &forget).expect_err("no such node").to_string();
    assert!(error.contains("--its-identity-is-stolen"), "{error}");
    cluster.try_command(0, &[&forget[..], &[STOLEN]].concat()).expect("revoked");
    assert!(get(&cluster, "revoked/gamma").contains(r#""by":"alpha""#));
    assert!(is_linked(&cluster, 0, 1), "nothing else has come of it");
    // Whose copy is somewhere is shut out while it answers, by a word of its own.
    let forget = ["node", "forget", "beta", "--yes-its-machine-is-gone"];
    let error = cluster.try_command(0, &forget).expect_err("it answers").to_string();
    assert!(error.contains("answers"), "{error}");
    cluster.try_command(0, &[&forget[..], &[STOLEN]].concat()).expect("revoked");
    cluster.wait_for("the link to end", |cluster| !is_linked(cluster, 0, 1) && !is_linked(cluster, 1, 0));
    assert_eq!(get(&cluster, "node/beta"), "");
}
