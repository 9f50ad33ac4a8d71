//! A handshake on its socket: what stands between `accept` and a [`super::connection::Connection`].
//!
//! Answers are sent before more is received, so that a client that does not read gets no more of them. A client that
//! is not through after [`super::handshake::HANDSHAKE_MAX`] is dropped by the caller.

use super::handshake::{Exports, Handshake, Negotiated, Outcome};
use super::socket::{self, Moved, vector};
use forebay_core::types::Instant;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes taken from the socket by one call. A client rarely sends more before its first answer.
const RECEIVE_BYTES: usize = 4096;

/// A client that has not chosen its export yet.
pub struct Greeter {
    socket: OwnedFd,
    since: Instant,
    handshake: Handshake,
    unsent: Vec<u8>,
    unsent_at: usize,
    end: Option<End>,
}

enum End {
    Ready(Box<Negotiated>),
    Close(&'static str),
}

/// Where it stands.
pub enum Greeting {
    /// Call again when the socket is readable.
    WaitsReadable(Greeter),
    /// Call again when the socket is writable.
    WaitsWritable(Greeter),
    /// The transmission phase begins.
    Ready(OwnedFd, Box<Negotiated>),
    /// Over; the text says why.
    Closed(&'static str),
}

impl Greeter {
    /// Begins to greet on a non-blocking socket.
    pub fn new(socket: OwnedFd, now: Instant) -> Greeter {
        let mut unsent = Vec::new();
        let handshake = Handshake::new(&mut unsent);
        Greeter { socket, since: now, handshake, unsent, unsent_at: 0, end: None }
    }

    /// The socket, to wait on.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// When it began.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Greets to the end, blocking: for servers of one client.
    pub fn finish(mut self, exports: &dyn Exports) -> io::Result<(OwnedFd, Box<Negotiated>)> {
        loop {
            let writable = match self.advance(exports) {
                Greeting::WaitsReadable(greeter) => {
                    self = greeter;
                    false
                }
                Greeting::WaitsWritable(greeter) => {
                    self = greeter;
                    true
                }
                Greeting::Ready(socket, negotiated) => return Ok((socket, negotiated)),
                Greeting::Closed(why) => return Err(io::Error::other(why)),
            };
            socket::wait(self.socket(), writable)?;
        }
    }

    /// Goes on as far as the socket allows.
    pub fn advance(mut self, exports: &dyn Exports) -> Greeting {
        let mut buffer = [0u8; RECEIVE_BYTES];
        loop {
            while self.unsent_at < self.unsent.len() {
                let rest = &self.unsent[self.unsent_at..];
                // SAFETY: the vector names `rest`, which is borrowed during the call.
                match unsafe { socket::send(self.socket.as_fd(), &mut [vector(rest.as_ptr(), rest.len())]) } {
                    Moved::Bytes(sent) => self.unsent_at += sent,
                    Moved::WouldBlock => return Greeting::WaitsWritable(self),
                    Moved::Failed(_) => return Greeting::Closed("the client's socket failed during the handshake"),
                }
            }
            self.unsent.clear();
            self.unsent_at = 0;
            match self.end.take() {
                Some(End::Ready(negotiated)) => return Greeting::Ready(self.socket, negotiated),
                Some(End::Close(why)) => return Greeting::Closed(why),
                None => {}
            }
            let vectors = &mut [libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() }];
            // SAFETY: the vector names `buffer`, which is borrowed mutably during the call.
            let got = match unsafe { socket::receive(self.socket.as_fd(), vectors) } {
                Moved::Bytes(0) => return Greeting::Closed("the client hung up during the handshake"),
                Moved::Bytes(got) => got,
                Moved::WouldBlock => return Greeting::WaitsReadable(self),
                Moved::Failed(_) => return Greeting::Closed("the client's socket failed during the handshake"),
            };
            self.end = match self.handshake.feed(&buffer[..got], exports, &mut self.unsent) {
                Outcome::Continue => None,
                Outcome::Ready(negotiated) => Some(End::Ready(negotiated)),
                Outcome::Close(why) => Some(End::Close(why)),
            };
        }
    }
}
