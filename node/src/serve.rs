//! `forebay serve`: brings a node up, tells what it did, waits for the signal to stop, and takes it down in order.
//!
//! A process that is killed at any point leaves nothing behind that the next start cannot take up: sockets of dead
//! processes are replaced, records and markers are whole, and the logs say the rest.

use crate::allowed::Allowed;
use crate::cluster::control::Cluster;
use crate::cluster::join::Lent;
use crate::datapath::acceptor::{self, AcceptorHandle, ToAcceptor};
use crate::datapath::directory::Directory;
use crate::datapath::shard;
use crate::http::{Bounded, Listed, Listening, Secured, Tokens};
use crate::log;
use crate::node::{Node, Page, Shards, Stopped, ToDestage};
use crate::placement::Placement;
use crate::seconds::Seconds;
use crate::telemetry::Telemetry;
use crate::volume_store::Store;
use crate::{history, http};
use anyhow::{Context, Result, anyhow, bail};
use forebay_api::config::volume::VolumeSpec;
use forebay_api::config::{Config, HttpAddress, HttpTls, NbdAddress, SHARDS_MAX, TlsFiles};
use forebay_api::events::{EventKind, Happened, Severity};
use forebay_api::paths;
use forebay_api::sentence::Sentence;
use forebay_api::units::{show_seconds, show_size};
use forebay_front::nbd::tls::TlsServer;
use forebay_io::folder::{self, Folder};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_rustls::TlsAcceptor;

/// What a client may cost besides frames: bytes that wait for room, reply heads, its request table, its TLS session, and
/// its socket's buffer of answers.
const CLIENT_BYTES_MAX: u64 = 3 << 20;
/// The process itself: code, stacks, rings, the control plane.
const PROCESS_BYTES_MAX: u64 = 64 << 20;
/// Between two attempts at an address for HTTP that cannot be had.
const HTTP_RETRY: Duration = Duration::from_secs(5);
/// How long the state folder's lock is awaited: a killed daemon gives it back when the kernel has buried it.
const STATE_LOCK_WAIT: Duration = Duration::from_secs(10);

/// Runs the daemon until it is told to stop; true when every image was left as the operator wanted.
pub fn run(config: Config) -> Result<bool> {
    // A client that hangs up is an error of one write, not the end of the daemon.
    // SAFETY: setting a signal's disposition before any other thread exists.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    forebay_io::machine::raise_file_limit();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the control plane")?;
    log::begin(config.node.log_format).context("cannot start the thread that writes the log")?;
    forebay_io::closing::never_block_this_thread().context("cannot start the thread that closes files")?;
    let result = runtime.block_on(serve(config));
    // A thread may still be filling a new tier with zeros: nobody waits for that.
    runtime.shutdown_background();
    // Said here, and not by who has called: whoever ends waits for no reader of standard error.
    let ended = result.unwrap_or_else(|error| {
        log::say!(Error, "{error:#}");
        false
    });
    log::flush();
    Ok(ended)
}

/// Sockets of this daemon, removed on every way out but a kill.
#[derive(Default)]
struct SocketFiles(Vec<PathBuf>);

impl Drop for SocketFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = folder::remove(path);
        }
    }
}

