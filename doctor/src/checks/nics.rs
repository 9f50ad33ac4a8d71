//! Checks 26 to 31: network interfaces and their links.

use super::super::Host;
use super::super::counters::Counters;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::Check;
use super::pcie::slot_carries;
use crate::formulas::usb;
use crate::interfaces::{WANTED, hardware};
use crate::show::line_rate;
use forebay_host::system::Seen;
use forebay_host::topology::Nic;
use std::collections::{BTreeMap, BTreeSet};

mod mtu;
#[cfg(test)]
mod tests;

/// Checks 26 to 31, in the order of their numbers.
pub const CHECKS: &[Check] = &[
    Check { number: 26, word: "nic-queues", look: queues },
    Check { number: 27, word: "nic-drops", look: drops },
    Check { number: 28, word: "nic-link-mode", look: link_mode },
    Check { number: 29, word: "nic-mtu", look: mtu::mtu },
    Check { number: 30, word: "nic-offloads", look: offloads },
    Check { number: 31, word: "nic-pause", look: pauses },
];

/// What a check has gathered of the things that it looked at.
#[derive(Default)]
pub(super) struct Gathered {
    found: Vec<Finding>,
    fine: Option<Sentence>,
    hidden: Option<(String, Sentence)>,
}

impl Gathered {
    pub(super) fn find(&mut self, finding: Finding) {
        self.found.push(finding);
    }

    /// Of several things that one finding is about, the first tells it.
    fn find_once(&mut self, finding: Finding) {
        if self.found.iter().all(|known| known.id != finding.id) {
            self.found.push(finding);
        }
    }

    /// Of several things that are fine, the first is told of.
    pub(super) fn fine(&mut self, why: Sentence) {
        self.fine.get_or_insert(why);
    }

    /// What is there; what hides is kept in mind.
    pub(super) fn see<T>(&mut self, seen: Seen<T>) -> Option<T> {
        match seen {
            Seen::Is(value) => Some(value),
            Seen::Absent => None,
            Seen::Hidden(why) => {
                self.hide(why, Sentence::new("doctor.as-root"));
                None
            }
        }
    }

    pub(super) fn hide(&mut self, what: String, how: Sentence) {
        self.hidden.get_or_insert((what, how));
    }

    /// A finding keeps beside it what hides; this outweighs what is fine.
    pub(super) fn verdict(self) -> Verdict {
        match (self.found.is_empty(), self.hidden, self.fine) {
            (false, hidden, _) => Verdict::of_found(self.found, hidden),
            (true, Some((what, how)), _) => Verdict::NotSeen { what, how },
            (true, None, Some(why)) => Verdict::Fine(why),
            (true, None, None) => Verdict::NotHere,
        }
    }
}

const GIGABIT: u64 = 1_000_000_000;

/// What a driver counts: by name, now and at the earlier look.
pub(super) struct Counted {
    /// Names, and what they stand at.
    pub(super) now: BTreeMap<String, u64>,
    earlier: Option<(BTreeMap<String, u64>, f64)>,
}

impl Counted {
    /// Of an interface.
    pub(super) fn of(host: &Host, name: &str) -> Counted {
        let path = format!("/forebay/net/statistics/{name}");
        let parse = |text: &String| {
            let pair = |line: &str| {
                let (name, value) = line.rsplit_once(':')?;
                Some((name.trim().to_owned(), value.trim().parse().ok()?))
            };
            text.lines().filter_map(pair).collect()
        };
        let mut counted = Counted {
            now: host.counters.0.get(&path).map(parse).unwrap_or_default(),
            earlier: host
                .earlier
                .as_ref()
                .map(|(before, time)| (before.0.get(&path).map(parse).unwrap_or_default(), time.as_secs_f64())),
        };
        for file in ["rx_missed_errors", "rx_fifo_errors"] {
            let path = format!("/sys/class/net/{name}/statistics/{file}");
            counted.now.extend(host.counters.number(&path).map(|value| (path.clone(), value)));
            if let Some((earlier, _)) = &mut counted.earlier {
                let before = host.earlier.as_ref().and_then(|(before, _)| before.number(&path));
                earlier.extend(before.map(|value| (path, value)));
            }
        }
        counted
    }

    /// How much one has grown. None: it was not there at both looks.
    pub(super) fn growth(&self, name: &str) -> Option<u64> {
        let before = self.earlier.as_ref()?.0.get(name)?;
        Some(self.now.get(name)?.saturating_sub(*before))
    }

