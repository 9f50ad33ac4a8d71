//! HTTP listeners with a bound on their connections: whoever opens thousands keeps others from the API, but takes no
//! descriptors and no memory from the data path.

use super::Peer;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections of one listener; further ones wait in its queue.
pub const CONNECTIONS_MAX: usize = 128;

/// A listener with places.
pub struct Bounded<L> {
    listener: L,
    places: Arc<Semaphore>,
}

impl<L> Bounded<L> {
    /// Around a listener.
    pub fn new(listener: L) -> Bounded<L> {
        Bounded { listener, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }
}

/// A connection that gives its place back when it ends.
pub struct Placed<S> {
    stream: S,
    _place: OwnedSemaphorePermit,
}

impl<L: Listener> Listener for Bounded<L>
where
    L::Io: Unpin,
{
    type Io = Placed<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let place = self.places.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (stream, address) = self.listener.accept().await;
        (Placed { stream, _place: place }, address)
    }

    fn local_addr(&self) -> Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Placed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Placed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Connected<IncomingStream<'_, Bounded<UnixListener>>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Bounded<UnixListener>>) -> Peer {
        Peer::Unix { uid: stream.io().stream.peer_cred().ok().map(|c| c.uid()) }
    }
}

impl Connected<IncomingStream<'_, Bounded<TcpListener>>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Bounded<TcpListener>>) -> Peer {
        Peer::Tcp(*stream.remote_addr())
    }
}
