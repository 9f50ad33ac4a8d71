//! Checks 32, 35 and 37: shares of NFS and SMB, and NVMe over a network.

use super::super::super::Host;
use super::super::super::findings::{Confidence, Evidence, Finding, Remedy, Sentence, Severity, Verdict, Write};
use super::super::nics::Gathered;
use super::{distinct, grounds, outward};
use crate::show::line_rate;
use forebay_host::topology::RdmaPort;
use std::collections::BTreeSet;
use std::net::IpAddr;

const MOUNTS: &str = "/proc/self/mounts";

/// A mount of another host's files.
struct Mount {
    at: String,
    kind: String,
    options: String,
}

impl Mount {
    fn option(&self, name: &str) -> Option<&str> {
        let of = |option: &'_ str| option.split_once('=').is_some_and(|(found, _)| found == name);
        Some(self.options.split(',').find(|option| of(option))?.split_once('=')?.1)
    }

    fn has(&self, word: &str) -> bool {
        self.options.split(',').any(|option| option == word)
    }

    fn peer(&self) -> Option<IpAddr> {
        self.option("addr")?.parse().ok()
    }

    fn evidence(&self) -> Evidence {
        Evidence::new(MOUNTS, format!("{} {} {}", self.at, self.kind, self.options))
    }
}

fn mounts(host: &Host, gathered: &mut Gathered, kinds: &[&str]) -> Vec<Mount> {
    let text = gathered.see(host.system.text(MOUNTS)).unwrap_or_default();
    let mount = |line: &str| {
        let mut words = line.split(' ').skip(1).map(str::to_owned);
        Some(Mount { at: words.next()?, kind: words.next()?, options: words.next()? })
    };
    text.lines().filter_map(mount).filter(|mount| kinds.contains(&mount.kind.as_str())).collect()
}

/// The RDMA port that is ready at the card by which an address is reached.
fn ready_port(host: &Host, peer: IpAddr) -> Option<(String, &String)> {
    host.net.towards(peer).into_iter().find_map(|interface| {
        let ports = grounds(host, &interface).into_iter().find_map(|card| {
            let ready = |(_, port): &(&String, &RdmaPort)| port.state == "ACTIVE";
            host.topology.rdma_of(host.topology.nics.get(&card)?).find(ready)
        });
        let (port, _) = ports?;
        Some((interface, port))
    })
}

/// What goes to a peer by TCP: its name, the peer, and what shows it.
fn by_tcp(host: &Host, gathered: &mut Gathered) -> Vec<(String, IpAddr, Evidence)> {
    let mut users = Vec::new();
    for mount in mounts(host, gathered, &["nfs", "nfs4"]) {
        let proto = mount.option("proto").unwrap_or("tcp");
        if proto.starts_with("rdma") {
            gathered.fine(Sentence::new("paths.rdma-used").with("user", &mount.at));
        } else if let Some(peer) = mount.peer().filter(|_| proto.starts_with("tcp")) {
            users.push((mount.at.clone(), peer, mount.evidence()));
        }
    }
    for controller in host.system.list("/sys/class/nvme").known().unwrap_or_default() {
        let folder = format!("/sys/class/nvme/{controller}");
        if host.system.text(&format!("{folder}/transport")).known().as_deref() != Some("tcp") {
            continue;
        }
        let file = format!("{folder}/address");
        let Some(address) = gathered.see(host.system.text(&file)) else { continue };
        let peer = address.split(',').find_map(|part| part.strip_prefix("traddr=")?.parse().ok());
        users.extend(peer.map(|peer| (controller, peer, Evidence::new(file, address.clone()))));
    }
    users
}

pub(super) fn rdma_idle(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    if host.topology.rdma.is_empty() {
        return Verdict::NotHere;
    }
    for (user, peer, evidence) in by_tcp(host, &mut gathered) {
        gathered.see(host.net.routes.as_ref());
        let Some((interface, port)) = ready_port(host, peer) else { continue };
        let (device, number) = port.split_once('/').unwrap_or((port, "1"));
        let state = format!("/sys/class/infiniband/{device}/ports/{number}/state");
        gathered.find(Finding {
            id: format!("rdma-idle/{user}"),
            check: 32,
            severity: Severity::Note,
            confidence: Confidence::Likely,
            text: Sentence::new("paths.rdma-idle")
                .with("user", user)
                .with("peer", peer)
                .with("nic", interface)
                .with("port", port),
            evidence: vec![evidence, Evidence::new(state, "ACTIVE")],
            number: None,
            remedies: vec![Remedy::Explain { what: Sentence::new("paths.rdma-help"), command: None }],
        });
    }
    gathered.verdict()
}

