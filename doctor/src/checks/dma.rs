//! Check 19: devices that read and write memory of another socket than their own.
//!
//! What moves is counted while the host is looked at (see [`super::super::watch::devices`]); here is the rule.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::super::watch::devices::{Devices, Moved};
use super::Check;
use crate::show;
use forebay_host::topology::Topology;
use std::collections::BTreeSet;

/// Check 19 alone.
pub const CHECKS: &[Check] = &[Check { number: 19, word: "dma-far", look: far_memory }];

/// Share of far memory from which it is told: as with interrupts, a buffer or two that went astray cost nothing.
const FAR_SHARE: f64 = 0.10;
/// Less than this is what logs, monitoring and keyboards move: of whose memory it is says nothing of the data path.
const RATE_TO_JUDGE: f64 = 50e6;
/// So much is what an interface of 10 Gbit/s moves; below, the way across costs some latency, and the link has room.
const RATE_THAT_COSTS: f64 = 1e9;
/// Events that moved less of the whole add nothing to what the others show.
const SHARE_TO_SHOW: f64 = 0.01;

fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", show::bytes(bytes_per_second))
}

// Reads counters of the processor. Rule: more than FAR_SHARE of what the devices of a socket move is memory of another.
fn far_memory(host: &Host) -> Verdict {
    match &host.devices {
        Devices::NotHere => Verdict::NotHere,
        Devices::Counted(moved) => judge(moved, &host.topology),
        Devices::NotCounted { what, how } => Verdict::NotSeen { what: what.clone(), how: how.clone() },
    }
}

/// What the devices of a socket move.
struct OfSocket<'a> {
    socket: u32,
    moved: Vec<&'a Moved>,
}

impl OfSocket<'_> {
    fn all(&self) -> f64 {
        self.moved.iter().map(|moved| moved.bytes_per_second).sum()
    }

    fn far(&self) -> f64 {
        self.moved.iter().filter(|moved| moved.far).map(|moved| moved.bytes_per_second).sum()
    }

    fn far_share(&self) -> f64 {
        self.far() / self.all().max(1.0)
    }

    fn sentence(&self, key: &'static str) -> Sentence {
        Sentence::new(key)
            .with("socket", self.socket)
            .with("share", show::percent(self.far_share()))
            .with("all", rate(self.all()))
            .with("far", rate(self.far()))
    }

    fn finding(&self, topology: &Topology) -> Finding {
        let mut shown: Vec<&Moved> = self.moved.clone();
        shown.retain(|moved| moved.bytes_per_second >= self.all() * SHARE_TO_SHOW);
        shown.sort_by(|a, b| b.far.cmp(&a.far).then(b.bytes_per_second.total_cmp(&a.bytes_per_second)));
        let evidence = |moved: &Moved| {
            let whose = if moved.far { "memory of another socket" } else { "its own memory" };
            let value = format!("devices of socket {}: {} of {whose}", moved.socket, rate(moved.bytes_per_second));
            Evidence::new(&moved.source, value)
        };
        let cpus = topology.cpus.iter().filter(|(_, place)| place.package == self.socket).map(|(cpu, _)| *cpu);
        let what = Sentence::new("dma.remedy").with("socket", self.socket).with("cpus", show::cpu_list(cpus));
        Finding {
            id: format!("dma-far/socket{}", self.socket),
            check: 19,
            severity: if self.far() < RATE_THAT_COSTS { Severity::Note } else { Severity::Warning },
            confidence: Confidence::Certain,
            text: self.sentence("dma.far"),
            evidence: shown.into_iter().map(evidence).collect(),
            number: Some(Number { is: self.far_share(), could_be: 0.0, unit: "1".to_owned() }),
            remedies: vec![Remedy::Explain { what, command: None }],
        }
    }
}

