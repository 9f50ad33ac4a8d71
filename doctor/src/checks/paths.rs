//! Checks 32 to 40: paths to other hosts, and what protocols make of them.

mod bonds;
mod shares;
#[cfg(test)]
mod tests;

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict, Write};
use super::Check;
use super::nics::{Counted, Gathered, named, sent_bytes};
use super::pcie::slot_carries;
use crate::interfaces::{hardware, ours};
use crate::show::line_rate;
use forebay_host::net::{Address, Connection, Mptcp, Route, TABLE_MAIN, same_subnet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Checks 32 to 40, in the order of their numbers.
pub const CHECKS: &[Check] = &[
    Check { number: 32, word: "rdma-idle", look: shares::rdma_idle },
    Check { number: 33, word: "bond", look: bonds::bonds },
    Check { number: 34, word: "one-subnet", look: one_subnet },
    Check { number: 35, word: "smb-multichannel", look: shares::smb },
    Check { number: 36, word: "mptcp", look: mptcp },
    Check { number: 37, word: "nfs-transport", look: shares::nfs },
    Check { number: 38, word: "tcp-window", look: windows },
    Check { number: 39, word: "usb-nic", look: usb },
    Check { number: 40, word: "cloud-limit", look: cloud_limits },
];

/// What lies at the ground of an interface: of a VLAN its card, of a bond all of them; of a card itself.
pub(super) fn grounds(host: &Host, name: &str) -> BTreeSet<String> {
    let (mut grounds, mut left) = (BTreeSet::new(), vec![name.to_owned()]);
    // As deep as anybody lays interfaces over each other; the other end of a pair in this network would not end.
    for _ in 0..64 {
        let Some(next) = left.pop() else { break };
        let below: Vec<String> = match host.topology.nics.get(&next).map(|nic| nic.kind.as_str()) {
            Some("veth") => Vec::new(),
            _ => named(host, &next, "lower_").collect(),
        };
        if below.is_empty() {
            grounds.insert(next);
        } else {
            left.extend(below);
        }
    }
    grounds
}

/// An interface with an address, by which packets leave for other hosts, and what lies at its ground.
pub(super) struct Outward<'a> {
    pub(super) name: &'a String,
    pub(super) address: &'a Address,
    pub(super) bits: Option<u64>,
    grounds: BTreeSet<String>,
}

/// All that lead out by a card, or by a container's own end of a pair; a bridge for guests alone does not, and radio is not counted.
pub(super) fn outward<'a>(host: &'a Host, addresses: &'a [Address]) -> Vec<Outward<'a>> {
    let nics: BTreeMap<_, _> = ours(host).collect();
    let is_card = |name: &String| {
        let kind = nics.get(name).map(|nic| nic.kind.as_str());
        kind == Some("physical") && !host.system.has(&format!("/sys/class/net/{name}/phy80211"))
    };
    let of = |address: &'a Address| {
        let (name, nic) = nics.get_key_value(&address.interface)?;
        // A line to one other host is no subnet.
        let width = if address.address.is_ipv4() { 32 } else { 128 };
        if !nic.up || nic.master.is_some() || !address.global || address.prefix + 1 >= width || address.prefix == 0 {
            return None;
        }
        let grounds = grounds(host, name);
        let leads_out = nic.kind == "veth" || grounds.iter().any(is_card);
        leads_out.then_some(Outward { name, address, bits: nic.speed_bits, grounds })
    };
    addresses.iter().filter_map(of).collect()
}

/// Of these the first of each card.
pub(super) fn distinct<'a, 'b>(outward: &'b [Outward<'a>]) -> Vec<&'b Outward<'a>> {
    let mut seen = BTreeSet::new();
    outward.iter().filter(|path| path.grounds.iter().all(|ground| seen.insert(ground.clone()))).collect()
}

fn first_of(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::from((u32::from(v4) & mask).to_be_bytes())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::from((u128::from(v6) & mask).to_be_bytes())
        }
    }
}

/// From here on a table of counters tells which interface is used: less may be what any interface says of itself.
const SENT_BYTES: u64 = 1 << 30;
/// Of what the one with the route has sent, from which somebody binds to the other one, as initiators of iSCSI do.
const BOUND_SHARE: u64 = 10;

