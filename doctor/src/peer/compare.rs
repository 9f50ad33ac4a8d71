//! What two sides of a link say together: a pure function of what both have seen.
//!
//! Invariant: what only one side could tell is no finding about the other one.

use super::{BothEnds, Channel, End, Interface, LinkEnd, Probe, Silence, Tcp};
use crate::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity};
use crate::matrix::report::table;
use crate::report::{FineSaid, Hidden, Report, Said};
use crate::show::line_rate;
use crate::words::{Language, say};
use forebay_host::net::same_subnet;
use serde::{Deserialize, Serialize};

/// The word of what is fine or hidden here.
const WORD: &str = "peer";
/// Checks of the list that ask the same of one host; what no check of one host asks has none.
const NO_CHECK: u8 = 0;
const LINK_MODE: u8 = 28;
const MTU: u8 = 29;
const RDMA: u8 = 32;
const ONE_SUBNET: u8 = 34;
const MPTCP: u8 = 36;
/// A thousandth that is lost holds a TCP connection with packets of 1500 bytes below 300 MB/s at a round trip of 0.2 ms
/// (Mathis et al. 1997: 1.22 × segment / (round trip × √loss)).
const RESENT_SHARE: f64 = 0.001;
/// Of fewer segments one lost start says too much.
const SEGMENTS_MIN: u64 = 10_000;
/// Events of two nodes are put in order by the second.
const CLOCK_MAX_MS: i128 = 1000;

/// A pair of addresses, in words.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PairSaid {
    /// The pair's end at this node.
    pub here: String,
    /// The pair's end at the other node.
    pub there: String,
    /// What connects the two ends.
    pub path: String,
    /// The worst of what was found about it, or that nothing was.
    pub verdict: String,
}

/// What comparing both sides has found.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// Each pair of addresses, with its verdict.
    pub pairs: Vec<PairSaid>,
    /// Findings, worst first; what is fine; what was not seen.
    #[serde(flatten)]
    pub report: Report,
}

impl Compared {
    /// The comparison as text for people.
    pub fn text(&self, sides: &BothEnds, language: Language) -> String {
        let word = |key: &'static str| say(language, &Sentence::new(key));
        let head = vec![sides.here.node.clone(), sides.peer.clone(), word("peer.path"), word("peer.verdict")];
        let row =
            |pair: &PairSaid| vec![pair.here.clone(), pair.there.clone(), pair.path.clone(), pair.verdict.clone()];
        let rows = [head].into_iter().chain(self.pairs.iter().map(row)).collect();
        let mut text = String::new();
        let program = sides.there.as_ref().map_or("?", |there| there.program.as_str());
        let title = Sentence::new("peer.title")
            .with("here", &sides.here.node)
            .with("mine", &sides.here.program)
            .with("there", &sides.peer)
            .with("theirs", program);
        table(&mut text, &say(language, &title), rows);
        if self.report.findings.is_empty() && self.report.hidden.is_empty() {
            text.extend([word("doctor.none").as_str(), "\n"]);
        }
        text + &self.report.without_headline(language, true)
    }
}

/// One direction of a pair: from an end to the other.
#[derive(Clone, Copy)]
struct Way<'a> {
    from: &'a LinkEnd,
    end: &'a End,
    to_name: &'a str,
    to: Option<(&'a LinkEnd, &'a End)>,
}

impl<'a> Way<'a> {
    fn id(&self, word: &str) -> String {
        format!("peer-{word}/{}-{}", self.end.pair.own, self.end.pair.peer)
    }

