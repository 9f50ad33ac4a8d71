//! Vectored, non-blocking socket calls: all that moves bytes of clients and of other nodes.

use forebay_core::types::Duration;
use std::io;
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