/// Whether an interface without the route is used nevertheless.
fn is_bound_to(host: &Host, name: &str, used: &str) -> bool {
    let sent = sent_bytes(host, name);
    sent >= SENT_BYTES && sent * BOUND_SHARE >= sent_bytes(host, used)
}

fn one_subnet(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let Some(addresses) = gathered.see(host.net.addresses.as_ref()) else { return gathered.verdict() };
    let all = outward(host, addresses);
    let mut subnets: BTreeMap<(IpAddr, u8), Vec<&Outward>> = BTreeMap::new();
    // Two interfaces with addresses in one subnet of IPv6 are what every host with two cables has.
    for path in all.iter().filter(|path| path.address.address.is_ipv4()) {
        let prefix = path.address.prefix;
        let of = subnets.entry((first_of(path.address.address, prefix), prefix)).or_default();
        if of.iter().all(|other| other.grounds.is_disjoint(&path.grounds)) {
            of.push(path);
        }
    }
    let of_its_own = subnets.values().filter(|paths| paths.len() == 1).count();
    if of_its_own > 1 && of_its_own == subnets.len() {
        gathered.fine(Sentence::new("paths.subnets-fine").with("nics", of_its_own));
    }
    for ((first, prefix), paths) in subnets.into_iter().filter(|(_, paths)| paths.len() > 1) {
        let (Some(routes), Some(rules)) =
            (gathered.see(host.net.routes.as_ref()), gathered.see(host.net.rules.as_ref()))
        else {
            continue;
        };
        let of_subnet = |route: &&Route| {
            route.table == TABLE_MAIN && route.to == first && route.prefix == prefix && route.via.is_none()
        };
        let Some(taken) = routes.iter().filter(of_subnet).min_by_key(|route| route.metric) else { continue };
        let subnet = format!("{first}/{prefix}");
        let has_rule = |path: &Outward| {
            rules.iter().any(|rule| {
                rule.table != TABLE_MAIN
                    && rule.from.is_some_and(|(from, bits)| bits > 0 && same_subnet(from, path.address.address, bits))
            })
        };
        let Some(used) = taken.interfaces.first() else { continue };
        let idle = |path: &&&Outward| path.name != used && !has_rule(path) && !is_bound_to(host, path.name, used);
        let unused: Vec<&&Outward> = paths.iter().filter(idle).collect();
        let Some(other) = unused.first().filter(|_| taken.interfaces.len() == 1) else {
            gathered.fine(Sentence::new("paths.subnet-ruled").with("subnet", &subnet).with("nics", paths.len()));
            continue;
        };
        gathered.find(unused_paths(host, &subnet, &paths, &unused, taken, used, other));
    }
    gathered.verdict()
}

/// Bytes a second that paths carry together, where all speeds are known: those of one card no more than its slot does.
fn together(host: &Host, paths: &[&Outward]) -> Option<f64> {
    let mut cards: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for path in paths {
        let pci = path.grounds.iter().next().filter(|_| path.grounds.len() == 1);
        let pci = pci.and_then(|ground| host.topology.nics.get(ground)?.pci.as_deref());
        let slot = pci.and_then(|pci| slot_carries(host, pci)).unwrap_or(f64::INFINITY);
        let card = pci.map_or(path.name.as_str(), |pci| pci.split_once('.').map_or(pci, |(card, _)| card));
        let (sum, least) = cards.entry(card).or_insert((0.0, f64::INFINITY));
        *sum += path.bits? as f64 / 8.0;
        *least = least.min(slot);
    }
    Some(cards.values().map(|(sum, slot)| sum.min(*slot)).sum())
}

