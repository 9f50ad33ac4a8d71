//! Somebody who can write to etcd, and is no node: puts whatever he likes under every key. The daemons live, say which key is not used
//! and why, open nothing that they do not allow, do nothing that no node has asked for, and serve their volumes on.

use forebay_tests::cluster::{Cluster, NAMES};
use forebay_tests::harness::TempDir;
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const LAB: &str = "/forebay/lab/";
const EVIL: &str = "0a0a0a0a-0000-4000-8000-000000000001";
const LONG: &str = "0a0a0a0a-0000-4000-8000-000000000002";
const CLIMBING: &str = "0a0a0a0a-0000-4000-8000-000000000003";
const TWIN: &str = "0a0a0a0a-0000-4000-8000-000000000004";
const FORGED: &str = "0a0a0a0a-0000-4000-8000-000000000005";

fn put(cluster: &Cluster, key: &str, value: &str) {
    cluster.etcd.control(None, &["put", &format!("{LAB}{key}"), "--", value]);
}

/// The value of a key; empty: there is none.
fn get(cluster: &Cluster, key: &str) -> String {
    let text = cluster.etcd.control(None, &["get", "--print-value-only", &format!("{LAB}{key}")]);
    text.trim_end_matches('\n').to_owned()
}

fn definition(name: &str, volume: &str, backing: &str) -> String {
    format!(
        concat!(
            r#"{{"version":1,"name":"{}","volume":"{}","backing":"{}","format_raw":false,"policy":"back","peers":1,"min_peers":1,"#,
            r#""tier":{{"kind":"memory","size_bytes":67108864}},"flush":"auto","memory_bytes":0,"destage":"ordered","#,
            r#""journal_bytes":0,"drain_max_s":0}}"#
        ),
        name, volume, backing
    )
}

/// Of a volume that nobody serves: any node may open it.
fn released(size_bytes: u64) -> String {
    let nobody = "0".repeat(32);
    format!(
        concat!(
            r#"{{"version":1,"term":0,"config":0,"owner":"00000000000000aa","host":{{"machine":"{nobody}","boot":"{nobody}"}},"#,
            r#""members":[],"log":"released","size_bytes":{size_bytes},"unfenced":[]}}"#
        ),
        nobody = nobody,
        size_bytes = size_bytes
    )
}

fn log_of(cluster: &Cluster, node: usize) -> String {
    std::fs::read_to_string(cluster.place(node, "log")).unwrap_or_default()
}

/// Keys that a node says it does not use.
fn not_used(cluster: &Cluster, node: usize) -> Vec<String> {
    let status = cluster.try_command(node, &["status"]).unwrap_or_default();
    let listed = status["not_used"].as_array().cloned().unwrap_or_default();
    listed.iter().filter_map(|entry| entry["key"].as_str().map(str::to_owned)).collect()
}

fn has_open(pid: u32, path: &Path) -> bool {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|open| open == path)
}

fn id_of(shown: &Value) -> String {
    shown["volume"].as_str().expect("a volume has an identity").to_owned()
}

/// Everything that was ever put below a key, as etcd tells it: keys and values, oldest first.
fn history_of(cluster: &Cluster, below: &str) -> Vec<(String, String)> {
    let mut command = cluster.etcd.etcdctl(None);
    command.args(["watch", "--prefix", &format!("{LAB}{below}"), "--rev=1"]);
    let mut watching = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("etcdctl starts");
    std::thread::sleep(Duration::from_secs(3));
    watching.kill().expect("it runs");
    let mut text = String::new();
    watching.stdout.take().expect("it is piped").read_to_string(&mut text).expect("etcd's keys are text here");
    let _ = watching.wait();
    let lines: Vec<&str> = text.lines().collect();
    let puts = lines.windows(3).filter(|event| event[0] == "PUT");
    puts.map(|event| (event[1].trim_start_matches(LAB).to_owned(), event[2].to_owned())).collect()
}

