//! TLS 1.3 for NBD: the server's certificate and key, and one session for each client.
//!
//! Invariants:
//! - A session is a pure state machine over buffers; the socket calls are made here, none of them blocks, and nothing
//!   loops on a socket that has no more to give.
//! - A client costs at most one buffer of received bytes ([`RECEIVE_BYTES`]), the rest of one record, and
//!   [`SEND_BYTES_MAX`] of encrypted bytes that its socket does not take.
//! - No state is kept for clients to resume: nothing is shared between sessions but the configuration.
//! - A stream that ends without a goodbye of TLS is an error, not an end: somebody else may have cut it.

use super::socket::{self, Moved};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Encrypted bytes taken from the socket by one call.
const RECEIVE_BYTES: usize = 64 << 10;
/// Bytes encrypted at a time. More are taken when these have left.
const SEND_BYTES_MAX: usize = 256 << 10;
/// Vectors handed to the session at a time: it walks all of them for each record.
const SEND_VECTORS_MAX: usize = 64;

/// Why TLS cannot be offered.
#[derive(Debug)]
pub struct TlsError {
    what: &'static str,
    path: PathBuf,
    why: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot use {} as {}: {}", self.path.display(), self.what, self.why)
    }
}

impl std::error::Error for TlsError {}

/// What every session of a listener is made from. Cheap to clone.
#[derive(Clone)]
pub struct TlsServer(Arc<ServerConfig>);

impl TlsServer {
    /// Reads PEM files: the server's certificate with those between it and its authority, its key, and, where clients
    /// must show a certificate, the authorities that theirs may come from.
    pub fn load(certificate: &Path, key: &Path, client_authority: Option<&Path>) -> Result<TlsServer, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3");
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let error = |why: String| TlsError { what: "the authority of clients", path: path.to_owned(), why };
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path).map_err(error)? {
                    roots.add(certificate).map_err(|e| error(e.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|e| error(e.to_string()))?)
            }
        };
        let chain = certificates(certificate).map_err(|why| TlsError {
            what: "the server's certificate",
            path: certificate.to_owned(),
            why,
        })?;
        let key_error = |why: String| TlsError { what: "the server's key", path: key.to_owned(), why };
        let private = PrivateKeyDer::from_pem_file(key).map_err(|e| key_error(e.to_string()))?;
        // Refuses a key that does not belong to the certificate.
        let mut config = builder.with_single_cert(chain, private).map_err(|e| key_error(e.to_string()))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(TlsServer(Arc::new(config)))
    }

    pub(super) fn accept(&self) -> Result<Session, rustls::Error> {
        let mut tls = ServerConnection::new(self.0.clone())?;
        tls.set_buffer_limit(Some(SEND_BYTES_MAX));
        Ok(Session { tls, received: Vec::new(), received_at: 0, ended: false })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(|certificates| certificates.collect());
    match found {
        Ok(found) if found.is_empty() => Err("there is no certificate in it (PEM is expected)".into()),
        Ok(found) => Ok(found),
        Err(error) => Err(error.to_string()),
    }
}

/// TLS with one client.
pub(super) struct Session {
    tls: ServerConnection,
    /// Encrypted bytes that the session has not looked at yet.
    received: Vec<u8>,
    received_at: usize,
    /// The client has said that it sends no more.
    ended: bool,
}

impl Session {
    pub(super) fn has_unsent(&self) -> bool {
        self.tls.wants_write()
    }

    /// As [`super::channel::Channel::receive`].
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> Moved {
        let mut filled = 0;
        loop {
            match self.take_plaintext(&mut into[filled..]) {
                Ok(taken) => filled += taken,
                Err(error) => return Moved::Failed(error),
            }
            if filled == into.len() || self.ended {
                return Moved::Bytes(filled);
            }
            if self.received_at < self.received.len() {
                if let Err(error) = self.decrypt() {
                    // The alert that says why; a client that does not take it now never learns.
                    let _ = self.flush(socket);
                    return Moved::Failed(io::Error::new(io::ErrorKind::InvalidData, error));
                }
                continue;
            }
            // The handshake's own messages leave from here, so that both sides get on.
            if let Moved::Failed(error) = self.flush(socket) {
                return Moved::Failed(error);
            }
            match self.receive_encrypted(socket) {
                Moved::Bytes(0) if filled == 0 => return Moved::Failed(io::ErrorKind::UnexpectedEof.into()),
                Moved::WouldBlock if filled == 0 => return Moved::WouldBlock,
                // The next call says the same about the socket.
                Moved::Bytes(0) | Moved::WouldBlock => return Moved::Bytes(filled),
                Moved::Bytes(_) => {}
                Moved::Failed(error) => return Moved::Failed(error),
            }
        }
    }

