//! HTTP listeners with a bound on their connections: whoever opens thousands takes no descriptors and no memory from the data path. With
//! TLS, a handshake has a place and a time limit like any connection, and nobody waits for another's.
//!
//! The unix socket is open to every user of the host, and root gives commands by it: so root and the daemon's own user have places of their
//! own, every other user has a few, and who comes with too many is told so at once. A request whose head is not there in time loses its
//! connection, on every listener: a place is for who has something to ask.

use super::Peer;
use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::serve::Listener;
use forebay_api::config::HttpTls;
use forebay_core::roles;
use forebay_io::certificate::{self, Shown};
use forebay_io::tls::{self, TlsError};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use std::collections::HashMap;
use std::io::{IoSlice, Result};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Connections of one listener; further ones wait in its queue.
pub const CONNECTIONS_MAX: usize = 128;
/// Of them on the unix socket, one user's at most, and all users' but root's and the daemon's own.
const CONNECTIONS_OF_USER_MAX: usize = 16;
const CONNECTIONS_OF_OTHERS_MAX: usize = 64;
/// A handshake that takes longer is given up.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// A request's head that takes longer is given up, too.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// What somebody is told for whom there is no place.
const CROWDED: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n";

/// A listener with a bound on its connections.
pub struct Bounded<L> {
    listener: L,
    places: Arc<Semaphore>,
}

impl<L> Bounded<L> {
    /// Puts a bound around a listener.
    pub fn new(listener: L) -> Bounded<L> {
        Bounded { listener, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }
}

/// Places of one user who is neither root nor the daemon's own.
#[derive(Clone)]
struct Few {
    by_user: Arc<Mutex<HashMap<Option<u32>, usize>>>,
}

/// One of them; it is given back when it ends.
struct OfUser {
    few: Few,
    uid: Option<u32>,
}

impl Few {
    fn take(&self, uid: Option<u32>) -> Option<OfUser> {
        let mut by_user = self.by_user.lock().expect("nothing panics while it is held");
        let all: usize = by_user.values().sum();
        let own = by_user.get(&uid).copied().unwrap_or(0);
        if own >= CONNECTIONS_OF_USER_MAX || all >= CONNECTIONS_OF_OTHERS_MAX {
            return None;
        }
        by_user.insert(uid, own + 1);
        Some(OfUser { few: self.clone(), uid })
    }
}

impl Drop for OfUser {
    fn drop(&mut self) {
        let mut by_user = self.few.by_user.lock().expect("nothing panics while it is held");
        match by_user.get_mut(&self.uid) {
            Some(own) if *own > 1 => *own -= 1,
            Some(_) | None => drop(by_user.remove(&self.uid)),
        }
    }
}

/// The unix socket, which all users of the host share.
pub struct Shared {
    listener: UnixListener,
    /// Of root and the daemon's own user.
    places: Arc<Semaphore>,
    few: Few,
    own: u32,
}

impl Shared {
    /// Puts bounds around the API's unix socket.
    pub fn new(listener: UnixListener) -> Shared {
        // SAFETY: it has no arguments, cannot fail and touches no memory.
        let own = unsafe { libc::geteuid() };
        let few = Few { by_user: Arc::default() };
        Shared { listener, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)), few, own }
    }
}

impl Listener for Shared {
    type Io = Placed<UnixStream>;
    /// User of the process that has connected; none: the kernel does not say.
    type Addr = Option<u32>;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, _) = Listener::accept(&mut self.listener).await;
            let uid = stream.peer_cred().ok().map(|credentials| credentials.uid());
            if uid.is_some_and(|uid| uid == 0 || uid == self.own) {
                // Those that wait here wait for others of root's or the daemon's own.
                let place = self.places.clone().acquire_owned().await.expect("the semaphore is never closed");
                return (Placed { stream, _place: Place::OfAll(place) }, uid);
            }
            match self.few.take(uid) {
                Some(place) => return (Placed { stream, _place: Place::OfUser(place) }, uid),
                None => refuse(&stream),
            }
        }
    }

    fn local_addr(&self) -> Result<Self::Addr> {
        Ok(Some(self.own))
    }
}

/// Says why, as far as that goes without waiting.
fn refuse(stream: &UnixStream) {
    let why = format!(
        r#"{{"error":"a user has at most {CONNECTIONS_OF_USER_MAX} connections here, and all but root and the daemon's user at most {CONNECTIONS_OF_OTHERS_MAX}: close some, or try again"}}"#
    );
    // The socket is new and its buffer empty; who does not read it has hung up.
    let _ = stream.try_write(format!("{CROWDED}content-length: {}\r\n\r\n{why}", why.len()).as_bytes());
}