async fn serve(config: Config) -> Result<bool> {
    let mut signals = Signals::new()?;
    let seconds = Seconds::begin().context("cannot make the timer of the control plane")?;
    let state = config.node.state.clone().unwrap_or_else(paths::state_dir);
    let state = std::path::absolute(&state).with_context(|| format!("cannot resolve {}", state.display()))?;
    let store = Store::open(&state)?;
    let _state_lock = lock_state(&state)?;

    let tls = load_tls(&config)?;
    let mut socket_files = SocketFiles::default();
    let nbd = bind_nbd(&config, &mut socket_files)?;
    let (api_path, api_listener) = bind_api(&config, &state)?;
    socket_files.0.push(api_path.clone());
    let http = bind_http(&config)?;
    let http_tls = config.listen.http_tls.as_ref().map(http::load_tls).transpose();
    let http_tls =
        http_tls.context("cannot offer HTTP over TLS; give PEM files by --http-tls-cert and --http-tls-key")?;

    let directory = Arc::new(Directory::default());
    let (shards, threads) = spawn_shards(&config, &store, &directory)?;
    let (handles, placement, acceptor) = (shards.handles.clone(), shards.placement.clone(), shards.acceptor.clone());
    let addresses: Vec<String> = nbd.iter().map(|(address, _)| address.to_string()).collect();
    let besides = PROCESS_BYTES_MAX
        + crate::telemetry::BYTES_MAX
        + u64::from(config.listen.connections_max) * CLIENT_BYTES_MAX * nbd.len() as u64;
    let allowed = Arc::new(Allowed::new(&config, &store)?);
    let node =
        Node::new(store.clone(), directory.clone(), shards, config.node.shm_size, addresses, besides, allowed.clone())
            .context("cannot start the history's thread")?;

    // An answer to whoever looks while a long start is under way.
    let tokens = Tokens::load(&state)?;
    let local = http::router(node.clone(), tokens.clone(), None);
    tokio::spawn(serve_http(api_listener, local));
    if let Some(cluster) = &config.cluster {
        let (shard, acceptor, keys) = (handles[0].clone(), acceptor.clone(), node.keys());
        let lent = Lent { shard, acceptor, placement, keys, directory, allowed };
        join(&node, Cluster::start(&config, cluster, &store, lent), &mut signals).await?;
    }
    let page =
        HttpPage { node: node.clone(), tokens, listed: config.listen.http_tls.as_ref().map(listed), tls: http_tls };
    let at = http.at();
    match http {
        HttpPlace::Nowhere => {}
        HttpPlace::Here(address, listener) => page.open(address, listener),
        HttpPlace::Occupied(address, why) => drop(tokio::spawn(page.open_later(address, why))),
    }

    open_volumes_unless_stopped(&node, &store, &config, &mut signals).await?;
    let_clients_in(&node, &acceptor, nbd, tls, config.listen.connections_max).await;
    // Before anybody is told that it serves, and may ask what happened.
    record_start(node.telemetry());
    announce(&node, &config, &api_path, at).await;
    notify(&[sd_notify::NotifyState::Ready]);
    if let PageAt::Later(address) = at {
        let status = format!("volumes are served; HTTP is not, because {address} cannot be had");
        notify(&[sd_notify::NotifyState::Status(&status)]);
    }
    spawn_watchers(&node, &seconds);

    signals.next().await;
    notify(&[sd_notify::NotifyState::Stopping]);
    node.telemetry().ends();
    let complete = stop(&node, config.node.drain_on_stop, &mut signals).await;
    for thread in threads {
        let _ = thread.join();
    }
    record_stop(node.telemetry(), complete);
    Ok(complete)
}

/// Makes it a node of its cluster, unless it is stopped before.
async fn join(node: &Node, joining: impl Future<Output = Result<Arc<Cluster>>>, signals: &mut Signals) -> Result<()> {
    tokio::select! {
        joined = joining => {
            let cluster = joined?;
            node.telemetry().call_it(cluster.own_name());
            node.set_cluster(cluster);
            Ok(())
        }
        _ = signals.next() => bail!("stopped before the node had joined its cluster; nothing was changed"),
    }
}

async fn let_clients_in(
    node: &Node,
    acceptor: &AcceptorHandle,
    nbd: Vec<(NbdAddress, OwnedFd)>,
    tls: Option<TlsServer>,
    connections_max: u32,
) {
    if let Some(cluster) = node.cluster() {
        cluster.look_first().await;
    }
    // What was said of the start is there before anybody can ask, as far as it can be written. Nobody else waits for that.
    let _ = tokio::task::spawn_blocking(log::flush).await;
    for (address, socket) in nbd {
        let tls = tls.clone().filter(|_| matches!(address, NbdAddress::Tcp(_)));
        acceptor.send(ToAcceptor::Listen { socket, tls, connections_max });
    }
}

