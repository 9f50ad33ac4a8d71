//! What every black-box test needs: the daemon as a child process, a folder that goes away, foreign tools with a time
//! limit, and clear words for what is missing.
//!
//! A tool that `make test` installs is required: without it the test fails. A privilege that a machine may lack
//! (root, FUSE, loop devices) lets a test skip, which is printed past the test runner's capture.

use crate::calls::CallGate;
use crate::locks::wait_for_late_writes;
use crate::nbd::{Client, Target};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How the daemon does its I/O; every black-box test runs in both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMode {
    /// io_uring, by the daemon's `--io uring`.
    Uring,
    /// epoll and worker threads.
    Threads,
}

impl IoMode {
    /// The word of `--io`.
    pub fn word(self) -> &'static str {
        match self {
            IoMode::Uring => "uring",
            IoMode::Threads => "threads",
        }
    }
}

/// The tier of a volume under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Arena in memory; `--volatile` is given with it.
    Memory,
    /// A file in the state folder.
    Flash,
}

/// Makes one test of each I/O mode out of `fn claim(io: IoMode) { ... }`.
#[macro_export]
macro_rules! in_both_io_modes {
    ($($(#[$meta:meta])* fn $name:ident($io:ident: IoMode) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            fn claim($io: $crate::harness::IoMode) $body
            #[test]
            $(#[$meta])*
            fn with_io_uring() {
                claim($crate::harness::IoMode::Uring);
            }
            #[test]
            $(#[$meta])*
            fn with_threads() {
                claim($crate::harness::IoMode::Threads);
            }
        }
    )*};
}

/// Prints why a test does nothing here; returned from the test by the caller.
pub fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // Not eprintln: the test runner would swallow it, and a skip must not read as a pass.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
}

/// The longer variants are asked for by `make soak`.
pub fn soak() -> bool {
    std::env::var_os("FOREBAY_SOAK").is_some()
}

/// `short` in the gate, `long` in a soak.
pub fn rounds(short: u64, long: u64) -> u64 {
    if soak() { long } else { short }
}

/// A TCP port of this host that nobody has. Below those that the kernel gives to clients (from 32768 on), one of which else takes it
/// before the daemon does. Looked up and not tried: a socket that listens for a moment lives on in a child that another thread starts in
/// that moment, until the child becomes its program.
pub fn free_port() -> u16 {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() * 64;
    let mut ports = (0..).map(|_| 16_384 + ((first + ASKED.fetch_add(1, Ordering::Relaxed)) % 16_384) as u16);
    ports.find(|&port| !is_bound("tcp", port) && !is_bound("tcp6", port)).expect("one of so many")
}

/// Whether a socket of a protocol, such as `udp`, has this port in the thread's network.
pub fn is_bound(protocol: &str, port: u16) -> bool {
    let all = match std::fs::read_to_string(format!("/proc/thread-self/net/{protocol}")) {
        Ok(all) => all,
        // A kernel without IPv6.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && protocol.ends_with('6') => return false,
        Err(e) => panic!("the kernel does not list sockets of {protocol}: {e}"),
    };
    all.lines().any(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&format!(":{port:04X}"))))
}

/// A folder of the test's own, removed at its end; kept when the test fails.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Under `FOREBAY_TEST_DIR`, or the system's temporary folder. It must lie on a file system with O_DIRECT.
    pub fn new(name: &str) -> TempDir {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let parent = std::env::var_os("FOREBAY_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("forebay-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap_or_else(|e| panic!("make folder {}: {e}", path.display()));
        TempDir(path)
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Path of this name in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A sparse file of this size in it.
    pub fn sparse(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.join(name);
        let file = File::create(&path).unwrap_or_else(|e| panic!("make {}: {e}", path.display()));
        file.set_len(bytes).unwrap_or_else(|e| panic!("size {}: {e}", path.display()));
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        remove_memory_tiers(&self.0);
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "kept for inspection: {}", self.0.display());
        } else if let Err(e) = std::fs::remove_dir_all(&self.0) {
            let _ = writeln!(std::io::stderr(), "could not remove {}: {e}", self.0.display());
        }
    }
}

