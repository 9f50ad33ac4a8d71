//! Checks 15, 18 and 20: what memory and the links between nodes carry, against what was measured that they can.
//!
//! Nothing is measured here: `forebay doctor matrix --keep` did that, and its figures belong to one boot. What is used now comes from the CPUs' memory
//! bandwidth monitoring (resctrl), which counts what CPUs move, and not what devices do; that is check 19.

use super::super::Host;
use super::super::findings::{Confidence, Evidence, Finding, Number, Remedy, Sentence, Severity, Verdict};
use super::super::matrix::{KEPT, Matrix, SPREAD_MAX};
use super::Check;
use crate::formulas::{GB, socket_link};
use forebay_host::topology::{NodeNumber, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// Checks 15, 18 and 20.
pub const CHECKS: &[Check] = &[
    Check { number: 15, word: "node-link", look: between_nodes },
    Check { number: 18, word: "memory-bandwidth", look: memory_use },
    Check { number: 20, word: "node-link-use", look: link_use },
];

/// Below this share of its rated bandwidth a link is not what was bought: 19.7 % were measured with a wrong snoop mode, 79 % with the right one.
const DEFECT: f64 = 0.50;
/// A healthy link reaches this share: 79 and 79.7 % were measured on two kinds of machine.
const HEALTHY: f64 = 0.75;
/// Where the link's rating is not known: far memory at less than this share of near memory. 0.56 was measured on a healthy link, 0.14 on a bad one.
const FAR_TO_NEAR: f64 = 0.35;
/// The two directions of a link are alike; what differs more has another reason than noise.
const ASYMMETRY: f64 = 0.15;
/// From this share of what was measured at most, memory is what the host waits for.
const MEMORY_FULL: f64 = 0.80;
/// Up to this share it is far from that.
const MEMORY_FREE: f64 = 0.30;
/// The same for a link: it is shared by requests and answers, and queues earlier.
const LINK_FULL: f64 = 0.60;

fn gigabytes(bytes: f64) -> String {
    format!("{:.1}", bytes / GB)
}

fn percent(share: f64) -> String {
    format!("{:.0}", share * 100.0)
}

/// Check 15: what the link between two nodes carries, against what comparable links carry.
fn between_nodes(host: &Host) -> Verdict {
    if host.topology.hypervisor.is_some() || with_both(&host.topology).len() < 2 {
        return Verdict::NotHere;
    }
    match Matrix::kept(&host.system) {
        Some(matrix) => of_matrix(&matrix, &host.topology, KEPT),
        None => not_measured("bandwidth between nodes"),
    }
}

fn not_measured(what: &str) -> Verdict {
    let what = format!("{what}: {KEPT} holds no measurement of this boot");
    Verdict::NotSeen { what, how: Sentence::new("links.measure") }
}

/// Nodes with CPUs and memory.
fn with_both(topology: &Topology) -> Vec<NodeNumber> {
    let placed: BTreeSet<NodeNumber> = topology.cpus.values().map(|place| place.node).collect();
    let nodes = topology.nodes.iter().filter(|(number, node)| placed.contains(number) && node.memory_bytes > 0);
    nodes.map(|(&number, _)| number).collect()
}

/// What a measurement says about the links. `source` names it.
pub fn of_matrix(matrix: &Matrix, topology: &Topology, source: &str) -> Verdict {
    let nodes = with_both(topology);
    if matrix.hypervisor.is_some() || nodes.len() < 2 {
        return Verdict::NotHere;
    }
    let rated = whole_sockets(topology, &nodes).then(|| rated(&matrix.cpu_model)).flatten();
    let mut found = Vec::new();
    let mut worst: Option<Pair> = None;
    for (at, &a) in nodes.iter().enumerate() {
        for &b in &nodes[at + 1..] {
            let Some(pair) = Pair::of(matrix, a, b) else { continue };
            match pair.finding(rated, source) {
                Some(finding) => found.push(finding),
                None => worst = worst.filter(|worst| worst.far_to_near() <= pair.far_to_near()).or(Some(pair)),
            }
        }
    }
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    let Some(worst) = worst else { return Verdict::NotHere };
    let sentence = match rated {
        Some(rated) => Sentence::new("node-link.fine-rated")
            .with("rated", gigabytes(rated))
            .with("share", percent(worst.slower() / rated)),
        None => Sentence::new("node-link.fine").with("share", percent(worst.far_to_near())),
    };
    Verdict::Fine(sentence.with("a", worst.a).with("b", worst.b).with("read", gigabytes(worst.slower())))
}

/// Two nodes, and what was measured between them.
#[derive(Clone, Copy)]
struct Pair {
    a: NodeNumber,
    b: NodeNumber,
    /// From the CPUs of a to memory of b, and the other way.
    ab: f64,
    ba: f64,
    near: f64,
    spread: f64,
}

impl Pair {
    fn of(matrix: &Matrix, a: NodeNumber, b: NodeNumber) -> Option<Pair> {
        let (ab, ba) = (matrix.read_between(a, b)?, matrix.read_between(b, a)?);
        let near = matrix.local(a)?.min(matrix.local(b)?);
        let (spread, near) = (ab.spread.max(ba.spread), near.max(1.0));
        Some(Pair { a, b, ab: ab.bytes_per_second, ba: ba.bytes_per_second, near, spread })
    }

    fn slower(&self) -> f64 {
        self.ab.min(self.ba)
    }

    fn far_to_near(&self) -> f64 {
        self.slower() / self.near
    }

    fn finding(&self, rated: Option<f64>, source: &str) -> Option<Finding> {
        let read = self.slower();
        let asymmetry = 1.0 - read / self.ab.max(self.ba);
        let (severity, confidence, text, could_be) = match rated {
            Some(rated) if read < DEFECT * rated => (
                Severity::Error,
                Confidence::Computed,
                Sentence::new("node-link.slow-rated")
                    .with("rated", gigabytes(rated))
                    .with("share", percent(read / rated))
                    .with("healthy", percent(HEALTHY)),
                rated * HEALTHY,
            ),
            None if self.far_to_near() < FAR_TO_NEAR => (
                Severity::Warning,
                Confidence::Certain,
                Sentence::new("node-link.slow")
                    .with("near", gigabytes(self.near))
                    .with("share", percent(self.far_to_near())),
                FAR_TO_NEAR * self.near,
            ),
            _ if asymmetry > ASYMMETRY => (
                Severity::Note,
                Confidence::Certain,
                Sentence::new("node-link.asymmetric")
                    .with("other", gigabytes(self.ab.max(self.ba)))
                    .with("share", percent(asymmetry)),
                self.ab.max(self.ba),
            ),
            _ => return None,
        };
        let confidence = if self.spread > SPREAD_MAX { Confidence::Likely } else { confidence };
        let cell =
            |from, to, value| Evidence::new(source, format!("CPUs of node {from} read {value} GB/s of node {to}"));
        Some(Finding {
            id: format!("node-link/{}-{}", self.a, self.b),
            check: 15,
            severity,
            confidence,
            text: text.with("a", self.a).with("b", self.b).with("read", gigabytes(read)),
            evidence: vec![
                cell(self.a, self.b, gigabytes(self.ab)),
                cell(self.b, self.a, gigabytes(self.ba)),
                Evidence::new(source, format!("own memory of either at least {} GB/s", gigabytes(self.near))),
            ],
            number: Some(Number { is: read, could_be, unit: "B/s".to_owned() }),
            remedies: vec![Remedy::Explain { what: Sentence::new("node-link.remedy"), command: None }],
        })
    }
}

/// Two sockets of one node each: only there is a pair of nodes also the two ends of all links between sockets.
fn whole_sockets(topology: &Topology, nodes: &[NodeNumber]) -> bool {
    let sockets: BTreeSet<(NodeNumber, u32)> =
        topology.cpus.values().map(|place| (place.node, place.package)).collect();
    let packages: BTreeSet<u32> = sockets.iter().map(|(_, package)| *package).collect();
    nodes.len() == 2 && sockets.len() == 2 && packages.len() == 2
}

/// What the links between two sockets of this CPU can carry in one direction, by Intel's data sheets. Boards may leave one of three links unwired: two
/// are counted on. Low-power models differ, and what is not in the table is not known.
fn rated(model: &str) -> Option<f64> {
    if let Some((_, rest)) = model.split_once("E5-26") {
        let (number, rest) = rest.split_once(' ')?;
        let number: u32 = number.parse().ok().filter(|_| number.len() == 2)?;
        let newer = rest.starts_with("v3") || rest.starts_with("v4");
        let gts = match number {
            ..=9 => 6.4,
            10..=40 if number != 37 => [7.2, 8.0][usize::from(newer)],
            _ => [8.0, 9.6][usize::from(newer)],
        };
        return Some(socket_link(gts, 2));
    }
    let (class, rest) = ["Bronze ", "Silver ", "Gold ", "Platinum "]
        .into_iter()
        .find_map(|class| Some((class, model.split_once("Xeon(R) ")?.1.strip_prefix(class)?)))?;
    let number = rest.split(' ').next()?;
    // H: Cooper Lake, of another kind.
    if number.len() < 4 || number.contains('H') || !number.bytes().take(4).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let gts = match (class, &number[1..2]) {
        ("Bronze " | "Silver ", "1" | "2") => 9.6,
        ("Gold " | "Platinum ", "1" | "2") | ("Silver ", "3") => 10.4,
        ("Gold " | "Platinum ", "3") => 11.2,
        _ => return None,
    };
    Some(socket_link(gts, 2))
}

/// Bytes a second that the CPUs of each node move: all, and those of memory near them.
struct Moved {
    nodes: BTreeMap<NodeNumber, (f64, f64)>,
    evidence: Vec<Evidence>,
}

const MONITORING: &str = "/sys/fs/resctrl/mon_data";

/// Why there is nothing to compare: this machine has no such counters, or they are not shown.
fn moved(host: &Host) -> Result<Moved, Verdict> {
    let cpuinfo = host.system.text("/proc/cpuinfo").known().unwrap_or_default();
    if !cpuinfo.split_whitespace().any(|flag| flag == "cqm_mbm_total") {
        return Err(Verdict::NotHere);
    }
    let hidden = || {
        let what = format!("traffic of memory: {MONITORING} is not there, or shows no bytes");
        Verdict::NotSeen { what, how: Sentence::new("links.resctrl") }
    };
    let Some((earlier, seconds)) = &host.earlier else { return Err(hidden()) };
    let domains: Vec<(String, NodeNumber)> = host.system.list(MONITORING).known().map_or_else(Vec::new, |names| {
        names.into_iter().filter_map(|name| Some((name.clone(), node_of(host, &name)?))).collect()
    });
    let mut moved = Moved { nodes: BTreeMap::new(), evidence: Vec::new() };
    for (domain, node) in domains {
        let mut rate = |file: &str| {
            let path = format!("{MONITORING}/{domain}/{file}");
            let (before, after) = (earlier.number(&path)?, host.counters.number(&path)?);
            let rate = after.checked_sub(before)? as f64 / seconds.as_secs_f64();
            moved.evidence.push(Evidence::new(&path, format!("{after}, {} GB/s more", gigabytes(rate))));
            Some(rate)
        };
        let (Some(all), Some(near)) = (rate("mbm_total_bytes"), rate("mbm_local_bytes")) else { return Err(hidden()) };
        let sum = moved.nodes.entry(node).or_default();
        *sum = (sum.0 + all, sum.1 + near.min(all));
    }
    if moved.nodes.is_empty() { Err(hidden()) } else { Ok(moved) }
}

/// The node of a monitored cache, such as `mon_L3_01`.
fn node_of(host: &Host, domain: &str) -> Option<NodeNumber> {
    let id: u32 = domain.strip_prefix("mon_L3_")?.parse().ok()?;
    let has = |cpu: u32| {
        host.system.number::<u32>(&format!("/sys/devices/system/cpu/cpu{cpu}/cache/index3/id")).known() == Some(id)
    };
    host.topology.cpus.iter().find(|(cpu, _)| has(**cpu)).map(|(_, place)| place.node)
}

/// Check 18: what moves to and from a node's memory now, against what was measured that it can.
fn memory_use(host: &Host) -> Verdict {
    let moved = match moved(host) {
        Ok(moved) => moved,
        Err(verdict) => return verdict,
    };
    let Some(matrix) = Matrix::kept(&host.system) else { return not_measured("what memory can carry") };
    let far_of_others = |node| {
        // Of more than two nodes it is not told whose memory is far.
        let others = moved.nodes.iter().filter(|(other, _)| **other != node && moved.nodes.len() == 2);
        others.map(|(_, (all, near))| all - near).sum::<f64>()
    };
    let mut fullest: Option<(NodeNumber, f64, f64)> = None;
    for (&node, (_, near)) in &moved.nodes {
        let Some(most) = matrix.local(node) else { continue };
        let used = near + far_of_others(node);
        if fullest.is_none_or(|(_, used_there, most_there)| used / most > used_there / most_there) {
            fullest = Some((node, used, most));
        }
    }
    let Some((node, used, most)) = fullest else { return not_measured("what memory can carry") };
    let share = used / most;
    let sentence = |key| {
        Sentence::new(key)
            .with("node", node)
            .with("used", gigabytes(used))
            .with("most", gigabytes(most))
            .with("share", percent(share))
    };
    if share <= MEMORY_FULL {
        // Ten thousand times, on an idle host, says no more than a hundred.
        let times = format!("{:.0}", (1.0 / share).min(100.0));
        return Verdict::Fine(if share < MEMORY_FREE {
            sentence("memory-bandwidth.free").with("times", times)
        } else {
            sentence("memory-bandwidth.fine")
        });
    }
    Verdict::Found(vec![Finding {
        id: format!("memory-bandwidth/node{node}"),
        check: 18,
        severity: Severity::Warning,
        confidence: Confidence::Certain,
        text: sentence("memory-bandwidth.full"),
        evidence: with_measured(moved.evidence, format!("node {node} reads at most {} GB/s", gigabytes(most))),
        number: Some(Number { is: used, could_be: most, unit: "B/s".to_owned() }),
        remedies: vec![Remedy::Explain { what: Sentence::new("memory-bandwidth.remedy"), command: None }],
    }])
}

fn with_measured(mut evidence: Vec<Evidence>, measured: String) -> Vec<Evidence> {
    evidence.push(Evidence::new(KEPT, measured));
    evidence
}

/// Check 20: what moves over a link between nodes now, against what was measured that it can.
fn link_use(host: &Host) -> Verdict {
    if with_both(&host.topology).len() < 2 {
        return Verdict::NotHere;
    }
    let moved = match moved(host) {
        Ok(moved) => moved,
        Err(verdict) => return verdict,
    };
    let Some(matrix) = Matrix::kept(&host.system) else { return not_measured("what links between nodes can carry") };
    let nodes: Vec<NodeNumber> = moved.nodes.keys().copied().collect();
    let &[a, b] = nodes.as_slice() else {
        let what = format!("{MONITORING}: which of {} nodes far bytes belong to", nodes.len());
        return Verdict::NotSeen { what, how: Sentence::new("links.watch") };
    };
    let used = |node, other| {
        let (all, near) = moved.nodes.get(&node)?;
        Some((node, other, all - near, matrix.read_between(node, other)?.bytes_per_second))
    };
    let both = [used(a, b), used(b, a)].into_iter().flatten();
    let Some((node, other, used, most)) = both.max_by(|x, y| (x.2 / x.3).total_cmp(&(y.2 / y.3))) else {
        return not_measured("what links between nodes can carry");
    };
    let share = used / most;
    let sentence = |key| {
        Sentence::new(key)
            .with("a", node)
            .with("b", other)
            .with("used", gigabytes(used))
            .with("most", gigabytes(most))
            .with("share", percent(share))
    };
    if share <= LINK_FULL {
        return Verdict::Fine(sentence("node-link-use.fine"));
    }
    let measured = format!("CPUs of node {node} read at most {} GB/s of node {other}", gigabytes(most));
    Verdict::Found(vec![Finding {
        id: format!("node-link-use/{node}-{other}"),
        check: 20,
        severity: Severity::Warning,
        confidence: Confidence::Certain,
        text: sentence("node-link-use.full"),
        evidence: with_measured(moved.evidence, measured),
        number: Some(Number { is: used, could_be: most, unit: "B/s".to_owned() }),
        remedies: vec![Remedy::Explain { what: Sentence::new("node-link-use.remedy"), command: None }],
    }])
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{Examined, Tree};
    use super::*;

    const HASWELL: &str = "Intel(R) Xeon(R) CPU E5-2620 v3 @ 2.40GHz";

    /// Two sockets of one node each, that can count what their CPUs move.
    fn two_nodes(model: &str) -> Tree {
        let cpuinfo = format!("processor\t: 0\nmodel name\t: {model}\nflags\t\t: fpu cqm_mbm_total cqm_mbm_local\n");
        let mut tree = Tree::new().node(0, "0-3", 64).node(1, "4-7", 64).file("/proc/cpuinfo", &cpuinfo);
        for cpu in 0..8 {
            let file = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index3/id");
            tree = tree.file(&file, if cpu < 4 { "0" } else { "1" });
        }
        tree
    }

    /// What each node's CPUs moved in the minute between two looks, in GB/s: all, and near.
    fn moved(mut tree: Tree, nodes: [(u64, u64); 2]) -> Tree {
        for (node, (all, near)) in nodes.into_iter().enumerate() {
            for (file, gigabytes) in [("mbm_total_bytes", all), ("mbm_local_bytes", near)] {
                let path = format!("{MONITORING}/mon_L3_0{node}/{file}");
                tree = tree.earlier(&path, "1000").file(&path, &(1000 + gigabytes * 60_000_000_000).to_string());
            }
        }
        tree
    }

    fn found(verdict: Verdict) -> Finding {
        match verdict {
            Verdict::Found(found) if found.len() == 1 => found.into_iter().next().expect("one"),
            other => panic!("{other:?}"),
        }
    }

    fn fine(verdict: Verdict) -> String {
        match verdict {
            Verdict::Fine(why) => why.key,
            other => panic!("{other:?}"),
        }
    }

    fn hidden(verdict: Verdict, how: &str) {
        assert!(matches!(&verdict, Verdict::NotSeen { how: said, .. } if said.key == how), "{verdict:?}");
    }

    #[test]
    fn a_link_at_a_fifth_of_its_rating_is_an_error_and_at_three_quarters_fine() {
        let early = found(two_nodes(HASWELL).measured([46.24, 6.29, 6.27, 46.27]).says(15));
        assert_eq!(
            (early.id.as_str(), early.severity, early.text.key.as_str()),
            ("node-link/0-1", Severity::Error, "node-link.slow-rated")
        );
        assert!(early.text.with.contains(&("share".to_owned(), "20".to_owned())), "{:?}", early.text);
        assert_eq!(early.number.map(|number| number.could_be), Some(24e9));
        assert_eq!(early.evidence[1], Evidence::new(KEPT, "CPUs of node 1 read 6.3 GB/s of node 0"));
        assert_eq!(fine(two_nodes(HASWELL).measured([45.1, 25.3, 25.3, 45.0]).says(15)), "node-link.fine-rated");
        assert_eq!(fine(two_nodes(HASWELL).measured([45.1, 20.0, 20.0, 45.0]).says(15)), "node-link.fine-rated");
    }

    #[test]
    fn without_a_rating_far_memory_is_compared_with_near_memory() {
        let warning = found(two_nodes("Some CPU").measured([46.2, 6.3, 6.3, 46.2]).says(15));
        assert_eq!((warning.severity, warning.text.key.as_str()), (Severity::Warning, "node-link.slow"));
        assert_eq!(fine(two_nodes("Some CPU").measured([45.0, 25.3, 25.3, 45.0]).says(15)), "node-link.fine");
    }

    #[test]
    fn a_direction_that_carries_less_than_the_other_is_worth_a_note() {
        let note = found(two_nodes("Some CPU").measured([45.0, 20.0, 25.0, 45.0]).says(15));
        assert_eq!((note.severity, note.text.key.as_str()), (Severity::Note, "node-link.asymmetric"));
        assert_eq!(fine(two_nodes("Some CPU").measured([45.0, 22.0, 25.0, 45.0]).says(15)), "node-link.fine");
    }

    #[test]
    fn nodes_that_are_parts_of_a_socket_are_not_compared_with_the_link_between_sockets() {
        let mut tree = two_nodes(HASWELL);
        for cpu in 4..8 {
            tree = tree.file(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"), "0");
        }
        assert_eq!(fine(tree.measured([30.0, 14.0, 14.0, 30.0]).says(15)), "node-link.fine");
    }

    #[test]
    fn one_node_and_a_virtual_machine_have_no_link_and_no_measurement_of_this_boot_says_how_to_make_one() {
        assert_eq!(Tree::new().node(0, "0-3", 64).measured([40.0, 1.0, 1.0, 40.0]).says(15), Verdict::NotHere);
        let guest = two_nodes("Some CPU").virtual_machine();
        assert_eq!(guest.measured([40.0, 1.0, 1.0, 40.0]).says(15), Verdict::NotHere);
        hidden(two_nodes(HASWELL).says(15), "links.measure");
        let other_boot = two_nodes(HASWELL).measured([46.2, 6.3, 6.3, 46.2]);
        hidden(other_boot.file("/proc/sys/kernel/random/boot_id", "next boot").says(15), "links.measure");
        hidden(two_nodes(HASWELL).hidden(KEPT).says(15), "links.measure");
    }

    #[test]
    fn links_are_rated_by_the_data_sheet_and_others_not_at_all() {
        let models = [
            ("Intel(R) Xeon(R) CPU E5-2680 0 @ 2.70GHz", Some(32.0)),
            ("Intel(R) Xeon(R) CPU E5-2630 v2 @ 2.60GHz", Some(28.8)),
            (HASWELL, Some(32.0)),
            ("Intel(R) Xeon(R) CPU E5-2637 v4 @ 3.50GHz", Some(38.4)),
            ("Intel(R) Xeon(R) CPU E5-2603 v3 @ 1.60GHz", Some(25.6)),
            ("Intel(R) Xeon(R) CPU E5-2650L v3 @ 1.80GHz", None),
            ("Intel(R) Xeon(R) CPU E5-4650 0 @ 2.70GHz", None),
            ("Intel(R) Xeon(R) Silver 4108 CPU @ 1.80GHz", Some(38.4)),
            ("Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz", Some(41.6)),
            ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", Some(44.8)),
            ("Intel(R) Xeon(R) Gold 6328H CPU @ 2.80GHz", None),
            ("AMD EPYC 7763 64-Core Processor", None),
            ("Intel(R) Xeon(R) Gold", None),
            ("", None),
        ];
        for (model, gigabytes) in models {
            let rated = rated(model).map(|rated| (rated / 1e8).round() / 10.0);
            assert_eq!(rated, gigabytes, "{model}");
        }
    }

    #[test]
    fn memory_that_is_nearly_full_is_found_and_memory_with_headroom_is_not_the_bound() {
        let tree = || two_nodes(HASWELL).measured([48.0, 25.0, 25.0, 48.0]);
        let full = found(moved(tree(), [(41, 40), (1, 1)]).says(18));
        assert_eq!((full.id.as_str(), full.severity), ("memory-bandwidth/node0", Severity::Warning));
        assert!(full.evidence.iter().any(|shown| shown.source.ends_with("mon_L3_00/mbm_local_bytes")));
        // What the other node's CPUs read there counts as well.
        assert_eq!(found(moved(tree(), [(30, 30), (12, 1)]).says(18)).id, "memory-bandwidth/node0");
        match moved(tree(), [(9, 9), (1, 1)]).says(18) {
            Verdict::Fine(why) => {
                assert_eq!(why.key, "memory-bandwidth.free");
                assert!(why.with.contains(&("times".to_owned(), "5".to_owned())), "{why:?}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(fine(moved(tree(), [(24, 24), (1, 1)]).says(18)), "memory-bandwidth.fine");
    }

    #[test]
    fn a_link_that_queues_is_found_with_the_direction() {
        let tree = || two_nodes(HASWELL).measured([48.0, 25.0, 25.0, 48.0]);
        let full = found(moved(tree(), [(3, 2), (30, 14)]).says(20));
        assert_eq!((full.id.as_str(), full.severity), ("node-link-use/1-0", Severity::Warning));
        assert_eq!(full.number.map(|number| (number.is / 1e9).round()), Some(16.0));
        assert_eq!(fine(moved(tree(), [(3, 2), (30, 20)]).says(20)), "node-link-use.fine");
        assert_eq!(moved(Tree::new().node(0, "0-3", 64), [(9, 1), (9, 1)]).says(20), Verdict::NotHere);
    }

    #[test]
    fn counters_that_are_not_there_not_mounted_or_not_read_are_told_apart() {
        for check in [18, 20] {
            let nodes = || Tree::new().node(0, "0-3", 64).node(1, "4-7", 64);
            assert_eq!(nodes().virtual_machine().says(check), Verdict::NotHere, "no counters in a virtual machine");
            let measured = || two_nodes(HASWELL).measured([48.0, 25.0, 25.0, 48.0]);
            hidden(measured().says(check), "links.resctrl");
            let one_look = measured().file(&format!("{MONITORING}/mon_L3_00/mbm_total_bytes"), "5");
            hidden(one_look.says(check), "links.resctrl");
            let unreadable = moved(measured(), [(9, 9), (9, 9)]).earlier("/proc/stat", "");
            let path = format!("{MONITORING}/mon_L3_00/mbm_total_bytes");
            hidden(unreadable.file(&path, "Unavailable").says(check), "links.resctrl");
            hidden(two_nodes(HASWELL).hidden(MONITORING).says(check), "links.resctrl");
            hidden(moved(two_nodes(HASWELL), [(9, 9), (9, 9)]).says(check), "links.measure");
        }
    }
}
