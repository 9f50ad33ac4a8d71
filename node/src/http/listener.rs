//! HTTP listeners with a bound on their connections: whoever opens thousands takes no descriptors and no memory from the data path. With
//! TLS, a handshake has a place and a time limit like any connection, and nobody waits for another's.
//!
//! The unix socket is open to every user of the host, and root gives commands by it: so root and the daemon's own user have places of their
//! own, and every other user has a few. Over TCP nobody is known before a login: there no address has more than half of the places. Who comes
//! with too many is told so at once.
//!
//! A request whose head is not there in time loses its connection, and so does whoever stops sending its body, or stops reading the answer, on
//! every listener: a place is for who has something to ask.

use super::Peer;
use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::serve::Listener;
use forebay_api::config::HttpTls;
use forebay_core::roles;
use forebay_io::certificate::{self, Shown};
use forebay_io::socket::network_of;
use forebay_io::tls::{self, TlsError};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::server::NoServerSessionStorage;
use std::collections::HashMap;
use std::hash::Hash;
use std::io::{IoSlice, Result};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Connections of one listener.
pub const CONNECTIONS_MAX: usize = 128;
/// Of them over TCP, one address's at most.
const CONNECTIONS_OF_ADDRESS_MAX: usize = CONNECTIONS_MAX / 2;
/// Of them on the unix socket, one user's at most, and all users' but root's and the daemon's own.
const CONNECTIONS_OF_USER_MAX: usize = 16;
const CONNECTIONS_OF_OTHERS_MAX: usize = 64;
/// A handshake that takes longer is given up.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// A request's head that takes longer is given up, too.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Who takes nothing of an answer for so long, or sends nothing of a body, has hung up.
const STALL_MAX: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(30) };
/// What somebody is told for whom there is no place.
const CROWDED: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n";

/// Places, of which nobody has more than a few.
#[derive(Debug)]
struct Few<K> {
    of_one: usize,
    of_all: usize,
    by: Mutex<HashMap<K, usize>>,
}

/// One of them; it is given back when it ends.
#[derive(Debug)]
struct Of<K: Copy + Eq + Hash> {
    few: Arc<Few<K>>,
    whose: K,
}

impl<K: Copy + Eq + Hash> Few<K> {
    fn new(of_one: usize, of_all: usize) -> Arc<Few<K>> {
        Arc::new(Few { of_one, of_all, by: Mutex::default() })
    }

    fn take(self: &Arc<Few<K>>, whose: K) -> Option<Of<K>> {
        let mut by = self.by.lock().expect("nothing panics while it is held");
        let all: usize = by.values().sum();
        let own = by.get(&whose).copied().unwrap_or(0);
        if own >= self.of_one || all >= self.of_all {
            return None;
        }
        by.insert(whose, own + 1);
        Some(Of { few: self.clone(), whose })
    }
}

impl<K: Copy + Eq + Hash> Drop for Of<K> {
    fn drop(&mut self) {
        let mut by = self.few.by.lock().expect("nothing panics while it is held");
        match by.get_mut(&self.whose) {
            Some(own) if *own > 1 => *own -= 1,
            Some(_) | None => drop(by.remove(&self.whose)),
        }
    }
}

/// A TCP listener with a bound on its connections.
pub struct Bounded {
    listener: TcpListener,
    few: Arc<Few<IpAddr>>,
}

impl Bounded {
    /// Puts a bound around a listener.
    pub fn new(listener: TcpListener) -> Bounded {
        Bounded { listener, few: Few::new(CONNECTIONS_OF_ADDRESS_MAX, CONNECTIONS_MAX) }
    }

    /// The next connection; none: there is no place for it.
    async fn next(&mut self) -> (TcpStream, SocketAddr, Option<Place>) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        forebay_io::socket::keep_alive(stream.as_fd());
        let place = self.few.take(network_of(address.ip())).map(Place::Address);
        (stream, address, place)
    }
}

impl Listener for Bounded {
    type Io = Placed<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.next().await {
                (stream, address, Some(place)) => return (Placed::new(stream, place), address),
                (stream, _, None) => {
                    let why = format!(
                        "an address has at most {CONNECTIONS_OF_ADDRESS_MAX} connections here, and all together have \
                         {CONNECTIONS_MAX}: close some, or try again"
                    );
                    // Its buffer is empty; who does not read it has hung up.
                    let _ = stream.try_write(crowded(&why).as_bytes());
                }
            }
        }
    }

    fn local_addr(&self) -> Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// The unix socket, which all users of the host share.
pub struct Shared {
    listener: UnixListener,
    /// Of root and the daemon's own user.
    places: Arc<Semaphore>,
    few: Arc<Few<Option<u32>>>,
    own: u32,
}

impl Shared {
    /// Puts bounds around the API's unix socket.
    pub fn new(listener: UnixListener) -> Shared {
        // SAFETY: it has no arguments, cannot fail and touches no memory.
        let own = unsafe { libc::geteuid() };
        let few = Few::new(CONNECTIONS_OF_USER_MAX, CONNECTIONS_OF_OTHERS_MAX);
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
                return (Placed::new(stream, Place::Own(place)), uid);
            }
            match self.few.take(uid) {
                Some(place) => return (Placed::new(stream, Place::User(place)), uid),
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
        "a user has at most {CONNECTIONS_OF_USER_MAX} connections here, and all but root and the daemon's user at most \
         {CONNECTIONS_OF_OTHERS_MAX}: close some, or try again"
    );
    // The socket is new and its buffer empty; who does not read it has hung up.
    let _ = stream.try_write(crowded(&why).as_bytes());
}

