//! Of a host's network what no file shows: what drivers tell of their interfaces; addresses, routes, rules, neighbours; connections;
//! MPTCP's paths. The one place that asks the kernel for it.
//!
//! A recorded tree has the same as JSON below `/forebay/net`: a file for each field of [`Net`], and in `statistics` one for each
//! interface, with lines as `ethtool -S` prints them. A field's file holds `{"is": ...}` or `{"hidden": "why"}`; without a file it is
//! absent.
//!
//! Every part is asked for by itself: what one kernel does not tell leaves the others as they are.

pub mod ends;
mod ethernet;
mod netlink;

pub use ethernet::{Channels, Coalescing, Ethernet, Feature, Modes, Rings};

use super::system::{RECORDED, Seen, System};
use ethernet::Asker;
use netlink::{Netlink, attribute, attributes, u16_of, u32_of, u64_of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;

/// The network of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Net {
    /// Interfaces as the kernel's network knows them, by name.
    pub links: Seen<BTreeMap<String, Link>>,
    /// What their drivers tell, by name.
    pub ethernet: Seen<BTreeMap<String, Ethernet>>,
    /// Addresses of all interfaces, those for this host alone among them.
    pub addresses: Seen<Vec<Address>>,
    /// Routes to other hosts, of all tables.
    pub routes: Seen<Vec<Route>>,
    /// Which table is asked, in this order.
    pub rules: Seen<Vec<Rule>>,
    /// Hosts that were reached of late.
    pub neighbours: Seen<Vec<Neighbour>>,
    /// TCP connections to other hosts.
    pub connections: Seen<Vec<Connection>>,
    /// The kernel's settings for further paths of Multipath TCP.
    pub mptcp: Seen<Mptcp>,
}

/// What the kernel tells of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its number in its network namespace.
    pub index: u32,
    /// The largest MTU that its driver takes; 0: any.
    pub mtu_max: u32,
}

/// An address of this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Name of the interface that has it.
    pub interface: String,
    /// The address itself, without its subnet.
    pub address: IpAddr,
    /// Bits that its subnet has in common.
    pub prefix: u8,
    /// Meant for other hosts: neither link-local nor the host's own.
    pub global: bool,
}

/// A route of one of the kernel's tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Number of its table; 254 is `main`.
    pub table: u32,
    /// First address of those that it leads to.
    pub to: IpAddr,
    /// Bits that they have in common; 0: all.
    pub prefix: u8,
    /// The next hop, where it is a router.
    pub via: Option<IpAddr>,
    /// The interface; several share the load.
    pub interfaces: Vec<String>,
    /// Of several that fit, the route with the lowest is taken.
    pub metric: u32,
}

/// A rule of policy routing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The rule with the lowest is looked at first.
    pub priority: u32,
    /// For packets from these addresses: the first, and bits in common. None: from all.
    pub from: Option<(IpAddr, u8)>,
    /// The table that it leads to.
    pub table: u32,
}

/// Another host at an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// Name of the interface by which it was reached.
    pub interface: String,
    /// The address by which it was reached.
    pub address: IpAddr,
    /// Address of its hardware, as text such as `02:00:00:00:00:01`.
    pub hardware: String,
}

/// A TCP connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Address of the other end.
    pub peer: IpAddr,
    /// TCP port of the other end.
    pub port: u16,
    /// The shortest round trip, in microseconds. None: not measured.
    pub round_trip_us: Option<u32>,
    /// Bytes that were sent to the other end and acknowledged by it.
    pub sent_bytes: u64,
    /// Bytes that were received from the other end.
    pub received_bytes: u64,
    /// Time with something to send, in microseconds.
    pub busy_us: u64,
    /// Of this, how long the own buffer was full.
    pub buffer_limited_us: u64,
}

/// MPTCP's settings in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mptcp {
    /// Addresses for further paths.
    pub endpoints: Vec<Endpoint>,
    /// Paths beyond the first that a connection may have.
    pub subflows_max: u32,
    /// Addresses of the other end that are made use of.
    pub accepted_max: u32,
}

/// An address for a further path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The address of this host that it is.
    pub address: IpAddr,
    /// This end opens paths from it.
    pub subflow: bool,
    /// It is told to the other end.
    pub signal: bool,
}

/// The table that is asked unless a rule says otherwise.
pub const TABLE_MAIN: u32 = libc::RT_TABLE_MAIN as u32;

