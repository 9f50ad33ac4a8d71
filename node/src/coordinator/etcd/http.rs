//! One request, one connection: HTTP/1.1 to a member of etcd, plain or by TLS with a certificate of our own.
//!
//! A connection is never used again. Requests are few, and so it is certain what has left this machine: what is
//! [`Lost::NotSent`] had no effect, and what is [`Lost::Sent`] may have had any.

use anyhow::{Context, Result, anyhow, bail};
use forebay_api::config::endpoint::Endpoint;
use forebay_core::types::Instant;
use forebay_io::clock;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Most bytes of an answer: a page of a hundred values, which have a kilobyte each here.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// PEM files for TLS with etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// Authorities that members' certificates come from.
    pub ca: PathBuf,
    /// Our certificate and its key, where members ask for one.
    pub own: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    fn load(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate).with_context(|| format!("cannot use {} as etcd's authority", self.ca.display()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3")
            .with_root_certificates(roots);
        let Some((certificate, key)) = &self.own else { return Ok(builder.with_no_client_auth()) };
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| anyhow!("cannot use {} as the key for etcd: {error}", key.display()))?;
        builder
            .with_client_auth_cert(certificates(certificate)?, private)
            .with_context(|| format!("cannot use {} with the key {} for etcd", certificate.display(), key.display()))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(|certificates| certificates.collect());
    match found {
        Ok(found) if found.is_empty() => bail!("{} has no certificate in it (PEM is expected)", path.display()),
        Ok(found) => Ok(found),
        Err(error) => bail!("cannot read certificates from {}: {error}", path.display()),
    }
}

/// Why a request has no answer.
#[derive(Debug)]
pub enum Lost {
    /// Not a byte of it has left.
    NotSent(String),
    /// All or a part has left: it may have arrived.
    Sent(String),
}

/// A client of HTTP for members of etcd.
pub struct Client {
    tls: Option<TlsConnector>,
    connect_timeout: Duration,
    answer_timeout: Duration,
}

/// A connection ends with whoever waits for it.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An answer that comes in pieces.
pub struct Stream {
    body: Incoming,
    _connection: Connection,
}

impl Stream {
    /// The next piece; none at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(error.into()),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

impl Client {
    /// Reads the certificates, where members want TLS.
    pub fn new(tls: Option<&TlsFiles>, connect_timeout: Duration, answer_timeout: Duration) -> Result<Client> {
        let tls = tls.map(TlsFiles::load).transpose()?.map(|config| TlsConnector::from(Arc::new(config)));
        Ok(Client { tls, connect_timeout, answer_timeout })
    }

    /// Posts JSON, and takes the whole answer. It leaves by an instant, if one is given, or not at all.
    pub async fn post(
        &self,
        to: &Endpoint,
        path: &str,
        body: Bytes,
        token: Option<&str>,
        leaves_by: Option<Instant>,
    ) -> Result<(StatusCode, Bytes), Lost> {
        let (request, connection) = self.connected(to, Method::POST, path, body, token).await?;
        if leaves_by.is_some_and(|leaves_by| clock::now() > leaves_by) {
            return Err(Lost::NotSent(format!("{to}: the connection came too late")));
        }
        self.whole(to, self.send(to, request, connection).await?).await
    }

    /// Gets a page, and takes it whole.
    pub async fn get(&self, to: &Endpoint, path: &str) -> Result<(StatusCode, Bytes), Lost> {
        let (request, connection) = self.connected(to, Method::GET, path, Bytes::new(), None).await?;
        self.whole(to, self.send(to, request, connection).await?).await
    }

    async fn whole(
        &self,
        to: &Endpoint,
        (response, connection): (Response<Incoming>, Connection),
    ) -> Result<(StatusCode, Bytes), Lost> {
        let status = response.status();
        let whole = timeout(self.answer_timeout, Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect());
        let whole = whole.await;
        drop(connection);
        match whole {
            Ok(Ok(whole)) => Ok((status, whole.to_bytes())),
            Ok(Err(error)) => Err(Lost::Sent(format!("{to}: the answer broke off: {error}"))),
            Err(_) => Err(Lost::Sent(format!("{to}: the answer did not end within {:?}", self.answer_timeout))),
        }
    }

