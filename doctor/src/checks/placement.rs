//! Checks 12 to 14: servers, their memory and the page cache, in the socket of the interface or not.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::numa::{data_ports, is_far, node_shown, socket_of, trust};
use super::processes::{Server, servers};
use crate::parts::sockets;
use crate::show;
use forebay_host::system::Seen;
use forebay_host::topology::{Cpu, NodeNumber, Topology};
use std::collections::BTreeMap;

/// Share of a server's work, or of its memory, in a far socket from which it is told: below, moving it gains less than the
/// spread of a measurement.
const FAR_SHARE: f64 = 0.20;
/// Less work than ten seconds of a CPU is none of a data path's (in USER_HZ ticks).
const TICKS_TO_JUDGE: u64 = 1000;
/// Less memory does not hold data.
const BUFFERS_TO_JUDGE: u64 = 256 << 20;
/// Pages that had to be taken from another node, in bytes a second, from which it is told: a start of a program causes less.
const ELSEWHERE_RATE: f64 = 10e6;
/// Page cache below this share of the memory holds no data worth a placement.
const CACHE_TO_JUDGE: f64 = 0.01;

/// The socket where all fast interfaces are, with one of them; None: they are in several, or there is none.
struct Home<'a> {
    socket: u32,
    node: NodeNumber,
    port: &'a str,
    pci: &'a str,
}

fn home(topology: &Topology) -> Option<Home<'_>> {
    if sockets(topology).len() < 2 {
        return None;
    }
    let ports = data_ports(topology);
    let homes: Option<Vec<Home>> = ports
        .iter()
        .map(|port| {
            let node = port.node?;
            Some(Home { socket: socket_of(topology, node)?, node, port: port.name, pci: port.pci })
        })
        .collect();
    let homes = homes?;
    let one = homes.windows(2).all(|pair| pair[0].socket == pair[1].socket);
    homes.into_iter().next().filter(|_| one)
}

impl Home<'_> {
    fn cpus(&self, topology: &Topology) -> Vec<Cpu> {
        topology.cpus.iter().filter(|(_, place)| place.package == self.socket).map(|(cpu, _)| *cpu).collect()
    }

    /// Whether a node's memory hangs at another socket. That of nodes without CPUs is at none.
    fn is_far(&self, topology: &Topology, node: NodeNumber) -> bool {
        socket_of(topology, node).is_some_and(|socket| socket != self.socket)
    }

    fn shown(&self, topology: &Topology) -> Evidence {
        node_shown(topology, self.pci, self.node)
    }
}

// Check 12. Reads where the threads of known servers ran last, and their time. Rule: more than FAR_SHARE of a server's
// time belongs to threads in another socket than the interfaces.
pub fn processes(host: &Host) -> Verdict {
    let Some(home) = home(&host.topology) else { return Verdict::NotHere };
    let servers = match servers(&host.system) {
        Seen::Is(servers) => servers,
        Seen::Absent => return Verdict::NotHere,
        Seen::Hidden(what) => return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
    };
    let (mut found, mut fine) = (Vec::new(), None::<(f64, String)>);
    for server in servers.iter().filter(|server| server.ticks() >= TICKS_TO_JUDGE) {
        let far = server.threads.iter().filter(|thread| is_far(&host.topology, thread.cpu, home.socket));
        let share = far.map(|thread| thread.ticks).sum::<u64>() as f64 / server.ticks() as f64;
        if share > FAR_SHARE {
            found.push(far_server(host, &home, server, share));
        } else if fine.as_ref().is_none_or(|(most, _)| share > *most) {
            fine = Some((share, server.name.clone()));
        }
    }
    match (found.is_empty(), fine) {
        (false, _) => Verdict::Found(found),
        (true, Some((share, server))) => Verdict::Fine(
            Sentence::new("numa.process-near")
                .with("server", server)
                .with("share", show::percent(share))
                .with("port", home.port),
        ),
        (true, None) => Verdict::NotHere,
    }
}