impl Net {
    /// The network of this host, asked for now, or of a recorded one.
    pub fn of(system: &System) -> Net {
        if system.is_live() { Net::asked() } else { Net::recorded(system) }
    }

    fn recorded(system: &System) -> Net {
        fn file<T: for<'de> Deserialize<'de>>(system: &System, name: &str) -> Seen<T> {
            let path = format!("{RECORDED}/net/{name}.json");
            match system.text(&path) {
                Seen::Is(text) => {
                    serde_json::from_str(&text).unwrap_or_else(|e| Seen::Hidden(format!("understand {path}: {e}")))
                }
                Seen::Absent => Seen::Absent,
                Seen::Hidden(why) => Seen::Hidden(why),
            }
        }
        Net {
            links: file(system, "links"),
            ethernet: file(system, "ethernet"),
            addresses: file(system, "addresses"),
            routes: file(system, "routes"),
            rules: file(system, "rules"),
            neighbours: file(system, "neighbours"),
            connections: file(system, "connections"),
            mptcp: file(system, "mptcp"),
        }
    }

    /// The files of a recorded tree: path and content.
    pub fn record(&self) -> Vec<(String, String)> {
        fn file<T: Serialize>(name: &str, part: &Seen<T>) -> Option<(String, String)> {
            let is_there = !matches!(part, Seen::Absent);
            let text = || serde_json::to_string(part).expect("names, numbers and addresses are JSON");
            is_there.then(|| (format!("{RECORDED}/net/{name}.json"), text()))
        }
        let files = [
            file("links", &self.links),
            file("ethernet", &self.ethernet),
            file("addresses", &self.addresses),
            file("routes", &self.routes),
            file("rules", &self.rules),
            file("neighbours", &self.neighbours),
            file("connections", &self.connections),
            file("mptcp", &self.mptcp),
        ];
        files.into_iter().flatten().collect()
    }

    fn asked() -> Net {
        let indices = links();
        let names: BTreeMap<u32, String> = match &indices {
            Ok(links) => links.iter().map(|(name, link)| (link.index, name.clone())).collect(),
            Err(_) => BTreeMap::new(),
        };
        let ethernet = Asker::open().and_then(|asker| {
            let links = indices.as_ref().map_err(|e| io::Error::new(e.kind(), e.to_string()))?;
            Ok(with_device(links).map(|name| (name.clone(), asker.look(name))).collect())
        });
        Net {
            ethernet: seen("the drivers of interfaces", ethernet),
            links: seen("interfaces", indices),
            addresses: seen("addresses", addresses(&names)),
            routes: seen("routes", routes(&names)),
            rules: seen("rules of routing", rules()),
            neighbours: seen("neighbours", neighbours(&names)),
            connections: seen("TCP connections", connections()),
            mptcp: seen("MPTCP's endpoints", mptcp()),
        }
    }

    /// What the driver of an interface tells.
    pub fn ethernet(&self, name: &str) -> Ethernet {
        match &self.ethernet {
            Seen::Is(all) => all.get(name).cloned().unwrap_or_default(),
            Seen::Absent => Ethernet::default(),
            Seen::Hidden(why) => Ethernet {
                channels: Seen::Hidden(why.clone()),
                rings: Seen::Hidden(why.clone()),
                features: Seen::Hidden(why.clone()),
                coalescing: Seen::Hidden(why.clone()),
                modes: Seen::Hidden(why.clone()),
                receiving_queues: Seen::Hidden(why.clone()),
            },
        }
    }

    /// The interfaces that lead to an address, by the table `main`; none where that is not known.
    pub fn towards(&self, peer: IpAddr) -> Vec<String> {
        let Seen::Is(routes) = &self.routes else { return Vec::new() };
        let fits = |route: &&Route| route.table == TABLE_MAIN && same_subnet(route.to, peer, route.prefix);
        let best = routes.iter().filter(fits).min_by_key(|route| (std::cmp::Reverse(route.prefix), route.metric));
        best.map(|route| route.interfaces.clone()).unwrap_or_default()
    }
}

/// Whether two addresses have this many bits in common.
pub fn same_subnet(one: IpAddr, other: IpAddr, prefix: u8) -> bool {
    let bits = |address| match address {
        IpAddr::V4(v4) => (32, u128::from(u32::from(v4)) << 96),
        IpAddr::V6(v6) => (128, u128::from(v6)),
    };
    let ((width, one), (other_width, other)) = (bits(one), bits(other));
    width == other_width && (prefix == 0 || (one ^ other) >> (128 - u32::from(prefix.min(width))) == 0)
}

