//! `forebay doctor --peer`: the links between two nodes, seen from both ends.
//!
//! ```text
//! this node: pairs of addresses -> look -> Side --+
//!                 | asks, by the coordinator      +-> compare -> report: text, JSON
//! the other: pairs of addresses -> look -> Side --+
//! ```
//!
//! What each file owns: [`look`] what one node sees of its end, [`probe`] whether packets arrive whole; [`compare`] what two sides
//! say together, a pure function. How a side gets to another node is the cluster's.

pub mod compare;
pub mod look;
mod probe;

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A pair of addresses that a channel of a link connects, as one of its ends has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// Address of this end.
    pub own: IpAddr,
    /// Address of the other end.
    pub peer: IpAddr,
    /// Where the one that is called listens.
    pub port: u16,
    /// This end calls the other one.
    pub calls: bool,
}

impl Pair {
    /// The same pair as the other end has it.
    pub fn seen_from_there(self) -> Pair {
        Pair { own: self.peer, peer: self.own, port: self.port, calls: !self.calls }
    }
}

/// Whether packets as large as the interface sends arrive at the other end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Probe {
    /// Packets of that size arrive.
    Carried {
        /// So large, with IP's header.
        bytes: u32,
    },
    /// They do not, while small ones do; or somebody on the way says so.
    Lost {
        /// So large, with IP's header.
        bytes: u32,
        /// What would pass, if anybody has said so.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        limit: Option<u32>,
    },
    /// Not even small ones were answered.
    Silent,
    /// Nothing could be sent.
    NotSent {
        /// Why nothing could be sent, in words for people.
        why: String,
    },
}

/// TCP connections of a pair, together.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// How many connections there are.
    pub connections: u32,
    /// The shortest round trip of all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub round_trip_us: Option<u32>,
    /// Segments with payload that this end has sent.
    pub segments: u64,
    /// How many of these segments were sent once more.
    pub resent: u64,
    /// Bytes of a packet that this end's kernel takes the way to carry: the least.
    pub path_mtu: u32,
}

/// What a node sees of a pair at its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// The two addresses that it is about.
    pub pair: Pair,
    /// The interface that has the address; none: no interface has it now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interface: Option<String>,
    /// Bits that its subnet has in common.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub prefix: Option<u8>,
    /// The interface by which packets leave.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leaves_by: Option<String>,
    /// The router that they go to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub via: Option<IpAddr>,
    /// The hardware that they go to, without a router.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub neighbour: Option<String>,
    /// Whether packets as large as the interface sends arrive.
    pub probe: Probe,
    /// TCP connections between the two addresses.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tcp: Option<Tcp>,
}

/// An interface with an address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// The interface's name at its node.
    pub name: String,
    /// Bytes of the largest packet that it sends.
    pub mtu: u32,
    /// Address of its hardware, where it has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hardware: Option<String>,
    /// Speed of its line in megabits a second; none: its driver does not tell.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub speed_mbit: Option<u32>,
    /// Both directions at one time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub full_duplex: Option<bool>,
    /// Its speed is that of a line, and not what a virtual interface says for want of one.
    pub is_line: bool,
    /// RDMA ports of the same card, and what each does, such as `mlx5_0/1` and `ACTIVE`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub rdma: Vec<(String, String)>,
}

impl Interface {
    /// An RDMA port that is in use.
    pub fn active_rdma(&self) -> Option<&str> {
        self.rdma.iter().find(|(_, state)| state == "ACTIVE").map(|(port, _)| port.as_str())
    }
}

/// What one node sees of its ends.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Looked {
    /// Interfaces of the node that have an address.
    pub interfaces: Vec<Interface>,
    /// What is seen of each pair.
    pub ends: Vec<End>,
    /// What could not be asked, and why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub hidden: Vec<String>,
}

impl Looked {
    /// The interface of this name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }
}

/// A channel of the link, as the node that begins it sees it; the other one knows only of those that are up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    /// Address of this end, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub own: Option<IpAddr>,
    /// Address of the other end, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<IpAddr>,
    /// It is in use now.
    pub up: bool,
    /// It is Multipath TCP, at both ends.
    pub multipath: bool,
    /// Why it is not in use.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
}

/// What one node sees of the links to another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkEnd {
    /// Name of the node that has looked.
    pub node: String,
    /// Version of the program that has looked.
    pub program: String,
    /// When it had looked, in milliseconds since 1970 by its own clock.
    pub at_ms: u64,
    /// It wants Multipath TCP.
    pub wants_multipath: bool,
    /// Channels of the link between the two.
    pub channels: Vec<Channel>,
    /// What it sees of its own ends.
    pub looked: Looked,
}

/// Why the other side did not tell what it sees.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Silence {
    /// Its program is older than this question.
    Older,
    /// It has not answered in time.
    NoAnswer {
        /// Seconds that were waited for it.
        waited_s: u64,
        /// A channel to it works.
        linked: bool,
        /// When the link went down, RFC 3339, if this daemon has seen that.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        down_since: Option<String>,
    },
    /// It could not look, or could not be asked.
    Failed {
        /// Why, in the other node's words.
        why: String,
    },
}

/// What is known of the links between this node and another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BothEnds {
    /// Name of the other node.
    pub peer: String,
    /// What this node sees.
    pub here: LinkEnd,
    /// What the other one sees.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub there: Option<LinkEnd>,
    /// Why there is nothing of the other one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub silence: Option<Silence>,
    /// When it was asked, and when its answer was here, in milliseconds since 1970 by this node's clock.
    pub asked_ms: (u64, u64),
}
