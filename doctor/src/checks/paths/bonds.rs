//! Check 33: bonds that carry by fewer members than they have, or than they could.

use super::super::super::Host;
use super::super::super::findings::{
    Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict, Write,
};
use super::super::nics::{Gathered, in_table, named};
use crate::interfaces::ours;
use crate::show::{self, line_rate};
use std::collections::BTreeSet;

/// Of what a bond moves, from which one member is said to carry nearly all.
const NEARLY_ALL: f64 = 0.95;
/// Bytes a second of a bond from which its shares are judged: less may be a single copy that needs no second member.
const IN_USE: f64 = 50e6;
/// And the share of a member's line that it has to move: below it, one member is enough for some time to come.
const BUSY: f64 = 0.30;
/// Share of a member's line from which it is what the bond waits for.
const FULL: f64 = 0.80;

/// A bond that is up, with members that carry.
struct Bond<'a> {
    name: &'a str,
    folder: String,
    mode: String,
    /// By what it chooses a member, as the kernel prints it: `layer2 0`.
    hash: String,
    members: Vec<&'a str>,
}

impl Bond<'_> {
    /// It chooses a member for each flow.
    fn hashes(&self) -> bool {
        self.is_lacp() || self.mode.starts_with("balance-xor")
    }

    fn is_lacp(&self) -> bool {
        self.mode.starts_with("802.3ad")
    }

    fn hash_file(&self) -> String {
        format!("{}/xmit_hash_policy", self.folder)
    }

    fn chooses_by_hardware(&self) -> bool {
        self.hashes() && self.hash.split_whitespace().next() == Some("layer2")
    }

    /// A finding of one of its remedies.
    fn find(&self, word: &str, severity: Severity, text: Sentence, evidence: Vec<Evidence>, remedy: Remedy) -> Finding {
        Finding {
            id: format!("bond/{}/{word}", self.name),
            check: 33,
            severity,
            confidence: Confidence::Certain,
            text: text.with("bond", self.name).with("members", self.members.len()),
            evidence,
            number: None,
            remedies: vec![remedy],
        }
    }

    /// What has several connections use several members.
    fn by_ports(&self) -> Remedy {
        let what = Sentence::new("paths.bond-hash-help").with("bond", self.name);
        let writes = vec![Write { path: self.hash_file(), value: "layer3+4".to_owned() }];
        Remedy::Apply { what, writes }
    }
}

fn help(key: &'static str) -> Remedy {
    Remedy::Explain { what: Sentence::new(key), command: None }
}

/// What shows that a member has no link. None: it has one, or nothing is told of it.
fn without_link(host: &Host, gathered: &mut Gathered, member: &str) -> Option<Evidence> {
    if host.topology.nics.get(member)?.up {
        return None;
    }
    let folder = format!("/sys/class/net/{member}");
    // Of an interface that was set down the kernel does not tell `carrier`.
    ["carrier", "operstate"].into_iter().find_map(|file| {
        let path = format!("{folder}/{file}");
        let told = gathered.see(host.system.text(&path))?;
        Some(told)
            .filter(|told| matches!(told.as_str(), "0" | "down" | "lowerlayerdown" | "notpresent"))
            .map(|told| Evidence::new(path, told))
    })
}

/// Some members have no link: what is left carries, with less speed or nothing behind it.
fn degraded(bond: &Bond, members: &str, down: &[(&str, Evidence)], together: Option<Evidence>) -> Finding {
    let names: Vec<&str> = down.iter().map(|(name, _)| *name).collect();
    let names = show::names(&names);
    let text = Sentence::new("paths.bond-down")
        .with("down", &names)
        .with("mode", &bond.mode)
        .with("all", members.split_whitespace().count());
    let mut evidence: Vec<Evidence> = down.iter().map(|(_, shown)| shown.clone()).collect();
    evidence.push(Evidence::new(format!("{}/slaves", bond.folder), members));
    evidence.extend(together);
    let what = Sentence::new("paths.bond-down-help").with("down", names);
    bond.find("members", Severity::Warning, text, evidence, Remedy::Explain { what, command: None })
}

