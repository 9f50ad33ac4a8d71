//! The state folder of one node of a cluster is full, read-only or failing, at each call of whatever an operation on the cluster makes it
//! write: the operation is carried out, or refused with words, and can be done again when the folder is well. Nothing acknowledged is
//! lost, and no daemon ends.
//!
//! Two nodes; what is done is undone by the next operation, so each walk goes to and fro. Each of the first calls, and some of
//! the others, fails once alone, and two of them with all that come after (`state_folder.rs` does the same with a node by itself).

use forebay_tests::cluster::{Cluster, NAMES, PATIENCE};
use forebay_tests::failing::{FailingFolder, Fault};
use forebay_tests::nbd::Client;
use std::time::{Duration, Instant};

/// No operation makes more calls than this.
const CALLS_MAX: u32 = 120;
/// What the kernel says of a folder that is full, read-only or failing.
const ERRORS: [i32; 3] = [libc::ENOSPC, libc::EROFS, libc::EIO];
const BLOCK: usize = 4096;

struct Scene {
    cluster: Cluster,
    failing: Vec<FailingFolder>,
    written: u8,
}

impl Scene {
    /// Two nodes, whose folders are well.
    fn new(name: &str) -> Option<Scene> {
        let mut cluster = Cluster::prepare(name, 2, "")?;
        let failing = (0..2).map(|node| cluster.make_failing(node)).collect();
        cluster.start_all();
        Some(Scene { cluster, failing, written: 0 })
    }

    /// The same with `vm1`, which alpha serves and beta has a copy of.
    fn serving(name: &str) -> Option<Scene> {
        let scene = Scene::new(name)?;
        scene.cluster.serve_with_a_copy("flash");
        Some(scene)
    }

    /// The node that serves it. Any node that answers knows it.
    fn owner(&self) -> Option<usize> {
        let serves = |node: &usize| {
            let shown = self.cluster.show(*node);
            shown["cluster"]["state"] == "owner" && shown["phase"] == "serving"
        };
        (0..2).filter(|node| self.cluster.daemons[*node].is_some()).find(serves)
    }

    #[track_caller]
    fn wait_for_owner(&self, when: &str) -> usize {
        self.cluster.wait_for(&format!("an owner ({when})"), |_| self.owner().is_some());
        self.owner().expect("it was there just now")
    }