/// What looks at the node, its host and its images as long as it serves.
fn spawn_watchers(node: &Arc<Node>, seconds: &Seconds) {
    tokio::spawn(crate::sampler::run(node.clone(), seconds.clone()));
    tokio::spawn(crate::rounds::run(node.doctor().clone(), node.telemetry().clone(), seconds.clone()));
    tokio::spawn(node.clone().keep_markers(seconds.clone()));
    tokio::spawn(node.clone().watch_images(seconds.clone()));
}

/// The threads of the data path, at their places, and what they are joined by.
fn spawn_shards(
    config: &Config,
    store: &Store,
    directory: &Arc<Directory>,
) -> Result<(Shards, Vec<std::thread::JoinHandle<()>>)> {
    let count = shard_count(config.node.shards);
    let placement = Arc::new(Placement::of_this_host(config, store, count));
    for warning in placement.warnings() {
        log::say!(Warning, "{warning}");
    }
    let (mut handles, mut threads, mut io) = (Vec::new(), Vec::new(), None);
    for number in 0..count {
        let (handle, report, thread) = shard::spawn(number, config.node.io, directory.clone(), placement.clone())?;
        io.get_or_insert(report);
        handles.push(handle);
        threads.push(thread);
    }
    let io = io.expect("there is at least one shard");
    directory.set_shards(handles.clone());
    let acceptor = acceptor::spawn(directory.clone()).context("cannot start the accepting thread")?;
    Ok((Shards { handles, io, placement, acceptor }, threads))
}

/// The last event of a history: the daemon was stopped in order.
fn record_stop(telemetry: &Telemetry, complete: bool) {
    let key = if complete { "event.stopped-complete" } else { "event.stopped-incomplete" };
    let stopped = Happened::new(EventKind::DaemonStopped, Severity::Info, Sentence::new(key));
    telemetry.happened(stopped.with("complete", complete));
    telemetry.end();
}

/// A start that finds another event last than that of a stop in order comes after a kill or a crash.
fn record_start(telemetry: &Telemetry) {
    let last = telemetry.last_event();
    let clean = last.as_deref().is_none_or(|kind| kind == EventKind::DaemonStopped.word());
    let (severity, key) = match (clean, last.is_some()) {
        (true, false) => (Severity::Info, "event.started-first"),
        (true, true) => (Severity::Info, "event.started"),
        (false, _) => (Severity::Warning, "event.started-after-crash"),
    };
    let sentence = Sentence::new(key).with("version", env!("CARGO_PKG_VERSION"));
    let started = Happened::new(EventKind::DaemonStarted, severity, sentence);
    telemetry.happened(started.with("clean", clean).with("version", env!("CARGO_PKG_VERSION")));
}

// --- places and sockets ---

fn shard_count(asked: u16) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match asked {
        0 => cores.saturating_sub(1).clamp(1, SHARDS_MAX.into()),
        asked => asked.into(),
    }
}

/// Two daemons on one state folder would write each other's records.
fn lock_state(state: &Path) -> Result<std::fs::File> {
    let path = state.join("lock");
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let lock =
        |wait| forebay_io::lock::await_lock(&file, wait).with_context(|| format!("cannot lock {}", path.display()));
    let mut attempt = lock(Duration::ZERO)?;
    if let forebay_io::LockAttempt::HeldBy(holder) = &attempt {
        log::say!(
            Notice,
            "the state folder {} is in use by {holder}; waiting {} s for its end",
            state.display(),
            STATE_LOCK_WAIT.as_secs()
        );
        attempt = lock(STATE_LOCK_WAIT)?;
    }
    match attempt {
        forebay_io::LockAttempt::Locked => Ok(file),
        forebay_io::LockAttempt::HeldBy(holder) => bail!(
            "the state folder {} is in use by {holder}; stop that daemon, or give this one another folder with --state",
            state.display()
        ),
    }
}

