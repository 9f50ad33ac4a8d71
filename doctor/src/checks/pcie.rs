//! Checks 1 to 3: what each PCIe link runs at, what it has to carry, and in packets of which size. Checks 4 to 7 are in
//! [`super::platform`].
//!
//! A link has two ends. An endpoint and the upstream port of a switch show the link above them, a root port and a switch's
//! downstream port the one below; between the ports of one switch there is no link.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::disks::wants::{Wants, of_controller};
use super::{Check, platform};
use crate::formulas::{Dma, infiniband, pcie_raw, pcie_useful};
use crate::parts::is_on_die;
use crate::show;
use forebay_host::topology::{LinkEnd, Nic, PciDevice, Topology};
use std::collections::BTreeMap;

/// Checks 1 to 7, in the order of their numbers.
pub const CHECKS: &[Check] = &[
    Check { number: 1, word: "pcie-link", look: degraded },
    Check { number: 2, word: "pcie-slot", look: too_narrow },
    Check { number: 3, word: "pcie-payload", look: payload },
    Check { number: 4, word: "pcie-errors", look: platform::corrected_errors },
    Check { number: 5, word: "pcie-sleep", look: platform::link_sleep },
    Check { number: 6, word: "iommu", look: platform::iommu },
    Check { number: 7, word: "node-unknown", look: platform::node_unknown },
];

/// How far demand has to exceed what a link carries: headers of the line's own packets and what formulas leave out are several
/// percent each way. The hunts that were worth it had 19 % and more.
const SHORT: f64 = 1.10;
/// A slot that takes more than half of what a disk can do costs all who use the disk; up to half is one generation of PCIe, which few disks
/// fill and few boards have a choice of.
const HALF: f64 = 2.0 * SHORT;
/// Payload that is taken for a link whose own cannot be read: the largest in use, so that nothing is called too narrow
/// that may be wide enough.
const PAYLOAD_AT_BEST: u32 = 512;
/// A line so fast needs read requests of [`READ_REQUEST`] bytes, in bits a second: with small ones the answers' delay bounds it.
const FAST_LINE: u64 = 25_000_000_000;
/// The least read request for it, in bytes.
const READ_REQUEST: u32 = 512;

/// Whether a function moves the data that this is about: storage, network and InfiniBand controllers.
pub fn moves_data(device: &PciDevice) -> bool {
    device.class >> 16 == 0x01 || is_network(device)
}

fn is_network(device: &PciDevice) -> bool {
    device.class >> 16 == 0x02 || device.class >> 8 == 0x0c06
}

/// Accelerators and display controllers: they move data, and slow their links down while idle.
fn is_accelerator(device: &PciDevice) -> bool {
    matches!(device.class >> 16, 0x03 | 0x0b | 0x12)
}

/// Whether a function's end is the lower one of its link. Without the capability it follows from how far below the root it sits:
/// root port, upstream port, downstream port, and so on.
fn is_lower_end(device: &PciDevice, below_root: usize) -> bool {
    match device.port_type {
        Some(0 | 1 | 5 | 7) => true,
        Some(_) => false,
        None => below_root % 2 == 1,
    }
}

/// A link: the function at its lower end, and the port above.
struct Link<'a> {
    address: &'a str,
    lower: LinkEnd,
    upper_address: &'a str,
    upper: Option<LinkEnd>,
    payload: Option<u32>,
}