    /// Those that have grown, the most grown first.
    pub(super) fn grown(&self, is_meant: impl Fn(&str) -> bool) -> Vec<(&str, u64)> {
        let names = self.now.keys().filter(|name| is_meant(name));
        let mut grown: Vec<_> = names.filter_map(|name| Some((name.as_str(), self.growth(name)?))).collect();
        grown.retain(|(_, growth)| *growth > 0);
        grown.sort_by_key(|(_, growth)| std::cmp::Reverse(*growth));
        grown
    }

    /// Seconds between the looks.
    pub(super) fn seconds(&self) -> f64 {
        self.earlier.as_ref().map_or(0.0, |(_, seconds)| *seconds)
    }

    /// What shows it: a file, or the driver's counter.
    pub(super) fn evidence(&self, interface: &str, name: &str) -> Evidence {
        let source = if name.starts_with('/') { name.to_owned() } else { format!("ethtool -S {interface}: {name}") };
        let now = self.now.get(name).copied().unwrap_or(0);
        match self.growth(name) {
            Some(growth) => Evidence::new(source, format!("{now} (+{growth} in {} s)", self.seconds())),
            None => Evidence::new(source, now),
        }
    }
}

/// A field of an interface's line in the kernel's table: received bytes are 0, packets 1; sent bytes 8, packets 9.
pub(super) fn in_table(counters: &Counters, name: &str, field: usize) -> Option<u64> {
    let text = counters.0.get("/proc/net/dev")?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().nth(field)?.parse().ok()
}

/// Packets that were received between the looks.
fn received(host: &Host, name: &str) -> Option<u64> {
    let (before, _) = host.earlier.as_ref()?;
    Some(in_table(&host.counters, name, 1)?.saturating_sub(in_table(before, name, 1)?))
}

/// Bytes that were sent since the interface was made.
pub(super) fn sent_bytes(host: &Host, name: &str) -> u64 {
    in_table(&host.counters, name, 8).unwrap_or(0)
}

/// There is one look only, and what grows cannot be told.
pub(super) fn needs_two_looks(gathered: &mut Gathered) {
    gathered.hide("/sys/class/net/*/statistics".to_owned(), Sentence::new("cpu.second-look"));
}

/// From here on one core cannot do all the work of receiving.
const MANY_QUEUES_BITS: u64 = 25 * GIGABIT;
/// What one core receives by TCP with packets of 1500 bytes, as a rule of thumb.
const CORE_BITS: u64 = 10 * GIGABIT;
/// More bring nothing: drivers stop here by themselves, and so does tuning by hand.
const QUEUES_ENOUGH: u32 = 16;

fn queues(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    for (name, nic) in hardware(host) {
        let Some(bits) = nic.speed_bits.filter(|bits| *bits >= MANY_QUEUES_BITS) else { continue };
        let told = host.net.ethernet(name);
        let Some(channels) = gathered.see(told.channels) else { continue };
        let local = |node| nic.node.is_none_or(|own| own == node);
        let cores = host.topology.cpus.values().filter(|cpu| local(cpu.node)).map(|cpu| cpu.core);
        let cores = cores.collect::<BTreeSet<_>>().len() as u32;
        let (has, enough) = (channels.receiving(), cores.min(QUEUES_ENOUGH));
        let used = gathered.see(told.receiving_queues).map_or(has, |spread| spread.min(has));
        let words = |key| Sentence::new(key).with("nic", name).with("speed", line_rate(bits)).with("queues", used);
        let carried = u64::from(used) * CORE_BITS;
        // No driver tells of none, and twice the line is enough for uneven load.
        if used == 0 || used >= enough || carried >= 2 * bits {
            if used > 0 && cores > 0 {
                gathered.fine(words("nics.queues-fine").with("cores", cores));
            }
            continue;
        }
        // More queues bring no more than the slot lets in.
        let could_be = (bits as f64 / 8.0).min(way_in(host, nic));
        let is = carried.min(bits) as f64 / 8.0;
        if could_be <= is {
            continue;
        }
        let more = enough.min(channels.receiving_max());
        let mut remedies = Vec::new();
        if used < has {
            let command = format!("ethtool -X {name} equal {has}");
            let what = Sentence::new("nics.spread-help").with("nic", name).with("queues", has);
            remedies.push(Remedy::Explain { what, command: Some(command) });
        }
        if more > has {
            let kind = if channels.combined_max > 0 { "combined" } else { "rx" };
            let command = format!("ethtool -L {name} {kind} {more}");
            let what = Sentence::new("nics.queues-help").with("nic", name).with("queues", more).with("before", has);
            remedies.push(Remedy::Explain { what, command: Some(command) });
        }
        if remedies.is_empty() {
            remedies.push(Remedy::Explain { what: Sentence::new("nics.queues-no-more"), command: None });
        }
        let mut evidence = vec![Evidence::new(
            format!("ethtool -l {name}"),
            format!("rx {}, combined {}, at most {}", channels.rx, channels.combined, channels.receiving_max()),
        )];
        if used < has {
            evidence.push(Evidence::new(format!("ethtool -x {name}"), format!("{used} of {has} queues")));
        }
        gathered.find(Finding {
            id: format!("nic-queues/{name}"),
            check: 26,
            severity: if carried < bits { Severity::Warning } else { Severity::Note },
            confidence: Confidence::Likely,
            text: words("nics.queues").with("cores", cores),
            evidence,
            number: Some(Number { is, could_be, unit: "B/s".to_owned() }),
            remedies,
        });
    }
    gathered.verdict()
}

