//! A connection between a node that forwards its clients' requests and the owner of their volume, up to the point where NBD
//! begins on it: the same doors, certificates and hellos as a link's channels, and nothing else of a link.
//!
//! Who calls blocks, on a thread of its own; who is called has got the hello by its [`Door`](super::Door). No request leaves
//! before the owner's `Entered` has come: rule F1 of `docs/protocol.md` leans on that.

use super::failure::Failure;
use super::greeting::{Arrival, HelloReader, Identity, meet};
use super::{AddressPair, Security, begin_call};
use crate::channel::Channel;
use crate::socket::{Moved, vector};
use forebay_core::cluster::NodeId;
use forebay_core::wire::*;
use socket2::TcpKeepalive;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Time from the first packet to the owner's answer.
pub const CALL_TIME_MAX: Duration = Duration::from_secs(3);
/// What was sent and is not confirmed by the other side's kernel for so long is lost with its path.
const UNCONFIRMED_MAX: Duration = Duration::from_secs(2);
/// A path on which nothing is open is tried so often, three times in vain at most.
const KEEPALIVE: Duration = Duration::from_secs(1);

/// Calls the owner of a volume. Nothing but NBD goes over the channel from then on.
pub fn call_owner(
    identity: &Identity,
    security: &Security,
    (name, node): (&NodeName, NodeId),
    pair: &AddressPair,
    volume: [u8; 16],
) -> Result<(Channel, Entered), Failure> {
    let until = Instant::now() + CALL_TIME_MAX;
    let socket = begin_call(pair, false).map_err(|error| Failure::Connect(error.kind()))?;
    let connected = wait(socket.as_fd(), libc::POLLOUT, until);
    connected.map_err(|error| Failure::Connect(error.kind()))?;
    if let Some(error) = socket.take_error().map_err(|error| Failure::Socket(error.kind()))? {
        return Err(Failure::Connect(error.kind()));
    }
    notice_lost_paths(socket2::SockRef::from(&socket)).map_err(|error| Failure::Socket(error.kind()))?;
    let mut channel = Channel::plain(socket.into());
    if let Security::Tls(tls) = security {
        channel.start_tls(tls.call(name).map_err(|error| Failure::Tls(error.to_string()))?);
    }
    send(&mut channel, &ChannelFrame::Hello(identity.forward_hello(volume)))?;
    let mut reader = HelloReader::default();
    while meet(&mut reader, &mut channel, identity, Some((name, Some(node))))?.is_none() {
        wait_for(&mut channel, until)?;
    }
    let entered = read_entered(&mut channel, until)?;
    Ok((channel, entered))
}

impl Arrival {
    /// Lets a node in that forwards: what it asks follows on the channel.
    pub fn enter(self, identity: &Identity, entered: Entered) -> Result<Channel, Failure> {
        let Arrival { mut channel, hello, .. } = self;
        let volume = hello.volume.ok_or(Failure::Malformed("hello: of no volume"))?;
        if identity.refuses(&channel) {
            return Err(Failure::Revoked);
        }
        // What is found only when a client waits is found soon enough; what is never found would be kept for ever.
        notice_lost_paths(socket2::SockRef::from(&channel.socket())).map_err(|error| Failure::Socket(error.kind()))?;
        send(&mut channel, &ChannelFrame::Hello(identity.forward_hello(volume)))?;
        send(&mut channel, &ChannelFrame::Entered(entered))?;
        Ok(channel)
    }
}

/// The kernel ends the connection when the other side's kernel is silent.
fn notice_lost_paths(socket: socket2::SockRef<'_>) -> io::Result<()> {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(3);
    socket.set_tcp_keepalive(&keepalive)?;
    let milliseconds = UNCONFIRMED_MAX.as_millis() as libc::c_uint;
    let value: *const libc::c_uint = &milliseconds;
    // SAFETY: four bytes are read from a variable that lives through the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, value.cast(), 4) };
    match io::Error::last_os_error() {
        _ if result == 0 => Ok(()),
        // Multipath TCP has it not in every kernel; the keepalive finds the same, later.
        error if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        error => Err(error),
    }
}

/// A fresh socket takes these few bytes; a TLS session keeps them until its handshake is done.
fn send(channel: &mut Channel, frame: &ChannelFrame) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    // SAFETY: the vector names `bytes`, which lives through the call.
    match unsafe { channel.send(&[vector(bytes.as_ptr(), bytes.len())]) } {
        Moved::Bytes(sent) if sent == bytes.len() => Ok(()),
        Moved::Bytes(_) | Moved::WouldBlock => Err(Failure::Socket(io::ErrorKind::WouldBlock)),
        Moved::Failed(error) => Err(Failure::of(&error)),
    }
}

/// Not a byte behind it is read.
fn read_entered(channel: &mut Channel, until: Instant) -> Result<Entered, Failure> {
    let head = FrameHead::decode(&read(channel, until)?).map_err(Failure::Malformed)?;
    let frame = match head.kind {
        FrameKind::Entered => {
            let body: [u8; 24] = read(channel, until)?;
            head.check_body(&body).and_then(|()| ChannelFrame::decode(head.kind, &body))
        }
        FrameKind::Refusal => {
            let body: [u8; 8] = read(channel, until)?;
            head.check_body(&body).and_then(|()| ChannelFrame::decode(head.kind, &body))
        }
        FrameKind::Hello
        | FrameKind::Start
        | FrameKind::Message
        | FrameKind::Acknowledge
        | FrameKind::Ping
        | FrameKind::Pong => Err("frame: another one where the owner's word must be"),
    };
    match frame.map_err(Failure::Malformed)? {
        ChannelFrame::Entered(entered) => Ok(entered),
        ChannelFrame::Refusal(why) => Err(Failure::RefusedByPeer(why)),
        ChannelFrame::Hello(_)
        | ChannelFrame::Start { .. }
        | ChannelFrame::Acknowledge { .. }
        | ChannelFrame::Ping { .. }
        | ChannelFrame::Pong { .. } => Err(Failure::Malformed("frame: another one where the owner's word must be")),
    }
}

fn read<const N: usize>(channel: &mut Channel, until: Instant) -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match channel.receive(&mut bytes[filled..]) {
            Moved::Bytes(0) => return Err(Failure::HungUp),
            Moved::Bytes(got) => filled += got,
            Moved::WouldBlock => wait_for(channel, until)?,
            Moved::Failed(error) => return Err(Failure::of(&error)),
        }
    }
    Ok(bytes)
}

/// Blocks until the other side has said more, and sends what the session has kept meanwhile.
fn wait_for(channel: &mut Channel, until: Instant) -> Result<(), Failure> {
    let events = libc::POLLIN | if channel.has_unsent() { libc::POLLOUT } else { 0 };
    wait(channel.socket(), events, until).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => Failure::TooSlow,
        kind => Failure::Socket(kind),
    })?;
    if channel.has_unsent() {
        // SAFETY: no vectors: only what waits in the session.
        match unsafe { channel.send(&[]) } {
            Moved::Bytes(_) | Moved::WouldBlock => {}
            Moved::Failed(error) => return Err(Failure::of(&error)),
        }
    }
    Ok(())
}

fn wait(socket: BorrowedFd<'_>, events: libc::c_short, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut polled = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
        // SAFETY: one entry, which lives through the call.
        match unsafe { libc::poll(&mut polled, 1, left.as_millis() as i32 + 1) } {
            1.. => return Ok(()),
            0 => {}
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}
