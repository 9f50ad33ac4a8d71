//! Nodes of one cluster for tests: real daemons on hosts of their own ([`Network`]), a real etcd, a folder that all of them see,
//! and a load whose every acknowledged write is looked for after each fault.
//!
//! A test makes its volumes by [`Cluster::create`] (one, `vm1`) or by commands of its own. Memory tiers of all volumes are
//! removed at the end of a test that passes.

use crate::calls::CallGate;
use crate::etcd::Etcd;
use crate::failing::FailingFolder;
use crate::harness::{IoMode, Output, TempDir, forebay, forebay_planted, require_tool, run_command, skip};
use crate::hosts::{Host, Network, Process};
use crate::nbd::Target;
use crate::pattern::check;
use crate::pattern::journal::History;
use crate::pattern::load::{self, Ended, LoadOptions, Totals};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Names of the three nodes, by their places in the cluster.
pub const NAMES: [&str; 3] = ["alpha", "beta", "gamma"];
/// Bytes of a volume that [`Cluster::create`] makes.
pub const SIZE: u64 = 48 << 20;
/// Where clients on other hosts connect.
pub const NBD_PORT: u16 = 10809;
/// Where each node's dashboard is, on its own host.
pub const HTTP: &str = "127.0.0.1:7070";
/// Two busy cores are given time; a healthy cluster needs a tenth of it.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// For one command.
const TOOL: Duration = Duration::from_secs(60);
/// A daemon that answers is in its cluster soon; in a test without a coordinator never.
const JOINED_WITHIN: Duration = Duration::from_secs(10);

/// Nodes of one cluster, on hosts of their own, with a folder that all of them see.
pub struct Cluster {
    /// What all of them see.
    pub folder: TempDir,
    /// Three hosts with two links each; etcd is on the first link of each.
    pub network: Network,
    /// Those that run, by node.
    pub daemons: Vec<Option<Process>>,
    /// Three members, one on each host.
    pub etcd: Etcd,
    /// What stands before the path of the backing that is made: a model of a slow one, with its colon.
    pub backing_before: String,
    /// How all daemons do their I/O; none: as each of them likes.
    pub io: Option<IoMode>,
    /// Lines for the `[cluster]` table of each node.
    cluster_lines: String,
    /// Tables of one node, after all others.
    tables: Vec<String>,
    /// The number of the boot that each node's machine is in, where each has a machine of its own.
    boots: Option<Vec<u32>>,
    /// The image lies on a disk that only this node sees.
    disk_of: Option<usize>,
    /// `FOREBAY_PLANT` for the planted binary; none: the honest one.
    plant: Option<&'static str>,
    /// Of another version than the one under test; none: of that.
    programs: Vec<Option<PathBuf>>,
    /// More of each daemon's environment.
    environments: Vec<Vec<(String, OsString)>>,
    /// Where the calls of each daemon pass.
    calls: Vec<Option<CallGate>>,
    /// Configs name the interfaces of the links, and not their addresses.
    names_interfaces: bool,
}

/// Memory tiers lie in the daemons' tmpfs and outlive them. Those of a test that fails are kept, as its folder is.
impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let running = (0..self.daemons.len()).filter(|node| self.daemons[*node].is_some());
        let shown = running.filter_map(|node| self.try_command(node, &["volume", "list"]).ok());
        let paths: Vec<PathBuf> = shown
            .flat_map(|volumes| volumes.as_array().cloned().unwrap_or_default())
            .filter_map(|volume| Some(PathBuf::from(volume["tier"]["path"].as_str()?)))
            .collect();
        self.daemons.clear();
        for path in paths {
            remove_tiers_beside(&path);
        }
    }
}