/// Paths of a subnet that are not used, because all goes by one route of it.
fn unused_paths(
    host: &Host,
    subnet: &str,
    paths: &[&Outward],
    unused: &[&&Outward],
    taken: &Route,
    used: &str,
    other: &Outward,
) -> Finding {
    let names: Vec<&str> = unused.iter().map(|path| path.name.as_str()).collect();
    let show = |path: &&Outward| {
        let Address { address, prefix, .. } = path.address;
        Evidence::new(format!("ip address show dev {}", path.name), format!("{address}/{prefix}"))
    };
    let mut evidence: Vec<Evidence> = paths.iter().map(show).collect();
    let route = format!("{subnet} dev {used} metric {}", taken.metric);
    evidence.push(Evidence::new("ip route show table main", route));
    let arp = "/proc/sys/net/ipv4/conf/all/arp_ignore";
    evidence.extend(host.system.text(arp).known().map(|value| Evidence::new(arp, value)));
    let together = together(host, paths);
    let own = paths.iter().find(|path| path.name == used).and_then(|path| path.bits);
    Finding {
        id: format!("one-subnet/{subnet}"),
        check: 34,
        severity: Severity::Warning,
        confidence: Confidence::Certain,
        text: Sentence::new("paths.one-subnet")
            .with("subnet", subnet)
            .with("used", used)
            .with("unused", names.join(", ")),
        evidence,
        number: together
            .zip(own)
            .filter(|(together, own)| *together > *own as f64 / 8.0)
            .map(|(together, own)| Number { is: own as f64 / 8.0, could_be: together, unit: "B/s".to_owned() }),
        remedies: vec![
            Remedy::Explain { what: Sentence::new("paths.second-subnet-help").with("nic", other.name), command: None },
            Remedy::Explain {
                what: Sentence::new("paths.rules-help").with("nic", other.name),
                command: Some(format!(
                    "ip route add {subnet} dev {} table 100 && ip rule add from {} table 100",
                    other.name, other.address.address
                )),
            },
        ],
    }
}

/// Counters of MPTCP.
struct Joined {
    connections: u64,
    joins: u64,
    fell_back: u64,
}

const NETSTAT: &str = "/proc/net/netstat";

fn joined(text: &str) -> Option<Joined> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("MPTcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let values: BTreeMap<&str, u64> =
        names.split_whitespace().zip(values.split_whitespace().filter_map(|value| value.parse().ok())).collect();
    let sum = |names: [&str; 2]| names.iter().filter_map(|name| values.get(name)).sum();
    Some(Joined {
        // As the one that opened it, and as the other.
        connections: sum(["MPCapableSYNACKRX", "MPCapableACKRX"]),
        joins: sum(["MPJoinSynAckRx", "MPJoinAckRx"]),
        fell_back: sum(["MPCapableFallbackACK", "MPCapableFallbackSYNACK"]),
    })
}

fn mptcp(host: &Host) -> Verdict {
    const ENABLED: &str = "/proc/sys/net/mptcp/enabled";
    let mut gathered = Gathered::default();
    if gathered.see(host.system.number::<u8>(ENABLED)) != Some(1) {
        return gathered.verdict();
    }
    let (Some(addresses), Some(set)) =
        (gathered.see(host.net.addresses.as_ref()), gathered.see(host.net.mptcp.as_ref()))
    else {
        return gathered.verdict();
    };
    let Some(counted) = host.counters.0.get(NETSTAT).and_then(|text| joined(text)) else { return gathered.verdict() };
    let all = outward(host, addresses);
    let paths = distinct(&all);
    let Joined { connections, joins, fell_back } = counted;
    let evidence = |name: &str, value: u64| Evidence::new(format!("{NETSTAT}: MPTcpExt {name}"), value);
    let of = |id: &str, severity, text: Sentence, evidence, what, command| Finding {
        id: format!("mptcp/{id}"),
        check: 36,
        severity,
        confidence: Confidence::Certain,
        text,
        evidence,
        number: None,
        remedies: vec![Remedy::Explain { what: Sentence::new(what), command }],
    };
    if fell_back > connections {
        let text = Sentence::new("paths.mptcp-fell-back").with("fallen", fell_back).with("connections", connections);
        let shown = vec![evidence("MPCapableFallback", fell_back), evidence("MPCapable", connections)];
        gathered.find(of("fallback", Severity::Note, text, shown, "paths.mptcp-fell-back-help", None));
    }
    if paths.len() < 2 {
        return gathered.verdict();
    }
    let words = |key| Sentence::new(key).with("connections", connections).with("paths", paths.len());
    if connections == 0 {
        gathered.fine(words("paths.mptcp-unused"));
    } else if joins > 0 {
        gathered.fine(words("paths.mptcp-fine").with("joins", joins));
    } else {
        let Mptcp { endpoints, subflows_max, accepted_max } = set;
        let listed: Vec<String> = endpoints.iter().map(|endpoint| endpoint.address.to_string()).collect();
        let shown = vec![
            evidence("MPCapable", connections),
            evidence("MPJoin", joins),
            Evidence::new("ip mptcp endpoint", if listed.is_empty() { "none".to_owned() } else { listed.join(", ") }),
            Evidence::new("ip mptcp limits", format!("add_addr_accepted {accepted_max} subflows {subflows_max}")),
        ];
        let limits = "ip mptcp limits set subflow 2 add_addr_accepted 2";
        let (key, help, command) = if endpoints.is_empty() {
            let add = |path: &&Outward| {
                format!("ip mptcp endpoint add {} dev {} subflow signal", path.address.address, path.name)
            };
            // The first is the one that connections begin with.
            let adds: Vec<String> = paths.iter().skip(1).map(add).collect();
            ("paths.mptcp-no-endpoints", "paths.mptcp-endpoints-help", format!("{} && {limits}", adds.join(" && ")))
        } else {
            ("paths.mptcp-no-joins", "paths.mptcp-limits-help", limits.to_owned())
        };
        gathered.find(of("paths", Severity::Warning, words(key), shown, help, Some(command)));
    }
    gathered.verdict()
}