/// A share of packets from which TCP slows down in a way that can be felt; below it is worth knowing.
const DROPPED_SHARE: f64 = 1e-4;

/// A counter of packets for which the card had no room, in the words of the drivers.
fn is_drop(counter: &str) -> bool {
    let name = counter.rsplit('/').next().unwrap_or_default();
    let of_receiving = name.starts_with("rx") || name.contains(".rx") || name.contains("_rx");
    let words = ["no_buffer", "nobuf", "out_of_buffer", "missed", "fifo_error", "no_dma_resources", "discard"];
    of_receiving && words.iter().any(|word| name.contains(word)) && !name.contains("oversize")
}

fn drops(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    for (name, _) in hardware(host) {
        let counted = Counted::of(host, name);
        if !counted.now.keys().any(|name| is_drop(name)) {
            continue;
        }
        if host.earlier.is_none() {
            needs_two_looks(&mut gathered);
            continue;
        }
        let received = received(host, name).unwrap_or(0);
        let grown = counted.grown(is_drop);
        let words = |key| Sentence::new(key).with("nic", name).with("seconds", counted.seconds());
        // One lost packet shows in several counters: the largest is the number.
        let Some(&(_, lost)) = grown.first() else {
            // An idle line drops nothing either.
            if received > 0 {
                gathered.fine(words("nics.drops-fine").with("packets", received));
            }
            continue;
        };
        let mut evidence: Vec<_> = grown.iter().map(|(counter, _)| counted.evidence(name, counter)).collect();
        let rings = gathered.see(host.net.ethernet(name).rings).filter(|rings| rings.rx > 0);
        if let Some(rings) = rings {
            evidence.push(Evidence::new(format!("ethtool -g {name}"), format!("rx {} of {}", rings.rx, rings.rx_max)));
        }
        let remedy = match rings.filter(|rings| rings.rx < rings.rx_max) {
            Some(rings) => Remedy::Explain {
                what: Sentence::new("nics.ring-help").with("now", rings.rx).with("max", rings.rx_max),
                command: Some(format!("ethtool -G {name} rx {}", rings.rx_max)),
            },
            None => Remedy::Explain { what: Sentence::new("nics.ring-full-help"), command: None },
        };
        let share = lost as f64 / (lost + received) as f64;
        gathered.find(Finding {
            id: format!("nic-drops/{name}"),
            check: 27,
            severity: if share >= DROPPED_SHARE { Severity::Warning } else { Severity::Note },
            confidence: Confidence::Certain,
            text: words("nics.drops").with("lost", lost).with("packets", received),
            evidence,
            number: Some(Number { is: share, could_be: 0.0, unit: "1".to_owned() }),
            remedies: vec![remedy],
        });
    }
    gathered.verdict()
}

fn is_uncorrectable(counter: &str) -> bool {
    counter == "fec/uncorrectable" || counter.contains("fec") && counter.contains("uncorrect")
}

