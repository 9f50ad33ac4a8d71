//! A handshake on its socket: what stands between `accept` and a [`super::connection::Connection`].
//!
//! Where a [`TlsServer`] is given, the client must go over to TLS before it is told anything; the TLS handshake is part
//! of the time that it has.
//!
//! Answers are sent before more is received, so that a client that does not read gets no more of them. A client that
//! is not through after [`super::handshake::HANDSHAKE_MAX`] is dropped by the caller, unless it waits for an export.

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
    /// The client has asked for what cannot be entered yet.
    awaits_export: bool,
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
    /// Call again in a while: the export that the client asks for cannot be entered yet.
    AwaitsExport(Greeter),
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
            awaits_export: false,
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
        const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(50);
        loop {
            let writable = match self.advance(exports) {
                Greeting::AwaitsExport(greeter) => {
                    std::thread::sleep(LOOK_AGAIN);
                    self = greeter;
                    continue;
                }
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
            // What was asked is asked again.
            let asked_again = std::mem::take(&mut self.awaits_export);
            let got = match self.channel.receive(&mut buffer) {
                Moved::WouldBlock if asked_again => 0,
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
                Outcome::Await => {
                    self.awaits_export = true;
                    None
                }
                Outcome::StartTls => Some(End::StartTls),
                Outcome::Ready(negotiated) => Some(End::Ready(negotiated)),
                Outcome::Close(why) => Some(End::Close(why)),
            };
            // What was answered before is not kept back meanwhile; a client that does not take it is waited for as usual.
            if self.awaits_export && self.unsent.is_empty() && !self.channel.has_unsent() {
                return Greeting::AwaitsExport(self);
            }
        }
    }
}
