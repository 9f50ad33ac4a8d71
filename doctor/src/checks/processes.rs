//! The processes of the data path: forebay's own daemon, and servers that are known by name.

use forebay_host::system::{Seen, System};
use forebay_host::topology::{Cpu, numbers};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

/// Bytes of a command line that are read; its owner may make it as large as memory.
pub const COMMAND_LINE_MAX: usize = 1 << 20;

/// Servers of files and blocks, by the beginning of their names in `/proc/PID/comm`.
const SERVERS: &[&str] = &[
    "forebay",
    "smbd",
    "ksmbd",
    "nfsd",
    "nbdkit",
    "nbd-server",
    "qemu-system",
    "tgtd",
    "iscsi_ttx",
    "iscsi_trx",
    "nvmet",
];

/// All processes of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// The name that its processes have in common.
    pub name: String,
    /// Numbers of its processes.
    pub pids: Vec<u32>,
    /// Every thread of them.
    pub threads: Vec<Thread>,
    /// Where the first process may run.
    pub allowed: Vec<Cpu>,
    /// The service of systemd that it belongs to.
    pub unit: Option<String>,
    /// Threads of the kernel.
    pub kernel: bool,
}

/// One thread of a server, as it was at the look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Where it ran last.
    pub cpu: Cpu,
    /// Time on CPUs since it began, in hundredths of a second (USER_HZ).
    pub ticks: u64,
    /// It runs, or waits for a CPU, now.
    pub running: bool,
}

impl Server {
    /// Time on CPUs of all its threads.
    pub fn ticks(&self) -> u64 {
        self.threads.iter().map(|thread| thread.ticks).sum()
    }
}

/// Those that run, by name. Hidden: other users' processes are.
pub fn servers(system: &System) -> Seen<Vec<Server>> {
    let names = match system.list("/proc") {
        Seen::Is(names) => names,
        Seen::Absent => return Seen::Absent,
        Seen::Hidden(why) => return Seen::Hidden(why),
    };
    let pids: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    // A mount of /proc with hidepid shows the own processes only; somebody else's always has number 1.
    if system.is_live() && !pids.contains(&1) {
        return Seen::Hidden("/proc/1: not shown (hidepid)".to_owned());
    }
    let mut servers: BTreeMap<String, Server> = BTreeMap::new();
    for pid in pids {
        let name = match system.text(&format!("/proc/{pid}/comm")) {
            Seen::Is(name) => name,
            // It has ended.
            Seen::Absent => continue,
            Seen::Hidden(why) => return Seen::Hidden(why),
        };
        if SERVERS.iter().any(|server| name.starts_with(server)) && serves(system, pid, &name) {
            let server = servers.entry(name.clone()).or_insert_with(|| first_of(system, pid, name));
            server.pids.push(pid);
            server.threads.extend(threads(system, pid));
        }
    }
    Seen::Is(servers.into_values().collect())
}

/// Where the daemon's thread with the links may run, the first of its data path: the file that says so, and the CPUs.
pub fn links_thread(system: &System) -> Option<(String, Vec<Cpu>)> {
    let names = system.list("/proc").known()?;
    let is_daemon = |pid: &u32| {
        let comm = system.text(&format!("/proc/{pid}/comm")).known();
        comm.is_some_and(|comm| comm == "forebay" && serves(system, *pid, &comm))
    };
    let pid = names.iter().filter_map(|name| name.parse().ok()).find(is_daemon)?;
    let threads = system.list(&format!("/proc/{pid}/task")).known()?;
    let first = forebay_api::config::shard_thread_name(0);
    let is_first =
        |tid: &&String| system.text(&format!("/proc/{pid}/task/{tid}/comm")).known().as_ref() == Some(&first);
    let file = format!("/proc/{pid}/task/{}/status", threads.iter().find(is_first)?);
    let status = system.text(&file).known()?;
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some((file, numbers(cpus.trim())))
}

/// Whether a program of this name runs, as far as it is shown.
pub fn is_running(system: &System, name: &str) -> bool {
    let names = system.list("/proc").known().unwrap_or_default();
    let mut pids = names.iter().filter(|name| name.parse::<u32>().is_ok());
    pids.any(|pid| system.text(&format!("/proc/{pid}/comm")).known().as_deref() == Some(name))
}

/// The words of a process, each with a zero at its end; of a line that is longer, one byte more than COMMAND_LINE_MAX.
pub fn command_line(system: &System, pid: u32) -> Seen<Vec<u8>> {
    let path = format!("/proc/{pid}/cmdline");
    let mut line = Vec::new();
    if system.is_live()
        && let Ok(file) = File::open(&path)
        && file.take(COMMAND_LINE_MAX as u64 + 1).read_to_end(&mut line).is_ok()
    {
        // A record has no more than the program and its first word.
        let first: Vec<u8> = line.split_inclusive(|byte| *byte == 0).take(2).flatten().copied().collect();
        system.told(&path, &String::from_utf8_lossy(&first));
        return Seen::Is(line);
    }
    system.bytes(&path)
}