/// Less has not filled its window for long, and says nothing of bulk.
const BULK_BYTES: u64 = 1 << 30;
/// The window has to hold what is under way, and what is lost and sent again.
const WINDOWS: u64 = 2;
/// Of the time with something to send, from which the buffer is what bounds.
const LIMITED_SHARE: f64 = 0.1;

/// Bits a second that one connection can have by an interface: of a bond, those of one member, whatever the bond has together.
fn one_connection(host: &Host, name: &str) -> Option<u64> {
    let speed = |name: &String| host.topology.nics.get(name)?.speed_bits;
    grounds(host, name).iter().filter_map(speed).max().or_else(|| speed(&name.to_owned()))
}

fn windows(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let mut sizes = |word, file: &'static str, usable_share| {
        let text = gathered.see(host.system.text(file))?;
        let most = text.split_whitespace().nth(2)?.parse().ok()?;
        Some(Buffer { word, file, text, most, usable: most / usable_share })
    };
    // Half of a receive buffer is for what the kernel itself needs (tcp_adv_win_scale 1).
    let (Some(send), Some(receive)) =
        (sizes("send", "/proc/sys/net/ipv4/tcp_wmem", 1), sizes("receive", "/proc/sys/net/ipv4/tcp_rmem", 2))
    else {
        return gathered.verdict();
    };
    let connections = gathered.see(host.net.connections.as_ref()).map_or(&[][..], |all| &all[..]);
    let own = gathered.see(host.net.addresses.as_ref()).map_or(&[][..], |all| &all[..]);
    let line = |peer| {
        let towards = host.net.towards(peer);
        towards.iter().filter_map(|name| one_connection(host, name)).max()
    };
    // Of each direction the one that lacks most, so that a hundred connections make one finding.
    let mut worst: BTreeMap<&str, (f64, Finding)> = BTreeMap::new();
    // The longest round trip that was judged by.
    let mut longest: Option<(u32, IpAddr)> = None;
    for connection in connections.iter().filter(|c| own.iter().all(|address| address.address != c.peer)) {
        let (Some(rtt), Some(bits)) = (connection.round_trip_us, line(connection.peer)) else { continue };
        if connection.sent_bytes.max(connection.received_bytes) >= BULK_BYTES {
            longest = longest.max(Some((rtt, connection.peer)));
        }
        let under_way = (bits / 8).saturating_mul(u64::from(rtt)) / 1_000_000;
        for (buffer, bytes) in [(&send, connection.sent_bytes), (&receive, connection.received_bytes)] {
            let lacks = under_way as f64 / buffer.most.max(1) as f64;
            let is_known = worst.get(buffer.word).is_some_and(|(known, _)| *known >= lacks);
            if bytes >= BULK_BYTES && buffer.most < WINDOWS.saturating_mul(under_way) && !is_known {
                worst.insert(
                    buffer.word,
                    (lacks, window(connection, rtt, bits, buffer, WINDOWS.saturating_mul(under_way))),
                );
            }
        }
    }
    worst.into_values().for_each(|(_, finding)| gathered.find(finding));
    let fastest = hardware(host).filter_map(|(name, nic)| Some((nic.speed_bits?, name))).max();
    if let Some((bits, name)) = fastest {
        let least = send.most.min(receive.most);
        let milliseconds = (least / WINDOWS) as f64 / (bits as f64 / 8.0) * 1e3;
        let text = |key| Sentence::new(key).with("bytes", least).with("nic", name).with("speed", line_rate(bits));
        let text = |key| text(key).with("ms", format!("{milliseconds:.2}"));
        gathered.fine(match longest {
            Some((rtt, peer)) => text("paths.window-fine").with("measured", f64::from(rtt) / 1e3).with("peer", peer),
            None => text("paths.window-unmeasured"),
        });
    }
    gathered.verdict()
}

