//! A real etcd: members that are killed, stopped, continued, and brought back from a snapshot.

use crate::harness::{TempDir, require_tool, run_command};
use crate::hosts::{Host, Namespace, Process};
use serde_json::Value;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A healthy etcd answers in milliseconds; two busy cores are given time.
const READY_TIME_MAX: Duration = Duration::from_secs(60);
/// `etcdctl` gives up by itself before.
const TOOL_TIME_MAX: Duration = Duration::from_secs(30);

/// PEM files of members that want TLS: their certificate and key, and the authority of their clients.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Certificate of the members; also as client, as the gateway of a member calls itself.
    pub cert: PathBuf,
    /// Private key of that certificate.
    pub key: PathBuf,
    /// Authority of members and clients.
    pub ca: PathBuf,
}

#[derive(Debug)]
struct Member {
    address: String,
    namespace: Option<Namespace>,
    folder: PathBuf,
    process: Option<Process>,
}

/// The members of one etcd, killed when it is dropped.
#[derive(Debug)]
pub struct Etcd {
    folder: PathBuf,
    members: Vec<Member>,
    tls: Option<Tls>,
    /// Grows with each restoration.
    generation: u32,
    /// What a member may have of data, from its next start on.
    quota_bytes: Option<u64>,
}

/// An address of loopback that no other test uses: each member has one to itself, with the usual ports.
pub fn own_address() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let (number, pid) = (NUMBER.fetch_add(1, Ordering::Relaxed), std::process::id());
    assert!(number < 255, "too many members in one test binary");
    format!("127.{number}.{}.{}", pid >> 8 & 0xff, pid & 0xff)
}

impl Etcd {
    /// Members on this machine's loopback; they answer when this returns.
    #[track_caller]
    pub fn start(folder: &TempDir, members: usize) -> Etcd {
        Etcd::start_with(folder, (0..members).map(|_| (own_address(), None)).collect(), None)
    }

    /// One member with TLS, at the [`own_address`] that its certificate is for.
    #[track_caller]
    pub fn start_tls(folder: &TempDir, address: &str, tls: Tls) -> Etcd {
        Etcd::start_with(folder, vec![(address.to_owned(), None)], Some(tls))
    }

    /// A member on each of these hosts, by their first link.
    #[track_caller]
    pub fn start_on(folder: &TempDir, hosts: &[Host]) -> Etcd {
        let places = hosts.iter().map(|host| (host.address(0), Some(host.namespace().clone())));
        Etcd::start_with(folder, places.collect(), None)
    }