    /// Posts JSON whose answer goes on and on, if its status is 200.
    pub async fn stream(
        &self,
        to: &Endpoint,
        path: &str,
        body: Bytes,
        token: Option<&str>,
    ) -> Result<(StatusCode, Stream), Lost> {
        let (request, connection) = self.connected(to, Method::POST, path, body, token).await?;
        let (response, connection) = self.send(to, request, connection).await?;
        Ok((response.status(), Stream { body: response.into_body(), _connection: connection }))
    }

    /// A request, and a connection on which it can leave.
    async fn connected(
        &self,
        to: &Endpoint,
        method: Method,
        path: &str,
        body: Bytes,
        token: Option<&str>,
    ) -> Result<(Request<Full<Bytes>>, Connection), Lost> {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("host", to.authority()).header("content-type", "application/json");
        let request = match token {
            Some(token) => request.header("authorization", token),
            None => request,
        };
        let request = request.body(Full::new(body)).map_err(|error| Lost::NotSent(format!("{to}: {error}")))?;
        match timeout(self.connect_timeout, self.connect(to)).await {
            Ok(Ok(connection)) => Ok((request, connection)),
            Ok(Err(error)) => Err(Lost::NotSent(format!("{to}: {error:#}"))),
            Err(_) => Err(Lost::NotSent(format!("{to}: no connection within {:?}", self.connect_timeout))),
        }
    }

    async fn send(
        &self,
        to: &Endpoint,
        request: Request<Full<Bytes>>,
        mut connection: Connection,
    ) -> Result<(Response<Incoming>, Connection), Lost> {
        match timeout(self.answer_timeout, connection.sender.send_request(request)).await {
            Ok(Ok(response)) => Ok((response, connection)),
            Ok(Err(error)) => Err(Lost::Sent(format!("{to}: the connection was lost: {error}"))),
            Err(_) => Err(Lost::Sent(format!("{to}: no answer within {:?}", self.answer_timeout))),
        }
    }

    async fn connect(&self, to: &Endpoint) -> Result<Connection> {
        let tcp = TcpStream::connect((to.host.as_str(), to.port)).await.context("cannot connect")?;
        tcp.set_nodelay(true).context("cannot set up the socket")?;
        if !to.tls {
            return handshake(tcp).await;
        }
        let connector = self.tls.as_ref().context("TLS is asked for, and no authority is given")?;
        let name = ServerName::try_from(to.host.clone()).context("its name cannot be in a certificate")?;
        handshake(connector.connect(name, tcp).await.context("TLS fails")?).await
    }
}

async fn handshake(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Connection> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.context("HTTP fails")?;
    // Its errors come out of the request as well.
    let task = tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(Connection { sender, task })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    #[test]
    fn what_is_too_late_once_it_is_connected_never_leaves() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let to = Endpoint::parse(&format!("http://{}", server.local_addr().unwrap())).unwrap();
            let client = Client::new(None, Duration::from_secs(5), Duration::from_millis(300)).unwrap();
            let arrives = async |leaves_by: Instant| {
                let posted = client.post(&to, "/", "{}".into(), None, Some(leaves_by));
                let arrived = async {
                    let (mut connection, _) = server.accept().await.unwrap();
                    let mut all = Vec::new();
                    connection.read_to_end(&mut all).await.unwrap();
                    all.len()
                };
                tokio::join!(posted, arrived)
            };
            let (late, arrived) = arrives(Instant(clock::now().0 - 1)).await;
            assert!(matches!(late, Err(Lost::NotSent(_))), "{late:?}");
            assert_eq!(arrived, 0);
            let (in_time, arrived) = arrives(Instant(u64::MAX)).await;
            assert!(matches!(in_time, Err(Lost::Sent(_))) && arrived > 0, "{in_time:?}");
        });
    }

    #[test]
    fn endpoints_are_read_or_refused() {
        for text in ["http://a:2379", "https://10.0.0.1:2379", "http://[fd00::1]:2379"] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["a:2379", "http://a", "ftp://a:1", "http://a:1/v3", "http://u@a:1", "http://:1", "", "http://a:1?x"]
        {
            let error = Endpoint::parse(text).expect_err(text).to_string();
            assert!(error.contains("http://HOST:PORT"), "{error}");
        }
    }
}