/// A path that is slower than half of the fastest would hold the others up.
const LIKE_SHARE: u64 = 2;

pub(super) fn smb(host: &Host) -> Verdict {
    const DEBUG: &str = "/proc/fs/cifs/DebugData";
    const SERVER: &str = "/etc/samba/smb.conf";
    let mut gathered = Gathered::default();
    let shares = mounts(host, &mut gathered, &["cifs", "smb3"]);
    let server = host.system.text(SERVER).known().unwrap_or_default();
    if shares.is_empty() && server.is_empty() {
        return gathered.verdict();
    }
    let addresses = gathered.see(host.net.addresses.as_ref()).map_or(&[][..], |all| &all[..]);
    let all = outward(host, addresses);
    let paths = distinct(&all);
    let fastest = paths.iter().filter_map(|path| path.bits).max().unwrap_or(0);
    let alike: Vec<_> = paths.iter().filter(|path| path.bits.unwrap_or(0) * LIKE_SHARE >= fastest).collect();
    let nics: Vec<&str> = alike.iter().map(|path| path.name.as_str()).collect();
    let show =
        |path: &&&super::Outward| Evidence::new(format!("ip address show dev {}", path.name), path.address.address);
    for mount in shares {
        let asked: u32 = mount.option("max_channels").and_then(|most| most.parse().ok()).unwrap_or(1);
        let words = |key| Sentence::new(key).with("mount", &mount.at).with("channels", asked);
        let find = |word, severity, confidence, text, evidence, help| Finding {
            id: format!("smb-multichannel/{}/{word}", mount.at),
            check: 35,
            severity,
            confidence,
            text,
            evidence,
            number: None,
            remedies: vec![Remedy::Explain { what: Sentence::new(help), command: None }],
        };
        if !mount.has("multichannel") || asked < 2 {
            if nics.len() > 1 {
                let evidence = std::iter::once(mount.evidence()).chain(alike.iter().map(show)).collect();
                let text = words("paths.smb-one").with("nics", nics.join(", "));
                gathered.find(find("option", Severity::Note, Confidence::Likely, text, evidence, "paths.smb-help"));
            }
            continue;
        }
        let Some(debug) = gathered.see(host.system.text(DEBUG)) else { continue };
        let line = |word: &str| debug.lines().find(|line| line.trim_start().starts_with(word)).map(str::trim);
        match line("Extra Channels:") {
            Some(extra) if !extra.ends_with(" 0") => {
                gathered.fine(words("paths.smb-fine").with("extra", extra.rsplit(' ').next().unwrap_or_default()));
            }
            extra => {
                let mut evidence = vec![mount.evidence()];
                evidence.push(Evidence::new(DEBUG, extra.unwrap_or("no Extra Channels")));
                evidence.extend(line("Server interfaces:").map(|offered| Evidence::new(DEBUG, offered)));
                let text = words("paths.smb-refused");
                let help = "paths.smb-server-help";
                gathered.find(find("channels", Severity::Warning, Confidence::Certain, text, evidence, help));
            }
        }
    }
    let off = server.lines().map(str::trim).find(|line| {
        let pair = line.split_once('=').map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_lowercase()));
        pair.is_some_and(|(name, value)| {
            name.replace(' ', "") == "servermultichannelsupport" && matches!(value.as_str(), "no" | "false" | "0")
        })
    });
    if let Some(off) = off.filter(|_| nics.len() > 1) {
        gathered.find(Finding {
            id: "smb-multichannel/server".to_owned(),
            check: 35,
            severity: Severity::Note,
            confidence: Confidence::Certain,
            text: Sentence::new("paths.smb-server-off").with("nics", nics.join(", ")),
            evidence: vec![Evidence::new(SERVER, off)],
            number: None,
            remedies: vec![Remedy::Explain { what: Sentence::new("paths.smb-server-help"), command: None }],
        });
    }
    gathered.verdict()
}