    /// The interface that carries it at its beginning.
    fn nic(&self) -> Option<&'a Interface> {
        carries(self.from, self.end)
    }

    /// And at its end.
    fn nic_there(&self) -> Option<&'a Interface> {
        self.to.and_then(|(side, end)| carries(side, end))
    }

    /// No router lies between.
    fn is_direct(&self) -> bool {
        let near = |end: &End| {
            let Some(prefix) = end.prefix else { return false };
            end.via.is_none() && end.leaves_by.is_some() && same_subnet(end.pair.own, end.pair.peer, prefix)
        };
        near(self.end) && self.to.is_some_and(|(_, end)| near(end))
    }

    fn words(&self, key: &'static str) -> Sentence {
        let pair = self.end.pair;
        Sentence::new(key)
            .with("from", &self.from.node)
            .with("to", self.to_name)
            .with("own", pair.own)
            .with("peer", pair.peer)
    }

    fn probe_evidence(&self) -> Option<Evidence> {
        let pair = self.end.pair;
        let source = format!("{}: UDP {} > {}, do not fragment", self.from.node, pair.own, pair.peer);
        let value = match &self.end.probe {
            Probe::Carried { bytes } => format!("{bytes} bytes: arrived"),
            Probe::Lost { bytes, limit: Some(limit) } => {
                format!("{bytes} bytes: refused on the way, which takes {limit}")
            }
            Probe::Lost { bytes, limit: None } => format!("{bytes} bytes: no answer; small ones: answered"),
            Probe::Silent | Probe::NotSent { .. } => return None,
        };
        Some(Evidence::new(source, value))
    }

    fn tcp_evidence(&self) -> Option<Evidence> {
        let pair = self.end.pair;
        let tcp = self.end.tcp.as_ref()?;
        Some(Evidence::new(format!("{}: ss -tin dst {}", self.from.node, pair.peer), format!("pmtu:{}", tcp.path_mtu)))
    }
}

fn carries<'a>(side: &'a LinkEnd, end: &End) -> Option<&'a Interface> {
    side.looked.interface(end.leaves_by.as_ref().or(end.interface.as_ref())?)
}

fn link_evidence(node: &str, nic: &Interface) -> Evidence {
    Evidence::new(format!("{node}: ip link show dev {}", nic.name), format!("mtu {}", nic.mtu))
}

fn explain(what: Sentence, command: Option<String>) -> Remedy {
    Remedy::Explain { what, command }
}

struct Comparing<'a> {
    sides: &'a BothEnds,
    findings: Vec<Finding>,
    fine: Vec<(u8, Sentence)>,
    hidden: Vec<(String, Sentence)>,
}

/// Compares, and says what was found in a language.
pub fn compare(sides: &BothEnds, language: Language) -> Compared {
    let mut comparing = Comparing { sides, findings: Vec::new(), fine: Vec::new(), hidden: Vec::new() };
    let mut pairs = Vec::new();
    comparing.silence();
    for here in &sides.here.looked.ends {
        let there = sides.there.as_ref().and_then(|side| Some((side, end_of(side, here)?)));
        let before = comparing.findings.len();
        comparing.pair(here, there);
        let worst = comparing.findings[before..].iter().map(|finding| finding.severity).max();
        pairs.push((here, there, worst));
    }
    comparing.ways();
    comparing.clocks();
    comparing.unseen();
    let said = |(here, there, worst): (&End, Option<(&LinkEnd, &End)>, Option<Severity>)| {
        let key = match worst {
            Some(Severity::Error) => "severity.error",
            Some(Severity::Warning) => "severity.warning",
            Some(Severity::Note) => "severity.note",
            None if there.is_some() => "peer.good",
            None => "peer.one-side",
        };
        PairSaid {
            here: show_end(&sides.here, here),
            there: there.map_or_else(|| here.pair.peer.to_string(), |(side, end)| show_end(side, end)),
            path: show_path(sides, here, there, language),
            verdict: say(language, &Sentence::new(key)),
        }
    };
    let pairs = pairs.into_iter().map(said).collect();
    Compared { pairs, report: comparing.report(language) }
}

fn end_of<'a>(side: &'a LinkEnd, other: &End) -> Option<&'a End> {
    side.looked.ends.iter().find(|end| end.pair.seen_from_there() == other.pair)
}

fn show_end(side: &LinkEnd, end: &End) -> String {
    let nic = carries(side, end);
    let mut parts = vec![end.pair.own.to_string()];
    parts.extend(nic.map(|nic| nic.name.clone()));
    let speed = nic.filter(|nic| nic.is_line).and_then(|nic| nic.speed_mbit);
    parts.extend(speed.map(|mbit| line_rate(u64::from(mbit) * 1_000_000)));
    parts.extend(nic.map(|nic| format!("MTU {}", nic.mtu)));
    parts.join(" ")
}