/// Counters of all drivers, as files of a recorded tree.
pub fn statistics() -> Vec<(String, String)> {
    let (Ok(links), Ok(asker)) = (links(), Asker::open()) else { return Vec::new() };
    let mut generic = Netlink::open(libc::NETLINK_GENERIC).ok();
    let family = generic.as_mut().and_then(|generic| generic.family("ethtool").ok());
    let of = |name: &String| {
        let mut lines: Vec<String> =
            asker.statistics(name).unwrap_or_default().iter().map(|(name, value)| format!("{name}: {value}")).collect();
        if let (Some(generic), Some(family)) = (generic.as_mut(), family) {
            let standard = ethernet::standard_statistics(generic, family, name);
            lines.extend(standard.iter().map(|(name, value)| format!("{name}: {value}")));
        }
        (!lines.is_empty()).then(|| (format!("{RECORDED}/net/statistics/{name}"), lines.join("\n")))
    };
    with_device(&links).filter_map(of).collect()
}

/// Those with hardware below them: a host of a thousand containers has as many that are none, and their drivers tell nothing.
fn with_device(links: &BTreeMap<String, Link>) -> impl Iterator<Item = &String> {
    links.keys().filter(|name| Path::new("/sys/class/net").join(name).join("device").exists())
}

fn seen<T>(what: &str, result: io::Result<T>) -> Seen<T> {
    match result {
        Ok(value) => Seen::Is(value),
        // A kernel that was built without it.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT)) => {
            Seen::Absent
        }
        Err(e) => Seen::Hidden(format!("ask the kernel for {what}: {e}")),
    }
}

/// Bytes of `struct ifinfomsg`, which attributes of an interface follow.
const LINK_BYTES: usize = 16;
const LINK_MTU_MAX: u16 = 51;
/// Bytes of `struct ifaddrmsg`, which attributes of an address follow.
const ADDRESS_BYTES: usize = 8;
/// `struct rtmsg`, and of a rule `struct fib_rule_hdr`.
const ROUTE_BYTES: usize = 12;
/// Bytes of `struct ndmsg`, which attributes of a neighbour follow.
const NEIGHBOUR_BYTES: usize = 12;
/// In a list of next hops: `struct rtnexthop`.
const HOP_BYTES: usize = 8;

fn route_answers(kind: u16, bytes: usize) -> io::Result<Vec<Vec<u8>>> {
    let mut answers = Netlink::open(libc::NETLINK_ROUTE)?.dump(kind, &vec![0; bytes])?;
    answers.retain(|answer| answer.len() >= bytes);
    Ok(answers)
}

fn links() -> io::Result<BTreeMap<String, Link>> {
    let link = |answer: Vec<u8>| {
        let name = attribute(&answer[LINK_BYTES..], libc::IFLA_IFNAME)?;
        let name = String::from_utf8_lossy(name.strip_suffix(b"\0").unwrap_or(name)).into_owned();
        let mtu_max = attribute(&answer[LINK_BYTES..], LINK_MTU_MAX).and_then(u32_of).unwrap_or(0);
        Some((name, Link { index: u32_of(&answer[4..8])?, mtu_max }))
    };
    Ok(route_answers(libc::RTM_GETLINK, LINK_BYTES)?.into_iter().filter_map(link).collect())
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => None,
    }
}

fn addresses(names: &BTreeMap<u32, String>) -> io::Result<Vec<Address>> {
    let address = |answer: Vec<u8>| {
        let values = &answer[ADDRESS_BYTES..];
        // Of a line from one host to another, the own one is the local one.
        let own = attribute(values, libc::IFA_LOCAL).or_else(|| attribute(values, libc::IFA_ADDRESS))?;
        Some(Address {
            interface: names.get(&u32_of(&answer[4..8])?)?.clone(),
            address: ip(own)?,
            prefix: answer[1],
            global: answer[3] < libc::RT_SCOPE_LINK,
        })
    };
    Ok(route_answers(libc::RTM_GETADDR, ADDRESS_BYTES)?.into_iter().filter_map(address).collect())
}

