//! Vectored, non-blocking socket calls: all that moves bytes of clients and of other nodes.

use forebay_core::types::Duration;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most vectors that one call takes (UIO_MAXIOV).
pub const VECTORS_MAX: usize = 1024;

/// A vector over memory that this call may only read; the kernel's type has no const form.
pub fn vector(start: *const u8, length: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast_mut().cast(), iov_len: length }
}

/// Whether it is a unix socket: whoever is at its other end is on this host, and was let in by the permissions of its file.
pub fn is_local(socket: BorrowedFd<'_>) -> bool {
    let mut domain: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: an open descriptor, an integer, and its size.
    let asked = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut domain).cast(), &raw mut size)
    };
    asked == 0 && domain == libc::AF_UNIX
}

/// User of the process that has connected by a unix socket; none: the kernel does not say.
pub fn peer_user(socket: BorrowedFd<'_>) -> Option<u32> {
    // SAFETY: an all-zero ucred is a valid one.
    let mut peer: libc::ucred = unsafe { core::mem::zeroed() };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: an open descriptor, a structure of the kernel's, and its size.
    let asked = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut size)
    };
    (asked == 0).then_some(peer.uid)
}

/// Address at the other end of a TCP connection; none: it has gone meanwhile. One of IPv4 is told as such, however it came.
pub fn peer_address(socket: BorrowedFd<'_>) -> Option<IpAddr> {
    // SAFETY: an all-zero sockaddr_storage is a valid one.
    let mut place: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
    let mut size = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: an open descriptor, a structure that has room for every address, and its size.
    let asked = unsafe { libc::getpeername(socket.as_raw_fd(), (&raw mut place).cast(), &raw mut size) };
    if asked != 0 {
        return None;
    }
    match i32::from(place.ss_family) {
        libc::AF_INET => {
            // SAFETY: the kernel says that it is an address of this family, for which the place has room.
            let address = unsafe { *(&raw const place).cast::<libc::sockaddr_in>() };
            Some(IpAddr::V4(u32::from_be(address.sin_addr.s_addr).into()))
        }
        libc::AF_INET6 => {
            // SAFETY: likewise.
            let address = unsafe { *(&raw const place).cast::<libc::sockaddr_in6>() };
            Some(IpAddr::from(address.sin6_addr.s6_addr).to_canonical())
        }
        _ => None,
    }
}

/// Whoever is silent for so long is asked whether it is still there, and so often; who does not answer is gone.
const KEEP_ALIVE_IDLE_S: libc::c_int = 120;
const KEEP_ALIVE_INTERVAL_S: libc::c_int = 30;
const KEEP_ALIVE_PROBES: libc::c_int = 8;
/// Whose kernel confirms nothing for so long that was sent is gone as well.
const UNCONFIRMED_MAX_MS: libc::c_int = 360_000;

/// A connection over TCP to a host that is gone without a word ends after six minutes. Does nothing to a unix socket, whose other end
/// cannot vanish.
pub fn keep_alive(socket: BorrowedFd<'_>) {
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEP_ALIVE_IDLE_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, KEEP_ALIVE_INTERVAL_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, KEEP_ALIVE_PROBES),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, UNCONFIRMED_MAX_MS),
    ];
    for (level, name, value) in options {
        // SAFETY: an open descriptor and an integer of the size that is given.
        unsafe {
            let size = size_of::<libc::c_int>() as libc::socklen_t;
            libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), size);
        }
    }
}

/// The network whose hosts count as one where nobody is known by more than an address: a host has a whole network of addresses of IPv6
/// (RFC 4291, section 2.5.4), and all of those that lead to itself (RFC 1122, section 3.2.1.3).
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

/// How a call ended.
#[derive(Debug)]
pub enum Moved {
    /// So many bytes; 0 on receipt is the end of the stream.
    Bytes(usize),
    /// No byte can be moved now; to be tried again when the socket is ready.
    WouldBlock,
    /// The connection is of no use any more.
    Failed(io::Error),
}