impl Link<'_> {
    fn raw(&self) -> f64 {
        pcie_raw(self.lower.speed_gts, self.lower.width)
    }

    fn useful(&self) -> f64 {
        self.useful_at(self.lower.speed_gts, self.lower.width)
    }

    fn useful_at(&self, speed: f64, lanes: u32) -> f64 {
        pcie_useful(speed, lanes, self.payload.unwrap_or(PAYLOAD_AT_BEST), Dma::Writes)
    }

    /// What it carries when it runs as both ends can: disks slow theirs down while they have nothing to do.
    fn useful_at_best(&self) -> f64 {
        let possible = self.possible().map_or(0.0, |(speed, lanes)| self.useful_at(speed, lanes));
        possible.max(self.useful())
    }

    /// Speed and width that both ends can do. None: one of them does not say.
    fn possible(&self) -> Option<(f64, u32)> {
        let upper = self.upper?;
        let speed = self.lower.speed_max_gts.min(upper.speed_max_gts);
        let width = self.lower.width_max.min(upper.width_max);
        (speed > 0.0 && width > 0).then_some((speed, width))
    }

    /// What it runs at and which packets it has, at its lower end.
    fn shown_now(&self) -> Vec<Evidence> {
        let folder = format!("/sys/bus/pci/devices/{}", self.address);
        let mut shown = vec![
            Evidence::new(format!("{folder}/current_link_speed"), format!("{} GT/s", self.lower.speed_gts)),
            Evidence::new(format!("{folder}/current_link_width"), self.lower.width),
        ];
        shown.extend(self.shown_payload());
        shown
    }

    /// Which packets it has.
    fn shown_payload(&self) -> Option<Evidence> {
        let path = format!("/sys/bus/pci/devices/{}/config", self.address);
        self.payload.map(|payload| Evidence::new(path, format!("MPS {payload}")))
    }

    /// Both ends, now and at most.
    fn shown(&self) -> Vec<Evidence> {
        let end = |address: &str, end: &LinkEnd| {
            let folder = format!("/sys/bus/pci/devices/{address}");
            [
                Evidence::new(format!("{folder}/current_link_speed"), format!("{} GT/s", end.speed_gts)),
                Evidence::new(format!("{folder}/current_link_width"), end.width),
                Evidence::new(format!("{folder}/max_link_speed"), format!("{} GT/s", end.speed_max_gts)),
                Evidence::new(format!("{folder}/max_link_width"), end.width_max),
            ]
        };
        let upper = self.upper.iter().flat_map(|upper| end(self.upper_address, upper));
        end(self.address, &self.lower).into_iter().chain(upper).collect()
    }
}

/// The links from a function up to the root port, its own first.
fn links_above<'a>(topology: &'a Topology, address: &str) -> Vec<Link<'a>> {
    let chain = topology.up_from(address);
    let link = |(at, &(address, device)): (usize, &(&'a str, &'a PciDevice))| {
        let (upper_address, above) = *chain.get(at + 1)?;
        if is_on_die(device) || !is_lower_end(device, chain.len() - 1 - at) {
            return None;
        }
        let payload = device.payload.map(|payload| payload.set);
        Some(Link { address, lower: device.link?, upper_address, upper: above.link, payload })
    };
    chain.iter().enumerate().filter_map(link).collect()
}

/// Functions of one card share its link: the address without the function's number.
fn card(address: &str) -> &str {
    address.split_once('.').map_or(address, |(card, _)| card)
}

/// What a card is called: its interfaces, disks and RDMA devices, or its address alone.
pub fn called(topology: &Topology, address: &str) -> String {
    let here = |pci: &Option<String>| pci.as_deref().is_some_and(|pci| card(pci) == card(address));
    let nics = topology.nics.iter().filter(|(_, nic)| here(&nic.pci)).map(|(name, _)| name.as_str());
    let disks = topology.disks.iter().filter(|(_, disk)| here(&disk.pci)).map(|(name, _)| name.as_str());
    let ports = topology.rdma.iter().filter(|(_, port)| here(&port.pci));
    let ports = ports.map(|(name, _)| name.split_once('/').map_or(name.as_str(), |(device, _)| device));
    let mut names: Vec<&str> = nics.chain(disks).chain(ports).collect();
    names.dedup();
    let place = place(topology, address);
    match &names[..] {
        [] => place,
        [name] => match topology.disks.get(*name).and_then(|disk| disk.model.as_ref()) {
            Some(model) => format!("{name} ({model}, {place})"),
            None => format!("{name} ({place})"),
        },
        names => format!("{} ({place})", show::names(names)),
    }
}