/// From here on one core, which is what one connection has, cannot fill the line.
const MANY_CONNECTIONS_BITS: u64 = 25_000_000_000;

pub(super) fn nfs(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    for mount in mounts(host, &mut gathered, &["nfs", "nfs4"]) {
        let proto = mount.option("proto").unwrap_or("tcp");
        if !proto.starts_with("tcp") {
            continue;
        }
        let Some(peer) = mount.peer() else { continue };
        gathered.see(host.net.routes.as_ref());
        let towards = host.net.towards(peer);
        let fast = towards.iter().filter_map(|name| Some((host.topology.nics.get(name)?.speed_bits?, name))).max();
        let Some((bits, nic)) = fast else { continue };
        let (connections, shown) = connections(host, &mount);
        let words = |key| {
            let text = Sentence::new(key).with("mount", &mount.at).with("nic", nic).with("speed", line_rate(bits));
            text.with("connections", connections)
        };
        if bits < MANY_CONNECTIONS_BITS || connections > 1 {
            gathered.fine(words("paths.nfs-fine"));
            continue;
        }
        gathered.find(Finding {
            id: format!("nfs-transport{}", mount.at),
            check: 37,
            severity: Severity::Warning,
            confidence: Confidence::Likely,
            text: words("paths.nfs-one"),
            evidence: vec![shown, speed_shown(host, nic, bits)],
            number: None,
            remedies: vec![Remedy::Explain { what: Sentence::new("paths.nfs-help"), command: None }],
        });
    }
    served(host, &mut gathered);
    gathered.verdict()
}

/// What shows an interface's speed: of IP over InfiniBand the rate of its port, because its own file has the signalling rate.
fn speed_shown(host: &Host, name: &str, bits: u64) -> Evidence {
    let nic = host.topology.nics.get(name).filter(|nic| nic.infiniband);
    match nic.and_then(|nic| host.topology.rdma_of(nic).next()) {
        Some((port, RdmaPort { rate, .. })) => {
            let (device, number) = port.split_once('/').unwrap_or((port, "1"));
            Evidence::new(format!("/sys/class/infiniband/{device}/ports/{number}/rate"), rate)
        }
        None => Evidence::new(format!("/sys/class/net/{name}/speed"), bits / 1_000_000),
    }
}

/// Connections of a mount: each has a line of its own; where those are not shown, the option tells.
fn connections(host: &Host, mount: &Mount) -> (usize, Evidence) {
    const STATS: &str = "/proc/self/mountstats";
    let text = host.system.text(STATS).known().unwrap_or_default();
    let own = format!(" mounted on {} with ", mount.at);
    let of_mount = text.lines().skip_while(|line| !line.contains(&own)).skip(1);
    let of_mount = of_mount.take_while(|line| !line.starts_with("device "));
    let lines = of_mount.filter(|line| line.trim_start().starts_with("xprt:")).count();
    match lines {
        0 => {
            let option = mount.option("nconnect").and_then(|count| count.parse().ok());
            (option.unwrap_or(1), mount.evidence())
        }
        lines => (lines, Evidence::new(STATS, format!("{}: {lines} xprt", mount.at))),
    }
}

/// The host's own server of NFS.
fn served(host: &Host, gathered: &mut Gathered) {
    const THREADS: &str = "/proc/fs/nfsd/threads";
    let Some(threads) = gathered.see(host.system.number::<usize>(THREADS)).filter(|threads| *threads > 0) else {
        return;
    };
    let cores = host.topology.cpus.values().map(|cpu| cpu.core).collect::<BTreeSet<_>>().len();
    let words = |key| Sentence::new(key).with("threads", threads).with("cores", cores);
    if threads >= cores {
        gathered.fine(words("paths.nfsd-fine"));
        return;
    }
    gathered.find(Finding {
        id: "nfs-transport/nfsd".to_owned(),
        check: 37,
        severity: Severity::Note,
        confidence: Confidence::Likely,
        text: words("paths.nfsd-few"),
        evidence: vec![
            Evidence::new(THREADS, threads),
            Evidence::new("/sys/devices/system/cpu/online", format!("{cores} cores")),
        ],
        number: None,
        remedies: vec![Remedy::Apply {
            what: words("paths.nfsd-help"),
            writes: vec![Write { path: THREADS.to_owned(), value: cores.to_string() }],
        }],
    });
}
