//! A node whose identity was revoked is none any more: who has it from before is not let in by any other node, not even where that was
//! told while it was running, where somebody takes the revocation out of etcd, or where the node's own state folder knows of nothing.
//! Enrolled anew it is a node again. Nobody but the authority revokes anything.

use forebay_tests::cluster::{Cluster, NAMES, SIZE};
use forebay_tests::harness::{forebay, run_command};
use forebay_tests::nbd::Client;
use std::process::Command;
use std::time::Duration;

const LAB: &str = "/forebay/lab/";
const WORD: &str = "revoked/gamma";
const FORGET: [&str; 4] = ["node", "forget", "gamma", "--yes-its-machine-is-gone"];
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
    let nodes = cluster.try_command(node, &["node", "list"]).expect("it says what it sees");
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
    let shown = cluster.try_command(owner, &["volume", "show", "vm1"]).expect("it shows the volume");
    shown["cluster"]["forwarders"].as_array().into_iter().flatten().any(|name| name == "gamma")
}

/// Whether gamma has said, after so many bytes of its log, that it is none any more, and what to do.
fn told_since(cluster: &Cluster, before: usize) -> bool {
    let said = &log_of(cluster, 2)[before..];
    said.contains("the identity of gamma was revoked") && said.contains(RENEW)
}

/// A command that goes to a node, with the cluster's authority.
fn with_authority(cluster: &Cluster, node: usize, words: &[&str]) -> Result<serde_json::Value, String> {
    let authority = cluster.folder.join("authority");
    cluster.try_command(node, &[words, &["--authority", authority.to_str().expect("a plain path")]].concat())
}

/// A command of the authority alone.
fn by_authority(cluster: &Cluster, words: &[&str]) {
    let mut command = Command::new(forebay());
    command.args(words).arg("--authority").arg(cluster.folder.join("authority"));
    run_command(Duration::from_secs(60), command).expect_success();
}