fn link_mode(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    for (name, nic) in hardware(host) {
        if let Some(finding) = slow_mode(host, &mut gathered, name, nic) {
            gathered.find(finding);
        }
        if nic.duplex.as_deref() == Some("half") && nic.speed_bits.is_some() {
            gathered.find(Finding {
                id: format!("nic-link-mode/{name}/duplex"),
                check: 28,
                severity: Severity::Error,
                confidence: Confidence::Certain,
                text: Sentence::new("nics.half-duplex").with("nic", name),
                evidence: vec![Evidence::new(format!("/sys/class/net/{name}/duplex"), "half")],
                number: None,
                remedies: vec![Remedy::Explain {
                    what: Sentence::new("nics.half-duplex-help"),
                    command: Some(format!("ethtool -s {name} autoneg on")),
                }],
            });
        }
        let counted = Counted::of(host, name);
        if let Some(&(counter, blocks)) = counted.grown(is_uncorrectable).first() {
            gathered.find(Finding {
                id: format!("nic-link-mode/{name}/fec"),
                check: 28,
                severity: Severity::Warning,
                confidence: Confidence::Certain,
                text: Sentence::new("nics.fec")
                    .with("nic", name)
                    .with("blocks", blocks)
                    .with("seconds", counted.seconds()),
                evidence: vec![counted.evidence(name, counter)],
                number: None,
                remedies: vec![Remedy::Explain { what: Sentence::new("nics.cable-help"), command: None }],
            });
        }
    }
    gathered.verdict()
}

/// The link is slower than what this end, or both ends, can do.
fn slow_mode(host: &Host, gathered: &mut Gathered, name: &str, nic: &Nic) -> Option<Finding> {
    let bits = nic.speed_bits?;
    let modes = gathered.see(host.net.ethernet(name).modes)?;
    let megabits = u32::try_from(bits / 1_000_000).ok()?;
    let words = |key, best: u32| {
        let sentence = Sentence::new(key).with("nic", name).with("speed", line_rate(bits));
        sentence.with("best", line_rate(u64::from(best) * 1_000_000))
    };
    let (own, offered) = (*modes.supported.last()?, modes.offered.last().copied());
    let common = modes.supported.intersection(&modes.partner).last().copied();
    if own <= megabits {
        gathered.fine(words("nics.mode-fine", own));
        return None;
    }
    let wanted = f64::from(common.filter(|common| *common > megabits).unwrap_or(own)) * 1e6 / 8.0;
    let could_be = wanted.min(way_in(host, nic));
    // A slot that carries no more than the line does now leaves nothing to gain; of that, check 2 tells.
    if could_be <= bits as f64 / 8.0 {
        return None;
    }
    let list = |speeds: &BTreeSet<u32>| speeds.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let (severity, confidence, text, help) = match common {
        // Both could, and one of the two does not want to, or the cable does not carry it.
        Some(common) if common > megabits && offered.is_some_and(|offered| offered < common) => {
            (Severity::Warning, Confidence::Certain, words("nics.mode-not-offered", common), "nics.offer-help")
        }
        Some(common) if common > megabits => {
            (Severity::Warning, Confidence::Certain, words("nics.mode-both", common), "nics.cable-help")
        }
        Some(_) => (Severity::Note, Confidence::Certain, words("nics.mode-partner", own), "nics.port-help"),
        None if !modes.partner.is_empty() => return None,
        None => (Severity::Note, Confidence::Likely, words("nics.mode-unknown", own), "nics.port-help"),
    };
    // Without a list, all that the card can do is offered.
    let command = (help == "nics.offer-help").then(|| format!("ethtool -s {name} autoneg on"));
    Some(Finding {
        id: format!("nic-link-mode/{name}"),
        check: 28,
        severity,
        confidence,
        text,
        evidence: vec![
            Evidence::new(format!("/sys/class/net/{name}/speed"), megabits),
            Evidence::new(
                format!("ethtool {name}"),
                format!(
                    "supported {}; advertised {}; link partner {} Mbit/s",
                    list(&modes.supported),
                    list(&modes.offered),
                    if modes.partner.is_empty() { "unknown".to_owned() } else { list(&modes.partner) }
                ),
            ),
        ],
        number: Some(Number { is: bits as f64 / 8.0, could_be, unit: "B/s".to_owned() }),
        remedies: vec![Remedy::Explain { what: Sentence::new(help), command }],
    })
}

/// From here on the work for each packet is what bounds, and 1500 bytes make many.
const FAST_BITS: u64 = 10 * GIGABIT;
/// Bytes a second that a card's own way into the host carries: its slot, or its bus of USB. No line of it can carry more.
fn way_in(host: &Host, nic: &Nic) -> f64 {
    let slot = nic.pci.as_deref().and_then(|pci| slot_carries(host, pci));
    slot.into_iter().chain(nic.usb_mbits.map(usb)).fold(f64::INFINITY, f64::min)
}

