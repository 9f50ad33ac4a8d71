//! Hosts that are none: network namespaces with cables between them, on which links are slow, cut or silent, and in which
//! processes are killed, stopped and continued.
//!
//! ```text
//!   host 1 [link0 link1]      host 2 [link0 link1]      host 3 ...
//!             |     |                  |     |
//!   switch  bridge0-+------------------+     |      10.77.0.HOST/24
//!                 bridge1--------------------+      10.77.1.HOST/24
//! ```
//!
//! Invariants:
//! - Namespaces have no name: a descriptor of the test's process holds each, and the kernel removes them with all that is in
//!   them when that process ends, however it ends. Tests side by side cannot meet.
//! - A fault is undone by saying the opposite, and is never stacked: [`Network`] knows the faults of now, and sets them whole.
//! - Every tool's failure fails the test: a partition that was not made would make a test pass.

use crate::harness::{die_with_the_test, require_tool, run_command, wait_within};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a link that is choked still carries: an empty TCP segment, and a sign of life between nodes.
const SMALL_PACKET_BYTES: u32 = 400;
/// A tool of the network takes milliseconds.
const TOOL_TIME_MAX: Duration = Duration::from_secs(20);

/// A network namespace, as long as somebody holds it.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<File>);

impl Namespace {
    /// A new one, with its loopback up. `Err`: what is missing here.
    fn new() -> Result<Namespace, String> {
        let made = std::thread::spawn(|| {
            // SAFETY: it takes a number, and changes the network of this thread alone, which ends at once.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            File::open("/proc/thread-self/ns/net")
        });
        let made = made.join().expect("the thread does not panic");
        let file = made.map_err(|e| format!("cannot make a network namespace (needs root, or CAP_SYS_ADMIN): {e}"))?;
        let namespace = Namespace(Arc::new(file));
        namespace.tool("ip", "link set lo up")?;
        Ok(namespace)
    }