/// What a connection takes.
enum Place {
    OfAll(#[expect(dead_code, reason = "it is given back when it is dropped")] OwnedSemaphorePermit),
    OfUser(#[expect(dead_code, reason = "likewise")] OfUser),
}

/// A connection that gives its place back when it ends.
pub struct Placed<S> {
    stream: S,
    _place: Place,
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
        (Placed { stream, _place: Place::OfAll(place) }, address)
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

/// A listener whose callers are known to the API.
pub trait Callers: Listener {
    /// Who is at the other end of a connection.
    fn caller(io: &Self::Io, address: Self::Addr) -> Peer;
}

impl Callers for Shared {
    fn caller(_: &Self::Io, uid: Option<u32>) -> Peer {
        Peer::Unix { uid }
    }
}

impl Callers for Bounded<TcpListener> {
    fn caller(_: &Self::Io, from: SocketAddr) -> Peer {
        Peer::Tcp { from, certificate: None }
    }
}

impl Callers for Secured {
    fn caller(_: &Self::Io, peer: Peer) -> Peer {
        peer
    }
}

/// Answers whoever calls. Never ends. A caller has [`HEAD_TIME`] for the head of each request, and a connection on which nothing is asked
/// for so long ends.
pub async fn serve<L: Callers>(mut listener: L, router: Router)
where
    L::Io: Unpin,
{
    loop {
        let (io, address) = listener.accept().await;
        let peer = L::caller(&io, address);
        let answers = TowerToHyperService::new(router.clone().into_service::<Body>());
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer.clone()));
            hyper::service::Service::call(&answers, request)
        });
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
            // Who does not ask in time, or hangs up, has nothing to be told.
            let _ = http.serve_connection(TokioIo::new(io), service).await;
        });
    }
}

/// Reads what the files say. A client need not have a certificate: it may have a token instead.
pub fn load_tls(files: &HttpTls) -> anyhow::Result<TlsAcceptor> {
    const CERTIFICATE: &str = "the server's certificate";
    let builder = ServerConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3");
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            const AUTHORITY: &str = "the authority of clients";
            let roots = tls::authorities(AUTHORITY, path)?;
            let callers = certificate::of_callers(roles::Place::Http, roots, Shown::AtWill);
            builder.with_client_cert_verifier(callers.map_err(|error| TlsError::new(AUTHORITY, path, error))?)
        }
    };
    let chain = tls::certificates(CERTIFICATE, &files.cert)?;
    certificate::check_own(roles::Place::Http, CERTIFICATE, &files.cert, &chain[0])?;
    let key = tls::private_key("the server's key", &files.key)?;
    let wrong = || format!("cannot use {} with the key {}", files.cert.display(), files.key.display());
    let mut config = builder.with_single_cert(chain, key).with_context(wrong)?;
    // A session that is resumed would not show its certificate again, which may have ended.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// A listener whose connections have ended their handshakes.
pub struct Secured {
    ready: mpsc::Receiver<(Placed<TlsStream<TcpStream>>, Peer)>,
    at: SocketAddr,
}

impl Secured {
    /// Puts TLS around a listener.
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
                    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                    let certificate = shown.map(|shown| Arc::new(certificate::read(shown)));
                    let _ = done.send((Placed { stream, _place }, Peer::Tcp { from, certificate })).await;
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
        Ok(Peer::Tcp { from: self.at, certificate: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_few_places_and_gets_them_back() {
        let few = Few { by_user: Arc::default() };
        let mut held: Vec<OfUser> = std::iter::from_fn(|| few.take(Some(65_534))).take(100).collect();
        assert_eq!(held.len(), CONNECTIONS_OF_USER_MAX);
        assert!(few.take(Some(1000)).is_some(), "another user has places");
        held.pop();
        held.push(few.take(Some(65_534)).expect("one was given back"));
        let others = (0..100).flat_map(|uid| few.take(Some(uid))).collect::<Vec<_>>();
        assert_eq!(held.len() + others.len(), CONNECTIONS_OF_OTHERS_MAX);
        drop((held, others));
        assert!(few.by_user.lock().unwrap().is_empty(), "nothing is kept of who has gone");
    }
}
