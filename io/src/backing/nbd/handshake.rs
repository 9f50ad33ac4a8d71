//! Connecting to an NBD server and agreeing on an export: fixed newstyle, GO with the block-size constraints.
//!
//! Everything here blocks, within a deadline, on a thread that may: that of the opening, or the one that connects
//! anew. The socket comes out non-blocking. A TCP connection ends by a reset, whoever closes it and also where its process is killed: what
//! was not sent yet, or not acknowledged, is not sent any more. Else it would go on arriving for as long as the kernel sends it again,
//! after what a later connection writes.

use super::uri::{NbdUri, Server};
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};
use std::io::{self, Read};
use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

/// A server that has not let us in by then is not there.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// A server may have much in its cache.
pub const FLUSH_DEADLINE: Duration = Duration::from_secs(60);
/// Payload of one request where the server names no limit: what every server takes, says the protocol.
const REQUEST_BYTES_DEFAULT: u32 = 32 << 20;
/// Zeros asked for by one request where the server names no limit.
const ZERO_BYTES_DEFAULT: u32 = 1 << 30;
/// A peer that says nothing is asked for a sign of life after so long and every so often: three times within
/// [`super::silence::SILENCE_MAX`].
const KEEPALIVE_IDLE: Duration = Duration::from_secs(3);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// How often it is asked before it is gone, where the time below does not say so first.
const KEEPALIVE_RETRIES: u32 = 11;
/// Bytes sent that nobody acknowledges, probes that nobody answers, and a server that takes nothing while there is something to be sent, end
/// the connection after this time.
const USER_TIMEOUT: Duration = Duration::from_secs(25);

const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943; // "NBDMAGIC"
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054; // "IHAVEOPT"
const OLDSTYLE_MAGIC: u64 = 0x0000_4202_8186_1253;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
const FLAG_FIXED_NEWSTYLE: u16 = 1;
const FLAG_NO_ZEROES: u16 = 2;
const OPTION_GO: u32 = 7;
const INFO_EXPORT: u16 = 0;
const INFO_BLOCK_SIZE: u16 = 3;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_ERROR: u32 = 1 << 31;
const EXPORT_HAS_FLAGS: u16 = 1;
const EXPORT_READ_ONLY: u16 = 1 << 1;
const EXPORT_FLUSH: u16 = 1 << 2;
const EXPORT_WRITE_ZEROES: u16 = 1 << 6;
const EXPORT_CAN_MULTI_CONN: u16 = 1 << 8;
/// An honest server sends a handful of replies, none of them long.
const REPLIES_MAX: usize = 64;
const REPLY_BYTES_MAX: u32 = 64 << 10;

/// What a server says of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// Size of the export in bytes.
    pub size: u64,
    /// The server can flush: without that nothing is known to be durable.
    pub flush: bool,
    /// The server can write zeros that no payload brings.
    pub zero: bool,
    /// What one connection was told is done, all connections see: the server's cache is one for all of them.
    pub one_cache: bool,
    /// Offsets and lengths are multiples of this: 512 to 4096.
    pub align: u32,
    /// Largest payload of a request, a multiple of `align`.
    pub request_bytes_max: u32,
    /// Most zeros of a request, a multiple of `align`.
    pub zero_bytes_max: u32,
}

fn wrong(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

/// The two directions of a connection, as far as agreeing on an export needs them: what a server says is judged by
/// [`negotiate`] and nothing else, wherever it comes from.
pub trait Wire {
    /// The next bytes that the server says; an error where it says no more.
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()>;
    /// Says something to the server.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// The next few bytes.
    fn read<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }
}

/// Reading and writing until a point in time.
struct Timed {
    socket: Socket,
    /// From which moment, and for how long.
    since: Instant,
    limit: Duration,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        let left = self.limit.saturating_sub(self.since.elapsed());
        if left.is_zero() { Err(self.late()) } else { Ok(left) }
    }

    fn late(&self) -> io::Error {
        let limit = self.limit.as_secs();
        io::Error::new(io::ErrorKind::TimedOut, format!("the server did not answer within {limit} s"))
    }
}

