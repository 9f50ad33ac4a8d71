//! A volume whose log several nodes keep, on real hosts: network namespaces with two links each, a real etcd, real daemons, and
//! a load whose every acknowledged write is looked for after each fault.

use forebay_tests::etcd::Etcd;
use forebay_tests::harness::{Output, TempDir, forebay, run_command, skip};
use forebay_tests::hosts::{Host, Network, Process};
use forebay_tests::nbd::{Client, Target};
use forebay_tests::pattern::check;
use forebay_tests::pattern::journal::History;
use forebay_tests::pattern::load::{self, Ended, LoadOptions};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];
const SIZE: u64 = 48 << 20;
/// Two busy cores are given time; a healthy cluster needs a tenth of it.
const PATIENCE: Duration = Duration::from_secs(60);
const TOOL: Duration = Duration::from_secs(60);

/// Nodes of one cluster, on hosts of their own, with a folder that all of them see.
struct Cluster {
    folder: TempDir,
    network: Network,
    daemons: Vec<Option<Process>>,
    _etcd: Etcd,
}

/// Memory tiers lie in the daemons' tmpfs and outlive them. Those of a test that fails are kept, as its folder is.
impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let running = self.daemons.iter().flatten().next().is_some();
        let tiers = (0..self.daemons.len()).filter(|_| running).filter_map(|node| {
            let shown = self.try_command(node, &["volume", "show", "vm1"]).ok()?;
            Some(shown["tier"]["path"].as_str()?.to_owned())
        });
        let tiers: Vec<String> = tiers.collect();
        self.daemons.clear();
        for tier in tiers.iter().map(PathBuf::from) {
            let (Some(folder), Some(name)) = (tier.parent(), tier.file_name().and_then(|name| name.to_str())) else {
                continue;
            };
            // Of this volume on any node: the last part of the name is the node's.
            let Some((volume, _)) = name.rsplit_once('-') else { continue };
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with(volume) {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
        }
    }
}

impl Cluster {
    /// None, and said so, where the machine does not let us.
    fn new(name: &str, nodes: usize) -> Option<Cluster> {
        let network = match Network::new(3, 2) {
            Ok(network) => network,
            Err(reason) => {
                skip(&reason);
                return None;
            }
        };
        let folder = TempDir::new(name);
        let etcd = Etcd::start_on(&folder, network.hosts());
        let mut cluster = Cluster { folder, network, daemons: (0..nodes).map(|_| None).collect(), _etcd: etcd };
        cluster.enrol(nodes);
        for node in 0..nodes {
            cluster.write_config(node);
            cluster.start(node);
        }
        Some(cluster)
    }

    fn enrol(&self, nodes: usize) {
        let authority = self.folder.join("authority");
        let init = ["node", "init-ca", "--cluster", "lab", "--authority"];
        let mut command = Command::new(forebay());
        command.args(init).arg(&authority);
        run_command(TOOL, command).expect_success();
        let mut command = Command::new(forebay());
        command.args(["node", "enrol"]).args(&NAMES[..nodes]).arg("--authority").arg(&authority);
        command.arg("--to").arg(self.folder.path());
        run_command(TOOL, command).expect_success();
    }

    fn place(&self, node: usize, what: &str) -> PathBuf {
        self.folder.join(&format!("{}-{what}", NAMES[node]))
    }

    fn target(&self, node: usize) -> Target {
        Target::unix(self.place(node, "nbd.sock"))
    }

    fn image(&self) -> PathBuf {
        self.folder.join("shared.img")
    }