/// Where a card is: its address, and what the board calls the place, in the words of `lspci -v`.
fn place(topology: &Topology, address: &str) -> String {
    let device = topology.pci.get(address);
    let slot = device.and_then(|device| device.slot.as_ref()).map(|slot| format!("Physical Slot: {slot}"));
    match slot.or_else(|| device?.label.clone()) {
        Some(name) => format!("{address}, {name}"),
        None => address.to_owned(),
    }
}

/// What the links from a card up to the root port leave for data, in bytes a second. None: it has no link, or none that is real: one
/// that at its best would carry less than the card's own line is a register without wires behind it.
pub fn slot_carries(host: &Host, address: &str) -> Option<f64> {
    let own = host.topology.pci.get(address)?.link?;
    let at_best = pcie_raw(own.speed_max_gts.max(own.speed_gts), own.width_max.max(own.width));
    let fastest = lines(host, address).into_iter().fold(0.0, f64::max);
    if host.topology.hypervisor.is_some() || at_best < fastest {
        return None;
    }
    links_above(&host.topology, address).iter().map(Link::useful).min_by(f64::total_cmp)
}

/// What several functions are called, each card once.
pub fn all_called<'a>(topology: &Topology, addresses: impl IntoIterator<Item = &'a str>) -> String {
    let mut cards = BTreeMap::new();
    for address in addresses {
        cards.entry(card(address)).or_insert_with(|| called(topology, address));
    }
    show::names(&cards.into_values().collect::<Vec<String>>())
}

/// The first function of each card that is of a kind.
fn cards(topology: &Topology, of: impl Fn(&PciDevice) -> bool) -> BTreeMap<&str, &str> {
    let mut cards = BTreeMap::new();
    for (address, _) in topology.pci.iter().filter(|(_, device)| of(device)) {
        cards.entry(card(address)).or_insert(address.as_str());
    }
    cards
}

/// Line rates of a card's ports that are up, in bytes a second.
fn lines(host: &Host, address: &str) -> Vec<f64> {
    let topology = &host.topology;
    let here = |pci: &Option<String>| pci.as_deref().is_some_and(|pci| card(pci) == card(address));
    // IP over InfiniBand lies on a port that is counted itself. A card may have a port of each kind.
    let on_infiniband = |nic: &Nic| topology.rdma_of(nic).any(|(_, port)| port.link_layer == "InfiniBand");
    // Virtual functions, and what stands for them in the switch of the card, have the line of the card's own port.
    let is_virtual = |pci: &Option<String>| {
        pci.as_ref().is_some_and(|pci| host.system.has(&format!("/sys/bus/pci/devices/{pci}/physfn")))
    };
    let stands_for_another = |name: &str, pci: &Option<String>| {
        let port = host.system.text(&format!("/sys/class/net/{name}/phys_port_name")).known().unwrap_or_default();
        is_virtual(pci) || port.contains("vf") || port.contains("sf") || port.contains("pf")
    };
    let ethernet = topology
        .nics
        .iter()
        .filter(|(name, nic)| here(&nic.pci) && !on_infiniband(nic) && !stands_for_another(name, &nic.pci));
    let ethernet = ethernet.filter_map(|(_, nic)| Some(nic.speed_bits? as f64 / 8.0));
    let ports = topology.rdma.values().filter(|port| here(&port.pci) && !is_virtual(&port.pci));
    let ports = ports.filter(|port| port.link_layer == "InfiniBand");
    let infiniband = ports.filter(|port| port.state == "ACTIVE").filter_map(|port| infiniband(&port.rate));
    ethernet.chain(infiniband).collect()
}

fn rate(bytes: f64) -> String {
    format!("{}/s", show::bytes(bytes))
}

fn width(speed: f64, lanes: u32) -> String {
    format!("{speed} GT/s x{lanes}")
}