fn crowded(why: &str) -> String {
    let body = format!(r#"{{"error":"{why}"}}"#);
    format!("{CROWDED}content-length: {}\r\n\r\n{body}", body.len())
}

/// What a connection takes.
enum Place {
    Own(#[expect(dead_code, reason = "it is given back when it is dropped")] OwnedSemaphorePermit),
    User(#[expect(dead_code, reason = "likewise")] Of<Option<u32>>),
    Address(#[expect(dead_code, reason = "likewise")] Of<IpAddr>),
}

/// A connection that gives its place back when it ends, and ends when nobody takes what is sent.
pub struct Placed<S> {
    stream: S,
    _place: Place,
    /// Runs while nothing can be sent.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Placed<S> {
    fn new(stream: S, place: Place) -> Placed<S> {
        Placed { stream, _place: place, stalled: None }
    }
}

/// What was attempted, or that it took too long.
fn within<T>(
    stalled: &mut Option<Pin<Box<Sleep>>>,
    cx: &mut Context<'_>,
    attempted: Poll<Result<T>>,
) -> Poll<Result<T>> {
    if attempted.is_ready() {
        *stalled = None;
        return attempted;
    }
    let timer = stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL_MAX)));
    timer.as_mut().poll(cx).map(|()| Err(std::io::ErrorKind::TimedOut.into()))
}

impl<S: AsyncRead + Unpin> AsyncRead for Placed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Placed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        within(&mut self.stalled, cx, written)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        within(&mut self.stalled, cx, flushed)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(cx);
        within(&mut self.stalled, cx, ended)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        within(&mut self.stalled, cx, written)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// A request's body, which has to come.
struct Awaited {
    body: Incoming,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl hyper::body::Body for Awaited {
    type Data = <Incoming as hyper::body::Body>::Data;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.stalled = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let timer = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALL_MAX)));
        timer.as_mut().poll(cx).map(|()| Some(Err("the rest of the request did not come in time".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
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

impl Callers for Bounded {
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
            let mut request = request.map(|body| Body::new(Awaited { body, stalled: None }));
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
                // Who finds no place is told so by a closed connection: there are no words before the handshake.
                let (stream, from, Some(place)) = listener.next().await else { continue };
                let (acceptor, done) = (acceptor.clone(), done.clone());
                tokio::spawn(async move {
                    // A client that fails here has heard why by TLS itself.
                    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await else {
                        return;
                    };
                    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                    let certificate = shown.map(|shown| Arc::new(certificate::read(shown)));
                    let _ = done.send((Placed::new(stream, place), Peer::Tcp { from, certificate })).await;
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
    use std::io::Write as _;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn a_user_has_a_few_places_and_gets_them_back() {
        let few = Few::new(CONNECTIONS_OF_USER_MAX, CONNECTIONS_OF_OTHERS_MAX);
        let mut held: Vec<Of<Option<u32>>> = std::iter::from_fn(|| few.take(Some(65_534))).take(100).collect();
        assert_eq!(held.len(), CONNECTIONS_OF_USER_MAX);
        assert!(few.take(Some(1000)).is_some(), "another user has places");
        held.pop();
        held.push(few.take(Some(65_534)).expect("one was given back"));
        let others = (0..100).flat_map(|uid| few.take(Some(uid))).collect::<Vec<_>>();
        assert_eq!(held.len() + others.len(), CONNECTIONS_OF_OTHERS_MAX);
        drop((held, others));
        assert!(few.by.lock().unwrap().is_empty(), "nothing is kept of who has gone");
    }

    async fn server() -> SocketAddr {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let at = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        let large = || async { vec![0u8; 64 << 20] };
        let router = Router::new()
            .route("/", axum::routing::get(|| async { "here" }))
            .route("/large", axum::routing::get(large))
            .route("/body", axum::routing::post(|body: String| async move { body }));
        tokio::spawn(serve(Bounded::new(listener), router));
        at
    }

    async fn connect(to: SocketAddr) -> TcpStream {
        TcpStream::connect(to).await.unwrap()
    }

    /// One by which this host reaches itself as another would; no packet is sent to find it.
    fn local_address() -> Option<IpAddr> {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
        socket.connect("192.0.2.1:9").ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
    }

    async fn ask(connection: &mut TcpStream, request: &str) -> String {
        let _ = connection.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = connection.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    const ASK: &str = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

    #[tokio::test]
    async fn an_address_that_takes_many_places_leaves_some_for_others() {
        let Some(other) = local_address() else {
            let _ = writeln!(std::io::stderr(), "SKIPPED: this host has no address by which others would reach it");
            return;
        };
        let at = server().await;
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS_OF_ADDRESS_MAX {
            held.push(connect(at).await);
        }
        let told = ask(&mut connect(at).await, "").await;
        assert!(told.starts_with("HTTP/1.1 503") && told.contains("an address has at most 64 connections"), "{told}");
        let mut elsewhere = TcpStream::connect((other, at.port())).await.unwrap();
        let answered = ask(&mut elsewhere, ASK).await;
        assert!(answered.ends_with("here"), "{answered}");
    }

    #[tokio::test]
    async fn who_neither_reads_nor_sends_gives_its_place_back() {
        let at = server().await;
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS_OF_ADDRESS_MAX / 2 {
            let mut reads_nothing = connect(at).await;
            reads_nothing.write_all(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            let mut sends_nothing = connect(at).await;
            sends_nothing.write_all(b"POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n").await.unwrap();
            held.extend([reads_nothing, sends_nothing]);
        }
        while !ask(&mut connect(at).await, ASK).await.ends_with("here") {
            tokio::time::sleep(STALL_MAX / 10).await;
        }
    }
}