/// A sysctl of TCP's buffers: least, at first, at most.
struct Buffer {
    word: &'static str,
    file: &'static str,
    text: String,
    most: u64,
    usable: u64,
}

fn window(of: &Connection, rtt: u32, bits: u64, buffer: &Buffer, needed: u64) -> Finding {
    let carries = buffer.usable as f64 / (f64::from(rtt) / 1e6);
    let limited = of.buffer_limited_us as f64 / of.busy_us.max(1) as f64;
    let is_shown = buffer.word == "send" && limited >= LIMITED_SHARE;
    let mut evidence = vec![
        Evidence::new(buffer.file, &buffer.text),
        Evidence::new(
            format!("ss -ti dst {}", of.peer),
            format!("port {}, minrtt {} ms", of.port, f64::from(rtt) / 1e3),
        ),
    ];
    if is_shown {
        let share = format!("sndbuf_limited {:.0} % of the time with something to send", limited * 100.0);
        evidence.push(Evidence::new(format!("ss -ti dst {}", of.peer), share));
    }
    Finding {
        id: format!("tcp-window/{}", buffer.word),
        check: 38,
        severity: if is_shown { Severity::Warning } else { Severity::Note },
        confidence: if is_shown { Confidence::Certain } else { Confidence::Computed },
        text: Sentence::new(if buffer.word == "send" { "paths.send-window" } else { "paths.receive-window" })
            .with("peer", of.peer)
            .with("ms", f64::from(rtt) / 1e3)
            .with("carries", line_rate((carries * 8.0) as u64))
            .with("speed", line_rate(bits)),
        evidence,
        number: Some(Number {
            is: carries.min(bits as f64 / 8.0),
            could_be: bits as f64 / 8.0,
            unit: "B/s".to_owned(),
        }),
        remedies: vec![Remedy::Apply {
            what: Sentence::new("paths.window-help").with("bytes", needed),
            // More is no number that the kernel takes.
            writes: vec![Write { path: buffer.file.to_owned(), value: larger(&buffer.text, needed.min(0x7fff_ffff)) }],
        }],
    }
}

/// The same least and first size, with another one at most.
fn larger(text: &str, most: u64) -> String {
    let kept: Vec<&str> = text.split_whitespace().take(2).collect();
    format!("{} {most}", kept.join(" "))
}

/// What is left of the bits of USB for a card's packets: 0.42 of 0.625 GB/s at 5 Gbit/s.
const USB_USEFUL: f64 = 0.67;

