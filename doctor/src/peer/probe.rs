//! Whether packets of a size arrive at another host whole: UDP with "do not fragment" to a port where nobody listens. The other
//! host's kernel answers each by ICMP, and so proves that it has come.
//!
//! Invariants:
//! - "Lost" is said only where small packets are answered and large ones are not, again and again. No answer to either says
//!   nothing: many a firewall gives none.
//! - Kernels answer only so many packets a second ([`ANSWERS_PAUSE`]): what is asked first after such a pause has its answer for
//!   certain, so that is the large one.

use super::Probe;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Where traceroute begins: administrators know such packets, and nobody listens there.
const PORT: u16 = 33434;
/// Payload that fits into every packet of IPv4 and IPv6.
const SMALL_BYTES: usize = 64;
/// Answers come within the round trip: links between nodes that take longer keep no log in step.
const ANSWER_MAX: Duration = Duration::from_millis(400);
/// Linux answers one packet in `net.ipv4.icmp_ratelimit` (1 s) to each host, after a few at once.
const ANSWERS_PAUSE: Duration = Duration::from_millis(1100);
/// Rounds of a large and a small packet after the first: three large ones lost in a row are no accident.
const ROUNDS: usize = 2;
/// Payload of UDP at most.
const PAYLOAD_MAX: usize = 65_507;
/// Headers of IP and UDP.
const HEADERS_V4: usize = 20 + 8;
const HEADERS_V6: usize = 40 + 8;
/// Whoever looks at the wire is told.
const WORDS: &[u8] = b"forebay doctor: how large a packet may be on this way ";

/// What one packet came to.
enum Came {
    Arrived,
    /// A host on the way, or the own kernel, has refused it: packets of so many bytes would pass, where it says that.
    TooLarge(Option<u32>),
    Nothing,
}

/// Sends packets of `mtu` bytes from an own address.
pub fn probe(own: IpAddr, peer: IpAddr, mtu: u32) -> Probe {
    match try_probe(own, peer, mtu) {
        Ok(probe) => probe,
        Err(error) => Probe::NotSent { why: format!("send UDP from {own} to {peer}: {error}") },
    }
}

fn try_probe(own: IpAddr, peer: IpAddr, mtu: u32) -> io::Result<Probe> {
    let headers = if own.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 };
    let payload = (mtu as usize).saturating_sub(headers).min(PAYLOAD_MAX);
    let bytes = (payload + headers) as u32;
    // Each has its own, so that a late answer is not taken for the other's.
    let (large, small) = (Prober::open(own, peer)?, Prober::open(own, peer)?);
    match large.send(payload)? {
        Came::Arrived => return Ok(Probe::Carried { bytes }),
        Came::TooLarge(limit) => return Ok(Probe::Lost { bytes, limit }),
        Came::Nothing => {}
    }
    for _ in 0..ROUNDS {
        std::thread::sleep(ANSWERS_PAUSE);
        match large.send(payload)? {
            Came::Arrived => return Ok(Probe::Carried { bytes }),
            Came::TooLarge(limit) => return Ok(Probe::Lost { bytes, limit }),
            Came::Nothing => {}
        }
        if !matches!(small.send(SMALL_BYTES)?, Came::Arrived) {
            return Ok(Probe::Silent);
        }
    }
    Ok(Probe::Lost { bytes, limit: None })
}

struct Prober {
    socket: UdpSocket,
    peer: IpAddr,
}