// Check 1. Reads speed and width of both ends of each link. Rule: it runs slower or narrower than both ends can. A port that is
// wider than its card is no fault, nor is the made-up link of a controller on the die; a virtual machine's ports are made up.
fn degraded(host: &Host) -> Verdict {
    let topology = &host.topology;
    let mut links: BTreeMap<&str, (Link, &str)> = BTreeMap::new();
    for address in cards(topology, moves_data).into_values() {
        for link in links_above(topology, address) {
            links.entry(card(link.address)).or_insert((link, address));
        }
    }
    let asleep = |address: &str| {
        let status = host.system.text(&format!("/sys/bus/pci/devices/{address}/power/runtime_status"));
        status.known().as_deref() == Some("suspended")
    };
    links.retain(|_, (link, _)| link.possible().is_some() && !asleep(link.address));
    let falls_short = |link: &Link| {
        link.possible().filter(|&(speed, width)| link.lower.speed_gts < speed || link.lower.width < width)
    };
    if topology.hypervisor.is_some() {
        let Some((link, _)) = links.values().find(|(link, _)| falls_short(link).is_some()) else {
            return Verdict::NotHere;
        };
        let what = format!("/sys/bus/pci/devices/{}/current_link_width: {}", link.address, link.lower.width);
        return Verdict::NotSeen { what, how: Sentence::new("pcie.ask-hypervisor") };
    }
    let short = |(link, address): &(Link, &str)| {
        let (speed, lanes) = falls_short(link)?;
        let could_be = pcie_raw(speed, lanes);
        let narrower = link.lower.width < lanes;
        // Of a card whose lines, or disks, fit through what is left, nothing is lost today. Disks of NVMe want all of their link.
        let wanted = match is_network(&topology.pci[*address]) {
            true => Some(lines(host, address).iter().sum::<f64>()),
            false => of_controller(host, |pci| card(pci) == card(address)).map(|wants| wants.bytes),
        };
        let fits = card(link.address) == card(address) && wanted.is_some_and(|wanted| wanted <= link.useful());
        let severity = match (fits, link.raw() < could_be / 2.0) {
            (true, _) => Severity::Note,
            (false, false) => Severity::Warning,
            (false, true) => Severity::Error,
        };
        let (key, confidence) = match narrower {
            true => ("pcie.narrow", Confidence::Certain),
            // Some devices slow their link down while they have nothing to do.
            false => ("pcie.slow", Confidence::Likely),
        };
        Some(Finding {
            id: format!("pcie-link/{}", link.address),
            check: 1,
            severity: if narrower { severity } else { severity.min(Severity::Warning) },
            confidence,
            text: Sentence::new(key)
                .with("device", called(topology, address))
                .with("port", link.upper_address)
                .with("now", width(link.lower.speed_gts, link.lower.width))
                .with("possible", width(speed, lanes))
                .with("is", rate(link.raw()))
                .with("could_be", rate(could_be)),
            evidence: link.shown(),
            number: Some(Number { is: link.raw(), could_be, unit: "B/s".to_owned() }),
            remedies: vec![Remedy::Explain {
                what: Sentence::new(if narrower { "pcie.narrow-remedy" } else { "pcie.slow-remedy" }),
                command: Some(format!("lspci -vv -s {} | grep LnkSta", link.address)),
            }],
        })
    };
    let found: Vec<Finding> = links.values().filter_map(short).collect();
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    match links.values().min_by(|(a, _), (b, _)| a.raw().total_cmp(&b.raw())) {
        Some((slowest, address)) => Verdict::Fine(
            Sentence::new("pcie.links-fine")
                .with("links", links.len())
                .with("device", called(topology, address))
                .with("now", width(slowest.lower.speed_gts, slowest.lower.width))
                .with("is", rate(slowest.raw())),
        ),
        None => Verdict::NotHere,
    }
}

/// What one link has to carry.
#[derive(Default)]
struct Demand {
    bytes: f64,
    /// The fastest single port, when what is below is ports whose lines are known.
    port: f64,
    ports: usize,
    /// Cards below, by what they are called.
    cards: Vec<String>,
    /// Disks of the card whose own link it is.
    disks: Option<Wants>,
    /// The most that one card of disks below wants.
    storage: f64,
    /// It is the link of a network card itself, which check 1 judges while it runs below what it can.
    of_network: bool,
}

impl Demand {
    /// Of one card's own link: what its disks want.
    fn of_disks(&self) -> Option<&Wants> {
        self.disks.as_ref().filter(|_| self.cards.len() == 1)
    }

