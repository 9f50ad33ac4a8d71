//! A RAM-backed NBD server built from `forebay-front` alone: one thread, one poll loop.
//!
//! It shows how a shard drives connections, real clients are tested against it, and benchmarks put it beside a volume
//! as the batched server that does nothing.
//!
//! ```text
//! nbd-memory unix:PATH|tcp:HOST:PORT SIZE_MIB [--read-only] [--check]
//! ```

use forebay_core::types::Instant;
use forebay_front::memory::MemoryVolume;
use forebay_front::nbd::connection::{Connection, STALL_MAX, Scratch, WaitsFor, drop_reply};
use forebay_front::nbd::greeter::{Greeter, Greeting};
use forebay_front::nbd::handshake::{ExportInfo, HANDSHAKE_MAX};
use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

/// Clients at one time; further ones wait in the listener's queue.
const CLIENTS_MAX: usize = 1024;
/// Frames besides the volume's content: what a few clients may have in flight.
const SPARE_FRAMES: usize = 32 << 10;

/// Where clients come in.
pub enum Listener {
    /// At a unix socket, from this host only.
    Unix(UnixListener),
    /// Over the network.
    Tcp(TcpListener),
}

impl Listener {
    /// Listens on `unix:PATH` or `tcp:HOST:PORT`.
    pub fn bind(address: &str) -> std::io::Result<Listener> {
        let listener = match address.split_once(':') {
            Some(("unix", path)) => {
                let _ = std::fs::remove_file(path);
                Listener::Unix(UnixListener::bind(path)?)
            }
            Some(("tcp", address)) => Listener::Tcp(TcpListener::bind(address)?),
            Some(_) | None => return Err(std::io::Error::other("the address is unix:PATH or tcp:HOST:PORT")),
        };
        match &listener {
            Listener::Unix(socket) => socket.set_nonblocking(true)?,
            Listener::Tcp(socket) => socket.set_nonblocking(true)?,
        }
        Ok(listener)
    }
    fn fd(&self) -> RawFd {
        match self {
            Listener::Unix(socket) => socket.as_raw_fd(),
            Listener::Tcp(socket) => socket.as_raw_fd(),
        }
    }
    fn accept(&self) -> std::io::Result<OwnedFd> {
        match self {
            Listener::Unix(socket) => {
                let (client, _) = socket.accept()?;
                client.set_nonblocking(true)?;
                Ok(client.into())
            }
            Listener::Tcp(socket) => {
                let (client, _) = socket.accept()?;
                client.set_nonblocking(true)?;
                client.set_nodelay(true)?;
                Ok(client.into())
            }
        }
    }
}

enum Client {
    Greeting { greeter: Greeter, writable: bool },
    Serving(Box<Connection>),
}

impl Client {
    /// It has something to do without its socket.
    fn wants_turn(&self) -> bool {
        match self {
            Client::Greeting { .. } => false,
            Client::Serving(connection) => matches!(connection.waits_for(), WaitsFor::Turn | WaitsFor::Frames),
        }
    }

    fn to_poll(&self) -> libc::pollfd {
        let (fd, events) = match self {
            Client::Greeting { greeter, writable } => {
                (greeter.socket().as_raw_fd(), if *writable { libc::POLLOUT } else { libc::POLLIN })
            }
            Client::Serving(connection) => {
                let mut events = if connection.waits_for() == WaitsFor::Readable { libc::POLLIN } else { 0 };
                if connection.has_unsent() {
                    events |= libc::POLLOUT;
                }
                (connection.socket().as_raw_fd(), events)
            }
        };
        libc::pollfd { fd, events, revents: 0 }
    }

