//! Former owners of a volume whose backing has no locks, an NBD export: one that is back says itself that its writes have ended; where too
//! many cannot, nothing is destaged, and everybody is told so and what ends it.

use forebay_tests::cluster::{Cluster, NAMES, PATIENCE, SIZE};
use forebay_tests::eyes::Eyes;
use forebay_tests::harness::Nbdkit;
use forebay_tests::late::LateWay;
use forebay_tests::nbd::Client;
use serde_json::Value;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
/// How long clients write. They may be moved to the next owner, and go on there.
const LOAD: Duration = Duration::from_secs(12);

/// A server whose writes take a moment, so that an owner that ends has some under way.
fn export(cluster: &Cluster) -> Nbdkit {
    let size = format!("size={SIZE}");
    Nbdkit::start_at(&cluster.export_socket(), ["--filter=delay", "memory", &size, "delay-write=20ms"])
}

#[track_caller]
fn create(cluster: &Cluster, peers: &str, tier: &str) {
    let backing = cluster.export_uri();
    let size = SIZE.to_string();
    let mut words = vec!["volume", "create", "vm1", "--backing", &backing, "--size", &size, "--policy", "back"];
    words.extend(["--peers", peers, "--tier", tier, "--tier-size", "64M"]);
    done(cluster, 0, &words);
}

#[track_caller]
fn done(cluster: &Cluster, node: usize, words: &[&str]) -> Value {
    cluster.try_command(node, words).unwrap_or_else(|why| {
        cluster.describe_all();
        panic!("{words:?} at {}: {why}", NAMES[node])
    })
}

fn unfenced(cluster: &Cluster, node: usize) -> u64 {
    cluster.show(node)["cluster"]["unfenced"].as_u64().unwrap_or(u64::MAX)
}

fn formers(cluster: &Cluster, node: usize) -> Vec<Value> {
    cluster.show(node)["cluster"]["fence"]["former"].as_array().cloned().unwrap_or_default()
}

fn log_of(cluster: &Cluster, node: usize) -> String {
    std::fs::read_to_string(cluster.place(node, "log")).expect("the daemon's log")
}

/// Proves T6 by the former owner's own word: no fence, no lock, and no operator.
#[test]
fn an_owner_that_stood_still_is_proof_about_itself_when_it_is_back() {
    let Some(mut cluster) = Cluster::with("unproven-back", 2, "") else { return };
    let _server = export(&cluster);
    create(&cluster, "1", "memory");
    cluster.wait_for_copies(0);
    // More than once: a word about one term says nothing of the next one.
    for former in [0, 1, 0] {
        let owner = 1 - former;
        let loading = cluster.begin_load_for(former, LOAD);
        cluster.daemons[former].as_mut().expect("it runs").stop();
        cluster.wait_for_owner(owner);
        cluster.wait_for("what is waited for to be shown", |cluster| {
            unfenced(cluster, owner) == 1
                && formers(cluster, owner).first().is_some_and(|former| former.to_string().contains("has not said"))
        });
        cluster.daemons[former].as_mut().expect("it runs").resume();
        cluster.wait_for("the quarantine to end", |cluster| unfenced(cluster, owner) == 0);
        drop(loading.join().expect("the load does not panic"));
        cluster.every_acknowledged_write_is_at(owner);
        cluster.wait_for_copies(owner);
    }
}

