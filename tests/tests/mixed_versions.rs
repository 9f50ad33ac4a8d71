//! Two versions in one cluster: the nodes of a loaded cluster of three are upgraded one after the other, as `docs/operate.md`
//! tells it. Volumes are owned by either version with copies at the other, handed over both ways, and taken over from a killed
//! owner of either. No client sees an error, and none but those of a node that ends lose their connection. The same on the way back, which
//! is open until the last node is upgraded.
//!
//! The other version is `FOREBAY_OTHER_BIN`, which the gate builds; in a soak it is built here where that names none: the last tag, or
//! [`FORMER`].

use forebay_tests::cluster::{Cluster, NAMES, PATIENCE};
use forebay_tests::eyes::{Eyes, View};
use forebay_tests::harness::{forebay, run_command, skip, soak, workspace};
use forebay_tests::pattern::follower::{Follower, Place, Progress};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SIZE: u64 = 8 << 20;
const COMMAND: Duration = Duration::from_secs(30);
/// The last commit before records of version 3 and version 3 of the wire, while no tag is.
const FORMER: &str = "7169fa42da3b40bf67b6c5731f7c014c0e53e0bf";
const BUILD_TIME_MAX: Duration = Duration::from_secs(3600);
/// Each is of the node of the same place in [`NAMES`], as long as that runs.
const VOLUMES: [(&str, &str); 3] = [("vm1", "memory"), ("vm2", "flash"), ("vm3", "memory")];

/// The binary of the other version. `Err`: why there is none.
fn other_binary() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("FOREBAY_OTHER_BIN") {
        return Ok(PathBuf::from(path));
    }
    if !soak() {
        return Err("FOREBAY_OTHER_BIN names no other version, and only a soak (FOREBAY_SOAK=1) builds one".to_owned());
    }
    let mut describe = Command::new("git");
    describe.current_dir(workspace()).args(["describe", "--tags", "--abbrev=0"]);
    let described = run_command(COMMAND, describe);
    let version = if described.status.success() { described.stdout.trim() } else { FORMER };
    let mut look = Command::new("git");
    look.current_dir(workspace()).args(["cat-file", "-e", &format!("{version}^{{commit}}")]);
    match run_command(COMMAND, look).status.success() {
        true => Ok(build(version)),
        false => Err(format!("the history of this copy does not reach to {version}, the version to upgrade from")),
    }
}

fn build(version: &str) -> PathBuf {
    let folder = workspace().join("target/former");
    let source = folder.join("source");
    let _ = std::fs::remove_dir_all(&source);
    std::fs::create_dir_all(&source).unwrap_or_else(|e| panic!("make {}: {e}", source.display()));
    let mut unpack = Command::new("sh");
    unpack.current_dir(workspace()).args(["-c", "git archive \"$1\" | tar -x -C \"$2\"", "sh", version]).arg(&source);
    run_command(COMMAND, unpack).expect_success();
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.current_dir(&source).args(["build", "--quiet", "--release", "--locked", "-j2", "--package", "forebay-node"]);
    build.arg("--target-dir").arg(folder.join("build"));
    run_command(BUILD_TIME_MAX, build).expect_success();
    folder.join("build/release/forebay")
}

fn version_of(binary: &Path) -> String {
    let mut command = Command::new(binary);
    command.arg("--version");
    run_command(COMMAND, command).stdout.trim().to_owned()
}

/// A cluster with a client of each volume, which uses the socket of one node all the time.
struct Upgrade {
    clients: Vec<Follower>,
    /// Sessions that each must have had by now.
    sessions: [u64; NAMES.len()],
    eyes: Eyes,
    cluster: Cluster,
}

impl Upgrade {
    fn begin(mut cluster: Cluster, program: &Path) -> Upgrade {
        (0..NAMES.len()).for_each(|node| cluster.give_program(node, Some(program)));
        cluster.start_all();
        let eyes = Eyes::of(&cluster);
        for (node, (volume, tier)) in VOLUMES.iter().enumerate() {
            let image = cluster.folder.join(&format!("{volume}.img"));
            let words = json!({
                "name": volume, "backing": image, "size": SIZE, "create": true, "policy": "back", "peers": 1, "tier": tier,
                "tier_size": 48 << 20,
            });
            let created = eyes.ask(node, "POST", "/v1/volumes", Some(&words), COMMAND);
            created.unwrap_or_else(|why| panic!("{why}\n{}", eyes.describe()));
        }
        let client = |node: usize| {
            let target = eyes.target(node, VOLUMES[node].0);
            let find = move || Some(Place { node: NAMES[node].to_owned(), term: 1, target: target.clone() });
            Follower::begin(node as u64 + 1, SIZE, node as u64, Box::new(find))
        };
        let clients = (0..NAMES.len()).map(client).collect();
        let upgrade = Upgrade { clients, sessions: [1; NAMES.len()], eyes, cluster };
        upgrade.wait_until_whole(1);
        upgrade
    }

    #[track_caller]
    fn fail(&self, why: &str) -> ! {
        panic!("{why}\n{}", self.eyes.describe())
    }

