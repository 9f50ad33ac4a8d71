//! etcd is put back to a backup at each step of a take-over, while clients of the volume write and read at all nodes: once with the
//! former owner alive and heard again at that moment, once with it standing still until then. Nothing acknowledged is lost, no two
//! nodes own the volume in one term, nothing that was read is gone later; and the volume comes to rest by what `docs/cluster.md`
//! tells the operator, or says whom it waits for until it does.

use forebay_tests::cluster::{Cluster, NAMES, PATIENCE};
use forebay_tests::eyes::{Eyes, View};
use forebay_tests::harness::TempDir;
use forebay_tests::pattern::bystander::Bystanders;
use forebay_tests::pattern::follower::{Follower, Place, Progress};
use forebay_tests::watcher::Watcher;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SIZE: u64 = 8 << 20;
const COMMAND: Duration = Duration::from_secs(20);
/// Within which a member takes over, if it can.
const GRACE: Duration = Duration::from_secs(6);
/// A step of the take-over is met within so long of its beginning.
const GLANCE: Duration = Duration::from_millis(20);

/// Where the take-over is when etcd is put back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The former owner is heard no more, and its lease is not over.
    InItsLease,
    /// A member hears nothing of it for longer than the grace, and what it asks of etcd is not answered.
    Asks,
    /// The member takes nothing of the former owner any more, and is kept from going on by an etcd that does not answer.
    Sealed,
    /// The record names the new owner.
    Recorded,
    /// A client has been answered by it.
    FirstWrite,
    /// It has left out the former owner, and another node is a member in its place.
    OtherMembers,
}

const STEPS: [Step; 6] =
    [Step::InItsLease, Step::Asks, Step::Sealed, Step::Recorded, Step::FirstWrite, Step::OtherMembers];

/// What has become of the former owner when etcd is put back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Former {
    /// It was cut off from all others, and is heard again.
    Alive,
    /// It stood still, and goes on.
    Paused,
}

struct Scene {
    client: Follower,
    bystanders: Bystanders,
    watcher: Watcher,
    eyes: Eyes,
    backup: PathBuf,
    cluster: Cluster,
}

impl Scene {
    fn begin(cluster: Cluster) -> Scene {
        let eyes = Eyes::of(&cluster);
        let image = cluster.folder.join("vm1.img");
        let words = json!({
            "name": "vm1", "backing": image, "size": SIZE, "create": true, "policy": "back", "peers": 1, "tier": "memory",
            "tier_size": 48 << 20,
        });
        let created = eyes.ask(0, "POST", "/v1/volumes", Some(&words), COMMAND);
        created.unwrap_or_else(|why| panic!("{why}\n{}", eyes.describe()));
        let watcher = Watcher::begin(eyes.clone());
        let its = eyes.clone();
        let find = move || {
            let (node, view) = its.owner("vm1")?;
            Some(Place { node: NAMES[node].to_owned(), term: view.term, target: its.target(node, "vm1") })
        };
        let client = Follower::begin(1, SIZE, 1, Box::new(find));
        let places = (0..NAMES.len()).map(|node| (NAMES[node].to_owned(), eyes.target(node, "vm1"))).collect();
        let bystanders = Bystanders::begin(1, SIZE, 1, client.recent(), places);
        let backup = backup_in(&cluster.folder);
        let scene = Scene { client, bystanders, watcher, eyes, backup, cluster };
        scene.wait_for("the volume to be whole", Scene::whole);
        scene
    }

    #[track_caller]
    fn check(&self) {
        let finding = self.client.progress().finding.or(self.bystanders.finding()).or(self.watcher.finding());
        if let Some(finding) = finding {
            panic!("{finding}\n{}", self.eyes.describe());
        }
    }

