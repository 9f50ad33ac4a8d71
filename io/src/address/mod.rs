//! Addresses that move between hosts: a daemon gives one to an interface of its host while it serves there what clients reach
//! by it, takes it away afterwards, and tells the network where it is now.
//!
//! Invariants:
//! - **An address does not outlive its daemon**: it is given for [`LIFE`] only, and given anew by the daemon as long as it is to
//!   stay. The kernel takes it away from a daemon that was killed or stopped.
//! - An address that is there for good, or for longer than that, is somebody else's, and is left alone.
//!
//! Left to others: when an address is to be where, and on which interface.

mod announce;
mod netlink;

use netlink::Netlink;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What the kernel lets an address live without being given anew.
pub const LIFE: Duration = Duration::from_secs(10);

/// An interface of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number for it in this network namespace.
    pub index: u32,
    /// The kernel's name for it.
    pub name: String,
    /// Its address on the wire; empty where it has none.
    pub hardware: Vec<u8>,
    /// The interface is switched on.
    pub up: bool,
}

/// An address that an interface has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The address itself, without its network.
    pub address: IpAddr,
    /// Bits of the prefix that names its network.
    pub bits: u8,
    /// Index of the interface that has it.
    pub interface: u32,
    /// How long still; none: for good.
    pub left: Option<Duration>,
}

impl Assigned {
    /// It was given by a daemon like this one, and is renewed by it or goes soon.
    pub fn is_lent(&self) -> bool {
        self.left.is_some_and(|left| left <= LIFE)
    }
}

/// What this host has, in its present network namespace.
#[derive(Debug)]
pub struct Addresses(Netlink);

impl Addresses {
    /// Of the calling thread's network.
    pub fn open() -> io::Result<Addresses> {
        Netlink::open().map(Addresses)
    }

    /// All interfaces of this network namespace.
    pub fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        self.0.interfaces()
    }

    /// All addresses of this network namespace's interfaces.
    pub fn assigned(&mut self) -> io::Result<Vec<Assigned>> {
        self.0.addresses()
    }

    /// Gives an address to an interface for [`LIFE`] from now on, whether it has it already or not.
    pub fn lend(&mut self, address: IpAddr, bits: u8, interface: u32) -> io::Result<()> {
        self.0.give(address, bits, interface, LIFE.as_secs() as u32)
    }

    /// Takes an address away. `AddrNotAvailable`: it is not there.
    pub fn take(&mut self, address: IpAddr, bits: u8, interface: u32) -> io::Result<()> {
        self.0.take(address, bits, interface)
    }
}

/// Tells all who are on an interface's network that an address is here: by ARP, or by neighbour discovery.
pub fn announce(address: IpAddr, interface: &Interface) -> io::Result<()> {
    match address {
        IpAddr::V4(address) => announce::by_arp(address, interface),
        IpAddr::V6(address) => announce::by_neighbour_discovery(address, interface),
    }
}

/// The address of this host by which somebody is connected.
pub fn own_address(socket: BorrowedFd<'_>) -> Option<IpAddr> {
    let own = SockRef::from(&socket).local_addr().ok()?.as_socket()?.ip();
    // One that listens on all addresses of IPv6 sees those of IPv4 in another form.
    Some(own.to_canonical())
}

/// Listens on an address that this host may get later.
pub fn listen_ahead(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    match address {
        SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
    }
    socket.bind(&address.into())?;
    socket.listen(128)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_looked_at() {
        let mut addresses = Addresses::open().unwrap();
        let interfaces = addresses.interfaces().unwrap();
        let loopback = interfaces.iter().find(|interface| interface.name == "lo").expect("every host has one");
        assert!(loopback.up, "{loopback:?}");
        let here = addresses.assigned().unwrap();
        let own = here.iter().find(|assigned| assigned.address == IpAddr::from([127, 0, 0, 1])).expect("loopback's");
        assert_eq!((own.bits, own.interface, own.left, own.is_lent()), (8, loopback.index, None, false));
        assert!(Assigned { left: Some(LIFE), ..own.clone() }.is_lent());
        assert!(!Assigned { left: Some(Duration::from_secs(3600)), ..own.clone() }.is_lent(), "as from DHCP");
    }

    #[test]
    fn a_connection_knows_by_which_address_it_came() {
        use std::os::fd::AsFd;
        let listener = TcpListener::bind("[::]:0").unwrap();
        let address = SocketAddr::from(([127, 0, 0, 9], listener.local_addr().unwrap().port()));
        let _client = std::net::TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(own_address(accepted.as_fd()), Some(address.ip()));
        let (unix, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(own_address(unix.as_fd()), None);
    }

    #[test]
    fn one_can_listen_where_no_address_is_yet() {
        // RFC 5737: no host has it.
        let address: SocketAddr = "192.0.2.77:0".parse().unwrap();
        assert!(TcpListener::bind(address).is_err());
        assert_eq!(listen_ahead(address).unwrap().local_addr().unwrap().ip(), address.ip());
    }
}