    /// No client has seen an error or anything wrong, and none has lost a connection that it was not to lose.
    #[track_caller]
    fn check(&self) {
        for (node, client) in self.clients.iter().enumerate() {
            let Progress { finding, sessions, .. } = client.progress();
            if let Some(finding) = finding {
                self.fail(&format!("{} at {}: {finding}", VOLUMES[node].0, NAMES[node]));
            }
            if sessions > self.sessions[node] {
                self.fail(&format!("the client of {} has lost its connection: session {sessions}", NAMES[node]));
            }
        }
    }

    #[track_caller]
    fn wait_for(&self, what: &str, done: impl Fn(&Upgrade) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            self.check();
            if begun.elapsed() > 2 * PATIENCE {
                self.fail(&format!("waited in vain for {what}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        self.check();
    }

    fn owner(&self, volume: usize) -> Option<(usize, View)> {
        self.eyes.owner(VOLUMES[volume].0)
    }

    /// Each volume has an owner and its copies: so many for the first.
    #[track_caller]
    fn wait_until_whole(&self, peers_of_first: u32) {
        self.wait_for("all volumes to be whole", |upgrade| {
            (0..VOLUMES.len()).all(|volume| {
                let peers = if volume == 0 { peers_of_first } else { 1 };
                upgrade.owner(volume).is_some_and(|(_, view)| view.is_whole(peers).is_ok())
            })
        });
    }

    /// Everybody's requests are answered, whoever owns what.
    #[track_caller]
    fn wait_for_progress(&self) {
        let before: Vec<Progress> = self.clients.iter().map(Follower::progress).collect();
        self.wait_for("each client to get on", |upgrade| {
            let now = upgrade.clients.iter().map(Follower::progress);
            now.zip(&before)
                .all(|(now, before)| now.acknowledged > before.acknowledged + 50 && now.reads > before.reads + 20)
        });
    }

    #[track_caller]
    fn command(&self, node: usize, words: &[&str]) {
        if let Err(why) = self.cluster.try_command(node, words) {
            self.fail(&format!("{words:?} at {}: {why}", NAMES[node]));
        }
        self.check();
    }

    /// Given at a node, by the word that its version has for it.
    #[track_caller]
    fn evacuate(&self, at: usize, name: &str, more: &[&str]) {
        let word = if self.cluster.runs_this_version(at) { "evacuate" } else { "drain" };
        self.command(at, &[&["node", word, name], more].concat());
    }

    #[track_caller]
    fn hand_over(&self, volume: usize, to: usize) {
        // At the owner, as `docs/operate.md` tells it: a command by another node is signed, and not every version knows of that.
        let Some((owner, _)) = self.owner(volume) else { self.fail("the volume has no owner") };
        self.command(owner, &["volume", "hand-over", VOLUMES[volume].0, NAMES[to]]);
        self.wait_for("the owner to be another", |upgrade| upgrade.owner(volume).is_some_and(|(node, _)| node == to));
        self.wait_for_progress();
    }

    /// As `docs/operate.md` tells it; a program of its own is the other version.
    #[track_caller]
    fn upgrade(&mut self, node: usize, program: Option<&Path>) {
        let other = (node + 1) % NAMES.len();
        self.empty_and_stop(node);
        self.cluster.give_program(node, program);
        self.cluster.start(node);
        self.evacuate(other, NAMES[node], &["--undo"]);
        self.wait_until_whole(1);
        self.hand_over(node, node);
        self.wait_until_whole(1);
    }

    #[track_caller]
    fn empty_and_stop(&mut self, node: usize) {
        let other = (node + 1) % NAMES.len();
        self.evacuate(other, NAMES[node], &[]);
        self.wait_for_progress();
        self.sessions[node] += 1;
        self.cluster.stop(node);
        self.wait_for_progress_of_others(node);
    }

    /// What the records say of flushes, at their owners: nothing before all nodes can read that.
    #[track_caller]
    fn wait_for_flushed(&self, said: bool) {
        self.wait_for("what records say of flushes", |upgrade| {
            let says = |view: &View| view.shown["cluster"]["flushed"].as_str().is_some_and(|word| word != "unrecorded");
            (0..VOLUMES.len()).all(|volume| upgrade.owner(volume).is_some_and(|(_, view)| says(&view) == said))
        });
    }

    #[track_caller]
    fn wait_for_progress_of_others(&self, node: usize) {
        let before: Vec<u64> = self.clients.iter().map(|client| client.progress().acknowledged).collect();
        self.wait_for("the other clients to get on", |upgrade| {
            let others = (0..NAMES.len()).filter(|other| *other != node);
            others.into_iter().all(|other| upgrade.clients[other].progress().acknowledged > before[other] + 50)
        });
    }

    /// The first volume has copies at all nodes. It is owned by a node of each version in turn, and taken over from `odd`, whose
    /// version no other node has.
    #[track_caller]
    fn mix(&mut self, odd: usize) {
        let others = [(odd + 1) % NAMES.len(), (odd + 2) % NAMES.len()];
        self.command(others[0], &["volume", "set", "vm1", "--peers", "2"]);
        self.wait_until_whole(2);
        for owner in [odd, others[0], odd] {
            if self.owner(0).is_some_and(|(node, _)| node != owner) {
                self.hand_over(0, owner);
            }
            self.wait_until_whole(2);
            self.wait_for_progress();
        }
        self.sessions[odd] += 1;
        self.cluster.kill(odd);
        self.wait_for("the other version to take over", |upgrade| {
            let owner = |volume| upgrade.owner(volume).is_some_and(|(node, _)| node != odd);
            owner(0) && owner(odd)
        });
        self.wait_for_progress_of_others(odd);
        self.cluster.start(odd);
        self.wait_until_whole(2);
        self.command(others[1], &["volume", "set", "vm1", "--peers", "1"]);
        self.wait_until_whole(1);
    }

    /// What everybody wrote is there, and nobody has seen more than what was to be.
    #[track_caller]
    fn end(&self) {
        self.audit();
        for (node, client) in self.clients.iter().enumerate() {
            let Progress { acknowledged, reads, sessions, pause_max, .. } = client.progress();
            let name = NAMES[node];
            println!(
                "{name}: {acknowledged} acknowledged, {reads} reads, {sessions} sessions, longest wait {pause_max:?}"
            );
            assert_eq!(sessions, self.sessions[node], "{name}: what was to end a session did not");
        }
    }

    /// Every sector of each volume is read, and of its image when that is complete.
    #[track_caller]
    fn audit(&self) {
        let before: Vec<Progress> = self.clients.iter().map(Follower::progress).collect();
        let done = |upgrade: &Upgrade, enough: fn(&Progress, &Progress) -> bool| {
            let now = upgrade.clients.iter().map(Follower::progress);
            now.zip(&before).all(|(now, before)| enough(&now, before))
        };
        self.clients.iter().for_each(Follower::audit);
        self.wait_for("the audits", |upgrade| done(upgrade, |now, before| now.audits > before.audits && now.rests));
        self.wait_for("empty logs", |upgrade| {
            let clean = |volume| upgrade.owner(volume).is_some_and(|(_, view)| view.shown["dirty"]["bytes"] == 0);
            (0..VOLUMES.len()).all(clean)
        });
        for (client, (volume, _)) in self.clients.iter().zip(VOLUMES) {
            client.compare_image(self.cluster.folder.join(&format!("{volume}.img")));
        }
        self.wait_for("a look at the images", |upgrade| done(upgrade, |now, before| now.images > before.images));
    }
}

/// A cluster of the other version, under load; none, and said so, where there is no other version or no network.
fn begin(name: &str) -> Option<(PathBuf, Upgrade)> {
    let other = match other_binary() {
        Ok(other) => other,
        Err(reason) => {
            skip(&reason);
            return None;
        }
    };
    println!("from {} ({}) to {}", version_of(&other), other.display(), version_of(forebay()));
    let upgrade = Upgrade::begin(Cluster::prepare(name, NAMES.len(), "")?, &other);
    Some((other, upgrade))
}

#[test]
fn a_cluster_is_upgraded_node_by_node_and_no_client_sees_an_error() {
    let Some((_, mut upgrade)) = begin("mixed") else { return };
    upgrade.upgrade(0, None);
    upgrade.mix(0);
    upgrade.upgrade(1, None);
    upgrade.mix(2);
    upgrade.upgrade(2, None);
    upgrade.wait_for_flushed(true);
    upgrade.end();
}

/// Until the last node is upgraded, and from then on no more: a node that is put back then does not start, and harms nobody.
#[test]
fn an_upgrade_that_is_not_complete_is_taken_back_node_by_node_and_no_client_sees_an_error() {
    let Some((other, mut upgrade)) = begin("rolled-back") else { return };
    upgrade.upgrade(0, None);
    upgrade.upgrade(1, None);
    upgrade.mix(2);
    let (_, view) = upgrade.owner(0).expect("a volume that is whole has one");
    assert_eq!(view.shown["cluster"]["flushed"], "unrecorded", "gamma could not read it");
    upgrade.upgrade(1, Some(&other));
    upgrade.upgrade(0, Some(&other));
    upgrade.audit();
    upgrade.clients.iter().for_each(Follower::load);

    (0..NAMES.len()).for_each(|node| upgrade.upgrade(node, None));
    upgrade.wait_for_flushed(true);
    upgrade.empty_and_stop(2);
    upgrade.cluster.give_program(2, Some(&other));
    upgrade.cluster.launch(2);
    upgrade.wait_for("the former version to refuse", |upgrade| {
        let log = std::fs::read_to_string(upgrade.cluster.place(2, "log")).unwrap_or_default();
        log.lines().last().is_some_and(|line| line.contains("it is of version 3") && line.contains("use a newer one"))
    });
    upgrade.wait_for_progress_of_others(2);
    upgrade.cluster.daemons[2] = None;
    upgrade.cluster.give_program(2, None);
    upgrade.cluster.start(2);
    upgrade.evacuate(0, NAMES[2], &["--undo"]);
    upgrade.wait_until_whole(1);
    upgrade.end();
}
