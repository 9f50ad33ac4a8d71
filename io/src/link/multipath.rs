//! Channels by Multipath TCP (RFC 8684), where it is asked for: the kernel adds the ways that `ip mptcp endpoint` allows to
//! each connection by itself. For links whose addresses cannot all be named; where they can, a channel for each is
//! better, because it is seen which one is slow.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Connections of the system that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Level of Multipath TCP's own options, and the one that tells of a connection.
const SOL_MPTCP: i32 = 284;
const MPTCP_INFO: i32 = 1;
/// Where that structure has its flags, and the one that says that the other side knows plain TCP only.
const FLAGS_AT: usize = 8;
const FLAG_FALLBACK: u32 = 1;

/// A socket of one of the two kinds.
pub(super) fn socket(address: SocketAddr, multipath: bool) -> io::Result<Socket> {
    let protocol = if multipath { Protocol::MPTCP } else { Protocol::TCP };
    Socket::new(Domain::for_address(address), Type::STREAM, Some(protocol))
}

/// Listens for other nodes. With Multipath TCP those who know plain TCP only are let in, too.
pub fn listen(address: SocketAddr, multipath: bool) -> io::Result<TcpListener> {
    let socket = socket(address, multipath)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Both ends of the connection speak Multipath TCP.
pub(super) fn is_multipath(socket: BorrowedFd<'_>) -> bool {
    let mut info = [0_u8; FLAGS_AT + 4];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which lives through the call.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), SOL_MPTCP, MPTCP_INFO, info.as_mut_ptr().cast(), &raw mut length)
    };
    let flags = info.last_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    result == 0 && length as usize == info.len() && flags & FLAG_FALLBACK == 0
}