    fn of_ports(&self) -> bool {
        self.cards.len() == 1 && self.ports > 0
    }

    /// What a link carries of it: links of disks, and above switches, slow down while there is nothing to do.
    fn carried(&self, link: &Link) -> f64 {
        if self.of_network { link.useful() } else { link.useful_at_best() }
    }
}

/// What the disks of a card want: those of a controller by their kind, one of NVMe all that its own end of the link can. None: it has none, or no
/// file tells.
fn disks_of(host: &Host, address: &str, own: Option<&Link>) -> Option<Wants> {
    if host.topology.pci[address].class >> 8 != 0x0108 {
        return of_controller(host, |pci| card(pci) == card(address));
    }
    let own = own.filter(|link| link.possible().is_some())?;
    let bytes = own.useful_at(own.lower.speed_max_gts, own.lower.width_max);
    Some(Wants { bytes, of_ssds: bytes, disks: 1, is_nvme: true, evidence: Vec::new() })
}

/// What each link has to carry, by the card at its lower end; and the storage controllers with disks of which no file tells what they move.
fn demands(host: &Host) -> (BTreeMap<&str, (Link<'_>, Demand)>, Vec<String>) {
    let topology = &host.topology;
    let (mut demands, mut untold): (BTreeMap<&str, (Link, Demand)>, _) = (BTreeMap::new(), Vec::new());
    for address in cards(topology, |device| moves_data(device) || is_accelerator(device)).into_values() {
        // What is plugged in from outside comes through a tunnel (Thunderbolt, USB4), whose ports show links that are made up.
        if host.system.text(&format!("/sys/bus/pci/devices/{address}/removable")).known().as_deref()
            == Some("removable")
        {
            continue;
        }
        let lines = lines(host, address);
        let of_lines: f64 = lines.iter().sum();
        let device = &topology.pci[address];
        let (is_network, is_storage) = (is_network(device), device.class >> 16 == 0x01);
        let links = links_above(topology, address);
        let own = links.first().filter(|link| card(link.address) == card(address));
        let mut disks = disks_of(host, address, own);
        // A port that is down wants nothing; accelerators, and disks of which no file tells, want what their own link carries.
        let mut wanted = match &disks {
            _ if is_network || !lines.is_empty() => of_lines,
            Some(wants) => wants.bytes,
            None => f64::INFINITY,
        };
        // A controller without disks wants nothing, and shares nothing. A graphics card with a switch of its own shows links inside of it that
        // are made up.
        let behind_own_switch = is_accelerator(device)
            && topology.up_from(address).get(1).is_some_and(|(_, above)| above.vendor == device.vendor);
        if behind_own_switch || is_storage && wanted == 0.0 {
            continue;
        }
        let name = called(topology, address);
        if wanted.is_infinite() && is_storage && own.is_some() && name != address {
            untold.push(name.clone());
        }
        for (nth, link) in links.into_iter().enumerate() {
            let carries = link.useful_at_best();
            let own = nth == 0 && card(link.address) == card(address);
            // An adapter whose line no file tells, as without its driver's classes, wants what its link carries, too.
            if own && is_network && lines.is_empty() && !has_interface(topology, address) {
                wanted = f64::INFINITY;
            }
            if !own || wanted.is_finite() {
                let (_, demand) = demands.entry(card(link.address)).or_insert((link, Demand::default()));
                demand.bytes += wanted;
                demand.port = lines.iter().copied().fold(demand.port, f64::max);
                demand.ports += lines.len();
                demand.cards.push(name.clone());
                demand.of_network |= own && is_network;
                demand.disks = if own { disks.take() } else { None };
                if is_storage {
                    demand.storage = demand.storage.max(wanted);
                }
            }
            wanted = wanted.min(carries);
        }
    }
    demands.retain(|_, (_, demand)| demand.bytes > 0.0 && demand.bytes.is_finite());
    (demands, untold)
}

// Check 2. Reads the links on the way of each card, the lines of its ports, and of which kind its disks are. Rules: the lines of a
// card's ports, or its disks, carry more than its slot; the cards behind a switch carry more than the link above it.
fn too_narrow(host: &Host) -> Verdict {
    if host.topology.hypervisor.is_some() {
        return Verdict::NotHere;
    }
    let (demands, untold) = demands(host);
    let found: Vec<Finding> = demands.values().filter_map(|(link, demand)| narrow_slot(link, demand)).collect();
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    if !untold.is_empty() {
        return Verdict::NotSeen { what: show::names(&untold), how: Sentence::new("pcie.slot-untold") };
    }
    let headroom = |(link, demand): &(Link, Demand)| demand.carried(link) / demand.bytes;
    match demands.values().min_by(|a, b| headroom(a).total_cmp(&headroom(b))) {
        // Within the error of the formula the slot is as good as the line.
        Some(tightest) => Verdict::Fine(
            Sentence::new(if headroom(tightest) < SHORT { "pcie.slots-even" } else { "pcie.slots-fine" })
                .with("device", show::names(&tightest.1.cards))
                .with("carries", rate(tightest.1.carried(&tightest.0)))
                .with("wanted", rate(tightest.1.bytes))
                .with("factor", format!("{:.1}", headroom(tightest))),
        ),
        None => Verdict::NotHere,
    }
}

fn narrow_slot(link: &Link, demand: &Demand) -> Option<Finding> {
    let carries = demand.carried(link);
    if demand.bytes <= carries * SHORT {
        return None;
    }
    let of_nvme = demand.of_disks().is_some_and(|wants| wants.is_nvme);
    let severe = match demand.of_disks() {
        Some(wants) => wants.of_ssds > carries * HALF,
        // Ports of one card are often there for the case that one fails, and cards behind a switch seldom work all at once.
        None if demand.of_ports() => demand.port > carries * SHORT,
        None => demand.cards.len() == 1 && demand.storage > carries * HALF,
    };
    let (key, remedy) = match demand.of_disks() {
        Some(_) if of_nvme => ("pcie.slot-disk", "pcie.slot-disk-remedy"),
        Some(_) => ("pcie.slot-disks", "pcie.slot-disks-remedy"),
        None if demand.of_ports() => ("pcie.slot-narrow", "pcie.slot-remedy"),
        None if demand.cards.len() == 1 => ("pcie.uplink-one", "pcie.slot-disk-remedy"),
        None => ("pcie.uplink-narrow", "pcie.uplink-remedy"),
    };
    let ports = match demand.of_disks() {
        Some(wants) => wants.disks,
        None if demand.of_ports() => demand.ports,
        None => demand.cards.len(),
    };
    let (speed, lanes) = match link.possible().filter(|_| !demand.of_network) {
        Some(possible) => possible,
        None => (link.lower.speed_gts, link.lower.width),
    };
    let of_disks = demand.of_disks().into_iter().flat_map(|wants| wants.evidence.iter().cloned());
    let shown = match demand.of_network {
        true => link.shown_now(),
        false => link.shown().into_iter().chain(link.shown_payload()).collect(),
    };
    Some(Finding {
        id: format!("pcie-slot/{}", link.address),
        check: 2,
        severity: if severe { Severity::Warning } else { Severity::Note },
        // What disks of a kind move is a rule of thumb.
        confidence: if demand.of_disks().is_some() && !of_nvme { Confidence::Likely } else { Confidence::Computed },
        text: Sentence::new(key)
            .with("device", show::names(&demand.cards))
            .with("ports", ports)
            .with("wanted", rate(demand.bytes))
            .with("own", width(link.lower.speed_max_gts, link.lower.width_max))
            .with("now", width(speed, lanes))
            .with("port", link.upper_address)
            .with("payload", link.payload.map_or(format!("≤{PAYLOAD_AT_BEST}"), |payload| payload.to_string()))
            .with("carries", rate(carries)),
        evidence: shown.into_iter().chain(of_disks).collect(),
        number: Some(Number { is: carries, could_be: demand.bytes, unit: "B/s".to_owned() }),
        remedies: vec![Remedy::Explain { what: Sentence::new(remedy), command: None }],
    })
}

/// Whether an interface or an RDMA port is there for a card, which says whether and how fast its line is.
fn has_interface(topology: &Topology, address: &str) -> bool {
    let here = |pci: &Option<String>| pci.as_deref().is_some_and(|pci| card(pci) == card(address));
    topology.nics.values().any(|nic| here(&nic.pci)) || topology.rdma.values().any(|port| here(&port.pci))
}

// Check 3. Reads the PCIe capability of each card and of all ports above it. Rules: packets of 128 bytes where the whole way can
// do more; read requests too small for a fast line.
fn payload(host: &Host) -> Verdict {
    let topology = &host.topology;
    if topology.hypervisor.is_some() {
        return Verdict::NotHere;
    }
    let (mut small, mut requests, mut hidden) = (Vec::new(), Vec::new(), None);
    let (mut judged, mut least) = (0, u32::MAX);
    for address in cards(topology, |device| moves_data(device) && !is_on_die(device)).into_values() {
        let chain = topology.up_from(address);
        hidden = hidden.or_else(|| chain.iter().find_map(|(_, device)| device.config_hidden.clone()));
        let sizes: Option<Vec<_>> = chain.iter().map(|(_, device)| device.payload).collect();
        let (Some(sizes), Some(own)) = (sizes, topology.pci[address].payload) else { continue };
        // At the root there is no port above, and no link.
        if sizes.len() < 2 {
            continue;
        }
        judged += 1;
        least = least.min(own.set);
        let could_be = sizes.iter().map(|size| size.supported).min().unwrap_or(0);
        if own.set == 128 && could_be > own.set {
            small.push((address, could_be));
        }
        let fast = lines(host, address).into_iter().any(|line| line * 8.0 >= FAST_LINE as f64);
        if fast && own.read_request < READ_REQUEST {
            requests.push((address, own.read_request));
        }
    }
    let config = |address: &str| format!("/sys/bus/pci/devices/{address}/config");
    let mut found = Vec::new();
    if let Some(could_be) = small.iter().map(|(_, could_be)| *could_be).min() {
        let share = |payload: u32| pcie_useful(8.0, 1, payload, Dma::Writes) / pcie_raw(8.0, 1);
        let evidence = small.iter().map(|(address, could_be)| {
            Evidence::new(config(address), format!("MPS 128, {could_be} supported all the way"))
        });
        found.push(Finding {
            id: "pcie-payload/size".to_owned(),
            check: 3,
            severity: Severity::Note,
            confidence: Confidence::Computed,
            text: Sentence::new("pcie.payload")
                .with("device", all_called(topology, small.iter().map(|(address, _)| *address)))
                .with("could_be", could_be)
                .with("gain", show::percent(share(could_be) / share(128) - 1.0)),
            evidence: evidence.collect(),
            number: Some(Number { is: share(128), could_be: share(could_be), unit: "1".to_owned() }),
            remedies: vec![Remedy::Explain {
                what: Sentence::new("pcie.payload-remedy"),
                command: Some("pci=pcie_bus_perf".to_owned()),
            }],
        });
    }
    for (address, size) in requests {
        found.push(Finding {
            id: format!("pcie-payload/{address}"),
            check: 3,
            severity: Severity::Note,
            confidence: Confidence::Likely,
            text: Sentence::new("pcie.read-request").with("device", called(topology, address)).with("size", size),
            evidence: vec![Evidence::new(config(address), format!("MRRS {size}"))],
            number: None,
            remedies: vec![Remedy::Explain {
                what: Sentence::new("pcie.read-request-remedy"),
                command: Some(format!("setpci -s {address} CAP_EXP+8.w=5000:7000")),
            }],
        });
    }
    match (found.is_empty(), judged, hidden) {
        (false, ..) => Verdict::Found(found),
        (true, 0, Some(what)) => Verdict::NotSeen { what, how: Sentence::new("doctor.as-root") },
        (true, 0, None) => Verdict::NotHere,
        (true, ..) => Verdict::Fine(Sentence::new("pcie.payload-fine").with("cards", judged).with("least", least)),
    }
}

#[cfg(test)]
mod tests;
