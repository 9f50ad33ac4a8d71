//! Locks of open file descriptions, which say whether a daemon that is dead may still write: waited for, and held.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Waits until no killed process can write to this file any more: a whole-file OFD lock is held on the very file
/// descriptions that carry the daemon's I/O, and is released when the last request in flight has ended.
#[track_caller]
pub fn wait_for_late_writes(path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let begun = Instant::now();
    while !try_lock(&file) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{} is still locked after 30 s", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// True if the whole file is now locked on this very file description.
fn try_lock(file: &File) -> bool {
    // SAFETY: an all-zero flock is a valid value of this plain C struct.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    // SAFETY: the descriptor is open and the struct lives through the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) == 0 }
}

/// The whole-file lock of a holder that nobody sees, as that of a killed daemon whose requests are still under way: no
/// process has its file description open, which lies in the queue of a socket. Given back when dropped.
#[derive(Debug)]
pub struct UnseenLock(#[allow(dead_code, reason = "held, not used")] [UnixStream; 2]);

impl UnseenLock {
    /// Locks the file; nobody else may have it locked.
    #[track_caller]
    pub fn hold(path: &Path) -> UnseenLock {
        let file = File::options().read(true).write(true).open(path);
        let file = file.unwrap_or_else(|e| panic!("open {} to lock it: {e}", path.display()));
        let locked = try_lock(&file);
        assert!(locked, "lock {}: {}", path.display(), std::io::Error::last_os_error());
        let (sender, receiver) = UnixStream::pair().expect("a pair of sockets");
        send_descriptor(&sender, &file);
        UnseenLock([sender, receiver])
    }
}

/// Sends one byte and a descriptor.
fn send_descriptor(socket: &UnixStream, file: &File) {
    const BYTES: u32 = size_of::<libc::c_int>() as u32;
    let mut byte = 0u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // Aligned as a control message must be; more than one descriptor needs.
    let mut control = [0u64; 8];
    // SAFETY: an all-zero msghdr is a valid value of this plain C struct.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: it only computes.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(BYTES) } as _;
    // SAFETY: the control buffer is larger than one message with one descriptor, and lives to the end of the function.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(BYTES) as _;
        libc::CMSG_DATA(head).cast::<libc::c_int>().write_unaligned(file.as_raw_fd());
    }
    // SAFETY: the message and all that it points to live through the call.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    assert_eq!(sent, 1, "send a descriptor: {}", std::io::Error::last_os_error());
}