fn routes(names: &BTreeMap<u32, String>) -> io::Result<Vec<Route>> {
    let name = |index: &[u8]| names.get(&u32_of(index)?).cloned();
    let route = |answer: Vec<u8>| {
        let values = &answer[ROUTE_BYTES..];
        let anywhere = match i32::from(answer[0]) {
            libc::AF_INET => IpAddr::from([0_u8; 4]),
            libc::AF_INET6 => IpAddr::from([0_u8; 16]),
            _ => return None,
        };
        // Multicast, broadcast, and the host's own addresses are none of this.
        if answer[7] != libc::RTN_UNICAST {
            return None;
        }
        let mut interfaces: Vec<String> = attribute(values, libc::RTA_OIF).and_then(name).into_iter().collect();
        let mut hops = attribute(values, libc::RTA_MULTIPATH).unwrap_or_default();
        while let Some(hop) = hops.get(..HOP_BYTES) {
            interfaces.extend(name(&hop[4..8]));
            let length = usize::from(u16_of(&hop[..2])?).max(HOP_BYTES);
            hops = hops.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        Some(Route {
            table: attribute(values, libc::RTA_TABLE).and_then(u32_of).unwrap_or(u32::from(answer[4])),
            to: attribute(values, libc::RTA_DST).and_then(ip).unwrap_or(anywhere),
            prefix: answer[1],
            via: attribute(values, libc::RTA_GATEWAY).and_then(ip),
            interfaces,
            metric: attribute(values, libc::RTA_PRIORITY).and_then(u32_of).unwrap_or(0),
        })
    };
    Ok(route_answers(libc::RTM_GETROUTE, ROUTE_BYTES)?.into_iter().filter_map(route).collect())
}

const RULE_PRIORITY: u16 = 6;
const RULE_TABLE: u16 = 15;

fn rules() -> io::Result<Vec<Rule>> {
    let rule = |answer: Vec<u8>| {
        let values = &answer[ROUTE_BYTES..];
        Some(Rule {
            priority: attribute(values, RULE_PRIORITY).and_then(u32_of).unwrap_or(0),
            from: attribute(values, libc::RTA_SRC).and_then(ip).map(|from| (from, answer[2])),
            table: attribute(values, RULE_TABLE).and_then(u32_of).unwrap_or(u32::from(answer[4])),
        })
    };
    Ok(route_answers(libc::RTM_GETRULE, ROUTE_BYTES)?.into_iter().filter_map(rule).collect())
}

fn neighbours(names: &BTreeMap<u32, String>) -> io::Result<Vec<Neighbour>> {
    const KNOWN: u16 = libc::NUD_REACHABLE | libc::NUD_STALE | libc::NUD_DELAY | libc::NUD_PROBE | libc::NUD_PERMANENT;
    let neighbour = |answer: Vec<u8>| {
        let values = &answer[NEIGHBOUR_BYTES..];
        if u16_of(&answer[8..10])? & KNOWN == 0 || u32::from(answer[11]) == u32::from(libc::RTN_MULTICAST) {
            return None;
        }
        Some(Neighbour {
            interface: names.get(&u32_of(&answer[4..8])?)?.clone(),
            address: attribute(values, libc::NDA_DST).and_then(ip)?,
            hardware: hardware_text(attribute(values, libc::NDA_LLADDR)?),
        })
    };
    Ok(route_answers(libc::RTM_GETNEIGH, NEIGHBOUR_BYTES)?.into_iter().filter_map(neighbour).collect())
}

fn hardware_text(address: &[u8]) -> String {
    let bytes: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

const SOCKETS_OF_FAMILY: u16 = 20;
const SOCKET_INFO: u16 = 2;
const ESTABLISHED: u32 = 1 << 1;
/// Bytes of `struct inet_diag_msg`, which attributes of a socket follow.
const SOCKET_BYTES: usize = 72;

fn connections() -> io::Result<Vec<Connection>> {
    Ok(established()?.iter().filter_map(|answer| connection(answer)).collect())
}

fn established() -> io::Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        // `struct inet_diag_req_v2`: all that are established, with their `tcp_info`.
        let mut question = vec![family as u8, libc::IPPROTO_TCP as u8, 1 << (SOCKET_INFO - 1), 0];
        question.extend(ESTABLISHED.to_ne_bytes());
        question.resize(56, 0);
        found.extend(Netlink::open(libc::NETLINK_SOCK_DIAG)?.dump(SOCKETS_OF_FAMILY, &question)?);
    }
    Ok(found)
}

