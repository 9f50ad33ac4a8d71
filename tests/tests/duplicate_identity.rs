//! A machine was copied, and two daemons run with one node's identity: the other nodes say so within seconds, the link is left to one
//! of the two, and the volume goes on with its copies. Without that each takes the link over from the other for ever, and everybody who
//! keeps a copy comes and goes.

use forebay_tests::cluster::{Cluster, NAMES};
use forebay_tests::harness::{forebay, require_tool, run_command};
use forebay_tests::hosts::Process;
use forebay_tests::nbd::Client;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A member that is lost is left out in a second; two busy cores are given time.
const WAIT_MAX: Duration = Duration::from_secs(4);
/// For how long the copies must stay once they are there.
const STEADY: Duration = Duration::from_secs(8);

fn run(program: &str, words: &[&str]) {
    let mut command = Command::new(require_tool(program));
    command.args(words);
    run_command(Duration::from_secs(60), command).expect_success();
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// The copy of a node's machine beside it: another host, with all that the node has of its own at the same paths, and other memory. The
/// disk that all nodes see is seen by it as well.
fn start_twin(cluster: &mut Cluster, node: usize) -> Process {
    let host = cluster.network.add_host().expect("there was room for the others");
    let folder = cluster.folder.join("twin");
    std::fs::create_dir_all(folder.join("disk")).expect("a folder");
    let (from, to) = (text(cluster.folder.path()), text(&folder));
    for what in ["-state", "-node.toml", ".identity.toml"] {
        run("cp", &["-a", &format!("{from}/{}{what}", NAMES[node]), to]);
    }
    let log = std::fs::File::create(folder.join("log")).expect("a file");
    let script = format!("mount --bind '{from}/disk' '{to}/disk' && mount --rbind '{to}' '{from}' && exec \"$@\"");
    let mut command = Command::new(require_tool("unshare"));
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]).arg(forebay());
    command.arg("serve").arg("--config").arg(cluster.place(node, "node.toml"));
    command.env("XDG_RUNTIME_DIR", cluster.folder.path()).stdin(Stdio::null());
    command.stdout(log.try_clone().expect("a second handle")).stderr(log);
    host.spawn(command)
}

/// One write after the other, for as long as is wanted: how many there were, and the longest wait for an answer.
struct Writes {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<(u64, Duration)>,
}

impl Writes {
    fn begin(cluster: &Cluster, node: usize) -> Writes {
        let mut client = Client::connect(&cluster.target(node)).expect("let in");
        let ends = Arc::new(AtomicBool::new(false));
        let until = ends.clone();
        let thread = std::thread::spawn(move || {
            let (mut count, mut longest) = (0, Duration::ZERO);
            while !until.load(Ordering::Relaxed) {
                let begun = Instant::now();
                client.write(count % 4096 * 4096, &[7; 4096], 0).expect("an answer").expect("done");
                (count, longest) = (count + 1, longest.max(begun.elapsed()));
                std::thread::sleep(Duration::from_millis(10));
            }
            (count, longest)
        });
        Writes { ends, thread }
    }

    #[track_caller]
    fn end(self, cluster: &Cluster) {
        self.ends.store(true, Ordering::Relaxed);
        let (count, longest) = self.thread.join().expect("each is answered");
        eprintln!("{count} writes, the longest wait {longest:?}");
        if longest > WAIT_MAX {
            cluster.describe_all();
            panic!("a write had no answer for {longest:?}");
        }
    }
}

/// A node says that there are two of another one, or of itself.
fn says_two(cluster: &Cluster, node: usize, of: usize) -> bool {
    let status = cluster.try_command(node, &["status"]).unwrap_or_default();
    let is_it = |found: &Value| found["code"] == "duplicate-identity" && found["node"] == NAMES[of];
    status["degraded"].as_array().is_some_and(|degraded| degraded.iter().any(is_it))
}

/// How often a channel to this node has ended, as another one has counted.
fn link_failures(cluster: &Cluster, node: usize, other: usize) -> u64 {
    cluster.wait_for("it to answer", |cluster| cluster.try_command(node, &["node", "list"]).is_ok());
    let nodes = cluster.try_command(node, &["node", "list"]).expect("it has just answered");
    let entry = nodes.as_array().into_iter().flatten().find(|entry| entry["name"] == NAMES[other]);
    let channels = entry.and_then(|entry| entry["channels"].as_array()).expect("it has a link");
    channels.iter().filter_map(|channel| channel["failures"].as_u64()).sum()
}

fn has_copies(cluster: &Cluster, owner: usize) -> bool {
    are_copies_in(&cluster.show(owner))
}