#[test]
fn a_writer_of_etcd_opens_nothing_ends_nothing_and_commands_nobody() {
    let Some(cluster) = Cluster::new("writer", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let vm1 = id_of(&cluster.show(0));
    let load = cluster.begin_load_for(0, Duration::from_secs(25));

    // A file that no config allows, which any node would have opened and any client could have read.
    let outside = TempDir::new("writer-outside");
    let secret = outside.join("secret");
    std::fs::write(&secret, vec![0x5a; 1 << 20]).expect("the folder takes a file");
    put(&cluster, &format!("record/{EVIL}"), &released(1 << 20));
    put(&cluster, &format!("definition/{EVIL}"), &definition("evil", EVIL, secret.to_str().expect("a plain path")));

    // Names that end a daemon, or leave its folder; the name of another volume, and its image.
    let elsewhere = cluster.folder.join("other.img");
    for (volume, name) in [(LONG, "n".repeat(80)), (CLIMBING, "../../climbing".to_owned()), (TWIN, "vm1".to_owned())] {
        put(&cluster, &format!("record/{volume}"), &released(1 << 20));
        put(&cluster, &format!("definition/{volume}"), &definition(&name, volume, elsewhere.to_str().expect("plain")));
    }
    // What the served volume is, changed under its owner.
    let was = get(&cluster, &format!("definition/{vm1}"));
    let image = cluster.image().to_str().expect("a plain path").to_owned();
    put(&cluster, &format!("definition/{vm1}"), &was.replace(&image, secret.to_str().expect("a plain path")));

    // Whatever else lies there, put where it does no good.
    for key in
        ["node/mallory", "node/../x", "load/alpha", "load/mallory", "told/alpha", "told/mallory", "leaving/mallory"]
    {
        put(&cluster, key, "{\"version\":1,\"name\":\"\u{1b}[2J\"}");
    }
    for key in ["number/00000000000000aa", "name/evil", "nonce/alpha", "nonce/mallory", "audit/x", "seal/x", "other/x"]
    {
        put(&cluster, key, &"x".repeat(100_000));
    }
    for key in ["ended/alpha", "seal/ended/alpha"] {
        put(&cluster, key, &"x".repeat(100_000));
    }
    for kind in ["call", "ask", "answer", "seen", "seal/call", "seal/ask", "seal/answer"] {
        for end in [FORGED, "../x", ""] {
            put(&cluster, &format!("{kind}/alpha/{end}"), "[[[[");
        }
    }

    // A command that no node has given: the owner is to go.
    let forged = "0a0a0a0a-0000-4000-8000-000000000006";
    let call = format!(
        r#"{{"version":1,"id":"{forged}","from":"beta","volume":"{vm1}","wish":{{"hand-over":{{"to":"beta"}}}}}}"#
    );
    put(&cluster, &format!("call/alpha/{forged}"), &call);
    cluster.wait_for("an answer to what nobody has sealed", |cluster| {
        get(cluster, &format!("answer/beta/{forged}")).contains("it has no seal")
    });

    for node in 0..2 {
        cluster.wait_for("each key that is not used to be named", |cluster| {
            let keys = not_used(cluster, node);
            [LONG, CLIMBING, TWIN, EVIL, &vm1].iter().all(|id| keys.contains(&format!("{LAB}definition/{id}")))
                && keys.contains(&format!("{LAB}node/mallory"))
        });
        let log = log_of(&cluster, node);
        assert!(log.contains("[backings] allow") && log.contains("its backing is another one than before"), "{log}");
        assert!(!log.contains('\u{1b}'), "nothing of it moves a cursor");
    }
    // An operator who opens what he finds gets no more than that.
    let _ = cluster.try_command(0, &["volume", "open", "evil"]);
    for (node, name) in NAMES.iter().enumerate().take(2) {
        assert!(!has_open(cluster.pid(node), &secret), "{name} has opened what its config does not allow");
    }
    assert_eq!(std::fs::read(&secret).expect("it is there"), vec![0x5a; 1 << 20]);
    assert!(!outside.join("secret.forebay").exists(), "no marker beside it");
    assert_eq!(cluster.show(0)["cluster"]["state"], "owner", "the owner has not gone");
    cluster.load_has_finished(load);
    cluster.every_acknowledged_write_is_at(0);
}

#[test]
fn a_command_is_carried_out_once_and_only_for_who_has_given_it() {
    let Some(mut cluster) = Cluster::new("replayed", 2) else { return };
    cluster.serve_with_a_copy("memory");
    // Beta asks the owner: alpha may not have told its nonce yet.
    cluster
        .wait_for("a drain by the other node", |cluster| cluster.try_command(1, &["volume", "drain", "vm1"]).is_ok());
    let given = history_of(&cluster, "call/alpha/");
    let sealed = history_of(&cluster, "seal/call/alpha/");
    let (key, call) = given.last().expect("the command was there for a moment").clone();
    let (_, seal) = sealed.iter().find(|(sealed, _)| sealed.ends_with(&key)).expect("with its seal").clone();
    let id = key.rsplit('/').next().expect("it has one").to_owned();

    // The same once more, as whoever reads etcd could write it.
    put(&cluster, &format!("seal/{key}"), &seal);
    put(&cluster, &key, &call);
    let again = format!("answer/beta/{id}");

    // The seal of one command on another one, and for another node.
    let other = call.replace("\"drain\":{\"through\":false}", "\"drain\":{\"through\":true}").replace(&id, FORGED);
    assert_ne!(other, call);
    put(&cluster, &format!("seal/call/alpha/{FORGED}"), &seal);
    put(&cluster, &format!("call/alpha/{FORGED}"), &other);
    let answer = format!("answer/beta/{FORGED}");
    cluster.wait_for("an answer to another text", |cluster| get(cluster, &answer).contains("conflict"));
    assert!(get(&cluster, &answer).contains("belongs to another text"), "{}", get(&cluster, &answer));
    assert_eq!(cluster.show(0)["policy"]["reason"], "as-requested", "nothing was drained through");
    assert_eq!(get(&cluster, &again), "", "what was carried out is not looked at again");

    // A daemon that has forgotten what it has carried out does not take what was sealed for the one before it.
    cluster.kill(0);
    cluster.start(0);
    cluster.etcd.control(None, &["del", &format!("{LAB}{key}")]);
    put(&cluster, &format!("seal/{key}"), &seal);
    put(&cluster, &key, &call);
    cluster.wait_for("an answer by the next life", |cluster| get(cluster, &again).contains("conflict"));
    assert!(get(&cluster, &again).contains("not sealed for this node"), "{}", get(&cluster, &again));

    // A second daemon with the same identity would tell a nonce of its own.
    let twin = format!(r#"{{"version":1,"name":"alpha","nonce":"{FORGED}"}}"#);
    put(&cluster, "nonce/alpha", &twin);
    cluster.wait_for("a word about another daemon of one identity", |cluster| {
        log_of(cluster, 0).contains("another daemon runs with the identity of alpha")
    });
}

#[test]
fn who_registers_a_nodes_own_name_ends_nobody() {
    let Some(cluster) = Cluster::new("writer-names", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let load = cluster.begin_load_for(0, Duration::from_secs(15));
    let entries = NAMES.map(|name| get(&cluster, &format!("node/{name}")));
    for (name, entry) in NAMES.iter().zip(&entries).take(2) {
        let number = entry.split("\"node\":\"").nth(1).and_then(|rest| rest.get(..16)).expect("a node has a number");
        put(&cluster, &format!("node/{name}"), &entry.replace(number, "00000000000000aa"));
    }
    for (node, name) in NAMES.iter().enumerate().take(2) {
        cluster
            .wait_for("the name to be told", |cluster| not_used(cluster, node).contains(&format!("{LAB}node/{name}")));
        assert!(log_of(&cluster, node).contains("somebody has registered this node's own name"));
        assert_ne!(cluster.pid(node), 0);
    }
    assert_eq!(cluster.show(0)["cluster"]["state"], "owner", "the owner has not gone");
    // Nodes that come and go leave nothing behind.
    for number in 0..40 {
        let invented = entries[1].replace("\"name\":\"beta\"", &format!("\"name\":\"n{number}\""));
        let own = entries[1].split("\"node\":\"").nth(1).and_then(|rest| rest.get(..16)).expect("a number");
        put(&cluster, &format!("node/n{number}"), &invented.replace(own, &format!("{number:016x}")));
    }
    let shows = |cluster: &Cluster| {
        let nodes = cluster.try_command(0, &["node", "list"]).unwrap_or_default();
        nodes.as_array().map_or(0, Vec::len)
    };
    cluster.wait_for("the invented nodes to be shown", |cluster| shows(cluster) >= 40);
    cluster.etcd.control(None, &["del", "--prefix", &format!("{LAB}node/n")]);
    for (name, entry) in NAMES.iter().zip(&entries).take(2) {
        put(&cluster, &format!("node/{name}"), entry);
    }
    cluster.wait_for("all to be as it was", |cluster| {
        shows(cluster) == 2 && (0..2).all(|node| not_used(cluster, node).is_empty())
    });
    cluster.load_has_finished(load);
    cluster.every_acknowledged_write_is_at(0);
}

#[test]
fn a_volumes_clients_are_those_that_a_node_has_set() {
    let Some(cluster) = Cluster::new("writer-clients", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let vm1 = id_of(&cluster.show(0));
    let key = format!("definition/{vm1}");
    let (list, word, seal) = ("dns:vm-host-1.lab", format!("clients/{vm1}"), format!("seal/clients/{vm1}"));
    let both_show = |what: &str, clients: Value| {
        cluster.wait_for(what, |cluster| (0..2).all(|node| cluster.show(node)["clients"] == clients));
    };
    let set = |node: usize, clients: &str| {
        cluster.try_command(node, &["volume", "set", "vm1", "--clients", clients]).expect("a list is set");
    };
    set(0, list);
    both_show("the list at both", serde_json::json!([list]));
    let (listed, said, sealed) = (get(&cluster, &key), get(&cluster, &word), get(&cluster, &seal));

    // Without the list, and with more in it; also with a word that nobody has sealed.
    let open = listed.replace(&format!(",\"clients\":[\"{list}\"]"), "");
    assert_ne!(open, listed);
    for forged in [open, listed.replace(list, "dns:mallory.lab")] {
        put(&cluster, &key, &forged);
        put(&cluster, &word, &said.replace("\"number\":1", "\"number\":9").replace(list, "dns:mallory.lab"));
        for node in 0..2 {
            cluster.wait_for("the list to be told", |cluster| not_used(cluster, node).contains(&format!("{LAB}{key}")));
            assert_eq!(cluster.show(node)["clients"], serde_json::json!([list]));
        }
    }
    let why = cluster.try_command(1, &["volume", "set", "vm1", "--policy", "through"]).expect_err("it is not ours");
    assert!(why.contains("its list of clients"), "{why}");

    // Another node's command puts it right; what was sealed before it counts no more.
    set(1, "none");
    both_show("nobody at both", serde_json::json!([]));
    put(&cluster, &seal, &sealed);
    put(&cluster, &word, &said);
    put(&cluster, &key, &listed);
    for node in 0..2 {
        cluster.wait_for("the old list to be told", |cluster| not_used(cluster, node).contains(&format!("{LAB}{key}")));
        assert_eq!(cluster.show(node)["clients"], serde_json::json!([]));
    }
    set(0, "any");
    both_show("everybody at both", serde_json::json!("any"));
}
