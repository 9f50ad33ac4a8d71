//! What the two ends of a pair of addresses are looked at for: interfaces with the size of their packets, the way from one address
//! to another, and the TCP connections between them.
//!
//! All of it from netlink and the drivers, none from sysfs: a container that was given its host's `/sys` would be shown interfaces of
//! another network there.

use super::ethernet::Asker;
use super::netlink::{Netlink, attribute, put, u32_of};
use super::{
    Address, LINK_BYTES, Neighbour, ROUTE_BYTES, SOCKET_BYTES, SOCKET_INFO, addresses, established, ip, neighbours,
    route_answers, seen,
};
use crate::system::Seen;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// An interface of this host, as the kernel and its driver describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The interface's name, as the kernel has it.
    pub name: String,
    /// Bytes of the largest packet that it sends.
    pub mtu: u32,
    /// Its hardware's address.
    pub hardware: Option<String>,
    /// What the kernel made it as, such as `veth`, `bond` or `vlan`; empty for a card.
    pub kind: String,
    /// Of its line, in megabits a second; the driver may not tell.
    pub speed_mbit: Option<u32>,
    /// Both directions at one time.
    pub full_duplex: Option<bool>,
}

/// The way that packets to an address take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The interface by which they leave.
    pub interface: String,
    /// To this router; none: the other end is at the same network.
    pub via: Option<IpAddr>,
}

/// A TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Address and port of this end.
    pub own: SocketAddr,
    /// Address and port of the other end.
    pub peer: SocketAddr,
    /// The shortest round trip, in microseconds; none: not measured.
    pub round_trip_us: Option<u32>,
    /// Segments with payload that were sent.
    pub segments: u64,
    /// How many of these segments were sent once more.
    pub resent: u64,
    /// Bytes of a packet that the kernel takes the way to carry.
    pub path_mtu: u32,
}

/// Interfaces and addresses of this host, as links between nodes end at them.
pub struct Ends {
    /// Interfaces by the kernel's numbers for them.
    pub ports: Seen<BTreeMap<u32, Port>>,
    /// Addresses of all interfaces.
    pub addresses: Seen<Vec<Address>>,
    names: BTreeMap<u32, String>,
}

impl Ends {
    /// Asks the kernel for both.
    pub fn ask() -> Ends {
        let ports = seen("interfaces", ports());
        let names: BTreeMap<u32, String> = match &ports {
            Seen::Is(ports) => ports.iter().map(|(index, port)| (*index, port.name.clone())).collect(),
            Seen::Absent | Seen::Hidden(_) => BTreeMap::new(),
        };
        Ends { addresses: seen("addresses", addresses(&names)), ports, names }
    }

    /// Whom it has reached of late, by now.
    pub fn neighbours(&self) -> Seen<Vec<Neighbour>> {
        seen("neighbours", neighbours(&self.names))
    }

    /// The way that packets from an own address to another one take.
    pub fn way(&self, own: IpAddr, peer: IpAddr) -> Seen<Way> {
        seen("a route", self.ask_way(own, peer))
    }

    fn ask_way(&self, own: IpAddr, peer: IpAddr) -> io::Result<Way> {
        let octets = |address| match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let (own, peer) = (octets(own), octets(peer));
        let family = if peer.len() == 4 { libc::AF_INET } else { libc::AF_INET6 };
        let mut question = vec![family as u8, peer.len() as u8 * 8, own.len() as u8 * 8];
        question.resize(ROUTE_BYTES, 0);
        put(&mut question, libc::RTA_DST, &peer);
        put(&mut question, libc::RTA_SRC, &own);
        let answer = Netlink::open(libc::NETLINK_ROUTE)?.get(libc::RTM_GETROUTE, &question)?;
        let values = answer.get(ROUTE_BYTES..).unwrap_or_default();
        let interface = attribute(values, libc::RTA_OIF).and_then(u32_of).and_then(|index| self.names.get(&index));
        let interface = interface.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?.clone();
        Ok(Way { interface, via: attribute(values, libc::RTA_GATEWAY).and_then(ip) })
    }
}