fn judge(moved: &[Moved], topology: &Topology) -> Verdict {
    let sockets: BTreeSet<u32> = moved.iter().map(|moved| moved.socket).collect();
    let of = |socket| OfSocket { socket, moved: moved.iter().filter(|moved| moved.socket == socket).collect() };
    let (busy, idle): (Vec<OfSocket>, Vec<OfSocket>) =
        sockets.into_iter().map(of).partition(|socket| socket.all() >= RATE_TO_JUDGE);
    let found: Vec<Finding> =
        busy.iter().filter(|socket| socket.far_share() > FAR_SHARE).map(|socket| socket.finding(topology)).collect();
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    match busy.iter().max_by(|a, b| a.far_share().total_cmp(&b.far_share())) {
        Some(worst) => Verdict::Fine(worst.sentence("dma.near")),
        None => {
            let all: f64 = idle.iter().map(OfSocket::all).sum();
            Verdict::Fine(Sentence::new("dma.idle").with("all", rate(all)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::expect::{fine, found, not_here, not_seen, one, text};
    use super::*;
    use crate::fixture::Tree;
    use forebay_host::system::RECORDED;

    fn two_sockets() -> Tree {
        Tree::new().node(0, "0-3", 32).node(1, "4-7", 32)
    }

    fn with(tree: Tree, devices: &Devices) -> Tree {
        let text = serde_json::to_string(devices).expect("JSON");
        tree.file(&format!("{RECORDED}/devices"), &text)
    }

    /// Of each socket, in MB/s: what its devices read near and far, and wrote near and far.
    fn moved(tree: Tree, sockets: [[f64; 4]; 2]) -> Tree {
        const EVENTS: [(bool, u32); 4] = [(false, 0x7fe), (true, 0xbfe), (false, 0x7ff), (true, 0xbff)];
        let of = |(socket, rates): (u32, [f64; 4])| {
            EVENTS.into_iter().zip(rates).map(move |((far, umask), megabytes)| Moved {
                socket,
                far,
                source: format!("amd_df/event=0x81f,umask={umask:#x}/"),
                bytes_per_second: megabytes * 1e6,
            })
        };
        let moved = (0..).zip(sockets).flat_map(of).collect();
        with(tree, &Devices::Counted(moved))
    }

    const QUIET: [f64; 4] = [1.0, 0.0, 1.0, 0.0];

    #[test]
    fn devices_that_move_memory_of_another_socket_are_told_with_their_socket_and_the_counters() {
        let finding = one(&moved(two_sockets(), [[4000.0, 4100.0, 1900.0, 0.0], QUIET]), 19);
        assert_eq!((finding.id.as_str(), finding.severity), ("dma-far/socket0", Severity::Warning));
        assert_eq!(
            text(&finding),
            "41 % of what devices of socket 0 move is memory of another socket: 4.1 GB/s of 10.0 GB/s cross the link between them."
        );
        let shown: Vec<(&str, &str)> =
            finding.evidence.iter().map(|shown| (shown.source.as_str(), shown.value.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("amd_df/event=0x81f,umask=0xbfe/", "devices of socket 0: 4.1 GB/s of memory of another socket"),
                ("amd_df/event=0x81f,umask=0x7fe/", "devices of socket 0: 4.0 GB/s of its own memory"),
                ("amd_df/event=0x81f,umask=0x7ff/", "devices of socket 0: 1.9 GB/s of its own memory"),
            ]
        );
        let what = finding.remedies[0].what();
        assert!(what.with.contains(&("cpus".to_owned(), "0-3".to_owned())), "{what:?}");
    }

    #[test]
    fn each_socket_is_judged_by_its_own_devices() {
        let far = [100.0, 400.0, 0.0, 0.0];
        let ids = |tree: &Tree| found(tree, 19).into_iter().map(|finding| finding.id).collect::<Vec<_>>();
        let near = [9000.0, 0.0, 9000.0, 0.0];
        assert_eq!(ids(&moved(two_sockets(), [near, far])), ["dma-far/socket1"], "though of all it is 2 %");
        assert_eq!(ids(&moved(two_sockets(), [far, far])), ["dma-far/socket0", "dma-far/socket1"]);
    }

    #[test]
    fn less_than_a_fast_interface_moves_is_worth_a_note() {
        assert_eq!(one(&moved(two_sockets(), [[500.0, 900.0, 0.0, 0.0], QUIET]), 19).severity, Severity::Note);
        assert_eq!(one(&moved(two_sockets(), [[500.0, 900.0, 0.0, 200.0], QUIET]), 19).severity, Severity::Warning);
    }

    #[test]
    fn a_tenth_of_far_memory_is_fine() {
        let says = fine(&moved(two_sockets(), [[8000.0, 500.0, 1000.0, 500.0], [1000.0, 50.0, 0.0, 0.0]]), 19);
        assert!(says.contains("10 % of the 10.0 GB/s that devices of socket 0 move"), "{says}");
        assert_eq!(one(&moved(two_sockets(), [[7800.0, 700.0, 1000.0, 500.0], QUIET]), 19).check, 19);
    }

    #[test]
    fn devices_that_move_next_to_nothing_are_not_judged_by_whose_memory_it_is() {
        let says = fine(&moved(two_sockets(), [[0.0, 40.0, 0.0, 0.0], QUIET]), 19);
        assert!(says.contains("42.0 MB/s"), "{says}");
        assert_eq!(one(&moved(two_sockets(), [[0.0, 60.0, 0.0, 0.0], QUIET]), 19).id, "dma-far/socket0");
    }

    #[test]
    fn one_socket_has_no_other_and_a_virtual_machine_and_a_record_without_counters_have_nothing_to_tell() {
        let far = [[0.0, 9000.0, 0.0, 0.0], QUIET];
        not_here(&moved(Tree::new().node(0, "0-7", 64), far), 19);
        not_here(&moved((4..8).fold(two_sockets(), |tree, cpu| tree.cpu(cpu, 0, cpu)), far), 19);
        not_here(&moved(two_sockets().virtual_machine(), far), 19);
        not_here(&two_sockets(), 19);
        not_here(&two_sockets().hidden(&format!("{RECORDED}/devices")), 19);
        not_here(&two_sockets().file(&format!("{RECORDED}/devices"), "{\"counted\":"), 19);
    }

    #[test]
    fn what_could_not_be_counted_is_said_with_what_would_show_it() {
        for key in ["dma.no-right", "dma.refused", "dma.no-counters", "dma.not-published", "dma.shared"] {
            let devices = Devices::NotCounted { what: "the file: 2".to_owned(), how: Sentence::new(key) };
            assert_eq!(not_seen(&with(two_sockets(), &devices), 19), "the file: 2", "{key}");
        }
    }
}