/// What lies directly below an interface (`lower_`), or above it (`upper_`).
pub(super) fn named(host: &Host, name: &str, prefix: &'static str) -> impl Iterator<Item = String> {
    let names = host.system.list(&format!("/sys/class/net/{name}")).known().unwrap_or_default();
    names.into_iter().filter_map(move |name| name.strip_prefix(prefix).map(str::to_owned))
}

/// Packets a second from which an interrupt for each is a large part of a core's time, at one to two microseconds each.
const MANY_PACKETS: f64 = 100_000.0;
fn offloads(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    for (name, nic) in hardware(host) {
        let Some(bits) = nic.speed_bits.filter(|bits| *bits >= FAST_BITS) else { continue };
        let told = host.net.ethernet(name);
        if let Some(features) = gathered.see(told.features) {
            let off = WANTED.iter().filter(|(kernel, _)| features.get(*kernel).is_some_and(|f| !f.on && f.can_change));
            for (kernel, option) in off {
                gathered.find(Finding {
                    id: format!("nic-offloads/{name}/{option}"),
                    check: 30,
                    severity: Severity::Warning,
                    confidence: Confidence::Likely,
                    text: Sentence::new("nics.offload-off")
                        .with("nic", name)
                        .with("speed", line_rate(bits))
                        .with("offload", kernel),
                    evidence: vec![Evidence::new(format!("ethtool -k {name}: {kernel}"), "off")],
                    number: None,
                    remedies: vec![Remedy::Explain {
                        what: Sentence::new("nics.offload-help"),
                        command: Some(format!("ethtool -K {name} {option} on")),
                    }],
                });
            }
            if WANTED.iter().all(|(kernel, _)| features.get(*kernel).is_some_and(|feature| feature.on)) {
                gathered.fine(Sentence::new("nics.offload-fine").with("nic", name));
            }
        }
        // A hypervisor's card has no interrupt of its own to wait with.
        let is_virtual = matches!(nic.driver.as_deref(), Some("virtio_net" | "vmxnet3" | "xen_netfront" | "hv_netvsc"));
        let waits = gathered.see(told.coalescing).filter(|_| !is_virtual);
        let seconds = host.earlier.as_ref().map_or(0.0, |(_, time)| time.as_secs_f64());
        let rate = received(host, name).filter(|_| seconds > 0.0).map_or(0.0, |packets| packets as f64 / seconds);
        if let Some(waits) = waits
            && !waits.adaptive_rx
            && waits.rx_usecs == 0
            && waits.rx_frames <= 1
            && rate >= MANY_PACKETS
        {
            gathered.find(Finding {
                id: format!("nic-offloads/{name}/coalescing"),
                check: 30,
                severity: Severity::Note,
                confidence: Confidence::Likely,
                text: Sentence::new("nics.no-coalescing").with("nic", name).with("packets", rate as u64),
                evidence: vec![
                    Evidence::new(
                        format!("ethtool -c {name}"),
                        format!("Adaptive RX: off, rx-usecs: 0, rx-frames: {}", waits.rx_frames),
                    ),
                    Evidence::new(
                        "/proc/net/dev",
                        format!("{name}: +{} packets in {seconds} s", (rate * seconds) as u64),
                    ),
                ],
                number: None,
                remedies: vec![Remedy::Explain {
                    what: Sentence::new("nics.coalescing-help"),
                    command: Some(format!("ethtool -C {name} adaptive-rx on")),
                }],
            });
        }
    }
    gathered.verdict()
}

/// One stops a 10 Gbit/s link for up to 3.4 ms (65535 times 512 bits): from here on up to 3 % of the time.
const PAUSES_A_SECOND: f64 = 10.0;
/// Of the time with something to send; below it is the ebb and flow of any network.
const WAITING_SHARE: f64 = 0.1;

