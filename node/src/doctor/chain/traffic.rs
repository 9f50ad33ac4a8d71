//! What one delivered byte asks of memory and of the links between NUMA nodes.

use super::super::topology::NodeNumber;
use std::collections::BTreeMap;

/// What moves bytes, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edge {
    /// A device writes into memory.
    DmaIn,
    /// A CPU reads.
    Load,
    /// A CPU writes: the line is read before (RFO), and written back later.
    Store,
    /// A CPU writes past its caches.
    #[cfg(test)]
    StoreNonTemporal,
    /// A device reads memory.
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

/// What a path does with each byte: a device brings it, CPUs copy it, a device takes it away.
///
/// Copies of a TCP receiver: socket to user, user to page cache. `sendfile` copies nothing; a server in user space that reads and sends copies
/// twice; software TLS is one more.
pub fn edges(brought: bool, copies: u32, taken: bool) -> Vec<Edge> {
    let mut edges = Vec::new();
    edges.extend(brought.then_some(Edge::DmaIn));
    edges.extend((0..copies).flat_map(|_| [Edge::Load, Edge::Store]));
    edges.extend(taken.then_some(Edge::DmaOut));
    edges
}

/// Bytes for each byte delivered.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Traffic {
    /// At each node's memory.
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

/// Where the parts of a path sit. None: nobody has placed it, and so anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// The device that brings.
    pub from: Option<NodeNumber>,
    /// The CPUs that copy.
    pub cpus: Option<NodeNumber>,
    /// The memory in between.
    pub memory: Option<NodeNumber>,
    /// The device that takes.
    pub to: Option<NodeNumber>,
}

/// What a path asks on a host with these nodes: the mean over everywhere that its parts may be.
pub fn traffic(edges: &[Edge], places: Places, nodes: &[NodeNumber]) -> Traffic {
    let mut traffic = Traffic::default();
    let anywhere = |place: Option<NodeNumber>| place.map_or_else(|| nodes.to_vec(), |node| vec![node]);
    for &edge in edges {
        let agent = match edge {
            Edge::DmaIn => places.from,
            Edge::DmaOut => places.to,
            _ => places.cpus,
        };
        let (agents, memories) = (anywhere(agent), anywhere(places.memory));
        let share = 1.0 / (agents.len() * memories.len()) as f64;
        for &agent in &agents {
            for &memory in &memories {
                traffic.add(edge, agent, memory, share);
            }
        }
    }
    traffic
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANYWHERE: Places = Places { from: None, cpus: None, memory: None, to: None };

    /// Bytes at memory, bytes that cross if every agent is remote, copies.
    fn row(brought: bool, copies: u32, taken: bool) -> (f64, f64) {
        let edges = edges(brought, copies, taken);
        let far = Places { from: Some(1), cpus: Some(1), memory: Some(0), to: Some(1) };
        let traffic = traffic(&edges, far, &[0, 1]);
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
        let edges = edges(true, 2, true);
        let stores = traffic(&edges, ANYWHERE, &[0, 1]);
        assert_eq!(stores.crossings(), 4.0);
        assert_eq!(stores.links, BTreeMap::from([((0, 1), 2.0), ((1, 0), 2.0)]));
        let past: Vec<Edge> =
            edges.iter().map(|&edge| if edge == Edge::Store { Edge::StoreNonTemporal } else { edge }).collect();
        let past = traffic(&past, ANYWHERE, &[0, 1]);
        assert_eq!(past.crossings(), 3.0);
        assert_eq!(past.links, BTreeMap::from([((0, 1), 1.5), ((1, 0), 1.5)]));
    }

    #[test]
    fn on_n_nodes_an_edge_crosses_in_n_minus_one_of_n_cases() {
        let nodes = [0, 1, 2, 33];
        let crossings = traffic(&[Edge::Load], ANYWHERE, &nodes).crossings();
        assert!((crossings - 0.75).abs() < 1e-9, "{crossings}");
        let local = Places { from: Some(2), cpus: Some(2), memory: Some(2), to: Some(2) };
        assert_eq!(traffic(&edges(true, 2, true), local, &nodes).crossings(), 0.0);
    }

    #[test]
    fn reads_go_from_memory_to_who_reads_and_writes_the_other_way() {
        let at = |edge, agent, memory| {
            let places = Places { from: Some(agent), cpus: Some(agent), memory: Some(memory), to: Some(agent) };
            traffic(&[edge], places, &[0, 1]).links
        };
        assert_eq!(at(Edge::Load, 0, 1), BTreeMap::from([((1, 0), 1.0)]));
        assert_eq!(at(Edge::DmaOut, 0, 1), BTreeMap::from([((1, 0), 1.0)]));
        assert_eq!(at(Edge::DmaIn, 0, 1), BTreeMap::from([((0, 1), 1.0)]));
        assert_eq!(at(Edge::Store, 0, 1), BTreeMap::from([((0, 1), 1.0), ((1, 0), 1.0)]));
    }
}