/// Memory tiers lie in the daemon's tmpfs and outlive it; the records in the state folder say where.
fn remove_memory_tiers(folder: &Path) {
    let Ok(records) = std::fs::read_dir(folder.join("state/volumes")) else { return };
    for record in records.flatten() {
        let text = std::fs::read_to_string(record.path()).unwrap_or_default();
        for quoted in text.split('"').filter(|word| word.ends_with(".tier")) {
            if !Path::new(quoted).starts_with(folder) {
                // Gone already is as good.
                let _ = std::fs::remove_file(quoted);
            }
        }
    }
}

// --- foreign tools ---

/// How a tool ended, and what it said.
#[derive(Debug)]
pub struct Output {
    /// The status with which it ended.
    pub status: ExitStatus,
    /// What it has written to its standard output.
    pub stdout: String,
    /// What it has written to its standard error.
    pub stderr: String,
    command: String,
}

impl Output {
    /// Panics unless the tool ended with 0.
    #[track_caller]
    pub fn expect_success(self) -> Output {
        assert!(self.status.success(), "{}", self.describe());
        self
    }

    /// Panics if the tool ended with 0.
    #[track_caller]
    pub fn expect_failure(self) -> Output {
        assert!(!self.status.success(), "expected to fail: {}", self.describe());
        self
    }

    /// Its command, how it ended and what it said, for a test's message.
    pub fn describe(&self) -> String {
        format!("{}\n{}\nstdout: {}\nstderr: {}", self.command, self.status, self.stdout, self.stderr)
    }

    /// Both outputs together, for searching.
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// Where a tool is; the administrator's folders are searched too.
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cargo = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo/bin"));
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from).into_iter().chain(cargo);
    std::env::split_paths(&path).chain(more).map(|folder| folder.join(name)).find(|p| p.is_file())
}

/// Fails the test when a tool is missing that `make test` installs.
#[track_caller]
pub fn require_tool(name: &str) -> PathBuf {
    find_tool(name).unwrap_or_else(|| panic!("{name} is not installed: run scripts/setup.sh, which `make test` does"))
}

/// Runs a tool to its end, at most for `limit`; a tool that hangs is killed and fails the test.
#[track_caller]
pub fn run_tool<S: AsRef<OsStr>>(limit: Duration, name: &str, arguments: impl IntoIterator<Item = S>) -> Output {
    let mut command = Command::new(require_tool(name));
    command.args(arguments);
    run_command(limit, command)
}

/// Runs a script of bash with `set -eu -o pipefail`; `$1`, `$2` ... are the arguments.
#[track_caller]
pub fn run_script<S: AsRef<OsStr>>(limit: Duration, script: &str, arguments: impl IntoIterator<Item = S>) -> Output {
    let mut command = Command::new(require_tool("bash"));
    command.arg("-c").arg(format!("set -eu -o pipefail\n{script}")).arg("script").args(arguments);
    run_command(limit, command)
}

/// Runs a command to its end, at most for `limit`.
#[track_caller]
pub fn run_command(limit: Duration, mut command: Command) -> Output {
    let text = format!("{command:?}");
    let child = die_with_the_test(&mut command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own, so that a script that hangs is killed with its children.
        .process_group(0)
        .spawn();
    let mut child = child.unwrap_or_else(|e| panic!("start {text}: {e}"));
    let stdout = drain(child.stdout.take().expect("piped"));
    let stderr = drain(child.stderr.take().expect("piped"));
    let Some(status) = wait_within(&mut child, limit) else {
        kill_group(child.id());
        let _ = child.wait();
        let out = stdout.join().expect("reader");
        panic!("{text}\nnot ended after {limit:?}, killed\nstdout: {out}\nstderr: {}", stderr.join().expect("reader"));
    };
    let stdout = stdout.join().expect("reader");
    let stderr = stderr.join().expect("reader");
    Output { status, stdout, stderr, command: text }
}

fn drain(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn kill_group(pid: u32) {
    // SAFETY: kill takes two integers; the group is the one that this child leads.
    unsafe { libc::kill(-(pid as i32), libc::SIGKILL) };
}

/// Waits for the end of a process; none: it runs on.
pub fn wait_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let begun = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        if begun.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// The child is killed when the thread that started it ends, however it ends.
pub fn die_with_the_test(command: &mut Command) -> &mut Command {
    // SAFETY: prctl is async-signal-safe, and nothing else runs between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    }
}

// --- the daemon ---

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_owned()
}

fn build(planted: bool) -> PathBuf {
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace()).args(["build", "--quiet", "-j2", "--package", "forebay-node"]);
    if profile == "release" {
        command.arg("--release");
    }
    let mut target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    if planted {
        // A folder of its own: the honest and the planted binary must never be taken for each other.
        target = target.join("planted");
        command.args(["--features", "planted"]);
    }
    command.arg("--target-dir").arg(&target);
    run_command(Duration::from_secs(1200), command).expect_success();
    target.join(profile).join("forebay")
}

