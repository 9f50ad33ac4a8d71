//! Checks 12 to 14: servers, their memory and the page cache, in the socket of the interface or not.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::super::system::Seen;
use super::super::topology::{Cpu, NodeNumber, Topology};
use super::numa::{data_ports, is_far, node_shown, socket_of, sockets, trust};
use super::processes::{Server, servers};
use super::show;
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

    fn shown(&self) -> Evidence {
        node_shown(self.pci, self.node)
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
    let mut evidence =
        vec![Evidence::new(format!("/proc/{pid}/task/*/stat"), format!("processor {busiest}")), home.shown()];
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
                evidence: vec![Evidence::new(path, list.join(", ")), home.shown()],
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
    let (mut near, mut all, mut memory, mut evidence) = (0u64, 0u64, 0u64, vec![home.shown()]);
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
