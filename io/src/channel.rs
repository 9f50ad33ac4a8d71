//! The bytes of one connection with a client or another node: plain on its socket, or under TLS.
//!
//! It receives into a buffer and sends vectors either way. Plain, that is one system call; under TLS the
//! bytes are copied from and to the session's own buffers, so what was sent is done with when `send` has taken it,
//! although it may still wait encrypted ([`Channel::has_unsent`]).

use crate::socket::{self, Moved};
use crate::tls::Session;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes in both directions.
pub struct Channel {
    socket: OwnedFd,
    session: Option<Box<Session>>,
}

impl Channel {
    /// On a non-blocking socket, without TLS.
    pub fn plain(socket: OwnedFd) -> Channel {
        Channel { socket, session: None }
    }

    /// From here on everything is encrypted. The caller has made sure that no byte of the other side was taken in
    /// before.
    pub fn start_tls(&mut self, session: Session) {
        assert!(self.session.is_none(), "TLS is started once");
        self.session = Some(Box::new(session));
    }

    /// TLS with the other side, where there is any.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_deref()
    }

    /// The socket, to wait on.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// True under TLS. Received bytes may then wait in the session while the socket is not readable.
    pub fn is_encrypted(&self) -> bool {
        self.session.is_some()
    }

    /// The socket of a connection without TLS.
    ///
    /// # Panics
    /// Under TLS, whose bytes nobody could read without the session.
    pub fn into_plain_socket(self) -> OwnedFd {
        assert!(self.session.is_none(), "a socket under TLS is not given away");
        self.socket
    }

    /// Encrypted bytes wait for the socket to become writable.
    pub fn has_unsent(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_unsent())
    }

    /// Fills the buffer from its start. Fewer bytes than it has room for: there are no more now.
    pub fn receive(&mut self, into: &mut [u8]) -> Moved {
        match &mut self.session {
            None => socket::receive(self.socket.as_fd(), into),
            Some(session) => session.receive(self.socket.as_fd(), into),
        }
    }

    /// Sends the vectors in order, and what waits from before. No vectors: only that.
    ///
    /// # Safety
    /// Every vector must name memory that is valid for reads and that nothing writes to during the call.
    pub unsafe fn send(&mut self, vectors: &[libc::iovec]) -> Moved {
        match &mut self.session {
            // SAFETY: the caller's promise, passed on.
            None => unsafe { socket::send(self.socket.as_fd(), vectors) },
            // SAFETY: as above.
            Some(session) => unsafe { session.send(self.socket.as_fd(), vectors) },
        }
    }

    /// Ends both directions; under TLS the other side is told so first, if its socket takes that now.
    pub fn shut_down(&mut self) {
        if let Some(session) = &mut self.session {
            session.send_goodbye(self.socket.as_fd());
        }
        socket::shut_down(self.socket.as_fd());
    }
}