    #[track_caller]
    fn start_with(folder: &TempDir, places: Vec<(String, Option<Namespace>)>, tls: Option<Tls>) -> Etcd {
        let folder = folder.join("etcd");
        let member = |(at, (address, namespace)): (usize, (String, Option<Namespace>))| {
            let folder = folder.join(format!("member{at}"));
            std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("make {}: {e}", folder.display()));
            Member { address, namespace, folder, process: None }
        };
        let members = places.into_iter().enumerate().map(member).collect();
        let mut etcd = Etcd { folder, members, tls, generation: 0, quota_bytes: None };
        for at in 0..etcd.members.len() {
            etcd.launch(at);
        }
        etcd.wait_ready();
        etcd
    }

    fn client_url(&self, at: usize) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}:2379", self.members[at].address)
    }

    fn peer_url(&self, at: usize) -> String {
        format!("http://{}:2380", self.members[at].address)
    }

    fn cluster(&self) -> String {
        let member = |at| format!("m{at}={}", self.peer_url(at));
        (0..self.members.len()).map(member).collect::<Vec<_>>().join(",")
    }

    fn data(&self, at: usize) -> PathBuf {
        self.members[at].folder.join(format!("data{}", self.generation))
    }

    /// Where clients find the members.
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|at| self.client_url(at)).collect()
    }

    #[track_caller]
    fn launch(&mut self, at: usize) {
        let mut command = Command::new(require_tool("etcd"));
        let (client, peer) = (self.client_url(at), self.peer_url(at));
        command.arg("--name").arg(format!("m{at}")).arg("--data-dir").arg(self.data(at));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &self.cluster(), "--log-level", "warn", "--logger", "zap"]);
        if let Some(tls) = &self.tls {
            command.arg("--cert-file").arg(&tls.cert).arg("--key-file").arg(&tls.key);
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(&tls.ca);
        }
        if let Some(bytes) = self.quota_bytes {
            command.arg("--quota-backend-bytes").arg(bytes.to_string());
        }
        let member = &mut self.members[at];
        if let Some(namespace) = &member.namespace {
            namespace.place(&mut command);
        }
        let log = File::options().create(true).append(true).open(member.folder.join("log"));
        let log = log.unwrap_or_else(|e| panic!("make a log for etcd: {e}"));
        command.stdout(log.try_clone().expect("a descriptor")).stderr(log);
        member.process = Some(Process::spawn(command));
    }

    /// `etcdctl` against one member, or all of them.
    pub fn etcdctl(&self, at: Option<usize>) -> Command {
        let mut command = Command::new(require_tool("etcdctl"));
        let asked = at.map_or_else(|| self.endpoints().join(","), |at| self.client_url(at));
        command.env("ETCDCTL_API", "3").args([
            "--endpoints",
            &asked,
            "--command-timeout",
            "5s",
            "--dial-timeout",
            "2s",
        ]);
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(&tls.ca).arg("--cert").arg(&tls.cert).arg("--key").arg(&tls.key);
        }
        if let Some(namespace) = &self.members[at.unwrap_or(0)].namespace {
            namespace.place(&mut command);
        }
        command
    }

    /// Runs it with these words, which must succeed: again where a busy machine has let it time out, and then what is there already
    /// is there by the first time.
    #[track_caller]
    pub fn control(&self, at: Option<usize>, words: &[&str]) -> String {
        let begun = Instant::now();
        let mut again = false;
        loop {
            let mut command = self.etcdctl(at);
            command.args(words);
            let output = run_command(TOOL_TIME_MAX, command);
            let text = output.text();
            let timed_out = ["request timed out", "deadline exceeded"].iter().any(|words| text.contains(words));
            if output.status.success() || (again && text.contains("already exists")) {
                return output.stdout;
            }
            assert!(timed_out && begun.elapsed() < READY_TIME_MAX, "{}", output.describe());
            again = true;
        }
    }

    /// Waits until every member that runs answers a linearizable question.
    #[track_caller]
    pub fn wait_ready(&mut self) {
        let begun = Instant::now();
        for at in 0..self.members.len() {
            while self.members[at].process.is_some() && !self.answers(at) {
                let alive = self.members[at].process.as_mut().is_some_and(Process::is_alive);
                let log = self.members[at].folder.join("log");
                let told = || std::fs::read_to_string(&log).unwrap_or_default();
                assert!(alive, "etcd member {at} has ended:\n{}", told());
                assert!(begun.elapsed() < READY_TIME_MAX, "etcd member {at} gives no answer:\n{}", told());
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Whether a member answers a linearizable question, that is, has a majority.
    #[track_caller]
    pub fn answers(&self, at: usize) -> bool {
        let mut command = self.etcdctl(Some(at));
        command.args(["get", "no-such-key"]);
        run_command(TOOL_TIME_MAX, command).status.success()
    }

    /// Place of the member that leads, once there is one.
    #[track_caller]
    pub fn leader(&self) -> usize {
        let begun = Instant::now();
        loop {
            for at in (0..self.members.len()).filter(|at| self.members[*at].process.is_some()) {
                let mut command = self.etcdctl(Some(at));
                command.args(["endpoint", "status", "--write-out", "json"]);
                let output = run_command(TOOL_TIME_MAX, command);
                let status: Value = serde_json::from_str(&output.stdout).unwrap_or(Value::Null);
                let status = &status[0]["Status"];
                if status["leader"].is_u64() && status["leader"] == status["header"]["member_id"] {
                    return at;
                }
            }
            assert!(begun.elapsed() < READY_TIME_MAX, "no member of etcd leads");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn process(&mut self, at: usize) -> &mut Process {
        self.members[at].process.as_mut().unwrap_or_else(|| panic!("member {at} does not run"))
    }

    /// Ends a member by SIGKILL.
    #[track_caller]
    pub fn kill(&mut self, at: usize) {
        self.process(at).kill();
        self.members[at].process = None;
    }

    /// Starts a killed member again, with what it had.
    #[track_caller]
    pub fn restart(&mut self, at: usize) {
        assert!(self.members[at].process.is_none(), "member {at} runs");
        self.launch(at);
    }

    /// Halts a member by SIGSTOP: it does not answer until [`Etcd::resume`].
    #[track_caller]
    pub fn stop(&mut self, at: usize) {
        self.process(at).stop();
    }

    /// SIGSTOP, unless it was killed.
    #[track_caller]
    pub fn stop_where_it_runs(&mut self, at: usize) {
        self.members[at].process.iter_mut().for_each(Process::stop);
    }

    /// Lets a halted member go on, by SIGCONT.
    #[track_caller]
    pub fn resume(&mut self, at: usize) {
        self.process(at).resume();
    }

    /// All that run stand still.
    #[track_caller]
    pub fn stop_all(&mut self) {
        for member in &mut self.members {
            member.process.iter_mut().for_each(Process::stop);
        }
    }

    /// Whether a member runs, as far as the test has not killed it.
    pub fn runs(&self, at: usize) -> bool {
        self.members[at].process.is_some()
    }

    /// All members run, whatever was done to them.
    #[track_caller]
    pub fn heal(&mut self) {
        for at in 0..self.members.len() {
            if self.runs(at) { self.resume(at) } else { self.restart(at) }
        }
    }

    /// All members are started anew, one after the other, and take no write above so many bytes of data.
    #[track_caller]
    pub fn limit(&mut self, bytes: u64) {
        self.quota_bytes = Some(bytes);
        for at in 0..self.members.len() {
            self.kill(at);
            self.restart(at);
            self.wait_ready();
        }
    }

    /// Writes a backup of what is there now.
    #[track_caller]
    pub fn backup(&self, to: &Path) {
        let to = to.to_str().expect("a plain path");
        self.control(Some(0), &["snapshot", "save", to]);
    }

    /// All members are killed, and begin anew from a backup, at their former addresses; they answer when this returns.
    #[track_caller]
    pub fn restore(&mut self, from: &Path) {
        self.put_back(from);
        self.wait_ready();
    }

    /// The same, and it does not wait: where hosts are cut off from each other, not every member answers.
    #[track_caller]
    pub fn put_back(&mut self, from: &Path) {
        for at in 0..self.members.len() {
            if self.members[at].process.is_some() {
                self.kill(at);
            }
        }
        let former: Vec<PathBuf> = (0..self.members.len()).map(|at| self.data(at)).collect();
        self.generation += 1;
        for at in 0..self.members.len() {
            let mut command = Command::new(require_tool("etcdctl"));
            command.env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(from);
            command.arg("--data-dir").arg(self.data(at)).arg("--name").arg(format!("m{at}"));
            command.args(["--initial-cluster", &self.cluster()]);
            command.args(["--initial-advertise-peer-urls", &self.peer_url(at)]);
            command.arg("--initial-cluster-token").arg(format!("restored{}", self.generation));
            run_command(TOOL_TIME_MAX, command).expect_success();
        }
        for at in 0..self.members.len() {
            self.launch(at);
        }
        // Each takes 64 MB.
        former.iter().for_each(|data| drop(std::fs::remove_dir_all(data)));
    }

    /// The folder that has the files of all members.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}