fn show_path(sides: &BothEnds, here: &End, there: Option<(&LinkEnd, &End)>, language: Language) -> String {
    let mut parts = Vec::new();
    let key = channel_of(sides, here).map(|(_, channel)| if channel.up { "peer.up" } else { "peer.down" });
    parts.extend(key.map(|key| say(language, &Sentence::new(key))));
    let trips = [Some(here), there.map(|(_, end)| end)];
    let trip = trips.into_iter().flatten().filter_map(|end| end.tcp.as_ref()?.round_trip_us).min();
    parts.extend(trip.map(|us| format!("{:.3} ms", f64::from(us) / 1e3)));
    let nics = [carries(&sides.here, here), there.and_then(|(side, end)| carries(side, end))];
    if nics.iter().all(|nic| nic.is_some_and(|nic| nic.active_rdma().is_some())) {
        parts.push("RDMA".to_owned());
    }
    parts.join(", ")
}

/// The channel of a pair, by the node that begins it; the other one does not know of those that are down.
fn channel_of<'a>(sides: &'a BothEnds, here: &End) -> Option<(&'a LinkEnd, &'a Channel)> {
    let (side, pair) = match here.pair.calls {
        true => (&sides.here, here.pair),
        false => (sides.there.as_ref()?, here.pair.seen_from_there()),
    };
    let is_it = |channel: &&Channel| (channel.own, channel.peer) == (Some(pair.own), Some(pair.peer));
    Some((side, side.channels.iter().find(is_it)?))
}