    /// Copies as many decrypted bytes as there are, and as there is room for; returns how many.
    fn take_plaintext(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match self.tls.reader().read(&mut into[filled..]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(taken) => filled += taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn decrypt(&mut self) -> Result<(), rustls::Error> {
        let mut rest = &self.received[self.received_at..];
        let before = rest.len();
        // Its plaintext was taken and its records are whole or short, so it has room; a slice has no errors.
        let taken = self.tls.read_tls(&mut rest).map_err(|error| rustls::Error::General(error.to_string()))?;
        self.received_at += taken;
        let state = self.tls.process_new_packets()?;
        if state.peer_has_closed() || taken == 0 {
            // What follows a goodbye has no meaning.
            self.received_at += before - taken;
        }
        Ok(())
    }

    fn receive_encrypted(&mut self, socket: BorrowedFd<'_>) -> Moved {
        self.received.resize(RECEIVE_BYTES, 0);
        self.received_at = 0;
        let moved = socket::receive(socket, &mut self.received);
        let got = match moved {
            Moved::Bytes(got) => got,
            Moved::WouldBlock | Moved::Failed(_) => 0,
        };
        self.received.truncate(got);
        if got == 0 {
            // Idle clients keep no buffer.
            self.received = Vec::new();
        }
        moved
    }

    /// As [`super::channel::Channel::send`].
    ///
    /// # Safety
    /// Every vector must name memory that is valid for reads and that nothing writes to during the call.
    pub(super) unsafe fn send(&mut self, socket: BorrowedFd<'_>, vectors: &[libc::iovec]) -> Moved {
        // SAFETY: IoSlice is documented to have the layout of an iovec; the memory is readable by the caller's promise.
        let mut rest: &[IoSlice<'_>] = unsafe { core::slice::from_raw_parts(vectors.as_ptr().cast(), vectors.len()) };
        let mut skip = 0;
        let mut sent = 0;
        loop {
            match self.flush(socket) {
                Moved::Bytes(_) => {}
                Moved::WouldBlock if sent == 0 => return Moved::WouldBlock,
                Moved::WouldBlock => return Moved::Bytes(sent),
                Moved::Failed(error) => return Moved::Failed(error),
            }
            let Some(first) = rest.first() else { return Moved::Bytes(sent) };
            // What is left of a vector that was taken in part goes by itself, so that the others need no changing.
            let taken = if skip > 0 {
                self.tls.writer().write(&first[skip..])
            } else {
                self.tls.writer().write_vectored(&rest[..rest.len().min(SEND_VECTORS_MAX)])
            };
            let mut taken = match taken {
                Ok(0) if !first.is_empty() => return Moved::Failed(io::ErrorKind::WriteZero.into()),
                Ok(taken) => taken,
                Err(error) => return Moved::Failed(error),
            };
            sent += taken;
            taken += skip;
            while let Some(first) = rest.first().filter(|first| first.len() <= taken) {
                taken -= first.len();
                rest = &rest[1..];
            }
            skip = taken;
        }
    }

    /// Sends what is encrypted. `Bytes`: all of it.
    fn flush(&mut self, socket: BorrowedFd<'_>) -> Moved {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Unblocking(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Moved::WouldBlock,
                Err(error) => return Moved::Failed(error),
            }
        }
        Moved::Bytes(0)
    }

    pub(super) fn say_goodbye(&mut self, socket: BorrowedFd<'_>) {
        self.tls.send_close_notify();
        // A client that has gone, or takes nothing, needs none.
        let _ = self.flush(socket);
    }
}

/// A socket as rustls wants to write to it.
struct Unblocking<'a>(BorrowedFd<'a>);

impl Write for Unblocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // SAFETY: IoSlice is documented to have the layout of an iovec.
        let vectors: &[libc::iovec] = unsafe { core::slice::from_raw_parts(slices.as_ptr().cast(), slices.len()) };
        // SAFETY: the vectors name the slices' memory, which is borrowed during the call.
        match unsafe { socket::send(self.0, vectors) } {
            Moved::Bytes(sent) => Ok(sent),
            Moved::WouldBlock => Err(io::ErrorKind::WouldBlock.into()),
            Moved::Failed(error) => Err(error),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