    fn write_config(&self, node: usize) {
        let host = self.network.host(node);
        let text = format!(
            "[node]\nstate = \"{}\"\nshards = 1\n[listen]\nnbd = [\"unix:{}\"]\napi = \"{}\"\nhttp = \"off\"\n\
             [cluster]\nidentity = \"{}\"\netcd = {:?}\nfault_domain = \"rack-{node}\"\n\
             [[link]]\nown = \"{}\"\n[[link]]\nown = \"{}\"\n",
            self.place(node, "state").display(),
            self.place(node, "nbd.sock").display(),
            self.place(node, "api.sock").display(),
            self.folder.join(&format!("{}.identity.toml", NAMES[node])).display(),
            self._etcd.endpoints(),
            host.address(0),
            host.address(1),
        );
        let path = self.place(node, "node.toml");
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
    }

    fn host(&self, node: usize) -> &Host {
        self.network.host(node)
    }

    fn start(&mut self, node: usize) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.place(node, "log"));
        let log = log.expect("the test's folder takes a file");
        let mut command = Command::new(forebay());
        command.arg("serve").arg("--config").arg(self.place(node, "node.toml"));
        command.env("XDG_RUNTIME_DIR", self.folder.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        let _ = std::fs::remove_file(self.place(node, "nbd.sock"));
        let _ = std::fs::remove_file(self.place(node, "api.sock"));
        self.daemons[node] = Some(self.host(node).spawn(command));
        self.wait_for("a daemon to answer", |cluster| cluster.try_command(node, &["status"]).is_ok());
    }

    fn kill(&mut self, node: usize) {
        self.daemons[node].take().expect("it runs").kill();
    }

    /// SIGTERM, and it ends by itself.
    #[track_caller]
    fn stop(&mut self, node: usize) {
        let mut daemon = self.daemons[node].take().expect("it runs");
        // SAFETY: kill takes two integers; the number is that of a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(daemon.pid() as i32, libc::SIGTERM) }, 0);
        let begun = Instant::now();
        while daemon.is_alive() {
            assert!(begun.elapsed() < PATIENCE, "{} does not stop", NAMES[node]);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn command(&self, node: usize, words: &[&str]) -> Output {
        let mut command = Command::new(forebay());
        command.args(words).arg("--api").arg(self.place(node, "api.sock")).arg("--json");
        run_command(TOOL, command)
    }

    fn try_command(&self, node: usize, words: &[&str]) -> Result<Value, String> {
        let output = self.command(node, words);
        if !output.status.success() {
            return Err(output.describe());
        }
        serde_json::from_str(&output.stdout).map_err(|e| format!("{e}: {}", output.stdout))
    }

    fn show(&self, node: usize) -> Value {
        self.try_command(node, &["volume", "show", "vm1"]).unwrap_or(Value::Null)
    }

    #[track_caller]
    fn wait_for(&self, what: &str, done: impl Fn(&Cluster) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            if begun.elapsed() > PATIENCE {
                self.describe_all();
                panic!("waited in vain for {what}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn describe_all(&self) {
        for (node, name) in NAMES.iter().enumerate().take(self.daemons.len()) {
            let log = std::fs::read_to_string(self.place(node, "log")).unwrap_or_default();
            eprintln!("--- {name} ---\n{log}\n{:#}", self.show(node));
        }
    }

    #[track_caller]
    fn create(&self, node: usize, tier: &str) {
        let image = self.image();
        let (image, size) = (image.to_str().expect("a plain path"), SIZE.to_string());
        let words = [
            "volume",
            "create",
            "vm1",
            "--backing",
            image,
            "--size",
            &size,
            "--create",
            "--policy",
            "back",
            "--peers",
            "1",
            "--tier",
            tier,
            "--tier-size",
            "64M",
        ];
        if let Err(error) = self.try_command(node, &words) {
            self.describe_all();
            panic!("{error}");
        }
    }

    /// The owner acknowledges by two logs.
    #[track_caller]
    fn wait_for_copies(&self, owner: usize) {
        self.wait_for("two logs", |cluster| {
            let shown = cluster.show(owner);
            let members = shown["cluster"]["members"]
                .as_array()
                .map_or(0, |members| members.iter().filter(|member| member["role"] != "learner").count());
            shown["policy"]["effective"] == "back" && members == 2
        });
    }

    /// The volume is alpha's, and another node has its log, too.
    #[track_caller]
    fn serve_with_a_copy(&self, tier: &str) {
        let others = self.daemons.len() - 1;
        self.wait_for("two channels to each other node", |cluster| {
            let nodes = cluster.try_command(0, &["node", "list"]).unwrap_or_default();
            let is_up = |node: &&Value| {
                let up = node["channels"].as_array().into_iter().flatten().filter(|channel| channel["phase"] == "up");
                node["up"] == true && up.count() == 2
            };
            nodes.as_array().is_some_and(|nodes| nodes.iter().filter(is_up).count() == others)
        });
        self.create(0, tier);
        self.wait_for_copies(0);
    }

    /// Which of these nodes has become the owner.
    #[track_caller]
    fn owner_among(&self, nodes: &[usize]) -> usize {
        let owner =
            |cluster: &Cluster| nodes.iter().copied().find(|node| cluster.show(*node)["cluster"]["state"] == "owner");
        self.wait_for("a new owner", |cluster| owner(cluster).is_some());
        owner(self).expect("it was there just now")
    }

    #[track_caller]
    fn wait_for_owner(&self, node: usize) {
        self.wait_for("a new owner", |cluster| {
            let shown = cluster.show(node);
            shown["cluster"]["state"] == "owner" && shown["phase"] == "serving"
        });
    }

    fn load(&self, node: usize, time: Duration) -> LoadOptions {
        let mut options = LoadOptions::new(self.target(node), self.folder.join("journal"), 0..SIZE);
        options.time = Some(time);
        options.pause = Duration::from_millis(2);
        options
    }

    /// A load on one node's export, under way.
    fn begin_load(&self, node: usize) -> JoinHandle<Result<Ended, String>> {
        let options = self.load(node, 3 * PATIENCE);
        let journal = options.journal.clone();
        let before = load::journal_bytes(&journal);
        let loading = std::thread::spawn(move || load::run(&options));
        load::wait_until_under_way(&journal, before);
        std::thread::sleep(Duration::from_secs(1));
        loading
    }

    /// Loads one node's export, and kills the node in the middle.
    #[track_caller]
    fn load_and_kill(&mut self, node: usize) {
        let loading = self.begin_load(node);
        self.kill(node);
        self.load_has_broken_off(loading);
    }

    /// Its server has gone, or is the owner no more.
    #[track_caller]
    fn load_has_broken_off(&self, loading: JoinHandle<Result<Ended, String>>) {
        match loading.join().expect("the load does not panic") {
            Ok(Ended::ConnectionLost(totals)) => {
                assert!(totals.acknowledged > 0, "nothing was acknowledged");
            }
            other => panic!("the load outlives its server: {other:?}"),
        }
    }

    #[track_caller]
    fn every_acknowledged_write_is_at(&self, node: usize) {
        let journal = self.folder.join("journal");
        if let Err(why) = check::settle_after_kill(&journal, &self.target(node)) {
            self.describe_all();
            panic!("{why}");
        }
        assert!(History::read(&journal).is_ok());
    }
}

/// The whole story of two nodes: alone, with a copy, without the owner, and with the former owner back.
fn the_owner_is_killed_and_comes_back(name: &str, tier: &str) {
    let Some(mut cluster) = Cluster::new(name, 2) else { return };
    cluster.serve_with_a_copy(tier);
    let shown = cluster.show(0);
    assert_eq!(shown["cluster"]["owner"], "alpha", "{shown:#}");
    assert!(Client::connect(&cluster.target(1)).is_err(), "beta serves nobody while alpha owns the volume");

    cluster.load_and_kill(0);
    cluster.wait_for_owner(1);
    cluster.every_acknowledged_write_is_at(1);
    cluster.wait_for("write-through, because one log is less than was asked for", |cluster| {
        let shown = cluster.show(1);
        shown["policy"]["effective"] == "through" && shown["policy"]["reason"] == "too-few-peers"
    });

    cluster.start(0);
    cluster.wait_for_copies(1);
    cluster.load_and_kill(1);
    cluster.wait_for_owner(0);
    cluster.every_acknowledged_write_is_at(0);
}

#[test]
fn memory_of_two_nodes_outlives_each_of_them() {
    the_owner_is_killed_and_comes_back("replicas-memory", "memory");
}

#[test]
fn flash_of_two_nodes_outlives_each_of_them() {
    the_owner_is_killed_and_comes_back("replicas-flash", "flash");
}

/// It answers nothing more that the others do not know, and when it hears of them again it has stepped down.
#[test]
fn an_owner_that_is_cut_off_is_replaced_and_acknowledges_nothing_alone() {
    let Some(mut cluster) = Cluster::new("replicas-cut-off", 3) else { return };
    cluster.serve_with_a_copy("memory");
    let loading = cluster.begin_load(0);
    cluster.network.isolate(0);
    let owner = cluster.owner_among(&[1, 2]);
    cluster.network.heal();
    cluster.load_has_broken_off(loading);
    cluster.every_acknowledged_write_is_at(owner);
    cluster.wait_for("the former owner to have stepped down", |cluster| {
        let state = cluster.show(0)["cluster"]["state"].clone();
        state == "no-member" || state == "learner" || state == "following"
    });
    cluster.wait_for_copies(owner);
}

#[test]
fn one_of_two_links_may_go_and_nothing_changes() {
    let Some(cluster) = Cluster::new("replicas-link", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let term = cluster.show(0)["cluster"]["term"].clone();
    let options = cluster.load(0, Duration::from_secs(6));
    let loading = std::thread::spawn(move || load::run(&options));
    std::thread::sleep(Duration::from_secs(1));
    // The second: etcd is on the first.
    cluster.network.unplug(0, 1);
    std::thread::sleep(Duration::from_secs(2));
    cluster.network.plug(0, 1);
    match loading.join().expect("the load does not panic") {
        Ok(Ended::Finished(_)) => {}
        other => panic!("the load ends early: {other:?}"),
    }
    let shown = cluster.show(0);
    assert_eq!((&shown["cluster"]["term"], &shown["cluster"]["state"]), (&term, &Value::from("owner")), "{shown:#}");
    cluster.every_acknowledged_write_is_at(0);
}

/// Copies come and go while it serves, and the owner changes without a loss; a stop in order is a change of owner, too.
#[test]
fn copies_and_owners_change_by_command() {
    let Some(mut cluster) = Cluster::new("replicas-commands", 2) else { return };
    cluster.serve_with_a_copy("memory");
    let loading = cluster.begin_load(0);
    cluster.try_command(0, &["volume", "hand-over", "vm1", "beta"]).unwrap_or_else(|why| panic!("{why}"));
    cluster.load_has_broken_off(loading);
    cluster.wait_for_owner(1);
    cluster.every_acknowledged_write_is_at(1);

    cluster.try_command(0, &["volume", "set", "vm1", "--peers", "0"]).unwrap_or_else(|why| panic!("{why}"));
    cluster.wait_for("one log to be enough", |cluster| {
        let shown = cluster.show(1);
        shown["cluster"]["peers"] == 0 && shown["cluster"]["min_peers"] == 0 && shown["policy"]["effective"] == "back"
    });
    cluster.try_command(1, &["volume", "set", "vm1", "--peers", "1"]).unwrap_or_else(|why| panic!("{why}"));
    cluster.wait_for_copies(1);
    let refused = cluster.try_command(1, &["volume", "hand-over", "vm1", "gamma"]).expect_err("there is no such node");
    assert!(refused.contains("gamma"), "{refused}");

    cluster.stop(1);
    cluster.wait_for_owner(0);
    cluster.every_acknowledged_write_is_at(0);
}