/// With absolute paths: clients that are told of them have other working directories.
fn nbd_addresses(config: &Config) -> Vec<NbdAddress> {
    let absolute = |address: &NbdAddress| match address {
        NbdAddress::Unix(path) => NbdAddress::Unix(std::path::absolute(path).unwrap_or_else(|_| path.clone())),
        NbdAddress::Tcp(text) => NbdAddress::Tcp(text.clone()),
    };
    match config.listen.nbd.as_slice() {
        [] => vec![NbdAddress::Unix(paths::nbd_socket())],
        given => given.iter().map(absolute).collect(),
    }
}

/// A listening unix socket. That of a dead process is replaced; that of a living one is left alone.
fn bind_unix(path: &Path, what: &str, cure: &str) -> Result<UnixListener> {
    let parent = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name =
        path.file_name().with_context(|| format!("cannot make the {what} {}: it has no name", path.display()))?;
    // Where everybody may make a folder of this name, somebody else may have been first.
    let folder = match parent == paths::run_dir() && paths::run_dir_is_among_others() {
        true => Folder::make_private(parent, 0o755),
        false => Folder::make_all(parent, 0o755),
    };
    let folder = folder.with_context(|| format!("cannot make the folder {} for the {what}", parent.display()))?;
    if let Some(is_socket) = folder.is_socket(name).with_context(|| format!("cannot look at {}", path.display()))? {
        if !is_socket {
            bail!("cannot make the {what} {}: there is something else of that name; {cure}", path.display());
        }
        if UnixStream::connect(path).is_ok() {
            bail!("cannot make the {what} {}: another process is listening there; {cure}", path.display());
        }
        folder.remove(name).with_context(|| format!("cannot replace the dead socket {}", path.display()))?;
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot make the {what} {}; {cure}", path.display()))?;
    listener.set_nonblocking(true)?;
    // SAFETY: listening again with a longer queue: 200 clients that connect at once are not turned away.
    unsafe { libc::listen(listener.as_raw_fd(), 1024) };
    Ok(listener)
}

/// In a folder of another user, who may put a link in the socket's place.
fn open_socket_to(path: &Path, mode: u32, group: Option<u32>) -> Result<()> {
    let parent = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let opened = Folder::open(parent)
        .and_then(|folder| folder.open_socket_to(path.file_name().unwrap_or_default(), mode, group));
    opened.with_context(|| format!("cannot set the rights of {}", path.display()))
}

/// Those of the group `forebay` may use the volumes, where there is such a group.
fn open_to_group(path: &Path) -> Result<()> {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let group = groups.lines().find_map(|line| {
        let mut words = line.split(':');
        (words.next() == Some("forebay")).then(|| words.nth(1).and_then(|id| id.parse::<u32>().ok())).flatten()
    });
    open_socket_to(path, 0o660, group)
}

/// The TLS of TCP clients. Without it, whoever reaches the port has the volumes: that is said where it may be a mistake.
fn load_tls(config: &Config) -> Result<Option<TlsServer>> {
    let Some(TlsFiles { cert, key, client_ca }) = &config.listen.nbd_tls else {
        for address in &config.listen.nbd {
            if let NbdAddress::Tcp(text) = address
                && !is_loopback(text)
            {
                log::say!(
                    Warning,
                    "NBD on tcp:{text} is neither encrypted nor protected by a password: whoever \
                     reaches it can read and change every volume; give --tls-cert, --tls-key and --tls-client-ca"
                );
            }
        }
        return Ok(None);
    };
    let tls = TlsServer::load(cert, key, client_ca.as_deref())
        .context("cannot offer TLS to NBD clients; give PEM files by --tls-cert, --tls-key and --tls-client-ca")?;
    if client_ca.is_none() {
        log::say!(
            Warning,
            "NBD over TCP is encrypted, but whoever reaches it can read and change every volume; \
             give --tls-client-ca to let in those with a certificate only"
        );
    }
    Ok(Some(tls))
}

/// False where that is not certain.
fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn bind_nbd(config: &Config, socket_files: &mut SocketFiles) -> Result<Vec<(NbdAddress, OwnedFd)>> {
    let mut listeners = Vec::new();
    for address in nbd_addresses(config) {
        let socket: OwnedFd = match &address {
            NbdAddress::Unix(path) => {
                let listener = bind_unix(path, "NBD socket", "choose another with --nbd unix:PATH")?;
                socket_files.0.push(path.clone());
                open_to_group(path)?;
                listener.into()
            }
            NbdAddress::Tcp(text) => {
                let listener = bind_tcp(text, config.cluster.is_some()).with_context(|| {
                    format!("cannot listen for NBD on tcp:{text}; choose another address with --nbd tcp:HOST:PORT")
                })?;
                listener.set_nonblocking(true)?;
                // SAFETY: as in bind_unix.
                unsafe { libc::listen(listener.as_raw_fd(), 1024) };
                listener.into()
            }
        };
        listeners.push((address, socket));
    }
    Ok(listeners)
}

/// On a node of a cluster also on an address that comes later, with a volume that is reached by it.
fn bind_tcp(text: &str, of_cluster: bool) -> std::io::Result<TcpListener> {
    match TcpListener::bind(text) {
        Err(error) if of_cluster && error.kind() == std::io::ErrorKind::AddrNotAvailable => {
            let address = text.to_socket_addrs()?.next().ok_or(error)?;
            log::say!(
                Notice,
                "{} is not an address of this machine now; clients are let in by it when it is",
                address.ip()
            );
            forebay_io::address::listen_ahead(address)
        }
        bound => bound,
    }
}

/// The API's socket: where it was asked for, or in the usual place, or, when another daemon of this host has that, in
/// the state folder.
fn bind_api(config: &Config, state: &Path) -> Result<(PathBuf, UnixListener)> {
    const CURE: &str = "choose another with --api PATH";
    let bind = |path: &Path| -> Result<UnixListener> {
        let listener = bind_unix(path, "API socket", CURE)?;
        // Everybody may ask; who may change something is decided by their credentials.
        open_socket_to(path, 0o666, None)?;
        Ok(listener)
    };
    if let Some(path) = &config.listen.api {
        return Ok((path.clone(), bind(path)?));
    }
    let usual = paths::api_socket();
    match bind(&usual) {
        Ok(listener) => Ok((usual, listener)),
        Err(error) => {
            let path = state.join("api.sock");
            let listener = bind(&path)?;
            log::say!(Error, "{error:#}; the API is at {} instead", path.display());
            Ok((path, listener))
        }
    }
}

/// Where HTTP is to be had.
enum HttpPlace {
    Nowhere,
    Here(SocketAddr, TcpListener),
    /// The address cannot be had, and why: here as soon as it can.
    Occupied(SocketAddr, std::io::Error),
}

/// Where a browser finds the page, or will find it.
#[derive(Clone, Copy)]
enum PageAt {
    Nowhere,
    Here(SocketAddr),
    Later(SocketAddr),
}

impl HttpPlace {
    fn at(&self) -> PageAt {
        match self {
            HttpPlace::Nowhere => PageAt::Nowhere,
            HttpPlace::Here(address, _) => PageAt::Here(*address),
            HttpPlace::Occupied(address, _) => PageAt::Later(*address),
        }
    }
}

fn listen_http(address: SocketAddr) -> std::io::Result<(SocketAddr, TcpListener)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok((listener.local_addr()?, listener))
}

