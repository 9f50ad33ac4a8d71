//! Words to the neighbours: an address is here now. Whoever knows another place of it (its table of neighbours, a switch) takes this
//! one in its stead.

use super::Interface;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};

/// Of Ethernet, and of whatever behaves like it.
const HARDWARE_BYTES: usize = 6;
const EVERYBODY: [u8; HARDWARE_BYTES] = [0xff; HARDWARE_BYTES];
/// All nodes of the link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The interface's address on the wire; none: it has no neighbours who must know it.
fn hardware(interface: &Interface) -> Option<[u8; HARDWARE_BYTES]> {
    let hardware = <[u8; HARDWARE_BYTES]>::try_from(interface.hardware.as_slice()).ok()?;
    (hardware != [0; HARDWARE_BYTES]).then_some(hardware)
}

/// An ARP announcement (RFC 5227): who asks for its own address has it.
pub fn by_arp(address: Ipv4Addr, interface: &Interface) -> io::Result<()> {
    let Some(own) = hardware(interface) else { return Ok(()) };
    // Without a protocol nothing is received by it.
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))?;
    socket.send_to(&arp_packet(address, own), &everybody_on(interface.index)).map(drop)
}

fn arp_packet(address: Ipv4Addr, own: [u8; HARDWARE_BYTES]) -> Vec<u8> {
    let mut packet = Vec::new();
    // Ethernet, IPv4, the lengths of both kinds of addresses, a request.
    packet.extend([0, 1, 8, 0, HARDWARE_BYTES as u8, 4, 0, 1]);
    packet.extend(own);
    packet.extend(address.octets());
    packet.extend([0; HARDWARE_BYTES]);
    packet.extend(address.octets());
    packet
}

fn everybody_on(interface: u32) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: a sockaddr_ll is one of the addresses that the storage is for.
    let to = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_protocol = (libc::ETH_P_ARP as u16).to_be();
    to.sll_ifindex = interface as i32;
    to.sll_halen = HARDWARE_BYTES as u8;
    to.sll_addr[..HARDWARE_BYTES].copy_from_slice(&EVERYBODY);
    // SAFETY: a whole sockaddr_ll has just been written there.
    unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t) }
}

/// An unsolicited neighbour advertisement that overrides what was known (RFC 4861, 7.2.6).
pub fn by_neighbour_discovery(address: Ipv6Addr, interface: &Interface) -> io::Result<()> {
    let Some(own) = hardware(interface) else { return Ok(()) };
    // Of ICMPv6 the kernel makes the checksum.
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.bind(&SocketAddrV6::new(address, 0, 0, 0).into())?;
    socket.set_multicast_if_v6(interface.index)?;
    // A lower one says that it was forwarded, and is not believed.
    socket.set_multicast_hops_v6(255)?;
    let to = SocketAddrV6::new(ALL_NODES, 0, 0, interface.index);
    socket.send_to(&advertisement(address, own), &to.into()).map(drop)
}

fn advertisement(address: Ipv6Addr, own: [u8; HARDWARE_BYTES]) -> Vec<u8> {
    let mut packet = Vec::new();
    // Type and code, the checksum's place; not a router, not asked for, to override.
    packet.extend([136, 0, 0, 0, 0x20, 0, 0, 0]);
    packet.extend(address.octets());
    // Option: the target's address on the wire, in units of 8 bytes.
    packet.extend([2, 1]);
    packet.extend(own);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [u8; HARDWARE_BYTES] = [2, 0, 0, 0, 0, 7];

    #[test]
    fn packets_are_what_the_standards_say() {
        let arp = arp_packet(Ipv4Addr::new(10, 0, 0, 50), OWN);
        assert_eq!(arp[..8], [0, 1, 8, 0, 6, 4, 0, 1]);
        assert_eq!((&arp[8..14], &arp[14..18], &arp[24..28]), (&OWN[..], &[10, 0, 0, 50][..], &[10, 0, 0, 50][..]));
        assert_eq!(arp.len(), 28);
        let advertised = advertisement("2001:db8::5".parse().unwrap(), OWN);
        assert_eq!((advertised[0], advertised[4], &advertised[24..26]), (136, 0x20, &[2, 1][..]));
        assert_eq!((advertised.len(), &advertised[26..]), (32, &OWN[..]));
    }

    #[test]
    fn loopback_has_no_neighbours() {
        let mut interface = Interface { index: 1, name: "lo".into(), hardware: vec![0; 6], up: true };
        assert!(hardware(&interface).is_none());
        interface.hardware = Vec::new();
        assert!(by_arp(Ipv4Addr::LOCALHOST, &interface).is_ok());
        interface.hardware = OWN.to_vec();
        assert_eq!(hardware(&interface), Some(OWN));
    }
}