fn usb(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    // Ports of a root hub are lines of their own; what hangs at the same one shares it.
    let mut shared: BTreeMap<String, Vec<(&String, u64)>> = BTreeMap::new();
    for (name, nic) in hardware(host) {
        let Some(mbits) = nic.usb_mbits else { continue };
        let real = host.system.real(&format!("/sys/class/net/{name}/device")).known().unwrap_or_default();
        let above = std::iter::successors(Some(real.as_str()), |path| path.rsplit_once('/').map(|(above, _)| above));
        let file = above.map(|path| format!("{path}/speed")).find(|file| host.system.has(file));
        let file = file.unwrap_or_else(|| format!("/sys/class/net/{name}/device"));
        let evidence = vec![Evidence::new(&file, mbits)];
        let useful = f64::from(mbits) * 1e6 * USB_USEFUL;
        let words = |key| {
            let text = Sentence::new(key).with("nic", name).with("usb", line_rate(u64::from(mbits) * 1_000_000));
            text.with("useful", line_rate((useful / 1e8).round() as u64 * 100_000_000))
        };
        let help = Remedy::Explain { what: Sentence::new("paths.usb-help"), command: None };
        let finding = |severity, confidence, text, number| Finding {
            id: format!("usb-nic/{name}"),
            check: 39,
            severity,
            confidence,
            text,
            evidence: evidence.clone(),
            number,
            remedies: vec![help.clone()],
        };
        let Some(bits) = nic.speed_bits else { continue };
        if bits as f64 > useful {
            let number = Number { is: useful / 8.0, could_be: bits as f64 / 8.0, unit: "B/s".to_owned() };
            let text = words("paths.usb-slow").with("speed", line_rate(bits));
            gathered.find(finding(Severity::Warning, Confidence::Computed, text, Some(number)));
        } else {
            gathered.find(finding(Severity::Note, Confidence::Likely, words("paths.usb-latency"), None));
        }
        let parts: Vec<&str> = real.split('/').collect();
        let root = parts.iter().position(|part| part.strip_prefix("usb").is_some_and(|n| n.parse::<u32>().is_ok()));
        if let Some(port) = root.map(|root| parts[..parts.len().min(root + 2)].join("/")) {
            shared.entry(port).or_default().push((name, bits));
        }
    }
    for (port, nics) in shared.into_iter().filter(|(_, nics)| nics.len() > 1) {
        let file = format!("{port}/speed");
        let Some(mbits) = gathered.see(host.system.number::<f64>(&file)) else { continue };
        let (useful, sum) = (mbits * 1e6 * USB_USEFUL, nics.iter().map(|(_, bits)| bits).sum::<u64>());
        if sum as f64 > useful {
            let names: Vec<&str> = nics.iter().map(|(name, _)| name.as_str()).collect();
            gathered.find(Finding {
                id: format!("usb-nic/{}", port.rsplit('/').next().unwrap_or_default()),
                check: 39,
                severity: Severity::Warning,
                confidence: Confidence::Computed,
                text: Sentence::new("paths.usb-shared")
                    .with("nics", names.join(", "))
                    .with("sum", line_rate(sum))
                    .with("usb", line_rate((mbits * 1e6) as u64)),
                evidence: vec![Evidence::new(file, mbits)],
                number: Some(Number { is: useful / 8.0, could_be: sum as f64 / 8.0, unit: "B/s".to_owned() }),
                remedies: vec![Remedy::Explain { what: Sentence::new("paths.usb-help"), command: None }],
            });
        }
    }
    gathered.verdict()
}

/// So the provider of a cloud counts packets that it held back or dropped because of the instance's size.
const ALLOWANCE: &str = "_allowance_exceeded";

fn cloud_limits(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    for (name, _) in hardware(host) {
        let counted = Counted::of(host, name);
        let limits: Vec<(&String, u64)> =
            counted.now.iter().filter(|(counter, _)| counter.ends_with(ALLOWANCE)).map(|(c, v)| (c, *v)).collect();
        if !limits.is_empty() && limits.iter().all(|(_, value)| *value == 0) {
            gathered.fine(Sentence::new("paths.cloud-fine").with("nic", name));
        }
        for (counter, value) in limits.into_iter().filter(|(_, value)| *value > 0) {
            let growth = counted.growth(counter).filter(|growth| *growth > 0);
            let words = |key| Sentence::new(key).with("nic", name).with("limit", counter.trim_end_matches(ALLOWANCE));
            gathered.find(Finding {
                id: format!("cloud-limit/{name}/{counter}"),
                check: 40,
                severity: if growth.is_some() { Severity::Warning } else { Severity::Note },
                confidence: Confidence::Certain,
                text: match growth {
                    Some(growth) => words("paths.cloud-now").with("packets", growth).with("seconds", counted.seconds()),
                    None => words("paths.cloud-before").with("packets", value),
                },
                evidence: vec![counted.evidence(name, counter)],
                number: None,
                remedies: vec![Remedy::Explain { what: Sentence::new("paths.cloud-help"), command: None }],
            });
        }
    }
    gathered.verdict()
}