fn renew(cluster: &Cluster, name: &str) {
    by_authority(
        cluster,
        &["node", "enrol", name, "--renew", "--to", cluster.folder.path().to_str().expect("a plain path")],
    );
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
fn who_is_forgotten_is_out_at_once_and_stays_out_until_it_is_enrolled_anew() {
    let Some(mut cluster) = Cluster::new("revoked", 3) else { return };
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
    let error = cluster.try_command(0, &FORGET).expect_err("nobody says what becomes of its identity");
    assert!(error.contains("--without-revoking") && error.contains("Nothing was changed"), "{error}");
    assert!(!get(&cluster, "node/gamma").is_empty());
    with_authority(&cluster, 0, &FORGET).expect("it is forgotten");
    cluster.wait_for("the link from beta to end, and what it carries", |cluster| {
        !is_linked(cluster, 1, 2) && !gamma_forwards(cluster, 1)
    });
    // Not only for the moment between two looks of gamma at the coordinator, after which a forgotten node had registered anew.
    std::thread::sleep(Duration::from_secs(12));
    assert!(!is_linked(&cluster, 1, 2) && !gamma_forwards(&cluster, 1), "it is let in again");
    cluster.wait_for("beta to say why", |cluster| log_of(cluster, 1).contains("has revoked identities of gamma"));
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
        said.contains("the identity of gamma was revoked by the cluster's authority") && said.contains(RENEW),
        "{said}"
    );
    std::fs::remove_dir_all(cluster.place(2, "state")).expect("it is there");
    let said = refused_start(&mut cluster, 2);
    assert!(said.contains(RENEW), "{said}");

    // Somebody takes the word out of etcd: while nobody runs who knows it, a new folder of gamma's is told nothing, and the others let it in
    // all the same no more; and they say it again.
    cluster.kill(0);
    cluster.kill(1);
    cluster.etcd.control(None, &["del", &format!("{LAB}{WORD}")]);
    std::fs::remove_dir_all(cluster.place(2, "state")).expect("it is there");
    let before = log_of(&cluster, 2).len();
    cluster.start(2);
    cluster.wait_for("gamma to register", |cluster| !get(cluster, "node/gamma").is_empty());
    cluster.start(0);
    cluster.start(1);
    wait_for_links(&cluster, &[0, 1]);
    cluster.wait_for("the revocation to be put back", |cluster| !get(cluster, WORD).is_empty());
    cluster.wait_for("gamma to know it again", |cluster| told_since(cluster, before));
    assert!(!is_linked(&cluster, 0, 2) && !is_linked(&cluster, 1, 2), "nobody lets it in");
    for node in [0, 1] {
        let log = log_of(&cluster, node);
        assert!(log.contains("identity that the other side shows was revoked"), "{log}");
    }

    // Enrolled anew it is a node like any other.
    cluster.kill(2);
    renew(&cluster, "gamma");
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
fn who_writes_to_etcd_revokes_nobody_and_keeps_nobody_from_being_revoked() {
    let Some(mut cluster) = Cluster::new("revoked-forged", 2) else { return };
    wait_for_links(&cluster, &[0, 1]);
    let put = |cluster: &Cluster, key: &str, value: &str| {
        cluster.etcd.control(None, &["put", &format!("{LAB}{key}"), "--", value]);
    };
    // Nothing, and something that nobody has signed.
    let forged = r#"{"version":1,"name":"beta","until_s":1900000000,"signature":"MEUCIQDx"}"#;
    put(&cluster, "revoked/beta", forged);
    cluster.wait_for("both to say why it is not used", |cluster| {
        (0..2).all(|node| not_used(cluster, node).contains("not signed by the authority"))
    });
    put(&cluster, "revoked/alpha", "none");
    cluster.wait_for("both to say that it is none", |cluster| {
        (0..2).all(|node| not_used(cluster, node).contains("revoked/alpha"))
    });
    // What is signed for one name is not for another.
    by_authority(&cluster, &["node", "enrol", "gamma", "--to", cluster.folder.path().to_str().expect("a plain path")]);
    let file = cluster.folder.join("gamma.revoked");
    let file = file.to_str().expect("a plain path");
    by_authority(&cluster, &["node", "revoke", "gamma", "--yes-it-is-cut-off", "--to-file", file]);
    let signed: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(file).expect("it is written")).expect("JSON");
    put(&cluster, "revoked/beta", &signed[0].to_string());
    let mut other = signed[0].clone();
    other["name"] = "beta".into();
    put(&cluster, "revoked/alpha", &signed[0].to_string().replace("gamma", "alpha"));
    cluster.wait_for("both to say why neither is used", |cluster| {
        (0..2).all(|node| {
            let not_used = not_used(cluster, node);
            not_used.contains("speaks of something else") && not_used.contains("not signed by the authority")
        })
    });
    assert!(is_linked(&cluster, 0, 1) && is_linked(&cluster, 1, 0), "nothing has come of it");
    assert!(!cluster.place(0, "state").join("cluster/revoked.json").exists(), "nothing is kept");
    let error = cluster.try_command(0, &["node", "revoke", "--from-file", &forged_file(&cluster, &other)]);
    let error = error.expect_err("it is not signed");
    assert!(error.contains("nothing was revoked"), "{error}");

    // By its file, where the authority reaches no node; of a node that nothing is registered of.
    cluster.try_command(0, &["node", "revoke", "--from-file", file]).expect("revoked");
    let there: serde_json::Value = serde_json::from_str(&get(&cluster, WORD)).expect("JSON");
    assert_eq!(there, signed[0], "as it was signed");
    cluster.wait_for("beta to take it", |cluster| log_of(cluster, 1).contains("has revoked identities of gamma"));
    assert!(is_linked(&cluster, 0, 1), "nothing else has come of it");
    // Whoever takes it away, or puts something else there, has it put back.
    put(&cluster, WORD, &forged.replace("beta", "gamma"));
    cluster.wait_for("it to be put back", |cluster| {
        get(cluster, WORD).contains(signed[0]["signature"].as_str().expect("one"))
    });

    // A copied identity: the node goes on with a newer one, and the former is none. It is said of the node that runs with it, too.
    renew(&cluster, "beta");
    with_authority(&cluster, 0, &["node", "revoke", "beta", "--former"]).expect("revoked");
    cluster.wait_for("the link to end", |cluster| !is_linked(cluster, 0, 1) && !is_linked(cluster, 1, 0));
    cluster.wait_for("beta to know it", |cluster| log_of(cluster, 1).contains("forebay node enrol beta --renew"));
    cluster.wait_for("beta to show it", |cluster| {
        cluster.try_command(1, &["top", "--once"]).is_ok_and(|seen| seen.to_string().contains("identity-ends"))
    });
    cluster.kill(1);
    cluster.start(1);
    wait_for_links(&cluster, &[0, 1]);
    // Where the coordinator answers nobody, it holds at the node that is told, and is put there when it answers.
    by_authority(&cluster, &["node", "revoke", "beta", "--yes-it-is-cut-off", "--to-file", file]);
    let before = log_of(&cluster, 1).len();
    cluster.etcd.stop_all();
    let error = cluster.try_command(0, &["node", "revoke", "--from-file", file]).expect_err("it is not told to others");
    assert!(error.contains("are revoked at this node, but"), "{error}");
    cluster.wait_for("the link to end", |cluster| !is_linked(cluster, 0, 1) && !is_linked(cluster, 1, 0));
    (0..cluster.etcd.endpoints().len()).for_each(|member| cluster.etcd.resume(member));
    cluster.wait_for("beta to know it", |cluster| {
        log_of(cluster, 1)[before..].contains("the identity of beta was revoked")
    });
    cluster.try_command(0, &["node", "revoke", "--from-file", file]).expect("said again");
    let audit = cluster.try_command(0, &["node", "audit"]).expect("a log").to_string();
    assert!(audit.contains("revoke-identity") && audit.contains("identities of beta up to"), "{audit}");
}

/// A file with a revocation that nobody has signed.
fn forged_file(cluster: &Cluster, revocation: &serde_json::Value) -> String {
    let path = cluster.folder.join("forged.revoked");
    std::fs::write(&path, format!("[{revocation}]")).expect("it is written");
    path.to_str().expect("a plain path").to_owned()
}