fn connection(answer: &[u8]) -> Option<Connection> {
    let (socket, values) = (answer.get(..SOCKET_BYTES)?, answer.get(SOCKET_BYTES..)?);
    let peer = ip(if i32::from(socket[0]) == libc::AF_INET { &socket[24..28] } else { &socket[24..40] })?;
    // `struct tcp_info`, which only grows.
    let info = attribute(values, SOCKET_INFO)?;
    let wide = |at: usize| info.get(at..at + 8).and_then(u64_of);
    let peer = peer.to_canonical();
    (!peer.is_loopback()).then_some(Connection {
        peer,
        port: u16::from_be_bytes([socket[6], socket[7]]),
        sent_bytes: wide(120)?,
        received_bytes: wide(128)?,
        round_trip_us: info.get(148..152).and_then(u32_of).filter(|us| !matches!(*us, 0 | u32::MAX)),
        busy_us: wide(168).unwrap_or(0),
        buffer_limited_us: wide(184).unwrap_or(0),
    })
}

const MPTCP_GET_ADDRESSES: u8 = 3;
const MPTCP_GET_LIMITS: u8 = 6;

fn mptcp() -> io::Result<Mptcp> {
    let mut generic = Netlink::open(libc::NETLINK_GENERIC)?;
    let family = generic.family("mptcp_pm")?;
    let limits = generic.get(family, &[MPTCP_GET_LIMITS, 1, 0, 0])?;
    let limit = |kind| attribute(limits.get(4..)?, kind).and_then(u32_of);
    let endpoint = |answer: Vec<u8>| {
        let nested = attribute(answer.get(4..)?, 1)?.to_vec();
        let address = attributes(&nested).find(|(kind, _)| matches!(kind, 3 | 4)).and_then(|(_, value)| ip(value))?;
        let flags = attribute(&nested, 6).and_then(u32_of).unwrap_or(0);
        Some(Endpoint { address, signal: flags & 1 != 0, subflow: flags & 2 != 0 })
    };
    let endpoints = generic.dump(family, &[MPTCP_GET_ADDRESSES, 1, 0, 0])?.into_iter().filter_map(endpoint).collect();
    Ok(Mptcp { endpoints, accepted_max: limit(2).unwrap_or(0), subflows_max: limit(3).unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    fn at(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn what_this_host_answers_is_the_same_when_it_is_recorded_and_read_back() {
        let asked = Net::of(&System::live());
        assert!(asked.links.as_ref().known().is_some_and(|links| links.contains_key("lo")), "{:?}", asked.links);
        let addresses = asked.addresses.as_ref().known().expect("everyone may ask");
        let own = Address { interface: "lo".to_owned(), address: at("127.0.0.1"), prefix: 8, global: false };
        assert!(addresses.contains(&own), "{addresses:?}");
        assert!(asked.rules.as_ref().known().is_some_and(|rules| rules.iter().any(|rule| rule.table == TABLE_MAIN)));
        let mut tree = Tree::new();
        for (path, text) in asked.record() {
            tree = tree.file(&path, &text);
        }
        assert_eq!(Net::of(&tree.system()), asked);
    }

    #[test]
    fn a_recorded_network_without_files_is_absent_and_a_file_that_is_not_json_is_hidden() {
        let net = Net::of(
            &Tree::new().file("/forebay/net/mptcp.json", "{\"is\": 3}").hidden("/forebay/net/rules.json").system(),
        );
        assert_eq!(net.addresses, Seen::Absent);
        assert!(matches!(&net.mptcp, Seen::Hidden(why) if why.starts_with("understand /forebay/net/mptcp.json: ")));
        assert!(matches!(net.rules, Seen::Hidden(_)));
    }

    #[test]
    fn the_longest_prefix_leads_and_then_the_lowest_metric() {
        let route = |to: &str, prefix, interface: &str, metric| Route {
            table: TABLE_MAIN,
            to: at(to),
            prefix,
            via: None,
            interfaces: vec![interface.to_owned()],
            metric,
        };
        let routes = vec![
            route("0.0.0.0", 0, "eth0", 0),
            route("10.0.0.0", 8, "eth1", 200),
            route("10.0.0.0", 8, "eth2", 100),
            Route { table: 7, ..route("10.0.0.1", 32, "eth3", 0) },
            route("fd00::", 64, "eth4", 0),
        ];
        let net = Net { routes: Seen::Is(routes), ..Net::default() };
        assert_eq!(net.towards(at("10.0.0.1")), ["eth2"]);
        assert_eq!(net.towards(at("192.0.2.1")), ["eth0"]);
        assert_eq!(net.towards(at("fd00::7")), ["eth4"]);
        assert!(net.towards(at("fd01::7")).is_empty());
        assert!(Net::default().towards(at("10.0.0.1")).is_empty());
    }
}