fn are_copies_in(shown: &Value) -> bool {
    let members = shown["cluster"]["members"].as_array().cloned().unwrap_or_default();
    shown["policy"]["effective"] == "back" && members.iter().filter(|member| member["role"] != "learner").count() == 2
}

#[track_caller]
fn wait_within(cluster: &Cluster, limit: Duration, what: &str, done: impl Fn(&Cluster) -> bool) {
    let begun = Instant::now();
    while !done(cluster) {
        if begun.elapsed() > limit {
            cluster.describe_all();
            panic!("waited {limit:?} in vain for {what}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    eprintln!("{what}: {:?}", begun.elapsed());
}

struct Scene {
    cluster: Cluster,
    writes: Writes,
    twin: Process,
}

/// A volume with a copy, a client that writes, and the twin of a node, which the witnesses have told of within this time.
fn with_a_twin(name: &str, nodes: usize, owner: usize, of: usize, witnesses: &[usize], within: u64) -> Option<Scene> {
    let mut cluster = Cluster::prepare(name, nodes, "")?;
    // A copied machine has the same config, and addresses of its own.
    cluster.name_interfaces();
    cluster.start_all();
    cluster.create(owner, "memory");
    cluster.wait_for_copies(owner);
    assert!((0..nodes).all(|node| !says_two(&cluster, node, of)), "there is one");
    let writes = Writes::begin(&cluster, owner);
    let twin = start_twin(&mut cluster, of);
    for node in witnesses {
        let what = format!("{} to tell that there are two of {}", NAMES[*node], NAMES[of]);
        wait_within(&cluster, Duration::from_secs(within), &what, |cluster| says_two(cluster, *node, of));
        let nodes = cluster.try_command(*node, &["node", "list"]).expect("it answers");
        let entry = nodes.as_array().into_iter().flatten().find(|entry| entry["name"] == NAMES[of]);
        let why = entry.and_then(|entry| entry["duplicated"].as_str()).unwrap_or_default();
        assert!(why.contains("two daemons run with its identity") && why.contains("stop one of them"), "{nodes:#}");
    }
    Some(Scene { cluster, writes, twin })
}

/// The owner gets its copy, and it stays.
#[track_caller]
fn copies_stay(cluster: &Cluster, owner: usize) {
    wait_within(cluster, Duration::from_secs(30), "two logs", |cluster| has_copies(cluster, owner));
    let begun = Instant::now();
    while begun.elapsed() < STEADY {
        // A look that was not answered in time says nothing.
        let shown = cluster.show(owner);
        if shown.is_object() && !are_copies_in(&shown) {
            cluster.describe_all();
            panic!("the copy is gone {:?} after it was there", begun.elapsed());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn the_copy_of_a_members_machine_is_told_by_all_and_leaves_the_link_to_the_member() {
    let Some(Scene { cluster, writes, mut twin }) = with_a_twin("duplicate-member", 2, 1, 0, &[1], 10) else { return };
    let before = link_failures(&cluster, 1, 0);
    copies_stay(&cluster, 1);
    // Else there would be one each second.
    let more = link_failures(&cluster, 1, 0) - before;
    assert!(more <= 3, "one takes the link from the other, {more} times");
    assert!(says_two(&cluster, 1, 0), "as long as there are two");
    // It sees that by itself by what it finds in the coordinator.
    wait_within(&cluster, Duration::from_secs(45), "alpha to tell it of itself", |cluster| says_two(cluster, 0, 0));
    twin.kill();
    wait_within(&cluster, Duration::from_secs(45), "one to be left", |cluster| !says_two(cluster, 1, 0));
    assert!(has_copies(&cluster, 1));
    writes.end(&cluster);
}

#[test]
fn the_copy_of_a_machine_that_is_called_is_told_and_its_link_stays() {
    let Some(Scene { cluster, writes, twin }) = with_a_twin("duplicate-called", 2, 0, 1, &[0], 20) else { return };
    copies_stay(&cluster, 0);
    assert!(says_two(&cluster, 0, 1), "as long as there are two");
    drop(twin);
    writes.end(&cluster);
}

/// The members may have chosen differently whom they leave their links to, and then the two take the volume from each other: what
/// counts is that it is told, and that the volume is whole when one of them is stopped.
#[test]
fn the_copy_of_the_owners_machine_is_told_by_every_member() {
    let scene = with_a_twin("duplicate-owner", 3, 0, 0, &[1, 2], 20);
    let Some(Scene { cluster, writes, mut twin }) = scene else { return };
    twin.kill();
    let is_whole = |cluster: &Cluster| (0..3).any(|node| has_copies(cluster, node));
    wait_within(&cluster, Duration::from_secs(60), "the volume to be whole", is_whole);
    writes.ends.store(true, Ordering::Relaxed);
    // Its server may have lost the volume for a while, and the client with it.
    drop(writes.thread.join());
}
