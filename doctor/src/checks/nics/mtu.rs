//! Check 29: sizes of packets that contradict each other, and 1500 bytes on a fast line.
//!
//! One interface gets one advice: what lies below, or above, interfaces whose sizes contradict each other is told with these, and not
//! once more by itself.

use super::super::super::Host;
use super::super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::super::paths::grounds;
use super::{FAST_BITS, Gathered, named, way_in};
use crate::formulas::tcp_over_ethernet;
use crate::interfaces::{hardware, ours};
use crate::show::line_rate;
use forebay_host::topology::Nic;
use std::collections::{BTreeMap, BTreeSet};

const ETHERNET_MTU: u32 = 1500;
const JUMBO_MTU: u32 = 9000;
/// As deep as anybody lays interfaces over each other.
const DEPTH_MAX: usize = 8;

type Nics<'a> = BTreeMap<&'a String, &'a Nic>;

pub(super) fn mtu(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    let nics: Nics = ours(host).collect();
    // Interfaces of which a size was told already, with all that lies below them.
    let mut told: BTreeSet<String> = BTreeSet::new();
    let layered = |nic: &Nic| matches!(nic.kind.as_str(), "bond" | "bridge" | "vlan") && nic.mtu > 0;
    for (name, nic) in nics.iter().filter(|(_, nic)| layered(nic)) {
        let below: Vec<_> = named(host, name, "lower_").filter_map(|lower| nics.get_key_value(&lower)).collect();
        let counts = |lower: &Nic| lower.mtu > 0 && (nic.kind != "bridge" || lower.up);
        let below: Vec<_> = below.into_iter().filter(|(_, lower)| counts(lower)).collect();
        let Some((small, smallest)) = below.iter().map(|(name, lower)| (name, lower.mtu)).min_by_key(|(_, mtu)| *mtu)
        else {
            continue;
        };
        let mut tell = |finding| {
            gathered.find(finding);
            told.insert((*name).clone());
            told.extend(below.iter().map(|(lower, _)| (**lower).clone()));
            told.extend(grounds(host, name));
        };
        // Where a port takes what the bridge sends, the bridge's size is meant, and another port is behind: a guest's, mostly.
        let fits = below.iter().find(|(_, lower)| nic.kind == "bridge" && lower.mtu >= nic.mtu);
        if let Some((large, lower)) = fits.filter(|_| nic.mtu > smallest) {
            tell(unlike_ports(name, large, lower.mtu, small, smallest));
        } else if nic.mtu > smallest {
            tell(mismatch(name, nic.mtu, small, smallest));
        } else if let Some((large, large_mtu)) = jumbo_port(host, name, nic, &below, smallest) {
            tell(unlike_ports(name, &large, large_mtu, small, smallest));
        } else {
            gathered
                .fine(Sentence::new("nics.mtu-fine").with("nic", name).with("mtu", nic.mtu).with("lower", smallest));
        }
    }
    for (name, nic) in nics.iter().filter(|(_, nic)| nic.kind == "bridge" && nic.mtu > 0) {
        let below = grounds(host, name);
        let Some(path) = larger_below(host, &nics, name, nic.mtu) else { continue };
        if [name].into_iter().copied().chain(&path).chain(&below).any(|part| told.contains(part)) {
            continue;
        }
        gathered.find(unused(host, &nics, name, &path));
        told.insert((*name).clone());
        told.extend(path);
        told.extend(below);
    }
    for (name, nic) in hardware(host).filter(|(name, nic)| !nic.infiniband && !told.contains(*name)) {
        if let Some(finding) = of_1500(host, &nics, name, nic) {
            gathered.find_once(finding);
        } else if nic.mtu > ETHERNET_MTU && nic.speed_bits.is_some_and(|bits| bits >= FAST_BITS) {
            gathered.fine(Sentence::new("nics.mtu-jumbo").with("nic", name).with("mtu", nic.mtu));
        }
    }
    gathered.verdict()
}

