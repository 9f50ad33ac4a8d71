//! A handshake on its socket: what stands between `accept` and a [`super::connection::Connection`].
//!
//! Where a [`TlsServer`] is given, the client must go over to TLS before it is told anything; the TLS handshake is part
//! of the time that it has.
//!
//! Answers are sent before more is received, so that a client that does not read gets no more of them. A client that
//! is not through after [`super::handshake::HANDSHAKE_MAX`] is dropped by the caller.

use super::channel::Channel;
use super::handshake::{Exports, Handshake, Negotiated, Outcome};
use super::tls::TlsServer;
use forebay_core::roles::Client;
use forebay_core::types::Instant;
use forebay_io::certificate;
use forebay_io::socket::{self, Moved, vector};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Bytes taken from the socket by one call. A client rarely sends more before its first answer.
const RECEIVE_BYTES: usize = 4096;

/// A client that has not chosen its export yet.
pub struct Greeter {
    channel: Channel,
    tls: Option<TlsServer>,
    /// Who is at the other end, as soon as something was received that it may be told an answer to.
    client: Option<Client>,
    since: Instant,
    handshake: Handshake,
    unsent: Vec<u8>,
    unsent_at: usize,
    end: Option<End>,
}

enum End {
    StartTls,
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
    Ready(Channel, Box<Negotiated>),
    /// Over; the text says why.
    Closed(&'static str),
}

impl Greeter {
    /// Begins to greet on a non-blocking socket; with `tls`, the client must use it.
    pub fn new(socket: OwnedFd, tls: Option<TlsServer>, now: Instant) -> Greeter {
        let mut unsent = Vec::new();
        let handshake = match tls {
            Some(_) => Handshake::requiring_tls(&mut unsent),
            None => Handshake::new(&mut unsent),
        };
        Greeter {
            channel: Channel::plain(socket),
            tls,
            client: None,
            since: now,
            handshake,
            unsent,
            unsent_at: 0,
            end: None,
        }
    }

    /// The socket, to wait on.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }

    /// When the client came in.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Greets to the end, blocking: for servers of one client.
    pub fn finish(mut self, exports: &dyn Exports) -> io::Result<(Channel, Box<Negotiated>)> {
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
                Greeting::Ready(channel, negotiated) => return Ok((channel, negotiated)),
                Greeting::Closed(why) => return Err(io::Error::other(why)),
            };
            socket::wait(self.socket(), writable)?;
        }
    }

    /// Goes on as far as the socket allows.
    pub fn advance(mut self, exports: &dyn Exports) -> Greeting {
        const FAILED: &str = "the client's socket failed during the handshake";
        let mut buffer = [0u8; RECEIVE_BYTES];
        loop {
            while self.unsent_at < self.unsent.len() || self.channel.has_unsent() {
                let rest = &self.unsent[self.unsent_at..];
                // SAFETY: the vector names `rest`, which is borrowed during the call.
                match unsafe { self.channel.send(&[vector(rest.as_ptr(), rest.len())]) } {
                    Moved::Bytes(sent) => self.unsent_at += sent,
                    Moved::WouldBlock => return Greeting::WaitsWritable(self),
                    Moved::Failed(_) => return Greeting::Closed(FAILED),
                }
            }
            self.unsent.clear();
            self.unsent_at = 0;
            match self.end.take() {
                Some(End::Ready(negotiated)) => return Greeting::Ready(self.channel, negotiated),
                Some(End::Close(why)) => {
                    self.channel.shut_down();
                    return Greeting::Closed(why);
                }
                Some(End::StartTls) => {
                    let server = self.tls.as_ref().expect("only a handshake that requires TLS starts it");
                    match server.accept() {
                        Ok(session) => self.channel.start_tls(session),
                        Err(_) => return Greeting::Closed("TLS could not be started"),
                    }
                    self.handshake = self.handshake.encrypted();
                    self.client = None;
                }
                None => {}
            }
            let got = match self.channel.receive(&mut buffer) {
                Moved::Bytes(0) => return Greeting::Closed("the client hung up during the handshake"),
                Moved::Bytes(got) => got,
                Moved::WouldBlock if self.channel.has_unsent() => return Greeting::WaitsWritable(self),
                Moved::WouldBlock => return Greeting::WaitsReadable(self),
                Moved::Failed(_) => return Greeting::Closed(FAILED),
            };
            // Nothing is decrypted before the TLS handshake has ended, so the certificate is there, and was found good.
            let client = self.client.get_or_insert_with(|| certificate::client(&self.channel));
            self.end = match self.handshake.feed(&buffer[..got], client, exports, &mut self.unsent) {
                Outcome::Continue => None,
                Outcome::StartTls => Some(End::StartTls),
                Outcome::Ready(negotiated) => Some(End::Ready(negotiated)),
                Outcome::Close(why) => Some(End::Close(why)),
            };
        }
    }
}