pub(super) fn bonds(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    for (name, _) in ours(host).filter(|(_, nic)| nic.kind == "bond" && nic.up) {
        let folder = format!("/sys/class/net/{name}/bonding");
        let mut text = |file: &str| gathered.see(host.system.text(&format!("{folder}/{file}")));
        let (Some(mode), Some(members)) = (text("mode"), text("slaves")) else { continue };
        let (partner, ports) = (text("ad_partner_mac"), text("ad_num_ports"));
        let hash = text("xmit_hash_policy").unwrap_or_default();
        let is_up = |member: &&str| host.topology.nics.get(*member).is_some_and(|nic| nic.up);
        let carrying: Vec<&str> = members.split_whitespace().filter(is_up).collect();
        let down: Vec<(&str, Evidence)> = members
            .split_whitespace()
            .filter_map(|member| Some((member, without_link(host, &mut gathered, member)?)))
            .collect();
        let bond = Bond { name, folder, mode, hash, members: carrying };
        let (carrying, folder) = (bond.members.len(), &bond.folder);
        let together = ports.and_then(|ports| ports.parse::<usize>().ok()).filter(|ports| bond.is_lacp() && *ports > 0);
        let few = together.filter(|ports| *ports < carrying);
        let few_shown = few.map(|ports| Evidence::new(format!("{folder}/ad_num_ports"), ports));
        if !down.is_empty() {
            gathered.find(degraded(&bond, &members, &down, few_shown.clone()));
        }
        if carrying < 2 || bond.mode.starts_with("active-backup") || bond.mode.starts_with("broadcast") {
            gathered.fine(Sentence::new("paths.bond-one").with("bond", name).with("mode", &bond.mode));
            continue;
        }
        if let Some(partner) = partner.filter(|partner| bond.is_lacp() && partner == "00:00:00:00:00:00") {
            let evidence = vec![Evidence::new(format!("{folder}/ad_partner_mac"), partner)];
            let text = Sentence::new("paths.bond-no-partner");
            gathered.find(bond.find("partner", Severity::Error, text, evidence, help("paths.bond-partner-help")));
            continue;
        }
        if let Some((ports, shown)) = few.zip(few_shown).filter(|_| down.is_empty()) {
            let evidence = vec![shown, Evidence::new(format!("{folder}/slaves"), &members)];
            let text = Sentence::new("paths.bond-few").with("ports", ports);
            gathered.find(bond.find("members", Severity::Warning, text, evidence, help("paths.bond-partner-help")));
        }
        if bond.chooses_by_hardware() {
            let Some(only) = only_neighbour(host, &mut gathered, &bond) else { continue };
            if let Some(only) = only {
                let shown = Evidence::new(format!("ip neighbour show dev {name}"), format!("only {only}"));
                let evidence = vec![Evidence::new(bond.hash_file(), &bond.hash), shown];
                let text = Sentence::new("paths.bond-layer2");
                gathered.find(bond.find("hash", Severity::Warning, text, evidence, bond.by_ports()));
                continue;
            }
        }
        // Of members that are left out it is told already that they carry nothing.
        let uneven = [SENT, RECEIVED].map(|direction| uneven(host, &bond, direction).filter(|_| few.is_none()));
        let is_even = uneven.iter().all(Option::is_none);
        uneven.into_iter().flatten().for_each(|finding| gathered.find(finding));
        if is_even {
            let one = bond.members.iter().filter_map(|member| host.topology.nics.get(*member)?.speed_bits).max();
            let text = Sentence::new("paths.bond-fine").with("bond", name).with("members", carrying);
            let how = if bond.hashes() { &bond.hash } else { &bond.mode };
            gathered.fine(text.with("hash", how).with("speed", one.map_or("?".to_owned(), line_rate)));
        }
    }
    gathered.verdict()
}