/// The binary under test: `FOREBAY_BIN`, or built from this workspace in the profile of the tests.
pub fn forebay() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os("FOREBAY_BIN").map_or_else(|| build(false), PathBuf::from))
}

/// The binary with planted faults: `FOREBAY_PLANTED_BIN`, or built with the feature `planted`.
pub fn forebay_planted() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os("FOREBAY_PLANTED_BIN").map_or_else(|| build(true), PathBuf::from))
}

/// One volume as `forebay serve` is told about it. All its files lie in one folder.
#[derive(Clone, Debug)]
pub struct Volume {
    folder: PathBuf,
    /// The backing as given to `--backing`, wrappers included.
    pub backing: String,
    /// `--size`, with `--create`; none for a backing that exists.
    pub size: Option<u64>,
    /// The medium of its tier.
    pub tier: Tier,
    /// `--tier-size` in bytes.
    pub tier_size: u64,
    /// The daemon's way to do I/O.
    pub io: IoMode,
    /// `--policy`: when a write is acknowledged.
    pub policy: &'static str,
    /// `--destage`: when the backing gets what was written.
    pub destage: &'static str,
    /// `--http`: where HTTP listens; `off` for nowhere.
    pub http: String,
    /// Further arguments of `forebay serve`.
    pub arguments: Vec<OsString>,
    /// `FOREBAY_PLANT` for the planted binary; none: the honest one.
    pub plant: Option<&'static str>,
    /// Further variables of the daemon's environment.
    pub environment: Vec<(String, OsString)>,
    /// Clients of a listener; then the volume is described by a config file.
    pub connections_max: Option<u32>,
    /// Words of a command that becomes the daemon; its program and arguments follow them.
    pub within: Vec<OsString>,
    /// Where its system calls pass.
    pub calls: Option<CallGate>,
}

impl Volume {
    /// A volume of `size` bytes on a new image `backing.img` in `folder`, state and socket beside it.
    pub fn new(folder: &TempDir, size: u64, tier: Tier, io: IoMode) -> Volume {
        Volume {
            folder: folder.path().to_owned(),
            backing: folder.join("backing.img").to_str().expect("a plain path").to_owned(),
            size: Some(size),
            tier,
            tier_size: 64 << 20,
            io,
            policy: "back",
            destage: "auto",
            http: "off".to_owned(),
            arguments: Vec::new(),
            plant: None,
            environment: Vec::new(),
            connections_max: None,
            within: Vec::new(),
            calls: None,
        }
    }

    /// The image behind the default backing.
    pub fn image(&self) -> PathBuf {
        self.folder.join("backing.img")
    }

    /// The journal beside the image.
    pub fn journal(&self) -> PathBuf {
        self.folder.join("backing.img.forebay-journal")
    }

    /// All logs are lost: what remains when the journal beside the image, if there is one, is replayed into a copy of it.
    #[track_caller]
    pub fn image_after_salvage(&self) -> PathBuf {
        wait_for_late_writes(&self.image());
        if !self.journal().exists() {
            return self.image();
        }
        wait_for_late_writes(&self.journal());
        let to = self.folder.join("salvaged.img");
        let _ = std::fs::remove_file(&to);
        let mut command = Command::new(forebay());
        command.arg("salvage").arg(self.journal()).arg("--to").arg(&to);
        run_command(Duration::from_secs(60), command).expect_success();
        to
    }