    /// What is acknowledged from here on must stay.
    #[track_caller]
    fn write(&mut self, when: &str) {
        self.written = self.written % 250 + 1;
        let begun = Instant::now();
        loop {
            let owner = self.wait_for_owner(when);
            let done = Client::connect(&self.cluster.target(owner)).is_ok_and(|mut client| {
                let written = client.write(0, &[self.written; BLOCK], 0);
                matches!(written, Ok(Ok(()))) && matches!(client.flush(), Ok(Ok(())))
            });
            if done {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{when}: a volume that serves takes no writes");
        }
    }

    /// It is there, at whoever serves.
    #[track_caller]
    fn check(&self, when: &str) {
        let begun = Instant::now();
        loop {
            let owner = self.wait_for_owner(when);
            let mut bytes = [0; BLOCK];
            let read = Client::connect(&self.cluster.target(owner)).map(|mut client| client.read(0, &mut bytes));
            if let Ok(Ok(Ok(()))) = read {
                assert!(bytes == [self.written; BLOCK], "{when}: {} is read, and not {}", bytes[0], self.written);
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{when}: a volume that serves cannot be read: {read:?}");
        }
    }

    #[track_caller]
    fn all_live(&mut self, when: &str) {
        for (node, name) in NAMES.iter().enumerate().take(2) {
            let log = std::fs::read_to_string(self.cluster.place(node, "log")).unwrap_or_default();
            assert!(!log.contains("panicked"), "{when}: {name}: {log}");
            if let Some(daemon) = &mut self.cluster.daemons[node] {
                assert!(daemon.is_alive(), "{when}: {name} has ended: {log}");
            }
        }
    }
}

/// One operation: `act` does it once, `is_done` tells whether it is.
struct Operation<'a> {
    name: &'a str,
    act: &'a dyn Fn(&mut Scene) -> Result<(), String>,
    is_done: &'a dyn Fn(&Scene) -> bool,
    /// It may be undone by what fails behind it: a new owner that cannot open the backing gives the volume back.
    may_be_taken_back: bool,
}

/// A command at a node.
fn ask(scene: &Scene, node: usize, words: &[&str]) -> Result<(), String> {
    scene.cluster.try_command(node, words).map(|_| ())
}

/// With all that come after it fails not every call: that would only tell the same for longer.
const FAIL_BEYOND: &[u32] = &[1, 8];

/// Fails each call of an operation in the folder of a node, then each of the one that undoes it; some with all that come after.
fn walk(scene: &mut Scene, node: usize, serves_throughout: bool, fail_beyond: &[u32], operations: [Operation<'_>; 2]) {
    let begun = Instant::now();
    let mut failed = [0, 0];
    let mut is_over = [false, false];
    // Behind these a tier is laid out, by calls that are all alike.
    for at in (1..=CALLS_MAX).filter(|at| *at <= 16 || at % 16 == 0) {
        for beyond in [false, true] {
            if beyond && !fail_beyond.contains(&at) {
                continue;
            }
            for (index, operation) in operations.iter().enumerate() {
                if scene.owner().is_some() {
                    scene.write(operation.name);
                }
                let error = ERRORS[(at as usize + usize::from(beyond)) % ERRORS.len()];
                if !is_over[index] {
                    scene.failing[node].fail(Fault { at, beyond, error });
                }
                let told = (operation.act)(scene);
                // What follows from it at other nodes may come a little later.
                let asked = Instant::now();
                while told.is_ok() && asked.elapsed() < Duration::from_secs(1) && !(operation.is_done)(scene) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                let hit = scene.failing[node].be_well();
                let kind = if beyond { "from call" } else { "call" };
                let when = format!("{} of {}, {kind} {at} ({hit:?})", operation.name, NAMES[node]);
                println!("{:5.1} {when}: {told:?}", begun.elapsed().as_secs_f32());
                scene.all_live(&when);
                match &told {
                    Ok(()) if hit.is_some() && operation.may_be_taken_back => {}
                    Ok(()) => {
                        scene.cluster.wait_for(&format!("what was done ({when})"), |_| (operation.is_done)(scene));
                    }
                    Err(said) => {
                        assert!(hit.is_some(), "{when}: {said}");
                        assert!(said.len() > 20 && !said.contains("this is a bug"), "{when}: {said}");
                    }
                }
                // Again, when the folder is well, until it is done.
                let again = Instant::now();
                let mut last = told.err().unwrap_or_default();
                while !(operation.is_done)(scene) {
                    if again.elapsed() > PATIENCE {
                        scene.cluster.describe_all();
                        panic!("{when}: the folder is well, and it is still refused: {last}");
                    }
                    if let Err(said) = (operation.act)(scene) {
                        println!("      again: {}", said.trim());
                        last = said;
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
                if serves_throughout {
                    scene.check(&when);
                }
                scene.all_live(&when);
                is_over[index] |= hit.is_none() && !beyond;
                failed[index] += u32::from(hit.is_some());
            }
        }
        if is_over == [true, true] {
            break;
        }
    }
    assert!(failed.iter().any(|calls| *calls > 0), "it writes nothing to the folder");
    println!("{failed:?} calls failed in {:?}", begun.elapsed());
}

fn members(scene: &Scene) -> usize {
    let node = scene.owner().unwrap_or(0);
    let shown = scene.cluster.show(node);
    let members = shown["cluster"]["members"].as_array();
    members.map_or(0, |members| members.iter().filter(|member| member["role"] != "learner").count())
}

/// Drains it, and deletes it when its last client is seen to have gone.
fn drain_and_delete(scene: &Scene, node: usize) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        // Of one that is released already nothing is left to drain.
        let _ = ask(scene, node, &["volume", "drain", "vm1"]);
        match ask(scene, node, &["volume", "delete", "vm1"]) {
            Err(why) if why.contains("disconnect them first") && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            told => return told,
        }
    }
}

/// It is deleted by the node whose folder fails; the other one makes it anew at once.
fn create_and_delete(name: &str, node: usize) {
    let Some(mut scene) = Scene::serving(name) else { return };
    let image = scene.cluster.image();
    let image = image.to_str().expect("a plain path").to_owned();
    let words = [
        "volume",
        "create",
        "vm1",
        "--backing",
        &image,
        "--policy",
        "back",
        "--peers",
        "1",
        "--tier",
        "flash",
        "--tier-size",
        "64M",
    ];
    let delete = Operation {
        name: "deletion",
        act: &|scene| drain_and_delete(scene, node),
        is_done: &|scene| {
            (0..2).all(|node| {
                scene.cluster.try_command(node, &["volume", "list"]).is_ok_and(|all| all == serde_json::json!([]))
            })
        },
        may_be_taken_back: false,
    };
    let create = Operation {
        name: "creation",
        act: &|scene| match ask(scene, 0, &words) {
            // One that could not be told as made is served by hand.
            Err(why) if why.contains("is not known to be deleted") || why.contains("has a volume vm1 already") => {
                ask(scene, 0, &["volume", "open", "vm1"])
            }
            told => told,
        },
        is_done: &|scene| members(scene) == 2 && scene.owner() == Some(0),
        may_be_taken_back: false,
    };
    walk(&mut scene, node, false, FAIL_BEYOND, [delete, create]);
}

/// Proves O-16: a volume of a cluster is made by its owner and deleted by the other node, whose folder fails.
#[test]
fn creation_and_deletion_at_a_member() {
    create_and_delete("state-cluster-create-member", 1);
}

/// Proves O-16: more copies, and fewer.
#[test]
fn peers() {
    let Some(mut scene) = Scene::serving("state-cluster-peers") else { return };
    let fewer = Operation {
        name: "no peers",
        act: &|scene| ask(scene, 0, &["volume", "set", "vm1", "--peers", "0"]),
        is_done: &|scene| members(scene) == 1,
        may_be_taken_back: false,
    };
    let more = Operation {
        name: "one peer",
        act: &|scene| ask(scene, 0, &["volume", "set", "vm1", "--peers", "1"]),
        is_done: &|scene| members(scene) == 2,
        may_be_taken_back: false,
    };
    walk(&mut scene, 1, true, FAIL_BEYOND, [fewer, more]);
}

/// Proves O-16: a hold and its end ask nothing of the folders, also where they take nothing at all.
#[test]
fn hold_and_release() {
    let Some(mut scene) = Scene::serving("state-cluster-hold") else { return };
    let is_held = |scene: &Scene| scene.cluster.show(0)["backing"]["hold_left_s"] != serde_json::Value::Null;
    for asked in [0, 1] {
        scene.write("before a hold");
        scene.failing.iter().for_each(|folder| folder.fail(Fault { at: 1, beyond: true, error: libc::ENOSPC }));
        ask(&scene, asked, &["volume", "drain", "vm1", "--hold", "10m"]).expect("a hold");
        assert!(is_held(&scene), "it is held");
        scene.write("under a hold");
        ask(&scene, asked, &["volume", "release", "vm1"]).expect("a release");
        assert!(!is_held(&scene), "it is released");
        scene.failing.iter().for_each(|folder| drop(folder.be_well()));
        scene.all_live("after a hold");
        scene.check("after a hold");
    }
}

/// There and back: the folder of `node` fails, which gives the volume away, and takes it again.
fn hand_over(name: &str, node: usize) {
    let Some(mut scene) = Scene::serving(name) else { return };
    let to = |target: usize| {
        move |scene: &mut Scene| {
            let owner = scene.owner().unwrap_or(1 - target);
            if owner == target {
                return Ok(());
            }
            ask(scene, owner, &["volume", "hand-over", "vm1", NAMES[target]])
        }
    };
    // A node that was dropped again and again is kept out for minutes (A3), and is a member again when it is to be the owner.
    let is_at = |target: usize| move |scene: &Scene| scene.owner() == Some(target);
    let operation = |name, act, is_done| Operation { name, act, is_done, may_be_taken_back: true };
    let (act, is_done) = ([to(0), to(1)], [is_at(0), is_at(1)]);
    let there = operation("a hand-over to beta", &act[1], &is_done[1]);
    let back = operation("a hand-over to alpha", &act[0], &is_done[0]);
    // Where all fail, one that was dropped is taught for minutes before it may be the owner: a bound, and not one for a test.
    walk(&mut scene, node, true, &[], [there, back]);
}

/// Proves O-16: between two nodes, one of whose folders fails.
#[test]
fn hand_overs() {
    hand_over("state-cluster-hand-over", 1);
}