/// Receives into a buffer, from its start.
pub fn receive(socket: BorrowedFd<'_>, into: &mut [u8]) -> Moved {
    loop {
        // SAFETY: the buffer is borrowed mutably through the call, and its length is its own.
        let n = unsafe { libc::recv(socket.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) };
        match outcome(n) {
            Some(moved) => return moved,
            None => continue,
        }
    }
}

/// Receives into the vectors in order.
///
/// # Safety
/// Every vector must name memory that is valid for writes and that nothing else refers to during the call.
pub unsafe fn receive_vectors(socket: BorrowedFd<'_>, vectors: &mut [libc::iovec]) -> Moved {
    // SAFETY: an all-zero msghdr is a valid one: no name, no control data.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len().min(VECTORS_MAX) as _;
    loop {
        // SAFETY: `message` and its vectors live through the call; the caller vouches for what they point to.
        let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
        match outcome(n) {
            Some(moved) => return moved,
            None => continue,
        }
    }
}

/// Sends the vectors in order.
///
/// # Safety
/// Every vector must name memory that is valid for reads and that nothing writes to during the call.
pub unsafe fn send(socket: BorrowedFd<'_>, vectors: &[libc::iovec]) -> Moved {
    // SAFETY: an all-zero msghdr is a valid one: no name, no control data.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    // The kernel only reads the vectors; its type has no const form.
    message.msg_iov = vectors.as_ptr().cast_mut();
    message.msg_iovlen = vectors.len().min(VECTORS_MAX) as _;
    loop {
        // SAFETY: `message` and its vectors live through the call; the caller vouches for what they point to.
        let n = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        match outcome(n) {
            Some(moved) => return moved,
            None => continue,
        }
    }
}

/// Blocks until the socket can be read, or written where that is asked for.
pub fn wait(socket: BorrowedFd<'_>, writable: bool) -> io::Result<()> {
    let events = libc::POLLIN | if writable { libc::POLLOUT } else { 0 };
    let mut polled = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    // SAFETY: one entry, which lives through the call.
    if unsafe { libc::poll(&mut polled, 1, -1) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

/// For how long the other side's kernel has confirmed nothing although something was sent to it; zero where nothing of that
/// kind is open. None: the kernel tells nothing of this socket.
pub fn tcp_trouble(socket: BorrowedFd<'_>) -> Option<Duration> {
    // SAFETY: an all-zero tcp_info is a valid one.
    let mut info: libc::tcp_info = unsafe { core::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let place: *mut libc::tcp_info = &mut info;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which lives through the call.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, place.cast(), &mut length) };
    let silent_for = if info.tcpi_unacked > 0 { u64::from(info.tcpi_last_ack_recv) } else { 0 };
    (result == 0).then_some(Duration::from_millis(silent_for))
}

/// CPU time of the calling thread in seconds, user and system.
pub fn thread_cpu_seconds() -> f64 {
    // SAFETY: an all-zero rusage is a valid one.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: the structure lives through the call, which cannot fail with these arguments.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Ends both directions; an error means that the other side already has.
pub fn shut_down(socket: BorrowedFd<'_>) {
    // SAFETY: no memory is involved, and the descriptor is open while it is borrowed.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

/// `None`: interrupted by a signal, to be called again.
fn outcome(n: isize) -> Option<Moved> {
    if n >= 0 {
        return Some(Moved::Bytes(n as usize));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock => Some(Moved::WouldBlock),
        io::ErrorKind::Interrupted => None,
        _ => Some(Moved::Failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_counts_as_one_address_and_so_does_this_host() {
        let same = |one: &str, other: &str| network_of(one.parse().unwrap()) == network_of(other.parse().unwrap());
        assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::2") && !same("2001:db8:1:2::1", "2001:db8:1:3::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1") && !same("10.0.0.1", "10.0.0.2"));
        assert!(same("127.0.0.1", "127.9.9.9") && same("127.0.0.1", "::1"));
    }
}