/// A fast card whose packets have 1500 bytes, where it and its slot can do more. The members of a bond have the bond's.
fn of_1500(host: &Host, nics: &Nics, name: &String, nic: &Nic) -> Option<Finding> {
    let bits = nic.speed_bits.filter(|bits| *bits >= FAST_BITS)?;
    // Of a driver that takes no more, nobody can want more. 0: it takes any, or the kernel does not say.
    let most = host.net.links.as_ref().known().and_then(|links| links.get(name)).map_or(0, |link| link.mtu_max);
    if nic.mtu != ETHERNET_MTU || most != 0 && most < JUMBO_MTU {
        return None;
    }
    let (is, could_be) = (tcp_over_ethernet(bits, ETHERNET_MTU), tcp_over_ethernet(bits, JUMBO_MTU));
    let could_be = could_be.min(way_in(host, nic));
    if could_be <= is {
        return None;
    }
    let master =
        |nic: &Nic, kind| nic.master.as_ref().and_then(|name| nics.get_key_value(name)).filter(|m| m.1.kind == kind);
    let (top, of_top) = master(nic, "bond").map_or((name, nic), |(bond, of_bond)| (*bond, *of_bond));
    let remedy = match master(of_top, "bridge") {
        Some((bridge, _)) => {
            let what = Sentence::new("nics.mtu-bridge-help").with("nic", top).with("bridge", bridge);
            Remedy::Explain { what, command: None }
        }
        None => Remedy::Explain {
            what: Sentence::new("nics.mtu-1500-help"),
            command: Some(format!("ip link set dev {top} mtu {JUMBO_MTU}")),
        },
    };
    let mut evidence = vec![mtu_of(name, nic.mtu)];
    evidence.extend((top != name).then(|| mtu_of(top, of_top.mtu)));
    evidence.push(Evidence::new(format!("/sys/class/net/{name}/speed"), bits / 1_000_000));
    Some(Finding {
        id: format!("nic-mtu/{top}"),
        check: 29,
        severity: Severity::Note,
        confidence: Confidence::Computed,
        text: Sentence::new("nics.mtu-1500").with("nic", top).with("speed", line_rate(bits)),
        evidence,
        number: Some(Number { is, could_be, unit: "B/s".to_owned() }),
        remedies: vec![remedy],
    })
}

/// A port of a bridge that takes larger packets than another one, and that nothing but the bridge uses.
fn jumbo_port(host: &Host, name: &str, nic: &Nic, below: &[(&&String, &&Nic)], smallest: u32) -> Option<(String, u32)> {
    if nic.kind != "bridge" {
        return None;
    }
    let large = below.iter().filter(|(_, lower)| lower.mtu > smallest);
    let mut only_here = large.filter(|(port, _)| named(host, port, "upper_").all(|upper| upper == name));
    only_here.next().map(|(port, lower)| (port.to_string(), lower.mtu))
}

/// The way down from a bridge to an interface that takes larger packets than the bridge, and that nothing else makes use of: the
/// interfaces below the bridge, the one with the larger packets last.
fn larger_below(host: &Host, nics: &Nics, bridge: &str, mtu: u32) -> Option<Vec<String>> {
    let addresses = host.net.addresses.as_ref().known();
    let mut left: Vec<Vec<String>> = vec![vec![bridge.to_owned()]];
    // Each is looked at once: what a record has there may go round, or branch without end.
    let mut seen = BTreeSet::from([bridge.to_owned()]);
    while let Some(path) = left.pop() {
        if path.len() > DEPTH_MAX {
            continue;
        }
        let above = path.last()?;
        let is_vlan = nics.get(above).is_some_and(|nic| nic.kind == "vlan");
        for lower in named(host, above, "lower_") {
            let Some(nic) = nics.get(&lower).filter(|nic| nic.up) else { continue };
            if !seen.insert(lower.clone()) {
                continue;
            }
            // What lies below a VLAN has packets of its own, unless it has no address.
            let is_bare = !is_vlan
                || addresses.is_some_and(|all| all.iter().all(|address| address.interface != lower || !address.global));
            if !is_bare || nic.kind == "veth" || named(host, &lower, "upper_").any(|upper| upper != *above) {
                continue;
            }
            let larger = nic.mtu > mtu;
            let path: Vec<String> = path.iter().cloned().chain([lower]).collect();
            if larger {
                return Some(path.into_iter().skip(1).collect());
            }
            left.push(path);
        }
    }
    None
}