/// The hardware address that all neighbours of a bond have; the inner None: there are several, or none. The outer one: nobody tells.
fn only_neighbour(host: &Host, gathered: &mut Gathered, bond: &Bond) -> Option<Option<String>> {
    let neighbours = gathered.see(host.net.neighbours.clone())?;
    // It may be reached by a VLAN or a bridge above the bond.
    let over =
        |interface: &str| interface == bond.name || named(host, interface, "lower_").any(|low| low == *bond.name);
    let known = neighbours.iter().filter(|neighbour| over(&neighbour.interface));
    let hardware: BTreeSet<&str> = known.map(|neighbour| neighbour.hardware.as_str()).collect();
    Some(hardware.first().filter(|_| hardware.len() == 1).map(|only| (*only).to_owned()))
}

/// A direction: its word, and its bytes in the kernel's table.
type Direction = (&'static str, usize);
const SENT: Direction = ("sent", 8);
const RECEIVED: Direction = ("received", 0);

/// One member carried nearly all that a bond moved in a direction between the looks. Which member receives, the switch chooses.
fn uneven(host: &Host, bond: &Bond, (word, field): Direction) -> Option<Finding> {
    let (before, time) = host.earlier.as_ref()?;
    let seconds = Some(time.as_secs_f64()).filter(|seconds| *seconds > 0.0)?;
    let grown = |member: &&'_ str| {
        let now = in_table(&host.counters, member, field)?;
        Some(now.checked_sub(in_table(before, member, field)?)? as f64)
    };
    let all: Vec<(&str, f64)> =
        bond.members.iter().map(|member| Some((*member, grown(member)?))).collect::<Option<_>>()?;
    let total: f64 = all.iter().map(|(_, bytes)| bytes).sum();
    let (busiest, most) = all.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    if total / seconds < IN_USE || most < total * NEARLY_ALL {
        return None;
    }
    let line = host.topology.nics.get(busiest)?.speed_bits.map(|bits| bits as f64 / 8.0);
    let rate = most / seconds;
    let used = line.map(|line| rate / line);
    // One packet after the other goes by the next member: what is uneven there has no flow as its reason.
    let in_turn = word == "sent" && bond.mode.starts_with("balance-rr");
    // These receive as the bond itself has told the others, balance-tlb by one member alone: no switch chooses.
    let by_itself = word == "received" && ["balance-tlb", "balance-alb"].iter().any(|mode| bond.mode.starts_with(mode));
    if in_turn || by_itself || used.is_some_and(|used| used < BUSY) {
        return None;
    }
    // Until it is full, its being the only one costs nothing.
    let is_full = used.is_some_and(|used| used >= FULL);
    let key = if word == "sent" { "paths.bond-uneven-sent" } else { "paths.bond-uneven-received" };
    let text = Sentence::new(key)
        .with("member", busiest)
        .with("share", show::percent(most / total))
        .with("rate", format!("{}/s", show::bytes(total / seconds)))
        .with("seconds", seconds)
        .with("hash", if bond.hashes() { &bond.hash } else { &bond.mode });
    let mut evidence: Vec<Evidence> = all
        .iter()
        .map(|(member, bytes)| {
            Evidence::new("/proc/net/dev", format!("{member}: {word} +{bytes:.0} bytes in {seconds} s"))
        })
        .collect();
    evidence.push(Evidence::new(bond.hash_file(), &bond.hash));
    let by_ports = bond.hash.starts_with("layer3+4") || bond.hash.starts_with("encap3+4");
    let remedy = match (word, bond.hashes() && !by_ports) {
        ("sent", true) => bond.by_ports(),
        ("sent", false) => help("paths.bond-flows-help"),
        _ => help("paths.bond-switch-help"),
    };
    let severity = if is_full { Severity::Warning } else { Severity::Note };
    let mut finding = bond.find(&format!("share-{word}"), severity, text, evidence, remedy);
    // One connection that is meant to be alone looks the same.
    finding.confidence = Confidence::Likely;
    finding.number = Some(Number { is: most / total, could_be: 1.0 / bond.members.len() as f64, unit: "1".to_owned() });
    Some(finding)
}
