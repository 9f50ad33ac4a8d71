//! Requests of the NBD protocol as bytes, and its errors.

use super::handshake::REQUEST_MAGIC;
use std::io;

/// How an operation ends that a connection took with it.
pub(super) const GONE: i32 = libc::ENODEV;

pub(super) const REPLY_BYTES: usize = 16;
pub(super) const REQUEST_BYTES: usize = 28;
pub(super) const READ: u16 = 0;
pub(super) const WRITE: u16 = 1;
pub(super) const DISCONNECT: u16 = 2;
pub(super) const FLUSH: u16 = 3;
pub(super) const WRITE_ZEROES: u16 = 6;
pub(super) const FLAG_NO_HOLE: u16 = 1 << 1;

pub(super) fn request(command: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&command.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&length.to_be_bytes());
    bytes
}

pub(super) fn disconnect_request() -> [u8; REQUEST_BYTES] {
    request(DISCONNECT, 0, 0, 0, 0)
}

/// The protocol's error numbers are Linux's; what is none of them is EIO.
pub(super) fn errno_of(error: u32) -> io::Error {
    let errno = match error {
        1 => libc::EPERM,
        12 => libc::ENOMEM,
        22 => libc::EINVAL,
        28 => libc::ENOSPC,
        75 => libc::EOVERFLOW,
        95 => libc::EOPNOTSUPP,
        // The server shuts down: the connection is about to end.
        108 => GONE,
        _ => libc::EIO,
    };
    io::Error::from_raw_os_error(errno)
}
