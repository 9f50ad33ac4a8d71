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

    /// Loads one node's export, and kills the node in the middle.
    #[track_caller]
    fn load_and_kill(&mut self, node: usize) -> u64 {
        let options = self.load(node, PATIENCE);
        let journal = options.journal.clone();
        let before = load::journal_bytes(&journal);
        let loading = std::thread::spawn(move || load::run(&options));
        load::wait_until_under_way(&journal, before);
        std::thread::sleep(Duration::from_secs(2));
        self.kill(node);
        match loading.join().expect("the load does not panic") {
            Ok(Ended::ConnectionLost(totals)) => {
                assert!(totals.acknowledged > 0, "nothing was acknowledged");
                totals.acknowledged
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
    cluster.wait_for("the link between the nodes", |cluster| {
        let nodes = cluster.try_command(0, &["node", "list"]).unwrap_or_default();
        nodes.as_array().is_some_and(|nodes| {
            nodes.iter().any(|node| {
                let up = node["channels"].as_array().into_iter().flatten().filter(|channel| channel["phase"] == "up");
                node["up"] == true && up.count() == 2
            })
        })
    });
    cluster.create(0, tier);
    cluster.wait_for_copies(0);
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