fn far_server(host: &Host, home: &Home, server: &Server, share: f64) -> Finding {
    let near = show::cpu_list(home.cpus(&host.topology));
    let kept_away =
        !server.allowed.is_empty() && server.allowed.iter().all(|cpu| is_far(&host.topology, *cpu, home.socket));
    let busiest = server.threads.iter().max_by_key(|thread| thread.ticks).map_or(0, |thread| thread.cpu);
    let pid = server.pids[0];
    let mut evidence = vec![
        Evidence::new(format!("/proc/{pid}/task/*/stat"), format!("processor {busiest}")),
        home.shown(&host.topology),
    ];
    if kept_away {
        let allowed = show::cpu_list(server.allowed.iter().copied());
        evidence.push(Evidence::new(format!("/proc/{pid}/status"), format!("Cpus_allowed_list: {allowed}")));
    }
    let remedy = match (&server.unit, server.kernel) {
        (_, true) if server.name == "nfsd" => Remedy::Explain {
            what: Sentence::new("numa.nfsd-remedy"),
            command: Some("echo pernode > /sys/module/sunrpc/parameters/pool_mode".to_owned()),
        },
        (Some(unit), false) => Remedy::Explain {
            what: Sentence::new("numa.process-remedy").with("cpus", &near).with("server", &server.name),
            command: Some(format!("systemctl set-property --runtime {unit} AllowedCPUs={near}")),
        },
        (None, _) | (_, true) => Remedy::Explain {
            what: Sentence::new("numa.process-remedy").with("cpus", &near).with("server", &server.name),
            command: Some(format!("taskset -acp {near} {pid}")),
        },
    };
    Finding {
        id: format!("process-far/{}", server.name),
        check: 12,
        severity: if kept_away { Severity::Warning } else { Severity::Note },
        confidence: trust(host, if kept_away { Confidence::Certain } else { Confidence::Likely }),
        text: Sentence::new(if kept_away { "numa.process-kept-away" } else { "numa.process-far" })
            .with("server", &server.name)
            .with("pid", pid)
            .with("share", show::percent(share))
            .with("port", home.port)
            .with("node", home.node),
        evidence,
        number: Some(Number { is: share, could_be: 0.0, unit: "1".to_owned() }),
        remedies: vec![remedy],
    }
}

// Check 13. Reads where the daemon's memory lies, and the nodes' counters. Rules: more than FAR_SHARE of it is in another
// socket than the interfaces; a node gives pages that were meant for a full one.
pub fn buffers(host: &Host) -> Verdict {
    if sockets(&host.topology).len() < 2 {
        return Verdict::NotHere;
    }
    let mut found = elsewhere(host);
    let (mut hidden, mut near) = (None, None);
    if let (Some(home), Seen::Is(servers)) = (home(&host.topology), servers(&host.system)) {
        for pid in servers.iter().filter(|server| server.name == "forebay").flat_map(|server| &server.pids) {
            let path = format!("/proc/{pid}/numa_maps");
            let maps = match host.system.text(&path) {
                Seen::Is(maps) => maps,
                Seen::Absent => continue,
                Seen::Hidden(why) => {
                    hidden = Some(why);
                    continue;
                }
            };
            let nodes = memory_of(&maps);
            let all: u64 = nodes.values().sum();
            let far: u64 = nodes.iter().filter(|(node, _)| home.is_far(&host.topology, **node)).map(|(_, b)| b).sum();
            let share = far as f64 / all.max(1) as f64;
            if all < BUFFERS_TO_JUDGE {
                continue;
            }
            if share <= FAR_SHARE {
                near = Some((share, all));
                continue;
            }
            let list: Vec<String> =
                nodes.iter().map(|(node, bytes)| format!("N{node} {}", show::bytes(*bytes as f64))).collect();
            let is_far = |node: &&NodeNumber| home.is_far(&host.topology, **node);
            let far_nodes = show::cpu_list(nodes.keys().filter(is_far).copied());
            found.push(Finding {
                id: format!("buffers-far/{pid}"),
                check: 13,
                severity: Severity::Warning,
                confidence: trust(host, Confidence::Certain),
                text: Sentence::new("numa.buffers-far")
                    .with("pid", pid)
                    .with("far", show::bytes(far as f64))
                    .with("all", show::bytes(all as f64))
                    .with("port", home.port)
                    .with("node", home.node),
                evidence: vec![Evidence::new(path, list.join(", ")), home.shown(&host.topology)],
                number: Some(Number { is: share, could_be: 0.0, unit: "1".to_owned() }),
                remedies: vec![Remedy::Explain {
                    what: Sentence::new("numa.buffers-remedy"),
                    command: Some(format!("migratepages {pid} {far_nodes} {}", home.node)),
                }],
            });
        }
    }
    match (found.is_empty(), hidden, near) {
        (false, _, _) => Verdict::Found(found),
        (true, Some(what), _) => Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
        (true, None, Some((share, all))) => Verdict::Fine(
            Sentence::new("numa.buffers-near").with("share", show::percent(share)).with("all", show::bytes(all as f64)),
        ),
        (true, None, None) => Verdict::NotHere,
    }
}