/// Another process has the address, or its interface is not up yet.
fn may_pass(kind: std::io::ErrorKind) -> bool {
    matches!(kind, std::io::ErrorKind::AddrInUse | std::io::ErrorKind::AddrNotAvailable)
}

/// An address that cannot be had yet keeps no volume of a config file from being served.
fn bind_http(config: &Config) -> Result<HttpPlace> {
    let (address, asked) = match config.listen.http {
        Some(HttpAddress::Off) => return Ok(HttpPlace::Nowhere),
        Some(HttpAddress::At(address)) => (address, true),
        None => (SocketAddr::from(([127, 0, 0, 1], 7070)), false),
    };
    if !address.ip().to_canonical().is_loopback() && config.listen.http_tls.is_none() {
        log::say!(
            Warning,
            "HTTP on {address} is not encrypted: whoever listens on the wire has the token of whoever uses \
             one; give --http-tls-cert and --http-tls-key"
        );
    }
    match listen_http(address) {
        Ok((address, listener)) => Ok(HttpPlace::Here(address, listener)),
        Err(error) if asked && config.is_of_file && may_pass(error.kind()) => {
            log::say!(
                Error,
                "cannot listen for HTTP on {address}: {error}; the volumes are served without, and it is tried again every \
                 {} s. End the process that listens there, bring the interface up, or choose another address in [listen] http",
                HTTP_RETRY.as_secs()
            );
            Ok(HttpPlace::Occupied(address, error))
        }
        Err(error) if asked => Err(error)
            .with_context(|| format!("cannot listen for HTTP on {address}; choose another with --http, or off")),
        Err(error) => {
            log::say!(Error, "no page on http://{address}: {error}; give --http HOST:PORT to have one");
            Ok(HttpPlace::Nowhere)
        }
    }
}