fn pauses(host: &Host) -> Verdict {
    let mut gathered = Gathered::default();
    for (name, _) in hardware(host) {
        let counted = Counted::of(host, name);
        for (direction, standard, key) in [("rx", "pause/rx", "nics.paused"), ("tx", "pause/tx", "nics.pauses")] {
            let is_pause = |counter: &str| {
                let in_words = counter.contains("pause") && counter.contains(direction);
                let is_time = counter.contains("duration") || counter.contains("transition");
                if counted.now.contains_key(standard) { counter == standard } else { in_words && !is_time }
            };
            if !counted.now.keys().any(|counter| is_pause(counter)) {
                continue;
            }
            if host.earlier.is_none() {
                needs_two_looks(&mut gathered);
                continue;
            }
            let grown = counted.grown(is_pause);
            let (counter, frames) = grown.first().copied().unwrap_or((standard, 0));
            let words = |key| Sentence::new(key).with("nic", name).with("frames", frames);
            let words = |key| words(key).with("seconds", counted.seconds());
            if (frames as f64) < PAUSES_A_SECOND * counted.seconds() || frames == 0 {
                gathered.fine(words("nics.pause-fine"));
                continue;
            }
            let help = format!("{key}-help");
            gathered.find(Finding {
                id: format!("nic-pause/{name}/{direction}"),
                check: 31,
                severity: Severity::Warning,
                confidence: Confidence::Certain,
                text: words(key),
                evidence: vec![counted.evidence(name, counter)],
                number: None,
                remedies: vec![Remedy::Explain { what: Sentence { key: help, with: Vec::new() }, command: None }],
            });
        }
    }
    for (port, rdma) in &host.topology.rdma {
        let Some((device, number)) = port.split_once('/') else { continue };
        rdma_port(host, &mut gathered, port, &format!("/sys/class/infiniband/{device}/ports/{number}"));
        if rdma.link_layer == "InfiniBand" && rdma.state == "INIT" {
            let evidence = Evidence::new(format!("/sys/class/infiniband/{device}/ports/{number}/state"), &rdma.state);
            let text = Sentence::new("nics.rdma-init").with("port", port);
            gathered.find(of_rdma(port, "state", text, evidence, "nics.rdma-init-help"));
        }
    }
    gathered.verdict()
}

/// Counters of an RDMA port that stand still on a healthy one, and what their growth says.
const RDMA_TROUBLE: [(&str, &str, &str); 5] = [
    ("counters/symbol_error", "nics.rdma-symbols", "nics.cable-help"),
    ("hw_counters/out_of_sequence", "nics.rdma-lost", "nics.rdma-lost-help"),
    ("hw_counters/packet_seq_err", "nics.rdma-lost", "nics.rdma-lost-help"),
    ("hw_counters/local_ack_timeout_err", "nics.rdma-lost", "nics.rdma-lost-help"),
    ("hw_counters/rnr_nak_retry_err", "nics.rdma-not-ready", "nics.rdma-not-ready-help"),
];

fn rdma_port(host: &Host, gathered: &mut Gathered, port: &str, folder: &str) {
    let growth = |name: &str| {
        let path = format!("{folder}/{name}");
        let (before, time) = host.earlier.as_ref()?;
        let (now, before) = (host.counters.number(&path)?, before.number(&path)?);
        let evidence =
            Evidence::new(path, format!("{now} (+{} in {} s)", now.saturating_sub(before), time.as_secs_f64()));
        Some((now.saturating_sub(before), evidence))
    };
    let mut known = false;
    for (name, key, help) in RDMA_TROUBLE {
        let Some((grown, evidence)) = growth(name) else { continue };
        known = true;
        if grown > 0 {
            let word = name.rsplit('/').next().unwrap_or(name);
            let text = Sentence::new(key).with("port", port).with("count", grown);
            gathered.find(of_rdma(port, word, text, evidence, help));
        }
    }
    // Both in the same unit: times of four bytes, with something to send.
    if let (Some((waited, evidence)), Some((sent, _))) =
        (growth("counters/port_xmit_wait"), growth("counters/port_xmit_data"))
    {
        known = true;
        let share = waited as f64 / (waited + sent).max(1) as f64;
        if share >= WAITING_SHARE {
            let text = Sentence::new("nics.rdma-waits").with("port", port).with("percent", (share * 100.0).round());
            let mut finding = of_rdma(port, "port_xmit_wait", text, evidence, "nics.rdma-waits-help");
            (finding.severity, finding.confidence) = (Severity::Note, Confidence::Likely);
            gathered.find(finding);
        }
    }
    if known {
        gathered.fine(Sentence::new("nics.rdma-fine").with("port", port));
    }
}

fn of_rdma(port: &str, word: &str, text: Sentence, evidence: Evidence, help: &'static str) -> Finding {
    Finding {
        id: format!("nic-pause/{port}/{word}"),
        check: 31,
        severity: Severity::Warning,
        confidence: Confidence::Certain,
        text,
        evidence: vec![evidence],
        number: None,
        remedies: vec![Remedy::Explain { what: Sentence::new(help), command: None }],
    }
}