    /// Does what its socket is ready for; none where it has ended in its greeting.
    fn go_on(
        self,
        number: u32,
        revents: i16,
        exports: &ExportInfo,
        volume: &mut MemoryVolume,
        scratch: &mut Scratch,
        now: Instant,
    ) -> Option<Client> {
        let mut connection = match self {
            Client::Greeting { greeter, .. } if now - greeter.since() > HANDSHAKE_MAX => return None,
            Client::Greeting { greeter, writable } if revents == 0 => {
                return Some(Client::Greeting { greeter, writable });
            }
            Client::Greeting { greeter, .. } => {
                return match greeter.advance(exports) {
                    Greeting::AwaitsExport(_) => unreachable!("the export is there from the start"),
                    Greeting::WaitsReadable(greeter) => Some(Client::Greeting { greeter, writable: false }),
                    Greeting::WaitsWritable(greeter) => Some(Client::Greeting { greeter, writable: true }),
                    Greeting::Ready(channel, negotiated) => {
                        Some(Client::Serving(Box::new(Connection::new(channel, number, *negotiated, now))))
                    }
                    Greeting::Closed(_) => None,
                };
            }
            Client::Serving(connection) => connection,
        };
        let ready = match connection.waits_for() {
            WaitsFor::Readable => revents & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) != 0,
            WaitsFor::Turn | WaitsFor::Frames => true,
            WaitsFor::Replies | WaitsFor::Nothing => false,
        };
        if ready {
            connection.receive(volume, scratch, now);
        } else if revents & (libc::POLLHUP | libc::POLLERR) != 0 {
            connection.close(volume);
        }
        if connection.stalled_since().is_some_and(|since| now - since > STALL_MAX) {
            connection.close(volume);
        }
        Some(Client::Serving(connection))
    }
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(address), Some(Ok(mib))) = (arguments.first(), arguments.get(1).map(|mib| mib.parse::<u64>())) else {
        eprintln!("usage: nbd-memory unix:PATH|tcp:HOST:PORT SIZE_MIB [--read-only] [--check]");
        std::process::exit(2);
    };
    let given = |option: &str| arguments.iter().any(|argument| argument == option);
    let listener = Listener::bind(address)?;
    eprintln!("serving {mib} MiB on {address}");
    serve(listener, mib << 20, given("--read-only"), given("--check"))
}

/// Serves until the process ends.
pub fn serve(listener: Listener, size_bytes: u64, read_only: bool, check: bool) -> std::io::Result<()> {
    let description = "memory, nothing behind it".into();
    let exports = ExportInfo { name: "memory".into(), size_bytes, description, read_only, request_bytes_max: 32 << 20 };
    let mut volume = MemoryVolume::new(size_bytes, SPARE_FRAMES)?;
    if check {
        volume.check_payloads();
    }
    let mut scratch = Scratch::default();
    let mut clients: HashMap<u32, Client> = HashMap::new();
    let mut answers = Vec::new();
    let mut numbers = 0;
    let start = std::time::Instant::now();

    let mut polled: Vec<libc::pollfd> = Vec::new();
    let mut owners: Vec<u32> = Vec::new();
    loop {
        polled.clear();
        owners.clear();
        let accepting = if clients.len() < CLIENTS_MAX { libc::POLLIN } else { 0 };
        polled.push(libc::pollfd { fd: listener.fd(), events: accepting, revents: 0 });
        let mut idle = true;
        for (&number, client) in &clients {
            idle &= !client.wants_turn();
            owners.push(number);
            polled.push(client.to_poll());
        }
        let timeout_ms = if idle { 1000 } else { 0 };
        // SAFETY: the list lives through the call and its length is its own.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms) };
        let now = Instant(start.elapsed().as_nanos() as u64);

        if polled[0].revents != 0 {
            while let Ok(socket) = listener.accept() {
                numbers += 1;
                let greeter = Greeter::new(socket, None, now);
                clients.insert(numbers, Client::Greeting { greeter, writable: true });
                if clients.len() >= CLIENTS_MAX {
                    break;
                }
            }
        }
        for (&number, polled) in owners.iter().zip(&polled[1..]) {
            let Some(client) = clients.remove(&number) else { continue };
            if let Some(client) = client.go_on(number, polled.revents, &exports, &mut volume, &mut scratch, now) {
                clients.insert(number, client);
            }
        }
        volume.take_answers(&mut answers);
        for (id, result) in answers.drain(..) {
            match clients.get_mut(&Connection::number_of(id)) {
                Some(Client::Serving(connection)) => connection.reply(&mut volume, id, result),
                Some(Client::Greeting { .. }) | None => drop_reply(&mut volume, result),
            }
        }
        for client in clients.values_mut() {
            if let Client::Serving(connection) = client {
                connection.flush_replies(&mut volume, &mut scratch, now);
            }
        }
        clients.retain(|_, client| match client {
            Client::Serving(connection) => connection.closed().is_none(),
            Client::Greeting { .. } => true,
        });
    }
}
