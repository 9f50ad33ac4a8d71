//! TLS 1.3 over non-blocking sockets, for clients of volumes and for other nodes: sessions, and certificates from files.
//!
//! Invariants:
//! - A session is a pure state machine over buffers; the socket calls are made here, none of them blocks, and nothing
//!   loops on a socket that has no more to give.
//! - A session costs at most one buffer of received bytes ([`RECEIVE_BYTES`]), the rest of one record, and
//!   [`SEND_BYTES_MAX`] of encrypted bytes that its socket does not take.
//! - A stream that ends without a goodbye of TLS is an error, not an end: somebody else may have cut it.
//!
//! Left to others: who may speak ([`crate::link`] for nodes, `front` for clients).

use crate::socket::{self, Moved};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
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

/// Why a file is no use for TLS.
#[derive(Debug)]
pub struct TlsError {
    what: &'static str,
    path: PathBuf,
    why: String,
}

impl TlsError {
    /// `what` a file was to be used as, and why it cannot.
    pub fn new(what: &'static str, path: &Path, why: impl fmt::Display) -> TlsError {
        TlsError { what, path: path.to_owned(), why: why.to_string() }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot use {} as {}: {}", self.path.display(), self.what, self.why)
    }
}

impl std::error::Error for TlsError {}

/// The cryptography that TLS is done with.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The certificates of a PEM file, at least one.
pub fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(|certificates| certificates.collect());
    match found {
        Ok(found) if found.is_empty() => {
            Err(TlsError::new(what, path, "there is no certificate in it (PEM is expected)"))
        }
        Ok(found) => Ok(found),
        Err(error) => Err(TlsError::new(what, path, error)),
    }
}

/// The private key of a PEM file.
pub fn private_key(what: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| TlsError::new(what, path, error))
}

/// The authorities of a PEM file.
pub fn authorities(what: &'static str, path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(what, path)? {
        roots.add(certificate).map_err(|error| TlsError::new(what, path, error))?;
    }
    Ok(roots)
}

/// TLS with one other side, from the first byte of its handshake on.
pub struct Session {
    tls: Connection,
    /// Encrypted bytes that the session has not looked at yet.
    received: Vec<u8>,
    received_at: usize,
    /// The other side has said that it sends no more.
    ended: bool,
}

impl Session {
    /// A session of the listening side, which waits for the other to begin.
    pub fn server(config: Arc<ServerConfig>) -> Result<Session, rustls::Error> {
        Ok(Session::new(ServerConnection::new(config)?.into()))
    }

    /// The calling side; `name` is what the other's certificate must name.
    pub fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Session, rustls::Error> {
        Ok(Session::new(ClientConnection::new(config, name)?.into()))
    }

    fn new(mut tls: Connection) -> Session {
        tls.set_buffer_limit(Some(SEND_BYTES_MAX));
        Session { tls, received: Vec::new(), received_at: 0, ended: false }
    }

    /// The other side's certificate; none before the handshake has come that far, or where none is asked for.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.tls.peer_certificates().and_then(|chain| chain.first())
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.tls.wants_write()
    }

    /// Fills the buffer with plain bytes, as [`crate::channel::Channel::receive`] does.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> Moved {
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
                    // The alert that says why; who does not take it now never learns.
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
            // Idle connections keep no buffer.
            self.received = Vec::new();
        }
        moved
    }

    /// As [`crate::channel::Channel::send`].
    ///
    /// # Safety
    /// Every vector must name memory that is valid for reads and that nothing writes to during the call.
    pub(crate) unsafe fn send(&mut self, socket: BorrowedFd<'_>, vectors: &[libc::iovec]) -> Moved {
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

    pub(crate) fn send_goodbye(&mut self, socket: BorrowedFd<'_>) {
        self.tls.send_close_notify();
        // Who has gone, or takes nothing, needs none.
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