    /// All logs are lost: state and tier are removed, the loss is accepted, and a new daemon replays the journal into the
    /// image before it serves. Returns the image when that daemon has stopped.
    #[track_caller]
    pub fn image_after_accepted_loss(&self) -> PathBuf {
        wait_for_late_writes(&self.image());
        std::fs::remove_dir_all(self.state()).expect("there is a state folder");
        let mut again = self.clone();
        again.tier = Tier::Flash;
        again.backing = self.image().to_str().expect("a plain path").to_owned();
        again.arguments.push("--adopt-changed-backing".into());
        again.start().stop(Duration::from_secs(60));
        assert!(!self.journal().exists(), "a clean stop removes the journal");
        self.image()
    }

    /// The daemon's state folder, beside the image.
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// The socket where NBD clients connect.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("nbd.sock")
    }

    /// The socket where the daemon's API listens.
    pub fn api(&self) -> PathBuf {
        self.folder.join("api.sock")
    }

    /// URI of the volume for foreign NBD clients.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    /// The volume for our own NBD client.
    pub fn target(&self) -> Target {
        Target::unix(self.socket())
    }

    /// It is served in this control group from the daemon's first instruction on.
    pub fn in_control_group(&mut self, folder: &Path) {
        self.within = ["sh", "-c", r#"echo $$ >"$0/cgroup.procs" && exec "$@""#].map(OsString::from).to_vec();
        self.within.push(folder.into());
    }

    /// Status and body of `GET PATH`, by the API's socket.
    #[track_caller]
    pub fn get(&self, path: &str) -> (u16, String) {
        let mut stream = UnixStream::connect(self.api()).expect("the API listens");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("a request is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        (head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status"), body.to_owned())
    }

    /// The same of what is there and is JSON.
    #[track_caller]
    pub fn get_json(&self, path: &str) -> serde_json::Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|e| panic!("{path} is not JSON ({e}): {body}"))
    }

    /// The command that serves it.
    pub fn command(&self) -> Command {
        let program = if self.plant.is_some() { forebay_planted() } else { forebay() };
        let mut command = match &self.within[..] {
            [] => Command::new(program),
            [first, others @ ..] => {
                let mut command = Command::new(first);
                command.args(others).arg(program);
                command
            }
        };
        command.arg("serve");
        match self.connections_max {
            None => self.describe_by_arguments(&mut command),
            Some(connections_max) => {
                command.arg("--config").arg(self.describe_by_config(connections_max));
            }
        }
        command.arg("--io").arg(self.io.word());
        command.arg("--state").arg(self.state());
        command.arg("--nbd").arg(format!("unix:{}", self.socket().display()));
        command.arg("--api").arg(self.api());
        command.arg("--http").arg(&self.http);
        command.args(&self.arguments);
        // Nothing of the machine's own daemon may be met by accident.
        command.env("XDG_RUNTIME_DIR", &self.folder).env("XDG_STATE_HOME", self.state());
        if let Some(plant) = self.plant {
            command.env("FOREBAY_PLANT", plant);
        }
        command.envs(self.environment.iter().map(|(k, v)| (k, v)));
        if let Some(calls) = &self.calls {
            calls.install(&mut command);
        }
        command
    }

    fn describe_by_arguments(&self, command: &mut Command) {
        command.arg("--backing").arg(&self.backing);
        if let Some(size) = self.size {
            command.arg("--size").arg(size.to_string()).arg("--create");
        }
        command.arg("--policy").arg(self.policy).arg("--destage").arg(self.destage);
        match self.tier {
            Tier::Memory => command.args(["--tier", "memory", "--volatile"]),
            Tier::Flash => command.args(["--tier", "flash"]),
        };
        command.arg("--tier-size").arg(self.tier_size.to_string());
    }

    fn describe_by_config(&self, connections_max: u32) -> PathBuf {
        let (tier, volatile) = match self.tier {
            Tier::Memory => ("memory", true),
            Tier::Flash => ("flash", false),
        };
        let size = self.size.map(|size| format!("size = {size}\ncreate = true\n")).unwrap_or_default();
        let text = format!(
            "[listen]\nconnections_max = {connections_max}\n[[volume]]\nname = \"{VOLUME_NAME}\"\nbacking = \"{}\"\n{size}\
             policy = \"{}\"\ntier = \"{tier}\"\nvolatile = {volatile}\ntier_size = {}\n",
            self.backing, self.policy, self.tier_size
        );
        let path = self.folder.join("forebay.toml");
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("write {}: {e}", path.display()));
        path
    }

    /// Starts the daemon and waits until it serves; panics with its words when it does not.
    #[track_caller]
    pub fn start(&self) -> Daemon {
        self.try_start().unwrap_or_else(|refusal| panic!("the daemon does not serve: {refusal}"))
    }

    /// Starts the daemon; `Err` when it ends by itself instead of serving.
    pub fn try_start(&self) -> Result<Daemon, Refusal> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let log = self.folder.join(format!("daemon-{}.log", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let output = File::create(&log).expect("the test's folder takes a file");
        let mut command = self.command();
        die_with_the_test(&mut command)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output);
        // A socket left by a killed daemon must not be taken for this one's.
        let _ = std::fs::remove_file(self.socket());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("start {command:?}: {e}"));
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                let text = std::fs::read_to_string(&log).unwrap_or_default();
                return Err(Refusal { status, text });
            }
            if Client::connect(&self.target()).is_ok() {
                break;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{command:?}\nserves nothing after 30 s; its output: {}",
                std::fs::read_to_string(&log).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(3));
        }
        Ok(Daemon { child, log, volume: self.clone(), began: begun.elapsed() })
    }

    /// Runs the daemon to its own end (a refusal), and returns what it said.
    #[track_caller]
    pub fn expect_refusal(&self) -> Refusal {
        match self.try_start() {
            Err(refusal) => {
                assert_eq!(refusal.status.code(), Some(1), "a refusal ends with 1: {refusal}");
                refusal
            }
            Ok(daemon) => panic!("the daemon serves, it should have refused; it said: {}", daemon.output()),
        }
    }
}