impl Comparing<'_> {
    fn report(self, language: Language) -> Report {
        let said = |finding: Finding| Said { says: String::new(), help: Vec::new(), finding };
        let mut findings: Vec<Said> = self.findings.into_iter().map(said).collect();
        findings.sort_by_key(|said| (std::cmp::Reverse(said.finding.severity), said.finding.check));
        let word = WORD.to_owned();
        let fine = |(check, text)| FineSaid { check, word: word.clone(), text, says: String::new() };
        let hide = |(what, text)| Hidden { check: NO_CHECK, word: word.clone(), what, text, how: String::new() };
        let report = Report {
            findings,
            fine: self.fine.into_iter().map(fine).collect(),
            hidden: self.hidden.into_iter().map(hide).collect(),
            ..Report::default()
        };
        report.spoken(language)
    }

    fn find(
        &mut self,
        id: String,
        check: u8,
        severity: Severity,
        text: Sentence,
        evidence: Vec<Evidence>,
    ) -> &mut Finding {
        let confidence = Confidence::Certain;
        self.findings.push(Finding {
            id,
            check,
            severity,
            confidence,
            text,
            evidence,
            number: None,
            remedies: Vec::new(),
        });
        self.findings.last_mut().expect("it was just pushed")
    }

    fn silence(&mut self) {
        let peer = &self.sides.peer;
        match &self.sides.silence {
            None => {}
            Some(Silence::Older) => {
                self.hidden.push((peer.clone(), Sentence::new("peer.older").with("peer", peer)));
            }
            Some(Silence::Failed { why }) => {
                self.hidden.push((format!("{peer}: {why}"), Sentence::new("peer.ask-there").with("peer", peer)));
            }
            Some(Silence::NoAnswer { waited_s, linked, down_since }) => {
                let channel = |channel: &Channel| {
                    let state = if channel.up { "up" } else { channel.why.as_deref().unwrap_or("being begun") };
                    let to = channel.peer.map_or_else(|| "?".to_owned(), |peer| peer.to_string());
                    Evidence::new(format!("{}: forebay node list, channel to {to}", self.sides.here.node), state)
                };
                let mut evidence: Vec<Evidence> = self.sides.here.channels.iter().map(channel).collect();
                evidence.extend(down_since.as_ref().map(|since| {
                    Evidence::new(format!("{}: forebay events --kind link-down", self.sides.here.node), since)
                }));
                if evidence.is_empty() {
                    let source = format!("{}: forebay node list", self.sides.here.node);
                    evidence.push(Evidence::new(source, "no channel"));
                }
                let reaches = |end: &End| matches!(end.probe, Probe::Carried { .. });
                let key = match (linked, self.sides.here.looked.ends.iter().any(reaches), down_since) {
                    (true, _, _) => "peer.mute",
                    (false, true, Some(_)) => "peer.stopped-since",
                    (false, true, None) => "peer.stopped",
                    (false, false, Some(_)) => "peer.gone-since",
                    (false, false, None) => "peer.gone",
                };
                let mut text = Sentence::new(key).with("peer", peer).with("seconds", waited_s);
                if let (false, Some(since)) = (linked, down_since) {
                    text = text.with("since", since);
                }
                let help = explain(Sentence::new("peer.gone-help").with("peer", peer), None);
                self.find(format!("peer-silent/{peer}"), NO_CHECK, Severity::Error, text, evidence).remedies.push(help);
            }
        }
    }

    fn pair(&mut self, here: &End, there: Option<(&LinkEnd, &End)>) {
        let sides = self.sides;
        let out = Way { from: &sides.here, end: here, to_name: &sides.peer, to: there };
        let before = self.findings.len();
        self.channel(&out);
        let back =
            there.map(|(side, end)| Way { from: side, end, to_name: &sides.here.node, to: Some((&sides.here, here)) });
        let ways: Vec<Way> = [Some(out), back].into_iter().flatten().collect();
        let mismatch = back.is_some_and(|back| self.mtus(&out, &back));
        for way in &ways {
            self.path(way, mismatch);
            self.resent(way);
            self.duplex(way);
            self.arrives(way);
        }
        if let Some(back) = &back {
            self.subnet(&out, back);
            self.speeds(&out, back);
            self.rdma(&out, back);
        }
        if self.findings.len() == before {
            self.good(&ways);
        }
    }

    fn channel(&mut self, out: &Way<'_>) {
        // That nothing of it is there is said as a whole.
        if matches!(self.sides.silence, Some(Silence::NoAnswer { linked: false, .. })) {
            return;
        }
        let Some((caller, channel)) = channel_of(self.sides, out.end) else { return };
        if !channel.up {
            let why = channel.why.clone().unwrap_or_else(|| "being begun".to_owned());
            let source = format!("{}: forebay node list, channel to {}", caller.node, out.end.pair.peer);
            let (up, all) = (caller.channels.iter().filter(|other| other.up).count(), caller.channels.len());
            let severity = if up == 0 { Severity::Error } else { Severity::Warning };
            let text = out.words("peer.channel").with("why", &why).with("up", up).with("all", all);
            let help = explain(out.words("peer.channel-help"), None);
            self.find(out.id("channel"), NO_CHECK, severity, text, vec![Evidence::new(source, why)])
                .remedies
                .push(help);
            return;
        }
        let Some(there) = &self.sides.there else { return };
        let wants = (self.sides.here.wants_multipath, there.wants_multipath);
        let key = match wants {
            _ if channel.multipath => return,
            (true, true) => "peer.mptcp-lost",
            (true, false) | (false, true) => "peer.mptcp-one",
            (false, false) => return,
        };
        let side = |side: &LinkEnd| Evidence::new(format!("{}: [cluster] mptcp", side.node), side.wants_multipath);
        let evidence = vec![side(&self.sides.here), side(there)];
        let (one, other) = if wants.0 { (&out.from.node, &there.node) } else { (&there.node, &out.from.node) };
        let text = out.words(key).with("one", one).with("other", other);
        self.find(out.id("mptcp"), MPTCP, Severity::Note, text, evidence);
    }

    /// Both ends take packets of another size, in one subnet.
    fn mtus(&mut self, out: &Way<'_>, back: &Way<'_>) -> bool {
        let (Some(here), Some(there)) = (out.nic(), back.nic()) else { return false };
        if here.mtu == there.mtu || !out.is_direct() {
            return false;
        }
        let (large, small) = if here.mtu > there.mtu { (out, back) } else { (back, out) };
        let (Some(most), Some(least)) = (large.nic(), small.nic()) else { return false };
        let is_lost = matches!(large.end.probe, Probe::Lost { .. });
        let (key, severity) =
            if is_lost { ("peer.mtu", Severity::Error) } else { ("peer.mtu-differs", Severity::Warning) };
        let mut evidence = vec![link_evidence(&large.from.node, most), link_evidence(&small.from.node, least)];
        evidence.extend(large.probe_evidence());
        evidence.extend(large.tcp_evidence());
        let text = large
            .words(key)
            .with("nic", &most.name)
            .with("mtu", most.mtu)
            .with("other", &least.name)
            .with("least", least.mtu);
        let help = |key, node: &str, nic: &Interface, mtu: u32| {
            let what = Sentence::new(key).with("node", node).with("mtu", mtu);
            explain(what, Some(format!("ip link set dev {} mtu {mtu}", nic.name)))
        };
        let remedies = vec![
            help("peer.mtu-raise", &small.from.node, least, most.mtu),
            help("peer.mtu-lower", &large.from.node, most, least.mtu),
        ];
        let finding = self.find(out.id("mtu"), MTU, severity, text, evidence);
        finding.remedies = remedies;
        finding.number = Some(Number { is: least.mtu.into(), could_be: most.mtu.into(), unit: "B".to_owned() });
        true
    }

    /// Packets that both ends take do not arrive. `mismatch`: that they do not take the same was said.
    fn path(&mut self, way: &Way<'_>, mismatch: bool) {
        let Probe::Lost { bytes, limit } = way.end.probe else { return };
        if mismatch && way.nic_there().is_some_and(|there| there.mtu < bytes) {
            return;
        }
        let mut evidence: Vec<Evidence> = way.probe_evidence().into_iter().collect();
        evidence.extend(way.nic().map(|nic| link_evidence(&way.from.node, nic)));
        evidence.extend(way.to.zip(way.nic_there()).map(|((side, _), nic)| link_evidence(&side.node, nic)));
        evidence.extend(way.tcp_evidence());
        let (key, severity) = match limit {
            Some(_) => ("peer.path-limit", Severity::Note),
            None => ("peer.path-lost", Severity::Error),
        };
        let mut text = way.words(key).with("bytes", bytes);
        if let Some(limit) = limit {
            text = text.with("limit", limit);
        }
        let help = explain(Sentence::new("peer.path-help").with("bytes", bytes), None);
        self.find(way.id("path"), MTU, severity, text, evidence).remedies.push(help);
    }

    fn resent(&mut self, way: &Way<'_>) {
        let Some(Tcp { segments, resent, .. }) = way.end.tcp else { return };
        let share = resent as f64 / segments.max(1) as f64;
        if segments < SEGMENTS_MIN || share < RESENT_SHARE {
            return;
        }
        let percent = format!("{:.2}", share * 100.0);
        let source = format!("{}: ss -tin dst {}", way.from.node, way.end.pair.peer);
        let evidence = vec![Evidence::new(source, format!("{resent} of {segments} segments sent again"))];
        let text = way.words("peer.resent").with("percent", percent).with("resent", resent).with("segments", segments);
        let help = explain(way.words("peer.resent-help"), None);
        let finding = self.find(way.id("resent"), NO_CHECK, Severity::Warning, text, evidence);
        finding.number = Some(Number { is: share, could_be: 0.0, unit: "1".to_owned() });
        finding.remedies.push(help);
    }

    fn duplex(&mut self, way: &Way<'_>) {
        let Some(nic) = way.nic().filter(|nic| nic.is_line && nic.full_duplex == Some(false)) else { return };
        let evidence = vec![Evidence::new(format!("{}: ethtool {}", way.from.node, nic.name), "Duplex: Half")];
        let text = way.words("peer.duplex").with("nic", &nic.name);
        self.find(way.id("duplex"), LINK_MODE, Severity::Error, text, evidence);
    }

    /// Packets go to another interface of the other node than the one that has the address.
    fn arrives(&mut self, way: &Way<'_>) {
        let (Some(hardware), Some((side, end))) = (&way.end.neighbour, way.to) else { return };
        let Some(nic) = end.interface.as_ref().and_then(|name| side.looked.interface(name)) else { return };
        if nic.hardware.is_none() || nic.hardware.as_ref() == Some(hardware) {
            return;
        }
        // Hardware of nobody's: a proxy, or an address that lies over several interfaces.
        let of_it = |other: &&Interface| other.hardware.as_ref() == Some(hardware);
        let Some(other) = side.looked.interfaces.iter().find(of_it) else { return };
        let pair = way.end.pair;
        let mac = nic.hardware.clone().unwrap_or_default();
        let evidence = vec![
            Evidence::new(format!("{}: ip neighbour show to {}", way.from.node, pair.peer), hardware),
            Evidence::new(format!("{}: ip link show dev {}", side.node, other.name), hardware),
            Evidence::new(format!("{}: ip link show dev {}", side.node, nic.name), mac),
        ];
        let text = way.words("peer.arrives").with("nic", &nic.name).with("other", &other.name);
        let command = "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2".to_owned();
        let help = explain(Sentence::new("peer.arrives-help").with("node", &side.node), Some(command));
        self.find(way.id("arrives"), ONE_SUBNET, Severity::Warning, text, evidence).remedies.push(help);
    }

    fn subnet(&mut self, out: &Way<'_>, back: &Way<'_>) {
        let (Some(here), Some(there)) = (out.end.prefix, back.end.prefix) else { return };
        let pair = out.end.pair;
        let width = if pair.own.is_ipv4() { 32 } else { 128 };
        // An address by itself, as clouds give and loopbacks have it, is in no subnet.
        if here == there || here.max(there) + 1 >= width {
            return;
        }
        let near = |prefix| same_subnet(pair.own, pair.peer, prefix);
        let severity = match (near(here), near(there)) {
            (false, false) => return,
            (true, true) => Severity::Note,
            (true, false) | (false, true) => Severity::Warning,
        };
        let evidence = [out, back].map(|way| {
            let (name, prefix) = (way.end.interface.as_deref().unwrap_or("?"), way.end.prefix.unwrap_or_default());
            let source = format!("{}: ip address show dev {name}", way.from.node);
            Evidence::new(source, format!("{}/{prefix}", way.end.pair.own))
        });
        let key = if severity == Severity::Note { "peer.subnet-wider" } else { "peer.subnet" };
        let text = out.words(key).with("here", here).with("there", there);
        let help = explain(Sentence::new("peer.subnet-help"), None);
        self.find(out.id("subnet"), ONE_SUBNET, severity, text, evidence.into()).remedies.push(help);
    }

    fn speeds(&mut self, out: &Way<'_>, back: &Way<'_>) {
        let line = |way: &Way<'_>| {
            let nic = way.nic().filter(|nic| nic.is_line)?;
            Some((nic.name.clone(), u64::from(nic.speed_mbit?) * 1_000_000))
        };
        let (Some(here), Some(there)) = (line(out), line(back)) else { return };
        if here.1 == there.1 {
            return;
        }
        let (slow, fast) = if here.1 < there.1 { ((out, here), (back, there)) } else { ((back, there), (out, here)) };
        let show = |(way, (nic, bits)): &(&Way<'_>, (String, u64))| {
            let speed = format!("Speed: {}Mb/s", bits / 1_000_000);
            Evidence::new(format!("{}: ethtool {nic}", way.from.node), speed)
        };
        let evidence = vec![show(&slow), show(&fast)];
        let text = slow
            .0
            .words("peer.speed")
            .with("nic", &slow.1.0)
            .with("speed", line_rate(slow.1.1))
            .with("other", &fast.1.0)
            .with("faster", line_rate(fast.1.1));
        let number = Number { is: slow.1.1 as f64 / 8.0, could_be: fast.1.1 as f64 / 8.0, unit: "B/s".to_owned() };
        let help = explain(slow.0.words("peer.speed-help").with("nic", &slow.1.0), None);
        let finding = self.find(out.id("speed"), LINK_MODE, Severity::Warning, text, evidence);
        finding.number = Some(number);
        finding.remedies.push(help);
    }

    fn rdma(&mut self, out: &Way<'_>, back: &Way<'_>) {
        let (Some(here), Some(there)) = (out.nic(), back.nic()) else { return };
        let (here, there) = (here.active_rdma(), there.active_rdma());
        let text = match (here, there) {
            (Some(here), Some(there)) => out.words("peer.rdma-both").with("here", here).with("there", there),
            (Some(port), None) => out.words("peer.rdma-one").with("node", &out.from.node).with("port", port),
            (None, Some(port)) => out.words("peer.rdma-one").with("node", &back.from.node).with("port", port),
            (None, None) => return,
        };
        self.fine.push((RDMA, text));
    }

    /// Nothing was found: what was proven instead.
    fn good(&mut self, ways: &[Way<'_>]) {
        let carried = |way: &Way<'_>| match way.end.probe {
            Probe::Carried { bytes } => Some(bytes),
            Probe::Lost { .. } | Probe::Silent | Probe::NotSent { .. } => None,
        };
        let bytes: Option<Vec<u32>> = ways.iter().map(carried).collect();
        let (Some(bytes), Some(out)) = (bytes.and_then(|all| all.into_iter().min()), ways.first()) else { return };
        let key = if ways.len() == 2 { "peer.fine" } else { "peer.fine-out" };
        self.fine.push((MTU, out.words(key).with("bytes", bytes)));
    }

    /// Channels of which the node sends all by one interface, although each has its own.
    fn ways(&mut self) {
        let sides = self.sides;
        for side in [Some(&sides.here), sides.there.as_ref()].into_iter().flatten() {
            for end in &side.looked.ends {
                let (Some(own), Some(used)) = (&end.interface, &end.leaves_by) else { continue };
                // An address of the host itself leaves by whatever leads out; and to a router each connection may have a way of its own.
                if own == used || own == "lo" || end.via.is_some() {
                    continue;
                }
                let shares =
                    |other: &&End| other.interface.as_ref() == Some(used) && other.leaves_by.as_ref() == Some(used);
                let Some(other) = side.looked.ends.iter().find(shares) else { continue };
                let pair = end.pair;
                let get = |end: &End, by: &str| {
                    let (own, peer) = (end.pair.own, end.pair.peer);
                    Evidence::new(format!("{}: ip route get {peer} from {own}", side.node), format!("dev {by}"))
                };
                let address = format!("{}: ip address show dev {own}", side.node);
                let prefix = end.prefix.unwrap_or_default();
                let evidence =
                    vec![Evidence::new(address, format!("{}/{prefix}", pair.own)), get(end, used), get(other, used)];
                let text = Sentence::new("peer.way")
                    .with("node", &side.node)
                    .with("own", pair.own)
                    .with("nic", own)
                    .with("used", used)
                    .with("other", other.pair.own);
                let command = format!(
                    "ip route add {} dev {own} table 100 && ip rule add from {} table 100",
                    pair.peer, pair.own
                );
                let help =
                    explain(Sentence::new("peer.way-help").with("node", &side.node).with("nic", own), Some(command));
                let id = format!("peer-way/{}/{}", side.node, pair.own);
                self.find(id, ONE_SUBNET, Severity::Warning, text, evidence).remedies.push(help);
            }
        }
    }

    fn clocks(&mut self) {
        let Some(there) = &self.sides.there else { return };
        let (asked, answered) = self.sides.asked_ms;
        // It has looked at its clock between the question and the answer.
        let at_least = i128::from(there.at_ms) - i128::from(answered);
        let at_most = i128::from(there.at_ms) - i128::from(asked);
        let (key, ms) = match (at_least > CLOCK_MAX_MS, at_most < -CLOCK_MAX_MS) {
            (true, _) => ("peer.clock-ahead", at_least),
            (false, true) => ("peer.clock-behind", -at_most),
            (false, false) => return,
        };
        let evidence = vec![
            Evidence::new(format!("{}: CLOCK_REALTIME", self.sides.here.node), format!("{asked} to {answered} ms")),
            Evidence::new(format!("{}: CLOCK_REALTIME", there.node), format!("{} ms", there.at_ms)),
        ];
        let text = Sentence::new(key)
            .with("here", &self.sides.here.node)
            .with("there", &there.node)
            .with("seconds", format!("{:.1}", ms as f64 / 1e3));
        let help = explain(Sentence::new("peer.clock-help"), Some("timedatectl set-ntp true".to_owned()));
        self.find(format!("peer-clock/{}", there.node), NO_CHECK, Severity::Note, text, evidence).remedies.push(help);
    }

    fn unseen(&mut self) {
        let sides = self.sides;
        for side in [Some(&sides.here), sides.there.as_ref()].into_iter().flatten() {
            for why in &side.looked.hidden {
                let how = Sentence::new("peer.ask-there").with("peer", &side.node);
                self.hidden.push((format!("{}: {why}", side.node), how));
            }
            for End { pair, probe, .. } in &side.looked.ends {
                match probe {
                    Probe::Carried { .. } | Probe::Lost { .. } => {}
                    // That nobody answers where nobody is was said.
                    Probe::Silent if matches!(sides.silence, Some(Silence::NoAnswer { linked: false, .. })) => {}
                    Probe::Silent => {
                        let what =
                            format!("{}: UDP {} > {}, do not fragment: no answer", side.node, pair.own, pair.peer);
                        self.hidden.push((what, Sentence::new("peer.let-icmp")));
                    }
                    Probe::NotSent { why } => {
                        let how = Sentence::new("peer.ask-there").with("peer", &side.node);
                        self.hidden.push((format!("{}: {why}", side.node), how));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