impl Prober {
    fn open(own: IpAddr, peer: IpAddr) -> io::Result<Prober> {
        let socket = UdpSocket::bind(SocketAddr::new(own, 0))?;
        let (level, discover, probe, errors) = match own {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE, libc::IP_RECVERR),
            IpAddr::V6(_) => {
                (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE, libc::IPV6_RECVERR)
            }
        };
        // "Do not fragment", whatever the kernel has learned of the way before; and with the answers of ICMP.
        for (option, value) in [(discover, probe), (errors, 1)] {
            let size = size_of::<i32>() as u32;
            // SAFETY: the option's value is a number of this size, which outlives the call.
            let set = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size) };
            if set != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        socket.connect(SocketAddr::new(peer, PORT))?;
        socket.set_nonblocking(true)?;
        Ok(Prober { socket, peer })
    }

    fn send(&self, payload: usize) -> io::Result<Came> {
        let mut bytes = WORDS.to_vec();
        bytes.resize(payload, 0);
        match self.socket.send(&bytes) {
            Ok(_) => self.answer(),
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => Ok(Came::TooLarge(self.known_limit())),
            // The driver, or its queue, has dropped it.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(Came::Nothing),
            // The answer to a packet before this one.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                self.drain()?;
                self.socket.send(&bytes)?;
                self.answer()
            }
            Err(error) => Err(error),
        }
    }

    /// What the own kernel holds the way to carry.
    fn known_limit(&self) -> Option<u32> {
        let (level, option) = match self.peer {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        let (mut limit, mut size) = (0_i32, size_of::<i32>() as u32);
        let place = &raw mut limit;
        // SAFETY: the kernel writes at most `size` bytes to a number of this size, which outlives the call.
        let got = unsafe { libc::getsockopt(self.socket.as_raw_fd(), level, option, place.cast(), &raw mut size) };
        u32::try_from(limit).ok().filter(|limit| got == 0 && *limit > 0)
    }

    fn answer(&self) -> io::Result<Came> {
        let begun = Instant::now();
        // What is there is seen also by who comes late.
        loop {
            let left = ANSWER_MAX.saturating_sub(begun.elapsed());
            let mut polled = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let wait = left.as_millis() as i32;
            // SAFETY: one entry, which lives through the call.
            if unsafe { libc::poll(&mut polled, 1, wait) } > 0 {
                while let Some(came) = self.take_error()? {
                    if !matches!(came, Came::Nothing) {
                        self.drain()?;
                        return Ok(came);
                    }
                }
                // Somebody listens there after all, and answers.
                if self.socket.recv(&mut [0]).is_ok() {
                    return Ok(Came::Arrived);
                }
            }
            if left.is_zero() {
                return Ok(Came::Nothing);
            }
        }
    }

    fn drain(&self) -> io::Result<()> {
        while self.take_error()?.is_some() {}
        // The same news once more, as the socket's own error.
        self.socket.take_error().map(|_| ())
    }

    /// The next of what ICMP has told of this socket's packets.
    fn take_error(&self) -> io::Result<Option<Came>> {
        let mut control = [0_u64; 64];
        let mut payload = [0_u8; 64];
        let mut vector = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload.len() };
        // SAFETY: an all-zero msghdr is a valid one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control) as _);
        // SAFETY: the message names memory that outlives the call, with its lengths.
        let got = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE) };
        if got < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        // SAFETY: the kernel has filled the control memory, and its length, by the rules of these macros; what they point to
        // lies within it, aligned for a header.
        let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        while !header.is_null() {
            // SAFETY: as above.
            let (level, kind, length) =
                unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len as usize) };
            let is_error = (level, kind) == (libc::IPPROTO_IP, libc::IP_RECVERR)
                || (level, kind) == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR);
            // SAFETY: it takes a number.
            let before = unsafe { libc::CMSG_LEN(0) } as usize;
            if is_error && length >= before {
                // SAFETY: the data of this header, as long as it says.
                let data = unsafe { std::slice::from_raw_parts(libc::CMSG_DATA(header), length - before) };
                return Ok(Some(self.told(data)));
            }
            // SAFETY: as above.
            header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
        }
        Ok(Some(Came::Nothing))
    }

    /// `struct sock_extended_err`, and the address of who tells.
    fn told(&self, data: &[u8]) -> Came {
        let number = |at: usize| data.get(at..at + 4).and_then(|four| Some(u32::from_ne_bytes(four.try_into().ok()?)));
        let (Some(errno), Some(origin), Some(limit)) = (number(0), data.get(4), number(8)) else {
            return Came::Nothing;
        };
        if errno == libc::EMSGSIZE as u32 {
            return Came::TooLarge(Some(limit).filter(|limit| *limit > 0));
        }
        let by_icmp = matches!(*origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
        // Whatever else the other host itself answers (refused, forbidden), the packet was there.
        if by_icmp && teller(data.get(16..).unwrap_or_default()) == Some(self.peer) {
            Came::Arrived
        } else {
            Came::Nothing
        }
    }
}

/// Of a `struct sockaddr_in` or `sockaddr_in6`.
fn teller(address: &[u8]) -> Option<IpAddr> {
    let family = i32::from(u16::from_ne_bytes(address.get(..2)?.try_into().ok()?));
    match family {
        libc::AF_INET => Some(IpAddr::from(<[u8; 4]>::try_from(address.get(4..8)?).ok()?)),
        libc::AF_INET6 => Some(IpAddr::from(<[u8; 16]>::try_from(address.get(8..24)?).ok()?).to_canonical()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_to_the_own_host_arrive_whole() {
        for own in ["127.0.0.1", "::1"] {
            let own: IpAddr = own.parse().expect("an address");
            if UdpSocket::bind(SocketAddr::new(own, 0)).is_err() {
                // A host without IPv6.
                continue;
            }
            assert_eq!(probe(own, own, 1500), Probe::Carried { bytes: 1500 }, "{own}");
        }
    }

    #[test]
    fn an_address_that_is_not_the_own_host_s_sends_nothing() {
        let own: IpAddr = "192.0.2.77".parse().expect("an address for documents");
        assert!(matches!(probe(own, own, 1500), Probe::NotSent { .. }));
    }

    #[test]
    fn only_the_other_host_proves_that_a_packet_came() {
        let peer: IpAddr = "10.0.0.2".parse().expect("an address");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let prober = Prober { socket, peer };
        let told = |errno: i32, from: [u8; 4], limit: u32| {
            let mut data = errno.to_ne_bytes().to_vec();
            data.extend([libc::SO_EE_ORIGIN_ICMP, 3, 3, 0]);
            data.extend(limit.to_ne_bytes());
            data.extend([0; 4]);
            data.extend((libc::AF_INET as u16).to_ne_bytes());
            data.extend([0; 2]);
            data.extend(from);
            prober.told(&data)
        };
        assert!(matches!(told(libc::ECONNREFUSED, [10, 0, 0, 2], 0), Came::Arrived));
        assert!(matches!(told(libc::EHOSTUNREACH, [10, 0, 0, 2], 0), Came::Arrived), "a firewall there forbids it");
        assert!(matches!(told(libc::EHOSTUNREACH, [10, 0, 0, 1], 0), Came::Nothing), "the own host finds nobody");
        assert!(matches!(told(libc::EMSGSIZE, [10, 0, 0, 9], 1400), Came::TooLarge(Some(1400))));
        assert!(matches!(prober.told(&[0; 7]), Came::Nothing));
    }
}
