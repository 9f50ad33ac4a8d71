//! Vectored, non-blocking socket calls: the only system calls of the transmission phase.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most vectors that one call takes (UIO_MAXIOV).
pub(crate) const VECTORS_MAX: usize = 1024;

/// A vector over memory that this call may only read; the kernel's type has no const form.
pub(crate) fn vector(start: *const u8, length: usize) -> libc::iovec {
    libc::iovec { iov_base: start.cast_mut().cast(), iov_len: length }
}

/// How a call ended.
#[derive(Debug)]
pub(crate) enum Moved {
    /// So many bytes; 0 on receipt is the end of the stream.
    Bytes(usize),
    /// Not now.
    WouldBlock,
    /// Never again.
    Failed(io::Error),
}

/// Receives into the vectors in order.
///
/// # Safety
/// Every vector must name memory that is valid for writes and that nothing else refers to during the call.
pub(crate) unsafe fn receive(socket: BorrowedFd<'_>, vectors: &mut [libc::iovec]) -> Moved {
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
pub(crate) unsafe fn send(socket: BorrowedFd<'_>, vectors: &mut [libc::iovec]) -> Moved {
    // SAFETY: an all-zero msghdr is a valid one: no name, no control data.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
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

/// Ends both directions; an error means that the other side already has.
pub(crate) fn shut_down(socket: BorrowedFd<'_>) {
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
