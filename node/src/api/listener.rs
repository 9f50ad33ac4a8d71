//! HTTP listeners with a bound on their connections: whoever opens thousands keeps others from the API, but takes no
//! descriptors and no memory from the data path. With TLS, a handshake has a place and a time limit like any connection,
//! and nobody waits for another's.

use super::Peer;
use crate::config::HttpTls;
use anyhow::Context as _;
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use forebay_io::tls;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use std::io::{IoSlice, Result};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Connections of one listener; further ones wait in its queue.
pub const CONNECTIONS_MAX: usize = 128;
/// A handshake that takes longer is given up.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

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
        Peer::Tcp { from: *stream.remote_addr(), certified: false }
    }
}

/// Reads what the files say. A client need not have a certificate: it may have a token instead.
pub fn load_tls(files: &HttpTls) -> anyhow::Result<TlsAcceptor> {
    let builder = ServerConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3");
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(tls::authorities("the authority of clients", path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, tls::provider());
            let verifier = verifier.allow_unauthenticated().build();
            let wrong = || format!("cannot use {} as the authority of clients", path.display());
            builder.with_client_cert_verifier(verifier.with_context(wrong)?)
        }
    };
    let chain = tls::certificates("the server's certificate", &files.cert)?;
    let key = tls::private_key("the server's key", &files.key)?;
    let wrong = || format!("cannot use {} with the key {}", files.cert.display(), files.key.display());
    let mut config = builder.with_single_cert(chain, key).with_context(wrong)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// A listener whose connections have ended their handshakes.
pub struct Secured {
    ready: mpsc::Receiver<(Placed<TlsStream<TcpStream>>, Peer)>,
    at: SocketAddr,
}

impl Secured {
    /// Around a listener.
    pub fn new(listener: TcpListener, acceptor: TlsAcceptor) -> Result<Secured> {
        let at = listener.local_addr()?;
        let (done, ready) = mpsc::channel(CONNECTIONS_MAX);
        tokio::spawn(async move {
            let mut listener = Bounded::new(listener);
            loop {
                let (Placed { stream, _place }, from) = listener.accept().await;
                let (acceptor, done) = (acceptor.clone(), done.clone());
                tokio::spawn(async move {
                    // A client that fails here has heard why by TLS itself.
                    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await else {
                        return;
                    };
                    let certified = stream.get_ref().1.peer_certificates().is_some();
                    let _ = done.send((Placed { stream, _place }, Peer::Tcp { from, certified })).await;
                });
            }
        });
        Ok(Secured { ready, at })
    }
}

impl Listener for Secured {
    type Io = Placed<TlsStream<TcpStream>>;
    type Addr = Peer;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        self.ready.recv().await.expect("the task that accepts never ends")
    }

    fn local_addr(&self) -> Result<Self::Addr> {
        Ok(Peer::Tcp { from: self.at, certified: false })
    }
}

impl Connected<IncomingStream<'_, Secured>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Secured>) -> Peer {
        stream.remote_addr().clone()
    }
}