/// A daemon that did not serve.
#[derive(Debug)]
pub struct Refusal {
    /// The status with which it ended.
    pub status: ExitStatus,
    /// What it has said of the reason.
    pub text: String,
}

impl Refusal {
    /// Panics unless the daemon's words contain all of these.
    #[track_caller]
    pub fn says(&self, words: &[&str]) {
        let text = self.text.to_lowercase();
        for word in words {
            assert!(text.contains(&word.to_lowercase()), "expected '{word}' in: {self}");
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.status, self.text)
    }
}

/// A running daemon; killed when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    log: PathBuf,
    volume: Volume,
    /// Time from the start of the process to the first answered handshake.
    pub began: Duration,
}

impl Daemon {
    /// What it has said so far.
    pub fn output(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Process id of the daemon.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes two integers; the child has not been waited for, so the id is still its own.
        let result = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(result, 0, "signal {signal}: {}", std::io::Error::last_os_error());
    }

    /// SIGKILL, and waits until the process is gone (its writes in flight may still land).
    pub fn kill9(mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("wait");
    }

    /// True while the process lives.
    pub fn alive(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    /// SIGTERM, and waits for the graceful end; panics when it fails or takes longer than `limit`.
    #[track_caller]
    pub fn stop(mut self, limit: Duration) -> String {
        self.signal(libc::SIGTERM);
        let Some(status) = wait_within(&mut self.child, limit) else {
            panic!("the daemon has not stopped {limit:?} after SIGTERM; it said: {}", self.output());
        };
        assert!(status.success(), "the daemon ended with {status}: {}", self.output());
        self.output()
    }

    /// SIGTERM, and waits for an end that is told as a failure; panics when it claims success.
    #[track_caller]
    pub fn stop_failing(mut self, limit: Duration) -> String {
        self.signal(libc::SIGTERM);
        let Some(status) = wait_within(&mut self.child, limit) else {
            panic!("the daemon has not stopped {limit:?} after SIGTERM; it said: {}", self.output());
        };
        assert_eq!(status.code(), Some(1), "the daemon ended with {status}: {}", self.output());
        self.output()
    }

    /// SIGTERM, and waits for its end, which may be told as a failure: then its words.
    #[track_caller]
    pub fn stop_either_way(mut self, limit: Duration) -> Result<String, String> {
        self.signal(libc::SIGTERM);
        match wait_within(&mut self.child, limit) {
            None => panic!("the daemon has not stopped {limit:?} after SIGTERM; it said: {}", self.output()),
            Some(status) if status.success() => Ok(self.output()),
            Some(status) => {
                assert_eq!(status.code(), Some(1), "the daemon ended with {status}: {}", self.output());
                Err(self.output())
            }
        }
    }

    /// Runs `forebay ...` against this daemon, for a minute at most.
    #[track_caller]
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        let mut command = Command::new(forebay());
        command.args(arguments).arg("--api").arg(self.volume.api());
        run_command(Duration::from_secs(60), command)
    }

