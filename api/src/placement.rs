//! What is told of where the daemon's threads and memory are on a host with several NUMA nodes.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of a NUMA node, as the kernel counts them.
pub type NodeNumber = u32;

/// Where data-path threads and their memory are, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlacementReport {
    /// Threads and memory have a node each; else the kernel places them.
    pub placed: bool,
    /// Why nothing is placed; none where it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
    /// The devices whose places were looked at.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub devices: Vec<Device>,
    /// The data-path threads; links are the first one's.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub threads: Vec<SeatReport>,
    /// Where the volumes' memory is in truth.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub memory: Vec<MemoryReport>,
}

/// One of everything, for the tests of what is made of reports.
#[cfg(any(test, feature = "examples"))]
pub fn example() -> PlacementReport {
    let device = Device { name: "ens1".into(), role: Role::Client, node: Some(0), weight: 0 };
    let thread = SeatReport {
        shard: 0,
        node: 0,
        cpus: "0-3".into(),
        memory_node: Some(0),
        why: "near ens1 (clients)".into(),
        problem: Some("refused".into()),
    };
    let memory = MemoryReport { volume: "vm1".into(), node: 0, pages: [(0, 64)].into(), elsewhere: false };
    let why = Some("why".into());
    PlacementReport { placed: true, why, devices: vec![device], threads: vec![thread], memory: vec![memory] }
}

/// Where a data-path thread and its memory are to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeatReport {
    /// Number of the data-path thread, from 0 on.
    pub shard: u32,
    /// The NUMA node that it was given.
    pub node: NodeNumber,
    /// CPUs that the thread may run on, as a list such as `0-3,8`.
    pub cpus: String,
    /// Where its memory comes from.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_node: Option<NodeNumber>,
    /// Why it is there, in words for people.
    pub why: String,
    /// What could not be done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
}

/// Where a volume's memory is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// Name of the volume whose memory it is.
    pub volume: String,
    /// Where it is to be.
    pub node: NodeNumber,
    /// Pages that were looked at, by node: some all over it.
    pub pages: BTreeMap<NodeNumber, u32>,
    /// More than a fifth of them is on other nodes.
    pub elsewhere: bool,
}

impl MemoryReport {
    /// As in `0 (48 of 64 pages), 1 (16 of 64 pages)`.
    pub fn pages_shown(&self) -> String {
        let all: u32 = self.pages.values().sum();
        let shown = self.pages.iter().map(|(node, pages)| format!("{node} ({pages} of {all} pages)"));
        shown.collect::<Vec<String>>().join(", ")
    }
}

impl PlacementReport {
    /// The same in lines for people.
    pub fn lines(&self) -> Vec<String> {
        if !self.placed {
            let why = self.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            return vec![format!("left to the kernel{why}")];
        }
        let mut lines: Vec<String> = Vec::new();
        let mut threads = self.threads.iter().peekable();
        // Neighbours that differ in nothing share a line.
        while let Some(first) = threads.next() {
            let same = |other: &&SeatReport| SeatReport { shard: first.shard, ..(*other).clone() } == *first;
            let mut last = first.shard;
            while let Some(next) = threads.next_if(same) {
                last = next.shard;
            }
            let shards = if last == first.shard { last.to_string() } else { format!("{}-{last}", first.shard) };
            let memory = match first.memory_node {
                Some(node) if node == first.node => String::new(),
                Some(node) => format!(", memory of node {node}"),
                None => ", memory anywhere".to_owned(),
            };
            lines.push(format!("threads {shards} on node {} (CPUs {}){memory}: {}", first.node, first.cpus, first.why));
            lines.extend(first.problem.clone());
        }
        let elsewhere = self.memory.iter().filter(|memory| memory.elsewhere);
        lines.extend(elsewhere.map(|memory| {
            format!(
                "volume {}: its memory is on the nodes {}, not on {}",
                memory.volume,
                memory.pages_shown(),
                memory.node
            )
        }));
        lines
    }
}

/// What the daemon has to do with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// An interface that carries links to other nodes of the cluster.
    Link,
    /// An interface that clients come by.
    Client,
    /// The disk of a flash tier.
    Tier,
}

impl Role {
    /// The word that lines for people have for it, as in `near ens1 (clients)`.
    pub fn words(self) -> &'static str {
        match self {
            Role::Link => "links",
            Role::Client => "clients",
            Role::Tier => "tier",
        }
    }
}

/// A device that the daemon moves data through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Name of the device, as the kernel calls it.
    pub name: String,
    /// What the daemon has to do with it.
    pub role: Role,
    /// Where it is; none: the kernel does not know, or it is at several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<NodeNumber>,
    /// How much it counts beside others of its role: bits a second of an interface, as far as they are told.
    #[serde(skip)]
    pub weight: u64,
}
