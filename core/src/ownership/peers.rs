//! Which nodes become members: a pure choice among candidates, and who is kept out for a while because it flaps.

use super::seam::{Candidate, Timing};
use crate::cluster::NodeId;
use crate::types::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What is asked of new members.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// How many nodes are to be chosen.
    pub count: usize,
    /// Bytes of tier that each must have room for.
    pub bytes: u64,
    /// On flash only (A2).
    pub flash: bool,
    /// Only nodes that reach the backing (custodian).
    pub reaches_backing: bool,
}

/// The best of `candidates`, best first: of domains where no copy is yet, then idle ones, then those with most room. `present` are the
/// members and learners, the owner included.
pub fn choose_peers(wanted: Wanted, present: &[NodeId], candidates: &[Candidate]) -> Vec<NodeId> {
    let domain_of = |node: &NodeId| candidates.iter().find(|other| other.node == *node).map(|other| other.domain);
    let mut used: Vec<u64> = present.iter().filter_map(domain_of).collect();
    let fits = |candidate: &&Candidate| {
        !present.contains(&candidate.node)
            && candidate.free_bytes >= wanted.bytes
            && (candidate.flash || !wanted.flash)
            && (candidate.reaches_backing || !wanted.reaches_backing)
            // Whoever is to serve at all, now, may be one that is about to leave.
            && (!candidate.leaving || wanted.reaches_backing)
    };
    let mut left: Vec<&Candidate> = candidates.iter().filter(fits).collect();
    let mut chosen = Vec::new();
    while chosen.len() < wanted.count {
        let copies = |domain| used.iter().filter(|other| **other == domain).count();
        let rank = |candidate: &&&Candidate| {
            // Loads that differ little say nothing: steps of an eighth, so that room decides between equals.
            let busy = candidate.load_permille / 125;
            (copies(candidate.domain), busy, u64::MAX - candidate.free_bytes, candidate.node)
        };
        let Some(best) = left.iter().min_by_key(rank).map(|best| **best) else { break };
        left.retain(|other| other.node != best.node);
        used.push(best.domain);
        chosen.push(best.node);
    }
    chosen
}

/// Nodes that were dropped lately.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptOut {
    nodes: BTreeMap<NodeId, Absence>,
}

#[derive(Clone, Copy, Debug)]
struct Absence {
    times: u32,
    until: Instant,
}

impl KeptOut {
    /// A node was dropped: once more in a row, unless it had been well for as long as it may be kept out at most.
    pub(super) fn dropped(&mut self, node: NodeId, now: Instant, timing: &Timing) {
        let before = self.nodes.get(&node).filter(|absence| now < absence.until + timing.kept_out_max);
        let times = before.map_or(0, |absence| absence.times.saturating_add(1));
        let longer = timing.kept_out_min.0.saturating_mul(1 << times.min(32));
        self.nodes.insert(node, Absence { times, until: now + Duration(longer.min(timing.kept_out_max.0)) });
    }

    pub(super) fn is_out(&self, node: NodeId, now: Instant) -> bool {
        self.nodes.get(&node).is_some_and(|absence| now < absence.until)
    }

    /// When the next one may come back.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.nodes.values().map(|absence| absence.until).filter(|until| now < *until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn node(node: u64, domain: u64, free_bytes: u64, load_permille: u32) -> Candidate {
        Candidate {
            node: NodeId(node),
            domain,
            free_bytes,
            load_permille,
            flash: true,
            reaches_backing: true,
            leaving: false,
        }
    }

    fn chosen(wanted: Wanted, present: &[u64], candidates: &[Candidate]) -> Vec<u64> {
        let present: Vec<NodeId> = present.iter().map(|node| NodeId(*node)).collect();
        choose_peers(wanted, &present, candidates).iter().map(|node| node.0).collect()
    }

    const TWO: Wanted = Wanted { count: 2, bytes: 10, flash: false, reaches_backing: false };

    #[test]
    fn copies_are_spread_over_domains_before_anything_else() {
        let nodes =
            [node(1, 1, 99, 0), node(2, 1, 99, 0), node(3, 2, 11, 900), node(4, 2, 99, 900), node(5, 3, 10, 999)];
        assert_eq!(chosen(TWO, &[1], &nodes), vec![4, 5]);
        assert_eq!(chosen(Wanted { count: 9, ..TWO }, &[1], &nodes), vec![4, 5, 2, 3]);
    }

    #[test]
    fn the_idle_one_is_taken_and_among_equals_the_one_with_room() {
        let nodes = [node(1, 1, 99, 0), node(2, 2, 50, 100), node(3, 2, 60, 120), node(4, 2, 90, 300)];
        assert_eq!(chosen(Wanted { count: 1, ..TWO }, &[1], &nodes), vec![3]);
    }

    #[test]
    fn who_has_no_room_no_flash_or_no_way_to_the_backing_is_not_taken() {
        let memory = Candidate { flash: false, ..node(2, 2, 99, 0) };
        let cut_off = Candidate { reaches_backing: false, ..node(3, 3, 99, 0) };
        let nodes = [node(1, 1, 99, 0), memory, cut_off, node(4, 4, 9, 0)];
        assert_eq!(chosen(Wanted { flash: true, ..TWO }, &[1], &nodes), vec![3]);
        assert_eq!(chosen(Wanted { reaches_backing: true, ..TWO }, &[1], &nodes), vec![2]);
    }

    #[test]
    fn who_is_leaving_is_taken_only_where_nobody_else_can_serve() {
        let leaving = Candidate { leaving: true, ..node(2, 2, 99, 0) };
        assert_eq!(chosen(TWO, &[1], &[node(1, 1, 99, 0), leaving, node(3, 1, 99, 0)]), vec![3]);
        assert_eq!(chosen(Wanted { reaches_backing: true, ..TWO }, &[1], &[leaving]), vec![2]);
    }

    #[test]
    fn who_flaps_is_kept_out_longer_each_time_and_forgiven_in_the_end() {
        let (timing, mut kept, mut now) = (Timing::default(), KeptOut::default(), Instant(0));
        for seconds in [1, 2, 4, 8] {
            kept.dropped(NodeId(1), now, &timing);
            assert_eq!(kept.next(now), Some(now + Duration::from_secs(seconds)));
            now = now + Duration::from_secs(seconds);
            assert!(!kept.is_out(NodeId(1), now));
        }
        now = now + timing.kept_out_max;
        kept.dropped(NodeId(1), now, &timing);
        assert_eq!(kept.next(now), Some(now + timing.kept_out_min));
    }
}