impl Wire for Timed {
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            self.socket.set_read_timeout(Some(self.left()?))?;
            match self.socket.read(&mut bytes[at..]) {
                Ok(0) => {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"));
                }
                Ok(count) => at += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(self.late()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            self.socket.set_write_timeout(Some(self.left()?))?;
            // MSG_NOSIGNAL: a program that did not ignore SIGPIPE must not die of a server that hangs up.
            match self.socket.send_with_flags(&bytes[at..], libc::MSG_NOSIGNAL) {
                Ok(count) => at += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(self.late()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A connection that has chosen its export and carries no request.
#[derive(Debug)]
pub struct Connected {
    /// The socket, non-blocking from now on.
    pub socket: Socket,
    /// What the server says of the export.
    pub export: Export,
}

/// Connects and chooses the export, within [`DEADLINE`] (a name's resolution comes on top).
pub fn connect(uri: &NbdUri) -> io::Result<Connected> {
    let addresses = addresses(&uri.server)?;
    let since = Instant::now();
    let mut timed = Timed { socket: reach(&addresses, since + DEADLINE)?, since, limit: DEADLINE };
    let export = negotiate(&mut timed, uri)?;
    timed.socket.set_nonblocking(true)?;
    Ok(Connected { socket: timed.socket, export })
}

fn addresses(server: &Server) -> io::Result<Vec<SockAddr>> {
    match server {
        Server::Unix(path) => Ok(vec![SockAddr::unix(path)?]),
        Server::Tcp { host, port } => Ok((host.as_str(), *port).to_socket_addrs()?.map(SockAddr::from).collect()),
    }
}

fn reach(addresses: &[SockAddr], deadline: Instant) -> io::Result<Socket> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host's name has no address");
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let socket = Socket::new(address.domain(), Type::STREAM, None)?;
        match socket.connect_timeout(address, left) {
            Ok(()) => {
                if address.domain() != Domain::UNIX {
                    tune(&socket)?;
                }
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn tune(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE_IDLE)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_RETRIES),
    )?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.set_linger(Some(Duration::ZERO))
}

/// Chooses the export. Whatever the server says, what is kept of it is bounded, and an export that is taken has limits
/// that requests can be cut to.
pub fn negotiate(timed: &mut impl Wire, uri: &NbdUri) -> io::Result<Export> {
    if u64::from_be_bytes(timed.read()?) != INIT_MAGIC {
        return Err(wrong("what listens there is no NBD server"));
    }
    match u64::from_be_bytes(timed.read()?) {
        OPTION_MAGIC => {}
        OLDSTYLE_MAGIC => return Err(wrong("the server speaks oldstyle NBD; start it in newstyle mode")),
        other => return Err(wrong(format!("the server's greeting {other:#018x} is not of the NBD protocol"))),
    }
    let flags = u16::from_be_bytes(timed.read()?);
    if flags & FLAG_FIXED_NEWSTYLE == 0 {
        return Err(wrong("the server does not speak fixed newstyle NBD; use a newer one"));
    }
    let name = uri.export.as_bytes();
    let mut hello = Vec::with_capacity(32 + name.len());
    hello.extend(u32::from(flags & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES)).to_be_bytes());
    hello.extend(OPTION_MAGIC.to_be_bytes());
    hello.extend(OPTION_GO.to_be_bytes());
    hello.extend((4 + name.len() as u32 + 2 + 2).to_be_bytes());
    hello.extend((name.len() as u32).to_be_bytes());
    hello.extend(name);
    hello.extend(1u16.to_be_bytes());
    hello.extend(INFO_BLOCK_SIZE.to_be_bytes());
    timed.write(&hello)?;

    let (mut found, mut sizes) = (None, None);
    for _ in 0..REPLIES_MAX {
        if u64::from_be_bytes(timed.read()?) != REPLY_MAGIC || u32::from_be_bytes(timed.read()?) != OPTION_GO {
            return Err(wrong("the server's answer is not that to the option that was sent"));
        }
        let (kind, length) = (u32::from_be_bytes(timed.read()?), u32::from_be_bytes(timed.read()?));
        if length > REPLY_BYTES_MAX {
            return Err(wrong(format!("the server's answer is {length} bytes long")));
        }
        let mut data = vec![0; length as usize];
        timed.fill(&mut data)?;
        if kind & REPLY_ERROR != 0 {
            return Err(refusal(kind, &data, uri));
        }
        match kind {
            REPLY_ACK => {
                let (size, flags) = found.ok_or_else(|| wrong("the server did not tell the export's size"))?;
                let export = judge(size, flags, sizes, uri);
                if export.is_err() {
                    // In transmission the way to hang up is a request. The server may be gone already.
                    let _ = timed.write(&super::disconnect_request());
                }
                return export;
            }
            REPLY_INFO => match (data.get(..2).map(|b| u16::from_be_bytes([b[0], b[1]])), &data[..]) {
                (Some(INFO_EXPORT), [_, _, s @ .., f1, f0]) if s.len() == 8 => {
                    let size = u64::from_be_bytes(s.try_into().expect("eight bytes"));
                    found = Some((size, u16::from_be_bytes([*f1, *f0])));
                }
                (Some(INFO_BLOCK_SIZE), [_, _, rest @ ..]) if rest.len() == 12 => {
                    let word = |i: usize| u32::from_be_bytes(rest[4 * i..4 * i + 4].try_into().expect("four bytes"));
                    sizes = Some((word(0), word(2)));
                }
                (Some(INFO_EXPORT | INFO_BLOCK_SIZE) | None, _) => {
                    return Err(wrong("the server's description of the export is malformed"));
                }
                (Some(_), _) => {} // names and descriptions are for people
            },
            other => return Err(wrong(format!("the server's answer is of the unknown kind {other}"))),
        }
    }
    Err(wrong("the server does not come to an end with its answers"))
}

fn refusal(kind: u32, data: &[u8], uri: &NbdUri) -> io::Error {
    let said = String::from_utf8_lossy(data);
    let said = if said.trim().is_empty() { String::new() } else { format!(" (it says: {})", said.trim()) };
    let name = &uri.export;
    let reason = match kind & !REPLY_ERROR {
        1 => "it does not know NBD_OPT_GO; use a newer one".to_owned(),
        2 => "its policy forbids it; allow this host there".to_owned(),
        5 => {
            "it demands TLS, and a backing is reached without; serve it on a unix socket or through a tunnel".to_owned()
        }
        6 => format!("it has no export {name:?}; `nbdinfo --list` shows those it has"),
        7 => "it is shutting down".to_owned(),
        8 => "it demands block sizes that were agreed on and refuses them".to_owned(),
        other => format!("error {other}"),
    };
    let kind = if kind & !REPLY_ERROR == 6 { io::ErrorKind::NotFound } else { io::ErrorKind::Other };
    io::Error::new(kind, format!("the server refuses the export: {reason}{said}"))
}

/// Whether a volume can live on such an export.
fn judge(size: u64, flags: u16, sizes: Option<(u32, u32)>, uri: &NbdUri) -> io::Result<Export> {
    let refuse = |reason: String| Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    if flags & EXPORT_HAS_FLAGS == 0 {
        return refuse("the server does not say what the export can do; use a newer one".into());
    }
    if flags & EXPORT_READ_ONLY != 0 {
        return refuse("the export is read-only; export it writable".into());
    }
    let flush = flags & EXPORT_FLUSH != 0;
    if !flush && !uri.no_flush_ok {
        return refuse(
            "the export cannot flush, so nothing in it is ever known to be durable; use another server or plugin, or \
             accept that with the parameter nbd_no_flush_ok=1"
                .into(),
        );
    }
    // Without the information: any server takes 512 bytes and 32 MiB.
    let (least, most) = sizes.unwrap_or((512, REQUEST_BYTES_DEFAULT));
    if least > 4096 {
        return refuse(format!(
            "the export takes requests in units of {least} bytes, and a volume writes 4096; put `--filter=blocksize` in \
             front of it (nbdkit)"
        ));
    }
    if !least.is_power_of_two() {
        return Err(wrong(format!("the export's least block size of {least} bytes is not a power of two")));
    }
    let align = least.max(512);
    let bounded = |limit: u32| most.min(limit) / align * align;
    let request_bytes_max = bounded(REQUEST_BYTES_DEFAULT);
    let zero_bytes_max = bounded(ZERO_BYTES_DEFAULT);
    if request_bytes_max == 0 {
        return Err(wrong(format!("the export's largest request of {most} bytes is less than {align} bytes")));
    }
    let (zero, one_cache) = (flags & EXPORT_WRITE_ZEROES != 0, flags & EXPORT_CAN_MULTI_CONN != 0);
    Ok(Export { size, flush, zero, one_cache, align, request_bytes_max, zero_bytes_max })
}

/// Whether what is found there again can be the same export: nothing that core relies on may have got worse.
pub(super) fn same(before: &Export, connected: Connected) -> io::Result<Connected> {
    let now = &connected.export;
    let worse = if now.size < before.size {
        format!("the export has shrunk from {} to {} bytes", before.size, now.size)
    } else if now.align > before.align {
        format!("the export's least block size has grown from {} to {} bytes", before.align, now.align)
    } else if before.flush && !now.flush {
        "the export cannot flush any more".to_owned()
    } else {
        return Ok(connected);
    };
    Err(wrong(format!("{worse}; put the right one back")))
}

/// A connection with nothing under way, to ask for one thing after the other and wait.
struct Asking {
    timed: Timed,
}

impl Asking {
    fn begin(connected: &Connected, limit: Duration) -> io::Result<Asking> {
        let timed = Timed { socket: connected.socket.try_clone()?, since: Instant::now(), limit };
        timed.socket.set_nonblocking(false)?;
        Ok(Asking { timed })
    }

    /// Without the data that may follow the answer.
    fn ask(&mut self, command: u16, offset: u64, length: u32) -> io::Result<()> {
        self.timed.write(&super::request(command, 0, 0, offset, length))?;
        if u32::from_be_bytes(self.timed.read()?) != SIMPLE_REPLY_MAGIC {
            return Err(wrong("the server's reply is not of the NBD protocol"));
        }
        let error = u32::from_be_bytes(self.timed.read()?);
        self.timed.read::<8>()?;
        if error == 0 { Ok(()) } else { Err(super::errno_of(error)) }
    }

    fn end(self) -> io::Result<()> {
        self.timed.socket.set_nonblocking(true)
    }
}

/// Reads bytes from the start of an export, for a look at what it holds, with nothing else under way. Short exports
/// leave zeros.
pub fn read_head(connected: &Connected, head: &mut [u8]) -> io::Result<()> {
    let mut asking = Asking::begin(connected, DEADLINE)?;
    let align = u64::from(connected.export.align);
    let bytes = (connected.export.size / align * align).min(head.len() as u64) as usize;
    for (i, piece) in head[..bytes].chunks_mut(connected.export.request_bytes_max as usize).enumerate() {
        let offset = i as u64 * u64::from(connected.export.request_bytes_max);
        asking.ask(super::READ, offset, piece.len() as u32)?;
        asking.timed.fill(piece)?;
    }
    asking.end()
}

/// Has a flush answered, with nothing else under way: what the server has told earlier connections that it has written is durable
/// then. Nothing to do where the export cannot flush. Within [`FLUSH_DEADLINE`].
pub fn flush(connected: &Connected) -> io::Result<()> {
    if !connected.export.flush {
        return Ok(());
    }
    let mut asking = Asking::begin(connected, FLUSH_DEADLINE)?;
    asking.ask(super::FLUSH, 0, 0)?;
    asking.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    const GOOD: u16 = EXPORT_HAS_FLAGS | EXPORT_FLUSH | EXPORT_WRITE_ZEROES;

    fn uri(parameters: &str) -> NbdUri {
        NbdUri::parse(&format!("nbd://h/x{parameters}")).unwrap()
    }

    #[test]
    fn limits_of_a_server_are_kept_and_impossible_ones_refused() {
        let export = judge(1 << 20, GOOD, Some((1, u32::MAX)), &uri("")).unwrap();
        assert_eq!((export.align, export.request_bytes_max, export.zero_bytes_max), (512, 32 << 20, 1 << 30));
        let export = judge(1 << 20, GOOD, Some((4096, 65536)), &uri("")).unwrap();
        assert_eq!((export.align, export.request_bytes_max, export.zero_bytes_max), (4096, 65536, 65536));
        let export = judge(1 << 20, GOOD, None, &uri("")).unwrap();
        assert_eq!((export.align, export.request_bytes_max, export.zero_bytes_max), (512, 32 << 20, 32 << 20));
        let refused = |flags, sizes, parameters, expected: &str| {
            let error = judge(1 << 20, flags, sizes, &uri(parameters)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        refused(GOOD | EXPORT_READ_ONLY, None, "", "read-only");
        refused(EXPORT_HAS_FLAGS, None, "", "nbd_no_flush_ok=1");
        refused(0, None, "", "does not say");
        refused(GOOD, Some((8192, 1 << 20)), "", "--filter=blocksize");
        refused(GOOD, Some((768, 1 << 20)), "", "power of two");
        refused(GOOD, Some((512, 100)), "", "less than 512");
        assert!(!judge(1 << 20, EXPORT_HAS_FLAGS, None, &uri("?nbd_no_flush_ok=1")).unwrap().flush);
    }

    /// A server that says these bytes at once and then waits.
    fn against(bytes: Vec<u8>) -> io::Error {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            // It may have been hung up on already.
            let _ = socket.write_all(&bytes);
            let _ = io::copy(&mut socket, &mut io::sink());
        });
        let uri = NbdUri::parse(&format!("nbd+unix:///x?socket={}", path.display())).unwrap();
        let error = connect(&uri).unwrap_err();
        server.join().unwrap();
        error
    }

    fn greeting() -> Vec<u8> {
        [&INIT_MAGIC.to_be_bytes()[..], &OPTION_MAGIC.to_be_bytes(), &3u16.to_be_bytes()].concat()
    }

    fn reply(kind: u32, data: &[u8]) -> Vec<u8> {
        let length = data.len() as u32;
        let words = [OPTION_GO, kind, length].map(u32::to_be_bytes).concat();
        [&REPLY_MAGIC.to_be_bytes()[..], &words, data].concat()
    }

    /// Proves N-1.
    #[test]
    fn a_closed_connection_sends_nothing_more() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().into();
        let mut socket = reach(&[address], Instant::now() + DEADLINE).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let (bytes, mut sent) = (vec![7; 1 << 16], 0);
        // The other host takes no more after a while; what is sent then lies here.
        while let Ok(count) = socket.write(&bytes) {
            sent += count;
        }
        drop(socket);
        let mut received = Vec::new();
        let end = server.read_to_end(&mut received).expect_err("it is told that the connection broke off");
        assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
        assert!(received.len() < sent, "all {sent} bytes came");
    }

    #[test]
    fn servers_that_say_nonsense_or_nothing_end_in_an_error() {
        let error = |bytes: Vec<u8>| against(bytes).to_string();
        assert!(error(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()).contains("no NBD server"));
        assert!(error([INIT_MAGIC, OLDSTYLE_MAGIC].map(u64::to_be_bytes).concat()).contains("oldstyle"));
        assert!(error([greeting(), reply(REPLY_ACK, b"")].concat()).contains("size"));
        assert!(error([greeting(), reply(REPLY_INFO, &[0, 0, 1])].concat()).contains("malformed"));
        assert!(error([greeting(), reply(REPLY_INFO, b"")].concat()).contains("malformed"));
        assert!(error([greeting(), reply(REPLY_ERROR | 6, b"not here")].concat()).contains("not here"));
        assert!(error([greeting(), vec![0; 64]].concat()).contains("not that to the option"));
        let endless = reply(REPLY_INFO, &[0, 1, b'x']).repeat(REPLIES_MAX);
        assert!(error([greeting(), endless].concat()).contains("come to an end"));
        let start = Instant::now();
        assert_eq!(against(greeting()).kind(), io::ErrorKind::TimedOut);
        assert!((DEADLINE..DEADLINE * 2).contains(&start.elapsed()));
    }
}