/// What answers on the address for HTTP.
struct HttpPage {
    node: Arc<Node>,
    tokens: Tokens,
    listed: Option<Listed>,
    tls: Option<TlsAcceptor>,
}

impl HttpPage {
    fn open(self, address: SocketAddr, listener: TcpListener) {
        let HttpPage { node, tokens, listed, tls } = self;
        node.set_page(Page::At(page_url(address, listed.is_some())));
        let remote = http::router(node, tokens, Some(Listening { at: address, tls: listed }));
        tokio::spawn(serve_tcp(listener, tls, remote));
    }

    /// Opens it when the address can be had. Only what is said changes with the reason.
    async fn open_later(self, address: SocketAddr, why: std::io::Error) {
        let missing = |why: &std::io::Error| {
            Page::Missing(format!(
                "cannot listen for HTTP on {address}: {why}; it is tried again every {} s",
                HTTP_RETRY.as_secs()
            ))
        };
        let mut told = why.kind();
        self.node.set_page(missing(&why));
        loop {
            tokio::time::sleep(HTTP_RETRY).await;
            match listen_http(address) {
                Ok((address, listener)) => {
                    log::say!(Notice, "HTTP is on {}", page_url(address, self.listed.is_some()));
                    notify(&[sd_notify::NotifyState::Status("HTTP and the volumes are served")]);
                    return self.open(address, listener);
                }
                Err(error) if error.kind() != told => {
                    told = error.kind();
                    self.node.set_page(missing(&error));
                    log::say!(Error, "still cannot listen for HTTP on {address}: {error}; trying again");
                }
                Err(_) => {}
            }
        }
    }
}

/// As a browser on this host takes it.
fn page_url(address: SocketAddr, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    match address.ip().is_unspecified() {
        true => format!("{scheme}://localhost:{}/", address.port()),
        false => format!("{scheme}://{address}/"),
    }
}

fn listed(tls: &HttpTls) -> Listed {
    Listed { admins: tls.admins.clone(), readers: tls.readers.clone() }
}

async fn serve_http(listener: UnixListener, router: axum::Router) {
    match tokio::net::UnixListener::from_std(listener) {
        Ok(listener) => http::serve(http::Shared::new(listener), router).await,
        Err(error) => log::say!(Error, "the API's socket is closed: {error}"),
    }
}

async fn serve_tcp(listener: TcpListener, tls: Option<TlsAcceptor>, router: axum::Router) {
    let serving = async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        match tls {
            Some(acceptor) => http::serve(Secured::new(listener, acceptor)?, router).await,
            None => http::serve(Bounded::new(listener), router).await,
        }
        Ok::<(), std::io::Error>(())
    };
    if let Err(error) = serving.await {
        log::say!(Error, "HTTP is closed: {error}");
    }
}

// --- volumes ---