/// Bytes on each node, of a process's `numa_maps`.
fn memory_of(maps: &str) -> BTreeMap<NodeNumber, u64> {
    let mut nodes = BTreeMap::new();
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let page_kb = words.iter().find_map(|word| word.strip_prefix("kernelpagesize_kB=")?.parse::<u64>().ok());
        let Some(page_kb) = page_kb else { continue };
        for word in words {
            let on = word.strip_prefix('N').and_then(|word| word.split_once('='));
            if let Some((Ok(node), Ok(pages))) = on.map(|(node, pages)| (node.parse(), pages.parse::<u64>())) {
                *nodes.entry(node).or_default() += pages * page_kb * 1024;
            }
        }
    }
    nodes
}

/// Nodes whose pages had to be taken from others (numa_foreign).
fn elsewhere(host: &Host) -> Vec<Finding> {
    /// Bytes of a page that the counters count. Hosts with larger ones lose more than is told.
    const PAGE: f64 = 4096.0;
    let Some((before, between)) = &host.earlier else { return Vec::new() };
    let count = |text: Option<&String>, name: &str| -> Option<u64> {
        text?.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    let finding = |node: &NodeNumber| {
        let path = format!("/sys/devices/system/node/node{node}/numastat");
        let (now, before) = (host.counters.0.get(&path), before.0.get(&path));
        let grown = |name: &str| Some(count(now, name)?.saturating_sub(count(before, name)?) as f64);
        let (hit, foreign) = (grown("numa_hit")?, grown("numa_foreign")?);
        let (rate, share) = (foreign * PAGE / between.as_secs_f64(), foreign / (hit + foreign).max(1.0));
        (rate >= ELSEWHERE_RATE && share > FAR_SHARE).then(|| Finding {
            id: format!("buffers-elsewhere/node{node}"),
            check: 13,
            severity: Severity::Warning,
            confidence: trust(host, Confidence::Certain),
            text: Sentence::new("numa.elsewhere")
                .with("node", node)
                .with("rate", show::bytes(rate))
                .with("share", show::percent(share)),
            evidence: vec![Evidence::new(
                path.clone(),
                format!("numa_foreign {}", count(now, "numa_foreign").unwrap_or(0)),
            )],
            number: Some(Number { is: share, could_be: 0.0, unit: "1".to_owned() }),
            remedies: vec![Remedy::Explain {
                what: Sentence::new("numa.elsewhere-remedy").with("node", node),
                command: None,
            }],
        })
    };
    host.topology.nodes.keys().filter_map(finding).collect()
}

// Check 14. Reads the page cache of each node. Rule: a server of files runs, and the interfaces' socket holds less than
// half of what blind placement would have given it.
pub fn page_cache(host: &Host) -> Verdict {
    let topology = &host.topology;
    let Some(home) = home(topology) else { return Verdict::NotHere };
    let cached_by = ["smbd", "ksmbd", "nfsd", "nbdkit"];
    let serving = match servers(&host.system) {
        Seen::Is(servers) => {
            servers.into_iter().find(|server| cached_by.iter().any(|name| server.name.starts_with(name)))
        }
        Seen::Absent => None,
        Seen::Hidden(what) => return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
    };
    let Some(serving) = serving else { return Verdict::NotHere };
    let (mut near, mut all, mut memory, mut evidence) = (0u64, 0u64, 0u64, vec![home.shown(&host.topology)]);
    let mut sockets_with_memory = std::collections::BTreeSet::new();
    for (node, about) in topology.nodes.iter().filter(|(_, node)| node.memory_bytes > 0) {
        let path = format!("/sys/devices/system/node/node{node}/meminfo");
        let text = match host.system.text(&path) {
            Seen::Is(text) => text,
            Seen::Absent => return Verdict::NotHere,
            Seen::Hidden(what) => return Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
        };
        let line = text.lines().find_map(|line| line.split_once("FilePages:"));
        let kb: Option<u64> = line.and_then(|(_, count)| count.trim().trim_end_matches("kB").trim().parse().ok());
        let Some(kb) = kb else { return Verdict::NotHere };
        (all, memory) = (all + kb * 1024, memory + about.memory_bytes);
        if !home.is_far(topology, *node) {
            near += kb * 1024;
        }
        sockets_with_memory.extend(socket_of(topology, *node));
        evidence.push(Evidence::new(path, format!("FilePages: {kb} kB")));
    }
    if all == 0 || (all as f64) < CACHE_TO_JUDGE * memory as f64 || sockets_with_memory.len() < 2 {
        return Verdict::NotHere;
    }
    let share = near as f64 / all as f64;
    let blind = 1.0 / sockets_with_memory.len() as f64;
    let text = |key| {
        Sentence::new(key)
            .with("far", show::bytes((all - near) as f64))
            .with("all", show::bytes(all as f64))
            .with("share", show::percent(share))
            .with("port", home.port)
            .with("node", home.node)
            .with("server", &serving.name)
    };
    if share >= blind / 2.0 {
        return Verdict::Fine(text("numa.cache-near"));
    }
    Verdict::Found(vec![Finding {
        id: format!("page-cache-far/{}", home.port),
        check: 14,
        severity: Severity::Note,
        confidence: trust(host, Confidence::Computed),
        text: text("numa.cache-far"),
        evidence,
        number: Some(Number { is: share, could_be: 1.0, unit: "1".to_owned() }),
        remedies: vec![Remedy::Explain {
            what: Sentence::new("numa.cache-remedy")
                .with("node", home.node)
                .with("cpus", show::cpu_list(home.cpus(topology))),
            command: None,
        }],
    }])
}

#[cfg(test)]
mod tests {
    use super::super::expect::{command, fine, not_here, not_seen, one, text};
    use super::super::processes::with_process;
    use super::*;
    use crate::fixture::Tree;

    const NIC: &str = "0000:82:00.0";

    /// Two sockets of four cores, a 25 Gb/s interface in the second.
    fn host() -> Tree {
        Tree::new().node(0, "0-3", 32).node(1, "4-7", 32).pci(NIC, 0x020000, 1).nic("ens1", NIC, 25_000)
    }

    fn samba(threads: &[(Cpu, u64)]) -> Tree {
        with_process(host(), 7, "smbd", "/usr/sbin/smbd\0-F", threads)
    }

    #[test]
    fn a_server_in_the_other_socket_is_told_with_the_command_that_moves_it() {
        let tree = samba(&[(1, 6000), (5, 4000)])
            .file("/proc/7/status", "Cpus_allowed_list:\t0-7\n")
            .file("/proc/7/cgroup", "0::/system.slice/smbd.service\n");
        let finding = one(&tree, 12);
        assert!(
            text(&finding).starts_with("smbd (process 7): threads with 60 % of its CPU time"),
            "{}",
            text(&finding)
        );
        assert_eq!((finding.severity, finding.confidence), (Severity::Note, Confidence::Likely));
        assert_eq!(command(&finding), "systemctl set-property --runtime smbd.service AllowedCPUs=4-7");
        assert_eq!(finding.evidence[0], Evidence::new("/proc/7/task/*/stat", "processor 1"));
    }

    #[test]
    fn a_server_that_may_not_run_near_is_a_warning() {
        let tree = samba(&[(1, 6000)]).file("/proc/7/status", "Cpus_allowed_list:\t0-3\n");
        let finding = one(&tree, 12);
        assert_eq!((finding.severity, finding.confidence), (Severity::Warning, Confidence::Certain));
        assert_eq!(command(&finding), "taskset -acp 4-7 7");
        assert_eq!(one(&tree.virtual_machine(), 12).confidence, Confidence::Likely);
    }

    #[test]
    fn threads_of_the_kernels_nfs_server_are_placed_by_its_own_parameter() {
        let tree = with_process(host(), 9, "nfsd", "", &[(0, 9000)]);
        assert_eq!(command(&one(&tree, 12)), "echo pernode > /sys/module/sunrpc/parameters/pool_mode");
    }

    #[test]
    fn a_server_that_is_near_or_idle_is_not_told() {
        assert!(fine(&samba(&[(1, 1500), (5, 8500)]), 12).contains("smbd spends 15 % of its CPU time"));
        not_here(&samba(&[(1, 900)]), 12);
    }

    #[test]
    fn without_servers_or_one_home_of_the_interfaces_nothing_is_said_of_processes() {
        not_here(&host(), 12);
        not_here(&with_process(Tree::new().node(0, "0-7", 8), 7, "smbd", "smbd", &[(1, 6000)]), 12);
        let both = samba(&[(1, 6000)]).pci("0000:03:00.0", 0x020000, 0).nic("ens2", "0000:03:00.0", 25_000);
        not_here(&both, 12);
        assert!(not_seen(&host().hidden("/proc/7/comm"), 12).starts_with("/proc/7/comm: "));
    }

    fn daemon(maps: &str) -> Tree {
        with_process(host(), 11, "forebay", "/usr/bin/forebay\0serve", &[(5, 9000)]).file("/proc/11/numa_maps", maps)
    }

    #[test]
    fn the_daemons_memory_in_the_other_socket_is_told() {
        let tree = daemon(
            "7f0 default anon=262144 N0=131072 N1=131072 kernelpagesize_kB=4\n7f1 bind:1 huge N1=100 kernelpagesize_kB=2048\n",
        );
        let finding = one(&tree, 13);
        assert!(text(&finding).starts_with("536.9 MB of the daemon's 1.3 GB (process 11)"), "{}", text(&finding));
        assert_eq!(command(&finding), "migratepages 11 0 1");
        assert_eq!(finding.evidence[0], Evidence::new("/proc/11/numa_maps", "N0 536.9 MB, N1 746.6 MB"));
    }

    #[test]
    fn the_daemons_memory_that_is_near_or_small_or_hidden_is_no_finding() {
        assert!(
            fine(&daemon("7f0 default N0=10000 N1=131072 kernelpagesize_kB=4\n"), 13).contains("7 % of the daemon's")
        );
        not_here(&daemon("7f0 default N0=100 kernelpagesize_kB=4\n7f1 default\n"), 13);
        not_here(&host(), 13);
        not_here(&Tree::new().node(0, "0-7", 8), 13);
        let hidden = with_process(host(), 11, "forebay", "forebay\0serve", &[(5, 9000)]).hidden("/proc/11/numa_maps");
        assert!(not_seen(&hidden, 13).starts_with("/proc/11/numa_maps: "));
    }

    #[test]
    fn a_node_that_is_full_is_told_by_what_others_had_to_give() {
        let file = "/sys/devices/system/node/node0/numastat";
        let at = |foreign: u64| {
            let now = format!("numa_hit 900000\nnuma_miss 0\nnuma_foreign {foreign}\n");
            host().file(file, &now).earlier(file, "numa_hit 100000\nnuma_miss 0\nnuma_foreign 5\n")
        };
        let finding = one(&at(800_005), 13);
        assert!(text(&finding).starts_with("Node 0 is full: 54.6 MB/s"), "{}", text(&finding));
        assert!(text(&finding).contains("(50 % of all)"));
        not_here(&at(5), 13);
        not_here(&at(80_005), 13);
    }

    fn cached(near_gib: u64, far_gib: u64) -> Tree {
        let node = |node: u32, gib: u64| {
            format!("Node {node} MemTotal:       33554432 kB\nNode {node} FilePages:      {} kB\n", gib << 20)
        };
        samba(&[(5, 9000)])
            .file("/sys/devices/system/node/node0/meminfo", &node(0, far_gib))
            .file("/sys/devices/system/node/node1/meminfo", &node(1, near_gib))
    }

    #[test]
    fn a_page_cache_that_is_worse_than_blind_placement_is_told() {
        let finding = one(&cached(2, 20), 14);
        assert!(
            text(&finding).starts_with("21.5 GB of the 23.6 GB of page cache are in another socket than ens1"),
            "{}",
            text(&finding)
        );
        assert!(
            finding
                .evidence
                .contains(&Evidence::new("/sys/devices/system/node/node0/meminfo", "FilePages: 20971520 kB"))
        );
    }

    #[test]
    fn a_page_cache_that_is_near_small_unread_or_serves_nobody_is_no_finding() {
        assert!(fine(&cached(10, 12), 14).contains("45 % of 23.6 GB"));
        not_here(&cached(0, 0), 14);
        not_here(&host(), 14);
        not_here(&with_process(Tree::new().node(0, "0-7", 8), 7, "smbd", "smbd", &[(1, 6000)]), 14);
        assert!(not_seen(&host().hidden("/proc/7/comm"), 14).starts_with("/proc/7/comm: "));
    }
}
