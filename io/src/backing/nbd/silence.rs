//! A server's host that is gone without a word: nothing comes from it any more, while it is asked for what its kernel answers by itself.
//!
//! A server that is slow, stopped or overloaded is none: its kernel acknowledges bytes and answers probes meanwhile, and such a
//! connection is not given up for that. (Where it takes nothing off its connection for 25 s while more is to be sent, the kernel here ends the
//! connection by itself, [`super::handshake`].) So what is under way is asked again by another connection long before its client has waited for too long,
//! and no request fails because its server takes its time.

use socket2::Socket;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// So long nothing at all may come from a host of which something is asked. It was asked at least three times then: by the kernel, which
/// sends again what is not acknowledged, and else probes every few seconds ([`super::handshake`]).
pub const SILENCE_MAX: Duration = Duration::from_secs(9);
/// Between two looks while requests are under way.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// For how long nothing has come from the other host. None: it is not being asked for anything that must be answered at once (its server
/// takes nothing for now, so it is asked ever more seldom), or is this one.
pub fn silent_for(socket: &Socket) -> Option<Duration> {
    let info = tcp_info(socket)?;
    if info.tcpi_unacked == 0 && unsent_bytes(socket)? > 0 {
        return None;
    }
    Some(Duration::from_millis(info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv).into()))
}

fn tcp_info(socket: &Socket) -> Option<libc::tcp_info> {
    // SAFETY: an all-zero tcp_info is a valid one.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let place: *mut libc::tcp_info = &mut info;
    // SAFETY: the kernel writes at most `length` bytes into the struct, which is as long.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, place.cast(), &mut length) };
    (result == 0).then_some(info)
}

/// Bytes that were never sent yet.
fn unsent_bytes(socket: &Socket) -> Option<libc::c_int> {
    // From linux/sockios.h; the libc crate does not name it.
    const SIOCOUTQNSD: libc::Ioctl = 0x894B;
    let mut bytes: libc::c_int = 0;
    let place: *mut libc::c_int = &mut bytes;
    // SAFETY: the kernel writes one int to where the pointer says.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCOUTQNSD, place) };
    (result == 0).then_some(bytes)
}