/// Opens all volumes. A node of a cluster that is told to stop meanwhile may own volumes, and its watchdog may be armed: that ends in
/// order, or the machine would be reset.
async fn open_volumes_unless_stopped(
    node: &Arc<Node>,
    store: &Store,
    config: &Config,
    signals: &mut Signals,
) -> Result<()> {
    let opened = tokio::select! {
        opened = open_volumes(node, store, config) => opened,
        _ = signals.next() => Err(anyhow!("stopped before the volumes were open")),
    };
    if opened.is_err() && node.cluster().is_some() {
        stop(node, config.node.drain_on_stop, signals).await;
    }
    opened
}

/// Opens what the config names, and what else is recorded. Each may fail alone, but for the volume of a command line without a config
/// file: whoever has given that sees at once that nothing is served, and why.
async fn open_volumes(node: &Arc<Node>, store: &Store, config: &Config) -> Result<()> {
    for (i, spec) in config.volume.iter().enumerate() {
        match open_one(node, &spec.name, Some(spec.clone()), i == 0).await {
            Err(error) if config.is_of_file => {
                node.note_failed_of_config(spec, i == 0, &format!("{error:#}"));
                log::say!(
                    Error,
                    about(spec.name),
                    "{error:#}; the other volumes are served. Put that right and start the daemon again"
                );
            }
            opened => opened?,
        }
    }
    for name in store.names()? {
        if config.volume.iter().any(|spec| spec.name == name) {
            continue;
        }
        if let Err(error) = open_one(node, &name, None, false).await {
            log::say!(Error, about(name), "{error:#}; the other volumes are served");
        }
    }
    Ok(())
}

async fn open_one(node: &Arc<Node>, name: &str, spec: Option<VolumeSpec>, default: bool) -> Result<()> {
    let shown = name.to_owned();
    let mut last = 0;
    let progress = move |done: u64, all: u64| {
        if done == all || done >= last + (256 << 20) {
            last = done;
            log::say!(Notice, volume(shown), "preparing its tier, {} of {}", show_size(done), show_size(all));
        }
    };
    match node.open(name, spec, default, progress).await {
        Ok(remarks) => {
            for remark in remarks {
                log::say!(Notice, volume(name), "{remark}");
            }
            Ok(())
        }
        Err(failure) => bail!("{}", failure.message),
    }
}

async fn announce(node: &Node, config: &Config, api: &Path, http: PageAt) {
    let mut out = String::new();
    let mut line = |name: &str, text: String| out.push_str(&format!("{name:<9}{text}\n"));
    let report = node.node_report();
    line("forebay", format!("{} on {}, process {}", report.version, report.host, report.pid));
    line("state", report.state.clone());
    line("io", format!("{} ({}), {} data-path threads", report.io_mode, report.io_why, report.shards));
    for (at, text) in report.placement.lines().into_iter().enumerate() {
        line(if at == 0 { "place" } else { "" }, text);
    }
    line(
        "memory",
        format!(
            "at most {}: {} for the volumes, {} for the process and as many clients as are let in",
            show_size(report.memory_bytes_max),
            show_size(report.memory_bytes_max - node.memory_bytes_besides()),
            show_size(node.memory_bytes_besides())
        ),
    );
    line(
        "history",
        format!(
            "{} for the node, as much for each volume and {} at most on top, of at most {} volumes, in {}",
            show_size(forebay_api::history::format::FILE_BYTES),
            show_size(2 * history::album::FILE_BYTES_MAX),
            history::writer::FILES_MAX - 1,
            node.telemetry().history_dir().display()
        ),
    );
    for v in node.reports().await {
        let policy = match v.policy.requested {
            forebay_api::config::PolicyName::Through => "write-through",
            forebay_api::config::PolicyName::Back => "write-back",
        };
        let kind = v.tier.kind.word();
        line("volume", format!("{} of {}, {policy}, {}", v.name, show_size(v.size_bytes), v.phase));
        line("", format!("backing {} ({})", v.backing.spec, v.backing.access));
        line("", format!("{kind} tier {} of {}, term {}", v.tier.path, show_size(v.tier.size_bytes), v.term));
        if let Some(problem) = v.problem {
            line("", problem);
        }
    }
    line("api", api.display().to_string());
    if let PageAt::Later(address) = http {
        line("page", format!("none while {address} cannot be had; tried again every {} s", HTTP_RETRY.as_secs()));
    }
    if let PageAt::Here(address) = http {
        // Never the token itself: these lines go to the system's log, which others read.
        let page = page_url(address, config.listen.http_tls.is_some());
        let token = Path::new(&report.state).join("token");
        line(
            "page",
            format!("{page}  (changes need the token in {}; `forebay dashboard` shows a link)", token.display()),
        );
        if let Some(tls) = config.listen.http_tls.as_ref().filter(|tls| tls.client_ca.is_some()) {
            line("", http::certificates_give(&listed(tls)));
        }
    }
    let name = config.volume.first().map_or("NAME", |v| v.name.as_str());
    for address in nbd_addresses(config) {
        let tls = config.listen.nbd_tls.is_some() && matches!(address, NbdAddress::Tcp(_));
        line("nbd", format!("{address}{}", if tls { " (TLS only)" } else { "" }));
        line("qemu", qemu_line(&address, name, tls));
    }
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(out.as_bytes());
    let _ = stdout.flush();
}