/// A volume's tiers in one folder, whichever node they are of: the last part of the name is the node's.
fn remove_tiers_beside(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else { return };
    let Some((volume, _)) = name.rsplit_once('-') else { return };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(volume) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

impl Cluster {
    /// So many nodes, up to three. None, and said so, where the machine does not let us.
    pub fn new(name: &str, nodes: usize) -> Option<Cluster> {
        Cluster::with(name, nodes, "")
    }

    /// The same, with more lines in the `[cluster]` table of each.
    pub fn with(name: &str, nodes: usize, cluster_lines: &str) -> Option<Cluster> {
        Cluster::build(name, nodes, cluster_lines, None)
    }

    /// The image lies on a disk of one node: the others see an empty folder in its place.
    pub fn with_disk_of(name: &str, nodes: usize, node: usize) -> Option<Cluster> {
        Cluster::build(name, nodes, "", Some(node))
    }

    fn build(name: &str, nodes: usize, cluster_lines: &str, disk_of: Option<usize>) -> Option<Cluster> {
        let mut cluster = Cluster::prepare(name, nodes, cluster_lines)?;
        cluster.disk_of = disk_of;
        cluster.start_all();
        Some(cluster)
    }

    /// The same as [`Cluster::with`], of the binary with planted faults where there is a plant.
    pub fn with_plant(name: &str, nodes: usize, cluster_lines: &str, plant: Option<&'static str>) -> Option<Cluster> {
        let mut cluster = Cluster::prepare(name, nodes, cluster_lines)?;
        cluster.plant = plant;
        cluster.start_all();
        Some(cluster)
    }

    /// None of them runs yet: they can be given tables of their own, and machines.
    pub fn prepare(name: &str, nodes: usize, cluster_lines: &str) -> Option<Cluster> {
        let network = match Network::new(3, 2) {
            Ok(network) => network,
            Err(reason) => {
                skip(&reason);
                return None;
            }
        };
        let folder = TempDir::new(name);
        let etcd = Etcd::start_on(&folder, network.hosts());
        let cluster = Cluster {
            folder,
            network,
            daemons: (0..nodes).map(|_| None).collect(),
            etcd,
            backing_before: String::new(),
            io: None,
            cluster_lines: cluster_lines.to_owned(),
            tables: vec![String::new(); nodes],
            boots: None,
            disk_of: None,
            plant: None,
            programs: vec![None; nodes],
            environments: vec![Vec::new(); nodes],
            calls: vec![None; nodes],
            names_interfaces: false,
        };
        let disk = cluster.disk();
        std::fs::create_dir(&disk).unwrap_or_else(|e| panic!("make {}: {e}", disk.display()));
        cluster.enrol(nodes);
        Some(cluster)
    }

    /// Starts all that do not run.
    #[track_caller]
    pub fn start_all(&mut self) {
        for node in 0..self.daemons.len() {
            self.write_config(node);
            self.start(node);
        }
    }

    /// More tables in the config of one node, such as `[[fence]]`; from its next start on.
    pub fn add_tables(&mut self, node: usize, text: &str) {
        self.tables[node].push_str(text);
        self.write_config(node);
    }

    /// From its next start on each node is on a machine of its own, as far as it can tell: it has another machine id and boot id.
    pub fn give_machines(&mut self) {
        self.boots = Some(vec![1; self.daemons.len()]);
    }

    /// From its next start on a node is of another version; none: of the one under test.
    pub fn give_program(&mut self, node: usize, program: Option<&Path>) {
        self.programs[node] = program.map(Path::to_owned);
    }

    /// Whether it runs this version.
    pub fn runs_this_version(&self, node: usize) -> bool {
        self.programs[node].is_none()
    }

    /// From its next start on what is below the state folder of a node can fail.
    #[track_caller]
    pub fn make_failing(&mut self, node: usize) -> FailingFolder {
        let (failing, environment) =
            FailingFolder::below_with(&self.place(node, "state"), &self.folder, &format!("{}-failing", NAMES[node]));
        self.environments[node] = environment;
        failing
    }

    /// The machine of a node is started anew, as far as its next daemon can tell.
    pub fn reboot(&mut self, node: usize) {
        assert!(self.daemons[node].is_none(), "no daemon outlives its machine");
        self.boots.as_mut().expect("it has a machine of its own")[node] += 1;
    }

    /// The command that serves, with what its node sees of disks and machine.
    fn serve_command(&self, node: usize) -> Command {
        let own = if self.plant.is_some() { forebay_planted() } else { forebay() };
        let program = self.programs[node].as_deref().unwrap_or(own);
        let mut mounts = Vec::new();
        if self.disk_of.is_some_and(|other| other != node) {
            mounts.push(format!("-t tmpfs none '{}'", self.disk().display()));
        }
        if let Some(boots) = &self.boots {
            let mut own = |what: &str, text: String, over: &str| {
                let path = self.place(node, what);
                std::fs::write(&path, text).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
                mounts.push(format!("--bind '{}' {over}", path.display()));
            };
            own("machine-id", format!("{:032x}\n", 0xfeed_0000 + node), "/etc/machine-id");
            let boot = format!("{:08x}-0000-4000-8000-{node:012x}\n", boots[node]);
            own("boot-id", boot, "/proc/sys/kernel/random/boot_id");
        }
        if mounts.is_empty() {
            return Command::new(program);
        }
        let script: String = mounts.iter().map(|mount| format!("mount {mount} && ")).collect();
        let mut command = Command::new(require_tool("unshare"));
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command.arg(format!("{script}exec \"$@\"")).arg("sh").arg(program);
        command
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

    /// A file of one node in the folder.
    pub fn place(&self, node: usize, what: &str) -> PathBuf {
        self.folder.join(&format!("{}-{what}", NAMES[node]))
    }

    /// The NBD socket of a node's daemon.
    pub fn target(&self, node: usize) -> Target {
        Target::unix(self.place(node, "nbd.sock"))
    }

    fn disk(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// The image that is the backing of `vm1`.
    pub fn image(&self) -> PathBuf {
        self.disk().join("vm1.img")
    }

    /// Where the server of an export listens that any node may have for a backing.
    pub fn export_socket(&self) -> PathBuf {
        self.folder.join("export.sock")
    }

    /// That export. A quiet time would only hide what the pins are for.
    pub fn export_uri(&self) -> String {
        format!("nbd+unix:///?socket={}&nbd_quiet=0s", self.export_socket().display())
    }

    /// From its next start on each node names the interfaces of its links, and not their addresses.
    pub fn name_interfaces(&mut self) {
        self.names_interfaces = true;
    }

    fn write_config(&self, node: usize) {
        let host = self.network.host(node);
        let own = |link: u8| if self.names_interfaces { format!("link{link}") } else { host.address(link) };
        let text = format!(
            "[node]\nstate = \"{}\"\nshards = 1\n{}[listen]\nnbd = [\"unix:{}\", \"tcp:0.0.0.0:{NBD_PORT}\"]\napi = \"{}\"\nhttp = \"{HTTP}\"\n\
             {}[cluster]\nidentity = \"{}\"\netcd = {:?}\nfault_domain = \"rack-{node}\"\n{}\n\
             [[link]]\nown = \"{}\"\n[[link]]\nown = \"{}\"\n{}",
            self.place(node, "state").display(),
            self.io.map(|io| format!("io = \"{}\"\n", io.word())).unwrap_or_default(),
            self.place(node, "nbd.sock").display(),
            self.place(node, "api.sock").display(),
            self.allowed(node),
            self.folder.join(&format!("{}.identity.toml", NAMES[node])).display(),
            self.etcd.endpoints(),
            self.cluster_lines,
            own(0),
            own(1),
            self.tables[node],
        );
        let path = self.place(node, "node.toml");
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
    }

    /// From its next start on the calls of a node's daemon pass here.
    pub fn watch_calls(&mut self, node: usize) -> CallGate {
        let calls = CallGate::new();
        self.calls[node] = Some(calls.clone());
        calls
    }

    /// What a node opens that another one has named. Versions before it was asked for do not know the table.
    fn allowed(&self, node: usize) -> String {
        match self.programs[node] {
            Some(_) => String::new(),
            None => format!(
                "[backings]\nallow = [\"slow:\", \"{}\", \"{}\"]\n",
                self.folder.path().display(),
                self.export_uri()
            ),
        }
    }

    /// The host that a node runs on.
    pub fn host(&self, node: usize) -> &Host {
        self.network.host(node)
    }

    /// The process of its daemon.
    pub fn pid(&self, node: usize) -> u32 {
        self.daemons[node].as_ref().expect("it runs").pid()
    }

    /// Starts its daemon, and waits until it answers.
    #[track_caller]
    pub fn start(&mut self, node: usize) {
        self.launch(node);
        self.wait_for("a daemon to answer", |cluster| cluster.try_command(node, &["status"]).is_ok());
        // It answers a moment before it is in the cluster, which a busy machine makes longer.
        let begun = Instant::now();
        while self.try_command(node, &["node", "list"]).is_err() && begun.elapsed() < JOINED_WITHIN {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts its daemon. It does not answer before the coordinator does.
    pub fn launch(&mut self, node: usize) {
        self.write_config(node);
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.place(node, "log"));
        let log = log.expect("the test's folder takes a file");
        let mut command = self.serve_command(node);
        command.env("FOREBAY_PLANT", self.plant.unwrap_or_default());
        command.arg("serve").arg("--config").arg(self.place(node, "node.toml"));
        command.envs(self.environments[node].iter().map(|(name, value)| (name, value)));
        if let Some(calls) = &self.calls[node] {
            calls.install(&mut command);
        }
        command.env("XDG_RUNTIME_DIR", self.folder.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        let _ = std::fs::remove_file(self.place(node, "nbd.sock"));
        let _ = std::fs::remove_file(self.place(node, "api.sock"));
        self.daemons[node] = Some(self.host(node).spawn(command));
    }

    /// Ends a node's daemon by SIGKILL: nothing of it is finished.
    #[track_caller]
    pub fn kill(&mut self, node: usize) {
        self.daemons[node].take().expect("it runs").kill();
    }

    /// SIGTERM, and it ends by itself.
    #[track_caller]
    pub fn stop(&mut self, node: usize) {
        let mut daemon = self.daemons[node].take().expect("it runs");
        // SAFETY: kill takes two integers; the number is that of a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(daemon.pid() as i32, libc::SIGTERM) }, 0);
        let begun = Instant::now();
        while daemon.is_alive() {
            assert!(begun.elapsed() < PATIENCE, "{} does not stop", NAMES[node]);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A command at this node, with `--json`.
    pub fn command(&self, node: usize, words: &[&str]) -> Output {
        let mut command = Command::new(self.programs[node].as_deref().unwrap_or(forebay()));
        command.args(words).arg("--api").arg(self.place(node, "api.sock")).arg("--json");
        run_command(TOOL, command)
    }

    /// The same; its answer, or all of its words.
    pub fn try_command(&self, node: usize, words: &[&str]) -> Result<Value, String> {
        let output = self.command(node, words);
        if !output.status.success() {
            return Err(output.describe());
        }
        serde_json::from_str(&output.stdout).map_err(|e| format!("{e}: {}", output.stdout))
    }

    /// How the node sees `vm1`; null where it does not answer.
    pub fn show(&self, node: usize) -> Value {
        self.try_command(node, &["volume", "show", "vm1"]).unwrap_or(Value::Null)
    }

    /// Fails with all logs where it does not come within [`PATIENCE`].
    #[track_caller]
    pub fn wait_for(&self, what: &str, done: impl Fn(&Cluster) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            if begun.elapsed() > PATIENCE {
                self.describe_all();
                panic!("waited in vain for {what}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Logs and views of all nodes, on standard error.
    pub fn describe_all(&self) {
        for (node, name) in NAMES.iter().enumerate().take(self.daemons.len()) {
            let log = std::fs::read_to_string(self.place(node, "log")).unwrap_or_default();
            eprintln!("--- {name} ---\n{log}\n{:#}", self.show(node));
        }
    }

    /// Makes `vm1`, write-back with one peer.
    #[track_caller]
    pub fn create(&self, node: usize, tier: &str) {
        let image = self.image();
        let backing = format!("{}{}", self.backing_before, image.to_str().expect("a plain path"));
        let size = SIZE.to_string();
        let words = [
            "volume",
            "create",
            "vm1",
            "--backing",
            &backing,
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
    pub fn wait_for_copies(&self, owner: usize) {
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
    pub fn serve_with_a_copy(&self, tier: &str) {
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
    pub fn owner_among(&self, nodes: &[usize]) -> usize {
        let owner =
            |cluster: &Cluster| nodes.iter().copied().find(|node| cluster.show(*node)["cluster"]["state"] == "owner");
        self.wait_for("a new owner", |cluster| owner(cluster).is_some());
        owner(self).expect("it was there just now")
    }

    /// This node owns and serves.
    #[track_caller]
    pub fn wait_for_owner(&self, node: usize) {
        self.wait_for("a new owner", |cluster| {
            let shown = cluster.show(node);
            shown["cluster"]["state"] == "owner" && shown["phase"] == "serving"
        });
    }

    /// A load for one node's export, for so long.
    pub fn load(&self, node: usize, time: Duration) -> LoadOptions {
        let mut options = LoadOptions::new(self.target(node), self.folder.join("journal"), 0..SIZE);
        options.time = Some(time);
        options.pause = Duration::from_millis(2);
        options
    }

    /// A load on one node's export, under way, which does not end by itself.
    pub fn begin_load(&self, node: usize) -> JoinHandle<Result<Ended, String>> {
        self.begin_load_for(node, 3 * PATIENCE)
    }

    /// The same, for so long, by two connections.
    pub fn begin_load_for(&self, node: usize, time: Duration) -> JoinHandle<Result<Ended, String>> {
        let mut options = self.load(node, time);
        options.connections = 2;
        let journal = options.journal.clone();
        let before = load::journal_bytes(&journal);
        let loading = std::thread::spawn(move || load::run(&options));
        load::wait_until_under_way(&journal, before);
        std::thread::sleep(Duration::from_secs(1));
        loading
    }

    /// Loads one node's export, and kills the node in the middle.
    #[track_caller]
    pub fn load_and_kill(&mut self, node: usize) {
        let loading = self.begin_load(node);
        self.kill(node);
        self.load_has_broken_off(loading);
    }

    /// Its server has gone, or is the owner no more.
    #[track_caller]
    pub fn load_has_broken_off(&self, loading: JoinHandle<Result<Ended, String>>) {
        match loading.join().expect("the load does not panic") {
            Ok(Ended::ConnectionLost(totals)) => {
                assert!(totals.acknowledged > 0, "nothing was acknowledged");
            }
            other => panic!("the load outlives its server: {other:?}"),
        }
    }

    /// It has ended in its own time, and has seen no error.
    #[track_caller]
    pub fn load_has_finished(&self, loading: JoinHandle<Result<Ended, String>>) -> Totals {
        match loading.join().expect("the load does not panic") {
            Ok(Ended::Finished(totals)) => {
                assert_eq!((totals.failed, totals.issued), (0, totals.acknowledged), "{totals:?}");
                totals
            }
            other => {
                self.describe_all();
                panic!("the client has seen it: {other:?}");
            }
        }
    }

    /// Whatever any load was told to be written is there, and reads stay the same.
    #[track_caller]
    pub fn every_acknowledged_write_is_at(&self, node: usize) {
        let journal = self.folder.join("journal");
        if let Err(why) = check::settle_after_kill(&journal, &self.target(node)) {
            self.describe_all();
            panic!("{why}");
        }
        assert!(History::read(&journal).is_ok());
    }
}