const LINK_KIND: u16 = 1;

fn ports() -> io::Result<BTreeMap<u32, Port>> {
    let asker = Asker::open()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.strip_suffix(b"\0").unwrap_or(bytes)).into_owned();
    let port = |answer: Vec<u8>| {
        let values = &answer[LINK_BYTES..];
        let name = text(attribute(values, libc::IFLA_IFNAME)?);
        let information = attribute(values, libc::IFLA_LINKINFO).unwrap_or_default();
        let hardware = attribute(values, libc::IFLA_ADDRESS).filter(|bytes| bytes.iter().any(|byte| *byte != 0));
        let line = asker.line(&name).unwrap_or_default();
        let port = Port {
            mtu: attribute(values, libc::IFLA_MTU).and_then(u32_of)?,
            hardware: hardware.map(super::hardware_text),
            kind: attribute(information, LINK_KIND).map(text).unwrap_or_default(),
            speed_mbit: line.speed_mbit,
            full_duplex: line.full_duplex,
            name,
        };
        Some((u32_of(&answer[4..8])?, port))
    };
    Ok(route_answers(libc::RTM_GETLINK, LINK_BYTES)?.into_iter().filter_map(port).collect())
}

/// Every TCP connection of this host.
pub fn sessions() -> Seen<Vec<Session>> {
    let all = established().map(|answers| answers.iter().filter_map(|answer| session(answer)).collect());
    seen("TCP connections", all)
}

fn session(answer: &[u8]) -> Option<Session> {
    let (socket, values) = (answer.get(..SOCKET_BYTES)?, answer.get(SOCKET_BYTES..)?);
    let width = if i32::from(socket[0]) == libc::AF_INET { 4 } else { 16 };
    let end = |port: usize, address: usize| {
        let address = ip(&socket[address..address + width])?.to_canonical();
        Some(SocketAddr::new(address, u16::from_be_bytes([socket[port], socket[port + 1]])))
    };
    // `struct tcp_info`, which only grows.
    let info = attribute(values, SOCKET_INFO)?;
    let number = |at: usize| info.get(at..at + 4).and_then(u32_of);
    Some(Session {
        own: end(4, 8)?,
        peer: end(6, 24)?,
        round_trip_us: number(148).filter(|us| !matches!(*us, 0 | u32::MAX)),
        segments: number(156)?.into(),
        resent: number(100)?.into(),
        path_mtu: number(60)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_way_to_the_own_host_is_the_loopback_and_a_connection_there_is_seen_from_both_ends() {
        let ends = Ends::ask();
        let own: IpAddr = "127.0.0.1".parse().expect("an address");
        assert_eq!(ends.way(own, own), Seen::Is(Way { interface: "lo".to_owned(), via: None }));
        let ports = ends.ports.as_ref().known().expect("everyone may ask");
        let lo = ports.values().find(|port| port.name == "lo").expect("every host has one");
        assert!(lo.mtu >= 1280 && lo.hardware.is_none() && lo.speed_mbit.is_none(), "{lo:?}");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let place = listener.local_addr().expect("bound");
        let client = TcpStream::connect(place).expect("it listens");
        let here = client.local_addr().expect("connected");
        let sessions = sessions().known().expect("everyone may ask");
        for (own, peer) in [(here, place), (place, here)] {
            let found = sessions.iter().find(|session| (session.own, session.peer) == (own, peer));
            assert!(found.is_some_and(|session| session.path_mtu >= 1280), "{found:?}");
        }
    }

    #[test]
    fn an_answer_that_is_cut_short_is_no_connection() {
        assert_eq!(session(&[2; 60]), None);
        assert_eq!(session(&[2; SOCKET_BYTES]), None);
    }
}