fn mtu_of(name: &str, mtu: u32) -> Evidence {
    Evidence::new(format!("/sys/class/net/{name}/mtu"), mtu)
}

/// A bridge that sends smaller packets than what lies below it, and is used by it alone, takes.
fn unused(host: &Host, nics: &Nics, bridge: &str, path: &[String]) -> Finding {
    let mtu = |name: &str| nics.iter().find(|(found, _)| found.as_str() == name).map_or(0, |(_, nic)| nic.mtu);
    let lower = path.last().map_or(bridge, String::as_str);
    let (bridge_mtu, lower_mtu) = (mtu(bridge), mtu(lower));
    // From below: none may be larger than what it lies on. Other ports would have to follow, and with them guests.
    let small = path.iter().rev().map(String::as_str).chain([bridge]).filter(|name| mtu(name) < lower_mtu);
    let commands: Vec<String> = small.map(|name| format!("ip link set dev {name} mtu {lower_mtu}")).collect();
    let alone = named(host, bridge, "lower_").count() == 1;
    let fast = nics.iter().any(|(name, nic)| {
        path.iter().any(|port| port == *name) && nic.speed_bits.is_some_and(|bits| bits >= FAST_BITS)
    });
    Finding {
        id: format!("nic-mtu/{bridge}/{lower}"),
        check: 29,
        severity: if fast { Severity::Warning } else { Severity::Note },
        confidence: Confidence::Certain,
        text: Sentence::new("nics.mtu-unused")
            .with("bridge", bridge)
            .with("bridge-mtu", bridge_mtu)
            .with("lower", lower)
            .with("lower-mtu", lower_mtu),
        evidence: path.iter().map(String::as_str).chain([bridge]).map(|name| mtu_of(name, mtu(name))).collect(),
        number: None,
        remedies: vec![Remedy::Explain {
            what: Sentence::new("nics.mtu-unused-help")
                .with("bridge", bridge)
                .with("bridge-mtu", bridge_mtu)
                .with("lower", lower)
                .with("lower-mtu", lower_mtu),
            command: alone.then(|| commands.join(" && ")),
        }],
    }
}

fn mismatch(upper: &str, upper_mtu: u32, lower: &str, lower_mtu: u32) -> Finding {
    Finding {
        id: format!("nic-mtu/{upper}/{lower}"),
        check: 29,
        severity: Severity::Error,
        confidence: Confidence::Certain,
        text: Sentence::new("nics.mtu-mismatch")
            .with("upper", upper)
            .with("upper-mtu", upper_mtu)
            .with("lower", lower)
            .with("lower-mtu", lower_mtu),
        evidence: vec![mtu_of(upper, upper_mtu), mtu_of(lower, lower_mtu)],
        number: None,
        remedies: vec![Remedy::Explain {
            what: Sentence::new("nics.mtu-mismatch-help").with("upper", upper).with("lower-mtu", lower_mtu),
            command: Some(format!("ip link set dev {upper} mtu {lower_mtu}")),
        }],
    }
}

fn unlike_ports(bridge: &str, large: &str, large_mtu: u32, small: &str, small_mtu: u32) -> Finding {
    Finding {
        id: format!("nic-mtu/{bridge}/{small}"),
        check: 29,
        severity: Severity::Note,
        confidence: Confidence::Certain,
        text: Sentence::new("nics.mtu-ports")
            .with("bridge", bridge)
            .with("large", large)
            .with("large-mtu", large_mtu)
            .with("small", small)
            .with("small-mtu", small_mtu),
        evidence: vec![mtu_of(large, large_mtu), mtu_of(small, small_mtu)],
        number: None,
        remedies: vec![Remedy::Explain { what: Sentence::new("nics.mtu-ports-help"), command: None }],
    }
}
