//! What one delivered byte asks of memory and of the links between NUMA nodes.

use forebay_host::topology::NodeNumber;
use std::collections::BTreeMap;

/// What moves bytes, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edge {
    /// A device writes into memory.
    DmaIn,
    /// A CPU reads memory.
    Load,
    /// A CPU writes: the line is read before (RFO), and written back later.
    Store,
    /// A CPU writes past its caches.
    #[cfg(test)]
    StoreNonTemporal,
    /// A device reads from memory.
    DmaOut,
}

impl Edge {
    /// Bytes that go from memory to who asks, and from who asks to memory, for each byte.
    fn passes(self) -> (f64, f64) {
        match self {
            Edge::Load | Edge::DmaOut => (1.0, 0.0),
            Edge::Store => (1.0, 1.0),
            Edge::DmaIn => (0.0, 1.0),
            #[cfg(test)]
            Edge::StoreNonTemporal => (0.0, 1.0),
        }
    }
}

/// One part of a path: who moves bytes, how, and how many of each delivered byte.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Move {
    /// How bytes are moved, which says what memory and links see of it.
    pub edge: Edge,
    /// Node of who moves them. None: nobody has placed it, and so anywhere.
    pub agent: Option<NodeNumber>,
    /// How many of each byte: half of them, where two devices share the work.
    pub share: f64,
}

/// The CPU copies. `sendfile` has none; a TCP receiver has two, socket to user and user to page cache; so has a server in user space that reads and
/// sends; TLS in software is one more.
pub fn copies(count: u32, agent: Option<NodeNumber>) -> impl Iterator<Item = Move> {
    let copy = [Edge::Load, Edge::Store].map(|edge| Move { edge, agent, share: 1.0 });
    (0..count).flat_map(move |_| copy)
}

/// Bytes for each byte delivered.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Traffic {
    /// Bytes at each node's memory.
    pub memory: BTreeMap<NodeNumber, f64>,
    /// Over the link between two nodes, from the first to the second.
    pub links: BTreeMap<(NodeNumber, NodeNumber), f64>,
}

impl Traffic {
    /// One edge, with who moves the bytes at one node and the memory at another.
    fn add(&mut self, edge: Edge, agent: NodeNumber, memory: NodeNumber, share: f64) {
        let (to_agent, to_memory) = edge.passes();
        *self.memory.entry(memory).or_default() += (to_agent + to_memory) * share;
        if agent != memory {
            for (link, bytes) in [((memory, agent), to_agent), ((agent, memory), to_memory)] {
                if bytes > 0.0 {
                    *self.links.entry(link).or_default() += bytes * share;
                }
            }
        }
    }

    /// Bytes that cross between nodes, in all directions together.
    #[cfg(test)]
    pub fn crossings(&self) -> f64 {
        self.links.values().sum()
    }
}

/// What a path asks on a host with these nodes: the mean over everywhere that its parts may be. `memory`: the node of what lies in between.
pub fn traffic(moves: &[Move], memory: Option<NodeNumber>, nodes: &[NodeNumber]) -> Traffic {
    let mut traffic = Traffic::default();
    let anywhere = |place: Option<NodeNumber>| place.map_or_else(|| nodes.to_vec(), |node| vec![node]);
    let memories = anywhere(memory);
    for one in moves {
        let agents = anywhere(one.agent);
        let share = one.share / (agents.len() * memories.len()) as f64;
        for &agent in &agents {
            for &memory in &memories {
                traffic.add(one.edge, agent, memory, share);
            }
        }
    }
    traffic
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device brings each byte, CPUs copy it, a device takes it away.
    fn moves(brought: bool, count: u32, taken: bool, agent: Option<NodeNumber>) -> Vec<Move> {
        let device = |edge| Move { edge, agent, share: 1.0 };
        let brought = brought.then_some(device(Edge::DmaIn));
        brought.into_iter().chain(copies(count, agent)).chain(taken.then_some(device(Edge::DmaOut))).collect()
    }

    /// Bytes at memory, and bytes that cross if every agent is remote.
    fn row(brought: bool, copies: u32, taken: bool) -> (f64, f64) {
        let traffic = traffic(&moves(brought, copies, taken, Some(1)), Some(0), &[0, 1]);
        (traffic.memory.values().sum(), traffic.crossings())
    }

    #[test]
    fn each_kind_of_path_asks_of_memory_and_links_what_the_table_says() {
        assert_eq!(row(false, 0, true), (1.0, 1.0), "page cache hit, sendfile, NIC");
        assert_eq!(row(false, 2, true), (7.0, 7.0), "page cache hit, read and send, NIC");
        assert_eq!(
            row(true, 0, true),
            (2.0, 2.0),
            "NVMe, page cache, sendfile, NIC; and O_DIRECT with a zero-copy send"
        );
        assert_eq!(row(true, 2, true), (8.0, 8.0), "NIC, socket, user, page cache, NVMe");
        assert_eq!(row(true, 0, false), (1.0, 1.0), "RDMA write into memory");
        assert_eq!(row(false, 3, true).0 - row(false, 2, true).0, 3.0, "software TLS");
    }

    #[test]
    fn two_copies_anywhere_on_two_nodes_cross_three_to_four_times() {
        let mut moves = moves(true, 2, true, None);
        let stores = traffic(&moves, None, &[0, 1]);
        assert_eq!(stores.crossings(), 4.0);
        assert_eq!(stores.links, BTreeMap::from([((0, 1), 2.0), ((1, 0), 2.0)]));
        for one in moves.iter_mut().filter(|one| one.edge == Edge::Store) {
            one.edge = Edge::StoreNonTemporal;
        }
        let past = traffic(&moves, None, &[0, 1]);
        assert_eq!(past.crossings(), 3.0);
        assert_eq!(past.links, BTreeMap::from([((0, 1), 1.5), ((1, 0), 1.5)]));
    }

    #[test]
    fn on_n_nodes_an_edge_crosses_in_n_minus_one_of_n_cases() {
        let nodes = [0, 1, 2, 33];
        let load = Move { edge: Edge::Load, agent: None, share: 1.0 };
        let crossings = traffic(&[load], None, &nodes).crossings();
        assert!((crossings - 0.75).abs() < 1e-9, "{crossings}");
        assert_eq!(traffic(&moves(true, 2, true, Some(2)), Some(2), &nodes).crossings(), 0.0);
    }

    #[test]
    fn two_devices_that_share_the_work_each_move_half_of_it() {
        let half = |agent| Move { edge: Edge::DmaIn, agent: Some(agent), share: 0.5 };
        let traffic = traffic(&[half(0), half(1)], Some(0), &[0, 1]);
        assert_eq!(traffic.links, BTreeMap::from([((1, 0), 0.5)]));
        assert_eq!(traffic.memory, BTreeMap::from([(0, 1.0)]));
    }

    #[test]
    fn reads_go_from_memory_to_who_reads_and_writes_the_other_way() {
        let at = |edge, agent, memory| {
            traffic(&[Move { edge, agent: Some(agent), share: 1.0 }], Some(memory), &[0, 1]).links
        };
        assert_eq!(at(Edge::Load, 0, 1), BTreeMap::from([((1, 0), 1.0)]));
        assert_eq!(at(Edge::DmaOut, 0, 1), BTreeMap::from([((1, 0), 1.0)]));
        assert_eq!(at(Edge::DmaIn, 0, 1), BTreeMap::from([((0, 1), 1.0)]));
        assert_eq!(at(Edge::Store, 0, 1), BTreeMap::from([((0, 1), 1.0), ((1, 0), 1.0)]));
    }
}