/// Proves that a stop of destaging for want of a proof has a state, an event, a code, words at a stop, and a way out.
#[test]
fn after_four_owners_without_proof_nothing_is_destaged_and_everybody_is_told() {
    let Some(mut cluster) = Cluster::with("unproven-four", 1, "") else { return };
    let _server = export(&cluster);
    create(&cluster, "0", "flash");
    let written = |cluster: &Cluster, block: usize| {
        let mut client = Client::connect(&cluster.target(0)).expect("it serves");
        client.write((block * BLOCK) as u64, &[block as u8 + 1; BLOCK], 0).unwrap().unwrap();
    };
    cluster.wait_for("it to serve", |cluster| cluster.show(0)["phase"] == "serving");
    for killed in 0..4 {
        cluster.wait_for("it to destage", |cluster| cluster.show(0)["backing"]["state"] == "ready");
        written(&cluster, killed);
        cluster.kill(0);
        cluster.start(0);
        cluster.wait_for("it to be served again", |cluster| {
            cluster.show(0)["phase"] == "serving" && unfenced(cluster, 0) == killed as u64 + 1
        });
    }
    cluster.wait_for("the state to be shown", |cluster| cluster.show(0)["backing"]["state"] == "awaiting-fence");
    written(&cluster, 4);
    let shown = cluster.show(0);
    let why = shown["backing"]["error"].as_str().expect("it says why");
    assert!(why.contains("nothing is destaged") && why.contains("forebay volume fenced"), "{shown:#}");
    assert!(shown["dirty"]["bytes"].as_u64() > Some(0), "{shown:#}");
    let eyes = Eyes::of(&cluster);
    cluster.wait_for("an event, and a code in the fleet's view", |cluster| {
        let events = done(cluster, 0, &["events"]).to_string();
        let fleet = eyes.ask(0, "GET", "/v1/fleet", None, PATIENCE).unwrap_or_default();
        let mut codes = fleet["degraded"].as_array().into_iter().flatten().map(|degraded| &degraded["code"]);
        events.contains("\"backing-awaits-fence\"") && codes.any(|code| code == "awaiting-fence")
    });

    // It stops all the same, and says what is left for what reason.
    cluster.stop(0);
    let said = log_of(&cluster, 0);
    let waited = "nothing of vm1 is, before its former owners are fenced";
    assert!(said.contains(waited) && said.contains("could not be emptied"), "{said}");
    cluster.start(0);
    cluster.wait_for("the state to be shown again", |cluster| {
        cluster.show(0)["backing"]["state"] == "awaiting-fence" && formers(cluster, 0).len() == 4
    });
    let mut words = vec!["volume".to_owned(), "fenced".to_owned(), "vm1".to_owned()];
    for former in formers(&cluster, 0) {
        let named = format!("{}@{}", former["node"].as_str().expect("a name"), former["term"]);
        words.extend(["--i-fenced-it".to_owned(), named]);
    }
    done(&cluster, 0, &words.iter().map(String::as_str).collect::<Vec<_>>());
    cluster.wait_for("all to be destaged", |cluster| {
        let shown = cluster.show(0);
        shown["backing"]["state"] == "ready" && shown["dirty"]["bytes"] == 0 && unfenced(cluster, 0) == 0
    });
    let mut client = Client::connect(&cluster.target(0)).expect("it serves");
    for block in 0..5 {
        let mut bytes = [0; BLOCK];
        client.read((block * BLOCK) as u64, &mut bytes).unwrap().unwrap();
        assert_eq!(bytes, [block as u8 + 1; BLOCK]);
    }
}

/// Proves T6: an owner whose connection took a write with it cannot know whether that comes later, and says nothing.
#[test]
fn an_owner_that_lost_its_connection_with_a_write_under_way_says_nothing() {
    let Some(mut cluster) = Cluster::with("unproven-lost", 2, "") else { return };
    let image = cluster.folder.sparse("export.img", SIZE);
    let server_socket = cluster.folder.join("server.sock");
    let serve = || Nbdkit::start_at(&server_socket, ["file", image.to_str().expect("a plain path")]);
    let mut server = serve();
    let way = LateWay::begin(&cluster.export_socket(), &server_socket);
    create(&cluster, "1", "memory");
    cluster.wait_for_copies(0);
    let former = cluster.pid(0);
    let loading = cluster.begin_load_for(0, LOAD);
    // From then on writes go without a flush before them; and they are kept on their way.
    let log = |cluster: &Cluster| cluster.show(0)["positions"].clone();
    cluster.wait_for("something to be destaged", |cluster| log(cluster)["destaged"].as_u64() > Some(0));
    way.hold(former);
    cluster.wait_for("destaging to stand still while there is something to write", |cluster| {
        let before = log(cluster);
        std::thread::sleep(Duration::from_secs(2));
        let now = log(cluster);
        before["destaged"] == now["destaged"] && now["destaged"].as_u64() < now["accepted"].as_u64()
    });
    cluster.daemons[0].as_mut().expect("it runs").stop();
    cluster.wait_for_owner(1);
    server.kill9();
    server = serve();
    cluster.daemons[0].as_mut().expect("it runs").resume();
    drop(loading.join().expect("the load does not panic"));
    cluster.wait_for("the former owner to step down", |cluster| {
        let log = log_of(cluster, 0);
        log.contains("is lost") && log.contains("this node is not its owner any more")
    });
    // The new owner looks each ten seconds by now; the log below tells what was said.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        assert_ne!(unfenced(&cluster, 1), 0, "it has said that its writes have ended");
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(!log_of(&cluster, 0).contains("has ended, which the next owner is told"));
    way.release(former);
    cluster.wait_for("the former owner to be shown", |cluster| formers(cluster, 1).len() == 1);
    let alpha = formers(&cluster, 1)[0].clone();
    let named = format!("{}@{}", alpha["node"].as_str().expect("a name"), alpha["term"]);
    done(&cluster, 1, &["volume", "fenced", "vm1", "--i-fenced-it", &named]);
    cluster.wait_for("the quarantine to end", |cluster| unfenced(cluster, 1) == 0);
    cluster.every_acknowledged_write_is_at(1);
    drop(server);
}