    /// Runs `forebay volume ...` against it.
    #[track_caller]
    pub fn volume_command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Output {
        let arguments = arguments.into_iter().map(|argument| argument.as_ref().to_owned());
        self.command([OsString::from("volume")].into_iter().chain(arguments))
    }

    /// Writes everything to the backing; panics when that fails.
    #[track_caller]
    pub fn drain(&self) {
        self.volume_command(["drain", VOLUME_NAME]).expect_success();
    }

    /// What `forebay volume show --json` says of the volume.
    #[track_caller]
    pub fn show(&self) -> serde_json::Value {
        let output = self.volume_command(["show", VOLUME_NAME, "--json"]).expect_success();
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {}", output.stdout))
    }

    /// Panics when the daemon has died or said that it panicked.
    #[track_caller]
    pub fn assert_healthy(&mut self) {
        let output = self.output();
        assert!(self.alive(), "the daemon has died: {output}");
        assert!(!output.contains("panicked at"), "the daemon panicked: {output}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "the daemon's output ({}):\n{}", self.log.display(), self.output());
        }
        // Both fail only for a child that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Name of the one volume that `forebay serve --backing` makes.
pub const VOLUME_NAME: &str = "vm1";

/// A server that is not ours: nbdkit in the foreground on a unix socket, killed when dropped.
#[derive(Debug)]
pub struct Nbdkit {
    child: Child,
    socket: PathBuf,
}

impl Nbdkit {
    /// `arguments` name filters, plugin and parameters.
    #[track_caller]
    pub fn start<S: AsRef<OsStr>>(folder: &TempDir, arguments: impl IntoIterator<Item = S>) -> Nbdkit {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let socket = folder.join(&format!("nbdkit-{}.sock", NUMBER.fetch_add(1, Ordering::Relaxed)));
        Nbdkit::start_at(&socket, arguments)
    }

    /// On a socket of the caller's choice, which one that was killed may have left behind.
    #[track_caller]
    pub fn start_at<S: AsRef<OsStr>>(socket: &Path, arguments: impl IntoIterator<Item = S>) -> Nbdkit {
        let socket = socket.to_owned();
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new(require_tool("nbdkit"));
        command.args(["--foreground", "--unix"]).arg(&socket).args(arguments);
        let child = die_with_the_test(&mut command).stdin(Stdio::null()).spawn();
        let mut server = Nbdkit { child: child.unwrap_or_else(|e| panic!("start {command:?}: {e}")), socket };
        let begun = Instant::now();
        while Client::connect(&server.target()).is_err() {
            let ended = server.child.try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "{command:?} ended: {ended:?}");
            assert!(begun.elapsed() < Duration::from_secs(60), "{command:?} serves nothing after a minute");
            std::thread::sleep(Duration::from_millis(3));
        }
        server
    }

    /// The export for our own NBD client.
    pub fn target(&self) -> Target {
        Target::unix(&self.socket)
    }

    /// URI of the export for foreign NBD clients.
    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// It has ended by itself: nbdkit's delay filter may abort it when a client dies while it sleeps.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// Sends a signal: SIGSTOP and SIGCONT make it hang and go on.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill takes two integers; the child has not been waited for, so the id is still its own.
        let result = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(result, 0, "signal {signal}: {}", std::io::Error::last_os_error());
    }

    /// Ends the server by SIGKILL, and waits until it is gone.
    pub fn kill9(mut self) {
        self.child.kill().expect("SIGKILL");
        self.child.wait().expect("wait");
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        // Both fail only for a child that has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