    #[track_caller]
    fn wait_for<T>(&self, what: &str, done: impl Fn(&Scene) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            self.check();
            if let Some(found) = done(self) {
                return found;
            }
            if begun.elapsed() > 2 * PATIENCE {
                panic!("waited in vain for {what}\n{}", self.eyes.describe());
            }
            std::thread::sleep(GLANCE);
        }
    }

    fn owner(&self) -> Option<(usize, View)> {
        self.eyes.owner("vm1")
    }

    /// One owner with a copy at another node, requests of a former one answered or ended, and no node that knows more than is
    /// recorded: the owner, the other node, and the term.
    fn whole(&self) -> Option<(usize, usize, u64)> {
        let (owner, view) = self.owner()?;
        let copy = view.copies().into_iter().find(|node| *node != owner)?;
        let settled = (0..NAMES.len()).all(|node| self.known(node).is_null());
        let whole = settled && view.is_whole(1).is_ok() && self.client.progress().ghosts_open == 0;
        whole.then_some((owner, copy, view.term))
    }

    /// What a node says of `known`, after the coordinator went back.
    fn known(&self, node: usize) -> Value {
        self.eyes.volume(node, "vm1").map_or(Value::Null, |view| view.shown["cluster"]["known"].clone())
    }

    /// As `docs/cluster.md` tells it, and again where somebody knows more by then: at the node that knows the newest record, best the
    /// owner. What is said where nothing went back is refused, and does no harm.
    fn have_record_written_anew(&self) {
        let knows = |node: usize| {
            let known = self.known(node);
            let version = (known["term"].as_u64()?, known["epoch"].as_u64()?);
            let owns = self.eyes.volume(node, "vm1").is_some_and(|view| view.state == "owner");
            known["shown_term"].is_u64().then_some((version, owns, node))
        };
        let Some(((term, epoch), _, node)) = (0..NAMES.len()).filter_map(knows).max() else { return };
        let words = json!({ "yes_the_coordinator_went_back": true, "i_saw": format!("{term}/{epoch}") });
        match self.eyes.ask(node, "POST", "/v1/volumes/vm1/restore-record", Some(&words), COMMAND) {
            Ok(_) => println!("the record is written anew at {}: {term}/{epoch}", NAMES[node]),
            Err(why) => println!("{why}"),
        }
    }

    /// Waits for what comes after a restore, with an operator who does what the nodes ask for. They may ask late: who has not looked at
    /// etcd since goes on for that long as if nothing had happened.
    #[track_caller]
    fn wait_with_operator<T>(&self, what: &str, done: impl Fn(&Scene) -> Option<T>) -> T {
        self.wait_for(what, |scene| {
            scene.have_record_written_anew();
            done(scene)
        })
    }

    /// Every sector is as it must be, in the volume and in its image.
    #[track_caller]
    fn audit(&self) {
        let before = self.client.progress();
        let after = |enough: fn(&Progress, &Progress) -> bool| {
            let before = &before;
            move |scene: &Scene| enough(&scene.client.progress(), before).then_some(())
        };
        self.client.audit();
        self.wait_with_operator("an audit", after(|now, before| now.audits > before.audits && now.rests));
        self.wait_with_operator("an empty log", |scene| (scene.owner()?.1.shown["dirty"]["bytes"] == 0).then_some(()));
        self.client.compare_image(self.cluster.folder.join("vm1.img"));
        self.wait_with_operator("a look at the image", after(|now, before| now.images > before.images));
        self.client.load();
    }

    /// The former owner is heard no more.
    #[track_caller]
    fn lose(&mut self, node: usize, former: Former) {
        match former {
            Former::Alive => self.cluster.network.isolate(node),
            Former::Paused => self.cluster.daemons[node].as_mut().expect("it runs").stop(),
        }
    }

    /// It is heard again.
    #[track_caller]
    fn bring_back(&mut self, node: usize, former: Former) {
        match former {
            Former::Alive => self.cluster.network.heal(),
            Former::Paused => self.cluster.daemons[node].as_mut().expect("it runs").resume(),
        }
    }

    /// Waits until the take-over from `former`, which served in `term`, is where it is to be.
    #[track_caller]
    fn wait_for_step(&mut self, step: Step, former: usize, copy: usize, term: u64) {
        let is_another = |scene: &Scene| scene.owner().filter(|(node, view)| *node != former && view.term > term);
        match step {
            Step::InItsLease => std::thread::sleep(Duration::from_millis(500)),
            Step::Asks => {
                self.cluster.etcd.stop_all();
                self.wait_for("a member to ask in vain", |scene| {
                    let view = scene.eyes.volume(copy, "vm1")?;
                    (view.shown["cluster"]["reason"] == "coordinator-away").then_some(())
                });
                std::thread::sleep(GRACE);
            }
            Step::Sealed => {
                // For as long as the former owner, a member, may answer: two thirds of a second.
                self.wait_for("a member to be sealed", |scene| {
                    let view = scene.eyes.volume(copy, "vm1")?;
                    (view.state != "following").then_some(())
                });
                self.cluster.etcd.stop_all();
                std::thread::sleep(Duration::from_secs(1));
            }
            Step::Recorded => self.wait_for("the record to name another owner", |scene| {
                let view = scene.eyes.volume(copy, "vm1")?;
                (view.shown["cluster"]["term"].as_u64()? > term).then_some(())
            }),
            Step::FirstWrite => {
                let answered =
                    |scene: &Scene| is_another(scene).filter(|(_, v)| scene.client.progress().term >= v.term);
                self.wait_for("a first answer of another owner", |scene| answered(scene).map(drop));
            }
            Step::OtherMembers => self.wait_for("other members", |scene| {
                let (_, view) = is_another(scene)?;
                let copies = view.copies();
                (copies.len() == 2 && !copies.contains(&former)).then_some(())
            }),
        }
    }

    /// While a former owner is silent that may know more, nobody goes on without it who has not before, and the copy says so. `Err`: it
    /// went on.
    fn nobody_goes_on(&self, step: Step, former: usize, copy: usize) -> Result<(), String> {
        if matches!(step, Step::Recorded | Step::FirstWrite | Step::OtherMembers) {
            return Ok(());
        }
        let begun = Instant::now();
        let mut said = false;
        while begun.elapsed() < 2 * GRACE || !said {
            self.check();
            let known = self.known(copy);
            said |= known["unheard"].as_array().is_some_and(|all| all.iter().any(|node| node == NAMES[former]));
            let view = self.eyes.volume(copy, "vm1");
            if view.is_some_and(|view| view.state == "owner" || view.state == "agreeing") {
                return Err(format!("{} goes on, and {} was not heard", NAMES[copy], NAMES[former]));
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{} does not say that it waits for {}", NAMES[copy], NAMES[former]));
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// One take-over, and a restore in the middle of it.
    #[track_caller]
    fn restore_at(&mut self, step: Step, former: Former) -> Result<(), String> {
        let (owner, copy, term) = self.wait_with_operator("the volume to be whole", Scene::whole);
        println!("{step:?}, {former:?}: {} has it in term {term}, with a copy at {}", NAMES[owner], NAMES[copy]);
        self.cluster.etcd.backup(&self.backup);
        self.lose(owner, former);
        self.wait_for_step(step, owner, copy, term);
        self.cluster.etcd.put_back(&self.backup);
        let waited = match former {
            Former::Paused => {
                self.cluster.etcd.wait_ready();
                self.nobody_goes_on(step, owner, copy)
            }
            Former::Alive => Ok(()),
        };
        self.bring_back(owner, former);
        waited?;
        self.cluster.etcd.wait_ready();
        self.wait_with_operator("the volume to be whole", Scene::whole);
        self.audit();
        Ok(())
    }
}

fn backup_in(folder: &TempDir) -> PathBuf {
    folder.join("etcd.backup")
}

fn at_each_step(name: &str, former: Former) {
    let Some(cluster) = Cluster::new(name, NAMES.len()) else { return };
    let mut scene = Scene::begin(cluster);
    for step in STEPS {
        scene.restore_at(step, former).unwrap_or_else(|why| panic!("{step:?}: {why}\n{}", scene.eyes.describe()));
    }
    let Progress { acknowledged, reads, ghosts, probes, .. } = scene.client.progress();
    println!(
        "{acknowledged} acknowledged, {reads} reads compared, {ghosts} deposed owners left, {probes} of them asked in vain"
    );
    assert!(acknowledged > 100 && scene.bystanders.reads() > 100, "{acknowledged} acknowledged requests prove little");
}

/// Proves N-M-9.
#[test]
fn etcd_is_restored_at_each_step_of_a_take_over_and_the_former_owner_is_heard_again() {
    at_each_step("steps-alive", Former::Alive);
}

/// Proves N-M-9.
#[test]
fn etcd_is_restored_at_each_step_of_a_take_over_and_the_former_owner_goes_on() {
    at_each_step("steps-paused", Former::Paused);
}

/// The planted build asks nobody what he has seen before it changes the record (C5, C6).
#[test]
fn a_copy_that_goes_on_unasked_after_a_restore_is_caught() {
    let Some(cluster) = Cluster::with_plant("steps-unasked", NAMES.len(), "", Some("unasked")) else { return };
    let caught = Scene::begin(cluster).restore_at(Step::InItsLease, Former::Paused);
    let caught = caught.expect_err("it asks");
    assert!(caught.contains("goes on"), "{caught}");
}