    /// A path to it for `ip link ... netns PATH`.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// A command that will run in it.
    #[track_caller]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(require_tool(program));
        self.place(&mut command);
        command
    }

    /// Makes a command run in it.
    pub fn place(&self, command: &mut Command) {
        let held = self.0.clone();
        // SAFETY: setns is a plain system call on a descriptor that the closure keeps open; nothing else runs between fork and
        // exec.
        unsafe {
            command.pre_exec(move || match libc::setns(held.as_raw_fd(), libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            })
        };
    }

    /// Runs a tool with these words, in it. `Err`: its own words.
    fn tool(&self, program: &str, words: &str) -> Result<String, String> {
        let mut command = self.command(program);
        command.args(words.split_whitespace());
        let output = run_command(TOOL_TIME_MAX, command);
        if output.status.success() { Ok(output.stdout) } else { Err(output.describe()) }
    }

    /// Runs code in a thread of its own there: the sockets that it makes stay in this network.
    pub fn run<T: Send>(&self, code: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: a system call on an open descriptor, which changes the network of this thread alone.
                let entered = unsafe { libc::setns(self.0.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(entered, 0, "enter a network namespace: {}", io::Error::last_os_error());
                code()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// What a link lets through, in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Megabits a second; none: what the machine can do.
    pub rate_mbit: Option<u32>,
    /// Milliseconds on the way; needs the kernel's netem.
    pub delay_ms: Option<u32>,
}

/// A host of the network.
#[derive(Clone, Debug)]
pub struct Host {
    number: u8,
    links: u8,
    /// The last part of its address on each link.
    lasts: Vec<u8>,
    namespace: Namespace,
}

impl Host {
    /// Its address on a link.
    #[track_caller]
    pub fn address(&self, link: u8) -> String {
        assert!(link < self.links, "link {link} of {}", self.links);
        format!("10.77.{link}.{}", self.lasts[usize::from(link)])
    }

    /// The network namespace that its processes run in.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Starts a process on this host.
    #[track_caller]
    pub fn spawn(&self, mut command: Command) -> Process {
        self.namespace.place(&mut command);
        Process::spawn(command)
    }
}

/// A process of the test, killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    text: String,
}

impl Process {
    /// Starts it; it dies with the test.
    #[track_caller]
    pub fn spawn(mut command: Command) -> Process {
        let text = format!("{command:?}");
        let child = die_with_the_test(&mut command).stdin(Stdio::null()).spawn();
        Process { child: child.unwrap_or_else(|e| panic!("start {text}: {e}")), text }
    }

    /// Its process id, as the test itself counts them.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs, or is stopped.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    /// SIGKILL, and it is gone when this returns.
    #[track_caller]
    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        assert!(wait_within(&mut self.child, Duration::from_secs(20)).is_some(), "{} outlives SIGKILL", self.text);
    }

    /// It stands still, in the middle of whatever it does: SIGSTOP. The last of its threads does when this returns: until a
    /// thread has taken notice it may still answer somebody.
    #[track_caller]
    pub fn stop(&mut self) {
        self.signal(libc::SIGSTOP);
        let mut seen = MaybeUninit::<libc::siginfo_t>::zeroed();
        let events = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        // SAFETY: the number is that of a child that has not been waited for, and there is room for what is said of it.
        let waited = unsafe { libc::waitid(libc::P_PID, self.child.id(), seen.as_mut_ptr(), events) };
        assert_eq!(waited, 0, "wait for {} to stand still: {}", self.text, io::Error::last_os_error());
        // SAFETY: all zeros is one, and waitid has filled it.
        let code = unsafe { seen.assume_init() }.si_code;
        assert_eq!(code, libc::CLD_STOPPED, "{} has ended instead of standing still", self.text);
    }

    /// Lets a stopped process go on, by SIGCONT.
    #[track_caller]
    pub fn resume(&mut self) {
        self.signal(libc::SIGCONT);
    }

    #[track_caller]
    fn signal(&mut self, signal: i32) {
        assert!(self.is_alive(), "{} has ended by itself", self.text);
        // SAFETY: kill takes two integers; the number is that of a child that has not been waited for.
        let sent = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(sent, 0, "signal {signal} to {}: {}", self.text, io::Error::last_os_error());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hosts and the cables between them.
#[derive(Debug)]
pub struct Network {
    switch: Namespace,
    hosts: Vec<Host>,
    /// From whom nothing arrives at whom: indices of hosts, and the link.
    silent: BTreeSet<(usize, usize, u8)>,
    /// From whom only small packets arrive at whom.
    choked: BTreeSet<(usize, usize)>,
    /// Hosts to which nothing arrives that a TCP server on this port says, wherever it is.
    deaf_to: BTreeSet<(usize, u16)>,
}

impl Network {
    /// So many hosts, each with so many links. `Err`: what is missing here.
    pub fn new(hosts: u8, links: u8) -> Result<Network, String> {
        assert!(hosts > 0 && links > 0, "a network has hosts and links");
        let switch = Namespace::new()?;
        for link in 0..links {
            switch.tool("ip", &format!("link add bridge{link} type bridge"))?;
            switch.tool("ip", &format!("link set bridge{link} up"))?;
        }
        let (silent, choked, deaf_to) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut network = Network { switch, hosts: Vec::new(), silent, choked, deaf_to };
        for number in 1..=hosts {
            let lasts = vec![number; usize::from(links)];
            let host = Host { number, links, lasts, namespace: Namespace::new()? };
            for link in 0..links {
                network.plug_new_cable(&host, link)?;
            }
            network.hosts.push(host);
        }
        network.wait_for_ports();
        Ok(network)
    }

    /// The kernel takes up to a second to notice a carrier, and until then the switch passes nothing on.
    #[track_caller]
    fn wait_for_ports(&self) {
        let begun = Instant::now();
        loop {
            let shown = self.switch.tool("ip", "-details -oneline link show").unwrap_or_else(|e| panic!("{e}"));
            // A port whose cable is pulled is not set up.
            let flags = |line: &str| line.split(['<', '>']).nth(1).map(str::to_owned).unwrap_or_default();
            let is_up = |line: &&str| line.contains("bridge_slave") && flags(line).split(',').any(|flag| flag == "UP");
            let works = |line: &str| line.contains("bridge_slave state forwarding") && line.contains("LOWER_UP");
            if shown.lines().filter(is_up).all(works) {
                return;
            }
            assert!(begun.elapsed() < TOOL_TIME_MAX, "the switch does not begin to work:\n{shown}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn plug_new_cable(&self, host: &Host, link: u8) -> Result<(), String> {
        let port = port(host.number, link);
        let there = host.namespace.path();
        self.switch.tool("ip", &format!("link add {port} type veth peer name link{link} netns {there}"))?;
        self.switch.tool("ip", &format!("link set {port} master bridge{link} up"))?;
        host.namespace.tool("ip", &format!("address add {}/24 dev link{link}", host.address(link)))?;
        host.namespace.tool("ip", &format!("link set link{link} up"))?;
        Ok(())
    }

    /// All hosts, the first one's number being 1.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// One more host, which has as many links as the others. `Err`: what is missing here.
    pub fn add_host(&mut self) -> Result<Host, String> {
        let last = self.hosts.last().expect("a network has hosts");
        let (number, links) = (last.number + 1, last.links);
        let lasts = vec![number; usize::from(links)];
        let host = Host { number, links, lasts, namespace: Namespace::new()? };
        for link in 0..links {
            self.plug_new_cable(&host, link)?;
        }
        self.hosts.push(host.clone());
        self.wait_for_ports();
        Ok(host)
    }

    /// Where the cables of all hosts end: for a machine that is emulated, and plugged in by [`Network::plug_tap`].
    pub fn switch(&self) -> &Namespace {
        &self.switch
    }

    /// A tap device of this name on a link's switch, for an emulated machine with an address of its own. `Err`: what is missing here.
    pub fn plug_tap(&self, name: &str, link: u8) -> Result<(), String> {
        self.switch.tool("ip", &format!("tuntap add dev {name} mode tap"))?;
        self.switch.tool("ip", &format!("link set {name} master bridge{link} up"))?;
        Ok(())
    }

    /// The host at this place, from 0 on.
    pub fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }

    /// Makes a host's link slower, both ways. `Err`: what this kernel has not.
    pub fn shape(&self, host: usize, link: u8, shape: Shape) -> Result<(), String> {
        let host = &self.hosts[host];
        let ends = [(&self.switch, port(host.number, link)), (&host.namespace, format!("link{link}"))];
        for (namespace, device) in ends {
            // None there yet is as good.
            let _ = namespace.tool("tc", &format!("qdisc del dev {device} root"));
            let queue = match shape {
                Shape { rate_mbit: None, delay_ms: None } => continue,
                // A burst of 2 ms, and a queue of 50 ms as a switch has.
                Shape { rate_mbit: Some(rate), delay_ms: None } => {
                    format!("tbf rate {rate}mbit burst {} latency 50ms", (rate * 250).max(4000))
                }
                Shape { rate_mbit: None, delay_ms: Some(delay) } => format!("netem delay {delay}ms limit 100000"),
                Shape { rate_mbit: Some(rate), delay_ms: Some(delay) } => {
                    format!("netem delay {delay}ms rate {rate}mbit limit 100000")
                }
            };
            namespace.tool("tc", &format!("qdisc add dev {device} root {queue}"))?;
        }
        Ok(())
    }

    /// A host's address on a link ends with this from now on. `beside`: its kernel has the former one as well.
    #[track_caller]
    pub fn readdress(&mut self, host: usize, link: u8, last: u8, beside: bool) {
        let host = &mut self.hosts[host];
        let former = host.address(link);
        host.lasts[usize::from(link)] = last;
        let words = format!("address add {}/24 dev link{link}", host.address(link));
        host.namespace.tool("ip", &words).unwrap_or_else(|e| panic!("{e}"));
        if !beside {
            // With the first one of a subnet the others go, unless they are said to be promoted.
            let both = [format!("address del {former}/24 dev link{link}"), words.replace(" add ", " replace ")];
            both.iter().for_each(|words| drop(host.namespace.tool("ip", words).unwrap_or_else(|e| panic!("{e}"))));
        }
    }

    /// Pulls a host's cable: its link loses the carrier.
    #[track_caller]
    pub fn unplug(&self, host: usize, link: u8) {
        self.set_port(host, link, "down");
    }

    /// Puts the cable back; the link works when this returns.
    #[track_caller]
    pub fn plug(&self, host: usize, link: u8) {
        self.set_port(host, link, "up");
        self.wait_for_ports();
    }

    #[track_caller]
    fn set_port(&self, host: usize, link: u8, state: &str) {
        let port = port(self.hosts[host].number, link);
        self.switch.tool("ip", &format!("link set {port} {state}")).unwrap_or_else(|e| panic!("{e}"));
    }

    /// From now on nothing that `from` sends arrives at `to`, on any link; the other way goes on.
    #[track_caller]
    pub fn silence(&mut self, from: usize, to: usize) {
        for link in 0..self.hosts[to].links {
            self.silence_link(from, to, link);
        }
    }

    /// From now on nothing of one host arrives at the other by this link.
    #[track_caller]
    pub fn silence_link(&mut self, from: usize, to: usize, link: u8) {
        assert_ne!(from, to, "a host hears itself");
        self.silent.insert((from, to, link));
        self.set_silence(to);
    }

    /// Nothing passes between a host and all others, either way; clients of it on the host itself go on.
    #[track_caller]
    pub fn isolate(&mut self, host: usize) {
        for other in (0..self.hosts.len()).filter(|other| *other != host) {
            self.silence(host, other);
            self.silence(other, host);
        }
    }

    /// Of what a host sends to the others only small packets arrive, as where a router drops what is too long for it and does not say
    /// so: connections stay, signs of life pass, and whoever has more to say is not heard.
    #[track_caller]
    pub fn choke(&mut self, from: usize) {
        for to in (0..self.hosts.len()).filter(|to| *to != from) {
            self.choked.insert((from, to));
            self.set_silence(to);
        }
    }

    /// Nothing arrives at a host that a server on this TCP port says, the host's own included; all else passes.
    #[track_caller]
    pub fn hide_port(&mut self, host: usize, port: u16) {
        self.deaf_to.insert((host, port));
        self.set_silence(host);
    }

    /// Everything passes again between all hosts.
    #[track_caller]
    pub fn heal(&mut self) {
        let silent = self.silent.iter().map(|(_, to, _)| *to);
        let choked = self.choked.iter().map(|(_, to)| *to);
        let deaf: BTreeSet<usize> = silent.chain(choked).chain(self.deaf_to.iter().map(|(host, _)| *host)).collect();
        self.silent.clear();
        self.choked.clear();
        self.deaf_to.clear();
        for to in deaf {
            self.set_silence(to);
        }
    }

    /// The rules of one host, replaced as a whole: what is in force is what is known here.
    #[track_caller]
    fn set_silence(&self, to: usize) {
        let drops = self.silent.iter().filter(|(_, deaf, _)| *deaf == to).map(|(from, _, link)| {
            format!("    iifname \"link{link}\" ip saddr {} drop\n", self.hosts[*from].address(*link))
        });
        let choked = self.choked.iter().filter(|(_, deaf)| *deaf == to).flat_map(|(from, _)| {
            let from = &self.hosts[*from];
            let address = |link| from.address(link);
            (0..from.links)
                .map(address)
                .map(|address| format!("    ip saddr {address} meta length > {SMALL_PACKET_BYTES} drop\n"))
        });
        let drops = drops.chain(choked);
        let ports = self.deaf_to.iter().filter(|(deaf, _)| *deaf == to);
        let drops = drops.chain(ports.map(|(_, port)| format!("    tcp sport {port} drop\n")));
        let rules = format!(
            "table inet silence\ndelete table inet silence\ntable inet silence {{\n  chain input {{\n    \
             type filter hook input priority 0;\n{}  }}\n}}\n",
            drops.collect::<String>()
        );
        let mut command = self.hosts[to].namespace.command("nft");
        command.args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("start nft: {e}"));
        child.stdin.take().expect("piped").write_all(rules.as_bytes()).expect("nft reads its rules");
        let output = child.wait_with_output().expect("a child can be waited for");
        assert!(output.status.success(), "nft: {}\n{rules}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Name of the switch's end of a cable.
fn port(host: u8, link: u8) -> String {
    format!("h{host}l{link}")
}