/// The command line of the same binary, this doctor among them, serves nothing.
fn serves(system: &System, pid: u32, name: &str) -> bool {
    let command = command_line(system, pid).known().unwrap_or_default();
    name != "forebay" || command.split(|byte| *byte == 0).nth(1) == Some(b"serve")
}

fn first_of(system: &System, pid: u32, name: String) -> Server {
    let status = system.text(&format!("/proc/{pid}/status")).known().unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(numbers);
    let group = system.text(&format!("/proc/{pid}/cgroup")).known().unwrap_or_default();
    let unit = group.lines().flat_map(|line| line.split('/')).find(|part| part.ends_with(".service"));
    let command = command_line(system, pid).known();
    Server {
        name,
        allowed: allowed.unwrap_or_default(),
        unit: unit.map(str::to_owned),
        // A thread of the kernel has no command line.
        kernel: command.is_some_and(|command| command.is_empty()),
        ..Server::default()
    }
}

fn threads(system: &System, pid: u32) -> Vec<Thread> {
    let numbers = system.list(&format!("/proc/{pid}/task")).known().unwrap_or_default();
    let stat = |tid: &String| system.text(&format!("/proc/{pid}/task/{tid}/stat")).known();
    numbers.iter().filter_map(stat).filter_map(|stat| thread(&stat)).collect()
}

/// Of a line of `stat`; the name in it may hold anything, so what follows its last bracket counts.
fn thread(stat: &str) -> Option<Thread> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // Fields 3, 14, 15 and 39 of proc(5).
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Thread {
        cpu: u32::try_from(number(39)?).ok()?,
        ticks: number(14)? + number(15)?,
        running: fields.first() == Some(&"R"),
    })
}

/// A process in a tree made for tests: its threads' last CPUs and ticks.
#[cfg(test)]
pub fn with_process(
    tree: super::super::fixture::Tree,
    pid: u32,
    name: &str,
    command: &str,
    threads: &[(Cpu, u64)],
) -> super::super::fixture::Tree {
    let tree = tree.file(&format!("/proc/{pid}/comm"), name).file(&format!("/proc/{pid}/cmdline"), command);
    threads.iter().zip(pid..).fold(tree, |tree, ((cpu, ticks), tid)| {
        let rest = "0 ".repeat(23);
        let stat = format!("{tid} ({name}) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 {rest}{cpu} 0 0\n");
        tree.file(&format!("/proc/{pid}/task/{tid}/stat"), &stat)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn servers_are_gathered_by_name_and_command_lines_are_left_out() {
        let tree = with_process(Tree::new(), 7, "smbd", "/usr/sbin/smbd\0-F", &[(1, 100)]);
        let tree = with_process(tree, 9, "smbd", "/usr/sbin/smbd\0-F", &[(3, 50), (2, 5)]);
        let tree = with_process(tree, 11, "forebay", "forebay\0doctor", &[(0, 1)]);
        let tree = with_process(tree, 13, "bash", "bash", &[(0, 1)])
            .file("/proc/7/status", "Name:\tsmbd\nCpus_allowed_list:\t0-3\n")
            .file("/proc/7/cgroup", "0::/system.slice/smbd.service\n");
        let servers = servers(&tree.system()).known().expect("shown");
        assert_eq!(servers.len(), 1);
        assert_eq!((servers[0].name.as_str(), &servers[0].pids[..], servers[0].ticks()), ("smbd", &[7, 9][..], 155));
        assert_eq!(servers[0].allowed, [0, 1, 2, 3]);
        assert_eq!(servers[0].unit.as_deref(), Some("smbd.service"));
        assert!(!servers[0].kernel);
    }

    #[test]
    fn a_name_with_a_bracket_does_not_shift_the_fields() {
        let stat = format!("5 (a) b)) S 1 1 1 0 -1 0 0 0 0 0 30 12 {}17 0 0", "0 ".repeat(23));
        assert_eq!(thread(&stat), Some(Thread { cpu: 17, ticks: 42, running: false }));
        assert_eq!(thread("5 (short) S 1"), None);
    }

    #[test]
    fn a_process_that_is_hidden_makes_the_list_unknown() {
        assert!(
            matches!(servers(&Tree::new().hidden("/proc/7/comm").system()), Seen::Hidden(why) if why.contains("/proc/7/comm"))
        );
    }
}