/// What makes a QEMU use the default volume; its folder of certificates is the user's to name.
fn qemu_line(address: &NbdAddress, export: &str, tls: bool) -> String {
    let server = match address {
        NbdAddress::Unix(path) => format!("server.type=unix,server.path={}", path.display()),
        NbdAddress::Tcp(text) => {
            let (host, port) = text.rsplit_once(':').expect("checked when it was parsed");
            let host = host.trim_start_matches('[').trim_end_matches(']');
            format!("server.type=inet,server.host={host},server.port={port}")
        }
    };
    let (object, credentials) =
        if tls { ("-object tls-creds-x509,id=tls0,endpoint=client,dir=FOLDER ", ",tls-creds=tls0") } else { ("", "") };
    format!(
        "{object}-drive driver=nbd,{server}{credentials},export={export},reconnect-delay=60,if=virtio,cache=none,discard=unmap"
    )
}

// --- the end ---

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn stop(node: &Arc<Node>, drain: bool, signals: &mut Signals) -> bool {
    log::say!(
        Notice,
        "stopping{}",
        if drain { ", destaging what is in the tiers; a second signal stops at once" } else { "" }
    );
    let progress = {
        let node = node.clone();
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(1));
            ticks.tick().await;
            loop {
                ticks.tick().await;
                let ToDestage { bytes, seconds, await_fences } = node.to_destage().await;
                let mut text = format!("{} to destage", show_size(bytes));
                if seconds > 0.0 {
                    text += &format!(", about {} left", show_seconds(seconds));
                }
                if !await_fences.is_empty() {
                    let names = await_fences.join(", ");
                    text += &format!("; nothing of {names} is, before its former owners are fenced");
                }
                log::say_progress(module_path!(), format_args!("{text}"));
                notify(&[sd_notify::NotifyState::ExtendTimeoutUsec(30_000_000)]);
            }
        })
    };
    let Stopped { incomplete, displaced } = tokio::select! {
        stopped = node.stop(drain) => stopped,
        _ = signals.next() => {
            log::say!(
                Notice,
                "stopped at once; the images are incomplete by themselves until the volumes are served again: \
                 acknowledged writes are in the tiers"
            );
            log::flush();
            std::process::exit(1);
        }
    };
    progress.abort();
    for what in &incomplete {
        log::say!(Notice, "{what}; its image is incomplete by itself until the volume is served again");
    }
    for what in &displaced {
        log::say!(Notice, "{what} (the daemon ends now, with what was not destaged left in the tier)");
    }
    if incomplete.is_empty() && displaced.is_empty() {
        log::say!(Notice, "stopped; every image is complete");
    }
    displaced.is_empty() && (incomplete.is_empty() || !drain)
}

fn notify(states: &[sd_notify::NotifyState<'_>]) {
    // Without systemd there is nobody to tell.
    let _ = sd_notify::notify(states);
}
